#include "common/plan/system.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ht_plan_set(struct ht_plan *plan, const char *name, int64_t value)
{
    assert((size_t)plan->n_variables < sizeof(plan->variables) / sizeof(plan->variables[0]));
    struct ht_plan_variable *v = &plan->variables[plan->n_variables++];
    snprintf(v->name, sizeof(v->name), "%s", name);
    v->value = value;
}

static const struct ht_plan_variable *find(const struct ht_plan_variable *v, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(v[i].name, name)) return &v[i];
    return NULL;
}

int64_t ht_plan_get(const struct ht_plan *plan, const char *name)
{
    const struct ht_plan_variable *v = find(plan->variables, plan->n_variables, name);
    return v ? v->value : 0;
}

int64_t ht_setting(const struct ht_settings *settings, const char *name, int64_t otherwise)
{
    const struct ht_plan_variable *v = settings ? find(settings->values, settings->n, name) : NULL;
    return v ? v->value : otherwise;
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
    if (!eq || eq == text || !eq[1])
        return ht_fail(err, HT_BAD_INPUT, "--set '%s' is not NAME=VALUE", text);
    char name[24];
    snprintf(name, sizeof(name), "%.*s", (int)(eq - text), text);
    const struct ht_knob *knob = system->knobs;
    while (knob && knob->name && strcmp(knob->name, name)) knob++;
    if (!knob || !knob->name) {
        char known[256];
        list_knobs(system, known, sizeof(known));
        return ht_fail(err, HT_BAD_INPUT, "--set '%s': %s has no variable '%s'; it has: %s", text, system->name, name, known);
    }
    char *end;
    errno = 0;
    long long value = strtoll(eq + 1, &end, 10);
    int64_t max = knob->max < 0 ? scenario->model.layers : knob->max;
    if (errno || *end) return ht_fail(err, HT_BAD_INPUT, "--set '%s': '%s' is not an integer", text, eq + 1);
    if (value < knob->min || value > max)
        return ht_fail(err, HT_BAD_INPUT, "--set '%s': %s is out of range; expected %lld to %lld", text, name,
                       (long long)knob->min, (long long)max);
    for (int i = 0; i < settings->n; i++)
        if (!strcmp(settings->values[i].name, name))
            return ht_fail(err, HT_BAD_INPUT, "--set '%s': %s is set twice", text, name);
    if ((size_t)settings->n == sizeof(settings->values) / sizeof(settings->values[0]))
        return ht_fail(err, HT_BAD_INPUT, "--set '%s': too many settings", text);
    struct ht_plan_variable *v = &settings->values[settings->n++];
    snprintf(v->name, sizeof(v->name), "%s", name);
    v->value = value;
    return HT_OK;
}
