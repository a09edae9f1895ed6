/*
 * The training state in the residents of all ranks, read and written a piece at a time between runs.
 *
 * Rank 0 has the files (persist.h) and requests pieces; the other ranks serve. A process has two pieces of the state
 * beside its residents.
 *
 *     ht_stream_read    rank 0   TAKE piece --.                               END --> all
 *                       a rank with the piece '--> values and their hash
 *                       the others with it    '--> their hash, which must be equal
 *     ht_stream_fill    rank 0   GIVE piece, values --.                       END --> all
 *                       all ranks with the piece      '--> write it to their residents
 *
 * A piece of a matrix that tensor parallelism has cut is taken share by share, and given whole to all with a share.
 *
 * Where one rank has a piece in several residents, their bytes must be equal.
 */
#ifndef HT_HARNESS_RUN_STREAM_H
#define HT_HARNESS_RUN_STREAM_H

#include "common/ckpt/state_map.h"
#include "harness/run/engine.h"
#include "harness/run/ranks.h"

struct ht_stream;

/* Creates the stream of a job's state; everything is borrowed. HT_FAILED when the residents do not hold all of the
   model's state. All ranks call this and the next three functions, and get the same status. */
enum ht_status ht_stream_create(const struct ht_ranks *ranks, const struct ht_job *job, struct ht_engine *engine,
                                const struct ht_residents *residents, struct ht_error *err, struct ht_stream **out);

/* Fills the residents: from the state those parts that it has, all else with initial values. Rank 0 reads the state;
   the other ranks need only know its parts. state NULL: it has none. */
enum ht_status ht_stream_fill(struct ht_stream *x, const struct ht_state *state, struct ht_error *err);

/* Gathers how often each unit was stepped, and the loss scale, into rank 0's state. HT_FAILED when the parts of a unit
   were not stepped equally often. */
enum ht_status ht_stream_counts(struct ht_stream *x, struct ht_state *state, struct ht_error *err);

/* Calls `use` on rank 0, which may read ht_stream_source until it returns. */
enum ht_status ht_stream_read(struct ht_stream *x, enum ht_status (*use)(void *ctx, struct ht_error *err), void *ctx,
                              struct ht_error *err);

/* Returns rank 0's view of the residents of all ranks. Reading is HT_FAILED when two copies of an element differ. */
struct ht_source ht_stream_source(struct ht_stream *x);

/* Fills the residents with initial values, but for elements of the state. */
enum ht_status ht_stream_begin(struct ht_stream *x, struct ht_error *err);
/* Returns where the state's elements are. */
const struct ht_state_map *ht_stream_map(const struct ht_stream *x);
/* Read and write, as FP32, n elements of one of this rank's own copies from its element `first` on; at most a piece. */
enum ht_status ht_stream_read_copy(struct ht_stream *x, const struct ht_state_copy *c, int64_t first, int64_t n,
                                   float *out, struct ht_error *err);
/* Returns these elements where they are, until the next run; NULL if the CPU cannot read them there. */
const float *ht_stream_copy_at(const struct ht_stream *x, const struct ht_state_copy *c, int64_t first, int64_t n);
enum ht_status ht_stream_write_copy(struct ht_stream *x, const struct ht_state_copy *c, int64_t first, int64_t n,
                                    const float *values, struct ht_error *err);

void ht_stream_destroy(struct ht_stream *x); /* accepts NULL */

#endif
