/* Folded graphs against whole ones: every system on equal nodes, and tensor-parallel ones on any, to the nanosecond and the byte;
   what is not folded, and why; folded graphs that break a rule. */
#include "common/base/array.h"
#include "common/exec/sim.h"
#include "common/schedule/bound.h"
#include "common/schedule/fold.h"
#include "harness/run/job.h"
#include "harness/run/registry.h"
#include "harness/run/simulate.h"
#include "tests/support/sampled.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct sampling sampling;

struct scenario {
    struct ht_scenario_request request;
    const char *set[3];
};

#define ONE_EACH HT_SOURCE_DIR "/tests/data/equal-4x1.yaml"
#define SWITCHES HT_SOURCE_DIR "/tests/data/switches-2x4.yaml"

/* Equal nodes: of four GPUs each, of one; with control, with several micro-batches; pipelines whose stages are parts, on nodes of
   their own or side by side, with ZeRO and in buckets; replicas that share nodes with and without NVLink, and pipelines over the
   same nodes, of one kind or of several; switches that copies share, or that parts of a copy do. */
static const struct scenario scenarios[] = {
    {{.cluster = ONE_EACH, .model = "gpt-tiny", .batch = 32, .micro_batch = 2}, {NULL}},
    {{.cluster = "sysx-2node", .model = "llama-tiny", .blocks = 32, .batch = 32, .micro_batch = 1}, {NULL}},
    {{.cluster = "sysx-4node", .model = "llama-tiny", .blocks = 32, .batch = 64, .control = "gate"}, {NULL}},
    {{.cluster = "sysx-2node", .model = "gpt-tiny", .batch = 64, .micro_batch = 2, .control = "rollback"}, {NULL}},
    {{.cluster = "sysx-2node", .model = "gpt-tiny", .batch = 32, .micro_batch = 1}, {"pipelines=4,4", "tp=2"}},
    {{.cluster = "sysx-2node", .model = "gpt-tiny", .blocks = 8, .batch = 32, .micro_batch = 1, .control = "gate"},
     {"pipelines=2,2,2,2", "tp=2", "zero=1"}},
    {{.cluster = "sysx-4node", .model = "llama-tiny", .blocks = 8, .batch = 64, .micro_batch = 1},
     {"pipelines=8,8", "tp=4", "order=1"}},
    {{.cluster = "sysx-4node", .model = "llama-tiny", .blocks = 8, .batch = 64, .micro_batch = 1, .numerics = "fp32"},
     {"pipelines=4,4,4,4", "tp=2", "zero=2"}},
    {{.cluster = "sysx-4node", .model = "llama-tiny", .blocks = 8, .batch = 64, .micro_batch = 1},
     {"pipelines=4,4,4,4", "bucket=100000", "recompute=1"}},
    {{.cluster = "sysx-4node", .model = "llama-tiny", .blocks = 8, .batch = 64, .micro_batch = 1, .control = "gate"},
     {"pipelines=4,4,4,4", "tp=2", "slices=1"}},
    {{.cluster = "sysx-4node", .model = "llama-tiny", .blocks = 8, .batch = 64, .micro_batch = 1, .numerics = "fp16"},
     {"pipelines=4,4,4,4", "zero=1", "host=0,2,1,1"}},
    {{.cluster = "sysx-2node", .model = "gpt-tiny", .blocks = 8, .batch = 32, .micro_batch = 1},
     {"pipelines=4,4", "host=2,0,1,1", "crossing=1,5,2"}},
    {{.cluster = "autohete-4gpu", .model = "gpt-tiny", .batch = 32, .micro_batch = 1, .control = "gate"}, {NULL}},
    {{.cluster = "lohan-4x4090", .model = "gpt-tiny", .batch = 32, .micro_batch = 2}, {NULL}},
    {{.cluster = "cephalo-16v100", .model = "llama-tiny", .blocks = 16, .batch = 64, .micro_batch = 1}, {NULL}},
    {{.cluster = "dgx-a100", .model = "llama-tiny", .blocks = 8, .batch = 64, .micro_batch = 1, .control = "gate"},
     {"pipelines=4,4", "tp=2", "slices=1"}},
    {{.cluster = "cephalo-16v100", .model = "gpt-tiny", .blocks = 8, .batch = 64, .micro_batch = 1},
     {"pipelines=4,4,4,4", "order=1", "zero=1"}},
    {{.cluster = "autohet-4a100-4h800", .model = "gpt-tiny", .blocks = 8, .batch = 64, .micro_batch = 1},
     {"pipelines=2,2,2,2", "order=1"}},
    {{.cluster = "autohet-platform", .model = "gpt2-355m", .batch = 64, .micro_batch = 1},
     {"pipelines=4,4,4,4,4,4,4,4", "order=1", "recompute=1"}},
    {{.cluster = "autohet-platform", .model = "gpt-tiny", .blocks = 8, .batch = 64, .micro_batch = 1},
     {"pipelines=4,4,4,4,4,4,4,4", "order=1", "sub_ops=13,19,11,21"}},
    {{.cluster = "sysx-2node", .model = "gpt-tiny", .blocks = 8, .batch = 32, .micro_batch = 1},
     {"pipelines=2,2,2,2", "order=1"}},
    {{.cluster = SWITCHES, .model = "gpt-tiny", .batch = 32, .micro_batch = 1}, {"pipelines=2,2,2,2"}},
    {{.cluster = SWITCHES, .model = "gpt-tiny", .batch = 32, .micro_batch = 1},
     {"pipelines=2,2,2,2", "place=0,1,4,6,2,3,5,7"}}, /* one on a switch, the next on two */
    /* parts: of all shapes, of unlike pipelines, that cut rows, in slices, with ZeRO, of several replicas on a node, and of a program
       whose allocator and communicators take memory */
    {{.cluster = "autohet-platform", .model = "llama-tiny", .blocks = 8, .batch = 64, .micro_batch = 1}, {"tp=2"}},
    {{.cluster = "autohet-4a100-4h800",
      .model = "gpt-tiny",
      .blocks = 8,
      .batch = 64,
      .micro_batch = 1,
      .software = "megatron"},
     {"tp=2", "sequence=1"}},
    {{.cluster = "autohet-8a100-8h800", .model = "llama-7b", .batch = 64, .micro_batch = 1, .software = "megatron"},
     {"tp=4"}},
    {{.cluster = "dgx-a100", .model = "llama-tiny", .blocks = 8, .batch = 64, .micro_batch = 1},
     {"pipelines=2,6", "l=16,48", "tp=2"}},
    {{.cluster = "dgx-a100", .model = "llama-tiny", .blocks = 8, .batch = 64, .micro_batch = 1},
     {"pipelines=4,4", "tp=2", "zero=1"}},
    {{.cluster = "autohet-platform", .model = "llama-tiny", .blocks = 8, .batch = 64, .micro_batch = 1},
     {"pipelines=8,8,8,8", "tp=2", "slices=1"}},
    {{.cluster = "autohet-platform", .model = "gpt-tiny", .blocks = 8, .batch = 64, .micro_batch = 1},
     {"pipelines=8,8,8,8", "tp=2", "sub_ops=13,19,11,21"}},
    {{.cluster = SWITCHES, .model = "gpt-tiny", .batch = 32, .micro_batch = 1}, {"pipelines=4,4", "tp=2"}},
};

static struct ht_options options_of(const struct scenario *x)
{
    struct ht_options o = {.request = x->request,
                           .sim = {.iterations = 4, .warmup = 1, .issue_ahead = -1, .seed = 1},
                           .plan = {.folds = true}};
    for (size_t i = 0; i < HT_COUNT(x->set) && x->set[i]; i++) o.plan.set[o.plan.n_set++] = x->set[i];
    return o;
}

/* Creates a job that fits; returns false if the system does not take the scenario. */
static bool create(const struct ht_options *o, const char *system, struct ht_job *job)
{
    struct ht_error err;
    if (ht_job_create(o, system, NULL, HT_JOB_COSTS, &err, job) != HT_OK) return false;
    if (job->answer == HT_OK) return true;
    ht_job_free(job);
    return false;
}

static void compare_memory(const char *name, const struct ht_job *a, const struct ht_trace *t, const struct ht_job *b,
                           const struct ht_trace *u)
{
    for (int32_t space = 0; space < ht_n_spaces(b->schedule); space++) {
        int32_t of = ht_fold_space(a->schedule, space);
        const struct ht_footprint *x = &a->proof.spaces[of], *y = &b->proof.spaces[space];
        ck_assert_msg(t->peak_bytes[of] == u->peak_bytes[space], "%s: peak of space %d", name, space);
        ck_assert_msg(a->bound_bytes[of] == b->bound_bytes[space], "%s: bound of space %d", name, space);
        ck_assert_msg(x->peak_bytes == y->peak_bytes && x->program_bytes == y->program_bytes,
                      "%s: footprint of space %d", name, space);
    }
}

/* Compares the events of the first copy's ops, which are in the same order in both graphs: op i of a folded lane is op i of the
   lane in the whole graph, and of each of its images. */
static void compare_events(const char *name, const struct ht_trace *t, const struct ht_trace *u)
{
    const struct ht_schedule *a = t->schedule, *b = u->schedule;
    int32_t **ops = HT_NEW_ARRAY(int32_t *, a->n_lanes), *n = HT_NEW_ARRAY(int32_t, a->n_lanes);
    int32_t *at = HT_NEW_ARRAY(int32_t, b->n_lanes);
    struct ht_fold_lane *lanes = ht_fold_lanes(a);
    ck_assert_int_eq(a->n_lanes * ht_copies(a), b->n_lanes);
    ck_assert_int_eq(a->n_ops * ht_copies(a), b->n_ops);
    for (int32_t l = 0; l < a->n_lanes; l++) ops[l] = HT_NEW_ARRAY(int32_t, a->n_ops);
    for (int32_t op = 0; op < a->n_ops; op++) ops[a->ops[op].lane][n[a->ops[op].lane]++] = op;
    for (int32_t op = 0; op < b->n_ops; op++) {
        int32_t lane = b->ops[op].lane, of = ops[lanes[lane].of][at[lane]++];
        ck_assert_int_eq(b->lanes[lane].rank, lanes[lane].rank);
        for (int32_t k = 0; k < t->iterations; k++) {
            const struct ht_trace_event *e = &t->events[(int64_t)k * a->n_ops + of];
            const struct ht_trace_event *f = &u->events[(int64_t)k * b->n_ops + op];
            bool same = e->issue_ns == f->issue_ns && e->start_ns == f->start_ns && e->end_ns == f->end_ns;
            ck_assert_msg(same, "%s: iteration %d: op %d of the whole runs from %lld to %lld, its image %d to %lld",
                          name, k, op, (long long)f->start_ns, (long long)f->end_ns, of, (long long)e->end_ns);
        }
    }
    for (int32_t l = 0; l < a->n_lanes; l++) free(ops[l]);
    free(ops);
    free(n);
    free(at);
    free(lanes);
}

static void compare_metrics(const char *name, const struct ht_job *a, const struct ht_trace *t, const struct ht_job *b,
                            const struct ht_trace *u)
{
    struct ht_metrics x, y;
    struct ht_error err;
    ck_assert_int_eq(ht_metrics_compute(t, a->cost_ns, 1, &err, &x), HT_OK);
    ck_assert_int_eq(ht_metrics_compute(u, b->cost_ns, 1, &err, &y), HT_OK);
    ck_assert_msg(x.iteration_ns == y.iteration_ns, "%s: time of an iteration", name);
    ck_assert_msg(x.lower_bound_ns == y.lower_bound_ns, "%s: bound of %s %lld, not of %s %lld", name, x.lower_bound_of,
                  (long long)x.lower_bound_ns, y.lower_bound_of, (long long)y.lower_bound_ns);
    for (int32_t r = 0; r < b->schedule->n_resources; r++) {
        double folded = x.resource_busy[ht_fold_resource(a->schedule, r)], whole = y.resource_busy[r];
        ck_assert_msg(fabs(folded - whole) <= 1e-9 * whole, "%s: %s is busy for %.6f, in the whole for %.6f", name,
                      b->schedule->resources[r].name, folded, whole);
    }
    ht_metrics_free(&x);
    ht_metrics_free(&y);
}

/* Returns how many copies a system's graph stands for; 0 if the system does not take the scenario. *parts: of them. */
static int32_t compare(const char *system, const struct ht_options *o, int32_t *parts)
{
    struct ht_options every = *o;
    struct ht_job a, b;
    struct ht_trace *t, *u;
    struct ht_error err;
    every.sim.every_replica = true;
    if (!create(o, system, &a)) {
        ck_assert_msg(!create(&every, system, &b), "%s fits only as a whole", system);
        return 0;
    }
    int32_t copies = ht_copies(a.schedule);
    *parts = copies > 1 ? a.schedule->fold->parts : 1;
    if (copies == 1) ck_assert_msg(a.schedule->not_folded, "%s gives no reason", system);
    if (copies > 1) {
        ck_assert_msg(create(&every, system, &b), "%s fits only folded", system);
        ck_assert(!b.schedule->fold && !b.schedule->not_folded);
        ck_assert_msg(!ht_simulate(o, &a, &err, &t) && !ht_simulate(&every, &b, &err, &u), "%s", err.text);
        compare_memory(system, &a, t, &b, u);
        compare_events(system, t, u);
        compare_metrics(system, &a, t, &b, u);
        ht_trace_destroy(t);
        ht_trace_destroy(u);
        ht_job_free(&b);
    }
    ht_job_free(&a);
    return copies;
}

START_TEST(folded_graphs_run_as_whole_ones)
{
    const struct ht_system *system;
    int folded = 0, by_parts = 0, all = 0;
    for (size_t k = 0; k < HT_COUNT(scenarios); k++)
        for (size_t i = 0; (system = ht_system_at(i)); i++) {
            struct ht_options o = options_of(&scenarios[k]);
            if (scenarios[k].request.control && i % 2) o.sim.bad[o.sim.n_bad++] = "2";
            if (!is_sampled(&sampling, (uint64_t)all++, 3)) continue;
            int32_t parts = 1;
            folded += compare(system->name, &o, &parts) > 1;
            by_parts += parts > 1;
        }
    ck_assert_int_gt(folded, 10);
    ck_assert_int_gt(by_parts, 5);
}
END_TEST

/* A rank of the first copy is in an all-reduce of its stage, all of whose other members are images, and in one of a tied table. */
START_TEST(communicators_are_told_apart)
{
    struct scenario x = {
        {.cluster = "dgx-a100", .model = "gpt-tiny", .batch = 64, .micro_batch = 1, .software = "megatron"},
        {"pipelines=2,2,2,2"}};
    struct ht_options o = options_of(&x);
    int32_t parts;
    ck_assert_int_eq(compare("dapple", &o, &parts), 4);
}
END_TEST

static void check_reason(struct scenario x, const char *system, const char *why)
{
    struct ht_options o = options_of(&x);
    struct ht_job job;
    struct ht_error err = {0};
    ck_assert_msg(!ht_job_create(&o, system, NULL, HT_JOB_COSTS, &err, &job), "%s", err.text);
    ck_assert_msg(job.schedule, "%s: %s", system, job.reason);
    ck_assert_ptr_null(job.schedule->fold);
    ck_assert_str_eq(job.schedule->not_folded, why);
    ht_job_free(&job);
}

START_TEST(reasons_are_given)
{
    struct ht_scenario_request two = {
        .cluster = "sysx-2node", .model = "gpt-tiny", .blocks = 8, .batch = 32, .micro_batch = 1};
    struct ht_scenario_request one = {.cluster = "autohete-4gpu", .model = "gpt-tiny", .batch = 32, .micro_batch = 1};
    struct ht_scenario_request switches = {
        .cluster = SWITCHES, .model = "gpt-tiny", .blocks = 8, .batch = 32, .micro_batch = 1};
    struct ht_scenario_request mixed = {
        .cluster = HT_SOURCE_DIR "/tests/data/mixed-2x2.yaml", .model = "gpt-tiny", .batch = 32, .micro_batch = 1};
    check_reason((struct scenario){two, {"pipelines=8"}}, "dapple", "there is one replica");
    check_reason((struct scenario){switches, {"pipelines=8", "tp=2"}}, "dapple",
                 "passes take a link that parts on one node share");
    two.model = "gpt2-355m"; /* with 50,257 tokens */
    check_reason((struct scenario){two, {"pipelines=8", "tp=8"}}, "dapple", "parts of a stage are on several nodes");
    check_reason((struct scenario){two, {"pipelines=8", "tp=2"}}, "dapple",
                 "parts differ in their shares of the vocabulary, in ranks or in links");
    two.model = "gpt-tiny";
    check_reason((struct scenario){two, {"pipelines=4,4", "l=20,12"}}, "dapple", "replicas have unequal micro-batches");
    check_reason((struct scenario){one, {NULL}}, "zero_offload", "replicas on one node share its memory or disks");
    check_reason((struct scenario){two, {"pipelines=2,2,2,2", "order=1"}}, "dapple",
                 "of replicas on one node only one passes collectives to others");
    check_reason((struct scenario){mixed, {"l=8,8,8,8"}}, "ddp", "replicas are on different devices or nodes");
}
END_TEST

/* ---- graphs that break a rule ---------------------------------------------------------------------------------- */

static struct ht_schedule *folded_ddp(struct ht_job *job)
{
    struct ht_options o = options_of(&scenarios[0]);
    ck_assert(create(&o, "ddp", job));
    ck_assert_int_eq(ht_copies(job->schedule), 4);
    return job->schedule;
}

static void check_broken(struct ht_job *job, const char *text)
{
    struct ht_error err = {0};
    ck_assert_int_eq(ht_schedule_verify(job->schedule, &err, NULL), HT_FAILED);
    ck_assert_msg(strstr(err.text, text), "%s", err.text);
    ht_job_free(job);
}

START_TEST(a_gradient_of_one_replica_is_refused)
{
    struct ht_job job;
    struct ht_schedule *s = folded_ddp(&job);
    for (int32_t i = 0; i < s->n_ops; i++)
        for (int64_t e = s->effects_begin[i]; e < s->effects_begin[i + 1] && s->ops[i].kind == HT_OP_ALL_REDUCE; e++)
            s->effects[e].flags = HT_NEED; /* it reads the gradients and adds up nothing */
    check_broken(&job, "a gradient that replicas have not added up");
}
END_TEST

START_TEST(a_communicator_has_all_copies)
{
    struct ht_job job;
    struct ht_schedule *s = folded_ddp(&job);
    for (int32_t i = 0; i < s->n_works; i++)
        if (s->works[i].kind == HT_OP_ALL_REDUCE) s->works[i].ranks /= 2;
    check_broken(&job, "has a communicator of 2 ranks in a group of 4");
}
END_TEST

START_TEST(shards_are_those_of_all_copies)
{
    struct ht_job job;
    struct ht_options o = options_of(&scenarios[0]);
    ck_assert(create(&o, "fsdp", &job));
    struct ht_fold *f = job.schedule->fold;
    ck_assert(f && f->shards);
    f->shards[1].end--; /* of the first unit, on the second rank */
    check_broken(&job, "do not tile it");
}
END_TEST

/* Creates a folded pipeline, or two, of parts. */
static struct ht_schedule *folded_parts(const char *pipelines, struct ht_job *job)
{
    struct scenario x = {{.cluster = "dgx-a100", .model = "llama-tiny", .blocks = 8, .batch = 64, .micro_batch = 1},
                         {pipelines, "tp=2"}};
    struct ht_options o = options_of(&x);
    ck_assert(create(&o, "dapple", job));
    ck_assert(job->schedule->fold && job->schedule->fold->parts == 2);
    return job->schedule;
}

START_TEST(passes_are_over_the_parts_of_the_fold)
{
    struct ht_job job;
    folded_parts("pipelines=8", &job)->fold->parts = 1; /* two copies that are replicas */
    check_broken(&job, "works on one of 2 parts in a group of 1");
    folded_parts("pipelines=4,4", &job)->fold->parts = 4;
    check_broken(&job, "has a communicator of 2 ranks in a group of 1");
    struct ht_schedule *s = folded_parts("pipelines=4,4", &job);
    for (int32_t i = 0; i < s->n_ops; i++) /* parts do not add up what replicas have to */
        if (s->ops[i].kind == HT_OP_ALL_REDUCE) s->ops[i].label.unit = -1;
    check_broken(&job, "has a communicator of 2 ranks in a group of 4");
}
END_TEST

int main(void)
{
    sampling = sampling_begin();
    Suite *suite = suite_create("fold");
    TCase *c = tcase_create("fold");
    tcase_set_timeout(c, 300);
    tcase_add_test(c, folded_graphs_run_as_whole_ones);
    tcase_add_test(c, communicators_are_told_apart);
    tcase_add_test(c, reasons_are_given);
    tcase_add_test(c, a_gradient_of_one_replica_is_refused);
    tcase_add_test(c, a_communicator_has_all_copies);
    tcase_add_test(c, shards_are_those_of_all_copies);
    tcase_add_test(c, passes_are_over_the_parts_of_the_fold);
    suite_add_tcase(suite, c);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
