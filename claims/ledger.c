#include "claims/ledger.h"

#include "common/base/array.h"
#include "common/model/zoo.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const ht_claim_metric_names[] = {
    "throughput",         "fits",           "device_peak",    "device_peak_share", "device_need",
    "device_states",      "host_need",      "model_bytes",    "states_per_copy",   "copied_bytes",
    "compute_time",       "plan",           "plan_time",      "plan_time_error",   "plan_memory_error",
    "lanes_end_in_order", "compute_hidden", "collectives",    "peak_at_turn",      "need_at_turn",
    "backward_span",      "head_start",     "loss_difference"};
const char *const ht_claim_kind_names[] = {"value",    "average", "max",    "min",    "largest",
                                           "smallest", "steps",   "spread", "halves", "difference"};
const char *const ht_claim_compare_names[] = {"about", "at-least", "at-most", "above", "below"};
const char *const ht_claim_axis_names[] = {"models", "batches", "memory", "settings"};
const char *const ht_claim_unit_names[] = {"one", "params", "block_params", "block_activations", "block_forward"};
_Static_assert(HT_COUNT(ht_claim_metric_names) == HT_N_CLAIM_METRICS, "a name for each metric");
_Static_assert(HT_COUNT(ht_claim_kind_names) == HT_N_CLAIM_KINDS, "a name for each kind");

/* ---- names ----------------------------------------------------------------------------------------------------- */

/* Text that names one of n things; `name_of` reads the i-th name. */
static enum ht_status named(const struct ht_node *node, const char *what, size_t n,
                            const char *(*name_of)(const void *, size_t), const void *things, struct ht_error *err,
                            size_t *out)
{
    const char *text = NULL;
    enum ht_status status = ht_node_string(node, err, &text);
    if (status != HT_OK) return status;
    const char **names = HT_NEW_ARRAY(const char *, n);
    for (size_t i = 0; i < n; i++) {
        names[i] = name_of(things, i);
        if (!strcmp(names[i], text)) {
            *out = i;
            free(names);
            return HT_OK;
        }
    }
    const char *near = ht_nearest(text, names, n);
    status = near ? ht_node_error(node, err, "names no %s of this file: '%.60s'; expected '%s'?", what, text, near)
                  : ht_node_error(node, err, "names no %s of this file: '%.60s'", what, text);
    free(names);
    return status;
}

static const char *tolerance_name(const void *things, size_t i)
{
    return ((const struct ht_claim_tolerance *)things)[i].name;
}

static const char *system_name(const void *things, size_t i)
{
    return ((const struct ht_claim_system *)things)[i].name;
}

static const char *setup_name(const void *things, size_t i)
{
    return ((const struct ht_claim_setup *)things)[i].name;
}

/* ---- tolerances, systems --------------------------------------------------------------------------------------- */

static enum ht_status load_tolerance(const struct ht_node *map, struct ht_error *err, struct ht_claim_tolerance *out)
{
    static const struct ht_field fields[] = {
        {.key = "relative",
         .type = HT_FIELD_DOUBLE,
         .offset = offsetof(struct ht_claim_tolerance, relative),
         .min = 0,
         .max = 1},
        {.key = "absolute",
         .type = HT_FIELD_DOUBLE,
         .offset = offsetof(struct ht_claim_tolerance, absolute),
         .min = 0,
         .max = 1e12},
        {.key = "why",
         .type = HT_FIELD_STRING,
         .offset = offsetof(struct ht_claim_tolerance, why),
         .required = true,
         .size = sizeof(out->why)},
        {0},
    };
    *out = (struct ht_claim_tolerance){.name = map->key, .relative = -1, .absolute = -1};
    enum ht_status status = ht_config_load(map, fields, err, out);
    if (status == HT_OK && (out->relative < 0) == (out->absolute < 0))
        return ht_node_key_error(map, err, "is no tolerance; expected either 'relative' or 'absolute'");
    return status;
}

static enum ht_status load_system(const struct ht_node *list, struct ht_error *err, struct ht_claim_system *out)
{
    *out = (struct ht_claim_system){.name = list->key};
    enum ht_status status = ht_node_want(list, HT_NODE_LIST, err);
    if (status != HT_OK) return status;
    if (list->n_children < 1 || list->n_children > HT_CLAIM_SYSTEMS)
        return ht_node_error(list, err, "has %u systems; expected 1 to %d", list->n_children, HT_CLAIM_SYSTEMS);
    HT_EACH_CHILD(list, c)
    {
        status = ht_node_string(c, err, &out->variants[out->n_variants]);
        if (status != HT_OK) return status;
        if (strlen(out->variants[out->n_variants++]) >= HT_CLAIM_NAME)
            return ht_node_error(c, err, "is too long; expected a system and settings such as 'autohete c=2'");
    }
    return HT_OK;
}

/* ---- setups ---------------------------------------------------------------------------------------------------- */

static enum ht_status load_model(const struct ht_node *node, struct ht_error *err, struct ht_claim_setup *s, int i)
{
    struct ht_model model;
    struct ht_error why;
    enum ht_status status = ht_node_string(node, err, &s->models[i]);
    if (status != HT_OK) return status;
    if (ht_model_load(s->models[i], &why, &model) != HT_OK) return ht_node_error(node, err, "%.800s", why.text);
    if (s->seq && ht_model_check_seq(&model, s->seq, &why) != HT_OK)
        return ht_node_error(node, err, "%.800s", why.text);
    s->model_params[i] = ht_model_params(&model);
    return HT_OK;
}

/* "default": the device's own memory. */
static enum ht_status load_memory(const struct ht_node *node, struct ht_error *err, struct ht_claim_setup *s, int i)
{
    if (node->kind == HT_NODE_SCALAR && !strcmp(node->text, "default")) {
        s->memory_bytes[i] = 0;
        return HT_OK;
    }
    return ht_node_whole(node, HT_BYTES, 1, INT64_MAX / 2, err, &s->memory_bytes[i]);
}

/* A map of plan variables: {c: 3, p: 1, o: 5}. */
static enum ht_status load_settings(const struct ht_node *node, struct ht_error *err, struct ht_claim_setup *s, int i)
{
    enum ht_status status = ht_node_want(node, HT_NODE_MAP, err);
    if (status != HT_OK) return status;
    if (node->n_children > HT_CLAIM_SET)
        return ht_node_error(node, err, "sets %u variables; expected at most %d", node->n_children, HT_CLAIM_SET);
    HT_EACH_CHILD(node, c)
    {
        int64_t value = 0;
        status = ht_node_int(c, 0, 1 << 20, err, &value);
        if (status != HT_OK) return status;
        if (strlen(c->key) > 16) return ht_node_key_error(c, err, "is too long; expected a plan variable such as 'o'");
        snprintf(s->settings[i][s->n_settings[i]++], sizeof(s->settings[i][0]), "%s=%lld", c->key, (long long)value);
    }
    return HT_OK;
}

static enum ht_status load_list(const struct ht_node *list, enum ht_claim_axis axis, struct ht_error *err,
                                struct ht_claim_setup *s)
{
    s->n[axis] = 1;
    if (!list) return HT_OK;
    if (list->n_children < 1 || list->n_children > HT_CLAIM_LIST)
        return ht_node_error(list, err, "has %u entries; expected 1 to %d", list->n_children, HT_CLAIM_LIST);
    int i = 0;
    HT_EACH_CHILD(list, c)
    {
        enum ht_status status = axis == HT_CLAIM_MODELS    ? load_model(c, err, s, i)
                                : axis == HT_CLAIM_BATCHES ? ht_node_int(c, 1, 1 << 20, err, &s->batches[i])
                                : axis == HT_CLAIM_MEMORY  ? load_memory(c, err, s, i)
                                                           : load_settings(c, err, s, i);
        if (status != HT_OK) return status;
        i++;
    }
    s->n[axis] = i;
    return HT_OK;
}

#define AT(m) .offset = offsetof(struct ht_claim_setup, m)
static const struct ht_field setup_fields[] = {
    {.key = "models", .type = HT_FIELD_LIST_NODE, AT(models_node), .required = true},
    {.key = "cluster", .type = HT_FIELD_STRING, AT(cluster), .required = true, .size = HT_CLAIM_NAME},
    {.key = "batches", .type = HT_FIELD_LIST_NODE, AT(batches_node)},
    {.key = "memory", .type = HT_FIELD_LIST_NODE, AT(memory_node)},
    {.key = "settings", .type = HT_FIELD_LIST_NODE, AT(settings_node)},
    {.key = "seq", .type = HT_FIELD_INT, AT(seq), .min = 1, .max = 1 << 24},
    {.key = "micro_batch", .type = HT_FIELD_INT, AT(micro_batch), .min = 1, .max = 1 << 20},
    {.key = "numerics", .type = HT_FIELD_STRING, AT(numerics), .size = 16},
    {.key = "iterations", .type = HT_FIELD_INT, AT(iterations), .fallback = "8", .min = 1, .max = 1000},
    {.key = "train_steps", .type = HT_FIELD_INT, AT(train_steps), .min = 1, .max = 1000},
    {.key = "note", .type = HT_FIELD_STRING, AT(note), .size = sizeof(((struct ht_claim_setup *)0)->note)},
    {0},
};
#undef AT

static enum ht_status load_setup(const struct ht_node *map, struct ht_error *err, struct ht_claim_setup *out)
{
    *out = (struct ht_claim_setup){.name = map->key};
    enum ht_status status = ht_config_load(map, setup_fields, err, out);
    if (status == HT_OK) status = load_list(out->models_node, HT_CLAIM_MODELS, err, out);
    if (status == HT_OK) status = load_list(out->batches_node, HT_CLAIM_BATCHES, err, out);
    if (status == HT_OK) status = load_list(out->memory_node, HT_CLAIM_MEMORY, err, out);
    if (status == HT_OK) status = load_list(out->settings_node, HT_CLAIM_SETTINGS, err, out);
    if (status != HT_OK) return status;

    struct ht_cluster *cluster = NULL;
    struct ht_error why;
    enum ht_status found = strcmp(out->cluster, "local") ? ht_cluster_load(out->cluster, &why, &cluster) : HT_OK;
    int64_t most = 0; /* of the budgets; a device that has been given one is as large as that */
    for (int i = 0; i < out->n[HT_CLAIM_MEMORY]; i++)
        if (out->memory_bytes[i] > most) most = out->memory_bytes[i];
    if (cluster && most) found = ht_cluster_set_device_memory(cluster, most, &why);
    ht_cluster_destroy(cluster);
    if (found != HT_OK) return ht_node_error(ht_node_find(map, "cluster"), err, "%.800s", why.text);
    if (out->train_steps && strcmp(out->cluster, "local"))
        return ht_node_error(ht_node_find(map, "cluster"), err, "cannot be trained on; expected 'local'");
    return HT_OK;
}

/* ---- rows ------------------------------------------------------------------------------------------------------ */

/* A row as it is written. */
struct row {
    struct ht_claim claim;
    const struct ht_node *setup, *systems, *versus, *value, *tolerance, *metric, *kind, *fails_in;
};

#define AT(m)   .offset = offsetof(struct row, m)
#define SIZE(m) .size = sizeof(((struct row *)0)->m)
static const struct ht_field row_fields[] = {
    {.key = "where", .type = HT_FIELD_STRING, AT(claim.where), .required = true, SIZE(claim.where)},
    {.key = "statement", .type = HT_FIELD_STRING, AT(claim.statement), .required = true, SIZE(claim.statement)},
    {.key = "unchecked", .type = HT_FIELD_STRING, AT(claim.unchecked), SIZE(claim.unchecked)},
    {.key = "note", .type = HT_FIELD_STRING, AT(claim.note), SIZE(claim.note)},
    {.key = "paper", .type = HT_FIELD_STRING, AT(claim.paper), SIZE(claim.paper)},
    {.key = "setup", .type = HT_FIELD_ANY_NODE, AT(setup)},
    {.key = "systems", .type = HT_FIELD_LIST_NODE, AT(systems)},
    {.key = "versus", .type = HT_FIELD_ANY_NODE, AT(versus)},
    {.key = "metric", .type = HT_FIELD_ANY_NODE, AT(metric)},
    {.key = "kind", .type = HT_FIELD_ANY_NODE, AT(kind)},
    {.key = "variable", .type = HT_FIELD_STRING, AT(claim.variable), SIZE(claim.variable)},
    {.key = "over",
     .type = HT_FIELD_ENUM,
     AT(claim.over),
     .fallback = "models",
     .names = ht_claim_axis_names,
     .n_names = HT_N_CLAIM_AXES},
    {.key = "per",
     .type = HT_FIELD_ENUM,
     AT(claim.unit),
     .fallback = "one",
     .names = ht_claim_unit_names,
     .n_names = HT_COUNT(ht_claim_unit_names)},
    {.key = "compare",
     .type = HT_FIELD_ENUM,
     AT(claim.compare),
     .fallback = "about",
     .names = ht_claim_compare_names,
     .n_names = HT_COUNT(ht_claim_compare_names)},
    {.key = "value", .type = HT_FIELD_ANY_NODE, AT(value)},
    {.key = "fails_in", .type = HT_FIELD_ANY_NODE, AT(fails_in)},
    {.key = "tolerance", .type = HT_FIELD_ANY_NODE, AT(tolerance)},
    {0},
};
#undef AT
#undef SIZE

static bool is_boundary(enum ht_claim_kind kind)
{
    return kind == HT_CLAIM_LARGEST || kind == HT_CLAIM_SMALLEST;
}

/* The value: a number, or for a boundary an entry of the list. */
static enum ht_status load_value(const struct row *row, struct ht_error *err, struct ht_claim *c)
{
    if (!is_boundary(c->kind)) return ht_node_double(row->value, -1e18, 1e18, err, &c->value);
    enum ht_status status = ht_node_want(row->value, HT_NODE_SCALAR, err);
    if (status != HT_OK) return status;
    const struct ht_claim_setup *s = c->setup;
    int64_t number = 0;
    if (c->over == HT_CLAIM_BATCHES) status = ht_node_int(row->value, 1, 1 << 20, err, &number);
    if (c->over == HT_CLAIM_MEMORY) status = ht_node_whole(row->value, HT_BYTES, 1, INT64_MAX / 2, err, &number);
    if (status != HT_OK) return status;
    for (int i = 0; i < s->n[c->over]; i++) {
        bool same = c->over == HT_CLAIM_MODELS    ? !strcmp(s->models[i], row->value->text)
                    : c->over == HT_CLAIM_BATCHES ? s->batches[i] == number
                                                  : s->memory_bytes[i] == number;
        if (!same) continue;
        c->value = i;
        return HT_OK;
    }
    return ht_node_error(row->value, err, "'%.60s' is not among the %s of setup '%s'", row->value->text,
                         ht_claim_axis_names[c->over], s->name);
}

/* What does not go together. */
static enum ht_status check_row(const struct row *row, struct ht_error *err)
{
    const struct ht_claim *c = &row->claim;
    if (is_boundary(c->kind) != (c->metric == HT_CLAIM_FITS))
        return ht_node_error(row->kind, err, "does not go with metric '%s'; expected 'fits' with largest or smallest",
                             ht_claim_metric_names[c->metric]);
    if (is_boundary(c->kind) && (c->over == HT_CLAIM_SETTINGS || c->versus))
        return ht_node_error(row->kind, err, "is for models, batches or memory, and without 'versus'");
    if (c->kind == HT_CLAIM_DIFFERENCE && c->setup->n[c->over] != 2)
        return ht_node_error(row->kind, err, "needs a list of two; %s has %d", ht_claim_axis_names[c->over],
                             c->setup->n[c->over]);
    if ((c->kind == HT_CLAIM_HALVES || c->kind == HT_CLAIM_STEPS) && c->setup->n[c->over] < 2)
        return ht_node_error(row->kind, err, "needs a list of at least two; %s has one", ht_claim_axis_names[c->over]);
    if ((c->metric == HT_CLAIM_PLAN_VARIABLE) != (c->variable[0] != 0))
        return ht_node_error(row->metric, err, "and 'variable' go together: metric 'plan', variable such as 'o'");
    if ((c->metric == HT_CLAIM_LOSS_DIFFERENCE) != (c->setup->train_steps > 0))
        return ht_node_error(row->metric, err, "does not go with this setup: 'train_steps' and 'loss_difference' do");
    if (c->metric == HT_CLAIM_LOSS_DIFFERENCE && !c->versus) return ht_node_error(row->metric, err, "needs 'versus'");
    if (row->fails_in && !is_boundary(c->kind))
        return ht_node_error(row->fails_in, err, "is for kinds largest and smallest only");
    return HT_OK;
}

static enum ht_status load_names(const struct ht_ledger *ledger, const struct row *row, struct ht_error *err,
                                 struct ht_claim *c)
{
    size_t at = 0;
    int which = 0;
    enum ht_status status = named(row->setup, "setup", (size_t)ledger->n_setups, setup_name, ledger->setups, err, &at);
    if (status != HT_OK) return status;
    c->setup = &ledger->setups[at];
    if (row->systems->n_children < 1 || row->systems->n_children > HT_CLAIM_SYSTEMS)
        return ht_node_error(row->systems, err, "has %u entries; expected 1 to %d", row->systems->n_children,
                             HT_CLAIM_SYSTEMS);
    HT_EACH_CHILD(row->systems, s)
    {
        status = named(s, "system", (size_t)ledger->n_systems, system_name, ledger->systems, err, &at);
        if (status != HT_OK) return status;
        c->systems[c->n_systems++] = &ledger->systems[at];
    }
    if (row->versus) {
        status = named(row->versus, "system", (size_t)ledger->n_systems, system_name, ledger->systems, err, &at);
        if (status != HT_OK) return status;
        c->versus = &ledger->systems[at];
    }
    status =
        named(row->tolerance, "tolerance", (size_t)ledger->n_tolerances, tolerance_name, ledger->tolerances, err, &at);
    if (status != HT_OK) return status;
    c->tolerance = &ledger->tolerances[at];
    status = ht_node_enum(row->metric, ht_claim_metric_names, HT_N_CLAIM_METRICS, err, &which);
    c->metric = (enum ht_claim_metric)which;
    if (status == HT_OK) status = ht_node_enum(row->kind, ht_claim_kind_names, HT_N_CLAIM_KINDS, err, &which);
    c->kind = (enum ht_claim_kind)which;
    if (status == HT_OK && row->fails_in) {
        static const char *const tiers[] = {"device", "host"};
        status = ht_node_enum(row->fails_in, tiers, 2, err, &which);
        c->fails_in = which + 1;
    }
    return status;
}

static enum ht_status load_claim(const struct ht_ledger *ledger, const struct ht_node *map, struct ht_error *err,
                                 struct ht_claim *out)
{
    struct row row = {.claim = {.id = map->key}};
    enum ht_status status = ht_config_load(map, row_fields, err, &row);
    if (status != HT_OK) return status;
    const struct ht_node *needed[] = {row.setup, row.systems, row.metric, row.kind, row.value, row.tolerance};
    static const char *const names[] = {"setup", "systems", "metric", "kind", "value", "tolerance"};
    for (size_t i = 0; i < HT_COUNT(needed); i++) {
        if (row.claim.unchecked[0] && needed[i])
            return ht_node_key_error(needed[i], err, "has no place in a row that is unchecked");
        if (!row.claim.unchecked[0] && !needed[i])
            return ht_node_key_error(map, err, "lacks the key '%s'; expected it, or 'unchecked' with the reason",
                                     names[i]);
    }
    if (!row.claim.unchecked[0]) status = load_names(ledger, &row, err, &row.claim);
    if (status == HT_OK && !row.claim.unchecked[0]) status = check_row(&row, err);
    if (status == HT_OK && !row.claim.unchecked[0]) status = load_value(&row, err, &row.claim);
    if (status == HT_OK) *out = row.claim;
    return status;
}

/* ---- the file -------------------------------------------------------------------------------------------------- */

struct top {
    char paper[256];
    const struct ht_node *tolerances, *systems, *setups, *claims;
};

static enum ht_status load_all(const struct top *top, struct ht_error *err, struct ht_ledger *l)
{
    enum ht_status status = HT_OK;
    l->tolerances = HT_NEW_ARRAY(struct ht_claim_tolerance, top->tolerances->n_children);
    l->systems = HT_NEW_ARRAY(struct ht_claim_system, top->systems->n_children);
    l->setups = HT_NEW_ARRAY(struct ht_claim_setup, top->setups->n_children);
    l->claims = HT_NEW_ARRAY(struct ht_claim, top->claims->n_children);
    HT_EACH_CHILD(top->tolerances, c)
    if ((status = load_tolerance(c, err, &l->tolerances[l->n_tolerances++])) != HT_OK) return status;
    HT_EACH_CHILD(top->systems, c)
    if ((status = load_system(c, err, &l->systems[l->n_systems++])) != HT_OK) return status;
    HT_EACH_CHILD(top->setups, c)
    if ((status = load_setup(c, err, &l->setups[l->n_setups++])) != HT_OK) return status;
    HT_EACH_CHILD(top->claims, c)
    if ((status = load_claim(l, c, err, &l->claims[l->n_claims++])) != HT_OK) return status;
    return HT_OK;
}

enum ht_status ht_ledger_load(struct ht_doc *doc, struct ht_error *err, struct ht_ledger *out)
{
    static const struct ht_field fields[] = {
        {.key = "paper",
         .type = HT_FIELD_STRING,
         .offset = offsetof(struct top, paper),
         .required = true,
         .size = sizeof(((struct top *)0)->paper)},
        {.key = "tolerances", .type = HT_FIELD_MAP_NODE, .offset = offsetof(struct top, tolerances), .required = true},
        {.key = "systems", .type = HT_FIELD_MAP_NODE, .offset = offsetof(struct top, systems), .required = true},
        {.key = "setups", .type = HT_FIELD_MAP_NODE, .offset = offsetof(struct top, setups), .required = true},
        {.key = "claims", .type = HT_FIELD_MAP_NODE, .offset = offsetof(struct top, claims), .required = true},
        {0},
    };
    struct top top = {0};
    struct ht_ledger l = {.doc = doc};
    enum ht_status status = ht_config_load(ht_doc_root(doc), fields, err, &top);
    if (status == HT_OK) status = load_all(&top, err, &l);
    if (status != HT_OK) {
        ht_ledger_free(&l);
        *out = (struct ht_ledger){0};
        return status;
    }
    memcpy(l.paper, top.paper, sizeof(l.paper));
    *out = l;
    return HT_OK;
}

void ht_ledger_free(struct ht_ledger *l)
{
    free(l->tolerances);
    free(l->systems);
    free(l->setups);
    free(l->claims);
    ht_doc_destroy(l->doc);
    *l = (struct ht_ledger){0};
}

const char *ht_claim_entry(const struct ht_claim_setup *s, enum ht_claim_axis axis, int i, char *buf, size_t n)
{
    char text[HT_QUANTITY_TEXT];
    switch (axis) {
    case HT_CLAIM_MODELS:
        snprintf(buf, n, "%s", s->models[i]);
        break;
    case HT_CLAIM_BATCHES:
        snprintf(buf, n, "%lld", (long long)s->batches[i]);
        break;
    case HT_CLAIM_MEMORY:
        if (!s->memory_bytes[i])
            snprintf(buf, n, "its own");
        else if (s->memory_bytes[i] % (1 << 30) == 0)
            snprintf(buf, n, "%lld GiB", (long long)(s->memory_bytes[i] >> 30));
        else
            snprintf(buf, n, "%s", ht_format_quantity(HT_BYTES, (double)s->memory_bytes[i], text));
        break;
    default: {
        size_t at = 0;
        buf[0] = '\0';
        for (int k = 0; k < s->n_settings[i] && at < n; k++)
            at += (size_t)snprintf(buf + at, n - at, "%s%s", k ? " " : "", s->settings[i][k]);
    }
    }
    return buf;
}
