/* The real executor on small schedules written by hand: order, memory, hooks, branches, and every way to end early. */
#include "common/base/array.h"
#include "common/base/interrupt.h"
#include "common/exec/run.h"
#include "common/mem/arena.h"
#include "tests/support/filled.h"

#include <check.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- a backend that writes down what it is asked ---- */

struct log {
    _Atomic int n_ran, n_lanes_up, n_lanes_down;
    int ran[256]; /* iteration * 100 + op, in the order in which they began */
    void *data[256];
    int opened, closed;
    int fail_at, interrupt_at; /* n-th op, from 1; 0: never */
    bool fail_late;            /* the op that is to fail does so long after the interrupt */
    bool fail_open;
    bool bad[16]; /* outcome by iteration */
    int n_init, n_final, done[16], n_done;
    int stop_after; /* iteration_done asks to stop after so many; 0: never */
    enum ht_status stop_status;
};

static enum ht_status log_open(void *ctx, const struct ht_schedule *s, struct ht_error *err)
{
    struct log *l = ctx;
    (void)s;
    l->opened++;
    return l->fail_open ? ht_fail(err, HT_BAD_INPUT, "no such device") : HT_OK;
}

static void log_close(void *ctx)
{
    ((struct log *)ctx)->closed++;
}

static void log_lane_begin(void *ctx, int32_t lane)
{
    (void)lane;
    ((struct log *)ctx)->n_lanes_up++;
}

static void log_lane_end(void *ctx, int32_t lane)
{
    (void)lane;
    ((struct log *)ctx)->n_lanes_down++;
}

static enum ht_status log_run(void *ctx, int32_t iteration, int32_t op, const struct ht_buffer *buffers, int32_t n,
                              struct ht_error *err)
{
    struct log *l = ctx;
    int at = l->n_ran++;
    if (at < 256) {
        l->ran[at] = iteration * 100 + op;
        l->data[at] = n ? buffers[0].data : NULL;
    }
    while (at + 1 == l->fail_at && l->fail_late && !ht_interrupted()) sched_yield();
    if (at + 1 == l->fail_at && l->fail_late) usleep(20000);
    if (at + 1 == l->fail_at) return ht_fail(err, HT_FAILED, "kernel %d broke", op);
    if (at + 1 == l->interrupt_at) ht_interrupt_set(true);
    return HT_OK;
}

static bool log_control(void *ctx, int32_t iteration, int32_t op)
{
    (void)op;
    return !((struct log *)ctx)->bad[iteration];
}

static const struct ht_backend_ops log_backend = {.name = "log",
                                                  .open = log_open,
                                                  .lane_begin = log_lane_begin,
                                                  .run_op = log_run,
                                                  .control = log_control,
                                                  .lane_end = log_lane_end,
                                                  .close = log_close};

static enum ht_status hook_init(void *ctx, int32_t space, struct ht_buffer b, struct ht_error *err)
{
    struct log *l = ctx;
    ck_assert_int_eq(space, 0);
    ck_assert_ptr_nonnull(b.data);
    memset(b.data, 42, (size_t)b.bytes);
    (void)err;
    l->n_init++;
    return HT_OK;
}

static enum ht_status hook_final(void *ctx, int32_t space, struct ht_buffer b, struct ht_error *err)
{
    struct log *l = ctx;
    (void)space, (void)err;
    ck_assert_int_eq(*(unsigned char *)b.data, 42);
    l->n_final++;
    return HT_OK;
}

static enum ht_status hook_done(void *ctx, int32_t iteration, struct ht_error *err)
{
    struct log *l = ctx;
    l->done[l->n_done++] = iteration;
    if (l->n_done != l->stop_after) return HT_OK;
    return ht_fail(err, l->stop_status, "enough");
}

/* ---- schedules ---- */

static const struct ht_label nothing = {.unit = -1, .micro_batch = -1};
enum { GPU, H2D, CPU };

static struct ht_schedule *make(int64_t device_bytes)
{
    struct ht_schedule *s = ht_schedule_create("hand", 1, 1, NULL);
    ht_add_lane(s, "gpu", HT_LANE_COMPUTE, 0, HT_FIFO);
    ht_add_lane(s, "h2d", HT_LANE_H2D, 0, HT_FIFO);
    ht_add_lane(s, "cpu", HT_LANE_HOST, 0, HT_PRIORITY);
    ht_schedule_set_capacity(s, HT_DEVICE, 0, device_bytes);
    return s;
}

static int32_t op(struct ht_schedule *s, enum ht_op_kind kind, int32_t lane, int32_t after)
{
    int32_t work = ht_add_work(s, &(struct ht_work){.custom = "w"});
    int32_t id = ht_add_op(s, kind, lane, nothing, work);
    ht_op_after(s, after);
    return id;
}

static int32_t tensor(struct ht_schedule *s, int64_t bytes)
{
    return ht_add_tensor(s, (struct ht_tensor){.class = HT_ACTIVATION, .label = nothing, .bytes = bytes});
}

struct result {
    enum ht_status status;
    struct ht_error err;
    struct ht_trace *trace;
    struct ht_arena_stats device;
};

static struct result run(struct ht_schedule *s, struct log *log, int32_t iterations, int64_t slack_bytes)
{
    struct result r = {0};
    struct ht_arena *arenas[4] = {0};
    int64_t capacity = s->capacity_bytes[0] > 1 << 20 ? 1 << 20 : s->capacity_bytes[0];
    ck_assert_int_eq(ht_arena_create(capacity, slack_bytes, false, &r.err, &arenas[0]), HT_OK);
    struct ht_run_options o = {.iterations = iterations,
                               .backend = &log_backend,
                               .backend_ctx = log,
                               .arenas = arenas,
                               .hooks_ctx = log,
                               .iteration_done = hook_done};
    r.status = run_filled(s, o, hook_init, hook_final, log, &r.err, &r.trace);
    r.device = ht_arena_stats(arenas[0]);
    ck_assert_int_eq(r.device.live_bytes, 0);
    ck_assert_int_eq(log->n_lanes_up, log->n_lanes_down);
    ck_assert_int_eq(log->closed, log->opened && !log->fail_open);
    ck_assert_int_eq(r.trace != NULL, r.status == HT_OK || r.status == HT_INTERRUPTED);
    ht_arena_destroy(arenas[0]);
    ht_interrupt_set(false);
    return r;
}

/* ---- what is to happen ---- */

START_TEST(test_chain_over_lanes)
{
    struct ht_schedule *s = make(INT64_MAX);
    for (int32_t i = 0; i < 6; i++) op(s, HT_OP_COPY, i % 3, i - 1);
    op(s, HT_OP_COPY, GPU, 5);
    struct log log = {0};
    struct result r = run(s, &log, 1, 0);
    ck_assert_msg(r.status == HT_OK, "%s", r.err.text);
    for (int i = 0; i < 7; i++) ck_assert_int_eq(log.ran[i], i);
    ck_assert_int_eq(log.n_lanes_up, 3);
    ck_assert_int_eq(r.trace->iterations, 1);
    for (int i = 0; i < 7; i++) {
        const struct ht_trace_event *e = &r.trace->events[i];
        /* Nothing runs beside anything else, so grants and releases take turns: 0 1, 2 3, ... */
        ck_assert_int_eq(e->grant_seq, 2 * i);
        ck_assert_int_eq(e->release_seq, 2 * i + 1);
        ck_assert_int_le(e->issue_ns, e->start_ns);
        ck_assert_int_le(e->start_ns, e->end_ns);
        if (i) ck_assert_int_le(r.trace->events[i - 1].end_ns, e->start_ns);
    }
    ck_assert_int_eq(r.trace->end_ns, r.trace->events[6].end_ns);
    ck_assert_int_eq(r.trace->iteration_end_ns[0], r.trace->end_ns);
    ht_trace_destroy(r.trace);
    ht_schedule_destroy(s);
}
END_TEST

START_TEST(test_instances_alternate)
{
    /* A tensor that is not resident has two slots. It is freed before the next iteration's is made (one lane), so only
       its address tells nothing; the budget of one block proves that it was. The resident one stays where it is. */
    struct ht_schedule *s = make(1024);
    int32_t stays = tensor(s, 512), comes = tensor(s, 300);
    ht_add_resident(s, stays, HT_DEVICE, 0);
    op(s, HT_OP_FORWARD, GPU, -1);
    ht_op_effect(s, stays, HT_DEVICE, HT_NEED);
    ht_op_effect(s, comes, HT_DEVICE, HT_PRODUCE);
    op(s, HT_OP_BACKWARD, GPU, 0);
    ht_op_effect(s, comes, HT_DEVICE, HT_NEED | HT_RELEASE);
    ht_schedule_link(s);
    struct log log = {0};
    struct result r = run(s, &log, 4, 0);
    ck_assert_msg(r.status == HT_OK, "%s", r.err.text);
    ck_assert_int_eq(log.n_ran, 8);
    for (int i = 2; i < 8; i += 2) ck_assert_ptr_eq(log.data[i], log.data[0]);
    ck_assert_int_eq(r.device.peak_bytes, 1024);
    ck_assert_int_eq(r.trace->peak_bytes[0], 1024);
    ck_assert_int_eq(r.device.n_allocs, 1 + 4);
    ck_assert_int_eq(log.n_init, 1);
    ck_assert_int_eq(log.n_final, 1);
    ck_assert_int_eq(log.n_done, 4);
    for (int i = 0; i < 4; i++) ck_assert_int_eq(log.done[i], i);
    ht_trace_destroy(r.trace);
    ht_schedule_destroy(s);
}
END_TEST

START_TEST(test_two_iterations_at_once)
{
    /* The cpu lane lags: its op of iteration k may run beside the gpu's of k + 1, and both hold an instance. */
    struct ht_schedule *s = make(INT64_MAX);
    int32_t t = tensor(s, 512);
    op(s, HT_OP_FORWARD, GPU, -1);
    ht_op_effect(s, t, HT_DEVICE, HT_PRODUCE);
    op(s, HT_OP_ACCUMULATE, CPU, 0);
    ht_op_effect(s, t, HT_DEVICE, HT_NEED | HT_RELEASE);
    ht_schedule_link(s);
    struct log log = {0};
    struct result r = run(s, &log, 16, 0);
    ck_assert_msg(r.status == HT_OK, "%s", r.err.text);
    ck_assert_int_le(r.device.peak_bytes, 2 * 512);
    ck_assert_int_eq(r.device.peak_bytes, r.trace->peak_bytes[0]);
    for (int i = 0; i < 16; i++) ck_assert_int_eq(log.done[i], i);
    ht_trace_destroy(r.trace);
    ht_schedule_destroy(s);
}
END_TEST

START_TEST(test_branches)
{
    /* V, then "ok" and "bad" ops; iteration 1 is bad. Skipped ops leave no event. */
    struct ht_schedule *s = make(INT64_MAX);
    int32_t v = op(s, HT_OP_VALIDATE, GPU, -1), t = tensor(s, 512);
    op(s, HT_OP_OPTIMIZER_STEP, CPU, v);
    ht_op_when(s, HT_WHEN_OK);
    ht_op_effect(s, t, HT_DEVICE, HT_PRODUCE | HT_RELEASE);
    op(s, HT_OP_UNDO, CPU, v);
    ht_op_when(s, HT_WHEN_BAD);
    struct log log = {.bad = {false, true, false}};
    struct result r = run(s, &log, 3, 0);
    ck_assert_msg(r.status == HT_OK, "%s", r.err.text);
    ck_assert_int_eq(log.n_ran, 6);
    for (int k = 0; k < 3; k++) {
        ck_assert_int_eq(r.trace->events[3 * k + 1].grant_seq >= 0, k != 1);
        ck_assert_int_eq(r.trace->events[3 * k + 2].grant_seq >= 0, k == 1);
    }
    ck_assert_int_eq(r.device.n_allocs, 2);
    ht_trace_destroy(r.trace);
    ht_schedule_destroy(s);
}
END_TEST

START_TEST(test_group_members_each_run)
{
    struct ht_schedule *s = ht_schedule_create("pair", 2, 1, NULL);
    for (int32_t rank = 0; rank < 2; rank++) ht_add_lane(s, "nccl", HT_LANE_COLLECTIVE, rank, HT_FIFO);
    int32_t work = ht_add_work(s, &(struct ht_work){.custom = "w"});
    for (int round = 0; round < 3; round++)
        for (int32_t rank = 0; rank < 2; rank++) {
            ht_add_op(s, HT_OP_ALL_REDUCE, rank, nothing, work);
            ht_op_match(s, round);
        }
    struct log log = {0};
    struct ht_arena *arenas[8] = {0};
    struct ht_run_options o = {.iterations = 5, .backend = &log_backend, .backend_ctx = &log, .arenas = arenas};
    struct ht_error err = {0};
    struct ht_trace *t;
    ck_assert_msg(ht_run(s, &o, &err, &t) == HT_OK, "%s", err.text);
    ck_assert_int_eq(log.n_ran, 30);
    ht_trace_destroy(t);
    ht_schedule_destroy(s);
}
END_TEST

START_TEST(test_empty)
{
    struct ht_schedule *s = make(INT64_MAX);
    struct log log = {0};
    struct result r = run(s, &log, 3, 0);
    ck_assert_msg(r.status == HT_OK, "%s", r.err.text);
    ck_assert_int_eq(log.n_done, 3);
    ht_trace_destroy(r.trace);
    ht_schedule_destroy(s);
}
END_TEST

/* ---- early ends ---- */

/* A chain of n ops over the lanes, each with a buffer that the next one frees. */
static struct ht_schedule *make_relay(int32_t n)
{
    struct ht_schedule *s = make(INT64_MAX);
    int32_t resident = tensor(s, 100), last = -1;
    ht_add_resident(s, resident, HT_DEVICE, 0);
    for (int32_t i = 0; i < n; i++) {
        op(s, HT_OP_COPY, i % 3, i - 1);
        if (last >= 0) ht_op_effect(s, last, HT_DEVICE, HT_NEED | HT_RELEASE);
        last = i + 1 < n ? tensor(s, 1000) : -1;
        if (last >= 0) ht_op_effect(s, last, HT_DEVICE, HT_PRODUCE);
    }
    ht_schedule_link(s);
    return s;
}

START_TEST(test_op_fails)
{
    struct ht_schedule *s = make_relay(10);
    for (int at = 1; at <= 20; at++) {
        struct log log = {.fail_at = at};
        struct result r = run(s, &log, 2, 0);
        ck_assert_int_eq(r.status, HT_FAILED);
        ck_assert_msg(strncmp(r.err.text, "kernel ", 7) == 0 && strstr(r.err.text, "broke"), "%s", r.err.text);
        ck_assert_int_eq(r.err.status, HT_FAILED);
        ck_assert_int_eq(log.n_final, 0);
        ck_assert_int_le(log.n_ran, at + 2); /* at most the other lanes' ops in flight */
    }
    ht_schedule_destroy(s);
}
END_TEST

START_TEST(test_interrupted)
{
    struct ht_schedule *s = make_relay(10);
    for (int at = 1; at <= 40; at++) {
        struct log log = {.interrupt_at = at};
        struct result r = run(s, &log, 5, 0);
        ck_assert_int_eq(r.status, HT_INTERRUPTED);
        ck_assert_int_ge(r.trace->iterations, (at - 5) / 10 - 1);
        ck_assert_int_eq(r.trace->iterations, log.n_done);
        ck_assert_int_eq(r.trace->n_events, 10 * (int64_t)r.trace->iterations);
        ck_assert_msg(strstr(r.err.text, "interrupted after"), "%s", r.err.text);
        int64_t peak[4];
        ck_assert_msg(ht_trace_replay(r.trace, &r.err, peak) == HT_OK, "%s", r.err.text);
        ck_assert_int_le(peak[0], r.trace->peak_bytes[0]);
        ck_assert_int_eq(log.n_final, 0);
        ck_assert_int_le(log.n_ran, at + 2);
        ht_trace_destroy(r.trace);
    }
    /* Before it began. */
    ht_interrupt_set(true);
    struct log log = {0};
    struct result r = run(s, &log, 5, 0);
    ck_assert_int_eq(r.status, HT_INTERRUPTED);
    ck_assert_int_eq(log.n_ran, 0);
    ck_assert_int_eq(r.trace->n_events, 0);
    ht_trace_destroy(r.trace);
    ht_schedule_destroy(s);
}
END_TEST

/* Ctrl-C, and then an op that was in flight fails: the run has failed. */
START_TEST(test_fails_after_interrupt)
{
    struct ht_schedule *s = make(INT64_MAX);
    for (int32_t lane = GPU; lane <= H2D; lane++) op(s, HT_OP_COPY, lane, -1);
    for (int at = 1; at <= 2; at++) {
        struct log log = {.fail_at = at, .fail_late = true, .interrupt_at = 3 - at};
        struct result r = run(s, &log, 1, 0);
        ck_assert_int_eq(r.status, HT_FAILED);
        ck_assert_msg(strstr(r.err.text, "broke"), "%s", r.err.text);
    }
    ht_schedule_destroy(s);
}
END_TEST

START_TEST(test_hook_stops)
{
    struct ht_schedule *s = make_relay(10);
    struct log log = {.stop_after = 2, .stop_status = HT_INTERRUPTED};
    struct result r = run(s, &log, 5, 0);
    ck_assert_int_eq(r.status, HT_INTERRUPTED);
    ck_assert_str_eq(r.err.text, "enough");
    ck_assert_int_ge(r.trace->iterations, 2);
    ck_assert_int_le(r.trace->iterations, 3);
    ht_trace_destroy(r.trace);
    log = (struct log){.stop_after = 5, .stop_status = HT_BAD_INPUT}; /* in the very last one */
    r = run(s, &log, 5, 0);
    ck_assert_int_eq(r.status, HT_BAD_INPUT);
    ck_assert_int_eq(log.n_final, 0);
    ht_schedule_destroy(s);
}
END_TEST

START_TEST(test_open_fails)
{
    struct ht_schedule *s = make_relay(3);
    struct log log = {.fail_open = true};
    struct result r = run(s, &log, 1, 0);
    ck_assert_int_eq(r.status, HT_BAD_INPUT);
    ck_assert_int_eq(log.n_ran, 0);
    ck_assert_int_eq(log.n_final, 0);
    ht_schedule_destroy(s);
}
END_TEST

/* Adds one to every byte of the tensors that the op updates; an op that produces again what it frees copies it, and
   adds one. */
static enum ht_status count_up(void *ctx, int32_t iteration, int32_t op, const struct ht_buffer *b, int32_t n,
                               struct ht_error *err)
{
    (void)ctx, (void)iteration, (void)op, (void)n, (void)err;
    unsigned char *to = b[0].data;
    const unsigned char *from = b[n - 1].data;
    for (int64_t i = 0; i < b[0].bytes; i++) to[i] = (unsigned char)(from[i] + 1);
    return HT_OK;
}

static enum ht_status is_count(void *ctx, int32_t space, struct ht_buffer b, struct ht_error *err)
{
    (void)space, (void)err;
    for (int64_t i = 0; i < b.bytes; i++) ck_assert_int_eq(((unsigned char *)b.data)[i], *(int *)ctx);
    return HT_OK;
}

static enum ht_status begin_with_0(void *ctx, int32_t space, struct ht_buffer b, struct ht_error *err)
{
    (void)ctx, (void)space, (void)err;
    memset(b.data, 0, (size_t)b.bytes);
    return HT_OK;
}

/* `stays` is updated in place; `wanders` goes to the host and comes back into another buffer. Three runs of one, two
   and three iterations count to 1, 3 and 6; a run that fails leaves residents that can be destroyed. */
START_TEST(test_residents_outlive_runs)
{
    static const struct ht_backend_ops counting = {.name = "counting", .run_op = count_up};
    struct ht_schedule *s = make(INT64_MAX);
    int32_t stays = tensor(s, 700), wanders = tensor(s, 600);
    ht_add_resident(s, stays, HT_DEVICE, 0);
    ht_add_resident(s, wanders, HT_DEVICE, 0);
    op(s, HT_OP_OPTIMIZER_STEP, CPU, -1);
    ht_op_effect(s, stays, HT_DEVICE, HT_UPDATE);
    op(s, HT_OP_COPY, H2D, -1);
    ht_op_effect(s, wanders, HT_HOST, HT_PRODUCE);
    ht_op_effect(s, wanders, HT_DEVICE, HT_NEED | HT_RELEASE);
    op(s, HT_OP_COPY, GPU, 1);
    ht_op_effect(s, wanders, HT_DEVICE, HT_PRODUCE);
    ht_op_effect(s, wanders, HT_HOST, HT_NEED | HT_RELEASE);
    ht_schedule_link(s);
    struct ht_error err = {0};
    struct ht_arena *arenas[4] = {0};
    for (int i = 0; i < 2; i++) ck_assert_int_eq(ht_arena_create(1 << 16, 1 << 16, false, &err, &arenas[i]), HT_OK);
    struct ht_run_options o = {.backend = &counting, .arenas = arenas};
    struct ht_trace *t;
    ck_assert_msg(ht_residents_create(s, arenas, &err, &o.residents) == HT_OK, "%s", err.text);
    ck_assert_int_eq(ht_residents_each(o.residents, begin_with_0, NULL, &err), HT_OK);
    for (int n = 1, sum = 1; n <= 3; n++, sum += n) {
        struct ht_buffer b[2];
        int twice = 2 * sum;
        o.iterations = n;
        ck_assert_msg(ht_run(s, &o, &err, &t) == HT_OK, "%s", err.text);
        ck_assert_int_eq(t->peak_bytes[0], ht_arena_stats(arenas[0]).peak_bytes);
        for (int i = 0; i < 2; i++) ck_assert(ht_residents_get(o.residents, i, &b[i]) && b[i].tensor == i);
        is_count(&sum, 0, b[0], &err);
        is_count(&twice, 0, b[1], &err); /* each iteration counts on both ways */
        ck_assert_int_eq(ht_arena_stats(arenas[0]).live_bytes, 1024 + 1024);
        ck_assert_int_eq(ht_arena_stats(arenas[1]).live_bytes, 0);
        ht_trace_destroy(t);
    }
    struct log log = {.fail_at = 2};
    o.backend = &log_backend;
    o.backend_ctx = &log;
    ck_assert_int_eq(ht_run(s, &o, &err, &t), HT_FAILED);
    ht_residents_destroy(o.residents);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(ht_arena_stats(arenas[i]).live_bytes, 0);
        ht_arena_destroy(arenas[i]);
    }
    ht_schedule_destroy(s);
}
END_TEST

START_TEST(test_fragmentation)
{
    /* Residents a, b of 1 KiB; op 0 adds c, d: | a b c d |; op 1 frees c; op 2 takes 512 of its hole for the rest of
       the iteration; op 3 frees d; op 4 wants 1536 of the 1536 bytes left: hole 512 + 1024 if joined, so it fits; with
       the 512 in between it would not. Transients take a hole's high end: | a b . e d |, so op 4 finds 512 and 1024
       apart. */
    struct ht_schedule *s = make(4096);
    int32_t a = tensor(s, 2048), c = tensor(s, 1024), d = tensor(s, 1024), e = tensor(s, 512), f = tensor(s, 1536);
    ht_add_resident(s, a, HT_DEVICE, 0);
    op(s, HT_OP_FORWARD, GPU, -1);
    ht_op_effect(s, c, HT_DEVICE, HT_PRODUCE);
    ht_op_effect(s, d, HT_DEVICE, HT_PRODUCE);
    op(s, HT_OP_FORWARD, GPU, 0);
    ht_op_effect(s, c, HT_DEVICE, HT_RELEASE);
    op(s, HT_OP_FORWARD, GPU, 1);
    ht_op_effect(s, e, HT_DEVICE, HT_PRODUCE);
    op(s, HT_OP_FORWARD, GPU, 2);
    ht_op_effect(s, d, HT_DEVICE, HT_RELEASE);
    op(s, HT_OP_FORWARD, GPU, 3);
    ht_op_name(s, "hungry");
    ht_op_effect(s, f, HT_DEVICE, HT_PRODUCE | HT_RELEASE);
    op(s, HT_OP_FORWARD, GPU, 4);
    ht_op_effect(s, e, HT_DEVICE, HT_RELEASE);
    ht_schedule_link(s);
    struct log log = {0};
    struct result r = run(s, &log, 1, 0);
    ck_assert_int_eq(r.status, HT_FAILED);
    ck_assert_msg(strstr(r.err.text, "no room in device 0") && strstr(r.err.text, "of hungry") &&
                      strstr(r.err.text, "2.56 kB of 4.096 kB live") && strstr(r.err.text, "largest hole 1.024 kB") &&
                      strstr(r.err.text, "512 B more slack would do"),
                  "%s", r.err.text);
    ck_assert_int_eq(log.n_ran, 4);
    log = (struct log){0};
    r = run(s, &log, 1, 512);
    ck_assert_msg(r.status == HT_OK, "%s", r.err.text);
    ck_assert_int_eq(r.device.extent_bytes, 4096 + 512);
    ck_assert_int_eq(r.device.peak_bytes, 4096);
    ht_trace_destroy(r.trace);
    ht_schedule_destroy(s);
}
END_TEST

START_TEST(test_refused_before_it_begins)
{
    struct ht_schedule *s = make(512);
    op(s, HT_OP_FORWARD, GPU, -1);
    ht_op_effect(s, tensor(s, 513), HT_DEVICE, HT_PRODUCE | HT_RELEASE);
    struct log log = {0};
    struct result r = run(s, &log, 1, 0);
    ck_assert_int_eq(r.status, HT_INFEASIBLE);
    ck_assert_int_eq(log.opened, 0);
    ht_schedule_destroy(s);

    s = make(INT64_MAX);
    op(s, HT_OP_FORWARD, GPU, -1);
    ht_op_effect(s, tensor(s, 513), HT_HOST, HT_PRODUCE | HT_RELEASE);
    r = run(s, &log, 1, 0);
    ck_assert_int_eq(r.status, HT_FAILED);
    ck_assert_msg(strstr(r.err.text, "host 0, for which there is no arena"), "%s", r.err.text);
    s->tensors[0].bytes = 0; /* takes no room, so it needs no arena */
    r = run(s, &log, 1, 0);
    ck_assert_msg(r.status == HT_OK, "%s", r.err.text);
    ht_trace_destroy(r.trace);
    ht_schedule_destroy(s);
}
END_TEST

START_TEST(test_unverified_schedule_is_caught)
{
    struct ht_schedule *s = make(INT64_MAX);
    op(s, HT_OP_FORWARD, GPU, -1);
    ht_op_effect(s, tensor(s, 512), HT_DEVICE, HT_NEED);
    struct log log = {0};
    struct result r = run(s, &log, 1, 0);
    ck_assert_int_eq(r.status, HT_FAILED);
    ck_assert_msg(strstr(r.err.text, "is not live"), "%s", r.err.text);
    ck_assert_int_eq(log.n_ran, 0);
    ht_schedule_destroy(s);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("run");
    TCase *tc = tcase_create("run");
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, test_chain_over_lanes);
    tcase_add_test(tc, test_instances_alternate);
    tcase_add_test(tc, test_two_iterations_at_once);
    tcase_add_test(tc, test_branches);
    tcase_add_test(tc, test_group_members_each_run);
    tcase_add_test(tc, test_empty);
    tcase_add_test(tc, test_op_fails);
    tcase_add_test(tc, test_interrupted);
    tcase_add_test(tc, test_fails_after_interrupt);
    tcase_add_test(tc, test_hook_stops);
    tcase_add_test(tc, test_open_fails);
    tcase_add_test(tc, test_residents_outlive_runs);
    tcase_add_test(tc, test_fragmentation);
    tcase_add_test(tc, test_refused_before_it_begins);
    tcase_add_test(tc, test_unverified_schedule_is_caught);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
