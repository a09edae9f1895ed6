#include "harness/days/study.h"

#include "harness/result/table.h"

static double number(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

static const char *text(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

static void print_head(const json_t *s, FILE *out)
{
    const json_t *times = json_object_get(s, "times"), *from = json_object_get(times, "sources"), *instance;
    size_t i;
    fprintf(out, "%s: %s, batch %.0f, over %.1f h of %s (simulated)\n", text(s, "label"), text(s, "model"),
            number(s, "batch"), number(s, "hours"), text(s, "day"));
    json_array_foreach(json_object_get(s, "instances"), i, instance)
    {
        const char *name = text(instance, "name");
        fprintf(out, "  %s: %.0f x %s, ", name && name[0] ? name : "a node", number(instance, "gpus"),
                text(instance, "gpu"));
        if (number(instance, "usd_per_hour") > 0)
            fprintf(out, "%.3g USD an hour (%s)\n", number(instance, "usd_per_hour"), text(instance, "price_source"));
        else
            fputs("price not known (--price)\n", out);
    }
    fprintf(out,
            "  nodes are lost %.2f times an hour; detection %.3g s (%s), planning %.3g s (%s), relaunch %.3g s (%s), "
            "remote store %.3g GB/s (%s)\n\n",
            number(s, "losses_per_hour"), number(times, "detect_s"), text(from, "detect_s"), number(times, "plan_s"),
            text(from, "plan_s"), number(times, "relaunch_s"), text(from, "relaunch_s"),
            1e-9 * number(times, "remote_bytes_per_s"), text(from, "remote_bytes_per_s"));
}

/* Writes a cell of dollars, if they are known. */
static void dollars(struct ht_table *t, const char *format, const json_t *value)
{
    if (json_is_number(value))
        ht_table_cell(t, format, json_number_value(value));
    else
        ht_table_cell(t, "-");
}

static void print_policies(const json_t *s, FILE *out)
{
    struct ht_table *t =
        ht_table_create("<policy|>samples|>an hour|>ETTR|>lost steps|>recoveries|>changes|>load after loss|"
                        ">after change|>save every|>idle GPU h|>USD|>USD per 1,000");
    const json_t *p;
    size_t i;
    json_array_foreach(json_object_get(s, "policies"), i, p)
    {
        const json_t *load = json_object_get(p, "load_s");
        ht_table_cell(t, "%s", text(p, "policy"));
        ht_table_cell(t, "%.0f", number(p, "samples"));
        ht_table_cell(t, "%.0f", number(p, "samples_per_hour"));
        ht_table_cell(t, "%.3f", number(p, "ettr"));
        ht_table_cell(t, "%.0f", number(p, "lost_steps"));
        ht_table_cell(t, "%.0f", number(p, "losses"));
        ht_table_cell(t, "%.0f", number(p, "changes"));
        ht_table_cell(t, "%.1f s", number(load, "losses"));
        ht_table_cell(t, "%.1f s", number(load, "changes"));
        ht_table_cell(t, "%.0f s", number(p, "save_every_s"));
        ht_table_cell(t, "%.1f of %.1f", number(p, "idle_gpu_hours"), number(p, "gpu_hours"));
        dollars(t, "%.2f", json_object_get(p, "usd"));
        dollars(t, "%.3f", json_object_get(p, "usd_per_1000_samples"));
    }
    ht_table_print(t, "", out);
}

static void print_seconds(const json_t *s, FILE *out)
{
    struct ht_table *t =
        ht_table_create("<share of the day|>useful|>lost|>stalls|>loading|>relaunch|>planning|>detection|>waiting");
    const json_t *p;
    size_t i;
    fputc('\n', out);
    json_array_foreach(json_object_get(s, "policies"), i, p)
    {
        const json_t *seconds = json_object_get(p, "seconds");
        ht_table_cell(t, "%s", text(p, "policy"));
        for (int k = HT_N_DAY_PHASES - 1; k >= 0; k--) {
            static const int order[] = {HT_DAY_WAITING, HT_DAY_DETECTION, HT_DAY_PLANNING, HT_DAY_RELAUNCH,
                                        HT_DAY_LOADING, HT_DAY_STALLS,    HT_DAY_LOST,     HT_DAY_USEFUL};
            ht_table_cell(t, "%.1f%%",
                          100 * number(seconds, ht_day_phase_names[order[k]]) / (3600 * number(s, "hours")));
        }
    }
    ht_table_print(t, "", out);
}

/* Prints a row for each point of a sweep, and a column for each policy. */
static void print_points(const json_t *s, const char *list, const char *first, const char *title, const char *what,
                         const char *format, FILE *out)
{
    const json_t *points = json_object_get(s, list), *row, *p;
    char header[1024];
    size_t i, k, at;
    if (!json_array_size(points)) return;
    at = (size_t)snprintf(header, sizeof(header), ">%s", title);
    json_array_foreach(json_object_get(s, "policies"), k, p) at +=
        (size_t)snprintf(header + at, sizeof(header) - at, "|>%s", text(p, "policy"));
    struct ht_table *t = ht_table_create(header);
    json_array_foreach(points, i, row)
    {
        ht_table_cell(t, "%.4g", number(row, first));
        json_array_foreach(json_object_get(s, "policies"), k, p)
        {
            char cell[64];
            snprintf(cell, sizeof(cell), format[0] == 'r' ? "%.3f" : "%.0f",
                     number(json_object_get(row, what), text(p, "policy")));
            ht_table_cell(t, "%s", cell);
        }
    }
    fputc('\n', out);
    ht_table_print(t, "", out);
}

static void print_answers(const json_t *s, FILE *out)
{
    const json_t *o;
    const char *name;
    size_t i;
    json_array_foreach(json_object_get(s, "break_even"), i, o)
        fprintf(out, "%s%s is overtaken by %s at %.3g losses an hour\n", i ? "" : "\n",
                json_string_value(json_array_get(json_object_get(o, "policies"), 1)),
                json_string_value(json_array_get(json_object_get(o, "policies"), 0)), number(o, "losses_per_hour"));
    if (json_object_size(json_object_get(s, "best_interval"))) fputc('\n', out);
    json_object_foreach((json_t *)(uintptr_t)json_object_get(s, "best_interval"), name, o)
        fprintf(out,
                "%s: saves every %.3g s pay best; Young %.3g s, Daly %.3g s (a save stops training for %.3g s; the "
                "remote store takes "
                "%.3g s)\n",
                name, number(o, "save_every_s"), number(o, "young_s"), number(o, "daly_s"), number(o, "stall_s"),
                number(o, "upload_s"));
}

void ht_study_print(const json_t *s, FILE *out)
{
    print_head(s, out);
    print_policies(s, out);
    print_seconds(s, out);
    print_points(s, "speeds", "losses_per_hour", "losses an hour", "samples_per_hour", "n", out);
    print_points(s, "intervals", "save_every_s", "save every, s", "ettr", "r", out);
    print_answers(s, out);
}
