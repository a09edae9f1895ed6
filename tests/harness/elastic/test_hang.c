/* How long an incarnation may be silent in each of its parts, and what is said of one that hangs. */
#include "harness/elastic/hang.h"

#include "common/base/clock.h"
#include "tests/support/suite.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Events as ranks write them (harness/run/events.h), read from a file. */
struct events {
    struct ht_incarnation x;
    char path[64];
    int fd;
};

static void begin(struct events *e)
{
    *e = (struct events){.x = {.from = -1, .step = -1, .saved = -1, .lost_rank = -1}};
    snprintf(e->path, sizeof(e->path), "/tmp/ht-hang-XXXXXX");
    e->fd = mkstemp(e->path);
    e->x.fd = open(e->path, O_RDONLY | O_CLOEXEC);
    ck_assert(e->fd >= 0 && e->x.fd >= 0);
}

static void end(struct events *e)
{
    close(e->fd);
    ht_incarnation_close(&e->x);
    unlink(e->path);
}

static void say(struct events *e, int64_t at_s, const char *members)
{
    dprintf(e->fd, "{\"at_ns\": %lld, %s}\n", (long long)at_s * 1000000000, members);
    ht_incarnation_read(&e->x);
}

/* --hang-after 10, the last step 8; no start has trained before, or the longest was silent for 1 s. */
static void expect(struct events *e, double first_s, double later_s, const char *text)
{
    char said[256];
    ck_assert_double_eq(ht_hang_patience_s(&e->x, 10, 0, 8), first_s);
    ck_assert_double_eq(ht_hang_patience_s(&e->x, 10, 1, 8), later_s);
    e->x.heard_s = ht_now_s() - 17;
    ht_hang_print(&e->x, said, sizeof(said));
    ck_assert_str_eq(said, text);
}

/* A start up to the plan: 120 s, or 20 times the longest of before; loads and saves: 120 s; steps: 20 times the longest one, 3 s; after
   the last save, which may go on to a slow store: an hour. */
START_TEST(parts)
{
    struct events e;
    begin(&e);
    expect(&e, 120, 20, "hang in the start of the ranks: nothing for 17 s since 'start'");
    e.x.last_ns = INT64_C(1000000000);
    say(&e, 3, "\"event\": \"plan\", \"ns\": 7");
    ck_assert_double_eq(e.x.silent_s, 2);
    expect(&e, 120, 20, "hang in the start of the ranks: nothing for 17 s since 'plan'");
    say(&e, 4, "\"event\": \"ranks\", \"n\": 4");
    expect(&e, 120, 20, "hang in planning: nothing for 17 s since 'ranks'");
    say(&e, 5, "\"event\": \"planned\", \"step_ns\": 1000");
    expect(&e, 120, 120, "hang in loading: nothing for 17 s since 'planned'");
    say(&e, 95, "\"event\": \"moved\"");
    expect(&e, 120, 120, "hang in loading: nothing for 17 s since 'moved'");
    ck_assert_double_eq(e.x.silent_s, 2);
    say(&e, 100, "\"event\": \"loaded\", \"step\": 5, \"run\": \"1\", \"from\": \"0\"");
    expect(&e, 10, 10, "hang in step 6: nothing for 17 s since 'loaded'");
    say(&e, 101, "\"event\": \"step\", \"step\": 6");
    say(&e, 104, "\"event\": \"step\", \"step\": 7");
    expect(&e, 60, 60, "hang in step 8: nothing for 17 s since 'step'");
    say(&e, 105, "\"event\": \"saving\", \"step\": 7");
    say(&e, 106, "\"event\": \"moved\"");
    expect(&e, 120, 120, "hang in the save of step 7: nothing for 17 s since 'moved'");
    say(&e, 107, "\"event\": \"saved\", \"step\": 7");
    expect(&e, 60, 60, "hang in what follows the save of step 7: nothing for 17 s since 'saved'");
    say(&e, 108, "\"event\": \"step\", \"step\": 8");
    say(&e, 109, "\"event\": \"saving\", \"step\": 8");
    say(&e, 110, "\"event\": \"saved\", \"step\": 8");
    expect(&e, 3600, 3600, "hang in what follows the save of step 8: nothing for 17 s since 'saved'");
    end(&e);
}
END_TEST

/* A loss that the launcher reports is no sign of life of the ranks. */
START_TEST(losses)
{
    struct events e;
    begin(&e);
    say(&e, 3, "\"event\": \"pulse\", \"ops\": 1");
    say(&e, 11, "\"event\": \"lost\", \"host\": \"b\", \"rank\": -1");
    ck_assert_int_eq(e.x.last_ns, INT64_C(3000000000));
    ck_assert_str_eq(e.x.lost_host, "b");
    end(&e);
}
END_TEST

static void add(TCase *tc)
{
    tcase_add_test(tc, parts);
    tcase_add_test(tc, losses);
}

int main(void)
{
    return run_suite("hang", add);
}
