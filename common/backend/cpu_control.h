/*
 * Control of the CPU backend: partials of the gradients, the verdict, the loss scale. Internal to common/backend.
 *
 *     VALIDATE u      the partial of each row of G(u): does it fit, its sum of squares
 *     VALIDATE        the verdict: partials in the order of the model's elements -> finite, norm, clip factor; the loss
 *                     scale of the next iteration
 *
 * A slot holds what an iteration's ops need to know. The verdict of iteration k fills in the rest of slot k and begins
 * slot k + 1, which nothing reads before: it is checked beforehand that every head's forward pass of k + 1 waits for
 * it. At most two iterations are in flight, so a verdict may run beside ops of k - 1 and k; four slots keep them apart.
 *
 * Several ranks: each judges what it steps and has a verdict of its own, before which they agree (ALL_REDUCE about no
 * unit): every rank hears all partials. So all verdicts are the same, to the last bit of the norm.
 */
#ifndef HT_BACKEND_CPU_CONTROL_H
#define HT_BACKEND_CPU_CONTROL_H

#include "common/backend/cpu.h"
#include "common/kernels/grad_check.h"

#include <stdatomic.h>

enum { HT_CPU_SLOTS = 4 };

struct ht_cpu_slot {
    double loss_scale;
    atomic_bool left_out; /* a step with good gradients, for which its log had no room */
    /* Once there is a verdict: */
    bool finite;
    double clip_factor;
};

/* The row of gradients that a partial is of. */
struct ht_cpu_checked {
    int32_t tensor, unit, part, op, rank; /* the first op that judges it, and its rank */
    int64_t begin, end;                   /* elements of the part */
    bool again; /* what another rank, that has the same gradient, judges too: the norm counts it once */
};

struct ht_cpu_control {
    struct ht_control_options options; /* filled */
    struct ht_scaler scaler;           /* of the iteration after the last verdict */
    struct ht_cpu_slot slots[HT_CPU_SLOTS];
    int32_t rank; /* this process's */
    /* While a run has a schedule open: */
    int32_t final_check;            /* op of this rank, or -1 */
    bool undoes;                    /* steps come before the verdict and are taken back */
    bool redoes;                    /* and can be made again: all of them, and the verdict waits for them */
    bool undo_steps;                /* by the undo op itself: the schedule has no steps for it */
    struct ht_cpu_checked *checked; /* in the order of units and elements */
    int32_t n_checked;
    struct ht_grad_partial *partials; /* [n_tensors] */
};

/* Finds the verdict and what it judges, and checks that they are in order; every slot gets the loss scale. */
enum ht_status ht_cpu_control_open(struct ht_cpu_control *c, const struct ht_schedule *s, const struct ht_model *model,
                                   struct ht_error *err);
void ht_cpu_control_close(struct ht_cpu_control *c);

static inline struct ht_cpu_slot *ht_cpu_slot(struct ht_cpu_control *c, int32_t iteration)
{
    return &c->slots[iteration % HT_CPU_SLOTS];
}

/* Does the op multiply by the loss scale? It does when it makes logits that are kept: a gradient comes of them. */
bool ht_cpu_scales(const struct ht_schedule *s, int32_t op);

/* Is the op the one whose partial of the row counts? */
bool ht_cpu_checks(const struct ht_cpu_control *c, int32_t op, int32_t tensor);

/* What this rank tells the others when they agree, and what it heard of all of them: for each row that rank `of` judges two
   numbers, and one more. */
int64_t ht_cpu_said_by(const struct ht_cpu_control *c, int32_t of);
void ht_cpu_say(const struct ht_cpu_control *c, int32_t iteration, double *numbers);
void ht_cpu_hear(struct ht_cpu_control *c, int32_t iteration, int32_t from, const double *numbers);

/* Reduces the partials of an iteration, begins the next one's slot. Returns what the executor is to be told: ok or bad.
 */
bool ht_cpu_check(struct ht_cpu_control *c, int32_t iteration, struct ht_cpu_iteration *out);

#endif
