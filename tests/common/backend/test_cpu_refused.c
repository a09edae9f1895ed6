/* The CPU backend refuses schedules, models and numerics that it cannot run, each with one line that says why. */
#include "common/schedule/verify.h"
#include "tests/common/backend/cpu_graph.h"

/* Builds the plain variant, lets `spoil` break it, and expects the backend to refuse it with this text. */
static void refused(const struct variant *variant, void (*spoil)(struct graph *g), const char *text)
{
    struct variant v = *variant;
    struct graph g;
    struct outcome o = {0};
    struct ht_error err = {0};
    struct ht_trace *t;
    build(&g, &v);
    spoil(&g);
    ck_assert_int_eq(train(&v, &g, NULL, false, &o, &t, &err), HT_FAILED);
    ck_assert_msg(strstr(err.text, text) && strstr(err.text, "on the cpu backend"), "%s", err.text);
    ck_assert_ptr_null(t);
    ht_schedule_destroy(g.s);
}

static void expect_refusal(void (*spoil)(struct graph *g), const char *text)
{
    refused(&(struct variant){.n_mb = 1, .tied = true}, spoil, text);
}

static void lose_effect(struct graph *g)
{
    g->s->effects[g->s->effects_begin[0]].flags = HT_RELEASE;
}
static void grow_tensor(struct graph *g)
{
    g->s->tensors[g->x[1][0]].bytes += 4;
}
static void shrink_workspace(struct graph *g)
{
    for (int32_t i = 0; i < g->s->n_tensors; i++)
        if (g->s->tensors[i].class == HT_WORKSPACE) g->s->tensors[i].bytes = 64;
}
static void move_lane(struct graph *g)
{
    g->s->ops[0].lane = g->h2d;
}
static void lonely_collective(struct graph *g)
{
    g->s->ops[0].kind = HT_OP_ALL_GATHER;
}
static void lonely_part(struct graph *g)
{
    g->s->works[g->pass].tp = 2;
}
static void three_parts(struct graph *g)
{
    g->s->works[g->pass].tp = 3;
    for (int32_t op = 0; op < 3; op++) g->s->ops[op].match = 0;
}
static void beyond_model(struct graph *g)
{
    g->s->ops[0].label.n_units = UNITS + 1;
}
static void long_sequence(struct graph *g)
{
    g->s->works[g->pass].seq = 25;
}
static void wrong_micro_batch(struct graph *g)
{
    g->s->ops[0].label.micro_batch = 1;
}
static void momentless(struct graph *g)
{
    for (int32_t u = 0; u < UNITS; u++) g->s->tensors[g->m[u][0]].class = HT_STAGING;
}
static void copy_from_nowhere(struct graph *g)
{
    ht_add_op(g->s, HT_OP_COPY, g->h2d, about(0, 1, -1), g->other);
    ht_op_effect(g->s, g->param[0], HT_DEVICE, HT_UPDATE);
}

/* Returns the first op of a kind for block 1, and its effect on one of that block's tensors. */
static struct ht_effect *on_part(struct graph *g, enum ht_op_kind kind, int row)
{
    for (int32_t op = 0; op < g->s->n_ops; op++)
        for (int64_t e = g->s->effects_begin[op]; e < g->s->effects_begin[op + 1]; e++)
            if (g->s->ops[op].kind == kind && g->s->effects[e].tensor == g->a[1][0][row]) return &g->s->effects[e];
    ck_abort_msg("no such effect");
    return NULL;
}
static void lose_part(struct graph *g)
{
    on_part(g, HT_OP_BACKWARD, 2)->tensor = g->logits[0];
}
static void lose_source(struct graph *g)
{
    on_part(g, HT_OP_RECOMPUTE, 2)->tensor = g->logits[0];
}
static void not_kept(struct graph *g)
{
    on_part(g, HT_OP_FORWARD, 0)->tensor = g->logits[0];
}
static void same_part_twice(struct graph *g)
{
    struct ht_tensor *t = &g->s->tensors[g->a[1][0][2]];
    t->label.sub_ops |= SUB(QKV);
    t->bytes = ht_sub_ops_activation_bytes(&g->model, t->label.sub_ops, B, T, g->v->type);
}
static void part_too_large(struct graph *g)
{
    g->s->tensors[g->a[1][0][3]].bytes += 64;
}
static void more_than_is_made(struct graph *g)
{
    for (int32_t op = 0; op < g->s->n_ops; op++)
        if (g->s->ops[op].kind == HT_OP_RECOMPUTE) g->s->ops[op].label.sub_ops &= ~SUB(QKV);
}

START_TEST(test_parts_refused)
{
    const struct variant v = {.n_mb = 1, .parts = true};
    refused(&v, lose_part, "no effect reads proj, fc1 of the activation of unit 1, micro-batch 0 in device memory");
    refused(&v, lose_source, "no effect reads fc1 of the activation of unit 1, micro-batch 0");
    refused(&v, not_kept, "no effect writes norm1, qkv of the activation of unit 1, micro-batch 0");
    refused(&v, same_part_twice, "two effects write qkv of the activation of unit 1, micro-batch 0");
    refused(&v, part_too_large, "16448 bytes for gelu, fc2, expected 16384");
    refused(&v, more_than_is_made, "produces qkv of the activation of unit 2, micro-batch 0 without filling it in");
}
END_TEST

START_TEST(test_refusals)
{
    expect_refusal(lose_effect, "no effect reads the param of unit 0 in device memory");
    expect_refusal(grow_tensor, "the checkpoint of unit 1, micro-batch 0 has 4100 bytes, expected 4096");
    expect_refusal(shrink_workspace, "the workspace has 64 bytes, expected");
    expect_refusal(move_lane, "forward on a h2d lane; expected a compute or host lane");
    expect_refusal(lonely_collective, "has the group -1");
    expect_refusal(lonely_part, "works on one of 2 parts in a group of 1");
    expect_refusal(three_parts, "works on one of 3 parts, which do not divide the 2 heads");
    expect_refusal(beyond_model, "units 0 to 4 of a model with 4");
    expect_refusal(long_sequence, "sequence 25 (the longest is 24)");
    expect_refusal(wrong_micro_batch, "micro-batch 1 of 1");
    expect_refusal(momentless, "updates no momentum in device memory");
    expect_refusal(copy_from_nowhere, "reads it nowhere else");
}
END_TEST

/* The embedding produces a gradient that the head has begun; the backend would take it for a separate tensor. */
START_TEST(test_table_begun_twice)
{
    struct variant v = {.n_mb = 1, .tied = true};
    struct ht_error err = {0};
    struct graph g;
    build(&g, &v);
    for (int32_t op = 0; op < g.s->n_ops; op++)
        if (g.s->ops[op].kind == HT_OP_BACKWARD && g.s->ops[op].label.unit == 0)
            for (int64_t e = g.s->effects_begin[op]; e < g.s->effects_begin[op + 1]; e++)
                if (g.s->effects[e].tensor == g.grad[0]) g.s->effects[e].flags = HT_PRODUCE;
    ck_assert_int_eq(ht_schedule_verify(g.s, &err, NULL), HT_FAILED);
    ck_assert_msg(strstr(err.text, "grad"), "%s", err.text);
    ht_schedule_destroy(g.s);
}
END_TEST

START_TEST(test_models_and_numerics_refused)
{
    struct variant v = {.n_mb = 1};
    struct ht_error err = {0};
    struct ht_cpu *cpu;
    struct ht_cpu_options o = options_of(&v, NULL, NULL);
    o.model.dropout = true;
    ck_assert_int_eq(ht_cpu_create(&o, &err, &cpu), HT_INFEASIBLE);
    o = options_of(&v, NULL, NULL);
    o.numerics.grad = HT_BF16;
    ck_assert_int_eq(ht_cpu_create(&o, &err, &cpu), HT_INFEASIBLE);
    ck_assert_msg(strstr(err.text, "f32/bf16/f32/f32"), "%s", err.text);
    ht_cpu_destroy(NULL);
}
END_TEST

int main(void)
{
    draw_batches();
    Suite *s = suite_create("cpu refused");
    TCase *tc = tcase_create("cpu refused");
    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, test_refusals);
    tcase_add_test(tc, test_table_begun_twice);
    tcase_add_test(tc, test_parts_refused);
    tcase_add_test(tc, test_models_and_numerics_refused);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
