/* The parameters of the halves of a block (HT_ATTENTION_HALF, HT_MLP_HALF), which may be on different devices. */
#ifndef HT_MODEL_HALVES_H
#define HT_MODEL_HALVES_H

#include "common/base/pool.h"
#include "common/model/model.h"

/* Returns true if the sub-ops are one half of a block. */
static inline bool ht_is_half(unsigned sub_ops)
{
    return sub_ops == HT_ATTENTION_HALF || sub_ops == HT_MLP_HALF;
}

/* Returns the elements of a unit's flat buffer that are the parameters of these sub-ops: those of the attention half come
   first, behind them those of the MLP half; of other sub-ops and of other units all. Not of DiT's blocks, whose halves
   share parameters. */
struct ht_range ht_sub_ops_params(const struct ht_model *m, int64_t unit, unsigned sub_ops);

#endif
