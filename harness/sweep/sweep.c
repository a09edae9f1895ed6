#include "harness/sweep/sweep.h"

#include "common/base/array.h"
#include "common/base/builtin.h"
#include "common/base/clock.h"
#include "common/base/interrupt.h"
#include "common/base/tasks.h"
#include "common/ckpt/durable.h"
#include "common/model/zoo.h"
#include "harness/result/break_even.h"
#include "harness/result/scaled.h"
#include "harness/result/evaluate.h"
#include "harness/result/provenance.h"
#include "harness/result/rows.h"
#include "harness/run/output.h"
#include "harness/run/registry.h"
#include "harness/run/simulate.h"
#include "harness/sweep/micro_batch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WRITE_EVERY_S = 2 };

/* A point, or a system of the timelines. */
struct slot {
    struct ht_options options;
    const char *system;             /* with its settings */
    const struct ht_series *series; /* NULL: of the timelines */
    int64_t batch_per_node;         /* 0: the batch is of all nodes */
    double bytes;                   /* of memory that it takes while it runs, estimated */
    char key[24];
    json_t *found; /* the row that its task has made, until the pool takes note of it */
    json_t *row;   /* NULL: not there yet */
    bool reused;   /* the row is of an earlier run */
};

struct sweep {
    const struct ht_experiment *e;
    const char *dir;
    uint64_t program; /* hash of the executable's file */
    json_t *root;     /* the document */
    json_t *old_rows, *old_traces;
    const char *commit;
    struct slot *slots; /* points in the experiment's order, then timelines */
    size_t n_points, n_slots;
    size_t *todo; /* slots without a row of an earlier run */
    size_t n_todo;
    double written_s;
};

/* ---- keys ------------------------------------------------------------------------------------------------------ */

/* Returns the hash of a file; 0 when it cannot be read: the point that needs it will report that. */
static uint64_t hash_of_file(const char *path)
{
    struct ht_error ignored;
    int64_t bytes;
    uint64_t hash = 0;
    return ht_hash_file(path, &ignored, &hash, &bytes) == HT_OK ? hash : 0;
}

/* Adds a name or nothing, and the contents of the file that it names. A built-in name is part of the program. */
static void add_name(struct ht_hash *hash, const char *name)
{
    uint64_t contents = name && ht_is_path(name) ? hash_of_file(name) : 0;
    ht_hash_add(hash, name ? name : "", name ? strlen(name) + 1 : 1);
    ht_hash_add(hash, &contents, sizeof(contents));
}

/* Writes the key of a row: a hash of all that it depends on, the program among it. */
static void key_of(const struct sweep *s, const struct ht_options *o, const char *system, const char *what,
                   char key[24])
{
    const struct ht_scenario_request *r = &o->request;
    const char *const names[] = {what,          system,     r->model,      r->cluster,  r->numerics,
                                 r->accumulate, r->control, r->loss_scale, r->software, r->only};
    const double numbers[] = {(double)r->batch,
                              (double)r->micro_batch,
                              (double)r->seq,
                              r->clip,
                              r->initial_scale,
                              (double)r->growth_interval,
                              (double)r->device_memory_bytes,
                              (double)r->host_memory_bytes,
                              (double)r->ssds,
                              (double)o->sim.iterations,
                              (double)o->sim.warmup};
    struct ht_hash *hash = ht_hash_begin();
    ht_hash_add(hash, &s->program, sizeof(s->program));
    for (size_t i = 0; i < HT_COUNT(names); i++) add_name(hash, names[i]);
    for (int64_t i = 0; i < o->sim.n_bad; i++) add_name(hash, o->sim.bad[i]);
    ht_hash_add(hash, numbers, sizeof(numbers));
    snprintf(key, 24, "%016llx", (unsigned long long)ht_hash_end(hash));
}

/* ---- files ----------------------------------------------------------------------------------------------------- */

static const json_t *value_of(const json_t *row, const char *column)
{
    if (strncmp(column, "break_even_", 11) != 0) return ht_row_value(row, column);
    const json_t *rate =
        json_object_get(json_object_get(row, "break_even"),
                        strstr(column, "pcie") ? ht_rate_names[HT_RATE_PCIE] : ht_rate_names[HT_RATE_CPU_ADAM]);
    return json_object_get(rate, "needed");
}

static void write_csv(const json_t *rows, FILE *out)
{
    /* clang-format off */
    static const char *const columns[] = {
        "series", "system", "variant", "chosen", "model", "params", "cluster", "batch", "micro_batch", "seq",
        "numerics", "software", "device_memory_bytes", "host_memory_bytes", "ssds", "mix", "status", "iteration_time_s",
        "ok_iteration_time_s", "bad_iteration_time_s", "samples_per_s", "tokens_per_s", "tflops_per_gpu",
        "hardware_tflops_per_gpu", "mfu", "price_usd", "tokens_per_s_per_1000_usd", "tflops_per_1000_usd",
        "lower_bound_s", "lower_bound_of", "bubble_ratio", "device_peak_bytes", "host_peak_bytes",
        "break_even_pcie_bytes_per_s", "break_even_cpu_adam_params_per_s", "figure", "along", "obtained",
        "commit", "reason",
    };
    /* clang-format on */
    ht_rows_csv(rows, columns, HT_COUNT(columns), value_of, out);
}

enum ht_status ht_sweep_open_results(const char *dir, const char *experiment, struct ht_error *err, json_t **out)
{
    char path[4096];
    *out = NULL;
    snprintf(path, sizeof(path), "%s/results.json", dir);
    if (access(path, F_OK) != 0) return HT_OK;
    json_error_t why;
    json_t *old = json_load_file(path, 0, &why);
    const json_t *rows = json_object_get(old, "rows"), *name = json_object_get(old, "experiment");
    if (!json_is_array(rows) || !json_is_string(name) || strcmp(json_string_value(name), experiment) != 0) {
        enum ht_status status =
            json_is_string(name)
                ? ht_fail(err, HT_BAD_INPUT, "%s: holds experiment '%s'; expected '%s', or another --out", path,
                          json_string_value(name), experiment)
                : ht_fail(err, HT_BAD_INPUT, "%s: not a results file of an experiment; expected one, or another --out",
                          path);
        json_decref(old);
        return status;
    }
    *out = old;
    return HT_OK;
}

/* Reads the rows and traces of an earlier run by key. */
static enum ht_status read_old(struct sweep *s, struct ht_error *err)
{
    json_t *old, *row;
    s->old_rows = json_object();
    s->old_traces = json_object();
    enum ht_status status = ht_sweep_open_results(s->dir, s->e->name, err, &old);
    if (status != HT_OK || !old) return status;
    const json_t *rows = json_object_get(old, "rows");
    size_t i;
    const json_t *lists[] = {rows, json_object_get(old, "traces")};
    for (int traces = 0; traces < 2; traces++) {
        json_array_foreach(lists[traces], i, row)
        {
            const char *key = json_string_value(json_object_get(row, "key"));
            const char *commit = json_string_value(json_object_get(row, "commit"));
            if (key && commit && !strcmp(commit, s->commit))
                json_object_set(traces ? s->old_traces : s->old_rows, key, row);
        }
    }
    json_decref(old);
    return HT_OK;
}

/* ---- the document ---------------------------------------------------------------------------------------------- */

static json_t *strings(const char *const *list, int64_t n)
{
    json_t *array = json_array();
    for (int64_t i = 0; i < n; i++) json_array_append_new(array, json_string(list[i]));
    return array;
}

/* Returns an entry of a list; null for the default. */
static json_t *entry_json(const struct ht_experiment *e, int axis, int64_t i)
{
    if (axis == HT_AXIS_MIXES && e->mixes[i][0]) return json_string(e->mixes[i]);
    return e->values[axis][i] ? json_integer(e->values[axis][i]) : json_null();
}

static json_t *axes_json(const struct ht_experiment *e)
{
    json_t *axes = json_object();
    json_object_set_new(axes, ht_axis_names[HT_AXIS_MODELS], strings(e->models, e->n[HT_AXIS_MODELS]));
    for (int axis = 1; axis < HT_N_AXES; axis++) {
        json_t *list = json_array();
        for (int64_t i = 0; i < e->n[axis]; i++) json_array_append_new(list, entry_json(e, axis, i));
        json_object_set_new(axes, ht_axis_names[axis], list);
    }
    return axes;
}

static json_t *document(const struct ht_experiment *e)
{
    json_t *root = json_pack("{s:s,s:s,s:s,s:s,s:b}", "experiment", e->name, "title", e->title[0] ? e->title : e->name,
                             "source", e->source, "obtained", "simulated", "complete", 0);
    json_t *series = json_array();
    ht_provenance_add(root);
    json_object_set_new(root, "cluster", e->cluster[0] ? json_string(e->cluster) : json_null());
    json_object_set_new(root, "figure", json_string(ht_figure_names[e->figure]));
    json_object_set_new(root, "batches_per_node", json_boolean(e->per_node));
    json_object_set_new(root, "axes", axes_json(e));
    json_object_set_new(root, "along", json_string(ht_axis_names[e->along]));
    for (int64_t i = 0; i < e->n_series; i++)
        json_array_append_new(series, json_pack("{s:s,s:o}", "label", e->series[i].label, "systems",
                                                strings(e->series[i].systems, e->series[i].n_systems)));
    json_object_set_new(root, "series", series);
    json_object_set_new(root, "rows", json_array());
    json_object_set_new(root, "traces", json_array());
    return root;
}

/* Marks the row that stands for a series: the fastest of its n variants. Where none runs it is the last one: variants
   are listed with the one that needs least memory last. Marks none while a variant is missing. */
static void choose(const struct slot *variants, size_t n)
{
    size_t best = n - 1, there = 0;
    double most = 0;
    for (size_t i = 0; i < n; i++) {
        double rate = json_number_value(json_object_get(variants[i].row, "samples_per_s"));
        there += variants[i].row != NULL;
        if (rate <= most) continue;
        most = rate;
        best = i;
    }
    for (size_t i = 0; i < n; i++) {
        if (there == n)
            json_object_set_new(variants[i].row, "chosen", json_boolean(i == best));
        else if (variants[i].row)
            json_object_del(variants[i].row, "chosen"); /* an earlier run's */
    }
}

/* Puts the rows that are done into the document, in the experiment's order. */
static void collect(struct sweep *s)
{
    json_t *rows = json_array(), *traces = json_array();
    for (size_t i = 0; i < s->n_points; i += (size_t)s->slots[i].series->n_systems)
        choose(&s->slots[i], (size_t)s->slots[i].series->n_systems);
    for (size_t i = 0; i < s->n_slots; i++)
        if (s->slots[i].row) json_array_append(s->slots[i].series ? rows : traces, s->slots[i].row);
    json_object_set_new(s->root, "rows", rows);
    json_object_set_new(s->root, "traces", traces);
}

static enum ht_status write_files(struct sweep *s, bool complete, struct ht_error *err)
{
    collect(s);
    json_object_set_new(s->root, "complete", json_boolean(complete));
    enum ht_status status = ht_rows_write(s->root, "experiment", s->dir, "results", write_csv, err);
    s->written_s = ht_now_s();
    return status;
}

/* ---- points ---------------------------------------------------------------------------------------------------- */

static struct ht_options options_of(const struct ht_experiment *e)
{
    struct ht_options o = ht_options_default();
    o.request = e->request;
    o.request.cluster = e->cluster;
    o.sim = e->sim;
    return o;
}

/* Writes the name of a timeline's file in the experiment's folder. */
static void trace_name(const struct slot *slot, char name[256])
{
    snprintf(name, 256, "%s.trace.json", slot->system);
}

static void trace_path(const struct sweep *s, const struct slot *slot, char path[HT_PATH_BYTES])
{
    char name[256];
    trace_name(slot, name);
    snprintf(path, HT_PATH_BYTES, "%s/%s", s->dir, name);
}

static void finish_row(const struct sweep *s, const struct slot *slot, json_t *row)
{
    if (slot->series) {
        int64_t budget = slot->options.request.device_memory_bytes;
        json_object_set_new(row, "series", json_string(slot->series->label));
        json_object_set_new(row, "device_memory_bytes", budget ? json_integer(budget) : json_null());
        int64_t host = slot->options.request.host_memory_bytes, ssds = slot->options.request.ssds;
        json_object_set_new(row, "host_memory_bytes", host ? json_integer(host) : json_null());
        json_object_set_new(row, "ssds", ssds ? json_integer(ssds) : json_null());
        json_object_set_new(row, "variant", json_string(slot->system));
        json_object_set_new(row, "figure", json_string(ht_figure_names[s->e->figure]));
        json_object_set_new(row, "along", json_string(ht_axis_names[s->e->along]));
        if (slot->options.request.only) json_object_set_new(row, "mix", json_string(slot->options.request.only));
        if (slot->batch_per_node) json_object_set_new(row, "batch_per_node", json_integer(slot->batch_per_node));
    } else {
        char name[256];
        trace_name(slot, name);
        bool ran = json_object_get(row, "iteration_time_s") != NULL;
        json_object_set_new(row, "file", ran ? json_string(name) : json_null());
    }
    json_object_set_new(row, "commit", json_string(s->commit));
    json_object_set_new(row, "key", json_string(slot->key));
}

/* Takes over the row of an earlier run. A trace counts with its file only. */
static void reuse(const struct sweep *s, struct slot *slot)
{
    json_t *old = json_object_get(slot->series ? s->old_rows : s->old_traces, slot->key);
    char path[HT_PATH_BYTES];
    trace_path(s, slot, path);
    if (!slot->series && access(path, R_OK) != 0 && !json_is_null(json_object_get(old, "file"))) return;
    slot->reused = old != NULL;
    slot->row = json_copy(old); /* two series may have the same point */
    if (old && slot->series) finish_row(s, slot, slot->row);
}

static bool is_listed_before(const struct ht_timelines *t, int64_t i)
{
    for (int64_t j = 0; j < i; j++)
        if (!strcmp(t->systems[j], t->systems[i])) return true;
    return false;
}

static enum ht_status add_slot(struct sweep *s, struct slot slot, struct ht_error *err)
{
    struct ht_model model;
    enum ht_status status = ht_model_load(slot.options.request.model, err, &model);
    if (status != HT_OK) return status;
    slot.bytes = ht_evaluation_bytes(&slot.options, ht_model_units(&model));
    key_of(s, &slot.options, slot.system,
           !slot.series             ? "trace"
           : s->e->best_micro_batch ? "row best"
           : s->e->break_even       ? "row break-even"
                                    : "row",
           slot.key);
    reuse(s, &slot);
    if (!slot.row) s->todo[s->n_todo++] = s->n_slots;
    s->slots[s->n_slots++] = slot;
    return HT_OK;
}

static enum ht_status add_slots(struct sweep *s, struct ht_error *err)
{
    const struct ht_experiment *e = s->e;
    const struct ht_timelines *t = &e->timelines;
    enum ht_status status = HT_OK;
    s->slots = HT_NEW_ARRAY(struct slot, s->n_points + (size_t)t->n_systems);
    s->todo = HT_NEW_ARRAY(size_t, s->n_points + (size_t)t->n_systems);
    for (size_t i = 0; i < s->n_points && status == HT_OK; i++) {
        struct ht_point p = ht_experiment_point(e, (int64_t)i);
        struct slot slot = {.options = options_of(e), .series = &e->series[p.series]};
        struct ht_scenario_request *r = &slot.options.request;
        slot.system = slot.series->systems[p.variant];
        r->model = e->models[p.at[HT_AXIS_MODELS]];
        r->cluster = e->clusters[p.at[HT_AXIS_MODELS]];
        r->batch = ht_experiment_batch(e, p.at);
        if (e->values[HT_AXIS_MICRO_BATCHES][p.at[HT_AXIS_MICRO_BATCHES]])
            r->micro_batch = e->values[HT_AXIS_MICRO_BATCHES][p.at[HT_AXIS_MICRO_BATCHES]];
        slot.batch_per_node = e->per_node ? e->values[HT_AXIS_BATCHES][p.at[HT_AXIS_BATCHES]] : 0;
        r->device_memory_bytes = e->values[HT_AXIS_MEMORY][p.at[HT_AXIS_MEMORY]];
        r->seq = e->values[HT_AXIS_SEQS][p.at[HT_AXIS_SEQS]];
        r->host_memory_bytes = e->values[HT_AXIS_HOST_MEMORY][p.at[HT_AXIS_HOST_MEMORY]];
        r->ssds = e->values[HT_AXIS_SSDS][p.at[HT_AXIS_SSDS]];
        const char *mix = e->mixes[p.at[HT_AXIS_MIXES]];
        r->only = *mix ? mix : NULL;
        status = add_slot(s, slot, err);
    }
    for (int64_t i = 0; i < t->n_systems && status == HT_OK; i++) {
        struct slot slot = {.options = options_of(e), .system = t->systems[i]};
        slot.options.request.model = t->model;
        slot.options.request.batch = t->batch;
        slot.options.request.device_memory_bytes = t->device_memory_bytes;
        if (!is_listed_before(t, i)) status = add_slot(s, slot, err);
    }
    return status;
}

/* Evaluates a slot. A point also gets its break-even rates where the experiment asks for them; a timeline leaves its
   trace in a file, unless the system does not fit. */
static enum ht_status evaluate(const struct sweep *s, const struct slot *slot, struct ht_error *err, json_t **out)
{
    struct ht_evaluation e;
    char path[HT_PATH_BYTES], words[HT_VARIANT_MAX];
    json_t *rates = NULL;
    struct ht_options options = slot->options;
    options.plan.folds = slot->series; /* a timeline writes out a trace */
    snprintf(words, sizeof(words), "%s", slot->system);
    const char *system = ht_variant_of(words, &options);
    enum ht_status status = s->e->best_micro_batch && slot->series ? ht_evaluate_best(&options, system, NULL, err, &e)
                                                                   : ht_evaluate(&options, system, NULL, err, &e);
    if (status != HT_OK) return status;
    trace_path(s, slot, path);
    if (!slot->series) {
        status = ht_make_directory(s->dir, err);
        if (status == HT_OK) status = ht_save_trace(e.result.trace, path, err);
    } else if (s->e->break_even && e.job.answer == HT_OK) {
        status = ht_break_even(&e.job, &options, err, &rates);
    }
    if (status == HT_OK) {
        *out = ht_evaluation_row(&e, NULL);
        if (rates) json_object_set_new(*out, "break_even", rates);
        finish_row(s, slot, *out);
    }
    ht_evaluation_free(&e);
    return status;
}

/* Makes the row of a mix whose number of devices a system does not take. */
static enum ht_status refuse(const struct sweep *s, const struct slot *slot, struct ht_error *err, json_t **out)
{
    struct ht_model model;
    struct ht_options options = slot->options;
    char words[HT_VARIANT_MAX];
    struct ht_error why = *err;
    enum ht_status status = ht_model_load(options.request.model, err, &model);
    if (status != HT_OK) return status;
    snprintf(words, sizeof(words), "%s", slot->system);
    const char *system = ht_variant_of(words, &options);
    *out = ht_refused_row(&options, system, options.request.model, &model, NULL, &why);
    finish_row(s, slot, *out);
    return HT_OK;
}

static enum ht_status run_slot(void *ctx, size_t i, struct ht_error *err)
{
    const struct sweep *s = ctx;
    struct slot *slot = &s->slots[s->todo[i]];
    enum ht_status status = evaluate(s, slot, err, &slot->found);
    if (status == HT_BAD_INPUT && slot->options.request.only) status = refuse(s, slot, err, &slot->found);
    if (status == HT_OK || status == HT_INTERRUPTED) return status;
    struct ht_error why = *err;
    return ht_fail(err, status, "%s, %s on %s: %.800s", s->e->name, slot->system, slot->options.request.model,
                   why.text);
}

static enum ht_status slot_finished(void *ctx, size_t i, struct ht_error *err)
{
    struct sweep *s = ctx;
    struct slot *slot = &s->slots[s->todo[i]];
    slot->row = slot->found;
    return ht_now_s() - s->written_s > WRITE_EVERY_S ? write_files(s, false, err) : HT_OK;
}

static enum ht_status run_slots(struct sweep *s, struct ht_error *err)
{
    double *bytes = HT_NEW_ARRAY(double, s->n_todo);
    for (size_t i = 0; i < s->n_todo; i++) bytes[i] = s->slots[s->todo[i]].bytes;
    struct ht_tasks tasks = {.name = s->e->name,
                             .noun = "simulations",
                             .n = s->n_todo,
                             .bytes = bytes,
                             .ctx = s,
                             .run = run_slot,
                             .finished = slot_finished};
    enum ht_status status = ht_tasks_run(&tasks, err);
    free(bytes);
    return status;
}

static struct ht_sweep_stats stats_of(const struct sweep *s)
{
    struct ht_sweep_stats stats = {.points = (int64_t)s->n_points};
    for (size_t i = 0; i < s->n_slots; i++) {
        if (!s->slots[i].series || !s->slots[i].row) continue;
        stats.reused += s->slots[i].reused;
        stats.simulated += !s->slots[i].reused;
    }
    return stats;
}

static void sweep_free(struct sweep *s)
{
    for (size_t i = 0; i < s->n_slots; i++) json_decref(s->slots[i].row);
    free(s->slots);
    free(s->todo);
    json_decref(s->old_rows);
    json_decref(s->old_traces);
}

enum ht_status ht_sweep_run(const struct ht_experiment *e, const char *dir, struct ht_error *err,
                            struct ht_sweep_stats *stats, json_t **out)
{
    struct sweep s = {.e = e,
                      .dir = dir,
                      .program = hash_of_file("/proc/self/exe"),
                      .root = document(e),
                      .n_points = (size_t)ht_experiment_points(e),
                      .written_s = ht_now_s()};
    s.commit = json_string_value(json_object_get(s.root, "commit"));
    enum ht_status status = ht_directory_check(dir, err);
    if (status == HT_OK) status = read_old(&s, err);
    if (status == HT_OK) status = add_slots(&s, err);
    bool began = status == HT_OK;
    if (began) status = run_slots(&s, err);
    *stats = stats_of(&s);
    int64_t there = stats->simulated + stats->reused;
    /* Keeps what is done, also when a point failed. */
    if (began && (there || status == HT_OK)) {
        struct ht_error also = {0};
        enum ht_status written = write_files(&s, status == HT_OK, &also);
        if (written != HT_OK && (status == HT_OK || status == HT_INTERRUPTED)) *err = also, status = written;
    }
    if (status == HT_INTERRUPTED && !there)
        ht_fail(err, HT_INTERRUPTED, "interrupted before the first of %lld points; nothing was written",
                (long long)stats->points);
    else if (status == HT_INTERRUPTED)
        ht_fail(err, HT_INTERRUPTED,
                "interrupted after %lld of %lld points; %s/results.json has them, and the same command goes on from "
                "there",
                (long long)there, (long long)stats->points, dir);
    sweep_free(&s);
    *out = s.root;
    return status;
}
