/* Several pipelines that share a batch: of any depths, proved and simulated in the proved memory; members of
   all-reduces and their starts by hand. */
#include "common/base/rng.h"
#include "common/schedule/residency.h"
#include "tests/common/draft/pipelines.h"
#include "tests/support/pipes.h"
#include "tests/support/proved.h"

enum { MOST = 4 };

/* One all-reduce a unit and pipeline, in groups of the ranks that hold it. */
static void check_all_reduces(const struct ht_schedule *s, int32_t n_pipelines)
{
    int32_t n = 0;
    for (int32_t op = 0; op < s->n_ops; op++) {
        const struct ht_op *x = &s->ops[op];
        if (x->kind != HT_OP_ALL_REDUCE || x->label.unit < 0) continue;
        if (op == 0 || s->ops[op - 1].match != x->match) {
            ck_assert_int_eq(ht_group_end(s, op) - op, n_pipelines);
            ck_assert_int_eq(x->label.unit, s->n_units - 1 - n / n_pipelines); /* units fall */
        }
        ck_assert_int_eq(s->effects_begin[op + 1] - s->effects_begin[op], 1);
        ck_assert_int_eq(s->tensors[s->effects[s->effects_begin[op]].tensor].rank, ht_op_rank(s, op));
        n++;
    }
    ck_assert_int_eq(n, n_pipelines * s->n_units);
}

START_TEST(any_depths)
{
    static const enum ht_pipe_order orders[] = {HT_PIPE_AFAB, HT_PIPE_1F1B, HT_PIPE_INTERLEAVED};
    static const enum ht_control_mode controls[] = {HT_CONTROL_NONE, HT_CONTROL_GATE, HT_CONTROL_ROLLBACK};
    int built = 0;
    for (uint64_t seed = 0; seed < 200; seed++) {
        uint64_t i = 0;
        int32_t n = 2 + (int32_t)ht_random_below(seed, i++, 3), v = 1 + (int32_t)ht_random_below(seed, i++, 2);
        int64_t ranks[MOST], l[MOST], all_ranks = 0, all = 0;
        for (int32_t k = 0; k < n; k++) {
            all_ranks += ranks[k] = 1 + (int64_t)ht_random_below(seed, i++, 3);
            all += l[k] = 1 + (int64_t)ht_random_below(seed, i++, 5);
        }
        int64_t nodes = all_ranks % 2 ? 1 : 1 + (int64_t)ht_random_below(seed, i++, 2);
        struct ht_scenario sc = pipe_scenario(all_ranks, nodes, 3 * v + (int64_t)ht_random_below(seed, i++, 4), all);
        sc.control.mode = controls[ht_random_below(seed, i++, 3)];
        struct ht_layout *layout = NULL;
        struct ht_error err = {0};
        ck_assert_msg(ht_layout_pipelines(&sc, n, ranks, l, 1, &err, &layout) == HT_OK, "%s", err.text);
        struct ht_pipe_style y = {.order = orders[seed % 3],
                                  .v = seed % 3 == 2 ? v : 1,
                                  .d = 1,
                                  .layout = layout,
                                  .recompute = seed & 8,
                                  .blocking_sends = seed & 16};
        if (ht_pipe_check(&sc, &y, &err) == HT_OK) {
            struct ht_schedule *s = pipe_build(&sc, &y);
            struct ht_profile *costs = ht_profile_modelled(sc.cluster);
            check_all_reduces(s, n);
            runs_in_proved_memory(s, costs, seed, 1);
            ht_profile_destroy(costs);
            ht_schedule_destroy(s);
            built++;
        }
        ht_layout_destroy(layout);
        ht_scenario_free(&sc);
    }
    ck_assert_int_gt(built, 100);
}
END_TEST

/* Passes over n parts are groups of n consecutive ranks, all of one micro-batch. */
static void check_passes(const struct ht_schedule *s, int32_t n)
{
    for (int32_t op = 0, end; op < s->n_ops; op = end) {
        int kind = s->ops[op].kind;
        end = ht_group_end(s, op);
        if (kind != HT_OP_FORWARD && kind != HT_OP_RECOMPUTE && kind != HT_OP_BACKWARD) continue;
        ck_assert_int_eq(end - op, n);
        ck_assert_int_eq(ht_op_rank(s, op) % n, 0);
        for (int32_t q = 1; q < n; q++) ck_assert_int_eq(ht_op_rank(s, op + q), ht_op_rank(s, op) + q);
    }
}

/* One or two pipelines whose stages are cut into two or four parts: each gradient is summed with those of its part. */
START_TEST(tensor_parallel)
{
    static const enum ht_pipe_order orders[] = {HT_PIPE_AFAB, HT_PIPE_1F1B, HT_PIPE_INTERLEAVED};
    static const enum ht_control_mode controls[] = {HT_CONTROL_NONE, HT_CONTROL_GATE, HT_CONTROL_ROLLBACK};
    for (uint64_t seed = 0; seed < 60; seed++) {
        uint64_t i = 0;
        int32_t n = 1 + (int32_t)ht_random_below(seed, i++, 2), tp = 2 << ht_random_below(seed, i++, 2);
        int64_t stages = 1 + (int64_t)ht_random_below(seed, i++, 2), each = 2 * stages;
        int64_t ranks[2] = {stages * tp, stages * tp}, l[2] = {each, each},
                nodes = 1 + (int64_t)ht_random_below(seed, i++, 2);
        struct ht_scenario sc = pipe_scenario(n * stages * tp, nodes, 4, n * each);
        struct ht_layout *layout = NULL;
        struct ht_error err = {0};
        sc.control.mode = controls[ht_random_below(seed, i++, 3)];
        sc.model.tied = seed & 32;
        if (tp == 4) sc.model.kv_heads = 4;
        ck_assert_msg(ht_layout_pipelines(&sc, n, ranks, l, tp, &err, &layout) == HT_OK, "%s", err.text);
        struct ht_pipe_style y = {.order = orders[seed % 3],
                                  .v = 1,
                                  .d = 1,
                                  .layout = layout,
                                  .recompute = seed & 8,
                                  .blocking_sends = seed & 16,
                                  .slices = seed & 4};
        ck_assert_msg(ht_pipe_check(&sc, &y, &err) == HT_OK, "%s", err.text);
        struct ht_schedule *s = pipe_build(&sc, &y);
        struct ht_profile *costs = ht_profile_modelled(sc.cluster);
        check_passes(s, tp);
        runs_in_proved_memory(s, costs, seed, 1);
        ht_profile_destroy(costs);
        ht_schedule_destroy(s);
        ht_layout_destroy(layout);
        ht_scenario_free(&sc);
    }
}
END_TEST

/* One or two pipelines whose stages are of different widths, some cut in halves of blocks: where widths are alike, where they
   differ, and into a stage that is one half. */
START_TEST(widths_of_stages)
{
    static const enum ht_pipe_order orders[] = {HT_PIPE_AFAB, HT_PIPE_1F1B, HT_PIPE_INTERLEAVED};
    static const enum ht_control_mode controls[] = {HT_CONTROL_NONE, HT_CONTROL_GATE, HT_CONTROL_ROLLBACK};
    static const int64_t widths[][3] = {{1, 2, 1}, {2, 1, 2}, {1, 4, 1}, {2, 4, 2}, {4, 1, 4}, {1, 1, 2}, {2, 1, 1}};
    static const int64_t halves[][3] = {{3, 2, 3}, {3, 3, 2}, {2, 1, 5}, {3, 1, 4}};
    for (uint64_t seed = 0; seed < 168; seed++) {
        const int64_t *w = widths[seed % HT_COUNT(widths)];
        int32_t n = 1 + (int32_t)(seed / 7 % 2), each = (int32_t)(w[0] + w[1] + w[2]);
        int64_t ranks[2] = {each, each}, l[2] = {3, 3};
        struct ht_scenario sc = pipe_scenario(n * each, 1, 4, n * 3);
        struct ht_layout *layout = NULL;
        struct ht_error err = {0};
        sc.control.mode = controls[seed % 3];
        sc.model.tied = w[0] == w[2] && seed & 1;
        sc.model.kv_heads = 4;
        ck_assert_msg(ht_layout_pipelines(&sc, n, ranks, l, 1, &err, &layout) == HT_OK, "%s", err.text);
        ck_assert_msg(ht_layout_widen(layout, &sc, 3, w, &err) == HT_OK, "%s", err.text);
        bool cut = seed & 32 || (w[0] == 1 && w[1] == 1);
        sc.model.dropout = seed & 64;
        struct ht_pipe_style y = {.order = orders[seed / 3 % 3],
                                  .v = 1,
                                  .d = 1,
                                  .layout = layout,
                                  .zero = n > 1 ? (int32_t)(seed / 14 % 3) : 0,
                                  .halves = cut,
                                  .blocks = cut ? halves[seed / 3 % HT_COUNT(halves)] : NULL,
                                  .n_blocks = cut ? 3 : 0,
                                  .recompute = seed & 8,
                                  .blocking_sends = seed & 16,
                                  .slices = seed & 4};
        ck_assert_msg(ht_pipe_lay_out(&sc, &y, layout, &err) == HT_OK, "%s", err.text);
        ck_assert_msg(ht_pipe_check(&sc, &y, &err) == HT_OK, "%s", err.text);
        struct ht_schedule *s = pipe_build(&sc, &y);
        struct ht_profile *costs = ht_profile_modelled(sc.cluster);
        runs_in_proved_memory(s, costs, seed, 1);
        ht_profile_destroy(costs);
        ht_schedule_destroy(s);
        ht_layout_destroy(layout);
        ht_scenario_free(&sc);
    }
}
END_TEST

/* Two stages of n and m parts, one micro-batch of X = 16 x 64 numbers of 16 bits, 2048 bytes: in slices each way, X(3) and dX(3)
   cross once. Every part of n sends X / n, in as many messages as parts of m overlap with it; every part of m has X / m of its
   own and gathers the rest. One part alone receives them whole, and still joins several. */
START_TEST(slices_of_boundaries)
{
    static const struct {
        int64_t n, m;
        int messages; /* each way */
    } cases[] = {{1, 1, 1}, {2, 2, 2}, {1, 2, 2}, {2, 1, 2}, {4, 2, 4}, {2, 4, 4}, {4, 4, 4}};
    for (size_t i = 0; i < HT_COUNT(cases); i++) {
        int64_t widths[] = {cases[i].n, cases[i].m}, ranks = widths[0] + widths[1], l = 1;
        struct ht_scenario sc = pipe_scenario(ranks, 1, 4, 1);
        struct ht_layout *layout = NULL;
        struct ht_error err = {0};
        sc.model.kv_heads = 4;
        ck_assert_msg(ht_layout_pipelines(&sc, 1, &ranks, &l, 1, &err, &layout) == HT_OK, "%s", err.text);
        ck_assert_msg(ht_layout_widen(layout, &sc, 2, widths, &err) == HT_OK, "%s", err.text);
        struct ht_pipe_style y = {.order = HT_PIPE_1F1B, .v = 1, .d = 1, .layout = layout, .slices = true};
        struct ht_schedule *s = pipe_build(&sc, &y);
        int64_t sent[8] = {0}, received[8] = {0}, gathered[8] = {0}, x = 16 * sc.model.width * 2;
        int messages = 0;
        for (int32_t op = 0; op < s->n_ops; op++) {
            int64_t *of = s->ops[op].kind == HT_OP_SEND      ? sent
                          : s->ops[op].kind == HT_OP_RECEIVE ? received
                          : ht_joins_boundary(&s->ops[op])   ? gathered
                                                             : NULL;
            if (of) of[ht_op_rank(s, op)] += s->works[s->ops[op].work].bytes;
            if (of == gathered)
                ck_assert_int_eq(ht_group_end(s, op) - op, ht_layout_width_at(layout, ht_op_rank(s, op)) -
                                                               ht_layout_part(layout, ht_op_rank(s, op)));
            messages += of == sent;
        }
        ck_assert_int_eq(messages, 2 * cases[i].messages);
        for (int32_t r = 0; r < ranks; r++) {
            int64_t own = x / widths[r >= widths[0]];
            ck_assert_int_eq(sent[r], own);
            ck_assert_int_eq(received[r], own);
            ck_assert_int_eq(gathered[r], x - own);
        }
        ht_schedule_destroy(s);
        ht_layout_destroy(layout);
        ht_scenario_free(&sc);
    }
}
END_TEST

START_TEST(widths_that_do_not_fit)
{
    static const struct {
        int64_t widths[2];
        enum ht_status status;
        const char *says;
    } cases[] = {
        {{1, 1}, HT_BAD_INPUT, "widths adds up to 2 devices; expected the 3 of pipeline 0"},
        {{1, 3}, HT_BAD_INPUT, "width 3 of stage 1 does not divide the 4 heads of llama-tiny"},
        {{1, 2},
         HT_INFEASIBLE,
         "llama-tiny ties its head to the token table, and the first stage has 1 part, the last one 2: expected as "
         "many, or "
         "an untied model"},
    };
    for (size_t i = 0; i < HT_COUNT(cases); i++) {
        struct ht_scenario sc = pipe_scenario(3, 1, 4, 2);
        struct ht_layout *layout = NULL;
        struct ht_error err = {0};
        sc.model.tied = true;
        ck_assert_int_eq(ht_layout_pipelines(&sc, 1, (int64_t[]){3}, (int64_t[]){2}, 1, &err, &layout), HT_OK);
        ck_assert_int_eq(ht_layout_widen(layout, &sc, 2, cases[i].widths, &err), cases[i].status);
        ck_assert_str_eq(err.text, cases[i].says);
        ht_layout_destroy(layout);
        ht_scenario_free(&sc);
    }
}
END_TEST

/* Returns the layout of n pipelines of widths 1 and 2, for a style with these half blocks. */
static struct ht_layout *one_and_two(const struct ht_scenario *sc, int32_t n)
{
    struct ht_layout *layout = NULL;
    struct ht_error err = {0};
    ck_assert_int_eq(ht_layout_pipelines(sc, n, (int64_t[]){3, 3}, (int64_t[]){2, 2}, 1, &err, &layout), HT_OK);
    ck_assert_int_eq(ht_layout_widen(layout, sc, 2, (int64_t[]){1, 2}, &err), HT_OK);
    return layout;
}

/* A block in one part in one pipeline and in two in the other has gradients that do not match. */
START_TEST(widths_of_a_block_are_alike)
{
    struct ht_scenario sc = pipe_scenario(6, 1, 4, 4);
    struct ht_error err = {0};
    struct ht_layout *layout = one_and_two(&sc, 2);
    static const int64_t blocks[] = {1, 3, 2, 2};
    struct ht_pipe_style y = {
        .order = HT_PIPE_1F1B, .v = 1, .d = 1, .layout = layout, .blocks = blocks, .n_blocks = HT_COUNT(blocks)};
    ck_assert_int_eq(ht_pipe_check(&sc, &y, &err), HT_BAD_INPUT);
    ck_assert_str_eq(err.text, "block 1 is in 2 parts in pipeline 0 and in 1 in pipeline 1; expected as many");
    ht_layout_destroy(layout);
    ht_scenario_free(&sc);
}
END_TEST

/* Block 1's attention is in one part, its MLP in two: each half has its own number of parts, and its own range in all
   classes of states. */
START_TEST(halves_of_different_widths)
{
    static const int64_t halves[] = {3, 5};
    static const char *const texts[] = {"", "the unit is divided into 1 parts here", "begin at element",
                                        "end at element", "but has tensor"};
    for (size_t i = 0; i < HT_COUNT(texts); i++) {
        struct ht_scenario sc = pipe_scenario(3, 1, 4, 2);
        struct ht_error err = {0};
        struct ht_layout *layout = one_and_two(&sc, 1);
        struct ht_pipe_style y = {.order = HT_PIPE_1F1B,
                                  .v = 1,
                                  .d = 1,
                                  .layout = layout,
                                  .halves = true,
                                  .blocks = halves,
                                  .n_blocks = HT_COUNT(halves)};
        ck_assert_msg(ht_pipe_lay_out(&sc, &y, layout, &err) == HT_OK, "%s", err.text);
        struct ht_schedule *s = pipe_build(&sc, &y);
        struct ht_tensor *m = of_mlp(s, HT_MOMENTUM, 1), *v = of_mlp(s, HT_VARIANCE, 1);
        if (i == 1) m->part = 0, m->parts = 1;
        if (i == 2) v->shard_begin += 8;
        if (i == 3) v->shard_end -= 8;
        if (i == 4) m->part = !m->part;
        ck_assert_msg(ht_schedule_verify(s, &err, NULL) == (i ? HT_FAILED : HT_OK), "case %zu: %s", i, err.text);
        if (i) ck_assert_msg(strstr(err.text, texts[i]) != NULL, "%s", err.text);
        ht_schedule_destroy(s);
        ht_layout_destroy(layout);
        ht_scenario_free(&sc);
    }
}
END_TEST

/* Two GPipes of two devices, two blocks, one and three micro-batches; T_f = 1, T_b = 2. The last device's gradients are
   there at 3 in the first and at 3 + 1 + 3 x 2 = 10 in the second: f f f at 1, 2, 3, then b b b. */
START_TEST(all_reduces_start_when_the_last_has_its_sum)
{
    struct ht_scenario sc = pipe_scenario(4, 1, 2, 4);
    struct ht_error err = {0};
    struct ht_layout *layout = NULL;
    ck_assert_msg(ht_layout_pipelines(&sc, 2, (int64_t[]){2, 2}, (int64_t[]){1, 3}, 1, &err, &layout) == HT_OK, "%s",
                  err.text);
    struct ht_pipe_style y = pipe_gpipe;
    y.layout = layout;
    struct pipe_run r =
        pipe_run(pipe_build(&sc, &y), &y, (struct pipe_prices){.forward = 1, .backward = 2}, 1, 0, NULL);
    ck_assert_double_eq_tol(pipe_start(&r, 0, "AR2"), 10, 1e-9); /* the block of the last stages */
    ck_assert_double_eq_tol(pipe_start(&r, 0, "AR1"), 12, 1e-9); /* that of the first: a backward later */
    pipe_run_free(&r);
    ht_layout_destroy(layout);
    ht_scenario_free(&sc);
}
END_TEST

START_TEST(blocks_of_stages)
{
    static const struct {
        int64_t blocks[3];
        int32_t n;
        const char *says;
    } cases[] = {
        {{3, 1, 1}, 3, NULL},
        {{3, 2}, 2, "blocks has 2 elements; expected 3, one a stage"},
        {{3, 1, 2}, 3, "the stages of a pipeline have 6 blocks: expected the 5 of llama-tiny"},
    };
    for (size_t i = 0; i < HT_COUNT(cases); i++) {
        struct ht_scenario sc = pipe_scenario(3, 1, 5, 2);
        struct ht_pipe_style y = pipe_gpipe;
        struct ht_error err = {0};
        y.blocks = cases[i].blocks;
        y.n_blocks = cases[i].n;
        ck_assert_int_eq(ht_pipe_check(&sc, &y, &err), cases[i].says ? HT_BAD_INPUT : HT_OK);
        if (cases[i].says) {
            ck_assert_str_eq(err.text, cases[i].says);
        } else {
            static const int32_t rank_of[] = {0, 0, 0, 0, 1, 2, 2}; /* embedding, blocks, head */
            struct ht_schedule *s = pipe_build(&sc, &y);
            ck_assert_msg(ht_schedule_verify(s, &err, NULL) == HT_OK, "%s", err.text);
            for (int32_t t = 0; t < s->n_tensors; t++)
                if (s->tensors[t].class == HT_PARAM)
                    ck_assert_int_eq(s->tensors[t].rank, rank_of[s->tensors[t].label.unit]);
            ht_schedule_destroy(s);
        }
        ht_scenario_free(&sc);
    }
}
END_TEST

/* ---- shared states --------------------------------------------------------------------------------------------- */

/* Two pipelines of two stages, llama-tiny's four blocks, tp 2, three micro-batches each, in 16 bits with FP32 sums. */
static struct ht_schedule *build_sharing(struct ht_scenario *sc, struct ht_pipe_style y)
{
    struct ht_layout *layout = NULL;
    struct ht_error err = {0};
    *sc = pipe_scenario(8, 1, 4, 6);
    ck_assert_msg(ht_layout_pipelines(sc, 2, (int64_t[]){4, 4}, (int64_t[]){3, 3}, 2, &err, &layout) == HT_OK, "%s",
                  err.text);
    y.layout = layout;
    ck_assert_msg(ht_pipe_lay_out(sc, &y, layout, &err) == HT_OK, "%s", err.text);
    ck_assert_msg(ht_pipe_check(sc, &y, &err) == HT_OK, "%s", err.text);
    struct ht_schedule *s = pipe_build(sc, &y);
    ck_assert_msg(ht_schedule_verify(s, &err, NULL) == HT_OK, "%s", err.text);
    ht_layout_destroy(layout);
    return s;
}

/* Counts the ops of a kind about a unit on a rank, and adds up the bytes that they send. */
static int count_ops(const struct ht_schedule *s, enum ht_op_kind kind, int32_t unit, int32_t rank, int64_t *bytes)
{
    int n = 0;
    for (int32_t op = 0; op < s->n_ops; op++) {
        const struct ht_label *l = &s->ops[op].label;
        if (s->ops[op].kind != kind || l->unit > unit || unit >= l->unit + l->n_units || ht_op_rank(s, op) != rank)
            continue;
        *bytes += s->works[s->ops[op].work].bytes;
        n++;
    }
    return n;
}

/*
 * Unit 1 is on ranks 0 and 4 in part 0, a half E of its part's elements on each: of P 2 E bytes, of W, M and V 4 E each.
 *
 *                     gathers    reductions                     bytes each way
 *     whole states               AR x 1, of FP32 sums           2 x 4 E
 *     ZeRO-1          AG x 1     RS x 1, of FP32 sums           4 E, and 2 E gathered
 *       all-reduced   AG x 1     AR x 1                         2 x 4 E
 *     ZeRO-2          AG x 1     RS x 3, of 16-bit gradients    3 x 2 E
 */
START_TEST(shared_states)
{
    static const struct {
        int32_t zero;
        bool whole;
        int gathers, scatters, sums;
        int64_t bytes; /* in E */
    } cases[] = {{0, false, 0, 0, 1, 8}, {1, false, 1, 1, 0, 4}, {1, true, 1, 0, 1, 8}, {2, false, 1, 3, 0, 6}};
    for (size_t i = 0; i < HT_COUNT(cases); i++) {
        struct ht_scenario sc;
        struct ht_pipe_style y = pipe_gpipe;
        y.zero = cases[i].zero;
        y.reduce_whole = cases[i].whole;
        struct ht_schedule *s = build_sharing(&sc, y);
        struct ht_model part = ht_model_part(&sc.model, 0, 2);
        int64_t params = ht_unit_params(&part, 1), e = (params + 1) / 2, gathered = 0, reduced = 0;
        ck_assert_int_eq(count_ops(s, HT_OP_ALL_GATHER, 1, 4, &gathered), cases[i].gathers);
        ck_assert_int_eq(count_ops(s, HT_OP_REDUCE_SCATTER, 1, 4, &reduced), cases[i].scatters);
        ck_assert_int_eq(count_ops(s, HT_OP_ALL_REDUCE, 1, 4, &reduced), cases[i].sums);
        ck_assert_int_eq(gathered, cases[i].gathers * 2 * e);
        ck_assert_int_eq(reduced, cases[i].bytes * e);
        int64_t held = 0;
        for (int32_t r = 0; r < s->n_residents; r++) {
            const struct ht_tensor *t = &s->tensors[s->residents[r].tensor];
            if (t->rank == 4 && t->label.unit == 1) held += t->bytes;
        }
        ck_assert_int_eq(held,
                         cases[i].zero ? 12 * e : (2 + 12) * params); /* shards of P are cast where they are gathered */
        ht_schedule_destroy(s);
        ht_scenario_free(&sc);
    }
}
END_TEST

/* A bucket has units that the same ranks have, from the last one down, here as many elements as two blocks at most; it
   waits for the passes. The head, unit 5, is smaller than a block, and units 3 to 5 are on the second stages: 5 4 | 3 | 2 1
   | 0. Steps of units follow in the same order. */
START_TEST(buckets)
{
    static const int32_t first[] = {4, 3, 1, 0}, n[] = {2, 1, 2, 1};
    struct ht_scenario sc;
    struct ht_pipe_style y = pipe_gpipe;
    sc = pipe_scenario(8, 1, 4, 6);
    struct ht_model part = ht_model_part(&sc.model, 0, 2);
    y.bucket = 2 * ht_unit_params(&part, 1);
    y.step_units = true;
    ht_scenario_free(&sc);
    struct ht_schedule *s = build_sharing(&sc, y);
    int reduced = 0, stepped = 0;
    int32_t last_pass = -1;
    for (int32_t op = 0; op < s->n_ops; op++) {
        const struct ht_label *l = &s->ops[op].label;
        if (s->ops[op].kind == HT_OP_BACKWARD) last_pass = op;
        if (s->ops[op].kind == HT_OP_ALL_REDUCE && ht_op_rank(s, op) % 4 == (l->unit > 2 ? 2 : 0) &&
            ht_op_rank(s, op) < 4) {
            ck_assert_int_gt(op, last_pass);
            ck_assert_int_eq(l->unit, first[reduced]);
            ck_assert_int_eq(l->n_units, n[reduced]);
            reduced++;
        }
        if (s->ops[op].kind == HT_OP_OPTIMIZER_STEP && ht_op_rank(s, op) == (l->unit > 2 ? 2 : 0))
            ck_assert_int_eq(l->unit, 5 - stepped++);
    }
    ck_assert_int_eq(reduced, HT_COUNT(n));
    ck_assert_int_eq(stepped, 6);
    ht_schedule_destroy(s);
    ht_scenario_free(&sc);
}
END_TEST

/* What cannot share states. */
START_TEST(cannot_share)
{
    static const struct {
        int32_t zero, n;
        int64_t ranks[2], l[2];
        const char *says;
    } cases[] = {{1, 1, {4}, {6}, "ZeRO-1 with one pipeline: expected several"},
                 {1, 2, {3, 1}, {2, 4}, NULL},
                 {2, 2, {2, 2}, {2, 4}, "ZeRO-2 with pipelines that differ"},
                 {2, 2, {3, 1}, {3, 3}, "ZeRO-2 with pipelines that differ"},
                 {2, 2, {2, 2}, {3, 3}, NULL}};
    for (size_t i = 0; i < HT_COUNT(cases); i++) {
        struct ht_scenario sc = pipe_scenario(4, 1, 4, 6);
        struct ht_layout *layout = NULL;
        struct ht_error err = {0};
        ck_assert(ht_layout_pipelines(&sc, cases[i].n, cases[i].ranks, cases[i].l, 1, &err, &layout) == HT_OK);
        struct ht_pipe_style y = pipe_gpipe;
        y.layout = layout;
        y.zero = cases[i].zero;
        ck_assert_int_eq(ht_pipe_check(&sc, &y, &err), cases[i].says ? HT_BAD_INPUT : HT_OK);
        if (cases[i].says) ck_assert_msg(strstr(err.text, cases[i].says), "%s", err.text);
        ht_layout_destroy(layout);
        ht_scenario_free(&sc);
    }
}
END_TEST

/* ---- orders of sums --------------------------------------------------------------------------------------------- */

/* Stages do not change the order of sums, and pipelines do if one has several micro-batches: (g0 + g1) + (g2 + g3). A
   tied table's is that of one device, or, on two stages, that of any others: (h0 + h1) + (e0 + e1). */
START_TEST(orders_of_sums)
{
    const int64_t ranks[] = {2, 1}, two_each[] = {2, 2}, one_each[] = {1, 1};
    for (int tied = 0; tied < 2; tied++) {
        uint64_t device = sum_order_of_one(tied, HT_PIPE_AFAB, 1, 4),
                 stages = sum_order_of_one(tied, HT_PIPE_AFAB, 2, 4);
        ck_assert_int_eq(device == stages, !tied);
        ck_assert(sum_order_of_one(tied, HT_PIPE_1F1B, 1, 4) == device);
        ck_assert(sum_order_of_one(tied, HT_PIPE_1F1B, 3, 4) == stages);
        ck_assert(sum_order_of_one(tied, HT_PIPE_INTERLEAVED, 2, 4) == stages);
        ck_assert(sum_order_of_one(tied, HT_PIPE_AFAB, 2, 5) != stages);
        ck_assert(sum_order(tied, HT_PIPE_AFAB, 2, ranks, two_each) != stages);
        ck_assert_int_eq(
            sum_order(tied, HT_PIPE_AFAB, 2, ranks, one_each) == sum_order_of_one(tied, HT_PIPE_AFAB, 2, 2), !tied);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pipelines");
    TCase *t = tcase_create("pipelines");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, any_depths);
    tcase_add_test(t, tensor_parallel);
    tcase_add_test(t, widths_of_stages);
    tcase_add_test(t, slices_of_boundaries);
    tcase_add_test(t, widths_that_do_not_fit);
    tcase_add_test(t, widths_of_a_block_are_alike);
    tcase_add_test(t, halves_of_different_widths);
    tcase_add_test(t, all_reduces_start_when_the_last_has_its_sum);
    tcase_add_test(t, blocks_of_stages);
    tcase_add_test(t, shared_states);
    tcase_add_test(t, buckets);
    tcase_add_test(t, cannot_share);
    tcase_add_test(t, orders_of_sums);
    suite_add_tcase(suite, t);
    SRunner *r = srunner_create(suite);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
