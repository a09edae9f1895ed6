/*
 * The layout of a job: which rank computes which part of the batch, and which rank holds which part of the parameters.
 * A plan decides it. The builder follows it directly; the verifier and the data loader see it as the graph's slices and
 * shards.
 *
 * A replica is one copy of the computation: a rank, or ranks that are the stages of a pipeline. It runs its
 * micro-batches one after another, all of one size. The replicas together cover the batch:
 *
 *     rank 0   | 0 0 | 1 1 | 2 2 |                 3 micro-batches of 2 sequences
 *     rank 1                     | 3 |             1 micro-batch of 1 sequence
 *     rank 2                                       no micro-batch
 *     round       0     1     2                    the j-th micro-batch of every replica
 *
 * Each stage is cut into tp tensor-parallel parts (common/model/model.h), one per rank. A pipeline takes its ranks where
 * a plan places it; the parts of a stage are on ascending ranks and may span nodes. Two pipelines of two stages, tp 2:
 *
 *     replica            0 0 0 0 1 1 1 1
 *     stage              0 0 1 1 0 0 1 1
 *     part               0 1 0 1 0 1 0 1
 *     place              0 1 2 3 4 5 6 7
 *     rank at the place  0 1 2 3 4 5 6 7     unless a plan says otherwise
 *                        0 1 4 5 2 3 6 7     Megatron-LM's order: tensor, then data, then pipeline (Narayanan et al. 2021)
 *
 * Stages may be of different widths, the same in all pipelines: then tp is the widest. Part q of the layout has those
 * stages that have more than q parts. One pipeline with widths 1, 2:
 *
 *     stage              0 1 1
 *     part               0 0 1
 *     place              0 1 2
 *
 * Stages may have replicas of their own, as many as a plan says for each: ranks beside each other, the parts of one replica
 * after those of another. A micro-batch that enters the pipeline is then cut, by sequences, into as many as the most
 * replicas of a stage (per_pass), and these are the micro-batches of the graph. A stage of n replicas passes 1/n of them
 * on each, in their order. One pipeline with replicas 1, 2, 1, and per_pass 2:
 *
 *     stage              0 1 1 2
 *     replica            0 0 1 0
 *     micro-batches      0 0 . 0      of the first pass
 *                        1 . 1 1
 *
 * Member i of a stage is its i-th rank: part i mod w of replica i / w, with w parts. Without such replicas it is part i.
 *
 * Shards cut a unit's parameters, gradient and optimizer states over the ranks, in rank order. They may be uneven or
 * empty. Even shards are padded to one size, so that every rank moves and steps the same amount. Without sharding every
 * rank holds every unit whole. In a pipeline a whole unit is on the rank of its stage (common/schedule/pipeline.h); its
 * shards are on that of each pipeline (ht_pipe_lay_out), and a tensor-parallel part has shards of its own.
 *
 * Stages may end inside a block, between its attention and its MLP or behind another sub-op. Then the two halves of this
 * block, its front and its back (common/model/halves.h), are units of their own to drafts, in all pipelines:
 *
 *     unit of the model     0   1   2          3   4
 *     unit of a draft       0   1   2     3    4   5        block 2 is cut
 *                                  front  back
 *
 * Ranks of a node may instead share one copy of every unit, in the node's memory. They are one replica, whose
 * micro-batches they take in turn: rank r of N has micro-batches r, r + N, ..
 */
#ifndef HT_DRAFT_LAYOUT_H
#define HT_DRAFT_LAYOUT_H

#include "common/model/halves.h"
#include "common/plan/system.h"
#include "common/schedule/schedule.h"

/* One rank's part of the work and of the state. */
struct ht_portion {
    int64_t micro_batch; /* sequences of a forward pass */
    int64_t count;       /* micro-batches of an iteration, 0 for a rank that only holds parameters */
    int64_t share;       /* its part of every unit's parameters: a weight relative to the other ranks' */
};

struct ht_replica {
    int32_t first_place, n_ranks; /* its ranks are at consecutive places, a stage's parts beside each other */
    int32_t first_micro_batch, n_micro_batches; /* of the iteration */
    int64_t first_sequence, micro_batch;        /* micro-batch j: [first_sequence + j micro_batch, + micro_batch) */
};

/* Elements [begin, end) of a unit. Rows have room for `padded` elements. */
struct ht_shard {
    int64_t begin, end, padded;
};

/* A unit of a draft: a unit of the model, or one half of a block. */
struct ht_layout_unit {
    int32_t unit;
    unsigned sub_ops; /* HT_ALL_SUB_OPS, or those of a front or a back */
};

enum ht_sharding {
    HT_SHARD_ALL,  /* parameters, gradients and optimizer states: ZeRO-3, or ZeRO-2 or 1 if gathered parameters stay */
    HT_SHARD_NONE, /* nothing: every rank steps everything */
};

struct ht_layout {
    enum ht_sharding sharding;
    int32_t n_ranks, n_units, n_replicas;
    int32_t tp;           /* tensor-parallel degree of every stage, or of the widest; 1: no tensor parallelism */
    int32_t members;      /* ranks of the stage that has most */
    int32_t n_stages;     /* of each pipeline whose stages are of different widths; 0: they are not */
    int32_t *stage_begin; /* [n_stages + 1] its stages' first places, from 0; NULL: stages are of one width */
    int32_t *stage_width; /* [n_stages] parts of each; NULL as stage_begin is */
    int32_t per_pass;     /* micro-batches of a pass of a stage without replicas of its own; 1: no stage has any */
    bool sequence;        /* the parts of a stage cut norms and residuals by rows, too (common/model/model.h) */
    int32_t *rank_at, *place_of;  /* [n_ranks] rank at a place, and its inverse */
    int32_t n_micro_batches;      /* of the iteration, over all replicas */
    int32_t rounds;               /* micro-batches of the replica that has most */
    bool alike;                   /* all replicas have equally many micro-batches, of one size */
    struct ht_replica *replicas;  /* [n_replicas]; data-parallel: [n_ranks] */
    struct ht_layout_unit *units; /* [n_units]: the model's, unless ht_layout_halve has cut blocks */
    struct ht_shard *shards;      /* [n_units * n_ranks]; in a pipeline: what a rank holds of its stage's units */
};

/* Returns HT_BAD_INPUT if this many micro-batches (or rounds times ranks) would make a graph of millions of ops. */
enum ht_status ht_layout_check_size(const struct ht_scenario *scenario, int64_t micro_batches, struct ht_error *err);

/* Lays out equal ranks: rank r has the r-th part of the batch, in micro-batches of the scenario's size, and 1/N of
   every unit's parameters. HT_BAD_INPUT if the number of ranks does not divide the batch, or the micro-batch does not
   divide a rank's part of it. ht_layout_check_equal only checks. */
enum ht_status ht_layout_check_equal(const struct ht_scenario *scenario, struct ht_error *err);
enum ht_status ht_layout_equal(const struct ht_scenario *scenario, struct ht_error *err, struct ht_layout **out);

/* Lays out the ranks of one node as a replica that has one copy of every unit. Its micro-batches are of the scenario's
   size, and each rank takes equally many. HT_BAD_INPUT as for ht_layout_equal. */
enum ht_status ht_layout_shared(const struct ht_scenario *scenario, struct ht_error *err, struct ht_layout **out);

/* Lays out one replica per rank. portions: [ranks]; shares count only with sharding. HT_BAD_INPUT if the portions do
   not add up to the batch, the graph would be too large, every share is 0, or a rank has no micro-batch and nothing is
   sharded. */
enum ht_status ht_layout_uneven(const struct ht_scenario *scenario, enum ht_sharding sharding,
                                const struct ht_portion *portions, struct ht_error *err, struct ht_layout **out);
/* The same with a plan's vectors by rank: m sequences a micro-batch, l micro-batches and, if it has one, share. */
enum ht_status ht_layout_planned(const struct ht_scenario *sc, enum ht_sharding sharding, const struct ht_plan *plan,
                                 struct ht_error *err, struct ht_layout **out);

/* Lays out n pipelines. Pipeline k has ranks[k] ranks and runs micro_batches[k] micro-batches of the scenario's size;
   its stages are cut into tp parts. HT_BAD_INPUT if the pipelines do not add up to the cluster or to the batch, or tp
   does not divide a pipeline's ranks or the model. Each place has the rank of its number; ht_layout_place changes it. */
enum ht_status ht_layout_pipelines(const struct ht_scenario *scenario, int32_t n, const int64_t *ranks,
                                   const int64_t *micro_batches, int32_t tp, struct ht_error *err,
                                   struct ht_layout **out);
/* Gives the stages of every pipeline of a layout of tp 1 widths of their own, parts of each stage. HT_BAD_INPUT if they do
   not add up to each pipeline's ranks, or if one does not divide the model. */
enum ht_status ht_layout_widen(struct ht_layout *l, const struct ht_scenario *scenario, int32_t n_stages,
                               const int64_t *widths, struct ht_error *err);
/* The same of the one pipeline of a layout, whose stages have replicas of their own, too. HT_BAD_INPUT also if their numbers
   do not divide the largest of them, or that a micro-batch. */
enum ht_status ht_layout_replicate(struct ht_layout *l, const struct ht_scenario *scenario, int32_t n_stages,
                                   const int64_t *widths, const int64_t *replicas, struct ht_error *err);
/* Puts rank place[i] at place i. HT_BAD_INPUT unless n ranks are all of the cluster's, each once, and the ranks of a
   stage ascend. */
enum ht_status ht_layout_place(struct ht_layout *l, const struct ht_scenario *scenario, int32_t n, const int64_t *place,
                               struct ht_error *err);
void ht_layout_destroy(struct ht_layout *l); /* accepts NULL */

/* Cuts blocks into halves, each of which is a unit from then on; every rank holds all of it. fronts: [units of the model] the
   sub-ops of the front; 0: it is not cut. */
void ht_layout_halve(struct ht_layout *l, const struct ht_scenario *scenario, const unsigned *fronts);

/* Cuts norms and residuals into the parts, too. HT_BAD_INPUT if tp does not divide a micro-batch's tokens. */
enum ht_status ht_layout_cut_rows(struct ht_layout *l, const struct ht_scenario *scenario, struct ht_error *err);

/* Returns the parts of a stage; of a rank's stage; the replicas of a stage; the stages of a pipeline. */
int32_t ht_layout_width(const struct ht_layout *l, int32_t stage);
int32_t ht_layout_width_at(const struct ht_layout *l, int32_t rank);
int32_t ht_layout_stage_replicas(const struct ht_layout *l, int32_t stage);
int32_t ht_layout_stages(const struct ht_layout *l, const struct ht_replica *x);
/* Returns the rank that is this member of a replica's stage, -1 if the stage has fewer; returns the part that a rank has. */
int32_t ht_layout_rank(const struct ht_layout *l, int32_t replica, int32_t stage, int32_t member);
int32_t ht_layout_part(const struct ht_layout *l, int32_t rank);
/* Returns the micro-batches of each pass of a stage, and the first one of a replica of it among those of a pass. */
int32_t ht_layout_passed(const struct ht_layout *l, int32_t stage);
int32_t ht_layout_first_passed(const struct ht_layout *l, int32_t stage, int32_t member);
/* Returns true if the rank passes a micro-batch of its pipeline, counted from the pipeline's first. */
bool ht_layout_passes(const struct ht_layout *l, int32_t rank, int32_t micro_batch);
/* Returns the ranks of a rank's stage that have the parts of its replica of it, ascending. */
const int32_t *ht_layout_stage_ranks(const struct ht_layout *l, int32_t rank);
/* Returns a rank's stage in a replica; -1: it has none. */
int32_t ht_layout_stage(const struct ht_layout *l, int32_t replica, int32_t rank);
/* Replaces the shards of a unit: elements[r] for rank r, which must add up to the unit. even: all shards have the size
   of the first, and the shorter ones at the end are padded to it. */
void ht_layout_cut(struct ht_layout *l, int32_t unit, const int64_t *elements, bool even);

/* Cuts these elements, which are a unit's or those of one part of it, into even shards of these ranks, in their order. */
void ht_layout_cut_over(struct ht_layout *l, int32_t unit, struct ht_range elements, const int32_t *ranks, int32_t n);

/* Returns the elements of the model's unit, or of a part's, that a unit of the layout is. */
struct ht_range ht_layout_params(const struct ht_layout *l, const struct ht_model *part, int32_t unit);

/* Returns the rank's shard of a unit. */
const struct ht_shard *ht_layout_shard(const struct ht_layout *l, int32_t unit, int32_t rank);
/* Returns the number, in the iteration, of a replica's micro-batch of a round. If the replica has none in that round,
   returns the number of another replica's. */
int32_t ht_layout_micro_batch(const struct ht_layout *l, int32_t replica, int32_t round);
/* Returns the round of a micro-batch, by its number in the iteration. */
int32_t ht_layout_round(const struct ht_layout *l, int32_t micro_batch);
/* Sets the graph's micro-batches, and their slices unless all are alike. */
void ht_layout_slice(const struct ht_layout *l, struct ht_schedule *s);

/* ---- equal ranks, for planners --------------------------------------------------------------------------------- */

int64_t ht_equal_rounds(const struct ht_scenario *scenario);              /* micro-batches of each rank */
int64_t ht_equal_shard(const struct ht_scenario *scenario, int64_t unit); /* elements of each rank's shard, padded */
int64_t ht_equal_params(const struct ht_scenario *scenario);              /* ht_equal_shard summed over all units */

#endif
