/* Random pipelines with random costs, in just the memory that the safe sequence needs: they are proved, none stalls,
   and whatever the outcomes, every pass reads the parameters of the last step that counts. */
#ifndef HT_TESTS_SUPPORT_RANDOM_PIPES_H
#define HT_TESTS_SUPPORT_RANDOM_PIPES_H

#include "common/base/rng.h"
#include "tests/common/draft/control_oracle.h"
#include "tests/support/pipes.h"

static inline uint64_t draw(uint64_t seed, uint64_t *at, uint64_t n)
{
    return ht_random_below(seed, (*at)++, n);
}

static inline struct ht_pipe_style random_style(uint64_t seed, uint64_t *at)
{
    struct ht_pipe_style y = {
        .order = (enum ht_pipe_order)draw(seed, at, 3), .v = 1 + (int32_t)draw(seed, at, 3), .d = 1};
    y.offload = draw(seed, at, 3);
    y.own = (enum ht_control_mode)draw(seed, at, HT_N_CONTROL_MODES);
    y.recompute = draw(seed, at, 2);
    if (y.order == HT_PIPE_1F1B) y.v = 1;
    if (y.order == HT_PIPE_AFAB) y.d = 1 + (int32_t)draw(seed, at, 4);
    y.undo = (enum ht_undo_kind)draw(seed, at, 3);
    y.early_recompute = draw(seed, at, 2);
    y.forward_head = y.recompute && draw(seed, at, 2);
    y.recompute_output = y.recompute && draw(seed, at, 2);
    bool stages = y.d > 1 || y.recompute_output; /* which stages are recomputed at once */
    y.segment = y.recompute && !stages ? (int32_t)draw(seed, at, 3) : 0;
    y.recomputed = y.recompute && !stages ? (int32_t)draw(seed, at, 3) : 0;
    y.attention_only = y.segment == 1 && draw(seed, at, 2);
    y.blocking_sends = draw(seed, at, 2);
    y.free_messages = draw(seed, at, 2);
    return y;
}

/* Does nothing, but a style that has a hook writes every op of every draft. */
static inline void random_pipes_hook(struct ht_pipe *g, const struct ht_pipe_pass *x)
{
    (void)g;
    (void)x;
}

/* Holds a graph, in which ops of micro-batches are copies of one another, against one that is written in full. */
static inline void check_written(const struct ht_schedule *s, const struct ht_scenario *sc, struct ht_pipe_style y)
{
    if (y.hooks.add_lanes || y.hooks.begin || y.hooks.end) return; /* nothing is copied */
    y.hooks.begin = random_pipes_hook;
    struct ht_schedule *written = pipe_build(sc, &y);
    ck_assert(ht_schedule_hash(s) == ht_schedule_hash(written));
    ht_schedule_destroy(written);
}

static inline void check_random(uint64_t seed, uint64_t *at, struct ht_pipe_style y)
{
    struct ht_error err = {0};
    int64_t nodes = 1 << draw(seed, at, 3), ranks = nodes * (1 + (int64_t)draw(seed, at, nodes > 1 ? 2 : 5));
    int64_t micro_batches = 1 + (int64_t)draw(seed, at, 7);
    if (y.order == HT_PIPE_INTERLEAVED) micro_batches = ranks * (1 + (int64_t)draw(seed, at, 3));
    int64_t layers = ranks * y.v * y.d + (int64_t)draw(seed, at, 6);
    struct ht_scenario sc = pipe_scenario(ranks, nodes, layers, micro_batches);
    sc.model.tied = ranks == 1 && draw(seed, at, 2);
    sc.control.mode = (enum ht_control_mode)draw(seed, at, HT_N_CONTROL_MODES);
    if (sc.control.mode == HT_CONTROL_ROLLBACK && y.undo == HT_UNDO_UNLOGGED) y.undo = HT_UNDO_LASTING;
    ck_assert_msg(ht_pipe_check(&sc, &y, &err) == HT_OK, "%s", err.text);
    struct ht_schedule *s = pipe_build(&sc, &y);
    check_written(s, &sc, y);
    struct ht_proof v;
    ck_assert_msg(ht_schedule_verify(s, &err, &v) == HT_OK, "seed %d: %s", (int)seed, err.text);
    char why[256];
    ck_assert_msg(values_hold(s, "pipeline", seed, why), "seed %d: %s", (int)seed, why);
    for (int32_t r = 0; r < s->n_ranks; r++) ht_schedule_set_capacity(s, HT_DEVICE, r, v.spaces[r].peak_bytes);
    ht_proof_free(&v);
    int64_t *cost_ns = HT_NEW_ARRAY(int64_t, s->n_ops);
    for (int32_t op = 0; op < s->n_ops; op++) cost_ns[op] = (int64_t)draw(seed, at, 1000) * (int64_t)draw(seed, at, 2);
    bool bad[] = {draw(seed, at, 2), false, true};
    struct ht_sim_options options = {.iterations = 3, .issue_ahead = (int32_t)draw(seed, at, 3), .bad = bad};
    struct ht_trace *trace = NULL;
    ck_assert_msg(ht_sim_run(s, cost_ns, &options, &err, &trace) == HT_OK, "seed %d: %s", (int)seed, err.text);
    ht_trace_destroy(trace);
    free(cost_ns);
    ht_schedule_destroy(s);
    ht_scenario_free(&sc);
}

#endif
