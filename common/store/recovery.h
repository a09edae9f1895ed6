/*
 * A job goes on with other pipelines after nodes were lost or have joined (AutoHet, arXiv 2512.20953, Sec. IV and V-C, Fig. 10):
 * what its ranks read from where, and how long that takes, beside a program that reads everything from the remote store
 * (Varuna, Athlur et al., EuroSys 2022).
 *
 *     A   groups are lost, the nodes are there          own disks
 *     B   a node is lost                                own disks, and the remote store for what only that node had
 *     C   nodes join                                    peers
 */
#ifndef HT_STORE_RECOVERY_H
#define HT_STORE_RECOVERY_H

#include "common/store/price.h"

/* Units [first, end) on tp ranks of a node, from `rank` on. The stages of all groups are a layout, whose groups may differ. */
struct ht_store_stage {
    int64_t first, end;
    int32_t tp, rank, node;
};

struct ht_recovery {
    const struct ht_store_stage *before, *after;
    int64_t n_before, n_after;
    const bool *lost; /* [rates.n_nodes] nodes that are gone, with their stores */
    bool once;        /* the remote store sends an element once, not once a group. The paper says "complete model
                          parameters" for each group only in scenario C */
    struct ht_store_rates rates;
    struct ht_store_reading how;
};

struct ht_recovery_price {
    struct ht_store_price
        stores; /* by the stores: all that was saved lies on the disks of the nodes before, and in the remote
                                     store */
    struct ht_store_price remote; /* all of it from the remote store */
};

/* The files of blocks that a rank reads after the change; a file is one part of a unit (Sec. IV-B2, Fig. 6). */
struct ht_rank_reads {
    int64_t files;
    int64_t first_layer, last_layer; /* from 0; -1: none */
    int32_t first_part, last_part;   /* of the parts before */
};
/* Lists what each rank reads: reads [ranks after]. HT_INFEASIBLE as below. */
enum ht_status ht_recovery_reads(const struct ht_model *m, const struct ht_recovery *r, struct ht_error *err,
                                 struct ht_rank_reads *reads);

/* Carries the recovery by the stores out under the emulated clock; `read` gets the rows of ht_recovery_sources. */
enum ht_status ht_recovery_emulate(const struct ht_model *m, const struct ht_recovery *r,
                                   const struct ht_store_emulation *emulation, struct ht_error *err,
                                   struct ht_store_price *out, struct ht_emu_overruns *overruns);
/* Lists what the stores have, in the remote store and on the disks of nodes that are still there; allocated. */
struct ht_transfer_source *ht_recovery_sources(const struct ht_model *m, const struct ht_recovery *r, int64_t *n);

/* Prices a recovery. HT_BAD_INPUT if a rate that it needs is 0; HT_INFEASIBLE if the stages before lack a unit. */
enum ht_status ht_recovery_price(const struct ht_model *m, const struct ht_recovery *r, struct ht_error *err,
                                 struct ht_recovery_price *out);

#endif
