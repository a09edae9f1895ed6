/* Works: the keys under which a profile has the costs of ops. Equal works share a row. */
#include "common/base/array.h"
#include "common/schedule/build.h"
#include "common/schedule/names.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

void ht_work_description(const struct ht_work *w, int64_t words[HT_WORK_WORDS])
{
    int64_t fields[HT_WORK_WORDS - 5] = {
        (int64_t)w->kind,
        (int64_t)w->where,
        (int64_t)w->unit,
        (int64_t)w->arch,
        w->n_units,
        w->sub_ops,
        w->batch,
        w->seq,
        w->width,
        w->heads,
        w->ffn,
        w->vocab,
        w->kv_heads,
        w->tied,
        w->flash,
        w->dropout,
        (int64_t)w->dtype,
        (int64_t)w->grad_dtype,
        w->tp,
        w->ranks,
        w->params,
        w->bytes,
        w->free | (int64_t)w->write << 1 |
            (int64_t)w->sequence << 2, /* one word: graphs without disks keep their hash */
    };
    char custom[4 * sizeof(int64_t)];
    _Static_assert(sizeof custom == sizeof w->custom, "the custom name is four words");
    ht_copy_name(custom, sizeof custom, w->custom);
    memcpy(words, fields, sizeof fields);
    memcpy(words + HT_WORK_WORDS - 5, custom, sizeof custom);
    words[HT_WORK_WORDS - 1] = w->even_bytes;
}

static uint64_t hash_of(const int64_t words[HT_WORK_WORDS])
{
    return XXH3_64bits(words, HT_WORK_WORDS * sizeof *words);
}

static const int64_t *words_of(const struct ht_builder *b, int32_t row)
{
    return b->words + (size_t)row * HT_WORK_WORDS;
}

static void insert(struct ht_builder *b, int32_t row)
{
    size_t i = hash_of(words_of(b, row)) & (b->n_slots - 1);
    while (b->slots[i] >= 0) i = (i + 1) & (b->n_slots - 1);
    b->slots[i] = row;
}

/* Keeps the description of a further row. */
static void describe(struct ht_builder *b, const int64_t words[HT_WORK_WORDS])
{
    HT_RESERVE(b->words, b->words_cap, ((size_t)b->n_described + 1) * HT_WORK_WORDS);
    memcpy(b->words + (size_t)b->n_described++ * HT_WORK_WORDS, words, HT_WORK_WORDS * sizeof *words);
}

/* Grows the table so that it stays at most half full, which keeps probing short. */
static void grow(struct ht_builder *b, const struct ht_schedule *s)
{
    int64_t words[HT_WORK_WORDS];
    while (2 * ((size_t)s->n_works + 1) > b->n_slots) b->n_slots = b->n_slots ? 2 * b->n_slots : 64;
    free(b->slots);
    b->slots = ht_alloc_ids((int64_t)b->n_slots);
    while (b->n_described < s->n_works) {
        ht_work_description(&s->works[b->n_described], words);
        describe(b, words);
    }
    for (int32_t row = 0; row < s->n_works; row++) insert(b, row);
}

int32_t ht_add_work(struct ht_schedule *s, const struct ht_work *work)
{
    struct ht_builder *b = ht_builder_of(s);
    int64_t words[HT_WORK_WORDS];
    ht_work_description(work, words);
    /* Works come in turn: most are the last one of their kind. */
    int32_t *recent = &b->recent[((size_t)work->kind * 4 + (size_t)work->unit) & (HT_COUNT(b->recent) - 1)];
    if (*recent < b->n_described && !memcmp(words_of(b, *recent), words, sizeof words)) return *recent;
    if (2 * ((size_t)s->n_works + 1) > b->n_slots) grow(b, s);
    for (size_t i = hash_of(words) & (b->n_slots - 1); b->slots[i] >= 0; i = (i + 1) & (b->n_slots - 1))
        if (!memcmp(words_of(b, b->slots[i]), words, sizeof words)) return *recent = b->slots[i];
    struct ht_work row = *work;
    ht_copy_name(row.custom, sizeof row.custom, work->custom);
    HT_PUSH(s->works, s->n_works, s->works_cap, row);
    describe(b, words);
    insert(b, s->n_works - 1);
    return *recent = s->n_works - 1;
}

/* ---- inside a pass over parts ---- */

/* Returns the reduce-scatters and all-gathers of (B,T,C) in a pass over parts that cut rows. */
static int32_t halves(const struct ht_work *w)
{
    bool backward = w->kind == HT_OP_BACKWARD, whole = ht_arch_repeats(w->arch, w->unit);
    uint32_t around = 1u << HT_SUB_QKV | 1u << HT_SUB_PROJ | 1u << HT_SUB_FC1 | 1u << HT_SUB_FC2;
    uint32_t again = 1u << HT_SUB_QKV | 1u << HT_SUB_FC1; /* the norms' outputs, in front of these */
    if (w->unit == HT_UNIT_BLOCK)
        return __builtin_popcount(w->sub_ops & around) + (backward ? __builtin_popcount(w->sub_ops & again) : 0);
    if (w->unit == HT_UNIT_EMBEDDING) return backward || !whole;
    return whole ? !backward : 1 + backward;
}

struct ht_part_sums ht_work_part_sums(const struct ht_work *w)
{
    bool backward = w->kind == HT_OP_BACKWARD, logits = w->unit == HT_UNIT_HEAD && !backward;
    uint32_t summed = backward ? 1u << HT_SUB_QKV | 1u << HT_SUB_FC1 : 1u << HT_SUB_PROJ | 1u << HT_SUB_FC2;
    int64_t elements = w->batch * w->seq * (logits ? w->tp : w->width); /* an all-gather sends half as much */
    struct ht_part_sums sums = {0};
    if (w->tp > 1 && w->sequence) {
        sums.n_halves = halves(w) * w->n_units;
        sums.half_bytes =
            (w->tp - 1) * (w->batch * w->seq / w->tp) * w->width * ht_dtype_bytes(w->dtype); /* rows are even */
    }
    if (w->tp <= 1 || ht_arch_repeats(w->arch, w->unit) || (w->sequence && !logits)) return sums;
    sums.n = w->unit == HT_UNIT_BLOCK ? __builtin_popcount(w->sub_ops & summed) : w->unit == HT_UNIT_HEAD || !backward;
    sums.n *= w->n_units;
    sums.bytes = 2 * (w->tp - 1) * ((elements + w->tp - 1) / w->tp) * ht_dtype_bytes(logits ? HT_F32 : w->dtype);
    return sums;
}

/* ---- the canonical key ---- */

struct text {
    char *buf;
    size_t n, used;
};

static void add(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add(struct text *t, const char *fmt, ...)
{
    if (t->used >= t->n) return;
    va_list ap;
    va_start(ap, fmt);
    int k = vsnprintf(t->buf + t->used, t->n - t->used, fmt, ap);
    va_end(ap);
    if (k > 0) t->used += (size_t)k;
}

static void add_count(struct text *t, const char *name, int64_t value)
{
    add(t, " %s=%lld", name, (long long)value);
}

static void add_where(struct text *t, const struct ht_work *w)
{
    add(t, " where=%s", ht_lane_kind_name(w->where));
}

/* Adds the shape of the unit for forward, recompute and backward. A whole block leaves out its sub-ops; GPT is not
   named. */
static void compute_key(struct text *t, const struct ht_work *w)
{
    bool block = w->unit == HT_UNIT_BLOCK;
    add(t, " %s", ht_unit_kind_names[w->unit]);
    if (w->arch != HT_ARCH_GPT) add(t, " %s", ht_work_arch_names[w->arch]);
    if (w->where != HT_LANE_COMPUTE) add_where(t, w);
    if (w->n_units > 1) add_count(t, "units", w->n_units);
    if (block && w->sub_ops != HT_ALL_SUB_OPS) {
        const char *sep = " sub_ops=";
        for (int i = 0; i < HT_N_SUB_OPS; i++)
            if (w->sub_ops >> i & 1) {
                add(t, "%s%s", sep, ht_sub_op_names[i]);
                sep = "+";
            }
    }
    add_count(t, "batch", w->batch);
    add_count(t, "seq", w->seq);
    add_count(t, "width", w->width);
    if (block) {
        add_count(t, "heads", w->heads);
        if (w->kv_heads && w->kv_heads != w->heads) add_count(t, "kv_heads", w->kv_heads);
        add_count(t, "ffn", w->ffn);
    } else {
        add_count(t, "vocab", w->vocab);
        add_count(t, "tied", w->tied);
    }
    if (block && w->flash) add(t, " flash");
    if (block && w->dropout) add(t, " dropout");
    add(t, " dtype=%s", ht_work_dtype_names[w->dtype]);
    if (w->kind == HT_OP_BACKWARD) add(t, " grad=%s", ht_work_dtype_names[w->grad_dtype]);
    if (w->tp > 1) add_count(t, "tp", w->tp);
    if (w->tp > 1 && w->sequence) add(t, " sequence");
}

const char *ht_work_key(const struct ht_work *w, char *buf, size_t n)
{
    struct text t = {.buf = buf, .n = n};
    if (n == 0) return buf;
    if (w->custom[0]) {
        add(&t, "%.*s", (int)sizeof w->custom, w->custom);
        return buf;
    }
    add(&t, "%s", ht_op_kind_name(w->kind));
    if (w->free) {
        add(&t, " free");
        return buf;
    }
    switch (w->kind) {
    case HT_OP_FORWARD:
    case HT_OP_RECOMPUTE:
    case HT_OP_BACKWARD:
        compute_key(&t, w);
        break;
    case HT_OP_ACCUMULATE:
    case HT_OP_OPTIMIZER_STEP:
    case HT_OP_UNDO:
        add_where(&t, w);
        add_count(&t, "params", w->params);
        if (w->kind != HT_OP_ACCUMULATE) add(&t, " dtype=%s", ht_work_dtype_names[w->dtype]);
        if (w->kind == HT_OP_ACCUMULATE && w->dtype != HT_F32) add(&t, " sum=%s", ht_work_dtype_names[w->dtype]);
        add(&t, " grad=%s", ht_work_dtype_names[w->grad_dtype]);
        if (w->kind != HT_OP_ACCUMULATE && w->bytes) add_count(&t, "log", w->bytes);
        break;
    case HT_OP_ALL_GATHER:
    case HT_OP_REDUCE_SCATTER:
    case HT_OP_ALL_REDUCE:
        add_count(&t, "ranks", w->ranks);
        add_count(&t, "bytes", w->bytes);
        if (w->even_bytes) add_count(&t, "even", w->even_bytes);
        if (w->kind != HT_OP_ALL_GATHER) add(&t, " grad=%s", ht_work_dtype_names[w->grad_dtype]);
        break;
    case HT_OP_VALIDATE:
        add_where(&t, w);
        add_count(&t, "params", w->params);
        add_count(&t, "ranks", w->ranks);
        if (w->params) add(&t, " grad=%s", ht_work_dtype_names[w->grad_dtype]);
        break;
    case HT_OP_RESTORE:
        add_where(&t, w);
        if (w->params) add_count(&t, "params", w->params);
        if (w->params) add(&t, " dtype=%s", ht_work_dtype_names[w->dtype]);
        if (!w->params) add_count(&t, "bytes", w->bytes);
        break;
    default: /* copy, send, receive, transpose */
        add_where(&t, w);
        if (w->write) add(&t, " write");
        add_count(&t, "bytes", w->bytes);
    }
    return buf;
}
