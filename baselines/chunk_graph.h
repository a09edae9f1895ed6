/*
 * The op graph of an iteration with parameters in chunks: one builder for PatrickStar and Gemini. Both fetch a chunk
 * when an operator needs it, and store a gradient in the place of its parameter. Where they differ is the style: a
 * table in the system's own file.
 *
 *     F0 C1 F1 ..     before each operator the moves of its moment, C (ht_chunk_model.moves)
 *     .. B1 C1 B0     a chunk that leaves behind its backward pass carries gradients
 *     optimizer       the style's own
 *
 * Several micro-batches: gradients are not kept in chunks. Each moves at once to the tier where its unit is stepped,
 * and is added there. So both systems do here; neither paper has micro-batches.
 */
#ifndef HT_BASELINES_CHUNK_GRAPH_H
#define HT_BASELINES_CHUNK_GRAPH_H

#include "baselines/chunk_model.h"
#include "common/draft/draft_extra.h"

/* The state of the builder. Rows of unused ends: -1 where a unit has no such row. */
struct ht_chunk_graph {
    const struct ht_chunk_style *style;
    const struct ht_chunk_model *m;
    struct ht_draft *g;
    bool master;          /* there are FP32 master copies beside what passes compute with */
    bool *on_device;      /* [chunks] */
    bool *fetched;        /* [chunks]: in this iteration */
    bool *grad_in_place;  /* [n_units]: the chunk holds the unit's gradient instead of its parameters */
    int32_t *unused;      /* [chunks]: row of the unused end of the parameters that passes compute with */
    int32_t *unused32;    /* [chunks]: of FP32 parameters on the device */
    int32_t moment, move; /* next moment and next move */
};

struct ht_chunk_style {
    /* Waits of the host beside those for data, on one device. On several, nothing overlaps (HT_BLOCKS_ALL). */
    enum ht_blocking blocking;
    /* The host's copy of a chunk stays allocated, so that only the device's unused end comes and goes. Else a chunk is in
       one tier at a time. */
    bool host_keeps_chunks;
    /* The last micro-batch drops the parameters of units that are stepped on the host: the next iteration fetches what
       the step has made. Else they stay where they are for it. */
    bool drops_parameters;
    /* Makes the rows resident that are there when an iteration begins, and adds those of unused ends. */
    void (*place)(struct ht_chunk_graph *b);
    /* (optional) Appends the way of a chunk to the device if it is not the plain move; else returns false. */
    bool (*fetch)(struct ht_chunk_graph *b, int32_t chunk);
    /* Appends the optimizer. */
    void (*step)(struct ht_chunk_graph *b);
};

/* Builds the graph of a system from its style and its decisions. */
enum ht_status ht_chunk_build(const char *system, const struct ht_chunk_style *style, const struct ht_chunk_model *m,
                              const struct ht_scenario *scenario, struct ht_error *err, struct ht_schedule **out);

/* ---- for styles ------------------------------------------------------------------------------------------------ */

static inline bool ht_chunk_steps_on_device(const struct ht_chunk_graph *b, int32_t unit)
{
    return b->m->chunks.of_unit[unit] < b->m->room.n_pinned;
}

/* Returns a new row for unused elements of so many bytes. */
int32_t ht_chunk_unused(const struct ht_chunk_graph *b, int32_t chunk, int64_t element_bytes);
/* Returns the label of a chunk's units. */
struct ht_label ht_chunk_label(const struct ht_chunk_graph *b, int32_t chunk);
/* Appends a copy of a whole chunk between device and host, named by a letter and its number; the caller adds the
   effects. */
void ht_chunk_copy(struct ht_chunk_graph *b, int32_t chunk, bool to_device, int64_t element_bytes, char letter);
/* Adds the effects of the last op, a copy between device and host, on a row. */
void ht_chunk_copy_row(struct ht_chunk_graph *b, int32_t tensor, bool to_device, unsigned from_flags,
                       unsigned to_flags);

#endif
