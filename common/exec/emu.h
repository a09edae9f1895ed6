/*
 * The emulated clock: really runs a schedule for any hardware of the catalogue on this machine, and holds every op for
 * the time it would take there.
 *
 * A wrapper around a backend. Each op does its real work (or none) and then waits until its modelled time, times a
 * scale, is up; a pacer (pacer.h) shares the resources among the ops. Order, priorities, memory and failures are real,
 * times are the model's. An op overruns its model when its work takes longer than it is to be held. A run in which more
 * than 1% of the ops overran is not a valid emulation, and ht_emu_overruns says so.
 */
#ifndef HT_EXEC_EMU_H
#define HT_EXEC_EMU_H

#include "common/exec/pacer.h"
#include "common/exec/run.h"

struct ht_emu_options {
    const struct ht_schedule *schedule;
    const int64_t *cost_ns; /* [n_ops] modelled costs; copied */
    double scale;           /* wall-clock nanoseconds per modelled nanosecond, > 0 */
    const struct ht_backend_ops *inner;
    void *inner_ctx;
    struct ht_pacer_table *table; /* of a pacer that serves several processes; NULL: creates its own */
    const atomic_bool *cancelled; /* optional: once true, no op waits for the clock any more */
};

struct ht_emu;

enum ht_status ht_emu_create(const struct ht_emu_options *options, struct ht_error *err, struct ht_emu **out);
void ht_emu_destroy(struct ht_emu *emu); /* accepts NULL */

/* Returns the backend for ht_run_options.backend; its context is the emulation itself. */
const struct ht_backend_ops *ht_emu_backend(const struct ht_emu *emu);

/* Converts the trace of a run under this clock to modelled time: divides all times by the scale. */
void ht_emu_rescale(const struct ht_emu *emu, struct ht_trace *trace);

struct ht_emu_overruns {
    int64_t n_ops, n_overran; /* ops with a modelled cost, and those of them that took longer */
    double worst;             /* longest overrun, relative to the op's own scaled cost */
    int32_t worst_op;         /* or -1 */
    bool valid;               /* at most 1% overran */
};
struct ht_emu_overruns ht_emu_overruns(const struct ht_emu *emu);
/* Adds the overruns of another process. */
void ht_emu_add_overruns(struct ht_emu_overruns *v, const struct ht_emu_overruns *other);

/* Returns the smallest scale at which every op's work fits, from a trace of the schedule without emulation: the largest
   ratio of an op's real time (the shortest of its iterations, since its group began) to its modelled one. */
double ht_emu_fitting_scale(const struct ht_trace *trace, const int64_t *cost_ns);

#endif
