#include "common/base/array.h"

#include "common/base/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Allocates, flushes and frees nothing, because other threads may be running. The launcher knows a rank's reason by its
   exit status. */
void (*ht_on_out_of_memory)(void);

_Noreturn void ht_out_of_memory(size_t n, size_t bytes)
{
    char line[128], times[32] = "";
    if (n != 1) snprintf(times, sizeof(times), "%zu times ", n);
    int length =
        snprintf(line, sizeof(line), "hetbench: out of memory: %s%zu bytes cannot be allocated\n", times, bytes);
    if (!getenv(HT_LAUNCHER_VARIABLE)) (void)!write(STDERR_FILENO, line, (size_t)length);
    if (ht_on_out_of_memory) ht_on_out_of_memory();
    _exit(HT_INFEASIBLE);
}

/* Asks for huge pages where they lie within the array: graphs of millions of ops miss the TLB less, and fault less. */
static void *prefer_huge_pages(void *p, size_t bytes)
{
    const uintptr_t page = 2 << 20;
    uintptr_t begin = ((uintptr_t)p + page - 1) / page * page, end = ((uintptr_t)p + bytes) / page * page;
    if (begin < end) (void)madvise((char *)p + (begin - (uintptr_t)p), end - begin, MADV_HUGEPAGE); /* a hint */
    return p;
}

void *ht_alloc(size_t bytes)
{
    void *p = calloc(1, bytes ? bytes : 1);
    if (!p) ht_out_of_memory(1, bytes);
    return prefer_huge_pages(p, bytes);
}

void *ht_alloc_array(size_t n, size_t bytes)
{
    size_t all;
    if (__builtin_mul_overflow(n, bytes, &all)) ht_out_of_memory(n, bytes);
    return ht_alloc(all);
}

int32_t *ht_alloc_ids(int64_t n)
{
    int32_t *ids = HT_NEW_ARRAY(int32_t, n);
    for (int64_t i = 0; i < n; i++) ids[i] = -1;
    return ids;
}

void *ht_alloc_aligned(size_t alignment, size_t bytes)
{
    void *p = aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    if (!p) ht_out_of_memory(1, bytes);
    return memset(p, 0, bytes);
}

void *ht_realloc(void *old, size_t bytes)
{
    void *p = realloc(old, bytes ? bytes : 1);
    if (!p) ht_out_of_memory(1, bytes);
    return prefer_huge_pages(p, bytes);
}

void *ht_grow(void *old, size_t bytes, size_t want, size_t *cap)
{
    size_t n = *cap ? *cap : 16, all;
    while (n < want && !__builtin_mul_overflow(n, 2, &n)) continue;
    if (n < want || __builtin_mul_overflow(n, bytes, &all)) ht_out_of_memory(want, bytes);
    *cap = n;
    return ht_realloc(old, all);
}

char *ht_strdup(const char *s)
{
    size_t n = strlen(s) + 1;
    return memcpy(ht_alloc(n), s, n);
}
