/* What loading takes: transfers from the stores of live nodes, and from the remote store. */
#include "harness/days/goodput_state.h"

#include "common/base/array.h"

#include <math.h>
#include <stdlib.h>

/* Numbers the nodes that are there as a cluster of them does, kind after kind. at: [trace's nodes] */
static void number_nodes(const struct state *x, int32_t *at)
{
    int32_t n = 0;
    for (int64_t k = 0; k < x->s->kinds->n_nodes; k++)
        for (size_t i = 0; i < x->s->trace->n_nodes; i++)
            if (x->alive[i] && kind_of(x, i) == k) at[i] = n++;
}

/* Lists what live nodes have of a save, or what the remote store has: each part once. Allocated. */
static struct ht_transfer_source *sources_of(const struct state *x, const struct saved *v, bool local, bool remote,
                                             const int32_t *at, int64_t *n)
{
    const struct ht_planned *p = v->plan;
    struct ht_transfer_source *list = HT_NEW_ARRAY(struct ht_transfer_source, 2 * p->n_sinks);
    *n = 0;
    for (int64_t i = 0; i < p->n_sinks; i++) {
        int32_t node = v->nodes[p->sinks[i].node];
        if (local && x->alive[node])
            list[(*n)++] = (struct ht_transfer_source){p->sinks[i].extent, HT_STORE_MEMORY, at[node]};
        if (remote && (i == 0 || !ht_extent_equal(&p->sinks[i].extent, &p->sinks[i - 1].extent)))
            list[(*n)++] = (struct ht_transfer_source){p->sinks[i].extent, HT_STORE_REMOTE, -1};
    }
    return list;
}

enum ht_status ht_day_price(const struct state *x, const struct saved *v, bool local, bool remote,
                            const struct ht_planned *plan, const int32_t *nodes, const struct ht_model *m,
                            struct ht_error *err, struct ht_store_price *out)
{
    struct ht_fleet fleet = there(x);
    struct ht_cluster *cluster = ht_fleet_cluster(x->s->kinds, &fleet);
    struct ht_store_rates rates = ht_store_cluster_rates(cluster, x->s->times.remote_bytes_per_s);
    struct ht_store_reading how = {.param_bytes = sizeof(float)};
    int32_t *at = HT_NEW_ARRAY(int32_t, x->s->trace->n_nodes);
    struct ht_transfer_sink *sinks = HT_NEW_ARRAY(struct ht_transfer_sink, plan->n_sinks);
    struct ht_transfers list = {0};
    int64_t n;
    number_nodes(x, at);
    struct ht_transfer_source *sources = sources_of(x, v, local, remote, at, &n);
    for (int64_t i = 0; i < plan->n_sinks; i++) {
        sinks[i] = plan->sinks[i];
        sinks[i].node = at[nodes[plan->sinks[i].node]];
    }
    enum ht_status status = ht_transfers_plan(m, sources, n, sinks, plan->n_sinks, err, &list);
    if (!status) status = ht_transfers_price(sources, sinks, plan->n_sinks, &list, &rates, how, err, out);
    if (!status) ht_transfers_free(&list);
    free(sources);
    free(sinks);
    free(at);
    ht_store_rates_free(&rates);
    ht_cluster_destroy(cluster);
    return status;
}

enum ht_status ht_day_price_newest(const struct state *x, const struct ht_planned *plan, const int32_t *nodes,
                                   int64_t *step, struct ht_store_price *out)
{
    const struct ht_model *m = ht_planbook_model(x->s->book);
    bool nearest = x->policy->source == HT_FROM_NEAREST, same = x->local.step == x->remote.step;
    struct ht_error why;
    enum ht_status status = HT_INFEASIBLE;
    *out = (struct ht_store_price){0};
    if (nearest && x->local.step >= 0) {
        *step = x->local.step;
        status = ht_day_price(x, &x->local, true, same && x->remote.plan == x->local.plan, plan, nodes, m, &why, out);
    }
    if (status == HT_INFEASIBLE && x->remote.step >= 0) {
        *step = x->remote.step;
        status = ht_day_price(x, &x->remote, false, true, plan, nodes, m, &why, out);
    } else if (status == HT_INFEASIBLE) {
        *step = 0; /* nothing was saved: from the beginning */
        status = HT_OK;
    }
    if (!status && x->s->times.measured.given) out->ns = llround(x->s->times.measured.load_s * HT_NS_OF_S);
    return status ? ht_fail(x->err, status, "%s", why.text) : HT_OK;
}
