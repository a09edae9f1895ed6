/*
 * COPY, ACCUMULATE, OPTIMIZER_STEP and VALIDATE: ops that go by the tensors they find among their effects, so that a
 * row may be a whole unit or a shard of one.
 */
#include "common/backend/cpu_call.h"

#include <stdatomic.h>
#include <string.h>

/* ---- copy ---- */

/* Where the tensor is read, in another tier than `to`. */
static const struct ht_buffer *source_of(const struct ht_cpu_call *c, const struct ht_buffer *to)
{
    for (int32_t i = 0; i < c->n_buffers; i++) {
        const struct ht_buffer *b = &c->buffers[i];
        if (b->tensor == to->tensor && b->tier != to->tier && (b->flags & HT_NEED)) return b;
    }
    return NULL;
}

enum ht_status ht_cpu_copy(struct ht_cpu_call *c)
{
    for (int32_t i = 0; i < c->n_buffers; i++) {
        const struct ht_buffer *to = &c->buffers[i];
        if (!(to->flags & HT_CPU_WRITE) || c->s->tensors[to->tensor].class == HT_STAGING) continue;
        const struct ht_buffer *from = source_of(c, to);
        if (!from)
            return ht_cpu_complain(c, "writes tensor %d (%s) in %s memory and reads it nowhere else", to->tensor,
                                   ht_tensor_class_name(c->s->tensors[to->tensor].class), ht_tier_name(to->tier));
        if (!c->check_only && to->bytes) memcpy(to->data, from->data, (size_t)to->bytes);
    }
    return HT_OK;
}

/* ---- gradients ---- */

/* Is this buffer a row of `class` that the op is about? */
static bool concerns(const struct ht_cpu_call *c, const struct ht_buffer *b, enum ht_tensor_class class, unsigned flags)
{
    const struct ht_tensor *t = &c->s->tensors[b->tensor];
    const struct ht_label *l = &c->op->label;
    bool about = l->unit < 0 || (t->label.unit >= l->unit && t->label.unit < l->unit + l->n_units);
    return t->class == class && about && b->tier == c->tier && (b->flags & flags);
}

enum ht_status ht_cpu_accumulate(struct ht_cpu_call *c)
{
    int32_t n = 0;
    for (int32_t i = 0; i < c->n_buffers; i++) {
        const struct ht_buffer *b = &c->buffers[i];
        const struct ht_tensor *t = &c->s->tensors[b->tensor];
        if (!concerns(c, b, HT_GRAD, HT_NEED) || t->label.micro_batch < 0) continue;
        struct ht_range e = ht_cpu_elements(c, b->tensor);
        float *add = ht_cpu_find_elements(c, HT_GRAD, t->label.unit, t->label.micro_batch, HT_NEED, e);
        float *acc = ht_cpu_find_elements(c, HT_GRAD, t->label.unit, -1, HT_UPDATE, e);
        if (c->status) return c->status;
        if (!c->check_only) ht_grad_accumulate(c->args.pool, acc, add, e.end - e.begin);
        n++;
    }
    return n ? HT_OK
             : ht_cpu_complain(c, "accumulates no gradient of a micro-batch in %s memory", ht_tier_name(c->tier));
}

/* ---- optimizer ---- */

enum ht_status ht_cpu_step(struct ht_cpu_call *c)
{
    const struct ht_cpu_options *o = c->options;
    struct ht_adamw config = o->adamw;
    if (o->learning_rate && !c->check_only) config.lr = o->learning_rate(o->data_ctx, c->iteration);
    struct ht_adamw_step step = ht_adamw_step(&config, (int64_t)c->iteration + 1, 1.0);
    int32_t n = 0;
    for (int32_t i = 0; i < c->n_buffers; i++) {
        const struct ht_buffer *b = &c->buffers[i];
        if (!concerns(c, b, HT_MOMENTUM, HT_UPDATE)) continue;
        int32_t unit = c->s->tensors[b->tensor].label.unit;
        struct ht_range e = ht_cpu_elements(c, b->tensor);
        float *p = ht_cpu_find_elements(c, HT_PARAM, unit, -1, HT_UPDATE, e);
        float *m = ht_cpu_find_elements(c, HT_MOMENTUM, unit, -1, HT_UPDATE, e);
        float *v = ht_cpu_find_elements(c, HT_VARIANCE, unit, -1, HT_UPDATE, e);
        const float *g = ht_cpu_find_elements(c, HT_GRAD, unit, -1, HT_CPU_READ, e);
        if (c->status) return c->status;
        if (!c->check_only) ht_adamw_update_pool(c->args.pool, &step, p, m, v, g, e.end - e.begin);
        n++;
    }
    return n ? HT_OK : ht_cpu_complain(c, "updates no momentum in %s memory", ht_tier_name(c->tier));
}

/* ---- validate ---- */

struct scan {
    const uint32_t *bits;
    int64_t n;
    atomic_bool bad;
};

/* An FP32 number is infinite or NaN when its exponent is all ones. */
static void scan_part(void *arg, int worker, int n_workers)
{
    struct scan *s = arg;
    struct ht_range r = ht_range_split(s->n, 16, worker, n_workers);
    uint32_t any = 0;
    for (int64_t i = r.begin; i < r.end; i++) any |= (s->bits[i] & 0x7f800000u) == 0x7f800000u;
    if (any) atomic_store_explicit(&s->bad, true, memory_order_relaxed);
}

enum ht_status ht_cpu_validate(struct ht_cpu_call *c)
{
    bool ok = true;
    int32_t n = 0;
    for (int32_t i = 0; i < c->n_buffers; i++) {
        const struct ht_buffer *b = &c->buffers[i];
        if (c->s->tensors[b->tensor].class != HT_GRAD || b->tier != c->tier || !(b->flags & HT_CPU_READ)) continue;
        n++;
        if (c->check_only) continue;
        struct scan scan = {.bits = b->data, .n = b->bytes / 4};
        ht_pool_run(c->args.pool, scan_part, &scan);
        ok &= !scan.bad;
    }
    if (n == 0) return ht_cpu_complain(c, "reads no gradient in %s memory", ht_tier_name(c->tier));
    if (!c->check_only) *c->verdict = ok;
    return HT_OK;
}
