#include "harness/result/variations.h"

#include "common/base/array.h"
#include "common/base/tasks.h"
#include "common/base/units.h"
#include "harness/result/break_even.h"
#include "harness/result/scaled.h"
#include "harness/result/table.h"
#include "harness/run/simulate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum ht_status ht_check_variations(const struct ht_options *o, struct ht_error *err)
{
    if (o->sim.runs && !o->sim.jitter_percent)
        return ht_fail(err, HT_BAD_INPUT, "--runs without --jitter; expected both: runs differ by their jitter alone");
    if (o->sim.replay && (o->sim.runs || o->sim.what_if || o->sim.break_even))
        return ht_fail(err, HT_BAD_INPUT,
                       "--runs, --what-if or --break-even beside --replay; expected no trace: they are simulated");
    return HT_OK;
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

struct runs {
    const struct ht_job *job;
    const struct ht_options *options;
    int64_t *ns; /* [runs + 1]: the last without jitter */
};

static enum ht_status run_seed(void *ctx, size_t i, struct ht_error *err)
{
    struct runs *r = ctx;
    struct ht_options o = *r->options;
    o.sim.seed = (int64_t)((uint64_t)o.sim.seed + i);
    if ((int64_t)i == o.sim.runs) o.sim.jitter_percent = 0;
    return ht_iteration_time(&o, r->job, INT64_MAX, err, &r->ns[i]);
}

static int by_value(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Returns the least value that so many percent of the sorted ones do not exceed. */
static double percentile_s(const int64_t *sorted, int64_t n, int64_t percent)
{
    int64_t k = (n * percent + 99) / 100;
    return 1e-9 * (double)sorted[k ? k - 1 : 0];
}

static json_t *runs_json(const struct ht_options *o, int64_t *ns)
{
    int64_t n = o->sim.runs;
    json_t *all = json_array();
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        json_array_append_new(all, json_real(1e-9 * (double)ns[i]));
        sum += 1e-9 * (double)ns[i];
    }
    qsort(ns, (size_t)n, sizeof(*ns), by_value);
    return json_pack("{s:I,s:I,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:o}", "jitter_percent", (json_int_t)o->sim.jitter_percent,
                     "seed", (json_int_t)o->sim.seed, "mean_s", sum / (double)n, "least_s", percentile_s(ns, n, 0),
                     "p5_s", percentile_s(ns, n, 5), "median_s", percentile_s(ns, n, 50), "p95_s",
                     percentile_s(ns, n, 95), "most_s", percentile_s(ns, n, 100), "without_s", 1e-9 * (double)ns[n],
                     "iteration_s", all);
}

static enum ht_status add_runs(const struct ht_job *job, const struct ht_options *o, struct ht_error *err, json_t *root)
{
    size_t n = (size_t)o->sim.runs + 1;
    struct runs r = {job, o, HT_NEW_ARRAY(int64_t, n)};
    double *bytes = HT_NEW_ARRAY(double, n);
    for (size_t i = 0; i < n; i++) bytes[i] = ht_simulation_bytes(job);
    struct ht_tasks tasks = {.name = "jitter", .noun = "runs", .n = n, .bytes = bytes, .ctx = &r, .run = run_seed};
    enum ht_status status = ht_tasks_run(&tasks, err);
    if (status == HT_OK) json_object_set_new(root, "runs", runs_json(o, r.ns));
    free(bytes);
    free(r.ns);
    return status;
}

/* ---- what if ----------------------------------------------------------------------------------------------------- */

static enum ht_status add_what_if(const struct ht_job *job, const struct ht_options *o, struct ht_error *err,
                                  json_t *root)
{
    struct ht_scaled points[2 * HT_N_RATES];
    size_t n = 0;
    for (int r = 0; r < HT_N_RATES; r++) {
        if (!ht_rate_is_used(job, (enum ht_rate)r)) continue;
        points[n++] = (struct ht_scaled){.rate = (enum ht_rate)r, .scale = 0.5};
        points[n++] = (struct ht_scaled){.rate = (enum ht_rate)r, .scale = 2};
    }
    enum ht_status status = ht_scaled_times(job, o, n, points, err);
    if (status != HT_OK) return status;
    json_t *list = json_array();
    for (size_t i = 0; i < n; i += 2)
        json_array_append_new(list,
                              json_pack("{s:s,s:f,s:f}", "rate", ht_rate_names[points[i].rate], "half_s",
                                        1e-9 * (double)points[i].ns, "double_s", 1e-9 * (double)points[i + 1].ns));
    json_object_set_new(root, "what_if", list);
    return HT_OK;
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

enum ht_status ht_variations(const struct ht_job *job, const struct ht_options *o, struct ht_error *err, json_t **out)
{
    enum ht_status status = HT_OK;
    json_t *root = json_object(), *rates = NULL;
    *out = NULL;
    if (o->sim.runs) status = add_runs(job, o, err, root);
    if (status == HT_OK && o->sim.what_if) status = add_what_if(job, o, err, root);
    if (status == HT_OK && o->sim.break_even) status = ht_break_even(job, o, err, &rates);
    if (rates) json_object_set_new(root, "break_even", rates);
    if (status == HT_OK && json_object_size(root))
        *out = root;
    else
        json_decref(root);
    return status;
}

/* ---- for people -------------------------------------------------------------------------------------------------- */

static double number(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

static const char *exact_time(const json_t *o, const char *key, char text[HT_QUANTITY_TEXT])
{
    return ht_format_quantity(HT_TIME, 1e9 * number(o, key), text);
}

static const char *time_of(const json_t *o, const char *key, char text[HT_QUANTITY_TEXT])
{
    return ht_format_rounded(HT_TIME, 1e9 * number(o, key), text);
}

static void print_runs(const json_t *runs, FILE *out)
{
    char a[HT_QUANTITY_TEXT], b[HT_QUANTITY_TEXT];
    double median = number(runs, "median_s"), without = number(runs, "without_s");
    fprintf(out, "\niteration time in %zu simulated runs, every duration spread by up to %lld%%\n",
            json_array_size(json_object_get(runs, "iteration_s")),
            (long long)json_integer_value(json_object_get(runs, "jitter_percent")));
    fprintf(out, "  median %s, %+.2f%% of %s without jitter\n", exact_time(runs, "median_s", a),
            100 * (median / without - 1), exact_time(runs, "without_s", b));
    fprintf(out, "  5%% to 95%% of the runs %s to %s;", exact_time(runs, "p5_s", a), exact_time(runs, "p95_s", b));
    fprintf(out, " all %s to %s\n", exact_time(runs, "least_s", a), exact_time(runs, "most_s", b));
}

static const char *title_of(const char *rate)
{
    static const char *const titles[HT_N_RATES] = {
        "GPU compute", "links between a node's GPUs", "network", "copies over PCIe", "CPU Adam", "disks"};
    for (int r = 0; r < HT_N_RATES; r++)
        if (!strcmp(rate, ht_rate_names[r])) return titles[r];
    return rate;
}

static void print_what_if(const json_t *list, double iteration_s, FILE *out)
{
    char text[HT_QUANTITY_TEXT];
    size_t i;
    const json_t *o;
    fprintf(out, "\niteration time, simulated, if one rate were another; the plan stays\n");
    struct ht_table *t = ht_table_create("<rate|>half as high|>|>twice as high|>");
    json_array_foreach(list, i, o)
    {
        static const char *const keys[] = {"half_s", "double_s"};
        ht_table_cell(t, "%s", title_of(json_string_value(json_object_get(o, "rate"))));
        for (size_t k = 0; k < HT_COUNT(keys); k++) {
            ht_table_cell(t, "%s", time_of(o, keys[k], text));
            double more = iteration_s > 0 ? 100 * (number(o, keys[k]) / iteration_s - 1) : 0;
            ht_table_cell(t, "%+.1f%%", fabs(more) < 0.05 ? 0 : more);
        }
    }
    ht_table_print(t, "  ", out);
}

/* Writes the rate that suffices with its unit. */
static const char *rate_of(const json_t *o, char text[HT_QUANTITY_TEXT])
{
    if (!strcmp(json_string_value(json_object_get(o, "unit")), "bytes_per_s"))
        return ht_format_rounded(HT_BYTES_PER_S, number(o, "needed"), text);
    snprintf(text, HT_QUANTITY_TEXT, "%.3g parameters/s", number(o, "needed"));
    return text;
}

static void print_break_even(const json_t *rates, FILE *out)
{
    char a[HT_QUANTITY_TEXT], b[HT_QUANTITY_TEXT], c[HT_QUANTITY_TEXT];
    const char *name;
    const json_t *o;
    fprintf(out, "\nrates that would suffice (simulated): an unlimited one takes at most 1%% off the iteration then\n");
    json_object_foreach((json_t *)rates, name, o)
    {
        if (json_is_null(o)) continue;
        fprintf(out, "  %s: %s%s, %.3g times what it is; %s then, %s if it were unlimited\n", title_of(name),
                json_is_true(json_object_get(o, "needed_is_at_most")) ? "at most " : "", rate_of(o, a),
                number(o, "needed_scale"), time_of(o, "iteration_time_needed_s", b),
                time_of(o, "iteration_time_free_s", c));
    }
}

void ht_variations_print(const json_t *v, double iteration_s, FILE *out)
{
    const json_t *runs = json_object_get(v, "runs"), *list = json_object_get(v, "what_if"),
                 *rates = json_object_get(v, "break_even");
    if (runs) print_runs(runs, out);
    if (list) print_what_if(list, iteration_s, out);
    if (rates) print_break_even(rates, out);
}
