/*
 * A spot trace on the nodes of a small cluster: of each kind as many local nodes are there as
 *
 *     ceil(k x live / most)
 *
 * with k the cluster's nodes of the kind, `live` the trace's nodes of it that are there, `most` the most at once. Which local node is lost
 * is drawn; the one with the lowest number joins. A trace's node that has had notice counts as lost for who has notice locally.
 *
 * The result is a trace, too: its nodes are lives of local nodes, "node3.2" the second life of node 3. So the same events are
 * simulated (goodput.h) and happen to processes (replay.h).
 */
#ifndef HT_HARNESS_DAYS_REPLAY_MAP_H
#define HT_HARNESS_DAYS_REPLAY_MAP_H

#include "common/hw/hw.h"
#include "harness/days/traces/spot_trace.h"

struct ht_local_day {
    struct ht_spot_trace trace;
    int32_t *slot;    /* [trace.n_nodes] local node of each life */
    int32_t *kind_of; /* [trace.n_nodes] kind of each life: entries of the cluster, from 0 */
    int32_t *order;   /* [trace.n_nodes] lives by local node, as the supervisor takes nodes */
    int32_t n_local;
    int32_t at_first;          /* local nodes that are there from the beginning */
    int64_t moments, changing; /* times of the trace's events after the first; those at which the local set changes */
    int64_t joins, losses;     /* of local nodes after the first time */
};

/* Maps a trace. kind_of: [trace->n_nodes] kind of each of its nodes, an entry of the cluster. The local day ends with the last change
   of the local set, or the most_changes-th if that is not 0. */
enum ht_status ht_replay_map(const struct ht_spot_trace *trace, const int32_t *kind_of,
                             const struct ht_cluster *cluster, uint64_t seed, int64_t most_changes,
                             struct ht_error *err, struct ht_local_day *out);
/* Draws a day of the cluster's own: all nodes at first, then every `gap_ns` one is lost or comes back, `n` times. */
void ht_replay_draw(const struct ht_cluster *cluster, int64_t n, int64_t gap_ns, uint64_t seed,
                    struct ht_local_day *out);
void ht_local_day_free(struct ht_local_day *d); /* accepts a zeroed one */

#endif
