/*
 * A checkpoint's manifest: what its files are and what they were made by. JSON that carries its own hash, which is of the
 * checkpoint's compact text with sorted keys:
 *
 *     {"checkpoint": {"format": 2,
 *                     "step": 100,
 *                     "model": {"arch": 0, "layers": 4, ...},
 *                     "settings": {"batch": "8", ...},
 *                     "optimizer_steps": [98, 98, ...],                     a unit each; two iterations were skipped
 *                     "loss_scale": 32768.0, "good_iterations": 41,
 *                     "losses": {"bytes": 2231, "xxh3": "..."},             of losses.csv; may be missing
 *                     "files": [{"file": "unit-0000.safetensors", "bytes": 8448, "xxh3": "0123456789abcdef"}, ...]},
 *      "xxh3": "..."}
 *
 * Format 1 had neither steps nor loss scale. It is refused: what it lacks can be told only by the version that wrote it.
 */
#ifndef HT_CKPT_MANIFEST_H
#define HT_CKPT_MANIFEST_H

#include "common/ckpt/checkpoint.h"

struct ht_manifest_file {
    int64_t bytes;
    uint64_t hash;
};

/* "unit-0007.safetensors" */
void ht_manifest_file_name(int64_t unit, char name[40]);

/* Writes path; files: one a unit, and after them that of the losses (bytes -1: there is none). */
enum ht_status ht_manifest_save(const char *path, const struct ht_state *state, int64_t step,
                                const struct ht_manifest_file *files, const struct ht_checkpoint_setting *settings,
                                int n_settings, struct ht_error *err);

/* Reads path, which must be of the state's model and this step, with these settings; fills in the state's steps and loss
   scale, the files (as above), and which of the settings that may change did. HT_BAD_INPUT with one line; *damaged says whether the
   file itself is broken (else it is of something else). */
enum ht_status ht_manifest_load(const char *path, int64_t step, struct ht_checkpoint_setting *settings, int n_settings,
                                struct ht_error *err, bool *damaged, struct ht_state *state,
                                struct ht_manifest_file *files);
/* The same from memory; `name` stands for the file in errors. */
enum ht_status ht_manifest_parse(const char *text, size_t bytes, const char *name, int64_t step,
                                 struct ht_checkpoint_setting *settings, int n_settings, struct ht_error *err,
                                 bool *damaged, struct ht_state *state, struct ht_manifest_file *files);

#endif
