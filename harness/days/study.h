/*
 * A study: the days of several policies on one spot trace, and how they change with the rate of preemptions and the interval of
 * saves. Its result is a document, from which tables and figures are made.
 *
 *     {"label": .., "day": .., "model": .., "batch": .., "instances": [{"name", "gpu", "gpus", "usd_per_hour", "price_source"}],
 *      "times": {.., "sources": {..}}, "losses_per_hour": .., "nodes_most": .., "events": ..,
 *      "policies": [{"policy", "title", "system", "samples", "samples_per_hour", "usd", "usd_per_1000_samples", "ettr", ..,
 *                    "seconds": {"useful": ..}, "moments": [[time_s, nodes of each kind.., used GPUs, samples/s], ..],
 *                    "recoveries": [[time_s, all_s, load_s, lost steps, planned], ..]}],
 *      "speeds":    [{"speed", "losses_per_hour", "samples_per_hour": {"autohet": .., ..}}],
 *      "break_even": [{"policies": [a, b], "losses_per_hour": ..}],       where the order of two changes, between two speeds
 *      "intervals": [{"save_every_s", "ettr": {..}}], "best_interval": {"autohet": {"save_every_s", "young_s", "daly_s"}}}
 */
#ifndef HT_HARNESS_DAYS_STUDY_H
#define HT_HARNESS_DAYS_STUDY_H

#include "harness/days/day_times.h"

#include <jansson.h>

enum { HT_STUDY_POLICIES = 8, HT_STUDY_POINTS = 32, HT_STUDY_PRICES = 8 };

struct ht_price {
    char instance[HT_SPOT_NAME];
    double usd_per_hour;
    char source[96];
};

struct ht_study {
    const char *label;
    struct ht_options options; /* the scenario, without a cluster */
    const char *cluster;       /* with a node of each kind; NULL: the built-in one */
    const char *day;           /* list of traces, or NULL: drawn */
    struct ht_spot_rates drawn;
    const struct ht_policy *policies[HT_STUDY_POLICIES];
    size_t n_policies;
    struct ht_day_times times;
    struct ht_day_sources sources;           /* of times */
    struct ht_price prices[HT_STUDY_PRICES]; /* in place of the catalogue's */
    size_t n_prices;
    double speeds[HT_STUDY_POINTS], intervals[HT_STUDY_POINTS]; /* s */
    size_t n_speeds, n_intervals;
    const char *plans; /* folder of remembered plans; NULL: none */
};

/* Loads or draws the trace of a study. The caller frees it. */
enum ht_status ht_study_trace(const struct ht_study *s, struct ht_error *err, struct ht_spot_trace *out);
/* Runs it. The caller releases *out. */
enum ht_status ht_study_run(const struct ht_study *s, struct ht_error *err, json_t **out);

/* Read lists of options, with `flag` at the beginning of an error: "A,B", "p3.2xlarge=1.2,g4dn.xlarge=0.3", "0.5,1,2" and what a trace is
   drawn from, "nodes=32,hours=12,rate=0.1,burst=2,absent=600,notice=120,noticed=0.5,seed=1,instance=p3.2xlarge". The last one
   writes into its text, to which drawn.instance points. */
enum ht_status ht_study_read_policies(const char *flag, const char *list, struct ht_error *err, struct ht_study *s);
enum ht_status ht_study_read_prices(const char *flag, const char *list, struct ht_error *err, struct ht_study *s);
enum ht_status ht_study_read_points(const char *flag, const char *list, struct ht_error *err, double *out, size_t *n);
enum ht_status ht_study_read_drawn(const char *flag, char *text, struct ht_error *err, struct ht_spot_rates *out);

/* Writes a row for each policy, with the commit that the program was built from; with or without a header above. */
void ht_study_csv(const json_t *study, bool header, FILE *out);
/* Prints a study's document. */
void ht_study_print(const json_t *study, FILE *out);

#endif
