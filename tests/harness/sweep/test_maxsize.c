/* The largest size that fits: the search against a scan of every size; families. */
#include "harness/sweep/maxsize.h"

#include "common/base/array.h"
#include "harness/run/job.h"
#include "harness/run/registry.h"
#include "tests/support/sanitized.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static struct ht_family family_of(const char *const *names, size_t n)
{
    struct ht_family f;
    struct ht_error err = {0};
    ck_assert_msg(ht_family_create(names, n, &err, &f) == HT_OK, "%s", err.text);
    return f;
}

/* Tells whether a size fits, by a job of its own. */
static bool fits(const struct ht_options *o, const char *system, const struct ht_size *size)
{
    struct ht_options options = *o;
    struct ht_error err = {0};
    struct ht_job job;
    ht_size_apply(size, &options.request);
    if (ht_job_create(&options, system, NULL, HT_JOB_PROVED, &err, &job) != HT_OK) return false;
    bool ok = job.answer == HT_OK;
    ht_job_free(&job);
    return ok;
}

/* gpt-mini has width 64, gpt-tiny 128. */
static const char *const names[] = {"gpt-tiny", "gpt-mini"};
/* Their heads are their own, as pipelines that offload demand. Both have 4 blocks; llama-tiny with 5 would be larger than
   bert-tiny, so it stands for 1 to 4. */
static const char *const untied[] = {"bert-tiny", "llama-tiny"};

#define SMALL_SSD HT_SOURCE_DIR "/tests/data/ssd-small.yaml"

static const struct scan_case {
    const char *system;
    enum ht_size_of of;
    int64_t ranks, device_memory_bytes;
    int64_t most;        /* sizes that the scan tries; of a family, blocks of its last model */
    const char *cluster; /* NULL: this machine */
    int64_t host_memory_bytes;
    const char *const *names; /* [2] NULL: `names` */
} cases[] = {
    {"in_memory", HT_SIZE_MODEL, 1, 40 << 20, 40, NULL, 0, NULL},
    {"in_memory_ckpt", HT_SIZE_MODEL, 1, 16 << 20, 40, NULL, 0, NULL},
    {"zero_offload", HT_SIZE_MODEL, 1, 30 << 20, 40, NULL, 0, NULL},
    {"zero3_offload_ckpt", HT_SIZE_MODEL, 1, 10 << 20, 60, NULL, 0, NULL},
    {"stronghold", HT_SIZE_MODEL, 1, 24 << 20, 40, NULL, 0, NULL},
    {"autohete", HT_SIZE_MODEL, 1, 12 << 20, 40, NULL, 0, NULL},
    {"in_memory", HT_SIZE_MODEL, 1, 8 << 20, 14, NULL, 0, NULL}, /* within the smaller model */
    {"fsdp", HT_SIZE_MODEL, 2, 30 << 20, 40, NULL, 0, NULL},
    {"ddp", HT_SIZE_MODEL, 2, 30 << 20, 40, NULL, 0, NULL},
    {"in_memory", HT_SIZE_BATCH, 1, 60 << 20, 60, NULL, 0, NULL},
    {"in_memory_ckpt", HT_SIZE_BATCH, 1, 30 << 20, 60, NULL, 0, NULL},
    {"zero_offload", HT_SIZE_BATCH, 1, 60 << 20, 60, NULL, 0, NULL},
    {"zero3_offload", HT_SIZE_BATCH, 2, 60 << 20, 60, NULL, 0, NULL},
    {"fsdp", HT_SIZE_BATCH, 2, 60 << 20, 60, NULL, 0, NULL},
    {"autohete", HT_SIZE_BATCH, 1, 20 << 20, 80, NULL, 0, NULL},
    {"stronghold_ckpt", HT_SIZE_BATCH, 1, 20 << 20, 80, NULL, 0, NULL},
    {"in_memory", HT_SIZE_SEQ, 1, 200 << 20, 24, NULL, 0, NULL},
    {"in_memory_ckpt", HT_SIZE_SEQ, 1, 60 << 20, 24, NULL, 0, NULL},
    {"zero_offload", HT_SIZE_SEQ, 1, 200 << 20, 24, NULL, 0, NULL},
    {"fsdp", HT_SIZE_SEQ, 2, 200 << 20, 24, NULL, 0, NULL},
    {"capuchin", HT_SIZE_MODEL, 1, 12 << 20, 40, NULL, 0, NULL},
    {"g10", HT_SIZE_BATCH, 1, 12 << 20, 80, "lohan-4090", 16 << 20, NULL},
    {"gemini", HT_SIZE_MODEL, 1, 12 << 20, 40, "lohan-4090", 16 << 20, NULL},
    {"lohan", HT_SIZE_BATCH, 1, 12 << 20, 100, "lohan-4090", 16 << 20, NULL},
    {"lohan_cap", HT_SIZE_BATCH, 1, 12 << 20, 60, "lohan-4090", 16 << 20, NULL},
    {"lohan_g10", HT_SIZE_BATCH, 1, 12 << 20, 60, "lohan-4090", 16 << 20, NULL},
    {"g10", HT_SIZE_BATCH, 1, 12 << 20, 80, SMALL_SSD, 16 << 20, NULL},
    {"flashneuron", HT_SIZE_BATCH, 1, 24 << 20, 60, SMALL_SSD, 64 << 20, NULL},
    {"lohan_g10", HT_SIZE_BATCH, 1, 12 << 20, 80, SMALL_SSD, 64 << 20, NULL},
    {"lohan_g10", HT_SIZE_MODEL, 1, 12 << 20, 40, SMALL_SSD, 64 << 20, NULL},
    /* Pipelines refuse fewer blocks than stages: with 6 stages both models' own. */
    {"gpipe", HT_SIZE_MODEL, 3, 20 << 20, 40, NULL, 0, untied},
    {"gpipe", HT_SIZE_MODEL, 6, 16 << 20, 40, NULL, 0, untied},
    {"dapple", HT_SIZE_MODEL, 6, 10 << 20, 40, NULL, 0, untied},
    {"interleaved", HT_SIZE_MODEL, 2, 20 << 20, 40, NULL, 0, untied},
    {"mobius", HT_SIZE_MODEL, 6, 10 << 20, 40, NULL, 32 << 20, untied},
    {"megatron", HT_SIZE_MODEL, 2, 12 << 20, 40, NULL, 32 << 20, untied},
    {"sysx", HT_SIZE_MODEL, 5, 10 << 20, 40, NULL, 32 << 20, untied},
    {"gpipe", HT_SIZE_BATCH, 3, 20 << 20, 40, NULL, 0, untied},
    {"sysx", HT_SIZE_BATCH, 2, 10 << 20, 40, NULL, 32 << 20, untied},
    {"cephalo", HT_SIZE_MODEL, 3, 16 << 20, 40, NULL, 0, untied},
};

static struct ht_options options_of(const struct scan_case *c)
{
    struct ht_options o = {.sim = {.issue_ahead = -1, .iterations = 1}};
    o.request.cluster = c->cluster ? c->cluster : "local";
    o.request.host_memory_bytes = c->host_memory_bytes;
    o.request.ranks = c->ranks;
    o.request.device_memory_bytes = c->device_memory_bytes;
    if (c->of != HT_SIZE_BATCH) o.request.batch = 4;
    return o;
}

/* Returns the largest size of all that fit; sizes without a model: none does. */
static struct ht_size scan(const struct scan_case *c, const struct ht_options *o, const struct ht_family *family)
{
    struct ht_size best = {0};
    if (c->of == HT_SIZE_MODEL) {
        for (size_t i = 0; i < family->n; i++) {
            const struct ht_family_model *m = &family->models[i];
            for (int64_t blocks = m->least_blocks; blocks <= m->most_blocks && blocks <= c->most; blocks++) {
                struct ht_size size = {.model = m->name, .blocks = blocks};
                if (fits(o, c->system, &size)) best = size;
            }
        }
        return best;
    }
    for (int64_t k = 1; k <= c->most; k++) {
        struct ht_size size = {.model = family->models[0].name};
        if (c->of == HT_SIZE_BATCH) size.batch = k * c->ranks;
        if (c->of == HT_SIZE_SEQ) size.seq = k * HT_SEQ_STEP;
        if (fits(o, c->system, &size)) best = size;
    }
    return best;
}

/* The scan goes on behind sizes that do not fit, and would find a larger one that does. */
START_TEST(the_search_finds_what_a_scan_finds)
{
    if (SANITIZED && _i % 3 != 0) return;
    const struct scan_case *c = &cases[_i];
    const char *const *models = c->names ? c->names : names;
    struct ht_family family = c->of == HT_SIZE_MODEL ? family_of(models, 2) : family_of(models, 1);
    struct ht_options o = options_of(c);
    struct ht_error err = {0};
    struct ht_maxsize found;
    ck_assert_msg(ht_maxsize_find(&o, c->system, c->of, &family, &err, &found) == HT_OK, "%s", err.text);
    struct ht_size best = scan(c, &o, &family);
    ck_assert_msg(best.model && found.found, "case %d: nothing fits", _i);
    ck_assert_str_eq(found.size.model, best.model);
    ck_assert_int_eq(found.size.blocks, best.blocks);
    ck_assert_int_eq(found.size.batch, best.batch);
    ck_assert_int_eq(found.size.seq, best.seq);
    /* The scan came to an end of its own, and not to that of its range. */
    ck_assert_msg(found.limited &&
                      (best.blocks < c->most && best.batch < c->most * c->ranks && best.seq < c->most * HT_SEQ_STEP),
                  "case %d: blocks %lld, batch %lld, seq %lld", _i, (long long)best.blocks, (long long)best.batch,
                  (long long)best.seq);
    ck_assert(!fits(&o, c->system, &found.next));
    ck_assert(found.reason[0] != '\0');
    if (!strcmp(found.status, "oom")) ck_assert_int_gt(found.short_bytes, 0);
    ht_family_free(&family);
}
END_TEST

/* gpt-mini has fewer parameters than gpt-tiny: 64 x 64 positions and 256 tokens, and 12 x 64^2 + 13 x 64 a block.
   With gpt-tiny's 842,496 parameters above it, it stands for 1 to 16 blocks: 20,608 + 16 x 49,984 = 820,352. */
START_TEST(a_family_is_in_the_order_of_parameters)
{
    struct ht_family f = family_of(names, 2);
    ck_assert_uint_eq(f.n, 2);
    ck_assert_str_eq(f.models[0].name, "gpt-mini");
    ck_assert_int_eq(f.models[0].least_blocks, 1);
    ck_assert_str_eq(f.models[1].name, "gpt-tiny");
    ck_assert_int_eq(f.models[1].least_blocks, 4);
    ck_assert_int_eq(f.models[1].most_blocks, HT_MOST_BLOCKS);
    ck_assert_int_eq(ht_model_params(&f.models[1].model), 842496);
    ck_assert_int_eq(f.models[0].most_blocks, 16);
    ht_family_free(&f);
}
END_TEST

START_TEST(a_pattern_names_built_in_models_once)
{
    static const char *const both[] = {"autohete-?b", "autohete-2b"};
    struct ht_family f = family_of(both, 2);
    ck_assert_uint_eq(f.n, 4); /* 2b, 4b, 6b, 8b */
    ck_assert_str_eq(f.models[3].name, "autohete-8b");
    ht_family_free(&f);
}
END_TEST

START_TEST(bad_names_are_refused)
{
    static const char *const bad[] = {"no-such-*", "no-such"};
    for (size_t i = 0; i < 2; i++) {
        struct ht_family f;
        struct ht_error err = {0};
        ck_assert_int_eq(ht_family_create(&bad[i], 1, &err, &f), HT_BAD_INPUT);
        ck_assert(strstr(err.text, "no-such") != NULL);
    }
}
END_TEST

/* Where nothing fits, the smallest size says why; where all sizes are bad input, that is an error. */
START_TEST(a_budget_that_nothing_fits)
{
    struct ht_family f = family_of(names, 2);
    struct scan_case c = {.of = HT_SIZE_MODEL, .ranks = 1, .device_memory_bytes = 64 << 10};
    struct ht_options o = options_of(&c);
    struct ht_error err = {0};
    struct ht_maxsize found;
    ck_assert_int_eq(ht_maxsize_find(&o, "in_memory", HT_SIZE_MODEL, &f, &err, &found), HT_OK);
    ck_assert(!found.found && found.limited);
    ck_assert_str_eq(found.next.model, "gpt-mini");
    ck_assert_int_eq(found.next.blocks, 1);
    ck_assert_str_eq(found.short_of, "device 0");
    ck_assert_int_eq(found.lacks, 1 + HT_DEVICE);
    ck_assert_int_eq(ht_maxsize_find(&o, "autohete", HT_SIZE_MODEL, &f, &err, &found), HT_OK); /* its planner refuses */
    ck_assert_str_eq(found.status, "infeasible");
    ck_assert_int_eq(found.lacks, 1 + HT_DEVICE);
    o.request.numerics = "fp8";
    ck_assert_int_eq(ht_maxsize_find(&o, "in_memory", HT_SIZE_MODEL, &f, &err, &found), HT_BAD_INPUT);
    ck_assert(strstr(err.text, "fp8") != NULL);
    ht_family_free(&f);
}
END_TEST

/* Three stages cannot share 4 micro-batches evenly, whatever the number of blocks: that is the reason, and not that one
   block is less than a stage. */
START_TEST(a_refusal_of_all_sizes_is_not_put_down_to_the_smallest)
{
    struct ht_family f = family_of(untied, 1);
    struct scan_case c = {.of = HT_SIZE_MODEL, .ranks = 3, .device_memory_bytes = 12 << 20};
    struct ht_options o = options_of(&c);
    struct ht_error err = {0};
    struct ht_maxsize found;
    ck_assert_int_eq(ht_maxsize_find(&o, "interleaved", HT_SIZE_MODEL, &f, &err, &found), HT_OK);
    ck_assert(!found.found && !found.lacks);
    ck_assert_int_eq(found.next.blocks, 4);
    ck_assert_msg(strstr(found.reason, "micro-batches") != NULL, "%s", found.reason);
    ht_family_free(&f);
}
END_TEST

/* An image has as many tokens as it has patches. */
START_TEST(images_have_no_other_length)
{
    static const char *const vit[] = {"vit-tiny"};
    struct ht_family f = family_of(vit, 1);
    struct scan_case c = {.of = HT_SIZE_SEQ, .ranks = 1, .device_memory_bytes = 200 << 20};
    struct ht_options o = options_of(&c);
    struct ht_error err = {0};
    struct ht_maxsize found;
    ck_assert_int_eq(ht_maxsize_find(&o, "in_memory", HT_SIZE_SEQ, &f, &err, &found), HT_BAD_INPUT);
    ck_assert(strstr(err.text, "vit-tiny") != NULL);
    ck_assert_int_eq(ht_maxsize_find(&o, "in_memory", HT_SIZE_MODEL, &f, &err, &found), HT_OK);
    ck_assert(found.found);
    ht_family_free(&f);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("maxsize");
    TCase *tc = tcase_create("maxsize");
    tcase_set_timeout(tc, 0);
    tcase_add_loop_test(tc, the_search_finds_what_a_scan_finds, 0, (int)HT_COUNT(cases));
    tcase_add_test(tc, a_family_is_in_the_order_of_parameters);
    tcase_add_test(tc, a_pattern_names_built_in_models_once);
    tcase_add_test(tc, bad_names_are_refused);
    tcase_add_test(tc, a_budget_that_nothing_fits);
    tcase_add_test(tc, a_refusal_of_all_sizes_is_not_put_down_to_the_smallest);
    tcase_add_test(tc, images_have_no_other_length);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
