/*
 * The estimate that ranks plans: eq. (1) with profiled times, Sec. III-A.
 *
 *     t_p     layers by eq. (5); the first stage has the embedding, the last one the head; X to the next stage and dX to
 *             the previous one, with every part's bytes on the nodes' NICs where they leave the node ("including TP and PP
 *             communications"; the tensor-parallel exchanges are in the profiled times)
 *     T_sync  "the data volume for model synchronization by the lowest communication bandwidth among the data parallel
 *             groups": 2 (D - 1) / D of the gradients. [Ours] which gradients: if rings leave a node, all of theirs, with
 *             every part's bytes, since they share its NIC; if none does, those of the fullest GPU
 */
#include "autohet/algorithm1.h"

#include "common/base/array.h"

#include <math.h>
#include <stdlib.h>

double autohet_layers_s(const struct autohet_problem *p, const struct autohet_type_profile *type, int64_t layers)
{
    if (!p->fitted) return autohet_composed_s(type->layers_s, (int32_t)layers);
    struct autohet_line line = autohet_fit(type->layers_s, autohet_profiled_powers(p->n_layers));
    return line.fixed_s + (double)layers * line.layer_s;
}

static const struct autohet_path *path(const struct autohet_problem *p, int32_t a, int32_t b)
{
    return a == b ? &p->inside[p->sort_of[a]] : &p->between[p->sort_of[a] * p->n_sorts + p->sort_of[b]];
}

/* Returns the time of a message between two stages. */
static double message_s(const struct autohet_problem *p, int32_t tp, int32_t from, int32_t to)
{
    const struct autohet_path *x = path(p, from, to);
    return x->latency_s + p->boundary_bytes * (from == to ? 1 : tp) / x->bytes_per_s;
}

double autohet_beside_s(const struct autohet_problem *p, const struct autohet_degree *d,
                        const struct autohet_place *places, int32_t stages, int32_t stage)
{
    const struct autohet_type_profile *type = &d->types[places[stage].type];
    double s = 0;
    if (stage == 0) s += type->first_s;
    if (stage + 1 == stages) s += type->last_s;
    if (stage > 0) s += message_s(p, d->tp, places[stage].node, places[stage - 1].node);
    if (stage + 1 < stages) s += message_s(p, d->tp, places[stage].node, places[stage + 1].node);
    return s;
}

/* Returns the gradient bytes of a part of a stage. */
static double gradient_bytes(const struct autohet_candidate *c, int32_t at, int32_t stage, int32_t stages)
{
    const struct autohet_sizes *z = &c->degree->sizes;
    double bytes = (double)c->blocks[at + stage] * z->layer_gradient_bytes;
    if (stage == 0) bytes += z->first_gradient_bytes;
    if (stage + 1 == stages) bytes += z->last_gradient_bytes;
    return bytes;
}

/* A unit's ring: the nodes of its holders, one a group. Walks over the units of all groups at once. */
struct ring {
    int32_t *stage; /* [n_groups], of all stages of the plan */
    int64_t *left;  /* [n_groups], layers of that stage still to come */
};

/* Returns the lowest rate of the ring's links, and in *crosses whether it leaves a node. */
static double ring_rate(const struct autohet_problem *p, const struct autohet_candidate *c, const struct ring *r,
                        bool *crosses)
{
    double rate = INFINITY;
    *crosses = false;
    for (int32_t j = 0; j < c->n_groups; j++) {
        int32_t a = c->places[r->stage[j]].node, b = c->places[r->stage[(j + 1) % c->n_groups]].node;
        rate = fmin(rate, path(p, a, b)->bytes_per_s);
        *crosses |= a != b;
    }
    return rate;
}

static void next_layer(const struct autohet_candidate *c, struct ring *r)
{
    for (int32_t j = 0, end = 0; j < c->n_groups; j++) {
        end += c->stages[j];
        if (--r->left[j] == 0 && r->stage[j] + 1 < end) r->left[j] = c->blocks[++r->stage[j]];
    }
}

/* Adds a unit's gradient to what crosses nodes, if its ring does. */
static void add_ring(const struct autohet_problem *p, const struct autohet_candidate *c, const struct ring *r,
                     double bytes, double *crossing, double *outside, double *inside)
{
    bool crosses;
    double rate = ring_rate(p, c, r, &crosses);
    if (crosses) *crossing += bytes * c->degree->tp;
    if (crosses) *outside = fmin(*outside, rate);
    if (!crosses) *inside = fmin(*inside, rate);
}

static double sync_s(const struct autohet_problem *p, const struct autohet_candidate *c)
{
    const struct autohet_sizes *z = &c->degree->sizes;
    double crossing = 0, outside = INFINITY, inside = INFINITY, fullest = 0;
    if (c->n_groups == 1) return 0;
    struct ring r = {HT_NEW_ARRAY(int32_t, c->n_groups), HT_NEW_ARRAY(int64_t, c->n_groups)};
    for (int32_t j = 0, at = 0; j < c->n_groups; at += c->stages[j++]) {
        r.stage[j] = at;
        r.left[j] = c->blocks[at];
        for (int32_t q = 0; q < c->stages[j]; q++) fullest = fmax(fullest, gradient_bytes(c, at, q, c->stages[j]));
    }
    add_ring(p, c, &r, z->first_gradient_bytes, &crossing, &outside, &inside);
    for (int32_t l = 0; l < p->n_layers; l++, next_layer(c, &r))
        add_ring(p, c, &r, z->layer_gradient_bytes, &crossing, &outside, &inside);
    add_ring(p, c, &r, z->last_gradient_bytes, &crossing, &outside, &inside);
    free(r.stage);
    free(r.left);
    double twice = 2.0 * (c->n_groups - 1) / c->n_groups;
    return crossing > 0 ? autohet_sync_s(twice * crossing, outside) : autohet_sync_s(twice * fullest, inside);
}

void autohet_estimate(const struct autohet_problem *p, struct autohet_candidate *c)
{
    double *times = HT_NEW_ARRAY(double, c->n_stages);
    c->passes_s = 0;
    for (int32_t j = 0, at = 0; j < c->n_groups; at += c->stages[j++]) {
        for (int32_t q = 0; q < c->stages[j]; q++) {
            const struct autohet_type_profile *type = &c->degree->types[c->places[at + q].type];
            times[q] = autohet_layers_s(p, type, c->blocks[at + q]) +
                       autohet_beside_s(p, c->degree, &c->places[at], c->stages[j], q);
        }
        c->passes_s = fmax(c->passes_s, autohet_pipeline_s(times, c->stages[j], (double)c->micro_batches[j]));
    }
    c->sync_s = sync_s(p, c);
    free(times);
}
