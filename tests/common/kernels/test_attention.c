/*
 * Attention by itself, causal and bidirectional: against the double reference and its central differences, and the bits
 * against those of one worker. Blocks (test_block.c) go through the same code with more around it.
 */
#include <stdio.h>

#include "common/base/array.h"
#include "common/kernels/attention.h"
#include "tests/common/kernels/guarded.h"
#include "tests/common/kernels/reference.h"

struct shape {
    int64_t B, T, H, KV, D, every; /* differences are taken at every so many-th coordinate */
};
/* Lengths below, at and around one to three tiles of 64 rows; shared keys. */
static const struct shape shapes[] = {
    {2, 1, 1, 1, 3, 1}, {2, 7, 3, 3, 4, 1}, {1, 64, 2, 1, 5, 31}, {2, 65, 2, 2, 3, 37}, {1, 131, 4, 2, 3, 53},
};

struct pass {
    struct shape s;
    bool bidirectional, flash;
    int64_t n_qkv, n_out;
    float *qkv, *dout;
    float *out, *dqkv;
    struct guarded guards[6];
};

struct job {
    struct ht_attention a;
    const float *dout; /* NULL: forward */
    float *dqkv;
};

static void work(void *arg, int worker, int n_workers)
{
    const struct job *j = arg;
    if (j->dout)
        ht_attention_backward(ht_simd(), &j->a, j->dout, j->dqkv, worker, n_workers);
    else
        ht_attention_forward(ht_simd(), &j->a, worker, n_workers);
}

static struct pass run(const struct shape *s, bool bidirectional, bool flash, int threads)
{
    int64_t C = s->H * s->D, W = C + 2 * s->KV * s->D, slots = s->B * s->KV;
    struct pass p = {.s = *s, .bidirectional = bidirectional, .flash = flash};
    p.n_qkv = s->B * s->T * W;
    p.n_out = s->B * s->T * C;
    p.qkv = random_floats(1, p.n_qkv, 1.5f);
    p.dout = random_floats(2, p.n_out, 1);
    p.out = guarded_new(&p.guards[0], p.n_out * 4, 0xff);
    p.dqkv = guarded_new(&p.guards[1], p.n_qkv * 4, 0xff);
    int64_t tile = HT_ATTENTION_ROWS * s->T, probs = s->B * s->H * s->T * s->T;
    struct job job = {.a = {.batch = s->B,
                            .seq = s->T,
                            .heads = s->H,
                            .kv_heads = s->KV,
                            .width = C,
                            .bidirectional = bidirectional,
                            .qkv = p.qkv,
                            .out = p.out,
                            .tile_floats = tile,
                            .slots = slots}};
    float *lse = guarded_new(&p.guards[2], s->B * s->H * s->T * 4, 0xff);
    float *kept = guarded_new(&p.guards[3], probs * 4, 0xff);
    job.a.lse = flash ? lse : NULL;
    job.a.probs = flash ? NULL : kept;
    job.a.scores = guarded_new(&p.guards[4], slots * tile * 4, 0xff);
    job.a.dscores = guarded_new(&p.guards[5], slots * tile * 4, 0xff);
    struct ht_pool *pool = ht_pool_create(threads, NULL);
    ht_pool_run(pool, work, &job);
    job.dout = p.dout;
    job.dqkv = p.dqkv;
    ht_pool_run(pool, work, &job);
    ht_pool_destroy(pool);
    return p;
}

static void pass_free(struct pass *p)
{
    for (int i = 0; i < 6; i++) guarded_free(&p->guards[i]);
    free(p->qkv);
    free(p->dout);
}

/* sum of dout * attention(qkv), in double */
struct scalar {
    const struct pass *p;
    double *qkv, *out, *probs;
};

static double scalar_value(void *ctx)
{
    struct scalar *f = ctx;
    const struct shape *s = &f->p->s;
    double sum = 0;
    ref_attention(f->qkv, f->out, f->probs, s->B, s->T, s->H * s->D, s->H, s->KV, f->p->bidirectional, HT_F32);
    for (int64_t i = 0; i < f->p->n_out; i++) sum += f->p->dout[i] * f->out[i];
    return sum;
}

START_TEST(test_against_reference)
{
    const struct shape *s = &shapes[_i];
    for (int variant = 0; variant < 4; variant++) {
        struct pass p = run(s, variant & 1, variant & 2, 2);
        struct scalar f = {&p, HT_NEW_ARRAY(double, p.n_qkv), HT_NEW_ARRAY(double, p.n_out),
                           HT_NEW_ARRAY(double, s->T)};
        for (int64_t i = 0; i < p.n_qkv; i++) f.qkv[i] = p.qkv[i];
        scalar_value(&f);
        for (int64_t i = 0; i < p.n_out; i++) assert_close(p.out[i], f.out[i], 1e-5, "out", i);
        for (int64_t i = 0; i < p.n_qkv; i += s->every)
            assert_close(p.dqkv[i], ref_derivative(scalar_value, &f, f.qkv + i), 2e-5, "dqkv", i);
        free(f.qkv);
        free(f.out);
        free(f.probs);
        pass_free(&p);
    }
}
END_TEST

START_TEST(test_workers_do_not_matter)
{
    for (int variant = 0; variant < 4; variant++) {
        struct pass first = run(&shapes[_i], variant & 1, variant & 2, 1);
        for (int threads = 2; threads <= 5; threads++) {
            struct pass p = run(&shapes[_i], variant & 1, variant & 2, threads);
            ck_assert_mem_eq(p.out, first.out, (size_t)p.n_out * 4);
            ck_assert_mem_eq(p.dqkv, first.dqkv, (size_t)p.n_qkv * 4);
            pass_free(&p);
        }
        pass_free(&first);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("attention");
    TCase *t = tcase_create("attention");
    tcase_add_loop_test(t, test_against_reference, 0, HT_COUNT(shapes));
    tcase_add_loop_test(t, test_workers_do_not_matter, 0, HT_COUNT(shapes));
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}
