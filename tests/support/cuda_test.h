/*
 * Tests of CUDA kernels: on a GPU, or over tests/support/cuda_on_cpu. Without Check, which GPU machines need not have.
 *
 * A program lists its tests and calls cuda_test_main: all run twice, and what came back from the device must be the
 * same bytes both times. Fresh device memory is NaN the first time, and zeros the second. Without a GPU it prints one
 * line and exits with 77.
 *
 * On the CPU the second time has the threads in another order, drawn from a seed that is printed (HT_CUDA_TEST_SEED
 * sets it), and lower limits of the kernels' calls. HT_CUDA_TEST_SWEEP=1 runs every order instead. Then it leaves out
 * each barrier of each kernel in turn: one of its tests must fail in one of the orders, or nobody needs the barrier.
 *
 * Everything is enqueued on one stream that does not wait for the default one, as in training. On the CPU work on any
 * other stream aborts the test.
 *
 * HT_CUDA_TEST_SMALL=1: on a GPU, too, only the shapes that the CPU has, once. compute-sanitizer needs it. A test's name as
 * argument runs that test alone.
 */
#ifndef HT_TESTS_CUDA_TEST_H
#define HT_TESTS_CUDA_TEST_H

#include <cuda_runtime.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <vector>

#include "common/base/half.h"
#include "common/base/rng.h"
#include "common/kernels/cuda/ht_cuda.h"
#include "common/kernels/cuda/ht_cuda_gemm.h"
#include "tests/support/sanitized.h"

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
static int fresh = 0xff; /* byte of fresh device memory */

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
    call(cudaMemsetAsync(b.at(), fresh, (size_t)bytes, cuda.stream), "cudaMemsetAsync");
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
    struct ht_error err = {};
    enum ht_status s = ht_cuda_status(&cuda, cudaStreamSynchronize(cuda.stream), &err);
    expect(s == HT_OK, "%s", err.text);
}

/* Returns the contents, after checking the guards. Not in the hash: scratch, which is written in part. */
static inline std::vector<unsigned char> contents_of(const struct buffer &b)
{
    std::vector<unsigned char> all((size_t)(b.bytes + 2 * GUARD_BYTES));
    call(cudaMemcpyAsync(all.data(), b.base, all.size(), cudaMemcpyDeviceToHost, cuda.stream), "cudaMemcpyAsync");
    finish();
    size_t first = (size_t)(GUARD_BYTES + b.shift), last = first + (size_t)b.bytes;
    for (size_t i = 0; i < all.size(); i++)
        expect((i >= first && i < last) || all[i] == GUARD, "byte %lld was written, the buffer has %lld",
               (long long)i - (long long)first, (long long)b.bytes);
    return std::vector<unsigned char>(all.begin() + (long)first, all.begin() + (long)last);
}

/* Returns a result: contents that must be the same bytes in every round. */
static inline std::vector<unsigned char> bytes_of(const struct buffer &b)
{
    std::vector<unsigned char> own = contents_of(b);
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

enum { MAX_TESTS = 64, MAX_SITES = 512 };

/* Runs a test and returns the hash of all that came back from the device. */
static inline uint64_t hash_of(const struct cuda_test *test)
{
    running = test->name;
    seen_hash = 14695981039346656037u;
    test->run();
    finish();
    return seen_hash;
}

#ifdef HT_CUDA_EMULATED
static inline void set_round(int order, uint64_t seed)
{
    bool first = order == HT_FORWARD;
    ht_emulator.order = (enum ht_emulated_order)order;
    ht_emulator.seed = seed;
    ht_emulator.clear = !first;
    ht_emulator.limits = {};
    if (!first) ht_emulator.limits = {2, 1, 1, 1};
    fresh = first ? 0xff : 0;
}

/* Runs a test without a barrier, in a process of its own, in every order. Returns true when it failed. */
static inline bool is_noticed(const struct cuda_test *test, uint64_t hash, const struct ht_emulated_site *site,
                              uint64_t seed)
{
    pid_t child = fork();
    if (child == 0) {
        if (!freopen("/dev/null", "w", stderr)) _exit(2);
        ht_emulator.omitted = site;
        for (int order : {HT_REVERSE, HT_LOCKSTEP, HT_RANDOM, HT_FORWARD}) {
            set_round(order, seed);
            if (hash_of(test) != hash) _exit(1);
        }
        _exit(0);
    }
    int status = 1;
    expect(child > 0 && waitpid(child, &status, 0) == child, "a process for a test without a barrier");
    return status != 0;
}

/* Leaves out each barrier that a test reaches. */
static inline void plant(const struct cuda_test *tests, int n_tests, const uint64_t *hashes, uint64_t seed)
{
    static struct ht_emulated_site all[MAX_SITES], here[MAX_SITES];
    static bool noticed[MAX_SITES];
    int n_all = 0, n_missed = 0;
    for (int i = 0; i < n_tests; i++) {
        set_round(HT_FORWARD, seed);
        ht_emulator.recording = true;
        hash_of(&tests[i]);
        ht_emulator.recording = false;
        int n = ht_emulated_sites(here, MAX_SITES);
        for (int k = 0; k < n; k++) {
            int at = 0;
            while (at < n_all && (strcmp(all[at].kernel, here[k].kernel) != 0 ||
                                  strcmp(all[at].file, here[k].file) != 0 || all[at].line != here[k].line))
                at++;
            expect(at < MAX_SITES, "more barriers than expected");
            if (at == n_all) all[n_all++] = here[k];
            if (!noticed[at]) noticed[at] = is_noticed(&tests[i], hashes[i], &all[at], seed);
        }
    }
    running = "without a barrier";
    for (int at = 0; at < n_all; at++) {
        /* One in a header serves several kernels: a fold that a kernel makes once needs only its second barrier. */
        bool elsewhere = false;
        for (int k = 0; k < n_all && strstr(all[at].file, ".cuh"); k++)
            elsewhere = elsewhere || (noticed[k] && !strcmp(all[k].file, all[at].file) &&
                                      (all[k].line == all[at].line || !strcmp(all[k].kernel, all[at].kernel)));
        if (noticed[at] || elsewhere) continue;
        fprintf(stderr, "no test notices that %s lacks the barrier of %s:%d\n", all[at].kernel, all[at].file,
                all[at].line);
        n_missed++;
    }
    printf("%d barriers left out, %d noticed\n", n_all, n_all - n_missed);
    expect(n_missed == 0, "%d barriers are not missed", n_missed);
}
#endif

static inline int cuda_test_main(const struct cuda_test *tests, int n_tests, const char *only)
{
    int n = 0, first = 0;
    while (only && first < n_tests && strcmp(tests[first].name, only) != 0) first++;
    expect(!only || first < n_tests, "no test is named %s", only ? only : "");
    if (only) tests += first, n_tests = 1;
    struct ht_error err = {};
    if (cudaGetDeviceCount(&n) != cudaSuccess || n == 0) {
        printf("SKIP: no CUDA device\n");
        return 77;
    }
    void *workspace = NULL;
    call(cudaStreamCreateWithFlags(&cuda.stream, cudaStreamNonBlocking), "a stream");
    call(cudaMalloc(&workspace, HT_CUDA_GEMM_WORKSPACE_BYTES), "cudaMalloc");
    cuda.gemm = ht_cuda_gemm_create(workspace, HT_CUDA_GEMM_WORKSPACE_BYTES, &err);
    expect(cuda.gemm != NULL && n_tests <= MAX_TESTS, "%s", err.text);
    uint64_t hashes[MAX_TESTS] = {};
    int rounds = emulated && (SANITIZED || getenv("HT_CUDA_TEST_SMALL")) ? 1 : 2;
#ifdef HT_CUDA_EMULATED
    static const char *const names[] = {"forward", "reverse", "lockstep", "random"};
    const char *given = getenv("HT_CUDA_TEST_SEED");
    bool sweep = getenv("HT_CUDA_TEST_SWEEP") != NULL;
    uint64_t seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL) * 32768 + (uint64_t)getpid() % 32768;
    int drawn = HT_REVERSE + (int)ht_random_below(seed, 0, HT_N_ORDERS - 1);
    printf("HT_CUDA_TEST_SEED=%llu: %s\n", (unsigned long long)seed, sweep ? "every order" : names[drawn]);
    fflush(stdout);
    ht_emulator.stream = cuda.stream;
    if (sweep) rounds = HT_N_ORDERS;
#endif
    for (int round = 0; round < rounds; round++) {
#ifdef HT_CUDA_EMULATED
        set_round(round == 0 || sweep ? round : drawn, seed);
#else
        fresh = round == 0 ? 0xff : 0;
#endif
        for (int i = 0; i < n_tests; i++) {
            uint64_t hash = hash_of(&tests[i]);
            if (round == 0) hashes[i] = hash;
            expect(hash == hashes[i], "round %d gave other bits than the first", round + 1);
            if (round == rounds - 1) printf("ok %s\n", tests[i].name);
        }
    }
#ifdef HT_CUDA_EMULATED
    fflush(stdout);
    if (sweep) plant(tests, n_tests, hashes, seed);
#endif
    ht_cuda_gemm_destroy(cuda.gemm);
    call(cudaFree(workspace), "cudaFree");
    call(cudaStreamDestroy(cuda.stream), "the stream");
    return 0;
}

#define CUDA_TEST_MAIN(...)                                                                                            \
    int main(int argc, char **argv)                                                                                    \
    {                                                                                                                  \
        static const struct cuda_test tests[] = {__VA_ARGS__};                                                         \
        return cuda_test_main(tests, (int)(sizeof(tests) / sizeof(tests[0])), argc > 1 ? argv[1] : NULL);              \
    }

#endif
