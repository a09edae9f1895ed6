/* Shared resources and the charges of ops: disks, domains, and times worked out by hand. */
#include "common/draft/links.h"

#include "common/base/array.h"
#include "common/exec/sim.h"
#include "common/profile/profile.h"
#include "tests/support/scenario.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A node of devices (a list of the cluster's file) over `domains`, with two SSDs. PCIe: 16 GB/s at 1; DRAM: 40 GB/s at
 * 1; 8 cores. */
static struct ht_scenario scenario_of(const char *gpus, int domains, bool duplex_disk)
{
    char text[1024];
    struct ht_error err = {0};
    struct ht_doc *doc = NULL;
    struct ht_cluster *cluster = NULL;
    snprintf(
        text, sizeof text,
        "name: made\nsource: test\nnodes:\n"
        "  - cpu: {name: c, cores: 8, dram: 40 GB/s, dram_efficiency: 1, core_flops: 1 TFLOP/s,\n"
        "          gemm_efficiency: 1, source: test}\n"
        "    ram: 64 GB\n    domains: %d\n    gpus: [%s]\n"
        "    pcie: {name: p, bandwidth: 16 GB/s, efficiency: 1, duplex: true, latency: 0 us, source: test}\n"
        "    ssds: {type: {name: d, capacity: 1 TB, read: 5 GB/s, write: 2 GB/s, duplex: %s, latency: 0 us, source: "
        "test},\n"
        "           count: 2}\n",
        domains, gpus, duplex_disk ? "true" : "false");
    ck_assert_msg(!ht_doc_parse(text, strlen(text), "c.yaml", &err, &doc), "%s", err.text);
    ck_assert_msg(!ht_cluster_parse(doc, &err, &cluster), "%s", err.text);
    ht_doc_destroy(doc);
    struct ht_scenario_request r = {.model = "gpt-tiny", .cluster = "autohete-1gpu"};
    struct ht_scenario sc = scenario_from(&r);
    ht_cluster_destroy(sc.cluster);
    sc.cluster = cluster;
    return sc;
}

/* A graph of single ops, each on a lane of its own. */
struct graph {
    struct ht_scenario sc;
    struct ht_schedule *s;
    struct ht_links *ports;
};

static struct graph graph_on(const char *gpus, int domains, bool duplex_disk)
{
    struct graph g = {.sc = scenario_of(gpus, domains, duplex_disk)};
    g.s = ht_links_schedule(&g.sc, "links");
    g.ports = ht_links_add(g.s, g.sc.cluster, false);
    return g;
}

static struct graph graph_of(int gpus, int domains, bool duplex_disk)
{
    char text[64];
    snprintf(text, sizeof text, "{type: a100-40gb, count: %d}", gpus);
    return graph_on(text, domains, duplex_disk);
}

static void free_graph(struct graph *g)
{
    ht_schedule_destroy(g->s);
    free(g->ports);
    ht_scenario_free(&g->sc);
}

static void add_op(struct graph *g, enum ht_op_kind kind, enum ht_lane_kind lane, int32_t rank, int64_t bytes)
{
    char name[24];
    struct ht_work w = {.kind = kind, .where = lane, .tp = 1, .ranks = 1, .bytes = bytes};
    snprintf(name, sizeof name, "lane %d", g->s->n_lanes);
    ht_add_op(g->s, kind, ht_add_lane(g->s, name, lane, rank, HT_FIFO), (struct ht_label){-1, 0, 0, -1},
              ht_add_work(g->s, &w));
}

static void add_copy(struct graph *g, enum ht_lane_kind lane, enum ht_tier from, enum ht_tier to, int64_t bytes)
{
    add_op(g, HT_OP_COPY, lane, 0, bytes);
    ht_charge_copy(g->s, g->ports, from, to, bytes);
}

/* Writes the charges of an op, "ssd=10, dram=4", in units of `unit`; for cores their number. */
static void takes(const struct graph *g, int32_t op, int64_t unit, const char *list)
{
    char text[256] = "";
    for (int64_t k = g->s->uses_begin[op]; k < g->s->uses_begin[op + 1]; k++) {
        const struct ht_resource *r = &g->s->resources[g->s->uses[k].resource];
        int64_t amount = r->kind == HT_RES_CORES ? g->s->uses[k].amount : g->s->uses[k].amount / unit;
        size_t n = strlen(text);
        snprintf(text + n, sizeof text - n, "%s%s=%lld", n ? ", " : "", r->name, (long long)amount);
    }
    ck_assert_str_eq(text, list);
}

/* Runs all ops at once at their modelled costs, or at one cost for all; gives the microseconds at which each ends. */
static void ends(struct graph *g, int64_t cost_us, const int64_t *us)
{
    struct ht_error err = {0};
    struct ht_trace *trace = NULL;
    struct ht_sim_options options = {.iterations = 1};
    struct ht_profile *p = ht_profile_modelled(g->sc.cluster);
    int64_t *cost_ns = HT_NEW_ARRAY(int64_t, g->s->n_ops);
    ht_schedule_link(g->s);
    if (!cost_us) ck_assert_msg(ht_profile_costs(p, g->s, cost_ns, &err) == HT_OK, "%s", err.text);
    for (int32_t op = 0; op < g->s->n_ops && cost_us; op++) cost_ns[op] = cost_us * 1000;
    ck_assert_msg(ht_sim_run(g->s, cost_ns, &options, &err, &trace) == HT_OK, "%s", err.text);
    for (int32_t op = 0; op < g->s->n_ops; op++)
        ck_assert_double_eq_tol((double)trace->events[op].end_ns / 1000, (double)us[op], 0.01);
    ht_trace_destroy(trace);
    ht_profile_destroy(p);
    free(cost_ns);
}

/* Two SSDs of 5 and 2 GB/s which cannot read and write at once: an array of 10 GB/s, of which a byte written takes 2.5.
   40 MB are read in 4 ms and written in 10; both at once share the array, the read has its 40 MB of 10 GB/s at 8 ms,
   and the write, of which 60 MB are left, the array to itself: 14. Between disk and device a copy takes the port, not
   DRAM. */
START_TEST(simplex_disk)
{
    struct graph g = graph_of(1, 1, false);
    int64_t mb = 1000000;
    add_copy(&g, HT_LANE_DISK, HT_DISK, HT_HOST, 40 * mb);
    takes(&g, 0, mb, "dram=40, ssd=40");
    ck_assert_int_eq(g.s->resources[g.ports->disk_read].capacity_per_s, 10000000000);
    ends(&g, 0, (int64_t[]){4000});
    free_graph(&g);

    g = graph_of(1, 1, false);
    add_copy(&g, HT_LANE_DISK, HT_HOST, HT_DISK, 40 * mb);
    takes(&g, 0, mb, "dram=40, ssd=100");
    ends(&g, 0, (int64_t[]){10000});
    free_graph(&g);

    g = graph_of(1, 1, false);
    add_copy(&g, HT_LANE_DISK, HT_DISK, HT_HOST, 40 * mb);
    add_copy(&g, HT_LANE_DISK, HT_HOST, HT_DISK, 40 * mb);
    add_copy(&g, HT_LANE_DISK, HT_DEVICE, HT_DISK, 0);
    add_copy(&g, HT_LANE_DISK, HT_DISK, HT_DEVICE, 8);
    takes(&g, 3, 1, "pcie h2d=8, ssd=8");
    ends(&g, 0, (int64_t[]){8000, 14000, 0, 0});
    free_graph(&g);
}
END_TEST

/* An array that reads and writes at once: 40 MB in 4 ms and in 10 ms, together as alone. */
START_TEST(duplex_disk)
{
    struct graph g = graph_of(1, 1, true);
    add_copy(&g, HT_LANE_DISK, HT_DISK, HT_HOST, 40000000);
    add_copy(&g, HT_LANE_DISK, HT_HOST, HT_DISK, 40000000);
    takes(&g, 0, 1000000, "dram=40, ssd read=40");
    takes(&g, 1, 1000000, "dram=40, ssd write=40");
    ends(&g, 0, (int64_t[]){4000, 10000});
    free_graph(&g);
}
END_TEST

/* Host work of three ranks over two domains of four cores each: the first two share one, so their 1 ms takes 2 ms; the
   third has one to itself. In one domain of eight all three share: 3 ms. */
START_TEST(domains)
{
    for (int n = 1; n <= 2; n++) {
        struct graph g = graph_of(3, n, false);
        for (int32_t r = 0; r < 3; r++) {
            add_op(&g, HT_OP_OPTIMIZER_STEP, HT_LANE_HOST, r, 0);
            ht_charge_work(g.s, g.ports, 7);
        }
        takes(&g, 1, 1, n == 1 ? "cores=8, dram=7" : "domain 0 cores=4, domain 0 dram=7");
        takes(&g, 2, 1, n == 1 ? "cores=8, dram=7" : "domain 1 cores=4, domain 1 dram=7");
        ck_assert_int_eq(g.s->resources[g.ports[2].dram].capacity_per_s, 40000000000 / n);
        ends(&g, 1000, n == 1 ? (int64_t[]){3000, 3000, 3000} : (int64_t[]){2000, 2000, 1000});
        free_graph(&g);
    }
}
END_TEST

/* A copy of 160 MB by one of two ranks, each with a domain: its DRAM has 20 GB/s, the port 16: 10 ms. With four domains
   it has 10 GB/s of DRAM: 16 ms, however idle the others are. */
START_TEST(a_domain_has_its_own_memory)
{
    for (int n = 2; n <= 4; n += 2) {
        struct graph g = graph_of(2, n, false);
        add_copy(&g, HT_LANE_H2D, HT_HOST, HT_DEVICE, 160000000);
        takes(&g, 0, 1000000, "rank 0 pcie h2d=160, domain 0 dram=160");
        ck_assert_str_eq(g.s->resources[g.ports[1].dram].name, n == 2 ? "domain 1 dram" : "domain 2 dram");
        ends(&g, 0, (int64_t[]){n == 2 ? 10000 : 16000});
        free_graph(&g);
    }
}
END_TEST

/* Two real devices with an emulated one between them: both use the node's memory, and the first leads the node;
   the emulated one has cores only, of which its copies keep one busy. */
START_TEST(real_and_emulated)
{
    struct graph g =
        graph_on("{type: a100-40gb}, {type: {name: e, memory: 1 GB, fp32: 1 TFLOP/s, memory_bandwidth: 1 GB/s, "
                 "gemm_efficiency: 1, memory_efficiency: 1, launch: 1 us, cores: 2, source: test}}, "
                 "{type: a100-40gb}",
                 1, false);
    ck_assert_int_eq(g.ports[2].dram, g.ports[0].dram);
    ck_assert_int_eq(g.ports[1].dram, -1);
    ck_assert_int_eq(g.ports[1].pcie_h2d, -1);
    ck_assert_int_eq(g.ports[2].cores, g.ports[1].cores);
    ck_assert(g.ports[0].leads && !g.ports[2].leads);
    add_op(&g, HT_OP_COPY, HT_LANE_H2D, 1, 5);
    ht_charge_copy(g.s, g.ports, HT_HOST, HT_DEVICE, 5);
    takes(&g, 0, 1, "cores=1");
    free_graph(&g);
}
END_TEST

/* Eight ranks on two nodes of four: parts on ranks 2 to 5 lie on both, as do those on 1, 3, 6 and 7. Each sends through its
   port, and of each node the first over the NIC as well; the others' stay in the node and take their path through host
   memory. */
START_TEST(parts_over_nodes)
{
    struct ht_scenario_request r = {.model = "gpt-tiny", .cluster = "sysx-2node"};
    struct ht_scenario sc = scenario_from(&r);
    struct graph g = {.sc = sc, .s = ht_links_schedule(&sc, "parts")};
    g.ports = ht_links_add(g.s, sc.cluster, false);
    const struct {
        int32_t rank, parts[4];
        const char *takes;
    } cases[] = {{2, {2, 3, 4, 5}, "rank 2 pcie d2h=5, node 0 nic out=5, rank 2 pcie h2d=5, node 0 nic in=5"},
                 {3, {2, 3, 4, 5}, "rank 3 pcie d2h=5, rank 3 staged out=5, rank 3 pcie h2d=5, rank 3 staged in=5"},
                 {4, {2, 3, 4, 5}, "rank 4 pcie d2h=5, node 1 nic out=5, rank 4 pcie h2d=5, node 1 nic in=5"},
                 {1, {0, 1, 2, 3}, "rank 1 pcie d2h=5, rank 1 staged out=5, rank 1 pcie h2d=5, rank 1 staged in=5"},
                 {0, {0, 1, 2, 3}, "rank 0 pcie d2h=5, rank 0 staged out=5, rank 0 pcie h2d=5, rank 0 staged in=5"},
                 {3, {1, 3, 6, 7}, "rank 3 pcie d2h=5, rank 3 staged out=5, rank 3 pcie h2d=5, rank 3 staged in=5"},
                 {6, {1, 3, 6, 7}, "rank 6 pcie d2h=5, node 1 nic out=5, rank 6 pcie h2d=5, node 1 nic in=5"}};
    for (int32_t i = 0; i < (int32_t)(sizeof cases / sizeof *cases); i++) {
        add_op(&g, HT_OP_FORWARD, HT_LANE_COMPUTE, cases[i].rank, 0);
        ht_charge_parts(g.s, g.ports, cases[i].parts, 4, 5);
        takes(&g, i, 1, cases[i].takes);
    }
    add_op(&g, HT_OP_FORWARD, HT_LANE_COMPUTE, 0, 0);
    ht_charge_parts(g.s, g.ports, (int32_t[]){0}, 1, 0); /* a whole stage sends nothing */
    takes(&g, g.s->n_ops - 1, 1, "");
    free_graph(&g);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("links");
    TCase *t = tcase_create("links");
    tcase_add_test(t, simplex_disk);
    tcase_add_test(t, duplex_disk);
    tcase_add_test(t, domains);
    tcase_add_test(t, a_domain_has_its_own_memory);
    tcase_add_test(t, real_and_emulated);
    tcase_add_test(t, parts_over_nodes);
    suite_add_tcase(suite, t);
    SRunner *r = srunner_create(suite);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
