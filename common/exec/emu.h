/*
 * The emulated clock: a schedule for any hardware of the catalogue, really run on this machine, with every op held for
 * what it would take there.
 *
 * A wrapper around a backend: its ops do their real work (or none) and then wait until their modelled time, times a
 * scale, is up; what they share is paced by a pacer (pacer.h). Order, priorities, memory and failures are real, times
 * are the model's. An op whose work takes longer than it should be held for overruns its model: a run where more than
 * 1% of the ops did is no emulation of anything, and ht_emu_overruns says so.
 */
#ifndef HT_EXEC_EMU_H
#define HT_EXEC_EMU_H

#include "common/exec/pacer.h"
#include "common/exec/run.h"

struct ht_emu_options {
    const struct ht_schedule *schedule;
    const int64_t *cost_ns; /* [n_ops] modelled costs; copied */
    double scale;           /* wall-clock nanoseconds for a modelled one, > 0 */
    const struct ht_backend_ops *inner;
    void *inner_ctx;
    struct ht_pacer_table *table; /* of a pacer that serves several processes; NULL: one of its own */
    const atomic_bool *cancelled; /* optional: when it is true, nobody waits for the clock any more */
};

struct ht_emu;

enum ht_status ht_emu_create(const struct ht_emu_options *options, struct ht_error *err, struct ht_emu **out);
void ht_emu_destroy(struct ht_emu *emu); /* accepts NULL */

/* The table for ht_run_options.backend; its context is ht_emu_context. */
const struct ht_backend_ops *ht_emu_backend(const struct ht_emu *emu);

/* The trace of a run under this clock, in modelled time: all of its times are divided by the scale. */
void ht_emu_rescale(const struct ht_emu *emu, struct ht_trace *trace);

struct ht_emu_overruns {
    int64_t n_ops, n_overran; /* that took any time by the model, and those of them that took longer */
    double worst;             /* longest overrun over the op's own scaled cost */
    int32_t worst_op;         /* or -1 */
    bool valid;               /* at most 1% overran */
};
struct ht_emu_overruns ht_emu_overruns(const struct ht_emu *emu);
/* Adds what another process's ops did. */
void ht_emu_add_overruns(struct ht_emu_overruns *v, const struct ht_emu_overruns *other);

/* The scale at which every op's work fits: of a trace of the schedule without an emulation, the largest ratio of an
   op's real time (the shortest of its iterations, since its group began) to its modelled one. */
double ht_emu_fitting_scale(const struct ht_trace *trace, const int64_t *cost_ns);

#endif
