/*
 * An experiment on recovery: changes of a job's nodes (common/store/recovery_case.h), priced for several models, beside what a paper
 * prints.
 *
 *     figure:     recovery
 *     models:     [autohet-gpt3-3b, ..]
 *     recoveries:                                     label defaults to the name
 *       - {name: autohet-a, label: A, paper: 4.38}    paper: its speed-up over the remote store alone
 *     whole_files, serial, once: true                 param_bytes: 4
 *
 * Like all experiments it leaves DIR/results.json and DIR/results.csv. A row is a model's recovery by the stores, or by the remote store
 * alone.
 */
#ifndef HT_HARNESS_SWEEP_RECOVERIES_H
#define HT_HARNESS_SWEEP_RECOVERIES_H

#include "common/base/config.h"
#include "common/store/recovery_case.h"

#include <jansson.h>

enum { HT_RECOVERIES_MAX = 16, HT_RECOVERY_MODELS_MAX = 32 };

struct ht_recoveries {
    struct ht_doc *doc; /* the strings point into it */
    char name[64], title[256], source[256];
    const char *models[HT_RECOVERY_MODELS_MAX];
    int64_t n_models;
    struct ht_priced_case {
        const char *name, *label;
        double paper; /* 0: none */
        struct ht_recovery_case c;
    } cases[HT_RECOVERIES_MAX];
    int64_t n_cases;
    struct ht_store_reading how;
    bool once;
};

/* Returns true if a built-in experiment or a file is one on recovery. What cannot be read is not. */
bool ht_is_recoveries(const char *name_or_path);
/* Loads it. HT_BAD_INPUT comes with file, line, column and key. */
enum ht_status ht_recoveries_load(const char *name_or_path, struct ht_error *err, struct ht_recoveries *out);
void ht_recoveries_free(struct ht_recoveries *e);

/* Prices all and writes DIR's two files. *out is the document, which the caller releases. */
enum ht_status ht_recoveries_run(const struct ht_recoveries *e, const char *dir, struct ht_error *err, json_t **out);

#endif
