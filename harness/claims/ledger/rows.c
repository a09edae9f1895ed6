/* Rows of a ledger: the values that they are made of, how, and the paper's figure. */
#include "harness/claims/ledger/parts.h"

#include "common/base/array.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- names ----------------------------------------------------------------------------------------------------- */

/* Finds which of n things a text names; `name_of` reads the i-th name. */
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
    status = near ? ht_node_error(node, err, "unknown %s '%.60s'; expected '%s'?", what, text, near)
                  : ht_node_error(node, err, "unknown %s '%.60s'; expected one of this file", what, text);
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

/* ---- rows ------------------------------------------------------------------------------------------------------ */

/* A row as the ledger writes it. */
struct row {
    struct ht_claim claim;
    const struct ht_node *setup, *systems, *versus, *value, *tolerance, *metric, *kind, *over, *then, *at, *fails_in,
        *variable, *versus_reduced, *versus_at;
};

#define AT(m)             .offset = offsetof(struct row, m)
#define TEXT(m)           HT_FIELD_TEXT(struct row, m)
#define ENUM(m, of, last) .type = HT_FIELD_ENUM, AT(m), .names = of, .n_names = (last) + 1
static const struct ht_field row_fields[] = {
    {.key = "where", TEXT(claim.where), .required = true},
    {.key = "statement", TEXT(claim.statement), .required = true},
    {.key = "unchecked", TEXT(claim.unchecked)},
    {.key = "note", TEXT(claim.note)},
    {.key = "reading", TEXT(claim.reading)},
    {.key = "paper", TEXT(claim.paper)},
    {.key = "setup", .type = HT_FIELD_ANY_NODE, AT(setup)},
    {.key = "systems", .type = HT_FIELD_LIST_NODE, AT(systems)},
    {.key = "versus", .type = HT_FIELD_ANY_NODE, AT(versus)},
    {.key = "versus_reduced", .type = HT_FIELD_ANY_NODE, AT(versus_reduced)},
    {.key = "versus_at", .type = HT_FIELD_MAP_NODE, AT(versus_at)},
    {.key = "metric", .type = HT_FIELD_ANY_NODE, AT(metric)},
    {.key = "kind", .type = HT_FIELD_ANY_NODE, AT(kind)},
    {.key = "variable", .type = HT_FIELD_ANY_NODE, AT(variable)},
    {.key = "over", .type = HT_FIELD_ANY_NODE, AT(over)},
    {.key = "then", .type = HT_FIELD_MAP_NODE, AT(then)},
    {.key = "at", .type = HT_FIELD_MAP_NODE, AT(at)},
    {.key = "per", ENUM(claim.unit, ht_claim_unit_names, HT_CLAIM_BLOCK_FORWARD), .fallback = "one"},
    {.key = "compare", ENUM(claim.compare, ht_claim_compare_names, HT_CLAIM_BELOW), .fallback = "about"},
    {.key = "value", .type = HT_FIELD_ANY_NODE, AT(value)},
    {.key = "fails_in", .type = HT_FIELD_ANY_NODE, AT(fails_in)},
    {.key = "tolerance", .type = HT_FIELD_ANY_NODE, AT(tolerance)},
    {0},
};
#undef AT
#undef TEXT
#undef ENUM

/* ---- steps ----------------------------------------------------------------------------------------------------- */

static bool finds_border(enum ht_claim_kind kind)
{
    return kind == HT_CLAIM_LARGEST || kind == HT_CLAIM_SMALLEST;
}

bool ht_claim_is_boundary(const struct ht_claim *c)
{
    return c->metric == HT_CLAIM_FITS && finds_border(c->steps[0].kind);
}

enum ht_claim_axis ht_claim_first_axis(const struct ht_claim_step *step)
{
    int axis = 0;
    while (!(step->over & (1u << axis))) axis++;
    return (enum ht_claim_axis)axis;
}

bool ht_claim_next(const struct ht_claim_entries *entries, unsigned axes, int *at)
{
    for (int axis = 0; axis < HT_N_CLAIM_AXES; axis++) {
        if (!(axes & (1u << axis))) continue;
        if (++at[axis] < entries->n[axis]) return true;
        at[axis] = 0;
    }
    return false;
}

static enum ht_status load_axis(const struct ht_node *node, struct ht_error *err, unsigned *over)
{
    int axis = 0;
    enum ht_status status = ht_node_enum(node, ht_claim_axis_names, HT_N_CLAIM_AXES, err, &axis);
    if (status == HT_OK && *over & (1u << axis))
        return ht_node_error(node, err, "repeated list; expected each list once");
    *over |= 1u << axis;
    return status;
}

static enum ht_status load_step(const struct ht_node *kind, const struct ht_node *over, struct ht_error *err,
                                struct ht_claim_step *out)
{
    int which = 0;
    *out = (struct ht_claim_step){0};
    enum ht_status status = ht_node_enum(kind, ht_claim_kind_names, HT_N_CLAIM_KINDS, err, &which);
    out->kind = (enum ht_claim_kind)which;
    if (!over) out->over = 1u << HT_CLAIM_MODELS;
    if (over && over->kind == HT_NODE_LIST) {
        if (over->n_children == 0) return ht_node_error(over, err, "empty list; expected lists such as [models, seq]");
        HT_EACH_CHILD(over, c) if (status == HT_OK) status = load_axis(c, err, &out->over);
    } else if (over && status == HT_OK) {
        status = load_axis(over, err, &out->over);
    }
    return status;
}

static int n_values(const struct ht_claim_entries *entries, const struct ht_claim_step *step)
{
    int n = 1;
    for (int axis = 0; axis < HT_N_CLAIM_AXES && n <= HT_CLAIM_VALUES; axis++)
        if (step->over & (1u << axis)) n *= entries->n[axis];
    return n;
}

/* Checks that a step has as many values as its kind needs: kinds that speak of order need one list. */
static enum ht_status check_step(const struct ht_claim_entries *entries, const struct ht_claim_step *step,
                                 const struct ht_node *kind, struct ht_error *err)
{
    enum ht_claim_axis axis = ht_claim_first_axis(step);
    int n = n_values(entries, step);
    bool bend = step->kind == HT_CLAIM_BEND, difference = step->kind == HT_CLAIM_DIFFERENCE;
    bool ordered = step->kind == HT_CLAIM_STEPS || step->kind == HT_CLAIM_HALVES || step->kind == HT_CLAIM_INCREMENT ||
                   difference || bend;
    if ((ordered || finds_border(step->kind)) && step->over != 1u << axis)
        return ht_node_error(kind, err, "several lists in 'over'; expected one");
    if (n > HT_CLAIM_VALUES)
        return ht_node_error(kind, err, "made of too many values; expected at most %d", HT_CLAIM_VALUES);
    if (step->kind == HT_CLAIM_VALUE && n > 1)
        return ht_node_error(kind, err, "made of %d values; expected one entry in each list of 'over', or another kind",
                             n);
    if (difference && n != 2)
        return ht_node_error(kind, err, "%s has %d entries; expected two", ht_claim_axis_names[axis], n);
    if (bend && n < 3)
        return ht_node_error(kind, err, "%s has %d entries; expected at least three", ht_claim_axis_names[axis], n);
    if (ordered && n < 2)
        return ht_node_error(kind, err, "%s has one entry; expected at least two", ht_claim_axis_names[axis]);
    return HT_OK;
}

static enum ht_status load_then(const struct row *row, struct ht_error *err, struct ht_claim *c)
{
    struct then {
        const struct ht_node *kind, *over;
    } then = {0};
    static const struct ht_field fields[] = {
        {.key = "kind", .type = HT_FIELD_ANY_NODE, .offset = offsetof(struct then, kind), .required = true},
        {.key = "over", .type = HT_FIELD_ANY_NODE, .offset = offsetof(struct then, over), .required = true},
        {0},
    };
    enum ht_status status = ht_config_load(row->then, fields, err, &then);
    if (status == HT_OK) status = load_step(then.kind, then.over, err, &c->steps[1]);
    if (status != HT_OK) return status;
    if (finds_border(c->steps[0].kind) || finds_border(c->steps[1].kind))
        return ht_node_error(row->then, err, "not allowed beside kind largest or smallest");
    if (c->steps[0].over & c->steps[1].over)
        return ht_node_error(then.over, err, "list of the first step; expected other lists");
    c->n_steps = 2;
    return check_step(&c->entries, &c->steps[1], then.kind, err);
}

/* ---- the entries that a row takes ------------------------------------------------------------------------------ */

static enum ht_status load_picks(const struct ht_claim_setup *setup, const struct ht_node *node,
                                 enum ht_claim_axis axis, struct ht_error *err, struct ht_claim_entries *out)
{
    bool list = node->kind == HT_NODE_LIST;
    if (list && (node->n_children < 1 || node->n_children > HT_CLAIM_LIST))
        return ht_node_error(node, err, "the list has %u entries; expected 1 to %d", node->n_children, HT_CLAIM_LIST);
    out->n[axis] = 0;
    for (const struct ht_node *e = list ? node->child : node; e; e = list ? e->next : NULL) {
        enum ht_status status = ht_claim_find_entry(setup, axis, e, err, &out->at[axis][out->n[axis]]);
        if (status != HT_OK) return status;
        out->n[axis]++;
    }
    return HT_OK;
}

/* Takes all of the setup's entries. */
static void take_all(struct ht_claim *c)
{
    struct ht_claim_entries *e = &c->entries;
    for (int axis = 0; axis < HT_N_CLAIM_AXES; axis++) {
        e->n[axis] = axis == HT_CLAIM_BY_SYSTEM ? c->n_systems : c->setup->n[axis];
        for (int i = 0; i < e->n[axis]; i++) e->at[axis][i] = i;
    }
}

/* Takes the entries that `at` names, of these lists (a mask). */
static enum ht_status load_at(const struct ht_claim_setup *setup, const struct ht_node *at, unsigned axes,
                              struct ht_error *err, struct ht_claim_entries *out)
{
    enum ht_status status = HT_OK;
    if (!at) return HT_OK;
    HT_EACH_CHILD(at, list)
    {
        int axis = 0;
        while (axis < HT_N_CLAIM_LISTS && strcmp(list->key, ht_claim_axis_names[axis]) != 0) axis++;
        if (axis == HT_N_CLAIM_LISTS || axis == HT_CLAIM_SETTINGS)
            return ht_node_key_error(
                list, err, "unknown list; expected models, batches, memory, seq, micro_batch, host_memory or ssds");
        if (!(axes & (1u << axis))) return ht_node_key_error(list, err, "not a list of the first step's 'over'");
        if (status == HT_OK) status = load_picks(setup, list, (enum ht_claim_axis)axis, err, out);
    }
    return status;
}

/* ---- a row ----------------------------------------------------------------------------------------------------- */

/* Reads the value: a number, or for a boundary an entry of the list. */
static enum ht_status load_value(const struct row *row, struct ht_error *err, struct ht_claim *c)
{
    if (!ht_claim_is_boundary(c)) return ht_node_double(row->value, -1e18, 1e18, err, &c->value);
    enum ht_claim_axis axis = ht_claim_first_axis(&c->steps[0]);
    int entry = 0;
    enum ht_status status = ht_claim_find_entry(c->setup, axis, row->value, err, &entry);
    if (status != HT_OK) return status;
    for (int i = 0; i < c->entries.n[axis]; i++) {
        if (c->entries.at[axis][i] != entry) continue;
        c->value = i;
        return HT_OK;
    }
    return ht_node_error(row->value, err, "'%.60s' is not among the entries that the row takes", row->value->text);
}

/* Reads one variable, "o", or an element of a vector, "m[2]", of n characters. Returns false if it is neither. Only the
   plan knows how many elements there are. */
static bool load_factor(const char *text, size_t n, struct ht_claim_factor *out)
{
    size_t name = strcspn(text, "[*/"), digits = name < n ? strspn(text + name + 1, "0123456789") : 0;
    bool element = digits > 0 && digits <= 9 && name + digits + 2 == n && text[n - 1] == ']';
    if (name == 0 || name >= sizeof(out->variable) || (name < n && !element)) return false;
    snprintf(out->variable, sizeof(out->variable), "%.*s", (int)name, text);
    out->element = element ? strtoll(text + name + 1, NULL, 10) : -1;
    return true;
}

/* Reads a variable, or a product and quotient of several, from left to right: "m[0]*l[0]/m[2]". */
static enum ht_status load_variable(const struct ht_node *node, struct ht_error *err, struct ht_claim *c)
{
    const char *text = NULL;
    enum ht_status status = ht_node_string(node, err, &text);
    if (status != HT_OK) return status;
    c->variable_node = node;
    for (const char *at = text; c->n_factors < HT_CLAIM_FACTORS;) {
        struct ht_claim_factor *f = &c->factors[c->n_factors];
        size_t n = strcspn(at, "*/");
        if (!load_factor(at, n, f)) break;
        f->divides = at > text && at[-1] == '/';
        c->n_factors++;
        if (!at[n]) return HT_OK;
        at += n + 1;
    }
    return ht_node_error(
        node, err,
        "invalid plan variable '%.60s'; expected one such as 'o', an element such as 'm[2]', or up to %d with * and /",
        text, HT_CLAIM_FACTORS);
}

/* Refuses keys that do not go together. */
static enum ht_status check_row(const struct row *row, struct ht_error *err)
{
    const struct ht_claim *c = &row->claim;
    bool border = finds_border(c->steps[0].kind);
    if (border && c->metric != HT_CLAIM_FITS)
        return ht_node_error(row->kind, err, "not allowed with metric '%s'; expected 'fits' with largest or smallest",
                             ht_claim_metric_names[c->metric]);
    if (border && c->steps[0].over & (1u << HT_CLAIM_SETTINGS | 1u << HT_CLAIM_BY_SYSTEM))
        return ht_node_error(
            row->kind, err,
            "not a list of sizes; expected models, batches, memory, seq, micro_batch, host_memory or ssds");
    if (c->metric == HT_CLAIM_FITS && c->versus)
        return ht_node_error(row->versus ? row->versus : row->versus_reduced, err, "not allowed beside metric 'fits'");
    if ((c->metric == HT_CLAIM_PLAN_VARIABLE) != (c->n_factors > 0))
        return ht_node_error(
            row->metric, err,
            "metric and 'variable' disagree; expected metric 'plan' together with a variable such as 'o'");
    if ((c->metric == HT_CLAIM_LOSS_DIFFERENCE) != (c->setup->train_steps > 0))
        return ht_node_error(
            row->metric, err,
            "not for this setup; expected 'loss_difference' exactly where the setup has 'train_steps'");
    if (c->metric == HT_CLAIM_LOSS_DIFFERENCE && !c->versus)
        return ht_node_error(row->metric, err, "'versus' is missing; expected the system to compare with");
    if ((c->metric == HT_CLAIM_BAD_TIME || c->metric == HT_CLAIM_BAD_OVERHEAD) && !c->setup->n_bad)
        return ht_node_error(row->metric, err, "not for this setup; expected a setup with 'bad'");
    bool of_recovery = c->metric >= HT_CLAIM_RECOVERY_TIME && c->metric <= HT_CLAIM_PEER_PER_REMOTE;
    bool of_both = c->metric == HT_CLAIM_PLAN_VARIABLE || c->metric == HT_CLAIM_PARAMETERS;
    if (of_recovery != (c->setup->recovery[0] != '\0') && !(of_both && c->setup->recovery[0]))
        return ht_node_error(row->metric, err,
                             "not for this setup; expected one of recovery exactly where the setup has 'recovery'");
    if (row->fails_in && c->metric != HT_CLAIM_FITS)
        return ht_node_error(row->fails_in, err, "not allowed with this metric; expected 'fits'");
    enum ht_status status = check_step(&c->entries, &c->steps[0], row->kind, err);
    return status == HT_OK ? check_step(&c->versus_entries, &c->steps[0], row->kind, err) : status;
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
        return ht_node_error(row->systems, err, "the list has %u entries; expected 1 to %d", row->systems->n_children,
                             HT_CLAIM_SYSTEMS);
    HT_EACH_CHILD(row->systems, s)
    {
        status = named(s, "system", (size_t)ledger->n_systems, system_name, ledger->systems, err, &at);
        if (status != HT_OK) return status;
        c->systems[c->n_systems++] = &ledger->systems[at];
    }
    if (row->versus && row->versus_reduced)
        return ht_node_error(row->versus_reduced, err, "not allowed beside 'versus'");
    if (row->versus_at && !row->versus_reduced) return ht_node_key_error(row->versus_at, err, "needs 'versus_reduced'");
    c->versus_reduced = row->versus_reduced != NULL;
    const struct ht_node *versus = row->versus ? row->versus : row->versus_reduced;
    if (versus) {
        status = named(versus, "system", (size_t)ledger->n_systems, system_name, ledger->systems, err, &at);
        if (status != HT_OK) return status;
        c->versus = &ledger->systems[at];
    }
    status =
        named(row->tolerance, "tolerance", (size_t)ledger->n_tolerances, tolerance_name, ledger->tolerances, err, &at);
    if (status != HT_OK) return status;
    c->tolerance = &ledger->tolerances[at];
    status = ht_node_enum(row->metric, ht_claim_metric_names, HT_N_CLAIM_METRICS, err, &which);
    c->metric = (enum ht_claim_metric)which;
    if (status == HT_OK && row->fails_in) {
        static const char *const tiers[] = {"device", "host", "disk"};
        status = ht_node_enum(row->fails_in, tiers, HT_COUNT(tiers), err, &which);
        c->fails_in = which + 1;
    }
    return status;
}

static enum ht_status load_checked(const struct ht_ledger *ledger, struct row *row, struct ht_error *err)
{
    struct ht_claim *c = &row->claim;
    enum ht_status status = load_names(ledger, row, err, c);
    if (status != HT_OK) return status;
    take_all(c);
    status = load_at(c->setup, row->at, (1u << HT_N_CLAIM_AXES) - 1, err, &c->entries);
    if (status == HT_OK && row->variable) status = load_variable(row->variable, err, c);
    c->n_steps = 1;
    if (status == HT_OK) status = load_step(row->kind, row->over, err, &c->steps[0]);
    c->versus_entries = c->entries;
    if (status == HT_OK) status = load_at(c->setup, row->versus_at, c->steps[0].over, err, &c->versus_entries);
    if (status == HT_OK) status = check_row(row, err);
    if (status == HT_OK && row->then) status = load_then(row, err, c);
    return status == HT_OK ? load_value(row, err, c) : status;
}

enum ht_status ht_claim_load_row(const struct ht_ledger *ledger, const struct ht_node *map, struct ht_error *err,
                                 struct ht_claim *out)
{
    struct row row = {.claim = {.id = map->key}};
    enum ht_status status = ht_config_load(map, row_fields, err, &row);
    if (status != HT_OK) return status;
    const struct ht_node *needed[] = {row.setup, row.systems, row.metric, row.kind, row.value, row.tolerance};
    const struct ht_node *optional[] = {row.versus,   row.over,     row.then,           row.at,
                                        row.fails_in, row.variable, row.versus_reduced, row.versus_at};
    static const char *const names[] = {"setup", "systems", "metric", "kind", "value", "tolerance"};
    bool unchecked = row.claim.unchecked[0];
    for (size_t i = 0; i < HT_COUNT(needed); i++) {
        if (unchecked && needed[i]) return ht_node_key_error(needed[i], err, "not allowed in a row that is unchecked");
        if (!unchecked && !needed[i])
            return ht_node_key_error(map, err, "key '%s' is missing; expected it, or 'unchecked' with the reason",
                                     names[i]);
    }
    for (size_t i = 0; i < HT_COUNT(optional); i++)
        if (unchecked && optional[i])
            return ht_node_key_error(optional[i], err, "not allowed in a row that is unchecked");
    if (unchecked && row.claim.reading[0])
        return ht_node_key_error(ht_node_find(map, "reading"), err, "not allowed in a row that is unchecked");
    if (!unchecked) status = load_checked(ledger, &row, err);
    if (status == HT_OK) *out = row.claim;
    return status;
}
