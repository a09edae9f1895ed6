/* State of the CUDA backend, and functions that all of its files use. Internal to common/backend. */
#ifndef HT_BACKEND_CUDA_STATE_H
#define HT_BACKEND_CUDA_STATE_H

#include <pthread.h>

#include "common/backend/cuda.h"
#include "common/base/granule.h"

/* Iterations after which an event is recorded again. Its waiters belong to this iteration or the next, and have been
   enqueued by then, since only two iterations are in flight. */
enum { HT_CUDA_TURNS = 3 };

/* Device memory is allocated in multiples of this, in bytes. */
enum { HT_CUDA_ALIGN = HT_MEMORY_GRANULE };
static inline int64_t ht_cuda_aligned(int64_t bytes)
{
    return ht_round_up(bytes, HT_CUDA_ALIGN);
}

/* Memory of an op beside its tensors: inputs on the device, and results for the host. */
struct ht_cuda_results {
    int64_t input_bytes, targets_bytes; /* 0: the op uses none */
    int32_t max_results;                /* gradients that it checks, or its logged steps */
    char *on_host, *on_device;          /* input, targets, loss; or results: laid out by cuda_results.c */
};

/* A result that the host collects when the op has ended. */
struct ht_cuda_result {
    struct ht_grad_partial *to; /* of a gradient check; NULL: the header of a log, */
    bool adds;                  /* to what is there */
    const void *log;            /* namely this one */
};

struct ht_cuda_lane;

/* An op in flight. */
struct ht_cuda_in_flight {
    struct ht_cuda_device *d;
    const struct ht_cuda_lane *lane;
    void *context, *scratch, *partial; /* of its lane */
    void *begin, *end;                 /* events; NULL until first used */
    struct ht_cuda_results *results;
    double *loss_to; /* destination of the loss when it has ended; NULL: none */
    const char *why; /* error of an exchange between parts, or of a check while finalizing; NULL: none */
    /* NULL until first used, and for an op without results: */
    struct ht_cuda_result *host_results; /* [results->max_results] */
    struct ht_buffer *buffers;           /* the op's */
    int32_t n_results, n_buffers;
};

/* Ops of the previous iteration, for ht_backend_ops.host_deps. */
struct ht_cuda_host_deps {
    int32_t *ops;
    size_t n, cap;
};

struct ht_cuda_lane {
    bool is_stream; /* and this rank's */
    void *stream, *context;
    void *partial;        /* part of the reserve for a gradient check's partial; or NULL */
    void *scratch;        /* part of the reserve, used when the graph's workspaces are too small; or NULL */
    void *staging;        /* pinned, for messages between ranks and parts; or NULL */
    struct ht_comm *comm; /* view of the ranks' for the stream; NULL: the transport takes no buffers on GPUs */
};

/* One of: memory on the device, an arena, pinned host memory. */
struct ht_cuda_memory {
    void *device;
    int64_t bytes; /* of `device` */
    struct ht_arena *arena;
    void *registered;
};

struct ht_cuda_device {
    const struct ht_cuda_api *api;
    int index;
    int32_t rank;         /* whose ops it runs */
    struct ht_comm *comm; /* between the ranks; NULL: one rank */
    bool sums_in_order;   /* of ranks, in their order */
    struct ht_model model;
    enum ht_dtype param;
    uint64_t seed; /* of the initial parameters */
    char note[512];
    struct ht_cpu *cpu;
    struct ht_cuda_lane side; /* for copies of hooks, and of ops on host lanes */
    pthread_mutex_t side_lock;
    void *reserve; /* device memory beside the arena */
    int64_t reserve_bytes;
    bool reserve_is_fixed; /* by ht_cuda_device_reserve; else it grows to a schedule's need */
    struct ht_cuda_memory *memory;
    size_t n_memory, memory_cap;
    struct ht_cuda_slow_shape *slow; /* of the lanes that have been closed */
    size_t n_slow, slow_cap;

    /* While a run has a schedule open: */
    const struct ht_schedule *s;
    struct ht_cuda_lane *lanes;          /* [n_lanes] */
    struct ht_cuda_in_flight *in_flight; /* [n_ops * HT_CUDA_TURNS] */
    struct ht_cuda_results *results;     /* [n_ops * HT_CUDA_TURNS] */
    void *results_on_host;
    struct ht_cuda_host_deps *host_deps; /* [n_ops] */
    bool is_stuck; /* streams wait for peers that will not come; what they use stays until the process ends */
    /* An event and when it was reached, on CLOCK_MONOTONIC. */
    void *base, *next_base;
    int64_t base_ns;
    pthread_mutex_t base_lock;
};

/* Turns CUDA's error text into a status; NULL is HT_OK. */
enum ht_status ht_cuda_failed(const char *text, const char *what, struct ht_error *err);
/* Turns an op's error text into a status: "cuda: schedule 'x': op 12 (B3.0): cudaErrorX: ..". The label has kind, unit and
   micro-batch. */
enum ht_status ht_cuda_failed_op(const struct ht_cuda_device *d, int32_t op, const char *text, struct ht_error *err);
/* Turns a failure before any run, for lack of a resource, into HT_INFEASIBLE. */
enum ht_status ht_cuda_infeasible(enum ht_status status, struct ht_error *err);

/* Opens a lane's stream and context. products: part of the reserve, or NULL. Closing an unopened lane does nothing. */
enum ht_status ht_cuda_lane_open(struct ht_cuda_device *d, struct ht_cuda_lane *l, void *products,
                                 struct ht_error *err);
void ht_cuda_lane_close(struct ht_cuda_device *d, struct ht_cuda_lane *l);

#endif
