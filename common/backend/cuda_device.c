/* A GPU, its memory, and the values that hooks write there and read between runs. */
#include "common/backend/cuda.h"

#include "common/backend/cuda_state.h"
#include "common/base/array.h"
#include "common/base/units.h"
#include "common/comm/comm.h"
#include "common/mem/arena.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* ---- the device ---- */

enum ht_status ht_cuda_count(const struct ht_cuda_api *api, struct ht_error *err, int *n)
{
    if (!api) api = ht_cuda_api_real();
    if (!api) return ht_fail(err, HT_INFEASIBLE, "this build has no CUDA backend; cpu is there");
    const char *why = api->count(n);
    if (why || *n < 1)
        return ht_fail(err, HT_INFEASIBLE, "no GPU for the cuda backend: %s", why ? why : "CUDA shows none");
    return HT_OK;
}

enum ht_status ht_cuda_find(const struct ht_cuda_api *api, int device, struct ht_error *err,
                            struct ht_cuda_properties *out)
{
    int n = 0;
    enum ht_status status = ht_cuda_count(api, err, &n);
    if (status) return status;
    if (!api) api = ht_cuda_api_real();
    if (device >= n)
        return ht_fail(err, HT_INFEASIBLE,
                       "no GPU %d for the cuda backend; CUDA shows %d (CUDA_VISIBLE_DEVICES counts)", device, n);
    return ht_cuda_infeasible(ht_cuda_failed(api->properties(device, out), "properties of the GPU", err), err);
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
    d->rank = options->comm ? options->comm->rank : 0;
    d->comm = options->comm;
    d->sums_in_order = options->sums_in_order;
    pthread_mutex_init(&d->side_lock, NULL);
    pthread_mutex_init(&d->base_lock, NULL);
    struct ht_cpu_options host = *options;
    host.foreign_device = true;
    status = ht_cpu_create(&host, err, &d->cpu);
    if (status == HT_OK) status = ht_cuda_failed(d->api->select(device), "the GPU", err);
    if (status == HT_OK) status = ht_cuda_lane_open(d, &d->side, NULL, err);
    if (status == HT_OK)
        *out = d;
    else
        ht_cuda_device_destroy(d);
    return ht_cuda_infeasible(status, err);
}

void ht_cuda_device_destroy(struct ht_cuda_device *d)
{
    if (!d || d->is_stuck) return;
    (void)d->api->select(d->index);
    ht_cuda_lane_close(d, &d->side);
    ht_cuda_device_unpin(d);
    for (size_t i = 0; i < d->n_memory; i++) {
        ht_arena_destroy(d->memory[i].arena);
        if (d->memory[i].device) (void)d->api->free(d->memory[i].device);
    }
    free(d->memory);
    free(d->slow);
    if (d->reserve) (void)d->api->free(d->reserve);
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

/* Adds an entry for the memory or arena that is about to be made. */
static struct ht_cuda_memory *add_memory(struct ht_cuda_device *d)
{
    HT_RESERVE(d->memory, d->memory_cap, d->n_memory + 1);
    memset(&d->memory[d->n_memory], 0, sizeof(*d->memory));
    return &d->memory[d->n_memory++];
}

enum ht_status ht_cuda_device_memory(struct ht_cuda_device *d, int64_t bytes, struct ht_error *err, void **out)
{
    char text[HT_QUANTITY_TEXT];
    struct ht_cuda_memory *m = add_memory(d);
    const char *why = d->api->select(d->index);
    *out = NULL;
    if (!why) why = d->api->malloc(&m->device, bytes + HT_CUDA_ALIGN);
    if (why) {
        d->n_memory--;
        return ht_fail(err, HT_INFEASIBLE, "the GPU does not give %s: %s",
                       ht_format_quantity(HT_BYTES, (double)bytes, text), why);
    }
    m->bytes = bytes + HT_CUDA_ALIGN;
    *out = (void *)ht_cuda_aligned((intptr_t)m->device);
    return HT_OK;
}

void ht_cuda_device_pin(struct ht_cuda_device *d, void *base, int64_t bytes)
{
    char text[HT_QUANTITY_TEXT];
    const char *why = d->api->select(d->index);
    if (!why) why = d->api->host_register(base, bytes);
    if (!why) {
        add_memory(d)->registered = base;
        return;
    }
    struct rlimit lock = {0};
    (void)getrlimit(RLIMIT_MEMLOCK, &lock);
    bool limited = lock.rlim_cur != RLIM_INFINITY;
    snprintf(d->note, sizeof(d->note),
             "%s of host memory cannot be pinned (%s%s); copies from and to it wait for CUDA's own buffers",
             ht_format_quantity(HT_BYTES, (double)bytes, text), why, limited ? "; ulimit -l is not unlimited" : "");
}

void ht_cuda_device_unpin(struct ht_cuda_device *d)
{
    (void)d->api->select(d->index);
    for (size_t i = 0; i < d->n_memory; i++) {
        if (d->memory[i].registered) (void)d->api->host_unregister(d->memory[i].registered);
        d->memory[i].registered = NULL;
    }
}

const char *ht_cuda_device_note(const struct ht_cuda_device *d)
{
    return d->note[0] ? d->note : NULL;
}

enum ht_status ht_cuda_device_arena(struct ht_cuda_device *d, enum ht_tier tier, int64_t capacity_bytes,
                                    int64_t slack_bytes, struct ht_error *err, struct ht_arena **out)
{
    int64_t capacity = ht_live_bytes(capacity_bytes), slack = ht_live_bytes(slack_bytes), bytes;
    void *base = NULL;
    enum ht_status status = HT_OK;
    *out = NULL;
    if (tier == HT_DEVICE) status = ht_cuda_device_memory(d, capacity + slack, err, &base);
    if (status == HT_OK)
        status = base ? ht_arena_create_over(base, capacity, slack, err, out)
                      : ht_arena_create(capacity, slack, false, err, out);
    if (status) return status;
    add_memory(d)->arena = *out;
    if (tier == HT_DEVICE) return HT_OK;
    base = ht_arena_base(*out, &bytes);
    ht_cuda_device_pin(d, base, bytes);
    return HT_OK;
}

const struct ht_cuda_slow_shape *ht_cuda_device_slow_shapes(const struct ht_cuda_device *d, size_t *n)
{
    *n = d->n_slow;
    return d->slow;
}

int64_t ht_cuda_device_foreign_bytes(const struct ht_cuda_device *d)
{
    struct ht_cuda_properties properties = {0};
    if (d->api->properties(d->index, &properties)) return 0;
    int64_t foreign = properties.total_bytes - properties.free_bytes - d->reserve_bytes;
    for (size_t i = 0; i < d->n_memory; i++) foreign -= d->memory[i].bytes;
    return foreign > 0 ? foreign : 0;
}

int64_t ht_cuda_device_free_bytes(const struct ht_cuda_device *d)
{
    struct ht_cuda_properties properties = {0};
    (void)d->api->properties(d->index, &properties);
    return properties.free_bytes;
}

enum ht_status ht_cuda_device_reserve(struct ht_cuda_device *d, int64_t bytes, struct ht_error *err)
{
    char text[HT_QUANTITY_TEXT];
    const char *why = d->api->select(d->index);
    if (!why && bytes) why = d->api->malloc(&d->reserve, bytes + HT_CUDA_ALIGN);
    if (why)
        return ht_fail(err, HT_INFEASIBLE, "the GPU does not give the %s of the backend's reserve: %s",
                       ht_format_quantity(HT_BYTES, (double)bytes, text), why);
    d->reserve_bytes = bytes;
    d->reserve_is_fixed = true;
    return HT_OK;
}

/* ---- tensors' values, between runs ---- */

/* Copies for a hook, and waits for the end. */
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

/* Returns true when the device can compute the initial values itself: parameters of a whole unit. */
static bool inits_on_device(const struct ht_cuda_device *d, const struct ht_tensor *t, enum ht_dtype type)
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
    if (!why && inits_on_device(d, t, type)) {
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
