/* Tensor-parallel parts of a model: where what a part has lies in the whole. */
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

/* Rows of the token table that every part but the last has. */
static int64_t tokens_each(const struct ht_model *m)
{
    return (m->vocab + ht_model_parts(m) - 1) / ht_model_parts(m);
}

int64_t ht_model_first_token(const struct ht_model *m)
{
    return m->part * tokens_each(m);
}

int64_t ht_model_vocab(const struct ht_model *m)
{
    int64_t left = m->vocab - ht_model_first_token(m), each = tokens_each(m);
    return left < each ? left : each;
}

const char *ht_model_cannot_part(const struct ht_model *m, int32_t parts, char *buf, size_t n)
{
    struct ht_model last = *m;
    last.part = parts - 1;
    last.parts = parts;
    int64_t kv_heads = m->kv_heads ? m->kv_heads : m->heads;
    if (m->heads % parts)
        snprintf(buf, n, "%lld heads", (long long)m->heads);
    else if (kv_heads % parts)
        snprintf(buf, n, "%lld heads of keys", (long long)kv_heads);
    else if (m->ffn % parts)
        snprintf(buf, n, "%lld columns of the feed-forward network", (long long)m->ffn);
    else if (ht_model_vocab(&last) < 1)
        snprintf(buf, n, "%lld tokens", (long long)m->vocab);
    else
        return NULL;
    return buf;
}

/* The run from element `at` of a matrix or vector on; p: as the part has it, w: as the whole does. */
static struct ht_part_run run_in(const struct ht_model *m, const struct ht_param_part *p, const struct ht_param_part *w,
                                 int64_t at)
{
    int64_t n = p->rows * p->cols, thirds = p->split == HT_SPLIT_OUT_OF_3 ? 3 : 1, third = n / thirds;
    switch (p->split) {
    case HT_SPLIT_NONE:
        return (struct ht_part_run){w->offset + at, n - at, true};
    case HT_SPLIT_TOKENS:
        return (struct ht_part_run){w->offset + ht_model_first_token(m) * w->cols + at, n - at, false};
    case HT_SPLIT_IN:
        return (struct ht_part_run){w->offset + at / p->cols * w->cols + m->part * p->cols + at % p->cols,
                                    p->cols - at % p->cols, false};
    default: /* as many parts of each third as there are */
        return (struct ht_part_run){w->offset + (at / third * ht_model_parts(m) + m->part) * third + at % third,
                                    third - at % third, false};
    }
}

struct ht_part_run ht_unit_part_run(const struct ht_model *part, int64_t unit, int64_t at)
{
    struct ht_param_part own[HT_MAX_PARAM_PARTS], whole[HT_MAX_PARAM_PARTS];
    struct ht_model all = *part;
    all.part = all.parts = 0;
    if (ht_model_parts(part) == 1) return (struct ht_part_run){at, ht_unit_params(part, unit) - at, true};
    int n = ht_unit_param_parts(part, unit, own), i = n - 1;
    ht_unit_param_parts(&all, unit, whole);
    while (own[i].offset > at) i--;
    return run_in(part, &own[i], &whole[i], at - own[i].offset);
}
