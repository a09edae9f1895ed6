/*
 * The least time that a run still takes from an op's start, for simulations that give up.
 *
 * When issue group g of iteration k starts at t, iterations 0 .. last have not all ended before t + rest_k(g):
 *
 *     rest_last(g)      cost(g) + the largest rest_last(h) of all h that depend on g, or follow it on a FIFO lane
 *     rest_{last-1}(g)  cost(g) + the largest of: rest_{last-1}(h) of the same; rest_last(h) of all h of the next iteration
 *                       that depend on g, or begin a FIFO lane that g ends
 *     rest_k(g)         (last - 1 - k) lane(g) + rest_{last-1}(g) for k < last - 1
 *
 * cost: what the group takes alone, at the smallest jitter; 0 if it may be skipped. lane: costs of a whole iteration on the FIFO
 * lane of the group's first op, else 0. Memory and sharing can only delay, so none of these exceeds the truth.
 */
#ifndef HT_EXEC_SIM_REST_H
#define HT_EXEC_SIM_REST_H

#include "common/exec/sim_groups.h"

struct ht_sim_rest {
    int32_t last;
    int64_t *of_last, *before; /* [n_ops] rest_last and rest_{last-1}, ns; of an issue group for each member */
    int64_t *lane_ns;          /* [n_ops] lane(g); NULL while last < 2 */
};

/* Computes the rests of a schedule. jitter_percent: as in ht_sim_options. */
void ht_sim_rest_init(struct ht_sim_rest *rest, const struct ht_schedule *s, const struct ht_sim_groups *groups,
                      int32_t jitter_percent, int32_t last);
void ht_sim_rest_free(struct ht_sim_rest *rest);

/* Returns rest_k of an op's group, at most HT_FLOW_NEVER_NS; 0 for k > last. */
int64_t ht_sim_rest_ns(const struct ht_sim_rest *rest, int32_t k, int32_t op);

#endif
