#include "common/store/layout.h"

#include "common/base/array.h"

#include <stdio.h>

int32_t ht_store_layout_ranks(const struct ht_store_layout *l)
{
    return l->dp * l->tp * l->pp;
}

enum ht_status ht_store_layout_read(const char *flag, const char *text, struct ht_error *err,
                                    struct ht_store_layout *out)
{
    enum { MOST = 4096 };
    int dp, tp, pp, used = 0;
    bool read = sscanf(text, "%4d,%4d,%4d%n", &dp, &tp, &pp, &used) == 3 && !text[used];
    if (!read || dp < 1 || tp < 1 || pp < 1 || (int64_t)dp * tp * pp > MOST)
        return ht_fail(err, HT_BAD_INPUT,
                       "%s: '%.40s' is not a layout; expected data, tensor and pipeline parallelism, such as 2,4,1, of "
                       "at most %d ranks",
                       flag, text, MOST);
    *out = (struct ht_store_layout){.dp = dp, .tp = tp, .pp = pp};
    return HT_OK;
}

enum ht_status ht_store_layout_check(const struct ht_store_layout *l, const struct ht_model *m, struct ht_error *err)
{
    char buf[64];
    const char *what = l->tp > 1 ? ht_model_cannot_part(m, l->tp, buf, sizeof(buf)) : NULL;
    if (what) return ht_fail(err, HT_BAD_INPUT, "%s cannot be cut into %d parts", what, l->tp);
    if (l->pp > m->layers && l->pp > 1)
        return ht_fail(err, HT_BAD_INPUT, "%lld blocks cannot be cut into %d stages", (long long)m->layers, l->pp);
    return HT_OK;
}

void ht_store_layout_stage(const struct ht_store_layout *l, const struct ht_model *m, int32_t stage, int64_t *first,
                           int64_t *end)
{
    int64_t each = m->layers / l->pp, more = m->layers % l->pp;
    int64_t blocks = stage * each + (stage < more ? stage : more); /* before this stage */
    *first = stage ? 1 + blocks : 0;
    *end = 1 + blocks + each + (stage < more);
    if (stage == l->pp - 1) *end = ht_model_units(m);
}

/* Returns what a replica keeps of a part: all of it, or its range under ZeRO. */
static struct ht_extent kept_by(const struct ht_store_layout *l, struct ht_extent all, int32_t replica)
{
    if (!l->zero1 || all.part == HT_STATE_PARAM) return all;
    int64_t n = all.end, each = (n + l->dp - 1) / l->dp;
    all.begin = replica * each < n ? replica * each : n;
    all.end = all.begin + each < n ? all.begin + each : n;
    return all;
}

struct ht_transfer_sink *ht_store_layout_sinks(const struct ht_store_layout *l, const struct ht_model *m, int64_t *n)
{
    struct ht_transfer_sink *sinks = NULL;
    size_t cap = 0;
    *n = 0;
    for (int32_t rank = 0; rank < ht_store_layout_ranks(l); rank++) {
        int64_t first, end;
        ht_store_layout_stage(l, m, rank / l->tp % l->pp, &first, &end);
        for (int64_t u = first; u < end; u++)
            for (int part = 0; part < HT_N_STATE_PARTS; part++) {
                struct ht_extent all = ht_extent_of_part(m, u, (enum ht_state_part)part, rank % l->tp, l->tp);
                struct ht_transfer_sink s = {.extent = kept_by(l, all, rank / (l->tp * l->pp)), .rank = rank};
                if (l->per_node) s.node = rank / l->per_node;
                if (s.extent.begin < s.extent.end) HT_PUSH(sinks, *n, cap, s);
            }
    }
    return sinks;
}
