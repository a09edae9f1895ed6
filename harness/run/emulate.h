/*
 * Training under the emulated clock (common/exec/emu.h): the schedule, the budgets and the costs are those of a
 * catalogue's cluster, the work is done by this machine's CPU backend, and every op is held for what it would take
 * there.
 *
 * Of several ranks each holds its own ops, and rank 0 serves the broker of all of them: its table is memory that the
 * ranks share, for all emulated nodes are on this machine.
 */
#ifndef HT_HARNESS_RUN_EMULATE_H
#define HT_HARNESS_RUN_EMULATE_H

#include "common/comm/window.h"
#include "common/exec/emu.h"
#include "harness/run/job.h"
#include "harness/run/ranks.h"

/* What is said of it afterwards. */
struct ht_emulated {
    double scale;         /* 0: there was no emulation */
    double fitting_scale; /* measured, of which `scale` is a multiple; 0: the scale was given */
    double estimated_s;   /* wall-clock time that the steps were expected to take */
    struct ht_emu_overruns overruns;
};

struct ht_emulation {
    const struct ht_ranks *ranks;
    struct ht_window window; /* of several ranks: the broker's table */
    struct ht_pacer *broker;
    struct ht_emu *emu;
};

/* Is --clock emu asked for? HT_BAD_INPUT for what does not go with it. *scale: that of --emu-scale, 0 for auto. */
enum ht_status ht_emulation_wanted(const struct ht_options *options, struct ht_error *err, bool *wanted, double *scale);

/* The scale of auto, from a trace of a few iterations without an emulation (rank 0's; others give NULL), on all ranks.
 */
enum ht_status ht_emulation_find_scale(const struct ht_ranks *ranks, const struct ht_trace *trace,
                                       const int64_t *cost_ns, struct ht_error *err, struct ht_emulated *out);

/* All ranks call it. emulation->emu is then the backend around the given one. */
enum ht_status ht_emulation_begin(const struct ht_ranks *ranks, const struct ht_job *job, double scale,
                                  const struct ht_backend_ops *ops, void *ctx, struct ht_error *err,
                                  struct ht_emulation *out);
/* After the run, all ranks: rank 0's trace becomes one of modelled time, and *out says how it went on all ranks. */
enum ht_status ht_emulation_account(const struct ht_emulation *e, struct ht_trace *trace, struct ht_error *err,
                                    struct ht_emulated *out);
void ht_emulation_end(struct ht_emulation *e); /* accepts a zeroed one */

/* What the simulator says of the very same run. */
struct ht_emulation_model {
    int64_t first_iteration_ns, iteration_ns, lower_bound_ns;
};
enum ht_status ht_emulation_model(const struct ht_job *job, int32_t iterations, int32_t warmup, struct ht_error *err,
                                  struct ht_emulation_model *out);

/* How long so many steps will be held: modelled time times out->scale, into out->estimated_s and, where this rank speaks, as
   a line on standard error. */
enum ht_status ht_emulation_announce(const struct ht_ranks *ranks, const struct ht_job *job, int64_t steps,
                                     struct ht_error *err, struct ht_emulated *out);

#endif
