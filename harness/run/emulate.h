/*
 * Training under the emulated clock (common/exec/emu.h): schedule, budgets and costs are those of a catalogue's
 * cluster, this machine's CPU backend does the work, and every op is held for the time that it would take there.
 *
 * Each rank holds its own ops, and the first rank of each host serves a pacer, whose table is memory that the host's
 * ranks share. Several hosts' pacers have links to rank 0's (common/exec/pacer.h).
 */
#ifndef HT_HARNESS_RUN_EMULATE_H
#define HT_HARNESS_RUN_EMULATE_H

#include "common/comm/window.h"
#include "common/exec/emu.h"
#include "harness/run/job.h"
#include "harness/run/ranks.h"
#include "harness/run/simulate.h"

/* The report on an emulation. */
struct ht_emulated {
    double scale;         /* 0: there was no emulation */
    double fitting_scale; /* measured, of which `scale` is a multiple; 0: the scale was given */
    double estimated_s;   /* wall-clock time that the steps were expected to take */
    struct ht_emu_overruns overruns;
};

struct ht_emulation {
    const struct ht_ranks *ranks;
    struct ht_window window;    /* of several ranks: the pacer's table */
    struct ht_pacer *pacer;     /* a host's first rank's, */
    struct ht_pacer_link *link; /* and its link where there are several hosts */
    struct ht_emu *emu;
};

/* Finds the scale of auto from a trace of a few iterations without an emulation (rank 0's; others give NULL). All ranks
   call it and get the scale. */
enum ht_status ht_emulation_find_scale(const struct ht_ranks *ranks, const struct ht_trace *trace,
                                       const int64_t *cost_ns, struct ht_error *err, struct ht_emulated *out);

/* Begins an emulation: out->emu becomes the backend around the given one. All ranks call it. */
enum ht_status ht_emulation_begin(const struct ht_ranks *ranks, const struct ht_job *job, double scale,
                                  const struct ht_backend_ops *ops, void *ctx, struct ht_error *err,
                                  struct ht_emulation *out);
/* Turns rank 0's trace into one of modelled time and reports the overruns of all ranks. All ranks call it after the
   run. */
enum ht_status ht_emulation_account(const struct ht_emulation *e, struct ht_trace *trace, struct ht_error *err,
                                    struct ht_emulated *out);
void ht_emulation_end(struct ht_emulation *e); /* accepts a zeroed one */

/* Predicts the very same run by the simulator. */
enum ht_status ht_emulation_model(const struct ht_job *job, int32_t iterations, int32_t warmup, struct ht_error *err,
                                  struct ht_times *out);

/* Estimates how long so many steps will take, modelled time times out->scale, into out->estimated_s. The rank that
   speaks prints it on standard error. */
enum ht_status ht_emulation_announce(const struct ht_ranks *ranks, const struct ht_job *job, int64_t steps,
                                     struct ht_error *err, struct ht_emulated *out);

#endif
