/* The log of the undo: header, table, differences, kept values. undo_path.c has the loops over elements. */
#include "common/kernels/undo.h"

#include <assert.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include "common/kernels/convert.h"
#include "common/kernels/undo_path.h"

#define MAGIC UINT64_C(0x676f6c6f646e7568) /* "hundolog" */

struct header {
    uint64_t magic;
    int64_t n, exceptions;
    uint32_t state; /* enum ht_undo_state */
    struct ht_adamw_step step;
};
_Static_assert(sizeof(struct header) <= 64, "the log's header");

enum { HEADER_BYTES = 64 };
/* A block's entry in the table: where its kept values begin, or one of these. */
static const uint32_t NONE = UINT32_MAX, NOT_STEPPED = UINT32_MAX - 1, MOST = UINT32_MAX - 2;

/* A log's parts. */
struct log {
    struct header *header;
    uint32_t *table;
    int8_t *differences;
    uint32_t *kept;
    int64_t room; /* values that fit into kept */
};

static int64_t n_blocks(int64_t n)
{
    return (n + HT_UNDO_BLOCK - 1) / HT_UNDO_BLOCK;
}

static int64_t kept_begin(int64_t n)
{
    return HEADER_BYTES + 4 * n_blocks(n) + (3 * n + 3) / 4 * 4;
}

int64_t ht_undo_log_bytes(int64_t n, int64_t exceptions)
{
    assert(n >= 0 && exceptions >= 0);
    if (exceptions > 3 * n) exceptions = 3 * n;
    if (exceptions > MOST) exceptions = MOST;
    return kept_begin(n) + 4 * exceptions;
}

int64_t ht_undo_usual_exceptions(int64_t n)
{
    return n / 4 + 16 < 3 * n ? n / 4 + 16 : 3 * n;
}

static struct log log_of(void *data, int64_t bytes, int64_t n)
{
    char *at = data;
    assert((uintptr_t)data % 8 == 0 && bytes >= kept_begin(n));
    int64_t room = (bytes - kept_begin(n)) / 4;
    return (struct log){.header = data,
                        .table = (uint32_t *)(at + HEADER_BYTES),
                        .differences = (int8_t *)(at + HEADER_BYTES + 4 * n_blocks(n)),
                        .kept = (uint32_t *)(at + kept_begin(n)),
                        .room = room < MOST ? room : MOST};
}

static bool is_log(const struct log *l, int64_t n)
{
    return l->header->magic == MAGIC && l->header->n == n && l->header->state <= HT_UNDO_REFUSED;
}

struct ht_undo_summary ht_undo_summary(const void *data, int64_t log_bytes, int64_t n)
{
    struct log l = log_of((void *)(uintptr_t)data, log_bytes, n);
    if (!is_log(&l, n)) return (struct ht_undo_summary){.state = HT_UNDO_EMPTY};
    struct ht_undo_summary s = {.state = (enum ht_undo_state)l.header->state, .exceptions = l.header->exceptions};
    if (s.state == HT_UNDO_STEPPED) s.used_bytes = kept_begin(n) + 4 * s.exceptions;
    return s;
}

/* ---- one block ---- */

struct job {
    const struct ht_undo *u;
    const struct ht_undo_path *path;
    struct ht_adamw_step step;
    struct log log;
    atomic_int_fast64_t exceptions;
};

struct block {
    int64_t index, n;
    float *x[3]; /* p, m, v */
    const float *grad;
    struct ht_adamw_row row;
    int8_t *d[3];
};

/* Returns a block; widens 16-bit gradients into `wide` first. */
static struct block block_at(const struct job *j, int64_t index, float wide[HT_UNDO_BLOCK])
{
    int64_t begin = index * HT_UNDO_BLOCK, left = j->u->row.n - begin, n = left < HT_UNDO_BLOCK ? left : HT_UNDO_BLOCK;
    struct ht_adamw_row row = ht_adamw_slice(&j->u->row, begin, begin + n);
    int8_t *d = j->log.differences ? j->log.differences + 3 * begin : NULL;
    if (row.grad_type != HT_F32) ht_widen_copy(NULL, row.grad, row.grad_type, wide, n);
    return (struct block){.index = index,
                          .n = n,
                          .x = {row.param, row.m, row.v},
                          .grad = row.grad_type == HT_F32 ? row.grad : wide,
                          .row = row,
                          .d = {d, d ? d + n : NULL, d ? d + 2 * n : NULL}};
}

/* Writes the 16-bit copy while the block is still in the nearest cache. */
static void write_copy(const struct block *b)
{
    if (b->row.copy) ht_round_copy(NULL, b->row.param, b->row.copy, b->row.copy_type, b->n);
}

static void copy(float *to, const float *from, int64_t n)
{
    memcpy(to, from, (size_t)n * sizeof(float));
}

/* Returns the first escape from i on, or n. Escapes are few, and memchr is fast. */
static int64_t next_escape(const int8_t *d, int64_t i, int64_t n)
{
    const int8_t *at = i < n ? memchr(d + i, HT_UNDO_ESCAPE & 0xff, (size_t)(n - i)) : NULL;
    return at ? at - d : n;
}

/* Copies the values whose differences are escapes from `old` into the log. */
static void keep(const struct block *b, const struct ht_undo_values *old, uint32_t *kept)
{
    const float *values[3] = {old->p, old->m, old->v};
    for (int k = 0; k < 3; k++)
        for (int64_t i = next_escape(b->d[k], 0, b->n); i < b->n; i = next_escape(b->d[k], i + 1, b->n))
            memcpy(kept++, values[k] + i, sizeof(*kept));
}

/* Logs a block's escapes. When the log is full, the whole step is going to be refused, and the block is undone at
   once. */
static void log_escapes(struct job *j, const struct block *b, const struct ht_undo_values *old, int64_t escapes)
{
    int64_t at = atomic_fetch_add_explicit(&j->exceptions, escapes, memory_order_relaxed);
    if (at + escapes <= j->log.room) {
        j->log.table[b->index] = (uint32_t)at;
        keep(b, old, j->log.kept + at);
        return;
    }
    j->log.table[b->index] = NOT_STEPPED;
    copy(b->x[0], old->p, b->n);
    copy(b->x[1], old->m, b->n);
    copy(b->x[2], old->v, b->n);
}

static void step_block(struct job *j, int64_t index)
{
    struct ht_undo_values old;
    float wide[HT_UNDO_BLOCK];
    struct block b = block_at(j, index, wide);
    int64_t escapes = j->path->step(&j->step, b.x[0], b.x[1], b.x[2], b.grad, b.n, &old, b.d);
    j->log.table[index] = NONE;
    if (escapes > 0) log_escapes(j, &b, &old, escapes);
    write_copy(&b);
}

static void undo_block(struct job *j, int64_t index)
{
    float wide[HT_UNDO_BLOCK];
    struct block b = block_at(j, index, wide);
    uint32_t at = j->log.table[index];
    if (at == NOT_STEPPED) return;
    j->path->undo(&j->step, b.x[0], b.x[1], b.x[2], b.grad, b.n, b.d);
    for (int k = 0; k < 3 && at != NONE; k++)
        for (int64_t i = next_escape(b.d[k], 0, b.n); i < b.n; i = next_escape(b.d[k], i + 1, b.n))
            memcpy(b.x[k] + i, j->log.kept + at++, sizeof(float));
    write_copy(&b);
}

static void reverse_block(struct job *j, int64_t index)
{
    float wide[HT_UNDO_BLOCK];
    struct block b = block_at(j, index, wide);
    j->path->reverse(&j->step, b.x[0], b.x[1], b.x[2], b.grad, b.n);
    write_copy(&b);
}

/* ---- all blocks ---- */

static struct job job_of(const struct ht_undo *u, const struct ht_adamw_step *step)
{
    struct job j = {.u = u, .path = u->path, .step = *step};
    for (int level = HT_N_SIMD_LEVELS - 1; !j.path; level--) j.path = ht_undo_path_at((enum ht_simd_level)level);
    return j;
}

#define SHARE(name, each)                                                                                              \
    static void name(void *arg, int worker, int n_workers)                                                             \
    {                                                                                                                  \
        struct job *j = arg;                                                                                           \
        struct ht_range r = ht_range_split(n_blocks(j->u->row.n), 1, worker, n_workers);                               \
        for (int64_t b = r.begin; b < r.end; b++) each(j, b);                                                          \
    }
SHARE(step_share, step_block)
SHARE(undo_share, undo_block)
SHARE(reverse_share, reverse_block)

bool ht_adamw_step_logged(const struct ht_undo *u, const struct ht_adamw_step *step)
{
    struct job j = job_of(u, step);
    j.log = log_of(u->log, u->log_bytes, u->row.n);
    ht_pool_run(u->pool, step_share, &j);
    int64_t exceptions = atomic_load(&j.exceptions);
    bool refused = exceptions > j.log.room;
    if (refused) ht_pool_run(u->pool, undo_share, &j);
    *j.log.header = (struct header){.magic = MAGIC,
                                    .n = u->row.n,
                                    .exceptions = exceptions,
                                    .state = refused ? HT_UNDO_REFUSED : HT_UNDO_STEPPED,
                                    .step = *step};
    return !refused;
}

bool ht_adamw_undo_exact(const struct ht_undo *u)
{
    struct log l = log_of(u->log, u->log_bytes, u->row.n);
    if (!is_log(&l, u->row.n) || l.header->state == HT_UNDO_EMPTY) return false;
    struct job j = job_of(u, &l.header->step);
    j.log = l;
    if (l.header->state == HT_UNDO_STEPPED) ht_pool_run(u->pool, undo_share, &j);
    l.header->state = HT_UNDO_EMPTY;
    return true;
}

void ht_adamw_undo_arithmetic(const struct ht_undo *u, const struct ht_adamw_step *step)
{
    struct job j = job_of(u, step);
    ht_pool_run(u->pool, reverse_share, &j);
}
