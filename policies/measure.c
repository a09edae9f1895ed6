/*
 * Describes a pass to policies: sizes by the model, times by the profile. A block's activations are made when its
 * forward pass ends and used when its backward pass begins, since a pass is one op here.
 */
#include "policies/decide.h"

#include "common/base/array.h"
#include "common/base/minmax.h"
#include "common/draft/cost_query.h"
#include "common/draft/works.h"

#include <math.h>
#include <stdlib.h>

/* Returns the time to make a part of a block again, or INFINITY for its input. */
static double part_s(struct ht_cost_query *q, int part)
{
    if (part == HT_PART_INPUT) return INFINITY;
    struct ht_work w = ht_scenario_work(q->scenario, HT_OP_RECOMPUTE, HT_LANE_COMPUTE, 1);
    w.sub_ops = ht_part_sub_ops(&q->scenario->model, part);
    return (double)ht_query_work(q, &w) / 1e9;
}

/* Returns a copy's bytes per second if nothing else takes the link. */
static double rate_of(struct ht_cost_query *q, const struct ht_work *w)
{
    return (double)w->bytes * 1e9 / (double)ht_max(1, ht_query_work(q, w));
}

/* Lists a block's activations in the order of its forward pass. Returns their number. */
static int32_t add_block(const struct ht_scenario *sc, const double *recompute_s, struct ht_activation like,
                         struct ht_activation *out)
{
    int32_t n = 0;
    for (int i = 0; i < HT_N_PARTS; i++) {
        int part = i == 0 ? HT_PART_INPUT : i - 1;
        like.part = part;
        like.bytes = ht_part_bytes(sc, part);
        like.recompute_s = recompute_s[part];
        if (like.bytes > 0) out[n++] = like;
    }
    return n;
}

enum ht_status ht_policy_measure(const struct ht_scenario *sc, const struct ht_profile *costs, bool ssds,
                                 struct ht_error *err, struct ht_policy_case *out)
{
    struct ht_cost_query q = ht_query_slowest(sc, costs, err);
    int32_t blocks = (int32_t)sc->model.layers, units = blocks + 2;
    int64_t bytes = ht_unit_activation_bytes(&sc->model, 1, sc->micro_batch, sc->seq, sc->numerics.param);
    struct ht_work to_host = ht_copy_work(HT_LANE_D2H, bytes), to_device = ht_copy_work(HT_LANE_H2D, bytes);
    struct ht_work write = ht_disk_work(true, bytes), read = ht_disk_work(false, bytes);
    double sharers = (double)ht_scenario_ranks_per_node(sc); /* of an SSD array */
    double recompute_s[HT_N_PARTS], *made_s = HT_NEW_ARRAY(double, units), at = 0;
    *out = (struct ht_policy_case){.a = HT_NEW_ARRAY(struct ht_activation, blocks * HT_N_PARTS),
                                   .out_bytes_per_s = rate_of(&q, &to_host),
                                   .in_bytes_per_s = rate_of(&q, &to_device),
                                   .ssd_write_bytes_per_s = ssds ? rate_of(&q, &write) / sharers : 0,
                                   .ssd_read_bytes_per_s = ssds ? rate_of(&q, &read) / sharers : 0};
    for (int part = 0; part < HT_N_PARTS; part++) recompute_s[part] = part_s(&q, part);
    for (int32_t u = 0; u < units; u++) made_s[u] = at += (double)ht_query_pass(&q, HT_OP_FORWARD, u) / 1e9;
    out->forward_s = at;
    for (int32_t u = units - 1; u >= 0; u--) out->backward_s += (double)ht_query_pass(&q, HT_OP_BACKWARD, u) / 1e9;
    at = out->forward_s + out->backward_s - (double)ht_query_pass(&q, HT_OP_BACKWARD, 0) / 1e9;
    for (int32_t u = 1; u <= blocks; u++) {
        at -= (double)ht_query_pass(&q, HT_OP_BACKWARD, u) / 1e9;
        struct ht_activation like = {.block = u, .made_s = made_s[u], .used_s = at};
        out->n += add_block(sc, recompute_s, like, out->a + out->n);
    }
    free(made_s);
    return q.status;
}
