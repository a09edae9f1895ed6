/* Control of a schedule: decides which ops there are, and in which order. control_ops.c writes them. */
#include "common/draft/control.h"

#include "common/base/array.h"
#include "common/draft/control_ops.h"

#include <stdlib.h>

static enum ht_status refuse(const struct ht_rebuild *r, int32_t op, struct ht_error *err, const char *why)
{
    char label[64];
    return ht_fail(err, HT_INFEASIBLE, "schedule '%.64s': control '%s' cannot handle op %d (%s): it %s", r->in->name,
                   ht_control_mode_names[r->control->mode], op, ht_op_label(r->in, op, label, sizeof label), why);
}

/* ---- steps ----------------------------------------------------------------------------------------------------- */

static enum ht_status read_step(struct ht_rebuild *r, int32_t op, struct ht_error *err)
{
    const struct ht_schedule *s = r->in;
    const struct ht_lane *lane = &s->lanes[s->ops[op].lane];
    struct ht_controlled_step x = {
        .op = op, .rank = lane->rank, .checked_after = -1, .fifo_before = -1, .grad_check = -1};
    bool has_grad = false, has_momentum = false;
    x.tier = lane->kind == HT_LANE_COMPUTE ? HT_DEVICE : HT_HOST;
    for (int64_t k = s->effects_begin[op]; k < s->effects_begin[op + 1]; k++) {
        const struct ht_effect *e = &s->effects[k];
        bool scratch = e->flags & HT_PRODUCE && e->flags & HT_RELEASE;
        has_grad |= ht_rebuild_gradient(s, e);
        has_momentum |= ht_rebuild_momentum(s, e);
        if (e->tier != x.tier) return refuse(r, op, err, "works in two tiers");
        if (e->flags & HT_RELEASE && !scratch && !(e->flags & HT_NEED))
            return refuse(r, op, err, "frees what it has changed");
    }
    if (!has_grad || !has_momentum) return refuse(r, op, err, "has no gradient or no momentum");
    if (ht_rebuild_last_lane(s, x.rank, HT_LANE_HOST) < 0)
        return refuse(r, op, err, "has no host lane for the final check");
    r->step_of[op] = r->n_steps;
    HT_PUSH(r->steps, r->n_steps, r->steps_cap, x);
    return HT_OK;
}

static enum ht_status read_steps(struct ht_rebuild *r, struct ht_error *err)
{
    enum ht_status status = HT_OK;
    for (int32_t op = 0; op < r->in->n_ops && !status; op++) {
        if (r->in->ops[op].kind == HT_OP_VALIDATE || r->in->ops[op].when != HT_ALWAYS) {
            refuse(r, op, err, "is part of a control that the graph already has");
            if (err) err->status = HT_FAILED;
            return HT_FAILED;
        }
        if (r->in->ops[op].kind == HT_OP_OPTIMIZER_STEP) status = read_step(r, op, err);
    }
    return status;
}

static void put(struct ht_rebuild *r, enum ht_rebuilt what, int32_t at, enum ht_tier tier)
{
    struct ht_rebuilt_op row = {.what = what, .at = at, .tier = tier};
    if (what == HT_KEEP) r->new_id[at] = (int32_t)r->n_order;
    if (what == HT_GRAD_CHECK) r->steps[at].grad_check = (int32_t)r->n_order;
    if (what == HT_FINAL_CHECK) r->final_check[at] = (int32_t)r->n_order;
    if (what == HT_AGREE) r->agreed[at] = (int32_t)r->n_order;
    HT_PUSH(r->order, r->n_order, r->order_cap, row);
}

/* Puts the final checks of all ranks of the draft, after an agreement of the ranks that have collective lanes. */
static void put_final_checks(struct ht_rebuild *r)
{
    for (int32_t rank = 0; rank < r->in->n_ranks; rank++)
        if (ht_rebuild_last_lane(r->in, rank, HT_LANE_COLLECTIVE) >= 0) put(r, HT_AGREE, rank, HT_HOST);
    for (int32_t rank = 0; rank < r->in->n_ranks; rank++)
        if (ht_rebuild_last_lane(r->in, rank, HT_LANE_HOST) >= 0) put(r, HT_FINAL_CHECK, rank, HT_HOST);
}

/* ---- gate ------------------------------------------------------------------------------------------------------ */

/* Finds the ops that move behind the final check: steps, and ops that touch or wait for something that moves. An op
   that waits for a step without touching anything of its own does not move: it waits for the step's turn on its lane,
   and the op before the step there stands in for it. */
static void find_moved(struct ht_rebuild *r)
{
    const struct ht_schedule *s = r->in;
    int64_t spaces = ht_n_spaces(s);
    uint8_t *touched = HT_NEW_ARRAY(uint8_t, s->n_tensors * spaces); /* 1: read, 2: written or freed */
    int32_t *last = HT_NEW_ARRAY(int32_t, s->n_lanes);               /* last op of the lane that does not move, + 1 */
    for (int32_t op = 0; op < s->n_ops; op++) {
        int32_t lane = s->ops[op].lane, rank = s->lanes[lane].rank;
        bool moves = r->step_of[op] >= 0;
        for (int64_t k = s->deps_begin[op]; k < s->deps_begin[op + 1] && !moves; k++)
            moves = r->moved[s->deps[k]] && r->step_of[s->deps[k]] < 0;
        for (int64_t k = s->effects_begin[op]; k < s->effects_begin[op + 1] && !moves; k++) {
            const struct ht_effect *e = &s->effects[k];
            uint8_t before = touched[e->tensor * spaces + ht_space(s, (enum ht_tier)e->tier, rank)];
            moves = e->flags == HT_NEED ? before & 2 : before;
        }
        r->moved[op] = moves;
        if (!moves) last[lane] = op + 1;
        if (r->step_of[op] >= 0 && s->lanes[lane].order == HT_FIFO)
            r->steps[r->step_of[op]].fifo_before = last[lane] - 1;
        for (int64_t k = s->effects_begin[op]; k < s->effects_begin[op + 1] && moves; k++) {
            const struct ht_effect *e = &s->effects[k];
            touched[e->tensor * spaces + ht_space(s, (enum ht_tier)e->tier, rank)] |= e->flags == HT_NEED ? 1 : 2;
        }
    }
    free(touched);
    free(last);
}

/* The last write of a gradient before any step, in a tier where a lane can read it. */
struct site {
    int32_t op; /* + 1; 0: none */
    enum ht_tier tier;
};

/* Returns the last op of an op's group. */
static int32_t group_end(const struct ht_schedule *s, int32_t op)
{
    int32_t match = s->ops[op].match;
    while (match >= 0 && op + 1 < s->n_ops && s->ops[op + 1].match == match) op++;
    return op;
}

/* Finds the op after which a step's gradients are final, and their tier. A check after a member of a group comes after
   the whole group. */
static enum ht_status find_site(const struct ht_rebuild *r, const struct site *sites, struct ht_controlled_step *x,
                                struct ht_error *err)
{
    const struct ht_schedule *s = r->in;
    for (int64_t k = s->effects_begin[x->op]; k < s->effects_begin[x->op + 1]; k++) {
        if (!ht_rebuild_gradient(s, &s->effects[k])) continue;
        struct site site = sites[s->effects[k].tensor];
        if (!site.op) return refuse(r, x->op, err, "reads a gradient that no op has written before");
        if (x->checked_after >= 0 && site.tier != x->checked_in)
            return refuse(r, x->op, err, "steps with gradients that are in two tiers");
        int32_t end = group_end(s, site.op - 1);
        if (end > x->checked_after) x->checked_after = end;
        x->checked_in = site.tier;
    }
    return HT_OK;
}

static enum ht_status find_gradients(struct ht_rebuild *r, struct ht_error *err)
{
    const struct ht_schedule *s = r->in;
    enum ht_status status = HT_OK;
    struct site *sites = HT_NEW_ARRAY(struct site, s->n_tensors);
    for (int32_t op = 0; op < s->n_ops && !status; op++)
        for (int64_t k = s->effects_begin[op]; k < s->effects_begin[op + 1] && !status; k++) {
            const struct ht_effect *e = &s->effects[k];
            if (s->tensors[e->tensor].class != HT_GRAD || !(e->flags & HT_WRITES)) continue;
            if (!r->moved[op] && e->tier <= HT_HOST) sites[e->tensor] = (struct site){op + 1, (enum ht_tier)e->tier};
            if (r->moved[op] && s->ops[op].kind != HT_OP_COPY)
                status = refuse(r, op, err, "makes a gradient after a step on which it depends");
        }
    for (int32_t i = 0; i < r->n_steps && !status; i++) status = find_site(r, sites, &r->steps[i], err);
    free(sites);
    return status;
}

static bool makes_copy(const struct ht_schedule *s, int32_t op)
{
    for (int64_t k = s->effects_begin[op]; k < s->effects_begin[op + 1]; k++)
        if (s->effects[k].flags & HT_PRODUCE && !(s->effects[k].flags & HT_RELEASE)) return true;
    return false;
}

static bool frees(const struct ht_schedule *s, int32_t op)
{
    for (int64_t k = s->effects_begin[op]; k < s->effects_begin[op + 1]; k++)
        if (s->effects[k].flags & HT_RELEASE && s->effects[k].flags & HT_NEED) return true;
    return false;
}

/* Checks that on the bad branch a cast from the unit's master can make what the step would have made. */
static enum ht_status check_made(const struct ht_rebuild *r, int32_t op, struct ht_error *err)
{
    const struct ht_schedule *s = r->in;
    bool master = false, other = false;
    for (int64_t k = s->effects_begin[op]; k < s->effects_begin[op + 1]; k++) {
        const struct ht_effect *e = &s->effects[k];
        enum ht_tensor_class class = s->tensors[e->tensor].class;
        master |= class == HT_MASTER && e->flags & HT_UPDATE;
        other |= class != HT_PARAM && e->flags & HT_PRODUCE && !(e->flags & HT_RELEASE);
    }
    if (other || !master) return refuse(r, op, err, "makes a tensor that is not a copy of a master");
    return HT_OK;
}

static enum ht_status order_gate(struct ht_rebuild *r, struct ht_error *err)
{
    const struct ht_schedule *s = r->in;
    /* Lists of the steps that are checked after each op; index + 1, 0: end. */
    int32_t *first = HT_NEW_ARRAY(int32_t, s->n_ops), *next = HT_NEW_ARRAY(int32_t, r->n_steps);
    find_moved(r);
    enum ht_status status = find_gradients(r, err);
    for (int32_t i = r->n_steps; i-- > 0 && !status;) {
        int32_t after = r->steps[i].checked_after;
        next[i] = first[after];
        first[after] = i + 1;
    }
    for (int32_t op = 0; op < s->n_ops && !status; op++) {
        if (r->moved[op]) continue;
        put(r, HT_KEEP, op, HT_HOST);
        for (int32_t i = first[op]; i > 0; i = next[i - 1]) put(r, HT_GRAD_CHECK, i - 1, HT_HOST);
    }
    put_final_checks(r);
    for (int32_t op = 0; op < s->n_ops && !status; op++) {
        if (!r->moved[op]) continue;
        put(r, HT_KEEP, op, HT_HOST);
        if (r->step_of[op] < 0) continue;
        if (frees(s, op)) put(r, HT_FREE, r->step_of[op], HT_HOST);
        if (!makes_copy(s, op)) continue;
        status = check_made(r, op, err);
        put(r, HT_RECAST, r->step_of[op], HT_HOST);
    }
    free(first);
    free(next);
    return status;
}

/* ---- rollback -------------------------------------------------------------------------------------------------- */

/* Follows one op: records which step wrote each tensor, and which tiers have what it wrote. step: [tensors] index of
   the step that wrote it, + 1; 0: none. */
static enum ht_status follow_op(struct ht_rebuild *r, int32_t *step, int32_t op, struct ht_error *err)
{
    const struct ht_schedule *s = r->in;
    for (int64_t k = s->effects_begin[op]; k < s->effects_begin[op + 1]; k++) {
        const struct ht_effect *e = &s->effects[k];
        int32_t t = e->tensor;
        uint8_t bit = (uint8_t)(1u << e->tier);
        bool steps = r->step_of[op] >= 0 && ht_rebuild_writes(e);
        if (steps && step[t]) return refuse(r, op, err, "steps what another step has stepped");
        if (!steps && step[t] && s->ops[op].kind != HT_OP_COPY && e->flags & (HT_NEED | HT_WRITES))
            return refuse(r, op, err, "uses what a step has made in the same iteration");
        if (steps) step[t] = r->step_of[op] + 1;
        if (e->flags & HT_WRITES) r->current[t] = steps ? bit : (uint8_t)(r->current[t] | bit);
        if (e->flags & HT_RELEASE) r->current[t] &= (uint8_t)~bit;
    }
    return HT_OK;
}

/* Checks that lanes can repeat the copies of what a step wrote, both ways. */
static enum ht_status check_copied(const struct ht_rebuild *r, const struct ht_controlled_step *x, struct ht_error *err)
{
    const struct ht_schedule *s = r->in;
    for (int64_t k = s->effects_begin[x->op]; k < s->effects_begin[x->op + 1]; k++)
        for (enum ht_tier tier = 0; tier < HT_N_TIERS; tier++)
            if (ht_rebuild_copied(r, &s->effects[k], tier) && (ht_rebuild_copy_lane(s, x->rank, tier, x->tier) < 0 ||
                                                               ht_rebuild_copy_lane(s, x->rank, x->tier, tier) < 0))
                return refuse(r, x->op, err, "makes a tensor that is then copied to where no lane copies");
    return HT_OK;
}

static enum ht_status follow(struct ht_rebuild *r, struct ht_error *err)
{
    enum ht_status status = HT_OK;
    int32_t *step = HT_NEW_ARRAY(int32_t, r->in->n_tensors);
    for (int32_t op = 0; op < r->in->n_ops && !status; op++) status = follow_op(r, step, op, err);
    for (int32_t i = 0; i < r->n_steps && !status; i++) status = check_copied(r, &r->steps[i], err);
    free(step);
    return status;
}

/* Puts, for each tier, a copy of those of a step's tensors for which `which` returns true. */
static void put_copies(struct ht_rebuild *r, int32_t step, enum ht_rebuilt what,
                       bool (*which)(const struct ht_rebuild *, const struct ht_effect *, enum ht_tier))
{
    const struct ht_schedule *s = r->in;
    int32_t op = r->steps[step].op;
    for (enum ht_tier tier = 0; tier < HT_N_TIERS; tier++) {
        bool some = false;
        for (int64_t k = s->effects_begin[op]; k < s->effects_begin[op + 1]; k++)
            some |= which(r, &s->effects[k], tier);
        if (some) put(r, what, step, tier);
    }
}

static enum ht_status order_rollback(struct ht_rebuild *r, struct ht_error *err)
{
    enum ht_status status = follow(r, err);
    bool redo = r->style.undo == HT_UNDO_AND_REDO;
    int32_t left = r->n_steps;
    for (int32_t op = 0; op < r->in->n_ops && !status; op++) {
        int32_t step = r->step_of[op];
        if (step >= 0) put(r, HT_GRAD_CHECK, step, HT_HOST);
        put(r, HT_KEEP, op, HT_HOST);
        if (step >= 0 && --left == 0) put_final_checks(r);
    }
    for (int32_t i = 0; i < r->n_steps && !status; i++) {
        put_copies(r, i, HT_FETCH, ht_rebuild_fetched);
        put(r, HT_UNDO_STEP, i, HT_HOST);
        if (redo) put(r, HT_REDO, i, HT_HOST);
        put_copies(r, i, HT_COPY_AGAIN, ht_rebuild_copied);
        if (redo || frees(r->in, r->steps[i].op)) put(r, HT_FREE, i, HT_HOST);
    }
    return status;
}

/* ---- both ------------------------------------------------------------------------------------------------------ */

enum ht_status ht_control_apply(const struct ht_schedule *in, const struct ht_control *control,
                                struct ht_control_style style, struct ht_error *err, struct ht_schedule **out)
{
    struct ht_rebuild r = {.in = in, .control = control, .style = style};
    enum ht_status status = HT_OK;
    r.step_of = ht_alloc_ids(in->n_ops);
    r.new_id = ht_alloc_ids(in->n_ops);
    r.log = ht_alloc_ids(in->n_tensors);
    r.agreed = ht_alloc_ids(in->n_ranks);
    r.final_check = ht_alloc_ids(in->n_ranks);
    r.moved = HT_NEW_ARRAY(bool, in->n_ops);
    r.current = HT_NEW_ARRAY(uint8_t, in->n_tensors);
    if (control->mode != HT_CONTROL_NONE) status = read_steps(&r, err);
    if (!status && r.n_steps && control->mode == HT_CONTROL_GATE) {
        status = order_gate(&r, err);
    } else if (!status && r.n_steps && control->mode == HT_CONTROL_ROLLBACK) {
        status = order_rollback(&r, err);
    } else if (!status) { /* nothing is stepped, or there is no control */
        for (int32_t op = 0; op < in->n_ops; op++) put(&r, HT_KEEP, op, HT_HOST);
    }
    if (!status) {
        ht_rebuild_write(&r);
        *out = r.out;
    }
    int32_t *ids[] = {r.step_of, r.new_id, r.log, r.agreed, r.final_check};
    for (size_t i = 0; i < HT_COUNT(ids); i++) free(ids[i]);
    free(r.steps);
    free(r.moved);
    free(r.current);
    free(r.order);
    return status;
}
