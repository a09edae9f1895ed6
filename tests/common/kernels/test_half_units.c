/*
 * Units stored in 16 bit. Bounds are in u, the largest relative error of one rounding (F16 2^-11, BF16 2^-8).
 *
 * Forward against double with the same numbers rounded at the same places. The two differ only where FP32 (1e-6, see
 * test_block.c) falls on the other side of a halfway point, and in what follows from it; for F16, whose u is an eighth,
 * eight times as often. We ask for 0.1 u (BF16) and 0.8 u (F16) in the norm; most differ in nothing.
 *
 * Backward against central differences of the function without any rounding: what is seen is the storage's rounding
 * itself, some ten of them in a row between an input and its gradient, each u / sqrt(3) in the norm at most. We ask for
 * 4 u in the norm of a gradient, and for 12 u of the weights of BERT's queries and keys. There each token averages over all
 * tokens, so dP - dot is small beside the rounded dP and dot whose difference it is.
 *
 * All else exactly: recomputation, workers, dirty memory, gradients stored as FP32, the embedding's sums.
 */
#include <stdio.h>

#include "common/base/array.h"
#include "common/kernels/convert.h"
#include "common/kernels/unit.h"
#include "tests/common/kernels/dense_head.h"
#include "tests/common/kernels/guarded.h"
#include "tests/common/kernels/parts.h"
#include "tests/common/kernels/reference.h"
#include "tests/support/sanitized.h"

struct shape {
    int64_t B, T, C, H, F;
    int64_t every;        /* differences are taken at every so many-th coordinate */
    int64_t KV;           /* heads of keys: a LLaMA block; 0: another */
    enum ht_arch encoder; /* HT_ARCH_GPT: none */
};
static const struct shape shapes[] = {{2, 5, 12, 3, 20, 1, 0, HT_ARCH_GPT},    {1, 70, 8, 2, 12, 3, 0, HT_ARCH_GPT},
                                      {3, 131, 6, 1, 7, 37, 0, HT_ARCH_GPT},   {2, 64, 33, 3, 35, 97, 0, HT_ARCH_GPT},
                                      {2, 5, 12, 3, 7, 1, 3, HT_ARCH_GPT},     {1, 9, 24, 4, 11, 1, 2, HT_ARCH_GPT},
                                      {1, 70, 8, 4, 5, 3, 1, HT_ARCH_GPT},     {3, 131, 6, 1, 7, 37, 1, HT_ARCH_GPT},
                                      {2, 65, 48, 8, 19, 97, 2, HT_ARCH_GPT},  {1, 3, 264, 2, 9, 499, 1, HT_ARCH_GPT},
                                      {2, 5, 12, 3, 20, 1, 0, HT_ARCH_BERT},   {1, 70, 8, 2, 12, 3, 0, HT_ARCH_BERT},
                                      {2, 64, 33, 3, 35, 97, 0, HT_ARCH_BERT}, {2, 5, 12, 3, 20, 1, 0, HT_ARCH_VIT},
                                      {1, 70, 8, 2, 12, 3, 0, HT_ARCH_VIT},    {2, 64, 33, 3, 35, 97, 0, HT_ARCH_VIT}};

static double unit_roundoff(enum ht_dtype t)
{
    return t == HT_F16 ? 0x1p-11 : 0x1p-8;
}

/* n numbers in (-a, a) in `type`, and in *exact the same in double, if it is not NULL. */
static void *random_stored(uint64_t seed, int64_t n, float a, enum ht_dtype type, double **exact)
{
    float *x = random_floats(seed, n, a);
    void *h = malloc((size_t)(n + 1) * 2);
    ht_round_copy(NULL, x, h, type, n);
    ht_widen_copy(NULL, h, type, x, n);
    if (exact) *exact = HT_NEW_ARRAY(double, n);
    for (int64_t i = 0; i < n && exact; i++) (*exact)[i] = x[i];
    free(x);
    return h;
}

static float value_at(const void *x, enum ht_dtype t, int64_t i)
{
    float y;
    ht_widen_copy(NULL, ht_element(x, t, i), t, &y, 1);
    return y;
}

/* ||got - expected|| / ||expected|| of what has been added. */
struct distance {
    double apart, length;
};

static void add(struct distance *d, double got, double expected)
{
    d->apart += (got - expected) * (got - expected);
    d->length += expected * expected;
}

static double in_roundoffs(const struct distance *d, enum ht_dtype t)
{
    return sqrt(d->apart / d->length) / unit_roundoff(t);
}

/* ---- block ---- */

struct pass {
    struct ht_model model;
    struct shape s;
    enum ht_dtype type, grad_store;
    int64_t n_params, n_x, act_bytes;
    void *params, *x, *dout; /* inputs */
    double *exact_params, *exact_x, *exact_dout, *exact_out;
    struct guarded guards[6];
    void *out, *dx, *grad, *act;
};

static struct ht_unit_args args_of(const struct ht_model *m, int64_t B, int64_t T, enum ht_dtype type,
                                   enum ht_dtype grad_store, struct ht_pool *pool)
{
    return (struct ht_unit_args){
        .model = m, .batch = B, .seq = T, .pool = pool, .dtype = type, .grad = type, .grad_store = grad_store};
}

static struct pass pass_new(const struct shape *s, enum ht_dtype type, bool flash, enum ht_dtype grad_store, int poison)
{
    struct pass p = {.s = *s,
                     .type = type,
                     .grad_store = grad_store,
                     .model = {.arch = s->KV ? HT_ARCH_LLAMA : s->encoder,
                               .layers = 1,
                               .width = s->C,
                               .heads = s->H,
                               .ffn = s->F,
                               .vocab = 8,
                               .max_seq = s->T,
                               .flash = flash,
                               .kv_heads = s->KV,
                               .rope_theta = 50,
                               .norm_eps = 1e-3}};
    p.n_params = ht_unit_params(&p.model, 1);
    p.n_x = s->B * s->T * s->C;
    p.act_bytes = ht_unit_activation_bytes(&p.model, 1, s->B, s->T, type);
    p.params = random_stored(1, p.n_params, s->C > 64 ? 0.2f : 0.5f, type, &p.exact_params);
    p.x = random_stored(2, p.n_x, 1, type, &p.exact_x);
    p.dout = random_stored(3, p.n_x, 0.3f, type, &p.exact_dout);
    p.exact_out = HT_NEW_ARRAY(double, p.n_x);
    p.out = guarded_new(&p.guards[0], p.n_x * 2, poison);
    p.dx = guarded_new(&p.guards[1], p.n_x * 2, poison);
    p.grad = guarded_new(&p.guards[2], p.n_params * ht_dtype_bytes(grad_store), poison);
    p.act = guarded_new(&p.guards[3], p.act_bytes, poison);
    return p;
}

static void pass_run(struct pass *p, int threads, int poison)
{
    struct ht_pool *pool = ht_pool_create(threads, NULL);
    struct ht_unit_args args = args_of(&p->model, p->s.B, p->s.T, p->type, p->grad_store, pool);
    void *workspace[2];
    for (int backward = 0; backward < 2; backward++) {
        int64_t bytes = ht_unit_workspace_bytes(&p->model, 1, p->s.B, p->s.T, p->type, backward);
        workspace[backward] = guarded_new(&p->guards[4 + backward], bytes, poison);
    }
    struct ht_block_acts act = ht_block_acts_at(&args, p->act);
    ht_block_forward(&args, HT_ALL_SUB_OPS, p->params, p->x, &act, p->out, workspace[0]);
    ht_block_backward(&args, HT_ALL_SUB_OPS, p->params, p->x, &act, p->dout, p->dx, p->grad, workspace[1]);
    guarded_free(&p->guards[4]);
    guarded_free(&p->guards[5]);
    ht_pool_destroy(pool);
}

static void pass_free(struct pass *p)
{
    for (int i = 0; i < 4; i++) guarded_free(&p->guards[i]);
    void *buffers[] = {p->params, p->x, p->dout, p->exact_params, p->exact_x, p->exact_dout, p->exact_out};
    for (size_t i = 0; i < HT_COUNT(buffers); i++) free(buffers[i]);
}

/* sum of dout * block(params, x), nothing rounded */
static double scalar(void *ctx)
{
    struct pass *p = ctx;
    double sum = 0;
    ref_block(&p->model, HT_F32, p->s.B, p->s.T, p->exact_params, p->exact_x, p->exact_out);
    for (int64_t i = 0; i < p->n_x; i++) sum += p->exact_dout[i] * p->exact_out[i];
    return sum;
}

static double forward_apart(struct pass *p)
{
    struct distance d = {0, 0};
    ref_block(&p->model, p->type, p->s.B, p->s.T, p->exact_params, p->exact_x, p->exact_out);
    for (int64_t i = 0; i < p->n_x; i++) add(&d, value_at(p->out, p->type, i), p->exact_out[i]);
    return in_roundoffs(&d, p->type);
}

/* The worst of dx and of each part of the parameters of which enough is looked at. The biases of query, key and value are
   one, as GPT's: a key's bias adds the same to all scores of a query, so its gradient is 0 but for rounding. */
static double backward_apart(struct pass *p)
{
    struct ht_param_part parts[HT_MAX_PARAM_PARTS];
    int n_parts = ht_unit_param_parts(&p->model, 1, parts);
    struct distance d = {0, 0};
    for (int64_t i = 0; i < p->n_x; i += p->s.every)
        add(&d, value_at(p->dx, p->type, i), ref_derivative(scalar, p, p->exact_x + i));
    double worst = in_roundoffs(&d, p->type);
    for (int k = 0; k < n_parts; k++) {
        int64_t begin = parts[k].offset;
        if (strstr(parts[k].name, "query.bias")) k += 2;
        int64_t n = parts[k].offset + parts[k].rows * parts[k].cols - begin;
        d = (struct distance){0, 0};
        for (int64_t i = begin; i < begin + n; i += p->s.every)
            add(&d, value_at(p->grad, p->grad_store, i), ref_derivative(scalar, p, p->exact_params + i));
        bool averaged = strstr(parts[k].name, "query.weight") || strstr(parts[k].name, "key.weight");
        if (n / p->s.every >= 6) worst = fmax(worst, in_roundoffs(&d, p->type) / (averaged ? 3 : 1));
    }
    return worst;
}

#define EACH_TYPE_AND_FLASH(t, flash)                                                                                  \
    for (enum ht_dtype t = HT_F16; t <= HT_BF16; t++)                                                                  \
        for (int flash = 0; flash < 2; flash++)

START_TEST(test_block_against_reference)
{
    EACH_TYPE_AND_FLASH(t, flash)
    {
        struct pass p = pass_new(&shapes[_i], t, flash, t, 0xff);
        pass_run(&p, 2, 0xff);
        double forward = forward_apart(&p), backward = backward_apart(&p);
        printf("block %d %-4s flash %d: forward %.3f u, backward %.2f u\n", _i, ht_dtype_name(t), flash, forward,
               backward);
        ck_assert_double_le(forward, t == HT_F16 ? 0.8 : 0.1);
        ck_assert_double_le(backward, 4);
        pass_free(&p);
    }
}
END_TEST

START_TEST(test_block_workers_and_dirt)
{
    static const int poisons[] = {0x00, 0x7b, 0xff};
    EACH_TYPE_AND_FLASH(t, flash)
    {
        struct pass first = pass_new(&shapes[_i], t, flash, t, 0xff);
        pass_run(&first, 1, 0xff);
        for (int threads = 2; threads <= 5; threads += SANITIZED ? 3 : 1) {
            struct pass p = pass_new(&shapes[_i], t, flash, t, poisons[threads % 3]);
            pass_run(&p, threads, poisons[threads % 3]);
            ck_assert_mem_eq(p.out, first.out, (size_t)p.n_x * 2);
            ck_assert_mem_eq(p.dx, first.dx, (size_t)p.n_x * 2);
            ck_assert_mem_eq(p.grad, first.grad, (size_t)p.n_params * 2);
            pass_free(&p);
        }
        pass_free(&first);
    }
}
END_TEST

/* An accumulator of FP32 gets the numbers that a 16-bit gradient has. */
START_TEST(test_block_gradients_in_f32)
{
    EACH_TYPE_AND_FLASH(t, flash)
    {
        struct pass half = pass_new(&shapes[_i], t, flash, t, 0xff);
        struct pass wide = pass_new(&shapes[_i], t, flash, HT_F32, 0xff);
        pass_run(&half, 2, 0xff);
        pass_run(&wide, 3, 0x00);
        const float *grad = wide.grad;
        for (int64_t i = 0; i < half.n_params; i++)
            if (grad[i] != value_at(half.grad, t, i)) ck_abort_msg("gradient %d", (int)i);
        ck_assert_mem_eq(wide.dx, half.dx, (size_t)half.n_x * 2);
        pass_free(&half);
        pass_free(&wide);
    }
}
END_TEST

START_TEST(test_block_recompute)
{
    EACH_TYPE_AND_FLASH(t, flash)
    {
        struct pass p = pass_new(&shapes[_i], t, flash, t, 0xff);
        pass_run(&p, 1, 0xff);
        struct ht_unit_args args = args_of(&p.model, p.s.B, p.s.T, t, t, NULL);
        struct parts parts;
        struct guarded guard;
        void *workspace = guarded_new(&guard, ht_unit_workspace_bytes(&p.model, 1, p.s.B, p.s.T, t, false), 0xff);
        parts_new(&parts, &args);
        ht_block_forward(&args, HT_ALL_SUB_OPS, p.params, p.x, &parts.act, p.out, workspace);
        parts_recomputed(&parts, &args, p.params, p.x, p.out, workspace, p.act, SANITIZED ? 17 : 1);
        parts_free(&parts);
        guarded_free(&guard);
        pass_free(&p);
    }
}
END_TEST

/* A pass in halves of the block: the same bits, gradients stored in 16 bit or in FP32. */
START_TEST(test_block_in_halves)
{
    EACH_TYPE_AND_FLASH(t, flash)
    {
        for (int k = 0; k < 2 * (HT_N_SUB_OPS - 1); k++) {
            enum ht_dtype store = k & 1 ? HT_F32 : t;
            struct pass whole = pass_new(&shapes[_i], t, flash, store, 0xff);
            struct pass p = pass_new(&shapes[_i], t, flash, store, 0xff);
            struct ht_unit_args args = args_of(&p.model, p.s.B, p.s.T, t, store, NULL);
            struct parts parts;
            unsigned front = parts_can_cut(p.model.arch, ht_front(1 + k / 2)) ? ht_front(1 + k / 2) : HT_ATTENTION_HALF;
            pass_run(&whole, 1, 0xff);
            parts_new(&parts, &args);
            parts_in_halves(&parts, &args, p.params, p.x, p.dout, p.out, p.dx, p.grad, front);
            ck_assert_mem_eq(p.out, whole.out, (size_t)p.n_x * 2);
            ck_assert_mem_eq(p.dx, whole.dx, (size_t)p.n_x * 2);
            ck_assert_mem_eq(p.grad, whole.grad, (size_t)(p.n_params * ht_dtype_bytes(store)));
            parts_are(&parts, whole.act);
            parts_free(&parts);
            pass_free(&whole);
            pass_free(&p);
        }
    }
}
END_TEST

/* ---- head ---- */

enum { B = 3, T = 7, ROWS = B * T };

static struct ht_model model_of(bool tied, bool llama)
{
    return (struct ht_model){.arch = llama ? HT_ARCH_LLAMA : HT_ARCH_GPT,
                             .layers = 2,
                             .width = 37,
                             .heads = 1,
                             .ffn = 5,
                             .vocab = 53,
                             .max_seq = T + 4,
                             .tied = tied,
                             .norm_eps = 1e-3};
}

struct head_pass {
    struct ht_model model;
    enum ht_dtype type;
    int64_t n_table, n_own, n_norm;
    void *params, *wte, *x;
    double *exact_params, *exact_wte, *exact_x;
    int32_t *targets;
    float scale;
    double loss_sum;
    struct guarded guards[7];
    float *dlogits;
    void *dx, *grad, *dwte;
};

static struct head_pass head_run(enum ht_dtype t, bool tied, bool llama, int threads, int poison)
{
    struct head_pass p = {.model = model_of(tied, llama), .type = t, .scale = 256.0f / ROWS};
    const struct ht_model *m = &p.model;
    int64_t n_x = ROWS * m->width;
    p.n_table = m->vocab * m->width;
    p.n_own = ht_unit_params(m, 3);
    p.n_norm = llama ? m->width : 2 * m->width;
    p.params = random_stored(1, p.n_own, 0.5f, t, &p.exact_params);
    p.wte = random_stored(2, p.n_table, 0.5f, t, &p.exact_wte);
    p.x = random_stored(3, n_x, 1, t, &p.exact_x);
    p.targets = random_tokens(4, ROWS, m->vocab);
    struct ht_pool *pool = ht_pool_create(threads, NULL);
    struct ht_unit_args args = args_of(m, B, T, t, t, pool);
    p.dlogits = guarded_new(&p.guards[0], ht_logits_bytes(m, B, T), poison);
    p.dx = guarded_new(&p.guards[1], n_x * 2, poison);
    p.grad = guarded_new(&p.guards[2], p.n_own * 2, poison);
    p.dwte = guarded_new(&p.guards[3], p.n_table * 2, poison);
    void *act = guarded_new(&p.guards[4], ht_unit_activation_bytes(m, 3, B, T, t), poison);
    void *forward = guarded_new(&p.guards[5], ht_unit_workspace_bytes(m, 3, B, T, t, false), poison);
    void *backward = guarded_new(&p.guards[6], ht_unit_workspace_bytes(m, 3, B, T, t, true), poison);
    const void *wte = tied ? p.wte : NULL;
    ht_head_forward(&args, p.params, wte, p.x, act, p.dlogits, p.targets, p.scale, &p.loss_sum, forward);
    ht_head_backward(&args, p.params, wte, p.x, act, p.dlogits, p.dx, p.grad, tied ? p.dwte : NULL, backward);
    ht_pool_destroy(pool);
    return p;
}

static void head_free(struct head_pass *p)
{
    for (int i = 0; i < 7; i++) guarded_free(&p->guards[i]);
    void *buffers[] = {p->params, p->wte, p->x, p->exact_params, p->exact_wte, p->exact_x, p->targets};
    for (size_t i = 0; i < HT_COUNT(buffers); i++) free(buffers[i]);
}

static double *exact_matrix(const struct head_pass *p)
{
    return p->model.tied ? p->exact_wte : p->exact_params + p->n_norm;
}

static double scaled_loss(void *ctx)
{
    struct head_pass *p = ctx;
    double loss = ref_head(&p->model, HT_F32, ROWS, p->exact_params, exact_matrix(p), p->exact_x, p->targets);
    return loss * (double)p->scale;
}

START_TEST(test_head)
{
    enum ht_dtype t = _i & 1 ? HT_F16 : HT_BF16;
    bool tied = _i >> 1 & 1, llama = _i >> 2;
    struct head_pass p = head_run(t, tied, llama, 2, 0xff);
    double loss = ref_head(&p.model, t, ROWS, p.exact_params, exact_matrix(&p), p.exact_x, p.targets);
    assert_close(p.loss_sum, loss, 1e-5, "loss with its input rounded", 0); /* FP32 from there on */
    struct distance dx = {0, 0}, norm = {0, 0}, matrix = {0, 0};
    const void *dmatrix = tied ? p.dwte : ht_element(p.grad, t, p.n_norm);
    for (int64_t i = 0; i < ROWS * p.model.width; i++)
        add(&dx, value_at(p.dx, t, i), ref_derivative(scaled_loss, &p, p.exact_x + i));
    for (int64_t i = 0; i < p.n_norm; i++)
        add(&norm, value_at(p.grad, t, i), ref_derivative(scaled_loss, &p, p.exact_params + i));
    for (int64_t i = 0; i < p.n_table; i++)
        add(&matrix, value_at(dmatrix, t, i), ref_derivative(scaled_loss, &p, exact_matrix(&p) + i));
    printf("head %-4s tied %d llama %d: dx %.2f u, norm %.2f u, matrix %.2f u\n", ht_dtype_name(t), tied, llama,
           in_roundoffs(&dx, t), in_roundoffs(&norm, t), in_roundoffs(&matrix, t));
    ck_assert_double_le(in_roundoffs(&dx, t), 2); /* fewer roundings than in a block */
    ck_assert_double_le(in_roundoffs(&norm, t), 2);
    ck_assert_double_le(in_roundoffs(&matrix, t), 2);
    struct head_made made = {p.loss_sum, p.dlogits, p.dx, dmatrix};
    assert_dense_head(&p.model, t, ROWS, p.params, tied ? p.wte : ht_element(p.params, t, p.n_norm), p.x, p.targets,
                      p.scale, &made, 0xff);
    for (int threads = 1; threads <= 3; threads += 2) {
        struct head_pass q = head_run(t, tied, llama, threads, 0x00);
        ck_assert(q.loss_sum == p.loss_sum);
        assert_same_logits(&p.model, ROWS, q.dlogits, p.dlogits);
        ck_assert_mem_eq(q.dx, p.dx, (size_t)(ROWS * p.model.width) * 2);
        ck_assert_mem_eq(q.grad, p.grad, (size_t)p.n_own * 2);
        if (tied) ck_assert_mem_eq(q.dwte, p.dwte, (size_t)p.n_table * 2);
        head_free(&q);
    }
    head_free(&p);
}
END_TEST

/* Logits without a loss are those that the loss is computed from. */
START_TEST(test_logits)
{
    enum ht_dtype t = _i & 1 ? HT_F16 : HT_BF16;
    struct head_pass p = head_run(t, true, _i >> 1, 1, 0xff);
    struct ht_unit_args args = args_of(&p.model, B, T, t, t, NULL);
    void *act = malloc((size_t)ht_unit_activation_bytes(&p.model, 3, B, T, t));
    float *logits = malloc((size_t)ht_logits_bytes(&p.model, B, T));
    ht_head_logits(&args, p.params, p.wte, p.x, act, logits);
    double loss = 0;
    for (int r = 0; r < ROWS; r++) {
        const float *row = logits + r * ht_logits_stride(&p.model);
        double sum = 0;
        for (int64_t v = 0; v < p.model.vocab; v++) sum += exp(row[v]);
        loss += log(sum) - row[p.targets[r]];
    }
    assert_close(p.loss_sum, loss, 1e-6, "loss", 0);
    free(act);
    free(logits);
    head_free(&p);
}
END_TEST

/* ---- embedding ---- */

static float rounded(double x, enum ht_dtype t)
{
    float y = (float)x;
    ref_round(&x, 1, t);
    return t == HT_F32 ? y : (float)x;
}

/* Computes the table's expected gradient: sums in FP32, in order, from what the head stored; then rounded. */
static float *expected_gradient(const struct ht_model *m, const int32_t *tokens, const void *dout, const void *head,
                                enum ht_dtype t)
{
    int64_t C = m->width, n_table = m->vocab * C, n = ht_unit_params(m, 0);
    float *sums = HT_NEW_ARRAY(float, n);
    for (int64_t i = 0; i < n_table && m->tied; i++) sums[i] = value_at(head, t, i);
    for (int64_t r = 0; r < ROWS; r++)
        for (int64_t c = 0; c < C; c++) {
            sums[tokens[r] * C + c] += value_at(dout, t, r * C + c);
            if (n > n_table) sums[n_table + r % T * C + c] += value_at(dout, t, r * C + c);
        }
    for (int64_t i = 0; i < n; i++) sums[i] = rounded(sums[i], t);
    return sums;
}

START_TEST(test_embedding)
{
    enum ht_dtype t = _i & 1 ? HT_F16 : HT_BF16, store = _i >> 1 & 1 ? HT_F32 : t;
    bool tied = _i >> 2 & 1, llama = _i >> 3;
    struct ht_model m = model_of(tied, llama);
    int64_t C = m.width, n = ht_unit_params(&m, 0), n_table = m.vocab * C;
    void *params = random_stored(1, n, 1, t, NULL), *dout = random_stored(2, ROWS * C, 1, t, NULL);
    void *head = random_stored(3, n_table, 1, t, NULL);
    int32_t *tokens = random_tokens(4, ROWS, 9); /* few of them, so that tokens repeat */
    float *expected = expected_gradient(&m, tokens, dout, head, t);
    for (int threads = 1; threads <= 3; threads++) {
        struct ht_pool *pool = ht_pool_create(threads, NULL);
        struct ht_unit_args args = args_of(&m, B, T, t, store, pool);
        struct guarded g_out, g_grad, g_work;
        void *out = guarded_new(&g_out, ROWS * C * 2, 0xff),
             *grad = guarded_new(&g_grad, n * ht_dtype_bytes(store), 0xff);
        void *workspace = guarded_new(&g_work, ht_unit_workspace_bytes(&m, 0, B, T, t, true), 0x01);
        ht_embedding_forward(&args, tokens, params, out, NULL);
        for (int64_t i = 0; i < ROWS * C; i++) {
            double sum = value_at(params, t, tokens[i / C] * C + i % C);
            if (!llama) sum += value_at(params, t, n_table + i / C % T * C + i % C);
            ck_assert(value_at(out, t, i) == rounded(sum, t));
        }
        if (tied && store == t) memcpy(grad, head, (size_t)n_table * 2); /* what the head wrote first */
        if (tied && store != t) ht_widen_copy(NULL, head, t, grad, n_table);
        ht_embedding_backward(&args, tokens, dout, grad, workspace);
        for (int64_t i = 0; i < n; i++)
            if (value_at(grad, store, i) != expected[i])
                ck_abort_msg("gradient %d: %a, not %a", (int)i, value_at(grad, store, i), expected[i]);
        guarded_free(&g_out);
        guarded_free(&g_grad);
        guarded_free(&g_work);
        ht_pool_destroy(pool);
    }
    void *buffers[] = {params, dout, head, tokens, expected};
    for (size_t i = 0; i < HT_COUNT(buffers); i++) free(buffers[i]);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("half_units");
    TCase *t = tcase_create("half_units");
    tcase_add_loop_test(t, test_block_against_reference, 0, HT_COUNT(shapes));
    tcase_add_loop_test(t, test_block_workers_and_dirt, 0, HT_COUNT(shapes));
    tcase_add_loop_test(t, test_block_gradients_in_f32, 0, HT_COUNT(shapes));
    tcase_add_loop_test(t, test_block_recompute, 0, HT_COUNT(shapes));
    tcase_add_loop_test(t, test_block_in_halves, 0, HT_COUNT(shapes));
    tcase_add_loop_test(t, test_head, 0, 8);
    tcase_add_loop_test(t, test_logits, 0, 4);
    tcase_add_loop_test(t, test_embedding, 0, 16);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}
