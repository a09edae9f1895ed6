/*
 * Addresses of all live instances of tensors: the real executor's memory beside the core. Internal to common/exec.
 *
 * Not thread-safe as a whole. Instances are added and removed under the executor's lock; the order of ops (a reader
 * after its producer, a release after the readers) keeps all other accesses apart.
 */
#ifndef HT_EXEC_RUN_SLOTS_H
#define HT_EXEC_RUN_SLOTS_H

#include "common/exec/core.h"
#include "common/exec/residents.h"

struct ht_slots;

/* See residents.h. */
struct ht_residents {
    const struct ht_schedule *s;
    struct ht_slots *slots; /* NULL: the node's leader has them */
    struct ht_node *node;   /* NULL: there is one process */
};
/* Makes what a run has left the residents of the next run. Only in a process that has the slots. */
void ht_residents_settle(struct ht_residents *r);

/* Creates slots for the residencies of a node (-1: of all nodes). arenas: [n_spaces], borrowed. Returns HT_FAILED when
   an effect or resident lies in a space without an arena. */
enum ht_status ht_slots_create(const struct ht_schedule *s, int32_t node, struct ht_arena **arenas,
                               struct ht_error *err, struct ht_slots **out);
/* Returns true when the i-th resident is on this node. */
bool ht_slots_has_resident(const struct ht_slots *x, int32_t i);
/* Frees everything that is still live. Accepts NULL. */
void ht_slots_destroy(struct ht_slots *x);

/* Allocates the residents, in the order of the schedule's list. */
enum ht_status ht_slots_allocate_residents(struct ht_slots *x, struct ht_error *err);
/* Returns the i-th resident as a buffer (flags HT_UPDATE), and its space. */
struct ht_buffer ht_slots_resident(const struct ht_slots *x, int32_t i, int32_t *space);

/* Marks all live instances, after a run, as residents that the next run begins with. */
void ht_slots_settle(struct ht_slots *x);

/* Allocates what the op produces. On an error, what it got stays live until ht_slots_destroy. */
enum ht_status ht_slots_allocate(struct ht_slots *x, struct ht_inst inst, struct ht_error *err);
/* Fills in one buffer for each effect, and their number. Returns HT_FAILED when one is not live, which happens with an
   unverified schedule. */
enum ht_status ht_slots_resolve(const struct ht_slots *x, struct ht_inst inst, struct ht_buffer *buffers, int32_t *n,
                                struct ht_error *err);
/* Frees what the op releases. */
void ht_slots_release(struct ht_slots *x, struct ht_inst inst);

/* Returns the largest number of effects that an op has. */
int32_t ht_slots_max_effects(const struct ht_slots *x);

#endif
