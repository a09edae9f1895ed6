/*
 * Functions that read or write stored numbers. simd_body.h includes this file once for each storage type, after it has
 * defined
 *
 *     STORED    the type, enum ht_dtype
 *     S(name)   the name of a function for it
 */

/* ---- GELU ---- */

static void S(gelu)(const void *x, void *y, int64_t n)
{
    float xs[SPAN], ys[SPAN];
    EACH_SPAN(STORED, at, m, n)
    {
        const float *restrict a = get(STORED, x, at, m, xs);
        float *restrict b = store_buffer(STORED, y, at, ys);
        for (int64_t i = 0; i < m; i++) b[i] = a[i] * gelu_gate(a[i]);
        put(STORED, b, y, at, m);
    }
}

static void S(gelu_backward)(const void *x, void *d, int64_t n)
{
    float xs[SPAN], ds[SPAN];
    EACH_SPAN(STORED, at, m, n)
    {
        const float *restrict a = get(STORED, x, at, m, xs);
        float *restrict b = get(STORED, d, at, m, ds);
        for (int64_t i = 0; i < m; i++) {
            float g = gelu_gate(a[i]);
            float slope = 2.0f * SQRT_2_OVER_PI * (1.0f + 3.0f * GELU_CUBIC * a[i] * a[i]);
            b[i] *= g + a[i] * g * (1.0f - g) * slope;
        }
        put(STORED, b, d, at, m);
    }
}

/* ---- norm ---- */

static void S(norm)(const void *x, const void *weight, const void *bias, void *y, float *mean, float *rstd, int64_t n)
{
    float m = sum(STORED, x, n) / (float)n;
    float r = 1.0f / sqrtf(squares_centred(STORED, x, m, n) / (float)n + NORM_EPSILON);
    float xs[SPAN], ws[SPAN], bs[SPAN], ys[SPAN];
    EACH_SPAN(STORED, at, k, n)
    {
        const float *restrict a = get(STORED, x, at, k, xs), *restrict w = get(STORED, weight, at, k, ws);
        const float *restrict b = get(STORED, bias, at, k, bs);
        float *restrict out = store_buffer(STORED, y, at, ys);
        for (int64_t i = 0; i < k; i++) out[i] = (a[i] - m) * r * w[i] + b[i];
        put(STORED, out, y, at, k);
    }
    *mean = m;
    *rstd = r;
}

static void S(norm_backward)(const void *x, const void *weight, const void *dy, float mean, float rstd,
                             const void *residual, void *dx, int64_t n)
{
    float m1 = dot(STORED, dy, weight, n) / (float)n;
    float m2 = dot_centred(STORED, dy, weight, x, mean, n) * rstd * rstd / (float)n;
    float xs[SPAN], ws[SPAN], dys[SPAN], rs[SPAN], dxs[SPAN];
    EACH_SPAN(STORED, at, k, n)
    {
        const float *a = get(STORED, x, at, k, xs), *w = get(STORED, weight, at, k, ws);
        const float *d = get(STORED, dy, at, k, dys), *more = residual ? get(STORED, residual, at, k, rs) : NULL;
        float *out = store_buffer(STORED, dx, at, dxs);
        if (more) {
            IVDEP for (int64_t i = 0; i < k; i++) out[i] = more[i] + rstd * (d[i] * w[i] - m1 - (a[i] - mean) * m2);
        } else {
            IVDEP for (int64_t i = 0; i < k; i++) out[i] = rstd * (d[i] * w[i] - m1 - (a[i] - mean) * m2);
        }
        put(STORED, out, dx, at, k);
    }
}

static void S(norm_weight_grad)(const void *x, const void *dy, const float *mean, const float *rstd, int64_t rows,
                                int64_t stride, int64_t n, float *dweight, float *dbias)
{
    float xs[SPAN], ds[SPAN];
    for (int64_t r = 0; r < rows; r++) EACH_SPAN(STORED, at, k, n)
        {
            const float *restrict a = get(STORED, x, r * stride + at, k, xs);
            const float *restrict d = get(STORED, dy, r * stride + at, k, ds);
            float *restrict w = dweight + at, *restrict b = dbias + at;
            float m = mean[r], s = rstd[r];
            for (int64_t i = 0; i < k; i++) {
                w[i] += d[i] * ((a[i] - m) * s);
                b[i] += d[i];
            }
        }
}

static void S(column_sum)(const void *x, int64_t rows, int64_t stride, int64_t n, float *out)
{
    float xs[SPAN];
    for (int64_t r = 0; r < rows; r++) EACH_SPAN(STORED, at, k, n)
        {
            const float *restrict a = get(STORED, x, r * stride + at, k, xs);
            float *restrict to = out + at;
            for (int64_t i = 0; i < k; i++) to[i] += a[i];
        }
}

/* ---- the rest ---- */

static void S(softmax_backward)(const void *p, float *dp, float dot, float scale, int64_t n)
{
    float ps[SPAN];
    EACH_SPAN(STORED, at, m, n)
    {
        const float *restrict a = get(STORED, p, at, m, ps);
        float *restrict d = dp + at;
        for (int64_t i = 0; i < m; i++) d[i] = a[i] * (d[i] - dot) * scale;
    }
}

static float S(dot)(const void *x, const void *y, int64_t n)
{
    return dot(STORED, x, y, n);
}

static void S(add)(const void *x, const void *y, void *z, int64_t n)
{
    float xs[SPAN], ys[SPAN], zs[SPAN];
    EACH_SPAN(STORED, at, m, n)
    {
        const float *a = get(STORED, x, at, m, xs), *b = get(STORED, y, at, m, ys);
        float *c = store_buffer(STORED, z, at, zs);
        IVDEP for (int64_t i = 0; i < m; i++) c[i] = a[i] + b[i];
        put(STORED, c, z, at, m);
    }
}

#include "common/kernels/simd_llama.h"

#undef STORED
#undef S
