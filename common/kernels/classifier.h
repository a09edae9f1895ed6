/*
 * The head of a model that classifies sequences. Internal to common/kernels: ht_head_forward and ht_head_backward
 * (unit.h) call it.
 */
#ifndef HT_KERNELS_CLASSIFIER_H
#define HT_KERNELS_CLASSIFIER_H

#include "common/kernels/unit.h"

/* Computes the logits (B,classes) and, unless targets is NULL, the loss and their gradient. */
void ht_classifier_forward(const struct ht_unit_args *args, const void *params, const void *x, void *act, float *logits,
                           const int32_t *targets, float scale, double *loss_sum, void *workspace);
void ht_classifier_backward(const struct ht_unit_args *args, const void *params, const void *act, const float *dlogits,
                            void *dx, void *grad, void *workspace);

#endif
