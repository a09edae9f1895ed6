/* Sizes that overflow end the process as a failed allocation does: one line, exit status 3. */
#include "common/base/array.h"
#include "common/base/status.h"

#include <check.h>
#include <stdint.h>
#include <stdlib.h>

START_TEST(grows)
{
    int *v = NULL;
    size_t n = 0, cap = 0;
    for (int i = 0; i < 1000; i++) HT_PUSH(v, n, cap, i);
    for (int i = 0; i < 1000; i++) ck_assert_int_eq(v[i], i);
    ck_assert_uint_eq(cap, 1024);
    free(v);
    char *aligned = ht_alloc_aligned(64, 65);
    ck_assert(((uintptr_t)aligned & 63) == 0 && aligned[64] == 0);
    free(aligned);
    free(HT_NEW_ARRAY(int, 0));
    int32_t *ids = ht_alloc_ids(2);
    ck_assert(ids[0] == -1 && ids[1] == -1);
    free(ids);
}
END_TEST

START_TEST(array_too_large)
{
    size_t n = SIZE_MAX / 8 + 2; /* times 8 is 8 */
    free(HT_NEW_ARRAY(int64_t, n));
}
END_TEST

START_TEST(negative_array)
{
    free(HT_NEW_ARRAY(int64_t, -1));
}
END_TEST

START_TEST(reserve_too_large)
{
    int64_t *v = NULL;
    size_t cap = 0;
    HT_RESERVE(v, cap, SIZE_MAX / 8 + 2); /* the next power of two, 2^61, times 8 is 0 */
    free(v);
}
END_TEST

START_TEST(reserve_beyond_all)
{
    char *v = NULL;
    size_t cap = 0;
    HT_RESERVE(v, cap, SIZE_MAX); /* no power of two is as large */
    free(v);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("array");
    TCase *t = tcase_create("array");
    tcase_add_test(t, grows);
    tcase_add_exit_test(t, array_too_large, HT_INFEASIBLE);
    tcase_add_exit_test(t, negative_array, HT_INFEASIBLE);
    tcase_add_exit_test(t, reserve_too_large, HT_INFEASIBLE);
    tcase_add_exit_test(t, reserve_beyond_all, HT_INFEASIBLE);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
