/*
 * The training state by unit: parameters, momentum and variance, each the unit's flat FP32 buffer in the order of
 * ht_unit_param_parts, and how often the unit was stepped; beside them the loss scale. It says nothing of where a system
 * keeps what, which is why what one system leaves another can take up.
 *
 * In 16-bit numerics the parameters are the masters. The 16-bit copies are not part of the state: they are given as the
 * masters rounded, which is how an optimizer step makes them, and so have the same bits.
 *
 *     a system's resident tensors  --ht_state_take-->  state  --ht_state_give-->  another system's
 */
#ifndef HT_CKPT_STATE_H
#define HT_CKPT_STATE_H

#include "common/ckpt/losses.h"
#include "common/model/model.h"
#include "common/schedule/schedule.h"

enum ht_state_part { HT_STATE_PARAM, HT_STATE_MOMENTUM, HT_STATE_VARIANCE, HT_N_STATE_PARTS };
extern const char *const ht_state_part_names[HT_N_STATE_PARTS]; /* "param", "momentum", "variance" */

/* Host memory a parameter: three floats, and the mark while it is taken. */
enum { HT_STATE_BYTES = HT_N_STATE_PARTS * (int)sizeof(float) + 1 };

struct ht_unit_state {
    int64_t n;     /* elements of each part */
    int64_t steps; /* of the optimizer, without those that were skipped or undone */
    float *values[HT_N_STATE_PARTS];
    int64_t taken[HT_N_STATE_PARTS]; /* elements that ht_state_take has put there */
    unsigned char *seen;             /* [n] while taking: bit 1 << part for what has been put there */
};

struct ht_state {
    struct ht_model model;
    int64_t n_units;
    enum ht_dtype param;         /* of the copies that compute: HT_F32 when there are no masters beside them */
    struct ht_unit_state *units; /* values are 0 at first */
    double loss_scale;           /* 1 at first */
    int64_t good;                /* iterations since it changed */
    struct ht_losses losses;     /* of the steps up to here, as far as they are known */
};

struct ht_state *ht_state_create(const struct ht_model *model, enum ht_dtype param);
void ht_state_destroy(struct ht_state *state); /* accepts NULL */

/* Whether a tensor is part of the state, or is made from it. */
bool ht_state_holds(const struct ht_tensor *t);

/* Fills a resident tensor's memory, a whole unit's or a shard's, from the state, and a shard's padding with zeros.
   HT_FAILED when the tensor does not fit the model. The tensor is one that ht_state_holds. */
enum ht_status ht_state_give(const struct ht_state *state, const struct ht_tensor *t, void *data, struct ht_error *err);

/*
 * Takes a resident tensor's memory into the state: begin, then take for each resident place, then end. A tensor that is
 * resident in several tiers counts where the optimizer steps it, if it is resident there (the others may wait for their
 * copy); otherwise all of its places must agree. 16-bit copies are passed over. HT_FAILED when places do not agree, or
 * when end finds that something is missing.
 */
void ht_state_take_begin(struct ht_state *state);
enum ht_status ht_state_take(struct ht_state *state, const struct ht_schedule *s, int32_t tensor, enum ht_tier tier,
                             const void *data, struct ht_error *err);
/* What another process has taken of a unit: values[part][i] where bit 1 << part of seen[i] is set. Before end. */
enum ht_status ht_state_take_from(struct ht_state *state, int64_t unit, const unsigned char *seen,
                                  float *const values[HT_N_STATE_PARTS], struct ht_error *err);
enum ht_status ht_state_take_end(struct ht_state *state, struct ht_error *err);

#endif
