#include "common/ckpt/model_folder.h"

#include "common/ckpt/durable.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

const char ht_model_whole[] = "model.safetensors", ht_model_index[] = "model.safetensors.index.json";

enum ht_status ht_model_folder_lock(const char *dir, struct ht_error *err, DIR **out)
{
    DIR *d = opendir(dir);
    if (!d) return ht_fail(err, HT_BAD_INPUT, "%s: cannot be read: %s", dir, strerror(errno));
    if (flock(dirfd(d), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        closedir(d);
        return ht_fail(err, HT_BAD_INPUT, "%s: another process saves its model there", dir);
    }
    *out = d;
    return HT_OK;
}

void ht_model_folder_remove_empty(const char *dir)
{
    DIR *d = opendir(dir);
    if (!d) return;
    if (flock(dirfd(d), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) rmdir(dir);
    closedir(d);
}

/* ---- names ---- */

static void shard_name(int64_t version, int64_t shard, int64_t n_shards, char name[64])
{
    char tag[24] = "";
    if (version > 1) snprintf(tag, sizeof(tag), "v%lld-", (long long)version);
    snprintf(name, 64, "model-%s%05lld-of-%05lld.safetensors", tag, (long long)shard + 1, (long long)n_shards);
}

/* Returns true if a file has a shard's name, and parses it. */
static bool read_shard_name(const char *file, int64_t *version, int64_t *n_shards)
{
    long long shard, n, v = 1;
    char again[64];
    if (sscanf(file, "model-%5lld-of-%5lld.", &shard, &n) != 2 &&
        sscanf(file, "model-v%9lld-%5lld-of-%5lld.", &v, &shard, &n) != 3)
        return false;
    if (shard < 1 || n < 1) return false;
    shard_name(v, shard - 1, n, again);
    *version = v;
    *n_shards = n;
    return strcmp(file, again) == 0;
}

static bool is_weights(const char *file)
{
    size_t n = strlen(file);
    return n > 12 && strcmp(file + n - 12, ".safetensors") == 0;
}

static bool is_model_file(const char *file, const void *ctx)
{
    int64_t version, n_shards;
    (void)ctx;
    return read_shard_name(file, &version, &n_shards) || !strcmp(file, ht_model_whole) ||
           !strcmp(file, ht_model_index) || !strcmp(file, "config.json");
}

/* Returns the weights that the folder's index names. *known: there is no index, or it could be read. */
static json_t *named_by_index(const char *dir, bool *known)
{
    char path[HT_MODEL_PATH_BYTES];
    struct stat sb;
    const char *tensor;
    json_t *names = json_object(), *file;
    snprintf(path, sizeof(path), "%s/%s", dir, ht_model_index);
    json_t *root = json_load_file(path, 0, NULL), *map = json_object_get(root, "weight_map");
    *known = json_is_object(map) || (lstat(path, &sb) != 0 && errno == ENOENT);
    json_object_foreach(map, tensor, file)
    {
        const char *name = json_string_value(file);
        if (name && !strncmp(name, "./", 2)) name += 2;
        if (name && !strchr(name, '/') && is_weights(name)) json_object_set_new(names, name, json_true());
    }
    json_decref(root);
    return names;
}

/* ---- files to remove ---- */

static bool is_new(const struct ht_model_folder *f, const char *file)
{
    int64_t version, n_shards;
    if (f->n_shards == 1) return strcmp(file, ht_model_whole) == 0;
    return !strcmp(file, ht_model_index) ||
           (read_shard_name(file, &version, &n_shards) && version == f->version && n_shards == f->n_shards);
}

/* Returns true for a shard that no index names, left by a save that was killed. */
static bool is_left_over(const struct ht_model_folder *f, const char *file)
{
    int64_t version, n_shards;
    return read_shard_name(file, &version, &n_shards) && !json_object_get(f->old, file);
}

static bool is_old(const struct ht_model_folder *f, const char *file)
{
    int64_t version, n_shards;
    bool of_model = read_shard_name(file, &version, &n_shards) || !strcmp(file, ht_model_whole) ||
                    !strcmp(file, ht_model_index) || json_object_get(f->old, file);
    return of_model && !is_new(f, file);
}

static enum ht_status remove_those(const struct ht_model_folder *f,
                                   bool (*wanted)(const struct ht_model_folder *f, const char *file),
                                   struct ht_error *err)
{
    DIR *d = opendir(f->dir);
    if (!d) return ht_fail(err, HT_FAILED, "%s: cannot be read: %s", f->dir, strerror(errno));
    enum ht_status status = HT_OK;
    for (const struct dirent *e = readdir(d); e && status == HT_OK; e = readdir(d))
        if (wanted(f, e->d_name) && unlinkat(dirfd(d), e->d_name, 0) != 0 && errno != ENOENT)
            status = ht_fail(err, HT_FAILED, "%s/%s: cannot be removed: %s", f->dir, e->d_name, strerror(errno));
    closedir(d);
    return status;
}

/* ---- a save ---- */

static bool any_is_there(const struct ht_model_folder *f)
{
    char name[64], path[HT_MODEL_PATH_BYTES];
    for (int64_t i = 0; i < f->n_shards; i++) {
        ht_model_folder_name(f, i, name);
        ht_model_folder_path(f, name, path);
        if (access(path, F_OK) == 0) return true;
    }
    return false;
}

enum ht_status ht_model_folder_begin(const char *dir, int64_t n_shards, struct ht_error *err,
                                     struct ht_model_folder *out)
{
    bool known;
    struct ht_model_folder f = {.dir = dir, .n_shards = n_shards, .version = 1};
    f.old = named_by_index(dir, &known);
    ht_durable_sweep(dir, is_model_file, NULL);
    enum ht_status status = known ? remove_those(&f, is_left_over, err) : HT_OK;
    while (n_shards > 1 && any_is_there(&f)) f.version++;
    if (status == HT_OK)
        *out = f;
    else
        ht_model_folder_end(&f);
    return status;
}

void ht_model_folder_name(const struct ht_model_folder *f, int64_t shard, char name[64])
{
    if (f->n_shards == 1)
        snprintf(name, 64, "%s", ht_model_whole);
    else
        shard_name(f->version, shard, f->n_shards, name);
}

void ht_model_folder_path(const struct ht_model_folder *f, const char *name, char path[HT_MODEL_PATH_BYTES])
{
    snprintf(path, HT_MODEL_PATH_BYTES, "%s/%s", f->dir, name);
}

enum ht_status ht_model_folder_retire(const struct ht_model_folder *f, struct ht_error *err)
{
    return remove_those(f, is_old, err);
}

void ht_model_folder_abandon(const struct ht_model_folder *f)
{
    char name[64], path[HT_MODEL_PATH_BYTES];
    for (int64_t i = 0; f->n_shards > 1 && i < f->n_shards; i++) {
        ht_model_folder_name(f, i, name);
        ht_model_folder_path(f, name, path);
        unlink(path);
    }
}

void ht_model_folder_end(struct ht_model_folder *f)
{
    json_decref(f->old);
    *f = (struct ht_model_folder){0};
}
