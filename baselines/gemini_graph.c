/* Gemini's op graph; baselines/gemini.c says what is where, and why. */
#include "baselines/gemini.h"
#include "baselines/passes.h"

#include "common/base/array.h"
#include "common/draft/draft_extra.h"
#include "common/draft/works.h"

#include <assert.h>
#include <stdlib.h>

struct build {
    struct ht_draft *g;
    const struct ht_gemini_chunks *p;
    const struct ht_chunks *chunks;
    bool *cast;           /* [chunks]: there are 16-bit parameters of this iteration */
    bool *grad_in_place;  /* [n_units]: the chunk holds the unit's gradient instead of its parameters */
    bool *dropped;        /* [chunks]: the last micro-batch has freed it on the device */
    int32_t *pad;         /* [chunks]: row of the unused end on the device, or -1 */
    int32_t *pad32;       /* [chunks]: that of the FP32 chunk while it is cast, or -1 */
    int32_t moment, move; /* next moment and next move */
    int32_t next_read;    /* unit whose states are read next, if they are on SSDs */
    int32_t unwritten;    /* unit whose states are to be written, or -1 */
    int32_t stepped;      /* last step on the CPU; before it, the last op of the backward pass */
    int32_t written;      /* last write for which the host has waited, or -1 */
};

static bool steps_on_device(const struct build *b, int32_t unit)
{
    return b->chunks->of_unit[unit] < b->p->n_device;
}

static bool has_master(const struct build *b)
{
    return b->g->master[0] >= 0;
}

static bool last_micro_batch(const struct build *b, int32_t mb)
{
    return mb == b->g->n_mb - 1;
}

/* ---- where things are ------------------------------------------------------------------------------------------- */

/* Places a unit's parameters and states. On the host there are no 16-bit parameters when an iteration begins. */
static void place_unit(struct build *b, int32_t u)
{
    struct ht_draft *g = b->g;
    enum ht_tier tier = steps_on_device(b, u) ? HT_DEVICE : HT_HOST, moments = b->p->on_ssd[u] ? HT_DISK : tier;
    if (tier == HT_DEVICE || !has_master(b)) ht_draft_place(g, g->param[u], tier);
    if (has_master(b)) ht_draft_place(g, g->master[u], tier);
    ht_draft_place(g, g->momentum[u], moments);
    ht_draft_place(g, g->variance[u], moments);
    g->realloc_on_step[u] = tier == HT_DEVICE && has_master(b) && g->n_mb == 1;
}

/* Places the unused end of a chunk: that of the FP32 chunk, and on the host that of the 16-bit one, which stays
   allocated there. On the device the latter comes and goes with the chunk, and the former is there until the cast. */
static void place_padding(struct build *b, int32_t chunk)
{
    struct ht_draft *g = b->g;
    int64_t unused = b->chunks->unused[chunk], copy_bytes = b->p->model.copy_bytes;
    bool device = chunk < b->p->n_device;
    b->pad[chunk] = b->pad32[chunk] = -1;
    if (!unused) return;
    b->pad[chunk] = ht_chunk_padding(g, unused * copy_bytes);
    if (!device && has_master(b)) b->pad32[chunk] = ht_chunk_padding(g, unused * 4);
    if (device) ht_draft_place(g, b->pad[chunk], HT_DEVICE);
    int64_t rest_bytes = (has_master(b) ? 4 : 0) + (device ? 0 : copy_bytes);
    if (rest_bytes) ht_draft_place(g, ht_chunk_padding(g, unused * rest_bytes), device ? HT_DEVICE : HT_HOST);
}

/* ---- moves ------------------------------------------------------------------------------------------------------ */

static void on_row(struct build *b, int32_t row, unsigned flags)
{
    if (row >= 0) ht_op_effect(b->g->schedule, row, HT_DEVICE, flags);
}
static void on_padding(struct build *b, int32_t chunk, unsigned flags)
{
    on_row(b, b->pad[chunk], flags);
}

/* Appends the cast of a chunk's FP32 parameters on the device, which frees these. */
static void cast_chunk(struct build *b, int32_t chunk)
{
    struct ht_draft *g = b->g;
    int32_t first = b->chunks->first[chunk], end = b->chunks->first[chunk + 1];
    struct ht_label about = {.unit = first, .n_units = end - first, .sub_ops = HT_ALL_SUB_OPS, .micro_batch = -1};
    struct ht_work w = ht_scenario_work(g->scenario, HT_OP_RESTORE, HT_LANE_COMPUTE, first);
    for (int32_t u = first; u < end; u++) w.params += b->p->model.unit_elements[u];
    ht_add_op(g->schedule, HT_OP_RESTORE, g->lanes->compute, about, ht_add_work(g->schedule, &w));
    ht_op_name(g->schedule, "cast%d", chunk);
    for (int32_t u = first; u < end; u++) {
        ht_op_effect(g->schedule, g->master[u], HT_DEVICE, HT_NEED | HT_RELEASE);
        ht_op_effect(g->schedule, g->param[u], HT_DEVICE, HT_PRODUCE);
    }
    on_row(b, b->pad32[chunk], HT_RELEASE);
    on_padding(b, chunk, HT_PRODUCE);
    ht_charge_work(g->schedule, g->links, 0);
    ht_draft_chain(g);
}

/* Appends the way of a chunk to the device. The first time in an iteration it is FP32 and cast there. */
static void fetch_chunk(struct build *b, int32_t chunk)
{
    struct ht_draft *g = b->g;
    if (b->cast[chunk] || !has_master(b)) {
        ht_chunk_move(g, b->chunks, chunk, true, b->p->room.chunk_bytes, b->grad_in_place);
        on_padding(b, chunk, HT_PRODUCE);
        return;
    }
    ht_chunk_copy(g, b->chunks, chunk, true, 4 * b->chunks->elements, 'W');
    for (int32_t u = b->chunks->first[chunk]; u < b->chunks->first[chunk + 1]; u++)
        ht_chunk_copy_row(g, g->master[u], true, HT_NEED, HT_PRODUCE);
    on_row(b, b->pad32[chunk], HT_PRODUCE);
    cast_chunk(b, chunk);
    b->cast[chunk] = true;
}

/* Appends the moves before the next moment. */
static void move_before_moment(struct build *b)
{
    const struct ht_chunk_moves *m = &b->p->moves;
    for (; b->move < m->n && m->rows[b->move].moment == b->moment; b->move++) {
        int32_t chunk = m->rows[b->move].chunk;
        if (m->rows[b->move].to_device) {
            fetch_chunk(b, chunk);
        } else if (!b->dropped[chunk]) {
            ht_chunk_move(b->g, b->chunks, chunk, false, b->p->room.chunk_bytes, b->grad_in_place);
            on_padding(b, chunk, HT_RELEASE);
        }
    }
    b->moment++;
}

/* ---- passes ----------------------------------------------------------------------------------------------------- */

static void forward_pass(struct build *b, int32_t mb)
{
    for (int32_t u = 0; u < b->g->n_units; u++) {
        move_before_moment(b);
        ht_draft_forward(b->g, u, mb, ht_kept(b->g, u, b->p->model.c));
    }
}

/* Frees a unit's parameters on the device behind its last backward. Those that are stepped there in FP32, or after
   several micro-batches, stay. */
static void drop_parameters(struct build *b, int32_t u)
{
    struct ht_draft *g = b->g;
    int32_t chunk = b->chunks->of_unit[u];
    bool device = steps_on_device(b, u), one = g->n_mb == 1;
    if (device && !(one && has_master(b))) return;
    ht_op_effect(g->schedule, g->param[u], HT_DEVICE, HT_RELEASE);
    if (one || u != b->chunks->first[chunk]) return;
    on_padding(b, chunk, HT_RELEASE);
    b->dropped[chunk] = true;
}

/* Keeps a fresh gradient. With one micro-batch it replaces the parameter in the chunk; else it is added to the sum at
   once. */
static void keep_gradient(struct build *b, int32_t u, int32_t mb)
{
    struct ht_draft *g = b->g;
    bool device = steps_on_device(b, u);
    if (last_micro_batch(b, mb)) drop_parameters(b, u);
    b->grad_in_place[u] = g->n_mb == 1;
    if (b->grad_in_place[u]) return;
    int32_t fresh = mb ? g->grad_mb[ht_draft_at(g, u, mb)] : g->grad[u];
    if (!device) ht_draft_copy(g, fresh, HT_DEVICE, HT_HOST, HT_PRODUCE, true);
    if (mb) ht_draft_accumulate(g, device ? g->lanes->compute : g->lanes->host, u, mb);
}

static void backward_pass(struct build *b, int32_t mb)
{
    for (int32_t u = b->g->n_units - 1; u >= 0; u--) {
        if (ht_is_checkpointed(b->g, u, b->p->model.c)) {
            move_before_moment(b);
            ht_draft_recompute(b->g, u, 1, mb, HT_ALL_SUB_OPS);
        }
        move_before_moment(b);
        ht_draft_backward(b->g, u, mb);
        keep_gradient(b, u, mb);
    }
}

/* ---- optimizer -------------------------------------------------------------------------------------------------- */

/* Appends a copy of a unit's momentum and variance between host and SSDs. */
static int32_t copy_states(struct build *b, int32_t u, bool write)
{
    struct ht_draft *g = b->g;
    int32_t rows[] = {g->momentum[u], g->variance[u]};
    int32_t op = ht_draft_copy_rows(g, rows, 2, write ? HT_HOST : HT_DISK, write ? HT_DISK : HT_HOST,
                                    write ? HT_UPDATE : HT_PRODUCE, write);
    ht_op_name(g->schedule, write ? "WS%d" : "RS%d", u);
    return op;
}

/* Appends the read of the next unit whose states are on SSDs, if there is one. */
static void read_next(struct build *b)
{
    int32_t u = b->next_read;
    while (u < b->g->n_units && !b->p->on_ssd[u]) u++;
    b->next_read = u + 1;
    if (u >= b->g->n_units) return;
    copy_states(b, u, false);
    ht_op_after(b->g->schedule, b->stepped);
    ht_op_after(b->g->schedule, b->written);
}

/* Appends the write of the unit that was stepped last. Whatever the host does behind it waits for it. */
static void wait_for_write(struct build *b)
{
    if (b->unwritten >= 0) b->written = copy_states(b, b->unwritten, true);
    b->unwritten = -1;
}

/*
 * Appends the steps on the CPU as the repository's host thread goes (nn/optimizer/nvme_optimizer.py: _pre_step,
 * _pre_update, _post_update, _post_step): for each unit it waits for the write of the unit before, begins the next
 * read, steps the unit and begins its write. The wait in _pre_update is meant for the unit's own read, but its name is
 * bound to the wait for writes (gemini.c). Nothing waits before the step of a unit whose states are not on SSDs.
 * A write is appended where the thread waits for it; its edges let it begin when the unit's step has ended.
 */
static void step_on_host(struct build *b)
{
    struct ht_draft *g = b->g;
    read_next(b);
    for (int32_t u = b->chunks->first[b->p->n_device]; u < g->n_units; u++) {
        bool on_ssd = b->p->on_ssd[u];
        if (on_ssd) {
            wait_for_write(b);
            read_next(b);
        }
        b->stepped = ht_draft_step(g, g->lanes->host, u, 1, true);
        ht_op_after(g->schedule, b->written);
        if (on_ssd)
            b->unwritten = u;
        else
            wait_for_write(b);
    }
    wait_for_write(b);
}

/* Appends the steps on the device, one kernel behind the loop over all parameters. */
static void step_on_device(struct build *b)
{
    struct ht_draft *g = b->g;
    int32_t last = g->schedule->n_ops - 1;
    for (int32_t u = 0; u < b->chunks->first[b->p->n_device]; u++) {
        ht_draft_step(g, g->lanes->compute, u, 1, true);
        ht_op_after(g->schedule, b->stepped);
        if (u == b->chunks->first[b->p->n_device] - 1) ht_op_after(g->schedule, last);
    }
}

/* ---- the iteration ---------------------------------------------------------------------------------------------- */

void ht_gemini_emit(struct ht_draft *g, const void *gemini)
{
    const struct ht_gemini_chunks *p = gemini;
    const struct ht_chunks *chunks = &p->model.chunks;
    struct build b = {.g = g, .p = p, .chunks = chunks, .unwritten = -1, .written = -1};
    ht_draft_blocks(g, HT_BLOCKS_ALL);
    g->steps_leave_copy = true;
    g->lanes->disk_read = ht_add_lane(g->schedule, "disk in", HT_LANE_DISK, g->rank, HT_FIFO);
    g->lanes->disk_write = ht_add_lane(g->schedule, "disk out", HT_LANE_DISK, g->rank, HT_FIFO);
    b.cast = HT_NEW_ARRAY(bool, chunks->n);
    b.dropped = HT_NEW_ARRAY(bool, chunks->n);
    b.pad = HT_NEW_ARRAY(int32_t, chunks->n);
    b.pad32 = HT_NEW_ARRAY(int32_t, chunks->n);
    b.grad_in_place = HT_NEW_ARRAY(bool, g->n_units);
    for (int32_t u = 0; u < g->n_units; u++) place_unit(&b, u);
    for (int32_t i = 0; i < chunks->n; i++) place_padding(&b, i);
    for (int32_t j = 0; j < g->n_mb; j++) {
        forward_pass(&b, j);
        backward_pass(&b, j);
    }
    assert(b.moment == p->model.n_moments);
    move_before_moment(&b);
    assert(b.move == p->moves.n);
    b.stepped = g->schedule->n_ops - 1;
    ht_draft_blocks(g, HT_BLOCKS_NOTHING); /* the optimizer's edges are its own, and control keeps them */
    step_on_host(&b);
    step_on_device(&b);
    free(b.cast);
    free(b.dropped);
    free(b.pad);
    free(b.pad32);
    free(b.grad_in_place);
}
