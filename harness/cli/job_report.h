/* The report on a job that is not run, and how every report on one result ends. */
#ifndef HT_HARNESS_CLI_JOB_REPORT_H
#define HT_HARNESS_CLI_JOB_REPORT_H

#include "harness/result/result.h"

/* Makes the job that the options describe, up to the bound of its memory, and reports on it: as a table, with what
   `print` says behind the heading, or as JSON, to which `add` (may be NULL) adds. Writes --dump
   and --draw. */
enum ht_status ht_job_report(const struct ht_options *options, void (*print)(const struct ht_job *job),
                             void (*add)(const struct ht_job *job, json_t *root), struct ht_error *err);

/* Shows a result, as a table or as JSON. Returns the job's answer, with its reason, when it does not fit. */
enum ht_status ht_result_show(const struct ht_result *r, bool json, struct ht_error *err);

#endif
