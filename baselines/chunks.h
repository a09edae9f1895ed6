/*
 * Chunks of parameters and the rules by which they move, run ahead of time: PatrickStar's chunk manager (Fang et al.,
 * "PatrickStar: Parallel Training of Pre-trained Models via Chunk-based Memory Management", IEEE TPDS 2022), and those
 * of Colossal-AI's Gemini, which is made after it.
 *
 * Parameters are in chunks of one size. An iteration is a sequence of moments, one per operator. A warm-up iteration
 * has found out what each moment needs: the chunks that must be on the device, and the bytes of everything outside
 * chunks ("non-model data"). This determines the tier of every chunk at every moment. A chunk is fetched when an
 * operator needs it; if there is no room, the chunk whose next use is farthest ahead goes to the host (Belady 1966).
 *
 *     units    0 1 | 2 3 | 4 5       three chunks, room for two on the device
 *     moment   F0 F1   F2 F3   F4 F5   B5 B4   B3 B2   B1 B0
 *     device   0       0 1     1 2     1 2     1 2     0 1         chunk 0 leaves before F4: it is used last
 *
 * This file knows no op graph. baselines/chunk_model.c reads the moments from one.
 */
#ifndef HT_BASELINES_CHUNKS_H
#define HT_BASELINES_CHUNKS_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- packing --------------------------------------------------------------------------------------------------- */

struct ht_chunks {
    int64_t elements; /* of each chunk */
    int32_t n, n_units;
    int32_t *of_unit; /* [n_units]: the chunk that holds the unit */
    int32_t *first;   /* [n + 1]: chunk i holds the units first[i] .. first[i + 1] - 1 */
    int64_t *unused;  /* [n]: elements at the chunk's end without a unit */
};

/* Appends units in order; a unit that does not fit into the rest of a chunk begins the next. HT_INFEASIBLE if a unit is
   larger than a chunk. */
enum ht_status ht_chunks_pack(const int64_t *unit_elements, int32_t n_units, int64_t elements, struct ht_error *err,
                              struct ht_chunks *out);
void ht_chunks_free(struct ht_chunks *c);

/* Returns the chunk size from `min_elements`, or the largest unit if that is larger, to `max_elements` that leaves the
   fewest elements unused over all chunks; of equal ones the smallest. Only the least size and sums of consecutive units
   can be the best. Returns the least size if it exceeds max_elements. */
int64_t ht_chunks_search(const int64_t *unit_elements, int32_t n_units, int64_t min_elements, int64_t max_elements);

/* ---- moving ---------------------------------------------------------------------------------------------------- */

enum { HT_CHUNK_NEEDS = 2 };

struct ht_chunk_moment {
    int64_t non_model_bytes;       /* on the device, beside chunks */
    int32_t needs[HT_CHUNK_NEEDS]; /* chunks that must be on the device; -1: none */
    int32_t ends;                  /* 1 + the chunk whose backward pass ends with it; 0: none */
};

enum ht_chunk_rule {
    /* If the chunks that a moment needs lack room, the one that is used last leaves: PatrickStar's
       LatestAccessChunkEvictionPolicy, and Gemini's AutoPlacementPolicy, which has it from there. At moment t chunks may
       fill (available_chunk_mem in PatrickStar's memtracer.py)
           usable_bytes - fixed_bytes - max(non_model_bytes of t, of the moment after t) */
    HT_LAST_USED_LEAVES,
    /* Chunks that the moment before needed and this one does not are idle. While they are more than idle_bytes, the
       first of them leaves. Chunks that were needed earlier do not count any more, and stay. No statistics are asked:
       Gemini's StaticPlacementPolicy.evict_tensors. */
    HT_IDLE_LEAVE,
};

struct ht_chunk_room {
    int64_t chunk_bytes;
    int32_t n_pinned;     /* chunks 0 .. n_pinned - 1 never leave the device */
    bool gradients_leave; /* a chunk, now with gradients, goes to the host when its backward pass ends */
    enum ht_chunk_rule rule;
    int64_t idle_bytes;   /* HT_IDLE_LEAVE */
    int64_t usable_bytes; /* HT_LAST_USED_LEAVES: for non-model data, optimizer states and chunks together */
    int64_t fixed_bytes;  /* part of it for optimizer states on the device and the manager's buffer */
};

struct ht_chunk_move {
    int32_t moment, chunk; /* done before that moment; moment n: at the end of the iteration */
    bool to_device;
};

struct ht_chunk_moves {
    struct ht_chunk_move *rows; /* in the order in which they are done */
    int32_t n;
    size_t cap;
    bool *at_start; /* [chunks]: on the device when an iteration begins and when it ends */
};

/*
 * Computes the moves of one iteration in the steady state. An iteration begins as the one before it ended. The first
 * one begins with all chunks but the pinned ones on the host. If the tiers of chunks do not repeat after
 * HT_CHUNK_ROUNDS iterations, the last moves bring the chunks back to where they were.
 *
 * HT_INFEASIBLE if at some moment (*where, may be NULL) the chunks needed do not fit; the text has the numbers. HT_INTERRUPTED
 * after Ctrl-C.
 */
enum { HT_CHUNK_ROUNDS = 8 };
enum ht_status ht_chunks_move(const struct ht_chunk_moment *moments, int32_t n_moments, int32_t n_chunks,
                              const struct ht_chunk_room *room, struct ht_error *err, struct ht_chunk_moves *out,
                              int32_t *where);
void ht_chunk_moves_free(struct ht_chunk_moves *m);

#endif
