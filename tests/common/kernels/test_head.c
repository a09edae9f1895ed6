/* Embedding, head, accumulation, initial values: against the double reference, for tied and untied tables,
   GPT and LLaMA. */
#include <stdio.h>

#include "common/base/array.h"
#include "common/kernels/grad_sum.h"
#include "common/kernels/unit.h"
#include "tests/common/kernels/dense_head.h"
#include "tests/common/kernels/guarded.h"
#include "tests/common/kernels/reference.h"

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

static float *new_floats(struct guarded *g, int64_t n, int poison)
{
    return guarded_new(g, n * 4, poison);
}

/* ---- head ---- */

struct head_pass {
    struct ht_model model;
    int64_t n_table, n_own; /* elements of the matrix, of the head's own parameters */
    float *params, *wte, *x;
    int32_t *targets;
    float scale;
    double loss_sum;
    struct guarded guards[7];
    float *dlogits, *dx, *grad, *dwte;
};

static struct head_pass head_run(bool tied, bool llama, int threads, int poison)
{
    struct head_pass p = {.model = model_of(tied, llama), .scale = 1.0f / ROWS};
    const struct ht_model *m = &p.model;
    p.n_table = m->vocab * m->width;
    p.n_own = ht_unit_params(m, 3);
    p.params = random_floats(1, p.n_own, 0.5f);
    p.wte = random_floats(2, p.n_table, 0.5f);
    p.x = random_floats(3, ROWS * m->width, 1);
    p.targets = random_tokens(4, ROWS, m->vocab);
    struct ht_pool *pool = ht_pool_create(threads, NULL);
    struct ht_unit_args args = {.model = m, .batch = B, .seq = T, .pool = pool};
    p.dlogits = guarded_new(&p.guards[0], ht_logits_bytes(m, B, T), poison);
    p.dx = new_floats(&p.guards[1], ROWS * m->width, poison);
    p.grad = new_floats(&p.guards[2], p.n_own, poison);
    p.dwte = new_floats(&p.guards[3], p.n_table, poison);
    void *act = guarded_new(&p.guards[4], ht_unit_activation_bytes(m, 3, B, T, HT_F32), poison);
    void *forward = guarded_new(&p.guards[5], ht_unit_workspace_bytes(m, 3, B, T, HT_F32, false), poison);
    void *backward = guarded_new(&p.guards[6], ht_unit_workspace_bytes(m, 3, B, T, HT_F32, true), poison);
    ht_head_forward(&args, p.params, tied ? p.wte : NULL, p.x, act, p.dlogits, p.targets, p.scale, &p.loss_sum,
                    forward);
    ht_head_backward(&args, p.params, tied ? p.wte : NULL, p.x, act, p.dlogits, p.dx, p.grad, tied ? p.dwte : NULL,
                     backward);
    ht_pool_destroy(pool);
    return p;
}

static void head_free(struct head_pass *p)
{
    for (int i = 0; i < 7; i++) guarded_free(&p->guards[i]);
    free(p->params);
    free(p->wte);
    free(p->x);
    free(p->targets);
}

struct head_scalar {
    const struct head_pass *pass;
    double *params, *matrix, *x;
};

static double mean_loss(void *ctx)
{
    struct head_scalar *s = ctx;
    return ref_head(&s->pass->model, HT_F32, ROWS, s->params, s->matrix, s->x, s->pass->targets) *
           (double)s->pass->scale;
}

static double *in_double(const float *x, int64_t n)
{
    double *d = HT_NEW_ARRAY(double, n);
    for (int64_t i = 0; i < n; i++) d[i] = x[i];
    return d;
}

START_TEST(test_head_against_reference)
{
    bool tied = _i & 1, llama = _i >> 1;
    struct head_pass p = head_run(tied, llama, 2, 0xff);
    int64_t C = p.model.width, n_norm = llama ? C : 2 * C;
    struct head_scalar f = {&p, in_double(p.params, n_norm), in_double(tied ? p.wte : p.params + n_norm, p.n_table),
                            in_double(p.x, ROWS * C)};
    const float *dmatrix = tied ? p.dwte : p.grad + n_norm;
    assert_close(p.loss_sum / ROWS, mean_loss(&f), 1e-6, "loss", 0);
    for (int64_t i = 0; i < ROWS * C; i++) assert_close(p.dx[i], ref_derivative(mean_loss, &f, f.x + i), 1e-6, "dx", i);
    for (int64_t i = 0; i < n_norm; i++)
        assert_close(p.grad[i], ref_derivative(mean_loss, &f, f.params + i), 1e-6, "grad", i);
    for (int64_t i = 0; i < p.n_table; i++)
        assert_close(dmatrix[i], ref_derivative(mean_loss, &f, f.matrix + i), 1e-6, "dmatrix", i);
    if (!tied) /* the tied gradient's buffer was not handed over */
        for (int64_t i = 0; i < p.n_table; i++) ck_assert(isnan(p.dwte[i]));
    free(f.params);
    free(f.matrix);
    free(f.x);
    head_free(&p);
}
END_TEST

START_TEST(test_head_workers_and_dirt)
{
    bool llama = _i;
    struct head_pass first = head_run(true, llama, 1, 0xff);
    for (int threads = 2; threads <= 4; threads++) {
        struct head_pass p = head_run(true, llama, threads, threads % 2 ? 0x7f : 0);
        ck_assert(p.loss_sum == first.loss_sum);
        assert_same_logits(&p.model, ROWS, p.dlogits, first.dlogits);
        ck_assert_mem_eq(p.dx, first.dx, (size_t)(ROWS * p.model.width) * 4);
        ck_assert_mem_eq(p.grad, first.grad, (size_t)p.n_own * 4);
        ck_assert_mem_eq(p.dwte, first.dwte, (size_t)p.n_table * 4);
        head_free(&p);
    }
    head_free(&first);
}
END_TEST

START_TEST(test_head_padding)
{
    bool tied = _i & 1, llama = _i >> 1;
    struct head_pass p = head_run(tied, llama, 2, 0xff);
    int64_t n_norm = llama ? p.model.width : 2 * p.model.width;
    struct head_made made = {p.loss_sum, p.dlogits, p.dx, tied ? p.dwte : p.grad + n_norm};
    assert_dense_head(&p.model, HT_F32, ROWS, p.params, tied ? p.wte : p.params + n_norm, p.x, p.targets, p.scale,
                      &made, 0xff);
    head_free(&p);
}
END_TEST

/* ---- classifier: BERT's, with a pooler, and ViT's ---- */

struct class_pass {
    struct ht_model model;
    int64_t n, n_x; /* parameters; B T C */
    float *params, *x;
    int32_t *targets;
    double loss_sum;
    struct guarded guards[6];
    float *dlogits, *dx, *grad;
};

static struct class_pass class_run(enum ht_arch arch, int threads, int poison)
{
    struct class_pass p = {.model = model_of(false, false)};
    struct ht_model *m = &p.model;
    m->arch = arch;
    m->classes = 19; /* more than a grain of features */
    p.n = ht_unit_params(m, 3);
    p.n_x = ROWS * m->width;
    p.params = random_floats(1, p.n, 0.3f);
    p.x = random_floats(2, p.n_x, 1);
    p.targets = random_tokens(3, B, m->classes);
    struct ht_pool *pool = ht_pool_create(threads, NULL);
    struct ht_unit_args args = {.model = m, .batch = B, .seq = T, .pool = pool};
    p.dlogits = guarded_new(&p.guards[0], ht_logits_bytes(m, B, T), poison);
    p.dx = new_floats(&p.guards[1], p.n_x, poison);
    p.grad = new_floats(&p.guards[2], p.n, poison);
    void *act = guarded_new(&p.guards[3], ht_unit_activation_bytes(m, 3, B, T, HT_F32), poison);
    void *forward = guarded_new(&p.guards[4], ht_unit_workspace_bytes(m, 3, B, T, HT_F32, false), poison);
    void *backward = guarded_new(&p.guards[5], ht_unit_workspace_bytes(m, 3, B, T, HT_F32, true), poison);
    ht_head_forward(&args, p.params, NULL, p.x, act, p.dlogits, p.targets, 1.0f / B, &p.loss_sum, forward);
    ht_head_backward(&args, p.params, NULL, p.x, act, p.dlogits, p.dx, p.grad, NULL, backward);
    ht_pool_destroy(pool);
    return p;
}

static void class_free(struct class_pass *p)
{
    for (int i = 0; i < 6; i++) guarded_free(&p->guards[i]);
    free(p->params);
    free(p->x);
    free(p->targets);
}

struct class_scalar {
    const struct class_pass *p;
    double *params, *x;
};

static double mean_class_loss(void *ctx)
{
    struct class_scalar *f = ctx;
    return ref_classifier(&f->p->model, HT_F32, B, T, f->params, f->x, f->p->targets) / B;
}

/* Only the first of a sequence's T rows has a gradient: the reference's differences are 0 elsewhere, too. */
START_TEST(test_classifier_against_reference)
{
    struct class_pass p = class_run(_i ? HT_ARCH_VIT : HT_ARCH_BERT, 2, 0xff);
    struct class_scalar f = {&p, in_double(p.params, p.n), in_double(p.x, p.n_x)};
    assert_close(p.loss_sum / B, mean_class_loss(&f), 1e-6, "loss", 0);
    for (int64_t i = 0; i < p.n_x; i++)
        assert_close(p.dx[i], ref_derivative(mean_class_loss, &f, f.x + i), 1e-6, "dx", i);
    for (int64_t i = 0; i < p.n; i++)
        assert_close(p.grad[i], ref_derivative(mean_class_loss, &f, f.params + i), 1e-6, "grad", i);
    free(f.params);
    free(f.x);
    class_free(&p);
}
END_TEST

START_TEST(test_classifier_workers_and_dirt)
{
    struct class_pass first = class_run(_i ? HT_ARCH_VIT : HT_ARCH_BERT, 1, 0xff);
    for (int threads = 2; threads <= 4; threads++) {
        struct class_pass p = class_run(first.model.arch, threads, threads % 2 ? 0x7f : 0);
        ck_assert(p.loss_sum == first.loss_sum);
        ck_assert_mem_eq(p.dx, first.dx, (size_t)p.n_x * 4);
        ck_assert_mem_eq(p.grad, first.grad, (size_t)p.n * 4);
        class_free(&p);
    }
    class_free(&first);
}
END_TEST

/* ---- embedding ---- */

START_TEST(test_embedding)
{
    bool tied = _i & 1;
    int threads = 1 + _i / 2 % 3;
    bool positions = _i < 6 || _i >= 12, types = _i >= 12; /* LLaMA has no table of positions, BERT also one of types */
    struct ht_model m = model_of(tied && !types, !positions);
    if (types) {
        m.arch = HT_ARCH_BERT;
        m.classes = 2;
        tied = false;
    }
    int64_t C = m.width, n = ht_unit_params(&m, 0), n_table = m.vocab * C, type_at = n_table + m.max_seq * C;
    float *params = random_floats(1, n, 1), *dout = random_floats(2, ROWS * C, 1), *head = random_floats(3, n_table, 1);
    int32_t *tokens = random_tokens(4, ROWS, 9); /* few of them, so that tokens repeat */
    struct ht_pool *pool = ht_pool_create(threads, NULL);
    struct ht_unit_args args = {.model = &m, .batch = B, .seq = T, .pool = pool};
    struct guarded g_out, g_grad;
    float *out = new_floats(&g_out, ROWS * C, 0xff), *grad = new_floats(&g_grad, n, 0xff);
    ht_embedding_forward(&args, tokens, params, out, NULL);
    for (int64_t r = 0; r < ROWS; r++)
        for (int64_t c = 0; c < C; c++)
            ck_assert(out[r * C + c] == params[tokens[r] * C + c] + (positions ? params[n_table + r % T * C + c] : 0) +
                                            (types ? params[type_at + c] : 0));

    if (tied) memcpy(grad, head, (size_t)n_table * sizeof(float)); /* what the head wrote first */
    ht_embedding_backward(&args, tokens, dout, grad, NULL);
    float *expected = calloc((size_t)n, sizeof(float));
    if (tied) memcpy(expected, head, (size_t)n_table * sizeof(float));
    for (int64_t r = 0; r < ROWS; r++)
        for (int64_t c = 0; c < C; c++) {
            expected[tokens[r] * C + c] += dout[r * C + c];
            if (positions) expected[n_table + r % T * C + c] += dout[r * C + c];
            if (types) expected[type_at + c] += dout[r * C + c];
        }
    for (int64_t i = 0; i < n; i++) ck_assert(grad[i] == expected[i]); /* the same sums in the same order */
    guarded_free(&g_out);
    guarded_free(&g_grad);
    float *buffers[] = {params, dout, head, expected};
    for (size_t i = 0; i < HT_COUNT(buffers); i++) free(buffers[i]);
    free(tokens);
    ht_pool_destroy(pool);
}
END_TEST

/* ---- the two parts of a tied table's gradient ---- */

/* One device adds the head's and the embedding's part micro-batch by micro-batch, two stages of a pipeline add up each
   part by itself. The n terms of an element are the same, so the sums differ by at most 2 g(n - 1) times the sum of
   their sizes, g(n) = n u / (1 - n u), u = 2^-24 (Higham, "Accuracy and Stability of Numerical Algorithms", 2002, Sec.
   4.2); where the embedding adds nothing, not at all. */
START_TEST(test_tied_orders)
{
    enum { MICRO_BATCHES = 5 };
    struct ht_model m = model_of(true, false);
    struct ht_unit_args args = {.model = &m, .batch = B, .seq = T};
    int64_t n = ht_unit_params(&m, 0), n_table = m.vocab * m.width, n_differ = 0;
    float *heads = calloc((size_t)n, 4), *tokens_sum = calloc((size_t)n, 4), *sum = calloc((size_t)n, 4);
    double *sizes = calloc((size_t)n, sizeof(double));
    int *terms = calloc((size_t)n, sizeof(int));
    for (int j = 0; j < MICRO_BATCHES; j++) {
        float *head = random_floats((uint64_t)(10 + j), n, 1),
              *dout = random_floats((uint64_t)(20 + j), ROWS * m.width, 1);
        float *apart = calloc((size_t)n, 4);
        int32_t *tokens = random_tokens((uint64_t)(30 + j), ROWS, 9);
        ht_grad_sum(NULL, heads, HT_F32, head, HT_F32, n_table);
        for (int64_t i = 0; i < n_table; i++) sizes[i] += fabs((double)head[i]), terms[i]++;
        for (int64_t i = 0; i < ROWS * m.width; i++) {
            int64_t at = tokens[i / m.width] * m.width + i % m.width;
            sizes[at] += fabs((double)dout[i]), terms[at]++;
        }
        ht_embedding_backward(&args, tokens, dout, apart, NULL);
        ht_embedding_backward(&args, tokens, dout, head, NULL); /* on top of the head's */
        ht_grad_sum(NULL, tokens_sum, HT_F32, apart, HT_F32, n_table);
        ht_grad_sum(NULL, sum, HT_F32, head, HT_F32, n_table);
        void *buffers[] = {head, dout, apart, tokens};
        for (size_t i = 0; i < HT_COUNT(buffers); i++) free(buffers[i]);
    }
    ht_grad_sum(NULL, heads, HT_F32, tokens_sum, HT_F32, n_table);
    for (int64_t i = 0; i < n_table; i++) {
        double nu = (terms[i] - 1) * 0x1p-24, bound = 2 * nu / (1 - nu) * sizes[i];
        if (terms[i] == MICRO_BATCHES) bound = 0;
        ck_assert_double_le(fabs((double)heads[i] - (double)sum[i]), bound);
        n_differ += heads[i] != sum[i];
    }
    ck_assert_int_gt(n_differ, 0);
    void *buffers[] = {heads, tokens_sum, sum, sizes, terms};
    for (size_t i = 0; i < HT_COUNT(buffers); i++) free(buffers[i]);
}
END_TEST

/* ---- accumulation and initial values ---- */

START_TEST(test_accumulate)
{
    for (int64_t n = 0; n < 300; n += 37)
        for (int threads = 1; threads <= 3; threads++) {
            struct ht_pool *pool = ht_pool_create(threads, NULL);
            float *a = random_floats(1, n, 1), *b = random_floats(2, n, 1);
            struct guarded g;
            float *acc = new_floats(&g, n, 0);
            memcpy(acc, a, (size_t)n * sizeof(float));
            ht_grad_sum(pool, acc, HT_F32, b, HT_F32, n);
            for (int64_t i = 0; i < n; i++) ck_assert(acc[i] == a[i] + b[i]);
            guarded_free(&g);
            free(a);
            free(b);
            ht_pool_destroy(pool);
        }
}
END_TEST

/* a = 0.02 sqrt(3) = 0.0346410; for the projections of 2 layers a / sqrt(4) = 0.0173205. A uniform variable in (-a, a)
   has standard deviation a / sqrt(3) = 0.02, or 0.01. LLaMA's projections are drawn as everything else. */
START_TEST(test_init)
{
    struct ht_model m = {.arch = _i ? HT_ARCH_LLAMA : HT_ARCH_GPT,
                         .layers = 2,
                         .width = 64,
                         .heads = 1,
                         .ffn = 256,
                         .vocab = 300,
                         .max_seq = 65,
                         .tied = false};
    for (int64_t u = 0; u < 4; u++) {
        int64_t n = ht_unit_params(&m, u);
        struct guarded g;
        float *p = new_floats(&g, n, 0xff);
        ht_unit_init(&m, u, 99, p);
        for (int64_t begin = 0, end; begin < n; begin = end) { /* in ranges of 1, 2, 4 .. elements: the same */
            float *range = HT_NEW_ARRAY(float, end = 2 * begin + 1 < n ? 2 * begin + 1 : n);
            ht_unit_init_range(&m, u, 99, begin, end, range);
            ck_assert_mem_eq(range, p + begin, (size_t)(end - begin) * sizeof(float));
            free(range);
        }
        struct ht_param_part parts[HT_MAX_PARAM_PARTS];
        int n_parts = ht_unit_param_parts(&m, u, parts);
        for (int k = 0; k < n_parts; k++) {
            const float *w = p + parts[k].offset;
            int64_t size = parts[k].rows * parts[k].cols;
            bool bias = strstr(parts[k].name, "bias") != NULL, norm = parts[k].rows == 1 && !bias;
            double sum = 0, squares = 0, std = strstr(parts[k].name, "c_proj") ? 0.01 : 0.02;
            for (int64_t i = 0; i < size; i++) {
                sum += w[i];
                squares += (double)w[i] * w[i];
                if (bias || norm)
                    ck_assert(w[i] == (bias ? 0 : 1));
                else
                    ck_assert(fabsf(w[i]) <= (float)(std * 1.7320509));
            }
            if (bias || norm) continue;
            ck_assert_double_eq_tol(sum / (double)size, 0, std * 0.06); /* sizes are 4096 at least: 1/64 = 0.016 */
            ck_assert_double_eq_tol(sqrt(squares / (double)size), std, std * 0.05);
        }
        guarded_free(&g);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("head");
    TCase *t = tcase_create("head");
    tcase_add_loop_test(t, test_head_against_reference, 0, 4);
    tcase_add_loop_test(t, test_head_workers_and_dirt, 0, 2);
    tcase_add_loop_test(t, test_head_padding, 0, 4);
    tcase_add_loop_test(t, test_embedding, 0, 18);
    tcase_add_loop_test(t, test_classifier_against_reference, 0, 2);
    tcase_add_loop_test(t, test_classifier_workers_and_dirt, 0, 2);
    tcase_add_test(t, test_tied_orders);
    tcase_add_test(t, test_accumulate);
    tcase_add_loop_test(t, test_init, 0, 2);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}
