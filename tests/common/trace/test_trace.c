/* Traces of hand-made events: replay, memory over time, metrics and the critical path, with the arithmetic beside it.
 */
#include "common/trace/critical.h"
#include "common/trace/trace.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static struct ht_schedule *s;
static struct ht_trace *t;

static int32_t op(int32_t lane, enum ht_op_kind kind)
{
    struct ht_work w = {.kind = kind, .where = s->lanes[lane].kind, .tp = 1, .ranks = 1, .custom = "hand"};
    return ht_add_op(s, kind, lane, (struct ht_label){.unit = -1, .micro_batch = -1}, ht_add_work(s, &w));
}

static int32_t tensor(enum ht_tensor_class class, int64_t bytes)
{
    return ht_add_tensor(s,
                         (struct ht_tensor){.class = class, .label = {.unit = -1, .micro_batch = -1}, .bytes = bytes});
}

static void happened(int32_t k, int32_t id, int64_t start_ns, int64_t end_ns, int64_t grant, int64_t release)
{
    t->events[(int64_t)k * s->n_ops + id] = (struct ht_trace_event){
        .issue_ns = start_ns, .start_ns = start_ns, .end_ns = end_ns, .grant_seq = grant, .release_seq = release};
    if (end_ns > t->iteration_end_ns[k]) t->iteration_end_ns[k] = end_ns;
    if (end_ns > t->end_ns) t->end_ns = end_ns;
}

static void end(void)
{
    ht_trace_destroy(t);
    ht_schedule_destroy(s);
}

/* gpu: F (keeps a of 1000 B), B (reads and frees it, scratch of 512 B); cpu: S. F -> B -> S -> F of the next iteration.
 */
static void three_ops(int32_t iterations)
{
    s = ht_schedule_create("hand", 1, 1, NULL);
    int32_t gpu = ht_add_lane(s, "gpu", HT_LANE_COMPUTE, 0, HT_FIFO),
            cpu = ht_add_lane(s, "cpu", HT_LANE_HOST, 0, HT_FIFO);
    int32_t link = ht_add_resource(s, "dram", HT_RES_DRAM, 0, 1000000000);
    int32_t w = tensor(HT_PARAM, 2048), a = tensor(HT_ACTIVATION, 1000), x = tensor(HT_WORKSPACE, 512);
    ht_add_resident(s, w, HT_DEVICE, 0);
    op(gpu, HT_OP_FORWARD);
    ht_op_after_prev(s, 2);
    ht_op_effect(s, a, HT_DEVICE, HT_PRODUCE);
    op(gpu, HT_OP_BACKWARD);
    ht_op_after(s, 0);
    ht_op_effect(s, a, HT_DEVICE, HT_NEED | HT_RELEASE);
    ht_op_effect(s, x, HT_DEVICE, HT_PRODUCE | HT_RELEASE);
    op(cpu, HT_OP_ACCUMULATE);
    ht_op_after(s, 1);
    ht_op_use(s, link, 30);
    ht_schedule_link(s);
    t = ht_trace_create(s, HT_CLOCK_SIM, iterations);
}

START_TEST(replay_and_memory)
{
    three_ops(1);
    happened(0, 0, 0, 10, 0, 1);
    happened(0, 1, 10, 30, 2, 3);
    happened(0, 2, 35, 65, 4, 5);
    int64_t *peak = t->peak_bytes;
    struct ht_error err = {0};
    ck_assert_int_eq(ht_trace_replay(t, &err, peak), HT_OK);
    /* Parameters 2048, activation 1000 -> 1024, scratch 512: 3584 during B. Nothing on the host. */
    ck_assert_int_eq(peak[0], 3584);
    ck_assert_int_eq(peak[1], 0);
    struct ht_memory_sample *m;
    ck_assert_int_eq(ht_trace_memory(t, 0, &m), 4);
    int64_t want[4][4] = {{0, 2048, 0, 0}, {0, 2048, 1024, 0}, {10, 2048, 1024, 512}, {30, 2048, 0, 0}};
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(m[i].time_ns, want[i][0]);
        ck_assert_int_eq(m[i].by_class[HT_PARAM], want[i][1]);
        ck_assert_int_eq(m[i].by_class[HT_ACTIVATION], want[i][2]);
        ck_assert_int_eq(m[i].by_class[HT_WORKSPACE], want[i][3]);
    }
    free(m);
    int64_t who[4][HT_N_TENSOR_CLASSES];
    ht_trace_peaks(t, who);
    ck_assert_int_eq(who[0][HT_PARAM], 2048);
    ck_assert_int_eq(who[0][HT_ACTIVATION], 1024);
    ck_assert_int_eq(who[0][HT_WORKSPACE], 512);
    for (int c = 0; c < HT_N_TENSOR_CLASSES; c++) ck_assert_int_eq(who[1][c], 0);
    /* B skipped: its activation stays, its scratch never comes. */
    t->events[1].grant_seq = t->events[1].release_seq = -1;
    ck_assert_int_eq(ht_trace_replay(t, &err, peak), HT_OK);
    ck_assert_int_eq(peak[0], 3072);
    ht_trace_peaks(t, who);
    ck_assert_int_eq(who[0][HT_ACTIVATION], 1024);
    ck_assert_int_eq(who[0][HT_WORKSPACE], 0);
    /* Numbers that cannot be. */
    t->events[2].grant_seq = 0;
    ck_assert_int_eq(ht_trace_replay(t, &err, peak), HT_BAD_INPUT);
    t->events[2].grant_seq = 6;
    ck_assert_int_eq(ht_trace_replay(t, &err, peak), HT_BAD_INPUT);
    t->events[2].grant_seq = 5;
    ck_assert_int_eq(ht_trace_replay(t, &err, peak), HT_BAD_INPUT);
    end();
}
END_TEST

/* F 10, B 20, a pause of 5, S 30: an iteration takes 65 and starts where the last one ended. */
static void serial(int32_t iterations)
{
    three_ops(iterations);
    for (int32_t k = 0; k < iterations; k++) {
        int64_t at = 65 * k;
        happened(k, 0, at, at + 10, 6 * k, 6 * k + 1);
        happened(k, 1, at + 10, at + 30, 6 * k + 2, 6 * k + 3);
        happened(k, 2, at + 35, at + 65, 6 * k + 4, 6 * k + 5);
    }
}

START_TEST(causes_of_a_serial_run)
{
    serial(2);
    int64_t causes[6];
    /* S needs B, B follows F on its lane, and the next iteration's F waits for S. Nothing explains the first F. */
    int64_t want[6] = {-1, 0, 1, 2, 3, 4};
    ht_trace_causes(t, causes);
    for (int i = 0; i < 6; i++) ck_assert_int_eq(causes[i], want[i]);
    /* A skipped op neither has a cause nor is one. */
    t->events[1].grant_seq = t->events[1].release_seq = -1;
    ht_trace_causes(t, causes);
    ck_assert_int_eq(causes[1], -1);
    ck_assert_int_ne(causes[2], 1);
    end();
}
END_TEST

START_TEST(metrics_of_a_serial_run)
{
    serial(5);
    int64_t cost[] = {10, 20, 25};
    struct ht_metrics m;
    struct ht_error err = {0};
    ck_assert_int_eq(ht_metrics_compute(t, cost, 2, &err, &m), HT_OK);
    /* Window: from the end of iteration 1 (130) to the end of iteration 3 (260). */
    ck_assert_int_eq(m.iteration_ns, 65);
    ck_assert_int_eq(m.first_iteration_ns, 65);
    ck_assert_int_eq(m.lane_busy_ns[0], 30);
    ck_assert_int_eq(m.lane_busy_ns[1], 30);
    /* S of an iteration depends on nothing but B, B on F, F on the S before: 10 + 20 + 25 an iteration. */
    ck_assert_int_eq(m.lower_bound_ns, 55);
    ck_assert_str_eq(m.lower_bound_of, "dependency chain");
    ck_assert_int_eq(m.critical_ns[0], 30);
    ck_assert_int_eq(m.critical_ns[1], 30);
    ck_assert_int_eq(m.critical_wait_ns, 5);
    ck_assert_int_eq(m.passes_ns, 30); /* F 10 and B 20 at once after it, and no copy */
    ck_assert_int_eq(m.fill_ns, 0);
    ck_assert_int_eq(m.drain_ns, 0);
    /* one compute lane, busy 30 of 65 */
    ck_assert_double_eq_tol(m.bubble_ratio, 35.0 / 65, 1e-12);
    /* 30 B of an iteration at 1 B/ns */
    ck_assert_double_eq_tol(m.resource_busy[0], 30.0 / 65, 1e-12);
    ht_metrics_free(&m);
    /* Without costs the durations count: S takes 30. */
    ck_assert_int_eq(ht_metrics_compute(t, NULL, 2, &err, &m), HT_OK);
    ck_assert_int_eq(m.lower_bound_ns, 60);
    ht_metrics_free(&m);
    /* Only one iteration after the warm-up: it is the window. */
    ck_assert_int_eq(ht_metrics_compute(t, cost, 4, &err, &m), HT_OK);
    ck_assert_int_eq(m.iteration_ns, 65);
    ht_metrics_free(&m);
    ck_assert_int_eq(ht_metrics_compute(t, cost, 5, &err, &m), HT_BAD_INPUT);
    ck_assert_int_eq(ht_metrics_compute(t, cost, -1, &err, &m), HT_BAD_INPUT);
    end();
}
END_TEST

/* h2d P 5, gpu F 10 and B 20, d2h G 7, cpu S 3: what is left of the iteration is the host's. */
START_TEST(before_and_after_the_passes)
{
    s = ht_schedule_create("hand", 1, 1, NULL);
    static const enum ht_lane_kind kinds[] = {HT_LANE_H2D, HT_LANE_COMPUTE, HT_LANE_COMPUTE, HT_LANE_D2H, HT_LANE_HOST};
    static const enum ht_op_kind ops[] = {HT_OP_COPY, HT_OP_FORWARD, HT_OP_BACKWARD, HT_OP_COPY, HT_OP_ACCUMULATE};
    static const int64_t ns[] = {5, 10, 20, 7, 3};
    for (int32_t i = 0; i < 5; i++) {
        op(i == 2 ? 1 : ht_add_lane(s, "lane", kinds[i], 0, HT_FIFO), ops[i]);
        if (i) ht_op_after(s, i - 1);
        if (!i) ht_op_after_prev(s, 4);
    }
    ht_schedule_link(s);
    t = ht_trace_create(s, HT_CLOCK_SIM, 3);
    for (int32_t i = 0, at = 0; i < 15; at += (int32_t)ns[i % 5], i++)
        happened(i / 5, i % 5, at, at + ns[i % 5], 2 * i, 2 * i + 1);
    struct ht_metrics m;
    struct ht_error err = {0};
    ck_assert_int_eq(ht_metrics_compute(t, NULL, 0, &err, &m), HT_OK);
    ck_assert_int_eq(m.iteration_ns, 45);
    ck_assert_int_eq(m.fill_ns, 5);
    ck_assert_int_eq(m.passes_ns, 30);
    ck_assert_int_eq(m.drain_ns, 7);
    ht_metrics_free(&m);
    end();
}
END_TEST

START_TEST(bound_by_a_lane)
{
    /* Two independent lanes: gpu 10 + 20 back to back, cpu 25: the gpu decides. */
    s = ht_schedule_create("hand", 1, 1, NULL);
    int32_t gpu = ht_add_lane(s, "gpu", HT_LANE_COMPUTE, 0, HT_FIFO),
            cpu = ht_add_lane(s, "cpu", HT_LANE_HOST, 0, HT_FIFO);
    op(gpu, HT_OP_FORWARD);
    op(gpu, HT_OP_BACKWARD);
    op(cpu, HT_OP_ACCUMULATE);
    ht_schedule_link(s);
    t = ht_trace_create(s, HT_CLOCK_SIM, 4);
    for (int32_t k = 0; k < 4; k++) {
        happened(k, 0, 30 * k, 30 * k + 10, 6 * k, 6 * k + 2);
        happened(k, 1, 30 * k + 10, 30 * k + 30, 6 * k + 3, 6 * k + 5);
        happened(k, 2, 30 * k, 30 * k + 25, 6 * k + 1, 6 * k + 4);
    }
    struct ht_metrics m;
    struct ht_error err = {0};
    ck_assert_int_eq(ht_metrics_compute(t, (int64_t[]){10, 20, 25}, 1, &err, &m), HT_OK);
    ck_assert_int_eq(m.iteration_ns, 30);
    ck_assert_int_eq(m.lower_bound_ns, 30);
    ck_assert_str_eq(m.lower_bound_of, "lane gpu of rank 0");
    ck_assert_int_eq(m.critical_ns[0], 30);
    ck_assert_int_eq(m.critical_ns[1], 0);
    ck_assert_int_eq(m.critical_wait_ns, 0);
    ck_assert_double_eq(m.bubble_ratio, 0);
    ht_metrics_free(&m);
    end();
}
END_TEST

START_TEST(memory_that_had_to_be_freed_is_on_the_path)
{
    /* cpu frees x at 40; only then gpu, idle since 10 and waiting for nothing else, gets its memory. */
    s = ht_schedule_create("hand", 1, 1, NULL);
    int32_t gpu = ht_add_lane(s, "gpu", HT_LANE_COMPUTE, 0, HT_FIFO),
            cpu = ht_add_lane(s, "cpu", HT_LANE_HOST, 0, HT_FIFO);
    op(gpu, HT_OP_FORWARD);
    op(cpu, HT_OP_ACCUMULATE);
    op(gpu, HT_OP_FORWARD);
    ht_schedule_link(s);
    t = ht_trace_create(s, HT_CLOCK_SIM, 1);
    happened(0, 0, 0, 10, 0, 2);
    happened(0, 1, 0, 40, 1, 3);
    happened(0, 2, 40, 45, 4, 5);
    struct ht_metrics m;
    struct ht_error err = {0};
    ck_assert_int_eq(ht_metrics_compute(t, NULL, 0, &err, &m), HT_OK);
    ck_assert_int_eq(m.critical_ns[gpu], 5);
    ck_assert_int_eq(m.critical_ns[cpu], 40);
    ck_assert_int_eq(m.critical_wait_ns, 0);
    ht_metrics_free(&m);
    end();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("trace");
    TCase *tc = tcase_create("trace");
    tcase_add_test(tc, replay_and_memory);
    tcase_add_test(tc, causes_of_a_serial_run);
    tcase_add_test(tc, metrics_of_a_serial_run);
    tcase_add_test(tc, before_and_after_the_passes);
    tcase_add_test(tc, bound_by_a_lane);
    tcase_add_test(tc, memory_that_had_to_be_freed_is_on_the_path);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
