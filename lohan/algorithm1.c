/*
 * Algorithm 1: how much to swap. Layers are swapped in the order of falling offloading benefit, so T_iter is a convex
 * function of A_G2M (equations.c), and the first amount after which it no longer falls is the best.
 *
 *     literal                                          mended (the default)
 *     for layer in layers by falling OB:               for layer in layers by falling OB:
 *         A += A_layer; FLOP_r -= FLOP_layer               if T_iter with it >= the least so far, and
 *         if T_iter(A, FLOP_r) >= T_min:                      A without it >= A_interBlock: break
 *             if A >= A_interBlock: break                  swap it
 *         else: T_min = T_iter
 *         swap the layer
 *
 * [typo] The literal test of A counts the layer that is then not swapped, so in case 1 the plan can end just below
 * A_interBlock, with a block whose input is not saved. The mended one counts what is swapped. Then it returns what a
 * search over all prefixes does: the least T_iter among those of at least A_interBlock, and of equals A_all in case 2, else the shortest.
 * [gap] In case 2 the literal form stops where T_iter no longer falls, before the layers that cost no operations, though
 * the text says A_all. The mended one crosses that plateau if it ends at A_all: T_iter is the same there, and the GPU,
 * which binds, is spared the time that eq. 6 does not count. Other plateaus are hidden by transfers or lead to a rise;
 * there the shortest amount has the least traffic. "i <- 0" is unused.
 *
 * Cases (Sec. IV-D). 1: T_iter does not fall from A_interBlock on; transfers bind. 2: it falls as long as layers have
 * operations, and never rises; the GPU binds. 3: between the two there is a minimum. 0 [ours]: the bytes that may be
 * swapped end it.
 */
#include "lohan/lohan.h"

#include "common/base/array.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Merges by falling OB; stable. */
static void merge(struct lohan_layer *x, int32_t half, int32_t n, struct lohan_layer *scratch)
{
    memcpy(scratch, x, sizeof *x * (size_t)n);
    for (int32_t at = 0, a = 0, b = half; at < n; at++) {
        bool first = b == n || (a < half && lohan_benefit(&scratch[a]) >= lohan_benefit(&scratch[b]));
        x[at] = scratch[first ? a++ : b++];
    }
}

static void sort(struct lohan_layer *x, int32_t n, struct lohan_layer *scratch)
{
    if (n < 2) return;
    sort(x, n / 2, scratch);
    sort(x + n / 2, n - n / 2, scratch);
    merge(x, n / 2, n, scratch);
}

void lohan_sort(struct lohan_layer *layers, int32_t n)
{
    struct lohan_layer *scratch = HT_NEW_ARRAY(struct lohan_layer, n ? n : 1);
    sort(layers, n, scratch);
    free(scratch);
}

struct lohan_amount lohan_algorithm1(const struct lohan_profile *p, const struct lohan_layer *layers, int32_t n,
                                     enum lohan_form form, double most_bytes)
{
    struct lohan_amount x = {.recomputed_flops = p->layer_flops,
                             .iteration_s = lohan_iteration_s(p, 0, p->layer_flops)};
    double t_min = INFINITY, at_inter = INFINITY, least = INFINITY, bytes = 0, flops = p->layer_flops, t = INFINITY;
    bool ended = false, full = false;
    for (int32_t i = 0; i < n; i++) {
        double before = bytes;
        bytes += layers[i].bytes;
        flops -= layers[i].flops;
        t = lohan_iteration_s(p, bytes, flops);
        if (bytes >= p->inter_bytes && isinf(at_inter)) at_inter = t;
        if (bytes >= p->inter_bytes) least = fmin(least, t);
        bool worse = t >= t_min && (form == LOHAN_LITERAL ? bytes : before) >= p->inter_bytes;
        full |= !ended && !worse && bytes > most_bytes && before >= p->inter_bytes;
        ended |= worse || full;
        if (ended) continue;
        t_min = fmin(t_min, t);
        x = (struct lohan_amount){.n = i + 1, .swapped_bytes = bytes, .recomputed_flops = flops, .iteration_s = t};
    }
    bool level = t <= x.iteration_s && x.recomputed_flops <= flops; /* from x to A_all */
    x.which = full ? 0 : least >= at_inter ? 1 : level ? 2 : 3;
    if (form == LOHAN_MENDED && x.which == 2 && bytes <= most_bytes)
        x = (struct lohan_amount){n, bytes, flops, t, x.which};
    return x;
}
