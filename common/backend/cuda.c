#include "common/backend/cuda.h"

#include "common/backend/cpu_call.h"
#include "common/backend/cuda_state.h"
#include "common/base/array.h"
#include "common/base/units.h"
#include "common/exec/core.h"
#include "common/mem/arena.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

/* cudaEventElapsedTime counts milliseconds in a float; after so long a new base keeps its steps below a microsecond. */
#define BASE_AGE_NS ((int64_t)8 * 1000000000)
enum { ALIGN = 512 };

enum ht_status ht_cuda_failed(const char *text, const char *what, struct ht_error *err)
{
    return text ? ht_fail(err, HT_FAILED, "cuda: %s: %s", what, text) : HT_OK;
}

enum ht_status ht_cuda_not_there(enum ht_status status, struct ht_error *err)
{
    static const char *const lacks[] = {"cudaErrorMemoryAllocation",
                                        "cudaErrorNoKernelImageForDevice",
                                        "cudaErrorUnsupportedPtxVersion",
                                        "cudaErrorInvalidDeviceFunction",
                                        "cudaErrorInsufficientDriver",
                                        "cudaErrorNoDevice",
                                        "cudaErrorInvalidDevice",
                                        "cuBLASLt is not here",
                                        "HT_CUBLASLT: "};
    for (size_t i = 0; i < HT_COUNT(lacks) && status == HT_FAILED; i++)
        if (err && strstr(err->text, lacks[i])) status = err->status = HT_INFEASIBLE;
    return status;
}

/* "cuda: schedule 'x': op 12 (B3.0): cudaErrorX: ..": the title has kind, unit and micro-batch. */
static enum ht_status failed_op(const struct ht_cuda_device *d, int32_t op, const char *text, struct ht_error *err)
{
    char title[64];
    return text ? ht_fail(err, HT_FAILED, "cuda: schedule '%s': op %d (%s): %s", d->s->name, op,
                          ht_op_label(d->s, op, title, sizeof(title)), text)
                : HT_OK;
}

int64_t ht_cuda_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- the device ---- */

enum ht_status ht_cuda_find(const struct ht_cuda_api *api, int device, struct ht_error *err,
                            struct ht_cuda_properties *out)
{
    int n = 0;
    if (!api) api = ht_cuda_api_real();
    if (!api) return ht_fail(err, HT_INFEASIBLE, "this build has no CUDA backend; cpu is there");
    const char *why = api->count(&n);
    if (why) return ht_fail(err, HT_INFEASIBLE, "no GPU for the cuda backend: %s", why);
    if (device >= n)
        return ht_fail(err, HT_INFEASIBLE,
                       "no GPU %d for the cuda backend; CUDA shows %d (CUDA_VISIBLE_DEVICES counts)", device, n);
    return ht_cuda_not_there(ht_cuda_failed(api->properties(device, out), "properties of the GPU", err), err);
}

enum ht_status ht_cuda_device_create(const struct ht_cpu_options *options, const struct ht_cuda_api *api, int device,
                                     struct ht_error *err, struct ht_cuda_device **out)
{
    struct ht_cuda_properties properties;
    *out = NULL;
    enum ht_status status = ht_cuda_find(api, device, err, &properties);
    if (status) return status;
    struct ht_cuda_device *d = HT_NEW(struct ht_cuda_device);
    d->api = api ? api : ht_cuda_api_real();
    d->index = device;
    d->model = options->model;
    d->param = options->numerics.param;
    d->seed = options->seed;
    pthread_mutex_init(&d->side_lock, NULL);
    pthread_mutex_init(&d->base_lock, NULL);
    status = ht_cpu_create(options, err, &d->cpu);
    if (status == HT_OK) status = ht_cuda_failed(d->api->select(device), "the GPU", err);
    if (status == HT_OK) status = ht_cuda_lane_open(d, &d->side, NULL, err);
    if (status == HT_OK)
        *out = d;
    else
        ht_cuda_device_destroy(d);
    return ht_cuda_not_there(status, err);
}

void ht_cuda_device_destroy(struct ht_cuda_device *d)
{
    if (!d) return;
    (void)d->api->select(d->index);
    for (size_t i = 0; i < d->n_arenas; i++) {
        if (d->arenas[i].registered) (void)d->api->host_unregister(d->arenas[i].registered);
        ht_arena_destroy(d->arenas[i].arena);
        if (d->arenas[i].device) (void)d->api->free(d->arenas[i].device);
    }
    free(d->arenas);
    if (d->reserve) (void)d->api->free(d->reserve);
    ht_cuda_lane_close(d, &d->side);
    ht_cpu_destroy(d->cpu);
    pthread_mutex_destroy(&d->side_lock);
    pthread_mutex_destroy(&d->base_lock);
    free(d);
}

struct ht_cpu *ht_cuda_device_host(struct ht_cuda_device *d)
{
    return d->cpu;
}

/* ---- memory ---- */

static enum ht_status device_arena(struct ht_cuda_device *d, int64_t capacity, int64_t slack, struct ht_error *err,
                                   struct ht_arena **out)
{
    char text[HT_QUANTITY_TEXT];
    void *base = NULL;
    const char *why = d->api->malloc(&base, capacity + slack + ALIGN);
    if (why)
        return ht_fail(err, HT_INFEASIBLE, "the GPU does not give %s: %s",
                       ht_format_quantity(HT_BYTES, (double)(capacity + slack), text), why);
    d->arenas[d->n_arenas].device = base;
    d->arenas[d->n_arenas].bytes = capacity + slack + ALIGN;
    base = (void *)(((uintptr_t)base + ALIGN - 1) / ALIGN * ALIGN);
    return ht_arena_create_over(base, capacity, slack, err, out);
}

static enum ht_status host_arena(struct ht_cuda_device *d, int64_t capacity, int64_t slack, struct ht_error *err,
                                 struct ht_arena **out)
{
    char text[HT_QUANTITY_TEXT];
    int64_t bytes;
    enum ht_status status = ht_arena_create(capacity, slack, false, err, out);
    if (status) return status;
    void *base = ht_arena_base(*out, &bytes);
    const char *why = d->api->host_register(base, bytes);
    if (!why) {
        d->arenas[d->n_arenas].registered = base;
        return HT_OK;
    }
    struct rlimit lock = {0};
    (void)getrlimit(RLIMIT_MEMLOCK, &lock);
    bool limited = lock.rlim_cur != RLIM_INFINITY;
    snprintf(d->note, sizeof(d->note),
             "%s of host memory cannot be pinned (%s%s); copies from and to it wait for CUDA's own buffers",
             ht_format_quantity(HT_BYTES, (double)bytes, text), why, limited ? "; ulimit -l is not unlimited" : "");
    return HT_OK;
}

const char *ht_cuda_device_note(const struct ht_cuda_device *d)
{
    return d->note[0] ? d->note : NULL;
}

enum ht_status ht_cuda_device_arena(struct ht_cuda_device *d, enum ht_tier tier, int64_t capacity_bytes,
                                    int64_t slack_bytes, struct ht_error *err, struct ht_arena **out)
{
    int64_t capacity = ht_live_bytes(capacity_bytes), slack = ht_live_bytes(slack_bytes);
    *out = NULL;
    HT_RESERVE(d->arenas, d->arenas_cap, d->n_arenas + 1);
    memset(&d->arenas[d->n_arenas], 0, sizeof(*d->arenas));
    enum ht_status status =
        tier == HT_DEVICE ? device_arena(d, capacity, slack, err, out) : host_arena(d, capacity, slack, err, out);
    d->arenas[d->n_arenas].arena = *out;
    if (status == HT_OK || d->arenas[d->n_arenas].device) d->n_arenas++;
    return status;
}

int64_t ht_cuda_device_foreign_bytes(const struct ht_cuda_device *d)
{
    struct ht_cuda_properties properties = {0};
    if (d->api->properties(d->index, &properties)) return 0;
    int64_t foreign = properties.total_bytes - properties.free_bytes - d->reserve_bytes;
    for (size_t i = 0; i < d->n_arenas; i++) foreign -= d->arenas[i].device ? d->arenas[i].bytes : 0;
    return foreign > 0 ? foreign : 0;
}

int64_t ht_cuda_device_free_bytes(const struct ht_cuda_device *d)
{
    struct ht_cuda_properties properties = {0};
    (void)d->api->properties(d->index, &properties);
    return properties.free_bytes;
}

/* A copy of a hook's, waited for. */
static enum ht_status copy_now(struct ht_cuda_device *d, void *to, const void *from, int64_t bytes,
                               struct ht_error *err)
{
    pthread_mutex_lock(&d->side_lock);
    const char *why = d->api->select(d->index);
    if (!why) why = d->api->copy(to, from, bytes, d->side.stream);
    if (!why) why = d->api->stream_finish(d->side.stream);
    pthread_mutex_unlock(&d->side_lock);
    return ht_cuda_failed(why, "a copy", err);
}

enum ht_status ht_cuda_device_read(struct ht_cuda_device *d, struct ht_buffer from, void *to, struct ht_error *err)
{
    if (from.tier == HT_DEVICE) return from.bytes ? copy_now(d, to, from.data, from.bytes, err) : HT_OK;
    memcpy(to, from.data, (size_t)from.bytes);
    return HT_OK;
}

enum ht_status ht_cuda_device_write(struct ht_cuda_device *d, const void *from, struct ht_buffer to,
                                    struct ht_error *err)
{
    if (to.tier == HT_DEVICE) return to.bytes ? copy_now(d, to.data, from, to.bytes, err) : HT_OK;
    memcpy(to.data, from, (size_t)to.bytes);
    return HT_OK;
}

/* Parameters of a whole unit can be drawn where they are to be. */
static bool draws_itself(const struct ht_cuda_device *d, const struct ht_tensor *t, enum ht_dtype type)
{
    bool params = t->class == HT_PARAM || t->class == HT_MASTER;
    return params && d->api->unit_init && t->label.unit >= 0 && t->label.unit < ht_model_units(&d->model) &&
           !t->sharded && t->bytes == ht_unit_params(&d->model, t->label.unit) * ht_dtype_bytes(type);
}

enum ht_status ht_cuda_device_init(struct ht_cuda_device *d, const struct ht_tensor *t, struct ht_buffer buffer,
                                   struct ht_error *err)
{
    if (buffer.tier != HT_DEVICE || buffer.bytes == 0) return ht_cpu_init(d->cpu, t, buffer, err);
    enum ht_dtype type = t->class == HT_PARAM ? d->param : HT_F32;
    const char *why = d->api->select(d->index);
    if (!why && draws_itself(d, t, type)) {
        d->api->unit_init(d->side.context, &d->model, t->label.unit, d->seed, type, buffer.data);
        why = d->api->context_status(d->side.context);
        if (!why) why = d->api->stream_finish(d->side.stream);
        return ht_cuda_failed(why, "initial parameters", err);
    }
    if (!why && t->class != HT_PARAM && t->class != HT_MASTER) { /* as ht_cpu_init: state is 0, all else NaN */
        bool state = t->class == HT_MOMENTUM || t->class == HT_VARIANCE;
        why = d->api->fill(buffer.data, state ? 0 : 0xff, buffer.bytes, d->side.stream);
        if (!why) why = d->api->stream_finish(d->side.stream);
        return ht_cuda_failed(why, "initial values", err);
    }
    if (why) return ht_cuda_failed(why, "the GPU", err);
    struct ht_buffer here = buffer;
    here.data = ht_alloc((size_t)buffer.bytes);
    enum ht_status status = ht_cpu_init(d->cpu, t, here, err);
    if (status == HT_OK) status = ht_cuda_device_write(d, here.data, buffer, err);
    free(here.data);
    return status;
}

/* ---- ops ---- */

static struct ht_cuda_in_flight *in_flight_of(struct ht_cuda_device *d, int32_t iteration, int32_t op)
{
    return &d->in_flight[(int64_t)op * HT_CUDA_TURNS + iteration % HT_CUDA_TURNS];
}

/* All but undoing, which has a `when`: it is not known beforehand whether it comes at all. */
static bool is_async(void *ctx, int32_t op)
{
    const struct ht_cuda_device *d = ctx;
    return d->lanes[d->s->ops[op].lane].is_stream && d->s->ops[op].kind != HT_OP_UNDO;
}

static int32_t host_deps(void *ctx, int32_t op, const int32_t **ops)
{
    const struct ht_cuda_device *d = ctx;
    *ops = d->host_deps[op].ops;
    return (int32_t)d->host_deps[op].n;
}

static void keep_buffers(struct ht_cuda_in_flight *f, const struct ht_buffer *buffers, int32_t n)
{
    if (!f->buffers) f->buffers = HT_NEW_ARRAY(struct ht_buffer, n);
    if (!f->host_results) f->host_results = HT_NEW_ARRAY(struct ht_cuda_result, f->results->max_results);
    for (int32_t i = 0; i < n; i++) f->buffers[i] = buffers[i];
    f->n_buffers = n;
}

/* The op has ended on the device: what it left comes to where it belongs. */
static enum ht_status land(struct ht_cuda_in_flight *f, int32_t iteration, int32_t op, struct ht_error *err)
{
    struct ht_cuda_device *d = f->d;
    ht_cuda_collect_results(f);
    if (!ht_cuda_is_finalized(d->s, op)) return HT_OK;
    f->why = NULL;
    enum ht_status status =
        ht_cpu_finalize_on(d->cpu, &ht_cuda_collect_kernels, f, iteration, op, f->buffers, f->n_buffers, err);
    return f->why ? failed_op(d, op, f->why, err) : status;
}

/* Everything that the op enqueues, by the CPU backend's own code with the device's kernels. */
static enum ht_status launch(struct ht_cuda_in_flight *f, int32_t iteration, int32_t op,
                             const struct ht_buffer *buffers, int32_t n, struct ht_error *err)
{
    struct ht_cuda_device *d = f->d;
    char title[64];
    f->n_results = 0;
    if (ht_cuda_is_finalized(d->s, op)) keep_buffers(f, buffers, n);
    if (d->api->mark_begin) d->api->mark_begin(ht_op_label(d->s, op, title, sizeof(title)));
    enum ht_status status = ht_cpu_run_on(d->cpu, &ht_cuda_enqueue_kernels, f, iteration, op, buffers, n, err);
    if (d->api->mark_end) d->api->mark_end();
    const char *why = d->api->context_status(f->context); /* the cause, should the op have something to say, too */
    return why ? failed_op(d, op, why, err) : status;
}

static const char *prepare(struct ht_cuda_device *d, struct ht_cuda_in_flight *f)
{
    const char *why = d->api->select(d->index);
    if (!why && !f->begin) why = d->api->event_create(&f->begin);
    if (!why && !f->end) why = d->api->event_create(&f->end);
    return why;
}

static enum ht_status enqueue(void *ctx, int32_t iteration, int32_t op, const struct ht_buffer *buffers, int32_t n,
                              const struct ht_inst *after, int32_t n_after, struct ht_error *err)
{
    struct ht_cuda_device *d = ctx;
    struct ht_cuda_in_flight *f = in_flight_of(d, iteration, op);
    void *stream = d->lanes[d->s->ops[op].lane].stream;
    const char *why = prepare(d, f);
    for (int32_t i = 0; i < n_after && !why; i++)
        why = d->api->stream_wait(stream, in_flight_of(d, after[i].iteration, after[i].op)->end);
    if (!why) why = d->api->event_record(f->begin, stream);
    if (why) return failed_op(d, op, why, err);
    enum ht_status status = launch(f, iteration, op, buffers, n, err);
    if (status) return status;
    return failed_op(d, op, d->api->event_record(f->end, stream), err);
}

/* Waits for the op's end: asks for POLL_NS, then sleeps until the driver's interrupt, whose way to this thread takes
   tens of microseconds. Copies, verdicts and small kernels end while they are asked for; to an op that takes longer an
   interrupt adds little, and its core belongs to host lanes meanwhile. A core is kept at most POLL_NS an op. It is not
   yielded in between: where all cores are busy, the scheduler gives it back only after others' turns of a millisecond,
   which a thread that sleeps need not wait for. Between two questions the driver's locks are free for ASK_NS, since
   other threads enqueue ops meanwhile. */
static const char *wait_for_end(const struct ht_cuda_device *d, const struct ht_cuda_in_flight *f)
{
    enum { POLL_NS = 100000, ASK_NS = 1000 };
    int64_t until = ht_cuda_now_ns() + POLL_NS;
    for (;;) {
        bool reached = false;
        const char *why = d->api->event_reached(f->end, &reached);
        if (why || reached) return why;
        int64_t now = ht_cuda_now_ns();
        if (now >= until) return d->api->event_finish(f->end);
        while (ht_cuda_now_ns() < now + ASK_NS) continue;
    }
}

static enum ht_status wait_op(void *ctx, int32_t iteration, int32_t op, struct ht_error *err)
{
    struct ht_cuda_device *d = ctx;
    struct ht_cuda_in_flight *f = in_flight_of(d, iteration, op);
    const char *why = wait_for_end(d, f);
    if (why) return failed_op(d, op, why, err);
    return land(f, iteration, op, err);
}

/* What is not enqueued: on host lanes the CPU's own, but for copies, which may be from or to the device. */
static enum ht_status run_op(void *ctx, int32_t iteration, int32_t op, const struct ht_buffer *buffers, int32_t n,
                             struct ht_error *err)
{
    struct ht_cuda_device *d = ctx;
    const struct ht_cuda_lane *lane = &d->lanes[d->s->ops[op].lane];
    if (!lane->is_stream && d->s->ops[op].kind != HT_OP_COPY)
        return ht_cpu_backend.run_op(d->cpu, iteration, op, buffers, n, err);
    struct ht_cuda_in_flight here = *in_flight_of(d, iteration, op), *f = &here;
    bool on_side = !lane->is_stream;
    enum ht_status status = ht_cuda_failed(d->api->select(d->index), "the GPU", err);
    if (status) return status;
    if (on_side) {
        pthread_mutex_lock(&d->side_lock);
        f->context = d->side.context;
    }
    status = launch(f, iteration, op, buffers, n, err);
    const char *why = d->api->stream_finish(on_side ? d->side.stream : lane->stream);
    if (on_side) pthread_mutex_unlock(&d->side_lock);
    if (status == HT_OK) status = failed_op(d, op, why, err);
    return status == HT_OK ? land(f, iteration, op, err) : status;
}

static bool control(void *ctx, int32_t iteration, int32_t op)
{
    return ht_cpu_backend.control(((struct ht_cuda_device *)ctx)->cpu, iteration, op);
}

/* From now on times are counted from an event of now. */
static void renew_base(struct ht_cuda_device *d)
{
    int64_t passed_ns;
    if (d->api->event_record(d->next_base, d->side.stream) || d->api->event_finish(d->next_base)) return;
    if (d->api->event_between(d->base, d->next_base, &passed_ns)) return;
    void *old = d->base;
    d->base = d->next_base;
    d->next_base = old;
    d->base_ns += passed_ns;
}

static void op_times(void *ctx, int32_t iteration, int32_t op, int64_t *start_ns, int64_t *end_ns)
{
    struct ht_cuda_device *d = ctx;
    const struct ht_cuda_in_flight *f = in_flight_of(d, iteration, op);
    int64_t until_end_ns = 0, took_ns = 0;
    *start_ns = *end_ns = ht_cuda_now_ns(); /* should CUDA fail here, of all places */
    pthread_mutex_lock(&d->base_lock);
    if (!d->api->event_between(d->base, f->end, &until_end_ns) && !d->api->event_between(f->begin, f->end, &took_ns)) {
        *end_ns = d->base_ns + until_end_ns;
        *start_ns = *end_ns - took_ns;
        if (until_end_ns > BASE_AGE_NS) renew_base(d);
    }
    pthread_mutex_unlock(&d->base_lock);
}

static void drain(void *ctx)
{
    struct ht_cuda_device *d = ctx;
    for (int32_t i = 0; i < d->s->n_lanes; i++)
        if (d->lanes[i].is_stream) (void)d->api->stream_finish(d->lanes[i].stream);
}

static void lane_begin(void *ctx, int32_t lane)
{
    struct ht_cuda_device *d = ctx;
    (void)d->api->select(d->index);
    if (!d->lanes[lane].is_stream) ht_cpu_backend.lane_begin(d->cpu, lane);
}

const struct ht_backend_ops ht_cuda_backend = {
    .name = "cuda",
    .open = ht_cuda_open,
    .lane_begin = lane_begin,
    .run_op = run_op,
    .control = control,
    .issue_ahead = 2,
    .is_async = is_async,
    .host_deps = host_deps,
    .enqueue = enqueue,
    .wait = wait_op,
    .op_times = op_times,
    .drain = drain,
    .close = ht_cuda_close,
};
