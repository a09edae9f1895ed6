/* A shape of pipelines, and what it takes at least: what a search rules it out by before it builds a graph. */
#ifndef HT_BASELINES_SHAPE_H
#define HT_BASELINES_SHAPE_H

#include "common/draft/pipe.h"
#include "common/profile/profile.h"

/* tp x pp x dp devices, in Megatron-LM's order: tensor, data, pipeline. v stages a device; equal blocks and micro-batches,
   unless a plan shares them out otherwise. */
struct ht_shape {
    int64_t tp, pp, dp, v;
    bool zero; /* the pipelines share the optimizer states: ZeRO-1 */
    int again; /* HT_RECOMPUTES_.., what backward passes recompute */
};

/* Returns the device of part p of stage q of pipeline k. */
int64_t ht_shape_rank(const struct ht_shape *x, int64_t k, int64_t q, int64_t p);

/*
 * Returns bytes that some device of the shape needs at least: of rank r of the first pipeline, with P parameters in its stages,
 *
 *     P (param + states / (zero ? dp : 1)) + max(n A, P sum + m A)
 *
 * n: passes whose activations A, of the smallest stage, the device holds before its first backward pass. m: those that it holds
 * once it has the sums of all its stages, after (v - 1) pp + 1 backward passes: n, unless fewer passes are left then. sum and m are
 * 0 with one micro-batch, and with one round of several stages: a stage that has seen all micro-batches may have handed its sum on.
 * Logits, gradients, scratch and messages are left out.
 */
int64_t ht_shape_least_bytes(const struct ht_scenario *scenario, const struct ht_shape *x);

/* Computes the time in ns that a steady iteration takes at least: over the stages q of the first pipeline the largest

       sum over i < q (F_i + B_i) + all passes of the device of stage q

   without messages, all-reduces of gradients and steps. */
enum ht_status ht_shape_bound_ns(const struct ht_scenario *scenario, const struct ht_profile *profile,
                                 const struct ht_shape *x, struct ht_error *err, int64_t *ns);

#endif
