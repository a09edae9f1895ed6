/* Matrix products against FP64: cuBLASLt's (on the CPU a stand-in) and our own slow ones; every transposition, odd
   sizes, biases, additions, batches. */
#include "common/kernels/cuda/gemm_plain.cuh"
#include "tests/support/cuda_test.h"

struct product_case {
    enum ht_dtype in, out;
    bool at, bt;
    int64_t m, n, k, pad, count;
    bool bias, add;
    int64_t shift; /* elements that matrices are off their alignment */
};

static void check(const struct product_case &c, bool plain)
{
    int64_t ar = c.at ? c.k : c.m, ac = (c.at ? c.m : c.k) + c.pad, br = c.bt ? c.n : c.k,
            bc = (c.bt ? c.k : c.n) + c.pad;
    int64_t cc = c.n + c.pad, a_step = ar * ac, b_step = br * bc, c_step = c.m * cc;
    floats a = numbers(1, c.count * a_step, 1, c.in), b = numbers(2, c.count * b_step, 1, c.in);
    floats old = numbers(3, c.count * c_step, 1, c.out), bias = numbers(4, c.n, 1, c.out);
    doubles expected(old.begin(), old.end());
    double largest = 0; /* of the products alone */
    for (int64_t i = 0; i < c.count; i++)
        for (int64_t r = 0; r < c.m; r++)
            for (int64_t q = 0; q < c.n; q++) {
                double &e = expected[(size_t)(i * c_step + r * cc + q)], product = 0;
                for (int64_t k = 0; k < c.k; k++)
                    product += (double)a[(size_t)(i * a_step + (c.at ? k * ac + r : r * ac + k))] *
                               (double)b[(size_t)(i * b_step + (c.bt ? q * bc + k : k * bc + q))];
                e = (c.add ? e : 0) + (c.bias ? (double)bias[(size_t)q] : 0) + product;
                largest = fmax(largest, fabs(product));
            }
    int64_t in = c.shift * ht_dtype_bytes(c.in), out = c.shift * ht_dtype_bytes(c.out);
    struct buffer ba = put(c.in, a, in), bb = put(c.in, b, in), bo = put(c.out, old, out), bi = put(c.out, bias, out);
    struct ht_cuda_product p = {};
    p.in = c.in;
    p.out = c.out;
    p.a_transposed = c.at;
    p.b_transposed = c.bt;
    p.m = c.m;
    p.n = c.n;
    p.k = c.k;
    p.a = ba.at();
    p.a_stride = ac;
    p.b = bb.at();
    p.b_stride = bc;
    p.c = bo.at();
    p.c_stride = cc;
    p.bias = c.bias ? bi.at() : NULL;
    p.add = c.add ? bo.at() : NULL;
    p.count = c.count;
    p.a_step = a_step;
    p.b_step = b_step;
    p.c_step = c_step;
    if (plain)
        ht_cuda_multiply_plain(&cuda, &p);
    else
        ht_cuda_multiply(&cuda, &p);
    char what[200];
    snprintf(what, sizeof(what), "%s (%d,%d,%d) pad %d, %s%s, %s to %s, %d%s%s", plain ? "plain" : "product", (int)c.m,
             (int)c.n, (int)c.k, (int)c.pad, c.at ? "T" : "N", c.bt ? "T" : "N", ht_dtype_name(c.in),
             ht_dtype_name(c.out), (int)c.count, c.bias ? ", bias" : "", c.add ? ", add" : "");
    /* cuBLASLt rounds a product before it adds to it, in some algorithms, as does one whose terms are cut. */
    bool twice = c.bias || c.add || c.k >= 1024;
    double slack = twice ? roundoff(c.out) * largest : 0;
    /* The elements between the rows are unchanged. */
    expect_close(what, get(c.out, bo), expected, 1.01 * roundoff(c.out) + 1e-6, 4e-7 * (double)c.k + 1e-6 + slack);
    for (struct buffer *f : {&ba, &bb, &bo, &bi}) release(*f);
}

static void all_of(bool plain, int64_t m, int64_t n, int64_t k, int64_t pad, int64_t shift = 0)
{
    for (enum ht_dtype in : every_type)
        for (enum ht_dtype out : every_type)
            for (int bits = 0; bits < 16; bits++) {
                if (out != HT_F32 && out != in) continue;
                check({in, out, (bits & 1) != 0, (bits & 2) != 0, m, n, k, pad, (bits & 4) ? 3 : 1,
                       (bits & 4) == 0 && in == out, (bits & 8) != 0, shift},
                      plain);
            }
}

static void products(void)
{
    all_of(false, 8, 16, 24, 0);
    all_of(false, 5, 7, 3, 0);
    all_of(false, 33, 17, 41, 1);
    all_of(false, 1, 1, 1, 0);
    all_of(false, 8, 16, 24, 0, 1);
    all_of(false, 16, 8, 32, 0, 4);
    all_of(false, 3, 1027, 5, 1); /* long and ragged */
    all_of(false, 1031, 4, 8, 0);
    all_of(false, 4, 8, 1025, 7);
    if (emulated) return;
    all_of(false, 256, 128, 512, 0);
    all_of(false, 129, 250, 96, 8);
    all_of(false, 300, 1, 64, 0);
    all_of(false, 1, 300, 64, 0);
    all_of(false, 64, 64, 4096, 0);
    all_of(false, 16, 1601, 64, 7);
    all_of(false, 1603, 16, 64, 5);
    all_of(false, 32, 64, 1605, 3);
}

static void plain_products(void)
{
    all_of(true, 5, 7, 3, 0);
    all_of(true, 33, 40, 65, 1);
}

CUDA_TEST_MAIN({"products", products}, {"plain_products", plain_products})
