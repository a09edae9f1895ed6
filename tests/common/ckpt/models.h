/* Models of the tests of training states. */
#ifndef TESTS_COMMON_CKPT_MODELS_H
#define TESTS_COMMON_CKPT_MODELS_H

#include "common/model/model.h"

static const struct ht_model model = {
    .arch = HT_ARCH_GPT, .layers = 2, .width = 6, .heads = 2, .ffn = 24, .vocab = 11, .max_seq = 5, .tied = true};

/* Its units have more elements than two pieces (HT_PIECE_ELEMENTS). */
static const struct ht_model wide_model = {
    .arch = HT_ARCH_LLAMA, .layers = 0, .width = 500, .heads = 2, .kv_heads = 2, .ffn = 8, .vocab = 4300, .max_seq = 5};

#endif
