/* Norms, element-wise loops, embedding and loss against FP64, from the same rounded inputs; odd widths, addresses that
   allow 16-byte loads and ones that do not. */
#include "common/kernels/cuda/ht_cuda_ops.h"
#include "tests/support/cuda_test.h"

/* One rounding of the result, and FP32's own errors. */
static double one_rounding(enum ht_dtype t)
{
    return 1.01 * roundoff(t) + 4e-6;
}

struct norm_case {
    enum ht_dtype dtype, grad, store;
    int64_t rows, width, shift;
    bool layer;
};

struct norm_reference {
    doubles y, stats, dx, dw, db;
};

static struct norm_reference norm_of(const struct norm_case &c, const floats &x, const floats &w, const floats &b,
                                     const floats &dy, const floats &res)
{
    int64_t n = c.width;
    struct norm_reference r;
    r.y.resize(x.size());
    r.dx.resize(x.size());
    r.dw.resize((size_t)n);
    r.db.resize((size_t)n);
    r.stats.resize((size_t)(c.layer ? 2 * c.rows : c.rows));
    for (int64_t i = 0; i < c.rows; i++) {
        const float *xi = &x[(size_t)(i * n)], *di = &dy[(size_t)(i * n)];
        double mean = 0, square = 0, m1 = 0, m2 = 0;
        for (int64_t k = 0; c.layer && k < n; k++) mean += (double)xi[k] / (double)n;
        for (int64_t k = 0; k < n; k++) square += ((double)xi[k] - mean) * ((double)xi[k] - mean) / (double)n;
        double s = 1 / sqrt(square + (c.layer ? 1e-5 : 1e-3));
        for (int64_t k = 0; k < n; k++) {
            double g = (double)di[k] * (double)w[(size_t)k], hat = ((double)xi[k] - mean) * s;
            r.y[(size_t)(i * n + k)] = hat * (double)w[(size_t)k] + (c.layer ? (double)b[(size_t)k] : 0);
            if (c.layer) m1 += g / (double)n;
            m2 += g * hat / (double)n;
            r.dw[(size_t)k] += (double)di[k] * hat;
            r.db[(size_t)k] += (double)di[k];
        }
        for (int64_t k = 0; k < n; k++) {
            double g = (double)di[k] * (double)w[(size_t)k], hat = ((double)xi[k] - mean) * s;
            r.dx[(size_t)(i * n + k)] = (double)res[(size_t)(i * n + k)] + s * (g - m1 - hat * m2);
        }
        if (c.layer) r.stats[(size_t)i] = mean;
        r.stats[(size_t)(c.layer ? c.rows + i : i)] = s;
    }
    return r;
}

static void check_norm(const struct norm_case &c)
{
    int64_t n = c.rows * c.width;
    floats x = numbers(1, n, 2, c.dtype), w = numbers(2, c.width, 1, c.dtype), b = numbers(3, c.width, 1, c.dtype);
    floats dy = numbers(4, n, 1, c.dtype), res = numbers(5, n, 1, c.dtype);
    struct norm_reference r = norm_of(c, x, w, b, dy, res);
    struct buffer bx = put(c.dtype, x, c.shift), bw = put(c.dtype, w, c.shift), bb = put(c.dtype, b, c.shift);
    struct buffer bdy = put(c.dtype, dy, c.shift), by = room(c.dtype, n, c.shift), bdx = put(c.dtype, res, c.shift);
    struct buffer stats = buffer_of((int64_t)r.stats.size() * 4), dw = room(c.store, c.width),
                  db = room(c.store, c.width);
    struct buffer scratch = buffer_of(ht_cuda_norm_scratch_bytes(c.width));
    struct buffer columns = buffer_of(ht_cuda_column_scratch_bytes(c.width));
    struct ht_cuda_norm_grad g = {c.grad, c.store, dw.at(), c.layer ? db.at() : NULL, (float *)scratch.at()};
    struct ht_cuda_norm norm = {c.dtype, c.rows, c.width, bw.at(), c.layer ? bb.at() : NULL, 1e-3f};
    ht_cuda_norm_forward(&cuda, &norm, bx.at(), by.at(), (float *)stats.at());
    expect_close("norm", get(c.dtype, by), r.y, one_rounding(c.dtype), 1e-5);
    expect_close("stats", get(HT_F32, stats), r.stats, 1e-5, 1e-6);
    ht_cuda_norm_backward(&cuda, &norm, bx.at(), bdy.at(), (const float *)stats.at(), bdx.at(), bdx.at(), &g);
    double grows = c.width < 8 ? 2e-3 : 4e-5; /* a row of few elements may be nearly constant: 1/std is large */
    expect_close("dx on top of residual", get(c.dtype, bdx), r.dx, one_rounding(c.dtype), grows);
    ht_cuda_norm_backward(&cuda, &norm, bx.at(), bdy.at(), (const float *)stats.at(), NULL, by.at(), &g);
    for (int64_t i = 0; i < n; i++) r.dx[(size_t)i] -= (double)res[(size_t)i];
    expect_close("dx", get(c.dtype, by), r.dx, one_rounding(c.dtype), grows);
    double sums = 1e-6 * (double)c.rows + 1e-5;
    floats got = get(c.store, dw);
    expect_close("dweight", got, r.dw, one_rounding(c.grad), sums);
    for (float g : got) expect(rounded(c.grad, g) == g, "a gradient of the weight is not rounded");
    if (c.layer) expect_close("dbias", get(c.store, db), r.db, one_rounding(c.grad), sums);
    ht_cuda_column_sum(&cuda, c.dtype, bdy.at(), c.rows, c.width, c.grad, c.store, db.at(), (float *)columns.at());
    expect_close("column sums", get(c.store, db), r.db, one_rounding(c.grad), sums);
    contents_of(scratch);
    contents_of(columns);
    for (struct buffer *f : {&bx, &bw, &bb, &bdy, &by, &bdx, &stats, &dw, &db, &scratch, &columns}) release(*f);
}

static void norms(void)
{
    for (enum ht_dtype t : every_type)
        for (bool layer : {true, false}) {
            check_norm({t, t, t, 3, 7, 0, layer});
            check_norm({t, t, HT_F32, 70, 64, 0, layer});
            check_norm({t, t, t, 33, 264, 0, layer});
            check_norm({t, HT_F32, HT_F32, 5, 264, 4, layer}); /* addresses that are odd */
            check_norm({t, t, t, 1, 1, 0, layer});
            check_norm({t, t, t, 2, 1501, 0, layer}); /* more than the threads keep */
            check_norm({t, t, HT_F32, 2, 8808, 0, layer});
        }
    if (emulated) return;
    for (enum ht_dtype t : every_type)
        for (bool layer : {true, false}) {
            check_norm({t, t, t, 4099, 768, 0, layer});
            check_norm({t, t, t, 65, 12288, 0, layer});
            check_norm({t, t, t, 300, 1001, 0, layer});
        }
}

/* ---- element by element ---- */

static void check_activation(enum ht_dtype t, int64_t rows, int64_t F, int64_t shift)
{
    int64_t n = rows * F;
    floats x = numbers(1, n, 6, t), d = numbers(2, n, 1, t), two = numbers(3, 2 * n, 6, t),
           dy = numbers(4, 2 * n, 1, t);
    doubles y, dx, s((size_t)n), ds((size_t)(2 * n));
    for (int64_t i = 0; i < n; i++) {
        double v = (double)x[(size_t)i], c = sqrt(2 / M_PI), u = c * (v + 0.044715 * v * v * v), th = tanh(u);
        y.push_back(v / 2 * (1 + th));
        dx.push_back((double)d[(size_t)i] * ((1 + th) / 2 + v / 2 * (1 - th * th) * c * (1 + 3 * 0.044715 * v * v)));
        int64_t at = i / F * 2 * F + i % F;
        double g = (double)two[(size_t)at], up = (double)two[(size_t)(at + F)], sig = 1 / (1 + exp(-g));
        double from = (double)dy[(size_t)(at + F)];
        s[(size_t)i] = g * sig * up;
        ds[(size_t)at] = from * up * (sig + g * sig * (1 - sig));
        ds[(size_t)(at + F)] = from * g * sig;
    }
    struct buffer bx = put(t, x, shift), bd = put(t, d, shift), by = room(t, n, shift);
    struct buffer b2 = put(t, two, shift), b2d = put(t, dy, shift);
    ht_cuda_gelu(&cuda, t, bx.at(), by.at(), n);
    expect_close("gelu", get(t, by), y, one_rounding(t), 1e-6);
    ht_cuda_gelu_backward(&cuda, t, bx.at(), bd.at(), n);
    expect_close("gelu backward", get(t, bd), dx, one_rounding(t), 1e-6);
    ht_cuda_swiglu(&cuda, t, b2.at(), by.at(), rows, F);
    expect_close("swiglu", get(t, by), s, one_rounding(t), 1e-6);
    ht_cuda_swiglu_backward(&cuda, t, b2.at(), b2d.at(), rows, F);
    expect_close("swiglu backward", get(t, b2d), ds, one_rounding(t), 4e-6);
    for (struct buffer *f : {&bx, &bd, &by, &b2, &b2d}) release(*f);
}

/* GELU where its exponential overflows. */
static void far_out(enum ht_dtype t)
{
    floats x = {-1e4f, -60, -12, 0, 12, 60, 1e4f, -0.0f}, d(8, 1), y = {0, 0, 0, 0, 12, 60, 1e4f, 0};
    floats slope = {0, 0, 0, 0.5f, 1, 1, 1, 0.5f};
    for (float &v : x) v = rounded(t, v);
    for (float &v : y) v = rounded(t, v);
    struct buffer bx = put(t, x), bd = put(t, d), by = room(t, 8);
    ht_cuda_gelu(&cuda, t, bx.at(), by.at(), 8);
    ht_cuda_gelu_backward(&cuda, t, bx.at(), bd.at(), 8);
    expect_close("gelu far out", get(t, by), y, 0, 1e-6);
    expect_close("its slope", get(t, bd), slope, 0, 1e-6);
    for (struct buffer *f : {&bx, &bd, &by}) release(*f);
}

static void activations(void)
{
    for (enum ht_dtype t : every_type) {
        check_activation(t, 3, 64, 0);
        check_activation(t, 5, 7, 0);
        check_activation(t, 3, 64, 4);
        if (!emulated) check_activation(t, 1031, 3072, 0);
        far_out(t);
    }
}

static void check_rotate(enum ht_dtype t, int64_t B, int64_t T, int64_t heads, int64_t D, int64_t stride)
{
    int64_t n = B * T * stride;
    floats x = numbers(1, n, 1, t);
    doubles there(x.begin(), x.end());
    for (int64_t r = 0; r < B * T; r++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t d = 0; d < D / 2; d++) {
                double *low = &there[(size_t)(r * stride + h * D + d)], *high = low + D / 2, a = *low, b = *high;
                double angle = (double)(r % T) * pow(10000, -2.0 * (double)d / (double)D);
                *low = a * cos(angle) - b * sin(angle);
                *high = b * cos(angle) + a * sin(angle);
            }
    struct buffer bx = put(t, x);
    ht_cuda_rotate(&cuda, t, bx.at(), B, T, heads, D, stride, 10000, false);
    expect_close("rotated", get(t, bx), there, one_rounding(t), 1e-6);
    ht_cuda_rotate(&cuda, t, bx.at(), B, T, heads, D, stride, 10000, true);
    expect_close("and back", get(t, bx), x, 3 * one_rounding(t), 3 * one_rounding(t));
    release(bx);
}

static void rotary(void)
{
    for (enum ht_dtype t : every_type) {
        check_rotate(t, 2, 5, 3, 8, 40);
        check_rotate(t, 1, 33, 2, 80, 171);
        check_rotate(t, 3, 4, 1, 128, 128);
        if (!emulated) check_rotate(t, 2, 2000, 12, 128, 2048);
    }
}

/* Bits: every 16-bit number to FP32 and back, ties, and sums rounded once. */
static void rounding(void)
{
    int64_t n = emulated ? 4100 : 1 << 20; /* four at a time where addresses allow it */
    floats x = numbers(1, n, 3, HT_F32), y = numbers(2, n, 3, HT_F32);
    for (int64_t i = 0; i < 64; i++) x[(size_t)i] = ht_bits_float(0x3f800000u + ((uint32_t)i << 11)); /* ties of both */
    x[64] = 65519;
    x[65] = 65520;
    x[66] = 1e-8f;
    x[67] = -1e-40f;
    x[68] = 3.4e38f;
    x[69] = INFINITY;
    for (enum ht_dtype from : every_type)
        for (enum ht_dtype to : every_type)
            for (int64_t shift : {0, 4}) {
                floats a = x, expected, sum;
                for (int64_t i = 0; i < n; i++) {
                    a[(size_t)i] = rounded(from, x[(size_t)i]);
                    expected.push_back(rounded(to, a[(size_t)i]));
                    sum.push_back(rounded(to, expected.back() + rounded(from, y[(size_t)i])));
                }
                struct buffer ba = put(from, a, shift), by = put(from, y, shift), bt = room(to, n, shift);
                ht_cuda_convert(&cuda, from, ba.at(), to, bt.at(), n);
                expect_bits("converted", get(to, bt), expected);
                ht_cuda_accumulate(&cuda, to, bt.at(), from, by.at(), n);
                expect_bits("accumulated", get(to, bt), sum);
                if (from == HT_F32) {
                    ht_cuda_round(&cuda, to, (float *)ba.at(), n);
                    expect_bits("rounded", get(HT_F32, ba), expected);
                }
                for (struct buffer *f : {&ba, &by, &bt}) release(*f);
            }
}

/* ---- embedding ---- */

struct embed_case {
    enum ht_dtype dtype, grad, store;
    int64_t B, T, C, V, max_seq;
    bool positions, tied;
};

static void check_embed(const struct embed_case &c)
{
    int64_t n = c.B * c.T, C = c.C;
    floats wte = numbers(1, c.V * C, 1, c.dtype), wpe = numbers(2, c.max_seq * C, 1, c.dtype);
    floats dout = numbers(3, n * C, 1, c.dtype), before = numbers(4, c.V * C, 1, c.grad);
    std::vector<int32_t> tokens = token_list(5, n, c.V);
    floats out((size_t)(n * C)), dwte = before, dwpe((size_t)(c.max_seq * C), 0);
    if (!c.tied) dwte.assign(dwte.size(), 0);
    for (int64_t r = 0; r < n; r++)
        for (int64_t k = 0; k < C; k++) {
            float token = wte[(size_t)(tokens[(size_t)r] * C + k)], sum = token + wpe[(size_t)(r % c.T * C + k)];
            out[(size_t)(r * C + k)] = rounded(c.dtype, c.positions ? sum : token);
            dwte[(size_t)(tokens[(size_t)r] * C + k)] += dout[(size_t)(r * C + k)]; /* FP32, in the tokens' order */
        }
    for (int64_t t = 0; t < c.T; t++)
        for (int64_t k = 0; k < C; k++)
            for (int64_t b = 0; b < c.B; b++) dwpe[(size_t)(t * C + k)] += dout[(size_t)((b * c.T + t) * C + k)];
    for (float &v : dwte) v = rounded(c.grad, v);
    for (float &v : dwpe) v = rounded(c.grad, v);
    struct buffer bt = buffer_with(tokens.data(), 4 * n), bw = put(c.dtype, wte), bp = put(c.dtype, wpe);
    struct buffer bo = room(c.dtype, n * C), bd = put(c.dtype, dout), dw = put(c.store, before);
    struct buffer dp = room(c.store, c.max_seq * C), scratch = buffer_of(ht_cuda_embed_scratch_bytes(n, c.V));
    ht_cuda_embed(&cuda, c.dtype, (const int32_t *)bt.at(), 0, c.V, bw.at(), c.positions ? bp.at() : NULL, NULL,
                  bo.at(), c.B, c.T, C);
    expect_bits("embedding", get(c.dtype, bo), out);
    ht_cuda_embed_backward(&cuda, c.dtype, (const int32_t *)bt.at(), bd.at(), c.grad, c.store, dw.at(),
                           c.positions ? dp.at() : NULL, c.tied, c.B, c.T, C, 0, c.V, c.max_seq,
                           (int32_t *)scratch.at());
    expect_bits("dwte", get(c.store, dw), dwte);
    if (c.positions) expect_bits("dwpe", get(c.store, dp), dwpe);
    for (struct buffer *f : {&bt, &bw, &bp, &bo, &bd, &dw, &dp, &scratch}) release(*f);
}

static void embedding(void)
{
    for (enum ht_dtype t : every_type) {
        check_embed({t, t, t, 2, 37, 40, 11, 50, true, true});
        check_embed({t, t, HT_F32, 3, 5, 7, 100, 5, true, false});
        check_embed({t, HT_F32, HT_F32, 1, 300, 9, 3, 300, false, true});
    }
    check_embed({HT_F32, HT_F32, HT_F32, 1, 6, 2100, 4, 6, false, false});    /* more columns than a block sums */
    check_embed({HT_BF16, HT_BF16, HT_BF16, 1, 9, 2064, 4, 9, true, true});   /* the same in 16 bit */
    check_embed({HT_F32, HT_F32, HT_F32, 1, 5000, 4, 2, 5000, false, true});  /* more of a kind than are sorted */
    check_embed({HT_F32, HT_F32, HT_F32, 1, 2048, 3, 1, 2048, false, false}); /* as many */
    check_embed({HT_F16, HT_F32, HT_F32, 2, 40, 8, 9001, 40, false, true});   /* more kinds than a turn counts */
    if (emulated) return;
    for (enum ht_dtype t : every_type) check_embed({t, t, t, 4, 1024, 768, 5003, 1024, true, true});
}

/* ---- loss ---- */

/* Returns the gradients and the losses of the rows, whose logits lie V + padding apart with NaN between them. */
static std::vector<unsigned char> check_loss(enum ht_dtype t, int64_t rows, int64_t V, int64_t padding, float size)
{
    int64_t stride = V + padding;
    floats logits = numbers(1, rows * V, size, HT_F32), padded((size_t)(rows * stride), NAN);
    std::vector<int32_t> targets = token_list(2, rows, V);
    doubles d((size_t)(rows * V)), losses;
    double scale = 0.25, all = 0;
    for (int64_t r = 0; r < rows; r++) {
        double max = -INFINITY, sum = 0, *dr = &d[(size_t)(r * V)];
        const float *x = &logits[(size_t)(r * V)];
        for (int64_t v = 0; v < V; v++) max = fmax(max, (double)x[v]);
        for (int64_t v = 0; v < V; v++) sum += exp((double)x[v] - max);
        for (int64_t v = 0; v < V; v++)
            dr[v] = (exp((double)x[v] - max) / sum - (v == targets[(size_t)r] ? 1 : 0)) * scale;
        std::copy(x, x + V, &padded[(size_t)(r * stride)]);
        losses.push_back(max + log(sum) - (double)x[targets[(size_t)r]]);
        all += losses.back();
    }
    struct buffer bl = put(HT_F32, padded), bt = buffer_with(targets.data(), 4 * rows), br = buffer_of(8 * rows);
    struct buffer bs = buffer_of(8);
    ht_cuda_cross_entropy(&cuda, t, (float *)bl.at(), (const int32_t *)bt.at(), rows, V, stride, (float)scale,
                          (double *)br.at());
    ht_cuda_sum(&cuda, (const double *)br.at(), rows, (double *)bs.at());
    std::vector<unsigned char> bytes = bytes_of(bl), sum = bytes_of(bs), each = bytes_of(br);
    floats got;
    for (int64_t i = 0; i < rows * V; i++) { /* row r of 16-bit elements starts where the row of logits did */
        int64_t at = t == HT_F32 ? 4 * (i / V * stride + i % V) : 4 * (i / V * stride) + 2 * (i % V);
        float f;
        uint16_t h;
        memcpy(&f, &bytes[(size_t)at], t == HT_F32 ? 4 : 0);
        memcpy(&h, &bytes[(size_t)at], 2);
        got.push_back(t == HT_F32 ? f : t == HT_F16 ? ht_f16_to_f32(h) : ht_bf16_to_f32(h));
    }
    /* FP16's smallest step is 2^-24. */
    expect_close("dlogits", got, d, one_rounding(t) + 1e-5, t == HT_F16 ? 3.1e-8 : 1e-8);
    double total;
    memcpy(&total, sum.data(), 8);
    expect(fabs(total - all) <= 1e-6 * fabs(all) + 1e-6, "loss %.12g, expected %.12g", total, all);
    for (int64_t r = 0; r < rows; r++) {
        double loss;
        memcpy(&loss, &each[(size_t)(8 * r)], 8);
        expect(fabs(loss - losses[(size_t)r]) <= 2e-6 * fabs(losses[(size_t)r]) + 1e-6, "row %d's loss", (int)r);
    }
    for (int64_t i = V; i < rows * stride; i++) /* nothing between rows */
        expect(i % stride < V || memcmp(&bytes[(size_t)(4 * i)], &padded[(size_t)i], 4) == 0, "padding was written");
    for (struct buffer *f : {&bl, &bt, &br, &bs}) release(*f);
    const unsigned char *gradients = (const unsigned char *)got.data();
    each.insert(each.end(), gradients, gradients + 4 * got.size());
    return each;
}

/* Padding changes no bit. */
static void check_losses(enum ht_dtype t, int64_t rows, int64_t V, int64_t padding, float size)
{
    expect(check_loss(t, rows, V, padding, size) == check_loss(t, rows, V, 0, size), "padding changes bits");
}

/* 0 + 1 + .. + n-1, exact in any order: more than the threads of a block. */
static void check_sum(int64_t n)
{
    doubles x((size_t)n);
    for (int64_t i = 0; i < n; i++) x[(size_t)i] = (double)i;
    struct buffer bx = buffer_with(x.data(), 8 * n), bs = buffer_of(8);
    ht_cuda_sum(&cuda, (const double *)bx.at(), n, (double *)bs.at());
    double sum;
    memcpy(&sum, bytes_of(bs).data(), sizeof(sum));
    expect(sum == (double)(n * (n - 1) / 2), "the sum of %lld numbers is %.17g", (long long)n, sum);
    release(bx);
    release(bs);
}

static void loss(void)
{
    check_sum(3000);
    for (enum ht_dtype t : every_type) {
        check_losses(t, 3, 5, 27, 1);
        check_losses(t, 2, 513, 31, 10);
        check_losses(t, 3, 4609, 31, 80);
        if (!emulated) check_losses(t, 301, 50257, 15, 5);
    }
}

CUDA_TEST_MAIN({"norms", norms}, {"activations", activations}, {"rotary", rotary}, {"rounding", rounding},
               {"embedding", embedding}, {"loss", loss})
