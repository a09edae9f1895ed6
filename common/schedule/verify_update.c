/*
 * Updates: proves that an iteration steps every parameter exactly once.
 *
 * 1. Each momentum tensor is stepped once, undone steps subtracted. In the bad branch either all are (the iteration is
 *    redone) or none is (it is skipped).
 * 2. A rank steps a unit after its last backward pass and accumulation of that unit; a later one would not reach the
 *    parameters. The order of ids decides: it is topological, and the hazards rule keeps conflicting ops in it.
 * 3. The shards of a unit tile the unit, with the same number of copies of each element for momentum, variance and
 *    master parameters, and for each tensor-parallel part. Where the halves of a block are divided into different numbers of
 *    parts, those of each half tile a range: the front's begins at 0, the back's where it does in all classes. Where that
 *    is goes by the model, which the graph has not; a training's map of its state proves that no element is missing. Of a folded graph
 *    those of all copies do, of which the fold says which rank has which (common/schedule/fold.h).
 */
#include "common/schedule/rules.h"

#include "common/base/array.h"
#include "common/schedule/apart.h"
#include "common/schedule/fold.h"
#include "common/schedule/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Tensors of momentum, variance and master parameters; most tensors are others. */
struct states {
    int32_t *of;
    int64_t n;
    size_t cap;
};

static struct states find_states(const struct ht_schedule *s)
{
    struct states states = {0};
    for (int32_t t = 0; t < s->n_tensors; t++) {
        enum ht_tensor_class class = s->tensors[t].class;
        if (class == HT_MOMENTUM || class == HT_VARIANCE || class == HT_MASTER)
            HT_PUSH(states.of, states.n, states.cap, t);
    }
    return states;
}

/* Counts the steps of each momentum tensor less its undos. An op that updates a tensor in two tiers (a copy written
   through) counts once. */
static void count_steps(const struct ht_schedule *s, enum ht_when branch, int32_t *steps)
{
    int32_t *seen = HT_NEW_ARRAY(int32_t, s->n_tensors);
    for (int32_t i = 0; i < s->n_ops; i++) {
        const struct ht_op *op = &s->ops[i];
        int sign = op->kind == HT_OP_OPTIMIZER_STEP ? 1 : op->kind == HT_OP_UNDO ? -1 : 0;
        if (sign == 0 || !ht_active(op, branch)) continue;
        for (int64_t e = s->effects_begin[i]; e < s->effects_begin[i + 1]; e++) {
            int32_t t = s->effects[e].tensor;
            if (!(s->effects[e].flags & HT_UPDATE) || s->tensors[t].class != HT_MOMENTUM || seen[t] == i + 1) continue;
            seen[t] = i + 1;
            steps[t] += sign;
        }
    }
    free(seen);
}

/* Checks point 1 in a branch. */
static enum ht_status check_branch(const struct ht_schedule *s, const struct states *states, enum ht_when branch,
                                   struct ht_error *err)
{
    enum ht_status status = HT_OK;
    int32_t *steps = HT_NEW_ARRAY(int32_t, s->n_tensors);
    int32_t want = 1, witness = -1; /* the tensor that fixed `want` in the bad branch */
    count_steps(s, branch, steps);
    for (int64_t k = 0; k < states->n && !status; k++) {
        int32_t t = states->of[k];
        if (s->tensors[t].class != HT_MOMENTUM) continue;
        if (branch == HT_WHEN_BAD && witness < 0) {
            witness = t;
            want = steps[t] == 0 ? 0 : 1;
        }
        if (steps[t] == want) continue;
        struct ht_phrase name = ht_phrase_tensor(s, t);
        if (witness >= 0 && witness != t)
            status = ht_broken(s, err, "%s is stepped %d times an iteration, but %s %d times%s", name.text, steps[t],
                               ht_phrase_tensor(s, witness).text, want, ht_branch_description(s, branch));
        else
            status = ht_broken(s, err, "%s is stepped %d times an iteration; expected once%s", name.text, steps[t],
                               ht_branch_description(s, branch));
    }
    free(steps);
    return status;
}

/* A step of a unit on a rank. */
struct step {
    int32_t unit, rank, op;
};

struct steps {
    struct step *rows; /* by unit, rank and op */
    int64_t n;
    size_t cap;
    int32_t *first; /* [n_units] the unit's first step on any rank; INT32_MAX: none */
};

static int by_unit(const void *x, const void *y)
{
    const struct step *a = x, *b = y;
    if (a->unit != b->unit) return a->unit < b->unit ? -1 : 1;
    if (a->rank != b->rank) return a->rank < b->rank ? -1 : 1;
    return (a->op > b->op) - (a->op < b->op);
}

/* Lists the steps of a branch. */
static struct steps find_steps(const struct ht_schedule *s, enum ht_when branch)
{
    struct steps steps = {.first = HT_NEW_ARRAY(int32_t, s->n_units)};
    for (int32_t u = 0; u < s->n_units; u++) steps.first[u] = INT32_MAX;
    for (int32_t i = 0; i < s->n_ops; i++) {
        const struct ht_op *op = &s->ops[i];
        if (op->kind != HT_OP_OPTIMIZER_STEP || !ht_active(op, branch) || op->label.unit < 0) continue;
        for (int32_t u = op->label.unit; u < op->label.unit + op->label.n_units && u < s->n_units; u++) {
            struct step step = {u, ht_op_rank(s, i), i};
            HT_PUSH(steps.rows, steps.n, steps.cap, step);
            if (steps.first[u] == INT32_MAX) steps.first[u] = i;
        }
    }
    if (steps.n) qsort(steps.rows, (size_t)steps.n, sizeof *steps.rows, by_unit);
    return steps;
}

/* Finds the last step of a unit before op i on the op's rank. Returns -1 if the rank has taken none. */
static int32_t step_before(const struct ht_schedule *s, const struct steps *steps, int32_t unit, int32_t i)
{
    struct step at = {unit, ht_op_rank(s, i), i};
    int64_t low = 0, high = steps->n;
    if (steps->first[unit] > i) return -1; /* so it is with most */
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (by_unit(&steps->rows[middle], &at) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    const struct step *before = low > 0 ? &steps->rows[low - 1] : NULL;
    return before && before->unit == unit && before->rank == at.rank ? before->op : -1;
}

static bool adds_to_gradient(const struct ht_schedule *s, int32_t i)
{
    if (s->ops[i].kind != HT_OP_ACCUMULATE) return s->ops[i].kind == HT_OP_BACKWARD;
    for (int64_t e = s->effects_begin[i]; e < s->effects_begin[i + 1]; e++)
        if (s->effects[e].flags & HT_UPDATE) return true;
    return false;
}

/* Checks point 2 in a branch. */
static enum ht_status check_complete(const struct ht_schedule *s, enum ht_when branch, struct ht_error *err)
{
    enum ht_status status = HT_OK;
    struct steps steps = find_steps(s, branch);
    for (int32_t i = 0; i < s->n_ops && !status; i++) {
        const struct ht_op *op = &s->ops[i];
        if (!adds_to_gradient(s, i) || !ht_active(op, branch) || op->label.unit < 0) continue;
        for (int32_t u = op->label.unit; u < op->label.unit + op->label.n_units && u < s->n_units && !status; u++) {
            int32_t before = step_before(s, &steps, u, i);
            if (before >= 0)
                status = ht_broken_op(s, i, err, "adds to the gradient of unit %d after its step, %s%s", u,
                                      ht_phrase_op(s, before).text, ht_branch_description(s, branch));
        }
    }
    free(steps.rows);
    free(steps.first);
    return status;
}

/* The begin (change +1) or end (-1) of a shard of a part, at an element. */
struct bound {
    int32_t class, unit, part;
    int64_t at;
    int32_t change;
    int32_t parts;
    unsigned half; /* of a unit whose halves are divided differently; else 0 */
};

static int by_position(const void *x, const void *y)
{
    const struct bound *a = x, *b = y;
    if (a->unit != b->unit) return a->unit < b->unit ? -1 : 1;
    if (a->half != b->half) return a->half < b->half ? -1 : 1;
    if (a->class != b->class) return a->class < b->class ? -1 : 1;
    if (a->part != b->part) return a->part < b->part ? -1 : 1;
    return (a->at > b->at) - (a->at < b->at);
}

/* "the momentum of part 1 of 2 of unit 3" */
static struct ht_phrase of(const struct bound *b)
{
    struct ht_phrase p;
    char part[40] = "", names[72];
    struct ht_label l = {.unit = b->unit, .sub_ops = b->half ? b->half : HT_ALL_SUB_OPS};
    if (b->parts > 1) snprintf(part, sizeof part, "part %d of %d of ", b->part, b->parts);
    snprintf(p.text, sizeof p.text, "the %s of %sunit %d%s", ht_tensor_class_descriptions[b->class], part, b->unit,
             ht_sub_op_descriptions(&l, names, sizeof names));
    return p;
}

/* Checks that the shards of one class and part of a unit tile it: between the first and the last of its sorted bounds
   every element has the same number of copies. */
static enum ht_status check_tiling(const struct ht_schedule *s, const struct bound *rows, int64_t n,
                                   struct ht_error *err, int64_t *copies)
{
    int64_t depth = 0, whole = -1;
    if (rows[0].at != 0 && !ht_is_back(rows[0].half))
        return ht_broken(s, err, "the shards of %s begin at %lld, not at 0", of(rows).text, (long long)rows[0].at);
    for (int64_t i = 0; i < n;) {
        int64_t at = rows[i].at;
        for (; i < n && rows[i].at == at; i++) depth += rows[i].change;
        if (whole < 0) whole = depth;
        if (i < n && depth != whole)
            return ht_broken(s, err,
                             "the shards of %s do not tile it: %lld copies from element %lld on, %lld from the start",
                             of(rows).text, (long long)depth, (long long)at, (long long)whole);
    }
    *copies = whole;
    return HT_OK;
}

/* The range of a part's shards and the number of their copies. */
struct extent {
    int64_t begin, end, copies;
};

/* Checks all parts of a class of a unit. extents: [parts], as the unit's previous classes have them. */
static enum ht_status check_unit(const struct ht_schedule *s, const struct bound *rows, int64_t n,
                                 struct extent *extents, struct ht_error *err)
{
    int32_t part = 0;
    for (int64_t i = 0, end; i < n; i = end, part++) {
        for (end = i; end < n && rows[end].part == rows[i].part;) end++;
        if (rows[i].part != part) break;
        struct extent found = {rows[i].at, rows[end - 1].at, 0}, *known = &extents[part];
        enum ht_status status = check_tiling(s, rows + i, end - i, err, &found.copies);
        if (status) return status;
        if (known->end && known->begin != found.begin)
            return ht_broken(s, err, "the shards of %s begin at element %lld, those of another class at %lld",
                             of(rows + i).text, (long long)found.begin, (long long)known->begin);
        if (known->end && known->end != found.end)
            return ht_broken(s, err, "the shards of %s end at element %lld, those of another class at %lld",
                             of(rows + i).text, (long long)found.end, (long long)known->end);
        if (known->copies && known->copies != found.copies)
            return ht_broken(s, err, "%s has %lld copies; another class has %lld", of(rows + i).text,
                             (long long)found.copies, (long long)known->copies);
        *known = found;
        if (extents[0].copies != found.copies)
            return ht_broken(s, err, "%s has %lld copies; the first part has %lld", of(rows + i).text,
                             (long long)found.copies, (long long)extents[0].copies);
    }
    struct bound lacks = rows[0];
    lacks.part = part;
    return part == lacks.parts ? HT_OK : ht_broken(s, err, "%s has no shards", of(&lacks).text);
}

static bool same_elements(const struct bound *a, const struct bound *b)
{
    return a->unit == b->unit && a->half == b->half;
}

/* The shards' bounds so far. */
struct bounds {
    struct bound *rows;
    int64_t n;
    size_t cap;
};

static void add_bounds(struct bounds *b, const struct ht_tensor *x, unsigned half, int64_t begin, int64_t end)
{
    struct bound row = {(int32_t)x->class, x->label.unit, x->part, begin, 1, x->parts, half};
    if (begin == end) return;
    HT_PUSH(b->rows, b->n, b->cap, row);
    row.at = end;
    row.change = -1;
    HT_PUSH(b->rows, b->n, b->cap, row);
}

/* Adds the shards that the images of a tensor's rank hold: in all copies, or in its replica, if each copy has all states. */
static enum ht_status add_images(const struct ht_schedule *s, struct bounds *b, int32_t t, unsigned half,
                                 struct ht_error *err)
{
    const struct ht_tensor *x = &s->tensors[t];
    const struct ht_fold *f = s->fold;
    if (!f) return HT_OK;
    struct ht_tensor image = *x;
    for (int32_t q = 1; q < f->parts && !f->shards && x->parts > 1; q++) {
        image.part = x->part + q;
        add_bounds(b, &image, half, x->shard_begin, x->shard_end);
    }
    if (!f->shards) return HT_OK;
    const struct ht_fold_shard *of_unit = f->shards + (int64_t)x->label.unit * s->n_ranks, *own = &of_unit[x->rank];
    if (own->begin != x->shard_begin || own->end != x->shard_end)
        return ht_broken(s, err, "%s: the fold has [%lld, %lld) of it", ht_phrase_tensor(s, t).text,
                         (long long)own->begin, (long long)own->end);
    for (int32_t c = 1; c < f->copies; c++) {
        const struct ht_fold_shard *shard = &of_unit[f->image[(int64_t)c * s->n_ranks + x->rank]];
        if (x->parts > 1) image.part = x->part + c % f->parts;
        add_bounds(b, &image, half, shard->begin, shard->end);
    }
    return HT_OK;
}

/* Checks point 3. */
static enum ht_status check_shards(const struct ht_schedule *s, const struct states *states, struct ht_error *err)
{
    enum ht_status status = HT_OK;
    struct bounds all = {0};
    int32_t parts = 1;
    bool *apart = ht_halves_apart(s);
    for (int64_t k = 0; k < states->n && !status; k++) {
        int32_t t = states->of[k];
        const struct ht_tensor *x = &s->tensors[t];
        if (x->shard_end <= x->shard_begin || x->label.unit < 0 || x->label.n_units > 1) continue;
        unsigned half = ht_apart_half(apart, x);
        add_bounds(&all, x, half, x->shard_begin, x->shard_end);
        status = add_images(s, &all, t, half, err);
        if (x->parts > parts) parts = x->parts;
    }
    struct bound *bounds = all.rows;
    int64_t n = all.n;
    if (n > 0) qsort(bounds, (size_t)n, sizeof *bounds, by_position);
    struct extent *extents = HT_NEW_ARRAY(struct extent, parts); /* of the current unit */
    for (int64_t i = 0, end; i < n && !status; i = end) {
        end = i;
        while (end < n && bounds[end].class == bounds[i].class && same_elements(&bounds[end], &bounds[i])) end++;
        if (i > 0 && !same_elements(&bounds[i], &bounds[i - 1])) memset(extents, 0, sizeof *extents * (size_t)parts);
        status = check_unit(s, bounds + i, end - i, extents, err);
    }
    free(extents);
    free(bounds);
    free(apart);
    return status;
}

enum ht_status ht_rule_updates(const struct ht_schedule *s, int n_branches, struct ht_error *err)
{
    enum ht_status status = HT_OK;
    bool steps = s->n_units > 0;
    for (int32_t i = 0; i < s->n_ops && !steps; i++) steps = s->ops[i].kind == HT_OP_OPTIMIZER_STEP;
    if (!steps) return HT_OK; /* a fragment: recovery, inference */
    struct states states = find_states(s);
    for (int b = 0; b < n_branches && !status; b++) status = check_branch(s, &states, ht_branch(b), err);
    for (int b = 0; b < n_branches && !status; b++) status = check_complete(s, ht_branch(b), err);
    if (!status) status = check_shards(s, &states, err);
    free(states.of);
    return status;
}
