/*
 * LoHan's model of an iteration: equations (1) to (8) of Sec. IV-D, one function each. A maximum over resources that
 * work side by side: the GPU (G), the link out of it (G2M), the link into it (M2G), and the SSDs (S), whose reads and
 * writes share their time.
 *
 * Departures.
 *   eq. 3   is printed without max(0, .). With spare main memory the SSDs' term in eq. 4 would fall below 2P / BW_S2M.
 *   eq. 5   leaves out Adam, assumed to be shorter than the SSDs' term. adam_s is one more term of the maximum, 0 unless
 *           adam=1 [ours].
 *   eq. 7   begins with FLOP_f. Here it begins with the layers' own FLOPs, for the head is never recomputed.
 * Kept: eq. 5 leaves out R, C and W of the last gradient, which nothing hides, and the next forward's wait for them.
 * "MEM_CPU^avail" in eq. 4 is MEM_avail.
 *
 * Several GPUs [ours]: each has an equal part of the batch, so its own terms G, G2M and M2G are those of that part. The
 * SSDs hold one copy of the states, so P16 is read and R and W are done once for all of them; A_ssd is all GPUs'.
 *
 * tests/lohan/test_equations.c checks them by hand, and that T_iter is convex in A_G2M.
 */
#include "lohan/lohan.h"

#include <math.h>

double lohan_ssd_bytes(const struct lohan_profile *p, double swapped_bytes)
{
    return fmax(0, fmax(1, p->gpus) * swapped_bytes - p->mem_bytes);
}

/*
 * Returns T_f, s, by eq. 2 with A_ssd of eq. 3 for alpha A_G2M, which is eq. 4:
 *
 *     T_f = max(FLOP_f / THP_G, A_G2M / BW_G, 2P / BW_G, 2P / BW_S2M + A_ssd / BW_M2S)
 */
double lohan_forward_s(const struct lohan_profile *p, double swapped_bytes)
{
    double gpu = p->forward_flops / p->flops_per_s, out = swapped_bytes / p->link_bytes_per_s;
    double in = p->param_bytes / p->link_bytes_per_s;
    double ssd =
        p->param_bytes / p->ssd_read_bytes_per_s + lohan_ssd_bytes(p, swapped_bytes) / p->ssd_write_bytes_per_s;
    return fmax(fmax(gpu, out), fmax(in, ssd));
}

/*
 * Returns T_b, s, by eq. 5:
 *
 *     T_b = max((2 FLOP_f + FLOP_r) / THP_G, 2P / BW_G, (2P + A_G2M) / BW_G, (14P + A_ssd) / BW_S2M + 14P / BW_M2S)
 *
 * 14P read are 12P of states and 2P of P16; 14P written are 12P and the new P16.
 */
double lohan_backward_s(const struct lohan_profile *p, double swapped_bytes, double recomputed_flops)
{
    double gpu = (2 * p->forward_flops + recomputed_flops) / p->flops_per_s, out = p->grad_bytes / p->link_bytes_per_s;
    double in = (p->param_bytes + swapped_bytes) / p->link_bytes_per_s;
    double read = p->read_bytes + p->param_bytes + lohan_ssd_bytes(p, swapped_bytes);
    double ssd = read / p->ssd_read_bytes_per_s + p->write_bytes / p->ssd_write_bytes_per_s;
    return fmax(fmax(fmax(gpu, out), fmax(in, ssd)), p->adam_s);
}

double lohan_iteration_s(const struct lohan_profile *p, double swapped_bytes, double recomputed_flops)
{
    return lohan_forward_s(p, swapped_bytes) + lohan_backward_s(p, swapped_bytes, recomputed_flops);
}

double lohan_benefit(const struct lohan_layer *layer)
{
    return layer->flops / layer->bytes;
}

/* Returns FLOP_r by eq. 7: FLOP_r = FLOP_f - sum_{m <= i} FLOP_m - FLOP_{i+1} (A_G2M - sum_{n <= i} A_n) / A_{i+1} */
double lohan_recomputed_flops(const struct lohan_profile *p, const struct lohan_layer *layers, int32_t n,
                              double swapped_bytes)
{
    double flops = p->layer_flops;
    for (int32_t i = 0; i < n && swapped_bytes > 0; i++) {
        flops -= layers[i].flops * fmin(1, swapped_bytes / layers[i].bytes);
        swapped_bytes -= layers[i].bytes;
    }
    return flops;
}

/* Returns dFLOP_r / dA_G2M, FLOP per byte, by eq. 8: -OB_{i+1} */
double lohan_recomputed_slope(const struct lohan_layer *layers, int32_t n, double swapped_bytes)
{
    int32_t i = 0;
    while (i < n && swapped_bytes >= layers[i].bytes) swapped_bytes -= layers[i++].bytes;
    return i < n ? -lohan_benefit(&layers[i]) : 0;
}
