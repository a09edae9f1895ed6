#include "common/ckpt/weights.h"

#include "common/base/array.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_SHARDS = 10000, MAX_INDEX_BYTES = HT_ST_MAX_HEADER_BYTES };

struct ht_weights {
    char *name;
    struct ht_safetensors **files;
    int64_t n_files;
    size_t files_cap;
};

void ht_weights_close(struct ht_weights *w)
{
    if (!w) return;
    for (int64_t i = 0; i < w->n_files; i++) ht_safetensors_close(w->files[i]);
    free(w->files);
    free(w->name);
    free(w);
}

static enum ht_status add_file(struct ht_weights *w, const char *path, struct ht_error *err,
                               struct ht_safetensors **out)
{
    struct ht_safetensors *st = NULL;
    if (w->n_files == MAX_SHARDS)
        return ht_fail(err, HT_BAD_INPUT, "%.200s: names more than %d shards", w->name, MAX_SHARDS);
    enum ht_status status = ht_safetensors_open(path, err, &st);
    if (status != HT_OK) return status;
    HT_PUSH(w->files, w->n_files, w->files_cap, st);
    *out = st;
    return HT_OK;
}

/* ---- an index ---- */

static enum ht_status complain(const struct ht_weights *w, struct ht_error *err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static enum ht_status complain(const struct ht_weights *w, struct ht_error *err, const char *fmt, ...)
{
    char text[700];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return ht_fail(err, HT_BAD_INPUT, "%.300s: %s", w->name, text);
}

/* Returns the shard of a tensor; opens it the first time it is named. */
static enum ht_status shard_of(struct ht_weights *w, const char *tensor, const char *file, json_t *opened,
                               struct ht_error *err, struct ht_safetensors **out)
{
    char path[4096];
    const json_t *known = json_object_get(opened, file);
    if (known) {
        *out = w->files[json_integer_value(known)];
        return HT_OK;
    }
    if (!file[0] || strchr(file, '/'))
        return complain(w, err, "tensor '%.200s': '%.200s' is not the plain name of a file beside the index", tensor,
                        file);
    const char *slash = strrchr(w->name, '/');
    int n = snprintf(path, sizeof(path), "%.*s%s", slash ? (int)(slash - w->name) + 1 : 0, w->name, file);
    if (n < 0 || n >= (int)sizeof(path)) return complain(w, err, "the path of shard '%.200s' is too long", file);
    enum ht_status status = add_file(w, path, err, out);
    if (status == HT_OK) json_object_set_new(opened, file, json_integer(w->n_files - 1));
    return status;
}

static enum ht_status read_map(struct ht_weights *w, json_t *map, struct ht_error *err)
{
    json_t *opened = json_object(), *value;
    const char *tensor;
    enum ht_status status = HT_OK;
    if (!json_is_object(map) || json_object_size(map) == 0)
        status = complain(w, err, "has no weight_map; expected {\"weight_map\": {tensor: file, ...}}");
    else
        json_object_foreach(map, tensor, value)
        {
            struct ht_safetensors *st = NULL;
            if (!json_is_string(value))
                status = complain(w, err, "tensor '%.200s': expected the name of a file", tensor);
            else
                status = shard_of(w, tensor, json_string_value(value), opened, err, &st);
            if (status == HT_OK && !ht_safetensors_find(st, tensor))
                status = complain(w, err, "tensor '%.200s' is not in '%.200s', where the index says that it is", tensor,
                                  json_string_value(value));
            if (status != HT_OK) break;
        }
    for (int64_t i = 0; i < w->n_files && status == HT_OK; i++)
        for (int64_t k = 0; k < ht_safetensors_count(w->files[i]) && status == HT_OK; k++) {
            const char *name = ht_safetensors_at(w->files[i], k)->name;
            const char *file = json_string_value(json_object_get(map, name));
            if (!file || json_integer_value(json_object_get(opened, file)) != i)
                status = complain(w, err, "tensor '%.200s' of '%.200s' is not in the index, or in another shard too",
                                  name, ht_safetensors_name(w->files[i]));
        }
    json_decref(opened);
    return status;
}

static enum ht_status read_index(struct ht_weights *w, struct ht_error *err)
{
    struct stat sb;
    json_error_t why;
    if (stat(w->name, &sb) != 0 || !S_ISREG(sb.st_mode))
        return complain(w, err, "cannot be opened; expected an index of safetensors files");
    if (sb.st_size > MAX_INDEX_BYTES)
        return complain(w, err, "is larger than %d bytes; expected an index of safetensors files", MAX_INDEX_BYTES);
    json_t *root = json_load_file(w->name, JSON_REJECT_DUPLICATES, &why);
    if (!root) return complain(w, err, "line %d, column %d: %s; expected JSON", why.line, why.column, why.text);
    enum ht_status status = read_map(w, json_object_get(root, "weight_map"), err);
    json_decref(root);
    return status;
}

/* ---- paths ---- */

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

enum ht_status ht_weights_open(const char *path, struct ht_error *err, struct ht_weights **out)
{
    static const char whole[] = "model.safetensors", index[] = "model.safetensors.index.json";
    struct stat sb;
    char found[4096];
    if (strlen(path) + sizeof(index) + 1 > sizeof(found))
        return ht_fail(err, HT_BAD_INPUT, "%.60s...: the path is too long", path);
    snprintf(found, sizeof(found), "%s", path);
    if (stat(path, &sb) == 0 && S_ISDIR(sb.st_mode)) {
        snprintf(found, sizeof(found), "%s/%s", path, whole);
        if (access(found, F_OK) != 0) snprintf(found, sizeof(found), "%s/%s", path, index);
        if (access(found, F_OK) != 0)
            return ht_fail(err, HT_BAD_INPUT, "%s: holds neither %s nor %s", path, whole, index);
    }
    struct ht_weights *w = HT_NEW(struct ht_weights);
    struct ht_safetensors *st;
    w->name = ht_strdup(found);
    enum ht_status status = ends_with(found, ".index.json") ? read_index(w, err) : add_file(w, found, err, &st);
    if (status == HT_OK)
        *out = w;
    else
        ht_weights_close(w);
    return status;
}

const char *ht_weights_name(const struct ht_weights *w)
{
    return w->name;
}

int64_t ht_weights_files(const struct ht_weights *w)
{
    return w->n_files;
}

const struct ht_safetensors *ht_weights_file(const struct ht_weights *w, int64_t index)
{
    return w->files[index];
}

const struct ht_st_tensor *ht_weights_find(const struct ht_weights *w, const char *name,
                                           const struct ht_safetensors **file)
{
    for (int64_t i = 0; i < w->n_files; i++) {
        const struct ht_st_tensor *t = ht_safetensors_find(w->files[i], name);
        if (!t) continue;
        if (file) *file = w->files[i];
        return t;
    }
    return NULL;
}
