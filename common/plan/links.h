/* Capacities and shared resources of the ranks, as each rank's node has them. Internal to common/plan; ht_single_draw
   charges them. */
#ifndef HT_PLAN_LINKS_H
#define HT_PLAN_LINKS_H

#include "common/plan/single.h"

/* A graph without rows and ops: ranks, nodes and capacities as the cluster has them, units and micro-batches of the whole
   iteration. A node without SSDs has no room on disk. */
struct ht_schedule *ht_links_schedule(const struct ht_scenario *scenario, const char *name);

/*
 * Adds the resources of all ranks to the draft, and notes those of its own. A real device has a port (one resource for
 * each direction, or one in all where it is simplex), NVLink to its peers, and part of its node's DRAM; devices may share
 * an uplink. An emulated device has the node's cores. With several ranks all share their node's cores, and with several
 * nodes its NIC.
 *
 *     "pcie h2d"            there is one rank
 *     "rank 2 pcie h2d"     of a rank
 *     "dram"                of the only node
 *     "node 1 dram"         of a node
 */
void ht_links_add(struct ht_single *g);

/* Returns the capacity of a node's resource in bytes per second (HT_RES_CORES: core-nanoseconds per second); of a port or
   NVLink, that of one device. */
int64_t ht_resource_rate(const struct ht_machine *node, enum ht_resource_kind kind);

#endif
