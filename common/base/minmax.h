/* Maximum and minimum of two counts, sizes or times. */
#ifndef HT_BASE_MINMAX_H
#define HT_BASE_MINMAX_H

#include <stdint.h>

static inline int64_t ht_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline int64_t ht_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

#endif
