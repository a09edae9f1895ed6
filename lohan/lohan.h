/*
 * LoHan: Liao et al., "LoHan: Low-Cost High-Performance Framework to Fine-Tune 100B Model on a Consumer GPU". A GPU, or
 * several of one node, model states on SSDs, an optimizer on the CPU that runs while the GPU is in its backward pass, and
 * activations that are swapped out as far as that shortens the iteration. equations.c and algorithm1.c compute,
 * measure.c finds out what they compute with, fates.c and plan.c decide, schedule.c and update.c build; see README.md.
 */
#ifndef LOHAN_LOHAN_H
#define LOHAN_LOHAN_H

#include "common/draft/cost_query.h"
#include "common/draft/draft_extra.h"
#include "common/plan/system.h"
#include "policies/fates.h"

enum lohan_variant {
    LOHAN,          /* the whole method */
    LOHAN_HALVES,   /* [ours] blocks in halves, with two checkpoints each, where the GPU is too small for whole ones */
    LOHAN_NAIVE,    /* each gradient's R, C and W in sequence (Sec. IV-C, Fig. 3a) */
    LOHAN_ZERO,     /* no R, C or W before the end of the backward pass (Sec. V-D, LoHan+ZeRO) */
    LOHAN_CPUACT,   /* no activations on SSDs (Sec. V-E, LoHan+CpuAct) */
    LOHAN_DS,       /* the blocks' inputs in main memory, everything else recomputed (Sec. V-E, Table V: LoHan+DS) */
    LOHAN_ARTIFACT, /* what the authors' program does otherwise; see README.md */
};

extern const struct ht_system lohan, lohan_halves, lohan_naive, lohan_zero, lohan_cpuact, lohan_ds, lohan_artifact;
/* LoHan's states and update with other policies for activations: policies.c (Sec. V-E). */
extern const struct ht_system lohan_cap, lohan_g10, lohan_cm;

/* ---- equations.c: eqs. 1 to 8 ---------------------------------------------------------------------------------- */

/* A layer of Sec. IV-D: an activation, and the operations that make it again. */
struct lohan_layer {
    double bytes; /* A_layer */
    double flops; /* FLOP_layer */
    int32_t unit; /* block, from 1 */
    int32_t part; /* of the block: HT_PART_INPUT, or the sub-op that keeps it */
};

/* What eqs. 1 to 5 are about. The paper writes P with 2, 12 and 14 bytes; here these are sums of bytes, so that other
   numerics need no other equations. With several GPUs, FLOPs, activations and BW_G are those of each; main memory, the
   SSDs and the CPU are shared. */
struct lohan_profile {
    double gpus;                  /* 0 or 1: one, as in the paper */
    double forward_flops;         /* FLOP_f */
    double layer_flops;           /* sum of FLOP_layer: FLOP_r if nothing is swapped */
    double inter_bytes;           /* A_interBlock */
    double param_bytes;           /* 2P: P16 */
    double grad_bytes;            /* 2P: G16 */
    double read_bytes;            /* 12P: P32 and OS32, read by R */
    double write_bytes;           /* 14P: P32, OS32 and P16, written by W */
    double flops_per_s;           /* THP_G */
    double link_bytes_per_s;      /* BW_G, per direction */
    double ssd_read_bytes_per_s;  /* BW_S2M */
    double ssd_write_bytes_per_s; /* BW_M2S */
    double mem_bytes;             /* MEM_avail */
    double adam_s;                /* of C over all parameters, sums of gradients included; 0 as printed */
};

/* Arguments of the equations: swapped_bytes is A_G2M, bytes; recomputed_flops is FLOP_r, FLOP; layers are sorted by
   falling OB. */

/* Returns A_ssd = alpha A_G2M = max(0, A_G2M - MEM_avail), bytes, over all GPUs, of A_G2M of each: eq. 3
   [mended]. */
double lohan_ssd_bytes(const struct lohan_profile *p, double swapped_bytes);
/* Returns T_f, the time of the forward pass, s: eqs. 2 and 4. */
double lohan_forward_s(const struct lohan_profile *p, double swapped_bytes);
/* Returns T_b, the time of the backward pass, s: eq. 5. */
double lohan_backward_s(const struct lohan_profile *p, double swapped_bytes, double recomputed_flops);
/* Returns T_iter = T_f + T_b, s: eq. 1. */
double lohan_iteration_s(const struct lohan_profile *p, double swapped_bytes, double recomputed_flops);
/* Returns a layer's offloading benefit OB = FLOP_layer / A_layer, FLOP per byte: eq. 6. */
double lohan_benefit(const struct lohan_layer *layer);
/* Returns FLOP_r, the FLOP that are recomputed; the last layer may be swapped in part: eq. 7. */
double lohan_recomputed_flops(const struct lohan_profile *p, const struct lohan_layer *layers, int32_t n,
                              double swapped_bytes);
/* Returns dFLOP_r / dA_G2M from the right, FLOP per byte; 0 at A_all: eq. 8. */
double lohan_recomputed_slope(const struct lohan_layer *layers, int32_t n, double swapped_bytes);

/* ---- algorithm1.c ---------------------------------------------------------------------------------------------- */

enum lohan_form {
    LOHAN_MENDED,
    LOHAN_SHORTEST, /* mended; of equals always the shortest, in case 2, too */
    LOHAN_LITERAL,
};

/* Result of Algorithm 1. */
struct lohan_amount {
    int32_t n;                              /* layers swapped: the first n */
    double swapped_bytes, recomputed_flops; /* A_G2M, FLOP_r */
    double iteration_s;                     /* T_iter */
    int32_t which;                          /* case 1, 2 or 3 of Sec. IV-D; 0: most_bytes ended it */
};

/* Sorts layers by falling OB. Layers of equal OB keep their order. */
void lohan_sort(struct lohan_layer *layers, int32_t n);
/* Runs Algorithm 1 over sorted layers. most_bytes: A_G2M may not exceed it, once the blocks' inputs are swapped. */
struct lohan_amount lohan_algorithm1(const struct lohan_profile *p, const struct lohan_layer *layers, int32_t n,
                                     enum lohan_form form, double most_bytes);

/* ---- measure.c: what the planner knows of the model and the machine ---------------------------------------------- */

/* Lists the layers of all blocks that have bytes, sorted. layers: [L * HT_N_PARTS]. Returns their number. */
int32_t lohan_layers(const struct ht_scenario *scenario, struct lohan_layer *layers);
/* Computes P, A_interBlock and the FLOPs, and asks the profile for THP_G, BW_G, BW_S2M, BW_M2S and Adam's time. All
   rates are 0 without a profile. mem_bytes and gpus are not set. */
enum ht_status lohan_measure(const struct ht_scenario *scenario, const struct ht_profile *costs, struct ht_error *err,
                             struct lohan_profile *out);

/* ---- schedule.c, activations.c, update.c ------------------------------------------------------------------------- */

/* Treatment, by a recomputation, of a sub-op whose result it does not need: fc2 and proj, whose outputs, with the
   residual added, are saved as the next block's input and as what proj keeps. Checkpointing repeats whole regions. */
enum lohan_again {
    LOHAN_NOT_AGAIN,
    LOHAN_AGAIN,    /* repeats it: its time is that of the recomputation, in simulation; a real run leaves it out */
    LOHAN_OWN_COPY, /* does not: its output without the residual is swapped, too */
    LOHAN_N_AGAINS
};
enum { LOHAN_N_REPEATED = 2 };
extern const char *const lohan_repeated_names[LOHAN_N_REPEATED]; /* "again_fc2", "again_proj": vectors by block */
extern const enum ht_sub_op lohan_repeated[LOHAN_N_REPEATED];

/* When gradients are consumed (Sec. IV-C). */
enum lohan_update {
    LOHAN_OPTIMIZED, /* R_n, R_{n-1}, W_n, R_{n-2}, .. : Fig. 3b */
    LOHAN_SERIAL,    /* R_n, C_n, W_n, R_{n-1}, .. : Fig. 3a */
};

/* Priorities on the disk lane. */
enum { LOHAN_FOR_GPU, LOHAN_ACTIVATIONS_OUT, LOHAN_UPDATES };

/* A draft's activations: fates, and copies of outputs without the residual. */
struct lohan_activations {
    struct ht_draft *g;
    struct ht_fates fates;                             /* without `ahead`: as prefetch_b */
    const struct ht_variable *again[LOHAN_N_REPEATED]; /* NULL: nothing is */
    int32_t *own; /* [L * n_mb * LOHAN_N_REPEATED] row of a swapped output without the residual, or -1 */
};

/* Cuts the activations of all blocks by a plan and adds the rows of own copies. The caller frees `own`. */
void lohan_activations_init(struct lohan_activations *a, struct ht_draft *g, const struct ht_plan *plan);
/* Adds to the last op an effect on each of a block's own copies of these sub-ops. */
void lohan_on_own_copies(struct lohan_activations *a, int32_t unit, int32_t mb, unsigned sub_ops, unsigned flags);
/* Returns the sub-ops of a unit that its plan recomputes; 0 if it is no block. */
unsigned lohan_recomputed(const struct lohan_activations *a, int32_t unit);
/* Lists what a block swaps, own copies included: the rows that come back `later`, between the halves of a backward
   pass, or the others. Returns their number. */
enum { LOHAN_MAX_SWAPPED = 2 * HT_MAX_FATE_ROWS + LOHAN_N_REPEATED };
int32_t lohan_swapped_rows(const struct lohan_activations *a, int32_t unit, int32_t mb, bool later,
                           int32_t rows[LOHAN_MAX_SWAPPED]);
/* Appends AO and AW: a block's swapped activations leave the GPU. */
void lohan_swap_out(struct lohan_activations *a, int32_t unit, int32_t mb);

extern const struct ht_program lohan_program;

/* Units that are updated together: `low` and those above it. */
struct lohan_group {
    int32_t low, n; /* n 0: there is none */
};

/* The optimizer's side of a draft: gradients that have arrived, grouped, and what waits to be written. */
struct lohan_optimizer {
    struct ht_draft *g;
    enum lohan_update order;
    bool after_backward;     /* no R before the last gradient is in main memory */
    bool grads_on_ssd;       /* gradients wait there, not in main memory; only with after_backward */
    int64_t group;           /* parameters that a group of units has at least */
    struct lohan_group open; /* units that have arrived and are in no group yet */
    int64_t waiting;         /* parameters of these */
    const int32_t *arrived;  /* [n_arrived] ops that brought the last of these to main memory */
    int32_t n_arrived;
    struct lohan_group unwritten; /* has been stepped and is not written yet */
    int32_t written;              /* last W, or -1 */
    struct lohan_group *closed;   /* [n_closed] with after_backward: those that wait for its end */
    int32_t n_closed;
};

/* Begins an optimizer over units that arrive in falling order. */
void lohan_optimizer_init(struct lohan_optimizer *o, struct ht_draft *g, const struct ht_plan *plan);
/* Takes the gradient of a unit, which the ops arrived[0 .. n) have brought to main memory, one a GPU; the array is
   kept until the next call. Appends R, C and W as far as they are due. Returns the last W of a group that the call has
   finished, or -1. */
int32_t lohan_optimizer_take(struct lohan_optimizer *o, int32_t unit, const int32_t *arrived, int32_t n);
/* Closes the group of the units that have arrived, if there are any, since the next unit is none of the optimizer's.
   Returns as lohan_optimizer_take. */
int32_t lohan_optimizer_cut(struct lohan_optimizer *o);
/* Appends what is left. */
void lohan_optimizer_end(struct lohan_optimizer *o);

#endif
