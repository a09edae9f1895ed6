/*
 * AutoHete (Zeng et al., "AutoHete: An Automatic and Efficient Heterogeneous Training System for LLMs"). An integer
 * program decides activation checkpointing, parameter offloading and optimizer offloading together. Copies of gradients
 * and CPU steps are ordered by priority, so that the next iteration can begin early.
 *
 * Symbols. L transformer blocks, i = 1..L in forward order (unit i of the model). c of them are checkpointed, p have
 * their parameters offloaded, and o have their optimizer offloaded:
 *
 *     C = {1..c}      O = {L-o+1 .. L}      P = {L-o+1 .. L-o+p},  p <= o
 *
 *     block      1    2    3    4    5        L = 5, c = 3, p = 1, o = 4
 *     C          x    x    x
 *     O               x    x    x    x        states on the host, stepped there
 *     P               x                       compute copy dropped between F_i and B_i
 *
 * Files: measure.c (the profiler), cost.c (eqs. 1 to 5, one function each), solve.c (eq. 6), plan.c (the decision),
 * schedule.c (the graph). period.c is ours: another integer program and another planner over the same variables.
 */
#ifndef AUTOHETE_AUTOHETE_H
#define AUTOHETE_AUTOHETE_H

#include "common/plan/system.h"

extern const struct ht_system ht_autohete;        /* the paper's method: eqs. 1 to 6, priority-based scheduling */
extern const struct ht_system ht_autohete_nops;   /* the same plan, gradients and steps in backward order ("w/o PS") */
extern const struct ht_system ht_autohete_period; /* ours: plans for iterations that overlap (period.c) */

enum { AUTOHETE_PS, AUTOHETE_NOPS, AUTOHETE_PERIOD }; /* ht_system.variant */

/* The profiler's output (Sec. 3.1) per transformer block, in bytes and ns. The paper's FP16 figures in brackets. */
struct autohete_profile {
    int64_t layers;        /* L */
    int64_t micro_batches; /* m; the paper has 1 */
    bool apart;            /* an iteration begins when the one before has ended: control waits for all gradients */
    /* memory */
    int64_t input_bytes;      /* M'_a: a block's input [2 M'_a] */
    int64_t activation_bytes; /* M_a: all that a block keeps, including its input [2 M_a] */
    int64_t copy_bytes;       /* compute copy of the parameters [2 M_p] */
    int64_t state_bytes;      /* optimizer states with the master parameters [12 M_p] */
    int64_t shared_bytes; /* part of state_bytes that copy_bytes counts too: FP32 parameters are their own master [0] */
    int64_t sum_bytes;    /* gradient sums over micro-batches on the device [0 for m = 1] */
    int64_t host_bytes;   /* of an offloaded block on the host [14 M_p] */
    int64_t device_const_bytes, host_const_bytes;       /* M_gc, M_cc */
    int64_t device_capacity_bytes, host_capacity_bytes; /* M_gpu, M_cpu */
    /* times */
    int64_t fp_ns, bp_ns;           /* t_fp, t_bp */
    int64_t h2d_ns, d2h_ns;         /* t_h2d, t_d2h */
    int64_t cpu_ns, gpu_ns;         /* t_optim^cpu, t_optim^gpu */
    int64_t cpu_sum_ns, gpu_sum_ns; /* adding one more micro-batch's gradient; unused for m = 1 */
    int64_t const_ns;     /* embedding, head and loss, over all micro-batches; eqs. 3 to 5 leave this constant out */
    int64_t head_ns;      /* forward and backward of the head: from F_L to B_L */
    int64_t turn_ns;      /* from B_1 to the next F_1 when block 1 is stepped on the device: what the embedding does */
    int64_t ends_host_ns; /* embedding and head on the host's lane: sums and steps; 0 if these are on the device */
};

struct autohete_choice {
    int64_t c, p, o;
};

/* Profiles a scenario. on_host: the optimizer of embedding and head runs on the host. */
enum ht_status autohete_measure(const struct ht_scenario *scenario, const struct ht_profile *costs, bool on_host,
                                struct ht_error *err, struct autohete_profile *out);

/* ---- cost.c: the paper's equations ----------------------------------------------------------------------------- */

int64_t autohete_device_bytes(const struct autohete_profile *f, struct autohete_choice s);           /* 1 */
int64_t autohete_host_bytes(const struct autohete_profile *f, struct autohete_choice s);             /* 2 */
int64_t autohete_forward_ns(const struct autohete_profile *f, struct autohete_choice s);             /* 3 */
int64_t autohete_overlapped(const struct autohete_profile *f, struct autohete_choice s);             /* v */
int64_t autohete_sync_ns(const struct autohete_profile *f, struct autohete_choice s, int64_t v);     /* 4 */
int64_t autohete_backward_ns(const struct autohete_profile *f, struct autohete_choice s, int64_t v); /* 5 */
/* Returns T_fwd + T_bwd, plus a term for further micro-batches and embedding and head. */
int64_t autohete_iteration_ns(const struct autohete_profile *f, struct autohete_choice s, int64_t v);

/* ---- solve.c: eq. 6 -------------------------------------------------------------------------------------------- */

struct autohete_program; /* internal to the programs: program.h */

/* An integer program over c, p, o: what it minimises, and how it counts the device's memory. */
struct autohete_model {
    const char *name; /* of eq. 1's form, for messages */
    int64_t (*device_bytes)(const struct autohete_profile *f, struct autohete_choice s);
    int64_t (*overlapped)(const struct autohete_profile *f, struct autohete_choice s); /* v */
    int64_t (*objective_ns)(const struct autohete_profile *f, struct autohete_choice s);
    /* Adds the rows of v, of the objective, and of memory beyond the one that is linear in c, p, o. */
    void (*add_rows)(struct autohete_program *q, const struct autohete_profile *f, int objective);
    bool least_c_first; /* a tie goes to the least c, then p, then o; else to the least p, then c, then o */
};

extern const struct autohete_model autohete_printed; /* eqs. 1 to 6 as printed */

/* Bounds of c, p, o. Those of a forced variable are equal. */
struct autohete_box {
    struct autohete_choice lower, upper;
};

enum { AUTOHETE_TIE = 1000000 }; /* objectives that differ by at most one part in so many tie */

/* Solves an integer program with GLPK. HT_INFEASIBLE if no point of the box satisfies eqs. 1, 2 and p <= o. */
enum ht_status autohete_solve(const struct autohete_profile *f, const struct autohete_model *model,
                              const struct autohete_box *box, struct ht_error *err, struct autohete_choice *out);
/* Solves it by trying every (c, o) with the least p that fits: larger p cost at least as much and lose ties. */
enum ht_status autohete_search(const struct autohete_profile *f, const struct autohete_model *model,
                               const struct autohete_box *box, struct ht_error *err, struct autohete_choice *out);

/* ---- period.c: the period of iterations that overlap, ours ------------------------------------------------------ */

extern const struct autohete_model autohete_by_period;

/* Lanes and chains that may set the period of iterations that overlap by priority; see autohete_periods. */
enum autohete_bound {
    AUTOHETE_DEVICE,   /* the compute lane */
    AUTOHETE_CHAIN,    /* the first block of O: gradient out, step, parameters in */
    AUTOHETE_PREFETCH, /* the same, and all other fetches behind it */
    AUTOHETE_HOST,     /* the host's lane */
    AUTOHETE_SUMS,     /* the host's lane after the last of several micro-batches */
    AUTOHETE_D2H,      /* the copies of gradients */
    AUTOHETE_H2D,      /* the copies of parameters */
    AUTOHETE_N_BOUNDS
};
extern const char *const autohete_bound_names[AUTOHETE_N_BOUNDS];

/* Computes the period by each bound, ns; the longest is the period. */
void autohete_periods(const struct autohete_profile *f, struct autohete_choice s, int64_t ns[AUTOHETE_N_BOUNDS]);
enum autohete_bound autohete_longest(const int64_t ns[AUTOHETE_N_BOUNDS]);
/* Returns how many blocks the last CPU step comes before block L, plus one; see autohete_periods. */
int64_t autohete_blocks_behind(const struct autohete_profile *f);

/* ---- schedule.c ------------------------------------------------------------------------------------------------ */

enum ht_status autohete_build(const struct ht_system *self, const struct ht_scenario *scenario,
                              const struct ht_plan *plan, struct ht_error *err, struct ht_schedule **out);

/* ---- plan.c ---------------------------------------------------------------------------------------------------- */

enum ht_status autohete_plan(const struct ht_system *self, const struct ht_scenario *scenario,
                             const struct ht_profile *costs, const struct ht_settings *settings, struct ht_error *err,
                             struct ht_plan *out);

#endif
