/*
 * A futex word: threads of one process (or, with _shared, of several) sleep until its value changes.
 *
 * A waiter checks the word itself before and after, because a wake-up may be spurious. The word's own acquire and
 * release order the data, never the system call, so that ThreadSanitizer sees the order.
 */
#ifndef HT_BASE_FUTEX_H
#define HT_BASE_FUTEX_H

#include <linux/futex.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Sleeps if *word is still `seen`. Returns at a wake-up, at a signal, or at once. */
static inline void ht_futex_wait(atomic_uint *word, unsigned seen)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

/* Sleeps like ht_futex_wait, but at most `ns`. */
static inline void ht_futex_wait_for(atomic_uint *word, unsigned seen, int64_t ns)
{
    struct timespec t = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, &t, NULL, 0);
}

/* Sleeps at most `ns` on a word that several processes share. */
static inline void ht_futex_wait_shared(atomic_uint *word, unsigned seen, int64_t ns)
{
    struct timespec t = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    syscall(SYS_futex, word, FUTEX_WAIT, seen, &t, NULL, 0);
}

static inline void ht_futex_wake_shared(atomic_uint *word, int n)
{
    syscall(SYS_futex, word, FUTEX_WAKE, n, NULL, NULL, 0);
}

/* Wakes up to n sleepers. */
static inline void ht_futex_wake(atomic_uint *word, int n)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

#endif
