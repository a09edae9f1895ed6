#include "common/draft/works.h"

struct ht_work ht_scenario_work(const struct ht_scenario *s, enum ht_op_kind kind, enum ht_lane_kind where,
                                int64_t unit)
{
    const struct ht_model *m = &s->model;
    enum ht_unit_kind kind_of_unit = ht_model_unit_kind(m, unit);
    int64_t vocab = m->vocab;
    if (ht_arch_classifies(m->arch) && kind_of_unit == HT_UNIT_HEAD) vocab = m->classes;
    if (m->arch == HT_ARCH_DIT && kind_of_unit == HT_UNIT_HEAD) vocab = ht_model_outputs(m);
    if (ht_arch_has_patches(m->arch) && kind_of_unit == HT_UNIT_EMBEDDING) vocab = ht_model_patch_width(m);
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
                            .vocab = vocab,
                            .tied = m->tied,
                            .flash = m->flash,
                            .dropout = m->dropout,
                            .sequence = m->sequence,
                            .dtype = s->numerics.param,
                            .grad_dtype = s->numerics.grad,
                            .tp = 1,
                            .ranks = 1};
}

struct ht_work ht_accumulate_work(const struct ht_scenario *s, enum ht_lane_kind where, int64_t unit, int64_t params)
{
    struct ht_work w = ht_scenario_work(s, HT_OP_ACCUMULATE, where, unit);
    w.params = params;
    w.dtype = s->numerics.accumulate;
    return w;
}

struct ht_work ht_step_work(const struct ht_scenario *s, enum ht_lane_kind where, int64_t unit, int64_t params,
                            int64_t micro_batches)
{
    struct ht_work w = ht_scenario_work(s, HT_OP_OPTIMIZER_STEP, where, unit);
    w.params = params;
    w.grad_dtype = ht_stepped_gradient(&s->numerics, micro_batches);
    return w;
}

struct ht_work ht_copy_work(enum ht_lane_kind where, int64_t bytes)
{
    return (struct ht_work){.kind = HT_OP_COPY, .where = where, .tp = 1, .ranks = 1, .bytes = bytes};
}

struct ht_work ht_disk_work(bool write, int64_t bytes)
{
    struct ht_work w = ht_copy_work(HT_LANE_DISK, bytes);
    w.write = write;
    return w;
}

struct ht_work ht_collective_work(enum ht_op_kind kind, int32_t ranks, enum ht_dtype dtype, int64_t elements)
{
    return (struct ht_work){.kind = kind,
                            .where = HT_LANE_COLLECTIVE,
                            .tp = 1,
                            .ranks = ranks,
                            .grad_dtype = dtype,
                            .bytes = elements * ht_dtype_bytes(dtype)};
}

struct ht_work ht_uneven_collective_work(enum ht_op_kind kind, int32_t ranks, enum ht_dtype dtype, int64_t elements,
                                         int64_t even)
{
    struct ht_work w = ht_collective_work(kind, ranks, dtype, elements);
    w.even_bytes = even * ht_dtype_bytes(dtype);
    return w;
}

int64_t ht_step_traffic_bytes(const struct ht_scenario *s, enum ht_dtype grad)
{
    const struct ht_numerics *n = &s->numerics;
    int64_t adam = 24 + ht_dtype_bytes(grad) + (ht_numerics_has_master(n) ? ht_dtype_bytes(n->param) : 0);
    return adam + (int64_t)ht_step_beside_bytes(&s->software.step, n->param, grad);
}

int64_t ht_all_reduce_elements(int64_t params, int64_t members)
{
    return 2 * (members - 1) * ((params + members - 1) / members);
}
