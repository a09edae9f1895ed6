/* Selects the attention kernels for a case. Computes the dots of rows, and attention with stored probabilities. */
#include "common/kernels/cuda/attention.cuh"
#include "common/kernels/cuda/ht_cuda_gemm.h"
#include "common/kernels/cuda/ht_cuda_ops.h"
#include "common/kernels/cuda/rotary.cuh"

enum { THREADS = 256 };

/* Computes dot (B,H,T) = sum over a head's columns of dout out; a warp takes a dot, a lane N columns a step. ROTARY:
   fills turns, (T,D/2) cosines and then sines, for dq and dk to be rotated back. */
template <class T, int N, bool ROTARY>
__global__ void row_dots(const T *dout, const T *out, float *dot, int64_t batch, int64_t seq, int64_t heads, int64_t D,
                         double theta, float *turns)
{
    int64_t half = D / 2;
    if (ROTARY) {
        HT_EACH(i, seq * half)
        {
            ht_turn turn = ht_turn_at(theta, half, i / half, i % half, true);
            turns[i] = turn.cosine;
            turns[seq * half + i] = turn.sine;
        }
    }
    int64_t n = batch * seq * heads, warps = (int64_t)gridDim.x * blockDim.x / HT_WARP;
    int lane = (int)threadIdx.x % HT_WARP;
    for (int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / HT_WARP; i < n; i += warps) {
        int64_t row = i / heads, head = i % heads;
        float sum = 0;
        for (int64_t d = lane * N; d < D; d += HT_WARP * N) {
            ht_pack<T, N> a = ht_pack_at<T, N>(dout + i * D + d), b = ht_pack_at<T, N>(out + i * D + d);
            for (int k = 0; k < N; k++) sum += ht_load(a.x[k]) * ht_load(b.x[k]);
        }
        sum = ht_warp_fold<ht_add>(sum);
        if (lane == 0) dot[(row / seq * heads + head) * seq + row % seq] = sum;
    }
}

template <class T, int N> static void find_dots_as(struct ht_cuda *cuda, const struct ht_cuda_attention *a)
{
    unsigned grid = ht_grid_for(a->batch * a->seq * a->heads * HT_WARP, THREADS);
    const T *dout = (const T *)a->dout, *out = (const T *)a->out;
    if (ht_rotates(a))
        HT_LAUNCH(cuda, (row_dots<T, N, true>), grid, THREADS, 0, dout, out, a->scratch, a->batch, a->seq, a->heads,
                  a->head_size, a->rope_theta, a->turns);
    else
        HT_LAUNCH(cuda, (row_dots<T, N, false>), grid, THREADS, 0, dout, out, a->scratch, a->batch, a->seq, a->heads,
                  a->head_size, 0, NULL);
}

static void find_dots(struct ht_cuda *cuda, const struct ht_cuda_attention *a)
{
    HT_WITH_TYPE(a->dtype, {
        if (a->head_size % 4 == 0 && ((uintptr_t)a->dout | (uintptr_t)a->out) % 16 == 0)
            find_dots_as<T, 4>(cuda, a);
        else
            find_dots_as<T, 1>(cuda, a);
    })
}

/* ---- with kept probabilities ---- */

/* Turns row i of the scores (n, T, T), FP32, into row i of the probabilities; the two may be the same. */
template <class T> __global__ void softmax(const float *scores, T *probs, int64_t seq, float scale, bool bidirectional)
{
    int64_t row = blockIdx.x, valid = bidirectional ? seq : row % seq + 1;
    const float *s = scores + row * seq;
    float max = -INFINITY, sum = 0;
    for (int64_t j = threadIdx.x; j < valid; j += blockDim.x) max = fmaxf(max, s[j]);
    max = ht_block_fold<ht_max>(max) * scale;
    for (int64_t j = threadIdx.x; j < valid; j += blockDim.x) sum += expf(s[j] * scale - max);
    float inverse = 1.0f / ht_block_fold<ht_add>(sum);
    for (int64_t j = threadIdx.x; j < seq; j += blockDim.x)
        probs[row * seq + j] = ht_store<T>(j < valid ? expf(s[j] * scale - max) * inverse : 0);
}

/* Turns row i of dP (n, T, T), FP32, into row i of dS = P (dP - dot) scale, of type T, at the beginning of the FP32
   row. */
template <class T>
__global__ void softmax_backward(float *dp, const T *probs, const float *dot, int64_t seq, float scale)
{
    int64_t row = blockIdx.x;
    float *d = dp + row * seq, mine = dot[row];
    for (int64_t first = 0; first < seq; first += blockDim.x) {
        int64_t j = first + threadIdx.x;
        float x = j < seq ? ht_load(probs[row * seq + j]) * (d[j] - mine) * scale : 0;
        if (sizeof(T) < sizeof(float)) __syncthreads(); /* all have read the row that is overwritten */
        if (j < seq) ((T *)d)[j] = ht_store<T>(x);
    }
}

/* Stores FP32 sums (T, D) in a head's columns of dqkv. */
template <class T> __global__ void put_head(const float *sum, T *to, int64_t seq, int64_t D, int64_t stride)
{
    HT_EACH(i, seq * D) to[i / D * stride + i % D] = ht_store<T>(sum[i]);
}

enum { SCORES_BYTES = 64 << 20 };

/* Returns how many heads' scores the scratch holds at once: of one group if heads share keys. */
static int64_t heads_at_once(int64_t heads, int64_t kv_heads, int64_t seq)
{
    int64_t fit = SCORES_BYTES / (seq * seq * 4), most = kv_heads == heads ? heads : heads / kv_heads;
    return fit < 1 ? 1 : fit < most ? fit : most;
}

int64_t ht_cuda_attention_scratch_bytes(const struct ht_model *m, int64_t batch, int64_t seq, bool backward)
{
    int64_t heads = ht_model_heads(m), kv_heads = ht_model_kv_heads(m), dots = backward ? batch * heads * seq * 4 : 0;
    if (m->flash) return dots;
    int64_t sums = backward && kv_heads < heads ? 2 * seq * (m->width / m->heads) * 4 : 0;
    return dots + sums + heads_at_once(heads, kv_heads, seq) * seq * seq * 4;
}

int64_t ht_cuda_attention_turns_bytes(const struct ht_model *m, int64_t seq)
{
    return m->arch == HT_ARCH_LLAMA && m->flash ? seq * (m->width / m->heads) * 4 : 0;
}

/* Heads [head, head + n) of a sequence, and offsets of their matrices. */
struct some_heads {
    const struct ht_cuda_attention *a;
    int64_t n, W, C, D, T;
    int64_t step; /* from a head's keys to the next one's */
    const void *q, *k, *v;
    int64_t q_at, k_at, v_at, out_at, probs_at, dots_at; /* elements */
    float *sums, *scores;
};

static struct some_heads some_heads_at(const struct ht_cuda_attention *a, int64_t batch, int64_t head, bool backward)
{
    struct some_heads s = {};
    int64_t sharing = a->heads / a->kv_heads, T = a->seq, D = a->head_size, C = a->heads * D, K = a->kv_heads * D;
    int64_t most = heads_at_once(a->heads, a->kv_heads, T);
    int64_t end = sharing > 1 ? (head / sharing + 1) * sharing : a->heads; /* one past the heads that may go together */
    s.a = a;
    s.n = head + most < end ? most : end - head;
    s.W = C + 2 * K;
    s.C = C;
    s.D = D;
    s.T = T;
    s.step = sharing > 1 ? 0 : D;
    s.q_at = batch * T * s.W + head * D;
    s.k_at = batch * T * s.W + C + head / sharing * D;
    s.v_at = s.k_at + K;
    s.out_at = batch * T * C + head * D;
    s.dots_at = (batch * a->heads + head) * T;
    s.probs_at = s.dots_at * T;
    s.q = ht_offset(a->qkv, a->dtype, s.q_at);
    s.k = ht_offset(a->qkv, a->dtype, s.k_at);
    s.v = ht_offset(a->qkv, a->dtype, s.v_at);
    s.sums = a->scratch + (backward ? a->batch * a->heads * T : 0);
    s.scores = s.sums + (backward && sharing > 1 ? 2 * T * D : 0);
    return s;
}

static void multiply(struct ht_cuda *cuda, const struct some_heads *s, enum ht_dtype out, int64_t m, int64_t n,
                     int64_t k, bool a_transposed, const void *a, int64_t a_stride, int64_t a_step, bool b_transposed,
                     const void *b, int64_t b_stride, int64_t b_step, void *c, int64_t c_stride, int64_t c_step)
{
    struct ht_cuda_product p = {};
    p.in = s->a->dtype;
    p.out = out;
    p.a_transposed = a_transposed;
    p.b_transposed = b_transposed;
    p.m = m;
    p.n = n;
    p.k = k;
    p.a = a;
    p.a_stride = a_stride;
    p.b = b;
    p.b_stride = b_stride;
    p.c = c;
    p.c_stride = c_stride;
    p.count = s->n;
    p.a_step = a_step;
    p.b_step = b_step;
    p.c_step = c_step;
    ht_cuda_multiply(cuda, &p);
}

static void probs_forward(struct ht_cuda *cuda, const struct some_heads *s)
{
    const struct ht_cuda_attention *a = s->a;
    int64_t T = s->T, D = s->D;
    void *probs = ht_offset(a->probs, a->dtype, s->probs_at), *out = ht_offset(a->out, a->dtype, s->out_at);
    multiply(cuda, s, HT_F32, T, T, D, false, s->q, s->W, D, true, s->k, s->W, s->step, s->scores, T, T * T);
    float scale = 1.0f / sqrtf((float)D);
    HT_WITH_TYPE(a->dtype, HT_LAUNCH(cuda, (softmax<T>), dim3((unsigned)(s->n * a->seq)), dim3(ht_row_threads(a->seq)),
                                     0, s->scores, (T *)probs, a->seq, scale, a->bidirectional))
    multiply(cuda, s, a->dtype, T, D, T, false, probs, T, T * T, false, s->v, s->W, s->step, out, s->C, D);
}

/* Computes dkv (T, D) of the keys or values that the heads share: the sum over them of left^T right, in FP32 and in
   order. */
static void shared_sum(struct ht_cuda *cuda, const struct some_heads *s, const void *left, int64_t left_stride,
                       int64_t left_step, const void *right, int64_t right_stride, float *sum, bool add)
{
    for (int64_t i = 0; i < s->n; i++) {
        struct ht_cuda_product p = {};
        p.in = s->a->dtype;
        p.out = HT_F32;
        p.a_transposed = true;
        p.m = p.k = s->T;
        p.n = s->D;
        p.a = ht_offset(left, p.in, i * left_step);
        p.a_stride = left_stride;
        p.b = ht_offset(right, p.in, i * s->D);
        p.b_stride = right_stride;
        p.c = sum;
        p.c_stride = s->D;
        p.add = add || i > 0 ? sum : NULL;
        ht_cuda_multiply(cuda, &p);
    }
}

static void put_sum(struct ht_cuda *cuda, const struct some_heads *s, const float *sum, int64_t at)
{
    int64_t n = s->T * s->D;
    HT_WITH_TYPE(s->a->dtype, HT_LAUNCH(cuda, (put_head<T>), ht_grid_for(n, THREADS), THREADS, 0, sum,
                                        (T *)s->a->dqkv + at, s->T, s->D, s->W))
}

/* Computes the gradients of some heads. first, last: the heads include the first or last one that shares these keys. */
static void probs_backward(struct ht_cuda *cuda, const struct some_heads *s, bool first, bool last)
{
    const struct ht_cuda_attention *a = s->a;
    int64_t T = s->T, D = s->D, ds_stride = a->dtype == HT_F32 ? T : 2 * T;
    const void *probs = ht_offset(a->probs, a->dtype, s->probs_at), *dout = ht_offset(a->dout, a->dtype, s->out_at);
    void *dq = ht_offset(a->dqkv, a->dtype, s->q_at), *dk = ht_offset(a->dqkv, a->dtype, s->k_at);
    void *dv = ht_offset(a->dqkv, a->dtype, s->v_at), *ds = s->scores;
    bool shares = s->step == 0;
    float scale = 1.0f / sqrtf((float)D), *sum_dk = s->sums, *sum_dv = s->sums + T * D;
    if (shares)
        shared_sum(cuda, s, probs, T, T * T, dout, s->C, sum_dv, !first);
    else
        multiply(cuda, s, a->dtype, T, D, T, true, probs, T, T * T, false, dout, s->C, D, dv, s->W, D);
    multiply(cuda, s, HT_F32, T, T, D, false, dout, s->C, D, true, s->v, s->W, s->step, s->scores, T, T * T);
    HT_WITH_TYPE(a->dtype,
                 HT_LAUNCH(cuda, (softmax_backward<T>), dim3((unsigned)(s->n * a->seq)), dim3(ht_row_threads(a->seq)),
                           0, s->scores, (const T *)probs, a->scratch + s->dots_at, a->seq, scale))
    int64_t ds_step = ds_stride * T;
    multiply(cuda, s, a->dtype, T, D, T, false, ds, ds_stride, ds_step, false, s->k, s->W, s->step, dq, s->W, D);
    if (shares) {
        shared_sum(cuda, s, ds, ds_stride, ds_step, s->q, s->W, sum_dk, !first);
        if (!last) return;
        put_sum(cuda, s, sum_dk, s->k_at);
        put_sum(cuda, s, sum_dv, s->v_at);
    } else {
        multiply(cuda, s, a->dtype, T, D, T, true, ds, ds_stride, ds_step, false, s->q, s->W, D, dk, s->W, D);
    }
}

static void all_probs(struct ht_cuda *cuda, const struct ht_cuda_attention *a, bool backward)
{
    int64_t sharing = a->heads / a->kv_heads;
    for (int64_t batch = 0; batch < a->batch; batch++)
        for (int64_t head = 0; head < a->heads;) {
            struct some_heads s = some_heads_at(a, batch, head, backward);
            if (backward)
                probs_backward(cuda, &s, head % sharing == 0, (head + s.n) % sharing == 0);
            else
                probs_forward(cuda, &s);
            head += s.n;
        }
}

/* ---- the public functions ---- */

static bool in_range(struct ht_cuda *cuda, const struct ht_cuda_attention *a)
{
    if (a->head_size <= HT_CUDA_MAX_HEAD_SIZE && a->seq <= HT_CUDA_MAX_SEQ) return true;
    ht_cuda_fail(cuda, HT_BAD_INPUT, "attention on the GPU takes heads of up to 256 and sequences of up to 1048560",
                 __FILE__, __LINE__);
    return false;
}

void ht_cuda_attention_forward(struct ht_cuda *cuda, const struct ht_cuda_attention *a)
{
    if (!in_range(cuda, a)) return;
    if (a->probs)
        all_probs(cuda, a, false);
    else if (!ht_attention_mma_forward(cuda, a))
        ht_attention_general_forward(cuda, a);
}

void ht_cuda_attention_backward(struct ht_cuda *cuda, const struct ht_cuda_attention *a)
{
    if (!in_range(cuda, a)) return;
    find_dots(cuda, a);
    if (a->probs)
        all_probs(cuda, a, true);
    else if (!ht_attention_mma_backward(cuda, a))
        ht_attention_general_backward(cuda, a);
    if (a->rope_theta > 0 && !ht_rotates(a))
        ht_cuda_rotate(cuda, a->dtype, a->dqkv, a->batch, a->seq, a->heads + a->kv_heads, a->head_size,
                       (a->heads + 2 * a->kv_heads) * a->head_size, a->rope_theta, true);
}
