/* The monotonic clock, and the time of day. */
#ifndef HT_BASE_CLOCK_H
#define HT_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t ht_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline int64_t ht_now_ms(void)
{
    return ht_now_ns() / 1000000;
}

static inline double ht_now_s(void)
{
    return (double)ht_now_ns() * 1e-9;
}

/* Returns nanoseconds since 1970, on a clock that hosts share and that may be set. */
static inline int64_t ht_realtime_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

#endif
