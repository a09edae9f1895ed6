/*
 * Node stores of a training: --store, --store-memory, --store-remote. Every rank writes what it holds and reads what it
 * needs; no rank stands between others and the files (common/store/store.h says what a store is).
 *
 *     between two runs of the executor      each rank: residents --> its node's store in memory (on disk without one)
 *     while the next run goes on            a thread of each rank: memory --> disk --> remote, the latter paced
 *     before the next save                  all ranks wait until the last one is written, then remove older steps
 *
 * So at most one save is in flight, and a node's memory has two steps at most: the one in flight and the new one.
 *
 * A resumed training may have another layout on other nodes. The first rank of each host lists the stores on it; all ranks
 * share that, compute the same list of transfers, and carry out their own shares of it: a rank reads its own node's and the
 * remote store itself, and of another node it receives what that node's first rank reads.
 */
#ifndef HT_HARNESS_RUN_NODE_STORES_H
#define HT_HARNESS_RUN_NODE_STORES_H

#include "common/store/catalog.h"
#include "harness/run/persist.h"
#include "harness/run/stream.h"

struct ht_node_stores;

/* How saving went on this rank. */
struct ht_store_figures {
    int32_t n_saved;
    double stall_s;                 /* that training stood still, waiting included */
    double first_stall_s;           /* of that, for the first save */
    double waited_s;                /* of that, for the save before */
    double written_s;               /* that the writers took, while training went on */
    int64_t bytes;                  /* that were saved */
    double oldest_s;                /* the longest that a step was not yet safe on disk, from the start of its save */
    int64_t safe_step;              /* the newest that is; -1: none */
    int64_t read_bytes[HT_N_PATHS]; /* at the start, by path */
};

/* Opens the stores. With --resume, finds the newest step that they have whole and fills in, on all ranks, the facts of
   persist->state. All ranks call it. *out is NULL without --store. HT_BAD_INPUT says what is missing where, if the stores hold
   steps and none is whole. */
enum ht_status ht_node_stores_open(const struct ht_options *options, const struct ht_job *job,
                                   const struct ht_ranks *ranks, struct ht_persist *persist, struct ht_error *err,
                                   struct ht_node_stores **out);
/* Ends the writer's copies and closes the stores. Accepts NULL. */
void ht_node_stores_close(struct ht_node_stores *s);

/* Returns true if the training begins with a step of the stores. Then all ranks fill their residents with it. */
bool ht_node_stores_resumes(const struct ht_node_stores *s);
enum ht_status ht_node_stores_fill(struct ht_node_stores *s, struct ht_stream *stream, struct ht_error *err);

/* Saves the residents after `step` steps; all ranks call it. The state has rank 0's counts and losses. Returns when the first
   store has them. */
enum ht_status ht_node_stores_save(struct ht_node_stores *s, struct ht_stream *stream, struct ht_state *state,
                                   int64_t step, const struct ht_checkpoint_setting *settings, int n_settings,
                                   struct ht_error *err);
/* Returns the newest step that all ranks have saved, at least to the first store; -1: none. */
int64_t ht_node_stores_newest(const struct ht_node_stores *s);
/* Writes the numbers of this run's versions, and of the version that it began with (0: none). */
void ht_node_stores_runs(const struct ht_node_stores *s, uint64_t *run, uint64_t *from);
/* Waits until all ranks' last save is written. All ranks call it; *out has this rank's figures. */
enum ht_status ht_node_stores_finish(struct ht_node_stores *s, struct ht_error *err, struct ht_store_figures *out);

#endif
