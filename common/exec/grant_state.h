/* Fields of grants. grant.c decides with them, grant_build.c fills them in. Internal to common/exec. */
#ifndef HT_EXEC_GRANT_STATE_H
#define HT_EXEC_GRANT_STATE_H

#include "common/exec/grant.h"

struct node {
    int64_t sum, best;
};

#define HT_NOT_GRANTED INT64_MIN /* in the place of a group's net */

/* Bytes in a space. Few differ, so amounts name them by number. */
struct parcel {
    int64_t bytes;
    int32_t space;
};

/* Says what one issue group asks for, or one op releases, in one space; position: the group's in the space. */
struct amount {
    uint32_t parcel;
    uint32_t position : 31, release : 1;
};

/* One who was denied memory in a space, and what may change the answer. */
struct waiter {
    int32_t who;
    bool several; /* was denied several times: a grant from place `blocked` on may help */
    int64_t live; /* live bytes fall to this; INT64_MIN: they were few enough */
    /* This place's group is granted, or one behind it releases something; INT64_MAX: it did not come to that. */
    int64_t blocked;
};

/* A place counts groups over all iterations: iteration * n + position. The window has the places from the frontier on,
   as far as groups have asked for one: place p in slot p & (window - 1). */
struct space {
    int64_t capacity, order, live, peak; /* order: the most that the safe sequence needs */
    int64_t resident;                    /* live before the first op */
    int64_t frontier;                    /* place of the oldest ungranted group */
    int64_t ahead; /* sum of net over groups granted beyond the frontier, as far as it is positive */
    struct waiter *waiters;
    size_t waiters_cap;
    int32_t n_waiters;
    int64_t wake_live, wake_blocked; /* the largest `live` and the smallest `blocked` of the waiters */
    /* Since they were looked at: the largest place from wake_blocked on that was granted, or released something; -1: none. */
    int64_t last_granted, last_released;
    int32_t n;           /* issue groups that touch the space */
    int32_t window;      /* a power of two */
    const int64_t *need; /* [n], in the grants' needs; NULL: not needed yet */
    int64_t *net;        /* [window] of groups granted beyond the frontier, or HT_NOT_GRANTED */
    struct node *tree;   /* [2 * window]; node 1 is the root, slot i is node window + i; NULL: not needed yet */
    bool changed;        /* a waiter may be granted what it was denied */
};

struct ht_grants {
    const struct ht_schedule *s;
    int32_t n_spaces;
    struct space *spaces;
    /* Op after op: what its issue group asks for, listed under its first op, then what the op releases. */
    struct amount *amounts;
    uint32_t *begin; /* [n_ops + 1] of each op's amounts */
    struct parcel *parcels;
    int64_t *
        asked; /* [n_lanes * HT_N_TIERS] the most that one of the lane's ops asks for in its rank's space of the tier */
    int64_t *needs;   /* space after space; NULL: no tree has been planted */
    int32_t *changed; /* stack of changed spaces */
    int32_t n_changed;
    int32_t *woken; /* stack of who may ask again */
    int32_t n_woken;
    size_t woken_cap;
};

/* Gives the space an empty window. */
void ht_grants_open_window(struct space *sp, int32_t window);

/* Moves the frontier past its place, which is granted now, and all granted places behind. */
void ht_grants_advance(struct space *sp);
/* Puts a group that is granted `bytes` beyond the frontier into the window. */
void ht_grants_put(struct space *sp, int64_t place, int64_t bytes);
/* Notes that a group beyond the frontier has released `bytes`. */
void ht_grants_less(struct space *sp, int64_t place, int64_t bytes);
/* Notes who was denied. again: it asks for one thing at a time, so an earlier note about it no longer counts. */
void ht_grants_wait(struct space *sp, struct waiter waiter, bool again);
/* Takes the next one from the waiters of changed spaces; -1: none. */
int32_t ht_grants_wake(struct ht_grants *g);
/* Returns the last ungranted place before `place` whose group could not run beside `bytes` more; -1: none. */
int64_t ht_grants_last_blocked(struct ht_grants *g, struct space *sp, int64_t place, int64_t bytes, int64_t most);

/* Computes what each issue group needs in each space that it touches: equation (*) of grant.h. Only trees read it, and
   most runs plant none. */
void ht_grants_list_needs(struct ht_grants *g);

#endif
