/* The search of advise, its changes, and their report. */
#ifndef HT_HARNESS_CLI_ADVICE_H
#define HT_HARNESS_CLI_ADVICE_H

#include "harness/advise/advise.h"

#include <jansson.h>

enum { HT_MAX_CHANGES = 16 };

struct ht_advice {
    const struct ht_options *options;
    struct ht_cluster *cluster;
    struct ht_search search;
    size_t best[HT_ADVISE_BEST], n_best; /* ways */
    struct ht_change changes[HT_MAX_CHANGES];
    size_t n_changes;
    bool complete; /* not interrupted */
};

/* Makes the report; simulates the best way once more, for its detail. NULL on an error. */
json_t *ht_advice_json(const struct ht_advice *a, const struct ht_scenario *scenario, struct ht_error *err);

/* Prints the report, in lines of 80 columns at most. */
void ht_advice_print(const json_t *report);

#endif
