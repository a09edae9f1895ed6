/*
 * Messages between two GPUs, and rings over nodes: the catalogue's rate beside what others measured.
 *
 *     build/bench_network [--rows]     --rows: every measurement as CSV; else a summary of each machine and path
 *
 * Measured: harness/claims/measured/mist_network.csv (one GPU sends to another, by size; and a fit of all-gathers in which
 * every GPU of the nodes is busy, each in a group of `nodes` x `gpus`) and sailor_network.csv (all pairs of two nodes at
 * once, the node's rate). Predicted by common/profile on the nodes below, of which a group has its share of the NIC. No
 * rate was fitted to these rows, and the A10G's through host memory was fitted to its collectives (mist_comm.csv). NICs
 * are those that the clouds and the site publish for these machines; what is not published (Sailor's A100 and V100, in a
 * cloud that it does not name) is left out. Errors are predicted over measured rate, less 1.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/array.h"
#include "common/profile/profile.h"

#define GIB 1073741824.0

/* A kind of node, with `nic_gpus` GPUs at one NIC. */
static const struct machine {
    const char *gpu, *parts,
        *nic; /* nic: a link of the catalogue's, or bandwidth and efficiency of one that it lacks */
    int nic_gpus;
} machines[] = {
    {"l4", "cpu: epyc-7713, ram: 1 TB, pcie: pcie4-x16, peer: false", "12.5 GB/s, efficiency: 0.6", 8},
    {"a10g", "cpu: epyc-7r32, ram: 1 TB, pcie: pcie4-x16, peer: false, through_host: 1.9 GB/s",
     "12.5 GB/s, efficiency: 0.6", 8},
    {"a100", "cpu: epyc-7742, ram: 1 TB, pcie: pcie4-x16, nvlink: nvlink3", "50 GB/s, efficiency: 0.6", 8},
    {"v100", "cpu: xeon-e5-2686v4, ram: 1 TB, pcie: pcie3-x16, nvlink: nvlink2", "1.25 GB/s, efficiency: 0.9", 8},
    {"GH-96", "cpu: epyc-7713, ram: 1 TB, pcie: pcie5-x16, nvlink: nvlink4", "25 GB/s, efficiency: 0.97", 1},
    {"RTX-2080", "cpu: epyc-7713, ram: 1 TB, pcie: pcie3-x16", "3.125 GB/s, efficiency: 0.9", 8},
    {"Titan-RTX", "cpu: epyc-7713, ram: 1 TB, pcie: pcie3-x16", "3.125 GB/s, efficiency: 0.9", 8},
    {"RTX-3090", "cpu: epyc-7713, ram: 1 TB, pcie: pcie4-x16", "0.125 GB/s, efficiency: 0.9", 8},
};

struct row {
    const char *source, *path;
    char gpu[24];
    int nodes, gpus;                   /* gpus of each node: of a group, or that send at once */
    double bytes, measured, predicted; /* bytes per second */
};
struct rows {
    struct row *list;
    size_t n, cap;
};

static FILE *open_rows(const char *name)
{
    char line[256], path[512];
    snprintf(path, sizeof(path), "%s/harness/claims/measured/%s", HT_SOURCE_DIR, name);
    FILE *in = fopen(path, "r");
    if (in && fgets(line, sizeof(line), in)) return in;
    fprintf(stderr, "bench_network: %s cannot be read\n", path);
    exit(2);
}

/* Reads the next field of a line; an empty one is "". */
static const char *field(char **rest)
{
    const char *f = strsep(rest, ",\n");
    return f ? f : "";
}

static void read_mist(struct rows *rows)
{
    char line[256];
    FILE *in = open_rows("mist_network.csv");
    while (fgets(line, sizeof(line), in)) {
        char *rest = line;
        struct row r = {.source = "Mist"};
        snprintf(r.gpu, sizeof(r.gpu), "%s", field(&rest));
        bool pair = !strcmp(field(&rest), "pair"), inside = !strcmp(field(&rest), "intra");
        r.path = !pair ? "ring" : inside ? "in a node" : "between nodes";
        r.nodes = atoi(field(&rest));
        r.gpus = atoi(field(&rest));
        r.bytes = pair ? atof(field(&rest)) * 1048576 : (field(&rest), GIB);
        r.measured = atof(field(&rest)) * GIB;
        HT_PUSH(rows->list, rows->n, rows->cap, r);
    }
    fclose(in);
}

static const struct machine *machine_of(const char *gpu)
{
    for (size_t i = 0; i < HT_COUNT(machines); i++)
        if (!strcmp(machines[i].gpu, gpu)) return &machines[i];
    return NULL;
}

/* Reads the rates of messages of 1, 16 and 256 MB; inside a node those of one pair alone. Of two types the slower one's NIC
   counts. */
static void read_sailor(struct rows *rows)
{
    static const double sizes_mb[] = {1, 16, 256};
    char line[256];
    FILE *in = open_rows("sailor_network.csv");
    while (fgets(line, sizeof(line), in)) {
        char *rest = line;
        bool inside = !strcmp(field(&rest), "intra");
        const char *from = field(&rest), *to = field(&rest);
        int gpus = atoi(field(&rest));
        double c2 = atof(field(&rest)), c1 = atof(field(&rest)), c0 = atof(field(&rest)), most = atof(field(&rest));
        if (!machine_of(from) || !machine_of(to) || (inside && gpus != 2)) continue;
        for (size_t i = 0; i < HT_COUNT(sizes_mb); i++) {
            double x = log2(sizes_mb[i]);
            struct row r = {.source = "Sailor",
                            .path = inside ? "in a node" : "between nodes",
                            .nodes = inside ? 1 : 2,
                            .gpus = gpus,
                            .bytes = sizes_mb[i] * 1e6,
                            .measured = fmin((c2 * x * x + c1 * x + c0) * 1e9, most)};
            snprintf(r.gpu, sizeof(r.gpu), "%s", !strcmp(to, "RTX-3090") ? to : from);
            HT_PUSH(rows->list, rows->n, rows->cap, r);
        }
    }
    fclose(in);
}

/* Returns the time of a work on nodes of `gpus` GPUs, which have their share of the NIC. */
static double seconds(const struct machine *m, int nodes, int gpus, double share, const struct ht_work *work)
{
    char text[512];
    struct ht_error err;
    struct ht_doc *doc = NULL;
    struct ht_cluster *cluster = NULL;
    int64_t ns = 0;
    double bandwidth = atof(m->nic) * share;
    snprintf(text, sizeof(text),
             "{name: %s, source: bench, nodes: [{count: %d, %s, gpus: [{type: a100-40gb, count: %d}], nic: {name: nic, "
             "bandwidth: %.9g GB/s, %s, duplex: true, latency: 20 us, source: bench}}]}",
             m->gpu, nodes, m->parts, gpus, bandwidth, strchr(m->nic, ',') + 1);
    if (ht_doc_parse(text, strlen(text), m->gpu, &err, &doc) || ht_cluster_parse(doc, &err, &cluster)) {
        fprintf(stderr, "bench_network: %s\n", err.text);
        exit(2);
    }
    struct ht_profile *profile = ht_profile_modelled(cluster);
    if (ht_profile_cost(profile, 0, work, &err, &ns)) {
        fprintf(stderr, "bench_network: %s\n", err.text);
        exit(2);
    }
    ht_profile_destroy(profile);
    ht_cluster_destroy(cluster);
    ht_doc_destroy(doc);
    return (double)ns * 1e-9;
}

static double predicted(const struct row *r)
{
    const struct machine *m = machine_of(r->gpu);
    struct ht_work work = {.kind = HT_OP_SEND, .where = HT_LANE_P2P, .n_units = 1, .tp = 1, .ranks = 2};
    work.bytes = (int64_t)r->bytes;
    if (!strcmp(r->path, "ring")) { /* Mist: as many groups at once as fit the nodes */
        int ranks = r->nodes * r->gpus;
        work.kind = HT_OP_ALL_GATHER;
        work.where = HT_LANE_COLLECTIVE;
        work.ranks = ranks;
        work.bytes = (int64_t)(r->bytes * (ranks - 1) / ranks);
        return (double)work.bytes / seconds(m, r->nodes, r->gpus, (double)r->gpus / m->nic_gpus, &work);
    }
    if (!strcmp(r->path, "in a node")) return r->bytes / seconds(m, 1, 2, 1, &work);
    /* between nodes: one message has a NIC, or those of one NIC share it */
    return fmax(1, (double)r->gpus / m->nic_gpus) * r->bytes / seconds(m, 2, 1, 1, &work);
}

static int ascending(const void *a, const void *b)
{
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

/* Prints median and range of the errors of the rows that are like row `first`, and marks them as done. */
static void summarize(const struct rows *rows, size_t first, bool *done)
{
    const struct row *r = &rows->list[first];
    double *errors = HT_NEW_ARRAY(double, rows->n);
    size_t n = 0;
    for (size_t i = first; i < rows->n; i++) {
        const struct row *x = &rows->list[i];
        if (done[i] || x->source != r->source || strcmp(x->path, r->path) || strcmp(x->gpu, r->gpu)) continue;
        done[i] = true;
        errors[n++] = x->predicted / x->measured - 1;
    }
    qsort(errors, n, sizeof(double), ascending);
    printf("%-7s %-10s %-14s %3zu rows: median %+7.1f%%, %+7.1f%% to %+7.1f%%\n", r->source, r->gpu, r->path, n,
           100 * errors[n / 2], 100 * errors[0], 100 * errors[n - 1]);
    free(errors);
}

int main(int argc, char **argv)
{
    struct rows rows = {0};
    read_mist(&rows);
    read_sailor(&rows);
    for (size_t i = 0; i < rows.n; i++) rows.list[i].predicted = predicted(&rows.list[i]);
    if (argc > 1 && !strcmp(argv[1], "--rows")) {
        puts("source,gpu,path,nodes,gpus,bytes,measured_gb_per_s,predicted_gb_per_s");
        for (size_t i = 0; i < rows.n; i++) {
            const struct row *r = &rows.list[i];
            printf("%s,%s,%s,%d,%d,%.0f,%.4f,%.4f\n", r->source, r->gpu, r->path, r->nodes, r->gpus, r->bytes,
                   r->measured * 1e-9, r->predicted * 1e-9);
        }
    } else {
        bool *done = HT_NEW_ARRAY(bool, rows.n);
        puts("predicted over measured rate, less 1");
        for (size_t i = 0; i < rows.n; i++)
            if (!done[i]) summarize(&rows, i, done);
        free(done);
    }
    free(rows.list);
    return 0;
}
