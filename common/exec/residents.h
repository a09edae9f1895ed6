/*
 * The residents of a schedule, which it keeps between iterations, in memory that outlives the runs of the executor:
 *
 *     create --> fill --> ht_run --> read --> ht_run --> read --> .. --> destroy
 *
 * A run begins with what the residents hold, and leaves in them what its last iteration left. Nothing is copied in
 * between. Addresses are valid until the next run, which may move a resident.
 *
 * With several ranks, each process has the residents of its rank's device. A node's leader (node.h) also has those of
 * the node's host memory and disk.
 */
#ifndef HT_EXEC_RESIDENTS_H
#define HT_EXEC_RESIDENTS_H

#include "common/exec/run.h"

struct ht_node;

/* Allocates each resident in its space's arena, in the order of the schedule's list. Their contents are undefined.
   arenas: [ht_n_spaces], borrowed until destroy. Returns HT_FAILED when a space has no arena or no room. */
enum ht_status ht_residents_create(const struct ht_schedule *s, struct ht_arena **arenas, struct ht_error *err,
                                   struct ht_residents **out);
/* Allocates the residents of several ranks. All ranks call it and get the same status. */
enum ht_status ht_residents_create_ranks(struct ht_node *node, struct ht_error *err, struct ht_residents **out);
/* Frees the residents, and what a failed or interrupted run has left live. Accepts NULL. */
void ht_residents_destroy(struct ht_residents *r);

/* Returns true when this process has the i-th resident of the schedule's list; then *out is its memory (flags
   HT_UPDATE; data NULL when it has no bytes). */
bool ht_residents_get(const struct ht_residents *r, int32_t i, struct ht_buffer *out);

/* Calls fn for each resident of this process, in the order of the list, until a call fails. Returns the last call's
   status. */
typedef enum ht_status (*ht_resident_fn)(void *ctx, int32_t space, struct ht_buffer buffer, struct ht_error *err);
enum ht_status ht_residents_each(const struct ht_residents *r, ht_resident_fn fn, void *ctx, struct ht_error *err);

#endif
