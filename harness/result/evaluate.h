/*
 * The one way from options to a result: that of `sim`, experiments' points, compare's rows and claims' scenarios.
 *
 *     options --> job --> trace --> result --> row of JSON
 *
 * Several threads may evaluate at once: an evaluation shares nothing with others.
 */
#ifndef HT_HARNESS_RESULT_EVALUATE_H
#define HT_HARNESS_RESULT_EVALUATE_H

#include "harness/result/result.h"

struct ht_evaluation {
    struct ht_job job;
    struct ht_result result; /* borrows the job, so that an evaluation is never copied */
};

/* Plans, proves and simulates a system on a scenario (or reads --replay). system and model: names, instead of the
   options' own when not NULL. Returns HT_OK also when it does not fit: see out->job.answer. *out needs no freeing after
   an error. */
enum ht_status ht_evaluate(const struct ht_options *options, const char *system, const char *model,
                           struct ht_error *err, struct ht_evaluation *out);
void ht_evaluation_free(struct ht_evaluation *e);

/* Evaluates a job whose costs are there. The result of a job that does not fit has no trace. */
enum ht_status ht_evaluate_job(const struct ht_options *options, const struct ht_job *job, struct ht_error *err,
                               struct ht_result *out);

/* Returns ht_result_values_json with `provenance` (may be NULL), then device_peak_bytes and host_peak_bytes: most on
   any device and host, or the need of a job that does not fit; null without a trace and without a need. The caller owns
   it. */
json_t *ht_evaluation_row(const struct ht_evaluation *e, json_t *provenance);

/* Returns the row of a system and a model that refused the options: status "refused", with as much of the scenario as
   there is. `name` is the model's, as given. The caller owns it. */
json_t *ht_refused_row(const struct ht_options *options, const char *system, const char *name,
                       const struct ht_model *model, json_t *provenance, const struct ht_error *why);

/* Estimates the memory that an evaluation takes on this machine, in bytes. It grows with the passes of micro-batches
   through the model's n_units units; a request without a micro-batch counts one for each sequence. */
double ht_evaluation_bytes(const struct ht_options *options, int64_t n_units);

#endif
