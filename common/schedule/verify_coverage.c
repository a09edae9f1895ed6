/*
 * Coverage: proves that the micro-batches tile the batch, and that each passes every unit forward and backward exactly
 * once, in either branch.
 *
 * A cell per unit and micro-batch collects the sub-ops of the passes so far, in id order. A pass fails if it repeats a
 * sub-op, or if it is a backward of one whose forward is missing. At the end every cell has all sub-ops.
 */
#include "common/schedule/rules.h"

#include "common/base/array.h"
#include "common/schedule/limits.h"
#include "common/schedule/names.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(HT_N_SUB_OPS <= 16, "a cell holds a mask of sub-ops");

/* The sub-ops that have been passed, per unit and micro-batch. */
struct cells {
    uint16_t *forward, *backward; /* (n_units, n_micro_batches) */
};

/* Returns the name of the first sub-op in the mask. */
static const char *sub_op_of(unsigned mask)
{
    for (int i = 0; i < HT_N_SUB_OPS; i++)
        if (mask >> i & 1) return ht_sub_op_names[i];
    return "nothing";
}

/* Adds a pass to its cells. */
static enum ht_status cover(const struct ht_schedule *s, struct cells *c, int32_t i, enum ht_when branch,
                            struct ht_error *err)
{
    const struct ht_op *op = &s->ops[i];
    const struct ht_label *l = &op->label;
    const char *kind = ht_op_kind_name((enum ht_op_kind)op->kind);
    bool forward = op->kind == HT_OP_FORWARD;
    if (l->unit < 0 || l->micro_batch < 0 || l->micro_batch >= s->n_micro_batches || l->sub_ops == 0)
        return ht_broken_op(s, i, err, "is a %s without a unit, sub-ops or a micro-batch", kind);
    for (int32_t u = l->unit; u < l->unit + l->n_units; u++) {
        int64_t cell = (int64_t)u * s->n_micro_batches + l->micro_batch;
        unsigned done = forward ? c->forward[cell] : c->backward[cell];
        if (done & l->sub_ops)
            return ht_broken_op(s, i, err, "is the second %s of unit %d (%s), micro-batch %d%s", kind, u,
                                sub_op_of(done & l->sub_ops), l->micro_batch, ht_branch_description(s, branch));
        if (!forward && (l->sub_ops & ~(unsigned)c->forward[cell]))
            return ht_broken_op(s, i, err, "comes before the forward of unit %d (%s), micro-batch %d%s", u,
                                sub_op_of(l->sub_ops & ~(unsigned)c->forward[cell]), l->micro_batch,
                                ht_branch_description(s, branch));
        *(forward ? &c->forward[cell] : &c->backward[cell]) |= (uint16_t)l->sub_ops;
    }
    return HT_OK;
}

static enum ht_status all_covered(const struct ht_schedule *s, const uint16_t *cells, const char *kind,
                                  enum ht_when branch, struct ht_error *err)
{
    for (int64_t i = 0; i < (int64_t)s->n_units * s->n_micro_batches; i++)
        if (cells[i] != HT_ALL_SUB_OPS)
            return ht_broken(s, err, "unit %d (%s) has no %s for micro-batch %d%s", (int)(i / s->n_micro_batches),
                             sub_op_of(HT_ALL_SUB_OPS & ~(unsigned)cells[i]), kind, (int)(i % s->n_micro_batches),
                             ht_branch_description(s, branch));
    return HT_OK;
}

static enum ht_status cover_branch(const struct ht_schedule *s, enum ht_when branch, struct ht_error *err)
{
    int64_t n = (int64_t)s->n_units * s->n_micro_batches;
    struct cells c = {.forward = HT_NEW_ARRAY(uint16_t, n), .backward = HT_NEW_ARRAY(uint16_t, n)};
    enum ht_status status = HT_OK;
    /* the members of a group pass the same sub-ops, each its part: the first counts */
    for (int32_t i = 0; i < s->n_ops && !status; i = ht_group_end(s, i))
        if (ht_active(&s->ops[i], branch) && (s->ops[i].kind == HT_OP_FORWARD || s->ops[i].kind == HT_OP_BACKWARD))
            status = cover(s, &c, i, branch, err);
    if (!status) status = all_covered(s, c.forward, "forward", branch, err);
    if (!status) status = all_covered(s, c.backward, "backward", branch, err);
    free(c.forward);
    free(c.backward);
    return status;
}

static int by_first(const void *x, const void *y)
{
    const struct ht_slice *a = x, *b = y;
    return (a->first > b->first) - (a->first < b->first);
}

/* Checks that each sequence of the batch, from 0 on, is in exactly one micro-batch. */
static enum ht_status check_slices(const struct ht_schedule *s, struct ht_error *err)
{
    struct ht_slice *sorted = HT_NEW_ARRAY(struct ht_slice, s->n_micro_batches);
    enum ht_status status = HT_OK;
    int64_t end = 0;
    memcpy(sorted, s->slices, (size_t)s->n_micro_batches * sizeof *sorted);
    qsort(sorted, (size_t)s->n_micro_batches, sizeof *sorted, by_first);
    for (int32_t j = 0; j < s->n_micro_batches && !status; end += sorted[j++].count)
        if (sorted[j].first != end || sorted[j].count < 1 || sorted[j].count > HT_MAX_SEQUENCES)
            status = ht_broken(
                s, err, "the micro-batches do not tile the batch: %lld sequences from %lld on after the first %lld",
                (long long)sorted[j].count, (long long)sorted[j].first, (long long)end);
    free(sorted);
    return status;
}

/* Checks that each pass works on as many sequences as its micro-batch has; without slices, that all passes work on
   equally many. */
static enum ht_status check_sizes(const struct ht_schedule *s, struct ht_error *err)
{
    int64_t all = 0;
    for (int32_t i = 0; i < s->n_ops; i++) {
        const struct ht_op *op = &s->ops[i];
        int64_t batch = s->works[op->work].batch;
        bool pass = op->kind == HT_OP_FORWARD || op->kind == HT_OP_RECOMPUTE || op->kind == HT_OP_BACKWARD;
        if (!pass || batch == 0) continue;
        if (s->slices && op->label.micro_batch >= 0) all = s->slices[op->label.micro_batch].count;
        if (all == 0) all = batch;
        if (batch != all)
            return ht_broken_op(s, i, err, "works on %lld sequences; its micro-batch has %lld", (long long)batch,
                                (long long)all);
    }
    return HT_OK;
}

enum ht_status ht_rule_coverage(const struct ht_schedule *s, struct ht_error *err)
{
    enum ht_status status = s->slices ? check_slices(s, err) : HT_OK;
    if (status || s->n_units == 0) return status;
    status = check_sizes(s, err);
    for (int b = 0; b < ht_n_branches(s) && !status; b++) status = cover_branch(s, ht_branch(b), err);
    return status;
}
