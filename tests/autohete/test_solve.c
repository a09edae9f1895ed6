/* Eq. 6: GLPK, the planner's own search, and a plain enumeration written here from the equations must agree. */
#include "autohete/autohete.h"

#include "common/base/rng.h"
#include "common/solve/milp.h"

#include <check.h>
#include <string.h>

/* An instance in the paper's own terms, times and elements as whole numbers. */
struct instance {
    int L, m, fp32;
    long fp, bp, h2d, d2h, cpu, gpu, cpu_sum, gpu_sum;
    long Ma, Ma_in, Mp, Mgc, Mcc, Mgpu, Mcpu;
    long ends, head, turn, ends_cpu; /* embedding and head */
    int apart;
};

static long pick(uint64_t seed, uint64_t *k, long low, long high)
{
    return low + (long)ht_random_below(seed, (*k)++, (uint64_t)(high - low + 1));
}

/* Capacities between what the leanest plan and the fattest one need, and sometimes less. */
static struct instance random_instance(uint64_t seed)
{
    uint64_t k = 0;
    struct instance x = {
        .L = (int)pick(seed, &k, 1, 12), .m = (int)pick(seed, &k, 1, 4), .fp32 = (int)pick(seed, &k, 0, 1)};
    if (x.m == 4) x.m = 1; /* more of the paper's own case */
    x.fp = pick(seed, &k, 1, 30), x.bp = pick(seed, &k, 1, 60), x.h2d = pick(seed, &k, 1, 90),
    x.d2h = pick(seed, &k, 1, 90);
    x.cpu = pick(seed, &k, 1, 120), x.gpu = pick(seed, &k, 0, 9);
    x.cpu_sum = pick(seed, &k, 0, 20), x.gpu_sum = pick(seed, &k, 0, 9);
    x.Ma_in = pick(seed, &k, 1, 6), x.Ma = x.Ma_in + pick(seed, &k, 0, 60), x.Mp = pick(seed, &k, 1, 20);
    x.Mgc = pick(seed, &k, 0, 100), x.Mcc = pick(seed, &k, 0, 100);
    long leanest = 2 * x.Ma_in * x.L + 2 * x.Ma + 2 * x.Mp + x.Mgc;
    long fattest = 2 * x.Ma * (x.L + 1) + 14 * x.Mp * (x.L + 1) + x.Mgc;
    x.Mgpu = pick(seed, &k, leanest - leanest / 20, fattest);
    x.Mcpu = pick(seed, &k, x.Mcc, x.Mcc + 18 * x.Mp * x.L);
    x.head = pick(seed, &k, 0, 40), x.turn = pick(seed, &k, 0, 40), x.ends_cpu = pick(seed, &k, 0, 60);
    x.ends = x.m * x.head + x.turn;
    x.apart = pick(seed, &k, 0, 3) == 0;
    return x;
}

static struct autohete_profile profile_of(const struct instance *x)
{
    int several = x->m > 1;
    return (struct autohete_profile){.layers = x->L,
                                     .micro_batches = x->m,
                                     .apart = x->apart,
                                     .input_bytes = 2 * x->Ma_in,
                                     .activation_bytes = 2 * x->Ma,
                                     .copy_bytes = (x->fp32 ? 4 : 2) * x->Mp,
                                     .state_bytes = 12 * x->Mp,
                                     .shared_bytes = x->fp32 ? 4 * x->Mp : 0,
                                     .sum_bytes = several ? 4 * x->Mp : 0,
                                     .host_bytes = 14 * x->Mp,
                                     .device_const_bytes = x->Mgc,
                                     .host_const_bytes = x->Mcc,
                                     .device_capacity_bytes = x->Mgpu,
                                     .host_capacity_bytes = x->Mcpu,
                                     .fp_ns = x->fp,
                                     .bp_ns = x->bp,
                                     .h2d_ns = x->h2d,
                                     .d2h_ns = x->d2h,
                                     .cpu_ns = x->cpu,
                                     .gpu_ns = x->gpu,
                                     .cpu_sum_ns = x->cpu_sum,
                                     .gpu_sum_ns = x->gpu_sum,
                                     .const_ns = x->ends,
                                     .head_ns = x->head,
                                     .turn_ns = x->turn,
                                     .ends_host_ns = x->ends_cpu};
}

static long max2(long a, long b)
{
    return a > b ? a : b;
}

/* T_fwd + T_bwd and the ends as printed, and of the further micro-batches. */
static long printed(const struct instance *x, long c, long p, long o, long sync)
{
    int several = x->m > 1;
    long gpu = x->gpu + several * x->gpu_sum, cpu = x->cpu + several * x->cpu_sum;
    return max2(x->fp * x->L, x->h2d * o + x->fp) +
           max2(x->bp * x->L + x->fp * c + gpu * (x->L - o) + sync, x->bp + x->d2h + cpu * o) +
           (x->m - 1) *
               (max2(x->fp * x->L, x->h2d * p + x->fp) +
                max2(x->bp * x->L + x->fp * c + x->gpu_sum * (x->L - o) + sync, x->bp + x->d2h + x->cpu_sum * o)) +
           x->ends;
}

/* The period, cycle by cycle, each from an op to the same op of the next iteration. */
static long period(const struct instance *x, long c, long p, long o, long sync)
{
    long m = x->m, on_device = x->L - o, late = 1, step = x->cpu + (m > 1) * x->cpu_sum, T;
    long passes = x->L * (x->fp + x->bp) + c * x->fp + sync;
    if (x->cpu > x->bp) { /* the least i with i (t_cpu - t_bp) >= t_bp */
        long i = 1;
        while (i * (x->cpu - x->bp) < x->bp) i++;
        late = i + 1 < x->L ? i + 1 : x->L;
    }
    long device = m * passes + on_device * (x->gpu + (m - 1) * x->gpu_sum) + x->ends;
    T = max2(device, x->h2d * (o - p) + 2 * m * x->h2d * p);
    T = max2(T, o * (x->cpu + (m - 1) * x->cpu_sum) + x->ends_cpu);
    T = max2(T, o * step + x->ends_cpu + (m - 1) * passes);
    if (c == x->L) { /* R_L comes before B_L, also with no block on the host */
        T = max2(T, o * (x->cpu + (m - 1) * x->cpu_sum) + x->ends_cpu + x->fp);
        T = max2(T, o * step + x->ends_cpu + (m - 1) * passes + x->fp);
    }
    if (o == 0) return T;
    /* G_j O_j PF_j .. F_j instead of what the device does between B_j and F_j */
    long before = on_device * (x->fp + x->bp + x->gpu) + (c < on_device ? c : on_device) * x->fp + x->turn;
    T = max2(T, device - before + x->d2h + step + x->h2d);
    /* G_j O_j PF_j .. PF_L F_L instead of what it does between B_j and F_L */
    T = max2(T, device - before - (o - 1) * x->fp + x->d2h + step + o * x->h2d);
    /* all steps, PF, F of some blocks, head, R_L, B_L, G_L */
    long turn = x->h2d + x->head + (c == x->L ? x->fp : 0) + x->bp;
    T = max2(T, o * (x->cpu + (m - 1) * x->cpu_sum) + x->ends_cpu + turn + late * x->fp + x->d2h);
    T = max2(T, o * step + x->ends_cpu + (m - 1) * passes + turn + late * x->fp + x->d2h);
    /* all copies of gradients, the last step, PF, F_L, head, R_L, B_L */
    return max2(T, m * o * x->d2h + step + turn + x->fp);
}

/* All (L+1)^3 points; the least time, then the least p, c, o, or c, p, o by the period. False: none fits. Written without
   the code under test. */
static int enumerate(const struct instance *x, int by_period, long best[4])
{
    int found = 0, several = x->m > 1;
    for (long first = 0; first <= x->L; first++)
        for (long second = 0; second <= x->L; second++)
            for (long o = 0; o <= x->L; o++) {
                long p = by_period ? second : first, c = by_period ? first : second;
                long e = x->fp32 ? 4 : 2, in_place = x->fp32 && !by_period ? 8 : 12;
                long inputs = by_period && c == x->L ? c - 1 : c, sets = x->L - inputs + !by_period;
                long device = 2 * x->Ma_in * inputs + 2 * x->Ma * sets + e * x->Mp * ((by_period ? o : x->L) - p + 1) +
                              in_place * x->Mp * (x->L - o) + (several ? 4 : 0) * x->Mp * (x->L - o) + x->Mgc;
                if (p > o || device > x->Mgpu || 14 * x->Mp * o + x->Mcc > x->Mcpu) continue;
                long v = c - (by_period ? 1 : 0) - (x->L - o);
                if (v > p) v = p;
                if (v < 0) v = 0;
                long sync = v * max2(x->h2d - x->fp - x->bp, 0) + (p - v) * max2(x->h2d - x->bp, 0);
                long T = by_period && !x->apart ? period(x, c, p, o, sync) : printed(x, c, p, o, sync);
                if (found && T >= best[0]) continue; /* the first of a tie stays */
                best[0] = T, best[1] = c, best[2] = p, best[3] = o;
                found = 1;
            }
    return found;
}

typedef enum ht_status solver(const struct autohete_profile *, const struct autohete_model *,
                              const struct autohete_box *, struct ht_error *, struct autohete_choice *);

/* 1,000 instances of both programs. */
static int agree(solver *solve)
{
    int feasible = 0;
    for (uint64_t seed = 0; seed < 1000; seed++)
        for (int by_period = 0; by_period <= 1; by_period++) {
            struct instance x = random_instance(seed);
            struct autohete_profile f = profile_of(&x);
            const struct autohete_box box = {{0, 0, 0}, {x.L, x.L, x.L}};
            struct autohete_choice s;
            struct ht_error err = {0};
            long best[4];
            enum ht_status status = solve(&f, by_period ? &autohete_by_period : &autohete_printed, &box, &err, &s);
            if (!enumerate(&x, by_period, best)) {
                ck_assert_msg(status == HT_INFEASIBLE, "seed %d: a plan where there is none", (int)seed);
                continue;
            }
            feasible++;
            ck_assert_msg(status == HT_OK, "seed %d: %s", (int)seed, err.text);
            ck_assert_msg(s.c == best[1] && s.p == best[2] && s.o == best[3],
                          "seed %d period %d: (%d,%d,%d), expected (%ld,%ld,%ld) of time %ld", (int)seed, by_period,
                          (int)s.c, (int)s.p, (int)s.o, best[1], best[2], best[3], best[0]);
        }
    return feasible;
}

START_TEST(search_equals_enumeration)
{
    ck_assert_int_gt(agree(autohete_search), 1200);
}
END_TEST

START_TEST(glpk_equals_enumeration)
{
    if (ht_milp_available()) ck_assert_int_gt(agree(autohete_solve), 1200);
}
END_TEST

/* A forced variable is a box of one value: the best of the points that have it. */
START_TEST(forced_variables)
{
    for (uint64_t seed = 0; seed < 100; seed++) {
        struct instance x = random_instance(seed);
        struct autohete_profile f = profile_of(&x);
        long c = x.L / 2;
        const struct autohete_box box = {{c, 0, 0}, {c, x.L, x.L}};
        struct autohete_choice a, b;
        struct ht_error err = {0};
        enum ht_status status = autohete_solve(&f, &autohete_by_period, &box, &err, &a);
        ck_assert_int_eq(status, autohete_search(&f, &autohete_by_period, &box, &err, &b));
        if (status != HT_OK) continue;
        ck_assert_int_eq(a.c, c);
        ck_assert(a.c == b.c && a.p == b.p && a.o == b.o);
    }
}
END_TEST

/*
 * The message names the binding constraint. L=2, a block: 2 bytes of input, 20 of activations, 8 of copy, 48 of states,
 * 56 on the host. The leanest plan, c = p = o = 2, takes 2 + 20 + 8 = 30 bytes on the device by footnote 2. With
 * 29: eq. 1. With 100, o = 0 needs at least 2 + 20 + 8 + 96, o = 1 (p = 1) 2 + 20 + 8 + 48 = 78: so o >= 1, 56 bytes;
 * with 50 there: eq. 2.
 */
START_TEST(the_binding_constraint_is_named)
{
    struct autohete_profile f = {.layers = 2,
                                 .micro_batches = 1,
                                 .input_bytes = 2,
                                 .activation_bytes = 20,
                                 .copy_bytes = 8,
                                 .state_bytes = 48,
                                 .host_bytes = 56,
                                 .device_capacity_bytes = 29,
                                 .host_capacity_bytes = 1000,
                                 .fp_ns = 1,
                                 .bp_ns = 2,
                                 .h2d_ns = 1,
                                 .d2h_ns = 1,
                                 .cpu_ns = 1,
                                 .gpu_ns = 1};
    const struct autohete_box box = {{0, 0, 0}, {2, 2, 2}};
    struct autohete_choice s;
    struct ht_error err = {0};
    ck_assert_int_eq(autohete_solve(&f, &autohete_by_period, &box, &err, &s), HT_INFEASIBLE);
    ck_assert_msg(strstr(err.text, "eq. 1") && strstr(err.text, "30 B of 29 B"), "%s", err.text);
    f.device_capacity_bytes = 100;
    f.host_capacity_bytes = 50;
    ck_assert_int_eq(autohete_solve(&f, &autohete_by_period, &box, &err, &s), HT_INFEASIBLE);
    ck_assert_msg(strstr(err.text, "eq. 2") && strstr(err.text, "o >= 1") && strstr(err.text, "56 B of 50 B"), "%s",
                  err.text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("solve");
    TCase *t = tcase_create("eq. 6");
    tcase_add_test(t, search_equals_enumeration);
    tcase_add_test(t, glpk_equals_enumeration);
    tcase_add_test(t, forced_variables);
    tcase_add_test(t, the_binding_constraint_is_named);
    suite_add_tcase(suite, t);
    SRunner *r = srunner_create(suite);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
