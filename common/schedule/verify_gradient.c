/*
 * Gradients: what a step reads has every micro-batch of the iteration exactly once, wherever it was computed.
 *
 * Each place of a gradient has contents, a multiset of micro-batches. In id order
 *
 *     backward of (u, j)           PRODUCE: {j}    UPDATE: adds j
 *     accumulate                   the sum of what it reads and, with UPDATE, of what was there
 *     copy, message, all-gather    what was read
 *     reduce-scatter               the sum of what all members read and, with UPDATE, of what was there
 *     all-reduce                   the sum of what all members read or update
 *     optimizer step of u          wants all micro-batches of u once
 *
 * A replica that misses its all-reduce, a micro-batch that is added twice or not at all: each is seen here. The head's
 * backward pass adds to the gradient of a tied table: that is a contribution of its own. So are parts of a block, where
 * passes are split by sub-ops.
 *
 * Contents are kept as a count and a sum of random numbers, one for each contribution: multisets that differ have
 * different sums but for chance, one in 2^64. So the rule is linear in the effects.
 *
 * Rows about several units or none are not followed.
 */
#include "common/schedule/rules.h"

#include "common/base/array.h"

#include <stdlib.h>

struct contents {
    int64_t n;
    uint64_t sum;
};

struct walk {
    const struct ht_schedule *s;
    const struct ht_places *places;
    enum ht_when branch;
    struct contents *held; /* [places] */
    struct contents *want; /* [n_units] */
    struct contents *next; /* of a group's effects, before any of them is written */
    size_t next_cap;
};

static struct contents plus(struct contents a, struct contents b)
{
    return (struct contents){a.n + b.n, a.sum + b.sum};
}

static bool same(struct contents a, struct contents b)
{
    return a.n == b.n && a.sum == b.sum;
}

/* splitmix64 */
static uint64_t mixed(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* What a backward op adds to the gradient of a unit: of its own, or of another one's table. */
static struct contents contribution(const struct ht_label *l, bool own)
{
    return (struct contents){1, mixed((uint64_t)l->micro_batch << 33 | (uint64_t)l->sub_ops << 1 | own)};
}

/* The unit whose gradient the effect's row is, or -1. */
static int32_t unit_of(const struct ht_schedule *s, int64_t effect)
{
    const struct ht_tensor *t = &s->tensors[s->effects[effect].tensor];
    return t->class == HT_GRAD && t->label.n_units == 1 ? t->label.unit : -1;
}

static bool writes(const struct ht_effect *e)
{
    return e->flags & HT_UPDATE || (e->flags & HT_PRODUCE && !(e->flags & HT_RELEASE));
}

static bool is_about(const struct ht_label *l, int32_t unit)
{
    return unit >= l->unit && unit < l->unit + l->n_units;
}

/* All contributions that there are, once for each group. */
static void find_wanted(struct walk *w)
{
    const struct ht_schedule *s = w->s;
    for (int32_t i = 0; i < s->n_ops; i = ht_step_end(s, i)) {
        const struct ht_op *op = &s->ops[i];
        if (op->kind != HT_OP_BACKWARD || !ht_active(op, w->branch)) continue;
        for (int32_t u = op->label.unit; u < op->label.unit + op->label.n_units; u++)
            w->want[u] = plus(w->want[u], contribution(&op->label, true));
        for (int64_t e = s->effects_begin[i]; e < s->effects_begin[i + 1]; e++) {
            int32_t u = unit_of(s, e);
            if (u < 0 || !writes(&s->effects[e]) || is_about(&op->label, u)) continue;
            w->want[u] = plus(w->want[u], contribution(&op->label, false));
        }
    }
}

static struct contents *held_at(const struct walk *w, int64_t effect)
{
    return &w->held[w->places->of_effect[effect]];
}

/* The sum over ops [first, end) of what they read of the unit's gradient; with `one`, of the first row alone. Reading by
   UPDATE counts where `in_place`. `but`: an effect that is not meant. */
static struct contents sum_read(const struct walk *w, int32_t first, int32_t end, int32_t unit, bool in_place, bool one,
                                int64_t but)
{
    const struct ht_schedule *s = w->s;
    struct contents c = {0};
    for (int64_t e = s->effects_begin[first]; e < s->effects_begin[end]; e++) {
        unsigned flags = s->effects[e].flags;
        if (e == but || unit_of(s, e) != unit || !(flags & HT_NEED || (in_place && flags & HT_UPDATE))) continue;
        c = plus(c, *held_at(w, e));
        if (one) return c;
    }
    return c;
}

/* What the effect leaves. */
static struct contents written(const struct walk *w, int32_t first, int32_t end, int32_t i, int64_t e)
{
    const struct ht_schedule *s = w->s;
    const struct ht_op *op = &s->ops[i];
    int32_t unit = unit_of(s, e);
    bool update = s->effects[e].flags & HT_UPDATE;
    switch ((enum ht_op_kind)op->kind) {
    case HT_OP_BACKWARD: {
        struct contents c = contribution(&op->label, is_about(&op->label, unit));
        return update ? plus(c, *held_at(w, e)) : c;
    }
    case HT_OP_ACCUMULATE: {
        struct contents c = sum_read(w, i, i + 1, unit, false, false, e);
        return update ? plus(c, *held_at(w, e)) : c;
    }
    case HT_OP_REDUCE_SCATTER: {
        struct contents c = sum_read(w, first, end, unit, false, false, -1);
        return update ? plus(c, *held_at(w, e)) : c;
    }
    case HT_OP_ALL_REDUCE:
        return sum_read(w, first, end, unit, true, false, -1);
    case HT_OP_COPY: /* the row itself, in another tier; a chunk's copy moves several of a unit */
        for (int64_t from = s->effects_begin[i]; from < s->effects_begin[i + 1]; from++)
            if (from != e && s->effects[from].tensor == s->effects[e].tensor && s->effects[from].flags & HT_NEED)
                return *held_at(w, from);
        return (struct contents){0};
    case HT_OP_ALL_GATHER:
    case HT_OP_SEND:
    case HT_OP_RECEIVE:
        return sum_read(w, first, end, unit, false, true, -1);
    default:
        return *held_at(w, e);
    }
}

static enum ht_status check_step(const struct walk *w, int32_t i, struct ht_error *err)
{
    const struct ht_schedule *s = w->s;
    for (int64_t e = s->effects_begin[i]; e < s->effects_begin[i + 1]; e++) {
        int32_t u = unit_of(s, e);
        if (u < 0 || !(s->effects[e].flags & HT_NEED) || same(*held_at(w, e), w->want[u])) continue;
        if (held_at(w, e)->n == w->want[u].n)
            return ht_broken_op(s, i, err, "steps unit %d with a gradient that has a backward pass twice and lacks one%s", u,
                                ht_branch_words(s, w->branch));
        return ht_broken_op(s, i, err, "steps unit %d with the gradients of %lld backward passes; expected %lld%s", u,
                            (long long)held_at(w, e)->n, (long long)w->want[u].n, ht_branch_words(s, w->branch));
    }
    return HT_OK;
}

/* Groups are one step: all members read what was there before it. */
static enum ht_status check_group(struct walk *w, int32_t first, int32_t end, struct ht_error *err)
{
    const struct ht_schedule *s = w->s;
    enum ht_status status = HT_OK;
    int64_t begin = s->effects_begin[first];
    int32_t of_unit = -1;
    struct contents of = {0};
    if (!ht_active(&s->ops[first], w->branch)) return HT_OK;
    bool joint = end - first > 1 && s->ops[first].kind != HT_OP_BACKWARD && s->ops[first].kind != HT_OP_ACCUMULATE;
    HT_RESERVE(w->next, w->next_cap, (size_t)(s->effects_begin[end] - begin) + 1);
    for (int32_t i = first; i < end && !status; i++) {
        if (s->ops[i].kind == HT_OP_OPTIMIZER_STEP) status = check_step(w, i, err);
        for (int64_t e = s->effects_begin[i]; e < s->effects_begin[i + 1]; e++) {
            int32_t u = unit_of(s, e);
            if (u < 0 || !writes(&s->effects[e])) continue;
            bool adds = s->ops[i].kind == HT_OP_REDUCE_SCATTER && s->effects[e].flags & HT_UPDATE;
            if (!joint || adds || u != of_unit) of = written(w, first, end, i, e); /* else all members leave the same */
            of_unit = u;
            w->next[e - begin] = of;
        }
    }
    for (int64_t e = begin; of_unit >= 0 && e < s->effects_begin[end]; e++)
        if (unit_of(s, e) >= 0 && writes(&s->effects[e])) *held_at(w, e) = w->next[e - begin];
    return status;
}

enum ht_status ht_rule_gradients(const struct ht_schedule *s, const struct ht_places *places, struct ht_error *err)
{
    enum ht_status status = HT_OK;
    if (!s->n_units) return HT_OK; /* a fragment */
    for (int b = 0; b < ht_n_branches(s) && !status; b++) {
        struct walk w = {.s = s, .places = places, .branch = ht_branch(b)};
        w.held = HT_NEW_ARRAY(struct contents, places->n);
        w.want = HT_NEW_ARRAY(struct contents, s->n_units);
        find_wanted(&w);
        for (int32_t i = 0, end; i < s->n_ops && !status; i = end) {
            end = ht_step_end(s, i);
            status = check_group(&w, i, end, err);
        }
        free(w.held);
        free(w.want);
        free(w.next);
    }
    return status;
}
