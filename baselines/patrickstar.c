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
#include "baselines/chunks.h"
#include "baselines/passes.h"

#include "common/base/array.h"
#include "common/base/minmax.h"
#include "common/base/units.h"
#include "common/build/control.h"
#include "common/schedule/live.h"

#include <assert.h>
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

/* ---- warm-up --------------------------------------------------------------------------------------------------- */

/* Model data of a rank, results of the warm-up iteration, and the moves that follow from them. A plan carries it to the
   builder. */
struct prepared {
    int32_t c, n_units;
    bool check;
    int64_t *unit_elements, largest_unit; /* [n_units] */
    int64_t copy_bytes, states_bytes;     /* of a parameter */
    struct ht_chunks chunks;
    struct ht_chunk_moment *moments; /* one per forward, recompute and backward op */
    int32_t n_moments;
    int64_t non_model_peak_bytes;
    struct ht_chunk_room room;
    struct ht_chunk_moves moves;
};

static void prepared_destroy(void *prepared)
{
    struct prepared *p = prepared;
    ht_chunks_free(&p->chunks);
    ht_chunk_moves_free(&p->moves);
    free(p->unit_elements);
    free(p->moments);
    free(p);
}

/* Creates the sizes of a rank's model data. The optimizer states of a parameter are momentum, variance, and a third
   FP32 number: the master copy, or the gradient if there is no master copy or gradients do not overwrite parameters.
   These are the paper's 12 bytes in 16 bit. */
static struct prepared *prepared_create(const struct ht_scenario *scenario, int64_t c)
{
    struct prepared *p = HT_NEW(struct prepared);
    bool own_gradient = !ht_numerics_has_master(&scenario->numerics) || ht_equal_rounds(scenario) > 1;
    p->c = (int32_t)c;
    p->n_units = (int32_t)ht_model_units(&scenario->model);
    p->unit_elements = HT_NEW_ARRAY(int64_t, p->n_units);
    for (int32_t u = 0; u < p->n_units; u++) {
        p->unit_elements[u] = ht_equal_shard(scenario, u);
        p->largest_unit = ht_max(p->largest_unit, p->unit_elements[u]);
    }
    p->copy_bytes = ht_dtype_bytes(scenario->numerics.param);
    p->states_bytes = ht_optimizer_state_bytes(&scenario->numerics) + (own_gradient ? 4 : 0);
    return p;
}

static int64_t percent_of(int64_t bytes, int64_t percent)
{
    return (int64_t)((__int128)bytes * percent / 100);
}

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
            ht_op_effect(g.schedule, j ? g.grad_mb[ht_draft_at(&g, u, j)] : g.grad[u], HT_DEVICE, HT_RELEASE);
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
static void read_moments(const struct ht_schedule *s, struct prepared *p)
{
    static const struct ht_chunk_moment nothing = {.needs = {-1, -1}};
    int64_t *live = HT_NEW_ARRAY(int64_t, s->n_ops);
    struct ht_chunk_moment *next = p->moments = HT_NEW_ARRAY(struct ht_chunk_moment, s->n_ops + 1);
    ht_schedule_live(s, ht_space(s, HT_DEVICE, 0), HT_ALL_CLASSES & ~HT_CLASS(HT_PARAM), live);
    *next = nothing;
    for (int32_t op = 0; op < s->n_ops; op++) {
        bool moment = s->lanes[s->ops[op].lane].kind == HT_LANE_COMPUTE;
        if (moment) need_chunk(next, p->chunks.of_unit[s->ops[op].label.unit]);
        for (int64_t e = s->effects_begin[op]; e < s->effects_begin[op + 1]; e++) {
            const struct ht_tensor *t = &s->tensors[s->effects[e].tensor];
            if (t->class == HT_PARAM) need_chunk(next, p->chunks.of_unit[t->label.unit]);
        }
        if (moment) *++next = nothing;
        if (!moment && s->ops[op].kind != HT_OP_REDUCE_SCATTER) continue;
        next[-1].non_model_bytes = ht_max(live[op], next[-1].non_model_bytes);
        p->non_model_peak_bytes = ht_max(live[op], p->non_model_peak_bytes);
    }
    p->n_moments = (int32_t)(next - p->moments);
    free(live);
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

static enum ht_status warm_up(const struct ht_scenario *scenario, int64_t elements, struct ht_error *err,
                              struct prepared *p)
{
    enum ht_status status = ht_chunks_pack(p->unit_elements, p->n_units, elements, err, &p->chunks);
    if (status) return status;
    struct ht_schedule *s = warm_up_graph(scenario, p->c);
    read_moments(s, p);
    ht_schedule_destroy(s);
    return HT_OK;
}

/* ---- plan ------------------------------------------------------------------------------------------------------ */

static int64_t search_chunk(const struct prepared *p, int64_t usable_bytes)
{
    int64_t limit = percent_of(usable_bytes, WARMUP_PERCENT) / (2 * p->copy_bytes);
    return ht_chunks_search(p->unit_elements, p->n_units, ht_max(limit, 2 * p->largest_unit - 1));
}

/* Returns the number of chunks whose optimizer states fit the device: update_margin_mem in the repository's
   memtracer.py. */
static int64_t margin_chunks(const struct prepared *p, int64_t usable_bytes, int64_t margin_percent)
{
    int64_t elements = p->chunks.elements;
    int64_t margin = usable_bytes - p->non_model_peak_bytes - p->chunks.n * elements * p->copy_bytes;
    if (margin <= 0) return 0;
    return ht_min(percent_of(margin, margin_percent) / (p->states_bytes * elements), p->chunks.n);
}

/* Computes the moves with the optimizer states of `os` chunks on the device. */
static enum ht_status prepare(const struct ht_system *self, const struct ht_scenario *scenario, int64_t os,
                              int64_t usable_bytes, struct ht_error *err, struct prepared *p)
{
    int64_t elements = p->chunks.elements;
    struct ht_error why = {0};
    int32_t where = 0;
    p->room = (struct ht_chunk_room){
        .chunk_bytes = elements * p->copy_bytes,
        .usable_bytes = usable_bytes,
        .n_pinned = (int32_t)os,
        .fixed_bytes =
            elements * (os * p->states_bytes + p->copy_bytes) + waiting_bytes(scenario, &p->chunks, 0, (int32_t)os),
    };
    if (!ht_chunks_move(p->moments, p->n_moments, p->chunks.n, &p->room, &why, &p->moves, &where)) return HT_OK;
    int64_t now = p->moments[where].non_model_bytes, next = p->moments[(where + 1) % p->n_moments].non_model_bytes;
    char other[HT_QUANTITY_TEXT], all[HT_QUANTITY_TEXT], fixed[HT_QUANTITY_TEXT];
    return ht_fail(err, HT_INFEASIBLE,
                   "OOM in %s at operator %d of %d: %s (of %s usable, non-model data take %s, optimizer states and a "
                   "buffer %s)",
                   self->name, where + 1, p->n_moments, why.text,
                   ht_format_quantity(HT_BYTES, (double)p->room.usable_bytes, all),
                   ht_format_quantity(HT_BYTES, (double)ht_max(now, next), other),
                   ht_format_quantity(HT_BYTES, (double)p->room.fixed_bytes, fixed));
}

/* Returns the host bytes of all ranks of a node: 14 for each parameter stepped on the host (16 in FP32), including
   unused parts of chunks, and what rollback keeps. */
static int64_t host_bytes(const struct ht_scenario *scenario, const struct prepared *p, int64_t os)
{
    int64_t bytes = (p->chunks.n - os) * p->chunks.elements * (p->states_bytes + p->copy_bytes);
    bytes += waiting_bytes(scenario, &p->chunks, (int32_t)os, p->chunks.n);
    return bytes * ht_scenario_ranks_per_node(scenario);
}

static enum ht_status check_host(const struct ht_system *self, const struct ht_scenario *scenario, int64_t need_bytes,
                                 int64_t percent, struct ht_error *err)
{
    int64_t ram_bytes = ht_scenario_host_bytes(scenario);
    if (need_bytes <= percent_of(ram_bytes, percent)) return HT_OK;
    char need[HT_QUANTITY_TEXT], have[HT_QUANTITY_TEXT];
    return ht_fail(err, HT_INFEASIBLE, "OOM in %s on the host: chunks need %s, usable is %s (%lld%% of its memory)",
                   self->name, ht_format_quantity(HT_BYTES, (double)need_bytes, need),
                   ht_format_quantity(HT_BYTES, (double)percent_of(ram_bytes, percent), have), (long long)percent);
}

/* Records the inputs from which the planner derives the size of chunks and os. Parameters are those of one rank. */
static void record_inputs(const struct ht_scenario *scenario, const struct prepared *p, struct ht_plan *out)
{
    ht_plan_input(out, "device_memory", "bytes", (double)ht_scenario_device_bytes(scenario));
    ht_plan_input(out, "host_memory", "bytes", (double)ht_scenario_host_bytes(scenario));
    ht_plan_input(out, "non_model_peak", "bytes", (double)p->non_model_peak_bytes);
    ht_plan_input(out, "parameters", "", (double)ht_equal_params(scenario));
    ht_plan_input(out, "parameters_of_largest_unit", "", (double)p->largest_unit);
    ht_plan_input(out, "copy_of_a_parameter", "bytes", (double)p->copy_bytes);
    ht_plan_input(out, "states_of_a_parameter", "bytes", (double)p->states_bytes);
}

static enum ht_status decide(const struct ht_system *self, const struct ht_scenario *scenario,
                             const struct ht_settings *settings, struct ht_error *err, struct ht_plan *out,
                             struct prepared *p)
{
    int64_t gpu_ratio = ht_setting(settings, "gpu_ratio", 80), cpu_ratio = ht_setting(settings, "cpu_ratio", 80);
    int64_t usable = percent_of(ht_scenario_device_bytes(scenario), gpu_ratio);
    int64_t elements = ht_setting(settings, "chunk", -1);
    if (elements < 0) elements = search_chunk(p, usable);
    enum ht_status status = warm_up(scenario, elements, err, p);
    if (status) return status;
    int64_t margin_ratio = ht_setting(settings, "margin_ratio", 80), forced = ht_setting(settings, "os", -1);
    int64_t os = forced >= 0 ? forced : margin_chunks(p, usable, margin_ratio);
    /* The margin leaves the buffer out: if both and the chunks are too much, fewer states stay (departure 3). */
    for (;; os--) {
        os = ht_min(os, p->chunks.n);
        status = prepare(self, scenario, os, usable, err, p);
        if (!status || forced >= 0 || os == 0) break;
    }
    ht_plan_set(out, "c", p->c);
    ht_plan_set(out, "chunk", p->chunks.elements);
    ht_plan_set(out, "chunks", p->chunks.n);
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
                 p->chunks.n, (long long)os, p->moves.n);
    }
    return status;
}

static enum ht_status plan(const struct ht_system *self, const struct ht_scenario *scenario,
                           const struct ht_profile *profile, const struct ht_settings *settings, struct ht_error *err,
                           struct ht_plan *out)
{
    (void)profile;
    struct prepared *p = prepared_create(scenario, ht_checkpointed_blocks(self, scenario, settings));
    *out = (struct ht_plan){.planned_bytes = {-1, -1, 0, 0}};
    enum ht_status status = decide(self, scenario, settings, err, out, p);
    if (status)
        prepared_destroy(p);
    else
        out->payload = (struct ht_plan_payload){p, prepared_destroy};
    return status;
}

/* ---- build ----------------------------------------------------------------------------------------------------- */

struct build {
    struct ht_draft *g;
    const struct prepared *p;
    int32_t os;
    bool master;
    bool *on_device;      /* [chunks] */
    bool *grad_in_place;  /* [n_units]: the chunk holds the unit's gradient instead of its parameters */
    int32_t *pad;         /* [chunks]: row of the unused end, or -1 */
    int32_t moment, move; /* next moment and next move */
    int32_t enqueued;     /* last kernel */
};

static bool on_device_stepped(const struct build *b, int32_t unit)
{
    return b->p->chunks.of_unit[unit] < b->os;
}

static int32_t padding(struct build *b, int64_t bytes)
{
    struct ht_label none = {.unit = -1, .micro_batch = -1};
    return ht_add_tensor(b->g->schedule,
                         (struct ht_tensor){.class = HT_STAGING, .label = none, .bytes = bytes, .rank = b->g->rank});
}

/* Makes a row of a chunk resident. FP32 parameters that are stepped on the host are there as well. */
static void place_row(struct build *b, int32_t tensor, bool device, enum ht_tier states)
{
    if (device) ht_draft_place(b->g, tensor, HT_DEVICE);
    if (!device || (!b->master && states == HT_HOST)) ht_draft_place(b->g, tensor, HT_HOST);
}

static void place_residents(struct build *b)
{
    const struct ht_chunks *chunks = &b->p->chunks;
    struct ht_draft *g = b->g;
    for (int32_t i = 0; i < chunks->n; i++) {
        bool device = b->on_device[i] = b->p->moves.at_start[i];
        enum ht_tier states = i < b->os ? HT_DEVICE : HT_HOST;
        for (int32_t u = chunks->first[i]; u < chunks->first[i + 1]; u++) {
            place_row(b, g->param[u], device, states);
            ht_draft_place_states(g, u, states);
        }
        b->pad[i] = -1;
        if (!chunks->unused[i]) continue;
        b->pad[i] = padding(b, chunks->unused[i] * b->p->copy_bytes);
        place_row(b, b->pad[i], device, states);
        int32_t of_states = padding(b, chunks->unused[i] * ht_optimizer_state_bytes(&g->scenario->numerics));
        ht_draft_place(g, of_states, states);
    }
}

/* Appends a copy of a chunk's size; the caller adds its rows. */
static void begin_copy(struct build *b, int32_t chunk, bool to_device, char letter)
{
    struct ht_draft *g = b->g;
    struct ht_label about = {.unit = b->p->chunks.first[chunk],
                             .n_units = b->p->chunks.first[chunk + 1] - b->p->chunks.first[chunk],
                             .sub_ops = HT_ALL_SUB_OPS,
                             .micro_batch = -1};
    ht_draft_transfer(g, about, to_device ? HT_HOST : HT_DEVICE, to_device ? HT_DEVICE : HT_HOST,
                      b->p->room.chunk_bytes);
    ht_op_name(g->schedule, "%c%d", letter, chunk);
}

static void copy_row(struct build *b, int32_t tensor, bool to_device, unsigned from_flags, unsigned to_flags)
{
    ht_op_effect(b->g->schedule, tensor, to_device ? HT_HOST : HT_DEVICE, from_flags);
    ht_op_effect(b->g->schedule, tensor, to_device ? HT_DEVICE : HT_HOST, to_flags);
}

/* Adds the effects of moving a row of a chunk. It leaves its tier, but FP32 parameters stay on the host if stepped
   there. */
static void move_row(struct build *b, int32_t tensor, bool to_device, bool stays)
{
    bool keep = stays && to_device, overwrite = stays && !to_device;
    copy_row(b, tensor, to_device, keep ? HT_NEED : HT_NEED | HT_RELEASE, overwrite ? HT_UPDATE : HT_PRODUCE);
}

static void move_chunk(struct build *b, int32_t chunk, bool to_device)
{
    const struct ht_chunks *chunks = &b->p->chunks;
    begin_copy(b, chunk, to_device, 'C');
    for (int32_t u = chunks->first[chunk]; u < chunks->first[chunk + 1]; u++) {
        if (b->grad_in_place[u])
            move_row(b, b->g->grad[u], to_device, false);
        else
            move_row(b, b->g->param[u], to_device, !b->master);
    }
    if (b->pad[chunk] >= 0) move_row(b, b->pad[chunk], to_device, !b->master);
    b->on_device[chunk] = to_device;
}

/* Appends the moves before the next moment. */
static void move_before_moment(struct build *b)
{
    const struct ht_chunk_moves *m = &b->p->moves;
    for (; b->move < m->n && m->rows[b->move].moment == b->moment; b->move++)
        move_chunk(b, m->rows[b->move].chunk, m->rows[b->move].to_device);
    b->moment++;
}

static void forward_pass(struct build *b, int32_t mb)
{
    for (int32_t u = 0; u < b->g->n_units; u++) {
        move_before_moment(b);
        b->enqueued = ht_draft_forward(b->g, u, mb, ht_kept(b->g, u, b->p->c));
    }
}

/* Keeps a fresh gradient. With one micro-batch it replaces the parameter in the chunk; else it is added to the sum at
   once. */
static void keep_gradient(struct build *b, int32_t u, int32_t mb)
{
    struct ht_draft *g = b->g;
    bool device = on_device_stepped(b, u);
    if (g->n_mb == 1) {
        b->grad_in_place[u] = true;
        if (b->master || !device) ht_op_effect(g->schedule, g->param[u], HT_DEVICE, HT_RELEASE);
        return;
    }
    if (!device) {
        int32_t fresh = mb ? g->grad_mb[ht_draft_at(g, u, mb)] : g->grad[u];
        ht_draft_copy(g, fresh, HT_DEVICE, HT_HOST, HT_PRODUCE, true);
    }
    if (mb == 0) return;
    ht_draft_accumulate(g, device ? g->lanes->compute : g->lanes->host, u, mb);
}

static void backward_pass(struct build *b, int32_t mb)
{
    for (int32_t u = b->g->n_units - 1; u >= 0; u--) {
        if (ht_is_checkpointed(b->g, u, b->p->c)) {
            move_before_moment(b);
            ht_draft_recompute(b->g, u, 1, mb, HT_ALL_SUB_OPS);
        }
        move_before_moment(b);
        b->enqueued = ht_draft_backward(b->g, u, mb);
        if (b->p->check && b->g->blocking == HT_BLOCKS_HOST) ht_draft_block(b->g);
        keep_gradient(b, u, mb);
    }
}

/* Appends the steps of a chunk. If it is on the device and stepped on the host, its gradients are copied there before,
   and its parameters back after. */
static void adam_of_chunk(struct build *b, int32_t chunk)
{
    struct ht_draft *g = b->g;
    const struct ht_chunks *chunks = &b->p->chunks;
    int32_t begin = chunks->first[chunk], end = chunks->first[chunk + 1];
    bool one = g->n_mb == 1, on_host = chunk >= b->os, there_and_back = on_host && b->on_device[chunk];
    if (there_and_back && one) {
        begin_copy(b, chunk, false, 'G');
        ht_op_after(g->schedule, b->enqueued); /* on the kernels' stream */
        for (int32_t u = begin; u < end; u++) copy_row(b, g->grad[u], false, HT_NEED | HT_RELEASE, HT_PRODUCE);
    }
    for (int32_t u = begin; u < end; u++) {
        g->realloc_on_step[u] = b->master && (one || there_and_back);
        int32_t step = ht_draft_step(g, on_host ? g->lanes->host : g->lanes->compute, u, 1, true);
        if (!on_host) b->enqueued = step;
        b->grad_in_place[u] = false;
    }
    if (!there_and_back) return;
    begin_copy(b, chunk, true, 'P');
    ht_op_after(g->schedule, b->enqueued);
    for (int32_t u = begin; u < end; u++)
        copy_row(b, g->param[u], true, b->master ? HT_NEED | HT_RELEASE : HT_NEED, one ? HT_PRODUCE : HT_UPDATE);
}

static void emit(struct ht_draft *g, const void *context)
{
    const struct prepared *p = context;
    struct build b = {.g = g, .p = p, .os = p->room.n_pinned};
    bool alone = g->layout->n_ranks == 1;
    g->blocking = alone ? HT_BLOCKS_HOST : HT_BLOCKS_ALL;
    g->blocking_prev = ht_mark_create(g->schedule); /* last op that blocks */
    b.master = ht_numerics_has_master(&g->scenario->numerics);
    b.on_device = HT_NEW_ARRAY(bool, p->chunks.n);
    b.pad = HT_NEW_ARRAY(int32_t, p->chunks.n);
    b.grad_in_place = HT_NEW_ARRAY(bool, g->n_units);
    place_residents(&b);
    for (int32_t j = 0; j < g->n_mb; j++) {
        forward_pass(&b, j);
        backward_pass(&b, j);
    }
    assert(b.moment == p->n_moments);
    for (int32_t i = 0; i < p->chunks.n; i++) adam_of_chunk(&b, i);
    move_before_moment(&b);
    assert(b.move == p->moves.n);
    free(b.on_device);
    free(b.pad);
    free(b.grad_in_place);
    if (!alone) ht_mark_set(g->schedule, g->blocking_prev);
}

/* Computes the planner's results again from a plan's variables. */
static enum ht_status prepare_again(const struct ht_system *self, const struct ht_scenario *scenario,
                                    const struct ht_plan *plan, struct ht_error *err, struct prepared *p)
{
    int64_t usable = percent_of(ht_scenario_device_bytes(scenario), ht_plan_get(plan, "gpu_ratio"));
    enum ht_status status = warm_up(scenario, ht_plan_get(plan, "chunk"), err, p);
    p->check = ht_plan_get(plan, "check");
    return status ? status : prepare(self, scenario, ht_plan_get(plan, "os"), usable, err, p);
}

static enum ht_status build(const struct ht_system *self, const struct ht_scenario *scenario,
                            const struct ht_plan *plan, struct ht_error *err, struct ht_schedule **out)
{
    struct prepared *own = plan->payload.data ? NULL : prepared_create(scenario, ht_plan_get(plan, "c"));
    enum ht_status status = own ? prepare_again(self, scenario, plan, err, own) : HT_OK;
    struct ht_program program = {.name = self->name, .emit = emit, .context = own ? own : plan->payload.data};
    if (!status) status = ht_build_graph(scenario, &program, err, out);
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
