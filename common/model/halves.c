#include "common/model/halves.h"

#include <assert.h>

struct ht_range ht_sub_ops_params(const struct ht_model *m, int64_t unit, unsigned sub_ops)
{
    static const int second_norm[] = {[HT_ARCH_GPT] = 6, [HT_ARCH_LLAMA] = 5, [HT_ARCH_BERT] = 10, [HT_ARCH_VIT] = 10};
    struct ht_param_part parts[HT_MAX_PARAM_PARTS];
    struct ht_range all = {0, ht_unit_params(m, unit)};
    if (!ht_is_half(sub_ops) || ht_model_unit_kind(m, unit) != HT_UNIT_BLOCK) return all;
    assert(m->arch != HT_ARCH_DIT);
    ht_unit_param_parts(m, unit, parts);
    int64_t cut = parts[second_norm[m->arch]].offset;
    return sub_ops == HT_MLP_HALF ? (struct ht_range){cut, all.end} : (struct ht_range){0, cut};
}
