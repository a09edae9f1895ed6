/* COPY, ACCUMULATE and RESTORE, which find their work by the tensors among their effects: a tensor may be a whole unit
   or a shard. And faults in gradients. */
#include "common/backend/cpu_call.h"
#include "common/base/array.h"
#include "common/kernels/grad_sum.h"
#include "common/mem/disk.h"

#include <stdlib.h>
#include <string.h>

/* ---- copy ---- */

/* Returns the buffer of the tensor that is read, in another tier than `to`. */
static const struct ht_buffer *source_of(const struct ht_cpu_call *c, const struct ht_buffer *to)
{
    for (int32_t i = 0; i < c->n_buffers; i++) {
        const struct ht_buffer *b = &c->buffers[i];
        if (b->tensor == to->tensor && b->tier != to->tier && (b->flags & HT_NEED)) return b;
    }
    return NULL;
}

/* Moves of a copy between a disk space and memory. */
struct disk_moves {
    struct ht_disk_move *moves;
    int32_t *tensors;
    int32_t n;
};

static enum ht_status check_disk_copy(struct ht_cpu_call *c, const struct ht_buffer *to, const struct ht_buffer *from)
{
    enum ht_tier other = to->tier == HT_DISK ? (enum ht_tier)from->tier : (enum ht_tier)to->tier;
    if (!c->options->disk)
        return ht_cpu_fail(c, "tensor %d is on a disk; expected --disk DIR, which says where", to->tensor);
    if (other == HT_REMOTE || (other == HT_DEVICE && c->options->foreign_device))
        return ht_cpu_fail(c, "copies tensor %d between disk and %s memory; expected by way of the host's", to->tensor,
                           ht_tier_name(other));
    return HT_OK;
}

static void add_move(struct disk_moves *m, int32_t most, const struct ht_buffer *to, const struct ht_buffer *from)
{
    bool write = to->tier == HT_DISK;
    if (!m->moves) {
        m->moves = HT_NEW_ARRAY(struct ht_disk_move, most);
        m->tensors = HT_NEW_ARRAY(int32_t, most);
    }
    m->tensors[m->n] = to->tensor;
    m->moves[m->n++] = (struct ht_disk_move){.memory = write ? from->data : to->data,
                                             .at = write ? to->data : from->data,
                                             .bytes = to->bytes,
                                             .whole = true};
}

/* Carries out one direction's moves and frees the list. */
static enum ht_status carry_out(struct ht_cpu_call *c, bool write, struct disk_moves *m)
{
    struct ht_error why = {0};
    int32_t failed = 0;
    enum ht_status status = HT_OK;
    if (m->n) status = (write ? ht_disk_write : ht_disk_read)(c->options->disk, m->moves, m->n, &failed, &why);
    if (status) {
        const struct ht_tensor *t = &c->s->tensors[m->tensors[failed]];
        status = ht_cpu_fail(c, "tensor %d (%s of unit %d): %.400s", m->tensors[failed], ht_tensor_class_name(t->class),
                             t->label.unit, why.text);
    }
    free(m->moves);
    free(m->tensors);
    return status;
}

enum ht_status ht_cpu_copy(struct ht_cpu_call *c)
{
    struct disk_moves out = {0}, in = {0};
    enum ht_status status = HT_OK;
    for (int32_t i = 0; i < c->n_buffers; i++) {
        const struct ht_buffer *to = &c->buffers[i];
        if (!(to->flags & HT_CPU_WRITE) || c->s->tensors[to->tensor].class == HT_STAGING) continue;
        const struct ht_buffer *from = source_of(c, to);
        if (!from)
            return ht_cpu_fail(c, "writes tensor %d (%s) in %s memory and reads it nowhere else", to->tensor,
                               ht_tensor_class_name(c->s->tensors[to->tensor].class), ht_tier_name(to->tier));
        bool disk = to->tier == HT_DISK || from->tier == HT_DISK;
        if (c->check_only && disk && check_disk_copy(c, to, from)) return c->status;
        if (c->check_only || !to->bytes) continue;
        if (disk)
            add_move(to->tier == HT_DISK ? &out : &in, c->n_buffers, to, from);
        else
            c->kernels->copy(c->device, to->data, from->data, to->bytes);
    }
    status = carry_out(c, true, &out);
    enum ht_status read = carry_out(c, false, &in);
    return status ? status : read;
}

/* ---- gradients ---- */

/* Returns true when the op's effects are RELEASE only: a graph frees with it what only one of the branches used
   last. */
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
        const void *add = ht_cpu_find_elements(c, HT_GRAD, t->label.unit, t->label.micro_batch, HT_NEED, e);
        void *acc = ht_cpu_find_elements(c, HT_GRAD, t->label.unit, -1, HT_UPDATE, e);
        if (c->status) return c->status;
        if (!c->check_only)
            c->kernels->grad_sum(c->device, c->args.pool, acc, ht_cpu_dtype(c, HT_GRAD, -1), add,
                                 ht_cpu_dtype(c, HT_GRAD, t->label.micro_batch), e.end - e.begin);
        n++;
    }
    return n ? HT_OK : ht_cpu_fail(c, "accumulates no gradient of a micro-batch in %s memory", ht_tier_name(c->tier));
}

/* ---- restore ---- */

enum ht_status ht_cpu_restore(struct ht_cpu_call *c)
{
    int32_t n = 0;
    if (!ht_numerics_has_master(&c->options->numerics))
        return ht_cpu_fail(c, "restores 16-bit parameters in FP32 numerics");
    for (int32_t i = 0; i < c->n_buffers; i++) {
        const struct ht_buffer *b = &c->buffers[i];
        if (!ht_cpu_concerns(c, b, HT_PARAM, HT_CPU_WRITE)) continue;
        int32_t unit = c->s->tensors[b->tensor].label.unit;
        struct ht_range e = ht_cpu_elements(c, b->tensor);
        const float *master = ht_cpu_find_elements(c, HT_MASTER, unit, -1, HT_CPU_READ, e);
        void *copy = ht_cpu_find_elements(c, HT_PARAM, unit, -1, HT_CPU_WRITE, e);
        if (c->status) return c->status;
        if (!c->check_only)
            c->kernels->round_copy(c->device, c->args.pool, master, copy, ht_cpu_dtype(c, HT_PARAM, -1),
                                   e.end - e.begin);
        n++;
    }
    return n ? HT_OK : ht_cpu_fail(c, "writes no parameters in %s memory", ht_tier_name(c->tier));
}

/* ---- faults ---- */

/* Bits of a fault in each type. Static, since a device may read them long after the op was enqueued. */
static const uint32_t fault_bits[][3] = {
    [HT_CPU_FAULT_INFINITE] = {[HT_F32] = 0x7f800000, [HT_F16] = 0x7c00, [HT_BF16] = 0x7f80},
    [HT_CPU_FAULT_NAN] = {[HT_F32] = 0x7fc00000, [HT_F16] = 0x7e00, [HT_BF16] = 0x7fc0},
    [HT_CPU_FAULT_HUGE] = {[HT_F32] = 0x7149f2ca, [HT_F16] = 0x7bff, [HT_BF16] = 0x714a},
};

double ht_cpu_fault_value(enum ht_cpu_fault_kind kind, enum ht_dtype type)
{
    float value;
    ht_widen_copy(NULL, &fault_bits[kind][type], type, &value, 1);
    return value;
}

void ht_cpu_inject(const struct ht_cpu_call *c)
{
    const struct ht_label *l = &c->op->label;
    for (int32_t i = 0; i < c->options->n_faults; i++) {
        const struct ht_cpu_fault *f = &c->options->faults[i];
        bool here = f->iteration == c->iteration && f->micro_batch == l->micro_batch && f->unit >= l->unit &&
                    f->unit < l->unit + l->n_units;
        if (!here) continue;
        int32_t j = f->micro_batch;
        const struct ht_buffer *b = ht_cpu_lookup(c, HT_GRAD, f->unit, j, HT_CPU_WRITE);
        if (!b) b = ht_cpu_lookup(c, HT_GRAD, f->unit, j = -1, HT_CPU_WRITE);
        enum ht_dtype type = ht_cpu_dtype(c, HT_GRAD, j);
        void *at = ht_element(b->data, type, f->element % (b->bytes / ht_dtype_bytes(type)));
        c->kernels->copy(c->device, at, &fault_bits[f->kind][type], ht_dtype_bytes(type));
    }
}
