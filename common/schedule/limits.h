/* Bounds that keep every sum in 64 bits and every table in memory. The verifier and the graph file loader check
   them. */
#ifndef HT_SCHEDULE_LIMITS_H
#define HT_SCHEDULE_LIMITS_H

#include <stdint.h>

#define HT_MAX_RANKS         65536
#define HT_MAX_UNITS         65536
#define HT_MAX_MICRO_BATCHES (1 << 20)
#define HT_MAX_SEQUENCES     (1 << 20)
#define HT_MAX_UNIT_BATCHES  (1 << 24)          /* units x micro-batches */
#define HT_MAX_TENSOR_BYTES  ((int64_t)1 << 50) /* 1 PiB */
#define HT_MAX_AMOUNT        ((int64_t)1 << 60) /* of a resource, by one op */

#endif
