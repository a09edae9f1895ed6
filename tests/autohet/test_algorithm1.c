/* Algorithm 1: the paper's plans by hand, and a second implementation of all of it that tries everything. */
#include "autohet/algorithm1.h"

#include "common/base/array.h"
#include "tests/autohet/groupings.h"
#include "tests/support/draw.h"
#include "tests/support/sanitized.h"
#include "tests/support/suite.h"

#include <stdlib.h>

enum { CLUSTERS = SANITIZED ? 40 : 400, MOST_NODES = 3, MOST_KINDS = 2, SORTS = 2 };

/* ---- by hand --------------------------------------------------------------------------------------------------- */

/* A node a type, GPUs of 80 GB, layers of 1/g, 107 GB a model, 32 layers, K_tot = 16, messages and rings for nothing. */
struct cluster {
    struct autohet_problem p;
    int32_t gpus[MOST_NODES * MOST_KINDS];
    int32_t sort_of[MOST_NODES];
    struct autohet_path inside[SORTS], between[SORTS * SORTS];
    struct autohet_degree degrees[4];
};

static void two_nodes(struct cluster *c, int32_t a, double a_power, int32_t b, double b_power)
{
    *c = (struct cluster){.gpus = {a, 0, 0, b}};
    c->p = (struct autohet_problem){.n_kinds = 2,
                                    .n_nodes = 2,
                                    .n_layers = 32,
                                    .micro_batches = 16,
                                    .objective = AUTOHET_EQ_1,
                                    .node_gpus = c->gpus,
                                    .n_sorts = SORTS,
                                    .sort_of = c->sort_of,
                                    .inside = c->inside,
                                    .between = c->between,
                                    .degrees = c->degrees};
    c->inside[0].bytes_per_s = c->between[0].bytes_per_s = INFINITY;
    for (int32_t tp = 1; tp <= 4; tp++) {
        struct autohet_degree *d = &c->degrees[c->p.n_degrees];
        if (a % tp || b % tp) continue;
        *d = (struct autohet_degree){.tp = tp, .kind_of = {0, 1}, .sizes = {.group_bytes = 107e9}};
        for (int t = 0; t < 2; t++) {
            d->types[t].unit_power = tp * (t ? b_power : a_power);
            d->types[t].memory_bytes = INT64_C(80000000000);
            for (int k = 0; k < AUTOHET_POWERS; k++) d->types[t].layers_s[k] = (1 << k) / d->types[t].unit_power;
        }
        c->p.n_degrees++;
    }
}

static const struct autohet_candidate *find(const struct autohet_candidates *all, int32_t tp, int32_t groups)
{
    for (int32_t i = 0; i < all->n; i++)
        if (all->list[i].degree->tp == tp && all->list[i].n_groups == groups) return &all->list[i];
    return NULL;
}

static void check_blocks(const struct autohet_candidate *c, const int64_t *want)
{
    for (int32_t i = 0; i < c->n_stages; i++) ck_assert_int_eq(c->blocks[i], want[i]);
}

/*
 * 4A100+2H800. tp 2, D = 2: {H800 x 2} takes 32 / 4 = 8 a micro-batch, 8 of them 64; {A100 x 2, A100 x 2} takes (8, 8), 7 *
 * 8 + 16 = 72. D = 1: three stages of 8, 8, 16 layers, 15 * 4 + 12 = 72: a tie, with two boundaries instead of one. tp 1:
 * at best 80. D = 3: {H800 x 2} has 6 micro-batches, the others 5 of 16: 80, and only with `uneven`.
 */
START_TEST(four_a100_two_h800)
{
    struct cluster c;
    struct autohet_candidates all;
    two_nodes(&c, 4, 1, 2, 2);
    c.p.uneven = true;
    ck_assert_int_eq(autohet_algorithm1(&c.p, NULL, &all), HT_OK);
    const struct autohet_candidate *best = &all.list[0];
    ck_assert(best->degree->tp == 2 && best->n_groups == 2 && best->stages[0] == 1 && best->stages[1] == 2);
    ck_assert_double_eq_tol(autohet_estimate_s(best), 72, 1e-9);
    check_blocks(best, (const int64_t[]){32, 16, 16});
    ck_assert(best->places[0].type == 1 && best->places[0].node == 1 && best->places[1].node == 0);
    ck_assert_double_eq_tol(autohet_estimate_s(find(&all, 2, 1)), 72, 1e-9);
    ck_assert_double_eq_tol(autohet_estimate_s(find(&all, 2, 3)), 80, 1e-9);
    double least = INFINITY;
    for (int32_t d = 1; d <= 6; d++)
        if (find(&all, 1, d)) least = fmin(least, autohet_estimate_s(find(&all, 1, d)));
    ck_assert_double_eq_tol(least, 80, 1e-9);
    autohet_candidates_free(&all);
}
END_TEST

/* 1A100+4H20, H20 148/312: D = 2. {H20, A100} (10, 22): 22 + 10 / .4744 = 43.08, slowest 22: 7 * 22 + 43.08 = 197.08.
   {3 H20} (11, 11, 10): 32 / .4744 + 7 * 11 / .4744 = 67.46 + 162.32 = 229.78, against 234.2 of D = 1. Weakest first. */
START_TEST(one_a100_four_h20)
{
    struct cluster c;
    struct autohet_candidates all;
    two_nodes(&c, 4, 148 / 312.0, 1, 1);
    ck_assert_int_eq(autohet_algorithm1(&c.p, NULL, &all), HT_OK);
    const struct autohet_candidate *best = &all.list[0];
    ck_assert(best->degree->tp == 1 && best->n_groups == 2 && best->stages[0] == 2 && best->stages[1] == 3);
    ck_assert_double_eq_tol(autohet_estimate_s(best), 229.78, 0.005);
    check_blocks(best, (const int64_t[]){10, 22, 11, 11, 10});
    ck_assert(best->places[0].type == 0 && best->places[1].type == 1);
    ck_assert_double_eq_tol(autohet_estimate_s(find(&all, 1, 1)), 234.2, 0.05);
    autohet_candidates_free(&all);
}
END_TEST

/* 5A100+3H800: D = 2, {A,H,H} (6, 13, 13): 6 + 13 + 7 * 6.5 = 64.5; {A,A,A,A,H} (6, 6, 6, 2, 12) or as short: 20 + 6 + 7 * 6
   = 68. D = 1 has 68, too, with 7 boundaries instead of 6. D = 3 does not divide K_tot. With 6, 5 and 5 micro-batches it would
   have 65: {A,A,H} (8, 8, 16), 16 + 8 + 5 * 8 = 64, (8, 8, 16) with 5, and {A,H} (10, 22), 4 * 11 + 21 = 65. */
START_TEST(five_a100_three_h800)
{
    struct cluster c;
    struct autohet_candidates all;
    two_nodes(&c, 5, 1, 3, 2);
    ck_assert_int_eq(autohet_algorithm1(&c.p, NULL, &all), HT_OK);
    const struct autohet_candidate *best = &all.list[0];
    ck_assert(best->degree->tp == 1 && best->n_groups == 2 && best->stages[0] == 3 && best->stages[1] == 5);
    ck_assert_double_eq_tol(autohet_estimate_s(best), 68, 1e-9);
    check_blocks(best, (const int64_t[]){6, 13, 13, 6, 6, 6, 2, 12});
    ck_assert_double_eq_tol(autohet_estimate_s(find(&all, 1, 1)), 68, 1e-9);
    ck_assert(!find(&all, 1, 3));
    autohet_candidates_free(&all);
    c.p.uneven = true;
    ck_assert_int_eq(autohet_algorithm1(&c.p, NULL, &all), HT_OK);
    ck_assert_double_eq_tol(autohet_estimate_s(find(&all, 1, 3)), 65, 1e-9);
    autohet_candidates_free(&all);
}
END_TEST

/* ---- a second implementation ----------------------------------------------------------------------------------- */

enum { MOST_STAGES = 8 };

/* A GPU's share of a plan: tp of them work as one. */
struct plain_stage {
    int32_t type, node, unit;
    int64_t blocks;
};
struct plain_group {
    struct plain_stage stages[MOST_STAGES];
    int32_t n;
    int64_t k;
    double power;
};
struct plain_plan {
    struct plain_group groups[MOST_GROUPS];
    int32_t n, tp, stages;
    double s;
};

struct plain {
    const struct autohet_problem *p;
    const struct autohet_degree *d;
    struct plain_plan now;
    int32_t taken[MOST_NODES][MOST_KINDS], wants[MOST_GROUPS][MOST_KINDS];
};

static int32_t there(const struct plain *x, int32_t node, int32_t type)
{
    return x->p->node_gpus[node * x->p->n_kinds + x->d->kind_of[type]] / x->d->tp;
}

static void put(struct plain *x, int32_t j, int32_t node, int32_t type)
{
    struct plain_group *g = &x->now.groups[j];
    g->stages[g->n++] = (struct plain_stage){type, node, x->taken[node][type]++, 0};
    x->wants[j][type]--;
}

/* Sec. III-C: one type after the other, as long as all groups want it and one node can serve them all. */
static void plain_map(struct plain *x)
{
    bool stuck = false;
    for (int32_t type = 0; type < x->p->n_kinds && !stuck; type++)
        for (;;) {
            int32_t wanting = 0, from = -1;
            for (int32_t j = 0; j < x->now.n; j++) wanting += x->wants[j][type] > 0;
            for (int32_t node = x->p->n_nodes - 1; node >= 0; node--)
                if (there(x, node, type) - x->taken[node][type] >= x->now.n) from = node;
            stuck = wanting > 0 && (wanting < x->now.n || from < 0);
            if (wanting < x->now.n || from < 0) break;
            for (int32_t j = 0; j < x->now.n; j++) put(x, j, from, type);
        }
    bool done[MOST_GROUPS] = {false};
    for (int32_t i = 0; i < x->now.n; i++) {
        int32_t weakest = -1;
        for (int32_t j = 0; j < x->now.n; j++)
            if (!done[j] && (weakest < 0 || x->now.groups[j].power < x->now.groups[weakest].power)) weakest = j;
        done[weakest] = true;
        for (int32_t type = 0; type < x->p->n_kinds; type++)
            for (int32_t node = 0; node < x->p->n_nodes; node++)
                while (x->wants[weakest][type] > 0 && x->taken[node][type] < there(x, node, type))
                    put(x, weakest, node, type);
    }
}

static double plain_path_s(const struct plain *x, int32_t a, int32_t b)
{
    const struct autohet_problem *p = x->p;
    const struct autohet_path *q =
        a == b ? &p->inside[p->sort_of[a]] : &p->between[p->sort_of[a] * SORTS + p->sort_of[b]];
    return q->latency_s + x->p->boundary_bytes * (a == b ? 1 : x->d->tp) / q->bytes_per_s;
}

/* Time of a stage with so many layers: eq. (5), ends, messages. */
static double plain_stage_s(const struct plain *x, const struct plain_group *g, int32_t q, int64_t layers)
{
    const struct autohet_type_profile *t = &x->d->types[g->stages[q].type];
    double s = (q == 0 ? t->first_s : 0) + (q == g->n - 1 ? t->last_s : 0);
    for (int k = 0; k < AUTOHET_POWERS; k++)
        if (layers & 1 << k) s += t->layers_s[k];
    if (q > 0) s += plain_path_s(x, g->stages[q].node, g->stages[q - 1].node);
    if (q < g->n - 1) s += plain_path_s(x, g->stages[q].node, g->stages[q + 1].node);
    return s;
}

static bool plain_fits(const struct plain *x, const struct plain_group *g, int32_t q, int64_t layers)
{
    const struct autohet_sizes *z = &x->d->sizes;
    double flight = fmin((double)g->k, g->n - q);
    double bytes = (double)layers * (z->layer.layer_bytes + flight * z->layer.activation_bytes) + z->layer.fixed_bytes +
                   flight * z->layer.fixed_activation_bytes;
    if (q == 0) bytes += z->first_bytes + flight * z->first_activation_bytes;
    if (q == g->n - 1) bytes += z->last_bytes + flight * z->last_activation_bytes;
    return bytes <= (double)x->d->types[g->stages[q].type].memory_bytes * (1 + 1e-12);
}

/* Tries all divisions of the layers from stage q on. *best: by the slowest stage if eq4, then by eq. (1). */
static void plain_divide(const struct plain *x, struct plain_group *g, int32_t q, int64_t left, double *worst,
                         double *least)
{
    if (q == g->n) {
        double sum = 0, slowest = 0;
        if (left) return;
        for (int32_t i = 0; i < g->n; i++) {
            double s = plain_stage_s(x, g, i, g->stages[i].blocks);
            sum += s;
            slowest = fmax(slowest, s);
        }
        double s = sum + (double)(g->k - 1) * slowest;
        bool eq4 = x->p->objective == AUTOHET_EQ_4;
        if (eq4 && slowest > *worst * (1 + 1e-12)) return;
        if (eq4 && slowest < *worst * (1 - 1e-12)) *worst = slowest, *least = INFINITY;
        *least = fmin(*least, s);
        return;
    }
    for (int64_t l = 1; l <= left; l++) {
        g->stages[q].blocks = l;
        if (plain_fits(x, g, q, l)) plain_divide(x, g, q + 1, left - l, worst, least);
    }
}

/* Time by eq. (1) without T_sync; INFINITY if the layers do not fit. */
static double plain_passes_s(struct plain *x)
{
    double longest = 0;
    for (int32_t j = 0; j < x->now.n; j++) {
        double worst = INFINITY, least = INFINITY;
        plain_divide(x, &x->now.groups[j], 0, x->p->n_layers, &worst, &least);
        longest = fmax(longest, least);
    }
    return longest;
}

static void plain_groups(struct plain *x, int32_t n, double *s)
{
    struct autohet_grouping_problem gp = {.n_types = x->p->n_kinds, .n_groups = n, .max_stages = x->p->n_layers};
    gp.micro_batches =
        x->p->grouping_micro_batches > 0 ? x->p->grouping_micro_batches : (double)x->p->micro_batches / n;
    gp.min_bytes = x->d->sizes.group_bytes;
    for (int32_t t = 0; t < gp.n_types; t++) {
        gp.types[t] = (struct autohet_unit_type){x->d->types[t].unit_power, x->d->types[t].memory_bytes * x->d->tp, 0};
        for (int32_t node = 0; node < x->p->n_nodes; node++) gp.types[t].count += there(x, node, t);
    }
    struct exhaustive all = {.p = &gp};
    give(&all, 0, 0, 0);
    *s = INFINITY;
    if (all.z <= 0) return;
    x->now = (struct plain_plan){.n = n, .tp = x->d->tp};
    memset(x->taken, 0, sizeof(x->taken));
    for (int32_t j = 0; j < n; j++)
        for (int32_t t = 0; t < gp.n_types; t++) {
            x->wants[j][t] = all.best[j * gp.n_types + t];
            x->now.groups[j].power += x->wants[j][t] * x->d->types[t].unit_power;
        }
    bool more[MOST_GROUPS] = {false};
    for (int64_t i = 0; i < x->p->micro_batches % n; i++) {
        int32_t most = -1;
        for (int32_t j = 0; j < n; j++)
            if (!more[j] && (most < 0 || x->now.groups[j].power > x->now.groups[most].power)) most = j;
        more[most] = true;
    }
    for (int32_t j = 0; j < n; j++) x->now.groups[j].k = x->p->micro_batches / n + more[j];
    plain_map(x);
    *s = plain_passes_s(x);
}

static void draw_cluster(struct draw *d, struct cluster *c)
{
    *c = (struct cluster){0};
    c->p = (struct autohet_problem){.uneven = below(d, 2),
                                    .n_kinds = (int32_t)pick(d, 1, MOST_KINDS),
                                    .n_nodes = (int32_t)pick(d, 1, MOST_NODES),
                                    .n_layers = (int32_t)pick(d, 3, 9),
                                    .micro_batches = pick(d, 4, 12),
                                    .n_degrees = 2,
                                    .grouping_micro_batches = below(d, 3) ? 0 : 8,
                                    .objective = below(d, 2) ? AUTOHET_EQ_1 : AUTOHET_EQ_4,
                                    .node_gpus = c->gpus,
                                    .n_sorts = SORTS,
                                    .sort_of = c->sort_of,
                                    .inside = c->inside,
                                    .between = c->between,
                                    .degrees = c->degrees,
                                    .boundary_bytes = 10};
    for (int i = 0, left = 6; i < c->p.n_nodes * c->p.n_kinds; i++) { /* at most 6 + 1 GPUs; even, for tp 2 */
        c->gpus[i] = i ? 2 * below(d, 2) : 2;
        left -= c->gpus[i];
        if (left < 0) c->gpus[i] = 0;
    }
    for (int i = 0; i < MOST_NODES; i++) c->sort_of[i] = i % SORTS;
    for (int k = 0; k < SORTS; k++) c->inside[k] = (struct autohet_path){1000 + 100 * k, 0.01};
    for (int k = 0; k < SORTS * SORTS; k++) c->between[k] = (struct autohet_path){100 + 10 * k, 0.02};
    double speed = (double)pick(d, 1, 3);
    for (int32_t i = 0; i < 2; i++) {
        struct autohet_degree *g = &c->degrees[i];
        *g = (struct autohet_degree){.tp = i + 1, .kind_of = {0, 1}};
        g->sizes = (struct autohet_sizes){.layer = {10.0 / g->tp, 4.0 / g->tp, 3, 1},
                                          .first_bytes = 5,
                                          .last_bytes = 6,
                                          .last_activation_bytes = 2,
                                          .group_bytes = 10.0 * c->p.n_layers};
        for (int t = 0; t < 2; t++) {
            double layer = (t ? 1 : speed) / g->tp + 0.05 * i;
            g->types[t] = (struct autohet_type_profile){
                .unit_power = 1 / layer, .memory_bytes = 60 + 20 * (int64_t)t, .first_s = 0.1, .last_s = 0.7 / g->tp};
            for (int k = 0; k < AUTOHET_POWERS; k++) g->types[t].layers_s[k] = layer * (1 << k);
        }
    }
}

/* Every D of every tp has the same time in both, and the order is by that time. */
START_TEST(as_second_implementation)
{
    struct draw d = {.seed = 35};
    int plans = 0, none = 0;
    for (int i = 0; i < CLUSTERS; i++) {
        struct cluster c;
        struct autohet_candidates all;
        draw_cluster(&d, &c);
        bool feasible = !autohet_algorithm1(&c.p, NULL, &all);
        int32_t found = 0;
        for (int32_t g = 0; g < c.p.n_degrees; g++)
            for (int32_t n = 1; n <= MOST_GROUPS && n <= c.p.micro_batches; n++) {
                if (!c.p.uneven && c.p.micro_batches % n) continue;
                struct plain x = {.p = &c.p, .d = &c.degrees[g]};
                const struct autohet_candidate *own = find(&all, c.degrees[g].tp, n);
                double s;
                plain_groups(&x, n, &s);
                ck_assert_msg(isfinite(s) == (own != NULL), "%d: tp %d, D %d: %g", i, c.degrees[g].tp, n, s);
                if (!own) continue;
                found++;
                ck_assert_msg(fabs(own->passes_s - s) < 1e-9, "%d: tp %d, D %d: %g, plain %g", i, c.degrees[g].tp, n,
                              own->passes_s, s);
                for (int32_t j = 0, at = 0; j < n; at += own->stages[j++])
                    for (int32_t q = 0; q < own->stages[j]; q++) {
                        const struct plain_stage *want = &x.now.groups[j].stages[q];
                        const struct autohet_place *have = &own->places[at + q];
                        ck_assert(want->type == have->type && want->node == have->node && want->unit == have->unit);
                    }
            }
        ck_assert_int_eq(found, all.n);
        for (int32_t j = 1; j < all.n; j++)
            ck_assert_double_le(autohet_estimate_s(&all.list[j - 1]), autohet_estimate_s(&all.list[j]) * (1 + 1e-8));
        plans += found;
        none += !feasible;
        autohet_candidates_free(&all);
    }
    ck_assert_int_ge(plans, 2 * CLUSTERS);
    ck_assert_int_ge(none, 1);
}
END_TEST

/*
 * T_sync. Two groups of one and two stages, 4 layers of 100 bytes, embedding 30, head 50. Group 0 is on node 0; of group 1
 * the first two layers are on node 0, the others on node 1, with 10 bytes/s between them. D = 2: each ring carries its
 * bytes once. The rings of layers 3 and 4 and of the head leave the node, of both parts: 2 (200 + 50) / 10 = 50. All on one
 * node: the fullest GPU has 480 at 1000 bytes/s.
 */
START_TEST(sync)
{
    struct cluster c;
    two_nodes(&c, 4, 1, 2, 2);
    c.p.n_layers = 4;
    c.degrees[1].sizes.layer_gradient_bytes = 100;
    c.degrees[1].sizes.first_gradient_bytes = 30;
    c.degrees[1].sizes.last_gradient_bytes = 50;
    c.inside[0].bytes_per_s = 1000;
    c.between[0].bytes_per_s = 10;
    int32_t stages[] = {1, 2};
    int64_t k[] = {8, 8}, blocks[] = {4, 2, 2};
    struct autohet_place places[] = {{0, 0, 0}, {0, 0, 1}, {1, 1, 0}};
    struct autohet_candidate plan = {.degree = &c.degrees[1],
                                     .n_groups = 2,
                                     .n_stages = 3,
                                     .stages = stages,
                                     .micro_batches = k,
                                     .places = places,
                                     .blocks = blocks};
    autohet_estimate(&c.p, &plan);
    ck_assert_double_eq_tol(plan.sync_s, 50, 1e-9);
    places[2].node = 0;
    autohet_estimate(&c.p, &plan);
    ck_assert_double_eq_tol(plan.sync_s, 0.48, 1e-9);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, four_a100_two_h800);
    tcase_add_test(t, one_a100_four_h20);
    tcase_add_test(t, five_a100_three_h800);
    tcase_add_test(t, as_second_implementation);
    tcase_add_test(t, sync);
}

int main(void)
{
    return run_suite("autohet algorithm 1", add);
}
