/*
 * Models by name: the built-in files of common/model and users' files of the same form.
 */
#ifndef HT_MODEL_ZOO_H
#define HT_MODEL_ZOO_H

#include "common/base/config.h"
#include "common/model/model.h"

/* A model by built-in name or by path (anything with a '/' or ending in .yaml, .yml or .json). *out is unchanged on
   error. A file holds one model: the map that an entry of gpt.yaml is. */
enum ht_status ht_model_load(const char *name_or_path, struct ht_error *err, struct ht_model *out);
enum ht_status ht_model_parse(const struct ht_doc *doc, struct ht_error *err, struct ht_model *out);

/* The index-th built-in name, in the order of the files, into buf; false past the end. */
bool ht_model_zoo_name(int64_t index, char buf[64]);

/* The sequence length that the model is used with unless the user says otherwise is max_seq; a longer one is refused.
 */
enum ht_status ht_model_check_seq(const struct ht_model *model, int64_t seq, struct ht_error *err);

#endif
