/* Adds up the gradients of several ranks, gathers the parameters that they share, and steps stages. */
#include "common/draft/pipe_internal.h"

#include "common/base/array.h"
#include "common/draft/works.h"

#include <stdlib.h>

/* A collective about n units that the same ranks have. */
struct about {
    enum ht_op_kind kind;
    int32_t unit, n;
    int32_t mb;      /* of a reduce-scatter */
    bool after_pass; /* it waits for each rank's last op of a pass */
};

static void append_member(struct ht_pipe *g, const struct about *a, int32_t index, const struct ht_zero_group *group)
{
    if (a->kind == HT_OP_ALL_GATHER)
        ht_zero_all_gather_over(&g->d, index, true, group);
    else if (a->kind == HT_OP_REDUCE_SCATTER)
        ht_zero_reduce_scatter_over(&g->d, index, a->mb, group);
    else
        ht_zero_all_reduce(&g->d, index, a->n, group);
}

/* Appends this pipeline's members of a collective. The head's rank has a tied table under an index of its own. */
static void append(struct ht_pipe *g, struct about a)
{
    int32_t *ranks = HT_NEW_ARRAY(int32_t, ht_pipe_most_holders(g->d.layout)), index = a.unit;
    bool takes_part = g->holder[a.unit] >= 0;
    ht_draft_turn_to_stage(&g->d, g->holder[a.unit]);
    struct ht_zero_group group = {.ranks = ranks, .n = ht_pipe_group(g->holders, a.unit, g->d.part, ranks)};
    for (int32_t i = 0; i < group.n && group.n > 1 && takes_part; i++) {
        int32_t stage = ht_layout_stage(g->d.layout, g->d.replica, ranks[i]);
        if (stage < 0 || ht_pipe_rank(g, stage) != ranks[i]) continue; /* another draft's */
        ht_pipe_turn(g, stage);
        group.crosses = ht_links_cross(g->d.schedule, g->d.links, ranks[i], ranks, group.n);
        append_member(g, &a, index, &group);
        ht_op_match(g->d.schedule, g->match);
        if (a.after_pass) ht_op_after(g->d.schedule, g->computed[stage]);
        index = g->d.table;
    }
    g->match++;
    free(ranks);
}

void ht_pipe_all_gather(struct ht_pipe *g, int32_t unit)
{
    append(g, (struct about){.kind = HT_OP_ALL_GATHER, .unit = unit, .n = 1});
}

void ht_pipe_reduce_scatter(struct ht_pipe *g, int32_t unit, int32_t mb)
{
    append(g, (struct about){.kind = HT_OP_REDUCE_SCATTER, .unit = unit, .n = 1, .mb = mb});
}

/* Returns the first unit of the bucket that ends with a unit. */
static int32_t bucket_of(const struct ht_pipe *g, int32_t last)
{
    int64_t elements = ht_draft_params(&g->d, last);
    int32_t first = last;
    if (ht_pipe_is_half(g, last)) return last; /* a label is of one half, or of whole units */
    for (; first > 0 && ht_pipe_same_group(g->holders, first - 1, last); first--) {
        elements += ht_draft_params(&g->d, first - 1);
        if (elements > g->style->bucket || ht_pipe_is_half(g, first - 1)) break;
    }
    return first;
}

void ht_pipe_reduce(struct ht_pipe *g)
{
    struct about a = {.kind = HT_OP_ALL_REDUCE, .after_pass = g->style->bucket};
    if (ht_pipe_scatters(g)) return;
    if (g->d.sharded && !g->style->reduce_whole) a.kind = HT_OP_REDUCE_SCATTER;
    for (int32_t last = g->d.n_units - 1; last >= 0; last = a.unit - 1) {
        ht_draft_turn_to_stage(&g->d, g->holder[last]);
        a.unit = a.kind == HT_OP_ALL_REDUCE ? bucket_of(g, last) : last;
        a.n = last - a.unit + 1;
        append(g, a);
    }
}

/* Returns the elements of a unit's matrices that tensor parallelism cuts along their inputs, as this part has them. In the
   whole matrix a part's are strided, so that ranks of another degree have them in another order. */
static int64_t strided_elements(const struct ht_model *part, int64_t unit)
{
    struct ht_param_part parts[HT_MAX_PARAM_PARTS];
    int64_t elements = 0;
    for (int i = ht_unit_param_parts(part, unit, parts) - 1; i >= 0; i--)
        if (parts[i].split == HT_SPLIT_IN) elements += parts[i].rows * parts[i].cols;
    return elements;
}

bool ht_pipe_transpose(struct ht_pipe *g, int32_t unit)
{
    int64_t share = g->style->transposed ? g->style->transposed[g->d.replica] : 0;
    if (!share || unit >= g->d.n_units) return false; /* a tied table is cut by rows */
    int64_t each = ht_dtype_bytes(ht_stepped_gradient(&g->d.scenario->numerics, g->d.rounds));
    int64_t bytes = strided_elements(&g->d.scenario->model, unit) / share * each;
    if (!bytes) return false;
    struct ht_work w = ht_copy_work(HT_LANE_COMPUTE, bytes);
    w.kind = HT_OP_TRANSPOSE;
    struct ht_schedule *s = g->d.schedule;
    ht_add_op(s, HT_OP_TRANSPOSE, g->d.lanes->compute, ht_draft_label(&g->d, unit, -1), ht_add_work(s, &w));
    ht_op_effect(s, g->d.grad[unit], HT_DEVICE, HT_UPDATE);
    ht_op_effect(s, ht_draft_row(&g->d, HT_WORKSPACE, unit, -1, bytes), HT_DEVICE, HT_PRODUCE | HT_RELEASE);
    ht_charge_work(s, g->d.links, 2 * bytes);
    return true;
}

void ht_pipe_transpose_back(struct ht_pipe *g)
{
    for (int32_t u = g->d.n_units - 1; u >= 0 && g->style->transposed; u--) {
        if (g->holder[u] < 0) continue;
        ht_pipe_turn(g, ht_pipe_backward_rank(&g->shape, g->stage_of[u]));
        ht_pipe_transpose(g, u);
    }
}

/* Lists the states of a unit that move to host memory when all of them do, or without the master. Returns how many. */
static int32_t states_of(const struct ht_pipe *g, int32_t u, bool master, int32_t rows[3])
{
    int32_t n = 0;
    if (master && g->d.master[u] >= 0) rows[n++] = g->d.master[u];
    rows[n++] = g->d.momentum[u];
    rows[n++] = g->d.variance[u];
    return n;
}

/* Moves states of a unit to the device or from it. Returns the op. */
static int32_t move(struct ht_pipe *g, const char *name, int32_t u, const int32_t *rows, int32_t n, enum ht_tier to)
{
    enum ht_tier from = to == HT_DEVICE ? HT_HOST : HT_DEVICE;
    int32_t op = ht_draft_copy_rows(&g->d, rows, n, from, to, HT_PRODUCE, true);
    ht_op_name(g->d.schedule, "%s%d", name, ht_draft_unit(&g->d, u));
    return op;
}

void ht_pipe_send_master(struct ht_pipe *g, int32_t unit)
{
    if (g->holder[unit] < 0 || !ht_pipe_states_in_host(g, unit) || !g->d.cast_on_use[unit]) return;
    ht_pipe_turn(g, ht_pipe_owner(g, unit));
    move(g, "W", unit, &g->d.master[unit], 1, HT_HOST);
}

/* Appends the step of n units of a stage. */
static void step(struct ht_pipe *g, int32_t q, int32_t unit, int32_t n, const char *suffix)
{
    bool offloads = ht_pipe_offloads(g);
    ht_draft_step(&g->d, offloads ? g->stage_lane[q] : g->d.lanes->compute, unit, n, !offloads);
    ht_op_name(g->d.schedule, "%c%d%s", offloads ? 'O' : 'U', q, suffix);
}

/* Appends the step of a unit whose states come from host memory when `before` has ended. Returns the op that brings them
   back. */
static int32_t step_from_host(struct ht_pipe *g, int32_t q, int32_t u, const char *suffix, int32_t before)
{
    int32_t rows[3], n = states_of(g, u, true, rows);
    move(g, "S", u, rows, n, HT_DEVICE);
    ht_op_after(g->d.schedule, before);
    step(g, q, u, 1, suffix);
    n = states_of(g, u, !g->d.cast_on_use[u], rows);
    return move(g, "s", u, rows, n, HT_HOST);
}

void ht_pipe_step(struct ht_pipe *g, int32_t q)
{
    bool alone = g->style->step_units || g->style->host_blocks;
    int32_t begin = g->first[q], end = g->first[q + 1], each = alone ? 1 : end - begin;
    int32_t rank = ht_pipe_backward_rank(&g->shape, q), before = g->computed[rank];
    char suffix[16] = "";
    if (g->holder[begin] < 0) return; /* the part does not have the stage */
    ht_pipe_turn(g, rank);
    for (int32_t u = end - each; u >= begin; u -= each) {
        if (alone) snprintf(suffix, sizeof suffix, ".%d", u);
        if (ht_pipe_states_in_host(g, u))
            before = step_from_host(g, q, u, suffix, before);
        else
            step(g, q, u, each, suffix);
    }
    if (g->d.table && ht_pipe_has_head(g, q)) step(g, q, g->d.table, 1, ".wte");
}
