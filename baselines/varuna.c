/*
 * Varuna: Athlur, Saran, Sivathanu, Ramjee and Kwatra, "Varuna: Scalable, Low-cost Training of Massive Deep Learning
 * Models", EuroSys 2022; program: github.com/microsoft/varuna. Pipelines of P equal stages, D of them, for spot instances:
 * after each change of the instances the job "morphs" into another P x D.
 *
 *     stages         each has as many blocks (cut-points) as the others, so P divides their number (auto_config.py)
 *     pipelines      D, each a part of the batch; no tensor parallelism
 *     passes         a stage keeps the inputs of its micro-batches and recomputes the rest. Recomputation begins before the gradient
 *                    arrives; backwards go before recomputations, and these before forwards (generate_schedule.cc)
 *     choice         of all P and m that fit, the shortest simulated iteration; the program simulates, too (get_simulated_time)
 *
 * Differences:
 *
 *   - the order of passes is 1F1B. The program's lets a stage run forwards further ahead while no backward is there, which
 *     keeps more inputs and ends no earlier when all passes take as long as planned;
 *   - the last stage recomputes as well, although its backward follows at once;
 *   - m is simulated for powers of two. The program takes the largest that fits (get_microbatch_size);
 *   - micro-batches that D does not divide are spread, so that an iteration has the whole batch. The program rounds;
 *   - all devices are used. The program leaves G - P D idle, which is decided outside of a planner here, by
 *     harness/elastic/policy.h, since a scenario's devices are what a plan uses.
 *
 * The scenario's micro-batch is used on one device alone, where there is nothing to choose between: m is the plan's.
 */
#include "baselines/baselines.h"

#include "common/base/array.h"
#include "common/draft/pipe.h"
#include "common/plan/candidate.h"

#include <stdio.h>
#include <stdlib.h>

static const struct ht_knob knobs[] = {
    {"P", "stages of each pipeline; else the best", .min = 1, .max = -1},
    {"D", "pipelines; devices over P", .min = 1, .max = 1 << 16},
    {"m", "sequences of a micro-batch; else the best power of two", .min = 1, .max = 1 << 20},
    {0},
};

/* Returns the scenario with the plan's micro-batch; its pointers are borrowed. */
static struct ht_scenario with_micro_batch(const struct ht_scenario *scenario, int64_t m)
{
    struct ht_scenario s = *scenario;
    s.micro_batch = m;
    return s;
}

/* Lays out D pipelines of P stages; the first ones take the micro-batches that D does not divide. */
static enum ht_status lay_out(const struct ht_scenario *s, int64_t stages, int64_t n, struct ht_error *err,
                              struct ht_layout **out)
{
    int64_t all = ht_scenario_micro_batches(s);
    int64_t *ranks = HT_NEW_ARRAY(int64_t, n), *l = HT_NEW_ARRAY(int64_t, n);
    for (int64_t k = 0; k < n; k++) {
        ranks[k] = stages;
        l[k] = all / n + (k < all % n);
    }
    enum ht_status status = ht_layout_pipelines(s, (int32_t)n, ranks, l, 1, err, out);
    free(ranks);
    free(l);
    return status;
}

static enum ht_status build(const struct ht_system *self, const struct ht_scenario *scenario, const struct ht_plan *p,
                            struct ht_error *err, struct ht_schedule **out)
{
    struct ht_scenario s = with_micro_batch(scenario, ht_plan_get(p, "m"));
    struct ht_layout *layout = NULL;
    enum ht_status status = lay_out(&s, ht_plan_get(p, "P"), ht_plan_get(p, "D"), err, &layout);
    if (status) return status;
    struct ht_pipe_style style = {.order = HT_PIPE_1F1B,
                                  .v = 1,
                                  .d = 1,
                                  .layout = layout,
                                  .recompute = true,
                                  .early_recompute = true,
                                  .blocking_sends = false};
    status = ht_pipe_check(&s, &style, err);
    if (!status) status = ht_pipe_build(&s, &style, self->name, err, out);
    ht_layout_destroy(layout);
    return status;
}

/* ---- the choice ------------------------------------------------------------------------------------------------- */

struct choice {
    const struct ht_system *self;
    const struct ht_scenario *scenario;
    const struct ht_profile *profile;
    const struct ht_settings *settings;
    int64_t best_P, best_m, best_ns; /* best_P 0: none fits */
    int tried, lacks;
};

/* Returns true if the stages have equally many blocks, and each pipeline a micro-batch. */
static bool is_possible(const struct choice *c, int64_t P, int64_t m)
{
    const struct ht_scenario *s = c->scenario;
    int64_t n = ht_scenario_ranks(s);
    return n % P == 0 && s->model.layers % P == 0 && s->batch % m == 0 && s->batch / m >= n / P;
}

/* Proves and simulates a pair, and notes it if it is the fastest so far. */
static enum ht_status try_pair(struct choice *c, int64_t P, int64_t m, struct ht_error *err, struct ht_plan *out)
{
    struct ht_plan plan = {.planned_bytes = {-1, 0, 0, 0}};
    struct ht_candidate x = {0};
    struct ht_error why = {0};
    char name[32];
    int64_t ns = 0;
    bool any = ht_settings_any_fit(c->settings);
    ht_plan_set(&plan, "P", P);
    ht_plan_set(&plan, "D", ht_scenario_ranks(c->scenario) / P);
    ht_plan_set(&plan, "m", m);
    enum ht_status status = ht_candidate_prove(c->self, c->scenario, &plan, &why, &x);
    if (!status && !any) status = ht_candidate_simulate(&x, c->scenario, c->profile, &why, &ns);
    c->tried++;
    if (!status && (!c->best_P || ns < c->best_ns)) {
        c->best_P = P, c->best_m = m, c->best_ns = ns;
        ht_plan_keep(out, &x);
    }
    snprintf(name, sizeof name, "P %d, D %d, m %d", (int)P, (int)ht_plan_get(&plan, "D"), (int)m);
    if (!status && !any) ht_plan_input(out, name, "s", 1e-9 * (double)ns);
    if (status == HT_INFEASIBLE && why.lacks) c->lacks = why.lacks;
    ht_candidate_free(&x);
    ht_plan_free(&plan);
    return status == HT_INFEASIBLE || !status ? HT_OK : ht_fail(err, status, "%s", why.text);
}

static enum ht_status try_stages(struct choice *c, int64_t P, struct ht_error *err, struct ht_plan *out)
{
    int64_t one = ht_scenario_ranks(c->scenario) == 1 ? c->scenario->micro_batch : 0;
    int64_t forced = ht_setting(c->settings, "m", one);
    enum ht_status status = HT_OK;
    for (int64_t m = forced ? forced : 1; m <= c->scenario->batch && !status; m *= 2) {
        if (is_possible(c, P, m)) status = try_pair(c, P, m, err, out);
        if (forced || (ht_settings_any_fit(c->settings) && c->best_P)) break;
    }
    return status;
}

static enum ht_status plan(const struct ht_system *self, const struct ht_scenario *scenario,
                           const struct ht_profile *profile, const struct ht_settings *settings, struct ht_error *err,
                           struct ht_plan *out)
{
    struct choice c = {self, scenario, profile, settings, 0, 0, 0, 0, 0};
    int64_t n = ht_scenario_ranks(scenario), P = ht_setting(settings, "P", 0), D = ht_setting(settings, "D", 0);
    static const char none[] = "none of %d pairs of P and m fits %lld devices";
    *out = (struct ht_plan){.planned_bytes = {-1, 0, 0, 0}};
    for (int64_t p = 1; p <= n; p++) {
        if ((P && p != P) || (D && p * D != n)) continue;
        if (ht_settings_any_fit(settings) && c.best_P) break;
        enum ht_status status = try_stages(&c, p, err, out);
        if (status) return status;
    }
    if (!c.best_P)
        return c.lacks ? ht_fail_memory(err, c.lacks - 1, none, c.tried, (long long)n)
                       : ht_fail(err, HT_INFEASIBLE, none, c.tried, (long long)n);
    ht_plan_set(out, "P", c.best_P);
    ht_plan_set(out, "D", n / c.best_P);
    ht_plan_set(out, "m", c.best_m);
    snprintf(out->why, sizeof out->why, "the fastest of %d pairs of P and m that fit, of %d tried", out->n_inputs,
             c.tried);
    return HT_OK;
}

const struct ht_system ht_varuna = {
    .name = "varuna",
    .title = "Varuna",
    .source = "Athlur et al. 2022, EuroSys",
    .summary = "equal pipelines of equal stages that recompute; P, D and micro-batch simulated",
    .knobs = knobs,
    .division = HT_PIPELINES,
    .plan = plan,
    .build = build,
};
