/*
 * A unit is modelled as the kernels that its program launches: products by the roofline, everything else by its memory
 * traffic. N = B T rows, D = C / H, e bytes per element, t the tensor-parallel degree (heads, F and V are split by it;
 * the norms are not). Bias goes with the product. What the kernels between the products read and write is a property
 * of the software (common/model/software.yaml): "norm of N C" is what its norm moves, times N C.
 *
 *     sub-op      forward                                      backward
 *     norm1       norm of N C                                  norm of N C, residual's gradient of N C
 *     qkv         (N, 3C/t, C)                                 2 products, bias 3 N C e / t
 *     attention   B H/t x (T, T, D), scores of BHTT / t,       4 products, scores of BHTT / t
 *                 B H/t x (T, D, T)
 *       flash     2 products' FLOPs, 4 N C e / t               5 products' FLOPs, 8 N C e / t
 *     proj        (N, C, C/t), residual of N C                 2 products, bias N C e
 *     norm2       norm of N C                                  norm of N C, residual's gradient of N C
 *     fc1         (N, F/t, C)                                  2 products, bias N F e / t
 *     gelu        gelu of N F / t                              gelu of N F / t
 *     fc2         (N, C, F/t), residual of N C                 2 products, bias N C e
 *     dropout     mask byte and one more pass: (2 e + 1) bytes an element of N C after proj and fc2 and of BHTT / t
 *                 after softmax, forward and backward
 *     embedding   3 N C e                                      N C (e + 2 g), untied also the table's V C g zeroed
 *     head        norm of N C, (N, V/t, C), loss of N V / t    loss of N V / t, 2 products, norm of N C
 *
 * The head's product writes FP32 logits and its backward reads their FP32 gradient, unless the software has half
 * logits. This is GPT. The rows below hold for LLaMA where it differs; K = Hkv D:
 *
 *     qkv         (N, (C + 2K)/t, C), rotary of            2 products, rotary of N (C + K) / t
 *                 N (C + K) / t
 *     attention   as GPT's; every query head reads its     4 products; with Hkv < H the query heads' dk and dv are
 *                 own copy of the shared keys              summed: 2 N (C + K) e / t
 *       flash     2 N (C + K) e / t                        4 N (C + K) e / t
 *     proj        the same                                 2 products
 *     fc1         (N, 2F/t, C)                             2 products
 *     gelu        swiglu of N F / t                        swiglu of N F / t
 *     fc2         the same                                 2 products
 *     embedding   2 N C e                                  the same
 *
 * BERT's block costs what GPT's does: the norms' outputs take the place of the residual stream. Its other units differ.
 * The classifier's head takes one row of each sequence, B in all:
 *
 *     embedding   3 N C e                                      N C (e + 2 g), types N C e, the table's V C g zeroed
 *     head        copy 2 B C e, norm of B C, (B, C, C),        loss of B classes, 2 products each, biases, tanh
 *                 tanh 2 B C e, (B, classes, C) to FP32        3 B C e, norm of B C, zeros N C e
 *                 logits, loss of B classes
 *
 * DiT's block is GPT's and what the conditioning vector adds. "vectors" of n are silu 2 B C e, the vector passed on
 * 2 B C e, the product (B, n C, C); backward 2 products, bias B n C e, silu 3 B C e, its gradient added 3 B C e.
 *
 *     norm1       norm, modulate of N C, vectors of 6          norm, modulate, residual's gradient of N C, vectors of 6
 *     norm2       norm, modulate of N C                        norm, modulate, residual's gradient of N C
 *     proj, fc2   and gate of N C                              and gate of N C
 *     embedding   patches N P (4 + e), (N, C, P), positions    patches again, dW, bias N C e; hidden layer again,
 *                 2 N C e, (B, C, 256), silu 2 B C e,          2 products of (B, C, C), 1 of (B, C, 256), biases
 *                 (B, C, C), label 3 B C e                     2 B C e, silu 3 B C e, label's row B C (e + 2 g)
 *     head        norm, modulate of N C, vectors of 2,         loss, 2 products, norm, modulate of N C, vectors of 2
 *                 (N, V, C), loss of N V
 *
 * Its label table's gradient is not counted as zeroed: a work does not say how many classes there are.
 *
 * Departures: causal attention is counted in full, as bidirectional attention is; weight gradients are counted as written
 * in the operands' width, tensor-parallel all-reduces are ops of their own, and what several kernels read and write has
 * one launch, which is small against it. tests/common/profile/test_formula.c checks the formulas by hand.
 */
#include "common/profile/formula.h"

#include "common/base/minmax.h"

#include <math.h>

/* Returns the share with tiles of rows x columns. */
static double ht_tiled_share(const struct ht_roof *r, double count, double m, double n, double rows, double columns)
{
    rows = fmin(rows, 64 * ceil(m / 64));
    columns = fmin(columns, 64 * ceil(n / 64));
    double waves = ceil(count * ceil(m / rows) * ceil(n / columns) / r->sms);
    return count * m * n / (waves * r->sms * rows * columns);
}

double ht_gemm_share(const struct ht_roof *r, double count, double m, double n)
{
    if (r->sms == 0) return 1;
    double tall = ht_tiled_share(r, count, m, n, 256, 128), wide = ht_tiled_share(r, count, m, n, 128, 256);
    return fmax(ht_tiled_share(r, count, m, n, 128, 128), fmax(tall, wide));
}

double ht_gemm_s(const struct ht_roof *r, double count, double m, double n, double k, double in_bytes, double out_bytes)
{
    double compute_s = 2 * count * m * n * k / (ht_gemm_share(r, count, m, n) * r->flops_per_s);
    double memory_s = count * ((m * k + k * n) * in_bytes + m * n * out_bytes) / r->bytes_per_s;
    return r->launch_s + fmax(compute_s, memory_s);
}

double ht_stream_s(const struct ht_roof *r, double bytes)
{
    return r->launch_s + bytes / r->bytes_per_s;
}

/* The shape of a work, as real numbers. */
struct ht_shape {
    double N, B, T, C, H, D, F, V; /* H, F, V: this rank's part */
    double R;                      /* rows of norms and residuals: N, or this rank's part of them */
    double K;                      /* width of keys, over all ranks like C */
    double e, g, t;
    bool llama, encoder, gated;
};

static struct ht_shape ht_shape_of(const struct ht_work *w)
{
    double t = w->tp > 1 ? w->tp : 1, heads = w->heads > 0 ? (double)w->heads : 1;
    double kv_heads = w->kv_heads > 0 ? (double)w->kv_heads : heads;
    double tables = ht_arch_repeats(w->arch, w->unit) ? 1 : t; /* parts of the token table */
    return (struct ht_shape){
        .N = (double)w->batch * (double)w->seq,
        .R = (double)w->batch * (double)w->seq / (w->sequence ? t : 1),
        .B = (double)w->batch,
        .T = (double)w->seq,
        .C = (double)w->width,
        .H = heads / t,
        .D = (double)w->width / heads,
        .F = (double)w->ffn / t,
        .V = (double)w->vocab / tables,
        .K = (double)w->width / heads * kv_heads,
        .e = (double)ht_dtype_bytes(w->dtype),
        .g = (double)ht_dtype_bytes(w->grad_dtype),
        .t = t,
        .llama = w->arch == HT_ARCH_LLAMA,
        .encoder = ht_arch_bidirectional(w->arch),
        .gated = ht_arch_gated(w->arch),
    };
}

/* Returns the time of y (N, out) = x (N, in) W: one product. The backward has dx = dy W^T, dW = x^T dy and the bias's
   sum over rows. */
static double ht_linear_s(const struct ht_roof *r, const struct ht_shape *s, double in, double out)
{
    return ht_gemm_s(r, 1, s->N, out, in, s->e, s->e);
}

static double ht_linear_back_s(const struct ht_roof *r, const struct ht_shape *s, double in, double out)
{
    double bias_s = s->llama ? 0 : ht_stream_s(r, s->N * out * s->e);
    return ht_gemm_s(r, 1, s->N, in, out, s->e, s->e) + ht_gemm_s(r, 1, out, in, s->N, s->e, s->e) + bias_s;
}

/* Returns the time of kernels that pass over all queries and keys. */
static double ht_queries_keys_s(const struct ht_roof *r, const struct ht_shape *s, double bytes)
{
    return ht_stream_s(r, s->N * (s->C + s->K) * bytes / s->t);
}

/* Returns the time of the kernels of one kind, 0 if there are none. */
static double ht_passes_s(const struct ht_roof *r, const struct ht_work *w, const struct ht_passes *p, double elements)
{
    double bytes = ht_passes_bytes(p, w->dtype);
    return bytes > 0 ? ht_stream_s(r, elements * bytes) : 0;
}

static double ht_dropout_s(const struct ht_roof *r, const struct ht_work *w, const struct ht_shape *s, double elements)
{
    return w->dropout ? ht_stream_s(r, elements * (2 * s->e + 1)) : 0;
}

/* Returns the software's kernels of the scores: a causal model's may leave out what lies above the diagonal, and fused ones
   take a number of heads at a time. */
static const struct ht_pointwise *ht_scores_of(const struct ht_software *sw, const struct ht_work *w,
                                               const struct ht_shape *s)
{
    bool fits = w->dtype != HT_F32 && (w->batch * w->heads) % (ht_max(w->tp, 1) * ht_max(sw->fused_heads, 1)) == 0;
    if (sw->fused_heads && !fits) return &sw->unfused_scores;
    return s->encoder ? &sw->encoder_scores : &sw->scores;
}

static double ht_attention_s(const struct ht_roof *r, const struct ht_software *sw, const struct ht_work *w,
                             const struct ht_shape *s)
{
    if (w->flash) {
        double flops_s = 4 * s->B * s->H * s->T * s->T * s->D / r->flops_per_s;
        return r->launch_s + fmax(flops_s, 2 * s->N * (s->C + s->K) * s->e / s->t / r->bytes_per_s);
    }
    double probs = s->B * s->H * s->T * s->T;
    return ht_gemm_s(r, s->B * s->H, s->T, s->T, s->D, s->e, s->e) +
           ht_passes_s(r, w, &ht_scores_of(sw, w, s)->forward, probs) + ht_dropout_s(r, w, s, probs) +
           ht_gemm_s(r, s->B * s->H, s->T, s->D, s->T, s->e, s->e);
}

static double ht_attention_back_s(const struct ht_roof *r, const struct ht_software *sw, const struct ht_work *w,
                                  const struct ht_shape *s)
{
    if (w->flash) {
        double flops_s = 10 * s->B * s->H * s->T * s->T * s->D / r->flops_per_s;
        return r->launch_s + fmax(flops_s, 4 * s->N * (s->C + s->K) * s->e / s->t / r->bytes_per_s);
    }
    double probs = s->B * s->H * s->T * s->T;
    return ht_gemm_s(r, s->B * s->H, s->T, s->T, s->D, s->e, s->e) +     /* dP = dO V^T */
           3 * ht_gemm_s(r, s->B * s->H, s->T, s->D, s->T, s->e, s->e) + /* dV, dQ, dK */
           ht_passes_s(r, w, &ht_scores_of(sw, w, s)->backward, probs) + ht_dropout_s(r, w, s, probs) +
           (s->K < s->C ? ht_queries_keys_s(r, s, 2 * s->e) : 0);
}

/* Returns the software's kernels of the arch: its norm; GELU or SwiGLU. */
static const struct ht_pointwise *ht_norm_of(const struct ht_software *sw, const struct ht_shape *s)
{
    return s->llama ? &sw->rms_norm : &sw->layer_norm;
}

static const struct ht_pointwise *ht_activation_of(const struct ht_software *sw, const struct ht_shape *s)
{
    return s->llama ? &sw->swiglu : s->encoder ? &sw->encoder_gelu : &sw->gelu;
}

/* Returns the time to make so many vectors of the conditioning one; 0 of models that have none. The backward takes
   their gradients to that of the conditioning vector. */
static double ht_vectors_s(const struct ht_roof *r, const struct ht_shape *s, double vectors)
{
    double BCe = s->B * s->C * s->e;
    if (!s->gated) return 0;
    return ht_stream_s(r, 4 * BCe) + ht_gemm_s(r, 1, s->B, vectors * s->C, s->C, s->e, s->e);
}

static double ht_vectors_back_s(const struct ht_roof *r, const struct ht_shape *s, double vectors)
{
    struct ht_shape rows = *s;
    rows.N = s->B;
    if (!s->gated) return 0;
    return ht_linear_back_s(r, &rows, s->C, vectors * s->C) + ht_stream_s(r, 6 * s->B * s->C * s->e);
}

/* Returns the time of DiT's kernels of one kind; 0 of other models. */
static double ht_gated_s(const struct ht_roof *r, const struct ht_work *w, const struct ht_shape *s,
                         const struct ht_passes *p)
{
    return s->gated ? ht_passes_s(r, w, p, s->N * s->C) : 0;
}

static double ht_sub_forward_s(const struct ht_roof *r, const struct ht_software *sw, const struct ht_work *w,
                               const struct ht_shape *s, int sub)
{
    double NC = s->R * s->C;
    switch (sub) {
    case HT_SUB_NORM1:
    case HT_SUB_NORM2:
        return ht_passes_s(r, w, &ht_norm_of(sw, s)->forward, NC) + ht_gated_s(r, w, s, &sw->modulate.forward) +
               (sub == HT_SUB_NORM1 ? ht_vectors_s(r, s, 6) : 0);
    case HT_SUB_QKV:
        return ht_linear_s(r, s, s->C, (s->C + 2 * s->K) / s->t) +
               (s->llama ? ht_queries_keys_s(r, s, ht_passes_bytes(&sw->rotary.forward, w->dtype)) : 0);
    case HT_SUB_ATTENTION:
        return ht_attention_s(r, sw, w, s);
    case HT_SUB_PROJ:
        return ht_linear_s(r, s, s->C / s->t, s->C) + ht_passes_s(r, w, &sw->residual.forward, NC) +
               ht_gated_s(r, w, s, &sw->gate.forward) + ht_dropout_s(r, w, s, NC);
    case HT_SUB_FC1:
        return ht_linear_s(r, s, s->C, (s->llama ? 2 : 1) * s->F);
    case HT_SUB_GELU:
        return ht_passes_s(r, w, &ht_activation_of(sw, s)->forward, s->N * s->F);
    case HT_SUB_FC2:
        return ht_linear_s(r, s, s->F, s->C) + ht_passes_s(r, w, &sw->residual.forward, NC) +
               ht_gated_s(r, w, s, &sw->gate.forward) + ht_dropout_s(r, w, s, NC);
    default:
        return 0;
    }
}

static double ht_sub_backward_s(const struct ht_roof *r, const struct ht_software *sw, const struct ht_work *w,
                                const struct ht_shape *s, int sub)
{
    double NC = s->R * s->C;
    switch (sub) {
    case HT_SUB_NORM1:
    case HT_SUB_NORM2:
        return ht_stream_s(r, NC * (ht_passes_bytes(&ht_norm_of(sw, s)->backward, w->dtype) +
                                    ht_passes_bytes(&sw->residual.backward, w->dtype))) +
               ht_gated_s(r, w, s, &sw->modulate.backward) + (sub == HT_SUB_NORM1 ? ht_vectors_back_s(r, s, 6) : 0);
    case HT_SUB_QKV:
        return ht_linear_back_s(r, s, s->C, (s->C + 2 * s->K) / s->t) +
               (s->llama ? ht_queries_keys_s(r, s, ht_passes_bytes(&sw->rotary.backward, w->dtype)) : 0);
    case HT_SUB_ATTENTION:
        return ht_attention_back_s(r, sw, w, s);
    case HT_SUB_PROJ:
        return ht_linear_back_s(r, s, s->C / s->t, s->C) + ht_gated_s(r, w, s, &sw->gate.backward) +
               ht_dropout_s(r, w, s, NC);
    case HT_SUB_FC1:
        return ht_linear_back_s(r, s, s->C, (s->llama ? 2 : 1) * s->F);
    case HT_SUB_GELU:
        return ht_passes_s(r, w, &ht_activation_of(sw, s)->backward, s->N * s->F);
    case HT_SUB_FC2:
        return ht_linear_back_s(r, s, s->F, s->C) + ht_gated_s(r, w, s, &sw->gate.backward) + ht_dropout_s(r, w, s, NC);
    default:
        return 0;
    }
}

/* Returns the time of ViT's embedding. Its V are the elements of a patch, and its products have a row for the class token as
   well. Forward: bytes to patches, the product, positions. Backward: patches again, dW = dy^T X, and the sums. */
static double ht_patches_s(const struct ht_roof *r, const struct ht_shape *s)
{
    return ht_stream_s(r, s->N * s->V * (1 + s->e)) + ht_linear_s(r, s, s->V, s->C) +
           ht_stream_s(r, 2 * s->N * s->C * s->e);
}

static double ht_patches_back_s(const struct ht_roof *r, const struct ht_shape *s)
{
    double TC = s->T * s->C;
    return ht_stream_s(r, s->N * s->V * (1 + s->e)) + ht_gemm_s(r, 1, s->C, s->V, s->N, s->e, s->g) +
           ht_stream_s(r, s->N * s->C * s->e + TC * (4 + s->g)) + ht_stream_s(r, TC * 4);
}

/* Returns the time of DiT's embedding: latents of 4 bytes to patches, and the conditioning vector of each sequence. */
static double ht_latents_s(const struct ht_roof *r, const struct ht_shape *s)
{
    double BCe = s->B * s->C * s->e;
    double hidden_s = ht_gemm_s(r, 1, s->B, s->C, HT_TIMESTEP_FREQUENCIES, s->e, s->e) + ht_stream_s(r, 2 * BCe);
    return ht_stream_s(r, s->N * s->V * (4 + s->e)) + ht_linear_s(r, s, s->V, s->C) +
           ht_stream_s(r, 2 * s->N * s->C * s->e) + hidden_s + ht_gemm_s(r, 1, s->B, s->C, s->C, s->e, s->e) +
           ht_stream_s(r, 3 * BCe);
}

static double ht_latents_back_s(const struct ht_roof *r, const struct ht_shape *s)
{
    double BC = s->B * s->C;
    struct ht_shape rows = *s;
    rows.N = s->B;
    double patches_s = ht_stream_s(r, s->N * s->V * (4 + s->e)) + ht_gemm_s(r, 1, s->C, s->V, s->N, s->e, s->g) +
                       ht_stream_s(r, s->N * s->C * s->e);
    double hidden_s = ht_gemm_s(r, 1, s->B, s->C, HT_TIMESTEP_FREQUENCIES, s->e, s->e) +
                      ht_linear_back_s(r, &rows, s->C, s->C) + ht_stream_s(r, 3 * BC * s->e) +
                      ht_gemm_s(r, 1, s->C, HT_TIMESTEP_FREQUENCIES, s->B, s->e, s->g) + ht_stream_s(r, BC * s->e);
    return patches_s + hidden_s + ht_stream_s(r, BC * (s->e + 2 * s->g));
}

static bool pools(const struct ht_work *w)
{
    return w->arch == HT_ARCH_BERT;
}

/* Returns the time of a classifier's head, forward and backward. Its V are classes; its products have B rows. */
static double ht_classifier_s(const struct ht_roof *r, const struct ht_software *sw, const struct ht_work *w,
                              const struct ht_shape *s)
{
    struct ht_shape rows = *s;
    double BC = s->B * s->C;
    rows.N = s->B;
    double pooler_s = pools(w) ? ht_linear_s(r, &rows, s->C, s->C) + ht_stream_s(r, 2 * BC * s->e) : 0;
    return ht_stream_s(r, 2 * BC * s->e) + ht_passes_s(r, w, &ht_norm_of(sw, s)->forward, BC) + pooler_s +
           ht_gemm_s(r, 1, s->B, s->V, s->C, s->e, 4) + ht_passes_s(r, w, &sw->loss.forward, s->B * s->V);
}

static double ht_classifier_back_s(const struct ht_roof *r, const struct ht_software *sw, const struct ht_work *w,
                                   const struct ht_shape *s)
{
    struct ht_shape rows = *s;
    double BC = s->B * s->C;
    rows.N = s->B;
    double pooler_s = pools(w) ? ht_stream_s(r, 3 * BC * s->e) + ht_linear_back_s(r, &rows, s->C, s->C) : 0;
    return ht_passes_s(r, w, &sw->loss.backward, s->B * s->V) + ht_gemm_s(r, 1, s->B, s->C, s->V, 4, s->e) +
           ht_gemm_s(r, 1, s->V, s->C, s->B, 4, s->g) + ht_stream_s(r, 4 * s->B * s->V) + pooler_s +
           ht_passes_s(r, w, &ht_norm_of(sw, s)->backward, BC) + ht_stream_s(r, s->N * s->C * s->e);
}

double ht_forward_s(const struct ht_roof *r, const struct ht_software *sw, const struct ht_work *w)
{
    struct ht_shape s = ht_shape_of(w);
    double NC = s.N * s.C, sum = 0;
    switch (w->unit) {
    case HT_UNIT_EMBEDDING:
        if (w->arch == HT_ARCH_VIT) return ht_patches_s(r, &s);
        if (w->arch == HT_ARCH_DIT) return ht_latents_s(r, &s);
        return ht_stream_s(r, (s.llama ? 2 : 3) * NC * s.e);
    case HT_UNIT_HEAD:
        if (ht_arch_classifies(w->arch)) return ht_classifier_s(r, sw, w, &s);
        return ht_passes_s(r, w, &ht_norm_of(sw, &s)->forward, s.R * s.C) +
               ht_gated_s(r, w, &s, &sw->modulate.forward) + ht_vectors_s(r, &s, 2) +
               ht_gemm_s(r, 1, s.N, s.V, s.C, s.e, sw->half_logits ? s.e : 4) +
               ht_passes_s(r, w, &sw->loss.forward, s.N * s.V);
    case HT_UNIT_BLOCK:
        break;
    }
    for (int sub = 0; sub < HT_N_SUB_OPS; sub++)
        if (w->sub_ops >> sub & 1) sum += ht_sub_forward_s(r, sw, w, &s, sub);
    return sum * (w->n_units > 1 ? w->n_units : 1);
}

double ht_backward_s(const struct ht_roof *r, const struct ht_software *sw, const struct ht_work *w)
{
    struct ht_shape s = ht_shape_of(w);
    double NC = s.N * s.C, dlogits = sw->half_logits ? s.e : 4, sum = 0;
    switch (w->unit) {
    case HT_UNIT_EMBEDDING:
        if (w->arch == HT_ARCH_VIT) return ht_patches_back_s(r, &s);
        if (w->arch == HT_ARCH_DIT) return ht_latents_back_s(r, &s);
        return ht_stream_s(r, NC * (s.e + 2 * s.g) + (w->tied ? 0 : s.V * s.C * s.g)) +
               (w->arch == HT_ARCH_BERT ? ht_stream_s(r, NC * s.e) : 0);
    case HT_UNIT_HEAD:
        if (ht_arch_classifies(w->arch)) return ht_classifier_back_s(r, sw, w, &s);
        /* dx = dlogits W (N, C, V), dW = dlogits^T x (V, C, N) */
        return ht_passes_s(r, w, &sw->loss.backward, s.N * s.V) + ht_gemm_s(r, 1, s.N, s.C, s.V, dlogits, s.e) +
               ht_gemm_s(r, 1, s.V, s.C, s.N, dlogits, s.g) +
               ht_passes_s(r, w, &ht_norm_of(sw, &s)->backward, s.R * s.C) +
               ht_gated_s(r, w, &s, &sw->modulate.backward) + ht_vectors_back_s(r, &s, 2);
    case HT_UNIT_BLOCK:
        break;
    }
    for (int sub = 0; sub < HT_N_SUB_OPS; sub++)
        if (w->sub_ops >> sub & 1) sum += ht_sub_backward_s(r, sw, w, &s, sub);
    return sum * (w->n_units > 1 ? w->n_units : 1);
}

double ht_adam_bytes_per_param(enum ht_dtype param, enum ht_dtype grad)
{
    return (double)ht_dtype_bytes(grad) + 24 + (param == HT_F32 ? 0 : 2);
}

double ht_cpu_adam_s(double params, double bytes_per_param, double bytes_per_s, double flops_per_s)
{
    return fmax(params * bytes_per_param / bytes_per_s, params * HT_ADAM_FLOPS / flops_per_s);
}

double ht_copy_s(double latency_s, double bytes, double bytes_per_s)
{
    return latency_s + bytes / bytes_per_s;
}

double ht_collective_s(enum ht_op_kind kind, const struct ht_ring *ring, double bytes)
{
    double twice = kind == HT_OP_ALL_REDUCE ? 2 : 1;
    double steps = ring->ranks - 1, crossing = ring->nodes - 1;
    double s = twice * ((steps - crossing) * ring->inside_s + crossing * ring->outside_s) + bytes / ring->bytes_per_s;
    if (kind != HT_OP_ALL_REDUCE || ring->nodes < 2) return s;
    double local = ceil((double)ring->ranks / ring->nodes) - 1, depth = ceil(log2(ring->nodes));
    double tree = 2 * (local * ring->inside_s + depth * ring->outside_s) +
                  bytes * ring->ranks / (ring->ranks - 1) / ring->bytes_per_s;
    return fmin(s, tree);
}

int64_t ht_ns_up(double s)
{
    /* A product such as 2e-9 x 1e9 may come out just above a whole number; a millionth of a nanosecond is forgiven. */
    double ns = ceil(s * 1e9 - 1e-6);
    return ns < 1 ? 1 : ns >= 9e18 ? INT64_MAX : (int64_t)ns;
}
