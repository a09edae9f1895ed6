/* The tables of a schedule: lanes, resources, tensors, residents. Ops are in build.c, works in work.c. */
#include "common/schedule/schedule.h"

#include "common/base/array.h"
#include "common/schedule/build.h"
#include "common/schedule/fold.h"
#include "common/schedule/names.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Starts a begin array with its one sentinel. */
static void start_list(int64_t **begin, size_t *cap)
{
    HT_RESERVE(*begin, *cap, 1);
    (*begin)[0] = 0;
}

struct ht_schedule *ht_schedule_create(const char *name, int32_t n_ranks, int32_t n_nodes, const int32_t *rank_node)
{
    assert(n_ranks >= 1 && n_nodes >= 1);
    struct ht_schedule *s = HT_NEW(struct ht_schedule);
    ht_copy_name(s->name, sizeof s->name, name);
    s->n_ranks = n_ranks;
    s->n_nodes = n_nodes;
    s->rank_node = HT_NEW_ARRAY(int32_t, n_ranks);
    if (rank_node) memcpy(s->rank_node, rank_node, sizeof(int32_t) * (size_t)n_ranks);
    for (int32_t r = 0; r < n_ranks; r++) assert(s->rank_node[r] >= 0 && s->rank_node[r] < n_nodes);
    s->capacity_bytes = HT_NEW_ARRAY(int64_t, ht_n_spaces(s));
    s->limit_bytes = HT_NEW_ARRAY(int64_t, ht_n_spaces(s));
    for (int32_t i = 0; i < ht_n_spaces(s); i++) s->capacity_bytes[i] = s->limit_bytes[i] = INT64_MAX;
    s->communicator_bytes = HT_NEW_ARRAY(int64_t, n_ranks);
    start_list(&s->deps_begin, &s->deps_begin_cap);
    start_list(&s->prev_begin, &s->prev_begin_cap);
    start_list(&s->effects_begin, &s->effects_begin_cap);
    start_list(&s->uses_begin, &s->uses_begin_cap);
    return s;
}

void ht_schedule_destroy(struct ht_schedule *s)
{
    if (!s) return;
    ht_builder_destroy(s->work_index);
    ht_fold_destroy(s->fold);
    free(s->rank_node);
    free(s->capacity_bytes);
    free(s->limit_bytes);
    free(s->communicator_bytes);
    free(s->slices);
    free(s->lanes);
    free(s->resources);
    free(s->tensors);
    free(s->residents);
    free(s->works);
    free(s->ops);
    free(s->deps);
    free(s->deps_begin);
    free(s->prev);
    free(s->prev_begin);
    free(s->effects);
    free(s->effects_begin);
    free(s->uses);
    free(s->uses_begin);
    free(s);
}

bool ht_op_scales(const struct ht_schedule *s, int32_t op)
{
    if (s->ops[op].kind != HT_OP_FORWARD && s->ops[op].kind != HT_OP_RECOMPUTE) return false;
    for (int64_t e = s->effects_begin[op]; e < s->effects_begin[op + 1]; e++) {
        const struct ht_effect *x = &s->effects[e];
        bool kept = x->flags & (HT_PRODUCE | HT_UPDATE) && !(x->flags & HT_RELEASE);
        if (kept && s->tensors[x->tensor].class == HT_LOGITS) return true;
    }
    return false;
}

void ht_schedule_set_capacity(struct ht_schedule *s, enum ht_tier tier, int32_t rank, int64_t bytes)
{
    assert(rank >= 0 && rank < s->n_ranks && bytes >= 0);
    s->capacity_bytes[ht_space(s, tier, rank)] = bytes;
}

void ht_schedule_set_limit(struct ht_schedule *s, enum ht_tier tier, int32_t rank, int64_t bytes)
{
    assert(rank >= 0 && rank < s->n_ranks && bytes >= 0);
    s->limit_bytes[ht_space(s, tier, rank)] = bytes;
}

void ht_schedule_copy_spaces(struct ht_schedule *to, const struct ht_schedule *from)
{
    assert(to->n_ranks == from->n_ranks && to->n_nodes == from->n_nodes);
    memcpy(to->capacity_bytes, from->capacity_bytes, sizeof(int64_t) * (size_t)ht_n_spaces(from));
    memcpy(to->communicator_bytes, from->communicator_bytes, sizeof(int64_t) * (size_t)from->n_ranks);
    to->allocator = from->allocator;
}

int32_t ht_add_lane(struct ht_schedule *s, const char *name, enum ht_lane_kind kind, int32_t rank,
                    enum ht_lane_order order)
{
    assert(rank >= 0 && rank < s->n_ranks);
    struct ht_lane lane = {.kind = kind, .order = order, .rank = rank};
    ht_copy_name(lane.name, sizeof lane.name, name);
    struct ht_sparse *counts = &ht_builder_of(s)->lanes;
    int64_t key = (int64_t)rank * HT_N_LANE_KINDS + (int64_t)kind;
    lane.index = (int32_t)(ht_sparse_get(counts, key) + 1);
    ht_sparse_set(counts, key, lane.index);
    HT_PUSH(s->lanes, s->n_lanes, s->lanes_cap, lane);
    return s->n_lanes - 1;
}

void ht_schedule_set_micro_batches(struct ht_schedule *s, int32_t n, const struct ht_slice *slices)
{
    s->n_micro_batches = n;
    free(s->slices);
    s->slices = slices ? HT_NEW_ARRAY(struct ht_slice, n) : NULL;
    for (int32_t j = 0; j < n && slices; j++) s->slices[j] = slices[j];
}

int32_t ht_add_resource(struct ht_schedule *s, const char *name, enum ht_resource_kind kind, int32_t node,
                        int64_t capacity_per_s)
{
    struct ht_resource resource = {.kind = kind, .node = node, .capacity_per_s = capacity_per_s};
    ht_copy_name(resource.name, sizeof resource.name, name);
    HT_PUSH(s->resources, s->n_resources, s->resources_cap, resource);
    return s->n_resources - 1;
}

int32_t ht_add_tensor(struct ht_schedule *s, struct ht_tensor tensor)
{
    tensor.sharded = tensor.sharded || tensor.shard_end > 0;
    if (tensor.parts == 0) tensor.parts = 1;
    HT_PUSH(s->tensors, s->n_tensors, s->tensors_cap, tensor);
    return s->n_tensors - 1;
}

void ht_add_resident(struct ht_schedule *s, int32_t tensor, enum ht_tier tier, int32_t rank)
{
    struct ht_resident resident = {.tensor = tensor, .tier = tier, .rank = rank};
    HT_PUSH(s->residents, s->n_residents, s->residents_cap, resident);
}
