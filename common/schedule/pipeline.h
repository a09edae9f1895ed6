/*
 * Pipeline orders: the passes of each rank in order, and their ideal times. Pure functions; no graph, no cost.
 *
 * A model is cut into N_sf = v N_g forward stages, and forward stage i into d backward stages q = d i .. d i + d - 1 (0
 * is nearest the input), on N_g ranks. N_m micro-batches pass all of them.
 *
 *     forward stage i     rank  i mod N_g
 *     backward stage q    rank  (q div d) mod N_g, where its forward stage is, or as the method assigns it
 *
 * Orders of a rank's passes:
 *
 *     AFAB          all forwards by rising stage, each over all micro-batches, then all backwards by falling stage:
 *                   GPipe (v = 1), Mobius (v > 1); the only order for a method's own assignment
 *     1F1B          N_g - r forwards, then alternating backwards and forwards (DAPPLE); v = d = 1
 *     interleaved   Megatron's 1F1B over v stages a rank; d = 1, N_g divides N_m
 *
 * Sources: GPipe: Huang et al. 2019. DAPPLE: Fan et al. 2021. Interleaved: Narayanan et al. 2021, Sec. 2.2. Mobius:
 * Feng et al. 2023.
 */
#ifndef HT_SCHEDULE_PIPELINE_H
#define HT_SCHEDULE_PIPELINE_H

#include <stdbool.h>
#include <stdint.h>

enum ht_pipe_order { HT_PIPE_AFAB, HT_PIPE_1F1B, HT_PIPE_INTERLEAVED };

struct ht_pipe_shape {
    int32_t ranks;         /* N_g >= 1 */
    int32_t micro_batches; /* N_m >= 1 */
    int32_t v, d;          /* >= 1 */
    enum ht_pipe_order order;
    int32_t (*backward_rank)(const struct ht_pipe_shape *p, int32_t q); /* NULL: rank of the forward stage */
};

/* A pass of one stage over one micro-batch. */
struct ht_pipe_pass {
    bool forward;
    int32_t stage; /* i of a forward, q of a backward */
    int32_t micro_batch;
    int64_t start, end; /* set by ht_pipe_layout */
};

static inline int32_t ht_pipe_forward_stages(const struct ht_pipe_shape *p)
{
    return p->v * p->ranks;
}
static inline int32_t ht_pipe_backward_stages(const struct ht_pipe_shape *p)
{
    return p->d * p->v * p->ranks;
}
/* Returns the number of passes of each rank: each of its stages passes over every micro-batch. */
static inline int64_t ht_pipe_passes(const struct ht_pipe_shape *p)
{
    return (int64_t)p->micro_batches * p->v * (1 + p->d);
}
int32_t ht_pipe_forward_rank(const struct ht_pipe_shape *p, int32_t i);
int32_t ht_pipe_backward_rank(const struct ht_pipe_shape *p, int32_t q);
/* Returns true if the input of backward stage q is made on another rank than the one that needs it. */
bool ht_pipe_is_remote(const struct ht_pipe_shape *p, int32_t q);

/* Writes the rank's passes in order: out[ht_pipe_passes]. start and end are 0. */
void ht_pipe_rank_order(const struct ht_pipe_shape *p, int32_t rank, struct ht_pipe_pass *out);

/*
 * Computes the ideal times of all passes if a forward takes T_f, a backward (of one backward stage) T_b and a message
 * nothing. Every rank runs its passes in order as soon as their inputs are there:
 *
 *     f(i,j) after f(i-1,j);   b(q,j) after b(q+1,j);   b(N_sb-1,j) after f(N_sf-1,j)
 *
 * passes: [ranks * ht_pipe_passes], rank by rank, from ht_pipe_rank_order; start and end are filled in. Returns the end
 * of the last pass, or -1 if ranks wait for each other for ever. T_f, T_b > 0. O(passes).
 */
int64_t ht_pipe_layout(const struct ht_pipe_shape *p, int64_t forward, int64_t backward, struct ht_pipe_pass *passes);

#endif
