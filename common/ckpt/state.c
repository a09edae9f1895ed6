#include "common/ckpt/state.h"

#include "common/base/array.h"
#include "common/base/half.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

const char *const ht_state_part_names[HT_N_STATE_PARTS] = {"param", "momentum", "variance"};

struct ht_state *ht_state_create(const struct ht_model *model, enum ht_dtype param)
{
    struct ht_state *state = HT_NEW(struct ht_state);
    state->model = *model;
    state->param = param;
    state->loss_scale = 1;
    state->n_units = ht_model_units(model);
    state->units = HT_NEW_ARRAY(struct ht_unit_state, state->n_units);
    for (int64_t u = 0; u < state->n_units; u++) {
        state->units[u].n = ht_unit_params(model, u);
        for (int p = 0; p < HT_N_STATE_PARTS; p++) state->units[u].values[p] = HT_NEW_ARRAY(float, state->units[u].n);
    }
    return state;
}

void ht_state_destroy(struct ht_state *state)
{
    if (!state) return;
    for (int64_t u = 0; u < state->n_units; u++) {
        for (int p = 0; p < HT_N_STATE_PARTS; p++) free(state->units[u].values[p]);
        free(state->units[u].seen);
    }
    free(state->units);
    ht_losses_free(&state->losses);
    free(state);
}

/* The part that a class of tensors is of; HT_N_STATE_PARTS: of none. */
static enum ht_state_part part_of(const struct ht_tensor *t)
{
    switch (t->class) {
    case HT_PARAM:
    case HT_MASTER:
        return HT_STATE_PARAM;
    case HT_MOMENTUM:
        return HT_STATE_MOMENTUM;
    case HT_VARIANCE:
        return HT_STATE_VARIANCE;
    default:
        return HT_N_STATE_PARTS;
    }
}

bool ht_state_holds(const struct ht_tensor *t)
{
    return part_of(t) != HT_N_STATE_PARTS;
}

/* A 16-bit copy of what a master has. */
static bool is_copy(const struct ht_state *state, const struct ht_tensor *t)
{
    return t->class == HT_PARAM && state->param != HT_F32;
}

/* Whether a tensor's bytes are those of its elements. The shard that ends with its unit may be padded, so that all
   shards of the unit are of one size (common/build/zero.c). */
static bool fits(const struct ht_tensor *t, int64_t elements, int64_t unit_elements, enum ht_dtype dtype)
{
    int64_t each = ht_dtype_bytes(dtype), room = t->bytes / each;
    bool padded = t->sharded && t->shard_end == unit_elements;
    if (elements < 0 || t->bytes % each) return false;
    return padded ? room >= elements && room <= unit_elements : room == elements;
}

/* The elements [begin, end) of its unit that a tensor has, in FP32 or, of a copy, in 16 bits. */
static enum ht_status range_of(const struct ht_state *state, const struct ht_tensor *t, struct ht_error *err,
                               int64_t *begin, int64_t *end)
{
    int64_t unit = t->label.unit;
    if (unit < 0 || unit >= state->n_units)
        return ht_fail(err, HT_FAILED, "a tensor of class %d is about unit %lld of a model with %lld", (int)t->class,
                       (long long)unit, (long long)state->n_units);
    *begin = t->shard_begin;
    *end = t->sharded ? t->shard_end : state->units[unit].n;
    enum ht_dtype dtype = is_copy(state, t) ? state->param : HT_F32;
    if (*begin < 0 || *end > state->units[unit].n || !fits(t, *end - *begin, state->units[unit].n, dtype))
        return ht_fail(err, HT_FAILED, "unit %lld: a tensor of %lld bytes for elements %lld to %lld of %lld in %s",
                       (long long)unit, (long long)t->bytes, (long long)*begin, (long long)*end,
                       (long long)state->units[unit].n, ht_dtype_name(dtype));
    return HT_OK;
}

enum ht_status ht_state_give(const struct ht_state *state, const struct ht_tensor *t, void *data, struct ht_error *err)
{
    enum ht_state_part part = part_of(t);
    int64_t begin = 0, end = 0;
    assert(part < HT_N_STATE_PARTS);
    if (t->bytes == 0) return HT_OK;
    enum ht_status status = range_of(state, t, err, &begin, &end);
    if (status != HT_OK) return status;
    const float *from = state->units[t->label.unit].values[part] + begin;
    size_t bytes = (size_t)((end - begin) * ht_dtype_bytes(is_copy(state, t) ? state->param : HT_F32));
    memset((char *)data + bytes, 0, (size_t)t->bytes - bytes); /* the padding */
    if (!is_copy(state, t)) {
        memcpy(data, from, bytes);
        return HT_OK;
    }
    uint16_t *to = data;
    for (int64_t i = 0; i < end - begin; i++)
        to[i] = state->param == HT_BF16 ? ht_f32_to_bf16(from[i]) : ht_f32_to_f16(from[i]);
    return HT_OK;
}

/* ---- taking ---- */

void ht_state_take_begin(struct ht_state *state)
{
    for (int64_t u = 0; u < state->n_units; u++) {
        struct ht_unit_state *unit = &state->units[u];
        memset(unit->taken, 0, sizeof(unit->taken));
        free(unit->seen);
        unit->seen = HT_NEW_ARRAY(unsigned char, unit->n);
    }
}

static bool is_resident(const struct ht_schedule *s, int32_t tensor, enum ht_tier tier)
{
    for (int32_t i = 0; i < s->n_residents; i++)
        if (s->residents[i].tensor == tensor && s->residents[i].tier == tier) return true;
    return false;
}

/* Another tier where the tensor is resident and the optimizer writes it holds the newest values. */
static bool is_newer_elsewhere(const struct ht_schedule *s, int32_t tensor, enum ht_tier tier)
{
    bool here = false, elsewhere = false;
    for (int32_t op = 0; op < s->n_ops; op++) {
        if (s->ops[op].kind != HT_OP_OPTIMIZER_STEP) continue;
        for (int64_t e = s->effects_begin[op]; e < s->effects_begin[op + 1]; e++) {
            const struct ht_effect *f = &s->effects[e];
            if (f->tensor != tensor || !(f->flags & (HT_UPDATE | HT_PRODUCE))) continue;
            here |= f->tier == tier;
            elsewhere |= f->tier != tier && is_resident(s, tensor, f->tier);
        }
    }
    return elsewhere && !here;
}

/* One element, bit for bit; taken before, it has to be the same. */
static enum ht_status put(struct ht_unit_state *unit, int64_t u, enum ht_state_part part, int64_t i, const float *from,
                          struct ht_error *err)
{
    unsigned char bit = (unsigned char)(1u << part);
    if ((unit->seen[i] & bit) && memcmp(&unit->values[part][i], from, sizeof(*from)) != 0)
        return ht_fail(err, HT_FAILED, "unit %lld: two copies of element %lld of its %s differ", (long long)u,
                       (long long)i, ht_state_part_names[part]);
    unit->taken[part] += !(unit->seen[i] & bit);
    unit->seen[i] |= bit;
    memcpy(&unit->values[part][i], from, sizeof(*from));
    return HT_OK;
}

enum ht_status ht_state_take(struct ht_state *state, const struct ht_schedule *s, int32_t tensor, enum ht_tier tier,
                             const void *data, struct ht_error *err)
{
    const struct ht_tensor *t = &s->tensors[tensor];
    enum ht_state_part part = part_of(t);
    int64_t begin = 0, end = 0;
    if (t->bytes == 0 || is_copy(state, t) || is_newer_elsewhere(s, tensor, tier)) return HT_OK;
    enum ht_status status = range_of(state, t, err, &begin, &end);
    if (status != HT_OK) return status;
    const float *from = data;
    for (int64_t i = begin; i < end && !status; i++)
        status = put(&state->units[t->label.unit], t->label.unit, part, i, &from[i - begin], err);
    return status;
}

enum ht_status ht_state_take_from(struct ht_state *state, int64_t unit, const unsigned char *seen,
                                  float *const values[HT_N_STATE_PARTS], struct ht_error *err)
{
    enum ht_status status = HT_OK;
    for (int part = 0; part < HT_N_STATE_PARTS; part++)
        for (int64_t i = 0; i < state->units[unit].n && !status; i++)
            if (seen[i] & (1u << part))
                status = put(&state->units[unit], unit, (enum ht_state_part)part, i, &values[part][i], err);
    return status;
}

enum ht_status ht_state_take_end(struct ht_state *state, struct ht_error *err)
{
    enum ht_status status = HT_OK;
    for (int64_t u = 0; u < state->n_units; u++) {
        struct ht_unit_state *unit = &state->units[u];
        free(unit->seen);
        unit->seen = NULL;
        for (int p = 0; p < HT_N_STATE_PARTS && status == HT_OK; p++)
            if (unit->taken[p] != unit->n)
                status = ht_fail(err, HT_FAILED, "unit %lld: %lld of %lld elements of its %s are resident nowhere",
                                 (long long)u, (long long)(unit->n - unit->taken[p]), (long long)unit->n,
                                 ht_state_part_names[p]);
    }
    return status;
}
