/*
 * OPTIMIZER_STEP, UNDO and VALIDATE. They find their work by the tensors among their effects: every momentum tensor is
 * stepped, or undone, with the tensors that cover its elements.
 *
 * Steps and VALIDATE have two halves: one calls kernels, and one evaluates their results on the host when the op has
 * ended. On the CPU one follows the other; on a stream the first half is enqueued ahead of time.
 */
#include "common/backend/cpu_call.h"
#include "common/kernels/grad_check.h"
#include "common/kernels/undo.h"

/* Returns the factor of the gradients. A step that waits for the final check is clipped; any other uses the gradients
   as they are. */
static double grad_scale(const struct ht_cpu_call *c)
{
    const struct ht_cpu_slot *slot = ht_cpu_slot(c->control, c->iteration);
    return (c->op->when == HT_ALWAYS ? 1 : slot->clip_factor) / slot->loss_scale;
}

static struct ht_adamw_step coefficients(const struct ht_cpu_call *c, int64_t step)
{
    struct ht_adamw config = c->options->adamw;
    if (c->options->learning_rate && !c->check_only)
        config.lr = c->options->learning_rate(c->options->data_ctx, c->iteration);
    return ht_adamw_step(&config, step, grad_scale(c));
}

/* Returns the log of exactly these elements, or NULL. */
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

/* Returns the arrays of a step. In 16-bit numerics it steps the master copy, and writes the compute copy if the op has
   it. */
static struct ht_adamw_row arrays_of(struct ht_cpu_call *c, int32_t unit, struct ht_range e)
{
    bool master = ht_numerics_has_master(&c->options->numerics);
    return (struct ht_adamw_row){.param =
                                     ht_cpu_find_elements(c, master ? HT_MASTER : HT_PARAM, unit, -1, HT_UPDATE, e),
                                 .m = ht_cpu_find_elements(c, HT_MOMENTUM, unit, -1, HT_UPDATE, e),
                                 .v = ht_cpu_find_elements(c, HT_VARIANCE, unit, -1, HT_UPDATE, e),
                                 .grad = ht_cpu_find_elements(c, HT_GRAD, unit, -1, HT_CPU_READ, e),
                                 .grad_type = ht_cpu_dtype(c, HT_GRAD, -1),
                                 .copy = master ? ht_cpu_elements_if_any(c, HT_PARAM, unit, -1, HT_CPU_WRITE, e) : NULL,
                                 .copy_type = ht_cpu_dtype(c, HT_PARAM, -1),
                                 .n = e.end - e.begin};
}

/* Returns the momentum at `buffer` with all tensors of its elements; log is NULL if the op has none. */
static struct ht_undo row_at(struct ht_cpu_call *c, const struct ht_buffer *buffer, unsigned log_flags)
{
    int32_t unit = c->s->tensors[buffer->tensor].label.unit;
    struct ht_range e = ht_cpu_elements(c, buffer->tensor);
    struct ht_undo u = {.pool = c->args.pool, .row = arrays_of(c, unit, e)};
    const struct ht_buffer *log = log_of(c, unit, e, log_flags);
    if (!log) return u;
    if (log->bytes < ht_undo_log_bytes(u.row.n, 0))
        ht_cpu_fail(c, "the undo log of unit %d has %lld bytes, expected at least %lld", unit, (long long)log->bytes,
                    (long long)ht_undo_log_bytes(u.row.n, 0));
    u.log = log->data;
    u.log_bytes = log->bytes;
    return u;
}

/* ---- step ---- */

/* Finalizes a logged step. If its log had no room for all exceptions, nothing was stepped. */
static enum ht_status finalize_tensor(struct ht_cpu_call *c, const struct ht_undo *u, struct ht_cpu_row *row,
                                      int32_t unit)
{
    struct ht_undo_summary summary = c->kernels->undo_summary(c->device, u->log, u->log_bytes, u->row.n);
    struct ht_grad_partial partial = {0};
    if (summary.state != HT_UNDO_REFUSED) return HT_OK;
    struct ht_adamw_step step = coefficients(c, row->steps--);
    row->left_out = true;
    c->kernels->grad_check(c->device, u->pool, &step, u->row.grad, u->row.grad_type, u->row.n, &partial);
    if (!partial.fits) return HT_OK;
    if (c->control->redoes) {
        ht_cpu_slot(c->control, c->iteration)->left_out = true;
        return HT_OK;
    }
    return ht_cpu_fail(c, "the undo log of unit %d has %lld bytes; the step of iteration %d needs %lld", unit,
                       (long long)u->log_bytes, c->iteration,
                       (long long)ht_undo_log_bytes(u->row.n, summary.exceptions));
}

/* Returns true for a step of the bad branch after an overflow: only a step that was not clipped is made again. */
static bool nothing_to_redo(const struct ht_cpu_call *c)
{
    return c->op->when == HT_WHEN_BAD && !ht_cpu_slot(c->control, c->iteration)->finite;
}

static enum ht_status step_tensor(struct ht_cpu_call *c, const struct ht_undo *u, struct ht_cpu_row *row, int32_t unit)
{
    struct ht_adamw_step step = coefficients(c, row->steps + 1);
    if (row->left_out)
        return ht_cpu_fail(c,
                           "the last step of unit %d was left out, for its gradients were bad and its undo log "
                           "too small, and has not been undone",
                           unit);
    if (nothing_to_redo(c)) {
        if (u->row.copy)
            c->kernels->round_copy(c->device, u->pool, u->row.param, u->row.copy, u->row.copy_type, u->row.n);
        return HT_OK;
    }
    if (u->log)
        c->kernels->step_logged(c->device, u, &step);
    else
        c->kernels->adamw(c->device, u->pool, &step, &u->row);
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
        enum ht_status status = step_tensor(c, &u, &c->rows[b->tensor], c->s->tensors[b->tensor].label.unit);
        if (status) return status;
    }
    return n ? HT_OK : ht_cpu_fail(c, "updates no momentum in %s memory", ht_tier_name(c->tier));
}

enum ht_status ht_cpu_finalize_step(struct ht_cpu_call *c)
{
    if (nothing_to_redo(c)) return HT_OK;
    for (int32_t i = 0; i < c->n_buffers; i++) {
        const struct ht_buffer *b = &c->buffers[i];
        if (!ht_cpu_concerns(c, b, HT_MOMENTUM, HT_UPDATE)) continue;
        struct ht_undo u = row_at(c, b, HT_CPU_WRITE);
        if (!u.log) continue;
        enum ht_status status = finalize_tensor(c, &u, &c->rows[b->tensor], c->s->tensors[b->tensor].label.unit);
        if (status) return status;
    }
    return HT_OK;
}

/* ---- undo ---- */

static enum ht_status undo_tensor(struct ht_cpu_call *c, const struct ht_undo *u, struct ht_cpu_row *row, int32_t unit)
{
    if (!c->kernels->undo(c->device, u))
        return ht_cpu_fail(c, "the undo log of unit %d tells of no step that is still to be undone", unit);
    if (!row->left_out) row->steps--;
    row->left_out = false;
    if (!c->control->undo_steps || !ht_cpu_slot(c->control, c->iteration)->finite) return HT_OK;
    /* No overflow: some step was left out, and only this op can make it again. */
    struct ht_adamw_step step = coefficients(c, ++row->steps);
    c->kernels->adamw(c->device, u->pool, &step, &u->row);
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
            return ht_cpu_fail(c,
                               "no effect reads an undo log (staging) of elements %lld to %lld of unit %d in %s "
                               "memory",
                               (long long)e.begin, (long long)e.end, unit, ht_tier_name(c->tier));
        n++;
        if (c->check_only) continue;
        enum ht_status status = undo_tensor(c, &u, &c->rows[b->tensor], unit);
        if (status) return status;
    }
    return n ? HT_OK : ht_cpu_fail(c, "updates no momentum in %s memory", ht_tier_name(c->tier));
}

/* ---- validate ---- */

/* Checks a gradient tensor. In parts after the first it covers only elements that no other part has, so that the norm
   counts each once. */
static void check_row(struct ht_cpu_call *c, int32_t tensor, const struct ht_adamw_step *step, const void *grad,
                      struct ht_range e)
{
    const struct ht_tensor *t = &c->s->tensors[tensor];
    struct ht_grad_partial *sum = &c->control->partials[tensor];
    enum ht_dtype type = ht_cpu_dtype(c, HT_GRAD, -1);
    struct ht_model part = ht_tensor_model(t, &c->options->model);
    if (t->part == 0) {
        c->kernels->grad_check(c->device, c->args.pool, step, grad, type, e.end - e.begin, sum);
        return;
    }
    *sum = (struct ht_grad_partial){.fits = true};
    for (int64_t at = e.begin, own = at; at <= e.end;) { /* own: begin of elements of this part alone */
        struct ht_part_run r = {.shared = true, .count = 1};
        if (at < e.end) r = ht_unit_part_run(&part, t->label.unit, at);
        if (r.count > e.end - at && at < e.end) r.count = e.end - at;
        if (r.shared && own < at) {
            const void *begin = ht_element(grad, type, own - e.begin);
            c->kernels->grad_check_more(c->device, c->args.pool, step, begin, type, at - own, sum);
        }
        at += r.count;
        if (r.shared) own = at;
    }
}

/* Makes the partials of the gradients that the op reads. Returns their number. */
static int32_t check_rows(struct ht_cpu_call *c)
{
    struct ht_adamw config = c->options->adamw;
    struct ht_adamw_step step = ht_adamw_step(&config, 1, 1 / ht_cpu_loss_scale(c));
    int32_t n = 0;
    for (int32_t i = 0; i < c->n_buffers; i++) {
        const struct ht_buffer *b = &c->buffers[i];
        const struct ht_tensor *t = &c->s->tensors[b->tensor];
        if (!ht_cpu_concerns(c, b, HT_GRAD, HT_NEED) || t->label.micro_batch >= 0) continue;
        struct ht_range e = ht_cpu_elements(c, b->tensor);
        const void *grad = ht_cpu_find_elements(c, HT_GRAD, t->label.unit, -1, HT_NEED, e);
        n++;
        /* A final check may hold gradients that other ops have checked, so that they live until then. */
        if (c->check_only || !ht_cpu_checks(c->control, c->id, b->tensor)) continue;
        check_row(c, b->tensor, &step, grad, e);
    }
    return n;
}

enum ht_status ht_cpu_validate(struct ht_cpu_call *c)
{
    bool is_final_check = c->op->label.unit < 0; /* of this rank, or, at open, of another */
    int32_t n = check_rows(c);
    if (c->status) return c->status;
    if (n == 0 && !is_final_check) return ht_cpu_fail(c, "reads no gradient in %s memory", ht_tier_name(c->tier));
    return HT_OK;
}

enum ht_status ht_cpu_finalize_validate(struct ht_cpu_call *c)
{
    bool is_final_check = c->op->label.unit < 0;
    struct ht_cpu_iteration summary;
    *c->ok = is_final_check ? ht_cpu_check(c->control, c->iteration, &summary) : true;
    if (is_final_check && c->options->outcomes) c->options->outcomes[c->iteration] = summary;
    return HT_OK;
}
