/* The planner on the paper's clusters: its three plans, what fits, and what is refused. */
#include "autohet/autohet.h"

#include "common/base/array.h"
#include "common/model/zoo.h"
#include "common/plan/candidate.h"
#include "common/schedule/fold.h"

#include "tests/support/plans.h"
#include "tests/support/scenario.h"
#include "tests/support/suite.h"

#include <math.h>
#include <stdlib.h>

static struct ht_scenario scenario(const char *model, const char *cluster, int64_t batch)
{
    return scenario_from(&(struct ht_scenario_request){
        .model = model, .cluster = cluster, .batch = batch, .micro_batch = 1, .numerics = "bf16"});
}

static void check_vector(const struct ht_plan *plan, const char *name, int32_t n, const int64_t *want)
{
    const struct ht_variable *v = ht_plan_variable(plan, name);
    ck_assert_int_eq(v->n, n);
    for (int32_t i = 0; i < n; i++)
        ck_assert_msg(v->values[i] == want[i], "%s[%d] is %ld", name, i, (long)v->values[i]);
}

/* Sec. V-A2, with D Z of eq. (3a) alone, the same K for every D and the printed powers: 4A100+2H800 {H800,H800}, {A100,A100},
   {A100,A100} at tp 2; 1A100+4H20 {H20,A100}, {H20,H20,H20}; 5A100+3H800, groups of 3 and 5. Weakest first. */
START_TEST(published_plans)
{
    static const struct {
        const char *cluster, *set;
        int64_t tp, pipelines[2], place[8];
    } rows[] = {{"autohet-4a100-2h800", "g=1,1,1,1,2,2", 2, {2, 4}, {4, 5, 0, 1, 2, 3}},
                {"autohet-1a100-4h20", "g=1,0.474,0.474,0.474,0.474", 1, {2, 3}, {1, 0, 2, 3, 4}},
                {"autohet-5a100-3h800", "g=1,1,1,1,1,2,2,2", 1, {3, 5}, {0, 5, 6, 1, 2, 3, 4, 7}}};
    for (int i = 0; i < 3; i++)
        for (int k = 16; k <= 32; k += 16) {
            struct ht_scenario sc = scenario("autohet-llama-6.7b", rows[i].cluster, 16);
            struct ht_plan plan = {0};
            struct ht_error err = {0};
            char set[128];
            snprintf(set, sizeof set, "%s rank=3 simulated=0 K=%d", rows[i].set, k);
            ck_assert_msg(!plan_with(&autohet, &sc, set, &err, &plan), "%s", err.text);
            ck_assert_int_eq(ht_plan_get(&plan, "tp"), rows[i].tp);
            check_vector(&plan, "pipelines", 2, rows[i].pipelines);
            check_vector(&plan, "place", (int32_t)ht_scenario_ranks(&sc), rows[i].place);
            ht_plan_free(&plan);
            ht_scenario_free(&sc);
        }
}
END_TEST

/* Returns the iteration's time, simulated. */
static int64_t simulated_ns(const struct ht_system *system, const struct ht_scenario *sc, const char *set)
{
    struct ht_plan plan = {0};
    struct ht_error err = {0};
    struct ht_candidate x = {0};
    int64_t ns = 0;
    struct ht_profile *costs = ht_profile_modelled(sc->cluster);
    ck_assert_msg(!plan_at(system, sc, costs, set, &err, &plan), "%s", err.text);
    ck_assert_msg(!ht_candidate_prove(system, sc, &plan, &err, &x), "%s", err.text);
    ck_assert_msg(!ht_candidate_simulate(&x, sc, costs, &err, &ns), "%s", err.text);
    if (system == &autohet) {
        ck_assert_double_eq_tol(plan.planned_s * 1e9 / (double)ns, 1, 0.1); /* eq. (1) */
        double need = (double)ht_candidate_needs(&x).peak_bytes[HT_DEVICE];
        ck_assert_double_eq_tol((double)plan.planned_bytes[HT_DEVICE] / need, 1, 0.05); /* (4c) */
    }
    ht_candidate_free(&x);
    ht_plan_free(&plan);
    ht_profile_destroy(costs);
    return ns;
}

/* Plans fit and are simulated within a tenth of eq. (1). choose=1 is never slower. The parts of the breakdown fit, too. */
START_TEST(clusters)
{
    static const char *const names[] = {"autohet-2a100-2h20", "autohet-4a100-4h800", "autohet-3a100-5h800"};
    for (int i = 0; i < 3; i++) {
        struct ht_scenario sc = scenario(i ? "autohet-llama-6.7b" : "autohet-gpt3-6.7b", names[i], 16);
        int64_t ns = simulated_ns(&autohet, &sc, "simulated=0");
        ck_assert_int_le(simulated_ns(&autohet_mapped, &sc, "choose=1 simulated=8"),
                         simulated_ns(&autohet_mapped, &sc, ""));
        ck_assert_int_lt(ns, simulated_ns(&autohet_one_pipeline, &sc, ""));
        ck_assert_int_le(ns, simulated_ns(&autohet_grouped, &sc, "simulated=0"));
        ht_scenario_free(&sc);
    }
}
END_TEST

/* BERT-Large fits every GPU. On 8 A100 and 8 H800 D = 8 pairs them at tp 1. */
START_TEST(weaker_gpus_first)
{
    struct ht_scenario sc = scenario("autohet-bert-large", "autohet-8a100-8h800", 64);
    struct ht_plan plan = {0};
    struct ht_error err = {0};
    ck_assert_msg(!plan_with(&autohet, &sc, "D=8 tp=1 simulated=0", &err, &plan), "%s", err.text);
    const struct ht_variable *place = ht_plan_variable(&plan, "place"), *blocks = ht_plan_variable(&plan, "blocks");
    for (int32_t j = 0; j < 8; j++) {
        ck_assert(place->values[2 * j] < 8 && place->values[2 * j + 1] >= 8);
        ck_assert_int_lt(blocks->values[2 * j], blocks->values[2 * j + 1]);
    }
    ht_plan_free(&plan);
    ht_scenario_free(&sc);
}
END_TEST

/* Sec. II-B. Of a LLaMA block proj (4096, 4096) and down (4096, 11008) are cut along their inputs. A part of two has
   4096 (4096 + 11008) / 2 = 30,932,992 of their elements, 123,731,968 bytes of FP32 sums. The second group, two stages of two A100,
   rearranges each of 32 blocks' on both parts, before the ring and after it: 128 times. A third of that is 41,243,989 bytes. */
START_TEST(unequal_degrees)
{
    static const struct {
        const char *set;
        int ops;
        int64_t bytes;
    } rows[] = {{"", 0, 0}, {"transposed=0,1", 128, 123731968}, {"transposed=0,3", 128, 41243989 / 4 * 4}};
    struct ht_scenario sc = scenario("autohet-llama-6.7b", "autohet-4a100-2h800", 16);
    struct ht_profile *costs = ht_profile_modelled(sc.cluster);
    int64_t ns[3];
    for (int i = 0; i < 3; i++) {
        struct ht_plan plan = {0};
        struct ht_error err = {0};
        struct ht_candidate x = {0};
        char set[128];
        int ops = 0;
        snprintf(set, sizeof set, "rank=3 K=16 g=1,1,1,1,2,2 simulated=0 %s", rows[i].set);
        ck_assert_msg(!plan_with(&autohet, &sc, set, &err, &plan), "%s", err.text);
        ck_assert_msg(!ht_candidate_prove(&autohet, &sc, &plan, &err, &x), "%s", err.text);
        ck_assert_msg(!ht_candidate_simulate(&x, &sc, costs, &err, &ns[i]), "%s", err.text);
        for (int32_t op = 0; op < x.schedule->n_ops; op++) {
            if (x.schedule->ops[op].kind != HT_OP_TRANSPOSE) continue;
            ck_assert_int_eq(x.schedule->works[x.schedule->ops[op].work].bytes, rows[i].bytes);
            ck_assert_int_lt(ht_op_rank(x.schedule, op), 4); /* the A100 are devices 0 to 3 */
            /* It is read and written at 2039 GB/s, of which 88% are reached: 0.138 ms of the whole, and the launch. */
            int64_t cost_ns;
            ck_assert(!ht_profile_cost(costs, 0, &x.schedule->works[x.schedule->ops[op].work], &err, &cost_ns));
            ck_assert_double_eq_tol(2e9 * (double)rows[i].bytes / (0.88 * 2039e9) + 3000, (double)cost_ns, 3000);
            ops++;
        }
        ck_assert_int_eq(ops * ht_copies(x.schedule), rows[i].ops); /* one part stands for both */
        ht_candidate_free(&x);
        ht_plan_free(&plan);
    }
    /* At most 16 blocks' of a stage, there and back, 4.5 ms. Less where rings still run. */
    for (int i = 1; i < 3; i++) ck_assert(ns[i] >= ns[0] && ns[i] < ns[0] + 4500000);
    ht_profile_destroy(costs);
    ht_scenario_free(&sc);
}
END_TEST

START_TEST(refused)
{
    static const struct {
        const char *set, *text;
        enum ht_status status;
    } rows[] = {
        {"pipelines=4,2", "l is not set; expected pipelines, l, blocks and place together, or none of them",
         HT_BAD_INPUT},
        {"rank=2", "rank is 2; expected 1, eq. (1), or 3, eq. (3a)", HT_BAD_INPUT},
        {"objective=3", "objective is 3; expected 1, eq. (1), or 4, eq. (4)", HT_BAD_INPUT},
        {"tp=4", "tp is 4; expected a degree that divides the devices of every node and the model", HT_INFEASIBLE},
        {"D=5",
         "no grouping of the GPUs has a group's memory and a layer for each stage in the number of groups that is "
         "forced",
         HT_INFEASIBLE},
        {"D=2 transposed=1", "transposed has 1 numbers; expected one for each of 2 groups", HT_BAD_INPUT},
    };
    struct ht_scenario sc = scenario("autohet-llama-6.7b", "autohet-4a100-2h800", 16);
    for (size_t i = 0; i < HT_COUNT(rows); i++) {
        struct ht_plan plan = {0};
        struct ht_error err = {0};
        ck_assert_int_eq(plan_with(&autohet, &sc, rows[i].set, &err, &plan), rows[i].status);
        ck_assert_str_eq(err.text, rows[i].text);
        ht_plan_free(&plan);
    }
    ht_scenario_free(&sc);
}
END_TEST

/* Returns the element of the whole block at which fc1 of a part begins: its rows are cut by outputs. */
static int64_t fc1_begin(const struct ht_model *part)
{
    struct ht_param_part parts[HT_MAX_PARAM_PARTS];
    int n = ht_unit_param_parts(part, 1, parts), i = 0;
    while (i < n && strcmp(parts[i].name, "mlp.c_fc.weight")) i++;
    ck_assert_int_lt(i, n);
    return ht_unit_part_run(part, 1, parts[i].offset).whole;
}

/* Fig. 6(b): from tp 2 to 4 new part q has rows of old part q / 2, its first or its second half; eight rows would be (0-1), (2-3)
   of part 0, (4-5), (6-7) of part 1. Fig. 6(c): to tp 1 both parts are there, one behind the other. */
START_TEST(resharding)
{
    struct ht_model m;
    ck_assert(!ht_model_load("gpt-mini", NULL, &m));
    int64_t elements = m.ffn * m.width, whole = fc1_begin(&m);
    for (int32_t q = 0; q < 4; q++) {
        struct ht_model part = ht_model_part(&m, q, 4), old = ht_model_part(&m, q / 2, 2);
        ck_assert_int_eq(fc1_begin(&part), whole + q * elements / 4);
        ck_assert_int_eq(fc1_begin(&part), fc1_begin(&old) + q % 2 * elements / 4);
        struct ht_part_run run = ht_unit_part_find(&old, 1, fc1_begin(&part));
        ck_assert(run.whole == fc1_begin(&part) && run.count >= elements / 4);
    }
}
END_TEST

/* Two nodes of A10G, two of V100 and four of T4 are of three sorts. A path between two nodes is as fast as the slowest of both slots and
   both NICs, or of the link that is said to be between them; a node's own is NVLink, its slot, or through host memory. */
START_TEST(paths)
{
    struct ht_scenario sc = scenario("gpt-mini", "cephalo-b", 64);
    struct ht_cluster *c = sc.cluster;
    struct autohet_measured m;
    struct ht_error err = {0};
    c->between = HT_NEW_ARRAY(struct ht_between, c->n_between = 1);
    c->between[0] = (struct ht_between){{c->nodes[0].group, c->nodes[2].group}, c->nodes[0].nic};
    c->between[0].link.bytes_per_s /= 10;
    struct ht_profile *costs = ht_profile_modelled(c);
    struct ht_pipe_style style = {.v = 1, .d = 1};
    ck_assert_msg(!autohet_measure(&sc, costs, NULL, 0, &style, &err, &m), "%s", err.text);
    const struct autohet_problem *p = &m.problem;
    ck_assert_int_eq(p->n_sorts, 3);
    for (int32_t a = 0; a < p->n_nodes; a++)
        for (int32_t b = 0; b < p->n_nodes; b++) {
            const struct ht_machine *x = &c->nodes[a], *y = &c->nodes[b];
            int32_t k = p->sort_of[a], l = p->sort_of[b];
            double slots = fmin(ht_link_rate(&x->pcie), ht_link_rate(&y->pcie));
            double nics = fmin(ht_link_rate(&x->nic), ht_link_rate(&y->nic));
            if (ht_cluster_between(c, a, b) >= 0) nics = ht_link_rate(&c->between[0].link);
            ck_assert(p->between[k * p->n_sorts + l].bytes_per_s == fmin(slots, nics));
            ck_assert_int_eq(k == l, x->group == y->group);
        }
    for (int32_t a = 0; a < p->n_nodes; a++) {
        const struct ht_machine *x = &c->nodes[a];
        double rate =
            ht_machine_stages(x) ? ht_machine_message_rate(x) : ht_link_rate(x->has_nvlink ? &x->nvlink : &x->pcie);
        ck_assert(p->inside[p->sort_of[a]].bytes_per_s == rate);
    }
    autohet_measured_free(&m);
    ht_profile_destroy(costs);
    ht_scenario_free(&sc);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, published_plans);
    tcase_add_test(t, clusters);
    tcase_add_test(t, weaker_gpus_first);
    tcase_add_test(t, unequal_degrees);
    tcase_add_test(t, refused);
    tcase_add_test(t, resharding);
    tcase_add_test(t, paths);
}

int main(void)
{
    return run_suite("autohet plan", add);
}
