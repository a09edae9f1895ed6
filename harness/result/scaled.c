#include "harness/result/scaled.h"

#include "common/base/array.h"
#include "common/base/tasks.h"
#include "common/exec/flow.h"
#include "common/schedule/residency.h"
#include "harness/run/simulate.h"

#include <math.h>
#include <stdlib.h>

const char *const ht_rate_names[HT_N_RATES] = {"gpu", "links", "network", "pcie", "cpu_adam", "disk"};

/* ---- which costs and capacities a rate has ----------------------------------------------------------------------- */

/* Returns the rate of the group's costs; HT_N_RATES: none of them. */
static enum ht_rate rate_of_group(const struct ht_schedule *s, int32_t first, int32_t end)
{
    enum ht_rate rate = HT_RATE_LINKS;
    switch (s->lanes[s->ops[first].lane].kind) {
    case HT_LANE_COMPUTE:
        return HT_RATE_GPU;
    case HT_LANE_H2D:
    case HT_LANE_D2H:
        return HT_RATE_PCIE;
    case HT_LANE_HOST:
        return s->ops[first].kind == HT_OP_OPTIMIZER_STEP ? HT_RATE_CPU_ADAM : HT_N_RATES;
    case HT_LANE_DISK:
        return HT_RATE_DISK;
    default:
        break;
    }
    for (int64_t u = s->uses_begin[first]; u < s->uses_begin[end]; u++)
        if (s->resources[s->uses[u].resource].kind == HT_RES_NIC) rate = HT_RATE_NETWORK;
    return rate;
}

bool ht_rate_is_used(const struct ht_job *job, enum ht_rate rate)
{
    const struct ht_schedule *s = job->schedule;
    for (int32_t first = 0, end; first < s->n_ops; first = end) {
        end = ht_group_end(s, first);
        if (rate_of_group(s, first, end) != rate) continue;
        for (int32_t i = first; i < end; i++)
            if (job->cost_ns[i]) return true;
    }
    return false;
}

/* Returns the factor of a resource's capacity, for a rate x times as high. */
static double capacity_factor(enum ht_rate rate, enum ht_resource_kind kind, double x)
{
    double keeps_up = x < 1 ? 1 : x;
    bool pcie = kind == HT_RES_PCIE_H2D || kind == HT_RES_PCIE_D2H || kind == HT_RES_PCIE_SWITCH;
    switch (rate) {
    case HT_RATE_PCIE:
        return pcie ? x : 1;
    case HT_RATE_CPU_ADAM:
        return kind == HT_RES_DRAM ? keeps_up : 1;
    case HT_RATE_LINKS:
        return kind == HT_RES_NVLINK || kind == HT_RES_STAGED ? x : pcie ? keeps_up : 1;
    case HT_RATE_NETWORK:
        return kind == HT_RES_NIC ? x : pcie ? keeps_up : 1;
    case HT_RATE_DISK:
        return kind == HT_RES_SSD ? x : pcie || kind == HT_RES_DRAM ? keeps_up : 1;
    default:
        return 1;
    }
}

/* ---- simulations ------------------------------------------------------------------------------------------------- */

static int64_t at_least_one(double value)
{
    return value < 1 ? 1 : value > 9e18 ? (int64_t)9e18 : (int64_t)ceil(value);
}

/* Limits a rate to the simulator's largest: 17.6 TB/s is as near to infinity as it goes. */
static int64_t at_most(int64_t most, int64_t value)
{
    return value < most ? value : most;
}

static void scale_costs(const struct ht_job *job, enum ht_rate rate, double x, int64_t *cost_ns)
{
    const struct ht_schedule *s = job->schedule;
    const struct ht_cluster *cluster = ht_job_cluster(job);
    double latency =
        rate == HT_RATE_PCIE && cluster && cluster->n_nodes ? (double)cluster->nodes[0].pcie.latency_ns : 0;
    for (int32_t first = 0, end; first < s->n_ops; first = end) {
        end = ht_group_end(s, first);
        bool scales = rate_of_group(s, first, end) == rate;
        for (int32_t i = first; i < end; i++) {
            double cost = (double)job->cost_ns[i], fixed = latency < cost ? latency : cost;
            cost_ns[i] = scales && cost > 0 ? at_least_one(fixed + (cost - fixed) / x) : job->cost_ns[i];
        }
    }
}

/* Finds the time of one point. The job is read alone: threads share it. */
static enum ht_status time_of(const struct ht_job *job, const struct ht_options *options, struct ht_scaled *point,
                              struct ht_error *err)
{
    struct ht_schedule s = *job->schedule;
    struct ht_job scaled = *job;
    scaled.schedule = &s;
    scaled.cost_ns = HT_NEW_ARRAY(int64_t, s.n_ops);
    s.resources = HT_NEW_ARRAY(struct ht_resource, s.n_resources);
    scale_costs(job, point->rate, point->scale, scaled.cost_ns);
    for (int32_t r = 0; r < s.n_resources; r++) {
        s.resources[r] = job->schedule->resources[r];
        double factor = capacity_factor(point->rate, s.resources[r].kind, point->scale);
        if (factor == 1) continue;
        double capacity = (double)s.resources[r].capacity_per_s * factor;
        s.resources[r].capacity_per_s = at_most(HT_FLOW_MAX_CAPACITY - 1, at_least_one(capacity));
    }
    enum ht_status status = ht_iteration_time(options, &scaled, INT64_MAX, err, &point->ns);
    free(s.resources);
    free(scaled.cost_ns);
    return status;
}

struct scaled_run {
    const struct ht_job *job;
    const struct ht_options *options;
    struct ht_scaled *points;
};

static enum ht_status run_point(void *ctx, size_t i, struct ht_error *err)
{
    struct scaled_run *r = ctx;
    return time_of(r->job, r->options, &r->points[i], err);
}

double ht_simulation_bytes(const struct ht_job *job)
{
    return 100.0 * job->schedule->n_ops;
}

enum ht_status ht_scaled_times(const struct ht_job *job, const struct ht_options *options, size_t n,
                               struct ht_scaled *points, struct ht_error *err)
{
    struct scaled_run r = {job, options, points};
    double *bytes = HT_NEW_ARRAY(double, n);
    for (size_t i = 0; i < n; i++) bytes[i] = ht_simulation_bytes(job);
    struct ht_tasks tasks = {
        .name = "scaled rates", .noun = "simulations", .n = n, .bytes = bytes, .ctx = &r, .run = run_point};
    enum ht_status status = ht_tasks_run(&tasks, err);
    free(bytes);
    return status;
}
