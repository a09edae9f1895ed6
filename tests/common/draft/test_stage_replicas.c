/* Pipelines whose stages have replicas of their own: proved and simulated in the proved memory; members, boundaries, passes
   and the order of sums by hand; graphs that are broken. */
#include "common/base/rng.h"
#include "common/schedule/residency.h"
#include "tests/common/draft/pipelines.h"
#include "tests/support/pipes.h"
#include "tests/support/proved.h"

/* Three stages: replicas, and parts of each. */
struct stages {
    int64_t replicas[3], widths[3];
};

static int64_t ranks_of(const struct stages *x)
{
    int64_t n = 0;
    for (int q = 0; q < 3; q++) n += x->replicas[q] * x->widths[q];
    return n;
}

static int64_t most_replicas(const struct stages *x)
{
    int64_t most = 1;
    for (int q = 0; q < 3; q++) most = x->replicas[q] > most ? x->replicas[q] : most;
    return most;
}

/* Returns a scenario of so many micro-batches, each of which the stage of most replicas cuts into single sequences. */
static struct ht_scenario scenario_of_stages(const struct stages *x, int64_t micro_batches)
{
    struct ht_scenario sc = pipe_scenario(ranks_of(x), 1, 4, micro_batches);
    sc.micro_batch = most_replicas(x);
    sc.batch = micro_batches * sc.micro_batch;
    sc.model.kv_heads = 4;
    return sc;
}

static struct ht_layout *layout_of_stages(const struct ht_scenario *sc, const struct stages *x)
{
    struct ht_layout *layout = NULL;
    struct ht_error err = {0};
    int64_t ranks = ranks_of(x), l = ht_scenario_micro_batches(sc);
    ck_assert_msg(ht_layout_pipelines(sc, 1, &ranks, &l, 1, &err, &layout) == HT_OK, "%s", err.text);
    ck_assert_msg(ht_layout_replicate(layout, sc, 3, x->widths, x->replicas, &err) == HT_OK, "%s", err.text);
    return layout;
}

/* Finds the stage, the replica and the part of a rank. Ranks go stage by stage, replica by replica, part by part. */
static void find_rank(const struct stages *x, int64_t rank, int64_t *stage, int64_t *replica, int64_t *part)
{
    for (*stage = 0; rank >= x->replicas[*stage] * x->widths[*stage]; ++*stage)
        rank -= x->replicas[*stage] * x->widths[*stage];
    *replica = rank / x->widths[*stage];
    *part = rank % x->widths[*stage];
}

/* Each rank passes those of a micro-batch's shares that its replica has, on as many ranks as there are parts; a gradient is added up
   over the replicas that have its part. */
static void check_replicas(const struct ht_schedule *s, const struct stages *x)
{
    int64_t most = most_replicas(x), stage, replica, part, all;
    for (int32_t op = 0; op < s->n_ops; op++) {
        int kind = s->ops[op].kind;
        const struct ht_label *l = &s->ops[op].label;
        find_rank(x, ht_op_rank(s, op), &stage, &replica, &part);
        all = x->replicas[stage];
        if (kind == HT_OP_FORWARD || kind == HT_OP_RECOMPUTE || kind == HT_OP_BACKWARD) {
            ck_assert_int_eq(l->micro_batch % most / (most / all), replica);
            ck_assert_int_eq(ht_group_end(s, op) - ht_group_begin(s, op), x->widths[stage]);
            ck_assert_int_eq(op - ht_group_begin(s, op), part);
        }
        if (kind != HT_OP_ALL_REDUCE || l->unit < 0) continue;
        ck_assert_int_eq(ht_group_end(s, op) - ht_group_begin(s, op), all);
        ck_assert_int_eq(op - ht_group_begin(s, op), replica);
        for (int32_t k = ht_group_begin(s, op); k < op; k++)
            ck_assert_int_eq((ht_op_rank(s, op) - ht_op_rank(s, k)) % x->widths[stage], 0);
    }
}

START_TEST(replicas_of_stages)
{
    static const enum ht_control_mode controls[] = {HT_CONTROL_NONE, HT_CONTROL_GATE, HT_CONTROL_ROLLBACK};
    static const struct stages shapes[] = {
        {{1, 2, 1}, {1, 1, 1}}, {{2, 1, 1}, {1, 1, 1}}, {{1, 1, 2}, {1, 1, 1}}, {{1, 4, 2}, {1, 1, 1}},
        {{2, 2, 2}, {1, 1, 1}}, {{1, 2, 1}, {1, 2, 1}}, {{2, 1, 2}, {1, 2, 1}}, {{1, 2, 4}, {2, 2, 1}},
        {{4, 1, 2}, {1, 4, 2}}, {{2, 1, 1}, {2, 4, 1}}, {{1, 2, 1}, {4, 1, 2}},
    };
    static const int64_t halves[][3] = {{3, 2, 3}, {3, 3, 2}, {2, 1, 5}, {3, 1, 4}};
    for (uint64_t seed = 0; seed < 176; seed++) {
        const struct stages *x = &shapes[seed % HT_COUNT(shapes)];
        struct ht_scenario sc = scenario_of_stages(x, 1 + (int64_t)(seed / 11 % 3));
        struct ht_error err = {0};
        sc.control.mode = controls[seed % 3];
        sc.model.tied = x->widths[0] == x->widths[2] && x->replicas[0] == x->replicas[2] && seed & 1;
        sc.model.dropout = seed & 64;
        bool cut = seed & 32;
        struct ht_layout *layout = layout_of_stages(&sc, x);
        struct ht_pipe_style y = {.order = seed & 2 ? HT_PIPE_AFAB : HT_PIPE_1F1B,
                                  .v = 1,
                                  .d = 1,
                                  .layout = layout,
                                  .halves = cut,
                                  .blocks = cut ? halves[seed % HT_COUNT(halves)] : NULL,
                                  .n_blocks = cut ? 3 : 0,
                                  .recompute = seed & 8,
                                  .segment = seed & 8 ? (int32_t)(seed % 3) : 0,
                                  .blocking_sends = seed & 16,
                                  .slices = seed & 4};
        ck_assert_msg(ht_pipe_lay_out(&sc, &y, layout, &err) == HT_OK, "%s", err.text);
        ck_assert_msg(ht_pipe_check(&sc, &y, &err) == HT_OK, "%s", err.text);
        struct ht_schedule *s = pipe_build(&sc, &y);
        struct ht_profile *costs = ht_profile_modelled(sc.cluster);
        if (!sc.model.tied) check_replicas(s, x); /* the table's has both stages */
        runs_in_proved_memory(s, costs, seed, 1);
        ht_profile_destroy(costs);
        ht_schedule_destroy(s);
        ht_layout_destroy(layout);
        ht_scenario_free(&sc);
    }
}
END_TEST

/* Between n parts of 2 replicas and m parts of 1, rows may come from a draft that has them from another one itself. */
START_TEST(replicas_of_unlike_widths)
{
    static const struct stages x = {{2, 2, 1}, {3, 2, 4}};
    struct ht_scenario sc = scenario_of_stages(&x, 2);
    sc.model.heads = sc.model.kv_heads = 12;
    sc.model.width = 96;
    sc.model.ffn = 192;
    struct ht_layout *layout = layout_of_stages(&sc, &x);
    struct ht_pipe_style y = {.order = HT_PIPE_1F1B, .v = 1, .d = 1, .layout = layout};
    struct ht_schedule *s = pipe_build(&sc, &y);
    struct ht_profile *costs = ht_profile_modelled(sc.cluster);
    check_replicas(s, &x);
    runs_in_proved_memory(s, costs, 1, 1);
    ht_profile_destroy(costs);
    ht_schedule_destroy(s);
    ht_layout_destroy(layout);
    ht_scenario_free(&sc);
}
END_TEST

/* One micro-batch, whose shares are X = 16 x 64 numbers of 16 bits each. Every share crosses each boundary once each way, whole for each
   part of the receiving stage. So of n replicas and n' of the next stage a rank sends 1/n of all shares, and receives 1/n' of them. */
START_TEST(boundaries_of_replicas)
{
    static const struct stages shapes[] = {
        {{1, 2, 1}, {1, 1, 1}}, {{2, 1, 4}, {1, 1, 1}}, {{4, 4, 1}, {1, 1, 1}}, {{1, 2, 1}, {1, 2, 2}}};
    for (size_t i = 0; i < HT_COUNT(shapes); i++) {
        const struct stages *x = &shapes[i];
        struct ht_scenario sc = scenario_of_stages(x, 1);
        struct ht_layout *layout = layout_of_stages(&sc, x);
        struct ht_pipe_style y = {.order = HT_PIPE_1F1B, .v = 1, .d = 1, .layout = layout};
        struct ht_schedule *s = pipe_build(&sc, &y);
        int64_t received[2][16] = {{0}}, most = most_replicas(x), each = 16 * sc.model.width * 2, stage, replica, part;
        for (int32_t op = 0; op < s->n_ops; op++) {
            if (s->ops[op].kind != HT_OP_RECEIVE) continue;
            bool gradient = s->tensors[s->effects[s->effects_begin[op]].tensor].class == HT_ACT_GRAD;
            received[gradient][ht_op_rank(s, op)] += s->works[s->ops[op].work].bytes;
        }
        for (int64_t r = 0; r < ranks_of(x); r++) {
            find_rank(x, r, &stage, &replica, &part);
            int64_t all = most / x->replicas[stage] * each;
            ck_assert_int_eq(received[0][r], stage > 0 ? all : 0);
            ck_assert_int_eq(received[1][r], stage < 2 ? all : 0);
        }
        ht_schedule_destroy(s);
        ht_layout_destroy(layout);
        ht_scenario_free(&sc);
    }
}
END_TEST

/*
 * Stages of 1, 2 and 1 replicas, a block each; T_f = 1 and T_b = 2 for a share. A pass begins when all its shares have come, and sends
 * them when all are made. One micro-batch, and two:
 *
 *     stage 0             f 0 to 2    b 11 to 15        f 0 to 2, 2 to 4    b 13 to 17, 17 to 21
 *     stage 1, each       f 2 to 3    b  9 to 11        f 2 to 3, 4 to 5    b 11 to 13, 15 to 17
 *     stage 2             f 3 to 5    b  5 to  9        f 3 to 5, 5 to 7    b  7 to 11, 11 to 15
 */
START_TEST(passes_of_replicas)
{
    static const struct stages x = {{1, 2, 1}, {1, 1, 1}};
    static const double ends[] = {15, 21};
    for (int64_t l = 1; l <= 2; l++) {
        struct ht_scenario sc = scenario_of_stages(&x, l);
        sc.model.layers = 3;
        struct ht_layout *layout = layout_of_stages(&sc, &x);
        struct ht_pipe_style y = pipe_gpipe;
        y.layout = layout;
        struct pipe_run r =
            pipe_run(pipe_build(&sc, &y), &y, (struct pipe_prices){.forward = 1, .backward = 2}, 1, 0, NULL);
        ck_assert_double_eq_tol(pipe_gpu_time(&r), ends[l - 1], 1e-9);
        pipe_run_free(&r);
        ht_layout_destroy(layout);
        ht_scenario_free(&sc);
    }
}
END_TEST

START_TEST(replicas_that_do_not_fit)
{
    static const struct {
        struct stages stages;
        int64_t ranks, micro_batch;
        bool tied;
        enum ht_status status;
        const char *says;
    } cases[] = {
        {{{1, 2, 1}, {1, 1, 1}},
         5,
         2,
         false,
         HT_BAD_INPUT,
         "replicas of stages add up to 4 devices; expected the 5 of pipeline 0"},
        {{{1, 2, 1}, {1, 3, 1}},
         8,
         2,
         false,
         HT_BAD_INPUT,
         "width 3 of stage 1 does not divide the 4 heads of llama-tiny"},
        {{{2, 3, 1}, {1, 1, 1}},
         6,
         6,
         false,
         HT_BAD_INPUT,
         "stage 0 has 2 replicas and another stage 3; expected numbers that divide the largest"},
        {{{1, 2, 1}, {1, 1, 1}},
         4,
         3,
         false,
         HT_BAD_INPUT,
         "the 2 replicas of a stage do not divide the 3 sequences of a micro-batch"},
        {{{1, 1, 2}, {1, 1, 1}},
         4,
         2,
         true,
         HT_INFEASIBLE,
         "llama-tiny ties its head to the token table, and the first stage has 1 replica, the last one 2: expected as "
         "many, or an untied model"},
    };
    for (size_t i = 0; i < HT_COUNT(cases); i++) {
        struct ht_scenario sc = pipe_scenario(cases[i].ranks, 1, 4, 1);
        struct ht_layout *layout = NULL;
        struct ht_error err = {0};
        int64_t l = 1;
        sc.micro_batch = sc.batch = cases[i].micro_batch;
        sc.model.tied = cases[i].tied;
        ck_assert_int_eq(ht_layout_pipelines(&sc, 1, &cases[i].ranks, &l, 1, &err, &layout), HT_OK);
        ck_assert_int_eq(ht_layout_replicate(layout, &sc, 3, cases[i].stages.widths, cases[i].stages.replicas, &err),
                         cases[i].status);
        ck_assert_str_eq(err.text, cases[i].says);
        ht_layout_destroy(layout);
        ht_scenario_free(&sc);
    }
}
END_TEST

/* Returns the nth op of a kind about a unit, which must exist. */
static int32_t op_of(const struct ht_schedule *s, enum ht_op_kind kind, int32_t unit, int32_t n)
{
    for (int32_t op = 0; op < s->n_ops; op++)
        if (s->ops[op].kind == kind && s->ops[op].label.unit == unit && n-- == 0) return op;
    ck_abort_msg("no such op");
}

/* Returns the lane of a rank that has the name of another lane. */
static int32_t lane_like(const struct ht_schedule *s, int32_t lane, int32_t rank)
{
    for (int32_t l = 0; l < s->n_lanes; l++)
        if (s->lanes[l].rank == rank && !strcmp(s->lanes[l].name, s->lanes[lane].name)) return l;
    ck_abort_msg("no such lane");
}

/* Stages of 1, 2 and 1 replicas, one micro-batch of two shares; block 1 is cut between the first two. Ranks 1 and 2 are the replicas of
   stage 1, whose first unit is 3. Each case breaks something that only such stages have. */
START_TEST(broken_replicas)
{
    static const struct stages x = {{1, 2, 1}, {1, 1, 1}};
    static const int64_t halves[] = {3, 3, 2};
    static const char *const texts[] = {
        "",
        "is the second forward of unit 3, micro-batch 0", /* both pass the first share */
        "on device 2, which does not hold it",            /* its input goes to the other replica */
        "on device 1, which does not hold it",            /* or what it leaves comes from there */
        "gradients of 1 backward passes; expected 2",     /* replica 1 keeps its own gradient */
        "communicator of 2 ranks in a group of 1",        /* which is all that it joins */
        "do not tile it",                                 /* a replica lacks some states */
        "copies; another class has"};
    for (size_t i = 0; i < HT_COUNT(texts); i++) {
        struct ht_scenario sc = scenario_of_stages(&x, 1);
        struct ht_error err = {0};
        struct ht_layout *layout = layout_of_stages(&sc, &x);
        struct ht_pipe_style y = {.order = HT_PIPE_1F1B,
                                  .v = 1,
                                  .d = 1,
                                  .layout = layout,
                                  .halves = true,
                                  .blocks = halves,
                                  .n_blocks = HT_COUNT(halves)};
        ck_assert_msg(ht_pipe_lay_out(&sc, &y, layout, &err) == HT_OK, "%s", err.text);
        struct ht_schedule *s = pipe_build(&sc, &y);
        int32_t second = op_of(s, HT_OP_FORWARD, 3, 1), reduces = op_of(s, HT_OP_ALL_REDUCE, 3, 1);
        ck_assert_int_eq(s->ops[second].label.micro_batch, 1);
        ck_assert_int_eq(ht_op_rank(s, second), 2);
        if (i == 1) s->ops[second].label.micro_batch = 0;
        if (i == 2) {
            int32_t receive = op_of(s, HT_OP_RECEIVE, 2, 1);
            s->ops[receive].lane = lane_like(s, s->ops[receive].lane, 1);
        }
        if (i == 3) {
            int32_t send = op_of(s, HT_OP_SEND, 4, 1);
            s->ops[send].lane = lane_like(s, s->ops[send].lane, 1);
        }
        if (i == 4) s->effects[s->effects_begin[reduces]].flags = HT_NEED;
        if (i == 5) s->ops[reduces].match = 100000;
        if (i == 6) of_mlp(s, HT_MOMENTUM, 1)->shard_begin += 8;
        if (i == 7) of_mlp(s, HT_VARIANCE, 1)->shard_end = of_mlp(s, HT_VARIANCE, 1)->shard_begin;
        ck_assert_msg(ht_schedule_verify(s, &err, NULL) == (i ? HT_FAILED : HT_OK), "case %zu: %s", i, err.text);
        if (i) ck_assert_msg(strstr(err.text, texts[i]) != NULL, "case %zu: %s", i, err.text);
        ht_schedule_destroy(s);
        ht_layout_destroy(layout);
        ht_scenario_free(&sc);
    }
}
END_TEST

/* Builds stages of a model of six blocks in FP32, or of twelve halves. */
static struct ht_schedule *build_stages(const struct stages *x, struct ht_scenario *sc, const int64_t *halves)
{
    struct ht_error err = {0};
    sc->model.layers = 6;
    sc->numerics = (struct ht_numerics){HT_F32, HT_F32, HT_F32, HT_F32};
    sc->model.kv_heads = 2;
    struct ht_layout *layout = layout_of_stages(sc, x);
    struct ht_pipe_style y = {.order = HT_PIPE_1F1B,
                              .v = 1,
                              .d = 1,
                              .layout = layout,
                              .halves = halves != NULL,
                              .blocks = halves,
                              .n_blocks = halves ? 3 : 0};
    ck_assert_msg(ht_pipe_lay_out(sc, &y, layout, &err) == HT_OK, "%s", err.text);
    struct ht_schedule *s = pipe_build(sc, &y);
    ht_layout_destroy(layout);
    return s;
}

/* A micro-batch of two shares: its gradients are added up as those of two micro-batches of one device, on a stage of one replica and of
   two, and in the halves of blocks that are cut between the two. Those of two micro-batches are not: (g0 + g2) + (g1 + g3), which is
   another order in one half of a cut block than in both. */
START_TEST(orders_of_replicas)
{
    static const struct stages shapes[] = {{{1, 2, 1}, {1, 1, 1}}, {{2, 1, 2}, {1, 1, 1}}, {{4, 1, 4}, {1, 1, 1}}};
    static const int64_t halves[] = {5, 2, 5};
    for (size_t i = 0; i < HT_COUNT(shapes); i++)
        for (int64_t l = 1; l <= 2; l++) {
            struct ht_scenario sc = scenario_of_stages(&shapes[i], l);
            struct ht_schedule *whole = build_stages(&shapes[i], &sc, NULL),
                               *cut = build_stages(&shapes[i], &sc, halves);
            uint64_t one = sum_order_of_one(false, HT_PIPE_1F1B, 1, sc.batch),
                     of_whole = ht_schedule_sum_order(whole, &sc.model, &sc.numerics, sc.batch),
                     of_cut = ht_schedule_sum_order(cut, &sc.model, &sc.numerics, sc.batch);
            ck_assert_int_eq(of_whole == one, l == 1);
            ck_assert_int_eq(of_cut == one, l == 1);
            ck_assert_int_eq(of_cut == of_whole, l == 1);
            ht_schedule_destroy(whole);
            ht_schedule_destroy(cut);
            ht_scenario_free(&sc);
        }
}
END_TEST

/* The norm of a cut block goes through its front and then its back. With replicas in one of them each half has all its parts one after
   another, else each part has its halves: the same for one part. */
START_TEST(norms_of_replicas)
{
    static const int64_t halves[] = {5, 2, 5};
    for (int64_t parts = 1; parts <= 2; parts++) {
        uint64_t orders[2];
        for (int64_t replicas = 1; replicas <= 2; replicas++) {
            struct stages x = {{1, replicas, 1}, {parts, parts, parts}};
            struct ht_scenario sc = scenario_of_stages(&x, 1);
            sc.control.mode = HT_CONTROL_GATE;
            struct ht_schedule *s = build_stages(&x, &sc, halves);
            orders[replicas - 1] = ht_schedule_norm_order(s);
            ht_schedule_destroy(s);
            ht_scenario_free(&sc);
        }
        ck_assert_int_eq(orders[0] == orders[1], parts == 1);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("stage replicas");
    TCase *t = tcase_create("stage replicas");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, replicas_of_stages);
    tcase_add_test(t, replicas_of_unlike_widths);
    tcase_add_test(t, boundaries_of_replicas);
    tcase_add_test(t, passes_of_replicas);
    tcase_add_test(t, replicas_that_do_not_fit);
    tcase_add_test(t, broken_replicas);
    tcase_add_test(t, orders_of_replicas);
    tcase_add_test(t, norms_of_replicas);
    suite_add_tcase(suite, t);
    SRunner *r = srunner_create(suite);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
