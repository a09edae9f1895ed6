#include "harness/result/heading.h"

#include "common/base/array.h"

#include <stdlib.h>
#include <string.h>

const char *ht_numerics_text(const struct ht_numerics *n, char buf[HT_HEADING_TEXT])
{
    if (!ht_numerics_has_master(n))
        snprintf(buf, HT_HEADING_TEXT, "%s throughout", ht_dtype_name(n->param));
    else if (n->grad == n->param)
        snprintf(buf, HT_HEADING_TEXT, "%s parameters and gradients, summed in %s", ht_dtype_name(n->param),
                 ht_dtype_name(n->accumulate));
    else
        snprintf(buf, HT_HEADING_TEXT, "%s parameters, %s gradients, summed in %s", ht_dtype_name(n->param),
                 ht_dtype_name(n->grad), ht_dtype_name(n->accumulate));
    return buf;
}

enum ht_dtype ht_rate_dtype(const struct ht_gpu *gpu, enum ht_dtype dtype)
{
    bool lacks = (dtype == HT_F16 && gpu->lacks_f16) || (dtype == HT_BF16 && gpu->lacks_bf16);
    return lacks ? HT_F32 : dtype;
}

/* Returns true for an accelerator without units for the dtype. An emulated device computes in FP32 anyway. */
static bool lacks_units(const struct ht_gpu *gpu, enum ht_dtype dtype)
{
    return gpu->cores == 0 && ht_rate_dtype(gpu, dtype) != dtype;
}

const char *ht_rate_note(const struct ht_scenario *s, char buf[HT_HEADING_TEXT])
{
    struct ht_device_kind *kinds = HT_NEW_ARRAY(struct ht_device_kind, s->cluster->n_gpus);
    int64_t n_kinds = ht_cluster_kinds(s->cluster, kinds), n = 0;
    size_t used = 0;
    buf[0] = 0;
    for (int64_t k = 0; k < n_kinds && used < HT_HEADING_TEXT; k++) {
        if (!lacks_units(kinds[k].gpu, s->numerics.param)) continue;
        used += (size_t)snprintf(buf + used, HT_HEADING_TEXT - used, "%s%s", n++ ? ", " : "", kinds[k].gpu->name);
    }
    free(kinds);
    if (n && used < HT_HEADING_TEXT)
        snprintf(buf + used, HT_HEADING_TEXT - used, " %s no %s units: priced at the f32 rate, also for MFU",
                 n == 1 ? "has" : "have", ht_dtype_name(s->numerics.param));
    return buf;
}

/* Returns the slowest node whose GPUs send through host memory; NULL if all reach each other. */
static const struct ht_machine *staging_node(const struct ht_cluster *c)
{
    const struct ht_machine *slowest = NULL;
    for (int64_t i = 0; i < c->n_nodes; i++)
        if (ht_machine_stages(&c->nodes[i]) &&
            (!slowest || ht_machine_ring_rate(&c->nodes[i]) < ht_machine_ring_rate(slowest)))
            slowest = &c->nodes[i];
    return slowest;
}

const char *ht_host_path_note(const struct ht_scenario *s, char buf[HT_HEADING_TEXT])
{
    const struct ht_machine *m = staging_node(s->cluster);
    char ring[HT_QUANTITY_TEXT], message[HT_QUANTITY_TEXT];
    buf[0] = 0;
    if (!m) return buf;
    ht_format_quantity(HT_BYTES_PER_S, ht_machine_ring_rate(m), ring);
    size_t used =
        (size_t)snprintf(buf, HT_HEADING_TEXT, "GPUs without peer access send through host memory: rings at %s%s", ring,
                         ht_machine_assumes_ring_rate(m) ? " (assumed: measured on another machine)" : "");
    if (ht_machine_message_rate(m) != ht_machine_ring_rate(m))
        snprintf(buf + used, HT_HEADING_TEXT - used, ", messages at %s",
                 ht_format_quantity(HT_BYTES_PER_S, ht_machine_message_rate(m), message));
    return buf;
}

void ht_host_path_json(const struct ht_scenario *s, json_t *root)
{
    const struct ht_machine *m = staging_node(s->cluster);
    char note[HT_HEADING_TEXT];
    json_object_set_new(root, "host_path_note", m ? json_string(ht_host_path_note(s, note)) : json_null());
    json_object_set_new(root, "through_host_bytes_per_s", m ? json_real(ht_machine_ring_rate(m)) : json_null());
    json_object_set_new(root, "through_host_assumed", json_boolean(m && ht_machine_assumes_ring_rate(m)));
}

const char *ht_system_title(const struct ht_system *system, const struct ht_scenario *s)
{
    return system->ranks_title && ht_scenario_ranks(s) > 1 ? system->ranks_title : system->title;
}

static const struct {
    const char *name, *text;
} parallelisms[] = {
    [HT_EQUAL_REPLICAS] = {"zero3",
                           "data-parallel with ZeRO-3: parameters, gradients and optimizer states are sharded"},
    [HT_SHARED_STATES] = {"shared", "data-parallel: parameters and optimizer states are there once, for all devices"},
    [HT_PLANNED_REPLICAS] = {"planned", "data-parallel as the plan says"},
    [HT_PIPELINES] = {"pipeline", "pipelined"},
};

void ht_scenario_print(const struct ht_scenario *s, enum ht_division division, FILE *out)
{
    char text[HT_HEADING_TEXT];
    fprintf(out, "cluster %s: %s", s->cluster->name, ht_cluster_devices(s->cluster, text, sizeof(text)));
    if (ht_scenario_ranks(s) > 1) fprintf(out, ", %s", parallelisms[division].text);
    fprintf(out, "\nbatch %lld x %lld tokens in micro-batches of ", (long long)s->batch, (long long)s->seq);
    if (division == HT_PLANNED_REPLICAS)
        fputs("the plan's sizes", out);
    else
        fprintf(out, "%lld", (long long)s->micro_batch);
    fprintf(out, "; %s", ht_numerics_text(&s->numerics, text));
    if (strcmp(s->software.name, "fused") != 0) fprintf(out, "; software %s", s->software.name);
}

/* ---- JSON ------------------------------------------------------------------------------------------------------ */

static json_t *devices_json(const struct ht_scenario *s)
{
    struct ht_device_kind *kinds = HT_NEW_ARRAY(struct ht_device_kind, s->cluster->n_gpus);
    int64_t n_kinds = ht_cluster_kinds(s->cluster, kinds);
    json_t *list = json_array();
    for (int64_t k = 0; k < n_kinds; k++) {
        const struct ht_gpu *gpu = kinds[k].gpu;
        enum ht_dtype rate = ht_rate_dtype(gpu, s->numerics.param);
        json_array_append_new(list,
                              json_pack("{s:s,s:I,s:I,s:s}", "name", gpu->name, "count", (json_int_t)kinds[k].count,
                                        "memory_bytes", (json_int_t)gpu->memory_bytes, "rate", ht_dtype_name(rate)));
    }
    free(kinds);
    return list;
}

static json_t *names_by_rank(const struct ht_cluster *cluster)
{
    json_t *list = json_array();
    for (int64_t r = 0; r < cluster->n_gpus; r++)
        json_array_append_new(list, json_string(ht_cluster_gpu_of(cluster, r)->name));
    return list;
}

static json_t *nodes_by_rank(const struct ht_cluster *cluster)
{
    json_t *list = json_array();
    for (int64_t r = 0, node; r < cluster->n_gpus; r++) {
        ht_cluster_node_of(cluster, r, &node);
        json_array_append_new(list, json_integer(node));
    }
    return list;
}

json_t *ht_numerics_json(const struct ht_numerics *n)
{
    return json_pack("{s:s,s:s,s:s,s:s}", "param", ht_dtype_name(n->param), "grad", ht_dtype_name(n->grad),
                     "accumulate", ht_dtype_name(n->accumulate), "reduce", ht_dtype_name(n->reduce));
}

/* Adds the control options that differ from the papers'. */
static void add_control(const struct ht_scenario *s, json_t *scenario)
{
    const struct ht_control_options *o = &s->control.options;
    if (ht_numerics_has_master(&s->numerics) && s->numerics.accumulate != HT_F32)
        json_object_set_new(scenario, "accumulate", json_string(ht_dtype_name(s->numerics.accumulate)));
    if (s->control.mode == HT_CONTROL_NONE && o->loss_scale == 1) return;
    json_object_update_new(scenario, json_pack("{s:s,s:o,s:f,s:b}", "control", ht_control_mode_names[s->control.mode],
                                               "clip", o->clip > 0 ? json_real(o->clip) : json_null(), "loss_scale",
                                               o->loss_scale, "dynamic_loss_scale", (int)o->dynamic));
    if (o->dynamic) json_object_set_new(scenario, "growth_interval", json_integer(o->growth_interval));
}

json_t *ht_scenario_json(const struct ht_scenario *s, enum ht_division division)
{
    const struct ht_model *m = &s->model;
    const struct ht_gpu *gpu = ht_cluster_gpu_of(s->cluster, 0);
    char devices[HT_HEADING_TEXT], numerics[HT_HEADING_TEXT], note[HT_HEADING_TEXT];
    json_t *root =
        json_pack("{s:{s:s,s:I,s:I,s:I,s:I,s:I},s:s,s:s,s:I,s:I,s:I,s:I,s:s}", "model", "name", m->name, "layers",
                  (json_int_t)m->layers, "width", (json_int_t)m->width, "heads", (json_int_t)m->heads, "vocab",
                  (json_int_t)m->vocab, "params", (json_int_t)ht_model_params(m), "cluster", s->cluster->name, "gpu",
                  gpu->name, "devices", (json_int_t)s->cluster->n_gpus, "batch", (json_int_t)s->batch, "micro_batch",
                  (json_int_t)s->micro_batch, "seq", (json_int_t)s->seq, "numerics", ht_dtype_name(s->numerics.param));
    if (division == HT_PLANNED_REPLICAS) json_object_set_new(root, "micro_batch", json_null()); /* m of the plan */
    json_object_set_new(root, "gpus", devices_json(s));
    json_object_set_new(root, "gpu_by_rank", names_by_rank(s->cluster));
    json_object_set_new(root, "node_by_rank", nodes_by_rank(s->cluster));
    json_object_set_new(root, "gpus_text", json_string(ht_cluster_devices(s->cluster, devices, sizeof(devices))));
    json_object_set_new(root, "dtypes", ht_numerics_json(&s->numerics));
    json_object_set_new(root, "numerics_text", json_string(ht_numerics_text(&s->numerics, numerics)));
    json_object_set_new(root, "software", json_string(s->software.name));
    json_object_set_new(root, "parallelism",
                        json_string(ht_scenario_ranks(s) > 1 ? parallelisms[division].name : "none"));
    json_object_set_new(root, "rate_note", *ht_rate_note(s, note) ? json_string(note) : json_null());
    ht_host_path_json(s, root);
    add_control(s, root);
    return root;
}

/* ---- rows ------------------------------------------------------------------------------------------------------ */

static const json_t *scenario_value(const json_t *row, const char *key)
{
    return json_object_get(json_object_get(row, "scenario"), key);
}

/* Prints the different values that the rows have under a key: "8", or "1 or 8". Returns their number. */
static int print_distinct(const json_t *rows, const char *key, FILE *out)
{
    size_t i;
    const json_t *row;
    int n = 0;
    json_array_foreach(rows, i, row)
    {
        const json_t *value = scenario_value(row, key);
        bool seen = false;
        for (size_t j = 0; j < i && !seen; j++) seen = json_equal(value, scenario_value(json_array_get(rows, j), key));
        if (seen || !value || json_is_null(value)) continue;
        if (n++) fputs(" or ", out);
        if (json_is_string(value))
            fputs(json_string_value(value), out);
        else
            fprintf(out, "%lld", (long long)json_integer_value(value));
    }
    return n;
}

static bool any_row(const json_t *rows, const char *key, const char *is)
{
    size_t i;
    const json_t *row;
    json_array_foreach(rows, i, row)
    {
        const char *text = json_string_value(scenario_value(row, key));
        if (text && !strcmp(text, is)) return true;
    }
    return false;
}

/* Prints "batch 8 x 1024 tokens in micro-batches of 8" without what a row has found for itself. */
static void print_batch(const json_t *rows, const char *found, FILE *out)
{
    bool micro_batch = found && !strcmp(found, "micro_batch");
    bool batch = found && !strcmp(found, "batch"), seq = found && !strcmp(found, "seq");
    if (!batch) {
        fputs("batch ", out);
        print_distinct(rows, "batch", out);
    }
    if (!batch && !seq) fputs(" x ", out);
    if (batch) fputs("sequences of ", out);
    if (!seq) {
        print_distinct(rows, "seq", out);
        fputs(" tokens", out);
    }
    if (batch) return;
    if (micro_batch) {
        fputs(" in each system's fastest micro-batches", out);
        return;
    }
    fputs(" in micro-batches of ", out);
    if (print_distinct(rows, "micro_batch", out) == 0) fputs("the plan's sizes", out);
}

void ht_rows_print_scenario(const json_t *rows, const char *found, FILE *out)
{
    const json_t *first = json_array_get(rows, 0);
    const char *note = json_string_value(scenario_value(first, "rate_note"));
    const char *host_path = json_string_value(scenario_value(first, "host_path_note"));
    fputs("cluster ", out);
    print_distinct(rows, "cluster", out);
    fputs(": ", out);
    print_distinct(rows, "gpus_text", out);
    putc('\n', out);
    print_batch(rows, found, out);
    fputs("; ", out);
    print_distinct(rows, "numerics_text", out);
    if (!any_row(rows, "software", "fused")) {
        fputs("; software ", out);
        print_distinct(rows, "software", out);
    }
    putc('\n', out);
    if (any_row(rows, "parallelism", "zero3"))
        fprintf(out, "%s%s%s%s\n", parallelisms[HT_EQUAL_REPLICAS].text,
                any_row(rows, "parallelism", "pipeline") ? "; pipelines are not" : "",
                any_row(rows, "parallelism", "shared") ? "; some systems' devices share one copy" : "",
                any_row(rows, "parallelism", "planned") ? "; systems that plan their ranks: as their plans say" : "");
    if (note) fprintf(out, "%s\n", note);
    if (host_path) fprintf(out, "%s\n", host_path);
}
