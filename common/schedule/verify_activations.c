/*
 * Activations: proves that each pass reads and writes the activations of each sub-op once, however the activations of a
 * block are divided into tensors; and that passes read and write the residual stream.
 *
 *     forward       writes the activations of each of its sub-ops to exactly one tensor, and allocates no tensor for
 *                   others (a whole pass may write none); reads those of other sub-ops that ht_sub_ops_read names
 *     recompute     reads the input and the other sub-ops' activations that ht_sub_ops_read names; writes those of each
 *                   of its sub-ops to exactly one tensor, and allocates no tensor for others
 *     backward      reads the activations of each sub-op that ht_sub_ops_backward_read names from exactly one tensor
 *
 * X(u,j) is the input of a unit, dX(u,j) its gradient. Each pass has its part in this residual stream, a pass of units
 * u .. v at their ends, and each half of a block's pass:
 *
 *                   front                                back                             units u .. v
 *     forward       reads X(u,j)                         writes X(u+1,j)                  reads X(u,j), writes X(v+1,j)
 *     backward      reads X(u,j), UPDATEs dX(u,j)        reads dX(u+1,j), writes dX(u,j)  reads X(u,j), dX(v+1,j), writes
 *                                                                                         dX(u,j)
 *
 * Between the halves of a backward pass dX(u,j) holds the gradient of the residual: of proj, or a part of that of X(u,j), which
 * then the back's forward reads, too. What the front hands beside it (common/model/halves.h) it writes, and the back reads it for
 * the activations of that sub-op; its gradient the back writes and the front reads. Of forward passes and recomputations
 * only those with fc2 among their sub-ops write X(u+1,j).
 *
 * The hazards rule proves that a tensor is present when it is read and absent when it is produced.
 *
 * Not checked: units and micro-batches that have no activation tensor of their own; for whole passes, inputs and
 * gradients of inputs that have no tensor of their own, since figures' graphs leave them out in part, and those of unit
 * 0, which reads tokens.
 */
#include "common/schedule/rules.h"

#include "common/base/array.h"
#include "common/schedule/apart.h"
#include "common/schedule/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { READS = HT_NEED | HT_UPDATE, WRITES = HT_PRODUCE | HT_UPDATE };

/* An effect of the pass at hand on a whole tensor of activations, of an input or of an input's gradient, on the device. */
struct touched {
    int64_t cell;
    enum ht_tensor_class class;
    unsigned flags, sub_ops;
    unsigned handed; /* by a front to its back */
};

/* A pass, and what it touches. */
struct pass {
    int32_t op; /* -1: none */
    struct touched *touched;
    size_t n, cap;
};

struct walk {
    const struct ht_schedule *s;
    struct pass now, last; /* last: the last one that was checked */
    unsigned *kept;        /* [n_units * n_micro_batches] sub-ops that have a tensor of activations */
    bool *input, *dinput;  /* likewise: has a tensor of the input, of the input's gradient */
};

/* Returns the index of a label's unit and micro-batch; -1: it is about several units or none. */
static int64_t cell_of(const struct ht_schedule *s, const struct ht_label *l)
{
    bool one = l->unit >= 0 && l->n_units == 1 && l->micro_batch >= 0 && l->micro_batch < s->n_micro_batches;
    return one ? (int64_t)l->unit * s->n_micro_batches + l->micro_batch : -1;
}

/* Lists what the walk looks for in a pass. */
static void list_touched(struct walk *w, int32_t i)
{
    const struct ht_schedule *s = w->s;
    w->now.op = i;
    w->now.n = 0;
    HT_RESERVE(w->now.touched, w->now.cap, s->effects_begin[i + 1] - s->effects_begin[i]);
    for (int64_t e = s->effects_begin[i]; e < s->effects_begin[i + 1]; e++) {
        const struct ht_tensor *t = &s->tensors[s->effects[e].tensor];
        bool counts = t->class == HT_ACTIVATION || t->class == HT_CHECKPOINT || t->class == HT_ACT_GRAD;
        if (!counts || s->effects[e].tier != HT_DEVICE || t->sharded) continue;
        w->now.touched[w->now.n++] =
            (struct touched){cell_of(s, &t->label), t->class, s->effects[e].flags, t->label.sub_ops, ht_is_handed(t)};
    }
}

/* Returns true if the pass at hand touches the same as the last one for the same work: another part of it, mostly. */
static bool is_like_last(const struct walk *w)
{
    const struct pass *a = &w->last, *b = &w->now;
    if (a->op < 0 || a->n != b->n) return false;
    const struct ht_op *x = &w->s->ops[a->op], *y = &w->s->ops[b->op];
    return x->kind == y->kind && x->work == y->work && !memcmp(&x->label, &y->label, sizeof x->label) &&
           (b->n == 0 || !memcmp(a->touched, b->touched, b->n * sizeof *b->touched));
}

/* Returns true if an effect has one of the flags and is on a tensor of the class and cell; handed: one that a front hands. */
static bool is_on(const struct touched *x, enum ht_tensor_class class, bool handed, int64_t cell, unsigned flags)
{
    return x->class == class && x->handed == handed && x->cell == cell && x->flags & flags;
}

/* Returns the flags with which an op reads. An op of several units may also read what it produces for one of them. */
static unsigned reading(const struct ht_op *op)
{
    return op->label.n_units > 1 ? READS | HT_PRODUCE : READS;
}

/* Returns "the activations of unit 3 (qkv, attention), micro-batch 1". */
static struct ht_phrase acts_of(const struct walk *w, int64_t cell, unsigned sub_ops)
{
    struct ht_phrase p;
    char names[72];
    struct ht_label l = {.unit = (int32_t)(cell / w->s->n_micro_batches), .sub_ops = sub_ops};
    snprintf(p.text, sizeof p.text, "the activations of unit %d%s, micro-batch %d", l.unit,
             ht_sub_op_descriptions(&l, names, sizeof names), (int)(cell % w->s->n_micro_batches));
    return p;
}

/* Checks that each sub-op is in exactly one of the tensors on which pass i has an effect with one of the flags. What is
   handed is read for its sub-op. A back of fc2 alone, which keeps nothing without dropout, may have none. */
static enum ht_status check_covered(const struct walk *w, int32_t i, int64_t cell, unsigned flags, unsigned sub_ops,
                                    struct ht_error *err)
{
    unsigned seen = 0, twice = 0;
    bool reads = flags & HT_NEED;
    sub_ops &= w->kept[cell] | ~(1u << HT_SUB_FC2);
    for (size_t k = 0; k < w->now.n; k++) {
        const struct touched *x = &w->now.touched[k];
        if (!is_on(x, HT_ACTIVATION, false, cell, flags) && !(reads && is_on(x, HT_CHECKPOINT, true, cell, flags)))
            continue;
        unsigned here = x->sub_ops & sub_ops;
        twice |= seen & here;
        seen |= here;
    }
    if (twice)
        return ht_broken_op(w->s, i, err, "%s %s twice", reads ? "reads" : "writes", acts_of(w, cell, twice).text);
    if (sub_ops & ~seen)
        return ht_broken_op(w->s, i, err, "does not %s %s", reads ? "read" : "write",
                            acts_of(w, cell, sub_ops & ~seen).text);
    return HT_OK;
}

/* Returns true if the pass has an effect with one of the flags on a tensor of the class and cell. */
static bool touches(const struct walk *w, enum ht_tensor_class class, int64_t cell, unsigned flags)
{
    for (size_t k = 0; k < w->now.n; k++)
        if (is_on(&w->now.touched[k], class, false, cell, flags)) return true;
    return false;
}

/* Checks that pass i has an effect with one of the flags on what a front hands of a sub-op, 1 << HT_SUB_.., or its gradient. */
static enum ht_status check_handed(const struct walk *w, int32_t i, enum ht_tensor_class class, int64_t cell,
                                   unsigned flags, unsigned handed, struct ht_error *err)
{
    for (size_t k = 0; k < w->now.n; k++)
        if (is_on(&w->now.touched[k], class, true, cell, flags) && w->now.touched[k].sub_ops == handed) return HT_OK;
    return ht_broken_op(w->s, i, err, "does not %s %swhat %s hands on of unit %d, micro-batch %d",
                        flags == READS ? "read" : "write", class == HT_ACT_GRAD ? "the gradient of " : "",
                        ht_sub_op_name((enum ht_sub_op)__builtin_ctz(handed)), (int)(cell / w->s->n_micro_batches),
                        (int)(cell % w->s->n_micro_batches));
}

/* Checks that the op writes its sub-ops' activations, and allocates no tensor for others. */
static enum ht_status check_written(const struct walk *w, int32_t i, int64_t cell, struct ht_error *err)
{
    unsigned sub_ops = w->s->ops[i].label.sub_ops;
    enum ht_status status = check_covered(w, i, cell, WRITES, sub_ops, err);
    for (size_t k = 0; k < w->now.n && !status; k++) {
        unsigned more = w->now.touched[k].sub_ops & ~sub_ops;
        if (more && is_on(&w->now.touched[k], HT_ACTIVATION, false, cell, HT_PRODUCE))
            status = ht_broken_op(w->s, i, err, "allocates %s and does not write them", acts_of(w, cell, more).text);
    }
    return status;
}

static enum ht_status check_recompute(const struct walk *w, int32_t i, int64_t cell, struct ht_error *err)
{
    const struct ht_op *op = &w->s->ops[i];
    unsigned sub_ops = op->label.sub_ops;
    bool output = touches(w, HT_CHECKPOINT, cell + w->s->n_micro_batches, WRITES);
    struct ht_sub_op_reads reads =
        ht_sub_ops_read(w->s->works[op->work].arch, output ? sub_ops : sub_ops & ~(1u << HT_SUB_FC2));
    enum ht_status status = check_covered(w, i, cell, reading(op), reads.sub_ops, err);
    if (!status) status = check_written(w, i, cell, err);
    if (!status && reads.input && w->input[cell] && !touches(w, HT_CHECKPOINT, cell, reading(op)))
        status = ht_broken_op(w->s, i, err, "does not read the input of unit %d, micro-batch %d",
                              (int)(cell / w->s->n_micro_batches), op->label.micro_batch);
    return status;
}

static enum ht_status check_forward(const struct walk *w, int32_t i, int64_t cell, struct ht_error *err)
{
    const struct ht_op *op = &w->s->ops[i];
    unsigned reads = ht_sub_ops_read(w->s->works[op->work].arch, op->label.sub_ops).sub_ops;
    enum ht_status status = check_covered(w, i, cell, reading(op), reads, err);
    bool drops = op->label.sub_ops == HT_ALL_SUB_OPS && !touches(w, HT_ACTIVATION, cell, WRITES);
    return status || drops ? status : check_written(w, i, cell, err);
}

static enum ht_status check_backward(const struct walk *w, int32_t i, int64_t cell, struct ht_error *err)
{
    const struct ht_op *op = &w->s->ops[i];
    bool dropout = w->s->works[op->work].dropout;
    return check_covered(w, i, cell, reading(op), ht_sub_ops_backward_read(dropout, op->label.sub_ops).sub_ops, err);
}

/* Checks that a pass has an effect with one of the flags on X, of class HT_CHECKPOINT, or dX, of HT_ACT_GRAD. */
static enum ht_status check_stream(const struct walk *w, int32_t i, enum ht_tensor_class class, int64_t cell,
                                   unsigned flags, struct ht_error *err)
{
    if (touches(w, class, cell, flags)) return HT_OK;
    return ht_broken_op(w->s, i, err, "does not %s the %sinput of unit %d, micro-batch %d",
                        flags == READS       ? "read"
                        : flags == HT_UPDATE ? "update"
                                             : "write",
                        class == HT_ACT_GRAD ? "gradient of the " : "", (int)(cell / w->s->n_micro_batches),
                        (int)(cell % w->s->n_micro_batches));
}

/* Returns true if the residual stream of a whole pass is followed at a cell. */
static bool is_followed(const struct walk *w, enum ht_tensor_class class, int64_t cell)
{
    int64_t first = w->s->n_micro_batches, end = (int64_t)w->s->n_units * first; /* of unit 1, behind the last */
    return cell >= first && cell < end && (class == HT_ACT_GRAD ? w->dinput : w->input)[cell];
}

/* Checks the part of a pass, or of a half, in the residual stream. The coverage rule proves that there is a unit behind
   a half's. */
static enum ht_status check_residual(const struct walk *w, int32_t i, struct ht_error *err)
{
    const struct ht_label *l = &w->s->ops[i].label;
    bool forward = w->s->ops[i].kind == HT_OP_FORWARD, half = l->sub_ops != HT_ALL_SUB_OPS;
    bool begins = l->sub_ops >> HT_SUB_NORM1 & 1, ends = l->sub_ops >> HT_SUB_FC2 & 1;
    bool around = forward && ht_is_back(l->sub_ops) && !ht_hands_proj(l->sub_ops); /* X(u,j) is the residual */
    unsigned handed = half && ht_is_half(l->sub_ops) ? ht_handed(l->sub_ops) : 0;
    int64_t cell = cell_of(w->s, &(struct ht_label){.unit = l->unit, .n_units = 1, .micro_batch = l->micro_batch});
    int64_t next = cell + (int64_t)l->n_units * w->s->n_micro_batches;
    const struct {
        bool applies;
        enum ht_tensor_class class;
        int64_t cell;
        unsigned flags;
    } parts[] = {{begins || around, HT_CHECKPOINT, cell, READS},
                 {forward && ends, HT_CHECKPOINT, next, WRITES},
                 {!forward && ends, HT_ACT_GRAD, next, READS},
                 {!forward, HT_ACT_GRAD, cell, ends ? WRITES : HT_UPDATE}};
    enum ht_status status = HT_OK;
    for (size_t k = 0; k < HT_COUNT(parts) && !status && cell >= 0; k++)
        if (parts[k].applies && (half || is_followed(w, parts[k].class, parts[k].cell)))
            status = check_stream(w, i, parts[k].class, parts[k].cell, parts[k].flags, err);
    if (status || !handed || cell < 0 || (forward && ends)) return status;
    return check_handed(w, i, forward ? HT_CHECKPOINT : HT_ACT_GRAD, cell, forward || ends ? WRITES : READS, handed,
                        err);
}

/* Checks that only what has fc2 among its sub-ops writes the output. */
static enum ht_status check_output(const struct walk *w, int32_t i, int64_t cell, struct ht_error *err)
{
    const struct ht_op *op = &w->s->ops[i];
    int64_t next = cell + w->s->n_micro_batches;
    if (op->kind == HT_OP_BACKWARD || op->label.sub_ops >> HT_SUB_FC2 & 1) return HT_OK;
    if (!touches(w, HT_CHECKPOINT, next, WRITES)) return HT_OK;
    return ht_broken_op(w->s, i, err, "writes the input of unit %d, micro-batch %d, but does not pass fc2",
                        (int)(next / w->s->n_micro_batches), op->label.micro_batch);
}

static enum ht_status check_pass(struct walk *w, int32_t i, struct ht_error *err)
{
    const struct ht_schedule *s = w->s;
    const struct ht_op *op = &s->ops[i];
    list_touched(w, i);
    if (is_like_last(w)) return HT_OK;
    enum ht_status status = op->kind == HT_OP_RECOMPUTE ? HT_OK : check_residual(w, i, err);
    for (int32_t u = op->label.unit; u < op->label.unit + op->label.n_units && !status; u++) {
        int64_t cell = cell_of(s, &(struct ht_label){.unit = u, .n_units = 1, .micro_batch = op->label.micro_batch});
        if (cell < 0) continue;
        status = check_output(w, i, cell, err);
        if (status || !w->kept[cell]) continue;
        if (op->kind == HT_OP_RECOMPUTE) status = check_recompute(w, i, cell, err);
        if (op->kind == HT_OP_BACKWARD) status = check_backward(w, i, cell, err);
        if (op->kind == HT_OP_FORWARD) status = check_forward(w, i, cell, err);
    }
    struct pass last = w->last;
    w->last = w->now;
    w->now = last;
    return status;
}

enum ht_status ht_rule_activations(const struct ht_schedule *s, struct ht_error *err)
{
    int64_t n = (int64_t)s->n_units * s->n_micro_batches;
    struct walk w = {.s = s,
                     .last = {.op = -1},
                     .kept = HT_NEW_ARRAY(unsigned, n),
                     .input = HT_NEW_ARRAY(bool, n),
                     .dinput = HT_NEW_ARRAY(bool, n)};
    enum ht_status status = HT_OK;
    for (int32_t t = 0; t < s->n_tensors && n; t++) {
        int64_t cell = cell_of(s, &s->tensors[t].label);
        if (ht_is_handed(&s->tensors[t])) continue;
        if (cell >= 0 && s->tensors[t].class == HT_ACTIVATION) w.kept[cell] |= s->tensors[t].label.sub_ops;
        if (cell >= 0 && s->tensors[t].class == HT_CHECKPOINT) w.input[cell] = true;
        if (cell >= 0 && s->tensors[t].class == HT_ACT_GRAD) w.dinput[cell] = true;
    }
    for (int32_t i = 0; i < s->n_ops && n && !status; i++) {
        enum ht_op_kind kind = (enum ht_op_kind)s->ops[i].kind;
        if (kind == HT_OP_FORWARD || kind == HT_OP_RECOMPUTE || kind == HT_OP_BACKWARD) status = check_pass(&w, i, err);
    }
    free(w.now.touched);
    free(w.last.touched);
    free(w.kept);
    free(w.input);
    free(w.dinput);
    return status;
}
