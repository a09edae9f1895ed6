/* Attention against FP64, from the same rounded inputs: all ways, head sizes, shared keys, odd lengths, causal and
   bidirectional. Gradients that are rotated as they are written against the rotation on its own. */
#include "common/kernels/cuda/ht_cuda_attention.h"
#include "common/kernels/cuda/ht_cuda_ops.h"

#include <string>

#include "tests/support/cuda_test.h"

struct shape {
    enum ht_dtype dtype;
    int64_t B, T, H, KV, D;
    bool flash;
    float size; /* of q and k */
    bool bidirectional = false;
    float shift = 0; /* added to q, subtracted from k: makes all scores negative */
};

struct reference {
    doubles out, lse, probs, dqkv;
};

/* Plain loops over every pair of tokens. out and dout as the kernels see them: stored, so rounded. */
static struct reference reference_of(const struct shape &s, const floats &qkv, const floats &dout)
{
    int64_t C = s.H * s.D, K = s.KV * s.D, W = C + 2 * K, T = s.T;
    struct reference r;
    r.out.resize((size_t)(s.B * T * C));
    r.lse.resize((size_t)(s.B * s.H * T));
    r.probs.resize((size_t)(s.B * s.H * T * T));
    r.dqkv.resize((size_t)(s.B * T * W));
    double scale = 1 / sqrt((double)s.D);
    for (int64_t b = 0; b < s.B; b++)
        for (int64_t h = 0; h < s.H; h++) {
            const float *q = &qkv[(size_t)(b * T * W + h * s.D)];
            const float *k = &qkv[(size_t)(b * T * W + C + h / (s.H / s.KV) * s.D)], *v = k + K;
            double *dq = &r.dqkv[(size_t)(q - qkv.data())], *dk = &r.dqkv[(size_t)(k - qkv.data())], *dv = dk + K;
            for (int64_t i = 0; i < T; i++) {
                double *p = &r.probs[(size_t)(((b * s.H + h) * T + i) * T)], sum = 0, max = -INFINITY, dot = 0;
                int64_t keys = s.bidirectional ? T : i + 1;
                const float *d = &dout[(size_t)((b * T + i) * C + h * s.D)];
                double *o = &r.out[(size_t)((b * T + i) * C + h * s.D)];
                for (int64_t j = 0; j < keys; j++) {
                    for (int64_t e = 0; e < s.D; e++) p[j] += (double)q[i * W + e] * (double)k[j * W + e] * scale;
                    max = fmax(max, p[j]);
                }
                for (int64_t j = 0; j < keys; j++) sum += p[j] = exp(p[j] - max);
                for (int64_t j = 0; j < keys; j++)
                    for (int64_t e = 0; e < s.D; e++) o[e] += p[j] / sum * (double)v[j * W + e];
                for (int64_t e = 0; e < s.D; e++) dot += o[e] * (double)d[e];
                r.lse[(size_t)((b * s.H + h) * T + i)] = max + log(sum);
                for (int64_t j = 0; j < keys; j++) {
                    double dp = 0;
                    p[j] /= sum;
                    for (int64_t e = 0; e < s.D; e++) dp += (double)d[e] * (double)v[j * W + e];
                    double ds = p[j] * (dp - dot) * scale;
                    for (int64_t e = 0; e < s.D; e++) {
                        dq[i * W + e] += ds * (double)k[j * W + e];
                        dk[j * W + e] += ds * (double)q[i * W + e];
                        dv[j * W + e] += p[j] * (double)d[e];
                    }
                }
            }
        }
    return r;
}

static struct ht_model model_of(const struct shape &s)
{
    struct ht_model m = {};
    m.width = s.H * s.D;
    m.heads = s.H;
    m.kv_heads = s.KV;
    m.flash = s.flash;
    return m;
}

/* Describes a shape's attention; the buffers are the caller's. */
static struct ht_cuda_attention attention_of(const struct shape &s)
{
    struct ht_cuda_attention a = {};
    a.dtype = s.dtype;
    a.batch = s.B;
    a.seq = s.T;
    a.heads = s.H;
    a.kv_heads = s.KV;
    a.head_size = s.D;
    a.bidirectional = s.bidirectional;
    return a;
}

static void check_as(const struct shape &s)
{
    int64_t C = s.H * s.D, W = C + 2 * s.KV * s.D, n = s.B * s.T;
    floats qkv = numbers(1, n * W, s.size, s.dtype), dout = numbers(2, n * C, 1, s.dtype);
    for (int64_t i = 0; i < n * W; i++)
        if (i % W < C + s.KV * s.D)
            qkv[(size_t)i] = rounded(s.dtype, qkv[(size_t)i] + (i % W < C ? s.shift : -s.shift));
    struct reference r = reference_of(s, qkv, dout);
    struct ht_model m = model_of(s);
    struct buffer in = put(s.dtype, qkv), out = room(s.dtype, n * C), d = put(s.dtype, dout);
    struct buffer dqkv = room(s.dtype, n * W), lse = buffer_of(s.B * s.H * s.T * 4);
    struct buffer probs = room(s.dtype, s.flash ? 0 : s.B * s.H * s.T * s.T);
    struct buffer small = buffer_of(ht_cuda_attention_scratch_bytes(&m, s.B, s.T, false));
    struct buffer large = buffer_of(ht_cuda_attention_scratch_bytes(&m, s.B, s.T, true));
    struct ht_cuda_attention a = attention_of(s);
    a.qkv = in.at();
    a.out = out.at();
    a.lse = s.flash ? (float *)lse.at() : NULL;
    a.probs = s.flash ? NULL : probs.at();
    a.scratch = (float *)small.at();
    ht_cuda_attention_forward(&cuda, &a);
    a.scratch = (float *)large.at();
    a.dout = d.at();
    a.dqkv = dqkv.at();
    ht_cuda_attention_backward(&cuda, &a);
    char what[128];
    snprintf(what, sizeof(what), "%s B %d T %d H %d KV %d D %d %s%s:", ht_dtype_name(s.dtype), (int)s.B, (int)s.T,
             (int)s.H, (int)s.KV, (int)s.D, s.flash ? "lse" : "probs", s.bidirectional ? " bidirectional" : "");
    std::string name = what;
    /* Probabilities enter products rounded: one roundoff each, and one of the result. An element of out is an average
       of values up to `size`, of dqkv a sum of terms that grow with it. */
    double u = roundoff(s.dtype) + 1e-6 + 2e-6 * s.shift * s.shift; /* scores of -8 shift^2 are rounded in FP32 */
    expect_close((name + " out").c_str(), get(s.dtype, out), r.out, 2 * u, 2 * u * s.size);
    if (s.flash)
        expect_close((name + " lse").c_str(), get(HT_F32, lse), r.lse, 1e-5, 3e-5);
    else
        expect_close((name + " probs").c_str(), get(s.dtype, probs), r.probs, 2 * u + 4e-6, 1e-7);
    floats back = get(s.dtype, dqkv);
    expect_near((name + " dqkv").c_str(), back, r.dqkv, 2 * u);
    expect_close((name + " dqkv").c_str(), back, r.dqkv, 4 * u, 8 * u * s.size);
    contents_of(small);
    contents_of(in);
    for (struct buffer *b : {&in, &out, &d, &dqkv, &lse, &probs, &small, &large}) release(*b);
}

/* Checks a shape with causal and with bidirectional attention. */
static void check(struct shape s)
{
    check_as(s);
    s.bidirectional = true;
    check_as(s);
}

/* Scores of about -128 (4 x -4 x 64 / 8): the exponential of minus their sum is infinite. Where a tile has more keys than
   there are, no such number may meet the zeros beyond the last key. */
static void far_below_zero(void)
{
    for (enum ht_dtype t : every_type) check({t, 1, 67, 1, 1, 64, true, 1, false, 4});
}

/* Every head size of the tensor cores, lengths around their tiles, with and without shared keys. */
static void tensor_cores(void)
{
    static const int64_t D[] = {64, 80, 96, 128};
    for (int64_t d : D) {
        check({HT_BF16, 1, 1, 1, 1, d, true, 1});
        check({HT_F16, SANITIZED ? 1 : 2, 67, 2, 1, d, true, 2});
        if (!SANITIZED) check({HT_BF16, 1, 130, 1, 1, d, true, 1});
    }
    /* Two blocks of rows, and many turns through the other side's. */
    check({HT_BF16, 1, 161, 1, 1, SANITIZED ? 64 : 128, true, 4});
    if (emulated && SANITIZED) return;
    check({HT_BF16, 1, 128, 2, 1, 64, true, 1});
    check({HT_F16, 1, 260, 1, 1, 64, true, 3});
    if (emulated) return;
    check({HT_BF16, 2, 161, 2, 1, 128, true, 4});
    check({HT_BF16, 1, 128, 4, 2, 64, true, 1});
    for (int64_t d : D)
        for (enum ht_dtype t : {HT_F16, HT_BF16})
            for (int64_t T : {1, 63, 64, 65, 127, 129, 300}) check({t, 2, T, 2, 1, d, true, 2});
    check({HT_F16, 1, 200, 3, 1, 64, true, 4});
    check({HT_BF16, 2, 1000, 4, 2, 128, true, 1});
    check({HT_F16, 1, 1025, 3, 3, 64, true, 3});
    check({HT_BF16, 1, 513, 4, 4, 96, true, 1});
    check({HT_F16, 1, 640, 4, 1, 80, true, 1});
}

static void general(void)
{
    for (enum ht_dtype t : every_type) {
        check({t, 2, 5, 2, 2, 8, true, 1});
        check({t, 1, 70, 2, 1, 20, true, 2});
        check({t, 1, 33, 1, 1, 160, true, 1});
        check({t, 1, 9, 3, 3, 7, true, 1});
    }
    check({HT_F32, 1, 130, 2, 1, 64, true, 1});
    check({HT_F32, 1, 65, 1, 1, 128, true, 1});
    check({HT_F32, 1, 40, 1, 1, 256, true, 1});
    if (emulated) return;
    check({HT_F32, 2, 513, 4, 2, 128, true, 1});
    check({HT_F32, 1, 300, 2, 2, 256, true, 1});
}

static void kept_probabilities(void)
{
    for (enum ht_dtype t : every_type) {
        check({t, 2, 9, 3, 3, 8, false, 1});
        check({t, 2, 33, 4, 2, 16, false, 2});
        check({t, 1, 40, 4, 1, 64, false, 1});
    }
    if (emulated) return;
    check({HT_BF16, 2, 512, 3, 3, 64, false, 1});
    check({HT_F16, 1, 1024, 4, 2, 128, false, 1});
    check({HT_F32, 1, 257, 3, 3, 80, false, 1});
}

/* Computes dqkv, rotated back in the pass or behind it. Returns it as stored. */
static floats gradients(const struct shape &s, struct ht_cuda_attention a, struct ht_model m, bool apart)
{
    enum { THETA = 10000 };
    int64_t W = (s.H + 2 * s.KV) * s.D, n = s.B * s.T;
    struct buffer dqkv = room(s.dtype, n * W), turns = buffer_of(ht_cuda_attention_turns_bytes(&m, s.T));
    struct buffer scratch = buffer_of(ht_cuda_attention_scratch_bytes(&m, s.B, s.T, true));
    a.scratch = (float *)scratch.at();
    a.dqkv = dqkv.at();
    a.rope_theta = apart ? 0 : THETA;
    a.turns = (float *)turns.at();
    ht_cuda_attention_backward(&cuda, &a);
    if (apart) ht_cuda_rotate(&cuda, s.dtype, dqkv.at(), s.B, s.T, s.H + s.KV, s.D, W, THETA, true);
    contents_of(scratch);
    contents_of(turns);
    floats got = get(s.dtype, dqkv);
    for (struct buffer *b : {&dqkv, &turns, &scratch}) release(*b);
    return got;
}

static void check_rotated(const struct shape &s)
{
    int64_t C = s.H * s.D, W = C + 2 * s.KV * s.D, n = s.B * s.T;
    struct ht_model m = model_of(s);
    m.arch = HT_ARCH_LLAMA;
    struct buffer in = put(s.dtype, numbers(1, n * W, s.size, s.dtype)), out = room(s.dtype, n * C);
    struct buffer d = put(s.dtype, numbers(2, n * C, 1, s.dtype)), lse = buffer_of(s.B * s.H * s.T * 4);
    struct buffer probs = room(s.dtype, s.flash ? 0 : s.B * s.H * s.T * s.T);
    struct buffer scratch = buffer_of(ht_cuda_attention_scratch_bytes(&m, s.B, s.T, false));
    struct ht_cuda_attention a = attention_of(s);
    a.qkv = in.at();
    a.out = out.at();
    a.lse = s.flash ? (float *)lse.at() : NULL;
    a.probs = s.flash ? NULL : probs.at();
    a.scratch = (float *)scratch.at();
    ht_cuda_attention_forward(&cuda, &a);
    a.dout = d.at();
    expect_bits("rotated back", gradients(s, a, m, false), gradients(s, a, m, true));
    for (struct buffer *b : {&in, &out, &d, &lse, &probs, &scratch}) release(*b);
}

static void rotary(void)
{
    check_rotated({HT_BF16, 1, 130, 1, 1, 64, true, 1}); /* two blocks of rows */
    check_rotated({HT_BF16, 1, 19, 1, 1, 64, true, 1, true});
    check_rotated({HT_F16, 1, 35, 2, 1, 80, true, 1});
    check_rotated({HT_BF16, 1, 35, 1, 1, 96, true, 1});
    check_rotated({HT_F16, 1, 35, 1, 1, 128, true, 1});
    for (enum ht_dtype t : every_type) {
        check_rotated({t, 2, 9, 2, 1, 20, true, 2});
        check_rotated({t, 1, 18, 1, 1, 160, true, 1});
        check_rotated({t, 2, 9, 4, 2, 16, false, 1});
    }
    if (emulated) return;
    for (enum ht_dtype t : every_type)
        for (int64_t d : {64, 80, 96, 128})
            for (int64_t T : {1, 127, 1025}) check_rotated({t, 2, T, 4, 2, d, true, 1});
    check_rotated({HT_BF16, 1, 512, 4, 2, 128, false, 1});
}

CUDA_TEST_MAIN({"tensor_cores", tensor_cores}, {"general", general}, {"far_below_zero", far_below_zero},
               {"kept_probabilities", kept_probabilities}, {"rotary", rotary})
