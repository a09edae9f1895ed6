/* Neither bound of a shape is above the truth, on drawn machines, models, batches and shapes: some hundred, 10,000 with HT_FULL=1. */
#include "baselines/baselines.h"
#include "baselines/shape.h"

#include "common/plan/candidate.h"
#include "tests/support/draw.h"
#include "tests/support/plans.h"
#include "tests/support/sanitized.h"
#include "tests/support/scenario.h"
#include "tests/support/suite.h"

#include <math.h>
#include <stdlib.h>

enum { FEW = SANITIZED ? 100 : 400, MANY = 10000 };

/* Draws nodes of two, four or eight cards, each of one kind. */
static int draw_cluster(struct draw *d, char *parts, size_t bytes)
{
    static const char *const kinds[] = {"rtx4090", "a100-80gb", "t4", "v100-16gb"};
    int nodes = 1 << below(d, 2), each = 2 << below(d, 2);
    size_t used = (size_t)snprintf(parts, bytes, "gpus=");
    for (int i = 0; i < nodes; i++)
        used += (size_t)snprintf(parts + used, bytes - used, "%s%s:%d", i ? "/" : "", kinds[below(d, 4)], each);
    snprintf(parts + used, bytes - used, ";ram=256GB");
    return nodes * each;
}

static struct ht_scenario draw_scenario(struct draw *d, int *n)
{
    static const char *const models[] = {"gpt-tiny", "gpt-mini", "llama-tiny", "autohet-bert-large"};
    static const char *const numerics[] = {"fp32", "fp16", "bf16"};
    char parts[256];
    *n = draw_cluster(d, parts, sizeof parts);
    int64_t micro_batch = 1 << below(d, 3), micro_batches = *n * pick(d, 1, 3);
    return scenario_from(&(struct ht_scenario_request){.model = models[below(d, 4)],
                                                       .cluster = parts,
                                                       .seq = 16 << below(d, 3),
                                                       .micro_batch = micro_batch,
                                                       .batch = micro_batch * micro_batches,
                                                       .numerics = numerics[below(d, 3)]});
}

static struct ht_shape draw_shape(struct draw *d, int n)
{
    struct ht_shape x = {.tp = 1 << below(d, 2), .v = 1 << below(d, 3), .zero = below(d, 2), .again = below(d, 3)};
    do x.pp = 1 << below(d, 4);
    while (x.tp * x.pp > n);
    x.dp = n / (x.tp * x.pp);
    if (x.pp == 1) x.v = 1;
    if (x.dp == 1) x.zero = false;
    return x;
}

/* Returns false if the shape is not possible, or does not fit. */
static bool check_shape(uint64_t seed)
{
    struct draw d = {.seed = seed};
    struct ht_plan plan = {0};
    struct ht_error err = {0};
    int n;
    char set[96];
    struct ht_scenario sc = draw_scenario(&d, &n);
    struct ht_shape x = draw_shape(&d, n);
    struct ht_profile *costs = ht_profile_modelled(sc.cluster);
    snprintf(set, sizeof set, "tp=%d pp=%d v=%d zero=%d recompute=%d", (int)x.tp, (int)x.pp, (int)x.v, x.zero, x.again);
    enum ht_status status = plan_at(&ht_megatron_3d, &sc, costs, set, &err, &plan);
    ck_assert_msg(!status || status == HT_INFEASIBLE, "seed %d, %s: %s", (int)seed, set, err.text);
    if (!status) {
        struct ht_needs needs;
        int64_t bound_ns, least = ht_shape_least_bytes(&sc, &x), ns = llround(1e9 * plan.considered[0].iteration_s);
        ck_assert_msg(!ht_plan_needs(&ht_megatron_3d, &sc, &plan, &err, &needs), "%s: %s", set, err.text);
        ck_assert_msg(!ht_shape_bound_ns(&sc, costs, &x, &err, &bound_ns), "%s", err.text);
        ck_assert_msg(least <= needs.peak_bytes[HT_DEVICE], "seed %d, %s: at least %ld bytes, needs %ld", (int)seed,
                      set, (long)least, (long)needs.peak_bytes[HT_DEVICE]);
        ck_assert_msg(bound_ns <= ns, "seed %d, %s: at least %ld ns, takes %ld", (int)seed, set, (long)bound_ns,
                      (long)ns);
    }
    ht_plan_free(&plan);
    ht_profile_destroy(costs);
    ht_scenario_free(&sc);
    return !status;
}

START_TEST(never_above_the_truth)
{
    const char *full = getenv("HT_FULL");
    int held = 0, n = full && strcmp(full, "0") ? MANY : FEW;
    for (uint64_t seed = 1; held < n; seed++) {
        held += check_shape(seed);
        ck_assert(seed < 20 * (uint64_t)n);
    }
}
END_TEST

static void add(TCase *t)
{
    tcase_set_timeout(t, 0);
    tcase_add_test(t, never_above_the_truth);
}

int main(void)
{
    return run_suite("shape_bounds", add);
}
