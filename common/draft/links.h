/*
 * Shared resources: links, memory bandwidth and cores of each rank and its node, and the amounts that ops take of them.
 * One table serves all systems.
 *
 *     of a real device    its PCIe port and NVLink, one resource per direction (one for both if the link is simplex),
 *                         and the uplink of a PCIe switch that it shares with other devices. Without peer access and
 *                         NVLink also, per direction, its path through host memory, which all that it sends shares,
 *                         whatever the lanes. Messages have one of their own where the node says what they reach
 *     of a domain         cores, if more than one lane can use them, and DRAM, if a device is real. A domain is the
 *                         part of a node that a device's process keeps to (struct ht_machine), mostly the whole node
 *     of a node           its NIC, per direction, if there are several nodes; its SSDs: reads and writes, or one
 *                         resource for both if they slow each other down
 *
 * A device emulated by some of the node's cores has no port: the host's cores move its bytes.
 *
 *     "pcie h2d"          with one rank                  "dram"              with one node and one domain
 *     "rank 2 pcie h2d"   of a rank                      "node 1 nic out"    of a node
 *                                                        "domain 5 dram"     of a domain, counted over all nodes
 *
 * Internal to common/draft and to systems that write ops of their own.
 */
#ifndef HT_DRAFT_LINKS_H
#define HT_DRAFT_LINKS_H

#include "common/plan/scenario.h"
#include "common/schedule/schedule.h"

/* The resources of a rank; -1 where it has none. Both directions of a simplex link are the same resource. */
struct ht_links {
    int32_t pcie_d2h, pcie_h2d, switch_d2h, switch_h2d, nvlink_out, nvlink_in; /* of its device */
    int32_t staged_out, staged_in, message_out, message_in;                    /* of its path through host memory */
    int32_t cores, dram;                                                       /* of its domain */
    int32_t nic_out, nic_in, disk_read, disk_write;                            /* of its node */
    int64_t host_cores;                                                        /* of its process */
    double write_weight; /* bytes that the disk could read in the time it writes one; 1 with two resources */
    bool emulated;
    bool one_core; /* device and host share one core */
    bool leads;    /* first real device of its node: a collective's bytes cross the NIC once per node, as in a ring */
};

/* Lists the resources of a rank, in one order for all; -1 where it has none. */
enum { HT_LINKS = 16 };
void ht_links_list(const struct ht_links *p, int32_t list[HT_LINKS]);
/* Returns true if ops of two ranks take as much, of whatever resources. */
bool ht_links_alike(const struct ht_links *a, const struct ht_links *b);

/* Returns a graph without rows and ops: the cluster's ranks, nodes and capacities, and the units and micro-batches of
   the whole iteration. A node without SSDs has no disk capacity. */
struct ht_schedule *ht_links_schedule(const struct ht_scenario *scenario, const char *name);

/* Adds the resources of all ranks to a graph of ht_links_schedule. host_lanes: a rank may have several host lanes, so
   that cores are a resource even with one device. Returns the table, [ranks]; the caller frees it. */
struct ht_links *ht_links_add(struct ht_schedule *s, const struct ht_cluster *cluster, bool host_lanes);

/* ---- charges of the last op; links: the table ------------------------------------------------------------------ */

/* Charges work on its lane. Host work takes all cores of its process and `bytes` of DRAM traffic. Device work takes
   nothing, unless device and host share one core. */
void ht_charge_work(struct ht_schedule *s, const struct ht_links *links, int64_t bytes);

/* Charges a copy between two tiers of its rank: port and uplink for the device, DRAM for the host, SSDs for the disk. A
   copy of an emulated device keeps one core busy in place of port and DRAM. */
void ht_charge_copy(struct ht_schedule *s, const struct ht_links *links, enum ht_tier from, enum ht_tier to,
                    int64_t bytes);

/* Charges a member of a collective, which sends and receives `bytes`: NVLink in both directions, or without NVLink the
   port and uplink (no peer access between devices), and the rank's path through host memory, if it has one. crosses: it
   takes the NIC instead of that path, if there is one. In a ring over several nodes one member of each node does; with all
   ranks in the ring it is the rank that leads its node. */
void ht_charge_collective(struct ht_schedule *s, const struct ht_links *links, bool crosses, int64_t bytes);

/* Charges a pass of one of n tensor-parallel parts, on the ranks of a group, which sends and receives `bytes` inside.
   The charge is that of a collective of these ranks, on the compute lane. With emulated devices it is nothing: the op's
   cost contains the exchange. */
void ht_charge_parts(struct ht_schedule *s, const struct ht_links *links, const int32_t *group, int32_t n,
                     int64_t bytes);

/* Returns true if the rank's member of a group takes its node's NIC: the group spans several nodes, and the rank is the
   group's first real device on its node. */
bool ht_links_cross(const struct ht_schedule *s, const struct ht_links *links, int32_t rank, const int32_t *group,
                    int32_t n);

/* Charges a member of a message: a send or a receive, by the op's kind. peer: rank of the other member. Inside a node a
   message takes NVLink, or the sender's port up and the receiver's port down, and stays below shared uplinks. Without
   peer access it also takes both ranks' paths through host memory. Between nodes it takes the ports and both NICs.
   from_host: a one-sided read of host memory on the sender's node, which takes that node's DRAM in place of the
   sender's port. With emulated devices the receiver keeps one core busy. */
void ht_charge_message(struct ht_schedule *s, const struct ht_links *links, int32_t peer, bool from_host,
                       int64_t bytes);

#endif
