/*
 * A job: everything that a clock needs before it starts. Every command goes this way, as far as it needs to:
 *
 *     options --> scenario --> profile --> plan --> schedule --> proof, bound, costs
 *
 * "It does not fit" is an answer and no error: the job is then complete but for the costs, `answer` is HT_INFEASIBLE,
 * and `reason` says who needs what.
 */
#ifndef HT_HARNESS_RUN_JOB_H
#define HT_HARNESS_RUN_JOB_H

#include "common/backend/cuda.h"
#include "common/plan/system.h"
#include "common/schedule/verify.h"
#include "harness/run/platform.h"

struct ht_job {
    struct ht_platform platform;    /* of HT_JOB_TRAINABLE */
    const struct ht_system *system; /* NULL: the graph came from a file */
    bool has_scenario;
    bool default_micro_batch; /* the scenario's, since nobody has given one */
    struct ht_scenario scenario;
    struct ht_cluster *loaded_cluster; /* --cluster beside --load: has the costs */
    struct ht_cuda_reserve reserve;    /* of the GPU's memory, of HT_PLATFORM_GPU; not in the schedule's capacity */
    struct ht_profile *profile;
    bool profiled; /* its costs are of --profile's files */
    struct ht_settings settings;
    struct ht_plan plan;
    int64_t planning_ns; /* that the planner took */

    struct ht_schedule *schedule; /* NULL when the planner has refused */
    struct ht_proof proof;
    int32_t issue_ahead;
    int64_t *bound_bytes; /* [n_spaces]: most that any order needs; NULL unless asked for, and if it does not fit */
    int64_t *cost_ns;     /* [n_ops]; NULL unless asked for */

    enum ht_status answer; /* HT_OK or HT_INFEASIBLE */
    const char *status;    /* "ok", "oom", "infeasible" */
    char reason[1024];     /* of HT_INFEASIBLE */
    int lacks;             /* of HT_INFEASIBLE for want of memory: 1 + its enum ht_tier, also where a planner refuses */
};

enum ht_job_extent {
    HT_JOB_PLAN,      /* up to the plan */
    HT_JOB_PROVED,    /* and the schedule, proved */
    HT_JOB_PRICED,    /* and the costs of all ops, for searches: without the bound; copies may be left out */
    HT_JOB_TIMED,     /* the same of the whole schedule */
    HT_JOB_BOUNDED,   /* the schedule, proved, and the bound of its memory */
    HT_JOB_COSTS,     /* and the costs of all ops */
    HT_JOB_TRAINABLE, /* and the platform, which has the devices and disks */
};

/* Returns the request for a scenario; model: instead of the options' own when not NULL. */
struct ht_scenario_request ht_job_request(const struct ht_options *options, const char *model);

/* Creates a job. system and model: names, instead of the options' own when not NULL. *job is zero on error. */
enum ht_status ht_job_create(const struct ht_options *options, const char *system, const char *model,
                             enum ht_job_extent extent, struct ht_error *err, struct ht_job *job);
void ht_job_free(struct ht_job *job);

/* Returns true when the schedule has a gradient check: with --control, and in pipelines that have one of their own. */
bool ht_job_checks_gradients(const struct ht_job *job);

/* Returns the cluster that costs come from; NULL for a graph file with a profile alone. */
const struct ht_cluster *ht_job_cluster(const struct ht_job *job);

/* Writes the graph to --dump's path; does nothing when that is NULL or there is no graph. */
enum ht_status ht_job_dump(const struct ht_job *job, const char *path, struct ht_error *err);

#endif
