/*
 * Measures what copies between pinned host memory and the GPU, and the host's own work, cost each other: both stream main
 * memory, which they share.
 *
 *     bench_cuda_beside [--json]
 *
 * Work is AdamW and the addition of gradients over 32 million parameters, on all cores but one (at least one), as a training has them;
 * copies are of 64 MiB, one behind the other in a stream a way. Each kind of work is timed alone, beside copies each way, and beside both;
 * each way is timed alone and beside each kind of work. Rates are bytes of main memory a second: 28 a parameter for AdamW with 16-bit
 * gradients and copies, 10 for the addition, one a byte for copies. Medians of nine. Exit status 77 without a GPU.
 */
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include <cuda_runtime_api.h>
#include <unistd.h>

#include "bench/timing.h"

extern "C" {
#include "common/base/pool.h"
#include "common/kernels/adamw.h"
#include "common/kernels/grad_sum.h"
}

enum { REPEATS = 9, WARM_UP = 2, N = 32 << 20 };
static const size_t copy_bytes = (size_t)64 << 20;

static void must(cudaError_t result, const char *what)
{
    if (result == cudaSuccess) return;
    fprintf(stderr, "bench_cuda_beside: %s: %s\n", what, cudaGetErrorString(result));
    exit(1);
}

static void *pinned(size_t bytes)
{
    void *x;
    must(cudaHostAlloc(&x, bytes, cudaHostAllocPortable), "pinned memory");
    memset(x, 0, bytes);
    return x;
}

/* Copies on one way, one after another, until it is to stop. */
struct way {
    bool up;
    void *host, *device;
    std::atomic<bool> stop{false};
    std::atomic<long> copies{0};
    std::thread thread;
};

static void copy_on(way *w)
{
    cudaStream_t stream;
    cudaEvent_t ends[2];
    ht_pool_pin_self(0); /* the core that the work leaves */
    must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    for (cudaEvent_t &e : ends)
        must(cudaEventCreateWithFlags(&e, cudaEventBlockingSync | cudaEventDisableTiming), "event");
    for (long k = 0; !w->stop; k++) {
        must(cudaMemcpyAsync(w->up ? w->device : w->host, w->up ? w->host : w->device, copy_bytes, cudaMemcpyDefault,
                             stream),
             "copy");
        must(cudaEventRecord(ends[k % 2], stream), "event");
        if (k > 0) must(cudaEventSynchronize(ends[(k - 1) % 2]), "wait");
        if (k > 0) w->copies++;
    }
    must(cudaStreamSynchronize(stream), "wait");
}

struct work {
    const char *name;
    double bytes; /* of main memory, a parameter */
};

static const work works[] = {{"AdamW", 28}, {"add gradients", 10}};

struct arrays {
    float *param, *m, *v, *sum;
    uint16_t *grad, *copy;
    struct ht_adamw_step step;
};

static void run_work(ht_pool *pool, int which, const arrays *a)
{
    if (which == 0) {
        ht_adamw_row row = {a->param, a->m, a->v, a->grad, HT_BF16, HT_BF16, a->copy, N};
        ht_adamw_update_row(pool, &a->step, &row);
    } else {
        ht_grad_sum(pool, a->sum, HT_F32, a->grad, HT_BF16, N);
    }
}

/* Times the work `which` (-1: a pause of 50 ms) beside the ways in use. Writes bytes a second of the work and of each way. */
static void measure(ht_pool *pool, int which, const arrays *a, way *ways, int used, double *work_rate,
                    double way_rate[2])
{
    double seconds[REPEATS], ways_s[2][REPEATS];
    for (int i = 0; i < 2; i++) {
        ways[i].stop = false;
        ways[i].copies = 0;
        if (used >> i & 1) ways[i].thread = std::thread(copy_on, &ways[i]);
    }
    for (int r = -WARM_UP; r < REPEATS; r++) {
        long before[2] = {ways[0].copies, ways[1].copies};
        double begin = bench_now_s();
        int times = 0;
        do {
            if (which < 0)
                usleep(10000);
            else
                run_work(pool, which, a);
            times++;
        } while (bench_now_s() - begin < 0.05);
        double took = bench_now_s() - begin;
        if (r < 0) continue;
        seconds[r] = took / times;
        for (int i = 0; i < 2; i++) ways_s[i][r] = (double)(ways[i].copies - before[i]) * (double)copy_bytes / took;
    }
    for (int i = 0; i < 2; i++) {
        ways[i].stop = true;
        if (used >> i & 1) ways[i].thread.join();
        way_rate[i] = bench_spread_of(ways_s[i], REPEATS).median;
    }
    *work_rate = which < 0 ? 0 : works[which].bytes * N / bench_spread_of(seconds, REPEATS).median;
}

int main(int argc, char **argv)
{
    static const char *names[] = {"nothing", "h2d", "d2h", "both"};
    bool json = argc > 1 && !strcmp(argv[1], "--json");
    int n = 0, cores = (int)std::max(1L, sysconf(_SC_NPROCESSORS_ONLN) - 1);
    if (cudaGetDeviceCount(&n) != cudaSuccess || n == 0) {
        fprintf(stderr, "bench_cuda_beside: no GPU\n");
        return 77;
    }
    way ways[2];
    for (int i = 0; i < 2; i++) {
        ways[i].up = i == 0;
        ways[i].host = pinned(copy_bytes);
        must(cudaMalloc(&ways[i].device, copy_bytes), "device memory");
    }
    arrays a = {};
    for (float **x : {&a.param, &a.m, &a.v, &a.sum}) *x = (float *)pinned(sizeof(float) * N);
    for (uint16_t **x : {&a.grad, &a.copy}) *x = (uint16_t *)pinned(sizeof(uint16_t) * N);
    ht_adamw config = {1e-4, 0.9, 0.999, 1e-8, 0.01};
    a.step = ht_adamw_step(&config, 1, 1);
    std::vector<int> cpus;
    for (int i = 0; i < cores; i++) cpus.push_back(i + 1);
    ht_pool *pool = ht_pool_create(cores, cores > 1 ? cpus.data() : NULL);
    if (!pool) return 1;
    if (cores > 1) ht_pool_pin_self(cpus[0]);

    printf(json ? "[" : "%d cores\nwork           beside    work GB/s  h2d GB/s  d2h GB/s  all GB/s\n", cores);
    for (int which = -1; which < 2; which++)
        for (int used = which < 0 ? 1 : 0; used < 4; used++) {
            double work_rate, way_rate[2];
            measure(pool, which, &a, ways, used, &work_rate, way_rate);
            const char *name = which < 0 ? "nothing" : works[which].name;
            double all = work_rate + way_rate[0] + way_rate[1];
            if (json)
                printf("%s{\"work\": \"%s\", \"beside\": \"%s\", \"cores\": %d, \"work_bytes_per_s\": %.6g, "
                       "\"h2d_bytes_per_s\": %.6g, "
                       "\"d2h_bytes_per_s\": %.6g}",
                       which >= 0 || used > 1 ? ",\n " : "", name, names[used], cores, work_rate, way_rate[0],
                       way_rate[1]);
            else
                printf("%-13s  %-8s  %9.1f  %8.1f  %8.1f  %8.1f\n", name, names[used], work_rate * 1e-9,
                       way_rate[0] * 1e-9, way_rate[1] * 1e-9, all * 1e-9);
        }
    if (json) printf("]\n");
    ht_pool_destroy(pool);
    return 0;
}
