/* Modelled profiles: costs on clusters of the catalogue, by hand. */
#include <math.h>

#include "common/profile/internal.h"
#include "common/base/array.h"
#include "tests/common/profile/costs.h"
#include "tests/support/suite.h"

/* A block of autohete-4b has 12 x 4096^2 + 13 x 4096 = 201,379,840 parameters. */
#define BLOCK INT64_C(201379840)

START_TEST(modelled)
{
    struct ht_error err = {0};
    struct ht_cluster *c = NULL;
    ck_assert_msg(!ht_cluster_load("autohete-4gpu", &err, &c), "%s", err.text);
    struct ht_profile *p = ht_profile_modelled(c);
    ck_assert_str_eq(ht_profile_name(p), "autohete-4gpu");

    /* PCIe 4.0 x16: 31.5 x 0.79 = 24.885 GB/s; 402,759,680 / 24.885e9 = 16.184837 ms, and 10 us */
    struct ht_work w = plain(HT_OP_COPY, HT_LANE_H2D);
    w.bytes = 2 * BLOCK;
    ck_assert_int_eq((cost(p, 0, w) + 500) / 1000, 16195);
    ck_assert_int_eq(cost(p, 0, w), cost(p, 3, w));

    /* CPU Adam: 28 B at 204.8 x 0.83 x 0.97 = 164.884 GB/s; 5,638,635,520 / 164.884e9 = 34.197 ms, and 1 us */
    w = plain(HT_OP_OPTIMIZER_STEP, HT_LANE_HOST);
    w.params = BLOCK;
    ck_assert_int_eq((cost(p, 0, w) + 500) / 1000, 34198);
    /* Device Adam: at 1555 x 0.88 = 1368.4 GB/s 4.121 ms, and 3 us */
    w.where = HT_LANE_COMPUTE;
    ck_assert_int_eq((cost(p, 0, w) + 500) / 1000, 4124);
    /* Accumulate: 4 + 4 + 2 bytes a parameter: 2,013,798,400 / 1368.4e9 = 1.472 ms, and 3 us */
    w.kind = HT_OP_ACCUMULATE;
    w.dtype = HT_F32;
    ck_assert_int_eq((cost(p, 0, w) + 500) / 1000, 1475);
    /* Sums in 16 bits: 2 + 2 + 2 bytes: 0.883 ms, and 3 us */
    w.dtype = HT_F16;
    ck_assert_int_eq((cost(p, 0, w) + 500) / 1000, 886);

    /* Under control. A log of 3 B: 31 B at 164.884 GB/s 37.862 ms and 1 us, on the device 4.562 ms and 3 us; the undo
       reads it: the same. A gradient checked: 2 B, 0.294 ms and 3 us. A copy cast anew: 4 + 2 B, 0.883 ms and 3 us */
    w = plain(HT_OP_OPTIMIZER_STEP, HT_LANE_HOST);
    w.params = BLOCK;
    w.bytes = 3 * BLOCK;
    ck_assert_int_eq((cost(p, 0, w) + 500) / 1000, 37863);
    w.where = HT_LANE_COMPUTE;
    ck_assert_int_eq((cost(p, 0, w) + 500) / 1000, 4565);
    w.kind = HT_OP_UNDO;
    ck_assert_int_eq((cost(p, 0, w) + 500) / 1000, 4565);
    w.kind = HT_OP_VALIDATE;
    ck_assert_int_eq((cost(p, 0, w) + 500) / 1000, 297);
    w.kind = HT_OP_RESTORE;
    ck_assert_int_eq((cost(p, 0, w) + 500) / 1000, 886);

    /* All-gather over 4 A100: 3 steps of 5 us; 302,069,760 / (300 x 0.78 = 234e9) = 1.291 ms */
    w = plain(HT_OP_ALL_GATHER, HT_LANE_COLLECTIVE);
    w.ranks = 4;
    w.bytes = 2 * BLOCK * 3 / 4;
    ck_assert_int_eq((cost(p, 0, w) + 500) / 1000, 1306);

    /* A block of 4B, batch 8: 3.4360e12 FLOP at 312 x 0.859 = 268.0 TFLOP/s are 12.82 ms; attention (probabilities
       kept) is memory bound and element-wise traffic comes on top. Useful rate of a training step with neither copies
       nor optimizer: between half and the whole of the GEMM rate. */
    w = plain(HT_OP_FORWARD, HT_LANE_COMPUTE);
    w.unit = HT_UNIT_BLOCK;
    w.sub_ops = HT_ALL_SUB_OPS;
    w.batch = 8, w.seq = 1024, w.width = 4096, w.heads = 32, w.ffn = 16384, w.vocab = 50257, w.tied = true;
    int64_t forward = cost(p, 0, w);
    w.kind = HT_OP_RECOMPUTE;
    ck_assert_int_eq(cost(p, 0, w), forward);
    w.kind = HT_OP_BACKWARD;
    int64_t backward = cost(p, 0, w);
    ck_assert_int_gt(forward, 12820000);
    ck_assert_int_lt(forward, 2 * 12820000);
    ck_assert_int_gt(backward, 2 * 12820000);
    ck_assert_int_lt(backward, 4 * 12820000);

    w.free = true;
    ck_assert_int_eq(cost(p, 0, w), 0);

    /* The message names what the cluster lacks. */
    int64_t ns;
    w = plain(HT_OP_COPY, HT_LANE_DISK);
    w.bytes = 1000;
    ck_assert_int_eq(ht_profile_cost(p, 0, &w, &err, &ns), HT_BAD_INPUT);
    ck_assert_msg(strstr(err.text, "needs a disk; expected a cluster that has one") != NULL, "%s", err.text);
    w = plain(HT_OP_ALL_REDUCE, HT_LANE_COLLECTIVE);
    w.ranks = 8;
    ck_assert_int_eq(ht_profile_cost(p, 0, &w, &err, &ns), HT_BAD_INPUT);
    ck_assert_msg(strstr(err.text, "needs a NIC") != NULL, "%s", err.text);
    ck_assert_int_eq(ht_profile_cost(p, 4, &w, &err, &ns), HT_BAD_INPUT);
    ck_assert_str_eq(err.text, "rank 4 is not on cluster 'autohete-4gpu'; expected 0 to 3");
    strcpy(w.custom, "mine");
    ck_assert_int_eq(ht_profile_cost(p, 0, &w, &err, &ns), HT_BAD_INPUT);
    ck_assert_str_eq(err.text, "work 'mine' is a name of its own; expected a profile file with its time");
    ht_profile_destroy(p);
    ht_cluster_destroy(c);
}
END_TEST

/* A node in four domains: a process's host work has a quarter of the rate. Without peer access a message inside the
   node goes through host memory, at the rate that the node says, and a ring at its own; messages between nodes do not. */
START_TEST(domains_and_peers)
{
    struct ht_error err = {0};
    struct ht_cluster *c = NULL;
    ck_assert_msg(!ht_cluster_load("sysx-2node", &err, &c), "%s", err.text);
    ck_assert_int_eq(ht_machine_process_cores(&c->nodes[0]), 8);
    for (int64_t n = 0; n < 2; n++) c->nodes[n].message_bytes_per_s = 2.394e9; /* 50 ms */
    struct ht_profile *p = ht_profile_modelled(c);
    struct ht_work step = plain(HT_OP_OPTIMIZER_STEP, HT_LANE_HOST), message = plain(HT_OP_SEND, HT_LANE_P2P);
    step.params = BLOCK;
    message.bytes = 119700000; /* at 15.75 x 0.76 = 11.97 GB/s 10 ms; and 10 us */
    message.ranks = 2;
    int64_t quarter = cost(p, 0, step), staged = cost(p, 0, message), across;
    ck_assert_int_eq((staged + 500) / 1000, 50010);
    struct ht_reach reach = {.crosses = true, .between = -1};
    ck_assert(!ht_modelled_cost(c, &p->software, 0, reach, &message, &err, &across));
    ck_assert_int_eq((across + 500) / 1000, 10010);
    /* 26 MB through host memory at 2.6 GB/s: 10 ms and 3 steps of 10 us; over both nodes the ring still passes there: 6
       steps of 10 us and one of 5. A node that was measured says the rate itself. */
    struct ht_work ring = plain(HT_OP_ALL_GATHER, HT_LANE_COLLECTIVE);
    ring.ranks = 4, ring.bytes = 26000000;
    ck_assert_int_eq((cost(p, 0, ring) + 500) / 1000, 10030);
    ring.ranks = 8;
    ck_assert_int_eq((cost(p, 0, ring) + 500) / 1000, 10065);
    for (int64_t n = 0; n < 2; n++) c->nodes[n].through_host_bytes_per_s = 1.3e9;
    ck_assert_int_eq((cost(p, 0, ring) + 500) / 1000, 20065);
    for (int64_t n = 0; n < 2; n++) c->nodes[n].domains = 1, c->nodes[n].peer = true;
    ck_assert_double_eq_tol((double)(quarter - 1000) / (double)(cost(p, 0, step) - 1000), 4, 1e-6);
    ck_assert_int_eq((cost(p, 0, message) + 500) / 1000, 10010);
    ht_profile_destroy(p);
    ht_cluster_destroy(c);
}
END_TEST

/* Two ranks on each of two nodes of four: three steps, of which one crosses, 10 + 10 + 5 us, and 10 ms. On one node, and
   over eight ranks, as above. */
START_TEST(groups_on_parts_of_nodes)
{
    static const struct {
        int32_t ranks[8], n;
        int64_t us;
    } cases[] = {{{0, 1, 4, 5}, 4, 10025}, {{0, 1, 2, 3}, 4, 10030}, {{0, 1, 2, 3, 4, 5, 6, 7}, 8, 10065}};
    struct ht_error err = {0};
    struct ht_cluster *c = NULL;
    ck_assert_msg(!ht_cluster_load("sysx-2node", &err, &c), "%s", err.text);
    struct ht_profile *p = ht_profile_modelled(c);
    for (size_t i = 0; i < HT_COUNT(cases); i++) {
        struct ht_schedule *s = ht_schedule_create("ring", 8, 2, (int32_t[]){0, 0, 0, 0, 1, 1, 1, 1});
        struct ht_work ring = plain(HT_OP_ALL_GATHER, HT_LANE_COLLECTIVE);
        int64_t ns[8];
        ring.ranks = cases[i].n, ring.bytes = 26000000;
        for (int32_t k = 0; k < cases[i].n; k++) {
            int32_t lane = ht_add_lane(s, "reduce", HT_LANE_COLLECTIVE, cases[i].ranks[k], HT_FIFO);
            ht_add_op(s, HT_OP_ALL_GATHER, lane, (struct ht_label){.unit = 0, .n_units = 1, .micro_batch = -1},
                      ht_add_work(s, &ring));
            ht_op_match(s, 0);
        }
        ht_schedule_link(s);
        ck_assert_msg(!ht_profile_costs(p, s, ns, &err), "%s", err.text);
        for (int32_t k = 0; k < cases[i].n; k++) ck_assert_int_eq((ns[k] + 500) / 1000, cases[i].us);
        ht_schedule_destroy(s);
    }
    ht_profile_destroy(p);
    ht_cluster_destroy(c);
}
END_TEST

/* Nodes of one entry talk over their NICs, 1 MB in 0.2 ms; all else goes over the link that the cluster names, whose rate
   hangs on the size: 1 MB in 8 ms, 10 MB in 40. */
START_TEST(groups_of_nodes)
{
    static const char text[] =
        "name: mixed\nsource: s\nnodes:\n"
        "  - {count: 2, cpu: epyc-7713, ram: 1 GB, gpus: [{type: t4}], pcie: pcie3-x16,\n"
        "     nic: {name: fast, bandwidth: 5 GB/s, efficiency: 1, duplex: true, latency: 0 us, source: s}}\n"
        "  - {cpu: epyc-7713, ram: 1 GB, gpus: [{type: t4}], pcie: pcie3-x16, nic: ethernet-25g}\n"
        "between:\n"
        "  - {groups: [1, 0], link: {name: slow, bandwidth: 1 GB/s, efficiency: 1, duplex: true, latency: 0 us, "
        "source: s,\n"
        "     sizes: [{bytes: 1 MB, rate: 125 MB/s}, {bytes: 10 MB, rate: 250 MB/s}]}}\n";
    struct ht_error err = {0};
    struct ht_doc *doc = NULL;
    struct ht_cluster *c = NULL;
    ck_assert_msg(!ht_doc_parse(text, strlen(text), "mixed.yaml", &err, &doc), "%s", err.text);
    ck_assert_msg(!ht_cluster_parse(doc, &err, &c), "%s", err.text);
    ck_assert_int_eq(ht_cluster_between(c, 0, 1), -1);
    ck_assert_int_eq(ht_cluster_between(c, 0, 2), 0);
    ck_assert_int_eq(ht_cluster_between(c, 2, 1), 0);
    struct ht_profile *p = ht_profile_modelled(c);
    struct ht_work message = plain(HT_OP_SEND, HT_LANE_P2P);
    struct ht_reach fast = {.crosses = true, .between = -1}, slow = {.crosses = true, .between = 0};
    int64_t ns;
    message.bytes = 1000000, message.ranks = 2;
    ck_assert(!ht_modelled_cost(c, &p->software, 0, fast, &message, &err, &ns));
    ck_assert_int_eq((ns + 500) / 1000, 210); /* and the port's 10 us */
    ck_assert(!ht_modelled_cost(c, &p->software, 0, slow, &message, &err, &ns));
    ck_assert_int_eq((ns + 500) / 1000, 8010);
    message.bytes = 10000000;
    ck_assert(!ht_modelled_cost(c, &p->software, 0, slow, &message, &err, &ns));
    ck_assert_int_eq((ns + 500) / 1000, 40010);
    /* Half way between the sizes, in their logarithms, the rate is half way, too. Beyond the last it stays. */
    ck_assert_double_eq_tol(ht_link_rate_at(&c->between[0].link, sqrt(1e6 * 1e7)), 187.5e6, 1);
    ck_assert_double_eq_tol(ht_link_rate_at(&c->between[0].link, 1e9), 250e6, 1);
    /* A ring of all three nodes goes at its slowest edge's rate. */
    struct ht_work ring = plain(HT_OP_ALL_GATHER, HT_LANE_COLLECTIVE);
    ring.ranks = 3, ring.bytes = 10000000;
    ck_assert_int_eq((cost(p, 0, ring) + 500) / 1000, 40000);
    ht_profile_destroy(p);
    ht_cluster_destroy(c);
    ht_doc_destroy(doc);
}
END_TEST

/* A program that steps with two threads is bound by their arithmetic, 200 FLOPs a parameter of 2 x 64 GFLOP/s: 1.5625 s
   for 1e9; one that takes a tenth of what STREAM reaches by memory: 28e9 bytes at 17 GB/s. */
START_TEST(adam_of_software)
{
    struct ht_error err = {0};
    struct ht_cluster *c = NULL;
    struct ht_software software;
    ck_assert_msg(!ht_cluster_load("autohete-1gpu", &err, &c), "%s", err.text);
    ck_assert_msg(!ht_software_load("fused", &err, &software), "%s", err.text);
    struct ht_profile *p = ht_profile_modelled(c);
    struct ht_work step = plain(HT_OP_OPTIMIZER_STEP, HT_LANE_HOST);
    step.params = 1000000000;
    software.adam.threads = 2;
    ht_profile_set_software(p, &software);
    ck_assert_int_eq((cost(p, 0, step) + 500) / 1000, 1562501);
    software.adam.threads = 0, software.adam.share = 0.1;
    ht_profile_set_software(p, &software);
    ck_assert_double_eq_tol((double)cost(p, 0, step) * 1e-9, 28e9 / (0.083 * 204.8e9), 1e-5);
    ht_profile_destroy(p);
    ht_cluster_destroy(c);
}
END_TEST

/* A host's step beside Adam's pass: Megatron's program moves 24 bytes a parameter more in 16 bits, at the rate of
   streaming: 0.83 of 204.8 GB/s. Nothing more in FP32. */
START_TEST(steps_of_software)
{
    struct ht_error err = {0};
    struct ht_cluster *c = NULL;
    struct ht_software megatron;
    ck_assert_msg(!ht_cluster_load("autohete-1gpu", &err, &c), "%s", err.text);
    ck_assert_msg(!ht_software_load("megatron", &err, &megatron), "%s", err.text);
    megatron.adam = (struct ht_software_adam){.share = 0.97}; /* as in fused */
    struct ht_profile *p = ht_profile_modelled(c);
    struct ht_work step = plain(HT_OP_OPTIMIZER_STEP, HT_LANE_HOST);
    step.params = 1000000000;
    step.dtype = step.grad_dtype = HT_F16;
    int64_t fused = cost(p, 0, step);
    step.dtype = step.grad_dtype = HT_F32;
    int64_t fp32 = cost(p, 0, step);
    ht_profile_set_software(p, &megatron);
    ck_assert_int_eq(cost(p, 0, step), fp32);
    step.dtype = step.grad_dtype = HT_F16;
    ck_assert_double_eq_tol((double)(cost(p, 0, step) - fused) * 1e-9, 24e9 / (0.83 * 204.8e9), 1e-8);
    ht_profile_destroy(p);
    ht_cluster_destroy(c);
}
END_TEST

/* A pass over two parts computes half and sums twice: 2 rings of a block's (B,T,C), each as an all-reduce of two
   ranks. */
START_TEST(tensor_parallel)
{
    struct ht_error err = {0};
    struct ht_cluster *c = NULL;
    ck_assert_msg(!ht_cluster_load("autohete-4gpu", &err, &c), "%s", err.text);
    struct ht_profile *p = ht_profile_modelled(c);
    struct ht_work pass = plain(HT_OP_FORWARD, HT_LANE_COMPUTE), ring = plain(HT_OP_ALL_REDUCE, HT_LANE_COLLECTIVE);
    pass.unit = HT_UNIT_BLOCK;
    pass.sub_ops = HT_ALL_SUB_OPS;
    pass.batch = 4, pass.seq = 1024, pass.width = 4096, pass.heads = 32, pass.ffn = 16384;
    int64_t whole = cost(p, 0, pass), tiny;
    pass.tp = ring.ranks = 2;
    ring.bytes = 4 * 1024 * 4096 * 2; /* 2 (n - 1) / n of them: as many as there are */
    int64_t part = cost(p, 0, pass), sum = cost(p, 0, ring);
    ck_assert_int_gt(part - 2 * sum, whole / 2);
    ck_assert_int_lt(part - 2 * sum, whole * 11 / 20); /* norms and residuals are done twice */
    ck_assert_int_eq(part, (tiny = cost(p, 3, pass)));
    pass.n_units = 3;
    ck_assert_int_le(llabs(cost(p, 0, pass) - 3 * part), 3);
    /* Over two nodes of four the ring takes the NIC. */
    ht_profile_destroy(p);
    ht_cluster_destroy(c);
    ck_assert_msg(!ht_cluster_load("sysx-2node", &err, &c), "%s", err.text);
    p = ht_profile_modelled(c);
    pass.n_units = 1;
    pass.tp = ring.ranks = 8;
    ring.bytes = 2 * 7 * (4 * 1024 * 4096 / 8) * 2;
    part = cost(p, 0, pass);
    ck_assert_int_gt(part, 2 * cost(p, 0, ring));
    ck_assert(!ht_modelled_cost(c, &p->software, 0, (struct ht_reach){.between = -1}, &pass, &err, &tiny));
    ck_assert_int_ne(part, tiny);
    ht_profile_destroy(p);
    ht_cluster_destroy(c);
}
END_TEST

/* FP32 products have an efficiency of their own. A block of 3.4360e12 FLOP on a V100: at 15.7 x 0.93 TFLOP/s 235 ms, at
   125 x 0.74 TFLOP/s 37 ms, and elsewhere some ms. Without BF16 units its products are FP32's. */
START_TEST(fp32_products)
{
    struct ht_error err = {0};
    struct ht_cluster *c = NULL;
    ck_assert_msg(!ht_cluster_load("cephalo-16v100", &err, &c), "%s", err.text);
    struct ht_profile *p = ht_profile_modelled(c);
    struct ht_work w = plain(HT_OP_FORWARD, HT_LANE_COMPUTE);
    w.unit = HT_UNIT_BLOCK;
    w.sub_ops = HT_ALL_SUB_OPS;
    w.batch = 8, w.seq = 1024, w.width = 4096, w.heads = 32, w.ffn = 16384, w.vocab = 50257;
    w.dtype = w.grad_dtype = HT_F32;
    ck_assert_int_gt(cost(p, 0, w), 235300000);
    ck_assert_int_lt(cost(p, 0, w), 260000000); /* 0.74 of the peak: 296 ms */
    w.dtype = w.grad_dtype = HT_BF16;
    ck_assert_int_gt(cost(p, 0, w), 235300000);
    ck_assert_int_lt(cost(p, 0, w), 260000000);
    w.dtype = w.grad_dtype = HT_F16;
    ck_assert_int_gt(cost(p, 0, w), 37100000);
    ck_assert_int_lt(cost(p, 0, w), 60000000);
    ht_profile_destroy(p);
    ht_cluster_destroy(c);
}
END_TEST

/* A block of 80 MB over 8 ranks of two nodes: even shards pass 70 MB, at 0.9 x 6.25 GB/s 12.444 ms, and 6 steps
   of 10 us and one of 20: 12.524 ms. Uneven ones take 1.15 times that, 14.403 ms. A rank without a shard receives 80 MB, 14.362 ms,
   which is less. Between two ranks it is more: 80 MB against 1.15 x 40 MB. */
START_TEST(uneven_shards)
{
    struct ht_error err = {0};
    struct ht_cluster *c = NULL;
    struct ht_software software;
    ck_assert_msg(!ht_cluster_load("cephalo-a", &err, &c), "%s", err.text);
    ck_assert_msg(!ht_software_load("eager", &err, &software), "%s", err.text);
    struct ht_profile *p = ht_profile_modelled(c);
    ht_profile_set_software(p, &software);
    for (enum ht_op_kind kind = HT_OP_ALL_GATHER; kind <= HT_OP_REDUCE_SCATTER; kind++) {
        struct ht_work even = plain(kind, HT_LANE_COLLECTIVE);
        even.ranks = 8;
        even.bytes = 70000000;
        ck_assert_int_eq(cost(p, 0, even), 12524445);
        struct ht_work uneven = even;
        uneven.bytes = 80000000;
        uneven.even_bytes = 70000000;
        ck_assert_int_eq(cost(p, 0, uneven), 14403112);
        uneven.bytes = 10000000; /* of another rank: its skew does not matter */
        ck_assert_int_eq(cost(p, 0, uneven), 14403112);
        software.collectives.uneven = 1;
        ht_profile_set_software(p, &software);
        ck_assert_int_eq(cost(p, 0, uneven), 12524445);
        software.collectives.uneven = 1.15;
        ht_profile_set_software(p, &software);
        uneven.ranks = 2; /* in one node, over PCIe: 12 us and the bytes at 0.76 x 15.75 GB/s */
        uneven.bytes = 80000000;
        uneven.even_bytes = 40000000;
        even.ranks = 2;
        even.bytes = 80000000;
        ck_assert_int_eq(cost(p, 0, uneven), cost(p, 0, even));
    }
    ht_profile_destroy(p);
    ht_cluster_destroy(c);
}
END_TEST

/* The emulated device of one core: half of a two-core host's Adam rate at most, FP32 only. */
START_TEST(local)
{
    struct ht_error err = {0};
    struct ht_cluster *c = NULL;
    ck_assert_msg(!ht_cluster_local(1, 1, 256 << 20, &err, &c), "%s", err.text);
    struct ht_profile *p = ht_profile_modelled(c);
    struct ht_work w = plain(HT_OP_FORWARD, HT_LANE_COMPUTE);
    w.unit = HT_UNIT_BLOCK;
    w.sub_ops = HT_ALL_SUB_OPS;
    w.dtype = w.grad_dtype = HT_F32;
    w.batch = 8, w.seq = 128, w.width = 128, w.heads = 4, w.ffn = 512, w.vocab = 256, w.tied = true;
    /* 24 x 1024 x 128^2 + 4 x 8 x 128^2 x 128 = 469,762,048 FLOP at 213 x 0.66 GFLOP/s are 3.34 ms */
    int64_t ns = cost(p, 0, w);
    ck_assert_int_gt(ns, 3300000);
    ck_assert_int_lt(ns, 10000000);
    ht_profile_destroy(p);
    ht_cluster_destroy(c);
}
END_TEST

/* Nothing in the catalogue is fitted on this: LoHan, Sec. III-C, reports 5.96 s for the forward pass of its 13B model
   (40 blocks, width 5120) at batch 32, sequence length 1024 on an RTX 4090. */
START_TEST(published)
{
    struct ht_error err = {0};
    struct ht_doc *doc = NULL;
    struct ht_cluster *c = NULL;
    const char *text = "{name: one, source: test, nodes: [{cpu: epyc-7713, ram: 1 TB, pcie: pcie4-x16, "
                       "gpus: [{type: rtx4090}]}]}";
    ck_assert_msg(!ht_doc_parse(text, strlen(text), "c.yaml", &err, &doc), "%s", err.text);
    ck_assert_msg(!ht_cluster_parse(doc, &err, &c), "%s", err.text);
    ht_doc_destroy(doc);
    struct ht_profile *p = ht_profile_modelled(c);
    struct ht_work w = plain(HT_OP_FORWARD, HT_LANE_COMPUTE);
    w.dtype = HT_F16;
    w.batch = 32, w.seq = 1024, w.width = 5120, w.heads = 40, w.ffn = 20480, w.vocab = 50257, w.tied = true;
    w.unit = HT_UNIT_BLOCK, w.sub_ops = HT_ALL_SUB_OPS, w.n_units = 40;
    int64_t forward = cost(p, 0, w);
    w.unit = HT_UNIT_HEAD, w.n_units = 1;
    forward += cost(p, 0, w);
    ck_assert_double_eq_tol((double)forward * 1e-9, 5.96, 0.1 * 5.96);
    ht_profile_destroy(p);
    ht_cluster_destroy(c);
}
END_TEST

/* Of two disks of 2 GB/s and 1 GB/s: 4 GB are read in 1 s and written in 2 s, after 100 us. Measured rates replace the
   declared ones; a file keeps them, and the direction is in the key. */
START_TEST(disks)
{
    struct ht_error err = {0};
    struct ht_cluster *c = NULL;
    ck_assert_int_eq(ht_cluster_local(1, 1, 0, &err, &c), HT_OK);
    ck_assert_int_eq(ht_cluster_set_disks(c, "local-disk", 2, &err), HT_OK);
    struct ht_profile *p = ht_profile_modelled(c), *q = NULL;
    struct ht_work w = plain(HT_OP_COPY, HT_LANE_DISK);
    char key[HT_WORK_KEY_MAX];
    w.bytes = 4000000000;
    ck_assert_str_eq(ht_work_key(&w, key, sizeof key), "copy where=disk bytes=4000000000");
    ck_assert_int_eq(cost(p, 0, w), 1000100000);
    w.write = true;
    ck_assert_str_eq(ht_work_key(&w, key, sizeof key), "copy where=disk write bytes=4000000000");
    ck_assert_int_eq(cost(p, 0, w), 2000100000);
    ht_cluster_set_disk_rates(c, (struct ht_disk_rates){8e9, 1e9, true});
    ck_assert_int_eq(cost(p, 0, w), 4000100000);
    ck_assert(c->nodes[0].ssd.duplex);
    ck_assert_ptr_null(ht_profile_disk(p));
    ht_profile_destroy(p);
    ht_cluster_destroy(c);

    char *text = NULL;
    size_t n = 0;
    p = ht_profile_create("A", "a");
    ht_profile_set_disk(p, (struct ht_disk_rates){1.5e9, 2e9, false});
    FILE *f = open_memstream(&text, &n);
    ck_assert(!ht_profile_save(p, f, &err));
    fclose(f);
    ck_assert_msg(!parse(text, &err, &q), "%s", err.text);
    const struct ht_disk_rates *r = ht_profile_disk(q);
    ck_assert(r && r->read_bytes_per_s == 1.5e9 && r->write_bytes_per_s == 2e9 && !r->duplex);
    ht_profile_destroy(p);
    ht_profile_destroy(q);
    free(text);
    ck_assert_int_eq(
        parse("profile: {name: A, source: a, disk: {read: 0 B/s, write: 1 B/s, duplex: true}, costs: []}", &err, &q),
        HT_BAD_INPUT);
    ck_assert_int_eq(parse("profile: {name: A, source: a, disk: {read: 1 B/s, write: 1 B/s}, costs: []}", &err, &q),
                     HT_BAD_INPUT);
    ck_assert_int_eq(ht_cluster_local(1, 1, 0, &err, &c), HT_OK);
    ck_assert_int_eq(ht_cluster_set_disks(c, "no-disk", 1, &err), HT_BAD_INPUT);
    ck_assert_int_eq(ht_cluster_set_host_memory(c, (int64_t)1 << 60, &err), HT_BAD_INPUT);
    ck_assert_int_eq(ht_cluster_set_host_memory(c, 1 << 20, &err), HT_OK);
    ck_assert_int_eq(c->nodes[0].ram_bytes, 1 << 20);
    ht_cluster_destroy(c);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, modelled);
    tcase_add_test(t, domains_and_peers);
    tcase_add_test(t, groups_of_nodes);
    tcase_add_test(t, groups_on_parts_of_nodes);
    tcase_add_test(t, adam_of_software);
    tcase_add_test(t, steps_of_software);
    tcase_add_test(t, tensor_parallel);
    tcase_add_test(t, fp32_products);
    tcase_add_test(t, uneven_shards);
    tcase_add_test(t, local);
    tcase_add_test(t, published);
    tcase_add_test(t, disks);
}

int main(void)
{
    return run_suite("modelled", add);
}
