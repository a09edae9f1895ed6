/*
 * Ranks and what they say to each other: messages between two of them, and collectives made of messages.
 *
 * A transport is a table of functions (struct ht_comm_ops): `self` has one rank and nobody to talk to, `mpi` is a job
 * that mpirun started. A transport only moves messages; the collectives stand above it, once, so that every transport
 * gives the same bits. `nccl` (common/comm/nccl.h) stands on one of them and carries buffers on GPUs.
 *
 *     lane threads   ht_comm_send, ht_comm_receive .. ht_comm_wait     post, then sleep on the message's own futex word
 *                          |                             ^
 *                          v queue                       | word = DONE
 *     progress thread     MPI_Isend, MPI_Irecv, MPI_Testsome           the only thread that calls MPI, never blocking
 *
 * Order of additions. Every sum is x(0) + x(1) + x(2) + ..., from the left, ranks of the team ascending, in FP32; for
 * 16-bit types it is rounded once, at the end. So it depends neither on timing nor on the transport. (MPI_Reduce
 * promises no order, which is why it is not used.)
 *
 * Pieces. all_gather and reduce_scatter work on an array that is cut into one piece a rank of the team, counts[i]
 * elements, any of them 0, one after the other in the team's order.
 *
 * Waits do not end by themselves: a peer may compute for minutes. They end with HT_FAILED when the transport has failed
 * or when somebody calls ht_comm_cancel, which is how a run that failed elsewhere gets its lanes back.
 */
#ifndef HT_COMM_COMM_H
#define HT_COMM_COMM_H

#include "common/base/status.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct ht_comm;

/* One nonblocking message. The caller's; its fields are the transport's until ht_comm_wait has returned. */
struct ht_message {
    atomic_uint word; /* futex: 0 under way, 1 done, 2 failed, 3 under way and somebody sleeps */
    bool receive;
    int32_t peer, tag;
    void *data;
    int64_t bytes;
    int32_t parts; /* of a long message: still under way */
    struct ht_message *next;
};

/* What comes unasked: called on the progress thread, must be short and post nothing that it waits for. */
typedef void (*ht_comm_listener)(void *ctx, int32_t from, const void *data, int64_t bytes);

struct ht_comm_ops {
    const char *name;
    /* Takes the message over; its word is set to 1 or 2 and woken when it has ended. */
    void (*post)(struct ht_comm *c, struct ht_message *m);
    void (*listen)(struct ht_comm *c, ht_comm_listener fn, void *ctx);
    /* clean false: a rank's failure ends the job; does not return. */
    void (*close)(struct ht_comm *c, bool clean, int code);
    /* Both or neither, of a transport for buffers on GPUs: memory that the host cannot touch; and a copy between any
       two memories, done when it returns, false if it failed. */
    bool (*on_gpu)(const struct ht_comm *c, const void *p);
    bool (*copy)(struct ht_comm *c, void *to, const void *from, int64_t bytes);
};

struct ht_comm {
    const struct ht_comm_ops *ops;
    int32_t rank, size;
    atomic_bool cancelled;
    void *impl;
};

/* A job of one. Never fails. */
struct ht_comm *ht_comm_self(void);
/* The job that mpirun started this process in; starts the progress thread. HT_INFEASIBLE in a build without MPI. */
enum ht_status ht_comm_mpi(struct ht_error *err, struct ht_comm **out);
bool ht_comm_has_mpi(void);

/* Ends the transport: every rank calls it, nothing may be under way. Accepts NULL. */
void ht_comm_close(struct ht_comm *c);
/* Ends the whole job, at once and without asking; `code` is the exit code. Does not return. */
_Noreturn void ht_comm_abort(struct ht_comm *c, int code);
/* Every wait, now or later, ends with HT_FAILED. The transport is of no more use but for ht_comm_abort. Any thread. */
void ht_comm_cancel(struct ht_comm *c);

/* ---- messages: any thread; to another rank; bytes >= 0, alike on both sides ------------------------------------- */

/* Messages between two ranks with the same tag arrive in the order in which they were sent. 0 <= tag < HT_COMM_TAGS;
   tags.h says whose they are. */
enum { HT_COMM_TAGS = 1 << 28 };
void ht_comm_send(struct ht_comm *c, int32_t to, int32_t tag, const void *data, int64_t bytes, struct ht_message *m);
void ht_comm_receive(struct ht_comm *c, int32_t from, int32_t tag, void *data, int64_t bytes, struct ht_message *m);
bool ht_comm_done(const struct ht_message *m);
enum ht_status ht_comm_wait(struct ht_comm *c, struct ht_message *m, struct ht_error *err);

/* Unasked messages of at most HT_COMM_NOTE_BYTES, with a tag of their own. One listener, or NULL; set it before anybody
   sends. Those of one sender are heard in their order. ht_comm_listen, which a listener must not call, returns when
   whoever listened before is not being called any more. */
enum { HT_COMM_NOTE_BYTES = 1152 };
void ht_comm_listen(struct ht_comm *c, ht_comm_listener fn, void *ctx);
void ht_comm_note(struct ht_comm *c, int32_t to, const void *data, int64_t bytes, struct ht_message *m);

/* ---- collectives: the calling thread waits for the end ---------------------------------------------------------- */

enum ht_comm_type { HT_COMM_BYTE, HT_COMM_F32, HT_COMM_F16, HT_COMM_BF16, HT_COMM_F64 };
int64_t ht_comm_type_bytes(enum ht_comm_type t);

/* Who takes part: n ranks, ascending, this one among them at index `me`. Teams that talk at the same time use
   different tags. */
struct ht_team {
    const int32_t *ranks;
    int32_t n, me;
    const bool *without; /* [n] or NULL: has no whole array, of all_gather and reduce_scatter; it has its piece alone */
};

/* all: counts[0] + counts[1] + .. elements, of which this rank's piece is copied from `mine` (which may be its place in
   `all`); of a rank without it NULL: it only sends its piece. Any type. */
enum ht_status ht_comm_all_gather(struct ht_comm *c, struct ht_team team, int32_t tag, const void *mine, void *all,
                                  const int64_t *counts, enum ht_comm_type type, struct ht_error *err);
/* mine: this rank's piece of the sum of all ranks' `all`; may be its place in `all`, which is NULL for a rank without
   it, that adds nothing; zeros if all are without. Not of HT_COMM_BYTE. Beside
   the buffers it uses 256 KiB for each other rank. Sums are made on the host: HT_INFEASIBLE for buffers on GPUs, unless
   the team has one rank. */
enum ht_status ht_comm_reduce_scatter(struct ht_comm *c, struct ht_team team, int32_t tag, const void *all, void *mine,
                                      const int64_t *counts, enum ht_comm_type type, struct ht_error *err);
/* In place. */
enum ht_status ht_comm_all_reduce(struct ht_comm *c, struct ht_team team, int32_t tag, void *data, int64_t count,
                                  enum ht_comm_type type, struct ht_error *err);
/* From the rank at index `root` to all others. */
enum ht_status ht_comm_broadcast(struct ht_comm *c, struct ht_team team, int32_t tag, int32_t root, void *data,
                                 int64_t bytes, struct ht_error *err);
enum ht_status ht_comm_barrier(struct ht_comm *c, struct ht_team team, int32_t tag, struct ht_error *err);

/* For transports: the message has ended. */
void ht_message_end(struct ht_message *m, bool ok);

#endif
