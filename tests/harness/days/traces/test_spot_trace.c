/* Spot traces: what a file may hold, one line about what it may not, drawn traces, and days of several. */
#include "harness/days/traces/spot_trace.h"

#include "common/base/rng.h"
#include "tests/support/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum ht_status parse(const char *text, struct ht_error *err, struct ht_spot_trace *t)
{
    return ht_spot_trace_parse(text, strlen(text), "t.csv", err, t);
}

START_TEST(reads_a_file)
{
    struct ht_error err;
    struct ht_spot_trace t;
    ck_assert_int_eq(parse("\xef\xbb\xbftime_s,node,event,instance\r\n\r\n0,a,joined,x\n\n212.5,b,joined,y\n300,a,"
                           "notice,x\n300,a,lost,x",
                           &err, &t),
                     HT_OK);
    ck_assert_uint_eq(t.n_events, 4);
    ck_assert_uint_eq(t.n_nodes, 2);
    ck_assert_int_eq(t.events[1].time_ns, 212500000000);
    ck_assert_str_eq(t.nodes[1].instance, "y");
    ck_assert_int_eq(t.events[2].kind, HT_SPOT_NOTICE);
    ht_spot_trace_free(&t);
}
END_TEST

static const struct {
    const char *text, *says;
} wrong[] = {
    {"", "t.csv:0: the trace has no events"},
    {"time_s,node,event\n", "t.csv:1: the trace has no events"},
    {"time,node,event\n0,a,joined\n", "t.csv:1: key 'header': 'time,node,event' is not a spot trace's"},
    {"time_s,node,event\n0,a\n", "t.csv:2: key 'line': '0' has too few columns; expected 3"},
    {"time_s,node,event\n0,a,joined,x\n", "t.csv:2: key 'line': '0' has too many columns; expected 3"},
    {"time_s,node,event\n0,a,joined,x,y,z\n", "t.csv:2: key 'line': '0' has too many columns; expected 3"},
    {"time_s,node,event\n-1,a,joined\n", "t.csv:2: key 'time_s': '-1' is no time"},
    {"time_s,node,event\n1e3,a,joined\n", "t.csv:2: key 'time_s': '1e3' is no time"},
    {"time_s,node,event\n,a,joined\n", "t.csv:2: key 'time_s': '' is no time"},
    {"time_s,node,event\n1.2.3,a,joined\n", "t.csv:2: key 'time_s': '1.2.3' is no time"},
    {"time_s,node,event\n999999999,a,joined\n", "t.csv:2: key 'time_s': '999999999' is no time"},
    {"time_s,node,event\n5,a,joined\n4,b,joined\n", "t.csv:3: key 'time_s': '4' is before the line above"},
    {"time_s,node,event\n0,,joined\n", "t.csv:2: key 'node': '' is no name"},
    {"time_s,node,event\n0,a\x01,joined\n", "t.csv:2: key 'node': 'a\\x01' is no name"},
    {"time_s,node,event\n0,a,gone\n", "t.csv:2: key 'event': 'gone' is unknown"},
    {"time_s,node,event\n0,a,joined\n0,a,joined\n", "t.csv:3: key 'node': 'a' has joined before"},
    {"time_s,node,event\n0,a,lost\n", "t.csv:2: key 'node': 'a' has not joined"},
    {"time_s,node,event\n0,a,joined\n1,a,lost\n2,a,lost\n", "t.csv:4: key 'node': 'a' was lost before"},
    {"time_s,node,event\n0,a,joined\n1,a,notice\n2,a,notice\n", "t.csv:4: key 'node': 'a' has had its notice before"},
    {"time_s,node,event,instance\n0,a,joined,x\n1,a,lost,y\n",
     "t.csv:3: key 'instance': 'y' is not what the node joined as"},
};

START_TEST(refuses)
{
    struct ht_error err = {0};
    struct ht_spot_trace t;
    ck_assert_int_eq(parse(wrong[_i].text, &err, &t), HT_BAD_INPUT);
    ck_assert_msg(!strncmp(err.text, wrong[_i].says, strlen(wrong[_i].says)), "'%s' instead of '%s'", err.text,
                  wrong[_i].says);
    ck_assert_ptr_null(t.events);
}
END_TEST

/* Spoiled bytes are refused in one line or read; nothing else happens. */
START_TEST(survives_damage)
{
    static const char text[] =
        "time_s,node,event,instance\n0,node1,joined,p3\n10.5,node2,joined,p3\n60,node1,notice,p3\n180,node1,lost,p3\n";
    for (uint64_t seed = 0; seed < 3000; seed++) {
        char spoiled[sizeof(text)];
        struct ht_error err = {0};
        struct ht_spot_trace t;
        size_t n = sizeof(text) - 1;
        memcpy(spoiled, text, sizeof(text));
        for (uint64_t k = 0; k < 1 + seed % 4; k++)
            spoiled[ht_random_below(seed, 2 * k, n)] = (char)ht_random_below(seed, 2 * k + 1, 256);
        if (seed % 3 == 0) n = ht_random_below(seed, 99, n);
        enum ht_status status = ht_spot_trace_parse(spoiled, n, "t.csv", &err, &t);
        ck_assert(status == HT_OK || status == HT_BAD_INPUT);
        if (status) ck_assert_msg(!strncmp(err.text, "t.csv:", 6) && !strchr(err.text, '\n'), "'%s'", err.text);
        ht_spot_trace_free(&t);
    }
}
END_TEST

/* Of 100 nodes that are lost 0.5 times an hour, and back after 6 minutes on average, 100 / (1 + 0.05) = 95.2 are there on average. In
   20 hours 95.2 * 0.5 * 20 = 952 are lost, in bursts of 2 on average at 476 times; half of them are announced 120 s ahead. */
START_TEST(draws_at_the_rates)
{
    const struct ht_spot_rates rates = {"x", 100, 72000, 0.5, 2, 360, 120, 0.5, 7};
    struct ht_spot_trace t, again;
    struct ht_error err;
    int64_t lost = 0, times = 0, noticed = 0, last = -1;
    char *text = NULL;
    size_t n = 0;
    ht_spot_trace_generate(&rates, &t);
    for (size_t i = 0; i < t.n_events; i++) {
        noticed += t.events[i].kind == HT_SPOT_NOTICE;
        if (t.events[i].kind != HT_SPOT_LOST) continue;
        lost++;
        times += t.events[i].time_ns != last;
        last = t.events[i].time_ns;
    }
    ck_assert_msg(lost > 850 && lost < 1050, "%ld lost", (long)lost);
    ck_assert_msg(times > 410 && times < 550, "at %ld times", (long)times);
    ck_assert_msg(noticed > 0.44 * (double)lost && noticed < 0.56 * (double)lost, "%ld announced", (long)noticed);
    FILE *f = open_memstream(&text, &n);
    ht_spot_trace_write(&t, f);
    fclose(f);
    ck_assert_msg(ht_spot_trace_parse(text, n, "drawn", &err, &again) == HT_OK, "%s", err.text);
    ck_assert_uint_eq(again.n_events, t.n_events);
    for (size_t i = 0; i < t.n_events; i++) ck_assert_int_eq(again.events[i].time_ns, t.events[i].time_ns);
    free(text);
    ht_spot_trace_free(&t);
    ht_spot_trace_free(&again);
}
END_TEST

START_TEST(merges_a_day)
{
    struct ht_spot_trace day;
    struct ht_error err;
    ck_assert_msg(ht_spot_day_load("p3=oobleck-p3,g4dn=oobleck-g4dn", &err, &day) == HT_OK, "%s", err.text);
    ck_assert_uint_eq(day.n_events, 344 + 153);
    for (size_t i = 1; i < day.n_events; i++) ck_assert_int_le(day.events[i - 1].time_ns, day.events[i].time_ns);
    ck_assert_str_eq(day.nodes[0].name, "p3/node1");
    ck_assert_str_eq(day.nodes[day.n_nodes - 1].instance, "g4dn");
    ht_spot_trace_free(&day);
    ck_assert_int_eq(ht_spot_day_load("p3=oobleck-p4", &err, &day), HT_BAD_INPUT);
    ck_assert_str_eq(err.text, "unknown trace 'oobleck-p4'; expected 'oobleck-p3'?");
    ck_assert_int_eq(ht_spot_day_load("=oobleck-p3", &err, &day), HT_BAD_INPUT);
    ck_assert_int_eq(ht_spot_day_load(",", &err, &day), HT_BAD_INPUT);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, reads_a_file);
    tcase_add_loop_test(t, refuses, 0, (int)(sizeof(wrong) / sizeof(*wrong)));
    tcase_add_test(t, survives_damage);
    tcase_add_test(t, draws_at_the_rates);
    tcase_add_test(t, merges_a_day);
}

int main(void)
{
    return run_suite("spot traces", add);
}
