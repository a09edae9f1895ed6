#include "harness/elastic/cell.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Memory that the cell shares with who made it. */
struct shared {
    bool sealed; /* the cell could be made */
    struct ht_error err;
};

static bool write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0) close(fd);
    return done;
}

/* Gives this process a user namespace in which it may mount; the user stays who he is. */
static bool take_rights(void)
{
    char users[64], groups[64];
    snprintf(users, sizeof(users), "%u %u 1", geteuid(), geteuid());
    snprintf(groups, sizeof(groups), "%u %u 1", getegid(), getegid());
    return unshare(CLONE_NEWUSER) == 0 && write_file("/proc/self/setgroups", "deny") &&
           write_file("/proc/self/uid_map", users) && write_file("/proc/self/gid_map", groups);
}

static bool make_namespaces(void)
{
    if (geteuid() != 0 && !take_rights()) return false;
    return unshare(CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC) == 0;
}

/* Mounts what the cell has of its own. */
static bool furnish(void)
{
    return mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) == 0 &&
           mount("shm", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777") == 0;
}

/* Waits for a child, whatever signals come. Returns its exit status; HT_FAILED if it was killed. */
static int wait_for(pid_t pid)
{
    int waited;
    while (waitpid(pid, &waited, 0) < 0)
        if (errno != EINTR) return HT_FAILED;
    return WIFEXITED(waited) ? WEXITSTATUS(waited) : HT_FAILED;
}

/* Becomes the first process of the namespaces. */
static _Noreturn void begin(ht_cell_program program, void *ctx, struct shared *s)
{
    prctl(PR_SET_PDEATHSIG, (unsigned long)SIGKILL);
    s->sealed = furnish();
    enum ht_status status = s->sealed ? program(ctx, true, &s->err) : HT_OK;
    fflush(NULL);
    _exit((int)status);
}

/* Makes the namespaces for its child, and ends as that ends. */
static _Noreturn void make(ht_cell_program program, void *ctx, struct shared *s, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, (unsigned long)SIGKILL);
    if (getppid() != parent || !make_namespaces()) _exit(HT_OK);
    pid_t pid = fork();
    if (pid == 0) begin(program, ctx, s);
    _exit(pid < 0 ? HT_OK : wait_for(pid));
}

enum ht_status ht_cell_run(ht_cell_program program, void *ctx, struct ht_error *err)
{
    struct shared *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (s == MAP_FAILED) return program(ctx, false, err);
    fflush(NULL);
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) make(program, ctx, s, parent);
    enum ht_status status = pid < 0 ? HT_OK : (enum ht_status)wait_for(pid);
    bool sealed = s->sealed;
    if (status != HT_OK) status = ht_fail(err, status, "%s", s->err.text[0] ? s->err.text : "the drills were killed");
    munmap(s, sizeof(*s));
    return sealed ? status : program(ctx, false, err);
}

void ht_cell_reap(void)
{
    while (waitpid(-1, NULL, WNOHANG) > 0) continue;
}
