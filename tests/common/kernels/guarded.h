/*
 * Buffers that tell on a kernel: poisoned with NaN, so that reading what was never written shows in the result, and
 * with guard zones on both sides, so that writing beyond shows when the buffer is freed.
 */
#ifndef HT_TESTS_GUARDED_H
#define HT_TESTS_GUARDED_H

#include <check.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/rng.h"

enum { GUARD_BYTES = 256, GUARD = 0xa5 };

struct guarded {
    unsigned char *base;
    int64_t bytes;
};

/* Bytes of value `poison` (0xff makes every float a NaN). Returns where the caller's part starts: 64-byte aligned. */
static inline void *guarded_new(struct guarded *g, int64_t bytes, int poison)
{
    size_t total = ((size_t)bytes + 63) / 64 * 64 + 2 * GUARD_BYTES;
    g->base = aligned_alloc(64, total);
    g->bytes = bytes;
    memset(g->base, GUARD, total);
    memset(g->base + GUARD_BYTES, poison, (size_t)bytes);
    return g->base + GUARD_BYTES;
}

static inline void guarded_free(struct guarded *g)
{
    /* Not a ck_assert for each byte: every one of them costs a write to a file. */
    for (int64_t i = 0; i < GUARD_BYTES; i++) {
        if (g->base[i] != GUARD) ck_abort_msg("written %d bytes before the buffer", (int)(GUARD_BYTES - i));
        if (g->base[GUARD_BYTES + g->bytes + i] != GUARD) ck_abort_msg("written %d bytes after the buffer", (int)i);
    }
    free(g->base);
}

/* n floats, uniform in [-a, a). */
static inline float *random_floats(uint64_t seed, int64_t n, float a)
{
    ck_assert(n >= 0 && n < 1 << 28);
    float *x = calloc((size_t)n + 1, sizeof(float));
    for (int64_t i = 0; i < n; i++) x[i] = a * (2 * ht_random_float(seed, (uint64_t)i) - 1);
    return x;
}

static inline int32_t *random_tokens(uint64_t seed, int64_t n, int64_t vocab)
{
    int32_t *t = malloc((size_t)n * sizeof(int32_t));
    for (int64_t i = 0; i < n; i++) t[i] = (int32_t)ht_random_below(seed, (uint64_t)i, (uint64_t)vocab);
    return t;
}

/* |got - expected| <= tolerance * max(1, |expected|); NaN fails. */
static inline void assert_close(double got, double expected, double tolerance, const char *what, int64_t index)
{
    double scale = fabs(expected) > 1 ? fabs(expected) : 1;
    ck_assert_msg(fabs(got - expected) <= tolerance * scale, "%s[%lld]: %.9g, expected %.9g", what, (long long)index,
                  got, expected);
}

#endif
