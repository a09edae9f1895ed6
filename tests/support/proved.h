/* Proves a schedule, and simulates it in exactly the proved memory. */
#ifndef HT_TESTS_SUPPORT_PROVED_H
#define HT_TESTS_SUPPORT_PROVED_H

#include "common/base/array.h"
#include "common/exec/sim.h"
#include "common/profile/profile.h"
#include "common/schedule/verify.h"

#include <check.h>
#include <stdlib.h>

/* Lowers every capacity to the safe sequence's need, and simulates with durations that differ by 40%, for each of n
   seeds from `seed` on. */
static inline void runs_in_proved_memory(struct ht_schedule *s, const struct ht_profile *costs, uint64_t seed, int n)
{
    struct ht_error err = {0};
    struct ht_proof v = {0};
    ck_assert_msg(ht_schedule_verify(s, &err, &v) == HT_OK, "%s, seed %d: %s", s->name, (int)seed, err.text);
    for (int32_t sp = 0; sp < ht_n_spaces(s); sp++) s->capacity_bytes[sp] = v.spaces[sp].peak_bytes;
    int64_t *cost_ns = HT_NEW_ARRAY(int64_t, s->n_ops);
    ck_assert_msg(ht_profile_costs(costs, s, cost_ns, &err) == HT_OK, "%s", err.text);
    for (int i = 0; i < n; i++) {
        struct ht_sim_options o = {.iterations = 3, .issue_ahead = 2, .jitter_percent = 40, .seed = seed + (uint64_t)i};
        struct ht_trace *t = NULL;
        ck_assert_msg(ht_sim_run(s, cost_ns, &o, &err, &t) == HT_OK, "%s, seed %d: %s", s->name, (int)o.seed, err.text);
        for (int32_t sp = 0; sp < ht_n_spaces(s); sp++) ck_assert_int_le(t->peak_bytes[sp], v.spaces[sp].peak_bytes);
        ht_trace_destroy(t);
    }
    free(cost_ns);
    ht_proof_free(&v);
}

#endif
