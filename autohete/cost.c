/*
 * AutoHete's cost model: equations (1) to (5) of Sec. 3.2.2, one function each, over the profile of one block.
 *
 * The paper writes 2 for the bytes of an FP16 element and 12 for FP32 momentum, variance and parameters. Here the
 * profile's byte counts contain these factors, so that other numerics need no other formulas. FP32 has no 16-bit copy:
 * a parameter is its own master and has 12 bytes with its momentum and variance. Eq. 1 already counts the parameter's 4
 * bytes as the compute copy (shared_bytes).
 *
 * [typo] Eqs. 3 to 5 print "delta-hat" for o-hat, and Sec. 3.1 prints t_hd for t_h2d.
 * Several micro-batches are ours: see autohete_iteration_ns. tests/autohete/test_cost.c checks the equations by hand.
 */
#include "autohete/autohete.h"

#include "common/base/minmax.h"

/*
 * Eq. 1, bytes on the device at the transition from forward to backward:
 *
 *     2 M'_a c + 2 M_a (L - c + 1) + 2 M_p (L - p + 1) + 12 M_p (L - o) + M_gc <= M_gpu
 *
 * The "+1" is what the current block needs on top: recomputed activations, and a parameter buffer.
 * [gap] By footnote 2 the L - o blocks stepped on the device have no FP16 copy then; the equation charges them one. And
 * it leaves out gradients that wait for their copy, and a second parameter buffer; the verifier counts both.
 *
 * With several micro-batches the L - o blocks also hold their gradient sums throughout.
 */
int64_t autohete_device_bytes(const struct autohete_profile *f, struct autohete_choice s)
{
    int64_t L = f->layers;
    int64_t activations = f->input_bytes * s.c + f->activation_bytes * (L - s.c + 1);
    int64_t copies = f->copy_bytes * (L - s.p + 1);
    int64_t states = (f->state_bytes - f->shared_bytes + f->sum_bytes) * (L - s.o);
    return activations + copies + states + f->device_const_bytes;
}

/* Eq. 2, bytes on the host: 14 M_p o + M_cc <= M_cpu. The states take 12; FP16 parameters and gradients share 2. */
int64_t autohete_host_bytes(const struct autohete_profile *f, struct autohete_choice s)
{
    return f->host_bytes * s.o + f->host_const_bytes;
}

/*
 * Eq. 3: T_fwd = max(t_fp L, t_h2d o + t_fp). Prefetches run back to back; the last block computes after its own
 * prefetch.
 * [gap] The exact maximum has a third term, t_h2d + o t_fp, which the printed form leaves out; it matters for o = L
 * only or when t_h2d > (L - o) t_fp. Kept as printed.
 */
int64_t autohete_forward_ns(const struct autohete_profile *f, struct autohete_choice s)
{
    return ht_max(f->fp_ns * f->layers, f->h2d_ns * s.o + f->fp_ns);
}

/*
 * v, "which can be derived by c, p, and o": the number of blocks with both checkpointing and parameter offloading,
 *
 *     v = |C intersect P| = max(0, min(p, c - (L - o)))
 *
 * [gap] PB_i overlaps with the backward slot of block i+1, so eq. 4 really needs the number of blocks of P whose
 * successor is checkpointed, which is smaller by at most one. Kept as printed.
 */
int64_t autohete_overlapped(const struct autohete_profile *f, struct autohete_choice s)
{
    return ht_max(0, ht_min(s.p, s.c - (f->layers - s.o)));
}

/* Eq. 4: t_sync = v max(t_h2d - t_fp - t_bp, 0) + (p - v) max(t_h2d - t_bp, 0) */
int64_t autohete_sync_ns(const struct autohete_profile *f, struct autohete_choice s, int64_t v)
{
    return v * ht_max(f->h2d_ns - f->fp_ns - f->bp_ns, 0) + (s.p - v) * ht_max(f->h2d_ns - f->bp_ns, 0);
}

/*
 * Eq. 5: T_bwd = max(t_bp L + t_fp c + t_gpu (L - o) + t_sync, t_bp + t_d2h + t_cpu o)
 *
 * [gap] The second term leaves out R_L when c = L, the d2h lane as the bottleneck, and the tail after a slower device.
 * Kept as printed. With several micro-batches each step comes after the addition of the last micro-batch's gradient.
 */
int64_t autohete_backward_ns(const struct autohete_profile *f, struct autohete_choice s, int64_t v)
{
    int64_t L = f->layers, more = f->micro_batches > 1;
    int64_t device =
        f->bp_ns * L + f->fp_ns * s.c + (f->gpu_ns + more * f->gpu_sum_ns) * (L - s.o) + autohete_sync_ns(f, s, v);
    return ht_max(device, f->bp_ns + f->d2h_ns + (f->cpu_ns + more * f->cpu_sum_ns) * s.o);
}

/*
 * T_fwd + T_bwd, and embedding and head. The paper has one micro-batch. We add a term for each of the m - 1 others:
 *
 *     T'_fwd = max(t_fp L, t_h2d p + t_fp)                 only P is fetched again
 *     T'_bwd = max(t_bp L + t_fp c + a_gpu (L - o) + t_sync, t_bp + t_d2h + a_cpu o)
 *
 * where a_gpu, a_cpu are the times to add a block's gradient where it is stepped.
 */
int64_t autohete_iteration_ns(const struct autohete_profile *f, struct autohete_choice s, int64_t v)
{
    int64_t L = f->layers;
    int64_t forward = ht_max(f->fp_ns * L, f->h2d_ns * s.p + f->fp_ns);
    int64_t backward = ht_max(f->bp_ns * L + f->fp_ns * s.c + f->gpu_sum_ns * (L - s.o) + autohete_sync_ns(f, s, v),
                              f->bp_ns + f->d2h_ns + f->cpu_sum_ns * s.o);
    return autohete_forward_ns(f, s) + autohete_backward_ns(f, s, v) + (f->micro_batches - 1) * (forward + backward) +
           f->const_ns;
}
