/*
 * What each piece of work costs: the answer to `struct ht_work`, in whole nanoseconds, alone on its device (contention
 * is the executor's business). Two kinds:
 *
 *     modelled    a cluster's datasheet figures put into the formulas of formula.h; any shape, any rank
 *     from a file a list of keys (ht_work_key) and times, as `hetbench profile` measures and writes them or as a person
 *                 writes them for a fixture
 *
 *         profile:
 *           name: this-laptop
 *           source: hetbench profile, 2 cores
 *           costs:
 *             - {work: "forward block batch=8 seq=1024 width=4096 heads=32 ffn=16384 dtype=bf16", time: 12.3 ms}
 *             - {work: "F", time: 10 ns}       # the custom name of a hand-written graph
 *
 * Clusters of unlike machines. `profile:` may be a list of such lists, and files may be joined. Each says whose costs it
 * has, by the names that the cluster file uses:
 *
 *         device: a100-40gb                    host: epyc-7713
 *
 *     device and host     all that ranks with this device on nodes with this CPU do
 *     device alone        what the device does itself, its copies and its messages, whatever the host
 *     host alone          what the node's cores and disks do (where=host, where=disk), whatever the device
 *     neither             all, of every rank
 *
 * No work of a rank may have two costs. Collectives and messages, which `hetbench profile` does not measure, are modelled
 * on the cluster's links where no list has any.
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
/* Says whose costs a created list has; "": any. */
void ht_profile_label(struct ht_profile *profile, const char *device, const char *host);
/* Appends the lists of another profile from a file, which is destroyed. */
void ht_profile_join(struct ht_profile *profile, struct ht_profile *other);
/* Says whose ranks are asked for: of a cluster that outlives the profile, or NULL, of one that is not known. HT_BAD_INPUT
   where a name is neither on the cluster nor in the catalogue, a rank's kind is not covered, a work of a rank has two
   costs, or lists say whose they are and no cluster does. */
enum ht_status ht_profile_bind(struct ht_profile *profile, const struct ht_cluster *cluster, struct ht_error *err);
void ht_profile_destroy(struct ht_profile *profile);

/* The cluster's when modelled; of several lists, joined by " + ". */
const char *ht_profile_name(const struct ht_profile *profile);
const char *ht_profile_source(const struct ht_profile *profile);

/* Sets the time of a key (0 <= ns <= HT_PROFILE_MAX_NS), replacing an earlier one. For created profiles. */
void ht_profile_add(struct ht_profile *profile, const char *key, int64_t ns);
/* Writes the file format above, keys sorted; HT_FAILED when the stream fails. For created profiles. */
enum ht_status ht_profile_save(const struct ht_profile *profile, FILE *out, struct ht_error *err);
#define HT_PROFILE_MAX_NS INT64_C(1000000000000000) /* 11 days */

/*
 * The cost of one work on one rank. A collective or transfer among more ranks than the rank's node has devices is taken
 * to leave the node. A modelled copy on a disk lane costs what the faster of reading and writing takes, for a work does not
 * say which it is; the graph's charge (common/build/links.h) lengthens the other. HT_BAD_INPUT when no list of the
 * rank's kind has such a key (the nearest one is named), or when a modelled cluster lacks what the work needs: a NIC, a
 * disk, the rank; or when the work is a custom name, which only a file can answer.
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
