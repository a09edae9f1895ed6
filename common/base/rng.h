/*
 * Counter-based random numbers. A value is a pure function of (seed, index), so a parameter's initial value, a test's
 * graph or an op's jitter is the same on every machine, in every order, with any number of threads.
 *
 * The mixer is splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
 */
#ifndef HT_BASE_RNG_H
#define HT_BASE_RNG_H

#include <stdint.h>

static inline uint64_t ht_mix64(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Returns the index-th 64-bit value of stream `seed`. */
static inline uint64_t ht_random(uint64_t seed, uint64_t index)
{
    return ht_mix64(ht_mix64(seed) + index);
}

/* Returns a number uniform in [0, n), n >= 1. */
static inline uint64_t ht_random_below(uint64_t seed, uint64_t index, uint64_t n)
{
    return (uint64_t)(((unsigned __int128)ht_random(seed, index) * n) >> 64);
}

/* Returns a number uniform in [0, 1) with 24 bits: exact in float, so that numpy reproduces it. */
static inline float ht_random_float(uint64_t seed, uint64_t index)
{
    return (float)(ht_random(seed, index) >> 40) * 0x1p-24f;
}

#endif
