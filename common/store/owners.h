/*
 * Who writes what several ranks hold. Data-parallel replicas hold equal extents. Each node keeps what its own ranks hold, since if
 * only one replica wrote, losing its node would lose what others still have; but one rank a node is enough, and one of
 * all for the remote store.
 */
#ifndef HT_STORE_OWNERS_H
#define HT_STORE_OWNERS_H

#include "common/store/transfer.h"

/* Fills in for each sink whether its rank writes it into the stores of its node, and whether into the remote store. Of the
   ranks, or nodes, with an extent, the (unit mod number)-th writes it, so that all have a share. Each may be NULL. */
void ht_store_owners(const struct ht_transfer_sink *sinks, int64_t n, bool *to_node, bool *to_remote);

#endif
