/*
 * Policies: what a job on nodes that come and go does when they do. A policy names a system that plans, and says when to
 * change the plan and where the state comes from. It knows no clock and no process: the simulated day (goodput.h) asks it, and so
 * can a supervisor of real jobs.
 *
 *     autohet    AutoHet (arXiv 2512.20953), Sec. IV: asymmetric plans of whatever is there; own memory or disk, peers, cloud
 *     varuna     Athlur et al., EuroSys 2022, and its program: P x D of equal stages, nodes beyond P D idle; workers copy
 *                files to the cloud in the background and read them there; a notice makes them save (morph_server.py)
 *     megatron   the fastest shape tp x pp x dp of Megatron-LM, swept anew each time; from the cloud
 *     restart    Megatron-LM's shape of the job's first nodes: waits until as many are there again; from the cloud
 *
 * All policies share the reader and writer of stores, and the times of detection, planning and relaunch.
 */
#ifndef HT_HARNESS_ELASTIC_POLICY_H
#define HT_HARNESS_ELASTIC_POLICY_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ht_policy_source {
    HT_FROM_NEAREST, /* own memory or disk, then peers, then the remote store */
    HT_FROM_REMOTE,  /* the remote store alone */
};

struct ht_policy {
    const char *name, *title, *summary;
    const char *system; /* that plans; with settings: "autohet choose=1" */
    enum ht_policy_source source;
    bool keeps_shape;     /* only ever runs on as many nodes as at first */
    bool leaves_idle;     /* fewer nodes than there are, where that is faster; else only where all have no plan */
    bool saves_on_notice; /* saves, and goes on without the node */
};

/* Returns the index-th policy, NULL past the end. */
const struct ht_policy *ht_policy_at(size_t index);
/* Finds a policy by name. HT_BAD_INPUT, with the nearest name, if there is none. */
enum ht_status ht_policy_find(const char *name, struct ht_error *err, const struct ht_policy **out);

/* Nodes by kind: entries of a cluster's file. */
enum { HT_FLEET_KINDS = 8 };
struct ht_fleet {
    int32_t count[HT_FLEET_KINDS];
};
int32_t ht_fleet_nodes(const struct ht_fleet *f);

/*
 * Lists parts of a fleet that a policy may run on, of all that it prefers first: all nodes; then, of a policy that leaves nodes
 * idle, up to HT_FLEET_IDLE fewer of the last kind, and likewise of each first kinds alone. Returns their number, at most
 * HT_FLEET_PARTS. The first `first` of the job is what one that keeps its shape runs on, if the fleet has it.
 */
enum { HT_FLEET_IDLE = 3, HT_FLEET_PARTS = (HT_FLEET_IDLE + 1) * HT_FLEET_KINDS };
size_t ht_policy_parts(const struct ht_policy *p, const struct ht_fleet *fleet, const struct ht_fleet *first,
                       struct ht_fleet parts[HT_FLEET_PARTS]);

#endif
