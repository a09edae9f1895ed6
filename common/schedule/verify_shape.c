/*
 * Shape: proves that every index is in range, that every op depends on earlier ops only, and that every op is on a lane
 * that can run its kind. The other rules rely on it.
 *
 * One pass over each table and over the ops, in time linear in their sizes. The sum of all allocated bytes is bounded
 * last, so that no sum of the memory rule can overflow.
 */
#include "common/schedule/rules.h"

#include "common/base/array.h"
#include "common/schedule/limits.h"
#include "common/schedule/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool in(int64_t i, int64_t n)
{
    return i >= 0 && i < n;
}

static enum ht_status check_header(const struct ht_schedule *s, struct ht_error *err)
{
    if (s->n_ranks < 1 || s->n_ranks > HT_MAX_RANKS)
        return ht_broken(s, err, "has %d ranks; expected 1 to %d", s->n_ranks, HT_MAX_RANKS);
    if (s->n_nodes < 1 || s->n_nodes > HT_MAX_RANKS)
        return ht_broken(s, err, "has %d nodes; expected 1 to %d", s->n_nodes, HT_MAX_RANKS);
    for (int32_t r = 0; r < s->n_ranks; r++)
        if (!in(s->rank_node[r], s->n_nodes))
            return ht_broken(s, err, "rank %d is on node %d; the schedule has %d nodes", r, s->rank_node[r],
                             s->n_nodes);
    for (int32_t i = 0; i < ht_n_spaces(s); i++) {
        char space[32];
        if (s->capacity_bytes[i] < 0)
            return ht_broken(s, err, "%s has a negative capacity", ht_space_name(s, i, space, sizeof space));
        if (s->limit_bytes[i] < 0)
            return ht_broken(s, err, "%s has a negative limit", ht_space_name(s, i, space, sizeof space));
    }
    if (!in(s->n_units, HT_MAX_UNITS + 1))
        return ht_broken(s, err, "has %d units; expected 0 to %d", s->n_units, HT_MAX_UNITS);
    if (!in(s->n_micro_batches, HT_MAX_MICRO_BATCHES + 1))
        return ht_broken(s, err, "has %d micro-batches; expected 0 to %d", s->n_micro_batches, HT_MAX_MICRO_BATCHES);
    if ((int64_t)s->n_units * s->n_micro_batches > HT_MAX_UNIT_BATCHES)
        return ht_broken(s, err, "has %d units times %d micro-batches; expected at most %d in all", s->n_units,
                         s->n_micro_batches, HT_MAX_UNIT_BATCHES);
    return HT_OK;
}

/* Returns true if a label is surely right: most are about a unit and a micro-batch. */
static inline bool is_plain(const struct ht_schedule *s, const struct ht_label *l)
{
    return l->unit >= 0 && l->n_units >= 1 && l->n_units <= HT_MAX_UNITS && l->n_units <= s->n_units - l->unit &&
           !(l->sub_ops & ~HT_ALL_SUB_OPS) && l->micro_batch >= -1 && l->micro_batch < s->n_micro_batches;
}

/* Writes into `why` what is wrong with a label; "" if nothing is. */
static enum ht_status check_label(const struct ht_schedule *s, const struct ht_label *l, char *why, size_t n)
{
    why[0] = 0;
    if (is_plain(s, l)) return HT_OK;
    if (l->unit < -1 || (s->n_units > 0 && l->unit >= s->n_units))
        snprintf(why, n, "is about unit %d; the schedule has %d units", l->unit, s->n_units);
    else if (l->unit >= 0 && (l->n_units < 1 || l->n_units > HT_MAX_UNITS))
        snprintf(why, n, "is about %d units; expected 1 to %d", l->n_units, HT_MAX_UNITS);
    else if (l->unit >= 0 && s->n_units > 0 && (int64_t)l->unit + l->n_units > s->n_units)
        snprintf(why, n, "is about units %d to %lld; the schedule has %d units", l->unit,
                 (long long)l->unit + l->n_units - 1, s->n_units);
    else if (l->sub_ops & ~HT_ALL_SUB_OPS)
        snprintf(why, n, "has unknown sub-ops 0x%x", l->sub_ops);
    else if (l->micro_batch < -1 || (s->n_micro_batches > 0 && l->micro_batch >= s->n_micro_batches))
        snprintf(why, n, "is about micro-batch %d; the schedule has %d micro-batches", l->micro_batch,
                 s->n_micro_batches);
    return why[0] ? HT_FAILED : HT_OK;
}

static enum ht_status check_lanes(const struct ht_schedule *s, struct ht_error *err)
{
    for (int32_t i = 0; i < s->n_lanes; i++) {
        const struct ht_lane *l = &s->lanes[i];
        if (!in(l->rank, s->n_ranks))
            return ht_broken(s, err, "lane %d (%.24s): is on rank %d; the schedule has %d ranks", i, l->name, l->rank,
                             s->n_ranks);
        if (!in(l->kind, HT_N_LANE_KINDS)) return ht_broken(s, err, "lane %d (%.24s): has an unknown kind", i, l->name);
        if (l->order != HT_FIFO && l->order != HT_PRIORITY)
            return ht_broken(s, err, "lane %d (%.24s): has an unknown order", i, l->name);
        if (l->order != HT_FIFO && (l->kind == HT_LANE_COLLECTIVE || l->kind == HT_LANE_P2P))
            return ht_broken(s, err, "lane %d (%.24s): a %s lane has peers; expected the order FIFO", i, l->name,
                             ht_lane_kind_name(l->kind));
    }
    for (int32_t i = 0; i < s->n_resources; i++) {
        const struct ht_resource *r = &s->resources[i];
        if (!in(r->node, s->n_nodes))
            return ht_broken(s, err, "resource %d (%.32s): is on node %d; the schedule has %d nodes", i, r->name,
                             r->node, s->n_nodes);
        if (!in(r->kind, HT_N_RESOURCE_KINDS))
            return ht_broken(s, err, "resource %d (%.32s): has an unknown kind", i, r->name);
        if (r->capacity_per_s < 1)
            return ht_broken(s, err, "resource %d (%.32s): has a capacity of %lld per second; expected at least 1", i,
                             r->name, (long long)r->capacity_per_s);
    }
    return HT_OK;
}

static enum ht_status check_tensors(const struct ht_schedule *s, struct ht_error *err)
{
    char why[96];
    for (int32_t i = 0; i < s->n_tensors; i++) {
        const struct ht_tensor *t = &s->tensors[i];
        if (!in(t->class, HT_N_TENSOR_CLASSES)) return ht_broken(s, err, "tensor %d: has an unknown class", i);
        if (t->bytes < 0 || t->bytes > HT_MAX_TENSOR_BYTES)
            return ht_broken(s, err, "%s: has %lld bytes; expected 0 to %lld", ht_phrase_tensor(s, i).text,
                             (long long)t->bytes, (long long)HT_MAX_TENSOR_BYTES);
        if (t->shard_begin < 0 || t->shard_end < t->shard_begin)
            return ht_broken(s, err, "%s: has the shard [%lld, %lld)", ht_phrase_tensor(s, i).text,
                             (long long)t->shard_begin, (long long)t->shard_end);
        if (!in(t->parts - 1, HT_MAX_RANKS) || !in(t->part, t->parts))
            return ht_broken(s, err, "%s: is part %d of %d", ht_phrase_tensor(s, i).text, t->part, t->parts);
        if (!in(t->rank, s->n_ranks))
            return ht_broken(s, err, "%s: is owned by rank %d; the schedule has %d ranks", ht_phrase_tensor(s, i).text,
                             t->rank, s->n_ranks);
        if (check_label(s, &t->label, why, sizeof why))
            return ht_broken(s, err, "%s: %s", ht_phrase_tensor(s, i).text, why);
    }
    for (int32_t i = 0; i < s->n_residents; i++) {
        const struct ht_resident *r = &s->residents[i];
        if (!in(r->tensor, s->n_tensors) || !in(r->tier, HT_N_TIERS) || !in(r->rank, s->n_ranks))
            return ht_broken(s, err, "resident %d: tensor %d of %d, tier %d, rank %d of %d", i, r->tensor, s->n_tensors,
                             (int)r->tier, r->rank, s->n_ranks);
    }
    return HT_OK;
}

static enum ht_status check_works(const struct ht_schedule *s, struct ht_error *err)
{
    for (int32_t i = 0; i < s->n_works; i++) {
        const struct ht_work *w = &s->works[i];
        if (!in(w->kind, HT_N_OP_KINDS) || !in(w->where, HT_N_LANE_KINDS) || !in(w->unit, HT_N_UNIT_KINDS) ||
            !in(w->arch, HT_N_ARCHS) || !in(w->dtype, HT_N_DTYPES) || !in(w->grad_dtype, HT_N_DTYPES))
            return ht_broken(s, err, "work %d: has an unknown kind, lane kind, unit kind, arch or dtype", i);
        if (w->bytes < 0 || w->params < 0) return ht_broken(s, err, "work %d: has negative bytes or parameters", i);
    }
    return HT_OK;
}

#define LANE(k) (1u << HT_LANE_##k)

/* The kinds of lanes that can run each kind of op. Copies run on every lane that moves bytes; those within a device run
   on the compute lane. */
// clang-format off
static const unsigned lanes_of[HT_N_OP_KINDS] = {
    [HT_OP_FORWARD]        = LANE(COMPUTE),
    [HT_OP_RECOMPUTE]      = LANE(COMPUTE),
    [HT_OP_BACKWARD]       = LANE(COMPUTE),
    [HT_OP_COPY]           = LANE(H2D) | LANE(D2H) | LANE(DISK) | LANE(HOST) | LANE(COMPUTE) | LANE(P2P),
    [HT_OP_ACCUMULATE]     = LANE(COMPUTE) | LANE(HOST),
    [HT_OP_OPTIMIZER_STEP] = LANE(COMPUTE) | LANE(HOST),
    [HT_OP_UNDO]           = LANE(COMPUTE) | LANE(HOST),
    [HT_OP_ALL_GATHER]     = LANE(COLLECTIVE),
    [HT_OP_REDUCE_SCATTER] = LANE(COLLECTIVE),
    [HT_OP_ALL_REDUCE]     = LANE(COLLECTIVE),
    [HT_OP_SEND]           = LANE(P2P),
    [HT_OP_RECEIVE]        = LANE(P2P),
    [HT_OP_VALIDATE]       = LANE(COMPUTE) | LANE(HOST),
    [HT_OP_RESTORE]        = LANE(H2D) | LANE(DISK) | LANE(HOST) | LANE(P2P) | LANE(COMPUTE),
    [HT_OP_TRANSPOSE]      = LANE(COMPUTE),
};
// clang-format on

static enum ht_status check_op(const struct ht_schedule *s, int32_t i, struct ht_error *err)
{
    const struct ht_op *op = &s->ops[i];
    char why[96];
    if (op->kind >= HT_N_OP_KINDS) return ht_broken(s, err, "op %d: has an unknown kind", i);
    if (!in(op->lane, s->n_lanes))
        return ht_broken_op(s, i, err, "is on lane %d; the schedule has %d lanes", op->lane, s->n_lanes);
    if (!in(op->work, s->n_works))
        return ht_broken_op(s, i, err, "has work %d; the schedule has %d works", op->work, s->n_works);
    if (op->when > HT_WHEN_BAD) return ht_broken_op(s, i, err, "has an unknown 'when'");
    if (op->match < -1) return ht_broken_op(s, i, err, "has match %d; expected -1 or more", op->match);
    if (check_label(s, &op->label, why, sizeof why)) return ht_broken_op(s, i, err, "%s", why);
    const struct ht_lane *lane = &s->lanes[op->lane];
    if (!(lanes_of[op->kind] >> lane->kind & 1))
        return ht_broken_op(s, i, err, "%s cannot run on lane '%.24s' of kind %s", ht_op_kind_name(op->kind),
                            lane->name, ht_lane_kind_name(lane->kind));
    for (int64_t k = s->deps_begin[i]; k < s->deps_begin[i + 1]; k++) {
        if (!in(s->deps[k], s->n_ops))
            return ht_broken_op(s, i, err, "depends on op %d; the schedule has %d ops", s->deps[k], s->n_ops);
        if (s->deps[k] >= i)
            return ht_broken_op(s, i, err, "depends on op %d, which %s", s->deps[k],
                                s->deps[k] == i ? "is itself" : "comes later");
    }
    for (int64_t k = s->prev_begin[i]; k < s->prev_begin[i + 1]; k++)
        if (!in(s->prev[k], s->n_ops))
            return ht_broken_op(s, i, err, "depends on op %d of the previous iteration; the schedule has %d ops",
                                s->prev[k], s->n_ops);
    for (int64_t k = s->uses_begin[i]; k < s->uses_begin[i + 1]; k++)
        if (!in(s->uses[k].resource, s->n_resources) || s->uses[k].amount < 0 || s->uses[k].amount > HT_MAX_AMOUNT)
            return ht_broken_op(s, i, err, "uses %lld of resource %d of %d", (long long)s->uses[k].amount,
                                s->uses[k].resource, s->n_resources);
    return HT_OK;
}

/* The tiers in which the current op has effects on a tensor. */
struct touch {
    int32_t stamp;               /* current op + 1; another number: the op has no effect on it so far */
    uint8_t reads, writes, seen; /* bit t: in tier t */
};

/* Returns true if an effect before the kth of an op is on the same tensor in the same tier. */
static bool is_second(const struct ht_schedule *s, int32_t i, int64_t k)
{
    const struct ht_effect *e = &s->effects[k];
    for (int64_t a = s->effects_begin[i]; a < k; a++)
        if (s->effects[a].tensor == e->tensor && s->effects[a].tier == e->tier) return true;
    return false;
}

/* Checks an op's effects. *touch: [n_tensors], once an op needs it: a copy, or one with more effects than are compared one by one. */
static enum ht_status check_effects(const struct ht_schedule *s, int32_t i, struct touch **touch, struct ht_error *err)
{
    enum { FEW = 8 };
    bool is_copy = s->ops[i].kind == HT_OP_COPY, copies = false;
    bool looks_up = is_copy || s->effects_begin[i + 1] - s->effects_begin[i] > FEW;
    if (looks_up && !*touch) *touch = HT_NEW_ARRAY(struct touch, s->n_tensors);
    for (int64_t k = s->effects_begin[i]; k < s->effects_begin[i + 1]; k++) {
        const struct ht_effect *e = &s->effects[k];
        if (!in(e->tensor, s->n_tensors) || e->tier >= HT_N_TIERS)
            return ht_broken_op(s, i, err, "has an effect on tensor %d of %d in tier %d", e->tensor, s->n_tensors,
                                e->tier);
        if (e->flags == 0 || e->flags >= 16)
            return ht_broken_op(s, i, err, "has effect flags %u on %s", e->flags, ht_phrase_tensor(s, e->tensor).text);
        if ((e->flags & HT_PRODUCE) && (e->flags & (HT_NEED | HT_UPDATE)))
            return ht_broken_op(s, i, err, "produces %s in tier %s, where it also needs or updates it",
                                ht_phrase_tensor(s, e->tensor).text, ht_tier_name((enum ht_tier)e->tier));
        struct touch *t = looks_up ? &(*touch)[e->tensor] : NULL;
        if (t && t->stamp != i + 1) *t = (struct touch){.stamp = i + 1};
        if (t ? t->seen >> e->tier & 1 : is_second(s, i, k))
            return ht_broken_op(s, i, err, "has two effects on %s in tier %s", ht_phrase_tensor(s, e->tensor).text,
                                ht_tier_name((enum ht_tier)e->tier));
        if (!t) continue;
        t->seen |= (uint8_t)(1u << e->tier);
        if (!is_copy) continue;
        if (e->flags & HT_NEED) t->reads |= (uint8_t)(1u << e->tier);
        if (e->flags & (HT_PRODUCE | HT_UPDATE)) t->writes |= (uint8_t)(1u << e->tier);
        /* read in one tier, written in another */
        if (t->reads && (t->writes & ~t->reads)) copies = true;
        if (t->writes && (t->reads & ~t->writes)) copies = true;
    }
    if (is_copy && !copies)
        return ht_broken_op(s, i, err,
                            "copies nothing; expected a tensor that it needs in one tier and writes in another");
    return HT_OK;
}

/* Checks the sum of all bytes that are ever allocated. It bounds every sum of the memory rule. */
static enum ht_status check_bytes(const struct ht_schedule *s, struct ht_error *err)
{
    __int128 sum = 0;
    for (int32_t i = 0; i < s->n_residents; i++) sum += ht_resident_bytes(s, &s->residents[i]);
    for (int64_t k = 0; k < s->effects_begin[s->n_ops]; k++)
        if (s->effects[k].flags & HT_PRODUCE) sum += ht_effect_bytes(s, &s->effects[k]);
    return sum < INT64_MAX / 2 ? HT_OK : ht_broken(s, err, "allocates more than 4 EB in an iteration");
}

enum ht_status ht_rule_shape(const struct ht_schedule *s, struct ht_error *err)
{
    enum ht_status status;
    if ((status = check_header(s, err)) || (status = check_lanes(s, err)) || (status = check_tensors(s, err)) ||
        (status = check_works(s, err)))
        return status;
    struct touch *touch = NULL;
    for (int32_t i = 0; i < s->n_ops && !status; i++)
        if (!(status = check_op(s, i, err))) status = check_effects(s, i, &touch, err);
    free(touch);
    return status ? status : check_bytes(s, err);
}
