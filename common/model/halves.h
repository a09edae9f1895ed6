/*
 * The halves of a block that is cut: its front, norm1 and so many sub-ops behind it, and its back, all others. They may be on
 * different devices. Most often they are the attention and the MLP (HT_ATTENTION_HALF, HT_MLP_HALF).
 *
 * What the back reads of the front is the residual stream and, unless it begins with norm2, what the front's last sub-op
 * makes (the handed output):
 *
 *     last sub-op of the front    residual    handed
 *     norm1                       x           norm1 (B,T,C)
 *     qkv                         x           qkv (B,T,3C)
 *     attention                   x           attention (B,T,C)
 *     proj                        proj
 *     norm2                       proj        norm2 (B,T,C)
 *     fc1                         proj        fc1 (B,T,F)
 *     gelu                        proj        gelu (B,T,F)
 *
 * Gradients of both come back: dX(u) between the halves is the residual's, which the front completes. Tensor-parallel
 * parts have the norms' outputs alike, and of the others their own columns.
 */
#ifndef HT_MODEL_HALVES_H
#define HT_MODEL_HALVES_H

#include "common/base/pool.h"
#include "common/model/model.h"

/* Return true if the sub-ops are the front, the back, or one of both. */
static inline bool ht_is_front(unsigned sub_ops)
{
    return sub_ops && sub_ops < HT_ALL_SUB_OPS && !(sub_ops & (sub_ops + 1));
}
static inline bool ht_is_back(unsigned sub_ops)
{
    return sub_ops <= HT_ALL_SUB_OPS && ht_is_front(HT_ALL_SUB_OPS & ~sub_ops);
}
static inline bool ht_is_half(unsigned sub_ops)
{
    return ht_is_front(sub_ops) || ht_is_back(sub_ops);
}
/* Returns the front of a block whose front or back the sub-ops are. */
static inline unsigned ht_front_of(unsigned half)
{
    return ht_is_back(half) ? HT_ALL_SUB_OPS & ~half : half;
}
/* Returns the front with so many sub-ops; 0: none, HT_N_SUB_OPS: all of the block. */
static inline unsigned ht_front(int64_t sub_ops)
{
    return (1u << sub_ops) - 1;
}
/* Returns true if what is cut has proj as its residual, not the block's input. */
static inline bool ht_hands_proj(unsigned half)
{
    return ht_front_of(half) >> HT_SUB_PROJ & 1;
}
/* Returns the sub-op, as 1 << HT_SUB_.., whose output is handed beside the residual; 0: none. */
static inline unsigned ht_handed(unsigned half)
{
    unsigned front = ht_front_of(half);
    return front == HT_ATTENTION_HALF ? 0 : front & ~(front >> 1);
}
/* Returns true if all tensor-parallel parts have that output alike. */
static inline bool ht_handed_alike(unsigned handed)
{
    return handed & (1u << HT_SUB_NORM1 | 1u << HT_SUB_NORM2);
}
/* Returns true if the front's backward reads the residual that it has handed: x for norm1, proj for norm2 or for the mask of
   dropout. */
static inline bool ht_front_reads_residual(bool dropout, unsigned half)
{
    return ht_front_of(half) != HT_ATTENTION_HALF || dropout;
}
/* Returns the elements of a row (a token) of the output that a sub-op, 1 << HT_SUB_.., hands, of a part its own. */
int64_t ht_handed_width(const struct ht_model *m, unsigned handed);

/* Returns the elements of a unit's flat buffer that are the parameters of these sub-ops: those of the front come first,
   behind them those of the back; of other sub-ops and of other units all. Not of DiT's blocks, whose halves share
   parameters. */
struct ht_range ht_sub_ops_params(const struct ht_model *m, int64_t unit, unsigned sub_ops);

#endif
