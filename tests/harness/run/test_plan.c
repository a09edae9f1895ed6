/* Plans as they are printed: every system built again from its plan's JSON, and what planners say they were given. */
#include "common/base/array.h"
#include "common/plan/candidate.h"
#include "harness/run/job.h"
#include "harness/run/registry.h"
#include "harness/result/result.h"
#include "tests/support/plans.h"
#include "tests/support/scenario.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One device and several, alike and not, in all numerics, with control and with little memory. Systems that lack a
   forced variable are left out. */
static const struct scenario {
    struct ht_scenario_request request;
    const char *set;
} scenarios[] = {
    {{.cluster = "autohete-1gpu", .model = "autohete-4b"}, NULL},
    {{.cluster = "autohete-1gpu", .model = "autohete-8b", .micro_batch = 2}, NULL},
    {{.cluster = "autohete-1gpu", .model = "gpt-tiny", .device_memory_bytes = 40000000, .control = "rollback"}, NULL},
    {{.cluster = "autohete-1gpu", .model = "gpt-tiny", .numerics = "fp32", .micro_batch = 2}, NULL},
    {{.cluster = "autohete-4gpu", .model = "llama-tiny", .blocks = 16, .micro_batch = 1, .control = "gate"}, NULL},
    {{.cluster = "sysx-2node", .model = "llama-tiny", .blocks = 32, .batch = 16, .micro_batch = 1}, NULL},
    {{.cluster = HT_SOURCE_DIR "/tests/data/mixed-2x2.yaml", .model = "llama-tiny", .micro_batch = 1, .seq = 16}, NULL},
    {{.cluster = HT_SOURCE_DIR "/tests/data/ssd-1gpu.yaml", .model = "autohete-8b"}, NULL},
    {{.cluster = HT_SOURCE_DIR "/tests/data/ssd-1gpu.yaml", .model = "llama-tiny", .micro_batch = 2}, NULL},
    {{.cluster = "autohete-4gpu", .model = "llama-tiny"}, "share=0,0.3,0.699999999,0.000000001"},
    {{.cluster = "autohete-4gpu", .model = "llama-tiny", .batch = 9}, "l=5,2,1,1"},
    {{.cluster = "autohete-4gpu", .model = "llama-tiny", .micro_batch = 2}, "place=3,0-1,2"},
};

static int64_t number_of(const json_t *value)
{
    return json_is_integer(value) ? json_integer_value(value) : llround(json_real_value(value) * (double)HT_PPB);
}

/* The variables and vectors of a plan's JSON, and nothing else. */
static struct ht_plan plan_of(json_t *variables)
{
    struct ht_plan plan = {0};
    const char *name;
    json_t *value, *element;
    size_t i;
    json_object_foreach(variables, name, value)
    {
        struct ht_variable v = {.kind = HT_VARIABLE_LIST, .n = (int32_t)json_array_size(value)};
        if (!json_is_array(value)) {
            ht_plan_set(&plan, name, number_of(value));
            continue;
        }
        snprintf(v.name, sizeof(v.name), "%s", name);
        v.values = HT_NEW_ARRAY(int64_t, v.n);
        json_array_foreach(value, i, element)
        {
            v.values[i] = number_of(element);
        }
        ht_plan_set_vector(&plan, &v);
        free(v.values);
    }
    return plan;
}

/* As a program would read it from a file. */
static json_t *read_back(json_t *root)
{
    char *text = json_dumps(root, JSON_REAL_PRECISION(17));
    json_t *again = json_loads(text, 0, NULL);
    ck_assert_ptr_nonnull(again);
    free(text);
    json_decref(root);
    return again;
}

static void check_inputs(const struct ht_job *job, json_t *inputs)
{
    const char *name;
    json_t *input;
    ck_assert_uint_eq(json_object_size(inputs), (size_t)job->plan.n_inputs); /* names differ */
    json_object_foreach(inputs, name, input)
    {
        ck_assert_msg(json_is_number(json_object_get(input, "value")), "%s: %s", job->system->name, name);
        ck_assert_msg(json_is_string(json_object_get(input, "unit")), "%s: %s", job->system->name, name);
    }
}

/* 1 when the system runs there; its graph is then that of its printed plan. */
static int check(const struct ht_system *system, const struct scenario *sc)
{
    struct ht_options o = {
        .request = sc->request, .sim = {.issue_ahead = -1}, .plan = {.set = {sc->set}, .n_set = sc->set != NULL}};
    struct ht_job job;
    struct ht_error err = {0};
    struct ht_schedule *s = NULL;
    if (ht_job_create(&o, system->name, NULL, HT_JOB_BOUNDED, &err, &job) != HT_OK) return 0;
    if (!job.schedule) {
        ht_job_free(&job);
        return 0;
    }
    json_t *root = read_back(ht_job_json(&job)), *printed = json_object_get(root, "plan");
    struct ht_plan plan = plan_of(json_object_get(printed, "variables"));
    ck_assert_msg(system->build(system, &job.scenario, &plan, &err, &s) == HT_OK, "%s: %s", system->name, err.text);
    ck_assert_msg(ht_schedule_hash(s) == ht_schedule_hash(job.schedule), "%s, %s on %s: another graph", system->name,
                  sc->request.model, sc->request.cluster);
    check_inputs(&job, json_object_get(printed, "inputs"));
    ht_plan_free(&plan);
    json_decref(root);
    ht_schedule_destroy(s);
    ht_job_free(&job);
    return 1;
}

START_TEST(printed_plans_build_the_same_graph)
{
    int built = 0;
    const struct ht_system *system;
    for (size_t k = 0; k < HT_COUNT(scenarios); k++)
        for (size_t i = 0; (system = ht_system_at(i)); i++) built += check(system, &scenarios[k]);
    ck_assert_int_gt(built, 200);
}
END_TEST

/* ---- what planners keep ---------------------------------------------------------------------------------------- */

static void check_proofs(const char *name, const struct ht_proof *a, const struct ht_proof *b)
{
    ck_assert_int_eq(a->n_spaces, b->n_spaces);
    for (int32_t i = 0; i < a->n_spaces; i++)
        ck_assert_msg(a->spaces[i].peak_bytes == b->spaces[i].peak_bytes &&
                          a->spaces[i].program_bytes == b->spaces[i].program_bytes &&
                          a->spaces[i].peak_op == b->spaces[i].peak_op,
                      "%s: space %d", name, i);
}

/* Holds a job's graph and proof against those of its plan, built again. */
static void check_again(const struct ht_options *o, const char *system, bool folds)
{
    struct ht_job job;
    struct ht_error err = {0};
    struct ht_candidate x = {0};
    struct ht_options asked = *o;
    asked.plan.folds = folds;
    ck_assert_msg(!ht_job_create(&asked, system, NULL, HT_JOB_BOUNDED, &err, &job), "%s: %s", system, err.text);
    ck_assert_ptr_nonnull(job.schedule);
    ck_assert_ptr_null(job.plan.built); /* taken, or dropped */
    ck_assert_int_eq(job.scenario.folds, folds);
    ck_assert(!job.system->build(job.system, &job.scenario, &job.plan, &err, &x.schedule));
    ck_assert(!ht_schedule_verify(x.schedule, &err, &x.proof));
    ck_assert_msg(ht_schedule_hash(x.schedule) == ht_schedule_hash(job.schedule), "%s: another graph", system);
    ck_assert_int_eq(!x.schedule->fold, !job.schedule->fold);
    ck_assert_pstr_eq(x.schedule->not_folded, job.schedule->not_folded);
    check_proofs(system, &x.proof, &job.proof);
    ht_candidate_free(&x);
    ht_job_free(&job);
}

/* Plans, and tells whether the planner keeps what it built of its plan, and whether that is a part of the graph. */
static bool keeps(const struct ht_options *o, const char *name, bool *folded)
{
    struct ht_job job;
    struct ht_error err = {0};
    struct ht_candidate x;
    ck_assert_msg(!ht_job_create(o, name, NULL, HT_JOB_PLAN, &err, &job), "%s: %s", name, err.text);
    bool kept = job.plan.built;
    *folded = kept && job.plan.built->schedule->fold;
    ck_assert_int_eq(ht_plan_take_built(&job.plan, false, &x), kept && !*folded); /* a part is no whole graph */
    ck_assert_ptr_null(job.plan.built);
    ht_candidate_free(&x);
    ht_job_free(&job);
    return kept;
}

/* Planners that prove and simulate pipelines hand over the graph of their plan: on equal nodes the first replica's, on others the
   whole one. With choose=1 AutoHet's is not the first that it proves. */
START_TEST(what_planners_keep_is_the_graph)
{
    static const struct {
        const char *system, *cluster, *set;
    } cases[] = {{"autohet", "sysx-2node", NULL},
                 {"autohet", "autohet-4a100-4h800", NULL},
                 {"autohet", "autohet-4a100-4h800", "choose=1"},
                 {"megatron_3d", "sysx-2node", NULL},
                 {"whale_3d", "autohet-4a100-4h800", NULL},
                 {"varuna", "sysx-2node", NULL},
                 {"varuna", "autohete-4gpu", "m=1"}};
    int n_folded = 0;
    for (size_t i = 0; i < HT_COUNT(cases); i++) {
        struct ht_options o = {
            .request = {.cluster = cases[i].cluster, .model = "gpt2-355m", .batch = 16, .micro_batch = 1},
            .sim = {.issue_ahead = -1},
            .plan = {.set = {cases[i].set}, .n_set = cases[i].set != NULL}};
        bool folded;
        if (!strcmp(cases[i].system, "varuna")) o.request.micro_batch = 0;
        ck_assert_msg(keeps(&o, cases[i].system, &folded), "%s keeps nothing", cases[i].system);
        n_folded += folded;
        for (int folds = 0; folds < 2; folds++) check_again(&o, cases[i].system, folds);
    }
    ck_assert_int_gt(n_folded, 0);
    ck_assert_int_lt(n_folded, (int)HT_COUNT(cases));
}
END_TEST

/* ---- unlike ranks ---------------------------------------------------------------------------------------------- */

static void plan_for(const struct ht_system *system, const struct ht_scenario *scenario, struct ht_plan *plan)
{
    struct ht_profile *profile = ht_profile_modelled(scenario->cluster);
    struct ht_error err = {0};
    ck_assert_msg(system->plan(system, scenario, profile, NULL, &err, plan) == HT_OK, "%s: %s", system->name, err.text);
    ht_profile_destroy(profile);
}

static void check_same(const struct ht_system *system, const struct ht_plan *a, const struct ht_plan *b)
{
    ck_assert_int_eq(a->n_variables, b->n_variables);
    ck_assert_int_eq(a->n_inputs, b->n_inputs);
    for (int i = 0; i < a->n_variables; i++)
        ck_assert_msg(a->variables[i].value == b->variables[i].value, "%s: %s is %lld or %lld", system->name,
                      a->variables[i].name, (long long)a->variables[i].value, (long long)b->variables[i].value);
    for (int i = 0; i < a->n_inputs; i++)
        ck_assert_msg(fabs(a->inputs[i].value - b->inputs[i].value) == 0, "%s: %s is %g or %g", system->name,
                      a->inputs[i].name, a->inputs[i].value, b->inputs[i].value);
}

/* Two A100 on one node, two V100 on another. */
static struct ht_scenario mixed(void)
{
    struct ht_scenario_request request = {
        .cluster = HT_SOURCE_DIR "/tests/data/mixed-2x2.yaml", .model = "autohete-2b", .micro_batch = 1, .seq = 512};
    struct ht_scenario sc = scenario_from(&request);
    struct ht_error err = {0};
    ck_assert_msg(ht_cluster_set_disks(sc.cluster, "local-disk", 1, &err) == HT_OK, "%s", err.text);
    return sc;
}

/* Plans twice, the second time with the nodes in the other order, and holds the plans equal. The caller frees *plan. */
static void plan_in_both_orders(const struct ht_system *system, struct ht_scenario *sc, struct ht_plan *plan)
{
    struct ht_plan swapped = {0};
    struct ht_machine node = sc->cluster->nodes[0];
    plan_for(system, sc, plan);
    sc->cluster->nodes[0] = sc->cluster->nodes[1];
    sc->cluster->nodes[1] = node;
    plan_for(system, sc, &swapped);
    check_same(system, plan, &swapped);
    ht_plan_free(&swapped);
}

/*
 * Whichever node comes first, a planner for ranks that are all alike plans for the slower device, the slower link and
 * the smaller memories. A block of autohete-2b has 12 C^2 + 13 C parameters, C = 2048, a quarter of which each rank
 * steps: with FP32 sums of two micro-batches 30 bytes each on the device, at 900 x 0.88 GB/s of a V100 (1555 x 0.88 of an
 * A100), and 2 bytes of copy from the host over PCIe 3, 15.75 x 0.76 GB/s (PCIe 4: 31.5 x 0.79).
 */
START_TEST(planners_ask_the_slowest_rank)
{
    const struct ht_system *system;
    int planned = 0;
    struct ht_scenario sc = mixed();
    for (size_t i = 0; (system = ht_system_at(i)); i++) {
        struct ht_plan plan = {0};
        if (system->division != HT_EQUAL_REPLICAS || system->one_device) continue;
        plan_in_both_orders(system, &sc, &plan);
        double params = (12.0 * 2048 * 2048 + 13 * 2048) / 4;
        if (!strcmp(system->name, "autohete")) {
            ck_assert_double_eq_tol(input_of(&plan, "t_optim_gpu"), 30 * params / (900e9 * 0.88), 5e-6);
            ck_assert_double_eq(input_of(&plan, "host_memory"), 440e9);
        }
        if (!strcmp(system->name, "autohete") || !strcmp(system->name, "stronghold"))
            ck_assert_double_eq_tol(input_of(&plan, "t_h2d"), 2 * params / (15.75e9 * 0.76), 15e-6);
        if (!strcmp(system->name, "autohete") || !strcmp(system->name, "stronghold") ||
            !strcmp(system->name, "patrickstar"))
            ck_assert_double_eq(input_of(&plan, "device_memory"), 31.75 * (1 << 30));
        ht_plan_free(&plan);
        planned++;
    }
    ck_assert_int_gt(planned, 10);
    ht_scenario_free(&sc);
}
END_TEST

/*
 * One A100 on one node, three V100 on another, whose ranks share cores and memory. The node with 440 GB has the smallest
 * memory, but a rank of the other has the least: 512 GB for three. And the A100's node has the slower CPU, but steps a
 * third of what the other does. A step of the quarter of a block with FP32 sums takes 30 bytes a parameter of 170.6 x
 * 0.83 x 0.97 GB/s there (204.8 on the A100's).
 */
START_TEST(ranks_of_a_node_share_its_host)
{
    static const char *const names[] = {"autohete", "patrickstar"};
    struct ht_scenario sc = mixed();
    for (int64_t i = 0; i < 2; i++) sc.cluster->nodes[i].groups[0].count = sc.cluster->nodes[i].n_gpus = 1 + 2 * i;
    for (size_t i = 0; i < HT_COUNT(names); i++) {
        const struct ht_system *system;
        struct ht_plan plan = {0};
        struct ht_error err = {0};
        ck_assert_msg(ht_system_find(names[i], &err, &system) == HT_OK, "%s", err.text);
        plan_in_both_orders(system, &sc, &plan);
        ck_assert_double_eq(input_of(&plan, "host_memory"), 512e9);
        double params = (12.0 * 2048 * 2048 + 13 * 2048) / 4;
        if (i == 0)
            ck_assert_double_eq_tol(input_of(&plan, "t_optim_cpu"), 3 * 30 * params / (170.6e9 * 0.83 * 0.97), 100e-6);
        ht_plan_free(&plan);
    }
    ht_scenario_free(&sc);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("plan");
    TCase *tc = tcase_create("plan");
    tcase_set_timeout(tc, 300);
    tcase_add_test(tc, printed_plans_build_the_same_graph);
    tcase_add_test(tc, what_planners_keep_is_the_graph);
    tcase_add_test(tc, planners_ask_the_slowest_rank);
    tcase_add_test(tc, ranks_of_a_node_share_its_host);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
