/*
 * The GPU's kernels against what the hardware and NVIDIA's libraries do on the same machine, in the same run:
 *
 *     products      TFLOP/s beside cuBLAS's cublasGemmEx, whose result ours is held against first
 *     attention     TFLOP/s of the causal half; verified against the FP32 kernels (bench_cuda_attention_torch.py has
 *                   PyTorch's numbers for the same shapes)
 *     memory        GB/s of what a kernel must read and write, beside a copy from device memory to device memory
 *
 *     bench_cuda_kernels [products|attention|memory] [--json]
 *
 * Medians of 20 runs after 3, each between two events, with the lowest and the highest. --json prints an object a line,
 * as it is measured. No kernel that is timed writes what another of its blocks reads.
 */
#include <cublas_v2.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "bench/timing.h"
#include "common/kernels/cuda/ht_cuda_attention.h"
#include "common/kernels/cuda/ht_cuda_gemm.h"
#include "common/kernels/cuda/ht_cuda_ops.h"
#include "common/kernels/cuda/ht_cuda_optimizer.h"

static struct ht_cuda cuda;
static bool json;

static void die(const char *what, const char *why)
{
    fprintf(stderr, "bench_cuda_kernels: %s: %s\n", what, why);
    exit(1);
}

static void must(cudaError_t e, const char *what)
{
    if (e != cudaSuccess) die(what, cudaGetErrorString(e));
}

static void finish(void)
{
    struct ht_error err;
    if (ht_cuda_status(&cuda, cudaStreamSynchronize(cuda.stream), &err) != HT_OK) die("kernels", err.text);
}

static void *device(int64_t bytes)
{
    void *p;
    must(cudaMalloc(&p, (size_t)bytes), "cudaMalloc");
    return p;
}

/* x[i] in [-1, 1), from a hash of (seed, i). */
static __global__ void make_numbers(float *x, int64_t n, uint64_t seed)
{
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x) {
        uint64_t h = (seed << 40 | (uint64_t)i) * 0x9e3779b97f4a7c15u;
        h = (h ^ (h >> 32)) * 0xd6e8feb86659fd93u;
        x[i] = (float)(h >> 40) * 1.1920929e-7f - 1; /* 2^-23 */
    }
}

/* Fills p likewise, rounded to t. */
static void fill(enum ht_dtype t, void *p, int64_t n, uint64_t seed)
{
    float *x = t == HT_F32 ? (float *)p : (float *)device(4 * n);
    make_numbers<<<1024, 256, 0, cuda.stream>>>(x, n, seed);
    must(cudaGetLastError(), "numbers");
    if (t == HT_F32) return;
    ht_cuda_convert(&cuda, HT_F32, x, t, p, n);
    finish();
    must(cudaFree(x), "free");
}

enum { WARM = 3, RUNS = 20 };

/* Seconds of one run. */
template <class F> static struct bench_spread time_of(F run)
{
    double s[RUNS];
    cudaEvent_t from, to;
    must(cudaEventCreate(&from), "event");
    must(cudaEventCreate(&to), "event");
    for (int i = -WARM; i < RUNS; i++) {
        float ms;
        must(cudaEventRecord(from, cuda.stream), "event");
        run();
        must(cudaEventRecord(to, cuda.stream), "event");
        finish();
        must(cudaEventElapsedTime(&ms, from, to), "event");
        if (i >= 0) s[i] = (double)ms * 1e-3;
    }
    must(cudaEventDestroy(from), "event");
    must(cudaEventDestroy(to), "event");
    return bench_spread_of(s, RUNS);
}

enum { SUM_BLOCKS = 512, SUM_THREADS = 256 };

/* Each thread's sums: of squares of x - y, and of y. */
static __global__ void square_sums(const float *x, const float *y, int64_t n, double (*sums)[2])
{
    double off = 0, all = 0;
    int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (int64_t i = first; i < n; i += (int64_t)gridDim.x * blockDim.x) {
        double d = (double)x[i] - (double)y[i];
        off += d * d;
        all += (double)y[i] * (double)y[i];
    }
    sums[first][0] = off;
    sums[first][1] = all;
}

/* Length of the difference over the length of `b`. Summed on the device: gigabytes of logits take seconds to the host.
 */
static double difference(enum ht_dtype t, const void *a, const void *b, int64_t n)
{
    static double host[SUM_BLOCKS * SUM_THREADS][2];
    float *x = (float *)device(4 * n), *y = (float *)device(4 * n);
    double(*sums)[2] = (double(*)[2])device(sizeof(host)), off = 0, all = 0;
    ht_cuda_convert(&cuda, t, a, HT_F32, x, n);
    ht_cuda_convert(&cuda, t, b, HT_F32, y, n);
    square_sums<<<SUM_BLOCKS, SUM_THREADS, 0, cuda.stream>>>(x, y, n, sums);
    must(cudaGetLastError(), "sums");
    must(cudaMemcpyAsync(host, sums, sizeof(host), cudaMemcpyDeviceToHost, cuda.stream), "copy");
    finish();
    for (const double *sum : host) {
        off += sum[0];
        all += sum[1];
    }
    for (void *p : {(void *)x, (void *)y, (void *)sums}) must(cudaFree(p), "free");
    return sqrt(off / all);
}

/* Prints a row: `work` (floating-point operations or bytes) a second, and the ratio to the reference's, if there is
   one. off: the relative difference of the results, negative where they were not compared. */
static void row(const char *kind, const char *name, enum ht_dtype t, const char *shape, double work, const char *unit,
                const struct bench_spread *s, const char *reference, const struct bench_spread *r, double off)
{
    double scale = strcmp(unit, "TFLOP/s") == 0 ? 1e-12 : 1e-9, rate = work / s->median * scale;
    double theirs = r ? work / r->median * scale : 0;
    if (json) {
        printf("{\"kind\": \"%s\", \"name\": \"%s\", \"type\": \"%s\", \"shape\": \"%s\", \"unit\": \"%s\", "
               "\"rate\": %.6g, \"low\": %.6g, \"high\": %.6g",
               kind, name, ht_dtype_name(t), shape, unit, rate, work / s->high * scale, work / s->low * scale);
        if (r) printf(", \"reference\": \"%s\", \"reference_rate\": %.6g", reference, theirs);
        if (off >= 0) printf(", \"off\": %.2g", off);
        printf("}\n");
        return;
    }
    printf("%-24s %-4s %-32s %8.1f %s (%.1f to %.1f)", name, ht_dtype_name(t), shape, rate, unit,
           work / s->high * scale, work / s->low * scale);
    if (r) printf("   %s %8.1f   ratio %.2f", reference, theirs, rate / theirs);
    if (off >= 0) printf("   off by %.1e", off);
    printf("\n");
}

/* ---- products ---- */

/* cublasGemmEx, of which the header has another for C++. */
typedef cublasStatus_t (*gemm_fn)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const void *,
                                  const void *, cudaDataType, int, const void *, cudaDataType, int, const void *,
                                  void *, cudaDataType, int, cublasComputeType_t, cublasGemmAlgo_t);

struct cublas {
    cublasHandle_t handle;
    gemm_fn gemm;
};

static cudaDataType data_type(enum ht_dtype t)
{
    return t == HT_F16 ? CUDA_R_16F : t == HT_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

#define TEXT_(x) #x
#define TEXT(x)  TEXT_(x)

/* NULL handle: cuBLAS is not here. */
static struct cublas find_cublas(void)
{
    struct cublas c = {NULL, NULL};
    const char *named = getenv("HT_CUBLAS");
    void *library = dlopen(named ? named : "libcublas.so." TEXT(CUBLAS_VER_MAJOR), RTLD_NOW);
    if (!library) library = dlopen("/usr/local/cuda/lib64/libcublas.so." TEXT(CUBLAS_VER_MAJOR), RTLD_NOW);
    if (!library) {
        fprintf(stderr, "cuBLAS is not here (HT_CUBLAS may name its file): products run without their reference\n");
        return c;
    }
    decltype(&cublasCreate_v2) create;
    decltype(&cublasSetStream_v2) set_stream;
    *(void **)&create = dlsym(library, "cublasCreate_v2");
    *(void **)&set_stream = dlsym(library, "cublasSetStream_v2");
    *(void **)&c.gemm = dlsym(library, "cublasGemmEx");
    if (!create || !set_stream || !c.gemm || create(&c.handle) != CUBLAS_STATUS_SUCCESS ||
        set_stream(c.handle, cuda.stream) != CUBLAS_STATUS_SUCCESS)
        die("cuBLAS", "does not start");
    return c;
}

/* C (m,n) = A B; A and B are of type `in`, C and the bias of type `out`. */
struct product {
    const char *name;
    enum ht_dtype in, out;
    bool at, bt;
    int64_t m, n, k;
    int64_t a_stride, c_stride; /* 0: rows are as far apart as they are wide */
    bool biased;
};

static void product(const struct cublas *cublas, const struct product *o)
{
    int64_t e = ht_dtype_bytes(o->in), ce = ht_dtype_bytes(o->out), m = o->m, n = o->n, k = o->k;
    int64_t a_stride = o->a_stride ? o->a_stride : o->at ? m : k;
    int64_t c_stride = o->c_stride ? o->c_stride : n, a_elements = (o->at ? k : m) * a_stride;
    void *a = device(a_elements * e), *b = device(n * k * e), *c = device(m * c_stride * ce),
         *ref = device(m * c_stride * ce);
    void *bias = device(n * ce);
    fill(o->in, a, a_elements, 1);
    fill(o->in, b, n * k, 2);
    must(cudaMemsetAsync(bias, 0, (size_t)(n * ce), cuda.stream), "bias");
    must(cudaMemsetAsync(c, 0, (size_t)(m * c_stride * ce), cuda.stream), "clear"); /* between the rows, too */
    must(cudaMemsetAsync(ref, 0, (size_t)(m * c_stride * ce), cuda.stream), "clear");
    struct ht_cuda_product p = {};
    p.in = o->in;
    p.out = o->out;
    p.a_transposed = o->at;
    p.b_transposed = o->bt;
    p.m = m;
    p.n = n;
    p.k = k;
    p.a = a;
    p.a_stride = a_stride;
    p.b = b;
    p.b_stride = o->bt ? k : n;
    p.c = c;
    p.c_stride = c_stride;
    p.bias = o->biased ? bias : NULL;
    float one = 1, zero = 0;
    auto ours = [&]() { ht_cuda_multiply(&cuda, &p); };
    auto theirs = [&]() {
        if (cublas->gemm(cublas->handle, o->bt ? CUBLAS_OP_T : CUBLAS_OP_N, o->at ? CUBLAS_OP_T : CUBLAS_OP_N, (int)n,
                         (int)m, (int)k, &one, b, data_type(o->in), (int)p.b_stride, a, data_type(o->in),
                         (int)p.a_stride, &zero, ref, data_type(o->out), (int)c_stride, CUBLAS_COMPUTE_32F,
                         CUBLAS_GEMM_DEFAULT) != CUBLAS_STATUS_SUCCESS)
            die("cublasGemmEx", "refused");
    };
    double flops = 2.0 * (double)m * (double)n * (double)k, off = -1;
    char shape[64];
    ours();
    finish();
    struct bench_spread s = time_of(ours), r = {};
    if (cublas->handle) {
        theirs();
        off = difference(o->out, c, ref, m * c_stride);
        if (!(off < 4e-3)) die(o->name, "differs from cuBLAS's result");
        r = time_of(theirs);
    }
    snprintf(shape, sizeof(shape), "m %lld n %lld k %lld", (long long)m, (long long)n, (long long)k);
    row("product", o->name, o->in, shape, flops, "TFLOP/s", &s, "cuBLAS", cublas->handle ? &r : NULL, off);
    for (void *x : {a, b, c, ref, bias}) must(cudaFree(x), "free");
}

/* The head as it is trained (common/kernels/cuda/head.cu): logits are FP32; their gradient is of the type of training
   and lies in the logits' rows, so that in 16 bits its own rows are twice as many elements apart. */
static void head(const struct cublas *cublas, enum ht_dtype t, int64_t rows, int64_t C, int64_t V)
{
    int64_t logits = (V + 31) / 32 * 32, gradient = t == HT_F32 ? logits : 2 * logits; /* ht_logits_stride */
    struct product forward = {"head forward", t, HT_F32, false, true, rows, V, C, 0, logits, false};
    struct product backward = {"head backward", t, t, false, false, rows, C, V, gradient, 0, false};
    struct product weight = {"head weight's gradient", t, t, true, false, V, C, rows, gradient, 0, false};
    product(cublas, &forward);
    product(cublas, &backward);
    product(cublas, &weight);
}

static void products(void)
{
    struct cublas cublas = find_cublas();
    if (!json) printf("products: m n k of C (m,n) = A B\n");
    for (enum ht_dtype t : {HT_BF16, HT_F16, HT_F32}) {
        int64_t rows = 8192, C = t == HT_F32 ? 2048 : 4096, F = 4 * C;
        const struct product list[] = {
            {"qkv forward", t, t, false, true, rows, 3 * C, C, 0, 0, true},
            {"fc1 forward", t, t, false, true, rows, F, C, 0, 0, true},
            {"fc2 forward", t, t, false, true, rows, C, F, 0, 0, true},
            {"fc1 backward", t, t, false, false, rows, C, F, 0, 0, false},
            {"fc1 weight's gradient", t, t, true, false, F, C, rows, 0, 0, false},
        };
        for (const struct product &o : list) product(&cublas, &o);
        head(&cublas, t, 4096, 1600, 50257);                  /* GPT-2's */
        if (t != HT_F32) head(&cublas, t, 4096, 1600, 50304); /* with rows added up to a multiple of 64 */
    }
}

/* ---- attention ---- */

static void attend(enum ht_dtype t, int64_t B, int64_t T, int64_t H, int64_t KV, int64_t D)
{
    enum { THETA = 10000 };
    int64_t C = H * D, W = C + 2 * KV * D, n = B * T;
    struct ht_cuda_attention a = {}, f = {};
    void *qkv[2], *out[2], *dout[2], *dqkv[2]; /* of t, and in FP32 */
    for (int i = 0; i < 2; i++) {
        int64_t e = i ? 4 : ht_dtype_bytes(t);
        qkv[i] = device(n * W * e);
        out[i] = device(n * C * e);
        dout[i] = device(n * C * e);
        dqkv[i] = device(n * W * e);
    }
    fill(HT_F32, qkv[1], n * W, 1);
    fill(HT_F32, dout[1], n * C, 2);
    ht_cuda_convert(&cuda, HT_F32, qkv[1], t, qkv[0], n * W);
    ht_cuda_convert(&cuda, HT_F32, dout[1], t, dout[0], n * C);
    ht_cuda_convert(&cuda, t, qkv[0], HT_F32, qkv[1], n * W);
    ht_cuda_convert(&cuda, t, dout[0], HT_F32, dout[1], n * C);
    a.dtype = t;
    a.batch = B;
    a.seq = T;
    a.heads = H;
    a.kv_heads = KV;
    a.head_size = D;
    a.lse = (float *)device(B * H * T * 4);
    a.scratch = (float *)device(B * H * T * 4);
    f = a;
    f.dtype = HT_F32;
    struct ht_cuda_attention *both[] = {&a, &f};
    for (int i = 0; i < 2; i++) {
        both[i]->qkv = qkv[i];
        both[i]->out = out[i];
        both[i]->dout = dout[i];
        both[i]->dqkv = dqkv[i];
    }
    double off[2] = {-1, -1},
           flops = 2.0 * (double)B * (double)H * (double)T * (double)T * (double)D; /* half of 4BHTTD */
    if (t != HT_F32) {
        ht_cuda_attention_forward(&cuda, &f);
        ht_cuda_attention_backward(&cuda, &f);
        ht_cuda_convert(&cuda, HT_F32, out[1], t, dout[0], n * C); /* borrowed */
        ht_cuda_attention_forward(&cuda, &a);
        off[0] = difference(t, out[0], dout[0], n * C);
        ht_cuda_convert(&cuda, HT_F32, dout[1], t, dout[0], n * C);
        ht_cuda_attention_backward(&cuda, &a);
        void *rounded = device(n * W * 2);
        ht_cuda_convert(&cuda, HT_F32, dqkv[1], t, rounded, n * W);
        off[1] = difference(t, dqkv[0], rounded, n * W);
        must(cudaFree(rounded), "free");
        if (!(off[0] < 2e-2 && off[1] < 2e-2)) die("attention", "differs from the FP32 kernels");
    }
    struct bench_spread forward = time_of([&]() { ht_cuda_attention_forward(&cuda, &a); });
    struct bench_spread backward = time_of([&]() { ht_cuda_attention_backward(&cuda, &a); });
    char shape[64];
    snprintf(shape, sizeof(shape), "B %lld T %lld H %lld KV %lld D %lld", (long long)B, (long long)T, (long long)H,
             (long long)KV, (long long)D);
    row("attention", "attention forward", t, shape, flops, "TFLOP/s", &forward, NULL, NULL, off[0]);
    row("attention", "attention backward", t, shape, 2.5 * flops, "TFLOP/s", &backward, NULL, NULL, off[1]);
    if (D == 128 && T <= 4096) { /* LLaMA's heads */
        a.turns = (float *)device(T * D * 4);
        a.rope_theta = THETA;
        backward = time_of([&]() { ht_cuda_attention_backward(&cuda, &a); });
        a.rope_theta = 0;
        struct bench_spread apart = time_of([&]() {
            ht_cuda_attention_backward(&cuda, &a);
            ht_cuda_rotate(&cuda, t, dqkv[0], B, T, H + KV, D, W, THETA, true);
        });
        row("attention", "backward, rotated in it", t, shape, 2.5 * flops, "TFLOP/s", &backward, "behind it", &apart,
            -1);
        must(cudaFree(a.turns), "free");
    }
    for (int i = 0; i < 2; i++)
        for (void *x : {qkv[i], out[i], dout[i], dqkv[i]}) must(cudaFree(x), "free");
    must(cudaFree(a.lse), "free");
    must(cudaFree(a.scratch), "free");
}

static void attention(void)
{
    if (!json)
        printf("attention, causal: the half of the square that is not masked, backward counted as 2.5 times forward\n");
    for (enum ht_dtype t : {HT_BF16, HT_F16}) {
        attend(t, 8, 1024, 32, 32, 64);
        attend(t, 4, 4096, 32, 32, 64);
        attend(t, 8, 1024, 16, 16, 128);
        attend(t, 4, 4096, 16, 16, 128);
        attend(t, 1, 16384, 16, 16, 128);
    }
    attend(HT_BF16, 4, 4096, 32, 8, 128);
    attend(HT_BF16, 4, 2048, 20, 20, 80);
    attend(HT_BF16, 4, 2048, 16, 16, 96);
    attend(HT_F32, 4, 2048, 16, 16, 64);
}

/* ---- bound by memory ---- */

static struct bench_spread copy_of_a_byte; /* seconds, read and written */

template <class F> static void report(const char *name, enum ht_dtype t, int64_t n, double bytes, F run)
{
    struct bench_spread s = time_of(run), copy = copy_of_a_byte;
    char shape[64];
    copy.median *= bytes;
    snprintf(shape, sizeof(shape), "%lld", (long long)n);
    row("memory", name, t, shape, bytes, "GB/s", &s, "copy", &copy, -1);
}

/* Buffers: p, m, v FP32 and g of the type, of n elements each, h 16-bit. Norms have a weight and a bias of their own.
 */
static void memory(void)
{
    int64_t n = 1 << 28, rows = 16384, C = 4096;
    float *p = (float *)device(4 * n), *m = (float *)device(4 * n), *v = (float *)device(4 * n);
    void *g = device(4 * n), *h = device(2 * n), *weight = device(4 * C), *bias = device(4 * C);
    struct ht_adamw config = {1e-3, 0.9, 0.95, 1e-8, 0.1};
    struct ht_adamw_step step = ht_adamw_step(&config, 10, 1);
    fill(HT_F32, p, n, 1);
    struct bench_spread copy =
        time_of([&]() { must(cudaMemcpyAsync(g, p, (size_t)(4 * n), cudaMemcpyDeviceToDevice, cuda.stream), "copy"); });
    row("memory", "copy", HT_F32, "268435456", 8.0 * (double)n, "GB/s", &copy, NULL, NULL, -1);
    copy_of_a_byte = copy;
    copy_of_a_byte.median /= 8.0 * (double)n;
    int64_t log_bytes = 64 + 4 * (n / 1024 + 1) + 3 * n + 8 + 12 * (n / 4);
    void *log = device(log_bytes);
    for (enum ht_dtype t : {HT_F32, HT_BF16}) {
        fill(HT_F32, p, n, 1);
        fill(HT_F32, m, n, 2);
        must(cudaMemsetAsync(v, 0, (size_t)(4 * n), cuda.stream), "clear");
        fill(t, g, n, 3);
        double e = (double)ht_dtype_bytes(t), N = (double)n;
        struct ht_cuda_adamw a = {p, m, v, g, t, t == HT_F32 ? NULL : h, t, n};
        report("AdamW", t, n, N * (24 + e + (t == HT_F32 ? 0 : e)), [&]() { ht_cuda_adamw_update(&cuda, &step, &a); });
        report("AdamW, logged", t, n, N * (27 + e + (t == HT_F32 ? 0 : e)),
               [&]() { ht_cuda_adamw_step_logged(&cuda, &step, &a, log, log_bytes); });
        struct ht_cuda_grad_partial *partial = (struct ht_cuda_grad_partial *)log;
        report("check gradients", t, n, N * e, [&]() { ht_cuda_grad_check(&cuda, &step, t, g, n, partial); });
        report("accumulate", t, n, N * (8 + e), [&]() { ht_cuda_accumulate(&cuda, HT_F32, p, t, g, n); });

        /* x in p, y in m, dy in g, dx in v: the residual is added where it lies, as in training. */
        int64_t cells = rows * C;
        double bytes = (double)cells * e;
        struct ht_cuda_norm norm = {t, rows, C, weight, bias, 1e-5f};
        float *stats = (float *)log, *scratch = (float *)((char *)log + ((int64_t)4 << 20));
        void *dweight = (char *)log + ((int64_t)1 << 20), *dbias = (char *)log + ((int64_t)2 << 20);
        fill(t, p, cells, 4);
        fill(t, v, cells, 5);
        fill(t, weight, C, 6);
        fill(t, bias, C, 7);
        report("layer norm", t, cells, 2 * bytes, [&]() { ht_cuda_norm_forward(&cuda, &norm, p, m, stats); });
        struct ht_cuda_norm_grad grads = {t, t, dweight, dbias, scratch};
        report("layer norm backward", t, cells, 4 * bytes,
               [&]() { ht_cuda_norm_backward(&cuda, &norm, p, g, stats, v, v, &grads); });
        report("sums of columns", t, cells, bytes,
               [&]() { ht_cuda_column_sum(&cuda, t, g, rows, C, t, t, dbias, scratch); });
        report("GELU", t, cells, 2 * bytes, [&]() { ht_cuda_gelu(&cuda, t, p, m, cells); });
        report("GELU backward", t, cells, 3 * bytes, [&]() { ht_cuda_gelu_backward(&cuda, t, p, m, cells); });
        report("SwiGLU", t, cells / 2, 1.5 * bytes, [&]() { ht_cuda_swiglu(&cuda, t, p, m, rows, C / 2); });
    }
    int64_t V = 50257, stride = 50272, n_rows = 4096; /* ht_logits_stride */
    must(cudaMemsetAsync(g, 0, (size_t)(4 * n_rows), cuda.stream), "targets");
    fill(HT_F32, p, n_rows * stride, 5);
    /* The logits are read once where a row fits into shared memory, as this one on sm_90; otherwise twice, the second
       time from memory: the rows of all blocks under way are more than the L2 cache holds. */
    report("cross-entropy", HT_BF16, n_rows * V, (double)(n_rows * V) * 6, [&]() {
        ht_cuda_cross_entropy(&cuda, HT_BF16, p, (const int32_t *)g, n_rows, V, stride, 1, (double *)log);
    });
    for (void *x : {(void *)p, (void *)m, (void *)v, g, h, log, weight, bias}) must(cudaFree(x), "free");
}

/* Tells of a shape whose time is not cuBLASLt's. */
static void tell_slow(void *, const char *shape, int64_t products)
{
    if (json)
        printf("{\"kind\": \"slow products\", \"shape\": \"%s\", \"products\": %lld}\n", shape, (long long)products);
    else
        printf("slow: cuBLASLt has no algorithm for %s; %lld products ran on the plain kernel\n", shape,
               (long long)products);
}

int main(int argc, char **argv)
{
    int n = 0;
    const char *only = NULL;
    struct cudaDeviceProp prop;
    struct ht_error err;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0)
            json = true;
        else
            only = argv[i];
    }
    setvbuf(stdout, NULL, _IOLBF, 0); /* what has been measured is not lost when the program is stopped */
    if (cudaGetDeviceCount(&n) != cudaSuccess || n == 0) {
        printf("SKIP: no CUDA device\n");
        return 77;
    }
    must(cudaGetDeviceProperties(&prop, 0), "device");
    fprintf(stderr, "%s, sm_%d%d, %d multiprocessors, %.0f GiB\n", prop.name, prop.major, prop.minor,
            prop.multiProcessorCount, (double)prop.totalGlobalMem / (1 << 30));
    must(cudaStreamCreateWithFlags(&cuda.stream, cudaStreamNonBlocking), "stream");
    cuda.gemm = ht_cuda_gemm_create(device(HT_CUDA_GEMM_WORKSPACE_BYTES), HT_CUDA_GEMM_WORKSPACE_BYTES, &err);
    if (!cuda.gemm) die("cuBLASLt", err.text);
    must(cudaDeviceSynchronize(), "device");
    if (!only || strcmp(only, "products") == 0) products();
    if (!only || strcmp(only, "attention") == 0) attention();
    if (!only || strcmp(only, "memory") == 0) memory();
    ht_cuda_gemm_each_plain(cuda.gemm, tell_slow, NULL);
    ht_cuda_gemm_destroy(cuda.gemm);
    return 0;
}
