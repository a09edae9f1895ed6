/*
 * The block: forward against the double reference, backward against its central differences, with odd sizes and one to
 * three attention tiles. Then what must not matter: the number of workers, dirty memory, where each sub-op's
 * activations lie, which of them were recomputed, whether a pass is one call or two halves.
 */
#include <stdio.h>

#include "common/base/array.h"
#include "common/kernels/unit.h"
#include "tests/common/kernels/guarded.h"
#include "tests/common/kernels/parts.h"
#include "tests/common/kernels/reference.h"

struct shape {
    int64_t B, T, C, H, F;
    int64_t every;        /* differences are taken at every so many-th coordinate */
    int64_t KV;           /* heads of keys: a LLaMA block; 0: another */
    enum ht_arch encoder; /* HT_ARCH_GPT: none */
};
static const struct shape shapes[] = {
    {2, 5, 12, 3, 20, 1, 0, HT_ARCH_GPT},
    {1, 1, 4, 1, 3, 1, 0, HT_ARCH_GPT},
    {1, 70, 8, 2, 12, 5, 0, HT_ARCH_GPT},
    {3, 131, 6, 1, 7, 37, 0, HT_ARCH_GPT},
    {2, 64, 33, 3, 35, 397, 0, HT_ARCH_GPT},
    /* LLaMA: one, two and four query heads to a head of keys; the last one's heads have more than 64 frequencies */
    {2, 5, 12, 3, 7, 1, 3, HT_ARCH_GPT},
    {1, 9, 24, 4, 11, 1, 2, HT_ARCH_GPT},
    {1, 70, 8, 4, 5, 5, 1, HT_ARCH_GPT},
    {3, 131, 6, 1, 7, 37, 1, HT_ARCH_GPT},
    {2, 65, 48, 8, 19, 397, 2, HT_ARCH_GPT},
    {1, 3, 264, 2, 9, 1999, 1, HT_ARCH_GPT},
    {2, 5, 12, 3, 20, 1, 0, HT_ARCH_BERT},
    {1, 70, 8, 2, 12, 5, 0, HT_ARCH_BERT},
    {3, 131, 6, 1, 7, 37, 0, HT_ARCH_BERT},
    {2, 64, 33, 3, 35, 397, 0, HT_ARCH_BERT},
    {2, 5, 12, 3, 20, 1, 0, HT_ARCH_VIT},
    {1, 70, 8, 2, 12, 5, 0, HT_ARCH_VIT},
    {2, 64, 33, 3, 35, 397, 0, HT_ARCH_VIT},
};

/* Inputs and outputs of one pass forward and back. */
struct pass {
    struct ht_model model;
    struct shape s;
    int64_t n_params, n_x, act_bytes;
    float *params, *x, *dout; /* inputs */
    struct guarded guards[6];
    float *out, *dx, *grad;
    void *act;
};

static struct ht_unit_args args_of(const struct pass *p, struct ht_pool *pool)
{
    return (struct ht_unit_args){.model = &p->model, .batch = p->s.B, .seq = p->s.T, .pool = pool};
}

static struct pass pass_new(const struct shape *s, bool flash, int poison)
{
    struct pass p = {.s = *s,
                     .model = {.arch = s->KV ? HT_ARCH_LLAMA : s->encoder,
                               .layers = 1,
                               .width = s->C,
                               .heads = s->H,
                               .ffn = s->F,
                               .vocab = 8,
                               .max_seq = s->T,
                               .flash = flash,
                               .kv_heads = s->KV,
                               .rope_theta = 50, /* so that high frequencies are not all there is */
                               .norm_eps = 1e-3}};
    p.n_params = ht_unit_params(&p.model, 1);
    p.n_x = s->B * s->T * s->C;
    p.act_bytes = ht_unit_activation_bytes(&p.model, 1, s->B, s->T, HT_F32);
    p.params =
        random_floats(1, p.n_params, s->C > 64 ? 0.2f : 0.5f); /* wide sums are kept from sharpening the softmax */
    p.x = random_floats(2, p.n_x, 1);
    p.dout = random_floats(3, p.n_x, 0.3f);
    p.out = guarded_new(&p.guards[0], p.n_x * 4, poison);
    p.dx = guarded_new(&p.guards[1], p.n_x * 4, poison);
    p.grad = guarded_new(&p.guards[2], p.n_params * 4, poison);
    p.act = guarded_new(&p.guards[3], p.act_bytes, poison);
    return p;
}

static void pass_run(struct pass *p, int threads, int poison)
{
    struct ht_pool *pool = ht_pool_create(threads, NULL);
    struct ht_unit_args args = args_of(p, pool);
    void *workspace[2];
    for (int backward = 0; backward < 2; backward++) {
        int64_t bytes = ht_unit_workspace_bytes(&p->model, 1, p->s.B, p->s.T, HT_F32, backward);
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
    free(p->params);
    free(p->x);
    free(p->dout);
}

/* sum of dout * block(params, x), in double */
struct scalar {
    const struct pass *pass;
    double *params, *x, *out;
};

static double scalar_value(void *ctx)
{
    struct scalar *s = ctx;
    const struct pass *p = s->pass;
    double sum = 0;
    ref_block(&p->model, HT_F32, p->s.B, p->s.T, s->params, s->x, s->out);
    for (int64_t i = 0; i < p->n_x; i++) sum += p->dout[i] * s->out[i];
    return sum;
}

static double *in_double(const float *x, int64_t n)
{
    double *d = HT_NEW_ARRAY(double, n);
    for (int64_t i = 0; i < n; i++) d[i] = x[i];
    return d;
}

START_TEST(test_against_reference)
{
    const struct shape *s = &shapes[_i];
    for (int flash = 0; flash < 2; flash++) {
        struct pass p = pass_new(s, flash, 0xff);
        pass_run(&p, 2, 0xff);
        struct scalar f = {&p, in_double(p.params, p.n_params), in_double(p.x, p.n_x), HT_NEW_ARRAY(double, p.n_x)};
        scalar_value(&f);
        for (int64_t i = 0; i < p.n_x; i++) assert_close(p.out[i], f.out[i], 1e-5, "out", i);
        for (int64_t i = 0; i < p.n_x; i += s->every)
            assert_close(p.dx[i], ref_derivative(scalar_value, &f, f.x + i), 2e-5, "dx", i);
        for (int64_t i = 0; i < p.n_params; i += s->every)
            assert_close(p.grad[i], ref_derivative(scalar_value, &f, f.params + i), 2e-5, "grad", i);
        free(f.params);
        free(f.x);
        free(f.out);
        pass_free(&p);
    }
}
END_TEST

/* One worker over NaN against two, three and five over zeros and other patterns. */
START_TEST(test_workers_and_dirt_do_not_matter)
{
    static const int poisons[] = {0x00, 0x7f, 0xff};
    for (int flash = 0; flash < 2; flash++) {
        struct pass first = pass_new(&shapes[_i], flash, 0xff);
        pass_run(&first, 1, 0xff);
        for (int threads = 2; threads <= 5; threads++) {
            int poison = poisons[threads % 3];
            struct pass p = pass_new(&shapes[_i], flash, poison);
            pass_run(&p, threads, poison);
            ck_assert_mem_eq(p.out, first.out, (size_t)p.n_x * 4);
            ck_assert_mem_eq(p.dx, first.dx, (size_t)p.n_x * 4);
            ck_assert_mem_eq(p.grad, first.grad, (size_t)p.n_params * 4);
            pass_free(&p);
        }
        pass_free(&first);
    }
}
END_TEST

/* Flash changes what is kept, not the output: the same products and the same softmax, tile by tile. */
START_TEST(test_flash_forward_is_the_same)
{
    struct pass kept = pass_new(&shapes[_i], false, 0xff), flash = pass_new(&shapes[_i], true, 0xff);
    pass_run(&kept, 1, 0xff);
    pass_run(&flash, 1, 0xff);
    ck_assert_mem_eq(kept.out, flash.out, (size_t)kept.n_x * 4);
    for (int64_t i = 0; i < kept.n_params; i++) assert_close(flash.grad[i], kept.grad[i], 1e-5, "grad", i);
    pass_free(&kept);
    pass_free(&flash);
}
END_TEST

/* A block computes the same in separate pieces as in one; every subset of them is recomputed. */
START_TEST(test_activations_in_parts)
{
    for (int flash = 0; flash < 2; flash++) {
        struct pass whole = pass_new(&shapes[_i], flash, 0xff), p = pass_new(&shapes[_i], flash, 0xff);
        struct ht_unit_args args = args_of(&p, NULL);
        struct parts parts;
        struct guarded guards[2];
        void *workspace[2];
        for (int back = 0; back < 2; back++)
            workspace[back] =
                guarded_new(&guards[back], ht_unit_workspace_bytes(&p.model, 1, p.s.B, p.s.T, HT_F32, back), 0xff);
        pass_run(&whole, 1, 0xff);
        parts_new(&parts, &args);
        ht_block_forward(&args, HT_ALL_SUB_OPS, p.params, p.x, &parts.act, p.out, workspace[0]);
        ck_assert_mem_eq(p.out, whole.out, (size_t)p.n_x * 4);
        parts_are(&parts, whole.act);
        parts_recomputed(&parts, &args, p.params, p.x, p.out, workspace[0], whole.act, 1);
        ht_block_backward(&args, HT_ALL_SUB_OPS, p.params, p.x, &parts.act, p.dout, p.dx, p.grad, workspace[1]);
        ck_assert_mem_eq(p.dx, whole.dx, (size_t)p.n_x * 4);
        ck_assert_mem_eq(p.grad, whole.grad, (size_t)p.n_params * 4);
        parts_are(&parts, whole.act);
        for (int back = 0; back < 2; back++) guarded_free(&guards[back]);
        parts_free(&parts);
        pass_free(&whole);
        pass_free(&p);
    }
}
END_TEST

/* A block computes the same in halves as in one call, wherever it is cut, by one worker and by three. */
START_TEST(test_halves)
{
    for (int k = 0; k < 4 * (HT_N_SUB_OPS - 1); k++) {
        struct ht_pool *pool = ht_pool_create(k & 2 ? 3 : 1, NULL);
        struct pass whole = pass_new(&shapes[_i], k & 1, 0xff), p = pass_new(&shapes[_i], k & 1, 0xff);
        struct ht_unit_args args = args_of(&p, pool);
        struct parts parts;
        unsigned front = parts_can_cut(p.model.arch, ht_front(1 + k / 4)) ? ht_front(1 + k / 4) : HT_ATTENTION_HALF;
        pass_run(&whole, 1, 0xff);
        parts_new(&parts, &args);
        parts_in_halves(&parts, &args, p.params, p.x, p.dout, p.out, p.dx, p.grad, front);
        ck_assert_mem_eq(p.out, whole.out, (size_t)p.n_x * 4);
        ck_assert_mem_eq(p.dx, whole.dx, (size_t)p.n_x * 4);
        ck_assert_mem_eq(p.grad, whole.grad, (size_t)p.n_params * 4);
        parts_are(&parts, whole.act);
        parts_free(&parts);
        pass_free(&whole);
        pass_free(&p);
        ht_pool_destroy(pool);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("block");
    TCase *t = tcase_create("block");
    tcase_add_loop_test(t, test_against_reference, 0, HT_COUNT(shapes));
    tcase_add_loop_test(t, test_workers_and_dirt_do_not_matter, 0, HT_COUNT(shapes));
    tcase_add_loop_test(t, test_flash_forward_is_the_same, 0, HT_COUNT(shapes));
    tcase_add_loop_test(t, test_activations_in_parts, 0, HT_COUNT(shapes));
    tcase_add_loop_test(t, test_halves, 0, HT_COUNT(shapes));
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}
