/*
 * Hardware: rates and sizes of devices, processors, links and disks, and clusters made of them.
 *
 * Every entry of the catalogue (the YAML files here) has a `source`: the datasheet or the measurement of its figures. A
 * user's file may have some. A device has datasheet peaks and a few efficiencies (the share of a peak that good code
 * reaches on it). They belong to the device alone, never to a system, a model or an experiment.
 */
#ifndef HT_HW_HW_H
#define HT_HW_HW_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/config.h"

enum { HT_NAME_BYTES = 64, HT_SOURCE_BYTES = 512 };

/* The rate of a message of a size, as measured. */
struct ht_link_size {
    int64_t bytes;
    double bytes_per_s;
};
enum { HT_LINK_SIZES = 16 };

/* A connection: a PCIe slot, an NVLink bundle, a network card. */
struct ht_link {
    char name[HT_NAME_BYTES];
    double bytes_per_s;                       /* raw, in one direction */
    double efficiency;                        /* share of it that a large copy reaches, (0, 1] */
    double through_host_bytes_per_s;          /* of a ring between devices through host memory; 0: not given */
    bool duplex;                              /* both directions at once, each at the full rate */
    int64_t latency_ns;                       /* a copy's fixed cost */
    struct ht_link_size sizes[HT_LINK_SIZES]; /* [n_sizes], rising; see ht_link_s */
    int64_t n_sizes;
    char source[HT_SOURCE_BYTES];
};

struct ht_gpu {
    char name[HT_NAME_BYTES];
    int64_t memory_bytes;
    double f32_flops_per_s, f16_flops_per_s, bf16_flops_per_s; /* dense; 16-bit with FP32 accumulation */
    bool lacks_f16, lacks_bf16;                                /* has no such units: the rate above is FP32's */
    double memory_bytes_per_s;
    double gemm_efficiency;   /* share of the peak that a large matrix product reaches; over 1 with a higher clock */
    double fp32_efficiency;   /* the same of FP32 products; 0: as gemm_efficiency */
    int64_t sms;              /* streaming multiprocessors; 0: not known */
    double memory_efficiency; /* share of the memory bandwidth that a large element-wise kernel reaches */
    int64_t launch_ns;        /* fixed cost of a kernel */
    int64_t cores;            /* 0: a real accelerator. Else: emulated by that many of the node's cores */
    /* Where a list of parts does not say it (ht_cluster_of_parts): the slot of the card, the links between the cards of a
       board ("": none), and whether drivers let the cards write to each other over PCIe. */
    char link[HT_NAME_BYTES], nvlink[HT_NAME_BYTES];
    bool peer;
    double price_usd; /* 0: not given */
    char source[HT_SOURCE_BYTES];
};

struct ht_cpu {
    char name[HT_NAME_BYTES];
    int64_t sockets;
    int64_t cores;           /* per socket */
    double dram_bytes_per_s; /* per socket, reads and writes together */
    double dram_efficiency;  /* share of it that a streaming loop over all cores reaches */
    double core_flops_per_s; /* FP32 peak of one core */
    double gemm_efficiency;  /* share of it that a large matrix product reaches */
    char source[HT_SOURCE_BYTES];
};

struct ht_ssd {
    char name[HT_NAME_BYTES];
    int64_t capacity_bytes;
    double read_bytes_per_s, write_bytes_per_s;
    double efficiency; /* share of these rates that large transfers of a training program reach, (0, 1] */
    double striping;   /* n striped disks reach n^striping of one's rates, (0, 1] */
    bool duplex;       /* reads and writes do not slow each other down */
    int64_t latency_ns;
    double price_usd; /* 0: not given */
    char source[HT_SOURCE_BYTES];
};

struct ht_gpu_group {
    struct ht_gpu gpu;
    int64_t count;
};

/* One computer. */
struct ht_machine {
    struct ht_cpu cpu;
    int64_t ram_bytes; /* that the job may use */
    struct ht_gpu_group *groups;
    int64_t n_groups, n_gpus;
    struct ht_link pcie;     /* of each GPU, to the host */
    int32_t group;           /* entry of the cluster's file that describes the node, from 0 */
    int32_t number;          /* of the node in the whole cluster, from 0; parts of it keep the numbers */
    int64_t gpus_per_switch; /* GPUs that share one such uplink; 1: each has its own */
    int64_t domains;         /* equal parts of its cores and memory; a device's process uses one. 1: all of the node */
    bool peer;               /* GPUs write to each other over PCIe; else through host memory */
    /* Between GPUs without peer access, measured on such a node; 0: not measured, see ht_machine_ring_rate. */
    double through_host_bytes_per_s, message_bytes_per_s;
    bool has_nvlink, has_nic, has_ssds, has_ssd_uplink;
    struct ht_link nvlink; /* of each GPU, to the others in the node */
    struct ht_link nic;    /* of the node */
    struct ht_ssd ssd;
    int64_t n_ssds;                     /* striped: one array */
    struct ht_link ssd_uplink;          /* what all of them share on their way to the host */
    double price_usd;                   /* without what has a price of its own; 0: not given */
    char instance[HT_NAME_BYTES];       /* a cloud's name for such a node, "" elsewhere; */
    double usd_per_hour;                /* what it costs there, 0: not given; */
    char price_source[HT_SOURCE_BYTES]; /* and where and when */
};

/* The connection between nodes of two groups, where it is not their NICs'. */
struct ht_between {
    int32_t groups[2];
    struct ht_link link;
};

struct ht_cluster {
    char name[HT_NAME_BYTES];
    char source[HT_SOURCE_BYTES];
    struct ht_machine *nodes; /* one entry per node: `count: 8` in the file makes 8 entries */
    int64_t n_nodes, n_gpus;
    bool local;                 /* this machine, as it was found */
    struct ht_between *between; /* [n_between]; the first that names two groups counts */
    int64_t n_between;
};

/* Loads a cluster by built-in name, "local" included, or by path (with a '/' or ending in .yaml, .yml or .json). The
   error for an unknown name suggests the nearest. The caller destroys the cluster. */
enum ht_status ht_cluster_load(const char *name_or_path, struct ht_error *err, struct ht_cluster **out);
enum ht_status ht_cluster_parse(const struct ht_doc *doc, struct ht_error *err, struct ht_cluster **out);

/*
 * Loads a cluster from a list of its parts, "gpus=rtx4090:2,v100-32gb:4;ram=128GB;..", which ht_cluster_load takes in
 * place of a name. Keys, separated by ';':
 *
 *     gpus     KIND[:COUNT],..   of a node; nodes are separated by '/'
 *     ram      SIZE              of each node
 *     cpu      KIND[:SOCKETS]    default: `ryzen-7950x`, or with more than two GPUs a node `epyc-7713`
 *     link     KIND              slot of each GPU; default: what the catalogue says of the node's first GPU
 *     nvlink   KIND|none         between the GPUs of a node; default: as link
 *     nic      KIND              of each node; default: `ethernet-25g` if there are several nodes
 *     ssd      KIND:COUNT        default: none
 *
 * The cluster's source says which defaults were taken.
 */
enum ht_status ht_cluster_of_parts(const char *list, struct ht_error *err, struct ht_cluster **out);
bool ht_is_parts_list(const char *word);
/* Writes the list's cluster file into text[bytes]: YAML that ht_cluster_load reads. */
enum ht_status ht_cluster_parts_text(const char *list, struct ht_error *err, char *text, size_t bytes);
void ht_cluster_destroy(struct ht_cluster *cluster);
/* Returns a copy, which the caller destroys. */
struct ht_cluster *ht_cluster_copy(const struct ht_cluster *cluster);

/* Leaves only some devices: "rtx4090:2,t4" keeps the first two of one kind and all of another. Nodes that have none left
   are dropped. */
enum ht_status ht_cluster_keep(struct ht_cluster *cluster, const char *devices, struct ht_error *err);
/* Leaves only the first n devices, in the order of the ranks; 1 <= n <= n_gpus. Nodes that have none left are dropped. */
void ht_cluster_keep_first(struct ht_cluster *cluster, int64_t n);
/* Leaves only the nodes that a list such as "0,2,3" numbers, in ascending order. HT_BAD_INPUT for any other list. */
enum ht_status ht_cluster_keep_nodes(struct ht_cluster *cluster, const char *nodes, struct ht_error *err);

/* Returns the index in cluster->between of what two nodes' groups are connected by; -1: their NICs. */
int32_t ht_cluster_between(const struct ht_cluster *cluster, int64_t node, int64_t other);

/* Return the node and the GPU of a rank: nodes in order, and in a node groups in order. 0 <= rank < n_gpus. */
const struct ht_machine *ht_cluster_node_of(const struct ht_cluster *cluster, int64_t rank, int64_t *node);
const struct ht_gpu *ht_cluster_gpu_of(const struct ht_cluster *cluster, int64_t rank);

/* Devices with the same name and memory. */
struct ht_device_kind {
    const struct ht_gpu *gpu; /* the first one */
    int64_t count;
};
/* Lists the kinds in order of the ranks, in kinds[n_gpus]. Returns their number. */
int64_t ht_cluster_kinds(const struct ht_cluster *cluster, struct ht_device_kind *kinds);
/* Writes "4 x a100-40gb (42.41 GB) + 4 x v100-32gb (34.36 GB)", cut to buf[n]. Returns buf. */
const char *ht_cluster_devices(const struct ht_cluster *cluster, char *buf, size_t n);

/* Sets 16-bit rates that are 0 to the FP32 rate, and records that the GPU lacks these units. */
void ht_gpu_complete(struct ht_gpu *gpu);

/* Sets the memory budget of every device (--device-memory). It may not exceed a real device's memory. */
enum ht_status ht_cluster_set_device_memory(struct ht_cluster *cluster, int64_t bytes, struct ht_error *err);
/* Sets the memory budget of every node (--host-memory). Of this machine's it may not exceed the memory that there
   is. */
enum ht_status ht_cluster_set_host_memory(struct ht_cluster *cluster, int64_t bytes, struct ht_error *err);
/* Sets what rings and messages through host memory reach on every node without peer access, as measured there. */
void ht_cluster_set_through_host(struct ht_cluster *cluster, double bytes_per_s);
/* Multiplies that rate where it is assumed: taken from another machine, since the node does not say it. */
void ht_cluster_scale_through_host(struct ht_cluster *cluster, double factor);

/* Rates of a node's disks together. */
struct ht_disk_rates {
    double read_bytes_per_s, write_bytes_per_s;
    bool duplex; /* reads and writes do not slow each other down */
};
/* Sets the rates of each node's disks, as measured, in place of the declared ones. */
void ht_cluster_set_disk_rates(struct ht_cluster *cluster, struct ht_disk_rates rates);
/* Gives every node n disks of a kind: a name of ssds.yaml, such as `local-disk`. */
enum ht_status ht_cluster_set_disks(struct ht_cluster *cluster, const char *kind, int64_t n, struct ht_error *err);
/* Takes all disks off the nodes. */
void ht_cluster_drop_ssds(struct ht_cluster *cluster);
/* Sets the number of disks of every node that has some (--ssds). At least one node must have some. */
enum ht_status ht_cluster_set_ssds(struct ht_cluster *cluster, int64_t n, struct ht_error *err);

/* Returns what the cluster costs: its nodes, their GPUs and their SSDs; 0 if a node has no price. */
double ht_cluster_price_usd(const struct ht_cluster *cluster);

/*
 * Describes this machine: its cores and memory, with n_devices emulated devices (1 to 64) of `device_cores` cores each
 * (0: all but one, divided, at least one) and `device_memory_bytes` each (0: a quarter of the memory, divided). The
 * host keeps the other cores, or shares the only one. Rates are declared, not measured (entry `local` of cpus.yaml):
 * `hetbench profile` measures them.
 */
enum ht_status ht_cluster_local(int64_t n_devices, int64_t device_cores, int64_t device_memory_bytes,
                                struct ht_error *err, struct ht_cluster **out);

/* Divides a cluster of one node, such as this machine, into n alike: each has its share of devices, cores and memory, and messages
   between them go at the rate of a copy in memory. HT_BAD_INPUT if the devices cannot be divided so. */
enum ht_status ht_cluster_divide(struct ht_cluster *cluster, int64_t n, struct ht_error *err);

/* Describes this machine with its n GPUs (1 to 64) instead of emulated devices; messages between them go through host
   memory. The links to them are declared as PCIe 5; a profile measures them. */
enum ht_status ht_cluster_local_gpus(const struct ht_gpu *gpus, int64_t n, struct ht_error *err,
                                     struct ht_cluster **out);

/* Returns the rate of a large copy in one direction. */
static inline double ht_link_rate(const struct ht_link *link)
{
    return link->bytes_per_s * link->efficiency;
}

/* Returns the rate of a transfer of `bytes`: the large copy's, or where rates by size are given theirs, linear in the
   logarithm of the size between two of them and constant beyond the first and the last. */
double ht_link_rate_at(const struct ht_link *link, double bytes);

/* Returns true if what the node's GPUs send each other passes through host memory. */
static inline bool ht_machine_stages(const struct ht_machine *machine)
{
    return machine->n_gpus > 1 && !machine->has_nvlink && !machine->peer;
}

/* Returns true if that path's rate was measured on another machine. */
static inline bool ht_machine_assumes_ring_rate(const struct ht_machine *machine)
{
    return ht_machine_stages(machine) && machine->through_host_bytes_per_s == 0;
}

/* Return what one direction of a GPU's path through host memory reaches, in a ring and in a message to another GPU. NCCL
   moves both by its shared-memory transport; a message may be slower where it was measured with the program that waits
   for it. Rates of the node, where they were measured on it, else the link's. */
static inline double ht_machine_ring_rate(const struct ht_machine *machine)
{
    return machine->through_host_bytes_per_s > 0 ? machine->through_host_bytes_per_s
                                                 : machine->pcie.through_host_bytes_per_s;
}

static inline double ht_machine_message_rate(const struct ht_machine *machine)
{
    return machine->message_bytes_per_s > 0 ? machine->message_bytes_per_s : ht_machine_ring_rate(machine);
}

/* Returns the rate of streaming over all cores, reads and writes together. */
static inline double ht_machine_dram_rate(const struct ht_machine *machine)
{
    return machine->cpu.dram_bytes_per_s * (double)machine->cpu.sockets * machine->cpu.dram_efficiency;
}

/* Return the rates of a node's array of SSDs: the disks' together, at most their uplink's. */
double ht_machine_ssd_read_rate(const struct ht_machine *machine);
double ht_machine_ssd_write_rate(const struct ht_machine *machine);

/* Returns the cores of a node that no emulated device has; at least 1. */
int64_t ht_machine_host_cores(const struct ht_machine *machine);
/* Returns the host cores of one domain, which one device's process may use. */
int64_t ht_machine_process_cores(const struct ht_machine *machine);

/* Writes the index-th catalogue name to buf. Returns false past the end. The last cluster is "local". */
bool ht_hw_cluster_name(int64_t index, char buf[HT_NAME_BYTES]);
bool ht_hw_gpu_name(int64_t index, char buf[HT_NAME_BYTES]);
bool ht_hw_cpu_name(int64_t index, char buf[HT_NAME_BYTES]);
bool ht_hw_link_name(int64_t index, char buf[HT_NAME_BYTES]);
bool ht_hw_ssd_name(int64_t index, char buf[HT_NAME_BYTES]);
/* Load a part by catalogue name. */
enum ht_status ht_gpu_load(const char *name, struct ht_error *err, struct ht_gpu *out);
enum ht_status ht_cpu_load(const char *name, struct ht_error *err, struct ht_cpu *out);
enum ht_status ht_link_load(const char *name, struct ht_error *err, struct ht_link *out);
enum ht_status ht_ssd_load(const char *name, struct ht_error *err, struct ht_ssd *out);

#endif
