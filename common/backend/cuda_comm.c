/*
 * Messages and collectives between ranks with a GPU each. Through pinned host memory, for any GPUs and any number of
 * ranks a GPU:
 *
 *     GPU of rank 0 -> pinned -> the CPU backend's op: messages, sums in the ranks' order -> pinned -> GPU of rank 0
 *
 * The CPU backend's own code runs on what was copied, so ranks with GPUs add up as ranks without do, to the bit.
 *
 * Over a transport that takes buffers on GPUs (NCCL) the same code runs on the tensors themselves, as part of the lane's
 * stream: such an op is enqueued as any other (cuda.c), its kernels and what the transport does one behind the other.
 * Sums then have the transport's order, unless the backend is to keep the ranks'; those go through pinned memory all the
 * same, and so do sums to which a rank adds nothing.
 */
#include "common/backend/cuda_comm.h"

#include "common/backend/cpu_call.h"
#include "common/backend/cuda_parts.h"
#include "common/base/array.h"
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
        if (d->lanes[i].is_stream && bytes[i]) {
            if (d->comm) d->lanes[i].comm = ht_comm_on_stream(d->comm, d->lanes[i].stream);
            status = ht_cuda_failed(d->api->host_malloc(&d->lanes[i].staging, bytes[i]),
                                    "pinned memory for messages between ranks", err);
        }
    free(bytes);
    return status;
}

void ht_cuda_comm_close(struct ht_cuda_device *d)
{
    for (int32_t i = 0; d->lanes && i < d->s->n_lanes; i++) {
        if (d->lanes[i].staging) (void)d->api->host_free(d->lanes[i].staging);
        d->lanes[i].staging = NULL;
        ht_comm_close(d->lanes[i].comm);
        d->lanes[i].comm = NULL;
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

bool ht_cuda_comm_is_direct(const struct ht_cuda_device *d, int32_t op)
{
    enum ht_op_kind kind = d->s->ops[op].kind;
    bool sums = kind == HT_OP_ALL_REDUCE || kind == HT_OP_REDUCE_SCATTER;
    if (!d->comm || !d->comm->ops->on_gpu || !are_on_devices(d->s, op)) return false;
    if (sums && !ht_cuda_collects(d)) return false;
    return kind != HT_OP_REDUCE_SCATTER || ht_cpu_scatters_whole(d->s, op);
}

const char *ht_cuda_comm_lost(const struct ht_cuda_device *d)
{
    const char *why = d->comm && d->comm->ops->reason ? d->comm->ops->reason(d->comm) : NULL;
    return why || !d->comm || !ht_comm_is_cancelled(d->comm) ? why : "the job has failed elsewhere";
}

/* ---- through pinned memory ---- */

enum ht_status ht_cuda_comm_run(struct ht_cuda_device *d, int32_t iteration, int32_t op,
                                const struct ht_buffer *buffers, int32_t n, struct ht_error *err)
{
    const struct ht_cuda_lane *lane = &d->lanes[d->s->ops[op].lane];
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
