/*
 * Messages between the leaders of several nodes during a run. Internal to common/exec; see node.h.
 *
 * Each leader has a core of its own for its node's ops (core.h, "One node of several"). It sends a message to all other
 * leaders, in order, when
 *
 *     END      an op has ended or was skipped that another node's op depends on;
 *              or a validate op has ended, with its outcome
 *     ENDED    the node has ended one more iteration
 *     CUT      rank 0 was interrupted: iterations from here on are not run. None of them has begun
 *              anywhere, since the iteration two before it has not ended on rank 0's node
 *     FAILED   an op has failed: every node stops
 */
#ifndef HT_EXEC_NODE_LINK_H
#define HT_EXEC_NODE_LINK_H

#include "common/exec/core.h"
#include "common/exec/node.h"

#include <pthread.h>

struct ht_node_link;

enum ht_node_message_kind { HT_MESSAGE_END, HT_MESSAGE_ENDED, HT_MESSAGE_CUT, HT_MESSAGE_FAILED };

struct ht_node_message {
    int32_t kind, from; /* from: node */
    int32_t iteration;  /* of an END; a count in ENDED and CUT */
    int32_t op;
    int32_t ok;      /* outcome, in an END of a validate op */
    char text[1024]; /* of a FAILED; other kinds are sent without it */
};

/* Starts receiving, on a leader. Messages queue until ht_node_link_take. A FAILED message makes all ranks of the node
   give up their waits. */
struct ht_node_link *ht_node_link_create(struct ht_node *node);
/* Waits up to 2 s until all sent messages have arrived, and stops receiving. Accepts NULL. */
void ht_node_link_destroy(struct ht_node_link *p);

int32_t ht_node_link_node(const struct ht_node_link *p);
/* Sets the callback for new messages, which the progress thread calls; NULL clears it. Blocks until a running callback
   has returned. */
void ht_node_link_on_message(struct ht_node_link *p, void (*on_message)(void *ctx), void *ctx);
bool ht_node_link_take(struct ht_node_link *p, struct ht_node_message *message);
/* Returns how many iterations have ended on all other nodes, by the ENDED messages passed here. */
int32_t ht_node_link_ended(struct ht_node_link *p, const struct ht_node_message *message);

/* The functions below are called by one thread at a time. */
/* Sends the completions that the core has for other nodes. */
void ht_node_link_send_ends(struct ht_node_link *p, struct ht_core *core);
void ht_node_link_cut(struct ht_node_link *p, int32_t iterations);
/* Sends FAILED, unless another node failed first. */
void ht_node_link_fail(struct ht_node_link *p, const char *text);

#endif
