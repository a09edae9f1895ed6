#include "harness/sweep/experiment.h"

#include "common/base/array.h"
#include "common/model/software.h"
#include "common/model/zoo.h"
#include "harness/sweep/builtin.h"
#include "harness/run/registry.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

const char *const ht_axis_names[HT_N_AXES] = {"models",        "batches",     "device_memory", "seqs",
                                              "micro_batches", "host_memory", "ssds",          "mixes"};
const char *const ht_figure_names[HT_N_FIGURES] = {"lines",    "bars",   "speedups", "breakdown", "sizes",
                                                   "rollback", "totals", "gains",    "parts",     "prediction",
                                                   "times",    "wins",   "price",    "mixes"};

/* A file as the table of fields reads it. Its lists are checked afterwards. */
struct file {
    struct ht_experiment e;
    int numerics, accumulate, control;
    char loss_scale[32], software[256];
    const struct ht_node *lists[HT_N_AXES], *per_node, *clusters, *systems, *timelines, *bad;
};

static const char *const numerics_names[] = {"fp32", "fp16", "bf16"};
static const char *const accumulate_names[] = {"fp32", "16"};

#define AT(field)               .offset = offsetof(struct file, field)
#define STRING(field)           HT_FIELD_TEXT(struct file, field)
#define ENUM(field, of, n)      .type = HT_FIELD_ENUM, AT(field), .names = of, .n_names = n
#define INT(field, least, most) .type = HT_FIELD_INT, AT(field), .min = least, .max = most
#define LIST(axis)              .type = HT_FIELD_LIST_NODE, AT(lists[axis])
static const struct ht_field fields[] = {
    {.key = "name", STRING(e.name)},
    {.key = "title", STRING(e.title)},
    {.key = "source", STRING(e.source)},
    {.key = "cluster", STRING(e.cluster)},
    {.key = "numerics", ENUM(numerics, numerics_names, 3)},
    {.key = "accumulate", ENUM(accumulate, accumulate_names, 2)},
    {.key = "control", ENUM(control, ht_control_mode_names, HT_N_CONTROL_MODES)},
    {.key = "software", STRING(software)},
    {.key = "clip", .type = HT_FIELD_DOUBLE, AT(e.request.clip), .fallback = "0", .min = 0, .max = 1e30},
    {.key = "loss_scale", STRING(loss_scale)},
    {.key = "initial_scale", .type = HT_FIELD_DOUBLE, AT(e.request.initial_scale), .min = 0x1p-24, .max = 0x1p64},
    {.key = "growth_interval", INT(e.request.growth_interval, 1, 1000000000)},
    {.key = "micro_batch", INT(e.request.micro_batch, 1, 1 << 20)},
    {.key = "iterations", INT(e.sim.iterations, 1, 1000), .fallback = "8"},
    {.key = "warmup", INT(e.sim.warmup, 0, 1000), .fallback = "2"},
    {.key = "bad", .type = HT_FIELD_LIST_NODE, AT(bad)},
    {.key = "break_even", .type = HT_FIELD_BOOL, AT(e.break_even), .fallback = "false"},
    {.key = "best_micro_batch", .type = HT_FIELD_BOOL, AT(e.best_micro_batch), .fallback = "false"},
    {.key = "figure", ENUM(e.figure, ht_figure_names, HT_N_FIGURES), .fallback = "lines"},
    {.key = "along", ENUM(e.along, ht_axis_names, HT_N_AXES)},
    {.key = "models", LIST(HT_AXIS_MODELS), .required = true},
    {.key = "clusters", .type = HT_FIELD_LIST_NODE, AT(clusters)},
    {.key = "batches", LIST(HT_AXIS_BATCHES)},
    {.key = "batches_per_node", .type = HT_FIELD_LIST_NODE, AT(per_node)},
    {.key = "device_memory", LIST(HT_AXIS_MEMORY)},
    {.key = "seqs", LIST(HT_AXIS_SEQS)},
    {.key = "micro_batches", LIST(HT_AXIS_MICRO_BATCHES)},
    {.key = "host_memory", LIST(HT_AXIS_HOST_MEMORY)},
    {.key = "ssds", LIST(HT_AXIS_SSDS)},
    {.key = "mixes", .type = HT_FIELD_MAP_NODE, AT(lists[HT_AXIS_MIXES])},
    {.key = "systems", .type = HT_FIELD_LIST_NODE, AT(systems), .required = true},
    {.key = "timelines", .type = HT_FIELD_MAP_NODE, AT(timelines)},
    {.key = NULL},
};

/* Turns a catalogue's complaint about a name into an error at the name's place in the file. */
static enum ht_status at_node(const struct ht_node *node, enum ht_status status, const struct ht_error *why,
                              struct ht_error *err)
{
    return status == HT_OK ? HT_OK : ht_node_error(node, err, "%.800s", why->text);
}

/* Checks that a list has 1 to `most` entries, which `of` says more about. */
static enum ht_status check_length(const struct ht_node *list, unsigned most, const char *of, struct ht_error *err)
{
    if (list->n_children && list->n_children <= most) return HT_OK;
    return ht_node_error(list, err, "the list has %u entries; expected 1 to %u%s", list->n_children, most, of);
}

static enum ht_status read_model(const struct ht_node *node, struct ht_error *err, const char **out)
{
    struct ht_error why = {0};
    struct ht_model model;
    enum ht_status status = ht_node_string(node, err, out);
    return status == HT_OK ? at_node(node, ht_model_load(*out, &why, &model), &why, err) : status;
}

/* Reads "sysx", or "sysx d=2 log=0". The settings are checked when there is a scenario. */
static enum ht_status read_system(const struct ht_node *node, struct ht_error *err, const char **out)
{
    struct ht_error why = {0};
    const struct ht_system *system;
    char name[HT_VARIANT_MAX];
    enum ht_status status = ht_node_string(node, err, out);
    if (status != HT_OK) return status;
    if (strlen(*out) >= sizeof(name))
        return ht_node_error(node, err, "too long; expected a system and settings such as 'autohete c=2'");
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(*out, " "), *out);
    return at_node(node, ht_system_find(name, &why, &system), &why, err);
}

static enum ht_status read_cluster(const struct ht_node *node, const char *name, struct ht_error *err, int64_t *n_nodes)
{
    struct ht_error why = {0};
    struct ht_cluster *cluster = NULL;
    enum ht_status status = ht_cluster_load(name, &why, &cluster);
    if (status == HT_OK) *n_nodes = cluster->n_nodes;
    ht_cluster_destroy(cluster);
    return at_node(node, status, &why, err);
}

/* Reads "sysx-10b", or {name: sysx-10b, cluster: sysx-1node}. */
static enum ht_status read_placed_model(const struct ht_node *node, struct ht_error *err, struct ht_experiment *e,
                                        int64_t i)
{
    struct placed {
        const struct ht_node *name, *cluster;
    } m = {.name = node, .cluster = ht_node_find(node->parent->parent, "cluster")};
    static const struct ht_field keys[] = {
        {.key = "name", HT_FIELD_NODE(struct placed, name), .required = true},
        {.key = "cluster", HT_FIELD_NODE(struct placed, cluster), .required = true},
        {.key = NULL},
    };
    enum ht_status status = node->kind == HT_NODE_MAP ? ht_config_load(node, keys, err, &m) : HT_OK;
    if (status == HT_OK) status = read_model(m.name, err, &e->models[i]);
    if (status != HT_OK) return status;
    if (!m.cluster)
        return ht_node_error(node, err,
                             "has no cluster; expected {name: .., cluster: ..}, or 'cluster' in the experiment");
    status = ht_node_string(m.cluster, err, &e->clusters[i]);
    return status == HT_OK ? read_cluster(m.cluster, e->clusters[i], err, &e->n_nodes[i]) : status;
}

static enum ht_status read_value(enum ht_axis axis, const struct ht_node *node, struct ht_error *err, int64_t *out)
{
    if (axis == HT_AXIS_BATCHES || axis == HT_AXIS_MICRO_BATCHES) return ht_node_int(node, 1, 1 << 20, err, out);
    if (axis == HT_AXIS_SSDS) return ht_node_int(node, 1, 64, err, out);
    if (axis == HT_AXIS_SEQS) return ht_node_int(node, 1, 1 << 24, err, out);
    *out = 0;
    if (node->kind == HT_NODE_SCALAR && !strcmp(node->text, "all")) return HT_OK;
    return ht_node_whole(node, HT_BYTES, 1, INT64_MAX, err, out);
}

/* Writes the mix that takes these counts of the kinds, "a100-80gb:3,h800-80gb:5". */
static void write_mix(const struct ht_node *kinds, const int64_t *counts, char out[HT_MIX_MAX])
{
    size_t used = 0;
    HT_EACH_CHILD(kinds, kind)
    {
        int64_t count = *counts++;
        if (count && used < HT_MIX_MAX)
            used += (size_t)snprintf(out + used, HT_MIX_MAX - used, "%s%s:%lld", used ? "," : "", kind->key,
                                     (long long)count);
    }
}

/* Checks that every model's cluster has the mix. */
static enum ht_status check_mix(const struct ht_node *kinds, const struct ht_experiment *e, const char *mix,
                                struct ht_error *err)
{
    for (int64_t m = 0; m < e->n[HT_AXIS_MODELS]; m++) {
        struct ht_cluster *cluster = NULL;
        struct ht_error why = {0};
        enum ht_status status = ht_cluster_load(e->clusters[m], &why, &cluster);
        if (status == HT_OK) status = ht_cluster_keep(cluster, mix, &why);
        ht_cluster_destroy(cluster);
        if (status != HT_OK) return at_node(kinds, status, &why, err);
    }
    return HT_OK;
}

/* Lists every mix of up to so many devices of the kinds, without the one that has none. The last kind counts fastest. */
static enum ht_status read_mixes(const struct ht_node *kinds, struct ht_error *err, struct ht_experiment *e)
{
    int64_t most[2], counts[2] = {0}, n = 0;
    if (kinds->n_children != 2)
        return ht_node_error(kinds, err, "the map has %u kinds of devices; expected two, each with its largest count",
                             kinds->n_children);
    HT_EACH_CHILD(kinds, kind)
    {
        enum ht_status status = ht_node_int(kind, 1, HT_AXIS_MAX, err, &most[n++]);
        if (status != HT_OK) return status;
    }
    if ((most[0] + 1) * (most[1] + 1) - 1 > HT_AXIS_MAX)
        return ht_node_error(kinds, err, "%lld mixes; expected at most %d",
                             (long long)((most[0] + 1) * (most[1] + 1) - 1), HT_AXIS_MAX);
    n = 0;
    for (counts[0] = 0; counts[0] <= most[0]; counts[0]++)
        for (counts[1] = counts[0] == 0; counts[1] <= most[1]; counts[1]++) write_mix(kinds, counts, e->mixes[n++]);
    e->n[HT_AXIS_MIXES] = n;
    return check_mix(kinds, e, e->mixes[n - 1], err);
}

static bool is_twice(const struct ht_experiment *e, enum ht_axis axis, int64_t i)
{
    for (int64_t j = 0; j < i; j++)
        if (axis == HT_AXIS_MODELS ? !strcmp(e->models[j], e->models[i]) && !strcmp(e->clusters[j], e->clusters[i])
                                   : e->values[axis][j] == e->values[axis][i])
            return true;
    return false;
}

/* Reads every model on every cluster, clusters innermost. */
static enum ht_status read_grid(const struct file *f, const struct ht_node *models, struct ht_error *err,
                                struct ht_experiment *e)
{
    if (e->cluster[0]) return ht_node_key_error(f->clusters, err, "not allowed beside 'cluster'");
    enum ht_status status = check_length(f->clusters, HT_AXIS_MAX / models->n_children, " on these models", err);
    if (status != HT_OK) return status;
    HT_EACH_CHILD(models, model)
    HT_EACH_CHILD(f->clusters, cluster)
    {
        int64_t i = e->n[HT_AXIS_MODELS]++;
        status = read_model(model, err, &e->models[i]);
        if (status == HT_OK) status = ht_node_string(cluster, err, &e->clusters[i]);
        if (status == HT_OK) status = read_cluster(cluster, e->clusters[i], err, &e->n_nodes[i]);
        if (status == HT_OK && is_twice(e, HT_AXIS_MODELS, i))
            status = ht_node_error(cluster, err, "stands in the list twice; expected each entry once");
        if (status != HT_OK) return status;
    }
    return HT_OK;
}

/* Reads one list of the sweep. An absent list has one entry, the default. */
static enum ht_status read_axis(struct file *f, enum ht_axis axis, struct ht_error *err)
{
    const struct ht_node *list = f->lists[axis];
    struct ht_experiment *e = &f->e;
    enum ht_status status = HT_OK;
    if (!list) {
        e->n[axis] = 1;
        return HT_OK;
    }
    if (axis == HT_AXIS_MIXES) return read_mixes(list, err, e);
    status = check_length(list, HT_AXIS_MAX, "", err);
    if (status != HT_OK) return status;
    if (axis == HT_AXIS_MODELS && f->clusters) return read_grid(f, list, err, e);
    HT_EACH_CHILD(list, node)
    {
        int64_t i = e->n[axis]++;
        status = axis == HT_AXIS_MODELS ? read_placed_model(node, err, e, i)
                                        : read_value(axis, node, err, &e->values[axis][i]);
        if (status == HT_OK && is_twice(e, axis, i))
            status = ht_node_error(node, err, "stands in the list twice; expected each entry once");
        if (status != HT_OK) return status;
    }
    return HT_OK;
}

/* Checks that micro-batches divide the batches; node: where the micro-batch is written. */
static enum ht_status check_division(const struct ht_experiment *e, int64_t micro_batch, const struct ht_node *node,
                                     struct ht_error *err)
{
    for (int64_t i = 0; i < e->n[HT_AXIS_BATCHES] && micro_batch; i++) {
        int64_t batch = e->values[HT_AXIS_BATCHES][i] ? e->values[HT_AXIS_BATCHES][i] : 8;
        if (batch % micro_batch)
            return ht_node_error(node, err, "%lld does not divide the batch of %lld", (long long)micro_batch,
                                 (long long)batch);
    }
    return HT_OK;
}

/* Checks sequence lengths against every model, and batches against micro-batches. */
static enum ht_status check_shapes(const struct ht_node *map, const struct file *f, struct ht_error *err)
{
    const struct ht_experiment *e = &f->e;
    enum ht_status status = HT_OK;
    for (int64_t m = 0; m < e->n[HT_AXIS_MODELS] && f->lists[HT_AXIS_SEQS]; m++) {
        struct ht_model model;
        struct ht_error why = {0};
        status = ht_model_load(e->models[m], err, &model);
        if (status != HT_OK) return status;
        int64_t i = 0;
        HT_EACH_CHILD(f->lists[HT_AXIS_SEQS], node)
        {
            status = ht_model_check_seq(&model, e->values[HT_AXIS_SEQS][i++], &why);
            if (status != HT_OK) return at_node(node, status, &why, err);
        }
    }
    const struct ht_node *one = ht_node_find(map, "micro_batch"), *list = f->lists[HT_AXIS_MICRO_BATCHES];
    if (e->best_micro_batch && (one || list))
        return ht_node_key_error(one ? one : list, err, "not allowed beside 'best_micro_batch'");
    if (one && list) return ht_node_key_error(one, err, "not allowed beside 'micro_batches'");
    if (!list) return check_division(e, e->request.micro_batch, one, err);
    int64_t k = 0;
    HT_EACH_CHILD(list, node)
    {
        status = check_division(e, e->values[HT_AXIS_MICRO_BATCHES][k++], node, err);
        if (status != HT_OK) return status;
    }
    return HT_OK;
}

static enum ht_status check_prices(const struct ht_node *figure, const struct ht_experiment *e, struct ht_error *err)
{
    for (int64_t m = 0; m < e->n[HT_AXIS_MODELS]; m++) {
        struct ht_cluster *cluster = NULL;
        struct ht_error why;
        if (ht_cluster_load(e->clusters[m], &why, &cluster) != HT_OK)
            return ht_node_error(figure, err, "%.800s", why.text);
        double usd = ht_cluster_price_usd(cluster);
        ht_cluster_destroy(cluster);
        if (usd <= 0)
            return ht_node_error(figure, err, "cluster '%s' has no price; expected 'price_usd' of its nodes",
                                 e->clusters[m]);
    }
    return HT_OK;
}

/* Checks that the figure has what it draws. */
static enum ht_status check_figure(const struct ht_node *map, const struct ht_experiment *e, struct ht_error *err)
{
    const struct ht_node *figure = ht_node_find(map, "figure");
    if ((e->figure == HT_FIGURE_SPEEDUPS || e->figure == HT_FIGURE_GAINS) && e->n_series < 2)
        return ht_node_error(figure, err, "one system; expected another one last, to compare with");
    if (e->figure == HT_FIGURE_SIZES && e->along == HT_AXIS_MODELS)
        return ht_node_error(figure, err, "goes over the models; expected another list in 'along'");
    if (e->figure == HT_FIGURE_ROLLBACK && !e->sim.n_bad)
        return ht_node_error(figure, err, "key 'bad' is missing; expected iterations whose gradients overflow");
    if (e->figure == HT_FIGURE_MIXES && e->n[HT_AXIS_MIXES] < 2)
        return ht_node_error(figure, err, "key 'mixes' is missing; expected two kinds of devices with their counts");
    return e->figure == HT_FIGURE_PRICE ? check_prices(figure, e, err) : HT_OK;
}

static enum ht_status read_series(const struct ht_node *node, struct ht_error *err, struct ht_series *out)
{
    const struct ht_node *label, *best_of;
    if (node->kind == HT_NODE_SCALAR) {
        out->n_systems = 1;
        out->label = node->text;
        return read_system(node, err, &out->systems[0]);
    }
    enum ht_status status = ht_node_want(node, HT_NODE_MAP, err);
    if (status == HT_OK) status = ht_node_get(node, "label", err, &label);
    if (status == HT_OK) status = ht_node_string(label, err, &out->label);
    if (status == HT_OK && (strlen(out->label) > HT_LABEL_MAX || strpbrk(out->label, "|\n\r\t")))
        status =
            ht_node_error(label, err, "invalid label; expected at most %d bytes on one line without '|'", HT_LABEL_MAX);
    if (status == HT_OK) status = ht_node_get(node, "best_of", err, &best_of);
    if (status == HT_OK) status = ht_node_want(best_of, HT_NODE_LIST, err);
    if (status != HT_OK) return status;
    HT_EACH_CHILD(node, key)
    if (strcmp(key->key, "label") && strcmp(key->key, "best_of"))
        return ht_node_key_error(key, err, "unknown key; expected label and best_of");
    status = check_length(best_of, HT_VARIANTS_MAX, " systems", err);
    if (status != HT_OK) return status;
    HT_EACH_CHILD(best_of, system)
    {
        status = read_system(system, err, &out->systems[out->n_systems++]);
        if (status != HT_OK) return status;
    }
    return HT_OK;
}

static enum ht_status read_systems(struct file *f, struct ht_error *err)
{
    struct ht_experiment *e = &f->e;
    enum ht_status status = check_length(f->systems, HT_SERIES_MAX, " systems", err);
    if (status != HT_OK) return status;
    HT_EACH_CHILD(f->systems, node)
    {
        struct ht_series *s = &e->series[e->n_series++];
        status = read_series(node, err, s);
        if (status != HT_OK) return status;
        for (int64_t i = 0; i < e->n_series - 1; i++)
            if (!strcmp(e->series[i].label, s->label))
                return ht_node_error(node, err, "'%s' stands in the list twice; expected each label once", s->label);
    }
    return HT_OK;
}

static enum ht_status read_bad(struct file *f, struct ht_error *err)
{
    if (!f->bad) return HT_OK;
    enum ht_status status = check_length(f->bad, HT_MAX_BAD, "", err);
    if (status != HT_OK) return status;
    HT_EACH_CHILD(f->bad, node)
    {
        int64_t ignored;
        status = ht_node_int(node, 1, f->e.sim.iterations, err, &ignored);
        if (status != HT_OK) return status;
        f->e.sim.bad[f->e.sim.n_bad++] = node->text;
    }
    return HT_OK;
}

static enum ht_status read_timelines(struct file *f, struct ht_error *err)
{
    struct {
        const struct ht_node *model, *systems;
        int64_t batch, device_memory_bytes;
    } t = {0};
    static const struct ht_field keys[] = {
        {.key = "model", .type = HT_FIELD_ANY_NODE, .offset = 0, .required = true},
        {.key = "systems", .type = HT_FIELD_LIST_NODE, .offset = sizeof(void *), .required = true},
        {.key = "batch", .type = HT_FIELD_INT, .offset = 2 * sizeof(void *), .min = 1, .max = 1 << 20},
        {.key = "device_memory", .type = HT_FIELD_BYTES, .offset = 2 * sizeof(void *) + sizeof(int64_t)},
        {.key = NULL},
    };
    if (!f->timelines) return HT_OK;
    if (!f->e.cluster[0])
        return ht_node_key_error(f->timelines, err, "not allowed without 'cluster', on which they are simulated");
    enum ht_status status = ht_config_load(f->timelines, keys, err, &t);
    if (status == HT_OK) status = read_model(t.model, err, &f->e.timelines.model);
    if (status != HT_OK) return status;
    f->e.timelines.batch = t.batch;
    f->e.timelines.device_memory_bytes = t.device_memory_bytes;
    if (t.systems->n_children > HT_SERIES_MAX)
        return ht_node_error(t.systems, err, "the list has %u entries; expected at most %d", t.systems->n_children,
                             HT_SERIES_MAX);
    HT_EACH_CHILD(t.systems, node)
    {
        const char *system = NULL;
        status = read_system(node, err, &system);
        if (status != HT_OK) return status;
        if (strchr(system, ' ')) return ht_node_error(node, err, "has settings; expected a system alone");
        f->e.timelines.systems[f->e.timelines.n_systems++] = system;
    }
    return HT_OK;
}

static const char *text_of(const struct ht_node *map, const char *key)
{
    const struct ht_node *node = ht_node_find(map, key);
    return node && node->text[0] ? node->text : NULL;
}

/* Reads what the points share of a request. The strings point into the document. */
static enum ht_status read_request(const struct ht_node *map, struct file *f, struct ht_error *err)
{
    struct ht_scenario_request *r = &f->e.request;
    struct ht_software software;
    struct ht_error why;
    r->numerics = text_of(map, "numerics");
    r->accumulate = text_of(map, "accumulate");
    r->control = text_of(map, "control");
    r->loss_scale = text_of(map, "loss_scale");
    r->software = text_of(map, "software");
    if (!r->software || ht_software_load(r->software, &why, &software) == HT_OK) return HT_OK;
    return ht_node_error(ht_node_find(map, "software"), err, "%.800s", why.text);
}

enum ht_status ht_experiment_read_name(const struct ht_node *map, struct ht_error *err, char *name, size_t bytes)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    const struct ht_node *written = ht_node_find(map, "name");
    if (!name[0] && !map->parent)
        return ht_node_error(map, err, "key 'name' is missing; expected the experiment's name");
    if (!name[0]) snprintf(name, bytes, "%s", map->key);
    if (name[strspn(name, allowed)] || name[0] == '.')
        return ht_node_error(written ? written : map, err,
                             "invalid name '%s'; expected letters, digits, '.', '_' and '-'", name);
    return HT_OK;
}

static enum ht_status read_map(const struct ht_node *map, struct ht_error *err, struct file *f)
{
    enum ht_status status = ht_node_want(map, HT_NODE_MAP, err);
    f->e.along = -1;
    f->e.sim = ht_options_default().sim;
    if (status == HT_OK) status = ht_config_load(map, fields, err, f);
    if (status == HT_OK) status = ht_experiment_read_name(map, err, f->e.name, sizeof(f->e.name));
    if (status == HT_OK && f->per_node && f->lists[HT_AXIS_BATCHES])
        status = ht_node_key_error(f->per_node, err, "not allowed beside 'batches'");
    f->e.per_node = f->per_node != NULL;
    if (f->per_node) f->lists[HT_AXIS_BATCHES] = f->per_node;
    if (status == HT_OK) status = read_request(map, f, err);
    for (int axis = 0; axis < HT_N_AXES && status == HT_OK; axis++) status = read_axis(f, (enum ht_axis)axis, err);
    if (status == HT_OK) status = check_shapes(map, f, err);
    if (status == HT_OK) status = read_systems(f, err);
    if (status == HT_OK) status = read_bad(f, err);
    if (status == HT_OK) status = read_timelines(f, err);
    if (f->e.along < 0) {
        f->e.along = HT_AXIS_MODELS;
        for (int axis = 1; axis < HT_N_AXES; axis++)
            if (f->e.n[axis] > f->e.n[f->e.along]) f->e.along = axis;
    }
    return status == HT_OK ? check_figure(map, &f->e, err) : status;
}

enum ht_status ht_experiment_load(const char *name_or_path, struct ht_error *err, struct ht_experiment *out)
{
    struct file *f = HT_NEW(struct file);
    const struct ht_node *map = NULL;
    enum ht_status status;
    if (ht_is_path(name_or_path)) {
        status = ht_doc_open(name_or_path, err, &f->e.doc);
        if (status == HT_OK) map = ht_doc_root(f->e.doc);
    } else {
        status = ht_experiment_find(name_or_path, err, &f->e.doc, &map);
    }
    if (status == HT_OK) status = read_map(map, err, f);
    if (status == HT_OK)
        *out = f->e;
    else {
        ht_experiment_free(&f->e);
        *out = (struct ht_experiment){0};
    }
    free(f);
    return status;
}

void ht_experiment_free(struct ht_experiment *e)
{
    ht_doc_destroy(e->doc);
    e->doc = NULL;
}

int64_t ht_experiment_batch(const struct ht_experiment *e, const int64_t at[HT_N_AXES])
{
    return e->values[HT_AXIS_BATCHES][at[HT_AXIS_BATCHES]] * (e->per_node ? e->n_nodes[at[HT_AXIS_MODELS]] : 1);
}

static int64_t variants(const struct ht_experiment *e)
{
    int64_t n = 0;
    for (int64_t i = 0; i < e->n_series; i++) n += e->series[i].n_systems;
    return n;
}

int64_t ht_experiment_points(const struct ht_experiment *e)
{
    int64_t n = variants(e);
    for (int axis = 0; axis < HT_N_AXES; axis++) n *= e->n[axis];
    return n;
}

/* Counts models outermost, then batches, budgets, lengths and micro-batches, systems innermost: the rows of an unfinished table can be
   compared too. */
struct ht_point ht_experiment_point(const struct ht_experiment *e, int64_t index)
{
    struct ht_point p = {0};
    p.variant = index % variants(e);
    index /= variants(e);
    while (p.variant >= e->series[p.series].n_systems) p.variant -= e->series[p.series++].n_systems;
    for (int axis = HT_N_AXES - 1; axis >= 0; axis--) {
        p.at[axis] = index % e->n[axis];
        index /= e->n[axis];
    }
    return p;
}
