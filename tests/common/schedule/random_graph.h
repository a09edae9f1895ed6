/*
 * Random legal graphs, and an oracle that knows nothing of the linker's rules: it unrolls two iterations, closes the
 * order over edges and FIFO lanes, and checks that every two conflicting accesses of a residency are ordered.
 */
#ifndef TESTS_SCHEDULE_RANDOM_GRAPH_H
#define TESTS_SCHEDULE_RANDOM_GRAPH_H

#include "common/base/rng.h"
#include "tests/common/schedule/sample.h"

enum { RANDOM_OPS = 60, RANDOM_TENSORS = 6, RANDOM_PLACES = RANDOM_TENSORS * 16 };

struct random_graph {
    struct ht_schedule *s;
    uint64_t seed, drawn;
    int32_t work, validate;         /* validate: -1 while there is none */
    bool present[2][RANDOM_PLACES]; /* by branch; a residency is tensor * n_spaces + space */
    bool resident[RANDOM_PLACES];
    int32_t touched_by[RANDOM_PLACES]; /* issue group that touched it last, and whether it wrote */
    bool wrote[RANDOM_PLACES];
};

static inline int32_t draw(struct random_graph *g, int32_t n)
{
    return (int32_t)ht_random_below(g->seed, g->drawn++, (uint64_t)n);
}

static inline int32_t random_place(const struct random_graph *g, int32_t tensor, enum ht_tier tier, int32_t rank)
{
    return tensor * ht_n_spaces(g->s) + ht_space(g->s, tier, rank);
}

/* Adds one effect that is legal in every branch in which the op is active; returns false if the draw was not. */
static inline bool random_effect(struct random_graph *g, int32_t op, int32_t step, enum ht_when when)
{
    int32_t tensor = draw(g, g->s->n_tensors);
    enum ht_tier tier = (enum ht_tier)draw(g, 3);
    int32_t place = random_place(g, tensor, tier, ht_op_rank(g->s, op));
    int first = when == HT_WHEN_BAD ? 1 : 0, last = when == HT_WHEN_OK || g->validate < 0 ? 0 : 1;
    if (last < first) last = first;
    if (g->present[first][place] != g->present[last][place]) return false;
    static const unsigned there[] = {HT_NEED,
                                     HT_NEED,
                                     HT_NEED,
                                     HT_UPDATE,
                                     HT_NEED | HT_UPDATE,
                                     HT_NEED | HT_RELEASE,
                                     HT_RELEASE,
                                     HT_UPDATE | HT_RELEASE};
    static const unsigned gone[] = {HT_PRODUCE, HT_PRODUCE, HT_PRODUCE | HT_RELEASE};
    unsigned flags =
        g->present[first][place] ? there[draw(g, (int32_t)HT_COUNT(there))] : gone[draw(g, (int32_t)HT_COUNT(gone))];
    bool writes = flags != HT_NEED;
    if (g->touched_by[place] == step + 1 && (writes || g->wrote[place])) return false;
    for (int64_t e = g->s->effects_begin[op]; e < g->s->effects_begin[op + 1]; e++)
        if (g->s->effects[e].tensor == tensor && g->s->effects[e].tier == tier) return false;
    g->touched_by[place] = step + 1;
    g->wrote[place] = writes;
    ht_op_effect(g->s, tensor, tier, flags);
    for (int b = first; b <= last; b++) g->present[b][place] = !(flags & HT_RELEASE);
    if (g->validate < 0) g->present[1][place] = g->present[0][place];
    return true;
}

static inline int32_t random_op(struct random_graph *g, int32_t lane, enum ht_when when)
{
    struct ht_label none = {.unit = -1, .micro_batch = -1};
    int32_t op = ht_add_op(g->s, HT_OP_ACCUMULATE, lane, none, g->work);
    ht_op_when(g->s, when);
    ht_op_priority(g->s, draw(g, 5));
    if (when != HT_ALWAYS) ht_op_after(g->s, g->validate);
    return op;
}

static inline enum ht_when random_when(struct random_graph *g)
{
    return g->validate < 0 || draw(g, 2) ? HT_ALWAYS : draw(g, 2) ? HT_WHEN_OK : HT_WHEN_BAD;
}

/* One op on a FIFO lane of every rank: lane 0 of a rank is one. */
static inline void random_group(struct random_graph *g, int32_t match, int32_t lanes_per_rank)
{
    int32_t first = g->s->n_ops;
    enum ht_when when = random_when(g);
    for (int32_t r = 0; r < g->s->n_ranks; r++) {
        int32_t op = random_op(g, r * lanes_per_rank, when);
        ht_op_match(g->s, match);
        for (int k = 0; k < 2; k++) random_effect(g, op, first, when);
    }
}

/* Brings every residency back to its state at the start. */
static inline void random_close(struct random_graph *g, int32_t lanes_per_rank)
{
    struct ht_schedule *s = g->s;
    for (int32_t t = 0; t < s->n_tensors; t++)
        for (int tier = 0; tier < 3; tier++)
            for (int32_t r = 0; r < s->n_ranks; r++) {
                int32_t place = random_place(g, t, (enum ht_tier)tier, r);
                bool wrong[2] = {g->present[0][place] != g->resident[place],
                                 g->present[1][place] != g->resident[place]};
                if (!wrong[0] && !wrong[1]) continue;
                enum ht_when when = wrong[0] && wrong[1] ? HT_ALWAYS : wrong[0] ? HT_WHEN_OK : HT_WHEN_BAD;
                random_op(g, r * lanes_per_rank + draw(g, lanes_per_rank), when);
                ht_op_effect(s, t, (enum ht_tier)tier, g->resident[place] ? HT_PRODUCE : HT_RELEASE);
                g->present[0][place] = g->present[1][place] = g->resident[place];
            }
}

/* Makes a random graph, unlinked. */
static inline struct ht_schedule *random_build(uint64_t seed)
{
    struct random_graph g = {.seed = seed, .validate = -1};
    int32_t n_ranks = 1 + draw(&g, 3), lanes_per_rank = 1 + draw(&g, 3), n_nodes = 1 + draw(&g, n_ranks);
    int32_t nodes[3];
    for (int32_t r = 0; r < n_ranks; r++) nodes[r] = r % n_nodes;
    struct ht_schedule *s = g.s = ht_schedule_create("random", n_ranks, n_nodes, nodes);
    struct ht_work work = {.custom = "w"};
    struct ht_label none = {.unit = -1, .micro_batch = -1};
    g.work = ht_add_work(s, &work);
    for (int32_t r = 0; r < n_ranks; r++)
        for (int32_t i = 0; i < lanes_per_rank; i++) {
            char name[16];
            snprintf(name, sizeof name, "l%d", i);
            ht_add_lane(s, name, draw(&g, 2) ? HT_LANE_COMPUTE : HT_LANE_HOST, r,
                        i == 0 || draw(&g, 2) ? HT_FIFO : HT_PRIORITY);
        }
    int32_t n_tensors = 1 + draw(&g, RANDOM_TENSORS);
    for (int32_t t = 0; t < n_tensors; t++) {
        struct ht_tensor row = {.class = HT_STAGING, .label = none, .bytes = draw(&g, 3000), .rank = draw(&g, n_ranks)};
        ht_add_tensor(s, row);
        for (int k = 0; k < 2; k++) {
            enum ht_tier tier = (enum ht_tier)draw(&g, 3);
            int32_t rank = draw(&g, n_ranks), place = random_place(&g, t, tier, rank);
            if (g.resident[place] || draw(&g, 3) == 0) continue;
            ht_add_resident(s, t, tier, rank);
            g.resident[place] = g.present[0][place] = g.present[1][place] = true;
        }
    }
    int32_t n = 3 + draw(&g, 25), control_at = draw(&g, 3) ? -1 : draw(&g, n);
    for (int32_t i = 0; i < n; i++) {
        if (i == control_at) g.validate = ht_add_op(s, HT_OP_VALIDATE, draw(&g, s->n_lanes), none, g.work);
        if (n_ranks > 1 && draw(&g, 6) == 0) {
            random_group(&g, i, lanes_per_rank);
            continue;
        }
        enum ht_when when = random_when(&g);
        int32_t op = random_op(&g, draw(&g, s->n_lanes), when);
        for (int k = draw(&g, 5); k-- > 0;) random_effect(&g, op, op, when);
    }
    random_close(&g, lanes_per_rank);
    return s;
}

/* ---- the oracle ---- */

struct order {
    int32_t n;             /* ops of one iteration; node = iteration * n + op */
    unsigned char *before; /* (2n, 2n): before[a * 2n + b]: b is done before a starts */
};

static inline bool oracle_active(const struct ht_op *op, enum ht_when branch)
{
    return op->when == HT_ALWAYS || op->when == branch;
}

static inline void order_add(struct order *o, int32_t node, int32_t earlier)
{
    size_t w = 2 * (size_t)o->n;
    for (size_t k = 0; k < w; k++) o->before[(size_t)node * w + k] |= o->before[(size_t)earlier * w + k];
    o->before[(size_t)node * w + (size_t)earlier] = 1;
}

/* Two iterations, which take the given branches. Ops that are skipped order nothing. */
static inline void order_init(struct order *o, const struct ht_schedule *s, const enum ht_when branch[2])
{
    o->n = s->n_ops;
    o->before = ht_alloc(4 * (size_t)o->n * (size_t)o->n);
    int32_t *last = HT_NEW_ARRAY(int32_t, s->n_lanes); /* node + 1 */
    for (int32_t it = 0; it < 2; it++)
        for (int32_t i = 0; i < s->n_ops; i++) {
            int32_t node = it * o->n + i, lane = s->ops[i].lane;
            if (!oracle_active(&s->ops[i], branch[it])) continue;
            for (int64_t k = s->deps_begin[i]; k < s->deps_begin[i + 1]; k++)
                if (oracle_active(&s->ops[s->deps[k]], branch[it])) order_add(o, node, it * o->n + s->deps[k]);
            for (int64_t k = s->prev_begin[i]; k < s->prev_begin[i + 1] && it == 1; k++)
                if (oracle_active(&s->ops[s->prev[k]], branch[0])) order_add(o, node, s->prev[k]);
            if (s->lanes[lane].order == HT_FIFO) {
                if (last[lane] > 0) order_add(o, node, last[lane] - 1);
                last[lane] = node + 1;
            }
        }
    free(last);
}

struct oracle_access {
    int32_t node, tensor, space, instance;
    bool writes;
};

/* Returns true if all conflicting accesses are ordered. */
static inline bool oracle_safe_in(const struct ht_schedule *s, const enum ht_when branch[2])
{
    struct order o;
    struct oracle_access *list = NULL;
    int64_t n = 0;
    size_t cap = 0;
    bool safe = true;
    order_init(&o, s, branch);
    for (int32_t it = 0; it < 2; it++)
        for (int32_t i = 0; i < s->n_ops; i++)
            for (int64_t e = s->effects_begin[i]; e < s->effects_begin[i + 1]; e++) {
                if (!oracle_active(&s->ops[i], branch[it])) continue;
                struct oracle_access a = {.node = it * s->n_ops + i,
                                          .tensor = s->effects[e].tensor,
                                          .instance = it,
                                          .writes = s->effects[e].flags != HT_NEED};
                a.space = ht_space(s, (enum ht_tier)s->effects[e].tier, ht_op_rank(s, i));
                for (int32_t r = 0; r < s->n_residents; r++)
                    if (s->residents[r].tensor == a.tensor &&
                        ht_space(s, s->residents[r].tier, s->residents[r].rank) == a.space)
                        a.instance = 0;
                HT_PUSH(list, n, cap, a);
            }
    size_t w = 2 * (size_t)o.n;
    for (int64_t i = 0; i < n && safe; i++)
        for (int64_t k = i + 1; k < n && safe; k++) {
            const struct oracle_access *a = &list[i], *b = &list[k];
            if (a->tensor != b->tensor || a->space != b->space || a->instance != b->instance) continue;
            if (!a->writes && !b->writes) continue;
            safe = o.before[(size_t)b->node * w + (size_t)a->node];
        }
    free(list);
    free(o.before);
    return safe;
}

static inline bool oracle_safe(const struct ht_schedule *s)
{
    for (int k = 0; k < 4; k++) {
        const enum ht_when branch[2] = {k & 1 ? HT_WHEN_BAD : HT_WHEN_OK, k & 2 ? HT_WHEN_BAD : HT_WHEN_OK};
        if (!oracle_safe_in(s, branch)) return false;
    }
    return true;
}

#endif
