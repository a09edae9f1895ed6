/*
 * Control: proves that a final check precedes every op with a `when`, that it covers all gradients that its rank steps,
 * and that the next iteration's head waits for it.
 *
 * A validate op with a unit is a gradient check; its result is a partial. One without a unit is a final check, which
 * reads the gradients itself or adds up partials. In the second case it has an edge from every gradient check of its
 * rank. These have read each gradient that the rank steps, after the last op that produced or updated it; copies do not
 * count as such. The hazards rule proves that a check reads the gradient as it was last written. A rank that checks none,
 * since another rank steps for both, learns the partials from an agreement, an all-reduce about no unit: its final check
 * has an edge from the agreement, and that has one from every gradient check.
 *
 * A final check sets the loss scale of the next iteration, so whatever reads that waits for the one of its own rank: a
 * head that makes logits. Edges within an iteration and to the one before lead there, and FIFO lanes, over any ranks.
 */
#include "common/schedule/rules.h"

#include "common/base/array.h"

#include <stdlib.h>

struct control {
    const struct ht_schedule *s;
    bool *lane_waits;     /* [lanes] a FIFO lane that has run a final check */
    int32_t *checked_by;  /* [tensors] gradient check + 1 that read it since its last change */
    int32_t *partials;    /* [ranks] gradient checks so far */
    int32_t *final_check; /* [ranks] the first + 1 that adds up partials */
    int32_t *seen;        /* [ops] the last final check + 1 that has an edge from the op */
    int32_t *counted;     /* [ops] the last agreement + 1 in which the gradient check was counted */
    int32_t n_partials;   /* gradient checks of all ranks */
};

static bool reads_something(const struct ht_schedule *s, int32_t op)
{
    for (int64_t e = s->effects_begin[op]; e < s->effects_begin[op + 1]; e++)
        if (s->effects[e].flags & HT_NEED) return true;
    return false;
}

static bool is_partial(const struct ht_schedule *s, int32_t op)
{
    return s->ops[op].kind == HT_OP_VALIDATE && s->ops[op].label.unit >= 0;
}

static bool is_final_check(const struct ht_schedule *s, int32_t op)
{
    return s->ops[op].kind == HT_OP_VALIDATE && s->ops[op].label.unit < 0;
}

/* Returns true if an op is a member of an agreement that waits for the gradient checks of all ranks. */
static bool is_agreement(const struct control *c, int32_t op)
{
    const struct ht_schedule *s = c->s;
    int32_t waited = 0;
    if (s->ops[op].kind != HT_OP_ALL_REDUCE || s->ops[op].label.unit >= 0) return false;
    for (int64_t k = s->deps_begin[ht_group_begin(s, op)]; k < s->deps_begin[ht_group_end(s, op)]; k++) {
        int32_t before = s->deps[k];
        waited += is_partial(s, before) && c->counted[before] != op + 1;
        c->counted[before] = op + 1;
    }
    return waited > 0 && waited == c->n_partials;
}

/* Checks that a final check which adds up partials waits for all of them. */
static enum ht_status check_final_check(struct control *c, int32_t i, struct ht_error *err)
{
    const struct ht_schedule *s = c->s;
    int32_t rank = ht_op_rank(s, i), waited = 0;
    bool agreed = false;
    if (s->lanes[s->ops[i].lane].order == HT_FIFO) c->lane_waits[s->ops[i].lane] = true;
    if (!s->n_units || reads_something(s, i)) return HT_OK;
    for (int64_t k = s->deps_begin[i]; k < s->deps_begin[i + 1]; k++) {
        int32_t before = s->deps[k];
        agreed |= !c->partials[rank] && is_agreement(c, before);
        waited += is_partial(s, before) && ht_op_rank(s, before) == rank && c->seen[before] != i + 1;
        c->seen[before] = i + 1;
    }
    if (!waited && !agreed)
        return ht_broken_op(s, i, err,
                            "is a final check that reads nothing and has no edge from a gradient check of its rank");
    if (waited < c->partials[rank])
        return ht_broken_op(s, i, err, "has edges from %d of the %d gradient checks of its rank", waited,
                            c->partials[rank]);
    if (!c->final_check[rank]) c->final_check[rank] = i + 1;
    return HT_OK;
}

static enum ht_status check_validate(struct control *c, int32_t i, struct ht_error *err)
{
    const struct ht_schedule *s = c->s;
    int32_t rank = ht_op_rank(s, i);
    if (s->ops[i].when != HT_ALWAYS)
        return ht_broken_op(s, i, err, "is a validate op with a 'when'; expected it in both branches");
    if (is_final_check(s, i)) return check_final_check(c, i, err);
    if (s->n_units && !reads_something(s, i)) return ht_broken_op(s, i, err, "is a gradient check that reads nothing");
    if (c->final_check[rank]) return ht_broken_op(s, i, err, "checks gradients after the final check");
    c->partials[rank]++;
    return HT_OK;
}

/* Records the gradients that the op checks, and clears the checks of those that it changes. */
static void follow_gradients(struct control *c, int32_t i)
{
    const struct ht_schedule *s = c->s;
    for (int64_t e = s->effects_begin[i]; e < s->effects_begin[i + 1]; e++) {
        const struct ht_effect *x = &s->effects[e];
        if (s->tensors[x->tensor].class != HT_GRAD) continue;
        if (is_partial(s, i) && x->flags & HT_NEED) c->checked_by[x->tensor] = i + 1;
        if (s->ops[i].kind != HT_OP_COPY && x->flags & (HT_PRODUCE | HT_UPDATE)) c->checked_by[x->tensor] = 0;
    }
}

/* Checks a step of a rank whose final check adds up partials: every gradient that it reads has been checked. */
static enum ht_status check_gradient_checks(const struct control *c, int32_t i, struct ht_error *err)
{
    const struct ht_schedule *s = c->s;
    if (s->ops[i].kind != HT_OP_OPTIMIZER_STEP || !c->final_check[ht_op_rank(s, i)]) return HT_OK;
    for (int64_t e = s->effects_begin[i]; e < s->effects_begin[i + 1]; e++) {
        const struct ht_effect *x = &s->effects[e];
        if (s->tensors[x->tensor].class != HT_GRAD || !(x->flags & HT_NEED) || c->checked_by[x->tensor]) continue;
        return ht_broken_op(s, i, err, "steps with %s, which no gradient check has read since its last change",
                            ht_phrase_tensor(s, x->tensor).text);
    }
    return HT_OK;
}

/* Returns the bit of the op's rank in a mask of the 64 ranks from `base` on; 0 if the rank is not among them. */
static uint64_t bit_of(const struct ht_schedule *s, int32_t op, int32_t base)
{
    int32_t rank = ht_op_rank(s, op) - base;
    return rank >= 0 && rank < 64 ? (uint64_t)1 << rank : 0;
}

/* Sets waits[n_ops]: the ranks in the mask for whose final checks of an iteration each op waits, of the same iteration
   (now NULL) or of the next, given those of the same. lane[n_lanes]: those for which a FIFO lane has waited so far. */
static void follow_final_checks(const struct ht_schedule *s, int32_t base, const uint64_t *now, uint64_t *lane,
                                uint64_t *waits)
{
    for (int32_t op = 0; op < s->n_ops; op++) {
        bool fifo = s->lanes[s->ops[op].lane].order == HT_FIFO;
        waits[op] = fifo ? lane[s->ops[op].lane] : 0;
        if (!now && is_final_check(s, op)) waits[op] |= bit_of(s, op, base);
        for (int64_t k = s->deps_begin[op]; k < s->deps_begin[op + 1]; k++) waits[op] |= waits[s->deps[k]];
        for (int64_t k = s->prev_begin[op]; now && k < s->prev_begin[op + 1]; k++) waits[op] |= now[s->prev[k]];
        if (fifo) lane[s->ops[op].lane] = waits[op];
    }
}

/* Checks that the next iteration's ops that read the loss scale wait for the final check of their rank, which sets it.
   Takes 64 ranks at a time. */
static enum ht_status check_next_iteration(const struct ht_schedule *s, struct ht_error *err)
{
    int32_t *scales = NULL, n_scales = 0; /* ops that read the scale */
    size_t cap = 0;
    enum ht_status status = HT_OK;
    bool *checked = HT_NEW_ARRAY(bool, s->n_ranks);
    uint64_t *now = NULL, *next = NULL, *lane = HT_NEW_ARRAY(uint64_t, s->n_lanes);
    for (int32_t op = 0; op < s->n_ops; op++)
        if (is_final_check(s, op)) checked[ht_op_rank(s, op)] = true;
    for (int32_t op = 0; op < s->n_ops; op++)
        if (checked[ht_op_rank(s, op)] && ht_op_scales(s, op)) HT_PUSH(scales, n_scales, cap, op);
    if (n_scales) {
        now = HT_NEW_ARRAY(uint64_t, s->n_ops);
        next = HT_NEW_ARRAY(uint64_t, s->n_ops);
    }
    for (int32_t base = 0; base < s->n_ranks && n_scales && !status; base += 64) {
        for (int32_t i = 0; i < s->n_lanes; i++) lane[i] = 0;
        follow_final_checks(s, base, NULL, lane, now);
        follow_final_checks(s, base, now, lane, next);
        for (int32_t i = 0; i < n_scales && !status; i++)
            if (bit_of(s, scales[i], base) & ~next[scales[i]])
                status =
                    ht_broken_op(s, scales[i], err, "does not wait for its rank's final check of the iteration before");
    }
    free(scales);
    free(checked);
    free(now);
    free(next);
    free(lane);
    return status;
}

/* Checks the order of gradient checks, final checks and ops with a `when`. */
static enum ht_status check_branches(const struct ht_schedule *s, struct ht_error *err)
{
    enum ht_status status = HT_OK;
    struct control c = {.s = s,
                        .lane_waits = HT_NEW_ARRAY(bool, s->n_lanes),
                        .checked_by = HT_NEW_ARRAY(int32_t, s->n_tensors),
                        .partials = HT_NEW_ARRAY(int32_t, s->n_ranks),
                        .final_check = HT_NEW_ARRAY(int32_t, s->n_ranks),
                        .seen = HT_NEW_ARRAY(int32_t, s->n_ops),
                        .counted = HT_NEW_ARRAY(int32_t, s->n_ops)};
    for (int32_t i = 0; i < s->n_ops; i++) c.n_partials += is_partial(s, i);
    for (int32_t i = 0; i < s->n_ops && !status; i++) {
        const struct ht_op *op = &s->ops[i];
        follow_gradients(&c, i);
        if (op->kind == HT_OP_VALIDATE) {
            status = check_validate(&c, i, err);
            continue;
        }
        bool ordered = op->when == HT_ALWAYS || c.lane_waits[op->lane];
        for (int64_t k = s->deps_begin[i]; k < s->deps_begin[i + 1] && !ordered; k++)
            ordered = is_final_check(s, s->deps[k]);
        if (!ordered) status = ht_broken_op(s, i, err, "has a 'when' without an edge from a final check");
    }
    for (int32_t i = 0; i < s->n_ops && !status; i++) status = check_gradient_checks(&c, i, err);
    free(c.lane_waits);
    free(c.checked_by);
    free(c.partials);
    free(c.final_check);
    free(c.seen);
    free(c.counted);
    return status;
}

enum ht_status ht_rule_control(const struct ht_schedule *s, int n_branches, struct ht_error *err)
{
    enum ht_status status = n_branches > 1 ? check_branches(s, err) : HT_OK;
    return status ? status : check_next_iteration(s, err);
}
