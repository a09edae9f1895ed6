/* COPY and ACCUMULATE: ops that go by the tensors they find among their effects, so that a row may be a whole unit or a
   shard of one. */
#include "common/backend/cpu_call.h"

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

/* Nothing but RELEASE: how a graph frees what the one branch or the other was the last to use. */
static bool only_frees(const struct ht_cpu_call *c)
{
    bool only = c->n_buffers > 0;
    for (int32_t i = 0; i < c->n_buffers; i++) only &= c->buffers[i].flags == HT_RELEASE;
    return only;
}

enum ht_status ht_cpu_accumulate(struct ht_cpu_call *c)
{
    int32_t n = 0;
    if (only_frees(c)) return HT_OK;
    for (int32_t i = 0; i < c->n_buffers; i++) {
        const struct ht_buffer *b = &c->buffers[i];
        const struct ht_tensor *t = &c->s->tensors[b->tensor];
        if (!ht_cpu_concerns(c, b, HT_GRAD, HT_NEED) || t->label.micro_batch < 0) continue;
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
