/*
 * A residency is a (tensor, space) that occurs in an effect or in the list of residents. Residencies are numbered by
 * sorting them once. Each keeps a list of its live instances, the latest first: the address of the bytes, and the
 * (iteration, op) that produced them.
 *
 *     residency 7    {iteration 3, op 12} --> {iteration 2, op 12}      mostly one, seldom two
 *
 * An op works on the latest instance that it or an op before it in the safe sequence produced. Every producer before it
 * has been granted its memory by then, since the op depends on it. A later producer may have been granted, too, when
 * lanes are issued ahead; so the latest instance of all may be the wrong one.
 */
#include "common/exec/run_slots.h"

#include "common/base/array.h"
#include "common/mem/arena.h"

#include <assert.h>
#include <stdlib.h>

enum { NONE = -1 };

struct instance {
    void *data;
    int64_t producer; /* key of the (iteration, op) that produced it; -1: a resident */
    int32_t older;    /* next instance of the residency, or of the unused list; or NONE */
};

struct ht_slots {
    const struct ht_schedule *s;
    struct ht_arena **arenas;
    int32_t *of_effect;   /* [n_effects] */
    int32_t *of_resident; /* [n_residents] */
    int32_t n_residencies, max_effects;
    int32_t *space;    /* [n_residencies] */
    bool *is_resident; /* [n_residencies]: lives across the iterations' boundary */
    int32_t *latest;   /* [n_residencies] instance, or NONE */
    struct instance *instances;
    size_t n_instances, instances_cap;
    int32_t unused;
};

struct mention {
    int32_t tensor, space;
    int32_t resident; /* index into residents, or -1 */
    int64_t effect;   /* index into effects, or -1 */
};

static int by_tensor_and_space(const void *va, const void *vb)
{
    const struct mention *a = va, *b = vb;
    if (a->tensor != b->tensor) return a->tensor < b->tensor ? -1 : 1;
    if (a->space != b->space) return a->space < b->space ? -1 : 1;
    return (a->resident < 0) - (b->resident < 0); /* a resident first: number_residencies looks at the first one */
}

static bool is_on(const struct ht_schedule *s, int32_t rank, int32_t node)
{
    return node < 0 || s->rank_node[rank] == node;
}

/* Lists all effects and residents of the node, sorted by residency. */
static struct mention *list_mentions(const struct ht_schedule *s, int32_t node, int64_t *n)
{
    int64_t n_effects = s->effects_begin[s->n_ops], at = 0;
    struct mention *p = HT_NEW_ARRAY(struct mention, n_effects + s->n_residents);
    for (int32_t op = 0; op < s->n_ops; op++) {
        if (!is_on(s, ht_op_rank(s, op), node)) continue;
        for (int64_t e = s->effects_begin[op]; e < s->effects_begin[op + 1]; e++) {
            int32_t space = ht_space(s, s->effects[e].tier, ht_op_rank(s, op));
            p[at++] = (struct mention){.tensor = s->effects[e].tensor, .space = space, .resident = -1, .effect = e};
        }
    }
    for (int32_t i = 0; i < s->n_residents; i++) {
        const struct ht_resident *r = &s->residents[i];
        if (!is_on(s, r->rank, node)) continue;
        int32_t space = ht_space(s, r->tier, r->rank);
        p[at++] = (struct mention){.tensor = r->tensor, .space = space, .resident = i, .effect = -1};
    }
    qsort(p, (size_t)at, sizeof(*p), by_tensor_and_space);
    *n = at;
    return p;
}

static void number_residencies(struct ht_slots *x, const struct mention *p, int64_t n)
{
    for (int64_t i = 0, end; i < n; i = end) {
        int32_t id = x->n_residencies++;
        for (end = i; end < n && p[end].tensor == p[i].tensor && p[end].space == p[i].space; end++) {
            if (p[end].resident >= 0)
                x->of_resident[p[end].resident] = id;
            else
                x->of_effect[p[end].effect] = id;
        }
        x->is_resident[id] = p[i].resident >= 0;
        x->space[id] = p[i].space;
        x->latest[id] = NONE;
    }
}

enum ht_status ht_slots_create(const struct ht_schedule *s, int32_t node, struct ht_arena **arenas,
                               struct ht_error *err, struct ht_slots **out)
{
    *out = NULL;
    int64_t n_effects = s->effects_begin[s->n_ops], n;
    struct ht_slots *x = HT_NEW(struct ht_slots);
    struct mention *mentions = list_mentions(s, node, &n);
    x->s = s;
    x->arenas = arenas;
    x->unused = NONE;
    x->of_effect = HT_NEW_ARRAY(int32_t, n_effects);
    x->of_resident = HT_NEW_ARRAY(int32_t, s->n_residents);
    for (int32_t i = 0; i < s->n_residents; i++) x->of_resident[i] = NONE;
    x->space = HT_NEW_ARRAY(int32_t, n);
    x->is_resident = HT_NEW_ARRAY(bool, n);
    x->latest = HT_NEW_ARRAY(int32_t, n);
    number_residencies(x, mentions, n);
    enum ht_status status = HT_OK;
    for (int64_t i = 0; i < n && !status; i++) {
        char name[32];
        if (arenas[mentions[i].space] || s->tensors[mentions[i].tensor].bytes == 0) continue;
        status = ht_fail(err, HT_FAILED, "schedule '%s' keeps tensors in %s, for which there is no arena", s->name,
                         ht_space_name(s, mentions[i].space, name, sizeof(name)));
    }
    free(mentions);
    for (int32_t op = 0; op < s->n_ops; op++) {
        int32_t n_op = (int32_t)(s->effects_begin[op + 1] - s->effects_begin[op]);
        if (n_op > x->max_effects) x->max_effects = n_op;
    }
    if (status)
        ht_slots_destroy(x);
    else
        *out = x;
    return status;
}

void ht_slots_destroy(struct ht_slots *x)
{
    if (!x) return;
    for (int32_t p = 0; p < x->n_residencies; p++)
        for (int32_t i = x->latest[p]; i != NONE; i = x->instances[i].older)
            ht_arena_free(x->arenas[x->space[p]], x->instances[i].data);
    free(x->of_effect);
    free(x->of_resident);
    free(x->space);
    free(x->is_resident);
    free(x->latest);
    free(x->instances);
    free(x);
}

/* ---- instances ---- */

static int64_t key_of(struct ht_inst inst)
{
    return (int64_t)inst.iteration << 32 | inst.op;
}

/* Returns the link to the residency's latest instance that was produced at `key` or before. */
static int32_t *link_at(struct ht_slots *x, int32_t residency, int64_t key)
{
    int32_t *link = &x->latest[residency];
    while (*link != NONE && x->instances[*link].producer > key) link = &x->instances[*link].older;
    return link;
}

static void add(struct ht_slots *x, int32_t residency, void *data, int64_t key)
{
    int32_t id = x->unused;
    if (id == NONE) {
        HT_PUSH(x->instances, x->n_instances, x->instances_cap, (struct instance){.older = NONE});
        id = (int32_t)x->n_instances - 1;
    } else {
        x->unused = x->instances[id].older;
    }
    int32_t *link = link_at(x, residency, key);
    x->instances[id] = (struct instance){.data = data, .producer = key, .older = *link};
    *link = id;
}

/* Returns the bytes that the op works on, or NULL. An instance that is not resident ends with its iteration. */
static void *find(const struct ht_slots *x, int32_t residency, struct ht_inst inst)
{
    int32_t id = *link_at((struct ht_slots *)x, residency, key_of(inst));
    if (id == NONE) return NULL;
    if (!x->is_resident[residency] && x->instances[id].producer >> 32 != inst.iteration) return NULL;
    return x->instances[id].data;
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

static enum ht_status not_live(const struct ht_slots *x, struct ht_inst inst, const struct ht_effect *f,
                               struct ht_error *err)
{
    char label[64];
    return ht_fail(err, HT_FAILED,
                   "schedule '%s': %s (op %d, iteration %d) uses tensor %d (%s) in %s memory, which is not live",
                   x->s->name, ht_op_label(x->s, inst.op, label, sizeof(label)), inst.op, inst.iteration, f->tensor,
                   ht_tensor_class_name(x->s->tensors[f->tensor].class), ht_tier_name(f->tier));
}

bool ht_slots_has_resident(const struct ht_slots *x, int32_t i)
{
    return x->of_resident[i] != NONE;
}

enum ht_status ht_slots_allocate_residents(struct ht_slots *x, struct ht_error *err)
{
    for (int32_t i = 0; i < x->s->n_residents; i++) {
        int32_t tensor = x->s->residents[i].tensor, residency = x->of_resident[i];
        if (residency == NONE) continue;
        int32_t space = x->space[residency];
        int64_t bytes = x->s->tensors[tensor].bytes;
        if (bytes == 0 || x->latest[residency] != NONE) continue;
        void *data = ht_arena_alloc(x->arenas[space], bytes, true);
        if (!data) return no_hole(x, tensor, space, "the residents", err);
        add(x, residency, data, -1);
    }
    return HT_OK;
}

void ht_slots_settle(struct ht_slots *x)
{
    for (int32_t p = 0; p < x->n_residencies; p++)
        if (x->latest[p] != NONE) {
            assert(x->is_resident[p] && x->instances[x->latest[p]].older == NONE);
            x->instances[x->latest[p]].producer = -1;
        }
}

struct ht_buffer ht_slots_resident(const struct ht_slots *x, int32_t i, int32_t *space)
{
    const struct ht_resident *r = &x->s->residents[i];
    int32_t residency = x->of_resident[i], latest = x->latest[residency];
    *space = x->space[residency];
    return (struct ht_buffer){.tensor = r->tensor,
                              .tier = (uint8_t)r->tier,
                              .flags = HT_UPDATE,
                              .data = latest == NONE ? NULL : x->instances[latest].data,
                              .bytes = x->s->tensors[r->tensor].bytes};
}

enum ht_status ht_slots_allocate(struct ht_slots *x, struct ht_inst inst, struct ht_error *err)
{
    const struct ht_schedule *s = x->s;
    for (int64_t e = s->effects_begin[inst.op]; e < s->effects_begin[inst.op + 1]; e++) {
        const struct ht_effect *f = &s->effects[e];
        int32_t residency = x->of_effect[e];
        int64_t bytes = s->tensors[f->tensor].bytes;
        if (!(f->flags & HT_PRODUCE) || bytes == 0) continue;
        /* Residents may outlive the iteration, so they are kept apart from what is freed at its end. */
        void *data = ht_arena_alloc(x->arenas[x->space[residency]], bytes, x->is_resident[residency]);
        char label[64];
        if (!data)
            return no_hole(x, f->tensor, x->space[residency], ht_op_label(s, inst.op, label, sizeof(label)), err);
        add(x, residency, data, key_of(inst));
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
        int64_t bytes = s->tensors[f->tensor].bytes;
        void *data = bytes ? find(x, x->of_effect[begin + i], inst) : NULL;
        if (!data && bytes) return not_live(x, inst, f, err);
        buffers[i] =
            (struct ht_buffer){.tensor = f->tensor, .tier = f->tier, .flags = f->flags, .data = data, .bytes = bytes};
    }
    return HT_OK;
}

void ht_slots_release(struct ht_slots *x, struct ht_inst inst)
{
    const struct ht_schedule *s = x->s;
    for (int64_t e = s->effects_begin[inst.op]; e < s->effects_begin[inst.op + 1]; e++) {
        int32_t residency = x->of_effect[e];
        if (!(s->effects[e].flags & HT_RELEASE) || s->tensors[s->effects[e].tensor].bytes == 0) continue;
        int32_t *link = link_at(x, residency, key_of(inst)), id = *link;
        assert(id != NONE);
        ht_arena_free(x->arenas[x->space[residency]], x->instances[id].data);
        *link = x->instances[id].older;
        x->instances[id] = (struct instance){.older = x->unused};
        x->unused = id;
    }
}

int32_t ht_slots_max_effects(const struct ht_slots *x)
{
    return x->max_effects;
}
