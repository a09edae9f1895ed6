#include "harness/run/engine.h"

#include "common/base/array.h"
#include "common/base/units.h"
#include "common/comm/tags.h"
#include "common/mem/arena.h"
#include "harness/run/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum ht_status take_from(struct ht_gpu *gpu, int64_t bytes, struct ht_error *err)
{
    char budget_text[HT_QUANTITY_TEXT], reserve_text[HT_QUANTITY_TEXT];
    if (bytes >= gpu->memory_bytes)
        return ht_fail(err, HT_INFEASIBLE,
                       "a device memory of %s leaves no room for tensors: the CUDA backend's reserve is %s (cuBLASLt's "
                       "workspace, scratch, token ids, losses)",
                       ht_format_quantity(HT_BYTES, (double)gpu->memory_bytes, budget_text),
                       ht_format_quantity(HT_BYTES, (double)bytes, reserve_text));
    gpu->memory_bytes -= bytes;
    return HT_OK;
}

enum ht_status ht_engine_take_reserve(const struct ht_platform *platform, struct ht_scenario *s, int64_t micro_batch,
                                      int64_t n_micro_batches, struct ht_error *err, struct ht_cuda_reserve *out)
{
    *out = ht_cuda_reserve_for(platform->cuda_api, &s->model, s->numerics.param, micro_batch, s->seq, n_micro_batches,
                               s->cluster->n_gpus);
    enum ht_status status = HT_OK;
    for (int64_t i = 0; i < s->cluster->n_nodes; i++)
        for (int64_t g = 0; g < s->cluster->nodes[i].n_groups && status == HT_OK; g++)
            status = take_from(&s->cluster->nodes[i].groups[g].gpu, ht_cuda_reserve_bytes(out), err);
    return status;
}

void ht_engine_give_reserve(struct ht_scenario *s, const struct ht_cuda_reserve *reserve)
{
    for (int64_t i = 0; i < s->cluster->n_nodes; i++)
        for (int64_t g = 0; g < s->cluster->nodes[i].n_groups; g++)
            s->cluster->nodes[i].groups[g].gpu.memory_bytes += ht_cuda_reserve_bytes(reserve);
}

/* ---- the engine ---- */

enum ht_status ht_engine_create(const struct ht_platform *platform, int32_t local, const struct ht_cpu_options *cpu,
                                struct ht_error *err, struct ht_engine *out)
{
    struct ht_engine e = {.disk_space = -1};
    enum ht_status status;
    if (platform->kind == HT_PLATFORM_GPU) {
        status = ht_cuda_device_create(cpu, platform->cuda_api, ht_platform_device(platform, local), err, &e.gpu);
        if (status == HT_OK) e.cpu = ht_cuda_device_host(e.gpu);
        e.ops = &ht_cuda_backend;
        e.ctx = e.gpu;
    } else {
        status = ht_cpu_create(cpu, err, &e.cpu);
        e.ops = &ht_cpu_backend;
        e.ctx = e.cpu;
    }
    if (status == HT_OK) *out = e;
    return status;
}

/* Says once what the kernel has refused of the disk; a few refusals come with the first transfers only. */
static void warn(const struct ht_engine *e)
{
    const char *note = e->disk && e->speaks ? ht_disk_note(e->disk) : NULL;
    if (note) fprintf(stderr, "hetbench: warning: disk: %s\n", note);
}

void ht_engine_destroy(struct ht_engine *e)
{
    for (int32_t i = 0; i < e->n_arenas; i++)
        if (!e->gpu || i == e->disk_space) ht_arena_destroy(e->arenas[i]); /* the GPU has its own */
    free(e->arenas);
    if (e->gpu)
        ht_cuda_device_destroy(e->gpu);
    else
        ht_cpu_destroy(e->cpu);
    warn(e);
    ht_disk_destroy(e->disk);
    *e = (struct ht_engine){0};
}

/* Returns the address space of an arena, with holes. On the host it costs nothing until it is used, unless it is
   pinned; on a GPU it is memory, as far as there is. */
static int64_t slack_of(const struct ht_engine *e, enum ht_tier tier, int64_t capacity, int64_t gpu_bytes)
{
    int64_t slack = capacity / (e->gpu && tier == HT_HOST ? 4 : 2) + (1 << 20);
    if (!e->gpu || tier == HT_HOST || slack <= gpu_bytes - capacity) return slack;
    return gpu_bytes > capacity ? gpu_bytes - capacity : 0;
}

/* Returns true when the device's arena is no larger than any run can use: a real GPU's, as other programs may want the
   rest, and a modelled device's (the emulated clock), whose memory this machine need not have. */
static bool takes_what_it_can_use(const struct ht_job *job, int32_t rank)
{
    return ht_cluster_gpu_of(job->scenario.cluster, rank)->cores == 0;
}

int64_t ht_engine_capacity(const struct ht_job *job, int32_t space)
{
    int64_t bound = job->bound_bytes[space];
    if (space >= job->schedule->n_ranks) return bound;
    int64_t given = job->schedule->capacity_bytes[space];
    return given > bound && takes_what_it_can_use(job, space) ? bound : given;
}

static enum ht_status make_arena(struct ht_engine *e, const struct ht_job *job, int32_t space, int64_t gpu_bytes,
                                 struct ht_error *err)
{
    bool on_device = space < job->schedule->n_ranks;
    int64_t capacity = ht_engine_capacity(job, space);
    enum ht_tier tier = on_device ? HT_DEVICE : HT_HOST;
    int64_t slack = slack_of(e, tier, capacity, gpu_bytes);
    if (!e->gpu) return ht_arena_create(capacity, slack, false, err, &e->arenas[space]);
    return ht_cuda_device_arena(e->gpu, tier, capacity, slack, err, &e->arenas[space]);
}

/* Gives the disk to the backend, with the memory that copies go to. */
static void use_disk(struct ht_engine *e, void *memory, int64_t bytes)
{
    ht_disk_register(e->disk, memory, bytes);
    ht_cpu_set_disk(e->cpu, e->disk);
}

static enum ht_status make_disk(struct ht_engine *e, const struct ht_job *job, const struct ht_disk_options *disk,
                                int32_t space, const char *what, struct ht_error *err)
{
    const struct ht_schedule *s = job->schedule;
    int64_t capacity = ht_engine_capacity(job, space), bytes = 0;
    int32_t host = ht_space(s, HT_HOST, 0);
    enum ht_status status = ht_disk_create_space(disk, capacity, ht_disks_slack(s, space, capacity), what, err,
                                                 &e->arenas[space], &e->disk);
    if (status) return status;
    e->disk_space = space;
    void *memory = e->arenas[host] ? ht_arena_base(e->arenas[host], &bytes) : NULL;
    use_disk(e, memory, bytes);
    e->speaks = true;
    return HT_OK;
}

double ht_engine_machine_bytes(const struct ht_job *job)
{
    bool on_gpu = job->platform.kind == HT_PLATFORM_GPU;
    double most = 0;
    for (int32_t i = on_gpu ? job->schedule->n_ranks : 0; i < ht_n_spaces(job->schedule); i++)
        if (!ht_disks_is_space(job->schedule, i))
            most += (on_gpu ? 1.25 : 1) * (double)job->bound_bytes[i]; /* pinned with its holes */
    return most;
}

enum ht_status ht_engine_make_arenas(struct ht_engine *e, const struct ht_job *job, const struct ht_disk_options *disk,
                                     struct ht_error *err)
{
    const struct ht_schedule *s = job->schedule;
    enum ht_status status = e->gpu ? ht_cuda_device_reserve(e->gpu, ht_cuda_reserve_bytes(&job->reserve), err) : HT_OK;
    int64_t gpu_bytes = e->gpu ? ht_cuda_device_free_bytes(e->gpu) / 20 * 19 : 0;
    char what[96];
    e->n_arenas = ht_n_spaces(s);
    e->arenas = HT_NEW_ARRAY(struct ht_arena *, e->n_arenas);
    snprintf(what, sizeof(what), "training '%s'", s->name);
    if (status == HT_OK) status = ht_arena_check_machine(ht_engine_machine_bytes(job), what, err);
    for (int32_t i = 0; i < e->n_arenas && status == HT_OK; i++) {
        if (!job->proof.spaces[i].peak_bytes) continue;
        if (ht_disks_is_space(s, i))
            status = make_disk(e, job, disk, i, what, err);
        else
            status = make_arena(e, job, i, gpu_bytes, err);
    }
    if (status == HT_OK && e->gpu && ht_cuda_device_note(e->gpu))
        fprintf(stderr, "hetbench: warning: %s\n", ht_cuda_device_note(e->gpu));
    return status;
}

struct ht_space_size ht_engine_space(const struct ht_job *job, int32_t space)
{
    enum { EMPTY = 512 }; /* of a space whose tensors are all empty: they have addresses */
    const struct ht_schedule *s = job->schedule;
    bool on_gpu = job->platform.kind == HT_PLATFORM_GPU, on_device = space < s->n_ranks;
    int64_t capacity = ht_engine_capacity(job, space), slack = capacity / 2 + (1 << 20);
    if (capacity == 0) capacity = EMPTY;
    if (ht_disks_is_space(s, space))
        return (struct ht_space_size){
            .capacity_bytes = capacity, .slack_bytes = ht_disks_slack(s, space, capacity), .of_files = true};
    if (on_gpu && !on_device) slack = capacity / 4 + (1 << 20); /* pinned */
    int64_t left =
        on_gpu && on_device ? s->capacity_bytes[space] / 8 : slack; /* of the fifth that nothing plans with */
    return (struct ht_space_size){.capacity_bytes = capacity, .slack_bytes = slack < left ? slack : left};
}

enum ht_status ht_engine_take_device(struct ht_engine *e, const struct ht_job *job, struct ht_space_size *size,
                                     struct ht_error *err)
{
    if (!e->gpu) return HT_OK;
    enum ht_status status = ht_cuda_device_reserve(e->gpu, ht_cuda_reserve_bytes(&job->reserve), err);
    if (status || !size->capacity_bytes) return status;
    size->capacity_bytes = ht_live_bytes(size->capacity_bytes);
    size->slack_bytes = ht_live_bytes(size->slack_bytes);
    return ht_cuda_device_memory(e->gpu, size->capacity_bytes + size->slack_bytes, err, &size->memory);
}

void ht_engine_join_node(struct ht_engine *e, const struct ht_job *job, const struct ht_ranks *ranks)
{
    int64_t bytes;
    if (!e->gpu) return;
    void *host = ht_node_base(ranks->node, ht_space(job->schedule, HT_HOST, ranks->comm->rank), &bytes);
    if (host) ht_cuda_device_pin(e->gpu, host, bytes);
    if (ht_cuda_device_note(e->gpu) && ht_ranks_speaks(ranks))
        fprintf(stderr, "hetbench: warning: %s\n", ht_cuda_device_note(e->gpu));
}

void ht_engine_leave_node(struct ht_engine *e)
{
    if (e->gpu) ht_cuda_device_unpin(e->gpu);
}

enum ht_status ht_engine_join_disk(struct ht_engine *e, const struct ht_job *job, const struct ht_ranks *ranks,
                                   const struct ht_disk_options *disk, struct ht_error *err)
{
    const struct ht_schedule *s = job->schedule;
    int32_t rank = ranks->comm->rank, leader = 0, space = ht_space(s, HT_DISK, rank);
    struct ht_disk_handle mine = {0}, *all = HT_NEW_ARRAY(struct ht_disk_handle, ranks->comm->size);
    enum ht_status status = HT_OK;
    int64_t bytes, host_bytes;
    char what[96];
    void *base = ht_node_base(ranks->node, space, &bytes);
    snprintf(what, sizeof(what), "training '%s'", s->name);
    while (s->rank_node[leader] != s->rank_node[rank]) leader++;
    if (bytes && rank == leader) status = ht_disk_create(disk, base, bytes, what, err, &e->disk);
    if (e->disk) mine = ht_disk_handle(e->disk);
    status = ht_ranks_agree(ranks, status, err);
    if (status == HT_OK) status = ht_ranks_gather(ranks, HT_TAG_NODE, &mine, sizeof(mine), all, err);
    if (status == HT_OK && bytes && rank != leader)
        status = ht_disk_attach(disk, &all[leader], base, bytes, err, &e->disk);
    if (status == HT_OK && e->disk) {
        void *memory = ht_node_base(ranks->node, ht_space(s, HT_HOST, rank), &host_bytes);
        use_disk(e, memory, host_bytes);
        e->speaks = rank == 0;
    }
    free(all);
    return ht_ranks_agree(ranks, status, err);
}

/* Fills a tensor on disk piece by piece. The pieces are those of a shard, whatever the tensor is. */
static enum ht_status init_on_disk(struct ht_engine *e, const struct ht_tensor *t, struct ht_buffer buffer,
                                   struct ht_error *err)
{
    enum { PIECE = 1 << 22 };
    int64_t each = t->class == HT_PARAM ? ht_cpu_param_bytes(e->cpu) : 4, begin = t->sharded ? t->shard_begin : 0;
    int64_t end = t->sharded ? t->shard_end : begin + buffer.bytes / each; /* a shard may be padded */
    char *data = ht_alloc_aligned(HT_DISK_BLOCK, PIECE);
    enum ht_status status = HT_OK;
    for (int64_t at = 0, n; at < buffer.bytes && status == HT_OK; at += n) {
        struct ht_tensor piece = *t;
        n = buffer.bytes - at < PIECE ? buffer.bytes - at : PIECE;
        piece.sharded = true;
        piece.shard_begin = begin + at / each < end ? begin + at / each : end;
        piece.shard_end = begin + (at + n) / each < end ? begin + (at + n) / each : end;
        struct ht_buffer in = buffer, on_disk = buffer;
        in.data = data;
        on_disk.data = (char *)buffer.data + at;
        in.bytes = on_disk.bytes = n;
        status = ht_cpu_init(e->cpu, &piece, in, err);
        if (status == HT_OK) status = ht_engine_write(e, data, on_disk, err);
    }
    free(data);
    return status;
}

enum ht_status ht_engine_init(struct ht_engine *e, const struct ht_tensor *t, struct ht_buffer buffer,
                              struct ht_error *err)
{
    if (buffer.tier == HT_DISK) return init_on_disk(e, t, buffer, err);
    return e->gpu ? ht_cuda_device_init(e->gpu, t, buffer, err) : ht_cpu_init(e->cpu, t, buffer, err);
}

enum ht_status ht_engine_read(struct ht_engine *e, struct ht_buffer from, void *to, struct ht_error *err)
{
    struct ht_disk_move move = {.memory = to, .at = from.data, .bytes = from.bytes};
    if (from.tier == HT_DISK) return ht_disk_read(e->disk, &move, 1, NULL, err);
    if (e->gpu) return ht_cuda_device_read(e->gpu, from, to, err);
    if (from.bytes) memcpy(to, from.data, (size_t)from.bytes); /* an empty shard has no address */
    return HT_OK;
}

const void *ht_engine_bytes(const struct ht_engine *e, struct ht_buffer buffer)
{
    return buffer.tier == HT_DISK || e->gpu ? NULL : buffer.data;
}

enum ht_status ht_engine_write(struct ht_engine *e, const void *from, struct ht_buffer to, struct ht_error *err)
{
    struct ht_disk_move move = {.memory = (void *)from, .at = to.data, .bytes = to.bytes};
    if (to.tier == HT_DISK) return ht_disk_write(e->disk, &move, 1, NULL, err);
    if (e->gpu) return ht_cuda_device_write(e->gpu, from, to, err);
    if (to.bytes) memcpy(to.data, from, (size_t)to.bytes);
    return HT_OK;
}
