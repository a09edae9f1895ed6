/* Trainings in tests: the options that all have, and the check that memory was what had been predicted. */
#ifndef HT_TESTS_SUPPORT_TRAINING_H
#define HT_TESTS_SUPPORT_TRAINING_H

#include "common/base/array.h"
#include "harness/run/train.h"

#include <check.h>
#include <stdlib.h>

/* Returns options for `steps` steps of a request, on the CPU backend. */
static inline struct ht_options training_options(struct ht_scenario_request request, int64_t steps)
{
    request.training = true;
    struct ht_options o = ht_options_default();
    o.request = request;
    o.platform.disk = "/var/tmp"; /* for systems that keep tensors on disk */
    o.training.data = HT_SOURCE_DIR "/tests/data/kjv-200k.txt";
    o.training.steps = steps;
    o.training.init_seed = o.training.data_seed = 1;
    return o;
}

/* Asserts that each arena held as much as the trace says, and its replay, and no more than bound and capacity. */
static inline void check_memory(const struct ht_job *job, const struct ht_training *t)
{
    const struct ht_schedule *s = job->schedule;
    struct ht_error err = {0};
    int64_t *replayed = HT_NEW_ARRAY(int64_t, ht_n_spaces(s));
    ck_assert_msg(ht_trace_replay(t->trace, &err, replayed) == HT_OK, "%s", err.text);
    for (int32_t i = 0; i < ht_n_spaces(s); i++) {
        if (t->arena_peak_bytes[i] < 0) continue;
        ck_assert_int_eq(t->arena_peak_bytes[i], t->trace->peak_bytes[i]);
        ck_assert_int_eq(t->arena_peak_bytes[i], replayed[i]);
        ck_assert_int_le(t->arena_peak_bytes[i], job->bound_bytes[i]);
        ck_assert_int_le(t->arena_peak_bytes[i], s->capacity_bytes[i]);
    }
    free(replayed);
}

#endif
