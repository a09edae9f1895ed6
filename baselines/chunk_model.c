#include "baselines/chunk_model.h"

#include "baselines/passes.h"
#include "common/base/array.h"
#include "common/base/minmax.h"
#include "common/base/units.h"
#include "common/draft/draft_extra.h"
#include "common/schedule/live.h"

#include <assert.h>
#include <stdlib.h>

void ht_chunk_model_init(struct ht_chunk_model *m, const struct ht_scenario *scenario, int64_t c)
{
    *m = (struct ht_chunk_model){.c = (int32_t)c, .n_units = (int32_t)ht_model_units(&scenario->model)};
    m->unit_elements = HT_NEW_ARRAY(int64_t, m->n_units);
    for (int32_t u = 0; u < m->n_units; u++) {
        m->unit_elements[u] = ht_equal_shard(scenario, u);
        m->largest_unit = ht_max(m->largest_unit, m->unit_elements[u]);
    }
    m->copy_bytes = ht_dtype_bytes(scenario->numerics.param);
}

void ht_chunk_model_free(struct ht_chunk_model *m)
{
    ht_chunks_free(&m->chunks);
    ht_chunk_moves_free(&m->moves);
    free(m->unit_elements);
    free(m->moments);
    free(m->on_ssd);
    *m = (struct ht_chunk_model){0};
}

/* ---- warm-up --------------------------------------------------------------------------------------------------- */

/* Returns the compute ops of an iteration in order, with all parameters on the device. A gradient is freed when its
   unit's backward ends: from then on it is in the chunk. */
static struct ht_schedule *warm_up_graph(const struct ht_scenario *scenario, int32_t c)
{
    struct ht_draft g;
    ht_draft_begin(&g, scenario, &(struct ht_program){.name = "warm-up"});
    for (int32_t u = 0; u < g.n_units; u++) ht_draft_place(&g, g.param[u], HT_DEVICE);
    for (int32_t j = 0; j < g.n_mb; j++) {
        ht_forward_pass(&g, j, c, -1);
        for (int32_t u = g.n_units - 1; u >= 0; u--) {
            ht_backward_step(&g, u, j, c);
            ht_op_effect(g.schedule, ht_draft_fresh_gradient(&g, u, j), HT_DEVICE, HT_RELEASE);
        }
    }
    return ht_draft_end(&g);
}

static void need_chunk(struct ht_chunk_moment *m, int32_t chunk)
{
    for (int i = 0; i < HT_CHUNK_NEEDS; i++) {
        if (m->needs[i] == chunk) return;
        if (m->needs[i] >= 0) continue;
        m->needs[i] = chunk;
        return;
    }
    assert(!"an op reads its unit's parameters and the table, no more");
}

/*
 * Reads the moments off the warm-up graph. Non-model data is everything but parameters. With several ranks the operator
 * after an all-gather needs what the all-gather reads, and what is live during a reduce-scatter counts for the operator
 * before it.
 */
static void read_moments(const struct ht_schedule *s, struct ht_chunk_model *m)
{
    static const struct ht_chunk_moment nothing = {.needs = {-1, -1}};
    int64_t *live = HT_NEW_ARRAY(int64_t, s->n_ops);
    struct ht_chunk_moment *next = m->moments = HT_NEW_ARRAY(struct ht_chunk_moment, s->n_ops + 1);
    ht_schedule_live(s, ht_space(s, HT_DEVICE, 0), HT_ALL_CLASSES & ~HT_CLASS(HT_PARAM), live);
    *next = nothing;
    m->non_model_peak_bytes = 0;
    for (int32_t op = 0; op < s->n_ops; op++) {
        bool moment = s->lanes[s->ops[op].lane].kind == HT_LANE_COMPUTE;
        int32_t unit = s->ops[op].label.unit;
        if (moment) need_chunk(next, m->chunks.of_unit[unit]);
        for (int64_t e = s->effects_begin[op]; e < s->effects_begin[op + 1]; e++) {
            const struct ht_tensor *t = &s->tensors[s->effects[e].tensor];
            if (t->class == HT_PARAM) need_chunk(next, m->chunks.of_unit[t->label.unit]);
        }
        if (moment) {
            bool first = m->chunks.first[m->chunks.of_unit[unit]] == unit;
            next->ends = first && s->ops[op].kind == HT_OP_BACKWARD ? m->chunks.of_unit[unit] + 1 : 0;
            *++next = nothing;
        }
        if (!moment && s->ops[op].kind != HT_OP_REDUCE_SCATTER) continue;
        next[-1].non_model_bytes = ht_max(live[op], next[-1].non_model_bytes);
        m->non_model_peak_bytes = ht_max(live[op], m->non_model_peak_bytes);
    }
    m->n_moments = (int32_t)(next - m->moments);
    free(live);
}

enum ht_status ht_chunk_model_warm_up(struct ht_chunk_model *m, const struct ht_scenario *scenario, int64_t elements,
                                      struct ht_error *err)
{
    enum ht_status status = ht_chunks_pack(m->unit_elements, m->n_units, elements, err, &m->chunks);
    if (status) return status;
    struct ht_schedule *s = warm_up_graph(scenario, m->c);
    read_moments(s, m);
    ht_schedule_destroy(s);
    return HT_OK;
}

/* ---- moves ----------------------------------------------------------------------------------------------------- */

enum ht_status ht_chunk_model_move(struct ht_chunk_model *m, const char *system, struct ht_error *err)
{
    struct ht_error why = {0};
    const struct ht_chunk_room *room = &m->room;
    int32_t at = 0;
    enum ht_status status = ht_chunks_move(m->moments, m->n_moments, m->chunks.n, room, &why, &m->moves, &at);
    if (status == HT_OK) return HT_OK;
    if (status != HT_INFEASIBLE) return ht_fail(err, status, "%s", why.text);
    int64_t now = m->moments[at].non_model_bytes, next = m->moments[(at + 1) % m->n_moments].non_model_bytes;
    char other[HT_QUANTITY_TEXT], all[HT_QUANTITY_TEXT], fixed[HT_QUANTITY_TEXT];
    return ht_fail_memory(
        err, HT_DEVICE,
        "OOM in %s at operator %d of %d: %s (of %s usable, non-model data take %s, optimizer states and a "
        "buffer %s)",
        system, at + 1, m->n_moments, why.text, ht_format_quantity(HT_BYTES, (double)room->usable_bytes, all),
        ht_format_quantity(HT_BYTES, (double)ht_max(now, next), other),
        ht_format_quantity(HT_BYTES, (double)room->fixed_bytes, fixed));
}
