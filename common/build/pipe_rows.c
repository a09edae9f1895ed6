#include "common/build/pipe_build.h"

#include "common/base/array.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- lanes ----------------------------------------------------------------------------------------------------- */

int32_t ht_pipe_add_lane(struct ht_pipe *g, const char *name, enum ht_lane_kind kind, int32_t rank)
{
    return ht_add_lane(g->s, name, kind, ht_pipe_rank(g, rank), HT_FIFO);
}

static void add_lanes_of(struct ht_pipe *g, int32_t rank)
{
    struct ht_pipe_lanes *l = &g->lanes[rank];
    bool several = g->shape.ranks > 1, offloads = ht_pipe_offloads(g);
    *l = (struct ht_pipe_lanes){-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
    l->compute = ht_pipe_add_lane(g, "compute", HT_LANE_COMPUTE, rank);
    if (offloads) {
        l->h2d = ht_pipe_add_lane(g, "h2d", HT_LANE_H2D, rank);
        l->d2h = ht_pipe_add_lane(g, "d2h", HT_LANE_D2H, rank);
    }
    if (several) {
        l->act_out = ht_pipe_add_lane(g, "act out", HT_LANE_P2P, rank);
        l->act_in = ht_pipe_add_lane(g, "act in", HT_LANE_P2P, rank);
        l->grad_out = ht_pipe_add_lane(g, "grad out", HT_LANE_P2P, rank);
        l->grad_in = ht_pipe_add_lane(g, "grad in", HT_LANE_P2P, rank);
    }
    if (g->style->layout) l->reduce = ht_pipe_add_lane(g, "reduce", HT_LANE_COLLECTIVE, rank);
    if (g->style->hooks.add_lanes) g->style->hooks.add_lanes(g, rank);
    for (int32_t q = g->n_backward - 1; q >= 0 && offloads; q--) {
        if (ht_pipe_backward_rank(&g->shape, q) != rank || g->stage_lane[q] >= 0) continue;
        if (l->host < 0) l->host = ht_pipe_add_lane(g, "cpu", HT_LANE_HOST, rank);
        g->stage_lane[q] = l->host;
    }
    if (g->control.mode == HT_CONTROL_NONE) return;
    ht_pipe_add_lane(g, "verdict", HT_LANE_HOST, rank);
    if (g->s->n_ranks > 1) ht_pipe_add_lane(g, "agree", HT_LANE_COLLECTIVE, rank);
}

/* ---- tensors --------------------------------------------------------------------------------------------------- */

static struct ht_label label(const struct ht_pipe *g, int32_t unit, int32_t mb)
{
    int32_t number = mb < 0 ? -1 : g->replica.first_micro_batch + mb;
    return (struct ht_label){.unit = unit, .n_units = 1, .sub_ops = HT_ALL_SUB_OPS, .micro_batch = number};
}

static int32_t row(struct ht_pipe *g, enum ht_tensor_class class, int32_t unit, int32_t mb, int64_t bytes,
                   int64_t elements, int32_t rank)
{
    if (bytes == 0) return -1;
    return ht_add_tensor(
        g->s, (struct ht_tensor){
                  .class = class, .label = label(g, unit, mb), .bytes = bytes, .shard_end = elements, .rank = ht_pipe_rank(g, rank)});
}

static void add_parameters(struct ht_pipe *g, int32_t u)
{
    const struct ht_numerics *n = &g->scenario->numerics;
    int64_t params = ht_unit_params(&g->scenario->model, u), copy = ht_dtype_bytes(n->param);
    int32_t owner = ht_pipe_owner(g, u);
    g->param[u] = row(g, HT_PARAM, u, -1, params * copy, params, owner);
    g->master[u] = ht_numerics_has_master(n) ? row(g, HT_MASTER, u, -1, params * 4, params, owner) : -1;
    g->momentum[u] = row(g, HT_MOMENTUM, u, -1, params * 4, params, owner);
    g->variance[u] = row(g, HT_VARIANCE, u, -1, params * 4, params, owner);
    g->grad[u] = row(g, HT_GRAD, u, -1, params * ht_dtype_bytes(g->sums ? n->accumulate : n->grad), params, owner);
    for (int32_t j = 0; j < g->n_mb; j++)
        g->grad_mb[ht_pipe_at(g, u, j)] =
            j ? row(g, HT_GRAD, u, j, params * ht_dtype_bytes(n->grad), params, owner) : -1;

    bool offloads = ht_pipe_offloads(g);
    int32_t resident[] = {g->param[u], g->master[u], g->momentum[u], g->variance[u], offloads ? g->grad[u] : -1};
    for (size_t i = 0; i < HT_COUNT(resident); i++)
        if (resident[i] >= 0) ht_add_resident(g->s, resident[i], offloads ? HT_HOST : HT_DEVICE, ht_pipe_rank(g, owner));
}

static void add_activations(struct ht_pipe *g, int32_t u, int32_t j)
{
    const struct ht_scenario *sc = g->scenario;
    int64_t input = ht_unit_input_bytes(&sc->model, u, sc->micro_batch, sc->seq, sc->numerics.param);
    int64_t kept = ht_unit_activation_bytes(&sc->model, u, sc->micro_batch, sc->seq, sc->numerics.param);
    int32_t forward_rank = ht_pipe_forward_rank(&g->shape, g->stage_of[u] / g->shape.d), owner = ht_pipe_owner(g, u);
    int64_t at = ht_pipe_at(g, u, j);
    g->x[at] = row(g, HT_CHECKPOINT, u, j, input, 0, forward_rank);
    g->a[at] = row(g, HT_ACTIVATION, u, j, kept, 0, owner);
    g->dx[at] = row(g, HT_ACT_GRAD, u, j, input, 0, owner);
    if (u == ht_pipe_head(g))
        g->logits[j] = row(g, HT_LOGITS, u, j, ht_logits_bytes(&sc->model, sc->micro_batch, sc->seq), 0, owner);
}

/* One row serves all ops of its kind on a rank: they follow one another on the compute lane. */
int32_t ht_pipe_scratch(struct ht_pipe *g, int32_t rank, int32_t unit, bool backward)
{
    const struct ht_scenario *sc = g->scenario;
    int32_t *at = &g->scratch[(rank * 2 + backward) * HT_PIPE_UNIT_KINDS + ht_model_unit_kind(&sc->model, unit)];
    int64_t bytes = ht_unit_workspace_bytes(&sc->model, unit, sc->micro_batch, sc->seq, sc->numerics.param, backward);
    if (*at < 0) *at = row(g, HT_WORKSPACE, unit, -1, bytes, 0, rank);
    return *at;
}

void ht_pipe_add_rows(struct ht_pipe *g)
{
    int64_t units = g->n_units, passes = units * g->n_mb, ranks = g->shape.ranks;
    g->lanes = HT_NEW_ARRAY(struct ht_pipe_lanes, ranks);
    g->stage_lane = ht_alloc_ids(g->n_backward);
    g->serve = ht_alloc_ids(ranks * ranks);
    int32_t **per_unit[] = {&g->param, &g->master, &g->momentum, &g->variance, &g->grad};
    int32_t **per_pass[] = {&g->grad_mb, &g->x, &g->a, &g->dx};
    for (size_t i = 0; i < HT_COUNT(per_unit); i++) *per_unit[i] = ht_alloc_ids(units);
    for (size_t i = 0; i < HT_COUNT(per_pass); i++) *per_pass[i] = ht_alloc_ids(passes);
    g->logits = ht_alloc_ids(g->n_mb);
    g->scratch = ht_alloc_ids(ranks * 2 * HT_PIPE_UNIT_KINDS);
    for (int32_t r = 0; r < ranks; r++) add_lanes_of(g, r);
    for (int32_t u = 0; u < units; u++) {
        add_parameters(g, u);
        for (int32_t j = 0; j < g->n_mb; j++) add_activations(g, u, j);
    }
}

void ht_pipe_free_rows(struct ht_pipe *g)
{
    int32_t *all[] = {g->stage_lane, g->serve, g->param, g->master, g->momentum, g->variance, g->grad,
                      g->grad_mb,    g->x,     g->a,     g->dx,     g->logits,   g->scratch};
    for (size_t i = 0; i < HT_COUNT(all); i++) free(all[i]);
    free(g->lanes);
}
