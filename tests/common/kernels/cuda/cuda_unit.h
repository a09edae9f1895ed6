/* Cases, models and inputs of the tests of whole units and of their parts. */
#ifndef TESTS_CUDA_UNIT_H
#define TESTS_CUDA_UNIT_H

#include "common/kernels/cuda/ht_cuda_unit.h"

#include <string>

#include "tests/support/cuda_test.h"

extern "C" {
#include "common/kernels/unit.h"
}

struct unit_case {
    const char *name;
    enum ht_arch arch;
    int64_t C, H, KV, F, V, B, T;
    bool flash, tied;
    enum ht_dtype dtype, grad, store;
};

static inline struct ht_model model_of(const struct unit_case &c)
{
    struct ht_model m = {};
    m.arch = c.arch;
    m.layers = 2;
    m.width = c.C;
    m.heads = c.H;
    m.kv_heads = c.KV;
    m.ffn = c.F;
    m.vocab = c.V;
    m.max_seq = c.T + 3;
    m.rope_theta = 10000;
    m.norm_eps = 1e-5;
    m.flash = c.flash;
    m.tied = c.tied;
    m.classes = ht_arch_classifies(c.arch) ? 19 : 0;
    if (c.arch != HT_ARCH_VIT) return m;
    m.vocab = 0; /* V is the width of a patch: 3 V^2 elements */
    m.channels = 3;
    m.patch = c.V;
    m.image = (int64_t)sqrt((double)(c.T - 1)) * c.V;
    m.max_seq = c.T;
    return m;
}

struct fixture {
    struct unit_case c;
    struct ht_model m;
    struct ht_unit_args cpu;
    struct ht_cuda_args gpu;
    int64_t n; /* B T C */
};

static inline struct fixture fixture_of(const struct unit_case &c, struct ht_model *m)
{
    struct fixture f = {};
    *m = model_of(c);
    f.c = c;
    f.cpu.model = f.gpu.model = m;
    f.cpu.batch = f.gpu.batch = c.B;
    f.cpu.seq = f.gpu.seq = c.T;
    f.gpu.cuda = &cuda;
    f.gpu.dtype = c.dtype;
    f.gpu.grad = c.grad;
    f.gpu.grad_store = c.store;
    f.n = c.B * c.T * c.C;
    return f;
}

static inline double tolerance(const struct unit_case &c)
{
    return c.dtype == HT_F32 ? 1e-5 : 3 * roundoff(c.dtype);
}

static inline void near(const struct fixture &f, const char *what, const floats &got, const floats &expected)
{
    std::string name = std::string(f.c.name) + " " + ht_dtype_name(f.c.dtype) + ": " + what;
    expect_near(name.c_str(), got, expected, tolerance(f.c));
}

/* Parameters that are not too regular: norms' weights and biases too. */
static inline floats params_of(const struct fixture &f, int64_t unit)
{
    struct ht_param_part parts[HT_MAX_PARAM_PARTS];
    int n = ht_unit_param_parts(f.gpu.model, unit, parts);
    floats p((size_t)ht_unit_params(f.gpu.model, unit));
    for (int k = 0; k < n; k++) {
        bool vector = parts[k].rows == 1, weight = strstr(parts[k].name, ".weight") != NULL;
        float a = vector ? 0.5f : 1.5f / sqrtf((float)parts[k].cols);
        for (int64_t i = 0; i < parts[k].rows * parts[k].cols; i++) {
            float u = 2 * ht_random_float(100 + (uint64_t)k, (uint64_t)i) - 1;
            p[(size_t)(parts[k].offset + i)] = rounded(f.c.dtype, (vector && weight ? 1 : 0) + a * u);
        }
    }
    return p;
}

/* Returns token ids, or the bytes of images. */
static inline std::vector<int32_t> input_of(const struct ht_model &m, const struct unit_case &c)
{
    if (m.arch != HT_ARCH_VIT) return token_list(4, c.B * c.T, c.V);
    std::vector<int32_t> words = token_list(4, (c.B * ht_model_sample_bytes(&m, c.T) + 3) / 4, 1 << 30);
    return words;
}

#endif
