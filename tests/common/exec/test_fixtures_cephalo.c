/*
 * Layered gradient accumulation over uneven shards (Cephalo): three GPUs with their own number of
 * micro-batches, each a node of its own.
 *
 *     forward   AG(1); for u = 1..U: AG(u+1) is issued, then all micro-batches of unit u
 *     backward  AG(U); for u = U..1: AG(u-1) is issued, then recompute and backward of all micro-batches, then RS(u)
 *
 * AG(u+1) may start when the buffer of unit u-1 is free: two buffers of full parameters. The copy gathered for the
 * backward pass is a tensor of its own, for AG(U) runs while the last unit still computes with the one gathered for the
 * forward. Shards are r_i of each unit; boundary activations and their gradients wait in host memory. Units are
 * numbered from 0 in the graph, from 1 in names: AG1f@2 (for the forward pass, on GPU 2), F1.0, RS1@0. From a GPU's second
 * micro-batch on an op behind each backward (A) adds its gradient to the first's; it takes no time.
 *
 * FSDP-GA, for comparison: one micro-batch passes all units forward and backward, then the next; every pass gathers
 * anew.
 */
#include "tests/common/exec/fixtures.h"

enum { RANKS = 3, MAX_UNITS = 12, MAX_MICRO = 8, PARAMS = 3840, BOUNDARY_BYTES = 1024, KEPT_BYTES = 8192 };

struct plan {
    const char *name;
    int units;
    int micro[RANKS];     /* l_i */
    int64_t shard[RANKS]; /* elements of a unit on each GPU: r_i PARAMS */
    bool layered;         /* else FSDP-GA, the same l_i on all */
};

struct maker {
    struct plan p;
    struct ht_schedule *s;
    int32_t gpu[RANKS], coll[RANKS], h2d[RANKS], d2h[RANKS];
    int32_t param[MAX_UNITS][RANKS], state[2][MAX_UNITS][RANKS], grad[MAX_UNITS][RANKS]; /* shards */
    int32_t gathered[2][MAX_UNITS]; /* full parameters for the forward, the backward pass */
    int32_t full_grad[MAX_UNITS][RANKS];
    int32_t boundary[MAX_UNITS][RANKS * MAX_MICRO], boundary_grad[MAX_UNITS][RANKS * MAX_MICRO]; /* of unit u's input */
    int32_t kept[MAX_UNITS][RANKS * MAX_MICRO];
    int32_t last[2][MAX_UNITS][RANKS]; /* last op that read the gathered parameters */
    int32_t first_micro[RANKS];
    int32_t match;
};

static void add_tensors(struct maker *m)
{
    struct ht_schedule *s = m->s;
    for (int u = 0; u < m->p.units; u++) {
        int64_t begin = 0;
        m->gathered[0][u] = add_tensor(s, HT_PARAM, about(u, 1, -1), PARAMS * 4, 0);
        m->gathered[1][u] = add_tensor(s, HT_PARAM, about(u, 1, -1), PARAMS * 4, 0);
        for (int r = 0; r < RANKS; r++) {
            int64_t end = begin + m->p.shard[r];
            m->param[u][r] = add_shard(s, HT_PARAM, u, begin, end, 4, r);
            m->state[0][u][r] = add_shard(s, HT_MOMENTUM, u, begin, end, 4, r);
            m->state[1][u][r] = add_shard(s, HT_VARIANCE, u, begin, end, 4, r);
            m->grad[u][r] = add_shard(s, HT_GRAD, u, begin, end, 4, r);
            m->full_grad[u][r] = add_tensor(s, HT_GRAD, about(u, 1, -1), PARAMS * 4, r);
            ht_add_resident(s, m->param[u][r], HT_DEVICE, r);
            ht_add_resident(s, m->state[0][u][r], HT_DEVICE, r);
            ht_add_resident(s, m->state[1][u][r], HT_DEVICE, r);
            begin = end;
            for (int j = m->first_micro[r]; j < m->first_micro[r] + m->p.micro[r]; j++) {
                m->boundary[u][j] = u > 0 ? add_tensor(s, HT_CHECKPOINT, about(u, 1, j), BOUNDARY_BYTES, r) : -1;
                m->boundary_grad[u][j] = u > 0 ? add_tensor(s, HT_ACT_GRAD, about(u, 1, j), BOUNDARY_BYTES, r) : -1;
                m->kept[u][j] = add_tensor(s, HT_ACTIVATION, about(u, 1, j), KEPT_BYTES, r);
            }
        }
    }
}

/* One op a rank. after: per rank, or NULL. */
static void gather(struct maker *m, int pass, int u, const int32_t *after)
{
    for (int r = 0; r < RANKS; r++) {
        add_op(m->s, HT_OP_ALL_GATHER, m->coll[r], about(u, 1, -1), "all gather");
        ht_op_name(m->s, "AG%d%c@%d", u + 1, pass == 0 ? 'f' : 'b', r);
        ht_op_match(m->s, m->match);
        if (after) ht_op_after(m->s, after[r]);
        ht_op_effect(m->s, m->param[u][r], HT_DEVICE, HT_NEED);
        ht_op_effect(m->s, m->gathered[pass][u], HT_DEVICE, HT_PRODUCE);
    }
    m->match++;
}

static void reduce_scatter(struct maker *m, int u, bool first)
{
    for (int r = 0; r < RANKS; r++) {
        add_op(m->s, HT_OP_REDUCE_SCATTER, m->coll[r], about(u, 1, -1), "reduce scatter");
        ht_op_name(m->s, "RS%d@%d", u + 1, r);
        ht_op_match(m->s, m->match);
        ht_op_effect(m->s, m->full_grad[u][r], HT_DEVICE, HT_NEED | HT_RELEASE);
        ht_op_effect(m->s, m->grad[u][r], HT_DEVICE, first ? HT_PRODUCE : HT_UPDATE);
    }
    m->match++;
}

static void copy(struct maker *m, int32_t lane, int32_t tensor, enum ht_tier from, enum ht_tier to, bool release)
{
    add_op(m->s, HT_OP_COPY, lane, m->s->tensors[tensor].label, "boundary copy");
    ht_op_effect(m->s, tensor, from, HT_NEED | (release ? HT_RELEASE : 0));
    ht_op_effect(m->s, tensor, to, HT_PRODUCE);
}

/* The prices' names carry the rank: GPUs differ. */
static void add_work(struct maker *m, enum ht_op_kind kind, int r, int u, int j)
{
    static const char *const words[] = {
        [HT_OP_FORWARD] = "forward", [HT_OP_RECOMPUTE] = "recompute", [HT_OP_BACKWARD] = "backward"};
    char price[32];
    snprintf(price, sizeof price, "%s on GPU %d", words[kind], r);
    add_op(m->s, kind, m->gpu[r], about(u, 1, j), price);
    ht_op_name(m->s, "%c%d.%d", kind == HT_OP_FORWARD ? 'F' : kind == HT_OP_RECOMPUTE ? 'R' : 'B', u + 1, j);
}

static void forward(struct maker *m, int r, int u, int j, bool frees)
{
    bool last_unit = u == m->p.units - 1;
    if (u > 0) copy(m, m->h2d[r], m->boundary[u][j], HT_HOST, HT_DEVICE, false);
    add_work(m, HT_OP_FORWARD, r, u, j);
    m->last[0][u][r] = m->s->n_ops - 1;
    ht_op_effect(m->s, m->gathered[0][u], HT_DEVICE, HT_NEED | (frees ? HT_RELEASE : 0));
    if (u > 0) ht_op_effect(m->s, m->boundary[u][j], HT_DEVICE, HT_NEED | HT_RELEASE);
    ht_op_effect(m->s, m->kept[u][j], HT_DEVICE, HT_PRODUCE | HT_RELEASE);
    if (last_unit) return;
    ht_op_effect(m->s, m->boundary[u + 1][j], HT_DEVICE, HT_PRODUCE);
    copy(m, m->d2h[r], m->boundary[u + 1][j], HT_DEVICE, HT_HOST, true);
}

static void backward(struct maker *m, int r, int u, int j, bool first, bool frees)
{
    bool last_unit = u == m->p.units - 1;
    if (u > 0) copy(m, m->h2d[r], m->boundary[u][j], HT_HOST, HT_DEVICE, true);
    if (!last_unit) copy(m, m->h2d[r], m->boundary_grad[u + 1][j], HT_HOST, HT_DEVICE, true);
    add_work(m, HT_OP_RECOMPUTE, r, u, j);
    ht_op_effect(m->s, m->gathered[1][u], HT_DEVICE, HT_NEED);
    if (u > 0) ht_op_effect(m->s, m->boundary[u][j], HT_DEVICE, HT_NEED);
    ht_op_effect(m->s, m->kept[u][j], HT_DEVICE, HT_PRODUCE);
    add_work(m, HT_OP_BACKWARD, r, u, j);
    m->last[1][u][r] = m->s->n_ops - 1;
    ht_op_effect(m->s, m->gathered[1][u], HT_DEVICE, HT_NEED | (frees ? HT_RELEASE : 0));
    if (u > 0) ht_op_effect(m->s, m->boundary[u][j], HT_DEVICE, HT_NEED | HT_RELEASE);
    ht_op_effect(m->s, m->kept[u][j], HT_DEVICE, HT_NEED | HT_RELEASE);
    if (!last_unit) ht_op_effect(m->s, m->boundary_grad[u + 1][j], HT_DEVICE, HT_NEED | HT_RELEASE);
    int32_t fresh = first ? m->full_grad[u][r] : add_tensor(m->s, HT_GRAD, about(u, 1, j), PARAMS * 4, r);
    ht_op_effect(m->s, fresh, HT_DEVICE, HT_PRODUCE);
    if (u > 0) ht_op_effect(m->s, m->boundary_grad[u][j], HT_DEVICE, HT_PRODUCE);
    if (u > 0) copy(m, m->d2h[r], m->boundary_grad[u][j], HT_DEVICE, HT_HOST, true);
    if (first) return;
    add_op(m->s, HT_OP_ACCUMULATE, m->gpu[r], about(u, 1, j), "sum");
    ht_op_name(m->s, "A%d.%d", u + 1, j);
    ht_op_effect(m->s, fresh, HT_DEVICE, HT_NEED | HT_RELEASE);
    ht_op_effect(m->s, m->full_grad[u][r], HT_DEVICE, HT_UPDATE);
}

/* All units forward and backward for the micro-batches [from, from + n_i) of each GPU. */
static void pass(struct maker *m, const int *from, const int *n, bool first)
{
    int top = m->p.units - 1;
    gather(m, 0, 0, NULL);
    for (int u = 0; u <= top; u++) {
        if (u < top) gather(m, 0, u + 1, u > 0 ? m->last[0][u - 1] : NULL);
        for (int r = 0; r < RANKS; r++)
            for (int j = 0; j < n[r]; j++) forward(m, r, u, from[r] + j, j == n[r] - 1);
    }
    gather(m, 1, top, m->last[0][top - 1]);
    for (int u = top; u >= 0; u--) {
        if (u > 0) gather(m, 1, u - 1, u == top ? m->last[0][top] : m->last[1][u + 1]);
        if (u < top) reduce_scatter(m, u + 1, first);
        for (int r = 0; r < RANKS; r++)
            for (int j = 0; j < n[r]; j++) backward(m, r, u, from[r] + j, j == 0, j == n[r] - 1);
    }
    reduce_scatter(m, 0, first);
}

static struct ht_schedule *build(struct plan p)
{
    struct maker m = {.p = p};
    const int32_t nodes[RANKS] = {0, 1, 2};
    m.s = ht_schedule_create(p.name, RANKS, RANKS, nodes);
    m.s->n_units = p.units;
    for (int r = 0; r < RANKS; r++) {
        m.first_micro[r] = m.s->n_micro_batches;
        m.s->n_micro_batches += p.micro[r];
        /* The shards of the training state (16 bytes a parameter), two buffers of full parameters and two of gradients,
           and a micro-batch's own, its kept activations, and eight boundary tensors. */
        int64_t bytes = 16 * p.shard[r] * p.units + 5 * PARAMS * 4 + KEPT_BYTES + 8 * BOUNDARY_BYTES;
        ht_schedule_set_capacity(m.s, HT_DEVICE, r, bytes);
        m.gpu[r] = ht_add_lane(m.s, "gpu", HT_LANE_COMPUTE, r, HT_FIFO);
        m.coll[r] = ht_add_lane(m.s, "coll", HT_LANE_COLLECTIVE, r, HT_FIFO);
        m.h2d[r] = ht_add_lane(m.s, "h2d", HT_LANE_H2D, r, HT_FIFO);
        m.d2h[r] = ht_add_lane(m.s, "d2h", HT_LANE_D2H, r, HT_FIFO);
    }
    add_tensors(&m);
    const int one[RANKS] = {1, 1, 1};
    if (p.layered)
        pass(&m, m.first_micro, p.micro, true);
    else
        for (int j = 0; j < p.micro[0]; j++) {
            const int from[RANKS] = {m.first_micro[0] + j, m.first_micro[1] + j, m.first_micro[2] + j};
            pass(&m, from, one, j == 0);
        }
    for (int r = 0; r < RANKS; r++)
        for (int u = 0; u < p.units; u++) {
            add_op(m.s, HT_OP_OPTIMIZER_STEP, m.gpu[r], about(u, 1, -1), "step");
            ht_op_name(m.s, "O%d@%d", u + 1, r);
            ht_op_effect(m.s, m.grad[u][r], HT_DEVICE, HT_NEED | HT_RELEASE);
            ht_op_effect(m.s, m.param[u][r], HT_DEVICE, HT_UPDATE);
            ht_op_effect(m.s, m.state[0][u][r], HT_DEVICE, HT_UPDATE);
            ht_op_effect(m.s, m.state[1][u][r], HT_DEVICE, HT_UPDATE);
        }
    ht_schedule_link(m.s);
    return m.s;
}

/* ---- the worked examples --------------------------------------------------------------------------------------- */

/* Per unit T_f = (12, 10, 11) and T_b = (30, 33, 25), recomputation included, over l = (3, 2, 1) micro-batches. */
#define COMPUTE_PRICES                                                                                                 \
    {"forward on GPU 0", 4}, {"forward on GPU 1", 5}, {"forward on GPU 2", 11}, {"recompute on GPU 0", 4},             \
        {"recompute on GPU 1", 5}, {"recompute on GPU 2", 11}, {"backward on GPU 0", 6}, {"backward on GPU 1", 11.5},  \
    {                                                                                                                  \
        "backward on GPU 2", 14                                                                                        \
    }
static const struct price even_prices[] = {COMPUTE_PRICES, {"all gather", 11}, {"reduce scatter", 20}};
/* Collectives over uneven shards take 1.15 times as long. */
static const struct price uneven_prices[] = {COMPUTE_PRICES, {"all gather", 12.65}, {"reduce scatter", 23}};

static const struct plan even = {"cephalo_even", 3, {3, 2, 1}, {1280, 1280, 1280}, true};
static const struct plan uneven = {"cephalo", 3, {3, 2, 1}, {1920, 1152, 768}, true}; /* r = (1/2, 3/10, 1/5) */

static double iteration(struct plan p, int n_units, const struct price *prices, size_t n)
{
    p.units = n_units;
    struct fixture f = fixture_of(build(p));
    set_prices(&f, prices, n);
    run(&f, 1);
    double end = (double)f.trace->end_ns / (double)FIXTURE_UNIT_NS;
    fixture_free(&f);
    return end;
}

/*
 * Even shards, a layer costs max(12, AG 11) + max(33, RS + AG = 31) = 45 (eqs. 2 and 3). Of the iteration of U units:
 *
 *     first gather                          11
 *     GPU 0, slowest forward, U - 1 units   12 (U - 1)   then AG(U) for the backward starts, its other buffer being
 * free that gather                           11           GPU 1, which is waiting, goes backward at once GPU 1, slowest
 * backward, U units      33 U last reduction                        20           45 U + 30; eqs. 2 and 3 with exposed
 * AG and RS say 45 U + 31: the turn, where the slowest GPU changes, hides 1
 */
START_TEST(even_layers)
{
    for (int u = 2; u <= MAX_UNITS; u++)
        ck_assert_double_eq(iteration(even, u, even_prices, HT_COUNT(even_prices)), 45 * u + 30);
}
END_TEST

/*
 * Uneven shards, a layer costs max(12, 12.65) + max(33, 35.65) = 48.3: collectives bind both ways. Either the GPUs are
 * the longer chain of the backward pass, or the collective lane from the end of B(U) at T0 = 12.65 (U + 1) + 33 on:
 *
 *     GPU 1        (U + 1) gathers, 33 U, one reduction                      45.65 U + 35.65
 *     collectives  T0, U - 2 gathers with a reduction each, two reductions   48.3 U + 20.35
 *
 * The lane goes into the backward pass one gather ahead, so that 48.3 a layer is seen from U = 6 on.
 */
START_TEST(uneven_layers)
{
    for (int u = 2; u <= MAX_UNITS; u++) {
        double gpu = 45.65 * u + 35.65, collectives = 48.3 * u + 20.35;
        double end = iteration(uneven, u, uneven_prices, HT_COUNT(uneven_prices));
        ck_assert_int_eq(units(end), units(gpu > collectives ? gpu : collectives));
    }
}
END_TEST

/* U = 3, even: as above, with GPU 0 and 1 of unit 3 at the turn, and the backward strides of GPU 1. */
START_TEST(order)
{
    struct fixture f = fixture_of(build(even));
    set_prices(&f, even_prices, HT_COUNT(even_prices));
    run(&f, 2);
    CHECK_SPANS(&f, 0, {"AG1f@0", 0, 11}, {"AG2f@0", 11, 22}, {"F1.0", 11, 15}, {"F1.3", 11, 16}, {"F1.5", 11, 22},
                {"AG3f@0", 23, 34}, {"F2.0", 23, 27}, {"F3.0", 35, 39}, {"F3.2", 43, 47}, {"AG3b@1", 35, 46},
                {"AG2b@1", 47, 58}, {"R3.3", 46, 51}, {"B3.3", 51, 62.5}, {"R2.3", 79, 84}, {"R1.3", 112, 117},
                {"B1.4", 133.5, 145}, {"RS1@2", 145, 165});
    check_ends(&f, 0, 165);
    check_period(&f, 1, 165);
    /* boundary activations in host memory: inputs of units 2 and 3 for 3, 2, 1 micro-batches of 1 KiB */
    for (int r = 0; r < RANKS; r++) check_footprint(&f, HT_HOST, r, 2 * even.micro[r]);
    fixture_free(&f);
}
END_TEST

static int groups_of(const struct ht_schedule *s, enum ht_op_kind kind)
{
    int n = 0;
    for (int32_t op = 0; op < s->n_ops; op++) n += s->ops[op].kind == kind;
    ck_assert_int_eq(n % RANKS, 0);
    return n / RANKS;
}

/* U = 3, l = 2: layered accumulation gathers 2 U = 6 times and reduces U = 3 times, FSDP-GA l times as often. */
START_TEST(collectives)
{
    struct plan layered = even, plain = even;
    for (int r = 0; r < RANKS; r++) layered.micro[r] = plain.micro[r] = 2;
    plain.layered = false;
    struct fixture lga = fixture_of(build(layered)), ga = fixture_of(build(plain));
    ck_assert_int_eq(groups_of(lga.s, HT_OP_ALL_GATHER), 6);
    ck_assert_int_eq(groups_of(lga.s, HT_OP_REDUCE_SCATTER), 3);
    ck_assert_int_eq(groups_of(ga.s, HT_OP_ALL_GATHER), 12);
    ck_assert_int_eq(groups_of(ga.s, HT_OP_REDUCE_SCATTER), 6);
    fixture_free(&lga);
    fixture_free(&ga);
}
END_TEST

/* A GPU gives its own shard to an all-gather: 1920, 1152, 768 parameters of 4 bytes. */
START_TEST(uneven_counts)
{
    struct ht_schedule *s = build(uneven);
    int32_t gather = op_named(s, "AG1f@0");
    for (int r = 0; r < RANKS; r++) {
        ck_assert_int_eq(ht_op_rank(s, gather + r), r);
        ck_assert_int_eq(s->ops[gather + r].match, s->ops[gather].match);
        const struct ht_effect *own = &s->effects[s->effects_begin[gather + r]];
        ck_assert_int_eq(own->flags, HT_NEED);
        ck_assert_int_eq(s->tensors[own->tensor].bytes, 4 * uneven.shard[r]);
    }
    ht_schedule_destroy(s);
}
END_TEST

/* 4 gathers of 12.65, GPU 1 three times 33, a reduction of 23: 172.6. */
START_TEST(files)
{
    struct ht_schedule *s = build(uneven);
    check_file(s, "cephalo");
    struct fixture f = fixture_load("cephalo");
    load_prices(&f, "cephalo");
    run(&f, 3);
    check_period(&f, 1, 172.6);
    check_ahead(&f);
    fixture_free(&f);
    ht_schedule_destroy(s);
}
END_TEST

int main(void)
{
    TCase *tc = tcase_create("cephalo");
    tcase_add_test(tc, even_layers);
    tcase_add_test(tc, uneven_layers);
    tcase_add_test(tc, order);
    tcase_add_test(tc, collectives);
    tcase_add_test(tc, uneven_counts);
    tcase_add_test(tc, files);
    return run_suite("fixtures: Cephalo", tc);
}
