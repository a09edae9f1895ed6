/*
 * Graphs for the tests: a small iteration in the manner of ZeRO-Offload, complete enough that every rule of the
 * verifier applies to it.
 *
 *     h2d    P0 P1 P2
 *     gpu       F0 F1 F2 B2 B1 B0          per micro-batch; from the second on A2 behind B2, .. add to the first's
 *     coll               R2 R1 R0          all-reduce across ranks, if there are several
 *     d2h                   G2 G1 G0       PRIORITY
 *     cpu                      O2 O1 O0    PRIORITY; with a control: validate, undo or release
 */
#ifndef TESTS_SCHEDULE_SAMPLE_H
#define TESTS_SCHEDULE_SAMPLE_H

#include "common/base/array.h"
#include "common/schedule/file.h"
#include "common/schedule/verify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum sample_control {
    SAMPLE_NONE,
    SAMPLE_GATE,    /* steps wait for validate */
    SAMPLE_ROLLBACK /* steps at once, undone when bad */
};

struct sample {
    int32_t units, batches, ranks; /* batches: of each rank */
    enum sample_control control;
    bool unlinked;
};

struct sample_rank {
    int32_t gpu, h2d, d2h, cpu, coll;
    int32_t *param, *momentum, *variance, *grad; /* [units] */
};

static inline struct ht_label sample_label(int32_t unit, int32_t batch)
{
    struct ht_label l = {.unit = unit, .n_units = unit >= 0 ? 1 : 0, .micro_batch = batch};
    if (unit >= 0) l.sub_ops = HT_ALL_SUB_OPS;
    return l;
}

static inline int32_t sample_work(struct ht_schedule *s, enum ht_op_kind kind, enum ht_lane_kind where, int64_t bytes,
                                  int32_t ranks)
{
    struct ht_work w = {.kind = kind,
                        .where = where,
                        .unit = HT_UNIT_BLOCK,
                        .n_units = 1,
                        .sub_ops = HT_ALL_SUB_OPS,
                        .batch = 2,
                        .seq = 64,
                        .width = 128,
                        .heads = 4,
                        .ffn = 512,
                        .tp = 1,
                        .ranks = ranks,
                        .params = 1000,
                        .bytes = bytes};
    return ht_add_work(s, &w);
}

static inline int32_t sample_tensor(struct ht_schedule *s, enum ht_tensor_class class, int32_t unit, int32_t batch,
                                    int64_t bytes, int32_t rank)
{
    struct ht_tensor t = {.class = class, .label = sample_label(unit, batch), .bytes = bytes, .rank = rank};
    if (class == HT_MOMENTUM || class == HT_VARIANCE) t.shard_end = bytes / 4;
    return ht_add_tensor(s, t);
}

static inline void sample_rank_init(struct ht_schedule *s, const struct sample *o, struct sample_rank *k, int32_t rank)
{
    k->gpu = ht_add_lane(s, "gpu", HT_LANE_COMPUTE, rank, HT_FIFO);
    k->h2d = ht_add_lane(s, "h2d", HT_LANE_H2D, rank, HT_FIFO);
    k->d2h = ht_add_lane(s, "d2h", HT_LANE_D2H, rank, HT_PRIORITY);
    k->cpu = ht_add_lane(s, "cpu", HT_LANE_HOST, rank, HT_PRIORITY);
    k->coll = ht_add_lane(s, "coll", HT_LANE_COLLECTIVE, rank, HT_FIFO);
    k->param = HT_NEW_ARRAY(int32_t, o->units);
    k->momentum = HT_NEW_ARRAY(int32_t, o->units);
    k->variance = HT_NEW_ARRAY(int32_t, o->units);
    k->grad = HT_NEW_ARRAY(int32_t, o->units);
    for (int32_t u = 0; u < o->units; u++) {
        k->param[u] = sample_tensor(s, HT_PARAM, u, -1, 2000, rank);
        k->momentum[u] = sample_tensor(s, HT_MOMENTUM, u, -1, 4000, rank);
        k->variance[u] = sample_tensor(s, HT_VARIANCE, u, -1, 4000, rank);
        k->grad[u] = sample_tensor(s, HT_GRAD, u, -1, 2000, rank);
        ht_add_resident(s, k->param[u], HT_HOST, rank);
        ht_add_resident(s, k->momentum[u], HT_HOST, rank);
        ht_add_resident(s, k->variance[u], HT_HOST, rank);
    }
}

static inline void sample_prefetch(struct ht_schedule *s, const struct sample *o, struct sample_rank *k)
{
    for (int32_t u = 0; u < o->units; u++) {
        ht_add_op(s, HT_OP_COPY, k->h2d, sample_label(u, -1), sample_work(s, HT_OP_COPY, HT_LANE_H2D, 2000, 1));
        ht_op_effect(s, k->param[u], HT_HOST, HT_NEED);
        ht_op_effect(s, k->param[u], HT_DEVICE, HT_PRODUCE);
        ht_op_use(s, 0, 2000);
    }
}

/* Appends one micro-batch forward and backward. */
static inline void sample_pass(struct ht_schedule *s, const struct sample *o, struct sample_rank *k, int32_t rank,
                               int32_t local)
{
    int32_t batch = rank * o->batches + local, n = o->units;
    int32_t *act = HT_NEW_ARRAY(int32_t, n), *input = HT_NEW_ARRAY(int32_t, n), *dinput = HT_NEW_ARRAY(int32_t, n);
    for (int32_t u = 0; u < n; u++) {
        act[u] = sample_tensor(s, HT_ACTIVATION, u, batch, 5000, rank);
        input[u] = sample_tensor(s, HT_CHECKPOINT, u, batch, 600, rank);
        dinput[u] = sample_tensor(s, HT_ACT_GRAD, u, batch, 600, rank);
    }
    for (int32_t u = 0; u < n; u++) {
        ht_add_op(s, HT_OP_FORWARD, k->gpu, sample_label(u, batch),
                  sample_work(s, HT_OP_FORWARD, HT_LANE_COMPUTE, 0, 1));
        ht_op_effect(s, k->param[u], HT_DEVICE, HT_NEED);
        if (u > 0) ht_op_effect(s, input[u], HT_DEVICE, HT_NEED);
        if (u + 1 < n) ht_op_effect(s, input[u + 1], HT_DEVICE, HT_PRODUCE);
        ht_op_effect(s, act[u], HT_DEVICE, HT_PRODUCE);
    }
    for (int32_t u = n; u-- > 0;) {
        ht_add_op(s, HT_OP_BACKWARD, k->gpu, sample_label(u, batch),
                  sample_work(s, HT_OP_BACKWARD, HT_LANE_COMPUTE, 0, 1));
        ht_op_effect(s, k->param[u], HT_DEVICE, HT_NEED | (local + 1 == o->batches ? HT_RELEASE : 0));
        ht_op_effect(s, act[u], HT_DEVICE, HT_NEED | HT_RELEASE);
        if (u > 0) ht_op_effect(s, input[u], HT_DEVICE, HT_NEED | HT_RELEASE);
        if (u + 1 < n) ht_op_effect(s, dinput[u + 1], HT_DEVICE, HT_NEED | HT_RELEASE);
        if (u > 0) ht_op_effect(s, dinput[u], HT_DEVICE, HT_PRODUCE);
        int32_t fresh = local ? sample_tensor(s, HT_GRAD, u, batch, 2000, rank) : k->grad[u];
        ht_op_effect(s, fresh, HT_DEVICE, HT_PRODUCE);
        if (!local) continue;
        ht_add_op(s, HT_OP_ACCUMULATE, k->gpu, sample_label(u, batch),
                  sample_work(s, HT_OP_ACCUMULATE, HT_LANE_COMPUTE, 0, 1));
        ht_op_effect(s, fresh, HT_DEVICE, HT_NEED | HT_RELEASE);
        ht_op_effect(s, k->grad[u], HT_DEVICE, HT_UPDATE);
    }
    free(act);
    free(input);
    free(dinput);
}

static inline void sample_reduce(struct ht_schedule *s, const struct sample *o, struct sample_rank *ranks)
{
    for (int32_t u = o->units; u-- > 0;)
        for (int32_t r = 0; r < o->ranks; r++) {
            ht_add_op(s, HT_OP_ALL_REDUCE, ranks[r].coll, sample_label(u, -1),
                      sample_work(s, HT_OP_ALL_REDUCE, HT_LANE_COLLECTIVE, 2000, o->ranks));
            ht_op_effect(s, ranks[r].grad[u], HT_DEVICE, HT_UPDATE);
            ht_op_match(s, u);
        }
}

static inline int32_t sample_update(struct ht_schedule *s, const struct sample_rank *k, int32_t u, enum ht_op_kind kind,
                                    unsigned grad)
{
    int32_t op = ht_add_op(s, kind, k->cpu, sample_label(u, -1), sample_work(s, kind, HT_LANE_HOST, 0, 1));
    ht_op_effect(s, k->grad[u], HT_HOST, grad);
    ht_op_effect(s, k->param[u], HT_HOST, HT_UPDATE);
    ht_op_effect(s, k->momentum[u], HT_HOST, HT_UPDATE);
    ht_op_effect(s, k->variance[u], HT_HOST, HT_UPDATE);
    ht_op_priority(s, u);
    return op;
}

static inline int32_t sample_validate(struct ht_schedule *s, const struct sample *o, const struct sample_rank *ranks)
{
    int32_t op = ht_add_op(s, HT_OP_VALIDATE, ranks[0].cpu, sample_label(-1, -1),
                           sample_work(s, HT_OP_VALIDATE, HT_LANE_HOST, 0, 1));
    for (int32_t r = 0; r < o->ranks; r++)
        for (int32_t u = 0; u < o->units; u++) ht_op_effect(s, ranks[r].grad[u], HT_HOST, HT_NEED);
    return op;
}

/* Frees the gradient in the branch that does not use it. */
static inline void sample_drop(struct ht_schedule *s, const struct sample_rank *k, int32_t u, enum ht_when when,
                               int32_t validate)
{
    ht_add_op(s, HT_OP_ACCUMULATE, k->cpu, sample_label(u, -1), sample_work(s, HT_OP_ACCUMULATE, HT_LANE_HOST, 0, 1));
    ht_op_effect(s, k->grad[u], HT_HOST, HT_RELEASE);
    ht_op_when(s, when);
    ht_op_after(s, validate);
}

static inline struct ht_schedule *sample_build(struct sample o)
{
    struct ht_schedule *s = ht_schedule_create("sample", o.ranks, 1, NULL);
    struct sample_rank *ranks = HT_NEW_ARRAY(struct sample_rank, o.ranks);
    int32_t validate = -1;
    s->n_units = o.units;
    s->n_micro_batches = o.ranks * o.batches;
    ht_add_resource(s, "pcie", HT_RES_PCIE_H2D, 0, 16000000000);
    for (int32_t r = 0; r < o.ranks; r++) sample_rank_init(s, &o, &ranks[r], r);
    for (int32_t r = 0; r < o.ranks; r++) {
        sample_prefetch(s, &o, &ranks[r]);
        for (int32_t j = 0; j < o.batches; j++) sample_pass(s, &o, &ranks[r], r, j);
    }
    if (o.ranks > 1) sample_reduce(s, &o, ranks);
    for (int32_t r = 0; r < o.ranks; r++)
        for (int32_t u = o.units; u-- > 0;) {
            ht_add_op(s, HT_OP_COPY, ranks[r].d2h, sample_label(u, -1),
                      sample_work(s, HT_OP_COPY, HT_LANE_D2H, 2000, 1));
            ht_op_effect(s, ranks[r].grad[u], HT_DEVICE, HT_NEED | HT_RELEASE);
            ht_op_effect(s, ranks[r].grad[u], HT_HOST, HT_PRODUCE);
            ht_op_priority(s, u);
        }
    if (o.control == SAMPLE_GATE) validate = sample_validate(s, &o, ranks);
    for (int32_t r = 0; r < o.ranks; r++)
        for (int32_t u = o.units; u-- > 0;) {
            sample_update(s, &ranks[r], u, HT_OP_OPTIMIZER_STEP,
                          o.control == SAMPLE_ROLLBACK ? HT_NEED : HT_NEED | HT_RELEASE);
            if (o.control != SAMPLE_GATE) continue;
            ht_op_when(s, HT_WHEN_OK);
            ht_op_after(s, validate);
            sample_drop(s, &ranks[r], u, HT_WHEN_BAD, validate);
        }
    if (o.control == SAMPLE_ROLLBACK) {
        validate = sample_validate(s, &o, ranks);
        for (int32_t r = 0; r < o.ranks; r++)
            for (int32_t u = 0; u < o.units; u++) {
                sample_update(s, &ranks[r], u, HT_OP_UNDO, HT_NEED | HT_RELEASE);
                ht_op_when(s, HT_WHEN_BAD);
                ht_op_after(s, validate);
                sample_drop(s, &ranks[r], u, HT_WHEN_OK, validate);
            }
    }
    for (int32_t r = 0; r < o.ranks; r++) {
        free(ranks[r].param);
        free(ranks[r].momentum);
        free(ranks[r].variance);
        free(ranks[r].grad);
    }
    free(ranks);
    if (!o.unlinked) ht_schedule_link(s);
    return s;
}

/* Copies s without op, edge or effect number `victim` of the chosen list. Groups and ids stay; a removed op loses
   its effects and edges, and what waited for it no longer does. */
enum cut { CUT_NOTHING, CUT_OP, CUT_DEP, CUT_PREV, CUT_EFFECT };

static inline struct ht_schedule *sample_cut(const struct ht_schedule *s, enum cut cut, int64_t victim)
{
    struct ht_schedule *c = ht_schedule_create(s->name, s->n_ranks, s->n_nodes, s->rank_node);
    memcpy(c->capacity_bytes, s->capacity_bytes, sizeof(int64_t) * (size_t)ht_n_spaces(s));
    memcpy(c->limit_bytes, s->limit_bytes, sizeof(int64_t) * (size_t)ht_n_spaces(s));
    c->n_units = s->n_units;
    c->n_micro_batches = s->n_micro_batches;
    for (int32_t i = 0; i < s->n_lanes; i++)
        ht_add_lane(c, s->lanes[i].name, s->lanes[i].kind, s->lanes[i].rank, s->lanes[i].order);
    for (int32_t i = 0; i < s->n_resources; i++)
        ht_add_resource(c, s->resources[i].name, s->resources[i].kind, s->resources[i].node,
                        s->resources[i].capacity_per_s);
    for (int32_t i = 0; i < s->n_tensors; i++) ht_add_tensor(c, s->tensors[i]);
    for (int32_t i = 0; i < s->n_residents; i++)
        ht_add_resident(c, s->residents[i].tensor, s->residents[i].tier, s->residents[i].rank);
    for (int32_t i = 0; i < s->n_works; i++) ht_add_work(c, &s->works[i]);
    int32_t gone = cut == CUT_OP ? (int32_t)victim : INT32_MAX;
    for (int32_t i = 0; i < s->n_ops; i++) {
        const struct ht_op *op = &s->ops[i];
        if (i == gone) continue;
        ht_add_op(c, (enum ht_op_kind)op->kind, op->lane, op->label, op->work);
        ht_op_name(c, "%s", op->name);
        ht_op_priority(c, op->priority);
        ht_op_when(c, (enum ht_when)op->when);
        ht_op_match(c, op->match);
        for (int64_t k = s->deps_begin[i]; k < s->deps_begin[i + 1]; k++)
            if (!(cut == CUT_DEP && k == victim) && s->deps[k] != gone)
                ht_op_after(c, s->deps[k] - (s->deps[k] > gone));
        for (int64_t k = s->prev_begin[i]; k < s->prev_begin[i + 1]; k++)
            if (!(cut == CUT_PREV && k == victim) && s->prev[k] != gone)
                ht_op_after_prev(c, s->prev[k] - (s->prev[k] > gone));
        for (int64_t k = s->effects_begin[i]; k < s->effects_begin[i + 1]; k++)
            if (!(cut == CUT_EFFECT && k == victim))
                ht_op_effect(c, s->effects[k].tensor, (enum ht_tier)s->effects[k].tier, s->effects[k].flags);
        for (int64_t k = s->uses_begin[i]; k < s->uses_begin[i + 1]; k++)
            ht_op_use(c, s->uses[k].resource, s->uses[k].amount);
    }
    return c;
}

/* Returns the text of a dump; the caller frees it. */
static inline char *sample_text(const struct ht_schedule *s, size_t *n)
{
    char *text = NULL;
    struct ht_error err = {0};
    FILE *out = open_memstream(&text, n);
    enum ht_status status = ht_schedule_dump(s, out, &err);
    fclose(out);
    if (status) fprintf(stderr, "dump: %s\n", err.text);
    return text;
}

#endif
