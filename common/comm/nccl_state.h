/* State of the NCCL transport, and how its rounds are issued. Internal to common/comm (nccl.c, nccl_groups.c). */
#ifndef HT_COMM_NCCL_STATE_H
#define HT_COMM_NCCL_STATE_H

#include "common/comm/nccl.h"
#include "common/comm/nccl_order.h"

#include <pthread.h>

enum {
    HT_NCCL_MOST = 32,     /* wants in a letter, messages in a round */
    HT_NCCL_POLL_US = 100, /* between questions whether NCCL is still busy */
    HT_NCCL_WHY_BYTES = 512,
};

/* A part of a round: one of the rank's messages or its collective, and whether its ends agree. */
struct ht_nccl_part {
    int64_t id;
    bool alike;
};

struct ht_nccl_letter {
    int32_t n;
    bool bye;
    bool has_unique; /* the round's team gets a communicator, of this id: */
    char unique[HT_NCCL_ID_BYTES];
    union {
        struct ht_nccl_want wants[HT_NCCL_MOST]; /* to rank 0 */
        struct ht_nccl_part parts[HT_NCCL_MOST]; /* from rank 0: one round */
    };
};

/* A collective as it is posted: a message with the peer -1. Each rank's ranks and counts are copies. */
struct ht_nccl_call {
    struct ht_message m;
    struct ht_comm_collective what;
    int32_t *ranks;
    int64_t *counts;
};

/* A posted message that is in no round yet. */
struct ht_nccl_pending {
    int64_t id;
    struct ht_message *m;
};

/* An issued group. `messages` are those that end with it; those of views end when it has been issued. */
struct ht_nccl_group {
    void *event, *nccl, *stream;
    struct ht_message *messages[HT_NCCL_MOST];
    int32_t n;
    void *before[HT_NCCL_MOST]; /* events of the other streams */
    int32_t n_before;
    struct ht_nccl_group *next;
};

/* A communicator of some ranks, in this order. */
struct ht_nccl_team {
    int32_t *ranks, n;
    void *nccl;
};

struct ht_nccl {
    struct ht_comm *comm, *over;
    const struct ht_nccl_api *api;
    int device;
    void *nccl, *stream, *copies;
    pthread_t thread;
    pthread_mutex_t copy_lock;
    pthread_mutex_t lock; /* guards all down to `closing` */
    pthread_cond_t changed;
    struct ht_message *first, *last; /* posted, not begun */
    bool closing;
    char why[HT_NCCL_WHY_BYTES]; /* why messages fail; written once, before has_why */
    atomic_bool has_why;

    /* Only for the progress thread. */
    double deadline_s;
    bool failed, sent_bye, all_left;
    atomic_bool aborted; /* behind a failure all communicators are */
    int32_t left;        /* on rank 0: how many ranks have sent bye */
    int64_t next_id;
    struct ht_nccl_pending *pending;
    size_t n_pending, cap_pending;
    struct ht_nccl_group *oldest, *newest;
    void **events; /* unused ones. They are kept until the end: a stream may still wait for one that was reached */
    size_t n_events, cap_events;
    struct ht_nccl_team *teams;
    size_t n_teams, cap_teams;
    struct sent *sent;
    struct inbox *inboxes; /* on rank 0 one for each rank, elsewhere one for rank 0 */
    struct ht_nccl_order order;
    uint64_t *known; /* on rank 0: teams that have a communicator */
    size_t n_known, cap_known;
};

bool ht_nccl_is_cancelled(const struct ht_nccl *x);
/* Aborts the communicators, and notes that the transport has failed. Returns false when that has not ended in
   HT_NCCL_ABORT_S, as ncclCommAbort may wait for a peer, or for NCCL's thread that creates a communicator: it goes on in a
   thread of its own, until the process ends. */
enum { HT_NCCL_ABORT_S = 5 };
bool ht_nccl_abort(struct ht_nccl *x);
/* Waits until a communicator is no longer busy. Returns its error, that the deadline has passed, or that the job was
   cancelled. */
const char *ht_nccl_settle(struct ht_nccl *x, void *nccl);
/* Ends a communicator, cleanly if possible; NULL: none. */
void ht_nccl_finish(struct ht_nccl *x, void *nccl);

/* Fails all messages, now and later, because the transport is broken or cancelled. Aborts the communicators first and
   waits for the stream: NCCL's kernels use the messages' buffers until then. After a cancel nobody waits for a message,
   and none is touched. */
void ht_nccl_fail_all(struct ht_nccl *x, const char *what, const char *why);
/* Issues this rank's parts of a round. */
void ht_nccl_begin_round(struct ht_nccl *x, const struct ht_nccl_letter *round);
/* Ends the transport's events. */
void ht_nccl_free_events(struct ht_nccl *x);
/* Ends the groups that are done, in the order of their issue. Returns true if there are any. */
bool ht_nccl_poll_groups(struct ht_nccl *x);

/* Returns rank 0's question about a posted message or collective. */
struct ht_nccl_want ht_nccl_want_of(struct ht_nccl *x, struct ht_message *m);
/* Returns a hash of a team's ranks. */
uint64_t ht_nccl_team_hash(const int32_t *ranks, int32_t n);
/* Function of struct ht_comm_ops. */
enum ht_status ht_nccl_collective(struct ht_comm *c, const struct ht_comm_collective *what, struct ht_error *err);
/* Posts to the progress thread. */
void ht_nccl_post(struct ht_nccl *x, struct ht_message *m);

#endif
