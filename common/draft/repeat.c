#include "common/draft/repeat.h"

#include "common/base/array.h"
#include "common/schedule/build.h"

static bool same_label(const struct ht_label *a, const struct ht_label *b, int32_t micro_batch)
{
    return a->unit == b->unit && a->n_units == b->n_units && a->sub_ops == b->sub_ops && a->micro_batch == micro_batch;
}

/* Returns true if a row is to a micro-batch what another one is to its own. */
static bool is_row(const struct ht_schedule *s, int32_t row, const struct ht_tensor *of, int32_t micro_batch)
{
    if (row < 0 || row >= s->n_tensors) return false;
    const struct ht_tensor *t = &s->tensors[row];
    return t->class == of->class && t->rank == of->rank && t->bytes == of->bytes &&
           same_label(&t->label, &of->label, micro_batch);
}

static bool alike_uses(const struct ht_schedule *s, int32_t a, int32_t b)
{
    int64_t n = s->uses_begin[a + 1] - s->uses_begin[a];
    if (s->uses_begin[b + 1] - s->uses_begin[b] != n) return false;
    for (int64_t i = 0; i < n; i++) {
        const struct ht_use *x = &s->uses[s->uses_begin[a] + i], *y = &s->uses[s->uses_begin[b] + i];
        if (x->resource != y->resource || x->amount != y->amount) return false;
    }
    return true;
}

/* Returns true if the noted ops touch the same rows, but for their micro-batches. */
static bool alike_effects(const struct ht_schedule *s, const struct ht_repeat *r)
{
    const struct ht_effect *x = s->effects + s->effects_begin[r->op[0]], *y = s->effects + s->effects_begin[r->op[1]];
    int64_t n = s->effects_begin[r->op[0] + 1] - s->effects_begin[r->op[0]];
    int32_t micro_batch = s->ops[r->op[1]].label.micro_batch;
    if (s->effects_begin[r->op[1] + 1] - s->effects_begin[r->op[1]] != n) return false;
    for (int64_t i = 0; i < n; i++) {
        bool fixed = x[i].tensor == y[i].tensor && s->tensors[x[i].tensor].label.micro_batch < 0;
        bool scratch = x[i].tensor == r->scratch[0];
        if (x[i].tier != y[i].tier || x[i].flags != y[i].flags || scratch != (y[i].tensor == r->scratch[1]))
            return false;
        if (!fixed && !is_row(s, y[i].tensor, &s->tensors[x[i].tensor], micro_batch)) return false;
    }
    return true;
}

static bool alike(const struct ht_schedule *s, const struct ht_repeat *r)
{
    const struct ht_op *a = &s->ops[r->op[0]], *b = &s->ops[r->op[1]];
    return r->mb[1] == r->mb[0] + 1 && a->kind == b->kind && a->when == b->when && a->lane == b->lane &&
           a->work == b->work && a->priority == b->priority && (r->scratch[0] < 0) == (r->scratch[1] < 0) &&
           a->label.micro_batch >= 0 && same_label(&b->label, &a->label, a->label.micro_batch + 1) &&
           alike_uses(s, r->op[0], r->op[1]) && alike_effects(s, r);
}

/* Lists an op's effects for a micro-batch behind those of the last op. Returns false if a row is not where it should be. */
static bool list_effects(struct ht_schedule *s, const struct ht_repeat *r, int32_t by, int32_t micro_batch)
{
    int64_t end = s->effects_begin[s->n_ops], before = s->effects_begin[r->op[0]], begin = s->effects_begin[r->op[1]],
            n = s->effects_begin[r->op[1] + 1] - begin;
    HT_RESERVE(s->effects, s->effects_cap, (size_t)(end + n));
    for (int64_t i = 0; i < n; i++) {
        struct ht_effect e = s->effects[begin + i];
        int32_t step = e.tensor - s->effects[before + i].tensor, of = e.tensor;
        if (e.tensor == r->scratch[1])
            e.tensor = s->n_tensors; /* the row to be added */
        else if (step && !is_row(s, e.tensor += by * step, &s->tensors[of], micro_batch))
            return false;
        s->effects[end + i] = e;
    }
    return true;
}

static void add_scratch(struct ht_schedule *s, int32_t of, int32_t micro_batch)
{
    struct ht_tensor t = s->tensors[of];
    t.label.micro_batch = micro_batch;
    ht_add_tensor(s, t);
}

/* Appends a copy of an op, for which n effects are listed. */
static void add_copy(struct ht_schedule *s, int32_t of, int32_t micro_batch)
{
    struct ht_label label = s->ops[of].label;
    int64_t effects = s->effects_begin[s->n_ops], n = s->effects_begin[of + 1] - s->effects_begin[of];
    label.micro_batch = micro_batch;
    int32_t op = ht_add_op(s, (enum ht_op_kind)s->ops[of].kind, s->ops[of].lane, label, s->ops[of].work);
    s->ops[op].when = s->ops[of].when;
    s->ops[op].priority = s->ops[of].priority;
    ht_effects_end(s, effects + n);
    int64_t uses = s->uses_begin[op];
    n = s->uses_begin[of + 1] - s->uses_begin[of];
    HT_RESERVE(s->uses, s->uses_cap, (size_t)(uses + n));
    for (int64_t i = 0; i < n; i++) s->uses[uses + i] = s->uses[s->uses_begin[of] + i];
    s->uses_begin[op + 1] = uses + n;
}

bool ht_repeat_op(struct ht_draft *g, struct ht_repeat *r, int64_t key, int32_t mb)
{
    struct ht_schedule *s = g->schedule;
    if (!r || r->n < 2 || r->key != key) return false;
    if (!r->alike) r->alike = alike(s, r);
    int32_t micro_batch = ht_layout_micro_batch(g->layout, g->replica, mb);
    if (!r->alike || !list_effects(s, r, mb - r->mb[1], micro_batch)) return false;
    add_copy(s, r->op[1], micro_batch);
    if (r->scratch[1] >= 0) add_scratch(s, r->scratch[1], micro_batch);
    return true;
}

void ht_repeat_note(struct ht_draft *g, struct ht_repeat *r, int64_t key, int32_t mb, int32_t n_tensors)
{
    const struct ht_schedule *s = g->schedule;
    if (!r) return;
    if (r->key != key) r->n = 0;
    r->key = key;
    r->n = r->n ? 2 : 1;
    r->alike = false;
    r->op[0] = r->op[1], r->mb[0] = r->mb[1], r->scratch[0] = r->scratch[1];
    r->op[1] = s->n_ops - 1, r->mb[1] = mb, r->scratch[1] = s->n_tensors > n_tensors ? s->n_tensors - 1 : -1;
}
