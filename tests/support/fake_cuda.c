#include "tests/support/fake_cuda.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/array.h"
#include "common/base/interrupt.h"
#include "tests/support/fake_cuda_parts.h"
#include "tests/support/streams.h"

enum { MAX_RANGES = 64, SMALL_BYTES = 64 << 10, PRODUCTS_BYTES = 16 << 10 };

struct range {
    char *base, *shadow; /* shadow: mapping of device memory that the device's threads can touch */
    int64_t bytes;
};

static struct {
    pthread_mutex_t lock;
    struct range device[MAX_RANGES], pinned[MAX_RANGES];
    struct streams *streams;
    _Atomic int64_t calls, fail_at, interrupt_at, leaks, waits, event_waits, free_bytes;
    _Atomic enum fake_cuda_answer answer;
    atomic_bool refuses_pinning;
} fake = {.lock = PTHREAD_MUTEX_INITIALIZER, .free_bytes = 1 << 30};

/* ---- memory ---- */

static struct range *find(struct range *ranges, const void *p, int64_t bytes)
{
    for (int i = 0; i < MAX_RANGES; i++) {
        struct range *r = &ranges[i];
        if (r->base && (const char *)p >= r->base && (const char *)p + bytes <= r->base + r->bytes) return r;
    }
    return NULL;
}

static void add(struct range *ranges, struct range range)
{
    pthread_mutex_lock(&fake.lock);
    int i = 0;
    while (ranges[i].base) i++;
    ranges[i] = range;
    fake.leaks++;
    pthread_mutex_unlock(&fake.lock);
}

static struct range take(struct range *ranges, void *p)
{
    pthread_mutex_lock(&fake.lock);
    struct range *r = find(ranges, p, 0), range = *r;
    *r = (struct range){0};
    fake.leaks--;
    pthread_mutex_unlock(&fake.lock);
    return range;
}

void *fake_cuda_find(const void *p, int64_t bytes)
{
    pthread_mutex_lock(&fake.lock);
    struct range *r = find(fake.device, p, bytes);
    void *at = r ? r->shadow + ((const char *)p - r->base) : NULL;
    pthread_mutex_unlock(&fake.lock);
    return at;
}

void *fake_cuda_real(const void *p)
{
    void *at = p ? fake_cuda_find(p, 1) : NULL;
    if (!p) return NULL;
    if (!at) {
        fprintf(stderr, "fake cuda: a kernel got %p, which is not on the device\n", p);
        abort();
    }
    return at;
}

void *fake_cuda_known(const void *real)
{
    void *known = NULL;
    pthread_mutex_lock(&fake.lock);
    for (int i = 0; i < MAX_RANGES && !known; i++) {
        struct range *r = &fake.device[i];
        bool inside = r->base && (const char *)real >= r->shadow && (const char *)real < r->shadow + r->bytes;
        if (inside) known = r->base + ((const char *)real - r->shadow);
    }
    pthread_mutex_unlock(&fake.lock);
    return known;
}

static const char *fake_malloc(void **p, int64_t bytes)
{
    if (bytes > fake.free_bytes) return "cudaErrorMemoryAllocation: out of memory";
    int fd = memfd_create("fake cuda", 0);
    size_t mapped = ((size_t)bytes + 4095) / 4096 * 4096;
    if (fd < 0 || ftruncate(fd, (off_t)mapped)) return "cudaErrorMemoryAllocation: out of memory";
    struct range r = {.bytes = bytes};
    r.shadow = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    r.base = mmap(NULL, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    close(fd);
    if (r.shadow == MAP_FAILED || r.base == MAP_FAILED) return "cudaErrorMemoryAllocation: out of memory";
    add(fake.device, r);
    *p = r.base;
    return NULL;
}

static const char *fake_free(void *p)
{
    struct range r = take(fake.device, p);
    size_t mapped = ((size_t)r.bytes + 4095) / 4096 * 4096;
    munmap(r.base, mapped);
    munmap(r.shadow, mapped);
    return NULL;
}

static const char *host_register(void *p, int64_t bytes)
{
    if (fake.refuses_pinning) return "cudaErrorMemoryAllocation: as told";
    add(fake.pinned, (struct range){.base = p, .bytes = bytes});
    return NULL;
}

static const char *host_unregister(void *p)
{
    take(fake.pinned, p);
    return NULL;
}

static const char *host_malloc(void **p, int64_t bytes)
{
    *p = ht_alloc((size_t)bytes);
    add(fake.pinned, (struct range){.base = *p, .bytes = bytes});
    return NULL;
}

static const char *host_free(void *p)
{
    host_unregister(p);
    free(p);
    return NULL;
}

/* ---- device, streams, events ---- */

/* HT_FAKE_GPUS=N in the environment shows N of them, in each process its own. */
static const char *count(int *n)
{
    const char *given = getenv("HT_FAKE_GPUS");
    *n = given ? atoi(given) : 1;
    return NULL;
}

static const char *properties(int device, struct ht_cuda_properties *out)
{
    (void)device;
    *out = (struct ht_cuda_properties){
        .name = "fake", .total_bytes = 1 << 30, .free_bytes = 1 << 30, .major = 8, .multiprocessors = 1};
    return NULL;
}

static const char *choose(int device)
{
    int n;
    (void)count(&n);
    return device < n ? NULL : "cudaErrorInvalidDevice: invalid device ordinal";
}

static struct streams *streams(void)
{
    pthread_mutex_lock(&fake.lock);
    if (!fake.streams) fake.streams = streams_create();
    pthread_mutex_unlock(&fake.lock);
    return fake.streams;
}

static const char *create_stream(void **stream)
{
    *stream = stream_create(streams());
    fake.leaks++;
    return NULL;
}

static const char *destroy_stream(void *stream)
{
    stream_destroy(stream);
    fake.leaks--;
    return NULL;
}

static const char *wait_stream(void *stream, void *event)
{
    stream_wait(stream, event);
    return NULL;
}

static const char *finish_stream(void *stream)
{
    fake.waits++;
    stream_finish(stream);
    return NULL;
}

static const char *create_event(void **event)
{
    *event = stream_event_create(streams());
    fake.leaks++;
    return NULL;
}

static const char *destroy_event(void *event)
{
    stream_event_destroy(event);
    fake.leaks--;
    return NULL;
}

static const char *record_event(void *event, void *stream)
{
    stream_record(stream, event);
    return NULL;
}

static const char *finish_event(void *event)
{
    fake.event_waits++;
    stream_event_finish(event);
    return NULL;
}

static const char *reached_event(void *event, bool *reached)
{
    if (fake.answer == FAKE_CUDA_SOON) stream_event_finish(event);
    *reached = fake.answer != FAKE_CUDA_NEVER && stream_event_reached(event);
    return NULL;
}

static const char *between(void *from, void *to, int64_t *ns)
{
    *ns = stream_event_ns(to) - stream_event_ns(from);
    return NULL;
}

/* ---- contexts and copies ---- */

static const char *create_context(void *stream, void *products, void **context)
{
    if (products) (void)fake_cuda_real((char *)products + PRODUCTS_BYTES - 1);
    struct fake_cuda_context *c = HT_NEW(struct fake_cuda_context);
    c->stream = stream;
    *context = c;
    fake.leaks++;
    return NULL;
}

static void destroy_context(void *context)
{
    free(context);
    fake.leaks--;
}

static const char *status(void *context)
{
    return ((struct fake_cuda_context *)context)->failed;
}

bool fake_cuda_fails(struct fake_cuda_context *c)
{
    int64_t call = ++fake.calls;
    if (call == fake.fail_at) c->failed = "cudaErrorLaunchFailure: as told";
    if (call == fake.interrupt_at) ht_interrupt_set(true);
    return c->failed != NULL;
}

struct move {
    char *to;
    const char *from;
    int64_t bytes;
};

static void do_move(void *arg)
{
    const struct move *m = arg;
    memcpy(m->to, m->from, (size_t)m->bytes);
}

/* Returns the address of a copy's end. Host memory must be pinned, except for the hooks' copies, which are waited
   for. */
static char *end_of(const void *p, int64_t bytes, bool *pinned)
{
    pthread_mutex_lock(&fake.lock);
    struct range *device = find(fake.device, p, bytes);
    char *at = device ? device->shadow + ((const char *)p - device->base) : (char *)p;
    *pinned = device || find(fake.pinned, p, bytes);
    pthread_mutex_unlock(&fake.lock);
    return at;
}

void fake_cuda_move(struct stream *stream, void *to, const void *from, int64_t bytes, bool strict)
{
    bool to_pinned, from_pinned;
    struct move m = {.bytes = bytes};
    m.to = end_of(to, bytes, &to_pinned);
    m.from = end_of(from, bytes, &from_pinned);
    if (strict && !fake.refuses_pinning && (!to_pinned || (!from_pinned && bytes > SMALL_BYTES))) {
        fprintf(stderr, "fake cuda: a copy of %lld bytes from or to memory that is not pinned\n", (long long)bytes);
        abort();
    }
    stream_do(stream, do_move, &m, sizeof(m));
}

static const char *plain_copy(void *to, const void *from, int64_t bytes, void *stream)
{
    fake_cuda_move(stream, to, from, bytes, false);
    return NULL;
}

struct fill {
    char *at;
    int byte;
    int64_t bytes;
};

static void do_fill(void *arg)
{
    const struct fill *f = arg;
    memset(f->at, f->byte, (size_t)f->bytes);
}

static const char *fill(void *p, int byte, int64_t bytes, void *stream)
{
    struct fill f = {.at = fake_cuda_real(p), .byte = byte, .bytes = bytes};
    stream_do(stream, do_fill, &f, sizeof(f));
    return NULL;
}

static const struct ht_cuda_api api = {
    .name = "fake",
    .count = count,
    .properties = properties,
    .select = choose,
    .malloc = fake_malloc,
    .free = fake_free,
    .host_malloc = host_malloc,
    .host_free = host_free,
    .host_register = host_register,
    .host_unregister = host_unregister,
    .stream_create = create_stream,
    .stream_destroy = destroy_stream,
    .stream_wait = wait_stream,
    .stream_finish = finish_stream,
    .copy = plain_copy,
    .fill = fill,
    .event_create = create_event,
    .event_destroy = destroy_event,
    .event_record = record_event,
    .event_finish = finish_event,
    .event_reached = reached_event,
    .event_between = between,
    .products_bytes = PRODUCTS_BYTES,
    .context_create = create_context,
    .context_destroy = destroy_context,
    .context_status = status,
    .kernels = &fake_cuda_kernels,
    .partial_bytes = sizeof(struct ht_grad_partial),
    .partial_result_bytes = sizeof(struct ht_grad_partial),
    .grad_check = fake_cuda_grad_check,
    .partial_of = fake_cuda_partial_of,
    .log_header_bytes = 64,
    .summary_of = fake_cuda_summary_of,
};

const struct ht_cuda_api *fake_cuda_api(void)
{
    return &api;
}

void fake_cuda_fail_at(int64_t call)
{
    fake.calls = 0;
    fake.fail_at = call;
}

void fake_cuda_interrupt_at(int64_t call)
{
    fake.calls = 0;
    fake.interrupt_at = call;
}

void fake_cuda_refuse_pinning(bool refuse)
{
    fake.refuses_pinning = refuse;
}

void fake_cuda_largest(int64_t bytes)
{
    fake.free_bytes = bytes ? bytes : 1 << 30;
}

int64_t fake_cuda_calls(void)
{
    return atomic_exchange(&fake.calls, 0);
}

int64_t fake_cuda_stream_waits(void)
{
    return atomic_exchange(&fake.waits, 0);
}

int64_t fake_cuda_event_waits(void)
{
    return atomic_exchange(&fake.event_waits, 0);
}

void fake_cuda_answer(enum fake_cuda_answer answer)
{
    fake.answer = answer;
}

int64_t fake_cuda_leaks(void)
{
    return fake.leaks;
}
