/* Names of the enums of schedule.h. */
#include "common/schedule/names.h"

#include <string.h>

// clang-format off
const char *const ht_tier_names[HT_N_TIERS] = {
    [HT_DEVICE] = "device", [HT_HOST] = "host", [HT_DISK] = "disk", [HT_REMOTE] = "remote",
};

const char *const ht_tensor_class_names[HT_N_TENSOR_CLASSES] = {
    [HT_PARAM] = "param",           [HT_MASTER] = "master",         [HT_MOMENTUM] = "momentum",
    [HT_VARIANCE] = "variance",     [HT_GRAD] = "grad",             [HT_ACTIVATION] = "activation",
    [HT_CHECKPOINT] = "checkpoint", [HT_ACT_GRAD] = "act_grad",     [HT_LOGITS] = "logits",
    [HT_WORKSPACE] = "workspace",   [HT_STAGING] = "staging",       [HT_COMM] = "comm",
};

const char *const ht_tensor_class_descriptions[HT_N_TENSOR_CLASSES] = {
    [HT_PARAM] = "parameters",       [HT_MASTER] = "master parameters",       [HT_MOMENTUM] = "momentum",
    [HT_VARIANCE] = "variance",      [HT_GRAD] = "gradients",                 [HT_ACTIVATION] = "activations",
    [HT_CHECKPOINT] = "checkpoints", [HT_ACT_GRAD] = "activation gradients",  [HT_LOGITS] = "logits",
    [HT_WORKSPACE] = "workspace",    [HT_STAGING] = "staging",                [HT_COMM] = "communication",
};

const char *const ht_op_kind_names[HT_N_OP_KINDS] = {
    [HT_OP_FORWARD] = "forward",       [HT_OP_RECOMPUTE] = "recompute",
    [HT_OP_BACKWARD] = "backward",     [HT_OP_COPY] = "copy",
    [HT_OP_ACCUMULATE] = "accumulate", [HT_OP_OPTIMIZER_STEP] = "optimizer_step",
    [HT_OP_UNDO] = "undo",             [HT_OP_ALL_GATHER] = "all_gather",
    [HT_OP_REDUCE_SCATTER] = "reduce_scatter", [HT_OP_ALL_REDUCE] = "all_reduce",
    [HT_OP_SEND] = "send",             [HT_OP_RECEIVE] = "receive",
    [HT_OP_VALIDATE] = "validate",     [HT_OP_RESTORE] = "restore",
    [HT_OP_TRANSPOSE] = "transpose",
};

const char *const ht_lane_kind_names[HT_N_LANE_KINDS] = {
    [HT_LANE_COMPUTE] = "compute", [HT_LANE_H2D] = "h2d",   [HT_LANE_D2H] = "d2h",
    [HT_LANE_HOST] = "host",       [HT_LANE_DISK] = "disk", [HT_LANE_COLLECTIVE] = "collective",
    [HT_LANE_P2P] = "p2p",
};

const char *const ht_lane_order_names[HT_N_LANE_ORDERS] = {[HT_FIFO] = "fifo", [HT_PRIORITY] = "priority"};

const char *const ht_resource_kind_names[HT_N_RESOURCE_KINDS] = {
    [HT_RES_PCIE_H2D] = "pcie_h2d", [HT_RES_PCIE_D2H] = "pcie_d2h", [HT_RES_PCIE_SWITCH] = "pcie_switch",
    [HT_RES_DRAM] = "dram",         [HT_RES_CORES] = "cores",       [HT_RES_NVLINK] = "nvlink",
    [HT_RES_NIC] = "nic",           [HT_RES_SSD] = "ssd",           [HT_RES_STAGED] = "staged",
};

const char *const ht_when_names[HT_N_WHENS] = {[HT_ALWAYS] = "always", [HT_WHEN_OK] = "ok", [HT_WHEN_BAD] = "bad"};
const char *const ht_effect_names[HT_N_EFFECT_FLAGS] = {"need", "produce", "update", "release"};

const char *const ht_sub_op_names[HT_N_SUB_OPS] = {
    [HT_SUB_NORM1] = "norm1", [HT_SUB_QKV] = "qkv", [HT_SUB_ATTENTION] = "attention", [HT_SUB_PROJ] = "proj",
    [HT_SUB_NORM2] = "norm2", [HT_SUB_FC1] = "fc1", [HT_SUB_GELU] = "gelu",           [HT_SUB_FC2] = "fc2",
};

const char *const ht_unit_kind_names[HT_N_UNIT_KINDS] = {
    [HT_UNIT_EMBEDDING] = "embedding", [HT_UNIT_BLOCK] = "block", [HT_UNIT_HEAD] = "head",
};

const char *const ht_work_arch_names[HT_N_ARCHS] = {
    [HT_ARCH_GPT] = "gpt", [HT_ARCH_LLAMA] = "llama", [HT_ARCH_BERT] = "bert", [HT_ARCH_VIT] = "vit",
    [HT_ARCH_DIT] = "dit",
};

const char *const ht_work_dtype_names[HT_N_DTYPES] = {[HT_F32] = "f32", [HT_F16] = "f16", [HT_BF16] = "bf16"};
// clang-format on

/* Returns a name. An index may be out of range: a broken schedule is being reported. */
static const char *pick(const char *const names[], int n, int i)
{
    return i >= 0 && i < n ? names[i] : "?";
}

const char *ht_tier_name(enum ht_tier t)
{
    return pick(ht_tier_names, HT_N_TIERS, (int)t);
}

const char *ht_tensor_class_plural(enum ht_tensor_class c)
{
    return ht_tensor_class_descriptions[c];
}

const char *ht_tensor_class_name(enum ht_tensor_class c)
{
    return pick(ht_tensor_class_names, HT_N_TENSOR_CLASSES, (int)c);
}

const char *ht_op_kind_name(enum ht_op_kind k)
{
    return pick(ht_op_kind_names, HT_N_OP_KINDS, (int)k);
}

const char *ht_lane_kind_name(enum ht_lane_kind k)
{
    return pick(ht_lane_kind_names, HT_N_LANE_KINDS, (int)k);
}

const char *ht_resource_kind_name(enum ht_resource_kind k)
{
    return pick(ht_resource_kind_names, HT_N_RESOURCE_KINDS, (int)k);
}

void ht_copy_name(char *dst, size_t n, const char *src)
{
    memset(dst, 0, n);
    if (src) memcpy(dst, src, strnlen(src, n - 1));
}
