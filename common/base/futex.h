/*
 * A futex word: threads of one process (or, with _shared, of several) sleep until its value is no longer what they saw.
 *
 * A waiter checks the word itself before and after: a wake-up may be spurious. With ThreadSanitizer in mind, the order
 * of data is carried by the word's own acquire and release, never by the system call.
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

/* Sleeps if *word is still `seen`; returns at a wake-up, at a signal, or at once. */
static inline void ht_futex_wait(atomic_uint *word, unsigned seen)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

/* The same, but for at most `ns`. */
static inline void ht_futex_wait_for(atomic_uint *word, unsigned seen, int64_t ns)
{
    struct timespec t = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, &t, NULL, 0);
}

/* Of a word in memory that several processes share. */
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
