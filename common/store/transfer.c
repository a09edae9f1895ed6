#include "common/store/transfer.h"

#include "common/base/array.h"

#include <stdlib.h>

const char *const ht_store_medium_names[] = {"memory", "disk", "remote"};
const char *const ht_path_names[] = {"own memory", "own disk", "peer", "remote"};

/* The sources of one unit's state part are adjacent in `order`. */
struct planning {
    const struct ht_model *model;
    const struct ht_transfer_source *sources;
    int64_t *order, *first; /* rows of sources by unit and state part; [units * HT_N_STATE_PARTS + 1] */
    int64_t *sent;          /* [n_nodes] bytes to other nodes so far */
    struct ht_transfers list;
    int64_t sink_begin;            /* the list's first row of the sink that is being added */
    int64_t missing;               /* elements */
    struct ht_extent missing_from; /* the first sink that lacks some */
    struct ht_box missing_box;
};

static int64_t bucket_of(const struct ht_extent *e)
{
    return e->unit * HT_N_STATE_PARTS + (int64_t)e->part;
}

static void sort_sources(struct planning *p, int64_t n)
{
    int64_t buckets = ht_model_units(p->model) * HT_N_STATE_PARTS;
    int64_t *next = HT_NEW_ARRAY(int64_t, buckets);
    p->order = HT_NEW_ARRAY(int64_t, n);
    p->first = HT_NEW_ARRAY(int64_t, buckets + 1);
    for (int64_t i = 0; i < n; i++) p->first[bucket_of(&p->sources[i].extent) + 1]++;
    for (int64_t b = 0; b < buckets; b++) {
        p->first[b + 1] += p->first[b];
        next[b] = p->first[b];
    }
    for (int64_t i = 0; i < n; i++) p->order[next[bucket_of(&p->sources[i].extent)]++] = i;
    free(next);
}

static int64_t nodes_of(const struct ht_transfer_source *sources, int64_t n)
{
    int64_t most = 0;
    for (int64_t i = 0; i < n; i++)
        if (sources[i].medium != HT_STORE_REMOTE && sources[i].node >= most) most = sources[i].node + 1;
    return most;
}

static enum ht_path path_of(const struct ht_transfer_source *from, const struct ht_transfer_sink *to)
{
    if (from->medium == HT_STORE_REMOTE) return HT_PATH_REMOTE;
    if (from->node != to->node) return HT_PATH_PEER;
    return from->medium == HT_STORE_MEMORY ? HT_PATH_MEMORY : HT_PATH_DISK;
}

/* Returns true if the sink that is being added reads a source already. */
static bool is_read(const struct planning *p, const struct ht_transfer_source *source)
{
    for (int64_t k = p->sink_begin; k < p->list.n; k++)
        if (&p->sources[p->list.rows[k].source] == source) return true;
    return false;
}

/* Returns true if source a serves a sink better than b: by path, then if the sink reads it anyway, then by the node's
   bytes so far, then by medium. */
static bool is_better(const struct planning *p, const struct ht_transfer_source *a, const struct ht_transfer_source *b,
                      const struct ht_transfer_sink *to)
{
    enum ht_path x = path_of(a, to), y = path_of(b, to);
    if (x != y) return x < y;
    bool a_read = is_read(p, a), b_read = is_read(p, b);
    if (a_read != b_read) return a_read;
    if (x != HT_PATH_PEER) return false;
    if (p->sent[a->node] != p->sent[b->node]) return p->sent[a->node] < p->sent[b->node];
    return a->medium < b->medium;
}

/* Finds the best source that has any of a box, and what it has of it. Returns its row, or -1. */
static int64_t find_source(const struct planning *p, const struct ht_transfer_sink *to, const struct ht_box *box,
                           struct ht_box *out)
{
    int64_t best = -1, bucket = bucket_of(&to->extent);
    for (int64_t k = p->first[bucket]; k < p->first[bucket + 1]; k++) {
        const struct ht_transfer_source *from = &p->sources[p->order[k]];
        struct ht_box has[3], common;
        if (best >= 0 && !is_better(p, from, &p->sources[best], to)) continue;
        int n = ht_extent_boxes(p->model, &from->extent, box->tensor, has);
        for (int i = 0; i < n; i++) {
            if (!ht_box_intersect(box, &has[i], &common)) continue;
            best = p->order[k];
            *out = common;
            break;
        }
    }
    return best;
}

static void note_missing(struct planning *p, const struct ht_transfer_sink *to, const struct ht_box *box)
{
    if (!p->missing) {
        p->missing_from = to->extent;
        p->missing_box = *box;
    }
    p->missing += ht_box_elements(box);
}

/* Adds the transfers of a box of a sink: the best source's share first, then the rest likewise. The depth is bounded by
   the number of extents' edges, since each share ends at one. */
static void add_box(struct planning *p, int32_t sink, const struct ht_transfer_sink *to, const struct ht_box *box)
{
    struct ht_box share, rest[4];
    int64_t source = find_source(p, to, box, &share);
    if (source < 0) {
        note_missing(p, to, box);
        return;
    }
    const struct ht_transfer_source *from = &p->sources[source];
    struct ht_transfer t = {.sink = sink, .source = (int32_t)source, .path = path_of(from, to), .box = share};
    HT_PUSH(p->list.rows, p->list.n, p->list.cap, t);
    if (t.path == HT_PATH_PEER) p->sent[from->node] += ht_transfer_bytes(&t);
    int n = ht_box_subtract(box, &share, rest);
    for (int i = 0; i < n; i++) add_box(p, sink, to, &rest[i]);
}

static void add_sink(struct planning *p, int32_t sink, const struct ht_transfer_sink *to)
{
    struct ht_param_part parts[HT_MAX_PARAM_PARTS];
    int n = ht_unit_param_parts(p->model, to->extent.unit, parts);
    p->sink_begin = p->list.n;
    for (int replicated = 0; replicated < 2;
         replicated++) /* any part has these: one that is read anyway, if possible */
        for (int32_t t = 0; t < n; t++) {
            struct ht_box boxes[3];
            if ((parts[t].split == HT_SPLIT_NONE) != replicated) continue;
            int k = ht_extent_boxes(p->model, &to->extent, t, boxes);
            for (int i = 0; i < k; i++) add_box(p, sink, to, &boxes[i]);
        }
}

static enum ht_status say_missing(const struct planning *p, struct ht_error *err)
{
    struct ht_param_part parts[HT_MAX_PARAM_PARTS];
    const struct ht_extent *e = &p->missing_from;
    ht_unit_param_parts(p->model, e->unit, parts);
    return ht_fail(err, HT_INFEASIBLE,
                   "unit %lld: %lld elements of the %s of %s, of part %d of %d, are in no store; %lld elements are "
                   "missing in all",
                   (long long)e->unit, (long long)ht_box_elements(&p->missing_box), ht_state_part_names[e->part],
                   parts[p->missing_box.tensor].name, e->tp_part, e->tp_parts, (long long)p->missing);
}

enum ht_status ht_transfers_plan(const struct ht_model *m, const struct ht_transfer_source *sources, int64_t n_sources,
                                 const struct ht_transfer_sink *sinks, int64_t n_sinks, struct ht_error *err,
                                 struct ht_transfers *out)
{
    struct planning p = {.model = m, .sources = sources};
    sort_sources(&p, n_sources);
    p.sent = HT_NEW_ARRAY(int64_t, nodes_of(sources, n_sources));
    p.list.first = HT_NEW_ARRAY(int64_t, n_sinks + 1);
    for (int64_t i = 0; i < n_sinks; i++) {
        add_sink(&p, (int32_t)i, &sinks[i]);
        p.list.first[i + 1] = p.list.n;
    }
    free(p.order);
    free(p.first);
    free(p.sent);
    if (p.missing) {
        ht_transfers_free(&p.list);
        return say_missing(&p, err);
    }
    *out = p.list;
    return HT_OK;
}

void ht_transfers_free(struct ht_transfers *t)
{
    free(t->rows);
    free(t->first);
    *t = (struct ht_transfers){0};
}

int64_t ht_transfer_bytes(const struct ht_transfer *t)
{
    return ht_box_elements(&t->box) * (int64_t)sizeof(float);
}

bool ht_transfer_next_run(const struct ht_model *m, const struct ht_extent *source, const struct ht_extent *sink,
                          const struct ht_box *box, int64_t *at, int64_t end, struct ht_transfer_run *out)
{
    struct ht_box_place from = ht_extent_place(m, source, box), to = ht_extent_place(m, sink, box);
    int64_t width = box->end - box->begin, groups = box->group_end - box->group;
    if (from.pitch == width && to.pitch == width) { /* groups are adjacent in both */
        width *= groups;
        groups = 1;
    }
    int64_t group = groups > 1 && *at > to.first ? (*at - to.first) / to.pitch : 0;
    if (group < groups && *at >= to.first + group * to.pitch + width) group++;
    if (group >= groups) return false;
    int64_t begin = to.first + group * to.pitch, skip = *at > begin ? *at - begin : 0;
    *out = (struct ht_transfer_run){
        .in_source = from.first + group * from.pitch + skip, .in_sink = begin + skip, .count = width - skip};
    if (out->in_sink >= end) return false;
    if (out->in_sink + out->count > end) out->count = end - out->in_sink;
    *at = out->in_sink + out->count;
    return true;
}

enum ht_status ht_transfers_fetch(const struct ht_model *m, const struct ht_transfer_source *sources,
                                  const struct ht_transfer_sink *sinks, const struct ht_transfers *list, int64_t sink,
                                  int64_t begin, int64_t end, ht_transfer_read read, void *ctx, float *out,
                                  struct ht_error *err)
{
    enum ht_status status = HT_OK;
    for (int64_t k = list->first[sink]; k < list->first[sink + 1] && status == HT_OK; k++) {
        const struct ht_transfer *t = &list->rows[k];
        const struct ht_extent *from = &sources[t->source].extent;
        struct ht_transfer_run run;
        for (int64_t at = begin;
             status == HT_OK && ht_transfer_next_run(m, from, &sinks[sink].extent, &t->box, &at, end, &run);)
            status = read(ctx, t->source, run.in_source, run.count, out + (run.in_sink - begin), err);
    }
    return status;
}
