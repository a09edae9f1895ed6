#include "harness/days/replay_kill.h"

#include "common/base/array.h"
#include "harness/elastic/incarnation.h"
#include "harness/elastic/members.h"
#include "harness/run/events.h"

#include <ctype.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A process of an incarnation, from /proc. */
struct process {
    pid_t pid;
    char folder[PATH_MAX], nodes[HT_MEMBER_LIST], events[PATH_MAX];
    int32_t rank; /* -1: mpirun has not started it */
};

/* Calls take for each word of a list of strings that end in NUL. */
static void each_word(pid_t pid, const char *file, void (*take)(struct process *p, const char *before, const char *w),
                      struct process *p)
{
    char path[64], *word = NULL, *before = ht_strdup("");
    size_t cap = 0;
    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
    FILE *f = fopen(path, "re");
    while (f && getdelim(&word, &cap, '\0', f) > 0) {
        take(p, before, word);
        free(before);
        before = ht_strdup(word);
    }
    if (f) fclose(f);
    free(word);
    free(before);
}

static void take_variable(struct process *p, const char *before, const char *w)
{
    const char *folder = HT_ELASTIC_VARIABLE "=", *rank = "OMPI_COMM_WORLD_RANK=";
    (void)before;
    if (!strncmp(w, folder, strlen(folder))) snprintf(p->folder, sizeof(p->folder), "%s", w + strlen(folder));
    if (!strncmp(w, rank, strlen(rank))) p->rank = (int32_t)strtol(w + strlen(rank), NULL, 10);
}

static void take_argument(struct process *p, const char *before, const char *w)
{
    if (!strcmp(before, "--only-nodes")) snprintf(p->nodes, sizeof(p->nodes), "%s", w);
    if (!strcmp(before, "--events")) snprintf(p->events, sizeof(p->events), "%s", w);
}

/* Returns the node of a process, -1 if it is no rank. What has started the only rank's process is taken for it. */
static int32_t node_of(const struct process *p, const int32_t *node_gpus, int32_t n)
{
    int32_t nodes = ht_list_count(p->nodes), end = 0;
    if (p->rank < 0) return nodes == 1 ? ht_list_at(p->nodes, 0) : -1;
    for (int32_t i = 0; i < nodes; i++) {
        int32_t node = ht_list_at(p->nodes, i);
        end += node >= 0 && node < n ? node_gpus[node] : 0;
        if (p->rank < end) return node;
    }
    return -1;
}

static bool has_ended(pid_t pid)
{
    char path[64], state = 'X';
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "re");
    if (f && fscanf(f, "%*d (%*[^)]) %c", &state) != 1) state = 'X';
    if (f) fclose(f);
    return state == 'Z' || state == 'X';
}

/* Waits until processes that were killed are gone. */
static void await(const pid_t *pids, size_t n)
{
    const struct timespec nap = {.tv_nsec = 1000000};
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < 5000 && !has_ended(pids[i]); k++) nanosleep(&nap, NULL);
}

static void note_fault(const struct process *p)
{
    struct ht_error ignored;
    int fd;
    if (!p->events[0] || ht_events_open(p->events, &ignored, &fd) != HT_OK) return;
    ht_events_say(fd, "fault", NULL);
    ht_events_close(fd);
}

int32_t ht_replay_kill(const char *folder, const bool *there, const int32_t *node_gpus, int32_t n)
{
    struct process *p = HT_NEW(struct process);
    pid_t *killed = NULL;
    size_t n_killed = 0, cap = 0;
    DIR *proc = opendir("/proc");
    for (struct dirent *d; proc && (d = readdir(proc)) != NULL;) {
        if (!isdigit((unsigned char)d->d_name[0])) continue;
        *p = (struct process){.pid = (pid_t)strtol(d->d_name, NULL, 10), .rank = -1};
        each_word(p->pid, "environ", take_variable, p);
        if (strcmp(p->folder, folder) != 0) continue;
        each_word(p->pid, "cmdline", take_argument, p);
        int32_t node = node_of(p, node_gpus, n);
        if (node < 0 || node >= n || there[node] || has_ended(p->pid)) continue;
        if (!n_killed) note_fault(p);
        if (kill(p->pid, SIGKILL) == 0) HT_PUSH(killed, n_killed, cap, p->pid);
    }
    if (proc) closedir(proc);
    await(killed, n_killed);
    free(killed);
    free(p);
    return (int32_t)n_killed;
}
