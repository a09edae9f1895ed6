/*
 * Spot traces: when nodes join and are lost. A file is CSV:
 *
 *     time_s,node,event[,instance]
 *     0,node1,joined,p3.2xlarge
 *     5400,node1,notice,p3.2xlarge       the node will be lost; the trace says when
 *     5520,node1,lost,p3.2xlarge
 *
 * Times ascend. A name joins once and is lost at most once. Without the fourth column all nodes are of one kind, which whoever
 * reads the trace names: traces do not say what a node is.
 */
#ifndef HT_HARNESS_DAYS_SPOT_TRACE_H
#define HT_HARNESS_DAYS_SPOT_TRACE_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { HT_SPOT_NAME = 48 };
enum ht_spot_kind { HT_SPOT_JOINED, HT_SPOT_LOST, HT_SPOT_NOTICE, HT_N_SPOT_KINDS };
extern const char *const ht_spot_kind_names[HT_N_SPOT_KINDS]; /* "joined", "lost", "notice" */

struct ht_spot_event {
    int64_t time_ns;
    int32_t node; /* row of the trace's nodes */
    enum ht_spot_kind kind;
};
struct ht_spot_node {
    char name[HT_SPOT_NAME], instance[HT_SPOT_NAME]; /* instance "": the trace does not say */
};
struct ht_spot_trace {
    struct ht_spot_event *events; /* [n_events] by time */
    size_t n_events, events_cap;
    struct ht_spot_node *nodes; /* [n_nodes] in the order in which they first join */
    size_t n_nodes, nodes_cap;
};

/* Loads a built-in trace ("oobleck-p3"), or a file (a name with '/' or ending in .csv). HT_BAD_INPUT says file, line and key. */
enum ht_status ht_spot_trace_load(const char *name_or_path, struct ht_error *err, struct ht_spot_trace *out);
/* Parses the text of a file; `name` stands for the file in errors. *out is zero on error. */
enum ht_status ht_spot_trace_parse(const char *text, size_t bytes, const char *name, struct ht_error *err,
                                   struct ht_spot_trace *out);
void ht_spot_trace_free(struct ht_spot_trace *t); /* accepts a zeroed one */
/* Writes the index-th built-in name into buf. Returns false past the end. */
bool ht_spot_trace_name(int64_t index, char *buf, size_t bytes);

/*
 * Loads a day: traces from a list, each of one kind of instance, "p3.2xlarge=oobleck-p3,g4dn.xlarge=oobleck-g4dn". Events of all
 * are merged by time; those at one time stay in the order of the list. Names of several traces get their instance in front.
 */
enum ht_status ht_spot_day_load(const char *list, struct ht_error *err, struct ht_spot_trace *out);

/* Rates of a generated trace. */
struct ht_spot_rates {
    const char *instance;
    int64_t nodes;        /* that are wanted, and there at the start */
    double length_s;      /* of the trace */
    double lost_per_hour; /* losses of a node while it is there */
    double burst;         /* mean number of nodes that are lost at once, >= 1; geometric */
    double absent_s;      /* mean time until another node takes a lost one's place; exponential */
    double notice_s;      /* how long ahead a loss is announced; 0: never */
    double share_noticed; /* of losses that are announced, [0, 1] */
    uint64_t seed;
};
/* Draws a trace: losses are a Poisson process. Equal rates and seeds give equal traces. */
void ht_spot_trace_generate(const struct ht_spot_rates *rates, struct ht_spot_trace *out);
/* Writes a trace as a file, which ht_spot_trace_parse reads back. */
void ht_spot_trace_write(const struct ht_spot_trace *t, FILE *out);
/* Divides all times by `speed` > 0: the same day with as many times the preemptions an hour. */
void ht_spot_trace_hasten(struct ht_spot_trace *t, double speed);

#endif
