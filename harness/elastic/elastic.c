#include "harness/elastic/elastic.h"

#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/base/interrupt.h"
#include "common/base/text.h"
#include "common/model/zoo.h"
#include "common/store/catalog.h"
#include "harness/elastic/command.h"
#include "harness/elastic/damage.h"
#include "harness/elastic/fault.h"
#include "harness/elastic/hang.h"
#include "harness/elastic/recovery.h"
#include "harness/run/registry.h"
#include "harness/result/provenance.h"
#include "harness/result/schema.h"

#include <signal.h>
#include <sys/wait.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    NAP_NS = 5000000,     /* between two looks at the incarnation */
    SHOWN_NS = 250000000, /* between two status lines on a terminal */
    MOST_LOGS = 10        /* of incarnations that are kept */
};

/* Why an incarnation ended, or is asked to. */
enum end { RUNS, ENDED, LOST, FAILED, HUNG, CHANGED, NOTICED, INTERRUPTED };

struct supervisor {
    const struct ht_options *o;
    unsigned own;
    struct ht_journal journal;
    struct ht_members members;
    struct ht_chooser *chooser;
    const struct ht_choice *choice;
    struct ht_incarnation now;
    struct ht_recovery recovery;
    enum end asked;            /* why it was asked to stop; RUNS: it was not */
    char about[200];           /* the loss or the change, for people */
    char seen[HT_MEMBER_LIST]; /* the usable nodes as last seen, */
    double seen_s, asked_s;    /* since when, and when the source was asked */
    struct ht_fault faults[HT_MAX_BAD];
    double silent_s; /* the longest silence of a start that led to a training */
    int64_t shown_ns;
    int notices; /* signals that were answered */
};

static volatile sig_atomic_t signals; /* SIGUSR1 */

static void on_signal(int signo)
{
    (void)signo;
    signals++;
}

/* ---- what it says ---- */

static void end_status_line(const struct supervisor *s)
{
    if (s->shown_ns && isatty(STDERR_FILENO)) fputs("\r\033[K", stderr);
}

/* Says an event: a line of JSON with --json, else one for people. Takes over `members`. */
static void say(struct supervisor *s, const char *event, json_t *members, const char *line)
{
    if (s->o->json) {
        members = ht_schema_put(members, "event");
        json_object_set_new(members, "event", json_string(event));
        json_object_set_new(members, "at_ns", json_integer((json_int_t)ht_realtime_ns()));
        json_object_set_new(members, "incarnation",
                            json_integer((json_int_t)ht_journal_number(&s->journal, "incarnation")));
        json_dumpf(members, stdout, JSON_SORT_KEYS);
        putchar('\n');
        fflush(stdout);
    } else {
        end_status_line(s);
        fprintf(stderr, "elastic: %s\n", line);
    }
    json_decref(members);
}

/* Shows on a terminal where the training is. */
static void show_status(struct supervisor *s)
{
    int64_t now = ht_now_ns();
    const struct ht_incarnation *x = &s->now;
    if (s->o->json || !isatty(STDERR_FILENO) || now - s->shown_ns < SHOWN_NS) return;
    s->shown_ns = now;
    fprintf(stderr, "\relastic: incarnation %lld, nodes %.60s, step %lld/%lld, saved %lld, %zu recoveries\033[K",
            (long long)ht_journal_number(&s->journal, "incarnation"), s->choice->use,
            (long long)(x->step < 0 ? 0 : x->step), (long long)s->o->training.steps,
            (long long)ht_journal_number(&s->journal, "saved"),
            json_array_size(ht_journal_list(&s->journal, "recoveries")));
}

/* ---- drills ---- */

/* Returns the fault that comes next, or NULL. */
static const struct ht_fault *next_fault(const struct supervisor *s)
{
    int64_t met = ht_journal_number(&s->journal, "faults_met");
    return met < s->o->elastic.n_faults ? &s->faults[met] : NULL;
}

static enum ht_status meet_fault(struct supervisor *s, struct ht_error *err)
{
    ht_journal_set(&s->journal, "faults_met", ht_journal_number(&s->journal, "faults_met") + 1);
    return ht_journal_write(&s->journal, err);
}

/* Lets a fault happen that is the supervisor's to make, while the training goes on. */
static enum ht_status drill_while_training(struct supervisor *s, struct ht_error *err)
{
    const struct ht_fault *f = next_fault(s);
    bool due =
        f && !ht_fault_is_of_process(f) && f->kind != HT_FAULT_CORRUPT && s->now.first_ns && s->now.step >= f->step;
    if (!due || s->asked != RUNS) return HT_OK;
    enum ht_status status = meet_fault(s, err);
    if (status != HT_OK) return status;
    if (f->kind == HT_FAULT_SUPERVISOR) raise(SIGKILL);
    if (f->kind == HT_FAULT_JOIN) ht_members_readmit(&s->members);
    int32_t n = ht_list_count(s->choice->use);
    if (f->kind == HT_FAULT_NOTICE && n > s->o->elastic.least)
        s->members.nodes[ht_list_at(s->choice->use, (int32_t)(f->number % n))].noticed = true;
    return HT_OK;
}

/* Lets faults happen that belong to a loss: a node's stores go with it, a file is damaged. */
static enum ht_status drill_after_loss(struct supervisor *s, struct ht_error *err)
{
    const struct ht_fault *f = next_fault(s);
    enum ht_status status = HT_OK;
    if (f && s->now.fault_ns && ht_fault_is_of_process(f)) {
        int32_t node = s->now.lost_rank >= 0 ? s->choice->rank_node[s->now.lost_rank] : s->choice->rank_node[0];
        if (f->kind == HT_FAULT_NODE) ht_damage_lose_node(&s->o->state, node);
        if (f->kind == HT_FAULT_FULL) ht_damage_make_room(&s->o->state);
        status = meet_fault(s, err);
        f = next_fault(s);
    }
    if (status != HT_OK || !f || f->kind != HT_FAULT_CORRUPT) return status;
    ht_damage_corrupt(&s->o->state, (uint64_t)f->number);
    return meet_fault(s, err);
}

/* ---- nodes ---- */

/* Asks for the hosts if it is time. What cannot be asked or read now is asked for again. */
static void ask(struct supervisor *s, bool now)
{
    struct ht_error why = {0};
    if (!now && ht_now_s() - s->asked_s < (double)s->o->elastic.ask_s) return;
    s->asked_s = ht_now_s();
    if (ht_members_ask(&s->members, &why) != HT_OK)
        say(s, "hosts", json_pack("{s:o}", "error", ht_json_text(why.text)), why.text);
}

/* Reads who has had notice. */
static void read_notice(struct supervisor *s)
{
    char line[128];
    FILE *f = s->o->elastic.notice ? fopen(s->o->elastic.notice, "re") : NULL;
    for (int32_t i = 0; s->o->elastic.notice && i < s->members.n; i++) s->members.nodes[i].noticed = false;
    while (f && fgets(line, sizeof(line), f)) {
        char *end;
        line[strcspn(line, " \t\r\n")] = '\0';
        long node = strtol(line, &end, 10);
        if (*end || end == line) node = ht_members_node_of(&s->members, line);
        if (node >= 0 && node < s->members.n) s->members.nodes[node].noticed = true;
    }
    if (f) fclose(f);
}

/* Notes which nodes can be used, and since when. */
static int32_t look(struct supervisor *s)
{
    char list[HT_MEMBER_LIST];
    read_notice(s);
    int32_t n = ht_members_list(&s->members, ht_now_s(), list);
    if (strcmp(list, s->seen) != 0) s->seen_s = ht_now_s();
    memcpy(s->seen, list, strlen(list) + 1);
    return n;
}

static enum ht_status too_few(const struct supervisor *s, int32_t n, struct ht_error *err)
{
    return ht_fail(err, HT_INFEASIBLE, "there %s %d node%s for %lld s; expected at least %lld (--least, --wait)",
                   n == 1 ? "was" : "were", n, n == 1 ? "" : "s", (long long)s->o->elastic.wait_s,
                   (long long)s->o->elastic.least);
}

/* Waits until there are enough nodes. Takes back lost ones whose hosts are still there when others are too few. */
static enum ht_status await_nodes(struct supervisor *s, struct ht_error *err)
{
    const struct timespec nap = {.tv_nsec = 100000000};
    double begin = ht_now_s();
    bool waited = false;
    ask(s, true);
    s->recovery.waiting_ns = 0;
    for (int32_t n; (n = look(s)) < s->o->elastic.least; nanosleep(&nap, NULL)) {
        if (ht_members_readmit(&s->members)) continue;
        if (ht_interrupted()) return ht_fail(err, HT_INTERRUPTED, "interrupted while waiting for nodes");
        if (ht_now_s() - begin >= (double)s->o->elastic.wait_s) return too_few(s, n, err);
        if (!waited) say(s, "waiting", json_pack("{s:i}", "nodes", n), "waiting for nodes");
        waited = true;
        ask(s, false);
    }
    if (waited) s->recovery.waiting_ns = (int64_t)(1e9 * (ht_now_s() - begin));
    return HT_OK;
}

/* Puts into the journal when nodes were lost. */
static void keep_losses(struct supervisor *s)
{
    json_t *lost = json_object();
    char key[24];
    for (int32_t i = 0; i < s->members.n; i++) {
        double ago_s = ht_now_s() - s->members.nodes[i].lost_s;
        snprintf(key, sizeof(key), "%d", i);
        if (s->members.nodes[i].lost_s > 0)
            json_object_set_new(lost, key, json_real((double)ht_realtime_ns() * 1e-9 - ago_s));
    }
    json_object_set_new(s->journal.root, "lost", lost);
}

/* Takes over from the journal when nodes were lost, before this supervisor began. */
static void take_losses(struct supervisor *s)
{
    const char *key;
    json_t *at;
    json_object_foreach(json_object_get(s->journal.root, "lost"), key, at)
    {
        long node = strtol(key, NULL, 10);
        double ago_s = (double)ht_realtime_ns() * 1e-9 - json_number_value(at);
        bool sound = node >= 0 && node < s->members.n && ago_s >= 0 && ht_now_s() > ago_s;
        if (sound) s->members.nodes[node].lost_s = ht_now_s() - ago_s;
    }
}

/* ---- starting ---- */

/* Removes the files of incarnations that are too old. */
static void remove_old_files(const struct supervisor *s, int64_t number)
{
    char path[PATH_MAX];
    if (number <= MOST_LOGS) return;
    ht_incarnation_events(s->journal.folder, number - MOST_LOGS, path);
    unlink(path);
    snprintf(path, sizeof(path), "%.3800s/log-%06lld.txt", s->journal.folder, (long long)number - MOST_LOGS);
    unlink(path);
}

/* Removes steps that nobody has whole from a training that has none: it begins anew. */
static void forget_broken_steps(const struct supervisor *s)
{
    if (ht_journal_number(&s->journal, "saved") >= 0) return;
    ht_damage_forget(&s->o->state);
}

static enum ht_status start(struct supervisor *s, struct ht_error *err)
{
    const struct ht_fault *f = next_fault(s);
    int64_t number = ht_journal_number(&s->journal, "incarnation") + 1,
            every = s->o->state.every ? s->o->state.every : 100;
    char events[PATH_MAX], fault[HT_FAULT_TEXT], line[512];
    struct ht_args w = {0};
    forget_broken_steps(s);
    remove_old_files(s, number);
    ht_journal_set(&s->journal, "incarnation", number);
    json_array_append_new(ht_journal_list(&s->journal, "runs"),
                          json_pack("{s:I,s:s,s:I,s:I}", "incarnation", (json_int_t)number, "nodes", s->choice->use,
                                    "saved", (json_int_t)ht_journal_number(&s->journal, "saved"), "safe",
                                    (json_int_t)ht_journal_number(&s->journal, "safe")));
    keep_losses(s);
    enum ht_status status = ht_journal_write(&s->journal, err);
    if (status != HT_OK) return status;
    bool of_process = f && ht_fault_is_of_process(f);
    if (of_process) ht_fault_for_train(f, s->choice->rank_node, s->choice->n_ranks, every, s->o->training.steps, fault);
    ht_incarnation_events(s->journal.folder, number, events);
    ht_command_begin(&w, "train", s->o, s->own, NULL);
    ht_command_add_incarnation(&w, s->o, s->choice, &s->members, events, of_process ? fault : NULL);
    status = ht_incarnation_start(&s->now, s->journal.folder, number, w.words, err);
    ht_args_free(&w);
    snprintf(line, sizeof(line), "incarnation %lld: %d rank%s on node%s %.200s", (long long)number, s->choice->n_ranks,
             s->choice->n_ranks == 1 ? "" : "s", ht_list_count(s->choice->use) == 1 ? "" : "s", s->choice->use);
    if (status == HT_OK)
        say(s, "start",
            json_pack("{s:s,s:i,s:s}", "nodes", s->choice->use, "ranks", s->choice->n_ranks, "log", s->now.log), line);
    return status;
}

/* Plans for the nodes that there are. */
static enum ht_status plan(struct supervisor *s, struct ht_error *err)
{
    int64_t begin_ns = ht_now_ns();
    enum ht_status status = ht_choose(s->chooser, s->seen, err, &s->choice);
    s->recovery.choosing_ns = ht_now_ns() - begin_ns;
    if (status == HT_OK && ht_list_count(s->choice->use) < s->o->elastic.least)
        status =
            ht_fail(err, HT_INFEASIBLE, "of nodes %.200s only %.200s can be used; expected at least %lld (--least)",
                    s->seen, s->choice->use, (long long)s->o->elastic.least);
    if (status == HT_OK) ht_chooser_keep(s->chooser, s->choice->use);
    s->recovery.beforehand = s->choice->beforehand;
    s->recovery.handed_over = s->choice->n_sets > 0;
    snprintf(s->recovery.after, sizeof(s->recovery.after), "%.255s", s->choice->use);
    return status;
}

/* ---- following ---- */

/* Asks the incarnation to save and end. */
static void stop(struct supervisor *s, enum end why, const char *about)
{
    if (s->asked != RUNS) return;
    s->asked = why;
    snprintf(s->about, sizeof(s->about), "%s", about);
    say(s, "stop", json_pack("{s:s}", "cause", about), about);
    ht_incarnation_stop(&s->now);
}

/* Stops for nodes that have come or gone, once they have not changed for a while; for a notice at once. */
static void follow_nodes(struct supervisor *s)
{
    const struct ht_choice *better;
    struct ht_error why = {0};
    bool noticed = false;
    ask(s, false);
    look(s);
    for (int32_t i = 0, n = ht_list_count(s->choice->use); i < n; i++)
        noticed |= s->members.nodes[ht_list_at(s->choice->use, i)].noticed;
    bool changed = strcmp(s->seen, s->choice->of) != 0, quiet = ht_now_s() - s->seen_s >= (double)s->o->elastic.quiet_s;
    if (!changed || !(quiet || noticed) || !s->now.first_ns || ht_list_count(s->seen) < s->o->elastic.least) return;
    if (ht_choose(s->chooser, s->seen, &why, &better) != HT_OK) return;
    if (!strcmp(better->use, s->choice->use)) return;
    if (!noticed) ht_choose_ready(s->chooser, s->seen);
    stop(s, noticed ? NOTICED : CHANGED, noticed ? "notice" : "nodes changed");
}

/* Returns true if the incarnation has been silent for too long. */
static bool hangs(const struct supervisor *s)
{
    double patience = ht_hang_patience_s(&s->now, (double)s->o->elastic.hang_s, s->silent_s, s->o->training.steps);
    return ht_now_s() - s->now.heard_s > patience;
}

/* Ends an incarnation that hangs; its log says where its processes were. */
static void end_hang(struct supervisor *s)
{
    s->asked = HUNG;
    ht_hang_print(&s->now, s->about, sizeof(s->about));
    ht_hang_describe(&s->now, s->journal.folder);
    ht_incarnation_clear(s->journal.folder);
}

/* Closes the recovery with the first new step, and plans ahead for the next loss. */
static enum ht_status begin_training(struct supervisor *s, struct ht_error *err)
{
    json_t *runs = ht_journal_list(&s->journal, "runs"), *run = json_array_get(runs, json_array_size(runs) - 1);
    json_object_set_new(run, "from", json_integer((json_int_t)s->now.from));
    json_object_set_new(run, "run", json_string(s->now.run));
    json_object_set_new(run, "from_run", json_string(s->now.from_run));
    if (s->now.silent_s > s->silent_s) s->silent_s = s->now.silent_s;
    if (s->recovery.open) ht_recovery_close(&s->recovery, &s->now, &s->journal);
    ht_choose_ahead(s->chooser, s->choice->of);
    return ht_journal_write(&s->journal, err);
}

/* Notes a new save. */
static enum ht_status note_save(struct supervisor *s, struct ht_error *err)
{
    int64_t saved = ht_journal_number(&s->journal, "saved"), safe = ht_journal_number(&s->journal, "safe");
    /* The first incarnation finds only what was there before this training. */
    if (ht_journal_number(&s->journal, "incarnation") == 1 && s->now.from > 0 && s->now.safe < 0)
        s->now.safe = s->now.from;
    if (s->now.saved <= saved && s->now.safe <= safe) return HT_OK;
    if (s->now.saved > saved) ht_journal_set(&s->journal, "saved", s->now.saved);
    if (s->now.safe > safe) ht_journal_set(&s->journal, "safe", s->now.safe);
    return ht_journal_write(&s->journal, err);
}

/* Follows the incarnation until all of its processes have ended. */
static enum ht_status follow(struct supervisor *s, struct ht_error *err)
{
    const struct timespec nap = {.tv_nsec = NAP_NS};
    enum ht_status status = HT_OK;
    bool trains = false;
    s->asked = RUNS;
    while (status == HT_OK && !ht_incarnation_has_ended(&s->now)) {
        nanosleep(&nap, NULL);
        ht_incarnation_read(&s->now);
        if (s->asked != HUNG && hangs(s)) end_hang(s); /* before what may take long */
        if (!trains && s->now.loaded_ns && s->now.first_ns) status = begin_training(s, err), trains = true;
        if (status == HT_OK) status = note_save(s, err);
        if (status == HT_OK) status = drill_while_training(s, err);
        if (ht_interrupted()) stop(s, INTERRUPTED, "interrupted");
        if (signals > s->notices && s->now.first_ns) s->notices = signals, stop(s, NOTICED, "notice by signal");
        if (s->asked == RUNS) follow_nodes(s);
        if (ht_interrupt_count() > 1) ht_incarnation_clear(s->journal.folder);
        show_status(s);
    }
    ht_incarnation_clear(s->journal.folder); /* also when the journal cannot be written */
    while (!ht_incarnation_has_ended(&s->now)) nanosleep(&nap, NULL);
    ht_incarnation_read(&s->now);
    if (status == HT_OK && !trains && s->now.loaded_ns && s->now.first_ns) status = begin_training(s, err);
    return status == HT_OK ? note_save(s, err) : status;
}

/* ---- after the end ---- */

/* Returns why the incarnation ended. *why: what it said. */
static enum end end_of(const struct supervisor *s, struct ht_error *why)
{
    why->status = ht_incarnation_status(&s->now, why);
    if (why->status == HT_OK) return ENDED;
    if (s->asked == HUNG) return HUNG;
    /* The signal that asks it to stop kills a process that does not listen yet, and what launched it calls that a failure. */
    bool unheard = WIFSIGNALED(s->now.waited) && WTERMSIG(s->now.waited) == SIGINT;
    if (s->asked == INTERRUPTED || (s->asked != RUNS && (why->status == HT_INTERRUPTED || unheard))) return s->asked;
    bool alone = s->choice->n_ranks == 1 && WIFSIGNALED(s->now.waited);
    return s->now.lost_rank >= 0 || s->now.lost_host[0] || alone ? LOST : FAILED;
}

/* Marks the node that was lost. */
static void lose_node(struct supervisor *s)
{
    const struct ht_incarnation *x = &s->now;
    int32_t node = x->lost_host[0] ? ht_members_node_of(&s->members, x->lost_host) : -1;
    if (node < 0 && x->lost_rank < s->choice->n_ranks) node = s->choice->rank_node[x->lost_rank < 0 ? 0 : x->lost_rank];
    if (node >= 0) s->members.nodes[node].lost_s = ht_now_s();
    if (x->lost_host[0])
        snprintf(s->about, sizeof(s->about), "host %.100s lost", x->lost_host);
    else
        snprintf(s->about, sizeof(s->about), "rank %d lost, on node %d", x->lost_rank < 0 ? 0 : x->lost_rank, node);
}

/* Begins to measure the recovery from what has ended the incarnation. One that had not ended goes on as the next. */
static void open_recovery(struct supervisor *s)
{
    const struct ht_incarnation *x = &s->now;
    struct ht_recovery *r = &s->recovery;
    if (r->open) ht_recovery_close(r, x, &s->journal);
    int64_t asked_ns = x->stopping ? x->ended_ns - (int64_t)(1e9 * (ht_now_s() - x->stopped_s)) : 0;
    *r = (struct ht_recovery){.open = true,
                              .fault_ns = x->fault_ns ? x->fault_ns
                                          : asked_ns  ? asked_ns
                                                      : x->last_ns,
                              .ended_ns = ht_realtime_ns(),
                              .at_step = x->step};
    snprintf(r->cause, sizeof(r->cause), "%s", s->about);
    snprintf(r->before, sizeof(r->before), "%.255s", s->choice->use);
}

/* Decides whether a failure is one too many, or not to be repeated. A training of which no step was ever safe begins anew
   when none is whole. */
static enum ht_status judge_failure(struct supervisor *s, const struct ht_error *why, struct ht_error *err)
{
    int64_t step = s->now.step >= 0 ? s->now.step : ht_journal_number(&s->journal, "saved");
    bool begins_anew = s->now.broken && ht_journal_number(&s->journal, "safe") < 0,
         refused = why->status == HT_BAD_INPUT || why->status == HT_INFEASIBLE;
    const char *text = s->asked == HUNG ? s->about : why->text;
    int64_t n = ht_journal_fail(&s->journal, step, text);
    if (begins_anew) ht_journal_set(&s->journal, "saved", -1);
    if (refused && !begins_anew) return ht_fail(err, why->status, "%s", why->text);
    if (n < s->o->elastic.restarts) return HT_OK;
    return ht_fail(err, why->status == HT_OK ? HT_FAILED : why->status, "%lld times in a row after step %lld: %.800s",
                   (long long)n, (long long)step, text);
}

/* Acts on the incarnation's end. *done: no other is needed. */
static enum ht_status settle(struct supervisor *s, bool *done, struct ht_error *err)
{
    struct ht_error why = {0};
    enum end end = end_of(s, &why);
    char line[1024];
    enum ht_status status = HT_OK;
    *done = end == ENDED;
    if (end == INTERRUPTED && why.status == HT_INTERRUPTED) return ht_fail(err, HT_INTERRUPTED, "%s", why.text);
    if (end == INTERRUPTED)
        return ht_fail(err, HT_INTERRUPTED, "interrupted%s: %s",
                       s->now.step < 0 ? " before the training had begun" : "", why.text);
    if (end == ENDED) return HT_OK;
    if (end == LOST) lose_node(s);
    if (end == FAILED) snprintf(s->about, sizeof(s->about), "%.199s", why.text);
    open_recovery(s);
    if (end == LOST || end == FAILED || end == HUNG) status = judge_failure(s, &why, err);
    int64_t saved = ht_journal_number(&s->journal, "saved");
    if (s->now.step < 0)
        snprintf(line, sizeof(line), "%s, before the state was loaded", s->about);
    else
        snprintf(line, sizeof(line), "%s, after step %lld; saved: %lld", s->about, (long long)s->now.step,
                 (long long)(saved < 0 ? 0 : saved));
    say(s, "end",
        json_pack("{s:o,s:I,s:I}", "cause", ht_json_text(s->about), "step", (json_int_t)s->now.step, "saved",
                  (json_int_t)ht_journal_number(&s->journal, "saved")),
        line);
    if (status == HT_OK) status = drill_after_loss(s, err);
    return status == HT_OK ? ht_journal_write(&s->journal, err) : status;
}

/* ---- the whole ---- */

static enum ht_status run_incarnations(struct supervisor *s, struct ht_error *err)
{
    enum ht_status status = HT_OK;
    for (bool done = false; status == HT_OK && !done;) {
        status = await_nodes(s, err);
        if (status == HT_OK) status = plan(s, err);
        if (status == HT_OK) status = start(s, err);
        if (status != HT_OK) break;
        status = follow(s, err);
        if (status == HT_OK) status = settle(s, &done, err);
        ht_incarnation_close(&s->now);
    }
    return status;
}

static enum ht_status open_members(struct supervisor *s, struct ht_error *err)
{
    struct ht_options whole = *s->o;
    struct ht_scenario scenario;
    struct ht_scenario_request request = ht_job_request(&whole, NULL);
    if (!request.model)
        return ht_fail(err, HT_BAD_INPUT, "--model is missing; hetbench list models shows those there are");
    enum ht_status status = ht_scenario_create(&request, err, &scenario);
    if (status != HT_OK) return status;
    ht_members_init(&s->members, scenario.cluster, s->o->elastic.hosts, (double)s->o->elastic.rejoin_s);
    ht_scenario_free(&scenario);
    if (s->o->elastic.least > s->members.n)
        return ht_fail(err, HT_BAD_INPUT, "--least: %lld nodes can never be there; expected at most the cluster's %d",
                       (long long)s->o->elastic.least, s->members.n);
    return ht_members_ask(&s->members, err);
}

static enum ht_status read_faults(struct supervisor *s, struct ht_error *err)
{
    enum ht_status status = HT_OK;
    for (int64_t i = 0; i < s->o->elastic.n_faults && status == HT_OK; i++)
        status = ht_fault_read(s->o->elastic.faults[i], s->o->training.steps, err, &s->faults[i]);
    return status;
}

/* Names the faults whose moment never came, such as a load without a loss before it. */
static void warn_of_faults_left(struct supervisor *s)
{
    for (int64_t i = ht_journal_number(&s->journal, "faults_met"); i < s->o->elastic.n_faults; i++)
        fprintf(stderr, "hetbench: warning: --inject %s did not happen\n", s->o->elastic.faults[i]);
}

static void report(struct supervisor *s, enum ht_status status, const struct ht_error *why)
{
    json_t *recoveries = ht_journal_list(&s->journal, "recoveries");
    int64_t n = ht_journal_number(&s->journal, "incarnation");
    char line[128];
    snprintf(line, sizeof(line), "%lld steps in %lld incarnation%s", (long long)s->o->training.steps, (long long)n,
             n == 1 ? "" : "s");
    const char *name = status == HT_OK ? "ok" : status == HT_INTERRUPTED ? "interrupted" : "failed";
    if (s->o->json || status == HT_OK)
        say(s, "done",
            json_pack("{s:s,s:o,s:O,s:O}", "status", name, "error", ht_json_text(status == HT_OK ? "" : why->text),
                      "recoveries", recoveries, "runs", ht_journal_list(&s->journal, "runs")),
            line);
    if (!s->o->json) ht_recoveries_print(recoveries, stdout);
}

/* Refuses what no number of nodes makes right, before there is a folder. */
static enum ht_status check(const struct ht_options *options, struct ht_error *err)
{
    const struct ht_system *system;
    struct ht_model model;
    bool named = options->request.model || options->state.init;
    if (!named) return ht_fail(err, HT_BAD_INPUT, "--model is missing; hetbench list models shows those there are");
    enum ht_status status = ht_system_find(options->words[0], err, &system);
    if (status == HT_OK && options->request.model) status = ht_model_load(options->request.model, err, &model);
    return status;
}

enum ht_status ht_elastic_run(const struct ht_options *options, unsigned own_group, struct ht_error *err)
{
    struct supervisor s = {.o = options, .own = own_group, .now = {.fd = -1}, .journal = {.lock = -1}};
    struct sigaction sa = {.sa_handler = on_signal};
    char folder[PATH_MAX];
    sigemptyset(&sa.sa_mask);
    snprintf(folder, sizeof(folder), "%.3800s/elastic", options->state.store);
    enum ht_status status = read_faults(&s, err);
    if (status == HT_OK) status = check(options, err);
    if (status == HT_OK) status = open_members(&s, err);
    if (status == HT_OK)
        status = ht_journal_open(options->elastic.state ? options->elastic.state : folder, err, &s.journal);
    if (status == HT_OK) {
        ht_interrupt_keep();
        sigaction(SIGUSR1, &sa, NULL);
        ht_incarnation_clear(s.journal.folder);
        take_losses(&s);
        status = ht_chooser_create(options, err, &s.chooser);
        if (status == HT_OK) status = run_incarnations(&s, err);
        report(&s, status, err);
        if (status == HT_OK) warn_of_faults_left(&s);
    }
    ht_chooser_destroy(s.chooser);
    ht_journal_close(&s.journal);
    ht_members_free(&s.members);
    return status;
}
