/*
 * Several nodes: what their leaders tell each other while they run. Internal to common/exec; see node.h.
 *
 * Each leader has a core of its own, for its node's ops (core.h, "One node of several"). A note goes from each leader
 * to all others, in order, when
 *
 *     END      an op has ended, or was passed over, that another node's op depends on;
 *              or a validate op has, with its verdict
 *     ENDED    the node is through with one iteration more
 *     CUT      rank 0 was interrupted: iterations from here on are not run. None of them has begun
 *              anywhere, since the iteration two before it has not ended on rank 0's node
 *     FAILED   an op has failed: everybody stops
 */
#ifndef HT_EXEC_NODE_LINK_H
#define HT_EXEC_NODE_LINK_H

#include "common/exec/core.h"
#include "common/exec/node.h"

#include <pthread.h>

struct ht_node_link;

enum ht_node_message_kind { HT_MESSAGE_END, HT_MESSAGE_ENDED, HT_MESSAGE_CUT, HT_MESSAGE_FAILED };

struct ht_node_message {
    int32_t kind, from; /* node */
    int32_t iteration;  /* END; ENDED, CUT: how many */
    int32_t op;
    int32_t ok;      /* END of a validate op */
    char text[1024]; /* FAILED; the others are sent without it */
};

/* Of a leader. Hears from now on; what it hears is kept until somebody takes it. When it hears that somebody failed,
   all ranks of the node give up what they wait for. */
struct ht_node_link *ht_node_link_create(struct ht_node *node);
/* What it has sent has arrived, if it can. Accepts NULL. */
void ht_node_link_destroy(struct ht_node_link *p);

int32_t ht_node_link_node(const struct ht_node_link *p);
/* Called, from the progress thread, when there is something to take; NULL: nobody is. Returns when whoever was called
   before is not being called any more. */
void ht_node_link_on_message(struct ht_node_link *p, void (*news)(void *ctx), void *ctx);
bool ht_node_link_take(struct ht_node_link *p, struct ht_node_message *note);
/* Iterations that have ended on all other nodes, by the ENDED notes among those given here. */
int32_t ht_node_link_ended(struct ht_node_link *p, const struct ht_node_message *note);

/* From one thread at a time: */
/* What the core has to tell. */
void ht_node_link_send_ends(struct ht_node_link *p, struct ht_core *core);
void ht_node_link_cut(struct ht_node_link *p, int32_t iterations);
/* Nothing, when the reason is that another node has failed. */
void ht_node_link_fail(struct ht_node_link *p, const char *text);

#endif
