/* A line of progress on standard error: on a terminal it is written over, four times a second, elsewhere a new one every two
   seconds; nothing in the first two seconds. */
#ifndef HT_HARNESS_RUN_PROGRESS_H
#define HT_HARNESS_RUN_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ht_progress {
    const char *name; /* what goes on: "megatron_3d" */
    double began_s, shown_s;
    bool terminal, shown, reported; /* reported: the work itself has had something to show */
    struct ht_progress_beat *beat;  /* NULL: none */
};

struct ht_progress ht_progress_begin(const char *name);
/* Shows from a thread, until ht_progress_end, what is done and for how long, unless the work itself shows something.
   what is kept, not copied. */
void ht_progress_beat(struct ht_progress *p, const char *what);
/* Shows the line, if it is time for one. */
void ht_progress_show(struct ht_progress *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Takes the line off a terminal. */
void ht_progress_end(struct ht_progress *p);

/* Shows which share of the work is done, and how much time is left if the rest takes as long; ctx: a struct ht_progress. */
void ht_progress_share(void *ctx, int64_t done, int64_t of);

/* Shows how many of a planner's candidates are done; struct ht_settings' progress. ctx: a struct ht_progress. */
void ht_progress_candidates(void *ctx, size_t done, size_t of);

#endif
