/*
 * Checkpoints of a training by unit: a folder of steps. A step is complete or absent.
 *
 *     DIR/.lock                                   locked while a process writes here
 *     DIR/step-0000000100/unit-0000.safetensors   a unit's parameters, momentum, variance: "param.wte", ..
 *     DIR/step-0000000100/losses.csv              the losses of steps 1 to 100
 *     DIR/step-0000000100/manifest.json           step, model, settings, the optimizer's steps by unit, loss scale;
 *                                                 size and XXH3 of every file; XXH3 of itself
 *     DIR/.partial-...   DIR/.removed-...         being written, being removed: swept when the folder is opened
 *
 * A save writes the files (each synced), the manifest (synced) and their folder (synced), renames the folder to
 * step-... and syncs DIR. Then it renames steps that are too old and removes them. So if the process or the machine
 * dies at any moment, every folder called step-... is complete, and the newest is at most one save old.
 *
 * Reading trusts nothing. It checks sizes and hashes first, then the headers (safetensors.h), then shapes.
 */
#ifndef HT_CKPT_CHECKPOINT_H
#define HT_CKPT_CHECKPOINT_H

#include "common/ckpt/state.h"

/* A setting that a resumed run must share with the run that saved: "batch" = "8". Order does not matter. A setting that
   may change is compared too: loading records whether it did, and its old value. */
struct ht_checkpoint_setting {
    const char *name;
    char value[64];
    bool may_change;
    bool may_lack; /* checkpoints of older versions do not have it */
    bool changed;  /* filled in by loading; false where the checkpoint lacks it */
    char was[64];  /* "unsaid": the checkpoint lacks it */
};

struct ht_checkpoints;

/* Opens a folder for this process alone; creates it if it does not exist. Keeps the newest `keep` >= 1 steps.
   HT_BAD_INPUT if it cannot be written or another process has it open. */
enum ht_status ht_checkpoints_open(const char *dir, int64_t keep, struct ht_error *err, struct ht_checkpoints **out);
void ht_checkpoints_close(struct ht_checkpoints *c); /* accepts NULL */
/* Removes a folder that holds no checkpoint, unless it has other files or a process has it open. */
void ht_checkpoints_remove_empty(const char *dir);

/* Returns the newest complete step, or -1. */
int64_t ht_checkpoints_latest(const struct ht_checkpoints *c);

/* Saves the state after `step` steps, piece by piece in file order; step > ht_checkpoints_latest. HT_FAILED if the
   state cannot be read or the files cannot be written; the older steps are then unchanged. */
enum ht_status ht_checkpoints_save(struct ht_checkpoints *c, const struct ht_state *state, int64_t step,
                                   const struct ht_checkpoint_setting *settings, int n_settings, struct ht_error *err);

/* Checks all files of the newest step and loads it into a state of the same model. The state's values are read from the
   files until the folder is closed. HT_BAD_INPUT names the file in one line, and says what can be done if it is
   damaged; *step is then unchanged and the state is undefined. */
enum ht_status ht_checkpoints_load(struct ht_checkpoints *c, struct ht_checkpoint_setting *settings, int n_settings,
                                   struct ht_error *err, struct ht_state *state, int64_t *step);

#endif
