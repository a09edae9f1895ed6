#include "common/base/stacks.h"

#include <errno.h>
#include <execinfo.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { MOST_FRAMES = 48, MOST_TURNS = 10000 };

/* Threads write one after the other; one whose turn does not come in time writes anyway. */
static atomic_flag busy = ATOMIC_FLAG_INIT;

static void write_text(const char *text)
{
    if (write(STDERR_FILENO, text, strlen(text)) < 0) return;
}

static void on_signal(int signo)
{
    void *frames[MOST_FRAMES];
    char name[17] = "";
    int saved = errno;
    (void)signo;
    for (int i = 0; atomic_flag_test_and_set(&busy) && i < MOST_TURNS; i++) sched_yield();
    prctl(PR_GET_NAME, name);
    write_text("stack of ");
    write_text(name);
    write_text(":\n");
    backtrace_symbols_fd(frames, backtrace(frames, MOST_FRAMES), STDERR_FILENO);
    atomic_flag_clear(&busy);
    errno = saved;
}

void ht_stacks_on_signal(void)
{
    struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    void *frame;
    backtrace(&frame, 1); /* loads what it needs: a handler may not */
    sigemptyset(&sa.sa_mask);
    sigaction(SIGUSR2, &sa, NULL);
}
