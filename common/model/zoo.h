/*
 * Models by name: the built-in files of common/model and users' files of the same form.
 */
#ifndef HT_MODEL_ZOO_H
#define HT_MODEL_ZOO_H

#include "common/base/config.h"
#include "common/model/model.h"

/* Loads a model by built-in name or by path (anything with a '/' or ending in .yaml, .yml or .json, or a file of
   another name that is no built-in one): a file with one model, the same map as an entry of gpt.yaml; a config.json of transformers, or a folder with one (hf_config.h). *out
   is unchanged on error. */
enum ht_status ht_model_load(const char *name_or_path, struct ht_error *err, struct ht_model *out);
enum ht_status ht_model_parse(const struct ht_doc *doc, struct ht_error *err, struct ht_model *out);

/* Writes the index-th built-in name, in the order of the files, into buf. Returns false past the end. */
bool ht_model_zoo_name(int64_t index, char buf[64]);

/* Returns HT_BAD_INPUT for a sequence longer than max_seq, which is also the default length. */
enum ht_status ht_model_check_seq(const struct ht_model *model, int64_t seq, struct ht_error *err);

#endif
