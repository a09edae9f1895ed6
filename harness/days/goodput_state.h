/* The state of a simulated day, for goodput.c and goodput_load.c. */
#ifndef HT_HARNESS_DAYS_GOODPUT_STATE_H
#define HT_HARNESS_DAYS_GOODPUT_STATE_H

#include "common/store/price.h"
#include "harness/days/goodput.h"

#define HT_NS_OF_S 1e9

/* Returns by how many nodes an event changes their number. */
static inline int32_t step_of(const struct ht_spot_event *e)
{
    return (e->kind == HT_SPOT_JOINED) - (e->kind == HT_SPOT_LOST);
}

enum phase { WAITING, DETECTING, STARTING, RUNNING };

/* A save: its step, the plan that wrote it, and the trace's nodes that the plan's nodes were. */
struct saved {
    int64_t step; /* -1: none */
    const struct ht_planned *plan;
    int32_t *nodes; /* [fleet's nodes] */
};

/* Steps from `first` on took so long each, the last of them `cut_ns` less (unspend). */
struct pace {
    int64_t first, step_ns, cut_ns;
};

struct state {
    const struct ht_day_setting *s;
    const struct ht_policy *policy;
    struct ht_day *out;
    struct ht_error *err;

    bool *alive, *leaving; /* [trace's nodes] there; announced to be lost */
    int64_t *lost_ns;      /* [trace's nodes] INT64_MAX: never */
    struct ht_fleet first; /* of the job; empty: none yet */
    bool has_first;

    int64_t now, last; /* the time, and that of the last account of rent */
    enum phase phase;
    int64_t timer;  /* of detecting and starting: their end */
    int64_t change; /* when to look for another plan; INT64_MAX: not */

    const struct ht_planned *plan; /* that runs or starts */
    int32_t *nodes;                /* [its fleet's nodes] */
    int64_t begun, begin_step;     /* of the run */
    int64_t stop_ns, stop_step;    /* what the last change booked as stalls; the step that it saved */
    struct saved local, remote;
    int64_t reached; /* steps done */
    struct pace *paces;
    size_t n_paces, paces_cap;
};

static inline int32_t kind_of(const struct state *x, size_t node)
{
    return x->s->kind_of[node];
}

static inline struct ht_fleet there(const struct state *x)
{
    struct ht_fleet f = {{0}};
    for (size_t i = 0; i < x->s->trace->n_nodes; i++) f.count[kind_of(x, i)] += x->alive[i];
    return f;
}

/* Prices loading a save into a plan on these nodes, from the stores of live nodes (local), the remote store, or both. Returns
   HT_INFEASIBLE if the sources lack a part. */
enum ht_status ht_day_price(const struct state *x, const struct saved *v, bool local, bool remote,
                            const struct ht_planned *plan, const int32_t *nodes, const struct ht_model *m,
                            struct ht_error *err, struct ht_store_price *out);
/* Prices going on from the newest save that can be read whole, into a plan on these nodes. *step: its; 0 without any. */
enum ht_status ht_day_price_newest(const struct state *x, const struct ht_planned *plan, const int32_t *nodes,
                                   int64_t *step, struct ht_store_price *out);

#endif
