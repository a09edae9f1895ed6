/*
 * Pairs sends with receives on rank 0 of the NCCL transport (nccl.h), and so gives all messages one order. Used by one
 * thread.
 */
#ifndef HT_COMM_NCCL_ORDER_H
#define HT_COMM_NCCL_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One end of a message. */
struct ht_nccl_want {
    int64_t id; /* of this end, on its rank */
    int64_t bytes;
    int32_t rank, peer, tag;
    bool receive;
};

/* Both ends of a message. `alike` false: they disagree about the bytes, and the message fails. */
struct ht_nccl_match {
    struct ht_nccl_want end[2];
    bool alike;
};

struct ht_nccl_order {
    struct ht_nccl_want *open; /* unpaired ends, in the order in which they came */
    size_t n_open, cap_open;
    struct ht_nccl_match *matches; /* not in a round yet; the caller takes them and sets n_matches to 0 */
    size_t n_matches, cap_matches;
};

/* Pairs `want` with the oldest open end that fits, or leaves it open. One rank's ends come in the order of its
   posts. */
void ht_nccl_order_add(struct ht_nccl_order *o, struct ht_nccl_want want);
void ht_nccl_order_free(struct ht_nccl_order *o);

#endif
