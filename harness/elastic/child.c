#include "harness/elastic/child.h"

#include "common/base/status.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

static _Noreturn void become(char *const *words, const char *dir, const char *out, pid_t parent)
{
    char path[4096], self[4096];
    prctl(PR_SET_PDEATHSIG, (unsigned long)SIGKILL);
    if (getppid() != parent) _exit(HT_FAILED);
    setpgid(0, 0);
    snprintf(path, sizeof(path), "%s/tmp", dir);
    setenv("TMPDIR", path, 1);
    snprintf(path, sizeof(path), "%s/%s", dir, out);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0666);
    if (fd >= 0) dup2(fd, STDOUT_FILENO), dup2(fd, STDERR_FILENO);
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    self[n > 0 ? n : 0] = '\0';
    execv(self, words);
    _exit(HT_FAILED);
}

pid_t ht_child_start(char *const *words, const char *dir, const char *out)
{
    fflush(NULL);
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) become(words, dir, out, parent);
    return pid;
}
