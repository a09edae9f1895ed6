/*
 * The result of a run under any clock: rates, bounds, lanes, memory. Filled from a trace; written as a table for people
 * (result_text.c) or as JSON (result_json.c).
 *
 * Throughput arithmetic:
 *
 *     useful FLOPs     3 x forward of the whole batch (ht_scenario_useful_flops): matrix products, attention in full
 *     hardware FLOPs   the useful ones plus what the schedule recomputes
 *     TFLOP/s per GPU  FLOPs / iteration time / number of devices
 *     per 1000 USD     rates of all devices over the price of the cluster, where the catalogue states it
 *     MFU              useful FLOP/s over the summed dense peak of the devices, in the dtype of the parameters
 */
#ifndef HT_HARNESS_RESULT_RESULT_H
#define HT_HARNESS_RESULT_RESULT_H

#include "common/trace/trace.h"
#include "harness/run/job.h"

#include <jansson.h>

/* One memory space. -1: not known, or the paper has no equation for it. */
struct ht_memory_row {
    int32_t space;
    enum ht_tier tier;
    char name[24];
    int64_t capacity_bytes;                /* INT64_MAX: no limit */
    int64_t limit_bytes;                   /* what the method declares; INT64_MAX: nothing */
    int64_t peak_bytes;                    /* of the trace */
    int64_t safe_bytes;                    /* of the safe sequence, which has to fit */
    int64_t program_bytes;                 /* what the program takes for that, which has to fit as well */
    int64_t short_bytes;                   /* either beyond capacity or limit; 0 when all fits */
    int64_t bound_bytes;                   /* no order of execution needs more */
    int64_t planned_bytes;                 /* the paper's own equation */
    int64_t arena_bytes;                   /* high-water mark of a real run's arena */
    int64_t extent_bytes;                  /* addresses that the arena used: peak plus fragmentation */
    int64_t by_class[HT_N_TENSOR_CLASSES]; /* at the peak (without a trace: of the safe sequence) */
};

/*
 * Cost of iterations whose gradients overflow (--bad), from two simulations that differ in these outcomes alone:
 *
 *     bad_s = ok_s + (end of the run with n bad iterations - end of the run without) / n
 *
 * ok_s: the steady iteration of the run without. So bad_s has all that the outcome changes, in later iterations too.
 */
struct ht_bad_cost {
    int64_t n;          /* bad iterations; 0: none, or nothing ran */
    double ok_s, bad_s; /* an ok iteration, a bad one */
};

struct ht_result {
    const struct ht_job *job; /* borrowed */
    struct ht_trace *trace;   /* owned; NULL when it did not fit */
    struct ht_metrics metrics;
    bool has_metrics;

    struct ht_bad_cost bad;
    json_t *variations; /* harness/result/variations.h; owned; NULL: none were asked for */

    double iteration_s, samples_per_s, tokens_per_s;
    double useful_flops, hardware_flops; /* per iteration; 0 without a scenario */
    double peak_flops_per_s;             /* summed dense peak of the devices; 0 when unknown */
    const char *peak_dtype;
    int64_t n_devices;
    double price_usd; /* of the whole cluster; 0: not given */

    struct ht_memory_row *memory;
    int32_t n_memory; /* spaces that hold anything */
};

/* Fills a result and takes the trace (may be NULL). cost_ns as for ht_metrics_compute. */
enum ht_status ht_result_create(const struct ht_job *job, struct ht_trace *trace, const int64_t *cost_ns,
                                int32_t warmup, struct ht_error *err, struct ht_result *out);
void ht_result_free(struct ht_result *r);

/* Returns "simulated", "emulated" or "measured". */
const char *ht_obtained(const struct ht_result *r);
double ht_result_tflops(const struct ht_result *r, double flops); /* per device; 0 when unknown */
double ht_result_mfu(const struct ht_result *r);
double ht_result_per_1000_usd(const struct ht_result *r, double rate); /* 0 without a price */
/* Returns the largest peak of the tier's spaces: of the trace, or of the safe sequence when nothing ran; -1: no
   space. */
int64_t ht_result_peak(const struct ht_result *r, enum ht_tier tier);

/* Returns the space that an OOM's reason names; NULL when all fit, or nothing was built. */
const struct ht_memory_row *ht_result_oom(const struct ht_result *r);

/* ---- result_json.c: the caller owns what is returned ----------------------------------------------------------- */

/* Return everything; the second one without command, commit and machine, for rows that share them. */
json_t *ht_result_json(const struct ht_result *r);
json_t *ht_result_values_json(const struct ht_result *r);
json_t *ht_job_json(const struct ht_job *job); /* system, scenario, plan, status and reason */
json_t *ht_memory_json(const struct ht_result *r);
json_t *ht_json_number(double value); /* null unless it is finite */
/* Prints a document under its schema's name (schema.h) and releases it. */
enum ht_status ht_json_print(json_t *document, const char *schema, struct ht_error *err);

/* ---- result_text.c --------------------------------------------------------------------------------------------- */

void ht_result_print(const struct ht_result *r, FILE *out);
void ht_job_print(const struct ht_job *job, FILE *out); /* the first lines: system, scenario, plan */
/* Prints a row for each space, then the tensor classes that hold the bytes. */
void ht_memory_print(const struct ht_result *r, FILE *out);

#endif
