/*
 * Two pools of workers, one for ops on the device, one for host work. Internal to common/backend.
 *
 * A pool serves one op at a time. Lanes that share one (several HOST lanes, compute lanes of several ranks) take turns.
 * A pool of one worker is only the lane's own thread, and needs no turns.
 */
#ifndef HT_BACKEND_CPU_CORES_H
#define HT_BACKEND_CPU_CORES_H

#include "common/backend/cpu.h"
#include "common/base/pool.h"

#include <pthread.h>

struct ht_cpu_cores {
    struct ht_pool *pool;
    pthread_mutex_t lock;
};

/* Creates both pools. The caller frees both, also after a failure. */
enum ht_status ht_cpu_cores_create(const struct ht_cpu_split *split, struct ht_error *err, struct ht_cpu_cores *device,
                                   struct ht_cpu_cores *host);
void ht_cpu_cores_free(struct ht_cpu_cores *c);

/* Takes the pool for one op of the calling lane; waits while another lane has it. */
struct ht_pool *ht_cpu_cores_take(struct ht_cpu_cores *c);
void ht_cpu_cores_give(struct ht_cpu_cores *c);

/* Pins the calling lane's thread: compute to the device's first core, host work to the host's first core (each is
   worker 0 of its pool), any other to all of the host's cores. */
void ht_cpu_pin_lane(const struct ht_cpu_split *split, enum ht_lane_kind kind);

#endif
