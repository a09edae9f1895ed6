/* The CUDA backend's books, and the ground that its files stand on. Internal to common/backend. */
#ifndef HT_BACKEND_CUDA_STATE_H
#define HT_BACKEND_CUDA_STATE_H

#include <pthread.h>

#include "common/backend/cuda.h"

/* An event is recorded anew three iterations later: whoever waits for it belongs to this iteration or the next, and has
   been enqueued by then, since only two are in flight. */
enum { HT_CUDA_TURNS = 3 };

/* Device memory is given out in multiples of this, in bytes. */
enum { HT_CUDA_ALIGN = 512 };
static inline int64_t ht_cuda_aligned(int64_t bytes)
{
    return (bytes + HT_CUDA_ALIGN - 1) / HT_CUDA_ALIGN * HT_CUDA_ALIGN;
}

/* What an op needs on the device beside tensors, and what it leaves for the host. */
struct ht_cuda_results {
    int64_t n_tokens;          /* 0: it looks at none */
    int32_t max_results;       /* of rows of gradients that it judges, or of logged steps */
    char *on_host, *on_device; /* tokens, targets, loss; or answers: as cuda_results.c lays them out */
};

/* What the host is to know when the op has ended. */
struct ht_cuda_result {
    struct ht_grad_partial *to; /* of a judge; NULL: the header of a log, */
    const void *log;            /* of this one */
};

/* An op on its way. */
struct ht_cuda_in_flight {
    struct ht_cuda_device *d;
    void *context, *scratch, *partial; /* of its lane */
    void *begin, *end;                 /* events; NULL until first used */
    struct ht_cuda_results *results;
    double *loss_to; /* where the loss goes when it has ended; NULL: nowhere */
    const char *why; /* what failed when the host looked once more at what the op has left; NULL: nothing */
    /* NULL until first used, and where the host concludes nothing: */
    struct ht_cuda_result *host_results; /* [results->max_results] */
    struct ht_buffer *buffers;           /* the op's */
    int32_t n_results, n_buffers;
};

/* Ops of the previous iteration, as ht_backend_ops' awaits has them. */
struct ht_cuda_host_deps {
    int32_t *ops;
    size_t n, cap;
};

struct ht_cuda_lane {
    bool is_stream;
    void *stream, *context;
    void *partial; /* of the reserve: where a gradient is judged; or NULL */
    void *scratch; /* of the reserve, instead of the graph's workspaces where these are too small; or NULL */
};

struct ht_cuda_device {
    const struct ht_cuda_api *api;
    int index;
    struct ht_model model;
    enum ht_dtype param;
    uint64_t seed; /* of the initial parameters */
    char note[512];
    struct ht_cpu *cpu;
    struct ht_cuda_lane side; /* for copies of hooks, and of ops on host lanes */
    pthread_mutex_t side_lock;
    void *reserve; /* device memory beside the arena */
    int64_t reserve_bytes;
    bool reserve_is_fixed; /* by ht_cuda_device_reserve; else it is made as large as a schedule needs */
    struct {               /* of ht_cuda_device_arena */
        struct ht_arena *arena;
        void *device, *registered;
        int64_t bytes; /* on the device */
    } * arenas;
    size_t n_arenas, arenas_cap;

    /* While a run has a schedule open: */
    const struct ht_schedule *s;
    struct ht_cuda_lane *lanes;          /* [n_lanes] */
    struct ht_cuda_in_flight *in_flight; /* [n_ops * HT_CUDA_TURNS] */
    struct ht_cuda_results *results;     /* [n_ops * HT_CUDA_TURNS] */
    void *results_on_host;
    struct ht_cuda_host_deps *host_deps; /* [n_ops] */
    /* An event and when it was reached, on CLOCK_MONOTONIC. */
    void *base, *next_base;
    int64_t base_ns;
    pthread_mutex_t base_lock;
};

/* A failure of CUDA's, as ours. NULL is HT_OK. */
enum ht_status ht_cuda_failed(const char *text, const char *what, struct ht_error *err);
/* Before anything runs: a failure that says that the machine has not what is needed is HT_INFEASIBLE. */
enum ht_status ht_cuda_not_there(enum ht_status status, struct ht_error *err);

/* products: of the reserve, or NULL. Closing does nothing to what has not been opened. */
enum ht_status ht_cuda_lane_open(struct ht_cuda_device *d, struct ht_cuda_lane *l, void *products,
                                 struct ht_error *err);
void ht_cuda_lane_close(struct ht_cuda_device *d, struct ht_cuda_lane *l);

#endif
