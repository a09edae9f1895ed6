/*
 * Cephalo's planner: decides m, l and share of each GPU.
 *
 *     tf(m), tb(m)   of a block, from the profile of the GPU's kind, for m = 1 .. 8; a line beyond (Sec. 2.3)
 *     M(m)           memory of a GPU that holds no state: the peak of its own graph, for m = 1 .. 8; a line beyond
 *     cap            80% of the device's memory (Sec. 3.2), or what `usable` says
 *     AG, RS         of a block's parameters, evenly sharded; unevenly sharded, times the factor of the software's
 *                    collectives (common/model/software.yaml), and no less than all of the block takes to pass a GPU
 *     S              bytes of parameters, gradients and optimizer states together
 *
 * optimize.c finds m and l by the paper's program, eq. 4 (objective=1), of equally good plans the one that needs the
 * least memory, which is the first that Algorithm 1 meets. Each GPU takes at least one sample. Then partition.c divides
 * the state by memory, always (Sec. 2.4), which is uneven on unlike GPUs (Fig. 9). As in the paper, m and l are decided
 * by even collectives' times where an even share would fit beside them (Sec. 2.3).
 *
 * Variants that are ours, none of them the default: objective=0 solves eqs. 2 and 3, even=1 keeps the state even where
 * that fits, enlarge=1 takes larger micro-batches of the same time, idle=1 lets a GPU take no samples.
 *
 * Departures. (1) Algorithm 1 is mended (algorithm1.c). (2) The paper's factor of 1.15 for uneven collectives is the
 * software's here, so that the simulator has the same one. Below 8 GPUs what passes a GPU without a share, N / (N - 1)
 * of an even collective, may be more than that. (3) M(m) is counted from the graph, not measured; so is what embedding
 * and head need.
 */
#include "cephalo/cephalo.h"
#include "cephalo/optimize.h"
#include "cephalo/partition.h"
#include "cephalo/profile_model.h"

#include "common/base/array.h"
#include "common/base/minmax.h"
#include "common/draft/cost_query.h"
#include "common/draft/draft_extra.h"
#include "common/schedule/live.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ASKED = 8, ROUNDS = 3 }; /* micro-batch sizes asked for; micro-batches of the graph of M(m) with accumulation */

/* clang-format off */
#define M      {"m", "sequences of a micro-batch of each GPU", .min = 1, .max = 1 << 20, .kind = HT_VARIABLE_BY_RANK}
#define L      {"l", "micro-batches of each GPU", .min = 0, .max = 1 << 20, .kind = HT_VARIABLE_BY_RANK}
#define SHARE  {"share", "weights of the shares of the state that the GPUs hold", .min = 0, .max = 1000, .kind = HT_VARIABLE_BY_RANK, .decimal = true}
#define OFFLOAD {"offload", "0: what passes between units stays on the devices", .max = 1}
#define OVERLAP {"overlap", "0: a unit is gathered when the passes over the one before it have ended", .max = 1}
#define USABLE {"usable", "percent of a device's memory that the planner may use", .min = 1, .max = 100}
#define COMMUNICATORS {"communicators", "2: reduce-scatters have a communicator of their own", .min = 1, .max = 2}
#define EVEN {"even", "1: the state is even where an even share fits every GPU", .max = 1}
#define ENLARGE {"enlarge", "1: largest micro-batches that lengthen nothing in eqs. 2 to 4", .max = 1}
#define IDLE {"idle", "1: a GPU may take no samples and only hold state", .max = 1}
/* clang-format on */
static const struct ht_knob knobs[] = {M,       L,
                                       SHARE,   OFFLOAD,
                                       OVERLAP, COMMUNICATORS,
                                       USABLE,  {"objective", "0: eqs. 2 and 3; 1: eq. 4, the slowest GPU", .max = 1},
                                       EVEN,    ENLARGE,
                                       IDLE,    {0}};
static const struct ht_knob balance_knobs[] = {M, L, SHARE, OFFLOAD, OVERLAP, COMMUNICATORS, USABLE, {0}};

/* The GPUs' tables, and the problem that they make. */
struct known {
    struct cephalo_problem problem;
    struct cephalo_kind *kinds; /* their tables are owned */
    int32_t *kind_of;
    bool timed; /* the decision needs times; else they are 0 */
};

static void free_known(struct known *k)
{
    for (int32_t i = 0; i < k->problem.n_kinds; i++) {
        free((void *)k->kinds[i].forward_ns);
        free((void *)k->kinds[i].backward_ns);
    }
    if (k->problem.n_kinds) free((void *)k->kinds[0].compute_bytes);
    free(k->kinds);
    free(k->kind_of);
}

/* Computes the bytes that a device needs for `rounds` micro-batches of m sequences beside its share of the state: the
   peak of the graph of a rank without a share, if other ranks can hold it. */
static enum ht_status compute_bytes(const struct ht_scenario *scenario, const struct ht_plan *plan, int64_t m,
                                    int64_t rounds, struct ht_error *err, int64_t *out)
{
    const uint32_t state =
        HT_CLASS(HT_PARAM) | HT_CLASS(HT_MASTER) | HT_CLASS(HT_MOMENTUM) | HT_CLASS(HT_VARIANCE) | HT_CLASS(HT_GRAD);
    struct ht_scenario probe = *scenario;
    int32_t ranks = (int32_t)ht_scenario_ranks(scenario);
    struct ht_portion *portions = HT_NEW_ARRAY(struct ht_portion, ranks);
    struct ht_layout *layout = NULL;
    probe.micro_batch = m ? m : 1;
    if (!m) rounds = 1;
    probe.batch = rounds * probe.micro_batch;
    for (int32_t r = 0; r < ranks; r++) portions[r] = (struct ht_portion){probe.micro_batch, 0, r > 0};
    portions[m ? 0 : ranks - 1].count = rounds;
    if (ranks == 1) portions[0].share = 1;
    enum ht_status status = ht_layout_uneven(&probe, HT_SHARD_ALL, portions, err, &layout);
    free(portions);
    if (status) return status;
    struct ht_draft g;
    struct ht_program program = cephalo_program("probe", layout, plan);
    ht_draft_begin(&g, &probe, &program);
    cephalo_emit(&g, plan);
    struct ht_schedule *s = ht_draft_end(&g);
    int64_t *live = HT_NEW_ARRAY(int64_t, s->n_ops);
    ht_schedule_live(s, 0, ranks == 1 ? HT_ALL_CLASSES & ~state : HT_ALL_CLASSES, live);
    *out = 0;
    for (int32_t i = 0; i < s->n_ops; i++) *out = live[i] > *out ? live[i] : *out;
    free(live);
    ht_schedule_destroy(s);
    ht_layout_destroy(layout);
    return HT_OK;
}

/* Fills the times of a rank's GPU for micro-batches of 1 to n sequences. */
static enum ht_status ask_times(const struct ht_scenario *scenario, const struct ht_profile *profile, int64_t rank,
                                int32_t n, struct ht_error *err, int64_t *forward_ns, int64_t *backward_ns)
{
    for (int32_t m = 1; m <= n; m++) {
        struct ht_scenario of = *scenario;
        of.micro_batch = m;
        struct ht_cost_query q = {.scenario = &of, .profile = profile, .rank = rank, .err = err};
        forward_ns[m] = ht_query_pass(&q, HT_OP_FORWARD, 1);
        backward_ns[m] = ht_query_pass(&q, HT_OP_RECOMPUTE, 1) + ht_query_pass(&q, HT_OP_BACKWARD, 1);
        if (q.status) return q.status;
    }
    return HT_OK;
}

/* Sets the kind of a rank; adds a new kind if no rank before is alike. */
static void sort_in(struct known *k, int32_t rank, int32_t n, int64_t capacity, int64_t *forward_ns,
                    int64_t *backward_ns)
{
    size_t bytes = sizeof(int64_t) * (size_t)(n + 1);
    int32_t i = 0, max = k->problem.batch;
    while (i < k->problem.n_kinds &&
           (k->kinds[i].capacity_bytes != capacity || memcmp(k->kinds[i].forward_ns, forward_ns, bytes) ||
            memcmp(k->kinds[i].backward_ns, backward_ns, bytes)))
        i++;
    k->kind_of[rank] = i;
    if (i < k->problem.n_kinds) return;
    int64_t *tables[2] = {HT_NEW_ARRAY(int64_t, max + 1), HT_NEW_ARRAY(int64_t, max + 1)};
    memcpy(tables[0], forward_ns, bytes);
    memcpy(tables[1], backward_ns, bytes);
    k->kinds[k->problem.n_kinds++] = (struct cephalo_kind){
        .max_micro_batch = max, .forward_ns = tables[0], .backward_ns = tables[1], .capacity_bytes = capacity};
}

static enum ht_status ask_all(const struct ht_system *self, const struct ht_scenario *scenario,
                              const struct ht_profile *profile, const struct ht_plan *plan, struct ht_error *err,
                              struct known *k)
{
    int32_t ranks = (int32_t)ht_scenario_ranks(scenario), max = (int32_t)scenario->batch;
    int32_t n = max < ASKED ? max : ASKED;
    int64_t usable = ht_plan_get(plan, "usable"), forward_ns[ASKED + 1] = {0}, backward_ns[ASKED + 1] = {0};
    const struct ht_numerics *numerics = &scenario->numerics;
    struct ht_schedule *empty = ht_links_schedule(scenario, "capacities");
    enum ht_status status = HT_OK;
    k->kinds = HT_NEW_ARRAY(struct cephalo_kind, ranks);
    k->kind_of = HT_NEW_ARRAY(int32_t, ranks);
    k->problem = (struct cephalo_problem){.n_gpus = ranks, .batch = max};
    for (int32_t r = 0; r < ranks && !status; r++) {
        int64_t capacity = (int64_t)((__int128)empty->capacity_bytes[r] * usable / 100);
        if (k->timed) status = ask_times(scenario, profile, r, n, err, forward_ns, backward_ns);
        if (!status) sort_in(k, r, n, capacity, forward_ns, backward_ns);
    }
    ht_schedule_destroy(empty);
    int64_t *memory = HT_NEW_ARRAY(int64_t, max + 1), rounds = self->variant == CEPHALO_CB ? 1 : ROUNDS;
    for (int32_t m = 0; m <= n && !status; m++) status = compute_bytes(scenario, plan, m, rounds, err, &memory[m]);
    for (int32_t i = 0; i < k->problem.n_kinds; i++) {
        cephalo_extend_latency((int64_t *)k->kinds[i].forward_ns, n, max);
        cephalo_extend_latency((int64_t *)k->kinds[i].backward_ns, n, max);
        k->kinds[i].compute_bytes = memory;
    }
    cephalo_extend_memory(memory, n, max);
    if (!k->problem.n_kinds) free(memory);
    struct cephalo_problem *p = &k->problem;
    p->state_bytes = ht_model_params(&scenario->model) * ht_model_state_bytes(numerics);
    p->kinds = k->kinds;
    p->kind_of = k->kind_of;
    if (status || !k->timed) return status;

    struct ht_cost_query q = ht_query_slowest(scenario, profile, err);
    int64_t shard = ht_equal_shard(scenario, 1), even = (ranks - 1) * shard, uneven = ranks * shard;
    p->even.all_gather_ns = ht_query_collective(&q, HT_OP_ALL_GATHER, numerics->param, even);
    p->even.reduce_scatter_ns = ht_query_collective(&q, HT_OP_REDUCE_SCATTER, numerics->accumulate, even);
    p->uneven.all_gather_ns = ht_query_uneven_collective(&q, HT_OP_ALL_GATHER, numerics->param, uneven, even);
    p->uneven.reduce_scatter_ns =
        ht_query_uneven_collective(&q, HT_OP_REDUCE_SCATTER, numerics->accumulate, uneven, even);
    return q.status;
}

/* ---- the decision ---------------------------------------------------------------------------------------------- */

/* Takes the forced m and l, or calls the optimizer. A single GPU takes the scenario's micro-batches, since there is
   nothing to divide. */
static enum ht_status choose_parts(const struct ht_system *self, const struct ht_settings *settings,
                                   struct cephalo_problem *p, int64_t micro_batch, struct ht_error *err,
                                   struct cephalo_part *parts)
{
    bool layer = !ht_setting(settings, "objective", 1);
    const struct ht_variable *m = ht_setting_variable(settings, "m"), *l = ht_setting_variable(settings, "l");
    if (!m != !l)
        return ht_fail(err, HT_BAD_INPUT, "%s is forced alone: expected %s as well", m ? "m" : "l", m ? "l" : "m");
    int64_t all = 0;
    for (int32_t i = 0; m && i < p->n_gpus; i++) {
        all += m->values[i] * l->values[i];
        parts[i] = (struct cephalo_part){l->values[i] ? (int32_t)m->values[i] : 0, (int32_t)l->values[i]};
    }
    if (m && all != p->batch)
        return ht_fail(err, HT_BAD_INPUT, "the GPUs' micro-batches have %lld sequences: expected the batch's %d",
                       (long long)all, p->batch);
    if (m) return HT_OK;
    if (p->n_gpus == 1) {
        parts[0] = (struct cephalo_part){(int32_t)micro_batch, p->batch / (int32_t)micro_batch};
        return HT_OK;
    }
    if (self->variant == CEPHALO_MB && p->batch % p->n_gpus)
        return ht_fail(err, HT_BAD_INPUT, "the %d GPUs do not divide the batch of %d sequences", p->n_gpus, p->batch);
    for (int32_t i = 0; i < p->n_gpus; i++) parts[i] = (struct cephalo_part){1, p->batch / p->n_gpus};
    if (self->variant == CEPHALO_MB) return HT_OK;
    p->even_only = self->variant == CEPHALO_CB;
    p->max_count = self->variant == CEPHALO_CB ? 1 : 0;
    p->may_idle = ht_setting(settings, "idle", 0);
    enum ht_status status = cephalo_optimize(p, layer ? CEPHALO_LAYER : CEPHALO_SLOWEST_GPU, err, parts);
    if (status == HT_OK && ht_setting(settings, "enlarge", 0)) cephalo_enlarge(p, parts);
    return status;
}

/* Computes each GPU's share in parts per billion, rounded to the nearest, so that equal shares stay equal. */
static enum ht_status choose_shares(const struct cephalo_problem *p, const struct cephalo_part *parts, bool even,
                                    struct ht_error *err, int64_t *shares)
{
    int64_t *compute = HT_NEW_ARRAY(int64_t, p->n_gpus), *capacity = HT_NEW_ARRAY(int64_t, p->n_gpus);
    enum ht_status status = HT_OK;
    for (int32_t i = 0; i < p->n_gpus; i++) {
        const struct cephalo_kind *kind = &p->kinds[p->kind_of[i]];
        compute[i] = kind->compute_bytes[parts[i].micro_batch];
        capacity[i] = kind->capacity_bytes;
        shares[i] = HT_PPB / p->n_gpus;
    }
    if (!even) status = cephalo_partition_state(p->n_gpus, compute, capacity, p->state_bytes, err, shares);
    for (int32_t i = 0; i < p->n_gpus && !even && !status; i++)
        shares[i] = (int64_t)(((__int128)shares[i] * HT_PPB + p->state_bytes / 2) / p->state_bytes);
    free(compute);
    free(capacity);
    return status;
}

static void record_inputs(const struct known *k, struct ht_plan *out)
{
    const struct cephalo_problem *p = &k->problem;
    char name[32];
    if (k->timed) {
        ht_plan_input(out, "AG", "ns", (double)p->even.all_gather_ns);
        ht_plan_input(out, "RS", "ns", (double)p->even.reduce_scatter_ns);
        ht_plan_input(out, "AG uneven", "ns", (double)p->uneven.all_gather_ns);
        ht_plan_input(out, "RS uneven", "ns", (double)p->uneven.reduce_scatter_ns);
    }
    ht_plan_input(out, "S", "B", (double)p->state_bytes);
    for (int32_t i = 0; i < p->n_kinds; i++) {
        int32_t rank = 0;
        while (p->kind_of[rank] != i) rank++;
        snprintf(name, sizeof name, "cap[%d]", rank);
        ht_plan_input(out, name, "B", (double)p->kinds[i].capacity_bytes);
        for (int32_t m = 1; m <= p->batch && m <= ASKED && k->timed; m++) {
            snprintf(name, sizeof name, "tf[%d](%d)", rank, m);
            ht_plan_input(out, name, "ns", (double)p->kinds[i].forward_ns[m]);
            snprintf(name, sizeof name, "tb[%d](%d)", rank, m);
            ht_plan_input(out, name, "ns", (double)p->kinds[i].backward_ns[m]);
        }
    }
    for (int32_t m = 0; m <= p->batch && m <= ASKED; m++) {
        snprintf(name, sizeof name, "M(%d)", m);
        ht_plan_input(out, name, "B", (double)p->kinds[0].compute_bytes[m]);
    }
}

/* Computes the time of an iteration beside its layers: what eqs. 2 and 3, which are about one of many layers, leave
   out. The first unit's AG and the last one's RS, which nothing hides; embedding and head, which wait for the slowest
   GPU; and the slowest step of a GPU's share. HT_BAD_INPUT if the profile lacks one of these. */
static enum ht_status beside_layers(const struct ht_scenario *scenario, const struct ht_profile *profile,
                                    const struct cephalo_problem *p, const struct cephalo_part *parts,
                                    const int64_t *shares, struct ht_error *err, int64_t *out)
{
    int64_t ends[] = {0, ht_model_units(&scenario->model) - 1}, longest[] = {0, 0}, step = 0;
    struct cephalo_collectives c = cephalo_evaluate(p, parts).uneven ? p->uneven : p->even;
    for (int32_t r = 0; r < p->n_gpus; r++) {
        struct ht_scenario of = *scenario;
        of.micro_batch = ht_max(1, parts[r].micro_batch);
        struct ht_cost_query q = {
            .scenario = &of, .profile = profile, .rank = r, .micro_batches = parts[r].count, .err = err};
        for (int e = 0; e < 2; e++) {
            int64_t ns = ht_query_pass(&q, HT_OP_FORWARD, ends[e]) + ht_query_pass(&q, HT_OP_BACKWARD, ends[e]);
            longest[e] = ht_max(longest[e], parts[r].count * ns);
        }
        double owned = 1e-9 * (double)shares[r] * (double)ht_model_params(&scenario->model);
        step = ht_max(step, ht_query_step(&q, HT_LANE_COMPUTE, (int64_t)owned));
        if (q.status) return q.status;
    }
    *out = c.all_gather_ns + c.reduce_scatter_ns + longest[0] + longest[1] + step;
    return HT_OK;
}

static enum ht_status decide(const struct ht_system *self, const struct ht_scenario *scenario,
                             const struct ht_profile *profile, struct known *k, const struct ht_settings *settings,
                             struct ht_error *err, struct ht_plan *out)
{
    struct cephalo_problem *p = &k->problem;
    const struct ht_variable *share = ht_setting_variable(settings, "share");
    struct cephalo_part *parts = HT_NEW_ARRAY(struct cephalo_part, p->n_gpus);
    int64_t *m = HT_NEW_ARRAY(int64_t, p->n_gpus), *l = HT_NEW_ARRAY(int64_t, p->n_gpus);
    int64_t *shares = HT_NEW_ARRAY(int64_t, p->n_gpus);
    enum ht_status status = choose_parts(self, settings, p, scenario->micro_batch, err, parts);
    bool even = self->variant == CEPHALO_CB;
    if (!status) even |= ht_setting(settings, "even", 0) && !cephalo_evaluate(p, parts).uneven;
    if (!status && !share) status = choose_shares(p, parts, even, err, shares);
    for (int32_t i = 0; i < p->n_gpus && !status; i++) {
        m[i] = parts[i].count ? parts[i].micro_batch : 1;
        l[i] = parts[i].count;
    }
    if (!status) {
        struct cephalo_outcome x = cephalo_evaluate(p, parts);
        ht_plan_set_values(out, "m", HT_VARIABLE_BY_RANK, p->n_gpus, m, false);
        ht_plan_set_values(out, "l", HT_VARIABLE_BY_RANK, p->n_gpus, l, false);
        if (share) ht_plan_set_vector(out, share);
        if (!share) ht_plan_set_values(out, "share", HT_VARIABLE_BY_RANK, p->n_gpus, shares, true);
        const char *state = share ? "forced" : even ? "even" : "divided by memory";
        int64_t rest;
        struct ht_error lacks;
        if (k->timed && !share && !beside_layers(scenario, profile, p, parts, shares, &lacks, &rest))
            out->planned_s = 1e-9 * (double)((x.forward_ns + x.backward_ns) * scenario->model.layers + rest);
        snprintf(out->why, sizeof out->why, "a block: T_f %.3f ms + T_b %.3f ms; state %s%s",
                 1e-6 * (double)x.forward_ns, 1e-6 * (double)x.backward_ns, state,
                 ht_setting(settings, "objective", 1) ? "; mended: Algorithm 1 starts at infinity and keeps (III)"
                                                      : "");
        if (!k->timed)
            snprintf(out->why, sizeof out->why, "m and l are %s; state %s",
                     p->n_gpus == 1                ? "the scenario's"
                     : self->variant == CEPHALO_MB ? "equal"
                                                   : "forced",
                     state);
    }
    free(parts);
    free(m);
    free(l);
    free(shares);
    return status;
}

static enum ht_status plan(const struct ht_system *self, const struct ht_scenario *scenario,
                           const struct ht_profile *profile, const struct ht_settings *settings, struct ht_error *err,
                           struct ht_plan *out)
{
    struct known k = {.timed = ht_scenario_ranks(scenario) > 1 && self->variant != CEPHALO_MB};
    k.timed &= !ht_setting_variable(settings, "m") || !ht_setting_variable(settings, "l");
    for (int tier = 0; tier < HT_N_TIERS; tier++) out->planned_bytes[tier] = -1;
    /* Sec. 2.2 offloads for the sake of layered gradient accumulation, which Cephalo-CB does without. */
    ht_plan_set(out, "offload", ht_setting(settings, "offload", self->variant != CEPHALO_CB));
    ht_plan_set(out, "overlap", ht_setting(settings, "overlap", 1));
    ht_plan_set(out, "communicators", ht_setting(settings, "communicators", 1));
    ht_plan_set(out, "usable", ht_setting(settings, "usable", 80));
    enum ht_status status = ask_all(self, scenario, profile, out, err, &k);
    if (!status) record_inputs(&k, out);
    if (!status) status = decide(self, scenario, profile, &k, settings, err, out);
    free_known(&k);
    return status;
}

/* clang-format off */
#define CEPHALO(NAME, TITLE, VARIANT, KNOBS, SUMMARY)                                                                  \
    {.name = NAME, .title = TITLE, .source = "Guo et al., Cephalo", .summary = SUMMARY, .knobs = KNOBS,                \
     .variant = VARIANT, .division = HT_PLANNED_REPLICAS, .plan = plan, .build = cephalo_build}
const struct ht_system cephalo = CEPHALO("cephalo", "Cephalo", CEPHALO, knobs,
    "sharded data parallelism on unlike GPUs: uneven batches and state, layered gradient accumulation");
const struct ht_system cephalo_cb = CEPHALO("cephalo_cb", "Cephalo-CB", CEPHALO_CB, balance_knobs,
    "Cephalo with uneven batches alone: even state, neither accumulation nor offloading");
const struct ht_system cephalo_mb = CEPHALO("cephalo_mb", "Cephalo-MB", CEPHALO_MB, balance_knobs,
    "Cephalo with uneven state alone: equal batches, a sample at a time");
/* clang-format on */
