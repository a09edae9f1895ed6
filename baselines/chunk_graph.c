#include "baselines/chunk_graph.h"

#include "baselines/passes.h"
#include "common/base/array.h"
#include "common/draft/turns.h"

#include <assert.h>
#include <stdlib.h>

/* ---- rows and copies ------------------------------------------------------------------------------------------- */

int32_t ht_chunk_unused(const struct ht_chunk_graph *b, int32_t chunk, int64_t element_bytes)
{
    struct ht_label none = {.unit = -1, .micro_batch = -1};
    struct ht_tensor row = {
        .class = HT_STAGING, .label = none, .bytes = b->m->chunks.unused[chunk] * element_bytes, .rank = b->g->rank};
    return ht_add_tensor(b->g->schedule, row);
}

struct ht_label ht_chunk_label(const struct ht_chunk_graph *b, int32_t chunk)
{
    int32_t first = b->m->chunks.first[chunk], end = b->m->chunks.first[chunk + 1];
    return (struct ht_label){.unit = first, .n_units = end - first, .sub_ops = HT_ALL_SUB_OPS, .micro_batch = -1};
}

void ht_chunk_copy(struct ht_chunk_graph *b, int32_t chunk, bool to_device, int64_t element_bytes, char letter)
{
    ht_draft_transfer(b->g, ht_chunk_label(b, chunk), to_device ? HT_HOST : HT_DEVICE, to_device ? HT_DEVICE : HT_HOST,
                      element_bytes * b->m->chunks.elements);
    ht_op_name(b->g->schedule, "%c%d", letter, chunk);
}

void ht_chunk_copy_row(struct ht_chunk_graph *b, int32_t tensor, bool to_device, unsigned from_flags, unsigned to_flags)
{
    ht_op_effect(b->g->schedule, tensor, to_device ? HT_HOST : HT_DEVICE, from_flags);
    ht_op_effect(b->g->schedule, tensor, to_device ? HT_DEVICE : HT_HOST, to_flags);
}

/* ---- moves ----------------------------------------------------------------------------------------------------- */

/* Adds the effects of a chunk's move on a row. stays: the host keeps it. */
static void move_row(struct ht_chunk_graph *b, int32_t tensor, bool to_device, bool stays)
{
    bool keep = stays && to_device, overwrite = stays && !to_device;
    ht_chunk_copy_row(b, tensor, to_device, keep ? HT_NEED : HT_NEED | HT_RELEASE, overwrite ? HT_UPDATE : HT_PRODUCE);
}

/* Adds the effects of a chunk's move, or of the op that drops it, on its unused end. */
static void move_unused(struct ht_chunk_graph *b, int32_t chunk, bool to_device)
{
    if (b->unused[chunk] < 0) return;
    if (b->style->host_keeps_chunks)
        ht_op_effect(b->g->schedule, b->unused[chunk], HT_DEVICE, to_device ? HT_PRODUCE : HT_RELEASE);
    else
        move_row(b, b->unused[chunk], to_device, !b->master);
}

/* Appends the move of a chunk, "C3": its units' parameters, or gradients where these are in their place. Rows leave
   their tier, but FP32 parameters, which are their own master copies, stay on the host. */
static void move_chunk(struct ht_chunk_graph *b, int32_t chunk, bool to_device)
{
    const struct ht_chunks *chunks = &b->m->chunks;
    ht_chunk_copy(b, chunk, to_device, b->m->copy_bytes, 'C');
    for (int32_t u = chunks->first[chunk]; u < chunks->first[chunk + 1]; u++)
        if (b->grad_in_place[u])
            move_row(b, b->g->grad[u], to_device, false);
        else
            move_row(b, b->g->param[u], to_device, !b->master);
    move_unused(b, chunk, to_device);
}

/* Appends the moves before the next moment. A chunk that has been dropped needs none. */
static void move_before_moment(struct ht_chunk_graph *b)
{
    const struct ht_chunk_moves *moves = &b->m->moves;
    for (; b->move < moves->n && moves->rows[b->move].moment == b->moment; b->move++) {
        int32_t chunk = moves->rows[b->move].chunk;
        bool in = moves->rows[b->move].to_device, own = in && b->style->fetch && b->style->fetch(b, chunk);
        if (!own && (in || b->on_device[chunk])) move_chunk(b, chunk, in);
        b->on_device[chunk] = in;
        b->fetched[chunk] |= in;
    }
    b->moment++;
}

/* ---- passes ---------------------------------------------------------------------------------------------------- */

static void forward(struct ht_chunk_graph *b, int32_t u, int32_t mb)
{
    move_before_moment(b);
    ht_draft_forward(b->g, u, mb, ht_kept(b->g, u, b->m->c));
}

/* Keeps a fresh gradient. With one micro-batch it replaces the parameter in the chunk, unless that is the master copy
   of a unit stepped on the device; else it is added to the sum at once. */
static void keep_gradient(struct ht_chunk_graph *b, int32_t u, int32_t mb)
{
    struct ht_draft *g = b->g;
    int32_t chunk = b->m->chunks.of_unit[u];
    bool device = ht_chunk_steps_on_device(b, u), one = g->n_mb == 1;
    bool drops = !one && mb == g->n_mb - 1 && !device && b->style->drops_parameters;
    if (drops || (one && (b->master || !device))) ht_op_effect(g->schedule, g->param[u], HT_DEVICE, HT_RELEASE);
    if (drops && u == b->m->chunks.first[chunk]) {
        move_unused(b, chunk, false);
        b->on_device[chunk] = false;
    }
    b->grad_in_place[u] = one;
    if (one) return;
    if (!device)
        ht_draft_gradient_to_host(g, u, mb, HT_PRODUCE);
    else if (mb)
        ht_draft_accumulate(g, g->lanes->compute, u, mb);
}

static void backward(struct ht_chunk_graph *b, int32_t u, int32_t mb)
{
    if (ht_is_checkpointed(b->g, u, b->m->c)) {
        move_before_moment(b);
        ht_draft_recompute(b->g, u, 1, mb, HT_ALL_SUB_OPS);
    }
    move_before_moment(b);
    ht_draft_backward(b->g, u, mb);
    if (b->m->check) ht_draft_block(b->g);
    keep_gradient(b, u, mb);
}

/* ---- the iteration --------------------------------------------------------------------------------------------- */

/* Appends the optimizer and the iteration's last moves: of gradients, which the steps need, or of chunks back to where
   they were. */
static void end_iteration(struct ht_chunk_graph *b)
{
    assert(b->moment == b->m->n_moments);
    if (b->m->room.gradients_leave) move_before_moment(b);
    b->style->step(b);
    if (!b->m->room.gradients_leave) move_before_moment(b);
    assert(b->move == b->m->moves.n);
}

/* Writes the draft of a rank (struct ht_program.emit). */
static void emit(struct ht_draft *g, const void *styled)
{
    struct ht_chunk_graph b = *(const struct ht_chunk_graph *)styled;
    int32_t n = b.m->chunks.n;
    b.g = g;
    b.master = ht_numerics_has_master(&g->scenario->numerics);
    b.on_device = HT_NEW_ARRAY(bool, n);
    b.fetched = HT_NEW_ARRAY(bool, n);
    b.grad_in_place = HT_NEW_ARRAY(bool, g->n_units);
    b.unused = ht_alloc_ids(n);
    b.unused32 = ht_alloc_ids(n);
    for (int32_t i = 0; i < n; i++) b.on_device[i] = b.m->moves.at_start[i];
    ht_draft_blocks(g, g->layout->n_ranks == 1 ? b.style->blocking : HT_BLOCKS_ALL);
    b.style->place(&b);
    for (int32_t t = 0; t < g->n_mb * ht_turns(g->n_units); t++) {
        struct ht_turn turn = ht_turn(g->n_units, t);
        if (turn.forward) forward(&b, turn.unit, turn.round);
        if (turn.backward) backward(&b, turn.unit, turn.round);
    }
    end_iteration(&b);
    free(b.on_device);
    free(b.fetched);
    free(b.grad_in_place);
    free(b.unused);
    free(b.unused32);
}

enum ht_status ht_chunk_build(const char *system, const struct ht_chunk_style *style, const struct ht_chunk_model *m,
                              const struct ht_scenario *scenario, struct ht_error *err, struct ht_schedule **out)
{
    struct ht_chunk_graph styled = {.style = style, .m = m};
    struct ht_program program = {.name = system, .emit = emit, .context = &styled};
    enum ht_status status = ht_build_graph(scenario, &program, err, out);
    /* The program's allocator has no part in it. Chunks have one size, so one that has left serves any that comes,
       parameters and gradients alike: against fragmentation is what they are for (Fang et al. 2022, PatrickStar). What
       the allocator keeps of activations is left out with it. */
    if (!status) (*out)->allocator = (struct ht_allocator){0};
    return status;
}
