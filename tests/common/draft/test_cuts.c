/* Pipelines whose stages end behind any sub-op of a block: proved and simulated in the proved memory; what crosses, and which
   parameters a stage has, by hand; graphs that are broken, and cuts that are refused. */
#include "common/schedule/apart.h"
#include "common/schedule/rules.h"
#include "common/schedule/verify.h"
#include "tests/common/draft/pipelines.h"
#include "tests/support/pipes.h"
#include "tests/support/proved.h"

enum { MOST_STAGES = 3 };

/* A pipeline, or two alike, of stages that have so many sub-ops of four blocks. */
struct cut {
    int64_t sub_ops[MOST_STAGES], widths[MOST_STAGES];
    int32_t stages, pipelines;
    struct ht_scenario sc;
    struct ht_layout *layout;
    struct ht_pipe_style style;
};

static void cut_lay_out(struct cut *x)
{
    int64_t each = 0, ranks[2], l[2] = {3, 3};
    struct ht_error err = {0};
    for (int q = 0; q < x->stages; q++) each += x->widths[q];
    ranks[0] = ranks[1] = each;
    x->sc = pipe_scenario(x->pipelines * each, 1, 4, 3 * x->pipelines);
    x->sc.model.kv_heads = 4;
    ck_assert_msg(ht_layout_pipelines(&x->sc, x->pipelines, ranks, l, 1, &err, &x->layout) == HT_OK, "%s", err.text);
    ck_assert_msg(ht_layout_widen(x->layout, &x->sc, x->stages, x->widths, &err) == HT_OK, "%s", err.text);
    x->style.v = x->style.d = 1;
    x->style.layout = x->layout;
    x->style.sub_ops = true;
    x->style.blocks = x->sub_ops;
    x->style.n_blocks = x->stages;
}

static struct ht_schedule *cut_build(struct cut *x)
{
    struct ht_error err = {0};
    ck_assert_msg(ht_pipe_lay_out(&x->sc, &x->style, x->layout, &err) == HT_OK, "%s", err.text);
    ck_assert_msg(ht_pipe_check(&x->sc, &x->style, &err) == HT_OK, "%s", err.text);
    return pipe_build(&x->sc, &x->style);
}

static void cut_free(struct cut *x)
{
    ht_layout_destroy(x->layout);
    ht_scenario_free(&x->sc);
}

START_TEST(every_cut)
{
    static const enum ht_pipe_order orders[] = {HT_PIPE_AFAB, HT_PIPE_1F1B};
    static const enum ht_control_mode controls[] = {HT_CONTROL_NONE, HT_CONTROL_GATE, HT_CONTROL_ROLLBACK};
    static const int64_t widths[][MOST_STAGES] = {{1, 1, 1}, {2, 2, 2}, {1, 2, 1}, {2, 1, 1}, {1, 1, 4}};
    static const int64_t again[] = {255, 23, 239, 96, 7, 8, 0, 127};
    for (uint64_t seed = 0; seed < 280; seed++) {
        const int64_t *w = widths[seed % HT_COUNT(widths)];
        int64_t first = 1 + (int64_t)(seed / 5 % 7), second = 1 + (int64_t)(seed * 5 / 7 % 7), masks[4];
        bool ours = seed & 32;
        if (ours && w[0] != w[1] && !ht_handed_alike(1u << (first - 1))) first = seed & 1 ? 1 : 5;
        if (ours && w[1] != w[2] && !ht_handed_alike(1u << (second - 1))) second = seed & 2 ? 4 : 5;
        struct cut x = {.stages = MOST_STAGES, .pipelines = 1 + (int32_t)(seed / 3 % 2), .widths = {w[0], w[1], w[2]}};
        x.sub_ops[0] = 8 + first, x.sub_ops[1] = 8 + second - first, x.sub_ops[2] = 16 - second;
        cut_lay_out(&x);
        x.sc.control.mode = controls[seed % 3];
        x.sc.model.tied = w[0] == w[2] && seed & 1;
        x.sc.model.dropout = seed & 64;
        for (int i = 0; i < 4; i++) masks[i] = again[(seed / 8 + (uint64_t)i) % HT_COUNT(again)];
        x.style.order = orders[seed / 2 % 2];
        x.style.zero = x.pipelines > 1 ? (int32_t)(seed / 14 % 3) : 0;
        x.style.recompute = seed & 8;
        x.style.segment = seed & 24 ? 1 : 0;
        x.style.again = seed & 16 ? masks : NULL;
        x.style.attention_only = seed & 128;
        x.style.blocking_sends = seed & 16;
        x.style.slices = seed & 4;
        x.sc.model.held.by_matrix = seed & 4;
        x.sc.model.held.outputs = seed & 2;
        if (!ours) snprintf(x.sc.software.name, sizeof x.sc.software.name, "aceso");
        static const int64_t kept[] = {3, 0, 40, 7, 1, 2, 90, 5};
        x.style.kept = x.style.again && !ours && seed & 64 ? kept : NULL;
        x.style.n_kept = 4 + (x.sub_ops[0] % 8 > 0) + (x.sub_ops[2] % 8 > 0);
        struct ht_schedule *s = cut_build(&x);
        struct ht_profile *costs = ht_profile_modelled(x.sc.cluster);
        runs_in_proved_memory(s, costs, seed, 1);
        ht_profile_destroy(costs);
        ht_schedule_destroy(s);
        cut_free(&x);
    }
}
END_TEST

/* Returns the bytes of the messages that a graph has of a class, or of what is handed of it. */
static int64_t bytes_sent(const struct ht_schedule *s, enum ht_tensor_class class, bool handed)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < s->n_ops; i++)
        for (int64_t e = s->effects_begin[i]; e < s->effects_begin[i + 1]; e++) {
            const struct ht_tensor *t = &s->tensors[s->effects[e].tensor];
            if (s->ops[i].kind == HT_OP_SEND && t->class == class && ht_is_handed(t) == handed) bytes += t->bytes;
        }
    return bytes;
}

/* Two stages, the first of which ends behind the second block's so manieth sub-op: three micro-batches send residual and
   output, and their gradients; the front has the parameters of its sub-ops. As many heads of keys as of queries. */
START_TEST(what_crosses)
{
    for (int64_t n = 1; n < HT_N_SUB_OPS; n++) {
        struct cut x = {.sub_ops = {8 + n, 24 - n}, .widths = {1, 1}, .stages = 2, .pipelines = 1};
        cut_lay_out(&x);
        x.style.order = HT_PIPE_1F1B;
        struct ht_schedule *s = cut_build(&x);
        const struct ht_model *m = &x.sc.model;
        int64_t C = m->width, F = m->ffn, stream = x.sc.seq * C * ht_dtype_bytes(x.sc.numerics.param);
        const int64_t params[] = {C, 3 * C * C, 0, C * C, C, 2 * F * C, 0}, widths[] = {C, 3 * C, C, 0, C, 2 * F, F};
        int64_t front = 0, sent = 3 * stream * widths[n - 1] / C, begins = -1, ends = -1;
        for (int64_t i = 0; i < n; i++) front += params[i];
        ck_assert_int_eq(bytes_sent(s, HT_CHECKPOINT, true), sent);
        ck_assert_int_eq(bytes_sent(s, HT_ACT_GRAD, true), sent);
        ck_assert_int_eq(bytes_sent(s, HT_CHECKPOINT, false), n < 4 ? 3 * stream : 0);
        ck_assert_int_eq(bytes_sent(s, HT_ACTIVATION, false), n < 4 ? 0 : 3 * stream); /* proj */
        ck_assert_int_eq(bytes_sent(s, HT_ACT_GRAD, false), 3 * stream);
        for (int32_t i = 0; i < s->n_tensors; i++) {
            const struct ht_tensor *t = &s->tensors[i];
            if (t->class != HT_MOMENTUM || t->label.unit != 2) continue;
            if (ht_is_front(t->label.sub_ops)) ends = t->shard_end;
            if (ht_is_back(t->label.sub_ops)) begins = t->shard_begin;
        }
        ck_assert_int_eq(ends, front);
        ck_assert_int_eq(begins, front);
        ht_schedule_destroy(s);
        cut_free(&x);
    }
}
END_TEST

/* Returns an op of a kind that passes a half of unit 2, or the effect that it has on a tensor that is handed. */
static int64_t effect_on_handed(const struct ht_schedule *s, enum ht_op_kind kind, bool front)
{
    for (int32_t i = 0; i < s->n_ops; i++)
        for (int64_t e = s->effects_begin[i]; e < s->effects_begin[i + 1]; e++)
            if (s->ops[i].kind == kind && (front ? ht_is_front : ht_is_back)(s->ops[i].label.sub_ops) &&
                ht_is_handed(&s->tensors[s->effects[e].tensor]) &&
                (kind != HT_OP_BACKWARD || s->tensors[s->effects[e].tensor].class == HT_ACT_GRAD))
                return e;
    ck_abort_msg("no such effect");
}

/* Between stages of other widths, software that does not train hands all columns to each part, and back: of what follows attention (B,T,C),
   of fc1 (B,T,2F) in LLaMA. Three micro-batches. Slices of them are joined at no cost, as a program sends each part its own columns. */
START_TEST(columns_to_other_widths)
{
    for (int i = 0; i < 8; i++) {
        bool mlp = i & 1, narrows = i & 2, slices = i & 4;
        struct cut x = {.sub_ops = {mlp ? 14 : 11, mlp ? 18 : 21}, .stages = 2, .pipelines = 1};
        x.widths[0] = narrows ? 2 : 1, x.widths[1] = narrows ? 1 : 2;
        cut_lay_out(&x);
        x.style.slices = slices;
        snprintf(x.sc.software.name, sizeof x.sc.software.name, "aceso");
        struct ht_schedule *s = cut_build(&x);
        const struct ht_model *m = &x.sc.model;
        int64_t row = x.sc.seq * (mlp ? 2 * m->ffn : m->width) * ht_dtype_bytes(x.sc.numerics.param);
        int32_t n = 0, gathers = 0;
        for (int32_t t = 0; t < s->n_tensors; t++)
            if (ht_is_handed(&s->tensors[t]) && s->tensors[t].class == HT_CHECKPOINT && !s->tensors[t].sharded) {
                ck_assert_int_eq(s->tensors[t].bytes, row);
                n++;
            }
        ck_assert_int_ge(n, 3);
        if (!slices) ck_assert_int_eq(bytes_sent(s, HT_CHECKPOINT, true), 3 * row * (narrows ? 1 : 2));
        for (int32_t op = 0; op < s->n_ops; op++) {
            if (s->ops[op].kind != HT_OP_ALL_GATHER) continue;
            bool handed = ht_is_handed(&s->tensors[s->effects[s->effects_begin[op]].tensor]);
            ck_assert(s->works[s->ops[op].work].free == handed);
            gathers += handed;
        }
        ck_assert_int_eq(gathers, slices ? 3 * (1 + 2) : 0); /* what goes to each part, and comes back */
        struct ht_profile *costs = ht_profile_modelled(x.sc.cluster);
        runs_in_proved_memory(s, costs, 1, 1);
        ht_profile_destroy(costs);
        ht_schedule_destroy(s);
        cut_free(&x);
    }
}
END_TEST

/* A fresh gradient that is added up matrix by matrix has the bytes of the largest one of its unit, or of its part of a block: of the
   front with norm1 alone C, else C C or F C. What is added up is the whole of it. */
START_TEST(one_matrix)
{
    for (int64_t n = 1; n < HT_N_SUB_OPS; n++) {
        struct cut x = {.sub_ops = {8 + n, 24 - n}, .widths = {1, 1}, .stages = 2, .pipelines = 1};
        cut_lay_out(&x);
        x.sc.model.held.by_matrix = true;
        struct ht_schedule *s = cut_build(&x);
        const struct ht_model *m = &x.sc.model;
        int64_t C = m->width, each = ht_dtype_bytes(x.sc.numerics.grad), rows = 0, sums = 0;
        for (int32_t i = 0; i < s->n_tensors; i++) {
            const struct ht_tensor *t = &s->tensors[i];
            bool block = t->label.unit > 0 && t->label.unit <= m->layers, front = ht_is_front(t->label.sub_ops);
            if (t->class != HT_GRAD || t->label.micro_batch < 0) continue;
            int64_t largest = !block ? m->vocab * C : front && n == 1 ? C : front && n < 6 ? C * C : m->ffn * C;
            ck_assert_int_eq(t->bytes, largest * each);
            rows++;
        }
        for (int32_t i = 0; i < s->n_ops; i++)
            if (s->ops[i].kind == HT_OP_ACCUMULATE) sums += s->works[s->ops[i].work].params;
        ck_assert_int_eq(rows, 2 * 7); /* four blocks, one of them in two, and both ends; two of three micro-batches */
        ck_assert_int_eq(sums, 2 * ht_model_params(m));
        ht_schedule_destroy(s);
        cut_free(&x);
    }
}
END_TEST

/* Returns the most bytes of what crosses the boundary that stage 0 has at a time, op by op. */
static int64_t most_output(const struct ht_schedule *s, int32_t unit)
{
    int64_t held = 0, most = 0;
    for (int32_t i = 0; i < s->n_ops; i++)
        for (int64_t e = s->effects_begin[i]; e < s->effects_begin[i + 1]; e++) {
            const struct ht_tensor *t = &s->tensors[s->effects[e].tensor];
            if (s->lanes[s->ops[i].lane].rank || t->class != HT_CHECKPOINT || t->label.unit != unit) continue;
            if (s->effects[e].flags & HT_PRODUCE) held += t->bytes;
            most = held > most ? held : most;
            if (s->effects[e].flags & HT_RELEASE) held -= t->bytes;
        }
    ck_assert_int_eq(held, 0);
    return most;
}

/* Counts what a stage has sent, which stays until its backward pass: of the first of two stages in 1F1B two micro-batches
   of three, of GPipe all three. Freed when it is sent, one is there at a time, as a send blocks the next pass. */
START_TEST(kept_outputs)
{
    static const int64_t expected[2][2] = {{1, 1}, {3, 2}}; /* kept; GPipe, 1F1B */
    for (int i = 0; i < 4; i++) {
        bool kept = i & 1, turns = i & 2;
        struct cut x = {.sub_ops = {16, 16}, .widths = {1, 1}, .stages = 2, .pipelines = 1};
        cut_lay_out(&x);
        x.style.order = turns ? HT_PIPE_1F1B : HT_PIPE_AFAB;
        x.style.blocking_sends = true;
        x.sc.model.held.outputs = kept;
        struct ht_schedule *s = cut_build(&x);
        int64_t stream = x.sc.seq * x.sc.model.width * ht_dtype_bytes(x.sc.numerics.param);
        ck_assert_int_eq(most_output(s, 3), expected[kept][turns] * stream);
        ht_schedule_destroy(s);
        cut_free(&x);
    }
}
END_TEST

/* Returns the bytes that a graph has of a block's or its part's micro-batch 1, by hand of those that stay between its passes. */
static int64_t bytes_between(const struct ht_schedule *s, int32_t unit, unsigned sub_ops)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < s->n_ops; i++) {
        const struct ht_label *l = &s->ops[i].label;
        bool forward =
            s->ops[i].kind == HT_OP_FORWARD && l->unit == unit && l->sub_ops == sub_ops && l->micro_batch == 1;
        for (int64_t e = s->effects_begin[i]; forward && e < s->effects_begin[i + 1]; e++) {
            const struct ht_tensor *t = &s->tensors[s->effects[e].tensor];
            bool own = t->class == HT_ACTIVATION || t->class == HT_STAGING;
            if (own && s->effects[e].flags == HT_PRODUCE) bytes += t->bytes;
        }
    }
    return bytes;
}

/* What a program keeps takes the place of what the sub-ops that stay keep. Of block 1, whose attention is made again, that is more;
   block 2 is cut behind norm2, and both parts make all again; of block 3, which makes nothing again, it is less; of block 4 nothing. */
START_TEST(what_a_program_keeps)
{
    static const int64_t again[] = {4, 255, 0, 255}, kept[] = {500, 6, 7, 8, 0};
    struct cut x = {.sub_ops = {13, 19}, .widths = {1, 1}, .stages = 2, .pipelines = 1};
    cut_lay_out(&x);
    x.style.order = HT_PIPE_1F1B;
    x.style.recompute = true;
    x.style.segment = 1;
    x.style.again = again;
    x.style.kept = kept;
    x.style.n_kept = 5;
    snprintf(x.sc.software.name, sizeof x.sc.software.name, "aceso");
    struct ht_schedule *s = cut_build(&x);
    unsigned front = ht_front(5), back = HT_ALL_SUB_OPS & ~front;
    ck_assert_int_eq(bytes_between(s, 1, HT_ALL_SUB_OPS), 500 << 10);
    int64_t proj = ht_sub_ops_activation_bytes(&x.sc.model, 1u << HT_SUB_PROJ, 1, x.sc.seq, x.sc.numerics.param);
    ck_assert_int_eq(bytes_between(s, 2, front), (6 << 10) + proj); /* the residual crosses */
    ck_assert_int_eq(bytes_between(s, 2, back), 7 << 10);
    ck_assert_int_eq(bytes_between(s, 3, HT_ALL_SUB_OPS), 8 << 10);
    ck_assert_int_eq(bytes_between(s, 4, HT_ALL_SUB_OPS), 0);
    struct ht_profile *costs = ht_profile_modelled(x.sc.cluster);
    runs_in_proved_memory(s, costs, 1, 1);
    ht_profile_destroy(costs);
    ht_schedule_destroy(s);
    cut_free(&x);
}
END_TEST

/* A number for each part; not of training, whose software is fused; beside what is made again. */
START_TEST(refused_kept)
{
    static const int64_t again[] = {4, 255, 0, 255}, kept[] = {5, 6, 7, 8, 0};
    static const struct {
        int32_t n;
        bool fused, again;
        const char *says;
    } cases[] = {{4, false, true, "kept has 4 elements; expected 5, one a block, two of one that is cut"},
                 {5, true, true, "kept with software 'fused': expected that of another program"},
                 {5, false, false, "kept is set without again; expected both"}};
    for (size_t i = 0; i < HT_COUNT(cases); i++) {
        struct cut x = {.sub_ops = {13, 19}, .widths = {1, 1}, .stages = 2, .pipelines = 1};
        struct ht_error err = {0};
        cut_lay_out(&x);
        x.style.again = cases[i].again ? again : NULL;
        x.style.kept = kept;
        x.style.n_kept = cases[i].n;
        if (!cases[i].fused) snprintf(x.sc.software.name, sizeof x.sc.software.name, "aceso");
        ck_assert(!ht_pipe_lay_out(&x.sc, &x.style, x.layout, &err));
        ck_assert_int_eq(ht_pipe_check(&x.sc, &x.style, &err), HT_BAD_INPUT);
        ck_assert_msg(strstr(err.text, cases[i].says) != NULL, "%s", err.text);
        cut_free(&x);
    }
}
END_TEST

START_TEST(broken_hands)
{
    static const struct {
        enum ht_op_kind kind;
        bool front;
        const char *says;
    } cases[] = {
        {HT_OP_FORWARD, true, "does not write what qkv hands on of unit 2"},
        {HT_OP_FORWARD, false, "does not read the activations of unit 2 (qkv)"},
        {HT_OP_BACKWARD, false, "does not write the gradient of what qkv hands on of unit 2"},
        {HT_OP_BACKWARD, true, "does not read the gradient of what qkv hands on of unit 2"},
    };
    for (size_t i = 0; i < HT_COUNT(cases); i++) {
        struct cut x = {.sub_ops = {10, 22}, .widths = {1, 1}, .stages = 2, .pipelines = 1};
        struct ht_error err = {0};
        cut_lay_out(&x);
        x.style.order = HT_PIPE_1F1B;
        struct ht_schedule *s = cut_build(&x);
        ck_assert_msg(ht_schedule_verify(s, &err, NULL) == HT_OK, "%s", err.text);
        /* another tensor of the op in its place */
        int64_t e = effect_on_handed(s, cases[i].kind, cases[i].front);
        s->effects[e] = s->effects[e > 0 ? e - 1 : e + 1];
        ck_assert_int_eq(ht_rule_activations(s, &err), HT_FAILED);
        ck_assert_msg(strstr(err.text, cases[i].says) != NULL, "%s", err.text);
        ht_schedule_destroy(s);
        cut_free(&x);
    }
}
END_TEST

/* A front's gradient that is labelled as that of another front. */
START_TEST(gradient_of_other_sub_ops)
{
    struct cut x = {.sub_ops = {10, 22}, .widths = {1, 1}, .stages = 2, .pipelines = 1};
    struct ht_error err = {0};
    cut_lay_out(&x);
    x.style.order = HT_PIPE_1F1B;
    struct ht_schedule *s = cut_build(&x);
    for (int32_t i = 0; i < s->n_tensors; i++)
        if (s->tensors[i].class == HT_GRAD && s->tensors[i].label.sub_ops == ht_front(2))
            s->tensors[i].label.sub_ops = ht_front(3);
    ck_assert_int_eq(ht_schedule_verify(s, &err, NULL), HT_FAILED);
    ck_assert_msg(strstr(err.text, "which is of other sub-ops") != NULL, "%s", err.text);
    ht_schedule_destroy(s);
    cut_free(&x);
}
END_TEST

START_TEST(refused_cuts)
{
    static const struct {
        struct cut x;
        enum ht_arch arch;
        bool sequence;
        const char *says;
    } cases[] = {
        {{.sub_ops = {9, 2, 21}, .widths = {1, 1, 1}, .stages = 3},
         HT_ARCH_LLAMA,
         false,
         "stages end in two places of block 1; expected in one"},
        {{.sub_ops = {9, 8, 14}, .widths = {1, 1, 1}, .stages = 3},
         HT_ARCH_LLAMA,
         false,
         "the stages of a pipeline have 31 sub-ops: expected the 32 of"},
        {{.sub_ops = {11, 21}, .widths = {1, 2}, .stages = 2},
         HT_ARCH_LLAMA,
         false,
         "stage 0, in 1 part, ends behind attention, and the next is in 2; expected as many, or an end behind norm1, "
         "proj, "
         "norm2 or fc2"},
        {{.sub_ops = {11, 21}, .widths = {1, 1}, .stages = 2},
         HT_ARCH_BERT,
         false,
         "a stage ends behind attention of block 1 of "},
        {{.sub_ops = {13, 19}, .widths = {2, 2}, .stages = 2},
         HT_ARCH_LLAMA,
         true,
         "a stage ends behind norm2 of block 1 beside sequence=1; expected behind proj or fc2"},
    };
    for (size_t i = 0; i < HT_COUNT(cases); i++) {
        struct cut x = cases[i].x;
        struct ht_error err = {0};
        x.pipelines = 1;
        cut_lay_out(&x);
        x.sc.model.arch = cases[i].arch;
        x.layout->sequence = cases[i].sequence;
        ck_assert_int_eq(ht_pipe_lay_out(&x.sc, &x.style, x.layout, &err), HT_BAD_INPUT);
        ck_assert_msg(strstr(err.text, cases[i].says) != NULL, "%s", err.text);
        cut_free(&x);
    }
}
END_TEST

int main(void)
{
    TCase *tc = tcase_create("cuts");
    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, every_cut);
    tcase_add_test(tc, what_crosses);
    tcase_add_test(tc, columns_to_other_widths);
    tcase_add_test(tc, one_matrix);
    tcase_add_test(tc, kept_outputs);
    tcase_add_test(tc, what_a_program_keeps);
    tcase_add_test(tc, refused_kept);
    tcase_add_test(tc, broken_hands);
    tcase_add_test(tc, gradient_of_other_sub_ops);
    tcase_add_test(tc, refused_cuts);
    return pipe_main("cuts", tc);
}
