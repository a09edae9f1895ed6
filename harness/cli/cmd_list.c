/* hetbench list: the names that the command line takes. */
#include "harness/cli/commands.h"

#include "common/base/array.h"
#include "common/base/units.h"
#include "common/model/software.h"
#include "common/model/zoo.h"
#include "common/profile/formula.h"
#include "harness/cli/stores.h"
#include "harness/sweep/builtin.h"
#include "harness/cli/list_days.h"
#include "harness/days/days.h"
#include "harness/sweep/experiment.h"
#include "harness/sweep/recoveries.h"
#include "harness/result/heading.h"
#include "harness/result/result.h"
#include "harness/run/registry.h"
#include "harness/result/table.h"

#include <stdlib.h>
#include <string.h>

/* Prints the sources of a table's figures, which are too long for a column. */
static void print_sources(const json_t *list)
{
    size_t i;
    json_t *row;
    printf("\nsources\n");
    json_array_foreach(list, i, row)
    {
        printf("  %s: %s\n", json_string_value(json_object_get(row, "name")),
               json_string_value(json_object_get(row, "source")));
    }
}

/* Returns the shape of a vector behind its knob's name, "" for a number. */
static const char *how_given(const struct ht_knob *k)
{
    static const char *const integers[] = {"", "=4,2,.. by rank", "=4,2,..", "=1-5,9", "=4-7,0-3"};
    if (k->kind == HT_VARIABLE_LIST && !k->decimal && k->max >= 0 && k->max < 4) return "=1,2,..";
    static const char *const decimals[] = {"", "=0.3,0.7,.. by rank", "=0.3,0.7,.."};
    return k->decimal ? decimals[k->kind] : integers[k->kind];
}

/* Returns true if the knob itself has the most that an element can be, and not the scenario. */
static bool is_bounded(const struct ht_knob *k)
{
    return k->max >= 0 && k->kind != HT_VARIABLE_BLOCKS && k->kind != HT_VARIABLE_RANKS;
}

static json_t *knob_json(const struct ht_knob *k)
{
    json_t *max = is_bounded(k) ? json_integer(k->max) : json_null();
    return json_pack("{s:s,s:s,s:s,s:b,s:I,s:o}", "name", k->name, "meaning", k->meaning, "kind",
                     ht_variable_kind_names[k->kind], "decimal", k->decimal, "min",
                     (json_int_t)(k->kind == HT_VARIABLE_BLOCKS ? 1 : k->min), "max", max);
}

/* Appends a word to a list with `between` between its words. */
static void append(char *list, size_t bytes, const char *between, const char *word)
{
    size_t used = strlen(list);
    snprintf(list + used, bytes - used, "%s%s", used ? between : "", word);
}

static bool is_same(const struct ht_knob *a, const struct ht_knob *b)
{
    return !strcmp(a->name, b->name) && !strcmp(a->meaning, b->meaning);
}

/* Prints each variable once, with the systems that have it. */
static void print_variables(FILE *out)
{
    struct ht_table *t = ht_table_create("<variable (--set)|<meaning|<of");
    for (size_t i = 0; ht_system_at(i); i++)
        for (const struct ht_knob *k = ht_system_at(i)->knobs; k && k->name; k++) {
            char of[256] = "";
            bool listed = false;
            int n = 0;
            for (size_t other = 0; ht_system_at(other); other++)
                for (const struct ht_knob *x = ht_system_at(other)->knobs; x && x->name; x++) {
                    if (!is_same(x, k)) continue;
                    listed |= other < i;
                    append(of, sizeof(of), " ", ht_system_at(other)->name);
                    n++;
                }
            if (listed) continue;
            ht_table_cell(t, "%s%s", k->name, how_given(k));
            ht_table_cell(t, "%s", k->meaning);
            if (strlen(of) <= 40)
                ht_table_cell(t, "%s", of);
            else
                ht_table_cell(t, "%s and %d more", ht_system_at(i)->name, n - 1);
        }
    putc('\n', out);
    ht_table_print(t, "", out);
}

/* Lists one system's variables, with their ranges. */
static enum ht_status list_variables(const char *name, bool json, struct ht_error *err)
{
    const struct ht_system *s;
    enum ht_status status = ht_system_find(name, err, &s);
    if (status != HT_OK) return status;
    struct ht_table *t = ht_table_create("<variable (--set)|>least|>most|<meaning");
    json_t *variables = json_array();
    for (const struct ht_knob *k = s->knobs; k && k->name; k++) {
        bool blocks = k->kind == HT_VARIABLE_BLOCKS;
        ht_table_cell(t, "%s%s", k->name, how_given(k));
        ht_table_cell(t, "%lld", (long long)(blocks ? 1 : k->min));
        if (!is_bounded(k))
            ht_table_cell(t, "-");
        else
            ht_table_cell(t, k->max < 10000000 ? "%.0f" : "%.3g", (double)k->max);
        ht_table_cell(t, "%s", k->meaning);
        json_array_append_new(variables, knob_json(k));
    }
    if (json) {
        ht_table_destroy(t);
        return ht_json_print(json_pack("{s:s,s:o}", "system", s->name, "variables", variables), "variables", err);
    }
    printf("%s (%s): %s\nsource: %s\n\n", s->title, s->name, s->summary, s->source);
    ht_table_print(t, "", stdout);
    json_decref(variables);
    return HT_OK;
}

static enum ht_status add_system(const char *name, struct ht_table *t, json_t *list, struct ht_error *err)
{
    const struct ht_system *s;
    enum ht_status status = ht_system_find(name, err, &s);
    if (status != HT_OK) return status;
    char names[256] = "";
    json_t *variables = json_array();
    for (const struct ht_knob *k = s->knobs; k && k->name; k++) {
        append(names, sizeof(names), " ", k->name);
        json_array_append_new(variables, knob_json(k));
    }
    ht_table_cell(t, "%s", s->name);
    ht_table_cell(t, "%s", s->summary);
    if (strlen(names) <= 50)
        ht_table_cell(t, "%s", names);
    else
        ht_table_cell(t, "hetbench list systems %s", s->name);
    json_array_append_new(list, json_pack("{s:s,s:s,s:s,s:s,s:b,s:b,s:o}", "name", s->name, "title", s->title,
                                          "summary", s->summary, "source", s->source, "disk", s->disk, "ablation",
                                          (int)ht_system_is_ablation(s), "variables", variables));
    return HT_OK;
}

static enum ht_status add_model(const char *name, struct ht_table *t, json_t *list, struct ht_error *err)
{
    struct ht_model m;
    enum ht_status status = ht_model_load(name, err, &m);
    if (status != HT_OK) return status;
    ht_table_cell(t, "%s", name);
    ht_table_cell(t, "%.4g", (double)ht_model_params(&m));
    ht_table_cell(t, "%lld", (long long)m.layers);
    ht_table_cell(t, "%lld", (long long)m.width);
    ht_table_cell(t, "%lld", (long long)m.heads);
    ht_table_cell(t, m.vocab ? "%lld" : "-", (long long)m.vocab);
    ht_table_cell(t, "%lld", (long long)m.max_seq);
    json_array_append_new(list, json_pack("{s:s,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "name", name, "params",
                                          (json_int_t)ht_model_params(&m), "layers", (json_int_t)m.layers, "width",
                                          (json_int_t)m.width, "heads", (json_int_t)m.heads, "vocab",
                                          (json_int_t)m.vocab, "max_seq", (json_int_t)m.max_seq, "classes",
                                          (json_int_t)m.classes, "image", (json_int_t)m.image));
    return HT_OK;
}

/* Adds the rate of a dtype, or "-" where the device has no units for it and is priced at the FP32 rate. */
static void peak_cell(struct ht_table *t, double flops_per_s, bool lacks_units)
{
    char text[HT_QUANTITY_TEXT];
    ht_table_cell(t, "%s", lacks_units ? "-" : ht_format_quantity(HT_FLOPS_PER_S, flops_per_s, text));
}

static enum ht_status add_gpu(const char *name, struct ht_table *t, json_t *list, struct ht_error *err)
{
    struct ht_gpu g;
    char text[HT_QUANTITY_TEXT];
    enum ht_status status = ht_gpu_load(name, err, &g);
    if (status != HT_OK) return status;
    ht_table_cell(t, "%s", name);
    ht_table_bytes(t, g.memory_bytes);
    peak_cell(t, g.f32_flops_per_s, false);
    peak_cell(t, g.f16_flops_per_s, g.lacks_f16);
    peak_cell(t, g.bf16_flops_per_s, g.lacks_bf16);
    ht_table_cell(t, "%s", ht_format_quantity(HT_BYTES_PER_S, g.memory_bytes_per_s, text));
    json_array_append_new(list, json_pack("{s:s,s:I,s:f,s:f,s:f,s:f,s:b,s:b,s:s}", "name", name, "memory_bytes",
                                          (json_int_t)g.memory_bytes, "f16_flops_per_s", g.f16_flops_per_s,
                                          "bf16_flops_per_s", g.bf16_flops_per_s, "f32_flops_per_s", g.f32_flops_per_s,
                                          "memory_bytes_per_s", g.memory_bytes_per_s, "f16_units", (int)!g.lacks_f16,
                                          "bf16_units", (int)!g.lacks_bf16, "source", g.source));
    return HT_OK;
}

static enum ht_status add_cpu(const char *name, struct ht_table *t, json_t *list, struct ht_error *err)
{
    struct ht_cpu c;
    char text[HT_QUANTITY_TEXT];
    enum ht_status status = ht_cpu_load(name, err, &c);
    if (status != HT_OK) return status;
    ht_table_cell(t, "%s", name);
    ht_table_cell(t, "%lld", (long long)c.cores);
    ht_table_cell(t, "%s", ht_format_quantity(HT_BYTES_PER_S, c.dram_bytes_per_s, text));
    ht_table_cell(t, "%s", ht_format_quantity(HT_FLOPS_PER_S, c.core_flops_per_s, text));
    json_array_append_new(list, json_pack("{s:s,s:I,s:f,s:f,s:f,s:s}", "name", name, "cores", (json_int_t)c.cores,
                                          "dram_bytes_per_s", c.dram_bytes_per_s, "dram_efficiency", c.dram_efficiency,
                                          "core_flops_per_s", c.core_flops_per_s, "source", c.source));
    return HT_OK;
}

static enum ht_status add_link(const char *name, struct ht_table *t, json_t *list, struct ht_error *err)
{
    struct ht_link l;
    char text[HT_QUANTITY_TEXT];
    enum ht_status status = ht_link_load(name, err, &l);
    if (status != HT_OK) return status;
    ht_table_cell(t, "%s", name);
    ht_table_cell(t, "%s", ht_format_quantity(HT_BYTES_PER_S, l.bytes_per_s, text));
    ht_table_cell(t, "%s", ht_format_quantity(HT_BYTES_PER_S, l.bytes_per_s * l.efficiency, text));
    ht_table_cell(t, "%s", ht_format_quantity(HT_TIME, (double)l.latency_ns, text));
    json_array_append_new(list, json_pack("{s:s,s:f,s:f,s:b,s:I,s:s}", "name", name, "bytes_per_s", l.bytes_per_s,
                                          "efficiency", l.efficiency, "duplex", (int)l.duplex, "latency_ns",
                                          (json_int_t)l.latency_ns, "source", l.source));
    return HT_OK;
}

static enum ht_status add_ssd(const char *name, struct ht_table *t, json_t *list, struct ht_error *err)
{
    struct ht_ssd s;
    char text[HT_QUANTITY_TEXT];
    enum ht_status status = ht_ssd_load(name, err, &s);
    if (status != HT_OK) return status;
    ht_table_cell(t, "%s", name);
    ht_table_bytes(t, s.capacity_bytes);
    ht_table_cell(t, "%s", ht_format_quantity(HT_BYTES_PER_S, s.read_bytes_per_s, text));
    ht_table_cell(t, "%s", ht_format_quantity(HT_BYTES_PER_S, s.write_bytes_per_s, text));
    json_array_append_new(list, json_pack("{s:s,s:I,s:f,s:f,s:f,s:s}", "name", name, "capacity_bytes",
                                          (json_int_t)s.capacity_bytes, "read_bytes_per_s", s.read_bytes_per_s,
                                          "write_bytes_per_s", s.write_bytes_per_s, "efficiency", s.efficiency,
                                          "source", s.source));
    return HT_OK;
}

static enum ht_status add_cluster(const char *name, struct ht_table *t, json_t *list, struct ht_error *err)
{
    struct ht_cluster *c;
    char devices[HT_HEADING_TEXT];
    enum ht_status status = ht_cluster_load(name, err, &c);
    if (status != HT_OK) return status;
    const struct ht_machine *node = &c->nodes[0];
    const struct ht_gpu *gpu = ht_cluster_gpu_of(c, 0);
    ht_table_cell(t, "%s", name);
    ht_table_cell(t, "%lld", (long long)c->n_nodes);
    ht_table_cell(t, "%s", ht_cluster_devices(c, devices, sizeof(devices)));
    ht_table_bytes(t, node->ram_bytes);
    if (node->has_ssds)
        ht_table_cell(t, "%lld x %s", (long long)node->n_ssds, node->ssd.name);
    else
        ht_table_cell(t, "-");
    double usd = ht_cluster_price_usd(c);
    ht_table_cell(t, usd > 0 ? "$%.0f" : "-", usd);
    ht_table_cell(t, "%s", node->cpu.name);
    json_array_append_new(list, json_pack("{s:s,s:I,s:I,s:s,s:I,s:s,s:I,s:I,s:s?,s:o,s:s}", "name", name, "nodes",
                                          (json_int_t)c->n_nodes, "devices", (json_int_t)c->n_gpus, "device", gpu->name,
                                          "device_memory_bytes", (json_int_t)gpu->memory_bytes, "cpu", node->cpu.name,
                                          "node_memory_bytes", (json_int_t)node->ram_bytes, "ssds",
                                          (json_int_t)node->n_ssds, "ssd", node->has_ssds ? node->ssd.name : NULL,
                                          "price_usd", usd > 0 ? json_real(usd) : json_null(), "source", c->source));
    ht_cluster_destroy(c);
    return HT_OK;
}

/* Adds an experiment; cluster NULL: each point's is by `by`. */
static void experiment_row(const char *name, int64_t points, const char *cluster, const char *by, const char *title,
                           const char *source, struct ht_table *t, json_t *list)
{
    ht_table_cell(t, "%s", name);
    ht_table_cell(t, "%lld", (long long)points);
    ht_table_cell(t, "%s", cluster ? cluster : by);
    ht_table_cell(t, "%s", title);
    ht_table_cell(t, "%s", source);
    json_array_append_new(list, json_pack("{s:s,s:I,s:s?,s:s,s:s}", "name", name, "points", (json_int_t)points,
                                          "cluster", cluster, "title", title, "source", source));
}

static enum ht_status add_recoveries(const char *name, struct ht_table *t, json_t *list, struct ht_error *err)
{
    struct ht_recoveries *e = HT_NEW(struct ht_recoveries);
    enum ht_status status = ht_recoveries_load(name, err, e);
    if (status == HT_OK)
        experiment_row(name, 2 * e->n_models * e->n_cases, NULL, "by recovery", e->title, e->source, t, list);
    ht_recoveries_free(e);
    free(e);
    return status;
}

static enum ht_status add_experiment(const char *name, struct ht_table *t, json_t *list, struct ht_error *err)
{
    if (ht_days_are(name)) return ht_list_days(name, t, list);
    if (ht_is_recoveries(name)) return add_recoveries(name, t, list, err);
    struct ht_experiment *e = ht_alloc(sizeof(*e));
    enum ht_status status = ht_experiment_load(name, err, e);
    if (status == HT_OK)
        experiment_row(name, ht_experiment_points(e), e->cluster[0] ? e->cluster : NULL, "by model", e->title,
                       e->source, t, list);
    ht_experiment_free(e);
    free(e);
    return status;
}

static json_t *passes_json(const struct ht_passes *p)
{
    return json_pack("{s:f,s:f,s:f}", "passes", p->passes, "casts", p->casts, "fp32", p->fp32);
}

static json_t *pointwise_json(const struct ht_pointwise *p)
{
    return json_pack("{s:o,s:o,s:I,s:I,s:I,s:I,s:I,s:I,s:s}", "forward", passes_json(&p->forward), "backward",
                     passes_json(&p->backward), "kept", (json_int_t)p->kept, "kept_casts", (json_int_t)p->kept_casts,
                     "scratch_forward", (json_int_t)p->scratch_forward, "scratch_backward",
                     (json_int_t)p->scratch_backward, "scratch_casts_forward", (json_int_t)p->scratch_casts_forward,
                     "scratch_casts_backward", (json_int_t)p->scratch_casts_backward, "source", p->source);
}

static json_t *software_json(const struct ht_software *s)
{
    const struct ht_step_passes *t = &s->step;
    const struct ht_software_memory *m = &s->memory;
    const struct ht_software_allocator *a = &s->allocator;
    json_t *o =
        json_pack("{s:s,s:s,s:b,s:b,s:b,s:b,s:b}", "name", s->name, "source", s->source, "dropout", s->dropout,
                  "half_logits", s->half_logits, "frees", s->frees, "by_matrix", s->by_matrix, "outputs", s->outputs);
    json_object_set_new(o, "allocator",
                        json_pack("{s:I,s:I,s:I,s:b,s:s}", "own_bytes", (json_int_t)a->own, "round_bytes",
                                  (json_int_t)a->round, "shared_bytes", (json_int_t)a->shared, "leaving", a->leaving,
                                  "source", a->source));
    json_object_set_new(o, "step",
                        json_pack("{s:f,s:f,s:f,s:f,s:s}", "gradient_casts", t->gradient_casts, "unscale", t->unscale,
                                  "parameter_casts", t->parameter_casts, "parameter_passes", t->parameter_passes,
                                  "source", t->source));
    json_object_set_new(o, "memory",
                        json_pack("{s:I,s:I,s:I,s:I,s:s}", "context_bytes", (json_int_t)m->context, "workspace_bytes",
                                  (json_int_t)m->workspace, "nccl_buffers_bytes", (json_int_t)m->nccl_buffers,
                                  "nccl_peers", (json_int_t)m->nccl_peers, "source", m->source));
    json_object_set_new(o, "collectives",
                        json_pack("{s:f,s:s}", "uneven", s->collectives.uneven, "source", s->collectives.source));
    return o;
}

static enum ht_status add_software(const char *name, struct ht_table *t, json_t *list, struct ht_error *err)
{
    static const struct {
        const char *name;
        size_t offset;
    } parts[] = {
        {"layer_norm", offsetof(struct ht_software, layer_norm)}, {"rms_norm", offsetof(struct ht_software, rms_norm)},
        {"residual", offsetof(struct ht_software, residual)},     {"rotary", offsetof(struct ht_software, rotary)},
        {"scores", offsetof(struct ht_software, scores)},         {"gelu", offsetof(struct ht_software, gelu)},
        {"swiglu", offsetof(struct ht_software, swiglu)},         {"loss", offsetof(struct ht_software, loss)}};
    struct ht_software s;
    enum ht_status status = ht_software_load(name, err, &s);
    if (status != HT_OK) return status;
    json_t *row = software_json(&s);
    ht_table_cell(t, "%s", name);
    for (size_t k = 0; k < HT_COUNT(parts); k++) {
        const struct ht_pointwise *p = (const void *)((const char *)&s + parts[k].offset);
        ht_table_cell(t, "%g+%g", ht_passes_bytes(&p->forward, HT_F16), ht_passes_bytes(&p->backward, HT_F16));
        json_object_set_new(row, parts[k].name, pointwise_json(p));
    }
    json_object_set_new(row, "encoder_scores", pointwise_json(&s.encoder_scores));
    json_object_set_new(row, "unfused_scores", s.fused_heads ? pointwise_json(&s.unfused_scores) : json_null());
    json_object_set_new(row, "fused_heads", json_integer(s.fused_heads));
    json_object_set_new(row, "encoder_gelu", pointwise_json(&s.encoder_gelu));
    ht_table_cell(t, "%g", ht_adam_bytes_per_param(HT_F16, HT_F16) + ht_step_beside_bytes(&s.step, HT_F16, HT_F16));
    ht_table_bytes(t, ht_software_reserve_bytes(&s, 0));
    ht_table_cell(t, "%g", s.collectives.uneven);
    json_array_append_new(list, row);
    return HT_OK;
}

/* ---- kinds ----------------------------------------------------------------------------------------------------- */

static bool system_name(int64_t i, char name[HT_NAME_BYTES])
{
    const struct ht_system *s = ht_system_at((size_t)i);
    if (s) snprintf(name, HT_NAME_BYTES, "%s", s->name);
    return s != NULL;
}

static bool experiment_name(int64_t i, char name[HT_NAME_BYTES])
{
    int64_t n = 0; /* those of days come last */
    while (n < i && ht_experiment_name(n, name, HT_NAME_BYTES)) n++;
    return ht_experiment_name(i, name, HT_NAME_BYTES) || ht_days_name(i - n, name, HT_NAME_BYTES);
}

static const struct kind {
    const char *name, *header;
    bool (*name_of)(int64_t index, char name[HT_NAME_BYTES]);
    /* Adds a row to the table and to the list. */
    enum ht_status (*add)(const char *name, struct ht_table *t, json_t *list, struct ht_error *err);
    const char *note; /* below the table */
    bool variables;   /* of the plans, below the table */
    bool sources;     /* of the figures, below the table: too long for a column */
} kinds[] = {
    {"systems", "<system|<what it does|<variables", system_name, add_system, "", true, true},
    {"models", "<model|>parameters|>layers|>width|>heads|>vocabulary|>tokens at most", ht_model_zoo_name, add_model, "",
     false, false},
    {"gpus", "<gpu|>memory|>fp32 peak|>fp16 peak|>bf16 peak|>memory bandwidth", ht_hw_gpu_name, add_gpu,
     "\npeaks are dense, 16-bit ones with FP32 accumulation; -: no such units, priced at the fp32 peak\n", false, true},
    {"cpus", "<processor|>cores|>memory bandwidth|>fp32 peak of a core", ht_hw_cpu_name, add_cpu, "\nof one socket\n",
     false, true},
    {"links", "<link|>raw rate|>of a large copy|>latency", ht_hw_link_name, add_link, "\nin one direction\n", false,
     true},
    {"ssds", "<disk|>capacity|>read|>write", ht_hw_ssd_name, add_ssd, "", false, true},
    {"clusters",
     "<cluster|>nodes|<devices (memory of each)|>memory of a node|<SSDs of a node|>price|<?processor of a node",
     ht_hw_cluster_name, add_cluster, "", false, true},
    {"software",
     "<software|>layer norm|>rms norm|>?residual|>rotary|>scores|>gelu|>swiglu|>loss|>Adam|>memory of a GPU|>?uneven",
     ht_software_name, add_software,
     "\nbytes an element, forward+backward, with 16-bit parameters and gradients; Adam: bytes a parameter; "
     "memory: without NCCL's; uneven: time of a collective of uneven shards over that of even ones\n",
     false, true},
    {"experiments", "<experiment|>points|<?cluster|<what|<?source", experiment_name, add_experiment, "", false, false},
    {"traces", "<trace|>hours|>events|>lost|>losses an hour|>nodes at most", ht_list_trace_name, ht_list_trace,
     "\nof spot instances; losses at one time count once\n", false, false},
    {"policies", "<policy|<plans with|<when nodes come and go", ht_list_policy_name, ht_list_policy, "", false, false}};

bool ht_list_name(const char *kind, int64_t i, char name[HT_NAME_BYTES])
{
    for (size_t k = 0; k < HT_COUNT(kinds); k++)
        if (!strcmp(kinds[k].name, kind)) return kinds[k].name_of(i, name);
    return false;
}

static void print_kind(const struct kind *kind, const struct ht_options *o, struct ht_table *t, const json_t *list)
{
    ht_table_print(t, "", stdout);
    fputs(kind->note, stdout);
    if (kind->variables && o->why) print_variables(stdout);
    if (kind->sources && o->why) print_sources(list);
    if (kind->variables && !o->all) puts("\n--all lists the ablations of the papers' methods, too");
    if (kind->sources && !o->why)
        printf("%s--why gives the %ssources\n", kind->variables ? "" : "\n",
               kind->variables ? "plan variables and " : "");
}

/* Returns true for a system that is listed only with --all. */
static bool is_hidden(const struct kind *kind, const struct ht_options *o, const char *name)
{
    const struct ht_system *s;
    struct ht_error ignored;
    return kind->variables && !o->all && !o->json && ht_system_find(name, &ignored, &s) == HT_OK &&
           ht_system_is_ablation(s);
}

static enum ht_status list_kind(const struct kind *kind, const struct ht_options *o, struct ht_error *err)
{
    struct ht_table *t = ht_table_create(kind->header);
    json_t *list = json_array();
    char name[HT_NAME_BYTES];
    enum ht_status status = HT_OK;
    for (int64_t i = 0; status == HT_OK && kind->name_of(i, name); i++)
        if (!is_hidden(kind, o, name)) status = kind->add(name, t, list, err);
    if (!o->json && status == HT_OK)
        print_kind(kind, o, t, list);
    else
        ht_table_destroy(t);
    if (o->json && status == HT_OK) return ht_json_print(json_pack("{s:o}", kind->name, list), "list", err);
    json_decref(list);
    return status;
}

static enum ht_status run(const struct ht_options *options, struct ht_error *err)
{
    if (!strcmp(options->words[0], "stores")) return ht_list_stores(options, err);
    if (options->reshard.check) return ht_fail(err, HT_BAD_INPUT, "--check: is of list stores");
    if (options->n_words > 2)
        return ht_fail(err, HT_BAD_INPUT, "list: unexpected word '%s'; expected one kind", options->words[2]);
    if (options->n_words == 2 && !strcmp(options->words[0], "systems"))
        return list_variables(options->words[1], options->json, err);
    if (options->n_words == 2)
        return ht_fail(err, HT_BAD_INPUT, "list: '%s' stands behind '%s'; expected a name behind systems alone",
                       options->words[1], options->words[0]);
    for (size_t i = 0; i < HT_COUNT(kinds); i++)
        if (!strcmp(options->words[0], kinds[i].name)) return list_kind(&kinds[i], options, err);
    return ht_fail(err, HT_BAD_INPUT,
                   "list: unknown kind '%s'; expected systems, models, gpus, cpus, links, ssds, clusters, software, "
                   "experiments, traces, policies or stores",
                   options->words[0]);
}

const struct ht_command ht_cmd_list = {
    .name = "list",
    .args = "KIND [SYSTEM | DIR..]",
    .help = "what can be named: systems, models, gpus, cpus, links, ssds, clusters, software, experiments, "
            "traces, policies, stores\vsystems SYSTEM lists the "
            "plan variables of one system. stores DIR.. shows the steps in node stores, and which store has what share "
            "of each unit of the newest whole one.",
    .example = "hetbench list systems",
    .groups = HT_OPT_CHECK | HT_OPT_WHY | HT_OPT_ALL,
    .min_words = 1,
    .max_words = HT_MAX_WORDS,
    .run = run,
};
