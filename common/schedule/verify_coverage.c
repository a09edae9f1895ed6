/*
 * Coverage: proves that the micro-batches tile the batch, and that each passes every unit forward and backward exactly
 * once and in order, in either branch.
 *
 * A pass is of whole units, or of one half of a block (common/model/halves.h): a unit that is neither the first nor the last. So
 * a micro-batch goes through 8 n sub-ops, up and down again; a pass takes it from the bottom to the top of what it passes, or
 * back:
 *
 *     0             8          12         16      8 n
 *     |-- unit 0 ---|-- front --|-- back -| .. ---|     forward: 0 to 8 n, then backward: 8 n to 0
 *                   '------- unit 1 ------'
 *
 * Of a folded graph those of the first copy do; the others are their images (common/schedule/fold.h).
 *
 * The walk keeps each micro-batch's position in id order. A pass fails if it does not begin there.
 */
#include "common/schedule/rules.h"

#include "common/base/array.h"
#include "common/model/halves.h"
#include "common/schedule/fold.h"
#include "common/schedule/limits.h"
#include "common/schedule/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where a micro-batch is in its forward pass, and in its backward pass. */
struct position {
    int32_t forward, backward;
};

/* Returns "unit 3"; "unit 3 (norm1, qkv, attention, proj)" for a half. */
static struct ht_phrase passed(int32_t unit, unsigned sub_ops)
{
    struct ht_phrase p;
    char names[72];
    struct ht_label l = {.unit = unit, .sub_ops = sub_ops};
    snprintf(p.text, sizeof p.text, "unit %d%s", l.unit, ht_sub_op_descriptions(&l, names, sizeof names));
    return p;
}

/* Returns what comes next at a position: a half in the middle of a block or, with `half`, the other one than that. */
static struct ht_phrase next_at(int32_t at, bool forward, unsigned half)
{
    unsigned front = at % HT_N_SUB_OPS ? ht_front(at % HT_N_SUB_OPS) : half ? ht_front_of(half) : 0;
    bool back = at % HT_N_SUB_OPS ? forward : !forward;
    return passed((at - !forward) / HT_N_SUB_OPS, back ? HT_ALL_SUB_OPS & ~front : front ? front : HT_ALL_SUB_OPS);
}

/* Checks that a pass is of a micro-batch and of whole units, or of one half of a block. */
static enum ht_status check_label(const struct ht_schedule *s, int32_t i, struct ht_error *err)
{
    const struct ht_label *l = &s->ops[i].label;
    bool half = ht_is_half(l->sub_ops);
    char names[72];
    if (l->unit < 0 || l->micro_batch < 0 || l->micro_batch >= s->n_micro_batches || l->sub_ops == 0)
        return ht_broken_op(s, i, err, "is a %s without a unit, sub-ops or a micro-batch",
                            ht_op_kind_name((enum ht_op_kind)s->ops[i].kind));
    if (l->sub_ops == HT_ALL_SUB_OPS) return HT_OK;
    ht_sub_op_descriptions(l, names, sizeof names);
    if (!half)
        return ht_broken_op(s, i, err, "passes some sub-ops of unit %d%s; expected norm1 to any, any to fc2 or all",
                            l->unit, names);
    if (l->n_units > 1 || l->unit == 0 || l->unit == s->n_units - 1)
        return ht_broken_op(
            s, i, err,
            "passes a half%s of units %d to %d; expected one of a block, which is neither the first unit "
            "nor the last",
            names, l->unit, l->unit + l->n_units - 1);
    return HT_OK;
}

/* Takes a micro-batch through a pass. in: the branch, in words. */
static enum ht_status follow(const struct ht_schedule *s, struct position *positions, int32_t i, const char *in,
                             struct ht_error *err)
{
    const struct ht_label *l = &s->ops[i].label;
    const char *kind = ht_op_kind_name((enum ht_op_kind)s->ops[i].kind);
    struct position *p = &positions[l->micro_batch];
    bool forward = s->ops[i].kind == HT_OP_FORWARD, alone = l->sub_ops != HT_ALL_SUB_OPS;
    int32_t *at = forward ? &p->forward : &p->backward, missing = (*at - !forward) / HT_N_SUB_OPS;
    int32_t front = alone ? __builtin_popcount(ht_front_of(l->sub_ops)) : 0;
    int32_t bottom = HT_N_SUB_OPS * l->unit + (ht_is_back(l->sub_ops) ? front : 0);
    int32_t top = ht_is_front(l->sub_ops) ? HT_N_SUB_OPS * l->unit + front : HT_N_SUB_OPS * (l->unit + l->n_units);
    if (forward ? bottom < *at : top > *at)
        return ht_broken_op(s, i, err, "is the second %s of %s, micro-batch %d%s", kind,
                            passed(forward ? l->unit : l->unit + l->n_units - 1, l->sub_ops).text, l->micro_batch, in);
    if (!forward && p->forward < HT_N_SUB_OPS * s->n_units)
        return ht_broken_op(s, i, err, "comes before the forward of %s, micro-batch %d%s",
                            next_at(p->forward, true, 0).text, l->micro_batch, in);
    if (*at != (forward ? bottom : top))
        return ht_broken_op(s, i, err, "comes before the %s of %s, micro-batch %d%s", kind,
                            next_at(*at, forward, alone && missing == l->unit ? l->sub_ops : 0).text, l->micro_batch,
                            in);
    *at = forward ? top : bottom;
    return HT_OK;
}

/* Takes all micro-batches through a branch. in: the branch, in words. */
static enum ht_status follow_branch(const struct ht_schedule *s, enum ht_when branch, const char *in,
                                    struct ht_error *err)
{
    struct position *positions = HT_NEW_ARRAY(struct position, s->n_micro_batches);
    enum ht_status status = HT_OK;
    for (int32_t j = 0; j < s->n_micro_batches; j++) positions[j].backward = HT_N_SUB_OPS * s->n_units;
    /* the members of a group pass the same sub-ops, each its part: the first counts */
    for (int32_t i = 0; i < s->n_ops && !status; i = ht_group_end(s, i)) {
        if (!ht_active(&s->ops[i], branch) || (s->ops[i].kind != HT_OP_FORWARD && s->ops[i].kind != HT_OP_BACKWARD))
            continue;
        status = check_label(s, i, err);
        if (!status) status = follow(s, positions, i, in, err);
    }
    for (int32_t j = 0; j < ht_copy_micro_batches(s) && !status; j++) {
        bool forward = positions[j].forward < HT_N_SUB_OPS * s->n_units;
        int32_t at = forward ? positions[j].forward : positions[j].backward;
        if (forward || at > 0)
            status = ht_broken(s, err, "%s has no %s for micro-batch %d%s", next_at(at, forward, 0).text,
                               forward ? "forward" : "backward", j, in);
    }
    free(positions);
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

enum ht_status ht_rule_coverage(const struct ht_schedule *s, int n_branches, struct ht_error *err)
{
    enum ht_status status = s->slices ? check_slices(s, err) : HT_OK;
    if (status || s->n_units == 0) return status;
    status = check_sizes(s, err);
    for (int b = 0; b < n_branches && !status; b++)
        status = follow_branch(s, ht_branch(b), n_branches > 1 ? ht_branch_description(s, ht_branch(b)) : "", err);
    return status;
}
