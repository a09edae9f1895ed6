/*
 * The state that a training begins with and leaves behind: --init, --save, --checkpoint, --resume.
 *
 * The training state lives in the residents of all ranks, and goes from there to files and back piece by piece
 * (stream.h, common/ckpt/state.h). Checkpoints cut the training into runs of the executor:
 *
 *     init, checkpoint --> residents --> steps 1..N --> residents --> steps N+1..2N --> ... --> residents --> save
 *                                                           '--> checkpoint
 *
 * Nothing of the next run has begun when the state is read, so a resumed run is identical to one that was not
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

struct ht_node_stores;
enum { HT_PERSIST_SETTINGS = 14 };

/* The order in which a resumed training adds up its gradients, beside that of the training that saved. Only in the same
   order are its losses those of a training that was not stopped, to the last bit. */
enum ht_resumed_sums {
    HT_SUMS_NOT_RESUMED,
    HT_SUMS_SAME,
    HT_SUMS_OTHER,
    HT_SUMS_UNSAID, /* a checkpoint of an older version does not say */
};

struct ht_persist {
    const struct ht_options *options;
    const struct ht_job *job;
    struct ht_state *state;             /* NULL: none of the options is given. Its values are those that the first step
                                           begins with (no values: initial ones), from then on the residents'. Ranks
                                           other than 0 know only which parts there are. */
    struct ht_hf *weights;              /* of --init: the state's values may be these at first */
    bool resumed;                       /* from a checkpoint, which also has how often units were stepped */
    bool scaler_anew;                   /* without the checkpoint's loss scale */
    enum ht_resumed_sums sums;          /* of rank 0 */
    char micro_batch_was[64];           /* the checkpoint's --micro-batch, when another; else "" */
    uint64_t sum_order;                 /* of this training: see ht_persist_open */
    enum ht_dtype save_dtype;           /* of --save */
    DIR *save_lock;                     /* the folder of --save, locked; NULL: a file, or none */
    int32_t first_step;                 /* steps done before this process */
    int64_t n_losses_before;            /* rows of the state's losses that are of those steps */
    const char *resumed_from;           /* the folder; NULL: not resumed, or another rank's */
    struct ht_node_stores *stores;      /* NULL without --store; ht_node_stores_open's, of all ranks */
    struct ht_checkpoints *checkpoints; /* NULL without --checkpoint, and where other ranks keep them */
    int32_t n_saved;                    /* checkpoints written, and how long that took */
    double saving_s;
    struct ht_error save_error; /* why --save failed; the training goes on to its report */
    struct ht_checkpoint_setting settings[HT_PERSIST_SETTINGS];
};

/* Writes DIR/config.json of --init DIR to `path` where no --model is given; else "". */
enum ht_status ht_persist_model(const struct ht_options *o, char path[4096], struct ht_error *err);

/* Opens and checks the files that the training begins with. On HT_BAD_INPUT, with one line, nothing has been
   overwritten. Only the rank that keeps the files opens them. Two trainings of the same settings with the same sum_order
   have the same bits: it is of the sums of gradients (common/schedule/sum_order.h), of the norm if that is clipped, and
   of the backend. */
enum ht_status ht_persist_open(const struct ht_options *options, const struct ht_job *job,
                               const struct ht_tokens *tokens, bool keeps_files, struct ht_error *err,
                               struct ht_persist *out);
void ht_persist_close(struct ht_persist *p);

/* Folders of --save and --checkpoint that a training makes, since they were not there. */
struct ht_new_folders {
    bool save, checkpoint;
};

/* Notes which are not there yet. */
struct ht_new_folders ht_persist_new_folders(const struct ht_state_options *options);
/* Removes those of them that a refused or stopped training has left empty. */
void ht_persist_remove_empty(const struct ht_state_options *options, struct ht_new_folders folders);
/* Tells all ranks how far rank 0's training is and which parts of its state there are. All ranks call it. */
enum ht_status ht_persist_share(struct ht_persist *p, const struct ht_ranks *ranks, struct ht_error *err);
/* Goes on after a step of `where`, whose facts are in the state and whose settings have been compared. Rank 0 alone speaks,
   and takes the losses before. */
enum ht_status ht_persist_resume(struct ht_persist *p, const char *where, int64_t step, bool speaks,
                                 struct ht_error *err);
/* Makes the residents the source of the state's values, and closes the weights that these came from. */
void ht_persist_begin(struct ht_persist *p, struct ht_source residents);

/* Returns the step after which the run that begins after `step` has to end: a checkpoint's, or `last`. *p may be
   zero. */
int32_t ht_persist_next(const struct ht_persist *p, int32_t step, int32_t last);
/* Writes a checkpoint after `step` steps. The state's values can be read. */
enum ht_status ht_persist_reached(struct ht_persist *p, int32_t step, struct ht_error *err);

/* Writes --save after the last step. The state's values can be read. */
enum ht_status ht_persist_save(struct ht_persist *p, struct ht_error *err);

#endif
