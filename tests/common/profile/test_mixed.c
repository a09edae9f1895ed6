/* Lists of costs for devices and hosts: which rank takes which, and lists that do not fit the cluster. */
#include "common/base/array.h"
#include "tests/common/profile/costs.h"
#include "tests/support/suite.h"

/* Ranks 0 and 1 have an A100 and ranks 2 and 3 a V100, on hosts with an EPYC 7713 and an EPYC 7452. */
static struct ht_cluster *mixed(void)
{
    struct ht_cluster *c = NULL;
    struct ht_error err = {0};
    ck_assert_msg(!ht_cluster_load(HT_SOURCE_DIR "/tests/data/mixed-2x2.yaml", &err, &c), "%s", err.text);
    return c;
}

/* Texts as of files, joined and bound to the cluster. */
static enum ht_status join(const char *const *texts, int n, const struct ht_cluster *c, struct ht_error *err,
                           struct ht_profile **out)
{
    struct ht_profile *more = NULL;
    *out = NULL;
    for (int i = 0; i < n; i++) {
        ck_assert_msg(!parse(texts[i], err, &more), "%s", err->text);
        if (*out)
            ht_profile_join(*out, more);
        else
            *out = more;
    }
    return ht_profile_bind(*out, c, err);
}

#define A100     "device: a100-40gb, host: epyc-7713"
#define V100     "device: v100-32gb-pcie, host: epyc-7452"
#define KEY_STEP "optimizer_step where=host params=5 dtype=bf16 grad=bf16"
#define KEY_COPY "copy where=h2d bytes=64"

static struct ht_work host_step(void)
{
    struct ht_work w = plain(HT_OP_OPTIMIZER_STEP, HT_LANE_HOST);
    w.params = 5;
    return w;
}

static struct ht_work fetch(void)
{
    struct ht_work w = plain(HT_OP_COPY, HT_LANE_H2D);
    w.bytes = 64;
    return w;
}

/* Lists of device and host, in one file or in two, in any order. */
START_TEST(each_rank_has_its_own_costs)
{
    static const char *const one[] = {"profile:\n  - {name: A, source: a, " A100
                                      ", costs: [{work: F, time: 1 ns}, {work: '" KEY_STEP "', time: 2 ns}]}\n"
                                      "  - {name: B, source: b, " V100
                                      ", costs: [{work: F, time: 3 ns}, {work: '" KEY_STEP "', time: 4 ns}]}\n"};
    static const char *const two[] = {
        "profile: {name: B, source: b, " V100 ", costs: [{work: F, time: 3 ns}, {work: '" KEY_STEP "', time: 4 ns}]}",
        "profile: {name: A, source: a, " A100 ", costs: [{work: F, time: 1 ns}, {work: '" KEY_STEP "', time: 2 ns}]}"};
    struct ht_cluster *c = mixed();
    for (int n = 1; n <= 2; n++) {
        struct ht_profile *p;
        struct ht_error err = {0};
        ck_assert_msg(!join(n == 1 ? one : two, n, c, &err, &p), "%s", err.text);
        ck_assert_str_eq(ht_profile_name(p), n == 1 ? "A + B" : "B + A");
        for (int64_t rank = 0; rank < 4; rank++) {
            ck_assert_int_eq(cost(p, rank, (struct ht_work){.custom = "F"}), rank < 2 ? 1 : 3);
            ck_assert_int_eq(cost(p, rank, host_step()), rank < 2 ? 2 : 4);
        }
        int64_t slowest = 0;
        struct ht_work f = {.custom = "F"};
        ck_assert(!ht_profile_slowest_cost(p, &f, &err, &slowest));
        ck_assert_int_eq(slowest, 3);
        ht_profile_destroy(p);
    }
    ht_cluster_destroy(c);
}
END_TEST

/* A list for a device has what the device does and its copies, one for a host what cores and disks do; one for neither
   has the rest of every rank. */
START_TEST(what_a_list_answers)
{
    static const char *const texts[] = {
        "profile: {name: A, source: a, device: a100-40gb, costs: [{work: F, time: 1 ns}, {work: '" KEY_COPY
        "', time: 2 ns}]}",
        "profile: {name: B, source: b, device: v100-32gb-pcie, costs: [{work: F, time: 3 ns}]}",
        "profile: {name: H, source: h, host: epyc-7713, costs: [{work: '" KEY_STEP "', time: 4 ns}]}",
        "profile: {name: I, source: i, host: epyc-7452, costs: [{work: '" KEY_COPY "', time: 5 ns}]}",
        "profile: {name: all, source: x, costs: [{work: B, time: 6 ns}]}"};
    struct ht_cluster *c = mixed();
    struct ht_profile *p;
    struct ht_error err = {0};
    struct ht_work step = host_step(), copy = fetch();
    int64_t ns;
    ck_assert_msg(!join(texts, 5, c, &err, &p), "%s", err.text);
    ck_assert_int_eq(cost(p, 0, (struct ht_work){.custom = "F"}), 1);
    ck_assert_int_eq(cost(p, 3, (struct ht_work){.custom = "F"}), 3);
    ck_assert_int_eq(cost(p, 1, copy), 2);
    ck_assert_int_eq(cost(p, 1, step), 4);
    for (int64_t rank = 0; rank < 4; rank++) ck_assert_int_eq(cost(p, rank, (struct ht_work){.custom = "B"}), 6);
    /* A step of another host's cores, and a copy that a host's list has: the message names their ranks. */
    ck_assert_int_eq(ht_profile_cost(p, 2, &step, &err, &ns), HT_BAD_INPUT);
    ck_assert_str_eq(err.text,
                     "profile 'A + B + H + I + all' has no cost of '" KEY_STEP "' for device 'v100-32gb-pcie' in "
                     "host 'epyc-7452'; 'H' has it, for host 'epyc-7713'");
    ck_assert_int_eq(ht_profile_cost(p, 2, &copy, &err, &ns), HT_BAD_INPUT);
    ck_assert_msg(strstr(err.text, "'A' has it, for device 'a100-40gb'") != NULL, "%s", err.text);
    ht_profile_destroy(p);
    ht_cluster_destroy(c);
}
END_TEST

/* hetbench profile measures neither collectives nor messages. If no list has any they cost what the links do, as
   without a profile; if one has, its costs count. */
START_TEST(messages_are_modelled_where_none_is_listed)
{
    static const char *const texts[] = {
        "profile: {name: A, source: a, costs: [{work: F, time: 1 ns}]}",
        "profile: {name: A, source: a, costs: [{work: 'all_reduce ranks=4 bytes=1000 grad=bf16', time: 7 ns}]}"};
    struct ht_cluster *c = mixed();
    struct ht_profile *links = ht_profile_modelled(c), *p;
    struct ht_error err = {0};
    struct ht_work reduce = plain(HT_OP_ALL_REDUCE, HT_LANE_COLLECTIVE),
                   gather = plain(HT_OP_ALL_GATHER, HT_LANE_COLLECTIVE);
    int64_t ns;
    reduce.ranks = gather.ranks = 4;
    reduce.bytes = gather.bytes = 1000;
    ck_assert_msg(!join(texts, 1, c, &err, &p), "%s", err.text);
    for (int64_t rank = 0; rank < 4; rank++) {
        ck_assert_int_eq(cost(p, rank, reduce), cost(links, rank, reduce));
        ck_assert_int_eq(cost(p, rank, gather), cost(links, rank, gather));
    }
    ck_assert_str_eq(ht_profile_source(p), "a; collectives and messages modelled on mixed-2x2");
    ht_profile_destroy(p);
    ck_assert_msg(!join(texts + 1, 1, c, &err, &p), "%s", err.text);
    ck_assert_int_eq(cost(p, 0, reduce), 7);
    ck_assert_int_eq(ht_profile_cost(p, 0, &gather, &err, &ns), HT_BAD_INPUT);
    ck_assert_str_eq(ht_profile_source(p), "a");
    ht_profile_destroy(p);
    ht_profile_destroy(links);
    ht_cluster_destroy(c);
}
END_TEST

static const struct {
    const char *texts[2];
    bool without_cluster;
    const char *says;
} refused[] = {
    {{"profile: {name: A, source: a, device: a100-40gb, costs: []}",
      "profile:\n  name: B\n  source: b\n  device: v100-32g\n  costs: []\n"},
     false,
     "p.yaml:4:11: key 'device': cluster 'mixed-2x2' has no 'v100-32g': unknown gpu 'v100-32g'; expected one "
     "of 'v100-32gb', 'v100-32gb-pcie'"},
    {{"profile: {name: A, source: a, " A100 ", costs: []}",
      "profile: {name: B, source: b, device: v100-32gb-pcie, host: epic, costs: []}"},
     false,
     "p.yaml:1:61: key 'host': cluster 'mixed-2x2' has no 'epic': unknown cpu 'epic'; expected "},
    {{"profile: {name: A, source: a, " A100 ", costs: []}", NULL},
     false,
     "profile 'A' has no costs for device 'v100-32gb-pcie' in host 'epyc-7452'; cluster 'mixed-2x2' has such ranks"},
    {{"profile: {name: A, source: a, costs: [{work: F, time: 1 ns}]}",
      "profile: {name: B, source: b, costs: [{work: E, time: 1 ns}, {work: F, time: 1 ns}]}"},
     true,
     "the cost of 'F' is given twice, by 'A' and by 'B'; expected it once"},
    {{"profile: {name: A, source: a, costs: [{work: F, time: 1 ns}]}",
      "profile: {name: B, source: b, " V100 ", costs: [{work: F, time: 1 ns}]}"},
     false,
     "the cost of 'F' for device 'v100-32gb-pcie' in host 'epyc-7452' is given twice, by 'A' and by 'B'; expected it"},
    {{"profile: {name: A, source: a, " A100 ", costs: []}", NULL},
     true,
     "'A' has costs for device 'a100-40gb' in host 'epyc-7713'; expected --cluster, which says what the ranks are"},
};

START_TEST(lists_that_do_not_fit_the_cluster)
{
    struct ht_cluster *c = mixed();
    for (size_t i = 0; i < HT_COUNT(refused); i++) {
        struct ht_error err = {0};
        struct ht_profile *p;
        int n = refused[i].texts[1] ? 2 : 1;
        ck_assert_int_eq(join(refused[i].texts, n, refused[i].without_cluster ? NULL : c, &err, &p), HT_BAD_INPUT);
        ck_assert_msg(strncmp(err.text, refused[i].says, strlen(refused[i].says)) == 0, "%s", err.text);
        ht_profile_destroy(p);
    }
    ht_cluster_destroy(c);
}
END_TEST

/* A list of other devices that the catalogue knows does no harm, nor does a device's key in a host's list. */
START_TEST(lists_that_are_not_needed)
{
    static const char *const texts[] = {
        "profile: {name: A, source: a, costs: [{work: F, time: 1 ns}]}",
        "profile: {name: B, source: b, device: rtx4090, costs: [{work: F, time: 2 ns}]}",
        "profile: {name: C, source: c, host: epyc-7452, costs: [{work: F, time: 3 ns}]}"};
    struct ht_cluster *c = mixed();
    struct ht_profile *p;
    struct ht_error err = {0};
    ck_assert_msg(!join(texts, 3, c, &err, &p), "%s", err.text);
    for (int64_t rank = 0; rank < 4; rank++) ck_assert_int_eq(cost(p, rank, (struct ht_work){.custom = "F"}), 1);
    ht_profile_destroy(p);
    ht_cluster_destroy(c);
}
END_TEST

/* A list that is saved for a device and a host is loaded as theirs. */
START_TEST(labels_are_saved)
{
    struct ht_cluster *c = mixed();
    struct ht_profile *p = ht_profile_create("B", "b"), *q = NULL;
    struct ht_error err = {0};
    char *text = NULL;
    size_t n = 0;
    ht_profile_label(p, "v100-32gb-pcie", "epyc-7452");
    ht_profile_add(p, "F", 3);
    FILE *f = open_memstream(&text, &n);
    ck_assert(!ht_profile_save(p, f, &err));
    fclose(f);
    ck_assert_msg(!parse(text, &err, &q), "%s in %s", err.text, text);
    ck_assert_int_eq(ht_profile_bind(q, c, &err), HT_BAD_INPUT); /* nothing for the A100 */
    ck_assert_int_eq(cost(q, 3, (struct ht_work){.custom = "F"}), 3);
    free(text);
    ht_profile_destroy(p);
    ht_profile_destroy(q);
    ht_cluster_destroy(c);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, each_rank_has_its_own_costs);
    tcase_add_test(t, what_a_list_answers);
    tcase_add_test(t, messages_are_modelled_where_none_is_listed);
    tcase_add_test(t, lists_that_do_not_fit_the_cluster);
    tcase_add_test(t, lists_that_are_not_needed);
    tcase_add_test(t, labels_are_saved);
}

int main(void)
{
    return run_suite("mixed", add);
}
