#include "common/backend/cpu_cores.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/array.h"

enum ht_status ht_cpu_split_cores(int device_cores, struct ht_error *err, struct ht_cpu_split *out)
{
    cpu_set_t set;
    int cpu[HT_CPU_MAX_CORES], n = 0;
    if (sched_getaffinity(0, sizeof(set), &set))
        return ht_fail(err, HT_FAILED, "cannot ask which CPUs this process may use: %s", strerror(errno));
    for (int i = 0; i < CPU_SETSIZE && n < HT_CPU_MAX_CORES; i++)
        if (CPU_ISSET((size_t)i, &set)) cpu[n++] = i;
    int most = n > 1 ? n - 1 : 1;
    if (device_cores < 0 || device_cores > most)
        return ht_fail(err, HT_BAD_INPUT,
                       "%d cores for the device: expected 1 to %d, for this process may use %d CPU%s%s", device_cores,
                       most, n, n == 1 ? "" : "s", n > 1 ? " and the host needs one" : "");
    *out = (struct ht_cpu_split){.n_device = device_cores, .shared = n == 1};
    if (device_cores == 0) out->n_device = n > 4 ? n * 3 / 4 : most;
    out->n_host = out->shared ? 1 : n - out->n_device;
    memcpy(out->device, cpu, sizeof(int) * (size_t)out->n_device);
    memcpy(out->host, cpu + (out->shared ? 0 : out->n_device), sizeof(int) * (size_t)out->n_host);
    return HT_OK;
}

enum ht_status ht_cpu_split_for_rank(int device_cores, int rank, int ranks, struct ht_error *err,
                                     struct ht_cpu_split *out)
{
    struct ht_cpu_split all;
    if (ranks == 1) return ht_cpu_split_cores(device_cores, err, out);
    enum ht_status status = ht_cpu_split_cores(0, err, &all);
    if (status) return status;
    int n = all.shared ? 1 : all.n_device + all.n_host, cpus[2 * HT_CPU_MAX_CORES];
    memcpy(cpus, all.device, sizeof(int) * (size_t)all.n_device);
    if (!all.shared) memcpy(cpus + all.n_device, all.host, sizeof(int) * (size_t)all.n_host);
    if (device_cores == 0) device_cores = n > ranks ? (n - 1) / ranks : 1;
    if (device_cores > HT_CPU_MAX_CORES)
        return ht_fail(err, HT_BAD_INPUT, "%d cores for a device; expected at most %d", device_cores, HT_CPU_MAX_CORES);
    int used = device_cores * ranks;
    *out = (struct ht_cpu_split){.n_device = device_cores, .n_host = n - used, .shared = used >= n};
    if (out->shared) {
        out->n_host = 1;
        return HT_OK;
    }
    memcpy(out->device, cpus + rank * device_cores, sizeof(int) * (size_t)device_cores);
    memcpy(out->host, cpus + used, sizeof(int) * (size_t)out->n_host);
    return HT_OK;
}

static enum ht_status create_pool(int n, const int *cpus, const char *whose, struct ht_error *err,
                                  struct ht_cpu_cores *out)
{
    pthread_mutex_init(&out->lock, NULL);
    out->pool = ht_pool_create(n, cpus);
    if (out->pool) return HT_OK;
    return ht_fail(err, HT_INFEASIBLE, "cannot start %d threads for the %s: %s", n, whose, strerror(errno));
}

enum ht_status ht_cpu_cores_create(const struct ht_cpu_split *split, struct ht_error *err, struct ht_cpu_cores *device,
                                   struct ht_cpu_cores *host)
{
    bool pinned = split && !split->shared;
    enum ht_status status =
        create_pool(split ? split->n_device : 1, pinned ? split->device : NULL, "device", err, device);
    if (status) {
        pthread_mutex_init(&host->lock, NULL);
        return status;
    }
    return create_pool(split ? split->n_host : 1, pinned ? split->host : NULL, "host", err, host);
}

void ht_cpu_cores_free(struct ht_cpu_cores *c)
{
    ht_pool_destroy(c->pool);
    pthread_mutex_destroy(&c->lock);
    c->pool = NULL;
}

struct ht_pool *ht_cpu_cores_take(struct ht_cpu_cores *c)
{
    if (ht_pool_threads(c->pool) > 1) pthread_mutex_lock(&c->lock);
    return c->pool;
}

void ht_cpu_cores_give(struct ht_cpu_cores *c)
{
    if (ht_pool_threads(c->pool) > 1) pthread_mutex_unlock(&c->lock);
}

void ht_cpu_pin_lane(const struct ht_cpu_split *split, enum ht_lane_kind kind)
{
    if (!split || split->shared) return;
    if (kind == HT_LANE_COMPUTE) {
        ht_pool_pin_self(split->device[0]);
    } else if (kind == HT_LANE_HOST) {
        ht_pool_pin_self(split->host[0]);
    } else {
        cpu_set_t set;
        CPU_ZERO(&set);
        for (int i = 0; i < split->n_host; i++) CPU_SET((size_t)split->host[i], &set);
        sched_setaffinity(0, sizeof(set), &set);
    }
}
