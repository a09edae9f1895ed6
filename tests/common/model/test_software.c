/* Software profiles: what they add up to, by hand, and every class of bad file. */
#include "common/model/software.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/array.h"

START_TEST(every_name_loads)
{
    char name[64];
    int64_t n = 0;
    for (; ht_software_name(n, name); n++) {
        struct ht_error err = {0};
        struct ht_software s;
        ck_assert_msg(!ht_software_load(name, &err, &s), "%s", err.text);
        ck_assert_str_eq(s.name, name);
        ck_assert(s.source[0]);
    }
    ck_assert_int_eq(n, 6);
}
END_TEST

/* Fused kernels hold nothing more, so a model's sizes are those of our kernels, and take nothing of a GPU. */
START_TEST(fused_holds_nothing)
{
    struct ht_software s;
    ck_assert(!ht_software_load("fused", NULL, &s));
    struct ht_model m = {.arch = HT_ARCH_LLAMA}, before = m;
    ht_software_apply(&s, &m);
    ck_assert_mem_eq(&m, &before, sizeof(m));
    m.arch = before.arch = HT_ARCH_GPT;
    ht_software_apply(&s, &m);
    ck_assert_mem_eq(&m, &before, sizeof(m));
    ck_assert_int_eq(ht_software_reserve_bytes(&s, 24), 0);
    ck_assert_double_eq(ht_step_beside_bytes(&s.step, HT_F16, HT_F16), 0);
}
END_TEST

START_TEST(what_archs_hold)
{
    struct ht_software s;
    ck_assert(!ht_software_load("eager", NULL, &s));
    struct ht_model gpt = {.arch = HT_ARCH_GPT}, llama = {.arch = HT_ARCH_LLAMA}, bert = {.arch = HT_ARCH_BERT},
                    vit = {.arch = HT_ARCH_VIT};
    ht_software_apply(&s, &gpt);
    ht_software_apply(&s, &llama);
    ht_software_apply(&s, &bert);
    ht_software_apply(&s, &vit);
    ck_assert(gpt.dropout && !llama.dropout && bert.dropout && !vit.dropout);
    ck_assert_int_eq(gpt.held.norm, 0); /* LayerNorm is one kernel, RMSNorm several */
    ck_assert_int_eq(llama.held.norm, 1);
    ck_assert_int_eq(gpt.held.ffn, 3); /* gelu_new, and silu */
    ck_assert_int_eq(llama.held.ffn, 1);
    gpt.held.ffn = gpt.held.ffn_backward = 0; /* BERT's GELU is one kernel; its norms and the rest are GPT's */
    ck_assert_mem_eq(&bert.held, &gpt.held, sizeof(bert.held));
    ck_assert_mem_eq(&vit.held, &gpt.held, sizeof(vit.held));
    ck_assert(!ht_software_load("megatron", NULL, &s));
    ck_assert_mem_eq(&s.encoder_gelu, &s.gelu, sizeof(s.gelu)); /* not said, so they are the same */
    s.encoder_scores.scratch_forward = 5, s.encoder_scores.scratch_backward = 7;
    gpt = (struct ht_model){.arch = HT_ARCH_GPT}, bert = (struct ht_model){.arch = HT_ARCH_BERT};
    ht_software_apply(&s, &gpt);
    ht_software_apply(&s, &bert);
    ck_assert(gpt.held.scores_forward == 1 && gpt.held.scores_backward == 2);
    ck_assert(bert.held.scores_forward == 5 && bert.held.scores_backward == 7);
}
END_TEST

/* Aceso's program adds gradients up matrix by matrix, keeps what it has sent, and has no lasting buffer of scores; Mist's concatenates a block's gradients and frees
   what it has sent. */
START_TEST(gradients_and_outputs)
{
    struct ht_software s;
    struct ht_model m = {.arch = HT_ARCH_GPT};
    ck_assert(!ht_software_load("aceso", NULL, &s));
    ht_software_apply(&s, &m);
    ck_assert(m.held.by_matrix && m.held.outputs && m.held.frees);
    ck_assert(m.held.scores_forward == 0 && m.held.scores_backward == 1);
    ck_assert(!ht_software_load("mist", NULL, &s));
    ht_software_apply(&s, &m);
    ck_assert(!m.held.by_matrix && !m.held.outputs);
}
END_TEST

/* The programs with Megatron-LM's kernels read half of a causal model's scores, the others all; an encoder's are read
   whole by each. */
START_TEST(scores_of_programs)
{
    static const struct {
        const char *name;
        double forward, backward, encoder_forward, encoder_backward;
    } programs[] = {{"fused", 2, 3, 2, 3},      {"eager", 6, 7, 6, 7},   {"torch", 6, 7, 6, 7},
                    {"megatron", 1.5, 2, 2, 3}, {"aceso", 1.5, 2, 2, 3}, {"mist", 1.5, 2, 2, 3}};
    struct ht_software s;
    ck_assert(!ht_software_load(programs[_i].name, NULL, &s));
    ck_assert_double_eq(s.scores.forward.passes, programs[_i].forward);
    ck_assert_double_eq(s.scores.backward.passes, programs[_i].backward);
    ck_assert_double_eq(s.encoder_scores.forward.passes, programs[_i].encoder_forward);
    ck_assert_double_eq(s.encoder_scores.backward.passes, programs[_i].encoder_backward);
}
END_TEST

START_TEST(bytes_by_hand)
{
    struct ht_passes p = {.passes = 2, .casts = 2, .fp32 = 5};
    ck_assert_double_eq(ht_passes_bytes(&p, HT_F16), 2 * 2 + 2 * (2 + 4) + 5 * 4);
    ck_assert_double_eq(ht_passes_bytes(&p, HT_F32), 2 * 4 + 5 * 4); /* no casts */
    struct ht_software s;
    /* gradient: cast 2 + 4; unscaled 4 + 4; Adam reads it and reads and writes three states: 7 x 4; parameters cast 4 + 2
       and copied 2 + 2: 6 + 8 + 28 + 6 + 4 = 52. Fused 2 + 24 + 2 = 28. */
    ck_assert(!ht_software_load("megatron", NULL, &s));
    ck_assert_double_eq(ht_step_beside_bytes(&s.step, HT_F16, HT_F16), 52 - 28);
    /* An FP32 gradient needs no cast: 8 + 28 + 6 + 4 = 46 for 4 + 24 + 2 = 30. */
    ck_assert_double_eq(ht_step_beside_bytes(&s.step, HT_F16, HT_F32), 46 - 30);
    ck_assert_double_eq(ht_step_beside_bytes(&s.step, HT_F32, HT_F32), 0);
    ck_assert(!ht_software_load("eager", NULL, &s));
    ck_assert_double_eq(ht_step_beside_bytes(&s.step, HT_F16, HT_F16), 48 - 28); /* without the copy */
    /* 400 MB, 8320 KiB, and with 24 channels 24 x 2 x 10 MiB */
    ck_assert_int_eq(ht_software_reserve_bytes(&s, 0), 400000000 + 8519680);
    ck_assert_int_eq(ht_software_reserve_bytes(&s, 24), 408519680 + INT64_C(503316480));
}
END_TEST

#define KERNELS                                                                                                        \
    "layer_norm: {forward: {}, backward: {}, source: s}\nrms_norm: {forward: {}, backward: {}, source: s}\n"           \
    "residual: {forward: {}, backward: {}, source: s}\nrotary: {forward: {}, backward: {}, source: s}\n"               \
    "scores: {forward: {}, backward: {}, source: s}\ngelu: {forward: {}, backward: {}, source: s}\n"                   \
    "swiglu: {forward: {}, backward: {}, source: s}\n"
#define LOSS "loss: {forward: {}, backward: {}, source: s}\n"

static const struct {
    const char *text, *says; /* NULL: it is good */
} files[] = {
    {"name: x\nsource: s\n" KERNELS LOSS, NULL},
    {"source: s\n" KERNELS LOSS, "s.yaml:1:1: the key 'name' is missing"},
    {"name: x\n" KERNELS LOSS, "s.yaml:1:1: the key 'source' is missing; expected 'source: ...'"},
    {"name: x\nsource: s\n" KERNELS, "s.yaml:1:1: the key 'loss' is missing"},
    {"name: x\nsource: s\n" KERNELS "loss: {forward: {}, backward: {}}\n",
     "s.yaml:10:7: key 'loss': the key 'source' is missing"},
    {"name: x\nsource: s\n" KERNELS "loss: {forward: {}, source: s}\n",
     "s.yaml:10:7: key 'loss': the key 'backward' is missing"},
    {"name: x\nsource: s\n" KERNELS "loss: {forward: {passes: -1}, backward: {}, source: s}\n",
     "s.yaml:10:26: key 'passes': '-1' is "},
    {"name: x\nsource: s\n" KERNELS "loss: {forward: {cast: 1}, backward: {}, source: s}\n",
     "s.yaml:10:18: key 'cast': is unknown here; expected 'casts'?"},
    {"name: x\nsource: s\n" KERNELS "loss: {forward: {}, backward: {}, kept: 1.5, source: s}\n",
     "s.yaml:10:41: key 'kept': '1.5' "},
    {"name: x\nsource: s\n" KERNELS "loss: {forward: {}, backward: {}, kept: 101, source: s}\n",
     "s.yaml:10:41: key 'kept': '101' is out of range; expected 0 to 100"},
    {"name: x\nsource: s\n" KERNELS LOSS "memory: {context: 400, source: s}\n",
     "s.yaml:11:19: key 'context': '400' has no unit"},
    {"name: x\nsource: s\n" KERNELS LOSS "memory: {context: 400 MB}\n",
     "s.yaml:11:9: key 'memory': the key 'source' is missing"},
    {"name: x\nsource: s\n" KERNELS LOSS "allocator: {own: 10 MiB, round: 2 MiB, shared: 20 MiB, source: s}\n", NULL},
    {"name: x\nsource: s\n" KERNELS LOSS "allocator: {own: 10 MiB, shared: 20 MiB, source: s}\n",
     "s.yaml:11:12: key 'allocator': the key 'round' is missing"},
    {"name: x\nsource: s\n" KERNELS LOSS "allocator: {own: 10 MiB, round: 0 B, shared: 20 MiB, source: s}\n",
     "s.yaml:11:33: key 'round': '0 B' is out of range"},
    {"name: x\nsource: s\n" KERNELS LOSS "step: {unscale: 2}\n",
     "s.yaml:11:7: key 'step': the key 'source' is missing"},
    {"name: x\nsource: s\n" KERNELS LOSS "collectives: {uneven: 1.3, source: s}\n", NULL},
    {"name: x\nsource: s\n" KERNELS LOSS "collectives: {uneven: 0.9, source: s}\n",
     "s.yaml:11:23: key 'uneven': '0.9' is out of range; expected 1 to 1000"},
    {"name: x\nsource: s\n" KERNELS LOSS "collectives: {uneven: 1.1}\n",
     "s.yaml:11:14: key 'collectives': the key 'source' is missing"},
    {"name: x\nsource: s\n" KERNELS LOSS "dropout: 0.1\n", "s.yaml:11:10: key 'dropout': '0.1' "},
    {"name: x\nsource: s\nfp16: true\n" KERNELS LOSS, "s.yaml:3:1: key 'fp16': is unknown here"},
};

START_TEST(files_are_checked)
{
    struct ht_error err = {0};
    struct ht_doc *doc = NULL;
    struct ht_software s;
    ck_assert(!ht_doc_parse(files[_i].text, strlen(files[_i].text), "s.yaml", &err, &doc));
    enum ht_status status = ht_software_parse(doc, &err, &s);
    ht_doc_destroy(doc);
    ck_assert_int_eq(status, files[_i].says ? HT_BAD_INPUT : HT_OK);
    if (!files[_i].says) ck_assert_double_eq(s.collectives.uneven, strstr(files[_i].text, "uneven: 1.3") ? 1.3 : 1);
    if (files[_i].says) ck_assert_msg(!strncmp(err.text, files[_i].says, strlen(files[_i].says)), "%s", err.text);
}
END_TEST

START_TEST(unknown_name)
{
    struct ht_error err = {0};
    struct ht_software s;
    ck_assert_int_eq(ht_software_load("eagre", &err, &s), HT_BAD_INPUT);
    ck_assert_str_eq(err.text, "unknown software 'eagre'; expected 'eager'?");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("software");
    TCase *t = tcase_create("software");
    tcase_add_test(t, every_name_loads);
    tcase_add_test(t, fused_holds_nothing);
    tcase_add_test(t, what_archs_hold);
    tcase_add_loop_test(t, scores_of_programs, 0, 6);
    tcase_add_test(t, gradients_and_outputs);
    tcase_add_test(t, bytes_by_hand);
    tcase_add_loop_test(t, files_are_checked, 0, (int)HT_COUNT(files));
    tcase_add_test(t, unknown_name);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
