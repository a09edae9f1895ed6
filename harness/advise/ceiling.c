/*
 * The rate that no system can pass on some cards, from the costs of the passes alone.
 *
 * Each sequence is passed forward and backward through all units, on some card in micro-batches of some size. A card that
 * does nothing else passes m / T(m) sequences a second, T(m) being the time of both passes of all units at micro-batch m.
 * All cards together pass no more than the sum of their largest rates. Tensor-parallel parts gain nothing: n parts take
 * at least T(m) / n each.
 *
 * Where every card takes an equal part in micro-batches of m, the slowest one decides: n m / T(m).
 */
#include "harness/advise/internal.h"

#include "common/base/array.h"
#include "common/draft/cost_query.h"
#include "harness/run/job.h"

#include <math.h>
#include <stdlib.h>

enum { MOST = 128 }; /* sequences; larger micro-batches gain less than SLACK */

static const double SLACK = 1.001; /* for the rounding of costs to whole nanoseconds */

/* Returns the ns of both passes of all units on a rank. */
static double passes_ns(struct ht_cost_query *q)
{
    double blocks = (double)q->scenario->model.layers;
    int64_t head = ht_model_units(&q->scenario->model) - 1;
    double ns = 0;
    for (int k = 0; k < 2; k++) {
        enum ht_op_kind kind = k ? HT_OP_BACKWARD : HT_OP_FORWARD;
        ns += (double)ht_query_pass(q, kind, 0) + blocks * (double)ht_query_pass(q, kind, 1);
        ns += (double)ht_query_pass(q, kind, head);
    }
    return ns;
}

/* Sets rate[m] to the sequences a second of a rank at micro-batches of m = 1 .. n; returns the largest. */
static double rates_of(struct ht_cost_query *q, struct ht_scenario *s, int64_t n, double *rate)
{
    double best = 0;
    for (int64_t m = 1; m <= n; m++) {
        s->micro_batch = m;
        rate[m] = 1e9 * (double)m / fmax(passes_ns(q), 1);
        best = fmax(best, rate[m]);
    }
    return best;
}

static enum ht_status compute(struct ht_scenario *s, const struct ht_profile *profile, struct ht_error *err,
                              struct ht_ceiling *out)
{
    struct ht_device_kind *kinds = HT_NEW_ARRAY(struct ht_device_kind, s->cluster->n_gpus);
    int64_t n_kinds = ht_cluster_kinds(s->cluster, kinds), most = s->batch < MOST ? s->batch : MOST;
    double rate[MOST + 1], tokens = SLACK * (double)s->seq, all = 0;
    struct ht_cost_query q = {.scenario = s, .profile = profile, .micro_batches = 1, .err = err};
    for (int64_t k = 0; k < n_kinds; k++) {
        q.rank = 0;
        while (ht_cluster_gpu_of(s->cluster, q.rank) != kinds[k].gpu) q.rank++;
        all += (double)kinds[k].count * rates_of(&q, s, most, rate);
        for (int i = 0; INT64_C(1) << i <= most; i++)
            out->equal[i] = fmin(out->equal[i], tokens * (double)s->cluster->n_gpus * rate[INT64_C(1) << i]);
    }
    out->tokens_per_s = tokens * all;
    free(kinds);
    return q.status;
}

enum ht_status ht_ceiling_compute(const struct ht_options *o, struct ht_error *err, struct ht_ceiling *out)
{
    struct ht_scenario s;
    out->tokens_per_s = INFINITY;
    for (int i = 0; i < HT_MAX_MICRO_BATCHES; i++) out->equal[i] = INFINITY;
    if (o->plan.n_profiles) return HT_OK;
    struct ht_scenario_request request = ht_job_request(o, NULL);
    enum ht_status status = ht_scenario_create(&request, err, &s);
    if (status != HT_OK) return status;
    struct ht_profile *profile = ht_profile_modelled(s.cluster);
    ht_profile_set_software(profile, &s.software);
    status = compute(&s, profile, err, out);
    ht_profile_destroy(profile);
    ht_scenario_free(&s);
    return status;
}

double ht_ceiling_of(const struct ht_ceiling *c, enum ht_division division, int64_t micro_batch)
{
    int k = 0;
    while (k + 1 < HT_MAX_MICRO_BATCHES && INT64_C(1) << k < micro_batch) k++;
    bool equal = division == HT_EQUAL_REPLICAS || division == HT_SHARED_STATES;
    return equal && micro_batch == INT64_C(1) << k ? fmin(c->equal[k], c->tokens_per_s) : c->tokens_per_s;
}
