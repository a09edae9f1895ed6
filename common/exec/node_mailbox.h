/*
 * Orders between the leader of a node and its other ranks, in memory that they share. Internal to common/exec; see
 * node.h.
 *
 * A box is for one lane, or for one rank's main thread. The leader puts an order in and waits for the answer; only the
 * one thread that has the box's lane does, so a box holds one order at a time:
 *
 *     order    NONE -> (ASLEEP) -> op, end                    by the leader; NONE again when the other has taken it
 *     answer   NONE -> (ASLEEP) -> DONE                       by the other; NONE again when the leader has
 */
#ifndef HT_EXEC_NODE_MAILBOX_H
#define HT_EXEC_NODE_MAILBOX_H

#include "common/comm/window.h"
#include "common/exec/node.h"

enum ht_request { HT_REQUEST_NONE, HT_REQUEST_ASLEEP, HT_REQUEST_OP, HT_REQUEST_END };
enum { HT_REPLY_NONE, HT_REPLY_ASLEEP, HT_REPLY_DONE };

struct ht_mailbox {
    _Alignas(64) atomic_uint order;
    _Alignas(64) atomic_uint answer;
    _Alignas(64) int32_t iteration, op; /* OP */
    bool ok;                            /* of a validate op */
    enum ht_status status;              /* of the answer, or of END */
    int64_t start_ns, end_ns;           /* of OP on CLOCK_MONOTONIC */
    char text[1024];
    int64_t offsets[]; /* of each effect's buffer in its space; -1: NULL */
};

struct ht_node {
    const struct ht_schedule *s;
    struct ht_comm *comm;
    int32_t rank, node, leader;
    int32_t *ranks; /* of the node, ascending */
    int32_t n_ranks, n_nodes;
    int32_t *leaders; /* [n_nodes] lowest rank of each; -1: a node without ranks */
    int32_t *pids;    /* [ranks of the schedule]; of those on the node */
    struct ht_window mailboxes;
    int64_t mailbox_bytes, mailboxes_bytes; /* of one, of all */
    int64_t *resident_offsets;              /* [n_residents] on the desk: in their spaces; -1: no bytes (residents.h) */
    atomic_bool *failed; /* on the desk: some rank's op has failed; all communication is to be given up */

    /* [n_spaces] each; zero for spaces of other nodes, or without anything in them */
    struct ht_arena **arenas;  /* of the leader */
    char **bases;              /* where the arena begins, in this process's addresses; NULL: no memory here */
    struct ht_window *windows; /* of host and disk */
    void **reserved;           /* mapped by this process: its device's memory; a leader's addresses for others' */
    int64_t *bytes;            /* capacity and slack */
};

struct ht_mailbox *ht_node_lane_mailbox(const struct ht_node *n, int32_t lane);
struct ht_mailbox *ht_node_rank_mailbox(const struct ht_node *n, int32_t rank);

/* Where an address of this process lies in its space; -1: NULL. */
int64_t ht_node_offset(const struct ht_node *n, int32_t space, const void *data);

/* The leader's side. HT_FAILED when the process of `rank` is gone. */
void ht_mailbox_request(struct ht_mailbox *box, enum ht_request what);
enum ht_status ht_mailbox_await(const struct ht_node *n, struct ht_mailbox *box, int32_t rank, struct ht_error *err);
/* The other side. HT_REQUEST_END with box->status HT_FAILED when the leader is gone. spin_ns: stays awake so long. */
enum ht_request ht_mailbox_take(const struct ht_node *n, struct ht_mailbox *box, int64_t spin_ns);
void ht_mailbox_reply(struct ht_mailbox *box);

/* Some op has failed: every rank of the node gives up what it waits for. */
void ht_node_fail(struct ht_node *n);

#endif
