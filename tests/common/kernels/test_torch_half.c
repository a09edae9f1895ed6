/*
 * 16-bit numerics against PyTorch: logits and 20 losses of three GPT and three LLaMA models, stored by
 * tests/reference/torch_half.py from transformers' models with FP32 master copies. FP32 must agree to 1e-5.
 *
 * In 16 bit two right programs differ by what rounding does to each of them. How much that may be, a program's own FP32
 * run tells: its distance from that ("noise") is rounding and nothing else. So we ask that
 *
 *     our noise is at most 1.5 times torch's     (seen: 1.3; torch rounds more often, and its logits too)
 *     our losses are no further from torch's 16-bit losses than our noise     (seen: 0.1 to 0.9 of it, since the
 * rounded parameters are the same) our logits, of 250 words, are no further than twice our noise           (seen: 0.7
 * to 1.5; in a norm, where two independent noises are 1.4 apart)
 */
#include "tests/common/kernels/torch_cases.h"
#include "tests/support/sanitized.h"

#define REFERENCE HT_SOURCE_DIR "/tests/reference/torch_half.json"
enum { STEPS = 20, MAX_VOCAB = 512 };

struct run {
    double losses[STEPS], logits[MAX_VOCAB];
    int vocab;
};

static struct run stored_run(struct fy_node *c, enum ht_dtype t)
{
    struct run r = {.vocab = (int)number(c, "vocab")};
    char path[32];
    snprintf(path, sizeof(path), "%s/losses", ht_dtype_name(t));
    ck_assert_int_eq(fy_node_sequence_item_count(entry(c, path)), STEPS);
    for (int s = 0; s < STEPS; s++) r.losses[s] = element(c, path, s);
    snprintf(path, sizeof(path), "%s/logits", ht_dtype_name(t));
    ck_assert_int_eq(fy_node_sequence_item_count(entry(c, path)), r.vocab);
    for (int v = 0; v < r.vocab; v++) r.logits[v] = element(c, path, v);
    return r;
}

static struct run our_run(struct fy_node *root, struct fy_node *c, enum ht_dtype t, bool flash)
{
    struct run r = {.vocab = (int)number(c, "vocab")};
    struct ht_model model = model_of(c, flash);
    struct ht_numerics numerics = {.param = t, .grad = t, .accumulate = HT_F32, .reduce = HT_F32};
    struct ht_adamw adamw = adamw_of(root);
    int64_t B = (int64_t)number(c, "batch"), T = (int64_t)number(c, "seq"), n_bytes;
    unsigned char *data = read_data(&n_bytes);
    struct ht_pool *pool = ht_pool_create(2, NULL);
    struct ht_plain *plain = ht_plain_create(&model, &numerics, B, T, pool, (uint64_t)number(c, "init_seed"));
    int32_t *tokens = HT_NEW_ARRAY(int32_t, B * T), *targets = HT_NEW_ARRAY(int32_t, B * T);
    char path[32];
    snprintf(path, sizeof(path), "loss_scale/%s", ht_dtype_name(t));
    for (int s = 0; s < STEPS; s++) {
        fill_batch(data, n_bytes, (uint64_t)number(c, "data_seed"), s, B, T, tokens, targets);
        const float *logits = s == 0 ? ht_plain_logits(plain, tokens) + (T - 1) * ht_logits_stride(&model) : NULL;
        for (int v = 0; v < r.vocab && logits; v++) r.logits[v] = logits[v];
        r.losses[s] = ht_plain_step(plain, 1, tokens, targets, &adamw, number(root, path));
    }
    free(tokens);
    free(targets);
    free(data);
    ht_plain_destroy(plain);
    ht_pool_destroy(pool);
    return r;
}

/* The largest relative distance of the losses; the relative distance of the logits in the norm. */
struct distance {
    double losses, logits;
};

static struct distance apart(const struct run *a, const struct run *b)
{
    struct distance d = {0, 0};
    double difference = 0, length = 0;
    for (int s = 0; s < STEPS; s++) d.losses = fmax(d.losses, fabs(a->losses[s] - b->losses[s]) / b->losses[s]);
    for (int v = 0; v < a->vocab; v++) {
        difference += (a->logits[v] - b->logits[v]) * (a->logits[v] - b->logits[v]);
        length += b->logits[v] * b->logits[v];
    }
    d.logits = sqrt(difference / length);
    return d;
}

static void check_case(struct fy_node *root, struct fy_node *c, bool flash)
{
    struct run exact = our_run(root, c, HT_F32, flash), torch_exact = stored_run(c, HT_F32);
    struct distance f32 = apart(&exact, &torch_exact);
    printf("%-12s flash %d, losses and logits. f32: from torch %.1e %.1e\n", fy_node_get_scalar0(entry(c, "name")),
           flash, f32.losses, f32.logits);
    ck_assert(f32.losses <= 1e-5 && f32.logits <= 1e-5);
    for (enum ht_dtype t = HT_F16; t <= HT_BF16; t++) {
        struct run ours = our_run(root, c, t, flash), torch = stored_run(c, t);
        struct distance noise = apart(&ours, &exact), their_noise = apart(&torch, &torch_exact);
        struct distance between = apart(&ours, &torch);
        printf("    %-4s from f32: ours %.1e %.1e, torch's %.1e %.1e; ours from torch's %.1e %.1e\n", ht_dtype_name(t),
               noise.losses, noise.logits, their_noise.losses, their_noise.logits, between.losses, between.logits);
        ck_assert_double_le(noise.losses, 1.5 * their_noise.losses);
        ck_assert_double_le(noise.logits, 1.5 * their_noise.logits);
        ck_assert_double_le(between.losses, noise.losses);
        ck_assert_double_le(between.logits, 2 * noise.logits);
    }
}

START_TEST(test_half)
{
    struct fy_document *doc = fy_document_build_from_file(NULL, REFERENCE);
    ck_assert_ptr_nonnull(doc);
    struct fy_node *root = fy_document_root(doc), *cases = entry(root, "cases");
    ck_assert_int_eq(fy_node_sequence_item_count(cases), 6);
    for (int flash = 0; flash < 2; flash++) check_case(root, fy_node_sequence_get_by_index(cases, _i), flash);
    fy_document_destroy(doc);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("torch_half");
    TCase *t = tcase_create("torch_half");
    tcase_add_loop_test(t, test_half, 0, SANITIZED ? 1 : 6);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}
