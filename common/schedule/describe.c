/* Labels and descriptions of ops and spaces for people. */
#include "common/schedule/names.h"

#include <stdio.h>

const char *ht_space_name(const struct ht_schedule *s, int32_t space, char *buf, size_t n)
{
    int32_t host = s->n_ranks, disk = host + s->n_nodes, remote = disk + s->n_nodes;
    if (space < host)
        snprintf(buf, n, "device %d", space);
    else if (space < disk)
        snprintf(buf, n, "host %d", space - host);
    else if (space < remote)
        snprintf(buf, n, "disk %d", space - disk);
    else
        snprintf(buf, n, "remote");
    return buf;
}

const char *ht_sub_op_descriptions(const struct ht_label *l, char *buf, size_t n)
{
    char names[64];
    buf[0] = 0;
    if (l->unit >= 0 && l->sub_ops && l->sub_ops != HT_ALL_SUB_OPS)
        snprintf(buf, n, " (%s)", ht_sub_ops_text(l->sub_ops, names, sizeof names));
    return buf;
}

/* Writes "3", "3-5", "3.1" (micro-batch 1, if there are several), "3 (qkv)" (some sub-ops) or "". */
static void short_label(const struct ht_schedule *s, const struct ht_label *l, char *buf, size_t n)
{
    char range[32] = "", batch[16] = "", sub_ops[72];
    if (l->unit >= 0 && l->n_units > 1)
        snprintf(range, sizeof range, "%d-%lld", l->unit, (long long)l->unit + l->n_units - 1);
    else if (l->unit >= 0)
        snprintf(range, sizeof range, "%d", l->unit);
    if (l->micro_batch >= 0 && s->n_micro_batches > 1) snprintf(batch, sizeof batch, ".%d", l->micro_batch);
    snprintf(buf, n, "%s%s%s", range, batch, ht_sub_op_descriptions(l, sub_ops, sizeof sub_ops));
}

const char *ht_op_label(const struct ht_schedule *s, int32_t op, char *buf, size_t n)
{
    // clang-format off
    static const char *const letters[HT_N_OP_KINDS] = {
        [HT_OP_FORWARD] = "F",     [HT_OP_RECOMPUTE] = "R",       [HT_OP_BACKWARD] = "B",
        [HT_OP_ACCUMULATE] = "A",  [HT_OP_OPTIMIZER_STEP] = "O",  [HT_OP_UNDO] = "U",
        [HT_OP_ALL_GATHER] = "AG", [HT_OP_REDUCE_SCATTER] = "RS", [HT_OP_ALL_REDUCE] = "AR",
        [HT_OP_SEND] = "S",        [HT_OP_RECEIVE] = "V",        [HT_OP_TRANSPOSE] = "T",
    };
    // clang-format on
    const struct ht_op *o = &s->ops[op];
    char label[128];
    if (o->name[0]) {
        snprintf(buf, n, "%s", o->name);
        return buf;
    }
    short_label(s, &o->label, label, sizeof label);
    if (o->kind == HT_OP_COPY) {
        /* the lane gives the direction, the first tensor the class */
        const char *lane = o->lane >= 0 && o->lane < s->n_lanes ? ht_lane_kind_name(s->lanes[o->lane].kind) : "copy";
        int64_t first = s->effects_begin[op];
        int32_t t = first < s->effects_begin[op + 1] ? s->effects[first].tensor : -1;
        snprintf(buf, n, "%s %s%s%s", lane,
                 t >= 0 && t < s->n_tensors ? ht_tensor_class_name(s->tensors[t].class) : "nothing",
                 label[0] ? " " : "", label);
    } else if (o->kind < HT_N_OP_KINDS && letters[o->kind] && label[0]) {
        snprintf(buf, n, "%s%s", letters[o->kind], label);
    } else {
        snprintf(buf, n, "%s%s%s", ht_op_kind_name(o->kind), label[0] ? " " : "", label);
    }
    return buf;
}

static enum ht_unit_kind unit_kind(const struct ht_schedule *s, int32_t unit)
{
    if (unit == 0) return HT_UNIT_EMBEDDING;
    return unit == s->n_units - 1 ? HT_UNIT_HEAD : HT_UNIT_BLOCK;
}

/* Returns the op's first row that is a tensor-parallel part, which tells the op's part; NULL if no row is a part. */
static const struct ht_tensor *part_of(const struct ht_schedule *s, int32_t op)
{
    for (int64_t e = s->effects_begin[op]; e < s->effects_begin[op + 1]; e++) {
        int32_t t = s->effects[e].tensor;
        if (t >= 0 && t < s->n_tensors && s->tensors[t].parts > 1) return &s->tensors[t];
    }
    return NULL;
}

const char *ht_op_description(const struct ht_schedule *s, int32_t op, char *buf, size_t n)
{
    const struct ht_op *o = &s->ops[op];
    const struct ht_label *l = &o->label;
    char what[48] = "", part[40] = "", about[96] = "", sub_ops[72], batch[40] = "", kind[24];
    snprintf(kind, sizeof kind, "%s", ht_op_kind_name(o->kind));
    for (char *c = kind; *c; c++)
        if (*c == '_') *c = ' ';
    if (o->kind == HT_OP_COPY && s->effects_begin[op] < s->effects_begin[op + 1]) {
        int32_t t = s->effects[s->effects_begin[op]].tensor;
        if (t >= 0 && t < s->n_tensors && (unsigned)s->tensors[t].class < HT_N_TENSOR_CLASSES)
            snprintf(what, sizeof what, " of %s", ht_tensor_class_descriptions[s->tensors[t].class]);
    }
    const struct ht_tensor *of = part_of(s, op);
    if (of) snprintf(part, sizeof part, " of part %d of %d", of->part, of->parts);
    if (l->unit >= 0) {
        if (s->n_units == 0) /* the kinds of a fragment's units are unknown */
            snprintf(about, sizeof about, " of unit %d", l->unit);
        else if (unit_kind(s, l->unit) == HT_UNIT_BLOCK)
            snprintf(about, sizeof about, " of block %d", l->unit);
        else
            snprintf(about, sizeof about, " of %s", ht_unit_kind_names[unit_kind(s, l->unit)]);
        if (l->n_units > 1) {
            size_t used = 0;
            while (about[used]) used++;
            snprintf(about + used, sizeof about - used, " to unit %lld", (long long)l->unit + l->n_units - 1);
        }
    }
    if (l->micro_batch >= 0 && s->n_micro_batches > 1)
        snprintf(batch, sizeof batch, ", micro-batch %d", l->micro_batch);
    snprintf(buf, n, "%s%s%s%s%s%s", kind, what, part, about, ht_sub_op_descriptions(l, sub_ops, sizeof sub_ops),
             batch);
    return buf;
}
