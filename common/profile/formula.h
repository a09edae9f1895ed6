/*
 * The formulas behind modelled costs. All take effective rates (a datasheet's peak times the device's efficiency) and
 * return seconds. No formula depends on a system, a model's name or an experiment.
 */
#ifndef HT_PROFILE_FORMULA_H
#define HT_PROFILE_FORMULA_H

#include "common/model/software.h"
#include "common/schedule/schedule.h"

/* A device as the roofline model sees it. */
struct ht_roof {
    double flops_per_s; /* of matrix products in the work's type, with all multiprocessors at work */
    double sms;         /* multiprocessors; 0: not known, see ht_gemm_share */
    double bytes_per_s; /* of memory */
    double launch_s;    /* of one kernel */
};

/*
 * Returns the share of all multiprocessors' time that `count` products with results (m,n), in one kernel, have use of:
 *
 *     count m n / (waves sms area),   waves = ceil(count ceil(m / rows) ceil(n / columns) / sms)
 *
 * Results are cut into tiles, and each multiprocessor works on one tile at a time. Time is lost in tiles that stand
 * out over an edge, and at the end, when fewer tiles are left than multiprocessors. A tile (area = rows x columns) is
 * 256 x 128, 128 x 256 or 128 x 128, whichever loses least, but no wider than the result, in steps of 64. 1 with
 * sms = 0. NVIDIA, "Matrix Multiplication Background User's Guide" (DU-09799-001), Secs. 2.3, 3.1 and 3.2. Departure:
 * the guide's smaller tiles, which reach less even when none are lost, are left out.
 */
double ht_gemm_share(const struct ht_roof *r, double count, double m, double n);

/* Returns the time of `count` products (m,k) x (k,n) -> (m,n) in one kernel, with operands of in_bytes and results of
   out_bytes per element:
       launch + max(2 count m n k / (share flops_per_s), count ((m k + k n) in + m n out) / bytes_per_s) */
double ht_gemm_s(const struct ht_roof *r, double count, double m, double n, double k, double in_bytes,
                 double out_bytes);

/* Returns the time of an element-wise kernel that reads and writes `bytes` in all: launch + bytes / bytes_per_s. */
double ht_stream_s(const struct ht_roof *r, double bytes);

/* Returns the time of the forward, or of the backward, of a unit or of some sub-ops of blocks, as the software runs it.
   formula.c lists the kernels. */
double ht_forward_s(const struct ht_roof *r, const struct ht_software *software, const struct ht_work *w);
double ht_backward_s(const struct ht_roof *r, const struct ht_software *software, const struct ht_work *w);

/* Returns the memory traffic of Adam per parameter: the gradient is read; FP32 parameter, momentum and variance are
   read and written; a 16-bit compute copy, if there is one, is written: g + 24 (+ 2). 28 for FP32, and for 16 bit with
   16-bit gradients. */
double ht_adam_bytes_per_param(enum ht_dtype param, enum ht_dtype grad);
/*
 * What Adam's arithmetic takes of a core, per parameter, in FLOPs of its FMA peak: 14 operations, of which a division and a
 * square root take as long as some ninety FMAs each. From two processors: one thread of `local` steps at 25 GB/s of 28
 * bytes (at least 0.89e9 parameters/s of 213 GFLOP/s: at most 240), two threads of an EPYC 7452 at 21 GB/s
 * (scripts/fit-devices: 2 x 75.2 GFLOP/s: 200).
 */
enum { HT_ADAM_FLOPS = 200 };

/* Returns max(params x bytes_per_param / bytes_per_s, params x HT_ADAM_FLOPS / flops_per_s). */
double ht_cpu_adam_s(double params, double bytes_per_param, double bytes_per_s, double flops_per_s);

/* Returns latency + bytes / bytes_per_s. */
double ht_copy_s(double latency_s, double bytes, double bytes_per_s);

/* A collective's members and what connects them. */
struct ht_ring {
    int32_t ranks, nodes;       /* members, and nodes that they are on */
    double bytes_per_s;         /* of the slowest edge */
    double inside_s, outside_s; /* latency of a step within a node, and between two */
};

/*
 * Returns the time of a collective in which each member sends `bytes` in a ring:
 *
 *     latency + bytes / bytes_per_s,   latency = (steps - crossing) inside_s + crossing outside_s
 *
 * An all-gather or reduce-scatter takes ranks - 1 steps, of which nodes - 1 cross; an all-reduce does one after the other
 * (Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms for clusters of workstations"). Over several nodes
 * an all-reduce may go up and down a tree of the nodes instead, with 2 log2(nodes) steps between them and all bytes on
 * each edge, ranks / (ranks - 1) of a ring's; the faster counts. Both as NCCL estimates them (github.com/NVIDIA/nccl,
 * src/graph/tuning.cc).
 */
double ht_collective_s(enum ht_op_kind kind, const struct ht_ring *ring, double bytes);

/* Returns the time in whole nanoseconds, rounded up; at least 1. */
int64_t ht_ns_up(double s);

#endif
