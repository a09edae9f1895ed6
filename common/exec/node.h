/*
 * The ranks of a node: memory that they share, and requests from one of them to the others.
 *
 * Host memory belongs to a node, so the process that decides on it has to know what all ranks of the node do. One
 * process does: the node's first rank, its leader. It runs the executor (run.h) for all lanes of the node, with one
 * core, one set of grants and one arena for each space, as if it ran all the ops itself. For each lane of another rank
 * it has a thread that hands each op over and waits for its end:
 *
 *     leader    lane "gpu" of rank 0   run F3 .. end, decide, run F4 ..
 *               lane "gpu" of rank 1   mailbox: request F3 | sleep ........ | end F3, decide, request F4
 *     rank 1    lane "gpu"             sleep             '--> run F3 --> reply'
 *
 * So running ahead is as safe as in one process: it is the same state machine under the same lock. A hand-over costs
 * two wake-ups, 10 to 20 us on an idle machine.
 *
 * Addresses. Every rank maps its node's host memory and its own device's memory. The leader keeps the arenas of all of
 * them; for other ranks' devices it has an arena without memory. Requests carry offsets.
 *
 * Death. A process that waits for another one checks every 100 ms that it still exists.
 */
#ifndef HT_EXEC_NODE_H
#define HT_EXEC_NODE_H

#include "common/comm/comm.h"
#include "common/exec/run.h"

struct ht_node;
struct ht_arena;

/* Size of a space's arena. Capacity 0: the schedule keeps nothing there. */
struct ht_space_size {
    int64_t capacity_bytes, slack_bytes;
    bool of_files; /* a disk's: addresses that nobody can touch (common/mem/disk.h), in blocks of 4096 */
    void
        *memory; /* of this rank's own device: a GPU's, of capacity and slack, borrowed; NULL: ht_node_create maps it */
};

/* Creates the node's shared memory. All ranks of `comm`, which are those of the schedule, call it with the same
   schedule (the hashes are compared) and the same sizes [n_spaces]. All get the same status. */
enum ht_status ht_node_create(const struct ht_schedule *s, struct ht_comm *comm, const struct ht_space_size *sizes,
                              struct ht_error *err, struct ht_node **out);
/* Accepts NULL. */
void ht_node_destroy(struct ht_node *n);

/* Returns this process's first address of a space of its node; NULL for a space without contents. */
void *ht_node_base(const struct ht_node *n, int32_t space, int64_t *bytes);
bool ht_node_leads(const struct ht_node *n);
/* Returns the leader's arenas [n_spaces]: one for each space of its node, NULL for others. */
struct ht_arena **ht_node_arenas(const struct ht_node *n);

/* Agrees on a status; all ranks of the job call it. Returns HT_OK when all passed it, else the status and text of the
   first rank that did not, on all of them. */
enum ht_status ht_agree(struct ht_comm *comm, enum ht_status status, struct ht_error *err);

/*
 * Runs a schedule over all ranks, as ht_run does in one process. All ranks call it with the same schedule and
 * iterations. Ignores options->arenas. A rank's backend runs the rank's own ops; options->residents are those of
 * ht_residents_create_ranks, or NULL on all ranks; iteration_done is called on the leaders.
 *
 * All ranks return the same status and text. *out is the trace of all ranks on rank 0 and NULL on others. After
 * HT_FAILED the communicator is unusable: the job ends with ht_comm_abort.
 */
enum ht_status ht_run_ranks(const struct ht_schedule *s, const struct ht_run_options *options, struct ht_node *node,
                            struct ht_error *err, struct ht_trace **out);

#endif
