/*
 * A checkpoint's manifest: its files, and the run that wrote them. JSON with its own hash, computed over the
 * checkpoint's compact text with sorted keys:
 *
 *     {"checkpoint": {"format": 2,
 *                     "step": 100,
 *                     "model": {"arch": 0, "layers": 4, ...},
 *                     "settings": {"batch": "8", ...},
 *                     "optimizer_steps": [98, 98, ...],                     one per unit; two iterations were skipped
 *                     "loss_scale": 32768.0, "good_iterations": 41,
 *                     "losses": {"bytes": 2231, "xxh3": "..."},             of losses.csv; may be missing
 *                     "files": [{"file": "unit-0000.safetensors", "bytes": 8448, "xxh3": "0123456789abcdef"}, ...]},
 *      "xxh3": "..."}
 *
 * Format 1 had neither steps nor loss scale. It is refused, since only the version that wrote it knows them.
 */
#ifndef HT_CKPT_MANIFEST_H
#define HT_CKPT_MANIFEST_H

#include "common/ckpt/checkpoint.h"

struct ht_manifest_file {
    int64_t bytes;
    uint64_t hash;
};

/* Writes a unit's file name: "unit-0007.safetensors". */
void ht_manifest_file_name(int64_t unit, char name[40]);

/* Writes path. files: one per unit, then that of the losses (bytes -1: no losses). */
enum ht_status ht_manifest_save(const char *path, const struct ht_state *state, int64_t step,
                                const struct ht_manifest_file *files, const struct ht_checkpoint_setting *settings,
                                int n_settings, struct ht_error *err);

/* Reads path, which must have the state's model, this step and these settings. Fills in the state's steps and loss
   scale, the files (as above), and the settings that have changed and may. HT_BAD_INPUT with one line; *damaged: the
   file itself is broken, not merely one of another run. */
enum ht_status ht_manifest_load(const char *path, int64_t step, struct ht_checkpoint_setting *settings, int n_settings,
                                struct ht_error *err, bool *damaged, struct ht_state *state,
                                struct ht_manifest_file *files);
/* Reads a manifest from memory like ht_manifest_load; `name` stands for the file in errors. */
enum ht_status ht_manifest_parse(const char *text, size_t bytes, const char *name, int64_t step,
                                 struct ht_checkpoint_setting *settings, int n_settings, struct ht_error *err,
                                 bool *damaged, struct ht_state *state, struct ht_manifest_file *files);

#endif
