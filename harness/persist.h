/*
 * What a training begins with and leaves behind: --init, --save, --checkpoint, --resume.
 *
 * The training state lives in a system's resident tensors while steps run. Where it is read or written it is a struct
 * ht_state, which is host memory beside the schedule's ledger: HT_STATE_BYTES (13) a parameter, and only when one of
 * these options is given. Checkpoints cut the training into runs of the executor:
 *
 *     init            give                take            give                   take
 *     checkpoint --> state --> steps 1..N --> state --> steps N+1..2N --> ... --> state --> save
 *                                               '--> checkpoint
 *
 * Nothing of the next run has begun when the state is taken, so a resumed run cannot be told from one that was not
 * stopped.
 */
#ifndef HT_HARNESS_PERSIST_H
#define HT_HARNESS_PERSIST_H

#include "common/ckpt/checkpoint.h"
#include "harness/job.h"
#include "harness/tokens.h"

#include <dirent.h>

enum { HT_PERSIST_SETTINGS = 13 };

struct ht_persist {
    const struct ht_options *options;
    const struct ht_job *job;
    struct ht_state *state;             /* NULL: none of the options is given */
    bool loaded;                        /* the state holds what the next step begins with */
    bool resumed;                       /* it came from a checkpoint, so it knows how often units were stepped, too */
    bool scaler_anew;                   /* but its loss scale is not to be taken up */
    enum ht_dtype save_dtype;           /* of --save */
    DIR *save_lock;                     /* its folder, locked; NULL: a file, or none */
    int32_t first_step;                 /* steps done before this process */
    int64_t n_losses_before;            /* rows of the state's losses that are of those steps */
    struct ht_checkpoints *checkpoints; /* NULL without --checkpoint, and where other ranks keep them */
    int32_t n_saved;                    /* checkpoints written, and how long that took */
    double saving_s;
    struct ht_checkpoint_setting settings[HT_PERSIST_SETTINGS];
};

/* --init DIR alone: the model is what DIR/config.json says. Fills request->model, which then points to `path`. */
enum ht_status ht_persist_model(const struct ht_options *o, char path[4096], struct ht_error *err,
                                struct ht_scenario_request *request);

/* Host memory that the options take for the state, of all ranks; 0 when none of them is given, or there is no schedule. */
int64_t ht_persist_bytes(const struct ht_options *o, const struct ht_job *job);

/* Reads what the training begins with. HT_BAD_INPUT with one line; nothing has been overwritten then. Of several ranks
   only the one that keeps the files reads: the others have an empty state (harness/ranks_state.h fills it). */
enum ht_status ht_persist_open(const struct ht_options *options, const struct ht_job *job, const struct ht_tokens *tokens,
                               bool keeps_files, struct ht_error *err, struct ht_persist *out);
void ht_persist_close(struct ht_persist *p);

/* The step after which the run that begins after `step` has to end: a checkpoint's, or `last`. *p may be zero. */
int32_t ht_persist_next(const struct ht_persist *p, int32_t step, int32_t last);
/* The state is that after `step` steps: writes a checkpoint, when there are any. */
enum ht_status ht_persist_reached(struct ht_persist *p, int32_t step, struct ht_error *err);

/* Writes what is asked for after the last step, from the state. */
enum ht_status ht_persist_save(struct ht_persist *p, struct ht_error *err);

#endif
