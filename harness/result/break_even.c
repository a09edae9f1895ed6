#include "harness/result/break_even.h"

#include "common/base/array.h"
#include "common/exec/flow.h"
#include "harness/result/result.h"
#include "harness/run/simulate.h"

#include <math.h>
#include <stdlib.h>

const char *const ht_rate_names[HT_N_RATES] = {"pcie", "cpu_adam"};

enum { FREE_LOG2 = 20, CURVE_STEPS = 8 }; /* 2^20 stands for infinity; the curve goes from 2^-4 to 2^4 by half powers */
static const double suffices = 1.01, precision = 1.01;

static bool scales_op(const struct ht_schedule *s, enum ht_rate rate, int32_t i)
{
    enum ht_lane_kind lane = s->lanes[s->ops[i].lane].kind;
    if (rate == HT_RATE_PCIE) return lane == HT_LANE_H2D || lane == HT_LANE_D2H;
    return lane == HT_LANE_HOST && s->ops[i].kind == HT_OP_OPTIMIZER_STEP;
}

static bool scales_resource(enum ht_rate rate, enum ht_resource_kind kind)
{
    if (rate == HT_RATE_PCIE) return kind == HT_RES_PCIE_H2D || kind == HT_RES_PCIE_D2H || kind == HT_RES_PCIE_SWITCH;
    return kind == HT_RES_DRAM;
}

static const struct ht_machine *machine_of(const struct ht_job *job)
{
    const struct ht_cluster *cluster = ht_job_cluster(job);
    return cluster && cluster->n_nodes ? &cluster->nodes[0] : NULL;
}

static int64_t at_least_one(double value)
{
    return value < 1 ? 1 : value > 9e18 ? (int64_t)9e18 : (int64_t)ceil(value);
}

/* Limits a rate to the simulator's largest: 17.6 TB/s is as near to infinity as it goes. */
static int64_t at_most(int64_t most, int64_t value)
{
    return value < most ? value : most;
}

enum ht_status ht_scaled_time(struct ht_job *job, const struct ht_options *options, enum ht_rate rate, double x,
                              struct ht_error *err, int64_t *iteration_ns)
{
    struct ht_schedule *s = job->schedule;
    const struct ht_machine *machine = machine_of(job);
    double latency = machine && rate == HT_RATE_PCIE ? (double)machine->pcie.latency_ns : 0;
    int64_t *costs = job->cost_ns, *capacities = HT_NEW_ARRAY(int64_t, s->n_resources);
    job->cost_ns = HT_NEW_ARRAY(int64_t, s->n_ops);
    for (int32_t i = 0; i < s->n_ops; i++) {
        double cost = (double)costs[i], fixed = latency < cost ? latency : cost;
        job->cost_ns[i] = scales_op(s, rate, i) ? at_least_one(fixed + (cost - fixed) / x) : costs[i];
    }
    for (int32_t i = 0; i < s->n_resources; i++) {
        capacities[i] = s->resources[i].capacity_per_s;
        /* Slower steps do not make memory slower for others; faster ones need a memory that keeps up. */
        double factor = rate == HT_RATE_CPU_ADAM && x < 1 ? 1 : x;
        if (scales_resource(rate, s->resources[i].kind))
            s->resources[i].capacity_per_s =
                at_most(HT_FLOW_MAX_CAPACITY - 1, at_least_one((double)capacities[i] * factor));
    }
    enum ht_status status = ht_iteration_time(options, job, INT64_MAX, err, iteration_ns);
    for (int32_t i = 0; i < s->n_resources; i++) s->resources[i].capacity_per_s = capacities[i];
    free(capacities);
    free(job->cost_ns);
    job->cost_ns = costs;
    return status;
}

/* Returns the present rate in its unit: the link's, or that of all optimizer steps on the host together; 0 when
   unknown. */
static double rate_now(const struct ht_job *job, enum ht_rate rate)
{
    const struct ht_schedule *s = job->schedule;
    const struct ht_machine *machine = machine_of(job);
    if (rate == HT_RATE_PCIE) return machine ? ht_link_rate(&machine->pcie) : 0;
    double params = 0, ns = 0;
    for (int32_t i = 0; i < s->n_ops; i++) {
        if (!scales_op(s, rate, i)) continue;
        params += (double)s->works[s->ops[i].work].params;
        ns += (double)job->cost_ns[i];
    }
    return ns > 0 ? params / ns * 1e9 : 0;
}

/* A scale, and the iteration time there. */
struct point {
    double scale;
    int64_t ns;
};

/* Finds the smallest scale that suffices, to 1%: lo does not, *hi does. Moves *hi there. */
static enum ht_status bisect(struct ht_job *job, const struct ht_options *options, enum ht_rate rate, double target,
                             double lo, struct point *hi, struct ht_error *err)
{
    while (hi->scale / lo > precision) {
        struct point middle = {.scale = sqrt(lo * hi->scale)};
        enum ht_status status = ht_scaled_time(job, options, rate, middle.scale, err, &middle.ns);
        if (status != HT_OK) return status;
        if ((double)middle.ns <= target)
            *hi = middle;
        else
            lo = middle.scale;
    }
    return HT_OK;
}

static enum ht_status of_rate(struct ht_job *job, const struct ht_options *options, enum ht_rate rate,
                              struct ht_error *err, json_t **out)
{
    json_t *curve = json_array();
    struct point free_of = {.scale = exp2(FREE_LOG2)}, hi = {0};
    enum ht_status status = ht_scaled_time(job, options, rate, free_of.scale, err, &free_of.ns);
    double target = suffices * (double)free_of.ns, lo = 0;
    /* The grid brackets the bisection: lo is the last scale before the first that suffices. */
    for (int k = -CURVE_STEPS; k <= CURVE_STEPS && status == HT_OK; k++) {
        struct point x = {.scale = exp2(0.5 * k)};
        status = ht_scaled_time(job, options, rate, x.scale, err, &x.ns);
        json_array_append_new(curve, json_pack("[f,f]", x.scale, (double)x.ns * 1e-9));
        if ((double)x.ns > target)
            lo = x.scale, hi.scale = 0;
        else if (hi.scale == 0)
            hi = x;
    }
    if (hi.scale == 0) hi = free_of;
    if (status == HT_OK && lo > 0) status = bisect(job, options, rate, target, lo, &hi, err);
    if (status != HT_OK) {
        json_decref(curve);
        return status;
    }
    double now = rate_now(job, rate);
    *out = json_pack("{s:s,s:f,s:f,s:f,s:b,s:f,s:f,s:o}", "unit", rate == HT_RATE_PCIE ? "bytes_per_s" : "params_per_s",
                     "now", now, "needed", now * hi.scale, "needed_scale", hi.scale, "needed_is_at_most", lo == 0,
                     "iteration_time_needed_s", (double)hi.ns * 1e-9, "iteration_time_free_s",
                     (double)free_of.ns * 1e-9, "curve", curve);
    return HT_OK;
}

enum ht_status ht_break_even(struct ht_job *job, const struct ht_options *options, struct ht_error *err, json_t **out)
{
    json_t *all = json_object();
    for (int rate = 0; rate < HT_N_RATES; rate++) {
        json_t *one = NULL;
        bool used = false;
        for (int32_t i = 0; i < job->schedule->n_ops && !used; i++)
            used = scales_op(job->schedule, (enum ht_rate)rate, i);
        enum ht_status status = used ? of_rate(job, options, (enum ht_rate)rate, err, &one) : HT_OK;
        if (status != HT_OK) {
            json_decref(all);
            return status;
        }
        json_object_set_new(all, ht_rate_names[rate], used ? one : json_null());
    }
    *out = all;
    return HT_OK;
}
