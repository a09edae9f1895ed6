/*
 * The plan that a policy takes for the nodes that there are, and the nodes that it takes for a plan: asked by the simulated day
 * (goodput.h), and by the supervisor of real jobs (choose.h) when it has a policy. So both decide alike.
 */
#ifndef HT_HARNESS_ELASTIC_POLICY_PLAN_H
#define HT_HARNESS_ELASTIC_POLICY_PLAN_H

#include "harness/elastic/members.h"
#include "harness/elastic/planbook.h"

/* Finds the plan of a policy for a fleet: the fastest of the parts that it may run on; without one, of ever fewer nodes, those of the
   last kinds first. first: the job's first nodes, or NULL for a job that begins. *out is NULL if no plan fits. */
enum ht_status ht_policy_plan(const struct ht_policy *p, struct ht_planbook *book, struct ht_fleet fleet,
                              const struct ht_fleet *first, struct ht_error *err, const struct ht_planned **out);

/* Takes `nodes` nodes of a fleet: those of the first kinds first. The result has fewer if the fleet has. */
struct ht_fleet ht_fleet_first(const struct ht_fleet *fleet, int32_t nodes);

/* A policy over the numbered nodes of a cluster. */
struct ht_policy_nodes;
/* options: of the training, borrowed; their cluster is that of the nodes. keeps: nodes on which a policy that keeps its shape runs. */
enum ht_status ht_policy_nodes_create(const struct ht_options *options, const struct ht_policy *policy, int32_t keeps,
                                      struct ht_error *err, struct ht_policy_nodes **out);
void ht_policy_nodes_destroy(struct ht_policy_nodes *n); /* accepts NULL */
/* Chooses among the nodes of a list. Those of `running` ("": none) come first, so that a job does not move without need, and stay as
   they are unless others are faster. HT_INFEASIBLE if no plan fits. */
enum ht_status ht_policy_nodes_choose(struct ht_policy_nodes *n, const char *there, const char *running,
                                      struct ht_error *err, char use[HT_MEMBER_LIST]);

/* Makes a cluster of one node of each kind of another one, which the caller destroys. */
struct ht_cluster *ht_cluster_one_of_each(const struct ht_cluster *cluster);

#endif
