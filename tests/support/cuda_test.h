/*
 * Tests of CUDA kernels: on a GPU, or over tests/support/cuda_on_cpu. Without Check, which GPU machines need not have.
 *
 * A program lists its tests and calls cuda_test_main: all run twice, and what came back from the device must be the
 * same bytes both times. On the CPU the second time has the threads in the other order. Without a GPU it prints one
 * line and exits with 77.
 *
 * Everything is enqueued on one stream that does not wait for the default one, as in training. On the CPU work on any
 * other stream aborts the test.
 *
 * HT_CUDA_TEST_SMALL=1: on a GPU, too, only the shapes that the CPU has. compute-sanitizer needs it.
 */
#ifndef HT_TESTS_CUDA_TEST_H
#define HT_TESTS_CUDA_TEST_H

#include <cuda_runtime.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vector>

#include "common/base/half.h"
#include "common/base/rng.h"
#include "common/kernels/cuda/ht_cuda.h"
#include "common/kernels/cuda/ht_cuda_gemm.h"

/* Only small shapes: on the CPU, or as on it. */
#ifdef HT_CUDA_EMULATED
static const bool emulated = true;
#else
static const bool emulated = getenv("HT_CUDA_TEST_SMALL") != NULL;
#endif

typedef std::vector<float> floats;
typedef std::vector<double> doubles;

static struct ht_cuda cuda;
static uint64_t seen_hash; /* hash of all bytes that came back from the device */
static const char *running = "";

__attribute__((format(printf, 2, 3))) static inline void expect(bool good, const char *fmt, ...)
{
    if (good) return;
    va_list ap;
    va_start(ap, fmt);
    fprintf(stderr, "FAILED %s: ", running);
    vfprintf(stderr, fmt, ap);
    fprintf(stderr, "\n");
    va_end(ap);
    exit(1);
}

static inline void call(cudaError_t e, const char *what)
{
    expect(e == cudaSuccess, "%s: %s", what, cudaGetErrorString(e));
}

/* ---- device memory, with guards around it and NaN in it ---- */

enum { GUARD_BYTES = 256, GUARD = 0xa5 };

struct buffer {
    unsigned char *base;
    int64_t bytes, shift; /* shift: offset of the caller's part from a multiple of 256 */
    void *at(void) const { return base + GUARD_BYTES + shift; }
};

static inline struct buffer buffer_of(int64_t bytes, int64_t shift = 0)
{
    struct buffer b = {NULL, bytes, shift};
    call(cudaMalloc(&b.base, (size_t)(bytes + 2 * GUARD_BYTES)), "cudaMalloc");
    call(cudaMemsetAsync(b.base, GUARD, (size_t)(bytes + 2 * GUARD_BYTES), cuda.stream), "cudaMemsetAsync");
    call(cudaMemsetAsync(b.at(), 0xff, (size_t)bytes, cuda.stream), "cudaMemsetAsync");
    return b;
}

static inline struct buffer buffer_with(const void *data, int64_t bytes, int64_t shift = 0)
{
    struct buffer b = buffer_of(bytes, shift);
    call(cudaMemcpyAsync(b.at(), data, (size_t)bytes, cudaMemcpyHostToDevice, cuda.stream), "cudaMemcpyAsync");
    call(cudaStreamSynchronize(cuda.stream), "the copy"); /* data is the caller's */
    return b;
}

static inline void finish(void)
{
    struct ht_error err = {HT_OK, ""};
    enum ht_status s = ht_cuda_status(&cuda, cudaStreamSynchronize(cuda.stream), &err);
    expect(s == HT_OK, "%s", err.text);
}

/* Returns the contents, after checking the guards. */
static inline std::vector<unsigned char> bytes_of(const struct buffer &b)
{
    std::vector<unsigned char> all((size_t)(b.bytes + 2 * GUARD_BYTES));
    call(cudaMemcpyAsync(all.data(), b.base, all.size(), cudaMemcpyDeviceToHost, cuda.stream), "cudaMemcpyAsync");
    finish();
    size_t first = (size_t)(GUARD_BYTES + b.shift), last = first + (size_t)b.bytes;
    for (size_t i = 0; i < all.size(); i++)
        expect((i >= first && i < last) || all[i] == GUARD, "byte %lld was written, the buffer has %lld",
               (long long)i - (long long)first, (long long)b.bytes);
    std::vector<unsigned char> own(all.begin() + (long)first, all.begin() + (long)last);
    for (unsigned char c : own) seen_hash = (seen_hash ^ c) * 1099511628211u;
    return own;
}

static inline void release(struct buffer &b)
{
    call(cudaFree(b.base), "cudaFree");
    b.base = NULL;
}

/* ---- numbers ---- */

static inline float rounded(enum ht_dtype t, float x)
{
    if (t == HT_F16) return ht_f16_to_f32(ht_f32_to_f16(x));
    if (t == HT_BF16) return ht_bf16_to_f32(ht_f32_to_bf16(x));
    return x;
}

/* Returns the unit roundoff of a type. */
static inline double roundoff(enum ht_dtype t)
{
    return t == HT_F32 ? ldexp(1, -24) : t == HT_F16 ? ldexp(1, -11) : ldexp(1, -8);
}

/* Returns n numbers in [-a, a) that `t` can hold. */
static inline floats numbers(uint64_t seed, int64_t n, float a, enum ht_dtype t)
{
    floats x((size_t)n);
    for (int64_t i = 0; i < n; i++) x[(size_t)i] = rounded(t, a * (2 * ht_random_float(seed, (uint64_t)i) - 1));
    return x;
}

static inline std::vector<int32_t> token_list(uint64_t seed, int64_t n, int64_t vocab)
{
    std::vector<int32_t> t((size_t)n);
    for (int64_t i = 0; i < n; i++) t[(size_t)i] = (int32_t)ht_random_below(seed, (uint64_t)i, (uint64_t)vocab);
    return t;
}

/* Creates a buffer of type t with these numbers. */
static inline struct buffer put(enum ht_dtype t, const floats &x, int64_t shift = 0)
{
    int64_t n = (int64_t)x.size();
    if (t == HT_F32) return buffer_with(x.data(), 4 * n, shift);
    std::vector<uint16_t> h((size_t)n);
    for (int64_t i = 0; i < n; i++)
        h[(size_t)i] = t == HT_F16 ? ht_f32_to_f16(x[(size_t)i]) : ht_f32_to_bf16(x[(size_t)i]);
    return buffer_with(h.data(), 2 * n, shift);
}

static inline struct buffer room(enum ht_dtype t, int64_t n, int64_t shift = 0)
{
    return buffer_of(n * ht_dtype_bytes(t), shift);
}

static inline floats get(enum ht_dtype t, const struct buffer &b)
{
    std::vector<unsigned char> bytes = bytes_of(b);
    floats x(bytes.size() / (size_t)ht_dtype_bytes(t));
    for (size_t i = 0; i < x.size(); i++) {
        uint16_t h;
        if (t == HT_F32) {
            memcpy(&x[i], &bytes[4 * i], 4);
            continue;
        }
        memcpy(&h, &bytes[2 * i], 2);
        x[i] = t == HT_F16 ? ht_f16_to_f32(h) : ht_bf16_to_f32(h);
    }
    return x;
}

/* Checks |got - expected| <= relative |expected| + absolute, everywhere; NaN fails. */
template <class E>
static inline void expect_close(const char *what, const floats &got, const std::vector<E> &expected, double relative,
                                double absolute)
{
    expect(got.size() == expected.size(), "%s: %zu numbers, expected %zu", what, got.size(), expected.size());
    for (size_t i = 0; i < got.size(); i++) {
        double e = (double)expected[i], d = fabs((double)got[i] - e);
        expect(d <= relative * fabs(e) + absolute, "%s[%zu]: %.9g, expected %.9g (+- %.3g relative, %.3g absolute)",
               what, i, (double)got[i], e, relative, absolute);
    }
}

/* Checks sqrt(sum of squares of the difference) <= tolerance sqrt(sum of squares of expected); NaN fails. */
template <class E>
static inline void expect_near(const char *what, const floats &got, const std::vector<E> &expected, double tolerance)
{
    double off = 0, all = 0;
    expect(got.size() == expected.size(), "%s: %zu numbers, expected %zu", what, got.size(), expected.size());
    for (size_t i = 0; i < got.size(); i++) {
        off += ((double)got[i] - (double)expected[i]) * ((double)got[i] - (double)expected[i]);
        all += (double)expected[i] * (double)expected[i];
    }
    expect(sqrt(off) <= tolerance * sqrt(all), "%s: off by %.3g of its length, expected at most %.3g", what,
           sqrt(off / all), tolerance);
}

static inline void expect_bits(const char *what, const floats &got, const floats &expected)
{
    expect(got.size() == expected.size(), "%s: %zu numbers, expected %zu", what, got.size(), expected.size());
    for (size_t i = 0; i < got.size(); i++) {
        bool both_nan = isnan(got[i]) && isnan(expected[i]);
        expect(both_nan || ht_float_bits(got[i]) == ht_float_bits(expected[i]),
               "%s[%zu]: %.9g (%08x), expected %.9g (%08x)", what, i, (double)got[i], ht_float_bits(got[i]),
               (double)expected[i], ht_float_bits(expected[i]));
    }
}

/* ---- main ---- */

struct cuda_test {
    const char *name;
    void (*run)(void);
};

static const enum ht_dtype every_type[] = {HT_F32, HT_F16, HT_BF16};

static inline int cuda_test_main(const struct cuda_test *tests, int n_tests)
{
    int n = 0;
    struct ht_error err = {HT_OK, ""};
    if (cudaGetDeviceCount(&n) != cudaSuccess || n == 0) {
        printf("SKIP: no CUDA device\n");
        return 77;
    }
    void *workspace = NULL;
    call(cudaStreamCreateWithFlags(&cuda.stream, cudaStreamNonBlocking), "a stream");
    call(cudaMalloc(&workspace, HT_CUDA_GEMM_WORKSPACE_BYTES), "cudaMalloc");
    cuda.gemm = ht_cuda_gemm_create(workspace, HT_CUDA_GEMM_WORKSPACE_BYTES, &err);
    expect(cuda.gemm != NULL, "%s", err.text);
    uint64_t first_hash[64];
    for (int round = 0; round < 2; round++) {
#ifdef HT_CUDA_EMULATED
        ht_emulator.reverse = round == 1;
        ht_emulator.stream = cuda.stream;
        if (round == 1) ht_emulator.limits = {2, 1, 1, 1};
#endif
        for (int i = 0; i < n_tests; i++) {
            running = tests[i].name;
            seen_hash = 14695981039346656037u;
            tests[i].run();
            finish();
            if (round == 0)
                first_hash[i] = seen_hash;
            else
                expect(seen_hash == first_hash[i], "the second run gave other bits");
            if (round == 1) printf("ok %s\n", tests[i].name);
        }
    }
    ht_cuda_gemm_destroy(cuda.gemm);
    call(cudaFree(workspace), "cudaFree");
    call(cudaStreamDestroy(cuda.stream), "the stream");
    return 0;
}

#define CUDA_TEST_MAIN(...)                                                                                            \
    int main(void)                                                                                                     \
    {                                                                                                                  \
        static const struct cuda_test tests[] = {__VA_ARGS__};                                                         \
        return cuda_test_main(tests, (int)(sizeof(tests) / sizeof(tests[0])));                                         \
    }

#endif
