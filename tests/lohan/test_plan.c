/* LoHan's planner: MEM_avail, placement, what is forced, and what is refused. */
#include "common/plan/candidate.h"
#include "tests/lohan/helpers.h"

static int64_t fate(const struct ht_plan *plan, const char *part, int32_t block)
{
    return ht_plan_variable(plan, part)->values[block - 1];
}

/* Computes the bytes of a plan's activations with this fate. */
static int64_t bytes_of(const struct ht_scenario *sc, const struct ht_plan *plan, enum ht_fate which)
{
    struct lohan_layer *layers = HT_NEW_ARRAY(struct lohan_layer, sc->model.layers * HT_N_PARTS);
    int32_t n = lohan_layers(sc, layers);
    double bytes = 0;
    for (int32_t i = 0; i < n; i++)
        if (fate(plan, ht_part_names[layers[i].part], layers[i].unit) == which) bytes += layers[i].bytes;
    free(layers);
    return (int64_t)bytes;
}

static struct ht_scenario with_ram(const char *model, int64_t batch, int64_t ram)
{
    struct ht_scenario sc = on_ssds(model, 0, batch, 0, "fp16");
    sc.cluster->nodes[0].ram_bytes = ram;
    return sc;
}

/* Main memory by hand: 10B, 6144 wide; two groups of 12 bytes a parameter are the peak of the profiling iteration, while
   blocks 25 and 24 (or embedding and block 1) are in the buffers. So MEM_avail is at most the rest. */
START_TEST(mem_avail_is_what_profiling_leaves)
{
    struct ht_scenario sc = with_ram("autohete-10b", 24, 256000000000);
    struct ht_plan plan = {0}, probe = {0};
    const char *zeros = "0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0";
    const char *twos = "2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2";
    double block = 12.0 * 6144 * 6144 + 13 * 6144;
    ht_schedule_destroy(built(&lohan, &sc, "", &plan));
    double avail = input_of(&plan, "MEM_avail");
    ck_assert_double_le(avail, 256e9 - 2 * 12 * block);
    ck_assert_double_ge(avail,
                        256e9 - 2 * 12 * block - 4 * 2 * block - 0.5e9 * 7); /* P16, gradients, an input or two */
    /* The same iteration, asked for: it takes what MEM_avail leaves. */
    char set[600] = "", *at = set;
    for (int part = 0; part < HT_N_PARTS; part++)
        at += sprintf(at, " %s=%s", ht_part_names[part], part == HT_PART_INPUT ? twos : zeros);
    struct ht_schedule *s = built(&lohan, &sc, set, &probe);
    ck_assert_double_eq(256e9 - (double)host_bytes(s), avail);
    ht_schedule_destroy(s);
    ht_plan_free(&plan);
    ht_plan_free(&probe);
    ht_scenario_free(&sc);
}
END_TEST

/* In less and less main memory: what does not fit goes to the SSDs, from the first blocks on, no more than a layer too much;
   the schedule fits. */
START_TEST(what_main_memory_lacks_goes_to_ssds)
{
    static const int64_t ram[] = {256000000000, 120000000000, 64000000000, 32000000000, 24000000000};
    int spilled = 0;
    for (size_t i = 0; i < HT_COUNT(ram); i++) {
        struct ht_scenario sc = with_ram("autohete-10b", 24, ram[i]);
        struct ht_plan plan = {0};
        struct ht_schedule *s = built(&lohan, &sc, "", &plan);
        double avail = input_of(&plan, "MEM_avail"), swapped = (double)ht_plan_get(&plan, "A_G2M");
        double ssd = (double)ht_plan_get(&plan, "A_ssd"), least = swapped > avail ? swapped - avail : 0;
        double layer = 2.0 * 24 * 1024 * (6144 + 48 * 1024); /* attention, with its probabilities */
        ck_assert_double_ge(ssd, least);
        ck_assert_double_le(ssd, least + layer);
        ck_assert_double_eq(input_of(&plan, "alpha"), swapped > 0 ? ssd / swapped : 0);
        ck_assert_int_le(host_bytes(s), ram[i]);
        ck_assert_int_eq(bytes_of(&sc, &plan, HT_FATE_SSD), (int64_t)ssd);
        ck_assert_int_eq(bytes_of(&sc, &plan, HT_FATE_SSD) + bytes_of(&sc, &plan, HT_FATE_MAIN), (int64_t)swapped);
        for (int32_t u = 2; u <= 25; u++) ck_assert_int_ge(fate(&plan, "input", u - 1), fate(&plan, "input", u));
        spilled += ssd > 0;
        ht_schedule_destroy(s);
        ht_plan_free(&plan);
        ht_scenario_free(&sc);
    }
    ck_assert_int_ge(spilled, 2);
}
END_TEST

/* 24 GB hold the buffers, but not all that is worth swapping: LoHan spills, LoHan+CpuAct swaps less. With little more than
   the buffers LoHan+CpuAct and LoHan+DS do not fit, for the inputs alone are 7.5 GB. */
START_TEST(without_ssds_for_activations)
{
    struct ht_scenario sc = with_ram("autohete-10b", 24, 40000000000);
    struct ht_error err = {0};
    struct ht_plan plan = {0};
    struct ht_proof proof;
    struct ht_schedule *s = built(&lohan_cpuact, &sc, "", &plan);
    ck_assert_int_eq(ht_plan_get(&plan, "A_ssd"), 0);
    ck_assert_double_le((double)ht_plan_get(&plan, "A_G2M"), input_of(&plan, "MEM_avail"));
    ck_assert_double_eq(input_of(&plan, "case"), 0);
    ht_schedule_destroy(s);
    sc.cluster->nodes[0].ram_bytes = 18000000000;
    ht_schedule_destroy(built(&lohan, &sc, "", &plan));
    const struct ht_system *const two[] = {&lohan_cpuact, &lohan_ds};
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(plan_with(two[i], &sc, "", &err, &plan), HT_OK);
        ck_assert_int_eq(two[i]->build(two[i], &sc, &plan, &err, &s), HT_OK);
        ck_assert_int_eq(ht_schedule_verify(s, &err, &proof), HT_INFEASIBLE);
        ck_assert_msg(strstr(err.text, "host 0"), "%s", err.text);
        ht_proof_free(&proof);
        ht_schedule_destroy(s);
    }
    ht_plan_free(&plan);
    ht_scenario_free(&sc);
}
END_TEST

/* One SSD: the states' traffic binds at any amount. Mended, the inputs are swapped and no more. Literally the layer that
   reaches A_interBlock is missing: the last block's input stays on the GPU. */
START_TEST(literal_leaves_an_input)
{
    struct ht_scenario sc = on_ssds("autohete-10b", 0, 4, 0, "fp16");
    struct ht_plan plan = {0};
    sc.cluster->nodes[0].n_ssds = 1;
    ht_schedule_destroy(built(&lohan, &sc, "", &plan));
    ck_assert_double_eq(input_of(&plan, "case"), 1);
    ck_assert_double_eq((double)ht_plan_get(&plan, "A_G2M"), input_of(&plan, "A_interBlock"));
    ht_schedule_destroy(built(&lohan, &sc, "literal=1", &plan));
    ck_assert_int_eq(fate(&plan, "input", 24), HT_FATE_MAIN);
    ck_assert_int_eq(fate(&plan, "input", 25), HT_FATE_KEPT);
    ck_assert_double_eq((double)ht_plan_get(&plan, "A_G2M"), input_of(&plan, "A_interBlock") * 24 / 25);
    ht_plan_free(&plan);
    ht_scenario_free(&sc);
}
END_TEST

/* What is forced decides, and is what eqs. 1 to 5 are computed with. T_f = max(FLOP_f / THP_G, ..). */
START_TEST(forced_values_decide)
{
    struct ht_scenario sc = on_ssds("autohete-10b", 0, 8, 0, "fp16");
    struct ht_plan plan = {0};
    ht_schedule_destroy(
        built(&lohan, &sc, "THP_G=1000000000000 BW_G=3000000000 BW_S2M=5000000000 BW_M2S=4000000000", &plan));
    ck_assert_double_eq(input_of(&plan, "BW_G"), 3e9);
    ck_assert_double_eq(input_of(&plan, "BW_S2M"), 5e9);
    ck_assert_double_eq(input_of(&plan, "BW_M2S"), 4e9);
    ck_assert_double_eq_tol(input_of(&plan, "T_f"), input_of(&plan, "FLOP_f") / 1e12, 1e-9);
    ck_assert_double_eq_tol(plan.planned_s, input_of(&plan, "T_f") + input_of(&plan, "T_b"), 1e-9);
    ck_assert_double_eq(input_of(&plan, "case"), 2); /* so slow a GPU wants all */
    ht_schedule_destroy(built(&lohan, &sc, "A_G2M=5000000000 MEM_avail=3000000000", &plan));
    int64_t input = 2 * 8 * 1024 * 6144, swapped = ht_plan_get(&plan, "A_G2M");
    ck_assert_int_le(swapped, 5000000000);
    ck_assert_int_gt(swapped, 5000000000 - 4 * input);
    ck_assert_int_ge(ht_plan_get(&plan, "A_ssd"), swapped - 3000000000);
    ht_schedule_destroy(built(&lohan, &sc, "alpha=0.5", &plan));
    ck_assert_double_ge(input_of(&plan, "alpha"), 0.5);
    ck_assert_double_le(input_of(&plan, "alpha"), 0.6);
    ht_schedule_destroy(built(&lohan, &sc, "A_ssd=1000000000", &plan));
    ck_assert_int_ge(ht_plan_get(&plan, "A_ssd"), 1000000000);
    ck_assert_int_lt(ht_plan_get(&plan, "A_ssd"), 1000000000 + 4 * input);
    ht_plan_free(&plan);
    ht_scenario_free(&sc);
}
END_TEST

/* LoHan+DS and the authors' program have fixed fates; a whole recomputation of LoHan+DS repeats fc2. */
START_TEST(fixed_fates)
{
    struct ht_scenario sc = on_ssds("autohete-10b", 0, 24, 0, "fp16");
    struct ht_plan plan = {0};
    double f = 24.0 * 1024 * 6144 * 6144, attention = 4.0 * 24 * 1024 * 1024 * 6144;
    int64_t u = (int64_t)2 * 24 * 1024 * 6144;
    const char *zeros = "again_fc2=0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0";
    ht_schedule_destroy(built(&lohan_ds, &sc, "", &plan));
    ck_assert_double_eq(input_of(&plan, "FLOP_r"), 25 * (24 * f + attention));
    ck_assert_int_eq(ht_plan_get(&plan, "A_G2M"), (int64_t)25 * 2 * 24 * 1024 * 6144);
    ht_schedule_destroy(built(&lohan_ds, &sc, zeros, &plan));
    ck_assert_double_eq(input_of(&plan, "FLOP_r"), 25 * (16 * f + attention));
    ht_schedule_destroy(built(&lohan_artifact, &sc, "swap_ratio=0", &plan));
    ck_assert_int_eq(ht_plan_get(&plan, "A_G2M"), 2 * 25 * u); /* two checkpoints a block */
    ck_assert_double_eq(input_of(&plan, "FLOP_r"), 25 * (24 * f + attention));
    ck_assert_int_eq(ht_plan_get(&plan, "group"), 700000000);
    ht_schedule_destroy(built(&lohan_artifact, &sc, "", &plan));
    double fill = 0.3 * input_of(&plan, "FLOP_f") / input_of(&plan, "THP_G") * input_of(&plan, "BW_G");
    ck_assert_double_le((double)ht_plan_get(&plan, "A_G2M"), fill);
    ck_assert_double_ge((double)ht_plan_get(&plan, "A_G2M"), fill - 4.0 * (double)u);
    /* The first three kinds are u, u and 3u: 2 + 1 + 1 + 3 of them fit the 57 GB = 189 u, and then fc1 (4u) of 3 blocks. */
    ck_assert_int_eq(ht_plan_variable(&plan, "again_fc2")->values[24], LOHAN_OWN_COPY);
    ck_assert_int_eq(ht_plan_variable(&plan, "again_proj")->values[24], LOHAN_OWN_COPY);
    ck_assert_int_eq(fate(&plan, "qkv", 25), HT_FATE_MAIN);
    ck_assert_int_eq(fate(&plan, "fc1", 3), HT_FATE_MAIN);
    ck_assert_int_eq(fate(&plan, "fc1", 25), HT_FATE_RECOMPUTED);
    ht_schedule_destroy(
        built(&lohan_artifact, &sc, "swap_ratio=0.1", &plan)); /* 63 u: 50 for checkpoints, 13 for fc2 */
    ck_assert_int_eq(ht_plan_variable(&plan, "again_fc2")->values[12], LOHAN_OWN_COPY);
    ck_assert_int_eq(ht_plan_variable(&plan, "again_fc2")->values[14], LOHAN_AGAIN);
    ck_assert_int_eq(ht_plan_variable(&plan, "again_proj")->values[0], LOHAN_AGAIN);
    ht_plan_free(&plan);
    ht_scenario_free(&sc);
}
END_TEST

/*
 * A recomputation of a DiT's whole block makes fc2 again, whose product its gate's gradient reads; with gelu's output
 * that product comes back, 5 B T C in all, and is not made again. f = B T C^2: 24 f, attention 4 B T^2 C, the vectors
 * 12 B C^2. again_fc2 matters only where gelu is swapped.
 */
START_TEST(dit_makes_fc2_again)
{
    struct ht_scenario sc = on_ssds("dit-s-2", 2, 8, 0, "fp16");
    struct ht_plan plan = {0};
    double C = 384, f = 8.0 * 256 * C * C, block = 24 * f + 4.0 * 8 * 256 * 256 * C + 12.0 * 8 * C * C;
    int64_t u = (int64_t)2 * 8 * 256 * 384, input = (int64_t)2 * 8 * 257 * 384;
    const char *inputs = "input=1,1 norm1=0,0 qkv=0,0 attention=0,0 proj=0,0 norm2=0,0 fc1=0,0";
    static const struct {
        const char *more;
        int64_t units;
        double without;
    } cases[] = {
        {"gelu=0,0", 0, 0}, {"gelu=0,0 again_fc2=1,1", 0, 0}, {"gelu=1,1", 5, 8}, {"gelu=1,1 again_fc2=1,1", 5, 0}};
    for (size_t i = 0; i < HT_COUNT(cases); i++) {
        char set[256];
        snprintf(set, sizeof set, "%s %s", inputs, cases[i].more);
        ht_schedule_destroy(built(&lohan, &sc, set, &plan));
        ck_assert_double_eq(input_of(&plan, "FLOP_r"), 2 * (block - cases[i].without * f));
        ck_assert_int_eq(ht_plan_get(&plan, "A_G2M"), 2 * (input + cases[i].units * u));
    }
    ht_plan_free(&plan);
    ht_scenario_free(&sc);
}
END_TEST

/* 10B has 2P = 23 GB of gradients. They do not fit 26 GB beside the buffers, so they wait on the SSDs. */
START_TEST(gradients_that_do_not_fit_wait_on_ssds)
{
    struct ht_scenario sc = with_ram("autohete-10b", 4, 64000000000);
    struct ht_plan plan = {0};
    ht_schedule_destroy(built(&lohan_zero, &sc, "", &plan));
    ck_assert_int_eq(ht_plan_get(&plan, "g_ssd"), 0);
    sc.cluster->nodes[0].ram_bytes = 26000000000;
    ht_schedule_destroy(built(&lohan_zero, &sc, "", &plan));
    ck_assert_int_eq(ht_plan_get(&plan, "g_ssd"), 1);
    ht_plan_free(&plan);
    ht_scenario_free(&sc);
}
END_TEST

/* Builds a plan with variables forced and simulates it; returns the time of a steady iteration, s. */
static double simulated_s(const struct ht_scenario *sc, const char *set, struct ht_plan *plan)
{
    struct ht_error err = {0};
    struct ht_candidate x;
    struct ht_profile *profile = ht_profile_modelled(sc->cluster);
    int64_t ns = 0;
    ck_assert_int_eq(plan_with(&lohan, sc, set, &err, plan), HT_OK);
    ck_assert_msg(ht_candidate_prove(&lohan, sc, plan, &err, &x) == HT_OK, "%s: %s", set, err.text);
    ck_assert_msg(ht_candidate_simulate(&x, sc, profile, &err, &ns) == HT_OK, "%s", err.text);
    ht_candidate_free(&x);
    ht_profile_destroy(profile);
    return (double)ns / 1e9;
}

/* Simulated, no amount from A_interBlock to A_all is better than the planned one by more than 2.5%, on 12 SSDs and on 4
   with a quarter of the main memory; and the paper's own model is at most 13% below the simulation, never above. */
START_TEST(planned_amounts_simulate_well)
{
    static const int64_t batches[] = {4, 12, 24}, ssds[] = {12, 4};
    struct ht_plan plan = {0};
    for (size_t i = 0; i < HT_COUNT(batches) * HT_COUNT(ssds); i++) {
        struct ht_scenario sc = on_ssds("autohete-10b", 0, batches[i / 2], 0, "fp16");
        sc.cluster->nodes[0].n_ssds = ssds[i % 2];
        if (i % 2) sc.cluster->nodes[0].ram_bytes = 64000000000;
        double planned = simulated_s(&sc, "", &plan), model = plan.planned_s, all = input_of(&plan, "A_all");
        ck_assert_msg(model <= planned && planned <= 1.13 * model, "batch %d: %g s, by the equations %g s",
                      (int)batches[i / 2], planned, model);
        for (int k = 1; k <= 8; k++) {
            char set[64];
            snprintf(set, sizeof set, "A_G2M=%lld", (long long)(all * k / 8));
            double other = simulated_s(&sc, set, &plan);
            ck_assert_msg(planned <= 1.025 * other, "batch %d, %d SSDs: %g s; with %s %g s", (int)batches[i / 2],
                          (int)ssds[i % 2], planned, set, other);
        }
        ht_scenario_free(&sc);
    }
    ht_plan_free(&plan);
}
END_TEST

/*
 * Case 2, simulated: 13B on an RTX 3090, whose link hides all activations. Operations end at 10 of 16 A_interBlock; from
 * there T_iter is level, for norms and GELU count none. But they take time, so the edge of that plateau is not the best
 * of all amounts, and A_all, which the plan takes, is better.
 */
START_TEST(the_plateau_is_crossed)
{
    struct ht_scenario_request r = {
        .model = "lohan-headless-13b", .cluster = "lohan-3090", .batch = 32, .micro_batch = 32, .software = "torch"};
    struct ht_scenario sc = scenario_from(&r);
    struct ht_plan plan = {0};
    double planned = simulated_s(&sc, "", &plan), inter = input_of(&plan, "A_interBlock"), edge = 0, best = INFINITY;
    ck_assert_double_eq(input_of(&plan, "case"), 2);
    ck_assert_double_eq((double)ht_plan_get(&plan, "A_G2M"), input_of(&plan, "A_all"));
    for (int k = 1; k <= 16; k++) {
        char set[64];
        snprintf(set, sizeof set, "A_G2M=%lld", (long long)(inter * k));
        double other = simulated_s(&sc, set, &plan);
        best = fmin(best, other);
        if (k == 10) edge = other;
    }
    ck_assert_msg(best < edge && planned < edge && planned < 1.01 * best,
                  "%g s planned, %g s at the edge, %g s at best", planned, edge, best);
    ht_plan_free(&plan);
    ht_scenario_free(&sc);
}
END_TEST

/* Plans for a GPU with this memory, which the plan must fit. Returns the bytes of it that the plan takes. */
static int64_t device_bytes(const struct ht_system *system, struct ht_scenario *sc, int64_t memory,
                            struct ht_plan *plan)
{
    struct ht_error err = {0};
    struct ht_proof proof;
    sc->cluster->nodes[0].groups[0].gpu.memory_bytes = memory;
    struct ht_schedule *s = built(system, sc, "", plan);
    ck_assert_int_eq(ht_schedule_verify(s, &err, &proof), HT_OK);
    int64_t peak = proof.spaces[0].peak_bytes;
    ht_proof_free(&proof);
    ht_schedule_destroy(s);
    return peak;
}

/* 10B at batch 24, on a GPU with exactly what the plan takes, and with a byte less, again and again. Case 2 swaps layers
   without operations only with room for them. Then nothing is brought ahead in the backward pass. The plan says so. */
START_TEST(a_small_gpu_prefetches_less)
{
    struct ht_scenario sc = on_ssds("autohete-10b", 0, 24, 0, "fp16");
    struct ht_plan plan = {0};
    int64_t bytes = device_bytes(&lohan, &sc, INT64_C(1) << 40, &plan);
    ck_assert_double_eq((double)ht_plan_get(&plan, "A_G2M"), input_of(&plan, "A_all"));
    ck_assert_ptr_null(strstr(plan.why, "to fit"));
    bytes = device_bytes(&lohan, &sc, bytes - 1, &plan);
    ck_assert_double_lt((double)ht_plan_get(&plan, "A_G2M"), input_of(&plan, "A_all"));
    ck_assert_double_eq(input_of(&plan, "FLOP_r"), 0);
    ck_assert_int_eq(ht_plan_get(&plan, "prefetch_b"), 1);
    ck_assert_int_eq(device_bytes(&lohan, &sc, bytes, &plan), bytes);
    device_bytes(&lohan, &sc, bytes - 1, &plan);
    ck_assert_int_eq(ht_plan_get(&plan, "prefetch_b"), 0);
    ck_assert_int_eq(ht_plan_get(&plan, "prefetch_f"), 1);
    ck_assert_ptr_null(ht_plan_variable(&plan, "halves"));
    ck_assert_msg(strstr(plan.why, "; to fit the GPU: no layers without operations are swapped, prefetch_b=0"), "%s",
                  plan.why);
    ht_plan_free(&plan);
    ht_scenario_free(&sc);
}
END_TEST

/* The same with lohan_halves. Before it brings less ahead, it passes halves, which change nothing else. Since the residuals
   after attention are swapped anyway, the next remedy is the last one above. */
START_TEST(halves_come_before_less_prefetching)
{
    struct ht_scenario sc = on_ssds("autohete-10b", 0, 24, 0, "fp16");
    struct ht_plan plan = {0};
    int64_t bytes = device_bytes(&lohan_halves, &sc, INT64_C(1) << 40, &plan);
    bytes = device_bytes(&lohan_halves, &sc, bytes - 1, &plan);
    int64_t swapped = ht_plan_get(&plan, "A_G2M");
    ck_assert_int_eq(ht_plan_get(&plan, "halves"), 0);
    bytes = device_bytes(&lohan_halves, &sc, bytes - 1, &plan);
    ck_assert_int_eq(ht_plan_get(&plan, "halves"), 1);
    ck_assert_int_eq(ht_plan_get(&plan, "prefetch_b"), 1);
    ck_assert_int_eq(ht_plan_get(&plan, "A_G2M"), swapped);
    ck_assert_int_eq(fate(&plan, "proj", 25), HT_FATE_MAIN);
    device_bytes(&lohan_halves, &sc, bytes - 1, &plan);
    ck_assert_int_eq(ht_plan_get(&plan, "prefetch_b"), 0);
    ck_assert_int_eq(ht_plan_get(&plan, "prefetch_f"), 1);
    ht_plan_free(&plan);
    ht_scenario_free(&sc);
}
END_TEST

/* 13B at batch 56 on an RTX 3090: case 2, in which all would be swapped, but the GPU is too small for that. Before
   anything else is given up, layers without operations are not swapped. */
START_TEST(a_small_gpu_swaps_no_layers_without_operations)
{
    struct ht_scenario_request r = {
        .model = "lohan-headless-13b", .cluster = "lohan-3090", .batch = 56, .micro_batch = 56, .software = "torch"};
    struct ht_scenario sc = scenario_from(&r);
    struct ht_plan plan = {0};
    device_bytes(&lohan, &sc, sc.cluster->nodes[0].groups[0].gpu.memory_bytes, &plan);
    ck_assert_double_eq(input_of(&plan, "case"), 2);
    ck_assert_double_eq(input_of(&plan, "FLOP_r"), 0);
    ck_assert_int_eq(fate(&plan, "fc1", 1), HT_FATE_MAIN);
    ck_assert_int_eq(fate(&plan, "gelu", 1), HT_FATE_RECOMPUTED);
    ck_assert_int_eq(ht_plan_get(&plan, "prefetch_b"), 1);
    ht_plan_free(&plan);
    ht_scenario_free(&sc);
}
END_TEST

/* One SSD: the states' traffic binds, only the inputs are swapped and proj is recomputed. If the GPU is too small for
   that in halves, too, lohan_halves swaps proj as well: two checkpoints a block. lohan, or halves=0, brings less ahead. */
START_TEST(a_small_gpu_has_two_checkpoints)
{
    static const struct {
        const struct ht_system *system;
        const char *set;
    } whole_passes[] = {{&lohan, ""}, {&lohan_halves, "halves=0"}};
    struct ht_scenario sc = on_ssds("autohete-10b", 0, 24, 0, "fp16");
    struct ht_plan plan = {0};
    sc.cluster->nodes[0].n_ssds = 1;
    int64_t whole = device_bytes(&lohan_halves, &sc, INT64_C(1) << 40, &plan), swapped = ht_plan_get(&plan, "A_G2M");
    ck_assert_int_eq(fate(&plan, "proj", 1), HT_FATE_RECOMPUTED);
    int64_t bytes = device_bytes(&lohan_halves, &sc, whole - 1, &plan);
    ck_assert_int_eq(ht_plan_get(&plan, "halves"), 1);
    ck_assert_int_eq(fate(&plan, "proj", 1), HT_FATE_RECOMPUTED);
    device_bytes(&lohan_halves, &sc, bytes - 1, &plan);
    for (int32_t u = 1; u <= 25; u++) ck_assert_int_ge(fate(&plan, "proj", u), HT_FATE_MAIN);
    ck_assert_int_eq(ht_plan_get(&plan, "A_G2M"), 2 * swapped);
    ck_assert_int_eq(ht_plan_get(&plan, "prefetch_b"), 1);
    ck_assert_msg(strstr(plan.why, "; to fit the GPU: blocks in halves, two checkpoints a block"), "%s", plan.why);
    sc.cluster->nodes[0].groups[0].gpu.memory_bytes = whole - 1;
    for (size_t i = 0; i < HT_COUNT(whole_passes); i++) {
        ht_schedule_destroy(built(whole_passes[i].system, &sc, whole_passes[i].set, &plan));
        ck_assert_int_eq(ht_plan_get(&plan, "halves"), 0);
        ck_assert_int_eq(ht_plan_get(&plan, "A_G2M"), swapped);
        ck_assert_int_eq(ht_plan_get(&plan, "prefetch_b"), 0);
    }
    ht_plan_free(&plan);
    ht_scenario_free(&sc);
}
END_TEST

static void refused_by(const struct ht_system *system, const struct ht_scenario *sc, const char *set,
                       enum ht_status status, const char *text)
{
    struct ht_plan plan = {0};
    struct ht_error err = {0};
    ck_assert_int_eq(plan_with(system, sc, set, &err, &plan), status);
    ck_assert_msg(strstr(err.text, text), "%s", err.text);
    ht_plan_free(&plan);
}

static void refused(const struct ht_scenario *sc, const char *set, enum ht_status status, const char *text)
{
    refused_by(&lohan, sc, set, status, text);
}

START_TEST(what_cannot_be_is_refused)
{
    struct ht_scenario sc = on_ssds("gpt-mini", 0, 4, 0, "fp16");
    refused(&sc, "fc1=0,1", HT_BAD_INPUT, "fc1 has 2 elements; expected 4, one a block");
    refused(&sc, "blocks=1", HT_BAD_INPUT, "blocks=1 is for serial=1 and after=0");
    refused(&sc, "g_ssd=1", HT_BAD_INPUT, "g_ssd=1 is for after=1");
    sc.model.arch = HT_ARCH_DIT;
    refused_by(&lohan_halves, &sc, "halves=1", HT_BAD_INPUT,
               "halves=1 is not for a DiT, whose halves share the vectors that norm1 makes");
    sc.model.arch = HT_ARCH_GPT;
    struct ht_plan plan = {0};
    struct ht_error err = {0};
    ck_assert_int_eq(lohan.plan(&lohan, &sc, NULL, NULL, &err, &plan), HT_BAD_INPUT);
    ck_assert_msg(strstr(err.text, "expected a profile"), "%s", err.text);
    ht_plan_free(&plan);
    sc.cluster->nodes[0].has_ssds = false;
    refused(&sc, "", HT_INFEASIBLE, "keeps tensors on SSDs; the node of cluster 'ssd-1gpu' has none");
    ht_scenario_free(&sc);
    struct ht_scenario_request nodes = {.model = "gpt-mini", .cluster = HT_SOURCE_DIR "/tests/data/nodes-2x2.yaml"};
    sc = scenario_from(&nodes);
    refused(&sc, "", HT_INFEASIBLE, "trains on one node, whose devices share the states; the cluster has 2");
    ht_scenario_free(&sc);
    struct ht_scenario_request four = {.model = "gpt-mini", .cluster = "lohan-4x4090", .batch = 8};
    sc = scenario_from(&four);
    refused(&sc, "resident=1", HT_BAD_INPUT, "resident is for one GPU; the cluster has 4");
    sc.batch = 10;
    refused(&sc, "", HT_BAD_INPUT, "the 4 devices of cluster 'lohan-4x4090' do not divide the batch of 10 sequences");
    ht_scenario_free(&sc);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, mem_avail_is_what_profiling_leaves);
    tcase_add_test(t, what_main_memory_lacks_goes_to_ssds);
    tcase_add_test(t, without_ssds_for_activations);
    tcase_add_test(t, literal_leaves_an_input);
    tcase_add_test(t, forced_values_decide);
    tcase_add_test(t, fixed_fates);
    tcase_add_test(t, dit_makes_fc2_again);
    tcase_add_test(t, gradients_that_do_not_fit_wait_on_ssds);
    tcase_add_test(t, planned_amounts_simulate_well);
    tcase_add_test(t, the_plateau_is_crossed);
    tcase_add_test(t, a_small_gpu_prefetches_less);
    tcase_add_test(t, halves_come_before_less_prefetching);
    tcase_add_test(t, a_small_gpu_swaps_no_layers_without_operations);
    tcase_add_test(t, a_small_gpu_has_two_checkpoints);
    tcase_add_test(t, what_cannot_be_is_refused);
}

int main(void)
{
    return run_suite("plan", add);
}
