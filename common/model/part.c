/* Tensor-parallel parts of a model: maps a part's elements to those of the whole. */
#include "common/model/model.h"

#include <assert.h>
#include <stdio.h>

struct ht_model ht_model_part(const struct ht_model *m, int32_t part, int32_t parts)
{
    struct ht_model p = *m;
    assert(m->parts <= 1 && part >= 0 && part < parts);
    p.part = part;
    p.parts = parts;
    return p;
}

const char *ht_model_cannot_part(const struct ht_model *m, int32_t parts, char *buf, size_t n)
{
    struct ht_model last = *m;
    last.part = parts - 1;
    last.parts = parts;
    int64_t kv_heads = m->kv_heads ? m->kv_heads : m->heads;
    if (ht_arch_gated(m->arch) && parts > 1)
        snprintf(buf, n, "conditioning");
    else if (m->heads % parts)
        snprintf(buf, n, "%lld heads", (long long)m->heads);
    else if (kv_heads % parts)
        snprintf(buf, n, "%lld heads of keys", (long long)kv_heads);
    else if (m->ffn % parts)
        snprintf(buf, n, "%lld columns of the feed-forward network", (long long)m->ffn);
    else if (m->vocab && ht_model_vocab(&last) < 1)
        snprintf(buf, n, "%lld tokens", (long long)m->vocab);
    else
        return NULL;
    return buf;
}

/* Returns the number of matrices in a matrix that are cut separately: 3 for query, key and value. */
static int64_t thirds_of(const struct ht_param_part *p)
{
    return p->split == HT_SPLIT_OUT_OF_3 ? 3 : 1;
}

/* Returns the run from element `at` of a matrix or vector on, with offsets in it. p: in the part, w: in the whole. */
static struct ht_part_run run_in(const struct ht_model *m, const struct ht_param_part *p, const struct ht_param_part *w,
                                 int64_t at)
{
    int64_t n = p->rows * p->cols, third = n / thirds_of(p);
    switch (p->split) {
    case HT_SPLIT_NONE:
        return (struct ht_part_run){at, at, n - at, true};
    case HT_SPLIT_TOKENS:
        return (struct ht_part_run){at, ht_model_first_token(m) * w->cols + at, n - at, false};
    case HT_SPLIT_IN:
        return (struct ht_part_run){at, at / p->cols * w->cols + m->part * p->cols + at % p->cols,
                                    p->cols - at % p->cols, false};
    default: /* each third is cut into all parts */
        return (struct ht_part_run){at, (at / third * ht_model_parts(m) + m->part) * third + at % third,
                                    third - at % third, false};
    }
}

static int64_t clamp(int64_t x, int64_t most)
{
    return x < 0 ? 0 : x < most ? x : most;
}

/* Returns the part's first element at or behind `whole` of the whole matrix or vector; its size if no such element exists. */
static int64_t find_in(const struct ht_model *m, const struct ht_param_part *p, const struct ht_param_part *w,
                       int64_t whole)
{
    int64_t n = p->rows * p->cols, third = n / thirds_of(p), parts = ht_model_parts(m);
    switch (p->split) {
    case HT_SPLIT_NONE:
        return whole;
    case HT_SPLIT_TOKENS:
        return clamp(whole - ht_model_first_token(m) * w->cols, n);
    case HT_SPLIT_IN:
        return whole / w->cols * p->cols + clamp(whole % w->cols - m->part * p->cols, p->cols);
    default:
        return whole / (third * parts) * third + clamp(whole % (third * parts) - m->part * third, third);
    }
}

struct ht_part_run ht_unit_part_run(const struct ht_model *part, int64_t unit, int64_t at)
{
    struct ht_param_part own[HT_MAX_PARAM_PARTS], whole[HT_MAX_PARAM_PARTS];
    struct ht_model all = *part;
    all.part = all.parts = 0;
    if (ht_model_parts(part) == 1) return (struct ht_part_run){at, at, ht_unit_params(part, unit) - at, true};
    int i = ht_unit_param_parts(part, unit, own) - 1;
    ht_unit_param_parts(&all, unit, whole);
    while (own[i].offset > at) i--;
    struct ht_part_run r = run_in(part, &own[i], &whole[i], at - own[i].offset);
    r.at += own[i].offset;
    r.whole += whole[i].offset;
    return r;
}

struct ht_part_run ht_unit_part_find(const struct ht_model *part, int64_t unit, int64_t whole_at)
{
    struct ht_param_part own[HT_MAX_PARAM_PARTS], whole[HT_MAX_PARAM_PARTS];
    struct ht_model all = *part;
    all.part = all.parts = 0;
    if (ht_model_parts(part) == 1) return ht_unit_part_run(part, unit, whole_at);
    int n = ht_unit_param_parts(part, unit, own), i = n - 1;
    ht_unit_param_parts(&all, unit, whole);
    while (whole[i].offset > whole_at) i--;
    int64_t at = own[i].offset + find_in(part, &own[i], &whole[i], whole_at - whole[i].offset);
    if (at == ht_unit_params(part, unit)) return (struct ht_part_run){.at = at, .whole = ht_unit_params(&all, unit)};
    return ht_unit_part_run(part, unit, at);
}
