/*
 * Forward and backward of one stage on different GPUs (SysX): the pipelines of Fig. 5 and Fig. 8.
 */
#include "tests/common/exec/fixtures_sysx.h"

/* ---- the figures ----------------------------------------------------------------------------------------------- */

// clang-format off
static const struct shape fig5_plain     = {"fig5_plain",   2, 2, 1, 1, false, false, true, 1, 2, 1};
static const struct shape fig5_decoupled = {"fig5_decoupled", 2, 2, 1, 1, true, true, false, 1, 2, 1};
static const struct shape fig5_fine      = {"sysx_fig5",    2, 2, 1, 2, true, true, false, 1, 1, 1};
static const struct shape fig8_mobius    = {"sysx_mobius",  4, 4, 2, 1, false, false, true, 1, 2, 1};
static const struct shape fig8_decoupled = {"fig8_decoupled", 4, 4, 2, 1, true, true, false, 1, 2, 1};
static const struct shape fig8_sysx      = {"sysx",         4, 4, 2, 2, true, true, false, 1, 1, 1};
// clang-format on

/* p, g, o of one backward stage of d to a forward stage; d 1 when the shape has whole stages. */
static struct fixture fixture_at(struct shape shape, double p, double g, double o)
{
    struct fixture f = fixture_of(build(shape));
    struct price prices[] = {{"forward stage", shape.forward},
                             {"backward stage", shape.backward},
                             {"fetch forward stage", p * shape.d},
                             {"fetch backward stage", p},
                             {"fetch remote unit", p},
                             {"offload", g},
                             {"step", o},
                             {"undo", o}};
    set_prices(&f, prices, HT_COUNT(prices));
    return f;
}

/* Returns the time from the first forward's start to the last backward's end, in units. */
static double gpu_time(const struct fixture *f)
{
    int64_t begin = INT64_MAX, end = 0;
    for (int32_t op = 0; op < f->s->n_ops; op++) {
        int kind = f->s->ops[op].kind;
        if (kind != HT_OP_FORWARD && kind != HT_OP_BACKWARD) continue;
        if (f->trace->events[op].start_ns < begin) begin = f->trace->events[op].start_ns;
        if (f->trace->events[op].end_ns > end) end = f->trace->events[op].end_ns;
    }
    return (double)(end - begin) / (double)FIXTURE_UNIT_NS;
}

static void check_lasts(struct shape shape, double p, double g, double o, double gpu, double iteration)
{
    struct fixture f = fixture_at(shape, p, g, o);
    run(&f, 3);
    ck_assert_double_eq(gpu_time(&f), gpu);
    for (int k = 0; k < 3; k++) check_ends(&f, k, (k + 1) * iteration);
    check_period(&f, 2, iteration);
    fixture_free(&f);
}

/*
 * N = 2 GPUs, 2 micro-batches, v = 1.
 *
 *     plain         decoupled     decoupled, d = 2        digits: backward stages
 *     ff...0000     ff1111..      ff3311.
 *     .ff1111..     .ff.0000      .ff2200
 *
 * plain: the forwards of GPU 1 end at 3, its backwards at 7, those of GPU 0 one (T_b = 2) behind: 9. Decoupled: GPU 0
 * turns at 2, so its backwards end at 6 and those of GPU 1, one (T_b = 2) behind, at 8. With halves of T_b = 1 the skew
 * is 1: 7.
 */
START_TEST(fig5)
{
    check_lasts(fig5_plain, 0, 0, 0, 9, 9);
    check_lasts(fig5_decoupled, 0, 0, 0, 8, 8);
    check_lasts(fig5_fine, 0, 0, 0, 7, 7);

    struct fixture f = fixture_at(fig5_fine, 0, 0, 0);
    run(&f, 1);
    CHECK_SPANS(&f, 0, {"f0.0", 0, 1}, {"f0.1", 1, 2}, {"f1.0", 1, 2}, {"f1.1", 2, 3}, {"b3.0", 2, 3}, {"b3.1", 3, 4},
                {"b2.0", 3, 4}, {"b2.1", 4, 5}, {"b1.0", 4, 5}, {"b1.1", 5, 6}, {"b0.0", 5, 6}, {"b0.1", 6, 7});
    fixture_free(&f);
}
END_TEST

/*
 * Fig. 8: N = 4, 4 micro-batches, v = 2. Useful work 4 x (8 x 1 + 8 x 2) / 4 = 24 per GPU.
 *
 *     Mobius     v N_m (T_f + T_b) + (N - 1)(T_f + T_b) = 2 x 4 x 3 + 3 x 3 = 33
 *     decoupled  N_m (v T_f + v T_b) + (N - 1) T_b      = 4 x (2 + 4) + 3 x 2 = 30
 *     SysX       N_m (v T_f + w T_b') + (N - 1) T_b'    = 4 x (2 + 4) + 3 x 1 = 27
 *
 * With (p, g, o) = (1, 1, 2) per backward stage of SysX, twice that for a stage of Mobius:
 *
 *     Mobius  first fetch 2, GPUs 33, offload 2, and two steps of 4 one after the other = 45   (24/45: 47% lost)
 *     SysX    first fetch 2, GPUs 27, offload 1, one step 2                             = 32   (24/32: 25% lost)
 */
START_TEST(fig8)
{
    check_lasts(fig8_mobius, 0, 0, 0, 33, 33);
    check_lasts(fig8_decoupled, 0, 0, 0, 30, 30);
    check_lasts(fig8_sysx, 0, 0, 0, 27, 27);
    check_lasts(fig8_mobius, 2, 2, 4, 33, 45);
    check_lasts(fig8_sysx, 1, 1, 2, 27, 32);
}
END_TEST

/* GPU r starts forward at r and backward (stage 15 - r) at 8 + r, and ends with stage 3 - r at 24 + r: one skew for
 * all. */
START_TEST(fig8_skew)
{
    struct fixture f = fixture_at(fig8_sysx, 0, 0, 0);
    run(&f, 1);
    CHECK_SPANS(&f, 0, {"f0.0", 0, 1}, {"f1.0", 1, 2}, {"f2.0", 2, 3}, {"f3.0", 3, 4}, {"b15.0", 8, 9},
                {"b14.0", 9, 10}, {"b13.0", 10, 11}, {"b12.0", 11, 12}, {"b3.3", 23, 24}, {"b2.3", 24, 25},
                {"b1.3", 25, 26}, {"b0.3", 26, 27});
    fixture_free(&f);
}
END_TEST

/*
 * SysX undoes in the bad branch: all 16 at once on their own lanes, at 32, for 2: 34; the next iteration fetches
 * what was restored, so it takes [34, 66]. Mobius has not stepped yet: 45 - 2 x 4 = 37, and the next one [37, 82].
 */
START_TEST(bad_iteration)
{
    const bool bad[] = {true, false};
    struct fixture sysx = fixture_at(fig8_sysx, 1, 1, 2), mobius = fixture_at(fig8_mobius, 2, 2, 4);
    run_ahead(&sysx, 2, 0, bad);
    CHECK_SPANS(&sysx, 0, {"step0", 30, 32}, {"validate", 32, 32}, {"undo15", 32, 34}, {"undo0", 32, 34});
    check_ends(&sysx, 0, 34);
    check_ends(&sysx, 1, 66);
    ck_assert_int_eq(event_of(&sysx, 1, "undo0")->grant_seq, -1); /* skipped */
    run_ahead(&mobius, 2, 0, bad);
    ck_assert_int_eq(event_of(&mobius, 0, "step0")->grant_seq, -1);
    check_ends(&mobius, 0, 37);
    check_ends(&mobius, 1, 82);
    fixture_free(&sysx);
    fixture_free(&mobius);
}
END_TEST

/*
 * The optimizer's tail. Fig. 8 without transfers, GPU lanes 27 and 33; a GPU hands over a stage every N_m T_b' = 4.
 *     o = 4: the last of four steps starts when its gradient is there:      27 + 4 = 31 on one lane as on four
 *     o = 5: one lane falls behind by 1 a stage, 4 x 5 - 3 x 4 = 8 to go:   27 + 8 = 35; four lanes: 27 + 5 = 32
 *     Mobius, stages twice as large, two each, after the barrier:           33 + 2 x 8 = 49, 33 + 2 x 10 = 53
 * Fig. 7 (N = 2, d = 2, GPU lanes 7, two steps a GPU): validating first 7 + 2 o = 9, 11; at once 7 + o = 8, 9.
 */
START_TEST(optimizer_tail)
{
    struct shape one_lane = fig8_sysx, first = fig5_fine;
    one_lane.serial = true;
    check_lasts(fig8_sysx, 0, 0, 4, 27, 31);
    check_lasts(one_lane, 0, 0, 4, 27, 31);
    check_lasts(fig8_sysx, 0, 0, 5, 27, 32);
    check_lasts(one_lane, 0, 0, 5, 27, 35);
    check_lasts(fig8_mobius, 0, 0, 8, 33, 49);
    check_lasts(fig8_mobius, 0, 0, 10, 33, 53);
    first.rollback = false;
    first.serial = true;
    check_lasts(first, 0, 0, 1, 7, 9);
    check_lasts(fig5_fine, 0, 0, 1, 7, 8);
    check_lasts(first, 0, 0, 2, 7, 11);
    check_lasts(fig5_fine, 0, 0, 2, 7, 9);
}
END_TEST

/* Fewer micro-batches than GPUs stall: N = 4, N_m = 2, v = 2 takes 27 (Mobius) and 25 (SysX), not 21 and 15. */
START_TEST(stall)
{
    struct shape mobius = fig8_mobius, sysx = fig8_sysx;
    mobius.n_micro = sysx.n_micro = 2;
    check_lasts(mobius, 0, 0, 0, 27, 27);
    check_lasts(sysx, 0, 0, 0, 25, 25);
}
END_TEST

/*
 * The closed forms of fig8 for N = 2 .. 4, N_m = N, N + 1, v = 1 .. 3, d = 1 .. 3, T_b = 2 T_f or 3 T_f. Scaled by d,
 * so that T_f = d and T_b' = T_b / d are whole.
 */
START_TEST(closed_forms)
{
    for (int n = 2; n <= 4; n++)
        for (int n_micro = n; n_micro <= n + 1; n_micro++)
            for (int v = 1; v <= 3; v++)
                for (int d = 1; d <= 3; d++)
                    for (int tb = 2; tb <= 3; tb++) {
                        struct shape sysx = {"sysx", n, n_micro, v, d, true, true, false, d, tb, 1};
                        struct shape mobius = {"mobius", n, n_micro, v, 1, false, false, true, d, tb * d, 1};
                        int skew = d > tb ? d : tb;
                        check_lasts(sysx, 0, 0, 0, n_micro * (v * d + v * d * tb) + (n - 1) * skew,
                                    n_micro * (v * d + v * d * tb) + (n - 1) * skew);
                        check_lasts(mobius, 0, 0, 0, (v * n_micro + n - 1) * (d + tb * d),
                                    (v * n_micro + n - 1) * (d + tb * d));
                    }
}
END_TEST

/*
 * Checkpoints that travel: all but those whose forward and backward GPU are the same. N = 4, v = 2, per micro-batch:
 * d = 1 8 of 8, d = 2 12 of 16, d = 3 24 of 24; N = 2, v = 1: 2 of 2 and 2 of 4. With d = 2, c(1,0) (unit 2) and c(2,1)
 * (unit 5) stay; c(0,0), c(0,1), c(3,1) (units 0, 1, 7) go from GPU 0 to 3, 0 to 2 and 3 to 0.
 */
START_TEST(checkpoints_sent_early)
{
    static const struct {
        int n, v, d, sent;
    } cases[] = {{4, 2, 1, 8}, {4, 2, 2, 12}, {4, 2, 3, 24}, {2, 1, 1, 2}, {2, 1, 2, 2}};
    for (size_t i = 0; i < HT_COUNT(cases); i++) {
        struct ht_schedule *s =
            build((struct shape){"c", cases[i].n, cases[i].n, cases[i].v, cases[i].d, true, true, false, 1, 1, 1});
        int sent = 0;
        for (int32_t op = 0; op < s->n_ops; op++)
            sent += s->ops[op].kind == HT_OP_SEND && strncmp(s->ops[op].name, "Sc", 2) == 0;
        ck_assert_int_eq(sent, cases[i].sent * cases[i].n);
        ht_schedule_destroy(s);
    }
    struct ht_schedule *s = build(fig8_sysx);
    static const struct {
        const char *send;
        int from, to;
    } ways[] = {{"Sc0.0", 0, 3}, {"Sc1.0", 0, 2}, {"Sc7.0", 3, 0}};
    for (size_t i = 0; i < HT_COUNT(ways); i++) {
        int32_t op = op_named(s, ways[i].send);
        ck_assert_int_eq(ht_op_rank(s, op), ways[i].from);
        ck_assert_int_eq(ht_op_rank(s, op + 1), ways[i].to);
    }
    for (int32_t op = 0; op < s->n_ops; op++) {
        ck_assert_str_ne(s->ops[op].name, "Sc2.0");
        ck_assert_str_ne(s->ops[op].name, "Sc5.0");
    }
    ht_schedule_destroy(s);
}
END_TEST

/* GPU 0 (forward) and GPU 3 (unit 0 backward) fetch the parameters of stage 0 from one residency of the node. */
START_TEST(shared_parameters)
{
    struct ht_schedule *s = build(fig8_sysx);
    int32_t forward = op_named(s, "Pf0"), backward = op_named(s, "Pb0");
    ck_assert_int_eq(ht_op_rank(s, forward), 0);
    ck_assert_int_eq(ht_op_rank(s, backward), 3);
    const struct ht_effect *a = &s->effects[s->effects_begin[forward]], *b = &s->effects[s->effects_begin[backward]];
    ck_assert_int_eq(a->tensor, b->tensor);
    ck_assert(a->tier == HT_HOST && b->tier == HT_HOST);
    ht_schedule_destroy(s);
}
END_TEST

/*
 * Two nodes of two GPUs: backward stages 15, 14, 11, 10, .. have their parameters on node 0, the others on node 1.
 * Stage 0 comes to GPU 0 as two messages of 1 from node 1 instead of a copy of 2, and everything is as long as on one
 * node.
 */
START_TEST(two_nodes)
{
    struct shape shape = fig8_sysx;
    shape.n_nodes = 2;
    check_lasts(shape, 0, 0, 0, 27, 27);
    check_lasts(shape, 1, 1, 2, 27, 32);
    struct ht_schedule *s = build(shape);
    ck_assert_int_eq(s->effects[s->effects_begin[0]].tier, HT_HOST);
    ck_assert(s->ops[0].kind == HT_OP_SEND && ht_op_rank(s, 0) == 3);
    ck_assert(s->ops[1].kind == HT_OP_RECEIVE && ht_op_rank(s, 1) == 0);
    ht_schedule_destroy(s);
}
END_TEST

/* The command line loads the same graphs and prices. */
START_TEST(files)
{
    static const struct {
        const struct shape *shape;
        double iteration;
    } cases[] = {{&fig5_fine, 7}, {&fig8_mobius, 45}, {&fig8_sysx, 32}};
    for (size_t i = 0; i < HT_COUNT(cases); i++) {
        struct ht_schedule *s = build(*cases[i].shape);
        check_file(s, s->name);
        struct fixture f = fixture_load(s->name);
        load_prices(&f, s->name);
        run(&f, 3);
        check_period(&f, 1, cases[i].iteration);
        check_ahead(&f);
        fixture_free(&f);
        ht_schedule_destroy(s);
    }
}
END_TEST

int main(void)
{
    TCase *tc = tcase_create("sysx");
    tcase_add_test(tc, fig5);
    tcase_add_test(tc, fig8);
    tcase_add_test(tc, fig8_skew);
    tcase_add_test(tc, bad_iteration);
    tcase_add_test(tc, optimizer_tail);
    tcase_add_test(tc, stall);
    tcase_add_test(tc, closed_forms);
    tcase_add_test(tc, checkpoints_sent_early);
    tcase_add_test(tc, shared_parameters);
    tcase_add_test(tc, two_nodes);
    tcase_add_test(tc, files);
    return run_suite("fixtures: SysX", tc);
}
