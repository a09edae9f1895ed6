#include "common/ckpt/hf.h"

#include "common/base/array.h"
#include "common/ckpt/durable.h"
#include "common/ckpt/weights.h"
#include "common/model/hf_config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { NAME_BYTES = 128 };

/* ---- names ---- */

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

/* The tensor that a part is stored as. */
struct stored {
    char name[NAME_BYTES];
    bool transposed;
    int n_dims;
    int64_t dims[2];
};

static void stored_as(const struct ht_model *m, int64_t unit, const struct ht_param_part *part, const char *prefix,
                      struct stored *out)
{
    bool gpt = m->arch == HT_ARCH_GPT, block = ht_model_unit_kind(m, unit) == HT_UNIT_BLOCK;
    bool vector =
        !strncmp(part->name, "ln_", 3) || ends_with(part->name, "norm.weight") || ends_with(part->name, ".bias");
    if (block)
        snprintf(out->name, NAME_BYTES, "%s%s.%lld.%s", prefix, gpt ? "h" : "layers", (long long)unit - 1, part->name);
    else if (unit == 0)
        snprintf(out->name, NAME_BYTES, "%s%s%s", prefix, part->name, gpt ? ".weight" : "");
    else
        snprintf(out->name, NAME_BYTES, "%s%s", !strcmp(part->name, "lm_head.weight") ? "" : prefix, part->name);
    out->transposed = gpt && block && !vector;
    out->n_dims = vector ? 1 : 2;
    out->dims[0] = vector || out->transposed ? part->cols : part->rows;
    out->dims[1] = out->transposed ? part->rows : part->cols;
}

/* What stands before the names of a whole model's tensors. */
static const char *prefix_of(const struct ht_model *m)
{
    return m->arch == HT_ARCH_GPT ? "transformer." : "model.";
}

/* Buffers that old versions saved beside the weights: causal masks, rotary frequencies. */
static bool is_buffer(const char *name)
{
    return ends_with(name, ".attn.bias") || ends_with(name, ".attn.masked_bias") ||
           ends_with(name, ".rotary_emb.inv_freq");
}

/* to (cols, rows) = from (rows, cols), by tiles that fit a cache. */
static void transpose(const float *from, int64_t rows, int64_t cols, float *to)
{
    enum { TILE = 32 };
    for (int64_t i0 = 0; i0 < rows; i0 += TILE)
        for (int64_t j0 = 0; j0 < cols; j0 += TILE)
            for (int64_t i = i0; i < rows && i < i0 + TILE; i++)
                for (int64_t j = j0; j < cols && j < j0 + TILE; j++) to[j * rows + i] = from[i * cols + j];
}

static int64_t largest_part(const struct ht_model *m)
{
    int64_t most = 0;
    for (int64_t u = 0; u < ht_model_units(m); u++) {
        struct ht_param_part parts[HT_MAX_PARAM_PARTS];
        int n = ht_unit_param_parts(m, u, parts);
        for (int k = 0; k < n; k++)
            if (parts[k].rows * parts[k].cols > most) most = parts[k].rows * parts[k].cols;
    }
    return most;
}

/* ---- loading ---- */

static enum ht_status load_part(const struct ht_weights *w, const struct stored *s, const struct ht_param_part *part,
                                struct ht_error *err, float *scratch, float *out)
{
    char want[160], got[160];
    const struct ht_safetensors *file = NULL;
    const struct ht_st_tensor *t = ht_weights_find(w, s->name, &file);
    ht_st_shape_text(s->n_dims, s->dims, want, sizeof(want));
    if (!t)
        return ht_fail(err, HT_BAD_INPUT, "%s: tensor '%s' of shape %s is missing", ht_weights_name(w), s->name, want);
    if (t->n_dims != s->n_dims || memcmp(t->dims, s->dims, (size_t)s->n_dims * sizeof(*t->dims)) != 0)
        return ht_fail(err, HT_BAD_INPUT, "%s: tensor '%s': its shape is %s; expected %s for this model",
                       ht_safetensors_name(file), s->name, ht_st_shape_text(t->n_dims, t->dims, got, sizeof(got)),
                       want);
    enum ht_status status = ht_safetensors_read(file, t, err, s->transposed ? scratch : out);
    if (status == HT_OK && s->transposed) transpose(scratch, part->cols, part->rows, out);
    return status;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* Nothing may be left over: weights that we ignored would make it another model. */
static enum ht_status check_all_used(const struct ht_weights *w, const struct ht_model *m, const char *prefix,
                                     struct ht_error *err)
{
    int64_t n = 0;
    char(*known)[NAME_BYTES] = ht_alloc((size_t)(ht_model_units(m) * HT_MAX_PARAM_PARTS) * NAME_BYTES);
    enum ht_status status = HT_OK;
    for (int64_t u = 0; u < ht_model_units(m); u++) {
        struct ht_param_part parts[HT_MAX_PARAM_PARTS];
        int n_parts = ht_unit_param_parts(m, u, parts);
        for (int k = 0; k < n_parts; k++) {
            struct stored s;
            stored_as(m, u, &parts[k], prefix, &s);
            memcpy(known[n++], s.name, NAME_BYTES);
        }
    }
    qsort(known, (size_t)n, NAME_BYTES, by_text);
    for (int64_t f = 0; f < ht_weights_files(w) && status == HT_OK; f++) {
        const struct ht_safetensors *file = ht_weights_file(w, f);
        for (int64_t i = 0; i < ht_safetensors_count(file) && status == HT_OK; i++) {
            const char *name = ht_safetensors_at(file, i)->name;
            if (is_buffer(name) || (m->tied && !strcmp(name, "lm_head.weight"))) continue;
            if (strlen(name) >= NAME_BYTES || !bsearch(name, known, (size_t)n, NAME_BYTES, by_text))
                status = ht_fail(err, HT_BAD_INPUT, "%s: tensor '%.200s' has no place in this model",
                                 ht_safetensors_name(file), name);
        }
    }
    for (char *p = err && status ? err->text : NULL; p && *p; p++)
        if ((unsigned char)*p < ' ') *p = '?'; /* a name may hold anything; a complaint is one line */
    free(known);
    return status;
}

enum ht_status ht_hf_load(const char *path, struct ht_error *err, struct ht_state *state)
{
    const struct ht_model *m = &state->model;
    struct ht_weights *w = NULL;
    enum ht_status status = ht_weights_open(path, err, &w);
    if (status != HT_OK) return status;
    const char *first = m->arch == HT_ARCH_GPT ? "wte.weight" : "embed_tokens.weight";
    const char *prefix = ht_weights_find(w, first, NULL) ? "" : prefix_of(m);
    float *scratch = HT_NEW_ARRAY(float, largest_part(m));
    for (int64_t u = 0; u < state->n_units && status == HT_OK; u++) {
        struct ht_param_part parts[HT_MAX_PARAM_PARTS];
        int n = ht_unit_param_parts(m, u, parts);
        for (int k = 0; k < n && status == HT_OK; k++) {
            struct stored s;
            stored_as(m, u, &parts[k], prefix, &s);
            status =
                load_part(w, &s, &parts[k], err, scratch, state->units[u].values[HT_STATE_PARAM] + parts[k].offset);
        }
    }
    if (status == HT_OK) status = check_all_used(w, m, prefix, err);
    free(scratch);
    ht_weights_close(w);
    return status;
}

/* ---- saving ---- */

static enum ht_status save_weights(const char *path, const struct ht_state *state, enum ht_dtype dtype,
                                   struct ht_error *err)
{
    static const char *const metadata[][2] = {{"format", "pt"}};
    const struct ht_model *m = &state->model;
    int64_t n = 0, most = state->n_units * HT_MAX_PARAM_PARTS;
    struct stored *stored = HT_NEW_ARRAY(struct stored, most);
    struct ht_st_spec *specs = HT_NEW_ARRAY(struct ht_st_spec, most);
    struct ht_st_writer *w = NULL;
    for (int64_t u = 0; u < state->n_units; u++) {
        struct ht_param_part parts[HT_MAX_PARAM_PARTS];
        int n_parts = ht_unit_param_parts(m, u, parts);
        for (int k = 0; k < n_parts; k++, n++) {
            stored_as(m, u, &parts[k], prefix_of(m), &stored[n]);
            specs[n] = (struct ht_st_spec){.name = stored[n].name,
                                           .dtype = dtype,
                                           .n_dims = stored[n].n_dims,
                                           .dims = {stored[n].dims[0], stored[n].dims[1]}};
        }
    }
    float *scratch = HT_NEW_ARRAY(float, largest_part(m));
    enum ht_status status = ht_st_writer_open(path, specs, n, metadata, 1, err, &w);
    n = 0;
    for (int64_t u = 0; u < state->n_units && status == HT_OK; u++) {
        struct ht_param_part parts[HT_MAX_PARAM_PARTS];
        int n_parts = ht_unit_param_parts(m, u, parts);
        for (int k = 0; k < n_parts && status == HT_OK; k++, n++) {
            const float *values = state->units[u].values[HT_STATE_PARAM] + parts[k].offset;
            if (stored[n].transposed) transpose(values, parts[k].rows, parts[k].cols, scratch);
            status = ht_st_writer_put(w, stored[n].transposed ? scratch : values, err);
        }
    }
    if (status == HT_OK)
        status = ht_st_writer_commit(w, err, NULL, NULL);
    else
        ht_st_writer_discard(w);
    free(scratch);
    free(specs);
    free(stored);
    return status;
}

static enum ht_status save_config(const char *path, const struct ht_model *m, enum ht_dtype dtype, struct ht_error *err)
{
    char text[2048];
    struct ht_durable file;
    enum ht_status status = ht_hf_config_text(m, dtype, err, text, sizeof(text));
    if (status == HT_OK) status = ht_durable_open(path, err, &file);
    if (status != HT_OK) return status;
    status = ht_durable_write(&file, text, strlen(text), err);
    return status == HT_OK ? ht_durable_commit(&file, err, NULL) : status;
}

enum ht_status ht_hf_save(const char *dir, const struct ht_state *state, enum ht_dtype dtype, struct ht_error *err)
{
    char weights[4096], config[4096];
    enum ht_status status;
    if (strlen(dir) > sizeof(weights) - 64) return ht_fail(err, HT_BAD_INPUT, "%.60s...: the path is too long", dir);
    if (mkdir(dir, 0777) != 0 && errno != EEXIST)
        return ht_fail(err, HT_BAD_INPUT, "%s: cannot be made: %s", dir, strerror(errno));
    snprintf(weights, sizeof(weights), "%s/model.safetensors", dir);
    snprintf(config, sizeof(config), "%s/config.json", dir);
    status = save_weights(weights, state, dtype, err);
    if (status == HT_OK) status = save_config(config, &state->model, dtype, err);
    return status == HT_OK ? ht_sync_directory(dir, err) : status;
}
