/*
 * What ranks share, as each rank's node has it, and what ops take of it. One table for all systems.
 *
 *     of a real device    its port and NVLink, one resource a direction (one for both where the link is simplex), and the
 *                         uplink of a PCIe switch that it shares with others
 *     of a domain         cores, where more than one lane may want them, and DRAM, where a device is real. A domain is
 *                         the part of a node that a device's process keeps to (struct ht_machine): mostly all of it
 *     of a node           its NIC, each direction, where there are several nodes; its SSDs: reads and writes, or one
 *                         resource for both where they slow each other down
 *
 * A device emulated by some of the node's cores has no port: the host's cores move its bytes.
 *
 *     "pcie h2d"          there is one rank              "dram"              there is one node and one domain
 *     "rank 2 pcie h2d"   of a rank                      "node 1 nic out"    of a node
 *                                                        "domain 5 dram"     of a domain; they count over all nodes
 *
 * Internal to common/build and to systems with ops of their own.
 */
#ifndef HT_BUILD_LINKS_H
#define HT_BUILD_LINKS_H

#include "common/plan/scenario.h"
#include "common/schedule/schedule.h"

/* The resources of a rank; -1 where there is none. Both directions of a simplex link are the same one. */
struct ht_links {
    int32_t pcie_d2h, pcie_h2d, switch_d2h, switch_h2d, nvlink_out, nvlink_in; /* of its device */
    int32_t cores, dram;                                                       /* of its domain */
    int32_t nic_out, nic_in, disk_read, disk_write;                            /* of its node */
    int64_t host_cores;                                                        /* of its process */
    double write_weight; /* bytes that the disk could read while it writes one; 1 where the resources are two */
    bool emulated;
    bool one_core; /* for device and host alike */
    bool leads;    /* the first real device of its node: a collective's bytes cross the NIC once a node, as in a ring */
};

/* A graph without rows and ops: ranks, nodes and capacities as the cluster has them, units and micro-batches of the whole
   iteration. A node without SSDs has no room on disk. */
struct ht_schedule *ht_links_schedule(const struct ht_scenario *scenario, const char *name);

/* Adds the resources of all ranks to a graph of ht_links_schedule. host_lanes: a rank may have several, so that even a
   lone device's need the cores as a resource. Returns the table, [ranks]; the caller frees it. */
struct ht_links *ht_links_add(struct ht_schedule *s, const struct ht_cluster *cluster, bool host_lanes);

/* ---- Charges of the last op; ports: the table --------------------------------------------------------------------- */

/* Charges work on its lane. The host's takes all cores of its process and `bytes` of its DRAM; a device's nothing, unless device
   and host are the same core. */
void ht_charge_work(struct ht_schedule *s, const struct ht_links *links, int64_t bytes);

/* Charges a copy between two tiers of its rank: the port and uplink on the device's side, DRAM on the host's, the SSDs on the
   disk's. An emulated device's copy keeps one core busy in place of port and DRAM. */
void ht_charge_copy(struct ht_schedule *s, const struct ht_links *links, enum ht_tier from, enum ht_tier to,
                    int64_t bytes);

/* Charges a collective's member, which sends and receives `bytes`: NVLink in both directions, else port and uplink, as without
   peer access between devices. crosses: it takes the NIC too, as one member a node does in a ring over several (of all
   ranks the one that leads its node). */
void ht_charge_collective(struct ht_schedule *s, const struct ht_links *links, bool crosses, int64_t bytes);

/* Charges a pass of one of n tensor-parallel parts, on ranks from `first` on, which sends and receives `bytes` inside: as a
   collective of theirs, on the compute lane. What emulated devices exchange is in the op's cost alone. */
void ht_charge_parts(struct ht_schedule *s, const struct ht_links *links, int32_t first, int32_t n, int64_t bytes);

/* Does the rank's member of a group take its node's NIC? The group's first real device there does, if the group is on
   several nodes. */
bool ht_links_cross(const struct ht_schedule *s, const struct ht_links *links, int32_t rank, const int32_t *group,
                    int32_t n);

/* Charges a message's member; the op's kind says which. peer: the other one's rank. Inside a node a message takes NVLink, or the
   sender's port up and the receiver's down, and stays below shared uplinks; between nodes the ports and both NICs.
   from_host: a one-sided read of the sender's node's memory, which takes that node's DRAM in place of the sender's port.
   Of emulated devices the receiver keeps a core busy. */
void ht_charge_message(struct ht_schedule *s, const struct ht_links *links, int32_t peer, bool from_host,
                       int64_t bytes);

#endif
