/* Cases that scripts in tests/reference stored with PyTorch: their models and their batches. */
#ifndef HT_TESTS_TORCH_CASES_H
#define HT_TESTS_TORCH_CASES_H

#include <check.h>
#include <libfyaml.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/array.h"
#include "common/base/rng.h"
#include "tests/support/plain.h"

#define DATA HT_SOURCE_DIR "/tests/data/kjv-200k.txt"

static inline struct fy_node *entry(struct fy_node *n, const char *path)
{
    return fy_node_by_path(n, path, FY_NT, FYNWF_DONT_FOLLOW);
}

static inline double number(struct fy_node *n, const char *path)
{
    struct fy_node *at = entry(n, path);
    ck_assert_msg(at != NULL, "no %s in the reference", path);
    const char *text = fy_node_get_scalar0(at);
    ck_assert_ptr_nonnull(text);
    return strcmp(text, "true") == 0 ? 1 : strtod(text, NULL);
}

static inline unsigned char *read_data(int64_t *n_bytes)
{
    FILE *f = fopen(DATA, "rb");
    ck_assert_ptr_nonnull(f);
    fseek(f, 0, SEEK_END);
    *n_bytes = ftell(f);
    rewind(f);
    unsigned char *data = ht_alloc((size_t)*n_bytes);
    ck_assert_uint_eq(fread(data, 1, (size_t)*n_bytes, f), (size_t)*n_bytes);
    fclose(f);
    return data;
}

/* Sequence b of step s: T bytes from a random offset, targets one byte later. */
static inline void fill_batch(const unsigned char *data, int64_t n_bytes, uint64_t seed, int64_t step, int64_t B,
                              int64_t T, int32_t *tokens, int32_t *targets)
{
    for (int64_t b = 0; b < B; b++) {
        int64_t from = (int64_t)ht_random_below(seed, (uint64_t)(step * B + b), (uint64_t)(n_bytes - T - 1));
        for (int64_t t = 0; t < T; t++) {
            tokens[b * T + t] = data[from + t];
            targets[b * T + t] = data[from + t + 1];
        }
    }
}

static inline struct ht_model model_of(struct fy_node *c, bool flash)
{
    struct ht_model model = {.arch = HT_ARCH_GPT,
                             .layers = (int64_t)number(c, "layers"),
                             .width = (int64_t)number(c, "width"),
                             .heads = (int64_t)number(c, "heads"),
                             .ffn = (int64_t)number(c, "ffn"),
                             .vocab = (int64_t)number(c, "vocab"),
                             .max_seq = (int64_t)number(c, "max_seq"),
                             .tied = number(c, "tied") != 0,
                             .flash = flash};
    if (!entry(c, "arch")) return model;
    ck_assert_str_eq(fy_node_get_scalar0(entry(c, "arch")), "llama");
    model.arch = HT_ARCH_LLAMA;
    model.kv_heads = (int64_t)number(c, "kv_heads");
    model.rope_theta = number(c, "rope_theta");
    model.norm_eps = number(c, "norm_eps");
    return model;
}

static inline struct ht_adamw adamw_of(struct fy_node *root)
{
    return (struct ht_adamw){.lr = number(root, "adamw/lr"),
                             .beta1 = number(root, "adamw/beta1"),
                             .beta2 = number(root, "adamw/beta2"),
                             .eps = number(root, "adamw/eps"),
                             .weight_decay = number(root, "adamw/weight_decay")};
}

/* Element i of a list of numbers. */
static inline double element(struct fy_node *n, const char *path, int i)
{
    return strtod(fy_node_get_scalar0(fy_node_sequence_get_by_index(entry(n, path), i)), NULL);
}

#endif
