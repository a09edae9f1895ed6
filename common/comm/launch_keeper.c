/* The keeper: starts mpirun, follows the ranks, and ends all of them. */
#include "common/comm/launch_keeper.h"

#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/comm/launch_message.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    STARTING_MS = 2, /* how often to look for mpirun's children until all have connected */
    ENDING_MS = 5,   /* how often to ask whether mpirun has ended, once a rank has */
    QUIET_MS = 200,  /* how often to look otherwise */
    GRACE_S = 3,     /* after a rank's report of a failure mpirun ends within this time, or it hangs */
    SOON_NS = 50000000,
    UNKNOWN_CODE = -1 /* the kernel no longer knows how the process ended */
};

struct rank {
    pid_t pid;
    int32_t rank; /* -1: not known */
    int link;     /* -1: not connected yet, or no longer */
    bool begun;   /* MPI has started */
    bool ok, reported, gone;
};

struct keeper {
    const struct ht_keeper_job *job;
    int launcher, listener, output; /* output: what mpirun prints */
    pid_t mpirun;
    struct rank *ranks; /* processes that are known to be ranks */
    size_t n, cap;
    int32_t n_connected;
    struct pollfd *poll;
    size_t poll_cap;
    int interrupts;
    bool too_early;        /* the first interrupt came before all ranks had connected */
    int64_t deadline_ns;   /* 0: none */
    bool overdue;          /* mpirun was killed at the deadline */
    struct ht_error first; /* the first error that a rank reported, if none had died without a report before */
    bool died;             /* a rank died without a report before any reported an error */
    int32_t dead;          /* its number; -1: not known */
    bool at_work;          /* it had begun */
    int32_t lost;          /* the first rank that died without a report, whoever reported an error before; -1: none */
    int code;              /* how it ended, in waitpid's form */
    char printed[4096];    /* the beginning of mpirun's output; ends with a zero */
    size_t n_printed;
};

/* ---- /proc ------------------------------------------------------------------------------------------------------ */

/* Reads a process's parent and, for one that has ended and was not waited for, how it ended. */
static bool read_stat(int pid, int *parent, char *state, int *code)
{
    char path[64], text[1024];
    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    FILE *f = fopen(path, "re");
    if (!f) return false;
    text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
    fclose(f);
    const char *name_end = strrchr(text, ')'), *last = strrchr(text, ' '); /* PID (NAME) STATE PARENT .. CODE */
    if (!name_end || sscanf(name_end, ") %c %d", state, parent) != 2) return false;
    *code = (int)strtol(last, NULL, 10);
    return true;
}

/* Finds an environment variable of a process. *value is NULL when the process does not have it; the caller frees it.
   Returns false when it cannot be read, as when the process is about to end or to run another program. */
static bool read_variable(int pid, const char *name, char **value)
{
    char path[64], *word = NULL;
    size_t cap = 0, n = strlen(name);
    bool any = false;
    *value = NULL;
    snprintf(path, sizeof(path), "/proc/%d/environ", pid);
    FILE *f = fopen(path, "re");
    if (!f) return errno == EACCES || errno == EPERM;
    while (!*value && getdelim(&word, &cap, '\0', f) > 0) {
        any = true;
        if (!strncmp(word, name, n) && word[n] == '=') *value = ht_strdup(word + n + 1);
    }
    fclose(f);
    free(word);
    return any;
}

/* ---- ending all ------------------------------------------------------------------------------------------------- */

/* Kills this launcher's processes among the children of this one. Returns true when there was one. Sets *unknown when a
   child cannot be read. This process may have had other children before it ran this program, such as a log's tee: they
   stay. */
static bool kill_children(const char *launcher, bool *unknown)
{
    DIR *proc = opendir("/proc");
    bool any = false;
    *unknown = false;
    for (struct dirent *d; proc && (d = readdir(proc)) != NULL;) {
        int pid = (int)strtol(d->d_name, NULL, 10), parent, code;
        char state, *value;
        if (pid <= 0 || !read_stat(pid, &parent, &state, &code) || parent != (int)getpid()) continue;
        bool readable = read_variable(pid, HT_LAUNCHER_VARIABLE, &value), ours = value && !strcmp(value, launcher);
        if (ours) kill(pid, SIGKILL);
        any |= ours;
        *unknown |= !readable;
        free(value);
    }
    if (proc) closedir(proc);
    return any;
}

void ht_keeper_end_children(const char *name)
{
    const struct timespec nap = {.tv_nsec = 10000000};
    bool unknown;
    for (int i = 0, quiet = 0; i < 500 && quiet < 20; i++) { /* another process may stay unreadable */
        while (waitpid(-1, NULL, WNOHANG) > 0) continue;
        quiet = kill_children(name, &unknown) ? 0 : quiet + 1;
        if (quiet && !unknown) return;
        nanosleep(&nap, NULL);
    }
}

static int remove_one(const char *path, const struct stat *sb, int kind, struct FTW *ftw)
{
    (void)sb, (void)kind, (void)ftw;
    return remove(path) && errno != ENOENT;
}

void ht_keeper_remove(const char *folder)
{
    nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* ---- ranks ------------------------------------------------------------------------------------------------------ */

static struct rank *find(struct keeper *k, pid_t pid)
{
    for (size_t i = 0; i < k->n; i++)
        if (k->ranks[i].pid == pid) return &k->ranks[i];
    HT_PUSH(k->ranks, k->n, k->cap, ((struct rank){.pid = pid, .rank = -1, .link = -1}));
    return &k->ranks[k->n - 1];
}

static void set_deadline(struct keeper *k, int64_t ns)
{
    int64_t deadline_ns = ht_now_ns() + ns;
    if (!k->deadline_ns || deadline_ns < k->deadline_ns) k->deadline_ns = deadline_ns;
}

/* Records that a rank's process has ended. The others may wait for one that did not end well. After one that left no report in the
   middle of its work they are ended soon: mpirun would take seconds for that. Before, mpirun may have a reason to print; and ranks
   die a moment before their mpirun is seen to have been killed. */
static void record_end(struct keeper *k, struct rank *r)
{
    int parent, code = 0;
    char state;
    bool all = true, known = read_stat(r->pid, &parent, &state, &code);
    if (r->link >= 0) close(r->link);
    r->link = -1;
    r->gone = true;
    for (size_t i = 0; i < k->n; i++) all &= k->ranks[i].gone;
    if (!r->ok || (all && k->n_connected == k->job->ranks)) set_deadline(k, (int64_t)GRACE_S * 1000000000);
    if (!r->reported && r->begun) set_deadline(k, SOON_NS);
    if (!r->reported && k->lost < 0) k->lost = r->rank;
    if (r->ok || k->first.status || k->died) return;
    k->died = true;
    k->dead = r->rank;
    k->at_work = r->begun;
    k->code = known && code ? code : UNKNOWN_CODE; /* 0: no permission to read it */
}

/* Finds ranks among mpirun's children. A rank that dies before it has connected would go unnoticed, and mpirun may hang
   on it. */
static void find_ranks(struct keeper *k)
{
    char path[300];
    snprintf(path, sizeof(path), "/proc/%d/task", (int)k->mpirun);
    DIR *tasks = opendir(path);
    for (struct dirent *d; tasks && (d = readdir(tasks)) != NULL;) {
        snprintf(path, sizeof(path), "/proc/%d/task/%s/children", (int)k->mpirun, d->d_name);
        FILE *f = d->d_name[0] == '.' ? NULL : fopen(path, "re");
        for (int pid; f && fscanf(f, "%d", &pid) == 1;) {
            char *rank;
            size_t i = 0;
            while (i < k->n && k->ranks[i].pid != pid) i++;
            if (i < k->n || !read_variable(pid, "OMPI_COMM_WORLD_RANK", &rank) || !rank) continue;
            find(k, pid)->rank = (int32_t)strtol(rank, NULL, 10);
            free(rank);
        }
        if (f) fclose(f);
    }
    if (tasks) closedir(tasks);
    for (size_t i = 0; i < k->n; i++) {
        struct rank *r = &k->ranks[i];
        int parent, code;
        char state;
        if (r->gone || r->link >= 0) continue;
        if (!read_stat(r->pid, &parent, &state, &code) || state == 'Z' || state == 'X') record_end(k, r);
    }
}

static void accept_rank(struct keeper *k)
{
    struct ucred peer;
    socklen_t n = sizeof(peer);
    int link = accept4(k->listener, NULL, NULL, SOCK_CLOEXEC);
    if (link < 0) return;
    if (getsockopt(link, SOL_SOCKET, SO_PEERCRED, &peer, &n) || peer.uid != geteuid()) {
        close(link);
        return;
    }
    struct rank *r = find(k, peer.pid);
    if (r->link >= 0) close(r->link);
    r->link = link;
    k->n_connected++;
}

static void give_streams(int link)
{
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(2 * sizeof(int))];
    } control = {0};
    int fds[2] = {STDOUT_FILENO, STDERR_FILENO};
    struct iovec data = {.iov_base = (char[]){0}, .iov_len = 1};
    struct msghdr m = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(fds));
    memcpy(CMSG_DATA(c), fds, sizeof(fds));
    sendmsg(link, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void handle_message(struct keeper *k, struct rank *r, const struct ht_launch_message *w)
{
    r->rank = w->rank;
    switch (w->kind) {
    case HT_LAUNCH_BEGUN:
        send(r->link, (char[]){k->interrupts > 0}, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        return;
    case HT_LAUNCH_STREAMS:
        r->begun = true;
        give_streams(r->link);
        return;
    case HT_LAUNCH_ENDED:
        r->reported = true;
        r->ok = w->error.status == HT_OK;
        if (!r->ok && !k->first.status && !k->died) k->first = w->error;
    }
}

/* Takes all messages of the ranks, then records which have ended, so that a report counts before the deaths that follow
   it. */
static void read_ranks(struct keeper *k)
{
    for (size_t i = 0; i < k->n; i++) {
        struct rank *r = &k->ranks[i];
        struct ht_launch_message w;
        ssize_t got = -1;
        while (r->link >= 0 && (got = recv(r->link, &w, sizeof(w), MSG_DONTWAIT)) > 0)
            if (got == (ssize_t)sizeof(w)) handle_message(k, r, &w);
        bool lost = r->link >= 0 && (got == 0 || (errno != EAGAIN && errno != EINTR));
        if (lost) close(r->link), r->link = -2; /* recorded below */
    }
    for (size_t i = 0; i < k->n; i++)
        if (k->ranks[i].link == -2) record_end(k, &k->ranks[i]);
}

/* ---- mpirun ----------------------------------------------------------------------------------------------------- */

static _Noreturn void become_mpirun(const struct ht_keeper_job *job, int output, pid_t keeper)
{
    const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
    for (size_t i = 0; i < HT_COUNT(signals); i++) signal(signals[i], SIG_DFL);
    prctl(PR_SET_PDEATHSIG, (unsigned long)SIGKILL);
    if (getppid() != keeper) _exit(HT_FAILED);
    setenv(HT_LAUNCHER_VARIABLE, job->name, 1);
#ifdef __SANITIZE_ADDRESS__
    setenv("LSAN_OPTIONS", "detect_leaks=0", 0); /* MPI never frees its memory */
#endif
    int null = open("/dev/null", O_RDONLY);
    if (null >= 0) dup2(null, STDIN_FILENO);
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    execvp(job->command[0], job->command);
    _exit(errno == ENOENT ? 127 : 126);
}

static bool start(struct keeper *k)
{
    struct sockaddr_un address;
    int ends[2];
    socklen_t n = ht_launch_address(k->job->name, &address);
    k->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (k->listener < 0 || bind(k->listener, (struct sockaddr *)&address, n) || listen(k->listener, SOMAXCONN))
        return false;
    if (pipe2(ends, O_CLOEXEC)) return false;
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    k->output = ends[0];
    pid_t keeper = getpid();
    k->mpirun = fork();
    if (k->mpirun == 0) become_mpirun(k->job, ends[1], keeper);
    close(ends[1]);
    return k->mpirun > 0;
}

/* Reads all that mpirun prints, so that it never waits for a reader. Keeps the beginning. */
static void read_output(struct keeper *k)
{
    char text[4096];
    for (;;) {
        ssize_t got = read(k->output, text, sizeof(text));
        if (got < 0) return;
        if (got == 0) {
            close(k->output);
            k->output = -1;
            return;
        }
        size_t room = sizeof(k->printed) - 1 - k->n_printed, n = (size_t)got < room ? (size_t)got : room;
        memcpy(k->printed + k->n_printed, text, n);
        k->n_printed += n;
    }
}

/* ---- following the ranks ---------------------------------------------------------------------------------------- */

/* Passes an interrupt on to the ranks. Before all have connected nothing has begun that could end in order, so it
   kills. */
static void interrupt(struct keeper *k)
{
    k->interrupts++;
    k->too_early |= k->n_connected < k->job->ranks;
    if (k->interrupts > 1 || k->too_early) kill(k->mpirun, SIGKILL);
    for (size_t i = 0; i < k->n; i++)
        if (k->ranks[i].link >= 0) kill(k->ranks[i].pid, SIGUSR1);
}

/* Reads the launcher's interrupts. Returns false when the launcher has gone. */
static bool read_launcher(struct keeper *k)
{
    char byte;
    ssize_t got;
    while ((got = recv(k->launcher, &byte, 1, MSG_DONTWAIT)) == 1) interrupt(k);
    return got < 0 && (errno == EAGAIN || errno == EINTR);
}

static void wait_for_events(struct keeper *k)
{
    size_t n = 0;
    int ms = k->deadline_ns ? ENDING_MS : k->n_connected < k->job->ranks ? STARTING_MS : QUIET_MS;
    HT_RESERVE(k->poll, k->poll_cap, k->n + 3);
    k->poll[n++] = (struct pollfd){.fd = k->launcher, .events = POLLIN};
    k->poll[n++] = (struct pollfd){.fd = k->listener, .events = POLLIN};
    k->poll[n++] = (struct pollfd){.fd = k->output, .events = POLLIN};
    for (size_t i = 0; i < k->n; i++) k->poll[n++] = (struct pollfd){.fd = k->ranks[i].link, .events = POLLIN};
    poll(k->poll, n, ms);
}

/* Returns true if a child has ended; it can still be waited for. */
static bool has_ended(pid_t pid)
{
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid;
}

/* Follows the ranks until mpirun has ended. Returns false when the launcher has gone. */
static bool follow(struct keeper *k, int *waited)
{
    while (waitpid(k->mpirun, waited, WNOHANG) == 0) {
        wait_for_events(k);
        if (!read_launcher(k)) return false;
        accept_rank(k);
        read_ranks(k);
        if (k->output >= 0) read_output(k);
        if (k->n_connected < k->job->ranks) find_ranks(k);
        if (k->deadline_ns && ht_now_ns() > k->deadline_ns && !k->overdue && !has_ended(k->mpirun)) {
            kill(k->mpirun, SIGKILL);
            k->overdue = true;
        }
    }
    return true;
}

/* Writes mpirun's output as one line, without the dashes around its messages. */
static void join_lines(const struct keeper *k, char *out, size_t cap)
{
    size_t n = 0;
    for (size_t i = 0; i < k->n_printed && n + 2 < cap; i++) {
        size_t dashes = 0;
        while (i + dashes < k->n_printed && k->printed[i + dashes] == '-') dashes++;
        bool frame = dashes > 8, space = frame || (unsigned char)k->printed[i] <= ' ' || k->printed[i] == 127;
        if (frame) i += dashes - 1;
        if (!space)
            out[n++] = k->printed[i];
        else if (n > 0 && out[n - 1] != ' ')
            out[n++] = ' ';
    }
    while (n > 0 && out[n - 1] == ' ') n--;
    out[n] = '\0';
}

/* Returns the signal that killed the rank, or 0. It comes from the kernel, or from mpirun: the status 128 + N, or its
   text. */
static int killed_by(const struct keeper *k, int waited)
{
    const char *words = "exited on signal ", *found = strstr(k->printed, words);
    if (k->code != UNKNOWN_CODE) return WTERMSIG(k->code);
    if (WIFEXITED(waited) && WEXITSTATUS(waited) > 128) return WEXITSTATUS(waited) - 128;
    return found ? (int)strtol(found + strlen(words), NULL, 10) : 0;
}

/* Writes a possible reason for an end without a report: a full folder, else mpirun's output. */
static void explain(const struct keeper *k, bool printed, char *out, size_t cap)
{
    struct statvfs fs;
    int n = 0;
    if (statvfs(k->job->folder, &fs) == 0 && (double)fs.f_bavail * (double)fs.f_frsize < 1 << 20)
        n = snprintf(out, cap, ": TMPDIR is full (%s)", k->job->folder);
    else if (printed && k->n_printed)
        n = snprintf(out, cap, ": "), join_lines(k, out + n, cap - (size_t)n);
    if (n == 0) *out = '\0';
}

static enum ht_status death(const struct keeper *k, int waited, struct ht_error *err)
{
    char who[32] = "a rank", why[800];
    int signo = killed_by(k, waited), status = WEXITSTATUS(k->code != UNKNOWN_CODE ? k->code : waited);
    if (k->dead >= 0) snprintf(who, sizeof(who), "rank %d", k->dead);
    explain(k, !signo && !k->at_work, why, sizeof(why));
    if (signo) return ht_fail(err, HT_FAILED, "%s was killed by signal %d, which ends all of them%s", who, signo, why);
    if (status == HT_INFEASIBLE) /* from ht_out_of_memory */
        return ht_fail(err, HT_INFEASIBLE, "%s ran out of memory, which ends all of them", who);
    return ht_fail(err, HT_FAILED, "%s ended without a report, which ends all of them%s", who, why);
}

static enum ht_status outcome(const struct keeper *k, int waited, struct ht_error *err)
{
    char why[800];
    int32_t n_ok = 0;
    bool exited = WIFEXITED(waited);
    for (size_t i = 0; i < k->n; i++) n_ok += k->ranks[i].ok;
    if (exited && WEXITSTATUS(waited) == 127)
        return ht_fail(err, HT_INFEASIBLE, "mpirun is not installed, so there is one rank (Debian: openmpi-bin)");
    if (k->interrupts > 1 && k->first.status != HT_INTERRUPTED)
        return ht_fail(err, HT_INTERRUPTED, "interrupted twice, so the ranks were ended at once");
    if (k->first.status) return ht_fail(err, k->first.status, "%s", k->first.text);
    if (k->too_early) return ht_fail(err, HT_INTERRUPTED, "interrupted before the ranks had begun");
    if (n_ok == k->job->ranks) {
        if (k->overdue || (exited && WEXITSTATUS(waited) == 0)) return HT_OK;
        return ht_fail(err, HT_FAILED, "a rank failed after all work was done");
    }
    if (k->interrupts) return ht_fail(err, HT_INTERRUPTED, "interrupted; the ranks ended without a report");
    if (!exited && !k->overdue)
        return ht_fail(err, HT_FAILED, "mpirun was killed by signal %d, which ends all ranks", WTERMSIG(waited));
    if (k->died) return death(k, waited, err);
    explain(k, true, why, sizeof(why));
    return ht_fail(err, HT_FAILED, "mpirun ended with status %d before the ranks did%s",
                   exited ? WEXITSTATUS(waited) : -1, why);
}

_Noreturn void ht_keeper(const struct ht_keeper_job *job, int launcher)
{
    const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
    struct keeper k = {.job = job, .launcher = launcher, .output = -1, .lost = -1};
    struct ht_keeper_report report = {.lost = -1};
    struct ht_error *err = &report.outcome;
    int waited = 0;
    setsid();
    for (size_t i = 0; i < HT_COUNT(signals); i++) signal(signals[i], SIG_IGN);
    prctl(PR_SET_CHILD_SUBREAPER, 1UL);
    prctl(PR_SET_NAME,
          (unsigned long)"ranks-keeper"); /* survives a kill of all processes named hetbench, and cleans up */
    if (start(&k)) {
        bool followed = follow(&k, &waited);
        if (!followed) kill(k.mpirun, SIGKILL);
        ht_keeper_end_children(job->name);
        read_ranks(&k);
        if (k.output >= 0) read_output(&k);
        err->status = outcome(&k, waited, err);
        report.lost = k.lost;
    } else {
        err->status = ht_fail(err, HT_FAILED, "cannot start mpirun: %s", strerror(errno));
    }
    ht_keeper_remove(job->folder);
    send(launcher, &report, sizeof(report), MSG_NOSIGNAL);
    _exit(0);
}
