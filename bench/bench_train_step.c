/*
 * Tokens per second of one training step (forward, backward, AdamW) on the CPU: the kernels in a loop, no executor. In
 * f16 and bf16 parameters, activations and gradients are 16-bit, masters and optimizer state FP32.
 *
 *     cmake --build build --target bench_train_step && build/bench_train_step [threads [f32|f16|bf16]]
 *     python bench/bench_train_step_torch.py [threads [f32|f16|bf16]]          the same step in PyTorch
 *
 * Verifies first: from the same parameters and the same batch, repeated, the losses of the first steps must be the ones
 * that PyTorch gives (stored below; the script prints them). Then 2 steps of warm-up, and the median of 9 timed steps
 * with their spread. FLOPs are the matrix products', 3 x ht_unit_flops (causal attention counted in full).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/timing.h"

#include "common/base/array.h"
#include "common/base/rng.h"
#include "tests/support/plain.h"

enum { B = 4, T = 256, WARM_UP = 2, REPEATS = 9, INIT_SEED = 1, TOKEN_SEED = 2 };

/* Bounds on the difference from PyTorch's losses: 1e-5 in FP32; in 16 bit the rounding of one of the two
   (test_torch_half.c sees 2.5e-5 in F16 and 4e-4 in BF16 over 20 steps). */
static const struct numerics {
    enum ht_dtype type;
    double loss_scale, expected_losses[WARM_UP], tolerance;
} all_numerics[] = {
    {HT_F32, 1, {9.055999756, 8.566772461}, 1e-5},
    {HT_F16, 1024, {9.055998802, 8.566851616}, 5e-5},
    {HT_BF16, 1, {9.056034088, 8.566846848}, 5e-4},
};

static const struct numerics *numerics_of(const char *name)
{
    for (size_t i = 0; i < HT_COUNT(all_numerics); i++)
        if (strcmp(name, ht_dtype_name(all_numerics[i].type)) == 0) return &all_numerics[i];
    return NULL;
}

int main(int argc, char **argv)
{
    int n_threads = argc > 1 ? atoi(argv[1]) : 2;
    const struct numerics *numerics = numerics_of(argc > 2 ? argv[2] : "f32");
    if (n_threads < 1 || !numerics) {
        fprintf(stderr, "usage: %s [threads [f32|f16|bf16]]\n", argv[0]);
        return 2;
    }
    struct ht_model model = {.arch = HT_ARCH_GPT,
                             .layers = 4,
                             .width = 256,
                             .heads = 4,
                             .ffn = 1024,
                             .vocab = 8192,
                             .max_seq = T,
                             .tied = true};
    struct ht_adamw adamw = {.lr = 3e-4, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};
    struct ht_pool *pool = ht_pool_create(n_threads, NULL);
    if (!pool) {
        perror("ht_pool_create");
        return 1;
    }
    struct ht_numerics types = {.param = numerics->type, .grad = numerics->type};
    struct ht_plain *plain = ht_plain_create(&model, &types, B, T, pool, INIT_SEED);
    int32_t *tokens = HT_NEW_ARRAY(int32_t, B * T), *targets = HT_NEW_ARRAY(int32_t, B * T);
    for (uint64_t i = 0; i < B * T; i++) {
        tokens[i] = (int32_t)ht_random_below(TOKEN_SEED, i, (uint64_t)model.vocab);
        targets[i] = (int32_t)ht_random_below(TOKEN_SEED, B * T + i, (uint64_t)model.vocab);
    }

    int rc = 0;
    for (int s = 0; s < WARM_UP; s++) {
        double loss = ht_plain_step(plain, 1, tokens, targets, &adamw, numerics->loss_scale);
        double expected = numerics->expected_losses[s];
        printf("step %d: loss %.9f, PyTorch %.9f\n", s, loss, expected);
        if (!(fabs(loss / expected - 1) <= numerics->tolerance)) rc = 1;
    }
    if (rc) fprintf(stderr, "the losses disagree: not timed\n");

    double step_s[REPEATS], flops = 0;
    for (int64_t u = 0; u < ht_model_units(&model); u++) flops += 3 * ht_unit_flops(&model, u, B, T);
    for (int r = 0; r < REPEATS && !rc; r++) {
        double start_s = bench_now_s();
        ht_plain_step(plain, 1, tokens, targets, &adamw, numerics->loss_scale);
        step_s[r] = bench_now_s() - start_s;
    }
    if (!rc) {
        double median_s = bench_spread_of(step_s, REPEATS).median;
        printf("GPT L=%d C=%d H=%d V=%d, B=%d T=%d, %s, %d threads: median of %d steps %.2f ms (%.2f to %.2f), "
               "%.0f tokens/s, %.1f GFLOP/s\n",
               (int)model.layers, (int)model.width, (int)model.heads, (int)model.vocab, B, T,
               ht_dtype_name(types.param), n_threads, REPEATS, median_s * 1e3, step_s[0] * 1e3,
               step_s[REPEATS - 1] * 1e3, B * T / median_s, flops / median_s * 1e-9);
    }
    free(tokens);
    free(targets);
    ht_plain_destroy(plain);
    ht_pool_destroy(pool);
    return rc;
}
