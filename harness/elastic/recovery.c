#include "harness/elastic/recovery.h"

#include "common/base/array.h"
#include "harness/result/provenance.h"
#include "harness/result/table.h"

#include <stdlib.h>
#include <string.h>

static const char *const parts[] = {"detection_s", "waiting_s",    "planning_s", "relaunch_s",
                                    "loading_s",   "first_step_s", "total_s"};
enum { N_PARTS = HT_COUNT(parts) };

static json_t *seconds(int64_t from_ns, int64_t to_ns)
{
    return from_ns && to_ns ? json_real((double)(to_ns - from_ns) * 1e-9) : json_null();
}

void ht_recovery_close(struct ht_recovery *r, const struct ht_incarnation *x, struct ht_journal *j)
{
    json_t *row = json_pack("{s:o,s:I,s:s,s:s,s:I,s:I,s:b,s:b,s:b}", "cause", ht_json_text(r->cause), "fault_ns",
                            (json_int_t)r->fault_ns, "nodes_before", r->before, "nodes", r->after, "at_step",
                            (json_int_t)r->at_step, "from_step", (json_int_t)x->from, "planned_beforehand",
                            r->beforehand, "plan_handed_over", r->handed_over, "whole", x->first_ns != 0);
    int64_t planning_ns = r->choosing_ns + x->plan_ns;
    json_object_set_new(row, "detection_s", seconds(r->fault_ns, r->ended_ns));
    json_object_set_new(row, "waiting_s", json_real((double)r->waiting_ns * 1e-9));
    json_object_set_new(row, "planning_s", json_real((double)planning_ns * 1e-9));
    json_object_set_new(row, "relaunch_s", seconds(r->ended_ns + r->waiting_ns + planning_ns, x->planned_ns));
    json_object_set_new(row, "loading_s", seconds(x->planned_ns, x->loaded_ns));
    json_object_set_new(row, "first_step_s", seconds(x->loaded_ns, x->first_ns));
    json_object_set_new(row, "total_s", seconds(r->fault_ns, x->first_ns));
    json_array_append_new(ht_journal_list(j, "recoveries"), row);
    r->open = false;
}

/* ---- the table ---- */

static void add_seconds(struct ht_table *t, double s)
{
    if (s >= 0)
        ht_table_cell(t, "%.3f s", s);
    else
        ht_table_cell(t, "-");
}

static double seconds_of(const json_t *row, const char *part)
{
    const json_t *v = json_object_get(row, part);
    return json_is_number(v) ? json_number_value(v) : -1;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* A part's times over a list of recoveries. */
struct spread {
    double median_s, worst_s; /* negative: no recovery has the part */
};

static struct spread spread_of(const json_t *list, const char *part)
{
    double *v = HT_NEW_ARRAY(double, json_array_size(list));
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *x = json_object_get(json_array_get(list, i), part);
        if (json_is_number(x)) v[n++] = json_number_value(x);
    }
    qsort(v, n, sizeof(*v), by_size);
    struct spread s = {-1, -1};
    if (n) s = (struct spread){n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2, v[n - 1]};
    free(v);
    return s;
}

void ht_recoveries_print(const json_t *list, FILE *out)
{
    if (!json_array_size(list)) return;
    struct ht_table *t = ht_table_create(
        "<cause|<nodes|>at step|>from|>detection|>waiting|>planning|>relaunch|>loading|>first step|>total");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *row = json_array_get(list, i);
        const char *cause = json_string_value(json_object_get(row, "cause"));
        ht_table_cell(t, "%.60s%s", cause, strlen(cause) > 60 ? ".." : "");
        ht_table_cell(t, "%s", json_string_value(json_object_get(row, "nodes")));
        ht_table_cell(t, "%lld", (long long)json_integer_value(json_object_get(row, "at_step")));
        ht_table_cell(t, "%lld", (long long)json_integer_value(json_object_get(row, "from_step")));
        for (int p = 0; p < N_PARTS; p++) add_seconds(t, seconds_of(row, parts[p]));
    }
    ht_table_cell(t, "median");
    for (int i = 0; i < 3; i++) ht_table_cell(t, "%s", "");
    for (int p = 0; p < N_PARTS; p++) add_seconds(t, spread_of(list, parts[p]).median_s);
    ht_table_print(t, "  ", out);
}

void ht_recoveries_print_parts(const json_t *list, FILE *out)
{
    static const char *const names[N_PARTS] = {"detection", "waiting",    "planning", "relaunch",
                                               "loading",   "first step", "total"};
    struct ht_table *t = ht_table_create("<part|>median|>worst");
    for (int p = 0; p < N_PARTS; p++) {
        struct spread s = spread_of(list, parts[p]);
        ht_table_cell(t, "%s", names[p]);
        add_seconds(t, s.median_s);
        add_seconds(t, s.worst_s);
    }
    ht_table_print(t, "  ", out);
}
