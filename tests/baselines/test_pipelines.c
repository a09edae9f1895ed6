/* The pipelines of this folder as systems, and ZeRO-3 with offloading by hand. */
#include "baselines/baselines.h"
#include "common/plan/candidate.h"
#include "tests/support/draw.h"
#include "tests/support/pipes.h"
#include "tests/support/plans.h"
#include "tests/support/scenario.h"

static struct ht_schedule *build(const struct ht_system *system, const struct ht_scenario *sc, struct ht_settings set,
                                 struct ht_plan *plan)
{
    struct ht_schedule *s = NULL;
    struct ht_error err = {0};
    ck_assert_msg(system->plan(system, sc, NULL, &set, &err, plan) == HT_OK, "%s", err.text);
    ck_assert_msg(system->build(system, sc, plan, &err, &s) == HT_OK, "%s", err.text);
    return s;
}

/* Four devices, eight blocks, eight micro-batches, T_b = 2 T_f of a stage:
       one stage each        (N_m + N_g - 1)(T_f + T_b)   = 11 x 3
       two stages each       (v N_m + N_g - 1)(T_f + T_b) = 19 x 3
   A stage of two blocks has a T_f of 2 here. */
START_TEST(orders)
{
    static const struct {
        const struct ht_system *system;
        int v; /* 0: it is no choice */
        double length;
    } cases[] = {
        {&ht_gpipe, 0, 66}, {&ht_dapple, 0, 66}, {&ht_interleaved, 2, 57}, {&ht_mobius, 2, 57}, {&ht_megatron, 2, 57}};
    for (size_t i = 0; i < HT_COUNT(cases); i++) {
        struct ht_scenario sc = pipe_scenario(4, 1, 8, 8);
        struct ht_plan plan = {0};
        struct ht_schedule *s = build(cases[i].system, &sc, (struct ht_settings){0}, &plan);
        struct ht_pipe_style y = {.d = 1};
        struct pipe_run r = pipe_run(s, &y, (struct pipe_prices){1, 2, 0, 0, 0}, 2, 2, NULL); /* of a block */
        ck_assert_int_eq(ht_plan_get(&plan, "v"), cases[i].v);
        ck_assert_int_eq(r.trace->iteration_end_ns[1], pipe_ns(2 * cases[i].length));
        pipe_run_free(&r);
        ht_plan_free(&plan);
        ht_scenario_free(&sc);
    }
}
END_TEST

/* With eight micro-batches Megatron's devices fetch 11, 19, 13 and 5 times, Mobius' 3 times each. */
START_TEST(fetches)
{
    static const int wanted[4] = {11, 19, 13, 5};
    for (int chunks = 0; chunks < 2; chunks++) {
        struct ht_scenario sc = pipe_scenario(4, 1, 8, 8);
        struct ht_plan plan = {0};
        struct ht_schedule *s = build(chunks ? &ht_megatron : &ht_mobius, &sc, (struct ht_settings){0}, &plan);
        int n[4] = {0};
        for (int32_t op = 0; op < s->n_ops; op++) n[ht_op_rank(s, op)] += s->lanes[s->ops[op].lane].kind == HT_LANE_H2D;
        for (int r = 0; r < 4; r++) ck_assert_int_eq(n[r], chunks ? wanted[r] : 3);
        ht_schedule_destroy(s);
        ht_plan_free(&plan);
        ht_scenario_free(&sc);
    }
}
END_TEST

/* Four devices with two stages of a block each, six micro-batches: without recomputation a device holds 6 x 2 blocks'
   activations at the turn, and the last one the head's of one micro-batch beside them. With it, one block's. */
START_TEST(keeps_activations)
{
    enum { MICRO_BATCHES = 6, STAGES = 2 };
    int64_t planned[2];
    for (int recompute = 0; recompute < 2; recompute++) {
        struct ht_scenario sc = pipe_scenario(4, 1, 8, MICRO_BATCHES);
        struct ht_settings forced = {.values = {{.name = "recompute", .value = recompute}}, .n = 1};
        struct ht_plan plan = {0};
        struct ht_proof v;
        struct ht_error err = {0};
        struct ht_schedule *s = build(&ht_mobius, &sc, forced, &plan);
        int64_t block = ht_unit_activation_bytes(&sc.model, 1, 1, sc.seq, sc.numerics.param);
        int64_t head = ht_unit_activation_bytes(&sc.model, 9, 1, sc.seq, sc.numerics.param);
        int n = 0;
        for (int32_t op = 0; op < s->n_ops; op++) n += s->ops[op].kind == HT_OP_RECOMPUTE;
        ck_assert_int_eq(n, recompute ? 8 * MICRO_BATCHES : 0);
        ck_assert_int_eq(ht_plan_get(&plan, "early"), recompute);
        ck_assert_msg(ht_schedule_verify(s, &err, &v) == HT_OK, "%s", err.text);
        /* Device 0 needs most when it adds the second micro-batch's gradient to the first's, without the first's
           activations. */
        int64_t held = v.spaces[0].by_class[HT_ACTIVATION] / block;
        ck_assert_int_eq(held, recompute ? 1 : MICRO_BATCHES * STAGES - 1);
        planned[recompute] = plan.planned_bytes[HT_DEVICE];
        if (recompute) ck_assert_int_eq(planned[0] - planned[1], (MICRO_BATCHES * STAGES - 1) * (block + head));
        ht_proof_free(&v);
        ht_schedule_destroy(s);
        ht_plan_free(&plan);
        ht_scenario_free(&sc);
    }
}
END_TEST

/* Mobius on two devices, one stage of six blocks each, three micro-batches: with segments of two, three inputs a micro-batch stay, and
   the activations of two blocks are there at a time, or the head's. */
START_TEST(recomputes_segments)
{
    struct ht_scenario sc = pipe_scenario(2, 1, 12, 3);
    struct ht_settings forced = {.values = {{.name = "v", .value = 1}, {.name = "segment", .value = 2}}, .n = 1};
    int64_t x = ht_unit_input_bytes(&sc.model, 1, 1, sc.seq, sc.numerics.param);
    int64_t block = ht_unit_activation_bytes(&sc.model, 1, 1, sc.seq, sc.numerics.param);
    int64_t head = ht_unit_activation_bytes(&sc.model, 13, 1, sc.seq, sc.numerics.param);
    struct ht_plan whole = {0}, plan = {0};
    struct ht_error err = {0};
    struct ht_proof v;
    ht_schedule_destroy(build(&ht_mobius, &sc, forced, &whole));
    forced.n = 2;
    struct ht_schedule *s = build(&ht_mobius, &sc, forced, &plan);
    ck_assert_msg(ht_schedule_verify(s, &err, &v) == HT_OK, "%s", err.text);
    int n = 0;
    int64_t held = 0, most = 0, inputs = 0, most_inputs = 0;
    for (int32_t op = 0; op < s->n_ops; op++) {
        n += s->ops[op].kind == HT_OP_RECOMPUTE;
        for (int64_t e = s->effects_begin[op]; e < s->effects_begin[op + 1] && ht_op_rank(s, op) == 0; e++) {
            const struct ht_tensor *t = &s->tensors[s->effects[e].tensor];
            int64_t *sum = t->class == HT_ACTIVATION ? &held : &inputs;
            if (t->class != HT_ACTIVATION && t->class != HT_CHECKPOINT) continue;
            if (s->effects[e].flags & HT_PRODUCE) *sum += t->bytes;
            if (held > most) most = held;
            if (inputs > most_inputs) most_inputs = inputs;
            if (s->effects[e].flags & HT_RELEASE) *sum -= t->bytes;
        }
    }
    ck_assert_int_eq(n, 2 * 3 * 3);
    ck_assert_int_eq(most, 2 * block);
    ck_assert_int_ge(most_inputs, 3 * 3 * x); /* and those between the blocks of a segment */
    ck_assert_int_le(most_inputs, (3 * 3 + 2) * x);
    int64_t fewer = (6 * block + head) - (2 * block > head ? 2 * block : head);
    ck_assert_int_eq(whole.planned_bytes[HT_DEVICE] - plan.planned_bytes[HT_DEVICE], fewer - 3 * 2 * x);
    ht_proof_free(&v);
    ht_schedule_destroy(s);
    ht_plan_free(&whole);
    ht_plan_free(&plan);
    ht_scenario_free(&sc);
}
END_TEST

/*
 * Recomputation block by block: lohan-30b in eight parts on a DGX A100, one micro-batch of 32 sequences. The peak is at the
 * last block's backward, with the inputs X of the 48 blocks; the head has dropped its own. Beside them are one block's
 * activations A, its scratch and its gradient G, the gradient of its output, which is as large as X, and that of its input.
 * The head's gradient is there, and with it the tied table's:
 *
 *     14 P + 2 G(49) + 2 G(0) + 2 G(48) + 48 X + 2 X + A + scratch     P: parameters of a part
 */
START_TEST(recomputes_blocks)
{
    struct ht_scenario_request r = {.model = "lohan-30b", .cluster = "dgx-a100", .batch = 32, .micro_batch = 32};
    struct ht_scenario sc = scenario_from(&r);
    struct ht_settings forced = {.values = {{.name = "tp", .value = 8}, {.name = "recompute", .value = 1}}, .n = 2};
    struct ht_plan plan = {0};
    struct ht_proof v;
    struct ht_error err = {0};
    struct ht_schedule *s = build(&ht_dapple, &sc, forced, &plan);
    struct ht_model m = ht_model_part(&sc.model, 0, 8);
    int64_t x = ht_unit_input_bytes(&m, 1, 32, 1024, HT_F16);
    int64_t block = ht_unit_activation_bytes(&m, 48, 32, 1024, HT_F16);
    int64_t scratch = ht_unit_workspace_bytes(&m, 48, 32, 1024, HT_F16, true);
    int64_t gradients = 2 * (ht_unit_params(&m, 49) + ht_unit_params(&m, 0) + ht_unit_params(&m, 48));
    ck_assert_msg(ht_schedule_verify(s, &err, &v) == HT_OK, "%s", err.text);
    ck_assert_int_eq(v.spaces[0].by_class[HT_CHECKPOINT], 48 * x);
    ck_assert_int_eq(v.spaces[0].by_class[HT_ACTIVATION], block);
    int64_t more = v.spaces[0].peak_bytes - (14 * ht_model_params(&m) + gradients + 50 * x + block + scratch);
    ck_assert_int_ge(more, 0);
    ck_assert_int_le(more, 512 * s->n_residents); /* rows are aligned */
    ht_proof_free(&v);
    ht_schedule_destroy(s);
    ht_plan_free(&plan);
    ht_scenario_free(&sc);
}
END_TEST

/*
 * ZeRO-3 with offloading, two blocks, one micro-batch; every pass 2, every copy and step 1. A fetch begins when the
 * turn before its own does:
 *
 *     h2d      P0 P1 . P2 . PH . P2 ... P1 . P0             0 1, 3, 5, 7, 11, 13
 *     compute  . F0 F1 F2 FH BH B2 B1 B0                    1 to 17
 *     d2h                        GH G2 G1 G0                the last one 17 to 18
 *     cpu                                   O0 O1 O2 OH     18 to 22
 */
/* Returns the bytes that device 0 of four needs, and the iteration's time, with --set. */
static int64_t needs(const struct ht_scenario *sc, const char *set, int64_t *ns)
{
    struct ht_profile *costs = ht_profile_modelled(sc->cluster);
    struct ht_candidate x = {0};
    struct ht_plan plan = {0};
    struct ht_error err = {0};
    ck_assert_msg(!plan_at(&ht_dapple, sc, costs, set, &err, &plan), "%s: %s", set, err.text);
    ck_assert_msg(!ht_candidate_prove(&ht_dapple, sc, &plan, &err, &x), "%s: %s", set, err.text);
    ck_assert_msg(!ht_candidate_simulate(&x, sc, costs, &err, ns), "%s: %s", set, err.text);
    int64_t bytes = x.proof.spaces[ht_space(x.schedule, HT_DEVICE, 0)].peak_bytes;
    ht_candidate_free(&x);
    ht_plan_free(&plan);
    ht_profile_destroy(costs);
    return bytes;
}

/* again= with one choice for all blocks is recompute= with it. */
START_TEST(recomputes_by_block)
{
    static const char *const alike[][2] = {
        {"again=0,0,0,0", "recompute=0"}, {"again=255,255,255,255", "recompute=1"}, {"again=4,4,4,4", "recompute=2"}};
    struct ht_scenario sc = scenario_from(
        &(struct ht_scenario_request){.model = "gpt-tiny", .cluster = "autohete-4gpu", .batch = 8, .micro_batch = 1});
    for (size_t i = 0; i < HT_COUNT(alike); i++) {
        int64_t a_ns, b_ns, a = needs(&sc, alike[i][0], &a_ns), b = needs(&sc, alike[i][1], &b_ns);
        ck_assert_msg(a == b && a_ns == b_ns, "%s: %ld bytes, %ld ns; %s: %ld, %ld", alike[i][0], (long)a, (long)a_ns,
                      alike[i][1], (long)b, (long)b_ns);
    }
    ht_scenario_free(&sc);
}
END_TEST

/* Any sub-ops of any blocks make a graph that is proved, which needs no more memory and no less time than one that drops nothing; also
   where stages end inside blocks. */
START_TEST(recomputes_any_sub_ops)
{
    static const char *const cuts[] = {"blocks=1,1,1,1", "halves=1,2,3,2", "halves=3,1,1,3"};
    struct ht_scenario sc = scenario_from(
        &(struct ht_scenario_request){.model = "gpt-tiny", .cluster = "autohete-4gpu", .batch = 8, .micro_batch = 1});
    struct draw d = {.seed = 31};
    for (int i = 0; i < 90; i++) {
        int64_t ns, least_ns;
        char set[96];
        snprintf(set, sizeof set, "%s again=0,0,0,0", cuts[i % 3]);
        int64_t most = needs(&sc, set, &least_ns);
        int masks[4]; /* the extremes now and then */
        for (int k = 0; k < 4; k++) masks[k] = below(&d, 4) ? below(&d, 256) : (1 << below(&d, 9)) - 1;
        snprintf(set, sizeof set, "%s again=%d,%d,%d,%d", cuts[i % 3], masks[0], masks[1], masks[2], masks[3]);
        int64_t bytes = needs(&sc, set, &ns);
        ck_assert_msg(bytes <= most && ns >= least_ns, "%s: %ld of %ld bytes, %ld of %ld ns", set, (long)bytes,
                      (long)most, (long)ns, (long)least_ns);
    }
    ht_scenario_free(&sc);
}
END_TEST

START_TEST(refuses_blocks)
{
    static const struct {
        const char *set, *says;
    } cases[] = {{"again=1,1", "again has 2 elements; expected 4, one a block"},
                 {"again=1,1,1,1 c=1", "again is set beside c; expected one of them"},
                 {"again=0,0,0,0 recompute=1", "again is set beside recompute; expected one of them"},
                 {"again=0,0,0,256", "256"},
                 {"crossing=2,2", "crossing has 2 elements; expected 3, one a boundary between stages"},
                 {"crossing=2,2,0", "crossing"},
                 {"host=1,1", "host has 2 elements; expected 4, one a stage"},
                 {"host=1,1,2,1", "host has 2 blocks of stage 2; expected at most its 1"},
                 {"halves=2,2,2,2 host=1,1,1,1", "host is set beside halves; expected blocks of each stage"},
                 {"host=1,-1,0,0", "host"},
                 {"replicas=1,2", "replicas of stages add up to 3 devices; expected the 4 of pipeline 0"},
                 {"replicas=1,2,1 pipelines=2,2", "replicas is set beside pipelines; expected one of them"},
                 {"replicas=1,2,1 zero=1", "replicas is set beside zero; expected one of them"},
                 {"replicas=1,2,1 order=1", "replicas is set beside order; expected one of them"},
                 {"replicas=1,1 tp=2 sequence=1", "replicas is set beside sequence; expected one of them"},
                 {"replicas=1,2,1 widths=1,2", "replicas has 3 elements and widths 2; expected as many, one a stage"},
                 {"replicas=2,2 tp=2", "replicas of stages add up to 8 devices; expected the 4 of pipeline 0"},
                 {"replicas=1,1,1,1 blocks=2,2", "blocks has 2 elements; expected 4, one a stage"},
                 {"replicas=1,2,1", "the 2 replicas of a stage do not divide the 1 sequence of a micro-batch"},
                 {"replicas=1,0,3", "replicas"}};
    struct ht_scenario sc = scenario_from(
        &(struct ht_scenario_request){.model = "gpt-tiny", .cluster = "autohete-4gpu", .batch = 8, .micro_batch = 1});
    for (size_t i = 0; i < HT_COUNT(cases); i++) {
        struct ht_plan plan = {0};
        struct ht_error err = {0};
        ck_assert_int_eq(plan_with(&ht_dapple, &sc, cases[i].set, &err, &plan), HT_BAD_INPUT);
        ck_assert_msg(strstr(err.text, cases[i].says), "'%s' lacks '%s'", err.text, cases[i].says);
        ht_plan_free(&plan);
    }
    struct ht_plan plan = {0};
    struct ht_error err = {0};
    ck_assert_int_eq(plan_with(&ht_interleaved, &sc, "posts=1", &err, &plan), HT_BAD_INPUT);
    ck_assert_str_eq(err.text, "posts is 1 where no pass waits for a send; expected 0");
    ht_plan_free(&plan);
    plan = (struct ht_plan){0};
    ck_assert_int_eq(plan_with(&ht_interleaved, &sc, "replicas=1,2,1", &err, &plan), HT_BAD_INPUT);
    ck_assert_msg(strstr(err.text, "interleaved has no variable 'replicas'"), "%s", err.text);
    ht_plan_free(&plan);
    ht_scenario_free(&sc);
}
END_TEST

/* Sets the costs of the ops, copies 2 and others 1, and lets no op wait for a resource. */
static int64_t *price_copies(struct ht_schedule *s)
{
    int64_t *cost_ns = HT_NEW_ARRAY(int64_t, s->n_ops);
    for (int64_t u = 0; u < s->uses_begin[s->n_ops]; u++) s->uses[u].amount = 0;
    for (int32_t op = 0; op < s->n_ops; op++)
        cost_ns[op] = pipe_ns(s->lanes[s->ops[op].lane].kind == HT_LANE_COMPUTE ? 1 : 2);
    return cost_ns;
}

/*
 * One stage of two blocks, whose states are both in host memory; the copies take 2, the rest 1. The next iteration begins when U0
 * has ended, and ends 18 later:
 *
 *     h2d                                    S2 S2       S1 S1          8 to 10, 13 to 15
 *     compute  F0 F1 F2 FH BH B2 B1 B0       UH    U2          U1 U0    0 to 8, 8, 10, 15, 16
 *     d2h                                          s2 s2       s1 s1    11 to 13, 16 to 18
 */
START_TEST(steps_states_from_host)
{
    struct ht_scenario sc = pipe_scenario(1, 1, 2, 1);
    int64_t two = 2;
    struct ht_settings forced = {.values = {{.name = "host", .kind = HT_VARIABLE_LIST, .n = 1, .values = &two}},
                                 .n = 1};
    struct ht_plan plan = {0};
    struct ht_error err = {0};
    struct ht_sim_options options = {.iterations = 2};
    struct ht_trace *trace = NULL;
    struct ht_schedule *s = build(&ht_dapple, &sc, forced, &plan);
    int64_t *cost_ns = price_copies(s);
    ck_assert_msg(ht_schedule_verify(s, &err, NULL) == HT_OK, "%s", err.text);
    ck_assert_msg(ht_sim_run(s, cost_ns, &options, &err, &trace) == HT_OK, "%s", err.text);
    ck_assert_int_eq(trace->iteration_end_ns[0], pipe_ns(18));
    ck_assert_int_eq(trace->iteration_end_ns[1], pipe_ns(17 + 18));
    ht_trace_destroy(trace);
    free(cost_ns);
    ht_schedule_destroy(s);
    ht_plan_free(&plan);
    ht_scenario_free(&sc);
}
END_TEST

/* Returns the bytes that an iteration copies into a tier. */
static int64_t copied_bytes(const struct ht_schedule *s, enum ht_lane_kind kind)
{
    int64_t bytes = 0;
    for (int32_t op = 0; op < s->n_ops; op++)
        if (s->lanes[s->ops[op].lane].kind == kind) bytes += s->works[s->ops[op].work].bytes;
    return bytes;
}

/* In FP16 each block in host memory moves W, M and V there and back, 12 bytes a parameter, with ZeRO as without: its two
   pipelines have half a block each. What stays on the devices is less by as much. */
START_TEST(moves_states_once)
{
    static const char *const shapes[] = {"pipelines=2,2 zero=1 blocks=2,2", "pipelines=2,2 zero=2 blocks=1,3",
                                         "tp=2 blocks=2,2", "pipelines=2,2 blocks=2,2"};
    struct ht_scenario sc = scenario_from(&(struct ht_scenario_request){
        .model = "llama-tiny", .cluster = "autohete-4gpu", .batch = 8, .micro_batch = 1, .numerics = "fp16"});
    for (size_t i = 0; i < HT_COUNT(shapes); i++)
        for (int n = 0; n < 4; n++) {
            int h[2] = {n / 2, n % 2 + (n == 3)};
            bool whole = i == 3;
            char set[96];
            snprintf(set, sizeof set, "%s host=%d,%d", shapes[i], h[0], h[1]);
            struct ht_plan plan = {0};
            struct ht_schedule *s = NULL;
            struct ht_error err = {0};
            ck_assert_msg(!plan_with(&ht_dapple, &sc, set, &err, &plan), "%s: %s", set, err.text);
            ck_assert_msg(!ht_dapple.build(&ht_dapple, &sc, &plan, &err, &s), "%s: %s", set, err.text);
            ck_assert_msg(!ht_schedule_verify(s, &err, NULL), "%s: %s", set, err.text);
            int64_t bytes = (whole ? 2 : 1) * (h[0] + h[1]) * 12 * ht_unit_params(&sc.model, 1);
            int64_t in = copied_bytes(s, HT_LANE_H2D), out = copied_bytes(s, HT_LANE_D2H);
            ck_assert_msg(in == out, "%s: %ld bytes to the devices, %ld from them", set, (long)in, (long)out);
            /* the parts of a stage share matrices, and each has its norms */
            ck_assert_msg(i == 2 ? in >= bytes && in <= bytes + bytes / 100 : in == bytes, "%s: %ld bytes, for %ld",
                          set, (long)in, (long)bytes);
            ht_schedule_destroy(s);
            ht_plan_free(&plan);
        }
    ht_scenario_free(&sc);
}
END_TEST

/* Eight micro-batches cross three boundaries, each way: messages cost as much as 5, 1 and 2 tensors. The graph and its memory
   are the same. */
START_TEST(charges_what_crosses)
{
    struct ht_scenario sc = scenario_from(
        &(struct ht_scenario_request){.model = "gpt-tiny", .cluster = "autohete-4gpu", .batch = 8, .micro_batch = 1});
    static const char *const sets[] = {"recompute=0", "crossing=1,1,1", "crossing=5,1,2", "tp=2 slices=1",
                                       "tp=2 slices=1 crossing=3"};
    static const int boundaries[] = {3, 3, 8, 1, 3};
    int64_t x = ht_unit_input_bytes(&sc.model, 1, 1, sc.seq, sc.numerics.param), ns[HT_COUNT(sets)];
    for (size_t i = 0; i < HT_COUNT(sets); i++) {
        struct ht_plan plan = {0};
        struct ht_schedule *s = NULL;
        struct ht_error err = {0};
        int64_t sent = 0;
        ck_assert_msg(!plan_with(&ht_dapple, &sc, sets[i], &err, &plan), "%s: %s", sets[i], err.text);
        ck_assert_msg(!ht_dapple.build(&ht_dapple, &sc, &plan, &err, &s), "%s: %s", sets[i], err.text);
        for (int32_t op = 0; op < s->n_ops; op++)
            if (s->ops[op].kind == HT_OP_SEND) sent += s->works[s->ops[op].work].bytes;
        ck_assert_msg(sent == 8 * 2 * boundaries[i] * x, "%s: %ld bytes sent", sets[i], (long)sent);
        ht_schedule_destroy(s);
        ht_plan_free(&plan);
        int64_t bytes = needs(&sc, sets[i], &ns[i]);
        ck_assert_int_eq(bytes, i < 3 ? needs(&sc, sets[0], &ns[0]) : needs(&sc, sets[3], &ns[3]));
    }
    ck_assert(ns[1] == ns[0] && ns[2] > ns[1] && ns[4] > ns[3]);
    ht_scenario_free(&sc);
}
END_TEST

/* The shares of eight micro-batches of two sequences cross two boundaries, each way, for the cost of 5 and 2 whole tensors; each
   stage keeps the states of as many blocks in host memory on each of its replicas. */
START_TEST(charges_replicas)
{
    struct ht_scenario sc = scenario_from(&(struct ht_scenario_request){
        .model = "gpt-tiny", .cluster = "autohete-4gpu", .batch = 16, .micro_batch = 2, .numerics = "fp16"});
    static const char *const sets[] = {"replicas=1,2,1 blocks=1,2,1",
                                       "replicas=1,2,1 blocks=1,2,1 crossing=5,2 host=1,2,0"};
    int64_t x = ht_unit_input_bytes(&sc.model, 1, 2, sc.seq, sc.numerics.param);
    for (int i = 0; i < 2; i++) {
        struct ht_plan plan = {0};
        struct ht_schedule *s = NULL;
        struct ht_error err = {0};
        int64_t sent = 0;
        ck_assert_msg(!plan_with(&ht_dapple, &sc, sets[i], &err, &plan), "%s: %s", sets[i], err.text);
        ck_assert_msg(!ht_dapple.build(&ht_dapple, &sc, &plan, &err, &s), "%s: %s", sets[i], err.text);
        ck_assert_msg(!ht_schedule_verify(s, &err, NULL), "%s: %s", sets[i], err.text);
        for (int32_t op = 0; op < s->n_ops; op++)
            if (s->ops[op].kind == HT_OP_SEND) sent += s->works[s->ops[op].work].bytes;
        ck_assert_int_eq(sent, 8 * 2 * x * (i ? 5 + 2 : 2));
        ck_assert_int_eq(copied_bytes(s, HT_LANE_H2D), i ? (1 + 2 * 2) * 12 * ht_unit_params(&sc.model, 1) : 0);
        ht_schedule_destroy(s);
        ht_plan_free(&plan);
    }
    ht_scenario_free(&sc);
}
END_TEST

/* Over NVLink a message waits for no pass, unless receives are posted between passes: then each does whose receiver has begun one. */
START_TEST(posts_receives)
{
    struct ht_scenario sc = scenario_from(
        &(struct ht_scenario_request){.model = "gpt-tiny", .cluster = "autohete-4gpu", .batch = 8, .micro_batch = 1});
    int64_t ns[2];
    for (int posts = 0; posts < 2; posts++) {
        struct ht_plan plan = {0};
        struct ht_schedule *s = NULL;
        struct ht_error err = {0};
        char set[16];
        int n = 0;
        snprintf(set, sizeof set, "posts=%d", posts);
        needs(&sc, set, &ns[posts]);
        ck_assert_msg(!plan_with(&ht_dapple, &sc, set, &err, &plan), "%s", err.text);
        ck_assert_msg(!ht_dapple.build(&ht_dapple, &sc, &plan, &err, &s), "%s", err.text);
        for (int32_t op = 0; op < s->n_ops; op++)
            for (int64_t d = s->deps_begin[op]; d < s->deps_begin[op + 1] && s->ops[op].kind == HT_OP_RECEIVE; d++) {
                int32_t before = s->deps[d];
                n +=
                    s->lanes[s->ops[before].lane].kind == HT_LANE_COMPUTE && ht_op_rank(s, before) == ht_op_rank(s, op);
            }
        /* 8 micro-batches over 3 boundaries, each way; the first X finds stages 1 to 3 without a pass */
        ck_assert_int_eq(n, posts ? 2 * 8 * 3 - 3 : 0);
        ht_schedule_destroy(s);
        ht_plan_free(&plan);
    }
    ck_assert_int_gt(ns[1], ns[0]);
    ht_scenario_free(&sc);
}
END_TEST

START_TEST(zero3_offload)
{
    struct ht_scenario sc = pipe_scenario(1, 1, 2, 1);
    struct ht_plan plan = {0};
    struct ht_schedule *s = build(&ht_zero3_offload, &sc, (struct ht_settings){0}, &plan);
    int64_t *cost_ns = HT_NEW_ARRAY(int64_t, s->n_ops);
    struct ht_error err = {0};
    struct ht_sim_options options = {.iterations = 2};
    struct ht_proof v;
    struct ht_trace *trace = NULL;
    ck_assert_msg(ht_schedule_verify(s, &err, &v) == HT_OK, "%s", err.text);
    for (int64_t u = 0; u < s->uses_begin[s->n_ops]; u++) s->uses[u].amount = 0;
    for (int32_t op = 0; op < s->n_ops; op++)
        cost_ns[op] = pipe_ns(s->lanes[s->ops[op].lane].kind == HT_LANE_COMPUTE ? 2 : 1);
    ck_assert_msg(ht_sim_run(s, cost_ns, &options, &err, &trace) == HT_OK, "%s", err.text);
    ck_assert_int_eq(trace->iteration_end_ns[0], pipe_ns(22));
    ck_assert_int_eq(trace->iteration_end_ns[1], pipe_ns(44));
    /* nothing rests on the device; the host's 16 bytes a parameter are what the plan says */
    int64_t params = ht_model_params(&sc.model);
    for (int32_t r = 0; r < s->n_residents; r++) ck_assert_int_eq(s->residents[r].tier, HT_HOST);
    ck_assert_int_eq(plan.planned_bytes[HT_HOST], 16 * params);
    ck_assert_int_le(v.spaces[s->n_ranks].peak_bytes - 16 * params, 512 * s->n_residents);
    ht_trace_destroy(trace);
    ht_proof_free(&v);
    free(cost_ns);
    ht_schedule_destroy(s);
    ht_plan_free(&plan);
    ht_scenario_free(&sc);
}
END_TEST

int main(void)
{
    TCase *tc = tcase_create("pipelines");
    tcase_add_test(tc, orders);
    tcase_add_test(tc, fetches);
    tcase_add_test(tc, keeps_activations);
    tcase_add_test(tc, recomputes_segments);
    tcase_add_test(tc, recomputes_blocks);
    tcase_add_test(tc, recomputes_by_block);
    tcase_add_test(tc, recomputes_any_sub_ops);
    tcase_add_test(tc, refuses_blocks);
    tcase_add_test(tc, steps_states_from_host);
    tcase_add_test(tc, moves_states_once);
    tcase_add_test(tc, charges_what_crosses);
    tcase_add_test(tc, charges_replicas);
    tcase_add_test(tc, posts_receives);
    tcase_add_test(tc, zero3_offload);
    return pipe_main("pipelines as systems", tc);
}
