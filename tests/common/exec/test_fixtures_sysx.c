/*
 * Forward and backward of one stage on different GPUs (SysX): the pipelines of Fig. 5 and Fig. 8.
 *
 * GPUs are ranks of one node. Parameters lie in the node's host memory, and up to two ranks fetch the same ones: the
 * one that runs a stage forward and the one that runs it backward. With d backward stages to a forward stage, backward
 * stage q is unit q, and forward stage i is units d i .. d i + d - 1 (paper, Sec. 3.1; assignment from the captions of
 * Figs. 5, 8).
 *
 *     forward stage i    on GPU  i mod N
 *     backward stage q   on GPU  N - 1 - q mod N   (decoupled)  or where its forward stage is (Mobius)
 *
 * Per GPU: lane gpu; fetch (h2d), offload (d2h); sync for activations and their gradients, async for checkpoints sent
 * early; one host lane per backward stage (SysX) or one for all (Mobius). SysX steps at once, validates, and undoes
 * when bad; Mobius validates first. Messages cost nothing here, as in the figures.
 *
 * Times in the unit of the figures: a forward stage on a micro-batch takes T_f = 1, its backward T_b = 2, so a backward
 * stage T_b' = T_b / d. p, g, o: fetch, offload and step of one backward stage; twice that for a stage twice as large.
 */
#include "tests/common/exec/fixtures.h"

enum { PARAMS = 8192, BOUNDARY_BYTES = 4096 }; /* parameters of a forward stage; input of a stage */

struct shape {
    const char *name;
    int n_gpus, n_micro;
    int v, d;              /* forward stages per GPU, backward stages per forward stage */
    bool decoupled;        /* SysX's assignment; else Mobius's */
    bool rollback;         /* step at once, undo when bad; else validate first */
    bool serial;           /* one optimizer lane per GPU; else one per backward stage */
    int forward, backward; /* durations on one micro-batch: prices, and the order of ids follows them */
};

/* One stage passing over all micro-batches on its GPU. */
struct stage {
    bool forward;
    int index; /* i or q */
};

/* One stage and micro-batch, in the ideal schedule without transfers. */
struct pass {
    struct stage stage;
    int gpu, micro, start, end;
    bool first, last; /* of its stage on the GPU */
    int at;           /* of its stage in the GPU's order */
};

/* Ids follow the ideal schedule: at one instant first what follows from ends, then what starts, by GPU. */
struct moment {
    int time, is_start, gpu, pass;
};

struct maker {
    struct shape p;
    struct ht_schedule *s;
    int n_forward, n_backward, n_order;
    struct stage *order; /* [n_gpus][n_order] */
    struct pass *passes; /* [n_gpus][n_order * n_micro] */
    int32_t *last_op;    /* [n_gpus][n_order] the op that frees the stage's parameters, or -1 */
    int32_t *steps, n_steps;
    int32_t *gpu, *fetch, *offload, *sync, *async, *step_lane, validate;
    int32_t *param, *grad, *state[3], *input, *input_grad, *loss; /* input: of unit u, micro-batch j at u n_micro + j */
    int32_t match;
};

static int forward_gpu(const struct shape *p, int i)
{
    return i % p->n_gpus;
}

static int backward_gpu(const struct shape *p, int q)
{
    return p->decoupled ? p->n_gpus - 1 - q % p->n_gpus : forward_gpu(p, q / p->d);
}

static struct pass *pass_of(struct maker *m, struct stage stage, int micro)
{
    int gpu = stage.forward ? forward_gpu(&m->p, stage.index) : backward_gpu(&m->p, stage.index);
    for (int n = 0; n < m->n_order; n++) {
        struct stage *s = &m->order[gpu * m->n_order + n];
        if (s->forward == stage.forward && s->index == stage.index)
            return &m->passes[(gpu * m->n_order + n) * m->p.n_micro + micro];
    }
    ck_abort_msg("no such stage");
    return NULL;
}

/* The ideal schedule: every GPU takes its passes in order, each when its input is there. Repeats until nothing moves.
 */
static void lay_out(struct maker *m)
{
    const struct shape *p = &m->p;
    m->order = HT_NEW_ARRAY(struct stage, p->n_gpus * m->n_order);
    m->passes = HT_NEW_ARRAY(struct pass, p->n_gpus * m->n_order * p->n_micro);
    for (int gpu = 0; gpu < p->n_gpus; gpu++) {
        struct stage *next = &m->order[gpu * m->n_order];
        for (int i = 0; i < m->n_forward; i++)
            if (forward_gpu(p, i) == gpu) *next++ = (struct stage){true, i};
        for (int q = m->n_backward - 1; q >= 0; q--)
            if (backward_gpu(p, q) == gpu) *next++ = (struct stage){false, q};
        for (int n = 0; n < m->n_order; n++)
            for (int j = 0; j < p->n_micro; j++)
                m->passes[(gpu * m->n_order + n) * p->n_micro + j] =
                    (struct pass){.stage = m->order[gpu * m->n_order + n],
                                  .gpu = gpu,
                                  .micro = j,
                                  .first = j == 0,
                                  .last = j == p->n_micro - 1,
                                  .at = n};
    }
    for (bool moved = true; moved;) {
        moved = false;
        for (int k = 0; k < p->n_gpus * m->n_order * p->n_micro; k++) {
            struct pass *x = &m->passes[k];
            int start = k % (m->n_order * p->n_micro) ? x[-1].end : 0, ready = 0;
            if (x->stage.forward && x->stage.index > 0)
                ready = pass_of(m, (struct stage){true, x->stage.index - 1}, x->micro)->end;
            if (!x->stage.forward)
                ready = x->stage.index == m->n_backward - 1
                            ? pass_of(m, (struct stage){true, m->n_forward - 1}, x->micro)->end
                            : pass_of(m, (struct stage){false, x->stage.index + 1}, x->micro)->end;
            if (ready > start) start = ready;
            int end = start + (x->stage.forward ? p->forward : p->backward);
            moved |= end != x->end;
            x->start = start;
            x->end = end;
        }
    }
}

static void add_lanes(struct maker *m)
{
    struct shape *p = &m->p;
    m->gpu = HT_NEW_ARRAY(int32_t, p->n_gpus);
    m->fetch = HT_NEW_ARRAY(int32_t, p->n_gpus);
    m->offload = HT_NEW_ARRAY(int32_t, p->n_gpus);
    m->sync = HT_NEW_ARRAY(int32_t, p->n_gpus);
    m->async = HT_NEW_ARRAY(int32_t, p->n_gpus);
    m->step_lane = HT_NEW_ARRAY(int32_t, m->n_backward);
    for (int r = 0; r < p->n_gpus; r++) {
        m->gpu[r] = ht_add_lane(m->s, "gpu", HT_LANE_COMPUTE, r, HT_FIFO);
        m->fetch[r] = ht_add_lane(m->s, "fetch", HT_LANE_H2D, r, HT_FIFO);
        m->offload[r] = ht_add_lane(m->s, "offload", HT_LANE_D2H, r, HT_FIFO);
        m->sync[r] = ht_add_lane(m->s, "sync", HT_LANE_P2P, r, HT_FIFO);
        m->async[r] = ht_add_lane(m->s, "async", HT_LANE_P2P, r, HT_FIFO);
        int32_t shared = p->serial ? ht_add_lane(m->s, "optimizer", HT_LANE_HOST, r, HT_FIFO) : -1;
        for (int q = m->n_backward - 1; q >= 0; q--) {
            char name[24];
            snprintf(name, sizeof name, "optimizer %d", q);
            if (backward_gpu(p, q) == r)
                m->step_lane[q] = p->serial ? shared : ht_add_lane(m->s, name, HT_LANE_HOST, r, HT_FIFO);
        }
    }
    m->validate = ht_add_lane(m->s, "validate", HT_LANE_HOST, 0, HT_FIFO);
}

static void add_tensors(struct maker *m)
{
    struct shape *p = &m->p;
    static const enum ht_tensor_class classes[] = {HT_MASTER, HT_MOMENTUM, HT_VARIANCE};
    int units = m->n_backward;
    m->param = HT_NEW_ARRAY(int32_t, units);
    m->grad = HT_NEW_ARRAY(int32_t, units);
    for (int k = 0; k < 3; k++) m->state[k] = HT_NEW_ARRAY(int32_t, units);
    m->input = HT_NEW_ARRAY(int32_t, units * p->n_micro);
    m->input_grad = HT_NEW_ARRAY(int32_t, units * p->n_micro);
    m->loss = HT_NEW_ARRAY(int32_t, p->n_micro);
    for (int q = 0; q < units; q++) {
        int owner = backward_gpu(p, q);
        m->param[q] = add_shard(m->s, HT_PARAM, q, 0, PARAMS / p->d, 2, owner);
        m->grad[q] = add_shard(m->s, HT_GRAD, q, 0, PARAMS / p->d, 2, owner);
        ht_add_resident(m->s, m->param[q], HT_HOST, owner);
        /* kept to the end of the rollback window: the host buffer stays and is overwritten */
        ht_add_resident(m->s, m->grad[q], HT_HOST, owner);
        for (int k = 0; k < 3; k++) {
            m->state[k][q] = add_shard(m->s, classes[k], q, 0, PARAMS / p->d, 4, owner);
            ht_add_resident(m->s, m->state[k][q], HT_HOST, owner);
        }
        for (int j = 0; j < p->n_micro; j++) {
            m->input[q * p->n_micro + j] = add_tensor(m->s, HT_CHECKPOINT, about(q, 1, j), BOUNDARY_BYTES, 0);
            m->input_grad[q * p->n_micro + j] =
                q > 0 ? add_tensor(m->s, HT_ACT_GRAD, about(q, 1, j), BOUNDARY_BYTES, 0) : -1;
        }
    }
    for (int j = 0; j < p->n_micro; j++) m->loss[j] = add_tensor(m->s, HT_LOGITS, about(-1, 0, j), 4, 0);
}

/* Units of a stage. */
static int first_unit(const struct maker *m, struct stage x)
{
    return x.forward ? x.index * m->p.d : x.index;
}
static int unit_count(const struct maker *m, struct stage x)
{
    return x.forward ? m->p.d : 1;
}

static bool has_unit(const struct maker *m, struct stage x, int unit)
{
    return unit >= first_unit(m, x) && unit < first_unit(m, x) + unit_count(m, x);
}

static struct stage *stage_at(struct maker *m, int gpu, int at)
{
    return at >= 0 && at < m->n_order ? &m->order[gpu * m->n_order + at] : NULL;
}

/* A unit that the next stage on this GPU uses too stays where it is. */
static bool stays(struct maker *m, int gpu, int at, int unit)
{
    struct stage *next = stage_at(m, gpu, at + 1);
    return next && has_unit(m, *stage_at(m, gpu, at), unit) && has_unit(m, *next, unit);
}

/* The parameters of the at-th stage: into the buffer that stage at - 2 leaves, while stage at - 1 runs. */
static void add_fetch(struct maker *m, int gpu, int at)
{
    struct stage *x = stage_at(m, gpu, at);
    if (!x || (at > 0 && stays(m, gpu, at - 1, first_unit(m, *x)))) return;
    add_op(m->s, HT_OP_COPY, m->fetch[gpu], about(first_unit(m, *x), unit_count(m, *x), -1),
           x->forward ? "fetch forward stage" : "fetch backward stage");
    ht_op_name(m->s, "P%c%d", x->forward ? 'f' : 'b', x->index);
    if (at >= 2) ht_op_after(m->s, m->last_op[gpu * m->n_order + at - 2]);
    for (int u = first_unit(m, *x); u < first_unit(m, *x) + unit_count(m, *x); u++) {
        ht_op_effect(m->s, m->param[u], HT_HOST, HT_NEED);
        ht_op_effect(m->s, m->param[u], HT_DEVICE, HT_PRODUCE);
    }
}

static void add_compute(struct maker *m, const struct pass *x)
{
    struct ht_schedule *s = m->s;
    int unit = first_unit(m, x->stage), n = unit_count(m, x->stage), j = x->micro, n_micro = m->p.n_micro;
    if (x->first && x->at == 0) add_fetch(m, x->gpu, 0);
    if (x->first) add_fetch(m, x->gpu, x->at + 1);
    int32_t op = add_op(s, x->stage.forward ? HT_OP_FORWARD : HT_OP_BACKWARD, m->gpu[x->gpu], about(unit, n, j),
                        x->stage.forward ? "forward stage" : "backward stage");
    ht_op_name(s, "%c%d.%d", x->stage.forward ? 'f' : 'b', x->stage.index, j);
    for (int u = unit; u < unit + n; u++)
        ht_op_effect(s, m->param[u], HT_DEVICE, HT_NEED | (x->last && !stays(m, x->gpu, x->at, u) ? HT_RELEASE : 0));
    if (x->last) m->last_op[x->gpu * m->n_order + x->at] = op;
    if (x->stage.forward) {
        ht_op_effect(s, m->input[unit * n_micro + j], HT_DEVICE, unit == 0 ? HT_PRODUCE : HT_NEED);
        for (int u = unit + 1; u <= unit + n && u < m->n_backward; u++)
            ht_op_effect(s, m->input[u * n_micro + j], HT_DEVICE, HT_PRODUCE);
        if (unit + n == m->n_backward) ht_op_effect(s, m->loss[j], HT_DEVICE, HT_PRODUCE);
        return;
    }
    ht_op_effect(s, m->input[unit * n_micro + j], HT_DEVICE, HT_NEED | HT_RELEASE);
    int32_t above = unit == m->n_backward - 1 ? m->loss[j] : m->input_grad[(unit + 1) * n_micro + j];
    ht_op_effect(s, above, HT_DEVICE, HT_NEED | HT_RELEASE);
    if (unit > 0) ht_op_effect(s, m->input_grad[unit * n_micro + j], HT_DEVICE, HT_PRODUCE);
    ht_op_effect(s, m->grad[unit], HT_DEVICE, j == 0 ? HT_PRODUCE : HT_UPDATE);
}

static void send(struct maker *m, const int32_t *lanes, const char *what, int from, int to, int32_t tensor)
{
    if (from == to) return;
    struct ht_label label = m->s->tensors[tensor].label;
    add_op(m->s, HT_OP_SEND, lanes[from], label, "message");
    ht_op_name(m->s, "S%s%d.%d", what, label.unit, label.micro_batch);
    ht_op_match(m->s, m->match);
    ht_op_effect(m->s, tensor, HT_DEVICE, HT_NEED | HT_RELEASE);
    add_op(m->s, HT_OP_RECEIVE, lanes[to], label, "message");
    ht_op_name(m->s, "V%s%d.%d", what, label.unit, label.micro_batch);
    ht_op_match(m->s, m->match++);
    ht_op_effect(m->s, tensor, HT_DEVICE, HT_PRODUCE);
}

static void add_step(struct maker *m, enum ht_op_kind kind, int q, enum ht_when when, int32_t after)
{
    add_op(m->s, kind, m->step_lane[q], about(q, 1, -1), kind == HT_OP_UNDO ? "undo" : "step");
    ht_op_name(m->s, "%s%d", kind == HT_OP_UNDO ? "undo" : "step", q);
    ht_op_when(m->s, when);
    ht_op_after(m->s, after);
    ht_op_effect(m->s, m->grad[q], HT_HOST, HT_NEED);
    for (int k = 0; k < 3; k++) ht_op_effect(m->s, m->state[k][q], HT_HOST, HT_UPDATE);
    ht_op_effect(m->s, m->param[q], HT_HOST, HT_UPDATE);
}

/* What the end of a pass sets off. */
static void add_consequences(struct maker *m, const struct pass *x)
{
    const struct shape *p = &m->p;
    int unit = first_unit(m, x->stage), n = unit_count(m, x->stage), j = x->micro;
    if (x->stage.forward) {
        if (unit + n < m->n_backward)
            send(m, m->sync, "x", x->gpu, forward_gpu(p, x->stage.index + 1), m->input[(unit + n) * p->n_micro + j]);
        else
            send(m, m->sync, "l", x->gpu, backward_gpu(p, m->n_backward - 1), m->loss[j]);
        for (int u = unit; u < unit + n; u++)
            send(m, m->async, "c", x->gpu, backward_gpu(p, u), m->input[u * p->n_micro + j]);
        return;
    }
    if (unit > 0) send(m, m->sync, "d", x->gpu, backward_gpu(p, unit - 1), m->input_grad[unit * p->n_micro + j]);
    if (!x->last) return;
    m->steps[m->n_steps++] = add_op(m->s, HT_OP_COPY, m->offload[x->gpu], about(unit, 1, -1), "offload");
    ht_op_name(m->s, "G%d", unit);
    ht_op_effect(m->s, m->grad[unit], HT_DEVICE, HT_NEED | HT_RELEASE);
    ht_op_effect(m->s, m->grad[unit], HT_HOST, HT_UPDATE);
    if (!p->rollback) return;
    add_step(m, HT_OP_OPTIMIZER_STEP, unit, HT_ALWAYS, -1);
    m->steps[m->n_steps - 1] = m->s->n_ops - 1;
}

static int by_moment(const void *x, const void *y)
{
    const struct moment *a = x, *b = y;
    if (a->time != b->time) return a->time < b->time ? -1 : 1;
    if (a->is_start != b->is_start) return a->is_start - b->is_start;
    if (a->gpu != b->gpu) return a->gpu - b->gpu;
    return a->pass - b->pass;
}

static void maker_free(struct maker *m)
{
    int32_t *all[] = {m->last_op,  m->steps,     m->gpu,        m->fetch, m->offload, m->sync,
                      m->async,    m->step_lane, m->param,      m->grad,  m->input,   m->state[0],
                      m->state[1], m->state[2],  m->input_grad, m->loss};
    for (size_t i = 0; i < HT_COUNT(all); i++) free(all[i]);
    free(m->order);
    free(m->passes);
}

static struct ht_schedule *build(struct shape p)
{
    struct maker m = {
        .p = p, .n_forward = p.v * p.n_gpus, .n_backward = p.v * p.n_gpus * p.d, .n_order = p.v * (1 + p.d)};
    int n_passes = p.n_gpus * m.n_order * p.n_micro;
    m.s = ht_schedule_create(p.name, p.n_gpus, 1, NULL);
    m.s->n_units = m.n_backward;
    m.s->n_micro_batches = p.n_micro;
    m.last_op = HT_NEW_ARRAY(int32_t, p.n_gpus * m.n_order);
    m.steps = HT_NEW_ARRAY(int32_t, m.n_backward);
    /* Two parameter buffers, two of gradients, the checkpoints at the turn (N_m w of them), four messages under way. */
    int64_t bytes = 2 * PARAMS * 2 + 2 * PARAMS / p.d * 2 + (int64_t)(p.n_micro * p.v * p.d + 4) * BOUNDARY_BYTES;
    for (int r = 0; r < p.n_gpus; r++) ht_schedule_set_capacity(m.s, HT_DEVICE, r, bytes);
    add_lanes(&m);
    add_tensors(&m);
    lay_out(&m);
    struct moment *moments = HT_NEW_ARRAY(struct moment, 2 * n_passes);
    for (int k = 0; k < n_passes; k++) {
        moments[2 * k] = (struct moment){m.passes[k].start, 1, m.passes[k].gpu, k};
        moments[2 * k + 1] = (struct moment){m.passes[k].end, 0, m.passes[k].gpu, k};
    }
    qsort(moments, (size_t)(2 * n_passes), sizeof *moments, by_moment);
    for (int k = 0; k < 2 * n_passes; k++)
        if (moments[k].is_start)
            add_compute(&m, &m.passes[moments[k].pass]);
        else
            add_consequences(&m, &m.passes[moments[k].pass]);
    int32_t validate = add_op(m.s, HT_OP_VALIDATE, m.validate, about(-1, 0, -1), "validate");
    ht_op_name(m.s, "validate");
    for (int i = 0; i < m.n_steps; i++) ht_op_after(m.s, m.steps[i]);
    for (int q = m.n_backward - 1; q >= 0; q--)
        if (p.rollback)
            add_step(&m, HT_OP_UNDO, q, HT_WHEN_BAD, validate);
        else
            add_step(&m, HT_OP_OPTIMIZER_STEP, q, HT_WHEN_OK, validate);
    ht_schedule_link(m.s);
    free(moments);
    maker_free(&m);
    return m.s;
}

/* ---- the figures ----------------------------------------------------------------------------------------------- */

// clang-format off
static const struct shape fig5_plain     = {"fig5_plain",   2, 2, 1, 1, false, false, true, 1, 2};
static const struct shape fig5_decoupled = {"fig5_decoupled", 2, 2, 1, 1, true, true, false, 1, 2};
static const struct shape fig5_fine      = {"sysx_fig5",    2, 2, 1, 2, true, true, false, 1, 1};
static const struct shape fig8_mobius    = {"sysx_mobius",  4, 4, 2, 1, false, false, true, 1, 2};
static const struct shape fig8_decoupled = {"fig8_decoupled", 4, 4, 2, 1, true, true, false, 1, 2};
static const struct shape fig8_sysx      = {"sysx",         4, 4, 2, 2, true, true, false, 1, 1};
// clang-format on

/* p, g, o of one backward stage of d to a forward stage; d 1 when the shape has whole stages. */
static struct fixture fixture_at(struct shape shape, double p, double g, double o)
{
    struct fixture f = fixture_of(build(shape));
    struct price prices[] = {{"forward stage", shape.forward},
                             {"backward stage", shape.backward},
                             {"fetch forward stage", p * shape.d},
                             {"fetch backward stage", p},
                             {"offload", g},
                             {"step", o},
                             {"undo", o}};
    set_prices(&f, prices, HT_COUNT(prices));
    return f;
}

/* From the first forward's start to the last backward's end, in units. */
static double gpu_time(const struct fixture *f)
{
    int64_t begin = INT64_MAX, end = 0;
    for (int32_t op = 0; op < f->s->n_ops; op++) {
        int kind = f->s->ops[op].kind;
        if (kind != HT_OP_FORWARD && kind != HT_OP_BACKWARD) continue;
        if (f->trace->events[op].start_ns < begin) begin = f->trace->events[op].start_ns;
        if (f->trace->events[op].end_ns > end) end = f->trace->events[op].end_ns;
    }
    return (double)(end - begin) / (double)FIXTURE_UNIT_NS;
}

static void check_lasts(struct shape shape, double p, double g, double o, double gpu, double iteration)
{
    struct fixture f = fixture_at(shape, p, g, o);
    run(&f, 3);
    ck_assert_double_eq(gpu_time(&f), gpu);
    for (int k = 0; k < 3; k++) check_ends(&f, k, (k + 1) * iteration);
    check_period(&f, 2, iteration);
    fixture_free(&f);
}

/*
 * N = 2 GPUs, 2 micro-batches, v = 1.
 *
 *     plain              decoupled          decoupled, d = 2
 *     0: ff....bbbb      0: ffbbbb..        0: ffbb33..11      (q = 3, then 1)
 *     1: .ffbbbb         1: .ff.bbbb        1: .ff.22.00       (q = 2, then 0)
 *
 * plain: 1 + 2 x 1 forwards on GPU 1, then 2 x 2 on it and 2 behind it: 9. Decoupled: GPU 0 turns at 2, so its
 * backwards end at 6 and those of GPU 1, one (T_b = 2) behind, at 8. With halves of T_b = 1 the skew is 1: 7.
 */
START_TEST(fig5)
{
    check_lasts(fig5_plain, 0, 0, 0, 9, 9);
    check_lasts(fig5_decoupled, 0, 0, 0, 8, 8);
    check_lasts(fig5_fine, 0, 0, 0, 7, 7);

    struct fixture f = fixture_at(fig5_fine, 0, 0, 0);
    run(&f, 1);
    CHECK_SPANS(&f, 0, {"f0.0", 0, 1}, {"f0.1", 1, 2}, {"f1.0", 1, 2}, {"f1.1", 2, 3}, {"b3.0", 2, 3}, {"b3.1", 3, 4},
                {"b2.0", 3, 4}, {"b2.1", 4, 5}, {"b1.0", 4, 5}, {"b1.1", 5, 6}, {"b0.0", 5, 6}, {"b0.1", 6, 7});
    fixture_free(&f);
}
END_TEST

/*
 * Fig. 8: N = 4, 4 micro-batches, v = 2. Useful work 4 x (8 x 1 + 8 x 2) / 4 = 24 per GPU.
 *
 *     Mobius     v N_m (T_f + T_b) + (N - 1)(T_f + T_b) = 2 x 4 x 3 + 3 x 3 = 33
 *     decoupled  N_m (v T_f + v T_b) + (N - 1) T_b      = 4 x (2 + 4) + 3 x 2 = 30
 *     SysX       N_m (v T_f + w T_b') + (N - 1) T_b'    = 4 x (2 + 4) + 3 x 1 = 27
 *
 * With (p, g, o) = (1, 1, 2) per backward stage of SysX, twice that for a stage of Mobius:
 *
 *     Mobius  first fetch 2, GPUs 33, offload 2, and two steps of 4 one after the other = 45   (24/45: 47% lost)
 *     SysX    first fetch 2, GPUs 27, offload 1, one step 2                             = 32   (24/32: 25% lost)
 */
START_TEST(fig8)
{
    check_lasts(fig8_mobius, 0, 0, 0, 33, 33);
    check_lasts(fig8_decoupled, 0, 0, 0, 30, 30);
    check_lasts(fig8_sysx, 0, 0, 0, 27, 27);
    check_lasts(fig8_mobius, 2, 2, 4, 33, 45);
    check_lasts(fig8_sysx, 1, 1, 2, 27, 32);
}
END_TEST

/* GPU r starts forward at r and backward (stage 15 - r) at 8 + r, and ends with stage 3 - r at 24 + r: one skew for
 * all. */
START_TEST(fig8_skew)
{
    struct fixture f = fixture_at(fig8_sysx, 0, 0, 0);
    run(&f, 1);
    CHECK_SPANS(&f, 0, {"f0.0", 0, 1}, {"f1.0", 1, 2}, {"f2.0", 2, 3}, {"f3.0", 3, 4}, {"b15.0", 8, 9},
                {"b14.0", 9, 10}, {"b13.0", 10, 11}, {"b12.0", 11, 12}, {"b3.3", 23, 24}, {"b2.3", 24, 25},
                {"b1.3", 25, 26}, {"b0.3", 26, 27});
    fixture_free(&f);
}
END_TEST

/*
 * When the control is bad, SysX undoes: all 16 at once on their own lanes, at 32, for 2: 34; the next iteration fetches
 * what was restored, so it takes [34, 66]. Mobius has not stepped yet: 45 - 2 x 4 = 37, and the next one [37, 82].
 */
START_TEST(bad_iteration)
{
    const bool bad[] = {true, false};
    struct fixture sysx = fixture_at(fig8_sysx, 1, 1, 2), mobius = fixture_at(fig8_mobius, 2, 2, 4);
    run_ahead(&sysx, 2, 0, bad);
    CHECK_SPANS(&sysx, 0, {"step0", 30, 32}, {"validate", 32, 32}, {"undo15", 32, 34}, {"undo0", 32, 34});
    check_ends(&sysx, 0, 34);
    check_ends(&sysx, 1, 66);
    ck_assert_int_eq(event_of(&sysx, 1, "undo0")->grant_seq, -1); /* passed over */
    run_ahead(&mobius, 2, 0, bad);
    ck_assert_int_eq(event_of(&mobius, 0, "step0")->grant_seq, -1);
    check_ends(&mobius, 0, 37);
    check_ends(&mobius, 1, 82);
    fixture_free(&sysx);
    fixture_free(&mobius);
}
END_TEST

/*
 * The optimizer's tail. Fig. 8 without transfers, GPU lanes 27 and 33; a GPU hands over a stage every N_m T_b' = 4.
 *     o = 4: the last of four steps starts when its gradient is there:      27 + 4 = 31 on one lane as on four
 *     o = 5: one lane falls behind by 1 a stage, 4 x 5 - 3 x 4 = 8 to go:   27 + 8 = 35; four lanes: 27 + 5 = 32
 *     Mobius, stages twice as large, two each, after the barrier:           33 + 2 x 8 = 49, 33 + 2 x 10 = 53
 * Fig. 7 (N = 2, d = 2, GPU lanes 7, two steps a GPU): validating first 7 + 2 o = 9, 11; at once 7 + o = 8, 9.
 */
START_TEST(optimizer_tail)
{
    struct shape one_lane = fig8_sysx, first = fig5_fine;
    one_lane.serial = true;
    check_lasts(fig8_sysx, 0, 0, 4, 27, 31);
    check_lasts(one_lane, 0, 0, 4, 27, 31);
    check_lasts(fig8_sysx, 0, 0, 5, 27, 32);
    check_lasts(one_lane, 0, 0, 5, 27, 35);
    check_lasts(fig8_mobius, 0, 0, 8, 33, 49);
    check_lasts(fig8_mobius, 0, 0, 10, 33, 53);
    first.rollback = false;
    first.serial = true;
    check_lasts(first, 0, 0, 1, 7, 9);
    check_lasts(fig5_fine, 0, 0, 1, 7, 8);
    check_lasts(first, 0, 0, 2, 7, 11);
    check_lasts(fig5_fine, 0, 0, 2, 7, 9);
}
END_TEST

/* Fewer micro-batches than GPUs stall: N = 4, N_m = 2, v = 2 takes 27 (Mobius) and 25 (SysX), not 21 and 15. */
START_TEST(stall)
{
    struct shape mobius = fig8_mobius, sysx = fig8_sysx;
    mobius.n_micro = sysx.n_micro = 2;
    check_lasts(mobius, 0, 0, 0, 27, 27);
    check_lasts(sysx, 0, 0, 0, 25, 25);
}
END_TEST

/*
 * The closed forms of fig8 for N = 2 .. 4, N_m = N, N + 1, v = 1 .. 3, d = 1 .. 3, T_b = 2 T_f or 3 T_f. Scaled by d,
 * so that T_f = d and T_b' = T_b / d are whole.
 */
START_TEST(closed_forms)
{
    for (int n = 2; n <= 4; n++)
        for (int n_micro = n; n_micro <= n + 1; n_micro++)
            for (int v = 1; v <= 3; v++)
                for (int d = 1; d <= 3; d++)
                    for (int tb = 2; tb <= 3; tb++) {
                        struct shape sysx = {"sysx", n, n_micro, v, d, true, true, false, d, tb};
                        struct shape mobius = {"mobius", n, n_micro, v, 1, false, false, true, d, tb * d};
                        int skew = d > tb ? d : tb;
                        check_lasts(sysx, 0, 0, 0, n_micro * (v * d + v * d * tb) + (n - 1) * skew,
                                    n_micro * (v * d + v * d * tb) + (n - 1) * skew);
                        check_lasts(mobius, 0, 0, 0, (v * n_micro + n - 1) * (d + tb * d),
                                    (v * n_micro + n - 1) * (d + tb * d));
                    }
}
END_TEST

/*
 * Checkpoints that travel: all but those whose forward and backward GPU are the same. N = 4, v = 2, per micro-batch:
 * d = 1 8 of 8, d = 2 12 of 16, d = 3 24 of 24; N = 2, v = 1: 2 of 2 and 2 of 4. With d = 2, c(1,0) (unit 2) and c(2,1)
 * (unit 5) stay; c(0,0), c(0,1), c(3,1) (units 0, 1, 7) go from GPU 0 to 3, 0 to 2 and 3 to 0.
 */
START_TEST(checkpoints_sent_early)
{
    static const struct {
        int n, v, d, sent;
    } cases[] = {{4, 2, 1, 8}, {4, 2, 2, 12}, {4, 2, 3, 24}, {2, 1, 1, 2}, {2, 1, 2, 2}};
    for (size_t i = 0; i < HT_COUNT(cases); i++) {
        struct ht_schedule *s =
            build((struct shape){"c", cases[i].n, cases[i].n, cases[i].v, cases[i].d, true, true, false, 1, 1});
        int sent = 0;
        for (int32_t op = 0; op < s->n_ops; op++)
            sent += s->ops[op].kind == HT_OP_SEND && strncmp(s->ops[op].name, "Sc", 2) == 0;
        ck_assert_int_eq(sent, cases[i].sent * cases[i].n);
        ht_schedule_destroy(s);
    }
    struct ht_schedule *s = build(fig8_sysx);
    static const struct {
        const char *send;
        int from, to;
    } ways[] = {{"Sc0.0", 0, 3}, {"Sc1.0", 0, 2}, {"Sc7.0", 3, 0}};
    for (size_t i = 0; i < HT_COUNT(ways); i++) {
        int32_t op = op_named(s, ways[i].send);
        ck_assert_int_eq(ht_op_rank(s, op), ways[i].from);
        ck_assert_int_eq(ht_op_rank(s, op + 1), ways[i].to);
    }
    for (int32_t op = 0; op < s->n_ops; op++) {
        ck_assert_str_ne(s->ops[op].name, "Sc2.0");
        ck_assert_str_ne(s->ops[op].name, "Sc5.0");
    }
    ht_schedule_destroy(s);
}
END_TEST

/* Parameters of stage 0 are fetched by GPU 0 (forward) and GPU 3 (unit 0 backward) from one place of the node. */
START_TEST(shared_parameters)
{
    struct ht_schedule *s = build(fig8_sysx);
    int32_t forward = op_named(s, "Pf0"), backward = op_named(s, "Pb0");
    ck_assert_int_eq(ht_op_rank(s, forward), 0);
    ck_assert_int_eq(ht_op_rank(s, backward), 3);
    const struct ht_effect *a = &s->effects[s->effects_begin[forward]], *b = &s->effects[s->effects_begin[backward]];
    ck_assert_int_eq(a->tensor, b->tensor);
    ck_assert(a->tier == HT_HOST && b->tier == HT_HOST);
    ht_schedule_destroy(s);
}
END_TEST

/* What the command line loads: the same graphs and prices. */
START_TEST(files)
{
    static const struct {
        const struct shape *shape;
        double iteration;
    } cases[] = {{&fig5_fine, 7}, {&fig8_mobius, 45}, {&fig8_sysx, 32}};
    for (size_t i = 0; i < HT_COUNT(cases); i++) {
        struct ht_schedule *s = build(*cases[i].shape);
        check_file(s, s->name);
        struct fixture f = fixture_load(s->name);
        load_prices(&f, s->name);
        run(&f, 3);
        check_period(&f, 1, cases[i].iteration);
        fixture_free(&f);
        ht_schedule_destroy(s);
    }
}
END_TEST

int main(void)
{
    TCase *tc = tcase_create("sysx");
    tcase_add_test(tc, fig5);
    tcase_add_test(tc, fig8);
    tcase_add_test(tc, fig8_skew);
    tcase_add_test(tc, bad_iteration);
    tcase_add_test(tc, optimizer_tail);
    tcase_add_test(tc, stall);
    tcase_add_test(tc, closed_forms);
    tcase_add_test(tc, checkpoints_sent_early);
    tcase_add_test(tc, shared_parameters);
    tcase_add_test(tc, files);
    return run_suite("fixtures: SysX", tc);
}
