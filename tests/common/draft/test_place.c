/* Stages of pipelines on any ranks: drawn layouts, proved and simulated in the proved memory, whatever they recompute and
 * share; traffic by hand.
 *
 *     test_common_draft_place [N]     60 layouts
 */
#include "common/schedule/sum_order.h"
#include "tests/support/draw.h"
#include "tests/support/pipes.h"
#include "tests/support/proved.h"

enum { MOST_RANKS = 48, MOST_STAGES = 18 };

static int samples = 60;

/* ---- drawn layouts ---------------------------------------------------------------------------------------------- */

/* A job: pipelines of any depth, all of one tensor-parallel degree, and where their ranks are; what they recompute, and
   how they share states. */
struct drawn {
    int32_t n, tp;
    bool sequence;
    int64_t ranks[3], l[3], place[MOST_RANKS], all_ranks;
    int64_t halves[MOST_STAGES]; /* half blocks of each stage, with style.halves */
    struct ht_scenario sc;
    struct ht_pipe_style style;
};

/* Puts all ranks in any order, ascending within a stage. */
static void draw_place(struct draw *d, struct drawn *x)
{
    for (int64_t i = 0; i < x->all_ranks; i++) {
        int64_t k = pick(d, 0, i);
        x->place[i] = x->place[k];
        x->place[k] = i;
    }
    for (int64_t i = 1; i < x->all_ranks; i++) /* sorts each stage by insertion */
        for (int64_t k = i; k % x->tp && x->place[k - 1] > x->place[k]; k--) {
            int64_t rank = x->place[k];
            x->place[k] = x->place[k - 1];
            x->place[k - 1] = rank;
        }
}

/* Draws what blocks keep, how gradients are reduced, and who has which states. */
static void draw_sharing(struct draw *d, const struct drawn *x, struct ht_pipe_style *y)
{
    bool alike = true;
    for (int32_t k = 1; k < x->n; k++) alike &= x->ranks[k] == x->ranks[0] && x->l[k] == x->l[0];
    y->segment = below(d, 3);
    y->recomputed = below(d, 3);
    y->attention_only = y->recompute && y->segment == 1 && below(d, 2);
    y->early_recompute = below(d, 2);
    y->zero = x->n > 1 ? below(d, alike ? 3 : 2) : 0;
    y->reduce_whole = y->zero == 1 && below(d, 2);
    y->bucket = below(d, 2) * below(d, 200000);
    y->step_units = below(d, 2);
}

/* Draws the half blocks of each stage, at least one. Pipelines that are alike have the same. */
static void draw_halves(struct draw *d, struct drawn *x)
{
    struct ht_pipe_style *y = &x->style;
    y->halves = below(d, 2);
    x->sc.model.dropout = y->halves && below(d, 2);
    for (int32_t k = 0; k < x->n && y->halves; k++) {
        int64_t n = x->ranks[k] / x->tp * y->v, *own = x->halves + y->n_blocks;
        bool same = k > 0 && x->ranks[k] == x->ranks[0];
        for (int64_t i = 0; i < n; i++) own[i] = same ? x->halves[i] : 1;
        for (int64_t left = 2 * x->sc.model.layers - n; left > 0 && !same; left--) own[below(d, (int)n)]++;
        y->n_blocks += (int32_t)n;
    }
}

static struct drawn draw_job(uint64_t seed)
{
    static const enum ht_pipe_order orders[] = {HT_PIPE_AFAB, HT_PIPE_1F1B, HT_PIPE_INTERLEAVED};
    static const enum ht_control_mode controls[] = {HT_CONTROL_NONE, HT_CONTROL_GATE, HT_CONTROL_ROLLBACK};
    struct draw d = {.seed = seed};
    struct drawn x = {.n = 1 + below(&d, 3), .tp = 1 << below(&d, 3)};
    enum ht_pipe_order order = orders[below(&d, 3)];
    int32_t v = order == HT_PIPE_INTERLEAVED ? 1 + below(&d, 2) : 1;
    int64_t all = 0;
    bool alike = below(&d, 2);
    for (int32_t k = 0; k < x.n; k++) {
        int64_t stages = 1 + below(&d, x.tp == 4 ? 2 : 3), first = alike ? 0 : k;
        x.ranks[k] = stages * x.tp;
        x.l[k] = order == HT_PIPE_INTERLEAVED ? stages * (1 + below(&d, 2)) : 1 + below(&d, 4);
        x.all_ranks += x.ranks[k] = x.ranks[first];
        all += x.l[k] = x.l[first];
    }
    int64_t nodes = x.all_ranks % 2 ? 1 : 1 + below(&d, 2);
    x.sc = pipe_scenario(x.all_ranks, nodes, 3 * v + below(&d, 3), all);
    x.sc.control.mode = controls[below(&d, 3)];
    x.sc.model.tied = below(&d, 2);
    if (x.tp == 4) x.sc.model.kv_heads = 4;
    x.style = (struct ht_pipe_style){
        .order = order, .v = v, .d = 1, .recompute = below(&d, 2), .blocking_sends = order != HT_PIPE_INTERLEAVED};
    draw_place(&d, &x);
    draw_sharing(&d, &x, &x.style);
    x.sequence = x.tp > 1 && below(&d, 2);
    draw_halves(&d, &x);
    return x;
}

/* Builds the job, placed as drawn or pipeline after pipeline. */
static struct ht_schedule *build(struct drawn *x, bool placed)
{
    struct ht_layout *layout = NULL;
    struct ht_error err = {0};
    ck_assert_msg(ht_layout_pipelines(&x->sc, x->n, x->ranks, x->l, x->tp, &err, &layout) == HT_OK, "%s", err.text);
    if (placed)
        ck_assert_msg(ht_layout_place(layout, &x->sc, (int32_t)x->all_ranks, x->place, &err) == HT_OK, "%s", err.text);
    if (x->sequence) ck_assert_msg(ht_layout_cut_rows(layout, &x->sc, &err) == HT_OK, "%s", err.text);
    x->style.layout = layout;
    x->style.blocks = x->style.halves ? x->halves : NULL;
    ck_assert_msg(ht_pipe_lay_out(&x->sc, &x->style, layout, &err) == HT_OK, "%s", err.text);
    ck_assert_msg(ht_pipe_check(&x->sc, &x->style, &err) == HT_OK, "%s", err.text);
    struct ht_schedule *s = pipe_build(&x->sc, &x->style);
    ht_layout_destroy(layout);
    return s;
}

/* The graph is the unplaced one with other ranks: op by op, member by member. */
static void same_but_for_ranks(const struct drawn *x, const struct ht_schedule *placed, const struct ht_schedule *plain)
{
    ck_assert_int_eq(placed->n_ops, plain->n_ops);
    ck_assert_int_eq(placed->n_tensors, plain->n_tensors);
    for (int32_t t = 0; t < plain->n_tensors; t++) {
        const struct ht_tensor *a = &placed->tensors[t], *b = &plain->tensors[t];
        ck_assert(a->class == b->class && a->bytes == b->bytes && a->part == b->part);
        ck_assert_int_eq(a->rank, x->place[b->rank]);
    }
}

/* Members of groups about units are those of the unplaced graph, in its order; so are the sums. */
START_TEST(any_place)
{
    int64_t moved = 0;
    int sharing[3] = {0}, recomputing = 0, halved = 0;
    for (uint64_t seed = 1; seed <= (uint64_t)samples; seed++) {
        struct drawn x = draw_job(seed);
        struct ht_schedule *plain = build(&x, false), *s = build(&x, true);
        struct ht_profile *costs = ht_profile_modelled(x.sc.cluster);
        same_but_for_ranks(&x, s, plain);
        runs_in_proved_memory(s, costs, seed, 1);
        ck_assert_msg(ht_schedule_sum_order(s, &x.sc.model, &x.sc.numerics, x.sc.batch) ==
                          ht_schedule_sum_order(plain, &x.sc.model, &x.sc.numerics, x.sc.batch),
                      "seed %d", (int)seed);
        for (int64_t i = 0; i < x.all_ranks; i++) moved += x.place[i] != i;
        sharing[x.style.zero]++;
        recomputing += x.style.segment && x.style.recompute;
        for (int32_t i = 0; i < x.style.n_blocks; i++) halved += x.halves[i] % 2;
        ht_profile_destroy(costs);
        ht_schedule_destroy(plain);
        ht_schedule_destroy(s);
        ht_scenario_free(&x.sc);
    }
    ck_assert_int_gt(moved, 2 * samples);
    ck_assert_int_gt(recomputing, samples / 6);
    ck_assert_int_gt(halved, samples / 2);
    ck_assert_int_gt(sharing[1], samples / 6);
    ck_assert_int_gt(sharing[2], samples / 12);
}
END_TEST

/* ---- traffic by hand -------------------------------------------------------------------------------------------- */

/* Returns the bytes that events of the trace moved through a resource. */
static int64_t through(const struct ht_trace *t, const char *resource)
{
    const struct ht_schedule *s = t->schedule;
    int64_t bytes = 0;
    for (int64_t i = 0; i < t->n_events; i++)
        for (int64_t u = s->uses_begin[ht_trace_op(t, i)]; u < s->uses_begin[ht_trace_op(t, i) + 1]; u++)
            if (!strcmp(s->resources[s->uses[u].resource].name, resource)) bytes += s->uses[u].amount;
    return bytes;
}

/* Proves and simulates an iteration, in which every op takes as long as any other. */
static struct pipe_run run_once(struct ht_schedule *s)
{
    struct pipe_run r = {.s = s, .cost_ns = HT_NEW_ARRAY(int64_t, s->n_ops)};
    struct ht_sim_options options = {.iterations = 1};
    struct ht_error err = {0};
    for (int32_t op = 0; op < s->n_ops; op++) r.cost_ns[op] = 1000;
    ck_assert_msg(ht_schedule_verify(s, &err, NULL) == HT_OK, "%s", err.text);
    ck_assert_msg(ht_sim_run(s, r.cost_ns, &options, &err, &r.trace) == HT_OK, "%s", err.text);
    return r;
}

/* Counts the events of a kind on a rank. */
static int count(const struct ht_trace *t, enum ht_op_kind kind, int32_t rank)
{
    int n = 0;
    for (int64_t i = 0; i < t->n_events; i++)
        n += t->schedule->ops[ht_trace_op(t, i)].kind == kind && ht_op_rank(t->schedule, ht_trace_op(t, i)) == rank;
    return n;
}

/*
 * Two nodes of four devices, two pipelines of two stages with a block each, tp 2, two micro-batches each: B = 1, T = 16,
 * C = 128 in 16 bits, so X is x = 4096 bytes. A sum over two parts passes 2 (2 - 1) / 2 x = x out of a rank and into it.
 *
 *     part q of stage 0   per micro-batch: the embedding's sum, two of the block forward, two backward      5 x
 *                         the boundary: X out, dX in                                                        1 x each
 *                         per iteration: the sums of two pipelines' gradients, FP32                         4 (p0 + p1)
 *
 * with p0 and p1 elements of its part of the embedding and the block, one all-reduce each. In Megatron-LM's order stage
 * 0 of both pipelines is on node 0, so that only boundaries leave a node: 2 pipelines, 2 micro-batches, 2 parts, x each.
 * Pipeline after pipeline, only gradients do. Their rings enter and leave node 0 once for each part of each unit.
 *
 * Parts that cut rows reduce-scatter and gather x / 2: the embedding's output and its gradient, four of the block forward
 * and six backward, 6 x. A boundary is x / 2.
 */
START_TEST(traffic)
{
    enum { X = 16 * 128 * 2 };
    struct drawn x = {.n = 2, .tp = 2, .ranks = {4, 4}, .l = {2, 2}, .all_ranks = 8};
    const int64_t place[] = {0, 1, 4, 5, 2, 3, 6, 7};
    memcpy(x.place, place, sizeof place);
    x.sc = pipe_scenario(8, 2, 2, 4);
    x.style = (struct ht_pipe_style){.order = HT_PIPE_1F1B, .v = 1, .d = 1};
    ck_assert(x.sc.model.width == 128 && x.sc.seq == 16 && ht_dtype_bytes(x.sc.numerics.param) == 2);
    struct ht_model part = ht_model_part(&x.sc.model, 0, 2);
    int64_t summed = 4 * (ht_unit_params(&part, 0) + ht_unit_params(&part, 1)), all_summed = 0;
    for (int32_t q = 0; q < 2; q++) { /* the ring's member on a node that leads for its part; all have the same */
        struct ht_model of = ht_model_part(&x.sc.model, q, 2);
        all_summed += 4 * ht_model_params(&of);
    }
    for (int i = 0; i < 3; i++) {
        int placed = i > 0, sums = i < 2 ? 5 * X : 6 * X, boundary = i < 2 ? X : X / 2;
        x.sequence = i == 2;
        struct pipe_run r = run_once(build(&x, placed));
        ck_assert_int_eq(count(r.trace, HT_OP_ALL_REDUCE, 0), 2);
        ck_assert_int_eq(count(r.trace, HT_OP_FORWARD, 0), 2 * 2);
        ck_assert_int_eq(through(r.trace, "rank 0 pcie d2h"), 2 * sums + 2 * boundary + summed);
        ck_assert_int_eq(through(r.trace, "rank 0 pcie h2d"), 2 * sums + 2 * boundary + summed);
        ck_assert_int_eq(through(r.trace, "node 0 nic out"), placed ? 2 * 2 * 2 * boundary : all_summed);
        ck_assert_int_eq(through(r.trace, "node 0 nic in"), placed ? 2 * 2 * 2 * boundary : all_summed);
        pipe_run_free(&r);
    }
    ht_scenario_free(&x.sc);
}
END_TEST

/* Returns the bytes of a class that are resident on a rank's device. */
static int64_t resident_on(const struct ht_schedule *s, int32_t rank, enum ht_tensor_class class)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < s->n_residents; i++)
        if (s->residents[i].rank == rank && s->tensors[s->residents[i].tensor].class == class)
            bytes += s->tensors[s->residents[i].tensor].bytes;
    return bytes;
}

/*
 * Two stages of two blocks, cut behind the first block's attention: the message is (B,T,C) as at every boundary, x = 4096
 * bytes each way a micro-batch. LLaMA, C = 128, K = 64: the attention half's parameters are a norm, C (C + 2 K) and C C.
 */
START_TEST(cut_inside)
{
    enum { X = 16 * 128 * 2, ATTENTION = 128 + 128 * (128 + 2 * 64) + 128 * 128 };
    struct drawn x = {.n = 1, .tp = 1, .ranks = {2}, .l = {3}, .all_ranks = 2, .place = {1, 0}, .halves = {1, 3}};
    x.sc = pipe_scenario(2, 1, 2, 3);
    x.style = (struct ht_pipe_style){.order = HT_PIPE_1F1B, .v = 1, .d = 1, .n_blocks = 2, .halves = true};
    ck_assert(x.sc.model.width == 128 && ht_model_kv_width(&x.sc.model) == 64);
    int64_t first = ht_unit_params(&x.sc.model, 0) + ATTENTION, all = ht_model_params(&x.sc.model);
    struct pipe_run r = run_once(build(&x, true));
    ck_assert_int_eq(through(r.trace, "rank 1 pcie d2h"), 3 * X);
    ck_assert_int_eq(through(r.trace, "rank 1 pcie h2d"), 3 * X);
    ck_assert_int_eq(resident_on(r.s, 1, HT_MOMENTUM), 4 * first);
    ck_assert_int_eq(resident_on(r.s, 0, HT_MOMENTUM), 4 * (all - first));
    x.style.halves = false, x.style.n_blocks = 0;
    struct ht_schedule *whole = build(&x, true); /* a block each: the same sums in the same order */
    ck_assert(ht_schedule_sum_order(r.s, &x.sc.model, &x.sc.numerics, x.sc.batch) ==
              ht_schedule_sum_order(whole, &x.sc.model, &x.sc.numerics, x.sc.batch));
    ht_schedule_destroy(whole);
    pipe_run_free(&r);
    ht_scenario_free(&x.sc);
}
END_TEST

int main(int argc, char **argv)
{
    if (argc > 1) samples = atoi(argv[1]);
    TCase *tc = tcase_create("place");
    tcase_add_test(tc, any_place);
    tcase_add_test(tc, traffic);
    tcase_add_test(tc, cut_inside);
    return pipe_main("place", tc);
}
