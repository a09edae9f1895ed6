/*
 * Pipelines by hand: a small model on any number of devices, ops priced in the unit of the papers' figures, nothing
 * shared.
 *
 * T_f: a forward stage on a micro-batch; T_b: a backward stage. p, g, o: fetch, offload and step of one block; a
 * backward stage is one block here, a forward stage d of them. Everything else costs nothing.
 */
#ifndef HT_TESTS_SUPPORT_PIPES_H
#define HT_TESTS_SUPPORT_PIPES_H

#include "common/base/array.h"
#include "common/exec/sim.h"
#include "common/draft/pipe.h"
#include "common/schedule/verify.h"
#include "tests/support/lookup.h"
#include "tests/support/scenario.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PIPE_UNIT_NS INT64_C(6000000) /* a third and a half are whole */

struct pipe_prices {
    double forward, backward, fetch, offload, step;
};

/* Returns a scenario with micro-batches of one sequence. nodes divides ranks. As in the figures, devices write to each
   other. */
static inline struct ht_scenario pipe_scenario(int64_t ranks, int64_t nodes, int64_t layers, int64_t micro_batches)
{
    static const char *const clusters[] = {"", "sysx-1node", "sysx-2node", "", "sysx-4node"};
    struct ht_scenario_request r = {
        .model = "llama-tiny", .cluster = clusters[nodes], .batch = micro_batches, .micro_batch = 1, .seq = 16};
    struct ht_scenario s = scenario_from(&r);
    for (int64_t n = 0; n < nodes; n++) {
        s.cluster->nodes[n].groups[0].count = s.cluster->nodes[n].n_gpus = ranks / nodes;
        s.cluster->nodes[n].peer = true;
    }
    s.cluster->n_gpus = ranks;
    s.model.layers = layers;
    return s;
}

static inline struct ht_schedule *pipe_build(const struct ht_scenario *sc, const struct ht_pipe_style *y)
{
    struct ht_schedule *s = NULL;
    struct ht_error err = {0};
    ck_assert_msg(ht_pipe_build(sc, y, "pipe", &err, &s) == HT_OK, "%s", err.text);
    return s;
}

static const struct ht_pipe_style pipe_gpipe = {.order = HT_PIPE_AFAB, .v = 1, .d = 1, .blocking_sends = true};
static const struct ht_pipe_style pipe_mobius = {.order = HT_PIPE_AFAB,
                                                 .v = 2,
                                                 .d = 1,
                                                 .offload = true,
                                                 .own = HT_CONTROL_GATE,
                                                 .recompute = true,
                                                 .blocking_sends = true};

static inline struct ht_pipe_style pipe_with(struct ht_pipe_style y, int32_t v, int32_t d)
{
    y.v = v;
    y.d = d;
    return y;
}

/* Returns a scenario with one block per backward stage. */
static inline struct ht_scenario pipe_scenario_for(const struct ht_pipe_style *y, int64_t ranks, int64_t nodes,
                                                   int64_t micro_batches)
{
    return pipe_scenario(ranks, nodes, ranks * y->v * y->d, micro_batches);
}

struct pipe_run {
    struct ht_schedule *s;
    int64_t *cost_ns;
    struct ht_trace *trace;
};

static inline int64_t pipe_ns(double units)
{
    return llround(units * (double)PIPE_UNIT_NS);
}

/* Counts the blocks whose parameters or gradients the op's effects have. */
static inline int pipe_blocks(const struct ht_schedule *s, int32_t op, enum ht_tensor_class class)
{
    int n = 0;
    for (int64_t e = s->effects_begin[op]; e < s->effects_begin[op + 1]; e++) {
        const struct ht_tensor *t = &s->tensors[s->effects[e].tensor];
        n += t->class == class && s->effects[e].flags & HT_NEED && t->label.unit > 0 && t->label.unit < s->n_units - 1;
    }
    return n;
}

static inline int64_t pipe_price(const struct ht_schedule *s, int32_t op, const struct ht_pipe_style *y,
                                 const struct pipe_prices *p)
{
    const struct ht_op *x = &s->ops[op];
    enum ht_lane_kind lane = s->lanes[x->lane].kind;
    bool blocks = s->works[x->work].unit == HT_UNIT_BLOCK;
    if (x->kind == HT_OP_FORWARD && blocks) return pipe_ns(p->forward / y->d);
    if (x->kind == HT_OP_BACKWARD && blocks) return pipe_ns(p->backward);
    if (x->kind == HT_OP_COPY && lane == HT_LANE_H2D) return pipe_ns(p->fetch * pipe_blocks(s, op, HT_PARAM));
    if (x->kind == HT_OP_SEND && s->tensors[s->effects[s->effects_begin[op]].tensor].class == HT_PARAM)
        return pipe_ns(p->fetch * pipe_blocks(s, op, HT_PARAM));
    if (x->kind == HT_OP_COPY && lane == HT_LANE_D2H) return pipe_ns(p->offload * pipe_blocks(s, op, HT_GRAD));
    if (x->kind == HT_OP_OPTIMIZER_STEP || x->kind == HT_OP_UNDO) return pipe_ns(p->step * pipe_blocks(s, op, HT_GRAD));
    return 0;
}

/* Runs the schedule, and takes it over. bad: [iterations] or NULL. */
static inline struct pipe_run pipe_run(struct ht_schedule *s, const struct ht_pipe_style *y, struct pipe_prices p,
                                       int32_t iterations, int32_t issue_ahead, const bool *bad)
{
    struct pipe_run r = {.s = s, .cost_ns = HT_NEW_ARRAY(int64_t, s->n_ops)};
    struct ht_error err = {0};
    struct ht_sim_options options = {.iterations = iterations, .issue_ahead = issue_ahead, .bad = bad};
    ck_assert_msg(ht_schedule_verify(s, &err, NULL) == HT_OK, "%s", err.text);
    for (int64_t u = 0; u < s->uses_begin[s->n_ops]; u++) s->uses[u].amount = 0;
    for (int32_t op = 0; op < s->n_ops; op++) r.cost_ns[op] = pipe_price(s, op, y, &p);
    ck_assert_msg(ht_sim_run(s, r.cost_ns, &options, &err, &r.trace) == HT_OK, "%s", err.text);
    return r;
}

static inline void pipe_run_free(struct pipe_run *r)
{
    ht_trace_destroy(r->trace);
    ht_schedule_destroy(r->s);
    free(r->cost_ns);
}

/* Returns the time from the first forward's start to the last backward's end of the first iteration. */
static inline double pipe_gpu_time(const struct pipe_run *r)
{
    int64_t begin = INT64_MAX, end = 0;
    for (int32_t op = 0; op < r->s->n_ops; op++) {
        const struct ht_trace_event *e = &r->trace->events[op];
        if (r->s->works[r->s->ops[op].work].unit != HT_UNIT_BLOCK ||
            r->s->lanes[r->s->ops[op].lane].kind != HT_LANE_COMPUTE)
            continue;
        if (r->cost_ns[op] == 0) continue;
        if (e->start_ns < begin) begin = e->start_ns;
        if (e->end_ns > end) end = e->end_ns;
    }
    return (double)(end - begin) / (double)PIPE_UNIT_NS;
}

/* Returns the start of the named op's event in an iteration; -1: skipped. The op must exist. */
static inline double pipe_start(const struct pipe_run *r, int32_t iteration, const char *name)
{
    const struct ht_trace_event *e = event_named(r->trace, iteration, name);
    return e->grant_seq < 0 ? -1 : (double)e->start_ns / (double)PIPE_UNIT_NS;
}

/* Builds and runs three iterations, at both depths of issue; checks the first one's GPU time, and the length of all. */
static inline void pipe_check(struct ht_scenario *sc, const struct ht_pipe_style *y, struct pipe_prices p, double gpu,
                              double iteration)
{
    for (int32_t ahead = 0; ahead <= 2; ahead += 2) {
        struct pipe_run r = pipe_run(pipe_build(sc, y), y, p, 3, ahead, NULL);
        ck_assert_double_eq_tol(pipe_gpu_time(&r), gpu, 1e-9);
        for (int k = 0; k < 3; k++) ck_assert_int_eq(r.trace->iteration_end_ns[k], pipe_ns((k + 1) * iteration));
        pipe_run_free(&r);
    }
}

static inline void pipe_times(struct ht_pipe_style y, int64_t ranks, int64_t micro_batches, struct pipe_prices p,
                              double gpu, double iteration)
{
    struct ht_scenario sc = pipe_scenario_for(&y, ranks, 1, micro_batches);
    pipe_check(&sc, &y, p, gpu, iteration);
    ht_scenario_free(&sc);
}

/* Checks the share of four GPUs' time that is lost with four micro-batches, T_f = 1. */
static inline void pipe_check_bubble(const struct ht_pipe_style *y, double backward, double bubble)
{
    struct ht_scenario sc = pipe_scenario_for(y, 4, 1, 4);
    struct pipe_run r = pipe_run(pipe_build(&sc, y), y, (struct pipe_prices){1, backward, 0, 0, 0}, 4, 0, NULL);
    struct ht_metrics m;
    struct ht_error err = {0};
    ck_assert(ht_metrics_compute(r.trace, r.cost_ns, 1, &err, &m) == HT_OK);
    ck_assert_double_eq_tol(m.bubble_ratio, bubble, 1e-9);
    ht_metrics_free(&m);
    pipe_run_free(&r);
    ht_scenario_free(&sc);
}

static inline int pipe_main(const char *name, TCase *tc)
{
    Suite *suite = suite_create(name);
    tcase_set_timeout(tc, 600);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}

#endif
