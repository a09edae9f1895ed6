/* Tensor-parallel parts: sizes by hand, and together they are the whole. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "common/model/halves.h"

static const struct ht_model gpt = {
    .arch = HT_ARCH_GPT, .layers = 2, .width = 8, .heads = 4, .ffn = 12, .vocab = 11, .max_seq = 3};
static const struct ht_model llama = {
    .arch = HT_ARCH_LLAMA, .layers = 2, .width = 16, .heads = 4, .kv_heads = 2, .ffn = 6, .vocab = 9, .max_seq = 3};

/*
 * C = 8, H = 4, F = 12, V = 11, n = 2: Q = 4, F' = 6. Table ceil(11 / 2) = 6 and 5 rows of 8, positions 3 x 8.
 * Block: norms 4 x 8, qkv 12 x 8 + 12, projection 8 x 4 + 8, fc1 6 x 8 + 6, fc2 8 x 6 + 8:
 * 32 + 108 + 40 + 54 + 56 = 290. B = 2, T = 3, FP32: (B,T,C) 192 bytes, (B,T,Q) 96 -> 128, (B,T,3Q) 288 -> 320,
 * (B,T,F') 144 -> 192, probabilities (B,2,T,T) 144 -> 192, statistics 48 -> 64: norms 2 (192 + 64), qkv 320, attention
 * 128 + 192, projection 192, fc1 and gelu 384. Logits 6 tokens' rows, 32 floats apart.
 */
START_TEST(sizes)
{
    struct ht_model q0 = ht_model_part(&gpt, 0, 2), q1 = ht_model_part(&gpt, 1, 2);
    ck_assert_int_eq(ht_unit_params(&q0, 0), 6 * 8 + 24);
    ck_assert_int_eq(ht_unit_params(&q1, 0), 5 * 8 + 24);
    ck_assert_int_eq(ht_unit_params(&q0, 1), 290);
    ck_assert_int_eq(ht_unit_params(&q1, 1), 290);
    ck_assert_int_eq(ht_unit_params(&q0, 3), 16 + 48);
    ck_assert_int_eq(ht_unit_activation_bytes(&q1, 1, 2, 3, HT_F32), 512 + 320 + 128 + 192 + 192 + 384);
    ck_assert_int_eq(ht_unit_input_bytes(&q1, 1, 2, 3, HT_F32), ht_unit_input_bytes(&gpt, 1, 2, 3, HT_F32));
    ck_assert_int_eq(ht_logits_bytes(&q1, 2, 3), 6 * 32 * 4);
    for (int64_t u = 0; u < 4; u++)
        ck_assert(u == 3 || ht_unit_flops(&q0, u, 2, 3) * 2 == ht_unit_flops(&gpt, u, 2, 3));
    ck_assert(ht_unit_flops(&q0, 3, 2, 3) + ht_unit_flops(&q1, 3, 2, 3) == ht_unit_flops(&gpt, 3, 2, 3));
}
END_TEST

/*
 * Halves of a block, of the models above. GPT: norm 16, qkv 24 x 8 + 24, projection 8 x 8 + 8: 304, of a part 16 + 12 x 8 +
 * 12 + 8 x 4 + 8 = 164; norm, fc1 12 x 8 + 12, fc2 8 x 12 + 8: 228. LLaMA, K = 8: norm 16, q, k, v 32 x 16, projection 16
 * x 16: 784; norm, gate and up 12 x 16, down 16 x 6: 304.
 */
START_TEST(halves)
{
    struct ht_model part = ht_model_part(&gpt, 1, 2);
    const struct {
        const struct ht_model *m;
        int64_t cut, end;
    } cases[] = {{&gpt, 304, 304 + 228}, {&part, 164, 290}, {&llama, 784, 784 + 304}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ht_range attention = ht_sub_ops_params(cases[i].m, 1, HT_ATTENTION_HALF);
        struct ht_range mlp = ht_sub_ops_params(cases[i].m, 1, HT_MLP_HALF);
        ck_assert(attention.begin == 0 && attention.end == cases[i].cut);
        ck_assert(mlp.begin == cases[i].cut && mlp.end == cases[i].end);
        ck_assert_int_eq(ht_sub_ops_params(cases[i].m, 1, HT_ALL_SUB_OPS).end, cases[i].end);
        ck_assert_int_eq(ht_sub_ops_params(cases[i].m, 0, HT_MLP_HALF).begin, 0); /* the embedding has no halves */
    }
}
END_TEST

/* The same, cut behind each sub-op: elements of the front, and of a row of what it hands. Its part of GPT: half of qkv, projection,
   fc1 and fc2's matrix. LLaMA hands gate and up, BERT has the parameters of GPT in other parts. */
START_TEST(fronts)
{
    struct ht_model part = ht_model_part(&gpt, 1, 2), bert = gpt;
    bert.arch = HT_ARCH_BERT, bert.classes = 2;
    const struct {
        const struct ht_model *m;
        int64_t front[HT_N_SUB_OPS - 1], handed[HT_N_SUB_OPS - 1];
    } cases[] = {
        {&gpt, {16, 232, 232, 304, 320, 428, 428}, {8, 24, 8, 0, 8, 12, 12}},
        {&part, {16, 124, 124, 164, 180, 234, 234}, {8, 12, 4, 0, 8, 6, 6}},
        {&llama, {16, 528, 528, 784, 800, 992, 992}, {16, 32, 16, 0, 16, 12, 6}},
        {&bert, {16, 232, 232, 304, 320, 428, 428}, {8, 24, 8, 0, 8, 12, 12}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int64_t n = 1; n < HT_N_SUB_OPS; n++) {
            unsigned front = ht_front(n), back = HT_ALL_SUB_OPS & ~front;
            ck_assert(ht_is_front(front) && !ht_is_back(front) && ht_is_back(back) && !ht_is_front(back));
            ck_assert_uint_eq(ht_front_of(back), front);
            ck_assert_int_eq(ht_sub_ops_params(cases[i].m, 1, front).end, cases[i].front[n - 1]);
            ck_assert_int_eq(ht_sub_ops_params(cases[i].m, 1, back).begin, cases[i].front[n - 1]);
            ck_assert_uint_eq(ht_handed(front), n == 4 ? 0 : 1u << (n - 1));
            if (n != 4) ck_assert_int_eq(ht_handed_width(cases[i].m, ht_handed(front)), cases[i].handed[n - 1]);
        }
    ck_assert(!ht_is_half(0) && !ht_is_half(HT_ALL_SUB_OPS) && !ht_is_half(1u << HT_SUB_ATTENTION));
}
END_TEST

/*
 * Korthikanti et al. 2022, equation (4): with sequence parallelism a block of s b h tokens keeps s b h / t (34 + 5 a s / h)
 * bytes in 16 bit, its input included, with dropout and without flash attention. Here also the two norms' statistics, 8 bytes
 * a row each. s = 32, b = 2, h = 64, a = 4, t = 4: 1024 x (34 + 10) = 45056, and 16 rows of 16.
 */
START_TEST(rows)
{
    struct ht_model m = gpt, part;
    m.width = 64, m.ffn = 256, m.max_seq = 32, m.dropout = true;
    part = ht_model_part(&m, 1, 4);
    int64_t without = ht_unit_activation_bytes(&part, 1, 2, 32, HT_F16);
    part.sequence = true;
    ck_assert_int_eq(ht_model_rows(&part, 64), 16);
    ck_assert_int_eq(ht_unit_input_bytes(&part, 1, 2, 32, HT_F16), 16 * 64 * 2);
    int64_t kept = ht_unit_activation_bytes(&part, 1, 2, 32, HT_F16);
    ck_assert_int_eq(kept + 16 * 64 * 2, 45056 + 16 * 16);
    /* Without it each part has all of norm1, proj, norm2 and two masks, 2 + 2 + 2 + 1 + 1 = 8 bytes: 3/4 of them more. */
    ck_assert_int_eq(without - kept, 3 * 16 * (64 * 8 + 16));
    ck_assert_int_eq(
        ht_unit_params(&part, 1),
        ht_unit_params(
            &(struct ht_model){
                .arch = HT_ARCH_GPT, .layers = 2, .width = 64, .heads = 4, .ffn = 256, .part = 1, .parts = 4},
            1));
    m.sequence = true; /* a whole model has all rows */
    ck_assert_int_eq(ht_model_rows(&m, 64), 64);
}
END_TEST

/* Part 1 of 2 of the block: rows 4..7 of query are rows 4..7 of the whole's 24, those of key rows 12..15. The projection's
   columns 4..7 of row 0 are followed by those of row 1, 8 elements on. */
START_TEST(runs)
{
    struct ht_model q1 = ht_model_part(&gpt, 1, 2);
    int64_t qkv = 16, bias = qkv + 24 * 8, proj = bias + 24, own_bias = qkv + 12 * 8, own_proj = own_bias + 12;
    struct {
        int64_t at, whole, count;
        bool shared;
    } want[] = {{3, 3, 5, true},
                {qkv, qkv + 4 * 8, 4 * 8, false},
                {qkv + 4 * 8 + 1, qkv + 12 * 8 + 1, 4 * 8 - 1, false},
                {own_bias + 8, bias + 20, 4, false},
                {own_proj, proj + 4, 4, false},
                {own_proj + 6, proj + 8 + 6, 2, false},
                {own_proj + 32, proj + 64, 8, true}};
    for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
        struct ht_part_run r = ht_unit_part_run(&q1, 1, want[i].at);
        ck_assert_int_eq(r.whole, want[i].whole);
        ck_assert_int_eq(r.count, want[i].count);
        ck_assert(r.shared == want[i].shared);
    }
    struct ht_part_run all = ht_unit_part_run(&gpt, 1, 7);
    ck_assert(all.whole == 7 && all.count == ht_unit_params(&gpt, 1) - 7 && all.shared);
}
END_TEST

/* Every element of a unit is in one part, or, where parts share it, once in each. */
START_TEST(parts_are_the_whole)
{
    struct ht_model m = _i & 1 ? llama : gpt;
    int32_t parts = _i & 2 && !(_i & 1) ? 4 : 2;
    m.tied = _i & 4;
    for (int64_t u = 0; u < ht_model_units(&m); u++) {
        int64_t n = ht_unit_params(&m, u);
        int *seen = calloc((size_t)n, sizeof(int));
        for (int32_t q = 0; q < parts; q++) {
            struct ht_model p = ht_model_part(&m, q, parts);
            struct ht_part_run r;
            for (int64_t whole = n, next = n; whole-- > 0;) { /* the first element of this part from there on */
                r = ht_unit_part_find(&p, u, whole);
                if (r.count && r.whole == whole) next = whole;
                ck_assert_int_eq(r.whole, next);
                if (r.count) ck_assert_int_eq(ht_unit_part_run(&p, u, r.at).whole, next);
            }
            for (int64_t at = 0; at < ht_unit_params(&p, u); at += r.count) {
                r = ht_unit_part_run(&p, u, at);
                ck_assert_int_eq(r.at, at);
                ck_assert(r.count > 0 && r.whole >= 0 && r.whole + r.count <= n);
                for (int64_t k = 0; k < r.count; k++) seen[r.whole + k] += r.shared ? 1 : parts;
            }
        }
        for (int64_t k = 0; k < n; k++) ck_assert_msg(seen[k] == parts, "unit %d, element %d", (int)u, (int)k);
        free(seen);
    }
}
END_TEST

START_TEST(what_cannot_be_cut)
{
    char text[64];
    ck_assert_ptr_null(ht_model_cannot_part(&gpt, 4, text, sizeof(text)));
    ck_assert_str_eq(ht_model_cannot_part(&gpt, 3, text, sizeof(text)), "4 heads");
    ck_assert_str_eq(ht_model_cannot_part(&llama, 4, text, sizeof(text)), "2 heads of keys");
    struct ht_model m = gpt;
    m.ffn = 13;
    ck_assert_str_eq(ht_model_cannot_part(&m, 2, text, sizeof(text)), "13 columns of the feed-forward network");
    m = gpt;
    m.vocab = 6; /* two each, and none are left for the last */
    ck_assert_str_eq(ht_model_cannot_part(&m, 4, text, sizeof(text)), "6 tokens");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("model parts");
    TCase *tc = tcase_create("part");
    tcase_add_test(tc, sizes);
    tcase_add_test(tc, halves);
    tcase_add_test(tc, fronts);
    tcase_add_test(tc, rows);
    tcase_add_test(tc, runs);
    tcase_add_loop_test(tc, parts_are_the_whole, 0, 8);
    tcase_add_test(tc, what_cannot_be_cut);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
