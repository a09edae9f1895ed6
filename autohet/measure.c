/*
 * What profiling says, Sec. III-D: times by GPU type, tensor-parallel degree and number of layers, and memory by layer.
 *
 * Here a profile has the time of a block (common/profile/profile.h), so t(2^k) is 2^k times that; with it comes the sum of
 * its gradients over micro-batches. Memory is what the graph will need, counted by the model's layout instead of measured:
 * 18 bytes a parameter in 16 bits with FP32 sums of gradients.
 *
 * [Ours] Of l layers a stage keeps, for each micro-batch in flight, and beside that once:
 *
 *     recompute=0                  l (A + X)
 *     recompute=1, segments of n   l X / n + X (n - 1) / n, at most    n A + (n - 1) X of those that are recomputed
 *     recompute=1, segment=0       X                                   l (A + X)
 *     recompute=2                  l (A + X - attention)               attention of one
 *
 * With zero=1 the D groups share states (in FP32 parameters, too), so a stage has 1 / D of them and the gathered parameters.
 */
#include "autohet/autohet.h"

#include "common/base/array.h"
#include "common/base/minmax.h"
#include "common/draft/cost_query.h"
#include "common/draft/works.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SEVERAL = 2 }; /* micro-batches of a GPU: gradients are summed */

/* ---- the cluster ----------------------------------------------------------------------------------------------- */

/* Numbers the kinds of GPUs: same name and memory. Returns their number, or -1 if there are too many. */
static int32_t find_kinds(const struct ht_cluster *c, int32_t *kind_of)
{
    const struct ht_gpu *kinds[AUTOHET_MAX_TYPES];
    int32_t n = 0;
    for (int64_t i = 0; i < c->n_nodes; i++)
        for (int64_t g = 0; g < c->nodes[i].n_groups; g++) {
            const struct ht_gpu_group *of = &c->nodes[i].groups[g];
            int32_t k = 0;
            while (k < n && (strcmp(of->gpu.name, kinds[k]->name) || of->gpu.memory_bytes != kinds[k]->memory_bytes))
                k++;
            if (k == AUTOHET_MAX_TYPES && of->count) return -1;
            if (k == n && of->count) kinds[n++] = &of->gpu;
            for (int64_t r = 0; r < of->count; r++) *kind_of++ = k;
        }
    return n;
}

static struct autohet_path path_inside(const struct ht_machine *m)
{
    const struct ht_link *inside = m->has_nvlink ? &m->nvlink : &m->pcie;
    return (struct autohet_path){ht_machine_stages(m) ? ht_machine_message_rate(m) : ht_link_rate(inside),
                                 1e-9 * (double)inside->latency_ns};
}

/* Returns the path between two nodes, or between two like these where a is b. */
static struct autohet_path path_between(const struct ht_cluster *c, int64_t a, int64_t b)
{
    const struct ht_machine *m = &c->nodes[a], *o = &c->nodes[b];
    int32_t between = ht_cluster_between(c, a, b);
    double rate = fmin(ht_link_rate(&m->pcie), ht_link_rate(&o->pcie));
    const struct ht_link *out = between >= 0 ? &c->between[between].link : &m->nic;
    const struct ht_link *in = between >= 0 ? out : &o->nic;
    return (struct autohet_path){fmin(rate, fmin(ht_link_rate(out), ht_link_rate(in))),
                                 1e-9 * (double)ht_max(out->latency_ns, in->latency_ns)};
}

/* Returns true if two nodes have the same path inside and the same ones to every other node. */
static bool same_paths(const struct ht_cluster *c, const struct ht_machine *m, const struct ht_machine *o)
{
    struct autohet_path x = path_inside(m), y = path_inside(o);
    return (!c->n_between || m->group == o->group) && x.bytes_per_s == y.bytes_per_s && x.latency_s == y.latency_s &&
           ht_link_rate(&m->pcie) == ht_link_rate(&o->pcie) && ht_link_rate(&m->nic) == ht_link_rate(&o->nic) &&
           m->nic.latency_ns == o->nic.latency_ns;
}

/* Sorts the nodes by their paths, and reads these. Thousands of nodes are of a few sorts. */
static void read_paths(const struct ht_cluster *c, struct autohet_measured *m)
{
    int32_t *first = HT_NEW_ARRAY(int32_t, c->n_nodes), n = 0;
    m->sort_of = HT_NEW_ARRAY(int32_t, c->n_nodes);
    for (int32_t i = 0; i < c->n_nodes; i++) {
        int32_t k = 0;
        while (k < n && !same_paths(c, &c->nodes[i], &c->nodes[first[k]])) k++;
        if (k == n) first[n++] = i;
        m->sort_of[i] = k;
    }
    m->inside = HT_NEW_ARRAY(struct autohet_path, n);
    m->between = HT_NEW_ARRAY(struct autohet_path, n * n);
    for (int32_t k = 0; k < n; k++) m->inside[k] = path_inside(&c->nodes[first[k]]);
    for (int32_t k = 0; k < n * n; k++) m->between[k] = path_between(c, first[k / n], first[k % n]);
    free(first);
    m->problem.n_sorts = n;
    m->problem.sort_of = m->sort_of;
    m->problem.inside = m->inside;
    m->problem.between = m->between;
}

static enum ht_status read_cluster(const struct ht_cluster *c, struct ht_error *err, struct autohet_measured *m)
{
    struct autohet_problem *p = &m->problem;
    m->n_ranks = (int32_t)c->n_gpus;
    m->kind_of = HT_NEW_ARRAY(int32_t, c->n_gpus);
    p->n_kinds = find_kinds(c, m->kind_of);
    p->n_nodes = (int32_t)c->n_nodes;
    if (p->n_kinds < 0)
        return ht_fail(err, HT_INFEASIBLE, "the cluster has more than %d kinds of devices", AUTOHET_MAX_TYPES);
    m->node_gpus = HT_NEW_ARRAY(int32_t, p->n_nodes * p->n_kinds);
    m->node_begin = HT_NEW_ARRAY(int32_t, p->n_nodes + 1);
    for (int32_t i = 0; i < p->n_nodes; i++) {
        m->node_begin[i + 1] = m->node_begin[i] + (int32_t)c->nodes[i].n_gpus;
        for (int32_t r = m->node_begin[i]; r < m->node_begin[i + 1]; r++)
            m->node_gpus[i * p->n_kinds + m->kind_of[r]]++;
    }
    p->node_gpus = m->node_gpus;
    read_paths(c, m);
    return HT_OK;
}

int32_t autohet_first_rank(const struct autohet_measured *m, const struct autohet_degree *degree,
                           const struct autohet_place *place)
{
    int32_t skip = place->unit * degree->tp, r = m->node_begin[place->node];
    while (m->kind_of[r] != degree->kind_of[place->type] || skip--) r++;
    return r;
}

/* ---- costs ----------------------------------------------------------------------------------------------------- */

/* Returns the time of a unit's forward and backward pass and of the sum of its gradient, s. */
static double unit_s(struct ht_cost_query *q, const struct ht_model *part, int64_t unit)
{
    int64_t ns = ht_query_pass(q, HT_OP_FORWARD, unit) + ht_query_pass(q, HT_OP_BACKWARD, unit);
    return 1e-9 * (double)(ns + ht_query_accumulate(q, HT_LANE_COMPUTE, ht_unit_params(part, unit)));
}

/* Returns the time of a layer's recomputation, s. */
static double recompute_s(struct ht_cost_query *q, const struct ht_pipe_style *y)
{
    struct ht_work w = ht_scenario_work(q->scenario, HT_OP_RECOMPUTE, HT_LANE_COMPUTE, 1);
    if (!y->recompute) return 0;
    if (y->attention_only) w.sub_ops = 1u << HT_SUB_ATTENTION;
    if (q->tp > 1) w.tp = q->tp;
    return 1e-9 * (double)ht_query_work(q, &w);
}

/* Reads what a kind of GPU takes, from its first rank. */
static enum ht_status read_type(const struct ht_scenario *sc, const struct ht_profile *profile, int32_t rank,
                                int32_t tp, const struct ht_pipe_style *y, struct ht_error *err,
                                struct autohet_type_profile *out)
{
    struct ht_model part = tp > 1 ? ht_model_part(&sc->model, 0, tp) : sc->model;
    struct ht_cost_query q = {
        .scenario = sc, .profile = profile, .rank = rank, .micro_batches = SEVERAL, .tp = tp, .err = err};
    double layer = unit_s(&q, &part, 1) + recompute_s(&q, y);
    out->first_s = unit_s(&q, &part, 0);
    out->last_s = unit_s(&q, &part, ht_model_units(&sc->model) - 1);
    out->unit_power = layer > 0 ? 1 / layer : 1;
    for (int32_t k = 0; k < AUTOHET_POWERS; k++) out->layers_s[k] = layer * (double)(1 << k);
    return q.status;
}

static double params_of(const struct ht_model *m, int64_t unit)
{
    return (double)ht_unit_params(m, unit);
}

/* Adds what a stage keeps of its layers between the passes of a micro-batch, and while it recomputes. */
static void add_activations(const struct ht_scenario *sc, const struct ht_model *m, const struct ht_pipe_style *y,
                            struct autohet_memory *out)
{
    int64_t b = sc->micro_batch, seq = sc->seq;
    enum ht_dtype act = sc->numerics.param;
    double x = (double)ht_unit_input_bytes(m, 1, b, seq, act), a = (double)ht_unit_activation_bytes(m, 1, b, seq, act);
    double attention = (double)ht_sub_ops_activation_bytes(m, 1u << HT_SUB_ATTENTION, b, seq, act), n = y->segment;
    if (!y->recompute) {
        out->activation_bytes = a + x;
    } else if (y->attention_only) {
        out->activation_bytes = a + x - attention;
        out->fixed_bytes += attention;
    } else if (y->segment) {
        out->activation_bytes = x / n;
        out->fixed_activation_bytes = x * (n - 1) / n;
        out->fixed_bytes += n * a + (n - 1) * x;
    } else {
        out->layer_bytes += a + x;
        out->fixed_activation_bytes = x;
    }
}

/* Returns the bytes that one part has by layer, at the ends and beside. */
static struct autohet_sizes read_sizes(const struct ht_scenario *sc, int32_t tp, const struct ht_pipe_style *y)
{
    struct ht_model m = tp > 1 ? ht_model_part(&sc->model, 0, tp) : sc->model;
    const struct ht_numerics *n = &sc->numerics;
    int64_t head = ht_model_units(&m) - 1, b = sc->micro_batch, seq = sc->seq;
    double sum = (double)ht_dtype_bytes(ht_stepped_gradient(n, SEVERAL)), fresh = (double)ht_dtype_bytes(n->grad);
    double param = (double)ht_dtype_bytes(n->param), states = param + (double)ht_optimizer_state_bytes(n);
    double own = n->param == HT_F32 ? states : states - param; /* 16-bit parameters are cast from the master's shard */
    double shared = y->zero ? own : 0, each = y->zero ? param + sum : states + sum;
    double synced =
        y->zero ? (sum + param) / 2 : sum; /* sums are scattered and parameters gathered: half a ring each */
    double x = (double)ht_unit_input_bytes(&m, 1, b, seq, n->param);
    double table = m.tied ? params_of(&m, 0) : 0; /* the head's own copy */
    struct autohet_sizes z = {0};
    z.layer.layer_bytes = params_of(&m, 1) * each;
    z.layer.fixed_bytes =
        params_of(&m, 1) * fresh + (double)ht_unit_workspace_bytes(&m, 1, b, seq, n->param, true) + 4 * x;
    z.first_bytes = params_of(&m, 0) * (each + fresh);
    z.last_bytes = (params_of(&m, head) + table) * (each + fresh) + (double)ht_logits_bytes(&m, b, seq) +
                   (double)ht_unit_activation_bytes(&m, head, b, seq, n->param);
    add_activations(sc, &m, y, &z.layer);
    z.shared.layer_bytes = params_of(&m, 1) * shared;
    z.shared.first_bytes = params_of(&m, 0) * shared;
    z.shared.last_bytes = (params_of(&m, head) + table) * shared;
    z.layer_gradient_bytes = params_of(&m, 1) * synced;
    z.first_gradient_bytes = params_of(&m, 0) * synced;
    z.last_gradient_bytes = (params_of(&m, head) + table) * synced;
    z.group_bytes = tp * ((double)m.layers * (z.layer.layer_bytes + z.layer.activation_bytes) +
                          (params_of(&m, 0) + params_of(&m, head)) * each);
    z.shared.group_bytes = tp * (double)ht_model_params(&m) * shared;
    return z;
}

/* Orders the types by rising power; of equal ones the first kind comes first. */
static void sort_types(struct autohet_degree *d, int32_t n)
{
    struct autohet_type_profile by_kind[AUTOHET_MAX_TYPES];
    memcpy(by_kind, d->types, sizeof(by_kind));
    for (int32_t k = 0; k < n; k++) {
        int32_t i = k;
        for (; i > 0 && by_kind[d->kind_of[i - 1]].unit_power > by_kind[k].unit_power; i--)
            d->kind_of[i] = d->kind_of[i - 1];
        d->kind_of[i] = k;
    }
    for (int32_t t = 0; t < n; t++) d->types[t] = by_kind[d->kind_of[t]];
}

/* Returns true if tp divides every node's GPUs of each kind, and the model. */
static bool divides(const struct ht_scenario *sc, const struct autohet_measured *m, int32_t tp)
{
    char buf[64];
    for (int32_t i = 0; i < m->problem.n_nodes * m->problem.n_kinds; i++)
        if (m->node_gpus[i] % tp) return false;
    return tp == 1 || !ht_model_cannot_part(&sc->model, tp, buf, sizeof buf);
}

static enum ht_status read_degree(const struct ht_scenario *sc, const struct ht_profile *profile, const int64_t *powers,
                                  int64_t reserve, int32_t tp, const struct ht_pipe_style *y, struct ht_error *err,
                                  struct autohet_measured *m)
{
    struct autohet_degree *d = &m->degrees[m->problem.n_degrees];
    *d = (struct autohet_degree){.tp = tp, .sizes = read_sizes(sc, tp, y)};
    for (int32_t r = m->n_ranks - 1; r >= 0; r--) { /* the first rank of each kind comes last */
        struct autohet_type_profile *type = &d->types[m->kind_of[r]];
        if (r && m->kind_of[r - 1] == m->kind_of[r]) continue;
        enum ht_status status = read_type(sc, profile, r, tp, y, err, type);
        if (status) return status;
        if (powers) type->unit_power = tp * (double)powers[r] / (double)HT_PPB;
        type->memory_bytes = ht_max(0, ht_cluster_gpu_of(sc->cluster, r)->memory_bytes - reserve);
    }
    sort_types(d, m->problem.n_kinds);
    m->problem.n_degrees++;
    return HT_OK;
}

enum ht_status autohet_measure(const struct ht_scenario *scenario, const struct ht_profile *profile,
                               const int64_t *powers, int64_t reserve_bytes, const struct ht_pipe_style *style,
                               struct ht_error *err, struct autohet_measured *out)
{
    *out = (struct autohet_measured){0};
    out->problem.n_layers = (int32_t)scenario->model.layers;
    out->problem.micro_batches = ht_scenario_micro_batches(scenario);
    out->problem.boundary_bytes = (double)ht_unit_input_bytes(&scenario->model, 1, scenario->micro_batch, scenario->seq,
                                                              scenario->numerics.param);
    enum ht_status status = read_cluster(scenario->cluster, err, out);
    out->degrees = HT_NEW_ARRAY(struct autohet_degree, out->n_ranks);
    for (int32_t tp = 1; tp <= out->n_ranks && !status; tp++)
        if (divides(scenario, out, tp))
            status = read_degree(scenario, profile, powers, reserve_bytes, tp, style, err, out);
    out->problem.degrees = out->degrees;
    return status;
}

void autohet_measured_free(struct autohet_measured *m)
{
    free(m->node_gpus);
    free(m->sort_of);
    free(m->inside);
    free(m->between);
    free(m->degrees);
    free(m->kind_of);
    free(m->node_begin);
    *m = (struct autohet_measured){0};
}
