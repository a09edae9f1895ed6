/* What list, reshard and train say about stores. */
#ifndef HT_HARNESS_CLI_STORES_H
#define HT_HARNESS_CLI_STORES_H

#include "common/store/catalog.h"
#include "harness/run/node_stores.h"

#include <jansson.h>

/* Makes a catalog of directories. HT_BAD_INPUT if none of them holds a store. Says on standard error what is not used. */
enum ht_status ht_stores_open(const char *const *dirs, int64_t n, struct ht_error *err, struct ht_catalog *out);
/* Finds the newest version that has all of its model's state. check: verifies files before they count. HT_INFEASIBLE says
   what the newest one lacks. */
enum ht_status ht_stores_newest(struct ht_catalog *c, bool check, struct ht_error *err, struct ht_version *version,
                                struct ht_model *model);
/* Prints a training's line about its stores; nothing without --store. */
void ht_stores_print(const struct ht_store_figures *f);
/* Returns a training's figures; null without --store. */
json_t *ht_stores_json(const struct ht_options *options, const struct ht_store_figures *f);
/* hetbench list stores DIR.. */
enum ht_status ht_list_stores(const struct ht_options *options, struct ht_error *err);

#endif
