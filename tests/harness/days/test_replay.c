/* Replays without processes: the local days of traces, and what incarnations' events come to, by hand. */
#include "harness/days/replay_account.h"
#include "harness/days/replay_map.h"

#include "common/base/array.h"
#include "tests/support/suite.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- mapping ---------------------------------------------------------------------------------------------------- */

enum { LOCAL = 8 };

static void map(const char *text, int32_t n_local, int64_t most_changes, struct ht_local_day *day)
{
    static struct ht_machine nodes[LOCAL];
    const struct ht_cluster cluster = {.nodes = nodes, .n_nodes = n_local};
    struct ht_spot_trace t;
    struct ht_error err = {0};
    enum ht_status status = strchr(text, '\n') ? ht_spot_trace_parse(text, strlen(text), "trace", &err, &t)
                                               : ht_spot_trace_load(text, &err, &t);
    ck_assert_msg(status == HT_OK, "%s", err.text);
    int32_t *kind_of = HT_NEW_ARRAY(int32_t, t.n_nodes);
    ck_assert_msg(ht_replay_map(&t, kind_of, &cluster, 7, most_changes, &err, day) == HT_OK, "%s", err.text);
    free(kind_of);
    ht_spot_trace_free(&t);
}

/* Checks that local nodes join only when they are not there and are lost only when they are; returns how many are there at the end. */
static int32_t play(const struct ht_local_day *d)
{
    bool there[LOCAL] = {false};
    int32_t n = 0;
    for (size_t i = 0; i < d->trace.n_events; i++) {
        const struct ht_spot_event *e = &d->trace.events[i];
        int32_t slot = d->slot[e->node];
        ck_assert(slot >= 0 && slot < d->n_local && there[slot] == (e->kind != HT_SPOT_JOINED));
        if (e->kind == HT_SPOT_NOTICE) continue;
        there[slot] = e->kind == HT_SPOT_JOINED;
        n += there[slot] ? 1 : -1;
    }
    return n;
}

/* The whole p3 trace has 32 nodes at most, 5 of 8 local ones at first, and 67 moments at which ceil(8 x live / 32) changes. */
START_TEST(test_map_p3)
{
    struct ht_local_day day;
    map("oobleck-p3", LOCAL, 0, &day);
    ck_assert_int_eq(day.at_first, 5);
    ck_assert_int_eq(day.changing, 67);
    ck_assert_int_eq(day.joins + day.losses, 70);
    ck_assert_int_eq(play(&day), day.at_first + day.joins - day.losses);
    ht_local_day_free(&day);
    map("oobleck-p3", LOCAL, 12, &day);
    ck_assert_int_eq(day.changing, 12);
    ht_local_day_free(&day);
}
END_TEST

/* Four nodes on two local ones: ceil(2 x live / 4) is 1 for 1 and 2, 2 for 3 and 4. So of four joins two change the local set; so does
   the second loss, but not the first. With two nodes announced to be lost, ceil(2 x 2 / 4) = 1 local node stays: one has notice, and it
   is that one which is lost. */
START_TEST(test_map_by_hand)
{
    struct ht_local_day d;
    map("time_s,node,event\n0,a,joined\n1,b,joined\n2,c,joined\n3,d,joined\n4,a,notice\n5,b,notice\n6,a,lost\n7,b,"
        "lost\n8,c,lost\n",
        2, 0, &d);
    static const struct {
        int64_t s;
        enum ht_spot_kind kind;
    } expected[] = {{0, HT_SPOT_JOINED}, {2, HT_SPOT_JOINED}, {5, HT_SPOT_NOTICE}, {7, HT_SPOT_LOST}};
    ck_assert_int_eq(d.trace.n_events, HT_COUNT(expected));
    for (size_t i = 0; i < HT_COUNT(expected); i++) {
        ck_assert_int_eq(d.trace.events[i].time_ns, expected[i].s * 1000000000);
        ck_assert_int_eq(d.trace.events[i].kind, expected[i].kind);
    }
    ck_assert_int_eq(d.trace.events[2].node, d.trace.events[3].node);
    ck_assert_int_eq(d.moments, 8);
    ck_assert_int_eq(d.changing, 2);
    ht_local_day_free(&d);
}
END_TEST

START_TEST(test_draw)
{
    static struct ht_machine nodes[LOCAL];
    const struct ht_cluster cluster = {.nodes = nodes, .n_nodes = LOCAL};
    struct ht_local_day a, b;
    ht_replay_draw(&cluster, 20, 1000, 3, &a);
    ht_replay_draw(&cluster, 20, 1000, 3, &b);
    ck_assert_int_eq(a.trace.n_events, LOCAL + 20);
    ck_assert_int_eq(a.joins + a.losses, 20);
    ck_assert_int_ge(play(&a), LOCAL / 2);
    ck_assert(!memcmp(a.trace.events, b.trace.events, sizeof(*a.trace.events) * a.trace.n_events));
    ht_local_day_free(&a);
    ht_local_day_free(&b);
}
END_TEST

/* ---- accounts --------------------------------------------------------------------------------------------------- */

static void take(struct ht_replay_account *a, const char *events)
{
    char path[] = "/tmp/ht-replay-XXXXXX";
    struct ht_error err = {0};
    int fd = mkstemp(path);
    ck_assert(fd >= 0 && write(fd, events, strlen(events)) == (ssize_t)strlen(events));
    close(fd);
    ck_assert_msg(ht_replay_account_take(a, path, &err) == HT_OK, "%s", err.text);
    unlink(path);
}

#define EVENT(ns, name)       "{\"at_ns\": " #ns ", \"event\": \"" name "\"}\n"
#define STEP(ns, name, count) "{\"at_ns\": " #ns ", \"event\": \"" name "\", \"step\": " #count "}\n"

/* Steps 1 to 4 take 30, 10, 10 and (behind a save from 160 to 165, 15 after step 3) 15 ns; then step 2 is loaded again: 3 and 4, 25 ns, are lost.
   The second incarnation's steps 3 and 4 take 40 and 20; step 5 ends after the day's end. */
START_TEST(test_account)
{
    struct ht_replay_account a = {.end_ns = 1000};
    take(&a, STEP(100, "loaded", 0) STEP(130, "step", 1) STEP(140, "step", 2) STEP(150, "step", 3)
                 STEP(160, "saving", 3) STEP(165, "saved", 3) STEP(180, "step", 4) EVENT(185, "fault") "rubbish\n");
    take(&a, STEP(900, "loaded", 2) STEP(940, "step", 3) STEP(960, "step", 4) STEP(1001, "step", 5));
    ck_assert_int_eq(a.n_useful, 4);
    ck_assert_int_eq(a.useful_ns, 30 - 19 + 10 + 40 + 20);
    ck_assert_int_eq(a.lost_steps, 2);
    ck_assert_int_eq(a.lost_ns, 10 + 15);
    ck_assert_int_eq(a.saves, 1);
    ck_assert_int_eq(a.stall_ns, 15);
    ck_assert_int_eq(a.last_step, 5);
    /* One incarnation has three steps or more: its first took 30, the others 35 / 3 = 11 in whole ns, so 19 of the first are the start's. */
    ck_assert_int_eq(a.starts, 1);
    ck_assert_int_eq(a.first_excess_ns, 19);
    ht_replay_account_free(&a);
}
END_TEST

/* A loss, noticed in 0.2 s, planned in 0.1, relaunched in 1 and loaded in 0.5 s; one that was met by another before it had loaded,
   noticed in 0.4 s; a change, asked for at 2 s, saved at 2.5 s, 2.5 s after the loading, ended at 2.75 s. Times ten. */
START_TEST(test_parts)
{
    struct ht_replay_account a = {.end_ns = INT64_MAX};
    json_error_t why;
    take(&a, STEP(1, "loaded", 0) STEP(2400000000, "saving", 1) STEP(2500000000, "saved", 1));
    json_t *list = json_loads("[{\"cause\": \"rank 1 lost, on node 1\", \"fault_ns\": 1, \"detection_s\": 0.2, "
                              "\"planning_s\": 0.1, \"relaunch_s\": 1.0,"
                              "  \"loading_s\": 0.5},"
                              " {\"cause\": \"rank 1 lost, on node 1\", \"fault_ns\": 1, \"detection_s\": 0.4, "
                              "\"planning_s\": 0.1, \"relaunch_s\": null},"
                              " {\"cause\": \"nodes changed\", \"fault_ns\": 2000000000, \"detection_s\": 0.75, "
                              "\"planning_s\": 9.0, \"relaunch_s\": 2.0,"
                              "  \"loading_s\": 0.7}]",
                              0, &why);
    ck_assert_msg(list != NULL, "%s", why.text);
    struct ht_replay_parts p = ht_replay_parts(&a, list, 10);
    ck_assert_int_eq(p.losses, 2);
    ck_assert_int_eq(p.changes, 1);
    ck_assert_double_eq_tol(p.detect_s, 10 * 0.3, 1e-9);
    ck_assert_double_eq_tol(p.plan_s, 10 * 0.1, 1e-9);
    ck_assert_double_eq_tol(p.relaunch_s, 10 * 1.5, 1e-9);
    ck_assert_double_eq_tol(p.load_s, 10 * 0.6, 1e-9);
    ck_assert_double_eq_tol(p.stop_s, 10 * 0.25, 1e-6);
    ck_assert_double_eq_tol(p.stall_s, 10 * 2.499999999, 1e-6);
    json_decref(list);
    ht_replay_account_free(&a);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, test_map_p3);
    tcase_add_test(t, test_map_by_hand);
    tcase_add_test(t, test_draw);
    tcase_add_test(t, test_account);
    tcase_add_test(t, test_parts);
}

int main(void)
{
    return run_suite("replays", add);
}
