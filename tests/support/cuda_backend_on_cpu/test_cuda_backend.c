/*
 * Runs the CUDA backend with its own table and kernels on the CPU (cuda_runtime.c). In every numerics and under every
 * control, every system must give the bits of training in memory, and the losses of the CPU backend up to rounding.
 */
#include "common/base/array.h"
#include "harness/run/engine.h"
#include "harness/run/registry.h"
#include "tests/support/sampled.h"
#include "tests/support/sub_op_rows.h"
#include "tests/support/training.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 2 };

static struct sampling sampling;

static struct ht_options options_of(const char *model, const char *numerics, const char *control, bool cuda)
{
    struct ht_options o = training_options((struct ht_scenario_request){.model = model,
                                                                        .cluster = "local",
                                                                        .batch = 2,
                                                                        .micro_batch = 1,
                                                                        .seq = 16,
                                                                        .numerics = numerics,
                                                                        .control = control},
                                           STEPS);
    if (control) { /* clipped, and the gradients of the second step overflow */
        o.request.clip = 1;
        o.training.faults[0] = "2:1";
        o.training.n_faults = 1;
    }
    if (cuda) o.platform.backend = "cuda";
    return o;
}

static struct ht_training train(const struct ht_options *o, const char *system)
{
    struct ht_job job;
    struct ht_tokens tokens = {0};
    struct ht_persist persist = {0};
    struct ht_ranks one = {0};
    struct ht_training t = {0};
    struct ht_error err = {0};
    enum ht_status status = ht_job_create(o, system, NULL, HT_JOB_TRAINABLE, &err, &job);
    if (status == HT_OK && job.answer != HT_OK) status = ht_fail(&err, job.answer, "%.900s", job.reason);
    if (status == HT_OK)
        status =
            ht_tokens_open(o->training.data, HT_TOKENS_TEXT, job.scenario.model.vocab, job.scenario.seq, &err, &tokens);
    if (status == HT_OK) status = ht_train(o, &job, &tokens, &persist, &one, &err, &t);
    ck_assert_msg(status == HT_OK, "%s: %s", system, err.text);
    ht_tokens_close(&tokens);
    ht_trace_destroy(t.trace);
    t.trace = NULL;
    ht_job_free(&job);
    return t;
}

/* tolerance: of losses, against the CPU's kernels. Of each one_in systems one runs; first: of the systems' numbers in the
   sampling. */
static void compare(const char *model, const char *numerics, const char *control, double tolerance, size_t one_in,
                    size_t first)
{
    struct ht_options cpu = options_of(model, numerics, control, false),
                      cuda = options_of(model, numerics, control, true);
    struct ht_training host = train(&cpu, "in_memory"), want = train(&cuda, "in_memory");
    const struct ht_system *system;
    for (int k = 0; k < STEPS; k++) ck_assert_double_eq_tol(want.losses[k], host.losses[k], tolerance);
    ck_assert_int_eq(want.skipped, control != NULL);
    ck_assert_int_eq(want.skipped, host.skipped);
    ck_assert_int_eq(want.redone, host.redone);
    for (size_t i = 0; (system = ht_system_at(i)) != NULL; i++) {
        if (!is_sampled(&sampling, first + i, one_in)) continue;
        struct ht_training got = train(&cuda, system->name);
        for (int k = 0; k < STEPS; k++)
            ck_assert_msg(memcmp(&got.losses[k], &want.losses[k], sizeof(double)) == 0,
                          "%s, step %d: loss %.17g, in memory %.17g", system->name, k, got.losses[k], want.losses[k]);
        ht_training_free(&got);
    }
    ht_training_free(&host);
    ht_training_free(&want);
}

static const struct {
    const char *model, *numerics, *control;
    double tolerance;
    size_t one_in;
} cases[] = {
    {"gpt-mini", "fp32", NULL, 1e-6, 5},        {"gpt-mini", "bf16", NULL, 2e-3, 7},
    {"gpt-mini", "fp16", "gate", 2e-4, 7},      {"gpt-mini", "fp32", "rollback", 1e-6, 7},
    {"gpt-mini", "bf16", "rollback", 2e-3, 14}, {"llama-tiny", "bf16", NULL, 2e-3, 28},
    {"llama-tiny", "fp32", "gate", 1e-6, 28},
};

START_TEST(test_case)
{
    compare(cases[_i].model, cases[_i].numerics, cases[_i].control, cases[_i].tolerance, cases[_i].one_in,
            (size_t)_i * 1000);
}
END_TEST

/* The emulated cuBLASLt has no algorithm for 16-bit matrices whose rows are an odd number of elements apart. */
START_TEST(test_slow_shapes)
{
    char path[] = "/tmp/ht-odd-width-XXXXXX";
    FILE *f = fdopen(mkstemp(path), "w");
    fputs("name: odd\narch: gpt\nlayers: 1\nwidth: 33\nheads: 3\nvocab: 256\nmax_seq: 16\n"
          "source: \"none: odd rows\"\n",
          f);
    fclose(f);
    struct ht_options cpu = options_of(path, "bf16", NULL, false), cuda = options_of(path, "bf16", NULL, true);
    struct ht_training want = train(&cpu, "in_memory"), got = train(&cuda, "in_memory");
    for (int k = 0; k < STEPS; k++) ck_assert_double_eq_tol(got.losses[k], want.losses[k], 2e-3);
    ck_assert_uint_gt(got.n_slow, 2);
    /* The MLP's first product, forward: (16,132) = (16,33) (33,132), once a micro-batch and step. */
    bool found = false;
    for (size_t i = 0; i < got.n_slow; i++)
        found = found || (strstr(got.slow[i].text, "(16,132) = (16,33) (33,132)") && got.slow[i].products == 2 * STEPS);
    ck_assert_msg(found, "%s: %lld", got.slow[0].text, (long long)got.slow[0].products);
    ht_training_free(&want);
    ht_training_free(&got);
    unlink(path);
}
END_TEST

/* Random divisions of activations into tensors by sub-op: the kernels find each sub-op's activations. */
START_TEST(test_sub_op_rows)
{
    static const struct {
        enum ht_arch arch;
        const char *numerics;
        bool flash;
    } of[] = {{HT_ARCH_GPT, "fp32", false}, {HT_ARCH_GPT, "bf16", true},   {HT_ARCH_LLAMA, "bf16", false},
              {HT_ARCH_BERT, "fp32", true}, {HT_ARCH_BERT, "fp16", false}, {HT_ARCH_VIT, "bf16", true}};
    struct ht_scenario sc = rows_scenario(of[_i].arch, of[_i].numerics, of[_i].flash, NULL);
    struct rows_outcome want = {0};
    struct ht_schedule *in_memory = rows_build(&sc, NULL);
    rows_train(&sc, in_memory, false, true, NULL, 0, &want);
    for (uint64_t seed = 1; seed <= 4; seed++) { /* of two that overlap, and of two that do not, one */
        if (!is_sampled(&sampling, 10000 + 4 * (uint64_t)_i + (seed - 1) / 2 + seed % 2 * 2, 2)) continue;
        struct rows_choice choice = rows_draw_choice(seed);
        choice.blocking = seed % 2;
        rows_compare(&sc, &choice, true, NULL, seed, &want);
    }
    rows_outcome_free(&want);
    ht_schedule_destroy(in_memory);
    ht_scenario_free(&sc);
}
END_TEST

int main(void)
{
    sampling = sampling_begin();
    Suite *s = suite_create("cuda_backend");
    TCase *tc = tcase_create("cuda_backend");
    tcase_set_timeout(tc, 600);
    tcase_add_loop_test(tc, test_case, 0, (int)HT_COUNT(cases));
    suite_add_tcase(s, tc);
    tc = tcase_create("slow_shapes");
    tcase_set_timeout(tc, 600);
    tcase_add_test(tc, test_slow_shapes);
    suite_add_tcase(s, tc);
    tc = tcase_create("sub_op_rows");
    tcase_set_timeout(tc, 600);
    tcase_add_loop_test(tc, test_sub_op_rows, 0, 6);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
