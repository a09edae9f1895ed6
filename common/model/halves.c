#include "common/model/halves.h"

#include <assert.h>

int64_t ht_handed_width(const struct ht_model *m, unsigned handed)
{
    int64_t llama = m->arch == HT_ARCH_LLAMA;
    if (ht_handed_alike(handed)) return m->width;
    if (handed == 1u << HT_SUB_QKV) return ht_model_q_width(m) + 2 * ht_model_kv_width(m);
    if (handed == 1u << HT_SUB_ATTENTION) return ht_model_q_width(m);
    if (handed == 1u << HT_SUB_FC1) return (1 + llama) * ht_model_ffn(m);
    assert(handed == 1u << HT_SUB_GELU);
    return ht_model_ffn(m);
}

struct ht_range ht_sub_ops_params(const struct ht_model *m, int64_t unit, unsigned sub_ops)
{
    /* first part (ht_unit_param_parts) of the back, by the front's last sub-op */
    static const int backs[][HT_N_SUB_OPS - 1] = {[HT_ARCH_GPT] = {2, 4, 4, 6, 8, 10, 10},
                                                  [HT_ARCH_LLAMA] = {1, 4, 4, 5, 6, 8, 8},
                                                  [HT_ARCH_BERT] = {2, 8, 8, 10, 12, 14, 14},
                                                  [HT_ARCH_VIT] = {2, 8, 8, 10, 12, 14, 14}};
    struct ht_param_part parts[HT_MAX_PARAM_PARTS];
    struct ht_range all = {0, ht_unit_params(m, unit)};
    if (!ht_is_half(sub_ops) || ht_model_unit_kind(m, unit) != HT_UNIT_BLOCK) return all;
    assert(m->arch != HT_ARCH_DIT);
    ht_unit_param_parts(m, unit, parts);
    int64_t cut = parts[backs[m->arch][__builtin_popcount(ht_front_of(sub_ops)) - 1]].offset;
    return ht_is_back(sub_ops) ? (struct ht_range){cut, all.end} : (struct ht_range){0, cut};
}
