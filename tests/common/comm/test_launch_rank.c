#include "common/comm/launch.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static const char *const variables[] = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "SLURM_STEP_NUM_TASKS"};

/* Sets the variables to these values, NULL: unset, and finds the ranks. */
static enum ht_status ranks_with(const char *ompi, const char *pmix, const char *slurm, struct ht_error *err,
                                 int32_t *n)
{
    const char *values[] = {ompi, pmix, slurm};
    for (int i = 0; i < 3; i++) values[i] ? setenv(variables[i], values[i], 1) : unsetenv(variables[i]);
    return ht_launched_ranks(err, n);
}

START_TEST(launchers)
{
    struct ht_error err;
    int32_t n;
    ck_assert_int_eq(ranks_with(NULL, NULL, NULL, &err, &n), HT_OK);
    ck_assert_int_eq(n, 0);
    ck_assert_int_eq(ranks_with("4", "1", NULL, &err, &n), HT_OK); /* mpirun, which sets PMIx's variables, too */
    ck_assert_int_eq(n, 4);
    ck_assert_int_eq(ranks_with("4", "1", "2", &err, &n), HT_OK); /* mpirun inside a step */
    ck_assert_int_eq(n, 4);
    ck_assert_int_eq(ranks_with(NULL, "3", "6", &err, &n), HT_OK); /* srun --mpi=pmix */
    ck_assert_int_eq(n, 6);
    ck_assert_int_eq(ranks_with(NULL, NULL, "1", &err, &n), HT_OK); /* srun -n1, without PMIx */
    ck_assert_int_eq(n, 0);
    ck_assert_int_eq(ranks_with(NULL, NULL, "6", &err, &n), HT_BAD_INPUT);
    ck_assert_ptr_nonnull(strstr(err.text, "srun started 6 tasks without PMIx"));
    ck_assert_int_eq(ranks_with(NULL, "0", NULL, &err, &n), HT_BAD_INPUT);
    ck_assert_ptr_nonnull(strstr(err.text, "expected mpirun or srun"));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("launch_rank");
    TCase *tc = tcase_create("launch_rank");
    tcase_add_test(tc, launchers);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
