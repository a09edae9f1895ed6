#include "harness/elastic/hang.h"

#include "common/base/clock.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    FINISH_S = 3600,      /* after the last save, which may still be on its way to a slow store */
    START_S = 120,        /* a start before any has trained, a load, a save */
    SLOWEST = 20,         /* times the longest silence, or iteration, that was seen or predicted */
    STACKS_NS = 500000000 /* for the ranks to write their stacks */
};

double ht_hang_patience_s(const struct ht_incarnation *x, double least_s, double start_s, int64_t last)
{
    double longest = x->longest_s > x->predicted_s ? x->longest_s : x->predicted_s, silent = START_S;
    bool finishes = x->saved_last && (x->stopping || x->step == last);
    if (finishes) return FINISH_S > SLOWEST * longest ? FINISH_S : SLOWEST * longest;
    if (!x->planned_ns && start_s > 0) silent = SLOWEST * start_s;
    if (x->loaded_ns && !x->saving) silent = SLOWEST * longest;
    return silent > least_s ? silent : least_s;
}

/* Writes the part in which the incarnation is. */
static void print_part(const struct ht_incarnation *x, char *text, size_t cap)
{
    if (!x->ranks_ns && !x->planned_ns)
        snprintf(text, cap, "the start of the ranks");
    else if (!x->planned_ns)
        snprintf(text, cap, "planning");
    else if (!x->loaded_ns)
        snprintf(text, cap, "loading");
    else if (x->saving)
        snprintf(text, cap, "the save of step %lld", (long long)x->step);
    else if (x->saved_last)
        snprintf(text, cap, "what follows the save of step %lld", (long long)x->step);
    else
        snprintf(text, cap, "step %lld", (long long)x->step + 1);
}

void ht_hang_print(const struct ht_incarnation *x, char *text, size_t cap)
{
    char part[64];
    print_part(x, part, sizeof(part));
    snprintf(text, cap, "hang in %s: nothing for %.0f s since '%s'", part, ht_now_s() - x->heard_s,
             x->last_event[0] ? x->last_event : "start");
}

/* ---- processes ---- */

/* Reads the first line of a file of /proc. */
static void read_line(char *text, size_t cap, const char *form, int pid, int tid, const char *file)
{
    char path[96];
    snprintf(path, sizeof(path), form, pid, tid, file);
    FILE *f = fopen(path, "re");
    if (!f || !fgets(text, (int)cap, f)) snprintf(text, cap, "?");
    text[strcspn(text, "\n")] = '\0';
    if (f) fclose(f);
}

static char state_of(int pid, int tid)
{
    char stat[512];
    read_line(stat, sizeof(stat), "/proc/%d/task/%d/%s", pid, tid, "stat");
    const char *end = strrchr(stat, ')');
    return end && end[1] ? end[2] : '?';
}

static void describe_thread(int log, int pid, int tid)
{
    char name[64], wait[64], call[256];
    read_line(name, sizeof(name), "/proc/%d/task/%d/%s", pid, tid, "comm");
    read_line(wait, sizeof(wait), "/proc/%d/task/%d/%s", pid, tid, "wchan");
    read_line(call, sizeof(call), "/proc/%d/task/%d/%s", pid, tid, "syscall");
    call[strcspn(call, " ")] = '\0';
    dprintf(log, "  thread %d (%s): state %c, in %s, system call %s\n", tid, name, state_of(pid, tid), wait, call);
}

/* Returns true if a process has a handler for SIGUSR2: another one would die of it. */
static bool writes_stacks(int pid)
{
    char path[64], line[256];
    unsigned long long caught = 0;
    snprintf(path, sizeof(path), "/proc/%d/status", pid);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "SigCgt: %llx", &caught) == 1) break;
    if (f) fclose(f);
    return caught >> (SIGUSR2 - 1) & 1;
}

/* A function of each thread of a process. */
static void each_thread(int pid, void (*visit)(void *ctx, int pid, int tid), void *ctx)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/task", pid);
    DIR *tasks = opendir(path);
    for (struct dirent *d; tasks && (d = readdir(tasks)) != NULL;) {
        int tid = (int)strtol(d->d_name, NULL, 10);
        if (tid > 0) visit(ctx, pid, tid);
    }
    if (tasks) closedir(tasks);
}

static void on_thread(void *ctx, int pid, int tid)
{
    describe_thread(*(const int *)ctx, pid, tid);
}

static void describe_process(void *ctx, pid_t pid)
{
    char words[160] = "";
    int log = *(const int *)ctx, fd;
    snprintf(words, sizeof(words), "/proc/%d/cmdline", (int)pid);
    fd = open(words, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, words, sizeof(words) - 1);
    if (fd >= 0) close(fd);
    words[n > 0 ? n : 0] = '\0';
    for (ssize_t i = 0; i + 1 < n; i++)
        if (!words[i]) words[i] = ' ';
    dprintf(log, "process %d: %s\n", (int)pid, words);
    each_thread(pid, on_thread, ctx);
}

static void ask_for_stack(void *ctx, int pid, int tid)
{
    (void)ctx;
    syscall(SYS_tgkill, pid, tid, SIGUSR2);
}

static void ask_for_stacks(void *ctx, pid_t pid)
{
    if (writes_stacks(pid)) each_thread(pid, ask_for_stack, ctx);
}

void ht_hang_describe(const struct ht_incarnation *x, const char *folder)
{
    const struct timespec nap = {.tv_nsec = STACKS_NS};
    char text[256];
    int log = open(x->log, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (log < 0) return;
    ht_hang_print(x, text, sizeof(text));
    dprintf(log, "%s\n", text);
    ht_incarnation_each(folder, describe_process, &log);
    ht_incarnation_each(folder, ask_for_stacks, NULL);
    close(log);
    nanosleep(&nap, NULL);
}
