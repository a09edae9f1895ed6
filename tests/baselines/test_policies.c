/* Systems that place activations by a policy: iterations worked by hand, traffic and residence to the byte, and any
   fates before the verifier. */
#include "tests/baselines/plans.h"
#include "tests/support/drawn_fates.h"
#include "tests/support/fates.h"

enum { SLACK = 10000 }; /* ns: copies that are free take a few, since a resource has a rate */

static const struct ht_system *const all[] = {&ht_capuchin, &ht_checkmate, &ht_flashneuron, &ht_g10};

/* ---- iterations by hand ---------------------------------------------------------------------------------------- */

struct cost {
    const char *name; /* of an op, "AO1" */
    int64_t units;
};

/* Returns the time of an iteration of a GPT of two blocks, in units; what has no cost is free. */
static int64_t time_of(const struct ht_system *system, const char *set, const struct cost *costs, size_t n)
{
    struct ht_scenario sc = on_ssds("gpt-mini", 2, 1, 0, "fp16");
    struct ht_plan plan = {0};
    struct ht_schedule *s = built(system, &sc, set, &plan);
    int64_t *ns = HT_NEW_ARRAY(int64_t, s->n_ops);
    for (size_t i = 0; i < n; i++) ns[op_named(s, costs[i].name)] = costs[i].units * UNIT_NS;
    struct ht_trace *t = simulated(s, ns, 1);
    int64_t end_ns = t->end_ns;
    ck_assert_int_lt(end_ns % UNIT_NS, SLACK);
    ht_trace_destroy(t);
    free(ns);
    ht_schedule_destroy(s);
    ht_plan_free(&plan);
    ht_scenario_free(&sc);
    return end_ns / UNIT_NS;
}

#define ALL_OF(BLOCK1, BLOCK2)                                                                                         \
    "input=" BLOCK1 "," BLOCK2 " norm1=" BLOCK1 "," BLOCK2 " qkv=" BLOCK1 "," BLOCK2 " attention=" BLOCK1 "," BLOCK2   \
    " proj=" BLOCK1 "," BLOCK2 " norm2=" BLOCK1 "," BLOCK2 " fc1=" BLOCK1 "," BLOCK2 " gelu=" BLOCK1 "," BLOCK2

/*
 * Block 1 is swapped, 2 and 3 units a copy to and fro, block 2 is kept. Passes: F0 0-1, F1 1-2, F2 2-3, FH 3-4, BH 4-6,
 * B2 6-8. AO1 leaves in 2-4.
 *   a turn ahead: AI1 begins with B2: 6-9. B1 9-11, B0 11-13.
 *   two ahead:    AI1 begins with BH, at 4: 4-7. B1 8-10, B0 10-12.
 *   none:         AI1 8-11. B1 11-13, B0 13-15.
 */
START_TEST(activations_come_back_ahead)
{
    static const struct cost costs[] = {{"F0", 1}, {"F1", 1}, {"F2", 1}, {"F3", 1},  {"B3", 2},
                                        {"B2", 2}, {"B1", 2}, {"B0", 2}, {"AO1", 2}, {"AI1", 3}};
    ck_assert_int_eq(time_of(&ht_capuchin, ALL_OF("1", "3") " ahead=1,1", costs, HT_COUNT(costs)), 13);
    ck_assert_int_eq(time_of(&ht_capuchin, ALL_OF("1", "3") " ahead=2,1", costs, HT_COUNT(costs)), 12);
    ck_assert_int_eq(time_of(&ht_checkmate, ALL_OF("1", "3") " ahead=0,0", costs, HT_COUNT(costs)), 15);
}
END_TEST

/*
 * The same to the SSDs, which take 4 units each way. AO1 2-4, AW1 4-8.
 *   a turn ahead: AR1 may begin with BH, and does when AW1 is done: 8-12. AI1 12-15. B1 15-17, B0 17-19.
 *   none:         AR1 may begin with B2, at 6: the same.
 */
START_TEST(the_ssds_are_on_the_way)
{
    static const struct cost costs[] = {{"F0", 1}, {"F1", 1}, {"F2", 1},  {"F3", 1},  {"B3", 2},  {"B2", 2},
                                        {"B1", 2}, {"B0", 2}, {"AO1", 2}, {"AW1", 4}, {"AR1", 4}, {"AI1", 3}};
    ck_assert_int_eq(time_of(&ht_flashneuron, ALL_OF("2", "3") " ahead=1,1", costs, HT_COUNT(costs)), 19);
    ck_assert_int_eq(time_of(&ht_flashneuron, ALL_OF("2", "3") " ahead=0,0", costs, HT_COUNT(costs)), 19);
}
END_TEST

/* A recomputation of 3 units before B1: F0 .. FH 0-4, BH 4-6, B2 6-8, R1 8-11, B1 11-13, B0 13-15. Its op is named by
   its label alone, so that all recomputation is priced. */
START_TEST(recomputation_takes_its_turn)
{
    struct ht_scenario sc = on_ssds("gpt-mini", 2, 1, 0, "fp16");
    struct ht_plan plan = {0};
    static const struct price prices[] = {{HT_OP_FORWARD, HT_LANE_COMPUTE, 1},
                                          {HT_OP_BACKWARD, HT_LANE_COMPUTE, 2},
                                          {HT_OP_RECOMPUTE, HT_LANE_COMPUTE, 3}};
    struct ht_schedule *s = built(
        &ht_capuchin, &sc, "input=3,3 norm1=0,3 qkv=0,3 attention=0,3 proj=3,3 norm2=0,3 fc1=3,3 gelu=0,3", &plan);
    int64_t *ns = priced(s, prices, HT_COUNT(prices), true);
    struct ht_trace *t = simulated(s, ns, 1);
    ck_assert_int_eq(t->end_ns / UNIT_NS, 15);
    for (int32_t i = 0; i < s->n_ops; i++) /* proj and fc1 are there: the others are made again */
        if (s->ops[i].kind == HT_OP_RECOMPUTE)
            ck_assert_int_eq(s->ops[i].label.sub_ops, 1 << HT_SUB_NORM1 | 1 << HT_SUB_QKV | 1 << HT_SUB_ATTENTION |
                                                          1 << HT_SUB_NORM2 | 1 << HT_SUB_GELU);
    ht_trace_destroy(t);
    free(ns);
    ht_schedule_destroy(s);
    ht_plan_free(&plan);
    ht_scenario_free(&sc);
}
END_TEST

/* DiT's fc2 keeps what its gate scales: it is where gelu is, and made again with it, in the time of its product. */
START_TEST(fc2_goes_with_gelu)
{
    static const char *const sets[] = {"input=3,3 gelu=0,3 fc1=3,3", "input=3,3 gelu=1,3 fc1=0,3"};
    for (size_t i = 0; i < HT_COUNT(sets); i++) {
        struct ht_scenario_request r = {
            .model = "dit-s-2", .cluster = SSDS, .blocks = 2, .batch = 1, .numerics = "fp16"};
        struct ht_scenario sc = scenario_from(&r);
        struct ht_plan plan = {0};
        char set[256];
        snprintf(set, sizeof set, "%s norm1=3,3 qkv=3,3 attention=3,3 proj=3,3 norm2=3,3", sets[i]);
        struct ht_schedule *s = built(&ht_capuchin, &sc, set, &plan);
        unsigned fc2 = 1u << HT_SUB_FC2, gelu = 1u << HT_SUB_GELU, again = i ? 1u << HT_SUB_FC1 : gelu | fc2;
        int64_t moved = 0;
        for (int32_t k = 0; k < s->n_ops; k++) {
            if (s->ops[k].kind == HT_OP_COPY) moved += s->works[s->ops[k].work].bytes;
            if (s->ops[k].kind != HT_OP_RECOMPUTE) continue;
            ck_assert_uint_eq(s->ops[k].label.sub_ops, again);
            ck_assert_uint_eq(s->works[s->ops[k].work].sub_ops, again);
        }
        ck_assert_int_eq(moved, i ? 2 * 256 * (1536 + 384) * 2 : 0); /* (B,T,F) and (B,T,C), out and in */
        ht_schedule_destroy(s);
        ht_plan_free(&plan);
        ht_scenario_free(&sc);
    }
}
END_TEST

/*
 * G10's optimizer over four units; the SSDs take 2 units a read or write and have one lane, SI, U and SO 1 each.
 *
 *     disk  SR3 0-2  SR2 2-4  SW3 5-7  SR1 7-9   SW2 9-11   SR0 11-13  SW1 13-15  SW0 16-18
 *     h2d   SI3 2-3  SI2 4-5           SI1 9-10             SI0 13-14
 *     gpu   U3 3-4   U2 5-6            U1 10-11             U0 14-15
 *     d2h   SO3 4-5  SO2 6-7           SO1 11-12            SO0 15-16
 *
 * After a backward pass of 4 units, 2 of them B0's: 18 + 4. Behind each backward pass (after=0) the gradients of units
 * 3, 2 and 1 come at 0, 0 and 2, before their states; U0 waits for B0, which ends at 4: nothing but 18 is left.
 */
START_TEST(g10_steps_on_the_gpu)
{
    static const struct cost costs[] = {{"SR3", 2}, {"SR2", 2}, {"SR1", 2}, {"SR0", 2}, {"SW3", 2}, {"SW2", 2},
                                        {"SW1", 2}, {"SW0", 2}, {"SI3", 1}, {"SI2", 1}, {"SI1", 1}, {"SI0", 1},
                                        {"U3", 1},  {"U2", 1},  {"U1", 1},  {"U0", 1},  {"SO3", 1}, {"SO2", 1},
                                        {"SO1", 1}, {"SO0", 1}, {"B1", 2},  {"B0", 2}};
    ck_assert_int_eq(time_of(&ht_g10, ALL_OF("3", "3") " after=1", costs, HT_COUNT(costs)), 22);
    ck_assert_int_eq(time_of(&ht_g10, ALL_OF("3", "3") " after=0", costs, HT_COUNT(costs)), 18);
}
END_TEST

/* ---- bytes ----------------------------------------------------------------------------------------------------- */

/* Computes the bytes that an iteration moves on lanes of a kind. */
static int64_t moved(const struct ht_schedule *s, enum ht_lane_kind kind, bool write)
{
    int64_t sum = 0;
    for (int32_t i = 0; i < s->n_ops; i++) {
        const struct ht_work *w = &s->works[s->ops[i].work];
        if (s->ops[i].kind == HT_OP_COPY && s->lanes[s->ops[i].lane].kind == kind && w->write == write) sum += w->bytes;
    }
    return sum;
}

/* 16-bit numerics: 2 P of parameters and 12 P of states. On the GPU all of it is resident, and the device's copies are
   the swapped activations, once each way. */
START_TEST(states_stay_on_the_gpu)
{
    for (size_t k = 0; k < 3; k++) {
        struct ht_scenario sc = on_ssds("gpt-mini", 2, 1, 0, "fp16");
        struct ht_plan plan = {0};
        bool ssd = all[k] == &ht_flashneuron;
        struct ht_schedule *s = built(all[k], &sc, ssd ? ALL_OF("2", "3") : ALL_OF("1", "3"), &plan);
        int64_t params = ht_model_params(&sc.model);
        int64_t block = ht_unit_input_bytes(&sc.model, 1, 1, sc.seq, HT_F16) +
                        ht_unit_activation_bytes(&sc.model, 1, 1, sc.seq, HT_F16);
        ck_assert_int_eq(resident_bytes(s, HT_DEVICE), 14 * params);
        ck_assert_int_eq(resident_bytes(s, HT_DISK) + resident_bytes(s, HT_HOST), 0);
        ck_assert_int_eq(moved(s, HT_LANE_H2D, false), block);
        ck_assert_int_eq(moved(s, HT_LANE_D2H, false), block);
        ck_assert_int_eq(moved(s, HT_LANE_DISK, false), ssd ? block : 0);
        ck_assert_int_eq(moved(s, HT_LANE_DISK, true), ssd ? block : 0);
        ht_schedule_destroy(s);
        ht_plan_free(&plan);
        ht_scenario_free(&sc);
    }
}
END_TEST

/* 14 P on the SSDs. In: P16 for the forward and the backward pass, the table's twice more with the tied head, and the
   head's only once; states of 12 P, gradients of 2 P. Out: gradients, states and P16. Kept activations move nothing. */
START_TEST(g10_moves_14_bytes_a_parameter)
{
    struct ht_scenario sc = on_ssds("gpt-mini", 2, 1, 0, "fp16");
    struct ht_plan plan = {0};
    struct ht_schedule *s = built(&ht_g10, &sc, ALL_OF("3", "3"), &plan);
    int64_t params = ht_model_params(&sc.model), head = ht_unit_params(&sc.model, 3),
            table = ht_unit_params(&sc.model, 0);
    int64_t p16 = 2 * (2 * params - head + (sc.model.tied ? table : 0));
    ck_assert_int_eq(resident_bytes(s, HT_DISK), 14 * params);
    ck_assert_int_eq(resident_bytes(s, HT_DEVICE) + resident_bytes(s, HT_HOST), 0);
    ck_assert_int_eq(moved(s, HT_LANE_H2D, false), p16 + 14 * params);
    ck_assert_int_eq(moved(s, HT_LANE_D2H, false), 2 * params + 14 * params);
    ck_assert_int_eq(moved(s, HT_LANE_DISK, false), p16 + 12 * params);
    ck_assert_int_eq(moved(s, HT_LANE_DISK, true), 14 * params);
    ht_schedule_destroy(s);
    ht_plan_free(&plan);
    ht_scenario_free(&sc);
}
END_TEST

/* ---- plans ----------------------------------------------------------------------------------------------------- */

/* 60 blocks of 49,984 parameters have 6.0 MB of gradients, which 5 MB do not hold: they wait on the SSDs, 2 bytes each
   beside 14. With --set g_ssd=0 they may not, and nothing fits. */
START_TEST(gradients_that_do_not_fit_wait_on_ssds)
{
    struct ht_scenario sc = on_ssds("gpt-mini", 60, 1, 1, "fp16");
    struct ht_plan plan = {0};
    int64_t params = ht_model_params(&sc.model);
    sc.cluster->nodes[0].ram_bytes = 32000000;
    ht_schedule_destroy(built(&ht_g10, &sc, "", &plan));
    ck_assert_int_eq(ht_plan_get(&plan, "g_ssd"), 0);
    ck_assert_int_eq(plan.planned_bytes[HT_DISK], 14 * params);
    sc.cluster->nodes[0].ram_bytes = 5000000;
    struct ht_schedule *s = built(&ht_g10, &sc, "", &plan);
    ck_assert_int_eq(ht_plan_get(&plan, "g_ssd"), 1);
    ck_assert_int_eq(plan.planned_bytes[HT_DISK], 16 * params);
    proved_peak(s, "on the SSDs");
    ht_schedule_destroy(s);
    ht_plan_free(&plan);
    ht_scenario_free(&sc);
}
END_TEST

/* With less and less memory each planner's own plan is proved: fewer bytes stay, until it does not fit any more. */
START_TEST(plans_fit_or_say_so)
{
    for (size_t k = 0; k < HT_COUNT(all); k++) {
        int fit = 0, refused = 0;
        for (int64_t megabytes = 1; megabytes <= 64; megabytes += megabytes < 24 ? 1 : 8) {
            struct ht_scenario_request r = {.model = "gpt-tiny",
                                            .cluster = SSDS,
                                            .batch = 2,
                                            .numerics = "fp16",
                                            .device_memory_bytes = megabytes * 1000000};
            struct ht_scenario sc = scenario_from(&r);
            struct ht_plan plan = {0};
            struct ht_error err = {0};
            struct ht_schedule *s = NULL;
            struct ht_proof proof = {0};
            enum ht_status status = plan_with(all[k], &sc, "", &err, &plan);
            if (!status) status = all[k]->build(all[k], &sc, &plan, &err, &s);
            if (!status) status = ht_schedule_verify(s, &err, &proof);
            ck_assert_msg(status == HT_OK || status == HT_INFEASIBLE, "%s: %s", all[k]->name, err.text);
            ck_assert_msg(!(fit && status), "%s fits %d sizes below %d MB", all[k]->name, fit, (int)megabytes);
            fit += !status;
            refused += status != HT_OK;
            ht_proof_free(&proof);
            ht_schedule_destroy(s);
            ht_plan_free(&plan);
            ht_scenario_free(&sc);
        }
        ck_assert_int_ge(fit, 3);
        ck_assert_int_ge(refused, 1);
    }
}
END_TEST

/* Any fates and depths, for any system, model, numerics, micro-batches and control. Activations go where the plan says. */
START_TEST(every_plan_is_proved)
{
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct draw d = {.seed = seed};
        struct ht_scenario_request r = draw_request(&d);
        struct ht_scenario sc = scenario_from(&r);
        const struct ht_system *system = all[below(&d, HT_COUNT(all))];
        bool several = r.micro_batch < r.batch;
        struct ht_plan plan = {0};
        char set[512] = "";
        draw_fates(&d, system->disk, r.blocks, set, sizeof set);
        draw_list(&d, "ahead", 0, 6, r.blocks, set, sizeof set);
        if (system == &ht_g10 && several) strcat(set, " g_ssd=1");
        if (system == &ht_g10 && !several && below(&d, 2)) strcat(set, " after=0");
        struct ht_schedule *s = built(system, &sc, set, &plan);
        check_fates(s, &plan);
        ht_schedule_destroy(s);
        ht_plan_free(&plan);
        ht_scenario_free(&sc);
    }
}
END_TEST

/* Finds what cannot be: SSDs of a system that has none, too few elements, a step behind the backward pass of one of
   several micro-batches. */
START_TEST(bad_variables_are_named)
{
    static const struct {
        const struct ht_system *system;
        const char *set, *says;
        enum ht_status status;
    } bad[] = {{&ht_capuchin, "qkv=2,0", "qkv of block 1 is to go to SSD; capuchin uses none", HT_BAD_INPUT},
               {&ht_g10, "fc1=1,1,1", "fc1 has 3 elements; expected 2", HT_BAD_INPUT},
               {&ht_flashneuron, "ahead=1", "ahead has 1 elements; expected 2", HT_BAD_INPUT},
               {&ht_g10, "input=0,1", "input", HT_BAD_INPUT},
               {&ht_g10, "after=0 g_ssd=1", "g_ssd=1 is for after=1", HT_BAD_INPUT},
               {&ht_g10, "after=0", "one micro-batch", HT_INFEASIBLE}};
    for (size_t i = 0; i < HT_COUNT(bad); i++) {
        struct ht_scenario sc = on_ssds("gpt-mini", 2, 2, 1, "fp16");
        struct ht_plan plan = {0};
        struct ht_error err = {0};
        ck_assert_int_eq(plan_with(bad[i].system, &sc, bad[i].set, &err, &plan), bad[i].status);
        ck_assert_msg(strstr(err.text, bad[i].says) != NULL, "%s: %s", bad[i].set, err.text);
        ht_plan_free(&plan);
        ht_scenario_free(&sc);
    }
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, activations_come_back_ahead);
    tcase_add_test(t, the_ssds_are_on_the_way);
    tcase_add_test(t, recomputation_takes_its_turn);
    tcase_add_test(t, fc2_goes_with_gelu);
    tcase_add_test(t, g10_steps_on_the_gpu);
    tcase_add_test(t, states_stay_on_the_gpu);
    tcase_add_test(t, g10_moves_14_bytes_a_parameter);
    tcase_add_test(t, gradients_that_do_not_fit_wait_on_ssds);
    tcase_add_test(t, plans_fit_or_say_so);
    tcase_add_test(t, every_plan_is_proved);
    tcase_add_test(t, bad_variables_are_named);
}

int main(void)
{
    return run_suite("policies", add);
}
