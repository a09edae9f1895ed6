#include "harness/result/break_even.h"

#include "common/base/tasks.h"
#include "harness/result/scaled.h"

#include <math.h>

/* 2^20 stands for infinity; the curve goes from 2^-4 to 2^4 by half powers. */
enum { FREE_LOG2 = 20, CURVE_STEPS = 8, N_CURVE = 2 * CURVE_STEPS + 1 };
static const double suffices = 1.01, precision = 1.01;
static const enum ht_rate rates[] = {HT_RATE_PCIE, HT_RATE_CPU_ADAM};
enum { N_RATES = sizeof(rates) / sizeof(*rates) };

/* One rate's search. Of used ones: free of charge, the curve, and what bisection found. */
struct search {
    const struct ht_job *job;
    const struct ht_options *options;
    enum ht_rate rate;
    bool used;
    struct ht_scaled free_of, curve[N_CURVE];
    double lo; /* does not suffice; 0: nothing on the curve does not */
    struct ht_scaled hi;
};

/* Returns the present rate in its unit: the link's, or that of all optimizer steps on the host together; 0 when
   unknown. */
static double rate_now(const struct ht_job *job, enum ht_rate rate)
{
    const struct ht_schedule *s = job->schedule;
    const struct ht_cluster *cluster = ht_job_cluster(job);
    if (rate == HT_RATE_PCIE) return cluster && cluster->n_nodes ? ht_link_rate(&cluster->nodes[0].pcie) : 0;
    double params = 0, ns = 0;
    for (int32_t i = 0; i < s->n_ops; i++) {
        if (s->lanes[s->ops[i].lane].kind != HT_LANE_HOST || s->ops[i].kind != HT_OP_OPTIMIZER_STEP) continue;
        params += (double)s->works[s->ops[i].work].params;
        ns += (double)job->cost_ns[i];
    }
    return ns > 0 ? params / ns * 1e9 : 0;
}

/* Finds the times of all curves at once, and where they first suffice for good: the grid brackets the bisection. */
static enum ht_status find_curves(struct search *searches, struct ht_error *err)
{
    struct ht_scaled points[N_RATES * (N_CURVE + 1)];
    size_t n = 0;
    for (int r = 0; r < N_RATES; r++) {
        if (!searches[r].used) continue;
        points[n++] = (struct ht_scaled){.rate = rates[r], .scale = exp2(FREE_LOG2)};
        for (int k = -CURVE_STEPS; k <= CURVE_STEPS; k++)
            points[n++] = (struct ht_scaled){.rate = rates[r], .scale = exp2(0.5 * k)};
    }
    enum ht_status status = ht_scaled_times(searches[0].job, searches[0].options, n, points, err);
    n = 0;
    for (int r = 0; r < N_RATES && status == HT_OK; r++) {
        struct search *x = &searches[r];
        if (!x->used) continue;
        x->free_of = points[n++];
        for (int k = 0; k < N_CURVE; k++) {
            x->curve[k] = points[n++];
            if ((double)x->curve[k].ns > suffices * (double)x->free_of.ns)
                x->lo = x->curve[k].scale, x->hi.scale = 0;
            else if (x->hi.scale == 0)
                x->hi = x->curve[k];
        }
        if (x->hi.scale == 0) x->hi = x->free_of;
    }
    return status;
}

/* Finds the smallest scale that suffices, to 1%: lo does not, hi does. Moves hi there. */
static enum ht_status bisect(void *ctx, size_t i, struct ht_error *err)
{
    struct search *x = &((struct search *)ctx)[i];
    while (x->lo > 0 && x->hi.scale / x->lo > precision) {
        struct ht_scaled middle = {.rate = x->rate, .scale = sqrt(x->lo * x->hi.scale)};
        enum ht_status status = ht_scaled_times(x->job, x->options, 1, &middle, err);
        if (status != HT_OK) return status;
        if ((double)middle.ns <= suffices * (double)x->free_of.ns)
            x->hi = middle;
        else
            x->lo = middle.scale;
    }
    return HT_OK;
}

static json_t *search_json(const struct search *x)
{
    if (!x->used) return json_null();
    json_t *curve = json_array();
    double now = rate_now(x->job, x->rate);
    for (int k = 0; k < N_CURVE; k++)
        json_array_append_new(curve, json_pack("[f,f]", x->curve[k].scale, (double)x->curve[k].ns * 1e-9));
    return json_pack("{s:s,s:f,s:f,s:f,s:b,s:f,s:f,s:o}", "unit",
                     x->rate == HT_RATE_PCIE ? "bytes_per_s" : "params_per_s", "now", now, "needed", now * x->hi.scale,
                     "needed_scale", x->hi.scale, "needed_is_at_most", x->lo == 0, "iteration_time_needed_s",
                     (double)x->hi.ns * 1e-9, "iteration_time_free_s", (double)x->free_of.ns * 1e-9, "curve", curve);
}

enum ht_status ht_break_even(const struct ht_job *job, const struct ht_options *options, struct ht_error *err,
                             json_t **out)
{
    struct search searches[N_RATES];
    for (int r = 0; r < N_RATES; r++)
        searches[r] =
            (struct search){.job = job, .options = options, .rate = rates[r], .used = ht_rate_is_used(job, rates[r])};
    struct ht_tasks bisections = {
        .name = "break-even rates", .noun = "searches", .n = N_RATES, .ctx = searches, .run = bisect};
    enum ht_status status = find_curves(searches, err);
    if (status == HT_OK) status = ht_tasks_run(&bisections, err);
    if (status != HT_OK) return status;
    *out = json_object();
    for (int r = 0; r < N_RATES; r++) json_object_set_new(*out, ht_rate_names[rates[r]], search_json(&searches[r]));
    return HT_OK;
}
