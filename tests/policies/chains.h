/* Random chains of blocks for tests of policies: F1 .. FL, a head, BL .. B1, several activations a block. */
#ifndef TESTS_POLICY_CHAINS_H
#define TESTS_POLICY_CHAINS_H

#include "policies/policy.h"

#include "tests/support/draw.h"

#include <math.h>

enum { CHAIN_MOST = 64 };

struct chain {
    struct ht_policy_case c;
    struct ht_activation a[CHAIN_MOST];
};

/* Fills a chain of at most `most` activations in whole numbers. alike: all blocks are. The first activation of a block
   is its input and cannot be recomputed if inputs_stay. */
static inline void chain_fill(struct chain *x, uint64_t seed, int most, bool alike, bool inputs_stay)
{
    struct draw d = {.seed = seed};
    int parts = (int)pick(&d, 1, most < 4 ? most : 4), blocks = (int)pick(&d, 1, most / parts);
    int forward = (int)pick(&d, 1, 9), backward = (int)pick(&d, 1, 20);
    int total = 0, turn = (int)pick(&d, 1, 9);
    *x = (struct chain){.c = {.a = x->a, .n = parts * blocks}};
    for (int b = 0; b < blocks; b++)
        for (int p = 0; p < parts; p++) {
            bool first = b == 0 || !alike;
            struct ht_activation *a = &x->a[b * parts + p];
            *a = (struct ht_activation){.block = b + 1, .part = p};
            a->bytes = first ? (double)pick(&d, 1, 20) : x->a[p].bytes;
            a->recompute_s = first ? (double)pick(&d, 0, 6) : x->a[p].recompute_s;
            if (inputs_stay && p == 0) a->recompute_s = INFINITY;
            a->made_s = (b + 1) * forward;
            a->used_s = blocks * forward + turn + (blocks - 1 - b) * backward;
            total += (int)a->bytes;
        }
    x->c.forward_s = blocks * forward;
    x->c.backward_s = turn + blocks * backward;
    x->c.out_bytes_per_s = (double)pick(&d, 1, 40) / 4;
    x->c.in_bytes_per_s = (double)pick(&d, 1, 40) / 4;
    x->c.ssd_write_bytes_per_s = (double)pick(&d, 1, 40) / 4;
    x->c.ssd_read_bytes_per_s = (double)pick(&d, 1, 40) / 4;
    x->c.device_bytes = (double)pick(&d, 0, total);
    x->c.main_bytes = (double)pick(&d, 0, total);
}

#endif
