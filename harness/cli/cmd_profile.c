/*
 * hetbench profile: the cost of each piece of work on this machine, measured by running it.
 *
 * The schedules themselves say which pieces there are: every system plans and builds the scenario, and every work that
 * occurs in one of them is measured there (common/backend/measure.h). A system that does not fit the device
 * is built for one that is large enough, since a cost does not depend on how much memory there is.
 *
 * Costs do not depend on the number of blocks either. Of a deep model only so many are run that their training state is
 * several times what the caches hold (HT_CACHES), and at least HT_FEWEST_BLOCKS; all blocks, where these are fewer.
 */
#include "harness/cli/commands.h"

#include "common/backend/measure.h"
#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/base/text.h"
#include "common/base/interrupt.h"
#include "common/base/units.h"
#include "harness/cli/lists.h"
#include "harness/run/engine.h"
#include "harness/result/heading.h"
#include "harness/run/job.h"
#include "harness/run/output.h"
#include "harness/run/progress.h"
#include "harness/result/provenance.h"
#include "harness/run/registry.h"
#include "harness/result/result.h"
#include "harness/result/table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HT_WARMUP = 2, HT_CACHES = 4, HT_FEWEST_BLOCKS = 2 };

#define HT_AMPLE_BYTES ((int64_t)1 << 50)

/* Returns the bytes of the last level of cache; 32 MiB where the system does not tell. */
static int64_t cache_bytes(void)
{
    long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
    return bytes > 0 ? bytes : 32L << 20;
}

static int64_t blocks_to_run(const struct ht_model *m, const struct ht_numerics *numerics)
{
    int64_t block_bytes = ht_model_state_bytes(numerics) * ht_unit_params(m, 1), want = HT_CACHES * cache_bytes();
    int64_t n = (want + block_bytes - 1) / block_bytes;
    if (n < HT_FEWEST_BLOCKS) n = HT_FEWEST_BLOCKS;
    return n < m->layers ? n : m->layers;
}

/* ---- progress -------------------------------------------------------------------------------------------------- */

struct progress {
    struct ht_progress line;
    const char *system;
    int32_t index, n_systems, iterations;
};

static enum ht_status show_progress(void *ctx, int32_t done, struct ht_error *err)
{
    struct progress *p = ctx;
    (void)err;
    ht_progress_show(&p->line, "%s (%d of %d), iteration %d of %d", p->system, p->index + 1, p->n_systems, done,
                     p->iterations);
    return HT_OK;
}

/* ---- measuring ------------------------------------------------------------------------------------------------- */

/* Builds the system's schedule with its own plan. *out NULL: it has none for this scenario, whatever the memory. */
static enum ht_status build(const struct ht_system *system, struct ht_scenario *scenario, struct ht_error *err,
                            struct ht_schedule **out)
{
    struct ht_profile *profile = ht_profile_modelled(scenario->cluster);
    struct ht_gpu *gpu = &scenario->cluster->nodes[0].groups[0].gpu;
    int64_t given = gpu->memory_bytes;
    enum ht_status status = HT_OK;
    *out = NULL;
    for (int attempt = 0; attempt < 2 && !*out; attempt++) {
        struct ht_plan plan = {0};
        gpu->memory_bytes = attempt ? HT_AMPLE_BYTES : given;
        status = system->plan(system, scenario, profile, NULL, err, &plan);
        if (status == HT_OK) status = system->build(system, scenario, &plan, err, out);
        ht_plan_free(&plan);
        if (status != HT_OK && status != HT_INFEASIBLE) break;
        if (*out && !attempt && ht_schedule_verify(*out, err, NULL) == HT_INFEASIBLE) {
            ht_schedule_destroy(*out);
            *out = NULL;
        }
    }
    gpu->memory_bytes = given;
    ht_profile_destroy(profile);
    return status == HT_INFEASIBLE ? HT_OK : status;
}

static enum ht_status measure(const struct ht_options *o, const struct ht_platform *platform,
                              const struct ht_words *systems, struct ht_scenario *scenario,
                              const struct ht_cpu_split *split, struct ht_error *err, struct ht_samples *samples)
{
    const struct ht_disk_options *disk = platform->disks.options.n_dirs ? &platform->disks.options : NULL;
    struct progress progress = {.line = ht_progress_begin("profile"),
                                .iterations = HT_WARMUP + (int32_t)o->measure.repeat};
    struct ht_measure_options options = {.model = scenario->model,
                                         .numerics = scenario->numerics,
                                         .tokens_per_iteration = scenario->batch * scenario->seq,
                                         .split = *split,
                                         .disk = disk,
                                         .on_gpu = platform->kind == HT_PLATFORM_GPU,
                                         .api = platform->cuda_api,
                                         .gpu = platform->device,
                                         .warmup = HT_WARMUP,
                                         .iterations = (int32_t)o->measure.repeat,
                                         .progress = show_progress,
                                         .progress_ctx = &progress};
    while (ht_system_at((size_t)progress.n_systems)) progress.n_systems++;
    enum ht_status status = HT_OK;
    for (; progress.index < progress.n_systems && status == HT_OK; progress.index++) {
        const struct ht_system *system = ht_system_at((size_t)progress.index);
        struct ht_schedule *schedule = NULL;
        if (!ht_words_have(systems, system->name)) continue;
        progress.system = system->name;
        status = build(system, scenario, err, &schedule);
        bool lacks_disk = schedule && !disk && ht_disks_holds(schedule);
        if (status == HT_OK && schedule && schedule->n_ranks == 1 && !lacks_disk)
            status = ht_measure(schedule, &options, err, samples);
        /* Leaves out systems that a GPU is too small for: other systems have most of their works, too. */
        if (status == HT_INFEASIBLE && options.on_gpu) {
            fprintf(stderr, "profile: %s is left out: %s\n", system->name, err->text);
            status = HT_OK;
        }
        ht_schedule_destroy(schedule);
        if (ht_interrupted()) status = HT_INTERRUPTED;
    }
    ht_progress_end(&progress.line);
    ht_samples_sort(samples);
    return status == HT_INTERRUPTED ? ht_fail(err, status, "interrupted; no profile was written") : status;
}

/* ---- reports --------------------------------------------------------------------------------------------- */

struct outcome {
    const struct ht_options *options;
    const struct ht_scenario *scenario; /* as asked for */
    int64_t blocks;                     /* that were run */
    struct ht_cpu_split split;
    struct ht_samples samples;
    struct ht_disk_rates disk; /* zero without --disk */
};

static json_t *costs_json(const struct ht_samples *samples)
{
    json_t *costs = json_array();
    for (size_t i = 0; i < samples->n; i++) {
        const struct ht_sample *row = &samples->rows[i];
        json_array_append_new(costs, json_pack("{s:s,s:I,s:I,s:I,s:I}", "work", row->key, "n", (json_int_t)row->n,
                                               "median_ns", (json_int_t)ht_sample_quantile(row, 0.5), "quartile1_ns",
                                               (json_int_t)ht_sample_quantile(row, 0.25), "quartile3_ns",
                                               (json_int_t)ht_sample_quantile(row, 0.75)));
    }
    return costs;
}

static json_t *outcome_json(const struct outcome *x)
{
    const struct ht_scenario *s = x->scenario;
    json_t *root = json_pack("{s:s,s:s,s:s,s:I,s:I,s:I,s:I,s:i,s:i,s:b,s:I}", "status", "ok", "obtained", "measured",
                             "model", s->model.name, "batch", (json_int_t)s->batch, "micro_batch",
                             (json_int_t)s->micro_batch, "seq", (json_int_t)s->seq, "blocks_run", (json_int_t)x->blocks,
                             "device_cores", x->split.n_device, "host_cores", x->split.n_host, "shared_cores",
                             (int)x->split.shared, "repeat", (json_int_t)x->options->measure.repeat);
    ht_provenance_add(root);
    json_object_set_new(root, "scenario", ht_scenario_json(s, HT_EQUAL_REPLICAS));
    if (x->disk.read_bytes_per_s > 0)
        json_object_set_new(root, "disk",
                            json_pack("{s:f,s:f,s:b}", "read_bytes_per_s", x->disk.read_bytes_per_s,
                                      "write_bytes_per_s", x->disk.write_bytes_per_s, "duplex", (int)x->disk.duplex));
    json_object_set_new(root, "costs", costs_json(&x->samples));
    return root;
}

static void print_disk(const struct ht_disk_rates *r)
{
    char read[HT_QUANTITY_TEXT], write[HT_QUANTITY_TEXT];
    printf("disk: reads %s, writes %s; both at once %s\n\n",
           ht_format_quantity(HT_BYTES_PER_S, r->read_bytes_per_s, read),
           ht_format_quantity(HT_BYTES_PER_S, r->write_bytes_per_s, write),
           r->duplex ? "do not slow each other down" : "share the time");
}

static void print(const struct outcome *x)
{
    const struct ht_scenario *s = x->scenario;
    const struct ht_gpu *gpu = ht_cluster_gpu_of(s->cluster, 0);
    printf("model %s, %lld of its %lld blocks run (measured)\n", s->model.name, (long long)x->blocks,
           (long long)s->model.layers);
    ht_scenario_print(s, HT_EQUAL_REPLICAS, stdout);
    putchar('\n');
    if (gpu->cores == 0)
        printf("GPU %s, %d host cores; median and quartiles over %lld iterations of every system\n\n", gpu->name,
               x->split.n_host, (long long)x->options->measure.repeat);
    else
        printf("%d device core%s, %d host core%s%s; median and quartiles over %lld iterations of every system\n\n",
               x->split.n_device, x->split.n_device == 1 ? "" : "s", x->split.n_host, x->split.n_host == 1 ? "" : "s",
               x->split.shared ? " (the same one)" : "", (long long)x->options->measure.repeat);
    if (x->disk.read_bytes_per_s > 0) print_disk(&x->disk);
    struct ht_table *t = ht_table_create("<work|>n|>median|>1st quartile|>3rd quartile");
    for (size_t i = 0; i < x->samples.n; i++) {
        const struct ht_sample *row = &x->samples.rows[i];
        char text[HT_QUANTITY_TEXT];
        ht_table_cell(t, "%s", row->key);
        ht_table_cell(t, "%zu", row->n);
        static const double quantiles[] = {0.5, 0.25, 0.75};
        for (size_t q = 0; q < HT_COUNT(quantiles); q++)
            ht_table_cell(t, "%s", ht_format_quantity(HT_TIME, (double)ht_sample_quantile(row, quantiles[q]), text));
    }
    ht_table_print(t, "  ", stdout);
}

/* Writes the profile file. Its source says where it comes from, cut to the room that there is. */
static enum ht_status save(const struct outcome *x, const char *path, struct ht_error *err)
{
    json_t *origin = ht_provenance_json();
    char text[2 * HT_SOURCE_BYTES], source[HT_SOURCE_BYTES], name[HT_NAME_BYTES];
    const struct ht_gpu *gpu = ht_cluster_gpu_of(x->scenario->cluster, 0);
    char device[HT_NAME_BYTES + 32];
    if (gpu->cores)
        snprintf(device, sizeof(device), "%d cores for the device", x->split.n_device);
    else
        snprintf(device, sizeof(device), "GPU %s, by its events", gpu->name);
    snprintf(text, sizeof(text), "measured on %s, %s, %d cores for the host; commit %s; %s",
             json_string_value(json_object_get(origin, "machine")), device, x->split.n_host,
             json_string_value(json_object_get(origin, "commit")),
             json_string_value(json_object_get(origin, "command")));
    ht_shown(text, source, sizeof(source)); /* a whole number of characters */
    snprintf(text, sizeof(text), "%.40s measured", x->scenario->model.name);
    ht_shown(text, name, sizeof(name));
    json_decref(origin);
    const struct ht_options *o = x->options;
    struct ht_profile *profile = ht_profile_create(name, source);
    ht_profile_label(profile, o->measure.for_device ? o->measure.for_device : "",
                     o->measure.for_host ? o->measure.for_host : "");
    if (x->disk.read_bytes_per_s > 0) ht_profile_set_disk(profile, x->disk);
    for (size_t i = 0; i < x->samples.n; i++)
        ht_profile_add(profile, x->samples.rows[i].key, ht_sample_quantile(&x->samples.rows[i], 0.5));
    struct ht_output file;
    enum ht_status status = ht_output_open(path, err, &file);
    if (status == HT_OK) status = ht_output_end(&file, ht_profile_save(profile, file.file, err), err);
    ht_profile_destroy(profile);
    return status;
}

/* Measures the scenario on the platform, and reports. */
static enum ht_status measure_and_report(const struct ht_platform *platform, const struct ht_words *systems,
                                         struct outcome *x, struct ht_scenario *scenario, struct ht_error *err)
{
    const struct ht_options *o = x->options;
    const struct ht_disk_options *disk = &platform->disks.options;
    struct ht_scenario small = *scenario;
    small.model.layers = x->blocks = blocks_to_run(&scenario->model, &scenario->numerics);
    int64_t cores = ht_cluster_gpu_of(scenario->cluster, 0)->cores;
    enum ht_status status =
        ht_cpu_split_cores(cores ? (int)cores : 1, err, &x->split); /* 1: beside a GPU, for its lanes */
    if (status == HT_OK && disk->n_dirs) status = ht_disks_measure(disk, err, &x->disk);
    if (status == HT_OK) status = measure(o, platform, systems, &small, &x->split, err, &x->samples);
    if (status == HT_OK && o->out) status = save(x, o->out, err);
    if (status == HT_OK && o->json)
        status = ht_json_print(outcome_json(x), "profile", err);
    else if (status == HT_OK)
        print(x);
    ht_samples_free(&x->samples);
    return status;
}

static enum ht_status run(const struct ht_options *o, struct ht_error *err)
{
    struct ht_scenario_request request = ht_job_request(o, NULL);
    struct ht_scenario scenario = {0};
    struct outcome x = {.options = o, .scenario = &scenario};
    struct ht_platform platform;
    struct ht_words systems;
    if (!request.model)
        return ht_fail(err, HT_BAD_INPUT, "--model is missing; hetbench list models shows those there are");
    enum ht_status status = ht_words_of_systems(o->compare.systems, true, err, &systems);
    if (status == HT_OK) status = ht_platform_read(o, "profile", err, &platform);
    if (status != HT_OK) goto out;
    request.cluster = "local";
    request.local_gpus = platform.gpus;
    request.n_local_gpus = platform.n_gpus;
    status = ht_scenario_create(&request, err, &scenario);
    if (status == HT_OK) status = measure_and_report(&platform, &systems, &x, &scenario, err);
    ht_scenario_free(&scenario);
    ht_platform_free(&platform);
out:
    ht_words_free(&systems);
    return status;
}

const struct ht_command ht_cmd_profile = {
    .name = "profile",
    .help = "measure what each piece of work costs on this machine"
            "\vEvery system's schedule of the scenario (or those of --systems) is run, one op at a time, on the cores "
            "and in the memory that "
            "training uses; a work's cost is the median of its durations. --out FILE is what --profile takes.",
    .example = "hetbench profile --model gpt-mini --out costs.yaml",
    .groups = HT_OPT_MODEL | HT_OPT_SHAPE | HT_OPT_PROFILE,
    .run = run,
};
