/*
 * What a training begins with and leaves behind: --init, --save, --checkpoint, --resume.
 *
 * The training state lives in the residents of all ranks, and goes from there to files and back piece by piece
 * (stream.h, common/ckpt/state.h). Checkpoints cut the training into runs of the executor:
 *
 *     init, checkpoint --> residents --> steps 1..N --> residents --> steps N+1..2N --> ... --> residents --> save
 *                                                           '--> checkpoint
 *
 * Nothing of the next run has begun when the state is read, so a resumed run cannot be told from one that was not
 * stopped. Rank 0 keeps the files: they are the same whatever the ranks, and written whole or not at all.
 */
#ifndef HT_HARNESS_RUN_PERSIST_H
#define HT_HARNESS_RUN_PERSIST_H

#include "common/ckpt/checkpoint.h"
#include "common/ckpt/hf.h"
#include "harness/run/job.h"
#include "harness/run/ranks.h"
#include "harness/run/tokens.h"

#include <dirent.h>

enum { HT_PERSIST_SETTINGS = 13 };

struct ht_persist {
    const struct ht_options *options;
    const struct ht_job *job;
    struct ht_state *state;             /* NULL: none of the options is given. Its values: what the first step begins
                                           with; none: initial ones. Other ranks than 0 know which parts there are.
                                           From the first step on the residents'. */
    struct ht_hf *weights;              /* of --init, whose values they may be at first */
    bool resumed;                       /* it came from a checkpoint, so it knows how often units were stepped, too */
    bool scaler_anew;                   /* but its loss scale is not to be taken up */
    enum ht_dtype save_dtype;           /* of --save */
    DIR *save_lock;                     /* its folder, locked; NULL: a file, or none */
    int32_t first_step;                 /* steps done before this process */
    int64_t n_losses_before;            /* rows of the state's losses that are of those steps */
    struct ht_checkpoints *checkpoints; /* NULL without --checkpoint, and where other ranks keep them */
    int32_t n_saved;                    /* checkpoints written, and how long that took */
    double saving_s;
    struct ht_error save_error; /* why --save came to nothing; the training goes on to its report */
    struct ht_checkpoint_setting settings[HT_PERSIST_SETTINGS];
};

/* --init DIR alone: the model is what DIR/config.json says. Fills request->model, which then points to `path`. */
enum ht_status ht_persist_model(const struct ht_options *o, char path[4096], struct ht_error *err,
                                struct ht_scenario_request *request);

/* Opens what the training begins with, and checks all of it. HT_BAD_INPUT with one line; nothing has been overwritten
   then. Of several ranks only the one that keeps the files opens them. */
enum ht_status ht_persist_open(const struct ht_options *options, const struct ht_job *job,
                               const struct ht_tokens *tokens, bool keeps_files, struct ht_error *err,
                               struct ht_persist *out);
void ht_persist_close(struct ht_persist *p);
/* All ranks learn from rank 0 where the training stands, and what there is of its state. */
enum ht_status ht_persist_share(struct ht_persist *p, const struct ht_ranks *ranks, struct ht_error *err);
/* The residents have the state now: its values are theirs, and the weights that it came from are closed. */
void ht_persist_begin(struct ht_persist *p, struct ht_source residents);

/* The step after which the run that begins after `step` has to end: a checkpoint's, or `last`. *p may be zero. */
int32_t ht_persist_next(const struct ht_persist *p, int32_t step, int32_t last);
/* The state, whose values can be read, is that after `step` steps: writes a checkpoint. */
enum ht_status ht_persist_reached(struct ht_persist *p, int32_t step, struct ht_error *err);

/* Writes what is asked for after the last step, from the state, whose values can be read. */
enum ht_status ht_persist_save(struct ht_persist *p, struct ht_error *err);

#endif
