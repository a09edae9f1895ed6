/* The builder of pipelines: closed forms out of real graphs, residencies and messages, and 1,000 random graphs. The
   figures of SysX and Mobius: tests/sysx/test_figures.c. */
#include "tests/support/random_pipes.h"
#include "tests/support/scenario.h"

/* The closed forms against the simulator: N_g 2, 3, 4, 8, v 1 .. 3, T_b = 2 or 3 T_f, N_m from N_g on. T_f
 * = 1. */
START_TEST(closed_forms)
{
    static const int32_t ranks[] = {2, 3, 4, 8};
    for (size_t k = 0; k < HT_COUNT(ranks); k++)
        for (int32_t v = 1; v <= 3; v++)
            for (int32_t b = 2; b <= 3; b++)
                for (int32_t more = 0; more < 3; more += 2) {
                    int32_t n = ranks[k], m = n + more, rounds = n * (1 + more / 2);
                    double length = (v * m + n - 1) * (1 + b);
                    struct ht_pipe_style turns = pipe_gpipe, chunks = pipe_with(pipe_gpipe, v, 1),
                                         offloaded = pipe_with(pipe_mobius, v, 1);
                    turns.order = HT_PIPE_1F1B;
                    chunks.order = HT_PIPE_INTERLEAVED;
                    offloaded.order = HT_PIPE_INTERLEAVED;
                    pipe_times(pipe_with(pipe_mobius, v, 1), n, m, (struct pipe_prices){1, b, 0, 0, 0}, length, length);
                    pipe_times(chunks, n, rounds, (struct pipe_prices){1, b, 0, 0, 0}, (v * rounds + n - 1) * (1 + b),
                               (v * rounds + n - 1) * (1 + b));
                    pipe_times(offloaded, n, rounds, (struct pipe_prices){1, b, 0, 0, 0},
                               (v * rounds + n - 1) * (1 + b), (v * rounds + n - 1) * (1 + b));
                    if (v > 1) continue;
                    pipe_times(pipe_gpipe, n, m, (struct pipe_prices){1, b, 0, 0, 0}, (m + n - 1) * (1 + b),
                               (m + n - 1) * (1 + b));
                    pipe_times(turns, n, m, (struct pipe_prices){1, b, 0, 0, 0}, (m + n - 1) * (1 + b),
                               (m + n - 1) * (1 + b));
                }
}
END_TEST

/* The bubble of `hetbench sim`: 3/7 of GPipe's and 1F1B's time with four and four (SysX, eq. 3), 9/33 of
   Mobius'. */
START_TEST(bubbles)
{
    struct ht_pipe_style turns = pipe_gpipe;
    turns.order = HT_PIPE_1F1B;
    pipe_check_bubble(&pipe_gpipe, 2, 3.0 / 7);
    pipe_check_bubble(&turns, 2, 3.0 / 7);
    pipe_check_bubble(&pipe_mobius, 2, 9.0 / 33);
}
END_TEST

/* A send that blocks holds up its sender: GPipe on two GPUs with messages of half a unit, f0.1 begins at 1.5 instead
 * of 1. */
START_TEST(blocking_sends)
{
    struct ht_pipe_style y = pipe_gpipe;
    struct ht_scenario sc = pipe_scenario_for(&y, 2, 1, 2);
    for (int blocking = 0; blocking < 2; blocking++) {
        y.blocking_sends = blocking;
        struct pipe_run r = pipe_run(pipe_build(&sc, &y), &y, (struct pipe_prices){1, 1, 0, 0, 0}, 1, 0, NULL);
        struct ht_sim_options options = {.iterations = 1};
        struct ht_error err = {0};
        for (int32_t op = 0; op < r.s->n_ops; op++)
            if (r.s->ops[op].kind == HT_OP_SEND) r.cost_ns[op] = pipe_ns(0.5);
        ht_trace_destroy(r.trace);
        ck_assert(ht_sim_run(r.s, r.cost_ns, &options, &err, &r.trace) == HT_OK);
        ck_assert_double_eq(pipe_start(&r, 0, "f0.1"), blocking ? 1.5 : 1);
        ck_assert_double_eq(pipe_start(&r, 0, "f1.0"), 1.5);
        pipe_run_free(&r);
    }
    ht_scenario_free(&sc);
}
END_TEST

/* Without peer access a message waits for the receiver's pass under way. GPipe on two GPUs, f0 1 and f1 2 long,
   messages half: f1.0 from 1.5 to 3.5. X0.1 is ready at 2.5, but moves from 3.5 to 4 only, and f1.1 begins at 4 instead
   of 3.5. */
START_TEST(messages_through_the_host)
{
    struct ht_pipe_style y = pipe_gpipe;
    struct ht_scenario sc = pipe_scenario_for(&y, 2, 1, 2);
    for (int peer = 0; peer < 2; peer++) {
        sc.cluster->nodes[0].peer = peer;
        struct pipe_run r = pipe_run(pipe_build(&sc, &y), &y, (struct pipe_prices){1, 1, 0, 0, 0}, 1, 0, NULL);
        struct ht_sim_options options = {.iterations = 1};
        struct ht_error err = {0};
        for (int32_t op = 0; op < r.s->n_ops; op++) {
            if (r.s->ops[op].kind == HT_OP_SEND) r.cost_ns[op] = pipe_ns(0.5);
            if (ht_op_rank(r.s, op) == 1) r.cost_ns[op] *= r.s->ops[op].kind == HT_OP_FORWARD ? 2 : 1;
        }
        ht_trace_destroy(r.trace);
        ck_assert(ht_sim_run(r.s, r.cost_ns, &options, &err, &r.trace) == HT_OK);
        ck_assert_double_eq(pipe_start(&r, 0, "f1.0"), 1.5);
        ck_assert_double_eq(pipe_start(&r, 0, "f1.1"), peer ? 3.5 : 4);
        pipe_run_free(&r);
    }
    ht_scenario_free(&sc);
}
END_TEST

/* Recomputation that may begin early: T_b = R + B. One micro-batch on two GPUs, R = B = 1: f0 f1 R1 B1, and R0 beside
 * them. */
START_TEST(early_recompute)
{
    struct ht_pipe_style y = pipe_with(pipe_mobius, 1, 1);
    struct ht_scenario sc = pipe_scenario_for(&y, 2, 1, 1);
    for (int early = 0; early < 2; early++) {
        y.early_recompute = early;
        struct ht_schedule *s = pipe_build(&sc, &y);
        struct pipe_run r = pipe_run(s, &y, (struct pipe_prices){1, 1, 0, 0, 0}, 1, 0, NULL);
        struct ht_sim_options options = {.iterations = 1};
        struct ht_error err = {0};
        for (int32_t op = 0; op < s->n_ops; op++)
            if (s->ops[op].kind == HT_OP_RECOMPUTE) r.cost_ns[op] = pipe_ns(1);
        ht_trace_destroy(r.trace);
        ck_assert(ht_sim_run(s, r.cost_ns, &options, &err, &r.trace) == HT_OK);
        ck_assert_int_eq(r.trace->end_ns, pipe_ns(early ? 5 : 6));
        pipe_run_free(&r);
    }
    ht_scenario_free(&sc);
}
END_TEST

/* Returns the most bytes of kept activations on rank 0 when ops run in id order. */
static int64_t most_activations(const struct ht_schedule *s)
{
    int64_t held = 0, most = 0;
    for (int32_t op = 0; op < s->n_ops; op++)
        for (int64_t e = s->effects_begin[op]; e < s->effects_begin[op + 1] && ht_op_rank(s, op) == 0; e++) {
            const struct ht_tensor *t = &s->tensors[s->effects[e].tensor];
            if (t->class != HT_ACTIVATION) continue;
            if (s->effects[e].flags & HT_PRODUCE) held += t->bytes;
            if (held > most) most = held;
            if (s->effects[e].flags & HT_RELEASE) held -= t->bytes;
        }
    return most;
}

/* 1F1B holds min(N_m, N_g) activations on the first GPU, GPipe N_m (SysX, Sec. 2.1). A stage is one block. */
START_TEST(activations_held)
{
    for (int64_t n_m = 2; n_m <= 8; n_m += 3)
        for (int turns = 0; turns < 2; turns++) {
            struct ht_pipe_style y = pipe_gpipe;
            if (turns) y.order = HT_PIPE_1F1B;
            struct ht_scenario sc = pipe_scenario_for(&y, 4, 1, n_m);
            struct ht_schedule *s = pipe_build(&sc, &y);
            int64_t one = ht_unit_activation_bytes(&sc.model, 1, 1, sc.seq, sc.numerics.param);
            ck_assert_int_eq(most_activations(s), (turns && n_m > 4 ? 4 : n_m) * one);
            ht_schedule_destroy(s);
            ht_scenario_free(&sc);
        }
}
END_TEST

/*
 * Device memory by stages (SysX's Sec. 4 as worked out from its tables): 3 Psi + N_m v c + A for Mobius at 8 sequences
 * of 1024, four micro-batches a GPU of one node, with A of a GPT block with dropout (34 s b h + 5 a s^2
 * b): 22.7, 34.9, 31.3, 37.9, 25.2, 30.7 GB. Here A is what LLaMA blocks keep; all else is the same, so A is exchanged
 * before comparing. The embedding and head are left out of those numbers.
 */
START_TEST(device_bytes)
{
    static const struct {
        const char *model, *cluster;
        int64_t nodes;
        double gb;
    } cases[] = {{"sysx-10b", "sysx-1node", 1, 22.7}, {"sysx-19b", "sysx-1node", 1, 34.9},
                 {"sysx-30b", "sysx-2node", 2, 31.3}, {"sysx-40b", "sysx-2node", 2, 37.9},
                 {"sysx-52b", "sysx-4node", 4, 25.2}, {"sysx-69b", "sysx-4node", 4, 30.7}};
    for (size_t i = 0; i < HT_COUNT(cases); i++) {
        struct ht_scenario_request r = {.model = cases[i].model,
                                        .cluster = cases[i].cluster,
                                        .batch = 32 * cases[i].nodes,
                                        .micro_batch = 8,
                                        .seq = 1024};
        struct ht_scenario sc = scenario_from(&r);
        double s = 1024, b = 8, h = (double)sc.model.width, a = (double)sc.model.heads;
        double blocks = (double)sc.model.layers / (double)(8 * cases[i].nodes);
        int64_t ours = ht_unit_activation_bytes(&sc.model, 1, 8, 1024, HT_F16);
        /* the largest stage has a table of V C elements beside its blocks */
        double ends = 3 * 2 * (double)ht_unit_params(&sc.model, sc.model.layers + 1);
        double head = (double)ht_unit_activation_bytes(&sc.model, sc.model.layers + 1, 8, 1024, HT_F16);
        double bytes = (double)ht_pipe_device_bytes(&sc, &pipe_mobius) - blocks * (double)ours - ends - head +
                       blocks * (34 * s * b * h + 5 * a * s * s * b);
        ck_assert_double_eq_tol(bytes / 1e9, cases[i].gb, 0.06);
        ht_scenario_free(&sc);
    }
}
END_TEST

/* Scenarios that a pipeline cannot take. */
START_TEST(does_not_fit)
{
    struct ht_error err = {0};
    struct ht_pipe_style halves = pipe_with(pipe_mobius, 2, 2);
    struct ht_scenario sc = pipe_scenario(4, 1, 15, 4);
    ck_assert_int_eq(ht_pipe_check(&sc, &halves, &err), HT_INFEASIBLE);
    ck_assert_str_eq(err.text,
                     "llama-tiny has 15 blocks for 16 stages (4 devices, v = 2, d = 2): expected at least one each");
    sc.model.layers = 16;
    ck_assert_int_eq(ht_pipe_check(&sc, &halves, &err), HT_OK);
    sc.model.tied = true;
    ck_assert_int_eq(ht_pipe_check(&sc, &halves, &err), HT_INFEASIBLE);
    ck_assert_ptr_nonnull(strstr(err.text, "ties its head"));
    sc.model.tied = false;
    sc.batch = 6;
    struct ht_pipe_style chunks = pipe_mobius;
    chunks.order = HT_PIPE_INTERLEAVED;
    ck_assert_int_eq(ht_pipe_check(&sc, &chunks, &err), HT_INFEASIBLE);
    ck_assert_ptr_nonnull(strstr(err.text, "cannot take 6 micro-batches: expected a multiple of 4"));
    ht_scenario_free(&sc);
}
END_TEST

/* 1,000 random pipelines. */
START_TEST(random_pipelines)
{
    for (uint64_t seed = 0; seed < 1000; seed++) {
        uint64_t at = 0;
        struct ht_pipe_style y = random_style(seed, &at);
        check_random(seed, &at, y);
    }
}
END_TEST

int main(void)
{
    TCase *tc = tcase_create("pipe");
    tcase_add_test(tc, closed_forms);
    tcase_add_test(tc, bubbles);
    tcase_add_test(tc, blocking_sends);
    tcase_add_test(tc, messages_through_the_host);
    tcase_add_test(tc, early_recompute);
    tcase_add_test(tc, activations_held);
    tcase_add_test(tc, device_bytes);
    tcase_add_test(tc, does_not_fit);
    tcase_add_test(tc, random_pipelines);
    return pipe_main("pipelines", tc);
}
