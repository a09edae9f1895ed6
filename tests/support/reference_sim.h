/*
 * A second simulator, slow and obvious: at every instant it looks at every lane and every op, decides memory by its
 * definition and shares resources by filling all flows at once in 128-bit arithmetic. It shares no code with
 * common/exec.
 */
#ifndef TESTS_SUPPORT_REFERENCE_SIM_H
#define TESTS_SUPPORT_REFERENCE_SIM_H

#include "common/exec/sim.h"

enum reference_answer { REFERENCE_DONE, REFERENCE_STALLED, REFERENCE_OOM };

struct reference_result {
    enum reference_answer answer;
    struct ht_trace_event *events; /* [iterations * n_ops] */
    int64_t *peak_bytes;           /* [ht_n_spaces] */
    int64_t end_ns;
};

struct reference_result reference_run(const struct ht_schedule *s, const int64_t *cost_ns,
                                      const struct ht_sim_options *options);
void reference_free(struct reference_result *r);

#endif
