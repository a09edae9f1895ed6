#include "common/backend/cpu.h"

#include "common/backend/cpu_call.h"
#include "common/backend/cpu_cores.h"
#include "common/backend/cpu_steps.h"
#include "common/base/array.h"
#include "common/comm/comm.h"
#include "common/schedule/residency.h"
#include "common/schedule/sum_order.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct ht_cpu {
    struct ht_cpu_options options;
    struct ht_cpu_split split;
    struct ht_cpu_cores device, host;
    const struct ht_schedule *s; /* of the open run */
    struct ht_cpu_row *rows;     /* [n_tensors] */
    struct ht_cpu_steps *steps;  /* step counts between runs */
    struct ht_cpu_control control;
    bool *ok; /* [n_ops] outcome of each validate op's last run; read by the lane that wrote it */
    int32_t n_compute_lanes;
    bool has_sums;
    int32_t first_iteration; /* added to the executor's iteration, which counts from 0 */
};

static enum ht_status check_model(const struct ht_cpu_options *o, struct ht_error *err)
{
    const struct ht_model *m = &o->model;
    const struct ht_numerics *n = &o->numerics;
    if (m->dropout) return ht_fail(err, HT_INFEASIBLE, "model '%s': the cpu backend has no dropout", m->name);
    if (m->arch == HT_ARCH_DIT) return ht_fail(err, HT_INFEASIBLE, "model '%s': there are no kernels of DiT", m->name);
    if (n->grad != n->param || (n->accumulate != n->param && n->accumulate != HT_F32))
        return ht_fail(err, HT_INFEASIBLE,
                       "numerics %s/%s/%s/%s (param, grad, accumulate, reduce): the cpu backend stores gradients as "
                       "parameters, and adds them up in that type or in f32",
                       ht_dtype_name(n->param), ht_dtype_name(n->grad), ht_dtype_name(n->accumulate),
                       ht_dtype_name(n->reduce));
    return HT_OK;
}

enum ht_status ht_cpu_create(const struct ht_cpu_options *options, struct ht_error *err, struct ht_cpu **out)
{
    assert(options->data && options->tokens_per_iteration >= 1);
    *out = NULL;
    enum ht_status status = check_model(options, err);
    if (status) return status;
    struct ht_cpu *cpu = HT_NEW(struct ht_cpu);
    cpu->options = *options;
    cpu->control = (struct ht_cpu_control){.rank = options->comm ? options->comm->rank : 0,
                                           .options = ht_control_filled(&options->control),
                                           .scaler = ht_scaler_start(&options->control)};
    cpu->steps = ht_cpu_steps_create();
    cpu->options.split = NULL;
    if (options->split) {
        cpu->split = *options->split;
        cpu->options.split = &cpu->split;
    }
    status = ht_cpu_cores_create(cpu->options.split, err, &cpu->device, &cpu->host);
    if (status) {
        ht_cpu_destroy(cpu);
        return status;
    }
    *out = cpu;
    return HT_OK;
}

int64_t ht_cpu_param_bytes(const struct ht_cpu *cpu)
{
    return ht_dtype_bytes(cpu->options.numerics.param);
}

void ht_cpu_set_disk(struct ht_cpu *cpu, struct ht_disk *disk)
{
    cpu->options.disk = disk;
}

void ht_cpu_set_first_iteration(struct ht_cpu *cpu, int32_t iteration)
{
    cpu->first_iteration = iteration;
}

struct ht_scaler ht_cpu_control_get(const struct ht_cpu *cpu)
{
    return cpu->control.scaler;
}

void ht_cpu_control_set(struct ht_cpu *cpu, struct ht_scaler scaler)
{
    cpu->control.scaler = scaler;
}

int64_t ht_cpu_row_steps(const struct ht_cpu *cpu, int32_t unit, int64_t begin, int64_t end)
{
    return ht_cpu_steps_get(cpu->steps, unit, begin, end, cpu->first_iteration);
}

void ht_cpu_set_row_steps(struct ht_cpu *cpu, int32_t unit, int64_t begin, int64_t end, int64_t steps)
{
    ht_cpu_steps_put(cpu->steps, unit, begin, end, steps);
}

void ht_cpu_destroy(struct ht_cpu *cpu)
{
    if (!cpu) return;
    ht_cpu_cores_free(&cpu->device);
    ht_cpu_cores_free(&cpu->host);
    ht_cpu_steps_destroy(cpu->steps);
    free(cpu->rows);
    free(cpu->ok);
    free(cpu);
}

/* ---- one op ---- */

typedef enum ht_status (*call_fn)(struct ht_cpu_call *c);

/* shaped: the op has units and a micro-batch, and its work's shape. */
static const struct {
    call_fn fn;
    bool shaped, pooled;
} calls[HT_N_OP_KINDS] = {
    [HT_OP_FORWARD] = {ht_cpu_forward, true, true},
    [HT_OP_RECOMPUTE] = {ht_cpu_recompute, true, true},
    [HT_OP_BACKWARD] = {ht_cpu_backward, true, true},
    [HT_OP_COPY] = {ht_cpu_copy, false, false},
    [HT_OP_ACCUMULATE] = {ht_cpu_accumulate, false, true},
    [HT_OP_OPTIMIZER_STEP] = {ht_cpu_step, false, true},
    [HT_OP_UNDO] = {ht_cpu_undo, false, true},
    [HT_OP_RESTORE] = {ht_cpu_restore, false, true},
    [HT_OP_VALIDATE] = {ht_cpu_validate, false, true},
    [HT_OP_ALL_GATHER] = {ht_cpu_all_gather, false, false},
    [HT_OP_REDUCE_SCATTER] = {ht_cpu_reduce_scatter, false, false},
    [HT_OP_ALL_REDUCE] = {ht_cpu_all_reduce, false, false},
    [HT_OP_SEND] = {ht_cpu_send_receive, false, false},
    [HT_OP_RECEIVE] = {ht_cpu_send_receive, false, false},
};

static void make_call(struct ht_cpu *cpu, int32_t iteration, int32_t op, const struct ht_buffer *buffers, int32_t n,
                      struct ht_error *err, struct ht_cpu_call *c)
{
    const struct ht_schedule *s = cpu->s;
    bool on_device = s->lanes[s->ops[op].lane].kind == HT_LANE_COMPUTE;
    int32_t tp = s->works[s->ops[op].work].tp;
    *c = (struct ht_cpu_call){
        .options = &cpu->options,
        .s = s,
        .iteration = cpu->first_iteration + iteration,
        .id = op,
        .op = &s->ops[op],
        .buffers = buffers,
        .n_buffers = n,
        .tier = on_device ? HT_DEVICE : HT_HOST,
        .kernels = &ht_cpu_kernels,
        .comm = cpu->options.comm,
        .args = {.model = &cpu->options.model,
                 .batch = s->works[s->ops[op].work].batch,
                 .seq = s->works[s->ops[op].work].seq,
                 .dtype = cpu->options.numerics.param,
                 .grad = cpu->options.numerics.grad},
        .has_sums = cpu->has_sums,
        .rows = cpu->rows,
        .control = &cpu->control,
        .ok = &cpu->ok[op],
        .err = err,
    };
    if (!calls[s->ops[op].kind].shaped || tp <= 1) return;
    c->part = ht_model_part(&cpu->options.model, op - ht_group_begin(s, op), tp);
    c->part.sequence = s->works[s->ops[op].work].sequence;
    c->link = (struct ht_part_link){c, ht_cpu_sum_parts, ht_cpu_gather_parts, ht_cpu_scatter_parts};
    c->args.model = &c->part;
    c->args.link = &c->link;
}

static enum ht_status perform(struct ht_cpu_call *c)
{
    enum ht_status status = calls[c->op->kind].fn(c);
    if (status == HT_OK && c->op->kind == HT_OP_BACKWARD) ht_cpu_inject(c);
    return status;
}

static enum ht_status conclude(struct ht_cpu_call *c)
{
    if (c->op->kind == HT_OP_VALIDATE) return ht_cpu_finalize_validate(c);
    return c->op->kind == HT_OP_OPTIMIZER_STEP ? ht_cpu_finalize_step(c) : HT_OK;
}

static enum ht_status run_op(void *ctx, int32_t iteration, int32_t op, const struct ht_buffer *buffers, int32_t n,
                             struct ht_error *err)
{
    struct ht_cpu *cpu = ctx;
    struct ht_cpu_call c;
    make_call(cpu, iteration, op, buffers, n, err, &c);
    if (!calls[c.op->kind].pooled) return perform(&c);
    struct ht_cpu_cores *cores = c.tier == HT_DEVICE ? &cpu->device : &cpu->host;
    c.args.pool = ht_cpu_cores_take(cores);
    enum ht_status status = perform(&c);
    if (status == HT_OK) status = conclude(&c);
    ht_cpu_cores_give(cores);
    return status;
}

enum ht_status ht_cpu_run_on(struct ht_cpu *cpu, const struct ht_kernels *kernels, void *device, struct ht_comm *comm,
                             int32_t iteration, int32_t op, const struct ht_buffer *buffers, int32_t n,
                             struct ht_error *err)
{
    struct ht_cpu_call c;
    make_call(cpu, iteration, op, buffers, n, err, &c);
    c.kernels = kernels;
    c.device = device;
    if (comm) c.comm = comm;
    return perform(&c);
}

enum ht_status ht_cpu_finalize_on(struct ht_cpu *cpu, const struct ht_kernels *kernels, void *device, int32_t iteration,
                                  int32_t op, const struct ht_buffer *buffers, int32_t n, struct ht_error *err)
{
    struct ht_cpu_call c;
    make_call(cpu, iteration, op, buffers, n, err, &c);
    c.kernels = kernels;
    c.device = device;
    return conclude(&c);
}

static bool control(void *ctx, int32_t iteration, int32_t op)
{
    const struct ht_cpu *cpu = ctx;
    (void)iteration;
    return cpu->ok[op];
}

/* ---- checking, before anything runs ---- */

static enum ht_status check_label(struct ht_cpu_call *c)
{
    const struct ht_label *l = &c->op->label;
    int64_t units = ht_model_units(c->args.model);
    if (l->unit < 0 || l->n_units < 1 || l->unit + (int64_t)l->n_units > units)
        return ht_cpu_fail(c, "is about units %d to %d of a model with %lld", l->unit, l->unit + l->n_units - 1,
                           (long long)units);
    if (l->micro_batch < 0 || l->micro_batch >= c->s->n_micro_batches)
        return ht_cpu_fail(c, "is about micro-batch %d of %d", l->micro_batch, c->s->n_micro_batches);
    if (c->args.batch < 1 || c->args.seq < 1 || c->args.seq > c->args.model->max_seq)
        return ht_cpu_fail(c, "its work has the shape batch %lld, sequence %lld (the longest is %lld)",
                           (long long)c->args.batch, (long long)c->args.seq, (long long)c->args.model->max_seq);
    return HT_OK;
}

static enum ht_status check_lane(struct ht_cpu_call *c)
{
    enum ht_lane_kind kind = c->s->lanes[c->op->lane].kind;
    if (kind == HT_LANE_COMPUTE || kind == HT_LANE_HOST || c->op->kind == HT_OP_COPY) return HT_OK;
    if ((kind == HT_LANE_COLLECTIVE || kind == HT_LANE_P2P) && c->op->match >= 0) return HT_OK;
    return ht_cpu_fail(c, "%s on a %s lane; expected a compute or host lane", ht_op_kind_name(c->op->kind),
                       ht_lane_kind_name(kind));
}

/* Checks that a pass over n parts is one of a group of n, and that the model can be cut so. */
static enum ht_status check_parts(const struct ht_cpu *cpu, int32_t op, struct ht_error *err)
{
    const struct ht_schedule *s = cpu->s;
    struct ht_cpu_call c = {.s = s, .id = op, .err = err};
    int32_t first = ht_group_begin(s, op), members = ht_group_end(s, first) - first, tp = s->works[s->ops[op].work].tp;
    char what[64];
    if ((tp > 1 ? tp : 1) != members) return ht_cpu_fail(&c, "works on one of %d parts in a group of %d", tp, members);
    if (tp > 1 && ht_model_cannot_part(&cpu->options.model, tp, what, sizeof(what)))
        return ht_cpu_fail(&c, "works on one of %d parts, which do not divide the %s", tp, what);
    return HT_OK;
}

static enum ht_status check_op(struct ht_cpu *cpu, int32_t op, struct ht_buffer *buffers, struct ht_error *err)
{
    const struct ht_schedule *s = cpu->s;
    int32_t n = 0;
    for (int64_t e = s->effects_begin[op]; e < s->effects_begin[op + 1]; e++) {
        const struct ht_effect *f = &s->effects[e];
        buffers[n++] = (struct ht_buffer){
            .tensor = f->tensor, .tier = f->tier, .flags = f->flags, .bytes = s->tensors[f->tensor].bytes};
    }
    struct ht_cpu_call c;
    enum ht_status status = calls[s->ops[op].kind].shaped ? check_parts(cpu, op, err) : HT_OK;
    if (status) return status;
    make_call(cpu, 0, op, buffers, n, err, &c);
    c.check_only = true;
    if (!calls[c.op->kind].fn)
        return ht_cpu_fail(&c, "this backend has no operation '%s'", ht_op_kind_name(c.op->kind));
    status = check_lane(&c);
    if (status == HT_OK && calls[c.op->kind].shaped) status = check_label(&c);
    return status ? status : calls[c.op->kind].fn(&c);
}

static struct ht_range elements_of(const struct ht_cpu *cpu, int32_t tensor)
{
    return ht_cpu_elements(&(struct ht_cpu_call){.s = cpu->s, .options = &cpu->options}, tensor);
}

/* Returns true when the tensor is momentum that this rank steps. Other ranks may have momentum of the same elements. */
static bool is_momentum(const struct ht_cpu *cpu, int32_t tensor)
{
    const struct ht_tensor *t = &cpu->s->tensors[tensor];
    bool here = !cpu->options.comm || t->rank == cpu->options.comm->rank;
    return here && t->class == HT_MOMENTUM && t->label.unit >= 0 && t->label.unit < ht_model_units(&cpu->options.model);
}

static enum ht_status begin_rows(struct ht_cpu *cpu, struct ht_error *err)
{
    cpu->rows = HT_NEW_ARRAY(struct ht_cpu_row, cpu->s->n_tensors);
    for (int32_t i = 0; i < cpu->s->n_tensors; i++) {
        if (!is_momentum(cpu, i)) continue;
        struct ht_range e = elements_of(cpu, i);
        int32_t unit = cpu->s->tensors[i].label.unit;
        cpu->rows[i].steps = ht_cpu_row_steps(cpu, unit, e.begin, e.end);
        if (cpu->rows[i].steps < 0)
            return ht_fail(
                err, HT_FAILED,
                "schedule '%s': the momentum of elements %lld to %lld of unit %d is one tensor, but they have "
                "not been stepped equally often",
                cpu->s->name, (long long)e.begin, (long long)e.end, unit);
    }
    return HT_OK;
}

/* Records how often this rank has stepped its tensors. */
static void end_rows(struct ht_cpu *cpu)
{
    for (int32_t i = 0; i < cpu->s->n_tensors; i++) {
        if (!is_momentum(cpu, i)) continue;
        struct ht_range e = elements_of(cpu, i);
        ht_cpu_steps_put(cpu->steps, cpu->s->tensors[i].label.unit, e.begin, e.end, cpu->rows[i].steps);
    }
}

static void free_run(struct ht_cpu *cpu)
{
    ht_cpu_control_close(&cpu->control);
    free(cpu->rows);
    free(cpu->ok);
    cpu->rows = NULL;
    cpu->ok = NULL;
    cpu->s = NULL;
}

static void close_backend(void *ctx)
{
    end_rows(ctx);
    free_run(ctx);
}

static enum ht_status open_backend(void *ctx, const struct ht_schedule *s, struct ht_error *err)
{
    struct ht_cpu *cpu = ctx;
    enum ht_status status;
    int64_t most = 0;
    for (int32_t op = 0; op < s->n_ops; op++) {
        int64_t n = s->effects_begin[op + 1] - s->effects_begin[op];
        if (n > most) most = n;
    }
    struct ht_buffer *buffers = HT_NEW_ARRAY(struct ht_buffer, most);
    cpu->s = s;
    cpu->has_sums = ht_schedule_has_sums(s);
    status = begin_rows(cpu, err);
    cpu->ok = HT_NEW_ARRAY(bool, s->n_ops);
    cpu->n_compute_lanes = 0;
    for (int32_t i = 0; i < s->n_lanes; i++) cpu->n_compute_lanes += s->lanes[i].kind == HT_LANE_COMPUTE;
    if (status == HT_OK) status = ht_cpu_control_open(&cpu->control, s, &cpu->options.model, err);
    for (int32_t op = 0; op < s->n_ops && status == HT_OK; op++) status = check_op(cpu, op, buffers, err);
    free(buffers);
    if (status) free_run(cpu);
    return status;
}

/* ---- lanes ---- */

static void lane_begin(void *ctx, int32_t lane)
{
    const struct ht_cpu *cpu = ctx;
    ht_cpu_pin_lane(cpu->options.split, cpu->s->lanes[lane].kind);
}

static bool has_dedicated_core(void *ctx, int32_t lane)
{
    const struct ht_cpu *cpu = ctx;
    bool pinned = cpu->options.split && !cpu->options.split->shared;
    return pinned && cpu->n_compute_lanes == 1 && cpu->s->lanes[lane].kind == HT_LANE_COMPUTE;
}

const struct ht_backend_ops ht_cpu_backend = {
    .name = "cpu",
    .open = open_backend,
    .lane_begin = lane_begin,
    .has_dedicated_core = has_dedicated_core,
    .run_op = run_op,
    .control = control,
    .close = close_backend,
};

/* ---- initial values ---- */

static enum ht_status init_params(const struct ht_cpu *cpu, const struct ht_tensor *t, struct ht_buffer b,
                                  struct ht_error *err)
{
    const struct ht_model *m = &cpu->options.model;
    if (t->label.unit < 0 || t->label.unit >= ht_model_units(m))
        return ht_fail(err, HT_FAILED, "tensor %d holds parameters of unit %d of a model with %lld", b.tensor,
                       t->label.unit, (long long)ht_model_units(m));
    struct ht_model part = ht_tensor_model(t, m);
    int64_t n = ht_unit_params(&part, t->label.unit), begin = t->shard_begin;
    int64_t end = t->sharded ? t->shard_end : n;
    enum ht_dtype type = t->class == HT_PARAM ? cpu->options.numerics.param : HT_F32;
    int64_t bytes = (end - begin) * ht_dtype_bytes(type);
    if (begin < 0 || end > n || (t->sharded ? b.bytes < bytes : b.bytes != bytes))
        return ht_fail(err, HT_FAILED, "tensor %d: %lld bytes for parameters %lld to %lld of unit %d, which has %lld",
                       b.tensor, (long long)b.bytes, (long long)begin, (long long)end, t->label.unit, (long long)n);
    float values[4096];
    for (int64_t at = begin, next; at < end; at = next) {
        struct ht_part_run r = ht_unit_part_run(&part, t->label.unit, at);
        int64_t most = r.count < (int64_t)HT_COUNT(values) ? r.count : (int64_t)HT_COUNT(values);
        next = end - at < most ? end : at + most;
        ht_unit_init_range(m, t->label.unit, cpu->options.seed, r.whole, r.whole + next - at, values);
        ht_round_copy(NULL, values, ht_element(b.data, type, at - begin), type, next - at);
    }
    memset((char *)b.data + bytes, 0, (size_t)(b.bytes - bytes)); /* a shard may be padded */
    return HT_OK;
}

enum ht_status ht_cpu_init(const struct ht_cpu *cpu, const struct ht_tensor *t, struct ht_buffer buffer,
                           struct ht_error *err)
{
    if (buffer.bytes == 0) return HT_OK;
    switch (t->class) {
    case HT_PARAM:
    case HT_MASTER:
        return init_params(cpu, t, buffer, err);
    case HT_MOMENTUM:
    case HT_VARIANCE:
        memset(buffer.data, 0, (size_t)buffer.bytes);
        return HT_OK;
    default:
        memset(buffer.data, 0xff, (size_t)buffer.bytes); /* NaN */
        return HT_OK;
    }
}
