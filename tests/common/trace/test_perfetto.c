/* Trace files: what is written is JSON and reads back to the same trace; what is not such a file is refused by line. */
#include "common/base/rng.h"
#include "common/trace/trace.h"
#include "tests/support/random_graph.h"
#include "tests/support/reference_sim.h"

#include <check.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ITERATIONS = 3 };

static char path[] = "/tmp/hetbench-trace-XXXXXX";

/* A run of a random graph as a trace; the reference simulator runs it, so that this test needs no executor. */
static struct ht_trace *random_trace(uint64_t seed, struct ht_schedule **s)
{
    struct random_graph_options o = random_graph_everything();
    int64_t *cost_ns;
    o.may_oom = false;
    *s = random_graph(seed, o, &cost_ns);
    bool bad[ITERATIONS] = {false, true, false};
    struct ht_sim_options sim = {.iterations = ITERATIONS, .issue_ahead = 2, .bad = bad};
    struct reference_result r = reference_run(*s, cost_ns, &sim);
    ck_assert_int_eq(r.answer, REFERENCE_DONE);
    struct ht_trace *t = ht_trace_create(*s, HT_CLOCK_SIM, ITERATIONS);
    memcpy(t->events, r.events, sizeof(*t->events) * (size_t)t->n_events);
    memcpy(t->peak_bytes, r.peak_bytes, sizeof(*t->peak_bytes) * (size_t)ht_n_spaces(*s));
    t->end_ns = r.end_ns;
    for (int64_t i = 0; i < t->n_events; i++)
        if (t->events[i].end_ns > t->iteration_end_ns[ht_trace_iteration(t, i)])
            t->iteration_end_ns[ht_trace_iteration(t, i)] = t->events[i].end_ns;
    reference_free(&r);
    free(cost_ns);
    return t;
}

static void text_of(const struct ht_trace *t, char **text, size_t *n)
{
    struct ht_error err = {0};
    FILE *out = open_memstream(text, n);
    ck_assert_int_eq(ht_trace_write(t, out, &err), HT_OK);
    fclose(out);
}

static enum ht_status read_text(const char *text, size_t n, const struct ht_schedule *s, struct ht_error *err,
                                struct ht_trace **out)
{
    strcpy(path + strlen(path) - 6, "XXXXXX");
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, n), (ssize_t)n);
    close(fd);
    enum ht_status status = ht_trace_read(path, s, err, out);
    unlink(path);
    return status;
}

static void refuse(const char *text, size_t n, const struct ht_schedule *s, const char *word)
{
    struct ht_error err = {0};
    struct ht_trace *t;
    ck_assert_int_eq(read_text(text, n, s, &err, &t), HT_BAD_INPUT);
    ck_assert_ptr_null(t);
    ck_assert_msg(strstr(err.text, word) && strstr(err.text, path), "'%s' lacks '%s'", err.text, word);
}

START_TEST(what_is_written_reads_back)
{
    for (uint64_t seed = 0; seed < 100; seed++) {
        struct ht_schedule *s;
        struct ht_trace *t = random_trace(seed, &s), *back;
        struct ht_error err = {0};
        size_t n;
        char *text;
        text_of(t, &text, &n);
        if (seed < 20) {
            json_error_t why;
            json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &why);
            ck_assert_msg(root != NULL, "line %d: %s", why.line, why.text);
            json_decref(root);
        }
        ck_assert_msg(read_text(text, n, s, &err, &back) == HT_OK, "%s", err.text);
        ck_assert_int_eq(back->clock, t->clock);
        ck_assert_int_eq(back->end_ns, t->end_ns);
        ck_assert_int_eq(back->iterations, t->iterations);
        ck_assert_mem_eq(back->events, t->events, sizeof(*t->events) * (size_t)t->n_events);
        ck_assert_mem_eq(back->peak_bytes, t->peak_bytes, sizeof(*t->peak_bytes) * (size_t)ht_n_spaces(s));
        ck_assert_mem_eq(back->iteration_end_ns, t->iteration_end_ns, sizeof(*t->iteration_end_ns) * ITERATIONS);
        ht_trace_destroy(back);
        ht_trace_destroy(t);
        ht_schedule_destroy(s);
        free(text);
    }
}
END_TEST

START_TEST(broken_files_are_refused)
{
    struct ht_schedule *s, *other;
    struct ht_trace *t = random_trace(3, &s), *u = random_trace(4, &other);
    size_t n;
    char *text;
    text_of(t, &text, &n);
    refuse(text, 0, s, "empty");
    refuse(text, n, other, "another schedule");
    refuse("{}\n", 3, s, ":1: the first line");
    refuse("nonsense", 8, s, ":1:");
    /* Cut off anywhere, also inside a line. */
    for (size_t cut = 1; cut < n - 2; cut += 1 + n / 200) refuse(text, cut, s, "expected a trace");
    /* The first event twice. */
    char *x = strstr(text, "{\"ph\":\"X\""), *eol = strchr(x, '\n');
    size_t head = (size_t)(eol + 1 - text), line = (size_t)(eol + 1 - x);
    char *twice = malloc(n + line);
    memcpy(twice, text, head);
    memcpy(twice + head, x, line);
    memcpy(twice + head + line, eol + 1, n - head);
    refuse(twice, n + line, s, "twice");
    free(twice);
    /* Every byte of the first lines changed in turn: read or refused, never a crash; times and order stay in range. */
    size_t some = head + 400 < n ? head + 400 : n;
    for (size_t i = 0; i < some; i++) {
        char was = text[i];
        struct ht_trace *back;
        struct ht_error err = {0};
        text[i] = (char)ht_random_below(5, i, 256);
        if (read_text(text, n, s, &err, &back) == HT_OK) {
            int64_t *peak = calloc((size_t)ht_n_spaces(s), sizeof(*peak));
            ck_assert_int_eq(ht_trace_replay(back, &err, peak), HT_OK);
            free(peak);
        }
        ht_trace_destroy(back);
        text[i] = was;
    }
    free(text);
    ht_trace_destroy(t);
    ht_trace_destroy(u);
    ht_schedule_destroy(s);
    ht_schedule_destroy(other);
}
END_TEST

START_TEST(a_file_that_is_not_there)
{
    struct ht_schedule *s;
    struct ht_trace *t = random_trace(3, &s), *back;
    struct ht_error err = {0};
    ck_assert_int_eq(ht_trace_read("/tmp/no-such-trace", s, &err, &back), HT_BAD_INPUT);
    FILE *full = fopen("/dev/full", "w");
    if (full) {
        ck_assert_int_eq(ht_trace_write(t, full, &err), HT_FAILED);
        fclose(full);
    }
    ht_trace_destroy(t);
    ht_schedule_destroy(s);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("perfetto");
    TCase *tc = tcase_create("perfetto");
    tcase_add_test(tc, what_is_written_reads_back);
    tcase_add_test(tc, broken_files_are_refused);
    tcase_add_test(tc, a_file_that_is_not_there);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
