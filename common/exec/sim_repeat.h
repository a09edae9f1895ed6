/*
 * Finds out that a simulation repeats itself: then all further iterations take as long as the last one.
 *
 * The clock's rules are deterministic. So if everything that they read is the same at two moments, but for a shift of the time and of
 * the iterations' numbers, then what follows is the same, with the same shift. The moments compared are those when an iteration k has
 * ended and another begun, E_k (E_{-1} = 0). What the rules read then:
 *
 *     of each op of the two open iterations   dependencies that are left, and whether it waits, is issued, runs, has ended
 *     of each lane                            what runs, and when it ends
 *     of each flow                            work left, rate, speed
 *
 * Memory follows from that: a space holds the residents, and what the granted ops of open iterations have made and not yet freed. If
 * the state at E_k is that at E_{k-1}, E_{j} = E_k + (j - k) (E_k - E_{k-1}) for k < j <= K - 2, of K iterations: while iteration j
 * runs, iteration j + 1 does, and no other opens before E_j. The last one runs alone at its end, and is not foretold.
 *
 * A trace of K iterations needs all events. Iteration k + 2 opens after the state at E_{k-1} was taken, so all of its events recur:
 * those of iteration j are its own, j - k - 2 periods later, for k + 2 <= j <= K - 2. The last iteration ends in a run of K as it
 * does in one of k + 4, where it is the one after k + 2, too. So a trace's run is cut down to k + 4 iterations (ht_core_cut), and
 * the others are written from iteration k + 2. Grants and finishes recur in their order: their numbers move on by as many as an
 * iteration has.
 */
#ifndef HT_EXEC_SIM_REPEAT_H
#define HT_EXEC_SIM_REPEAT_H

#include "common/exec/core.h"
#include "common/exec/flow.h"
#include "common/exec/sim_ends.h"
#include "common/trace/trace.h"

struct ht_sim_repeat {
    char *now, *before; /* states: at the last end of an iteration, and at the one before */
    size_t core_bytes, bytes;
    int64_t at_ns; /* of `before` */
    int32_t ended; /* iterations that had ended then; -1: no state yet */
};

/* The parts of a simulation that have the state. */
struct ht_sim_parts {
    const struct ht_core *core;
    const struct ht_flows *flows;
    const struct ht_sim_ends *ends;
    const int64_t *running; /* [n_lanes]: id of the issue group that runs in the lane's slot, iteration << 32 | op */
    int32_t n_lanes;
};

void ht_sim_repeat_init(struct ht_sim_repeat *r, const struct ht_sim_parts *parts);
void ht_sim_repeat_free(struct ht_sim_repeat *r);

/* Takes the state, after dispatch, when iterations have ended since the last call. Returns the period in ns if it is that of one
   iteration before, else 0. */
int64_t ht_sim_repeat_check(struct ht_sim_repeat *r, const struct ht_sim_parts *parts, int64_t now_ns);

/* Writes iterations n - 1 .. of a trace whose first n were simulated, n >= 2: those of period_ns that repeat iteration n - 2, and
   the last, which ends as iteration n - 1 did. */
void ht_sim_repeat_fill(struct ht_trace *trace, int32_t n, int64_t period_ns);

#endif
