#include "common/base/interrupt.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>

static atomic_int interrupts;

static void on_signal(int signo)
{
    (void)signo;
    atomic_fetch_add(&interrupts, 1);
}

static void install(int flags)
{
    struct sigaction sa = {.sa_handler = on_signal, .sa_flags = flags};
    sigemptyset(&sa.sa_mask);
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
    struct sigaction hup;
    if (sigaction(SIGHUP, NULL, &hup) == 0 && hup.sa_handler != SIG_IGN) sigaction(SIGHUP, &sa, NULL);
}

void ht_interrupt_install(void)
{
    signal(SIGPIPE, SIG_IGN);
    install((int)SA_RESETHAND);
}

void ht_interrupt_keep(void)
{
    install(0);
}

int ht_interrupt_count(void)
{
    return atomic_load(&interrupts);
}

bool ht_interrupted(void)
{
    return atomic_load_explicit(&interrupts, memory_order_relaxed) != 0;
}

void ht_interrupt_set(bool value)
{
    atomic_store(&interrupts, value);
}
