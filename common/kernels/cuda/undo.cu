/*
 * The logged optimizer step and its exact undo. A thread block takes one block of the log: ELEMENTS elements. An atomic
 * counter assigns the positions of exceptions, so only these differ from run to run.
 *
 * Layout of the log: header (64 bytes), table (4 bytes a block), differences (3 bytes an element: p of the block, m,
 * v), kept values.
 */
#include "common/kernels/cuda/adamw.cuh"

extern "C" {
#include "common/kernels/undo.h"
}

enum { ELEMENTS = 1024, THREADS = 256, TURNS = ELEMENTS / THREADS, HEADER_BYTES = 64, ESCAPE = -128 };
static const uint64_t MAGIC = 0x676f6c6164756375u; /* "ucudalog" */
#define NONE        0xffffffffu
#define NOT_STEPPED 0xfffffffeu
#define MOST        0xfffffffdu
static_assert(sizeof(struct ht_cuda_undo_header) <= HEADER_BYTES, "the log's header");

struct log {
    struct ht_cuda_undo_header *header;
    uint32_t *table;
    int8_t *differences;
    uint32_t *kept;
    unsigned long long room;
};

static struct log log_of(void *data, int64_t bytes, int64_t n)
{
    int64_t n_blocks = (n + ELEMENTS - 1) / ELEMENTS, kept_at = HEADER_BYTES + 4 * n_blocks + (3 * n + 3) / 4 * 4;
    int64_t room = (bytes - kept_at) / 4;
    char *at = (char *)data;
    struct log l = {(struct ht_cuda_undo_header *)data, (uint32_t *)(at + HEADER_BYTES),
                    (int8_t *)(at + HEADER_BYTES + 4 * n_blocks), (uint32_t *)(at + kept_at),
                    (unsigned long long)(room < (int64_t)MOST ? room : (int64_t)MOST)};
    return l;
}

static __global__ void open_log(struct log l, int64_t n, struct ht_adamw_step step)
{
    l.header->magic = MAGIC;
    l.header->n = n;
    l.header->exceptions = 0;
    l.header->state = HT_CUDA_UNDO_EMPTY;
    l.header->step = step;
}

/* Closes the log: after a step records whether everything was logged; otherwise empties the log. */
static __global__ void close_log(struct log l, int64_t n, bool after_step)
{
    if (l.header->magic != MAGIC || l.header->n != n) return;
    l.header->state = !after_step                     ? HT_CUDA_UNDO_EMPTY
                      : l.header->exceptions > l.room ? HT_CUDA_UNDO_REFUSED
                                                      : HT_CUDA_UNDO_STEPPED;
}

/* Returns the exclusive sum over the block's threads of `mine`; *all is the whole sum. */
static __device__ int block_offset(int mine, int *all)
{
    __shared__ int of_warp[THREADS / HT_WARP];
    int lane = (int)threadIdx.x % HT_WARP, warp = (int)threadIdx.x / HT_WARP, sum = mine;
    for (int by = 1; by < HT_WARP; by *= 2) {
        int other = __shfl_sync(0xffffffffu, sum, lane - by);
        if (lane >= by) sum += other;
    }
    __syncthreads();
    if (lane == HT_WARP - 1) of_warp[warp] = sum;
    __syncthreads();
    int before = sum - mine;
    *all = 0;
    for (int w = 0; w < THREADS / HT_WARP; w++) {
        if (w < warp) before += of_warp[w];
        *all += of_warp[w];
    }
    return before;
}

/* A thread's elements. Thread t has t TURNS .. t TURNS + TURNS - 1 of its block, so that exceptions are in order. */
struct position {
    int64_t begin; /* of the block */
    int n, first;  /* the block's elements; the thread's first */
    int8_t *d;     /* the block's differences */
};

static __device__ struct position position_of(const struct log &l, int64_t n)
{
    struct position at;
    at.begin = (int64_t)blockIdx.x * ELEMENTS;
    at.n = n - at.begin < ELEMENTS ? (int)(n - at.begin) : ELEMENTS;
    at.first = (int)threadIdx.x * TURNS;
    at.d = l.differences + 3 * at.begin;
    return at;
}

/* Reads a thread's elements of an array of the block, at once if `wide`; leaves those beyond the block unset. */
template <class T>
static __device__ __forceinline__ void read(T x[TURNS], const T *from, const struct position &at, bool wide)
{
    if (wide) {
        ht_pack<T, TURNS> p = ht_pack_at<T, TURNS>(from + at.first);
        for (int t = 0; t < TURNS; t++) x[t] = p.x[t];
        return;
    }
    for (int t = 0; t < TURNS; t++)
        if (at.first + t < at.n) x[t] = from[at.first + t];
}

template <class T>
static __device__ __forceinline__ void write(T *to, const T x[TURNS], const struct position &at, bool wide)
{
    if (wide) {
        ht_pack<T, TURNS> p;
        for (int t = 0; t < TURNS; t++) p.x[t] = x[t];
        ht_pack_to<T, TURNS>(to + at.first, p);
        return;
    }
    for (int t = 0; t < TURNS; t++)
        if (at.first + t < at.n) to[at.first + t] = x[t];
}

template <class G, class C>
__global__ void step_logged(struct ht_adamw_step s, float *p, float *m, float *v, const G *grad, C *copy, int64_t n,
                            struct log l, bool aligned)
{
    __shared__ unsigned long long kept_at;
    struct position at = position_of(l, n);
    float *x[3] = {p + at.begin, m + at.begin, v + at.begin};
    float old[3][TURNS], now[3][TURNS];
    int8_t d[3][TURNS];
    G gradient[TURNS];
    C copied[TURNS];
    bool wide = aligned && at.n == ELEMENTS;
    int escapes[3] = {0, 0, 0};
    for (int k = 0; k < 3; k++) read(old[k], x[k], at, wide);
    read(gradient, grad + at.begin, at, wide);
    for (int t = 0; t < TURNS; t++) {
        if (at.first + t >= at.n) continue;
        float g = __fmul_rn(ht_load(gradient[t]), s.grad_scale);
        struct ht_adamw_values before = {old[0][t], old[1][t], old[2][t]}, after = ht_adamw_one(s, before, g);
        struct ht_adamw_values guess = ht_adamw_estimate(s, after, g);
        float b[3] = {before.p, before.m, before.v}, a[3] = {after.p, after.m, after.v};
        float e[3] = {guess.p, guess.m, guess.v};
        for (int k = 0; k < 3; k++) {
            uint32_t by = ht_in_order(__float_as_uint(b[k])) - ht_in_order(__float_as_uint(e[k]));
            bool escape = by + 127 > 254;
            d[k][t] = (int8_t)(escape ? ESCAPE : (int)by);
            escapes[k] += escape;
            now[k][t] = a[k];
        }
        copied[t] = ht_store<C>(after.p);
    }
    int offset[3], all[3];
    for (int k = 0; k < 3; k++) offset[k] = block_offset(escapes[k], &all[k]);
    int total = all[0] + all[1] + all[2];
    if (threadIdx.x == 0) kept_at = total ? atomicAdd(&l.header->exceptions, (unsigned long long)total) : 0;
    __syncthreads();
    bool fits = kept_at + (unsigned long long)total <= l.room;
    if (threadIdx.x == 0) l.table[blockIdx.x] = total == 0 ? NONE : fits ? (uint32_t)kept_at : NOT_STEPPED;
    if (!fits && total) return; /* the whole step is going to be refused */
    uint32_t *kept = l.kept + kept_at;
    if (copy) write(copy + at.begin, copied, at, wide);
    for (int k = 0; k < 3; kept += all[k++]) {
        write(x[k], now[k], at, wide);
        write(at.d + (int64_t)k * at.n, d[k], at, wide);
        for (int t = 0; t < TURNS; t++)
            if (at.first + t < at.n && d[k][t] == ESCAPE) kept[offset[k]++] = __float_as_uint(old[k][t]);
    }
}

/* Undoes a step. refusing: undoes the blocks that were stepped if an exception did not fit; otherwise undoes the logged
   step. */
template <class G, class C>
__global__ void undo(float *p, float *m, float *v, const G *grad, C *copy, int64_t n, struct log l, bool aligned,
                     bool refusing)
{
    if (l.header->magic != MAGIC || l.header->n != n) return;
    if (refusing ? l.header->exceptions <= l.room : l.header->state != HT_CUDA_UNDO_STEPPED) return;
    struct position at = position_of(l, n);
    struct ht_adamw_step s = l.header->step;
    float *x[3] = {p + at.begin, m + at.begin, v + at.begin};
    uint32_t kept_at = l.table[blockIdx.x];
    if (kept_at == NOT_STEPPED) {
        for (int t = 0; t < TURNS; t++) /* only the copy, which may hold anything */
            if (copy && at.first + t < at.n) copy[at.begin + at.first + t] = ht_store<C>(x[0][at.first + t]);
        return;
    }
    int8_t d[3][TURNS] = {};
    float now[3][TURNS];
    G gradient[TURNS];
    C copied[TURNS];
    bool wide = aligned && at.n == ELEMENTS;
    int offset[3], all[3];
    for (int k = 0; k < 3; k++) {
        int escapes = 0;
        read(now[k], x[k], at, wide);
        read(d[k], at.d + (int64_t)k * at.n, at, wide);
        for (int t = 0; t < TURNS; t++) escapes += d[k][t] == ESCAPE; /* 0 beyond the block */
        offset[k] = block_offset(escapes, &all[k]);
    }
    read(gradient, grad + at.begin, at, wide);
    offset[1] += all[0];
    offset[2] += all[0] + all[1];
    const uint32_t *kept = l.kept + (kept_at == NONE ? 0 : kept_at);
    for (int t = 0; t < TURNS; t++) {
        if (at.first + t >= at.n) continue;
        float g = __fmul_rn(ht_load(gradient[t]), s.grad_scale);
        struct ht_adamw_values after = {now[0][t], now[1][t], now[2][t]}, guess = ht_adamw_estimate(s, after, g);
        float e[3] = {guess.p, guess.m, guess.v};
        for (int k = 0; k < 3; k++) {
            uint32_t bits = ht_in_order(ht_in_order(__float_as_uint(e[k])) + (uint32_t)(int32_t)d[k][t]);
            now[k][t] = __uint_as_float(d[k][t] == ESCAPE ? kept[offset[k]++] : bits);
        }
        copied[t] = ht_store<C>(now[0][t]);
    }
    for (int k = 0; k < 3; k++) write(x[k], now[k], at, wide);
    if (copy) write(copy + at.begin, copied, at, wide);
}

/* Returns true when four elements may be read and written at once. */
static bool aligned(const struct ht_cuda_adamw *a)
{
    return ((uintptr_t)a->param | (uintptr_t)a->m | (uintptr_t)a->v | (uintptr_t)a->grad | (uintptr_t)a->copy) % 16 ==
           0;
}

static unsigned grid_of(int64_t n)
{
    return (unsigned)((n + ELEMENTS - 1) / ELEMENTS);
}

template <class G, class C>
static void step_as(struct ht_cuda *cuda, const struct ht_adamw_step *s, const struct ht_cuda_adamw *a, struct log l)
{
    dim3 grid(grid_of(a->n)), block(THREADS);
    const G *grad = (const G *)a->grad;
    HT_LAUNCH(cuda, (step_logged<G, C>), grid, block, 0, *s, a->param, a->m, a->v, grad, (C *)a->copy, a->n, l,
              aligned(a));
    HT_LAUNCH(cuda, (undo<G, C>), grid, block, 0, a->param, a->m, a->v, grad, (C *)a->copy, a->n, l, aligned(a), true);
}

template <class G, class C> static void undo_as(struct ht_cuda *cuda, const struct ht_cuda_adamw *a, struct log l)
{
    HT_LAUNCH(cuda, (undo<G, C>), dim3(grid_of(a->n)), dim3(THREADS), 0, a->param, a->m, a->v, (const G *)a->grad,
              (C *)a->copy, a->n, l, aligned(a), false);
}

template <class G>
static void step_from(struct ht_cuda *cuda, const struct ht_adamw_step *s, const struct ht_cuda_adamw *a, struct log l)
{
    HT_WITH_TYPE(a->copy ? a->copy_type : HT_F32, step_as<G, T>(cuda, s, a, l))
}

template <class G> static void undo_from(struct ht_cuda *cuda, const struct ht_cuda_adamw *a, struct log l)
{
    HT_WITH_TYPE(a->copy ? a->copy_type : HT_F32, undo_as<G, T>(cuda, a, l))
}

static bool room_for(struct ht_cuda *cuda, const void *log, int64_t log_bytes, int64_t n)
{
    if ((uintptr_t)log % 8 == 0 && log_bytes >= ht_undo_log_bytes(n, 0)) return true;
    ht_cuda_fail(cuda, HT_FAILED, "the undo log is too small, or not aligned to 8 bytes", __FILE__, __LINE__);
    return false;
}

void ht_cuda_adamw_step_logged(struct ht_cuda *cuda, const struct ht_adamw_step *step, const struct ht_cuda_adamw *a,
                               void *log, int64_t log_bytes)
{
    if (!room_for(cuda, log, log_bytes, a->n)) return;
    struct log l = log_of(log, log_bytes, a->n);
    HT_LAUNCH(cuda, open_log, dim3(1), dim3(1), 0, l, a->n, *step);
    HT_WITH_TYPE(a->grad_type, step_from<T>(cuda, step, a, l))
    HT_LAUNCH(cuda, close_log, dim3(1), dim3(1), 0, l, a->n, true);
}

void ht_cuda_adamw_undo(struct ht_cuda *cuda, const struct ht_cuda_adamw *a, void *log, int64_t log_bytes)
{
    if (!room_for(cuda, log, log_bytes, a->n)) return;
    struct log l = log_of(log, log_bytes, a->n);
    HT_WITH_TYPE(a->grad_type, undo_from<T>(cuda, a, l))
    HT_LAUNCH(cuda, close_log, dim3(1), dim3(1), 0, l, a->n, false);
}
