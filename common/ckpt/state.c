#include "common/ckpt/state.h"

#include "common/base/array.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

const char *const ht_state_part_names[HT_N_STATE_PARTS] = {"param", "momentum", "variance"};

struct ht_state *ht_state_create(const struct ht_model *model)
{
    struct ht_state *state = HT_NEW(struct ht_state);
    state->model = *model;
    state->loss_scale = 1;
    state->n_units = ht_model_units(model);
    state->steps = HT_NEW_ARRAY(int64_t, state->n_units);
    return state;
}

void ht_state_destroy(struct ht_state *state)
{
    if (!state) return;
    free(state->steps);
    ht_losses_free(&state->losses);
    free(state);
}

enum ht_status ht_state_read(const struct ht_state *state, struct ht_piece piece, float *out, struct ht_error *err)
{
    const struct ht_source *from = &state->values;
    assert(piece.begin >= 0 && piece.end - piece.begin <= HT_PIECE_ELEMENTS);
    if (from->parts & 1u << piece.part) return from->read(from->ctx, piece, out, err);
    memset(out, 0, (size_t)(piece.end - piece.begin) * sizeof(*out));
    return HT_OK;
}

int64_t ht_piece_most(const struct ht_model *model)
{
    int64_t most = 0;
    for (int64_t u = 0; u < ht_model_units(model); u++)
        if (ht_unit_params(model, u) > most) most = ht_unit_params(model, u);
    return most < HT_PIECE_ELEMENTS ? most : HT_PIECE_ELEMENTS;
}

int64_t ht_piece_overlap(struct ht_piece piece, const struct ht_param_part *tensor, int64_t *first, int64_t *at)
{
    int64_t from = tensor->offset, to = from + tensor->rows * tensor->cols;
    int64_t begin = piece.begin > from ? piece.begin : from, end = piece.end < to ? piece.end : to;
    *first = begin - from;
    *at = begin - piece.begin;
    return end > begin ? end - begin : 0;
}
