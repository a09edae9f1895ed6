/*
 * Gemini, the memory manager of Colossal-AI (repository hpcaitech/ColossalAI, version 0.3.5), with optimizer states on
 * SSDs, which LoHan compares with.
 *
 * 16-bit parameters are in chunks of one size (baselines/chunks.h). An operator needs its chunks on the device. They
 * are fetched when it begins, and others leave for the host. A gradient takes the place of its parameter in the chunk.
 * When the last gradient of a chunk is there the chunk leaves for the host, where FP32 parameters are in a chunk of
 * their own. After the backward pass HybridAdam goes over the parameters one by one. It reads the momentum and
 * variance of the next one from the SSDs while it steps one on the CPU. Then it waits until that one is written. It
 * leaves 16-bit parameters alone: the first operator of the next iteration that needs a chunk fetches the FP32 one, 4
 * bytes a parameter, and casts it on the device.
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
 * The program means to overlap the write of one parameter with the step of the next (_post_update waits for it after
 * that step). But the library binds the wait for reads, which comes before each step, to the wait for writes
 * (repository hpcaitech/TensorNVMe, csrc/py_api.cpp and the versions before it: `.def("sync_read_events",
 * &Offloader::sync_write_events)`). So every write is waited for at once, and no read is.
 *
 * Moves are copies on the kernels' stream for which the host waits (Chunk.shard_move, .to() without non_blocking). So
 * nothing overlaps but the optimizer's reads. Inputs of blocks stay on the device, and the rest of a block is recomputed
 * (LoHan, Sec. V-A): c = L.
 *
 * From the repository, with its defaults (zero/gemini/placement_policy.py, gemini_ddp.py, chunk/, booster/plugin/
 * gemini_plugin.py, nn/optimizer/nvme_optimizer.py, hybrid_adam.py):
 *
 *     auto=0                   placement "static", the default
 *     offload_optim_frac       of the chunks, those whose FP32 parameters and optimizer states are on the host. The
 *                              others are on the device in all.
 *     offload_param_frac       only if all states are on the host: chunks that an operator needed and the next one does
 *                              not are counted, and the first of them leave while they are more than
 *                              1 - offload_param_frac of all chunks (ht_chunks_move_static). So 1 lets each chunk leave
 *                              at once, and what is a little less lets none leave.
 *     auto=1                   placement "auto": all states on the host. Chunks may fill steady_cuda_cap_ratio, 0.9, of
 *                              the device beside non-model data; the chunk that is used last leaves (ht_chunks_move).
 *     nvme_offload_fraction    of the parameters, in order, those whose momentum and variance are on the SSDs, if the
 *                              host has them. Here 1, as LoHan runs it; the repository's default is 0.
 *     chunk                    the size with the fewest unused elements among those of at least min_chunk_size_m, 32
 *                              Mi, and of at most search_range_m, 32 Mi, more
 *
 * By default the program offloads nothing. Its user is to raise offload_optim_frac until the model fits, and
 * offload_param_frac is of use only when that is 1 (GeminiPlugin). The planner does this: it takes the fewest
 * offloaded chunks with which the schedule is proved to fit the device, at worst both fractions 1. shard_param_frac is
 * 1, which on one device is of no effect.
 *
 * Bytes of M parameters with both fractions 1, 16 bit: on SSDs 8 M; on the host 4 M + 2 M, and momentum and variance
 * of two units. Copied to the device 4 M + 2 M an iteration, from it 2 M + 2 M; read 8 M, written 8 M.
 *
 * Departures. (1) A chunk is filled with whole units, not single weight matrices, so the smallest chunk is the largest
 * unit. If the size found does not fit, chunks are of the largest unit. Reads, steps and writes are of a unit, too. A
 * block of 13B is about three chunks there. With offload_param_frac=1 two of them leave while the block is recomputed,
 * and come again for its backward pass: 2/3 of 2 M bytes more to the device. (2) A model of
 * less than 32 Mi parameters is not kept on the device as one chunk; its search begins at the largest unit. (3) Which
 * chunks' states stay on the device is the order of a Python set; here they are the first. (4) The embedding is in
 * chunks and on the device. A tied table's gradient is non-model data from the head's backward pass until its own. (5)
 * Several micro-batches: gradients move to the host one by one and are added there; the repository moves the sum back
 * to the device to add to it. Chunks of parameters leave in either case, without a copy after the last micro-batch, for
 * which the repository makes one. Before that it makes one only the first time, since a pinned host copy stays valid;
 * here a chunk that leaves again is copied again (more micro-batches, a tied table).
 * (6) In FP32 numerics, which the repository does not have, the compute copy is the master copy: it stays on the host,
 * and nothing is cast. (7) A step waits for the read of its own states. In the repository nothing waits for it: what
 * has not been read by then is missing in the step. (8) A CPU step costs what one costs that also writes the 16-bit
 * copy, 2 of 30 bytes, and what the software profile has beside it. HybridAdam reads 16-bit gradients and takes off the
 * loss scale in its own pass, so the passes of DeepSpeed's program (profile torch: 20 bytes a parameter, 0.8 s of 13B)
 * are too many. With BF16 gradients the repository steps by operators of PyTorch, one after another
 * (HybridAdam.step); here by the same kernel. (9) Host memory is pinned, as in the
 * repository's example with NVMe; its default is not. There pinned memory is held for chunks that stay on the device,
 * too: 6 bytes a parameter more. (10) On one device the repository copies a chunk within the
 * device when it comes and before it leaves (gather, scatter of one rank), which is left out. (11) On several devices
 * all of this holds for a rank's shard of each unit. (12) offload_optim_frac is a share of the chunks. The repository
 * compares it with a sum that has a chunk once for each of its tensors, so there a part of it offloads more chunks; 0
 * and 1 mean the same. (13) The library opens its file without O_DIRECT (csrc/offload.cpp), and hands over a tensor as
 * one request. So the kernel copies through the page cache, the caller what is cached on a read, one worker at a time on
 * a write; and a tensor's memory is freed after its write and allocated again for its read (tensornvme/offload.py). Here
 * reads and writes have the disks' rate. docs/claims.md says what the difference would take.
 */
#include "baselines/baselines.h"
#include "baselines/gemini.h"
#include "baselines/passes.h"

#include "common/base/array.h"
#include "common/base/minmax.h"
#include "common/plan/candidate.h"

#include <stdio.h>
#include <stdlib.h>

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

/* ---- plan ------------------------------------------------------------------------------------------------------- */

static void release(struct ht_gemini_chunks *p)
{
    ht_chunk_model_free(&p->model);
    ht_chunk_moves_free(&p->moves);
    free(p->on_ssd);
}

/* Puts units on SSDs in order, as long as they are not more than the fraction (NVMeOptimizer._post_state_init). */
static void choose_states(struct ht_gemini_chunks *p, int64_t fraction_ppb)
{
    int64_t all = 0, offloaded = 0;
    p->on_ssd = HT_NEW_ARRAY(bool, p->model.n_units);
    for (int32_t u = 0; u < p->model.n_units; u++) all += p->model.unit_elements[u];
    int64_t most = (int64_t)((__int128)all * fraction_ppb / HT_PPB);
    for (int32_t u = p->model.chunks.first[p->n_device]; u < p->model.n_units; u++) {
        if (offloaded + p->model.unit_elements[u] > most) continue;
        p->on_ssd[u] = true;
        offloaded += p->model.unit_elements[u];
    }
}

/* Computes what follows from a plan's variables; the caller releases it, also on error. */
static enum ht_status prepare(const struct ht_system *self, const struct ht_scenario *scenario,
                              const struct ht_plan *plan, struct ht_error *err, struct ht_gemini_chunks *p)
{
    *p = (struct ht_gemini_chunks){0};
    ht_chunk_model_init(&p->model, scenario, ht_plan_get(plan, "c"));
    enum ht_status status = ht_chunk_model_warm_up(&p->model, scenario, ht_plan_get(plan, "chunk"), err);
    if (status) return status;
    const struct ht_chunks *chunks = &p->model.chunks;
    int64_t kept_ppb = HT_PPB - ht_plan_get(plan, "offload_optim_frac");
    int64_t cap_ppb = ht_plan_get(plan, "steady_cuda_cap_ratio");
    p->n_device = (int32_t)(chunks->n * kept_ppb / HT_PPB);
    p->room = (struct ht_chunk_room){
        .chunk_bytes = chunks->elements * p->model.copy_bytes,
        .usable_bytes = (int64_t)((__int128)ht_scenario_device_bytes(scenario) * cap_ppb / HT_PPB),
        .n_pinned = p->n_device,
        .gradients_leave = true,
    };
    choose_states(p, ht_plan_get(plan, "nvme_offload_fraction"));
    if (ht_plan_get(plan, "auto")) return ht_chunk_model_move(&p->model, self->name, &p->room, err, &p->moves);
    int64_t stay_ppb = HT_PPB - ht_plan_get(plan, "offload_param_frac");
    int64_t keep_bytes = (int64_t)((__int128)chunks->n * p->room.chunk_bytes * stay_ppb / HT_PPB);
    ht_chunks_move_static(p->model.moments, p->model.n_moments, chunks->n, &p->room, keep_bytes, &p->moves);
    return HT_OK;
}

static void set_share(struct ht_plan *plan, const char *name, int64_t ppb)
{
    struct ht_variable v = {.value = ppb, .decimal = true};
    snprintf(v.name, sizeof v.name, "%s", name);
    ht_plan_set_vector(plan, &v);
}

/* Fills a plan with the variables that prepare() reads. */
static void set_variables(const struct ht_settings *settings, int64_t c, int64_t chunk, int64_t optim_ppb,
                          int64_t param_ppb, struct ht_plan *out)
{
    ht_plan_set(out, "c", c);
    ht_plan_set(out, "chunk", chunk);
    ht_plan_set(out, "auto", ht_setting(settings, "auto", 0));
    set_share(out, "offload_optim_frac", optim_ppb);
    set_share(out, "offload_param_frac", param_ppb);
    set_share(out, "nvme_offload_fraction", ht_setting(settings, "nvme_offload_fraction", HT_PPB));
    set_share(out, "steady_cuda_cap_ratio", ht_setting(settings, "steady_cuda_cap_ratio", HT_PPB / 10 * 9));
}

/* The search for a plan that fits the device. */
struct search {
    const struct ht_system *self;
    const struct ht_scenario *scenario;
    const struct ht_settings *settings;
    int64_t c, chunk, optim_ppb, param_ppb;
    bool fits; /* the last plan that was tried */
};

/* Proves the plan of these fractions, and keeps them. */
static enum ht_status try_fractions(struct search *x, int64_t optim_ppb, int64_t param_ppb, struct ht_error *err)
{
    struct ht_plan plan = {0};
    struct ht_needs needs;
    x->optim_ppb = optim_ppb;
    x->param_ppb = param_ppb;
    set_variables(x->settings, x->c, x->chunk, optim_ppb, param_ppb, &plan);
    enum ht_status status = ht_plan_needs(x->self, x->scenario, &plan, err, &needs);
    x->fits = !status && needs.short_bytes[HT_DEVICE] == 0;
    ht_plan_free(&plan);
    return status == HT_INFEASIBLE ? HT_OK : status;
}

/* Finds the smallest share of `chunks` chunks whose states have to leave the device, when all of them are enough. */
static enum ht_status find_least(struct search *x, int64_t chunks, struct ht_error *err)
{
    int64_t low = 0, high = chunks; /* high fits; nothing below low does */
    enum ht_status status = HT_OK;
    while (low < high && !status) {
        int64_t k = (low + high) / 2;
        status = try_fractions(x, k * HT_PPB / chunks, 0, err);
        if (x->fits)
            high = k;
        else
            low = k + 1;
    }
    x->optim_ppb = high * HT_PPB / chunks;
    x->fits = true;
    return status;
}

/* Chooses the fractions for a size of chunks, where they are not forced. */
static enum ht_status choose_fractions(struct search *x, int64_t chunks, struct ht_error *err)
{
    int64_t optim = ht_setting(x->settings, "offload_optim_frac", -1);
    int64_t param = ht_setting(x->settings, "offload_param_frac", -1);
    if (ht_setting(x->settings, "auto", 0)) return try_fractions(x, HT_PPB, 0, err);
    if (optim >= 0 && optim < HT_PPB) return try_fractions(x, optim, 0, err);
    enum ht_status status = try_fractions(x, HT_PPB, ht_max(param, 0), err);
    if (!status && !x->fits && param < 0) status = try_fractions(x, HT_PPB, HT_PPB, err);
    if (!status && x->fits && optim < 0 && param <= 0 && !x->param_ppb) status = find_least(x, chunks, err);
    return status;
}

/* Chooses size of chunks and fractions. If the size by the search does not fit, chunks are of the largest unit. */
static enum ht_status choose(struct search *x, struct ht_error *err)
{
    enum { SEARCH_RANGE = 32 << 20 }; /* search_range_m and min_chunk_size_m */
    struct ht_chunk_model m;
    int64_t forced = ht_setting(x->settings, "chunk", -1), all = 0;
    enum ht_status status = HT_OK;
    ht_chunk_model_init(&m, x->scenario, x->c);
    for (int32_t u = 0; u < m.n_units; u++) all += m.unit_elements[u];
    int64_t least = ht_max(m.largest_unit, all < SEARCH_RANGE ? 0 : SEARCH_RANGE);
    int64_t sizes[] = {ht_chunks_search(m.unit_elements, m.n_units, least, least + SEARCH_RANGE), m.largest_unit};
    for (size_t i = 0; i < HT_COUNT(sizes) && !x->fits && !status; i++) {
        struct ht_chunks chunks;
        x->chunk = forced > 0 ? forced : sizes[i];
        status = ht_chunks_pack(m.unit_elements, m.n_units, x->chunk, err, &chunks);
        if (status) break;
        status = choose_fractions(x, chunks.n, err);
        ht_chunks_free(&chunks);
        if (forced > 0) break;
    }
    ht_chunk_model_free(&m);
    return status;
}

static enum ht_status check_settings(const struct ht_settings *settings, struct ht_error *err)
{
    int64_t optim = ht_setting(settings, "offload_optim_frac", -1);
    int64_t param = ht_setting(settings, "offload_param_frac", -1);
    if (ht_setting(settings, "auto", 0) && ((optim >= 0 && optim < HT_PPB) || param > 0))
        return ht_fail(err, HT_BAD_INPUT,
                       "auto=1 offloads all optimizer states and no fraction of the parameters; "
                       "expected auto=0 with offload_optim_frac and offload_param_frac");
    if (optim >= 0 && optim < HT_PPB && param > 0)
        return ht_fail(err, HT_BAD_INPUT, "offload_param_frac needs offload_optim_frac=1");
    return HT_OK;
}

static enum ht_status plan(const struct ht_system *self, const struct ht_scenario *scenario,
                           const struct ht_profile *profile, const struct ht_settings *settings, struct ht_error *err,
                           struct ht_plan *out)
{
    (void)profile;
    struct search x = {.self = self,
                       .scenario = scenario,
                       .settings = settings,
                       .c = ht_checkpointed_blocks(self, scenario, settings)};
    bool ssds = ht_setting(settings, "nvme_offload_fraction", HT_PPB) > 0;
    enum ht_status status = ssds ? ht_system_check(self, scenario, err) : HT_OK;
    if (!status) status = check_settings(settings, err);
    if (!status) status = choose(&x, err);
    if (status) return status;
    struct ht_gemini_chunks p;
    set_variables(settings, x.c, x.chunk, x.optim_ppb, x.param_ppb, out);
    status = prepare(self, scenario, out, err, &p);
    if (!status) {
        int64_t on_ssd = 0;
        for (int32_t u = 0; u < p.model.n_units; u++) on_ssd += p.on_ssd[u] ? p.model.unit_elements[u] : 0;
        ht_plan_set(out, "chunks", p.model.chunks.n);
        ht_plan_set(out, "moves", p.moves.n);
        ht_plan_input(out, "device_memory", "bytes", (double)ht_scenario_device_bytes(scenario));
        ht_plan_input(out, "non_model_peak", "bytes", (double)p.model.non_model_peak_bytes);
        ht_plan_input(out, "parameters_of_largest_unit", "", (double)p.model.largest_unit);
        out->planned_bytes[HT_DEVICE] = out->planned_bytes[HT_HOST] = -1;
        out->planned_bytes[HT_DISK] = 8 * on_ssd * ht_scenario_ranks_per_node(scenario);
        snprintf(out->why, sizeof(out->why), "chunks: %d, those with optimizer states on the device: %d, moves: %d",
                 p.model.chunks.n, p.n_device, p.moves.n);
    }
    release(&p);
    return status;
}

/* ---- build ------------------------------------------------------------------------------------------------------ */

static enum ht_status build(const struct ht_system *self, const struct ht_scenario *scenario,
                            const struct ht_plan *plan, struct ht_error *err, struct ht_schedule **out)
{
    struct ht_gemini_chunks p;
    struct ht_program program = {.name = self->name, .emit = ht_gemini_emit, .context = &p};
    enum ht_status status = prepare(self, scenario, plan, err, &p);
    if (!status) status = ht_build_graph(scenario, &program, err, out);
    if (!status) ht_chunks_manage(*out);
    release(&p);
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
