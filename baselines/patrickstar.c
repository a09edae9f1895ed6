/*
 * PatrickStar (Fang et al., "PatrickStar: Parallel Training of Pre-trained Models via Chunk-based Memory Management",
 * IEEE TPDS 2022; repository Tencent/PatrickStar).
 *
 * 16-bit parameters are in chunks of one size, and a chunk is in one tier at a time. A warm-up iteration measures how
 * much memory everything else takes at every operator. From then on a chunk comes to the device when an operator needs
 * it, and the chunk used last leaves when there is no room. (baselines/chunks.h computes this before the first
 * iteration; the warm-up's statistics are read off the op graph.) A gradient replaces its parameter in the chunk, so
 * that all model data are 14 bytes a parameter. Adam runs after the whole backward pass, chunk by chunk: on the device
 * for the chunks whose optimizer states fit the margin that is left there, on the CPU for the others:
 *
 *     compute  F0 F1 F2   F3 ..      | B3 B2    B1 B0 |    U0 (chunk 0 in the margin)
 *     d2h         C0                 |    C2          |          G1          G2
 *     h2d            C1              |       C0       |                P1          P2
 *     cpu                            |                |             O1          O2
 *
 * One host thread enqueues kernels, moves chunks and steps Adam on the CPU. A move blocks that thread, not the device:
 * Chunk.move (patrickstar/core/chunk_data.py) copies with copy_(), which waits, on a stream of its own
 * (patrickstar/manager/cuda_context.py). So a move runs beside the kernels that were enqueued before it, of which it
 * waits for those that touch its chunk, and kernels behind it wait for it. Adam's copies
 * (patrickstar/ops/chunk_io_buff.py) are on the kernels' stream and wait for these; they and the CPU's steps are one
 * chain. With several ranks the moves are on the kernels' stream, too, and nothing overlaps: every op waits for the one
 * before it.
 *
 * With a dynamic loss scale the repository checks each gradient for overflow as soon as its unit's backward has run,
 * and reads the outcome on the host (check_overflow in patrickstar/core/hook.py, has_overflow in fp16/loss_scaler.py).
 * The host thread then waits for each backward (check = 1), so that moves in the backward pass overlap recomputation
 * alone. This is the default where the scenario has control. Without it overflow is left out, as in all systems.
 *
 * From the repository (patrickstar/core/memtracer/memtracer.py, eviction_policy.py,
 * examples/best_chunk_size_search.py):
 *
 *     usable     overall_gpu_mem_ratio x device memory, 0.8; overall_cpu_mem_ratio x host memory, 0.8
 *     room       usable - max(non-model now, at the next moment) - one chunk, optimizer states included     F and B
 *     margin     usable - largest non-model - all 16-bit chunks
 *     chunks with optimizer states on the device: the first  margin / (12 x chunk elements) x margin_use_ratio, 0.8
 *     chunk size the best used size of those of which two fit usable x warmup_gpu_chunk_mem_ratio, 0.1
 *
 * These ratios are the system's published defaults and are in its plan; none is fitted.
 *
 * Departures. (1) A chunk is filled with whole units, not single weight matrices, so that no chunk is smaller than a
 * block. If that exceeds the original's limit, the search takes sizes below two of the largest unit. A chunk is the
 * tensors of its units and a padding tensor, which move together in one copy of the chunk's size. (2) The embedding is
 * in chunks and on the device (the original can compute it on the CPU). A tied table's gradient is non-model data from
 * the head's backward pass until the table's own residency is free. (3) Chunks whose optimizer states are on the device
 * stay there with them; the original could evict either. The margin leaves the buffer out. If states by the margin,
 * chunks and buffer are too much together, the states of fewer chunks stay. (4) On the host a unit's 16-bit parameters
 * and gradients are both in memory while it is stepped. (5) Several micro-batches, which the paper does not have: each
 * gradient moves at once to the tier where its unit is stepped, is added there, and does not overwrite the parameter.
 * (6) In FP32 numerics the compute copy is the master copy. A host-stepped unit keeps its row on the host; a chunk's
 * way to the host writes it again with the same bits, and the gradient has a row of its own (at most 16 bytes a
 * parameter on the host). A unit stepped on the device keeps its parameter, and its gradient takes the memory that the
 * master copy has in 16 bit.
 */
#include "baselines/baselines.h"
#include "baselines/passes.h"
#include "baselines/patrickstar.h"

#include "common/base/array.h"
#include "common/base/minmax.h"
#include "common/base/units.h"
#include "common/draft/control.h"

#include <stdio.h>
#include <stdlib.h>

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

static void prepared_destroy(void *prepared)
{
    struct ht_patrickstar_chunks *p = prepared;
    ht_chunk_model_free(&p->model);
    ht_chunk_moves_free(&p->moves);
    free(p);
}

/* Creates the sizes of a rank's model data. The optimizer states of a parameter are momentum, variance, and a third
   FP32 number: the master copy, or the gradient if there is no master copy or gradients do not overwrite parameters.
   These are the paper's 12 bytes in 16 bit. */
static struct ht_patrickstar_chunks *prepared_create(const struct ht_scenario *scenario, int64_t c)
{
    struct ht_patrickstar_chunks *p = HT_NEW(struct ht_patrickstar_chunks);
    bool own_gradient = !ht_numerics_has_master(&scenario->numerics) || ht_equal_rounds(scenario) > 1;
    ht_chunk_model_init(&p->model, scenario, c);
    p->states_bytes = ht_optimizer_state_bytes(&scenario->numerics) + (own_gradient ? 4 : 0);
    return p;
}

static int64_t percent_of(int64_t bytes, int64_t percent)
{
    return (int64_t)((__int128)bytes * percent / 100);
}

/* Returns the bytes that wait for the final check under rollback, of the units of chunks [begin, end). Gradients wait
   beside a log. With one micro-batch in 16 bit the step also allocates the parameters anew, since gradients have
   replaced them. */
static int64_t waiting_bytes(const struct ht_scenario *scenario, const struct ht_chunks *chunks, int32_t begin,
                             int32_t end)
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

static int64_t search_chunk(const struct ht_patrickstar_chunks *p, int64_t usable_bytes)
{
    int64_t limit = percent_of(usable_bytes, WARMUP_PERCENT) / (2 * p->model.copy_bytes);
    return ht_chunks_search(p->model.unit_elements, p->model.n_units, 0, ht_max(limit, 2 * p->model.largest_unit - 1));
}

/* Returns the number of chunks whose optimizer states fit the device: update_margin_mem in the repository's
   memtracer.py. */
static int64_t margin_chunks(const struct ht_patrickstar_chunks *p, int64_t usable_bytes, int64_t margin_percent)
{
    int64_t elements = p->model.chunks.elements;
    int64_t margin = usable_bytes - p->model.non_model_peak_bytes - p->model.chunks.n * elements * p->model.copy_bytes;
    if (margin <= 0) return 0;
    return ht_min(percent_of(margin, margin_percent) / (p->states_bytes * elements), p->model.chunks.n);
}

/* Computes the moves with the optimizer states of `os` chunks on the device. */
static enum ht_status prepare(const struct ht_system *self, const struct ht_scenario *scenario, int64_t os,
                              int64_t usable_bytes, struct ht_error *err, struct ht_patrickstar_chunks *p)
{
    const struct ht_chunks *chunks = &p->model.chunks;
    int64_t copy_bytes = p->model.copy_bytes;
    p->room = (struct ht_chunk_room){
        .chunk_bytes = chunks->elements * copy_bytes,
        .usable_bytes = usable_bytes,
        .n_pinned = (int32_t)os,
        .fixed_bytes =
            chunks->elements * (os * p->states_bytes + copy_bytes) + waiting_bytes(scenario, chunks, 0, (int32_t)os),
    };
    return ht_chunk_model_move(&p->model, self->name, &p->room, err, &p->moves);
}

/* Returns the host bytes of all ranks of a node: 14 for each parameter stepped on the host (16 in FP32), including
   unused parts of chunks, and what rollback keeps. */
static int64_t host_bytes(const struct ht_scenario *scenario, const struct ht_patrickstar_chunks *p, int64_t os)
{
    int64_t bytes = (p->model.chunks.n - os) * p->model.chunks.elements * (p->states_bytes + p->model.copy_bytes);
    bytes += waiting_bytes(scenario, &p->model.chunks, (int32_t)os, p->model.chunks.n);
    return bytes * ht_scenario_ranks_per_node(scenario);
}

static enum ht_status check_host(const struct ht_system *self, const struct ht_scenario *scenario, int64_t need_bytes,
                                 int64_t percent, struct ht_error *err)
{
    int64_t ram_bytes = ht_scenario_shared_host_bytes(scenario);
    if (need_bytes <= percent_of(ram_bytes, percent)) return HT_OK;
    char need[HT_QUANTITY_TEXT], have[HT_QUANTITY_TEXT];
    return ht_fail_memory(err, HT_HOST, "OOM in %s on the host: chunks need %s, usable is %s (%lld%% of its memory)",
                          self->name, ht_format_quantity(HT_BYTES, (double)need_bytes, need),
                          ht_format_quantity(HT_BYTES, (double)percent_of(ram_bytes, percent), have),
                          (long long)percent);
}

/* Records the inputs from which the planner derives the size of chunks and os. Parameters are those of one rank. */
static void record_inputs(const struct ht_scenario *scenario, const struct ht_patrickstar_chunks *p,
                          struct ht_plan *out)
{
    ht_plan_input(out, "device_memory", "bytes", (double)ht_scenario_device_bytes(scenario));
    ht_plan_input(out, "host_memory", "bytes", (double)ht_scenario_shared_host_bytes(scenario));
    ht_plan_input(out, "non_model_peak", "bytes", (double)p->model.non_model_peak_bytes);
    ht_plan_input(out, "parameters", "", (double)ht_equal_params(scenario));
    ht_plan_input(out, "parameters_of_largest_unit", "", (double)p->model.largest_unit);
    ht_plan_input(out, "copy_of_a_parameter", "bytes", (double)p->model.copy_bytes);
    ht_plan_input(out, "states_of_a_parameter", "bytes", (double)p->states_bytes);
}

static enum ht_status decide(const struct ht_system *self, const struct ht_scenario *scenario,
                             const struct ht_settings *settings, struct ht_error *err, struct ht_plan *out,
                             struct ht_patrickstar_chunks *p)
{
    int64_t gpu_ratio = ht_setting(settings, "gpu_ratio", 80), cpu_ratio = ht_setting(settings, "cpu_ratio", 80);
    int64_t usable = percent_of(ht_scenario_device_bytes(scenario), gpu_ratio);
    int64_t elements = ht_setting(settings, "chunk", -1);
    if (elements < 0) elements = search_chunk(p, usable);
    enum ht_status status = ht_chunk_model_warm_up(&p->model, scenario, elements, err);
    if (status) return status;
    int64_t margin_ratio = ht_setting(settings, "margin_ratio", 80), forced = ht_setting(settings, "os", -1);
    int64_t os = forced >= 0 ? forced : margin_chunks(p, usable, margin_ratio);
    /* The margin leaves the buffer out: if both and the chunks are too much, fewer states stay (departure 3). */
    for (;; os--) {
        os = ht_min(os, p->model.chunks.n);
        status = prepare(self, scenario, os, usable, err, p);
        if (!status || forced >= 0 || os == 0) break;
    }
    ht_plan_set(out, "c", p->model.c);
    ht_plan_set(out, "chunk", p->model.chunks.elements);
    ht_plan_set(out, "chunks", p->model.chunks.n);
    ht_plan_set(out, "os", os);
    ht_plan_set(out, "gpu_ratio", gpu_ratio);
    ht_plan_set(out, "cpu_ratio", cpu_ratio);
    ht_plan_set(out, "margin_ratio", margin_ratio);
    p->check = ht_setting(settings, "check", scenario->control.mode != HT_CONTROL_NONE);
    ht_plan_set(out, "check", p->check);
    record_inputs(scenario, p, out);
    out->planned_bytes[HT_HOST] = host_bytes(scenario, p, os);
    if (!status) status = check_host(self, scenario, out->planned_bytes[HT_HOST], cpu_ratio, err);
    if (!status) {
        ht_plan_set(out, "moves", p->moves.n);
        snprintf(out->why, sizeof(out->why),
                 "%d chunks; optimizer states of %lld fit the margin on the device; %d moves of a chunk in forward and "
                 "backward",
                 p->model.chunks.n, (long long)os, p->moves.n);
    }
    return status;
}

static enum ht_status plan(const struct ht_system *self, const struct ht_scenario *scenario,
                           const struct ht_profile *profile, const struct ht_settings *settings, struct ht_error *err,
                           struct ht_plan *out)
{
    (void)profile;
    struct ht_patrickstar_chunks *p = prepared_create(scenario, ht_checkpointed_blocks(self, scenario, settings));
    *out = (struct ht_plan){.planned_bytes = {-1, -1, 0, 0}};
    enum ht_status status = decide(self, scenario, settings, err, out, p);
    if (status)
        prepared_destroy(p);
    else
        out->payload = (struct ht_plan_payload){p, prepared_destroy};
    return status;
}

/* ---- build ----------------------------------------------------------------------------------------------------- */

/* Computes the planner's results again from a plan's variables. */
static enum ht_status prepare_again(const struct ht_system *self, const struct ht_scenario *scenario,
                                    const struct ht_plan *plan, struct ht_error *err, struct ht_patrickstar_chunks *p)
{
    int64_t usable = percent_of(ht_scenario_device_bytes(scenario), ht_plan_get(plan, "gpu_ratio"));
    enum ht_status status = ht_chunk_model_warm_up(&p->model, scenario, ht_plan_get(plan, "chunk"), err);
    p->check = ht_plan_get(plan, "check");
    return status ? status : prepare(self, scenario, ht_plan_get(plan, "os"), usable, err, p);
}

static enum ht_status build(const struct ht_system *self, const struct ht_scenario *scenario,
                            const struct ht_plan *plan, struct ht_error *err, struct ht_schedule **out)
{
    struct ht_patrickstar_chunks *own = plan->payload.data ? NULL : prepared_create(scenario, ht_plan_get(plan, "c"));
    enum ht_status status = own ? prepare_again(self, scenario, plan, err, own) : HT_OK;
    struct ht_program program = {
        .name = self->name, .emit = ht_patrickstar_emit, .context = own ? own : plan->payload.data};
    if (!status) status = ht_build_graph(scenario, &program, err, out);
    if (!status) ht_chunks_manage(*out);
    if (own) prepared_destroy(own);
    return status;
}

const struct ht_system ht_patrickstar = {
    .name = "patrickstar",
    .title = "PatrickStar",
    .source = "Fang et al. 2022, IEEE TPDS",
    .summary = "parameters in chunks, moved when needed; Adam on device and host",
    .knobs = knobs,
    .variant = 0,
    .plan = plan,
    .build = build,
};

const struct ht_system ht_patrickstar_ckpt = {
    .name = "patrickstar_ckpt",
    .title = "PatrickStar, full checkpointing",
    .source = "Fang et al. 2022, IEEE TPDS",
    .summary = "PatrickStar with every block recomputed",
    .knobs = knobs,
    .variant = 1,
    .plan = plan,
    .build = build,
};
