/* A drill is one integer: the same faults each time. And the supervisor's journal, which outlives it. */
#include "common/base/array.h"
#include "harness/elastic/fault.h"
#include "harness/elastic/incarnation.h"
#include "harness/elastic/journal.h"
#include "tests/support/suite.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 8, STEPS = 30, EVERY = 4 };

START_TEST(drawn_from_one_number)
{
    int seen[HT_N_FAULT_KINDS] = {0};
    for (uint64_t seed = 1; seed <= 1000; seed++) {
        struct ht_fault a[MOST], b[MOST];
        int32_t n = ht_faults_draw(seed, STEPS, EVERY, a, MOST);
        ck_assert_int_eq(ht_faults_draw(seed, STEPS, EVERY, b, MOST), n);
        ck_assert(n >= 1 && n <= MOST);
        for (int32_t i = 0; i < n; i++) {
            char text[HT_FAULT_TEXT];
            struct ht_error err;
            struct ht_fault read;
            ck_assert(a[i].kind == b[i].kind && a[i].step == b[i].step && a[i].number == b[i].number);
            ck_assert(a[i].step >= 0 && a[i].step <= STEPS);
            ht_fault_print(&a[i], text);
            ck_assert_int_eq(ht_fault_read(text, STEPS, &err, &read), HT_OK);
            ck_assert(read.kind == a[i].kind && read.step == a[i].step && read.number == a[i].number);
            seen[a[i].kind]++;
        }
        /* what happens while the training stands still follows what makes it stand still */
        for (int32_t i = 0; i < n; i++)
            ck_assert((a[i].kind != HT_FAULT_LOAD && a[i].kind != HT_FAULT_CORRUPT) ||
                      (i > 0 && a[i - 1].kind == HT_FAULT_RANK));
    }
    for (int k = 0; k < HT_N_FAULT_KINDS; k++) ck_assert_msg(seen[k] > 20, "%s: %d", ht_fault_names[k], seen[k]);
}
END_TEST

/* Three ranks: the first of node 4, two of node 7. The number's remainder by three picks the rank, its quotient the op. */
START_TEST(befalls_the_rank_that_the_number_picks)
{
    static const struct {
        const char *fault, *wanted;
    } rows[] = {
        {"rank:5:17", "kill:2:5:5"},     {"leader:5:17", "kill:1:5:5"}, {"node:5:16", "kill:1:5:5"},
        {"hang:9:3", "hang:0:9:1"},      {"save:5:1", "kill:1:8:save"}, {"save:8:1", "kill:1:8:save"},
        {"full:29:0", "full:0:30:save"}, {"load:0:2", "kill:2:0:load"},
    };
    const int32_t rank_node[] = {4, 7, 7};
    for (size_t i = 0; i < HT_COUNT(rows); i++) {
        struct ht_fault f;
        struct ht_error err;
        char text[HT_FAULT_TEXT];
        ck_assert_int_eq(ht_fault_read(rows[i].fault, STEPS, &err, &f), HT_OK);
        ht_fault_for_train(&f, rank_node, 3, EVERY, STEPS, text);
        ck_assert_str_eq(text, rows[i].wanted);
    }
}
END_TEST

START_TEST(other_texts_are_refused)
{
    static const char *const texts[] = {"", "rank", "rank:1", "rank:1:", "rank:x:1", "disk:1:1", "rank:-1:2"};
    for (size_t i = 0; i < HT_COUNT(texts); i++) {
        struct ht_fault f;
        struct ht_error err;
        ck_assert_int_eq(ht_fault_read(texts[i], STEPS, &err, &f), HT_BAD_INPUT);
        ck_assert_msg(strstr(err.text, "expected KIND:STEP:NUMBER"), "%s", err.text);
    }
}
END_TEST

START_TEST(a_step_that_never_comes_is_refused)
{
    struct ht_fault f;
    struct ht_error err;
    ck_assert_int_eq(ht_fault_read("node:5:1", 5, &err, &f), HT_OK);
    ck_assert_int_eq(ht_fault_read("node:5:1", 4, &err, &f), HT_BAD_INPUT);
    ck_assert_str_eq(err.text, "--inject node:5:1: step 5 never comes; expected at most --steps, 4");
}
END_TEST

START_TEST(the_journal_goes_on)
{
    char dir[] = "/tmp/journal-XXXXXX", command[64];
    struct ht_journal j, other;
    struct ht_error err;
    ck_assert(mkdtemp(dir));
    ck_assert_int_eq(ht_journal_open(dir, &err, &j), HT_OK);
    ck_assert_int_eq(ht_journal_number(&j, "incarnation"), 0);
    ck_assert_int_eq(ht_journal_number(&j, "saved"), -1);
    ck_assert_int_eq(ht_journal_open(dir, &err, &other), HT_BAD_INPUT); /* one at a time */
    /* processes' numbers do not make another error; another step does */
    ck_assert_int_eq(ht_journal_fail(&j, 7, "rank 1 (process 4711) is gone"), 1);
    ck_assert_int_eq(ht_journal_fail(&j, 7, "rank 1 (process 12) is gone"), 2);
    ck_assert_int_eq(ht_journal_fail(&j, 8, "rank 1 (process 12) is gone"), 1);
    ck_assert_int_eq(ht_journal_fail(&j, 8, "run/step-2.18ec0f/unit-0001.safetensors: no space left"), 1);
    ck_assert_int_eq(ht_journal_fail(&j, 8, "run/step-2.18fa0c/rank-0001.json: no space left"), 2); /* nor do files */
    ck_assert_int_eq(ht_journal_fail(&j, 8, "rank 1 is gone"), 1);
    ck_assert_int_eq(ht_journal_fail(&j, 8, "no space left"), 1);
    ht_journal_set(&j, "incarnation", 3);
    ck_assert_int_eq(ht_journal_write(&j, &err), HT_OK);
    ht_journal_close(&j);
    ck_assert_int_eq(ht_journal_open(dir, &err, &j), HT_OK);
    ck_assert_int_eq(ht_journal_number(&j, "incarnation"), 3);
    ck_assert_int_eq(ht_journal_fail(&j, 8, "no space left"), 2);
    ht_journal_close(&j);
    snprintf(command, sizeof(command), "echo '[' > %s/state.json", dir);
    ck_assert_int_eq(system(command), 0);
    ck_assert_int_eq(ht_journal_open(dir, &err, &j), HT_BAD_INPUT);
    ck_assert_msg(strstr(err.text, "is not a supervisor's state"), "%s", err.text);
    snprintf(command, sizeof(command), "echo '[]' > %s/state.json", dir);
    ck_assert_int_eq(system(command), 0);
    ck_assert_int_eq(ht_journal_open(dir, &err, &j), HT_BAD_INPUT);
    ck_assert_msg(strstr(err.text, "is not a supervisor's state: expected an object"), "%s", err.text);
    snprintf(command, sizeof(command), "rm -r %s", dir);
    ck_assert_int_eq(system(command), 0);
}
END_TEST

/* Events that come in pieces; a line that is not JSON is left out. */
START_TEST(events_are_read_as_they_come)
{
    static const char *const pieces[] = {
        "{\"at_ns\": 1000000000, \"event\": \"loaded\", \"step\": 4, \"run\": \"ab\", \"from\": \"cd\"}\n{\"at_ns\": "
        "20",
        "00000000, \"event\": \"step\", \"step\": 5}\nnonsense\n",
        "{\"at_ns\": 5000000000, \"event\": \"step\", \"step\": 6}\n{\"at_ns\": 6000000000, \"event\": \"saving\"}\n",
        "{\"at_ns\": 7000000000, \"event\": \"saved\", \"step\": 6}\n{\"at_ns\": 8000000000, \"event\": \"lost\", "
        "\"rank\": 2}\n"};
    char path[] = "/tmp/events-XXXXXX";
    int to = mkstemp(path);
    struct ht_incarnation x = {.fd = open(path, O_RDONLY), .lost_rank = -1, .saved = -1};
    for (size_t i = 0; i < HT_COUNT(pieces); i++) {
        ck_assert_int_eq(write(to, pieces[i], strlen(pieces[i])), (ssize_t)strlen(pieces[i]));
        ht_incarnation_read(&x);
        if (i == 0)
            ck_assert(x.from == 4 && x.step == 4 && !x.first_ns && !strcmp(x.run, "ab") && !strcmp(x.from_run, "cd"));
        if (i == 1) ck_assert(x.step == 5 && x.first_ns == 2000000000);
        if (i == 2) ck_assert(x.step == 6 && x.saving && x.saved == -1 && x.longest_s > 2.9 && x.longest_s < 3.1);
    }
    ck_assert(x.saved == 6 && !x.saving && x.lost_rank == 2);
    ck_assert_int_eq(x.last_ns, 7000000000); /* being lost is no sign of life */
    ht_incarnation_close(&x);
    close(to);
    unlink(path);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, drawn_from_one_number);
    tcase_add_test(t, befalls_the_rank_that_the_number_picks);
    tcase_add_test(t, other_texts_are_refused);
    tcase_add_test(t, a_step_that_never_comes_is_refused);
    tcase_add_test(t, the_journal_goes_on);
    tcase_add_test(t, events_are_read_as_they_come);
}

int main(void)
{
    return run_suite("fault", add);
}
