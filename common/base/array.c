#include "common/base/array.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *ht_checked(void *p, size_t bytes)
{
    if (!p) {
        fprintf(stderr, "hetbench: out of host memory (asked for %zu bytes of bookkeeping)\n", bytes);
        abort();
    }
    return p;
}

void *ht_alloc(size_t bytes)
{
    return ht_checked(calloc(1, bytes ? bytes : 1), bytes);
}

void *ht_realloc(void *old, size_t bytes)
{
    return ht_checked(realloc(old, bytes ? bytes : 1), bytes);
}

char *ht_strdup(const char *s)
{
    size_t n = strlen(s) + 1;
    return memcpy(ht_alloc(n), s, n);
}
