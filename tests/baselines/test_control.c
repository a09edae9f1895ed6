/* Gate and rollback in every baseline: verified, followed value by value, and simulated with random outcomes. */
#include "tests/baselines/plans.h"
#include "tests/common/draft/control_oracle.h"
#include "tests/support/sanitized.h"
#include "tests/support/scenario.h"

static const struct ht_system *const systems[] = {
    &ht_in_memory,     &ht_in_memory_ckpt,     &ht_zero_offload,  &ht_zero_offload_ckpt,
    &ht_patrickstar,   &ht_patrickstar_ckpt,   &ht_stronghold,    &ht_stronghold_ckpt,
    &ht_zero3_offload, &ht_zero3_offload_ckpt, &ht_zero_infinity, &ht_gemini,
};

static const char *const numerics[] = {"fp32", "fp16", "bf16"};

static struct ht_scenario scenario_with(const char *model, const char *cluster, int64_t micro_batches, size_t n,
                                        size_t k, int64_t device_bytes, char what[128])
{
    struct ht_scenario_request r = {.model = model,
                                    .cluster = cluster,
                                    .batch = 3,
                                    .micro_batch = 3 / micro_batches,
                                    .seq = 32,
                                    .numerics = numerics[n],
                                    .device_memory_bytes = device_bytes};
    struct ht_scenario sc = scenario_from(&r);
    struct ht_error err = {0};
    ck_assert_int_eq(ht_cluster_set_disks(sc.cluster, "local-disk", 1, &err), HT_OK);
    sc.control = swept_controls[k];
    snprintf(what, 128, "%s on %s %s x%d %s clip %g, %lld bytes", model, cluster, numerics[n], (int)micro_batches,
             ht_control_mode_names[sc.control.mode], sc.control.options.clip, (long long)device_bytes);
    return sc;
}

/* Checks one system in one scenario with settings; returns false if the planner has no plan. */
static bool prove(const struct ht_system *system, const struct ht_scenario *sc, const char *set, const char *what,
                  struct ht_plan *plan)
{
    struct ht_error err = {0};
    struct ht_schedule *s = NULL;
    struct ht_settings settings = {.n = 0};
    struct ht_profile *costs = ht_profile_modelled(sc->cluster);
    char text[128], full[256], *save = NULL;
    snprintf(text, sizeof text, "%s", set);
    snprintf(full, sizeof full, "%s %s %s", system->name, set, what);
    for (char *word = strtok_r(text, " ", &save); word; word = strtok_r(NULL, " ", &save))
        ck_assert_msg(ht_settings_parse(system, sc, word, &err, &settings) == HT_OK, "%s", err.text);
    enum ht_status status = system->plan(system, sc, costs, &settings, &err, plan);
    ck_assert_msg(status == HT_OK || status == HT_INFEASIBLE, "%s: %s", full, err.text);
    if (!status) {
        ck_assert_msg(system->build(system, sc, plan, &err, &s) == HT_OK, "%s: %s", full, err.text);
        prove_control(s, sc, full, 1 + (uint64_t)s->n_ops);
        ht_schedule_destroy(s);
    }
    ht_profile_destroy(costs);
    return status == HT_OK;
}

static void sweep(const struct ht_system *system, const char *cluster)
{
    for (size_t n = 0; n < HT_COUNT(numerics); n++)
        for (int64_t micro_batches = 1; micro_batches <= 3; micro_batches += 2)
            for (size_t k = 0; k < HT_COUNT(swept_controls); k++) {
                char what[128];
                struct ht_plan plan = {0};
                struct ht_scenario sc = scenario_with("gpt-mini", cluster, micro_batches, n, k, (int64_t)4 << 30, what);
                ck_assert(prove(system, &sc, "", what, &plan));
                ht_plan_free(&plan);
                ht_scenario_free(&sc);
            }
}

START_TEST(test_every_baseline)
{
    sweep(systems[_i], "local");
    sweep(systems[_i], "autohete-1gpu");
}
END_TEST

/* PatrickStar's chunks at budgets from too small to more than enough: moved back and forth, stepped here and there. */
START_TEST(test_chunks)
{
    static const char *const chunks[] = {"", "chunk=50112", "chunk=130000"};
    int planned = 0, mixed = 0, moving = 0;
    for (size_t n = 0; n < HT_COUNT(numerics); n++)
        for (int64_t micro_batches = 1; micro_batches <= 3; micro_batches += 2)
            for (size_t i = 0; i < HT_COUNT(chunks); i++)
                for (int64_t kib = 512; kib <= 16384; kib += kib / (SANITIZED ? 2 : 6)) {
                    char what[128];
                    struct ht_plan plan = {0};
                    struct ht_scenario sc =
                        scenario_with("gpt-mini", "local", micro_batches, n, (size_t)_i, kib << 10, what);
                    if (prove(&ht_patrickstar, &sc, chunks[i], what, &plan)) {
                        int64_t os = ht_plan_get(&plan, "os");
                        planned++;
                        mixed += os > 0 && os < ht_plan_get(&plan, "chunks");
                        moving += ht_plan_get(&plan, "moves") > 0;
                    }
                    ht_plan_free(&plan);
                    ht_scenario_free(&sc);
                }
    ck_assert_msg(planned > (SANITIZED ? 30 : 100) && mixed > (SANITIZED ? 2 : 10) && moving > (SANITIZED ? 2 : 10),
                  "%d planned, %d mixed, %d moving", planned, mixed, moving);
}
END_TEST

/* Gemini's placements, chunks and shares of states on SSDs. */
START_TEST(test_placements)
{
    static const char *const sets[] = {"chunk=50112 offload_param_frac=1",
                                       "chunk=50112 auto=1 steady_cuda_cap_ratio=0.5",
                                       "chunk=50112 offload_optim_frac=0.6 nvme_offload_fraction=0.5",
                                       "chunk=130000 offload_optim_frac=1 nvme_offload_fraction=0.3"};
    for (size_t n = 0; n < HT_COUNT(numerics); n++)
        for (int64_t micro_batches = 1; micro_batches <= 3; micro_batches += 2)
            for (size_t i = 0; i < HT_COUNT(sets); i++) {
                char what[128];
                struct ht_plan plan = {0};
                struct ht_scenario sc = scenario_with("gpt-mini", "local", micro_batches, n, (size_t)_i, 4000000, what);
                ck_assert(prove(&ht_gemini, &sc, sets[i], what, &plan));
                ht_plan_free(&plan);
                ht_scenario_free(&sc);
            }
}
END_TEST

/* StrongHold's windows, embedding and head on either side. */
START_TEST(test_windows)
{
    for (size_t n = 0; n < HT_COUNT(numerics); n++)
        for (int64_t micro_batches = 1; micro_batches <= 3; micro_batches += 2)
            for (int e = 0; e < 2; e++)
                for (int m = 1; m <= 12; m += SANITIZED ? 3 : 1) {
                    char what[128], set[64];
                    struct ht_plan plan = {0};
                    struct ht_scenario sc =
                        scenario_with("gpt2-124m", "autohete-1gpu", micro_batches, n, (size_t)_i, 0, what);
                    snprintf(set, sizeof set, "c=%d m=%d e=%d", m % 4, m, e);
                    ck_assert(prove(&ht_stronghold, &sc, set, what, &plan));
                    ht_plan_free(&plan);
                    ht_scenario_free(&sc);
                }
}
END_TEST

static void add_tests(TCase *t)
{
    tcase_add_loop_test(t, test_chunks, 0, (int)HT_COUNT(swept_controls));
    tcase_add_loop_test(t, test_placements, 0, (int)HT_COUNT(swept_controls));
    tcase_add_loop_test(t, test_windows, 0, (int)HT_COUNT(swept_controls));
    tcase_add_loop_test(t, test_every_baseline, 0, (int)HT_COUNT(systems));
}

int main(void)
{
    return run_suite("control", add_tests);
}
