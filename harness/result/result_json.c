/* Results as JSON. Field names carry their units; unknown values are null. */
#include "harness/result/result.h"

#include "common/schedule/fold.h"
#include "harness/result/heading.h"
#include "harness/result/provenance.h"
#include "harness/result/schema.h"

#include <math.h>
#include <stdlib.h>

json_t *ht_json_number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *positive(double value)
{
    return value > 0 ? ht_json_number(value) : json_null();
}

static json_t *bytes(int64_t value)
{
    return value < 0 || value == INT64_MAX ? json_null() : json_integer(value);
}

static double seconds(int64_t ns)
{
    return (double)ns * 1e-9;
}

/* Returns parts per billion as a double: a decimal below a million has up to 15 digits, which all come back. */
static json_t *number_json(int64_t value, bool decimal)
{
    return decimal ? json_real((double)value / (double)HT_PPB) : json_integer(value);
}

static json_t *variable_json(const struct ht_variable *v)
{
    if (v->kind == HT_VARIABLE_NUMBER) return number_json(v->value, v->decimal);
    json_t *list = json_array();
    for (int32_t i = 0; i < v->n; i++) json_array_append_new(list, number_json(v->values[i], v->decimal));
    return list;
}

static json_t *count_or_real(double value)
{
    return value == floor(value) && fabs(value) < 0x1p53 ? json_integer((json_int_t)value) : ht_json_number(value);
}

static json_t *considered_json(const struct ht_plan *p)
{
    json_t *list = json_array();
    for (size_t i = 0; i < p->n_considered; i++) {
        const struct ht_considered *c = &p->considered[i];
        json_array_append_new(list,
                              json_pack("{s:s,s:s,s:o,s:o,s:o,s:o}", "name", c->name, "why", c->why, "least_bytes",
                                        c->least_bytes ? json_integer(c->least_bytes) : json_null(), "bound_s",
                                        positive(c->bound_s), "iteration_time_s", positive(c->iteration_s), "gave_up_s",
                                        positive(c->gave_up_s)));
    }
    return list;
}

static json_t *plan_json(const struct ht_plan *p)
{
    json_t *variables = json_object(), *planned = json_object(), *inputs = json_object();
    for (int i = 0; i < p->n_variables; i++)
        json_object_set_new(variables, p->variables[i].name, variable_json(&p->variables[i]));
    for (int tier = 0; tier < HT_N_TIERS; tier++)
        if (p->planned_bytes[tier] >= 0)
            json_object_set_new(planned, ht_tier_name((enum ht_tier)tier), json_integer(p->planned_bytes[tier]));
    for (int i = 0; i < p->n_inputs; i++)
        json_object_set_new(
            inputs, p->inputs[i].name,
            json_pack("{s:o,s:s}", "value", count_or_real(p->inputs[i].value), "unit", p->inputs[i].unit));
    json_t *plan = json_pack("{s:o,s:o,s:o,s:o,s:s}", "variables", variables, "planned_bytes", planned,
                             "planned_iteration_s", positive(p->planned_s), "inputs", inputs, "why", p->why);
    if (p->n_considered) json_object_set_new(plan, "candidates", considered_json(p));
    return plan;
}

/* Adds the hash and the size of the whole graph, and how it is folded; a folded graph does not have the hash. */
static void add_graph(const struct ht_schedule *s, json_t *root)
{
    char hash[24];
    snprintf(hash, sizeof(hash), "%016llx", s->fold ? 0 : (unsigned long long)ht_schedule_hash(s));
    json_object_set_new(root, "schedule_hash", s->fold ? json_null() : json_string(hash));
    json_object_set_new(root, "ops", json_integer((json_int_t)s->n_ops * ht_copies(s)));
    if (s->fold) json_object_set_new(root, "folded", json_integer(ht_copies(s)));
    if (s->not_folded) json_object_set_new(root, "not_folded", json_string(s->not_folded));
}

json_t *ht_job_json(const struct ht_job *job)
{
    json_t *root = json_object();
    json_object_set_new(root, "status", json_string(job->status));
    if (job->answer != HT_OK) json_object_set_new(root, "reason", ht_json_text(job->reason));
    if (job->schedule) {
        json_object_set_new(root, "schedule", json_string(job->schedule->name));
        add_graph(job->schedule, root);
    }
    if (job->system) {
        json_object_set_new(root, "system", json_string(job->system->name));
        json_object_set_new(root, "title", json_string(ht_system_title(job->system, &job->scenario)));
        json_object_set_new(root, "scenario", ht_scenario_json(&job->scenario, job->system->division));
        json_object_set_new(root, "plan", plan_json(&job->plan));
    }
    if (job->profile)
        json_object_set_new(
            root, "costs",
            json_pack("{s:s,s:s}", "name", ht_profile_name(job->profile), "source", ht_profile_source(job->profile)));
    return root;
}

static json_t *classes_json(const int64_t *by_class)
{
    json_t *o = json_object();
    for (int c = 0; c < HT_N_TENSOR_CLASSES; c++)
        if (by_class[c])
            json_object_set_new(o, ht_tensor_class_name((enum ht_tensor_class)c), json_integer(by_class[c]));
    return o;
}

json_t *ht_memory_json(const struct ht_result *r)
{
    json_t *list = json_array();
    for (int32_t i = 0; i < r->n_memory; i++) {
        const struct ht_memory_row *m = &r->memory[i];
        json_t *row = json_pack("{s:s,s:s,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "space", m->name, "tier",
                                ht_tier_name(m->tier), "capacity_bytes", bytes(m->capacity_bytes), "limit_bytes",
                                bytes(m->limit_bytes), "peak_bytes", bytes(m->peak_bytes), "safe_sequence_bytes",
                                bytes(m->safe_bytes), "program_bytes", bytes(m->program_bytes), "short_bytes",
                                bytes(m->short_bytes), "bound_bytes", bytes(m->bound_bytes), "planned_bytes",
                                bytes(m->planned_bytes), "by_class", classes_json(m->by_class));
        if (m->arena_bytes >= 0) {
            json_object_set_new(row, "arena_peak_bytes", bytes(m->arena_bytes));
            json_object_set_new(row, "arena_extent_bytes", bytes(m->extent_bytes));
        }
        json_array_append_new(list, row);
    }
    return list;
}

/* Returns {"device 0": .., "host 0": ..}: one figure of every space. */
static json_t *by_space(const struct ht_result *r, size_t offset)
{
    json_t *o = json_object();
    for (int32_t i = 0; i < r->n_memory; i++) {
        const char *row = (const char *)&r->memory[i];
        json_object_set_new(o, r->memory[i].name, bytes(*(const int64_t *)(const void *)(row + offset)));
    }
    return o;
}

static json_t *lanes_json(const struct ht_result *r)
{
    const struct ht_schedule *s = r->job->schedule;
    const struct ht_metrics *m = &r->metrics;
    json_t *list = json_array();
    struct ht_fold_lane *lanes = ht_fold_lanes(s);
    for (int32_t i = 0; i < ht_copies(s) * s->n_lanes; i++) {
        int32_t l = lanes[i].of;
        double share = m->iteration_ns ? (double)m->lane_busy_ns[l] / (double)m->iteration_ns : 0;
        json_array_append_new(
            list, json_pack("{s:s,s:i,s:s,s:o,s:o,s:o}", "lane", s->lanes[l].name, "rank", (int)lanes[i].rank, "kind",
                            ht_lane_kind_name(s->lanes[l].kind), "busy_s", ht_json_number(seconds(m->lane_busy_ns[l])),
                            "busy_share", ht_json_number(share), "critical_s",
                            ht_json_number(seconds(lanes[i].rank == s->lanes[l].rank ? m->critical_ns[l] : 0))));
    }
    free(lanes);
    return list;
}

static json_t *resources_json(const struct ht_result *r)
{
    const struct ht_schedule *s = r->job->schedule;
    json_t *list = json_array();
    for (int32_t i = 0; i < s->n_resources; i++)
        json_array_append_new(list, json_pack("{s:s,s:s,s:o}", "resource", s->resources[i].name, "kind",
                                              ht_resource_kind_name(s->resources[i].kind), "busy_share",
                                              ht_json_number(r->metrics.resource_busy[ht_fold_resource(s, i)])));
    return list;
}

static void add_rates(const struct ht_result *r, json_t *root)
{
    const struct ht_metrics *m = &r->metrics;
    json_t *rates = json_pack(
        "{s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:s,s:o,s:o,s:o,s:o,s:o,s:i,s:i}", "iteration_time_s",
        ht_json_number(r->iteration_s), "first_iteration_time_s", ht_json_number(seconds(m->first_iteration_ns)),
        "tokens_per_s", positive(r->tokens_per_s), "samples_per_s", positive(r->samples_per_s), "tflops_per_gpu",
        positive(ht_result_tflops(r, r->useful_flops)), "hardware_tflops_per_gpu",
        positive(ht_result_tflops(r, r->hardware_flops)), "mfu", positive(ht_result_mfu(r)), "lower_bound_s",
        ht_json_number(seconds(m->lower_bound_ns)), "lower_bound_of", m->lower_bound_of, "bubble_ratio",
        ht_json_number(m->bubble_ratio), "fill_s", ht_json_number(seconds(m->fill_ns)), "passes_s",
        ht_json_number(seconds(m->passes_ns)), "drain_s", ht_json_number(seconds(m->drain_ns)), "critical_wait_s",
        ht_json_number(seconds(m->critical_wait_ns)), "iterations", (int)r->trace->iterations, "warmup",
        (int)m->warmup);
    json_object_update(root, rates);
    json_decref(rates);
    double tflops = ht_result_tflops(r, r->useful_flops) * (double)r->n_devices;
    if (r->price_usd > 0) {
        json_object_set_new(root, "price_usd", json_real(r->price_usd));
        json_object_set_new(root, "tokens_per_s_per_1000_usd", positive(ht_result_per_1000_usd(r, r->tokens_per_s)));
        json_object_set_new(root, "tflops_per_1000_usd", positive(ht_result_per_1000_usd(r, tflops)));
    }
    if (r->bad.n) {
        json_object_set_new(root, "bad_iterations", json_integer(r->bad.n));
        json_object_set_new(root, "bad_iteration_time_s", ht_json_number(r->bad.bad_s));
        json_object_set_new(root, "ok_iteration_time_s", ht_json_number(r->bad.ok_s));
    }
    if (r->peak_flops_per_s > 0) {
        char formula[160];
        snprintf(formula, sizeof(formula), "useful: 3 x forward matrix products; mfu against the dense %s peak",
                 r->peak_dtype);
        json_object_set_new(root, "flops_formula", json_string(formula));
        json_object_set_new(root, "peak_flops_per_s", json_real(r->peak_flops_per_s));
    }
    json_object_set_new(root, "lane_busy", lanes_json(r));
    json_object_set_new(root, "resource_busy", resources_json(r));
}

json_t *ht_result_values_json(const struct ht_result *r)
{
    json_t *root = ht_job_json(r->job);
    const struct ht_memory_row *oom = ht_result_oom(r);
    json_object_set_new(root, "obtained", json_string(ht_obtained(r)));
    if (oom) {
        json_object_set_new(root, "short_of", json_string(oom->name));
        json_object_set_new(root, "short_bytes", bytes(oom->short_bytes));
    }
    if (r->has_metrics) add_rates(r, root);
    json_object_set_new(root, "peak_bytes", by_space(r, offsetof(struct ht_memory_row, peak_bytes)));
    json_object_set_new(root, "bound_bytes", by_space(r, offsetof(struct ht_memory_row, bound_bytes)));
    json_object_set_new(root, "planned_bytes", by_space(r, offsetof(struct ht_memory_row, planned_bytes)));
    json_object_set_new(root, "memory", ht_memory_json(r));
    if (r->variations) json_object_update(root, r->variations);
    return root;
}

json_t *ht_result_json(const struct ht_result *r)
{
    json_t *root = ht_result_values_json(r);
    ht_provenance_add(root);
    return root;
}

int64_t ht_result_peak(const struct ht_result *r, enum ht_tier tier)
{
    int64_t peak = -1;
    for (int32_t i = 0; i < r->n_memory; i++) {
        int64_t bytes = r->memory[i].peak_bytes >= 0 ? r->memory[i].peak_bytes : r->memory[i].safe_bytes;
        if (r->memory[i].tier == tier && bytes > peak) peak = bytes;
    }
    return peak;
}

enum ht_status ht_json_print(json_t *document, const char *schema, struct ht_error *err)
{
    json_t *value = ht_schema_put(document, schema);
    int failed = json_dumpf(value, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    json_decref(value);
    if (failed || putchar('\n') == EOF || fflush(stdout) != 0)
        return ht_fail(err, HT_FAILED, "standard output cannot be written");
    return HT_OK;
}
