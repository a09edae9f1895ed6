/*
 * SysX: Ryu et al., "SysX: System for Training under Memory Constraints". A pipeline with everything in host memory
 * that runs the forward and the backward of a stage on different GPUs. plan.c decides, schedule.c builds; see
 * README.md.
 */
#ifndef SYSX_SYSX_H
#define SYSX_SYSX_H

#include "common/draft/pipe.h"

/* Variants of the systems in this folder. The configurations are those of Table 3; each adds to the one before. */
enum sysx_variant {
    SYSX_CFG0, /* decoupled pass assignment */
    SYSX_CFG1, /* + fine backward stages */
    SYSX_CFG2, /* + checkpoints sent early */
    SYSX_CFG3, /* + asynchronous optimizer: all of SysX */
    SYSX_CFG4, /* + messages that cost nothing */
};

extern const struct ht_system sysx, sysx_cfg0, sysx_cfg1, sysx_cfg2, sysx_cfg3, sysx_cfg4;

/* The paper's variables. */
struct sysx_choice {
    int64_t v;      /* forward stages per GPU */
    int64_t d;      /* backward stages per forward stage */
    int64_t early;  /* recomputation may begin before the gradient is there */
    int64_t head;   /* the forward pass runs the head too, for its loss */
    int64_t strict; /* the first backward waits for the end of the last forward */
    int64_t log;    /* steps keep a log, for an exact undo; else they are reversed by arithmetic, as the paper does */
};

/* schedule.c */

/* Returns the GPU of backward stage q: with falling q, round the GPUs from the last one. */
int32_t sysx_backward_rank(const struct ht_pipe_shape *p, int32_t q);
struct ht_pipe_style sysx_style(enum sysx_variant variant, const struct sysx_choice *c);
enum ht_status sysx_build(const struct ht_system *self, const struct ht_scenario *scenario, const struct ht_plan *p,
                          struct ht_error *err, struct ht_schedule **out);

#endif
