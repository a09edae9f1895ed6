/* config.json of transformers: what changes the arithmetic is honoured or refused by name. */
#include "common/model/hf_config.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/array.h"

#define GPT2                                                                                                           \
    "{\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_embd\": 16, \"n_head\": 2, \"n_positions\": 32, "                  \
    "\"vocab_size\": 256"
#define LLAMA                                                                                                          \
    "{\"model_type\": \"llama\", \"num_hidden_layers\": 2, \"hidden_size\": 16, \"num_attention_heads\": 4, "          \
    "\"intermediate_size\": 40, \"max_position_embeddings\": 32, \"vocab_size\": 256"

#define LIKE_LLAMA(type)                                                                                               \
    "{\"model_type\": \"" type "\", \"num_hidden_layers\": 2, \"hidden_size\": 16, \"num_attention_heads\": 4, "       \
    "\"num_key_value_heads\": 2, \"intermediate_size\": 40, \"max_position_embeddings\": 32, \"vocab_size\": 256"
#define MISTRAL LIKE_LLAMA("mistral")
#define QWEN2   LIKE_LLAMA("qwen2")

#define BERT                                                                                                           \
    "{\"model_type\": \"bert\", \"num_hidden_layers\": 2, \"hidden_size\": 16, \"num_attention_heads\": 4, "           \
    "\"intermediate_size\": 40, \"max_position_embeddings\": 32, \"vocab_size\": 256, \"layer_norm_eps\": 1e-5"

#define VIT                                                                                                            \
    "{\"model_type\": \"vit\", \"num_hidden_layers\": 2, \"hidden_size\": 16, \"num_attention_heads\": 4, "            \
    "\"intermediate_size\": 40, \"image_size\": 12, \"num_channels\": 1, \"hidden_act\": \"gelu_new\""

static enum ht_status parse(const char *base, const char *more, struct ht_error *err, struct ht_model *m)
{
    char text[1024];
    struct ht_doc *doc = NULL;
    snprintf(text, sizeof(text), "%s%s%s}", base, *more ? ",\n" : "", more);
    ck_assert_msg(!ht_doc_parse(text, strlen(text), "nano/config.json", err, &doc), "%s", err->text);
    enum ht_status status = ht_hf_config_parse(doc, err, m);
    ht_doc_destroy(doc);
    return status;
}

/* Those that say what we have anyway, in all the forms that transformers wrote, and those that change nothing. */
static const struct {
    const char *base, *more;
    double theta;
} good[] = {
    {GPT2, "", 0},
    {GPT2, "\"activation_function\": \"gelu_pytorch_tanh\", \"reorder_and_upcast_attn\": true", 0},
    {GPT2, "\"scale_attn_weights\": true, \"scale_attn_by_inverse_layer_idx\": false, \"n_inner\": null", 0},
    {GPT2, "\"attn_pdrop\": 0.1, \"embd_pdrop\": 0.1, \"resid_pdrop\": 0.1", 0}, /* there is no dropout here */
    {GPT2, "\"quantization_config\": null, \"pruned_heads\": {}, \"is_causal\": true", 0},
    {LLAMA, "", 10000},
    {LLAMA, "\"hidden_act\": \"silu\", \"head_dim\": 4, \"sliding_window\": null, \"pretraining_tp\": 2", 10000},
    {LLAMA, "\"hidden_act\": \"swish\"", 10000},
    {MISTRAL, "\"rope_theta\": 1e6, \"sliding_window\": null", 1e6},
    {LLAMA, "\"sliding_window\": 16, \"use_sliding_window\": false", 10000},
    {LLAMA, "\"rope_theta\": 5e5, \"rope_scaling\": null", 5e5},
    {LLAMA, "\"rope_scaling\": {\"type\": \"default\"}", 10000},
    {LLAMA, "\"rope_scaling\": {\"rope_type\": \"default\", \"type\": \"default\"}, \"rope_theta\": 7", 7},
    {LLAMA, "\"rope_parameters\": null", 10000},
    {LLAMA, "\"rope_parameters\": {}", 10000},
    {LLAMA, "\"rope_parameters\": {\"rope_theta\": 5e5, \"rope_type\": \"default\"}", 5e5},
    {LLAMA, "\"rope_parameters\": {\"rope_theta\": 5e5, \"type\": \"default\", \"factor\": null}", 5e5},
    {LLAMA, "\"rope_parameters\": {\"rope_theta\": 5e5, \"partial_rotary_factor\": 1.0}, \"rope_theta\": 500000", 5e5},
};

START_TEST(good_configs)
{
    for (size_t i = 0; i < HT_COUNT(good); i++) {
        struct ht_error err = {0};
        struct ht_model m;
        ck_assert_msg(!parse(good[i].base, good[i].more, &err, &m), "%s: %s", good[i].more, err.text);
        ck_assert_double_eq(m.rope_theta, good[i].theta);
        ck_assert_str_eq(m.name, "nano");
        ck_assert_str_eq(m.lacks, "");
    }
}
END_TEST

/* The classes of BERT's head: two, or as many as there are names of them. */
START_TEST(bert_classes)
{
    static const struct {
        const char *more;
        int64_t classes;
    } cases[] = {{"\"hidden_act\": \"gelu_new\", \"is_causal\": false", 2},
                 {"\"hidden_act\": \"gelu_new\", \"num_labels\": 7, \"tie_word_embeddings\": true", 7},
                 {"\"hidden_act\": \"gelu_new\", \"id2label\": {\"0\": \"a\", \"1\": \"b\", \"2\": \"c\"}", 3}};
    for (size_t i = 0; i < HT_COUNT(cases); i++) {
        struct ht_error err = {0};
        struct ht_model m;
        ck_assert_msg(!parse(BERT, cases[i].more, &err, &m), "%s: %s", cases[i].more, err.text);
        ck_assert(m.arch == HT_ARCH_BERT && m.classes == cases[i].classes && !m.tied && m.ffn == 40);
    }
}
END_TEST

/* 3 x 3 patches and the class token. */
START_TEST(vit)
{
    struct ht_error err = {0};
    struct ht_model m;
    ck_assert_msg(!parse(VIT, "\"patch_size\": 4, \"num_labels\": 7, \"layer_norm_eps\": 1e-5", &err, &m), "%s",
                  err.text);
    ck_assert(m.arch == HT_ARCH_VIT && m.classes == 7 && !m.tied && m.ffn == 40 && m.vocab == 0);
    ck_assert(m.image == 12 && m.patch == 4 && m.channels == 1 && m.max_seq == 10);
}
END_TEST

#define AT(column, key) "nano/config.json:2:" #column ": key '" key "': "

static const struct {
    const char *base, *more, *says;
} bad[] = {{BERT, "\"type_vocab_size\": 1", AT(20, "type_vocab_size") "the kernels have two types; expected 2"},
           {BERT, "\"id2label\": {\"0\": \"a\"}", AT(13, "id2label") "has one class; expected at least 2"},
           {VIT, "\"patch_size\": 5",
            AT(15, "patch_size") "5 pixels do not divide the image's 12; expected a divisor of them"},
           {VIT, "\"patch_size\": 24", AT(15, "patch_size") "24 pixels do not divide the image's 12"},
           {VIT, "\"num_labels\": 3", "nano/config.json:1:1: the key 'patch_size' is missing"},
           {GPT2, "\"quantization_config\": {\"load_in_4bit\": true}",
            AT(1, "quantization_config") "a quantized model is not supported; expected null"},
           {GPT2, "\"pruned_heads\": {\"0\": [1]}",
            AT(1, "pruned_heads") "a model without some of its heads is not supported"},
           {LLAMA, "\"quantization_config\": {\"quant_method\": \"fp8\"}",
            AT(1, "quantization_config") "a quantized model is"},
           {LLAMA, "\"quantization_config\": \"gptq\"", AT(1, "quantization_config") "a quantized model is"},
           {LLAMA, "\"compression_config\": {\"format\": \"dense\"}",
            AT(1, "compression_config") "a compressed model is"},
           {LLAMA, "\"head_dim\": 8", AT(13, "head_dim") "the kernels have no other; expected hidden_size /"},
           {LLAMA, "\"rope_scaling\": \"linear\"",
            AT(17, "rope_scaling") "is not a map; expected null or a map with rope_type"},
           {LLAMA, "\"rope_scaling\": [2]", AT(17, "rope_scaling") "is not a map"},
           {LLAMA, "\"rope_parameters\": 3",
            AT(20, "rope_parameters") "is not a map; expected null or a map with rope_type"},
           {LLAMA, "\"rope_parameters\": {\"rope_theta\": 5e5}, \"rope_theta\": 1e4",
            AT(35, "rope_theta") "500000 differs from 10000 on line 2; expected the same"},
           {LLAMA, "\"rope_theta\": 0.5", AT(15, "rope_theta") "'0.5' is out of range; expected 1 to"}},
  lacking[] = {
      /* Shapes are known, arithmetic has no kernel: planned and simulated, not trained. */
      {GPT2, "\"activation_function\": \"gelu\"",
       AT(24, "activation_function") "'gelu' has no kernel; expected gelu_new"},
      {BERT, "", "nano/config.json:1:1: without 'hidden_act' it is 'gelu', which has no kernel; expected gelu_new"},
      {BERT, "\"hidden_act\": \"gelu\"", AT(15, "hidden_act") "'gelu' has no kernel; expected gelu_new"},
      {BERT, "\"hidden_act\": \"gelu_new\", \"position_embedding_type\": \"relative_key\"",
       AT(54, "position_embedding_type") "'relative_key' has no kernel; expected absolute"},
      {BERT, "\"hidden_act\": \"gelu_new\", \"is_decoder\": true",
       AT(41, "is_decoder") "the kernels have nothing else; expected false"},
      {VIT, "\"patch_size\": 4, \"qkv_bias\": false",
       AT(30, "qkv_bias") "the kernels have nothing else; expected true"},
      {VIT, "\"patch_size\": 4",
       "nano/config.json:1:1: without 'layer_norm_eps' it is 1e-12; the kernels have another"},
      {GPT2, "\"layer_norm_epsilon\": 1e-6", AT(23, "layer_norm_epsilon") "the kernels have another; expected 1e-05"},
      {GPT2, "\"scale_attn_weights\": false",
       AT(23, "scale_attn_weights") "the kernels have nothing else; expected true"},
      {GPT2, "\"scale_attn_by_inverse_layer_idx\": true",
       AT(36, "scale_attn_by_inverse_layer_idx") "the kernels have nothing else; expected false"},
      {GPT2, "\"add_cross_attention\": true", AT(24, "add_cross_attention") "the kernels have nothing else"},
      {GPT2, "\"is_causal\": false", AT(14, "is_causal") "the kernels have nothing else; expected true"},
      {LLAMA, "\"hidden_act\": \"gelu\"", AT(15, "hidden_act") "'gelu' has no kernel; expected silu"},
      {LLAMA, "\"attention_bias\": true", AT(19, "attention_bias") "the kernels have nothing else; expected false"},
      {LLAMA, "\"mlp_bias\": true", AT(13, "mlp_bias") "the kernels have nothing else; expected false"},
      {LLAMA, "\"sliding_window\": 16", AT(19, "sliding_window") "attention to a window has no kernel; expected null"},
      {LLAMA, "\"partial_rotary_factor\": 0.5", AT(26, "partial_rotary_factor") "has no kernel; expected 1"},
      /* Scaled rotary embeddings: before transformers 4.43, before 5, since; by kind of layer. */
      {LLAMA, "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.0}",
       AT(26, "type") "'linear' has no kernel; expected default"},
      {LLAMA, "\"rope_scaling\": {\"factor\": 2.0}",
       AT(28, "factor") "scaled rotary embeddings have no kernel; expected rope_type"},
      {LLAMA, "\"rope_scaling\": {\"rope_type\": \"llama3\"}", AT(31, "rope_type") "'llama3' has no kernel"},
      {LLAMA, "\"rope_parameters\": {\"rope_type\": \"yarn\"}",
       AT(34, "rope_type") "'yarn' has no kernel; expected default"},
      {LLAMA, "\"rope_parameters\": {\"type\": \"linear\"}", AT(29, "type") "'linear' has no kernel; expected default"},
      {LLAMA, "\"rope_parameters\": {\"rope_type\": \"default\", \"type\": \"linear\"}",
       AT(53, "type") "'linear' has no kernel"},
      {LLAMA, "\"rope_parameters\": {\"rope_type\": \"default\", \"factor\": 2}",
       AT(55, "factor") "scaled rotary embeddings"},
      {LLAMA, "\"rope_parameters\": {\"full_attention\": {\"rope_theta\": 5e5}}",
       AT(39, "full_attention") "scaled rotary"},
      {LLAMA, "\"rope_parameters\": {\"partial_rotary_factor\": 0.5}",
       AT(46, "partial_rotary_factor") "has no kernel; expected 1"},
      {MISTRAL, "\"sliding_window\": 4096", AT(19, "sliding_window") "attention to a window has no kernel"},
      {QWEN2, "", "nano/config.json:1:16: key 'model_type': 'qwen2' has biases of q, k and v, which have no kernel"},
      {QWEN2, "\"sliding_window\": 4096, \"use_sliding_window\": false",
       "nano/config.json:1:16: key 'model_type': 'qwen2' has biases"}};

START_TEST(bad_configs)
{
    for (size_t i = 0; i < HT_COUNT(bad); i++) {
        struct ht_error err = {0};
        struct ht_model m;
        ck_assert_msg(parse(bad[i].base, bad[i].more, &err, &m) == HT_BAD_INPUT, "%s is taken", bad[i].more);
        ck_assert_msg(strncmp(err.text, bad[i].says, strlen(bad[i].says)) == 0, "%s", err.text);
    }
}
END_TEST

START_TEST(lacking_configs)
{
    for (size_t i = 0; i < HT_COUNT(lacking); i++) {
        struct ht_error err = {0};
        struct ht_model m;
        ck_assert_msg(!parse(lacking[i].base, lacking[i].more, &err, &m), "%s: %s", lacking[i].more, err.text);
        ck_assert_msg(strncmp(m.lacks, lacking[i].says, strlen(lacking[i].says)) == 0, "%s", m.lacks);
        ck_assert_int_eq(m.width, 16);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("hf_config");
    TCase *t = tcase_create("hf_config");
    tcase_add_test(t, good_configs);
    tcase_add_test(t, bert_classes);
    tcase_add_test(t, vit);
    tcase_add_test(t, bad_configs);
    tcase_add_test(t, lacking_configs);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
