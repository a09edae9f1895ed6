/*
 * Measures for the planner: layers, sizes and FLOPs by the model (the paper parses its definition), rates by the profile
 * (the paper runs an iteration, Sec. IV-B). MEM_avail is proved, see plan.c.
 *
 * THP_G is FLOP_f over the forward time of all units, so FLOP_f / THP_G is that time. The layers without products
 * (norms, GELU) take time and have no FLOPs, which makes THP_G less than the rate of products.
 *
 * Layers. A block has one for what each sub-op keeps, and one for its input, the inter-block activation. The input is
 * the output of the block before it, so its FLOPs are those of fc2; the first block's counts as the others', as in
 * A_interBlock = 2 B T C L. DiT's gelu has fc2's FLOPs, too: its backward pass reads what fc2 makes besides. Among
 * layers of equal benefit the order is that of the blocks, and within a block that of the authors' program: input
 * (fc2), proj, qkv, fc1. The head is not in it: its backward pass follows its forward pass at once.
 *
 * Several GPUs: a scenario's micro-batch is that of one GPU, so activations and FLOPs are, too. The CPU adds up the
 * gradients of all micro-batches, of one GPU, too, which is part of adam_s.
 */
#include "lohan/lohan.h"

#include "common/base/minmax.h"
#include "common/draft/works.h"

enum { STATES = 12 }; /* bytes of P32 and OS32 of a parameter, in FP32 numerics, too */

const char *const lohan_repeated_names[LOHAN_N_REPEATED] = {"again_fc2", "again_proj"};
const enum ht_sub_op lohan_repeated[LOHAN_N_REPEATED] = {HT_SUB_FC2, HT_SUB_PROJ};

static const int order[HT_N_PARTS] = {HT_PART_INPUT,    HT_SUB_PROJ,  HT_SUB_QKV,   HT_SUB_FC1,
                                      HT_SUB_ATTENTION, HT_SUB_NORM1, HT_SUB_NORM2, HT_SUB_GELU};

/* Returns the FLOPs that make a part again; a block's input is made by the block before it, with fc2. */
static double part_flops(const struct ht_scenario *sc, int part)
{
    unsigned sub_ops = part == HT_PART_INPUT ? 1u << HT_SUB_FC2 : ht_part_sub_ops(&sc->model, part);
    double flops = 0;
    for (int s = 0; s < HT_N_SUB_OPS; s++)
        if (sub_ops >> s & 1) flops += ht_sub_op_flops(&sc->model, (enum ht_sub_op)s, sc->micro_batch, sc->seq);
    return flops;
}

int32_t lohan_layers(const struct ht_scenario *sc, struct lohan_layer *layers)
{
    int32_t n = 0;
    for (int32_t u = 1; u <= (int32_t)sc->model.layers; u++)
        for (int i = 0; i < HT_N_PARTS; i++) {
            int part = order[i];
            struct lohan_layer x = {
                .bytes = ht_part_bytes(sc, part), .flops = part_flops(sc, part), .unit = u, .part = part};
            if (x.bytes > 0) layers[n++] = x;
        }
    lohan_sort(layers, n);
    return n;
}

/* Returns a copy's bytes per second if nothing else takes the link. */
static double rate_of(struct ht_cost_query *q, enum ht_lane_kind lane, int64_t bytes)
{
    int64_t ns = ht_query_copy(q, lane, bytes);
    return (double)bytes * 1e9 / (double)ht_max(1, ns);
}

/* Returns the rate of the SSDs in one direction, with the states of a block. */
static double ssd_rate_of(struct ht_cost_query *q, bool write)
{
    int64_t bytes = ht_unit_params(&q->scenario->model, 1) * STATES;
    struct ht_work w = ht_disk_work(write, bytes);
    return (double)bytes * 1e9 / (double)ht_max(1, ht_query_work(q, &w));
}

/* Returns the time in which the CPU adds a micro-batch's gradient of a block to the sum. */
static int64_t sum_ns(struct ht_cost_query *q, int64_t params)
{
    struct ht_work w = ht_accumulate_work(q->scenario, HT_LANE_HOST, 1, params);
    w.dtype = ht_stepped_gradient(&q->scenario->numerics, q->micro_batches);
    return ht_query_work(q, &w);
}

static enum ht_status set_rates(const struct ht_scenario *sc, const struct ht_profile *costs, struct ht_error *err,
                                struct lohan_profile *p)
{
    struct ht_cost_query q = ht_query_slowest(sc, costs, err);
    int64_t params = ht_unit_params(&sc->model, 1), units = ht_model_units(&sc->model), forward_ns = 0;
    for (int64_t u = 0; u < units; u++) forward_ns += ht_query_pass(&q, HT_OP_FORWARD, u);
    p->flops_per_s = p->forward_flops * 1e9 / (double)ht_max(1, forward_ns);
    p->link_bytes_per_s = rate_of(&q, HT_LANE_H2D, params * ht_dtype_bytes(sc->numerics.param));
    p->ssd_read_bytes_per_s = ssd_rate_of(&q, false);
    p->ssd_write_bytes_per_s = ssd_rate_of(&q, true);
    int64_t step_ns = ht_query_step(&q, HT_LANE_HOST, params);
    int64_t sums = ht_scenario_ranks(sc) * q.micro_batches - 1; /* the first gradient is the sum's begin */
    if (sums) step_ns += sums * sum_ns(&q, params);
    p->adam_s = (double)step_ns / 1e9 * (double)ht_model_params(&sc->model) / (double)params;
    return q.status;
}

enum ht_status lohan_measure(const struct ht_scenario *sc, const struct ht_profile *costs, struct ht_error *err,
                             struct lohan_profile *out)
{
    const struct ht_numerics *n = &sc->numerics;
    double params = (double)ht_model_params(&sc->model);
    *out = (struct lohan_profile){
        .inter_bytes = ht_part_bytes(sc, HT_PART_INPUT) * (double)sc->model.layers,
        .param_bytes = params * (double)ht_dtype_bytes(n->param),
        .grad_bytes = params * (double)ht_dtype_bytes(n->grad),
        .read_bytes = params * STATES,
        .write_bytes = params * (STATES + (ht_numerics_has_master(n) ? (double)ht_dtype_bytes(n->param) : 0))};
    for (int64_t u = 0; u < ht_model_units(&sc->model); u++)
        out->forward_flops += ht_unit_flops(&sc->model, u, sc->micro_batch, sc->seq);
    for (int part = 0; part < HT_N_PARTS; part++) out->layer_flops += part_flops(sc, part);
    out->layer_flops *= (double)sc->model.layers;
    return costs ? set_rates(sc, costs, err, out) : HT_OK;
}
