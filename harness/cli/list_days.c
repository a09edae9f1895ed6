#include "harness/cli/list_days.h"

#include "common/base/array.h"
#include "harness/days/days.h"

#include <stdlib.h>
#include <string.h>

bool ht_list_trace_name(int64_t i, char name[HT_NAME_BYTES])
{
    return ht_spot_trace_name(i, name, HT_NAME_BYTES);
}

bool ht_list_policy_name(int64_t i, char name[HT_NAME_BYTES])
{
    const struct ht_policy *p = ht_policy_at((size_t)i);
    if (p) snprintf(name, HT_NAME_BYTES, "%s", p->name);
    return p != NULL;
}

enum ht_status ht_list_trace(const char *name, struct ht_table *t, json_t *list, struct ht_error *err)
{
    struct ht_spot_trace trace;
    int64_t lost = 0, now = 0, most = 0;
    enum ht_status status = ht_spot_trace_load(name, err, &trace);
    if (status) return status;
    for (size_t i = 0; i < trace.n_events; i++) {
        lost += trace.events[i].kind == HT_SPOT_LOST;
        now += (trace.events[i].kind == HT_SPOT_JOINED) - (trace.events[i].kind == HT_SPOT_LOST);
        if (now > most) most = now;
    }
    double hours = (double)(trace.events[trace.n_events - 1].time_ns - trace.events[0].time_ns) / 3.6e12;
    double losses = 3600 / ht_day_between_losses_s(&trace);
    ht_table_cell(t, "%s", name);
    ht_table_cell(t, "%.1f", hours);
    ht_table_cell(t, "%lld", (long long)trace.n_events);
    ht_table_cell(t, "%lld", (long long)lost);
    ht_table_cell(t, "%.2f", losses);
    ht_table_cell(t, "%lld", (long long)most);
    json_array_append_new(list, json_pack("{s:s,s:f,s:I,s:I,s:f,s:I}", "name", name, "hours", hours, "events",
                                          (json_int_t)trace.n_events, "lost", (json_int_t)lost, "losses_per_hour",
                                          losses, "nodes_most", (json_int_t)most));
    ht_spot_trace_free(&trace);
    return HT_OK;
}

enum ht_status ht_list_policy(const char *name, struct ht_table *t, json_t *list, struct ht_error *err)
{
    const struct ht_policy *p;
    enum ht_status status = ht_policy_find(name, err, &p);
    if (status) return status;
    ht_table_cell(t, "%s", name);
    ht_table_cell(t, "%s", p->system);
    ht_table_cell(t, "%s", p->summary);
    json_array_append_new(list, json_pack("{s:s,s:s,s:s}", "name", name, "system", p->system, "summary", p->summary));
    return HT_OK;
}

enum ht_status ht_list_days(const char *name, struct ht_table *t, json_t *list)
{
    struct ht_days_heading h;
    ht_days_heading(name, &h);
    ht_table_cell(t, "%s", name);
    ht_table_cell(t, "%lld", (long long)h.studies);
    ht_table_cell(t, "by trace");
    ht_table_cell(t, "%s", h.title);
    ht_table_cell(t, "%s", h.source);
    json_array_append_new(list, json_pack("{s:s,s:I,s:n,s:s,s:s}", "name", name, "points", (json_int_t)h.studies,
                                          "cluster", "title", h.title, "source", h.source));
    return HT_OK;
}
