/*
 * What each piece of work costs: the answer to `struct ht_work`, in whole nanoseconds, alone on its device (contention
 * is the executor's business). Two kinds:
 *
 *     modelled    a cluster's datasheet figures put into the formulas of formula.h; any shape, any rank
 *     from a file a list of keys (ht_work_key) and times, as `hetbench profile` measures and writes them or as a person
 *                 writes them for a fixture; the same for every rank
 *
 *         profile:
 *           name: this-laptop
 *           source: hetbench profile, 2 cores
 *           costs:
 *             - {work: "forward block batch=8 seq=1024 width=4096 heads=32 ffn=16384 dtype=bf16", time: 12.3 ms}
 *             - {work: "F", time: 10 ns}       # the custom name of a hand-written graph
 */
#ifndef HT_PROFILE_PROFILE_H
#define HT_PROFILE_PROFILE_H

#include <stdio.h>

#include "common/base/config.h"
#include "common/hw/hw.h"
#include "common/schedule/schedule.h"

struct ht_profile;

/* Modelled on `cluster`, which must outlive the profile. Cannot fail. */
struct ht_profile *ht_profile_modelled(const struct ht_cluster *cluster);
/* From a file. Wrong keys, units and duplicate works are HT_BAD_INPUT with their place. */
enum ht_status ht_profile_load(const char *path, struct ht_error *err, struct ht_profile **out);
enum ht_status ht_profile_parse(const struct ht_doc *doc, struct ht_error *err, struct ht_profile **out);
/* An empty list, for what measures: add, then save. */
struct ht_profile *ht_profile_create(const char *name, const char *source);
void ht_profile_destroy(struct ht_profile *profile);

const char *ht_profile_name(const struct ht_profile *profile); /* the cluster's name when modelled */
const char *ht_profile_source(const struct ht_profile *profile);

/* Sets the time of a key (0 <= ns <= HT_PROFILE_MAX_NS), replacing an earlier one. Not for modelled profiles. */
void ht_profile_add(struct ht_profile *profile, const char *key, int64_t ns);
/* Writes the file format above, keys sorted; HT_FAILED when the stream fails. Not for modelled profiles. */
enum ht_status ht_profile_save(const struct ht_profile *profile, FILE *out, struct ht_error *err);
#define HT_PROFILE_MAX_NS INT64_C(1000000000000000) /* 11 days */

/*
 * The cost of one work on one rank. A collective or transfer among more ranks than the rank's node has devices is taken
 * to leave the node. A modelled copy on a disk lane costs what the faster of reading and writing takes, for a work does not
 * say which it is; the graph's charge (common/build/links.h) lengthens the other. HT_BAD_INPUT when a file has no such key (the nearest one is named), or when a modelled cluster
 * lacks what the work needs: a NIC, a disk, the rank; or when the work is a custom name, which only a file can answer.
 */
enum ht_status ht_profile_cost(const struct ht_profile *profile, int64_t rank, const struct ht_work *work,
                               struct ht_error *err, int64_t *ns);

/* The largest cost of the work over all ranks of the cluster. */
enum ht_status ht_profile_slowest_cost(const struct ht_profile *profile, const struct ht_work *work,
                                       struct ht_error *err, int64_t *ns);

/* The cost of every op, cost_ns[n_ops]: one answer per distinct work and kind of rank, spread over the ops. Whether a
   group leaves its node is read off its members. On error cost_ns holds nothing of use. */
enum ht_status ht_profile_costs(const struct ht_profile *profile, const struct ht_schedule *schedule, int64_t *cost_ns,
                                struct ht_error *err);

#endif
