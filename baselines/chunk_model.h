/*
 * The model data of a rank in chunks, and what an iteration does with them: what the planners of the systems with
 * chunks, PatrickStar and Colossal-AI's Gemini, decide, and what their graphs are written from (baselines/chunk_graph.h).
 *
 * A warm-up iteration measures in these systems how much memory everything outside chunks takes at every operator.
 * Here its moments are read off the op graph of that iteration, with all parameters on the device.
 */
#ifndef HT_BASELINES_CHUNK_MODEL_H
#define HT_BASELINES_CHUNK_MODEL_H

#include "baselines/chunks.h"
#include "common/plan/system.h"

/* Filled by ht_chunk_model_init; freed by ht_chunk_model_free. */
struct ht_chunk_model {
    int32_t c, n_units;                   /* blocks with checkpointing, the first ones */
    int64_t *unit_elements, largest_unit; /* [n_units]: parameters of a rank */
    int64_t copy_bytes;                   /* of a parameter that passes compute with */
    /* ht_chunk_model_warm_up */
    struct ht_chunks chunks;
    struct ht_chunk_moment *moments; /* one per forward, recompute and backward op */
    int32_t n_moments;
    int64_t non_model_peak_bytes;
    /* ht_chunk_model_move; the pinned chunks of `room` are those whose optimizer states are on the device */
    struct ht_chunk_room room;
    struct ht_chunk_moves moves;
    /* one system's alone */
    bool check;   /* PatrickStar: the host waits for each backward */
    bool *on_ssd; /* Gemini: [n_units]: the unit's momentum and variance are on the SSDs; else NULL */
};

void ht_chunk_model_init(struct ht_chunk_model *m, const struct ht_scenario *scenario, int64_t c);
void ht_chunk_model_free(struct ht_chunk_model *m);

/* Packs the units into chunks of so many elements and reads the moments off the warm-up iteration. HT_INFEASIBLE if a
   unit is larger. */
enum ht_status ht_chunk_model_warm_up(struct ht_chunk_model *m, const struct ht_scenario *scenario, int64_t elements,
                                      struct ht_error *err);

/* Computes the moves of one iteration in `room` (ht_chunks_move). HT_INFEASIBLE names the system and the operator
   without room. */
enum ht_status ht_chunk_model_move(struct ht_chunk_model *m, const char *system, struct ht_error *err);

#endif
