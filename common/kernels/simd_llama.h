/*
 * LLaMA's part of the body of struct ht_simd, included by simd_body.h and so compiled once a level. The rules are those
 * of simd_body.h: sums in 16 lanes, nothing contracted, the same bits everywhere.
 */

/* sum of x y z */
static float dot_three(const float *x, const float *y, const float *z, int64_t n)
{
    float s;
    REDUCE(s, n, AT(x + i, k) * AT(y + i, k) * AT(z + i, k), x[i] * y[i] * z[i]);
    return s;
}

/* ---- RMSNorm ---- */

static void simd_rms_norm(const float *restrict x, const float *restrict weight, float eps, float *restrict y,
                          float *rrms, int64_t n)
{
    float r = 1.0f / sqrtf(simd_dot(x, x, n) / (float)n + eps);
    for (int64_t i = 0; i < n; i++) y[i] = x[i] * r * weight[i];
    *rrms = r;
}

/* y = x r w with r = (mean x^2 + eps)^(-1/2), so dr/dx_i = -r^3 x_i / n and dx = r (dy w - x r^2 mean(dy w x)). */
static void simd_rms_norm_backward(const float *x, const float *weight, const float *dy, float rrms,
                                   const float *residual, float *dx, int64_t n)
{
    float m = dot_three(dy, weight, x, n) * rrms * rrms / (float)n;
    if (residual) {
        IVDEP for (int64_t i = 0; i < n; i++) dx[i] = residual[i] + rrms * (dy[i] * weight[i] - x[i] * m);
    } else {
        IVDEP for (int64_t i = 0; i < n; i++) dx[i] = rrms * (dy[i] * weight[i] - x[i] * m);
    }
}

static void simd_rms_norm_weight_grad(const float *x, const float *dy, const float *rrms, int64_t rows, int64_t stride,
                                      int64_t n, float *restrict dweight)
{
    memset(dweight, 0, (size_t)n * sizeof(float));
    for (int64_t r = 0; r < rows; r++) {
        const float *restrict xr = x + r * stride, *restrict dr = dy + r * stride;
        float s = rrms[r];
        for (int64_t c = 0; c < n; c++) dweight[c] += dr[c] * (xr[c] * s);
    }
}

/* ---- SwiGLU ---- */

/* exp_one saturates, so that a very negative x gives 0 and no NaN. */
static inline float sigmoid(float x)
{
    return 1.0f / (1.0f + exp_one(-x));
}

static void simd_swiglu(const float *restrict gate, const float *restrict up, float *restrict y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) y[i] = gate[i] * sigmoid(gate[i]) * up[i];
}

/* silu'(g) = s + g s (1 - s), s = sigmoid(g). d: of y in, of up out. */
static void simd_swiglu_backward(const float *restrict gate, const float *restrict up, float *restrict dgate,
                                 float *restrict d, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float g = gate[i], s = sigmoid(g), dy = d[i];
        dgate[i] = dy * up[i] * (s + g * s * (1.0f - s));
        d[i] = dy * (g * s);
    }
}

/* ---- rotary positions ---- */

static void simd_rotate(const float *restrict cosine, const float *restrict sine, float *restrict low,
                        float *restrict high, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float a = low[i], b = high[i];
        low[i] = a * cosine[i] - b * sine[i];
        high[i] = b * cosine[i] + a * sine[i];
    }
}
