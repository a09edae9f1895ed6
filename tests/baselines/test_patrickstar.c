/* PatrickStar: packing, evictions and an iteration worked out by hand; the manager's rules over random accesses; and
   the verifier proves what the manager allows. */
#include "tests/baselines/plans.h"

#include "baselines/chunks.h"
#include "common/base/rng.h"
#include "tests/support/sanitized.h"

#define MODEL HT_SOURCE_DIR "/tests/baselines/gpt-12.yaml"

/* ---- packing --------------------------------------------------------------------------------------------------- */

/* Units of 3, 2, 2, 4, 1 in chunks of 5: 3 and 2 fill the first; 2 leaves 3, too few for 4; 4 and 1 fill the third. */
START_TEST(packing_by_hand)
{
    static const int64_t units[] = {3, 2, 2, 4, 1};
    static const int32_t chunk[] = {0, 0, 1, 2, 2}, first[] = {0, 2, 3, 5};
    static const int64_t unused[] = {0, 3, 0};
    struct ht_chunks c;
    struct ht_error err = {0};
    ck_assert(ht_chunks_pack(units, 5, 5, &err, &c) == HT_OK);
    ck_assert_int_eq(c.n, 3);
    for (int i = 0; i < 5; i++) ck_assert_int_eq(c.of_unit[i], chunk[i]);
    for (int i = 0; i < 4; i++) ck_assert_int_eq(c.first[i], first[i]);
    for (int i = 0; i < 3; i++) ck_assert_int_eq(c.unused[i], unused[i]);
    ht_chunks_free(&c);
    ck_assert(ht_chunks_pack(units, 5, 3, &err, &c) == HT_INFEASIBLE);
    ck_assert_msg(strstr(err.text, "at least 4") != NULL, "%s", err.text);
}
END_TEST

/*
 * Units as above, 12 elements. All chunks of a size together:
 *     4: [3][2 2][4][1]   16        6: [3 2][2 4][1]   18        8: [3 2 2][4 1]   16
 *     5: [3 2][2][4 1]    15        7: [3 2 2][4 1]    14       12: [3 2 2 4 1]    12
 */
START_TEST(chunk_size_by_hand)
{
    static const int64_t units[] = {3, 2, 2, 4, 1};
    ck_assert_int_eq(ht_chunks_search(units, 5, 0, 8), 7);
    ck_assert_int_eq(ht_chunks_search(units, 5, 0, 7), 7);
    ck_assert_int_eq(ht_chunks_search(units, 5, 0, 6), 5);
    ck_assert_int_eq(ht_chunks_search(units, 5, 0, 4), 4);
    ck_assert_int_eq(ht_chunks_search(units, 5, 0, 1), 4); /* nothing smaller holds the unit of 4 */
    ck_assert_int_eq(ht_chunks_search(units, 5, 8, 11), 8);
    ck_assert_int_eq(ht_chunks_search(units, 5, 8, 12), 12);
    ck_assert_int_eq(ht_chunks_search(units, 5, 20, 20), 20); /* no sum is so large */
}
END_TEST

/* ---- moving ---------------------------------------------------------------------------------------------------- */

struct step {
    int32_t moment, chunk;
    bool to_device;
};

static void expect_moves(const struct ht_chunk_moves *m, const struct step *want, int32_t n)
{
    for (int32_t i = 0; i < n && i < m->n; i++)
        ck_assert_msg(m->rows[i].moment == want[i].moment && m->rows[i].chunk == want[i].chunk &&
                          m->rows[i].to_device == want[i].to_device,
                      "move %d: chunk %d %s before moment %d", i, m->rows[i].chunk, m->rows[i].to_device ? "in" : "out",
                      m->rows[i].moment);
    ck_assert_int_eq(m->n, n);
}

/*
 * Three chunks of two units, room for two. Moments 0 .. 5 are forward, 6 .. 11 backward. The steady state begins with
 * chunks 0 and 1 there. Moment 4 (F4) needs 2: chunk 0 is used next at 10 (B1), chunk 1 at 8 (B3), so 0 leaves. Moment
 * 10 needs 0: chunk 1 is used next at 12 + 2, chunk 2 at 12 + 4, so 2 leaves; and the iteration ends as it began.
 */
START_TEST(eviction_by_hand)
{
    static const struct step want[] = {{4, 0, false}, {4, 2, true}, {10, 2, false}, {10, 0, true}};
    struct ht_chunk_moment moments[12];
    for (int u = 0; u < 6; u++)
        moments[u] = moments[11 - u] = (struct ht_chunk_moment){.non_model_bytes = 0, .needs = {u / 2, -1}};
    struct ht_chunk_room room = {.chunk_bytes = 10, .usable_bytes = 25, .fixed_bytes = 5};
    struct ht_chunk_moves m;
    struct ht_error err = {0};
    ck_assert_msg(ht_chunks_move(moments, 12, 3, &room, &err, &m, NULL) == HT_OK, "%s", err.text);
    ck_assert(m.at_start[0] && m.at_start[1] && !m.at_start[2]);
    expect_moves(&m, want, 4);
    ht_chunk_moves_free(&m);
}
END_TEST

/*
 * Room 20, chunks of 10, non-model data 0, 10, 0. Moments 0 and 1 have room for one (the next moment counts), moment 2
 * for two. It needs 0, 1, 0. Steady state, from {0, 1}: 1 must leave before moment 0 although nothing is fetched;
 * moment 1 exchanges them; moment 2 fetches 0 beside 1.
 */
START_TEST(non_model_data_drive_chunks_out)
{
    static const struct step want[] = {{0, 1, false}, {1, 0, false}, {1, 1, true}, {2, 0, true}};
    static const struct ht_chunk_moment moments[] = {{0, {0, -1}, 0}, {10, {1, -1}, 0}, {0, {0, -1}, 0}};
    struct ht_chunk_room room = {.chunk_bytes = 10, .usable_bytes = 20};
    struct ht_chunk_moves m;
    struct ht_error err = {0};
    ck_assert(ht_chunks_move(moments, 3, 2, &room, &err, &m, NULL) == HT_OK);
    expect_moves(&m, want, 4);
    ht_chunk_moves_free(&m);
    /* with one byte less moment 0 has no room for its chunk */
    int32_t where = -1;
    room.usable_bytes = 19;
    ck_assert(ht_chunks_move(moments, 3, 2, &room, &err, &m, &where) == HT_INFEASIBLE);
    ck_assert_int_eq(where, 0);
    /* a chunk that is pinned takes its room for good */
    room = (struct ht_chunk_room){.chunk_bytes = 10, .usable_bytes = 25, .n_pinned = 1};
    ck_assert(ht_chunks_move(moments, 3, 2, &room, &err, &m, &where) == HT_INFEASIBLE);
    ck_assert_int_eq(where, 1);
}
END_TEST

/* Finds by a plain search the first moment after t that needs the chunk; moments of the next iteration are numbered
   on. */
static int32_t used_next(const struct ht_chunk_moment *m, int32_t n, int32_t chunk, int32_t t)
{
    for (int32_t k = 1; k <= n; k++)
        for (int i = 0; i < HT_CHUNK_NEEDS; i++)
            if (m[(t + k) % n].needs[i] == chunk) return t + k;
    return INT32_MAX;
}

static int32_t below(uint64_t *draws, uint64_t n)
{
    return (int32_t)ht_random_below(7, (*draws)++, n);
}

/* Random moments: what is needed is there, the room is kept, the chunk that leaves is used last of those that could,
   nothing pinned leaves, and the iteration ends as it began. */
START_TEST(the_manager_keeps_its_rules)
{
    uint64_t draws = 0;
    int feasible = 0;
    for (int trial = 0; trial < 3000; trial++) {
        int32_t n = 1 + below(&draws, 20), chunks = 1 + below(&draws, 7);
        struct ht_chunk_moment moments[20];
        for (int32_t t = 0; t < n; t++) {
            moments[t].non_model_bytes = below(&draws, 30);
            moments[t].needs[0] = below(&draws, (uint64_t)chunks);
            moments[t].needs[1] = below(&draws, 4) ? -1 : below(&draws, (uint64_t)chunks);
        }
        struct ht_chunk_room room = {
            .chunk_bytes = 10, .usable_bytes = 20 + below(&draws, 60), .n_pinned = below(&draws, 2)};
        struct ht_chunk_moves m;
        struct ht_error err = {0};
        if (ht_chunks_move(moments, n, chunks, &room, &err, &m, NULL)) continue;
        feasible++;
        bool there[8];
        int32_t count = 0, next = 0;
        for (int32_t c = 0; c < chunks; c++) count += there[c] = m.at_start[c];
        for (int32_t t = 0; t <= n; t++) {
            for (; next < m.n && m.rows[next].moment == t; next++) {
                int32_t c = m.rows[next].chunk;
                ck_assert(there[c] != m.rows[next].to_device);
                if (!m.rows[next].to_device) ck_assert_int_ge(c, room.n_pinned);
                if (!m.rows[next].to_device && t < n)
                    for (int32_t other = room.n_pinned; other < chunks; other++)
                        if (there[other] && moments[t].needs[0] != other && moments[t].needs[1] != other)
                            ck_assert_int_ge(used_next(moments, n, c, t), used_next(moments, n, other, t));
                there[c] = m.rows[next].to_device;
                count += there[c] ? 1 : -1;
            }
            if (t == n) break;
            int64_t now = moments[t].non_model_bytes, after = moments[(t + 1) % n].non_model_bytes;
            ck_assert_int_le(count * 10, room.usable_bytes - (now > after ? now : after));
            for (int i = 0; i < HT_CHUNK_NEEDS; i++) ck_assert(moments[t].needs[i] < 0 || there[moments[t].needs[i]]);
        }
        ck_assert_int_eq(next, m.n);
        for (int32_t c = 0; c < chunks; c++) ck_assert(there[c] == m.at_start[c]);
        ht_chunk_moves_free(&m);
    }
    ck_assert_int_gt(feasible, 1000);
}
END_TEST

/* ---- the graph ------------------------------------------------------------------------------------------------- */

/* Simulates three iterations, each of which must take so many units. */
static void ends_every(struct ht_schedule *s, const struct price *prices, size_t n, int64_t units)
{
    int64_t *cost_ns = priced(s, prices, n, true);
    struct ht_trace *t = simulated(s, cost_ns, 3);
    for (int32_t k = 0; k < 3; k++) ck_assert_int_eq(t->iteration_end_ns[k], (k + 1) * units * UNIT_NS);
    ht_trace_destroy(t);
    free(cost_ns);
}

/*
 * gpt-mini: embedding 20480, blocks 12 x 64^2 + 13 x 64 = 49984, head 128 parameters. Chunks of 50112 in FP32, 200448
 * bytes: 0 = {embedding}, 1, 2, 3 = {block}, 4 = {block 4, head}. The device has 4.95 of them, all usable; one is the
 * manager's buffer. With one sequence of 8 tokens and full checkpointing, activations stay below 0.4 of a chunk.
 * Besides, a block's backward has its gradient (1), and from BH to B0 there is the table's (0.4). So there is room for
 * three chunks, from R4 to B1 for two (R_i because B_i comes next).
 *
 * Steady state, from {0, 1, 2}; "x(t)": used next at t.
 *     F3: 0(FH) 1(R1) 2(R2)   1 out, 3 in        R2: 3(F3') 4(F4')    4 out, 2 in
 *     F4: 0(FH) 2(R2) 3(R3)   2 out, 4 in        R1: 2(F2') 3(F3')    3 out, 1 in
 *     R4: 0(B0) 3(R3)         0 out              B0: room for three   0 in: {0, 1, 2} again
 * Then Adam: 0, 1, 2 are on the device: their gradients go out, their parameters come back; 3 and 4 are on the host.
 *
 * Forward and recompute 10, backward 20, D2H 7, H2D 8, CPU step 30. Moves run beside the kernels before them, one after
 * the other, and wait for those that touch their chunk: 1 leaves when F1 has ended, 0 when B5 has, 4 and 3 when their
 * gradients are there. F3, F4, R4 wait for moves:
 *
 *     compute  F0 F1 F2 0-30   F3 35-45   F4 F5 B5 50-90   R4 B4 R3 B3 97-157   R2 B2 R1 B1 B0 157-237
 *     moves    -1 20 +3 27-35  -2 35 +4 42-50  -0 90-97  -4 127 +2 134-142  -3 157 +1 164-172  +0 172-180
 *
 * Then Adam as one chain: 3 x (7 + 30 + 8) + 3 x 30 = 225, so 462 in all. If the host waits for each backward (check),
 * moves begin when the backward before them has ended:
 *
 *     compute  .. B3 157   R2 B2 172-202   R1 B1 217-247   B0 255-275
 *     moves    -4 157 +2 164-172   -3 202 +1 209-217   +0 247-255
 *
 * 275 + 225 = 500.
 */
START_TEST(an_iteration_by_hand)
{
    static const struct price prices[] = {
        {HT_OP_FORWARD, HT_LANE_COMPUTE, 10},  {HT_OP_RECOMPUTE, HT_LANE_COMPUTE, 10},
        {HT_OP_BACKWARD, HT_LANE_COMPUTE, 20}, {HT_OP_COPY, HT_LANE_D2H, 7},
        {HT_OP_COPY, HT_LANE_H2D, 8},          {HT_OP_OPTIMIZER_STEP, HT_LANE_HOST, 30},
    };
    static const char *const order[] = {"F0",  "F1",  "F2",  "-C1", "+C3", "F3", "-C2", "+C4", "F4",  "F5",
                                        "B5",  "-C0", "R4",  "B4",  "R3",  "B3", "-C4", "+C2", "R2",  "B2",
                                        "-C3", "+C1", "R1",  "B1",  "+C0", "B0", "-G0", "O0",  "+P0", "-G1",
                                        "O1",  "+P1", "-G2", "O2",  "+P2", "O3", "O4",  "O5"};
    struct ht_scenario sc = scenario_of("gpt-mini", 1, 1, 8, "fp32", 495 * 200448 / 100);
    struct ht_plan plan = {0};
    struct ht_schedule *s = build_with(&ht_patrickstar_ckpt, &sc, "chunk=50112 gpu_ratio=100", &plan);
    proved_peak(s, "by hand");
    ck_assert_int_eq(ht_plan_get(&plan, "os"), 0);
    ck_assert_int_eq(ht_plan_get(&plan, "moves"), 10);
    for (int32_t i = 0; i < s->n_ops && i < (int32_t)HT_COUNT(order); i++) {
        enum ht_lane_kind lane = s->lanes[s->ops[i].lane].kind;
        char name[32];
        snprintf(name, sizeof name, "%s%s", lane == HT_LANE_H2D ? "+" : lane == HT_LANE_D2H ? "-" : "", s->ops[i].name);
        ck_assert_str_eq(name, order[i]);
    }
    ck_assert_int_eq(s->n_ops, (int32_t)HT_COUNT(order));
    ends_every(s, prices, HT_COUNT(prices), 462);
    ht_schedule_destroy(s);
    ht_plan_free(&plan);
    s = build_with(&ht_patrickstar_ckpt, &sc, "chunk=50112 gpu_ratio=100 check=1", &plan);
    ends_every(s, prices, HT_COUNT(prices), 500);
    ht_schedule_destroy(s);
    ht_plan_free(&plan);
    ht_scenario_free(&sc);
}
END_TEST

/*
 * Between iterations, n chunks of E parameters, the first `os` with their states on the device, unused ends counted. 16
 * bit: 2 E of parameters in one tier and 12 E of states: 14 n E in all. FP32: parameters are master copies, 12 n E in
 * all, and a second copy, 4 E, of each host-stepped chunk that is on the device.
 */
START_TEST(fourteen_bytes_a_parameter)
{
    static const char *const sets[] = {"os=0", "os=2", "os=0 gpu_ratio=12", "os=99"};
    for (int fp32 = 0; fp32 < 2; fp32++)
        for (size_t i = 0; i < HT_COUNT(sets); i++) {
            struct ht_scenario sc = scenario_of(MODEL, 1, 1, 8, fp32 ? "fp32" : "fp16", 32 << 20);
            struct ht_plan plan = {0};
            struct ht_schedule *s = build_with(&ht_patrickstar_ckpt, &sc, sets[i], &plan);
            int64_t n = ht_plan_get(&plan, "chunks"), e = ht_plan_get(&plan, "chunk"), os = ht_plan_get(&plan, "os");
            int64_t device = resident_bytes(s, HT_DEVICE), host = resident_bytes(s, HT_HOST);
            if (fp32) {
                int64_t copies = (device - 12 * os * e) / (4 * e);
                ck_assert_int_eq(device, 12 * os * e + 4 * copies * e);
                ck_assert_int_eq(host, 12 * (n - os) * e);
                ck_assert_int_le(copies, n - os);
            } else {
                ck_assert_int_eq(device + host, 14 * n * e);
                ck_assert_int_ge(device, 14 * os * e);
            }
            ck_assert_int_eq(plan.planned_bytes[HT_HOST], (n - os) * e * (fp32 ? 16 : 14));
            proved_peak(s, sets[i]);
            ht_schedule_destroy(s);
            ht_plan_free(&plan);
            ht_scenario_free(&sc);
        }
}
END_TEST

/*
 * Non-model data at the backward of unit u with all blocks checkpointed, 16 bit: the inputs of units 1..u, the
 * activations of u, the gradient from above (at the head: the logits), that of u's input, u's and the table's
 * gradients, scratch. The largest of these is what the margin leaves free beside the chunks of 2 bytes a parameter:
 *     margin = usable - largest - 2 n E,   chunks with 12 bytes a parameter of states on the device = 0.8 margin / 12 E
 */
static int64_t largest_non_model_bytes(const struct ht_scenario *sc)
{
    const struct ht_model *m = &sc->model;
    int64_t head = m->layers + 1, inputs = 0, largest = 0;
    for (int64_t u = 1; u <= head; u++) {
        int64_t x = ht_live_bytes(ht_unit_input_bytes(m, u, sc->micro_batch, sc->seq, HT_F16));
        int64_t above = u == head ? ht_logits_bytes(m, sc->micro_batch, sc->seq)
                                  : ht_unit_input_bytes(m, u + 1, sc->micro_batch, sc->seq, HT_F16);
        inputs += x;
        int64_t live = inputs + ht_live_bytes(ht_unit_activation_bytes(m, u, sc->micro_batch, sc->seq, HT_F16)) +
                       ht_live_bytes(above) + x + ht_live_bytes(2 * ht_unit_params(m, u)) +
                       ht_live_bytes(2 * ht_unit_params(m, 0)) +
                       ht_live_bytes(ht_unit_workspace_bytes(m, u, sc->micro_batch, sc->seq, HT_F16, true));
        if (live > largest) largest = live;
    }
    return largest;
}

START_TEST(the_margin_by_hand)
{
    static const int64_t percents[] = {80, 40};
    int different = 0;
    for (size_t i = 0; i < HT_COUNT(percents); i++)
        for (int64_t mib = 6; mib <= 14; mib++) {
            struct ht_scenario sc = scenario_of(MODEL, 2, 2, 64, "fp16", mib << 20);
            char set[64];
            struct ht_plan plan = {0};
            struct ht_error err = {0};
            snprintf(set, sizeof set, "chunk=50112 margin_ratio=%d", (int)percents[i]);
            ck_assert_msg(plan_at(&ht_patrickstar_ckpt, &sc, NULL, set, &err, &plan) == HT_OK, "%s", err.text);
            int64_t n = ht_plan_get(&plan, "chunks"), usable = (mib << 20) * 80 / 100;
            ck_assert_int_eq(n, 13);
            int64_t margin = usable - largest_non_model_bytes(&sc) - n * 2 * 50112;
            int64_t os = margin > 0 ? margin * percents[i] / 100 / (12 * 50112) : 0;
            ck_assert_int_eq(ht_plan_get(&plan, "os"), os < n ? os : n);
            ck_assert_double_eq(input_of(&plan, "non_model_peak"), (double)largest_non_model_bytes(&sc));
            ck_assert_double_eq(input_of(&plan, "device_memory"), (double)(mib << 20));
            ck_assert_double_eq(input_of(&plan, "states_of_a_parameter"), 12);
            different += os > 0 && os < n;
            ht_plan_free(&plan);
            ht_scenario_free(&sc);
        }
    ck_assert_int_gt(different, 5);
}
END_TEST

/* The host never holds more than the plan says, but for one unit's gradient beside its new parameters (16 bit: 2 bytes
   each) and the rounding of each tensor to 512 bytes. */
START_TEST(the_host_keeps_to_the_plan)
{
    for (int64_t mib = 2; mib <= 12; mib++) {
        struct ht_scenario sc = scenario_of(MODEL, 1, 1, 16, "fp16", mib << 20);
        struct ht_plan plan = {0};
        struct ht_error err = {0};
        struct ht_proof proof;
        struct ht_schedule *s = build_with(&ht_patrickstar_ckpt, &sc, "", &plan);
        ck_assert_msg(ht_schedule_verify(s, &err, &proof) == HT_OK, "%s", err.text);
        int64_t largest = 2 * ht_unit_params(&sc.model, 1), rounding = 512 * (int64_t)s->n_tensors;
        int64_t peak = proof.spaces[ht_space(s, HT_HOST, 0)].peak_bytes;
        ck_assert_int_le(peak, plan.planned_bytes[HT_HOST] + largest + rounding);
        ht_proof_free(&proof);
        ht_schedule_destroy(s);
        ht_plan_free(&plan);
        ht_scenario_free(&sc);
    }
}
END_TEST

/* Budgets from too small to more than enough, by numerics, micro-batches, checkpointing and chunk size: a plan is
   proved by the verifier; no plan names the OOM; and where there was a plan there is one with more memory. */
START_TEST(what_the_manager_allows_is_proved)
{
    static const char *const numerics[] = {"fp32", "fp16"};
    static const int64_t micro_batches[] = {4, 2, 1};
    static const char *const chunks[] = {"", "chunk=50112", "chunk=70464", "chunk=130000", "chunk=650000"};
    static const struct ht_system *const systems[] = {&ht_patrickstar, &ht_patrickstar_ckpt};
    int planned = 0, refused = 0, with_states = 0, moving = 0;
    for (size_t n = 0; n < HT_COUNT(numerics); n++)
        for (size_t j = 0; j < HT_COUNT(micro_batches); j++)
            for (size_t k = 0; k < HT_COUNT(chunks); k++)
                for (int v = 0; v < 2; v++) {
                    bool before = false;
                    for (int64_t kib = 256; kib <= 32768; kib += kib / (SANITIZED ? 3 : 8)) {
                        struct ht_scenario sc = scenario_of(MODEL, 4, micro_batches[j], 32, numerics[n], kib << 10);
                        struct ht_plan plan = {0};
                        struct ht_error err = {0};
                        enum ht_status status = plan_at(systems[v], &sc, NULL, chunks[k], &err, &plan);
                        ck_assert_msg(status == HT_OK || status == HT_INFEASIBLE, "%s", err.text);
                        ck_assert_msg(!before || status == HT_OK, "%lld KiB: %s", (long long)kib, err.text);
                        if (status) {
                            ck_assert_msg(strstr(err.text, "OOM in patrickstar") != NULL, "%s", err.text);
                            refused++;
                        } else {
                            struct ht_schedule *s = build_with(systems[v], &sc, chunks[k], &plan);
                            proved_peak(s, chunks[k]);
                            ht_schedule_destroy(s);
                            planned++;
                            with_states += ht_plan_get(&plan, "os") > 0;
                            moving += ht_plan_get(&plan, "moves") > 0;
                        }
                        before = status == HT_OK;
                        ht_plan_free(&plan);
                        ht_scenario_free(&sc);
                    }
                }
    int few = SANITIZED ? 30 : 100;
    ck_assert_int_gt(planned, 5 * few);
    ck_assert_int_gt(refused, 3 * few);
    ck_assert_int_gt(with_states, few);
    ck_assert_int_gt(moving, few);
}
END_TEST

/* Every number of chunks with states on the device, at a size where all of them fit. */
START_TEST(any_share_of_states_on_the_device)
{
    static const char *const numerics[] = {"fp32", "fp16"};
    for (size_t n = 0; n < HT_COUNT(numerics); n++)
        for (int64_t mb = 1; mb <= 4; mb *= 2)
            for (int os = 0; os <= 13; os++) {
                struct ht_scenario sc = scenario_of(MODEL, 4, mb, 32, numerics[n], 64 << 20);
                char set[64];
                struct ht_plan plan = {0};
                snprintf(set, sizeof set, "chunk=50112 os=%d", os);
                struct ht_schedule *s = build_with(&ht_patrickstar, &sc, set, &plan);
                proved_peak(s, set);
                int32_t on_device = 0;
                for (int32_t i = 0; i < s->n_ops; i++)
                    on_device +=
                        s->ops[i].kind == HT_OP_OPTIMIZER_STEP && s->lanes[s->ops[i].lane].kind == HT_LANE_COMPUTE;
                /* one unit a chunk, but the last block and the head share one */
                ck_assert_int_eq(on_device, os == 13 ? 14 : os);
                ht_schedule_destroy(s);
                ht_plan_free(&plan);
                ht_scenario_free(&sc);
            }
}
END_TEST

START_TEST(what_does_not_fit_is_an_answer)
{
    struct ht_scenario sc = scenario_of(MODEL, 4, 4, 32, "fp32", 64 << 20);
    struct ht_plan plan = {0};
    struct ht_error err = {0};
    ck_assert(plan_at(&ht_patrickstar, &sc, NULL, "chunk=100", &err, &plan) == HT_INFEASIBLE);
    ck_assert_msg(strstr(err.text, "largest unit") != NULL, "%s", err.text);
    sc.cluster->nodes[0].ram_bytes = 1 << 20;
    ck_assert(plan_at(&ht_patrickstar, &sc, NULL, "os=0", &err, &plan) == HT_INFEASIBLE);
    ck_assert_msg(strstr(err.text, "on the host") != NULL, "%s", err.text);
    ht_plan_free(&plan);
    ht_scenario_free(&sc);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, packing_by_hand);
    tcase_add_test(t, chunk_size_by_hand);
    tcase_add_test(t, eviction_by_hand);
    tcase_add_test(t, non_model_data_drive_chunks_out);
    tcase_add_test(t, the_manager_keeps_its_rules);
    tcase_add_test(t, an_iteration_by_hand);
    tcase_add_test(t, fourteen_bytes_a_parameter);
    tcase_add_test(t, the_margin_by_hand);
    tcase_add_test(t, the_host_keeps_to_the_plan);
    tcase_add_test(t, what_the_manager_allows_is_proved);
    tcase_add_test(t, any_share_of_states_on_the_device);
    tcase_add_test(t, what_does_not_fit_is_an_answer);
}

int main(void)
{
    return run_suite("patrickstar", add);
}
