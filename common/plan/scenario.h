/*
 * A scenario: what is trained, on what, how much at a time, and with which rounding. The first arrow of the design: from
 * a scenario and a profile a planner makes a plan, and a builder makes the plan a schedule.
 */
#ifndef HT_PLAN_SCENARIO_H
#define HT_PLAN_SCENARIO_H

#include "common/hw/hw.h"
#include "common/model/model.h"
#include "common/kernels/scaler.h"

/* What happens to gradients that overflow or are too large (common/build/control.h). */
enum ht_control_mode { HT_CONTROL_NONE, HT_CONTROL_GATE, HT_CONTROL_ROLLBACK, HT_N_CONTROL_MODES };
extern const char *const ht_control_mode_names[HT_N_CONTROL_MODES]; /* "none", "gate", "rollback" */

struct ht_control {
    enum ht_control_mode mode;
    struct ht_control_options options; /* filled (ht_control_filled); clip 0: no clipping */
};

struct ht_scenario {
    struct ht_model model;
    struct ht_cluster *cluster; /* owned */
    int64_t batch;              /* sequences per iteration, over all ranks */
    int64_t micro_batch;        /* sequences per forward pass, unless the plan says otherwise; divides batch */
    int64_t seq;                /* tokens per sequence */
    struct ht_numerics numerics;
    struct ht_control control;
};

/* What a command line or an experiment file names; zero or NULL means the default. */
struct ht_scenario_request {
    const char *model, *cluster;    /* built-in name or file; both required. A model may be a
                                    config.json of transformers (common/model/hf_config.h) */
    int64_t blocks;                 /* default the model's own; else it has so many */
    int64_t batch;                  /* default 8 */
    int64_t micro_batch;            /* default batch over the cluster's devices, or 1 if that is no whole number */
    int64_t seq;                    /* default the model's max_seq */
    int64_t device_memory_bytes;    /* default the device's own */
    int64_t ranks;                  /* one a device, of which `local` then has so many; default the cluster's devices */
    int64_t device_cores;           /* cluster `local` only: cores of the emulated device; default all but one */
    const struct ht_gpu *local_gpu; /* cluster `local` only: the machine's own GPU instead of an emulated device; its
                                       memory is what device_memory_bytes may not exceed. Borrowed */
    const char *numerics;           /* "fp32", "fp16", "bf16"; default fp16 on GPUs, fp32 on emulated devices */
    const char *accumulate; /* sums over micro-batches: "fp32" (default), or "16": the type of 16-bit gradients */
    const char *control;    /* "none", "gate", "rollback"; default none, and see `training` */
    double clip;            /* largest norm of the gradients; 0: no clipping. Needs gate or rollback */
    const char *loss_scale; /* "dynamic", which needs gate or rollback, or a number; default dynamic in FP16 where
                                    there is control, else 1 */
    bool training;          /* real numbers: then the default control is gate in FP16 and for a clip, else none */
};

/* HT_BAD_INPUT with one line when a name is unknown, a number is out of range, the batch does not divide into
   micro-batches and ranks, or clipping or a dynamic scale has no control to go by. */
enum ht_status ht_scenario_create(const struct ht_scenario_request *request, struct ht_error *err,
                                  struct ht_scenario *out);
void ht_scenario_free(struct ht_scenario *s);

/* One a device of the cluster. */
int64_t ht_scenario_ranks(const struct ht_scenario *s);
int64_t ht_scenario_ranks_per_node(const struct ht_scenario *s); /* of the fullest node */
/* Micro-batches of the iteration, of the scenario's size. */
int64_t ht_scenario_micro_batches(const struct ht_scenario *s);
/* What the smallest device, and the smallest node's memory, can hold. */
int64_t ht_scenario_device_bytes(const struct ht_scenario *s);
int64_t ht_scenario_host_bytes(const struct ht_scenario *s);
/* Useful floating-point operations of one iteration: forward + backward = 3 x forward, recomputation not counted. */
double ht_scenario_useful_flops(const struct ht_scenario *s);

#endif
