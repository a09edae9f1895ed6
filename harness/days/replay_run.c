#include "harness/days/replay_run.h"

#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/base/interrupt.h"
#include "harness/days/replay_kill.h"
#include "harness/elastic/child.h"
#include "harness/elastic/command.h"
#include "harness/elastic/damage.h"
#include "harness/elastic/drills.h"
#include "harness/elastic/incarnation.h"
#include "harness/run/progress.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    NAP_NS = 5000000,
    KILL_S = 10, /* in which ranks of a lost node may still come up */
    AGAIN_NS = 50000000,
    END_S = 300,   /* for the last save */
    CHECK_S = 1800 /* for the last step of a check */
};

/* A day that goes on. */
struct going {
    struct ht_replay_run *r;
    char folder[PATH_MAX]; /* of the supervisor, as its processes know it */
    pid_t pid;
    bool *there, *noticed; /* [n_local] */
    size_t next;           /* event */
    int64_t begin_ns, linked;
    double begin_s, killing_until_s, looked_s;
    int waited;
    struct ht_progress line;
};

static void path_of(const struct ht_replay_run *r, const char *file, char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%.3000s/%s", r->dir, file);
}

/* ---- the supervisor's command ----------------------------------------------------------------------------------- */

static void add_path(struct ht_args *w, const struct ht_replay_run *r, const char *name, const char *file)
{
    char path[PATH_MAX];
    path_of(r, file, path);
    ht_args_add_option(w, name, path);
}

static void add_text(struct ht_args *w, const char *name, const char *form, double value)
{
    char text[64];
    snprintf(text, sizeof(text), form, value);
    ht_args_add_option(w, name, text);
}

static const char *const replaced[] = {"store", "store-memory", "store-remote", "store-remote-rate", "losses",
                                       "trace", "steps",        "clock",        "emu-scale",         NULL};

/* Writes the command. emulated: ops are held; else it runs as fast as it goes, and writes its losses. */
static void supervise(const struct ht_replay_run *r, int64_t steps, bool emulated, struct ht_args *w)
{
    struct ht_options o = *r->options;
    o.words[0] = r->policy->system;
    o.n_words = 1;
    ht_command_begin(w, "elastic", &o, 0, replaced);
    add_path(w, r, "store", "store");
    add_path(w, r, "store-remote", "remote");
    if (r->remote_bytes_per_s > 0)
        add_text(w, "store-remote-rate", "%.0f B/s", fmax(1, r->remote_bytes_per_s * r->speed / r->day->n_local));
    ht_args_add_option(w, "policy", r->policy->name);
    add_path(w, r, "hosts", "hosts");
    if (r->policy->saves_on_notice) add_path(w, r, "notice", "notice");
    add_text(w, "steps", "%.0f", (double)steps);
    add_text(w, "least", "%.0f", emulated && r->policy->keeps_shape ? r->keep_nodes : 1);
    add_text(w, "ask-every", "%.0f", 0);
    add_text(w, "quiet", "%.0f", 1);
    add_text(w, "rejoin", "%.0f", 0);
    add_text(w, "wait", "%.0f", 1e8);
    add_text(w, "restarts", "%.0f", 1e8);
    add_text(w, "hang-after", "%.0f", 60);
    ht_args_add_option(w, "clock", "emu");
    if (emulated)
        add_text(w, "emu-scale", "%.9g", 1 / r->speed);
    else
        ht_args_add_option(w, "emu-scale", "none"), add_path(w, r, "losses", "losses.csv");
    ht_args_end(w);
}

/* Starts the program, with DIR/tmp for its files, and what it prints in DIR/out. */
static enum ht_status start(const struct ht_replay_run *r, char *const *words, const char *out, struct ht_error *err,
                            pid_t *pid)
{
    char path[PATH_MAX], tmp[PATH_MAX];
    path_of(r, out, path);
    path_of(r, "tmp", tmp);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    *pid = fd < 0 ? -1 : ht_child_start(words, fd, "TMPDIR", tmp);
    enum ht_status status =
        *pid < 0 ? ht_fail(err, HT_FAILED, "%s: cannot be started: %s", path, strerror(errno)) : HT_OK;
    if (fd >= 0) close(fd);
    if (*pid < 0) *pid = 0;
    return status;
}

/* ---- nodes ------------------------------------------------------------------------------------------------------ */

/* Writes a list of nodes, whole at once. */
static enum ht_status write_list(const struct ht_replay_run *r, const char *file, const char *form, const bool *in,
                                 struct ht_error *err)
{
    char path[PATH_MAX], new[PATH_MAX + 8];
    path_of(r, file, path);
    snprintf(new, sizeof(new), "%s.new", path);
    FILE *f = fopen(new, "we");
    for (int32_t i = 0; f && i < r->day->n_local; i++)
        if (in[i]) fprintf(f, form, i);
    if (f && fclose(f) == 0 && rename(new, path) == 0) return HT_OK;
    return ht_fail(err, HT_FAILED, "%s: cannot be written: %s", path, strerror(errno));
}

static enum ht_status write_lists(const struct going *g, struct ht_error *err)
{
    enum ht_status status = write_list(g->r, "hosts", "localhost node=%d\n", g->there, err);
    return status ? status : write_list(g->r, "notice", "%d\n", g->noticed, err);
}

static void remove_store(const struct going *g, int32_t node)
{
    struct ht_state_options o = {0};
    char store[PATH_MAX];
    path_of(g->r, "store", store);
    o.store = store;
    ht_damage_lose_node(&o, node);
}

static void kill_lost(struct going *g)
{
    g->r->kills += ht_replay_kill(g->folder, g->there, g->r->node_gpus, g->r->day->n_local);
    g->looked_s = ht_now_s();
}

/* Lets all events happen that are due. */
static enum ht_status happen(struct going *g, double elapsed_s, struct ht_error *err)
{
    const struct ht_spot_trace *t = &g->r->day->trace;
    size_t first = g->next;
    bool lost = false;
    int64_t zero = t->events[0].time_ns;
    while (g->next < t->n_events && (double)(t->events[g->next].time_ns - zero) * 1e-9 <= elapsed_s * g->r->speed) {
        const struct ht_spot_event *e = &t->events[g->next++];
        int32_t node = g->r->day->slot[e->node];
        g->noticed[node] = e->kind == HT_SPOT_NOTICE;
        if (e->kind != HT_SPOT_NOTICE) g->there[node] = e->kind == HT_SPOT_JOINED;
        lost |= e->kind == HT_SPOT_LOST;
    }
    if (g->next == first) return HT_OK;
    enum ht_status status = write_lists(g, err);
    if (status || !lost || !g->pid) return status;
    kill_lost(g);
    for (size_t i = first; i < g->next; i++)
        if (t->events[i].kind == HT_SPOT_LOST) remove_store(g, g->r->day->slot[t->events[i].node]);
    g->killing_until_s = ht_now_s() + KILL_S;
    return HT_OK;
}

/* ---- following -------------------------------------------------------------------------------------------------- */

/* Keeps incarnations' files of events, of which the supervisor removes old ones. */
static void link_events(struct going *g)
{
    char from[PATH_MAX], to[PATH_MAX], file[64];
    for (;; g->linked++) {
        ht_incarnation_events(g->folder, g->linked + 1, from);
        snprintf(file, sizeof(file), "events-%lld.jsonl", (long long)g->linked + 1);
        path_of(g->r, file, to);
        if (link(from, to) != 0) return;
    }
}

static enum ht_status ended_early(const struct going *g, struct ht_error *err)
{
    return ht_fail(err, HT_FAILED,
                   "policy '%s': the supervisor ended before the day (status %d): see %.3000s/elastic.txt",
                   g->r->policy->name, WIFEXITED(g->waited) ? WEXITSTATUS(g->waited) : -1, g->r->dir);
}

static void show(struct going *g, double elapsed_s, double all_s)
{
    ht_progress_show(&g->line, "%s, %.0f of %.0f s, event %zu of %zu, incarnation %lld", g->r->policy->name, elapsed_s,
                     all_s, g->next, g->r->day->trace.n_events, (long long)g->linked);
}

static double day_s(const struct ht_replay_run *r)
{
    const struct ht_spot_trace *t = &r->day->trace;
    return (double)(t->events[t->n_events - 1].time_ns - t->events[0].time_ns) * 1e-9 / r->speed;
}

/* Follows the day to its end. */
static enum ht_status follow(struct going *g, struct ht_error *err)
{
    const struct timespec nap = {.tv_nsec = NAP_NS};
    double all_s = day_s(g->r);
    for (double elapsed_s = 0; elapsed_s < all_s; elapsed_s = ht_now_s() - g->begin_s) {
        enum ht_status status = happen(g, elapsed_s, err);
        if (status) return status;
        if (ht_now_s() < g->killing_until_s && ht_now_s() - g->looked_s > AGAIN_NS * 1e-9) kill_lost(g);
        link_events(g);
        if (waitpid(g->pid, &g->waited, WNOHANG) == g->pid) {
            g->pid = 0;
            return ended_early(g, err);
        }
        if (ht_interrupted()) return ht_fail(err, HT_INTERRUPTED, "interrupted");
        show(g, elapsed_s, all_s);
        nanosleep(&nap, NULL);
    }
    g->r->account.end_ns = ht_realtime_ns();
    return HT_OK;
}

/* Asks the supervisor to save and end; kills it when it does not. */
static enum ht_status end(struct going *g, struct ht_error *err)
{
    const struct timespec nap = {.tv_nsec = NAP_NS};
    double begin_s = ht_now_s();
    if (!g->pid) return HT_OK;
    kill(g->pid, SIGINT);
    while (waitpid(g->pid, &g->waited, WNOHANG) == 0) {
        link_events(g);
        nanosleep(&nap, NULL);
        if (ht_now_s() - begin_s < END_S && ht_interrupt_count() < 2) continue;
        kill(g->pid, SIGKILL);
        waitpid(g->pid, &g->waited, 0);
        ht_incarnation_clear(g->folder);
        return ht_fail(err, HT_FAILED, "policy '%s': the supervisor has not ended within %d s of the day's end",
                       g->r->policy->name, END_S);
    }
    g->pid = 0;
    bool asked = WIFEXITED(g->waited) && WEXITSTATUS(g->waited) == HT_INTERRUPTED;
    return asked ? HT_OK : ended_early(g, err);
}

static enum ht_status read_state(const struct ht_replay_run *r, struct ht_error *err, json_t **out)
{
    char path[PATH_MAX];
    path_of(r, "store/elastic/state.json", path);
    *out = json_load_file(path, 0, NULL);
    return *out ? HT_OK : ht_fail(err, HT_FAILED, "%s: cannot be read", path);
}

static enum ht_status take_outcome(struct going *g, struct ht_error *err)
{
    struct ht_replay_run *r = g->r;
    char file[64], path[PATH_MAX];
    json_t *state;
    enum ht_status status = read_state(r, err, &state);
    if (status) return status;
    r->recoveries = json_incref(json_object_get(state, "recoveries"));
    json_decref(state);
    r->incarnations = g->linked;
    r->wall_s = (double)(r->account.end_ns - g->begin_ns) * 1e-9;
    for (int64_t i = 1; i <= g->linked && !status; i++) {
        snprintf(file, sizeof(file), "events-%lld.jsonl", (long long)i);
        path_of(r, file, path);
        status = ht_replay_account_take(&r->account, path, err);
    }
    return status;
}

static enum ht_status make_folders(const struct ht_replay_run *r, char folder[PATH_MAX], struct ht_error *err)
{
    static const char *const folders[] = {"", "tmp", "store", "store/elastic"};
    char path[PATH_MAX];
    for (size_t i = 0; i < HT_COUNT(folders); i++) {
        path_of(r, folders[i], path);
        if (mkdir(path, 0777) != 0)
            return ht_fail(err, HT_BAD_INPUT, "--store: %s: cannot be made: %s", path, strerror(errno));
    }
    if (!realpath(path, folder)) snprintf(folder, PATH_MAX, "%s", path);
    return HT_OK;
}

enum ht_status ht_replay_run(struct ht_replay_run *r, struct ht_error *err)
{
    struct going g = {.r = r, .line = ht_progress_begin("replay")};
    struct ht_args w = {0};
    struct ht_error later = {0};
    enum ht_status status = make_folders(r, g.folder, err);
    if (status) return status;
    g.there = HT_NEW_ARRAY(bool, r->day->n_local);
    g.noticed = HT_NEW_ARRAY(bool, r->day->n_local);
    status = happen(&g, 0, err);
    if (!status) {
        supervise(r, r->steps, true, &w);
        g.begin_s = ht_now_s();
        g.begin_ns = ht_realtime_ns();
        status = start(r, w.words, "elastic.txt", err, &g.pid);
        if (!status) status = follow(&g, err);
        enum ht_status ended = end(&g, &later);
        ht_progress_end(&g.line);
        if (!status && ended) status = ht_fail(err, ended, "%s", later.text);
        if (!status) status = take_outcome(&g, err);
    }
    ht_args_free(&w);
    free(g.there);
    free(g.noticed);
    return status;
}

void ht_replay_run_free(struct ht_replay_run *r)
{
    json_decref(r->recoveries);
    ht_replay_account_free(&r->account);
}

/* ---- the check -------------------------------------------------------------------------------------------------- */

/* Runs the supervisor to its last step. */
static enum ht_status finish(const struct ht_replay_run *r, int64_t steps, struct ht_error *err)
{
    const struct timespec nap = {.tv_nsec = NAP_NS};
    struct ht_args w = {0};
    int waited = 0;
    double begin_s = ht_now_s();
    supervise(r, steps, false, &w);
    pid_t pid;
    enum ht_status status = start(r, w.words, "finish.txt", err, &pid);
    ht_args_free(&w);
    if (status) return status;
    while (waitpid(pid, &waited, WNOHANG) == 0) {
        nanosleep(&nap, NULL);
        if (!ht_interrupted() && ht_now_s() - begin_s < CHECK_S) continue;
        kill(pid, SIGKILL);
        waitpid(pid, &waited, 0);
    }
    if (ht_interrupted()) return ht_fail(err, HT_INTERRUPTED, "interrupted");
    if (WIFEXITED(waited) && WEXITSTATUS(waited) == 0) return HT_OK;
    return ht_fail(err, HT_FAILED, "policy '%s': the training does not go on after the day: see %.3000s/finish.txt",
                   r->policy->name, r->dir);
}

enum ht_status ht_replay_check(const struct ht_replay_run *r, struct ht_error *err, int64_t *steps)
{
    struct ht_options plain = *r->options;
    bool *all = HT_NEW_ARRAY(bool, r->day->n_local), *none = HT_NEW_ARRAY(bool, r->day->n_local);
    json_t *state = NULL;
    memset(all, true, sizeof(*all) * (size_t)r->day->n_local);
    enum ht_status status = write_list(r, "hosts", "localhost node=%d\n", all, err);
    if (!status) status = write_list(r, "notice", "%d\n", none, err);
    *steps = r->account.last_step + 1; /* beyond what any store has */
    if (!status) status = finish(r, *steps, err);
    if (!status) status = read_state(r, err, &state);
    plain.words[0] = r->policy->system;
    plain.n_words = 1;
    plain.training.steps = *steps;
    plain.given[plain.n_given++] = (struct ht_given_option){.name = "clock", .value = "emu", .groups = ~0u};
    plain.given[plain.n_given++] = (struct ht_given_option){.name = "emu-scale", .value = "none", .groups = ~0u};
    if (!status) status = ht_drill_check_losses(&plain, 0, r->dir, json_object_get(state, "runs"), err);
    json_decref(state);
    free(all);
    free(none);
    return status;
}
