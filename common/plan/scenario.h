/*
 * A scenario: the model that is trained, the cluster, the batch, and the numerics. A planner turns a scenario and a
 * profile into a plan; a builder turns the plan into a schedule.
 */
#ifndef HT_PLAN_SCENARIO_H
#define HT_PLAN_SCENARIO_H

#include "common/hw/hw.h"
#include "common/kernels/scaler.h"
#include "common/model/model.h"
#include "common/model/software.h"

/* Treatment of gradients that overflow or whose norm is too large (common/draft/control.h). */
enum ht_control_mode { HT_CONTROL_NONE, HT_CONTROL_GATE, HT_CONTROL_ROLLBACK, HT_N_CONTROL_MODES };
extern const char *const ht_control_mode_names[HT_N_CONTROL_MODES]; /* "none", "gate", "rollback" */

struct ht_control {
    enum ht_control_mode mode;
    struct ht_control_options options; /* filled (ht_control_filled); clip 0: no clipping */
};

struct ht_scenario {
    struct ht_model model; /* with what the software holds */
    struct ht_software software;
    struct ht_cluster *cluster; /* owned */
    int64_t batch;              /* sequences per iteration, over all ranks */
    int64_t micro_batch;        /* sequences per forward pass, unless the plan says otherwise; divides batch */
    int64_t seq;                /* tokens per sequence */
    struct ht_numerics numerics;
    struct ht_control control;
    bool folds; /* graphs are for times and memory alone, and may leave out copies (common/schedule/fold.h) */
};

enum { HT_NO_SSDS = -1 };

/* Choices of a command line or an experiment file; zero or NULL means the default. */
struct ht_scenario_request {
    const char *model;             /* built-in name, model file, or config.json of transformers
                                       (common/model/hf_config.h); required */
    const char *cluster;           /* built-in name or file; required */
    const char *only;              /* devices of the cluster that are used (ht_cluster_keep); default all */
    const char *only_nodes;        /* "0,2": nodes of the cluster that are used (ht_cluster_keep_nodes); default all */
    int64_t nodes;                 /* cluster `local` only: nodes among which its devices are divided; default 1 */
    const struct ht_cluster *made; /* in place of the cluster that `cluster` names, before `only`; borrowed, or NULL */
    int64_t blocks;                /* number of blocks; default the model's own */
    int64_t max_seq;               /* longest sequence, and so the table of positions; default the model's own */
    int64_t batch;                 /* default 8 */
    int64_t micro_batch;           /* default batch / number of devices, or 1 if that is not a whole number */
    int64_t seq;                   /* default the model's max_seq, at most 4096 */
    int64_t device_memory_bytes;   /* default the device's own */
    int64_t host_memory_bytes;     /* of every node; default the node's own */
    int64_t ssds;                  /* of every node that has some, or HT_NO_SSDS; default the node's own */
    double through_host_bytes_per_s; /* see ht_cluster_set_through_host; default what the cluster says */
    double through_host_scale;       /* see ht_cluster_scale_through_host; default 1 */
    int64_t local_disks;             /* cluster `local` only: disks of the machine, `local-disk` of ssds.yaml each */
    int64_t ranks;                   /* one per device: the first ones; `local` gets so many devices; default all */
    int64_t device_cores;            /* cluster `local` only: cores of the emulated device; default all but one */
    const struct ht_gpu *local_gpus; /* [n_local_gpus], cluster `local` only: the machine's own GPUs instead of emulated
                                       devices. device_memory_bytes may not exceed their memory. Borrowed */
    int64_t n_local_gpus;
    const char *numerics;    /* "fp32", "fp16", "bf16"; default fp16 on GPUs, fp32 on emulated devices */
    const char *accumulate;  /* type of sums over micro-batches: "fp32" (default), or "16": the gradients' */
    const char *control;     /* "none", "gate", "rollback"; default none, but see `training` */
    double clip;             /* largest norm of the gradients; 0: no clipping. Needs gate or rollback */
    const char *loss_scale;  /* a number, or "dynamic", which needs gate or rollback; default dynamic in FP16
                                       with control, else 1 */
    double initial_scale;    /* of a dynamic loss scale; 0: 65536 */
    int64_t growth_interval; /* iterations in a row without overflow after which it grows; 0: 2000 */
    const char *software;    /* software profile, by name or file (common/model/software.h); default fused */
    bool training;           /* trains for real: the default control is then gate in FP16 or with a clip */
};

/* Creates a scenario. What the software takes of a GPU comes off its memory. Returns HT_BAD_INPUT, with one line, if a
   name is unknown, a number is out of range, the batch does not divide into micro-batches and ranks, clipping or a
   dynamic scale is asked for without control, an initial scale or growth interval without a dynamic scale, or a
   training with software other than ours. */
enum ht_status ht_scenario_create(const struct ht_scenario_request *request, struct ht_error *err,
                                  struct ht_scenario *out);
void ht_scenario_free(struct ht_scenario *s);

/* Returns the number of ranks: one per device of the cluster. */
int64_t ht_scenario_ranks(const struct ht_scenario *s);
int64_t ht_scenario_ranks_per_node(const struct ht_scenario *s); /* of the fullest node */
/* Returns the micro-batches of the iteration, of the scenario's size. */
int64_t ht_scenario_micro_batches(const struct ht_scenario *s);
/* Returns the bytes of the smallest device; returns the bytes of the smallest node's memory. */
int64_t ht_scenario_device_bytes(const struct ht_scenario *s);
int64_t ht_scenario_host_bytes(const struct ht_scenario *s);
/* Returns the host memory for what grows with a node's ranks: that of the node with the least for each rank, times
   ht_scenario_ranks_per_node. */
int64_t ht_scenario_shared_host_bytes(const struct ht_scenario *s);
/* Returns the useful floating-point operations of one iteration: forward + backward = 3 x forward. Recomputation is not
   counted. */
double ht_scenario_useful_flops(const struct ht_scenario *s);

/* Returns the buffers that the software takes of a rank's device for each communicator. */
int64_t ht_scenario_communicator_bytes(const struct ht_scenario *s, int64_t rank);

#endif
