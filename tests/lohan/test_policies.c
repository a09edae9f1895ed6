/* LoHan with others' policies: any fates and depths before the verifier, LoHan's own graph for LoHan's own fates, and
 * activations that come back more than a turn ahead. */
#include "policies/decide.h"
#include "tests/lohan/helpers.h"
#include "tests/support/fates.h"

#define MS INT64_C(1000000)

static const struct ht_system *const policies[] = {&lohan_cap, &lohan_g10, &lohan_cm};

/* The same fates, a turn ahead: the same graph as lohan's, but for its name. */
START_TEST(the_schedule_is_lohans)
{
    struct ht_scenario sc = on_ssds("gpt-tiny", 2, 2, 1, "fp16");
    struct ht_plan plan = {0};
    struct ht_schedule *own =
        built(&lohan, &sc, "input=1,2 norm1=0,0 qkv=1,0 attention=0,2 proj=2,1 norm2=0,0 fc1=2,3 gelu=0,0", &plan);
    struct ht_schedule *s =
        built(&lohan_g10, &sc,
              "input=1,2 norm1=0,0 qkv=1,0 attention=0,2 proj=2,1 norm2=0,0 fc1=2,3 gelu=0,0 ahead=1,1", &plan);
    ck_assert_int_eq(s->n_ops, own->n_ops);
    for (int32_t i = 0; i < s->n_ops; i++) ck_assert_str_eq(s->ops[i].name, own->ops[i].name);
    for (int32_t i = 0; i < s->n_works; i++) ck_assert_mem_eq(&s->works[i], &own->works[i], sizeof s->works[i]);
    ht_schedule_destroy(own);
    ht_schedule_destroy(s);
    ht_plan_free(&plan);
    ht_scenario_free(&sc);
}
END_TEST

/*
 * Block 1 of 2 is swapped; forward passes take 1 ms, backward passes 2, AI1 3; all else is free. FH ends at 4, BH at 6, B2
 * at 8. A turn ahead AI1 runs 6-9, and B1, B0 end at 13; two ahead 4-7, and they end at 12.
 */
START_TEST(activations_come_back_ahead)
{
    static const struct {
        const char *set;
        int64_t end;
    } cases[] = {{"ahead=1,1", 13}, {"ahead=2,1", 12}};
    for (size_t k = 0; k < HT_COUNT(cases); k++) {
        struct ht_scenario sc = on_ssds("gpt-mini", 2, 1, 0, "fp16");
        struct ht_plan plan = {0};
        char set[256];
        snprintf(set, sizeof set,
                 "input=1,3 norm1=1,3 qkv=1,3 attention=1,3 proj=1,3 norm2=1,3 fc1=1,3 gelu=1,3 prefetch_f=64 "
                 "prefetch_b=64 %s",
                 cases[k].set);
        struct ht_schedule *s = built(&lohan_cap, &sc, set, &plan);
        int64_t *ns = HT_NEW_ARRAY(int64_t, s->n_ops);
        for (int32_t u = 0; u < 4; u++) ns[op_of(s, "F", u)] = MS, ns[op_of(s, "B", u)] = 2 * MS;
        ns[op_of(s, "AI", 1)] = 3 * MS;
        struct ht_trace *t = simulated(s, ns, 1);
        ck_assert_int_eq(event_of(t, 0, "B", 0)->end_ns / MS, cases[k].end);
        ht_trace_destroy(t);
        free(ns);
        ht_schedule_destroy(s);
        ht_plan_free(&plan);
        ht_scenario_free(&sc);
    }
}
END_TEST

static double first_bytes; /* of the GPU, that picky was asked for; -1 before */
static int refusals;

/* Swaps the blocks' inputs and recomputes the rest. Has no plan for more GPU memory than at first. */
static enum ht_status picky(const struct ht_policy_case *c, struct ht_error *err, enum ht_fate *fates)
{
    if (first_bytes < 0) first_bytes = c->device_bytes;
    if (c->device_bytes > first_bytes) {
        refusals++;
        return ht_fail(err, HT_INFEASIBLE, "more than at first");
    }
    for (int32_t i = 0; i < c->n; i++) fates[i] = c->a[i].part == HT_PART_INPUT ? HT_FATE_MAIN : HT_FATE_RECOMPUTED;
    return HT_OK;
}

static void one_turn_ahead(const struct ht_policy_request *r, struct ht_plan *plan)
{
    (void)r;
    ht_plan_set(plan, "prefetch_f", 1);
    ht_plan_set(plan, "prefetch_b", 1);
}

/* A plan was found before the GPU's budget is raised, so a policy that has none for more leaves it as it is. */
START_TEST(a_raised_budget_may_be_refused)
{
    struct ht_scenario_request asked = {
        .model = "lohan-headless-13b", .cluster = "lohan-4090", .batch = 32, .micro_batch = 32};
    struct ht_scenario sc = scenario_from(&asked);
    struct ht_profile *costs = ht_profile_modelled(sc.cluster);
    struct ht_settings none = {.n = 0};
    struct ht_plan plan = {0};
    struct ht_error err = {0};
    struct ht_policy_request r = {.self = &lohan_cap,
                                  .scenario = &sc,
                                  .costs = costs,
                                  .settings = &none,
                                  .policy = picky,
                                  .title = "picky",
                                  .input = HT_FATE_MAIN,
                                  .rest = HT_FATE_RECOMPUTED,
                                  .main_memory = true,
                                  .complete = one_turn_ahead};
    first_bytes = -1;
    refusals = 0;
    ck_assert_msg(ht_policy_decide(&r, &err, &plan, NULL) == HT_OK, "%s", err.text);
    ck_assert_int_gt(refusals, 1);
    ck_assert_double_eq(input_of(&plan, "device_budget"), first_bytes);
    ck_assert_double_eq(input_of(&plan, "A_kept"), 0);
    ck_assert_double_eq(input_of(&plan, "A_main"), 40 * 2.0 * 32 * 1024 * 5120);
    ht_plan_free(&plan);
    ht_profile_destroy(costs);
    ht_scenario_free(&sc);
}
END_TEST

/* Any fates and depths, for any of the three, model, numerics, micro-batches and control. */
START_TEST(every_plan_is_proved)
{
    for (uint64_t seed = 0; seed < 150; seed++) {
        struct draw d = {.seed = seed};
        struct ht_scenario_request r = draw_request(&d);
        int gpus = seed / 4 % 2 ? 1 : 2 << (seed / 8 % 2);
        r.cluster = "lohan-4x4090";
        r.batch = 16;
        struct ht_scenario sc = scenario_from(&r);
        use_gpus(&sc, gpus);
        sc.batch = 4 * gpus;
        const struct ht_system *system = policies[below(&d, HT_COUNT(policies))];
        struct ht_plan plan = {0};
        char set[512] = "";
        draw_fates(&d, system == &lohan_g10, r.blocks, set, sizeof set);
        if (below(&d, 2)) draw_list(&d, "ahead", 0, 6, r.blocks, set, sizeof set);
        size_t used = strlen(set);
        snprintf(set + used, sizeof set - used, " prefetch_f=%d prefetch_b=%d", below(&d, 4), below(&d, 4));
        struct ht_schedule *s = built(system, &sc, set, &plan);
        check_fates(s, &plan);
        ht_schedule_destroy(s);
        ht_plan_free(&plan);
        ht_scenario_free(&sc);
    }
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, the_schedule_is_lohans);
    tcase_add_test(t, activations_come_back_ahead);
    tcase_add_test(t, a_raised_budget_may_be_refused);
    tcase_add_test(t, every_plan_is_proved);
}

int main(void)
{
    return run_suite("policies", add);
}
