/*
 * Undoes a step of AdamW (adamw.h). Systems that step before the gradient check is known need it: SysX, section on the
 * asynchronous optimizer.
 *
 * The paper's arithmetic reversal
 * -------------------------------
 *
 * From p', m', v' after the step and the gradient g, which must still exist (ht_adamw_undo_arithmetic):
 *
 *     p = (p' + step_size m' / (sqrt(v') / root + eps)) / keep
 *     m = (m' - (1 - beta1) g) / beta1
 *     v = (v' - (1 - beta2) g^2) / beta2
 *
 * In FP32 this is only an approximation: each line rounds, and where the new term is much larger than the old value,
 * the old value's digits are lost (a gradient 4000 times the root of v leaves nothing of v). With infinities it gives
 * NaN.
 *
 * The exact undo
 * --------------
 *
 * The logged step runs the reversal right after the step (with products by 1 / keep, 1 / beta1 and 1 / beta2, which are
 * faster and serve as well here), compares with the values from before, and logs the differences. The undo runs the
 * same reversal and corrects it. So it restores all three arrays bit for bit, whatever they held, NaN payloads
 * included, and with them the 16-bit copy of p, which is rounded from the restored values. A difference is counted in
 * steps from one float to the next (-0 and +0 are two floats), in one signed byte per value; where it does not fit, the
 * byte is -128 and the log keeps the value itself, an exception. Nothing here relies on the reversal being the inverse
 * of the step, or near it: only on its giving the same bits twice. It does on every path: additions, divisions and
 * roots are IEEE's, and a NaN is replaced by one certain NaN.
 *
 * The log of n elements, in blocks of 1024:
 *
 *     header        64 bytes: magic number, number of elements, coefficients of the step
 *     exceptions    4 bytes a block: where its exceptions begin, or that it has none
 *     differences   3 bytes an element: p of the whole block, then m, then v
 *     kept values   4 bytes each, in the order of the differences; blocks in the order of their arrival
 *
 * So it takes 3.004 bytes an element and 4 for each exception. Measured with gradients of steady size (test_undo.c
 * prints it): 3.0045 in the first step, 3.12 in the second, when v is still the square of one gradient, 3.01 from the
 * fourth on: one exception in 700 elements, where p is near 0 and the step is more than 127 times as large. Gradients
 * that are not finite make three exceptions an element.
 *
 * The caller chooses the room for exceptions beforehand. When they do not fit, the step is refused: every block is
 * undone, the arrays are as before, and the log says so, with the number of exceptions. With room for 3 n no step is
 * refused.
 */
#ifndef HT_KERNELS_UNDO_H
#define HT_KERNELS_UNDO_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/pool.h"
#include "common/kernels/adamw.h"
#include "common/kernels/simd.h"

/* Returns the bytes of a log for n elements with room for `exceptions`, at most 3 n. */
int64_t ht_undo_log_bytes(int64_t n, int64_t exceptions);
/* Returns enough room for training from the first step on: one exception for every four elements. */
int64_t ht_undo_usual_exceptions(int64_t n);

/* Arrays and log of a step and its undo. */
struct ht_undo {
    struct ht_pool *pool; /* NULL: the caller alone */
    struct ht_adamw_row row;
    void *log;                       /* 8-byte aligned; not for the arithmetic reversal */
    int64_t log_bytes;               /* at least ht_undo_log_bytes(n, 0); the rest is room for exceptions */
    const struct ht_undo_path *path; /* NULL: the best of this CPU */
};

/* Steps as ht_adamw_update_row does, and writes the log. Returns false when it refuses: the arrays are as before, and
   the 16-bit copy, if there is one, is rounded from the parameters. Results and refusal do not depend on path or pool;
   the order of kept values in the log does. */
bool ht_adamw_step_logged(const struct ht_undo *u, const struct ht_adamw_step *step);

/* Undoes the logged step; a refused one was never made. Needs the same gradients. Rounds the 16-bit copy, if there is
   one, again. The log is then empty. Returns false, and changes nothing, when this is not a log of n elements, or is
   empty. */
bool ht_adamw_undo_exact(const struct ht_undo *u);

/* Reverses `step` by the paper's arithmetic. */
void ht_adamw_undo_arithmetic(const struct ht_undo *u, const struct ht_adamw_step *step);

enum ht_undo_state { HT_UNDO_EMPTY, HT_UNDO_STEPPED, HT_UNDO_REFUSED };

/* Contents of a log. */
struct ht_undo_summary {
    enum ht_undo_state state;
    int64_t exceptions; /* of the last step; after a refusal, as many as it needs room for */
    int64_t used_bytes; /* of the log */
};
struct ht_undo_summary ht_undo_summary(const void *log, int64_t log_bytes, int64_t n);

/* Returns the path of this level, or NULL when this CPU does not have it. For tests. */
const struct ht_undo_path *ht_undo_path_at(enum ht_simd_level level);

#endif
