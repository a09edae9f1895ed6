/*
 * Builds graphs with forward and backward of one stage on different GPUs (SysX), and those of its baseline Mobius.
 *
 * GPUs are ranks. Parameters lie in the host memory of the node that runs the stage backward, and up to two ranks fetch
 * the same ones: the one that runs it forward and the one that runs it backward. From another node they are sent. With
 * d backward stages to a forward stage, backward stage q is unit q, and forward stage i is units d i .. d i + d - 1
 * (the assignment is deduced from the captions of Figs. 5 and 8).
 *
 *     forward stage i    on GPU  i mod N
 *     backward stage q   on GPU  N - 1 - q mod N   (decoupled)  or where its forward stage is (Mobius)
 *
 * Per GPU: lane gpu; fetch (h2d), offload (d2h); sync for activations and their gradients, async for checkpoints sent
 * early; serve and remote (p2p) for parameters from and to other nodes; one host lane per backward stage (SysX) or one
 * for all (Mobius). SysX steps at once, validates, and undoes when bad; Mobius validates first. Messages cost nothing
 * here, as in the figures. Nor do sums: from the second micro-batch on an op behind each backward (A) adds its gradient
 * to the first's.
 *
 * Times in the unit of the figures: a forward stage on a micro-batch takes T_f = 1, its backward T_b = 2, so a backward
 * stage T_b' = T_b / d. p, g, o: fetch, offload and step of one backward stage; twice that for a stage twice as large.
 */
#ifndef HT_TESTS_EXEC_FIXTURES_SYSX_H
#define HT_TESTS_EXEC_FIXTURES_SYSX_H

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
    int n_nodes;           /* 0 and 1: one */
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
    int32_t *gpu, *fetch, *offload, *sync, *async, *serve, *remote, *step_lane, validate;
    int32_t *param, *grad, *state[3], *input, *input_grad, *loss; /* input: of unit u, micro-batch j at u n_micro + j */
    int32_t *flag; /* what a step found in its gradients: is it finite? */
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
    m->serve = HT_NEW_ARRAY(int32_t, p->n_gpus);
    m->remote = HT_NEW_ARRAY(int32_t, p->n_gpus);
    m->step_lane = HT_NEW_ARRAY(int32_t, m->n_backward);
    for (int r = 0; r < p->n_gpus; r++) {
        m->gpu[r] = ht_add_lane(m->s, "gpu", HT_LANE_COMPUTE, r, HT_FIFO);
        m->fetch[r] = ht_add_lane(m->s, "fetch", HT_LANE_H2D, r, HT_FIFO);
        m->offload[r] = ht_add_lane(m->s, "offload", HT_LANE_D2H, r, HT_FIFO);
        m->sync[r] = ht_add_lane(m->s, "sync", HT_LANE_P2P, r, HT_FIFO);
        m->async[r] = ht_add_lane(m->s, "async", HT_LANE_P2P, r, HT_FIFO);
        if (p->n_nodes > 1) {
            m->serve[r] = ht_add_lane(m->s, "serve", HT_LANE_P2P, r, HT_FIFO);
            m->remote[r] = ht_add_lane(m->s, "remote", HT_LANE_P2P, r, HT_FIFO);
        }
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
    m->flag = HT_NEW_ARRAY(int32_t, units);
    for (int q = 0; q < units; q++) {
        int owner = backward_gpu(p, q);
        m->param[q] = add_shard(m->s, HT_PARAM, q, 0, PARAMS / p->d, 2, owner);
        m->grad[q] = add_shard(m->s, HT_GRAD, q, 0, PARAMS / p->d, 2, owner);
        m->flag[q] = p->rollback ? add_tensor(m->s, HT_COMM, about(q, 1, -1), 8, owner) : -1;
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

/* A unit's parameters from the memory of another node: a send from host memory and its receive on the device. */
static void add_remote_fetch(struct maker *m, int gpu, int unit, int32_t after)
{
    int owner = backward_gpu(&m->p, unit);
    for (int receives = 0; receives < 2; receives++) {
        add_op(m->s, receives ? HT_OP_RECEIVE : HT_OP_SEND, receives ? m->remote[gpu] : m->serve[owner],
               about(unit, 1, -1), "fetch remote unit");
        ht_op_match(m->s, m->match);
        ht_op_after(m->s, after);
        ht_op_effect(m->s, m->param[unit], receives ? HT_DEVICE : HT_HOST, receives ? HT_PRODUCE : HT_NEED);
    }
    m->match++;
}

/* The parameters of the at-th stage: into the buffer that stage at - 2 leaves, while stage at - 1 runs. */
static void add_fetch(struct maker *m, int gpu, int at)
{
    struct stage *x = stage_at(m, gpu, at);
    if (!x || (at > 0 && stays(m, gpu, at - 1, first_unit(m, *x)))) return;
    int32_t after = at >= 2 ? m->last_op[gpu * m->n_order + at - 2] : -1;
    int begin = first_unit(m, *x), end = begin + unit_count(m, *x), n_local = 0;
    const int32_t *node = m->s->rank_node;
    for (int u = begin; u < end; u++)
        if (node[backward_gpu(&m->p, u)] != node[gpu])
            add_remote_fetch(m, gpu, u, after);
        else
            n_local++;
    if (n_local == 0) return;
    add_op(m->s, HT_OP_COPY, m->fetch[gpu], about(begin, end - begin, -1),
           x->forward ? "fetch forward stage" : "fetch backward stage");
    ht_op_name(m->s, "P%c%d", x->forward ? 'f' : 'b', x->index);
    ht_op_after(m->s, after);
    for (int u = begin; u < end; u++) {
        if (node[backward_gpu(&m->p, u)] != node[gpu]) continue;
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
    int32_t fresh = m->grad[unit];
    if (j > 0) fresh = add_shard(s, HT_GRAD, unit, 0, PARAMS / m->p.d, 2, s->tensors[fresh].rank);
    ht_op_effect(s, fresh, HT_DEVICE, HT_PRODUCE);
    if (j == 0) return;
    s->tensors[fresh].label.micro_batch = j;
    add_op(s, HT_OP_ACCUMULATE, m->gpu[x->gpu], about(unit, 1, j), "sum");
    ht_op_name(s, "A%d.%d", unit, j);
    ht_op_effect(s, fresh, HT_DEVICE, HT_NEED | HT_RELEASE);
    ht_op_effect(s, m->grad[unit], HT_DEVICE, HT_UPDATE);
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
    if (when == HT_ALWAYS) ht_op_effect(m->s, m->flag[q], HT_HOST, HT_PRODUCE);
}

/* Reads what the steps found (sent from other nodes), or the gradients before any step. */
static int32_t add_validate(struct maker *m)
{
    for (int q = m->n_backward - 1; q >= 0 && m->p.rollback; q--) {
        int owner = backward_gpu(&m->p, q);
        if (m->s->rank_node[owner] == m->s->rank_node[0]) continue;
        for (int receives = 0; receives < 2; receives++) {
            add_op(m->s, receives ? HT_OP_RECEIVE : HT_OP_SEND, receives ? m->remote[0] : m->serve[owner],
                   about(q, 1, -1), "message");
            ht_op_match(m->s, m->match);
            ht_op_effect(m->s, m->flag[q], HT_HOST, receives ? HT_PRODUCE : HT_NEED | HT_RELEASE);
        }
        m->match++;
    }
    int32_t validate = add_op(m->s, HT_OP_VALIDATE, m->validate, about(-1, 0, -1), "validate");
    ht_op_name(m->s, "validate");
    for (int q = m->n_backward - 1; q >= 0; q--)
        if (m->p.rollback)
            ht_op_effect(m->s, m->flag[q], HT_HOST, HT_NEED | HT_RELEASE);
        else
            ht_op_effect(m->s, m->grad[q], HT_HOST, HT_NEED);
    return validate;
}

/* Adds the ops that follow the end of a pass. */
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
    add_op(m->s, HT_OP_COPY, m->offload[x->gpu], about(unit, 1, -1), "offload");
    ht_op_name(m->s, "G%d", unit);
    ht_op_effect(m->s, m->grad[unit], HT_DEVICE, HT_NEED | HT_RELEASE);
    ht_op_effect(m->s, m->grad[unit], HT_HOST, HT_UPDATE);
    if (p->rollback) add_step(m, HT_OP_OPTIMIZER_STEP, unit, HT_ALWAYS, -1);
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
    int32_t *all[] = {m->flag,    m->serve,    m->remote,   m->last_op,   m->gpu,        m->fetch,
                      m->offload, m->sync,     m->async,    m->step_lane, m->param,      m->grad,
                      m->input,   m->state[0], m->state[1], m->state[2],  m->input_grad, m->loss};
    for (size_t i = 0; i < HT_COUNT(all); i++) free(all[i]);
    free(m->order);
    free(m->passes);
}

static struct ht_schedule *build(struct shape p)
{
    struct maker m = {
        .p = p, .n_forward = p.v * p.n_gpus, .n_backward = p.v * p.n_gpus * p.d, .n_order = p.v * (1 + p.d)};
    int n_passes = p.n_gpus * m.n_order * p.n_micro;
    int n_nodes = p.n_nodes > 1 ? p.n_nodes : 1;
    int32_t *node = HT_NEW_ARRAY(int32_t, p.n_gpus);
    for (int r = 0; r < p.n_gpus; r++) node[r] = r * n_nodes / p.n_gpus;
    m.s = ht_schedule_create(p.name, p.n_gpus, n_nodes, node);
    free(node);
    m.s->n_units = m.n_backward;
    m.s->n_micro_batches = p.n_micro;
    m.last_op = HT_NEW_ARRAY(int32_t, p.n_gpus * m.n_order);
    /* Two parameter buffers, two of gradients and a micro-batch's own, the checkpoints at the turn (N_m w of them), four
       messages in flight. */
    int64_t bytes = 2 * PARAMS * 2 + 3 * PARAMS / p.d * 2 + (int64_t)(p.n_micro * p.v * p.d + 4) * BOUNDARY_BYTES;
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
    int32_t validate = add_validate(&m);
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

#endif
