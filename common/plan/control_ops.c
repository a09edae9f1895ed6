/* The ops of a graph under control, in the order that control.c has decided. */
#include "common/plan/control_rebuild.h"

#include "common/base/array.h"
#include "common/kernels/undo.h"

#include <assert.h>
#include <stdlib.h>

enum { WRITES = HT_PRODUCE | HT_UPDATE };

static struct ht_schedule *copy_tables(const struct ht_schedule *in)
{
    struct ht_schedule *s = ht_schedule_create(in->name, in->n_ranks, in->n_nodes, in->rank_node);
    for (int32_t i = 0; i < ht_n_spaces(in); i++) s->capacity_bytes[i] = in->capacity_bytes[i];
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

/* Elements of the step's shard. */
static int64_t elements_of(const struct ht_rebuild *r, const struct ht_controlled_step *x)
{
    return r->in->tensors[x->momentum].bytes / 4;
}

static void add_logs(struct ht_rebuild *r)
{
    for (int32_t i = 0; i < r->n_steps; i++) {
        struct ht_controlled_step *x = &r->steps[i];
        struct ht_tensor row = r->in->tensors[x->momentum];
        row.class = HT_STAGING;
        row.bytes = ht_control_log_bytes(r->control, elements_of(r, x));
        if (row.bytes) x->log = ht_add_tensor(r->out, row);
    }
}

/* What of a log is written and read when it has no exceptions. */
static int64_t log_traffic_bytes(const struct ht_control *control, int64_t elements)
{
    return control->mode == HT_CONTROL_ROLLBACK ? ht_undo_log_bytes(elements, 0) : 0;
}

void ht_control_works(const struct ht_control *control, struct ht_work *step, struct ht_work *judge)
{
    *judge = *step;
    judge->kind = HT_OP_VALIDATE;
    step->bytes = log_traffic_bytes(control, step->params);
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
    ht_op_after(r->out, r->verdict);
}

static const struct ht_work *work_of(const struct ht_rebuild *r, int32_t op)
{
    return &r->in->works[r->in->ops[op].work];
}

static bool keeps_cores_busy(const struct ht_rebuild *r, const struct ht_use *use)
{
    return r->in->resources[use->resource].kind == HT_RES_CORES;
}

/* Like another op, which moves more_bytes fewer. */
static void draw_as(struct ht_rebuild *r, int32_t op, int64_t more_bytes)
{
    for (int64_t k = r->in->uses_begin[op]; k < r->in->uses_begin[op + 1]; k++) {
        const struct ht_use *use = &r->in->uses[k];
        ht_op_use(r->out, use->resource, use->amount + (keeps_cores_busy(r, use) ? 0 : more_bytes));
    }
}

/* Like the ops of a lane, but with so many bytes. */
static void draw(struct ht_rebuild *r, int32_t lane, int64_t bytes)
{
    const struct ht_schedule *s = r->in;
    int32_t op = 0;
    while (op < s->n_ops && (s->ops[op].lane != lane || s->uses_begin[op] == s->uses_begin[op + 1])) op++;
    for (int64_t k = op < s->n_ops ? s->uses_begin[op] : 0; op < s->n_ops && k < s->uses_begin[op + 1]; k++)
        ht_op_use(r->out, s->uses[k].resource, keeps_cores_busy(r, &s->uses[k]) ? s->uses[k].amount : bytes);
}

/* Before all others of a PRIORITY lane: the sooner the verdict is known, the better. */
static void hurry(struct ht_rebuild *r, int32_t lane)
{
    int32_t least = 0;
    for (int32_t op = 0; op < r->in->n_ops; op++)
        if (r->in->ops[op].lane == lane && r->in->ops[op].priority < least) least = r->in->ops[op].priority;
    if (r->in->lanes[lane].order == HT_PRIORITY) ht_op_priority(r->out, least - 1);
}

static void free_log(struct ht_rebuild *r, const struct ht_controlled_step *x)
{
    if (x->log >= 0) ht_op_effect(r->out, x->log, x->tier, HT_RELEASE);
}

/* ---- one op after another -------------------------------------------------------------------------------------- */

/* The step itself. A logged one keeps its gradient for the undo. */
static void step_effects(struct ht_rebuild *r, const struct ht_controlled_step *x)
{
    const struct ht_schedule *s = r->in;
    for (int64_t k = s->effects_begin[x->op]; k < s->effects_begin[x->op + 1]; k++) {
        const struct ht_effect *e = &s->effects[k];
        bool later = x->log >= 0 && e->flags & HT_NEED;
        ht_op_effect(r->out, e->tensor, (enum ht_tier)e->tier, later ? e->flags & ~(unsigned)HT_RELEASE : e->flags);
    }
    if (x->log >= 0) ht_op_effect(r->out, x->log, x->tier, HT_PRODUCE);
}

static void wait_as_before(struct ht_rebuild *r, int32_t at)
{
    const struct ht_schedule *s = r->in;
    for (int64_t k = s->deps_begin[at]; k < s->deps_begin[at + 1]; k++) {
        int32_t before = s->deps[k];
        if (r->moved[before] && !r->moved[at]) before = r->steps[r->step_of[before]].place;
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
    if (x && x->log >= 0) work.bytes = log_traffic_bytes(r->control, elements_of(r, x));
    ht_add_op(r->out, (enum ht_op_kind)op->kind, op->lane, op->label, ht_add_work(r->out, &work));
    if (op->name[0]) ht_op_name(r->out, "%.16s", op->name);
    ht_op_priority(r->out, op->priority);
    ht_op_match(r->out, op->match);
    ht_op_when(r->out, (enum ht_when)op->when);
    wait_as_before(r, at);
    draw_as(r, at, x && x->log >= 0 ? work.bytes : 0);
    if (x) {
        step_effects(r, x);
        if (x->log >= 0) ht_op_after(r->out, x->judge);
        if (x->log < 0) when(r, HT_WHEN_OK);
        return;
    }
    for (int64_t k = s->effects_begin[at]; k < s->effects_begin[at + 1]; k++)
        ht_op_effect(r->out, s->effects[k].tensor, (enum ht_tier)s->effects[k].tier, s->effects[k].flags);
}

static void judge(struct ht_rebuild *r, const struct ht_controlled_step *x)
{
    enum ht_tier tier = r->control->mode == HT_CONTROL_GATE ? x->judged_in : x->tier;
    int32_t lane = tier == x->tier ? r->in->ops[x->op].lane : ht_rebuild_lane_in(r->in, tier);
    struct ht_work work = *work_of(r, x->op);
    add(r, HT_OP_VALIDATE, lane, r->in->ops[x->op].label, work);
    ht_op_name(r->out, "V%d", r->in->ops[x->op].label.unit);
    ht_op_effect(r->out, x->grad, tier, HT_NEED);
    draw(r, lane, r->in->tensors[x->grad].bytes);
    hurry(r, lane);
}

/* After all that the verdict goes by; each rank hears what the others found. */
static void agree(struct ht_rebuild *r)
{
    struct ht_label whole = {.unit = -1, .n_units = 0, .sub_ops = HT_ALL_SUB_OPS, .micro_batch = -1};
    struct ht_work work = {.tp = 1, .ranks = 1, .bytes = 4, .grad_dtype = HT_F32};
    for (int32_t op = 0; op < r->in->n_ops; op++)
        if (r->in->ops[op].lane == r->talk) work.ranks = work_of(r, op)->ranks;
    add(r, HT_OP_ALL_REDUCE, r->talk, whole, work);
    ht_op_name(r->out, "agree");
    for (int32_t i = 0; i < r->n_steps; i++) {
        ht_op_after(r->out, r->steps[i].judge);
        if (r->control->mode == HT_CONTROL_ROLLBACK) ht_op_after(r->out, r->new_id[r->steps[i].op]);
    }
}

static void verdict(struct ht_rebuild *r)
{
    struct ht_label whole = {.unit = -1, .n_units = 0, .sub_ops = HT_ALL_SUB_OPS, .micro_batch = -1};
    add(r, HT_OP_VALIDATE, r->host, whole, (struct ht_work){.tp = 1, .ranks = 1});
    ht_op_name(r->out, "verdict");
    ht_op_after(r->out, r->agreed);
    for (int32_t i = 0; i < r->n_steps; i++) {
        ht_op_after(r->out, r->steps[i].judge);
        if (r->control->mode == HT_CONTROL_ROLLBACK) ht_op_after(r->out, r->new_id[r->steps[i].op]);
    }
    hurry(r, r->host);
}

/* What the step would have freed (gate), or what only an undo needs (rollback). */
static void free_kept(struct ht_rebuild *r, const struct ht_controlled_step *x)
{
    const struct ht_schedule *s = r->in;
    const struct ht_op *op = &s->ops[x->op];
    add(r, HT_OP_ACCUMULATE, op->lane, op->label, (struct ht_work){.free = true, .tp = 1, .ranks = 1});
    ht_op_name(r->out, "free%d", op->label.unit);
    ht_op_priority(r->out, op->priority);
    when(r, r->control->mode == HT_CONTROL_GATE ? HT_WHEN_BAD : HT_WHEN_OK);
    for (int64_t k = s->effects_begin[x->op]; k < s->effects_begin[x->op + 1]; k++)
        if (s->effects[k].flags & HT_RELEASE && s->effects[k].flags & HT_NEED)
            ht_op_effect(r->out, s->effects[k].tensor, x->tier, HT_RELEASE);
    free_log(r, x);
}

/* The copy that a step would have made, of parameters that it did not change. */
static void recast(struct ht_rebuild *r, const struct ht_controlled_step *x)
{
    const struct ht_schedule *s = r->in;
    const struct ht_op *op = &s->ops[x->op];
    int64_t bytes = 0;
    add(r, HT_OP_RESTORE, op->lane, op->label, *work_of(r, x->op));
    ht_op_name(r->out, "cast%d", op->label.unit);
    ht_op_priority(r->out, op->priority);
    when(r, HT_WHEN_BAD);
    for (int64_t k = s->effects_begin[x->op]; k < s->effects_begin[x->op + 1]; k++) {
        const struct ht_effect *e = &s->effects[k];
        bool master = s->tensors[e->tensor].class == HT_MASTER, made = e->flags == HT_PRODUCE;
        if (master || made) bytes += s->tensors[e->tensor].bytes;
        if (master || made) ht_op_effect(r->out, e->tensor, x->tier, master ? HT_NEED : HT_PRODUCE);
    }
    draw(r, op->lane, bytes);
}

/* Undo or redo: the step's tensors, but for those that are nowhere any more. With the redo go gradient and log. */
static void again(struct ht_rebuild *r, const struct ht_controlled_step *x, bool undo)
{
    const struct ht_schedule *s = r->in;
    const struct ht_op *op = &s->ops[x->op];
    struct ht_work work = *work_of(r, x->op);
    if (undo) work.bytes = log_traffic_bytes(r->control, elements_of(r, x));
    add(r, undo ? HT_OP_UNDO : HT_OP_OPTIMIZER_STEP, op->lane, op->label, work);
    ht_op_name(r->out, undo ? "undo%d" : "redo%d", op->label.unit);
    ht_op_priority(r->out, op->priority);
    when(r, HT_WHEN_BAD);
    uint32_t fetched = 0;
    for (int tier = 0; tier < HT_N_TIERS; tier++) fetched |= x->fetched_from[tier];
    for (int64_t begin = s->effects_begin[x->op], k = begin; k < s->effects_begin[x->op + 1]; k++) {
        const struct ht_effect *e = &s->effects[k];
        bool written = e->flags & WRITES && !(e->flags & HT_RELEASE), gone = x->away >> (k - begin) & 1;
        if (written && gone && !(fetched >> (k - begin) & 1)) continue;
        bool release = e->flags & HT_RELEASE && (!undo || !(e->flags & HT_NEED));
        unsigned flags = written ? HT_UPDATE : e->flags & ~(unsigned)HT_RELEASE;
        ht_op_effect(r->out, e->tensor, x->tier, flags | (release ? HT_RELEASE : 0));
    }
    draw_as(r, x->op, undo ? work.bytes : 0);
    if (undo)
        ht_op_effect(r->out, x->log, x->tier, HT_NEED);
    else
        free_log(r, x);
}

/* Copies some of the step's tensors (bits of its effects) between its tier and another. */
static void carry(struct ht_rebuild *r, const struct ht_controlled_step *x, enum ht_tier other, bool back)
{
    const struct ht_schedule *s = r->in;
    const struct ht_op *op = &s->ops[x->op];
    uint32_t which = back ? x->fetched_from[other] : x->carried[other];
    enum ht_tier from = back ? other : x->tier, to = back ? x->tier : other;
    int32_t lane = ht_rebuild_copy_lane(s, from, to);
    int64_t bytes = 0, begin = s->effects_begin[x->op];
    for (int64_t k = begin; k < s->effects_begin[x->op + 1]; k++)
        if (which >> (k - begin) & 1) bytes += s->tensors[s->effects[k].tensor].bytes;
    add(r, HT_OP_COPY, lane, op->label, (struct ht_work){.bytes = bytes, .tp = 1, .ranks = 1});
    ht_op_name(r->out, back ? "back%d" : "again%d", op->label.unit);
    ht_op_priority(r->out, op->priority);
    when(r, HT_WHEN_BAD);
    for (int64_t k = begin; k < s->effects_begin[x->op + 1]; k++) {
        uint32_t bit = 1u << (k - begin);
        if (!(which & bit)) continue;
        int further = back ? HT_N_TIERS : (int)other + 1; /* what was fetched goes when the last tier has it */
        while (further < HT_N_TIERS && !(x->carried[further] & bit)) further++;
        bool frees = !back && x->away & bit && further == HT_N_TIERS;
        ht_op_effect(r->out, s->effects[k].tensor, from, frees ? HT_NEED | HT_RELEASE : HT_NEED);
        ht_op_effect(r->out, s->effects[k].tensor, to, back ? HT_PRODUCE : HT_UPDATE);
    }
    draw(r, lane, bytes);
}

static void write_op(struct ht_rebuild *r, const struct ht_rebuilt_op *row)
{
    if (row->what == HT_KEEP) {
        keep(r, row->at);
        return;
    }
    const struct ht_controlled_step *x = &r->steps[row->at];
    switch (row->what) {
    case HT_JUDGE:
        judge(r, x);
        break;
    case HT_AGREE:
        agree(r);
        break;
    case HT_VERDICT:
        verdict(r);
        break;
    case HT_FREE:
        free_kept(r, x);
        break;
    case HT_RECAST:
        recast(r, x);
        break;
    case HT_FETCH:
        carry(r, x, row->tier, true);
        break;
    case HT_UNDO_STEP:
        again(r, x, true);
        break;
    case HT_REDO:
        again(r, x, false);
        break;
    default:
        carry(r, x, row->tier, false);
        break;
    }
}

void ht_rebuild_write(struct ht_rebuild *r)
{
    r->out = copy_tables(r->in);
    add_logs(r);
    for (int64_t i = 0; i < r->n_order; i++) {
        write_op(r, &r->order[i]);
        if (!r->blocking) continue;
        if (i > 0) ht_op_after(r->out, (int32_t)i - 1);
        if (i == 0) ht_op_after_prev(r->out, (int32_t)r->n_order - 1);
    }
}
