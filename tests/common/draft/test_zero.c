/* Several ranks: the graph of N from that of one; memory, messages and times of each rank by hand. */
#include "common/draft/draft_internal.h"

#include "common/base/array.h"
#include "common/base/rng.h"
#include "common/exec/sim.h"
#include "common/profile/profile.h"
#include "common/schedule/verify.h"

#include "tests/support/proved.h"
#include "tests/support/scenario.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Makes a scenario on `ranks` of the devices of autohete-4gpu, four sequences a rank. */
static struct ht_scenario scenario_of(const char *model, int64_t ranks, int64_t micro_batch)
{
    struct ht_scenario_request r = {.model = model, .cluster = "autohete-4gpu", .batch = 16};
    struct ht_scenario s = scenario_from(&r);
    use_gpus(&s, ranks);
    s.batch = 4 * ranks;
    s.micro_batch = micro_batch;
    return s;
}

/* A toy system: residencies of states, lanes of steps, and times of reductions. */
struct toy {
    const struct ht_layout *layout; /* NULL: equal ranks */
    bool on_host, reduce_once, one_communicator;
    enum ht_gather keeps; /* HT_GATHER_VISIT: unit by unit, all micro-batches of each */
};

static void visit(struct ht_draft *g, int32_t u, bool backward)
{
    bool head = u == g->n_units - 1;
    for (int32_t j = 0; j < g->n_mb; j++) {
        if (!backward) ht_draft_forward(g, u, j, u == 1 ? 0 : HT_ALL_SUB_OPS);
        if (backward && u == 1) ht_draft_recompute(g, u, 1, j, HT_ALL_SUB_OPS);
        if (backward || head) ht_draft_backward(g, u, j);
    }
}

/* Layered gradient accumulation; the head's two passes over a micro-batch follow each other. */
static void emit_layered(struct ht_draft *g, const void *context)
{
    (void)context;
    for (int32_t u = 0; u < g->n_units; u++) {
        ht_draft_place(g, g->param[u], HT_DEVICE);
        ht_draft_place_states(g, u, HT_DEVICE);
    }
    for (int32_t u = 0; u < g->n_units; u++) visit(g, u, false);
    for (int32_t u = g->n_units - 2; u >= 0; u--) visit(g, u, true);
    for (int32_t u = 0; u < g->n_units; u++) ht_draft_step(g, g->lanes->compute, u, 1, true);
}

/* All on the device and stepped there, or states, sums and steps on the host once all gradients are there. */
static void emit(struct ht_draft *g, const void *context)
{
    bool on_host = ((const struct toy *)context)->on_host;
    enum ht_tier tier = on_host ? HT_HOST : HT_DEVICE;
    int32_t where = on_host ? g->lanes->host : g->lanes->compute, last = -1;
    for (int32_t u = 0; u < g->n_units; u++) {
        ht_draft_place(g, g->param[u], HT_DEVICE);
        if (on_host) ht_draft_place(g, g->param[u], HT_HOST);
        ht_draft_place_states(g, u, tier);
    }
    for (int32_t j = 0; j < g->n_mb; j++) {
        for (int32_t u = 0; u < g->n_units; u++) ht_draft_forward(g, u, j, u == 1 ? 0 : HT_ALL_SUB_OPS);
        for (int32_t u = g->n_units - 1; u >= 0; u--) {
            if (u == 1) ht_draft_recompute(g, u, 1, j, HT_ALL_SUB_OPS);
            last = ht_draft_backward(g, u, j);
            if (g->state->reduce_once && j + 1 < g->n_mb) continue;
            int32_t fresh = j && !g->state->reduce_once ? g->grad_mb[ht_draft_at(g, u, j)] : g->grad[u];
            if (on_host) last = ht_draft_copy(g, fresh, HT_DEVICE, HT_HOST, HT_PRODUCE, true);
            if (j) ht_draft_accumulate(g, where, u, j);
            if (j + 1 == g->n_mb) ht_draft_all_reduce(g, u);
        }
    }
    for (int32_t u = 0; u < g->n_units; u++) {
        ht_draft_step(g, where, u, 1, true);
        ht_op_after(g->schedule, last);
        if (on_host) ht_draft_copy(g, g->param[u], HT_HOST, HT_DEVICE, HT_UPDATE, false);
    }
}

static struct ht_schedule *build_toy(const struct ht_scenario *sc, const struct toy *toy)
{
    struct ht_program program = {.name = "toy",
                                 .layout = toy->layout,
                                 .keeps = toy->keeps,
                                 .reduce_once = toy->reduce_once,
                                 .one_communicator = toy->one_communicator,
                                 .emit = toy->keeps == HT_GATHER_VISIT ? emit_layered : emit,
                                 .context = toy};
    struct ht_error err = {0};
    struct ht_schedule *s = NULL;
    ck_assert_msg(ht_build_graph(sc, &program, &err, &s) == HT_OK, "%s", err.text);
    return s;
}

static struct ht_schedule *build(const struct ht_scenario *sc, bool on_host)
{
    return build_toy(sc, &(struct toy){.on_host = on_host});
}

static void prove(const struct ht_schedule *s)
{
    struct ht_error err = {0};
    ck_assert_msg(ht_schedule_verify(s, &err, NULL) == HT_OK, "%s", err.text);
}

/* ---- the graph ------------------------------------------------------------------------------------------------- */

/* Also three ranks, of which none divides the parameters of a unit without a rest. */
START_TEST(every_number_of_ranks_is_proved)
{
    for (int64_t ranks = 1; ranks <= 4; ranks++)
        for (int64_t micro_batch = 1; micro_batch <= 4; micro_batch *= 2)
            for (int on_host = 0; on_host < 2; on_host++) {
                struct ht_scenario sc = scenario_of("gpt-tiny", ranks, micro_batch);
                struct ht_schedule *s = build(&sc, on_host);
                prove(s);
                ck_assert_int_eq(s->n_ranks, ranks);
                ck_assert_int_eq(s->n_micro_batches, ranks * 4 / micro_batch);
                ht_schedule_destroy(s);
                ht_scenario_free(&sc);
            }
}
END_TEST

/* One rank: F of n units, R of one, B of n, n steps, and neither lanes nor resources beyond those of a device. */
START_TEST(one_rank_has_no_collectives)
{
    struct ht_scenario sc = scenario_of("gpt-tiny", 1, 4);
    struct ht_schedule *s = build(&sc, false);
    ck_assert_int_eq(s->n_ops, 3 * s->n_units + 1);
    ck_assert_int_eq(s->n_lanes, 4);
    ck_assert_int_eq(s->n_resources, 3); /* dram and two directions of the port */
    for (int32_t i = 0; i < s->n_ops; i++) {
        ck_assert_int_ne(s->ops[i].kind, HT_OP_ALL_GATHER);
        ck_assert_int_ne(s->ops[i].kind, HT_OP_REDUCE_SCATTER);
        ck_assert_int_eq(s->ops[i].match, -1);
    }
    ht_schedule_destroy(s);
    ht_scenario_free(&sc);
}
END_TEST

/*
 * With U units and a tied table, a micro-batch gathers every unit for the forward pass, the table once more for the
 * head, and every unit but the head for the backward pass: 2 U. It scatters U gradients. A member of an all-gather
 * sends ceil(P / N) (N - 1) elements of two bytes; so does one of a reduce-scatter.
 */
START_TEST(collectives_by_hand)
{
    enum { RANKS = 4, MICRO_BATCHES = 2 };
    struct ht_scenario sc = scenario_of("gpt-tiny", RANKS, 2);
    struct ht_schedule *s = build(&sc, false);
    int32_t gathers = 0, reduces = 0;
    for (int32_t i = 0; i < s->n_ops; i++) {
        const struct ht_op *op = &s->ops[i];
        if (s->lanes[op->lane].kind != HT_LANE_COLLECTIVE) continue;
        int64_t shard = (ht_unit_params(&sc.model, op->label.unit) + RANKS - 1) / RANKS;
        ck_assert_int_eq(s->works[op->work].bytes, shard * (RANKS - 1) * 2);
        ck_assert_int_eq(s->works[op->work].ranks, RANKS);
        gathers += op->kind == HT_OP_ALL_GATHER;
        reduces += op->kind == HT_OP_REDUCE_SCATTER;
    }
    ck_assert_int_eq(gathers, RANKS * MICRO_BATCHES * 2 * s->n_units);
    ck_assert_int_eq(reduces, RANKS * MICRO_BATCHES * s->n_units);
    ht_schedule_destroy(s);
    ht_scenario_free(&sc);
}
END_TEST

/* 16 bit, all on the device: 2 + 12 bytes a parameter, of ceil(P / N) parameters of each unit, on each rank. On the
   host of a node: N times 2 + 12, and 2 of parameters stay on each device. */
START_TEST(residents_by_hand)
{
    for (int64_t ranks = 1; ranks <= 4; ranks++)
        for (int on_host = 0; on_host < 2; on_host++) {
            struct ht_scenario sc = scenario_of("gpt-tiny", ranks, 4);
            struct ht_schedule *s = build(&sc, on_host);
            int64_t device[4] = {0}, host = 0, shards = 0;
            for (int64_t u = 0; u < s->n_units; u++) shards += (ht_unit_params(&sc.model, u) + ranks - 1) / ranks;
            for (int32_t i = 0; i < s->n_residents; i++) {
                const struct ht_resident *r = &s->residents[i];
                ck_assert_int_eq(s->tensors[r->tensor].rank, r->rank);
                *(r->tier == HT_DEVICE ? &device[r->rank] : &host) += s->tensors[r->tensor].bytes;
            }
            for (int64_t r = 0; r < ranks; r++) ck_assert_int_eq(device[r], (on_host ? 2 : 14) * shards);
            ck_assert_int_eq(host, on_host ? ranks * 14 * shards : 0);
            ht_schedule_destroy(s);
            ht_scenario_free(&sc);
        }
}
END_TEST

/* Three ranks, 256 parameters (the head's norm, width 128): [0,86), [86,172), [172,256), each kept as 86 elements. */
START_TEST(shards_by_hand)
{
    static const int64_t begin[] = {0, 86, 172}, end[] = {86, 172, 256};
    struct ht_scenario sc = scenario_of("gpt-tiny", 3, 4);
    struct ht_schedule *s = build(&sc, false);
    int32_t head = s->n_units - 1, found = 0;
    ck_assert_int_eq(ht_unit_params(&sc.model, head), 256);
    for (int32_t i = 0; i < s->n_tensors; i++) {
        const struct ht_tensor *t = &s->tensors[i];
        if (t->class != HT_MOMENTUM || t->label.unit != head) continue;
        ck_assert_int_eq(t->rank, found);
        ck_assert_int_eq(t->shard_begin, begin[found]);
        ck_assert_int_eq(t->shard_end, end[found]);
        ck_assert_int_eq(t->bytes, 86 * 4);
        found++;
    }
    ck_assert_int_eq(found, 3);
    ht_schedule_destroy(s);
    ht_scenario_free(&sc);
}
END_TEST

/* ---- time ------------------------------------------------------------------------------------------------------ */

#define MS INT64_C(1000000)

/* Blocks: F and R 2 ms, B 4, all-gather and reduce-scatter 3, step 1. Embedding and head take no time. */
static int64_t cost_of(const struct ht_schedule *s, int32_t op)
{
    const struct ht_op *x = &s->ops[op];
    if (x->label.unit < 1 || x->label.unit > s->n_units - 2) return 0;
    switch ((enum ht_op_kind)x->kind) {
    case HT_OP_FORWARD:
    case HT_OP_RECOMPUTE:
        return 2 * MS;
    case HT_OP_BACKWARD:
        return 4 * MS;
    case HT_OP_ALL_GATHER:
    case HT_OP_REDUCE_SCATTER:
        return 3 * MS;
    case HT_OP_OPTIMIZER_STEP:
        return MS;
    default:
        return 0;
    }
}

static void runs(const struct ht_trace *t, int32_t iteration, const char *name, int64_t start_ms, int64_t end_ms)
{
    const struct ht_schedule *s = t->schedule;
    for (int32_t i = 0; i < s->n_ops; i++) {
        if (strcmp(s->ops[i].name, name) != 0) continue;
        for (int32_t r = 0; r < s->n_ranks; r++) {
            const struct ht_trace_event *e = &t->events[(int64_t)iteration * s->n_ops + i + r];
            ck_assert_str_eq(s->ops[i + r].name, name);
            ck_assert_msg(e->start_ns == start_ms * MS && e->end_ns == end_ms * MS,
                          "%s of rank %d, iteration %d: [%g, %g] ms, expected [%lld, %lld]", name, (int)r,
                          (int)iteration, (double)e->start_ns / 1e6, (double)e->end_ns / 1e6, (long long)start_ms,
                          (long long)end_ms);
        }
        return;
    }
    ck_abort_msg("no op %s", name);
}

/* Proves a toy's schedule and simulates it with the times of cost_of, nothing shared. The caller frees trace and costs. */
static struct ht_trace *simulated(struct ht_schedule *s, int32_t iterations, int64_t **cost_ns)
{
    struct ht_error err = {0};
    struct ht_trace *t = NULL;
    struct ht_sim_options o = {.iterations = iterations};
    prove(s);
    *cost_ns = HT_NEW_ARRAY(int64_t, s->n_ops);
    for (int32_t i = 0; i < s->n_ops; i++) (*cost_ns)[i] = cost_of(s, i);
    for (int64_t k = 0; k < s->uses_begin[s->n_ops]; k++) s->uses[k].amount = 0;
    ck_assert_msg(ht_sim_run(s, *cost_ns, &o, &err, &t) == HT_OK, "%s", err.text);
    return t;
}

/*
 * Two blocks, block 1 recomputed; embedding 0 and head 3 take no time. A gathering may begin once the slot before its
 * own begins: the first two of an iteration at once, AG2 after F0, AG3 after F1; backward AG2 after F2, AG1 after B3.
 *
 *     gather   AG1 0-3  AG2 3-6     AG3 6  | AG2 8-11  AG1 11-14
 *     compute           F1 3-5  F2 6-8  F3 | B3 8  B2 11-15  R1 15-17  B1 17-21  B0 21 | U0 U1 24-25 U2 25-26 U3
 *     reduce                               | RS3 8  RS2 15-18  RS1 21-24  RS0 24
 *
 * Steps wait for all gradients, i.e. B0 at 21, but U0, first on its lane, for RS0 behind RS1: 24. The next AG1 waits
 * for U1: 25-28, against 0-3 before. Then all repeats: 25 ms an iteration.
 */
START_TEST(one_unit_ahead_by_hand)
{
    struct ht_scenario sc = scenario_of("gpt-tiny", 4, 4);
    sc.model.layers = 2;
    struct ht_schedule *s = build(&sc, false);
    int64_t *cost_ns = NULL;
    struct ht_trace *t = simulated(s, 4, &cost_ns);
    for (int32_t k = 0; k < 4; k++) {
        runs(t, k, "AG1", 25 * k, 25 * k + 3); /* the first op of that name: the forward pass's */
        runs(t, k, "F1", 25 * k + 3, 25 * k + 5);
        runs(t, k, "AG2", 25 * k + 3, 25 * k + 6);
        runs(t, k, "F2", 25 * k + 6, 25 * k + 8);
        runs(t, k, "B2", 25 * k + 11, 25 * k + 15);
        runs(t, k, "R1", 25 * k + 15, 25 * k + 17);
        runs(t, k, "RS2", 25 * k + 15, 25 * k + 18);
        runs(t, k, "B1", 25 * k + 17, 25 * k + 21);
        runs(t, k, "RS1", 25 * k + 21, 25 * k + 24);
        runs(t, k, "U1", 25 * k + 24, 25 * k + 25);
        runs(t, k, "U2", 25 * k + 25, 25 * k + 26);
        ck_assert_int_eq(t->iteration_end_ns[k], (25 * k + 26) * MS);
    }
    free(cost_ns);
    ht_trace_destroy(t);
    ht_schedule_destroy(s);
    ht_scenario_free(&sc);
}
END_TEST

/*
 * Three blocks, one communicator. AG2 is issued before RS3, so B2 does not wait for the reduction; AG1 is issued after
 * it, so R1 does: two lanes would have it at 18-21.
 *
 *     collectives  AG1 0-3  AG2 3-6  AG3 6-9  AG4 9 | AG3 11-14 RS4 14 AG2 14-17 RS3 18-21 AG1 21-24 RS2 24-27 AG0 27 ..
 *     compute      F1 3-5  F2 6-8  F3 9-11  F4 11   | B4 11  B3 14-18  B2 18-22  R1 24-26  B1 26-30  B0 30 | U0 33 U1 ..
 *                                                     .. RS1 30-33 RS0 33
 *
 * U1 ends at 34, where the next iteration's AG1 begins.
 */
START_TEST(one_communicator_by_hand)
{
    struct ht_scenario sc = scenario_of("gpt-tiny", 4, 4);
    sc.model.layers = 3;
    struct ht_schedule *s = build_toy(&sc, &(struct toy){.one_communicator = true, .keeps = HT_GATHER_VISIT});
    int64_t *cost_ns = NULL;
    struct ht_trace *t = simulated(s, 3, &cost_ns);
    for (int32_t k = 0; k < 3; k++) {
        runs(t, k, "AG1", 34 * k, 34 * k + 3);
        runs(t, k, "B3", 34 * k + 14, 34 * k + 18);
        runs(t, k, "RS3", 34 * k + 18, 34 * k + 21);
        runs(t, k, "B2", 34 * k + 18, 34 * k + 22);
        runs(t, k, "R1", 34 * k + 24, 34 * k + 26);
        runs(t, k, "RS2", 34 * k + 24, 34 * k + 27);
        runs(t, k, "B1", 34 * k + 26, 34 * k + 30);
        runs(t, k, "RS1", 34 * k + 30, 34 * k + 33);
        runs(t, k, "U1", 34 * k + 33, 34 * k + 34);
    }
    free(cost_ns);
    ht_trace_destroy(t);
    ht_schedule_destroy(s);
    ht_scenario_free(&sc);
}
END_TEST

/* Returns the time from the first step's start to the last one's end, at modelled costs. */
static double cpu_steps_s(int64_t ranks)
{
    struct ht_scenario sc = scenario_of("autohete-2b", ranks, 4);
    struct ht_schedule *s = build(&sc, true);
    struct ht_profile *p = ht_profile_modelled(sc.cluster);
    struct ht_error err = {0};
    struct ht_trace *t = NULL;
    int64_t *cost_ns = HT_NEW_ARRAY(int64_t, s->n_ops), first = INT64_MAX, last = 0;
    ck_assert_msg(ht_profile_costs(p, s, cost_ns, &err) == HT_OK, "%s", err.text);
    struct ht_sim_options o = {.iterations = 1, .issue_ahead = 2};
    for (int32_t sp = 0; sp < ht_n_spaces(s); sp++) s->capacity_bytes[sp] = INT64_MAX / 4;
    prove(s);
    ck_assert_msg(ht_sim_run(s, cost_ns, &o, &err, &t) == HT_OK, "%s", err.text);
    for (int32_t i = 0; i < s->n_ops; i++) {
        if (s->ops[i].kind != HT_OP_OPTIMIZER_STEP) continue;
        if (t->events[i].start_ns < first) first = t->events[i].start_ns;
        if (t->events[i].end_ns > last) last = t->events[i].end_ns;
    }
    free(cost_ns);
    ht_trace_destroy(t);
    ht_profile_destroy(p);
    ht_schedule_destroy(s);
    ht_scenario_free(&sc);
    return (double)(last - first) * 1e-9;
}

/* A rank steps 1/N of the parameters, and the N steps at a time share the cores: the node takes as long as for one. */
START_TEST(cpu_steps_take_a_node_as_long)
{
    double one = cpu_steps_s(1);
    ck_assert_double_eq_tol(cpu_steps_s(2) / one, 1, 0.01);
    ck_assert_double_eq_tol(cpu_steps_s(4) / one, 1, 0.01);
}
END_TEST

/* ---- nodes that differ ----------------------------------------------------------------------------------------- */

static const struct ht_resource *resource_named(const struct ht_schedule *s, const char *name)
{
    for (int32_t i = 0; i < s->n_resources; i++)
        if (!strcmp(s->resources[i].name, name)) return &s->resources[i];
    return NULL;
}

/* Checks that the resource is on the node and carries that much; 0: it does not exist. */
static void carries(const struct ht_schedule *s, const char *name, int32_t node, double per_s)
{
    const struct ht_resource *r = resource_named(s, name);
    if (per_s > 0) ck_assert_msg(r != NULL, "no resource '%s'", name);
    if (per_s == 0) ck_assert_msg(r == NULL, "there is a resource '%s'", name);
    if (!r) return;
    ck_assert_int_eq(r->node, node);
    ck_assert_double_eq_tol((double)r->capacity_per_s, per_s, 1);
}

/* Writes the charges of the first op of that name on the rank: "rank 2 pcie h2d, node 1 nic in". */
static void takes(const struct ht_schedule *s, int32_t rank, const char *op, const char *list)
{
    char text[256] = "";
    int32_t i = 0;
    while (i < s->n_ops && (strcmp(s->ops[i].name, op) != 0 || ht_op_rank(s, i) != rank)) i++;
    ck_assert_msg(i < s->n_ops, "rank %d has no op %s", rank, op);
    for (int64_t k = s->uses_begin[i]; k < s->uses_begin[i + 1]; k++) {
        size_t n = strlen(text);
        snprintf(text + n, sizeof(text) - n, "%s%s", n ? ", " : "", s->resources[s->uses[k].resource].name);
    }
    ck_assert_msg(!strcmp(text, list), "%s of rank %d takes '%s'", op, rank, text);
}

/*
 * Node 0: two A100 with NVLink, PCIe 4 (31.5 GB/s at 0.79), 64 cores. Node 1: two V100 without, PCIe 3 (15.75 GB/s at
 * 0.76), 32 cores, two SSDs. The ranks of node 1 gather through their ports, one of each node takes the NIC.
 */
START_TEST(nodes_differ)
{
    struct ht_scenario_request request = {
        .model = "gpt-tiny", .cluster = HT_SOURCE_DIR "/tests/data/mixed-2x2.yaml", .batch = 8};
    struct ht_error err = {0};
    struct ht_scenario sc = scenario_from(&request);
    struct ht_schedule *s = build(&sc, true);
    prove(s);
    carries(s, "rank 1 pcie h2d", 0, 31.5e9 * 0.79);
    carries(s, "rank 2 pcie h2d", 1, 15.75e9 * 0.76);
    carries(s, "rank 1 nvlink in", 0, 300e9 * 0.78);
    carries(s, "rank 2 nvlink in", 1, 0);
    carries(s, "node 0 cores", 0, 64e9);
    carries(s, "node 1 cores", 1, 32e9);
    ck_assert_int_eq(s->capacity_bytes[ht_space(s, HT_DEVICE, 1)], ht_cluster_gpu_of(sc.cluster, 1)->memory_bytes);
    ck_assert_int_eq(s->capacity_bytes[ht_space(s, HT_DEVICE, 2)], ht_cluster_gpu_of(sc.cluster, 2)->memory_bytes);
    ck_assert_int_eq(s->capacity_bytes[ht_space(s, HT_HOST, 3)], 512000000000);
    ck_assert_int_eq(s->capacity_bytes[ht_space(s, HT_DISK, 0)], 0);
    ck_assert_int_eq(s->capacity_bytes[ht_space(s, HT_DISK, 3)], 2 * 3840000000000);
    takes(s, 0, "AG1", "rank 0 nvlink out, node 0 nic out, rank 0 nvlink in, node 0 nic in");
    takes(s, 1, "AG1", "rank 1 nvlink out, rank 1 nvlink in");
    takes(s, 2, "AG1", "rank 2 pcie d2h, node 1 nic out, rank 2 pcie h2d, node 1 nic in");
    takes(s, 3, "AG1", "rank 3 pcie d2h, rank 3 pcie h2d");
    takes(s, 3, "G1", "rank 3 pcie d2h, node 1 dram");
    takes(s, 3, "O1", "node 1 cores, node 1 dram");
    struct ht_profile *p = ht_profile_modelled(sc.cluster);
    int64_t *cost_ns = HT_NEW_ARRAY(int64_t, s->n_ops);
    ck_assert_msg(ht_profile_costs(p, s, cost_ns, &err) == HT_OK, "%s", err.text);
    for (int32_t i = 0; i + 2 < s->n_ops; i++) /* ops of equal ranks stand beside each other */
        if (s->ops[i].kind == HT_OP_FORWARD && s->ops[i].label.unit == 1 && ht_op_rank(s, i) == 0) {
            ck_assert_int_eq(cost_ns[i], cost_ns[i + 1]);
            ck_assert_int_gt(cost_ns[i + 2], cost_ns[i]);
        }
    free(cost_ns);
    ht_profile_destroy(p);
    ht_schedule_destroy(s);
    ht_scenario_free(&sc);
}
END_TEST

/* Four ranks over two domains of a node: the host work and copies of two take the cores and the memory of one. */
START_TEST(domains_of_a_node)
{
    struct ht_scenario sc = scenario_of("gpt-tiny", 4, 4);
    sc.cluster->nodes[0].domains = 2;
    struct ht_schedule *s = build(&sc, true);
    carries(s, "domain 1 cores", 0, 32e9);
    carries(s, "domain 1 dram", 0, ht_machine_dram_rate(&sc.cluster->nodes[0]) / 2);
    takes(s, 1, "O1", "domain 0 cores, domain 0 dram");
    takes(s, 2, "O1", "domain 1 cores, domain 1 dram");
    takes(s, 3, "G1", "rank 3 pcie d2h, domain 1 dram");
    ht_schedule_destroy(s);
    ht_scenario_free(&sc);
}
END_TEST

/* ---- scenarios -------------------------------------------------------------------------------------------------- */

/* Ranks with other micro-batches, other numbers of them or none, and uneven and empty shards: proved, simulated in
   exactly the proved memory, and with as many collectives as the rank with most micro-batches needs. */
START_TEST(uneven_ranks)
{
    for (uint64_t seed = 0; seed < 120; seed++) {
        uint64_t i = 0;
        int64_t ranks = 2 + (int64_t)ht_random_below(seed, i++, 4), batch = 0, rounds = 0, reduces = 0;
        bool whole = seed % 5 == 0, uneven = false; /* whole: nothing is sharded */
        struct ht_portion p[5];
        for (int64_t r = 0; r < ranks; r++, i += 3) {
            p[r] =
                (struct ht_portion){1 + (int64_t)ht_random_below(seed, i, 2), (int64_t)ht_random_below(seed, i + 1, 4),
                                    (int64_t)ht_random_below(seed, i + 2, 3)};
            if (r == ranks - 1) p[r].count++, p[r].share++;
            if (whole && !p[r].count) p[r].count = 1;
            batch += p[r].micro_batch * p[r].count;
            if (p[r].count > rounds) rounds = p[r].count;
            uneven |= p[r].share != p[0].share;
        }
        struct ht_scenario sc = scenario_of("gpt-tiny", ranks, 1);
        sc.batch = batch;
        sc.numerics.accumulate = seed % 2 ? HT_F32 : sc.numerics.grad;
        bool layered = !whole && seed % 3 == 0;
        struct toy toy = {.on_host = !whole && seed & 2,
                          .reduce_once = seed & 4 || layered,
                          .one_communicator = layered && seed & 8,
                          .keeps = layered    ? HT_GATHER_VISIT
                                   : seed & 8 ? HT_GATHER_ITERATION
                                              : HT_GATHER_PASS};
        sc.model.tied = seed % 7;
        int64_t each_round = 2 * ht_model_units(&sc.model) - !sc.model.tied;
        struct ht_layout *layout = NULL;
        struct ht_error err = {0};
        ck_assert_msg(ht_layout_uneven(&sc, whole ? HT_SHARD_NONE : HT_SHARD_ALL, p, &err, &layout) == HT_OK, "%s",
                      err.text);
        toy.layout = layout;
        struct ht_schedule *s = build_toy(&sc, &toy);
        int64_t gathers = 0, scatters = 0, units = s->n_units, reductions = toy.reduce_once ? 1 : rounds;
        for (int32_t op = 0; op < s->n_ops; op++) {
            gathers += s->ops[op].kind == HT_OP_ALL_GATHER;
            scatters += s->ops[op].kind == HT_OP_REDUCE_SCATTER;
            reduces += s->ops[op].kind == HT_OP_ALL_REDUCE;
            bool even = whole || s->lanes[s->ops[op].lane].kind != HT_LANE_COLLECTIVE;
            ck_assert(even || (s->works[s->ops[op].work].even_bytes > 0) == uneven);
        }
        ck_assert_int_eq(reduces, whole ? ranks * units : 0);
        if (toy.keeps == HT_GATHER_ITERATION) each_round = units;
        if (!whole) ck_assert_int_eq(gathers, ranks * (toy.keeps == HT_GATHER_PASS ? rounds : 1) * each_round);
        ck_assert_int_eq(scatters, whole ? 0 : ranks * reductions * units);
        struct ht_profile *costs = ht_profile_modelled(sc.cluster);
        runs_in_proved_memory(s, costs, seed, 1);
        ht_profile_destroy(costs);
        ht_schedule_destroy(s);
        ht_layout_destroy(layout);
        ht_scenario_free(&sc);
    }
}
END_TEST

START_TEST(batches_divide_over_ranks)
{
    static const struct {
        int64_t batch, micro_batch, gives;
        const char *says;
    } cases[] = {
        {8, 0, 2, NULL},
        {8, 1, 1, NULL},
        {16, 2, 2, NULL},
        {6, 0, 0, "the 4 devices of cluster 'autohete-4gpu' do not divide the batch of 6 sequences"},
        {8, 4, 0, "micro-batch 4 does not divide the 2 sequences of each of 4 devices (batch 8)"},
    };
    for (size_t i = 0; i < HT_COUNT(cases); i++) {
        struct ht_scenario_request r = {.model = "gpt-tiny",
                                        .cluster = "autohete-4gpu",
                                        .batch = cases[i].batch,
                                        .micro_batch = cases[i].micro_batch};
        struct ht_scenario s;
        struct ht_error err = {0};
        ck_assert_int_eq(ht_scenario_create(&r, &err, &s), HT_OK);
        ck_assert_int_eq(ht_layout_check_equal(&s, &err), cases[i].says ? HT_BAD_INPUT : HT_OK);
        if (cases[i].says) {
            ck_assert_str_eq(err.text, cases[i].says);
            ht_scenario_free(&s);
            continue;
        }
        ck_assert_int_eq(s.micro_batch, cases[i].gives);
        ck_assert_int_eq(ht_equal_rounds(&s) * s.micro_batch * 4, s.batch);
        ht_scenario_free(&s);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("zero");
    TCase *t = tcase_create("ranks");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, every_number_of_ranks_is_proved);
    tcase_add_test(t, one_rank_has_no_collectives);
    tcase_add_test(t, collectives_by_hand);
    tcase_add_test(t, residents_by_hand);
    tcase_add_test(t, shards_by_hand);
    tcase_add_test(t, one_unit_ahead_by_hand);
    tcase_add_test(t, one_communicator_by_hand);
    tcase_add_test(t, cpu_steps_take_a_node_as_long);
    tcase_add_test(t, nodes_differ);
    tcase_add_test(t, uneven_ranks);
    tcase_add_test(t, domains_of_a_node);
    tcase_add_test(t, batches_divide_over_ranks);
    suite_add_tcase(suite, t);
    SRunner *r = srunner_create(suite);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
