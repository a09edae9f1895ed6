/* Writes the ops of a graph under control, in the order that control.c has decided. */
#include "common/draft/blocking.h"
#include "common/draft/control_ops.h"

#include "common/base/array.h"

#include <assert.h>
#include <stdlib.h>

static struct ht_schedule *copy_tables(const struct ht_schedule *in)
{
    struct ht_schedule *s = ht_schedule_create(in->name, in->n_ranks, in->n_nodes, in->rank_node);
    ht_schedule_copy_spaces(s, in);
    s->n_units = in->n_units;
    ht_schedule_set_micro_batches(s, in->n_micro_batches, in->slices);
    for (int32_t i = 0; i < in->n_lanes; i++)
        ht_add_lane(s, in->lanes[i].name, in->lanes[i].kind, in->lanes[i].rank, in->lanes[i].order);
    for (int32_t i = 0; i < in->n_resources; i++) {
        const struct ht_resource *x = &in->resources[i];
        ht_add_resource(s, x->name, x->kind, x->node, x->capacity_per_s);
    }
    for (int32_t i = 0; i < in->n_tensors; i++) ht_add_tensor(s, in->tensors[i]);
    for (int32_t i = 0; i < in->n_residents; i++)
        ht_add_resident(s, in->residents[i].tensor, in->residents[i].tier, in->residents[i].rank);
    return s;
}

static bool rolls_back(const struct ht_rebuild *r)
{
    return r->control->mode == HT_CONTROL_ROLLBACK;
}

/* Adds a log for each momentum that a step updates. */
static void add_logs(struct ht_rebuild *r, struct ht_controlled_step *x)
{
    const struct ht_schedule *s = r->in;
    bool lasts = r->style.undo == HT_UNDO_LASTING;
    if (!rolls_back(r) || r->style.undo == HT_UNDO_UNLOGGED) return;
    for (int64_t k = s->effects_begin[x->op]; k < s->effects_begin[x->op + 1]; k++) {
        if (!ht_rebuild_momentum(s, &s->effects[k])) continue;
        struct ht_tensor row = s->tensors[s->effects[k].tensor];
        int64_t elements = row.bytes / 4;
        row.class = HT_STAGING;
        row.bytes = ht_control_log_bytes(r->control, elements);
        int32_t log = r->log[s->effects[k].tensor] = ht_add_tensor(r->out, row);
        if (lasts) ht_add_resident(r->out, log, x->tier, x->rank);
        x->log_bytes += ht_rebuild_log_traffic_bytes(r->control, elements);
    }
}

/* ---- pieces of an op ------------------------------------------------------------------------------------------- */

static void add(struct ht_rebuild *r, enum ht_op_kind kind, int32_t lane, struct ht_label label, struct ht_work work)
{
    work.kind = kind;
    work.where = r->in->lanes[lane].kind;
    ht_add_op(r->out, kind, lane, label, ht_add_work(r->out, &work));
}

static void when(struct ht_rebuild *r, enum ht_when branch)
{
    ht_op_when(r->out, branch);
    ht_op_after(r->out, r->final_check[ht_op_rank(r->out, r->out->n_ops - 1)]);
}

/* Names the last op after a step: "undo3" if the step is "O3". */
static void name_after(struct ht_rebuild *r, const struct ht_controlled_step *x, const char *what)
{
    const char *name = r->in->ops[x->op].name;
    ht_op_name(r->out, "%s%s", what, name[0] ? name + 1 : "");
}

static const struct ht_work *work_of(const struct ht_rebuild *r, int32_t op)
{
    return &r->in->works[r->in->ops[op].work];
}

static bool keeps_cores_busy(const struct ht_rebuild *r, const struct ht_use *use)
{
    return r->in->resources[use->resource].kind == HT_RES_CORES;
}

/* Charges the last op like another op, plus more_bytes to each resource but cores. */
static void charge_as(struct ht_rebuild *r, int32_t op, int64_t more_bytes)
{
    for (int64_t k = r->in->uses_begin[op]; k < r->in->uses_begin[op + 1]; k++) {
        const struct ht_use *use = &r->in->uses[k];
        ht_op_use(r->out, use->resource, use->amount + (keeps_cores_busy(r, use) ? 0 : more_bytes));
    }
}

/* Charges the last op like the other ops of its lane, but with this many bytes. */
static void charge(struct ht_rebuild *r, int32_t lane, int64_t bytes)
{
    const struct ht_schedule *s = r->in;
    int32_t op = 0;
    while (op < s->n_ops && (s->ops[op].lane != lane || s->uses_begin[op] == s->uses_begin[op + 1])) op++;
    for (int64_t k = op < s->n_ops ? s->uses_begin[op] : 0; op < s->n_ops && k < s->uses_begin[op + 1]; k++)
        ht_op_use(r->out, s->uses[k].resource, keeps_cores_busy(r, &s->uses[k]) ? s->uses[k].amount : bytes);
}

/* Puts the last op ahead of all others on a PRIORITY lane, so that the outcome is known as soon as possible. */
static void put_first(struct ht_rebuild *r, int32_t lane)
{
    int32_t least = 0;
    for (int32_t op = 0; op < r->in->n_ops; op++)
        if (r->in->ops[op].lane == lane && r->in->ops[op].priority < least) least = r->in->ops[op].priority;
    if (r->in->lanes[lane].order == HT_PRIORITY) ht_op_priority(r->out, least - 1);
}

static void on_logs(struct ht_rebuild *r, const struct ht_controlled_step *x, unsigned flags)
{
    const struct ht_schedule *s = r->in;
    for (int64_t k = s->effects_begin[x->op]; k < s->effects_begin[x->op + 1]; k++) {
        int32_t log = r->log[s->effects[k].tensor];
        if (log >= 0 && ht_rebuild_momentum(s, &s->effects[k])) ht_op_effect(r->out, log, x->tier, flags);
    }
}

/* ---- the ops --------------------------------------------------------------------------------------------------- */

/* Adds the effects of a step. With rollback it keeps its gradient for an undo. */
static void step_effects(struct ht_rebuild *r, const struct ht_controlled_step *x)
{
    const struct ht_schedule *s = r->in;
    for (int64_t k = s->effects_begin[x->op]; k < s->effects_begin[x->op + 1]; k++) {
        const struct ht_effect *e = &s->effects[k];
        bool later = rolls_back(r) && e->flags & HT_NEED;
        ht_op_effect(r->out, e->tensor, (enum ht_tier)e->tier, later ? e->flags & ~(unsigned)HT_RELEASE : e->flags);
    }
    on_logs(r, x, r->style.undo == HT_UNDO_LASTING ? HT_UPDATE : HT_PRODUCE);
}

static void wait_as_before(struct ht_rebuild *r, int32_t at)
{
    const struct ht_schedule *s = r->in;
    for (int64_t k = s->deps_begin[at]; k < s->deps_begin[at + 1]; k++) {
        int32_t before = s->deps[k];
        if (r->moved[before] && !r->moved[at]) before = r->steps[r->step_of[before]].fifo_before;
        if (before >= 0) ht_op_after(r->out, r->new_id[before]);
    }
    for (int64_t k = s->prev_begin[at]; k < s->prev_begin[at + 1]; k++) {
        assert(s->prev[k] >= 0);
        ht_op_after_prev(r->out, r->new_id[s->prev[k]]);
    }
}

static void keep(struct ht_rebuild *r, int32_t at)
{
    const struct ht_schedule *s = r->in;
    const struct ht_op *op = &s->ops[at];
    const struct ht_controlled_step *x = r->step_of[at] >= 0 ? &r->steps[r->step_of[at]] : NULL;
    struct ht_work work = *work_of(r, at);
    if (x) work.bytes += x->log_bytes;
    ht_add_op(r->out, (enum ht_op_kind)op->kind, op->lane, op->label, ht_add_work(r->out, &work));
    if (op->name[0]) ht_op_name(r->out, "%.16s", op->name);
    ht_op_priority(r->out, op->priority);
    ht_op_match(r->out, op->match);
    ht_op_across(r->out, op->across - 1);
    ht_op_when(r->out, (enum ht_when)op->when);
    wait_as_before(r, at);
    charge_as(r, at, x ? x->log_bytes : 0);
    if (x) {
        step_effects(r, x);
        if (rolls_back(r))
            ht_op_after(r->out, x->grad_check);
        else
            when(r, HT_WHEN_OK);
        return;
    }
    for (int64_t k = s->effects_begin[at]; k < s->effects_begin[at + 1]; k++)
        ht_op_effect(r->out, s->effects[k].tensor, (enum ht_tier)s->effects[k].tier, s->effects[k].flags);
}

static void grad_check(struct ht_rebuild *r, const struct ht_controlled_step *x)
{
    const struct ht_schedule *s = r->in;
    enum ht_tier tier = rolls_back(r) ? x->tier : x->checked_in;
    int32_t lane = s->ops[x->op].lane;
    int64_t bytes = 0;
    if (tier != x->tier) lane = ht_rebuild_lane(s, x->rank, tier == HT_DEVICE ? HT_LANE_COMPUTE : HT_LANE_HOST);
    add(r, HT_OP_VALIDATE, lane, s->ops[x->op].label, *work_of(r, x->op));
    name_after(r, x, "V");
    for (int64_t k = s->effects_begin[x->op]; k < s->effects_begin[x->op + 1]; k++) {
        int32_t t = s->effects[k].tensor;
        if (!ht_rebuild_gradient(s, &s->effects[k])) continue;
        ht_op_effect(r->out, t, tier, HT_NEED);
        bytes += s->tensors[t].bytes;
    }
    charge(r, lane, bytes);
    put_first(r, lane);
}

/* Adds an op of a rank about no unit, after all checks (rollback: and steps) of the rank and its agreement. */
static void add_rank_op(struct ht_rebuild *r, int32_t rank, enum ht_op_kind kind, int32_t lane, struct ht_work work)
{
    add(r, kind, lane, (struct ht_label){.unit = -1, .n_units = 0, .sub_ops = HT_ALL_SUB_OPS, .micro_batch = -1}, work);
    ht_op_after(r->out, r->agreed[rank] < r->out->n_ops - 1 ? r->agreed[rank] : -1);
    for (int32_t i = 0; i < r->n_steps; i++) {
        if (r->steps[i].rank != rank) continue;
        ht_op_after(r->out, r->steps[i].grad_check);
        if (rolls_back(r)) ht_op_after(r->out, r->new_id[r->steps[i].op]);
    }
}

/* Adds a rank's member of the all-reduce in which the ranks exchange their results. All ranks of the draft are one
   group. */
static void agree(struct ht_rebuild *r, int32_t rank)
{
    struct ht_work work = {.tp = 1, .ranks = r->in->n_ranks, .bytes = 4, .grad_dtype = HT_F32};
    int32_t group = 0;
    for (int32_t op = 0; op < r->in->n_ops; op++)
        if (r->in->ops[op].match >= group) group = r->in->ops[op].match + 1;
    add_rank_op(r, rank, HT_OP_ALL_REDUCE, ht_rebuild_last_lane(r->in, rank, HT_LANE_COLLECTIVE), work);
    ht_op_name(r->out, "agree");
    ht_op_match(r->out, group);
}

static void final_check(struct ht_rebuild *r, int32_t rank)
{
    int32_t lane = ht_rebuild_last_lane(r->in, rank, HT_LANE_HOST);
    add_rank_op(r, rank, HT_OP_VALIDATE, lane, (struct ht_work){.tp = 1, .ranks = 1});
    ht_op_name(r->out, "verdict");
    put_first(r, lane);
}

/* Adds an op that frees what the step would have freed (gate), or what only an undo needs (rollback). */
static void free_kept(struct ht_rebuild *r, const struct ht_controlled_step *x)
{
    const struct ht_schedule *s = r->in;
    const struct ht_op *op = &s->ops[x->op];
    add(r, HT_OP_ACCUMULATE, op->lane, op->label, (struct ht_work){.free = true, .tp = 1, .ranks = 1});
    name_after(r, x, "free");
    ht_op_priority(r->out, op->priority);
    when(r, r->control->mode == HT_CONTROL_GATE ? HT_WHEN_BAD : HT_WHEN_OK);
    for (int64_t k = s->effects_begin[x->op]; k < s->effects_begin[x->op + 1]; k++)
        if (s->effects[k].flags & HT_RELEASE && s->effects[k].flags & HT_NEED)
            ht_op_effect(r->out, s->effects[k].tensor, x->tier, HT_RELEASE);
    if (r->style.undo == HT_UNDO_AND_REDO) on_logs(r, x, HT_RELEASE);
}

/* Adds the cast that makes, from the unchanged master, the copy that a step would have made. */
static void recast(struct ht_rebuild *r, const struct ht_controlled_step *x)
{
    const struct ht_schedule *s = r->in;
    const struct ht_op *op = &s->ops[x->op];
    int64_t bytes = 0;
    add(r, HT_OP_RESTORE, op->lane, op->label, *work_of(r, x->op));
    name_after(r, x, "cast");
    ht_op_priority(r->out, op->priority);
    when(r, HT_WHEN_BAD);
    for (int64_t k = s->effects_begin[x->op]; k < s->effects_begin[x->op + 1]; k++) {
        const struct ht_effect *e = &s->effects[k];
        bool master = s->tensors[e->tensor].class == HT_MASTER, made = e->flags == HT_PRODUCE;
        if (master || made) bytes += s->tensors[e->tensor].bytes;
        if (master || made) ht_op_effect(r->out, e->tensor, x->tier, master ? HT_NEED : HT_PRODUCE);
    }
    charge(r, op->lane, bytes);
}

/* Adds an undo or a redo of a step, on those of its tensors that are still somewhere. The last of the two frees the
   gradient; the redo frees the log. */
static void undo_or_redo(struct ht_rebuild *r, const struct ht_controlled_step *x, bool undo)
{
    const struct ht_schedule *s = r->in;
    const struct ht_op *op = &s->ops[x->op];
    struct ht_work work = *work_of(r, x->op);
    if (undo) work.bytes = x->log_bytes;
    add(r, undo ? HT_OP_UNDO : HT_OP_OPTIMIZER_STEP, op->lane, op->label, work);
    name_after(r, x, undo ? "undo" : "redo");
    ht_op_priority(r->out, op->priority);
    when(r, HT_WHEN_BAD);
    bool last = !undo || r->style.undo != HT_UNDO_AND_REDO;
    for (int64_t k = s->effects_begin[x->op]; k < s->effects_begin[x->op + 1]; k++) {
        const struct ht_effect *e = &s->effects[k];
        bool written = ht_rebuild_writes(e);
        if (written && !r->current[e->tensor]) continue;
        bool release = e->flags & HT_RELEASE && (last || !(e->flags & HT_NEED));
        unsigned flags = written ? HT_UPDATE : e->flags & ~(unsigned)HT_RELEASE;
        ht_op_effect(r->out, e->tensor, x->tier, flags | (release ? HT_RELEASE : 0));
    }
    charge_as(r, x->op, undo ? x->log_bytes : 0);
    on_logs(r, x, undo ? HT_NEED : HT_RELEASE);
}

/* Adds a copy of what a step wrote, from one tier to another. other: the tier that is not the step's. passes: the copy
   ends in host memory on the way between the device and the disk; comes: it begins there. */
static void copy_hop(struct ht_rebuild *r, const struct ht_controlled_step *x, enum ht_tier other, bool back,
                     enum ht_tier from, enum ht_tier to, bool comes, bool passes)
{
    const struct ht_schedule *s = r->in;
    const struct ht_op *op = &s->ops[x->op];
    int32_t lane = ht_rebuild_copy_lane(s, x->rank, from, to);
    int64_t bytes = 0, begin = s->effects_begin[x->op], end = s->effects_begin[x->op + 1];
    bool (*which)(const struct ht_rebuild *, const struct ht_effect *, enum ht_tier) =
        back ? ht_rebuild_fetched : ht_rebuild_copied;
    for (int64_t k = begin; k < end; k++)
        if (which(r, &s->effects[k], other)) bytes += s->tensors[s->effects[k].tensor].bytes;
    add(r, HT_OP_COPY, lane, op->label, (struct ht_work){.bytes = bytes, .write = to == HT_DISK, .tp = 1, .ranks = 1});
    name_after(r, x, passes ? (back ? "read" : "off") : back ? "back" : "again");
    ht_op_priority(r->out, op->priority);
    when(r, HT_WHEN_BAD);
    for (int64_t k = begin; k < end; k++) {
        if (!which(r, &s->effects[k], other)) continue;
        /* A fetched tensor is freed when the last tier has it. */
        unsigned current = r->current[s->effects[k].tensor];
        bool frees = !back && !(current >> x->tier & 1) && !(current >> (other + 1));
        ht_op_effect(r->out, s->effects[k].tensor, from, comes || frees ? HT_NEED | HT_RELEASE : HT_NEED);
        ht_op_effect(r->out, s->effects[k].tensor, to, back || passes ? HT_PRODUCE : HT_UPDATE);
    }
    charge(r, lane, bytes);
}

/* Adds a copy of what a step wrote between its tier and another: back for the undo, or once more to the tier that had
   it. Between the device and the disk it goes by way of host memory. */
static void copy_written(struct ht_rebuild *r, const struct ht_controlled_step *x, enum ht_tier other, bool back)
{
    enum ht_tier from = back ? other : x->tier, to = back ? x->tier : other;
    bool two = (from == HT_DISK && to == HT_DEVICE) || (from == HT_DEVICE && to == HT_DISK);
    if (two) copy_hop(r, x, other, back, from, HT_HOST, false, true);
    copy_hop(r, x, other, back, two ? HT_HOST : from, to, two, false);
}

static void write_op(struct ht_rebuild *r, const struct ht_rebuilt_op *row)
{
    if (row->what == HT_KEEP) {
        keep(r, row->at);
        return;
    }
    bool of_rank = row->what == HT_AGREE || row->what == HT_FINAL_CHECK;
    const struct ht_controlled_step *x = of_rank ? NULL : &r->steps[row->at];
    switch (row->what) {
    case HT_GRAD_CHECK:
        grad_check(r, x);
        break;
    case HT_AGREE:
        agree(r, row->at);
        break;
    case HT_FINAL_CHECK:
        final_check(r, row->at);
        break;
    case HT_FREE:
        free_kept(r, x);
        break;
    case HT_RECAST:
        recast(r, x);
        break;
    case HT_FETCH:
        copy_written(r, x, row->tier, true);
        break;
    case HT_UNDO_STEP:
        undo_or_redo(r, x, true);
        break;
    case HT_REDO:
        undo_or_redo(r, x, false);
        break;
    default:
        copy_written(r, x, row->tier, false);
        break;
    }
}

static bool rank_steps(const struct ht_rebuild *r, int32_t rank)
{
    for (int32_t i = 0; i < r->n_steps; i++)
        if (r->steps[i].rank == rank) return true;
    return false;
}

/* Makes the last op, if it is the first that a rank without steps computes, wait for the rank's final check of the
   iteration before, which sets the loss scale. Ranks with steps wait for these. begun: [lanes], which have begun. */
static void wait_without_steps(struct ht_rebuild *r, int32_t lane, bool *begun)
{
    const struct ht_lane *l = &r->in->lanes[lane];
    if (begun[lane] || l->kind != HT_LANE_COMPUTE) return;
    begun[lane] = true;
    if (!rank_steps(r, l->rank)) ht_op_after_prev(r->out, r->final_check[l->rank]);
}

void ht_rebuild_write(struct ht_rebuild *r)
{
    bool *begun = HT_NEW_ARRAY(bool, r->in->n_lanes);
    r->out = copy_tables(r->in);
    for (int32_t i = 0; i < r->n_steps; i++) add_logs(r, &r->steps[i]);
    struct ht_blocking_edges edges = {r->style.blocking, -1, -1};
    if (edges.blocking != HT_BLOCKS_NOTHING) edges.prev = ht_mark_create(r->out);
    for (int64_t i = 0; i < r->n_order; i++) {
        write_op(r, &r->order[i]);
        if (r->order[i].what == HT_KEEP) wait_without_steps(r, r->in->ops[r->order[i].at].lane, begun);
        ht_blocking_follow(r->out, &edges);
    }
    if (edges.blocking == HT_BLOCKS_ALL) ht_mark_set(r->out, edges.prev);
    free(begun);
}
