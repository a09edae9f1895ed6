/* Helpers of LoHan's tests: its systems, and ops by letters and unit. */
#ifndef HT_TESTS_LOHAN_HELPERS_H
#define HT_TESTS_LOHAN_HELPERS_H

#include "common/base/array.h"
#include "lohan/lohan.h"
#include "tests/support/drawn_fates.h"
#include "tests/support/plans.h"
#include "tests/support/suite.h"

#include <stdlib.h>

static const struct ht_system *const lohans[] = {&lohan,        &lohan_halves, &lohan_naive,   &lohan_zero,
                                                 &lohan_cpuact, &lohan_ds,     &lohan_artifact};

/* Returns the op "SR3" of letters "SR" and unit 3. */
static inline int32_t op_of(const struct ht_schedule *s, const char *letters, int32_t unit)
{
    char name[16];
    snprintf(name, sizeof name, "%s%d", letters, (int)unit);
    return op_named(s, name);
}

static inline const struct ht_trace_event *event_of(const struct ht_trace *t, int32_t iteration, const char *letters,
                                                    int32_t unit)
{
    return &t->events[(int64_t)iteration * t->schedule->n_ops + op_of(t->schedule, letters, unit)];
}

/* Computes the bytes of main memory that a verified schedule takes. */
static inline int64_t host_bytes(const struct ht_schedule *s)
{
    struct ht_error err = {0};
    struct ht_proof proof;
    ck_assert_msg(ht_schedule_verify(s, &err, &proof) == HT_OK, "%s", err.text);
    int64_t peak = proof.spaces[ht_space(s, HT_HOST, 0)].peak_bytes;
    ht_proof_free(&proof);
    return peak;
}

#endif
