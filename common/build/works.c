#include "common/build/works.h"

struct ht_work ht_scenario_work(const struct ht_scenario *s, enum ht_op_kind kind, enum ht_lane_kind where,
                                int64_t unit)
{
    const struct ht_model *m = &s->model;
    return (struct ht_work){.kind = kind,
                            .where = where,
                            .unit = ht_model_unit_kind(m, unit),
                            .arch = m->arch,
                            .n_units = 1,
                            .sub_ops = HT_ALL_SUB_OPS,
                            .batch = s->micro_batch,
                            .seq = s->seq,
                            .width = m->width,
                            .heads = m->heads,
                            .kv_heads = m->kv_heads,
                            .ffn = m->ffn,
                            .vocab = m->vocab,
                            .tied = m->tied,
                            .flash = m->flash,
                            .dropout = m->dropout,
                            .dtype = s->numerics.param,
                            .grad_dtype = s->numerics.grad,
                            .tp = 1,
                            .ranks = 1};
}

int64_t ht_step_traffic_bytes(const struct ht_numerics *n, enum ht_dtype grad)
{
    return 24 + ht_dtype_bytes(grad) + (ht_numerics_has_master(n) ? ht_dtype_bytes(n->param) : 0);
}

int64_t ht_all_reduce_elements(const struct ht_scenario *s, int64_t unit, int64_t members)
{
    return 2 * (members - 1) * ((ht_unit_params(&s->model, unit) + members - 1) / members);
}
