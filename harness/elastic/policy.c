#include "harness/elastic/policy.h"

#include "common/base/array.h"
#include "common/base/config.h"

#include <string.h>

static const struct ht_policy policies[] = {
    {.name = "autohet",
     .title = "AutoHet",
     .summary = "asymmetric pipelines over all nodes; loads from own stores, peers, then the cloud",
     .system = "autohet",
     .source = HT_FROM_NEAREST},
    {.name = "varuna",
     .title = "Varuna",
     .summary = "P x D equal stages; loads from the cloud, saves on notice",
     .system = "varuna",
     .source = HT_FROM_REMOTE,
     .leaves_idle = true,
     .saves_on_notice = true},
    {.name = "megatron",
     .title = "Megatron-LM",
     .summary = "the fastest shape of the nodes there are; loads from the cloud",
     .system = "megatron_3d",
     .source = HT_FROM_REMOTE,
     .leaves_idle = true},
    {.name = "restart",
     .title = "plain restart",
     .summary = "the first shape, or waits for its nodes; loads from the cloud",
     .system = "megatron_3d",
     .source = HT_FROM_REMOTE,
     .keeps_shape = true},
};

const struct ht_policy *ht_policy_at(size_t index)
{
    return index < HT_COUNT(policies) ? &policies[index] : NULL;
}

enum ht_status ht_policy_find(const char *name, struct ht_error *err, const struct ht_policy **out)
{
    const char *names[HT_COUNT(policies)];
    for (size_t i = 0; i < HT_COUNT(policies); i++) {
        names[i] = policies[i].name;
        if (strcmp(name, names[i]) != 0) continue;
        *out = &policies[i];
        return HT_OK;
    }
    const char *near = ht_nearest(name, names, HT_COUNT(names));
    return ht_fail(err, HT_BAD_INPUT, "unknown policy '%.60s'; expected '%s'%s", name, near ? near : names[0],
                   near ? "?" : ", or another of hetbench list policies");
}

int32_t ht_fleet_nodes(const struct ht_fleet *f)
{
    int32_t n = 0;
    for (int k = 0; k < HT_FLEET_KINDS; k++) n += f->count[k];
    return n;
}

static bool has(const struct ht_fleet *fleet, const struct ht_fleet *part)
{
    for (int k = 0; k < HT_FLEET_KINDS; k++)
        if (fleet->count[k] < part->count[k]) return false;
    return true;
}

size_t ht_policy_parts(const struct ht_policy *p, const struct ht_fleet *fleet, const struct ht_fleet *first,
                       struct ht_fleet parts[HT_FLEET_PARTS])
{
    size_t n = 0;
    if (p->keeps_shape) {
        if (first && !has(fleet, first)) return 0;
        parts[0] = first ? *first : *fleet;
        return 1;
    }
    struct ht_fleet part = *fleet;
    for (int last = HT_FLEET_KINDS - 1; last >= 0; part.count[last--] = 0) {
        if (!fleet->count[last]) continue;
        for (int idle = 0; idle <= HT_FLEET_IDLE && idle < fleet->count[last]; idle++) {
            parts[n] = part;
            parts[n++].count[last] -= idle;
        }
    }
    return n;
}
