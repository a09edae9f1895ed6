/*
 * Pipelines of different depth in one data-parallel job (AutoHet): eq. 1 as a graph.
 *
 *     T = max over pipelines j of [ sum over stages p of t(p,j)  +  (K - 1) max over p of t(p,j) ]  +  T_sync       (1)
 *
 * with t the forward and backward time of a stage on one micro-batch and K micro-batches per pipeline. Gradients are
 * summed layer by layer between the two pipelines, last layer first, as soon as a layer's are final.
 *
 *     layer        0  1  2  3  4  5
 *     pipeline A   a0|a1 a1|a2 a2 a2      three stages, t = (3, 4, 2)
 *     pipeline B   b0 b0 b0|b1 b1 b1      two stages,   t = (5, 5)
 *
 * Backward takes twice the forward. So that thirds are whole, durations are in thirds of the paper's unit: forward t,
 * backward 2 t. A stage may be spread over tp GPUs (tensor parallelism): its ops start jointly, each GPU holds 1/tp of
 * every layer and sums it with its counterpart of the other pipeline. From the second micro-batch on an op behind each
 * backward (A) adds its gradients to the first's; it takes no time.
 */
#include "tests/common/exec/fixtures.h"

enum { MAX_STAGES = 4, MAX_LAYERS = 8, MAX_TP = 2, PARAMS = 1024, BOUNDARY_BYTES = 1024, KEPT_BYTES = 4096 };

struct pipeline {
    int stages, t[MAX_STAGES], layers[MAX_STAGES]; /* layers of each stage */
};

struct job {
    const char *name;
    int n_pipelines; /* 1 or 2 */
    struct pipeline pipelines[2];
    int micro; /* K */
    int tp;
    bool one_f_one_b; /* else all forwards, then all backwards */
};

struct pass {
    bool forward;
    int micro, start, end;
};

/* Ids follow the ideal schedule: at one instant first the messages of what ended, then what starts, by stage. */
struct moment {
    int time, is_start, pipeline, stage, pass;
};

struct maker {
    struct job job;
    struct ht_schedule *s;
    int n_layers, n_passes;             /* of a stage: 2 K */
    struct pass *passes[2][MAX_STAGES]; /* [n_passes] in the GPU's order */
    int32_t gpu[2][MAX_STAGES][MAX_TP], p2p[2][MAX_STAGES][MAX_TP], coll[2][MAX_STAGES][MAX_TP];
    int32_t param[2][MAX_LAYERS][MAX_TP], state[3][2][MAX_LAYERS][MAX_TP], grad[2][MAX_LAYERS][MAX_TP];
    int32_t *kept, *fresh;       /* [micro-batch][layer][tp]; fresh: gradient of a micro-batch behind the first */
    int32_t *input, *input_grad; /* [micro-batch][layer][0], of a stage's first layer */
    int32_t match;
};

static int first_layer(const struct pipeline *p, int stage)
{
    int layer = 0;
    for (int i = 0; i < stage; i++) layer += p->layers[i];
    return layer;
}

static int stage_of(const struct pipeline *p, int layer)
{
    int stage = 0;
    while (layer >= p->layers[stage]) layer -= p->layers[stage++];
    return stage;
}

static int32_t at(const struct maker *m, int pipeline, int micro, int layer, int tp)
{
    return ((pipeline * m->job.micro + micro) * m->n_layers + layer) * MAX_TP + tp;
}

static struct pass *find(struct maker *m, int pipeline, int stage, bool forward, int micro)
{
    for (int k = 0; k < m->n_passes; k++) {
        struct pass *x = &m->passes[pipeline][stage][k];
        if (x->forward == forward && x->micro == micro) return x;
    }
    ck_abort_msg("no such pass");
    return NULL;
}

/* The order of a stage: K forwards and K backwards, or stages - 1 - stage forwards ahead and then one by one. */
static void order(struct maker *m, int pipeline, int stage)
{
    int k = m->job.micro, ahead = m->job.one_f_one_b ? m->job.pipelines[pipeline].stages - stage : k;
    struct pass *next = m->passes[pipeline][stage] = HT_NEW_ARRAY(struct pass, m->n_passes);
    for (int f = 0, b = 0; b < k;) {
        bool forward = f < k && f - b < ahead;
        *next++ = (struct pass){.forward = forward, .micro = forward ? f++ : b++};
    }
}

/* Every GPU takes its passes in order, each when its input is there. Repeats until nothing moves. */
static void lay_out(struct maker *m)
{
    for (int j = 0; j < m->job.n_pipelines; j++) {
        const struct pipeline *p = &m->job.pipelines[j];
        for (int i = 0; i < p->stages; i++) order(m, j, i);
        for (bool moved = true; moved;) {
            moved = false;
            for (int i = 0; i < p->stages; i++)
                for (int k = 0; k < m->n_passes; k++) {
                    struct pass *x = &m->passes[j][i][k];
                    int ready = 0, start = k ? x[-1].end : 0;
                    if (x->forward && i > 0) ready = find(m, j, i - 1, true, x->micro)->end;
                    if (!x->forward && i < p->stages - 1) ready = find(m, j, i + 1, false, x->micro)->end;
                    if (ready > start) start = ready;
                    int end = start + (x->forward ? p->t[i] : 2 * p->t[i]);
                    moved |= end != x->end;
                    x->start = start;
                    x->end = end;
                }
        }
    }
}

/* A row of part q of a layer. */
static int32_t add_part(struct maker *m, enum ht_tensor_class class, int layer, int q, int64_t element_bytes,
                        int32_t rank)
{
    int32_t row = add_shard(m->s, class, layer, 0, PARAMS / m->job.tp, element_bytes, rank);
    m->s->tensors[row].part = q;
    m->s->tensors[row].parts = m->job.tp;
    return row;
}

static void add_tensors(struct maker *m, int j)
{
    static const enum ht_tensor_class classes[] = {HT_MASTER, HT_MOMENTUM, HT_VARIANCE};
    const struct pipeline *p = &m->job.pipelines[j];
    int tp = m->job.tp;
    for (int layer = 0; layer < m->n_layers; layer++) {
        int stage = stage_of(p, layer);
        for (int q = 0; q < tp; q++) {
            int32_t rank = m->s->lanes[m->gpu[j][stage][q]].rank;
            m->param[j][layer][q] = add_part(m, HT_PARAM, layer, q, 2, rank);
            m->grad[j][layer][q] = add_part(m, HT_GRAD, layer, q, 2, rank);
            ht_add_resident(m->s, m->param[j][layer][q], HT_DEVICE, rank);
            for (int k = 0; k < 3; k++) {
                m->state[k][j][layer][q] = add_part(m, classes[k], layer, q, 4, rank);
                ht_add_resident(m->s, m->state[k][j][layer][q], HT_DEVICE, rank);
            }
            for (int b = 0; b < m->job.micro; b++) {
                m->kept[at(m, j, b, layer, q)] =
                    add_tensor(m->s, HT_ACTIVATION, about(layer, 1, j * m->job.micro + b), KEPT_BYTES / tp, rank);
                int32_t fresh = b ? add_part(m, HT_GRAD, layer, q, 2, rank) : m->grad[j][layer][q];
                if (b) m->s->tensors[fresh].label.micro_batch = j * m->job.micro + b;
                m->fresh[at(m, j, b, layer, q)] = fresh;
            }
        }
        /* the same on all GPUs of a stage */
        for (int b = 0; b < m->job.micro && layer == first_layer(p, stage); b++) {
            struct ht_label label = about(layer, 1, j * m->job.micro + b);
            m->input[at(m, j, b, layer, 0)] = add_tensor(m->s, HT_CHECKPOINT, label, BOUNDARY_BYTES, 0);
            if (layer > 0)
                m->input_grad[at(m, j, b, layer, 0)] = add_tensor(m->s, HT_ACT_GRAD, label, BOUNDARY_BYTES, 0);
        }
    }
}

/* Adds the gradients of micro-batch b to the first's. */
static void add_sum(struct maker *m, int j, int stage, int b, int q)
{
    int low = first_layer(&m->job.pipelines[j], stage), n = m->job.pipelines[j].layers[stage];
    add_op(m->s, HT_OP_ACCUMULATE, m->gpu[j][stage][q], about(low, n, j * m->job.micro + b), "sum");
    ht_op_name(m->s, "A%c%d.%d%s", "ab"[j], stage, b, q ? "'" : "");
    for (int layer = low; layer < low + n; layer++) {
        ht_op_effect(m->s, m->fresh[at(m, j, b, layer, q)], HT_DEVICE, HT_NEED | HT_RELEASE);
        ht_op_effect(m->s, m->grad[j][layer][q], HT_DEVICE, HT_UPDATE);
    }
}

static void add_compute(struct maker *m, int j, int stage, const struct pass *x)
{
    const struct pipeline *p = &m->job.pipelines[j];
    int low = first_layer(p, stage), high = low + p->layers[stage], b = x->micro;
    bool last_stage = stage == p->stages - 1;
    char price[32];
    snprintf(price, sizeof price, "%s %c%d", x->forward ? "forward" : "backward", "ab"[j], stage);
    for (int q = 0; q < m->job.tp; q++) {
        add_op(m->s, x->forward ? HT_OP_FORWARD : HT_OP_BACKWARD, m->gpu[j][stage][q],
               about(low, high - low, j * m->job.micro + b), price);
        ht_op_name(m->s, "%c%c%d.%d%s", x->forward ? 'F' : 'B', "ab"[j], stage, b, q ? "'" : "");
        if (m->job.tp > 1) ht_op_match(m->s, m->match);
        for (int layer = low; layer < high; layer++) ht_op_effect(m->s, m->param[j][layer][q], HT_DEVICE, HT_NEED);
        int32_t input = m->input[at(m, j, b, low, 0)];
        if (x->forward) {
            ht_op_effect(m->s, input, HT_DEVICE, stage == 0 ? HT_PRODUCE : HT_NEED);
            for (int layer = low; layer < high; layer++)
                ht_op_effect(m->s, m->kept[at(m, j, b, layer, q)], HT_DEVICE, HT_PRODUCE);
            if (!last_stage) ht_op_effect(m->s, m->input[at(m, j, b, high, 0)], HT_DEVICE, HT_PRODUCE);
            continue;
        }
        ht_op_effect(m->s, input, HT_DEVICE, HT_NEED | HT_RELEASE);
        for (int layer = low; layer < high; layer++)
            ht_op_effect(m->s, m->kept[at(m, j, b, layer, q)], HT_DEVICE, HT_NEED | HT_RELEASE);
        if (!last_stage) ht_op_effect(m->s, m->input_grad[at(m, j, b, high, 0)], HT_DEVICE, HT_NEED | HT_RELEASE);
        if (stage > 0) ht_op_effect(m->s, m->input_grad[at(m, j, b, low, 0)], HT_DEVICE, HT_PRODUCE);
        for (int layer = low; layer < high; layer++)
            ht_op_effect(m->s, m->fresh[at(m, j, b, layer, q)], HT_DEVICE, HT_PRODUCE);
    }
    m->match++;
    for (int q = 0; q < m->job.tp && !x->forward && b > 0; q++) add_sum(m, j, stage, b, q);
}

/* To the neighbouring stage, GPU by GPU. */
static void send(struct maker *m, int j, int from, int to, int32_t tensor)
{
    struct ht_label label = m->s->tensors[tensor].label;
    char what = from < to ? 'x' : 'd';
    for (int q = 0; q < m->job.tp; q++) {
        add_op(m->s, HT_OP_SEND, m->p2p[j][from][q], label, "message");
        ht_op_name(m->s, "S%c%d.%d%s", what, label.unit, label.micro_batch, q ? "'" : "");
        ht_op_match(m->s, m->match);
        ht_op_effect(m->s, tensor, HT_DEVICE, HT_NEED | HT_RELEASE);
        add_op(m->s, HT_OP_RECEIVE, m->p2p[j][to][q], label, "message");
        ht_op_name(m->s, "V%c%d.%d%s", what, label.unit, label.micro_batch, q ? "'" : "");
        ht_op_match(m->s, m->match++);
        ht_op_effect(m->s, tensor, HT_DEVICE, HT_PRODUCE);
    }
}

static void add_messages(struct maker *m, int j, int stage, const struct pass *x)
{
    const struct pipeline *p = &m->job.pipelines[j];
    int low = first_layer(p, stage);
    if (x->forward && stage < p->stages - 1)
        send(m, j, stage, stage + 1, m->input[at(m, j, x->micro, low + p->layers[stage], 0)]);
    if (!x->forward && stage > 0) send(m, j, stage, stage - 1, m->input_grad[at(m, j, x->micro, low, 0)]);
}

/* The sum over the pipelines, then the local step. */
static void add_update(struct maker *m, int layer)
{
    for (int q = 0; q < m->job.tp && m->job.n_pipelines > 1; q++) {
        for (int j = 0; j < m->job.n_pipelines; j++) {
            add_op(m->s, HT_OP_ALL_REDUCE, m->coll[j][stage_of(&m->job.pipelines[j], layer)][q], about(layer, 1, -1),
                   "all reduce");
            ht_op_name(m->s, "AR%d%c%s", layer, "ab"[j], q ? "'" : "");
            ht_op_match(m->s, m->match);
            ht_op_effect(m->s, m->grad[j][layer][q], HT_DEVICE, HT_UPDATE);
        }
        m->match++;
    }
    for (int j = 0; j < m->job.n_pipelines; j++)
        for (int q = 0; q < m->job.tp; q++) {
            int stage = stage_of(&m->job.pipelines[j], layer);
            add_op(m->s, HT_OP_OPTIMIZER_STEP, m->gpu[j][stage][q], about(layer, 1, -1), "step");
            ht_op_name(m->s, "O%d%c%s", layer, "ab"[j], q ? "'" : "");
            ht_op_effect(m->s, m->grad[j][layer][q], HT_DEVICE, HT_NEED | HT_RELEASE);
            for (int k = 0; k < 3; k++) ht_op_effect(m->s, m->state[k][j][layer][q], HT_DEVICE, HT_UPDATE);
            ht_op_effect(m->s, m->param[j][layer][q], HT_DEVICE, HT_UPDATE);
        }
}

static int by_moment(const void *x, const void *y)
{
    const struct moment *a = x, *b = y;
    if (a->time != b->time) return a->time < b->time ? -1 : 1;
    if (a->is_start != b->is_start) return a->is_start - b->is_start;
    if (a->pipeline != b->pipeline) return a->pipeline - b->pipeline;
    if (a->stage != b->stage) return a->stage - b->stage;
    return a->pass - b->pass;
}

/* Lanes of each GPU; ranks go through pipeline, stage, tensor-parallel part. A stage holds the micro-batches that the
   order lets it: all, or with one forward, one backward at most as many as stages follow, itself included. */
static void add_lanes(struct maker *m)
{
    int32_t rank = 0;
    for (int j = 0; j < m->job.n_pipelines; j++)
        for (int i = 0; i < m->job.pipelines[j].stages; i++)
            for (int q = 0; q < m->job.tp; q++, rank++) {
                int layers = m->job.pipelines[j].layers[i], left = m->job.pipelines[j].stages - i;
                int held = m->job.one_f_one_b && left < m->job.micro ? left : m->job.micro;
                /* 16 bytes a parameter, and 2 of a micro-batch's own gradient */
                int64_t bytes = 18 * PARAMS / m->job.tp * layers + (int64_t)held * layers * KEPT_BYTES / m->job.tp +
                                (int64_t)(held + 3) * BOUNDARY_BYTES;
                ht_schedule_set_capacity(m->s, HT_DEVICE, rank, bytes);
                m->gpu[j][i][q] = ht_add_lane(m->s, "gpu", HT_LANE_COMPUTE, rank, HT_FIFO);
                m->p2p[j][i][q] = ht_add_lane(m->s, "p2p", HT_LANE_P2P, rank, HT_FIFO);
                m->coll[j][i][q] = ht_add_lane(m->s, "coll", HT_LANE_COLLECTIVE, rank, HT_FIFO);
            }
}

static struct ht_schedule *build(struct job job)
{
    struct maker m = {.job = job, .n_passes = 2 * job.micro};
    int n_ranks = 0, n_moments = 0;
    for (int j = 0; j < job.n_pipelines; j++) n_ranks += job.pipelines[j].stages * job.tp;
    for (int i = 0; i < job.pipelines[0].stages; i++) m.n_layers += job.pipelines[0].layers[i];
    m.s = ht_schedule_create(job.name, n_ranks, 1, NULL);
    m.s->n_units = m.n_layers;
    m.s->n_micro_batches = job.n_pipelines * job.micro;
    size_t rows = (size_t)(job.n_pipelines * job.micro * m.n_layers * MAX_TP);
    m.kept = HT_NEW_ARRAY(int32_t, rows);
    m.fresh = HT_NEW_ARRAY(int32_t, rows);
    m.input = HT_NEW_ARRAY(int32_t, rows);
    m.input_grad = HT_NEW_ARRAY(int32_t, rows);
    add_lanes(&m);
    for (int j = 0; j < job.n_pipelines; j++) add_tensors(&m, j);
    lay_out(&m);
    struct moment *moments = HT_NEW_ARRAY(struct moment, 2 * m.n_passes * n_ranks);
    for (int j = 0; j < job.n_pipelines; j++)
        for (int i = 0; i < job.pipelines[j].stages; i++)
            for (int k = 0; k < m.n_passes; k++) {
                moments[n_moments++] = (struct moment){m.passes[j][i][k].start, 1, j, i, k};
                moments[n_moments++] = (struct moment){m.passes[j][i][k].end, 0, j, i, k};
            }
    qsort(moments, (size_t)n_moments, sizeof *moments, by_moment);
    for (int n = 0; n < n_moments; n++) {
        const struct moment *x = &moments[n];
        (x->is_start ? add_compute : add_messages)(&m, x->pipeline, x->stage,
                                                   &m.passes[x->pipeline][x->stage][x->pass]);
    }
    for (int layer = m.n_layers - 1; layer >= 0; layer--) add_update(&m, layer);
    ht_schedule_link(m.s);
    for (int j = 0; j < job.n_pipelines; j++)
        for (int i = 0; i < job.pipelines[j].stages; i++) free(m.passes[j][i]);
    free(moments);
    free(m.kept);
    free(m.fresh);
    free(m.input);
    free(m.input_grad);
    return m.s;
}

/* ---- the worked examples --------------------------------------------------------------------------------------- */

static const struct pipeline a = {3, {3, 4, 2}, {1, 2, 3}}, b = {2, {5, 5}, {3, 3}};

static struct fixture fixture_at(struct job job, int all_reduce_thirds)
{
    struct fixture f = fixture_of(build(job));
    set_prices(&f, (struct price[]){{"all reduce", all_reduce_thirds}}, 1);
    for (int j = 0; j < job.n_pipelines; j++)
        for (int i = 0; i < job.pipelines[j].stages; i++) {
            char forward[32], backward[32];
            snprintf(forward, sizeof forward, "forward %c%d", "ab"[j], i);
            snprintf(backward, sizeof backward, "backward %c%d", "ab"[j], i);
            set_price(&f, forward, units(job.pipelines[j].t[i]));
            set_price(&f, backward, units(2 * job.pipelines[j].t[i]));
        }
    return f;
}

/* Eq. 1 without T_sync, in thirds. */
static int64_t equation_1(const struct pipeline *p, int micro)
{
    int64_t sum = 0, most = 0;
    for (int i = 0; i < p->stages; i++) {
        sum += p->t[i];
        if (p->t[i] > most) most = p->t[i];
    }
    return 3 * (sum + (micro - 1) * most);
}

static int64_t iteration(struct job job)
{
    struct fixture f = fixture_at(job, 0);
    run(&f, 1);
    int64_t end = f.trace->end_ns / FIXTURE_UNIT_NS;
    fixture_free(&f);
    return end;
}

/*
 * K = 6. A: 3 + 4 + 2 + 5 x 4 = 29. B: 5 + 5 + 5 x 5 = 35. T_sync = 7 as three sums of 7/3, the layers of a stage of B:
 * those of b1 run while b0 still goes backward; those of b0 are final at 35 and leave 7 to go: 42.
 *
 *     b1's gradients are final at 95/3 (6 forwards of 5/3 behind the first of b0, 6 backwards of 10/3): layers 5, 4, 3
 *     follow at 95, 102, 109 thirds; b0's at 105: layers 2, 1, 0 at 105, 112, 119, ending at 126 = 3 x 42.
 */
START_TEST(two_depths)
{
    struct job job = {"autohet", 2, {a, b}, 6, 1, false};
    struct fixture f = fixture_at(job, 7);
    run(&f, 3);
    ck_assert_int_eq(equation_1(&a, 6), 3 * 29);
    ck_assert_int_eq(equation_1(&b, 6), 3 * 35);
    CHECK_SPANS(&f, 0, {"Ba0.5", 3 * 29 - 6, 3 * 29}, {"Bb1.5", 85, 95}, {"Bb0.5", 3 * 35 - 10, 3 * 35},
                {"AR5a", 95, 102}, {"AR5b", 95, 102}, {"AR3b", 109, 116}, {"AR2a", 105, 112}, {"AR2b", 105, 112},
                {"AR0b", 119, 126});
    check_ends(&f, 0, 3 * 42);
    check_period(&f, 2, 3 * 42);
    fixture_free(&f);
}
END_TEST

/* Two depths with every stage on two GPUs: 10 ranks, ops of a stage as groups of two, and a ring per layer and part. */
START_TEST(tensor_parallel)
{
    struct job job = {"autohet_tp", 2, {a, b}, 6, 2, false};
    struct fixture f = fixture_at(job, 7);
    ck_assert_int_eq(f.s->n_ranks, 10);
    /* two rings a layer share no GPU, so they take no longer */
    run(&f, 2);
    CHECK_SPANS(&f, 0, {"Ba0.5", 81, 87}, {"Ba0.5'", 81, 87}, {"AR2a", 105, 112}, {"AR2a'", 105, 112});
    check_ends(&f, 0, 3 * 42);
    fixture_free(&f);
}
END_TEST

/* Eq. 1 is the time of all forwards, then all backwards, for every pipeline of up to four stages with t in 1 .. 3. */
START_TEST(all_forward_all_backward)
{
    for (int stages = 1; stages <= 4; stages++)
        for (int code = 0; code < 81; code++)
            for (int micro = 1; micro <= 5; micro += 2) {
                struct pipeline p = {
                    stages, {1 + code % 3, 1 + code / 3 % 3, 1 + code / 9 % 3, 1 + code / 27 % 3}, {1, 1, 1, 1}};
                struct job job = {"p", 1, {p}, micro, 1, false};
                ck_assert_int_eq(iteration(job), equation_1(&p, micro));
            }
}
END_TEST

/*
 * One forward, one backward is no slower, and faster when the slow stage comes early: t = (3, 2, 1, 1), K = 8 takes 75
 * for 3 (7 + 7 x 3) = 84, in thirds; with the slowest stage last, (1, 1, 2, 3), the 84 of eq. 1.
 */
START_TEST(one_forward_one_backward)
{
    struct pipeline early = {4, {3, 2, 1, 1}, {1, 1, 1, 1}}, late = {4, {1, 1, 2, 3}, {1, 1, 1, 1}};
    ck_assert_int_eq(iteration((struct job){"p", 1, {early}, 8, 1, true}), 75);
    ck_assert_int_eq(equation_1(&early, 8), 84);
    ck_assert_int_eq(iteration((struct job){"p", 1, {late}, 8, 1, true}), 84);
    for (int code = 0; code < 81; code++) {
        struct pipeline p = {4, {1 + code % 3, 1 + code / 3 % 3, 1 + code / 9 % 3, 1 + code / 27 % 3}, {1, 1, 1, 1}};
        ck_assert_int_le(iteration((struct job){"p", 1, {p}, 5, 1, true}), equation_1(&p, 5));
    }
}
END_TEST

START_TEST(files)
{
    struct ht_schedule *s = build((struct job){"autohet", 2, {a, b}, 6, 1, false});
    check_file(s, "autohet");
    struct fixture f = fixture_load("autohet");
    load_prices(&f, "autohet");
    run(&f, 3);
    check_period(&f, 2, 3 * 42);
    check_ahead(&f);
    fixture_free(&f);
    ht_schedule_destroy(s);
}
END_TEST

int main(void)
{
    TCase *tc = tcase_create("autohet");
    tcase_add_test(tc, two_depths);
    tcase_add_test(tc, tensor_parallel);
    tcase_add_test(tc, all_forward_all_backward);
    tcase_add_test(tc, one_forward_one_backward);
    tcase_add_test(tc, files);
    return run_suite("fixtures: AutoHet", tc);
}
