/* Runs a graph of activities under SimGrid. Between bench_simgrid.c, which knows the graph, and simgrid.cpp, which knows SimGrid. */
#ifndef HT_BENCH_SIMGRID_H
#define HT_BENCH_SIMGRID_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An Exec of `amount` ns on a host, or a Comm of `amount` bytes to another one. */
struct bench_activity {
    int32_t host, to; /* to: -1 for an Exec */
    double amount;
};

/* A graph; predecessors have smaller numbers. */
struct bench_activities {
    struct bench_activity *list;         /* [n] */
    int32_t *after, *before;             /* successors, predecessors */
    int64_t *after_begin, *before_begin; /* [n + 1] of each activity's */
    int32_t n;
};

/* Processor seconds of both parts, and the simulated time in s. */
struct bench_simgrid_times {
    double build_s, run_s, end_s;
};

/* Makes the platform, once per process: links shared by both directions, without latency. Link n_links is shared by nobody, and
   gives each Comm most_bytes_per_s. */
void bench_simgrid_open(int32_t n_hosts, int32_t n_links, const double *bytes_per_s, double most_bytes_per_s);
void bench_simgrid_route(int32_t from, int32_t to, int32_t n, const int32_t *links);
void bench_simgrid_seal(void);

/* Runs a graph. all: SimGrid gets all activities and dependencies before it runs. Else each activity is made when the
   last one before it has completed, so that few exist at a time. */
struct bench_simgrid_times bench_simgrid_run(const struct bench_activities *graph, bool all);

/* Returns SimGrid's version: major, minor. */
void bench_simgrid_version(int version[2]);

#ifdef __cplusplus
}
#endif

#endif
