/* PatrickStar's op graph; baselines/patrickstar.c says what is where, and why. */
#include "baselines/passes.h"
#include "baselines/patrickstar.h"

#include "common/base/array.h"
#include "common/draft/draft_extra.h"

#include <assert.h>
#include <stdlib.h>

struct build {
    struct ht_draft *g;
    const struct ht_patrickstar_chunks *p;
    int32_t os;
    bool master;
    bool *on_device;      /* [chunks] */
    bool *grad_in_place;  /* [n_units]: the chunk holds the unit's gradient instead of its parameters */
    int32_t *pad;         /* [chunks]: row of the unused end, or -1 */
    int32_t moment, move; /* next moment and next move */
    int32_t enqueued;     /* last kernel */
};

static bool on_device_stepped(const struct build *b, int32_t unit)
{
    return b->p->model.chunks.of_unit[unit] < b->os;
}

/* Makes a row of a chunk resident. FP32 parameters that are stepped on the host are there as well. */
static void place_row(struct build *b, int32_t tensor, bool device, enum ht_tier states)
{
    if (device) ht_draft_place(b->g, tensor, HT_DEVICE);
    if (!device || (!b->master && states == HT_HOST)) ht_draft_place(b->g, tensor, HT_HOST);
}

static void place_residents(struct build *b)
{
    const struct ht_chunks *chunks = &b->p->model.chunks;
    struct ht_draft *g = b->g;
    for (int32_t i = 0; i < chunks->n; i++) {
        bool device = b->on_device[i] = b->p->moves.at_start[i];
        enum ht_tier states = i < b->os ? HT_DEVICE : HT_HOST;
        for (int32_t u = chunks->first[i]; u < chunks->first[i + 1]; u++) {
            place_row(b, g->param[u], device, states);
            ht_draft_place_states(g, u, states);
        }
        b->pad[i] = -1;
        if (!chunks->unused[i]) continue;
        b->pad[i] = ht_chunk_padding(g, chunks->unused[i] * b->p->model.copy_bytes);
        place_row(b, b->pad[i], device, states);
        int32_t of_states = ht_chunk_padding(g, chunks->unused[i] * ht_optimizer_state_bytes(&g->scenario->numerics));
        ht_draft_place(g, of_states, states);
    }
}

/* Appends a copy of a chunk's size; the caller adds its rows. */
static void begin_copy(struct build *b, int32_t chunk, bool to_device, char letter)
{
    ht_chunk_copy(b->g, &b->p->model.chunks, chunk, to_device, b->p->room.chunk_bytes, letter);
}

static void move_chunk(struct build *b, int32_t chunk, bool to_device)
{
    ht_chunk_move(b->g, &b->p->model.chunks, chunk, to_device, b->p->room.chunk_bytes, b->grad_in_place);
    if (b->pad[chunk] >= 0) ht_chunk_move_row(b->g, b->pad[chunk], to_device, !b->master);
    b->on_device[chunk] = to_device;
}

/* Appends the moves before the next moment. */
static void move_before_moment(struct build *b)
{
    const struct ht_chunk_moves *m = &b->p->moves;
    for (; b->move < m->n && m->rows[b->move].moment == b->moment; b->move++)
        move_chunk(b, m->rows[b->move].chunk, m->rows[b->move].to_device);
    b->moment++;
}

static void forward_pass(struct build *b, int32_t mb)
{
    for (int32_t u = 0; u < b->g->n_units; u++) {
        move_before_moment(b);
        b->enqueued = ht_draft_forward(b->g, u, mb, ht_kept(b->g, u, b->p->model.c));
    }
}

/* Keeps a fresh gradient. With one micro-batch it replaces the parameter in the chunk; else it is added to the sum at
   once. */
static void keep_gradient(struct build *b, int32_t u, int32_t mb)
{
    struct ht_draft *g = b->g;
    bool device = on_device_stepped(b, u);
    if (g->n_mb == 1) {
        b->grad_in_place[u] = true;
        if (b->master || !device) ht_op_effect(g->schedule, g->param[u], HT_DEVICE, HT_RELEASE);
        return;
    }
    if (!device) {
        int32_t fresh = mb ? g->grad_mb[ht_draft_at(g, u, mb)] : g->grad[u];
        ht_draft_copy(g, fresh, HT_DEVICE, HT_HOST, HT_PRODUCE, true);
    }
    if (mb == 0) return;
    ht_draft_accumulate(g, device ? g->lanes->compute : g->lanes->host, u, mb);
}

static void backward_pass(struct build *b, int32_t mb)
{
    for (int32_t u = b->g->n_units - 1; u >= 0; u--) {
        if (ht_is_checkpointed(b->g, u, b->p->model.c)) {
            move_before_moment(b);
            ht_draft_recompute(b->g, u, 1, mb, HT_ALL_SUB_OPS);
        }
        move_before_moment(b);
        b->enqueued = ht_draft_backward(b->g, u, mb);
        if (b->p->check) ht_draft_block(b->g);
        keep_gradient(b, u, mb);
    }
}

/* Appends the steps of a chunk. If it is on the device and stepped on the host, its gradients are copied there before,
   and its parameters back after. */
static void adam_of_chunk(struct build *b, int32_t chunk)
{
    struct ht_draft *g = b->g;
    const struct ht_chunks *chunks = &b->p->model.chunks;
    int32_t begin = chunks->first[chunk], end = chunks->first[chunk + 1];
    bool one = g->n_mb == 1, on_host = chunk >= b->os, there_and_back = on_host && b->on_device[chunk];
    if (there_and_back && one) {
        begin_copy(b, chunk, false, 'G');
        ht_op_after(g->schedule, b->enqueued); /* on the kernels' stream */
        for (int32_t u = begin; u < end; u++) ht_chunk_copy_row(g, g->grad[u], false, HT_NEED | HT_RELEASE, HT_PRODUCE);
    }
    for (int32_t u = begin; u < end; u++) {
        g->realloc_on_step[u] = b->master && (one || there_and_back);
        int32_t step = ht_draft_step(g, on_host ? g->lanes->host : g->lanes->compute, u, 1, true);
        if (!on_host) b->enqueued = step;
        b->grad_in_place[u] = false;
    }
    if (!there_and_back) return;
    begin_copy(b, chunk, true, 'P');
    ht_op_after(g->schedule, b->enqueued);
    for (int32_t u = begin; u < end; u++)
        ht_chunk_copy_row(g, g->param[u], true, b->master ? HT_NEED | HT_RELEASE : HT_NEED,
                          one ? HT_PRODUCE : HT_UPDATE);
}

void ht_patrickstar_emit(struct ht_draft *g, const void *chunks)
{
    const struct ht_patrickstar_chunks *p = chunks;
    struct build b = {.g = g, .p = p, .os = p->room.n_pinned};
    ht_draft_blocks(g, g->layout->n_ranks == 1 ? HT_BLOCKS_HOST : HT_BLOCKS_ALL);
    b.master = ht_numerics_has_master(&g->scenario->numerics);
    b.on_device = HT_NEW_ARRAY(bool, p->model.chunks.n);
    b.pad = HT_NEW_ARRAY(int32_t, p->model.chunks.n);
    b.grad_in_place = HT_NEW_ARRAY(bool, g->n_units);
    place_residents(&b);
    for (int32_t j = 0; j < g->n_mb; j++) {
        forward_pass(&b, j);
        backward_pass(&b, j);
    }
    assert(b.moment == p->model.n_moments);
    for (int32_t i = 0; i < p->model.chunks.n; i++) adam_of_chunk(&b, i);
    move_before_moment(&b);
    assert(b.move == p->moves.n);
    free(b.on_device);
    free(b.pad);
    free(b.grad_in_place);
}
