/*
 * OPTIMIZER_STEP, UNDO and VALIDATE. They go by the tensors among their effects: every row of momentum is stepped, or
 * taken back, with what covers its elements.
 */
#include "common/backend/cpu_call.h"
#include "common/kernels/grad_check.h"
#include "common/kernels/undo.h"

static struct ht_adamw_step coefficients(const struct ht_cpu_call *c, int64_t step)
{
    struct ht_adamw config = c->options->adamw;
    if (c->options->learning_rate && !c->check_only)
        config.lr = c->options->learning_rate(c->options->data_ctx, c->iteration);
    return ht_adamw_step(&config, step, 1.0);
}

/* The log for exactly these elements, or NULL. */
static const struct ht_buffer *log_of(const struct ht_cpu_call *c, int32_t unit, struct ht_range elements,
                                      unsigned flags)
{
    for (int32_t i = 0; i < c->n_buffers; i++) {
        const struct ht_buffer *b = &c->buffers[i];
        const struct ht_tensor *t = &c->s->tensors[b->tensor];
        if (!ht_cpu_concerns(c, b, HT_STAGING, flags) || t->label.unit != unit || t->label.micro_batch >= 0) continue;
        struct ht_range e = ht_cpu_elements(c, b->tensor);
        if (e.begin == elements.begin && e.end == elements.end) return b;
    }
    return NULL;
}

/* The row of momentum at `buffer` with all that belongs to it; log is NULL if there is none among the effects. */
static struct ht_undo row_at(struct ht_cpu_call *c, const struct ht_buffer *buffer, unsigned log_flags)
{
    int32_t unit = c->s->tensors[buffer->tensor].label.unit;
    struct ht_range e = ht_cpu_elements(c, buffer->tensor);
    struct ht_undo row = {.pool = c->args.pool,
                          .param = ht_cpu_find_elements(c, HT_PARAM, unit, -1, HT_UPDATE, e),
                          .m = ht_cpu_find_elements(c, HT_MOMENTUM, unit, -1, HT_UPDATE, e),
                          .v = ht_cpu_find_elements(c, HT_VARIANCE, unit, -1, HT_UPDATE, e),
                          .grad = ht_cpu_find_elements(c, HT_GRAD, unit, -1, HT_CPU_READ, e),
                          .n = e.end - e.begin};
    const struct ht_buffer *log = log_of(c, unit, e, log_flags);
    if (!log) return row;
    if (log->bytes < ht_undo_log_bytes(row.n, 0))
        ht_cpu_complain(c, "the undo log of unit %d has %lld bytes, expected at least %lld", unit,
                        (long long)log->bytes, (long long)ht_undo_log_bytes(row.n, 0));
    row.log = log->data;
    row.log_bytes = log->bytes;
    return row;
}

/* ---- step ---- */

/* The log has no room for all exceptions, so nothing was stepped. */
static enum ht_status refused(struct ht_cpu_call *c, const struct ht_undo *u, const struct ht_adamw_step *step,
                              struct ht_cpu_row *row, int32_t unit)
{
    row->left_out = true;
    if (!ht_adamw_grads_fit(u->pool, step, u->grad, u->n)) return HT_OK;
    int64_t exceptions = ht_undo_summary(u->log, u->log_bytes, u->n).exceptions;
    return ht_cpu_complain(c, "the undo log of unit %d has %lld bytes; the step of iteration %d needs %lld", unit,
                           (long long)u->log_bytes, c->iteration, (long long)ht_undo_log_bytes(u->n, exceptions));
}

static enum ht_status step_row(struct ht_cpu_call *c, const struct ht_undo *u, struct ht_cpu_row *row, int32_t unit)
{
    struct ht_adamw_step step = coefficients(c, row->steps + 1);
    if (row->left_out)
        return ht_cpu_complain(c,
                               "the last step of unit %d was left out, for its gradients were bad and its undo log "
                               "too small, and has not been undone",
                               unit);
    if (!u->log)
        ht_adamw_update_pool(u->pool, &step, u->param, u->m, u->v, u->grad, u->n);
    else if (!ht_adamw_step_logged(u, &step))
        return refused(c, u, &step, row, unit);
    row->steps++;
    return HT_OK;
}

enum ht_status ht_cpu_step(struct ht_cpu_call *c)
{
    int32_t n = 0;
    for (int32_t i = 0; i < c->n_buffers; i++) {
        const struct ht_buffer *b = &c->buffers[i];
        if (!ht_cpu_concerns(c, b, HT_MOMENTUM, HT_UPDATE)) continue;
        struct ht_undo u = row_at(c, b, HT_CPU_WRITE);
        if (c->status) return c->status;
        n++;
        if (c->check_only) continue;
        enum ht_status status = step_row(c, &u, &c->rows[b->tensor], c->s->tensors[b->tensor].label.unit);
        if (status) return status;
    }
    return n ? HT_OK : ht_cpu_complain(c, "updates no momentum in %s memory", ht_tier_name(c->tier));
}

/* ---- undo ---- */

static enum ht_status undo_row(struct ht_cpu_call *c, const struct ht_undo *u, struct ht_cpu_row *row, int32_t unit)
{
    if (!ht_adamw_undo_exact(u))
        return ht_cpu_complain(c, "the undo log of unit %d tells of no step that is still to be undone", unit);
    if (!row->left_out) row->steps--;
    row->left_out = false;
    return HT_OK;
}

enum ht_status ht_cpu_undo(struct ht_cpu_call *c)
{
    int32_t n = 0;
    for (int32_t i = 0; i < c->n_buffers; i++) {
        const struct ht_buffer *b = &c->buffers[i];
        if (!ht_cpu_concerns(c, b, HT_MOMENTUM, HT_UPDATE)) continue;
        int32_t unit = c->s->tensors[b->tensor].label.unit;
        struct ht_range e = ht_cpu_elements(c, b->tensor);
        struct ht_undo u = row_at(c, b, HT_CPU_READ);
        if (c->status) return c->status;
        if (!log_of(c, unit, e, HT_CPU_READ))
            return ht_cpu_complain(c,
                                   "no effect reads an undo log (staging) of elements %lld to %lld of unit %d in %s "
                                   "memory",
                                   (long long)e.begin, (long long)e.end, unit, ht_tier_name(c->tier));
        n++;
        if (c->check_only) continue;
        enum ht_status status = undo_row(c, &u, &c->rows[b->tensor], unit);
        if (status) return status;
    }
    return n ? HT_OK : ht_cpu_complain(c, "updates no momentum in %s memory", ht_tier_name(c->tier));
}

/* ---- validate ---- */

enum ht_status ht_cpu_validate(struct ht_cpu_call *c)
{
    struct ht_adamw_step step = coefficients(c, 1); /* of which the check reads what is the same in every step */
    bool ok = true;
    int32_t n = 0;
    for (int32_t i = 0; i < c->n_buffers; i++) {
        const struct ht_buffer *b = &c->buffers[i];
        enum ht_tensor_class class = c->s->tensors[b->tensor].class;
        if ((class != HT_GRAD && class != HT_VARIANCE) || b->tier != c->tier || !(b->flags & HT_CPU_READ)) continue;
        n += class == HT_GRAD;
        if (c->check_only) continue;
        ok &= class == HT_GRAD ? ht_adamw_grads_fit(c->args.pool, &step, b->data, b->bytes / 4)
                               : ht_all_finite(c->args.pool, b->data, b->bytes / 4);
    }
    if (n == 0) return ht_cpu_complain(c, "reads no gradient in %s memory", ht_tier_name(c->tier));
    if (!c->check_only) *c->verdict = ok;
    return HT_OK;
}
