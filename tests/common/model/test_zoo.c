/* The zoo: sizes against the paper's table, and every class of bad model file. */
#include "common/model/zoo.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/array.h"

/* Parameters of a tied GPT with F = 4C: L (12 C^2 + 13 C) blocks, (V + T) C embeddings, 2 C final norm. */
static int64_t by_hand(int64_t layers, int64_t width, int64_t vocab, int64_t max_seq)
{
    return layers * (12 * width * width + 13 * width) + (vocab + max_seq) * width + 2 * width;
}

START_TEST(paper_sizes)
{
    /* AutoHete, Table 1: label, layers, width; and how far the label is below the real count. */
    static const struct {
        const char *name;
        int64_t layers, width;
        double label, off;
    } rows[] = {
        {"autohete-2b", 42, 2048, 2e9, 0.10},   {"autohete-4b", 21, 4096, 4e9, 0.10},
        {"autohete-6b", 32, 4096, 6e9, 0.10},   {"autohete-8b", 20, 6144, 8e9, 0.15},
        {"autohete-10b", 25, 6144, 10e9, 0.14}, {"autohete-12b", 30, 6144, 12e9, 0.14},
        {"autohete-14b", 35, 6144, 14e9, 0.13}, {"autohete-16b", 40, 6144, 16e9, 0.13},
        {"autohete-18b", 23, 8192, 18e9, 0.05}, {"autohete-20b", 26, 8192, 20e9, 0.06},
        {"autohete-22b", 29, 8192, 22e9, 0.07},
    };
    for (size_t i = 0; i < HT_COUNT(rows); i++) {
        struct ht_error err = {0};
        struct ht_model m = {0};
        ck_assert_msg(!ht_model_load(rows[i].name, &err, &m), "%s", err.text);
        ck_assert_str_eq(m.name, rows[i].name);
        ck_assert_int_eq(m.layers, rows[i].layers);
        ck_assert_int_eq(m.width, rows[i].width);
        ck_assert_int_eq(m.ffn, 4 * rows[i].width);
        ck_assert_int_eq(m.width / m.heads, 128);
        int64_t params = ht_model_params(&m);
        ck_assert_int_eq(params, by_hand(rows[i].layers, rows[i].width, 50257, 1024));
        double off = 1 - rows[i].label / (double)params;
        ck_assert_msg(fabs(off - rows[i].off) < 0.006, "%s: the label is %.3f below", rows[i].name, off);
    }
    /* 21 * (12 * 4096^2 + 13 * 4096) = 4,228,976,640 (printed as 4.23e9); + 51281 * 4096 + 8192 */
    struct ht_model m;
    ck_assert(!ht_model_load("autohete-4b", NULL, &m));
    ck_assert_int_eq(ht_model_params(&m), INT64_C(4228976640) + INT64_C(210046976) + 8192);
}
END_TEST

/* AutoHet, Sec. V and V-C: labels, and how far the parameters are from them. */
START_TEST(autohet_models)
{
    static const struct {
        const char *name;
        double label, off;
    } rows[] = {{"autohet-bert-large", 0.34e9, 0.02}, {"autohet-llama-6.7b", 6.7e9, 0.01},
                {"autohet-gpt3-3b", 3e9, 0.12},       {"autohet-gpt3-6.7b", 6.7e9, 0.01},
                {"autohet-gpt3-13b", 13e9, 0.02},     {"autohet-gpt3-20b", 20e9, 0.02}};
    for (size_t i = 0; i < HT_COUNT(rows); i++) {
        struct ht_error err = {0};
        struct ht_model m;
        ck_assert_msg(!ht_model_load(rows[i].name, &err, &m), "%s", err.text);
        double off = fabs((double)ht_model_params(&m) / rows[i].label - 1);
        ck_assert_msg(off < rows[i].off, "%s: the label is %.3f off", rows[i].name, off);
    }
}
END_TEST

START_TEST(small_models)
{
    struct ht_model m;
    ck_assert(!ht_model_load("gpt2-124m", NULL, &m));
    ck_assert_int_eq(ht_model_params(&m), 124439808); /* the published checkpoint */
    ck_assert(!ht_model_load("gpt-tiny", NULL, &m));
    /* 4 * (12 * 16384 + 13 * 128) + (256 + 128) * 128 + 256 = 793088 + 49152 + 256 */
    ck_assert_int_eq(ht_model_params(&m), 842496);
    ck_assert(m.tied && !m.dropout && m.arch == HT_ARCH_GPT);
    ck_assert(!ht_model_load("gpt-mini", NULL, &m));
    ck_assert_int_eq(ht_model_params(&m), by_hand(4, 64, 256, 64));
    ck_assert(m.kv_heads == 0 && m.rope_theta == 0 && m.norm_eps == 0);
}
END_TEST

START_TEST(llama_models)
{
    struct ht_model m;
    ck_assert(!ht_model_load("llama-7b", NULL, &m));
    ck_assert_int_eq(ht_model_params(&m), 6738415616); /* the published checkpoint */
    ck_assert(m.arch == HT_ARCH_LLAMA && m.kv_heads == 32 && !m.tied && m.norm_eps == 1e-6 && m.rope_theta == 10000);
    ck_assert(!ht_model_load("llama-tiny", NULL, &m));
    /* K = 64. 4 * (2 * 128^2 + 2 * 128 * 64 + 3 * 128 * 344 + 256) + 2 * 256 * 128 + 128
       = 4 * (32768 + 16384 + 132096 + 256) + 65536 + 128 */
    ck_assert_int_eq(ht_model_params(&m), 4 * 181504 + 65664);
    ck_assert(m.kv_heads == 2 && !m.tied && m.norm_eps == 1e-5);
    struct ht_error err = {0};
    struct ht_doc *doc = NULL;
    const char *text = "name: x\narch: llama\nlayers: 2\nwidth: 64\nheads: 4\nffn: 99\nvocab: 9\nmax_seq: 4\n"
                       "tied: true\nrope_theta: 5e5\n";
    ck_assert(!ht_doc_parse(text, strlen(text), "m.yaml", &err, &doc));
    ck_assert_msg(!ht_model_parse(doc, &err, &m), "%s", err.text);
    ck_assert(m.tied && m.kv_heads == 4 && m.rope_theta == 5e5);
    ht_doc_destroy(doc);
}
END_TEST

/* 64 patches of 48 numbers and a class token. Parameters: 128 x 48 + 128 of the patches, 66 x 128 of the class token and
   positions, 4 (12 x 128^2 + 13 x 128) of the blocks, 2 x 128 of the norm, 10 x 129 of the classes. */
START_TEST(vit_models)
{
    struct ht_model m;
    struct ht_error err;
    ck_assert(!ht_model_load("vit-tiny", &err, &m));
    ck_assert(m.arch == HT_ARCH_VIT && m.max_seq == 65 && m.vocab == 0 && m.channels == 3 && m.ffn == 512 && !m.tied);
    ck_assert_int_eq(ht_model_patches(&m), 64);
    ck_assert_int_eq(ht_model_patch_width(&m), 48);
    ck_assert_int_eq(ht_model_sample_bytes(&m, 65), 3072);
    ck_assert_int_eq(ht_model_params(&m),
                     128 * 48 + 128 + 66 * 128 + 4 * (12 * 128 * 128 + 13 * 128) + 2 * 128 + 10 * 129);
    ck_assert(!ht_model_check_seq(&m, 65, &err));
    ck_assert_int_eq(ht_model_check_seq(&m, 64, &err), HT_BAD_INPUT);
    ck_assert_str_eq(err.text, "sequence length 64 does not fit model 'vit-tiny'; its images have 65 tokens");
}
END_TEST

/* Latents of 4 x 32 x 32 in patches of 2; no class token. */
START_TEST(dit_models)
{
    struct ht_model m;
    struct ht_error err;
    ck_assert(!ht_model_load("dit-xl-2", &err, &m));
    ck_assert(m.arch == HT_ARCH_DIT && m.max_seq == 256 && m.vocab == 0 && m.channels == 4 && m.ffn == 4608 && !m.tied);
    ck_assert_int_eq(ht_model_patches(&m), 256);
    ck_assert_int_eq(ht_model_patch_width(&m), 16);
    ck_assert(!ht_model_check_seq(&m, 256, &err));
    ck_assert_int_eq(ht_model_check_seq(&m, 255, &err), HT_BAD_INPUT);
}
END_TEST

START_TEST(bert_models)
{
    struct ht_model m;
    ck_assert(!ht_model_load("bert-tiny", NULL, &m));
    /* 4 * (12 * 16384 + 13 * 128) + (256 + 128 + 2) * 128 + (256 + 16384 + 128 + 256 * 128 + 256)
       = 793088 + 49408 + 49792 */
    ck_assert_int_eq(ht_model_params(&m), 892288);
    ck_assert(m.arch == HT_ARCH_BERT && m.classes == 256 && m.ffn == 512 && !m.tied);
    ck_assert(!ht_model_load("cephalo-bert-large", NULL, &m));
    ck_assert(m.classes == 2 && m.vocab == 30522);
}
END_TEST

START_TEST(every_name_loads)
{
    char name[64];
    int64_t n = 0;
    for (; ht_model_zoo_name(n, name); n++) {
        struct ht_error err = {0};
        struct ht_model m;
        ck_assert_msg(!ht_model_load(name, &err, &m), "%s", err.text);
    }
    ck_assert_int_ge(n, 17);
}
END_TEST

static const struct {
    const char *text, *says;
} bad[] = {
    {"width: 128\n", "m.yaml:1:1: the key 'layers' is missing; expected 'layers: ...'"},
    {"name: x\nlayers: 2\nwidth: 100\nheads: 3\nvocab: 9\nmax_seq: 4\n",
     "m.yaml:4:8: key 'heads': 3 heads do not divide the width 100; expected a divisor of the width"},
    {"name: x\nlayers: 0\nwidth: 64\nheads: 4\nvocab: 9\nmax_seq: 4\n",
     "m.yaml:2:9: key 'layers': '0' is out of range; expected 1 to 10000"},
    {"name: x\nlayers: 2\nwidth: -64\nheads: 4\nvocab: 9\nmax_seq: 4\n",
     "m.yaml:3:8: key 'width': '-64' is negative; expected 1 to 131072"},
    {"name: x\nlayers: 2\nwidth: 64 GB\nheads: 4\nvocab: 9\nmax_seq: 4\n", "m.yaml:3:8: key 'width': '64 GB' has 'GB'"},
    {"name: x\nlayers: 2\nwidth: 64\nheads: 0\nvocab: 9\nmax_seq: 4\n", "m.yaml:4:8: key 'heads': '0' is out of range"},
    {"layers: 2\nwidth: 64\nheads: 4\nvocab: 9\nmax_seq: 4\n", "m.yaml:1:1: the key 'name' is missing"},
    {"name: x\nlayers: 2\nwidht: 64\n", "m.yaml:3:1: key 'widht': is unknown here; expected 'width'?"},
    {"name: x\narch: gtp\nlayers: 2\n",
     "m.yaml:2:7: key 'arch': 'gtp' is not known here; expected gpt, llama, bert, vit or dit"},
    {"name: x\nlayers: 2\nwidth: 64\nheads: 4\nmax_seq: 4\n",
     "m.yaml:1:1: the key 'vocab' is missing; expected 'vocab: ...'"},
    {"name: x\nlayers: 2\nwidth: 64\nheads: 4\nvocab: 9\n", "m.yaml:1:1: the key 'max_seq' is missing"},
#define VIT "name: x\narch: vit\nlayers: 2\nwidth: 64\nheads: 4\n"
    {VIT "patch: 4\nclasses: 2\n", "m.yaml:1:1: the key 'image' is missing; expected 'image: ...'"},
    {VIT "image: 4\nclasses: 2\n", "m.yaml:1:1: the key 'patch' is missing"},
    {VIT "image: 4\npatch: 4\n", "m.yaml:1:1: the key 'classes' is missing"},
    {VIT "image: 10\npatch: 4\nclasses: 2\n", "m.yaml:7:8: key 'patch': 4 pixels do not divide the image's 10"},
    {VIT "image: 4\npatch: 8\nclasses: 2\n", "m.yaml:7:8: key 'patch': 8 pixels do not divide the image's 4"},
    {VIT "image: 8192\npatch: 2\nclasses: 2\n",
     "m.yaml:7:8: key 'patch': leaves 16777216 patches; expected fewer than"},
    {VIT "image: 4\npatch: 4\nclasses: 2\nvocab: 9\n", "m.yaml:9:1: key 'vocab': is for models that read tokens"},
    {VIT "image: 4\npatch: 4\nclasses: 2\nmax_seq: 9\n",
     "m.yaml:9:1: key 'max_seq': is for models that read tokens; image and patch give it"},
    {VIT "image: 4\npatch: 4\nclasses: 2\ntied: true\n",
     "m.yaml:9:7: key 'tied': a model of images has no token table; expected false"},
    {VIT "image: 4\npatch: 4\nclasses: 2\nchannels: 65\n", "m.yaml:9:11: key 'channels': '65' is out of range"},
    {"name: x\nlayers: 2\nwidth: 64\nheads: 4\nvocab: 9\nmax_seq: 4\npatch: 2\n",
     "m.yaml:7:1: key 'patch': is for 'arch: vit' and 'arch: dit' only"},
#define DIT "name: x\narch: dit\nlayers: 2\nwidth: 64\nheads: 4\n"
    {DIT "patch: 4\nclasses: 2\n", "m.yaml:1:1: the key 'image' is missing; expected 'image: ...'"},
    {DIT "image: 4\npatch: 4\n", "m.yaml:1:1: the key 'classes' is missing"},
    {DIT "image: 4\npatch: 4\nclasses: 2\nvocab: 9\n", "m.yaml:9:1: key 'vocab': is for models that read tokens"},
    {DIT "image: 4\npatch: 4\nclasses: 2\ndropout: true\n", "m.yaml:9:10: key 'dropout': DiT has none; expected false"},
    {DIT "image: 4\npatch: 4\nclasses: 2\ntied: true\n",
     "m.yaml:9:7: key 'tied': a model of images has no token table"},
#define LLAMA "name: x\narch: llama\nlayers: 2\nwidth: 60\nvocab: 9\nmax_seq: 4\n"
    {LLAMA "heads: 4\n", "m.yaml:1:1: the key 'ffn' is missing; expected 'ffn: ...' with 'arch: llama'"},
    {LLAMA "ffn: 9\nheads: 4\n",
     "m.yaml:8:8: key 'heads': a head has 15 elements; expected an even number, since rotary positions turn pairs"},
    {LLAMA "ffn: 9\nheads: 6\nkv_heads: 4\n",
     "m.yaml:9:11: key 'kv_heads': 4 heads of keys and values do not divide the 6 heads; expected a divisor of them"},
    {LLAMA "ffn: 9\nheads: 6\nkv_heads: 12\n", "m.yaml:9:11: key 'kv_heads': 12 heads of keys and values do not"},
    {LLAMA "ffn: 9\nheads: 6\nkv_heads: 0\n", "m.yaml:9:11: key 'kv_heads': '0' is out of range; expected 1 to"},
    {LLAMA "ffn: 9\nheads: 6\nrope_theta: 0.5\n", "m.yaml:9:13: key 'rope_theta': '0.5' is out of range; expected 1"},
    {LLAMA "ffn: 9\nheads: 6\nnorm_eps: 0\n", "m.yaml:9:11: key 'norm_eps': '0' is out of range; expected 1e-12 to"},
    {LLAMA "ffn: 9\nheads: 6\ndropout: true\n", "m.yaml:9:10: key 'dropout': LLaMA has none; expected false"},
    {"name: x\nlayers: 2\nwidth: 64\nheads: 4\nvocab: 9\nmax_seq: 4\nkv_heads: 2\n",
     "m.yaml:7:1: key 'kv_heads': is for 'arch: llama' only"},
#define BERT "name: x\narch: bert\nlayers: 2\nwidth: 64\nheads: 4\nvocab: 9\nmax_seq: 4\n"
    {BERT, "m.yaml:1:1: the key 'classes' is missing; expected 'classes: ...' with 'arch: bert'"},
    {BERT "classes: 1\n", "m.yaml:8:10: key 'classes': '1' is out of range; expected 2 to"},
    {BERT "classes: 2\ntied: true\n", "m.yaml:9:7: key 'tied': BERT's head has no token table here; expected false"},
    {BERT "classes: 2\nnorm_eps: 1e-5\n", "m.yaml:9:1: key 'norm_eps': is for 'arch: llama' only"},
    {"name: x\nlayers: 2\nwidth: 64\nheads: 4\nvocab: 9\nmax_seq: 4\nclasses: 2\n",
     "m.yaml:7:1: key 'classes': is for 'arch: bert', 'arch: vit' and 'arch: dit' only"},
    {"[]\n", "m.yaml:1:1: is a list; expected a map ('key: value' lines)"},
};

START_TEST(bad_models)
{
    for (size_t i = 0; i < HT_COUNT(bad); i++) {
        struct ht_error err = {0};
        struct ht_doc *doc = NULL;
        struct ht_model m;
        ck_assert(!ht_doc_parse(bad[i].text, strlen(bad[i].text), "m.yaml", &err, &doc));
        ck_assert_int_eq(ht_model_parse(doc, &err, &m), HT_BAD_INPUT);
        ck_assert_msg(strncmp(err.text, bad[i].says, strlen(bad[i].says)) == 0, "%s", err.text);
        ht_doc_destroy(doc);
    }
    struct ht_error err = {0};
    struct ht_model m;
    ck_assert_int_eq(ht_model_load("gtp-tiny", &err, &m), HT_BAD_INPUT);
    ck_assert_str_eq(err.text, "unknown model 'gtp-tiny'; expected 'gpt-tiny'?");
    ck_assert_int_eq(ht_model_load("", &err, &m), HT_BAD_INPUT);
    ck_assert_int_eq(ht_model_load("nonsense-of-any-kind", &err, &m), HT_BAD_INPUT);
    ck_assert_msg(strstr(err.text, "expected a YAML file or one of autohete-2b, ") != NULL, "%s", err.text);
    ck_assert_int_eq(ht_model_load("no/such.yaml", &err, &m), HT_BAD_INPUT);
    ck_assert(!ht_model_load("gpt-tiny", &err, &m));
    ck_assert_int_eq(ht_model_check_seq(&m, 128, &err), HT_OK);
    ck_assert_int_eq(ht_model_check_seq(&m, 129, &err), HT_BAD_INPUT);
    ck_assert_str_eq(err.text, "sequence length 129 does not fit model 'gpt-tiny'; expected 1 to 128");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("zoo");
    TCase *t = tcase_create("zoo");
    tcase_add_test(t, paper_sizes);
    tcase_add_test(t, autohet_models);
    tcase_add_test(t, small_models);
    tcase_add_test(t, llama_models);
    tcase_add_test(t, bert_models);
    tcase_add_test(t, vit_models);
    tcase_add_test(t, dit_models);
    tcase_add_test(t, every_name_loads);
    tcase_add_test(t, bad_models);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
