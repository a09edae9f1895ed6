#include "common/ckpt/hf.h"

#include "common/base/array.h"
#include "common/ckpt/hf_names.h"
#include "common/ckpt/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- names ---- */

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

/* Writes the name of a part of BERT. A unit's first norm is there the last of what precedes it: the embedding, or a
   layer. */
static void bert_name(const struct ht_model *m, int64_t unit, const char *part, const char *prefix,
                      char name[HT_HF_NAME_BYTES])
{
    static const char *const others[][2] = {{"wte", "embeddings.word_embeddings.weight"},
                                            {"wpe", "embeddings.position_embeddings.weight"},
                                            {"wtype", "embeddings.token_type_embeddings.weight"},
                                            {"pooler.weight", "pooler.dense.weight"},
                                            {"pooler.bias", "pooler.dense.bias"}};
    const char *kind = strrchr(part, '.'); /* ".weight" or ".bias" */
    bool block = ht_model_unit_kind(m, unit) == HT_UNIT_BLOCK;
    if (!strncmp(part, "ln_1", 4) || !strncmp(part, "ln_f", 4)) {
        if (unit == 1)
            snprintf(name, HT_HF_NAME_BYTES, "%sembeddings.LayerNorm%s", prefix, kind);
        else
            snprintf(name, HT_HF_NAME_BYTES, "%sencoder.layer.%lld.output.LayerNorm%s", prefix, (long long)unit - 2,
                     kind);
    } else if (!strncmp(part, "ln_2", 4)) {
        snprintf(name, HT_HF_NAME_BYTES, "%sencoder.layer.%lld.attention.output.LayerNorm%s", prefix,
                 (long long)unit - 1, kind);
    } else if (block) {
        snprintf(name, HT_HF_NAME_BYTES, "%sencoder.layer.%lld.%s", prefix, (long long)unit - 1, part);
    } else {
        snprintf(name, HT_HF_NAME_BYTES, "%s", part); /* the classifier, outside the prefix */
        for (size_t i = 0; i < HT_COUNT(others); i++)
            if (!strcmp(part, others[i][0])) snprintf(name, HT_HF_NAME_BYTES, "%s%s", prefix, others[i][1]);
    }
}

/* Writes the name of a part of ViT. */
static void vit_name(const struct ht_model *m, int64_t unit, const char *part, const char *prefix,
                     char name[HT_HF_NAME_BYTES])
{
    static const char *const parts[][2] = {{"patch", "embeddings.patch_embeddings.projection"},
                                           {"cls", "embeddings.cls_token"},
                                           {"wpe", "embeddings.position_embeddings"},
                                           {"ln_1", "layernorm_before"},
                                           {"attention.self", "attention.attention"},
                                           {"ln_2", "layernorm_after"},
                                           {"ln_f", "layernorm"}};
    char layer[40] = "";
    if (ht_model_unit_kind(m, unit) == HT_UNIT_BLOCK)
        snprintf(layer, sizeof(layer), "encoder.layer.%lld.", (long long)unit - 1);
    if (!strncmp(part, "classifier", 10)) prefix = ""; /* outside of it */
    for (size_t i = 0; i < HT_COUNT(parts); i++) {
        size_t n = strlen(parts[i][0]);
        if (strncmp(part, parts[i][0], n) != 0 || (part[n] && part[n] != '.')) continue;
        snprintf(name, HT_HF_NAME_BYTES, "%s%s%s%s", prefix, layer, parts[i][1], part + n);
        return;
    }
    snprintf(name, HT_HF_NAME_BYTES, "%s%s%s", prefix, layer, part);
}

void ht_hf_stored_as(const struct ht_model *m, int64_t unit, const struct ht_param_part *part, const char *prefix,
                     struct ht_hf_stored *out)
{
    bool gpt = m->arch == HT_ARCH_GPT, block = ht_model_unit_kind(m, unit) == HT_UNIT_BLOCK;
    bool vector =
        !strncmp(part->name, "ln_", 3) || ends_with(part->name, "norm.weight") || ends_with(part->name, ".bias");
    if (m->arch == HT_ARCH_BERT)
        bert_name(m, unit, part->name, prefix, out->name);
    else if (m->arch == HT_ARCH_VIT)
        vit_name(m, unit, part->name, prefix, out->name);
    else if (block)
        snprintf(out->name, HT_HF_NAME_BYTES, "%s%s.%lld.%s", prefix, gpt ? "h" : "layers", (long long)unit - 1,
                 part->name);
    else if (unit == 0)
        snprintf(out->name, HT_HF_NAME_BYTES, "%s%s%s", prefix, part->name, gpt ? ".weight" : "");
    else
        snprintf(out->name, HT_HF_NAME_BYTES, "%s%s", !strcmp(part->name, "lm_head.weight") ? "" : prefix, part->name);
    out->transposed = gpt && block && !vector;
    out->n_dims = vector ? 1 : 2;
    out->dims[0] = vector || out->transposed ? part->cols : part->rows;
    out->dims[1] = out->transposed ? part->rows : part->cols;
    if (m->arch != HT_ARCH_VIT || unit > 0 || vector) return;
    bool patch = !strcmp(part->name, "patch.weight"); /* the weight of a convolution; else (1, rows, C) */
    int64_t dims[] = {patch ? part->rows : 1, patch ? m->channels : part->rows, patch ? m->patch : part->cols,
                      m->patch};
    out->n_dims = patch ? 4 : 3;
    memcpy(out->dims, dims, sizeof(dims));
}

const char *ht_hf_prefix_of(const struct ht_model *m)
{
    static const char *const prefixes[] = {
        [HT_ARCH_GPT] = "transformer.", [HT_ARCH_LLAMA] = "model.", [HT_ARCH_BERT] = "bert.", [HT_ARCH_VIT] = "vit."};
    return prefixes[m->arch];
}

/* Returns true for buffers that old versions saved beside the weights: causal masks, rotary frequencies, positions. */
static bool is_buffer(const char *name)
{
    return ends_with(name, ".attn.bias") || ends_with(name, ".attn.masked_bias") ||
           ends_with(name, ".rotary_emb.inv_freq") || ends_with(name, "embeddings.position_ids");
}

void ht_hf_transpose(const float *from, int64_t rows, int64_t cols, float *to)
{
    enum { TILE = 32 };
    for (int64_t i0 = 0; i0 < rows; i0 += TILE)
        for (int64_t j0 = 0; j0 < cols; j0 += TILE)
            for (int64_t i = i0; i < rows && i < i0 + TILE; i++)
                for (int64_t j = j0; j < cols && j < j0 + TILE; j++) to[j * rows + i] = from[i * cols + j];
}

/* ---- loading ---- */

struct ht_hf {
    struct ht_model model;
    struct ht_weights *weights;
    const char *prefix; /* of the names */
    float *tile[2];     /* [tile_elements]: as in the file, and transposed */
};

/* Returns a bound on a piece's elements in one tensor after rounding out to whole rows: the piece's and two rows. */
static int64_t tile_elements(const struct ht_model *m)
{
    int64_t widest = 0;
    for (int64_t u = 0; u < ht_model_units(m); u++) {
        struct ht_param_part parts[HT_MAX_PARAM_PARTS];
        int n = ht_unit_param_parts(m, u, parts);
        for (int k = 0; k < n; k++)
            if (parts[k].cols > widest) widest = parts[k].cols;
    }
    return ht_piece_most(m) + 2 * widest;
}

/* Finds the tensor under which a part is stored, and its file; checks its type and shape. */
static enum ht_status find_part(const struct ht_hf *hf, const struct ht_hf_stored *s, struct ht_error *err,
                                const struct ht_safetensors **file, const struct ht_st_tensor **out)
{
    char want[160], got[160];
    const struct ht_st_tensor *t = ht_weights_find(hf->weights, s->name, file);
    ht_st_shape_text(s->n_dims, s->dims, want, sizeof(want));
    if (!t)
        return ht_fail(err, HT_BAD_INPUT, "%s: tensor '%s' of shape %s is missing", ht_weights_name(hf->weights),
                       s->name, want);
    if (t->n_dims != s->n_dims || memcmp(t->dims, s->dims, (size_t)s->n_dims * sizeof(*t->dims)) != 0)
        return ht_fail(err, HT_BAD_INPUT, "%s: tensor '%s': its shape is %s; expected %s for this model",
                       ht_safetensors_name(*file), s->name, ht_st_shape_text(t->n_dims, t->dims, got, sizeof(got)),
                       want);
    *out = t;
    return ht_safetensors_check(*file, t, err);
}

/* Reads elements [first, first + n) of a part (rows, cols) that is stored as (cols, rows). */
static enum ht_status read_transposed(const struct ht_hf *hf, const struct ht_safetensors *file,
                                      const struct ht_st_tensor *t, const struct ht_param_part *part, int64_t first,
                                      int64_t n, float *out, struct ht_error *err)
{
    int64_t row = first / part->cols, rows = (first + n - 1) / part->cols + 1 - row;
    int64_t runs = rows < part->rows ? part->cols : 1, run = rows * part->cols / runs; /* all rows are one run */
    enum ht_status status = HT_OK;
    for (int64_t i = 0; i < runs && status == HT_OK; i++)
        status = ht_safetensors_read(file, t, i * part->rows + row, run, err, hf->tile[0] + i * run);
    if (status != HT_OK) return status;
    ht_hf_transpose(hf->tile[0], part->cols, rows, hf->tile[1]);
    memcpy(out, hf->tile[1] + (first - row * part->cols), (size_t)n * sizeof(*out));
    return HT_OK;
}

/* Reads a piece (struct ht_source.read). */
static enum ht_status read_piece(void *ctx, struct ht_piece piece, float *out, struct ht_error *err)
{
    const struct ht_hf *hf = ctx;
    struct ht_param_part parts[HT_MAX_PARAM_PARTS];
    int n = ht_unit_param_parts(&hf->model, piece.unit, parts);
    enum ht_status status = HT_OK;
    for (int k = 0; k < n && status == HT_OK; k++) {
        struct ht_hf_stored s;
        const struct ht_safetensors *file = NULL;
        const struct ht_st_tensor *t = NULL;
        int64_t first, at, elements = ht_piece_overlap(piece, &parts[k], &first, &at);
        if (!elements) continue;
        ht_hf_stored_as(&hf->model, piece.unit, &parts[k], hf->prefix, &s);
        status = find_part(hf, &s, err, &file, &t);
        if (status != HT_OK) return status;
        status = s.transposed ? read_transposed(hf, file, t, &parts[k], first, elements, out + at, err)
                              : ht_safetensors_read(file, t, first, elements, err, out + at);
    }
    return status;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* Checks that no tensor is left over: with weights that we ignore it would be another model. */
static enum ht_status check_all_used(const struct ht_weights *w, const struct ht_model *m, const char *prefix,
                                     struct ht_error *err)
{
    int64_t n = 0;
    char(*known)[HT_HF_NAME_BYTES] = ht_alloc_array((size_t)(ht_model_units(m) * HT_MAX_PARAM_PARTS), HT_HF_NAME_BYTES);
    enum ht_status status = HT_OK;
    for (int64_t u = 0; u < ht_model_units(m); u++) {
        struct ht_param_part parts[HT_MAX_PARAM_PARTS];
        int n_parts = ht_unit_param_parts(m, u, parts);
        for (int k = 0; k < n_parts; k++) {
            struct ht_hf_stored s;
            ht_hf_stored_as(m, u, &parts[k], prefix, &s);
            memcpy(known[n++], s.name, HT_HF_NAME_BYTES);
        }
    }
    qsort(known, (size_t)n, HT_HF_NAME_BYTES, by_text);
    for (int64_t f = 0; f < ht_weights_files(w) && status == HT_OK; f++) {
        const struct ht_safetensors *file = ht_weights_file(w, f);
        for (int64_t i = 0; i < ht_safetensors_count(file) && status == HT_OK; i++) {
            const char *name = ht_safetensors_at(file, i)->name;
            if (is_buffer(name) || (m->tied && !strcmp(name, "lm_head.weight"))) continue;
            if (strlen(name) >= HT_HF_NAME_BYTES || !bsearch(name, known, (size_t)n, HT_HF_NAME_BYTES, by_text))
                status = ht_fail(err, HT_BAD_INPUT, "%s: tensor '%.200s' has no place in this model",
                                 ht_safetensors_name(file), name);
        }
    }
    free(known);
    return status;
}

/* Checks that every tensor of the model exists. */
static enum ht_status check_all_there(const struct ht_hf *hf, struct ht_error *err)
{
    enum ht_status status = HT_OK;
    for (int64_t u = 0; u < ht_model_units(&hf->model) && status == HT_OK; u++) {
        struct ht_param_part parts[HT_MAX_PARAM_PARTS];
        int n = ht_unit_param_parts(&hf->model, u, parts);
        for (int k = 0; k < n && status == HT_OK; k++) {
            struct ht_hf_stored s;
            const struct ht_safetensors *file = NULL;
            const struct ht_st_tensor *t = NULL;
            ht_hf_stored_as(&hf->model, u, &parts[k], hf->prefix, &s);
            status = find_part(hf, &s, err, &file, &t);
        }
    }
    return status;
}

enum ht_status ht_hf_open(const char *path, struct ht_error *err, struct ht_state *state, struct ht_hf **out)
{
    const struct ht_model *m = &state->model;
    struct ht_hf *hf = HT_NEW(struct ht_hf);
    hf->model = *m;
    enum ht_status status = ht_weights_open(path, err, &hf->weights);
    if (status != HT_OK) goto out;
    static const char *const first[] = {[HT_ARCH_GPT] = "wte.weight",
                                        [HT_ARCH_LLAMA] = "embed_tokens.weight",
                                        [HT_ARCH_BERT] = "embeddings.word_embeddings.weight",
                                        [HT_ARCH_VIT] = "embeddings.cls_token"};
    hf->prefix = ht_weights_find(hf->weights, first[m->arch], NULL) ? "" : ht_hf_prefix_of(m);
    status = check_all_there(hf, err);
    if (status == HT_OK) status = check_all_used(hf->weights, m, hf->prefix, err);
    if (status != HT_OK) goto out;
    for (int i = 0; i < 2; i++) hf->tile[i] = HT_NEW_ARRAY(float, tile_elements(m));
    state->values = (struct ht_source){.read = read_piece, .ctx = hf, .parts = 1u << HT_STATE_PARAM};
    *out = hf;
out:
    if (status != HT_OK) ht_hf_close(hf);
    return status;
}

void ht_hf_close(struct ht_hf *hf)
{
    if (!hf) return;
    ht_weights_close(hf->weights);
    free(hf->tile[0]);
    free(hf->tile[1]);
    free(hf);
}

bool ht_hf_find_dtype(const char *name, enum ht_dtype *out)
{
    static const enum ht_dtype dtypes[] = {HT_F32, HT_F16, HT_BF16};
    for (size_t i = 0; i < HT_COUNT(dtypes); i++) {
        if (strcmp(name, ht_dtype_name(dtypes[i])) != 0) continue;
        *out = dtypes[i];
        return true;
    }
    return false;
}

bool ht_hf_is_file(const char *path)
{
    return ends_with(path, ".safetensors");
}
