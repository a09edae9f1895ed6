/* A day, worked out step by step, and accounts that hold on any day. */
#include "harness/days/goodput.h"

#include "common/base/array.h"
#include "tests/support/sanitized.h"
#include "tests/support/suite.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const double ns_of_s = 1e9;

struct world {
    struct ht_options options;
    struct ht_cluster *kinds;
    struct ht_planbook *book;
    struct ht_spot_trace trace;
    struct ht_day_setting setting;
};

/* Makes a world of nodes with one GPU each, and of a trace. */
static void begin(struct world *w, const char *trace, const char *plans)
{
    struct ht_error err = {0};
    *w = (struct world){.options = ht_options_default()};
    w->options.request =
        (struct ht_scenario_request){.model = "gpt-tiny", .batch = 8, .micro_batch = 1, .numerics = "fp16"};
    w->options.sim.iterations = 3;
    w->options.sim.warmup = 1;
    ck_assert_msg(!ht_cluster_load("spot-instances", &err, &w->kinds), "%s", err.text);
    if (trace) ck_assert_msg(!ht_spot_trace_parse(trace, strlen(trace), "trace", &err, &w->trace), "%s", err.text);
    ck_assert_msg(!ht_planbook_create(&w->options, w->kinds, plans, &err, &w->book), "%s", err.text);
}

/* Completes the setting for the world's trace. */
static void set(struct world *w, struct ht_day_times times)
{
    struct ht_error err = {0};
    int32_t *kind_of = NULL;
    ck_assert_msg(!ht_day_kinds(w->kinds, &w->trace, &err, &kind_of), "%s", err.text);
    w->setting = (struct ht_day_setting){
        .book = w->book, .kinds = w->kinds, .trace = &w->trace, .kind_of = kind_of, .times = times, .batch = 8};
}

static void end(struct world *w)
{
    free((void *)(uintptr_t)w->setting.kind_of);
    ht_planbook_destroy(w->book);
    ht_spot_trace_free(&w->trace);
    ht_cluster_destroy(w->kinds);
}

static struct ht_day run(const struct world *w, const char *name)
{
    const struct ht_policy *policy;
    struct ht_error err = {0};
    struct ht_day d;
    ck_assert_msg(!ht_policy_find(name, &err, &policy), "%s", err.text);
    ck_assert_msg(!ht_day_run(&w->setting, policy, &err, &d), "%s", err.text);
    return d;
}

/* Returns the iteration time, the stall of a save and the remote store's time for it, of a system on n nodes. */
static const struct ht_planned *plan_of(const struct world *w, const char *system, int32_t n)
{
    struct ht_fleet fleet = {{n}};
    const struct ht_planned *p;
    struct ht_error err = {0};
    ck_assert_msg(!ht_planbook_get(w->book, system, &fleet, &err, &p), "%s", err.text);
    ck_assert_msg(p->fits, "%s", p->why);
    return p;
}

/*
 * Two nodes join at 0, one is lost at 1000 s, the day ends at 2000 s with a third node that comes too late. Plain restart:
 *
 *     0 .. 60       quiet: waiting                    1000 .. 1005   detection
 *     60 .. 62      planning                          1005 .. 2000   waits for a second node
 *     62 .. 92      relaunch
 *     92 .. 1000    a save, then again and again K steps and a save, until the next step would end after 1000 s
 *
 * What was done after the newest save that the remote store has is lost.
 */
START_TEST(worked_out)
{
    struct world w;
    begin(&w, "time_s,node,event\n0,a,joined\n0,b,joined\n1000,b,lost\n2000,c,joined\n", NULL);
    set(&w,
        (struct ht_day_times){
            .detect_s = 5, .plan_s = 2, .relaunch_s = 30, .quiet_s = 60, .save_every_s = 7, .remote_bytes_per_s = 1e8});
    const struct ht_planned *p = plan_of(&w, "megatron_3d", 2);
    double step = (double)p->iteration_ns / ns_of_s, stall = (double)p->stall_ns / ns_of_s;
    double upload = (double)p->state_bytes / 1e8, now = 92 + stall, stalls = stall, in_remote = 0;
    int64_t every = llround(7 / step), steps = 0, saved = 0, remote = -1;
    ck_assert_int_gt(every, 3);
    in_remote = now + upload;
    for (;;) {
        int64_t k = 0;
        for (; k < every && now + step <= 1000; k++) now += step, steps++;
        if (in_remote <= 1000) remote = saved;
        if (k < every) break;
        double save = fmax(now, in_remote) + stall; /* the save before is in the remote store first */
        if (save > 1000) break;
        stalls += save - now;
        now = save;
        saved = steps;
        in_remote = now + upload;
    }
    struct ht_day d = run(&w, "restart");
    ck_assert_int_eq(d.steps, remote < 0 ? 0 : remote);
    ck_assert_int_eq(d.lost_steps, steps - d.steps);
    ck_assert_double_eq_tol(d.phase_s[HT_DAY_WAITING], 60 + 995, 1e-6);
    ck_assert_double_eq_tol(d.phase_s[HT_DAY_DETECTION], 5, 1e-6);
    ck_assert_double_eq_tol(d.phase_s[HT_DAY_PLANNING], 2, 1e-6);
    ck_assert_double_eq_tol(d.phase_s[HT_DAY_RELAUNCH], 30, 1e-6);
    ck_assert_double_eq_tol(d.phase_s[HT_DAY_LOADING], 0, 1e-6);
    ck_assert_double_eq_tol(d.phase_s[HT_DAY_USEFUL], (double)d.steps * step, 1e-4);
    ck_assert_double_eq_tol(d.phase_s[HT_DAY_STALLS], stalls, step + stall + upload);
    ck_assert_double_eq_tol(d.gpu_hours, (2 * 1000 + 1000) / 3600.0, 1e-9);
    ck_assert_double_eq_tol(d.usd, d.gpu_hours * 1.09, 1e-9);
    ck_assert_int_eq(d.losses, 1);
    ht_day_free(&d);
    end(&w);
}
END_TEST

/* The only node is announced to be lost: Varuna saves, waits, and loses no step; the others lose some. What only the lost node had comes
   from the remote store. A node that joins later gets AutoHet's state from its peer. */
START_TEST(policies_differ)
{
    struct world w;
    begin(&w, "time_s,node,event\n0,a,joined\n500,a,notice\n615,b,joined\n620,a,lost\n1000,c,joined\n3000,b,lost\n",
          NULL);
    set(&w, (struct ht_day_times){.detect_s = 5,
                                  .plan_s = 2,
                                  .relaunch_s = 30,
                                  .quiet_s = 10,
                                  .save_every_s = 50,
                                  .remote_bytes_per_s = 1e9});
    struct ht_day varuna = run(&w, "varuna"), megatron = run(&w, "megatron"), autohet = run(&w, "autohet");
    ck_assert(varuna.recoveries[1].lost_steps == 0 && varuna.recoveries[1].time_ns == 625000000000);
    ck_assert(megatron.recoveries[1].lost_steps > 0 && megatron.recoveries[1].time_ns == 620000000000);
    ck_assert_int_gt(megatron.recoveries[1].bytes[HT_PATH_REMOTE], 0);
    ck_assert_int_gt(autohet.recoveries[1].bytes[HT_PATH_REMOTE], 0);
    ck_assert_int_eq(autohet.recoveries[1].bytes[HT_PATH_PEER], 0);
    ck_assert(autohet.recoveries[2].planned && autohet.recoveries[2].lost_steps == 0);
    ck_assert_int_eq(autohet.recoveries[2].bytes[HT_PATH_REMOTE], 0);
    ck_assert_int_gt(autohet.recoveries[2].bytes[HT_PATH_PEER], 0);
    ht_day_free(&varuna);
    ht_day_free(&megatron);
    ht_day_free(&autohet);
    end(&w);
}
END_TEST

/* On drawn days all time is booked once, money follows the nodes, and work is work. */
START_TEST(accounts_add_up)
{
    enum { DAYS = SANITIZED ? 2 : 6 };
    struct world w;
    const struct ht_policy *policy;
    begin(&w, NULL, NULL);
    for (int day = 0; day < DAYS; day++) {
        const struct ht_spot_rates rates = {"p3.2xlarge",      5,   20000,        4, 1.0 + day % 3, 900,
                                            day % 2 ? 120 : 0, 0.7, (uint64_t)day};
        double rent = 0;
        ht_spot_trace_generate(&rates, &w.trace);
        const struct ht_spot_trace *t = &w.trace;
        double last = (double)t->events[t->n_events - 1].time_ns;
        for (size_t i = 0; i < t->n_events; i++) {
            double left = (last - (double)t->events[i].time_ns) / ns_of_s;
            rent += t->events[i].kind == HT_SPOT_JOINED ? left : t->events[i].kind == HT_SPOT_LOST ? -left : 0;
        }
        set(&w, (struct ht_day_times){.detect_s = 5,
                                      .plan_s = 2,
                                      .relaunch_s = 30,
                                      .quiet_s = 60,
                                      .save_every_s = day % 2 ? 0 : 40,
                                      .remote_bytes_per_s = day % 3 ? 1e9 : 2e7});
        for (size_t k = 0; (policy = ht_policy_at(k)); k++) {
            struct ht_day d = run(&w, policy->name);
            double sum = 0;
            for (int p = 0; p < HT_N_DAY_PHASES; p++) {
                sum += d.phase_s[p];
                ck_assert_msg(d.phase_s[p] > -1e-6, "%s, day %d: %s is %g s", policy->name, day, ht_day_phase_names[p],
                              d.phase_s[p]);
            }
            ck_assert_double_eq_tol(sum, d.wall_s, 1e-5);
            ck_assert_double_eq_tol(d.gpu_hours, rent / 3600, 1e-6);
            ck_assert_double_eq_tol(d.usd, 1.09 * d.gpu_hours, 1e-6);
            ck_assert(d.busy_gpu_hours <= d.gpu_hours + 1e-9);
            ck_assert_double_eq_tol(d.samples, 8.0 * (double)d.steps, 1e-6);
            ck_assert(d.steps >= 0 && d.lost_steps >= 0);
            ck_assert(d.losses + d.changes <= (int64_t)t->n_events);
            if (policy->keeps_shape) ck_assert_int_eq(d.changes, 0);
            ht_day_free(&d);
        }
        free((void *)(uintptr_t)w.setting.kind_of);
        w.setting.kind_of = NULL;
        ht_spot_trace_free(&w.trace);
    }
    end(&w);
}
END_TEST

/* C = 2 s, M = 400 s: Young sqrt(2 2 400) = 40 s. Daly: C / 2M = 0.0025, its root 0.05: 40 (1 + 0.05 / 3 + 0.0025 / 9) - 2 = 38.677... */
START_TEST(intervals)
{
    ck_assert_double_eq_tol(ht_young_s(2, 400), 40, 1e-12);
    ck_assert_double_eq_tol(ht_daly_s(2, 400), 40 * (1 + 0.05 / 3 + 0.0025 / 9) - 2, 1e-12);
    ck_assert_double_eq_tol(ht_daly_s(900, 400), 400, 1e-12);
}
END_TEST

/* Plans of a folder are the same as those just made; a damaged file is not used. */
START_TEST(plans_are_remembered)
{
    char dir[] = "/tmp/hetbench-plans-XXXXXX", command[128];
    struct world w;
    size_t remembered;
    ck_assert_ptr_nonnull(mkdtemp(dir));
    begin(&w, NULL, dir);
    struct ht_planned made = *plan_of(&w, "megatron_3d", 2);
    struct ht_transfer_sink first = made.sinks[0];
    ck_assert_uint_eq(ht_planbook_made(w.book, &remembered), 1);
    end(&w);
    for (int damaged = 0; damaged < 2; damaged++) {
        snprintf(command, sizeof(command),
                 "for f in %s/*.bin; do printf x | dd of=$f bs=1 seek=%d conv=notrunc status=none; done", dir, 300);
        if (damaged) ck_assert_int_eq(system(command), 0);
        begin(&w, NULL, dir);
        const struct ht_planned *p = plan_of(&w, "megatron_3d", 2);
        ck_assert_uint_eq(ht_planbook_made(w.book, &remembered), (size_t)damaged);
        ck_assert_uint_eq(remembered, (size_t)!damaged);
        ck_assert_int_eq(p->iteration_ns, made.iteration_ns);
        ck_assert_int_eq(p->n_sinks, made.n_sinks);
        ck_assert(ht_extent_equal(&p->sinks[0].extent, &first.extent));
        end(&w);
    }
    snprintf(command, sizeof(command), "rm -r %s", dir);
    ck_assert_int_eq(system(command), 0);
}
END_TEST

/* Of a fleet of 5 and 4, Megatron-LM may leave up to 3 of the last kind idle, and then that kind alone. */
START_TEST(parts)
{
    const struct ht_fleet fleet = {{5, 4}}, first = {{5, 2}}, large = {{6}};
    struct ht_fleet list[HT_FLEET_PARTS];
    const struct ht_policy *megatron, *restart;
    ck_assert(!ht_policy_find("megatron", NULL, &megatron) && !ht_policy_find("restart", NULL, &restart));
    ck_assert_uint_eq(ht_policy_parts(megatron, &fleet, NULL, list), 8);
    ck_assert(list[0].count[1] == 4 && list[3].count[1] == 1 && list[4].count[1] == 0 && list[4].count[0] == 5 &&
              list[7].count[0] == 2);
    ck_assert_uint_eq(ht_policy_parts(restart, &fleet, &first, list), 1);
    ck_assert_int_eq(list[0].count[1], 2);
    ck_assert_uint_eq(ht_policy_parts(restart, &fleet, &large, list), 0);
    struct ht_error err;
    ck_assert_int_eq(ht_policy_find("varna", &err, &restart), HT_BAD_INPUT);
    ck_assert_str_eq(err.text, "unknown policy 'varna'; expected 'varuna'?");
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, worked_out);
    tcase_add_test(t, policies_differ);
    tcase_add_test(t, accounts_add_up);
    tcase_add_test(t, intervals);
    tcase_add_test(t, plans_are_remembered);
    tcase_add_test(t, parts);
}

int main(void)
{
    return run_suite("goodput", add);
}
