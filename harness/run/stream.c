#include "harness/run/stream.h"

#include "common/base/array.h"
#include "common/ckpt/durable.h"
#include "common/ckpt/state_map.h"
#include "common/comm/tags.h"
#include "common/kernels/convert.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* TAKE: reply with the values and their hash. CHECK: with the hash alone. GIVE: write the values that follow. */
enum kind { TAKE, CHECK, GIVE, END };

struct request {
    enum kind kind;
    struct ht_piece piece;
    int32_t share; /* of the piece (common/ckpt/state_map.h), the rest being 0; -1: all of it */
};

struct reply {
    enum ht_status status;
    uint64_t hash; /* when the status is HT_OK */
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
    float *piece, *other; /* a piece sent or received, or a share; a second copy, or 16-bit values */
    bool *has;            /* [n_ranks]: those that have the piece */
};

/* Returns room for the largest piece, aligned so that a disk can be read and written directly. */
static float *new_piece(const struct ht_model *m)
{
    return ht_alloc_aligned(HT_DISK_BLOCK, (size_t)ht_piece_most(m) * sizeof(float));
}

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
                            .piece = new_piece(&s->model),
                            .other = new_piece(&s->model),
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

/* A run of a piece in a copy of this rank's. */
static struct ht_buffer buffer_of(const struct ht_stream *x, const struct ht_state_copy *c, struct ht_state_run run)
{
    struct ht_buffer b = {0};
    int64_t each = ht_dtype_bytes(c->type);
    bool here = ht_residents_get(x->residents, c->resident, &b);
    assert(here);
    b.data = (char *)b.data + run.in_copy * each;
    b.bytes = run.count * each;
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

/* Reads a copy's part of a piece; the rest of a share is 0. */
static enum ht_status read_copy(struct ht_stream *x, const struct ht_state_copy *c, struct ht_piece piece,
                                int32_t share, float *out, struct ht_error *err)
{
    enum ht_status status = HT_OK;
    struct ht_state_run run;
    if (share >= 0) memset(out, 0, (size_t)(piece.end - piece.begin) * sizeof(*out));
    for (int64_t at = piece.begin; status == HT_OK && ht_state_next_run(x->map, c, piece, &at, &run);)
        status = ht_engine_read(x->engine, buffer_of(x, c, run), out + run.in_piece, err);
    return status;
}

/* Reads a piece, or a share of it, that this rank has; all of its copies must agree. */
static enum ht_status read_here(struct ht_stream *x, struct ht_piece piece, int32_t share, float *out,
                                struct ht_error *err)
{
    const struct ht_state_copy *copies;
    int64_t n = ht_state_map_copies(x->map, piece.unit, piece.part, &copies);
    size_t bytes = (size_t)(piece.end - piece.begin) * sizeof(*out);
    enum ht_status status = HT_OK;
    bool found = false;
    for (int64_t i = 0; i < n && status == HT_OK; i++) {
        if (copies[i].rank != x->rank || copies[i].stale || !ht_state_has(x->map, &copies[i], piece, share)) continue;
        status = read_copy(x, &copies[i], piece, share, found ? x->other : out, err);
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
        struct ht_state_run run;
        if (c->rank != x->rank || !ht_state_has(x->map, c, piece, -1)) continue;
        for (int64_t at = piece.begin; status == HT_OK && ht_state_next_run(x->map, c, piece, &at, &run);) {
            const void *from = values + run.in_piece;
            if (c->type != HT_F32) ht_round_copy(NULL, from, x->other, c->type, run.count);
            status = ht_engine_write(x->engine, c->type != HT_F32 ? x->other : from, buffer_of(x, c, run), err);
        }
    }
    return status;
}

/* ---- requests --------------------------------------------------------------------------------------------------- */

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

static enum ht_status request(struct ht_stream *x, int32_t rank, enum kind kind, struct ht_piece piece, int32_t share,
                              struct ht_error *err)
{
    struct request r = {.kind = kind, .piece = piece, .share = share};
    return send(x->comm, rank, &r, sizeof(r), err);
}

static int64_t bytes_of(struct ht_piece piece)
{
    return (piece.end - piece.begin) * (int64_t)sizeof(float);
}

/* Replies to TAKE and CHECK. An error of reading goes into the reply, and this rank serves on. */
static enum ht_status reply(struct ht_stream *x, struct request r, struct ht_error *err)
{
    struct reply to = {0};
    struct ht_error why = {0};
    to.status = read_here(x, r.piece, r.share, x->piece, &why);
    memcpy(to.text, why.text, sizeof(to.text));
    if (to.status == HT_OK) to.hash = ht_hash_bytes(x->piece, (size_t)bytes_of(r.piece));
    enum ht_status status = send(x->comm, 0, &to, sizeof(to), err);
    if (status == HT_OK && to.status == HT_OK && r.kind == TAKE)
        status = send(x->comm, 0, x->piece, bytes_of(r.piece), err);
    return status;
}

/* Serves rank 0's requests until END. Returns how writing went, or the status of a message that failed. */
static enum ht_status serve(struct ht_stream *x, struct ht_error *err)
{
    enum ht_status written = HT_OK;
    for (;;) {
        struct request r;
        struct ht_error why = {0};
        enum ht_status status = receive(x->comm, 0, &r, sizeof(r), &why);
        if (status == HT_OK && r.kind == END) return written;
        if (status == HT_OK && r.kind == GIVE) {
            status = receive(x->comm, 0, x->piece, bytes_of(r.piece), &why);
            if (status == HT_OK && written == HT_OK) written = write_here(x, r.piece, x->piece, err);
        } else if (status == HT_OK) {
            status = reply(x, r, &why);
        }
        if (status == HT_OK) continue;
        if (err) *err = why;
        return status;
    }
}

/* Ends the serving of the other ranks; status: how it went on this one. Returns what all agree on. */
static enum ht_status agree_on_end(struct ht_stream *x, enum ht_status status, struct ht_error *err)
{
    for (int32_t r = 1; x->comm && x->rank == 0 && r < x->comm->size && !atomic_load(&x->comm->cancelled); r++)
        if (request(x, r, END, (struct ht_piece){0}, -1, NULL) != HT_OK && status == HT_OK)
            status = ht_fail(err, HT_FAILED, "rank %d cannot be reached", r);
    return ht_ranks_agree(x->ranks, status, err);
}

/* Fills in x->has for a piece that was cut, or a share of it. */
static void find_ranks(struct ht_stream *x, struct ht_piece piece, int32_t share, bool stale_too)
{
    const struct ht_state_copy *copies;
    int64_t n = ht_state_map_copies(x->map, piece.unit, piece.part, &copies);
    memset(x->has, 0, (size_t)x->job->schedule->n_ranks * sizeof(*x->has));
    for (int64_t i = 0; i < n; i++)
        if (ht_state_has(x->map, &copies[i], piece, share) && (stale_too || !copies[i].stale))
            x->has[copies[i].rank] = true;
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

/* Receives a rank's reply, and the values into `out` unless it is NULL. */
static enum ht_status receive_reply(struct ht_stream *x, int32_t rank, struct ht_piece piece, float *out,
                                    uint64_t *hash, struct ht_error *err)
{
    struct reply r = {0};
    enum ht_status status = receive(x->comm, rank, &r, sizeof(r), err);
    if (status == HT_OK && r.status != HT_OK) return ht_fail(err, r.status, "%.1023s", r.text);
    if (status == HT_OK && out) status = receive(x->comm, rank, out, bytes_of(piece), err);
    *hash = r.hash;
    return status;
}

/* Receives the hashes of all ranks after `first` that have the piece; they must be equal to its own. */
static enum ht_status compare_copies(struct ht_stream *x, struct ht_piece piece, int32_t first, uint64_t hash,
                                     struct ht_error *err)
{
    enum ht_status status = HT_OK;
    for (int32_t r = first + 1; r < x->job->schedule->n_ranks; r++) { /* every reply comes, also after a bad one */
        struct ht_error why = {0};
        uint64_t theirs = hash;
        if (!x->has[r]) continue;
        enum ht_status one = receive_reply(x, r, piece, NULL, &theirs, &why);
        if (one == HT_OK && theirs != hash)
            one = ht_fail(&why, HT_FAILED, "unit %lld: ranks %d and %d differ in elements %lld to %lld of its %s",
                          (long long)piece.unit, first, r, (long long)piece.begin, (long long)piece.end,
                          ht_state_part_names[piece.part]);
        if (one == HT_OK || status != HT_OK) continue;
        status = one;
        if (err) *err = why;
    }
    return status;
}

/* Reads a piece that was cut, or a share of it: from the lowest rank that has it. */
static enum ht_status read_cut(struct ht_stream *x, struct ht_piece piece, int32_t share, float *out,
                               struct ht_error *err)
{
    int32_t first = 0, n_others = 0;
    enum ht_status status = HT_OK;
    uint64_t hash = 0;
    find_ranks(x, piece, share, false);
    while (!x->has[first]) first++;
    for (int32_t r = first; r < x->job->schedule->n_ranks && status == HT_OK; r++) {
        if (x->has[r] && r > 0) status = request(x, r, r == first ? TAKE : CHECK, piece, share, err);
        n_others += x->has[r] && r > first;
    }
    if (status != HT_OK) return status;
    status = first == 0 ? read_here(x, piece, share, out, err) : receive_reply(x, first, piece, out, &hash, err);
    if (n_others == 0) return status;
    if (first == 0) hash = ht_hash_bytes(out, (size_t)bytes_of(piece));
    enum ht_status equal = compare_copies(x, piece, first, hash, status == HT_OK ? err : NULL);
    return status == HT_OK ? equal : status;
}

/* Reads all shares of a piece that was cut. */
static enum ht_status read_shares(struct ht_stream *x, struct ht_piece piece, float *out, struct ht_error *err)
{
    int32_t shares = ht_state_map_shares(x->map, piece);
    enum ht_status status = HT_OK;
    if (shares == 1) return read_cut(x, piece, -1, out, err);
    for (int32_t q = 0; q < shares && status == HT_OK; q++) {
        struct ht_state_copy c = {.tp_part = q, .tp_parts = shares};
        struct ht_state_run run;
        status = read_cut(x, piece, q, x->piece, err);
        for (int64_t at = piece.begin; status == HT_OK && ht_state_next_run(x->map, &c, piece, &at, &run);)
            memcpy(out + run.in_piece, x->piece + run.in_piece, (size_t)run.count * sizeof(*out));
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
        status = read_shares(x, cut, out + (cut.begin - piece.begin), err);
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
    return agree_on_end(x, status, err);
}

/* ---- writing ---------------------------------------------------------------------------------------------------- */

/* Writes a piece that was cut to every copy of it. */
static enum ht_status give(struct ht_stream *x, const struct ht_state *state, struct ht_piece piece,
                           struct ht_error *err)
{
    enum ht_status status = ht_state_read(state, piece, x->piece, err);
    find_ranks(x, piece, -1, true);
    for (int32_t r = 1; r < x->job->schedule->n_ranks && status == HT_OK; r++) {
        if (!x->has[r]) continue;
        status = request(x, r, GIVE, piece, -1, err);
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

/* Fills a resident with initial values, or the padding of one that comes from a state with 0. */
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
    return agree_on_end(x, x->rank == 0 ? give_all(x, state, err) : serve(x, err), err);
}

enum ht_status ht_stream_begin(struct ht_stream *x, struct ht_error *err)
{
    struct filling f = {.x = x, .parts = HT_ALL_STATE_PARTS};
    return ht_ranks_agree(x->ranks, ht_residents_each(x->residents, begin_with, &f, err), err);
}

/* ---- one copy ----------------------------------------------------------------------------------------------------- */

const struct ht_state_map *ht_stream_map(const struct ht_stream *x)
{
    return x->map;
}

enum ht_status ht_stream_read_copy(struct ht_stream *x, const struct ht_state_copy *c, int64_t first, int64_t n,
                                   float *out, struct ht_error *err)
{
    struct ht_state_run run = {.in_copy = first, .count = n};
    assert(c->rank == x->rank && c->type == HT_F32);
    return ht_engine_read(x->engine, buffer_of(x, c, run), out, err);
}

const float *ht_stream_copy_at(const struct ht_stream *x, const struct ht_state_copy *c, int64_t first, int64_t n)
{
    struct ht_state_run run = {.in_copy = first, .count = n};
    assert(c->rank == x->rank && c->type == HT_F32);
    return ht_engine_bytes(x->engine, buffer_of(x, c, run));
}

enum ht_status ht_stream_write_copy(struct ht_stream *x, const struct ht_state_copy *c, int64_t first, int64_t n,
                                    const float *values, struct ht_error *err)
{
    struct ht_state_run run = {.in_copy = first, .count = n};
    assert(c->rank == x->rank);
    if (c->type != HT_F32)
        ht_round_copy(NULL, values, x->other, c->type, n);
    else
        memcpy(x->other, values, (size_t)n * sizeof(*values));
    return ht_engine_write(x->engine, x->other, buffer_of(x, c, run), err);
}

/* ---- counts ----------------------------------------------------------------------------------------------------- */

/* Returns, for each tensor, the rank whose optimizer updates it; -1: none. */
static int32_t *find_steppers(const struct ht_schedule *s)
{
    int32_t *by = ht_alloc_ids(s->n_tensors);
    for (int32_t op = 0; op < s->n_ops; op++)
        for (int64_t e = s->effects_begin[op]; s->ops[op].kind == HT_OP_OPTIMIZER_STEP && e < s->effects_begin[op + 1];
             e++)
            if (s->effects[e].flags & HT_UPDATE) by[s->effects[e].tensor] = ht_op_rank(s, op);
    return by;
}

/* Returns true for a momentum tensor with elements. An empty shard of a small unit has none, and so no count of
   steps. */
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
        struct ht_model part = ht_tensor_model(t, &state->model);
        int64_t end = t->sharded ? t->shard_end : ht_unit_params(&part, t->label.unit);
        counts[i] = (double)(ht_cpu_row_steps(cpu, t->label.unit, t->shard_begin, end) + 1);
    }
    enum ht_status status = ht_ranks_sum(x->ranks, counts, s->n_tensors, err);
    for (int64_t u = 0; u < state->n_units; u++) state->steps[u] = -1;
    for (int32_t i = 0; i < s->n_tensors && status == HT_OK && x->rank == 0; i++) {
        if (!is_stepped(&s->tensors[i])) continue;
        int64_t *steps = &state->steps[s->tensors[i].label.unit], these = (int64_t)counts[i] - 1;
        if (these < 0 || (*steps >= 0 && *steps != these))
            status = ht_fail(err, HT_FAILED, "unit %d: its parts were stepped differently often; expected equally",
                             s->tensors[i].label.unit);
        *steps = these;
    }
    struct ht_scaler scaler = ht_cpu_control_get(cpu);
    state->loss_scale = scaler.scale;
    state->good = scaler.good;
    free(counts);
    free(by);
    return ht_ranks_agree(x->ranks, status, err);
}
