/*
 * The plan book: what a system's planner makes of a fleet, and how fast that is, remembered by system and fleet. A day asks
 * for the same fleets again and again, and other days for the same as well.
 *
 *     fleet --> cluster --> planner, proof, simulator --> iteration time, and which node holds what of the state
 *
 * With a folder, plans are kept there, one file a system, under a key of all that they depend on: the program, the model, the batch, the
 * cluster's file. A file that is damaged or of another key is not used.
 */
#ifndef HT_HARNESS_ELASTIC_PLANBOOK_H
#define HT_HARNESS_ELASTIC_PLANBOOK_H

#include "common/hw/hw.h"
#include "common/store/transfer.h"
#include "harness/elastic/policy.h"
#include "harness/run/options.h"

/* A plan of a system on a fleet. Its nodes are the fleet's, kind after kind. */
struct ht_planned {
    struct ht_fleet fleet;
    bool fits;
    char why[200];        /* of a plan that does not fit; else the plan's variables */
    int64_t iteration_ns; /* simulated */
    int64_t n_gpus;
    int64_t stall_ns;    /* of a save: the longest copy of a device's state to its node's memory, over PCIe */
    int64_t state_bytes; /* of all of the state, once */
    struct ht_transfer_sink *sinks; /* [n_sinks] what each rank holds, by extent and rank */
    int64_t n_sinks;
};

struct ht_planbook;

/* Creates a book. options: of the scenario, without a cluster; kinds: one node of each kind, borrowed like the options. dir: NULL:
   plans are kept in memory alone. HT_BAD_INPUT if the scenario or the folder is wrong. */
enum ht_status ht_planbook_create(const struct ht_options *options, const struct ht_cluster *kinds, const char *dir,
                                  struct ht_error *err, struct ht_planbook **out);
/* Writes new plans to the folder and frees the book. Accepts NULL. A folder that cannot be written is no error: what was
   computed is right without it. */
void ht_planbook_destroy(struct ht_planbook *book);

/* Finds or makes a system's plan for a fleet; the book keeps it. Several threads may call it. A plan that does not fit is HT_OK. */
enum ht_status ht_planbook_get(struct ht_planbook *book, const char *system, const struct ht_fleet *fleet,
                               struct ht_error *err, const struct ht_planned **out);

/* Systems and fleets whose plans are wanted. */
struct ht_wanted {
    const char *system;
    struct ht_fleet fleet;
};
/* Makes the plans of a list that the book lacks, over the machine's processors, with progress. */
enum ht_status ht_planbook_fill(struct ht_planbook *book, const struct ht_wanted *wanted, size_t n,
                                struct ht_error *err);
/* Returns the numbers of plans that were made, and that came from the folder. */
size_t ht_planbook_made(const struct ht_planbook *book, size_t *remembered);

/* Returns the model of all plans. */
const struct ht_model *ht_planbook_model(const struct ht_planbook *book);

/* Returns a cluster of a fleet's nodes, kind after kind, which the caller destroys. */
struct ht_cluster *ht_fleet_cluster(const struct ht_cluster *kinds, const struct ht_fleet *fleet);

#endif
