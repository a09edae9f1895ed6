/*
 * Models as Hugging Face's transformers describe them: the config.json beside the weights.
 *
 *     GPT-2   n_layer, n_embd, n_head, vocab_size, n_positions, n_inner (null: 4 n_embd), tie_word_embeddings (true)
 *     LLaMA   num_hidden_layers, hidden_size, num_attention_heads, num_key_value_heads, intermediate_size, vocab_size,
 *             max_position_embeddings, rms_norm_eps (1e-6), rope_theta (10000), tie_word_embeddings (false)
 *     BERT    num_hidden_layers, hidden_size, num_attention_heads, intermediate_size, vocab_size, max_position_embeddings,
 *             id2label or num_labels (2 classes): BertForSequenceClassification
 *     ViT     num_hidden_layers, hidden_size, num_attention_heads, intermediate_size, image_size, patch_size, num_channels,
 *             id2label or num_labels: ViTForImageClassification
 *
 * Mistral and Qwen2 have LLaMA's keys. Keys that change the arithmetic but no shape should have the values that our
 * kernels implement: activation_function gelu_new, layer_norm_epsilon 1e-5, scaled attention; BERT's and ViT's hidden_act
 * gelu_new and layer_norm_eps 1e-5 (the published checkpoints have gelu and 1e-12); LLaMA's hidden_act silu or swish, no
 * biases (Qwen2 has some), no window, rotary embeddings that are not scaled (rope_scaling, rope_parameters, whose
 * rope_theta counts too). A model with others is planned and simulated; its `lacks` says why it is not trained. Quantized
 * models and models without some of their heads are refused. Keys of dropout are ignored: models are trained without it.
 * Other keys are not read.
 */
#ifndef HT_MODEL_HF_CONFIG_H
#define HT_MODEL_HF_CONFIG_H

#include <stdio.h>

#include "common/base/config.h"
#include "common/model/model.h"

/* Returns true if a file is called config.json. Users' files of other names are known by their key model_type. */
bool ht_hf_is_config(const char *path);
/* Loads a model, named after the folder of the file. HT_BAD_INPUT with line and key; *out is then unchanged. */
enum ht_status ht_hf_config_load(const char *path, struct ht_error *err, struct ht_model *out);
enum ht_status ht_hf_config_parse(const struct ht_doc *doc, struct ht_error *err, struct ht_model *out);

/* Writes a config.json that transformers loads, with its line end. HT_INFEASIBLE if transformers cannot express the
   model. */
enum ht_status ht_hf_config_text(const struct ht_model *model, enum ht_dtype dtype, struct ht_error *err, char *text,
                                 size_t bytes);

#endif
