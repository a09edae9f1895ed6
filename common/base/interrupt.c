#include "common/base/interrupt.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>

static atomic_bool interrupted;

static void on_signal(int signo)
{
    (void)signo;
    atomic_store(&interrupted, true);
}

void ht_interrupt_install(void)
{
    struct sigaction sa = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&sa.sa_mask);
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
}

bool ht_interrupted(void)
{
    return atomic_load_explicit(&interrupted, memory_order_relaxed);
}

void ht_interrupt_set(bool value)
{
    atomic_store(&interrupted, value);
}
