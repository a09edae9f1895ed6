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
#ifndef HT_EXEC_PEERS_H
#define HT_EXEC_PEERS_H

#include "common/exec/core.h"
#include "common/exec/node.h"

#include <pthread.h>

struct ht_peers;

enum ht_note_kind { HT_NOTE_END, HT_NOTE_ENDED, HT_NOTE_CUT, HT_NOTE_FAILED };

struct ht_note {
    int32_t kind, from; /* node */
    int32_t iteration;  /* END; ENDED, CUT: how many */
    int32_t op;
    int32_t ok;      /* END of a validate op */
    char text[1024]; /* FAILED; the others are sent without it */
};

/* Of a leader. Hears from now on; what it hears is kept until somebody takes it. When it hears that somebody failed,
   all ranks of the node give up what they wait for. */
struct ht_peers *ht_peers_create(struct ht_node *node);
/* What it has sent has arrived, if it can. Accepts NULL. */
void ht_peers_destroy(struct ht_peers *p);

int32_t ht_peers_node(const struct ht_peers *p);
/* Called, from the progress thread, when there is something to take; NULL: nobody is. Returns when whoever was called
   before is not being called any more. */
void ht_peers_on_news(struct ht_peers *p, void (*news)(void *ctx), void *ctx);
bool ht_peers_take(struct ht_peers *p, struct ht_note *note);
/* Iterations that have ended on all other nodes, by the ENDED notes among those given here. */
int32_t ht_peers_ended(struct ht_peers *p, const struct ht_note *note);

/* From one thread at a time: */
/* What the core has to tell. */
void ht_peers_look(struct ht_peers *p, struct ht_core *core);
void ht_peers_cut(struct ht_peers *p, int32_t iterations);
/* Nothing, when the reason is that another node has failed. */
void ht_peers_fail(struct ht_peers *p, const char *text);

#endif
