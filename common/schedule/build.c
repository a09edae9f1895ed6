/* Appends ops. Every list is flat and grows by doubling; nothing is allocated per op. */
#include "common/schedule/build.h"

#include "common/base/array.h"
#include "common/schedule/names.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Rows of an op's list that are compared one by one; a longer list is looked up in an index. */
enum { FEW = 8 };

struct ht_builder *ht_builder_of(struct ht_schedule *s)
{
    if (!s->work_index) s->work_index = HT_NEW(struct ht_builder);
    return s->work_index;
}

void ht_builder_destroy(struct ht_builder *b)
{
    if (!b) return;
    free(b->slots);
    free(b->words);
    free(b->deps.where);
    free(b->prev.where);
    free(b->effects.where);
    free(b->lanes.where);
    free(b->marks);
    free(b);
}

void ht_builder_reserve(struct ht_schedule *s, struct ht_schedule *const *others, int32_t n)
{
    int64_t ops = 0, tensors = 0, deps = 0, prev = 0, effects = 0, uses = 0;
    for (int32_t i = 0; i < n; i++) {
        const struct ht_schedule *x = others[i];
        ops += x->n_ops;
        tensors += x->n_tensors;
        deps += x->deps_begin[x->n_ops];
        prev += x->prev_begin[x->n_ops];
        effects += x->effects_begin[x->n_ops];
        uses += x->uses_begin[x->n_ops];
    }
    HT_RESERVE(s->tensors, s->tensors_cap, tensors);
    HT_RESERVE(s->ops, s->ops_cap, ops);
    HT_RESERVE(s->deps, s->deps_cap, deps);
    HT_RESERVE(s->prev, s->prev_cap, prev);
    HT_RESERVE(s->effects, s->effects_cap, effects);
    HT_RESERVE(s->uses, s->uses_cap, uses);
    HT_RESERVE(s->deps_begin, s->deps_begin_cap, ops + 1);
    HT_RESERVE(s->prev_begin, s->prev_begin_cap, ops + 1);
    HT_RESERVE(s->effects_begin, s->effects_begin_cap, ops + 1);
    HT_RESERVE(s->uses_begin, s->uses_begin_cap, ops + 1);
}

void ht_builder_end(struct ht_schedule *s)
{
    struct ht_builder *b = ht_builder_of(s);
    struct ht_sparse *all[] = {&b->deps, &b->prev, &b->effects};
    for (int i = 0; i < 3; i++) {
        free(all[i]->where);
        *all[i] = (struct ht_sparse){0};
    }
}

int64_t ht_sparse_get(const struct ht_sparse *x, int64_t key)
{
    return (size_t)key < x->n ? x->where[key] : -1;
}

void ht_sparse_set(struct ht_sparse *x, int64_t key, int64_t position)
{
    if ((size_t)key >= x->n) {
        size_t n = x->n ? x->n : 64;
        while (n <= (size_t)key) n *= 2;
        x->where = ht_realloc(x->where, n * sizeof *x->where);
        memset(x->where + x->n, 0xff, (n - x->n) * sizeof *x->where);
        x->n = n;
    }
    x->where[key] = position;
}

int32_t ht_add_op(struct ht_schedule *s, enum ht_op_kind kind, int32_t lane, struct ht_label label, int32_t work)
{
    assert(s->n_ops < INT32_MAX);
    struct ht_op op = {
        .kind = (uint8_t)kind, .when = HT_ALWAYS, .lane = lane, .work = work, .match = -1, .label = label};
    HT_PUSH(s->ops, s->n_ops, s->ops_cap, op);
    size_t n = (size_t)s->n_ops + 1;
    HT_RESERVE(s->deps_begin, s->deps_begin_cap, n);
    HT_RESERVE(s->prev_begin, s->prev_begin_cap, n);
    HT_RESERVE(s->effects_begin, s->effects_begin_cap, n);
    HT_RESERVE(s->uses_begin, s->uses_begin_cap, n);
    s->deps_begin[n - 1] = s->deps_begin[n - 2];
    s->prev_begin[n - 1] = s->prev_begin[n - 2];
    s->effects_begin[n - 1] = s->effects_begin[n - 2];
    s->uses_begin[n - 1] = s->uses_begin[n - 2];
    return s->n_ops - 1;
}

static struct ht_op *last(struct ht_schedule *s)
{
    assert(s->n_ops > 0);
    return &s->ops[s->n_ops - 1];
}

void ht_op_name(struct ht_schedule *s, const char *fmt, ...)
{
    struct ht_op *op = last(s);
    va_list ap;
    char text[256];
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    ht_copy_name(op->name, sizeof op->name, text);
}

/* Writes a number >= 0 at `at`, as far as there is room up to `end`. Returns one past what it has written. */
static char *put_number(char *at, const char *end, int32_t number)
{
    char digits[12];
    int n = 0;
    do digits[n++] = (char)('0' + number % 10);
    while (number /= 10);
    while (n && at < end) *at++ = digits[--n];
    return at;
}

void ht_op_number(struct ht_schedule *s, const char *letters, int32_t number, int32_t micro_batch)
{
    char *name = last(s)->name, *at = name, *end = name + sizeof s->ops->name - 1;
    assert(number >= 0);
    memset(name, 0, sizeof s->ops->name);
    while (*letters && at < end) *at++ = *letters++;
    at = put_number(at, end, number);
    if (micro_batch < 0 || at == end) return;
    *at++ = '.';
    put_number(at, end, micro_batch);
}

/* Returns true if the entries [begin, end) of a list have an op. */
static bool contains(const int32_t *list, int64_t begin, int64_t end, int32_t op)
{
    for (int64_t i = begin; i < end; i++)
        if (list[i] == op) return true;
    return false;
}

/* Appends `op` to the last op's list (deps or prev) unless the list has it. */
static void add_edge(int32_t **list, int64_t *begin, size_t *cap, struct ht_sparse *seen, int32_t n_ops, int32_t op)
{
    int64_t first = begin[n_ops - 1], end = begin[n_ops];
    if (op < 0) return;
    if (end - first < FEW) {
        if (contains(*list, first, end, op)) return;
    } else {
        for (int64_t i = first; end - first == FEW && i < end; i++)
            if ((*list)[i] >= 0) ht_sparse_set(seen, (*list)[i], i); /* marks are in no index */
        int64_t at = ht_sparse_get(seen, op);
        if (at >= first && at < end && (*list)[at] == op) return;
        ht_sparse_set(seen, op, end);
    }
    HT_PUSH(*list, end, *cap, op);
    begin[n_ops] = end;
}

void ht_op_after(struct ht_schedule *s, int32_t op)
{
    last(s);
    assert(op >= -1); /* marks stand for ops of the previous iteration only */
    add_edge(&s->deps, s->deps_begin, &s->deps_cap, &ht_builder_of(s)->deps, s->n_ops, op);
}

void ht_op_after_prev(struct ht_schedule *s, int32_t op)
{
    last(s);
    if (op >= -1) {
        add_edge(&s->prev, s->prev_begin, &s->prev_cap, &ht_builder_of(s)->prev, s->n_ops, op);
        return;
    }
    assert(-2 - op < ht_builder_of(s)->n_marks);
    HT_PUSH(s->prev, s->prev_begin[s->n_ops], s->prev_cap, op);
}

int32_t ht_mark_create(struct ht_schedule *s)
{
    struct ht_builder *b = ht_builder_of(s);
    HT_PUSH(b->marks, b->n_marks, b->marks_cap, -1);
    return -1 - b->n_marks;
}

void ht_mark_set(struct ht_schedule *s, int32_t mark)
{
    last(s);
    assert(mark < -1 && -2 - mark < ht_builder_of(s)->n_marks);
    ht_builder_of(s)->marks[-2 - mark] = s->n_ops - 1;
}

void ht_marks_resolve(struct ht_schedule *s)
{
    struct ht_builder *b = ht_builder_of(s);
    int64_t read = 0, written = 0;
    if (!b->n_marks) return;
    for (int32_t i = 0; i < s->n_ops; i++) {
        int64_t begin = written;
        for (; read < s->prev_begin[i + 1]; read++) {
            int32_t op = s->prev[read];
            if (op < -1) op = b->marks[-2 - op];
            if (op >= 0 && !contains(s->prev, begin, written, op)) s->prev[written++] = op;
        }
        s->prev_begin[i + 1] = written;
    }
    b->n_marks = 0;
}

static int64_t effect_key(const struct ht_effect *e)
{
    return (int64_t)e->tensor * HT_N_TIERS + e->tier;
}

struct ht_effect *ht_find_effect(struct ht_schedule *s, int32_t tensor, enum ht_tier tier)
{
    struct ht_sparse *index = &ht_builder_of(s)->effects;
    int64_t first = s->effects_begin[s->n_ops - 1], end = s->effects_begin[s->n_ops], at = first;
    if (end - first <= FEW) {
        while (at < end && (s->effects[at].tensor != tensor || s->effects[at].tier != (uint8_t)tier)) at++;
        return at < end ? &s->effects[at] : NULL;
    }
    at = ht_sparse_get(index, (int64_t)tensor * HT_N_TIERS + (int64_t)tier);
    if (at < first || at >= end) return NULL;
    struct ht_effect *e = &s->effects[at];
    return e->tensor == tensor && e->tier == (uint8_t)tier ? e : NULL;
}

void ht_effects_end(struct ht_schedule *s, int64_t end)
{
    struct ht_sparse *index = &ht_builder_of(s)->effects;
    int64_t first = s->effects_begin[s->n_ops - 1], before = s->effects_begin[s->n_ops];
    s->effects_begin[s->n_ops] = end;
    if (end - first <= FEW) return;
    for (int64_t i = before - first <= FEW ? first : before; i < end; i++)
        ht_sparse_set(index, effect_key(&s->effects[i]), i);
}

void ht_op_effect(struct ht_schedule *s, int32_t tensor, enum ht_tier tier, unsigned flags)
{
    last(s);
    assert(tensor >= 0 && tensor < s->n_tensors && (int)tier >= 0 && tier < HT_N_TIERS);
    struct ht_effect *old = ht_find_effect(s, tensor, tier);
    if (old) {
        old->flags |= (uint8_t)flags;
        return;
    }
    int64_t end = s->effects_begin[s->n_ops];
    struct ht_effect effect = {.tensor = tensor, .tier = (uint8_t)tier, .flags = (uint8_t)flags};
    HT_PUSH(s->effects, end, s->effects_cap, effect);
    ht_effects_end(s, end);
}

void ht_op_use(struct ht_schedule *s, int32_t resource, int64_t amount)
{
    last(s);
    int64_t end = s->uses_begin[s->n_ops];
    for (int64_t i = s->uses_begin[s->n_ops - 1]; i < end; i++)
        if (s->uses[i].resource == resource) {
            s->uses[i].amount += amount;
            return;
        }
    struct ht_use use = {.resource = resource, .amount = amount};
    HT_PUSH(s->uses, end, s->uses_cap, use);
    s->uses_begin[s->n_ops] = end;
}

void ht_op_priority(struct ht_schedule *s, int32_t key)
{
    last(s)->priority = key;
}

void ht_op_when(struct ht_schedule *s, enum ht_when when)
{
    last(s)->when = (uint8_t)when;
}

void ht_op_match(struct ht_schedule *s, int32_t match)
{
    last(s)->match = match;
}

void ht_op_across(struct ht_schedule *s, int32_t part)
{
    last(s)->across = (int16_t)(part + 1);
}
