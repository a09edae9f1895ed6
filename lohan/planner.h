/*
 * LoHan's planner between plan.c, which proves and corrects, and fates.c, which chooses. Internal to lohan/.
 */
#ifndef LOHAN_PLANNER_H
#define LOHAN_PLANNER_H

#include "lohan/lohan.h"

struct lohan_planner {
    const struct ht_system *self;
    const struct ht_scenario *scenario;
    const struct ht_settings *settings;
    struct lohan_profile profile;
    bool timed; /* the rates are known */
    struct lohan_layer *layers;
    int32_t n, blocks;
    int64_t *fates[HT_N_PARTS]; /* [blocks] */
    int64_t *again[LOHAN_N_REPEATED];
    int64_t g_ssd, swap_ratio, prefetch_f, prefetch_b, halves;
    int64_t checkpoints_proj;             /* 1: proj is swapped wherever the input is */
    int64_t shortest;                     /* 1: case 2 does not cross the plateau of T_iter */
    unsigned remedies;                    /* by bit: what was given up to fit the GPU (plan.c) */
    double lowered_bytes;                 /* by which MEM_avail is below what the profiling iteration leaves */
    double again_flops[LOHAN_N_REPEATED]; /* of a block */
    double adam_s;                        /* T_Adam, of a micro-batch; the profile's is 0 unless adam=1 */
    double most_bytes;                    /* of A_G2M */
    struct lohan_amount amount;
    int64_t swapped_bytes, ssd_bytes; /* A_G2M and A_ssd of the fates */
    int64_t prefix_bytes;             /* A_G2M before a block gets its second checkpoint */
    double recomputed_flops;          /* FLOP_r of the fates */
};

static inline bool lohan_is(const struct lohan_planner *q, enum lohan_variant variant)
{
    return q->self->variant == (int)variant;
}

/* Returns true if Algorithm 1 decides. */
static inline bool lohan_by_algorithm1(const struct lohan_planner *q)
{
    return q->timed && !lohan_is(q, LOHAN_DS) && !lohan_is(q, LOHAN_ARTIFACT);
}

/* Gives inputs this fate and has everything else recomputed, as in the profiling iteration. */
void lohan_set_inputs_alone(struct lohan_planner *q, enum ht_fate fate);
/* Chooses all fates for the profile's MEM_avail, with those that are forced, and fills in what they add up to. */
void lohan_choose(struct lohan_planner *q);

#endif
