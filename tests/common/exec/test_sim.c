/* The simulator on graphs small enough to work out by hand. Times in ns; a link of 1e9 B/s moves one byte a ns. */
#include "common/base/interrupt.h"
#include "common/exec/sim.h"
#include "common/schedule/verify.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_OPS = 64 };

static struct ht_schedule *s;
static int64_t cost[MAX_OPS];
static struct ht_trace *t;

static void begin(int32_t n_ranks)
{
    s = ht_schedule_create("hand", n_ranks, 1, NULL);
}

static int32_t lane_of(const char *name, enum ht_lane_kind kind, int32_t rank, enum ht_lane_order order)
{
    return ht_add_lane(s, name, kind, rank, order);
}

static int32_t gpu(int32_t rank)
{
    return lane_of("gpu", HT_LANE_COMPUTE, rank, HT_FIFO);
}

static int32_t link_of(int64_t capacity)
{
    return ht_add_resource(s, "link", HT_RES_DRAM, 0, capacity);
}

static int32_t op(int32_t lane, enum ht_op_kind kind, int64_t cost_ns)
{
    struct ht_work w = {.kind = kind, .where = s->lanes[lane].kind, .tp = 1, .ranks = 1, .custom = "hand"};
    int32_t id = ht_add_op(s, kind, lane, (struct ht_label){.unit = -1, .micro_batch = -1}, ht_add_work(s, &w));
    ck_assert_int_lt(id, MAX_OPS);
    cost[id] = cost_ns;
    return id;
}

static int32_t forward(int32_t lane, int64_t cost_ns)
{
    return op(lane, HT_OP_FORWARD, cost_ns);
}

static int32_t tensor(int64_t bytes)
{
    return ht_add_tensor(
        s, (struct ht_tensor){.class = HT_ACTIVATION, .label = {.unit = -1, .micro_batch = -1}, .bytes = bytes});
}

static void run(struct ht_sim_options o)
{
    struct ht_error err = {0};
    ht_schedule_link(s);
    ck_assert_msg(ht_schedule_verify(s, &err, NULL) == HT_OK, "%s", err.text);
    ck_assert_msg(ht_sim_run(s, cost, &o, &err, &t) == HT_OK, "%s", err.text);
}

static enum ht_status refused(struct ht_sim_options o, const char *word)
{
    struct ht_error err = {0};
    enum ht_status status = ht_sim_run(s, cost, &o, &err, &t);
    ck_assert_ptr_null(t);
    ck_assert_msg(strstr(err.text, word), "'%s' lacks '%s'", err.text, word);
    return status;
}

static void end(void)
{
    ht_trace_destroy(t);
    ht_schedule_destroy(s);
    t = NULL;
    s = NULL;
}

static void check_times(int32_t iteration, int32_t id, int64_t start_ns, int64_t end_ns)
{
    const struct ht_trace_event *e = &t->events[(int64_t)iteration * s->n_ops + id];
    ck_assert_msg(e->start_ns == start_ns && e->end_ns == end_ns,
                  "op %d of iteration %d: %lld to %lld, expected %lld to %lld", id, iteration, (long long)e->start_ns,
                  (long long)e->end_ns, (long long)start_ns, (long long)end_ns);
}

static const struct ht_sim_options once = {.iterations = 1};

/* ---- sharing --------------------------------------------------------------------------------------------------- */

START_TEST(two_flows_share_a_link)
{
    begin(2);
    int32_t link = link_of(1000000000);
    int32_t a = forward(gpu(0), 0);
    ht_op_use(s, link, 100);
    int32_t b = forward(gpu(1), 0);
    ht_op_use(s, link, 300);
    run(once);
    /* Half of the link each: a's 100 B take 200 ns. Then b, with 300 - 100 = 200 B left, has it alone: 200 ns more. */
    check_times(0, a, 0, 200);
    check_times(0, b, 0, 400);
    end();
}
END_TEST

START_TEST(one_flow_is_limited_by_its_own_pace)
{
    begin(2);
    int32_t link = link_of(1000000000);
    int32_t a = forward(gpu(0), 400);
    ht_op_use(s, link, 100);
    int32_t b = forward(gpu(1), 300);
    ht_op_use(s, link, 300);
    run(once);
    /* a can go at 100 B / 400 ns = 0.25 B/ns at most, less than half; b gets the other 0.75: 300 / 0.75 = 400 ns. */
    check_times(0, a, 0, 400);
    check_times(0, b, 0, 400);
    end();
}
END_TEST

START_TEST(a_flow_over_two_resources)
{
    begin(2);
    int32_t port = link_of(1000000000), dram = link_of(2000000000);
    int32_t a = forward(gpu(0), 0);
    ht_op_use(s, port, 100);
    ht_op_use(s, dram, 200);
    int32_t b = forward(gpu(1), 0);
    ht_op_use(s, dram, 200);
    run(once);
    /* Alone each takes 100 ns, at 2 B/ns of DRAM. Together they get 1 B/ns each: 200 ns. The port, at half its rate,
       limits neither. */
    check_times(0, a, 0, 200);
    check_times(0, b, 0, 200);
    end();
}
END_TEST

/* One core, two lanes. A (100 ns) and B (60 ns) want it whole and take turns at half speed: B ends at 120, A, which
   has 40 left then, at 160. C wants two cores of the one there is and takes twice its 50 ns. */
START_TEST(ops_share_a_core)
{
    begin(2);
    int32_t core = ht_add_resource(s, "core", HT_RES_CORES, 0, 1000000000);
    int32_t one = gpu(0), other = gpu(1);
    int32_t a = forward(one, 100);
    ht_op_use(s, core, 1);
    int32_t b = forward(other, 60);
    ht_op_use(s, core, 1);
    int32_t c = forward(one, 50);
    ht_op_use(s, core, 2);
    run(once);
    check_times(0, b, 0, 120);
    check_times(0, a, 0, 160);
    check_times(0, c, 160, 260);
    end();
}
END_TEST

START_TEST(a_late_flow_slows_the_first)
{
    begin(2);
    int32_t link = link_of(1000000000), g1 = gpu(1);
    int32_t a = forward(gpu(0), 0);
    ht_op_use(s, link, 1000);
    forward(g1, 600);
    int32_t b = forward(g1, 0);
    ht_op_use(s, link, 100);
    run(once);
    /* a alone to 600: 400 B left. Both at half: b's 100 B to 800, a's 400 - 100 = 300 B left, alone: to 1100. */
    check_times(0, a, 0, 1100);
    check_times(0, b, 600, 800);
    end();
}
END_TEST

START_TEST(three_flows_round_up)
{
    begin(3);
    int32_t link = link_of(1000000000), id[3];
    for (int r = 0; r < 3; r++) {
        id[r] = forward(gpu(r), 0);
        ht_op_use(s, link, 100);
    }
    run(once);
    /* x = floor(1e9 / 3) = 333333333, speed = floor(2^20 x / 1e9) = 349525, and (100 << 20) / 349525 = 300.0003: 301.
     */
    for (int r = 0; r < 3; r++) check_times(0, id[r], 0, 301);
    end();
}
END_TEST

/* ---- lanes ----------------------------------------------------------------------------------------------------- */

START_TEST(pipeline_of_three_lanes)
{
    begin(1);
    int32_t in = lane_of("h2d", HT_LANE_H2D, 0, HT_FIFO), g = gpu(0), out = lane_of("d2h", HT_LANE_D2H, 0, HT_FIFO);
    int32_t host = tensor(512), copy_in[3], compute[3], copy_out[3];
    ht_add_resident(s, host, HT_HOST, 0);
    for (int i = 0; i < 3; i++) {
        int32_t x = tensor(512), y = tensor(512);
        ht_add_resident(s, x, HT_HOST, 0);
        copy_in[i] = op(in, HT_OP_COPY, 10);
        ht_op_effect(s, x, HT_HOST, HT_NEED);
        ht_op_effect(s, x, HT_DEVICE, HT_PRODUCE);
        compute[i] = forward(g, 20);
        ht_op_effect(s, x, HT_DEVICE, HT_NEED | HT_RELEASE);
        ht_op_effect(s, y, HT_DEVICE, HT_PRODUCE);
        copy_out[i] = op(out, HT_OP_COPY, 10);
        ht_op_effect(s, y, HT_DEVICE, HT_NEED | HT_RELEASE);
        ht_op_effect(s, y, HT_HOST, HT_PRODUCE | HT_RELEASE);
    }
    run(once);
    /* h2d 0-10 10-20 20-30, gpu 10-30 30-50 50-70, d2h 30-40 50-60 70-80 */
    for (int i = 0; i < 3; i++) {
        check_times(0, copy_in[i], 10 * i, 10 * i + 10);
        check_times(0, compute[i], 10 + 20 * i, 30 + 20 * i);
        check_times(0, copy_out[i], 30 + 20 * i, 40 + 20 * i);
    }
    ck_assert_int_eq(t->end_ns, 80);
    end();
}
END_TEST

START_TEST(priority_lane_takes_the_smallest_key)
{
    begin(1);
    int32_t g = gpu(0), cpu = lane_of("cpu", HT_LANE_HOST, 0, HT_PRIORITY);
    int32_t first = forward(g, 10);
    int32_t a = op(cpu, HT_OP_ACCUMULATE, 100);
    ht_op_priority(s, 5);
    int32_t b = op(cpu, HT_OP_ACCUMULATE, 100);
    ht_op_after(s, first);
    ht_op_priority(s, 3);
    int32_t c = op(cpu, HT_OP_ACCUMULATE, 100);
    ht_op_after(s, first);
    ht_op_priority(s, 1);
    run(once);
    /* At 0 only a is ready; it is not interrupted. At 100 b and c are: c has the smaller key. */
    check_times(0, a, 0, 100);
    check_times(0, c, 100, 200);
    check_times(0, b, 200, 300);
    end();
}
END_TEST

START_TEST(ops_without_cost_take_no_time)
{
    begin(1);
    int32_t g = gpu(0), cpu = lane_of("cpu", HT_LANE_HOST, 0, HT_FIFO);
    int32_t a = forward(g, 0), b = op(cpu, HT_OP_ACCUMULATE, 0);
    ht_op_after(s, a);
    int32_t c = forward(g, 7);
    ht_op_after(s, b);
    run(once);
    check_times(0, a, 0, 0);
    check_times(0, b, 0, 0);
    check_times(0, c, 0, 7);
    end();
}
END_TEST

START_TEST(two_iterations_in_flight)
{
    begin(1);
    int32_t fast = forward(gpu(0), 10), slow = op(lane_of("cpu", HT_LANE_HOST, 0, HT_FIFO), HT_OP_ACCUMULATE, 100);
    run((struct ht_sim_options){.iterations = 4});
    /* Iteration k opens when k - 2 has ended: 2 at 100, 3 at 200. */
    check_times(0, fast, 0, 10);
    check_times(1, fast, 10, 20);
    check_times(2, fast, 100, 110);
    check_times(3, fast, 200, 210);
    check_times(3, slow, 300, 400);
    ck_assert_int_eq(t->iteration_end_ns[1], 200);
    end();
}
END_TEST

/* ---- memory ---------------------------------------------------------------------------------------------------- */

/* A prefetch lane ahead of a compute lane, in 1024 B of device memory. */
static void prefetch_graph(int32_t *x, int32_t *compute)
{
    begin(1);
    ht_schedule_set_capacity(s, HT_DEVICE, 0, 1024);
    int32_t in = lane_of("h2d", HT_LANE_H2D, 0, HT_FIFO), g = gpu(0);
    for (int i = 0; i < 3; i++) {
        int32_t w = tensor(512);
        ht_add_resident(s, w, HT_HOST, 0);
        x[i] = op(in, HT_OP_COPY, 10);
        ht_op_effect(s, w, HT_HOST, HT_NEED);
        ht_op_effect(s, w, HT_DEVICE, HT_PRODUCE);
        compute[i] = forward(g, 100);
        ht_op_effect(s, w, HT_DEVICE, HT_NEED | HT_RELEASE);
    }
}

START_TEST(prefetch_waits_for_memory)
{
    int32_t x[3], c[3];
    prefetch_graph(x, c);
    run(once);
    /* Two fit. The third waits until the first is freed, at 110, and comes while the second computes. */
    check_times(0, x[1], 10, 20);
    check_times(0, c[0], 10, 110);
    check_times(0, x[2], 110, 120);
    check_times(0, c[1], 110, 210);
    check_times(0, c[2], 210, 310);
    ck_assert_int_eq(t->peak_bytes[0], 1024);
    end();
}
END_TEST

/* Running ahead stays within what the method declares, though the capacity has room, and however far ops are issued
   ahead. 512 bytes: one prefetch at a time. */
START_TEST(a_limit_holds_back_a_prefetch)
{
    for (int ahead = 0; ahead <= 2; ahead++) {
        struct ht_sim_options o = {.iterations = 1, .issue_ahead = ahead};
        int32_t x[3], c[3];
        prefetch_graph(x, c);
        ht_schedule_limit_devices(s, 0);
        ck_assert_int_eq(s->limit_bytes[0], 512);
        run(o);
        check_times(0, x[1], 110, 120);
        check_times(0, x[2], 220, 230);
        check_times(0, c[2], 230, 330);
        ck_assert_int_eq(t->peak_bytes[0], 512);
        end();
        prefetch_graph(x, c);
        ht_schedule_limit_devices(s, 512);
        run(o);
        check_times(0, x[1], 10, 20);
        ck_assert_int_eq(t->peak_bytes[0], 1024);
        end();
    }
}
END_TEST

START_TEST(a_resident_leaves_less_to_prefetch)
{
    int32_t x[3], c[3];
    prefetch_graph(x, c);
    ht_add_resident(s, tensor(512), HT_DEVICE, 0);
    run(once);
    /* One fits beside the resident: copies and computes alternate, 110 ns each. */
    check_times(0, x[1], 110, 120);
    check_times(0, x[2], 220, 230);
    check_times(0, c[2], 230, 330);
    end();
}
END_TEST

START_TEST(an_early_grant_never_takes_what_an_earlier_op_needs)
{
    begin(1);
    ht_schedule_set_capacity(s, HT_DEVICE, 0, 2048);
    int32_t in = lane_of("h2d", HT_LANE_H2D, 0, HT_FIFO), g = gpu(0), cpu = lane_of("cpu", HT_LANE_HOST, 0, HT_FIFO);
    int32_t big = tensor(1536), next = tensor(1024);
    ht_add_resident(s, next, HT_HOST, 0);
    int32_t wait = op(cpu, HT_OP_ACCUMULATE, 50);
    int32_t a = forward(g, 10);
    ht_op_after(s, wait);
    ht_op_effect(s, big, HT_DEVICE, HT_PRODUCE | HT_RELEASE);
    int32_t early = op(in, HT_OP_COPY, 10);
    ht_op_effect(s, next, HT_HOST, HT_NEED);
    ht_op_effect(s, next, HT_DEVICE, HT_PRODUCE);
    forward(g, 10);
    ht_op_effect(s, next, HT_DEVICE, HT_NEED | HT_RELEASE);
    run(once);
    /* At 0 device memory is empty, but need(a) + 1024 = 2560 > 2048: the copy waits until a has been granted (at 50)
       and its 1536 B are free again (at 60). */
    check_times(0, a, 50, 60);
    check_times(0, early, 60, 70);
    end();
}
END_TEST

/* Three passes with 512 B of scratch each, and room for all. In order they need 512 at a time: no pass is given its
   scratch before the one before it has ended, though two may be issued ahead. If a later pass needs 1024, one pass may
   have its scratch early. */
START_TEST(what_waits_takes_no_more_than_the_order_needs)
{
    for (int spare = 0; spare <= 1; spare++) {
        begin(1);
        int32_t g = gpu(0), pass[3];
        for (int i = 0; i < 3; i++) {
            pass[i] = forward(g, 100);
            ht_op_effect(s, tensor(512), HT_DEVICE, HT_PRODUCE | HT_RELEASE);
        }
        forward(g, 100);
        ht_op_effect(s, tensor(512 + 512 * spare), HT_DEVICE, HT_PRODUCE | HT_RELEASE);
        run((struct ht_sim_options){.iterations = 1, .issue_ahead = 2});
        for (int i = 0; i < 3; i++) {
            check_times(0, pass[i], 100 * i, 100 * i + 100);
            ck_assert_int_eq(t->events[pass[i]].issue_ns, i > spare ? 100 * (i - spare) : 0);
        }
        ck_assert_int_eq(t->peak_bytes[0], 512 + 512 * spare);
        end();
    }
}
END_TEST

START_TEST(issue_ahead_takes_memory_early)
{
    for (int ahead = 0; ahead <= 2; ahead += 2) {
        begin(1);
        int32_t g = gpu(0), cpu = lane_of("cpu", HT_LANE_HOST, 0, HT_FIFO);
        int32_t wait = op(cpu, HT_OP_ACCUMULATE, 50);
        int32_t x = tensor(512);
        int32_t a = forward(g, 100), b = forward(g, 10);
        ht_op_after(s, wait);
        ht_op_effect(s, x, HT_DEVICE, HT_PRODUCE | HT_RELEASE);
        run((struct ht_sim_options){.iterations = 1, .issue_ahead = ahead});
        /* b starts when a has ended in either case; its memory is taken at 100 without, at 0 with issuing ahead. */
        check_times(0, a, 0, 100);
        check_times(0, b, 100, 110);
        ck_assert_int_eq(t->events[b].issue_ns, ahead ? 0 : 100);
        end();
    }
}
END_TEST

/* ---- groups and branches --------------------------------------------------------------------------------------- */

START_TEST(group_starts_and_ends_together)
{
    begin(2);
    int32_t g0 = gpu(0), g1 = gpu(1), p0 = lane_of("p2p", HT_LANE_P2P, 0, HT_FIFO),
            p1 = lane_of("p2p", HT_LANE_P2P, 1, HT_FIFO);
    int32_t a = forward(g0, 10), b = forward(g1, 30);
    int32_t send = op(p0, HT_OP_SEND, 5);
    ht_op_match(s, 1);
    ht_op_after(s, a);
    int32_t receive = op(p1, HT_OP_RECEIVE, 8);
    ht_op_match(s, 1);
    ht_op_after(s, b);
    run(once);
    /* The receiver is ready at 30; the longer member takes 8. */
    check_times(0, send, 30, 38);
    check_times(0, receive, 30, 38);
    end();
}
END_TEST

START_TEST(group_is_one_flow)
{
    begin(3);
    int32_t link = link_of(1000000000), p[2];
    for (int r = 0; r < 2; r++) p[r] = lane_of("p2p", HT_LANE_P2P, r, HT_FIFO);
    int32_t send = op(p[0], HT_OP_SEND, 0);
    ht_op_match(s, 1);
    ht_op_use(s, link, 100);
    int32_t receive = op(p[1], HT_OP_RECEIVE, 0);
    ht_op_match(s, 1);
    ht_op_use(s, link, 100);
    int32_t other = forward(gpu(2), 0);
    ht_op_use(s, link, 200);
    run(once);
    /* 100 + 100 B of the group against 200 B: half of the link each. */
    check_times(0, send, 0, 400);
    check_times(0, receive, 0, 400);
    check_times(0, other, 0, 400);
    end();
}
END_TEST

START_TEST(branches)
{
    begin(1);
    int32_t g = gpu(0);
    forward(g, 10);
    int32_t validate = op(g, HT_OP_VALIDATE, 1);
    int32_t when_ok = forward(g, 100);
    ht_op_when(s, HT_WHEN_OK);
    ht_op_after(s, validate);
    int32_t when_bad = forward(g, 7);
    ht_op_when(s, HT_WHEN_BAD);
    ht_op_after(s, validate);
    int32_t last = forward(g, 1);
    bool bad[] = {false, true};
    run((struct ht_sim_options){.iterations = 2, .bad = bad});
    /* Iteration 0: 10 + 1 + 100 + 1 = 112. Iteration 1: 10 + 1 + 7 + 1. */
    check_times(0, when_ok, 11, 111);
    check_times(0, last, 111, 112);
    check_times(1, when_bad, 123, 130);
    check_times(1, last, 130, 131);
    ck_assert_int_eq(t->events[when_bad].grant_seq, -1);
    ck_assert_int_eq(t->events[s->n_ops + when_ok].grant_seq, -1);
    end();
}
END_TEST

/* ---- options --------------------------------------------------------------------------------------------------- */

START_TEST(jitter_is_bounded_and_repeatable)
{
    begin(1);
    int32_t g = gpu(0);
    for (int i = 0; i < 20; i++) forward(g, 1000);
    struct ht_sim_options o = {.iterations = 50, .jitter_percent = 20, .seed = 7};
    run(o);
    int64_t low = INT64_MAX, high = 0, sum = 0;
    for (int64_t i = 0; i < t->n_events; i++) {
        int64_t d = t->events[i].end_ns - t->events[i].start_ns;
        low = d < low ? d : low;
        high = d > high ? d : high;
        sum += d;
    }
    /* 1000 draws of 800 to 1200: the extremes come close, the mean is 1000 +- 115 / sqrt(1000) (one sigma: 3.7). */
    ck_assert(low >= 800 && low < 810 && high <= 1200 && high > 1190);
    ck_assert(sum / 1000 > 980 && sum / 1000 < 1020);
    struct ht_trace *again;
    struct ht_error err = {0};
    ck_assert_int_eq(ht_sim_run(s, cost, &o, &err, &again), HT_OK);
    ck_assert_mem_eq(again->events, t->events, sizeof(*t->events) * (size_t)t->n_events);
    ht_trace_destroy(again);
    o.seed = 8;
    ck_assert_int_eq(ht_sim_run(s, cost, &o, &err, &again), HT_OK);
    ck_assert_int_ne(again->end_ns, t->end_ns);
    ht_trace_destroy(again);
    end();
}
END_TEST

/* A copy of 20 ns, ahead by an iteration, feeds a forward of 30 ns: iterations end at 50, 80, 110, .. */
START_TEST(time_of_many_iterations)
{
    begin(1);
    struct ht_error err = {0};
    struct ht_sim_options o = {.iterations = 10000000};
    int64_t ns = 0;
    int32_t copy = op(lane_of("h2d", HT_LANE_H2D, 0, HT_FIFO), HT_OP_COPY, 20);
    forward(gpu(0), 30);
    ht_op_after(s, copy);
    ht_schedule_link(s);
    ck_assert_int_eq(ht_sim_time(s, cost, &o, (struct ht_sim_question){.after = 4, .last = 9999998}, &err, &ns), HT_OK);
    ck_assert_int_eq(ns, INT64_C(30) * 9999994);
    ck_assert_int_eq(ht_sim_time(s, cost, &o, (struct ht_sim_question){.after = -1, .last = 9999998}, &err, &ns),
                     HT_OK);
    ck_assert_int_eq(ns, INT64_C(30) * 9999998 + 50);
    o.iterations = 10;
    for (int every = 0; every < 2; every++) {
        o.every = every;
        ck_assert_int_eq(ht_sim_time(s, cost, &o, (struct ht_sim_question){.after = 0, .last = 8}, &err, &ns), HT_OK);
        ck_assert_int_eq(ns, 240);
    }
    ck_assert_int_eq(ht_sim_time(s, cost, &o, (struct ht_sim_question){.after = 3, .last = 3}, &err, &ns),
                     HT_BAD_INPUT);
    ck_assert_int_eq(ht_sim_time(s, cost, &o, (struct ht_sim_question){.after = 3, .last = 10}, &err, &ns),
                     HT_BAD_INPUT);
    end();
}
END_TEST

/* A forward of 20 ns feeds one of 30 ns on another rank: iterations end at 50, 80, 110, .. Only the first ones and the last are
   simulated. Iteration k opens when k - 2 has ended, at 30 k - 10. Each op is granted and finished: four numbers an iteration. */
START_TEST(trace_of_many_iterations)
{
    enum { MANY = 1000 };
    begin(2);
    int32_t first = forward(gpu(0), 20), second = forward(gpu(1), 30);
    ht_op_after(s, first);
    ht_schedule_link(s);
    run((struct ht_sim_options){.iterations = MANY});
    for (int k = 0; k < MANY; k++) {
        const struct ht_trace_event *e = &t->events[2 * k];
        ck_assert_int_eq(t->iteration_end_ns[k], 50 + 30 * k);
        ck_assert_int_eq(e[second].end_ns, 50 + 30 * k);
        if (k < 2 || k == MANY - 1) continue;
        ck_assert_int_eq(e[first].end_ns, 30 * k + 10);
        ck_assert_int_eq(e[second].grant_seq - e[second - 2].grant_seq, 4);
    }
    ck_assert_int_eq(t->end_ns, 50 + 30 * (MANY - 1));
    end();
}
END_TEST

START_TEST(input_is_refused)
{
    begin(1);
    int32_t link = link_of(1000), a = forward(gpu(0), 1);
    ht_op_use(s, link, 1);
    ht_schedule_link(s);
    ck_assert_int_eq(refused((struct ht_sim_options){0}, "iterations"), HT_BAD_INPUT);
    ck_assert_int_eq(refused((struct ht_sim_options){.iterations = 1, .jitter_percent = 100}, "jitter"), HT_BAD_INPUT);
    ck_assert_int_eq(refused((struct ht_sim_options){.iterations = 1, .issue_ahead = -1}, "issue-ahead"), HT_BAD_INPUT);
    cost[a] = -1;
    ck_assert_int_eq(refused(once, "op 0"), HT_BAD_INPUT);
    cost[a] = INT64_MAX;
    ck_assert_int_eq(refused(once, "op 0"), HT_BAD_INPUT);
    cost[a] = 1;
    s->uses[0].amount = (int64_t)1 << 47;
    ck_assert_int_eq(refused(once, "amount"), HT_BAD_INPUT);
    s->uses[0].amount = (int64_t)1 << 46; /* 2^46 B at 1000 B/s: 2230 years */
    ck_assert_int_eq(refused(once, "op 0"), HT_BAD_INPUT);
    s->uses[0].amount = 1;
    s->resources[0].capacity_per_s = (int64_t)1 << 44;
    ck_assert_int_eq(refused(once, "capacity"), HT_BAD_INPUT);
    s->resources[0].capacity_per_s = 0;
    ck_assert_int_eq(refused(once, "capacity"), HT_BAD_INPUT);
    end();
}
END_TEST

START_TEST(out_of_memory_is_an_answer)
{
    begin(1);
    ht_schedule_set_capacity(s, HT_DEVICE, 0, 511);
    forward(gpu(0), 1);
    ht_op_effect(s, tensor(1), HT_DEVICE, HT_PRODUCE | HT_RELEASE);
    ht_schedule_link(s);
    ck_assert_int_eq(refused(once, "device 0"), HT_INFEASIBLE);
    end();
}
END_TEST

START_TEST(interrupt_stops_it)
{
    begin(1);
    forward(gpu(0), 1);
    ht_schedule_link(s);
    ht_interrupt_set(true);
    ck_assert_int_eq(refused((struct ht_sim_options){.iterations = 100000, .every = true}, "interrupted"),
                     HT_INTERRUPTED);
    ht_interrupt_set(false);
    end();
}
END_TEST

START_TEST(an_empty_schedule_takes_no_time)
{
    begin(1);
    run((struct ht_sim_options){.iterations = 3});
    ck_assert_int_eq(t->end_ns, 0);
    end();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sim");
    TCase *tc = tcase_create("sim");
    tcase_add_test(tc, two_flows_share_a_link);
    tcase_add_test(tc, one_flow_is_limited_by_its_own_pace);
    tcase_add_test(tc, a_flow_over_two_resources);
    tcase_add_test(tc, ops_share_a_core);
    tcase_add_test(tc, a_late_flow_slows_the_first);
    tcase_add_test(tc, three_flows_round_up);
    tcase_add_test(tc, pipeline_of_three_lanes);
    tcase_add_test(tc, priority_lane_takes_the_smallest_key);
    tcase_add_test(tc, ops_without_cost_take_no_time);
    tcase_add_test(tc, two_iterations_in_flight);
    tcase_add_test(tc, prefetch_waits_for_memory);
    tcase_add_test(tc, a_limit_holds_back_a_prefetch);
    tcase_add_test(tc, a_resident_leaves_less_to_prefetch);
    tcase_add_test(tc, an_early_grant_never_takes_what_an_earlier_op_needs);
    tcase_add_test(tc, what_waits_takes_no_more_than_the_order_needs);
    tcase_add_test(tc, issue_ahead_takes_memory_early);
    tcase_add_test(tc, group_starts_and_ends_together);
    tcase_add_test(tc, group_is_one_flow);
    tcase_add_test(tc, branches);
    tcase_add_test(tc, jitter_is_bounded_and_repeatable);
    tcase_add_test(tc, time_of_many_iterations);
    tcase_add_test(tc, trace_of_many_iterations);
    tcase_add_test(tc, input_is_refused);
    tcase_add_test(tc, out_of_memory_is_an_answer);
    tcase_add_test(tc, interrupt_stops_it);
    tcase_add_test(tc, an_empty_schedule_takes_no_time);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
