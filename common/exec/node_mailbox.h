/*
 * Requests from the leader of a node to its other ranks, in memory that they share. Internal to common/exec; see
 * node.h.
 *
 * A mailbox serves one lane, the issuer of one lane (run_ahead.h), or one rank's main thread. The leader writes a request
 * and waits for the reply. Only the thread of that lane, or its issuer, writes to a mailbox, so it holds one request at a
 * time:
 *
 *     request  NONE -> (ASLEEP) -> OP, WAIT, ENQUEUE, END by the leader; NONE again when the other rank has taken it
 *     reply    NONE -> (ASLEEP) -> DONE                   by the other rank; NONE again with the next request
 */
#ifndef HT_EXEC_NODE_MAILBOX_H
#define HT_EXEC_NODE_MAILBOX_H

#include "common/comm/window.h"
#include "common/exec/node.h"

/* OP: runs an op. ENQUEUE, to an issuer: enqueues it. WAIT: waits for the enqueued op's end. */
enum ht_request {
    HT_REQUEST_NONE,
    HT_REQUEST_ASLEEP,
    HT_REQUEST_OP,
    HT_REQUEST_WAIT,
    HT_REQUEST_ENQUEUE,
    HT_REQUEST_END
};
enum { HT_REPLY_NONE, HT_REPLY_ASLEEP, HT_REPLY_DONE };

struct ht_mailbox {
    _Alignas(64) atomic_uint request;
    _Alignas(64) atomic_uint reply;
    _Alignas(64) int32_t iteration, op; /* of OP, WAIT, ENQUEUE */
    int32_t n_after;                    /* of ENQUEUE: ops that the stream has to wait for */
    bool ok;                            /* outcome of a validate op */
    enum ht_status status;              /* of the reply, or of END */
    int64_t start_ns, end_ns;           /* of OP, and of the awaited op, on CLOCK_MONOTONIC */
    char text[1024];
    int64_t offsets[]; /* each effect's buffer in its space; -1: NULL. Behind them n_after times struct ht_inst */
};

struct ht_node {
    const struct ht_schedule *s;
    struct ht_comm *comm;
    int32_t rank, node, leader;
    int32_t *ranks; /* of the node, ascending */
    int32_t n_ranks, n_nodes;
    int32_t *leaders; /* [n_nodes] lowest rank of each; -1: a node without ranks */
    int32_t *pids;    /* [n_ranks of the schedule]; set for those on the node */
    struct ht_window mailboxes;
    int64_t mailbox_bytes, mailboxes_bytes; /* of one, of all */
    int64_t *resident_offsets;              /* [n_residents], shared: in their spaces; -1: no bytes (residents.h) */
    atomic_bool *failed;                    /* shared: an op of some rank has failed; all communication is given up */

    /* [n_spaces] each; zero for spaces of other nodes or without contents */
    struct ht_arena **arenas;  /* the leader's */
    char **bases;              /* the arena's first byte in this process; NULL: no memory here */
    struct ht_window *windows; /* of host memory, and of a disk that is not of files */
    bool *of_files;            /* a disk's space is only addresses */
    void **reserved;           /* mapped by this process: its device's memory, or a leader's addresses for other
                                  devices */
    int64_t *bytes;            /* capacity and slack */
};

struct ht_mailbox *ht_node_lane_mailbox(const struct ht_node *n, int32_t lane);
struct ht_mailbox *ht_node_issuer_mailbox(const struct ht_node *n, int32_t lane);
struct ht_mailbox *ht_node_rank_mailbox(const struct ht_node *n, int32_t rank);

/* Returns the offset of an address in its space; -1 for NULL. */
int64_t ht_node_offset(const struct ht_node *n, int32_t space, const void *data);

/* The leader's side. ht_mailbox_await returns HT_FAILED when the process of `rank` is gone. */
void ht_mailbox_request(struct ht_mailbox *mailbox, enum ht_request request);
enum ht_status ht_mailbox_await(const struct ht_node *n, struct ht_mailbox *mailbox, int32_t rank,
                                struct ht_error *err);
/* The other rank's side. ht_mailbox_take blocks until a request comes; it spins for spin_ns before it sleeps. Returns
   HT_REQUEST_END with mailbox->status HT_FAILED when the leader is gone. */
enum ht_request ht_mailbox_take(const struct ht_node *n, struct ht_mailbox *mailbox, int64_t spin_ns);
void ht_mailbox_reply(struct ht_mailbox *mailbox);

/* Reports that an op has failed: every rank of the node gives up its waits. */
void ht_node_fail(struct ht_node *n);

#endif
