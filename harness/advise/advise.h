/*
 * Searches the fastest way to train a model on some GPUs: the system, the numerics, the micro-batch, recomputation, and
 * which of the cards.
 *
 *     subsets of the cards x numerics x systems --tasks--> ways, each with its best micro-batch --> the best three
 *     the best ones, on changed machines ----------------> what one more card, disk, .. would bring
 *
 * Every number is a simulation of the plan that the system's own planner makes, as `sim` makes it. At each micro-batch a
 * way recomputes as little as fits (attempt.c). Two lower bounds of its time spare simulations without changing an answer:
 * that of all passes on all cards (ceiling.c), known before anything is planned, and that of the graph's busiest lane. A
 * simulation that surely counts nowhere gives up.
 */
#ifndef HT_HARNESS_ADVISE_ADVISE_H
#define HT_HARNESS_ADVISE_ADVISE_H

#include "common/hw/hw.h"
#include "harness/run/options.h"
#include "harness/sweep/micro_batch.h"

#include <pthread.h>
#include <stddef.h>

enum { HT_ONLY_TEXT = 256, HT_ADVISE_BATCH = 64, HT_ADVISE_BEST = 3 };

/* Some of the cluster's cards. */
struct ht_cards {
    char only[HT_ONLY_TEXT]; /* as --only takes it; "": all */
    uint64_t kinds;          /* bit k: kind k of ht_cluster_kinds is among them */
    int64_t n_gpus;
    bool alike; /* FP16 and BF16 have the same rates on each of them, so a way in FP16 stands for both */
};

/* A system on some cards in some numerics, with the micro-batch at which it is fastest. */
struct ht_way {
    const char *system;
    size_t cards; /* index */
    const char *numerics;
    int64_t batch, micro_batch;
    char set[24];        /* what is recomputed, as --set takes it: "recompute=1", "c=8"; "": as the system has it */
    double tokens_per_s; /* 0: it does not run, or is slower than what counts */
    bool fits;           /* some micro-batch does, or would be too slow if it did; else why none: */
    char reason[512];
    int lacks;           /* 1 + the enum ht_tier whose memory is missing; 0: another reason */
    int64_t short_bytes; /* of that memory, where the graph was built; else 0 */
};

/* The highest rates that cards allow: ceiling.c. */
struct ht_ceiling {
    double tokens_per_s;                /* whatever the micro-batches */
    double equal[HT_MAX_MICRO_BATCHES]; /* [k]: of equal parts in micro-batches of 2^k */
};

struct ht_search {
    const struct ht_options *options; /* of the scenario; borrowed */
    const struct ht_cluster *cluster; /* all cards, what the options change applied; borrowed */
    struct ht_cards *cards;           /* [n_cards]; the first are all */
    size_t n_cards;
    const char **systems; /* [n_systems] */
    size_t n_systems;
    const char *numerics[2]; /* [n_numerics] */
    size_t n_numerics;
    struct ht_ceiling *ceilings; /* [n_cards * n_numerics] */
    struct ht_way *ways;         /* [n_ways = n_cards * n_numerics * n_systems] by cards, then numerics, then systems */
    size_t n_ways;
    int64_t n_compared; /* micro-batches of ways */

    pthread_mutex_t lock; /* over rates and micro-batches of ways, and the count */
};

/* Creates the cluster that options describe, with everything that they change of it. */
enum ht_status ht_search_cluster(const struct ht_options *options, struct ht_error *err, struct ht_cluster **out);

/* Prepares a search over the systems of a list ("A,B"), or without one over all but ablations; over FP16 and BF16 where
   the options have no numerics. cluster: of ht_search_cluster, or a changed copy. */
enum ht_status ht_search_create(const struct ht_options *options, const struct ht_cluster *cluster, const char *systems,
                                struct ht_error *err, struct ht_search *out);
void ht_search_free(struct ht_search *s);

/* Runs it. exhaustive: nothing is skipped (for tests). After Ctrl-C (HT_INTERRUPTED) the ways have what was found. */
enum ht_status ht_search_run(struct ht_search *s, bool exhaustive, struct ht_error *err);

/* Returns the indices of the best ways of n different systems, the best first; fewer where fewer run. */
size_t ht_search_best(const struct ht_search *s, size_t *ways, size_t n);

/* Returns the best tokens per second, in these numerics or in any (NULL), of all ways whose cards are of exactly these
   kinds, or of some of them. */
double ht_search_best_with(const struct ht_search *s, uint64_t kinds, const char *numerics);
double ht_search_best_within(const struct ht_search *s, uint64_t kinds, const char *numerics);

/* A change of the machine, and the best rate after it. */
struct ht_change {
    char what[96];
    double tokens_per_s;
    const char *system; /* that is then fastest; NULL: none runs */
};

/* Simulates each change that makes sense for the cluster: one more card of each kind, twice the main memory, more disks,
   faster slots, a faster network. Of the search's systems it tries the best three, those that lack what the change adds,
   and all on disks when disks are added. Writes at most max changes and returns their number in *n. */
enum ht_status ht_changes_try(const struct ht_search *s, struct ht_error *err, struct ht_change *changes, size_t max,
                              size_t *n);

/* Sets options to those of a way: its cards, numerics, batch, micro-batch and what is recomputed. */
void ht_way_apply(const struct ht_search *s, const struct ht_way *way, struct ht_options *options);

/* Writes the command line of `hetbench sim` that simulates the way. */
void ht_way_command(const struct ht_search *s, const struct ht_way *way, char *text, size_t bytes);

#endif
