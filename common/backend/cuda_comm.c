/*
 * Messages and collectives between ranks with a GPU each. Through pinned host memory, for any GPUs and any number of
 * ranks a GPU:
 *
 *     GPU of rank 0 -> pinned -> the CPU backend's op: messages, sums in the ranks' order -> pinned -> GPU of rank 0
 *
 * The CPU backend's own code runs on what was copied, so ranks with GPUs add up as ranks without do, to the bit.
 *
 * Over a transport that takes buffers on GPUs (NCCL) the same code runs on the tensors themselves. Sums then have the
 * transport's order, unless the backend is to keep the ranks'; those go through pinned memory all the same, and so do
 * sums to which a rank adds nothing.
 */
#include "common/backend/cuda_comm.h"

#include "common/backend/cpu_call.h"
#include "common/backend/cuda_parts.h"
#include "common/backend/cuda_results.h"
#include "common/base/array.h"
#include "common/base/half.h"
#include "common/comm/comm.h"

#include <stdlib.h>

bool ht_cuda_communicates(const struct ht_schedule *s, int32_t op)
{
    switch (s->ops[op].kind) {
    case HT_OP_ALL_GATHER:
    case HT_OP_REDUCE_SCATTER:
    case HT_OP_ALL_REDUCE:
    case HT_OP_SEND:
    case HT_OP_RECEIVE:
        return true;
    default:
        return false;
    }
}

/* Returns the bytes of the op's tensors on the device, each aligned. */
static int64_t staged_bytes(const struct ht_schedule *s, int32_t op)
{
    int64_t bytes = 0;
    for (int64_t e = s->effects_begin[op]; e < s->effects_begin[op + 1]; e++)
        if (s->effects[e].tier == HT_DEVICE) bytes += ht_cuda_aligned(s->tensors[s->effects[e].tensor].bytes);
    return bytes;
}

enum ht_status ht_cuda_comm_open(struct ht_cuda_device *d, struct ht_error *err)
{
    const struct ht_schedule *s = d->s;
    int64_t *bytes = HT_NEW_ARRAY(int64_t, s->n_lanes);
    enum ht_status status = HT_OK;
    for (int32_t op = 0; op < s->n_ops; op++) {
        int64_t *of_lane = &bytes[s->ops[op].lane];
        int64_t need = ht_cuda_communicates(s, op) ? staged_bytes(s, op) : ht_cuda_pass_staged_bytes(d, op);
        if (need > *of_lane) *of_lane = need;
    }
    for (int32_t i = 0; i < s->n_lanes && status == HT_OK; i++)
        if (d->lanes[i].is_stream && bytes[i])
            status = ht_cuda_failed(d->api->host_malloc(&d->lanes[i].staging, bytes[i]),
                                    "pinned memory for messages between ranks", err);
    free(bytes);
    return status;
}

void ht_cuda_comm_close(struct ht_cuda_device *d)
{
    for (int32_t i = 0; d->lanes && i < d->s->n_lanes; i++) {
        if (d->lanes[i].staging) (void)d->api->host_free(d->lanes[i].staging);
        d->lanes[i].staging = NULL;
    }
}

/* Copies the op's tensors on the device that have one of the flags, to their staged buffers or back, and waits. */
static const char *move(struct ht_cuda_device *d, void *stream, const struct ht_buffer *there,
                        const struct ht_buffer *staged, int32_t n, unsigned flags, bool back)
{
    const char *why = NULL;
    for (int32_t i = 0; i < n && !why; i++) {
        if (there[i].tier != HT_DEVICE || there[i].bytes == 0 || !(there[i].flags & flags)) continue;
        void *to = back ? there[i].data : staged[i].data, *from = back ? staged[i].data : there[i].data;
        why = d->api->copy(to, from, there[i].bytes, stream);
    }
    return why ? why : d->api->stream_finish(stream);
}

/* ---- on the GPUs themselves ---- */

/* Returns true if all members of the op's group have all their tensors on GPUs, on streams. */
static bool are_on_devices(const struct ht_schedule *s, int32_t op)
{
    int32_t match = s->ops[op].match, i = op;
    bool all = s->effects_begin[op] < s->effects_begin[op + 1];
    while (i > 0 && s->ops[i - 1].match == match) i--;
    for (; i < s->n_ops && s->ops[i].match == match; i++)
        for (int64_t e = s->effects_begin[i]; e < s->effects_begin[i + 1]; e++) all &= s->effects[e].tier == HT_DEVICE;
    return all;
}

bool ht_cuda_collects(const struct ht_cuda_device *d)
{
    return d->comm->ops->on_gpu && d->comm->ops->collective && !d->sums_in_order;
}

/* Returns the same on all ranks of the op's group. */
static bool is_direct(const struct ht_cuda_device *d, int32_t op)
{
    enum ht_op_kind kind = d->s->ops[op].kind;
    bool sums = kind == HT_OP_ALL_REDUCE || kind == HT_OP_REDUCE_SCATTER;
    if (!d->comm->ops->on_gpu || !are_on_devices(d->s, op)) return false;
    if (sums && !ht_cuda_collects(d)) return false;
    return kind != HT_OP_REDUCE_SCATTER || ht_cpu_scatters_whole(d->s, op);
}

/* Kernels of such an op, which have ended when they return: the transport has a stream of its own. `device` is the op's
   struct ht_cuda_in_flight. */
static void finish(struct ht_cuda_in_flight *f)
{
    const char *why = f->d->api->stream_finish(f->lane->stream);
    if (!f->why) f->why = why;
}

static void round_copy(void *device, struct ht_pool *pool, const float *from, void *to, enum ht_dtype type, int64_t n)
{
    struct ht_cuda_in_flight *f = device;
    ht_cuda_enqueue_kernels.round_copy(f, pool, from, to, type, n);
    finish(f);
}

static void zero(void *device, void *at, int64_t bytes)
{
    struct ht_cuda_in_flight *f = device;
    ht_cuda_enqueue_kernels.zero(f, at, bytes);
    finish(f);
}

/* On the host, which has the lane's pinned memory: it is a rank's share of a sum. */
static void widen(void *device, void *data, int64_t n, enum ht_dtype type)
{
    struct ht_cuda_in_flight *f = device;
    char *here = f->lane->staging;
    const char *why = f->d->api->copy(here + 2 * n, (char *)data + 2 * n, 2 * n, f->lane->stream);
    if (!f->why) f->why = why;
    finish(f);
    ht_cpu_kernels.widen(NULL, here, n, type);
    why = f->d->api->copy(data, here, 4 * n, f->lane->stream);
    if (!f->why) f->why = why;
    finish(f);
}

static const struct ht_kernels direct_kernels = {.round_copy = round_copy, .zero = zero, .widen = widen};

static enum ht_status run_direct(struct ht_cuda_device *d, int32_t iteration, int32_t op,
                                 const struct ht_buffer *buffers, int32_t n, struct ht_error *err)
{
    const struct ht_cuda_lane *lane = &d->lanes[d->s->ops[op].lane];
    struct ht_cuda_in_flight f = {.d = d, .lane = lane, .context = lane->context, .scratch = lane->scratch};
    f.why = d->api->select(d->index);
    enum ht_status status = f.why ? HT_OK : ht_cpu_run_on(d->cpu, &direct_kernels, &f, iteration, op, buffers, n, err);
    return status ? status : ht_cuda_failed_op(d, op, f.why, err);
}

/* ---- any op ---- */

enum ht_status ht_cuda_comm_run(struct ht_cuda_device *d, int32_t iteration, int32_t op,
                                const struct ht_buffer *buffers, int32_t n, struct ht_error *err)
{
    const struct ht_cuda_lane *lane = &d->lanes[d->s->ops[op].lane];
    if (is_direct(d, op)) return run_direct(d, iteration, op, buffers, n, err);
    struct ht_buffer *staged = HT_NEW_ARRAY(struct ht_buffer, n);
    char *at = lane->staging;
    for (int32_t i = 0; i < n; i++) {
        staged[i] = buffers[i];
        if (buffers[i].tier != HT_DEVICE) continue;
        staged[i].data = at;
        at += ht_cuda_aligned(buffers[i].bytes);
    }
    const char *why = d->api->select(d->index);
    if (!why) why = move(d, lane->stream, buffers, staged, n, HT_NEED | HT_UPDATE, false);
    enum ht_status status = ht_cuda_failed_op(d, op, why, err);
    if (status == HT_OK) status = ht_cpu_backend.run_op(d->cpu, iteration, op, staged, n, err);
    if (status == HT_OK) {
        why = move(d, lane->stream, buffers, staged, n, HT_PRODUCE | HT_UPDATE, true);
        status = ht_cuda_failed_op(d, op, why, err);
    }
    free(staged);
    return status;
}
