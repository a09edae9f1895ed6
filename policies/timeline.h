/*
 * Resources that policies plan with: lanes whose time is reserved piece by piece, and the bytes that wait on the GPU
 * over the time of a pass. Internal to policies.
 */
#ifndef HT_POLICIES_TIMELINE_H
#define HT_POLICIES_TIMELINE_H

#include "policies/policy.h"

#include <stddef.h>

/* A direction of a link. Reserved time is a set of spans that do not touch. */
struct policy_lane {
    double bytes_per_s;
    struct policy_span {
        double begin_s, end_s;
    } * spans; /* ascending */
    int32_t n;
    size_t cap;
};

/* Returns when bytes have passed that take all free time from `from_s` on. */
double policy_lane_end(const struct policy_lane *lane, double from_s, double bytes);
/* Returns when bytes must begin that take all free time before `until_s`, the last of it first. */
double policy_lane_begin(const struct policy_lane *lane, double until_s, double bytes);
/* Returns true if no time between the two is reserved. */
bool policy_lane_is_free(const struct policy_lane *lane, double begin_s, double end_s);
/* Reserves all time between the two. */
void policy_lane_reserve(struct policy_lane *lane, double begin_s, double end_s);

/* Waiting bytes by slot: slot k lasts from at_s[k] to at_s[k + 1]. A slot ends where an activation is made or used. The
   slots are the leaves of a segment tree, so that a change and a question take O(log n). */
struct policy_timeline {
    double *at_s; /* [n + 1] */
    int32_t n;
    double device_bytes;
    int32_t leaves;             /* power of two, at least n */
    struct policy_slots *nodes; /* [2 * leaves]; 1 is the root, k's children are 2k and 2k + 1 */
};

/* Lays out the slots, with everything waiting on the GPU. */
void policy_timeline_init(struct policy_timeline *t, const struct ht_policy_case *c);
void policy_timeline_free(struct policy_timeline *t);
/* Returns the first slot in which most bytes wait, or -1 if all of them fit. */
int32_t policy_timeline_peak(const struct policy_timeline *t);
/* Ignores a slot from now on, because nothing is left that would relieve it. */
void policy_timeline_give_up(struct policy_timeline *t, int32_t slot);
/* Returns true if the whole slot lies between the two. */
bool policy_slot_within(const struct policy_timeline *t, int32_t slot, double begin_s, double end_s);
/* Removes bytes, 0 or more, from all slots that lie between the two. */
void policy_timeline_remove(struct policy_timeline *t, double begin_s, double end_s, double bytes);
/* Returns the time of slots that lie between the two and in which more waits than fits. */
double policy_timeline_over(const struct policy_timeline *t, double begin_s, double end_s);

/* A transfer out of the GPU as soon as an activation is made, and back as late as possible. */
struct policy_swap {
    double out_s, in_s; /* it has left; it begins to come back */
};
struct policy_swap policy_swap_of(const struct ht_activation *a, const struct policy_lane *out,
                                  const struct policy_lane *in);
void policy_swap_reserve(const struct ht_activation *a, struct policy_swap s, struct policy_lane *out,
                         struct policy_lane *in);

/* Activations in an order of preference, linked. -1 ends it. */
struct policy_order {
    int32_t first, *next; /* next[n], by activation */
};

/* Orders n activations by falling key; equal keys keep their order. The caller frees next. */
struct policy_order policy_order(const double *key, int32_t n);
/* Returns the activation that a link names, or -1. Unlinks those that are no longer kept on the way to it. Walk:
       for (int32_t i, *at = &o->first; (i = policy_order_at(o, at, fates)) >= 0; at = &o->next[i]) */
int32_t policy_order_at(const struct policy_order *order, int32_t *link, const enum ht_fate *fates);

#endif
