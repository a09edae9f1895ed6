/* Which ops there are under control, and in which order. The ops themselves: control_ops.c. */
#include "common/plan/control.h"

#include "common/base/array.h"
#include "common/kernels/undo.h"
#include "common/plan/control_rebuild.h"

#include <stdlib.h>

const char *const ht_control_mode_names[HT_N_CONTROL_MODES] = {"none", "gate", "rollback"};

enum { WRITES = HT_PRODUCE | HT_UPDATE, MOST_EFFECTS = 32 };

int64_t ht_control_log_bytes(const struct ht_control *control, int64_t elements)
{
    if (control->mode != HT_CONTROL_ROLLBACK) return 0;
    return ht_undo_log_bytes(elements, ht_undo_usual_exceptions(elements));
}

int32_t ht_rebuild_lane(const struct ht_schedule *s, enum ht_lane_kind kind)
{
    for (int32_t i = 0; i < s->n_lanes; i++)
        if (s->lanes[i].kind == kind) return i;
    return -1;
}

static int32_t last_collective(const struct ht_schedule *s)
{
    int32_t lane = s->n_lanes - 1;
    while (lane >= 0 && s->lanes[lane].kind != HT_LANE_COLLECTIVE) lane--;
    return lane;
}

int32_t ht_rebuild_lane_in(const struct ht_schedule *s, enum ht_tier tier)
{
    return tier == HT_DEVICE ? ht_rebuild_lane(s, HT_LANE_COMPUTE)
           : tier == HT_HOST ? ht_rebuild_lane(s, HT_LANE_HOST)
                             : -1;
}

int32_t ht_rebuild_copy_lane(const struct ht_schedule *s, enum ht_tier from, enum ht_tier to)
{
    if (from == HT_DISK || to == HT_DISK) return ht_rebuild_lane(s, HT_LANE_DISK);
    if (from == HT_DEVICE && to == HT_HOST) return ht_rebuild_lane(s, HT_LANE_D2H);
    if (from == HT_HOST && to == HT_DEVICE) return ht_rebuild_lane(s, HT_LANE_H2D);
    return -1;
}

static enum ht_status refuse(const struct ht_rebuild *r, int32_t op, struct ht_error *err, const char *why)
{
    char title[64];
    return ht_fail(err, HT_INFEASIBLE, "schedule '%.64s': control '%s' has no treatment for op %d (%s): it %s",
                   r->in->name, ht_control_mode_names[r->control->mode], op,
                   ht_op_title(r->in, op, title, sizeof title), why);
}

/* ---- steps ----------------------------------------------------------------------------------------------------- */

static enum ht_status read_step(struct ht_rebuild *r, int32_t op, struct ht_error *err)
{
    const struct ht_schedule *s = r->in;
    struct ht_controlled_step x = {
        .op = op, .grad = -1, .momentum = -1, .log = -1, .judged_after = -1, .place = -1, .judge = -1, .tier = HT_HOST};
    enum ht_lane_kind lane = s->lanes[s->ops[op].lane].kind;
    if (lane == HT_LANE_COMPUTE) x.tier = HT_DEVICE;
    if (s->effects_begin[op + 1] - s->effects_begin[op] > MOST_EFFECTS)
        return refuse(r, op, err, "touches too many tensors");
    for (int64_t k = s->effects_begin[op]; k < s->effects_begin[op + 1]; k++) {
        const struct ht_effect *e = &s->effects[k];
        enum ht_tensor_class class = s->tensors[e->tensor].class;
        bool grad = class == HT_GRAD && e->flags & HT_NEED, momentum = class == HT_MOMENTUM && e->flags & HT_UPDATE;
        if ((grad && x.grad >= 0) || (momentum && x.momentum >= 0))
            return refuse(r, op, err, "steps several units or shards at once");
        if (grad) x.grad = e->tensor;
        if (momentum) x.momentum = e->tensor;
        if (e->tier != x.tier) return refuse(r, op, err, "works in two tiers");
        bool scratch = e->flags & HT_PRODUCE && e->flags & HT_RELEASE;
        if (e->flags & HT_RELEASE && !scratch && !(e->flags & HT_NEED))
            return refuse(r, op, err, "frees what it has changed");
    }
    if (x.grad < 0 || x.momentum < 0) return refuse(r, op, err, "has no gradient or no momentum");
    r->step_of[op] = r->n_steps;
    HT_PUSH(r->steps, r->n_steps, r->steps_cap, x);
    return HT_OK;
}

static enum ht_status read_steps(struct ht_rebuild *r, struct ht_error *err)
{
    enum ht_status status = HT_OK;
    for (int32_t op = 0; op < r->in->n_ops && !status; op++) {
        r->step_of[op] = -1;
        if (r->in->ops[op].kind == HT_OP_VALIDATE || r->in->ops[op].when != HT_ALWAYS) {
            refuse(r, op, err, "is part of a control of the graph's own");
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
    if (what == HT_JUDGE) r->steps[at].judge = (int32_t)r->n_order;
    if (what == HT_VERDICT) r->verdict = (int32_t)r->n_order;
    if (what == HT_AGREE) r->agreed = (int32_t)r->n_order;
    HT_PUSH(r->order, r->n_order, r->order_cap, row);
}

/* The verdict; several ranks agree on it first. */
static void put_verdict(struct ht_rebuild *r)
{
    if (r->talk >= 0) put(r, HT_AGREE, 0, HT_HOST);
    put(r, HT_VERDICT, 0, HT_HOST);
}

/* ---- gate ------------------------------------------------------------------------------------------------------ */

/* Steps move, and what touches or waits for something that moves: but not what waits for a step without touching
   anything of its own. That wait is one for the step's turn on its lane, and the op before it there stands for it. */
static void find_moved(struct ht_rebuild *r)
{
    const struct ht_schedule *s = r->in;
    uint8_t *touched = HT_NEW_ARRAY(uint8_t, (int64_t)s->n_tensors * HT_N_TIERS); /* 1: read, 2: written or freed */
    int32_t *last = HT_NEW_ARRAY(int32_t, s->n_lanes);                            /* + 1; that does not move */
    for (int32_t op = 0; op < s->n_ops; op++) {
        int32_t lane = s->ops[op].lane;
        bool moves = r->step_of[op] >= 0;
        for (int64_t k = s->deps_begin[op]; k < s->deps_begin[op + 1] && !moves; k++)
            moves = r->moved[s->deps[k]] && r->step_of[s->deps[k]] < 0;
        for (int64_t k = s->effects_begin[op]; k < s->effects_begin[op + 1] && !moves; k++) {
            const struct ht_effect *e = &s->effects[k];
            uint8_t before = touched[(int64_t)e->tensor * HT_N_TIERS + e->tier];
            moves = e->flags == HT_NEED ? before & 2 : before;
        }
        r->moved[op] = moves;
        if (!moves) last[lane] = op + 1;
        if (r->step_of[op] >= 0 && s->lanes[lane].order == HT_FIFO) r->steps[r->step_of[op]].place = last[lane] - 1;
        for (int64_t k = s->effects_begin[op]; k < s->effects_begin[op + 1] && moves; k++) {
            const struct ht_effect *e = &s->effects[k];
            touched[(int64_t)e->tensor * HT_N_TIERS + e->tier] |= e->flags == HT_NEED ? 1 : 2;
        }
    }
    free(touched);
    free(last);
}

/* Where each step's gradient is final before any step: the last that writes it, in a tier where a lane can read it. */
static enum ht_status find_gradients(struct ht_rebuild *r, struct ht_error *err)
{
    const struct ht_schedule *s = r->in;
    enum ht_status status = HT_OK;
    struct site {
        int32_t op; /* + 1 */
        enum ht_tier tier;
    } *sites = HT_NEW_ARRAY(struct site, s->n_tensors);
    for (int32_t op = 0; op < s->n_ops && !status; op++)
        for (int64_t k = s->effects_begin[op]; k < s->effects_begin[op + 1] && !status; k++) {
            const struct ht_effect *e = &s->effects[k];
            if (s->tensors[e->tensor].class != HT_GRAD || !(e->flags & WRITES)) continue;
            if (!r->moved[op] && e->tier <= HT_HOST) sites[e->tensor] = (struct site){op + 1, (enum ht_tier)e->tier};
            if (r->moved[op] && s->ops[op].kind != HT_OP_COPY)
                status = refuse(r, op, err, "makes a gradient after a step on which it depends");
        }
    for (int32_t i = 0; i < r->n_steps && !status; i++) {
        struct ht_controlled_step *x = &r->steps[i];
        x->judged_after = sites[x->grad].op - 1;
        x->judged_in = sites[x->grad].tier;
        if (x->judged_after < 0) status = refuse(r, x->op, err, "reads a gradient that nothing has written before");
    }
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

/* When bad, what the step would have made is cast from the unit's master. */
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
    if (other || !master) return refuse(r, op, err, "makes a tensor that is no copy of a master");
    return HT_OK;
}

static enum ht_status order_gate(struct ht_rebuild *r, struct ht_error *err)
{
    const struct ht_schedule *s = r->in;
    int32_t *first = HT_NEW_ARRAY(int32_t, s->n_ops), *next = HT_NEW_ARRAY(int32_t, r->n_steps); /* + 1; judged after */
    find_moved(r);
    enum ht_status status = find_gradients(r, err);
    for (int32_t i = r->n_steps; i-- > 0 && !status;) {
        int32_t after = r->steps[i].judged_after;
        next[i] = first[after];
        first[after] = i + 1;
    }
    for (int32_t op = 0; op < s->n_ops && !status; op++) {
        if (r->moved[op]) continue;
        put(r, HT_KEEP, op, HT_HOST);
        for (int32_t i = first[op]; i > 0; i = next[i - 1]) put(r, HT_JUDGE, i - 1, HT_HOST);
    }
    put_verdict(r);
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

/* Who has stepped a tensor, and how far that has got. */
struct whereabouts {
    int32_t *step;    /* [tensors] + 1 */
    uint8_t *current; /* [tensors] the tiers, as bits, that have what the step wrote */
};

static enum ht_status follow_op(const struct ht_rebuild *r, struct whereabouts *w, int32_t op, struct ht_error *err)
{
    const struct ht_schedule *s = r->in;
    for (int64_t k = s->effects_begin[op]; k < s->effects_begin[op + 1]; k++) {
        const struct ht_effect *e = &s->effects[k];
        int32_t t = e->tensor;
        uint8_t bit = (uint8_t)(1u << e->tier);
        bool step = r->step_of[op] >= 0 && e->flags & WRITES && !(e->flags & HT_RELEASE);
        if (step && w->step[t]) return refuse(r, op, err, "steps what another one has stepped");
        if (!step && w->step[t] && s->ops[op].kind != HT_OP_COPY && e->flags & (HT_NEED | WRITES))
            return refuse(r, op, err, "uses in the same iteration what a step has made");
        if (step) w->step[t] = r->step_of[op] + 1;
        if (e->flags & WRITES) w->current[t] = step ? bit : (uint8_t)(w->current[t] | bit);
        if (e->flags & HT_RELEASE) w->current[t] &= (uint8_t)~bit;
    }
    return HT_OK;
}

/* What became of the tensors that a step wrote, at the end of the iteration. */
static enum ht_status settle_step(const struct ht_rebuild *r, const struct whereabouts *w, struct ht_controlled_step *x,
                                  struct ht_error *err)
{
    const struct ht_schedule *s = r->in;
    int64_t begin = s->effects_begin[x->op];
    for (int64_t k = begin; k < s->effects_begin[x->op + 1]; k++) {
        const struct ht_effect *e = &s->effects[k];
        uint32_t bit = 1u << (k - begin);
        if (!(e->flags & WRITES) || e->flags & HT_RELEASE) continue;
        unsigned current = w->current[e->tensor];
        bool away = !(current >> x->tier & 1);
        if (away) x->away |= bit;
        for (int tier = 0; tier < HT_N_TIERS; tier++) {
            if (tier == (int)x->tier || !(current >> tier & 1)) continue;
            if (ht_rebuild_copy_lane(s, (enum ht_tier)tier, x->tier) < 0 ||
                ht_rebuild_copy_lane(s, x->tier, (enum ht_tier)tier) < 0)
                return refuse(r, x->op, err, "makes what is then copied to where no lane copies");
            if (away) x->fetched_from[tier] |= bit;
            away = false;
            x->carried[tier] |= bit;
        }
    }
    return HT_OK;
}

static enum ht_status follow(struct ht_rebuild *r, struct ht_error *err)
{
    const struct ht_schedule *s = r->in;
    enum ht_status status = HT_OK;
    struct whereabouts w = {.step = HT_NEW_ARRAY(int32_t, s->n_tensors),
                            .current = HT_NEW_ARRAY(uint8_t, s->n_tensors)};
    for (int32_t op = 0; op < s->n_ops && !status; op++) status = follow_op(r, &w, op, err);
    for (int32_t i = 0; i < r->n_steps && !status; i++) status = settle_step(r, &w, &r->steps[i], err);
    free(w.step);
    free(w.current);
    return status;
}

static enum ht_status order_rollback(struct ht_rebuild *r, struct ht_error *err)
{
    enum ht_status status = follow(r, err);
    int32_t left = r->n_steps;
    for (int32_t op = 0; op < r->in->n_ops && !status; op++) {
        int32_t step = r->step_of[op];
        if (step >= 0) put(r, HT_JUDGE, step, HT_HOST);
        put(r, HT_KEEP, op, HT_HOST);
        if (step >= 0 && --left == 0) put_verdict(r);
    }
    for (int32_t i = 0; i < r->n_steps && !status; i++) {
        const struct ht_controlled_step *x = &r->steps[i];
        for (int tier = 0; tier < HT_N_TIERS; tier++)
            if (x->fetched_from[tier]) put(r, HT_FETCH, i, (enum ht_tier)tier);
        put(r, HT_UNDO_STEP, i, HT_HOST);
        put(r, HT_REDO, i, HT_HOST);
        for (int tier = 0; tier < HT_N_TIERS; tier++)
            if (x->carried[tier]) put(r, HT_SEND_ON, i, (enum ht_tier)tier);
        put(r, HT_FREE, i, HT_HOST);
    }
    return status;
}

/* ---- both ------------------------------------------------------------------------------------------------------ */

enum ht_status ht_control_apply(const struct ht_schedule *in, const struct ht_control *control, bool blocking,
                                struct ht_error *err, struct ht_schedule **out)
{
    struct ht_rebuild r = {
        .in = in, .control = control, .blocking = blocking, .agreed = -1, .verdict = -1, .talk = last_collective(in)};
    enum ht_status status = HT_OK;
    r.step_of = HT_NEW_ARRAY(int32_t, in->n_ops);
    r.new_id = HT_NEW_ARRAY(int32_t, in->n_ops);
    r.moved = HT_NEW_ARRAY(bool, in->n_ops);
    r.host = ht_rebuild_lane(in, HT_LANE_HOST);
    if (!status && control->mode != HT_CONTROL_NONE) status = read_steps(&r, err);
    if (!status && r.n_steps && r.host < 0) status = refuse(&r, r.steps[0].op, err, "has no host lane for the verdict");
    if (!status && r.n_steps && control->mode == HT_CONTROL_GATE) {
        status = order_gate(&r, err);
    } else if (!status && r.n_steps && control->mode == HT_CONTROL_ROLLBACK) {
        status = order_rollback(&r, err);
    } else if (!status) { /* nothing is stepped, or nobody looks */
        for (int32_t op = 0; op < in->n_ops; op++) put(&r, HT_KEEP, op, HT_HOST);
    }
    if (!status) {
        ht_rebuild_write(&r);
        *out = r.out;
    }
    free(r.steps);
    free(r.step_of);
    free(r.new_id);
    free(r.moved);
    free(r.order);
    return status;
}
