/*
 * Communication between ranks: messages between two of them, and collectives made of messages.
 *
 * A transport is a table of functions (struct ht_comm_ops): `self` is a job of one rank, `mpi` is a job that mpirun
 * started, `local` is one of a host's processes without MPI. A transport only moves messages. The collectives are written once above it, so every transport gives the
 * same bits. `nccl` (common/comm/nccl.h) is built on one of them and carries buffers on GPUs.
 *
 *     lane threads   ht_comm_send, ht_comm_receive .. ht_comm_wait     post, then sleep on the message's own futex word
 *                          |                             ^
 *                          v queue                       | word = DONE
 *     progress thread     MPI_Isend, MPI_Irecv, MPI_Testsome           the only thread that calls MPI, never blocking
 *
 * Order of additions. Every sum is x(0) + x(1) + x(2) + ..., from the left, in the team's order, in FP32; for 16-bit
 * types it is rounded once, at the end. So it depends neither on timing nor on the transport. (MPI_Reduce
 * promises no order, so it is not used.) Only sums of buffers on GPUs are a transport's own (nccl.h).
 *
 * Pieces. all_gather and reduce_scatter work on an array that is cut into one piece for each rank of the team, one
 * after the other in the team's order. Piece i has counts[i] elements; any of them may be 0.
 *
 * A wait has no time limit: a peer may compute for minutes. It ends with HT_FAILED when the transport has failed or
 * when a thread calls ht_comm_cancel, which frees the lanes of a run that failed elsewhere.
 */
#ifndef HT_COMM_COMM_H
#define HT_COMM_COMM_H

#include "common/base/status.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct ht_comm;

/* One nonblocking message. The caller owns the memory; the transport owns the fields until ht_comm_wait returns. */
struct ht_message {
    atomic_uint word; /* futex: 0 in flight, 1 done, 2 failed, 3 in flight with a sleeping waiter */
    bool receive;
    int32_t peer, tag;
    void *data;
    int64_t bytes;
    int32_t parts; /* parts of a long message that are still in flight */
    void *stream;  /* of the view that posted it (ht_comm_on_stream); or NULL */
    struct ht_message *next;
};

/* Handles a notification. Called on the progress thread; must be short and must not wait for a message. */
typedef void (*ht_comm_listener)(void *ctx, int32_t from, const void *data, int64_t bytes);

enum ht_comm_type { HT_COMM_BYTE, HT_COMM_F32, HT_COMM_F16, HT_COMM_BF16, HT_COMM_F64 };
int64_t ht_comm_type_bytes(enum ht_comm_type t);

/* Ranks that take part in a collective: n of them, this one at index `me`; all give them in one order. Teams that
   communicate at the same time use different tags. */
struct ht_team {
    const int32_t *ranks;
    int32_t n, me;
    const bool *without; /* [n] or NULL: the rank has only its piece in all_gather and reduce_scatter */
};

/* A collective of buffers on GPUs, as the functions below have it; nobody is `without`. */
enum ht_comm_kind { HT_COMM_GATHER, HT_COMM_SCATTER, HT_COMM_REDUCE };
struct ht_comm_collective {
    enum ht_comm_kind kind;
    struct ht_team team;
    int32_t tag;
    const void *from; /* this rank's piece, or all pieces; for a reduction `to` */
    void *to;
    const int64_t *counts; /* [team.n]; for a reduction one */
    enum ht_comm_type type;
};

struct ht_comm_ops {
    const char *name;
    /* Starts the message. Sets its word to 1 or 2 and wakes the waiter when it has ended. */
    void (*post)(struct ht_comm *c, struct ht_message *m);
    void (*listen)(struct ht_comm *c, ht_comm_listener fn, void *ctx);
    /* Ends the transport. clean false: ends the whole job with exit code `code`; does not return. */
    void (*close)(struct ht_comm *c, bool clean, int code);
    /* Only for a transport with buffers on GPUs, both or neither. on_gpu: memory that the host cannot touch. copy:
       copies between any two memories before it returns; false if it failed. */
    bool (*on_gpu)(const struct ht_comm *c, const void *p);
    bool (*copy)(struct ht_comm *c, void *to, const void *from, int64_t bytes);
    /* (optional) Carries a collective out before it returns. Sums may be in any order, and rounded in between. */
    enum ht_status (*collective)(struct ht_comm *c, const struct ht_comm_collective *what, struct ht_error *err);
    /* (optional) Returns why messages fail, once one has failed; NULL: the transport has no reason to give. */
    const char *(*reason)(const struct ht_comm *c);
    bool has_streams; /* ht_comm_on_stream */
};

struct ht_comm {
    const struct ht_comm_ops *ops;
    int32_t rank, size;
    atomic_bool cancelled;
    void *impl;
    struct ht_comm *base; /* of a view: whose it is, */
    void *stream;         /* and its stream; else NULL */
};

/* Returns a job of one rank. Never fails. */
struct ht_comm *ht_comm_self(void);
/* Joins the job that mpirun started this process in, and starts the progress thread. Returns HT_INFEASIBLE in a build
   without MPI. */
enum ht_status ht_comm_mpi(struct ht_error *err, struct ht_comm **out);
bool ht_comm_has_mpi(void);
/* Connects the ranks that ht_launch started without mpirun, over sockets, and starts the progress thread. */
enum ht_status ht_comm_local(int32_t rank, int32_t size, struct ht_error *err, struct ht_comm **out);

/* Returns a view of c for a stream of its GPU; NULL: the transport has no such views. Messages and collectives of buffers
   on GPUs that are posted through the view are part of the stream: they begin when the work that was enqueued before
   has ended, and waiting for one blocks only until it has been enqueued, which all its ranks must have posted. Every
   rank posts through views or none. The view is closed before c, by ht_comm_close. */
struct ht_comm *ht_comm_on_stream(struct ht_comm *c, void *stream);
/* Returns true after ht_comm_cancel of c, or of what it is a view of. */
bool ht_comm_is_cancelled(const struct ht_comm *c);
/* Ends the transport. Every rank calls it, with no message in flight. Accepts NULL. */
void ht_comm_close(struct ht_comm *c);
/* Ends the whole job at once. `code` is the exit code. Does not return. */
_Noreturn void ht_comm_abort(struct ht_comm *c, int code);
/* Makes every wait, now or later, return HT_FAILED. Then only ht_comm_abort may be called. Callable on any thread. */
void ht_comm_cancel(struct ht_comm *c);

/* ---- messages: any thread; between two ranks; bytes >= 0, equal on both sides ------------------------------------ */

/* Messages between two ranks with the same tag arrive in the order in which they were sent. 0 <= tag < HT_COMM_TAGS;
   tags.h assigns them. */
enum { HT_COMM_TAGS = 1 << 28 };
void ht_comm_send(struct ht_comm *c, int32_t to, int32_t tag, const void *data, int64_t bytes, struct ht_message *m);
void ht_comm_receive(struct ht_comm *c, int32_t from, int32_t tag, void *data, int64_t bytes, struct ht_message *m);
bool ht_comm_done(const struct ht_message *m);
enum ht_status ht_comm_wait(struct ht_comm *c, struct ht_message *m, struct ht_error *err);

/* Notifications: messages of at most HT_COMM_NOTIFY_BYTES that the receiver does not post a receive for. ht_comm_listen
   sets the one listener (NULL: none), before any rank sends. A sender's notifications arrive in order. ht_comm_listen
   blocks until a running call of the previous listener has returned; a listener must not call it. */
enum { HT_COMM_NOTIFY_BYTES = 1152 };
void ht_comm_listen(struct ht_comm *c, ht_comm_listener fn, void *ctx);
void ht_comm_notify(struct ht_comm *c, int32_t to, const void *data, int64_t bytes, struct ht_message *m);

/* ---- collectives: the calling thread blocks until the end -------------------------------------------------------- */

/* Gathers all ranks' pieces in `all`: counts[0] + counts[1] + .. elements of any type. Copies this rank's piece from
   `mine`, which may be its position in `all`. `all` is NULL for a rank without it, which only sends its piece. */
enum ht_status ht_comm_all_gather(struct ht_comm *c, struct ht_team team, int32_t tag, const void *mine, void *all,
                                  const int64_t *counts, enum ht_comm_type type, struct ht_error *err);
/* Sums all ranks' `all` and writes this rank's piece of the sum to `mine`, which may be its position in `all`. `all` is
   NULL for a rank without it, which adds nothing; zeros if all are without. Not for HT_COMM_BYTE. Uses 256 KiB for each
   other rank beside the buffers. Buffers on GPUs are for a transport with collectives of its own, and for teams in which
   nobody is `without`; else HT_INFEASIBLE, unless the team has one rank. */
enum ht_status ht_comm_reduce_scatter(struct ht_comm *c, struct ht_team team, int32_t tag, const void *all, void *mine,
                                      const int64_t *counts, enum ht_comm_type type, struct ht_error *err);
/* Sums all ranks' `data` in place. */
enum ht_status ht_comm_all_reduce(struct ht_comm *c, struct ht_team team, int32_t tag, void *data, int64_t count,
                                  enum ht_comm_type type, struct ht_error *err);
/* Sends `data` from the rank at index `root` to all others. */
enum ht_status ht_comm_broadcast(struct ht_comm *c, struct ht_team team, int32_t tag, int32_t root, void *data,
                                 int64_t bytes, struct ht_error *err);
enum ht_status ht_comm_barrier(struct ht_comm *c, struct ht_team team, int32_t tag, struct ht_error *err);

/* Marks the message as ended; for transports. */
void ht_message_end(struct ht_message *m, bool ok);

#endif
