/*
 * Profiles: the cost of each piece of work (`struct ht_work`) in whole nanoseconds, alone on its device. Contention is
 * the executor's business. There are two kinds:
 *
 *     modelled     puts a cluster's datasheet figures into the formulas of formula.h; any shape, any rank
 *     from a file  has a list of keys (ht_work_key) and times, which `hetbench profile` measures and writes, or which a
 *                  person writes for a fixture
 *
 *         profile:
 *           name: this-laptop
 *           source: hetbench profile, 2 cores
 *           costs:
 *             - {work: "forward block batch=8 seq=1024 width=4096 heads=32 ffn=16384 dtype=bf16", time: 12.3 ms}
 *             - {work: "F", time: 10 ns}       # the custom name of a hand-written graph
 *
 * A cluster of unlike machines needs several lists. `profile:` may be a list of them, and files may be joined. Each
 * list names the device or host whose costs it has, by the names of the cluster file:
 *
 *         device: a100-40gb                    host: epyc-7713
 *
 *     device and host     all work of ranks with this device on nodes with this CPU
 *     device alone        work of the device itself, its copies and its messages, on any host
 *     host alone          work of the node's cores and disks (where=host, where=disk), with any device
 *     neither             all work of every rank
 *
 * A list may have the rates of a node's disks together, which share them out among reads and writes at a time:
 *
 *         disk: {read: 2.1 GB/s, write: 1.3 GB/s, duplex: false}
 *
 * A copy of a size between two measured ones costs what is on the line between them. A recomputation that is not in the
 * list costs what the blocks' forward pass does, and a cast what the step does: upper bounds. Any other work must be in the list.
 *
 * No work of a rank may have two costs. `hetbench profile` does not measure collectives and messages; if no list has
 * any, they are modelled on the cluster's links.
 */
#ifndef HT_PROFILE_PROFILE_H
#define HT_PROFILE_PROFILE_H

#include <stdio.h>

#include "common/base/config.h"
#include "common/hw/hw.h"
#include "common/model/software.h"
#include "common/schedule/schedule.h"

struct ht_profile;

/* Creates a profile modelled on `cluster`, which must outlive it, with our kernels (software fused). Cannot fail. */
struct ht_profile *ht_profile_modelled(const struct ht_cluster *cluster);
/* Sets the software whose kernels a modelled profile has the costs of; one from a file stays as it is. */
void ht_profile_set_software(struct ht_profile *profile, const struct ht_software *software);
/* Loads a profile from a file. HT_BAD_INPUT, with file, line and column, for wrong keys or units and duplicate
   works. */
enum ht_status ht_profile_load(const char *path, struct ht_error *err, struct ht_profile **out);
enum ht_status ht_profile_parse(const struct ht_doc *doc, struct ht_error *err, struct ht_profile **out);
/* Creates an empty list, for measurements: add, then save. */
struct ht_profile *ht_profile_create(const char *name, const char *source);
/* Sets the device and host whose costs a created list has; "" for any. */
void ht_profile_label(struct ht_profile *profile, const char *device, const char *host);
/* Sets the rates of a node's disks in a created list. */
void ht_profile_set_disk(struct ht_profile *profile, struct ht_disk_rates rates);
/* Returns the measured rates of a node's disks, of the first list that has them; NULL if none has. */
const struct ht_disk_rates *ht_profile_disk(const struct ht_profile *profile);
/* Appends the lists of another loaded profile, which it destroys. */
void ht_profile_join(struct ht_profile *profile, struct ht_profile *other);
/* Binds a loaded profile to the ranks of a cluster, which must outlive it; NULL if the cluster is not known.
   HT_BAD_INPUT if a name is neither on the cluster nor in the catalogue, a rank's kind has no list, a work of a rank
   has two costs, or lists name devices or hosts and there is no cluster. */
enum ht_status ht_profile_bind(struct ht_profile *profile, const struct ht_cluster *cluster, struct ht_error *err);
void ht_profile_destroy(struct ht_profile *profile);

/* Returns the cluster's name if modelled, else the names of all lists joined by " + "; returns the sources, joined
   alike. */
const char *ht_profile_name(const struct ht_profile *profile);
const char *ht_profile_source(const struct ht_profile *profile);

/* Sets the time of a key (0 <= ns <= HT_PROFILE_MAX_NS) of a created profile; replaces an earlier one. */
void ht_profile_add(struct ht_profile *profile, const char *key, int64_t ns);
/* Writes a created profile in the file format above, keys sorted. HT_FAILED if writing fails. */
enum ht_status ht_profile_save(const struct ht_profile *profile, FILE *out, struct ht_error *err);
#define HT_PROFILE_MAX_NS INT64_C(1000000000000000) /* 11 days */

/*
 * Sets *ns to the cost of one work on one rank. A collective or transfer among more ranks than the rank's node has
 * devices is assumed to leave the node.
 * HT_BAD_INPUT if no list of the rank's kind has the key (the message names the nearest one), if a modelled cluster
 * lacks the NIC, disk or rank that the work needs, or if the work is a custom name, which only a file can have.
 */
enum ht_status ht_profile_cost(const struct ht_profile *profile, int64_t rank, const struct ht_work *work,
                               struct ht_error *err, int64_t *ns);

/* Returns true if two ranks of a cluster are of one kind: no formula can tell them apart. */
bool ht_profile_same_kind(const struct ht_cluster *cluster, int64_t a, int64_t b);

/* Sets *ns to the largest cost of the work over all ranks of the cluster. */
enum ht_status ht_profile_slowest_cost(const struct ht_profile *profile, const struct ht_work *work,
                                       struct ht_error *err, int64_t *ns);

/* Sets cost_ns[n_ops] to the cost of every op; asks once per distinct work and kind of rank. A group leaves its node if
   its members are on several nodes. On error the contents of cost_ns are undefined. */
enum ht_status ht_profile_costs(const struct ht_profile *profile, const struct ht_schedule *schedule, int64_t *cost_ns,
                                struct ht_error *err);

#endif
