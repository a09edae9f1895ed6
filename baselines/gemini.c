/*
 * Gemini, the memory manager of Colossal-AI (repository hpcaitech/ColossalAI, version 0.3.5), with optimizer states on
 * SSDs, which LoHan compares with.
 *
 * 16-bit parameters are in chunks of one size (baselines/chunks.h). An operator needs its chunks on the device. They
 * are fetched when it begins, and others leave for the host. A gradient takes the place of its parameter in the chunk.
 * So far this is PatrickStar (patrickstar.c), after which Gemini is made. It departs from it in this:
 *
 *     leaving     not only for room: the fractions below say how many chunks stay. A chunk of gradients leaves for the
 *                 host when the last one is there.
 *     parameters  On the host FP32 parameters are in a chunk of their own, and the optimizer leaves 16-bit ones alone.
 *                 The first operator of the next iteration that needs a chunk fetches the FP32 one, 4 bytes a
 *                 parameter, and casts it on the device.
 *     optimizer   HybridAdam goes over the parameters one by one, not by chunks. It reads momentum and variance of the
 *                 next one from the SSDs while it steps one on the CPU. Then it waits until that one is written.
 *     streams     Moves are copies on the kernels' stream for which the host waits, so nothing overlaps but the
 *                 optimizer's reads.
 *
 *     L = 2, every unit a chunk, all offloaded
 *     W: FP32 chunk, C: 16 bit, c: cast, R: recomputation, M: momentum and variance (ops RS, WS)
 *
 *     compute    c0 F0      c1 F1      c2 F2      cH FH BH      R2 B2      R1 B1      B0
 *     h2d      W0         W1         W2         WH            C2         C1         C0
 *     d2h              C0         C1         C2            CH         C2         C1      C0
 *     ssd in                                                                               M0 M1     M2    MH
 *     cpu                                                                                     O0    O1    O2    OH
 *     ssd out                                                                                    M0    M1    M2    MH
 *
 * auto=0, the repository's default, places by two fractions. The first chunks, 1 - offload_optim_frac of them, are on
 * the device with their states. If no chunk does, 1 - offload_param_frac of the chunks of parameters may stay
 * (HT_IDLE_LEAVE). auto=1 offloads all states and places by the warm-up's statistics (HT_LAST_USED_LEAVES). Inputs of
 * blocks stay on the device, and the rest of a block is recomputed (LoHan, Sec. V-A): c = L.
 *
 * README.md, "Gemini": the equations, the source of each line here, and the departures by number.
 */
#include "baselines/baselines.h"
#include "baselines/chunk_graph.h"
#include "baselines/passes.h"

#include "common/base/array.h"
#include "common/base/minmax.h"
#include "common/draft/works.h"
#include "common/plan/candidate.h"

#include <stdio.h>

static const struct ht_knob knobs[] = {
    HT_KNOB_C,
    {"chunk", "parameters in a chunk", .min = 1, .max = (int64_t)1 << 40},
    {"auto", "placement: 1 by the warm-up's statistics, 0 by the fractions", .max = 1},
    {"offload_optim_frac", "chunks whose optimizer states leave the device, as a share", .max = 1, .decimal = true},
    {"offload_param_frac", "chunks of parameters that leave the device, as a share", .max = 1, .decimal = true},
    {"nvme_offload_fraction", "optimizer states on SSDs, as a share of all", .max = 1, .decimal = true},
    {"steady_cuda_cap_ratio", "of the device's memory, with auto=1", .max = 1, .decimal = true},
    {0},
};

/* ---- build ----------------------------------------------------------------------------------------------------- */

/* Places parameters and states. On the host there are no 16-bit parameters when an iteration begins. Unused ends are
   those of FP32 chunks, and on the host of the 16-bit ones as well, which stay allocated there; on the device the latter
   come and go with the chunk, and the former are there until the cast. */
static void place(struct ht_chunk_graph *b)
{
    const struct ht_chunk_model *m = b->m;
    struct ht_draft *g = b->g;
    g->steps_leave_copy = true;
    g->lanes->disk_read = ht_add_lane(g->schedule, "disk in", HT_LANE_DISK, g->rank, HT_FIFO);
    g->lanes->disk_write = ht_add_lane(g->schedule, "disk out", HT_LANE_DISK, g->rank, HT_FIFO);
    for (int32_t u = 0; u < g->n_units; u++) {
        enum ht_tier tier = ht_chunk_steps_on_device(b, u) ? HT_DEVICE : HT_HOST;
        if (tier == HT_DEVICE || !b->master) ht_draft_place(g, g->param[u], tier);
        if (b->master) ht_draft_place(g, g->master[u], tier);
        ht_draft_place(g, g->momentum[u], m->on_ssd[u] ? HT_DISK : tier);
        ht_draft_place(g, g->variance[u], m->on_ssd[u] ? HT_DISK : tier);
        g->realloc_on_step[u] = tier == HT_DEVICE && b->master && g->n_mb == 1;
    }
    for (int32_t i = 0; i < m->chunks.n; i++) {
        bool device = i < m->room.n_pinned;
        int64_t rest_bytes = (b->master ? 4 : 0) + (device ? 0 : m->copy_bytes);
        if (!m->chunks.unused[i]) continue;
        b->unused[i] = ht_chunk_unused(b, i, m->copy_bytes);
        if (!device && b->master) b->unused32[i] = ht_chunk_unused(b, i, 4);
        if (device) ht_draft_place(g, b->unused[i], HT_DEVICE);
        if (rest_bytes) ht_draft_place(g, ht_chunk_unused(b, i, rest_bytes), device ? HT_DEVICE : HT_HOST);
    }
}

static void on_device(struct ht_draft *g, int32_t row, unsigned flags)
{
    if (row >= 0) ht_op_effect(g->schedule, row, HT_DEVICE, flags);
}

/* Appends the cast of a chunk's FP32 parameters on the device, which frees these. */
static void cast_chunk(struct ht_chunk_graph *b, int32_t chunk)
{
    struct ht_draft *g = b->g;
    int32_t first = b->m->chunks.first[chunk], end = b->m->chunks.first[chunk + 1];
    struct ht_work w = ht_scenario_work(g->scenario, HT_OP_RESTORE, HT_LANE_COMPUTE, first);
    for (int32_t u = first; u < end; u++) w.params += b->m->unit_elements[u];
    ht_add_op(g->schedule, HT_OP_RESTORE, g->lanes->compute, ht_chunk_label(b, chunk), ht_add_work(g->schedule, &w));
    ht_op_name(g->schedule, "cast%d", chunk);
    for (int32_t u = first; u < end; u++) {
        on_device(g, g->master[u], HT_NEED | HT_RELEASE);
        on_device(g, g->param[u], HT_PRODUCE);
    }
    on_device(g, b->unused32[chunk], HT_RELEASE);
    on_device(g, b->unused[chunk], HT_PRODUCE);
    ht_charge_work(g->schedule, g->links, 0);
    ht_draft_chain(g);
}

/* Appends the way of a chunk that comes for the first time in an iteration: FP32, and cast on the device
   (Chunk.optim_update, __paired_shard_move in zero/gemini/chunk/chunk.py). */
static bool fetch(struct ht_chunk_graph *b, int32_t chunk)
{
    if (b->fetched[chunk] || !b->master) return false;
    ht_chunk_copy(b, chunk, true, 4, 'W');
    for (int32_t u = b->m->chunks.first[chunk]; u < b->m->chunks.first[chunk + 1]; u++)
        ht_chunk_copy_row(b, b->g->master[u], true, HT_NEED, HT_PRODUCE);
    on_device(b->g, b->unused32[chunk], HT_PRODUCE);
    cast_chunk(b, chunk);
    return true;
}

/* The optimizer's host thread. */
struct adam {
    const struct ht_chunk_model *m;
    struct ht_draft *g;
    int32_t next_read; /* unit whose states are read next, if they are on SSDs */
    int32_t unwritten; /* unit whose states are to be written, or -1 */
    int32_t stepped;   /* last step on the CPU; before it, the last op of the backward pass */
    int32_t written;   /* last write for which the host has waited, or -1 */
};

/* Appends a copy of a unit's momentum and variance between host and SSDs. */
static int32_t copy_states(struct ht_draft *g, int32_t u, bool write)
{
    int32_t rows[] = {g->momentum[u], g->variance[u]};
    int32_t op = ht_draft_copy_rows(g, rows, 2, write ? HT_HOST : HT_DISK, write ? HT_DISK : HT_HOST,
                                    write ? HT_UPDATE : HT_PRODUCE, write);
    ht_op_name(g->schedule, write ? "WS%d" : "RS%d", u);
    return op;
}

/* Appends the read of the next unit whose states are on SSDs, if there is one. */
static void read_next(struct adam *a)
{
    int32_t u = a->next_read;
    while (u < a->m->n_units && !a->m->on_ssd[u]) u++;
    a->next_read = u + 1;
    if (u >= a->m->n_units) return;
    copy_states(a->g, u, false);
    ht_op_after(a->g->schedule, a->stepped);
    ht_op_after(a->g->schedule, a->written);
}

/* Appends the write of the unit that was stepped last. Whatever the host does behind it waits for it. */
static void wait_for_write(struct adam *a)
{
    if (a->unwritten >= 0) a->written = copy_states(a->g, a->unwritten, true);
    a->unwritten = -1;
}

/*
 * Appends the steps on the CPU as the repository's host thread goes (nn/optimizer/nvme_optimizer.py: _pre_step,
 * _pre_update, _post_update, _post_step): for each unit it waits for the write of the unit before, begins the next
 * read, steps the unit and begins its write. Nothing waits before the step of a unit whose states are not on SSDs. A
 * write is appended where the thread waits for it; its edges let it begin when the unit's step has ended.
 *
 * The program means to overlap the write of one parameter with the step of the next (_post_update waits for it after
 * that step), and to wait for a read in _pre_update. But the library binds the wait for reads to the wait for writes
 * (repository hpcaitech/TensorNVMe, csrc/py_api.cpp and the versions before it: `.def("sync_read_events",
 * &Offloader::sync_write_events)`). So every write is waited for at once, and no read is.
 */
static void step_on_host(struct adam *a, int32_t begin)
{
    read_next(a);
    for (int32_t u = begin; u < a->m->n_units; u++) {
        if (a->m->on_ssd[u]) {
            wait_for_write(a);
            read_next(a);
        }
        a->stepped = ht_draft_step(a->g, a->g->lanes->host, u, 1, true);
        ht_op_after(a->g->schedule, a->written);
        if (!a->m->on_ssd[u])
            wait_for_write(a);
        else
            a->unwritten = u;
    }
    wait_for_write(a);
}

/* Appends the optimizer. Steps on the device are one kernel behind the loop over all parameters (HybridAdam.step). */
static void step(struct ht_chunk_graph *b)
{
    struct ht_draft *g = b->g;
    struct adam a = {.m = b->m, .g = g, .unwritten = -1, .stepped = g->schedule->n_ops - 1, .written = -1};
    int32_t n_device = b->m->chunks.first[b->m->room.n_pinned];
    ht_draft_blocks(g, HT_BLOCKS_NOTHING); /* the optimizer's edges are its own, and control keeps them */
    step_on_host(&a, n_device);
    int32_t last = g->schedule->n_ops - 1;
    for (int32_t u = 0; u < n_device; u++) {
        ht_draft_step(g, g->lanes->compute, u, 1, true);
        ht_op_after(g->schedule, a.stepped);
        if (u == n_device - 1) ht_op_after(g->schedule, last);
    }
}

static const struct ht_chunk_style style = {
    .blocking = HT_BLOCKS_ALL, /* Chunk.shard_move: .to() without non_blocking, on the kernels' stream */
    .host_keeps_chunks = true, /* pin_memory: Chunk.cpu_shard is allocated once */
    .drops_parameters = true,  /* they are cast anew; reuse_fp16_chunk in zero/gemini/gemini_ddp.py */
    .place = place,
    .fetch = fetch,
    .step = step,
};

/* ---- plan ------------------------------------------------------------------------------------------------------ */

static int64_t share_of(int64_t amount, int64_t ppb)
{
    return (int64_t)((__int128)amount * ppb / HT_PPB);
}

/* Puts units on SSDs in order, as long as they are not more than the fraction (NVMeOptimizer._post_state_init). Returns
   their parameters. */
static int64_t choose_states(struct ht_chunk_model *m, int64_t fraction_ppb)
{
    int64_t all = 0, offloaded = 0;
    m->on_ssd = HT_NEW_ARRAY(bool, m->n_units);
    for (int32_t u = 0; u < m->n_units; u++) all += m->unit_elements[u];
    for (int32_t u = m->chunks.first[m->room.n_pinned]; u < m->n_units; u++) {
        m->on_ssd[u] = offloaded + m->unit_elements[u] <= share_of(all, fraction_ppb);
        if (m->on_ssd[u]) offloaded += m->unit_elements[u];
    }
    return offloaded;
}

/* Computes what follows from a plan's variables, and the parameters whose states are on SSDs. The caller frees the
   model, also on error. */
static enum ht_status prepare(const struct ht_system *self, const struct ht_scenario *scenario,
                              const struct ht_plan *plan, struct ht_error *err, struct ht_chunk_model *m,
                              int64_t *on_ssd)
{
    ht_chunk_model_init(m, scenario, ht_plan_get(plan, "c"));
    enum ht_status status = ht_chunk_model_warm_up(m, scenario, ht_plan_get(plan, "chunk"), err);
    if (status) return status;
    int64_t chunk_bytes = m->chunks.elements * m->copy_bytes, n = m->chunks.n;
    m->room = (struct ht_chunk_room){
        .chunk_bytes = chunk_bytes,
        .n_pinned = (int32_t)share_of(n, HT_PPB - ht_plan_get(plan, "offload_optim_frac")),
        .gradients_leave = true, /* grad_handle in zero/gemini/gemini_ddp.py */
        .rule = ht_plan_get(plan, "auto") ? HT_LAST_USED_LEAVES : HT_IDLE_LEAVE,
        .idle_bytes = share_of(n * chunk_bytes, HT_PPB - ht_plan_get(plan, "offload_param_frac")),
        .usable_bytes = share_of(ht_scenario_device_bytes(scenario), ht_plan_get(plan, "steady_cuda_cap_ratio")),
    };
    *on_ssd = choose_states(m, ht_plan_get(plan, "nvme_offload_fraction"));
    return ht_chunk_model_move(m, self->name, err);
}

static enum ht_status build(const struct ht_system *self, const struct ht_scenario *scenario,
                            const struct ht_plan *plan, struct ht_error *err, struct ht_schedule **out)
{
    struct ht_chunk_model m;
    int64_t on_ssd;
    enum ht_status status = prepare(self, scenario, plan, err, &m, &on_ssd);
    if (!status) status = ht_chunk_build(self->name, &style, &m, scenario, err, out);
    ht_chunk_model_free(&m);
    return status;
}

/* The search for a plan that the device holds. */
struct search {
    const struct ht_system *self;
    const struct ht_scenario *scenario;
    const struct ht_settings *settings;
    struct ht_plan *plan; /* the last one that was tried, and whether it fits */
    bool fits;
};

static void set_share(struct ht_plan *plan, const char *name, int64_t ppb)
{
    struct ht_variable v = {.value = ppb, .decimal = true};
    snprintf(v.name, sizeof v.name, "%s", name);
    ht_plan_set_vector(plan, &v);
}

/* Sets the variables that prepare() reads, and proves the plan. */
static enum ht_status try_plan(struct search *x, int64_t chunk, int64_t optim_ppb, int64_t param_ppb,
                               struct ht_error *err)
{
    struct ht_needs needs;
    ht_plan_free(x->plan);
    ht_plan_set(x->plan, "c", ht_checkpointed_blocks(x->self, x->scenario, x->settings));
    ht_plan_set(x->plan, "chunk", chunk);
    ht_plan_set(x->plan, "auto", ht_setting(x->settings, "auto", 0));
    set_share(x->plan, "offload_optim_frac", optim_ppb);
    set_share(x->plan, "offload_param_frac", param_ppb);
    set_share(x->plan, "nvme_offload_fraction", ht_setting(x->settings, "nvme_offload_fraction", HT_PPB));
    set_share(x->plan, "steady_cuda_cap_ratio", ht_setting(x->settings, "steady_cuda_cap_ratio", HT_PPB / 10 * 9));
    enum ht_status status = ht_plan_needs(x->self, x->scenario, x->plan, err, &needs);
    x->fits = !status && needs.short_bytes[HT_DEVICE] == 0;
    return status == HT_INFEASIBLE ? HT_OK : status;
}

/* Tries a level: of n chunks the states of `level` leave the device; at level n + 1 parameters, too. */
static enum ht_status try_level(struct search *x, int64_t chunk, int64_t level, int64_t n, struct ht_error *err)
{
    return try_plan(x, chunk, ht_min(level, n) * HT_PPB / n, level > n ? HT_PPB : 0, err);
}

/* Chooses the fractions for n chunks, where they are not forced: the least level that fits, or the last. So the
   repository's user is to do (GeminiPlugin): raise offload_optim_frac until the model fits, then offload_param_frac. */
static enum ht_status choose_fractions(struct search *x, int64_t chunk, int64_t n, struct ht_error *err)
{
    int64_t optim = ht_setting(x->settings, "offload_optim_frac", -1);
    int64_t param = ht_setting(x->settings, "offload_param_frac", -1);
    int64_t low = optim < 0 ? 0 : n, high = param < 0 ? n + 1 : n;
    enum ht_status status = HT_OK;
    if (ht_setting(x->settings, "auto", 0)) return try_plan(x, chunk, HT_PPB, 0, err);
    if (optim >= 0 && optim < HT_PPB) return try_plan(x, chunk, optim, 0, err);
    if (param > 0) return try_plan(x, chunk, HT_PPB, param, err);
    while (low < high && !status) {
        int64_t level = (low + high) / 2;
        status = try_level(x, chunk, level, n, err);
        if (x->fits)
            high = level;
        else
            low = level + 1;
    }
    return status ? status : try_level(x, chunk, high, n, err);
}

/* Chooses size of chunks and fractions. If the size by the search does not fit, chunks are of the largest unit. */
static enum ht_status choose(struct search *x, struct ht_error *err)
{
    enum { SEARCH_RANGE = 32 << 20 }; /* search_range_m and min_chunk_size_m */
    struct ht_chunk_model m;
    int64_t forced = ht_setting(x->settings, "chunk", 0), all = 0;
    enum ht_status status = HT_OK;
    ht_chunk_model_init(&m, x->scenario, 0);
    for (int32_t u = 0; u < m.n_units; u++) all += m.unit_elements[u];
    int64_t least = ht_max(m.largest_unit, all < SEARCH_RANGE ? 0 : SEARCH_RANGE);
    int64_t found = ht_chunks_search(m.unit_elements, m.n_units, least, least + SEARCH_RANGE);
    int64_t sizes[] = {forced ? forced : found, m.largest_unit};
    for (size_t i = 0; i < (forced ? 1 : HT_COUNT(sizes)) && !x->fits && !status; i++) {
        struct ht_chunks chunks = {0};
        status = ht_chunks_pack(m.unit_elements, m.n_units, sizes[i], err, &chunks);
        if (!status) status = choose_fractions(x, sizes[i], chunks.n, err);
        ht_chunks_free(&chunks);
    }
    ht_chunk_model_free(&m);
    return status;
}

static enum ht_status check_settings(const struct ht_settings *settings, struct ht_error *err)
{
    bool some = ht_setting(settings, "offload_optim_frac", HT_PPB) < HT_PPB; /* states stay on the device */
    bool param = ht_setting(settings, "offload_param_frac", 0) > 0;
    if (ht_setting(settings, "auto", 0) && (some || param))
        return ht_fail(err, HT_BAD_INPUT,
                       "auto=1 offloads all optimizer states and no fraction of the parameters; "
                       "expected auto=0 with offload_optim_frac and offload_param_frac");
    if (some && param) return ht_fail(err, HT_BAD_INPUT, "offload_param_frac needs offload_optim_frac=1");
    return HT_OK;
}

static enum ht_status plan(const struct ht_system *self, const struct ht_scenario *scenario,
                           const struct ht_profile *profile, const struct ht_settings *settings, struct ht_error *err,
                           struct ht_plan *out)
{
    struct search x = {.self = self, .scenario = scenario, .settings = settings, .plan = out};
    struct ht_chunk_model m = {0};
    int64_t on_ssd = 0;
    bool ssds = ht_setting(settings, "nvme_offload_fraction", HT_PPB) > 0;
    (void)profile;
    enum ht_status status = ssds ? ht_system_check(self, scenario, err) : HT_OK;
    if (!status) status = check_settings(settings, err);
    if (!status) status = choose(&x, err);
    if (!status) status = prepare(self, scenario, out, err, &m, &on_ssd);
    if (!status) {
        ht_plan_set(out, "chunks", m.chunks.n);
        ht_plan_set(out, "moves", m.moves.n);
        ht_plan_input(out, "device_memory", "bytes", (double)ht_scenario_device_bytes(scenario));
        ht_plan_input(out, "non_model_peak", "bytes", (double)m.non_model_peak_bytes);
        ht_plan_input(out, "parameters_of_largest_unit", "", (double)m.largest_unit);
        out->planned_bytes[HT_DEVICE] = out->planned_bytes[HT_HOST] = -1;
        out->planned_bytes[HT_DISK] = 8 * on_ssd * ht_scenario_ranks_per_node(scenario);
        snprintf(out->why, sizeof(out->why), "chunks: %d, those with optimizer states on the device: %d, moves: %d",
                 m.chunks.n, m.room.n_pinned, m.moves.n);
    }
    ht_chunk_model_free(&m);
    return status;
}

const struct ht_system ht_gemini = {
    .name = "gemini",
    .title = "Colossal-AI Gemini, NVMe",
    .source = "Colossal-AI 0.3.5",
    .summary = "parameters in chunks, moved when needed, nothing overlapped; optimizer states on disk, read ahead",
    .knobs = knobs,
    .variant = 1,
    .disk = true,
    .plan = plan,
    .build = build,
};
