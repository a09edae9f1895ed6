#include "harness/elastic/incarnation.h"

#include "common/base/array.h"
#include "common/base/clock.h"
#include "harness/elastic/child.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- start ---- */

/* Writes the command as a shell reads it. */
static void print_command(int log, char *const *argv)
{
    dprintf(log, "$ hetbench");
    for (int i = 1; argv[i]; i++) {
        bool plain = argv[i][0] != '\0';
        for (const char *p = argv[i]; *p; p++)
            plain &= (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9') ||
                     strchr("/._-+,=:@%", *p) != NULL;
        dprintf(log, plain ? " %s" : " '%s'", argv[i]);
    }
    dprintf(log, "\n");
}

void ht_incarnation_events(const char *folder, int64_t number, char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%.3800s/events-%06lld.jsonl", folder, (long long)number);
}

enum ht_status ht_incarnation_start(struct ht_incarnation *x, const char *folder, int64_t number, char *const *argv,
                                    struct ht_error *err)
{
    *x = (struct ht_incarnation){.fd = -1, .from = -1, .step = -1, .saved = -1, .safe = -1, .lost_rank = -1};
    ht_incarnation_events(folder, number, x->events);
    snprintf(x->log, sizeof(x->log), "%.3800s/log-%06lld.txt", folder, (long long)number);
    int log = open(x->log, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666);
    x->fd = open(x->events, O_RDONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (log < 0 || x->fd < 0) {
        enum ht_status status =
            ht_fail(err, HT_FAILED, "%s: cannot be written: %s", log < 0 ? x->log : x->events, strerror(errno));
        if (log >= 0) close(log);
        return status;
    }
    print_command(log, argv);
    x->pid = ht_child_start(argv, log, HT_ELASTIC_VARIABLE, folder);
    close(log);
    if (x->pid < 0) return ht_fail(err, HT_FAILED, "cannot start a process: %s", strerror(errno));
    x->started_ns = x->last_ns = ht_realtime_ns();
    x->heard_s = ht_now_s();
    return HT_OK;
}

void ht_incarnation_close(struct ht_incarnation *x)
{
    if (x->fd >= 0) close(x->fd);
    x->fd = -1;
}

/* ---- events ---- */

static int64_t number_of(const json_t *o, const char *key, int64_t otherwise)
{
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? (int64_t)json_number_value(v) : otherwise;
}

static void copy_text(const json_t *o, const char *key, char *out, size_t cap)
{
    const char *text = json_string_value(json_object_get(o, key));
    snprintf(out, cap, "%s", text ? text : "");
}

static void take_step(struct ht_incarnation *x, int64_t step, int64_t at_ns)
{
    if (!x->first_ns) x->first_ns = at_ns;
    double s = x->step_ns ? (double)(at_ns - x->step_ns) * 1e-9 : 0;
    if (s > x->longest_s) x->longest_s = s;
    x->step = step;
    x->step_ns = at_ns;
}

static void take_event(struct ht_incarnation *x, const json_t *o)
{
    const char *name = json_string_value(json_object_get(o, "event"));
    int64_t at_ns = (int64_t)json_integer_value(json_object_get(o, "at_ns"));
    if (!name) return;
    if (!x->planned_ns && (double)(at_ns - x->last_ns) * 1e-9 > x->silent_s)
        x->silent_s = (double)(at_ns - x->last_ns) * 1e-9;
    snprintf(x->last_event, sizeof(x->last_event), "%s", name);
    if (strcmp(name, "lost") != 0) x->last_ns = at_ns; /* the launcher's, long after the ranks' last */
    if (!strcmp(name, "safe")) x->safe = number_of(o, "step", x->safe);
    if (!strcmp(name, "moved") || !strcmp(name, "safe")) return; /* the load or the save goes on */
    x->saving = !strcmp(name, "saving");
    x->saved_last = !strcmp(name, "saved");
    if (!strcmp(name, "ranks")) {
        x->ranks_ns = at_ns;
    } else if (!strcmp(name, "plan")) {
        x->plan_ns += number_of(o, "ns", 0);
    } else if (!strcmp(name, "planned")) {
        x->planned_ns = at_ns;
        x->predicted_s = (double)number_of(o, "step_ns", 0) * 1e-9;
    } else if (!strcmp(name, "loaded")) {
        x->loaded_ns = at_ns;
        x->from = x->step = number_of(o, "step", -1);
        copy_text(o, "run", x->run, sizeof(x->run));
        copy_text(o, "from", x->from_run, sizeof(x->from_run));
    } else if (!strcmp(name, "step")) {
        take_step(x, number_of(o, "step", x->step), at_ns);
    } else if (!strcmp(name, "saved")) {
        x->saved = number_of(o, "step", x->saved);
        x->step_ns = 0; /* the next step's time has the save in it */
    } else if (!strcmp(name, "broken")) {
        x->broken = true;
    } else if (!strcmp(name, "fault")) {
        x->fault_ns = at_ns;
    } else if (!strcmp(name, "lost")) {
        x->lost_rank = (int32_t)number_of(o, "rank", -1);
        copy_text(o, "host", x->lost_host, sizeof(x->lost_host));
    }
}

static void take_line(struct ht_incarnation *x)
{
    json_t *o = json_loadb(x->line, x->n_line, 0, NULL);
    if (o) take_event(x, o);
    json_decref(o);
    x->n_line = 0;
    x->heard_s = ht_now_s();
}

void ht_incarnation_read(struct ht_incarnation *x)
{
    char text[4096];
    ssize_t got;
    while ((got = read(x->fd, text, sizeof(text))) > 0)
        for (ssize_t i = 0; i < got; i++) {
            if (text[i] == '\n')
                take_line(x);
            else if (x->n_line < sizeof(x->line))
                x->line[x->n_line++] = text[i];
        }
}

/* ---- end ---- */

bool ht_incarnation_has_ended(struct ht_incarnation *x)
{
    if (x->ended_ns) return true;
    if (waitpid(x->pid, &x->waited, WNOHANG) != x->pid) return false;
    x->ended_ns = ht_realtime_ns();
    return true;
}

void ht_incarnation_stop(struct ht_incarnation *x)
{
    if (!x->stopping) kill(x->pid, SIGINT);
    if (!x->stopping) x->stopped_s = ht_now_s();
    x->stopping = true;
}

/* Returns true if a process was started for the folder's supervisor. */
static bool is_ours(pid_t pid, const char *folder)
{
    char path[64], *word = NULL;
    size_t cap = 0, n = strlen(HT_ELASTIC_VARIABLE);
    bool ours = false;
    snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid);
    FILE *f = fopen(path, "re");
    while (f && !ours && getdelim(&word, &cap, '\0', f) > 0)
        ours = !strncmp(word, HT_ELASTIC_VARIABLE "=", n + 1) && !strcmp(word + n + 1, folder);
    if (f) fclose(f);
    free(word);
    return ours;
}

int32_t ht_incarnation_each(const char *folder, void (*visit)(void *ctx, pid_t pid), void *ctx)
{
    DIR *proc = opendir("/proc");
    int32_t n = 0;
    for (struct dirent *d; proc && (d = readdir(proc)) != NULL;) {
        pid_t pid = (pid_t)strtol(d->d_name, NULL, 10);
        if (pid <= 0 || pid == getpid() || !is_ours(pid, folder)) continue;
        visit(ctx, pid);
        n++;
    }
    if (proc) closedir(proc);
    return n;
}

static void kill_one(void *ctx, pid_t pid)
{
    (void)ctx;
    kill(pid, SIGKILL);
}

int32_t ht_incarnation_clear(const char *folder)
{
    const struct timespec nap = {.tv_nsec = 5000000};
    int32_t first = ht_incarnation_each(folder, kill_one, NULL);
    for (int32_t i = 0, n = first; i < 2000 && n > 0; i++) {
        nanosleep(&nap, NULL);
        n = ht_incarnation_each(folder, kill_one, NULL);
    }
    return first;
}

/* Copies the last line of a log that hetbench wrote itself, without "hetbench: ". */
static void last_error(const char *path, char *out, size_t cap)
{
    const char *own = "hetbench: ", *warning = "hetbench: warning: ";
    char *line = NULL;
    size_t n = 0;
    FILE *f = fopen(path, "re");
    out[0] = '\0';
    while (f && getline(&line, &n, f) > 0) {
        if (strncmp(line, own, strlen(own)) != 0 || !strncmp(line, warning, strlen(warning))) continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(out, cap, "%s", line + strlen(own));
    }
    if (f) fclose(f);
    free(line);
}

enum ht_status ht_incarnation_status(const struct ht_incarnation *x, struct ht_error *err)
{
    char text[900];
    if (WIFEXITED(x->waited) && WEXITSTATUS(x->waited) == 0) return HT_OK;
    last_error(x->log, text, sizeof(text));
    if (WIFSIGNALED(x->waited))
        return ht_fail(err, HT_FAILED, "the only rank was killed by signal %d", WTERMSIG(x->waited));
    return ht_fail(err, (enum ht_status)WEXITSTATUS(x->waited), "%s", text[0] ? text : "it ended without a word");
}
