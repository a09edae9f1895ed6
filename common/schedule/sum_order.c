#include "common/schedule/sum_order.h"

#include "common/base/array.h"
#include "common/base/rng.h"
#include "common/model/halves.h"
#include "common/schedule/apart.h"
#include "common/schedule/residency.h"

#include <stdlib.h>

/* A term or a sum. 0: nothing, to which adding adds nothing. */
typedef uint64_t expression;

/* A step: the sum that it adds to the parameters of a unit, or of one half of a unit whose halves are apart. */
struct step {
    int32_t unit;
    unsigned half; /* else 0 */
    expression sum;
};

struct walk {
    const struct ht_schedule *s;
    const struct ht_model *model;
    const struct ht_numerics *numerics;
    int64_t batch;
    bool has_sums;
    struct ht_residencies residencies;
    expression *held; /* [residencies] */
    expression *next; /* of a group's effects, before any of them is written */
    size_t next_cap;
    const bool *apart; /* [n_units], ht_halves_apart */
    struct step *steps;
    size_t n_steps, steps_cap;
};

/* ---- expressions ------------------------------------------------------------------------------------------------ */

/* Returns a + b, which is b + a. */
static expression plus(expression a, expression b)
{
    if (!a || !b) return a + b;
    return a < b ? ht_random(a, b) : ht_random(b, a);
}

/* Returns a sum that is rounded to a type; the parts of a sum of FP32 have been already. */
static expression rounded(expression sum, enum ht_dtype type)
{
    return type == HT_F32 ? sum : ht_mix64(sum + (uint64_t)type);
}

/* Returns the term of a backward pass: of the unit itself, or the head's for a tied table. */
static expression term(const struct walk *w, const struct ht_label *l, int32_t parts, bool own)
{
    int64_t each = w->batch / w->s->n_micro_batches;
    struct ht_slice at = {l->micro_batch * each, each};
    if (w->s->slices) at = w->s->slices[l->micro_batch];
    return ht_random(ht_random((uint64_t)at.first, (uint64_t)at.count), (uint64_t)parts << 1 | own);
}

/* Returns what becomes of a table to which the embedding's pass adds one token after another. */
static expression with_tokens(expression table, expression tokens)
{
    return table ? ht_random(ht_mix64(table), tokens) : tokens;
}

/* ---- ops -------------------------------------------------------------------------------------------------------- */

/* Returns the unit whose gradient, a half's, or a part of it, the effect's tensor holds; -1: none. */
static int32_t gradient_of(const struct walk *w, int64_t effect)
{
    const struct ht_tensor *t = &w->s->tensors[w->s->effects[effect].tensor];
    bool whole = t->label.sub_ops == HT_ALL_SUB_OPS || ht_is_half(t->label.sub_ops);
    return t->class == HT_GRAD && t->label.n_units == 1 && whole ? t->label.unit : -1;
}

static expression *held_at(const struct walk *w, int64_t effect)
{
    return &w->held[w->residencies.of_effect[effect]];
}

static expression after_backward(const struct walk *w, int32_t op, int64_t effect, int32_t unit)
{
    const struct ht_effect *e = &w->s->effects[effect];
    const struct ht_label *l = &w->s->ops[op].label;
    int32_t parts = w->s->tensors[e->tensor].parts, end = l->unit + l->n_units;
    expression before = e->flags & HT_UPDATE ? *held_at(w, effect) : 0;
    bool whole = w->s->tensors[e->tensor].label.sub_ops == HT_ALL_SUB_OPS;
    if (whole && ht_is_front(l->sub_ops)) return before; /* other elements of what the back has begun */
    if (unit < l->unit || unit >= end) return term(w, l, parts, false);
    if (unit == 0 && w->model->tied && end == ht_model_units(w->model)) before = term(w, l, parts, false);
    return with_tokens(before, term(w, l, parts, true));
}

/* Returns the sum after an accumulation, which adds one gradient after another. */
static expression accumulated(const struct walk *w, int32_t op, int64_t effect, int32_t unit)
{
    expression sum = *held_at(w, effect);
    for (int64_t e = w->s->effects_begin[op]; e < w->s->effects_begin[op + 1]; e++)
        if (e != effect && gradient_of(w, e) == unit && w->s->effects[e].flags & HT_NEED)
            sum = rounded(plus(sum, *held_at(w, e)), w->numerics->accumulate);
    return sum;
}

/* Returns the sum over the members of a group, in their order, of the gradients that they have with one of the flags;
   it is rounded once. */
static expression reduced(const struct walk *w, int32_t first, int32_t end, int32_t unit, unsigned flags)
{
    const struct ht_schedule *s = w->s;
    enum ht_dtype type = HT_F32;
    expression sum = 0;
    int32_t n = 0;
    for (int64_t e = s->effects_begin[first]; e < s->effects_begin[end]; e++) {
        const struct ht_tensor *t = &s->tensors[s->effects[e].tensor];
        if (gradient_of(w, e) != unit || !(s->effects[e].flags & flags)) continue;
        type = t->label.micro_batch < 0 && w->has_sums ? w->numerics->accumulate : w->numerics->grad;
        sum = plus(sum, *held_at(w, e));
        n++;
    }
    return n > 1 ? rounded(sum, type) : sum;
}

/* Returns what a group reads of the tensor that an effect writes. */
static expression moved(const struct walk *w, int32_t first, int32_t end, int64_t to)
{
    const struct ht_schedule *s = w->s;
    for (int64_t e = s->effects_begin[first]; e < s->effects_begin[end]; e++)
        if (e != to && s->effects[e].tensor == s->effects[to].tensor && s->effects[e].flags & HT_NEED)
            return *held_at(w, e);
    return 0;
}

/* Returns the gradient after effect e of op i, a member of group [first, end). */
static expression written(const struct walk *w, int32_t first, int32_t end, int32_t i, int64_t e, int32_t unit)
{
    switch ((enum ht_op_kind)w->s->ops[i].kind) {
    case HT_OP_BACKWARD:
        return after_backward(w, i, e, unit);
    case HT_OP_ACCUMULATE:
        return accumulated(w, i, e, unit);
    case HT_OP_REDUCE_SCATTER:
        return reduced(w, first, end, unit, HT_NEED);
    case HT_OP_ALL_REDUCE:
        return reduced(w, first, end, unit, HT_UPDATE);
    case HT_OP_COPY:
        return moved(w, i, i + 1, e);
    case HT_OP_SEND:
    case HT_OP_RECEIVE:
    case HT_OP_ALL_GATHER:
        return moved(w, first, end, e);
    default:
        return *held_at(w, e);
    }
}

static void follow_group(struct walk *w, int32_t first, int32_t end)
{
    const struct ht_schedule *s = w->s;
    int64_t begin = s->effects_begin[first], last = s->effects_begin[end];
    HT_RESERVE(w->next, w->next_cap, (size_t)(last - begin) + 1);
    for (int32_t i = first; i < end; i++)
        for (int64_t e = s->effects_begin[i]; e < s->effects_begin[i + 1]; e++) {
            int32_t unit = gradient_of(w, e);
            bool writes = s->effects[e].flags & (HT_PRODUCE | HT_UPDATE);
            if (unit < 0) continue;
            w->next[e - begin] = writes ? written(w, first, end, i, e, unit) : *held_at(w, e);
            if (s->ops[i].kind != HT_OP_OPTIMIZER_STEP || !(s->effects[e].flags & HT_NEED)) continue;
            unsigned half = ht_apart_half(w->apart, &s->tensors[s->effects[e].tensor]);
            struct step step = {unit, half, *held_at(w, e)};
            HT_PUSH(w->steps, w->n_steps, w->steps_cap, step);
        }
    for (int64_t e = begin; e < last; e++)
        if (gradient_of(w, e) >= 0) *held_at(w, e) = w->next[e - begin];
}

/* ---- orders ----------------------------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Returns one number for a set: replicas and shards of a unit have the same members. */
static uint64_t number_of_set(uint64_t *members, size_t n)
{
    uint64_t number = 0;
    if (n) qsort(members, n, sizeof(*members), by_value);
    for (size_t i = 0; i < n; i++)
        if (!i || members[i] != members[i - 1]) number = ht_random(number, members[i]);
    return number;
}

static int by_unit(const void *a, const void *b)
{
    const struct step *x = a, *y = b;
    if (x->unit != y->unit) return x->unit < y->unit ? -1 : 1;
    if (x->half != y->half) return x->half < y->half ? -1 : 1;
    return (x->sum > y->sum) - (x->sum < y->sum);
}

/* Sorts steps by unit, half and sum, and leaves one of equal ones. Returns how many are left. */
static size_t distinct(struct step *steps, size_t n)
{
    size_t left = 0;
    if (n) qsort(steps, n, sizeof(*steps), by_unit);
    for (size_t i = 0; i < n; i++)
        if (!left || by_unit(&steps[left - 1], &steps[i]) != 0) steps[left++] = steps[i];
    return left;
}

/* Returns true if both halves of the unit with which distinct steps begin have the same sums. Each element is then
   added up as in a block whose halves are together, however many replicas either half has. */
static bool halves_agree(const struct step *steps, size_t n)
{
    size_t front = 0, both;
    while (front < n && steps[front].unit == steps->unit && steps[front].half == steps->half) front++;
    for (both = front; both < n && steps[both].unit == steps->unit; both++)
        if (both - front >= front || steps[both].sum != steps[both - front].sum) return false;
    return both == 2 * front;
}

/* Returns the number of all steps. Halves whose sums differ count by themselves, since it matters which of them has
   which. */
static uint64_t number_of_steps(struct step *steps, size_t n)
{
    uint64_t *members = HT_NEW_ARRAY(uint64_t, n);
    bool agree = false;
    n = distinct(steps, n);
    for (size_t i = 0; i < n; i++) {
        if (!i || steps[i].unit != steps[i - 1].unit) agree = halves_agree(steps + i, n - i);
        uint64_t half = agree ? 0 : steps[i].half;
        members[i] = ht_random(half << 32 | (uint64_t)steps[i].unit, steps[i].sum);
    }
    uint64_t number = number_of_set(members, n);
    free(members);
    return number;
}

uint64_t ht_schedule_sum_order(const struct ht_schedule *s, const struct ht_model *model,
                               const struct ht_numerics *numerics, int64_t batch)
{
    bool *apart = ht_halves_apart(s);
    struct walk w = {.s = s, .model = model, .numerics = numerics, .batch = batch, .has_sums = ht_schedule_has_sums(s)};
    w.apart = apart;
    ht_residencies_init(&w.residencies, s);
    w.held = HT_NEW_ARRAY(expression, w.residencies.n);
    for (int32_t i = 0, end; i < s->n_ops; i = end) {
        end = ht_group_end(s, i);
        if (ht_active(&s->ops[i], HT_WHEN_OK)) follow_group(&w, i, end);
    }
    uint64_t order = number_of_steps(w.steps, w.n_steps);
    ht_residencies_free(&w.residencies);
    free(w.held);
    free(w.next);
    free(w.steps);
    free(apart);
    return order;
}

uint64_t ht_schedule_norm_order(const struct ht_schedule *s)
{
    bool *apart = ht_halves_apart(s);
    uint64_t *checked = NULL;
    size_t n = 0, cap = 0;
    for (int32_t op = 0; op < s->n_ops; op++)
        for (int64_t e = s->effects_begin[op]; e < s->effects_begin[op + 1]; e++) {
            const struct ht_tensor *t = &s->tensors[s->effects[e].tensor];
            if (s->ops[op].kind != HT_OP_VALIDATE || t->class != HT_GRAD) continue;
            uint64_t where = ht_random((uint64_t)t->label.unit, (uint64_t)t->parts << 32 | (uint64_t)t->part);
            uint64_t cut = t->sharded ? ht_random((uint64_t)t->shard_begin, (uint64_t)t->shard_end) : 0;
            unsigned half = ht_apart_half(apart, t);
            if (half && t->parts > 1) where = ht_random(where, half); /* all parts of a front come before its back's */
            HT_PUSH(checked, n, cap, ht_random(where, cut));
        }
    uint64_t order = number_of_set(checked, n);
    free(checked);
    free(apart);
    return order;
}

bool ht_schedule_has_sums(const struct ht_schedule *s)
{
    for (int32_t op = 0; op < s->n_ops; op++) {
        const struct ht_effect *begin = s->effects + s->effects_begin[op], *end = s->effects + s->effects_begin[op + 1];
        if (s->ops[op].kind != HT_OP_ACCUMULATE) continue;
        for (const struct ht_effect *sum = begin; sum < end; sum++)
            for (const struct ht_effect *x = begin; x < end && sum->flags & HT_UPDATE; x++)
                if (x->flags & HT_NEED && s->tensors[x->tensor].rank == s->tensors[sum->tensor].rank) return true;
    }
    return false;
}
