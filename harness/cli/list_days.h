/* Rows of hetbench list about days on spot instances: traces, policies, experiments. */
#ifndef HT_HARNESS_CLI_LIST_DAYS_H
#define HT_HARNESS_CLI_LIST_DAYS_H

#include "common/hw/hw.h"
#include "harness/result/table.h"

#include <jansson.h>

bool ht_list_trace_name(int64_t i, char name[HT_NAME_BYTES]);
bool ht_list_policy_name(int64_t i, char name[HT_NAME_BYTES]);
enum ht_status ht_list_trace(const char *name, struct ht_table *t, json_t *list, struct ht_error *err);
enum ht_status ht_list_policy(const char *name, struct ht_table *t, json_t *list, struct ht_error *err);
/* Adds an experiment of days; its points are its studies. */
enum ht_status ht_list_days(const char *name, struct ht_table *t, json_t *list);

#endif
