/* Starts the ranks of one host without mpirun: the program that the keeper runs in its place. */
#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/comm/launch.h"
#include "common/comm/launch_message.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { GRACE_MS = 1000 }; /* for reports, after a rank has ended with a failure */

socklen_t ht_launch_local_address(const char *launcher, int32_t rank, struct sockaddr_un *out)
{
    char name[80];
    snprintf(name, sizeof(name), "%.60s.%d", launcher, rank);
    return ht_launch_address(name, out);
}

/* Returns a socket that accepts connections to the rank, so that no rank has to wait until another has begun. */
static int listen_for(const char *launcher, int32_t rank, int32_t ranks)
{
    struct sockaddr_un address;
    socklen_t n = ht_launch_local_address(launcher, rank, &address);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && !bind(fd, (struct sockaddr *)&address, n) && !listen(fd, ranks)) return fd;
    if (fd >= 0) close(fd);
    return -1;
}

static void set_number(const char *name, int32_t value)
{
    char text[16];
    snprintf(text, sizeof(text), "%d", value);
    setenv(name, text, 1);
}

static _Noreturn void become_rank(int32_t rank, int32_t ranks, int listener, char **argv, pid_t parent)
{
    char program[4096];
    prctl(PR_SET_PDEATHSIG, (unsigned long)SIGKILL);
    if (getppid() != parent) _exit(HT_FAILED);
    ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 1);
    program[n > 0 ? n : 0] = '\0';
    int own = dup(listener); /* without close-on-exec */
    set_number(HT_LOCAL_VARIABLE, own);
    set_number("OMPI_COMM_WORLD_RANK", rank); /* mpirun's names, so that who looks for ranks finds them */
    set_number("OMPI_COMM_WORLD_SIZE", ranks);
    execv(program, argv);
    _exit(127);
}

/* Waits until the others have ended, but not for long. */
static void wait_for_others(const pid_t *pids, int32_t n, pid_t failed)
{
    const struct timespec nap = {.tv_nsec = 5000000};
    int64_t end_ms = ht_now_ms() + GRACE_MS;
    for (bool any = true; any && ht_now_ms() < end_ms; nanosleep(&nap, NULL)) {
        any = false;
        for (int32_t i = 0; i < n; i++) any |= pids[i] != failed && waitpid(pids[i], NULL, WNOHANG) == 0;
    }
}

/* Waits for all ranks. Returns the exit code of the first that failed, as a shell would: 128 + the signal's number. That
   one is not reaped, since the keeper asks the kernel how it ended. */
static int wait_for_ranks(const pid_t *pids, int32_t n)
{
    for (int32_t left = n; left > 0;) {
        siginfo_t ended = {0};
        if (waitid(P_ALL, 0, &ended, WEXITED | WNOWAIT)) {
            if (errno == EINTR) continue;
            return HT_FAILED;
        }
        if (ended.si_code != CLD_EXITED || ended.si_status) {
            wait_for_others(pids, n, ended.si_pid);
            return ended.si_code == CLD_EXITED ? ended.si_status : 128 + ended.si_status;
        }
        waitpid(ended.si_pid, NULL, 0);
        left--;
    }
    return 0;
}

int ht_launch_local(char **words)
{
    const char *launcher = getenv(HT_LAUNCHER_VARIABLE);
    int32_t ranks = (int32_t)strtol(words[0], NULL, 10);
    if (!launcher || ranks < 1) return HT_BAD_INPUT;
    int *listeners = HT_NEW_ARRAY(int, ranks);
    pid_t *pids = HT_NEW_ARRAY(pid_t, ranks);
    pid_t parent = getpid();
    for (int32_t i = 0; i < ranks; i++) {
        listeners[i] = listen_for(launcher, i, ranks);
        if (listeners[i] >= 0) continue;
        fprintf(stderr, "cannot listen for the ranks: %s\n", strerror(errno));
        return HT_FAILED;
    }
    for (int32_t i = 0; i < ranks; i++) {
        pids[i] = fork();
        if (pids[i] == 0) become_rank(i, ranks, listeners[i], words + 1, parent);
        if (pids[i] > 0) continue;
        fprintf(stderr, "cannot start rank %d: %s\n", i, strerror(errno));
        return HT_FAILED; /* the kernel ends those that were started */
    }
    for (int32_t i = 0; i < ranks; i++) close(listeners[i]);
    int code = wait_for_ranks(pids, ranks);
    free(listeners);
    free(pids);
    return code;
}
