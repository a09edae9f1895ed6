/*
 * The model data of a rank in chunks: what an iteration asks of the chunk manager (baselines/chunks.h), and the copies
 * of whole chunks in a graph. The systems with chunks, PatrickStar and Colossal-AI's Gemini, share it.
 *
 * A warm-up iteration measures in these systems how much memory everything outside chunks takes at every operator.
 * Here its moments are read off the op graph of that iteration, with all parameters on the device.
 */
#ifndef HT_BASELINES_CHUNK_MODEL_H
#define HT_BASELINES_CHUNK_MODEL_H

#include "baselines/chunks.h"
#include "common/draft/draft.h"

/* Zeroed, then filled by ht_chunk_model_init; freed by ht_chunk_model_free. */
struct ht_chunk_model {
    int32_t c, n_units;                   /* blocks with checkpointing, the first ones */
    int64_t *unit_elements, largest_unit; /* [n_units]: parameters of a rank */
    int64_t copy_bytes;                   /* of a parameter that passes compute with */
    struct ht_chunks chunks;
    struct ht_chunk_moment *moments; /* one per forward, recompute and backward op */
    int32_t n_moments;
    int64_t non_model_peak_bytes;
};

void ht_chunk_model_init(struct ht_chunk_model *m, const struct ht_scenario *scenario, int64_t c);
void ht_chunk_model_free(struct ht_chunk_model *m);

/* Packs the units into chunks of so many elements and reads the moments off the warm-up iteration. HT_INFEASIBLE if a
   unit is larger. May be called again with other elements. */
enum ht_status ht_chunk_model_warm_up(struct ht_chunk_model *m, const struct ht_scenario *scenario, int64_t elements,
                                      struct ht_error *err);

/* Computes the moves of one iteration (ht_chunks_move). HT_INFEASIBLE names the system and the operator without
   room. */
enum ht_status ht_chunk_model_move(const struct ht_chunk_model *m, const char *system, const struct ht_chunk_room *room,
                                   struct ht_error *err, struct ht_chunk_moves *out);

/* ---- in a graph ------------------------------------------------------------------------------------------------ */

/* Adds a row for the unused end of a chunk, or of its optimizer states. */
int32_t ht_chunk_padding(struct ht_draft *g, int64_t bytes);

/* Appends a copy between device and host about a chunk, named by a letter and its number; the caller adds the effects.
   bytes: with the chunk's unused end. */
void ht_chunk_copy(struct ht_draft *g, const struct ht_chunks *chunks, int32_t chunk, bool to_device, int64_t bytes,
                   char letter);
/* Adds the effects of the last op, a copy between device and host, on a row. */
void ht_chunk_copy_row(struct ht_draft *g, int32_t tensor, bool to_device, unsigned from_flags, unsigned to_flags);

/* Appends the move of a chunk, "C3": its units' parameters, or gradients where these are in their place. Rows leave
   their tier, but FP32 parameters, which are their own master copies, stay on the host. grad_in_place: [n_units] */
void ht_chunk_move(struct ht_draft *g, const struct ht_chunks *chunks, int32_t chunk, bool to_device, int64_t bytes,
                   const bool *grad_in_place);
/* Adds the effects of the last op, a move, on a row. stays: the host keeps it. */
void ht_chunk_move_row(struct ht_draft *g, int32_t tensor, bool to_device, bool stays);

/* Takes the program's allocator out of a schedule whose model data are in chunks. Chunks have one size, so one that has left
   serves any that comes, parameters and gradients alike: against fragmentation is what they are for (Fang et al. 2022,
   PatrickStar). What the allocator keeps of activations is left out with it. */
void ht_chunks_manage(struct ht_schedule *s);

#endif
