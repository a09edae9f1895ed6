#include "common/plan/scenario.h"

#include "common/base/units.h"
#include "common/model/zoo.h"

#include <math.h>
#include <string.h>

const char *const ht_control_mode_names[HT_N_CONTROL_MODES] = {"none", "gate", "rollback"};

static enum ht_status numerics_of(const struct ht_scenario_request *r, bool emulated, struct ht_error *err,
                                  struct ht_numerics *out)
{
    static const struct {
        const char *name;
        struct ht_numerics n;
    } known[] = {
        {"fp32", {HT_F32, HT_F32, HT_F32, HT_F32}},
        {"fp16", {HT_F16, HT_F16, HT_F32, HT_F16}},
        {"bf16", {HT_BF16, HT_BF16, HT_F32, HT_BF16}},
    };
    const char *name = r->numerics ? r->numerics : emulated ? "fp32" : "fp16";
    size_t i = 0, n = sizeof(known) / sizeof(known[0]);
    while (i < n && strcmp(name, known[i].name) != 0) i++;
    if (i == n) return ht_fail(err, HT_BAD_INPUT, "numerics '%s' is not known; expected fp32, fp16 or bf16", name);
    *out = known[i].n;
    if (!r->accumulate || !strcmp(r->accumulate, "fp32")) return HT_OK;
    if (strcmp(r->accumulate, "16") != 0)
        return ht_fail(err, HT_BAD_INPUT, "accumulation in '%s' is not known; expected fp32 or 16", r->accumulate);
    if (out->grad == HT_F32)
        return ht_fail(err, HT_BAD_INPUT, "accumulation in 16 bit needs 16-bit gradients; numerics are fp32");
    out->accumulate = out->grad;
    return HT_OK;
}

static enum ht_status loss_scale_of(const char *text, struct ht_error *err, struct ht_control_options *out)
{
    struct ht_error why = {0};
    if (!strcmp(text, "dynamic")) {
        out->dynamic = true;
        return HT_OK;
    }
    enum ht_status status = ht_parse_real(HT_REAL, text, strlen(text), &why, &out->loss_scale);
    if (status != HT_OK || !isfinite(out->loss_scale) || out->loss_scale < 0x1p-24 || out->loss_scale > 0x1p64)
        return ht_fail(err, HT_BAD_INPUT, "invalid loss scale '%s': expected 'dynamic' or a number from 2^-24 to 2^64",
                       text);
    return HT_OK;
}

/* Fills the options of a dynamic scale, and the defaults. */
static enum ht_status dynamic_scale_of(const struct ht_scenario_request *r, struct ht_error *err,
                                       struct ht_control_options *out)
{
    if (!out->dynamic && (r->initial_scale != 0 || r->growth_interval))
        return ht_fail(err, HT_BAD_INPUT, "%s is for a dynamic loss scale: expected loss scale dynamic with it",
                       r->initial_scale != 0 ? "an initial scale" : "a growth interval");
    if (out->dynamic) out->loss_scale = r->initial_scale;
    out->growth_interval = r->growth_interval;
    *out = ht_control_filled(out);
    return HT_OK;
}

static enum ht_status control_of(const struct ht_scenario_request *r, const struct ht_numerics *n, struct ht_error *err,
                                 struct ht_control *out)
{
    *out = (struct ht_control){.mode = HT_CONTROL_NONE, .options = {.clip = r->clip}};
    if (!isfinite(r->clip) || r->clip < 0)
        return ht_fail(err, HT_BAD_INPUT, "invalid clip %g: expected a positive norm", r->clip);
    if (r->training && !r->control && (n->param == HT_F16 || r->clip > 0)) out->mode = HT_CONTROL_GATE;
    if (r->control) {
        int mode = 0;
        while (mode < HT_N_CONTROL_MODES && strcmp(r->control, ht_control_mode_names[mode]) != 0) mode++;
        if (mode == HT_N_CONTROL_MODES)
            return ht_fail(err, HT_BAD_INPUT, "control '%s' is not known; expected none, gate or rollback", r->control);
        out->mode = (enum ht_control_mode)mode;
    }
    bool controlled = out->mode != HT_CONTROL_NONE;
    if (r->loss_scale) {
        enum ht_status status = loss_scale_of(r->loss_scale, err, &out->options);
        if (status != HT_OK) return status;
    } else {
        out->options.dynamic = controlled && n->param == HT_F16;
    }
    if (!controlled && (r->clip > 0 || out->options.dynamic))
        return ht_fail(err, HT_BAD_INPUT,
                       "%s needs to know all gradients before a step counts: expected control gate or rollback with it",
                       r->clip > 0 ? "clipping" : "a dynamic loss scale");
    return dynamic_scale_of(r, err, &out->options);
}

/* Creates this machine as one node or several, with an emulated device each unless the request says how many. */
static enum ht_status local_of(const struct ht_scenario_request *r, struct ht_error *err, struct ht_cluster **out)
{
    int64_t nodes = r->nodes ? r->nodes : 1, devices = r->ranks ? r->ranks : nodes;
    enum ht_status status = ht_cluster_local(devices, r->device_cores, r->device_memory_bytes, err, out);
    if (status == HT_OK && nodes > 1) status = ht_cluster_divide(*out, nodes, err);
    return status;
}

/* Creates the whole cluster. */
static enum ht_status whole_of(const struct ht_scenario_request *r, struct ht_error *err, struct ht_cluster **out)
{
    bool local = !strcmp(r->cluster, "local"), gpu = local && r->n_local_gpus;
    if (local && r->only)
        return ht_fail(err, HT_BAD_INPUT, "devices to use were given for cluster 'local'; expected --ranks");
    if (r->nodes && (!local || gpu))
        return ht_fail(err, HT_BAD_INPUT, "nodes were given for cluster '%s': expected cluster 'local'", r->cluster);
    if (local && !gpu) return local_of(r, err, out);
    if (r->device_cores && gpu)
        return ht_fail(err, HT_BAD_INPUT, "device cores were given for a GPU: expected an emulated device");
    if (r->device_cores)
        return ht_fail(err, HT_BAD_INPUT, "device cores were given for cluster '%s': expected cluster 'local'",
                       r->cluster);
    if (!r->made)
        return gpu ? ht_cluster_local_gpus(r->local_gpus, r->n_local_gpus, err, out)
                   : ht_cluster_load(r->cluster, err, out);
    *out = ht_cluster_copy(r->made);
    return HT_OK;
}

/* Creates the cluster with the request's devices. */
static enum ht_status devices_of(const struct ht_scenario_request *r, struct ht_error *err, struct ht_cluster **out)
{
    bool emulated = !strcmp(r->cluster, "local") && !r->n_local_gpus;
    enum ht_status status = whole_of(r, err, out);
    if (status != HT_OK) return status;
    for (int64_t i = 0; i < (*out)->n_nodes; i++) (*out)->nodes[i].number = (int32_t)i;
    if (r->only_nodes) status = ht_cluster_keep_nodes(*out, r->only_nodes, err);
    if (status == HT_OK && r->only) status = ht_cluster_keep(*out, r->only, err);
    if (status == HT_OK && r->ranks && r->ranks < (*out)->n_gpus && strcmp(r->cluster, "local") != 0)
        ht_cluster_keep_first(*out, r->ranks);
    if (status == HT_OK && r->device_memory_bytes && !emulated)
        status = ht_cluster_set_device_memory(*out, r->device_memory_bytes, err);
    return status;
}

static enum ht_status cluster_of(const struct ht_scenario_request *r, struct ht_error *err, struct ht_cluster **out)
{
    enum ht_status status = devices_of(r, err, out);
    if (status == HT_OK && r->host_memory_bytes) status = ht_cluster_set_host_memory(*out, r->host_memory_bytes, err);
    if (status == HT_OK && r->local_disks && !strcmp(r->cluster, "local"))
        status = ht_cluster_set_disks(*out, "local-disk", r->local_disks, err);
    if (status == HT_OK && r->through_host_bytes_per_s > 0)
        ht_cluster_set_through_host(*out, r->through_host_bytes_per_s);
    if (status == HT_OK && r->through_host_scale > 0) ht_cluster_scale_through_host(*out, r->through_host_scale);
    return status;
}

/* Returns the length of sequences where none is asked for: the model's longest, but no more than is usual in training.
   Models that are used with long texts would need hundreds of gigabytes otherwise. */
static int64_t default_seq(const struct ht_model *m)
{
    enum { USUAL = 4096 };
    return m->max_seq <= USUAL || ht_arch_has_patches(m->arch) ? m->max_seq : USUAL;
}

/* Sets batch, micro-batch and sequence. Checks that the batch divides into micro-batches and that the model takes the
   sequence. */
static enum ht_status shape_of(const struct ht_scenario_request *r, struct ht_error *err, struct ht_scenario *s)
{
    s->seq = r->seq ? r->seq : default_seq(&s->model);
    s->batch = r->batch ? r->batch : 8;
    s->micro_batch = r->micro_batch ? r->micro_batch : s->batch;
    if (s->batch < 1 || s->batch > 1 << 20)
        return ht_fail(err, HT_BAD_INPUT, "batch %lld is out of range; expected 1 to %d sequences", (long long)s->batch,
                       1 << 20);
    if (s->micro_batch < 1 || s->batch % s->micro_batch)
        return ht_fail(err, HT_BAD_INPUT, "micro-batch %lld does not divide the batch of %lld sequences",
                       (long long)s->micro_batch, (long long)s->batch);
    return ht_model_check_seq(&s->model, s->seq, err);
}

/* Checks that the number of ranks, if given, is that of the devices that are used: the first ones, as many as there are ranks.
   Of this machine's nodes it is of all, used or not. */
static enum ht_status check_ranks(const struct ht_scenario_request *r, const struct ht_scenario *s,
                                  struct ht_error *err)
{
    int64_t ranks = ht_scenario_ranks(s);
    if (!r->ranks || r->ranks == ranks || (r->nodes && r->only_nodes)) return HT_OK;
    return ht_fail(err, HT_BAD_INPUT,
                   "%lld ranks on cluster '%s', which has %lld device%s; expected at most one rank a device",
                   (long long)r->ranks, s->cluster->name, (long long)ranks, ranks == 1 ? "" : "s");
}

/* Returns the channels of a GPU's communicator: two for each link of 25 GB/s, which NVLink's bundles are made of, at
   least two and at most 32 (github.com/NVIDIA/nccl/issues/1703; MAXCHANNELS); 0 for a GPU alone. */
static int64_t channels_of(const struct ht_cluster *cluster, const struct ht_machine *node)
{
    if (cluster->n_gpus == 1) return 0;
    double channels = node->has_nvlink ? node->nvlink.bytes_per_s / 12.5e9 : 2;
    return channels < 2 ? 2 : channels > 32 ? 32 : (int64_t)channels;
}

int64_t ht_scenario_communicator_bytes(const struct ht_scenario *s, int64_t rank)
{
    return ht_software_communicator_bytes(&s->software,
                                          channels_of(s->cluster, ht_cluster_node_of(s->cluster, rank, NULL)));
}

/* Takes what the program itself needs off the memory of every GPU. Emulated devices have no such program. */
static enum ht_status take_software_reserve(const struct ht_software *software, struct ht_cluster *cluster,
                                            struct ht_error *err)
{
    char memory[HT_QUANTITY_TEXT], reserve[HT_QUANTITY_TEXT];
    for (int64_t i = 0; i < cluster->n_nodes; i++)
        for (int64_t k = 0; k < cluster->nodes[i].n_groups; k++) {
            struct ht_gpu *gpu = &cluster->nodes[i].groups[k].gpu;
            int64_t bytes = ht_software_reserve_bytes(software, channels_of(cluster, &cluster->nodes[i]));
            if (gpu->cores > 0) continue;
            if (bytes >= gpu->memory_bytes)
                return ht_fail(err, HT_BAD_INPUT,
                               "a device memory of %s leaves no room for tensors: software '%s' takes %s for itself",
                               ht_format_quantity(HT_BYTES, (double)gpu->memory_bytes, memory), software->name,
                               ht_format_quantity(HT_BYTES, (double)bytes, reserve));
            gpu->memory_bytes -= bytes;
        }
    return HT_OK;
}

/* Sets the software and what it holds. A training's kernels are ours. */
static enum ht_status software_of(const struct ht_scenario_request *r, struct ht_error *err, struct ht_scenario *s)
{
    const char *name = r->software ? r->software : "fused";
    enum ht_status status = ht_software_load(name, err, &s->software);
    if (status != HT_OK) return status;
    if (r->training && strcmp(s->software.name, "fused") != 0)
        return ht_fail(err, HT_BAD_INPUT,
                       "software '%s' cannot train: it holds what other programs' kernels do; expected fused",
                       s->software.name);
    ht_software_apply(&s->software, &s->model);
    return take_software_reserve(&s->software, s->cluster, err);
}

enum ht_status ht_scenario_create(const struct ht_scenario_request *request, struct ht_error *err,
                                  struct ht_scenario *out)
{
    struct ht_scenario s = {0};
    enum ht_status status = ht_model_load(request->model, err, &s.model);
    if (status == HT_OK && request->training && s.model.arch == HT_ARCH_DIT)
        status =
            ht_fail(err, HT_INFEASIBLE,
                    "model '%s' cannot be trained: there are no kernels of DiT; expected plan or sim", s.model.name);
    if (status == HT_OK && request->training && s.model.lacks[0])
        status = ht_fail(err, HT_BAD_INPUT, "%s; model '%s' can be planned and simulated, not trained", s.model.lacks,
                         s.model.name);
    if (status == HT_OK && request->blocks) s.model.layers = request->blocks;
    if (status == HT_OK && request->max_seq && request->max_seq != s.model.max_seq && ht_arch_has_patches(s.model.arch))
        status = ht_fail(err, HT_BAD_INPUT, "model '%s' has %lld tokens an image; its sequence is not to choose",
                         s.model.name, (long long)s.model.max_seq);
    if (status == HT_OK && request->max_seq) s.model.max_seq = request->max_seq;
    if (status == HT_OK) status = shape_of(request, err, &s);
    if (status == HT_OK) status = cluster_of(request, err, &s.cluster);
    if (status == HT_OK && request->ssds == HT_NO_SSDS) ht_cluster_drop_ssds(s.cluster);
    if (status == HT_OK && request->ssds > 0) status = ht_cluster_set_ssds(s.cluster, request->ssds, err);
    if (status == HT_OK && s.cluster->n_gpus == 0)
        status = ht_fail(err, HT_BAD_INPUT, "cluster '%s' has no device: expected at least one to train on",
                         s.cluster->name);
    if (status == HT_OK) status = software_of(request, err, &s);
    if (status == HT_OK) status = check_ranks(request, &s, err);
    if (status == HT_OK && !request->micro_batch)
        s.micro_batch = s.batch % ht_scenario_ranks(&s) ? 1 : s.batch / ht_scenario_ranks(&s);
    if (status == HT_OK) status = numerics_of(request, ht_cluster_gpu_of(s.cluster, 0)->cores > 0, err, &s.numerics);
    if (status == HT_OK) status = control_of(request, &s.numerics, err, &s.control);
    if (status != HT_OK) {
        ht_scenario_free(&s);
        return status;
    }
    *out = s;
    return HT_OK;
}

void ht_scenario_free(struct ht_scenario *s)
{
    if (!s) return;
    ht_cluster_destroy(s->cluster);
    s->cluster = NULL;
}

int64_t ht_scenario_ranks(const struct ht_scenario *s)
{
    return s->cluster->n_gpus;
}

int64_t ht_scenario_ranks_per_node(const struct ht_scenario *s)
{
    int64_t most = 0;
    for (int64_t i = 0; i < s->cluster->n_nodes; i++)
        if (s->cluster->nodes[i].n_gpus > most) most = s->cluster->nodes[i].n_gpus;
    return most;
}

int64_t ht_scenario_micro_batches(const struct ht_scenario *s)
{
    return s->batch / s->micro_batch;
}

int64_t ht_scenario_device_bytes(const struct ht_scenario *s)
{
    int64_t least = INT64_MAX;
    for (int64_t rank = 0; rank < ht_scenario_ranks(s); rank++) {
        int64_t bytes = ht_cluster_gpu_of(s->cluster, rank)->memory_bytes;
        if (bytes < least) least = bytes;
    }
    return least;
}

int64_t ht_scenario_host_bytes(const struct ht_scenario *s)
{
    int64_t least = INT64_MAX;
    for (int64_t i = 0; i < s->cluster->n_nodes; i++)
        if (s->cluster->nodes[i].n_gpus > 0 && s->cluster->nodes[i].ram_bytes < least)
            least = s->cluster->nodes[i].ram_bytes;
    return least;
}

int64_t ht_scenario_shared_host_bytes(const struct ht_scenario *s)
{
    int64_t least = INT64_MAX, most_ranks = ht_scenario_ranks_per_node(s);
    for (int64_t i = 0; i < s->cluster->n_nodes; i++) {
        const struct ht_machine *node = &s->cluster->nodes[i];
        if (node->n_gpus == 0) continue;
        __int128 bytes = (__int128)node->ram_bytes * most_ranks / node->n_gpus;
        if (bytes < least) least = (int64_t)bytes;
    }
    return least;
}

double ht_scenario_useful_flops(const struct ht_scenario *s)
{
    double forward = 0;
    for (int64_t u = 0; u < ht_model_units(&s->model); u++) forward += ht_unit_flops(&s->model, u, s->batch, s->seq);
    return 3 * forward;
}
