/* Writes a model under Hugging Face's names: one file, or a folder whose old model is replaced (model_folder.h). */
#include "common/ckpt/hf.h"

#include "common/base/array.h"
#include "common/ckpt/durable.h"
#include "common/ckpt/hf_names.h"
#include "common/ckpt/model_folder.h"
#include "common/ckpt/weights.h"
#include "common/model/hf_config.h"

#include <assert.h>
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A tensor to be written, in the order of units and parts. */
struct saved {
    struct ht_hf_stored as;
    int64_t unit, shard;
    struct ht_param_part part;
};

struct save {
    const struct ht_state *state;
    enum ht_dtype dtype;
    struct saved *tensors;
    int64_t n, n_shards, total_bytes; /* of all tensors */
    float *piece, *tile;              /* as in the state, and transposed */
    int64_t n_overflows;
};

/* Assigns the tensors to shards: a tensor that would take a shard beyond shard_bytes begins the next. A tensor that is
   larger has its own shard. */
static void spread(struct save *save, int64_t shard_bytes)
{
    const struct ht_model *m = &save->state->model;
    int64_t shard = 0, in_shard = 0;
    save->tensors = HT_NEW_ARRAY(struct saved, save->state->n_units * HT_MAX_PARAM_PARTS);
    for (int64_t u = 0; u < save->state->n_units; u++) {
        struct ht_param_part parts[HT_MAX_PARAM_PARTS];
        int n_parts = ht_unit_param_parts(m, u, parts);
        for (int k = 0; k < n_parts; k++) {
            int64_t bytes = parts[k].rows * parts[k].cols * ht_dtype_bytes(save->dtype);
            if (in_shard && in_shard + bytes > shard_bytes) {
                shard++;
                in_shard = 0;
            }
            in_shard += bytes;
            save->total_bytes += bytes;
            save->tensors[save->n] = (struct saved){.unit = u, .shard = shard, .part = parts[k]};
            ht_hf_stored_as(m, u, &parts[k], ht_hf_prefix_of(m), &save->tensors[save->n++].as);
        }
    }
    save->n_shards = shard + 1;
}

/* Writes rows [row, row + rows) of a part (R, C) to a tensor (C, R): a run of each of its rows, or all of them at
   once. */
static enum ht_status put_columns(struct save *save, struct ht_st_writer *w, int64_t tensor,
                                  const struct ht_param_part *p, int64_t row, int64_t rows, struct ht_error *err)
{
    enum ht_status status = HT_OK;
    ht_hf_transpose(save->piece, rows, p->cols, save->tile);
    if (rows == p->rows) return ht_st_writer_put_at(w, tensor, 0, save->tile, rows * p->cols, err);
    for (int64_t c = 0; c < p->cols && status == HT_OK; c++)
        status = ht_st_writer_put_at(w, tensor, c * p->rows + row, save->tile + c * rows, rows, err);
    return status;
}

/* Writes one tensor, in as many whole rows of the part at a time as a piece may have. */
static enum ht_status put_tensor(struct save *save, struct ht_st_writer *w, int64_t tensor, const struct saved *s,
                                 struct ht_error *err)
{
    const struct ht_param_part *p = &s->part;
    int64_t most = HT_PIECE_ELEMENTS / p->cols;
    enum ht_status status = HT_OK;
    assert(most > 0);
    for (int64_t row = 0, rows; row < p->rows && status == HT_OK; row += rows) {
        rows = p->rows - row < most ? p->rows - row : most;
        int64_t first = row * p->cols, n = rows * p->cols;
        struct ht_piece piece = {
            .unit = s->unit, .part = HT_STATE_PARAM, .begin = p->offset + first, .end = p->offset + first + n};
        status = ht_state_read(save->state, piece, save->piece, err);
        if (status != HT_OK) return status;
        status = s->as.transposed ? put_columns(save, w, tensor, p, row, rows, err)
                                  : ht_st_writer_put_at(w, tensor, first, save->piece, n, err);
    }
    return status;
}

/* Writes tensors [first, first + n), all of one file, and syncs it; the caller commits *out. */
static enum ht_status write_file(struct save *save, const char *path, int64_t first, int64_t n, struct ht_error *err,
                                 struct ht_st_writer **out)
{
    static const char *const metadata[][2] = {{"format", "pt"}};
    const struct saved *saved = save->tensors + first;
    struct ht_st_spec *specs = HT_NEW_ARRAY(struct ht_st_spec, n);
    struct ht_st_writer *w = NULL;
    for (int64_t i = 0; i < n; i++) {
        specs[i] = (struct ht_st_spec){.name = saved[i].as.name, .dtype = save->dtype, .n_dims = saved[i].as.n_dims};
        memcpy(specs[i].dims, saved[i].as.dims, sizeof(saved[i].as.dims));
    }
    enum ht_status status = ht_st_writer_open(path, specs, n, metadata, 1, err, &w);
    for (int64_t i = 0; i < n && status == HT_OK; i++) status = put_tensor(save, w, i, &saved[i], err);
    free(specs);
    if (status == HT_OK) save->n_overflows += ht_st_writer_overflows(w);
    if (status == HT_OK) status = ht_st_writer_sync(w, err);
    if (status == HT_OK)
        *out = w;
    else
        ht_st_writer_discard(w);
    return status;
}

static enum ht_status save_file(struct save *save, const char *path, int64_t first, int64_t n, struct ht_error *err)
{
    struct ht_st_writer *w = NULL;
    enum ht_status status = write_file(save, path, first, n, err, &w);
    return status == HT_OK ? ht_st_writer_commit(w, err, NULL, NULL) : status;
}

/* ---- the small files ---- */

/* Writes a text under a temporary name and syncs it; the caller commits *out. */
static enum ht_status write_text(const char *path, const char *text, struct ht_error *err, struct ht_durable *out)
{
    enum ht_status status = ht_durable_open(path, err, out);
    if (status == HT_OK) status = ht_durable_write(out, text, strlen(text), err);
    return status == HT_OK ? ht_durable_sync(out, err) : status;
}

static enum ht_status write_index(const struct ht_model_folder *f, const struct save *save, struct ht_error *err,
                                  struct ht_durable *out)
{
    json_t *map = json_object();
    char name[64], path[HT_MODEL_PATH_BYTES];
    for (int64_t i = 0; i < save->n; i++) {
        ht_model_folder_name(f, save->tensors[i].shard, name);
        json_object_set_new(map, save->tensors[i].as.name, json_string(name));
    }
    json_t *root =
        json_pack("{s:{s:I,s:I},s:o}", "metadata", "total_size", (json_int_t)save->total_bytes, "total_parameters",
                  (json_int_t)(save->total_bytes / ht_dtype_bytes(save->dtype)), "weight_map", map);
    char *text = json_dumps(root, JSON_INDENT(2) | JSON_SORT_KEYS);
    json_decref(root);
    ht_model_folder_path(f, ht_model_index, path);
    if (!text) return ht_fail(err, HT_FAILED, "%s: cannot be composed", path);
    enum ht_status status = write_text(path, text, err, out);
    free(text);
    return status;
}

/* Returns the new text of an existing config.json, allocated, or NULL if it stays unchanged. A config.json of the same
   model is the user's: only the type of the weights is changed. */
static char *revised(const char *path, const struct ht_state *state, enum ht_dtype dtype, const char *ours)
{
    static const char *const keys[] = {"dtype", "torch_dtype"};
    struct ht_model there;
    char said[2048];
    if (ht_hf_config_load(path, NULL, &there) != HT_OK || there.lacks[0] || there.arch != state->model.arch ||
        ht_hf_config_text(&there, dtype, NULL, said, sizeof(said)) != HT_OK || strcmp(said, ours) != 0)
        return ht_strdup(ours);
    json_t *was = json_load_file(path, 0, NULL), *want = json_loads(ours, 0, NULL), *now = json_deep_copy(was);
    for (size_t i = 0; i < HT_COUNT(keys); i++)
        if (json_object_get(now, keys[i])) json_object_set(now, keys[i], json_object_get(want, keys[i]));
    char *text = NULL;
    if (!now || (!json_equal(was, now) && json_equal(now, want)))
        text = ht_strdup(ours);
    else if (!json_equal(was, now))
        text = json_dumps(now, JSON_INDENT(2));
    json_decref(was);
    json_decref(want);
    json_decref(now);
    return text;
}

/* Writes config.json; *out stays closed if there is nothing to write. */
static enum ht_status write_config(const struct ht_model_folder *f, const struct save *save, struct ht_error *err,
                                   struct ht_durable *out)
{
    char ours[2048], path[HT_MODEL_PATH_BYTES];
    ht_model_folder_path(f, "config.json", path);
    enum ht_status status = ht_hf_config_text(&save->state->model, save->dtype, err, ours, sizeof(ours));
    if (status != HT_OK) return status;
    char *text = revised(path, save->state, save->dtype, ours);
    if (text) status = write_text(path, text, err, out);
    free(text);
    return status;
}

/* ---- a folder ---- */

/* A new model beside the old one: all of its bytes are synced, and no reader looks at them. */
struct prepared {
    struct ht_st_writer *whole; /* the only file of weights; NULL: shards, already under their names */
    struct ht_durable index;    /* names the shards; closed if `whole` is the model */
    struct ht_durable config;   /* closed if the old config.json stays */
};

static void discard(struct prepared *p)
{
    ht_st_writer_discard(p->whole);
    ht_durable_discard(&p->index);
    ht_durable_discard(&p->config);
}

static enum ht_status prepare(const struct ht_model_folder *f, struct save *save, struct ht_error *err,
                              struct prepared *p)
{
    char path[HT_MODEL_PATH_BYTES], name[64];
    enum ht_status status = HT_OK;
    for (int64_t first = 0, i = 0; i < save->n && status == HT_OK; i++) {
        if (i + 1 < save->n && save->tensors[i + 1].shard == save->tensors[i].shard) continue;
        ht_model_folder_name(f, save->tensors[i].shard, name);
        ht_model_folder_path(f, name, path);
        if (f->n_shards == 1)
            status = write_file(save, path, 0, save->n, err, &p->whole);
        else
            status = save_file(save, path, first, i + 1 - first, err);
        first = i + 1;
    }
    if (status == HT_OK && f->n_shards > 1) status = write_index(f, save, err, &p->index);
    if (status == HT_OK) status = write_config(f, save, err, &p->config);
    return status == HT_OK ? ht_sync_directory(f->dir, err) : status;
}

/* Puts the new model in place. The old config.json fits the new weights, unless they belong to another model. In that
   case a process killed between the last two calls leaves one model's config with the other's weights, which every
   reader refuses. */
static enum ht_status replace(const struct ht_model_folder *f, struct prepared *p, struct ht_error *err)
{
    char whole[HT_MODEL_PATH_BYTES];
    ht_model_folder_path(f, ht_model_whole, whole);
    bool hidden = f->n_shards > 1 && access(whole, F_OK) == 0; /* readers ignore the index while this file exists */
    enum ht_status status = HT_OK;
    if (hidden) {
        status = ht_durable_commit(&p->index, err, NULL);
        if (status == HT_OK) status = ht_sync_directory(f->dir, err);
    }
    if (status == HT_OK && p->config.file) status = ht_durable_commit(&p->config, err, NULL);
    if (status == HT_OK && hidden && unlink(whole) != 0)
        status = ht_fail(err, HT_FAILED, "%s: cannot be removed: %s", whole, strerror(errno));
    if (status != HT_OK && hidden) { /* the shards that it names are removed, too */
        ht_model_folder_path(f, ht_model_index, whole);
        unlink(whole);
    }
    if (status != HT_OK || hidden) return status;
    if (f->n_shards > 1) return ht_durable_commit(&p->index, err, NULL);
    struct ht_st_writer *w = p->whole;
    p->whole = NULL;
    return ht_st_writer_commit(w, err, NULL, NULL);
}

static enum ht_status save_folder(const char *dir, struct save *save, struct ht_error *err)
{
    struct ht_model_folder f;
    struct prepared p = {0};
    if (mkdir(dir, 0777) != 0 && errno != EEXIST)
        return ht_fail(err, HT_BAD_INPUT, "%s: cannot be made: %s", dir, strerror(errno));
    enum ht_status status = ht_model_folder_begin(dir, save->n_shards, err, &f);
    if (status != HT_OK) return status;
    status = prepare(&f, save, err, &p);
    if (status == HT_OK) status = replace(&f, &p, err);
    if (status == HT_OK) {
        status = ht_sync_directory(dir, err);
        if (status == HT_OK) status = ht_model_folder_retire(&f, err);
    } else {
        ht_model_folder_abandon(&f);
    }
    discard(&p);
    ht_model_folder_end(&f);
    return status;
}

/* ---- a file ---- */

static bool is_called(const char *file, const void *name)
{
    return strcmp(file, name) == 0;
}

static enum ht_status save_alone(const char *path, struct save *save, struct ht_error *err)
{
    char target[HT_MODEL_PATH_BYTES], folder[HT_MODEL_PATH_BYTES];
    enum ht_status status = ht_follow_links(path, err, target);
    if (status != HT_OK) return status;
    const char *slash = strrchr(target, '/');
    snprintf(folder, sizeof(folder), "%.*s", slash ? (int)(slash - target) + 1 : 2, slash ? target : "./");
    ht_durable_sweep(folder, is_called, slash ? slash + 1 : target);
    status = save_file(save, target, 0, save->n, err);
    return status == HT_OK ? ht_sync_directory(folder, err) : status;
}

enum ht_status ht_hf_save(const char *path, const struct ht_state *state, enum ht_dtype dtype, int64_t shard_bytes,
                          int64_t *n_overflows, struct ht_error *err)
{
    bool file = ht_hf_is_file(path);
    if (strlen(path) > HT_MODEL_PATH_BYTES - 128)
        return ht_fail(err, HT_BAD_INPUT, "%.60s...: the path is too long", path);
    struct save save = {.state = state,
                        .dtype = dtype,
                        .piece = HT_NEW_ARRAY(float, ht_piece_most(&state->model)),
                        .tile = HT_NEW_ARRAY(float, ht_piece_most(&state->model))};
    enum ht_status status;
    spread(&save, file ? INT64_MAX : shard_bytes);
    if (file)
        status = save_alone(path, &save, err);
    else if (save.n_shards > 99999)
        status = ht_fail(err, HT_BAD_INPUT, "%s: %lld shards are more than their names can count", path,
                         (long long)save.n_shards);
    else
        status = save_folder(path, &save, err);
    if (n_overflows) *n_overflows = save.n_overflows;
    free(save.piece);
    free(save.tile);
    free(save.tensors);
    return status;
}
