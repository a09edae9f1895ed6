/*
 * Control of the CPU backend: partials of the gradient check, the final check, the loss scale. Internal to
 * common/backend.
 *
 *     VALIDATE u      makes the partial of each G(u): overflow, and its sum of squares
 *     VALIDATE        the final check: partials in the order of the model's elements -> finite, norm, clip factor; the
 *                     loss scale of the next iteration
 *
 * A slot holds what an iteration's ops need to know. The final check of iteration k fills in the rest of slot k and
 * begins slot k + 1. No op reads that slot earlier: the verifier proves that every head's forward pass of k + 1 waits for
 * the final check. At most two iterations are in flight, so a final check may run beside ops of k - 1 and k;
 * four slots keep them apart.
 *
 * With several ranks each checks the gradients that it steps, and has a final check of its own. Before that they agree
 * (ALL_REDUCE about no unit): every rank receives all partials. So all outcomes are the same, to the last bit of the
 * norm.
 */
#ifndef HT_BACKEND_CPU_CONTROL_H
#define HT_BACKEND_CPU_CONTROL_H

#include "common/backend/cpu.h"
#include "common/kernels/grad_check.h"

#include <stdatomic.h>

enum { HT_CPU_SLOTS = 4 };

struct ht_cpu_slot {
    double loss_scale;
    atomic_bool left_out; /* a step without overflow was left out, because its log had no room */
    /* Set by the final check: */
    bool finite;
    double clip_factor;
};

/* The gradient tensor of a partial. */
struct ht_cpu_checked {
    int32_t tensor, unit, part, op, rank; /* the first op that checks it, and its rank */
    int32_t parts;
    unsigned half;      /* of a unit whose halves are divided into different numbers of parts; else 0 */
    int64_t begin, end; /* elements of the part */
    bool again;         /* another rank has the same gradient and checks it, too: the norm counts it once */
};

struct ht_cpu_control {
    struct ht_control_options options; /* with defaults filled in */
    struct ht_scaler scaler;           /* for the iteration after the last final check */
    struct ht_cpu_slot slots[HT_CPU_SLOTS];
    int32_t rank; /* this process's */
    /* While a run has a schedule open: */
    int32_t final_check;            /* op of this rank, or -1 */
    bool undoes;                    /* steps come before the final check and may be undone */
    bool redoes;                    /* all of them can be made again, and the final check waits for them */
    bool undo_steps;                /* the undo op itself makes them again: the schedule has no steps for it */
    struct ht_cpu_checked *checked; /* in the order of units and elements */
    int32_t n_checked;
    struct ht_grad_partial *partials; /* [n_tensors] */
};

/* Finds the final check and the gradients that it covers, and checks their order. Sets the loss scale of every slot. */
enum ht_status ht_cpu_control_open(struct ht_cpu_control *c, const struct ht_schedule *s, const struct ht_model *model,
                                   struct ht_error *err);
void ht_cpu_control_close(struct ht_cpu_control *c);

static inline struct ht_cpu_slot *ht_cpu_slot(struct ht_cpu_control *c, int32_t iteration)
{
    return &c->slots[iteration % HT_CPU_SLOTS];
}

/* Returns true when the op makes the partial of this tensor. */
bool ht_cpu_checks(const struct ht_cpu_control *c, int32_t op, int32_t tensor);

/* Write and read a rank's numbers of the agreement: two for each tensor that rank `of` checks, and one more. */
int64_t ht_cpu_agreement_size(const struct ht_cpu_control *c, int32_t of);
void ht_cpu_agreement_pack(const struct ht_cpu_control *c, int32_t iteration, double *numbers);
void ht_cpu_agreement_unpack(struct ht_cpu_control *c, int32_t iteration, int32_t from, const double *numbers);

/* Reduces the partials of an iteration, and begins the next one's slot. Returns the outcome for the executor: ok or
   bad. */
bool ht_cpu_check(struct ht_cpu_control *c, int32_t iteration, struct ht_cpu_iteration *out);

#endif
