#include "harness/sweep/sweep.h"

#include "common/base/array.h"
#include "common/base/builtin.h"
#include "common/base/interrupt.h"
#include "harness/result/break_even.h"
#include "harness/result/evaluate.h"
#include "harness/result/provenance.h"
#include "harness/result/rows.h"
#include "harness/run/output.h"
#include "harness/run/simulate.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

enum { WRITE_EVERY_MS = 2000, ISSUE_AHEAD_DEFAULT = -1 };

struct sweep {
    const struct ht_experiment *e;
    const char *dir;
    uint64_t program; /* hash of the executable's file */
    json_t *root;     /* the document */
    json_t *rows, *traces, *old_rows;
    json_t *old_traces;
    const char *commit;
    struct ht_sweep_stats *stats;
    int64_t written_ms, shown_ms;
};

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- keys ------------------------------------------------------------------------------------------------------ */

/* 0 when it cannot be read: whoever needs the file will say so. */
static uint64_t hash_file(const char *path)
{
    FILE *in = fopen(path, "rb");
    if (!in) return 0;
    static const size_t block = 1 << 16;
    char *buf = ht_alloc(block);
    XXH3_state_t *state = XXH3_createState();
    XXH3_64bits_reset(state);
    for (size_t n; (n = fread(buf, 1, block, in)) > 0;) XXH3_64bits_update(state, buf, n);
    uint64_t hash = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    free(buf);
    fclose(in);
    return hash;
}

/* A built-in name is part of the program; a file counts by what is in it. */
static uint64_t hash_of_named(const char *name)
{
    return ht_is_path(name) ? hash_file(name) : 0;
}

static void key_of(const struct sweep *s, const struct ht_options *o, const char *system, const char *what,
                   char key[24])
{
    const struct ht_scenario_request *r = &o->request;
    char text[1024];
    snprintf(text, sizeof(text), "%016llx %s %s model=%s:%016llx cluster=%s:%016llx %lld %lld %lld %lld %s %lld %lld",
             (unsigned long long)s->program, what, system, r->model, (unsigned long long)hash_of_named(r->model),
             r->cluster, (unsigned long long)hash_of_named(r->cluster), (long long)r->batch, (long long)r->micro_batch,
             (long long)r->seq, (long long)r->device_memory_bytes, r->numerics ? r->numerics : "",
             (long long)o->iterations, (long long)o->warmup);
    size_t used = strlen(text);
    if (r->accumulate || r->control || r->clip > 0 || r->loss_scale)
        snprintf(text + used, sizeof(text) - used, " %s %s %.17g %s", r->accumulate ? r->accumulate : "",
                 r->control ? r->control : "", r->clip, r->loss_scale ? r->loss_scale : "");
    snprintf(key, 24, "%016llx", (unsigned long long)XXH3_64bits(text, strlen(text)));
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
    static const char *const columns[] = {
        "series",
        "system",
        "chosen",
        "model",
        "params",
        "cluster",
        "batch",
        "micro_batch",
        "seq",
        "numerics",
        "device_memory_bytes",
        "status",
        "iteration_time_s",
        "samples_per_s",
        "tokens_per_s",
        "tflops_per_gpu",
        "hardware_tflops_per_gpu",
        "mfu",
        "lower_bound_s",
        "lower_bound_of",
        "bubble_ratio",
        "device_peak_bytes",
        "host_peak_bytes",
        "break_even_pcie_bytes_per_s",
        "break_even_cpu_adam_params_per_s",
        "obtained",
        "commit",
        "reason",
    };
    ht_rows_csv(rows, columns, HT_COUNT(columns), value_of, out);
}

/* Rows and traces of an earlier run by key. What is no results file of ours is left alone by refusing to go on. */
static enum ht_status read_old(struct sweep *s, struct ht_error *err)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/results.json", s->dir);
    s->old_rows = json_object();
    s->old_traces = json_object();
    if (access(path, F_OK) != 0) return HT_OK;
    json_error_t why;
    json_t *old = json_load_file(path, 0, &why), *row;
    const json_t *rows = json_object_get(old, "rows"), *name = json_object_get(old, "experiment");
    if (!json_is_array(rows) || !json_is_string(name) || strcmp(json_string_value(name), s->e->name) != 0) {
        enum ht_status status =
            json_is_string(name)
                ? ht_fail(err, HT_BAD_INPUT, "%s: holds experiment '%s'; expected '%s', or another --out", path,
                          json_string_value(name), s->e->name)
                : ht_fail(err, HT_BAD_INPUT, "%s: is no results file of an experiment; expected one, or another --out",
                          path);
        json_decref(old);
        return status;
    }
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

static json_t *axes_json(const struct ht_experiment *e)
{
    json_t *axes = json_object();
    json_object_set_new(axes, ht_axis_names[HT_AXIS_MODELS], strings(e->models, e->n[HT_AXIS_MODELS]));
    for (int axis = 1; axis < HT_N_AXES; axis++) {
        json_t *list = json_array();
        for (int64_t i = 0; i < e->n[axis]; i++)
            json_array_append_new(list, e->values[axis][i] ? json_integer(e->values[axis][i]) : json_null());
        json_object_set_new(axes, ht_axis_names[axis], list);
    }
    return axes;
}

static json_t *document(const struct ht_experiment *e)
{
    json_t *root = json_pack("{s:s,s:s,s:s,s:s,s:b}", "experiment", e->name, "title", e->title[0] ? e->title : e->name,
                             "source", e->source, "obtained", "simulated", "complete", 0);
    json_t *from = ht_provenance_json(), *series = json_array();
    json_object_update(root, from);
    json_decref(from);
    json_object_set_new(root, "cluster", json_string(e->cluster));
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

/* The fastest of the last n rows, which are the variants of one series, stands for it. Where none runs, the last one
   does: variants are listed with the one that needs least memory last. */
static void choose(json_t *rows, int64_t n)
{
    size_t first = json_array_size(rows) - (size_t)n, best = first + (size_t)n - 1;
    double most = 0;
    for (size_t i = first; i < first + (size_t)n; i++) {
        json_t *row = json_array_get(rows, i);
        double rate = json_number_value(json_object_get(row, "samples_per_s"));
        json_object_set_new(row, "chosen", json_false());
        if (rate <= most) continue;
        most = rate;
        best = i;
    }
    json_object_set_new(json_array_get(rows, best), "chosen", json_true());
}

static enum ht_status write_files(struct sweep *s, bool complete, struct ht_error *err)
{
    json_object_set_new(s->root, "complete", json_boolean(complete));
    s->written_ms = now_ms();
    return ht_rows_write(s->root, s->dir, "results", write_csv, err);
}

/* ---- points ---------------------------------------------------------------------------------------------------- */

static struct ht_options options_of(const struct ht_experiment *e)
{
    struct ht_options o = {
        .iterations = e->iterations, .warmup = e->warmup, .issue_ahead = ISSUE_AHEAD_DEFAULT, .seed = 1};
    o.request.cluster = e->cluster;
    o.request.numerics = e->numerics;
    o.request.accumulate = e->accumulate;
    o.request.control = e->control;
    o.request.clip = e->clip;
    o.request.loss_scale = e->loss_scale;
    o.request.micro_batch = e->micro_batch;
    return o;
}

/* Runs one point. With `trace` its trace is written there; else the rates that would suffice are found where asked for. */
static enum ht_status simulate(const struct sweep *s, const struct ht_options *o, const char *system, const char *trace,
                               struct ht_error *err, json_t **out)
{
    struct ht_evaluation e;
    json_t *rates = NULL;
    enum ht_status status = ht_evaluate(o, system, NULL, err, &e);
    if (status != HT_OK) return status;
    if (trace)
        status = ht_save_trace(e.result.trace, trace, err);
    else if (s->e->break_even && e.job.answer == HT_OK)
        status = ht_break_even(&e.job, o, err, &rates);
    if (status == HT_OK) {
        *out = ht_evaluation_row(&e, NULL);
        if (rates) json_object_set_new(*out, "break_even", rates);
    }
    ht_evaluation_free(&e);
    return status;
}

static void progress(struct sweep *s, int64_t done, const char *what)
{
    int64_t now = now_ms();
    bool terminal = isatty(STDERR_FILENO);
    if (done < s->stats->points && now - s->shown_ms < (terminal ? 100 : 5000)) return;
    s->shown_ms = now;
    fprintf(stderr, "%s%s: %lld of %lld points%s%s%s", terminal ? "\r\033[K" : "", s->e->name, (long long)done,
            (long long)s->stats->points, *what ? ", now " : "", what, terminal && done < s->stats->points ? "" : "\n");
}

static enum ht_status run_points(struct sweep *s, struct ht_error *err)
{
    const struct ht_experiment *e = s->e;
    for (int64_t i = 0; i < s->stats->points; i++) {
        if (ht_interrupted()) {
            s->stats->interrupted = true;
            return HT_OK;
        }
        struct ht_point p = ht_experiment_point(e, i);
        const struct ht_series *series = &e->series[p.series];
        const char *system = series->systems[p.variant];
        struct ht_options o = options_of(e);
        o.request.model = e->models[p.at[HT_AXIS_MODELS]];
        o.request.batch = e->values[HT_AXIS_BATCHES][p.at[HT_AXIS_BATCHES]];
        o.request.device_memory_bytes = e->values[HT_AXIS_MEMORY][p.at[HT_AXIS_MEMORY]];
        o.request.seq = e->values[HT_AXIS_SEQS][p.at[HT_AXIS_SEQS]];
        char key[24], what[256];
        key_of(s, &o, system, e->break_even ? "row break-even" : "row", key);
        snprintf(what, sizeof(what), "%s on %s", system, o.request.model);
        progress(s, i, what);
        json_t *row = json_incref(json_object_get(s->old_rows, key));
        if (row) {
            s->stats->reused++;
        } else {
            enum ht_status status = simulate(s, &o, system, NULL, err, &row);
            if (status == HT_INTERRUPTED) {
                s->stats->interrupted = true;
                return HT_OK;
            }
            if (status != HT_OK) {
                struct ht_error why = *err;
                return ht_fail(err, status, "%s, %s: %.800s", e->name, what, why.text);
            }
            s->stats->simulated++;
        }
        json_object_set_new(row, "series", json_string(series->label));
        json_object_set_new(row, "device_memory_bytes",
                            o.request.device_memory_bytes ? json_integer(o.request.device_memory_bytes) : json_null());
        json_object_set_new(row, "commit", json_string(s->commit));
        json_object_set_new(row, "key", json_string(key));
        json_array_append_new(s->rows, row);
        if (p.variant == series->n_systems - 1) choose(s->rows, series->n_systems);
        if (now_ms() - s->written_ms > WRITE_EVERY_MS) {
            enum ht_status status = write_files(s, false, err);
            if (status != HT_OK) return status;
        }
    }
    return HT_OK;
}

/* The traces that figures of timelines are made from. A system that does not fit has none. */
static enum ht_status run_timelines(struct sweep *s, struct ht_error *err)
{
    const struct ht_timelines *t = &s->e->timelines;
    for (int64_t i = 0; i < t->n_systems; i++) {
        if (ht_interrupted()) {
            s->stats->interrupted = true;
            return HT_OK;
        }
        struct ht_options o = options_of(s->e);
        o.request.model = t->model;
        o.request.batch = t->batch;
        o.request.device_memory_bytes = t->device_memory_bytes;
        char key[24], name[256], path[4096];
        key_of(s, &o, t->systems[i], "trace", key);
        snprintf(name, sizeof(name), "%s.trace.json", t->systems[i]);
        snprintf(path, sizeof(path), "%s/%s", s->dir, name);
        json_t *old = json_object_get(s->old_traces, key);
        if (old && (access(path, R_OK) == 0 || json_is_null(json_object_get(old, "file")))) {
            json_array_append(s->traces, old);
            continue;
        }
        json_t *row = NULL;
        enum ht_status status = simulate(s, &o, t->systems[i], path, err, &row);
        if (status == HT_INTERRUPTED) {
            s->stats->interrupted = true;
            return HT_OK;
        }
        if (status != HT_OK) return status;
        bool ran = json_object_get(row, "iteration_time_s") != NULL;
        json_object_set_new(row, "file", ran ? json_string(name) : json_null());
        json_object_set_new(row, "commit", json_string(s->commit));
        json_object_set_new(row, "key", json_string(key));
        json_array_append_new(s->traces, row);
    }
    return HT_OK;
}

enum ht_status ht_sweep_run(const struct ht_experiment *e, const char *dir, struct ht_error *err,
                            struct ht_sweep_stats *stats, json_t **out)
{
    *stats = (struct ht_sweep_stats){.points = ht_experiment_points(e)};
    struct sweep s = {.e = e, .dir = dir, .stats = stats, .program = hash_file("/proc/self/exe")};
    s.root = document(e);
    s.rows = json_object_get(s.root, "rows");
    s.traces = json_object_get(s.root, "traces");
    s.commit = json_string_value(json_object_get(s.root, "commit"));
    s.shown_ms = s.written_ms = now_ms();
    enum ht_status status = ht_make_directory(dir, err);
    if (status == HT_OK) status = read_old(&s, err);
    if (status == HT_OK) status = run_points(&s, err);
    if (status == HT_OK && !stats->interrupted) status = run_timelines(&s, err);
    /* What was done is kept, also when a point failed. */
    if (s.old_rows && (status == HT_OK || json_array_size(s.rows))) {
        struct ht_error also = {0};
        enum ht_status written = write_files(&s, status == HT_OK && !stats->interrupted, &also);
        if (status == HT_OK && written != HT_OK) *err = also, status = written;
    }
    if (status == HT_OK && !stats->interrupted) progress(&s, stats->points, "");
    if (status == HT_OK && stats->interrupted)
        status = ht_fail(err, HT_INTERRUPTED,
                         "interrupted after %zu of %lld points; %s/results.json has them, and the "
                         "same command goes on from there",
                         json_array_size(s.rows), (long long)stats->points, dir);
    json_decref(s.old_rows);
    json_decref(s.old_traces);
    *out = s.root;
    return status;
}
