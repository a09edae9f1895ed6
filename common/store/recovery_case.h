/*
 * A recovery as a file has it: the nodes and their rates, the groups before and after, and which nodes are gone. The blocks of any
 * model are divided over a group's stages by their speeds, as AutoHet divides them.
 *
 *     name, title, source: free text
 *     nodes:  2                                       numbered from 0
 *     cloud:  1.2 GB/s                                of the remote store, for all nodes together
 *     disk:   3.5 GB/s                                of each node
 *     nic:    50 GB/s                                 of each node, each way
 *     lost:   [0]                                     default: none
 *     layers: 6                                       in place of the model's
 *     before:
 *       - {times: 4, stages: [{node: 0, tp: 2, speed: 1}, {node: 1, tp: 2, speed: 0.474}]}
 *     after:
 *       - {times: 2, stages: [{node: 1, tp: 4}]}      so many groups alike; default 1. Speeds default to 1
 */
#ifndef HT_STORE_RECOVERY_CASE_H
#define HT_STORE_RECOVERY_CASE_H

#include "common/store/recovery.h"

enum { HT_RECOVERY_STAGES = 64, HT_RECOVERY_NODES = 64 };

/* A stage of a group. */
struct ht_recovery_stage {
    int32_t group, node, tp;
    double speed;
};
struct ht_recovery_groups {
    struct ht_recovery_stage stages[HT_RECOVERY_STAGES]; /* by group, in the order of the pipeline */
    int32_t n_stages, n_groups, n_ranks;
};

struct ht_recovery_case {
    char title[128], source[128], note[512];
    int64_t n_nodes, layers; /* layers 0: the model's */
    double cloud, disk, nic; /* bytes/s */
    bool lost[HT_RECOVERY_NODES];
    struct ht_recovery_groups before, after;
};

/* Loads a built-in recovery or a file. HT_BAD_INPUT comes with file, line, column and key. */
enum ht_status ht_recovery_case_load(const char *name_or_path, struct ht_error *err, struct ht_recovery_case *out);
/* Writes the index-th built-in name into buf. Returns false past the end. */
bool ht_recovery_case_name(int64_t index, char *buf, size_t bytes);

/* Returns a model with the number of layers that the case asks for. */
struct ht_model ht_recovery_case_model(const struct ht_recovery_case *c, const struct ht_model *m);
/* Divides m->layers blocks over the stages of each group so that its slowest stage takes least time. The first stage has the
   embedding, the last one the head. stages: [n_stages]. HT_INFEASIBLE if a group has more stages than blocks. */
enum ht_status ht_recovery_case_stages(const struct ht_recovery_groups *groups, const struct ht_model *m,
                                       struct ht_error *err, struct ht_store_stage *stages);

/* A case on a model, as common/store/recovery.h takes it. It points into itself: it must not be copied. */
struct ht_laid_out_recovery {
    struct ht_model model;
    struct ht_store_stage before[HT_RECOVERY_STAGES], after[HT_RECOVERY_STAGES];
    double disk[HT_RECOVERY_NODES], nic[HT_RECOVERY_NODES], memory[HT_RECOVERY_NODES];
    struct ht_recovery r; /* borrows the case */
};
enum ht_status ht_recovery_case_lay_out(const struct ht_recovery_case *c, const struct ht_model *m,
                                        struct ht_store_reading how, bool once, struct ht_error *err,
                                        struct ht_laid_out_recovery *out);

/* Price of a case, of the model that the case makes of `m`. */
struct ht_recovery_outcome {
    struct ht_recovery_price price;
    int64_t state_bytes;         /* of all of the model's state, once */
    int64_t lost_bytes;          /* of what the groups after need and only lost nodes had */
    int64_t params;              /* of the model */
    int32_t n_ranks;             /* after */
    struct ht_rank_reads *reads; /* [n_ranks] */
};
enum ht_status ht_recovery_case_price(const struct ht_recovery_case *c, const struct ht_model *m,
                                      struct ht_store_reading how, bool once, struct ht_error *err,
                                      struct ht_recovery_outcome *out);
void ht_recovery_outcome_free(struct ht_recovery_outcome *o);

#endif
