/*
 * A hash over everything that executors read, and digests of its parts, which show where two graphs differ. Structs
 * have padding, so rows are hashed field by field.
 */
#include "common/schedule/build.h"
#include "common/schedule/names.h"

#include <assert.h>
#include <string.h>
#include <xxhash.h>

const char *const ht_schedule_part_names[HT_N_SCHEDULE_PARTS] = {"header",    "lanes",   "resources", "tensors",
                                                                 "residents", "works",   "ops",       "groups",
                                                                 "edges",     "effects", "uses",      "names"};

/* A buffer of fields; the hash sees only full buffers. */
struct stream {
    XXH3_state_t *state;
    int64_t words[256];
    size_t n;
};

/* One stream per part, or the same one for all parts. */
struct streams {
    struct stream *of[HT_N_SCHEDULE_PARTS];
};

static void begin(struct stream *x)
{
    x->n = 0;
    x->state = XXH3_createState();
    assert(x->state);
    XXH3_64bits_reset(x->state);
}

static void flush(struct stream *x)
{
    XXH3_64bits_update(x->state, x->words, x->n * sizeof x->words[0]);
    x->n = 0;
}

static uint64_t end(struct stream *x)
{
    flush(x);
    uint64_t digest = XXH3_64bits_digest(x->state);
    XXH3_freeState(x->state);
    return digest;
}

static void put(struct streams *h, enum ht_schedule_part part, int64_t word)
{
    struct stream *x = h->of[part];
    if (x->n == sizeof x->words / sizeof x->words[0]) flush(x);
    x->words[x->n++] = word;
}

static void put_name(struct streams *h, const char *text, size_t n)
{
    char padded[64];
    assert(n <= sizeof padded && n % sizeof(int64_t) == 0);
    ht_copy_name(padded, n, text);
    for (size_t i = 0; i < n; i += sizeof(int64_t)) {
        int64_t word;
        memcpy(&word, padded + i, sizeof word);
        put(h, HT_PART_NAMES, word);
    }
}

static void put_label(struct streams *h, enum ht_schedule_part part, const struct ht_label *l)
{
    put(h, part, l->unit);
    put(h, part, l->n_units);
    put(h, part, l->sub_ops);
    put(h, part, l->micro_batch);
}

static void put_tables(struct streams *h, const struct ht_schedule *s)
{
    put_name(h, s->name, sizeof s->name);
    put(h, HT_PART_HEADER, s->n_ranks);
    put(h, HT_PART_HEADER, s->n_nodes);
    for (int32_t i = 0; i < s->n_ranks; i++) put(h, HT_PART_HEADER, s->rank_node[i]);
    for (int32_t i = 0; i < ht_n_spaces(s); i++) put(h, HT_PART_HEADER, s->capacity_bytes[i]);
    for (int32_t i = 0; i < ht_n_spaces(s); i++) {
        if (s->limit_bytes[i] == INT64_MAX) continue;
        put(h, HT_PART_HEADER, -1 - i); /* which one: a graph without limits has the same hash as before */
        put(h, HT_PART_HEADER, s->limit_bytes[i]);
    }
    if (s->allocator.own_bytes) {
        put(h, HT_PART_HEADER, -1 - ht_n_spaces(s)); /* likewise */
        put(h, HT_PART_HEADER, s->allocator.own_bytes);
        put(h, HT_PART_HEADER, s->allocator.round_bytes);
        put(h, HT_PART_HEADER, s->allocator.shared_bytes);
        put(h, HT_PART_HEADER, s->allocator.leaving);
        for (int32_t i = 0; i < s->n_ranks; i++) put(h, HT_PART_HEADER, s->communicator_bytes[i]);
    }
    put(h, HT_PART_HEADER, s->n_units);
    put(h, HT_PART_HEADER, s->n_micro_batches);
    for (int32_t j = 0; j < s->n_micro_batches && s->slices; j++) {
        put(h, HT_PART_HEADER, s->slices[j].first);
        put(h, HT_PART_HEADER, s->slices[j].count);
    }
    put(h, HT_PART_LANES, s->n_lanes);
    for (int32_t i = 0; i < s->n_lanes; i++) {
        const struct ht_lane *l = &s->lanes[i];
        put_name(h, l->name, sizeof l->name);
        put(h, HT_PART_LANES, (int64_t)l->kind);
        put(h, HT_PART_LANES, (int64_t)l->order);
        put(h, HT_PART_LANES, l->rank);
        put(h, HT_PART_LANES, l->index);
    }
    put(h, HT_PART_RESOURCES, s->n_resources);
    for (int32_t i = 0; i < s->n_resources; i++) {
        const struct ht_resource *r = &s->resources[i];
        put_name(h, r->name, sizeof r->name);
        put(h, HT_PART_RESOURCES, (int64_t)r->kind);
        put(h, HT_PART_RESOURCES, r->node);
        put(h, HT_PART_RESOURCES, r->capacity_per_s);
    }
    put(h, HT_PART_TENSORS, s->n_tensors);
    for (int32_t i = 0; i < s->n_tensors; i++) {
        const struct ht_tensor *t = &s->tensors[i];
        put(h, HT_PART_TENSORS, (int64_t)t->class);
        put_label(h, HT_PART_TENSORS, &t->label);
        put(h, HT_PART_TENSORS, t->bytes);
        put(h, HT_PART_TENSORS, t->shard_begin);
        put(h, HT_PART_TENSORS, t->shard_end);
        put(h, HT_PART_TENSORS, t->rank);
        if (t->sharded && t->shard_end == 0) put(h, HT_PART_TENSORS, -1);
        if (t->parts == 1) continue;
        put(h, HT_PART_TENSORS, -2);
        put(h, HT_PART_TENSORS, t->part);
        put(h, HT_PART_TENSORS, t->parts);
    }
    put(h, HT_PART_RESIDENTS, s->n_residents);
    for (int32_t i = 0; i < s->n_residents; i++) {
        put(h, HT_PART_RESIDENTS, s->residents[i].tensor);
        put(h, HT_PART_RESIDENTS, (int64_t)s->residents[i].tier);
        put(h, HT_PART_RESIDENTS, s->residents[i].rank);
    }
    put(h, HT_PART_WORKS, s->n_works);
    for (int32_t i = 0; i < s->n_works; i++) {
        int64_t words[HT_WORK_WORDS];
        ht_work_description(&s->works[i], words);
        for (int k = 0; k < HT_WORK_WORDS - 1; k++) put(h, HT_PART_WORKS, words[k]);
        if (s->works[i].even_bytes) put(h, HT_PART_WORKS, -s->works[i].even_bytes);
    }
}

static void put_op(struct streams *h, const struct ht_schedule *s, int32_t i)
{
    const struct ht_op *op = &s->ops[i];
    put(h, HT_PART_OPS, op->kind);
    put(h, HT_PART_OPS, op->when);
    put(h, HT_PART_OPS, op->lane);
    put(h, HT_PART_OPS, op->work);
    put(h, HT_PART_OPS, op->priority);
    put(h, HT_PART_GROUPS, op->match);
    put_label(h, HT_PART_OPS, &op->label);
    put_name(h, op->name, sizeof op->name);
    put(h, HT_PART_EDGES, s->deps_begin[i + 1] - s->deps_begin[i]);
    for (int64_t k = s->deps_begin[i]; k < s->deps_begin[i + 1]; k++) put(h, HT_PART_EDGES, s->deps[k]);
    put(h, HT_PART_EDGES, s->prev_begin[i + 1] - s->prev_begin[i]);
    for (int64_t k = s->prev_begin[i]; k < s->prev_begin[i + 1]; k++) put(h, HT_PART_EDGES, s->prev[k]);
    put(h, HT_PART_EFFECTS, s->effects_begin[i + 1] - s->effects_begin[i]);
    for (int64_t k = s->effects_begin[i]; k < s->effects_begin[i + 1]; k++) {
        put(h, HT_PART_EFFECTS, s->effects[k].tensor);
        put(h, HT_PART_EFFECTS, s->effects[k].tier << 8 | s->effects[k].flags);
    }
    put(h, HT_PART_USES, s->uses_begin[i + 1] - s->uses_begin[i]);
    for (int64_t k = s->uses_begin[i]; k < s->uses_begin[i + 1]; k++) {
        put(h, HT_PART_USES, s->uses[k].resource);
        put(h, HT_PART_USES, s->uses[k].amount);
    }
}

static void put_all(struct streams *h, const struct ht_schedule *s)
{
    put_tables(h, s);
    put(h, HT_PART_OPS, s->n_ops);
    for (int32_t i = 0; i < s->n_ops; i++) put_op(h, s, i);
}

uint64_t ht_schedule_hash(const struct ht_schedule *s)
{
    struct stream all;
    struct streams h;
    begin(&all);
    for (int p = 0; p < HT_N_SCHEDULE_PARTS; p++) h.of[p] = &all;
    put_all(&h, s);
    return end(&all);
}

void ht_schedule_digests(const struct ht_schedule *s, uint64_t digests[HT_N_SCHEDULE_PARTS])
{
    struct stream parts[HT_N_SCHEDULE_PARTS];
    struct streams h;
    for (int p = 0; p < HT_N_SCHEDULE_PARTS; p++) begin(h.of[p] = &parts[p]);
    put_all(&h, s);
    for (int p = 0; p < HT_N_SCHEDULE_PARTS; p++) digests[p] = end(&parts[p]);
}
