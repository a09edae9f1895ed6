/*
 * The plain trainer against PyTorch: 20 steps of three small GPT and three small LLaMA models, losses stored by
 * tests/reference/torch_gpt.py and torch_llama.py; LLaMA's also against those of transformers' LlamaForCausalLM.
 * float32 and float64 runs of PyTorch itself are 2e-7 apart (relative); we ask for 1e-5.
 */
#include "tests/common/kernels/torch_cases.h"
#include "tests/support/sanitized.h"

static const char *const references[] = {HT_SOURCE_DIR "/tests/reference/torch_gpt_losses.json",
                                         HT_SOURCE_DIR "/tests/reference/torch_llama_losses.json"};

/* Returns the relative difference of a step's loss from the stored one; fails beyond 1e-5. */
static double apart_from(struct fy_node *c, const char *key, int step, double loss)
{
    double expected = element(c, key, step);
    double apart = fabs(loss - expected) / expected;
    ck_assert_msg(apart <= 1e-5, "step %d: loss %.9f, %s %.9f, %.1e apart", step, loss, key, expected, apart);
    return apart;
}

/* Trains as case `c` says, each batch cut into n_micro micro-batches, and compares every loss. */
static void train_case(struct fy_node *root, struct fy_node *c, int n_threads, bool flash, int64_t n_micro)
{
    struct ht_model model = model_of(c, flash);
    struct ht_adamw adamw = adamw_of(root);
    int64_t B = (int64_t)number(c, "batch"), T = (int64_t)number(c, "seq"), n_bytes;
    if (B % n_micro) return;
    unsigned char *data = read_data(&n_bytes);
    ck_assert_int_eq(n_bytes, (int64_t)number(root, "data_bytes"));

    struct ht_pool *pool = ht_pool_create(n_threads, NULL);
    struct ht_plain *plain = ht_plain_create(&model, NULL, B / n_micro, T, pool, (uint64_t)number(c, "init_seed"));
    int32_t *tokens = HT_NEW_ARRAY(int32_t, B * T), *targets = HT_NEW_ARRAY(int32_t, B * T);
    int steps = fy_node_sequence_item_count(entry(c, "losses"));
    ck_assert_int_eq(steps, 20);
    double worst = 0;
    for (int s = 0; s < steps; s++) {
        fill_batch(data, n_bytes, (uint64_t)number(c, "data_seed"), s, B, T, tokens, targets);
        double loss = ht_plain_step(plain, n_micro, tokens, targets, &adamw, 1);
        worst = fmax(worst, apart_from(c, "losses", s, loss));
        if (entry(c, "losses_transformers")) worst = fmax(worst, apart_from(c, "losses_transformers", s, loss));
    }
    printf("%-5s %-12s threads %d, flash %d, micro-batches %d: within %.1e\n",
           model.arch == HT_ARCH_LLAMA ? "llama" : "gpt", fy_node_get_scalar0(entry(c, "name")), n_threads, flash,
           (int)n_micro, worst);
    free(tokens);
    free(targets);
    free(data);
    ht_plain_destroy(plain);
    ht_pool_destroy(pool);
}

static void train_all(int n_threads, bool flash, int64_t n_micro)
{
    for (size_t k = 0; k < HT_COUNT(references); k++) {
        struct fy_document *doc = fy_document_build_from_file(NULL, references[k]);
        ck_assert_ptr_nonnull(doc);
        struct fy_node *root = fy_document_root(doc), *cases = entry(root, "cases");
        ck_assert_int_eq(fy_node_sequence_item_count(cases), 3);
        for (int i = 0; i < (SANITIZED ? 1 : 3); i++)
            train_case(root, fy_node_sequence_get_by_index(cases, i), n_threads, flash, n_micro);
        fy_document_destroy(doc);
    }
}

START_TEST(test_one_thread)
{
    train_all(1, false, 1);
}
END_TEST
START_TEST(test_three_threads)
{
    train_all(3, false, 1);
}
END_TEST
START_TEST(test_flash)
{
    train_all(2, true, 1);
}
END_TEST
START_TEST(test_micro_batches)
{
    train_all(2, false, 2);
} /* the cases whose batch is even */
END_TEST

int main(void)
{
    Suite *s = suite_create("torch");
    TCase *t = tcase_create("losses");
    tcase_add_test(t, test_one_thread);
    tcase_add_test(t, test_three_threads);
    tcase_add_test(t, test_flash);
    tcase_add_test(t, test_micro_batches);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}
