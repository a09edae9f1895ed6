#include "harness/run/job.h"

#include "common/base/array.h"
#include "common/draft/layout.h"
#include "common/plan/candidate.h"
#include "common/schedule/bound.h"
#include "common/schedule/file.h"
#include "harness/run/disks.h"
#include "harness/run/engine.h"
#include "harness/run/output.h"
#include "harness/run/registry.h"

#include <stdlib.h>
#include <string.h>

const struct ht_cluster *ht_job_cluster(const struct ht_job *job)
{
    return job->has_scenario ? job->scenario.cluster : job->loaded_cluster;
}

void ht_job_free(struct ht_job *job)
{
    free(job->cost_ns);
    free(job->bound_bytes);
    ht_proof_free(&job->proof);
    ht_plan_free(&job->plan);
    ht_settings_free(&job->settings);
    ht_schedule_destroy(job->schedule);
    ht_profile_destroy(job->profile);
    ht_cluster_destroy(job->loaded_cluster);
    if (job->has_scenario) ht_scenario_free(&job->scenario);
    *job = (struct ht_job){0};
}

static enum ht_status infeasible(struct ht_job *job, const char *status, const struct ht_error *why)
{
    job->answer = HT_INFEASIBLE;
    job->status = status;
    job->lacks = why->lacks;
    snprintf(job->reason, sizeof(job->reason), "%s", why->text);
    return HT_OK;
}

static enum ht_status make_profile(const struct ht_options *o, struct ht_error *err, struct ht_job *job)
{
    enum ht_status status = HT_OK;
    for (int64_t i = 0; i < o->n_profiles && status == HT_OK; i++) {
        struct ht_profile *more = NULL;
        status = ht_profile_load(o->profiles[i], err, &more);
        if (status == HT_OK && job->profile)
            ht_profile_join(job->profile, more);
        else if (status == HT_OK)
            job->profile = more;
    }
    if (status == HT_OK && job->profile) return ht_profile_bind(job->profile, ht_job_cluster(job), err);
    if (status == HT_OK && ht_job_cluster(job)) job->profile = ht_profile_modelled(ht_job_cluster(job));
    if (status == HT_OK && job->profile && job->has_scenario)
        ht_profile_set_software(job->profile, &job->scenario.software);
    return status;
}

static enum ht_status make_plan(const struct ht_options *o, const char *system, const char *model, struct ht_error *err,
                                struct ht_job *job)
{
    struct ht_scenario_request request = o->request;
    if (model) request.model = model;
    request.local_disks = ht_disks_count(o->disk);
    enum ht_status status = ht_system_find(system, err, &job->system);
    if (status != HT_OK) return status;
    if (!request.model)
        return ht_fail(err, HT_BAD_INPUT, "--model is missing; hetbench list models shows those there are");
    if (!request.cluster)
        return ht_fail(err, HT_BAD_INPUT, "--cluster is missing; hetbench list clusters shows those there are");
    status = ht_scenario_create(&request, err, &job->scenario);
    enum ht_division division = job->system->division;
    if (status == HT_OK && (division == HT_EQUAL_REPLICAS || division == HT_SHARED_STATES)) {
        status = ht_layout_check_equal(&job->scenario, err);
        if (status != HT_OK) ht_scenario_free(&job->scenario);
    }
    if (status != HT_OK) return status;
    job->has_scenario = true;
    if (request.local_gpu && job->system->division != HT_PLANNED_REPLICAS)
        status = ht_engine_take_reserve(o, &job->scenario, job->scenario.micro_batch,
                                        ht_scenario_micro_batches(&job->scenario), err, &job->reserve);
    if (status != HT_OK) return status;
    enum ht_control_mode own = job->system->ranks_control;
    if (!request.control && own && job->scenario.cluster->n_gpus > 1 && job->scenario.control.mode)
        job->scenario.control.mode = own;
    if (job->system->division != HT_PLANNED_REPLICAS) /* the plan's layout sizes these */
        status = ht_layout_check_size(&job->scenario, ht_scenario_micro_batches(&job->scenario), err);
    if (status == HT_OK) status = make_profile(o, err, job);
    const struct ht_disk_rates *disk = status == HT_OK ? ht_profile_disk(job->profile) : NULL;
    if (disk && o->disk && !strcmp(request.cluster, "local"))
        ht_cluster_set_disk_rates(job->scenario.cluster, *disk); /* before anything is built */
    job->settings.any_fit = o->any_fit;
    for (int64_t i = 0; i < o->n_set && status == HT_OK; i++)
        status = ht_settings_parse(job->system, &job->scenario, o->set[i], err, &job->settings);
    if (status != HT_OK) return status;
    status = job->system->plan(job->system, &job->scenario, job->profile, &job->settings, err, &job->plan);
    return status == HT_INFEASIBLE ? infeasible(job, "infeasible", err) : status;
}

/* Loads a graph file. Refuses options that describe a scenario: the file stands for all of it. */
static enum ht_status load_graph(const struct ht_options *o, struct ht_error *err, struct ht_job *job)
{
    const struct ht_scenario_request *r = &o->request;
    if (r->model || r->batch || r->micro_batch || r->seq || r->numerics || r->accumulate || r->control || r->clip > 0 ||
        r->loss_scale || r->software || r->device_memory_bytes || r->host_memory_bytes || r->ssds || o->disk ||
        r->ranks || o->n_set)
        return ht_fail(err, HT_BAD_INPUT,
                       "--load stands for a whole scenario; expected only --profile or --cluster beside it, for the "
                       "costs");
    enum ht_status status = ht_schedule_load(o->load, err, &job->schedule);
    if (status != HT_OK) return status;
    if (r->cluster && !strcmp(r->cluster, "local"))
        status = ht_cluster_local(1, r->device_cores, 0, err, &job->loaded_cluster);
    else if (r->cluster)
        status = ht_cluster_load(r->cluster, err, &job->loaded_cluster);
    return status == HT_OK ? make_profile(o, err, job) : status;
}

static int32_t issue_ahead_of(const struct ht_options *o, const struct ht_job *job)
{
    if (o->issue_ahead >= 0) return (int32_t)o->issue_ahead;
    const struct ht_cluster *cluster = ht_job_cluster(job);
    return cluster && cluster->n_gpus ? ht_issue_ahead(cluster) : 0;
}

static enum ht_status verify(const struct ht_options *o, struct ht_error *err, struct ht_job *job)
{
    enum ht_status status = ht_schedule_verify(job->schedule, err, &job->proof);
    if (status == HT_INFEASIBLE) return infeasible(job, "oom", err);
    if (status == HT_FAILED && o->load) {
        /* A graph that our builders made would be our bug; here the file is wrong. */
        struct ht_error why = *err;
        return ht_fail(err, HT_BAD_INPUT, "%s: %.900s", o->load, why.text);
    }
    if (status != HT_OK) return status;
    job->issue_ahead = issue_ahead_of(o, job);
    return HT_OK;
}

static void bound(struct ht_job *job)
{
    job->bound_bytes = HT_NEW_ARRAY(int64_t, ht_n_spaces(job->schedule));
    ht_schedule_bound(job->schedule, job->issue_ahead, job->bound_bytes);
}

static enum ht_status make_costs(struct ht_error *err, struct ht_job *job)
{
    if (!job->profile)
        return ht_fail(err, HT_BAD_INPUT, "a graph file has no costs; expected --profile FILE or --cluster NAME");
    job->cost_ns = HT_NEW_ARRAY(int64_t, job->schedule->n_ops);
    return ht_profile_costs(job->profile, job->schedule, job->cost_ns, err);
}

bool ht_job_checks_gradients(const struct ht_job *job)
{
    const struct ht_schedule *s = job->schedule;
    for (int32_t op = 0; op < s->n_ops; op++)
        if (s->ops[op].kind == HT_OP_VALIDATE) return true;
    return false;
}

/* Refuses a builder that leaves out the control that the scenario asks for. */
static enum ht_status check_control(const struct ht_job *job, struct ht_error *err)
{
    enum ht_control_mode mode = job->scenario.control.mode;
    if (mode == HT_CONTROL_NONE || ht_job_checks_gradients(job)) return HT_OK;
    return ht_fail(err, HT_INFEASIBLE, "%s has no control '%s'", job->system->name, ht_control_mode_names[mode]);
}

/* Takes the reserve of the GPU's backend when the plan sizes the micro-batches: the graph has their sizes. */
static enum ht_status take_planned_reserve(const struct ht_options *o, struct ht_job *job, struct ht_error *err)
{
    struct ht_schedule *s = job->schedule;
    int64_t largest = job->scenario.batch / s->n_micro_batches;
    for (int32_t j = 0; j < s->n_micro_batches && s->slices; j++)
        if (s->slices[j].count > largest) largest = s->slices[j].count;
    enum ht_status status = ht_engine_take_reserve(o, &job->scenario, largest, s->n_micro_batches, err, &job->reserve);
    ht_schedule_set_capacity(s, HT_DEVICE, 0, ht_cluster_gpu_of(job->scenario.cluster, 0)->memory_bytes);
    return status;
}

static enum ht_status build(const struct ht_options *o, struct ht_error *err, struct ht_job *job)
{
    enum ht_status status = job->system->build(job->system, &job->scenario, &job->plan, err, &job->schedule);
    if (status == HT_OK) status = check_control(job, err);
    if (status == HT_OK && o->request.local_gpu && job->system->division == HT_PLANNED_REPLICAS)
        return take_planned_reserve(o, job, err);
    if (status != HT_INFEASIBLE) return status;
    ht_schedule_destroy(job->schedule);
    job->schedule = NULL;
    return infeasible(job, "infeasible", err);
}

enum ht_status ht_job_create(const struct ht_options *options, const char *system, const char *model,
                             enum ht_job_extent extent, struct ht_error *err, struct ht_job *job)
{
    *job = (struct ht_job){.status = "ok"};
    if (!system && options->n_words) system = options->words[0];
    enum ht_status status = options->load ? load_graph(options, err, job) : make_plan(options, system, model, err, job);
    if (status == HT_OK && extent >= HT_JOB_PROVED && job->answer == HT_OK) {
        if (!job->schedule) status = build(options, err, job);
        if (status == HT_OK && job->schedule) status = verify(options, err, job);
    }
    if (status == HT_OK && extent >= HT_JOB_BOUNDED && job->answer == HT_OK) bound(job);
    if (status == HT_OK && extent >= HT_JOB_COSTS && job->answer == HT_OK) status = make_costs(err, job);
    if (status != HT_OK) ht_job_free(job);
    return status;
}

enum ht_status ht_job_dump(const struct ht_job *job, const char *path, struct ht_error *err)
{
    if (!path || !job->schedule) return HT_OK;
    struct ht_output file;
    enum ht_status status = ht_output_open(path, err, &file);
    if (status != HT_OK) return status;
    struct ht_error why = {0};
    status = ht_schedule_dump(job->schedule, file.file, &why);
    if (status == HT_OK) return ht_output_commit(&file, err);
    ht_output_discard(&file);
    return ht_fail(err, status, "%s: %.900s", path, why.text);
}
