#include "harness/elastic/left.h"

#include "harness/elastic/cell.h"
#include "harness/elastic/members.h"

#include <dirent.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { NAP_MS = 10 };

/* Returns true if a process's environment has this word. */
static bool has_word(pid_t pid, const char *word)
{
    char path[64], *text = NULL;
    size_t cap = 0;
    bool has = false;
    snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid);
    FILE *f = fopen(path, "re");
    while (f && !has && getdelim(&text, &cap, '\0', f) > 0) has = !strcmp(text, word);
    if (f) fclose(f);
    free(text);
    return has;
}

/* Returns the number of processes, this one apart, that have the word; NULL: of all. name: one of them. kills: they are killed. */
static int32_t count_processes(const char *word, char name[64], bool kills)
{
    char path[64];
    int32_t n = 0;
    DIR *proc = opendir("/proc");
    for (struct dirent *d; proc && (d = readdir(proc)) != NULL;) {
        pid_t pid = (pid_t)strtol(d->d_name, NULL, 10);
        if (pid <= 0 || pid == getpid() || (word && !has_word(pid, word))) continue;
        snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
        FILE *f = fopen(path, "re");
        if (f && fgets(name, 64, f)) name[strcspn(name, "\n")] = '\0';
        if (f) fclose(f);
        if (kills) kill(pid, SIGKILL);
        n++;
    }
    if (proc) closedir(proc);
    return n;
}

static enum ht_status check_processes(const char *dir, bool sealed, int64_t grace_ms, struct ht_error *err)
{
    const struct timespec nap = {.tv_nsec = NAP_MS * 1000000L};
    char word[PATH_MAX + 16], name[64] = "";
    int32_t n;
    snprintf(word, sizeof(word), "TMPDIR=%s/tmp", dir);
    const char *of = sealed ? NULL : word;
    for (int64_t ms = 0;; ms += NAP_MS) {
        if (sealed) ht_cell_reap();
        n = count_processes(of, name, false);
        if (n == 0) return HT_OK;
        if (ms >= grace_ms) break;
        nanosleep(&nap, NULL);
    }
    count_processes(of, name, true);
    return ht_fail(err, HT_FAILED, "%d processes are left, of %s", n, name);
}

/* Returns the number of names in a folder. name: one of them. */
static int32_t count_names(const char *dir, char name[256])
{
    int32_t n = 0;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        snprintf(name, 256, "%s", e->d_name);
        n++;
    }
    if (d) closedir(d);
    return n;
}

static enum ht_status check_folder(const char *dir, struct ht_error *err)
{
    char name[256];
    int32_t n = count_names(dir, name);
    return n ? ht_fail(err, HT_FAILED, "%d files are left in %s, such as %s", n, dir, name) : HT_OK;
}

/* Returns true if the mount at a path is the folder's. */
static bool is_in(const char *path, const char *dir)
{
    size_t n = strlen(dir);
    return !strncmp(path, dir, n) && (path[n] == '/' || path[n] == '\0');
}

static enum ht_status check_mounts(const char *dir, const char *expected, struct ht_error *err)
{
    char line[2 * PATH_MAX], at[PATH_MAX];
    enum ht_status status = HT_OK;
    FILE *f = fopen("/proc/self/mountinfo", "re");
    while (f && status == HT_OK && fgets(line, sizeof(line), f)) /* ID PARENT MAJOR:MINOR ROOT AT .. */
        if (sscanf(line, "%*d %*d %*s %*s %4095s", at) == 1 && is_in(at, dir) &&
            (!expected || strcmp(at, expected) != 0))
            status = ht_fail(err, HT_FAILED, "%s is left as a mount", at);
    if (f) fclose(f);
    return status;
}

/* Returns the node whose store a path is in; -1: in none. */
static int32_t node_of(const char *path)
{
    const char *at = strstr(path, "/node-");
    return at ? (int32_t)strtol(at + strlen("/node-"), NULL, 10) : -1;
}

/* Looks for half-written files below a folder. */
static enum ht_status check_partial(const char *dir, const char *nodes, struct ht_error *err)
{
    static const char end[] = ".partial";
    char path[PATH_MAX];
    enum ht_status status = HT_OK;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && status == HT_OK && (e = readdir(d)) != NULL;) {
        size_t n = strlen(e->d_name), last = strlen(end);
        if (e->d_name[0] == '.' || snprintf(path, sizeof(path), "%.3000s/%s", dir, e->d_name) < 0) continue;
        int32_t node = node_of(path);
        bool partial = n > last && !strcmp(e->d_name + n - last, end);
        if (partial && (node < 0 || (nodes && ht_list_has(nodes, node))))
            status = ht_fail(err, HT_FAILED, "%.800s is left half-written", path);
        if (status == HT_OK && e->d_type == DT_DIR) status = check_partial(path, nodes, err);
    }
    if (d) closedir(d);
    return status;
}

enum ht_status ht_left_check(const char *dir, const char *nodes, const char *mount, bool sealed, int64_t grace_ms,
                             struct ht_error *err)
{
    char whole[PATH_MAX], tmp[PATH_MAX + 8];
    if (!realpath(dir, whole)) snprintf(whole, sizeof(whole), "%s", dir);
    snprintf(tmp, sizeof(tmp), "%s/tmp", whole);
    enum ht_status status = check_processes(dir, sealed, grace_ms, err);
    if (status == HT_OK && sealed) status = check_folder("/dev/shm", err);
    if (status == HT_OK) status = check_mounts(whole, mount, err);
    if (status == HT_OK) status = check_folder(tmp, err);
    return status == HT_OK ? check_partial(whole, nodes, err) : status;
}
