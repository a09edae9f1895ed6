/* State of a schedule under construction beside its tables (schedule.work_index). Internal. */
#ifndef HT_SCHEDULE_BUILD_H
#define HT_SCHEDULE_BUILD_H

#include "common/schedule/schedule.h"

/*
 * A sparse index answers in constant time whether a row is already in the last op's list: where[key] is the position at
 * which key was last appended. It counts only if that position is in the last op's list and has this key, so nothing is
 * ever cleared. Short lists are searched instead, and are not in it.
 */
struct ht_sparse {
    int64_t *where;
    size_t n;
};

struct ht_builder {
    int32_t *slots; /* open addressing: row of works, or -1 */
    size_t n_slots; /* power of two */
    int64_t *words; /* [n_described, HT_WORK_WORDS]: ht_work_description of the works */
    int32_t n_described;
    size_t words_cap;
    int32_t recent[64]; /* rows of works, by kind and unit */
    struct ht_sparse deps, prev, effects;
    struct ht_sparse lanes; /* highest index given to (rank, lane kind) */
    int32_t *marks;         /* [n_marks] op that each stands for, or -1; mark i is the id -2 - i */
    int32_t n_marks;
    size_t marks_cap;
};

struct ht_builder *ht_builder_of(struct ht_schedule *s);
void ht_builder_destroy(struct ht_builder *b);

/* Sizes a schedule's tables for as many rows as n others have together. */
void ht_builder_reserve(struct ht_schedule *s, struct ht_schedule *const *others, int32_t n);

/* Frees the indices of the last op's lists. That op is complete; further ones may follow. */
void ht_builder_end(struct ht_schedule *s);

/* Returns the position stored for `key`, or -1. */
int64_t ht_sparse_get(const struct ht_sparse *x, int64_t key);
void ht_sparse_set(struct ht_sparse *x, int64_t key, int64_t position);

/* Returns the last op's effect on this tensor in this tier, or NULL. */
struct ht_effect *ht_find_effect(struct ht_schedule *s, int32_t tensor, enum ht_tier tier);
/* Makes the effects up to `end`, which are written behind those of the last op, the last op's. */
void ht_effects_end(struct ht_schedule *s, int64_t end);

/* Writes the fields of a work in a fixed order, for comparing and hashing. The custom name follows as four words, and
   then even_bytes, which the hash leaves out where it is 0. */
enum { HT_WORK_WORDS = 28 };
void ht_work_description(const struct ht_work *w, int64_t words[HT_WORK_WORDS]);

#endif
