/*
 * Weights under Hugging Face's names, to and from a training state. LLaMA's parts have those names and that layout:
 * "model.embed_tokens.weight", "model.layers.N.<part>", "model.norm.weight", "lm_head.weight". GPT-2:
 *
 *     ours (unit, part)                          theirs                              stored
 *     0      wte, wpe                            transformer.wte.weight, ...         as ours
 *     1..L   ln_1.weight, attn.c_attn.bias ...   transformer.h.N.ln_1.weight ...     as ours; N from 0
 *            attn.c_attn.weight (3C,C) and the   transformer.h.N.attn.c_attn.weight  transposed (C,3C): they are
 *            other three matrices                                                    Conv1D, (in, out)
 *     L+1    ln_f.weight, ln_f.bias              transformer.ln_f.weight ...         as ours
 *            lm_head.weight, when not tied       lm_head.weight                      as ours
 *
 * BERT (BertForSequenceClassification). A unit's first norm ends what is before it there (common/model/model.h):
 *
 *     0      wte, wpe, wtype                     bert.embeddings.word_embeddings.weight, position_.., token_type_..
 *     1      ln_1.weight, ln_1.bias              bert.embeddings.LayerNorm.weight, ...
 *     2..L   ln_1.*, L+1 ln_f.*                  bert.encoder.layer.N.output.LayerNorm.*, of the layer before
 *     1..L   ln_2.*                              bert.encoder.layer.N.attention.output.LayerNorm.*
 *            other parts                         bert.encoder.layer.N.<part>
 *     L+1    pooler.*, classifier.*              bert.pooler.dense.*, classifier.*
 *
 * ViT (ViTForImageClassification):
 *
 *     0      patch.weight, (C,P)                 vit.embeddings.patch_embeddings.projection.weight, (C,c,p,p)
 *            patch.bias                          vit.embeddings.patch_embeddings.projection.bias
 *            cls, (1,C); wpe                     vit.embeddings.cls_token, (1,1,C); .position_embeddings, (1,T,C)
 *     1..L   ln_1.*, ln_2.*                      vit.encoder.layer.N.layernorm_before.*, layernorm_after.*
 *            attention.self.query.weight ..      vit.encoder.layer.N.attention.attention.query.weight ...
 *            other parts                         vit.encoder.layer.N.<part>
 *     L+1    ln_f.*, classifier.*                vit.layernorm.*, classifier.*
 *
 * All are stored as ours. A file of the bare GPT2Model has the names without "transformer."; both are read. Any other
 * tensor is refused, except the causal masks of old files (attn.bias, attn.masked_bias) and the tied lm_head.weight.
 */
#ifndef HT_CKPT_HF_H
#define HT_CKPT_HF_H

#include "common/ckpt/state.h"

struct ht_hf;

/* Opens a folder, an index or a file (common/ckpt/weights.h) and checks that it has exactly the tensors of the state's
   model. The state's values are read from it until it is closed. HT_BAD_INPUT names the file and the tensor; the state
   is then unchanged. */
enum ht_status ht_hf_open(const char *path, struct ht_error *err, struct ht_state *state, struct ht_hf **out);
void ht_hf_close(struct ht_hf *hf); /* accepts NULL */

/* Finds the type of weights by its name. Returns false if they cannot have it; *out is then unchanged. */
bool ht_hf_find_dtype(const char *name, enum ht_dtype *out);
/* Returns true if an output path means one file of weights, not a folder: it ends in ".safetensors". */
bool ht_hf_is_file(const char *path);

/*
 * Writes the parameters, rounded to dtype, piece by piece. *n_overflows (may be NULL): number of finite parameters that
 * became infinite in dtype. If ht_hf_is_file(path), writes only the weights; a symbolic link's target gets them.
 * Otherwise path is a folder, created if it does not exist: config.json, and model.safetensors or, if that would exceed
 * shard_bytes of tensors, shards with model.safetensors.index.json. The new model replaces the folder's old one as in
 * model_folder.h: whole and synced, or not at all. A config.json of the same model is kept except for the type of the
 * weights. The caller must hold the folder's lock (ht_model_folder_lock).
 */
enum ht_status ht_hf_save(const char *path, const struct ht_state *state, enum ht_dtype dtype, int64_t shard_bytes,
                          int64_t *n_overflows, struct ht_error *err);

#endif
