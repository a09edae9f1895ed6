/*
 * What a list of transfers takes: each copy is an op of a graph that the simulator runs over the disks and NICs of the
 * nodes and the one link to the remote store.
 *
 *     own memory    no resource: at the memory's rate            one lane a rank and path: a rank's copies of one path
 *     own disk      the node's disk                              go one after the other, those of different paths
 *     peer          the source's disk, unless it is in memory,   beside each other
 *                   its NIC's way out, the sink's NIC's way in
 *     remote        the link, which all nodes share
 *
 * AutoHet (arXiv 2512.20953), Sec. V-C, gives the rates: cloud 1.2 GB/s, disk 3.5 GB/s a node, RDMA 50 GB/s a node. A copy
 * over several resources goes at the slowest, since its parts overlap: reading, sending and receiving are pipelined.
 */
#ifndef HT_STORE_PRICE_H
#define HT_STORE_PRICE_H

#include "common/exec/emu.h"
#include "common/hw/hw.h"
#include "common/store/transfer.h"

struct ht_store_rates {
    int32_t n_nodes;
    const double *disk_bytes_per_s, *nic_bytes_per_s, *memory_bytes_per_s; /* [n_nodes] */
    double remote_bytes_per_s;
};

struct ht_store_reading {
    bool whole_files; /* a rank reads whole extents where it needs a slice of them; the paper does not say */
    int64_t
        param_bytes; /* of a parameter in files, beside 4 of momentum and 4 of variance: 4; the paper's files have 6, a
                            16-bit copy beside the master */
    bool serial;     /* a rank's paths one after the other; the paper does not say */
};

struct ht_store_price {
    int64_t ns;                /* from the first copy's start to the last one's end */
    int64_t bytes[HT_N_PATHS]; /* that ranks read */
};

/* Returns a cluster's rates: of each node's disks, its NIC and its memory, [n_nodes] each, allocated. A node without a disk or a
   NIC has 0, and a copy that needs it is refused. */
struct ht_store_rates ht_store_cluster_rates(const struct ht_cluster *cluster, double remote_bytes_per_s);
void ht_store_rates_free(struct ht_store_rates *rates); /* of ht_store_cluster_rates */

/* Simulates the list. HT_BAD_INPUT if a copy needs a rate that is 0. */
enum ht_status ht_transfers_price(const struct ht_transfer_source *sources, const struct ht_transfer_sink *sinks,
                                  int64_t n_sinks, const struct ht_transfers *list, const struct ht_store_rates *rates,
                                  struct ht_store_reading how, struct ht_error *err, struct ht_store_price *out);

/* How a list is carried out under the emulated clock. */
struct ht_store_emulation {
    double scale;          /* wall-clock time over modelled time */
    ht_transfer_read read; /* really reads what a copy reads, one call at a time */
    void *ctx;
};
/* Carries out the same list under the emulated clock (common/exec/emu.h): each copy reads its elements and is held until the disks,
   NICs and the link would be done with it. *out has modelled time, beside the simulated time of ht_transfers_price. */
enum ht_status ht_transfers_emulate(const struct ht_model *m, const struct ht_transfer_source *sources,
                                    const struct ht_transfer_sink *sinks, int64_t n_sinks,
                                    const struct ht_transfers *list, const struct ht_store_rates *rates,
                                    struct ht_store_reading how, const struct ht_store_emulation *emulation,
                                    struct ht_error *err, struct ht_store_price *out, struct ht_emu_overruns *overruns);

#endif
