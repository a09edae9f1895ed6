#include "harness/run/job.h"

#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/base/interrupt.h"
#include "common/base/units.h"
#include "common/draft/layout.h"
#include "common/plan/candidate.h"
#include "common/schedule/bound.h"
#include "common/schedule/file.h"
#include "harness/run/engine.h"
#include "harness/run/output.h"
#include "harness/run/progress.h"
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
    ht_platform_free(&job->platform);
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
    job->profiled = o->plan.n_profiles > 0;
    for (int64_t i = 0; i < o->plan.n_profiles && status == HT_OK; i++) {
        struct ht_profile *more = NULL;
        status = ht_profile_load(o->plan.profiles[i], err, &more);
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

struct ht_scenario_request ht_job_request(const struct ht_options *options, const char *model)
{
    struct ht_scenario_request request = options->request;
    if (model) request.model = model;
    request.local_disks = ht_disks_count(options->platform.disk);
    return request;
}

/* Returns true when the plan says how many micro-batches there are, of which sizes. */
static bool plan_sizes_batches(const struct ht_job *job)
{
    return job->system->division == HT_PLANNED_REPLICAS;
}

static enum ht_status make_scenario(const struct ht_options *o, const char *model, struct ht_error *err,
                                    struct ht_job *job)
{
    struct ht_scenario_request request = ht_job_request(o, model);
    enum ht_division division = job->system->division;
    request.local_gpus = job->platform.gpus;
    request.n_local_gpus = job->platform.n_gpus;
    if (!request.model)
        return ht_fail(err, HT_BAD_INPUT, "--model is missing; hetbench list models shows those there are");
    if (!request.cluster) return ht_fail(err, HT_BAD_INPUT, HT_NO_CLUSTER);
    enum ht_status status = ht_scenario_create(&request, err, &job->scenario);
    if (status != HT_OK) return status;
    job->has_scenario = true;
    job->default_micro_batch = !request.micro_batch;
    if (!request.control && job->system->ranks_control && job->scenario.cluster->n_gpus > 1 &&
        job->scenario.control.mode)
        job->scenario.control.mode = job->system->ranks_control;
    return division == HT_EQUAL_REPLICAS || division == HT_SHARED_STATES ? ht_layout_check_equal(&job->scenario, err)
                                                                         : HT_OK;
}

/* Takes the reserve of the GPU's backend, and checks the layout's size, where the scenario has the micro-batches. */
static enum ht_status size_batches(struct ht_job *job, struct ht_error *err)
{
    struct ht_scenario *s = &job->scenario;
    int64_t n = ht_scenario_micro_batches(s);
    enum ht_status status = HT_OK;
    if (plan_sizes_batches(job)) return HT_OK;
    if (job->platform.kind == HT_PLATFORM_GPU)
        status = ht_engine_take_reserve(&job->platform, s, s->micro_batch, n, err, &job->reserve);
    return status == HT_OK ? ht_layout_check_size(s, n, err) : status;
}

/* Takes the disk's rates from the profile, if it has some, for directories of this machine. */
static void take_disk_rates(const struct ht_options *o, struct ht_job *job)
{
    const struct ht_disk_rates *rates = ht_profile_disk(job->profile);
    if (rates && o->platform.disk && job->scenario.cluster->local)
        ht_cluster_set_disk_rates(job->scenario.cluster, *rates);
}

static enum ht_status decide(const struct ht_options *o, struct ht_error *err, struct ht_job *job)
{
    enum ht_status status = HT_OK;
    job->settings.any_fit = o->plan.any_fit;
    for (int64_t i = 0; i < o->plan.n_set && status == HT_OK; i++)
        status = ht_settings_parse(job->system, &job->scenario, o->plan.set[i], err, &job->settings);
    if (status != HT_OK) return status;
    struct ht_progress progress = ht_progress_begin(job->system->name);
    if (o->plan.progress) {
        job->settings.progress = ht_progress_candidates;
        job->settings.progress_ctx = &progress;
        ht_progress_beat(&progress, "planning");
    }
    int64_t begin_ns = ht_now_ns();
    status = ht_interrupted() ? ht_fail(err, HT_INTERRUPTED, "interrupted") : HT_OK;
    if (status == HT_OK)
        status = job->system->plan(job->system, &job->scenario, job->profile, &job->settings, err, &job->plan);
    job->planning_ns = ht_now_ns() - begin_ns;
    job->settings.progress = NULL;
    ht_progress_end(&progress);
    return status == HT_INFEASIBLE ? infeasible(job, "infeasible", err) : status;
}

/* Returns true if a job of this extent is for times and memory alone. Jitter makes copies differ. */
static bool folds(const struct ht_options *o, enum ht_job_extent extent)
{
    return (extent == HT_JOB_PRICED || o->plan.folds) && !o->sim.every_replica && !o->sim.jitter_percent;
}

static enum ht_status make_plan(const struct ht_options *o, const char *system, const char *model, struct ht_error *err,
                                struct ht_job *job)
{
    enum ht_status status = ht_system_find(system, err, &job->system);
    if (status == HT_OK) status = make_scenario(o, model, err, job);
    if (status == HT_OK) status = size_batches(job, err);
    if (status == HT_OK) status = make_profile(o, err, job);
    if (status != HT_OK) return status;
    take_disk_rates(o, job);
    return decide(o, err, job);
}

/* Loads a graph file. Refuses options that describe a scenario: the file stands for all of it. */
static enum ht_status load_graph(const struct ht_options *o, struct ht_error *err, struct ht_job *job)
{
    const struct ht_scenario_request *r = &o->request;
    if (r->model || r->batch || r->micro_batch || r->seq || r->numerics || r->accumulate || r->control || r->clip > 0 ||
        r->loss_scale || r->software || r->device_memory_bytes || r->host_memory_bytes || r->ssds || o->platform.disk ||
        r->ranks || r->only || o->plan.n_set)
        return ht_fail(err, HT_BAD_INPUT,
                       "--load stands for a whole scenario; expected only --profile or --cluster beside it, for the "
                       "costs");
    if (r->through_host_bytes_per_s > 0 && !r->cluster)
        return ht_fail(err, HT_BAD_INPUT, "--through-host is given beside --load; expected --cluster as well");
    enum ht_status status = ht_schedule_load(o->plan.load, err, &job->schedule);
    if (status != HT_OK) return status;
    if (r->cluster && !strcmp(r->cluster, "local"))
        status = ht_cluster_local(1, r->device_cores, 0, err, &job->loaded_cluster);
    else if (r->cluster)
        status = ht_cluster_load(r->cluster, err, &job->loaded_cluster);
    if (status == HT_OK && r->through_host_bytes_per_s > 0)
        ht_cluster_set_through_host(job->loaded_cluster, r->through_host_bytes_per_s);
    return status == HT_OK ? make_profile(o, err, job) : status;
}

static int32_t issue_ahead_of(const struct ht_options *o, const struct ht_job *job)
{
    if (job->platform.kind == HT_PLATFORM_EMULATED) return 0;                          /* as the CPU backend has it */
    if (job->platform.kind == HT_PLATFORM_GPU && job->schedule->n_ranks > 1) return 0; /* run_ranks.c issues none */
    if (o->sim.issue_ahead >= 0) return (int32_t)o->sim.issue_ahead;
    const struct ht_cluster *cluster = ht_job_cluster(job);
    return cluster && cluster->n_gpus ? ht_issue_ahead(cluster) : 0;
}

static enum ht_status verify(const struct ht_options *o, struct ht_error *err, struct ht_job *job)
{
    bool proved = job->proof.spaces; /* by the planner */
    enum ht_status status = proved ? HT_OK : ht_schedule_verify(job->schedule, err, &job->proof);
    if (status == HT_INFEASIBLE) return infeasible(job, "oom", err);
    if (status == HT_FAILED && o->plan.load) {
        /* A graph that our builders made would be our bug; here the file is wrong. */
        struct ht_error why = *err;
        return ht_fail(err, HT_BAD_INPUT, "%s: %.900s", o->plan.load, why.text);
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

/* Takes the reserve of the GPU's backend when the plan sizes the micro-batches, or cuts the scenario's: the graph has their
   sizes. */
static enum ht_status take_planned_reserve(struct ht_job *job, struct ht_error *err)
{
    struct ht_schedule *s = job->schedule;
    if (!plan_sizes_batches(job)) ht_engine_give_reserve(&job->scenario, &job->reserve);
    int64_t largest = job->scenario.batch / s->n_micro_batches;
    for (int32_t j = 0; j < s->n_micro_batches && s->slices; j++)
        if (s->slices[j].count > largest) largest = s->slices[j].count;
    enum ht_status status =
        ht_engine_take_reserve(&job->platform, &job->scenario, largest, s->n_micro_batches, err, &job->reserve);
    for (int32_t r = 0; r < s->n_ranks; r++)
        ht_schedule_set_capacity(s, HT_DEVICE, r, ht_cluster_gpu_of(job->scenario.cluster, r)->memory_bytes);
    return status;
}

/* Takes the planner's schedule, which it has proved. Returns false without one, and on a machine's own GPUs: their memory changes
   behind the planner. */
static bool take_built(struct ht_job *job)
{
    struct ht_candidate x;
    if (job->platform.kind == HT_PLATFORM_GPU || !ht_plan_take_built(&job->plan, job->scenario.folds, &x)) return false;
    job->schedule = x.schedule;
    job->proof = x.proof;
    return true;
}

static enum ht_status build(struct ht_error *err, struct ht_job *job)
{
    enum ht_status status = HT_OK;
    if (!take_built(job)) status = job->system->build(job->system, &job->scenario, &job->plan, err, &job->schedule);
    if (status == HT_OK) status = check_control(job, err);
    bool sized = plan_sizes_batches(job) ||
                 (status == HT_OK && job->schedule->n_micro_batches != ht_scenario_micro_batches(&job->scenario));
    if (status == HT_OK && job->platform.kind == HT_PLATFORM_GPU && sized) return take_planned_reserve(job, err);
    if (status != HT_INFEASIBLE) return status;
    ht_schedule_destroy(job->schedule);
    ht_proof_free(&job->proof);
    job->schedule = NULL;
    return infeasible(job, "infeasible", err);
}

/* Checks that the platform has the cluster's devices. */
static enum ht_status check_devices(const struct ht_job *job, struct ht_error *err)
{
    const struct ht_cluster *cluster = job->scenario.cluster;
    const struct ht_gpu *gpu = ht_cluster_gpu_of(cluster, 0);
    bool on_gpu = job->platform.kind == HT_PLATFORM_GPU;
    if (job->platform.kind == HT_PLATFORM_EMULATED) return HT_OK; /* any devices */
    for (int64_t i = 1; i < cluster->n_gpus && !on_gpu; i++)
        if (ht_cluster_gpu_of(cluster, i)->cores == 0)
            return ht_fail(err, HT_INFEASIBLE,
                           "cluster '%s' has %lld devices, accelerators among them; several ranks train on emulated "
                           "devices, under --clock emu, or on the machine's own GPUs (--backend cuda)",
                           cluster->name, (long long)cluster->n_gpus);
    if (on_gpu && gpu->cores)
        return ht_fail(err, HT_BAD_INPUT, "cluster '%s' has an emulated device; expected a GPU for --backend cuda",
                       cluster->name);
    if (gpu->cores == 0 && !on_gpu)
        return ht_fail(
            err, HT_INFEASIBLE,
            "cluster '%s' has the accelerator %s; training is on the CPU (--cluster local, or under --clock emu), "
            "or on the machine's own GPU (--backend cuda)",
            cluster->name, gpu->name);
    return HT_OK;
}

/* Checks that the platform has directories if the job keeps anything on disk. */
static enum ht_status check_disks(const struct ht_job *job, struct ht_error *err)
{
    const struct ht_schedule *s = job->schedule;
    char text[HT_QUANTITY_TEXT];
    if (job->answer != HT_OK || job->platform.disks.options.n_dirs) return HT_OK;
    for (int32_t i = 0; i < ht_n_spaces(s); i++)
        if (ht_disks_is_space(s, i) && job->proof.spaces[i].peak_bytes)
            return ht_fail(err, HT_BAD_INPUT, "'%s' keeps %s on disk; expected --disk DIR", s->name,
                           ht_format_quantity(HT_BYTES, (double)job->proof.spaces[i].peak_bytes, text));
    return HT_OK;
}

enum ht_status ht_job_create(const struct ht_options *options, const char *system, const char *model,
                             enum ht_job_extent extent, struct ht_error *err, struct ht_job *job)
{
    *job = (struct ht_job){.status = "ok"};
    if (!system && options->n_words) system = options->words[0];
    enum ht_status status = HT_OK;
    if (extent == HT_JOB_TRAINABLE) status = ht_platform_read(options, "train", err, &job->platform);
    if (status == HT_OK)
        status = options->plan.load ? load_graph(options, err, job) : make_plan(options, system, model, err, job);
    job->scenario.folds = folds(options, extent);
    if (status == HT_OK && extent >= HT_JOB_PROVED && job->answer == HT_OK) {
        if (!job->schedule) status = build(err, job);
        if (status == HT_OK && job->schedule) status = verify(options, err, job);
    }
    if (status == HT_OK && extent >= HT_JOB_BOUNDED && job->answer == HT_OK) bound(job);
    bool priced = extent == HT_JOB_PRICED || extent == HT_JOB_TIMED || extent >= HT_JOB_COSTS;
    if (status == HT_OK && priced && job->answer == HT_OK) status = make_costs(err, job);
    if (status == HT_OK && extent == HT_JOB_TRAINABLE) status = check_devices(job, err);
    if (status == HT_OK && extent == HT_JOB_TRAINABLE) status = check_disks(job, err);
    if (status != HT_OK) ht_job_free(job);
    return status;
}

enum ht_status ht_job_dump(const struct ht_job *job, const char *path, struct ht_error *err)
{
    struct ht_output file;
    if (!path || !job->schedule) return HT_OK;
    enum ht_status status = ht_output_open(path, err, &file);
    if (status != HT_OK) return status;
    return ht_output_end(&file, ht_schedule_dump(job->schedule, file.file, err), err);
}
