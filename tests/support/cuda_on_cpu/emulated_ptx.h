/*
 * The instructions of common/kernels/cuda/ptx.cuh in plain loops, with the layouts of fragments that the PTX manual
 * gives (sections on mma.m16n8k16 with .f16/.bf16 and on ldmatrix).
 *
 * Asynchronous copies take place as late as they may, at the wait for them: a kernel that waits for too few of them
 * reads old data. With the threads in reverse order they take place at once: a kernel that copies over data that is
 * still to be read gives different results. In random order a drawn half of them does.
 */
#ifndef HT_CUDA_ON_CPU_EMULATED_PTX_H
#define HT_CUDA_ON_CPU_EMULATED_PTX_H

#include "common/base/half.h"

/* Loads a lane's four registers from four 8x8 matrices of 16-bit elements. Lanes 8i..8i+7 give the rows of matrix i. */
static inline void ht_ldmatrix(uint32_t r[4], const void *row, bool transposed)
{
    if ((uintptr_t)row % 16 != 0) abort(); /* hardware faults */
    const uint64_t *rows = ht_emulated_exchange((uint64_t)(uintptr_t)row);
    int lane = ht_emulated_lane(), g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; i++) {
        uint32_t low, high;
        if (transposed) {
            low = ((const uint16_t *)(uintptr_t)rows[8 * i + 2 * t])[g];
            high = ((const uint16_t *)(uintptr_t)rows[8 * i + 2 * t + 1])[g];
        } else {
            low = ((const uint16_t *)(uintptr_t)rows[8 * i + g])[2 * t];
            high = ((const uint16_t *)(uintptr_t)rows[8 * i + g])[2 * t + 1];
        }
        r[i] = low | high << 16;
    }
}

/* Adds a (16,16) b (16,8) to d (16,8). to_float converts one 16-bit element. */
template <float (*to_float)(uint16_t)>
static inline void ht_emulated_mma(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    float rows[2][16], columns[2][16]; /* the lane's: rows g and g + 8 of a, columns 2t and 2t + 1 of b */
    int lane = ht_emulated_lane(), g = lane / 4, t = lane % 4;
    for (int half = 0; half < 2; half++) {
        const uint64_t *x = ht_emulated_exchange(a[2 * half] | (uint64_t)a[2 * half + 1] << 32);
        for (int k = 0; k < 8; k++) {
            uint64_t pair = x[g * 4 + k / 2] >> k % 2 * 16;
            rows[0][8 * half + k] = to_float((uint16_t)pair);
            rows[1][8 * half + k] = to_float((uint16_t)(pair >> 32));
        }
    }
    const uint64_t *x = ht_emulated_exchange(b[0] | (uint64_t)b[1] << 32);
    for (int c = 0; c < 2; c++)
        for (int k = 0; k < 8; k++) {
            uint64_t pair = x[(2 * t + c) * 4 + k / 2] >> k % 2 * 16;
            columns[c][k] = to_float((uint16_t)pair);
            columns[c][8 + k] = to_float((uint16_t)(pair >> 32));
        }
    for (int e = 0; e < 4; e++) {
        float sum = 0;
        for (int k = 0; k < 16; k++) sum += rows[e / 2][k] * columns[e % 2][k];
        d[e] += sum;
    }
}

void ht_emulated_copy(void *to, const void *from, int bytes, bool valid);
void ht_emulated_copy_commit(void);
void ht_emulated_copy_wait(int pending, const char *file, int line);

#endif
