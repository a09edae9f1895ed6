/*
 * The training state: parameters, momentum and variance of each unit, each the unit's flat FP32 buffer in the order of
 * ht_unit_param_parts; the number of optimizer steps of each unit; the loss scale and the losses. The state is
 * independent of where a system keeps what, so a system can continue from what another one left. In 16-bit numerics the
 * parameters are the masters; the 16-bit copies are the masters rounded, exactly as an optimizer step rounds them.
 *
 * No process holds all values: a reader requests them piece by piece from their source. So it needs memory for a piece
 * or two beside its own part of the state, whatever the model's size.
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

/* Elements [begin, end) of a part of a unit; at most HT_PIECE_ELEMENTS, i.e. 4 MiB. */
struct ht_piece {
    int64_t unit;
    enum ht_state_part part;
    int64_t begin, end;
};
enum { HT_PIECE_ELEMENTS = 1 << 20 };
/* Returns the number of elements of the largest piece of a model. */
int64_t ht_piece_most(const struct ht_model *model);

/* Returns the number of elements that a piece and a tensor of the unit have in common. They begin at *first in the
   tensor and at *at in the piece. */
int64_t ht_piece_overlap(struct ht_piece piece, const struct ht_param_part *tensor, int64_t *first, int64_t *at);

/* A source of values. */
struct ht_source {
    /* Reads a piece into out, [end - begin]. */
    enum ht_status (*read)(void *ctx, struct ht_piece piece, float *out, struct ht_error *err);
    void *ctx;
    unsigned parts; /* 1 << part for each part that it has; the others are 0 */
};

struct ht_state {
    struct ht_model model;
    int64_t n_units;
    int64_t *steps;          /* [n_units] optimizer steps, without skipped and undone ones */
    double loss_scale;       /* 1 at first */
    int64_t good;            /* iterations since the loss scale changed */
    struct ht_losses losses; /* of the steps so far, as far as they are known */
    struct ht_source values; /* no source at first: all values are 0 */
};

struct ht_state *ht_state_create(const struct ht_model *model);
void ht_state_destroy(struct ht_state *state); /* accepts NULL */

/* Reads a piece into out, [end - begin]. */
enum ht_status ht_state_read(const struct ht_state *state, struct ht_piece piece, float *out, struct ht_error *err);

#endif
