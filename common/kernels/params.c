/* Initial values of parameters. */
#include <math.h>
#include <string.h>

#include "common/base/rng.h"
#include "common/kernels/unit.h"

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

/* Returns the half-width of the uniform distribution of a matrix's initial values. */
static float init_range(const struct ht_model *model, const struct ht_param_part *part)
{
    double a = 0.02 * sqrt(3.0);
    if (model->arch == HT_ARCH_GPT && ends_with(part->name, "c_proj.weight")) a /= sqrt(2.0 * (double)model->layers);
    return (float)a;
}

void ht_unit_init(const struct ht_model *model, int64_t unit, uint64_t seed, float *params)
{
    ht_unit_init_range(model, unit, seed, 0, ht_unit_params(model, unit), params);
}

void ht_unit_init_range(const struct ht_model *model, int64_t unit, uint64_t seed, int64_t begin, int64_t end,
                        float *out)
{
    struct ht_param_part parts[HT_MAX_PARAM_PARTS];
    int n = ht_unit_param_parts(model, unit, parts);
    uint64_t stream = ht_random(seed, (uint64_t)unit);
    for (int k = 0; k < n; k++) {
        const struct ht_param_part *part = &parts[k];
        int64_t first = part->offset, last = first + part->rows * part->cols;
        if (last <= begin || first >= end) continue;
        bool bias = ends_with(part->name, ".bias");
        bool norm = strncmp(part->name, "ln_", 3) == 0 || strstr(part->name, "norm") != NULL;
        float a = init_range(model, part);
        for (int64_t i = first > begin ? first : begin; i < last && i < end; i++)
            out[i - begin] = bias ? 0.0f : norm ? 1.0f : a * (2.0f * ht_random_float(stream, (uint64_t)i) - 1.0f);
    }
}
