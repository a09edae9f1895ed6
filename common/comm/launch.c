/* The launcher: mpirun's command, or the one in its place, its folder, and the wait for the keeper. */
#include "common/comm/launch.h"

#include "common/base/array.h"
#include "common/base/interrupt.h"
#include "common/comm/launch_command.h"
#include "common/comm/launch_keeper.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Returns true where mpirun is to start the ranks: it is installed, this build has MPI, and HT_LAUNCH is not `local`. */
static bool has_mpirun(void)
{
    const char *wanted = getenv("HT_LAUNCH"), *path = getenv("PATH");
    char file[4096];
    if (!ht_comm_has_mpi() || (wanted && !strcmp(wanted, "local"))) return false;
    for (; path; path = strchr(path, ':') ? strchr(path, ':') + 1 : NULL) {
        int n = snprintf(file, sizeof(file), "%.*s/mpirun", (int)strcspn(path, ":"), path);
        if (n > 0 && n < (int)sizeof(file) && access(file, X_OK) == 0) return true;
    }
    return false;
}

static void write_local_command(struct ht_launch_command *c, int32_t ranks, char *const argv[])
{
    char text[16];
    snprintf(text, sizeof(text), "%d", ranks);
    *c = (struct ht_launch_command){0};
    ht_launch_command_add(c, "/proc/self/exe");
    ht_launch_command_add(c, HT_LAUNCH_LOCAL);
    ht_launch_command_add(c, text);
    for (int i = 0; argv[i]; i++) ht_launch_command_add(c, argv[i]);
    ht_launch_command_add(c, NULL);
}

/* Writes the mpirun command: all ranks on this machine, whatever its cores, networks, resource managers and rights. */
static void write_command(struct ht_launch_command *c, int32_t ranks, const char *folder, char *const argv[])
{
    ht_launch_command_begin(c);
    ht_launch_command_add(c, "--oversubscribe");                      /* more ranks than cores */
    ht_launch_command_set(c, "plm", "isolated");                      /* no ssh, no resource manager */
    ht_launch_command_set(c, "ras", "^slurm,gridengine,tm,lsf,alps"); /* even in a job of these: all on this machine */
    ht_launch_command_set(c, "oob_tcp_if_include", "lo");
    ht_launch_command_set(c, "btl", "self,vader"); /* shared memory, */
    ht_launch_command_set(c, "pml", "ob1");
    ht_launch_command_set(c, "btl_vader_single_copy_mechanism",
                          "none"); /* without the right to read other processes, */
    ht_launch_command_set(c, "btl_vader_backing_directory",
                          folder); /* and not in /dev/shm, where files could be left */
    ht_launch_command_set(c, "orte_tmpdir_base", folder);
    ht_launch_command_set(c, "mpi_yield_when_idle", "1");
    ht_launch_command_end(c, ranks, argv);
}

/* ---- the folder ------------------------------------------------------------------------------------------------- */

#define PREFIX "hetbench-ranks-"

/* Opens the folder and locks it for as long as this process or a child of it lives. Returns -1 when another process has
   the lock or is removing the folder. Where the file system has no locks, no other process can lock it either. */
static int lock_folder(int at, const char *name)
{
    struct stat sb;
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return -1;
    bool other = flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK;
    if (!other && fstat(fd, &sb) == 0 && sb.st_nlink > 0 && sb.st_uid == geteuid()) return fd;
    close(fd);
    return -1;
}

/* Removes the folders that this user's launchers left when they were killed together with their keepers: unlocked
   ones. */
static void remove_stale(const char *base)
{
    DIR *dir = opendir(base);
    char path[4096];
    for (struct dirent *d; dir && (d = readdir(dir)) != NULL;) {
        if (strncmp(d->d_name, PREFIX, strlen(PREFIX))) continue;
        int n = snprintf(path, sizeof(path), "%s/%s", base, d->d_name), fd = lock_folder(dirfd(dir), d->d_name);
        if (fd < 0) continue;
        if (n < (int)sizeof(path) && flock(fd, LOCK_EX | LOCK_NB) == 0) ht_keeper_remove(path);
        close(fd);
    }
    if (dir) closedir(dir);
}

static enum ht_status make_folder(char *folder, size_t cap, int *lock, struct ht_error *err)
{
    const char *base = getenv("TMPDIR");
    if (!base || !*base) base = "/tmp";
    remove_stale(base);
    for (int i = 0; i < 10; i++) {
        if (snprintf(folder, cap, "%s/" PREFIX "XXXXXX", base) >= (int)cap)
            return ht_fail(err, HT_FAILED, "TMPDIR is longer than %zu characters", cap - sizeof(PREFIX "/XXXXXX"));
        if (!mkdtemp(folder))
            return ht_fail(err, HT_FAILED, "%s: cannot create the ranks' folder: %s", folder, strerror(errno));
        *lock = lock_folder(AT_FDCWD, folder);
        if (*lock >= 0) return HT_OK;
        rmdir(folder); /* another launcher removed it as stale before it was locked */
    }
    return ht_fail(err, HT_FAILED, "%s: cannot lock the ranks' folder", base);
}

/* Checks the limit of open files: mpirun hangs when it runs out of them while the ranks connect to it. Measured with
   Open MPI 4.1: at most 36 for 2 ranks, 48 for 4 and 64 for 8 are enough. */
static enum ht_status check_limits(int32_t ranks, struct ht_error *err)
{
    struct rlimit l;
    long long needed = 32 + 4LL * ranks;
    DIR *d = opendir("/proc/self/fd"); /* mpirun inherits the files that are open now */
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        int fd = atoi(e->d_name), flags = fd > STDERR_FILENO ? fcntl(fd, F_GETFD) : -1;
        needed += flags >= 0 && !(flags & FD_CLOEXEC);
    }
    if (d) closedir(d);
    if (getrlimit(RLIMIT_NOFILE, &l) || l.rlim_cur == RLIM_INFINITY || (long long)l.rlim_cur >= needed) return HT_OK;
    return ht_fail(err, HT_INFEASIBLE, "%d ranks need %lld open files; the limit is %lld (ulimit -n)", ranks, needed,
                   (long long)l.rlim_cur);
}

/* ---- the launcher ----------------------------------------------------------------------------------------------- */

/* Waits for the keeper's report and passes interrupts on to it. Returns the reported status, or HT_FAILED when the
   keeper was killed. */
static enum ht_status wait_for_keeper(int keeper, struct ht_launch_loss *loss, struct ht_error *err)
{
    struct ht_keeper_report report;
    ssize_t got = -1;
    for (int n_sent = 0; got < 0;) {
        struct pollfd p = {.fd = keeper, .events = POLLIN};
        poll(&p, 1, 100);
        for (; n_sent < ht_interrupt_count(); n_sent++) send(keeper, "i", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        got = recv(keeper, &report, sizeof(report), MSG_DONTWAIT);
        if (got < 0 && errno != EAGAIN && errno != EINTR) got = 0;
    }
    if (got != (ssize_t)sizeof(report))
        return ht_fail(err, HT_FAILED, "the process that keeps the ranks was killed, which ends all of them");
    if (err) *err = report.outcome;
    loss->rank = report.lost;
    return report.outcome.status;
}

enum ht_status ht_launch(int32_t ranks, char *const argv[], struct ht_launch_loss *loss, struct ht_error *err)
{
    *loss = (struct ht_launch_loss){.rank = -1};
    char folder[4000];
    struct ht_launch_command c;
    int lock = -1, ends[2], fd;
    /* Opens closed standard streams on /dev/null, read-only, so that no socket gets their descriptors. */
    while ((fd = open("/dev/null", O_RDONLY)) >= 0 && fd <= STDERR_FILENO) continue;
    if (fd >= 0) close(fd);
    enum ht_status status = check_limits(ranks, err);
    if (!status) status = make_folder(folder, sizeof(folder), &lock, err);
    if (status) return status;
    if (has_mpirun())
        write_command(&c, ranks, folder, argv);
    else
        write_local_command(&c, ranks, argv);
    struct ht_keeper_job job = {.command = c.words, .ranks = ranks, .folder = folder, .name = strrchr(folder, '/') + 1};
    fflush(NULL);
    prctl(PR_SET_CHILD_SUBREAPER, 1UL);
    signal(SIGCHLD, SIG_DFL); /* if it is ignored, waitpid cannot say how mpirun ended */
    ht_interrupt_keep();
    pid_t pid = -1;
    if (!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends)) {
        pid = fork();
        if (pid == 0) close(ends[0]), ht_keeper(&job, ends[1]);
        close(ends[1]);
        if (pid < 0) close(ends[0]);
    }
    if (pid < 0) {
        status = ht_fail(err, HT_FAILED, "cannot start mpirun: %s", strerror(errno));
    } else {
        status = wait_for_keeper(ends[0], loss, err);
        close(ends[0]);
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) continue;
        ht_keeper_end_children(job.name); /* the keeper has ended them unless it was killed */
    }
    ht_keeper_remove(folder);
    close(lock);
    ht_launch_command_free(&c);
    return status;
}
