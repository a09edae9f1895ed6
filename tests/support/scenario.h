/* Scenarios that exist: tests go on only with one. */
#ifndef HT_TESTS_SUPPORT_SCENARIO_H
#define HT_TESTS_SUPPORT_SCENARIO_H

#include "common/plan/scenario.h"

#include <check.h>

/* Returns the scenario of a request, which must be valid. */
static inline struct ht_scenario scenario_from(const struct ht_scenario_request *request)
{
    struct ht_scenario s;
    struct ht_error err = {0};
    ck_assert_msg(ht_scenario_create(request, &err, &s) == HT_OK, "%s", err.text);
    return s;
}

/* Leaves `gpus` of the devices of a cluster of one node. */
static inline void use_gpus(struct ht_scenario *s, int64_t gpus)
{
    struct ht_machine *node = &s->cluster->nodes[0];
    node->groups[0].count = node->n_gpus = s->cluster->n_gpus = gpus;
}

#endif
