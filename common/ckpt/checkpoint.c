#include "common/ckpt/checkpoint.h"

#include "common/base/array.h"
#include "common/ckpt/durable.h"
#include "common/ckpt/manifest.h"
#include "common/ckpt/safetensors.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES = 4096, NAME_BYTES = 64 };

struct ht_checkpoints {
    char dir[PATH_BYTES - 256];
    int64_t keep;
    int lock;
    int64_t *steps; /* ascending */
    int64_t n_steps;
    size_t steps_cap;
    struct ht_model model; /* of the loaded step */
    int64_t loaded, unit;  /* the loaded step; the unit whose file is open */
    struct ht_safetensors *file;
};

/* ---- the folder ---- */

static void path_of(const struct ht_checkpoints *c, const char *kind, int64_t step, const char *file,
                    char path[PATH_BYTES])
{
    snprintf(path, PATH_BYTES, "%s/%s%010lld%s%s", c->dir, kind, (long long)step, file ? "/" : "", file ? file : "");
}

/* Returns the number of "step-0000000100", 100; -1 for any other name. */
static int64_t step_of(const char *name)
{
    int64_t step = 0;
    char again[NAME_BYTES];
    if (strncmp(name, "step-", 5) != 0 || strlen(name) > 5 + 18) return -1;
    for (const char *p = name + 5; *p; p++) {
        if (*p < '0' || *p > '9') return -1;
        step = 10 * step + (*p - '0');
    }
    snprintf(again, sizeof(again), "step-%010lld", (long long)step);
    return strcmp(name, again) == 0 ? step : -1;
}

/* Removes the files, then the folder. Leaves what cannot be removed: the next open sweeps again. */
static void remove_folder(const char *path)
{
    DIR *d = opendir(path);
    if (!d) return;
    for (const struct dirent *e = readdir(d); e; e = readdir(d))
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) unlinkat(dirfd(d), e->d_name, 0);
    closedir(d);
    rmdir(path);
}

static int ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Lists the steps and sweeps what killed processes left. */
static enum ht_status scan(struct ht_checkpoints *c, struct ht_error *err)
{
    DIR *d = opendir(c->dir);
    if (!d) return ht_fail(err, HT_BAD_INPUT, "%s: cannot be read: %s", c->dir, strerror(errno));
    for (const struct dirent *e = readdir(d); e; e = readdir(d)) {
        int64_t step = step_of(e->d_name);
        if (step >= 0) HT_PUSH(c->steps, c->n_steps, c->steps_cap, step);
        if (strncmp(e->d_name, ".partial-", 9) != 0 && strncmp(e->d_name, ".removed-", 9) != 0) continue;
        char path[PATH_BYTES];
        int n = snprintf(path, sizeof(path), "%s/%s", c->dir, e->d_name);
        if (n > 0 && n < (int)sizeof(path)) remove_folder(path);
    }
    closedir(d);
    if (c->n_steps) qsort(c->steps, (size_t)c->n_steps, sizeof(*c->steps), ascending);
    return HT_OK;
}

static enum ht_status take_lock(struct ht_checkpoints *c, struct ht_error *err)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof(path), "%s/.lock", c->dir);
    c->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (c->lock < 0) return ht_fail(err, HT_BAD_INPUT, "%s: cannot be written: %s", c->dir, strerror(errno));
    struct stat sb;
    bool locked = flock(c->lock, LOCK_EX | LOCK_NB) == 0;
    if (locked && fstat(c->lock, &sb) == 0 && sb.st_nlink > 0)
        return HT_OK; /* else it was removed as empty meanwhile */
    return ht_fail(err, HT_BAD_INPUT, "%s: another process keeps its checkpoints there", c->dir);
}

enum ht_status ht_checkpoints_open(const char *dir, int64_t keep, struct ht_error *err, struct ht_checkpoints **out)
{
    assert(keep >= 1);
    struct ht_checkpoints *c = HT_NEW(struct ht_checkpoints);
    enum ht_status status = HT_OK;
    c->keep = keep;
    c->lock = -1;
    if (snprintf(c->dir, sizeof(c->dir), "%s", dir) >= (int)sizeof(c->dir))
        status = ht_fail(err, HT_BAD_INPUT, "%.60s...: the path is too long", dir);
    else if (mkdir(dir, 0777) != 0 && errno != EEXIST)
        status = ht_fail(err, HT_BAD_INPUT, "%s: cannot be made: %s", dir, strerror(errno));
    if (status == HT_OK) status = take_lock(c, err);
    if (status == HT_OK) status = scan(c, err);
    if (status == HT_OK)
        *out = c;
    else
        ht_checkpoints_close(c);
    return status;
}

void ht_checkpoints_remove_empty(const char *dir)
{
    char path[PATH_BYTES];
    DIR *d = opendir(dir);
    bool empty = d != NULL;
    int n = snprintf(path, sizeof(path), "%s/.lock", dir);
    for (const struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d))
        empty &= !strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") || !strcmp(e->d_name, ".lock");
    if (d) closedir(d);
    if (!empty || n >= (int)sizeof(path)) return;
    int lock = open(path, O_RDWR | O_CLOEXEC);
    if (lock < 0 || flock(lock, LOCK_EX | LOCK_NB) == 0) {
        unlink(path);
        rmdir(dir);
    }
    if (lock >= 0) close(lock);
}

void ht_checkpoints_close(struct ht_checkpoints *c)
{
    if (!c) return;
    ht_safetensors_close(c->file);
    if (c->lock >= 0) close(c->lock);
    free(c->steps);
    free(c);
}

int64_t ht_checkpoints_latest(const struct ht_checkpoints *c)
{
    return c->n_steps ? c->steps[c->n_steps - 1] : -1;
}

/* ---- a unit's file ---- */

static void tensor_name(int part, const struct ht_param_part *p, char name[NAME_BYTES])
{
    snprintf(name, NAME_BYTES, "%s.%s", ht_state_part_names[part], p->name);
}

/* Writes a unit's file. buffer: has room for any piece of the model. */
static enum ht_status save_unit(const char *path, const struct ht_state *state, int64_t unit, float *buffer,
                                struct ht_manifest_file *file, struct ht_error *err)
{
    struct ht_param_part parts[HT_MAX_PARAM_PARTS];
    struct ht_st_spec specs[HT_N_STATE_PARTS * HT_MAX_PARAM_PARTS];
    char names[HT_N_STATE_PARTS * HT_MAX_PARAM_PARTS][NAME_BYTES];
    int n = ht_unit_param_parts(&state->model, unit, parts);
    for (int i = 0; i < HT_N_STATE_PARTS * n; i++) {
        const struct ht_param_part *p = &parts[i % n];
        tensor_name(i / n, p, names[i]);
        specs[i] = (struct ht_st_spec){.name = names[i], .dtype = HT_F32, .n_dims = 2, .dims = {p->rows, p->cols}};
    }
    struct ht_st_writer *w = NULL;
    enum ht_status status = ht_st_writer_open(path, specs, HT_N_STATE_PARTS * n, NULL, 0, err, &w);
    for (int part = 0; part < HT_N_STATE_PARTS; part++)
        for (int64_t at = 0, end, n_unit = ht_unit_params(&state->model, unit); at < n_unit && status == HT_OK;
             at = end) {
            end = n_unit - at < HT_PIECE_ELEMENTS ? n_unit : at + HT_PIECE_ELEMENTS;
            struct ht_piece piece = {.unit = unit, .part = (enum ht_state_part)part, .begin = at, .end = end};
            status = ht_state_read(state, piece, buffer, err);
            if (status == HT_OK) status = ht_st_writer_put(w, buffer, end - at, err);
        }
    if (status == HT_OK) return ht_st_writer_commit(w, err, &file->hash, &file->bytes);
    ht_st_writer_discard(w);
    return status;
}

static enum ht_status check_file(const char *path, const struct ht_manifest_file *file, struct ht_error *err)
{
    struct ht_manifest_file found;
    enum ht_status status = ht_hash_file(path, err, &found.hash, &found.bytes);
    if (status != HT_OK) return status;
    if (found.bytes != file->bytes)
        return ht_fail(err, HT_BAD_INPUT, "%s: has %lld bytes; its manifest says %lld", path, (long long)found.bytes,
                       (long long)file->bytes);
    if (found.hash != file->hash)
        return ht_fail(err, HT_BAD_INPUT, "%s: has the hash %016llx; its manifest says %016llx", path,
                       (unsigned long long)found.hash, (unsigned long long)file->hash);
    return HT_OK;
}

/* Finds the tensor of a part of the unit and checks its type and shape. */
static enum ht_status find_part(const struct ht_safetensors *st, int state_part, const struct ht_param_part *p,
                                struct ht_error *err, const struct ht_st_tensor **out)
{
    char name[NAME_BYTES];
    tensor_name(state_part, p, name);
    const struct ht_st_tensor *t = ht_safetensors_find(st, name);
    if (!t || t->n_dims != 2 || t->dims[0] != p->rows || t->dims[1] != p->cols)
        return ht_fail(err, HT_BAD_INPUT, "%s: tensor '%s' of shape [%lld, %lld] is missing", ht_safetensors_name(st),
                       name, (long long)p->rows, (long long)p->cols);
    *out = t;
    return ht_safetensors_check(st, t, err);
}

/* Checks everything in a unit's file but the values. */
static enum ht_status check_unit(const char *path, const struct ht_manifest_file *file, const struct ht_model *model,
                                 int64_t unit, struct ht_error *err)
{
    struct ht_param_part parts[HT_MAX_PARAM_PARTS];
    struct ht_safetensors *st = NULL;
    int n = ht_unit_param_parts(model, unit, parts);
    enum ht_status status = check_file(path, file, err);
    if (status == HT_OK) status = ht_safetensors_open(path, err, &st);
    for (int i = 0; i < HT_N_STATE_PARTS * n && status == HT_OK; i++) {
        const struct ht_st_tensor *t = NULL;
        status = find_part(st, i / n, &parts[i % n], err, &t);
    }
    ht_safetensors_close(st);
    return status;
}

/* Opens a unit's file of the loaded step and closes the one that was open. */
static enum ht_status open_unit(struct ht_checkpoints *c, int64_t unit, struct ht_error *err)
{
    char path[PATH_BYTES], name[40];
    if (c->file && c->unit == unit) return HT_OK;
    ht_safetensors_close(c->file);
    c->file = NULL;
    c->unit = unit;
    ht_manifest_file_name(unit, name);
    path_of(c, "step-", c->loaded, name, path);
    return ht_safetensors_open(path, err, &c->file);
}

/* Reads a piece of a loaded step (struct ht_source.read). */
static enum ht_status read_piece(void *ctx, struct ht_piece piece, float *out, struct ht_error *err)
{
    struct ht_checkpoints *c = ctx;
    struct ht_param_part parts[HT_MAX_PARAM_PARTS];
    int n = ht_unit_param_parts(&c->model, piece.unit, parts);
    enum ht_status status = open_unit(c, piece.unit, err);
    for (int i = 0; i < n && status == HT_OK; i++) {
        const struct ht_st_tensor *t = NULL;
        int64_t first, at, elements = ht_piece_overlap(piece, &parts[i], &first, &at);
        if (!elements) continue;
        status = find_part(c->file, piece.part, &parts[i], err, &t);
        if (status == HT_OK) status = ht_safetensors_read(c->file, t, first, elements, err, out + at);
    }
    return status;
}

/* ---- the losses' file ---- */

static enum ht_status save_losses(const char *path, const struct ht_losses *losses, struct ht_manifest_file *file,
                                  struct ht_error *err)
{
    struct ht_durable out;
    size_t bytes;
    *file = (struct ht_manifest_file){.bytes = -1};
    if (losses->n == 0) return HT_OK;
    char *text = ht_losses_text(losses, &bytes);
    enum ht_status status = ht_durable_open(path, err, &out);
    if (status == HT_OK) status = ht_durable_write(&out, text, bytes, err);
    if (status == HT_OK) status = ht_durable_commit(&out, err, &file->hash);
    file->bytes = (int64_t)bytes;
    free(text);
    return status;
}

static enum ht_status load_losses(const char *path, const struct ht_manifest_file *file, struct ht_state *state,
                                  struct ht_error *err)
{
    ht_losses_free(&state->losses);
    if (file->bytes < 0) return HT_OK;
    enum ht_status status = check_file(path, file, err);
    return status == HT_OK ? ht_losses_read(path, err, &state->losses) : status;
}

/* ---- saving ---- */

static void forget_old(struct ht_checkpoints *c)
{
    while (c->n_steps > c->keep) {
        char path[PATH_BYTES], away[PATH_BYTES];
        path_of(c, "step-", c->steps[0], NULL, path);
        path_of(c, ".removed-", c->steps[0], NULL, away);
        if (rename(path, away) == 0) remove_folder(away); /* so no step-... is ever incomplete */
        memmove(c->steps, c->steps + 1, (size_t)(--c->n_steps) * sizeof(*c->steps));
    }
}

enum ht_status ht_checkpoints_save(struct ht_checkpoints *c, const struct ht_state *state, int64_t step,
                                   const struct ht_checkpoint_setting *settings, int n_settings, struct ht_error *err)
{
    char folder[PATH_BYTES], place[PATH_BYTES], path[PATH_BYTES], name[40];
    assert(step > ht_checkpoints_latest(c));
    struct ht_manifest_file *files = HT_NEW_ARRAY(struct ht_manifest_file, state->n_units + 1);
    float *buffer = HT_NEW_ARRAY(float, ht_piece_most(&state->model));
    enum ht_status status = HT_OK;
    path_of(c, ".partial-", step, NULL, folder);
    path_of(c, "step-", step, NULL, place);
    if (mkdir(folder, 0777) != 0) status = ht_fail(err, HT_FAILED, "%s: cannot be made: %s", folder, strerror(errno));
    for (int64_t u = 0; u < state->n_units && status == HT_OK; u++) {
        ht_manifest_file_name(u, name);
        path_of(c, ".partial-", step, name, path);
        status = save_unit(path, state, u, buffer, &files[u], err);
    }
    path_of(c, ".partial-", step, "losses.csv", path);
    if (status == HT_OK) status = save_losses(path, &state->losses, &files[state->n_units], err);
    path_of(c, ".partial-", step, "manifest.json", path);
    if (status == HT_OK) status = ht_manifest_save(path, state, step, files, settings, n_settings, err);
    if (status == HT_OK) status = ht_sync_directory(folder, err);
    if (status == HT_OK && rename(folder, place) != 0)
        status = ht_fail(err, HT_FAILED, "%s: cannot be moved there: %s", place, strerror(errno));
    free(buffer);
    free(files);
    if (status != HT_OK) {
        remove_folder(folder);
        if (err && status == HT_BAD_INPUT) err->status = HT_FAILED; /* the disk failed, not the user's input */
        return HT_FAILED;
    }
    HT_PUSH(c->steps, c->n_steps, c->steps_cap, step);
    status = ht_sync_directory(c->dir, err);
    if (status == HT_OK) forget_old(c);
    return status;
}

/* ---- loading ---- */

/* Adds to a damaged checkpoint's message how to go on. */
static enum ht_status advise(const struct ht_checkpoints *c, struct ht_error *err)
{
    char folder[PATH_BYTES], way[128];
    path_of(c, "step-", ht_checkpoints_latest(c), NULL, folder);
    if (c->n_steps > 1)
        snprintf(way, sizeof(way), "resume from step %lld", (long long)c->steps[c->n_steps - 2]);
    else
        snprintf(way, sizeof(way), "begin anew; there is no older one");
    struct ht_error why = *err;
    return ht_fail(err, HT_BAD_INPUT, "%.600s; the checkpoint is damaged: remove %.250s to %s", why.text, folder, way);
}

enum ht_status ht_checkpoints_load(struct ht_checkpoints *c, struct ht_checkpoint_setting *settings, int n_settings,
                                   struct ht_error *err, struct ht_state *state, int64_t *step)
{
    char path[PATH_BYTES], name[40];
    int64_t latest = ht_checkpoints_latest(c);
    bool damaged = false;
    struct ht_error why = {0};
    if (latest < 0) return ht_fail(err, HT_BAD_INPUT, "%s: holds no checkpoint", c->dir);
    struct ht_manifest_file *files = HT_NEW_ARRAY(struct ht_manifest_file, state->n_units + 1);
    path_of(c, "step-", latest, "manifest.json", path);
    enum ht_status status = ht_manifest_load(path, latest, settings, n_settings, &why, &damaged, state, files);
    for (int64_t u = 0; u < state->n_units && status == HT_OK; u++) {
        ht_manifest_file_name(u, name);
        path_of(c, "step-", latest, name, path);
        status = check_unit(path, &files[u], &state->model, u, &why);
        damaged = status == HT_BAD_INPUT;
    }
    path_of(c, "step-", latest, "losses.csv", path);
    if (status == HT_OK) {
        status = load_losses(path, &files[state->n_units], state, &why);
        damaged = status == HT_BAD_INPUT;
    }
    free(files);
    if (status != HT_OK) {
        if (err) *err = why;
        return damaged ? advise(c, err ? err : &why) : status;
    }
    ht_safetensors_close(c->file);
    c->file = NULL;
    c->model = state->model;
    *step = c->loaded = latest;
    state->values = (struct ht_source){.read = read_piece, .ctx = c, .parts = HT_ALL_STATE_PARTS};
    return HT_OK;
}
