/*
 * The simulator: runs a schedule in virtual time.
 *
 * Deterministic on every build: integer nanoseconds and integer work, ends before dispatch, ties by id. An op of
 * uncontended cost T ns is T << 20 units of work. Its speed is 1 << 20 units per ns when nothing contends. An op that
 * uses shared resources is a flow; flows share by max-min fairness:
 *
 *   For a flow i let B_i be its largest amount over its resources, cap_i = floor(B_i 1e9 / T_i) its uncontended rate
 *   (amount per second), and a_ir = ceil(2^16 amount_ir / B_i), at least 1, its weight on resource r.
 *   Progressive filling, over a connected set of flows and resources, with left_r = capacity_r:
 *     level  = min over unfrozen i of cap_i, and over r with unfrozen flows of floor(2^16 left_r / sum of their a_ir)
 *     freeze every flow with cap_i = level, and every flow on a resource whose share is level, at x_i = max(level, 1);
 *     left_r -= ceil(x_i a_ir / 2^16) for each (not below 0); repeat until all are frozen
 *   speed_i = 2^20 when x_i >= cap_i, else max(1, floor(2^20 x_i / cap_i)); an op ends ceil(left / speed) ns from now.
 *
 * Cores: an op that keeps k cores busy has the amount k times its cost, in core-nanoseconds.
 *
 * T_i is at least the time that its other resources need when the flow runs alone: max over r of ceil(amount 1e9 /
 * capacity). Ops without cost (T = 0) or without resources are no flows. A group is one flow: its members' longest
 * cost, and their amounts added up per resource. Limits (beyond them: HT_BAD_INPUT): T < 2^42 ns, capacity < 2^44 per
 * second, amounts < 2^47.
 */
#ifndef HT_EXEC_SIM_H
#define HT_EXEC_SIM_H

#include "common/trace/trace.h"

struct ht_sim_options {
    int32_t iterations;     /* >= 1 */
    int32_t issue_ahead;    /* 0 for CPU, 2 for CUDA */
    int32_t jitter_percent; /* each cost is multiplied by 1 + u, u uniform in +-jitter (0..99) */
    uint64_t seed;          /* of the jitter */
    bool every; /* every iteration is simulated, also once they repeat themselves (common/exec/sim_repeat.h) */
    /* [iterations]: validate finds the iteration bad; NULL: none is. */
    const bool *bad;
    /* Called now and then with the ops of all iterations that have ended; NULL: nobody listens. */
    void (*progress)(void *ctx, int64_t done, int64_t of);
    void *progress_ctx;
};

/* Simulates a verified schedule. cost_ns: [n_ops] uncontended costs, >= 0. Once iterations repeat themselves, further ones are
   written from the one before; the trace is the same. Returns HT_INTERRUPTED after Ctrl-C (common/base/interrupt.h). A stall is a
   bug: HT_FAILED, with what every lane waits for. */
enum ht_status ht_sim_run(const struct ht_schedule *s, const int64_t *cost_ns, const struct ht_sim_options *options,
                          struct ht_error *err, struct ht_trace **out);

/* The iterations that a caller asks about: from the end of 0 .. after (-1: from the beginning) to that of 0 .. last. */
struct ht_sim_question {
    int32_t after, last; /* -1 <= after < last < iterations */
    int64_t limit_ns;    /* whoever finds a time of at least this asks no more; 0: the time itself is asked for */
};

/* Simulates as ht_sim_run does, without a trace and only as far as the question needs; iterations that surely take as long as
   the one before are not simulated, and nothing is issued ahead where that moves no start (common/exec/README.md). *ns: the time of its iterations. If
   that is at least limit_ns, *ns may be less than it, but not less than limit_ns: the run gives up as soon as the ops that
   have started cannot end earlier (common/exec/sim_rest.h). */
enum ht_status ht_sim_time(const struct ht_schedule *s, const int64_t *cost_ns, const struct ht_sim_options *options,
                           struct ht_sim_question question, struct ht_error *err, int64_t *ns);

/* Returns a lower bound of ht_sim_time's answer from the graph alone: what the busiest lane does in those of the question's
   iterations that cannot begin before iteration `after` has ended (all, or all but the first). */
int64_t ht_sim_least_ns(const struct ht_schedule *s, const int64_t *cost_ns, int32_t jitter_percent,
                        struct ht_sim_question question);

#endif
