/*
 * A block of a part that cuts rows (sequence parallelism: Korthikanti et al. 2022, Sec. 4.2.2).
 *
 * It has x, norm1, proj, norm2, out, their gradients and the norms' work for its own rows. `all`
 * holds (B,T,C) of what is gathered (>) or to be scattered (<), `own` the part's rows of a sum. Shares lie in dnorm:
 *
 *     forward     norm1 > qkv | attention | att Wp^T < proj, norm2 > fc1, gelu, gelu W2^T < out
 *     backward    dout > dgelu, dfc1, dW2 | norm2 > dW1 | dnorm2 < dproj | dproj > datt, dWp | attention |
 *                 dnorm1 < | norm1 > dWqkv | dx
 */
#include "common/kernels/block.h"
#include "common/kernels/part_sum.h"

/* ---- forward ---- */

static struct ht_range own_rows(const struct ht_block *b, int worker, int n_workers)
{
    return ht_range_split(b->n_own, HT_ROW_GRAIN, worker, n_workers);
}

static void own_norm1(void *arg, int worker, int n_workers)
{
    struct ht_block *b = arg;
    ht_rows_norm(b->simd, &b->norm1, b->x, b->act.norm1, b->act.norm1_stats, b->n_own, own_rows(b, worker, n_workers));
}

static void own_norm2(void *arg, int worker, int n_workers)
{
    struct ht_block *b = arg;
    ht_rows_norm(b->simd, &b->norm2, b->act.proj, b->act.norm2, b->act.norm2_stats, b->n_own,
                 own_rows(b, worker, n_workers));
}

static void all_qkv(void *arg, int worker, int n_workers)
{
    struct ht_block *b = arg;
    struct ht_range rows = ht_block_rows(b, worker, n_workers);
    ht_rows_linear(b->simd, &b->qkv, b->all, NULL, b->act.qkv, rows);
    if (b->rotates) ht_rows_rotate(b->simd, &b->rotary, false, b->act.qkv, rows);
}

static void all_projection(void *arg, int worker, int n_workers)
{
    struct ht_block *b = arg;
    ht_rows_linear(b->simd, &b->proj, b->act.attention, NULL, b->all, ht_block_rows(b, worker, n_workers));
}

static void all_fc1(void *arg, int worker, int n_workers)
{
    struct ht_block *b = arg;
    ht_rows_linear(b->simd, &b->fc1, b->all, NULL, b->act.fc1, ht_block_rows(b, worker, n_workers));
}

static void all_gelu(void *arg, int worker, int n_workers)
{
    struct ht_block *b = arg;
    ht_block_activate(b, ht_block_rows(b, worker, n_workers));
}

static void all_fc2(void *arg, int worker, int n_workers)
{
    struct ht_block *b = arg;
    ht_rows_linear(b->simd, &b->fc2, b->act.gelu, NULL, b->all, ht_block_rows(b, worker, n_workers));
}

void ht_block_forward_by_rows(const struct ht_unit_args *args, struct ht_block *b)
{
    struct ht_pool *pool = args->pool;
    if (ht_block_wants(b, HT_SUB_NORM1)) ht_pool_run(pool, own_norm1, b);
    if (ht_block_wants(b, HT_SUB_QKV)) {
        ht_gather_rows(args, b->act.norm1, b->all);
        ht_pool_run(pool, all_qkv, b);
    }
    if (ht_block_wants(b, HT_SUB_ATTENTION)) ht_pool_run(pool, ht_block_attend, b);
    if (ht_block_wants(b, HT_SUB_PROJ)) {
        ht_pool_run(pool, all_projection, b);
        ht_scatter_rows(args, b->all, b->act.proj);
        ht_add_rows(args, b->act.proj, b->post_norm ? b->act.norm1 : b->x, b->n_own);
    }
    if (ht_block_wants(b, HT_SUB_NORM2)) ht_pool_run(pool, own_norm2, b);
    if (ht_block_wants(b, HT_SUB_FC1)) {
        ht_gather_rows(args, b->act.norm2, b->all);
        ht_pool_run(pool, all_fc1, b);
    }
    if (ht_block_wants(b, HT_SUB_GELU)) ht_pool_run(pool, all_gelu, b);
    if (ht_block_wants(b, HT_SUB_FC2)) {
        ht_pool_run(pool, all_fc2, b);
        ht_scatter_rows(args, b->all, b->out);
        ht_add_rows(args, b->out, b->post_norm ? b->act.norm2 : b->act.proj, b->n_own);
    }
}

/* ---- backward ---- */

/* With all = dout: dfc1, the part's share of dnorm2, and fc2's gradients. */
static void all_dfc1(void *arg, int worker, int n_workers)
{
    struct ht_block *b = arg;
    struct ht_range rows = ht_block_rows(b, worker, n_workers);
    ht_block_activate_backward(b, rows);
    ht_rows_linear_backward(b->simd, &b->fc1, b->dwide, NULL, b->dnorm, rows);
}

static void fc2_grads(void *arg, int worker, int n_workers)
{
    struct ht_block *b = arg;
    ht_features_linear_grad(b->simd, &b->fc2, b->act.gelu, b->all, b->n_rows, b->stored, b->grad[FC2_W], b->grad[FC2_B],
                            ht_range_split(b->fc2.out, HT_FEATURE_GRAIN, worker, n_workers));
}

/* With all = norm2. */
static void fc1_grads(void *arg, int worker, int n_workers)
{
    struct ht_block *b = arg;
    ht_features_linear_grad(b->simd, &b->fc1, b->all, b->dwide, b->n_rows, b->stored, b->grad[FC1_W], b->grad[FC1_B],
                            ht_range_split(b->fc1.out, HT_FEATURE_GRAIN, worker, n_workers));
}

/* With own = dnorm2 of the part's rows: dproj of these, and the norm's gradients of them. */
static void own_dproj(void *arg, int worker, int n_workers)
{
    struct ht_block *b = arg;
    ht_rows_norm_backward(b->simd, &b->norm2, b->act.proj, b->own, b->act.norm2_stats, b->post_norm ? NULL : b->dout,
                          b->dx, b->n_own, own_rows(b, worker, n_workers));
    ht_features_norm_grad(b->simd, &b->norm2, b->act.proj, b->own, b->act.norm2_stats, b->n_own, b->stored,
                          b->grad[LN2_W], b->grad[LN2_B],
                          ht_range_split(b->norm2.width, HT_FEATURE_GRAIN, worker, n_workers));
}

/* With all = dproj. */
static void all_dattention(void *arg, int worker, int n_workers)
{
    struct ht_block *b = arg;
    ht_rows_linear_backward(b->simd, &b->proj, b->all, NULL, b->dattention, ht_block_rows(b, worker, n_workers));
    ht_features_linear_grad(b->simd, &b->proj, b->act.attention, b->all, b->n_rows, b->stored, b->grad[PROJ_W],
                            b->grad[PROJ_B], ht_range_split(b->proj.out, HT_FEATURE_GRAIN, worker, n_workers));
}

static void all_dnorm1(void *arg, int worker, int n_workers)
{
    struct ht_block *b = arg;
    struct ht_range rows = ht_block_rows(b, worker, n_workers);
    if (b->rotates) ht_rows_rotate(b->simd, &b->rotary, true, b->dwide, rows);
    ht_rows_linear_backward(b->simd, &b->qkv, b->dwide, NULL, b->dnorm, rows);
}

/* With all = norm1. */
static void qkv_grads(void *arg, int worker, int n_workers)
{
    struct ht_block *b = arg;
    ht_features_linear_grad(b->simd, &b->qkv, b->all, b->dwide, b->n_rows, b->stored, b->grad[QKV_W], b->grad[QKV_B],
                            ht_range_split(b->qkv.out, HT_FEATURE_GRAIN, worker, n_workers));
}

/* With own = dnorm1 of the part's rows. */
static void own_dx(void *arg, int worker, int n_workers)
{
    struct ht_block *b = arg;
    ht_rows_norm_backward(b->simd, &b->norm1, b->x, b->own, b->act.norm1_stats, b->post_norm ? NULL : b->dx, b->dx,
                          b->n_own, own_rows(b, worker, n_workers));
    ht_features_norm_grad(b->simd, &b->norm1, b->x, b->own, b->act.norm1_stats, b->n_own, b->stored, b->grad[LN1_W],
                          b->grad[LN1_B], ht_range_split(b->norm1.width, HT_FEATURE_GRAIN, worker, n_workers));
}

static void mlp_by_rows(const struct ht_unit_args *args, struct ht_block *b)
{
    const void *dout = b->dout;
    ht_gather_rows(args, dout, b->all);
    b->dout = b->all;
    ht_pool_run(args->pool, all_dfc1, b);
    ht_pool_run(args->pool, fc2_grads, b);
    b->dout = dout;
    ht_gather_rows(args, b->act.norm2, b->all);
    ht_pool_run(args->pool, fc1_grads, b);
    ht_scatter_rows(args, b->dnorm, b->own);
    if (b->post_norm) ht_add_rows(args, b->own, dout, b->n_own);
    ht_pool_run(args->pool, own_dproj, b);
    ht_sum_norm_grads(args, b->grad[LN2_W], b->grad[LN2_B]);
}

static void attention_by_rows(const struct ht_unit_args *args, struct ht_block *b)
{
    ht_gather_rows(args, b->dx, b->all);
    ht_pool_run(args->pool, all_dattention, b);
    ht_pool_run(args->pool, ht_block_attend_backward, b);
    ht_pool_run(args->pool, all_dnorm1, b);
    ht_gather_rows(args, b->act.norm1, b->all);
    ht_pool_run(args->pool, qkv_grads, b);
    ht_scatter_rows(args, b->dnorm, b->own);
    if (b->post_norm) ht_add_rows(args, b->own, b->dx, b->n_own);
    ht_pool_run(args->pool, own_dx, b);
    ht_sum_norm_grads(args, b->grad[LN1_W], b->grad[LN1_B]);
}

void ht_block_backward_by_rows(const struct ht_unit_args *args, struct ht_block *b)
{
    if (ht_block_wants(b, HT_SUB_FC2)) mlp_by_rows(args, b);
    if (ht_block_wants(b, HT_SUB_ATTENTION)) attention_by_rows(args, b);
}
