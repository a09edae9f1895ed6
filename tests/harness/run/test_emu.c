/*
 * The emulated clock against the simulator: the same systems on the hardware of the catalogue, really run and held.
 * Order and memory keep the rules in both, losses are those of training in memory, and no run is shorter than it can
 * be. The error of times depends on the machine: the test prints it and has no bound for it.
 */
#include "common/base/array.h"
#include "common/exec/sim.h"
#include "tests/support/sanitized.h"
#include "tests/support/trace_rules.h"
#include "tests/support/training.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 4 };

static const char slow_link[] = HT_SOURCE_DIR "/tests/data/slow-link.yaml";

static struct ht_options options_of(const char *cluster, const char *clock, int64_t device_bytes)
{
    struct ht_options o = training_options((struct ht_scenario_request){.model = "gpt-tiny",
                                                                        .cluster = cluster,
                                                                        .batch = 4,
                                                                        .micro_batch = 2,
                                                                        .seq = 32,
                                                                        .numerics = "fp32",
                                                                        .device_memory_bytes = device_bytes},
                                           STEPS);
    o.platform.clock = clock;
    return o;
}

static void train(const struct ht_options *o, const char *system, struct ht_job *job, struct ht_training *out)
{
    struct ht_tokens tokens = {0};
    struct ht_persist nothing = {0};
    struct ht_ranks one = {0};
    struct ht_error err = {0};
    ck_assert_msg(ht_job_create(o, system, NULL, HT_JOB_TRAINABLE, &err, job) == HT_OK, "%s", err.text);
    ck_assert_msg(job->answer == HT_OK, "%s: %s", system, job->reason);
    ck_assert(!ht_tokens_open(o->training.data, HT_TOKENS_TEXT, job->scenario.model.vocab, 32, &err, &tokens));
    ck_assert_msg(!ht_train(o, job, &tokens, &nothing, &one, &err, out), "%s: %s", system, err.text);
    ht_tokens_close(&tokens);
}

/* Every op is held for its modelled cost, and the whole for what the bound says of the iterations between the first and
   the last. */
static void check_times(const struct ht_job *job, const struct ht_training *t, const struct ht_times *model)
{
    for (int64_t i = 0; i < t->trace->n_events; i++) {
        const struct ht_trace_event *e = &t->trace->events[i];
        if (e->grant_seq >= 0) ck_assert_int_ge(e->end_ns - e->start_ns, job->cost_ns[ht_trace_op(t->trace, i)] - 1);
    }
    ck_assert_int_gt(model->lower_bound_ns, 0);
    ck_assert_int_ge(t->trace->end_ns, (STEPS - 2) * model->lower_bound_ns);
}

/* Returns how often a lane of priorities had a choice under the emulated clock. */
static int64_t compare(const char *system, const char *cluster, int64_t device_bytes)
{
    struct ht_options plain = options_of("local", NULL, 0), held = options_of(cluster, "emu", device_bytes);
    struct ht_job reference, job;
    struct ht_training want, got;
    struct ht_times model;
    struct ht_error err = {0};
    train(&plain, "in_memory", &reference, &want);
    train(&held, system, &job, &got);
    ck_assert_int_eq(job.issue_ahead, 0);
    ck_assert_int_eq(got.steps, STEPS);
    ck_assert_msg(!memcmp(want.losses, got.losses, sizeof(double) * STEPS), "%s: losses are not in_memory's", system);
    ck_assert_int_eq(got.trace->clock, HT_CLOCK_EMU);
    ck_assert(got.emulated.scale > got.emulated.fitting_scale && got.emulated.fitting_scale > 0);
    ck_assert_int_gt(got.emulated.overruns.n_ops, 0);
    ck_assert(!ht_emulation_model(&job, STEPS, 1, &err, &model));
    check_memory(&job, &got);
    check_times(&job, &got, &model);
    trace_check_dependencies(got.trace);
    int64_t n_choices = trace_check_lanes(got.trace);
    printf("%-14s scale %.0f: %.4g ms, simulated %.4g; %lld of %lld ops overran; %lld choices\n", system,
           got.emulated.scale, (double)got.median_step_ns * 1e-6, (double)model.iteration_ns * 1e-6,
           (long long)got.emulated.overruns.n_overran, (long long)got.emulated.overruns.n_ops, (long long)n_choices);
    ht_training_free(&want);
    ht_training_free(&got);
    ht_job_free(&reference);
    ht_job_free(&job);
    return n_choices;
}

START_TEST(test_in_plenty)
{
    compare("zero_offload", "autohete-1gpu", 0); /* a device of 40 GB, which this machine need not have */
}
END_TEST

START_TEST(test_budgets)
{
    if (!SANITIZED) compare("zero_offload", "autohete-1gpu", 8000000);
    if (!SANITIZED) compare("stronghold", "autohete-1gpu", 9000000);
    compare("autohete", "autohete-1gpu", 6000000);
}
END_TEST

/* AutoHete's gradients queue for the lane to the host by priority (Sec. 3.3): the same rule in both clocks. */
START_TEST(test_priorities)
{
    struct ht_options o = options_of(slow_link, "emu", 6000000);
    struct ht_job job;
    struct ht_error err = {0};
    struct ht_trace *sim;
    ck_assert_msg(!ht_job_create(&o, "autohete", NULL, HT_JOB_TRAINABLE, &err, &job), "%s", err.text);
    struct ht_sim_options options = {.iterations = STEPS};
    ck_assert(!ht_sim_run(job.schedule, job.cost_ns, &options, &err, &sim));
    trace_check_dependencies(sim);
    ck_assert_int_gt(trace_check_lanes(sim), 0);
    ck_assert_int_gt(compare("autohete", slow_link, 6000000), 0);
    ht_trace_destroy(sim);
    ht_job_free(&job);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("emu");
    TCase *tc = tcase_create("emu");
    tcase_set_timeout(tc, 300);
    tcase_add_test(tc, test_in_plenty);
    tcase_add_test(tc, test_budgets);
    tcase_add_test(tc, test_priorities);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
