/*
 * The parts that manifests of checkpoints (manifest.h) and of stores (common/store/store.h) have in common. Each is JSON
 * with its own hash: {"KIND": {..}, "xxh3": ".."}.
 */
#ifndef HT_CKPT_MANIFEST_PARTS_H
#define HT_CKPT_MANIFEST_PARTS_H

#include "common/ckpt/manifest.h"

#include <jansson.h>

/* Adds model, settings, the optimizer's steps and the loss scale to a body. */
void ht_manifest_add_facts(json_t *body, const struct ht_state *state, const struct ht_checkpoint_setting *settings,
                           int n_settings);
/* Adds size and hash to an entry. */
void ht_manifest_add_size(json_t *entry, const struct ht_manifest_file *file);
/* Returns the text of a manifest of such a body, which it takes; allocated. NULL: it cannot be composed. */
char *ht_manifest_text(const char *kind, json_t *body);

/* Parses a manifest, checks its hash and sets *body to its map, which *root owns; *root may be set on error, too. HT_BAD_INPUT
   with one line, which begins with `name`. */
enum ht_status ht_manifest_body(const char *kind, const char *text, size_t bytes, const char *name,
                                struct ht_error *err, json_t **root, const json_t **body);
/* Check the model; compare the settings as ht_manifest_load does. */
enum ht_status ht_manifest_check_model(const char *name, const json_t *body, const struct ht_model *model,
                                       struct ht_error *err);
enum ht_status ht_manifest_check_settings(const char *name, const json_t *body, struct ht_checkpoint_setting *settings,
                                          int n_settings, struct ht_error *err);
/* Reads the optimizer's steps and the loss scale into a state. Returns false if they are unsound. */
bool ht_manifest_read_progress(const json_t *body, int64_t step, struct ht_state *state);
/* Reads size and hash of an entry. Returns false if they are unsound. */
bool ht_manifest_read_size(const json_t *entry, struct ht_manifest_file *out);
/* Reads the model that a body describes. Returns false if it describes none whose units have sizes. */
bool ht_manifest_read_model(const json_t *body, struct ht_model *out);
/* Reads a manifest's file whole, at most 16 MiB; *text is allocated. */
enum ht_status ht_manifest_read_text(const char *path, struct ht_error *err, char **text, size_t *bytes);

#endif
