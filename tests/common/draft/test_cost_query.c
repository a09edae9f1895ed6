/* Costs that planners ask for: those of the ops of a graph, and no others; of one rank, and of the slowest. */
#include "common/base/array.h"
#include "common/draft/cost_query.h"
#include "common/draft/draft.h"
#include "common/draft/pipe.h"
#include "tests/support/scenario.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static struct ht_scenario scenario_of(const char *cluster, const char *numerics, const char *control,
                                      int64_t micro_batch)
{
    struct ht_scenario_request r = {.model = "gpt-tiny",
                                    .cluster = cluster,
                                    .batch = 8,
                                    .micro_batch = micro_batch,
                                    .numerics = numerics,
                                    .control = control};
    return scenario_from(&r);
}

/* Gradients go to the host, where units are stepped; but block 2 is stepped on the device. Block 1 is recomputed. */
static void emit(struct ht_draft *g, const void *context)
{
    (void)context;
    for (int32_t u = 0; u < g->n_units; u++) {
        bool host = u != 2;
        ht_draft_place(g, g->param[u], HT_DEVICE);
        if (host) ht_draft_place(g, g->param[u], HT_HOST);
        ht_draft_place_states(g, u, host ? HT_HOST : HT_DEVICE);
    }
    for (int32_t j = 0; j < g->n_mb; j++) {
        for (int32_t u = 0; u < g->n_units; u++) ht_draft_forward(g, u, j, u == 1 ? 0 : HT_ALL_SUB_OPS);
        for (int32_t u = g->n_units - 1; u >= 0; u--) {
            int32_t fresh = j ? g->grad_mb[ht_draft_at(g, u, j)] : g->grad[u];
            if (u == 1) ht_draft_recompute(g, u, 1, j, HT_ALL_SUB_OPS);
            ht_draft_backward(g, u, j);
            if (u != 2) ht_draft_copy(g, fresh, HT_DEVICE, HT_HOST, HT_PRODUCE, true);
            if (j) ht_draft_accumulate(g, u == 2 ? g->lanes->compute : g->lanes->host, u, j);
        }
    }
    for (int32_t u = 0; u < g->n_units; u++) {
        ht_draft_step(g, u == 2 ? g->lanes->compute : g->lanes->host, u, 1, true);
        if (u != 2) ht_draft_copy(g, g->param[u], HT_HOST, HT_DEVICE, HT_UPDATE, false);
    }
}

static struct ht_schedule *build(const struct ht_scenario *sc)
{
    struct ht_program program = {.name = "costs", .emit = emit};
    struct ht_error err = {0};
    struct ht_schedule *s = NULL;
    ck_assert_msg(ht_build_graph(sc, &program, &err, &s) == HT_OK, "%s", err.text);
    return s;
}

/* Makes a profile with a different time for each work of the graph, and nothing else. */
static struct ht_profile *price(const struct ht_schedule *s)
{
    struct ht_profile *p = ht_profile_create("by hand", "the test");
    for (int32_t w = 0; w < s->n_works; w++) {
        char key[HT_WORK_KEY_MAX];
        ht_profile_add(p, ht_work_key(&s->works[w], key, sizeof(key)), 1000 + w);
    }
    return p;
}

/* Returns the time of the first op about a unit of that kind, on that kind of lane. */
static int64_t time_of(const struct ht_schedule *s, const struct ht_profile *p, enum ht_op_kind kind,
                       enum ht_lane_kind lane, int32_t unit)
{
    struct ht_error err = {0};
    int64_t ns = 0;
    for (int32_t op = 0; op < s->n_ops; op++) {
        const struct ht_op *x = &s->ops[op];
        if (x->kind != kind || s->lanes[x->lane].kind != lane || x->label.unit != unit) continue;
        ck_assert_int_eq(ht_profile_cost(p, 0, &s->works[x->work], &err, &ns), HT_OK);
        return ns;
    }
    ck_abort_msg("no %s of unit %d", ht_op_kind_name(kind), unit);
    return 0;
}

static void check_answers(const struct ht_scenario *sc)
{
    const enum ht_lane_kind gpu = HT_LANE_COMPUTE, cpu = HT_LANE_HOST, net = HT_LANE_COLLECTIVE;
    const struct ht_numerics *n = &sc->numerics;
    struct ht_schedule *s = build(sc);
    struct ht_profile *p = price(s);
    struct ht_error err = {0};
    struct ht_cost_query q = ht_query_slowest(sc, p, &err);
    int32_t head = (int32_t)sc->model.layers + 1;
    bool checked = sc->control.mode != HT_CONTROL_NONE, sums = q.micro_batches > 1;
    for (int32_t u = 0; u <= head; u++) {
        enum ht_lane_kind where = u == 2 ? gpu : cpu;
        int64_t params = ht_equal_shard(sc, u), others = (ht_scenario_ranks(sc) - 1) * params;
        int64_t step_ns = time_of(s, p, HT_OP_OPTIMIZER_STEP, where, u);
        if (checked) step_ns += time_of(s, p, HT_OP_VALIDATE, where, u);
        ck_assert_int_eq(ht_query_pass(&q, HT_OP_FORWARD, u), time_of(s, p, HT_OP_FORWARD, gpu, u));
        ck_assert_int_eq(ht_query_pass(&q, HT_OP_BACKWARD, u), time_of(s, p, HT_OP_BACKWARD, gpu, u));
        ck_assert_int_eq(ht_query_step(&q, where, params), step_ns);
        ck_assert_int_eq(ht_query_accumulate(&q, where, params), sums ? time_of(s, p, HT_OP_ACCUMULATE, where, u) : 0);
        ck_assert_int_eq(ht_query_collective(&q, HT_OP_ALL_GATHER, n->param, others),
                         others ? time_of(s, p, HT_OP_ALL_GATHER, net, u) : 0);
        ck_assert_int_eq(ht_query_collective(&q, HT_OP_REDUCE_SCATTER, n->reduce, others),
                         others ? time_of(s, p, HT_OP_REDUCE_SCATTER, net, u) : 0);
        if (u == 2) continue;
        ck_assert_int_eq(ht_query_copy(&q, HT_LANE_H2D, params * ht_dtype_bytes(n->param)),
                         time_of(s, p, HT_OP_COPY, HT_LANE_H2D, u));
        ck_assert_int_eq(
            ht_query_copy(&q, HT_LANE_D2H, params * ht_dtype_bytes(ht_stepped_gradient(n, q.micro_batches))),
            time_of(s, p, HT_OP_COPY, HT_LANE_D2H, u));
    }
    ck_assert_int_eq(ht_query_pass(&q, HT_OP_RECOMPUTE, 1), time_of(s, p, HT_OP_RECOMPUTE, gpu, 1));
    ck_assert_msg(q.status == HT_OK, "%s", err.text);
    ht_profile_destroy(p);
    ht_schedule_destroy(s);
}

START_TEST(answers_are_those_of_the_graph)
{
    static const char *const clusters[] = {"autohete-1gpu", "autohete-4gpu"};
    static const char *const numerics[] = {"fp32", "fp16", "bf16"};
    static const char *const controls[] = {"none", "gate", "rollback"};
    for (int i = 0; i < 36; i++) {
        int64_t several = i / 18, ranks = i / 9 % 2 ? 4 : 1;
        struct ht_scenario sc =
            scenario_of(clusters[ranks > 1], numerics[i % 3], controls[i / 3 % 3], 8 / ranks / (several ? 2 : 1));
        check_answers(&sc);
        ht_scenario_free(&sc);
    }
}
END_TEST

/* Nodes of two A100 and of two V100: each rank's own costs, and of each work the larger, whichever rank that is. The
   V100 computes slower, its host has fewer cores, and its link is slower. With the links exchanged no rank is slowest
   in all. */
START_TEST(the_slowest_rank)
{
    struct ht_scenario sc = scenario_of(HT_SOURCE_DIR "/tests/data/mixed-2x2.yaml", "fp16", "none", 2);
    struct ht_profile *p = ht_profile_modelled(sc.cluster);
    struct ht_error err = {0};
    for (int exchanged = 0; exchanged < 2; exchanged++) {
        struct ht_cost_query slowest = ht_query_slowest(&sc, p, &err), ranks[2] = {slowest, slowest};
        int64_t forward[2], copy[2];
        for (int i = 0; i < 2; i++) {
            ranks[i].rank = 2 * i;
            forward[i] = ht_query_pass(&ranks[i], HT_OP_FORWARD, 1);
            copy[i] = ht_query_copy(&ranks[i], HT_LANE_H2D, 100000000);
            ck_assert_int_eq(ranks[i].status, HT_OK);
        }
        ck_assert_int_lt(forward[0], forward[1]);
        ck_assert((copy[0] < copy[1]) == !exchanged);
        ck_assert_int_eq(ht_query_pass(&slowest, HT_OP_FORWARD, 1), forward[1]);
        ck_assert_int_eq(ht_query_copy(&slowest, HT_LANE_H2D, 100000000), copy[!exchanged]);
        struct ht_link link = sc.cluster->nodes[0].pcie;
        sc.cluster->nodes[0].pcie = sc.cluster->nodes[1].pcie;
        sc.cluster->nodes[1].pcie = link;
    }
    ht_profile_destroy(p);
    ht_scenario_free(&sc);
}
END_TEST

/* Builds pipelines of these ranks, whose stages have two parts, on nodes of two A100 and of two V100, and gives the cost of
   each op. */
static struct ht_schedule *build_parts(const struct ht_scenario *sc, const struct ht_profile *p, int32_t n,
                                       const int64_t *ranks, const int64_t *l, const int64_t *place, int64_t **cost_ns)
{
    struct ht_pipe_style y = {.order = HT_PIPE_1F1B, .v = 1, .d = 1};
    struct ht_layout *layout = NULL;
    struct ht_error err = {0};
    struct ht_schedule *s = NULL;
    ck_assert_msg(!ht_layout_pipelines(sc, n, ranks, l, 2, &err, &layout), "%s", err.text);
    ck_assert_msg(!ht_layout_place(layout, sc, 4, place, &err), "%s", err.text);
    y.layout = layout;
    ck_assert_msg(!ht_pipe_build(sc, &y, "parts", &err, &s), "%s", err.text);
    *cost_ns = HT_NEW_ARRAY(int64_t, s->n_ops);
    ck_assert_msg(!ht_profile_costs(p, s, *cost_ns, &err), "%s", err.text);
    ht_layout_destroy(layout);
    return s;
}

/* A stage of two A100, then one of two V100: each pass of a part costs what the query for that GPU says. */
START_TEST(by_gpu_and_parts)
{
    struct ht_scenario sc = scenario_of(HT_SOURCE_DIR "/tests/data/mixed-2x2.yaml", "fp16", "none", 2);
    struct ht_profile *p = ht_profile_modelled(sc.cluster);
    struct ht_error err = {0};
    struct ht_cost_query gpus[2] = {ht_query_gpu(&sc, p, "a100-40gb", 2, &err),
                                    ht_query_gpu(&sc, p, "v100-32gb-pcie", 2, &err)};
    int64_t *cost_ns;
    struct ht_schedule *s = build_parts(&sc, p, 1, (int64_t[]){4}, (int64_t[]){4}, (int64_t[]){0, 1, 2, 3}, &cost_ns);
    int n = 0;
    for (int32_t op = 0; op < s->n_ops; op++) {
        const struct ht_op *x = &s->ops[op];
        if (x->kind != HT_OP_FORWARD && x->kind != HT_OP_BACKWARD) continue;
        ck_assert_int_eq(ht_query_pass(&gpus[ht_op_rank(s, op) / 2], (enum ht_op_kind)x->kind, x->label.unit),
                         cost_ns[op]);
        n++;
    }
    ck_assert_int_eq(n, 2 * 6 * 2 * 4); /* parts, units, directions, micro-batches */
    ck_assert(gpus[0].status == HT_OK && gpus[1].status == HT_OK);
    ck_assert_int_lt(ht_query_pass(&gpus[0], HT_OP_FORWARD, 1), ht_query_pass(&gpus[1], HT_OP_FORWARD, 1));
    gpus[0] = ht_query_gpu(&sc, p, "t4", 2, &err);
    ck_assert_int_eq(gpus[0].status, HT_BAD_INPUT);
    ck_assert_str_eq(err.text, "cluster 'mixed-2x2' has no 't4'; expected one of its devices");
    free(cost_ns);
    ht_schedule_destroy(s);
    ht_profile_destroy(p);
    ht_scenario_free(&sc);
}
END_TEST

/* Two pipelines of one stage, whose parts q are both on node q: their gradients are added up by two A100, or two V100. */
START_TEST(collectives_of_some_ranks)
{
    struct ht_scenario sc = scenario_of(HT_SOURCE_DIR "/tests/data/mixed-2x2.yaml", "fp16", "none", 2);
    struct ht_profile *p = ht_profile_modelled(sc.cluster);
    struct ht_error err = {0};
    int64_t *cost_ns;
    struct ht_schedule *s =
        build_parts(&sc, p, 2, (int64_t[]){2, 2}, (int64_t[]){2, 2}, (int64_t[]){0, 2, 1, 3}, &cost_ns);
    int n = 0;
    for (int32_t op = 0; op < s->n_ops; op++) {
        int32_t rank = ht_op_rank(s, op), part = rank / 2;
        if (s->ops[op].kind != HT_OP_ALL_REDUCE) continue;
        struct ht_cost_query q = ht_query_gpu(&sc, p, part ? "v100-32gb-pcie" : "a100-40gb", 2, &err);
        struct ht_model own = ht_model_part(&sc.model, part, 2);
        q.members = 2; /* each sends half of the sum twice */
        int64_t sent = 2 * ((ht_unit_params(&own, s->ops[op].label.unit) + 1) / 2);
        ck_assert_int_eq(ht_query_collective(&q, HT_OP_ALL_REDUCE, sc.numerics.accumulate, sent), cost_ns[op]);
        n++;
    }
    ck_assert_int_eq(n, 4 * 6);
    free(cost_ns);
    ht_schedule_destroy(s);
    ht_profile_destroy(p);
    ht_scenario_free(&sc);
}
END_TEST

/* The first query without an answer is the one reported; later queries cost 0. */
START_TEST(the_first_error_is_kept)
{
    struct ht_scenario sc = scenario_of("autohete-1gpu", "fp16", "none", 2);
    struct ht_profile *p = ht_profile_create("by hand", "the test");
    struct ht_error err = {0};
    struct ht_cost_query q = ht_query_slowest(&sc, p, &err);
    ht_profile_add(p, "copy where=h2d bytes=64", 5);
    ck_assert_int_eq(ht_query_copy(&q, HT_LANE_H2D, 64), 5);
    ck_assert_int_eq(ht_query_copy(&q, HT_LANE_H2D, 65), 0);
    ck_assert_int_eq(ht_query_copy(&q, HT_LANE_H2D, 64), 0);
    ck_assert_int_eq(ht_query_copy(&q, HT_LANE_H2D, 66), 0);
    ck_assert_int_eq(q.status, HT_BAD_INPUT);
    ck_assert_msg(strstr(err.text, "bytes=65'") != NULL, "%s", err.text);
    ht_profile_destroy(p);
    ht_scenario_free(&sc);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cost_query");
    TCase *t = tcase_create("cost_query");
    tcase_add_test(t, answers_are_those_of_the_graph);
    tcase_add_test(t, the_slowest_rank);
    tcase_add_test(t, by_gpu_and_parts);
    tcase_add_test(t, collectives_of_some_ranks);
    tcase_add_test(t, the_first_error_is_kept);
    suite_add_tcase(suite, t);
    SRunner *r = srunner_create(suite);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
