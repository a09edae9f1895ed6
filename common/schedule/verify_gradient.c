/*
 * Gradients: proves that every optimizer step reads a gradient that has each micro-batch of the iteration exactly once.
 *
 * Each residency of a gradient has contents: a multiset of backward passes. The walk follows them in id order:
 *
 *     start of the iteration       a resident has contents that no step accepts
 *     backward of (u, j)           {(u, j)}: backends overwrite. Two UPDATEs add (u, j): that of a front, and
 *                                  that of the embedding into a tied table, which has the head's part
 *     accumulate                   the sum of what it reads and, with UPDATE, of the contents before
 *     copy, message                the contents of the tensor at its source
 *     all-gather                   what all members read, if that is the same
 *     reduce-scatter               the sum of what all members read and, with UPDATE, of the contents before
 *     all-reduce                   the sum of what all members read or update
 *     optimizer step of u          reads a gradient of u with all backward passes of u once, and of no other unit
 *
 * So a replica that misses its all-reduce, a micro-batch that is added twice or never, and a sum that is not begun anew
 * each break the rule. The head's backward pass adds to the gradient of a tied table; that counts as a pass of its own.
 * Where a block's backward pass is two halves (common/model/halves.h), each counts. The front writes its part into the tensor
 * that holds what the back of the same (u, j) wrote, and nothing else.
 *
 * The gradients of the two halves of a block may be tensors of their own, whose labels say so. A pass adds to those of its
 * sub-ops, which are cut as it is; then neither half UPDATEs what the other has written.
 *
 * Tensor parallelism: part q of a gradient is a gradient of its own, which member q of a backward group writes.
 *
 * In a folded graph (common/schedule/fold.h) a copy's contents stand for those of its images, too, once a reduction has joined
 * the copies: then they are *joined*. A step reads joined contents; a second reduction would add them up once more.
 *
 * Contents are kept as a count and a sum of random numbers, one number for each pass. Two different multisets have the
 * same sum with a probability of 2^-64.
 *
 * Not followed: tensors of several units, of no unit, or of other sub-ops than a half's; units whose backward pass is a group that
 * writes undivided tensors, since each may be the sum over a part of the tokens; units whose gradient no backward pass
 * writes.
 */
#include "common/schedule/rules.h"

#include "common/base/array.h"
#include "common/base/rng.h"
#include "common/model/halves.h"
#include "common/schedule/fold.h"

#include <stdlib.h>

struct contents {
    int64_t n;
    uint64_t sum;
    bool joined; /* of a folded graph: has what all copies have; false if n is 0 */
};

struct walk {
    const struct ht_schedule *s;
    const struct ht_residencies *residencies;
    enum ht_when branch;
    const char *description; /* of the branch */
    int32_t parts;     /* largest number of parts of a gradient; part q of share h of unit u: (u * 3 + h) * parts + q */
    bool *followed;    /* [n_units] */
    bool tied;         /* another unit's backward pass writes the gradient of unit 0 */
    int32_t *gradient; /* [n_tensors] number of the gradient that it holds; -1: none that is followed */
    struct contents *held; /* [residencies] */
    struct contents *want; /* [n_units * 3 * parts] */
    struct contents *next; /* of a group's effects, before any of them is written */
    size_t next_cap;
};

static const struct contents none = {-1, 0, false}; /* contents that no step accepts */

static struct contents plus(struct contents a, struct contents b)
{
    if (a.n < 0 || b.n < 0 || (a.n && b.n && a.joined != b.joined)) return none;
    return (struct contents){a.n + b.n, a.sum + b.sum, a.joined || b.joined};
}

static bool same(struct contents a, struct contents b)
{
    return a.n == b.n && a.sum == b.sum && a.joined == b.joined;
}

/* Returns what a backward op adds to a gradient: to its own unit's, or to that of the tied table. */
static struct contents contribution(const struct ht_label *l, bool own)
{
    return (struct contents){1, ht_mix64((uint64_t)l->micro_batch << 33 | (uint64_t)l->sub_ops << 1 | own), false};
}

/* Names the parameters of a unit that a gradient is of: all, or those of the front or the back. */
enum { WHOLE, FRONT, BACK, N_SHARES };

static int32_t share_of(unsigned sub_ops)
{
    if (sub_ops == HT_ALL_SUB_OPS) return WHOLE;
    return ht_is_front(sub_ops) ? FRONT : ht_is_back(sub_ops) ? BACK : -1;
}

/* Returns true if a pass of some sub-ops adds to a share. */
static bool adds_to_share(unsigned sub_ops, int32_t share)
{
    return share == WHOLE || sub_ops >> (share == FRONT ? HT_SUB_NORM1 : HT_SUB_FC2) & 1;
}

/* Returns the unit whose gradient, a half's, or a part of it, a tensor holds; -1: none. */
static int32_t unit_of_gradient(const struct ht_tensor *t)
{
    return t->class == HT_GRAD && t->label.n_units == 1 && share_of(t->label.sub_ops) >= 0 ? t->label.unit : -1;
}

/* Returns the number of the gradient that the effect's tensor holds; -1: none that is followed. */
static int32_t gradient_of(const struct walk *w, int64_t effect)
{
    return w->gradient[w->s->effects[effect].tensor];
}

static int32_t unit_of(const struct walk *w, int32_t gradient)
{
    return gradient / w->parts / N_SHARES;
}

static bool writes(const struct ht_effect *e)
{
    return e->flags & HT_UPDATE || (e->flags & HT_PRODUCE && !(e->flags & HT_RELEASE));
}

static bool is_about(const struct ht_label *l, int32_t unit)
{
    return unit >= l->unit && unit < l->unit + l->n_units;
}

/* Returns true if the op writes the gradient by an effect before `end`. */
static bool has_written(const struct walk *w, int32_t op, int64_t end, int32_t gradient)
{
    for (int64_t e = w->s->effects_begin[op]; e < end; e++)
        if (gradient_of(w, e) == gradient && writes(&w->s->effects[e])) return true;
    return false;
}

/* Notes the units whose gradients a backward op writes. grouped: it is one of several parts; undivided: [n_units] units of
   which such an op writes a whole tensor. */
static void note_written(struct walk *w, int32_t i, bool grouped, bool *undivided)
{
    const struct ht_schedule *s = w->s;
    for (int64_t e = s->effects_begin[i]; e < s->effects_begin[i + 1]; e++) {
        const struct ht_tensor *t = &s->tensors[s->effects[e].tensor];
        int32_t unit = unit_of_gradient(t);
        if (unit < 0 || !(s->effects[e].flags & (HT_PRODUCE | HT_UPDATE))) continue;
        w->followed[unit] = true;
        undivided[unit] |= grouped && t->parts == 1;
        w->tied |= unit == 0 && s->ops[i].label.unit > 0;
    }
}

/* Finds the number of parts, the units whose gradients are followed, a tied table, and each tensor's gradient. */
static void find_followed(struct walk *w)
{
    const struct ht_schedule *s = w->s;
    bool *undivided = HT_NEW_ARRAY(bool, s->n_units);
    for (int32_t first = 0, end; first < s->n_ops; first = end) {
        end = ht_group_end(s, first);
        for (int32_t i = first; i < end; i++)
            if (s->ops[i].kind == HT_OP_BACKWARD && ht_active(&s->ops[i], w->branch))
                note_written(w, i, end - first > 1 || ht_joins_copies(s, first), undivided);
    }
    for (int32_t u = 0; u < s->n_units; u++) w->followed[u] &= !undivided[u];
    free(undivided);
    for (int32_t t = 0; t < s->n_tensors; t++)
        if (s->tensors[t].class == HT_GRAD && s->tensors[t].parts > w->parts) w->parts = s->tensors[t].parts;
    for (int32_t i = 0; i < s->n_tensors; i++) {
        const struct ht_tensor *t = &s->tensors[i];
        int32_t unit = unit_of_gradient(t);
        bool follows = unit >= 0 && w->followed[unit];
        w->gradient[i] = follows ? (unit * N_SHARES + share_of(t->label.sub_ops)) * w->parts + t->part : -1;
    }
}

/* Adds up what a backward op, of a part, adds to each gradient. */
static void want(struct walk *w, int32_t i, int32_t part)
{
    const struct ht_schedule *s = w->s;
    const struct ht_label *label = &s->ops[i].label;
    for (int32_t u = label->unit; u < label->unit + label->n_units && part < w->parts; u++)
        for (int32_t h = 0; h < N_SHARES; h++) {
            int32_t own = (u * N_SHARES + h) * w->parts + part;
            if (adds_to_share(label->sub_ops, h)) w->want[own] = plus(w->want[own], contribution(label, true));
        }
    for (int64_t e = s->effects_begin[i]; e < s->effects_begin[i + 1]; e++) {
        int32_t g = gradient_of(w, e);
        if (g < 0 || !writes(&s->effects[e]) || is_about(label, unit_of(w, g)) || has_written(w, i, e, g)) continue;
        w->want[g] = plus(w->want[g], contribution(label, false));
    }
}

/* Adds up all contributions to each gradient: the contents that a step must read. */
static void find_wanted(struct walk *w)
{
    const struct ht_schedule *s = w->s;
    for (int32_t first = 0, end; first < s->n_ops; first = end) {
        end = ht_group_end(s, first);
        for (int32_t i = first; i < end; i++)
            if (s->ops[i].kind == HT_OP_BACKWARD && ht_active(&s->ops[i], w->branch)) want(w, i, i - first);
    }
}

/* Returns what a reduction of contents over its members leaves. */
static struct contents reduced(const struct walk *w, int32_t first, struct contents c)
{
    if (!ht_joins_copies(w->s, first) || c.n <= 0) return c;
    if (c.joined) return none;
    c.joined = true;
    return c;
}

/* Returns what a gathering of contents that all members have leaves. Those of other copies are the same only if they are joined. */
static struct contents gathered(const struct walk *w, int32_t first, struct contents c)
{
    return ht_joins_copies(w->s, first) && c.n > 0 && !c.joined ? none : c;
}

static struct contents *held_at(const struct walk *w, int64_t effect)
{
    return &w->held[w->residencies->of_effect[effect]];
}

/* Adds up what ops [first, end) read of the gradient, except by effect `but`. UPDATE counts as reading if `in_place`
   is set. */
static struct contents sum_read(const struct walk *w, int32_t first, int32_t end, int32_t gradient, bool in_place,
                                int64_t but)
{
    const struct ht_schedule *s = w->s;
    struct contents c = {0};
    for (int64_t e = s->effects_begin[first]; e < s->effects_begin[end]; e++) {
        unsigned flags = s->effects[e].flags;
        if (e == but || gradient_of(w, e) != gradient || !(flags & HT_NEED || (in_place && flags & HT_UPDATE)))
            continue;
        c = plus(c, *held_at(w, e));
    }
    return c;
}

/* Returns what each of the ops reads of the gradient; `none` when they differ. */
static struct contents same_read(const struct walk *w, int32_t first, int32_t end, int32_t gradient)
{
    const struct ht_schedule *s = w->s;
    struct contents c = none;
    bool any = false;
    for (int64_t e = s->effects_begin[first]; e < s->effects_begin[end]; e++) {
        if (gradient_of(w, e) != gradient || !(s->effects[e].flags & HT_NEED)) continue;
        if (any && !same(c, *held_at(w, e))) return none;
        c = *held_at(w, e);
        any = true;
    }
    return c;
}

/* Returns what ops [first, end) read of the tensor that effect `to` writes; `none` if they do not read it. */
static struct contents moved(const struct walk *w, int32_t first, int32_t end, int64_t to)
{
    const struct ht_schedule *s = w->s;
    for (int64_t e = s->effects_begin[first]; e < s->effects_begin[end]; e++)
        if (e != to && s->effects[e].tensor == s->effects[to].tensor && s->effects[e].flags & HT_NEED)
            return *held_at(w, e);
    return none;
}

/* Returns true if a backward op adds to what a gradient holds, when it UPDATEs it. */
static bool adds(const struct walk *w, const struct ht_label *l, int32_t gradient)
{
    bool whole = gradient / w->parts % N_SHARES == 0;
    return (whole && ht_is_front(l->sub_ops)) || (w->tied && unit_of(w, gradient) == 0 && is_about(l, 0));
}

/* Returns the contents of a residency after effect e of op i, a member of group [first, end). */
static struct contents written(const struct walk *w, int32_t first, int32_t end, int32_t i, int64_t e)
{
    const struct ht_op *op = &w->s->ops[i];
    int32_t gradient = gradient_of(w, e);
    struct contents c, before = {0};
    if (w->s->effects[e].flags & HT_UPDATE) before = *held_at(w, e);
    switch ((enum ht_op_kind)op->kind) {
    case HT_OP_BACKWARD:
        c = contribution(&op->label, is_about(&op->label, unit_of(w, gradient)));
        return adds(w, &op->label, gradient) ? plus(c, before) : c;
    case HT_OP_ACCUMULATE:
        return plus(sum_read(w, i, i + 1, gradient, false, e), before);
    case HT_OP_REDUCE_SCATTER:
        return plus(reduced(w, first, sum_read(w, first, end, gradient, false, -1)), before);
    case HT_OP_ALL_REDUCE:
        return reduced(w, first, sum_read(w, first, end, gradient, true, -1));
    case HT_OP_ALL_GATHER:
        return gathered(w, first, same_read(w, first, end, gradient));
    case HT_OP_COPY:
        return moved(w, i, i + 1, e);
    case HT_OP_SEND:
    case HT_OP_RECEIVE:
        return moved(w, first, end, e);
    default:
        return *held_at(w, e);
    }
}

static enum ht_status check_step(const struct walk *w, int32_t i, struct ht_error *err)
{
    const struct ht_schedule *s = w->s;
    const struct ht_label *label = &s->ops[i].label;
    const char *branch = w->description;
    for (int32_t u = label->unit; u >= 0 && u < label->unit + label->n_units; u++) {
        bool reads = !w->followed[u];
        for (int64_t e = s->effects_begin[i]; e < s->effects_begin[i + 1] && !reads; e++)
            reads = unit_of_gradient(&s->tensors[s->effects[e].tensor]) == u && s->effects[e].flags & HT_NEED;
        if (!reads) return ht_broken_op(s, i, err, "steps unit %d without its gradient%s", u, branch);
    }
    for (int64_t e = s->effects_begin[i]; e < s->effects_begin[i + 1]; e++) {
        int32_t g = gradient_of(w, e), u = unit_of(w, g);
        if (g < 0 || !(s->effects[e].flags & HT_NEED)) continue;
        struct contents held = *held_at(w, e), want = w->want[g];
        want.joined = ht_replica_copies(s) > 1 && want.n > 0;
        if (!is_about(label, u)) return ht_broken_op(s, i, err, "reads the gradient of unit %d%s", u, branch);
        if (same(held, want)) continue;
        if (held.n == want.n && held.joined != want.joined)
            return ht_broken_op(s, i, err, "steps unit %d with a gradient that replicas have not added up%s", u,
                                branch);
        if (held.n == want.n)
            return ht_broken_op(s, i, err,
                                "steps unit %d with a gradient that has one backward pass twice and lacks another%s", u,
                                branch);
        if (held.n < 0)
            return ht_broken_op(s, i, err,
                                "steps unit %d with a gradient that is not a sum of this iteration's backward passes%s",
                                u, branch);
        return ht_broken_op(s, i, err, "steps unit %d with the gradients of %lld backward passes; expected %lld%s", u,
                            (long long)held.n, (long long)want.n, branch);
    }
    return HT_OK;
}

/* Checks that a half writes the gradient of its own sub-ops, or, of a front, that of all which its back has begun. */
static enum ht_status check_half(const struct walk *w, int32_t i, struct ht_error *err)
{
    const struct ht_schedule *s = w->s;
    struct ht_label back = s->ops[i].label;
    unsigned half = back.sub_ops;
    if (s->ops[i].kind != HT_OP_BACKWARD || !ht_is_half(half)) return HT_OK;
    back.sub_ops = HT_ALL_SUB_OPS & ~half;
    for (int64_t e = s->effects_begin[i]; e < s->effects_begin[i + 1]; e++) {
        int32_t g = gradient_of(w, e), share = g < 0 ? -1 : g / w->parts % N_SHARES;
        if (g < 0 || !writes(&s->effects[e])) continue;
        if (share != WHOLE && s->tensors[s->effects[e].tensor].label.sub_ops != half)
            return ht_broken_op(s, i, err, "writes %s, which is of other sub-ops%s",
                                ht_phrase_tensor(s, s->effects[e].tensor).text, w->description);
        if (share != WHOLE || !ht_is_front(half) || same(*held_at(w, e), contribution(&back, true))) continue;
        return ht_broken_op(s, i, err, "writes %s, which does not hold the back's gradient alone%s",
                            ht_phrase_tensor(s, s->effects[e].tensor).text, w->description);
    }
    return HT_OK;
}

/* Returns true if all members of a collective are left with equal gradients. */
static bool leaves_the_same(const struct ht_schedule *s, int32_t i, int64_t e)
{
    int kind = s->ops[i].kind;
    bool adds = kind == HT_OP_REDUCE_SCATTER && s->effects[e].flags & HT_UPDATE;
    return kind == HT_OP_ALL_REDUCE || kind == HT_OP_ALL_GATHER || (kind == HT_OP_REDUCE_SCATTER && !adds);
}

/* Returns true if ops of a kind leave contents as they are, and are not steps. */
static bool is_beside(int kind)
{
    return kind == HT_OP_FORWARD || kind == HT_OP_RECOMPUTE || kind == HT_OP_VALIDATE;
}

/* Follows a group, or one op: all members read the contents before it. */
static enum ht_status check_group(struct walk *w, int32_t first, int32_t end, struct ht_error *err)
{
    const struct ht_schedule *s = w->s;
    int64_t begin = s->effects_begin[first];
    int32_t of_gradient = -1;
    struct contents of = {0};
    if (!ht_active(&s->ops[first], w->branch) || is_beside(s->ops[first].kind)) return HT_OK;
    HT_RESERVE(w->next, w->next_cap, (size_t)(s->effects_begin[end] - begin) + 1);
    for (int32_t i = first; i < end; i++) {
        enum ht_status status = s->ops[i].kind == HT_OP_OPTIMIZER_STEP ? check_step(w, i, err) : check_half(w, i, err);
        if (status) return status;
        for (int64_t e = s->effects_begin[i]; e < s->effects_begin[i + 1]; e++) {
            int32_t g = gradient_of(w, e);
            if (g < 0 || !writes(&s->effects[e])) continue;
            if (g != of_gradient || !leaves_the_same(s, i, e)) of = written(w, first, end, i, e);
            of_gradient = g;
            w->next[e - begin] = of;
        }
    }
    for (int64_t e = begin; of_gradient >= 0 && e < s->effects_begin[end]; e++)
        if (gradient_of(w, e) >= 0 && writes(&s->effects[e])) *held_at(w, e) = w->next[e - begin];
    return HT_OK;
}

enum ht_status ht_rule_gradients(const struct ht_schedule *s, const struct ht_residencies *residencies, int n_branches,
                                 struct ht_error *err)
{
    enum ht_status status = HT_OK;
    if (!s->n_units) return HT_OK; /* a fragment */
    for (int b = 0; b < n_branches && !status; b++) {
        struct walk w = {.s = s, .residencies = residencies, .branch = ht_branch(b), .parts = 1};
        w.description = n_branches > 1 ? ht_branch_description(s, w.branch) : "";
        w.followed = HT_NEW_ARRAY(bool, s->n_units);
        w.gradient = HT_NEW_ARRAY(int32_t, s->n_tensors);
        w.held = HT_NEW_ARRAY(struct contents, residencies->n);
        for (int64_t p = 0; p < residencies->n; p++)
            if (residencies->rows[p].resident) w.held[p] = none;
        find_followed(&w);
        w.want = HT_NEW_ARRAY(struct contents, (int64_t)s->n_units * N_SHARES * w.parts);
        find_wanted(&w);
        for (int32_t i = 0, end; i < s->n_ops && !status; i = end) {
            end = ht_group_end(s, i);
            status = check_group(&w, i, end, err);
        }
        free(w.followed);
        free(w.gradient);
        free(w.held);
        free(w.want);
        free(w.next);
    }
    return status;
}
