/*
 * AutoHet's iteration: 1F1B in every group, Megatron-LM's (Sec. III-A), then the gradients of each layer over a ring of its
 * own (Sec. II-C), then the steps. common/draft/pipe.h builds it; the plan says which ranks are which stage:
 *
 *     tp           tensor-parallel parts of every stage
 *     pipelines    GPUs of each group
 *     l            micro-batches of each group
 *     blocks       layers of each stage, group by group
 *     place        the GPUs, part by part, stage by stage, group by group
 *     transposed   Sec. II-B: what unequal tensor-parallel degrees would cost. The graph has groups of one degree. A group whose
 *                  degree is another one has no other work for it but this: each GPU rearranges 1/n of the gradients that are cut
 *                  along inputs before their ring, and back
 *     recompute, segment, zero    [ours] as in baselines/pipelines.c; groups that differ share no gradients, so zero is at most 1
 */
#include "autohet/autohet.h"

#include "common/draft/pipe.h"

static enum ht_status style_of(const struct ht_scenario *scenario, const struct ht_plan *plan, struct ht_error *err,
                               struct ht_layout **layout, struct ht_pipe_style *out)
{
    const struct ht_variable *pipelines = ht_plan_variable(plan, "pipelines"), *l = ht_plan_variable(plan, "l");
    const struct ht_variable *blocks = ht_plan_variable(plan, "blocks"), *place = ht_plan_variable(plan, "place");
    const struct ht_variable *transposed = ht_plan_variable(plan, "transposed");
    int32_t tp = (int32_t)ht_plan_get(plan, "tp");
    *layout = NULL;
    if (transposed && transposed->n != pipelines->n)
        return ht_fail(err, HT_BAD_INPUT, "transposed has %d numbers; expected one for each of %d groups",
                       transposed->n, pipelines->n);
    enum ht_status status = ht_layout_pipelines(scenario, pipelines->n, pipelines->values, l->values, tp, err, layout);
    if (!status) status = ht_layout_place(*layout, scenario, place->n, place->values, err);
    *out = (struct ht_pipe_style){.order = HT_PIPE_1F1B,
                                  .v = 1,
                                  .d = 1,
                                  .layout = *layout,
                                  .blocks = blocks->values,
                                  .n_blocks = blocks->n,
                                  .transposed = transposed ? transposed->values : NULL,
                                  .zero = pipelines->n > 1 ? (int32_t)ht_plan_get(plan, "zero") : 0,
                                  .blocking_sends = true};
    ht_pipe_read_recomputation(plan, out);
    return status ? status : ht_pipe_lay_out(scenario, out, *layout, err);
}

enum ht_status autohet_check(const struct ht_scenario *scenario, const struct ht_plan *plan, struct ht_error *err)
{
    struct ht_layout *layout;
    struct ht_pipe_style style;
    enum ht_status status = style_of(scenario, plan, err, &layout, &style);
    if (!status) status = ht_pipe_check(scenario, &style, err);
    ht_layout_destroy(layout);
    return status;
}

enum ht_status autohet_build(const struct ht_system *self, const struct ht_scenario *scenario,
                             const struct ht_plan *plan, struct ht_error *err, struct ht_schedule **out)
{
    struct ht_layout *layout;
    struct ht_pipe_style style;
    enum ht_status status = style_of(scenario, plan, err, &layout, &style);
    if (!status) status = ht_pipe_build(scenario, &style, self->name, err, out);
    ht_layout_destroy(layout);
    return status;
}
