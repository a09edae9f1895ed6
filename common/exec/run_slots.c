/*
 * A place is a (tensor, space) that occurs in an effect or in the list of residents. Places are numbered by sorting
 * them once; each gets one slot, or two used in turn by even and odd iterations when it is not resident at the
 * boundary:
 *
 *     slot of effect e in iteration k  =  first[e] + (k & twin[e])        twin: 0 or 1
 *
 * Running needs nothing but this sum and the array of pointers.
 */
#include "common/exec/run_slots.h"

#include "common/base/array.h"
#include "common/mem/arena.h"

#include <stdlib.h>

struct ht_slots {
    const struct ht_schedule *s;
    struct ht_arena **arenas;
    int32_t *first;         /* [n_effects] */
    uint8_t *twin;          /* [n_effects] */
    int32_t *space;         /* [n_effects] */
    int32_t *resident_slot; /* [n_residents] */
    void **data;            /* [n_slots]; NULL: not live */
    int32_t *slot_space;    /* [n_slots] */
    int32_t n_slots, max_effects;
};

struct place {
    int32_t tensor, space;
    int32_t resident; /* row of residents, or -1 */
    int64_t effect;   /* or -1 */
};

static int by_tensor_and_space(const void *va, const void *vb)
{
    const struct place *a = va, *b = vb;
    if (a->tensor != b->tensor) return a->tensor < b->tensor ? -1 : 1;
    if (a->space != b->space) return a->space < b->space ? -1 : 1;
    return (a->resident < 0) - (b->resident < 0); /* a resident first: it decides for its place */
}

/* Every mention of a place, sorted. */
static struct place *list_places(const struct ht_schedule *s, int64_t *n)
{
    int64_t n_effects = s->effects_begin[s->n_ops], at = 0;
    struct place *p = HT_NEW_ARRAY(struct place, n_effects + s->n_residents);
    for (int32_t op = 0; op < s->n_ops; op++) {
        for (int64_t e = s->effects_begin[op]; e < s->effects_begin[op + 1]; e++) {
            int32_t space = ht_space(s, s->effects[e].tier, ht_op_rank(s, op));
            p[at++] = (struct place){.tensor = s->effects[e].tensor, .space = space, .resident = -1, .effect = e};
        }
    }
    for (int32_t i = 0; i < s->n_residents; i++) {
        const struct ht_resident *r = &s->residents[i];
        int32_t space = ht_space(s, r->tier, r->rank);
        p[at++] = (struct place){.tensor = r->tensor, .space = space, .resident = i, .effect = -1};
    }
    qsort(p, (size_t)at, sizeof(*p), by_tensor_and_space);
    *n = at;
    return p;
}

static void number_slots(struct ht_slots *x, const struct place *p, int64_t n)
{
    for (int64_t i = 0, end; i < n; i = end) {
        bool resident = p[i].resident >= 0;
        for (end = i; end < n && p[end].tensor == p[i].tensor && p[end].space == p[i].space; end++) {
            if (p[end].resident >= 0) {
                x->resident_slot[p[end].resident] = x->n_slots;
            } else {
                x->first[p[end].effect] = x->n_slots;
                x->twin[p[end].effect] = !resident;
                x->space[p[end].effect] = p[i].space;
            }
        }
        x->slot_space[x->n_slots++] = p[i].space;
        if (!resident) x->slot_space[x->n_slots++] = p[i].space;
    }
}

enum ht_status ht_slots_create(const struct ht_schedule *s, struct ht_arena **arenas, struct ht_error *err,
                               struct ht_slots **out)
{
    *out = NULL;
    int64_t n_effects = s->effects_begin[s->n_ops], n;
    struct ht_slots *x = HT_NEW(struct ht_slots);
    struct place *places = list_places(s, &n);
    x->s = s;
    x->arenas = arenas;
    x->first = HT_NEW_ARRAY(int32_t, n_effects);
    x->twin = HT_NEW_ARRAY(uint8_t, n_effects);
    x->space = HT_NEW_ARRAY(int32_t, n_effects);
    x->resident_slot = HT_NEW_ARRAY(int32_t, s->n_residents);
    x->slot_space = HT_NEW_ARRAY(int32_t, 2 * n);
    x->data = HT_NEW_ARRAY(void *, 2 * n);
    number_slots(x, places, n);
    free(places);
    for (int32_t op = 0; op < s->n_ops; op++) {
        int32_t n_op = (int32_t)(s->effects_begin[op + 1] - s->effects_begin[op]);
        if (n_op > x->max_effects) x->max_effects = n_op;
    }
    for (int32_t i = 0; i < x->n_slots; i++) {
        char name[32];
        if (arenas[x->slot_space[i]]) continue;
        enum ht_status status =
            ht_fail(err, HT_FAILED, "schedule '%s' keeps tensors in %s, for which there is no arena", s->name,
                    ht_space_name(s, x->slot_space[i], name, sizeof(name)));
        ht_slots_destroy(x);
        return status;
    }
    *out = x;
    return HT_OK;
}

void ht_slots_destroy(struct ht_slots *x)
{
    if (!x) return;
    for (int32_t i = 0; i < x->n_slots; i++)
        if (x->data[i]) ht_arena_free(x->arenas[x->slot_space[i]], x->data[i]);
    free(x->first);
    free(x->twin);
    free(x->space);
    free(x->resident_slot);
    free(x->slot_space);
    free(x->data);
    free(x);
}

/* ---- allocation ---- */

static enum ht_status no_hole(const struct ht_slots *x, int32_t tensor, int32_t space, const char *who,
                              struct ht_error *err)
{
    char name[32], why[256];
    int64_t bytes = x->s->tensors[tensor].bytes;
    return ht_fail(err, HT_FAILED, "no room in %s for tensor %d (%s) of %s: %s",
                   ht_space_name(x->s, space, name, sizeof(name)), tensor,
                   ht_tensor_class_name(x->s->tensors[tensor].class), who,
                   ht_arena_explain(x->arenas[space], bytes, why, sizeof(why)));
}

static enum ht_status broken(const struct ht_slots *x, struct ht_inst inst, const struct ht_effect *f, const char *what,
                             struct ht_error *err)
{
    char title[64];
    return ht_fail(err, HT_FAILED, "schedule '%s': %s (op %d, iteration %d) %s tensor %d (%s) in %s memory", x->s->name,
                   ht_op_title(x->s, inst.op, title, sizeof(title)), inst.op, inst.iteration, what, f->tensor,
                   ht_tensor_class_name(x->s->tensors[f->tensor].class), ht_tier_name(f->tier));
}

enum ht_status ht_slots_place_residents(struct ht_slots *x, struct ht_error *err)
{
    for (int32_t i = 0; i < x->s->n_residents; i++) {
        int32_t tensor = x->s->residents[i].tensor, slot = x->resident_slot[i], space = x->slot_space[slot];
        int64_t bytes = x->s->tensors[tensor].bytes;
        if (bytes == 0 || x->data[slot]) continue;
        x->data[slot] = ht_arena_alloc(x->arenas[space], bytes, true);
        if (!x->data[slot]) return no_hole(x, tensor, space, "the residents", err);
    }
    return HT_OK;
}

struct ht_buffer ht_slots_resident(const struct ht_slots *x, int32_t i, int32_t *space)
{
    const struct ht_resident *r = &x->s->residents[i];
    *space = x->slot_space[x->resident_slot[i]];
    return (struct ht_buffer){.tensor = r->tensor,
                              .tier = (uint8_t)r->tier,
                              .flags = HT_UPDATE,
                              .data = x->data[x->resident_slot[i]],
                              .bytes = x->s->tensors[r->tensor].bytes};
}

/* What becomes resident, and so may outlive the iteration, keeps apart from what is gone at its end. */
static bool is_persistent(const struct ht_slots *x, int64_t effect)
{
    return !x->twin[effect];
}

enum ht_status ht_slots_allocate(struct ht_slots *x, struct ht_inst inst, struct ht_error *err)
{
    const struct ht_schedule *s = x->s;
    for (int64_t e = s->effects_begin[inst.op]; e < s->effects_begin[inst.op + 1]; e++) {
        const struct ht_effect *f = &s->effects[e];
        int64_t bytes = s->tensors[f->tensor].bytes;
        if (!(f->flags & HT_PRODUCE) || bytes == 0) continue;
        void **slot = &x->data[x->first[e] + (inst.iteration & x->twin[e])];
        if (*slot) return broken(x, inst, f, "produces the live", err);
        *slot = ht_arena_alloc(x->arenas[x->space[e]], bytes, is_persistent(x, e));
        char title[64];
        if (!*slot) return no_hole(x, f->tensor, x->space[e], ht_op_title(s, inst.op, title, sizeof(title)), err);
    }
    return HT_OK;
}

enum ht_status ht_slots_resolve(const struct ht_slots *x, struct ht_inst inst, struct ht_buffer *buffers, int32_t *n,
                                struct ht_error *err)
{
    const struct ht_schedule *s = x->s;
    int64_t begin = s->effects_begin[inst.op];
    *n = (int32_t)(s->effects_begin[inst.op + 1] - begin);
    for (int32_t i = 0; i < *n; i++) {
        const struct ht_effect *f = &s->effects[begin + i];
        void *data = x->data[x->first[begin + i] + (inst.iteration & x->twin[begin + i])];
        int64_t bytes = s->tensors[f->tensor].bytes;
        if (!data && bytes) return broken(x, inst, f, "uses what is not live:", err);
        buffers[i] =
            (struct ht_buffer){.tensor = f->tensor, .tier = f->tier, .flags = f->flags, .data = data, .bytes = bytes};
    }
    return HT_OK;
}

void ht_slots_release(struct ht_slots *x, struct ht_inst inst)
{
    const struct ht_schedule *s = x->s;
    for (int64_t e = s->effects_begin[inst.op]; e < s->effects_begin[inst.op + 1]; e++) {
        if (!(s->effects[e].flags & HT_RELEASE)) continue;
        void **slot = &x->data[x->first[e] + (inst.iteration & x->twin[e])];
        ht_arena_free(x->arenas[x->space[e]], *slot);
        *slot = NULL;
    }
}

int32_t ht_slots_max_effects(const struct ht_slots *x)
{
    return x->max_effects;
}
