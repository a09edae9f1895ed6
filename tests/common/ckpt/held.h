/* A state whose values are in memory; tests write it to files and read files into it. */
#ifndef TESTS_COMMON_CKPT_HELD_H
#define TESTS_COMMON_CKPT_HELD_H

#include "common/base/array.h"
#include "common/base/rng.h"
#include "common/ckpt/state.h"

#include <stdlib.h>
#include <string.h>

struct held {
    struct ht_state *state;
    float **values; /* [n_units * HT_N_STATE_PARTS] */
};

static inline float *held_at(const struct held *h, int64_t unit, int part)
{
    return h->values[unit * HT_N_STATE_PARTS + part];
}

static enum ht_status held_read(void *ctx, struct ht_piece p, float *out, struct ht_error *err)
{
    const struct held *h = ctx;
    (void)err;
    memcpy(out, held_at(h, p.unit, p.part) + p.begin, (size_t)(p.end - p.begin) * sizeof(*out));
    return HT_OK;
}

static inline struct held *held_create(const struct ht_model *model)
{
    struct held *h = HT_NEW(struct held);
    h->state = ht_state_create(model);
    h->state->values = (struct ht_source){.read = held_read, .ctx = h, .parts = HT_ALL_STATE_PARTS};
    h->values = HT_NEW_ARRAY(float *, h->state->n_units *HT_N_STATE_PARTS);
    for (int64_t i = 0; i < h->state->n_units * HT_N_STATE_PARTS; i++)
        h->values[i] = HT_NEW_ARRAY(float, ht_unit_params(model, i / HT_N_STATE_PARTS));
    return h;
}

static inline struct held *held_random(const struct ht_model *model, uint64_t seed)
{
    struct held *h = held_create(model);
    for (int64_t i = 0; i < h->state->n_units * HT_N_STATE_PARTS; i++)
        for (int64_t k = 0; k < ht_unit_params(model, i / HT_N_STATE_PARTS); k++)
            h->values[i][k] = ht_random_float(seed + (uint64_t)i, (uint64_t)k);
    return h;
}

/* Returns true if all values read from a state, in pieces of `most` elements, are these. */
static inline bool held_equals(const struct held *h, const struct ht_state *state, int64_t most, struct ht_error *err)
{
    bool same = true;
    float *got = HT_NEW_ARRAY(float, most);
    for (int64_t i = 0; i < state->n_units * HT_N_STATE_PARTS && same; i++)
        for (int64_t at = 0, end, n = ht_unit_params(&state->model, i / HT_N_STATE_PARTS); at < n && same; at = end) {
            end = n - at < most ? n : at + most;
            struct ht_piece p = {i / HT_N_STATE_PARTS, (enum ht_state_part)(i % HT_N_STATE_PARTS), at, end};
            same = ht_state_read(state, p, got, err) == HT_OK &&
                   memcmp(got, h->values[i] + at, (size_t)(end - at) * sizeof(*got)) == 0;
        }
    free(got);
    return same;
}

static inline void held_destroy(struct held *h)
{
    if (!h) return;
    for (int64_t i = 0; i < h->state->n_units * HT_N_STATE_PARTS; i++) free(h->values[i]);
    free(h->values);
    ht_state_destroy(h->state);
    free(h);
}

#endif
