/*
 * Growing arrays and checked allocation.
 *
 *     int *v = NULL; size_t n = 0, cap = 0;
 *     HT_PUSH(v, n, cap, 7);
 *
 * When host memory for our own bookkeeping runs out, no caller could go on. So the process ends with one line and
 * HT_INFEASIBLE, and so it does for a size that does not fit size_t. (common/mem handles memory of the modelled or
 * emulated machine.)
 */
#ifndef HT_BASE_ARRAY_H
#define HT_BASE_ARRAY_H

#include <stddef.h>
#include <stdint.h>

/* Names a rank's launcher in the rank's environment (common/comm/launch.h). */
#define HT_LAUNCHER_VARIABLE "HETBENCH_LAUNCHER"

void *ht_alloc(size_t bytes); /* zeroed; bytes 0 gives a valid pointer */
void *ht_alloc_array(size_t n, size_t bytes);
int32_t *ht_alloc_ids(int64_t n);                       /* n times -1: not set */
void *ht_alloc_aligned(size_t alignment, size_t bytes); /* zeroed; a power of two */
void *ht_realloc(void *old, size_t bytes);              /* the grown part is not zeroed */
/* Ends the process with one line and HT_INFEASIBLE, because n times `bytes` bytes cannot be allocated. In a rank the
   launcher prints the line, once for all ranks. */
_Noreturn void ht_out_of_memory(size_t n, size_t bytes);
/* Called before that; NULL: nobody wants to know. May not allocate. */
extern void (*ht_on_out_of_memory)(void);
/* Grows an array to `want` elements of `bytes` bytes, at least doubling it. Updates *cap. */
void *ht_grow(void *old, size_t bytes, size_t want, size_t *cap);
char *ht_strdup(const char *s);

#define HT_NEW(type)          ((type *)ht_alloc(sizeof(type)))
#define HT_NEW_ARRAY(type, n) ((type *)ht_alloc_array((size_t)(n), sizeof(type)))

#define HT_RESERVE(v, cap, want)                                                                                       \
    do {                                                                                                               \
        if ((size_t)(want) > (size_t)(cap)) {                                                                          \
            size_t ht_cap_ = (size_t)(cap);                                                                            \
            (v) = ht_grow((v), sizeof(*(v)), (size_t)(want), &ht_cap_);                                                \
            (cap) = ht_cap_;                                                                                           \
        }                                                                                                              \
    } while (0)

#define HT_PUSH(v, n, cap, value)                                                                                      \
    do {                                                                                                               \
        HT_RESERVE(v, cap, (size_t)(n) + 1);                                                                           \
        (v)[(n)++] = (value);                                                                                          \
    } while (0)

#define HT_COUNT(a) (sizeof(a) / sizeof((a)[0]))

#endif
