/*
 * Algorithm 1, rebuilt from Sec. III:
 *
 *     for every tp that divides the GPUs of every node                  line 2
 *         cut each node's GPUs into units of tp
 *         for D = 1, 2, ..                                              lines 3 to 8: group
 *             map groups to nodes and stages                            line 10
 *             partition the layers over each group's stages             line 12
 *     take the plan of the least time by eq. (1)                        lines 14 to 16
 *
 * Each D keeps its best grouping, whatever eq. (3a) says of D Z: eq. (1) decides between them. (With `by_power` D Z does.) Of equal times fewer
 * boundaries between stages come first, then more groups, then a smaller tp [ours].
 *
 * K. "Without modifying the batch size" (Sec. III-B): every group has K_tot / D micro-batches, so D divides K_tot. With
 * `uneven` it need not: then the strongest groups have one more [ours].
 */
#include "autohet/algorithm1.h"

#include "common/base/array.h"
#include "common/schedule/schedule.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void free_candidate(struct autohet_candidate *c)
{
    free(c->stages);
    free(c->micro_batches);
    free(c->places);
    free(c->blocks);
}

void autohet_candidates_free(struct autohet_candidates *c)
{
    for (int32_t i = 0; i < c->n; i++) free_candidate(&c->list[i]);
    free(c->list);
    *c = (struct autohet_candidates){0};
}

/* Makes the grouping problem of a degree and D. Returns the units. */
static int32_t grouping_problem(const struct autohet_problem *p, const struct autohet_degree *d, int32_t n_groups,
                                struct autohet_grouping_problem *out)
{
    int32_t units = 0;
    *out = (struct autohet_grouping_problem){.n_types = p->n_kinds,
                                             .n_groups = n_groups,
                                             .micro_batches = (double)p->micro_batches / n_groups,
                                             .min_bytes = d->sizes.group_bytes + d->sizes.shared.group_bytes / n_groups,
                                             .max_stages = p->n_layers};
    if (p->grouping_micro_batches > 0) out->micro_batches = p->grouping_micro_batches;
    for (int32_t t = 0; t < p->n_kinds; t++) {
        struct autohet_unit_type *type = &out->types[t];
        *type = (struct autohet_unit_type){d->types[t].unit_power, d->types[t].memory_bytes * d->tp, 0};
        for (int32_t node = 0; node < p->n_nodes; node++)
            type->count += p->node_gpus[node * p->n_kinds + d->kind_of[t]] / d->tp;
        units += type->count;
    }
    return units;
}

/* Sets the groups' micro-batches. */
static void divide_batch(const struct autohet_problem *p, const struct autohet_grouping *g, struct autohet_candidate *c)
{
    int64_t more = p->micro_batches % g->n_groups;
    double *power = HT_NEW_ARRAY(double, g->n_groups);
    for (int32_t j = 0; j < g->n_groups; j++) {
        c->micro_batches[j] = p->micro_batches / g->n_groups;
        for (int32_t t = 0; t < g->n_types; t++) power[j] += autohet_count(g, j, t) * c->degree->types[t].unit_power;
    }
    for (; more > 0; more--) {
        int32_t strongest = 0;
        for (int32_t j = 1; j < g->n_groups; j++)
            if (power[j] > power[strongest]) strongest = j;
        c->micro_batches[strongest]++;
        power[strongest] = -1;
    }
    free(power);
}

static void map(const struct autohet_problem *p, const struct autohet_grouping *g, struct autohet_candidate *c)
{
    double power[AUTOHET_MAX_TYPES];
    int32_t *node_units = HT_NEW_ARRAY(int32_t, p->n_nodes * p->n_kinds);
    for (int32_t t = 0; t < p->n_kinds; t++) {
        power[t] = c->degree->types[t].unit_power;
        for (int32_t node = 0; node < p->n_nodes; node++)
            node_units[node * p->n_kinds + t] = p->node_gpus[node * p->n_kinds + c->degree->kind_of[t]] / c->degree->tp;
    }
    if (p->in_order)
        autohet_map_in_order(g, p->n_nodes, node_units, c->places);
    else
        autohet_map(g, power, p->n_nodes, node_units, c->places);
    free(node_units);
}

struct autohet_memory autohet_stage_memory(const struct autohet_sizes *sizes, int32_t groups, int32_t stages,
                                           int32_t stage)
{
    struct autohet_memory m = sizes->layer;
    m.layer_bytes += sizes->shared.layer_bytes / groups;
    if (stage == 0) {
        m.fixed_bytes += sizes->first_bytes + sizes->shared.first_bytes / groups;
        m.fixed_activation_bytes += sizes->first_activation_bytes;
    }
    if (stage + 1 == stages) {
        m.fixed_bytes += sizes->last_bytes + sizes->shared.last_bytes / groups;
        m.fixed_activation_bytes += sizes->last_activation_bytes;
    }
    return m;
}

double autohet_plan_bytes(const struct autohet_candidate *c)
{
    double most = 0;
    for (int32_t j = 0, at = 0; j < c->n_groups; at += c->stages[j++])
        for (int32_t q = 0; q < c->stages[j]; q++) {
            struct autohet_memory m = autohet_stage_memory(&c->degree->sizes, c->n_groups, c->stages[j], q);
            most = fmax(most, autohet_stage_bytes(&m, c->blocks[at + q], c->stages[j], q, (double)c->micro_batches[j]));
        }
    return most;
}

/* Returns the layers that fit a stage by (4c). */
static int32_t most_layers(const struct autohet_candidate *c, int32_t type, int32_t stages, int32_t q, double k)
{
    struct autohet_memory m = autohet_stage_memory(&c->degree->sizes, c->n_groups, stages, q);
    return autohet_most_layers(&m, (double)c->degree->types[type].memory_bytes, stages, q, k);
}

/* Partitions the layers over the stages of one group. */
static enum ht_status partition(const struct autohet_problem *p, struct autohet_candidate *c, int32_t j, int32_t at)
{
    int32_t n = c->stages[j];
    double k = (double)c->micro_batches[j];
    struct autohet_stage *stages = HT_NEW_ARRAY(struct autohet_stage, n);
    for (int32_t q = 0; q < n; q++) {
        int32_t t = c->places[at + q].type;
        struct autohet_line line = autohet_fit(c->degree->types[t].layers_s, autohet_profiled_powers(p->n_layers));
        stages[q] =
            (struct autohet_stage){.layer_s = line.layer_s,
                                   .fixed_s = line.fixed_s + autohet_beside_s(p, c->degree, &c->places[at], n, q),
                                   .most = most_layers(c, t, n, q, k)};
    }
    enum ht_status status = p->equal_layers
                                ? autohet_equal_layers(stages, n, p->n_layers, NULL, &c->blocks[at])
                                : autohet_partition(stages, n, p->n_layers, k, p->objective, NULL, &c->blocks[at]);
    free(stages);
    return status;
}

/* Makes the plan of a grouping. HT_INFEASIBLE if the layers do not fit a group. */
static enum ht_status make_plan(const struct autohet_problem *p, const struct autohet_degree *d,
                                const struct autohet_grouping *g, struct autohet_candidate *c)
{
    *c = (struct autohet_candidate){.degree = d, .n_groups = g->n_groups, .z = g->z, .proved = g->proved};
    c->stages = HT_NEW_ARRAY(int32_t, g->n_groups);
    c->micro_batches = HT_NEW_ARRAY(int64_t, g->n_groups);
    for (int32_t j = 0; j < g->n_groups; j++)
        for (int32_t t = 0; t < g->n_types; t++) c->stages[j] += autohet_count(g, j, t);
    for (int32_t j = 0; j < g->n_groups; j++) c->n_stages += c->stages[j];
    c->places = HT_NEW_ARRAY(struct autohet_place, c->n_stages);
    c->blocks = HT_NEW_ARRAY(int64_t, c->n_stages);
    divide_batch(p, g, c);
    map(p, g, c);
    enum ht_status status = HT_OK;
    for (int32_t j = 0, at = 0; j < c->n_groups && !status; at += c->stages[j++]) status = partition(p, c, j, at);
    if (!status) autohet_estimate(p, c);
    return status;
}

/* Returns true if a comes before b. */
static bool better(const struct autohet_problem *p, const struct autohet_candidate *a,
                   const struct autohet_candidate *b)
{
    double x = autohet_estimate_s(a), y = autohet_estimate_s(b);
    if (p->by_power) x = 1 / (a->n_groups * a->z), y = 1 / (b->n_groups * b->z);
    int32_t boundaries = (a->n_stages - a->n_groups) - (b->n_stages - b->n_groups);
    if (fabs(x - y) > 1e-9 * fmax(x, y)) return x < y;
    if (boundaries) return boundaries < 0;
    return a->n_groups != b->n_groups ? a->n_groups > b->n_groups : a->degree->tp < b->degree->tp;
}

static void insert(const struct autohet_problem *p, struct autohet_candidates *all, const struct autohet_candidate *c)
{
    int32_t i = all->n;
    HT_PUSH(all->list, all->n, all->cap, *c);
    for (; i > 0 && better(p, c, &all->list[i - 1]); i--) all->list[i] = all->list[i - 1];
    all->list[i] = *c;
}

static void plan_groups(const struct autohet_problem *p, const struct autohet_degree *d, int32_t n_groups,
                        struct autohet_candidates *out)
{
    struct autohet_grouping_problem problem;
    struct autohet_grouping g;
    struct autohet_candidate c;
    grouping_problem(p, d, n_groups, &problem);
    if (autohet_group(&problem, NULL, &g)) return;
    if (make_plan(p, d, &g, &c))
        free_candidate(&c);
    else
        insert(p, out, &c);
    autohet_grouping_free(&g);
}

/* Returns true if a plan may have so many groups. */
static bool allowed(const struct autohet_problem *p, int32_t n)
{
    return (!p->groups || p->groups == n) && (p->uneven || p->micro_batches % n == 0);
}

enum ht_status autohet_algorithm1(const struct autohet_problem *p, struct ht_error *err, struct autohet_candidates *out)
{
    *out = (struct autohet_candidates){0};
    for (int32_t i = 0; i < p->n_degrees; i++) {
        struct autohet_grouping_problem any;
        int32_t units = grouping_problem(p, &p->degrees[i], 1, &any);
        for (int32_t n = 1; n <= units && n <= p->micro_batches; n++)
            if (allowed(p, n)) plan_groups(p, &p->degrees[i], n, out);
    }
    if (out->n) return HT_OK;
    return ht_fail_memory(err, HT_DEVICE, "no grouping of the GPUs has a group's memory and a layer for each stage%s",
                          p->groups ? " in the number of groups that is forced" : "");
}
