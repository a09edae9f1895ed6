/*
 * Flows that share resources by max-min fairness: the arithmetic of common/exec/sim.h, updated as flows start and
 * finish.
 *
 * A resource is *slack* when its flows could all run at their own caps and still leave room for one unit of the level:
 *
 *     sum of ceil(max(cap_i, 1) a_ir / 2^16) + ceil(sum of a_ir / 2^16) <= capacity_r
 *
 * A slack resource never sets a level (its share exceeds the smallest cap of its unfrozen flows by at least one,
 * whatever the frozen ones were given), so it connects nothing. Only flows that a started or finished flow reaches over
 * *tight* resources are filled again. All others keep speed, work left and end to the last bit. The test is the
 * textbook definition over all flows at once, in 128-bit arithmetic (tests/support/reference_sim.c).
 *
 * Everything is uint64_t or int64_t; the limits below make that exact.
 */
#ifndef HT_EXEC_FLOW_H
#define HT_EXEC_FLOW_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

#define HT_FLOW_MAX_NS       ((int64_t)1 << 43) /* exclusive: T << 20 stays below 2^63 */
#define HT_FLOW_MAX_CAPACITY ((int64_t)1 << 44) /* exclusive, per second: x << 20 stays below 2^64 */
#define HT_FLOW_MAX_AMOUNT   ((int64_t)1 << 47) /* exclusive: amount << 16 stays below 2^63 */
#define HT_FLOW_NEVER_NS     ((int64_t)1 << 62) /* an end beyond this (146 years) is cut to it */

enum { HT_FLOW_WEIGHT_BITS = 16, HT_FLOW_SPEED_BITS = 20 };

struct ht_flow_use {
    int32_t resource;
    uint32_t weight; /* a_ir: ceil(2^16 amount / largest amount), in [1, 2^16] */
    int32_t times;   /* equal flows that it stands for there; 1 unless a graph is folded (common/schedule/fold.h) */
};

struct ht_flows;

/* Creates flows. Slots name the running ones: 0 <= slot < n_slots (the simulator uses lanes). max_uses: the most that
   any one flow has. Returns HT_BAD_INPUT for a capacity outside [1, HT_FLOW_MAX_CAPACITY). */
enum ht_status ht_flows_create(int32_t n_resources, const int64_t *capacity_per_s, int32_t n_slots, int32_t max_uses,
                               struct ht_error *err, struct ht_flows **out);
void ht_flows_destroy(struct ht_flows *f);

/* Starts a flow of uncontended time cost_ns in [1, HT_FLOW_MAX_NS) and rate cap (per second, < HT_FLOW_MAX_CAPACITY).
   uses: each resource at most once; borrowed until the flow has finished. Returns true if all of them are slack: it runs
   at its cap, so its end is known, and only settling may move it. Otherwise there is something to settle. */
bool ht_flows_start(struct ht_flows *f, int32_t slot, int64_t now_ns, int64_t cost_ns, int64_t cap,
                    const struct ht_flow_use *uses, int32_t n_uses);
/* Returns true if all its resources were slack: it changes no other end. Otherwise there is something to settle. */
bool ht_flows_finish(struct ht_flows *f, int32_t slot);

/* Shares the resources again after any number of starts and finishes at now_ns. Writes the slots whose end has become
   known or has moved to `changed` (room for n_slots) and returns their number. Calling it more often changes nothing. */
int32_t ht_flows_settle(struct ht_flows *f, int64_t now_ns, int32_t *changed);
int64_t ht_flows_end_ns(const struct ht_flows *f, int32_t slot);

/* Copies all that decides how a slot's flow goes on, with times from now_ns; zeros where none runs. */
enum { HT_FLOW_STATE = 6 };
void ht_flows_copy_state(const struct ht_flows *f, int32_t slot, int64_t now_ns, int64_t state[HT_FLOW_STATE]);
bool ht_flows_is_running(const struct ht_flows *f, int32_t slot);

/* Returns what a flow takes of a resource at a rate. */
static inline uint64_t ht_flow_charge(uint64_t rate, const struct ht_flow_use *use)
{
    return ((rate * use->weight + ((1u << HT_FLOW_WEIGHT_BITS) - 1)) >> HT_FLOW_WEIGHT_BITS) * (uint64_t)use->times;
}

/* Returns its part of the sum of weights. */
static inline uint64_t ht_flow_weight(const struct ht_flow_use *use)
{
    return (uint64_t)use->weight * (uint64_t)use->times;
}

/* Returns true if flows leave no room for one unit of the level. demand: sum of their charges at their caps, at least 1;
   weight: sum of their weights. Grows with both. */
static inline bool ht_flow_is_tight(uint64_t demand, uint64_t weight, uint64_t capacity)
{
    return demand + ((weight + ((1u << HT_FLOW_WEIGHT_BITS) - 1)) >> HT_FLOW_WEIGHT_BITS) > capacity;
}

/* Return floor(a 1e9 / b) and its ceiling, exact for 0 <= a < 2^62, 1 <= b < 2^45; INT64_MAX when the result does not
   fit. */
int64_t ht_flow_per_giga(int64_t a, int64_t b);
int64_t ht_flow_per_giga_up(int64_t a, int64_t b);

#endif
