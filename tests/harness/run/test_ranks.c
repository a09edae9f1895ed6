/* Every data-parallel system on several ranks: proved over sweeps of plans, simulated in exactly the memory that was
   proved. Pipelines: tests/common/draft/test_pipe.c. */
#include "autohete/autohete.h"
#include "common/base/array.h"
#include "common/exec/sim.h"
#include "common/schedule/verify.h"
#include "harness/run/registry.h"
#include "harness/result/result.h"
#include "harness/run/simulate.h"
#include "tests/support/proved.h"
#include "tests/support/scenario.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static const int64_t rank_counts[] = {1, 2, 4};

/* Twelve blocks, two sequences a rank, on `ranks` of the devices of autohete-4gpu. */
static struct ht_scenario scenario_of(int64_t ranks, int64_t micro_batch, const char *numerics)
{
    struct ht_scenario_request r = {.model = HT_SOURCE_DIR "/tests/baselines/gpt-12.yaml",
                                    .cluster = "autohete-4gpu",
                                    .batch = 8,
                                    .numerics = numerics};
    struct ht_scenario s = scenario_from(&r);
    use_gpus(&s, ranks);
    struct ht_error err = {0};
    ck_assert_int_eq(ht_cluster_set_disks(s.cluster, "local-disk", 1, &err), HT_OK); /* some systems want one */
    s.batch = 2 * ranks;
    s.micro_batch = micro_batch;
    return s;
}

/* Collectives are there if and only if there are several ranks, and every rank has as many ops as the others. */
static void prove(const struct ht_system *system, const struct ht_scenario *sc, const struct ht_plan *plan)
{
    struct ht_error err = {0};
    struct ht_schedule *s = NULL;
    int64_t ranks = ht_scenario_ranks(sc), ops[4] = {0}, collectives = 0;
    ck_assert_msg(system->build(system, sc, plan, &err, &s) == HT_OK, "%s", err.text);
    ck_assert_msg(ht_schedule_verify(s, &err, NULL) == HT_OK, "%lld ranks: %s", (long long)ranks, err.text);
    ck_assert_int_eq(s->n_ranks, ranks);
    for (int32_t i = 0; i < s->n_ops; i++) {
        ops[ht_op_rank(s, i)]++;
        collectives += s->lanes[s->ops[i].lane].kind == HT_LANE_COLLECTIVE;
    }
    for (int64_t r = 1; r < ranks; r++) ck_assert_int_eq(ops[r], ops[0]);
    ck_assert_int_eq(collectives > 0, ranks > 1);
    ht_schedule_destroy(s);
}

/* Returns true if the ranks exchange what they have made, and no rank has more to do than the others. LoHan's share the
   states in the node's memory: tests/lohan/test_gpus.c. */
static bool is_replicated(const struct ht_system *system, const struct ht_scenario *sc)
{
    bool one = system->one_device || system->division == HT_SHARED_STATES;
    return system->division != HT_PIPELINES && (!one || ht_scenario_ranks(sc) == 1);
}

static void plan_and_prove(const struct ht_system *system, const struct ht_scenario *sc, int64_t c)
{
    struct ht_settings settings = {.n = 1, .values = {{.name = "c", .value = c}}};
    struct ht_profile *costs = ht_profile_modelled(sc->cluster);
    struct ht_plan plan = {0};
    struct ht_error err = {0};
    ck_assert_msg(system->plan(system, sc, costs, &settings, &err, &plan) == HT_OK, "%s", err.text);
    prove(system, sc, &plan);
    ht_plan_free(&plan);
    ht_profile_destroy(costs);
}

START_TEST(every_system_and_c_is_proved)
{
    for (size_t n = 0; n < HT_COUNT(rank_counts); n++)
        for (int64_t micro_batch = 1; micro_batch <= 2; micro_batch++)
            for (int fp32 = 0; fp32 < 2; fp32++) {
                struct ht_scenario sc = scenario_of(rank_counts[n], micro_batch, fp32 ? "fp32" : "fp16");
                const struct ht_system *system;
                for (size_t i = 0; (system = ht_system_at(i)) != NULL; i++)
                    for (int64_t c = 0; c <= sc.model.layers && is_replicated(system, &sc); c += 3)
                        plan_and_prove(system, &sc, c);
                ht_scenario_free(&sc);
            }
}
END_TEST

/* Windows, and where embedding and head are stepped. */
START_TEST(every_window_is_proved)
{
    for (size_t n = 0; n < HT_COUNT(rank_counts); n++) {
        struct ht_scenario sc = scenario_of(rank_counts[n], 1, "fp16");
        const struct ht_system *system = NULL;
        struct ht_error err = {0};
        ck_assert_int_eq(ht_system_find("stronghold", &err, &system), HT_OK);
        for (int64_t m = 1; m <= sc.model.layers; m++)
            for (int64_t c = 0; c <= sc.model.layers; c += 4)
                for (int64_t e = 0; e < 2; e++) {
                    struct ht_plan plan = {0};
                    ht_plan_set(&plan, "c", c);
                    ht_plan_set(&plan, "m", m);
                    ht_plan_set(&plan, "e", e);
                    prove(system, &sc, &plan);
                }
        ht_scenario_free(&sc);
    }
}
END_TEST

/* All (c, p, o) with p <= o of twelve blocks. */
START_TEST(every_plan_of_autohete_is_proved)
{
    for (size_t n = 0; n < HT_COUNT(rank_counts); n++) {
        struct ht_scenario sc = scenario_of(rank_counts[n], 2, "fp16");
        int64_t L = sc.model.layers;
        for (int64_t c = 0; c <= L; c++)
            for (int64_t o = 0; o <= L; o++)
                for (int64_t p = 0; p <= o; p++) {
                    struct ht_plan plan = {0};
                    ht_plan_set(&plan, "c", c);
                    ht_plan_set(&plan, "p", p);
                    ht_plan_set(&plan, "o", o);
                    ht_plan_set(&plan, "e", (c + p + o) % 2);
                    ht_plan_set(&plan, "ahead", 1 + (c + o) % 3);
                    prove(c % 2 ? &ht_autohete : &ht_autohete_nops, &sc, &plan);
                }
        ht_scenario_free(&sc);
    }
}
END_TEST

/* With not a byte more than the safe sequence takes, whatever runs ahead, and however uneven the ranks are. */
START_TEST(runs_in_the_memory_that_was_proved)
{
    for (size_t n = 0; n < HT_COUNT(rank_counts); n++)
        for (int64_t micro_batch = 1; micro_batch <= 2; micro_batch++) {
            struct ht_scenario sc = scenario_of(rank_counts[n], micro_batch, "fp16");
            struct ht_profile *costs = ht_profile_modelled(sc.cluster);
            const struct ht_system *system;
            for (size_t i = 0; (system = ht_system_at(i)) != NULL; i++) {
                if (!is_replicated(system, &sc)) continue;
                struct ht_settings none = {0};
                struct ht_error err = {0};
                struct ht_plan plan = {0};
                struct ht_schedule *s = NULL;
                ck_assert_msg(system->plan(system, &sc, costs, &none, &err, &plan) == HT_OK, "%s", err.text);
                ck_assert_msg(system->build(system, &sc, &plan, &err, &s) == HT_OK, "%s", err.text);
                runs_in_proved_memory(s, costs, 1, 3);
                ht_schedule_destroy(s);
                ht_plan_free(&plan);
            }
            ht_profile_destroy(costs);
            ht_scenario_free(&sc);
        }
}
END_TEST

/* Rates are those of the whole batch; compute and MFU those of one of four devices of 312 TFLOP/s. */
START_TEST(rates_of_four_devices)
{
    struct ht_options o = {.sim = {.iterations = 4, .warmup = 1, .issue_ahead = -1}};
    o.request = (struct ht_scenario_request){
        .model = "autohete-2b", .cluster = "autohete-4gpu", .batch = 8, .software = "eager"};
    struct ht_job job;
    struct ht_result r;
    struct ht_error err = {0};
    struct ht_trace *trace = NULL;
    ck_assert_msg(ht_job_create(&o, "zero_offload", NULL, HT_JOB_COSTS, &err, &job) == HT_OK, "%s", err.text);
    ck_assert_int_eq(ht_simulate(&o, &job, &err, &trace), HT_OK);
    ck_assert_int_eq(ht_result_create(&job, trace, job.cost_ns, 1, &err, &r), HT_OK);
    ck_assert_int_eq(r.n_devices, 4);
    ck_assert_double_eq_tol(r.useful_flops, ht_scenario_useful_flops(&job.scenario), 1);
    ck_assert_double_eq_tol(r.hardware_flops, r.useful_flops, r.useful_flops * 1e-12); /* nothing is recomputed */
    ck_assert_double_eq_tol(r.samples_per_s * r.iteration_s, 8, 1e-9);
    ck_assert_double_eq_tol(ht_result_tflops(&r, r.useful_flops), r.useful_flops / r.iteration_s / 4e12, 1e-9);
    ck_assert_double_eq_tol(ht_result_mfu(&r), r.useful_flops / r.iteration_s / (4 * 312e12), 1e-12);
    ck_assert_int_eq(r.n_memory, 5); /* four devices and the host */
    for (int i = 1; i < 4; i++) ck_assert_int_eq(r.memory[i].safe_bytes, r.memory[0].safe_bytes);
    /* Each step alone takes all cores of the node; those of the four ranks have them one after the other at best. */
    int64_t steps_ns = 0;
    for (int32_t i = 0; i < job.schedule->n_ops; i++)
        if (job.schedule->ops[i].kind == HT_OP_OPTIMIZER_STEP) steps_ns += job.cost_ns[i];
    ck_assert_str_eq(r.metrics.lower_bound_of, "resource cores");
    ck_assert_int_le(r.metrics.lower_bound_ns, steps_ns);
    ck_assert_int_gt(r.metrics.lower_bound_ns, steps_ns - steps_ns / 1000);
    ht_result_free(&r);
    ht_job_free(&job);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ranks");
    TCase *t = tcase_create("systems");
    tcase_set_timeout(t, 300);
    tcase_add_test(t, every_system_and_c_is_proved);
    tcase_add_test(t, every_window_is_proved);
    tcase_add_test(t, every_plan_of_autohete_is_proved);
    tcase_add_test(t, runs_in_the_memory_that_was_proved);
    tcase_add_test(t, rates_of_four_devices);
    suite_add_tcase(suite, t);
    SRunner *r = srunner_create(suite);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
