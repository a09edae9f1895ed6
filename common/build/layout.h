/*
 * A layout: who computes what of the batch, and who holds what of the parameters. A plan decides it; the builder, and
 * through the graph's slices and shards also the verifier and the data loader, go by it.
 *
 * A replica is one copy of the computation: a rank, or consecutive ranks that are the stages of a pipeline. It takes its
 * micro-batches one after the other, each of the same size, and the replicas together take the batch:
 *
 *     rank 0   | 0 0 | 1 1 | 2 2 |                 3 micro-batches of 2 sequences
 *     rank 1                     | 3 |             1 of 1
 *     rank 2                                       none
 *     round       0     1     2                    what the replicas do at a time
 *
 * Each stage is cut into tp tensor-parallel parts (common/model/model.h), one a rank: its ranks lie one after the other, on
 * one node or on several. Two pipelines of two stages, tp 2:
 *
 *     replica    0 0 0 0 1 1 1 1
 *     stage      0 0 1 1 0 0 1 1
 *     part       0 1 0 1 0 1 0 1
 *     rank       0 1 2 3 4 5 6 7
 *
 * Shards cut a unit's parameters, gradient and optimizer states over the ranks, one after the other. They may be uneven
 * and empty; even ones are padded to one size, so that every rank moves and steps the same. Without sharding every rank
 * holds all of every unit. In a pipeline whole units lie where their stage runs, which common/schedule/pipeline.h says.
 */
#ifndef HT_BUILD_LAYOUT_H
#define HT_BUILD_LAYOUT_H

#include "common/plan/scenario.h"
#include "common/schedule/schedule.h"

/* One rank's part of the work and of the state. */
struct ht_portion {
    int64_t micro_batch; /* sequences of a forward pass */
    int64_t count;       /* micro-batches of an iteration, 0 for a rank that only holds parameters */
    int64_t share;       /* of every unit's parameters, as a weight against the other ranks' */
};

struct ht_replica {
    int32_t first_rank, n_ranks;
    int32_t first_micro_batch, n_micro_batches; /* of the iteration */
    int64_t first_sequence, micro_batch;        /* its j-th holds [first_sequence + j micro_batch, + micro_batch) */
};

/* Elements [begin, end) of a unit; rows have room for `padded`. */
struct ht_shard {
    int64_t begin, end, padded;
};

enum ht_sharding {
    HT_SHARD_ALL,  /* parameters, gradients and optimizer states: ZeRO-3, or ZeRO-2 where what is gathered stays */
    HT_SHARD_NONE, /* nothing: every rank steps everything */
};

struct ht_layout {
    enum ht_sharding sharding;
    int32_t n_ranks, n_units, n_replicas;
    int32_t tp;                  /* tensor-parallel degree of every stage; 1: none */
    int32_t n_micro_batches;     /* of the iteration, over all replicas */
    int32_t rounds;              /* micro-batches of the replica that has most */
    bool alike;                  /* every replica has as many, of one size */
    struct ht_replica *replicas; /* [n_replicas]; data-parallel: [n_ranks] */
    struct ht_shard *shards;     /* [n_units * n_ranks]; in a pipeline what a rank would hold of its stage's units */
};

/* Refuses (HT_BAD_INPUT) so many micro-batches, or rounds times ranks, that the graph would have millions of ops. */
enum ht_status ht_layout_check_size(const struct ht_scenario *scenario, int64_t micro_batches, struct ht_error *err);

/* Lays out ranks that are all alike: rank r has the r-th part of the batch, in micro-batches of the scenario's size, and 1/N of every
   unit's parameters. HT_BAD_INPUT where the ranks do not divide the batch, or the micro-batch a rank's part of it. */
enum ht_status ht_layout_check_equal(const struct ht_scenario *scenario, struct ht_error *err);
enum ht_status ht_layout_equal(const struct ht_scenario *scenario, struct ht_error *err, struct ht_layout **out);

/* Lays out one replica a rank. portions: [ranks]; shares count with sharding only. HT_BAD_INPUT where they do not add up to the batch, the graph would be
   too large, no rank has a share, or a rank has no micro-batch though nothing is sharded. */
enum ht_status ht_layout_uneven(const struct ht_scenario *scenario, enum ht_sharding sharding,
                                const struct ht_portion *portions, struct ht_error *err, struct ht_layout **out);

/* Lays out n pipelines of so many ranks each, first to last, which take so many micro-batches of the scenario's size, stages in tp
   parts. HT_BAD_INPUT where they do not add up to the cluster or to the batch, or tp does not divide a pipeline's ranks or
   the model. */
enum ht_status ht_layout_pipelines(const struct ht_scenario *scenario, int32_t n, const int64_t *ranks,
                                   const int64_t *micro_batches, int32_t tp, struct ht_error *err,
                                   struct ht_layout **out);
void ht_layout_destroy(struct ht_layout *l); /* accepts NULL */

/* Returns the rank that has a part of a replica's stage, and the part that a rank has. */
int32_t ht_layout_rank(const struct ht_layout *l, int32_t replica, int32_t stage, int32_t part);
int32_t ht_layout_part(const struct ht_layout *l, int32_t rank);
/* Cuts a unit anew: elements[n_ranks] of each rank, one after the other, which add up to the unit. even: all but those at the
   end are of one size, to which these are padded. */
void ht_layout_cut(struct ht_layout *l, int32_t unit, const int64_t *elements, bool even);

/* Returns what a rank holds of a unit. */
const struct ht_shard *ht_layout_shard(const struct ht_layout *l, int32_t unit, int32_t rank);
/* Returns the iteration's number of a replica's micro-batch of a round. Of one that the replica lacks: that of another
   which has it. */
int32_t ht_layout_micro_batch(const struct ht_layout *l, int32_t replica, int32_t round);
/* Returns the round of the iteration's micro-batch. */
int32_t ht_layout_round(const struct ht_layout *l, int32_t micro_batch);
/* Tells the graph its micro-batches, and their slices where they are not all alike. */
void ht_layout_slice(const struct ht_layout *l, struct ht_schedule *s);

/* ---- of equal ranks, for planners ------------------------------------------------------------------------------- */

int64_t ht_equal_rounds(const struct ht_scenario *scenario);              /* micro-batches of each rank */
int64_t ht_equal_shard(const struct ht_scenario *scenario, int64_t unit); /* elements of each rank's shard, padded */
int64_t ht_equal_params(const struct ht_scenario *scenario);              /* the same of all units together */

#endif
