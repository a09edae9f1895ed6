/*
 * The CPU backend against the plain trainer, which calls the same kernels one after the other.
 *
 * A tiny model is trained for some iterations by the schedules of cpu_graph.h. Each must give the losses and parameters
 * of the plain trainer, bit for bit.
 */
#include "common/kernels/convert.h"
#include "tests/support/plain.h"
#include "common/schedule/verify.h"
#include "tests/common/backend/cpu_graph.h"

static void compare_with_plain(const struct variant *v, const struct outcome *run)
{
    struct ht_model model = model_of(v);
    struct ht_numerics numerics = numerics_of(v);
    struct ht_plain *plain = ht_plain_create(&model, &numerics, B, T, NULL, SEED);
    double scale = v->type == HT_F16 ? 64 : 1;
    for (int k = 0; k < ITERATIONS; k++) {
        double plainly = ht_plain_step(plain, v->n_mb, tokens[k][0], targets[k][0], &adamw, scale), sum = 0;
        for (int j = 0; j < v->n_mb; j++) sum += run->losses[k * v->n_mb + j];
        double loss = sum / (double)(v->n_mb * B * T);
        ck_assert_msg(memcmp(&loss, &plainly, sizeof(loss)) == 0, "loss %d: %.17g, plainly %.17g", k, loss, plainly);
        if (k == 0) ck_assert_double_eq_tol(loss, 3.61, 0.1); /* ln(37) = 3.6109, the loss of a uniform guess */
    }
    for (int u = 0; u < UNITS; u++) {
        int64_t n = ht_unit_params(&model, u);
        const float *master = ht_plain_params(plain, u);
        void *param = HT_NEW_ARRAY(float, n);
        ht_round_copy(NULL, master, param, v->type, n);
        if (!v->cast) ck_assert_mem_eq(run->param[u], param, (size_t)(n * ht_dtype_bytes(v->type)));
        if (v->type != HT_F32) ck_assert_mem_eq(run->master[u], master, 4 * (size_t)n);
        free(param);
    }
    ht_plain_destroy(plain);
}

static void compare(const struct variant *v, const struct ht_cpu_split *split)
{
    struct outcome run = {0};
    struct ht_error err = {0};
    struct ht_trace *t;
    struct graph g;
    build(&g, v);
    ck_assert_msg(ht_schedule_verify(g.s, &err, NULL) == HT_OK, "%s", err.text);
    ck_assert_msg(train(v, &g, split, false, &run, &t, &err) == HT_OK, "%s", err.text);
    compare_with_plain(v, &run);
    ht_trace_destroy(t);
    ht_schedule_destroy(g.s);
    free_outcome(&run);
}

static const struct variant variants[] = {
    {.n_mb = 1},
    {.n_mb = 1, .tied = true},
    {.n_mb = 1, .tied = true, .flash = true},
    {.n_mb = 3, .tied = true},
    {.n_mb = 2, .tied = true, .recompute = true},
    {.n_mb = 2, .flash = true, .recompute = true, .validate = true},
    {.n_mb = 2, .tied = true, .offload = true},
    {.n_mb = 3, .tied = true, .offload = true, .recompute = true, .flash = true},
    {.n_mb = 2, .tied = true, .fused = true},
    {.n_mb = 1, .fused = true, .offload = true, .validate = true},
    {.n_mb = 2, .tied = true, .flash = true, .segment = true},
    {.n_mb = 2, .tied = true, .shards = true},
    {.n_mb = 2, .tied = true, .shards = true, .offload = true, .recompute = true, .validate = true},
    {.n_mb = 1, .llama = true},
    {.n_mb = 3, .llama = true, .tied = true, .offload = true, .recompute = true, .flash = true},
    {.n_mb = 2, .llama = true, .segment = true, .flash = true},
    {.n_mb = 2, .llama = true, .fused = true, .shards = true, .validate = true},
    {.n_mb = 1, .type = HT_BF16, .tied = true},
    {.n_mb = 3, .type = HT_BF16, .tied = true, .offload = true, .recompute = true, .flash = true},
    {.n_mb = 2, .type = HT_F16, .sums16 = true, .shards = true, .offload = true},
    {.n_mb = 2, .type = HT_F16, .fused = true, .validate = true, .tied = true},
    {.n_mb = 2, .type = HT_BF16, .cast = true, .tied = true, .recompute = true},
    {.n_mb = 2, .type = HT_F16, .cast = true, .segment = true, .llama = true, .sums16 = true},
    {.n_mb = 1, .type = HT_BF16, .cast = true, .fused = true, .tied = true, .flash = true},
    {.n_mb = 3, .type = HT_BF16, .llama = true, .tied = true, .shards = true, .validate = true},
    {.n_mb = 2, .parts = true, .tied = true},
    {.n_mb = 3, .parts = true, .llama = true, .flash = true, .offload = true},
    {.n_mb = 2, .parts = true, .type = HT_BF16, .cast = true, .tied = true},
    {.n_mb = 2, .parts = true, .type = HT_F16, .llama = true, .segment = true},
    {.n_mb = 2, .parts = true, .fused = true, .flash = true},
    {.n_mb = 2, .again = SUB(QKV) | SUB(PROJ) | SUB(GELU)},
    {.n_mb = 1, .again = SUB(ATTENTION) | SUB(FC2), .type = HT_BF16, .flash = true, .llama = true},
};

START_TEST(test_variants)
{
    compare(&variants[_i], NULL);
}
END_TEST

START_TEST(test_with_pinned_cores)
{
    struct ht_cpu_split split;
    struct ht_error err = {0};
    ck_assert_msg(ht_cpu_split_cores(0, &err, &split) == HT_OK, "%s", err.text);
    /* Several device cores may sum in another order than the plain trainer's one worker: see unit.h. */
    if (split.n_device > 1) split.n_device = 1;
    compare(&variants[7], &split);
}
END_TEST

START_TEST(test_validate_sees_a_nan)
{
    struct variant v = {.n_mb = 1, .validate = true};
    struct graph g;
    build(&g, &v);
    int32_t id = ht_add_op(g.s, HT_OP_COPY, g.d2h, about(-1, 0, -1), g.other); /* runs only in the ok branch */
    for (int32_t op = 0; op < id; op++)
        if (g.s->ops[op].kind == HT_OP_VALIDATE) ht_op_after(g.s, op);
    ht_op_when(g.s, HT_WHEN_OK);
    for (int spoil = 0; spoil < 2; spoil++) {
        struct outcome o = {0};
        struct ht_error err = {0};
        struct ht_trace *t;
        ck_assert_msg(train(&v, &g, NULL, spoil, &o, &t, &err) == HT_OK, "%s", err.text);
        ck_assert_int_eq(t->events[id].grant_seq >= 0, !spoil);
        ht_trace_destroy(t);
        free_outcome(&o);
    }
    ht_schedule_destroy(g.s);
}
END_TEST

START_TEST(test_split)
{
    struct ht_cpu_split split, least;
    struct ht_error err = {0};
    ck_assert_int_eq(ht_cpu_split_cores(0, &err, &split), HT_OK);
    ck_assert_int_eq(ht_cpu_split_cores(1, &err, &least), HT_OK);
    ck_assert_int_eq(least.n_device, 1);
    int n = split.shared ? 1 : split.n_device + split.n_host;
    ck_assert_int_eq(split.shared, n == 1);
    ck_assert(split.n_device >= 1 && split.n_host >= 1);
    for (int i = 0; i < split.n_device && !split.shared; i++)
        for (int k = 0; k < split.n_host; k++) ck_assert_int_ne(split.device[i], split.host[k]);
    ck_assert_int_eq(ht_cpu_split_cores(split.shared ? 2 : n, &err, &split), HT_BAD_INPUT);
    ck_assert_int_eq(ht_cpu_split_cores(-1, &err, &split), HT_BAD_INPUT);
}
END_TEST

int main(void)
{
    draw_batches();
    Suite *s = suite_create("cpu");
    TCase *tc = tcase_create("cpu");
    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, test_variants, 0, (int)HT_COUNT(variants));
    tcase_add_test(tc, test_with_pinned_cores);
    tcase_add_test(tc, test_validate_sees_a_nan);
    tcase_add_test(tc, test_split);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
