/*
 * The residents of a schedule, which it keeps between iterations, in memory that outlives the runs of the executor:
 *
 *     create --> fill --> ht_run --> read --> ht_run --> read --> .. --> destroy
 *
 * A run begins with what the residents hold and leaves in them what its last iteration left; nothing is copied in
 * between. Addresses are good until the next run, which may move a resident.
 *
 * Over ranks each process has the residents of its rank's device, and a node's leader (node.h) those of the node's host
 * and disk as well.
 */
#ifndef HT_EXEC_RESIDENTS_H
#define HT_EXEC_RESIDENTS_H

#include "common/exec/run.h"

struct ht_node;

/* Allocates each resident in its space's arena, in the order of the schedule's list. What they hold is undefined.
   arenas: [ht_n_spaces], borrowed until destroy. HT_FAILED when a space has no arena, or no room. */
enum ht_status ht_residents_create(const struct ht_schedule *s, struct ht_arena **arenas, struct ht_error *err,
                                   struct ht_residents **out);
/* The same over ranks; all of them call it, and all get the same status. */
enum ht_status ht_residents_create_ranks(struct ht_node *node, struct ht_error *err, struct ht_residents **out);
/* Accepts NULL. Frees what a run that failed or was interrupted has left there, too. */
void ht_residents_destroy(struct ht_residents *r);

/* Returns whether this process has the i-th resident of the schedule's list; *out is its memory then (flags HT_UPDATE;
   data NULL where it has no bytes). */
bool ht_residents_get(const struct ht_residents *r, int32_t i, struct ht_buffer *out);

/* Calls fn for each resident that this process has, in the order of the list, until one call fails; returns its status.
 */
typedef enum ht_status (*ht_resident_fn)(void *ctx, int32_t space, struct ht_buffer buffer, struct ht_error *err);
enum ht_status ht_residents_each(const struct ht_residents *r, ht_resident_fn fn, void *ctx, struct ht_error *err);

#endif
