/*
 * Predictions held against published measurements.
 *
 *     sets.yaml --> measured rows, predicted rows --> residuals --> errors by set, by machine, by what binds
 *
 * A residual is one quantity of one open row; a list with one entry a pipeline stage gives one for each. Its error is predicted over
 * measured, less 1. Rows that device factors were set with are `fitted`: their error says how well the fit went, not how well anything
 * is predicted. Where a set has predictions with the row left out of the fit, those count among what is left out.
 */
#ifndef HT_HARNESS_VALIDATE_VALIDATE_H
#define HT_HARNESS_VALIDATE_VALIDATE_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>

enum ht_residual_part { HT_PART_FITTED, HT_PART_LEFT_OUT, HT_N_PARTS };
extern const char *const ht_residual_part_names[HT_N_PARTS]; /* "fitted", "left out" */

struct ht_residual {
    size_t set;        /* index */
    char row[96];      /* its key: "v100 1 10B 2 16 1024 mobius" */
    char quantity[40]; /* the measured column, with the stage behind a list's: "peak_mib 3" */
    char machine[32];  /* "v100" */
    char binds[24];    /* kind of lane that is longest on the critical path; "" where the predictions do not say */
    char lanes[128];   /* all of them with their shares */
    enum ht_residual_part part;
    bool memory;                /* of memory, not of time or rate */
    double measured, predicted; /* in the file's unit */
};

double ht_residual_error(const struct ht_residual *r); /* predicted / measured - 1 */

struct ht_validation_set {
    char name[32], title[96], source[96], script[64];
    size_t n_predicted, n_ok, n_oom,
        n_other;           /* rows of the predictions, by status; other: not built, or not made yet */
    size_t n_open, n_met;  /* open rows; those that have a prediction */
    size_t n_ran, n_right; /* rows that are known to have run and were judged; predictions that say so */
};

struct ht_validation {
    struct ht_validation_set *sets;
    struct ht_residual *residuals;
    size_t n_sets, n_residuals, cap_sets, cap_residuals;
};

/* Reads the sets of the built-in list, or of a file (sets: its path; NULL: built in), with paths from `root`. Returns HT_BAD_INPUT, with
   file and line, if a file is missing or damaged, a column is missing, a cell is no number, or an open row is no configuration of the
   predictions. The caller frees *out, also on error. */
enum ht_status ht_validate(const char *root, const char *sets, struct ht_error *err, struct ht_validation *out);
void ht_validation_free(struct ht_validation *v);

/* Errors of some residuals. */
struct ht_errors {
    size_t n;
    double mean, worst; /* absolute */
    double bias;        /* mean of signed ones */
};

/* Returns the errors of the residuals that `of` takes; ctx is passed on. */
struct ht_errors ht_errors_of(const struct ht_validation *v, bool (*of)(const struct ht_residual *r, const void *ctx),
                              const void *ctx);

#endif
