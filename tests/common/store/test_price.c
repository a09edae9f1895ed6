/* Times of recovery, against AutoHet's time model worked out by hand (arXiv 2512.20953, Sec. V-C). */
#include "common/store/recovery.h"

#include "common/base/array.h"
#include "common/store/layout.h"
#include "tests/support/suite.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>

/*
 * 30 blocks of 433,326,080 + 10,240 parameters; the embedding and the head are next to nothing. 13.0e9 parameters of 14
 * bytes: S = 182 GB. A block has 4 C^2 + 3 C F + 2 C = 4 * 5120^2 + 3 * 5120 * 21384 + 2 * 5120.
 */
static const struct ht_model model = {.arch = HT_ARCH_LLAMA,
                                      .layers = 30,
                                      .width = 5120,
                                      .heads = 40,
                                      .kv_heads = 40,
                                      .ffn = 21384,
                                      .vocab = 8,
                                      .max_seq = 2048};
enum {
    STAGE_END = 21,
    UNITS = 32,
    NODES = 3
}; /* node 0 has units 0 to 20: the embedding and 20 blocks of 30, f = 2/3 */
static const double disk[NODES] = {3.5e9, 3.5e9, 3.5e9}, nic[NODES] = {50e9, 50e9, 50e9},
                    memory[NODES] = {1e11, 1e11, 1e11};
static const struct ht_store_rates rates = {NODES, disk, nic, memory, 1.2e9};
static const struct ht_store_reading slices = {.param_bytes = 6}, files = {.whole_files = true, .param_bytes = 6};

struct recovery {
    struct ht_transfer_source sources[4096];
    int64_t n_sources;
    struct ht_transfer_sink sinks[4096];
    int64_t n_sinks;
};

/* Adds units [first, end) in tp parts: as sources of a store, or as what ranks from `rank` on need. */
static void add_units(struct recovery *r, int64_t first, int64_t end, int32_t tp, int medium, int32_t node,
                      int32_t rank)
{
    for (int64_t u = first; u < end; u++)
        for (int part = 0; part < HT_N_STATE_PARTS; part++)
            for (int32_t q = 0; q < tp; q++) {
                struct ht_extent e = ht_extent_of_part(&model, u, (enum ht_state_part)part, q, tp);
                if (medium >= 0)
                    r->sources[r->n_sources++] = (struct ht_transfer_source){e, (enum ht_store_medium)medium, node};
                else
                    r->sinks[r->n_sinks++] = (struct ht_transfer_sink){e, rank + q, node};
            }
}

static struct ht_store_price price(const struct recovery *r, struct ht_store_reading how)
{
    struct ht_transfers list;
    struct ht_store_price p;
    struct ht_error err;
    ck_assert_msg(ht_transfers_plan(&model, r->sources, r->n_sources, r->sinks, r->n_sinks, &err, &list) == HT_OK, "%s",
                  err.text);
    ck_assert_msg(ht_transfers_price(r->sources, r->sinks, r->n_sinks, &list, &rates, how, &err, &p) == HT_OK, "%s",
                  err.text);
    ht_transfers_free(&list);
    return p;
}

static void near_s(int64_t ns, double s)
{
    ck_assert_msg(fabs((double)ns * 1e-9 - s) < 0.002 * s, "%.3f s, expected %.3f s", (double)ns * 1e-9, s);
}

/* What the baseline does in A and B: everything once from the cloud. S / C = 182 / 1.2 = 151.7 s. */
START_TEST(from_the_cloud)
{
    struct recovery *r = HT_NEW(struct recovery);
    add_units(r, 0, UNITS, 1, HT_STORE_REMOTE, -1, 0);
    add_units(r, 0, STAGE_END, 2, -1, 0, 0);
    add_units(r, STAGE_END, UNITS, 2, -1, 1, 2);
    struct ht_store_price p = price(r, slices);
    near_s(p.ns, 151.7);
    ck_assert(fabs((double)p.bytes[HT_PATH_REMOTE] - 182e9) < 0.002 * 182e9);
    free(r);
}
END_TEST

/* A: groups are lost, both nodes are there. The longer of f S / Dk = 121.3 / 3.5 = 34.7 s and 60.7 / 3.5: the disks read beside
   each other. Two groups that go on read twice as much. In memory the same bytes take f S / 100 GB/s, the ranks side by side. */
START_TEST(scenario_a)
{
    struct recovery *r = HT_NEW(struct recovery);
    add_units(r, 0, STAGE_END, 1, HT_STORE_DISK, 0, 0);
    add_units(r, STAGE_END, UNITS, 1, HT_STORE_DISK, 1, 0);
    add_units(r, 0, UNITS, 1, HT_STORE_REMOTE, -1, 0);
    add_units(r, 0, STAGE_END, 1, -1, 0, 0);
    add_units(r, STAGE_END, UNITS, 1, -1, 1, 1);
    struct ht_store_price p = price(r, slices);
    near_s(p.ns, 34.67);
    ck_assert(p.bytes[HT_PATH_REMOTE] == 0 && p.bytes[HT_PATH_PEER] == 0);
    add_units(r, 0, STAGE_END, 1, -1, 0, 2);
    add_units(r, STAGE_END, UNITS, 1, -1, 1, 3);
    near_s(price(r, slices).ns, 2 * 34.67);
    add_units(r, 0, STAGE_END, 1, HT_STORE_MEMORY, 0, 0);
    add_units(r, STAGE_END, UNITS, 1, HT_STORE_MEMORY, 1, 0);
    near_s(price(r, slices).ns, 121.3 / 100);
    free(r);
}
END_TEST

/* B: node 0 is lost, tp goes from 2 to 4 on node 1. f S = 121.3 GB from the cloud take 101.1 s, beside 60.7 / 3.5 = 17.3 s of the
   disk. Whole files are twice the bytes of what a new part needs: 202.2 s. */
START_TEST(scenario_b)
{
    struct recovery *r = HT_NEW(struct recovery);
    add_units(r, 0, UNITS, 2, HT_STORE_REMOTE, -1, 0);
    add_units(r, STAGE_END, UNITS, 2, HT_STORE_DISK, 1, 0);
    add_units(r, 0, UNITS, 4, -1, 1, 0);
    struct ht_store_price p = price(r, slices), whole = price(r, files);
    near_s(p.ns, 101.1);
    near_s(151.7e9, 1.5 * (double)p.ns * 1e-9);
    ck_assert(fabs((double)p.bytes[HT_PATH_DISK] - 182e9 / 3) < 0.002 * 182e9);
    near_s(whole.ns, 202.2);
    /* Without the 16-bit copy 12 bytes a parameter: 6/7 of it. */
    near_s(price(r, (struct ht_store_reading){.param_bytes = 4}).ns, 101.1 * 12 / 14);
    free(r);
}
END_TEST

/* C: node 2 joins and takes the whole model: 121.3 GB of node 0's disk and 60.7 of node 1's go over their NICs into node 2's. The
   disk is the slowest on the way: 34.7 s for node 0's alone. One lane reads one after the other: 34.7 + 17.3. Two ranks that take
   a node's share each do it side by side. Nothing comes from the cloud. */
START_TEST(scenario_c)
{
    struct recovery *r = HT_NEW(struct recovery);
    add_units(r, 0, STAGE_END, 1, HT_STORE_DISK, 0, 0);
    add_units(r, STAGE_END, UNITS, 1, HT_STORE_DISK, 1, 0);
    add_units(r, 0, UNITS, 1, -1, 2, 0);
    struct ht_store_price p = price(r, slices);
    near_s(p.ns, 34.67 + 17.33);
    ck_assert(p.bytes[HT_PATH_REMOTE] == 0 && p.bytes[HT_PATH_DISK] == 0);
    r->n_sinks = 0;
    add_units(r, 0, STAGE_END, 1, -1, 2, 0);
    add_units(r, STAGE_END, UNITS, 1, -1, 2, 1);
    near_s(price(r, slices).ns, 34.67);
    free(r);
}
END_TEST

/*
 * The three scenarios as changes of layouts, f = 2/3 (units 0 to 20 on node 0, the A100 node; the rest on node 1).
 *   A  two groups of tp 1 become one: 34.67 s against S / C = 151.7 s, 4.375 times
 *   B  node 0 is lost and tp goes from 2 to 4: 101.1 s against 151.7 s, 1.5 times
 *   C  a group joins on node 2: nothing comes from the remote store, while the baseline reads a model for each of two groups, 303 s
 */
START_TEST(scenarios)
{
    static const struct ht_store_stage two[] = {
        {0, STAGE_END, 1, 0, 0}, {STAGE_END, UNITS, 1, 1, 1}, {0, STAGE_END, 1, 2, 0}, {STAGE_END, UNITS, 1, 3, 1}};
    static const struct ht_store_stage pair[] = {{0, STAGE_END, 2, 0, 0}, {STAGE_END, UNITS, 2, 2, 1}};
    static const struct ht_store_stage wide[] = {{0, UNITS, 4, 0, 1}};
    static const struct ht_store_stage grown[] = {
        {0, STAGE_END, 1, 0, 0}, {STAGE_END, UNITS, 1, 1, 1}, {0, UNITS, 1, 2, 2}};
    static const bool none[NODES] = {false}, first[NODES] = {true};
    struct ht_recovery a = {two, two, 4, 2, none, true, rates, slices},
                       b = {pair, wide, 2, 1, first, true, rates, slices},
                       c = {two, grown, 4, 3, none, false, rates, slices};
    struct ht_recovery_price p;
    struct ht_error err;
    ck_assert_msg(ht_recovery_price(&model, &a, &err, &p) == HT_OK, "%s", err.text);
    near_s(p.stores.ns, 34.67);
    near_s(p.remote.ns, 151.7);
    ck_assert(fabs((double)p.remote.ns / (double)p.stores.ns - 4.375) < 0.01);
    ck_assert_int_eq(ht_recovery_price(&model, &b, &err, &p), HT_OK);
    near_s(p.stores.ns, 101.1);
    ck_assert(fabs((double)p.remote.ns / (double)p.stores.ns - 1.5) < 0.005);
    ck_assert_int_eq(ht_recovery_price(&model, &c, &err, &p), HT_OK);
    ck_assert(p.stores.bytes[HT_PATH_REMOTE] == 0 && p.stores.bytes[HT_PATH_PEER] > 0);
    near_s(p.remote.ns, 303.3);
    a.n_before = 1;
    ck_assert_int_eq(ht_recovery_price(&model, &a, &err, &p), HT_INFEASIBLE);
}
END_TEST

/* A node without a NIC cannot be a peer. */
START_TEST(no_rate)
{
    static const double none[NODES] = {0};
    struct ht_store_rates bare = {NODES, disk, none, memory, 1.2e9};
    struct recovery *r = HT_NEW(struct recovery);
    struct ht_transfers list;
    struct ht_store_price p;
    struct ht_error err;
    add_units(r, 0, 2, 1, HT_STORE_DISK, 0, 0);
    add_units(r, 0, 2, 1, -1, 1, 0);
    ck_assert_int_eq(ht_transfers_plan(&model, r->sources, r->n_sources, r->sinks, r->n_sinks, &err, &list), HT_OK);
    ck_assert_int_eq(ht_transfers_price(r->sources, r->sinks, r->n_sinks, &list, &bare, slices, &err, &p),
                     HT_BAD_INPUT);
    ck_assert_str_eq(err.text,
                     "a copy to node 1 by way of its peer has no rate; expected a disk, a NIC or a remote store "
                     "there");
    ht_transfers_free(&list);
    free(r);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, from_the_cloud);
    tcase_add_test(t, scenario_a);
    tcase_add_test(t, scenario_b);
    tcase_add_test(t, scenario_c);
    tcase_add_test(t, scenarios);
    tcase_add_test(t, no_rate);
}

int main(void)
{
    return run_suite("price", add);
}
