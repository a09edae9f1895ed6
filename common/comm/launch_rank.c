/* The functions of launch.h that run in a rank. */
#include "common/base/array.h"
#include "common/base/interrupt.h"
#include "common/comm/launch.h"
#include "common/comm/launch_message.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static int32_t number_in(const char *variable)
{
    const char *text = getenv(variable);
    return text ? (int32_t)strtol(text, NULL, 10) : 0;
}

bool ht_launched_here(void)
{
    return getenv(HT_LAUNCHER_VARIABLE) != NULL;
}

enum ht_status ht_launched_ranks(struct ht_error *err, int32_t *ranks)
{
    int32_t step = number_in("SLURM_STEP_NUM_TASKS"); /* srun's; a batch script or salloc's shell is in no step */
    bool pmix = getenv("PMIX_RANK") != NULL;
    *ranks = number_in("OMPI_COMM_WORLD_SIZE");
    if (*ranks > 0) return HT_OK;
    if (step > 1 && !pmix)
        return ht_fail(err, HT_BAD_INPUT,
                       "srun started %d tasks without PMIx, so they cannot find each other: expected "
                       "srun --mpi=pmix (srun --mpi=list shows what there is)",
                       step);
    if (pmix && step == 0)
        return ht_fail(err, HT_BAD_INPUT,
                       "PMIX_RANK is set, but neither OMPI_COMM_WORLD_SIZE nor SLURM_STEP_NUM_TASKS: "
                       "expected mpirun or srun as the launcher");
    *ranks = pmix ? step : 0;
    return HT_OK;
}

enum ht_status ht_launched_connect(struct ht_error *err, struct ht_comm **out)
{
    if (!getenv(HT_LOCAL_VARIABLE)) return ht_comm_mpi(err, out);
    return ht_comm_local(number_in("OMPI_COMM_WORLD_RANK"), number_in("OMPI_COMM_WORLD_SIZE"), err, out);
}

socklen_t ht_launch_address(const char *name, struct sockaddr_un *out)
{
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    int n = snprintf(out->sun_path + 1, sizeof(out->sun_path) - 1, "%s", name); /* abstract: begins with a zero byte */
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static bool send_message(int launcher, enum ht_launch_message_kind kind, const struct ht_error *err)
{
    struct ht_launch_message message = {.kind = (int32_t)kind, .rank = number_in("OMPI_COMM_WORLD_RANK")};
    if (err) message.error = *err;
    return send(launcher, &message, sizeof(message), MSG_NOSIGNAL) == (ssize_t)sizeof(message);
}

/* ht_launch_begin's, of this process */
static int link_to_launcher = -1;

/* The keeper cannot always find out a process' exit code: mpirun may have waited for it first. */
static void report_out_of_memory(void)
{
    struct ht_error err = {.status = HT_INFEASIBLE};
    snprintf(err.text, sizeof(err.text), "rank %d ran out of memory, which ends all of them",
             number_in("OMPI_COMM_WORLD_RANK"));
    send_message(link_to_launcher, HT_LAUNCH_ENDED, &err);
}

static void on_signal(int signo)
{
    (void)signo;
    ht_interrupt_set(true);
}

int ht_launch_begin(void)
{
    const char *name = getenv(HT_LAUNCHER_VARIABLE);
    struct sockaddr_un address;
    char interrupted = 0;
    struct sigaction sa = {.sa_handler = on_signal};
    prctl(PR_SET_PDEATHSIG, (unsigned long)SIGKILL);
    sigemptyset(&sa.sa_mask);
    if (name || getenv(HT_AWAY_VARIABLE)) sigaction(SIGUSR1, &sa, NULL); /* before the keeper knows this process */
    if (!name) return -1;
    ht_interrupt_keep(); /* the keeper ends all at a second one; the first may reach every process of a job */
    socklen_t n = ht_launch_address(name, &address);
    int launcher = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (launcher < 0 || connect(launcher, (struct sockaddr *)&address, n) ||
        !send_message(launcher, HT_LAUNCH_BEGUN, NULL))
        _exit(HT_FAILED); /* the launcher has gone, so no process would end this one */
    ssize_t got;
    do got = recv(launcher, &interrupted, 1, 0);
    while (got < 0 && errno == EINTR);
    if (got != 1) _exit(HT_FAILED);
    if (interrupted) ht_interrupt_set(true);
    link_to_launcher = launcher;
    ht_on_out_of_memory = report_out_of_memory;
    return launcher;
}

void ht_launch_take_streams(int launcher)
{
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(2 * sizeof(int))];
    } control;
    char byte;
    struct iovec data = {.iov_base = &byte, .iov_len = 1};
    struct msghdr m = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
    int fds[2];
    ssize_t got;
    if (launcher < 0 && getenv(HT_AWAY_VARIABLE) && number_in("OMPI_COMM_WORLD_RANK") == 0)
        fprintf(stderr, "%s\n", HT_LAUNCH_BEGUN_LINE);
    if (launcher < 0 || !send_message(launcher, HT_LAUNCH_STREAMS, NULL)) return;
    do got = recvmsg(launcher, &m, MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    struct cmsghdr *c = got == 1 ? CMSG_FIRSTHDR(&m) : NULL;
    if (!c || c->cmsg_type != SCM_RIGHTS || c->cmsg_len != CMSG_LEN(sizeof(fds))) return;
    memcpy(fds, CMSG_DATA(c), sizeof(fds));
    for (int i = 0; i < 2; i++) {
        dup2(fds[i], STDOUT_FILENO + i);
        close(fds[i]);
    }
}

bool ht_launch_report(int launcher, enum ht_status status, const struct ht_error *err)
{
    struct ht_error report = {.status = status};
    if (launcher < 0) return false;
    if (status) memcpy(report.text, err->text, sizeof(report.text));
    return send_message(launcher, HT_LAUNCH_ENDED, &report);
}
