/* Errors of the verifier's rules. Internal. */
#ifndef HT_SCHEDULE_VIOLATION_H
#define HT_SCHEDULE_VIOLATION_H

#include "common/schedule/residency.h"

/* Fails with "schedule 'x': op 12 (B3): ...". Returns HT_FAILED. */
enum ht_status ht_broken_op(const struct ht_schedule *s, int32_t op, struct ht_error *err, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Fails with "schedule 'x': ...". Returns HT_FAILED. */
enum ht_status ht_broken(const struct ht_schedule *s, struct ht_error *err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* A phrase of an error's text: "op 7 (F3)", "tensor 5 (activation of unit 3, micro-batch 1)", or that "on device 0". */
struct ht_phrase {
    char text[160];
};
struct ht_phrase ht_phrase_op(const struct ht_schedule *s, int32_t op);
struct ht_phrase ht_phrase_tensor(const struct ht_schedule *s, int32_t tensor);
struct ht_phrase ht_phrase_residency(const struct ht_schedule *s, const struct ht_residency *residency);
/* Returns ", when ok" or ", when bad"; "" if the schedule has no branches. */
const char *ht_branch_description(const struct ht_schedule *s, enum ht_when branch);

#endif
