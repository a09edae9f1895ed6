/* The knapsack against the plain recurrence over GPUs and samples, in whole numbers. */
#include "cephalo/knapsack.h"

#include "common/base/rng.h"
#include "tests/support/sanitized.h"

#include <check.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

enum { MOST_GPUS = 8, MOST_BATCH = 40 };
#define NEVER INT64_MAX

struct instance {
    int32_t n_gpus, n_kinds, batch, kind_of[MOST_GPUS];
    int64_t bytes[MOST_GPUS][MOST_BATCH + 1]; /* of kinds; NEVER: not possible */
};

/* Rows that rise, that fall, and in no order; small numbers, so that sums tie, and such that sums come close to 2^53.
 */
static struct instance random_instance(uint64_t seed)
{
    uint64_t next = 0;
#define PICK(low, high) ((int64_t)(low) + (int64_t)ht_random_below(seed, next++, (uint64_t)((high) - (low) + 1)))
    struct instance x = {.n_gpus = (int32_t)PICK(1, MOST_GPUS), .batch = (int32_t)PICK(1, MOST_BATCH)};
    x.n_kinds = (int32_t)PICK(1, x.n_gpus);
    for (int32_t i = 0; i < x.n_gpus; i++) x.kind_of[i] = i < x.n_kinds ? i : (int32_t)PICK(0, x.n_kinds - 1);
    int64_t unit = PICK(0, 1) ? 1 : INT64_C(1) << 43;
    for (int32_t k = 0; k < x.n_kinds; k++) {
        int64_t slope = PICK(-1, 3), noise = PICK(0, 9) * unit / 4, holes = PICK(0, 3);
        int32_t reach = (int32_t)PICK(0, x.batch);
        for (int32_t b = 0; b <= x.batch; b++) {
            bool hole = b > reach || (b < reach && PICK(0, 3) < holes);
            x.bytes[k][b] = hole ? NEVER : 50 * unit + slope * b * unit / 2 + PICK(0, noise);
        }
    }
#undef PICK
    return x;
}

/* d[b]: the least bytes of the GPUs so far for b samples. */
static int64_t recurrence(const struct instance *x)
{
    int64_t d[MOST_BATCH + 1];
    for (int32_t b = 0; b <= x->batch; b++) d[b] = b ? NEVER : 0;
    for (int32_t i = 0; i < x->n_gpus; i++)
        for (int32_t b = x->batch; b >= 0; b--) {
            int64_t best = NEVER;
            for (int32_t own = 0; own <= b; own++) {
                int64_t bytes = x->bytes[x->kind_of[i]][own];
                if (bytes < NEVER && d[b - own] < NEVER && d[b - own] + bytes < best) best = d[b - own] + bytes;
            }
            d[b] = best;
        }
    return d[x->batch];
}

static double solve(const struct instance *x, double room, int32_t *batches)
{
    struct cephalo_knapsack k;
    cephalo_knapsack_init(&k, x->n_kinds, x->batch);
    for (int32_t i = 0; i < x->n_gpus; i++) k.n_gpus[x->kind_of[i]]++;
    for (int32_t kind = 0; kind < x->n_kinds; kind++)
        for (int32_t b = 0; b <= x->batch; b++) {
            cephalo_knapsack_row(&k, kind)[b] = x->bytes[kind][b] < NEVER ? (double)x->bytes[kind][b] : INFINITY;
            if (x->bytes[kind][b] < NEVER) k.reach[kind] = b;
        }
    double least = cephalo_knapsack_least(&k, room);
    if (!isinf(least)) cephalo_knapsack_solve(&k, x->n_gpus, x->kind_of, batches);
    cephalo_knapsack_free(&k);
    return least;
}

START_TEST(equals_the_recurrence)
{
    int found = 0, n = SANITIZED ? 2000 : 20000;
    for (uint64_t seed = 0; seed < (uint64_t)n; seed++) {
        struct instance x = random_instance(seed);
        int64_t least = recurrence(&x);
        int32_t batches[MOST_GPUS], batch = 0;
        if (least == NEVER) {
            ck_assert(isinf(solve(&x, INFINITY, batches)));
            continue;
        }
        found++;
        double want = (double)least;
        ck_assert_msg(solve(&x, INFINITY, batches) == want, "seed %d", (int)seed);
        ck_assert_msg(isinf(solve(&x, want - 1, batches)), "seed %d", (int)seed);
        ck_assert_msg(solve(&x, want + 1, batches) == want, "seed %d", (int)seed);
        ck_assert_msg(solve(&x, want, batches) == want, "seed %d", (int)seed);
        int64_t bytes = 0;
        for (int32_t i = 0; i < x.n_gpus; i++) {
            batch += batches[i];
            bytes += x.bytes[x.kind_of[i]][batches[i]];
        }
        ck_assert_int_eq(batch, x.batch);
        ck_assert_int_eq(bytes, least);
    }
    ck_assert_int_gt(found, n / 3);
    ck_assert_int_lt(found, n - n / 10);
}
END_TEST

/* All entries are alike, so every split of 10 is a minimum. GPUs reach 8, 8 and 4 of 20. GPU 2 takes 10 * 4 / 20 = 2,
   GPU 1 8 * 8 / 16 = 4. Of 11, GPU 2 takes 2 (2.2), GPU 1 of 9 4 (4.5; the smaller of two as near) and GPU 0 5. Of 9, 2
   (1.8), 3 (3.5) and 4. */
START_TEST(ties_go_by_reach)
{
    struct instance x = {.n_gpus = 3, .n_kinds = 2, .batch = 10, .kind_of = {0, 0, 1}};
    for (int32_t b = 0; b <= MOST_BATCH; b++) {
        x.bytes[0][b] = b <= 8 ? 7 : NEVER;
        x.bytes[1][b] = b <= 4 ? 7 : NEVER;
    }
    int32_t batches[3];
    ck_assert_double_eq(solve(&x, 21, batches), 21);
    ck_assert(batches[0] == 4 && batches[1] == 4 && batches[2] == 2);
    x.batch = 11;
    ck_assert_double_eq(solve(&x, 21, batches), 21);
    ck_assert(batches[0] == 5 && batches[1] == 4 && batches[2] == 2);
    x.batch = 9;
    ck_assert_double_eq(solve(&x, 21, batches), 21);
    ck_assert(batches[0] == 4 && batches[1] == 3 && batches[2] == 2);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("Cephalo: knapsack");
    TCase *tc = tcase_create("knapsack");
    tcase_add_test(tc, equals_the_recurrence);
    tcase_add_test(tc, ties_go_by_reach);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
