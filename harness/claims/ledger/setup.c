/* Setups of a ledger: lists whose combinations are scenarios. */
#include "harness/claims/ledger/parts.h"

#include "common/base/array.h"
#include "common/model/software.h"
#include "common/model/zoo.h"
#include "common/store/recovery_case.h"

#include <stdio.h>
#include <string.h>

/* ---- entries of lists ------------------------------------------------------------------------------------------ */

static bool is_map(const struct ht_node *node)
{
    return node->kind == HT_NODE_MAP;
}

/* Checks that the model's cluster exists and takes the budgets; notes its nodes. */
static enum ht_status load_cluster(const struct ht_node *at, struct ht_error *err, struct ht_claim_setup *s, int i)
{
    struct ht_cluster *cluster = NULL;
    struct ht_error why;
    bool local = !strcmp(s->clusters[i], "local");
    enum ht_status found = local ? HT_OK : ht_cluster_load(s->clusters[i], &why, &cluster);
    int64_t most = 0; /* the largest of the budgets: if it fits the device, all do */
    for (int k = 0; k < s->n[HT_CLAIM_MEMORY]; k++)
        if (s->values[HT_CLAIM_MEMORY][k] > most) most = s->values[HT_CLAIM_MEMORY][k];
    if (cluster && most) found = ht_cluster_set_device_memory(cluster, most, &why);
    if (cluster && found == HT_OK && s->values[HT_CLAIM_SSDS][0])
        found = ht_cluster_set_ssds(cluster, s->values[HT_CLAIM_SSDS][0], &why);
    s->n_nodes[i] = cluster ? cluster->n_nodes : 1;
    ht_cluster_destroy(cluster);
    if (found != HT_OK) return ht_node_error(at, err, "%.800s", why.text);
    if (s->train_steps && !local)
        return ht_node_error(at, err, "cluster for simulation only; expected 'local' beside 'train_steps'");
    return HT_OK;
}

/* Checks that the change of nodes exists; it takes the place of the model's cluster. */
static enum ht_status load_recovery(const struct ht_node *at, const struct ht_node *cluster, struct ht_error *err,
                                    struct ht_claim_setup *s, int i)
{
    struct ht_recovery_case c;
    struct ht_error why;
    if (cluster) return ht_node_key_error(cluster, err, "not allowed beside 'recovery'");
    if (ht_recovery_case_load(s->recovery, &why, &c) != HT_OK) return ht_node_error(at, err, "%.800s", why.text);
    s->clusters[i] = at->text;
    s->n_nodes[i] = c.n_nodes;
    return HT_OK;
}

struct named_model {
    const struct ht_node *name, *cluster;
};

/* Reads "sysx-10b", or {name: sysx-10b, cluster: sysx-1node}. */
static enum ht_status load_model(const struct ht_node *node, struct ht_error *err, struct ht_claim_setup *s, int i)
{
    static const struct ht_field fields[] = {
        {.key = "name", HT_FIELD_NODE(struct named_model, name), .required = true},
        {.key = "cluster", HT_FIELD_NODE(struct named_model, cluster), .required = true},
        {0},
    };
    struct named_model entry = {.name = node};
    struct ht_model model;
    struct ht_error why;
    enum ht_status status = is_map(node) ? ht_config_load(node, fields, err, &entry) : HT_OK;
    if (status == HT_OK) status = ht_node_string(entry.name, err, &s->models[i]);
    if (status == HT_OK && strlen(s->models[i]) >= HT_CLAIM_MODEL)
        status = ht_node_error(entry.name, err, "is too long; expected at most %d characters", HT_CLAIM_MODEL - 1);
    if (status != HT_OK) return status;
    if (ht_model_load(s->models[i], &why, &model) != HT_OK) return ht_node_error(entry.name, err, "%.800s", why.text);
    for (int k = 0; k < s->n[HT_CLAIM_SEQS]; k++)
        if (s->values[HT_CLAIM_SEQS][k] && ht_model_check_seq(&model, s->values[HT_CLAIM_SEQS][k], &why) != HT_OK)
            return ht_node_error(entry.name, err, "%.800s", why.text);
    s->values[HT_CLAIM_MODELS][i] = ht_model_params(&model);
    s->n_units[i] = ht_model_units(&model);
    const struct ht_node *setup = node->parent->parent;
    if (s->recovery[0]) return load_recovery(ht_node_find(setup, "recovery"), entry.cluster, err, s, i);
    if (!entry.cluster) entry.cluster = ht_node_find(setup, "cluster");
    if (!entry.cluster)
        return ht_node_error(node, err, "has no cluster; expected {name: .., cluster: ..}, or 'cluster' in the setup");
    status = ht_node_string(entry.cluster, err, &s->clusters[i]);
    if (status == HT_OK && strlen(s->clusters[i]) >= HT_CLAIM_NAME)
        return ht_node_error(entry.cluster, err, "is too long; expected at most %d characters", HT_CLAIM_NAME - 1);
    return status == HT_OK ? load_cluster(entry.cluster, err, s, i) : status;
}

/* Reads a budget in bytes, or "default" for the device's own memory: 0. */
static enum ht_status load_memory(const struct ht_node *node, struct ht_error *err, int64_t *out)
{
    if (node->kind == HT_NODE_SCALAR && !strcmp(node->text, "default")) {
        *out = 0;
        return HT_OK;
    }
    return ht_node_whole(node, HT_BYTES, 1, INT64_MAX / 2, err, out);
}

/* Reads a set of blocks, "1-5,9". The system's knob says whether the blocks exist. */
static enum ht_status read_blocks(const struct ht_node *node, struct ht_error *err, const char **out)
{
    if (node->text_bytes > 14 || node->text[0] == '-' || node->text[strspn(node->text, "0123456789-,")])
        return ht_node_error(node, err, "'%.40s' is not a number or a short set of blocks such as 1-5,9", node->text);
    *out = node->text;
    return HT_OK;
}

/* Reads a map of plan variables: {c: 3, p: 1, o: 5}, {C: "1-5,9"}. */
static enum ht_status load_settings(const struct ht_node *node, struct ht_error *err, struct ht_claim_setup *s, int i)
{
    enum ht_status status = ht_node_want(node, HT_NODE_MAP, err);
    if (status != HT_OK) return status;
    if (node->n_children > HT_CLAIM_SET)
        return ht_node_error(node, err, "sets %u variables; expected at most %d", node->n_children, HT_CLAIM_SET);
    HT_EACH_CHILD(node, c)
    {
        int64_t value = 0;
        const char *blocks = NULL;
        if (c->kind == HT_NODE_SCALAR && *c->text && strpbrk(c->text + 1, "-,"))
            status = read_blocks(c, err, &blocks);
        else
            status = ht_node_int(c, 0, INT64_C(1) << 50, err, &value);
        if (status != HT_OK) return status;
        if (strlen(c->key) > 16) return ht_node_key_error(c, err, "is too long; expected a plan variable such as 'o'");
        char *out = s->settings[i][s->n_settings[i]++];
        if (blocks)
            snprintf(out, sizeof(s->settings[i][0]), "%s=%s", c->key, blocks);
        else
            snprintf(out, sizeof(s->settings[i][0]), "%s=%lld", c->key, (long long)value);
    }
    return HT_OK;
}

static enum ht_status load_entry(const struct ht_node *node, enum ht_claim_axis axis, struct ht_error *err,
                                 struct ht_claim_setup *s, int i)
{
    static const int64_t most[HT_N_CLAIM_LISTS] = {[HT_CLAIM_BATCHES] = 1 << 20,
                                                   [HT_CLAIM_SEQS] = 1 << 24,
                                                   [HT_CLAIM_MICRO_BATCHES] = 1 << 20,
                                                   [HT_CLAIM_SSDS] = 64};
    if (axis == HT_CLAIM_MODELS) return load_model(node, err, s, i);
    if (axis == HT_CLAIM_SETTINGS) return load_settings(node, err, s, i);
    if (!most[axis]) return load_memory(node, err, &s->values[axis][i]);
    return ht_node_int(node, 1, most[axis], err, &s->values[axis][i]);
}

static enum ht_status load_list(enum ht_claim_axis axis, struct ht_error *err, struct ht_claim_setup *s)
{
    const struct ht_node *list = s->nodes_of[axis];
    s->n[axis] = 1;
    if (!list) return HT_OK;
    if (list->kind != HT_NODE_LIST) return load_entry(list, axis, err, s, 0);
    if (list->n_children < 1 || list->n_children > HT_CLAIM_LIST)
        return ht_node_error(list, err, "the list has %u entries; expected 1 to %d", list->n_children, HT_CLAIM_LIST);
    s->n[axis] = (int)list->n_children;
    int i = 0;
    HT_EACH_CHILD(list, c)
    {
        enum ht_status status = load_entry(c, axis, err, s, i++);
        if (status != HT_OK) return status;
    }
    return HT_OK;
}

/* ---- software --------------------------------------------------------------------------------------------------- */

enum ht_status ht_claim_load_software(const struct ht_node *map, struct ht_error *err, struct ht_claim_software *out)
{
    static const struct ht_field fields[] = {
        {.key = "name", HT_FIELD_TEXT(struct ht_claim_software, name), .required = true},
        {.key = "why", HT_FIELD_TEXT(struct ht_claim_software, why), .required = true},
        {0},
    };
    struct ht_software software;
    struct ht_error why;
    enum ht_status status = ht_config_load(map, fields, err, out);
    if (status == HT_OK && ht_software_load(out->name, &why, &software) != HT_OK)
        return ht_node_error(ht_node_find(map, "name"), err, "%.800s", why.text);
    return status;
}

const char *ht_claim_software(const struct ht_claim_setup *s)
{
    bool runs = !s->train_steps && !s->units.devices && !s->recovery[0];
    return s->software.name[0] && runs ? s->software.name : NULL;
}

/* ---- a setup --------------------------------------------------------------------------------------------------- */

#define AT(m) .offset = offsetof(struct ht_claim_units, m)
#define SECONDS(m, must)                                                                                               \
    {                                                                                                                  \
        .key = #m, .type = HT_FIELD_DOUBLE, AT(m), .required = must, .min = 0, .max = 1e6                              \
    }
static const struct ht_field unit_fields[] = {
    {.key = "devices", .type = HT_FIELD_INT, AT(devices), .required = true, .min = 1, .max = 64},
    {.key = "blocks", .type = HT_FIELD_INT, AT(blocks), .required = true, .min = 1, .max = 1024},
    SECONDS(forward, true),
    SECONDS(backward, true),
    SECONDS(fetch, true),
    SECONDS(offload, true),
    SECONDS(step, true),
    SECONDS(read, false),
    SECONDS(write, false),
    {0},
};
#undef SECONDS
#undef AT

#define AT(m)      .offset = offsetof(struct ht_claim_setup, m)
#define LIST(axis) AT(nodes_of) + (axis) * sizeof(const struct ht_node *)
static const struct ht_field setup_fields[] = {
    {.key = "models", .type = HT_FIELD_LIST_NODE, LIST(HT_CLAIM_MODELS)},
    {.key = "cluster", HT_FIELD_TEXT(struct ht_claim_setup, cluster)},
    {.key = "unit_times", .type = HT_FIELD_MAP, AT(units), .fields = unit_fields},
    {.key = "batches", .type = HT_FIELD_LIST_NODE, LIST(HT_CLAIM_BATCHES)},
    {.key = "batches_per_node", .type = HT_FIELD_LIST_NODE, AT(per_node)},
    {.key = "memory", .type = HT_FIELD_LIST_NODE, LIST(HT_CLAIM_MEMORY)},
    {.key = "settings", .type = HT_FIELD_LIST_NODE, LIST(HT_CLAIM_SETTINGS)},
    {.key = "seq", .type = HT_FIELD_ANY_NODE, LIST(HT_CLAIM_SEQS)},
    {.key = "micro_batch", .type = HT_FIELD_ANY_NODE, LIST(HT_CLAIM_MICRO_BATCHES)},
    {.key = "host_memory", .type = HT_FIELD_ANY_NODE, LIST(HT_CLAIM_HOST_MEMORY)},
    {.key = "ssds", .type = HT_FIELD_ANY_NODE, LIST(HT_CLAIM_SSDS)},
    {.key = "numerics", HT_FIELD_TEXT(struct ht_claim_setup, numerics)},
    {.key = "accumulate", HT_FIELD_TEXT(struct ht_claim_setup, accumulate)},
    {.key = "iterations", .type = HT_FIELD_INT, AT(iterations), .fallback = "8", .min = 1, .max = 1000},
    {.key = "bad", .type = HT_FIELD_LIST_NODE, AT(bad_nodes)},
    {.key = "recovery", HT_FIELD_TEXT(struct ht_claim_setup, recovery)},
    {.key = "train_steps", .type = HT_FIELD_INT, AT(train_steps), .min = 1, .max = 1000},
    {.key = "software", .type = HT_FIELD_MAP_NODE, AT(software_node)},
    {.key = "search",
     .type = HT_FIELD_ENUM,
     AT(search),
     .fallback = "none",
     .names = ht_claim_search_names,
     .n_names = HT_CLAIM_SEARCH_SEQ + 1},
    {.key = "note", HT_FIELD_TEXT(struct ht_claim_setup, note)},
    {0},
};
#undef LIST
#undef AT

/* Refuses keys. */
static enum ht_status refuse(const struct ht_node *map, const char *const *keys, size_t n, const char *why,
                             struct ht_error *err)
{
    for (size_t i = 0; i < n; i++) {
        const struct ht_node *other = ht_node_find(map, keys[i]);
        if (other) return ht_node_key_error(other, err, "%s", why);
    }
    return HT_OK;
}

/* Reads the models on their clusters, or makes equal blocks with times of their own. */
static enum ht_status load_subject(const struct ht_node *map, struct ht_error *err, struct ht_claim_setup *s)
{
    static const char *const not_with_units[] = {"models",      "cluster",  "memory",      "seq",
                                                 "host_memory", "ssds",     "train_steps", "numerics",
                                                 "accumulate",  "software", "search"};
    static const char *const not_with_recovery[] = {
        "cluster",     "unit_times",  "batches", "batches_per_node", "memory",     "settings",   "seq",
        "micro_batch", "host_memory", "ssds",    "numerics",         "accumulate", "iterations", "bad",
        "train_steps", "software",    "search"};
    if (s->recovery[0]) {
        enum ht_status status =
            refuse(map, not_with_recovery, HT_COUNT(not_with_recovery), "not allowed beside 'recovery'", err);
        if (status != HT_OK) return status;
    }
    if (!ht_node_find(map, "unit_times")) {
        if (!s->nodes_of[HT_CLAIM_MODELS])
            return ht_node_key_error(map, err, "key 'models' is missing; expected it, or 'unit_times'");
        return load_list(HT_CLAIM_MODELS, err, s);
    }
    enum ht_status status =
        refuse(map, not_with_units, HT_COUNT(not_with_units), "not allowed beside 'unit_times'", err);
    if (status != HT_OK) return status;
    /* Takes blocks of a small model on emulated devices: sizes and rates do not count, but everything has to fit. */
    s->n[HT_CLAIM_MODELS] = 1;
    s->models[0] = "llama-tiny";
    s->clusters[0] = "local";
    s->n_nodes[0] = 1;
    s->n_units[0] = s->units.blocks + 2;
    s->values[HT_CLAIM_SEQS][0] = 16;
    return HT_OK;
}

static enum ht_status load_bad(const struct ht_node *list, struct ht_error *err, struct ht_claim_setup *s)
{
    if (!list) return HT_OK;
    if (s->train_steps) return ht_node_key_error(list, err, "not allowed beside 'train_steps'");
    if (list->n_children < 1 || list->n_children > HT_CLAIM_LIST)
        return ht_node_error(list, err, "the list has %u entries; expected 1 to %d", list->n_children, HT_CLAIM_LIST);
    HT_EACH_CHILD(list, c)
    {
        int64_t ignored;
        enum ht_status status = ht_node_int(c, 1, s->iterations, err, &ignored);
        if (status != HT_OK) return status;
        s->bad[s->n_bad++] = c->text;
    }
    return HT_OK;
}

/* Checks numerics and sums before any scenario is made. */
static enum ht_status check_numerics(const struct ht_node *map, struct ht_error *err)
{
    static const char *const numerics[] = {"fp32", "fp16", "bf16"}, *const sums[] = {"fp32", "16"};
    const struct ht_node *n = ht_node_find(map, "numerics"), *a = ht_node_find(map, "accumulate");
    int which = 0;
    enum ht_status status = n ? ht_node_enum(n, numerics, HT_COUNT(numerics), err, &which) : HT_OK;
    bool single = n && !which;
    if (status == HT_OK && a) status = ht_node_enum(a, sums, HT_COUNT(sums), err, &which);
    if (status == HT_OK && a && which && single)
        return ht_node_error(a, err, "needs 16-bit gradients; numerics are fp32");
    return status;
}

/* Refuses what a search takes the place of. */
static enum ht_status check_search(const struct ht_node *map, const struct ht_claim_setup *s, struct ht_error *err)
{
    static const char *const replaced[][3] = {
        [HT_CLAIM_SEARCH_MODEL] = {"train_steps"},
        [HT_CLAIM_SEARCH_BATCH] = {"train_steps", "batches", "batches_per_node"},
        [HT_CLAIM_SEARCH_SEQ] = {"train_steps", "seq"},
    };
    for (int i = 0; s->search && i < 3 && replaced[s->search][i]; i++) {
        const struct ht_node *other = ht_node_find(map, replaced[s->search][i]);
        if (other)
            return ht_node_key_error(other, err, "not allowed beside 'search: %s'", ht_claim_search_names[s->search]);
    }
    return HT_OK;
}

enum ht_status ht_claim_load_setup(const struct ht_node *map, const struct ht_claim_software *software,
                                   struct ht_error *err, struct ht_claim_setup *out)
{
    *out = (struct ht_claim_setup){.name = map->key, .software = *software};
    enum ht_status status = ht_config_load(map, setup_fields, err, out);
    if (status != HT_OK) return status;
    if (out->per_node && out->nodes_of[HT_CLAIM_BATCHES])
        return ht_node_key_error(out->per_node, err, "not allowed beside 'batches'");
    if (out->per_node) out->nodes_of[HT_CLAIM_BATCHES] = out->per_node;
    if (out->software_node && out->train_steps)
        return ht_node_key_error(out->software_node, err, "not allowed beside 'train_steps'");
    status = check_search(map, out, err);
    if (status == HT_OK) status = check_numerics(map, err);
    if (status == HT_OK) status = load_bad(out->bad_nodes, err, out);
    if (status == HT_OK && out->software_node) status = ht_claim_load_software(out->software_node, err, &out->software);
    for (int axis = HT_CLAIM_BATCHES; axis < HT_N_CLAIM_LISTS && status == HT_OK; axis++)
        status = load_list((enum ht_claim_axis)axis, err, out);
    return status == HT_OK ? load_subject(map, err, out) : status;
}

/* ---- reading --------------------------------------------------------------------------------------------------- */

enum ht_status ht_claim_find_entry(const struct ht_claim_setup *s, enum ht_claim_axis axis, const struct ht_node *node,
                                   struct ht_error *err, int *out)
{
    const int64_t *numbers = s->values[axis];
    bool size = axis == HT_CLAIM_MEMORY || axis == HT_CLAIM_HOST_MEMORY;
    int64_t number = 0;
    enum ht_status status = ht_node_want(node, HT_NODE_SCALAR, err);
    if (status == HT_OK && size) status = load_memory(node, err, &number);
    if (status == HT_OK && !size && axis != HT_CLAIM_MODELS) status = ht_node_int(node, 1, 1 << 24, err, &number);
    if (status != HT_OK) return status;
    for (*out = 0; *out < s->n[axis]; ++*out)
        if (axis == HT_CLAIM_MODELS ? !strcmp(s->models[*out], node->text) : numbers[*out] == number) return HT_OK;
    return ht_node_error(node, err, "'%.60s' is not among the %s of setup '%s'", node->text, ht_claim_axis_names[axis],
                         s->name);
}

int64_t ht_claim_batch(const struct ht_claim_setup *s, struct ht_claim_point p)
{
    return ht_claim_value_of(s, HT_CLAIM_BATCHES, p) * (s->per_node ? s->n_nodes[p.at[HT_CLAIM_MODELS]] : 1);
}

static void memory_text(int64_t bytes, char *buf, size_t n)
{
    char text[HT_QUANTITY_TEXT];
    if (!bytes)
        snprintf(buf, n, "its own");
    else if (bytes % (1 << 30) == 0)
        snprintf(buf, n, "%lld GiB", (long long)(bytes >> 30));
    else
        snprintf(buf, n, "%s", ht_format_quantity(HT_BYTES, (double)bytes, text));
}

const char *ht_claim_entry(const struct ht_claim_setup *s, enum ht_claim_axis axis, int i, char *buf, size_t n)
{
    size_t at = 0;
    buf[0] = '\0';
    if (axis == HT_CLAIM_MODELS && s->units.devices)
        snprintf(buf, n, "%lld blocks", (long long)s->units.blocks);
    else if (axis == HT_CLAIM_MODELS)
        snprintf(buf, n, "%s", s->models[i]);
    else if (axis == HT_CLAIM_MEMORY || axis == HT_CLAIM_HOST_MEMORY)
        memory_text(s->values[axis][i], buf, n);
    else if (axis < HT_N_CLAIM_LISTS && axis != HT_CLAIM_SETTINGS)
        snprintf(buf, n, "%lld%s", (long long)s->values[axis][i],
                 axis == HT_CLAIM_BATCHES && s->per_node ? " a node" : "");
    else
        for (int k = 0; k < s->n_settings[i] && at < n; k++)
            at += (size_t)snprintf(buf + at, n - at, "%s%s", k ? " " : "", s->settings[i][k]);
    return buf;
}
