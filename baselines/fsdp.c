/*
 * Data parallelism with everything on the device and ranks that may differ: rank r takes l[r] micro-batches of m[r]
 * sequences.
 *
 *     fsdp      Zhao et al., "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel", VLDB 2023, from which
 *               Cephalo starts. Rank r holds share[r] of every unit and gathers a unit's parameters for each pass. Each
 *               rank sums whole gradients and reduces them once an iteration (no_sync()):
 *                   2 U max(l) all-gathers, U reduce-scatters of U units
 *     fsdp_ga   reduces gradients once a micro-batch and adds up the shards:
 *                   2 U max(l) all-gathers, U max(l) reduce-scatters
 *     ddp       Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020. Every
 *               rank holds and steps everything:
 *                   U all-reduces
 *     whale     Jia et al., "Whale: Efficient Giant Model Training over Heterogeneous GPUs", USENIX ATC 2022, of which
 *               Cephalo compares the data parallelism: ddp with a batch for each rank by its speed. It says nothing of
 *               the buckets of its all-reduces; here each unit is one.
 *     fast_dit  github.com/chuanyangjin/fast-DiT, with which LoHan compares on diffusion models (Sec. V-H): ddp with
 *               every block recomputed as a whole (models.py: checkpoint). Departures: in 16 bits 16 bytes a
 *               parameter, as every system here. The program's autocast has FP32 parameters and gradients instead,
 *               which are as many. Its moving average of the parameters would be 4 more and is left out: with it 1.4B
 *               would not fit the 24 GB in which the paper trains it. Images are encoded beforehand. The
 *               program loads its VAE all the same; the 0.3 GB that it holds are left out.
 *
 * These numbers hold for a tied table. Without one the head saves one all-gather in each round, since its forward and
 * backward follow each other. With one micro-batch a rank fsdp and fsdp_ga are the same. keep=1 gathers once an
 * iteration (SHARD_GRAD_OP, as ZeRO-2): U all-gathers, and whole parameters on every device.
 *
 * FSDP's collectives share a communicator, in the order of common/draft/zero.c. communicators=2 gives the reduce-scatters
 * one of their own, as PyTorch's developers tried (github.com/pytorch/pytorch/pull/177015).
 */
#include "baselines/baselines.h"
#include "baselines/passes.h"

#include "common/base/array.h"
#include "common/draft/cost_query.h"

#include <stdio.h>
#include <stdlib.h>

enum { REDUCE_ONCE, REDUCE_EACH, REPLICATE, BY_SPEED, REPLICATE_CKPT };

#define KNOB_M             "m", "sequences of a micro-batch of each rank", .min = 1, .max = 1 << 20, .kind = HT_VARIABLE_BY_RANK
#define KNOB_COMMUNICATORS "communicators", "2: reduce-scatters have a communicator of their own", .min = 1, .max = 2
#define KNOB_L             "l", "micro-batches of each rank", .max = 1 << 20, .kind = HT_VARIABLE_BY_RANK

static const struct ht_knob knobs[] = {
    {KNOB_M},
    {KNOB_L},
    {"share", "weights of the shares of the parameters that the ranks hold", .max = 1000, .kind = HT_VARIABLE_BY_RANK,
     .decimal = true},
    {"keep", "1: whole parameters stay on the device from the first pass to the last", .max = 1},
    {KNOB_COMMUNICATORS},
    HT_KNOB_C,
    {0},
};
static const struct ht_knob ddp_knobs[] = {{KNOB_M}, {KNOB_L}, HT_KNOB_C, {0}};

static bool replicates(const struct ht_system *self)
{
    return self->variant == REPLICATE || self->variant == BY_SPEED || self->variant == REPLICATE_CKPT;
}

static enum ht_sharding sharding_of(const struct ht_system *self)
{
    return replicates(self) ? HT_SHARD_NONE : HT_SHARD_ALL;
}

/* Returns a vector of equal elements. */
static struct ht_variable equal(const char *name, int32_t ranks, int64_t value, bool decimal)
{
    struct ht_variable out = {.kind = HT_VARIABLE_BY_RANK, .decimal = decimal, .n = ranks};
    snprintf(out.name, sizeof(out.name), "%s", name);
    out.values = HT_NEW_ARRAY(int64_t, ranks);
    for (int32_t r = 0; r < ranks; r++) out.values[r] = value;
    return out;
}

/* Adds the forced vector of that name to the plan, or `otherwise`, which it frees. */
static void set(const struct ht_settings *settings, struct ht_variable otherwise, struct ht_plan *out)
{
    const struct ht_variable *forced = ht_setting_variable(settings, otherwise.name);
    ht_plan_set_vector(out, forced ? forced : &otherwise);
    ht_variable_free(&otherwise);
}

/* Finds the value of `other` (l or m), the same for all ranks, which with the forced one makes up the batch.
   HT_BAD_INPUT if no value does. */
static enum ht_status rest(const struct ht_scenario *scenario, const struct ht_variable *forced, const char *other,
                           struct ht_error *err, int64_t *out)
{
    int64_t sum = 0;
    for (int32_t i = 0; i < forced->n; i++) sum += forced->values[i];
    *out = sum ? scenario->batch / sum : 0;
    if (*out && scenario->batch % sum == 0) return HT_OK;
    return ht_fail(err, HT_BAD_INPUT,
                   "the sum of %s is %lld, which does not divide the batch of %lld sequences; expected %s as well",
                   forced->name, (long long)sum, (long long)scenario->batch, other);
}

/* Divides the batch by the ranks' speeds, into one micro-batch each: after the first, each sequence goes to the rank
   that would be done with it first. A rank's time is that of a block's passes, of a micro-batch of an even batch. */
static enum ht_status divide_by_speed(const struct ht_scenario *scenario, const struct ht_profile *profile,
                                      bool recompute, struct ht_error *err, struct ht_variable *m)
{
    struct ht_scenario even = *scenario;
    enum ht_status status = HT_OK;
    if (scenario->batch < m->n)
        return ht_fail(err, HT_BAD_INPUT, "a batch of %lld: expected a sequence for each of %d devices",
                       (long long)scenario->batch, m->n);
    int64_t *ns = HT_NEW_ARRAY(int64_t, m->n);
    even.micro_batch = scenario->batch / m->n;
    for (int32_t r = 0; r < m->n && !status; r++) {
        struct ht_cost_query q = {.scenario = &even, .profile = profile, .rank = r, .micro_batches = 1, .err = err};
        ns[r] = ht_query_pass(&q, HT_OP_FORWARD, 1) + ht_query_pass(&q, HT_OP_BACKWARD, 1);
        if (recompute) ns[r] += ht_query_pass(&q, HT_OP_RECOMPUTE, 1);
        m->values[r] = 1;
        status = q.status;
    }
    for (int64_t i = m->n; i < scenario->batch && !status; i++) {
        int32_t first = 0;
        for (int32_t r = 1; r < m->n; r++)
            if ((double)(m->values[r] + 1) * (double)ns[r] < (double)(m->values[first] + 1) * (double)ns[first])
                first = r;
        m->values[first]++;
    }
    free(ns);
    return status;
}

static enum ht_status plan(const struct ht_system *self, const struct ht_scenario *scenario,
                           const struct ht_profile *profile, const struct ht_settings *settings, struct ht_error *err,
                           struct ht_plan *out)
{
    const struct ht_variable *m = ht_setting_variable(settings, "m"), *l = ht_setting_variable(settings, "l");
    int32_t ranks = (int32_t)ht_scenario_ranks(scenario);
    int64_t each = scenario->micro_batch, count = ht_equal_rounds(scenario);
    bool by_speed = self->variant == BY_SPEED && !m && !l && ranks > 1;
    enum ht_status status = m || l || by_speed ? HT_OK : ht_layout_check_equal(scenario, err);
    if (m && !l) status = rest(scenario, m, "l", err, &count);
    if (l && !m) status = rest(scenario, l, "m", err, &each);
    if (status) return status;
    for (int tier = 0; tier < HT_N_TIERS; tier++) out->planned_bytes[tier] = -1;
    struct ht_variable own = equal("m", ranks, each, false);
    if (by_speed) status = divide_by_speed(scenario, profile, ht_setting(settings, "c", 0) > 0, err, &own);
    set(settings, own, out);
    set(settings, equal("l", ranks, by_speed ? 1 : count, false), out);
    if (status) return status;
    if (!replicates(self)) {
        set(settings, equal("share", ranks, HT_PPB / ranks, true), out);
        ht_plan_set(out, "keep", ht_setting(settings, "keep", 0));
        ht_plan_set(out, "communicators", ht_setting(settings, "communicators", 1));
    }
    ht_plan_set(out, "c", ht_setting(settings, "c", self->variant == REPLICATE_CKPT ? scenario->model.layers : 0));
    struct ht_layout *layout;
    if ((status = ht_layout_planned(scenario, sharding_of(self), out, err, &layout))) return status;
    ht_layout_destroy(layout);
    snprintf(out->why, sizeof(out->why), "states are %s %d device%s; %s",
             replicates(self) ? "whole on" : "sharded over", ranks, ranks == 1 ? "" : "s",
             by_speed                                           ? "each takes what its speed allows"
             : m || l || ht_setting_variable(settings, "share") ? "who takes what is forced"
                                                                : "all take and hold as much");
    return HT_OK;
}

static enum ht_status build(const struct ht_system *self, const struct ht_scenario *scenario,
                            const struct ht_plan *plan, struct ht_error *err, struct ht_schedule **out)
{
    struct ht_layout *layout;
    enum ht_status status = ht_layout_planned(scenario, sharding_of(self), plan, err, &layout);
    if (status) return status;
    struct ht_program program = {.name = self->name,
                                 .layout = layout,
                                 .keeps = ht_plan_get(plan, "keep") ? HT_GATHER_ITERATION : HT_GATHER_PASS,
                                 .reduce_once = self->variant == REDUCE_ONCE,
                                 .one_communicator = ht_plan_get(plan, "communicators") == 1,
                                 .emit = ht_train_in_memory,
                                 .context = plan};
    status = ht_build_graph(scenario, &program, err, out);
    ht_layout_destroy(layout);
    return status;
}

/* clang-format off */
#define REPLICAS(NAME, TITLE, SOURCE, VARIANT, KNOBS, SUMMARY)                                                         \
    {.name = NAME, .title = TITLE, .source = SOURCE, .summary = SUMMARY, .knobs = KNOBS, .variant = VARIANT,           \
     .division = HT_PLANNED_REPLICAS, .plan = plan, .build = build}
const struct ht_system ht_fsdp = REPLICAS("fsdp", "FSDP", "Zhao et al., VLDB 2023", REDUCE_ONCE, knobs,
    "sharded states, also unevenly; gradients reduced once an iteration");
const struct ht_system ht_fsdp_ga = REPLICAS("fsdp_ga", "FSDP, reduction a micro-batch", "Zhao et al., VLDB 2023", REDUCE_EACH, knobs,
    "fsdp with gradients reduced once a micro-batch");
const struct ht_system ht_ddp = REPLICAS("ddp", "DDP", "Li et al., VLDB 2020", REPLICATE, ddp_knobs,
    "whole states on every device, gradients all-reduced");
const struct ht_system ht_whale = REPLICAS("whale", "Whale", "Jia et al., USENIX ATC 2022", BY_SPEED, ddp_knobs,
    "ddp with a batch for each device by its speed");
const struct ht_system ht_fast_dit = REPLICAS("fast_dit", "Fast-DiT", "chuanyangjin/fast-DiT", REPLICATE_CKPT, ddp_knobs,
    "ddp with every block recomputed");
/* clang-format on */
