/*
 * The edges of programs whose one host thread waits for what it has enqueued (enum ht_blocking in control.h). Whoever writes
 * such a graph, a draft or one that is rebuilt under control, adds them op by op. Internal to common/draft.
 */
#ifndef HT_DRAFT_BLOCKING_H
#define HT_DRAFT_BLOCKING_H

#include "common/draft/control.h"

struct ht_blocking_edges {
    enum ht_blocking blocking;
    int32_t prev;   /* mark of the op that the next iteration's first ops wait for; -1: no op */
    int32_t waited; /* HT_BLOCKS_HOST: the last op for which the host has waited; -1 before the first */
};

/* Makes the last op wait, and the host for it if that is a copy or a work on the host. */
void ht_blocking_follow(struct ht_schedule *s, struct ht_blocking_edges *b);
/* Makes the host wait for the last op. */
void ht_blocking_wait(struct ht_schedule *s, struct ht_blocking_edges *b);

#endif
