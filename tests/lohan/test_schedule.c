/* LoHan's schedules: the order of R, C and W by hand, by a recurrence and in the simulator; traffic; every kind of plan
 * before the verifier. */
#include "common/base/rng.h"
#include "tests/lohan/helpers.h"

#define MS INT64_C(1000000)
enum { SLACK = 10000 }; /* ns: copies that are free take a few, since a resource has a rate */

/* ---- active gradient offloading --------------------------------------------------------------------------------- */

/* Costs of each group's R, C, W and of the backward pass before it, ms; by unit. */
struct costs {
    int64_t r[16], c[16], w[16], b[16];
};

/* Everything else is free, and P16 comes as early as it can, so that only these costs decide. */
static int64_t *priced(const struct ht_schedule *s, const struct costs *x)
{
    int64_t *ns = HT_NEW_ARRAY(int64_t, s->n_ops);
    for (int32_t u = 0; u < s->n_units; u++) {
        ns[op_of(s, "SR", u)] = x->r[u] * MS;
        ns[op_of(s, "O", u)] = x->c[u] * MS;
        ns[op_of(s, "SW", u)] = x->w[u] * MS;
        ns[op_of(s, "B", u)] = x->b[u] * MS;
    }
    return ns;
}

/* Returns the time of an iteration of a GPT with this many units. */
static struct ht_trace *run(const struct ht_system *system, int32_t units, const char *set, const struct costs *x,
                            struct ht_schedule **s)
{
    struct ht_scenario sc = on_ssds("gpt-mini", units - 2, 1, 0, "fp16");
    struct ht_plan plan = {0};
    char all[256];
    snprintf(all, sizeof all, "prefetch_b=64 prefetch_f=64 %s", set);
    *s = built(system, &sc, all, &plan);
    int64_t *ns = priced(*s, x);
    struct ht_trace *t = simulated(*s, ns, 1);
    free(ns);
    ht_plan_free(&plan);
    ht_scenario_free(&sc);
    return t;
}

static int64_t time_of(const struct ht_system *system, int32_t units, const char *set, const struct costs *x)
{
    struct ht_schedule *s;
    struct ht_trace *t = run(system, units, set, x, &s);
    int64_t end_ns = t->end_ns;
    ht_trace_destroy(t);
    ht_schedule_destroy(s);
    ck_assert_int_lt(end_ns % MS, SLACK);
    return end_ns / MS;
}

static struct costs equal(int64_t r, int64_t c, int64_t w)
{
    struct costs x = {0};
    for (int i = 0; i < 16; i++) x.r[i] = r, x.c[i] = c, x.w[i] = w;
    return x;
}

/*
 * Three gradients, all there at 0, (r, c, w) = (2, 1, 2).
 *   naive      R3 [0, 2] C3 [2, 3] W3 [3, 5], and twice more: 15
 *   optimized  R3 [0, 2] R2 [2, 4] W3 [4, 6] R1 [6, 8] W2 [8, 10] W1 [10, 12];  C3 [2, 3] C2 [4, 5] C1 [8, 9]: 12
 * (2, 3, 2): naive 3 x 7 = 21. Optimized R3 [0, 2] R2 [2, 4] C3 [2, 5] W3 [5, 7] C2 [5, 8] R1 [7, 9] W2 [9, 11] C1 [9, 12]
 * W1 [12, 14]: 14. (1, 4, 1), CPU-bound: 18; C3 [1, 5] C2 [5, 9] C1 [9, 13] W1 [13, 14]: 14.
 */
START_TEST(three_gradients_at_once)
{
    struct costs x = equal(2, 1, 2);
    ck_assert_int_eq(time_of(&lohan_naive, 3, "", &x), 15);
    ck_assert_int_eq(time_of(&lohan, 3, "", &x), 12);
    x = equal(2, 3, 2);
    ck_assert_int_eq(time_of(&lohan_naive, 3, "", &x), 21);
    ck_assert_int_eq(time_of(&lohan, 3, "", &x), 14);
    x = equal(1, 4, 1);
    ck_assert_int_eq(time_of(&lohan_naive, 3, "", &x), 18);
    ck_assert_int_eq(time_of(&lohan, 3, "", &x), 14);
}
END_TEST

/*
 * They come at 2, 4, 6; (2, 1, 2). Naive: 2 + 15 = 17, since R3 C3 W3 ends at 7. Optimized: R3 [2, 4] R2 [4, 6] W3 [6, 8]
 * R1 [8, 10] W2 [10, 12] W1 [12, 14]: 14. If the GPU waits for each W, the gradients come at 2, 9, 16: 21, the sum of all.
 * After the backward pass: 6 + 15 = 21, or with the optimized order 6 + 12 = 18.
 */
START_TEST(three_gradients_in_turn)
{
    struct costs x = equal(2, 1, 2);
    for (int i = 0; i < 3; i++) x.b[i] = 2;
    ck_assert_int_eq(time_of(&lohan_naive, 3, "", &x), 17);
    ck_assert_int_eq(time_of(&lohan, 3, "", &x), 14);
    ck_assert_int_eq(time_of(&lohan_naive, 3, "blocks=1", &x), 21);
    ck_assert_int_eq(time_of(&lohan_zero, 3, "", &x), 21);
    ck_assert_int_eq(time_of(&lohan_zero, 3, "serial=0", &x), 18);
}
END_TEST

/* Computes when each W ends, ms, by Sec. IV-C. g: when each unit's gradient has come. */
static void recurrence(int32_t n, bool serial, const int64_t *g, const struct costs *x, int64_t *end)
{
    int64_t ssd = 0, cpu = 0, stepped[16];
    for (int32_t i = n - 1; i >= 0; i--) {
        ssd = (ssd > g[i] ? ssd : g[i]) + x->r[i];
        stepped[i] = cpu = (cpu > ssd ? cpu : ssd) + x->c[i];
        int32_t w = serial ? i : i + 1;
        if (w < n) end[w] = ssd = (ssd > stepped[w] ? ssd : stepped[w]) + x->w[w];
    }
    if (!serial) end[0] = (ssd > stepped[0] ? ssd : stepped[0]) + x->w[0];
}

START_TEST(schedules_follow_the_recurrence)
{
    for (uint64_t seed = 0, at = 0; seed < 60; seed++) {
        int32_t n = 3 + (int32_t)(seed % 8);
        struct costs x = {0};
        int64_t g[16], end[16], before = 0;
        for (int32_t u = n - 1; u >= 0; u--) {
            x.r[u] = 1 + (int64_t)ht_random_below(seed, at++, 6);
            x.c[u] = 1 + (int64_t)ht_random_below(seed, at++, 6);
            x.w[u] = 1 + (int64_t)ht_random_below(seed, at++, 6);
            x.b[u] = (int64_t)ht_random_below(seed, at++, 8);
            g[u] = before += x.b[u];
        }
        for (int serial = 0; serial < 2; serial++) {
            struct ht_schedule *s;
            struct ht_trace *t = run(&lohan, n, serial ? "serial=1" : "", &x, &s);
            recurrence(n, serial, g, &x, end);
            for (int32_t u = 0; u < n; u++)
                ck_assert_msg(llabs(event_of(t, 0, "SW", u)->end_ns - end[u] * MS) < SLACK,
                              "seed %llu, serial %d: W%d ends at %lld; expected %lld ms", (unsigned long long)seed,
                              serial, (int)u, (long long)event_of(t, 0, "SW", u)->end_ns, (long long)end[u]);
            ht_trace_destroy(t);
            ht_schedule_destroy(s);
        }
    }
}
END_TEST

/* Two buffers of states, and synchronous updates: over three iterations the R of a unit waits for the W of the unit two
   above, and the next iteration reads no parameters that are not written. */
START_TEST(buffers_and_updates)
{
    struct ht_scenario sc = on_ssds("gpt-mini", 4, 1, 0, "fp16");
    struct ht_plan plan = {0};
    struct costs x = equal(3, 2, 4);
    struct ht_schedule *s = built(&lohan, &sc, "", &plan);
    int64_t *ns = priced(s, &x);
    struct ht_trace *t = simulated(s, ns, 3);
    for (int32_t k = 0; k < 3; k++)
        for (int32_t u = 0; u < s->n_units; u++) {
            if (u + 2 < s->n_units)
                ck_assert_int_ge(event_of(t, k, "SR", u)->start_ns, event_of(t, k, "SW", u + 2)->end_ns);
            if (u > 0) ck_assert_int_ge(event_of(t, k, "SW", u)->start_ns, event_of(t, k, "SR", u - 1)->end_ns);
            if (k > 0) ck_assert_int_ge(event_of(t, k, "DP", u)->start_ns, event_of(t, k - 1, "SW", u)->end_ns);
        }
    ht_trace_destroy(t);
    free(ns);
    ht_schedule_destroy(s);
    ht_plan_free(&plan);
    ht_scenario_free(&sc);
}
END_TEST

/* ---- traffic ---------------------------------------------------------------------------------------------------- */

/* Computes the bytes that an iteration's copies move between two tiers. */
static int64_t moved(const struct ht_schedule *s, enum ht_tier from, enum ht_tier to)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < s->n_ops; i++) {
        bool copies = s->ops[i].kind == HT_OP_COPY;
        for (int64_t e = s->effects_begin[i]; e < s->effects_begin[i + 1] && copies; e++)
            for (int64_t f = s->effects_begin[i]; f < s->effects_begin[i + 1]; f++)
                if (s->effects[e].tensor == s->effects[f].tensor && s->effects[e].tier == from &&
                    s->effects[f].tier == to && s->effects[e].flags & HT_NEED &&
                    s->effects[f].flags & (HT_PRODUCE | HT_UPDATE))
                    bytes += s->tensors[s->effects[e].tensor].bytes;
    }
    return bytes;
}

/*
 * LLaMA's head has a matrix of its own, so P16 is read twice a unit, the head's once: 2P for the forward pass and 2P - 2
 * P_head for the backward pass. Eqs. 2 and 5: reads 2P + (12P + 2P) + A_ssd, writes A_ssd + 14P, out A_G2M + 2P, in 2P +
 * 2P + A_G2M, all but the head's second 2P. In FP32 P16 has 4 bytes, R and W 12, and gradients 4.
 */
START_TEST(traffic_is_that_of_the_equations)
{
    static const char *const sets[] = {"", "input=2,2,1,1 fc1=2,1,0,3 qkv=1,1,1,0 proj=2,2,2,2", "A_ssd=100000"};
    for (size_t i = 0; i < 2 * HT_COUNT(sets); i++) {
        bool half = i < HT_COUNT(sets);
        struct ht_scenario sc = on_ssds("llama-tiny", 4, 2, 0, half ? "bf16" : "fp32");
        struct ht_plan plan = {0};
        struct ht_schedule *s = built(&lohan, &sc, sets[i % HT_COUNT(sets)], &plan);
        int64_t P = ht_model_params(&sc.model), head = ht_unit_params(&sc.model, sc.model.layers + 1);
        int64_t swapped = ht_plan_get(&plan, "A_G2M"), ssd = ht_plan_get(&plan, "A_ssd"), e = half ? 2 : 4;
        ck_assert_int_gt(swapped, 0);
        ck_assert(ssd > 0 || i % HT_COUNT(sets) == 0);
        ck_assert_int_eq(moved(s, HT_DISK, HT_HOST), 2 * e * P - e * head + 12 * P + ssd);
        ck_assert_int_eq(moved(s, HT_HOST, HT_DISK), (half ? 14 : 12) * P + ssd);
        ck_assert_int_eq(moved(s, HT_HOST, HT_DEVICE), 2 * e * P - e * head + swapped);
        ck_assert_int_eq(moved(s, HT_DEVICE, HT_HOST), e * P + swapped);
        int64_t resident = 0;
        for (int32_t r = 0; r < s->n_residents; r++) {
            ck_assert_int_eq(s->residents[r].tier, HT_DISK);
            resident += s->tensors[s->residents[r].tensor].bytes;
        }
        ck_assert_int_eq(resident, (half ? 14 : 12) * P);
        ck_assert_int_eq(plan.planned_bytes[HT_DISK], resident + ssd);
        ht_schedule_destroy(s);
        ht_plan_free(&plan);
        ht_scenario_free(&sc);
    }
}
END_TEST

/* ---- groups, residents, gradients on the SSDs -------------------------------------------------------------------- */

static int count(const struct ht_schedule *s, const char *letters)
{
    int n = 0;
    for (int32_t i = 0; i < s->n_ops; i++)
        n += !strncmp(s->ops[i].name, letters, strlen(letters)) && s->ops[i].name[strlen(letters)] <= '9';
    return n;
}

/* gpt-mini: 12 x 64^2 + 13 x 64 = 49984 parameters a block, the embedding 256 x 64 + 64 x 64 = 20480, the head 128. Groups
   of 10^5: head, 4, 3 have 100096. 2, 1 have 99968, too few, so the embedding is with them. */
START_TEST(groups_are_filled)
{
    struct ht_scenario sc = on_ssds("gpt-mini", 4, 1, 0, "fp16");
    struct ht_plan plan = {0};
    struct ht_schedule *s = built(&lohan, &sc, "group=100000", &plan);
    ck_assert_int_eq(count(s, "SR"), 2);
    ck_assert_int_eq(s->ops[op_of(s, "SR", 3)].label.n_units, 3);
    ck_assert_int_eq(s->ops[op_of(s, "O", 0)].label.n_units, 3);
    ht_schedule_destroy(s);
    s = built(&lohan, &sc, "group=1000000000", &plan);
    ck_assert_int_eq(count(s, "SR"), 1);
    ck_assert_int_eq(count(s, "SW"), 1);
    ht_schedule_destroy(s);
    s = built(&lohan, &sc, "", &plan);
    ck_assert_int_eq(count(s, "SR"), 6);
    ht_schedule_destroy(s);
    s = built(&lohan_zero, &sc, "g_ssd=1 group=100000", &plan);
    ck_assert_int_eq(count(s, "GW"), 2);
    ck_assert_int_eq(count(s, "GR"), 2);
    ht_schedule_destroy(s);
    ht_plan_free(&plan);
    ht_scenario_free(&sc);
}
END_TEST

/* The head's 128 parameters stay on the GPU, and are stepped there. */
START_TEST(small_units_stay)
{
    struct ht_scenario sc = on_ssds("gpt-mini", 2, 1, 0, "fp16");
    struct ht_plan plan = {0};
    struct ht_schedule *s = built(&lohan, &sc, "resident=1000", &plan);
    int on_device = 0;
    for (int32_t r = 0; r < s->n_residents; r++) on_device += s->residents[r].tier == HT_DEVICE;
    ck_assert_int_eq(on_device, 4);
    ck_assert_int_eq(count(s, "SR"), 3);
    ck_assert_int_eq(s->lanes[s->ops[op_of(s, "U", 3)].lane].kind, HT_LANE_COMPUTE);
    ht_schedule_destroy(s);
    ht_plan_free(&plan);
    ht_scenario_free(&sc);
}
END_TEST

/* ---- the verifier ------------------------------------------------------------------------------------------------ */

/* Writes the other variables. A GPU that waits for W cannot wait for all gradients before it. Of several GPUs none has
   resident units. */
static void draw_rest(struct draw *d, bool gate, bool several, bool halves, char *text, size_t size)
{
    static const char *const names[] = {"prefetch_f", "prefetch_b", "group", "resident"};
    static const int most[] = {4, 4, 2, 3}, times[] = {1, 1, 100000, 10000};
    size_t used = strlen(text);
    for (size_t i = 0; i < HT_COUNT(names); i++)
        used += (size_t)snprintf(text + used, size - used, " %s=%d", names[i],
                                 below(d, most[i]) * (several && !strcmp(names[i], "resident") ? 0 : times[i]));
    int serial = below(d, 2), after = below(d, 2), more = below(d, 2);
    used += (size_t)snprintf(text + used, size - used, " serial=%d after=%d blocks=%d g_ssd=%d", serial, after,
                             serial && !after && !gate && more, after && more);
    if (halves) snprintf(text + used, size - used, " halves=%d", below(d, 2));
}

/* Tiny LLaMA's table and head have 65.5e6 parameters, its blocks 44e6, which stay on the GPU: the two are a group each,
   though 7e8 parameters would make one. */
START_TEST(a_group_has_no_resident_units)
{
    struct ht_scenario sc = on_ssds("cephalo-tiny-llama", 2, 1, 1, "fp16");
    const struct ht_system *systems[] = {&lohan_artifact, &lohan_zero};
    for (size_t i = 0; i < HT_COUNT(systems); i++) {
        struct ht_plan plan = {0};
        struct ht_schedule *s = built(systems[i], &sc, "resident=50000000 group=700000000", &plan);
        (void)op_of(s, "SR", 0);
        (void)op_of(s, "SR", 3);
        for (int32_t op = 0; op < s->n_ops; op++)
            if (s->ops[op].kind == HT_OP_OPTIMIZER_STEP) ck_assert_int_eq(s->ops[op].label.n_units, 1);
        ht_schedule_destroy(s);
        ht_plan_free(&plan);
    }
    ht_scenario_free(&sc);
}
END_TEST

/* Any fates, depths, groups and orders, for any system, model, numerics, micro-batches, control and number of GPUs. */
START_TEST(every_plan_is_proved)
{
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct draw d = {.seed = seed};
        struct ht_scenario_request r = draw_request(&d);
        int gpus = seed / 4 % 2 ? 1 : 2 << (seed / 8 % 2);
        r.cluster = "lohan-4x4090";
        r.batch = 16;
        struct ht_scenario sc = scenario_from(&r);
        use_gpus(&sc, gpus);
        sc.batch = 4 * gpus;
        const struct ht_system *system = lohans[below(&d, HT_COUNT(lohans))];
        struct ht_plan plan = {0};
        char set[512] = "";
        draw_fates(&d, true, r.blocks, set, sizeof set);
        for (int k = 0; k < LOHAN_N_REPEATED; k++)
            if (below(&d, 2)) draw_list(&d, lohan_repeated_names[k], 0, LOHAN_N_AGAINS, r.blocks, set, sizeof set);
        bool halves = (system == &lohan_halves || system == &lohan_artifact) && !ht_arch_gated(sc.model.arch);
        draw_rest(&d, !strcmp(r.control, "gate"), gpus > 1, halves, set, sizeof set);
        ht_schedule_destroy(built(system, &sc, set, &plan));
        ht_plan_free(&plan);
        ht_scenario_free(&sc);
    }
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, three_gradients_at_once);
    tcase_add_test(t, three_gradients_in_turn);
    tcase_add_test(t, schedules_follow_the_recurrence);
    tcase_add_test(t, buffers_and_updates);
    tcase_add_test(t, traffic_is_that_of_the_equations);
    tcase_add_test(t, groups_are_filled);
    tcase_add_test(t, small_units_stay);
    tcase_add_test(t, a_group_has_no_resident_units);
    tcase_add_test(t, every_plan_is_proved);
}

int main(void)
{
    return run_suite("schedule", add);
}
