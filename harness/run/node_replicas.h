/*
 * --replicas N: each rank's files of a save go to N other nodes as well, so that a node may be lost without a remote store.
 * Rank r on node a sends to the first rank of node a + k (modulo the nodes), k = 1 .. N. The files lie there beside that
 * node's own, with rank r's manifest.
 *
 * All ranks' writers go through the pairs (k, sender) in one order and take part in their own, so no two wait for each other.
 * A sender that has failed says so in place of its files.
 */
#ifndef HT_HARNESS_RUN_NODE_REPLICAS_H
#define HT_HARNESS_RUN_NODE_REPLICAS_H

#include "harness/run/node_stores_parts.h"

/* Sends and receives this rank's share of a save; all ranks' writers call it. status: how the rank's own save went so far. */
enum ht_status ht_node_replicas_exchange(const struct ht_node_stores *s, enum ht_status status, struct ht_error *err);

#endif
