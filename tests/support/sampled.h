/*
 * Tests with more cases than every run can afford draw a part of them: of each few in a row one, the same in each
 * run. HT_SEED=N in the environment draws others; HT_SEED=random others in each run, and prints its number; HT_FULL=1
 * runs all.
 */
#ifndef TESTS_SUPPORT_SAMPLED_H
#define TESTS_SUPPORT_SAMPLED_H

#include "common/base/rng.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct sampling {
    uint64_t seed;
    bool full;
};

/* Returns this run's sampling and prints it. Called by main, before tests fork. */
static inline struct sampling sampling_begin(void)
{
    const char *given = getenv("HT_SEED");
    struct sampling s = {.full = getenv("HT_FULL") != NULL};
    if (given && strcmp(given, "random") == 0) {
        s.seed = (uint64_t)time(NULL) * 32768 + (uint64_t)getpid() % 32768;
    } else {
        s.seed = given ? strtoull(given, NULL, 10) : 1;
    }
    printf("HT_SEED=%llu%s\n", (unsigned long long)s.seed, s.full ? ": all cases" : "");
    fflush(stdout);
    return s;
}

/* Returns true if case i is run: of each one_in cases in a row one is. Unlike tests number their cases from unlike
   begins, so that they draw apart. */
static inline bool is_sampled(const struct sampling *s, uint64_t i, uint64_t one_in)
{
    return s->full || i % one_in == ht_random_below(s->seed, i / one_in, one_in);
}

#endif
