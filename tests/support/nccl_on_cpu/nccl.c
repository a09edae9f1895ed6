/* Implements nccl.h and cuda_runtime_api.h of this folder. The processes share a file of rank 0's, whose path is the
   unique id; it goes with them. */
#include "nccl.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct ht_nccl_on_cpu ht_nccl_on_cpu;

enum { MOST_RANKS = 4, MOST_PARTS = 64, CHUNK = 1 << 12, POLL_US = 100, BUSY_US = 2000 };

static void must(bool good, const char *what)
{
    if (good) return;
    fprintf(stderr, "NCCL on the CPU: %s\n", what);
    abort();
}

/* ---- CUDA: a stream is a thread that works through a list -------------------------------------------------------- */

struct entry {
    void (*run)(void *arg);
    void *arg;
    struct entry *next;
};

struct stream {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct entry *first, *last;
    int64_t enqueued, done;
    bool closing;
};

struct event {
    struct stream *stream;
    int64_t after; /* entries of the stream */
};

static _Thread_local int device;

const char *cudaGetErrorName(cudaError_t error)
{
    return error == cudaErrorInvalidDevice ? "cudaErrorInvalidDevice" : "an error";
}

const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaErrorInvalidDevice ? "invalid device ordinal" : "it failed";
}

cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int to)
{
    if (to < 0 || to >= HT_ON_CPU_DEVICES) return cudaErrorInvalidDevice;
    device = to;
    return cudaSuccess;
}

static void use_context(void)
{
    atomic_fetch_or(&ht_nccl_on_cpu.contexts, 1U << device);
}

static bool on_device(const void *p, size_t bytes)
{
    const char *c = p, *memory = ht_nccl_on_cpu.memory;
    return c >= memory && c + bytes <= memory + sizeof(ht_nccl_on_cpu.memory);
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p)
{
    use_context();
    a->type = on_device(p, 1) ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered;
    return cudaSuccess;
}

static void *stream_main(void *arg)
{
    struct stream *s = arg;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (!s->first && !s->closing) pthread_cond_wait(&s->changed, &s->lock);
        struct entry *e = s->first;
        if (!e) break;
        s->first = e->next;
        pthread_mutex_unlock(&s->lock);
        e->run(e->arg);
        free(e);
        pthread_mutex_lock(&s->lock);
        s->done++;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static void enqueue(struct stream *s, void (*run)(void *), void *arg)
{
    struct entry *e = malloc(sizeof(*e));
    must(e, "memory");
    *e = (struct entry){.run = run, .arg = arg};
    pthread_mutex_lock(&s->lock);
    if (s->first)
        s->last->next = e;
    else
        s->first = e;
    s->last = e;
    s->enqueued++;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    struct stream *s = calloc(1, sizeof(*s));
    must(s && flags == cudaStreamNonBlocking, "a stream");
    use_context();
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    must(!pthread_create(&s->thread, NULL, stream_main, s), "a stream's thread");
    ht_nccl_on_cpu.objects++;
    *stream = s;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    pthread_mutex_lock(&s->lock);
    s->closing = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->changed);
    free(s);
    ht_nccl_on_cpu.objects--;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    pthread_mutex_lock(&s->lock);
    for (int64_t until = s->enqueued; s->done < until;) pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
    return cudaSuccess;
}

struct copy {
    void *to;
    const void *from;
    size_t bytes;
};

static void run_copy(void *arg)
{
    struct copy *c = arg;
    memmove(c->to, c->from, c->bytes);
    free(c);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    struct copy *c = malloc(sizeof(*c));
    must(c && kind == cudaMemcpyDefault, "a copy");
    *c = (struct copy){to, from, bytes};
    enqueue(stream, run_copy, c);
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    must(flags == cudaEventDisableTiming, "an event's flags");
    *event = calloc(1, sizeof(**event));
    must(*event, "memory");
    ht_nccl_on_cpu.objects++;
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    free(event);
    ht_nccl_on_cpu.objects--;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    pthread_mutex_lock(&stream->lock);
    *event = (struct event){stream, stream->enqueued};
    pthread_mutex_unlock(&stream->lock);
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    must(event->stream, "an event is asked for that was not recorded");
    pthread_mutex_lock(&event->stream->lock);
    bool reached = event->stream->done >= event->after;
    pthread_mutex_unlock(&event->stream->lock);
    return reached ? cudaSuccess : cudaErrorNotReady;
}

/* ---- NCCL -------------------------------------------------------------------------------------------------------- */

/* The file: who has come, and a chunk under way for each pair of ranks. */
struct shared {
    atomic_int joined, left, device[MOST_RANKS];
    struct channel {
        atomic_bool full;
        size_t bytes; /* of the chunk */
        char chunk[CHUNK];
    } channels[MOST_RANKS][MOST_RANKS]; /* from, to */
};

struct part {
    char *data;
    size_t bytes, moved;
    int peer;
    bool receive;
};

struct ncclComm {
    atomic_bool alive, stop; /* stop: aborted */
    atomic_int state;        /* ncclResult_t */
    int rank, ranks, device;
    struct shared *shared;
    pthread_t worker; /* of the last call that was left in progress */
    bool working, finalized;
    struct group *group; /* for the worker */
};

struct group {
    struct ncclComm *comm;
    struct stream *stream;
    struct part parts[MOST_PARTS];
    int n;
};

static _Thread_local struct group *open_group;
static _Thread_local bool group_failed;
static _Thread_local char last_error[128];

/* Ends the process unless the communicator may be used. */
static void usable(struct ncclComm *c)
{
    must(c && c->alive, "a communicator is used that was freed");
    must(c->state != ncclInProgress, "a communicator is used that is busy");
}

static void begin_work(struct ncclComm *c, void *(*work)(void *))
{
    if (c->working) pthread_join(c->worker, NULL);
    c->working = true;
    c->state = ncclInProgress;
    must(!pthread_create(&c->worker, NULL, work, c), "a thread");
}

const char *ncclGetErrorString(ncclResult_t result)
{
    return result == ncclInvalidUsage ? "invalid usage" : result == ncclRemoteError ? "remote error" : "internal error";
}

const char *ncclGetLastError(ncclComm_t comm)
{
    must(!comm, "NCCL's last error is of no communicator");
    return last_error;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    int fd = memfd_create("nccl on cpu", MFD_CLOEXEC); /* open as long as the process */
    must(fd >= 0 && !ftruncate(fd, sizeof(struct shared)), "the shared file");
    snprintf(id->internal, sizeof(id->internal), "/proc/%d/fd/%d", (int)getpid(), fd);
    return ncclSuccess;
}

/* Waits for all ranks; two on one device are an error at both. */
static void *join_ranks(void *arg)
{
    struct ncclComm *c = arg;
    atomic_store(&c->shared->device[c->rank], c->device);
    c->shared->joined++;
    while (!c->stop && c->shared->joined < c->ranks) usleep(POLL_US);
    ncclResult_t result = ncclSuccess;
    bool alone = true;
    for (int r = 0; r < c->ranks; r++) alone = alone && (r == c->rank || c->shared->device[r] != c->device);
    if (!alone) result = ncclInvalidUsage;
    /* A rank beside two that share a device waits for them to connect. */
    for (int a = 0; a < c->ranks && alone; a++)
        for (int b = 0; b < a; b++)
            while (!c->stop && c->shared->device[a] == c->shared->device[b]) usleep(POLL_US);
    c->state = c->stop ? ncclInternalError : result;
    return NULL;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config)
{
    struct ncclComm *c = calloc(1, sizeof(*c));
    int fd = open(id.internal, O_RDWR | O_CLOEXEC);
    must(c && ranks <= MOST_RANKS && fd >= 0, "a communicator");
    must(config->blocking == 0, "a communicator that blocks");
    *c = (struct ncclComm){.alive = true, .rank = rank, .ranks = ranks, .device = device};
    c->shared = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    must(c->shared != MAP_FAILED, "the shared file");
    close(fd);
    ht_nccl_on_cpu.objects++;
    *comm = c;
    begin_work(c, join_ranks);
    return ncclInProgress;
}

/* Keeps the memory, so that its later use is noticed. */
static void free_comm(struct ncclComm *c)
{
    if (c->working) pthread_join(c->worker, NULL);
    munmap(c->shared, sizeof(struct shared));
    c->alive = false;
    ht_nccl_on_cpu.objects--;
}

static void *leave_ranks(void *arg)
{
    struct ncclComm *c = arg;
    c->shared->left++;
    while (!c->stop && c->shared->left < c->ranks) usleep(POLL_US);
    c->state = ncclSuccess;
    return NULL;
}

ncclResult_t ncclCommFinalize(ncclComm_t c)
{
    usable(c);
    must(!ht_nccl_on_cpu.kernels, "a communicator is finalized whose kernels run");
    c->finalized = true;
    begin_work(c, leave_ranks);
    return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t c)
{
    usable(c);
    must(c->finalized, "a communicator is destroyed that was not finalized");
    free_comm(c);
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t c)
{
    must(c && c->alive, "a communicator is aborted that was freed");
    must(!open_group, "a communicator is aborted within a group");
    while (ht_nccl_on_cpu.abort_hangs) pause();
    c->stop = true;
    if (c->working) pthread_join(c->worker, NULL);
    c->working = false;
    while (ht_nccl_on_cpu.kernels) usleep(POLL_US);
    free_comm(c);
    return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *error)
{
    must(c && c->alive, "the state of a communicator that was freed");
    *error = ht_nccl_on_cpu.break_link ? ncclRemoteError : (ncclResult_t)atomic_load(&c->state);
    snprintf(last_error, sizeof(last_error), "%s",
             *error == ncclInvalidUsage  ? "Duplicate GPU detected"
             : *error == ncclRemoteError ? "the link is broken"
                                         : "");
    return ncclSuccess;
}

ncclResult_t ncclGroupStart(void)
{
    must(!open_group, "a group within a group");
    open_group = calloc(1, sizeof(*open_group));
    must(open_group, "memory");
    ht_nccl_on_cpu.groups++;
    return ncclSuccess;
}

static ncclResult_t add(void *data, size_t bytes, int peer, bool receive, struct ncclComm *c, struct stream *stream)
{
    struct group *g = open_group;
    usable(c);
    must(g && g->n < MOST_PARTS && on_device(data, bytes) && bytes, "a part of a group");
    must(device == c->device, "a communicator is used on another device");
    if (!receive && ht_nccl_on_cpu.fail_sends) {
        snprintf(last_error, sizeof(last_error), "a send fails as told");
        group_failed = true;
        return ncclInternalError;
    }
    g->comm = c;
    g->stream = stream;
    g->parts[g->n++] = (struct part){.data = data, .bytes = bytes, .peer = peer, .receive = receive};
    return ncclSuccess;
}

ncclResult_t ncclSend(const void *data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    must(type == ncclChar, "the type");
    return add((void *)(uintptr_t)data, count, peer, false, comm, stream);
}

ncclResult_t ncclRecv(void *data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream)
{
    must(type == ncclChar, "the type");
    return add(data, count, peer, true, comm, stream);
}

/* Moves a chunk of the part, if the channel lets it. */
static bool move(struct ncclComm *c, struct part *p)
{
    struct channel *ch = p->receive ? &c->shared->channels[p->peer][c->rank] : &c->shared->channels[c->rank][p->peer];
    if (atomic_load(&ch->full) != p->receive) return false;
    size_t left = p->bytes - p->moved, n = left < CHUNK ? left : CHUNK;
    if (p->receive) {
        must(ch->bytes == n, "the lengths of a message's two ends");
        memcpy(p->data + p->moved, ch->chunk, n);
    } else {
        memcpy(ch->chunk, p->data + p->moved, n);
        ch->bytes = n;
    }
    p->moved += n;
    atomic_store(&ch->full, !p->receive);
    return true;
}

/* Moves all parts at once; of one peer and way the first that is not done. */
static void run_group(void *arg)
{
    struct group *g = arg;
    struct ncclComm *c = g->comm;
    bool done = false;
    while (!done && !c->stop) {
        bool moved = false, behind[MOST_RANKS][2] = {{false}};
        done = true;
        for (int i = 0; i < g->n && !ht_nccl_on_cpu.stall; i++) {
            struct part *p = &g->parts[i];
            if (p->moved == p->bytes || behind[p->peer][p->receive]) continue;
            moved = move(c, p) || moved;
            behind[p->peer][p->receive] = p->moved < p->bytes;
        }
        for (int i = 0; i < g->n; i++) done = done && g->parts[i].moved == g->parts[i].bytes;
        if (!moved && !done) usleep(POLL_US);
    }
    free(g);
    ht_nccl_on_cpu.kernels--;
}

/* Launches late: an event that is recorded before this is reached too early. */
static void *launch_group(void *arg)
{
    struct ncclComm *c = arg;
    usleep(BUSY_US);
    enqueue(c->group->stream, run_group, c->group);
    c->state = ncclSuccess;
    return NULL;
}

ncclResult_t ncclGroupEnd(void)
{
    struct group *g = open_group;
    must(g, "the end of a group that did not begin");
    open_group = NULL;
    if (group_failed || !g->n) {
        free(g);
        bool failed = group_failed;
        group_failed = false;
        return failed ? ncclInternalError : ncclSuccess;
    }
    ht_nccl_on_cpu.kernels++;
    g->comm->group = g;
    begin_work(g->comm, launch_group);
    return ncclInProgress;
}
