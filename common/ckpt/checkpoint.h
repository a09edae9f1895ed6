/*
 * Checkpoints of a training by unit: a folder of steps, each whole or not there.
 *
 *     DIR/.lock                                   held while a process writes here
 *     DIR/step-0000000100/unit-0000.safetensors   a unit's parameters, momentum, variance: "param.wte", "momentum.wte" ..
 *     DIR/step-0000000100/losses.csv              the losses of steps 1 to 100
 *     DIR/step-0000000100/manifest.json           step, model, settings, the optimizer's steps by unit, loss scale;
 *                                                 size and XXH3 of every file; XXH3 of itself
 *     DIR/.partial-...   DIR/.removed-...         being written, being removed: swept when the folder is opened
 *
 * Order of a save: files (each synced), manifest (synced), their folder (synced), rename to step-..., DIR
 * (synced); then what is too old is renamed away and removed. So a process or machine that dies at any moment leaves
 * every folder called step-... complete, and the last one is at most one save old.
 *
 * Reading trusts nothing: sizes and hashes first, then the headers (safetensors.h), then shapes.
 */
#ifndef HT_CKPT_CHECKPOINT_H
#define HT_CKPT_CHECKPOINT_H

#include "common/ckpt/state.h"

/* What a resumed run must have in common with the one that saved: "batch" = "8". Order does not matter. A setting that
   may change is compared all the same: loading says whether it did, and what it was. */
struct ht_checkpoint_setting {
    const char *name;
    char value[64];
    bool may_change;
    bool changed; /* filled in by loading */
    char was[64];
};

struct ht_checkpoints;

/* Opens a folder, made when it is not there, for this process alone; the newest `keep` >= 1 steps are kept.
   HT_BAD_INPUT when it cannot be written or another process has it. */
enum ht_status ht_checkpoints_open(const char *dir, int64_t keep, struct ht_error *err, struct ht_checkpoints **out);
void ht_checkpoints_close(struct ht_checkpoints *c); /* accepts NULL */

/* The newest step that is there, or -1. */
int64_t ht_checkpoints_latest(const struct ht_checkpoints *c);

/* Saves the state after `step` steps, step > ht_checkpoints_latest, piece by piece as the files have them. HT_FAILED
   when it cannot be written, or read; what was there is there still. */
enum ht_status ht_checkpoints_save(struct ht_checkpoints *c, const struct ht_state *state, int64_t step,
                                   const struct ht_checkpoint_setting *settings, int n_settings, struct ht_error *err);

/* Checks all of the newest step and makes it a state of the same model, whose values are read from the files until the
   folder is closed. HT_BAD_INPUT with one line that names the file and, where it is damaged, says what can be done;
   *step is unchanged then, and the state is undefined. */
enum ht_status ht_checkpoints_load(struct ht_checkpoints *c, struct ht_checkpoint_setting *settings, int n_settings,
                                   struct ht_error *err, struct ht_state *state, int64_t *step);

#endif
