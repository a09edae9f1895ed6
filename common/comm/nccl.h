/*
 * The NCCL transport, for buffers on GPUs, one GPU per rank. It is built on another transport (MPI, or self) that
 * carries all else: buffers in host memory, messages of no bytes, notifications, and the ranks' letters about NCCL.
 *
 *     posted message -- on a GPU? -- no --> the transport beneath, unchanged
 *                          | yes
 *                          v
 *     want {peer, tag, bytes} --> rank 0 finds the other end --> round --> ncclGroupStart .. ncclGroupEnd, event
 *
 * Order. NCCL has no tags: between two ranks the first send meets the first receive; and a group holds its stream until
 * all of it is done. So rank 0 puts the messages into rounds. A message enters a round when both its ends have been
 * posted, and a rank issues its parts of the rounds in ascending order, each round as one group. This cannot deadlock,
 * even if a group blocked its rank until all peers came: the ranks of the lowest round that is not done have done all
 * earlier rounds, so all of them issue it, and within a group all sends and receives make progress together. In a round
 * the messages of two ranks have the same order at both ends.
 *
 * Streams. A message or collective posted through a view (ht_comm_on_stream) is issued on the view's stream, and has
 * ended for its poster when it has been issued. The others are issued on the transport's own stream and end when the
 * device is done with them. On a rank's device the rounds still run one after another: the stream of a round waits by an
 * event for the round before it. A round of several streams runs on one of them; it begins when all of them have come to
 * it, and all of them wait for it.
 *
 *     lane "nccl"   stream  [ F3's event ][ round 7 ]----------------.
 *     lane "p2p"    stream                            [ B5's event ][ round 8 ]
 *
 * Then a GPU may wait for a peer's computation within NCCL's kernel, yet not for ever. An op is posted when all that its
 * stream waits for has been issued on this rank: rounds lower than its own, and work that waits for such rounds. So the
 * ranks of the lowest round that is not done come to it.
 *
 * Buffers. Both ends of a message lie on GPUs, or both in host memory. Without a view the work that fills a sent buffer,
 * or that still reads a received one, must have ended before the call. Messages to or from GPUs are copies, and so
 * exact. Host messages share the tags of the transport beneath; tags.h lists the one for letters.
 *
 * Collectives of buffers on GPUs are NCCL's: all-gather, reduce-scatter, all-reduce; where pieces are uneven a broadcast
 * or a reduction for each piece. Each is a round of its own, when all its ranks have posted it. A team's communicator is
 * created in the first round that needs it. NCCL adds up in an order of its own and, for 16-bit types, rounds after each
 * addition (docs/gpu-kernels.md). all_gather is messages for a team with ranks `without`. Host memory's sums keep
 * comm.h's order.
 *
 * Failures. The first failure of NCCL or CUDA aborts the rank's communicators, and so does a cancel, of this transport or
 * of the one beneath, which is then one of both: kernels that wait for a peer end, and streams go on. When the transport's
 * own stream has ended, no kernel uses a buffer any more, and the messages that were posted without a view end with the
 * reason. Whoever waits for a stream asks ops->reason meanwhile. After a reason was given nothing more is issued. An abort that
 * has not ended in 5 s goes on while the transport is cancelled: buffers may then be in use until the process ends.
 * ht_comm_abort ends the job through the transport beneath and calls nothing of NCCL: ncclCommAbort may wait for a peer,
 * and the driver ends a dead process's kernels.
 */
#ifndef HT_COMM_NCCL_H
#define HT_COMM_NCCL_H

#include "common/comm/comm.h"

enum { HT_NCCL_ID_BYTES = 128 };

/*
 * Functions of NCCL and CUDA: the real ones (nccl_real.c), or a test's. They return NULL, or a text that says what went
 * wrong, valid until the calling thread's next call. Communicators, streams and events are opaque.
 */
struct ht_nccl_api {
    const char *(*select)(int device); /* for the calling thread */
    bool (*on_gpu)(const void *p);
    const char *(*copy)(void *to, const void *from, int64_t bytes, void *stream);
    const char *(*stream_create)(void **stream);
    const char *(*stream_destroy)(void *stream);
    const char *(*stream_finish)(void *stream);
    const char *(*stream_wait)(void *stream, void *event);
    const char *(*event_create)(void **event);
    const char *(*event_destroy)(void *event);
    const char *(*event_record)(void *event, void *stream);
    const char *(*event_query)(void *event, bool *reached);

    const char *(*unique_id)(char id[HT_NCCL_ID_BYTES]);
    /* Begins to create the communicator; every rank calls it. create, finalize and group_end do not wait for other
       ranks: they may leave the communicator busy, and until `state` tells otherwise only `abort` may be called. */
    const char *(*create)(const char id[HT_NCCL_ID_BYTES], int32_t rank, int32_t size, void **nccl);
    const char *(*finalize)(void *nccl); /* before destroy */
    const char *(*destroy)(void *nccl);
    const char *(*abort)(void *nccl); /* ends all operations, its creation too, and frees the communicator; may hang */
    const char *(*state)(void *nccl, bool *busy); /* an asynchronous error */
    const char *(*group_begin)(void);
    const char *(*group_end)(void); /* ends the group after a failed send or receive, too */
    const char *(*send)(void *nccl, const void *data, int64_t bytes, int32_t to, void *stream);
    const char *(*receive)(void *nccl, void *data, int64_t bytes, int32_t from, void *stream);

    /* (optional, all or none) NCCL's collectives, in a group. counts: elements of a piece, or of all. */
    const char *(*all_gather)(void *nccl, const void *from, void *to, int64_t count, enum ht_comm_type type,
                              void *stream);
    const char *(*reduce_scatter)(void *nccl, const void *from, void *to, int64_t count, enum ht_comm_type type,
                                  void *stream);
    const char *(*all_reduce)(void *nccl, void *data, int64_t count, enum ht_comm_type type, void *stream);
    const char *(*broadcast)(void *nccl, const void *from, void *to, int64_t count, enum ht_comm_type type,
                             int32_t root, void *stream);
    const char *(*reduce)(void *nccl, const void *from, void *to, int64_t count, enum ht_comm_type type, int32_t root,
                          void *stream);
};

/* Opens libnccl.so.2, or the file that HT_NCCL names in the environment. Returns HT_INFEASIBLE in a build without CUDA
   or NCCL's header, and when the library cannot be opened. */
enum ht_status ht_nccl_api_real(const struct ht_nccl_api **out, struct ht_error *err);

/* Creates the transport; every rank of `over` calls it. `api` may be NULL on a rank without NCCL: all ranks then get
   HT_INFEASIBLE. deadline_s: seconds that NCCL may take to connect the ranks; HT_NCCL_DEADLINE_S unless there is a
   reason. Returns HT_INFEASIBLE on all ranks when one cannot create its communicator, and HT_FAILED when a rank has not
   answered in time, or the abort of this rank's communicator has not ended: `over` is then cancelled, and only
   ht_comm_abort may follow. `over` stays the caller's and outlives *out; ht_comm_abort ends its job, too. */
enum { HT_NCCL_DEADLINE_S = 300 };
enum ht_status ht_comm_nccl(struct ht_comm *over, const struct ht_nccl_api *api, int device, double deadline_s,
                            struct ht_error *err, struct ht_comm **out);

#endif
