/*
 * Residencies: the (tensor, space) pairs that a schedule touches, numbered 0, 1, ... in the order of first mention:
 * residents first, then effects in id order. The linker and the verifier work residency by residency. Internal.
 */
#ifndef HT_SCHEDULE_RESIDENCY_H
#define HT_SCHEDULE_RESIDENCY_H

#include "common/schedule/schedule.h"

struct ht_residency {
    int32_t tensor, space;
    bool resident; /* at the iteration's boundary */
    bool stays[2]; /* when an iteration ends, in each branch; ht_rule_hazards sets it */
};

struct ht_residencies {
    int64_t n;
    struct ht_residency *rows; /* [n] */
    int32_t *of_effect;        /* [effects] the effect's residency */
    int32_t *of_resident;      /* [n_residents] the resident's */
};

/* Numbers the residencies of a schedule, whose indices must all be in range (ht_rule_shape). */
void ht_residencies_init(struct ht_residencies *p, const struct ht_schedule *s);
void ht_residencies_free(struct ht_residencies *p);

/* Returns true if an op is active in a branch: its `when` is not the other one. */
static inline bool ht_active(const struct ht_op *op, enum ht_when branch)
{
    return op->when == HT_ALWAYS || op->when == branch;
}

/* Returns one past the last member of the group that begins with op i (i + 1 for an op without a group). */
static inline int32_t ht_group_end(const struct ht_schedule *s, int32_t i)
{
    int32_t end = i + 1, match = s->ops[i].match;
    while (match >= 0 && end < s->n_ops && s->ops[end].match == match) end++;
    return end;
}

/* Returns the first member of op i's group (i for an op without a group). */
static inline int32_t ht_group_begin(const struct ht_schedule *s, int32_t i)
{
    int32_t match = s->ops[i].match;
    while (match >= 0 && i > 0 && s->ops[i - 1].match == match) i--;
    return i;
}

/* Returns true if any op has a `when`. If not, there is only one branch. */
bool ht_has_branches(const struct ht_schedule *s);

#endif
