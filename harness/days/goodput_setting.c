/* Before a day: formulas, kinds of nodes, the plans that it will ask for. */
#include "harness/days/goodput_state.h"

#include "common/base/array.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

double ht_day_ettr(const struct ht_day *d)
{
    return d->wall_s > 0 ? d->phase_s[HT_DAY_USEFUL] / d->wall_s : 0;
}

double ht_young_s(double save_s, double between_s)
{
    return sqrt(2 * save_s * between_s);
}

double ht_daly_s(double save_s, double between_s)
{
    double x = save_s / (2 * between_s);
    return x < 1 ? sqrt(2 * save_s * between_s) * (1 + sqrt(x) / 3 + x / 9) - save_s : between_s;
}

double ht_day_between_losses_s(const struct ht_spot_trace *t)
{
    int64_t n = 0, last = -1, length = t->events[t->n_events - 1].time_ns - t->events[0].time_ns;
    for (size_t i = 0; i < t->n_events; i++) {
        if (t->events[i].kind != HT_SPOT_LOST || t->events[i].time_ns == last) continue;
        last = t->events[i].time_ns;
        n++;
    }
    return n ? (double)length / HT_NS_OF_S / (double)n : INFINITY;
}

struct ht_fleet ht_day_most(const struct ht_day_setting *s)
{
    struct ht_fleet now = {{0}}, most = {{0}};
    for (size_t i = 0; i < s->trace->n_events; i++) {
        now.count[s->kind_of[s->trace->events[i].node]] += step_of(&s->trace->events[i]);
        if (ht_fleet_nodes(&now) > ht_fleet_nodes(&most)) most = now;
    }
    return most;
}

enum ht_status ht_day_kinds(const struct ht_cluster *kinds, const struct ht_spot_trace *t, struct ht_error *err,
                            int32_t **out)
{
    int32_t *kind = HT_NEW_ARRAY(int32_t, t->n_nodes);
    for (size_t i = 0; i < t->n_nodes; i++) {
        const char *instance = t->nodes[i].instance;
        int64_t k = 0;
        while (*instance && k < kinds->n_nodes && strcmp(kinds->nodes[k].instance, instance) != 0) k++;
        if (k == kinds->n_nodes) {
            free(kind);
            return ht_fail(err, HT_BAD_INPUT,
                           "cluster '%s' has no node with 'instance: %s'; expected one for each of the trace's",
                           kinds->name, instance);
        }
        kind[i] = (int32_t)k;
    }
    *out = kind;
    return HT_OK;
}

enum ht_status ht_day_plan_ahead(const struct ht_day_setting *s, const struct ht_policy *const *policies, size_t n,
                                 struct ht_error *err)
{
    const struct ht_spot_trace *t = s->trace;
    struct ht_fleet now = {{0}}, parts[HT_FLEET_PARTS];
    struct ht_wanted *wanted = NULL;
    size_t n_wanted = 0, cap = 0;
    for (size_t i = 0; i < t->n_events; i++) {
        const struct ht_spot_event *e = &t->events[i];
        now.count[s->kind_of[e->node]] += step_of(e);
        if (i + 1 < t->n_events && t->events[i + 1].time_ns == e->time_ns) continue;
        for (size_t k = 0; k < n; k++) {
            size_t n_parts = policies[k]->keeps_shape ? 0 : ht_policy_parts(policies[k], &now, NULL, parts);
            for (size_t j = 0; j < n_parts; j++) {
                struct ht_wanted w = {policies[k]->system, parts[j]};
                if (j == 0 || policies[k]->leaves_idle) HT_PUSH(wanted, n_wanted, cap, w);
            }
        }
    }
    enum ht_status status = ht_planbook_fill(s->book, wanted, n_wanted, err);
    free(wanted);
    return status;
}
