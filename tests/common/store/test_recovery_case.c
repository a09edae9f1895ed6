/* Recoveries as files have them: blocks by speeds, what ranks read (AutoHet, arXiv 2512.20953, Fig. 6), what is wrong in a file. */
#include "common/store/recovery_case.h"

#include "tests/support/suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct ht_model model = {
    .arch = HT_ARCH_GPT, .layers = 32, .width = 64, .heads = 8, .ffn = 256, .vocab = 64, .max_seq = 32, .tied = true};
static const struct ht_store_reading how = {.param_bytes = 6};

static struct ht_recovery_case load(const char *name)
{
    struct ht_recovery_case c;
    struct ht_error err;
    ck_assert_msg(ht_recovery_case_load(name, &err, &c) == HT_OK, "%s", err.text);
    return c;
}

/* Two stages of speeds 312 and 148: of 32 blocks 22 and 10 take 22 / 312 = 0.0705, 21 and 11 take 11 / 148 = 0.0743; of 40, 27 and 13
   take 0.0878; of 44, 30 and 14 take 0.0962. The embedding is unit 0, the head the last one. */
START_TEST(blocks_by_speed)
{
    static const int64_t layers[] = {32, 40, 44, 2}, first[] = {22, 27, 30, 1};
    struct ht_recovery_case c = load("autohet-a");
    struct ht_store_stage stages[HT_RECOVERY_STAGES];
    struct ht_error err;
    for (int i = 0; i < 4; i++) {
        struct ht_model m = model;
        m.layers = layers[i];
        ck_assert_int_eq(ht_recovery_case_stages(&c.before, &m, &err, stages), HT_OK);
        for (int g = 0; g < 4; g++) {
            const struct ht_store_stage *s = &stages[2 * g];
            ck_assert(s[0].first == 0 && s[0].end == first[i] + 1 && s[0].node == 0 && s[0].rank == 4 * g);
            ck_assert(s[1].first == s[0].end && s[1].end == layers[i] + 2 && s[1].node == 1 && s[1].rank == 4 * g + 2);
        }
    }
    struct ht_model one = model;
    one.layers = 1;
    ck_assert_int_eq(ht_recovery_case_stages(&c.before, &one, &err, stages), HT_INFEASIBLE);
    ck_assert_str_eq(err.text, "a group has 2 stages; the model has 1 blocks");
}
END_TEST

static struct ht_recovery_outcome priced(const char *name)
{
    struct ht_recovery_case c = load(name);
    struct ht_recovery_outcome r;
    struct ht_error err;
    ck_assert_msg(ht_recovery_case_price(&c, &model, how, false, &err, &r) == HT_OK, "%s", err.text);
    return r;
}

static void reads(const struct ht_recovery_outcome *r, int rank, int64_t files, int64_t first, int64_t last, int part,
                  int part_end)
{
    const struct ht_rank_reads *x = &r->reads[rank];
    ck_assert_msg(x->files == files && x->first_layer == first && x->last_layer == last && x->first_part == part &&
                      x->last_part == part_end,
                  "rank %d: %d files of layers %d to %d, parts %d to %d", rank, (int)x->files, (int)x->first_layer,
                  (int)x->last_layer, x->first_part, x->last_part);
}

/* Fig. 6: (a) three layers each as they are; (b) parts 0, 0, 1, 1 of all six layers; (c) both parts of two layers. */
START_TEST(figure_6)
{
    struct ht_recovery_outcome a = priced("autohet-fig6a"), b = priced("autohet-fig6b"), c = priced("autohet-fig6c");
    reads(&a, 0, 3, 0, 2, 0, 0);
    reads(&a, 1, 3, 3, 5, 0, 0);
    for (int r = 0; r < 4; r++) reads(&b, r, 6, 0, 5, r / 2, r / 2);
    for (int r = 0; r < 3; r++) reads(&c, r, 4, 2 * r, 2 * r + 1, 0, 1);
    ht_recovery_outcome_free(&a);
    ht_recovery_outcome_free(&b);
    ht_recovery_outcome_free(&c);
}
END_TEST

/* Paths one after the other take as long as both together. */
START_TEST(serial_paths)
{
    struct ht_recovery_case c = load("autohet-b");
    struct ht_store_reading serial = how;
    struct ht_recovery_outcome beside, after;
    struct ht_error err;
    serial.serial = true;
    ck_assert_int_eq(ht_recovery_case_price(&c, &model, how, false, &err, &beside), HT_OK);
    ck_assert_int_eq(ht_recovery_case_price(&c, &model, serial, false, &err, &after), HT_OK);
    double remote = (double)beside.price.stores.bytes[HT_PATH_REMOTE] / 1.2e9,
           disk = (double)beside.price.stores.bytes[HT_PATH_DISK] / 3.5e9;
    ck_assert_double_eq_tol((double)beside.price.stores.ns * 1e-9, remote, 0.01 * remote);
    ck_assert_double_eq_tol((double)after.price.stores.ns * 1e-9, remote + disk, 0.01 * (remote + disk));
    ck_assert_int_eq(beside.lost_bytes > 0, 1);
    ht_recovery_outcome_free(&beside);
    ht_recovery_outcome_free(&after);
}
END_TEST

static void refused(const char *text, const char *expected)
{
    char path[] = "/tmp/hetbench-recovery-XXXXXX.yaml";
    struct ht_recovery_case c;
    struct ht_error err = {0};
    int fd = mkstemps(path, 5);
    ck_assert(fd >= 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    ck_assert_int_eq(ht_recovery_case_load(path, &err, &c), HT_BAD_INPUT);
    unlink(path);
    ck_assert_msg(strstr(err.text, expected), "%s\nexpected %s", err.text, expected);
}

#define RATES "nodes: 2\ncloud: 1 GB/s\ndisk: 1 GB/s\nnic: 1 GB/s\n"
START_TEST(wrong_files)
{
    refused(RATES "after: [{stages: [{node: 0}]}]\n", "'before'");
    refused(RATES "before: []\nafter: [{stages: [{node: 0}]}]\n", ":5:9: key 'before': the list is empty");
    refused(RATES "before: [{stages: []}]\nafter: [{stages: [{node: 0}]}]\n", "key 'stages': the list is empty");
    refused(RATES "before: [{stages: [{node: 2}]}]\nafter: [{stages: [{node: 0}]}]\n",
            "there is no node 2; expected 0 to 1");
    refused(RATES "before: [{times: 65, stages: [{node: 0}]}]\nafter: [{stages: [{node: 0}]}]\n", "key 'times'");
    refused(RATES "before: [{times: 40, stages: [{node: 0}, {node: 1}]}]\nafter: [{stages: [{node: 0}]}]\n",
            "too many stages");
    refused(RATES "before: [{stages: [{node: 0}]}]\nafter: [{stages: [{node: 0}]}]\nlost: [0]\n",
            "node 0 is lost, but a group has it afterwards");
    refused(RATES "before: [{stages: [{node: 0}]}]\nafter: [{stages: [{node: 1}]}]\nlost: [2]\n", "key 'lost[0]'");
    refused(RATES "before: [{stages: [{node: 0, speed: 0}]}]\nafter: [{stages: [{node: 1}]}]\n", "key 'speed'");
    refused("nodes: 2\ncloud: 1\ndisk: 1 GB/s\nnic: 1 GB/s\nbefore: [x]\nafter: [x]\n", "key 'cloud'");
    refused("nodes: 2\n  - x\n", "recovery-");
}
END_TEST

START_TEST(all_load)
{
    char name[64];
    int64_t n = 0;
    for (; ht_recovery_case_name(n, name, sizeof(name)); n++) load(name);
    ck_assert_int_ge(n, 8);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, blocks_by_speed);
    tcase_add_test(t, figure_6);
    tcase_add_test(t, serial_paths);
    tcase_add_test(t, wrong_files);
    tcase_add_test(t, all_load);
}

int main(void)
{
    return run_suite("recovery_case", add);
}
