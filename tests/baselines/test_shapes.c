/* The fastest shape: against each shape alone, and the balance that Whale adds. */
#include "baselines/baselines.h"
#include "baselines/shape.h"

#include "common/plan/candidate.h"
#include "tests/support/plans.h"
#include "tests/support/scenario.h"
#include "tests/support/suite.h"

static struct ht_scenario scenario(const char *model, const char *cluster, int64_t batch)
{
    return scenario_from(&(struct ht_scenario_request){
        .model = model, .cluster = cluster, .batch = batch, .micro_batch = 1, .numerics = "bf16"});
}

static int64_t simulated_ns(const struct ht_system *system, const struct ht_scenario *sc, const char *set)
{
    struct ht_plan plan = {0};
    struct ht_error err = {0};
    struct ht_candidate x = {0};
    int64_t ns = INT64_MAX;
    struct ht_profile *costs = ht_profile_modelled(sc->cluster);
    enum ht_status status = plan_at(system, sc, costs, set, &err, &plan);
    if (!status) ck_assert_msg(!ht_candidate_prove(system, sc, &plan, &err, &x), "%s", err.text);
    if (!status) ck_assert_msg(!ht_candidate_simulate(&x, sc, costs, &err, &ns), "%s", err.text);
    ht_candidate_free(&x);
    ht_plan_free(&plan);
    ht_profile_destroy(costs);
    return ns;
}

/* Six devices have the shapes tp 1, 2 (3 and 6 divide no head) by pp 1, 2, 3, 6; dp 4 and 6 do not divide 16 micro-batches.
   Whole models do not fit a GPU of 80 GB; with one stage of two parts they do not either. */
START_TEST(fastest_of_all)
{
    struct ht_scenario sc = scenario("autohet-llama-6.7b", "autohet-4a100-2h800", 16);
    const struct ht_system *systems[] = {&ht_megatron_3d, &ht_whale_3d};
    for (int i = 0; i < 2; i++) {
        int64_t least = INT64_MAX, fit = 0;
        for (int tp = 1; tp <= 3; tp++)
            for (int pp = 1; pp <= 6; pp++) {
                char set[32];
                snprintf(set, sizeof set, "tp=%d pp=%d", tp, pp);
                int64_t ns = simulated_ns(systems[i], &sc, set);
                fit += ns < INT64_MAX;
                if (ns < least) least = ns;
            }
        ck_assert_int_eq(simulated_ns(systems[i], &sc, ""), least);
        ck_assert_int_ge(fit, 3);
    }
    ht_scenario_free(&sc);
}
END_TEST

static void check(const struct ht_plan *plan, const char *name, int32_t n, const int64_t *want)
{
    const struct ht_variable *v = ht_plan_variable(plan, name);
    ck_assert_int_eq(v->n, n);
    for (int32_t i = 0; i < n; i++)
        ck_assert_msg(v->values[i] == want[i], "%s[%d] is %ld", name, i, (long)v->values[i]);
}

/*
 * Three stages of two devices: A100, A100, H800, whose blocks take 13.01, 13.01 and 5.34 ms. Of 32 blocks each next one goes
 * where it is done first: 7, 7, 18 (91, 91, 96 ms; 8 A100 blocks take 104). Megatron-LM has 10, 11, 11. Both have ranks in
 * the order tensor, data, pipeline: pipeline 0 is 0, 2, 4.
 */
START_TEST(balance_of_layers)
{
    struct ht_scenario sc = scenario("autohet-llama-6.7b", "autohet-4a100-2h800", 16);
    struct ht_plan plan = {0};
    struct ht_error err = {0};
    ck_assert_msg(!plan_with(&ht_whale_3d, &sc, "tp=1 pp=3", &err, &plan), "%s", err.text);
    check(&plan, "blocks", 3, (const int64_t[]){7, 7, 18});
    check(&plan, "l", 2, (const int64_t[]){8, 8});
    check(&plan, "place", 6, (const int64_t[]){0, 2, 4, 1, 3, 5});
    ck_assert_msg(!plan_with(&ht_megatron_3d, &sc, "tp=1 pp=3", &err, &plan), "%s", err.text);
    check(&plan, "blocks", 3, (const int64_t[]){10, 11, 11});
    ht_plan_free(&plan);
    ht_scenario_free(&sc);
}
END_TEST

/* BERT-Large on two A100 and two H800 with one stage each: Whale gives the H800 more micro-batches, Megatron-LM as many. */
START_TEST(balance_of_the_batch)
{
    struct ht_scenario sc = scenario("autohet-bert-large", "autohet-2a100-2h800", 32);
    struct ht_plan plan = {0};
    struct ht_error err = {0};
    ck_assert_msg(!plan_with(&ht_whale_3d, &sc, "pp=1", &err, &plan), "%s", err.text);
    const int64_t *l = ht_plan_variable(&plan, "l")->values;
    ck_assert(l[0] == l[1] && l[2] == l[3] && l[0] < l[2] && 2 * (l[0] + l[2]) == 32);
    ck_assert_msg(!plan_with(&ht_megatron_3d, &sc, "pp=1", &err, &plan), "%s", err.text);
    check(&plan, "l", 4, (const int64_t[]){8, 8, 8, 8});
    ht_plan_free(&plan);
    ht_scenario_free(&sc);
}
END_TEST

START_TEST(refused)
{
    struct ht_scenario sc = scenario("autohet-llama-6.7b", "autohet-4a100-2h800", 16);
    struct ht_plan plan = {0};
    struct ht_error err = {0};
    ck_assert_int_eq(plan_with(&ht_megatron_3d, &sc, "tp=1 pp=1 recompute=1", &err, &plan), HT_INFEASIBLE);
    ck_assert_str_eq(err.text, "none of 0 shapes of 6 devices fits");
    ck_assert_int_eq(plan_with(&ht_whale_3d, &sc, "pp=1 tp=1", &err, &plan), HT_INFEASIBLE);
    ck_assert_str_eq(err.text, "none of 2 shapes of 6 devices fits");
    ck_assert_int_eq(plan_with(&ht_whale_3d, &sc, "pipelines=3,3", &err, &plan), HT_BAD_INPUT);
    ht_plan_free(&plan);
    ht_scenario_free(&sc);
}
END_TEST

/* A plan that is forced as a whole has blocks, or equal stages that are interleaved. */
START_TEST(forced_as_a_whole)
{
    struct ht_scenario sc = scenario("autohet-bert-large", "autohet-2a100-2h800", 16);
    const char *interleaved = "tp=1 v=2 pipelines=2,2 l=8,8 place=0-3",
               *one_stage = "tp=1 pipelines=2,2 l=8,8 place=0-3";
    ck_assert_int_lt(simulated_ns(&ht_megatron_3d, &sc, interleaved), INT64_MAX);
    ck_assert_int_eq(simulated_ns(&ht_megatron_3d, &sc, one_stage), INT64_MAX);
    ht_scenario_free(&sc);
}
END_TEST

static struct ht_scenario four_gpus(void)
{
    return scenario("autohet-bert-large", "autohet-2a100-2h800", 16);
}

/* No candidate of the sweep needs less memory than its least, or is faster than its bound. Four devices and 16 micro-batches
   have all of tp 1, 2 (a node has two), of pp 1, 2, 4, of v 1, 2, .. and of what is recomputed. */
START_TEST(bounds_hold)
{
    static const char *const again[] = {"nothing", "blocks", "attention"};
    struct ht_scenario sc = four_gpus();
    struct ht_profile *costs = ht_profile_modelled(sc.cluster);
    int held = 0, interleaved = 0, shared = 0;
    for (int i = 0; i < 2 * 3 * 4 * 2 * 3; i++) {
        struct ht_shape x = {
            .tp = 1 << i % 2, .pp = 1 << i / 2 % 3, .v = 1 << i / 6 % 4, .zero = i / 24 % 2, .again = i / 48};
        struct ht_plan plan = {0};
        struct ht_error err = {0};
        struct ht_needs needs;
        char set[64];
        int64_t bound_ns;
        x.dp = 4 / (x.tp * x.pp);
        if (x.tp * x.pp > 4 || (x.pp == 1 && x.v > 1) || (x.dp == 1 && x.zero) || 24 % (x.pp * x.v)) continue;
        snprintf(set, sizeof set, "tp=%d pp=%d v=%d zero=%d recompute=%d", (int)x.tp, (int)x.pp, (int)x.v, x.zero,
                 (int)x.again);
        ck_assert_msg(!plan_with(&ht_megatron_3d, &sc, set, &err, &plan), "%s: %s", set, err.text);
        ck_assert_msg(!ht_plan_needs(&ht_megatron_3d, &sc, &plan, &err, &needs), "%s: %s", set, err.text);
        int64_t ns = simulated_ns(&ht_megatron_3d, &sc, set), least = ht_shape_least_bytes(&sc, &x);
        ck_assert_msg(!ht_shape_bound_ns(&sc, costs, &x, &err, &bound_ns), "%s", err.text);
        ck_assert_msg(least <= needs.peak_bytes[HT_DEVICE], "%s, %s again: at least %ld bytes, needs %ld", set,
                      again[x.again], (long)least, (long)needs.peak_bytes[HT_DEVICE]);
        ck_assert_msg(bound_ns <= ns, "%s: at least %ld ns, takes %ld", set, (long)bound_ns, (long)ns);
        /* they are of use: states and activations are most of the memory, passes most of the time */
        ck_assert_msg(2 * least > needs.peak_bytes[HT_DEVICE] && 3 * bound_ns > ns, "%s", set);
        held++, interleaved += x.v > 1, shared += x.zero;
        ht_plan_free(&plan);
    }
    ck_assert(held > 40 && interleaved > 20 && shared > 10);
    ht_profile_destroy(costs);
    ht_scenario_free(&sc);
}
END_TEST

static void count_progress(void *ctx, size_t done, size_t of)
{
    size_t *last = ctx;
    ck_assert(done == *last + 1 && done <= of);
    *last = done;
}

/* The sweep has for each candidate why it fell; exactly one is taken, and it is the fastest of those simulated. */
START_TEST(every_candidate_has_its_reason)
{
    struct ht_scenario sc = four_gpus();
    struct ht_profile *costs = ht_profile_modelled(sc.cluster);
    struct ht_plan plan = {0};
    struct ht_error err = {0};
    size_t done = 0, taken = 0;
    struct ht_settings settings = {.progress = count_progress, .progress_ctx = &done};
    double least = 0;
    ck_assert_msg(!ht_megatron_3d.plan(&ht_megatron_3d, &sc, costs, &settings, &err, &plan), "%s", err.text);
    ck_assert_uint_eq(done, plan.n_considered);
    ck_assert_uint_gt(done, 40);
    for (size_t i = 0; i < plan.n_considered; i++) {
        const struct ht_considered *c = &plan.considered[i];
        ck_assert_msg(*c->why && *c->name && c->bound_s > 0 && c->least_bytes > 0, "%zu: %s", i, c->name);
        ck_assert(!c->iteration_s || c->iteration_s >= c->bound_s);
        taken += !strcmp(c->why, "taken");
        if (!strcmp(c->why, "taken")) least = c->iteration_s;
        ck_assert(!i || c->bound_s >= plan.considered[i - 1].bound_s);
    }
    ck_assert_uint_eq(taken, 1);
    for (size_t i = 0; i < plan.n_considered; i++)
        ck_assert(!plan.considered[i].iteration_s || plan.considered[i].iteration_s >= least);
    ht_plan_free(&plan);
    ck_assert_int_lt(simulated_ns(&ht_megatron_3d, &sc, ""), simulated_ns(&ht_megatron_3d, &sc, "v=1 zero=0"));
    ht_profile_destroy(costs);
    ht_scenario_free(&sc);
}
END_TEST

/* 80 GB hold no whole model: what falls says so, and so does the answer when nothing is left. */
START_TEST(what_does_not_fit)
{
    struct ht_scenario sc = scenario("autohet-llama-6.7b", "autohet-4a100-2h800", 16);
    struct ht_plan plan = {0};
    struct ht_error err = {0};
    ck_assert_int_eq(plan_with(&ht_whale_3d, &sc, "v=2", &err, &plan), HT_BAD_INPUT);
    ck_assert_int_eq(plan_with(&ht_megatron_3d, &sc, "tp=1 pp=2 v=3", &err, &plan), HT_INFEASIBLE);
    ck_assert_str_eq(err.text, "none of 0 shapes of 6 devices fits"); /* 3 x 2 does not divide 32 blocks */
    ht_plan_free(&plan);
    ht_scenario_free(&sc);
    sc = scenario("autohet-llama-6.7b", "autohete-4gpu", 16);
    ck_assert_int_eq(plan_with(&ht_megatron_3d, &sc, "tp=1 pp=1 zero=0", &err, &plan), HT_INFEASIBLE);
    ck_assert_int_eq(err.lacks, 1 + HT_DEVICE);
    ck_assert_uint_eq(plan.n_considered, 3); /* nothing, attention, blocks again */
    for (size_t i = 0; i < plan.n_considered; i++)
        ck_assert_str_eq(plan.considered[i].why, "states and activations alone are more than a device has");
    ht_plan_free(&plan);
    ht_scenario_free(&sc);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, bounds_hold);
    tcase_add_test(t, every_candidate_has_its_reason);
    tcase_add_test(t, what_does_not_fit);
    tcase_add_test(t, fastest_of_all);
    tcase_add_test(t, balance_of_layers);
    tcase_add_test(t, balance_of_the_batch);
    tcase_add_test(t, refused);
    tcase_add_test(t, forced_as_a_whole);
}

int main(void)
{
    return run_suite("shapes", add);
}
