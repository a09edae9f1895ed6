#include "common/backend/cpu_call.h"

#include "common/model/halves.h"
#include "common/schedule/apart.h"

#include <stdio.h>

enum ht_status ht_cpu_fail(struct ht_cpu_call *c, const char *fmt, ...)
{
    if (c->status) return c->status;
    char text[512], label[64];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    c->status = ht_fail(c->err, HT_FAILED, "schedule '%s': op %d (%s) on the cpu backend: %s", c->s->name, c->id,
                        ht_op_label(c->s, c->id, label, sizeof(label)), text);
    return c->status;
}

static bool in_reach(const struct ht_cpu_call *c, const struct ht_buffer *b, unsigned flags)
{
    if (flags == HT_CPU_READ && c->op->label.n_units > 1) flags |= HT_PRODUCE;
    return b->tier == c->tier && (b->flags & flags);
}

const struct ht_buffer *ht_cpu_lookup(const struct ht_cpu_call *c, enum ht_tensor_class class, int32_t unit,
                                      int32_t micro_batch, unsigned flags)
{
    for (int32_t i = 0; i < c->n_buffers; i++) {
        const struct ht_tensor *t = &c->s->tensors[c->buffers[i].tensor];
        if (t->class == class && t->label.unit == unit && t->label.micro_batch == micro_batch && !ht_is_handed(t) &&
            in_reach(c, &c->buffers[i], flags))
            return &c->buffers[i];
    }
    return NULL;
}

static const struct ht_buffer *lookup_handed(const struct ht_cpu_call *c, enum ht_tensor_class class, int32_t unit,
                                             unsigned handed, unsigned flags)
{
    for (int32_t i = 0; i < c->n_buffers; i++) {
        const struct ht_tensor *t = &c->s->tensors[c->buffers[i].tensor];
        if (t->class == class && t->label.unit == unit && t->label.micro_batch == c->op->label.micro_batch &&
            ht_is_handed(t) && t->label.sub_ops == handed && in_reach(c, &c->buffers[i], flags))
            return &c->buffers[i];
    }
    return NULL;
}

bool ht_cpu_has_handed(const struct ht_cpu_call *c, int32_t unit, unsigned handed)
{
    return lookup_handed(c, HT_CHECKPOINT, unit, handed, HT_CPU_READ);
}

void *ht_cpu_find_handed(struct ht_cpu_call *c, enum ht_tensor_class class, int32_t unit, unsigned handed,
                         unsigned flags)
{
    const struct ht_unit_args *a = &c->args;
    int64_t bytes = a->batch * a->seq * ht_handed_width(a->model, handed) * ht_dtype_bytes(a->dtype);
    const struct ht_buffer *b = lookup_handed(c, class, unit, handed, flags);
    char name[72];
    ht_sub_ops_text(handed, name, sizeof name);
    if (!b)
        ht_cpu_fail(c, "no effect %s what %s hands on in %s memory", flags == HT_CPU_READ ? "reads" : "writes", name,
                    ht_tier_name(c->tier));
    else if (b->bytes != bytes)
        ht_cpu_fail(c, "what %s hands on has %lld bytes, expected %lld", name, (long long)b->bytes, (long long)bytes);
    return b ? b->data : NULL;
}

/* "activation of unit 3, micro-batch 1" */
static const char *describe(enum ht_tensor_class class, int32_t unit, int32_t micro_batch, char *buf, size_t n)
{
    if (micro_batch >= 0)
        snprintf(buf, n, "%s of unit %d, micro-batch %d", ht_tensor_class_name(class), unit, micro_batch);
    else
        snprintf(buf, n, "%s of unit %d", ht_tensor_class_name(class), unit);
    return buf;
}

static const char *verb(unsigned flags)
{
    return flags == HT_CPU_READ ? "reads" : "writes";
}

void *ht_cpu_find(struct ht_cpu_call *c, enum ht_tensor_class class, int32_t unit, int32_t micro_batch, unsigned flags,
                  int64_t bytes)
{
    char what[96];
    const struct ht_buffer *b = ht_cpu_lookup(c, class, unit, micro_batch, flags);
    if (!b) {
        ht_cpu_fail(c, "no effect %s the %s in %s memory", verb(flags),
                    describe(class, unit, micro_batch, what, sizeof(what)), ht_tier_name(c->tier));
        return NULL;
    }
    if (b->bytes != bytes)
        ht_cpu_fail(c, "the %s has %lld bytes, expected %lld", describe(class, unit, micro_batch, what, sizeof(what)),
                    (long long)b->bytes, (long long)bytes);
    return b->data;
}

void ht_cpu_find_acts(struct ht_cpu_call *c, int32_t unit, unsigned flags, unsigned sub_ops, struct ht_block_acts *acts)
{
    const struct ht_unit_args *a = &c->args;
    int32_t micro_batch = c->op->label.micro_batch;
    unsigned found = 0;
    char what[96], names[64];
    describe(HT_ACTIVATION, unit, micro_batch, what, sizeof(what));
    for (int32_t i = 0; i < c->n_buffers; i++) {
        const struct ht_buffer *b = &c->buffers[i];
        const struct ht_tensor *t = &c->s->tensors[b->tensor];
        unsigned here = t->label.sub_ops & HT_ALL_SUB_OPS;
        if (t->class != HT_ACTIVATION || t->label.unit != unit || t->label.micro_batch != micro_batch ||
            !in_reach(c, b, flags) || !(here & sub_ops))
            continue;
        int64_t bytes = ht_sub_ops_activation_bytes(a->model, here, a->batch, a->seq, a->dtype);
        if (b->bytes != bytes)
            ht_cpu_fail(c, "the %s has %lld bytes for %s, expected %lld", what, (long long)b->bytes,
                        ht_sub_ops_text(here, names, sizeof(names)), (long long)bytes);
        if (found & here & sub_ops)
            ht_cpu_fail(c, "two effects %s %s of the %s in %s memory", flags == HT_CPU_READ ? "read" : "write",
                        ht_sub_ops_text(found & here & sub_ops, names, sizeof(names)), what, ht_tier_name(c->tier));
        if (flags == HT_CPU_WRITE && b->flags & HT_PRODUCE && here & ~sub_ops)
            ht_cpu_fail(c, "produces %s of the %s without filling it in; expected UPDATE",
                        ht_sub_ops_text(here & ~sub_ops, names, sizeof(names)), what);
        found |= here;
        if (!c->check_only) ht_block_acts_place(a->model, here, a->batch, a->seq, a->dtype, b->data, acts);
    }
    if (ht_sub_ops_activation_bytes(a->model, sub_ops & ~found, a->batch, a->seq, a->dtype))
        ht_cpu_fail(c, "no effect %s %s of the %s in %s memory", verb(flags),
                    ht_sub_ops_text(sub_ops & ~found, names, sizeof(names)), what, ht_tier_name(c->tier));
}

void *ht_cpu_workspace(struct ht_cpu_call *c, int64_t bytes)
{
    if (bytes == 0) return NULL;
    int64_t largest = -1;
    for (int32_t i = 0; i < c->n_buffers; i++) {
        const struct ht_buffer *b = &c->buffers[i];
        if (c->s->tensors[b->tensor].class != HT_WORKSPACE || !in_reach(c, b, HT_CPU_WRITE)) continue;
        if (b->bytes >= bytes) return b->data;
        if (b->bytes > largest) largest = b->bytes;
    }
    if (largest < 0)
        ht_cpu_fail(c, "no workspace in %s memory; expected %lld bytes", ht_tier_name(c->tier), (long long)bytes);
    else
        ht_cpu_fail(c, "the workspace has %lld bytes, expected %lld", (long long)largest, (long long)bytes);
    return NULL;
}

bool ht_cpu_concerns(const struct ht_cpu_call *c, const struct ht_buffer *b, enum ht_tensor_class class, unsigned flags)
{
    const struct ht_tensor *t = &c->s->tensors[b->tensor];
    const struct ht_label *l = &c->op->label;
    bool about = l->unit < 0 || (t->label.unit >= l->unit && t->label.unit < l->unit + l->n_units);
    return t->class == class && about && b->tier == c->tier && (b->flags & flags);
}

struct ht_range ht_cpu_elements(const struct ht_cpu_call *c, int32_t tensor)
{
    const struct ht_tensor *t = &c->s->tensors[tensor];
    if (t->sharded) return (struct ht_range){t->shard_begin, t->shard_end};
    struct ht_model part = ht_tensor_model(t, &c->options->model);
    return ht_sub_ops_params(&part, t->label.unit, t->label.sub_ops);
}

enum ht_dtype ht_cpu_dtype(const struct ht_cpu_call *c, enum ht_tensor_class class, int32_t micro_batch)
{
    const struct ht_numerics *n = &c->options->numerics;
    if (class == HT_PARAM) return n->param;
    if (class != HT_GRAD) return HT_F32;
    return micro_batch < 0 && c->has_sums ? n->accumulate : n->grad;
}

void *ht_cpu_elements_if_any(struct ht_cpu_call *c, enum ht_tensor_class class, int32_t unit, int32_t micro_batch,
                             unsigned flags, struct ht_range elements)
{
    if (!ht_cpu_lookup(c, class, unit, micro_batch, flags)) return NULL;
    return ht_cpu_find_elements(c, class, unit, micro_batch, flags, elements);
}

void *ht_cpu_find_elements(struct ht_cpu_call *c, enum ht_tensor_class class, int32_t unit, int32_t micro_batch,
                           unsigned flags, struct ht_range elements)
{
    char what[96];
    enum ht_dtype type = ht_cpu_dtype(c, class, micro_batch);
    for (int32_t i = 0; i < c->n_buffers; i++) {
        const struct ht_buffer *b = &c->buffers[i];
        const struct ht_tensor *t = &c->s->tensors[b->tensor];
        if (t->class != class || t->label.unit != unit || t->label.micro_batch != micro_batch || !in_reach(c, b, flags))
            continue;
        struct ht_range held = ht_cpu_elements(c, b->tensor);
        if (held.begin > elements.begin || held.end < elements.end) continue;
        int64_t bytes = (held.end - held.begin) * ht_dtype_bytes(type);
        if (t->sharded ? b->bytes < bytes : b->bytes != bytes) /* a shard may be padded */
            ht_cpu_fail(c, "the %s has %lld bytes for %lld elements of %s",
                        describe(class, unit, micro_batch, what, sizeof(what)), (long long)b->bytes,
                        (long long)(held.end - held.begin), ht_dtype_name(type));
        return c->check_only ? NULL : ht_element(b->data, type, elements.begin - held.begin);
    }
    ht_cpu_fail(c, "no effect %s elements %lld to %lld of the %s in %s memory", verb(flags), (long long)elements.begin,
                (long long)elements.end, describe(class, unit, micro_batch, what, sizeof(what)), ht_tier_name(c->tier));
    return NULL;
}
