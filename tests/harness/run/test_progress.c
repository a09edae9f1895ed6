/* The line of progress, shown by its own thread and by those that do the work. ThreadSanitizer runs this, too. */
#include "harness/run/progress.h"

#include "common/base/array.h"

#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static atomic_bool over;

/* Shows candidates again and again until the test has seen a line. */
static void *work(void *progress)
{
    for (size_t i = 1; !atomic_load(&over); i++) {
        ht_progress_candidates(progress, i, i + 1);
        usleep(1000);
    }
    return NULL;
}

/* Reads a line from a pipe. */
static void read_line(int fd, char *line, size_t bytes)
{
    size_t n = 0;
    while (n + 1 < bytes && read(fd, line + n, 1) == 1 && line[n] != '\n') n++;
    line[n] = '\0';
}

/* The thread says how long planning takes until the work itself has something to show. Planning began a while ago, so the first
   beat shows a line. */
START_TEST(beats_until_work_reports)
{
    int fds[2];
    char line[128];
    pthread_t workers[2];
    FILE *standard = stderr;
    ck_assert_int_eq(pipe(fds), 0);
    stderr = fdopen(fds[1], "w"); /* the stream alone: ThreadSanitizer reports to the descriptor */
    setvbuf(stderr, NULL, _IOLBF, 0);
    struct ht_progress p = ht_progress_begin("planner");
    p.terminal = false;
    p.began_s -= 100;
    ht_progress_beat(&p, "planning");
    ck_assert_ptr_nonnull(p.beat);
    read_line(fds[0], line, sizeof(line));
    ck_assert_msg(!strncmp(line, "planner: planning, 1", 20), "%s", line);

    for (size_t i = 0; i < HT_COUNT(workers); i++) ck_assert_int_eq(pthread_create(&workers[i], NULL, work, &p), 0);
    do read_line(fds[0], line, sizeof(line));
    while (strstr(line, "planning")); /* a beat before the first candidate */
    ck_assert_msg(strstr(line, "planner: ") == line && strstr(line, " candidates"), "%s", line);
    atomic_store(&over, true);
    for (size_t i = 0; i < HT_COUNT(workers); i++) pthread_join(workers[i], NULL);
    ht_progress_end(&p);
    ck_assert(!p.beat && !p.shown && p.reported);
    fclose(stderr);
    stderr = standard;
    close(fds[0]);
}
END_TEST

/* Work may be over before the thread's first beat. */
START_TEST(ends_before_a_beat)
{
    struct ht_progress p = ht_progress_begin("planner");
    ht_progress_beat(&p, "planning");
    ht_progress_candidates(&p, 1, 2);
    ht_progress_end(&p);
    ck_assert(!p.beat && !p.shown && p.reported);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("progress");
    TCase *t = tcase_create("progress");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, beats_until_work_reports);
    tcase_add_test(t, ends_before_a_beat);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
