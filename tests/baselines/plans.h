/* Helpers of the baselines' tests: scenarios, forced plans, verified schedules, and simulated runs at hand-made
 * costs. */
#ifndef HT_TESTS_BASELINES_PLANS_H
#define HT_TESTS_BASELINES_PLANS_H

#include "baselines/baselines.h"
#include "common/base/array.h"
#include "common/exec/sim.h"
#include "common/schedule/bound.h"
#include "common/schedule/verify.h"
#include "tests/support/scenario.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline struct ht_scenario scenario_of(const char *model, int64_t batch, int64_t micro_batch, int64_t seq,
                                             const char *numerics, int64_t device_memory_bytes)
{
    struct ht_scenario_request r = {.model = model,
                                    .cluster = "local",
                                    .batch = batch,
                                    .micro_batch = micro_batch,
                                    .seq = seq,
                                    .numerics = numerics,
                                    .device_memory_bytes = device_memory_bytes};
    return scenario_from(&r);
}

/* Plans with variables forced: "c=3 m=2". *plan is zero or a plan, which is replaced. */
static inline enum ht_status plan_with(const struct ht_system *system, const struct ht_scenario *sc, const char *set,
                                       struct ht_error *err, struct ht_plan *plan)
{
    struct ht_settings settings = {.n = 0};
    char text[256], *save = NULL;
    snprintf(text, sizeof text, "%s", set);
    for (char *word = strtok_r(text, " ", &save); word; word = strtok_r(NULL, " ", &save))
        ck_assert_msg(ht_settings_parse(system, sc, word, err, &settings) == HT_OK, "%s", err->text);
    ht_plan_free(plan);
    enum ht_status status = system->plan(system, sc, NULL, &settings, err, plan);
    ht_settings_free(&settings);
    return status;
}

/* Plans and builds; both must succeed. */
static inline struct ht_schedule *build_with(const struct ht_system *system, const struct ht_scenario *sc,
                                             const char *set, struct ht_plan *plan)
{
    struct ht_error err = {0};
    struct ht_schedule *s = NULL;
    ck_assert_msg(plan_with(system, sc, set, &err, plan) == HT_OK, "%s", err.text);
    ck_assert_msg(system->build(system, sc, plan, &err, &s) == HT_OK, "%s", err.text);
    return s;
}

/* Returns a quantity that the planner recorded as its input. */
static inline double input_of(const struct ht_plan *plan, const char *name)
{
    for (int i = 0; i < plan->n_inputs; i++)
        if (!strcmp(plan->inputs[i].name, name)) return plan->inputs[i].value;
    ck_abort_msg("no input is called %s", name);
    return 0;
}

/* Returns the peak of the device's safe sequence; the schedule must be proved and the bound hold. */
static inline int64_t proved_peak(const struct ht_schedule *s, const char *what)
{
    struct ht_error err = {0};
    struct ht_proof proof;
    ck_assert_msg(ht_schedule_verify(s, &err, &proof) == HT_OK, "%s: %s", what, err.text);
    int64_t bound[4], peak = proof.spaces[0].peak_bytes;
    ck_assert_int_eq(ht_n_spaces(s), 4);
    ht_schedule_bound(s, 0, bound);
    for (int32_t i = 0; i < 4; i++) ck_assert_int_le(proof.spaces[i].peak_bytes, bound[i]);
    ht_proof_free(&proof);
    return peak;
}

/* Computes the bytes resident between iterations, by tier. */
static inline int64_t resident_bytes(const struct ht_schedule *s, enum ht_tier tier)
{
    int64_t sum = 0;
    for (int32_t r = 0; r < s->n_residents; r++)
        if (s->residents[r].tier == tier) sum += s->tensors[s->residents[r].tensor].bytes;
    return sum;
}

/* Cost of a kind of op on a kind of lane, in units of UNIT_NS. What is not listed costs nothing, and so do embedding
 * and head unless ends_too. */
#define UNIT_NS INT64_C(1000000)
struct price {
    enum ht_op_kind kind;
    enum ht_lane_kind lane;
    int64_t units;
};

static inline int64_t *priced(const struct ht_schedule *s, const struct price *prices, size_t n, bool ends_too)
{
    int64_t *cost_ns = HT_NEW_ARRAY(int64_t, s->n_ops);
    for (int32_t i = 0; i < s->n_ops; i++) {
        const struct ht_op *op = &s->ops[i];
        bool end = op->label.unit == 0 || op->label.unit == s->n_units - 1;
        for (size_t k = 0; k < n; k++)
            if (op->kind == prices[k].kind && s->lanes[op->lane].kind == prices[k].lane && (ends_too || !end))
                cost_ns[i] = prices[k].units * UNIT_NS;
    }
    return cost_ns;
}

/* Simulates without shared resources, so that an op takes its cost and the arithmetic can be done by hand. */
static inline struct ht_trace *simulated(struct ht_schedule *s, const int64_t *cost_ns, int32_t iterations)
{
    struct ht_sim_options options = {.iterations = iterations};
    struct ht_trace *trace = NULL;
    struct ht_error err = {0};
    for (int32_t r = 0; r < s->n_resources; r++) s->resources[r].capacity_per_s = (int64_t)1 << 43;
    ck_assert_msg(ht_sim_run(s, cost_ns, &options, &err, &trace) == HT_OK, "%s", err.text);
    return trace;
}

static inline int32_t op_named(const struct ht_schedule *s, const char *name)
{
    for (int32_t i = 0; i < s->n_ops; i++)
        if (!strcmp(s->ops[i].name, name)) return i;
    ck_abort_msg("no op is called %s", name);
    return -1;
}

static inline const struct ht_trace_event *event_of(const struct ht_trace *t, int32_t iteration, const char *name)
{
    return &t->events[(int64_t)iteration * t->schedule->n_ops + op_named(t->schedule, name)];
}

static inline int run_suite(const char *name, void (*add)(TCase *))
{
    Suite *suite = suite_create(name);
    TCase *t = tcase_create("schedules");
    tcase_set_timeout(t, 300);
    add(t);
    suite_add_tcase(suite, t);
    SRunner *r = srunner_create(suite);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}

#endif
