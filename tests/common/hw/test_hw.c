/* The catalogue, clusters of users, and every class of bad cluster file. */
#include "common/hw/hw.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/array.h"
#include "common/hw/parts.h"

START_TEST(catalogue)
{
    char name[HT_NAME_BYTES];
    struct ht_error err = {0};
    int64_t n = 0;
    for (; ht_hw_gpu_name(n, name); n++) {
        struct ht_gpu g;
        ck_assert_msg(!ht_gpu_load(name, &err, &g), "%s", err.text);
        ck_assert_str_eq(g.name, name);
        ck_assert(g.source[0] && g.bf16_flops_per_s >= g.f32_flops_per_s && g.cores == 0);
    }
    ck_assert_int_ge(n, 8);
    bool local = false;
    for (n = 0; ht_hw_cluster_name(n, name); n++) {
        struct ht_cluster *c = NULL;
        ck_assert_msg(!ht_cluster_load(name, &err, &c), "%s", err.text);
        ck_assert_str_eq(c->name, name);
        ck_assert(c->source[0] && c->n_gpus >= 1);
        local = strcmp(name, "local") == 0;
        ht_cluster_destroy(c);
    }
    ck_assert(local); /* the last */
}
END_TEST

/* AutoHet, Sec. V: nodes of A100, H800, H20 and A100. Parts of it keep the nodes' order. */
START_TEST(autohet)
{
    struct ht_error err = {0};
    struct ht_cluster *c = NULL;
    ck_assert_msg(!ht_cluster_load("autohet-platform", &err, &c), "%s", err.text);
    ck_assert(c->n_nodes == 4 && c->n_gpus == 32);
    ck_assert_str_eq(ht_cluster_gpu_of(c, 8)->name, "h800-80gb");
    ck_assert_str_eq(ht_cluster_gpu_of(c, 16)->name, "h20-96gb");
    ck_assert_str_eq(ht_cluster_gpu_of(c, 31)->name, "a100-80gb");
    ck_assert_double_eq(c->nodes[1].nvlink.bytes_per_s, 200e9); /* half of 400 GB/s both ways */
    ck_assert_double_eq(c->nodes[2].nvlink.bytes_per_s, 450e9);
    for (int i = 0; i < 4; i++) ck_assert_double_eq(c->nodes[i].nic.bytes_per_s, 50e9); /* 400 Gb/s */
    ht_cluster_destroy(c);
    ck_assert_msg(!ht_cluster_load("autohet-5a100-3h800", &err, &c), "%s", err.text);
    ck_assert(c->n_nodes == 2 && c->nodes[0].n_gpus == 5 && c->nodes[1].n_gpus == 3);
    ck_assert_str_eq(ht_cluster_gpu_of(c, 4)->name, "a100-80gb");
    ht_cluster_destroy(c);
}
END_TEST

START_TEST(autohete)
{
    struct ht_error err = {0};
    struct ht_cluster *c = NULL;
    ck_assert_msg(!ht_cluster_load("autohete-4gpu", &err, &c), "%s", err.text);
    ck_assert_int_eq(c->n_nodes, 1);
    ck_assert_int_eq(c->n_gpus, 4);
    const struct ht_machine *m = &c->nodes[0];
    ck_assert_int_eq(m->ram_bytes, 440000000000);
    ck_assert_int_eq(m->cpu.cores, 64);
    ck_assert_int_eq(m->cpu.sockets, 1);
    ck_assert_double_eq(m->cpu.dram_bytes_per_s, 204.8e9); /* 8 channels x 8 bytes x 3.2e9 */
    ck_assert_double_eq(m->pcie.bytes_per_s, 31.5e9);
    ck_assert(m->pcie.duplex && m->has_nvlink && !m->has_nic && !m->has_ssds);
    const struct ht_gpu *g = ht_cluster_gpu_of(c, 3);
    ck_assert_str_eq(g->name, "a100-40gb");
    ck_assert_double_eq(g->bf16_flops_per_s, 312e12);
    ck_assert_double_eq(g->memory_bytes_per_s, 1555e9);

    ck_assert(!ht_cluster_set_device_memory(c, INT64_C(16) << 30, &err));
    ck_assert_int_eq(ht_cluster_gpu_of(c, 0)->memory_bytes, INT64_C(16) << 30);
    ck_assert_int_eq(ht_cluster_set_device_memory(c, INT64_C(64) << 30, &err), HT_BAD_INPUT);
    ck_assert_str_eq(err.text, "device memory of 68.72 GB does not fit the 'a100-40gb'; expected at most 17.18 GB");
    ht_cluster_destroy(c);
}
END_TEST

START_TEST(mixed)
{
#define IB "{name: ib, bandwidth: 200 Gbit/s, efficiency: 0.9, duplex: true, latency: 2 us, source: test}"
#define TINY                                                                                                           \
    "{name: tiny, memory: 1 GiB, fp32: 1 TFLOP/s, memory_bandwidth: 1 GB/s, gemm_efficiency: 1, "                      \
    "memory_efficiency: 1, launch: 0 us, source: test}"
    const char *full = "name: mine\nsource: test\nnodes:\n"
                       "  - {count: 2, cpu: epyc-7713, sockets: 2, ram: 1 TB, pcie: pcie3-x16, nic: " IB ",\n"
                       "     gpus: [{type: v100-16gb, count: 2}, {type: " TINY "}]}\n"
                       "  - {cpu: epyc-7713, ram: 1 TB, pcie: pcie4-x16, nic: " IB ", gpus: [{type: a100-40gb}]}\n";
    struct ht_error err = {0};
    struct ht_doc *doc = NULL;
    struct ht_cluster *c = NULL;
    ck_assert_msg(!ht_doc_parse(full, strlen(full), "c.yaml", &err, &doc), "%s", err.text);
    ck_assert_msg(!ht_cluster_parse(doc, &err, &c), "%s", err.text);
    ht_doc_destroy(doc);
    ck_assert_int_eq(c->n_nodes, 3);
    ck_assert_int_eq(c->n_gpus, 7); /* 2 x (2 + 1) + 1 */
    const char *want[] = {"v100-16gb", "v100-16gb", "tiny", "v100-16gb", "v100-16gb", "tiny", "a100-40gb"};
    const int64_t node_of[] = {0, 0, 0, 1, 1, 1, 2};
    for (int64_t r = 0; r < 7; r++) {
        int64_t node = -1;
        ht_cluster_node_of(c, r, &node);
        ck_assert_int_eq(node, node_of[r]);
        ck_assert_str_eq(ht_cluster_gpu_of(c, r)->name, want[r]);
    }
    ck_assert_double_eq(c->nodes[0].nic.bytes_per_s, 25e9);
    ck_assert_int_eq(ht_machine_host_cores(&c->nodes[0]), 128);
    ck_assert_double_eq(ht_cluster_gpu_of(c, 2)->f16_flops_per_s, 1e12); /* no 16-bit units: as FP32 */
    ck_assert_double_eq(ht_cluster_gpu_of(c, 0)->bf16_flops_per_s, 15.7e12);
    ck_assert(ht_cluster_gpu_of(c, 2)->lacks_f16 && ht_cluster_gpu_of(c, 2)->lacks_bf16);
    ck_assert(!ht_cluster_gpu_of(c, 0)->lacks_f16 && ht_cluster_gpu_of(c, 0)->lacks_bf16);
    ck_assert(!ht_cluster_gpu_of(c, 6)->lacks_f16 && !ht_cluster_gpu_of(c, 6)->lacks_bf16);

    struct ht_device_kind kinds[7];
    char text[128];
    ck_assert_int_eq(ht_cluster_kinds(c, kinds), 3);
    ck_assert(kinds[0].gpu == ht_cluster_gpu_of(c, 0) && kinds[0].count == 4);
    ck_assert_str_eq(ht_cluster_devices(c, text, sizeof(text)),
                     "4 x v100-16gb (17.18 GB) + 2 x tiny (1.074 GB) + 1 x a100-40gb (42.41 GB)");
    ck_assert_str_eq(ht_cluster_devices(c, text, 8), "4 x v10");
    ht_cluster_destroy(c);
}
END_TEST

START_TEST(lohan)
{
    struct ht_error err = {0};
    struct ht_cluster *c = NULL;
    ck_assert_msg(!ht_cluster_load("lohan-4090", &err, &c), "%s", err.text);
    struct ht_machine *m = &c->nodes[0];
    ck_assert(m->has_ssds && m->has_ssd_uplink && m->n_ssds == 12 && !m->ssd.duplex);
    ck_assert_double_eq(ht_cluster_price_usd(c), 14098 + 1600 + 12 * 308);          /* LoHan, Table VII */
    ck_assert_double_eq(ht_machine_ssd_read_rate(m), ht_link_rate(&m->ssd_uplink)); /* 12 disks are more than x16 */

    ck_assert(!ht_cluster_set_ssds(c, 2, &err));
    ck_assert_int_eq(m->n_ssds, 2);
    ck_assert_double_eq(ht_machine_ssd_read_rate(m), pow(2, m->ssd.striping) * 6.5e9 * m->ssd.efficiency);
    ck_assert_double_eq(ht_machine_ssd_write_rate(m), pow(2, m->ssd.striping) * 3.4e9 * m->ssd.efficiency);
    ck_assert_double_eq(ht_cluster_price_usd(c), 14098 + 1600 + 2 * 308);
    m->has_ssd_uplink = false;
    ck_assert(!ht_cluster_set_ssds(c, 12, &err));
    ck_assert_double_eq(ht_machine_ssd_read_rate(m), pow(12, m->ssd.striping) * 6.5e9 * m->ssd.efficiency);
    ck_assert_int_eq(ht_cluster_set_ssds(c, 0, &err), HT_BAD_INPUT);
    ck_assert_str_eq(err.text, "0 SSDs are out of range; expected 1 to 64");
    ht_cluster_destroy(c);

    ck_assert(!ht_cluster_load("autohete-1gpu", &err, &c));
    ck_assert_double_eq(ht_cluster_price_usd(c), 0);
    ck_assert_int_eq(ht_cluster_set_ssds(c, 2, &err), HT_BAD_INPUT);
    ck_assert_str_eq(
        err.text, "cluster 'autohete-1gpu' has no SSDs, so their number cannot be set; expected their model with it, "
                  "for example --ssd 990-pro-2tb:2");
    ht_cluster_destroy(c);
}
END_TEST

START_TEST(local)
{
    struct ht_error err = {0};
    struct ht_cluster *c = NULL;
    int64_t cores = sysconf(_SC_NPROCESSORS_ONLN);
    ck_assert_msg(!ht_cluster_local(1, 1, 64 << 20, &err, &c), "%s", err.text);
    ck_assert_int_eq(c->nodes[0].cpu.cores, cores);
    ck_assert_int_eq(ht_cluster_gpu_of(c, 0)->memory_bytes, 64 << 20);
    ck_assert_int_eq(ht_cluster_gpu_of(c, 0)->cores, 1);
    ck_assert_int_eq(ht_machine_host_cores(&c->nodes[0]), cores > 1 ? cores - 1 : 1);
    ht_cluster_destroy(c);
    ck_assert_msg(!ht_cluster_local(4, 0, 0, &err, &c), "%s", err.text);
    ck_assert_int_eq(c->n_gpus, 4);
    ht_cluster_destroy(c);
    ck_assert_int_eq(ht_cluster_local(1, cores + 1, 0, &err, &c), HT_BAD_INPUT);
    ck_assert_int_eq(ht_cluster_local(0, 1, 0, &err, &c), HT_BAD_INPUT);
    ck_assert_int_eq(ht_cluster_local(1, 1, INT64_MAX, &err, &c), HT_BAD_INPUT);
}
END_TEST

#define NODE "  - {cpu: epyc-7713, ram: 1 TB, pcie: pcie4-x16, gpus: [{type: a100-40gb}]}\n"
static const struct {
    const char *text, *says;
} bad[] = {
    {"source: s\nnodes:\n" NODE, "c.yaml:1:1: the key 'name' is missing"},
    {"name: x\nsource: s\nnodes: []\n", "c.yaml:3:8: key 'nodes': is empty; expected at least one node"},
    {"name: x\nsource: s\nnodes: 3\n", "c.yaml:3:8: key 'nodes': is a value; expected a list"},
    {"name: x\nsource: s\nnodes: [4]\n", "c.yaml:3:9: key 'nodes[0]': is a value; expected a map"},
    {"name: x\nsource: s\nnodes:\n" NODE NODE, "c.yaml:4:5: key 'nodes[0]': the key 'nic' is missing"},
    {"name: x\nsource: s\nnodes:\n  - {cpu: epyc-7731, ram: 1 TB, pcie: pcie4-x16, gpus: [{type: a100-40gb}]}\n",
     "c.yaml:4:11: key 'cpu': unknown cpu 'epyc-7731'; expected 'epyc-7713'?"},
    {"name: x\nsource: s\nnodes:\n  - {cpu: epyc-7713, ram: 1 TB, pcie: pcie4-x16, gpus: [{type: b100}]}\n",
     "c.yaml:4:64: key 'type': unknown gpu 'b100'; expected "},
    {"name: x\nsource: s\nnodes:\n  - {cpu: epyc-7713, ram: 1000, pcie: pcie4-x16, gpus: [{type: a100-40gb}]}\n",
     "c.yaml:4:27: key 'ram': '1000' has no unit; expected a size"},
    {"name: x\nsource: s\nnodes:\n  - {cpu: epyc-7713, ram: 1 TB, pcie: pcie4-x16, gpus: []}\n",
     "c.yaml:4:56: key 'gpus': is empty; expected at least one"},
    {"name: x\nsource: s\nnodes:\n  - {cpu: epyc-7713, ram: 1 TB, pcie: pcie4-x16, gpus: [{type: a100-40gb, count: "
     "65}]}\n",
     "c.yaml:4:82: key 'count': '65' is out of range; expected 1 to 64"},
    {"name: x\nsource: s\nnodes:\n  - {cpu: epyc-7713, ram: 1 TB, pcie: [a], gpus: [{type: a100-40gb}]}\n",
     "c.yaml:4:39: key 'pcie': is a list; expected the name of a link or a map"},
    {"name: x\nsource: s\nnodes:\n  - cpu: epyc-7713\n    ram: 1 TB\n    gpus: [{type: a100-40gb}]\n"
     "    pcie: {name: p, bandwidth: 1 GB/s, efficiency: 1, through_host: 2, duplex: true, latency: 0 us, source: s}\n",
     "c.yaml:7:69: key 'through_host': '2' has no unit; expected a rate such as '25 GB/s' or '200 Gbit/s'"},
    {"name: x\nsource: s\nnodes:\n  - cpu: epyc-7713\n    ram: 1 TB\n    gpus: [{type: a100-40gb, count: 2}]\n    "
     "peer: false\n"
     "    pcie: nvlink4\n",
     "c.yaml:8:11: key 'pcie': lacks the rate between GPUs through host memory; expected a link, or a node, with "
     "'through_host'"},
    {"name: x\nsource: s\nnodes:\n  - cpu: {name: c, cores: 4, dram: 20 GB, dram_efficiency: 1,            core_flops: "
     "1 GFLOP/s, gemm_efficiency: 1, source: s}\n    ram: 1 GB\n    pcie: pcie4-x16\n    gpus: "
     "[{type: "
     "a100-40gb}]\n",
     "c.yaml:4:36: key 'dram': '20 GB' has the wrong unit 'GB'; expected a rate"},
    {"name: x\nsource: s\nnodes:\n  - cpu: {name: c, cores: 4, dram: 20 GB/s, dram_efficiency: 1.2,\n"
     "           core_flops: 1 GFLOP/s, gemm_efficiency: 1, source: s}\n    ram: 1 GB\n    pcie: pcie4-x16\n    gpus: "
     "[{type: "
     "a100-40gb}]\n",
     "c.yaml:4:62: key 'dram_efficiency': '1.2' is out of range; expected 0.001 to 1"},
    {"name: x\nsource: s\nnodes:\n  - {cpu: epyc-7713, ram: 1 TB, pcie: pcie4-x16, nic: ethernet-1g, gpus: [{type: "
     "t4}]}\n"
     "between: [{groups: [0, 1], link: nvlink4}]\n",
     "c.yaml:5:24: key 'groups[1]': '1' is out of range; expected 0 to 0"},
    {"name: x\nsource: s\nnodes:\n  - {cpu: epyc-7713, ram: 1 TB, pcie: pcie4-x16, nic: ethernet-1g, gpus: [{type: "
     "t4}]}\n"
     "between: [{groups: [0], link: nvlink4}]\n",
     "c.yaml:5:20: key 'groups': has 1 entries; expected two groups, such as [0, 1]"},
    {"name: x\nsource: s\nnodes:\n  - {cpu: epyc-7713, ram: 1 TB, pcie: pcie4-x16, nic: ethernet-1g, gpus: [{type: "
     "t4}]}\n"
     "between: [{groups: [0, 0], link: {name: l, bandwidth: 1 GB/s, efficiency: 1, duplex: true, latency: 0 us, "
     "source: s, "
     "sizes: [{bytes: 2 MB, rate: 1 GB/s}, {bytes: 1 MB, rate: 1 GB/s}]}}]\n",
     "c.yaml:5:155: key 'sizes[1]': has a size that is not above the one before; expected rising sizes"},
};

START_TEST(bad_clusters)
{
    struct ht_error err = {0};
    struct ht_cluster *c = NULL;
    for (size_t i = 0; i < HT_COUNT(bad); i++) {
        struct ht_doc *doc = NULL;
        ck_assert_msg(!ht_doc_parse(bad[i].text, strlen(bad[i].text), "c.yaml", &err, &doc), "%s", err.text);
        ck_assert_int_eq(ht_cluster_parse(doc, &err, &c), HT_BAD_INPUT);
        ck_assert_msg(strncmp(err.text, bad[i].says, strlen(bad[i].says)) == 0, "%s", err.text);
        ht_doc_destroy(doc);
    }
    ck_assert_int_eq(ht_cluster_load("autohete-4gpus", &err, &c), HT_BAD_INPUT);
    ck_assert_str_eq(err.text, "unknown cluster 'autohete-4gpus'; expected 'autohete-4gpu'?");
    ck_assert_int_eq(ht_cluster_load("./nothing", &err, &c), HT_BAD_INPUT);
    ck_assert_ptr_null(c);
}
END_TEST

/* The catalogue's figures have sources; what lists of parts are told by a GPU is in the catalogue, too. */
START_TEST(parts_have_sources)
{
    struct ht_error err = {0};
    char name[HT_NAME_BYTES];
    struct ht_gpu gpu;
    struct ht_cpu cpu;
    struct ht_link link;
    struct ht_ssd ssd;
    int64_t n = 0;
    for (int64_t i = 0; ht_hw_gpu_name(i, name); i++, n++) {
        ck_assert_int_eq(ht_gpu_load(name, &err, &gpu), HT_OK);
        ck_assert_msg(gpu.source[0] && !ht_link_load(gpu.link, &err, &link), "%s: %s", name, err.text);
        ck_assert_msg(!gpu.nvlink[0] || !ht_link_load(gpu.nvlink, &err, &link), "%s: %s", name, err.text);
    }
    for (int64_t i = 0; ht_hw_cpu_name(i, name); i++, n++)
        ck_assert_msg(!ht_cpu_load(name, &err, &cpu) && cpu.source[0], "%s", name);
    for (int64_t i = 0; ht_hw_link_name(i, name); i++, n++)
        ck_assert_msg(!ht_link_load(name, &err, &link) && link.source[0], "%s", name);
    for (int64_t i = 0; ht_hw_ssd_name(i, name); i++, n++)
        ck_assert_msg(!ht_ssd_load(name, &err, &ssd) && ssd.source[0], "%s", name);
    ck_assert_int_gt(n, 60);
}
END_TEST

START_TEST(list_of_parts)
{
    struct ht_error err = {0};
    struct ht_cluster *c = NULL;
    ck_assert_msg(
        !ht_cluster_load("gpus=rtx4090:2,a100-80gb/v100-32gb:4;ram=128G;ssd=990-pro-2tb:2;cpu=epyc-7713:2", &err, &c),
        "%s", err.text);
    ck_assert(c->n_nodes == 2 && c->n_gpus == 7 && c->nodes[0].n_groups == 2 && c->nodes[1].n_gpus == 4);
    for (int i = 0; i < 2; i++) {
        const struct ht_machine *m = &c->nodes[i];
        ck_assert(m->ram_bytes == INT64_C(128000000000) && m->n_ssds == 2 && m->cpu.sockets == 2 && m->cpu.cores == 64);
        ck_assert(m->has_nic && m->peer == (i == 1) &&
                  m->has_nvlink == (i == 1)); /* one GeForce, and its node has no peers */
        ck_assert_str_eq(m->pcie.name, i ? "pcie3-x16" : "pcie4-x16");
    }
    ck_assert_str_eq(c->source, "a list of parts; the network is assumed");
    ht_cluster_destroy(c);
    ck_assert_msg(!ht_cluster_load("gpus=v100-32gb:4;ram=40gb;nvlink=none;link=pcie3-x8", &err, &c), "%s", err.text);
    ck_assert(!c->nodes[0].has_nvlink && !c->nodes[0].has_nic && !c->nodes[0].has_ssds);
    ck_assert_str_eq(c->nodes[0].pcie.name, "pcie3-x8");
    ck_assert_str_eq(c->source, "a list of parts; the processor is assumed");
    ht_cluster_destroy(c);
    ck_assert_msg(!ht_cluster_load("gpus=4090:2x3/H200:8;ram=1TB;cpu=7950X;ssd=990pro:2", &err, &c), "%s", err.text);
    ck_assert(c->n_nodes == 4 && c->n_gpus == 14 && c->nodes[2].n_gpus == 2 && c->nodes[3].n_gpus == 8);
    ck_assert_str_eq(c->nodes[2].groups[0].gpu.name, "rtx4090");
    ck_assert_str_eq(c->nodes[3].groups[0].gpu.name, "h200-141gb");
    ck_assert_str_eq(c->nodes[0].ssd.name, "990-pro-2tb");
    ck_assert(c->nodes[0].has_nic);
    ht_cluster_destroy(c);
}
END_TEST

/* Two kinds on two nodes: the first three devices are the first node's two and one of the second's. */
START_TEST(first_devices)
{
    struct ht_error err = {0};
    struct ht_cluster *c = NULL;
    ck_assert(!ht_cluster_load("gpus=t4,rtx4090/v100-16gb:2,t4:2/t4;ram=1TB;ssd=990pro:1", &err, &c));
    ht_cluster_keep_first(c, 3);
    ck_assert(c->n_gpus == 3 && c->n_nodes == 2 && c->nodes[1].n_gpus == 1 && c->nodes[1].n_groups == 1);
    ck_assert_str_eq(ht_cluster_gpu_of(c, 2)->name, "v100-16gb");
    ht_cluster_drop_ssds(c);
    ck_assert(!c->nodes[0].has_ssds && ht_cluster_set_ssds(c, 1, &err) == HT_BAD_INPUT);
    ht_cluster_destroy(c);
}
END_TEST

static const struct {
    const char *list, *says;
} bad_lists[] = {
    {"gpus=rtx4090", "the memory of a node is missing; expected for example --ram 128GB"},
    {"gpus=rtx4909;ram=1TB", "unknown gpu 'rtx4909'; expected 'rtx4090'?"},
    {"gpus=rtx4090:0;ram=1TB", "gpus: '0' is not a count; expected 1 to 64"},
    {"gpus=rtx4090:65;ram=1TB", "gpus: '65' is not a count; expected 1 to 64"},
    {"gpus=rtx4090:2y;ram=1TB", "gpus: '2y' is not a count"},
    {"gpus=rtx4090:2x;ram=1TB", "gpus: '' is not a number of nodes; expected 1 to 512"},
    {"gpus=rtx4090:2x0;ram=1TB", "gpus: '0' is not a number of nodes; expected 1 to 512"},
    {"gpus=a100:2;ram=1TB", "unknown gpu 'a100'; expected one of 'a100-40gb', 'a100-80gb'"},
    {"gpus=rtx4090:40,t4:40;ram=1TB", "parts:7:40: key 'gpus[1]': brings the node to 80 devices"},
    {"gpus=;ram=1TB", "part 'gpus' has no value; expected 'gpus=..'"},
    {"gpus=rtx4090;ram=1TB;", "part '' is not known"},
    {"gpus=rtx4090;ram=1TB;disk=4", "part 'disk' is not known; expected gpus, ram, cpu, link, nvlink, nic or ssd"},
    {"gpus=rtx4090;ram=128", "ram: '128' has no unit; expected a size such as"},
    {"gpus=rtx4090;ram=1TB;cpu=epyc-9999", "unknown cpu 'epyc-9999'"},
    {"gpus=rtx4090;ram=1TB;nic=ethernet", "unknown link 'ethernet'"},
    {"gpus=rtx4090;ram=1TB;ssd=991-pro:2", "unknown ssd '991-pro'"},
    {"gpus=rtx4090/;ram=1TB", "unknown gpu ''"},
};

START_TEST(bad_lists_of_parts)
{
    struct ht_error err = {0};
    struct ht_cluster *c = NULL;
    const char *list = bad_lists[_i].list, *says = bad_lists[_i].says;
    ck_assert_msg(ht_cluster_load(list, &err, &c) == HT_BAD_INPUT, "%s is taken", list);
    ck_assert_msg(strncmp(err.text, says, strlen(says)) == 0, "%s", err.text);
    char many[3000] = "gpus=t4";
    while (strlen(many) < 2900) strcat(many, "/t4");
    ck_assert(ht_cluster_load(strcat(many, ";ram=1TB"), &err, &c) == HT_BAD_INPUT);
}
END_TEST

/* cephalo-a: 2 L4, 1 A6000 and 1 P40 in one node; 2 P40 and 2 P100 in the other. */
START_TEST(some_devices)
{
    struct ht_error err = {0};
    struct ht_cluster *c = NULL, *copy;
    ck_assert(!ht_cluster_load("cephalo-a", &err, &c));
    copy = ht_cluster_copy(c);
    ck_assert_msg(!ht_cluster_keep(copy, "p40:2,l4", &err), "%s", err.text);
    ck_assert(c->n_gpus == 8 && copy->n_gpus == 4 && copy->n_nodes == 2);
    ck_assert(copy->nodes[0].n_gpus == 3 && copy->nodes[1].n_gpus == 1);
    ck_assert_str_eq(ht_cluster_gpu_of(copy, 3)->name, "p40");
    ht_cluster_destroy(copy);
    copy = ht_cluster_copy(c);
    ck_assert(!ht_cluster_keep(copy, "p100-12gb:1", &err) && copy->n_nodes == 1 &&
              copy->n_gpus == 1); /* of the second node */
    ck_assert(copy->nodes[0].group == 1);
    ck_assert(ht_cluster_keep(copy, "p40", &err) == HT_BAD_INPUT);
    ck_assert_str_eq(err.text, "the cluster has no 'p40'; it has 1 x p100-12gb (12.88 GB)");
    ck_assert(ht_cluster_keep(copy, "p100-12gb:2", &err) == HT_BAD_INPUT);
    ck_assert(ht_cluster_keep(copy, "", &err) == HT_BAD_INPUT);
    ht_cluster_destroy(copy);
    ht_cluster_destroy(c);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("hw");
    TCase *t = tcase_create("hw");
    tcase_add_test(t, catalogue);
    tcase_add_test(t, autohet);
    tcase_add_test(t, autohete);
    tcase_add_test(t, mixed);
    tcase_add_test(t, lohan);
    tcase_add_test(t, local);
    tcase_add_test(t, bad_clusters);
    tcase_add_test(t, parts_have_sources);
    tcase_add_test(t, list_of_parts);
    tcase_add_test(t, first_devices);
    tcase_add_test(t, some_devices);
    tcase_add_loop_test(t, bad_lists_of_parts, 0, HT_COUNT(bad_lists));
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
