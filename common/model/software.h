/*
 * Software profiles: what the programs of a paper's experiments launch and hold, where that is more than fused kernels
 * do (software.yaml). A profile is a property of programs, the same for every system that is simulated under it.
 */
#ifndef HT_MODEL_SOFTWARE_H
#define HT_MODEL_SOFTWARE_H

#include "common/base/config.h"
#include "common/model/model.h"

enum { HT_SOFTWARE_SOURCE = 768 };

/* Reads and writes of an element. */
struct ht_passes {
    double passes; /* in the compute type */
    double casts;  /* copies from that to FP32, or back; none in FP32 numerics */
    double fp32;
};

/* Kernels between the products, of one kind. Copies of an element are of the compute type, those of logits FP32; casts
   are in the other of the two types, and there are none in FP32 numerics. */
struct ht_pointwise {
    struct ht_passes forward, backward;
    int64_t kept, kept_casts;                  /* copies until the backward pass */
    int64_t scratch_forward, scratch_backward; /* copies during a pass */
    int64_t scratch_casts_forward, scratch_casts_backward;
    char source[HT_SOFTWARE_SOURCE];
};

/* Passes that a program's step on 16-bit parameters makes beside Adam's one pass over states and gradient. */
struct ht_step_passes {
    double gradient_casts;   /* copies of a 16-bit gradient to FP32 */
    double unscale;          /* passes over the FP32 gradient */
    double parameter_casts;  /* copies of the FP32 parameters to 16 bits, which Adam's pass then does not write */
    double parameter_passes; /* passes over 16-bit parameters */
    char source[HT_SOFTWARE_SOURCE];
};

/* A program's CPU Adam. */
struct ht_software_adam {
    double share;    /* of what STREAM reaches with the process's cores */
    int64_t threads; /* of an optimizer step; 0: all of the process's cores */
    char source[HT_SOFTWARE_SOURCE];
};

/* Memory that a program takes of a GPU before it has a tensor, in bytes. */
struct ht_software_memory {
    int64_t context, workspace;       /* CUDA's own, cuBLAS' */
    int64_t nccl_buffers, nccl_peers; /* of one connection; connections of a channel */
    char source[HT_SOFTWARE_SOURCE];
};

/* How a program's allocator takes device memory (struct ht_allocator in common/schedule/schedule.h). own 0: it has none
   of its own. */
struct ht_software_allocator {
    int64_t own, round, shared; /* bytes */
    bool leaving;
    char source[HT_SOFTWARE_SOURCE];
};

/* Collectives as a program calls them. */
struct ht_software_collectives {
    double uneven; /* time of one of uneven shards, over that of an even one of the same size; at least 1 */
    char source[HT_SOFTWARE_SOURCE];
};

struct ht_software {
    char name[64];
    struct ht_pointwise layer_norm, rms_norm, modulate, residual, gate, rotary, scores, encoder_scores, unfused_scores,
        gelu, encoder_gelu, swiglu, loss;
    int64_t fused_heads; /* scores are fused if they are of 16 bits, and of a multiple of so many heads; 0: always */
    struct ht_step_passes step;
    struct ht_software_adam adam;
    bool dropout;     /* GPT and BERT drop out */
    bool half_logits; /* the head's product writes logits in the compute type */
    bool frees;       /* a block's backward pass frees what its MLP has kept before it comes to attention */
    bool by_matrix; /* a micro-batch's gradient is added to the sum matrix by matrix, as the backward pass makes them */
    bool outputs;   /* what a stage sends stays until its backward pass of the micro-batch */
    struct ht_software_memory memory;
    struct ht_software_allocator allocator;
    struct ht_software_collectives collectives;
    char source[HT_SOFTWARE_SOURCE];
};

/* Loads a profile by built-in name, or by path (with a '/' or ending in .yaml, .yml or .json). HT_BAD_INPUT with file,
   line, column and key; the error for an unknown name suggests the nearest. */
enum ht_status ht_software_load(const char *name_or_path, struct ht_error *err, struct ht_software *out);
/* Reads a file's map with its `name`. */
enum ht_status ht_software_parse(const struct ht_doc *doc, struct ht_error *err, struct ht_software *out);
/* Writes the index-th name to buf. Returns false past the end. */
bool ht_software_name(int64_t index, char buf[64]);

/* Makes a model hold what its kernels hold under the profile. */
void ht_software_apply(const struct ht_software *software, struct ht_model *model);

/* Returns bytes an element: passes e + 4 fp32, and in 16 bits casts (e + 4). */
double ht_passes_bytes(const struct ht_passes *p, enum ht_dtype dtype);
/* Returns bytes a parameter that a step moves beside Adam's one pass over 16-bit gradients, states and parameters:
   8 a cast of the gradient, 4 a pass over it and a cast of the parameters, e a pass over these. 0 in FP32 numerics. */
double ht_step_beside_bytes(const struct ht_step_passes *step, enum ht_dtype param, enum ht_dtype grad);
/* Returns the buffers of a communicator of so many channels on a GPU. */
int64_t ht_software_communicator_bytes(const struct ht_software *software, int64_t channels);
/* Returns what a program takes of a GPU whose first communicator has so many channels; 0: it has none. */
int64_t ht_software_reserve_bytes(const struct ht_software *software, int64_t channels);

#endif
