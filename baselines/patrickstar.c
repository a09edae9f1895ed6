/*
 * PatrickStar (Fang et al., "PatrickStar: Parallel Training of Pre-trained Models via Chunk-based Memory Management",
 * IEEE TPDS 2022; repository Tencent/PatrickStar).
 *
 * 16-bit parameters are in chunks of one size, and a chunk is in one tier at a time. A warm-up iteration measures how
 * much memory everything else takes at every operator. From then on a chunk comes to the device when an operator needs
 * it, and the chunk used last leaves when there is no room. (baselines/chunks.h computes this before the first
 * iteration.) A gradient replaces its parameter in the chunk, so that all model data are 14 bytes a parameter. Adam
 * runs after the whole backward pass, chunk by chunk: on the device for the chunks whose optimizer states fit the
 * margin that is left there, on the CPU for the others:
 *
 *     compute  F0 F1 F2   F3 ..      | B3 B2    B1 B0 |    U0 (chunk 0 in the margin)
 *     d2h         C0                 |    C2          |          G1          G2
 *     h2d            C1              |       C0       |                P1          P2
 *     cpu                            |                |             O1          O2
 *
 * One host thread enqueues kernels, moves chunks and steps Adam on the CPU. A move blocks that thread, not the device,
 * so it runs beside the kernels that were enqueued before it, and kernels behind it wait for it. Adam's copies are on
 * the kernels' stream and wait for these; they and the CPU's steps are one chain. With several ranks nothing overlaps.
 *
 * README.md, "PatrickStar": the equations, the source of each line here, and the departures by number.
 */
#include "baselines/baselines.h"
#include "baselines/chunk_graph.h"
#include "baselines/passes.h"

#include "common/base/minmax.h"
#include "common/base/units.h"
#include "common/draft/control.h"

#include <stdio.h>

static const struct ht_knob knobs[] = {
    HT_KNOB_C,
    {"chunk", "parameters in a chunk", .min = 1, .max = (int64_t)1 << 40},
    {"os", "chunks with optimizer states on the device, the first ones", .max = 1 << 20},
    {"gpu_ratio", "overall_gpu_mem_ratio in percent", .min = 1, .max = 100},
    {"cpu_ratio", "overall_cpu_mem_ratio in percent", .min = 1, .max = 100},
    {"margin_ratio", "margin_use_ratio in percent", .max = 100},
    {"check", "1: the host waits for each unit's backward, to check its gradient for overflow", .max = 1},
    {0},
};

enum { WARMUP_PERCENT = 10 }; /* warmup_gpu_chunk_mem_ratio */

/* ---- plan ------------------------------------------------------------------------------------------------------ */

static int64_t percent_of(int64_t bytes, int64_t percent)
{
    return (int64_t)((__int128)bytes * percent / 100);
}

/* Returns a parameter's bytes of optimizer states: momentum, variance, and a third FP32 number: the master copy, or the
   gradient if there is no master copy or gradients do not overwrite parameters. These are the paper's 12 in 16 bit. */
static int64_t states_bytes(const struct ht_scenario *scenario)
{
    bool own_gradient = !ht_numerics_has_master(&scenario->numerics) || ht_equal_rounds(scenario) > 1;
    return ht_optimizer_state_bytes(&scenario->numerics) + (own_gradient ? 4 : 0);
}

/* Returns the bytes that wait for the final check under rollback, of the units of chunks [begin, end). Gradients wait
   beside a log. With one micro-batch in 16 bit the step also allocates the parameters anew, since gradients have
   replaced them. */
static int64_t waiting_bytes(const struct ht_scenario *scenario, const struct ht_chunks *chunks, int64_t begin,
                             int64_t end)
{
    bool again = ht_numerics_has_master(&scenario->numerics) && ht_equal_rounds(scenario) == 1;
    int64_t bytes = 0;
    if (scenario->control.mode != HT_CONTROL_ROLLBACK) return 0;
    for (int32_t u = chunks->first[begin]; u < chunks->first[end]; u++) {
        int64_t elements = ht_equal_shard(scenario, u);
        bytes += ht_live_bytes(ht_control_log_bytes(&scenario->control, elements));
        if (again) bytes += ht_live_bytes(elements * ht_dtype_bytes(scenario->numerics.param));
    }
    return bytes;
}

/* Returns the number of elements of a chunk: the best used size of those of which two fit the warm-up's memory
   (examples/best_chunk_size_search.py). */
static int64_t search_chunk(const struct ht_chunk_model *m, int64_t usable_bytes)
{
    int64_t limit = percent_of(usable_bytes, WARMUP_PERCENT) / (2 * m->copy_bytes);
    return ht_chunks_search(m->unit_elements, m->n_units, 0, ht_max(limit, 2 * m->largest_unit - 1));
}

/* Returns the number of chunks whose optimizer states fit the device (update_margin_mem in core/memtracer/
   memtracer.py): margin_ratio x margin / (states_bytes x E), where
   margin = usable - largest non-model - n E x copy_bytes. */
static int64_t margin_chunks(const struct ht_scenario *scenario, const struct ht_chunk_model *m, int64_t usable_bytes,
                             int64_t margin_percent)
{
    int64_t elements = m->chunks.elements;
    int64_t margin = usable_bytes - m->non_model_peak_bytes - m->chunks.n * elements * m->copy_bytes;
    if (margin <= 0) return 0;
    return ht_min(percent_of(margin, margin_percent) / (states_bytes(scenario) * elements), m->chunks.n);
}

/* Computes the moves with the optimizer states of `os` chunks on the device. */
static enum ht_status move(const struct ht_system *self, const struct ht_scenario *scenario, int64_t os,
                           int64_t usable_bytes, struct ht_error *err, struct ht_chunk_model *m)
{
    int64_t elements = m->chunks.elements, waiting = waiting_bytes(scenario, &m->chunks, 0, os);
    m->room = (struct ht_chunk_room){
        .chunk_bytes = elements * m->copy_bytes,
        .n_pinned = (int32_t)os,
        .usable_bytes = usable_bytes,
        .fixed_bytes = elements * (os * states_bytes(scenario) + m->copy_bytes) + waiting,
    };
    return ht_chunk_model_move(m, self->name, err);
}

/* Returns the host bytes of all ranks of a node: 14 for each parameter stepped on the host (16 in FP32), including
   unused parts of chunks, and what rollback keeps. */
static int64_t host_bytes(const struct ht_scenario *scenario, const struct ht_chunk_model *m, int64_t os)
{
    int64_t bytes = (m->chunks.n - os) * m->chunks.elements * (states_bytes(scenario) + m->copy_bytes);
    bytes += waiting_bytes(scenario, &m->chunks, os, m->chunks.n);
    return bytes * ht_scenario_ranks_per_node(scenario);
}

static enum ht_status check_host(const struct ht_system *self, const struct ht_scenario *scenario, int64_t need_bytes,
                                 int64_t percent, struct ht_error *err)
{
    int64_t usable_bytes = percent_of(ht_scenario_shared_host_bytes(scenario), percent);
    if (need_bytes <= usable_bytes) return HT_OK;
    char need[HT_QUANTITY_TEXT], have[HT_QUANTITY_TEXT];
    return ht_fail_memory(err, HT_HOST, "OOM in %s on the host: chunks need %s, usable is %s (%lld%% of its memory)",
                          self->name, ht_format_quantity(HT_BYTES, (double)need_bytes, need),
                          ht_format_quantity(HT_BYTES, (double)usable_bytes, have), (long long)percent);
}

/* Records the inputs from which the planner derives the size of chunks and os. Parameters are those of one rank. */
static void record_inputs(const struct ht_scenario *scenario, const struct ht_chunk_model *m, struct ht_plan *out)
{
    ht_plan_input(out, "device_memory", "bytes", (double)ht_scenario_device_bytes(scenario));
    ht_plan_input(out, "host_memory", "bytes", (double)ht_scenario_shared_host_bytes(scenario));
    ht_plan_input(out, "non_model_peak", "bytes", (double)m->non_model_peak_bytes);
    ht_plan_input(out, "parameters", "", (double)ht_equal_params(scenario));
    ht_plan_input(out, "parameters_of_largest_unit", "", (double)m->largest_unit);
    ht_plan_input(out, "copy_of_a_parameter", "bytes", (double)m->copy_bytes);
    ht_plan_input(out, "states_of_a_parameter", "bytes", (double)states_bytes(scenario));
}

/* Decides with a model whose c is set. */
static enum ht_status decide(const struct ht_system *self, const struct ht_scenario *scenario,
                             const struct ht_settings *settings, struct ht_error *err, struct ht_chunk_model *m,
                             struct ht_plan *out)
{
    int64_t gpu_ratio = ht_setting(settings, "gpu_ratio", 80), cpu_ratio = ht_setting(settings, "cpu_ratio", 80);
    int64_t margin_ratio = ht_setting(settings, "margin_ratio", 80), forced = ht_setting(settings, "os", -1);
    int64_t usable = percent_of(ht_scenario_device_bytes(scenario), gpu_ratio);
    int64_t elements = ht_setting(settings, "chunk", search_chunk(m, usable));
    enum ht_status status = ht_chunk_model_warm_up(m, scenario, elements, err);
    if (status) return status;
    int64_t os = ht_min(forced >= 0 ? forced : margin_chunks(scenario, m, usable, margin_ratio), m->chunks.n);
    /* The margin leaves the buffer out: if both and the chunks are too much, fewer states stay (departure 3). */
    while ((status = move(self, scenario, os, usable, err, m)) && forced < 0 && os > 0) os--;
    ht_plan_set(out, "c", m->c);
    ht_plan_set(out, "chunk", elements);
    ht_plan_set(out, "chunks", m->chunks.n);
    ht_plan_set(out, "os", os);
    ht_plan_set(out, "gpu_ratio", gpu_ratio);
    ht_plan_set(out, "cpu_ratio", cpu_ratio);
    ht_plan_set(out, "margin_ratio", margin_ratio);
    ht_plan_set(out, "check", ht_setting(settings, "check", scenario->control.mode != HT_CONTROL_NONE));
    record_inputs(scenario, m, out);
    out->planned_bytes[HT_HOST] = host_bytes(scenario, m, os);
    if (!status) status = check_host(self, scenario, out->planned_bytes[HT_HOST], cpu_ratio, err);
    if (status) return status;
    ht_plan_set(out, "moves", m->moves.n);
    snprintf(out->why, sizeof(out->why),
             "%d chunks; optimizer states of %lld fit the margin on the device; %d moves of a chunk in forward and "
             "backward",
             m->chunks.n, (long long)os, m->moves.n);
    return HT_OK;
}

static enum ht_status plan(const struct ht_system *self, const struct ht_scenario *scenario,
                           const struct ht_profile *profile, const struct ht_settings *settings, struct ht_error *err,
                           struct ht_plan *out)
{
    struct ht_chunk_model m;
    (void)profile;
    *out = (struct ht_plan){.planned_bytes = {-1, -1, 0, 0}};
    ht_chunk_model_init(&m, scenario, ht_checkpointed_blocks(self, scenario, settings));
    enum ht_status status = decide(self, scenario, settings, err, &m, out);
    ht_chunk_model_free(&m);
    return status;
}

/* ---- build ----------------------------------------------------------------------------------------------------- */

/* Makes a row of a chunk resident. FP32 parameters that are stepped on the host are there as well. */
static void place_row(struct ht_chunk_graph *b, int32_t tensor, bool device, enum ht_tier states)
{
    if (device) ht_draft_place(b->g, tensor, HT_DEVICE);
    if (!device || (!b->master && states == HT_HOST)) ht_draft_place(b->g, tensor, HT_HOST);
}

static void place(struct ht_chunk_graph *b)
{
    const struct ht_chunks *chunks = &b->m->chunks;
    struct ht_draft *g = b->g;
    for (int32_t i = 0; i < chunks->n; i++) {
        bool device = b->on_device[i];
        enum ht_tier states = i < b->m->room.n_pinned ? HT_DEVICE : HT_HOST;
        for (int32_t u = chunks->first[i]; u < chunks->first[i + 1]; u++) {
            place_row(b, g->param[u], device, states);
            ht_draft_place_states(g, u, states);
        }
        if (!chunks->unused[i]) continue;
        b->unused[i] = ht_chunk_unused(b, i, b->m->copy_bytes);
        place_row(b, b->unused[i], device, states);
        ht_draft_place(g, ht_chunk_unused(b, i, ht_optimizer_state_bytes(&g->scenario->numerics)), states);
    }
}

/* Appends the steps of a chunk. If it is on the device and stepped on the host, its gradients are copied there before,
   and its parameters back after (ops/chunk_io_buff.py); these copies are on the kernels' stream. Returns the last
   kernel, given the one before. */
static int32_t step_chunk(struct ht_chunk_graph *b, int32_t chunk, int32_t enqueued)
{
    struct ht_draft *g = b->g;
    int32_t begin = b->m->chunks.first[chunk], end = b->m->chunks.first[chunk + 1];
    bool one = g->n_mb == 1, on_host = chunk >= b->m->room.n_pinned, there_and_back = on_host && b->on_device[chunk];
    if (there_and_back && one) {
        ht_chunk_copy(b, chunk, false, b->m->copy_bytes, 'G');
        ht_op_after(g->schedule, enqueued);
        for (int32_t u = begin; u < end; u++) ht_chunk_copy_row(b, g->grad[u], false, HT_NEED | HT_RELEASE, HT_PRODUCE);
    }
    for (int32_t u = begin; u < end; u++) {
        g->realloc_on_step[u] = b->master && (one || there_and_back);
        int32_t step = ht_draft_step(g, on_host ? g->lanes->host : g->lanes->compute, u, 1, true);
        if (!on_host) enqueued = step;
    }
    if (there_and_back) {
        ht_chunk_copy(b, chunk, true, b->m->copy_bytes, 'P');
        ht_op_after(g->schedule, enqueued);
        for (int32_t u = begin; u < end; u++)
            ht_chunk_copy_row(b, g->param[u], true, b->master ? HT_NEED | HT_RELEASE : HT_NEED,
                              one ? HT_PRODUCE : HT_UPDATE);
    }
    for (int32_t u = begin; u < end; u++) b->grad_in_place[u] = false;
    return enqueued;
}

static void step(struct ht_chunk_graph *b)
{
    int32_t enqueued = ht_draft_computed(b->g);
    for (int32_t i = 0; i < b->m->chunks.n; i++) enqueued = step_chunk(b, i, enqueued);
}

static const struct ht_chunk_style style = {
    .blocking = HT_BLOCKS_HOST, /* Chunk.move (core/chunk_data.py) waits, on a stream of its own (cuda_context.py) */
    .place = place,
    .step = step,
};

static enum ht_status build(const struct ht_system *self, const struct ht_scenario *scenario,
                            const struct ht_plan *plan, struct ht_error *err, struct ht_schedule **out)
{
    int64_t usable = percent_of(ht_scenario_device_bytes(scenario), ht_plan_get(plan, "gpu_ratio"));
    struct ht_chunk_model m;
    ht_chunk_model_init(&m, scenario, ht_plan_get(plan, "c"));
    m.check = ht_plan_get(plan, "check");
    enum ht_status status = ht_chunk_model_warm_up(&m, scenario, ht_plan_get(plan, "chunk"), err);
    if (!status) status = move(self, scenario, ht_plan_get(plan, "os"), usable, err, &m);
    if (!status) status = ht_chunk_build(self->name, &style, &m, scenario, err, out);
    ht_chunk_model_free(&m);
    return status;
}

/* clang-format off */
#define PATRICKSTAR(NAME, TITLE, VARIANT, SUMMARY)                                                                     \
    {.name = NAME, .title = TITLE, .source = "Fang et al. 2022, IEEE TPDS", .summary = SUMMARY, .knobs = knobs,        \
     .variant = VARIANT, .plan = plan, .build = build}
const struct ht_system ht_patrickstar = PATRICKSTAR("patrickstar", "PatrickStar", 0,
    "parameters in chunks, moved when needed; Adam on device and host");
const struct ht_system ht_patrickstar_ckpt = PATRICKSTAR("patrickstar_ckpt", "PatrickStar, full checkpointing", 1,
    "PatrickStar with every block recomputed");
/* clang-format on */
