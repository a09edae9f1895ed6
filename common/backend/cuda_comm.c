/*
 * Messages and collectives through pinned host memory, for any GPUs and any number of ranks a GPU:
 *
 *     GPU of rank 0 -> pinned -> the CPU backend's op: messages, sums in the ranks' order -> pinned -> GPU of rank 0
 *
 * The CPU backend's own code runs on what was copied, so ranks with GPUs add up as ranks without do, to the bit.
 */
#include "common/backend/cuda_comm.h"

#include "common/base/array.h"

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
        if (ht_cuda_communicates(s, op) && staged_bytes(s, op) > *of_lane) *of_lane = staged_bytes(s, op);
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
