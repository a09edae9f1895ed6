/*
 * Maps a work and a rank of a cluster to a formula and its rates.
 *
 *     forward, recompute, backward    compute lane: the device's roof;  host lane: the host cores' roof. With
 *                                     tensor-parallel parts also the all-reduces inside, one after another, as
 *                                     collectives
 *     optimizer step, undo            compute lane: traffic of device memory;  host lane: CPU Adam, and at the rate of
 *                                     streaming what the software does beside it. A logged step writes its log and
 *                                     the undo reads it: the work's bytes
 *     accumulate                      accumulator read and written, gradient read, in the lane's memory
 *     restore of parameters           master read, 16-bit copy written, in the lane's memory
 *     copy, other restore             h2d, d2h lanes: PCIe;  disk: the node's array;  compute, host: within its memory
 *     collectives, send, receive      inside the node NVLink if there is one, else PCIe, without peer access through host
 *                                     memory; between nodes the NIC, or what the cluster says of the two nodes. A ring
 *                                     goes at the rate of its slowest edge
 *     validate                        one kernel; it reads the gradients if the work has parameters
 *
 * A recomputation costs as much as the forward of the same sub-ops. A copy on a disk lane says whether it writes
 * (struct ht_work).
 */
#include <math.h>

#include "common/profile/formula.h"
#include "common/profile/internal.h"

enum { HT_HOST_LAUNCH_NS = 1000 }; /* time to wake the host's workers; assumed */

static double ht_seconds(int64_t ns)
{
    return (double)ns * 1e-9;
}

static struct ht_roof ht_gpu_roof(const struct ht_gpu *gpu, enum ht_dtype dtype)
{
    double peak = dtype == HT_F16    ? gpu->f16_flops_per_s
                  : dtype == HT_BF16 ? gpu->bf16_flops_per_s
                                     : gpu->f32_flops_per_s;
    bool fp32 = dtype == HT_F32 || (dtype == HT_F16 && gpu->lacks_f16) || (dtype == HT_BF16 && gpu->lacks_bf16);
    double efficiency = fp32 && gpu->fp32_efficiency > 0 ? gpu->fp32_efficiency : gpu->gemm_efficiency;
    return (struct ht_roof){.flops_per_s = peak * efficiency,
                            .sms = (double)gpu->sms,
                            .bytes_per_s = gpu->memory_bytes_per_s * gpu->memory_efficiency,
                            .launch_s = ht_seconds(gpu->launch_ns)};
}

/* Returns the share of the node's cores that one process has: its domain's, without those of emulated devices. It has
   the same share of DRAM bandwidth. */
static double ht_host_share(const struct ht_machine *m)
{
    return (double)ht_machine_process_cores(m) / (double)(m->cpu.cores * m->cpu.sockets);
}

static struct ht_roof ht_host_roof(const struct ht_machine *m)
{
    return (struct ht_roof){.flops_per_s =
                                (double)ht_machine_process_cores(m) * m->cpu.core_flops_per_s * m->cpu.gemm_efficiency,
                            .bytes_per_s = ht_machine_dram_rate(m) * ht_host_share(m),
                            .launch_s = ht_seconds(HT_HOST_LAUNCH_NS)};
}

static double ht_update_s(const struct ht_machine *m, const struct ht_gpu *gpu, const struct ht_software *software,
                          const struct ht_work *w)
{
    double params = (double)w->params, each = ht_adam_bytes_per_param(w->dtype, w->grad_dtype);
    double beside = params * ht_step_beside_bytes(&software->step, w->dtype, w->grad_dtype);
    if (params > 0) each += (double)w->bytes / params;
    if (w->where == HT_LANE_COMPUTE) {
        struct ht_roof r = ht_gpu_roof(gpu, w->dtype);
        return ht_stream_s(&r, params * each + beside);
    }
    double stream = ht_machine_dram_rate(m) * ht_host_share(m), cores = (double)ht_machine_process_cores(m);
    if (software->adam.threads > 0) cores = fmin(cores, (double)software->adam.threads);
    return ht_seconds(HT_HOST_LAUNCH_NS) +
           ht_cpu_adam_s(params, each, stream * software->adam.share, cores * m->cpu.core_flops_per_s) +
           beside / stream;
}

static enum ht_status ht_lacks(struct ht_error *err, const struct ht_work *w, const char *what)
{
    char key[HT_WORK_KEY_MAX];
    return ht_fail(err, HT_BAD_INPUT, "work '%s' needs %s; expected a cluster that has one, or a profile file",
                   ht_work_key(w, key, sizeof(key)), what);
}

static enum ht_status ht_transfer_s(const struct ht_machine *m, const struct ht_gpu *gpu, const struct ht_work *w,
                                    struct ht_error *err, double *s)
{
    double bytes = (double)w->bytes;
    struct ht_roof r;
    switch (w->where) {
    case HT_LANE_H2D:
    case HT_LANE_D2H:
        *s = ht_copy_s(ht_seconds(m->pcie.latency_ns), bytes, ht_link_rate(&m->pcie));
        return HT_OK;
    case HT_LANE_DISK:
        if (!m->has_ssds) return ht_lacks(err, w, "a disk");
        *s = ht_copy_s(ht_seconds(m->ssd.latency_ns), bytes,
                       w->write ? ht_machine_ssd_write_rate(m) : ht_machine_ssd_read_rate(m));
        return HT_OK;
    case HT_LANE_COMPUTE:
        r = ht_gpu_roof(gpu, w->dtype);
        break;
    default:
        r = ht_host_roof(m);
        break;
    }
    *s = ht_stream_s(&r, 2 * bytes); /* read and written in the same memory */
    return HT_OK;
}

/* Returns the connection between the nodes of a group that leaves its node. */
static const struct ht_link *ht_outside_link(const struct ht_cluster *c, const struct ht_machine *m,
                                             struct ht_reach reach)
{
    return reach.between >= 0 ? &c->between[reach.between].link : &m->nic;
}

/* Returns the rate of a message. Between nodes it passes the port, too. */
static double ht_message_rate(const struct ht_machine *m, const struct ht_link *outside, double bytes)
{
    const struct ht_link *inside = m->has_nvlink ? &m->nvlink : &m->pcie;
    if (outside) return fmin(ht_link_rate_at(outside, bytes), ht_link_rate(&m->pcie));
    return ht_machine_stages(m) ? ht_machine_message_rate(m) : ht_link_rate_at(inside, bytes);
}

/* Returns the steps, rate and latencies of a collective of w->ranks members, as NCCL runs it: rings that pass all
   members of a node before the next node's. */
static struct ht_ring ht_ring_of(const struct ht_machine *m, const struct ht_link *outside, struct ht_reach reach,
                                 const struct ht_work *w)
{
    const struct ht_link *inside = m->has_nvlink ? &m->nvlink : &m->pcie;
    double bytes = (double)w->bytes, rate = INFINITY;
    struct ht_ring ring = {.ranks = w->ranks, .nodes = 1, .inside_s = ht_seconds(inside->latency_ns)};
    if (!outside || reach.shares_node)
        rate = ht_machine_stages(m) ? ht_machine_ring_rate(m) : ht_link_rate_at(inside, bytes);
    if (outside) {
        double port = m->has_nvlink ? INFINITY : ht_link_rate(&m->pcie);
        ring.nodes = reach.nodes;
        ring.outside_s = ht_seconds(outside->latency_ns);
        rate = fmin(fmin(rate, port), ht_link_rate_at(outside, bytes));
    }
    ring.bytes_per_s = rate;
    return ring;
}

/* Sets *s to the time of a collective or message. Uneven shards take the software's factor longer than even ones of the
   same unit, and never less than what passes this rank. */
static enum ht_status ht_network_s(const struct ht_cluster *c, const struct ht_machine *m,
                                   const struct ht_software *software, struct ht_reach reach, const struct ht_work *w,
                                   struct ht_error *err, double *s)
{
    if (reach.crosses && !m->has_nic) return ht_lacks(err, w, "a NIC");
    const struct ht_link *outside = reach.crosses ? ht_outside_link(c, m, reach) : NULL;
    double bytes = (double)w->bytes;
    if (w->kind == HT_OP_SEND || w->kind == HT_OP_RECEIVE) {
        const struct ht_link *inside = m->has_nvlink ? &m->nvlink : &m->pcie;
        int64_t latency_ns =
            outside && outside->latency_ns > inside->latency_ns ? outside->latency_ns : inside->latency_ns;
        *s = ht_copy_s(ht_seconds(latency_ns), bytes, ht_message_rate(m, outside, bytes));
        return HT_OK;
    }
    struct ht_ring ring = ht_ring_of(m, outside, reach, w);
    *s = ht_collective_s(w->kind, &ring, bytes);
    if (w->even_bytes)
        *s = fmax(*s, software->collectives.uneven * ht_collective_s(w->kind, &ring, (double)w->even_bytes));
    return HT_OK;
}

/* Sets *s to the time of the all-reduces inside a pass over tensor-parallel parts, for which compute waits. */
static enum ht_status ht_part_sums_s(const struct ht_cluster *c, const struct ht_machine *m,
                                     const struct ht_software *software, struct ht_reach reach, const struct ht_work *w,
                                     struct ht_error *err, double *s)
{
    struct ht_part_sums sums = ht_work_part_sums(w);
    struct ht_work ring = {.kind = HT_OP_ALL_REDUCE, .ranks = w->tp, .bytes = sums.bytes},
                   half = {.kind = HT_OP_ALL_GATHER, .ranks = w->tp, .bytes = sums.half_bytes};
    double sum_s = 0, half_s = 0;
    enum ht_status st = sums.n ? ht_network_s(c, m, software, reach, &ring, err, &sum_s) : HT_OK;
    if (!st && sums.n_halves) st = ht_network_s(c, m, software, reach, &half, err, &half_s);
    *s = sums.n * sum_s + sums.n_halves * half_s;
    return st;
}

enum ht_status ht_modelled_cost(const struct ht_cluster *cluster, const struct ht_software *software, int64_t rank,
                                struct ht_reach reach, const struct ht_work *w, struct ht_error *err, int64_t *ns)
{
    const struct ht_machine *m = ht_cluster_node_of(cluster, rank, NULL);
    const struct ht_gpu *gpu = ht_cluster_gpu_of(cluster, rank);
    bool device = w->where == HT_LANE_COMPUTE;
    struct ht_roof r = device ? ht_gpu_roof(gpu, w->dtype) : ht_host_roof(m);
    enum ht_status st = HT_OK;
    double s = 0, sums_s = 0;
    if (w->custom[0])
        return ht_fail(err, HT_BAD_INPUT, "work '%.32s' is a name of its own; expected a profile file with its time",
                       w->custom);
    if (w->free) {
        *ns = 0;
        return HT_OK;
    }
    switch (w->kind) {
    case HT_OP_FORWARD:
    case HT_OP_RECOMPUTE:
        s = ht_forward_s(&r, software, w);
        st = ht_part_sums_s(cluster, m, software, reach, w, err, &sums_s);
        break;
    case HT_OP_BACKWARD:
        s = ht_backward_s(&r, software, w);
        st = ht_part_sums_s(cluster, m, software, reach, w, err, &sums_s);
        break;
    case HT_OP_ACCUMULATE:
        s = ht_stream_s(&r, (double)w->params * (double)(2 * ht_dtype_bytes(w->dtype) + ht_dtype_bytes(w->grad_dtype)));
        break;
    case HT_OP_OPTIMIZER_STEP:
    case HT_OP_UNDO:
        s = ht_update_s(m, gpu, software, w);
        break;
    case HT_OP_RESTORE:
        if (w->params) {
            s = ht_stream_s(&r, (double)w->params * (4 + (double)ht_dtype_bytes(w->dtype)));
            break;
        } /* fall through */
    case HT_OP_COPY:
        st = ht_transfer_s(m, gpu, w, err, &s);
        break;
    case HT_OP_ALL_GATHER:
    case HT_OP_REDUCE_SCATTER:
    case HT_OP_ALL_REDUCE:
    case HT_OP_SEND:
    case HT_OP_RECEIVE:
        st = ht_network_s(cluster, m, software, reach, w, err, &s);
        break;
    case HT_OP_TRANSPOSE:
        s = ht_stream_s(&r, 2 * (double)w->bytes); /* tiles are read and written at the memory's rate */
        break;
    case HT_OP_VALIDATE:
        s = ht_stream_s(&r, (double)w->params * (double)ht_dtype_bytes(w->grad_dtype));
        break;
    case HT_N_OP_KINDS:
        break;
    }
    if (st) return st;
    int64_t v = ht_ns_up(s + sums_s);
    if (v > HT_PROFILE_MAX_NS) {
        char key[HT_WORK_KEY_MAX];
        return ht_fail(err, HT_BAD_INPUT, "work '%s' takes more than 11 days; expected a smaller shape",
                       ht_work_key(w, key, sizeof(key)));
    }
    *ns = v;
    return HT_OK;
}
