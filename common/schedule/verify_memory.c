/*
 * Memory: proves that the safe sequence (ops one at a time in id order) fits every space: its capacity, and the
 * method's limit. Describes a footprint in words.
 *
 * A walk per branch keeps the bytes that each space holds, by tensor class. The members of a group allocate together
 * before they start and release after they have ended. The peak of a space is the largest sum of held and asked bytes;
 * the first op whose sum exceeds the space is the OOM. On a device what the program takes (pools.h) has to fit as well.
 */
#include "common/schedule/rules.h"

#include "common/base/array.h"
#include "common/base/minmax.h"
#include "common/base/units.h"
#include "common/schedule/names.h"
#include "common/schedule/pools.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A space during the walk. */
struct level {
    int64_t held;                          /* what the current op or group asks for included */
    int64_t by_class[HT_N_TENSOR_CLASSES]; /* of held */
    int64_t asked;                         /* of held: by the current op or group, if `group` is its first op */
    int32_t group;
};

struct meter {
    const struct ht_schedule *s;
    struct level *levels;
    struct ht_pools *pools; /* NULL: the program takes what its tensors take */
    struct ht_footprint *f;
    int32_t *asked; /* spaces of which the current op or group asks for memory */
    size_t n_asked, asked_cap;
};

/* Returns what the program has taken of a space, of which tensors have so many bytes. */
static int64_t program_bytes(const struct meter *m, int32_t space, int64_t tensor_bytes)
{
    if (!m->pools || space >= m->s->n_ranks) return tensor_bytes;
    return ht_max(ht_pools_bytes(m->pools, space), tensor_bytes);
}

static void note_peak(struct ht_footprint *f, const struct level *l, int32_t op)
{
    if (l->held <= f->peak_bytes) return;
    f->peak_bytes = l->held;
    f->peak_op = op;
    memcpy(f->by_class, l->by_class, sizeof l->by_class);
}

/* Returns the level of an effect's space, and the effect's bytes and class. */
static inline struct level *level_of(struct meter *m, int32_t op, const struct ht_effect *e, int64_t *bytes, int *class)
{
    const struct ht_tensor *t = &m->s->tensors[e->tensor];
    *bytes = ht_tier_bytes((enum ht_tier)e->tier, t->bytes);
    *class = (int)t->class;
    return &m->levels[ht_space(m->s, (enum ht_tier)e->tier, ht_op_rank(m->s, op))];
}

/* Returns true if the program takes memory of pools for an effect. */
static bool is_in_pool(const struct meter *m, const struct ht_effect *e)
{
    return m->pools && e->tier == HT_DEVICE;
}

/* Notes that ops [op, end), or the residents (op -1), are the first that a space has no room for. */
static void note_oom(struct meter *m, int32_t space, int64_t program, int32_t op, int32_t end)
{
    const struct ht_schedule *s = m->s;
    struct ht_footprint *f = &m->f[space];
    const struct level *l = &m->levels[space];
    int64_t bytes;
    int class;
    if (!f->fits && f->first_oom_op <= op) return;
    f->oom_program_bytes = program;
    f->fits = false;
    f->first_oom_op = op;
    f->oom_needs_bytes = l->asked;
    f->oom_held_bytes = l->held - l->asked;
    memcpy(f->oom_held_by_class, l->by_class, sizeof l->by_class);
    for (int32_t i = op; i >= 0 && i < end; i++) /* less what is asked for */
        for (int64_t k = s->effects_begin[i]; k < s->effects_begin[i + 1]; k++)
            if (s->effects[k].flags & HT_PRODUCE && level_of(m, i, &s->effects[k], &bytes, &class) == l)
                f->oom_held_by_class[class] -= bytes;
}

/* Compares what a space holds, what ops [op, end) ask for included, with what there is. op -1: they are none. */
static void compare(struct meter *m, int32_t space, int32_t op, int32_t end)
{
    const struct level *l = &m->levels[space];
    int64_t program = program_bytes(m, space, l->held);
    note_peak(&m->f[space], l, op);
    m->f[space].program_bytes = ht_max(m->f[space].program_bytes, program);
    if (l->held > ht_space_bytes(m->s, space) || program > m->s->capacity_bytes[space])
        note_oom(m, space, program, op, end);
}

/* Holds what an effect of the group that begins with op `first` asks for. */
static void take(struct meter *m, int32_t first, int32_t op, int64_t k)
{
    const struct ht_effect *e = &m->s->effects[k];
    int64_t bytes;
    int class;
    struct level *l = level_of(m, op, e, &bytes, &class);
    if (l->group != first) {
        l->group = first;
        l->asked = 0;
        HT_PUSH(m->asked, m->n_asked, m->asked_cap, (int32_t)(l - m->levels));
    }
    l->asked += bytes;
    l->held += bytes;
    l->by_class[class] += bytes;
    if (is_in_pool(m, e)) ht_pools_take(m->pools, op, k);
}

/* Allocates all that ops [first, end) produce, at once. Notes new peaks and spaces that are exceeded. */
static void grant(struct meter *m, int32_t first, int32_t end)
{
    const struct ht_schedule *s = m->s;
    m->n_asked = 0;
    for (int32_t op = first; op < end; op++)
        for (int64_t k = s->effects_begin[op]; k < s->effects_begin[op + 1]; k++)
            if (s->effects[k].flags & HT_PRODUCE) take(m, first, op, k);
    for (size_t i = 0; i < m->n_asked; i++) {
        compare(m, m->asked[i], first, end);
        m->levels[m->asked[i]].group = -1;
    }
    for (int32_t op = first; op < end && m->pools; op++) ht_pools_granted(m->pools, op);
}

static void release(struct meter *m, int32_t first, int32_t end)
{
    const struct ht_schedule *s = m->s;
    int64_t bytes;
    int class;
    for (int32_t op = first; op < end; op++)
        for (int64_t k = s->effects_begin[op]; k < s->effects_begin[op + 1]; k++) {
            if (!(s->effects[k].flags & HT_RELEASE)) continue;
            struct level *l = level_of(m, op, &s->effects[k], &bytes, &class);
            l->held -= bytes;
            l->by_class[class] -= bytes;
            if (is_in_pool(m, &s->effects[k])) ht_pools_return(m->pools, op, k);
        }
}

int32_t ht_footprints_first_oom(const struct ht_footprint *f, int32_t n)
{
    int32_t first = -1;
    for (int32_t i = 0; i < n; i++)
        if (!f[i].fits && (first < 0 || f[i].first_oom_op < f[first].first_oom_op)) first = i;
    return first;
}

static void walk(struct meter *m, const struct ht_residencies *residencies, enum ht_when branch)
{
    const struct ht_schedule *s = m->s;
    int32_t n = ht_n_spaces(s);
    for (int32_t i = 0; i < n; i++) m->levels[i] = (struct level){.group = -1};
    for (int32_t i = 0; i < s->n_residents; i++) {
        const struct ht_resident *r = &s->residents[i];
        struct level *l = &m->levels[ht_space(s, r->tier, r->rank)];
        int64_t bytes = ht_resident_bytes(s, r);
        l->held += bytes;
        l->by_class[s->tensors[r->tensor].class] += bytes;
    }
    m->pools = residencies ? ht_pools_create(s, residencies) : NULL;
    for (int32_t i = 0; i < n; i++) compare(m, i, -1, -1);
    int iterations = m->pools ? 2 : 1; /* the second one finds the blocks that the first one has left */
    for (int k = 0; k < iterations && (k == 0 || ht_footprints_first_oom(m->f, n) < 0); k++)
        for (int32_t first = 0, end; first < s->n_ops; first = end) {
            end = ht_group_end(s, first);
            if (!ht_active(&s->ops[first], branch)) continue; /* a group has one `when` */
            grant(m, first, end);
            release(m, first, end);
        }
    ht_pools_destroy(m->pools);
}

enum ht_status ht_rule_memory(const struct ht_schedule *s, const struct ht_residencies *residencies, int n_branches,
                              struct ht_error *err, struct ht_footprint *footprints)
{
    int32_t n = ht_n_spaces(s);
    struct meter m = {.s = s, .levels = HT_NEW_ARRAY(struct level, n), .f = footprints};
    for (int32_t i = 0; i < n; i++)
        footprints[i] = (struct ht_footprint){.peak_op = -1, .fits = true, .first_oom_op = -1};
    for (int b = 0; b < n_branches; b++) walk(&m, residencies, ht_branch(b));
    free(m.levels);
    free(m.asked);
    int32_t first = ht_footprints_first_oom(footprints, n);
    if (first < 0) return HT_OK;
    char text[900];
    ht_footprint_describe(s, first, &footprints[first], text, sizeof text);
    return ht_fail_memory(err, ht_space_tier(s, first), "%s", text);
}

void ht_schedule_limit_devices(struct ht_schedule *s, int64_t beyond_bytes)
{
    struct ht_footprint *f = HT_NEW_ARRAY(struct ht_footprint, ht_n_spaces(s));
    for (int32_t r = 0; r < s->n_ranks; r++) s->limit_bytes[r] = INT64_MAX;
    ht_rule_memory(s, NULL, ht_n_branches(s), NULL,
                   f); /* tensors alone; that it does not fit a device is found again by the verifier */
    for (int32_t r = 0; r < s->n_ranks; r++) s->limit_bytes[r] = f[r].peak_bytes + beyond_bytes;
    free(f);
}

/* ---- descriptions ---- */

static const char *amount(int64_t bytes, char text[HT_QUANTITY_TEXT])
{
    return bytes == INT64_MAX ? "unlimited" : ht_format_quantity(HT_BYTES, (double)bytes, text);
}

/* Writes " (activations 21.4 GB, parameters 12 GB)": the largest class first, without those that hold nothing. */
static void describe_classes(const int64_t by_class[HT_N_TENSOR_CLASSES], char *buf, size_t n)
{
    bool listed[HT_N_TENSOR_CLASSES] = {false};
    char text[HT_QUANTITY_TEXT];
    size_t used = 0;
    buf[0] = 0;
    for (;;) {
        int best = -1;
        for (int c = 0; c < HT_N_TENSOR_CLASSES; c++)
            if (!listed[c] && by_class[c] > 0 && (best < 0 || by_class[c] > by_class[best])) best = c;
        if (best < 0 || used + 64 > n) break;
        listed[best] = true;
        used += (size_t)snprintf(buf + used, n - used, "%s%s %s", used ? ", " : " (",
                                 ht_tensor_class_descriptions[best], amount(by_class[best], text));
    }
    if (used) snprintf(buf + used, n - used, ")");
}

int64_t ht_footprint_short_bytes(const struct ht_schedule *s, int32_t space, const struct ht_footprint *f)
{
    int64_t tensors = f->peak_bytes - ht_space_bytes(s, space), program = f->program_bytes - s->capacity_bytes[space];
    return ht_max(ht_max(tensors, program), 0);
}

/* Writes "; beside tensors the program has 1.2 GB there, in free blocks of its streams and for communicators", or
   nothing if it has nothing. */
static void describe_program(int64_t program_bytes, int64_t tensor_bytes, char *buf, size_t n)
{
    char text[HT_QUANTITY_TEXT];
    buf[0] = 0;
    if (program_bytes <= tensor_bytes) return;
    snprintf(buf, n, "; beside tensors the program has %s there, in free blocks of its streams and for communicators",
             amount(program_bytes - tensor_bytes, text));
}

void ht_footprint_describe(const struct ht_schedule *s, int32_t space, const struct ht_footprint *f, char *buf,
                           size_t n)
{
    char where[32], words[200], classes[500];
    char peak[HT_QUANTITY_TEXT], limit[HT_QUANTITY_TEXT], held[HT_QUANTITY_TEXT], asked[HT_QUANTITY_TEXT];
    char lacking[HT_QUANTITY_TEXT], program[160];
    int64_t capacity = f->fits ? s->capacity_bytes[space] : ht_space_bytes(s, space);
    const char *whose = capacity < s->capacity_bytes[space] ? "the method's " : "";
    int32_t op = f->fits ? f->peak_op : f->first_oom_op;
    ht_space_name(s, space, where, sizeof where);
    if (op >= 0)
        ht_op_description(s, op, words, sizeof words);
    else
        snprintf(words, sizeof words, "the start of the iteration");
    describe_classes(f->fits ? f->by_class : f->oom_held_by_class, classes, sizeof classes);
    if (f->fits) {
        describe_program(f->program_bytes, f->peak_bytes, program, sizeof program);
        snprintf(buf, n, "%s: peak %s of %s at %s%s%s", where, amount(f->peak_bytes, peak), amount(capacity, limit),
                 words, classes, program);
        return;
    }
    size_t used = (size_t)snprintf(buf, n, "OOM at %s on %s: ", words, where);
    if (used >= n) return;
    if (op < 0)
        used += (size_t)snprintf(buf + used, n - used, "holds %s of %s%s%s", amount(f->oom_held_bytes, held), whose,
                                 amount(capacity, limit), classes);
    else
        used += (size_t)snprintf(buf + used, n - used, "needs %s, %s of %s%s held%s", amount(f->oom_needs_bytes, asked),
                                 amount(f->oom_held_bytes, held), whose, amount(capacity, limit), classes);
    if (used >= n) return;
    describe_program(f->oom_program_bytes, f->oom_held_bytes + f->oom_needs_bytes, program, sizeof program);
    snprintf(buf + used, n - used, "%s; the iteration needs %s, short by %s", program, amount(f->program_bytes, peak),
             amount(ht_footprint_short_bytes(s, space, f), lacking));
}
