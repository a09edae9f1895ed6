/*
 * Finds on rank 0 of the NCCL transport (nccl.h) which messages and collectives all their ranks have posted, and so
 * gives all of them one order. Used by one thread.
 */
#ifndef HT_COMM_NCCL_ORDER_H
#define HT_COMM_NCCL_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One end of a message, or one rank's part of a collective. */
struct ht_nccl_want {
    int64_t id;              /* of this end, on its rank */
    int64_t bytes;           /* of a collective a hash of all that its ranks have to agree on */
    int32_t rank, peer, tag; /* peer -1: a collective */
    bool receive;
    int32_t members; /* of the collective, and a hash of their ranks: */
    uint64_t team;
};

/* A message or collective with all its ends, or with those that have come. `alike` false: they disagree about the
   bytes, and it fails. */
struct ht_nccl_match {
    struct ht_nccl_want *ends; /* allocated */
    int32_t n;
    bool alike;
};

struct ht_nccl_order {
    struct ht_nccl_match *open; /* not whole, in the order in which they came */
    size_t n_open, cap_open;
    struct ht_nccl_match
        *matches; /* whole, not in a round yet; the caller takes them with their ends and sets n_matches
                                      to 0 */
    size_t n_matches, cap_matches;
};

/* Adds `want` to the oldest open entry that it fits, or opens one. One rank's ends come in the order of its posts. */
void ht_nccl_order_add(struct ht_nccl_order *o, struct ht_nccl_want want);
void ht_nccl_order_free(struct ht_nccl_order *o);

#endif
