/*
 * Causal attention. For one pair (sequence b, query head h), with q, k, v: (T, D), D = C / H, scale = 1 / sqrt(D):
 *
 *     S = q k^T            P = softmax(scale S), row i over columns 0..i          out = P v
 *
 * and backward, with dot_i = sum_j dP_ij P_ij = sum_d dout_id out_id:
 *
 *     dv = P^T dout        dP = dout v^T        dS = scale P (dP - dot)           dq = dS k        dk = dS^T q
 *
 * Flash (Dao et al. 2022) here means what it saves: P is not kept but made again, tile by tile, from S and the rows'
 * log-sum-exp. A tile spans all keys of its rows, so no running rescale is needed.
 */
#include "common/kernels/attention.h"

#include <math.h>
#include <stddef.h>

#include "common/model/model.h"

/* One pair's matrices; rows of q, k, v are W = C + 2K apart, of out C apart. */
struct pair {
    int64_t T, D, C, W, index;
    int64_t k_at, v_at;  /* of the shared key and value, from the query's place in a row */
    bool first_of_group; /* among the query heads that share them */
    const float *q, *k, *v;
    float scale;
};

static struct pair pair_at(const struct ht_attention *a, int64_t index)
{
    int64_t b = index / a->heads, h = index % a->heads, D = a->width / a->heads, sharing = a->heads / a->kv_heads;
    int64_t K = D * a->kv_heads, W = a->width + 2 * K, k_at = a->width + (h / sharing - h) * D;
    const float *q = a->qkv + b * a->seq * W + h * D;
    return (struct pair){.T = a->seq,
                         .D = D,
                         .C = a->width,
                         .W = W,
                         .index = index,
                         .k_at = k_at,
                         .v_at = k_at + K,
                         .first_of_group = h % sharing == 0,
                         .q = q,
                         .k = q + k_at,
                         .v = q + k_at + K,
                         .scale = 1.0f / sqrtf((float)D)};
}

/* Where the pair's slice of a (B,T,stride) matrix starts. */
static int64_t slice(const struct ht_attention *a, const struct pair *p, int64_t stride)
{
    return p->index / a->heads * a->seq * stride + p->index % a->heads * p->D;
}

enum transposed { NEITHER, A_TRANSPOSED, B_TRANSPOSED };

/* c (m,n) = or += a (m,k) b (k,n), rows lda, ldb, ldc apart. */
static void gemm(const struct ht_simd *simd, enum transposed t, int64_t m, int64_t n, int64_t k, const float *a,
                 int64_t lda, const float *b, int64_t ldb, bool add, float *c, int64_t ldc)
{
    simd->gemm(&(struct ht_gemm){.a_transposed = t == A_TRANSPOSED,
                                 .b_transposed = t == B_TRANSPOSED,
                                 .add = add,
                                 .m = m,
                                 .n = n,
                                 .k = k,
                                 .a = a,
                                 .a_stride = lda,
                                 .b = b,
                                 .b_stride = ldb,
                                 .c = c,
                                 .c_stride = ldc});
}

/* Scores of query rows [i0, i1) against keys [0, i1), rows of s T apart. */
static void tile_scores(const struct ht_simd *simd, const struct pair *p, int64_t i0, int64_t i1, float *s)
{
    gemm(simd, B_TRANSPOSED, i1 - i0, i1, p->D, p->q + i0 * p->W, p->W, p->k, p->W, false, s, p->T);
}

static int64_t tile_end(int64_t i0, int64_t T)
{
    return i0 + HT_ATTENTION_ROWS < T ? i0 + HT_ATTENTION_ROWS : T;
}

static void forward_pair(const struct ht_simd *simd, const struct ht_attention *a, int64_t index, int64_t slot)
{
    struct pair p = pair_at(a, index);
    float *out = a->out + slice(a, &p, p.C);
    for (int64_t i0 = 0; i0 < p.T; i0 = tile_end(i0, p.T)) {
        int64_t i1 = tile_end(i0, p.T);
        float *s = a->probs ? a->probs + (index * p.T + i0) * p.T : a->scores + slot * a->tile_floats;
        tile_scores(simd, &p, i0, i1, s);
        for (int64_t i = i0; i < i1; i++) {
            float lse = simd->softmax(s + (i - i0) * p.T, i + 1, a->probs ? p.T : i1, p.scale);
            if (a->lse) a->lse[index * p.T + i] = lse;
        }
        gemm(simd, NEITHER, i1 - i0, p.D, i1, s, p.T, p.v, p.W, false, out + i0 * p.C, p.C);
    }
}

static void backward_pair(const struct ht_simd *simd, const struct ht_attention *a, const float *dout, float *dqkv,
                          int64_t index, int64_t slot)
{
    struct pair p = pair_at(a, index);
    const float *out = a->out + slice(a, &p, p.C);
    float *dq = dqkv + slice(a, &p, p.W), *dk = dq + p.k_at, *dv = dq + p.v_at;
    float *ds = a->dscores + slot * a->tile_floats;
    dout += slice(a, &p, p.C);
    /* From the last tile, whose rows see every key: the group's first pair writes all of dk and dv there, the others
       add to their part. */
    int64_t last = (p.T - 1) / HT_ATTENTION_ROWS * HT_ATTENTION_ROWS;
    for (int64_t i0 = last; i0 >= 0; i0 -= HT_ATTENTION_ROWS) {
        int64_t i1 = tile_end(i0, p.T), n = i1 - i0;
        bool add = i0 != last || !p.first_of_group;
        float *probs = a->probs ? a->probs + (index * p.T + i0) * p.T : a->scores + slot * a->tile_floats;
        if (!a->probs) {
            tile_scores(simd, &p, i0, i1, probs);
            for (int64_t i = i0; i < i1; i++)
                simd->softmax_again(probs + (i - i0) * p.T, i + 1, i1, p.scale, a->lse[index * p.T + i]);
        }
        gemm(simd, A_TRANSPOSED, i1, p.D, n, probs, p.T, dout + i0 * p.C, p.C, add, dv, p.W);
        gemm(simd, B_TRANSPOSED, n, i1, p.D, dout + i0 * p.C, p.C, p.v, p.W, false, ds, p.T);
        for (int64_t i = i0; i < i1; i++) {
            float dot = simd->dot(dout + i * p.C, out + i * p.C, p.D);
            simd->softmax_backward(probs + (i - i0) * p.T, ds + (i - i0) * p.T, dot, p.scale, i1);
        }
        gemm(simd, NEITHER, n, p.D, i1, ds, p.T, p.k, p.W, false, dq + i0 * p.W, p.W);
        gemm(simd, A_TRANSPOSED, i1, p.D, n, ds, p.T, p.q + i0 * p.W, p.W, add, dk, p.W);
    }
}

/* The pairs of one worker: whole groups. Workers beyond the slots have none. */
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

void ht_attention_backward(const struct ht_simd *simd, const struct ht_attention *a, const float *dout, float *dqkv,
                           int worker, int n_workers)
{
    struct ht_range r = share(a, worker, n_workers);
    for (int64_t i = r.begin; i < r.end; i++) backward_pair(simd, a, dout, dqkv, i, worker);
}
