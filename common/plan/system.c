#include "common/plan/system.h"

#include "common/base/array.h"
#include "common/plan/candidate.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct ht_variable *find(const struct ht_variable *v, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(v[i].name, name)) return &v[i];
    return NULL;
}

static void add(struct ht_plan *plan, struct ht_variable v)
{
    assert(plan->n_variables < HT_MAX_VARIABLES && !find(plan->variables, plan->n_variables, v.name));
    plan->variables[plan->n_variables++] = v;
}

void ht_plan_set(struct ht_plan *plan, const char *name, int64_t value)
{
    struct ht_variable v = {.value = value};
    snprintf(v.name, sizeof(v.name), "%s", name);
    add(plan, v);
}

void ht_plan_set_vector(struct ht_plan *plan, const struct ht_variable *v)
{
    add(plan, ht_variable_copy(v));
}

void ht_plan_set_values(struct ht_plan *plan, const char *name, enum ht_variable_kind kind, int32_t n,
                        const int64_t *values, bool decimal)
{
    struct ht_variable v = {.kind = kind, .decimal = decimal, .n = n, .values = (int64_t *)values};
    snprintf(v.name, sizeof(v.name), "%s", name);
    ht_plan_set_vector(plan, &v);
}

const struct ht_variable *ht_plan_variable(const struct ht_plan *plan, const char *name)
{
    return find(plan->variables, plan->n_variables, name);
}

int64_t ht_plan_get(const struct ht_plan *plan, const char *name)
{
    const struct ht_variable *v = ht_plan_variable(plan, name);
    return v ? v->value : 0;
}

void ht_plan_input(struct ht_plan *plan, const char *name, const char *unit, double value)
{
    struct ht_plan_input input = {.unit = unit, .value = value};
    snprintf(input.name, sizeof(input.name), "%s", name);
    HT_PUSH(plan->inputs, plan->n_inputs, plan->inputs_cap, input);
}

void ht_plan_free(struct ht_plan *plan)
{
    for (int i = 0; i < plan->n_variables; i++) ht_variable_free(&plan->variables[i]);
    free(plan->inputs);
    free(plan->considered);
    ht_plan_drop_built(plan);
    *plan = (struct ht_plan){0};
}

const struct ht_variable *ht_setting_variable(const struct ht_settings *settings, const char *name)
{
    return settings ? find(settings->values, settings->n, name) : NULL;
}

int64_t ht_setting(const struct ht_settings *settings, const char *name, int64_t otherwise)
{
    const struct ht_variable *v = ht_setting_variable(settings, name);
    return v ? v->value : otherwise;
}

void ht_settings_free(struct ht_settings *settings)
{
    for (int i = 0; i < settings->n; i++) ht_variable_free(&settings->values[i]);
    *settings = (struct ht_settings){0};
}

static void list_knobs(const struct ht_system *system, char *buf, size_t n)
{
    size_t at = 0;
    buf[0] = '\0';
    for (const struct ht_knob *k = system->knobs; k && k->name && at < n; k++)
        at += (size_t)snprintf(buf + at, n - at, "%s%s", at ? ", " : "", k->name);
    if (!at) snprintf(buf, n, "none");
}

enum ht_status ht_settings_parse(const struct ht_system *system, const struct ht_scenario *scenario, const char *text,
                                 struct ht_error *err, struct ht_settings *settings)
{
    const char *eq = strchr(text, '=');
    if (!eq || eq == text || !eq[1]) return ht_fail(err, HT_BAD_INPUT, "--set '%.80s' is not NAME=VALUE", text);
    size_t n = (size_t)(eq - text);
    const struct ht_knob *knob = system->knobs;
    while (knob && knob->name && (strncmp(knob->name, text, n) != 0 || knob->name[n])) knob++;
    if (!knob || !knob->name) {
        char known[256];
        list_knobs(system, known, sizeof(known));
        return ht_fail(err, HT_BAD_INPUT, "--set '%.80s': %s has no variable '%.*s'; it has: %s", text, system->name,
                       n < 40 ? (int)n : 40, text, known);
    }
    if (find(settings->values, settings->n, knob->name))
        return ht_fail(err, HT_BAD_INPUT, "--set '%.80s': %s is set twice", text, knob->name);
    assert(settings->n < HT_MAX_VARIABLES); /* no system has so many knobs */
    struct ht_knob_range range = {.ranks = ht_scenario_ranks(scenario), .blocks = scenario->model.layers};
    enum ht_status status = ht_variable_parse(knob, range, eq + 1, err, &settings->values[settings->n]);
    settings->n += status == HT_OK;
    return status;
}

enum ht_status ht_system_check(const struct ht_system *system, const struct ht_scenario *scenario, struct ht_error *err)
{
    const struct ht_cluster *cluster = scenario->cluster;
    if (system->one_device && ht_scenario_ranks(scenario) > 1)
        return ht_fail(err, HT_INFEASIBLE, "%s trains on one device; the cluster has %lld", system->name,
                       (long long)ht_scenario_ranks(scenario));
    if (system->division == HT_SHARED_STATES && cluster->n_nodes > 1)
        return ht_fail(err, HT_INFEASIBLE,
                       "%s trains on one node, whose devices share the states; the cluster has %lld", system->name,
                       (long long)cluster->n_nodes);
    for (int64_t i = 0; i < cluster->n_nodes && system->disk; i++)
        if (!cluster->nodes[i].has_ssds)
            return ht_fail(err, HT_INFEASIBLE, "%s keeps tensors on SSDs; the node of cluster '%.64s' has none",
                           system->name, cluster->name);
    return HT_OK;
}
