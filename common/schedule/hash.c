/* A hash over everything that executors read. Structs have padding, so rows are hashed field by field. */
#include "common/schedule/build.h"
#include "common/schedule/names.h"

#include <assert.h>
#include <string.h>
#include <xxhash.h>

/* Fields are gathered in a buffer; the hash sees only whole ones. */
struct stream {
    XXH3_state_t *state;
    int64_t words[256];
    size_t n;
};

static void flush(struct stream *h)
{
    XXH3_64bits_update(h->state, h->words, h->n * sizeof h->words[0]);
    h->n = 0;
}

static void put(struct stream *h, int64_t word)
{
    if (h->n == sizeof h->words / sizeof h->words[0]) flush(h);
    h->words[h->n++] = word;
}

static void put_text(struct stream *h, const char *text, size_t n)
{
    char padded[64];
    assert(n <= sizeof padded && n % sizeof(int64_t) == 0);
    ht_copy_name(padded, n, text);
    for (size_t i = 0; i < n; i += sizeof(int64_t)) {
        int64_t word;
        memcpy(&word, padded + i, sizeof word);
        put(h, word);
    }
}

static void put_label(struct stream *h, const struct ht_label *l)
{
    put(h, l->unit);
    put(h, l->n_units);
    put(h, l->sub_ops);
    put(h, l->micro_batch);
}

static void put_tables(struct stream *h, const struct ht_schedule *s)
{
    put_text(h, s->name, sizeof s->name);
    put(h, s->n_ranks);
    put(h, s->n_nodes);
    for (int32_t i = 0; i < s->n_ranks; i++) put(h, s->rank_node[i]);
    for (int32_t i = 0; i < ht_n_spaces(s); i++) put(h, s->capacity_bytes[i]);
    put(h, s->n_units);
    put(h, s->n_micro_batches);
    put(h, s->n_lanes);
    for (int32_t i = 0; i < s->n_lanes; i++) {
        const struct ht_lane *l = &s->lanes[i];
        put_text(h, l->name, sizeof l->name);
        put(h, (int64_t)l->kind);
        put(h, (int64_t)l->order);
        put(h, l->rank);
        put(h, l->index);
    }
    put(h, s->n_resources);
    for (int32_t i = 0; i < s->n_resources; i++) {
        const struct ht_resource *r = &s->resources[i];
        put_text(h, r->name, sizeof r->name);
        put(h, (int64_t)r->kind);
        put(h, r->node);
        put(h, r->capacity_per_s);
    }
    put(h, s->n_tensors);
    for (int32_t i = 0; i < s->n_tensors; i++) {
        const struct ht_tensor *t = &s->tensors[i];
        put(h, (int64_t)t->class);
        put_label(h, &t->label);
        put(h, t->bytes);
        put(h, t->shard_begin);
        put(h, t->shard_end);
        put(h, t->rank);
    }
    put(h, s->n_residents);
    for (int32_t i = 0; i < s->n_residents; i++) {
        put(h, s->residents[i].tensor);
        put(h, (int64_t)s->residents[i].tier);
        put(h, s->residents[i].rank);
    }
    put(h, s->n_works);
    for (int32_t i = 0; i < s->n_works; i++) {
        int64_t words[HT_WORK_WORDS];
        ht_work_words(&s->works[i], words);
        for (int k = 0; k < HT_WORK_WORDS; k++) put(h, words[k]);
    }
}

static void put_op(struct stream *h, const struct ht_schedule *s, int32_t i)
{
    const struct ht_op *op = &s->ops[i];
    put(h, op->kind);
    put(h, op->when);
    put(h, op->lane);
    put(h, op->work);
    put(h, op->priority);
    put(h, op->match);
    put_label(h, &op->label);
    put_text(h, op->name, sizeof op->name);
    put(h, s->deps_begin[i + 1] - s->deps_begin[i]);
    for (int64_t k = s->deps_begin[i]; k < s->deps_begin[i + 1]; k++) put(h, s->deps[k]);
    put(h, s->prev_begin[i + 1] - s->prev_begin[i]);
    for (int64_t k = s->prev_begin[i]; k < s->prev_begin[i + 1]; k++) put(h, s->prev[k]);
    put(h, s->effects_begin[i + 1] - s->effects_begin[i]);
    for (int64_t k = s->effects_begin[i]; k < s->effects_begin[i + 1]; k++) {
        put(h, s->effects[k].tensor);
        put(h, s->effects[k].tier << 8 | s->effects[k].flags);
    }
    put(h, s->uses_begin[i + 1] - s->uses_begin[i]);
    for (int64_t k = s->uses_begin[i]; k < s->uses_begin[i + 1]; k++) {
        put(h, s->uses[k].resource);
        put(h, s->uses[k].amount);
    }
}

uint64_t ht_schedule_hash(const struct ht_schedule *s)
{
    struct stream h = {.state = XXH3_createState()};
    assert(h.state);
    XXH3_64bits_reset(h.state);
    put_tables(&h, s);
    put(&h, s->n_ops);
    for (int32_t i = 0; i < s->n_ops; i++) put_op(&h, s, i);
    flush(&h);
    uint64_t hash = XXH3_64bits_digest(h.state);
    XXH3_freeState(h.state);
    return hash;
}
