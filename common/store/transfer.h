/*
 * From what stores have to what ranks need: the list of copies that brings a state into a new layout. One pure function
 * makes the list; it is carried out (harness/run/stores.h), or priced (common/store/price.h).
 *
 * AutoHet (arXiv 2512.20953), Sec. IV: a bitmap says which node has which layer and tensor-parallel part of which step.
 * A rank reads a file from its own node's memory or disk if that has it, else from a peer over RDMA, else from the
 * cloud. When tensor parallelism changes, a rank reads slices: one part in c of an old file, or c old files. Differences:
 *
 *   - a source is an extent and not a file, so ZeRO's shards are sources and sinks, too;
 *   - any number of parts becomes any other (extent.h), not only a multiple or a divisor;
 *   - of equal sources one that the sink reads anyway is taken, then the node with the fewest bytes to send so far. The paper
 *     does not say which.
 */
#ifndef HT_STORE_TRANSFER_H
#define HT_STORE_TRANSFER_H

#include "common/store/extent.h"

enum ht_store_medium { HT_STORE_MEMORY, HT_STORE_DISK, HT_STORE_REMOTE, HT_N_STORE_MEDIA };
extern const char *const ht_store_medium_names[HT_N_STORE_MEDIA]; /* "memory", "disk", "remote" */

/* The ways a copy may take, the best first. */
enum ht_path { HT_PATH_MEMORY, HT_PATH_DISK, HT_PATH_PEER, HT_PATH_REMOTE, HT_N_PATHS };
extern const char *const ht_path_names[HT_N_PATHS]; /* "own memory", "own disk", "peer", "remote" */

struct ht_transfer_source {
    struct ht_extent extent;
    enum ht_store_medium medium;
    int32_t node; /* of memory and disk */
};
struct ht_transfer_sink {
    struct ht_extent extent;
    int32_t rank, node;
};

/* A box of a sink's elements from one source. */
struct ht_transfer {
    int32_t sink, source; /* rows of the two lists */
    enum ht_path path;
    struct ht_box box;
};

struct ht_transfers {
    struct ht_transfer *rows; /* by sink, ascending */
    int64_t n;
    size_t cap;
    int64_t *first; /* [n_sinks + 1] the first row of each sink */
};

/* Makes the list. HT_INFEASIBLE names the first elements that no source has, and how many there are in all; *out is then
   unchanged. Reads nothing but its arguments, so all ranks make the same list. */
enum ht_status ht_transfers_plan(const struct ht_model *m, const struct ht_transfer_source *sources, int64_t n_sources,
                                 const struct ht_transfer_sink *sinks, int64_t n_sinks, struct ht_error *err,
                                 struct ht_transfers *out);
void ht_transfers_free(struct ht_transfers *t);

int64_t ht_transfer_bytes(const struct ht_transfer *t);

/* Elements that are adjacent in source and sink, counted from the first element of each one's extent. */
struct ht_transfer_run {
    int64_t in_source, in_sink, count;
};
/* Finds the next run of a transfer in elements [*at, end) of the sink's extent, and moves *at behind it. Returns false if there
   are no more. */
bool ht_transfer_next_run(const struct ht_model *m, const struct ht_extent *source, const struct ht_extent *sink,
                          const struct ht_box *box, int64_t *at, int64_t end, struct ht_transfer_run *out);

/* Reads n elements of a source's extent from `first` on. */
typedef enum ht_status (*ht_transfer_read)(void *ctx, int64_t source, int64_t first, int64_t n, float *out,
                                           struct ht_error *err);
/* Fills elements [begin, end) of a sink's extent by its transfers. */
enum ht_status ht_transfers_fetch(const struct ht_model *m, const struct ht_transfer_source *sources,
                                  const struct ht_transfer_sink *sinks, const struct ht_transfers *list, int64_t sink,
                                  int64_t begin, int64_t end, ht_transfer_read read, void *ctx, float *out,
                                  struct ht_error *err);

#endif
