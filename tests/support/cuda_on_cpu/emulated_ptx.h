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
static inline void ht_emulated_mma(float d[4], const uint32_t a[4], const uint32_t b[2], float (*to_float)(uint16_t))
{
    uint32_t all_a[4][32], all_b[2][32];
    for (int i = 0; i < 4; i += 2) {
        const uint64_t *x = ht_emulated_exchange(a[i] | (uint64_t)a[i + 1] << 32);
        for (int l = 0; l < 32; l++) all_a[i][l] = (uint32_t)x[l], all_a[i + 1][l] = (uint32_t)(x[l] >> 32);
    }
    const uint64_t *x = ht_emulated_exchange(b[0] | (uint64_t)b[1] << 32);
    for (int l = 0; l < 32; l++) all_b[0][l] = (uint32_t)x[l], all_b[1][l] = (uint32_t)(x[l] >> 32);
    int lane = ht_emulated_lane(), g = lane / 4, t = lane % 4;
    for (int e = 0; e < 4; e++) {
        int row = g + e / 2 * 8, col = 2 * t + e % 2;
        float sum = 0;
        for (int k = 0; k < 16; k++) {
            uint32_t ra = all_a[(row >= 8) + 2 * (k >= 8)][row % 8 * 4 + k % 8 / 2];
            uint32_t rb = all_b[k >= 8][col * 4 + k % 8 / 2];
            sum += to_float((uint16_t)(ra >> k % 2 * 16)) * to_float((uint16_t)(rb >> k % 2 * 16));
        }
        d[e] += sum;
    }
}

void ht_emulated_copy(void *to, const void *from, int bytes, bool valid);
void ht_emulated_copy_commit(void);
void ht_emulated_copy_wait(int pending, const char *file, int line);

#endif
