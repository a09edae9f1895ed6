/*
 * LLaMA's part of simd_stored.h, compiled once for each level and storage type. The rules are those of simd_body.h:
 * sums in 16 lanes, nothing contracted, the same bits everywhere.
 */

/* ---- RMSNorm ---- */

static void S(rms_norm)(const void *x, const void *weight, float eps, void *y, float *rrms, int64_t n)
{
    float r = 1.0f / sqrtf(dot(STORED, x, x, n) / (float)n + eps);
    float xs[SPAN], ws[SPAN], ys[SPAN];
    EACH_SPAN(STORED, at, m, n)
    {
        const float *restrict a = get(STORED, x, at, m, xs), *restrict w = get(STORED, weight, at, m, ws);
        float *restrict out = store_buffer(STORED, y, at, ys);
        for (int64_t i = 0; i < m; i++) out[i] = a[i] * r * w[i];
        put(STORED, out, y, at, m);
    }
    *rrms = r;
}

/* y = x r w with r = (mean x^2 + eps)^(-1/2), so dr/dx_i = -r^3 x_i / n and dx = r (dy w - x r^2 mean(dy w x)). */
static void S(rms_norm_backward)(const void *x, const void *weight, const void *dy, float rrms, const void *residual,
                                 void *dx, int64_t n)
{
    float mean = dot_three(STORED, dy, weight, x, n) * rrms * rrms / (float)n;
    float xs[SPAN], ws[SPAN], dys[SPAN], rs[SPAN], dxs[SPAN];
    EACH_SPAN(STORED, at, m, n)
    {
        const float *a = get(STORED, x, at, m, xs), *w = get(STORED, weight, at, m, ws);
        const float *d = get(STORED, dy, at, m, dys), *more = residual ? get(STORED, residual, at, m, rs) : NULL;
        float *out = store_buffer(STORED, dx, at, dxs);
        if (more) {
            IVDEP for (int64_t i = 0; i < m; i++) out[i] = more[i] + rrms * (d[i] * w[i] - a[i] * mean);
        } else {
            IVDEP for (int64_t i = 0; i < m; i++) out[i] = rrms * (d[i] * w[i] - a[i] * mean);
        }
        put(STORED, out, dx, at, m);
    }
}

static void S(rms_norm_weight_grad)(const void *x, const void *dy, const float *rrms, int64_t rows, int64_t stride,
                                    int64_t n, float *dweight)
{
    float xs[SPAN], ds[SPAN];
    for (int64_t r = 0; r < rows; r++) EACH_SPAN(STORED, at, m, n)
        {
            const float *restrict a = get(STORED, x, r * stride + at, m, xs);
            const float *restrict d = get(STORED, dy, r * stride + at, m, ds);
            float *restrict w = dweight + at, s = rrms[r];
            for (int64_t i = 0; i < m; i++) w[i] += d[i] * (a[i] * s);
        }
}

/* ---- SwiGLU ---- */

static void S(swiglu)(const void *gate, const void *up, void *y, int64_t n)
{
    float gs[SPAN], us[SPAN], ys[SPAN];
    EACH_SPAN(STORED, at, m, n)
    {
        const float *restrict g = get(STORED, gate, at, m, gs), *restrict u = get(STORED, up, at, m, us);
        float *restrict out = store_buffer(STORED, y, at, ys);
        for (int64_t i = 0; i < m; i++) out[i] = g[i] * sigmoid(g[i]) * u[i];
        put(STORED, out, y, at, m);
    }
}

/* silu'(g) = s + g s (1 - s), s = sigmoid(g). d: of y in, of up out. */
static void S(swiglu_backward)(const void *gate, const void *up, void *dgate, void *d, int64_t n)
{
    float gs[SPAN], us[SPAN], dgs[SPAN], ds[SPAN];
    EACH_SPAN(STORED, at, m, n)
    {
        const float *restrict gates = get(STORED, gate, at, m, gs), *restrict ups = get(STORED, up, at, m, us);
        float *restrict out = store_buffer(STORED, dgate, at, dgs), *restrict dys = get(STORED, d, at, m, ds);
        for (int64_t i = 0; i < m; i++) {
            float g = gates[i], s = sigmoid(g), dy = dys[i];
            out[i] = dy * ups[i] * (s + g * s * (1.0f - s));
            dys[i] = dy * (g * s);
        }
        put(STORED, out, dgate, at, m);
        put(STORED, dys, d, at, m);
    }
}

/* ---- rotary positions ---- */

static void S(rotate)(const float *cosine, const float *sine, void *low, void *high, int64_t n)
{
    float ls[SPAN], hs[SPAN];
    EACH_SPAN(STORED, at, m, n)
    {
        float *restrict a = get(STORED, low, at, m, ls), *restrict b = get(STORED, high, at, m, hs);
        const float *restrict c = cosine + at, *restrict s = sine + at;
        for (int64_t i = 0; i < m; i++) {
            float l = a[i], h = b[i];
            a[i] = l * c[i] - h * s[i];
            b[i] = h * c[i] + l * s[i];
        }
        put(STORED, a, low, at, m);
        put(STORED, b, high, at, m);
    }
}
