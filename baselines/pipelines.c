/*
 * Pipelines that keep everything on the devices.
 *
 *     gpipe         all forwards, then all backwards            f0 f1 f2 f3 . . . b0 b1 b2 b3
 *     dapple        alternating forwards and backwards          f0 f1 . b0 f2 b1 f3 b2 . b3
 *     interleaved   dapple over v stages a device, so that the pipeline fills v times as fast
 *
 * GPipe: Huang et al., "GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism", NeurIPS 2019.
 * DAPPLE: Fan et al., "DAPPLE: A Pipelined Data Parallel Approach for Training Large Models", PPoPP 2021. Interleaved:
 * Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", SC 2021,
 * Sec. 2.2.
 *
 * Every device holds its stages' parameters, optimizer states and gradients, and steps them after its backwards. The
 * first device holds the most activations: N_m M_a and N_g M_a in SysX's terms (Sec. 2.1).
 *
 * recompute=1 drops them. GPipe recomputes a stage at once from its input (its Sec. 2.3: segment=0); Megatron-LM, and so
 * interleaved and dapple here, each block from its own (Narayanan et al. 2021, Sec. 3.5: segment=1). segment=n and c=n
 * are Megatron-LM's methods uniform and block: n blocks at a time, and only the first n of each stage. recompute=2 drops
 * attention alone (Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", MLSys 2023, Sec.
 * 5: selective). again=0,4,255,.. says for each block which sub-ops it drops
 * and runs again, as planners decide that choose by operator.
 *
 * DAPPLE's planner of uneven stages is left out: blocks are divided evenly unless blocks= is given, or halves=, in half
 * blocks: halves=5,3 ends the first of two stages behind the third block's attention. Or in sub-ops, eight a block:
 * sub_ops=23,9 ends it behind the third block's gelu (common/model/halves.h).
 * Its data parallelism is pipelines=2,2: two pipelines of two devices, which share the batch and all-reduce their
 * gradients once an iteration.
 *
 * tp=2 cuts every stage into two parts, one per device (Shoeybi et al., "Megatron-LM: Training Multi-Billion Parameter
 * Language Models Using Model Parallelism", 2019): consecutive devices, which all-reduce activations twice a block each
 * way. With one stage a pipeline it is tensor and data parallelism alone: pipelines=2,2 tp=2 on four devices.
 *
 * widths=1,1,2 gives the stages widths of their own, as planners choose that look at each stage by itself (Zheng et al.,
 * "Alpa: Automating Inter- and Intra-Operator Parallelism for Distributed Deep Learning", OSDI 2022; Liu et al., "Aceso:
 * Efficient Parallel DNN Training through Iterative Bottleneck Alleviation", EuroSys 2024). What crosses a boundary is the
 * same on all parts, so each part of the next stage gets it whole from one of this stage, unless slices=1. A boundary may
 * be inside a block: then its halves are divided into different numbers of parts.
 *
 * replicas=1,2,1 gives the stages replicas of their own, as Alpa and Aceso plan, too: those of a stage share each micro-batch, half of its sequences
 * each, and all-reduce their gradients after the passes. A boundary scatters what it sends, by sequences, or gathers it. The micro-batches of the graph are
 * then these shares: a stage of one replica passes two of them at a time, unit by unit, where the programs pass them as one. So
 * gradients are formed and added as everywhere, and no message is cut.
 *
 * slices=1 sends a slice from each part to the next stage, whose parts gather them (Narayanan et al. 2021, Sec. 4.1), as
 * interleaved does unless it is told otherwise. What is not of that paper sends whole tensors: GPipe's and DAPPLE's have
 * no parts.
 *
 * posts=1: a rank posts its receives between passes, as Megatron-LM's p2p_communication.py and DeepSpeed's
 * pipe/engine.py do, so a message waits for the receiver's pass under way. Through host memory it always does.
 *
 * crossing=1,5 makes the messages of each boundary cost as much as so many tensors, as of a program whose stages end
 * between any two operators (Aceso: the residual and what the next operator reads). The graph sends one.
 *
 * kept=65536,81920 makes each block keep so many KiB of a micro-batch between its passes, as a program does that recomputes operators
 * which are not whole sub-ops; again says what is made again, at what cost. Where a block is cut, its front and its back have a number
 * each. It sizes tensors for a simulation, so no training takes it.
 *
 * place= puts the stages on any devices: part after part, stage after stage, pipeline after pipeline. order=1 is the
 * place that Megatron-LM gives them (Narayanan et al., Sec. 3): parts of a stage beside each other, then the stages that
 * hold the same blocks, then the next blocks. For two pipelines of two stages, tp 2: place=0-1,4-5,2-3,6-7.
 *
 * zero=1 and zero=2 share the optimizer states, and the gradients, of a stage among the pipelines that have the same blocks
 * (common/draft/pipe.h; Megatron-LM's distributed optimizer).
 *
 * host=0,2,2,1 keeps the optimizer states of so many blocks of each stage in host memory: one after the other they come to
 * the device for their step, behind the passes, and go back (Zhu et al., "Mist", EuroSys 2025; common/draft/pipe.h). Mist's
 * planner chooses a share of all blocks of a stage, and moves that share of each.
 *
 * GPipe and DAPPLE wait for a send before the next pass. The interleaved order receives the input of its next pass
 * between the two passes of a pair, as Megatron-LM does with overlapped point-to-point communication, and waits for no
 * send.
 */
#include "baselines/baselines.h"
#include "common/base/array.h"
#include "common/draft/pipe.h"

#include <stdio.h>
#include <string.h>

/* clang-format off */
#define SHAPE                                                                                                          \
    {"pipelines", "devices of each of several pipelines", .min = 1, .max = 1 << 16, .kind = HT_VARIABLE_LIST},         \
    {"l", "micro-batches of each pipeline", .min = 1, .max = 1 << 20, .kind = HT_VARIABLE_LIST},                       \
    {"blocks", "blocks of each stage, of one pipeline after the other", .min = 1, .max = -1, .kind = HT_VARIABLE_LIST},\
    {"halves", "the same in half blocks: attention or MLP; in place of blocks", .min = 1, .max = 1 << 16, .kind = HT_VARIABLE_LIST},\
    {"sub_ops", "the same in sub-ops, 8 a block: norm1, qkv, attention, proj, norm2, fc1, gelu, fc2", .min = 1, .max = 1 << 18, .kind = HT_VARIABLE_LIST},\
    {"tp", "tensor-parallel parts of each stage, a device each", .min = 1, .max = 1 << 16},                            \
    {"widths", "the same of each stage of a pipeline; in place of tp", .min = 1, .max = 1 << 14, .kind = HT_VARIABLE_LIST},\
    {"place", "devices of parts, stages, pipelines, one after the other", .kind = HT_VARIABLE_RANKS},                  \
    {"order", "1: Megatron-LM's place: tensor, data, pipeline", .max = 1},                                             \
    {"sequence", "1: the parts cut norms, residuals and dropout, too, by tokens", .max = 1},                           \
    {"slices", "1: a part sends its slice of what crosses a boundary, and the next stage's parts gather them", .max = 1}, \
    {"posts", "1: a message waits for the receiver's pass under way, over any link", .max = 1},                        \
    {"crossing", "inputs of a block that a message over each boundary costs as much as", .min = 1, .max = 1 << 10, .kind = HT_VARIABLE_LIST}
#define REPLICAS                                                                                                       \
    {"replicas", "data-parallel replicas of each stage of one pipeline, which share each micro-batch", .min = 1, .max = 1 << 14, .kind = HT_VARIABLE_LIST}
#define GRADIENTS                                                                                                      \
    {"zero", "1: optimizer states are sharded over the pipelines (ZeRO-1); 2: gradients, too", .max = 2},              \
    {"scatter", "0: zero=1 all-reduces gradients, in place of reduce-scatters", .max = 1},                             \
    {"bucket", "elements of an all-reduce after the passes; 0: each unit's own, at once", .max = INT64_C(1) << 40},    \
    {"steps", "1: an optimizer step for each unit, in place of a stage", .max = 1},                                    \
    {"host", "blocks of each stage, the first ones, whose optimizer states are in host memory", .max = -1, .kind = HT_VARIABLE_LIST}
#define RECOMPUTE                                                                                                      \
    {"recompute", "1: a block keeps nothing and is recomputed; 2: it drops its attention alone", .max = 2},            \
    {"segment", "blocks recomputed at a time, from the input of the first; 0: those of a stage", .max = -1},           \
    {"c", "blocks of each stage that are recomputed, the first ones", .min = 1, .max = -1},                            \
    {"again", "sub-ops that each block recomputes, a sum of 1 norm1, 2 qkv, 4 attention, 8 proj, 16 norm2, 32 fc1, 64 gelu, 128 fc2", .max = HT_ALL_SUB_OPS, .kind = HT_VARIABLE_LIST}, \
    {"kept", "KiB that each block, or each part of one that is cut, keeps of a micro-batch beside again", .max = INT64_C(1) << 40, .kind = HT_VARIABLE_LIST}
/* clang-format on */

static const struct ht_knob knobs[] = {SHAPE, REPLICAS, GRADIENTS, RECOMPUTE, {0}};
static const struct ht_knob chunk_knobs[] = {
    {"v", "stages a device", .min = 1, .max = -1}, SHAPE, GRADIENTS, RECOMPUTE, {0}};

/* Gives the stages of a layout replicas of their own, and widths of their own or one for all. */
static enum ht_status replicate(struct ht_layout *layout, const struct ht_scenario *scenario,
                                const struct ht_variable *replicas, const struct ht_variable *widths, int64_t tp,
                                struct ht_error *err)
{
    struct ht_variable equal = ht_variable_copy(replicas);
    for (int32_t q = 0; q < equal.n; q++) equal.values[q] = tp;
    enum ht_status status = ht_layout_replicate(layout, scenario, replicas->n, widths ? widths->values : equal.values,
                                                replicas->values, err);
    ht_variable_free(&equal);
    return status;
}

/* Makes the style of a plan. The caller destroys *layout, which the style uses; NULL for one pipeline of whole
   stages. */
static enum ht_status style_of(const struct ht_system *self, const struct ht_scenario *scenario,
                               const struct ht_plan *plan, struct ht_error *err, struct ht_layout **layout,
                               struct ht_pipe_style *out)
{
    const struct ht_variable *pipelines = ht_plan_variable(plan, "pipelines"), *l = ht_plan_variable(plan, "l");
    const struct ht_variable *halves = ht_plan_variable(plan, "halves"), *sub_ops = ht_plan_variable(plan, "sub_ops"),
                             *tp = ht_plan_variable(plan, "tp"), *place = ht_plan_variable(plan, "place"),
                             *widths = ht_plan_variable(plan, "widths"), *host = ht_plan_variable(plan, "host"),
                             *replicas = ht_plan_variable(plan, "replicas"),
                             *crossing = ht_plan_variable(plan, "crossing"),
                             *blocks = sub_ops  ? sub_ops
                                       : halves ? halves
                                                : ht_plan_variable(plan, "blocks");
    int64_t ranks = ht_scenario_ranks(scenario), micro_batches = ht_scenario_micro_batches(scenario);
    *layout = NULL;
    enum ht_status status =
        ht_layout_pipelines(scenario, pipelines ? pipelines->n : 1, pipelines ? pipelines->values : &ranks,
                            l ? l->values : &micro_batches, tp && !replicas ? (int32_t)tp->value : 1, err, layout);
    if (!status && replicas)
        status = replicate(*layout, scenario, replicas, widths, tp ? tp->value : 1, err);
    else if (!status && widths)
        status = ht_layout_widen(*layout, scenario, widths->n, widths->values, err);
    if (!status && place) status = ht_layout_place(*layout, scenario, place->n, place->values, err);
    if (!status && ht_plan_get(plan, "sequence") && (*layout)->tp > 1)
        status = ht_layout_cut_rows(*layout, scenario, err);
    if (status) return status;
    if ((*layout)->n_replicas == 1 && (*layout)->tp == 1 && !place && !halves && !sub_ops && !widths &&
        !replicas) { /* the same as without a layout */
        ht_layout_destroy(*layout);
        *layout = NULL;
    }
    *out = (struct ht_pipe_style){.order = (enum ht_pipe_order)self->variant,
                                  .v = self->variant == HT_PIPE_INTERLEAVED ? (int32_t)ht_plan_get(plan, "v") : 1,
                                  .d = 1,
                                  .layout = *layout,
                                  .blocks = blocks ? blocks->values : NULL,
                                  .n_blocks = blocks ? blocks->n : 0,
                                  .halves = halves,
                                  .sub_ops = sub_ops,
                                  .zero = (int32_t)ht_plan_get(plan, "zero"),
                                  .reduce_whole = ht_plan_variable(plan, "scatter") && !ht_plan_get(plan, "scatter"),
                                  .bucket = ht_plan_get(plan, "bucket"),
                                  .step_units = ht_plan_get(plan, "steps"),
                                  .host_blocks = host ? host->values : NULL,
                                  .n_host_blocks = host ? host->n : 0,
                                  .blocking_sends = self->variant != HT_PIPE_INTERLEAVED,
                                  .slices = ht_plan_get(plan, "slices"),
                                  .posts = ht_plan_get(plan, "posts"),
                                  .crossing = crossing ? crossing->values : NULL,
                                  .n_crossing = crossing ? crossing->n : 0};
    ht_pipe_read_recomputation(plan, out);
    return *layout ? ht_pipe_lay_out(scenario, out, *layout, err) : HT_OK;
}

/* Adds several pipelines and their micro-batches to the plan: the forced numbers, or equally many for each. */
static enum ht_status set_pipelines(const struct ht_scenario *scenario, const struct ht_settings *settings,
                                    struct ht_error *err, struct ht_plan *out)
{
    const struct ht_variable *pipelines = ht_setting_variable(settings, "pipelines"),
                             *l = ht_setting_variable(settings, "l");
    int64_t all = ht_scenario_micro_batches(scenario);
    if (!pipelines && l)
        return ht_fail(err, HT_BAD_INPUT,
                       "l is set without pipelines: expected pipelines as well, whose micro-batches l counts");
    if (!pipelines) return HT_OK;
    if (l && l->n != pipelines->n)
        return ht_fail(err, HT_BAD_INPUT, "l has %d element%s; expected %d, one a pipeline", l->n, l->n == 1 ? "" : "s",
                       pipelines->n);
    if (!l && all % pipelines->n)
        return ht_fail(err, HT_BAD_INPUT, "%d pipelines do not divide the %lld micro-batches; expected l as well",
                       pipelines->n, (long long)all);
    struct ht_variable equal = ht_variable_copy(pipelines);
    snprintf(equal.name, sizeof(equal.name), "l");
    for (int32_t k = 0; k < equal.n; k++) equal.values[k] = all / equal.n;
    ht_plan_set_vector(out, pipelines);
    ht_plan_set_vector(out, l ? l : &equal);
    ht_variable_free(&equal);
    return HT_OK;
}

/* Adds the blocks of stages to the plan, or what is in their place, if they are forced. */
static enum ht_status set_blocks(const struct ht_settings *settings, struct ht_error *err, struct ht_plan *out)
{
    static const char *const names[] = {"blocks", "halves", "sub_ops"};
    const char *seen = NULL;
    for (size_t i = 0; i < HT_COUNT(names); i++) {
        const struct ht_variable *v = ht_setting_variable(settings, names[i]);
        if (v && seen)
            return ht_fail(err, HT_BAD_INPUT, "%s and %s are both set; expected one of them", seen, names[i]);
        if (!v) continue;
        ht_plan_set_vector(out, v);
        seen = names[i];
    }
    return HT_OK;
}

/* Adds to the plan how gradients are reduced and states shared, where that is forced. */
static enum ht_status set_gradients(const struct ht_settings *settings, struct ht_error *err, struct ht_plan *out)
{
    static const char *const names[] = {"zero", "scatter", "bucket", "steps"};
    for (size_t i = 0; i < HT_COUNT(names); i++)
        if (ht_setting_variable(settings, names[i])) ht_plan_set(out, names[i], ht_setting(settings, names[i], 0));
    if (ht_setting_variable(settings, "host")) ht_plan_set_vector(out, ht_setting_variable(settings, "host"));
    if (ht_plan_variable(out, "scatter") && ht_plan_get(out, "zero") != 1)
        return ht_fail(err, HT_BAD_INPUT, "scatter is set beside zero=%lld; expected zero=1",
                       (long long)ht_plan_get(out, "zero"));
    return HT_OK;
}

/* Adds to the plan whether boundaries of so many stages are sent in slices: as it is forced, or as Megatron-LM does. */
static enum ht_status set_slices(const struct ht_system *self, const struct ht_settings *settings, int64_t stages,
                                 struct ht_error *err, struct ht_plan *out)
{
    const struct ht_variable *slices = ht_setting_variable(settings, "slices"),
                             *widths = ht_plan_variable(out, "widths");
    bool parts = ht_plan_get(out, "tp") > 1, sequence = ht_plan_get(out, "sequence");
    for (int32_t q = 0; widths && q < widths->n; q++) parts |= widths->values[q] > 1;
    if (slices && slices->value && sequence)
        return ht_fail(err, HT_BAD_INPUT,
                       "slices is set beside sequence=1, which cuts boundaries by tokens; expected one of them");
    if (slices)
        ht_plan_set(out, "slices", slices->value);
    else if (self->variant == HT_PIPE_INTERLEAVED && parts && stages > 1 && !sequence)
        ht_plan_set(out, "slices", 1);
    return HT_OK;
}

/* Adds the replicas of stages to the plan. */
static enum ht_status set_replicas(const struct ht_settings *settings, struct ht_error *err, struct ht_plan *out)
{
    static const char *const others[] = {"pipelines", "sequence", "order", "zero"};
    const struct ht_variable *replicas = ht_setting_variable(settings, "replicas"),
                             *widths = ht_setting_variable(settings, "widths");
    if (!replicas) return HT_OK;
    for (size_t i = 0; i < HT_COUNT(others); i++)
        if (!strcmp(others[i], "pipelines") ? ht_setting_variable(settings, others[i]) != NULL
                                            : ht_setting(settings, others[i], 0) != 0)
            return ht_fail(err, HT_BAD_INPUT, "replicas is set beside %s; expected one of them", others[i]);
    if (widths && widths->n != replicas->n)
        return ht_fail(err, HT_BAD_INPUT, "replicas has %d element%s and widths %d; expected as many, one a stage",
                       replicas->n, replicas->n == 1 ? "" : "s", widths->n);
    ht_plan_set_vector(out, replicas);
    return HT_OK;
}

/* Adds the parts of stages to the plan. */
static enum ht_status set_parts(const struct ht_settings *settings, struct ht_error *err, struct ht_plan *out)
{
    const struct ht_variable *tp = ht_setting_variable(settings, "tp"),
                             *widths = ht_setting_variable(settings, "widths");
    bool sequence = ht_setting(settings, "sequence", 0);
    if (widths && (tp || sequence))
        return ht_fail(err, HT_BAD_INPUT, "widths is set beside %s; expected one of them", tp ? "tp" : "sequence=1");
    if (tp) ht_plan_set(out, "tp", tp->value);
    if (widths) ht_plan_set_vector(out, widths);
    if (sequence) ht_plan_set(out, "sequence", 1);
    if (ht_setting(settings, "posts", 0)) ht_plan_set(out, "posts", 1);
    if (ht_setting_variable(settings, "crossing")) ht_plan_set_vector(out, ht_setting_variable(settings, "crossing"));
    return HT_OK;
}

/* Adds the place of every stage to the plan: the forced one, or Megatron-LM's, in which part p of stage q of pipeline k
   is on device (q N + k) tp + p, with N pipelines. */
static enum ht_status set_place(const struct ht_scenario *scenario, const struct ht_settings *settings, int64_t tp,
                                struct ht_error *err, struct ht_plan *out)
{
    const struct ht_variable *pipelines = ht_setting_variable(settings, "pipelines"),
                             *place = ht_setting_variable(settings, "place");
    bool by_order = ht_setting(settings, "order", 0);
    int64_t n = ht_scenario_ranks(scenario), all = pipelines ? pipelines->n : 1, each = n / all;
    if (by_order && ht_setting_variable(settings, "widths"))
        return ht_fail(err, HT_BAD_INPUT, "widths is set beside order=1; expected place");
    if (place && by_order) return ht_fail(err, HT_BAD_INPUT, "place and order are both set; expected one of them");
    if (place) ht_plan_set_vector(out, place);
    if (!by_order) return HT_OK;
    for (int32_t k = 0; pipelines && k < pipelines->n; k++)
        if (pipelines->values[k] * all != n || each % tp)
            return ht_fail(err, HT_BAD_INPUT,
                           "order is set, and pipeline %d has %lld of %lld devices; expected equal "
                           "pipelines",
                           k, (long long)pipelines->values[k], (long long)n);
    struct ht_variable v = {.name = "place", .kind = HT_VARIABLE_RANKS, .n = (int32_t)n};
    v.values = HT_NEW_ARRAY(int64_t, n);
    for (int64_t i = 0; i < n; i++) v.values[i] = (i % each / tp * all + i / each) * tp + i % tp;
    ht_plan_set_vector(out, &v);
    ht_variable_free(&v);
    return HT_OK;
}

static enum ht_status plan(const struct ht_system *self, const struct ht_scenario *scenario,
                           const struct ht_profile *profile, const struct ht_settings *settings, struct ht_error *err,
                           struct ht_plan *out)
{
    (void)profile;
    const struct ht_variable *widths = ht_setting_variable(settings, "widths"),
                             *replicas = ht_setting_variable(settings, "replicas");
    bool chunks = self->variant == HT_PIPE_INTERLEAVED;
    const struct ht_variable *pipelines = ht_setting_variable(settings, "pipelines");
    int64_t deepest = pipelines ? 1 : ht_scenario_ranks(scenario), tp = ht_setting(settings, "tp", 1);
    for (int32_t k = 0; pipelines && k < pipelines->n; k++)
        if (pipelines->values[k] > deepest) deepest = pipelines->values[k];
    int64_t stages = replicas ? replicas->n : widths ? widths->n : deepest < tp ? 1 : deepest / tp;
    struct ht_layout *layout;
    struct ht_pipe_style style;
    *out = (struct ht_plan){.planned_bytes = {-1, 0, 0, 0}};
    ht_pipe_plan_inputs(scenario, out);
    if (chunks) ht_plan_set(out, "v", ht_setting(settings, "v", ht_pipe_stages_each(scenario, 2, stages)));
    enum ht_status status = set_pipelines(scenario, settings, err, out);
    if (status) return status;
    status = set_blocks(settings, err, out);
    if (!status) status = set_parts(settings, err, out);
    if (!status) status = set_replicas(settings, err, out);
    if (!status) status = set_slices(self, settings, stages, err, out);
    if (!status) status = set_place(scenario, settings, tp, err, out);
    if (!status) status = set_gradients(settings, err, out);
    if (!status) status = ht_pipe_plan_recomputation(scenario, settings, self->variant == HT_PIPE_AFAB, err, out);
    if (status) return status;
    snprintf(out->why, sizeof(out->why), "%s",
             ht_plan_variable(out, "blocks") || ht_plan_variable(out, "halves") || ht_plan_variable(out, "sub_ops")
                 ? "blocks of stages are forced"
                 : "fixed: blocks shared out evenly");
    status = style_of(self, scenario, out, err, &layout, &style);
    if (!status) status = ht_pipe_check(scenario, &style, err);
    ht_layout_destroy(layout);
    return status;
}

static enum ht_status build(const struct ht_system *self, const struct ht_scenario *scenario, const struct ht_plan *p,
                            struct ht_error *err, struct ht_schedule **out)
{
    struct ht_layout *layout;
    struct ht_pipe_style style;
    enum ht_status status = style_of(self, scenario, p, err, &layout, &style);
    if (!status) status = ht_pipe_build(scenario, &style, self->name, err, out);
    ht_layout_destroy(layout);
    return status;
}

/* clang-format off */
#define PIPELINE(NAME, TITLE, SOURCE, VARIANT, KNOBS, SUMMARY)                                                         \
    {.name = NAME, .title = TITLE, .source = SOURCE, .summary = SUMMARY, .knobs = KNOBS, .variant = VARIANT,           \
     .division = HT_PIPELINES, .plan = plan, .build = build}
const struct ht_system ht_gpipe = PIPELINE("gpipe", "GPipe", "Huang et al. 2019, NeurIPS", HT_PIPE_AFAB, knobs,
    "pipeline: all forwards, then all backwards");
const struct ht_system ht_dapple = PIPELINE("dapple", "DAPPLE (1F1B)", "Fan et al. 2021, PPoPP", HT_PIPE_1F1B, knobs,
    "pipeline: one forward, one backward in turn");
const struct ht_system ht_interleaved = PIPELINE("interleaved", "Interleaved 1F1B", "Narayanan et al. 2021, SC",
    HT_PIPE_INTERLEAVED, chunk_knobs, "pipeline: 1F1B over several stages a device");
/* clang-format on */
