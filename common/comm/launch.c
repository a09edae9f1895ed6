#include "common/comm/launch.h"

#include "common/base/array.h"
#include "common/base/interrupt.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define FOLDER_VARIABLE "HETBENCH_LAUNCHER"

static int32_t number_in(const char *variable)
{
    const char *text = getenv(variable);
    return text ? (int32_t)strtol(text, NULL, 10) : 0;
}

int32_t ht_launched_ranks(void)
{
    return number_in("OMPI_COMM_WORLD_SIZE");
}

/* ---- in a rank -------------------------------------------------------------------------------------------------- */

static void on_signal(int signo)
{
    (void)signo;
    ht_interrupt_set(true);
}

void ht_launch_begin(void)
{
    const char *folder = getenv(FOLDER_VARIABLE);
    char path[4200];
    struct sigaction sa = {.sa_handler = on_signal};
    sigemptyset(&sa.sa_mask);
    sigaction(SIGUSR1, &sa, NULL);
    prctl(PR_SET_PDEATHSIG, (unsigned long)SIGKILL);
    if (!folder) return;
    snprintf(path, sizeof(path), "%s/interrupted", folder);
    if (access(path, F_OK) == 0) ht_interrupt_set(true);
}

bool ht_launch_report(enum ht_status status, const struct ht_error *err)
{
    const char *folder = getenv(FOLDER_VARIABLE);
    char mine[4200], path[4200], text[sizeof(err->text) + 32];
    if (!folder) return false;
    snprintf(mine, sizeof(mine), "%s/status.%d", folder, (int)getpid());
    snprintf(path, sizeof(path), "%s/status", folder);
    int n = snprintf(text, sizeof(text), "%d\n%s", (int)status, status == HT_OK ? "" : err->text);
    int fd = open(mine, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) return false;
    bool written = write(fd, text, (size_t)n) == n;
    close(fd);
    if (written) (void)!link(mine, path); /* whole or not at all; fails when another was first */
    return written;
}

/* ---- the launcher ----------------------------------------------------------------------------------------------- */

struct command {
    char **words;
    size_t n, cap;
};

static void add(struct command *c, const char *word)
{
    HT_PUSH(c->words, c->n, c->cap, word ? ht_strdup(word) : NULL);
}

static void set(struct command *c, const char *name, const char *value)
{
    add(c, "--mca");
    add(c, name);
    add(c, value);
}

/* All ranks on this machine, whatever it has of cores, networks, resource managers and rights. */
static void write_command(struct command *c, int32_t ranks, const char *folder, char *const argv[])
{
    char text[32], program[4096];
    ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 1);
    program[n > 0 ? n : 0] = '\0';
    add(c, "mpirun");
    if (geteuid() == 0) add(c, "--allow-run-as-root"); /* a container's only user */
    add(c, "--oversubscribe");                         /* more ranks than cores */
    add(c, "--bind-to");                               /* ranks choose their cores themselves */
    add(c, "none");
    set(c, "plm", "isolated");                      /* no ssh, no resource manager */
    set(c, "ras", "^slurm,gridengine,tm,lsf,alps"); /* the ranks are this machine's, whose job it may be */
    set(c, "oob_tcp_if_include", "lo");
    set(c, "btl", "self,vader"); /* shared memory, */
    set(c, "pml", "ob1");
    set(c, "btl_vader_single_copy_mechanism", "none"); /* without the right to read other processes' memory, */
    set(c, "btl_vader_backing_directory", folder);     /* and not in /dev/shm, where it could be left */
    set(c, "orte_tmpdir_base", folder);
    set(c, "mpi_yield_when_idle", "1");
    add(c, "-n");
    snprintf(text, sizeof(text), "%d", ranks);
    add(c, text);
    add(c, n > 0 ? program : argv[0]);
    for (int i = 1; argv[i]; i++) add(c, argv[i]);
    add(c, NULL);
}

static void free_command(struct command *c)
{
    for (size_t i = 0; i < c->n; i++) free(c->words[i]);
    free(c->words);
}

/* In the child. */
static _Noreturn void become_mpirun(struct command *c, const char *folder, pid_t launcher)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, (unsigned long)SIGTERM);
    if (getppid() != launcher) _exit(1);
    setenv(FOLDER_VARIABLE, folder, 1);
#ifdef __SANITIZE_ADDRESS__
    setenv("LSAN_OPTIONS", "detect_leaks=0", 0); /* MPI never gives back what it has at its end */
#endif
    int null = open("/dev/null", O_RDONLY);
    if (null >= 0) dup2(null, STDIN_FILENO);
    execvp(c->words[0], c->words);
    _exit(errno == ENOENT ? 127 : 126);
}

/* To the ranks that are there by a signal, to those that mpirun has not started yet by a file. */
static void interrupt(pid_t pid, const char *folder)
{
    char path[4200];
    snprintf(path, sizeof(path), "%s/interrupted", folder);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0) close(fd);
    kill(pid, SIGUSR1);
}

/* Waits for mpirun; passes an interrupt on, and ends it at the second. */
static int wait_for(pid_t pid, const char *folder)
{
    const struct timespec nap = {.tv_nsec = 10000000};
    int status = 0, told = 0;
    for (;;) {
        pid_t done = waitpid(pid, &status, WNOHANG);
        if (done == pid) return status;
        if (done < 0 && errno != EINTR) return -1;
        if (ht_interrupted() && told == 0) interrupt(pid, folder), told = 1;
        if (ht_interrupt_count() > 1 && told == 1) kill(pid, SIGKILL), told = 2;
        nanosleep(&nap, NULL);
    }
}

static bool is_child(const char *pid)
{
    char path[300], text[512];
    int parent = 0;
    snprintf(path, sizeof(path), "/proc/%s/stat", pid);
    FILE *f = fopen(path, "re");
    if (!f) return false;
    text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
    fclose(f);
    const char *name_end = strrchr(text, ')'); /* PID (NAME) STATE PARENT .. */
    return name_end && sscanf(name_end, ") %*c %d", &parent) == 1 && parent == (int)getpid();
}

enum kin { STRANGER, RANK, UNKNOWN };

/* All below mpirun have the launcher's folder in their environment; of a process that is about to end, or to become
   another program, nothing can be read. */
static enum kin kin_of(const char *pid, const char *folder)
{
    const char *name = FOLDER_VARIABLE "=";
    char path[300], *word = NULL;
    size_t cap = 0;
    enum kin kin = UNKNOWN;
    snprintf(path, sizeof(path), "/proc/%s/environ", pid);
    FILE *f = fopen(path, "re");
    if (!f) return errno == EACCES || errno == EPERM ? STRANGER : UNKNOWN;
    while (kin != RANK && getdelim(&word, &cap, '\0', f) > 0)
        kin = !strncmp(word, name, strlen(name)) && !strcmp(word + strlen(name), folder) ? RANK : STRANGER;
    fclose(f);
    free(word);
    return kin;
}

/* Kills the ranks among this process's children; false: there was none. */
static bool kill_ranks(const char *folder)
{
    DIR *proc = opendir("/proc");
    bool any = false;
    for (struct dirent *d; proc && (d = readdir(proc)) != NULL;) {
        int pid = (int)strtol(d->d_name, NULL, 10);
        enum kin kin = pid > 0 && is_child(d->d_name) ? kin_of(d->d_name, folder) : STRANGER;
        if (kin == RANK) kill(pid, SIGKILL);
        any |= kin != STRANGER;
    }
    if (proc) closedir(proc);
    return any;
}

/* mpirun has gone. Ranks that it has left behind are children of this process now, the nearest subreaper; those that
   have not asked for a signal yet would go on. Who became this program may have had children before, such as a log's
   tee: they stay. Not for ever: a process that the kernel holds cannot be killed. */
static void end_orphans(const char *folder)
{
    const struct timespec nap = {.tv_nsec = 10000000};
    for (int i = 0; i < 500; i++) {
        while (waitpid(-1, NULL, WNOHANG) > 0) continue;
        if (!kill_ranks(folder)) return;
        nanosleep(&nap, NULL);
    }
}

static enum ht_status outcome(const char *folder, int waited, struct ht_error *err)
{
    char path[4200], text[sizeof(err->text) + 32], *line;
    const char *at_once = "interrupted twice, so the ranks were ended at once";
    bool twice = ht_interrupt_count() > 1;
    snprintf(path, sizeof(path), "%s/status", folder);
    FILE *f = fopen(path, "re");
    if (f) {
        size_t n = fread(text, 1, sizeof(text) - 1, f);
        fclose(f);
        text[n] = '\0';
        enum ht_status status = (enum ht_status)strtol(text, &line, 10);
        bool well = WIFEXITED(waited) && WEXITSTATUS(waited) == 0;
        if (status == HT_OK && well) return HT_OK;
        if (twice && status != HT_INTERRUPTED) return ht_fail(err, HT_INTERRUPTED, "%s", at_once);
        if (status == HT_OK) return ht_fail(err, HT_FAILED, "a rank did not end well, after all had been done");
        return ht_fail(err, status, "%s", *line ? line + 1 : "");
    }
    if (WIFEXITED(waited) && WEXITSTATUS(waited) == 127)
        return ht_fail(err, HT_INFEASIBLE, "mpirun is not installed, so there is one rank (Debian: openmpi-bin)");
    if (twice) return ht_fail(err, HT_INTERRUPTED, "%s", at_once);
    if (ht_interrupted()) return ht_fail(err, HT_INTERRUPTED, "interrupted before the ranks had begun");
    if (WIFEXITED(waited) && WEXITSTATUS(waited) > 128)
        return ht_fail(err, HT_FAILED, "a rank was killed by signal %d, which ends all of them",
                       WEXITSTATUS(waited) - 128);
    return ht_fail(err, HT_FAILED, "the ranks ended without a word; mpirun's status is %d",
                   WIFEXITED(waited) ? WEXITSTATUS(waited) : -1);
}

static int remove_one(const char *path, const struct stat *sb, int kind, struct FTW *ftw)
{
    (void)sb, (void)kind, (void)ftw;
    return remove(path) && errno != ENOENT;
}

enum ht_status ht_launch(int32_t ranks, char *const argv[], struct ht_error *err)
{
    const char *base = getenv("TMPDIR");
    char folder[4096];
    struct command c = {0};
    snprintf(folder, sizeof(folder), "%s/hetbench-XXXXXX", base && *base ? base : "/tmp");
    if (!mkdtemp(folder))
        return ht_fail(err, HT_FAILED, "%s: no folder can be made for the ranks: %s", folder, strerror(errno));
    write_command(&c, ranks, folder, argv);
    fflush(NULL);
    prctl(PR_SET_CHILD_SUBREAPER, 1UL);
    signal(SIGCHLD, SIG_DFL); /* where it is ignored, nobody hears how mpirun ended */
    ht_interrupt_keep();
    pid_t launcher = getpid(), pid = fork();
    if (pid == 0) become_mpirun(&c, folder, launcher);
    enum ht_status status = HT_OK;
    if (pid < 0) status = ht_fail(err, HT_FAILED, "mpirun cannot be started: %s", strerror(errno));
    if (pid > 0) {
        int waited = wait_for(pid, folder);
        end_orphans(folder);
        status = outcome(folder, waited, err);
    }
    free_command(&c);
    nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    return status;
}
