#include "harness/stream.h"

#include "common/base/array.h"
#include "common/ckpt/durable.h"
#include "common/ckpt/state_map.h"
#include "common/comm/tags.h"
#include "common/kernels/convert.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum what { TAKE, CHECK, GIVE, END };

struct order {
    enum what what; /* TAKE: hash and values; CHECK: the hash alone */
    struct ht_piece piece;
};

struct answer {
    enum ht_status status;
    uint64_t hash; /* of the values; when the status is HT_OK */
    char text[1024];
};

struct ht_stream {
    struct ht_comm *comm; /* NULL: there is one rank */
    int32_t rank;
    const struct ht_ranks *ranks;
    const struct ht_job *job;
    struct ht_engine *engine;
    const struct ht_residents *residents;
    struct ht_state_map *map;
    float *piece, *other; /* what is sent or was received; a second copy, or 16-bit values */
    bool *has;            /* [n_ranks]: those that have the piece */
};

enum ht_status ht_stream_create(const struct ht_ranks *ranks, const struct ht_job *job, struct ht_engine *engine,
                                const struct ht_residents *residents, struct ht_error *err, struct ht_stream **out)
{
    const struct ht_scenario *s = &job->scenario;
    struct ht_stream *x = HT_NEW(struct ht_stream);
    *x = (struct ht_stream){.comm = ranks->comm,
                            .rank = ranks->comm ? ranks->comm->rank : 0,
                            .ranks = ranks,
                            .job = job,
                            .engine = engine,
                            .residents = residents,
                            .piece = HT_NEW_ARRAY(float, ht_piece_most(&s->model)),
                            .other = HT_NEW_ARRAY(float, ht_piece_most(&s->model)),
                            .has = HT_NEW_ARRAY(bool, job->schedule->n_ranks)};
    enum ht_status status = ht_state_map_create(job->schedule, &s->model, s->numerics.param, err, &x->map);
    status = ht_ranks_agree(ranks, status, err);
    if (status == HT_OK)
        *out = x;
    else
        ht_stream_destroy(x);
    return status;
}

void ht_stream_destroy(struct ht_stream *x)
{
    if (!x) return;
    ht_state_map_destroy(x->map);
    free(x->piece);
    free(x->other);
    free(x->has);
    free(x);
}

/* ---- this rank's residents -------------------------------------------------------------------------------------- */

/* The piece in a copy of this rank's. */
static struct ht_buffer buffer_of(const struct ht_stream *x, const struct ht_state_copy *c, struct ht_piece piece)
{
    struct ht_buffer b = {0};
    int64_t each = ht_dtype_bytes(c->type);
    bool here = ht_residents_get(x->residents, c->resident, &b);
    assert(here);
    b.data = (char *)b.data + (piece.begin - c->begin) * each;
    b.bytes = (piece.end - piece.begin) * each;
    return b;
}

static enum ht_status differ(const struct ht_stream *x, struct ht_piece piece, const float *a, const float *b,
                             struct ht_error *err)
{
    int64_t i = 0;
    while (memcmp(&a[i], &b[i], sizeof(*a)) == 0) i++;
    return ht_fail(err, HT_FAILED, "unit %lld: two copies of element %lld of its %s differ on rank %d",
                   (long long)piece.unit, (long long)(piece.begin + i), ht_state_part_names[piece.part], x->rank);
}

/* Reads a piece that this rank has; all of its copies must agree. */
static enum ht_status read_here(struct ht_stream *x, struct ht_piece piece, float *out, struct ht_error *err)
{
    const struct ht_state_copy *copies;
    int64_t n = ht_state_map_copies(x->map, piece.unit, piece.part, &copies);
    size_t bytes = (size_t)(piece.end - piece.begin) * sizeof(*out);
    enum ht_status status = HT_OK;
    bool found = false;
    for (int64_t i = 0; i < n && status == HT_OK; i++) {
        if (copies[i].rank != x->rank || copies[i].stale || !ht_state_has(&copies[i], piece)) continue;
        status = ht_engine_read(x->engine, buffer_of(x, &copies[i], piece), found ? x->other : out, err);
        if (status == HT_OK && found && memcmp(out, x->other, bytes) != 0)
            status = differ(x, piece, out, x->other, err);
        found = true;
    }
    return status;
}

/* Writes a piece to all copies that this rank has, stale ones too. */
static enum ht_status write_here(struct ht_stream *x, struct ht_piece piece, const float *values, struct ht_error *err)
{
    const struct ht_state_copy *copies;
    int64_t n = ht_state_map_copies(x->map, piece.unit, piece.part, &copies);
    enum ht_status status = HT_OK;
    for (int64_t i = 0; i < n && status == HT_OK; i++) {
        const struct ht_state_copy *c = &copies[i];
        if (c->rank != x->rank || !ht_state_has(c, piece)) continue;
        if (c->type != HT_F32) ht_round_copy(NULL, values, x->other, c->type, piece.end - piece.begin);
        const void *from = c->type != HT_F32 ? (const void *)x->other : values;
        status = ht_engine_write(x->engine, from, buffer_of(x, c, piece), err);
    }
    return status;
}

/* ---- orders ----------------------------------------------------------------------------------------------------- */

static enum ht_status send(struct ht_comm *c, int32_t to, const void *data, int64_t bytes, struct ht_error *err)
{
    struct ht_message m;
    ht_comm_send(c, to, HT_TAG_STATE, data, bytes, &m);
    return ht_comm_wait(c, &m, err);
}

static enum ht_status receive(struct ht_comm *c, int32_t from, void *data, int64_t bytes, struct ht_error *err)
{
    struct ht_message m;
    ht_comm_receive(c, from, HT_TAG_STATE, data, bytes, &m);
    return ht_comm_wait(c, &m, err);
}

static enum ht_status order(struct ht_stream *x, int32_t to, enum what what, struct ht_piece piece,
                            struct ht_error *err)
{
    struct order o = {.what = what, .piece = piece};
    return send(x->comm, to, &o, sizeof(o), err);
}

static int64_t bytes_of(struct ht_piece piece)
{
    return (piece.end - piece.begin) * (int64_t)sizeof(float);
}

/* Answers TAKE and CHECK. The answer has the error; this rank goes on. */
static enum ht_status answer(struct ht_stream *x, struct order o, struct ht_error *err)
{
    struct answer a = {0};
    struct ht_error why = {0};
    a.status = read_here(x, o.piece, x->piece, &why);
    memcpy(a.text, why.text, sizeof(a.text));
    if (a.status == HT_OK) a.hash = ht_hash_bytes(x->piece, (size_t)bytes_of(o.piece));
    enum ht_status status = send(x->comm, 0, &a, sizeof(a), err);
    if (status == HT_OK && a.status == HT_OK && o.what == TAKE)
        status = send(x->comm, 0, x->piece, bytes_of(o.piece), err);
    return status;
}

/* Does what rank 0 orders, until the end. */
static enum ht_status serve(struct ht_stream *x, struct ht_error *err)
{
    enum ht_status written = HT_OK;
    for (;;) {
        struct order o;
        struct ht_error why = {0};
        enum ht_status status = receive(x->comm, 0, &o, sizeof(o), &why);
        if (status == HT_OK && o.what == END) return written;
        if (status == HT_OK && o.what == GIVE) {
            status = receive(x->comm, 0, x->piece, bytes_of(o.piece), &why);
            if (status == HT_OK && written == HT_OK) written = write_here(x, o.piece, x->piece, err);
        } else if (status == HT_OK) {
            status = answer(x, o, &why);
        }
        if (status == HT_OK) continue;
        if (err) *err = why;
        return status;
    }
}

/* Ends what the others serve; status: how it went on rank 0. All ranks get the same. */
static enum ht_status conclude(struct ht_stream *x, enum ht_status status, struct ht_error *err)
{
    for (int32_t r = 1; x->comm && x->rank == 0 && r < x->comm->size && !atomic_load(&x->comm->cancelled); r++)
        if (order(x, r, END, (struct ht_piece){0}, NULL) != HT_OK && status == HT_OK)
            status = ht_fail(err, HT_FAILED, "rank %d cannot be reached", r);
    return ht_ranks_agree(x->ranks, status, err);
}

/* Fills in x->has for a piece that was cut. */
static void find_ranks(struct ht_stream *x, struct ht_piece piece, bool stale_too)
{
    const struct ht_state_copy *copies;
    int64_t n = ht_state_map_copies(x->map, piece.unit, piece.part, &copies);
    memset(x->has, 0, (size_t)x->job->schedule->n_ranks * sizeof(*x->has));
    for (int64_t i = 0; i < n; i++)
        if (ht_state_has(&copies[i], piece) && (stale_too || !copies[i].stale)) x->has[copies[i].rank] = true;
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

/* Receives a rank's answer, and values to `out` if it is not NULL. */
static enum ht_status hear(struct ht_stream *x, int32_t rank, struct ht_piece piece, float *out, struct ht_error *err,
                           uint64_t *hash)
{
    struct answer a;
    enum ht_status status = receive(x->comm, rank, &a, sizeof(a), err);
    if (status == HT_OK && a.status != HT_OK) return ht_fail(err, a.status, "%.1023s", a.text);
    if (status == HT_OK && out) status = receive(x->comm, rank, out, bytes_of(piece), err);
    *hash = a.hash;
    return status;
}

/* Reads a piece that was cut: from the lowest rank that has it; the others say whether they have the same. */
static enum ht_status read_cut(struct ht_stream *x, struct ht_piece piece, float *out, struct ht_error *err)
{
    int32_t n_ranks = x->job->schedule->n_ranks, first = 0;
    enum ht_status status = HT_OK, one = HT_OK;
    uint64_t hash = 0, theirs;
    bool others = false;
    find_ranks(x, piece, false);
    while (!x->has[first]) first++;
    for (int32_t r = first; r < n_ranks && status == HT_OK; r++) {
        if (x->has[r] && r > 0) status = order(x, r, r == first ? TAKE : CHECK, piece, err);
        others |= x->has[r] && r > first;
    }
    if (status != HT_OK) return status;
    status = first == 0 ? read_here(x, piece, out, err) : hear(x, first, piece, out, err, &hash);
    if (first == 0 && others && status == HT_OK) hash = ht_hash_bytes(out, (size_t)bytes_of(piece));
    for (int32_t r = first + 1; r < n_ranks && others; r++) { /* all answers come, whatever the first says */
        struct ht_error why = {0};
        if (!x->has[r]) continue;
        one = hear(x, r, piece, NULL, &why, &theirs);
        if (one == HT_OK && theirs != hash && status == HT_OK)
            status = ht_fail(err, HT_FAILED, "unit %lld: ranks %d and %d differ in elements %lld to %lld of its %s",
                             (long long)piece.unit, first, r, (long long)piece.begin, (long long)piece.end,
                             ht_state_part_names[piece.part]);
        if (one == HT_OK || status != HT_OK) continue;
        status = one;
        if (err) *err = why;
    }
    return status;
}

/* The struct ht_source of all ranks' residents. */
static enum ht_status read_piece(void *ctx, struct ht_piece piece, float *out, struct ht_error *err)
{
    struct ht_stream *x = ctx;
    enum ht_status status = HT_OK;
    for (struct ht_piece cut = piece; cut.begin < piece.end && status == HT_OK; cut.begin = cut.end) {
        cut.end = piece.end;
        cut = ht_state_map_cut(x->map, cut);
        status = read_cut(x, cut, out + (cut.begin - piece.begin), err);
    }
    return status;
}

struct ht_source ht_stream_source(struct ht_stream *x)
{
    return (struct ht_source){.read = read_piece, .ctx = x, .parts = HT_ALL_STATE_PARTS};
}

enum ht_status ht_stream_read(struct ht_stream *x, enum ht_status (*use)(void *ctx, struct ht_error *err), void *ctx,
                              struct ht_error *err)
{
    enum ht_status status = x->rank == 0 ? use(ctx, err) : serve(x, err);
    return conclude(x, status, err);
}

/* ---- writing ---------------------------------------------------------------------------------------------------- */

/* Writes a piece that was cut to every copy of it. */
static enum ht_status give(struct ht_stream *x, const struct ht_state *state, struct ht_piece piece,
                           struct ht_error *err)
{
    enum ht_status status = ht_state_read(state, piece, x->piece, err);
    find_ranks(x, piece, true);
    for (int32_t r = 1; r < x->job->schedule->n_ranks && status == HT_OK; r++) {
        if (!x->has[r]) continue;
        status = order(x, r, GIVE, piece, err);
        if (status == HT_OK) status = send(x->comm, r, x->piece, bytes_of(piece), err);
    }
    return status == HT_OK && x->has[0] ? write_here(x, piece, x->piece, err) : status;
}

static enum ht_status give_all(struct ht_stream *x, const struct ht_state *state, struct ht_error *err)
{
    enum ht_status status = HT_OK;
    for (int64_t u = 0; u < state->n_units; u++)
        for (int part = 0; part < HT_N_STATE_PARTS; part++) {
            int64_t n = state->values.parts & 1u << part ? ht_unit_params(&state->model, u) : 0;
            struct ht_piece p = {.unit = u, .part = (enum ht_state_part)part};
            for (; p.begin < n && status == HT_OK; p.begin = p.end) {
                p.end = n;
                p = ht_state_map_cut(x->map, p);
                status = give(x, state, p, err);
            }
        }
    return status;
}

struct filling {
    struct ht_stream *x;
    unsigned parts; /* that come from a state */
};

/* Initial values, or of what comes from a state its padding: 0. */
static enum ht_status begin_with(void *ctx, int32_t space, struct ht_buffer b, struct ht_error *err)
{
    const struct filling *f = ctx;
    const struct ht_scenario *s = &f->x->job->scenario;
    const struct ht_tensor *t = &f->x->job->schedule->tensors[b.tensor];
    (void)space;
    if (!ht_state_holds(t) || !(f->parts & 1u << ht_state_part_of(t))) return ht_engine_init(f->x->engine, t, b, err);
    if (!t->sharded) return HT_OK;
    int64_t used = (t->shard_end - t->shard_begin) * ht_dtype_bytes(t->class == HT_PARAM ? s->numerics.param : HT_F32);
    b.data = (char *)b.data + used;
    b.bytes -= used;
    void *zeros = ht_alloc((size_t)b.bytes);
    enum ht_status status = b.bytes ? ht_engine_write(f->x->engine, zeros, b, err) : HT_OK;
    free(zeros);
    return status;
}

enum ht_status ht_stream_fill(struct ht_stream *x, const struct ht_state *state, struct ht_error *err)
{
    struct filling f = {.x = x, .parts = state ? state->values.parts : 0};
    enum ht_status status = ht_ranks_agree(x->ranks, ht_residents_each(x->residents, begin_with, &f, err), err);
    if (status != HT_OK || !f.parts) return status;
    return conclude(x, x->rank == 0 ? give_all(x, state, err) : serve(x, err), err);
}

/* ---- counts ----------------------------------------------------------------------------------------------------- */

/* [n_tensors] whose optimizer updates a tensor; -1: nobody's. */
static int32_t *find_steppers(const struct ht_schedule *s)
{
    int32_t *by = ht_alloc_ids(s->n_tensors);
    for (int32_t op = 0; op < s->n_ops; op++)
        for (int64_t e = s->effects_begin[op]; s->ops[op].kind == HT_OP_OPTIMIZER_STEP && e < s->effects_begin[op + 1];
             e++)
            if (s->effects[e].flags & HT_UPDATE) by[s->effects[e].tensor] = ht_op_rank(s, op);
    return by;
}

/* A row of momentum that has elements; an empty shard of a small unit has none, and so no count of steps. */
static bool is_stepped(const struct ht_tensor *t)
{
    bool empty = t->sharded && t->shard_begin == t->shard_end;
    return t->class == HT_MOMENTUM && t->bytes > 0 && !empty;
}

enum ht_status ht_stream_counts(struct ht_stream *x, struct ht_state *state, struct ht_error *err)
{
    const struct ht_schedule *s = x->job->schedule;
    const struct ht_cpu *cpu = x->engine->cpu;
    double *counts = HT_NEW_ARRAY(double, s->n_tensors); /* of each row of momentum: steps + 1; 0: another rank's */
    int32_t *by = find_steppers(s);
    for (int32_t i = 0; i < s->n_tensors; i++) {
        const struct ht_tensor *t = &s->tensors[i];
        if (!is_stepped(t) || by[i] != x->rank) continue;
        int64_t end = t->sharded ? t->shard_end : ht_unit_params(&state->model, t->label.unit);
        counts[i] = (double)(ht_cpu_row_steps(cpu, t->label.unit, t->shard_begin, end) + 1);
    }
    enum ht_status status = ht_ranks_sum(x->ranks, counts, s->n_tensors, err);
    for (int64_t u = 0; u < state->n_units; u++) state->steps[u] = -1;
    for (int32_t i = 0; i < s->n_tensors && status == HT_OK && x->rank == 0; i++) {
        if (!is_stepped(&s->tensors[i])) continue;
        int64_t *steps = &state->steps[s->tensors[i].label.unit], these = (int64_t)counts[i] - 1;
        if (these < 0 || (*steps >= 0 && *steps != these))
            status =
                ht_fail(err, HT_FAILED, "unit %d: its parts were not stepped equally often", s->tensors[i].label.unit);
        *steps = these;
    }
    struct ht_scaler scaler = ht_cpu_control_get(cpu);
    state->loss_scale = scaler.scale;
    state->good = scaler.good;
    free(counts);
    free(by);
    return ht_ranks_agree(x->ranks, status, err);
}
