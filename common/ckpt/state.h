/*
 * The training state by unit: parameters, momentum and variance, each the unit's flat FP32 buffer in the order of
 * ht_unit_param_parts. It says nothing of where a system keeps what, which is why what one system leaves another can
 * take up.
 *
 *     a system's resident tensors  --ht_state_take-->  state  --ht_state_give-->  another system's
 */
#ifndef HT_CKPT_STATE_H
#define HT_CKPT_STATE_H

#include "common/model/model.h"
#include "common/schedule/schedule.h"

enum ht_state_part { HT_STATE_PARAM, HT_STATE_MOMENTUM, HT_STATE_VARIANCE, HT_N_STATE_PARTS };
extern const char *const ht_state_part_names[HT_N_STATE_PARTS]; /* "param", "momentum", "variance" */

struct ht_unit_state {
    int64_t n; /* elements of each part */
    float *values[HT_N_STATE_PARTS];
    int64_t taken[HT_N_STATE_PARTS]; /* elements that ht_state_take has put there */
    unsigned char *seen;             /* [n] while taking: bit 1 << part for what has been put there */
};

struct ht_state {
    struct ht_model model;
    int64_t n_units;
    struct ht_unit_state *units; /* values are 0 at first */
};

struct ht_state *ht_state_create(const struct ht_model *model);
void ht_state_destroy(struct ht_state *state); /* accepts NULL */

/* Whether a tensor is part of the state. */
bool ht_state_holds(const struct ht_tensor *t);

/* Fills a resident tensor's memory, a whole unit's or a shard's, from the state. HT_FAILED when the tensor does not
   fit the model. The tensor is one that ht_state_holds. */
enum ht_status ht_state_give(const struct ht_state *state, const struct ht_tensor *t, void *data, struct ht_error *err);

/*
 * Takes a resident tensor's memory into the state: begin, then take for each resident place, then end. A tensor that is
 * resident in several tiers counts where the optimizer steps it, if it is resident there (the others may wait for their
 * copy); otherwise all of its places must agree. HT_FAILED when they do not, or when end finds that something is
 * missing.
 */
void ht_state_take_begin(struct ht_state *state);
enum ht_status ht_state_take(struct ht_state *state, const struct ht_schedule *s, int32_t tensor, enum ht_tier tier,
                             const void *data, struct ht_error *err);
enum ht_status ht_state_take_end(struct ht_state *state, struct ht_error *err);

#endif
