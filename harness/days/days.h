/*
 * Experiments of days: several studies in one file, which the binary carries or a user writes.
 *
 *     name:  my-days                      of a user's file; a built-in entry is named by its key
 *     title, source: free text
 *     model, batch, micro_batch, seq, numerics, software, iterations, warmup: of all studies, unless one says otherwise
 *     policies: "autohet,varuna"          default: all
 *     speeds, intervals: [1, 2]           sweeps (study.h)
 *     detect, plan, relaunch, quiet, save_every: seconds; remote: rate
 *     studies:
 *       - {label: p3, trace: "p3.2xlarge=oobleck-p3"}          and any of the keys above
 *
 * docs/goodput.md has all keys with their defaults. An unknown one is HT_BAD_INPUT, with file, line and column.
 *
 * The results go to DIR/results.json and DIR/results.csv.
 */
#ifndef HT_HARNESS_DAYS_DAYS_H
#define HT_HARNESS_DAYS_DAYS_H

#include "harness/days/study.h"

/* Returns true for the name of a built-in experiment of days, and for a file that has 'studies'. */
bool ht_days_are(const char *name_or_path);
/* Writes the index-th built-in name into buf. Returns false past the end. */
bool ht_days_name(int64_t index, char *buf, size_t bytes);
/* Reads the heading of an experiment; empty if it cannot be read. */
struct ht_days_heading {
    char name[64], title[256], source[256];
    int64_t studies;
};
void ht_days_heading(const char *name, struct ht_days_heading *out);
/* Runs it, and writes DIR's files after each study. *out is the document, which the caller releases. */
enum ht_status ht_days_run(const char *name_or_path, const char *dir, const char *plans, struct ht_error *err,
                           json_t **out);

#endif
