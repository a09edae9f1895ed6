/*
 * AutoHete's planner: Sec. 3.2.2, from the cost model to the plan.
 *
 *     profile --> eq. 6 as printed, by GLPK --> build and prove --> fine-tuning
 *                     ^                              |
 *                     `--- less M_gpu or M_cpu <-----' if the schedule does not fit
 *
 * The one mending: eq. 1 as printed may promise too much (autohete/README.md says when). If the safe sequence of the
 * plan's schedule needs more memory than there is, the planner lowers the capacity in eq. 1 or 2 by what was missing
 * and solves eq. 6 again. The plan says so ("solved", and in its reason). Where eq. 1 promises too little, nothing is
 * mended: what it refuses is refused.
 *
 * Embedding and head. The paper's hint is "M_cc as the CPU storage requirements beyond the transformer model (e.g., the
 * embedding layer)", so their optimizer is on the host (e = 1), which also leaves eq. 1 the most. If there is no such
 * plan, it is on the device (e = 0). Eqs. 3 to 5 know nothing of the two.
 *
 * Fine-tuning (the paper gives no algorithm): "we fine-tune the parameter prefetching in the backward phase to reduce
 * the synchronization overhead. A simulator of heterogeneous training is constructed to capture dynamic GPU memory
 * allocation. We will advance a parameter prefetching operation if enough GPU memory is available before it." Here PB_i
 * is released when block i + ahead begins its backward slot; ahead = 1 is the base rule. The planner simulates `ahead` =
 * 1, 2, 4 .. L and takes the best. The executors' memory rule decides for each prefetch whether there is memory, so one
 * number for all blocks does not let an early prefetch take memory that an earlier op needs. The simulator is the one
 * of common/exec, on the real schedule.
 *
 * The system without priorities takes the same plan: an ablation changes one thing, the order of gradients and CPU
 * steps. So candidates are simulated with priorities for either system. autohete_period has a planner of its own,
 * period.c, and shares the fine-tuning.
 */
#include "autohete/planner.h"

#include "common/base/array.h"
#include "common/base/units.h"

#include <stdio.h>

enum { ROUNDS = 64 };

/* The caller frees the plan. */
static struct ht_plan plan_of(const struct autohete_planner *q, const struct autohete_outcome *r, int64_t ahead)
{
    struct ht_plan plan = {0};
    ht_plan_set(&plan, "c", r->s.c);
    ht_plan_set(&plan, "p", r->s.p);
    ht_plan_set(&plan, "o", r->s.o);
    ht_plan_set(&plan, "e", r->e);
    ht_plan_set(&plan, "ahead", ahead);
    for (int i = 0; i < 3; i++)
        if (q->sets[i]) ht_plan_set_vector(&plan, q->sets[i]);
    return plan;
}

/* ---- proof and simulation -------------------------------------------------------------------------------------- */

enum ht_status autohete_try(const struct autohete_planner *q, int64_t ahead, int64_t limit_ns, struct ht_error *err,
                            struct autohete_outcome *r)
{
    struct ht_plan plan = plan_of(q, r, ahead);
    struct ht_candidate x;
    enum ht_status status = ht_candidate_prove(&ht_autohete, q->scenario, &plan, err, &x);
    r->needs = ht_candidate_needs(&x);
    if (status == HT_OK)
        status = ht_candidate_simulate_within(&x, q->scenario, q->costs, limit_ns, err, &r->simulated_ns);
    ht_candidate_free(&x);
    ht_plan_free(&plan);
    return status;
}

/* Lowers a capacity by the bytes that a space lacked, and at least enough to exclude this plan's own bytes. */
static void lower(int64_t *capacity, int64_t short_bytes, int64_t planned)
{
    if (short_bytes > 0) *capacity = *capacity - short_bytes < planned ? *capacity - short_bytes : planned - 1;
}

enum ht_status autohete_fit(const struct autohete_planner *q, int64_t limit_ns, struct ht_error *err,
                            struct autohete_outcome *r)
{
    struct ht_error why = {0};
    enum ht_status status = HT_INFEASIBLE;
    r->s = q->box.lower;
    for (r->solved = 1;; r->solved++) {
        if (!q->forced) status = autohete_solve(&r->f, q->model, &q->box, err, &r->s);
        if (!q->forced && status != HT_OK) break;
        status = autohete_try(q, 1, limit_ns, &why, r);
        if (status != HT_INFEASIBLE || q->forced || r->solved == ROUNDS) break;
        lower(&r->f.device_capacity_bytes, r->needs.short_bytes[HT_DEVICE], q->model->device_bytes(&r->f, r->s));
        lower(&r->f.host_capacity_bytes, r->needs.short_bytes[HT_HOST], autohete_host_bytes(&r->f, r->s));
    }
    r->first = r->s;
    if (status != HT_OK && why.status == status) *err = why; /* the proof's message is more exact than eq. 6's */
    return status;
}

/* Takes the `ahead` of 1, 2, 4 .. that makes the iteration shortest, a larger one only if it gains a thousandth. */
static enum ht_status fine_tune(const struct autohete_planner *q, const struct autohete_outcome *r,
                                struct ht_error *err, int64_t *ahead)
{
    int64_t best_ns = r->simulated_ns, fetched = r->s.p - (r->s.p == r->s.o); /* block L keeps its parameters */
    enum ht_status status = HT_OK;
    *ahead = 1;
    for (int64_t a = 2; status == HT_OK && fetched > 0 && a <= r->f.layers; a *= 2) {
        struct autohete_outcome x = *r;
        int64_t limit_ns = best_ns - best_ns / 1000 + 1;
        status = autohete_try(q, a, limit_ns, err, &x);
        if (status != HT_OK || x.simulated_ns >= limit_ns) continue;
        best_ns = x.simulated_ns;
        *ahead = a;
    }
    return status;
}

/* ---- the plan -------------------------------------------------------------------------------------------------- */

static enum ht_status read_settings(struct autohete_planner *q, const struct ht_settings *settings,
                                    struct ht_error *err)
{
    int64_t L = q->scenario->model.layers;
    static const char *const counts[] = {"c", "p", "o"}, *const names[] = {"C", "P", "O"};
    int64_t n[3];
    for (int i = 0; i < 3; i++) {
        q->sets[i] = ht_setting_variable(settings, names[i]);
        n[i] = ht_setting(settings, counts[i], q->sets[i] ? q->sets[i]->n : -1);
        if (q->sets[i] && n[i] != q->sets[i]->n)
            return ht_fail(err, HT_BAD_INPUT, "%s=%lld is not the size of %s, %d blocks", counts[i], (long long)n[i],
                           names[i], (int)q->sets[i]->n);
    }
    int64_t c = n[0], p = n[1], o = n[2];
    if (p >= 0 && o >= 0 && p > o)
        return ht_fail(
            err, HT_BAD_INPUT,
            "p=%lld is above o=%lld; expected p <= o (footnote 2: blocks stepped on the device keep no copy to "
            "offload)",
            (long long)p, (long long)o);
    q->box.lower = (struct autohete_choice){c >= 0 ? c : 0, p >= 0 ? p : 0, o >= 0 ? o : 0};
    q->box.upper = (struct autohete_choice){c >= 0 ? c : L, p >= 0 ? p : L, o >= 0 ? o : L};
    q->forced = c >= 0 && p >= 0 && o >= 0;
    q->e = ht_setting(settings, "e", -1);
    q->ahead = ht_setting(settings, "ahead", -1);
    return HT_OK;
}

/* Finds the paper's plan: eq. 6 with embedding and head on the host, or else on the device. The first message counts. */
static enum ht_status choose(const struct autohete_planner *q, struct ht_error *err, struct autohete_outcome *out)
{
    enum ht_status status = HT_INFEASIBLE;
    struct ht_error first = {0};
    for (int64_t e = 1; e >= 0 && status == HT_INFEASIBLE; e--) {
        struct ht_error why = {0};
        if (q->e >= 0 && e != q->e) continue;
        *out = (struct autohete_outcome){.e = e};
        status = autohete_measure(q->scenario, q->costs, e, &why, &out->f);
        if (status == HT_OK) status = autohete_fit(q, INT64_MAX, &why, out);
        if (status != HT_OK && (!first.status || status != HT_INFEASIBLE)) first = why;
    }
    if (status != HT_OK) *err = first;
    return status;
}

/* Records the profiler's output, from which eqs. 1 to 6 can be computed again. M_gpu and M_cpu are those of
   its last solution. */
static void record_inputs(const struct ht_scenario *scenario, const struct autohete_profile *f, struct ht_plan *plan)
{
    const struct {
        const char *name;
        int64_t value;
    } counts[] = {{"L", f->layers}, {"micro_batches", f->micro_batches}, {"apart", f->apart}},
      bytes[] = {{"device_memory", ht_scenario_device_bytes(scenario)},
                 {"host_memory", ht_scenario_shared_host_bytes(scenario)},
                 {"M_gpu", f->device_capacity_bytes},
                 {"M_cpu", f->host_capacity_bytes},
                 {"M_gc", f->device_const_bytes},
                 {"M_cc", f->host_const_bytes},
                 {"block_input", f->input_bytes},
                 {"block_activations", f->activation_bytes},
                 {"block_copy", f->copy_bytes},
                 {"block_states", f->state_bytes},
                 {"block_shared", f->shared_bytes},
                 {"block_sums", f->sum_bytes},
                 {"block_on_host", f->host_bytes}},
      ns[] = {{"t_fp", f->fp_ns},           {"t_bp", f->bp_ns},           {"t_h2d", f->h2d_ns},
              {"t_d2h", f->d2h_ns},         {"t_optim_cpu", f->cpu_ns},   {"t_optim_gpu", f->gpu_ns},
              {"t_sum_cpu", f->cpu_sum_ns}, {"t_sum_gpu", f->gpu_sum_ns}, {"t_const", f->const_ns},
              {"t_head", f->head_ns},       {"t_turn", f->turn_ns},       {"t_ends_cpu", f->ends_host_ns}};
    for (size_t i = 0; i < HT_COUNT(counts); i++) ht_plan_input(plan, counts[i].name, "", (double)counts[i].value);
    for (size_t i = 0; i < HT_COUNT(bytes); i++) ht_plan_input(plan, bytes[i].name, "bytes", (double)bytes[i].value);
    for (size_t i = 0; i < HT_COUNT(ns); i++) ht_plan_input(plan, ns[i].name, "s", (double)ns[i].value / 1e9);
}

/* Writes why the plan is as it is, and what was mended. */
static void describe(const struct autohete_planner *q, const struct autohete_outcome *r, struct ht_plan *plan)
{
    const struct autohete_profile *f = &r->f;
    char need[HT_QUANTITY_TEXT], have[HT_QUANTITY_TEXT], gpu[HT_QUANTITY_TEXT], cpu[HT_QUANTITY_TEXT];
    int64_t step_ns = f->cpu_ns + (f->micro_batches > 1) * f->cpu_sum_ns;
    int64_t T_bwd = autohete_backward_ns(f, r->s, autohete_overlapped(f, r->s));
    int n = snprintf(plan->why, sizeof(plan->why), "T_bwd is that of the %s; eq. 1 gives %s of %s",
                     T_bwd == f->bp_ns + f->d2h_ns + step_ns * r->s.o ? "CPU" : "device",
                     ht_format_quantity(HT_BYTES, (double)autohete_device_bytes(f, r->s), need),
                     ht_format_quantity(HT_BYTES, (double)ht_scenario_device_bytes(q->scenario), have));
    if (r->solved > 1)
        n +=
            snprintf(plan->why + n, sizeof(plan->why) - (size_t)n,
                     "; mended: the schedule needed more, so eq. 6 was solved %d times, at last with M_gpu = %s, M_cpu "
                     "= %s",
                     r->solved, ht_format_quantity(HT_BYTES, (double)f->device_capacity_bytes, gpu),
                     ht_format_quantity(HT_BYTES, (double)f->host_capacity_bytes, cpu));
    if (r->e == 0 && q->e < 0)
        snprintf(plan->why + n, sizeof(plan->why) - (size_t)n, "; no plan with embedding and head on the host");
}

enum ht_status autohete_plan(const struct ht_system *self, const struct ht_scenario *scenario,
                             const struct ht_profile *costs, const struct ht_settings *settings, struct ht_error *err,
                             struct ht_plan *out)
{
    bool by_period = self->variant == AUTOHETE_PERIOD; /* the other two have the plan of ht_autohete */
    struct autohete_planner q = {
        .scenario = scenario, .costs = costs, .model = by_period ? &autohete_by_period : &autohete_printed};
    struct autohete_outcome r = {0};
    enum ht_status status = read_settings(&q, settings, err);
    if (status == HT_OK) status = by_period ? autohete_plan_by_period(&q, err, &r) : choose(&q, err, &r);
    int64_t ahead = q.ahead;
    if (status == HT_OK && ahead < 0) status = fine_tune(&q, &r, err, &ahead);
    if (status != HT_OK) return status;
    int64_t v = q.model->overlapped(&r.f, r.s);
    *out = plan_of(&q, &r, ahead);
    out->planned_bytes[HT_DEVICE] = q.model->device_bytes(&r.f, r.s);
    out->planned_bytes[HT_HOST] = autohete_host_bytes(&r.f, r.s);
    out->planned_s = (double)autohete_iteration_ns(&r.f, r.s, v) / 1e9;
    record_inputs(scenario, &r.f, out);
    ht_plan_input(out, "solved", "", r.solved);
    ht_plan_input(out, "eq. 1 as printed", "bytes", (double)autohete_device_bytes(&r.f, r.s));
    ht_plan_input(out, "T_fwd (3)", "s", (double)autohete_forward_ns(&r.f, r.s) / 1e9);
    ht_plan_input(out, "T_bwd (5)", "s", (double)autohete_backward_ns(&r.f, r.s, v) / 1e9);
    if (by_period)
        autohete_describe_period(&r, out);
    else
        describe(&q, &r, out);
    if (q.forced) snprintf(out->why, sizeof(out->why), "c, p and o are forced; only the verifier checks them");
    return HT_OK;
}

static const struct ht_knob knobs[] = {
    {"c", "blocks with activation checkpointing, the first ones", .max = -1, .planned = true},
    {"p", "blocks with parameter offloading, the first of the last o", .max = -1},
    {"o", "blocks with optimizer offloading, the last ones", .max = -1},
    {"C", "the blocks with activation checkpointing, instead of the first c", .kind = HT_VARIABLE_BLOCKS},
    {"P", "the blocks with parameter offloading, instead of the first p of O", .kind = HT_VARIABLE_BLOCKS},
    {"O", "the blocks with optimizer offloading, instead of the last o", .kind = HT_VARIABLE_BLOCKS},
    {"e", "optimizer of embedding and head: 0 on the device, 1 on the host", .max = 1},
    {"ahead", "how many blocks early a backward prefetch is released", .min = 1, .max = -1},
    {0},
};

/* clang-format off */
#define AUTOHETE(NAME, TITLE, VARIANT, SUMMARY)                                                                        \
    {.name = NAME, .title = TITLE, .source = "Zeng et al., AutoHete", .summary = SUMMARY, .knobs = knobs,              \
     .variant = VARIANT, .plan = autohete_plan, .build = autohete_build}
const struct ht_system ht_autohete = AUTOHETE("autohete", "AutoHete", AUTOHETE_PS,
    "checkpointing, parameter and optimizer offloading by integer program; priority-based scheduling");
const struct ht_system ht_autohete_nops = AUTOHETE("autohete_nops", "AutoHete without priority scheduling", AUTOHETE_NOPS,
    "AutoHete with gradients and CPU steps in backward order");
const struct ht_system ht_autohete_period = AUTOHETE("autohete_period", "AutoHete, planned by the period", AUTOHETE_PERIOD,
    "AutoHete with plans for iterations that overlap (ours)");
/* clang-format on */
