#include "common/ckpt/hf.h"

#include "common/base/array.h"
#include "common/ckpt/durable.h"
#include "common/ckpt/weights.h"
#include "common/model/hf_config.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* A tensor to be written, in the order of units and parts. */
struct saved {
    struct stored as;
    int64_t unit, shard;
    struct ht_param_part part;
};

/* The tensors of a model, spread over shards: the next one begins where a tensor would take this one beyond
   shard_bytes; a tensor that is larger has one of its own. *total_bytes is of all tensors. */
static struct saved *spread(const struct ht_state *state, enum ht_dtype dtype, int64_t shard_bytes, int64_t *n,
                            int64_t *n_shards, int64_t *total_bytes)
{
    const struct ht_model *m = &state->model;
    struct saved *all = HT_NEW_ARRAY(struct saved, state->n_units * HT_MAX_PARAM_PARTS);
    int64_t shard = 0, in_shard = 0;
    *n = *total_bytes = 0;
    for (int64_t u = 0; u < state->n_units; u++) {
        struct ht_param_part parts[HT_MAX_PARAM_PARTS];
        int n_parts = ht_unit_param_parts(m, u, parts);
        for (int k = 0; k < n_parts; k++) {
            int64_t bytes = parts[k].rows * parts[k].cols * ht_dtype_bytes(dtype);
            if (in_shard && in_shard + bytes > shard_bytes) {
                shard++;
                in_shard = 0;
            }
            in_shard += bytes;
            *total_bytes += bytes;
            all[*n] = (struct saved){.unit = u, .shard = shard, .part = parts[k]};
            stored_as(m, u, &parts[k], prefix_of(m), &all[(*n)++].as);
        }
    }
    *n_shards = shard + 1;
    return all;
}

/* Writes tensors [0, n), all of one file. */
static enum ht_status save_file(const char *path, const struct ht_state *state, enum ht_dtype dtype,
                                const struct saved *saved, int64_t n, float *scratch, struct ht_error *err)
{
    static const char *const metadata[][2] = {{"format", "pt"}};
    struct ht_st_spec *specs = HT_NEW_ARRAY(struct ht_st_spec, n);
    struct ht_st_writer *w = NULL;
    for (int64_t i = 0; i < n; i++)
        specs[i] = (struct ht_st_spec){.name = saved[i].as.name,
                                       .dtype = dtype,
                                       .n_dims = saved[i].as.n_dims,
                                       .dims = {saved[i].as.dims[0], saved[i].as.dims[1]}};
    enum ht_status status = ht_st_writer_open(path, specs, n, metadata, 1, err, &w);
    for (int64_t i = 0; i < n && status == HT_OK; i++) {
        const struct ht_param_part *p = &saved[i].part;
        const float *values = state->units[saved[i].unit].values[HT_STATE_PARAM] + p->offset;
        if (saved[i].as.transposed) transpose(values, p->rows, p->cols, scratch);
        status = ht_st_writer_put(w, saved[i].as.transposed ? scratch : values, err);
    }
    free(specs);
    if (status == HT_OK) return ht_st_writer_commit(w, err, NULL, NULL);
    ht_st_writer_discard(w);
    return status;
}

static enum ht_status save_text(const char *path, const char *text, struct ht_error *err)
{
    struct ht_durable file;
    enum ht_status status = ht_durable_open(path, err, &file);
    if (status != HT_OK) return status;
    status = ht_durable_write(&file, text, strlen(text), err);
    return status == HT_OK ? ht_durable_commit(&file, err, NULL) : status;
}

static void shard_name(int64_t shard, int64_t n_shards, char name[NAME_BYTES])
{
    if (n_shards == 1)
        snprintf(name, NAME_BYTES, "model.safetensors");
    else
        snprintf(name, NAME_BYTES, "model-%05lld-of-%05lld.safetensors", (long long)shard + 1, (long long)n_shards);
}

static enum ht_status save_index(const char *path, enum ht_dtype dtype, const struct saved *saved, int64_t n,
                                 int64_t n_shards, int64_t total_bytes, struct ht_error *err)
{
    json_t *map = json_object();
    char name[NAME_BYTES];
    for (int64_t i = 0; i < n; i++) {
        shard_name(saved[i].shard, n_shards, name);
        json_object_set_new(map, saved[i].as.name, json_string(name));
    }
    json_t *root = json_pack("{s:{s:I,s:I},s:o}", "metadata", "total_size", (json_int_t)total_bytes, "total_parameters",
                             (json_int_t)(total_bytes / ht_dtype_bytes(dtype)), "weight_map", map);
    char *text = json_dumps(root, JSON_INDENT(2) | JSON_SORT_KEYS);
    json_decref(root);
    if (!text) return ht_fail(err, HT_FAILED, "%s: cannot be composed", path);
    enum ht_status status = save_text(path, text, err);
    free(text);
    return status;
}

static bool is_shard(const char *name)
{
    int at = 0;
    return sscanf(name, "model-%*5[0-9]-of-%*5[0-9].safetensors%n", &at) == 0 && at > 0 && !name[at];
}

/* Removes what would be read instead of, or beside, what is about to be written: an index, and shards that are not
   among n_shards. */
static enum ht_status sweep(const char *dir, int64_t n_shards, bool whole_too, struct ht_error *err)
{
    DIR *d = opendir(dir);
    if (!d) return ht_fail(err, HT_FAILED, "%s: cannot be read: %s", dir, strerror(errno));
    enum ht_status status = HT_OK;
    for (const struct dirent *e = readdir(d); e && status == HT_OK; e = readdir(d)) {
        char end[NAME_BYTES];
        snprintf(end, sizeof(end), "-of-%05lld.safetensors", (long long)n_shards);
        bool stale = !strcmp(e->d_name, "model.safetensors.index.json") ||
                     (is_shard(e->d_name) && (n_shards == 1 || !ends_with(e->d_name, end))) ||
                     (whole_too && !strcmp(e->d_name, "model.safetensors"));
        if (stale && unlinkat(dirfd(d), e->d_name, 0) != 0)
            status = ht_fail(err, HT_FAILED, "%s/%s: cannot be removed: %s", dir, e->d_name, strerror(errno));
    }
    closedir(d);
    return status;
}

bool ht_hf_is_file(const char *path)
{
    return ends_with(path, ".safetensors");
}

/* In an order that leaves no mixture of old and new shards under an index: whoever is killed in between leaves the old
   model.safetensors, or a folder that says what it lacks. */
static enum ht_status save_folder(const char *dir, const struct ht_state *state, enum ht_dtype dtype,
                                  const struct saved *saved, int64_t n, int64_t n_shards, int64_t total_bytes,
                                  float *scratch, struct ht_error *err)
{
    char path[4096], name[NAME_BYTES], text[2048];
    if (mkdir(dir, 0777) != 0 && errno != EEXIST)
        return ht_fail(err, HT_BAD_INPUT, "%s: cannot be made: %s", dir, strerror(errno));
    enum ht_status status = sweep(dir, n_shards, false, err);
    for (int64_t first = 0, i = 0; i < n && status == HT_OK; i++) {
        if (i + 1 < n && saved[i + 1].shard == saved[i].shard) continue;
        shard_name(saved[i].shard, n_shards, name);
        snprintf(path, sizeof(path), "%s/%s", dir, name);
        status = save_file(path, state, dtype, saved + first, i + 1 - first, scratch, err);
        first = i + 1;
    }
    snprintf(path, sizeof(path), "%s/config.json", dir);
    if (status == HT_OK) status = ht_hf_config_text(&state->model, dtype, err, text, sizeof(text));
    if (status == HT_OK) status = save_text(path, text, err);
    if (status == HT_OK && n_shards > 1) {
        snprintf(path, sizeof(path), "%s/model.safetensors.index.json", dir);
        status = sweep(dir, n_shards, true, err);
        if (status == HT_OK) status = save_index(path, dtype, saved, n, n_shards, total_bytes, err);
    }
    return status == HT_OK ? ht_sync_directory(dir, err) : status;
}

enum ht_status ht_hf_save(const char *path, const struct ht_state *state, enum ht_dtype dtype, int64_t shard_bytes,
                          struct ht_error *err)
{
    int64_t n, n_shards, total_bytes;
    bool file = ht_hf_is_file(path);
    if (strlen(path) > 4096 - 64) return ht_fail(err, HT_BAD_INPUT, "%.60s...: the path is too long", path);
    struct saved *saved = spread(state, dtype, file ? INT64_MAX : shard_bytes, &n, &n_shards, &total_bytes);
    float *scratch = HT_NEW_ARRAY(float, largest_part(&state->model));
    enum ht_status status;
    if (file)
        status = save_file(path, state, dtype, saved, n, scratch, err);
    else if (n_shards > 99999)
        status = ht_fail(err, HT_BAD_INPUT, "%s: %lld shards are more than their names can count", path,
                         (long long)n_shards);
    else
        status = save_folder(path, state, dtype, saved, n, n_shards, total_bytes, scratch, err);
    free(scratch);
    free(saved);
    return status;
}
