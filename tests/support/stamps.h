/*
 * A backend that proves every hazard on real bytes.
 *
 * The safe sequence (ops one at a time, in id order) says which op wrote a residency last before each op. The backend
 * fills the tensors that an op writes with that op's stamp and poisons those that it releases. Every op checks, at its
 * begin and again at its end, that the tensors that it reads carry the expected stamp. A missing edge, a buffer handed
 * out twice or an instance mixed up between iterations shows as a wrong stamp (and as a race under ThreadSanitizer,
 * since stamps are plain memory).
 */
#ifndef TESTS_SUPPORT_STAMPS_H
#define TESTS_SUPPORT_STAMPS_H

#include <stdatomic.h>

#include "common/exec/run.h"

enum { STAMPS_ITERATIONS = 4 };

struct stamps {
    const struct ht_schedule *s;
    const int64_t *cost_ns;
    uint64_t seed;
    uint64_t *expected; /* [STAMPS_ITERATIONS * n_effects]: stamp before the op; 0: none */
    uint64_t *last;     /* [2 * residency]: state of the walk over the safe sequence */
    bool *resident;     /* [n_tensors * n_spaces] */
    int64_t n_run;      /* ops that the walk did not skip */
    _Atomic int64_t began;
    int64_t fail_at, interrupt_at; /* n-th op, from 1; 0: never */
    int32_t n_done;
};

/* Walks the safe sequence of all iterations. The fields above the first blank are the caller's. */
void stamps_expect(struct stamps *w);
void stamps_free(struct stamps *w);
/* Returns true when the iteration is ok. */
bool stamps_outcome(const struct stamps *w, int32_t iteration);

/* Functions for a struct ht_backend_ops and for ht_run_options, with the struct stamps as context. */
enum ht_status stamps_run_op(void *ctx, int32_t iteration, int32_t op, const struct ht_buffer *b, int32_t n,
                             struct ht_error *err);
bool stamps_control(void *ctx, int32_t iteration, int32_t op);
enum ht_status stamps_init(void *ctx, int32_t space, struct ht_buffer b, struct ht_error *err);
enum ht_status stamps_final(void *ctx, int32_t space, struct ht_buffer b, struct ht_error *err);
enum ht_status stamps_iteration_done(void *ctx, int32_t iteration, struct ht_error *err);

#endif
