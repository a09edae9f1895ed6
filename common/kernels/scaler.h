/*
 * Loss scaling and clipping by the global norm: decisions about an iteration once all of its gradients are known.
 *
 * 16-bit gradients underflow. So the loss, and with it every gradient, is multiplied by a scale, and the optimizer
 * divides by it (Micikevicius et al. 2018, Sec. 3.2). A dynamic scale grows until a gradient overflows; then the step
 * is skipped and the scale goes back. The rule is torch.amp.GradScaler's (torch/amp/grad_scaler.py and
 * _amp_update_scale_), which keeps the scale in FP32:
 *
 *     overflow  scale = scale * backoff, good = 0
 *     ok        good = good + 1; when that is growth_interval: scale = scale * growth unless that is infinite, good = 0
 *
 * Clipping is torch.nn.utils.clip_grad_norm_'s, of the unscaled gradients of the whole model:
 *
 *     factor = min(1, clip / (norm + 1e-6))
 *
 * One departure: a finite gradient whose square overflows counts as overflow, too (common/kernels/grad_check.h says
 * why).
 */
#ifndef HT_KERNELS_SCALER_H
#define HT_KERNELS_SCALER_H

#include <stdbool.h>
#include <stdint.h>

/* A field that is 0 has the default after the bar; all 0: no scaling, no clipping. */
struct ht_control_options {
    double clip;             /* largest norm of the gradients | none */
    bool dynamic;            /* the scale follows overflows */
    double loss_scale;       /* of the first iteration, > 0 | 65536 if dynamic, else 1 */
    double growth, backoff;  /* > 1 | 2; between 0 and 1 | 0.5 */
    int64_t growth_interval; /* iterations in a row without overflow, >= 1 | 2000 */
};

/* Returns the options with every 0 but clip's replaced by its default. */
struct ht_control_options ht_control_filled(const struct ht_control_options *options);

/* State of the scaler, which checkpoints keep. */
struct ht_scaler {
    double scale; /* an FP32 number */
    int64_t good; /* iterations in a row since the scale last changed */
};

struct ht_scaler ht_scaler_start(const struct ht_control_options *options);
/* Updates the scale after an iteration. finite: its gradients, and their squares, were finite. Does nothing unless
   dynamic. */
void ht_scaler_update(struct ht_scaler *scaler, const struct ht_control_options *options, bool finite);

/*
 * Returns the weight of one target's loss in an iteration of `batch` sequences with `rows` targets each, whichever GPU
 * has it: scale / (batch rows). Data-parallel GPUs that take unlike parts b_i of a batch B, whose gradients are averaged
 * first over the b_i samples g_ij of each GPU and then over the N GPUs, must multiply their own by N b_i / B (Guo et al.,
 * Cephalo, eq. 1):
 *
 *     gradient = 1/N sum_i (N b_i / B) 1/b_i sum_j g_ij = 1/B sum_i sum_j g_ij                                      (1)
 *
 * Here the right side is computed: each loss is weighted before its backward pass, and all else adds up, so a
 * micro-batch of any size needs no factor, and a GPU without samples adds nothing. scale: the loss scale.
 */
double ht_loss_weight(double scale, int64_t batch, int64_t rows);

/* Returns the clip factor of gradients with this norm; 1 when clip is 0. */
double ht_clip_factor(double clip, double norm);

#endif
