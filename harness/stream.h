/*
 * The training state as it lies in the residents of all ranks, read and written a piece at a time, between runs.
 *
 * Rank 0 has the files (persist.h) and says which piece is next; the other ranks answer until it says that it is done.
 * Nobody has more of the state than its residents and two pieces.
 *
 *     ht_stream_read    rank 0   TAKE piece -->                            END -->
 *                       ranks that have it     --> hash (and values: one of them)
 *     ht_stream_fill    rank 0   GIVE piece, values -->                    END -->
 *                       ranks that have it              write it to their residents
 *
 * Where several ranks have a piece, their hashes must agree, and where one rank has it in several residents, their
 * bytes.
 */
#ifndef HT_HARNESS_STREAM_H
#define HT_HARNESS_STREAM_H

#include "common/ckpt/state.h"
#include "harness/engine.h"
#include "harness/ranks.h"

struct ht_stream;

/* All are borrowed. All ranks call these four, and get the same status. HT_FAILED when the residents are not all of the
   model's state. */
enum ht_status ht_stream_create(const struct ht_ranks *ranks, const struct ht_job *job, struct ht_engine *engine,
                                const struct ht_residents *residents, struct ht_error *err, struct ht_stream **out);

/* Gives the residents initial values, but for what the state has: those of the state, which only rank 0's can be read;
   what parts there are all ranks know. state NULL: there is none. */
enum ht_status ht_stream_fill(struct ht_stream *x, const struct ht_state *state, struct ht_error *err);

/* Gathers how often each unit was stepped, and the loss scale, into rank 0's state. HT_FAILED when the parts of a unit
   were not stepped equally often. */
enum ht_status ht_stream_counts(struct ht_stream *x, struct ht_state *state, struct ht_error *err);

/* Calls `use` on rank 0, while ht_stream_source can be read. */
enum ht_status ht_stream_read(struct ht_stream *x, enum ht_status (*use)(void *ctx, struct ht_error *err), void *ctx,
                              struct ht_error *err);

/* The residents of all ranks, on rank 0. HT_FAILED when two copies of an element differ. */
struct ht_source ht_stream_source(struct ht_stream *x);

void ht_stream_destroy(struct ht_stream *x); /* accepts NULL */

#endif
