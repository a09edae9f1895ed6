#include "harness/elastic/child.h"

#include "common/base/array.h"
#include "common/base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static _Noreturn void become(char *const *argv, int out, pid_t parent)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGUSR1};
    char self[PATH_MAX];
    for (size_t i = 0; i < HT_COUNT(signals); i++) signal(signals[i], SIG_DFL);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, (unsigned long)SIGKILL);
    if (getppid() != parent) _exit(HT_FAILED);
    int null = open("/dev/null", O_RDONLY);
    if (null >= 0) dup2(null, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    self[n > 0 ? n : 0] = '\0';
    execv(n > 0 ? self : argv[0], argv);
    fprintf(stderr, "hetbench: %s: %s\n", self, strerror(errno));
    _exit(HT_FAILED);
}

pid_t ht_child_start(char *const *argv, int out, const char *name, const char *value)
{
    fflush(NULL);
    pid_t parent = getpid(), pid = fork();
    if (pid) return pid;
    setenv(name, value, 1);
    become(argv, out, parent);
}
