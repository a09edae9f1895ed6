/* Sizes of units, by hand arithmetic. */
#include <check.h>
#include <stdint.h>
#include <stdlib.h>

#include "common/model/software.h"

static struct ht_model gpt2(void)
{
    return (struct ht_model){.arch = HT_ARCH_GPT,
                             .layers = 12,
                             .width = 768,
                             .heads = 12,
                             .ffn = 3072,
                             .vocab = 50257,
                             .max_seq = 1024,
                             .tied = true};
}

/* GPT-2 small. Embedding 50257 * 768 + 1024 * 768 = 38597376 + 786432. Block 12 * 768^2 + 13 * 768 = 7077888 + 9984.
   Head 2 * 768. Total 39383808 + 12 * 7087872 + 1536 = 124439808: the 124M of its name. */
START_TEST(test_gpt_params)
{
    struct ht_model m = gpt2();
    ck_assert_int_eq(ht_unit_params(&m, 0), 39383808);
    ck_assert_int_eq(ht_unit_params(&m, 1), 7087872);
    ck_assert_int_eq(ht_unit_params(&m, 12), 7087872);
    ck_assert_int_eq(ht_unit_params(&m, 13), 1536);
    ck_assert_int_eq(ht_model_params(&m), 124439808);
    m.tied = false; /* a matrix of its own: 50257 * 768 more */
    ck_assert_int_eq(ht_unit_params(&m, 13), 1536 + 38597376);
}
END_TEST

/* Llama 7B: C = 4096, F = 11008, V = 32000, L = 32, untied.
   Embedding 32000 * 4096 = 131072000. Block 4 * 4096^2 + 3 * 4096 * 11008 + 2 * 4096 = 202383360.
   Head 4096 + 131072000. Total 131072000 * 2 + 4096 + 32 * 202383360 = 6738415616: as published. */
START_TEST(test_llama_params)
{
    struct ht_model m = {
        .arch = HT_ARCH_LLAMA, .layers = 32, .width = 4096, .heads = 32, .ffn = 11008, .vocab = 32000, .max_seq = 2048};
    ck_assert_int_eq(ht_unit_params(&m, 1), 202383360);
    ck_assert_int_eq(ht_model_params(&m), 6738415616);
    m.kv_heads = 32; /* said or not, it is the same */
    ck_assert_int_eq(ht_model_params(&m), 6738415616);
}
END_TEST

/* BERT large: C = 1024, F = 4096, V = 30522, T = 512, L = 24, and a classifier of 2. Embedding (30522 + 512 + 2) * 1024 =
   31780864. Block 12 * 1024^2 + 13 * 1024 = 12596224. Head 2 * 1024 + 1024^2 + 1024 + 2 * 1024 + 2 = 1053698. The published
   checkpoint has 335141888 up to the pooler: the classifier has 2 * 1024 + 2 more. */
START_TEST(test_bert)
{
    struct ht_model m = {.arch = HT_ARCH_BERT,
                         .layers = 24,
                         .width = 1024,
                         .heads = 16,
                         .ffn = 4096,
                         .vocab = 30522,
                         .max_seq = 512,
                         .classes = 2};
    ck_assert_int_eq(ht_unit_params(&m, 0), 31780864);
    ck_assert_int_eq(ht_unit_params(&m, 1), 12596224);
    ck_assert_int_eq(ht_unit_params(&m, 25), 1053698);
    ck_assert_int_eq(ht_model_params(&m), 335141888 + 2050);
    /* A block keeps what GPT's does. The head keeps, of B = 3 rows in FP32, three of 3 * 1024 * 4 = 12288 bytes and mean
       and 1/std, 24 bytes, rounded to 64. Its logits are 3 rows of 2, 32 apart. */
    struct ht_model gpt = m;
    gpt.arch = HT_ARCH_GPT;
    ck_assert_int_eq(ht_unit_activation_bytes(&m, 1, 3, 512, HT_F32),
                     ht_unit_activation_bytes(&gpt, 1, 3, 512, HT_F32));
    ck_assert_int_eq(ht_unit_activation_bytes(&m, 25, 3, 512, HT_F32), 3 * 12288 + 64);
    ck_assert_int_eq(ht_logits_bytes(&m, 3, 512), 3 * 32 * 4);
    ck_assert_int_eq(ht_model_head_rows(&m, 512), 1);
    gpt.classes = 0;
    ck_assert_int_eq(ht_model_head_rows(&gpt, 512), 512);
    /* The pooler 2 * 3 * 1024^2, the classes 2 * 3 * 1024 * 2. */
    ck_assert(ht_unit_flops(&m, 25, 3, 512) == 6291456 + 12288);
    char text[64];
    ck_assert_ptr_null(ht_model_cannot_part(&m, 1, text, sizeof(text)));
    ck_assert_ptr_null(ht_model_cannot_part(&m, 2, text, sizeof(text)));
    ck_assert_str_eq(ht_model_cannot_part(&m, 3, text, sizeof(text)), "16 heads");
    struct ht_model half = ht_model_part(&m, 1, 2); /* the head is whole, and needs no rows of other parts */
    ck_assert_int_eq(ht_unit_params(&half, 25), ht_unit_params(&m, 25));
    ck_assert_int_eq(ht_unit_workspace_bytes(&half, 25, 3, 512, HT_F32, false),
                     ht_unit_workspace_bytes(&m, 25, 3, 512, HT_F32, false));
}
END_TEST

/* ViT-B/16: C = 768, F = 3072, L = 12, S = 224, p = 16, c = 3, 1000 classes. N = 14^2 = 196, T = 197, P = 3 * 256 = 768.
   Embedding 768 * 768 + 768 + (1 + 197) * 768 = 742656. Block 12 * 768^2 + 13 * 768 = 7087872. Head 2 * 768 + 1000 * 768 +
   1000 = 770536. Sum 86567656: as published (Hugging Face, google/vit-base-patch16-224). */
START_TEST(test_vit)
{
    struct ht_model m = {.arch = HT_ARCH_VIT,
                         .layers = 12,
                         .width = 768,
                         .heads = 12,
                         .ffn = 3072,
                         .max_seq = 197,
                         .classes = 1000,
                         .image = 224,
                         .patch = 16,
                         .channels = 3};
    ck_assert_int_eq(ht_unit_params(&m, 0), 742656);
    ck_assert_int_eq(ht_unit_params(&m, 1), 7087872);
    ck_assert_int_eq(ht_unit_params(&m, 13), 770536);
    ck_assert_int_eq(ht_model_params(&m), 86567656);
    ck_assert_int_eq(ht_model_sample_bytes(&m, 197), 150528);
    /* A block keeps what GPT's does. The head keeps, of B = 3 rows in FP32, two of 3 * 768 * 4 = 9216 bytes and mean and
       1/std, 24 bytes, rounded to 64. 1000 logits are 1024 apart. */
    struct ht_model gpt = m;
    gpt.arch = HT_ARCH_GPT;
    ck_assert_int_eq(ht_unit_activation_bytes(&m, 1, 3, 197, HT_F32),
                     ht_unit_activation_bytes(&gpt, 1, 3, 197, HT_F32));
    ck_assert_int_eq(ht_unit_activation_bytes(&m, 13, 3, 197, HT_F32), 2 * 9216 + 64);
    ck_assert_int_eq(ht_logits_bytes(&m, 3, 197), 3 * 1024 * 4);
    /* The patches' matrix, 3 * 197 * 768, in both passes; the sums of a gradient need no lists of tokens in 16 bits. */
    for (int back = 0; back < 2; back++) {
        ck_assert_int_eq(ht_unit_workspace_bytes(&m, 0, 3, 197, HT_F32, back), 3 * 197 * 768 * 4);
        ck_assert_int_eq(ht_unit_workspace_bytes(&m, 0, 3, 197, HT_BF16, back), 3 * 197 * 768 * 2);
    }
    /* 2 * 3 * 196 * 768 * 768, and the classes alone: 2 * 3 * 768 * 1000. */
    ck_assert(ht_unit_flops(&m, 0, 3, 197) == 693633024);
    ck_assert(ht_unit_flops(&m, 13, 3, 197) == 4608000);
}
END_TEST

/* Llama 2 70B: C = 8192, H = 64, Hkv = 8, F = 28672, V = 32000, L = 80. K = 8 * 128 = 1024. Block 2 * 8192^2 +
   2 * 8192 * 1024 + 3 * 8192 * 28672 + 2 * 8192 = 134217728 + 16777216 + 704643072 + 16384 = 855654400. Total
   2 * 32000 * 8192 + 8192 + 80 * 855654400 = 524288000 + 8192 + 68452352000 = 68976648192: as published. */
START_TEST(test_llama_grouped_params)
{
    struct ht_model m = {.arch = HT_ARCH_LLAMA,
                         .layers = 80,
                         .width = 8192,
                         .heads = 64,
                         .kv_heads = 8,
                         .ffn = 28672,
                         .vocab = 32000,
                         .max_seq = 4096};
    ck_assert_int_eq(ht_model_kv_width(&m), 1024);
    ck_assert_int_eq(ht_unit_params(&m, 1), 855654400);
    ck_assert_int_eq(ht_model_params(&m), 68976648192);
    struct ht_param_part p[HT_MAX_PARAM_PARTS];
    ck_assert_int_eq(ht_unit_param_parts(&m, 1, p), 9);
    ck_assert_str_eq(p[2].name, "self_attn.k_proj.weight");
    ck_assert_int_eq(p[2].rows, 1024);
    ck_assert_int_eq(p[2].cols, 8192);
    ck_assert_int_eq(p[3].offset - p[2].offset, INT64_C(1024) * 8192);
}
END_TEST

/* B = 2, T = 64, C = 128, F = 96, H = 8, Hkv = 2, FP32, so K = 32, N = 128, and (N,C) takes 65536 bytes.
     kept: norm1 and norm2 65536 + 512 (1/rms) each; qkv N * 192 * 4 = 98304; attention 65536, probabilities
     2 * 8 * 64^2 * 4 = 262144; proj 65536; fc1 N * 192 * 4 = 98304; silu(gate) up N * 96 * 4 = 49152.
     Sum 132096 + 98304 + 327680 + 65536 + 98304 + 49152 = 771072.
     FLOPs: qkv 2 * 128 * 128 * 192 = 6291456; attention 4 * 128 * 64 * 128 = 4194304; proj 2 * 128 * 128^2 = 4194304;
     gate and up 4 * 128 * 128 * 96 = 6291456; down 3145728. Sum 24117248.
     workspace: backward wide 98304 (192 either way), (N,C) twice 131072, and 4 groups' tiles of 64 * 64 floats: 65536.
     Head: norm as above, no second vector of parameters. */
START_TEST(test_llama_block)
{
    struct ht_model m = {.arch = HT_ARCH_LLAMA,
                         .layers = 1,
                         .width = 128,
                         .heads = 8,
                         .kv_heads = 2,
                         .ffn = 96,
                         .vocab = 100,
                         .max_seq = 64};
    struct ht_act_layout l;
    ht_block_activations(&m, HT_ALL_SUB_OPS, 2, 64, HT_F32, &l);
    ck_assert_int_eq(l.norm1_stats.bytes, 512);
    ck_assert_int_eq(l.qkv.bytes, 98304);
    ck_assert_int_eq(l.fc1.bytes, 98304);
    ck_assert_int_eq(l.bytes, 771072);
    ck_assert(ht_sub_op_flops(&m, HT_SUB_QKV, 2, 64) == 6291456);
    ck_assert(ht_unit_flops(&m, 1, 2, 64) == 24117248);
    ck_assert_int_eq(ht_attention_slots(&m, 2), 4);
    ck_assert_int_eq(ht_unit_workspace_bytes(&m, 1, 2, 64, HT_F32, true), 98304 + 131072 + 65536);
    ck_assert_int_eq(ht_unit_workspace_bytes(&m, 1, 2, 64, HT_F32, false), 0);
    ck_assert_int_eq(ht_unit_activation_bytes(&m, 2, 2, 64, HT_F32), 65536 + 512);
    ck_assert_int_eq(ht_unit_params(&m, 2), 128 + 100 * 128);
    ck_assert_int_eq(ht_unit_params(&m, 0), 100 * 128);
}
END_TEST

START_TEST(test_parts_are_contiguous)
{
    for (int variant = 0; variant < 4; variant++) {
        struct ht_model m = gpt2();
        m.arch = variant & 1 ? HT_ARCH_LLAMA : HT_ARCH_GPT;
        m.tied = variant >> 1;
        for (int64_t u = 0; u < ht_model_units(&m); u++) {
            struct ht_param_part parts[HT_MAX_PARAM_PARTS];
            int n = ht_unit_param_parts(&m, u, parts);
            int64_t at = 0;
            for (int i = 0; i < n; i++) {
                ck_assert_int_eq(parts[i].offset, at);
                at += parts[i].rows * parts[i].cols;
            }
            ck_assert_int_eq(at, ht_unit_params(&m, u));
        }
    }
}
END_TEST

/* B = 2, T = 16, C = 64, F = 256, H = 4: BTC = 2048, BT^2C = 32768.
   qkv 6 * 2048 * 64 = 786432; attention 4 * 32768 = 131072; proj 2 * 2048 * 64 = 262144; fc1 = fc2 = 2 * 2048 * 256 =
   1048576. Sum 3276800 = 8 BTC^2 (1048576) + 4 BT^2C (131072) + 4 BTCF (2097152). Head with V = 100: 2 * 2048 * 100. */
START_TEST(test_flops)
{
    struct ht_model m = {.arch = HT_ARCH_GPT,
                         .layers = 2,
                         .width = 64,
                         .heads = 4,
                         .ffn = 256,
                         .vocab = 100,
                         .max_seq = 16,
                         .tied = true};
    ck_assert(ht_sub_op_flops(&m, HT_SUB_QKV, 2, 16) == 786432);
    ck_assert(ht_sub_op_flops(&m, HT_SUB_ATTENTION, 2, 16) == 131072);
    ck_assert(ht_sub_op_flops(&m, HT_SUB_PROJ, 2, 16) == 262144);
    ck_assert(ht_sub_op_flops(&m, HT_SUB_FC1, 2, 16) == 1048576);
    ck_assert(ht_sub_op_flops(&m, HT_SUB_GELU, 2, 16) == 0);
    ck_assert(ht_unit_flops(&m, 0, 2, 16) == 0);
    ck_assert(ht_unit_flops(&m, 1, 2, 16) == 3276800);
    ck_assert(ht_unit_flops(&m, 3, 2, 16) == 409600);
}
END_TEST

/* Korthikanti et al. 2022, eq. (1): 34 BTC + 5 BHTT bytes in 16 bit with dropout, the unit's input (2 BTC) included.
   B = 2, T = 64, C = 128, H = 4: BTC = 16384, BHTT = 32768; 34 * 16384 + 5 * 32768 = 557056 + 163840 = 720896.
   Ours has two norms' statistics beside it, FP32 mean and 1/std of BT = 128 rows: 2 * 2 * 128 * 4 = 2048. All parts are
   multiples of 64, so nothing is lost to alignment. */
START_TEST(test_korthikanti)
{
    struct ht_model m = {.arch = HT_ARCH_GPT,
                         .layers = 1,
                         .width = 128,
                         .heads = 4,
                         .ffn = 512,
                         .vocab = 100,
                         .max_seq = 64,
                         .dropout = true};
    for (int d = HT_F16; d <= HT_BF16; d++) {
        int64_t kept = ht_unit_activation_bytes(&m, 1, 2, 64, (enum ht_dtype)d);
        ck_assert_int_eq(kept + ht_unit_input_bytes(&m, 1, 2, 64, (enum ht_dtype)d), 720896 + 2048);
    }
}
END_TEST

/* That block without dropout, FP32: (1 + 3 + 1 + 1 + 1 + 4 + 4) BTC = 15 * 16384 floats, 32768 probabilities,
   statistics 2048 bytes: 4 * (245760 + 32768) + 2048 = 1116160. Flash: log-sum-exp, 4 * 2 * 4 * 64 = 2048 bytes, in
   place of the probabilities: 1116160 - 131072 + 2048 = 987136. */
START_TEST(test_kept_fp32)
{
    struct ht_model m = {
        .arch = HT_ARCH_GPT, .layers = 1, .width = 128, .heads = 4, .ffn = 512, .vocab = 100, .max_seq = 64};
    struct ht_act_layout l;
    ht_block_activations(&m, HT_ALL_SUB_OPS, 2, 64, HT_F32, &l);
    ck_assert_int_eq(l.bytes, 1116160);
    ck_assert_int_eq(l.lse.bytes, 0);
    ck_assert_int_eq(l.norm1.offset, 0);
    ck_assert_int_eq(l.norm1_stats.offset, 65536);
    ck_assert_int_eq(l.qkv.offset, 65536 + 1024);
    ck_assert_int_eq(ht_unit_activation_bytes(&m, 2, 2, 64, HT_F32), 65536 + 1024);
    ck_assert_int_eq(ht_unit_activation_bytes(&m, 0, 2, 64, HT_F32), 0);
    ck_assert_int_eq(ht_unit_input_bytes(&m, 0, 2, 64, HT_F32), 0);
    ck_assert_int_eq(ht_logits_bytes(&m, 2, 64), 128 * 128 * 4); /* rows of 100 floats, padded to a multiple of 32 */
    m.flash = true;
    ck_assert_int_eq(ht_unit_activation_bytes(&m, 1, 2, 64, HT_F32), 987136);
    ck_assert_int_eq(ht_sub_ops_activation_bytes(&m, 1u << HT_SUB_FC2, 2, 64, HT_F32), 0);
}
END_TEST

/* Rows of logits take whole 128 bytes, 32 floats. GPT-2's 50257 = 1570 * 32 + 17 become 1571 * 32 = 50272. What is a
   multiple already keeps its bytes. */
START_TEST(test_logits)
{
    static const int64_t cases[][2] = {{2, 32},    {31, 32},       {32, 32},       {33, 64},
                                       {256, 256}, {32000, 32000}, {50257, 50272}, {50304, 50304}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ht_model m = {.vocab = cases[i][0]};
        ck_assert_int_eq(ht_logits_stride(&m), cases[i][1]);
        ck_assert_int_eq(ht_logits_bytes(&m, 3, 7), 21 * cases[i][1] * 4);
    }
}
END_TEST

/* Sub-ops sum to the block, for odd sizes, every dtype and option; parts are aligned and do not overlap. */
START_TEST(test_sub_ops_sum_to_block)
{
    for (int variant = 0; variant < 24; variant++) {
        struct ht_model m = {.arch = variant & 1 ? HT_ARCH_LLAMA : HT_ARCH_GPT,
                             .layers = 1,
                             .width = 15,
                             .heads = 3,
                             .ffn = 37,
                             .vocab = 11,
                             .max_seq = 13,
                             .flash = variant >> 1 & 1,
                             .dropout = variant >> 2 & 1};
        enum ht_dtype d = (enum ht_dtype)(variant / 8);
        struct ht_act_layout l;
        ht_block_activations(&m, HT_ALL_SUB_OPS, 3, 13, d, &l);
        int64_t sum = 0;
        for (int s = 0; s < HT_N_SUB_OPS; s++) sum += ht_sub_ops_activation_bytes(&m, 1u << s, 3, 13, d);
        ck_assert_int_eq(sum, l.bytes);
        ck_assert_int_eq(l.bytes, ht_unit_activation_bytes(&m, 1, 3, 13, d));
        struct ht_act_part parts[] = {l.norm1,   l.norm1_stats,    l.qkv,     l.attention, l.lse,   l.probs,
                                      l.dropped, l.attention_mask, l.proj,    l.proj_mask, l.norm2, l.norm2_stats,
                                      l.fc1,     l.gelu,           l.fc2_mask};
        int64_t end = 0;
        for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
            if (!parts[i].bytes) continue;
            ck_assert_int_eq(parts[i].offset % 64, 0);
            ck_assert_int_ge(parts[i].offset, end);
            ck_assert_int_lt(parts[i].offset - end, 64);
            end = parts[i].offset + parts[i].bytes;
        }
        ck_assert_int_le(end, l.bytes);
    }
}
END_TEST

/* B = 2, T = 64, C = 128, F = 512, H = 4, FP32. qkv 196608; norm2 65536 and statistics 1024; gelu 262144. A row of
   these three has 525312 bytes, and norm2 begins at 196608, gelu at 263168. FC2 keeps nothing, so it is nowhere. */
START_TEST(test_row_of_sub_ops)
{
    struct ht_model m = {
        .arch = HT_ARCH_GPT, .layers = 1, .width = 128, .heads = 4, .ffn = 512, .vocab = 100, .max_seq = 64};
    unsigned sub_ops = 1u << HT_SUB_QKV | 1u << HT_SUB_NORM2 | 1u << HT_SUB_GELU | 1u << HT_SUB_FC2;
    static char row[525312];
    char text[64], *at = row, *none = NULL;
    struct ht_act_layout l;
    ht_block_activations(&m, sub_ops, 2, 64, HT_F32, &l);
    ck_assert_int_eq(l.bytes, 525312);
    ck_assert_int_eq(ht_sub_ops_activation_bytes(&m, sub_ops, 2, 64, HT_F32), 525312);
    ck_assert_int_eq(l.norm2.offset, 196608);
    ck_assert_int_eq(l.norm2_stats.offset, 196608 + 65536);
    ck_assert_int_eq(l.gelu.offset, 263168);
    ck_assert_int_eq(l.norm1.bytes, 0);
    struct ht_block_acts acts = {0};
    acts.of[HT_SUB_PROJ] = &acts;
    ht_block_acts_place(&m, sub_ops, 2, 64, HT_F32, at, &acts);
    const void *const expected[HT_N_SUB_OPS] = {none, at, none, &acts, at + 196608, none, at + 263168, none};
    for (int s = 0; s < HT_N_SUB_OPS; s++) ck_assert_ptr_eq(acts.of[s], expected[s]);
    ck_assert_str_eq(ht_sub_ops_text(sub_ops, text, sizeof(text)), "qkv, norm2, gelu, fc2");
    ck_assert_str_eq(ht_sub_ops_text(0, text, sizeof(text)), "");
    ck_assert_str_eq(ht_sub_ops_text(sub_ops, text, 8), "qkv, no");
}
END_TEST

/* The whole block reads its input alone; from gelu on only fc1 is read; fc2 reads proj beside gelu. */
START_TEST(test_what_sub_ops_read)
{
    static const struct {
        unsigned sub_ops, reads;
        bool input;
        enum ht_arch arch; /* LLaMA's are GPT's */
    } cases[] = {
        {HT_ALL_SUB_OPS, 0, true, HT_ARCH_GPT},
        {0, 0, false, HT_ARCH_GPT},
        {1u << HT_SUB_NORM1, 0, true, HT_ARCH_GPT},
        {1u << HT_SUB_ATTENTION, 1u << HT_SUB_QKV, false, HT_ARCH_GPT},
        {1u << HT_SUB_ATTENTION | 1u << HT_SUB_PROJ, 1u << HT_SUB_QKV, true, HT_ARCH_GPT},
        {1u << HT_SUB_GELU, 1u << HT_SUB_FC1, false, HT_ARCH_GPT},
        {1u << HT_SUB_GELU | 1u << HT_SUB_FC2, 1u << HT_SUB_FC1 | 1u << HT_SUB_PROJ, false, HT_ARCH_GPT},
        {1u << HT_SUB_QKV | 1u << HT_SUB_NORM2, 1u << HT_SUB_NORM1 | 1u << HT_SUB_PROJ, false, HT_ARCH_GPT},
        {HT_ALL_SUB_OPS & ~(1u << HT_SUB_PROJ), 1u << HT_SUB_PROJ, true, HT_ARCH_GPT},
        {HT_ALL_SUB_OPS, 0, true, HT_ARCH_BERT},
        {1u << HT_SUB_NORM1, 0, true, HT_ARCH_BERT},
        {1u << HT_SUB_PROJ, 1u << HT_SUB_ATTENTION | 1u << HT_SUB_NORM1, false, HT_ARCH_BERT},
        {1u << HT_SUB_FC2, 1u << HT_SUB_GELU | 1u << HT_SUB_NORM2, false, HT_ARCH_BERT},
        {1u << HT_SUB_GELU | 1u << HT_SUB_FC2, 1u << HT_SUB_FC1 | 1u << HT_SUB_NORM2, false, HT_ARCH_BERT},
        {HT_ALL_SUB_OPS & ~(1u << HT_SUB_NORM1), 1u << HT_SUB_NORM1, false, HT_ARCH_BERT},
        {1u << HT_SUB_PROJ, 1u << HT_SUB_ATTENTION, true, HT_ARCH_LLAMA},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ht_sub_op_reads reads = ht_sub_ops_read(cases[i].arch, cases[i].sub_ops);
        ck_assert_uint_eq(reads.sub_ops, cases[i].reads);
        ck_assert_int_eq(reads.input, cases[i].input);
    }
}
END_TEST

/* B = 2, T = 64, C = 128, F = 512, H = 4, FP32. Block backward: (B,T,512) = 262144 bytes, twice (B,T,128) = 65536, and
   8 slots of a tile of 64 * 64 floats = 16384: 262144 + 131072 + 131072 = 524288. Forward nothing; with flash 8 tiles
   more each way. Head: backward (B,T,C) = 65536, forward a double a row = 1024. */
START_TEST(test_workspace)
{
    struct ht_model m = {
        .arch = HT_ARCH_GPT, .layers = 1, .width = 128, .heads = 4, .ffn = 512, .vocab = 100, .max_seq = 64};
    ck_assert_int_eq(ht_unit_workspace_bytes(&m, 1, 2, 64, HT_F32, true), 524288);
    ck_assert_int_eq(ht_unit_workspace_bytes(&m, 1, 2, 64, HT_F32, false), 0);
    ck_assert_int_eq(ht_unit_workspace_bytes(&m, 0, 2, 64, HT_F32, true), 0);
    ck_assert_int_eq(ht_unit_workspace_bytes(&m, 2, 2, 64, HT_F32, true), 65536);
    ck_assert_int_eq(ht_unit_workspace_bytes(&m, 2, 2, 64, HT_F32, false), 1024);
    m.flash = true;
    ck_assert_int_eq(ht_unit_workspace_bytes(&m, 1, 2, 64, HT_F32, false), 131072);
    ck_assert_int_eq(ht_unit_workspace_bytes(&m, 1, 2, 64, HT_F32, true), 524288 + 131072);
    /* Halves, still with flash: the MLP's has (B,T,512) and one (B,T,128); the attention's (B,T,384) = 196608, two
       (B,T,128) and all tiles. Forward only attention has any. */
    ck_assert_int_eq(ht_block_workspace_bytes(&m, HT_MLP_HALF, 2, 64, HT_F32, true), 262144 + 65536);
    ck_assert_int_eq(ht_block_workspace_bytes(&m, HT_ATTENTION_HALF, 2, 64, HT_F32, true),
                     196608 + 2 * 65536 + 2 * 131072);
    ck_assert_int_eq(ht_block_workspace_bytes(&m, HT_MLP_HALF, 2, 64, HT_F32, false), 0);
    ck_assert_int_eq(ht_block_workspace_bytes(&m, HT_ATTENTION_HALF, 2, 64, HT_F32, false), 131072);
    /* BF16: half of each (B,T,..), dscores as before, and 8 slots of (T,2,C/H) floats = 16384 for dk and dv; forward
       tiles with and without flash; the embedding's lists are 100 + 128 integers. */
    ck_assert_int_eq(ht_unit_workspace_bytes(&m, 1, 2, 64, HT_BF16, true), 131072 + 65536 + 131072 + 131072 + 131072);
    m.flash = false;
    ck_assert_int_eq(ht_unit_workspace_bytes(&m, 1, 2, 64, HT_BF16, true), 131072 + 65536 + 131072 + 131072);
    ck_assert_int_eq(ht_unit_workspace_bytes(&m, 1, 2, 64, HT_BF16, false), 131072);
    ck_assert_int_eq(ht_unit_workspace_bytes(&m, 0, 2, 64, HT_BF16, false), 0);
    ck_assert_int_eq(ht_unit_workspace_bytes(&m, 0, 2, 64, HT_BF16, true), 960); /* 912, in lines of 64 */
    m.heads = 32; /* 64 pairs, but no more than 32 workers take part */
    ck_assert_int_eq(ht_attention_slots(&m, 2), 32);
}
END_TEST

/* Counts by hand the copies that PyTorch's and Megatron's programs hold more, on test_llama_block's model: N = 128, (N,C)
   has 16384 elements, (N,F) 12288, (B,H,T,T) 65536, the logits 128 rows of 100, padded to 128: 16384.
     16 bit: a norm keeps x in FP32 and its normalised copy, 16384 (4 + 2) = 98304; silu(gate) 12288 * 2 = 24576.
     FP32: the normalised copy alone, 65536; silu(gate) 49152. */
START_TEST(test_software)
{
    struct ht_software eager, megatron;
    struct ht_model m = {.arch = HT_ARCH_LLAMA,
                         .layers = 1,
                         .width = 128,
                         .heads = 8,
                         .kv_heads = 2,
                         .ffn = 96,
                         .vocab = 100,
                         .max_seq = 64},
                    e = m, g = m;
    ck_assert(!ht_software_load("eager", NULL, &eager) && !ht_software_load("megatron", NULL, &megatron));
    ht_software_apply(&eager, &e);
    ht_software_apply(&megatron, &g);
    ck_assert_int_eq(ht_unit_activation_bytes(&e, 1, 2, 64, HT_BF16) - ht_unit_activation_bytes(&m, 1, 2, 64, HT_BF16),
                     2 * 98304 + 24576);
    ck_assert_int_eq(ht_unit_activation_bytes(&e, 1, 2, 64, HT_F32), 771072 + 2 * 65536 + 49152);
    ck_assert_int_eq(ht_unit_activation_bytes(&e, 2, 2, 64, HT_BF16) - ht_unit_activation_bytes(&m, 2, 2, 64, HT_BF16),
                     98304);
    ck_assert_int_eq(ht_unit_activation_bytes(&g, 1, 2, 64, HT_F32), 771072 + 49152); /* its norms are one kernel */
    struct ht_act_layout l;
    ht_block_activations(&e, 1u << HT_SUB_GELU, 2, 64, HT_F32, &l);
    ck_assert_int_eq(l.gelu_held.offset, 49152); /* behind what our kernels keep */
    ck_assert_int_eq(l.bytes, 2 * 49152);
    /* The model's output keeps the logits beside the log-softmax; Megatron's softmax is all that is kept. */
    ck_assert_int_eq(ht_logits_bytes(&e, 2, 64), 2 * 65536);
    ck_assert_int_eq(ht_logits_bytes(&g, 2, 64), 65536);
    /* A block's backward: two (B,H,T,T) of 2 bytes, more than one (N,F); forward one; with flash attention none. They come
       in place of what the MLP has kept: norm2 32768, 512 and 6 x 16384, gate and up 49152, product and silu 24576 each. */
    ck_assert(e.held.frees);
    ck_assert_int_eq(ht_unit_workspace_bytes(&e, 1, 2, 64, HT_BF16, true),
                     ht_unit_workspace_bytes(&m, 1, 2, 64, HT_BF16, true) + 2 * 131072 - 229888);
    e.held.frees = false;
    ck_assert_int_eq(ht_unit_workspace_bytes(&e, 1, 2, 64, HT_BF16, true),
                     ht_unit_workspace_bytes(&m, 1, 2, 64, HT_BF16, true) + 2 * 131072);
    ck_assert_int_eq(ht_unit_workspace_bytes(&e, 1, 2, 64, HT_F32, false), 262144);
    e.flash = m.flash = true;
    ck_assert_int_eq(ht_unit_workspace_bytes(&e, 1, 2, 64, HT_BF16, true),
                     ht_unit_workspace_bytes(&m, 1, 2, 64, HT_BF16, true) + 24576);
    /* The head's passes: the shifted logits in FP32; two gradients in FP32 and one in 16 bits. Megatron: logits in both. */
    ck_assert_int_eq(ht_unit_workspace_bytes(&e, 2, 2, 64, HT_BF16, false), 1024 + 65536);
    ck_assert_int_eq(ht_unit_workspace_bytes(&e, 2, 2, 64, HT_BF16, true), 32768 + 2 * 65536 + 32768);
    ck_assert_int_eq(ht_unit_workspace_bytes(&e, 2, 2, 64, HT_F32, true), 65536 + 2 * 65536);
    ck_assert_int_eq(ht_unit_workspace_bytes(&g, 2, 2, 64, HT_BF16, false), 1024 + 65536 + 32768);
    ck_assert_int_eq(ht_unit_workspace_bytes(&g, 2, 2, 64, HT_BF16, true), 32768 + 32768);
}
END_TEST

START_TEST(test_names_and_dtypes)
{
    struct ht_numerics full = {HT_F32, HT_F32, HT_F32, HT_F32}, mixed = {HT_BF16, HT_BF16, HT_F32, HT_F32};
    ck_assert(!ht_numerics_has_master(&full) && ht_numerics_has_master(&mixed));
    /* BF16 copy and gradient, FP32 master, momentum, variance: 2 + 2 + 12; in FP32 the copy is the master: 4 + 4 + 8. */
    ck_assert_int_eq(ht_optimizer_state_bytes(&mixed), 12);
    ck_assert_int_eq(ht_optimizer_state_bytes(&full), 8);
    ck_assert_int_eq(ht_model_state_bytes(&mixed), 16);
    ck_assert_int_eq(ht_model_state_bytes(&full), 16);
    ck_assert_int_eq(ht_stepped_gradient(&mixed, 1), HT_BF16);
    ck_assert_int_eq(ht_stepped_gradient(&mixed, 2), HT_F32);
    ck_assert_str_eq(ht_dtype_name(HT_BF16), "bf16");
    ck_assert_int_eq(ht_dtype_bytes(HT_F16), 2);
    ck_assert_str_eq(ht_sub_op_name(HT_SUB_FC2), "fc2");
    struct ht_model m = gpt2();
    ck_assert_int_eq(ht_model_unit_kind(&m, 0), HT_UNIT_EMBEDDING);
    ck_assert_int_eq(ht_model_unit_kind(&m, 12), HT_UNIT_BLOCK);
    ck_assert_int_eq(ht_model_unit_kind(&m, 13), HT_UNIT_HEAD);
}
END_TEST

/* The backward pass of a whole block reads all; of the MLP's half proj, too, the input of norm2; of the attention's
   half the block's input. A mask of dropout belongs to proj and is read in the attention's half. */
START_TEST(test_backward_reads)
{
    unsigned proj = 1u << HT_SUB_PROJ;
    struct ht_sub_op_reads all = ht_sub_ops_backward_read(false, HT_ALL_SUB_OPS);
    struct ht_sub_op_reads mlp = ht_sub_ops_backward_read(false, HT_MLP_HALF);
    struct ht_sub_op_reads attention = ht_sub_ops_backward_read(false, HT_ATTENTION_HALF);
    ck_assert(all.sub_ops == HT_ALL_SUB_OPS && all.input);
    ck_assert(mlp.sub_ops == (HT_MLP_HALF | proj) && !mlp.input);
    ck_assert(attention.sub_ops == (1u << HT_SUB_NORM1 | 1u << HT_SUB_QKV | 1u << HT_SUB_ATTENTION) && attention.input);
    ck_assert_uint_eq(ht_sub_ops_backward_read(true, HT_ATTENTION_HALF).sub_ops, HT_ATTENTION_HALF);
    ck_assert_uint_eq(ht_sub_ops_backward_read(true, HT_MLP_HALF).sub_ops, HT_MLP_HALF | proj);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("layout");
    TCase *t = tcase_create("layout");
    tcase_add_test(t, test_gpt_params);
    tcase_add_test(t, test_llama_params);
    tcase_add_test(t, test_bert);
    tcase_add_test(t, test_vit);
    tcase_add_test(t, test_llama_grouped_params);
    tcase_add_test(t, test_llama_block);
    tcase_add_test(t, test_parts_are_contiguous);
    tcase_add_test(t, test_row_of_sub_ops);
    tcase_add_test(t, test_what_sub_ops_read);
    tcase_add_test(t, test_flops);
    tcase_add_test(t, test_korthikanti);
    tcase_add_test(t, test_kept_fp32);
    tcase_add_test(t, test_logits);
    tcase_add_test(t, test_sub_ops_sum_to_block);
    tcase_add_test(t, test_workspace);
    tcase_add_test(t, test_backward_reads);
    tcase_add_test(t, test_software);
    tcase_add_test(t, test_names_and_dtypes);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}
