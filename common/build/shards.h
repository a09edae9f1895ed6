/*
 * ZeRO-3 (Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC 2020, Sec. 5):
 * what several data-parallel ranks add to the graph of one. Internal to common/build; see single.h.
 *
 * A unit is cut into shards, one a rank (common/build/layout.h): even ones of ceil(P / N) elements, the last padded, or
 * uneven ones. A rank's shard is resident wherever the system keeps parameters; a pass reads whole ones:
 *
 *     gather   AG1 AG2 AG3 ..               AG3      AG2      AG1        shards --> whole parameters, on the device
 *     compute      F1  F2  F3 .. FH | BH .. R3 B3    R2 B2    R1 B1
 *     reduce                            RSH    RS3      RS2      RS1     whole gradient --> the rank's shard of the sum
 *
 * Each moves as many elements through every rank as the others' shards have: (N - 1) / N of P when they are even.
 * What is gathered lives until the pass has read it: it is gathered again for the backward pass, where recomputation
 * and backward share it. The head's (and with it a tied table) stays between its forward and its backward, which
 * follow each other. Gradients are scattered in every micro-batch, as ZeRO-3 has no room for whole ones; sums over
 * micro-batches are sums of shards. With reduce_once the sums are whole ones of a rank's own micro-batches, and are
 * scattered with the last.
 *
 * One unit ahead. The slot of a unit is its forward, or its recomputation and backward. AG of a slot may run once the
 * slot before it begins, i.e. after the last op of the slot before that. Its id stands right before its own slot, so
 * that the safe sequence needs room for one gathered unit, not two; a second one is there when the memory rule grants
 * it.
 *
 * Two lanes, since on one FIFO lane AG of the next unit would stand behind RS of this one, which waits for its
 * backward.
 *
 * Ranks with fewer micro-batches than others, or none, join the collectives of the rounds that they lack: a gathering
 * sends their shard and brings them nothing, a reduction brings them their shard of the others' sum.
 */
#ifndef HT_BUILD_SHARDS_H
#define HT_BUILD_SHARDS_H

#include "common/build/single.h"

/* Lanes and rows for several ranks; for one, nothing. Without sharding there is one collective, ht_single_all_reduce. */
void ht_shards_init(struct ht_single *g);
void ht_shards_free(struct ht_single *g);

/* The next gathering begins a new slot. */
void ht_shards_begin_slot(struct ht_single *g);
/* Appends AG(u) for a pass of micro-batch mb, unless its parameters are there. */
void ht_shards_gather(struct ht_single *g, int32_t unit, int32_t mb);
/* Appends RS(u,j), or with reduce_once the sum with G(u,j) and after the last one RS(u). */
void ht_shards_reduce(struct ht_single *g, int32_t unit, int32_t mb);

#endif
