/* The planner, Algorithm 1 and an enumeration written here from the equations must agree. */
#include "cephalo/optimize.h"
#include "tests/cephalo/instances.h"
#include "tests/support/sanitized.h"

#include <check.h>
#include <stdio.h>

/* ---- enumeration ----------------------------------------------------------------------------------------------- */

struct enumeration {
    const struct cephalo_problem *p;
    enum cephalo_objective objective;
    struct cephalo_part parts[MOST_GPUS];
    bool found;
    int64_t best[4]; /* objective, T_f, uneven (of CEPHALO_LAYER), compute bytes: compared in this order */
};

static int64_t max2(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static void consider(struct enumeration *e)
{
    const struct cephalo_problem *p = e->p;
    int64_t bytes = 0, room = 0, slowest = 0;
    double share = (double)p->state_bytes / p->n_gpus;
    bool uneven[MOST_GPUS], any = false;
    for (int32_t i = 0; i < p->n_gpus; i++) {
        const struct cephalo_kind *k = &p->kinds[p->kind_of[i]];
        int64_t need = k->compute_bytes[e->parts[i].micro_batch];
        uneven[i] = (double)need + share > (double)k->capacity_bytes + 1e-9;
        any |= uneven[i];
        if (need > k->capacity_bytes) return;
        bytes += need;
        room += k->capacity_bytes;
    }
    if (p->state_bytes + bytes > room || (p->even_only && any)) return;
    struct cephalo_collectives all = any ? p->uneven : p->even;
    int64_t forward = all.all_gather_ns, backward = all.all_gather_ns + all.reduce_scatter_ns;
    for (int32_t i = 0; i < p->n_gpus; i++) {
        const struct cephalo_kind *k = &p->kinds[p->kind_of[i]];
        struct cephalo_collectives own = uneven[i] ? p->uneven : p->even;
        int32_t m = e->parts[i].micro_batch, l = e->parts[i].count;
        int64_t f = m ? l * k->forward_ns[m] : 0, b = m ? l * k->backward_ns[m] : 0;
        slowest = max2(slowest, max2(f, own.all_gather_ns) + max2(b, own.all_gather_ns + own.reduce_scatter_ns));
        forward = max2(forward, f);
        backward = max2(backward, b);
    }
    bool layer = e->objective == CEPHALO_LAYER;
    int64_t x[4] = {layer ? forward + backward : slowest, layer ? forward : 0, layer ? any : 0, bytes};
    for (int c = 0; e->found && c < 4; c++) {
        if (x[c] > e->best[c]) return;
        if (x[c] < e->best[c]) break;
    }
    memcpy(e->best, x, sizeof(x));
    e->found = true;
}

static void enumerate(struct enumeration *e, int32_t gpu, int32_t left)
{
    const struct cephalo_problem *p = e->p;
    if (gpu == p->n_gpus) {
        if (!left) consider(e);
        return;
    }
    if (p->may_idle) {
        e->parts[gpu] = (struct cephalo_part){0, 0};
        enumerate(e, gpu + 1, left);
    }
    for (int32_t m = 1; m <= left && m <= p->kinds[p->kind_of[gpu]].max_micro_batch; m++)
        for (int32_t l = 1; l * m <= left && (!p->max_count || l <= p->max_count); l++) {
            e->parts[gpu] = (struct cephalo_part){m, l};
            enumerate(e, gpu + 1, left - l * m);
        }
}

/* Checks with the enumeration's own formulas that the plan is the best of all, ties included. */
static void check_best(const struct cephalo_problem *p, enum cephalo_objective objective, uint64_t seed, int *feasible)
{
    struct enumeration all = {.p = p, .objective = objective}, own = all;
    struct ht_error err = {0};
    enumerate(&all, 0, p->batch);
    enum ht_status status = cephalo_optimize(p, objective, &err, own.parts);
    ck_assert_msg(status == (all.found ? HT_OK : HT_INFEASIBLE), "seed %d: status %d, '%s'", (int)seed, status,
                  err.text);
    *feasible += all.found;
    if (!all.found) return;
    int32_t batch = 0;
    for (int32_t i = 0; i < p->n_gpus; i++) {
        struct cephalo_part x = own.parts[i];
        ck_assert_msg(p->may_idle ? !x.micro_batch == !x.count : x.micro_batch > 0 && x.count > 0, "seed %d",
                      (int)seed);
        ck_assert(!p->max_count || x.count <= p->max_count);
        ck_assert_int_le(x.micro_batch, p->kinds[p->kind_of[i]].max_micro_batch);
        batch += x.micro_batch * x.count;
    }
    ck_assert_int_eq(batch, p->batch);
    consider(&own);
    ck_assert_msg(own.found, "seed %d: the plan does not satisfy the constraints", (int)seed);
    for (int c = 0; c < 4; c++)
        ck_assert_msg(own.best[c] == all.best[c], "seed %d objective %d, %d: %lld, expected %lld", (int)seed, objective,
                      c, (long long)own.best[c], (long long)all.best[c]);
    struct cephalo_outcome outcome = cephalo_evaluate(p, own.parts);
    ck_assert_int_eq(objective == CEPHALO_LAYER ? outcome.forward_ns + outcome.backward_ns : outcome.slowest_gpu_ns,
                     own.best[0]);
    ck_assert_int_eq(outcome.compute_bytes, own.best[3]);
}

enum { INSTANCES = SANITIZED ? 500 : 5000 };

START_TEST(planner_equals_enumeration)
{
    int feasible = 0;
    for (uint64_t seed = 0; seed < INSTANCES; seed++) {
        struct instance x;
        make_instance(&x, seed, 1 + (int32_t)(seed % 4), 1 + (int32_t)(seed / 4 % 9), (enum memory)(seed % 3));
        check_best(&x.problem, CEPHALO_SLOWEST_GPU, seed, &feasible);
        check_best(&x.problem, CEPHALO_LAYER, seed, &feasible);
    }
    ck_assert_int_gt(feasible, INSTANCES); /* of 2 INSTANCES */
    ck_assert_int_lt(feasible, 2 * INSTANCES - INSTANCES / 10);
}
END_TEST

/* The plan stays as good in each of eqs. 2 to 4, no constraint breaks, and no GPU has more micro-batches. */
START_TEST(enlarged_plans_are_no_worse)
{
    int enlarged = 0;
    for (uint64_t seed = 0; seed < INSTANCES; seed++) {
        struct instance x;
        struct enumeration before, after;
        make_instance(&x, seed, 1 + (int32_t)(seed % 4), 1 + (int32_t)(seed / 4 % 40), (enum memory)(seed % 3));
        enum cephalo_objective objective = seed & 4 ? CEPHALO_LAYER : CEPHALO_SLOWEST_GPU;
        before = (struct enumeration){.p = &x.problem, .objective = objective};
        if (cephalo_optimize(&x.problem, objective, NULL, before.parts)) continue;
        after = before;
        cephalo_enlarge(&x.problem, after.parts);
        struct cephalo_outcome a = cephalo_evaluate(&x.problem, before.parts);
        struct cephalo_outcome b = cephalo_evaluate(&x.problem, after.parts);
        ck_assert(b.forward_ns <= a.forward_ns && b.backward_ns <= a.backward_ns);
        ck_assert(b.slowest_gpu_ns <= a.slowest_gpu_ns && b.uneven <= a.uneven);
        for (int32_t i = 0; i < x.problem.n_gpus; i++) {
            struct cephalo_part p = before.parts[i], q = after.parts[i];
            ck_assert_int_eq(p.micro_batch * p.count, q.micro_batch * q.count);
            ck_assert_int_le(q.count, p.count);
            enlarged += q.count < p.count;
        }
        consider(&after);
        ck_assert_msg(after.found, "seed %d: the plan does not satisfy the constraints", (int)seed);
    }
    ck_assert_int_gt(enlarged, INSTANCES / 10);
}
END_TEST

/* ---- Algorithm 1 ----------------------------------------------------------------------------------------------- */

static void check_dp(uint64_t seed, int32_t n, int32_t batch, int *feasible)
{
    struct instance x;
    struct cephalo_part fast[MOST_GPUS], slow[MOST_GPUS];
    struct ht_error err = {0};
    make_instance(&x, seed, n, batch, LINEAR);
    enum ht_status status = cephalo_optimize(&x.problem, CEPHALO_SLOWEST_GPU, &err, fast);
    ck_assert_msg(cephalo_optimize_dp(&x.problem, &err, slow) == status, "seed %d: '%s'", (int)seed, err.text);
    if (status) return;
    ++*feasible;
    struct cephalo_outcome a = cephalo_evaluate(&x.problem, fast), b = cephalo_evaluate(&x.problem, slow);
    ck_assert_msg(a.slowest_gpu_ns == b.slowest_gpu_ns, "seed %d: %lld, Algorithm 1 has %lld", (int)seed,
                  (long long)a.slowest_gpu_ns, (long long)b.slowest_gpu_ns);
    ck_assert_int_le(a.compute_bytes, b.compute_bytes);
}

START_TEST(planner_equals_algorithm_1)
{
    int feasible = 0;
    for (uint64_t seed = 0; seed < INSTANCES; seed++)
        check_dp(seed, 1 + (int32_t)(seed % 6), 1 + (int32_t)(seed / 6 % 20), &feasible);
    ck_assert_int_gt(feasible, INSTANCES / 2);
    feasible = 0;
    for (uint64_t seed = 0; seed < (SANITIZED ? 2 : 20); seed++) check_dp(seed, 16, 48, &feasible);
    ck_assert_int_gt(feasible, SANITIZED ? 0 : 5);
}
END_TEST

/* Memory that k cannot stand for is refused, not planned wrongly. */
START_TEST(algorithm_1_needs_one_slope)
{
    struct instance x;
    struct cephalo_part parts[2];
    struct ht_error err = {0};
    make_instance(&x, 3, 2, 8, RISING);
    ck_assert_int_eq(cephalo_optimize_dp(&x.problem, &err, parts), HT_BAD_INPUT);
    ck_assert_str_eq(err.text, "Algorithm 1 needs compute memory a + c m with one c for all GPUs");
}
END_TEST

/* ---- by hand --------------------------------------------------------------------------------------------------- */

static struct instance by_hand(int32_t n, int32_t batch)
{
    struct instance x = {.problem = {.n_gpus = n, .n_kinds = n, .batch = batch}};
    for (int32_t i = 0; i < n; i++) {
        x.kind_of[i] = i;
        x.kinds[i].max_micro_batch = batch;
    }
    return x;
}

static void check_plan(const struct cephalo_problem *p, enum cephalo_objective objective,
                       const struct cephalo_part *want)
{
    struct cephalo_part parts[MOST_GPUS];
    struct ht_error err = {0};
    ck_assert_msg(cephalo_optimize(p, objective, &err, parts) == HT_OK, "%s", err.text);
    for (int32_t i = 0; i < p->n_gpus; i++)
        ck_assert_msg(parts[i].micro_batch == want[i].micro_batch && parts[i].count == want[i].count,
                      "GPU %d: (%d,%d), expected (%d,%d)", i, parts[i].micro_batch, parts[i].count, want[i].micro_batch,
                      want[i].count);
}

/*
 * Three GPUs, B = 8, tf(m) = t (m + 1/2) with t = 1, 2, 4, tb = 2 tf, M = 1 + m, cap = 10, 8, 8, AG = RS = 3. T is
 * counted in halves here. (m, l) takes 3 l t (m + 1/2):
 *
 *     S <= 16  18    (5,1) 16.5, (1,2) 18, (1,1) 18: M = 6 + 2 + 2 = 10 = 26 - 16
 *     S = 17   21    M <= 9: (3,2) 21, (1,1) 9, (1,1) 18, M = 4 + 2 + 2 = 8
 *     S = 20   22.5  M <= 6, all m = 1: (1,5) 22.5, (1,2) 18, (1,1) 18
 *     S = 21   none  M <= 5, the m would add up to 2
 *
 * With S = 17, (1,4), (3,1), (1,1) ties. In 21 GPUs 0 and 1 could take 6 and 3 samples, of which it is the nearer part;
 * but GPU 1 then has no room for 17/3 bytes of the state.
 */
START_TEST(example_4)
{
    static const int64_t t[] = {1, 2, 4}, cap[] = {10, 8, 8};
    struct instance x = by_hand(3, 8);
    link_tables(&x);
    for (int k = 0; k < 3; k++) {
        x.kinds[k].capacity_bytes = cap[k];
        for (int32_t m = 0; m <= 8; m++) {
            x.forward_ns[k][m] = t[k] * (2 * m + 1);
            x.backward_ns[k][m] = 2 * x.forward_ns[k][m];
            x.compute_bytes[k][m] = 1 + m;
        }
    }
    x.problem.even = x.problem.uneven = (struct cephalo_collectives){6, 6};
    static const struct cephalo_part want[][3] = {
        {{5, 1}, {1, 2}, {1, 1}}, {{5, 1}, {1, 2}, {1, 1}}, {{3, 2}, {1, 1}, {1, 1}}, {{1, 5}, {1, 2}, {1, 1}}};
    static const struct cephalo_part spread[] = {{1, 4}, {3, 1}, {1, 1}};
    static const int64_t state[] = {0, 16, 17, 20}, layer[] = {36, 36, 42, 45};
    for (int c = 0; c < 4; c++) {
        x.problem.state_bytes = state[c];
        check_plan(&x.problem, CEPHALO_SLOWEST_GPU, c == 2 ? spread : want[c]);
        check_plan(&x.problem, CEPHALO_LAYER, want[c]); /* tb / tf is the same everywhere */
        ck_assert_int_eq(cephalo_evaluate(&x.problem, want[c]).slowest_gpu_ns, layer[c]);
        struct cephalo_part slow[3];
        ck_assert_int_eq(cephalo_optimize_dp(&x.problem, NULL, slow), HT_OK);
        ck_assert_int_eq(cephalo_evaluate(&x.problem, slow).slowest_gpu_ns, layer[c]);
    }
    x.problem.state_bytes = 21;
    struct cephalo_part parts[3];
    struct ht_error err = {0};
    ck_assert_int_eq(cephalo_optimize(&x.problem, CEPHALO_LAYER, &err, parts), HT_INFEASIBLE);
    ck_assert_str_eq(err.text,
                     "Cephalo has no plan: a training state of 21 B and compute memory of at least 6 B exceed "
                     "all GPUs' 26 B (constraint III)");
    ck_assert_int_eq(cephalo_optimize_dp(&x.problem, &err, parts), HT_INFEASIBLE);
}
END_TEST

/* T_f = (12, 10, 11), T_b = (30, 33, 25), AG 11, RS 20, in hundredths. Even: 12 + 33 = 45; the slowest GPU: 11 + 33.
   Uneven, where both take 15% longer (Sec. 2.3): max(12, 12.65) + max(33, 35.65) = 48.3. An even share of 30 is 10. */
START_TEST(example_5)
{
    static const int64_t forward[] = {1200, 1000, 1100}, backward[] = {3000, 3300, 2500};
    static const struct cephalo_part one[] = {{1, 1}, {1, 1}, {1, 1}};
    struct instance x = by_hand(3, 3);
    link_tables(&x);
    for (int k = 0; k < 3; k++) {
        x.forward_ns[k][1] = forward[k];
        x.backward_ns[k][1] = backward[k];
        x.compute_bytes[k][1] = 4;
        x.kinds[k].capacity_bytes = 14;
    }
    x.problem.state_bytes = 30;
    x.problem.even = (struct cephalo_collectives){1100, 2000};
    x.problem.uneven = (struct cephalo_collectives){1265, 2300};
    struct cephalo_outcome even = cephalo_evaluate(&x.problem, one);
    ck_assert(!even.uneven);
    ck_assert_int_eq(even.forward_ns, 1200);
    ck_assert_int_eq(even.backward_ns, 3300);
    ck_assert_int_eq(even.slowest_gpu_ns, 4400);
    ck_assert_int_eq(even.compute_bytes, 12);
    x.kinds[2].capacity_bytes = 13; /* one GPU less by a byte */
    struct cephalo_outcome uneven = cephalo_evaluate(&x.problem, one);
    ck_assert(uneven.uneven);
    ck_assert_int_eq(uneven.forward_ns + uneven.backward_ns, 4830);
    ck_assert_int_eq(uneven.slowest_gpu_ns, 1265 + 3565);
}
END_TEST

/* Collectives hide everything and memory is the same for all: three equal GPUs take 10 samples as evenly as they can be
   cut, the fourth, which has time for two samples only, its part of that: 2 of 10 + 10 + 10 + 2. */
START_TEST(ties_spread_the_batch)
{
    struct instance x = by_hand(4, 10);
    x.problem.n_kinds = 2;
    link_tables(&x);
    for (int32_t i = 0; i < 4; i++) x.kind_of[i] = i == 3;
    for (int k = 0; k < 2; k++) {
        x.kinds[k].capacity_bytes = 100;
        for (int32_t m = 1; m <= 10; m++) {
            x.forward_ns[k][m] = x.backward_ns[k][m] = (k ? 5 : 1) * m;
            x.compute_bytes[k][m] = 50;
        }
    }
    x.problem.even = x.problem.uneven = (struct cephalo_collectives){10, 0};
    static const struct cephalo_part want[] = {{1, 3}, {1, 3}, {1, 3}, {1, 1}};
    check_plan(&x.problem, CEPHALO_SLOWEST_GPU, want);
    check_plan(&x.problem, CEPHALO_LAYER, want);
}
END_TEST

/* GPU 1 needs 60 of its 64 bytes for a sample and 4 for none, and the state takes 50 of 128: only if it may be idle is
   there a plan, and then it holds what is left. */
START_TEST(a_gpu_that_only_stores)
{
    struct instance x = by_hand(2, 4);
    link_tables(&x);
    for (int k = 0; k < 2; k++) {
        x.kinds[k].capacity_bytes = 64;
        for (int32_t m = 0; m <= 4; m++) {
            x.forward_ns[k][m] = x.backward_ns[k][m] = m;
            x.compute_bytes[k][m] = k && m ? 60 : 4 + 10 * m;
        }
    }
    x.problem.state_bytes = 50;
    x.problem.uneven = (struct cephalo_collectives){1, 1};
    struct cephalo_part parts[2];
    x.problem.state_bytes = 60;
    ck_assert_int_eq(cephalo_optimize(&x.problem, CEPHALO_LAYER, NULL, parts), HT_INFEASIBLE);
    x.problem.may_idle = true;
    /* 128 - 60 - 4 = 64: up to m = 6; without any other difference the least memory, m = 1, and an even state of 30 */
    check_plan(&x.problem, CEPHALO_LAYER, (struct cephalo_part[]){{1, 4}, {0, 0}});
    ck_assert(!cephalo_evaluate(&x.problem, (struct cephalo_part[]){{1, 4}, {0, 0}}).uneven);
}
END_TEST

/* Kinds only save time: the same GPUs, each as a kind of its own, give the same plan. */
START_TEST(kinds_do_not_matter)
{
    int feasible = 0, n_instances = SANITIZED ? 60 : 600;
    for (uint64_t seed = 0; seed < (uint64_t)n_instances; seed++) {
        struct instance x;
        int32_t n = seed % 20 ? 2 + (int32_t)(seed % 11) : MOST_GPUS;
        make_instance(&x, seed, n, n < 20 ? 24 : MOST_BATCH, (enum memory)(seed % 3));
        struct cephalo_kind alone[MOST_GPUS];
        int32_t own[MOST_GPUS];
        for (int32_t i = 0; i < n; i++) {
            alone[i] = x.kinds[x.kind_of[i]];
            own[i] = i;
        }
        struct cephalo_problem other = x.problem;
        other.kinds = alone;
        other.kind_of = own;
        other.n_kinds = n;
        for (int objective = CEPHALO_SLOWEST_GPU; objective <= CEPHALO_LAYER; objective++) {
            struct cephalo_part a[MOST_GPUS] = {{0}}, b[MOST_GPUS] = {{0}};
            struct ht_error err_a = {0}, err_b = {0};
            enum ht_status status = cephalo_optimize(&x.problem, (enum cephalo_objective)objective, &err_a, a);
            ck_assert_int_eq(cephalo_optimize(&other, (enum cephalo_objective)objective, &err_b, b), status);
            ck_assert_str_eq(err_a.text, err_b.text);
            ck_assert_msg(!memcmp(a, b, sizeof(a)), "seed %d", (int)seed);
            feasible += status == HT_OK;
        }
    }
    ck_assert_int_gt(feasible, n_instances);
}
END_TEST

/* ---- no plan, bad input ---------------------------------------------------------------------------------------- */

/* Two equal GPUs: tf = tb = m, M = 10 + 10 m, 100 bytes. */
static struct instance plain(int32_t n, int32_t batch)
{
    struct instance x = by_hand(n, batch);
    for (int k = 0; k < n; k++) {
        x.kinds[k].capacity_bytes = 100;
        for (int32_t m = 0; m <= batch; m++) {
            x.forward_ns[k][m] = x.backward_ns[k][m] = m;
            x.compute_bytes[k][m] = 10 + 10 * m;
        }
    }
    return x;
}

static void check_error(struct instance *x, enum ht_status status, const char *text)
{
    struct cephalo_part parts[MOST_GPUS];
    struct ht_error err = {0};
    link_tables(x);
    ck_assert_int_eq(cephalo_optimize(&x->problem, CEPHALO_LAYER, &err, parts), status);
    ck_assert_str_eq(err.text, text);
    ck_assert_int_eq(cephalo_optimize_dp(&x->problem, &err, parts), status);
    ck_assert_str_eq(err.text, text);
}

START_TEST(says_what_leaves_no_plan)
{
    struct instance x = plain(2, 4);
    x.kinds[1].capacity_bytes = 19;
    check_error(&x, HT_INFEASIBLE,
                "Cephalo has no plan: GPU 1 (constraint II) needs 20 B for micro-batch 1, and has 19 B");
    x.problem.may_idle = true;
    x.kinds[1].capacity_bytes = 9;
    check_error(&x, HT_INFEASIBLE,
                "Cephalo has no plan: GPU 1 (constraint II) needs 10 B without samples, and has 9 B");
    x = plain(2, 4);
    x.problem.state_bytes = 170;
    x.problem.even_only = true;
    check_error(&x, HT_INFEASIBLE,
                "Cephalo has no plan: GPU 0 (constraint II) needs 20 B for micro-batch 1 and an even share of the "
                "state of 85 B, and has 100 B");
    x = plain(3, 2);
    check_error(&x, HT_INFEASIBLE,
                "Cephalo has no plan: no micro-batches of 3 GPUs make up a batch of 2 (constraint I); each takes at "
                "least one, all at most 6");
    x = plain(2, 30); /* m = 9 fits, m = 10 does not */
    x.problem.max_count = 1;
    check_error(&x, HT_INFEASIBLE,
                "Cephalo has no plan: no micro-batches of 2 GPUs make up a batch of 30 (constraint I); they take at "
                "most 18");
    x = plain(2, 4);
    x.problem.state_bytes = 161;
    check_error(&x, HT_INFEASIBLE,
                "Cephalo has no plan: a training state of 161 B and compute memory of at least 40 B "
                "exceed all GPUs' 200 B (constraint III)");
}
END_TEST

START_TEST(refuses_numbers_it_cannot_compute_with)
{
    struct instance x = plain(2, 4);
    x.problem.batch = 40000;
    check_error(&x, HT_BAD_INPUT, "Cephalo cannot plan a batch of 40000 on 2 GPUs: expected 1 to 32767 of each");
    x = plain(2, 4);
    x.backward_ns[1][3] = -1;
    check_error(&x, HT_BAD_INPUT, "GPU kind 1 has a negative time or memory for micro-batch 3");
    x = plain(2, 4);
    x.forward_ns[0][4] = INT64_MAX / 9;
    check_error(&x, HT_BAD_INPUT,
                "1024819115206086200 ns is too long for a layer's micro-batch or collective of a batch of 4");
    x = plain(2, 4);
    x.problem.even.all_gather_ns = 1;
    check_error(&x, HT_BAD_INPUT, "invalid times of collectives: expected 0 or more, and uneven ones no shorter");
    x = plain(2, 4);
    x.problem.state_bytes = INT64_C(1) << 53;
    check_error(&x, HT_BAD_INPUT, "a training state of 9007199254740992 bytes; expected 0 to 2^53");
    x = plain(2, 4);
    x.kinds[0].capacity_bytes = x.kinds[1].capacity_bytes = INT64_C(1) << 52;
    check_error(&x, HT_BAD_INPUT, "invalid memory of the GPUs: expected 0 to 2^53 bytes in all");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("Cephalo: optimizer");
    TCase *tc = tcase_create("optimizer");
    tcase_add_test(tc, planner_equals_enumeration);
    tcase_add_test(tc, planner_equals_algorithm_1);
    tcase_add_test(tc, algorithm_1_needs_one_slope);
    tcase_add_test(tc, example_4);
    tcase_add_test(tc, example_5);
    tcase_add_test(tc, ties_spread_the_batch);
    tcase_add_test(tc, enlarged_plans_are_no_worse);
    tcase_add_test(tc, a_gpu_that_only_stores);
    tcase_add_test(tc, kinds_do_not_matter);
    tcase_add_test(tc, says_what_leaves_no_plan);
    tcase_add_test(tc, refuses_numbers_it_cannot_compute_with);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
