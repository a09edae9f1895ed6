/* Colossal-AI's Gemini: its moves, an iteration and the optimizer's pipeline worked out by hand; proofs over a sweep of
   plans; and the fractions that the planner takes. */
#include "tests/baselines/plans.h"

#include "baselines/chunks.h"

static struct ht_scenario scenario_on_disk(int64_t micro_batch, const char *numerics, int64_t device_bytes)
{
    struct ht_scenario_request r = {.model = "gpt-mini",
                                    .cluster = "local",
                                    .batch = 2,
                                    .micro_batch = micro_batch,
                                    .seq = 8,
                                    .numerics = numerics,
                                    .local_disks = 2,
                                    .device_memory_bytes = device_bytes};
    return scenario_from(&r);
}

/* ---- moves ------------------------------------------------------------------------------------------------------ */

static void expect_moves(int64_t idle_bytes, int32_t n_pinned, const char *want)
{
    struct ht_chunk_moment moments[12];
    for (int u = 0; u < 6; u++) {
        moments[u] = moments[11 - u] = (struct ht_chunk_moment){.needs = {u / 2, -1}};
        if (u % 2 == 0) moments[11 - u].ends = u / 2 + 1;
    }
    struct ht_chunk_room room = {.chunk_bytes = 10,
                                 .n_pinned = n_pinned,
                                 .gradients_leave = true,
                                 .rule = HT_IDLE_LEAVE,
                                 .idle_bytes = idle_bytes};
    struct ht_chunk_moves m;
    struct ht_error err;
    char got[256] = "";
    ck_assert_int_eq(ht_chunks_move(moments, 12, 3, &room, &err, &m, NULL), HT_OK);
    for (int32_t i = 0; i < m.n; i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%d%c%d", i ? " " : "", m.rows[i].moment,
                 m.rows[i].to_device ? '+' : '-', m.rows[i].chunk);
    ck_assert_str_eq(got, want);
    for (int32_t c = 0; c < 3; c++) ck_assert(m.at_start[c] == (c < n_pinned));
    ht_chunk_moves_free(&m);
}

/*
 * Three chunks of two units: moments 0 .. 5 are forward, 6 .. 11 backward. "4-1": before moment 4 chunk 1 leaves.
 * Chunk 2 is needed last at 7, chunk 1 at 9, chunk 0 at 11; their gradients leave after that in any case. Before
 * moments 2 and 4 one chunk, 10 bytes, is idle: it leaves if that is more than may stay. Nothing else is ever idle:
 * what has once stayed does not count any more, so that 10 of 30 bytes keep all three chunks on the device.
 */
START_TEST(static_moves_by_hand)
{
    expect_moves(0, 0, "0+0 2-0 2+1 4-1 4+2 8-2 8+1 10-1 10+0 12-0");
    expect_moves(9, 0, "0+0 2-0 2+1 4-1 4+2 8-2 8+1 10-1 10+0 12-0");
    expect_moves(10, 0, "0+0 2+1 4+2 8-2 10-1 12-0");
    expect_moves(0, 1, "2+1 4-1 4+2 8-2 8+1 10-1");
    expect_moves(0, 3, "");
}
END_TEST

/* The same with PatrickStar's manager and room for two chunks: before moment 4 chunk 0 leaves, which is used last. At
   moment 10 there is room, since gradients have left. Iterations begin with all chunks on the host. */
START_TEST(gradients_leave)
{
    static const struct {
        int32_t moment, chunk;
        bool in;
    } want[] = {{0, 0, 1}, {2, 1, 1}, {4, 0, 0}, {4, 2, 1}, {8, 2, 0}, {10, 1, 0}, {10, 0, 1}, {12, 0, 0}};
    struct ht_chunk_moment moments[12];
    for (int u = 0; u < 6; u++) {
        moments[u] = moments[11 - u] = (struct ht_chunk_moment){.needs = {u / 2, -1}};
        if (u % 2 == 0) moments[11 - u].ends = u / 2 + 1;
    }
    struct ht_chunk_room room = {.chunk_bytes = 10, .usable_bytes = 20, .gradients_leave = true};
    struct ht_chunk_moves m;
    struct ht_error err = {0};
    ck_assert_msg(ht_chunks_move(moments, 12, 3, &room, &err, &m, NULL) == HT_OK, "%s", err.text);
    ck_assert_int_eq(m.n, (int32_t)HT_COUNT(want));
    for (int32_t i = 0; i < m.n; i++)
        ck_assert(m.rows[i].moment == want[i].moment && m.rows[i].chunk == want[i].chunk &&
                  m.rows[i].to_device == want[i].in);
    for (int32_t c = 0; c < 3; c++) ck_assert(!m.at_start[c]);
    ht_chunk_moves_free(&m);
}
END_TEST

/* ---- the graph -------------------------------------------------------------------------------------------------- */

/* Names of all ops in order: "+" to the device, "-" from it, "<" from the disk, ">" to it. */
static void expect_ops(const struct ht_schedule *s, const char *want)
{
    static const char signs[HT_N_LANE_KINDS] = {[HT_LANE_H2D] = '+', [HT_LANE_D2H] = '-'};
    char got[1024] = "";
    for (int32_t i = 0; i < s->n_ops; i++) {
        enum ht_lane_kind lane = s->lanes[s->ops[i].lane].kind;
        char sign[2] = {signs[lane]};
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%s%s", i ? " " : "", sign, s->ops[i].name);
    }
    ck_assert_str_eq(got, want);
}

/* Simulates three iterations, each of which must take so many units. */
static void ends_every(struct ht_schedule *s, int64_t disk, int64_t units)
{
    const struct price prices[] = {
        {HT_OP_FORWARD, HT_LANE_COMPUTE, 10},  {HT_OP_RECOMPUTE, HT_LANE_COMPUTE, 10},
        {HT_OP_BACKWARD, HT_LANE_COMPUTE, 20}, {HT_OP_RESTORE, HT_LANE_COMPUTE, 1},
        {HT_OP_COPY, HT_LANE_D2H, 7},          {HT_OP_COPY, HT_LANE_H2D, 8},
        {HT_OP_COPY, HT_LANE_DISK, disk},      {HT_OP_OPTIMIZER_STEP, HT_LANE_HOST, 30},
    };
    int64_t *cost_ns = priced(s, prices, HT_COUNT(prices), true);
    struct ht_trace *t = simulated(s, cost_ns, 3);
    for (int32_t k = 0; k < 3; k++) ck_assert_int_eq(t->iteration_end_ns[k], (k + 1) * units * UNIT_NS);
    ht_trace_destroy(t);
    free(cost_ns);
}

/*
 * gpt-mini: embedding, 4 blocks, head. Chunks of 50112: 0 = {embedding}, 1, 2, 3 = {block}, 4 = {block 4, head}. The
 * table is tied, so the head needs chunk 0 as well. Everything is offloaded. Which chunk is on the device:
 *
 *     F0 0   F1 1   F2 2   F3 3   F4 4   F5 B5 4 and 0   R4 B4 4   R3 B3 3   R2 B2 2   R1 B1 1   B0 0
 *
 * The first time a chunk comes as W and is cast. Chunk 0 comes again for F5 and for B0, chunks 3, 2, 1 for their
 * backward passes. 0 to 3 leave in the forward pass and 0 before R4 with parameters, then all five leave with
 * gradients. Nothing overlaps:
 *
 *     6 F 60, 4 R 40, 6 B 120, 5 casts 5, to the device 10 x 8, from it 10 x 7: 375
 *
 * Six units are stepped. A write is waited for before the next step, and only reads are hidden. With 20 for a read or a
 * write and 30 for a step: R0 20, then 6 x (30 + 20): 320. The read of a unit begins with the step of the one before.
 *
 *     in   R0 0-20  R1 20-40           R2 70-90 ..
 *     cpu           C0 20-50           C1 70-100 ..             C5 270-300
 *     out                    W0 50-70            W1 100-120 ..             W5 300-320
 *
 * With 80 a read, from where the step begins, is as long as the step and most of the write: R0 80, then 6 x (30 + 80):
 * 740.
 */
START_TEST(an_iteration_by_hand)
{
    struct ht_scenario sc = scenario_on_disk(2, "bf16", 0);
    struct ht_plan plan = {0};
    struct ht_schedule *s = build_with(&ht_gemini, &sc, "chunk=50112 offload_param_frac=1", &plan);
    proved_peak(s, "by hand");
    expect_ops(s,
               "+W0 cast0 F0 -C0 +W1 cast1 F1 -C1 +W2 cast2 F2 -C2 +W3 cast3 F3 -C3 +W4 cast4 F4 +C0 F5 B5 -C0 R4 B4 "
               "-C4 +C3 R3 B3 -C3 +C2 R2 B2 -C2 +C1 R1 B1 -C1 +C0 B0 -C0 "
               "RS0 RS1 O0 WS0 RS2 O1 WS1 RS3 O2 WS2 RS4 O3 WS3 RS5 O4 WS4 O5 WS5");
    ends_every(s, 20, 375 + 320);
    ends_every(s, 80, 375 + 740);
    ht_schedule_destroy(s);
    ht_plan_free(&plan);
    ht_scenario_free(&sc);
}
END_TEST

/*
 * The states of chunks 0 and 1 (embedding, block 1) stay on the device: three of five are offloaded. Of the
 * parameters, 20480 + 4 x 49984 + 128, half may be on SSDs: 110272. Blocks 2 and 3 are; block 4 would be too many; the
 * head, 128, is. Parameters stay from their first use on. Block 4's step does not wait for the write of block 3's states,
 * the head's step does, and the device's steps come last.
 */
START_TEST(partly_offloaded_by_hand)
{
    struct ht_scenario sc = scenario_on_disk(2, "bf16", 0);
    struct ht_plan plan = {0};
    struct ht_schedule *s =
        build_with(&ht_gemini, &sc, "chunk=50112 offload_optim_frac=0.6 nvme_offload_fraction=0.5", &plan);
    proved_peak(s, "partly");
    expect_ops(s, "F0 F1 +W2 cast2 F2 +W3 cast3 F3 +W4 cast4 F4 F5 B5 R4 B4 -C4 R3 B3 -C3 R2 B2 -C2 R1 B1 B0 "
                  "RS2 RS3 O2 WS2 RS5 O3 O4 WS3 O5 WS5 U0 U1");
    ht_schedule_destroy(s);
    ht_plan_free(&plan);
    ht_scenario_free(&sc);
}
END_TEST

/* A chunk of 5e6 elements holds the whole model. While it is cast, its FP32 and its 16-bit copy are on the device, with
   their unused ends: 6 bytes an element. */
START_TEST(a_cast_holds_both_chunks)
{
    struct ht_scenario sc = scenario_on_disk(2, "bf16", 0);
    struct ht_plan plan = {0};
    struct ht_schedule *s = build_with(&ht_gemini, &sc, "chunk=5000000 offload_param_frac=1", &plan);
    int64_t peak = proved_peak(s, "one chunk"), most = (int64_t)6 * 5000000;
    ck_assert_int_ge(peak, most);
    ck_assert_int_lt(peak, most + 100000); /* rounded up to 512, tensor by tensor */
    ht_schedule_destroy(s);
    ht_plan_free(&plan);
    ht_scenario_free(&sc);
}
END_TEST

/* Every plan is proved. Between iterations, with everything offloaded, n chunks of E parameters: in 16 bit 4 n E on the
   host, and 2 bytes for each unused element; in FP32 4 n E. On disk are 8 bytes for each parameter on SSDs. */
START_TEST(every_plan_is_proved)
{
    static const char *const numerics[] = {"fp32", "fp16", "bf16"};
    static const char *const sets[] = {"",
                                       "auto=1",
                                       "auto=1 steady_cuda_cap_ratio=0.3 chunk=50112",
                                       "offload_param_frac=1",
                                       "offload_param_frac=1 chunk=50112 c=2",
                                       "offload_optim_frac=1 chunk=100096 c=0",
                                       "offload_optim_frac=0.5 chunk=50112",
                                       "offload_optim_frac=0.7 chunk=50112 nvme_offload_fraction=0.4",
                                       "offload_param_frac=1 nvme_offload_fraction=0"};
    for (size_t n = 0; n < HT_COUNT(numerics); n++)
        for (int64_t micro_batch = 1; micro_batch <= 2; micro_batch++)
            for (size_t k = 0; k < HT_COUNT(sets); k++) {
                struct ht_scenario sc = scenario_on_disk(micro_batch, numerics[n], 0);
                struct ht_plan plan = {0};
                struct ht_schedule *s = build_with(&ht_gemini, &sc, sets[k], &plan);
                proved_peak(s, sets[k]);
                ck_assert_int_eq(resident_bytes(s, HT_DISK), plan.planned_bytes[HT_DISK]);
                int64_t chunks = ht_plan_get(&plan, "chunks"), elements = ht_plan_get(&plan, "chunk");
                if (strstr(sets[k], "offload_param_frac=1") && !strstr(sets[k], "nvme")) {
                    int64_t unused = chunks * elements - ht_model_params(&sc.model);
                    ck_assert_int_eq(resident_bytes(s, HT_HOST), 4 * chunks * elements + (n > 0 ? 2 * unused : 0));
                    ck_assert_int_eq(resident_bytes(s, HT_DISK), 8 * ht_model_params(&sc.model));
                    ck_assert_int_eq(resident_bytes(s, HT_DEVICE), 0);
                }
                ht_schedule_destroy(s);
                ht_plan_free(&plan);
                ht_scenario_free(&sc);
            }
}
END_TEST

/* ---- the planner ------------------------------------------------------------------------------------------------ */

/* Returns true if the device holds the schedule of these variables. */
static bool fits(const struct ht_scenario *sc, const char *set)
{
    struct ht_plan plan = {0};
    struct ht_proof proof;
    struct ht_error err = {0};
    struct ht_schedule *s = build_with(&ht_gemini, sc, set, &plan);
    enum ht_status status = ht_schedule_verify(s, &err, &proof);
    ck_assert_msg(!status || strstr(err.text, "on device"), "%s", err.text);
    ht_proof_free(&proof);
    ht_schedule_destroy(s);
    ht_plan_free(&plan);
    return status == HT_OK;
}

/* By budget: the planner takes the fewest chunks with offloaded states with which the device holds everything; where it
   lets parameters leave, nothing else fits. With more memory it offloads less. */
START_TEST(the_fewest_chunks_are_offloaded)
{
    int64_t before = 2 * HT_PPB;
    int none = 0, some = 0, all = 0, parameters = 0;
    for (int64_t kib = 600; kib <= 4500; kib += 150) {
        struct ht_scenario sc = scenario_on_disk(2, "fp16", kib << 10);
        struct ht_plan plan = {0};
        struct ht_error err = {0};
        char set[96];
        ck_assert_msg(plan_with(&ht_gemini, &sc, "chunk=50112", &err, &plan) == HT_OK, "%s", err.text);
        int64_t optim = ht_plan_get(&plan, "offload_optim_frac"), param = ht_plan_get(&plan, "offload_param_frac");
        ck_assert_int_le(optim + param, before);
        ck_assert_int_eq(optim * 5 % HT_PPB, 0);
        before = optim + param;
        snprintf(set, sizeof set, "chunk=50112 offload_optim_frac=%.9f offload_param_frac=%.9f", (double)optim / HT_PPB,
                 (double)param / HT_PPB);
        ck_assert_msg(fits(&sc, set), "%lld KiB: %s", (long long)kib, set);
        snprintf(set, sizeof set, "chunk=50112 offload_optim_frac=%.9f offload_param_frac=0",
                 param ? 1 : (double)(optim - HT_PPB / 5) / HT_PPB);
        if (optim) ck_assert_msg(!fits(&sc, set), "%lld KiB: %s", (long long)kib, set);
        none += !optim;
        all += optim == HT_PPB && !param;
        some += optim && optim < HT_PPB;
        parameters += param > 0;
        ht_plan_free(&plan);
        ht_scenario_free(&sc);
    }
    ck_assert(none && some && all && parameters);
}
END_TEST

static void refused_with(const char *set, const char *text)
{
    struct ht_scenario sc = scenario_on_disk(2, "fp16", 0);
    struct ht_plan plan = {0};
    struct ht_error err = {0};
    ck_assert_int_eq(plan_with(&ht_gemini, &sc, set, &err, &plan), HT_BAD_INPUT);
    ck_assert_msg(strstr(err.text, text) != NULL, "%s", err.text);
    ht_plan_free(&plan);
    ht_scenario_free(&sc);
}

START_TEST(contradictions_are_refused)
{
    refused_with("auto=1 offload_optim_frac=0.5", "auto=1 offloads all optimizer states");
    refused_with("auto=1 offload_param_frac=1", "auto=1 offloads all optimizer states");
    refused_with("offload_optim_frac=0.5 offload_param_frac=1", "needs offload_optim_frac=1");
}
END_TEST

START_TEST(ssds_are_asked_for_when_something_goes_there)
{
    struct ht_scenario_request r = {.model = "gpt-mini", .cluster = "local", .batch = 2, .seq = 8};
    struct ht_scenario sc = scenario_from(&r);
    struct ht_plan plan = {0};
    struct ht_error err = {0};
    ck_assert_int_eq(plan_with(&ht_gemini, &sc, "", &err, &plan), HT_INFEASIBLE);
    ck_assert_msg(strstr(err.text, "keeps tensors on SSDs") != NULL, "%s", err.text);
    ht_plan_free(&plan);
    struct ht_schedule *s =
        build_with(&ht_gemini, &sc, "offload_param_frac=1 chunk=50112 nvme_offload_fraction=0", &plan);
    proved_peak(s, "without SSDs");
    ht_schedule_destroy(s);
    ht_plan_free(&plan);
    ht_scenario_free(&sc);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, static_moves_by_hand);
    tcase_add_test(t, gradients_leave);
    tcase_add_test(t, an_iteration_by_hand);
    tcase_add_test(t, partly_offloaded_by_hand);
    tcase_add_test(t, a_cast_holds_both_chunks);
    tcase_add_test(t, every_plan_is_proved);
    tcase_add_test(t, the_fewest_chunks_are_offloaded);
    tcase_add_test(t, contradictions_are_refused);
    tcase_add_test(t, ssds_are_asked_for_when_something_goes_there);
}

int main(void)
{
    return run_suite("gemini", add);
}
