#include "common/store/price.h"

#include "common/base/array.h"
#include "common/exec/sim.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- rates ---- */

struct ht_store_rates ht_store_cluster_rates(const struct ht_cluster *cluster, double remote_bytes_per_s)
{
    int64_t n = cluster->n_nodes;
    double *disk = HT_NEW_ARRAY(double, n), *nic = HT_NEW_ARRAY(double, n), *memory = HT_NEW_ARRAY(double, n);
    for (int64_t i = 0; i < n; i++) {
        const struct ht_machine *m = &cluster->nodes[i];
        if (m->has_ssds) disk[i] = ht_machine_ssd_read_rate(m);
        if (m->has_nic) nic[i] = m->nic.bytes_per_s * m->nic.efficiency;
        memory[i] =
            (double)m->cpu.sockets * m->cpu.dram_bytes_per_s * m->cpu.dram_efficiency / 2; /* read and written */
    }
    return (struct ht_store_rates){(int32_t)n, disk, nic, memory, remote_bytes_per_s};
}

void ht_store_rates_free(struct ht_store_rates *rates)
{
    free((void *)(uintptr_t)rates->disk_bytes_per_s);
    free((void *)(uintptr_t)rates->nic_bytes_per_s);
    free((void *)(uintptr_t)rates->memory_bytes_per_s);
    *rates = (struct ht_store_rates){0};
}

/* ---- the graph ---- */

/* A copy's way: the resources that it uses, and the lowest of their rates. */
struct way {
    int32_t resources[3];
    int n;
    double bytes_per_s;
};

struct pricing {
    const struct ht_transfer_source *sources;
    const struct ht_transfer_sink *sinks;
    const struct ht_transfers *list;
    const struct ht_store_rates *rates;
    struct ht_store_reading how;
    struct ht_schedule *graph;
    int32_t *disks, *outs, *ins; /* [n_nodes] resources, -1: none yet */
    int32_t remote;
    int32_t *lanes; /* [n_ranks * HT_N_PATHS] -1: none yet */
    int64_t *cost_ns;
    int64_t n_costs;
    size_t costs_cap;
    int64_t *first_row; /* [n_costs] of an op: the first row of its sink and source; the op has all of them */
    int64_t n_rows;
    size_t rows_cap;
    struct ht_store_price *price;
};

/* Adds to a way a node's or the remote store's resource, made when it is first used. */
static bool add_to_way(struct pricing *p, struct way *w, const char *kind, int32_t node, enum ht_resource_kind res,
                       double bytes_per_s, int32_t *resource)
{
    char name[32];
    if (!(bytes_per_s > 0)) return false;
    snprintf(name, sizeof(name), "%s %d", kind, node);
    if (*resource < 0) *resource = ht_add_resource(p->graph, name, res, node, (int64_t)bytes_per_s);
    w->resources[w->n++] = *resource;
    if (w->n == 1 || bytes_per_s < w->bytes_per_s) w->bytes_per_s = bytes_per_s;
    return true;
}

/* Finds the way of a copy. Returns false if a rate on it is not known. */
static bool way_of(struct pricing *p, const struct ht_transfer *t, struct way *w)
{
    const struct ht_store_rates *r = p->rates;
    const struct ht_transfer_source *from = &p->sources[t->source];
    int32_t to = p->sinks[t->sink].node, node = from->node;
    *w = (struct way){0};
    if (t->path == HT_PATH_MEMORY) {
        w->bytes_per_s = r->memory_bytes_per_s[to];
        return w->bytes_per_s > 0;
    }
    if (t->path == HT_PATH_REMOTE) return add_to_way(p, w, "remote", 0, HT_RES_NIC, r->remote_bytes_per_s, &p->remote);
    if (from->medium == HT_STORE_DISK &&
        !add_to_way(p, w, "disk", node, HT_RES_SSD, r->disk_bytes_per_s[node], &p->disks[node]))
        return false;
    return t->path == HT_PATH_DISK ||
           (add_to_way(p, w, "nic out", node, HT_RES_NIC, r->nic_bytes_per_s[node], &p->outs[node]) &&
            add_to_way(p, w, "nic in", to, HT_RES_NIC, r->nic_bytes_per_s[to], &p->ins[to]));
}

static int32_t lane_of(struct pricing *p, int32_t rank, enum ht_path path)
{
    static const char *const names[] = {"memory", "disk", "peer", "remote"};
    int32_t *lane = &p->lanes[rank * HT_N_PATHS + (p->how.serial ? 0 : (int32_t)path)];
    if (*lane < 0) *lane = ht_add_lane(p->graph, p->how.serial ? "copies" : names[path], HT_LANE_DISK, rank, HT_FIFO);
    return *lane;
}

/* Adds the copy of so many bytes that a row stands for. */
static bool add_copy(struct pricing *p, int64_t row, int64_t bytes)
{
    const struct ht_transfer *t = &p->list->rows[row];
    const struct ht_transfer_sink *sink = &p->sinks[t->sink];
    const struct ht_work work = {
        .kind = HT_OP_COPY, .where = HT_LANE_DISK, .tp = 1, .ranks = 1, .bytes = bytes, .custom = "restore"};
    struct way w;
    if (!way_of(p, t, &w)) return false;
    ht_add_op(p->graph, HT_OP_RESTORE, lane_of(p, sink->rank, t->path),
              (struct ht_label){.unit = (int32_t)sink->extent.unit, .n_units = 1, .micro_batch = -1},
              ht_add_work(p->graph, &work));
    for (int i = 0; i < w.n; i++) ht_op_use(p->graph, w.resources[i], bytes);
    HT_PUSH(p->cost_ns, p->n_costs, p->costs_cap, (int64_t)ceil((double)bytes / w.bytes_per_s * 1e9));
    HT_PUSH(p->first_row, p->n_rows, p->rows_cap, row);
    p->price->bytes[t->path] += bytes;
    return true;
}

/* Returns the bytes that a rank reads for the elements of a sink from one source. */
static int64_t bytes_of(const struct pricing *p, const struct ht_transfer *t, int64_t elements)
{
    const struct ht_extent *e = &p->sources[t->source].extent;
    int64_t each = e->part == HT_STATE_PARAM ? p->how.param_bytes : (int64_t)sizeof(float);
    return each * (p->how.whole_files ? e->end - e->begin : elements);
}

/* Adds a sink's copies: one for each of its sources, whatever the number of boxes. */
static enum ht_status add_sink(struct pricing *p, int64_t sink, struct ht_error *err)
{
    const struct ht_transfers *list = p->list;
    for (int64_t k = list->first[sink]; k < list->first[sink + 1]; k++) {
        const struct ht_transfer *t = &list->rows[k];
        int64_t elements = 0;
        bool seen = false;
        for (int64_t j = list->first[sink]; j < k; j++) seen |= list->rows[j].source == t->source;
        if (seen) continue;
        for (int64_t j = k; j < list->first[sink + 1]; j++)
            if (list->rows[j].source == t->source) elements += ht_box_elements(&list->rows[j].box);
        if (!add_copy(p, k, bytes_of(p, t, elements)))
            return ht_fail(err, HT_BAD_INPUT,
                           "a copy to node %d by way of its %s has no rate; expected a disk, a NIC or a "
                           "remote store there",
                           p->sinks[t->sink].node, ht_path_names[t->path]);
    }
    return HT_OK;
}

/* Makes the graph. Whatever the status, *p has to be freed by pricing_free. */
static enum ht_status pricing_create(const struct ht_transfer_source *sources, const struct ht_transfer_sink *sinks,
                                     int64_t n_sinks, const struct ht_transfers *list,
                                     const struct ht_store_rates *rates, struct ht_store_reading how,
                                     struct ht_store_price *price, struct ht_error *err, struct pricing *p)
{
    int32_t n_ranks = 1;
    for (int64_t i = 0; i < n_sinks; i++)
        if (sinks[i].rank >= n_ranks) n_ranks = sinks[i].rank + 1;
    int32_t *nodes = HT_NEW_ARRAY(int32_t, n_ranks);
    for (int64_t i = 0; i < n_sinks; i++) nodes[sinks[i].rank] = sinks[i].node;
    *p = (struct pricing){.sources = sources,
                          .sinks = sinks,
                          .list = list,
                          .rates = rates,
                          .how = how,
                          .graph = ht_schedule_create("restore", n_ranks, rates->n_nodes, nodes),
                          .disks = ht_alloc_ids(rates->n_nodes),
                          .outs = ht_alloc_ids(rates->n_nodes),
                          .ins = ht_alloc_ids(rates->n_nodes),
                          .remote = -1,
                          .lanes = ht_alloc_ids((int64_t)n_ranks * HT_N_PATHS),
                          .price = price};
    free(nodes);
    enum ht_status status = HT_OK;
    for (int64_t i = 0; i < n_sinks && status == HT_OK; i++) status = add_sink(p, i, err);
    if (status == HT_OK && p->graph->n_ops) ht_schedule_link(p->graph);
    return status;
}

static void pricing_free(struct pricing *p)
{
    ht_schedule_destroy(p->graph);
    free(p->disks);
    free(p->outs);
    free(p->ins);
    free(p->lanes);
    free(p->cost_ns);
    free(p->first_row);
}

/* ---- simulated ---- */

static enum ht_status simulate(const struct pricing *p, struct ht_error *err)
{
    struct ht_sim_options options = {.iterations = 1};
    struct ht_trace *trace = NULL;
    if (p->graph->n_ops == 0) return HT_OK;
    enum ht_status status = ht_sim_run(p->graph, p->cost_ns, &options, err, &trace);
    if (status == HT_OK) p->price->ns = trace->iteration_end_ns[0];
    ht_trace_destroy(trace);
    return status;
}

enum ht_status ht_transfers_price(const struct ht_transfer_source *sources, const struct ht_transfer_sink *sinks,
                                  int64_t n_sinks, const struct ht_transfers *list, const struct ht_store_rates *rates,
                                  struct ht_store_reading how, struct ht_error *err, struct ht_store_price *out)
{
    struct ht_store_price price = {0};
    struct pricing p;
    enum ht_status status = pricing_create(sources, sinks, n_sinks, list, rates, how, &price, err, &p);
    if (status == HT_OK) status = simulate(&p, err);
    if (status == HT_OK) *out = price;
    pricing_free(&p);
    return status;
}

/* ---- emulated ---- */

/* Carries out copies: reads what they read. */
struct carrier {
    const struct pricing *p;
    const struct ht_model *m;
    const struct ht_store_emulation *by;
    pthread_mutex_t reading;
    float *buffer; /* HT_PIECE_ELEMENTS */
};

/* Reads elements [first, first + n) of a source, in pieces. */
static enum ht_status read_elements(struct carrier *c, int32_t source, int64_t first, int64_t n, struct ht_error *err)
{
    enum ht_status status = HT_OK;
    for (int64_t at = 0, count; at < n && status == HT_OK; at += count) {
        count = n - at < HT_PIECE_ELEMENTS ? n - at : HT_PIECE_ELEMENTS;
        status = c->by->read(c->by->ctx, source, first + at, count, c->buffer, err);
    }
    return status;
}

static enum ht_status read_row(struct carrier *c, const struct ht_transfer *t, struct ht_error *err)
{
    const struct ht_extent *source = &c->p->sources[t->source].extent, *sink = &c->p->sinks[t->sink].extent;
    struct ht_transfer_run run;
    enum ht_status status = HT_OK;
    if (c->p->how.whole_files) return read_elements(c, t->source, 0, source->end - source->begin, err);
    for (int64_t at = 0;
         status == HT_OK && ht_transfer_next_run(c->m, source, sink, &t->box, &at, sink->end - sink->begin, &run);)
        status = read_elements(c, t->source, run.in_source, run.count, err);
    return status;
}

static enum ht_status run_copy(void *ctx, int32_t iteration, int32_t op, const struct ht_buffer *buffers, int32_t n,
                               struct ht_error *err)
{
    struct carrier *c = ctx;
    const struct ht_transfers *list = c->p->list;
    const struct ht_transfer *first = &list->rows[c->p->first_row[op]];
    enum ht_status status = HT_OK;
    (void)iteration, (void)buffers, (void)n;
    pthread_mutex_lock(&c->reading);
    for (int64_t j = c->p->first_row[op]; j < list->first[first->sink + 1] && status == HT_OK; j++) {
        if (list->rows[j].source != first->source) continue;
        status = read_row(c, &list->rows[j], err);
        if (c->p->how.whole_files) break;
    }
    pthread_mutex_unlock(&c->reading);
    return status;
}

static enum ht_status emulate(struct carrier *c, struct ht_error *err, struct ht_emu_overruns *overruns)
{
    static const struct ht_backend_ops ops = {.name = "stores", .run_op = run_copy};
    const struct pricing *p = c->p;
    const struct ht_emu_options o = {
        .schedule = p->graph, .cost_ns = p->cost_ns, .scale = c->by->scale, .inner = &ops, .inner_ctx = c};
    struct ht_emu *emu = NULL;
    struct ht_trace *trace = NULL;
    struct ht_arena **none = HT_NEW_ARRAY(struct ht_arena *, ht_n_spaces(p->graph));
    enum ht_status status = ht_emu_create(&o, err, &emu);
    const struct ht_run_options run = {
        .iterations = 1, .backend = emu ? ht_emu_backend(emu) : NULL, .backend_ctx = emu, .arenas = none};
    if (status == HT_OK) status = ht_run(p->graph, &run, err, &trace);
    if (status == HT_OK) {
        ht_emu_rescale(emu, trace);
        p->price->ns = trace->iteration_end_ns[0];
        *overruns = ht_emu_overruns(emu);
    }
    ht_trace_destroy(trace);
    ht_emu_destroy(emu);
    free(none);
    return status;
}

enum ht_status ht_transfers_emulate(const struct ht_model *m, const struct ht_transfer_source *sources,
                                    const struct ht_transfer_sink *sinks, int64_t n_sinks,
                                    const struct ht_transfers *list, const struct ht_store_rates *rates,
                                    struct ht_store_reading how, const struct ht_store_emulation *emulation,
                                    struct ht_error *err, struct ht_store_price *out, struct ht_emu_overruns *overruns)
{
    struct ht_store_price price = {0};
    struct pricing p;
    struct carrier c = {.p = &p, .m = m, .by = emulation, .buffer = HT_NEW_ARRAY(float, HT_PIECE_ELEMENTS)};
    enum ht_status status = pricing_create(sources, sinks, n_sinks, list, rates, how, &price, err, &p);
    *overruns = (struct ht_emu_overruns){.worst_op = -1, .valid = true};
    pthread_mutex_init(&c.reading, NULL);
    if (status == HT_OK && p.graph->n_ops) status = emulate(&c, err, overruns);
    if (status == HT_OK) *out = price;
    pthread_mutex_destroy(&c.reading);
    pricing_free(&p);
    free(c.buffer);
    return status;
}
