#include "baselines/shape.h"

#include "common/base/minmax.h"
#include "common/draft/cost_query.h"

int64_t ht_shape_rank(const struct ht_shape *x, int64_t k, int64_t q, int64_t p)
{
    return (q * x->dp + k) * x->tp + p;
}

/* Units [begin, end) of stage i of pp v. */
struct units {
    int64_t begin, end;
};

static struct units units_of(const struct ht_scenario *s, const struct ht_shape *x, int64_t i)
{
    int64_t n = x->pp * x->v, layers = s->model.layers;
    struct units u = {1 + i * layers / n, 1 + (i + 1) * layers / n};
    if (i == 0) u.begin = 0;
    if (i + 1 == n) u.end = layers + 2;
    return u;
}

static int64_t micro_batches(const struct ht_scenario *s, const struct ht_shape *x)
{
    return ht_scenario_micro_batches(s) / x->dp;
}

/* ---- memory ---------------------------------------------------------------------------------------------------- */

/* Returns what a unit keeps of a micro-batch until its backward pass, with its input. */
static int64_t kept_bytes(const struct ht_scenario *s, const struct ht_model *part, const struct ht_shape *x, int64_t u)
{
    int64_t input = ht_unit_input_bytes(part, u, s->micro_batch, s->seq, s->numerics.param);
    unsigned sub_ops =
        x->again == HT_RECOMPUTES_ATTENTION ? HT_ALL_SUB_OPS & ~(1u << HT_SUB_ATTENTION) : HT_ALL_SUB_OPS;
    if (ht_model_unit_kind(part, u) != HT_UNIT_BLOCK) return 0;
    if (x->again == HT_RECOMPUTES_BLOCKS) return input;
    return input + ht_sub_ops_activation_bytes(part, sub_ops, s->micro_batch, s->seq, s->numerics.param);
}

/* Returns the forward passes of a device before its first backward pass (common/schedule/pipeline.h). */
static int64_t passes_ahead(const struct ht_shape *x, int64_t q, int64_t l)
{
    int64_t ahead = x->v > 1 ? 2 * (x->pp - q - 1) + (x->v - 1) * x->pp : x->pp - q;
    return ht_min(ahead, l * x->v);
}

int64_t ht_shape_least_bytes(const struct ht_scenario *s, const struct ht_shape *x)
{
    struct ht_model part = ht_model_part(&s->model, 0, (int32_t)x->tp);
    int64_t l = micro_batches(s, x), most = 0;
    for (int64_t q = 0; q < x->pp; q++) {
        int64_t params = 0, kept = INT64_MAX, ahead = passes_ahead(x, q, l);
        for (int64_t c = 0; c < x->v; c++) {
            struct units units = units_of(s, x, c * x->pp + q);
            int64_t bytes = 0;
            for (int64_t u = units.begin; u < units.end; u++) {
                params += ht_unit_params(&part, u);
                bytes += kept_bytes(s, &part, x, u);
            }
            kept = ht_min(kept, bytes);
        }
        bool together = l > 1 && (x->v == 1 || l > x->pp); /* the sums of all stages */
        int64_t sums = together ? params * ht_dtype_bytes(s->numerics.accumulate) : 0;
        int64_t beside = together ? ht_min(ahead, l * x->v - (x->v - 1) * x->pp - 1) : 0;
        int64_t held = ht_max(ahead * kept, sums + beside * kept);
        int64_t states = params * ht_optimizer_state_bytes(&s->numerics) / (x->zero ? x->dp : 1);
        most = ht_max(most, params * ht_dtype_bytes(s->numerics.param) + states + held);
    }
    return most;
}

/* ---- time ------------------------------------------------------------------------------------------------------ */

/* Returns the cost of running a block's dropped part again. */
static int64_t again_ns(struct ht_cost_query *q, const struct ht_shape *x, int64_t u)
{
    if (x->again == HT_RECOMPUTES_NOTHING || ht_model_unit_kind(&q->scenario->model, u) != HT_UNIT_BLOCK) return 0;
    if (x->again == HT_RECOMPUTES_BLOCKS) return ht_query_pass(q, HT_OP_RECOMPUTE, u);
    return 0; /* attention alone: little, and a work of its own */
}

/* Adds the passes of stage i over one micro-batch on its device. The head's forward is part of its backward. */
static void stage_ns(struct ht_cost_query *q, const struct ht_shape *x, int64_t i, int64_t *forward, int64_t *backward)
{
    struct units units = units_of(q->scenario, x, i);
    int64_t block_f = 0, block_b = 0;
    *forward = *backward = 0;
    for (int64_t u = units.begin; u < units.end; u++) {
        bool head = ht_model_unit_kind(&q->scenario->model, u) == HT_UNIT_HEAD;
        bool block = ht_model_unit_kind(&q->scenario->model, u) == HT_UNIT_BLOCK;
        int64_t f = block && block_f ? block_f : ht_query_pass(q, HT_OP_FORWARD, u);
        int64_t b = block && block_b ? block_b : ht_query_pass(q, HT_OP_BACKWARD, u) + again_ns(q, x, u);
        if (block) block_f = f, block_b = b; /* blocks are alike */
        *forward += head ? 0 : f;
        *backward += head ? f + b : b;
    }
}

enum ht_status ht_shape_bound_ns(const struct ht_scenario *s, const struct ht_profile *profile,
                                 const struct ht_shape *x, struct ht_error *err, int64_t *ns)
{
    int64_t l = micro_batches(s, x), before = 0;
    *ns = 0;
    for (int64_t q = 0; q < x->pp; q++) {
        struct ht_cost_query query = {.scenario = s,
                                      .profile = profile,
                                      .rank = ht_shape_rank(x, 0, q, 0),
                                      .tp = (int32_t)x->tp,
                                      .micro_batches = l,
                                      .err = err};
        int64_t all = 0, first = 0;
        for (int64_t c = 0; c < x->v; c++) {
            int64_t forward, backward;
            stage_ns(&query, x, c * x->pp + q, &forward, &backward);
            all += l * (forward + backward);
            if (c == 0) first = forward + backward;
        }
        if (query.status) return query.status;
        *ns = ht_max(*ns, before + all);
        before += first;
    }
    return HT_OK;
}
