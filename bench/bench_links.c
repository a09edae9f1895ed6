/*
 * Collectives inside a node: the catalogue's time beside NCCL's, as others measured it.
 *
 *     build/bench_links [--rows]      --rows: every measurement; else a summary of each machine, collective and number of GPUs
 *
 * Measured: harness/claims/measured/vtrain_allreduce.csv (NCCL on A100 and V100 with NVLink) and mist_comm.csv (NCCL on A100
 * with NVLink; on L4 and A10G without, through host memory). Predicted by common/profile on the nodes below. From these rows
 * the catalogue has the A10G's rate through host memory and NVLink's efficiency, those of an all-reduce over 8 GPUs; the L4's
 * is that of another machine. Errors are predicted over measured time, less 1.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/array.h"
#include "common/profile/profile.h"

static const struct {
    const char *gpu, *node;
} machines[] = {
    {"a100",
     "{cpu: epyc-7742, sockets: 2, ram: 1 TB, gpus: [{type: a100-40gb, count: 8}], pcie: pcie4-x16, nvlink: nvlink3}"},
    {"v100", "{cpu: xeon-e5-2686v4, sockets: 2, ram: 1 TB, gpus: [{type: v100-16gb, count: 8}], pcie: pcie3-x16, "
             "nvlink: nvlink2}"},
    {"l4", "{cpu: epyc-7713, ram: 1 TB, gpus: [{type: l4, count: 8}], pcie: pcie4-x16, peer: false}"},
    {"a10g", "{cpu: epyc-7r32, ram: 1 TB, gpus: [{type: a10g, count: 8}], pcie: pcie4-x16, peer: false, through_host: "
             "1.9 GB/s}"},
};

struct row {
    const char *source;
    char gpu[8], collective[20];
    int gpus;
    double bytes, measured_s, predicted_s;
};
struct rows {
    struct row *list;
    size_t n, cap;
};

static void read_rows(const char *source, const char *path, bool mist, struct rows *rows)
{
    char line[128], full[512];
    snprintf(full, sizeof(full), "%s/%s", HT_SOURCE_DIR, path);
    FILE *in = fopen(full, "r");
    if (!in || !fgets(line, sizeof(line), in)) {
        fprintf(stderr, "bench_links: %s cannot be read\n", full);
        exit(2);
    }
    while (fgets(line, sizeof(line), in)) {
        struct row r = {.source = source, .collective = "all_reduce"};
        double size, time;
        bool ok = mist ? sscanf(line, "%7[^,],%19[^,],%d,%lf,%lf", r.gpu, r.collective, &r.gpus, &size, &time) == 5
                       : sscanf(line, "%7[^,],%d,%lf,%lf", r.gpu, &r.gpus, &size, &time) == 4;
        if (!ok) continue;
        r.bytes = mist ? size * 1048576 : size;
        r.measured_s = mist ? time * 1e-3 : time * 1e-9;
        HT_PUSH(rows->list, rows->n, rows->cap, r);
    }
    fclose(in);
}

/* Returns what each member sends in a ring: of an all-gather `bytes` are one member's, else the whole tensor's. */
static struct ht_work ring_of(const struct row *r)
{
    double n = r->gpus, sent = r->bytes * (n - 1) / n;
    enum ht_op_kind kind = HT_OP_REDUCE_SCATTER;
    if (!strcmp(r->collective, "all_reduce")) kind = HT_OP_ALL_REDUCE, sent *= 2;
    if (!strcmp(r->collective, "all_gather")) kind = HT_OP_ALL_GATHER, sent *= n;
    return (struct ht_work){.kind = kind,
                            .where = HT_LANE_COLLECTIVE,
                            .dtype = HT_F16,
                            .grad_dtype = HT_F16,
                            .n_units = 1,
                            .tp = 1,
                            .ranks = r->gpus,
                            .bytes = (int64_t)sent};
}

static void predict(struct rows *rows)
{
    for (size_t m = 0; m < HT_COUNT(machines); m++) {
        char text[512];
        struct ht_error err;
        struct ht_doc *doc = NULL;
        struct ht_cluster *cluster = NULL;
        snprintf(text, sizeof(text), "{name: %s, source: bench, nodes: [%s]}", machines[m].gpu, machines[m].node);
        if (ht_doc_parse(text, strlen(text), machines[m].gpu, &err, &doc) || ht_cluster_parse(doc, &err, &cluster)) {
            fprintf(stderr, "bench_links: %s\n", err.text);
            exit(2);
        }
        struct ht_profile *profile = ht_profile_modelled(cluster);
        for (size_t i = 0; i < rows->n; i++) {
            struct row *r = &rows->list[i];
            struct ht_work work = ring_of(r);
            int64_t ns = 0;
            if (strcmp(r->gpu, machines[m].gpu) || ht_profile_cost(profile, 0, &work, &err, &ns)) continue;
            r->predicted_s = (double)ns * 1e-9;
        }
        ht_profile_destroy(profile);
        ht_cluster_destroy(cluster);
        ht_doc_destroy(doc);
    }
}

static int ascending(const void *a, const void *b)
{
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

static bool alike(const struct row *a, const struct row *b)
{
    return a->source == b->source && !strcmp(a->gpu, b->gpu) && !strcmp(a->collective, b->collective) &&
           a->gpus == b->gpus;
}

/* Prints median and largest error of the rows from `first` on that are alike, of up to 16 MiB and above. Returns the
   first row that is not. */
static size_t summarize(const struct rows *rows, size_t first)
{
    const struct row *r = &rows->list[first];
    double *errors[2] = {HT_NEW_ARRAY(double, rows->n), HT_NEW_ARRAY(double, rows->n)};
    size_t n[2] = {0}, end = first;
    for (; end < rows->n && alike(r, &rows->list[end]); end++) {
        int large = rows->list[end].bytes > 16 * 1048576;
        errors[large][n[large]++] = rows->list[end].predicted_s / rows->list[end].measured_s - 1;
    }
    printf("%-7s %-5s %-15s %4d", r->source, r->gpu, r->collective, r->gpus);
    for (int k = 0; k < 2; k++) {
        qsort(errors[k], n[k], sizeof(double), ascending);
        if (n[k])
            printf("  %3zu rows: median %+6.1f%%, %+6.1f%% to %+6.1f%%", n[k], 100 * errors[k][n[k] / 2],
                   100 * errors[k][0], 100 * errors[k][n[k] - 1]);
        free(errors[k]);
    }
    putchar('\n');
    return end;
}

int main(int argc, char **argv)
{
    struct rows rows = {0};
    read_rows("vTrain", "harness/claims/measured/vtrain_allreduce.csv", false, &rows);
    read_rows("Mist", "harness/claims/measured/mist_comm.csv", true, &rows);
    predict(&rows);
    if (argc > 1 && !strcmp(argv[1], "--rows")) {
        puts("source,gpu,collective,gpus,bytes,measured_s,predicted_s");
        for (size_t i = 0; i < rows.n; i++)
            printf("%s,%s,%s,%d,%.0f,%.9f,%.9f\n", rows.list[i].source, rows.list[i].gpu, rows.list[i].collective,
                   rows.list[i].gpus, rows.list[i].bytes, rows.list[i].measured_s, rows.list[i].predicted_s);
    } else {
        puts("predicted over measured, less 1; up to 16 MiB, then above");
        for (size_t i = 0; i < rows.n;) i = summarize(&rows, i);
    }
    free(rows.list);
    return 0;
}
