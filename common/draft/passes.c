/* Appends the ops of a draft, with the effects of each. */
#include "common/base/array.h"
#include "common/draft/draft_internal.h"
#include "common/draft/works.h"

#include <assert.h>
#include <stdlib.h>

void ht_draft_name(struct ht_draft *g, const char *letters, int32_t unit, int32_t mb)
{
    ht_op_number(g->schedule, letters, unit, g->n_mb > 1 ? mb : -1);
}

/* Adds a work about units, with the size of the replica's own micro-batches. */
static int32_t add_work(struct ht_draft *g, struct ht_work w)
{
    w.batch = g->micro_batch;
    return ht_add_work(g->schedule, &w);
}

/* Appends an op on a micro-batch of n units of one kind, or of some sub-ops of a block, which its label names. The work
   of a recomputation of sub-ops leaves out fc2, unless it keeps something (ht_arch_gated): the block's output is not
   made. */
static int32_t pass(struct ht_draft *g, enum ht_op_kind kind, const char *letter, int32_t unit, int32_t n, int32_t mb,
                    unsigned sub_ops)
{
    struct ht_work w = ht_scenario_work(g->scenario, kind, HT_LANE_COMPUTE, ht_draft_unit(g, unit));
    struct ht_label about = ht_draft_label(g, unit, mb);
    w.n_units = about.n_units = n;
    about.sub_ops = sub_ops;
    if (sub_ops != HT_ALL_SUB_OPS) w.sub_ops = sub_ops;
    if (sub_ops != HT_ALL_SUB_OPS && kind == HT_OP_RECOMPUTE && !ht_arch_gated(w.arch))
        w.sub_ops &= ~(1u << HT_SUB_FC2);
    w.free = !w.sub_ops;
    w.tp = ht_layout_width_at(g->layout, g->rank);
    int32_t op = ht_add_op(g->schedule, kind, g->lanes->compute, about, add_work(g, w));
    if (sub_ops == HT_ALL_SUB_OPS) ht_draft_name(g, letter, unit, mb);
    ht_charge_work(g->schedule, g->links, 0);
    struct ht_part_sums sums = ht_work_part_sums(&w);
    if (w.tp > 1)
        ht_charge_parts(g->schedule, g->links, ht_layout_stage_ranks(g->layout, g->rank), w.tp,
                        sums.n * sums.bytes + sums.n_halves * sums.half_bytes);
    ht_draft_chain(g);
    g->state->computed = op;
    return op;
}

static void on_device(struct ht_draft *g, int32_t t, unsigned flags)
{
    if (t >= 0) ht_op_effect(g->schedule, t, HT_DEVICE, flags);
}

/* Adds effects on the rows of A(u,j) that keep these sub-ops. */
static void on_activations(struct ht_draft *g, int32_t unit, int32_t mb, unsigned sub_ops, unsigned flags)
{
    const int32_t *rows = g->a[ht_draft_at(g, unit, mb)];
    while (sub_ops) {
        int32_t row = rows[__builtin_ctz(sub_ops)];
        on_device(g, row, flags);
        sub_ops &= row < 0 ? sub_ops - 1 : ~g->schedule->tensors[row].label.sub_ops;
    }
}

/* Position of a pass among those that read the same parameters. */
enum use {
    BETWEEN,   /* another pass over the unit follows at once */
    ENDS_STAY, /* last one in a forward pass, or over a table that the embedding's backward reads again */
    ENDS_USE,  /* last one of the iteration */
};

/* Returns true if a pass of micro-batch mb, of `rounds` ones, drops the whole parameters that it reads. */
static bool drops(const struct ht_draft *g, enum use use, int32_t mb, int32_t rounds)
{
    bool ends = use == ENDS_USE || (use == ENDS_STAY && g->state->keeps != HT_GATHER_ITERATION);
    return ends && (g->state->keeps == HT_GATHER_PASS || mb + 1 == rounds);
}

static void read_param(struct ht_draft *g, int32_t unit, int32_t mb, enum use use)
{
    if (g->sharded) {
        on_device(g, g->state->full_param[unit], drops(g, use, mb, g->own_mb) ? HT_NEED | HT_RELEASE : HT_NEED);
        g->state->gathered[unit] = !drops(g, use, mb, g->n_mb);
        return;
    }
    if (g->cast_on_use[unit]) on_device(g, g->master[unit], HT_NEED);
    on_device(g, g->param[unit], g->cast_on_use[unit] ? HT_PRODUCE | HT_RELEASE : HT_NEED);
}

/* Returns the bytes of scratch of a unit's pass, or of a block's over some sub-ops; mostly those of the last one over this kind. */
static int64_t scratch_bytes(struct ht_draft *g, int32_t unit, unsigned sub_ops, bool backward)
{
    const struct ht_scenario *sc = g->scenario;
    struct ht_draft_scratch *known = &g->state->scratch[ht_draft_kind(g, unit)][backward];
    enum ht_dtype act = sc->numerics.param;
    if (known->scenario == sc && known->sub_ops == sub_ops) return known->bytes;
    int64_t bytes =
        sub_ops == HT_ALL_SUB_OPS
            ? ht_unit_workspace_bytes(&sc->model, ht_draft_unit(g, unit), g->micro_batch, sc->seq, act, backward)
            : ht_block_workspace_bytes(&sc->model, sub_ops, g->micro_batch, sc->seq, act, backward);
    *known = (struct ht_draft_scratch){sc, sub_ops, bytes};
    return bytes;
}

/* Adds the scratch of a pass. */
static void scratch(struct ht_draft *g, int32_t unit, int32_t mb, unsigned sub_ops, bool backward)
{
    int64_t bytes = scratch_bytes(g, unit, sub_ops, backward);
    on_device(g, ht_draft_row(g, HT_WORKSPACE, unit, mb, bytes), HT_PRODUCE | HT_RELEASE);
}

static bool head_uses_table(const struct ht_draft *g, int32_t unit)
{
    return unit == g->n_units - 1 && g->scenario->model.tied;
}

/* Appends, before a pass, the all-gathers of the whole parameters that it reads and that are not there. */
static void gather_params(struct ht_draft *g, int32_t unit, int32_t mb)
{
    if (!g->sharded || g->holder) return; /* a pipeline gathers by itself */
    if (!g->state->gathered[unit]) ht_zero_begin_slot(g);
    ht_zero_all_gather(g, unit, mb);
    if (head_uses_table(g, unit)) ht_zero_all_gather(g, 0, mb);
    ht_zero_end_gathers(g);
}

/* Records which parameters a pass that only other ranks have drops. Returns -1, the id of no op. */
static int32_t skip_pass(struct ht_draft *g, int32_t unit, int32_t mb, enum use use)
{
    if (!g->sharded) return -1;
    g->state->gathered[unit] = !drops(g, use, mb, g->n_mb);
    if (head_uses_table(g, unit)) g->state->gathered[0] = !drops(g, use == ENDS_USE ? ENDS_STAY : use, mb, g->n_mb);
    return -1;
}

/* Returns true if a unit is a half of a block, which has an input, an output, parameters and a gradient of its own. */
static bool is_apart(const struct ht_draft *g, int32_t unit)
{
    return ht_is_half(ht_draft_sub_ops(g, unit));
}

/* Returns true if a unit is a front whose backward reads the residual that it has handed to the back. */
static bool reads_residual(const struct ht_draft *g, int32_t unit)
{
    unsigned sub_ops = ht_draft_sub_ops(g, unit);
    return ht_is_front(sub_ops) && ht_front_reads_residual(g->scenario->model.dropout, sub_ops);
}

/* Returns true if a unit is a front that makes the residual which it hands: what the projection keeps. */
static bool makes_residual(const struct ht_draft *g, int32_t unit)
{
    unsigned sub_ops = ht_draft_sub_ops(g, unit);
    return ht_is_front(sub_ops) && ht_hands_proj(sub_ops);
}

int32_t ht_draft_forward_half(struct ht_draft *g, int32_t unit, int32_t mb, unsigned half, unsigned keep)
{
    bool apart = is_apart(g, unit), head = unit == g->n_units - 1;
    bool begins = apart || half & HT_ATTENTION_HALF, ends = apart || half & HT_MLP_HALF;
    enum use use = ends && !head ? ENDS_STAY : BETWEEN; /* the head's backward comes next */
    unsigned proj = 1u << HT_SUB_PROJ, kept = ends ? keep & half : (keep & half) | proj; /* the MLP's half reads proj */
    assert(!g->sharded || begins == ends);
    gather_params(g, unit, mb);
    if (mb >= g->own_mb) return skip_pass(g, unit, mb, use);
    int32_t op = pass(g, HT_OP_FORWARD, "F", unit, 1, mb, half);
    read_param(g, unit, mb, use);
    if (head_uses_table(g, unit)) read_param(g, g->table, mb, BETWEEN);
    if (begins)
        on_device(g, g->x[ht_draft_at(g, unit, mb)], HT_NEED);
    else
        on_activations(g, unit, mb, proj, keep & proj ? HT_NEED : HT_NEED | HT_RELEASE);
    on_activations(g, unit, mb, kept, HT_PRODUCE);
    on_activations(g, unit, mb, half & ~kept, HT_PRODUCE | HT_RELEASE);
    if (apart && ht_is_front(half)) {
        if (makes_residual(g, unit)) on_device(g, g->x[ht_draft_at(g, unit + 1, mb)], HT_PRODUCE);
        on_device(g, g->handed[ht_draft_at(g, unit + 1, mb)], HT_PRODUCE);
    } else if (ends) {
        on_device(g, g->handed[ht_draft_at(g, unit, mb)], HT_NEED);
        on_device(g, head ? g->logits[mb] : g->x[ht_draft_at(g, unit + 1, mb)], HT_PRODUCE);
    }
    scratch(g, unit, mb, half, false);
    return op;
}

int32_t ht_draft_forward(struct ht_draft *g, int32_t unit, int32_t mb, unsigned keep)
{
    return ht_draft_forward_half(g, unit, mb, ht_draft_sub_ops(g, unit), keep);
}

int32_t ht_draft_recompute(struct ht_draft *g, int32_t unit, int32_t n, int32_t mb, unsigned sub_ops)
{
    unsigned proj = 1u << HT_SUB_PROJ, has = ht_draft_sub_ops(g, unit);
    bool apart = is_apart(g, unit), hands_proj = apart && ht_hands_proj(has); /* then neither half drops it */
    if (apart) sub_ops &= has & ~(hands_proj ? proj : 0);
    struct ht_sub_op_reads reads = ht_sub_ops_read(g->scenario->model.arch, sub_ops & ~(1u << HT_SUB_FC2));
    bool residual = hands_proj && reads.sub_ops & proj, input = reads.input || (residual && ht_is_back(has));
    assert(n == 1 || sub_ops == HT_ALL_SUB_OPS);
    for (int32_t u = unit; u < unit + n; u++) gather_params(g, u, mb);
    if (mb >= g->own_mb) return skip_pass(g, unit, mb, BETWEEN);
    int32_t op = pass(g, HT_OP_RECOMPUTE, "R", unit, n, mb, sub_ops);
    for (int32_t u = unit; u < unit + n; u++) {
        read_param(g, u, mb, BETWEEN);
        if (head_uses_table(g, u)) read_param(g, g->table, mb, BETWEEN);
        if (input) on_device(g, g->x[ht_draft_at(g, u, mb)], u == unit ? HT_NEED : HT_PRODUCE);
        if (residual && !ht_is_back(has)) on_device(g, g->x[ht_draft_at(g, u + 1, mb)], HT_NEED);
        if (apart && reads.sub_ops & ht_handed(has)) on_device(g, g->handed[ht_draft_at(g, u, mb)], HT_NEED);
        on_activations(g, u, mb, reads.sub_ops, HT_NEED);
        on_activations(g, u, mb, sub_ops, HT_PRODUCE);
        if (u == g->n_units - 1) on_device(g, g->logits[mb], HT_PRODUCE);
    }
    scratch(g, unit, mb, sub_ops, false);
    return op;
}

/* Returns the gradient row that a backward op writes. at_first: the unit's gradient is empty before it. */
static int32_t fresh_gradient(const struct ht_draft *g, int32_t unit, int32_t mb, bool at_first)
{
    int32_t at = ht_draft_at(g, unit, mb);
    if (g->state->reduce_once && mb == 0 && at_first) return g->state->full_sum[unit];
    if (g->sharded) return g->state->full_grad[at];
    return ht_draft_fresh_gradient(g, unit, mb);
}

/* Appends the gradient's end of a head's backward: its part of a tied table's gradient, and the logits' release. */
static void head_gradients(struct ht_draft *g, int32_t unit, int32_t mb)
{
    if (head_uses_table(g, unit)) {
        read_param(g, g->table, mb, g->table ? ENDS_USE : ENDS_STAY);
        on_device(g, fresh_gradient(g, g->table, mb, true), HT_PRODUCE);
    }
    on_device(g, g->logits[mb], HT_NEED | HT_RELEASE);
}

int32_t ht_draft_backward_half(struct ht_draft *g, int32_t unit, int32_t mb, unsigned half)
{
    bool apart = is_apart(g, unit), begins = half >> HT_SUB_FC2 & 1, ends = apart || half >> HT_SUB_NORM1 & 1;
    bool dropout = g->scenario->model.dropout, again = begins && unit > 0 && reads_residual(g, unit - 1);
    unsigned reads = begins && ends ? half : ht_sub_ops_backward_read(dropout, half).sub_ops;
    unsigned later = ends ? 0 : ht_sub_ops_backward_read(dropout, HT_ATTENTION_HALF).sub_ops;
    int32_t op = pass(g, HT_OP_BACKWARD, "B", unit, 1, mb, half), at = ht_draft_at(g, unit, mb);
    assert(!g->sharded || half == ht_draft_sub_ops(g, unit));
    /* The embedding's backward needs no parameters. In a draft of one rank they are gathered and fetched all the same,
       as whole modules are before their backward; a pipeline brings only what is read, unless it has gathered all. */
    if (unit > 0 || !g->holder || g->sharded) read_param(g, unit, mb, ends ? ENDS_USE : BETWEEN);
    if (unit == g->n_units - 1)
        head_gradients(g, unit, mb);
    else if (begins)
        on_device(g, g->dx[ht_draft_at(g, unit + 1, mb)], HT_NEED | HT_RELEASE);
    if (ends) on_device(g, g->x[at], again && g->holder[unit - 1] == g->holder[unit] ? HT_NEED : HT_NEED | HT_RELEASE);
    if (makes_residual(g, unit) && reads_residual(g, unit))
        on_device(g, g->x[ht_draft_at(g, unit + 1, mb)], HT_NEED | HT_RELEASE);
    if (apart && !begins) on_device(g, g->dhanded[ht_draft_at(g, unit + 1, mb)], HT_NEED | HT_RELEASE);
    if (apart && begins) on_device(g, g->handed[at], HT_NEED | HT_RELEASE);
    on_activations(g, unit, mb, reads & ~later, HT_NEED | HT_RELEASE);
    on_activations(g, unit, mb, reads & later, HT_NEED);
    on_device(g, g->dx[at], begins ? HT_PRODUCE : HT_UPDATE);
    if (apart && begins) on_device(g, g->dhanded[at], HT_PRODUCE);
    /* The head has already written its part of a tied table's gradient, unless it has a table of its own. */
    bool summed = ht_draft_head_has_summed(g, unit), by_head = unit == 0 && g->scenario->model.tied && !g->table;
    bool adds = (!begins && !apart) || (by_head && !summed);
    on_device(g, fresh_gradient(g, unit, mb, !summed), adds ? HT_UPDATE : HT_PRODUCE);
    scratch(g, unit, mb, half, true);
    return op;
}

static enum ht_tier tier_of(const struct ht_draft *g, int32_t lane)
{
    return lane == g->lanes->compute ? HT_DEVICE : HT_HOST;
}

/* Appends G(u) += G(u,mb) on a lane; with reduce_once both are whole. */
static int32_t accumulate(struct ht_draft *g, int32_t lane, int32_t unit, int32_t mb)
{
    const struct ht_draft_state *x = g->state;
    int32_t at = ht_draft_at(g, unit, mb), of = ht_draft_unit(g, unit);
    int64_t params = x->reduce_once ? ht_draft_params(g, unit) : ht_draft_shard(g, unit)->padded;
    enum ht_tier tier = tier_of(g, lane);
    struct ht_work w = ht_accumulate_work(g->scenario, g->schedule->lanes[lane].kind, of, params);
    w.dtype = ht_stepped_gradient(&g->scenario->numerics, g->rounds);
    int32_t op = ht_add_op(g->schedule, HT_OP_ACCUMULATE, lane, ht_draft_label(g, unit, mb), add_work(g, w));
    ht_draft_name(g, "A", of, mb);
    ht_op_effect(g->schedule, x->reduce_once ? x->full_sum[unit] : g->grad[unit], tier, HT_UPDATE);
    ht_op_effect(g->schedule, x->reduce_once ? x->full_grad[at] : g->grad_mb[at], tier, HT_NEED | HT_RELEASE);
    /* It reads both gradients and writes one. */
    int64_t element = 2 * ht_dtype_bytes(w.dtype) + ht_dtype_bytes(g->scenario->numerics.grad);
    ht_charge_work(g->schedule, g->links, params * element);
    ht_draft_chain(g);
    return op;
}

int32_t ht_draft_add_to_sum(struct ht_draft *g, int32_t unit, int32_t mb)
{
    return accumulate(g, g->lanes->compute, unit, mb);
}

/* Adds G(u,j) to the rank's own sum of whole gradients; begins: the first micro-batch's is the sum. */
static void add_to_sum(struct ht_draft *g, int32_t unit, int32_t mb, bool begins)
{
    if (mb < g->own_mb && (mb > 0 || !begins)) g->state->computed = ht_draft_add_to_sum(g, unit, mb);
}

int32_t ht_draft_backward(struct ht_draft *g, int32_t unit, int32_t mb)
{
    gather_params(g, unit, mb);
    int32_t op = mb < g->own_mb ? ht_draft_backward_half(g, unit, mb, ht_draft_sub_ops(g, unit))
                                : skip_pass(g, unit, mb, ENDS_USE);
    if (!g->sharded || g->holder) return op;
    if (head_uses_table(g, unit) && ht_draft_head_has_summed(g, 0)) add_to_sum(g, 0, mb, true);
    if (g->state->reduce_once) add_to_sum(g, unit, mb, !ht_draft_head_has_summed(g, unit));
    ht_zero_reduce_scatter(g, unit, mb);
    return op;
}

int32_t ht_draft_computed(const struct ht_draft *g)
{
    return g->state->computed;
}

int32_t ht_draft_wait_reduced(struct ht_draft *g, int32_t unit)
{
    int32_t before = g->state->pending_reduce;
    if (!g->sharded) return unit;
    g->state->pending_reduce = unit;
    return before;
}

int32_t ht_draft_accumulate(struct ht_draft *g, int32_t lane, int32_t unit, int32_t mb)
{
    if (g->state->reduce_once || (!g->sharded && mb >= g->own_mb)) return -1;
    return accumulate(g, lane, unit, mb);
}

int32_t ht_draft_step(struct ht_draft *g, int32_t lane, int32_t unit, int32_t n, bool release_grad)
{
    struct ht_label about = ht_draft_label(g, unit, -1);
    enum ht_tier tier = tier_of(g, lane);
    int64_t params = 0;
    if (n > 1) about.sub_ops = HT_ALL_SUB_OPS;
    about.n_units = ht_draft_unit(g, unit + n - 1) - about.unit + 1;
    for (int32_t u = unit; u < unit + n; u++) params += ht_draft_shard(g, u)->padded;
    struct ht_work w = ht_step_work(g->scenario, g->schedule->lanes[lane].kind, about.unit, params, g->rounds);
    int32_t op = ht_add_op(g->schedule, HT_OP_OPTIMIZER_STEP, lane, about, add_work(g, w));
    ht_op_name(g->schedule, "%c%d", tier == HT_HOST ? 'O' : 'U', about.unit);
    for (int32_t u = unit; u < unit + n; u++) {
        bool copied = tier == HT_HOST ? g->master[u] < 0 || !g->steps_leave_copy : !g->cast_on_use[u];
        if (copied) ht_op_effect(g->schedule, g->param[u], tier, g->realloc_on_step[u] ? HT_PRODUCE : HT_UPDATE);
        if (g->master[u] >= 0) ht_op_effect(g->schedule, g->master[u], tier, HT_UPDATE);
        ht_op_effect(g->schedule, g->momentum[u], tier, HT_UPDATE);
        ht_op_effect(g->schedule, g->variance[u], tier, HT_UPDATE);
        ht_op_effect(g->schedule, g->grad[u], tier, release_grad ? HT_NEED | HT_RELEASE : HT_NEED);
    }
    ht_charge_work(g->schedule, g->links, params * ht_step_traffic_bytes(g->scenario, w.grad_dtype));
    ht_draft_chain(g);
    return op;
}

int32_t ht_draft_gradient_to_host(struct ht_draft *g, int32_t unit, int32_t mb, unsigned to_flags)
{
    int32_t fresh = ht_draft_fresh_gradient(g, unit, mb);
    int32_t op = ht_draft_copy(g, fresh, HT_DEVICE, HT_HOST, mb ? HT_PRODUCE : to_flags, true);
    return mb ? ht_draft_accumulate(g, g->lanes->host, unit, mb) : op;
}

int32_t ht_draft_update_on_device(struct ht_draft *g, int32_t unit, int32_t mb, int32_t before)
{
    int32_t u = ht_draft_wait_reduced(g, unit);
    if (u >= 0 && mb) before = ht_draft_accumulate(g, g->lanes->compute, u, mb);
    return u >= 0 && mb + 1 == g->n_mb ? ht_draft_step(g, g->lanes->compute, u, 1, true) : before;
}

int32_t ht_draft_release(struct ht_draft *g, int32_t row)
{
    struct ht_schedule *s = g->schedule;
    struct ht_work w = {.kind = HT_OP_ACCUMULATE, .where = HT_LANE_HOST, .tp = 1, .ranks = 1, .free = true};
    int32_t op = ht_add_op(s, HT_OP_ACCUMULATE, g->lanes->host, s->tensors[row].label, ht_add_work(s, &w));
    ht_op_name(s, "free%d", s->tensors[row].label.unit);
    ht_op_effect(s, row, HT_HOST, HT_RELEASE);
    return op;
}

int32_t ht_draft_transfer(struct ht_draft *g, struct ht_label about, enum ht_tier from, enum ht_tier to, int64_t bytes)
{
    struct ht_schedule *s = g->schedule;
    int32_t lane = from == HT_DEVICE ? g->lanes->d2h : g->lanes->h2d;
    if (from == HT_DISK) lane = g->lanes->disk_read;
    if (to == HT_DISK) lane = g->lanes->disk_write;
    struct ht_work w = ht_copy_work(s->lanes[lane].kind, bytes);
    w.write = to == HT_DISK;
    int32_t op = ht_add_op(s, HT_OP_COPY, lane, about, ht_add_work(s, &w));
    ht_charge_copy(s, g->links, from, to, bytes);
    ht_draft_chain(g);
    return op;
}

int32_t ht_draft_copy_rows(struct ht_draft *g, const int32_t *rows, int32_t n, enum ht_tier from, enum ht_tier to,
                           unsigned to_flags, bool release_from)
{
    struct ht_schedule *s = g->schedule;
    const struct ht_tensor *first = &s->tensors[rows[0]], *last = &s->tensors[rows[n - 1]];
    struct ht_label about = first->label;
    const char *letter = first->class == HT_GRAD ? "G" : first->class == HT_PARAM ? "P" : NULL; /* others have labels */
    int64_t bytes = 0;
    about.n_units = last->label.unit + last->label.n_units - about.unit;
    for (int32_t i = 0; i < n; i++) {
        bytes += s->tensors[rows[i]].bytes;
        about.sub_ops |= s->tensors[rows[i]].label.sub_ops;
    }
    int32_t op = ht_draft_transfer(g, about, from, to, bytes);
    int32_t mb = about.micro_batch < 0 ? -1 : ht_layout_round(g->layout, about.micro_batch);
    if (letter) ht_draft_name(g, letter, about.unit, mb);
    for (int32_t i = 0; i < n; i++) {
        ht_op_effect(s, rows[i], from, release_from ? HT_NEED | HT_RELEASE : HT_NEED);
        ht_op_effect(s, rows[i], to, to_flags);
    }
    return op;
}

int32_t ht_draft_copy(struct ht_draft *g, int32_t row, enum ht_tier from, enum ht_tier to, unsigned to_flags,
                      bool release_from)
{
    return ht_draft_copy_rows(g, &row, 1, from, to, to_flags, release_from);
}

int32_t ht_draft_copy_states(struct ht_draft *g, int32_t unit, int32_t n, bool compute_copy, enum ht_tier from,
                             enum ht_tier to, unsigned to_flags, bool release_from)
{
    int32_t *rows = HT_NEW_ARRAY(int32_t, 4 * n), n_rows = 0;
    for (int32_t u = unit; u < unit + n; u++) n_rows += ht_draft_state_rows(g, u, compute_copy, rows + n_rows);
    int32_t op = ht_draft_copy_rows(g, rows, n_rows, from, to, to_flags, release_from);
    free(rows);
    return op;
}
