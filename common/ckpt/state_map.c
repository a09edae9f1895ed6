#include "common/ckpt/state_map.h"

#include "common/base/array.h"
#include "common/model/halves.h"

#include <stdlib.h>

struct ht_state_map {
    struct ht_model model;
    struct ht_state_copy *copies; /* by unit, part, rank */
    int64_t *first;               /* [n_units * HT_N_STATE_PARTS + 1] first copy of each part */
    unsigned *apart; /* [n_units] front of a block whose halves are divided into different numbers of parts, or 0 */
};

/* ---- one tensor ---- */

enum ht_state_part ht_state_part_of(const struct ht_tensor *t)
{
    switch (t->class) {
    case HT_PARAM:
    case HT_MASTER:
        return HT_STATE_PARAM;
    case HT_MOMENTUM:
        return HT_STATE_MOMENTUM;
    case HT_VARIANCE:
        return HT_STATE_VARIANCE;
    default:
        return HT_N_STATE_PARTS;
    }
}

bool ht_state_holds(const struct ht_tensor *t)
{
    return ht_state_part_of(t) != HT_N_STATE_PARTS;
}

/* Returns true if a tensor has the bytes of its elements. The shard that ends with its unit, or with the half of a block of
   which it is, may be padded, so that all shards have one size (common/draft/zero.c). */
static bool fits(const struct ht_tensor *t, int64_t elements, struct ht_range of, enum ht_dtype type)
{
    int64_t each = ht_dtype_bytes(type), room = t->bytes / each;
    bool padded = t->sharded && t->shard_end == of.end;
    if (elements < 0 || t->bytes % each) return false;
    return padded ? room >= elements && room <= of.end - of.begin : room == elements;
}

/* Fills in the fields of a copy from its tensor. */
static enum ht_status describe(const struct ht_model *m, enum ht_dtype param, const struct ht_tensor *t,
                               struct ht_error *err, struct ht_state_copy *c)
{
    int64_t unit = t->label.unit;
    if (unit < 0 || unit >= ht_model_units(m))
        return ht_fail(err, HT_FAILED, "a tensor of class '%s' is about unit %lld of a model with %lld",
                       ht_tensor_class_name(t->class), (long long)unit, (long long)ht_model_units(m));
    struct ht_model part = ht_tensor_model(t, m);
    int64_t n = ht_unit_params(&part, unit);
    c->begin = t->shard_begin;
    c->end = t->sharded ? t->shard_end : n;
    c->type = t->class == HT_PARAM ? param : HT_F32;
    c->tp_part = t->part;
    c->tp_parts = (int32_t)ht_model_parts(&part);
    struct ht_range of = ht_sub_ops_params(&part, unit, t->label.sub_ops);
    if (c->begin >= 0 && c->end <= n && fits(t, c->end - c->begin, of, c->type)) return HT_OK;
    return ht_fail(err, HT_FAILED, "unit %lld: a tensor of %lld bytes for elements %lld to %lld of %lld in %s",
                   (long long)unit, (long long)t->bytes, (long long)c->begin, (long long)c->end, (long long)n,
                   ht_dtype_name(c->type));
}

/* ---- all of them ---- */

static int32_t holder_of(const struct ht_schedule *s, const struct ht_resident *r)
{
    int32_t first = 0;
    if (r->tier == HT_DEVICE) return r->rank;
    while (s->rank_node[first] != s->rank_node[r->rank]) first++;
    return first;
}

/* Returns [n_tensors] the tiers, as 1 << tier, in which the tensor is resident and the optimizer steps it. */
static unsigned *stepped_tiers(const struct ht_schedule *s)
{
    unsigned *stepped = HT_NEW_ARRAY(unsigned, s->n_tensors), *resident = HT_NEW_ARRAY(unsigned, s->n_tensors);
    for (int32_t op = 0; op < s->n_ops; op++)
        for (int64_t e = s->effects_begin[op]; s->ops[op].kind == HT_OP_OPTIMIZER_STEP && e < s->effects_begin[op + 1];
             e++)
            if (s->effects[e].flags & (HT_UPDATE | HT_PRODUCE))
                stepped[s->effects[e].tensor] |= 1u << s->effects[e].tier;
    for (int32_t i = 0; i < s->n_residents; i++) resident[s->residents[i].tensor] |= 1u << s->residents[i].tier;
    for (int32_t i = 0; i < s->n_tensors; i++) stepped[i] &= resident[i];
    free(resident);
    return stepped;
}

struct entry {
    int64_t list;     /* unit * HT_N_STATE_PARTS + part */
    unsigned sub_ops; /* of which it is */
    struct ht_state_copy copy;
};

static int by_list(const void *va, const void *vb)
{
    const struct entry *a = va, *b = vb;
    if (a->list != b->list) return a->list < b->list ? -1 : 1;
    if (a->copy.rank != b->copy.rank) return a->copy.rank < b->copy.rank ? -1 : 1;
    return (a->copy.resident > b->copy.resident) - (a->copy.resident < b->copy.resident);
}

static enum ht_status collect(const struct ht_schedule *s, const struct ht_model *m, enum ht_dtype param,
                              struct ht_error *err, struct entry *entries, int64_t *n)
{
    unsigned *stepped = stepped_tiers(s);
    enum ht_status status = HT_OK;
    *n = 0;
    for (int32_t i = 0; i < s->n_residents && status == HT_OK; i++) {
        const struct ht_resident *r = &s->residents[i];
        const struct ht_tensor *t = &s->tensors[r->tensor];
        struct ht_state_copy c = {.resident = i};
        if (!ht_state_holds(t) || t->bytes == 0) continue;
        status = describe(m, param, t, err, &c);
        c.rank = holder_of(s, r);
        c.stale = c.type != HT_F32 || (stepped[r->tensor] && !(stepped[r->tensor] & 1u << r->tier));
        if (c.begin < c.end)
            entries[(*n)++] =
                (struct entry){t->label.unit * HT_N_STATE_PARTS + (int64_t)ht_state_part_of(t), t->label.sub_ops, c};
    }
    free(stepped);
    return status;
}

/* Returns true if a cut piece has a readable copy, or each of its shares has one. */
static bool is_readable(const struct ht_state_map *map, struct ht_piece p)
{
    const struct ht_state_copy *copies;
    int64_t n = ht_state_map_copies(map, p.unit, p.part, &copies);
    int32_t shares = ht_state_map_shares(map, p);
    for (int32_t q = 0; q < shares; q++) {
        bool readable = false;
        for (int64_t i = 0; i < n; i++)
            readable |= !copies[i].stale && ht_state_has(map, &copies[i], p, shares > 1 ? q : -1);
        if (!readable) return false;
    }
    return true;
}

/* Checks that every element has a readable copy. */
static enum ht_status check_cover(const struct ht_state_map *map, const struct ht_model *m, struct ht_error *err)
{
    for (int64_t u = 0; u < ht_model_units(m); u++)
        for (int part = 0; part < HT_N_STATE_PARTS; part++) {
            int64_t n = ht_unit_params(m, u), missing = 0;
            struct ht_piece p = {.unit = u, .part = (enum ht_state_part)part};
            for (; p.begin < n; p.begin = p.end) {
                p.end = n;
                p = ht_state_map_cut(map, p);
                if (!is_readable(map, p)) missing += p.end - p.begin;
            }
            if (missing)
                return ht_fail(err, HT_FAILED, "unit %lld: %lld of %lld elements of its %s are resident nowhere",
                               (long long)u, (long long)missing, (long long)n, ht_state_part_names[part]);
        }
    return HT_OK;
}

enum ht_status ht_state_map_create(const struct ht_schedule *s, const struct ht_model *model, enum ht_dtype param,
                                   struct ht_error *err, struct ht_state_map **out)
{
    int64_t n_lists = ht_model_units(model) * HT_N_STATE_PARTS, n;
    struct entry *entries = HT_NEW_ARRAY(struct entry, s->n_residents);
    struct ht_state_map *map = HT_NEW(struct ht_state_map);
    map->model = *model;
    enum ht_status status = collect(s, model, param, err, entries, &n);
    qsort(entries, (size_t)n, sizeof(*entries), by_list);
    map->copies = HT_NEW_ARRAY(struct ht_state_copy, n);
    map->first = HT_NEW_ARRAY(int64_t, n_lists + 1);
    map->apart = HT_NEW_ARRAY(unsigned, ht_model_units(model));
    for (int64_t i = 0; i < n; i++) {
        map->copies[i] = entries[i].copy;
        map->first[entries[i].list + 1] = i + 1;
        bool same_list = i && entries[i].list == entries[i - 1].list;
        if (same_list && entries[i].copy.tp_parts != entries[i - 1].copy.tp_parts)
            map->apart[entries[i].list / HT_N_STATE_PARTS] = ht_front_of(entries[i].sub_ops);
    }
    for (int64_t i = 0; i < n_lists; i++)
        if (map->first[i + 1] < map->first[i]) map->first[i + 1] = map->first[i];
    free(entries);
    if (status == HT_OK) status = check_cover(map, model, err);
    if (status == HT_OK)
        *out = map;
    else
        ht_state_map_destroy(map);
    return status;
}

void ht_state_map_destroy(struct ht_state_map *map)
{
    if (!map) return;
    free(map->copies);
    free(map->first);
    free(map->apart);
    free(map);
}

int64_t ht_state_map_copies(const struct ht_state_map *map, int64_t unit, enum ht_state_part part,
                            const struct ht_state_copy **out)
{
    int64_t list = unit * HT_N_STATE_PARTS + (int64_t)part;
    *out = &map->copies[map->first[list]];
    return map->first[list + 1] - map->first[list];
}

/* Returns the model whose units a copy has elements of: the whole one, or a tensor-parallel part. */
static struct ht_model model_of(const struct ht_state_map *map, const struct ht_state_copy *c)
{
    return ht_model_part(&map->model, c->tp_part, c->tp_parts);
}

/* Returns true if element `at` of a unit of the model, or of a part of it, belongs to the back of a block. */
static bool is_in_back(const struct ht_model *m, int64_t unit, unsigned front, int64_t at)
{
    return at >= ht_sub_ops_params(m, unit, front).end;
}

/* Returns the number of tensor-parallel parts of a piece. The halves of a block, if copies have one or the other, may be divided
   differently. */
static int32_t parts_of(const struct ht_state_map *map, struct ht_piece piece)
{
    const struct ht_state_copy *copies;
    int64_t n = ht_state_map_copies(map, piece.unit, piece.part, &copies);
    for (int64_t i = 0; i < n && map->apart[piece.unit]; i++) {
        struct ht_model part = model_of(map, &copies[i]);
        unsigned front = map->apart[piece.unit];
        bool back = is_in_back(&map->model, piece.unit, front, piece.begin);
        if (is_in_back(&part, piece.unit, front, copies[i].begin) == back) return copies[i].tp_parts;
    }
    return n ? copies[0].tp_parts : 1;
}

/* Returns the matrix or vector that contains element `at` of a unit. */
static struct ht_param_part tensor_at(const struct ht_model *m, int64_t unit, int64_t at)
{
    struct ht_param_part tensors[HT_MAX_PARAM_PARTS];
    int i = ht_unit_param_parts(m, unit, tensors) - 1;
    while (tensors[i].offset > at) i--;
    return tensors[i];
}

/* Returns the place in the whole unit of an element at which a copy begins or ends. Elements of a part keep their
   order. */
static int64_t in_whole(const struct ht_state_map *map, const struct ht_state_copy *c, int64_t unit, int64_t at)
{
    if (c->tp_parts == 1 || at == 0) return at;
    struct ht_model part = model_of(map, c);
    return at < ht_unit_params(&part, unit) ? ht_unit_part_run(&part, unit, at).whole
                                            : ht_unit_params(&map->model, unit);
}

struct ht_piece ht_state_map_cut(const struct ht_state_map *map, struct ht_piece piece)
{
    const struct ht_state_copy *copies;
    int64_t n = ht_state_map_copies(map, piece.unit, piece.part, &copies);
    if (piece.end - piece.begin > HT_PIECE_ELEMENTS) piece.end = piece.begin + HT_PIECE_ELEMENTS;
    if (parts_of(map, piece) > 1) {
        struct ht_param_part t = tensor_at(&map->model, piece.unit, piece.begin);
        if (piece.end > t.offset + t.rows * t.cols) piece.end = t.offset + t.rows * t.cols;
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t begin = in_whole(map, &copies[i], piece.unit, copies[i].begin);
        if (piece.begin < begin && begin < piece.end) piece.end = begin;
        int64_t end = in_whole(map, &copies[i], piece.unit, copies[i].end);
        if (piece.begin < end && end < piece.end) piece.end = end;
    }
    return piece;
}

int32_t ht_state_map_shares(const struct ht_state_map *map, struct ht_piece piece)
{
    bool cut = tensor_at(&map->model, piece.unit, piece.begin).split != HT_SPLIT_NONE;
    return cut ? parts_of(map, piece) : 1;
}

bool ht_state_has(const struct ht_state_map *map, const struct ht_state_copy *c, struct ht_piece piece, int32_t share)
{
    int64_t begin = piece.begin, end = piece.end;
    if (share >= 0 && share != c->tp_part) return false;
    if (map->apart[piece.unit] && c->tp_parts != parts_of(map, piece)) return false; /* it has the block's other half */
    if (c->tp_parts > 1) {
        struct ht_model part = model_of(map, c);
        begin = ht_unit_part_find(&part, piece.unit, begin).at;
        end = ht_unit_part_find(&part, piece.unit, end).at;
        if (begin == end) return true; /* an empty share */
    }
    return c->begin <= begin && end <= c->end && piece.begin < piece.end;
}

bool ht_state_next_run(const struct ht_state_map *map, const struct ht_state_copy *c, struct ht_piece piece,
                       int64_t *at, struct ht_state_run *out)
{
    struct ht_part_run r = {*at, *at, piece.end - *at, false};
    if (c->tp_parts > 1) {
        struct ht_model part = model_of(map, c);
        r = ht_unit_part_find(&part, piece.unit, *at);
    }
    if (r.count > piece.end - r.whole) r.count = piece.end - r.whole;
    *out = (struct ht_state_run){r.at - c->begin, r.whole - piece.begin, r.count};
    *at = r.whole + r.count;
    return r.count > 0;
}
