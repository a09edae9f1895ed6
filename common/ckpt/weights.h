/*
 * A model's weights on disk, in one file or several, as one set of named tensors:
 *
 *     DIR                               DIR/model.safetensors if it exists, else DIR/model.safetensors.index.json
 *     FILE.index.json                   {"weight_map": {"name": "model-00001-of-00002.safetensors", ...}}, shards
 *                                       beside it
 *     any other FILE                    one safetensors file
 *
 * An index must name every tensor of its shards, each in the shard that has it, and name shards by plain file names.
 */
#ifndef HT_CKPT_WEIGHTS_H
#define HT_CKPT_WEIGHTS_H

#include "common/ckpt/safetensors.h"

struct ht_weights;

/* Opens a set of weights. HT_BAD_INPUT with one line that names the file. */
enum ht_status ht_weights_open(const char *path, struct ht_error *err, struct ht_weights **out);
void ht_weights_close(struct ht_weights *w); /* accepts NULL */

/* Returns the file that stands for the set in errors. */
const char *ht_weights_name(const struct ht_weights *w);

int64_t ht_weights_files(const struct ht_weights *w);
const struct ht_safetensors *ht_weights_file(const struct ht_weights *w, int64_t index);

/* Returns the tensor called `name`, or NULL, and the file that holds it (*file may be NULL). */
const struct ht_st_tensor *ht_weights_find(const struct ht_weights *w, const char *name,
                                           const struct ht_safetensors **file);

#endif
