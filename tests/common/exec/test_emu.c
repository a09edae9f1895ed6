/*
 * The emulated clock: hand-made graphs of the papers' figures, really run with every op held for its cost. Lateness
 * depends on the machine, so it is printed and not checked; being early, or out of order, or off in memory is a bug.
 */
#include "common/exec/emu.h"

#include "common/mem/arena.h"
#include "tests/common/exec/fixtures.h"

#include <stdatomic.h>
#include <time.h>

enum { ITERATIONS = 3 };

static void sleep_ns(int64_t ns)
{
    nanosleep(&(struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000}, NULL);
}

/* ---- a backend without work, or with too much of it ---- */

struct idle {
    const struct ht_schedule *s;
    int32_t slow_op; /* takes slow_ns; -1: none */
    int64_t slow_ns;
    bool fails; /* then it fails */
};

static enum ht_status idle_run_op(void *ctx, int32_t iteration, int32_t op, const struct ht_buffer *b, int32_t n,
                                  struct ht_error *err)
{
    const struct idle *w = ctx;
    (void)iteration, (void)b, (void)n;
    if (op != w->slow_op) return HT_OK;
    sleep_ns(w->slow_ns);
    return w->fails ? ht_fail(err, HT_FAILED, "as told") : HT_OK;
}

static const struct ht_backend_ops idle_backend = {.name = "idle", .run_op = idle_run_op};

/* Runs f's graph under the emulated clock; the trace is in modelled time, NULL when the run failed. */
static struct ht_trace *emulate(const struct fixture *f, struct idle *idle, double scale,
                                struct ht_emu_overruns *overruns)
{
    const struct ht_schedule *s = f->s;
    struct ht_error err = {0};
    struct ht_emu *emu;
    struct ht_emu_options o = {
        .schedule = s, .cost_ns = f->cost_ns, .scale = scale, .inner = &idle_backend, .inner_ctx = idle};
    ck_assert_msg(ht_emu_create(&o, &err, &emu) == HT_OK, "%s", err.text);
    struct ht_arena **arenas = HT_NEW_ARRAY(struct ht_arena *, ht_n_spaces(s));
    for (int32_t i = 0; i < ht_n_spaces(s); i++)
        ck_assert(ht_arena_create(1 << 24, 1 << 24, false, &err, &arenas[i]) == HT_OK);
    struct ht_run_options run = {
        .iterations = ITERATIONS, .backend = ht_emu_backend(emu), .backend_ctx = emu, .arenas = arenas};
    struct ht_trace *t;
    enum ht_status status = ht_run(s, &run, &err, &t);
    ck_assert_msg(idle->fails ? !strcmp(err.text, "as told") : status == HT_OK, "%s", err.text);
    *overruns = ht_emu_overruns(emu);
    if (t) ht_emu_rescale(emu, t);
    ht_emu_destroy(emu);
    for (int32_t i = 0; i < ht_n_spaces(s); i++) ht_arena_destroy(arenas[i]);
    free(arenas);
    return t;
}

/* In a graph of FIFO lanes that share nothing, whatever is late only makes others later: no op ends before the
   simulator's time, and the memory is the same when the order is. One nanosecond is rounding. */
static void check_figure(const char *name)
{
    struct fixture f = fixture_load(name);
    load_prices(&f, name);
    for (int32_t i = 0; i < f.s->n_lanes; i++) f.s->lanes[i].order = HT_FIFO;
    run(&f, ITERATIONS);
    struct ht_emu_overruns overruns;
    struct ht_trace *t = emulate(&f, &(struct idle){.slow_op = -1}, 1.0, &overruns);
    ck_assert_int_eq(t->clock, HT_CLOCK_EMU);
    ck_assert_int_eq(t->iterations, ITERATIONS);
    double worst = 0;
    for (int64_t i = 0; i < t->n_events; i++) {
        const struct ht_trace_event *e = &t->events[i], *sim = &f.trace->events[i];
        if (e->grant_seq < 0) continue; /* skipped */
        ck_assert_int_ge(e->end_ns - e->start_ns, f.cost_ns[ht_trace_op(t, i)] - 1);
        if (f.s->n_resources == 0) ck_assert_int_ge(e->end_ns, sim->end_ns - 1);
        double late = (double)(e->end_ns - sim->end_ns) / (double)FIXTURE_UNIT_NS;
        if (late > worst) worst = late;
    }
    int64_t *peak = HT_NEW_ARRAY(int64_t, ht_n_spaces(f.s));
    struct ht_error err = {0};
    ck_assert_msg(ht_trace_replay(t, &err, peak) == HT_OK, "%s", err.text);
    for (int32_t i = 0; i < ht_n_spaces(f.s); i++) ck_assert_int_eq(peak[i], t->peak_bytes[i]);
    printf("%-14s ends at %.2f units, simulated %.2f; latest op %.2f units late\n", name,
           (double)t->end_ns / (double)FIXTURE_UNIT_NS, (double)f.trace->end_ns / (double)FIXTURE_UNIT_NS, worst);
    free(peak);
    ht_trace_destroy(t);
    fixture_free(&f);
}

START_TEST(test_figures)
{
    check_figure("sysx_fig5");
    check_figure("sysx");
    check_figure("autohete_fifo");
    check_figure("cephalo");
}
END_TEST

/* ---- sharing, groups, overruns ---- */

/* Two ops on two lanes, on ranks 0 and 1; a unit each, and each moves `amount` over one link of a unit's capacity. */
static struct fixture pair(int64_t amount, int32_t match)
{
    struct ht_schedule *s = ht_schedule_create("pair", 2, 1, NULL);
    int32_t link = ht_add_resource(s, "link", HT_RES_NVLINK, 0, 1000000000);
    for (int32_t rank = 0; rank < 2; rank++) {
        bool group = match >= 0;
        int32_t lane = ht_add_lane(s, "lane", group ? HT_LANE_COLLECTIVE : HT_LANE_HOST, rank, HT_FIFO);
        enum ht_op_kind kind = group ? HT_OP_ALL_REDUCE : HT_OP_ACCUMULATE;
        add_op(s, kind, lane, about(-1, 0, -1), rank ? "long" : "short");
        if (amount) ht_op_use(s, link, amount);
        ht_op_match(s, match);
    }
    ht_schedule_link(s);
    struct fixture f = fixture_of(s);
    set_price(&f, "short", FIXTURE_UNIT_NS);
    set_price(&f, "long", 4 * FIXTURE_UNIT_NS);
    return f;
}

/* A link carries a unit's worth in a unit. Alone the ops take 1 and 4. Together: amount 1 each; the short one wants the
   whole link, the long one a quarter of it. Max-min: the long one gets its quarter, the short one 3/4, so that it takes
   4/3. */
START_TEST(test_sharing)
{
    enum { TRIES = 50 }; /* a busy machine may start one op long after the other */
    struct fixture f = pair(FIXTURE_UNIT_NS, -1);
    int64_t beside = 0;
    for (int i = 0; i < TRIES && beside <= FIXTURE_UNIT_NS / 2; i++) {
        struct ht_emu_overruns overruns;
        struct ht_trace *t = emulate(&f, &(struct idle){.slow_op = -1}, 20.0, &overruns);
        const struct ht_trace_event *e = &t->events[0], *other = &t->events[1];
        /* The machine decides how much of the short op ran beside the long one: at least the last iteration's share. */
        beside = e->end_ns < other->start_ns
                     ? 0
                     : e->end_ns - (e->start_ns > other->start_ns ? e->start_ns : other->start_ns);
        ck_assert_int_ge(e->end_ns - e->start_ns, FIXTURE_UNIT_NS + beside / 4 - FIXTURE_UNIT_NS / 50);
        ht_trace_destroy(t);
    }
    ck_assert_int_gt(beside, FIXTURE_UNIT_NS / 2);
    fixture_free(&f);
}
END_TEST

/* Members of a group end together, after the longest one's cost. */
START_TEST(test_group)
{
    struct fixture f = pair(0, 0);
    struct ht_emu_overruns overruns;
    struct ht_trace *t = emulate(&f, &(struct idle){.slow_op = -1}, 5.0, &overruns);
    for (int64_t i = 0; i < t->n_events; i++)
        ck_assert_int_ge(t->events[i].end_ns - t->events[i].start_ns, 4 * FIXTURE_UNIT_NS - 1);
    ht_trace_destroy(t);
    fixture_free(&f);
}
END_TEST

START_TEST(test_overrun)
{
    struct fixture f = pair(0, -1);
    struct ht_emu_overruns overruns;
    struct idle slow = {.slow_op = 0, .slow_ns = 60 * FIXTURE_UNIT_NS}; /* held for 20 */
    struct ht_trace *t = emulate(&f, &slow, 20.0, &overruns);
    ck_assert(!overruns.valid);
    ck_assert_int_eq(overruns.n_ops, 2 * ITERATIONS);
    ck_assert_int_ge(overruns.n_overran, ITERATIONS);
    ck_assert_int_eq(overruns.worst_op, 0);
    ck_assert(overruns.worst > 1.5);
    ht_trace_destroy(t);
    fixture_free(&f);
}
END_TEST

/* After a failed op no other waits for its time or its group: these ops would be held for hours. */
START_TEST(test_failure)
{
    for (int32_t match = -1; match <= 0; match++) {
        struct fixture f = pair(0, match);
        struct ht_emu_overruns overruns;
        struct idle bad = {.slow_op = 1, .slow_ns = 20000000, .fails = true};
        struct ht_trace *t = emulate(&f, &bad, 3.6e12 / (double)FIXTURE_UNIT_NS * 10, &overruns);
        ck_assert_ptr_null(t);
        fixture_free(&f);
    }
}
END_TEST

static void took(struct ht_trace *t, int32_t iteration, int32_t op, int64_t start, int64_t end)
{
    struct ht_trace_event *e = &t->events[(int64_t)iteration * t->schedule->n_ops + op];
    *e = (struct ht_trace_event){.start_ns = start * FIXTURE_UNIT_NS, .end_ns = end * FIXTURE_UNIT_NS};
}

/* Costs are 1 and 4 units; of several iterations the shortest counts, of a group the time since its last op began. */
START_TEST(test_fitting_scale)
{
    for (int32_t match = -1; match <= 0; match++) {
        struct fixture f = pair(0, match);
        struct ht_trace *t = ht_trace_create(f.s, HT_CLOCK_RUN, 2);
        took(t, 0, 0, 0, 10);
        took(t, 0, 1, 8, 12);
        took(t, 1, 0, 20, 26);
        took(t, 1, 1, 22, 42);
        ck_assert_double_eq_tol(ht_emu_fitting_scale(t, f.cost_ns), match < 0 ? 6 : 1, 1e-9);
        ht_trace_destroy(t);
        fixture_free(&f);
    }
}
END_TEST

START_TEST(test_bad_scale)
{
    struct fixture f = pair(0, -1);
    struct ht_error err = {0};
    struct ht_emu *emu;
    struct ht_emu_options o = {.schedule = f.s, .cost_ns = f.cost_ns, .scale = 0, .inner = &idle_backend};
    ck_assert_int_eq(ht_emu_create(&o, &err, &emu), HT_BAD_INPUT);
    ck_assert_str_eq(err.text, "emulation scale 0; expected more than 0");
    fixture_free(&f);
}
END_TEST

int main(void)
{
    TCase *tc = tcase_create("emu");
    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, test_figures);
    tcase_add_test(tc, test_sharing);
    tcase_add_test(tc, test_group);
    tcase_add_test(tc, test_overrun);
    tcase_add_test(tc, test_failure);
    tcase_add_test(tc, test_fitting_scale);
    tcase_add_test(tc, test_bad_scale);
    return run_suite("emu", tc);
}
