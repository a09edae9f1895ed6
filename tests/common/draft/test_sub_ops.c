/* A block's activations cut by sub-op: rows, effects, works and labels by hand; cut drafts of several ranks; passes in
   halves, with their memory by hand. */
#include "common/base/array.h"
#include "common/draft/draft_extra.h"
#include "common/profile/profile.h"
#include "tests/support/proved.h"
#include "tests/support/scenario.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define SUB(name) (1u << HT_SUB_##name)

static struct ht_scenario scenario_of(int64_t ranks, const char *control)
{
    struct ht_scenario_request r = {.model = "gpt2-124m",
                                    .blocks = 2,
                                    .cluster = "autohete-4gpu",
                                    .batch = 8,
                                    .micro_batch = 2,
                                    .control = control};
    struct ht_scenario s = scenario_from(&r);
    use_gpus(&s, ranks);
    s.batch = 4 * ranks;
    return s;
}

/* Block 1: norm1 and qkv stay, attention and proj wait on the host, the others are dropped. Block 2 is whole. */
static const unsigned kept = SUB(NORM1) | SUB(QKV), moved = SUB(ATTENTION) | SUB(PROJ), first = SUB(NORM2) | SUB(FC1),
                      last = SUB(GELU) | SUB(FC2);

static void emit(struct ht_draft *g, const void *context)
{
    const unsigned sub_ops[] = {kept, moved, first, last};
    (void)context;
    for (int32_t u = 0; u < g->n_units; u++) {
        ht_draft_place(g, g->param[u], HT_DEVICE);
        ht_draft_place_states(g, u, HT_DEVICE);
    }
    for (int32_t j = 0; j < g->n_mb; j++) {
        ht_draft_cut(g, 1, j, sub_ops, 4);
        int32_t row = g->a[ht_draft_at(g, 1, j)][HT_SUB_PROJ];
        for (int32_t u = 0; u < g->n_units; u++) {
            ht_draft_forward(g, u, j, u == 1 ? kept | moved : HT_ALL_SUB_OPS);
            if (u == 1) ht_draft_copy(g, row, HT_DEVICE, HT_HOST, HT_PRODUCE, true);
        }
        for (int32_t u = g->n_units - 1; u >= 0; u--) {
            if (u == 1) {
                ht_draft_copy(g, row, HT_HOST, HT_DEVICE, HT_PRODUCE, true);
                ht_draft_recompute(g, u, 1, j, first);
                ht_draft_recompute(g, u, 1, j, last);
            }
            ht_draft_backward(g, u, j);
            if (j) ht_draft_accumulate(g, g->lanes->compute, u, j);
        }
    }
    for (int32_t u = 0; u < g->n_units; u++) ht_draft_step(g, g->lanes->compute, u, 1, true);
}

static struct ht_schedule *build(const struct ht_scenario *sc)
{
    struct ht_program program = {.name = "cut", .emit = emit};
    struct ht_error err = {0};
    struct ht_schedule *s = NULL;
    ck_assert_msg(ht_build_graph(sc, &program, &err, &s) == HT_OK, "%s", err.text);
    return s;
}

static int32_t titled(const struct ht_schedule *s, const char *title)
{
    char text[128];
    for (int32_t op = 0; op < s->n_ops; op++)
        if (!strcmp(ht_op_label(s, op, text, sizeof text), title)) return op;
    ck_abort_msg("no op is called %s", title);
    return -1;
}

/* Returns the flags of the op's effect on block 1's row of these sub-ops, micro-batch 0; 0 if it has none. */
static unsigned flags_on(const struct ht_schedule *s, int32_t op, unsigned sub_ops, enum ht_tier tier)
{
    for (int64_t e = s->effects_begin[op]; e < s->effects_begin[op + 1]; e++) {
        const struct ht_tensor *t = &s->tensors[s->effects[e].tensor];
        if (t->class == HT_ACTIVATION && t->label.unit == 1 && t->label.micro_batch == 0 &&
            t->label.sub_ops == sub_ops && s->effects[e].tier == tier)
            return s->effects[e].flags;
    }
    return 0;
}

START_TEST(test_rows_and_effects)
{
    struct ht_scenario sc = scenario_of(1, NULL);
    struct ht_schedule *s = build(&sc);
    static const struct {
        const char *title;
        unsigned kept, moved, first, last; /* on the device */
    } expected[] = {
        {"F1.0", HT_PRODUCE, HT_PRODUCE, HT_PRODUCE | HT_RELEASE, HT_PRODUCE | HT_RELEASE},
        {"d2h activation 1.0 (attention, proj)", 0, HT_NEED | HT_RELEASE, 0, 0},
        {"h2d activation 1.0 (attention, proj)", 0, HT_PRODUCE, 0, 0},
        {"R1.0 (norm2, fc1)", 0, HT_NEED, HT_PRODUCE, 0},
        {"R1.0 (gelu, fc2)", 0, 0, HT_NEED, HT_PRODUCE},
        {"B1.0", HT_NEED | HT_RELEASE, HT_NEED | HT_RELEASE, HT_NEED | HT_RELEASE, HT_NEED | HT_RELEASE},
    };
    for (size_t i = 0; i < HT_COUNT(expected); i++) {
        int32_t op = titled(s, expected[i].title);
        ck_assert_uint_eq(flags_on(s, op, kept, HT_DEVICE), expected[i].kept);
        ck_assert_uint_eq(flags_on(s, op, moved, HT_DEVICE), expected[i].moved);
        ck_assert_uint_eq(flags_on(s, op, first, HT_DEVICE), expected[i].first);
        ck_assert_uint_eq(flags_on(s, op, last, HT_DEVICE), expected[i].last);
    }
    int64_t bytes = 0;
    for (int32_t t = 0; t < s->n_tensors; t++) {
        const struct ht_label *l = &s->tensors[t].label;
        if (s->tensors[t].class == HT_ACTIVATION && l->unit == 1 && l->micro_batch == 1) bytes += s->tensors[t].bytes;
    }
    ck_assert_int_eq(bytes, ht_unit_activation_bytes(&sc.model, 1, 2, sc.seq, sc.numerics.param));
    ht_schedule_destroy(s);
    ht_scenario_free(&sc);
}
END_TEST

/* The input is read where norm1 or proj is among the sub-ops, scratch is there where attention is. The work is without
   fc2, which keeps nothing; a work of fc2 alone is free. */
START_TEST(test_what_a_recomputation_needs)
{
    struct ht_scenario sc = scenario_of(1, NULL);
    struct ht_draft g;
    static const struct {
        unsigned sub_ops;
        bool input, scratch;
        const char *key;
    } cases[] = {
        {SUB(NORM1), true, false, "recompute block sub_ops=norm1 batch=2"},
        {SUB(QKV) | SUB(ATTENTION), false, true, "recompute block sub_ops=qkv+attention batch=2"},
        {SUB(PROJ), true, false, "recompute block sub_ops=proj batch=2"},
        {SUB(NORM2) | SUB(FC1) | SUB(GELU), false, false, "recompute block sub_ops=norm2+fc1+gelu batch=2"},
        {SUB(FC2), false, false, "recompute free"},
        {HT_ALL_SUB_OPS, true, true, "recompute block batch=2"},
    };
    for (size_t i = 0; i < HT_COUNT(cases); i++) {
        unsigned sub_ops[] = {cases[i].sub_ops, HT_ALL_SUB_OPS & ~cases[i].sub_ops};
        bool input = false, scratch = false;
        char key[HT_WORK_KEY_MAX];
        ht_draft_begin(&g, &sc, &(struct ht_program){.name = "one op"});
        ht_draft_cut(&g, 1, 0, sub_ops, sub_ops[1] ? 2 : 1);
        int32_t op = ht_draft_recompute(&g, 1, 1, 0, cases[i].sub_ops);
        struct ht_schedule *s = g.schedule;
        for (int64_t e = s->effects_begin[op]; e < s->effects_begin[op + 1]; e++) {
            enum ht_tensor_class class = s->tensors[s->effects[e].tensor].class;
            input |= class == HT_CHECKPOINT;
            scratch |= class == HT_WORKSPACE;
        }
        ck_assert_int_eq(input, cases[i].input);
        ck_assert_int_eq(scratch, cases[i].scratch);
        ck_assert_uint_eq(s->ops[op].label.sub_ops, cases[i].sub_ops);
        ht_work_key(&s->works[s->ops[op].work], key, sizeof key);
        ck_assert_msg(!strncmp(key, cases[i].key, strlen(cases[i].key)), "%s", key);
        ht_schedule_destroy(ht_draft_end(&g));
    }
    ht_scenario_free(&sc);
}
END_TEST

/* Sharded over ranks, and under control: proved, and simulated in exactly the proved memory. */
START_TEST(test_ranks_and_control)
{
    static const char *const controls[] = {NULL, "gate", "rollback"};
    for (int64_t ranks = 1; ranks <= 4; ranks += ranks) {
        struct ht_scenario sc = scenario_of(ranks, controls[_i]);
        struct ht_profile *costs = ht_profile_modelled(sc.cluster);
        struct ht_schedule *s = build(&sc);
        runs_in_proved_memory(s, costs, 1, 3);
        ht_schedule_destroy(s);
        ht_profile_destroy(costs);
        ht_scenario_free(&sc);
    }
}
END_TEST

/* ---- halves ---- */

static const unsigned before = SUB(NORM1) | SUB(QKV) | SUB(ATTENTION), proj = SUB(PROJ), mlp = HT_MLP_HALF;

/* Blocks keep proj and recompute the rest, in halves or in one. */
static void emit_halves(struct ht_draft *g, const void *context)
{
    const unsigned sub_ops[] = {before, proj, mlp};
    bool halves = context;
    for (int32_t u = 0; u < g->n_units; u++) {
        ht_draft_place(g, g->param[u], HT_DEVICE);
        ht_draft_place_states(g, u, HT_DEVICE);
        if (ht_draft_kind(g, u) == HT_UNIT_BLOCK) ht_draft_cut(g, u, 0, sub_ops, 3);
    }
    for (int32_t u = 0; u < g->n_units; u++) {
        if (halves && ht_draft_kind(g, u) == HT_UNIT_BLOCK) {
            ht_draft_forward_half(g, u, 0, HT_ATTENTION_HALF, proj);
            ht_draft_forward_half(g, u, 0, HT_MLP_HALF, proj);
        } else {
            ht_draft_forward(g, u, 0, ht_draft_kind(g, u) == HT_UNIT_BLOCK ? proj : HT_ALL_SUB_OPS);
        }
    }
    for (int32_t u = g->n_units - 1; u >= 0; u--) {
        bool block = ht_draft_kind(g, u) == HT_UNIT_BLOCK;
        if (block && halves) {
            ht_draft_recompute(g, u, 1, 0, mlp);
            ht_draft_backward_half(g, u, 0, HT_MLP_HALF);
            ht_draft_recompute(g, u, 1, 0, before);
            ht_draft_backward_half(g, u, 0, HT_ATTENTION_HALF);
        } else {
            if (block) ht_draft_recompute(g, u, 1, 0, before | mlp);
            ht_draft_backward(g, u, 0);
        }
    }
    for (int32_t u = 0; u < g->n_units; u++) ht_draft_step(g, g->lanes->compute, u, 1, true);
}

static struct ht_schedule *build_halves(const struct ht_scenario *sc, bool halves)
{
    struct ht_program program = {.name = "halves", .emit = emit_halves, .context = halves ? sc : NULL};
    struct ht_error err = {0};
    struct ht_schedule *s = NULL;
    ck_assert_msg(ht_build_graph(sc, &program, &err, &s) == HT_OK, "%s", err.text);
    return s;
}

/* Returns the flags of an op's effect on the device tensor of this class and unit, 0 if it has none. */
static unsigned flags_of(const struct ht_schedule *s, int32_t op, enum ht_tensor_class class, int32_t unit)
{
    for (int64_t e = s->effects_begin[op]; e < s->effects_begin[op + 1]; e++) {
        const struct ht_tensor *t = &s->tensors[s->effects[e].tensor];
        if (t->class == class && t->label.unit == unit) return s->effects[e].flags;
    }
    return 0;
}

/* Returns the bytes on the device while an op runs, ops one at a time. */
static int64_t bytes_at(const struct ht_schedule *s, int32_t op)
{
    int64_t live = 0;
    for (int32_t i = 0; i < s->n_residents; i++) live += ht_resident_bytes(s, &s->residents[i]);
    for (int64_t e = 0; e < s->effects_begin[op + 1]; e++) {
        bool here = e >= s->effects_begin[op];
        if (s->effects[e].flags & HT_PRODUCE) live += ht_effect_bytes(s, &s->effects[e]);
        if (s->effects[e].flags & HT_RELEASE && !here) live -= ht_effect_bytes(s, &s->effects[e]);
    }
    return live;
}

/* Each half makes, reads and frees its own rows. proj is made by the attention's half and freed by the MLP's, dX(1) and
   G(1) are made by the MLP's half and finished by the attention's. */
START_TEST(test_halves_effects)
{
    enum { N = HT_NEED, P = HT_PRODUCE, U = HT_UPDATE, R = HT_RELEASE };
    struct ht_scenario sc = scenario_of(1, NULL);
    sc.batch = sc.micro_batch;
    struct ht_schedule *s = build_halves(&sc, true);
    static const struct {
        const char *title;
        unsigned before, proj, mlp, x, out, dout, dx, grad, scratch;
        const char *key;
    } expected[] = {
        {"F1 (norm1, qkv, attention, proj)", P | R, P, 0, N, 0, 0, 0, 0, P | R,
         "forward block sub_ops=norm1+qkv+attention+proj batch=2"},
        {"F1 (norm2, fc1, gelu, fc2)", 0, N, P | R, 0, P, 0, 0, 0, 0,
         "forward block sub_ops=norm2+fc1+gelu+fc2 batch=2"},
        {"R1 (norm2, fc1, gelu, fc2)", 0, N, P, 0, 0, 0, 0, 0, 0, "recompute block sub_ops=norm2+fc1+gelu batch=2"},
        {"B1 (norm2, fc1, gelu, fc2)", 0, N | R, N | R, 0, 0, N | R, P, P, P | R,
         "backward block sub_ops=norm2+fc1+gelu+fc2 batch=2"},
        {"R1 (norm1, qkv, attention)", P, 0, 0, N, 0, 0, 0, 0, P | R,
         "recompute block sub_ops=norm1+qkv+attention batch=2"},
        {"B1 (norm1, qkv, attention, proj)", N | R, 0, 0, N | R, 0, 0, U, U, P | R,
         "backward block sub_ops=norm1+qkv+attention+proj batch=2"},
    };
    for (size_t i = 0; i < HT_COUNT(expected); i++) {
        int32_t op = titled(s, expected[i].title);
        char key[HT_WORK_KEY_MAX];
        ck_assert_uint_eq(flags_on(s, op, before, HT_DEVICE), expected[i].before);
        ck_assert_uint_eq(flags_on(s, op, proj, HT_DEVICE), expected[i].proj);
        ck_assert_uint_eq(flags_on(s, op, mlp, HT_DEVICE), expected[i].mlp);
        ck_assert_uint_eq(flags_of(s, op, HT_CHECKPOINT, 1), expected[i].x);
        ck_assert_uint_eq(flags_of(s, op, HT_CHECKPOINT, 2), expected[i].out);
        ck_assert_uint_eq(flags_of(s, op, HT_ACT_GRAD, 2), expected[i].dout);
        ck_assert_uint_eq(flags_of(s, op, HT_ACT_GRAD, 1), expected[i].dx);
        ck_assert_uint_eq(flags_of(s, op, HT_GRAD, 1), expected[i].grad);
        ck_assert_uint_eq(flags_of(s, op, HT_WORKSPACE, 1), expected[i].scratch);
        ht_work_key(&s->works[s->ops[op].work], key, sizeof key);
        ck_assert_msg(!strncmp(key, expected[i].key, strlen(expected[i].key)), "%s", key);
    }
    struct ht_profile *costs = ht_profile_modelled(sc.cluster);
    runs_in_proved_memory(s, costs, 1, 3);
    ht_profile_destroy(costs);
    ht_schedule_destroy(s);
    ht_scenario_free(&sc);
}
END_TEST

/* GPT-2 small, B = 2, T = 1024, FP16: u = (B,T,C) = 3145728 bytes, statistics of a norm 2 * 2048 * 4 = 16384,
   probabilities 2 * 12 * 1024^2 * 2 = 50331648; 24 slots have tiles of 64 * 1024 * 4 = 262144 bytes, and dk and dv of
   2 * 1024 * 64 * 4 = 524288. While the MLP's half of B1 runs, the rows of the attention's are not there (5 u,
   statistics, probabilities), and of the workspace not (B,T,C) and the slots. While the attention's runs, proj, dX(2)
   and the MLP's row (2 u; 9 u, statistics) are not there, and the workspace is (B,T,3C) wide instead of (B,T,4C). */
START_TEST(test_halves_memory)
{
    struct ht_scenario sc = scenario_of(1, NULL);
    sc.batch = sc.micro_batch;
    ck_assert(!sc.model.flash && sc.model.width == 768 && sc.seq == 1024 && sc.numerics.param == HT_F16);
    struct ht_schedule *whole = build_halves(&sc, false), *s = build_halves(&sc, true);
    const int64_t u = 3145728, stats = 16384, probs = 50331648, slots = 24 * (int64_t)(262144 + 524288);
    int64_t most = bytes_at(whole, titled(whole, "B1"));
    ck_assert_int_eq(most - bytes_at(s, titled(s, "B1 (norm2, fc1, gelu, fc2)")), 5 * u + stats + probs + u + slots);
    ck_assert_int_eq(most - bytes_at(s, titled(s, "B1 (norm1, qkv, attention, proj)")), 11 * u + stats + u);
    ht_schedule_destroy(whole);
    ht_schedule_destroy(s);
    ht_scenario_free(&sc);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sub_ops");
    TCase *t = tcase_create("sub_ops");
    tcase_add_test(t, test_rows_and_effects);
    tcase_add_test(t, test_what_a_recomputation_needs);
    tcase_add_loop_test(t, test_ranks_and_control, 0, 3);
    tcase_add_test(t, test_halves_effects);
    tcase_add_test(t, test_halves_memory);
    suite_add_tcase(suite, t);
    SRunner *r = srunner_create(suite);
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
