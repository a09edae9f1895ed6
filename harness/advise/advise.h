/*
 * Searches the fastest way to train a model on some GPUs: the system, the micro-batch, and which of the cards.
 *
 *     subsets of the cards x systems --tasks--> ways, each with its best micro-batch --> the best three
 *     the best ones, on changed machines ------> what one more card, disk, .. would bring
 *
 * Every number is a simulation of the plan that the system's own planner makes, as `sim` makes it. A micro-batch is not
 * simulated if its busiest lane alone already takes longer than what would count, and its simulation gives up once it surely
 * does; that changes no answer.
 */
#ifndef HT_HARNESS_ADVISE_ADVISE_H
#define HT_HARNESS_ADVISE_ADVISE_H

#include "common/hw/hw.h"
#include "harness/run/options.h"

#include <pthread.h>
#include <stddef.h>

enum { HT_ONLY_TEXT = 256, HT_ADVISE_BATCH = 64 };

/* Some of the cluster's cards. */
struct ht_cards {
    char only[HT_ONLY_TEXT]; /* as --only takes it; "": all */
    uint64_t kinds;          /* bit k: kind k of ht_cluster_kinds is among them */
    int64_t n_gpus;
};

/* A system on some cards, with the micro-batch at which it is fastest. */
struct ht_way {
    const char *system;
    size_t cards; /* index */
    int64_t batch, micro_batch;
    double tokens_per_s; /* 0: it does not run, or is slower than what counts */
    bool fits;           /* some micro-batch does; else why none: */
    char reason[512];
    int lacks; /* 1 + the enum ht_tier whose memory is missing; 0: another reason */
};

struct ht_search {
    const struct ht_options *options; /* of the scenario; borrowed */
    const struct ht_cluster *cluster; /* all cards; borrowed */
    struct ht_cards *cards;           /* [n_cards]; the first are all */
    size_t n_cards;
    const char **systems; /* [n_systems] */
    size_t n_systems;
    struct ht_way *ways; /* [n_cards * n_systems] by cards, then systems */
    int64_t n_simulated, n_skipped;

    pthread_mutex_t lock;
    double *best; /* [n_cards] tokens per second so far */
    double third; /* the third best of all systems so far */
};

/* Prepares a search over the systems of a list ("A,B"), or without one over all but ablations. exhaustive: nothing is
   skipped (for tests). */
enum ht_status ht_search_create(const struct ht_options *options, const struct ht_cluster *cluster, const char *systems,
                                struct ht_error *err, struct ht_search *out);
void ht_search_free(struct ht_search *s);

/* Runs it. After Ctrl-C (HT_INTERRUPTED) the ways have what was found. */
enum ht_status ht_search_run(struct ht_search *s, bool exhaustive, struct ht_error *err);

/* Returns the indices of the best ways of n different systems, the best first; fewer where fewer run. */
size_t ht_search_best(const struct ht_search *s, size_t *ways, size_t n);

/* Returns the best tokens per second of all ways whose cards are within `kinds`. */
double ht_search_best_of(const struct ht_search *s, uint64_t kinds);

/* A change of the machine, and the best rate after it. */
struct ht_change {
    char what[96];
    double tokens_per_s;
    const char *system; /* that is then fastest; NULL: none runs */
};

/* Simulates each change that makes sense for the cluster: one more card of each kind, twice the main memory, more disks,
   faster slots, a faster network. Of the search's systems it tries the best four, those that lack what the change adds,
   and all on disks when disks are added. Writes at most max changes and returns their number in *n. */
enum ht_status ht_changes_try(const struct ht_search *s, struct ht_error *err, struct ht_change *changes, size_t max,
                              size_t *n);

/* Sets a request to a way: its cards, batch and micro-batch. */
void ht_way_apply(const struct ht_search *s, const struct ht_way *way, struct ht_options *options);

/* Writes the command line of `hetbench sim` that simulates the way. */
void ht_way_command(const struct ht_search *s, const struct ht_way *way, char *text, size_t bytes);

#endif
