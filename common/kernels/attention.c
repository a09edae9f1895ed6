/*
 * Attention. For one pair (sequence b, query head h), with q, k, v: (T, D), D = C / H, scale = 1 / sqrt(D):
 *
 *     S = q k^T            P = softmax(scale S)          out = P v
 *
 * where row i of the softmax is over columns 0..i (causal) or over all (bidirectional), and backward, with dot_i = sum_j dP_ij P_ij = sum_d dout_id out_id:
 *
 *     dv = P^T dout        dP = dout v^T        dS = scale P (dP - dot)           dq = dS k        dk = dS^T q
 *
 * Flash (Dao et al. 2022) here means that P is not kept. It is recomputed, tile by tile, from S and the rows'
 * log-sum-exp. A tile spans all keys of its rows, so no running rescale is needed.
 */
#include "common/kernels/attention.h"

#include <math.h>
#include <stddef.h>

#include "common/kernels/convert.h"
#include "common/model/model.h"

/* Offsets of one pair's matrices; rows of q, k, v are W = C + 2K apart, of out C apart. */
struct pair {
    int64_t T, D, C, W, index;
    int64_t q_at, k_at, v_at, out_at;   /* elements */
    bool first_of_group, last_of_group; /* first and last query head of a group */
    float scale;
};

static struct pair pair_at(const struct ht_attention *a, int64_t index)
{
    int64_t b = index / a->heads, h = index % a->heads, D = a->width / a->heads, sharing = a->heads / a->kv_heads;
    int64_t K = D * a->kv_heads, W = a->width + 2 * K, row = b * a->seq * W, shared = row + a->width + h / sharing * D;
    return (struct pair){.T = a->seq,
                         .D = D,
                         .C = a->width,
                         .W = W,
                         .index = index,
                         .q_at = row + h * D,
                         .k_at = shared,
                         .v_at = shared + K,
                         .out_at = b * a->seq * a->width + h * D,
                         .first_of_group = h % sharing == 0,
                         .last_of_group = h % sharing == sharing - 1,
                         .scale = 1.0f / sqrtf((float)D)};
}

/* A matrix operand: element `at` of an array, with a row stride. */
struct operand {
    void *p;
    enum ht_dtype type;
    int64_t stride;
};

static struct operand stored(const struct ht_attention *a, const void *p, int64_t at, int64_t stride)
{
    return (struct operand){ht_element(p, a->type, at), a->type, stride};
}

static struct operand in_f32(float *p, int64_t stride)
{
    return (struct operand){p, HT_F32, stride};
}

enum transposed { NEITHER, A_TRANSPOSED, B_TRANSPOSED };

/* Computes c (m,n) = or += a (m,k) b (k,n). */
static void gemm(const struct ht_simd *simd, enum transposed t, int64_t m, int64_t n, int64_t k, struct operand a,
                 struct operand b, bool add, struct operand c)
{
    simd->gemm(&(struct ht_gemm){.a_transposed = t == A_TRANSPOSED,
                                 .b_transposed = t == B_TRANSPOSED,
                                 .add = add,
                                 .m = m,
                                 .n = n,
                                 .k = k,
                                 .a = a.p,
                                 .a_stride = a.stride,
                                 .a_type = a.type,
                                 .b = b.p,
                                 .b_stride = b.stride,
                                 .b_type = b.type,
                                 .c = c.p,
                                 .c_stride = c.stride,
                                 .c_stored = {c.type, c.type}});
}

/* Returns the number of keys that query rows before `end` see. */
static int64_t keys_before(const struct ht_attention *a, int64_t end)
{
    return a->bidirectional ? a->seq : end;
}

/* Computes the scores of query rows [i0, i1) against the keys that they see, rows of s T apart. */
static void tile_scores(const struct ht_simd *simd, const struct ht_attention *a, const struct pair *p, int64_t i0,
                        int64_t i1, float *s)
{
    gemm(simd, B_TRANSPOSED, i1 - i0, keys_before(a, i1), p->D, stored(a, a->qkv, p->q_at + i0 * p->W, p->W),
         stored(a, a->qkv, p->k_at, p->W), false, in_f32(s, p->T));
}

static int64_t tile_end(int64_t i0, int64_t T)
{
    return i0 + HT_ATTENTION_ROWS < T ? i0 + HT_ATTENTION_ROWS : T;
}

/* Returns the tile's kept probabilities, in their type. */
static struct operand kept(const struct ht_attention *a, const struct pair *p, int64_t i0)
{
    return stored(a, a->probs, (p->index * p->T + i0) * p->T, p->T);
}

static void forward_pair(const struct ht_simd *simd, const struct ht_attention *a, int64_t index, int64_t slot)
{
    struct pair p = pair_at(a, index);
    for (int64_t i0 = 0; i0 < p.T; i0 = tile_end(i0, p.T)) {
        int64_t i1 = tile_end(i0, p.T), keys = keys_before(a, i1);
        struct operand probs = kept(a, &p, i0);
        float *s = a->probs && a->type == HT_F32 ? probs.p : a->scores + slot * a->tile_floats;
        tile_scores(simd, a, &p, i0, i1, s);
        for (int64_t i = i0; i < i1; i++) {
            float *row = s + (i - i0) * p.T;
            float lse = simd->softmax(row, keys_before(a, i + 1), a->probs ? p.T : keys, p.scale);
            if (a->lse) a->lse[index * p.T + i] = lse;
            if (a->probs && a->type != HT_F32)
                simd->narrow(row, a->type, ht_element(probs.p, a->type, (i - i0) * p.T), p.T);
        }
        gemm(simd, NEITHER, i1 - i0, p.D, keys, a->probs ? probs : in_f32(s, p.T), stored(a, a->qkv, p.v_at, p.W),
             false, stored(a, a->out, p.out_at + i0 * p.C, p.C));
    }
}

/* Sums of a group's dk and dv: in dqkv itself, or in the slot's FP32. */
struct sums {
    struct operand dk, dv;
};

static struct sums sums_of(const struct ht_attention *a, const struct pair *p, void *dqkv, int64_t slot)
{
    if (!a->dkv) return (struct sums){stored(a, dqkv, p->k_at, p->W), stored(a, dqkv, p->v_at, p->W)};
    float *dkv = a->dkv + slot * a->dkv_floats;
    return (struct sums){in_f32(dkv, 2 * p->D), in_f32(dkv + p->D, 2 * p->D)};
}

/* Rounds the sums to dqkv. */
static void round_sums(const struct ht_simd *simd, const struct ht_attention *a, const struct pair *p,
                       const struct sums *sums, void *dqkv)
{
    for (int64_t t = 0; t < p->T; t++) {
        simd->narrow((float *)sums->dk.p + t * sums->dk.stride, a->type, ht_element(dqkv, a->type, p->k_at + t * p->W),
                     p->D);
        simd->narrow((float *)sums->dv.p + t * sums->dv.stride, a->type, ht_element(dqkv, a->type, p->v_at + t * p->W),
                     p->D);
    }
}

/* Returns the tile's probabilities: kept, or recomputed. */
static struct operand tile_probs(const struct ht_simd *simd, const struct ht_attention *a, const struct pair *p,
                                 int64_t i0, int64_t i1, int64_t slot)
{
    if (a->probs) return kept(a, p, i0);
    float *s = a->scores + slot * a->tile_floats;
    tile_scores(simd, a, p, i0, i1, s);
    for (int64_t i = i0; i < i1; i++)
        simd->softmax_again(s + (i - i0) * p->T, keys_before(a, i + 1), keys_before(a, i1), p->scale,
                            a->lse[p->index * p->T + i]);
    return in_f32(s, p->T);
}

static void backward_pair(const struct ht_simd *simd, const struct ht_attention *a, const void *dout, void *dqkv,
                          int64_t index, int64_t slot)
{
    struct pair p = pair_at(a, index);
    struct sums sums = sums_of(a, &p, dqkv, slot);
    float *ds = a->dscores + slot * a->tile_floats;
    /* Starts with the last tile, whose rows see every key: the group's first pair writes all of dk and dv there, the
       others add to their part. */
    int64_t last = (p.T - 1) / HT_ATTENTION_ROWS * HT_ATTENTION_ROWS;
    for (int64_t i0 = last; i0 >= 0; i0 -= HT_ATTENTION_ROWS) {
        int64_t i1 = tile_end(i0, p.T), n = i1 - i0, keys = keys_before(a, i1);
        bool add = i0 != last || !p.first_of_group;
        struct operand probs = tile_probs(simd, a, &p, i0, i1, slot);
        const struct ht_simd *of_probs = ht_simd_for(probs.type);
        struct operand rows = stored(a, dout, p.out_at + i0 * p.C, p.C);
        gemm(simd, A_TRANSPOSED, keys, p.D, n, probs, rows, add, sums.dv);
        gemm(simd, B_TRANSPOSED, n, keys, p.D, rows, stored(a, a->qkv, p.v_at, p.W), false, in_f32(ds, p.T));
        for (int64_t i = i0; i < i1; i++) {
            int64_t at = p.out_at + i * p.C;
            float dot = simd->dot(ht_element(dout, a->type, at), ht_element(a->out, a->type, at), p.D);
            of_probs->softmax_backward(ht_element(probs.p, probs.type, (i - i0) * p.T), ds + (i - i0) * p.T, dot,
                                       p.scale, keys);
        }
        gemm(simd, NEITHER, n, p.D, keys, in_f32(ds, p.T), stored(a, a->qkv, p.k_at, p.W), false,
             stored(a, dqkv, p.q_at + i0 * p.W, p.W));
        gemm(simd, A_TRANSPOSED, keys, p.D, n, in_f32(ds, p.T), stored(a, a->qkv, p.q_at + i0 * p.W, p.W), add,
             sums.dk);
    }
    if (a->dkv && p.last_of_group) round_sums(simd, a, &p, &sums, dqkv);
}

/* Returns the pairs of one worker: whole groups. Workers beyond the slots have none. */
static struct ht_range share(const struct ht_attention *a, int worker, int n_workers)
{
    int64_t active = n_workers < a->slots ? n_workers : a->slots, sharing = a->heads / a->kv_heads;
    if (worker >= active) return (struct ht_range){0, 0};
    struct ht_range groups = ht_range_split(a->batch * a->kv_heads, 1, worker, (int)active);
    return (struct ht_range){groups.begin * sharing, groups.end * sharing};
}

void ht_attention_forward(const struct ht_simd *simd, const struct ht_attention *a, int worker, int n_workers)
{
    struct ht_range r = share(a, worker, n_workers);
    for (int64_t i = r.begin; i < r.end; i++) forward_pair(simd, a, i, worker);
}

void ht_attention_backward(const struct ht_simd *simd, const struct ht_attention *a, const void *dout, void *dqkv,
                           int worker, int n_workers)
{
    struct ht_range r = share(a, worker, n_workers);
    for (int64_t i = r.begin; i < r.end; i++) backward_pair(simd, a, dout, dqkv, i, worker);
}
