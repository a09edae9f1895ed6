/* Implements nccl.h of this folder, over a stand-in for CUDA (on_cpu.h). The processes share a file of the one that made
   the unique id, which is the file's path; it goes with them. */
#include "common/base/half.h"
#include "nccl.h"
#include "on_cpu.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct ht_nccl_on_cpu ht_nccl_on_cpu;

enum { MOST_RANKS = 4, MOST_PARTS = 64, CHUNK = 1 << 15, POLL_US = 20, BUSY_US = 200 };

static void must(bool good, const char *what)
{
    if (good) return;
    fprintf(stderr, "NCCL on the CPU: %s\n", what);
    abort();
}

static bool on_device(const void *p, size_t bytes)
{
    return ht_on_cpu_memory(p, bytes) != NULL;
}

/* ---- NCCL -------------------------------------------------------------------------------------------------------- */

/* The file: who has come, and a chunk under way for each pair of ranks. */
struct shared {
    atomic_int joined, left, device[MOST_RANKS];
    struct channel {
        atomic_bool full;
        size_t bytes; /* of the chunk */
        size_t what;  /* its part's */
        char chunk[CHUNK];
    } channels[MOST_RANKS][MOST_RANKS]; /* from, to */
};

struct part {
    char *data;
    size_t bytes, moved;
    size_t what; /* 0: a message; else the collective: ranks that disagree about it wait for ever */
    int peer;
    bool receive;
};

/* The last step of a collective at a rank: terms that are added up in their order, or one that is copied. */
struct sum {
    char *to, *terms[MOST_RANKS];
    int n;
    size_t count;
    ncclDataType_t type;
};

struct ncclComm {
    atomic_bool alive, stop; /* stop: aborted */
    atomic_int state;        /* ncclResult_t */
    int rank, ranks, device;
    struct shared *shared;
    pthread_t worker; /* of the last call that was left in progress */
    bool working, finalized;
    struct group *group; /* for the worker */
    int issued;          /* groups so far, */
    atomic_int ended;    /* and those that have run */
};

struct group {
    struct ncclComm *comm;
    struct stream *stream;
    int turn; /* among the communicator's */
    struct part parts[MOST_PARTS];
    struct sum sums[MOST_PARTS];
    char *received[MOST_PARTS]; /* memory for terms */
    int n, n_sums, n_received;
};

/* Returns true if the environment's fate (nccl.h) has come for this rank. */
static bool meets(const struct ncclComm *c, const char *fate)
{
    const char *told = getenv("HT_NCCL_ON_CPU_FATE");
    char how[16];
    int rank, groups;
    if (!told || sscanf(told, "%d:%d:%15s", &rank, &groups, how) != 3 || rank != c->rank) return false;
    return ht_nccl_on_cpu.groups >= groups && !strcmp(how, fate);
}

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
    return result == ncclInvalidUsage         ? "invalid usage"
           : result == ncclRemoteError        ? "remote error"
           : result == ncclUnhandledCudaError ? "unhandled cuda error (run with NCCL_DEBUG=INFO for details)"
                                              : "internal error";
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
    *c = (struct ncclComm){.alive = true, .rank = rank, .ranks = ranks, .device = ht_on_cpu_device()};
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
    while (ht_nccl_on_cpu.abort_hangs || meets(c, "stuck")) pause();
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
    if (meets(c, "stuck")) ht_nccl_on_cpu.stall = ht_nccl_on_cpu.break_link = true;
    if (meets(c, "broken")) ht_nccl_on_cpu.break_link = true;
    *error = ht_nccl_on_cpu.break_link ? ncclRemoteError : (ncclResult_t)atomic_load(&c->state);
    snprintf(last_error, sizeof(last_error), "%s",
             *error == ncclInvalidUsage         ? "Duplicate GPU detected"
             : *error == ncclRemoteError        ? "the link is broken"
             : *error == ncclUnhandledCudaError ? "Failed to CUDA calloc 4194304 bytes: out of memory"
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

/* data: where the host may touch it. */
static ncclResult_t add(void *data, size_t bytes, int peer, bool receive, size_t what, struct ncclComm *c,
                        struct stream *stream)
{
    struct group *g = open_group;
    usable(c);
    must(g && g->n < MOST_PARTS && bytes, "a part of a group");
    must(ht_on_cpu_device() == c->device, "a communicator is used on another device");
    must(!g->n || (g->comm == c && g->stream == stream), "a group of several communicators or streams");
    if (!receive && ht_nccl_on_cpu.fail_sends) {
        snprintf(last_error, sizeof(last_error), "a send fails as told");
        group_failed = true;
        return ncclInternalError;
    }
    g->comm = c;
    g->stream = stream;
    g->parts[g->n++] = (struct part){.data = data, .bytes = bytes, .what = what, .peer = peer, .receive = receive};
    return ncclSuccess;
}

static char *memory_of(const void *p, size_t bytes)
{
    must(on_device(p, bytes), "memory that is not the GPU's");
    return ht_on_cpu_memory(p, bytes);
}

ncclResult_t ncclSend(const void *data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    must(type == ncclChar, "the type");
    return add(memory_of(data, count), count, peer, false, 0, comm, stream);
}

ncclResult_t ncclRecv(void *data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream)
{
    must(type == ncclChar, "the type");
    return add(memory_of(data, count), count, peer, true, 0, comm, stream);
}

/* ---- collectives: messages between all, then sums ---------------------------------------------------------------- */

static size_t bytes_of(ncclDataType_t type)
{
    return type == ncclChar ? 1 : type == ncclFloat32 ? 4 : type == ncclFloat64 ? 8 : 2;
}

enum { GATHERS = 1, SCATTERS, REDUCES, BROADCASTS, REDUCES_TO };

/* A collective under way: its first failure, and what its parts have in common. */
struct call {
    struct ncclComm *c;
    struct stream *stream;
    ncclDataType_t type;
    size_t count, bytes, what;
    ncclResult_t result;
};

static struct call begin_call(int kind, size_t count, ncclDataType_t type, struct ncclComm *c, struct stream *stream)
{
    struct call x = {.c = c, .stream = stream, .type = type, .count = count, .bytes = count * bytes_of(type)};
    must(open_group && count, "a collective without a group, or without elements");
    x.what = ((count * 8 + (size_t)kind) * 8 + (size_t)type) * 8 + 1;
    return x;
}

static void exchange(struct call *x, void *data, int peer, bool receive)
{
    if (!x->result) x->result = add(data, x->bytes, peer, receive, x->what, x->c, x->stream);
}

/* Receives a term. */
static char *receive_term(struct call *x, int from)
{
    struct group *g = open_group;
    char *term = malloc(x->bytes);
    must(term && g->n_received < MOST_PARTS, "memory for a term");
    g->received[g->n_received++] = term;
    exchange(x, term, from, true);
    return term;
}

static struct sum *add_sum(const struct call *x, char *to)
{
    struct group *g = open_group;
    must(g->n_sums < MOST_PARTS, "too many sums");
    struct sum *s = &g->sums[g->n_sums++];
    *s = (struct sum){.to = to, .count = x->count, .type = x->type};
    return s;
}

/* Adds up what all have, as a ring would: from the rank behind `last` on. */
static void sum_all(struct call *x, int last, char *mine, char *to)
{
    struct sum *s = add_sum(x, to);
    for (int i = 1; i <= x->c->ranks; i++) {
        int r = (last + i) % x->c->ranks;
        s->terms[s->n++] = r == x->c->rank ? mine : receive_term(x, r);
    }
}

static void copy_own(struct call *x, char *from, char *to)
{
    if (from == to) return;
    struct sum *s = add_sum(x, to);
    s->terms[s->n++] = from;
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t c,
                           cudaStream_t stream)
{
    struct call x = begin_call(GATHERS, count, type, c, stream);
    char *mine = memory_of(from, x.bytes), *all = memory_of(to, x.bytes * (size_t)c->ranks);
    for (int r = 0; r < c->ranks; r++) {
        if (r == c->rank) continue;
        exchange(&x, mine, r, false);
        exchange(&x, all + x.bytes * (size_t)r, r, true);
    }
    copy_own(&x, mine, all + x.bytes * (size_t)c->rank);
    return x.result;
}

ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t c, cudaStream_t stream)
{
    struct call x = begin_call(SCATTERS, count, type, c, stream);
    char *all = memory_of(from, x.bytes * (size_t)c->ranks);
    must(op == ncclSum, "the operation");
    for (int r = 0; r < c->ranks; r++)
        if (r != c->rank) exchange(&x, all + x.bytes * (size_t)r, r, false);
    sum_all(&x, c->rank, all + x.bytes * (size_t)c->rank, memory_of(to, x.bytes));
    return x.result;
}

/* Cuts the elements in as many pieces as there are ranks, each added up from another rank on. */
ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t c,
                           cudaStream_t stream)
{
    size_t begin = 0, each = bytes_of(type), n = (size_t)c->ranks;
    char *mine = memory_of(from, count * each), *out = memory_of(to, count * each);
    must(op == ncclSum, "the operation");
    for (size_t i = 0; i < n; i++) {
        size_t end = count * (i + 1) / n;
        struct call x = {0};
        if (end == begin) continue;
        x = begin_call(REDUCES, end - begin, type, c, stream);
        for (int r = 0; r < c->ranks; r++)
            if (r != c->rank) exchange(&x, mine + begin * each, r, false);
        sum_all(&x, (int)i, mine + begin * each, out + begin * each);
        if (x.result) return x.result;
        begin = end;
    }
    return ncclSuccess;
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root, ncclComm_t c,
                           cudaStream_t stream)
{
    struct call x = begin_call(BROADCASTS, count, type, c, stream);
    char *out = memory_of(to, x.bytes);
    if (c->rank != root) {
        exchange(&x, out, root, true);
        return x.result;
    }
    for (int r = 0; r < c->ranks; r++)
        if (r != root) exchange(&x, memory_of(from, x.bytes), r, false);
    copy_own(&x, memory_of(from, x.bytes), out);
    return x.result;
}

ncclResult_t ncclReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t c, cudaStream_t stream)
{
    struct call x = begin_call(REDUCES_TO, count, type, c, stream);
    must(op == ncclSum, "the operation");
    if (c->rank != root)
        exchange(&x, memory_of(from, x.bytes), root, false);
    else
        sum_all(&x, root, memory_of(from, x.bytes), memory_of(to, x.bytes));
    return x.result;
}

/* Returns the sum of two elements, rounded to the type. */
static void add_element(char *to, const char *a, const char *b, ncclDataType_t type)
{
    float x, y;
    uint16_t h, i;
    double u, v;
    switch (type) {
    case ncclFloat32:
        memcpy(&x, a, 4), memcpy(&y, b, 4);
        x += y;
        memcpy(to, &x, 4);
        return;
    case ncclFloat64:
        memcpy(&u, a, 8), memcpy(&v, b, 8);
        u += v;
        memcpy(to, &u, 8);
        return;
    case ncclFloat16:
        memcpy(&h, a, 2), memcpy(&i, b, 2);
        h = ht_f32_to_f16(ht_f16_to_f32(h) + ht_f16_to_f32(i));
        memcpy(to, &h, 2);
        return;
    default:
        must(type == ncclBfloat16, "a sum's type");
        memcpy(&h, a, 2), memcpy(&i, b, 2);
        h = ht_f32_to_bf16(ht_bf16_to_f32(h) + ht_bf16_to_f32(i));
        memcpy(to, &h, 2);
    }
}

static void run_sum(const struct sum *s)
{
    size_t each = bytes_of(s->type);
    for (size_t k = 0; k < s->count; k++) {
        char sum[8];
        memcpy(sum, s->terms[0] + k * each, each);
        for (int i = 1; i < s->n; i++) add_element(sum, sum, s->terms[i] + k * each, s->type);
        memcpy(s->to + k * each, sum, each);
    }
}

/* Moves a chunk of the part, if the channel lets it. */
static bool move(struct ncclComm *c, struct part *p)
{
    struct channel *ch = p->receive ? &c->shared->channels[p->peer][c->rank] : &c->shared->channels[c->rank][p->peer];
    if (atomic_load(&ch->full) != p->receive || (p->receive && ch->what != p->what)) return false;
    size_t left = p->bytes - p->moved, n = left < CHUNK ? left : CHUNK;
    if (p->receive) {
        must(ch->bytes == n, "the lengths of a message's two ends");
        memcpy(p->data + p->moved, ch->chunk, n);
    } else {
        memcpy(ch->chunk, p->data + p->moved, n);
        ch->bytes = n;
        ch->what = p->what;
    }
    p->moved += n;
    atomic_store(&ch->full, !p->receive);
    return true;
}

/* Waits for the communicator's groups before, then for the GPU. */
static void take_gpu(const struct group *g, atomic_bool *occupied)
{
    struct ncclComm *c = g->comm;
    while (c->ended < g->turn && !c->stop) usleep(POLL_US);
    while (!c->stop && atomic_exchange(occupied, true)) usleep(POLL_US);
}

/* Moves all parts at once; of one peer and way the first that is not done. */
static void run_group(void *arg)
{
    static atomic_bool occupied;
    struct group *g = arg;
    struct ncclComm *c = g->comm;
    bool done = false, dies = meets(c, "killed");
    take_gpu(g, &occupied);
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
        if (moved && dies) raise(SIGKILL);
        if (!moved && !done) usleep(POLL_US);
    }
    for (int i = 0; i < g->n_sums && done; i++) run_sum(&g->sums[i]);
    for (int i = 0; i < g->n_received; i++) free(g->received[i]);
    free(g);
    c->ended++;
    occupied = false;
    ht_nccl_on_cpu.kernels--;
}

/* Launches late: an event that is recorded before this is reached too early. */
static void *launch_group(void *arg)
{
    struct ncclComm *c = arg;
    usleep(BUSY_US);
    if (meets(c, "full")) {
        ht_nccl_on_cpu.kernels--;
        c->state = ncclUnhandledCudaError;
        return NULL;
    }
    ht_on_cpu_enqueue(c->group->stream, run_group, c->group);
    c->state = ncclSuccess;
    return NULL;
}

ncclResult_t ncclGroupEnd(void)
{
    struct group *g = open_group;
    must(g, "the end of a group that did not begin");
    open_group = NULL;
    if (group_failed || !g->n) {
        for (int i = 0; i < g->n_received; i++) free(g->received[i]);
        free(g);
        bool failed = group_failed;
        group_failed = false;
        return failed ? ncclInternalError : ncclSuccess;
    }
    ht_nccl_on_cpu.kernels++;
    g->turn = g->comm->issued++;
    g->comm->group = g;
    begin_work(g->comm, launch_group);
    return ncclInProgress;
}
