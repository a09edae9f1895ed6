/*
 * The training state: parameters, momentum and variance of each unit, each the unit's flat FP32 buffer in the order of
 * ht_unit_param_parts, and how often the unit was stepped; beside them the loss scale and the losses. It says nothing
 * of where a system keeps what, which is why what one system leaves another can take up. In 16-bit numerics the
 * parameters are the masters; the 16-bit copies are those rounded, which is how an optimizer step makes them.
 *
 * No process holds the values: a reader asks for them piece by piece where they are. So it needs a piece or two of
 * memory beside its own part of the state, whatever the model's size.
 *
 *     residents (harness/run/stream.h) --------.                    .--> a checkpoint          (ht_checkpoints_save)
 *     a checkpoint (ht_checkpoints_load) --+--> ht_state_read --+--> Hugging Face's files  (ht_hf_save)
 *     Hugging Face's files (ht_hf_open) ---'                    '--> residents
 */
#ifndef HT_CKPT_STATE_H
#define HT_CKPT_STATE_H

#include "common/ckpt/losses.h"
#include "common/model/model.h"

enum ht_state_part { HT_STATE_PARAM, HT_STATE_MOMENTUM, HT_STATE_VARIANCE, HT_N_STATE_PARTS };
enum { HT_ALL_STATE_PARTS = (1 << HT_N_STATE_PARTS) - 1 };
extern const char *const ht_state_part_names[HT_N_STATE_PARTS]; /* "param", "momentum", "variance" */

/* Elements [begin, end) of a part of a unit; at most so many: 4 MiB. */
struct ht_piece {
    int64_t unit;
    enum ht_state_part part;
    int64_t begin, end;
};
enum { HT_PIECE_ELEMENTS = 1 << 20 };
/* Returns how many elements the largest piece of a model has. */
int64_t ht_piece_most(const struct ht_model *model);

/* Returns how many elements of one tensor of the unit the piece has: those from *first of the tensor, and from *at of
   the piece. */
int64_t ht_piece_overlap(struct ht_piece piece, const struct ht_param_part *tensor, int64_t *first, int64_t *at);

/* Where the values are. */
struct ht_source {
    /* Reads a piece into out, [end - begin]. */
    enum ht_status (*read)(void *ctx, struct ht_piece piece, float *out, struct ht_error *err);
    void *ctx;
    unsigned parts; /* 1 << part: those that it has; the others are 0 */
};

struct ht_state {
    struct ht_model model;
    int64_t n_units;
    int64_t *steps;          /* [n_units] of the optimizer, without those that were skipped or undone */
    double loss_scale;       /* 1 at first */
    int64_t good;            /* iterations since it changed */
    struct ht_losses losses; /* of the steps up to here, as far as they are known */
    struct ht_source values; /* none at first: all are 0 */
};

struct ht_state *ht_state_create(const struct ht_model *model);
void ht_state_destroy(struct ht_state *state); /* accepts NULL */

/* Reads a piece into out, [end - begin]. */
enum ht_status ht_state_read(const struct ht_state *state, struct ht_piece piece, float *out, struct ht_error *err);

#endif
