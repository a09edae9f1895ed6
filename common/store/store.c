#include "common/store/store_manifest.h"

#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/ckpt/durable.h"
#include "common/ckpt/manifest_parts.h"
#include "common/ckpt/safetensors.h"
#include "common/store/copier.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- names ---- */

int ht_version_compare(const struct ht_version *a, const struct ht_version *b)
{
    if (a->step != b->step) return a->step < b->step ? -1 : 1;
    return (a->run > b->run) - (a->run < b->run);
}

void ht_store_version_name(struct ht_version v, char name[HT_STORE_NAME])
{
    snprintf(name, HT_STORE_NAME, "step-%010" PRId64 ".%016" PRIx64, v.step, v.run);
}

bool ht_store_read_version(const char *name, struct ht_version *out)
{
    char again[HT_STORE_NAME];
    struct ht_version v;
    if (sscanf(name, "step-%18" SCNd64 ".%16" SCNx64, &v.step, &v.run) != 2) return false;
    ht_store_version_name(v, again);
    if (strcmp(name, again) != 0) return false;
    *out = v;
    return true;
}

void ht_store_path(const char *dir, struct ht_version v, const char *file, char path[HT_STORE_PATH])
{
    char name[HT_STORE_NAME];
    ht_store_version_name(v, name);
    snprintf(path, HT_STORE_PATH, "%.*s/%s%s%.80s", HT_STORE_DIR, dir, name, file ? "/" : "", file ? file : "");
}

void ht_store_manifest_name(int32_t rank, char name[HT_STORE_NAME])
{
    snprintf(name, HT_STORE_NAME, "rank-%04d.json", rank);
}

void ht_store_losses_name(int32_t rank, char name[HT_STORE_NAME])
{
    snprintf(name, HT_STORE_NAME, "rank-%04d.losses.csv", rank);
}

void ht_store_tensor_name(const struct ht_extent *e, char name[HT_STORE_NAME])
{
    snprintf(name, HT_STORE_NAME, "%s[%lld:%lld]", ht_state_part_names[e->part], (long long)e->begin,
             (long long)e->end);
}

/* Names a file "unit-0003.tp1of2.safetensors", with the rank where its extents are not all of the part. */
static void name_file(struct ht_store_file *f, const struct ht_model *m, int32_t rank)
{
    const struct ht_extent *e = f->extents;
    char by[24] = "";
    int whole = 0;
    for (int64_t i = 0; i < f->n_extents; i++) whole += ht_extent_is_whole(m, &e[i]);
    if (whole < HT_N_STATE_PARTS) snprintf(by, sizeof(by), ".rank%d", rank);
    snprintf(f->name, sizeof(f->name), "unit-%04d.tp%dof%d%s.safetensors", (int)e->unit, e->tp_part, e->tp_parts, by);
}

/* Writes the path of a spare file (ht_store_recycle); name NULL: of their folder. */
static void spare_path(const char *dir, const char *name, char path[HT_STORE_PATH])
{
    snprintf(path, HT_STORE_PATH, "%.*s/spare%s%.80s", HT_STORE_DIR, dir, name ? "/" : "", name ? name : "");
}

/* ---- a rank's files ---- */

void ht_store_part_free(struct ht_store_part *p)
{
    for (int64_t i = 0; i < p->n_files; i++) free(p->files[i].extents);
    free(p->files);
    *p = (struct ht_store_part){0};
}

/* Orders extents so that those of one file are adjacent. */
static int by_file(const void *va, const void *vb)
{
    const struct ht_extent *a = va, *b = vb;
    if (a->unit != b->unit) return a->unit < b->unit ? -1 : 1;
    if (a->tp_parts != b->tp_parts) return a->tp_parts < b->tp_parts ? -1 : 1;
    if (a->tp_part != b->tp_part) return a->tp_part < b->tp_part ? -1 : 1;
    return ht_extent_compare(a, b);
}

void ht_store_part_arrange(struct ht_store_part *p, const struct ht_model *m, struct ht_extent *extents, int64_t n)
{
    struct ht_store_file *f = NULL;
    if (n) qsort(extents, (size_t)n, sizeof(*extents), by_file);
    for (int64_t i = 0; i < n; i++) {
        const struct ht_extent *e = &extents[i];
        bool same = f && f->extents->unit == e->unit && f->extents->tp_parts == e->tp_parts &&
                    f->extents->tp_part == e->tp_part;
        if (!same) {
            HT_PUSH(p->files, p->n_files, p->cap, (struct ht_store_file){0});
            f = &p->files[p->n_files - 1];
        }
        HT_PUSH(f->extents, f->n_extents, f->cap, *e);
    }
    for (int64_t i = 0; i < p->n_files; i++) name_file(&p->files[i], m, p->rank);
}

/* ---- writing ---- */

/* Makes a directory with its parents. */
static enum ht_status make_directory(const char *dir, struct ht_error *err)
{
    char path[HT_STORE_PATH];
    if (strlen(dir) >= HT_STORE_DIR) return ht_fail(err, HT_BAD_INPUT, "%.60s...: the path is too long", dir);
    snprintf(path, sizeof(path), "%s", dir);
    for (char *slash = path + 1;; slash++) {
        slash += strcspn(slash, "/");
        char was = *slash;
        *slash = '\0';
        if (mkdir(path, 0777) != 0 && errno != EEXIST)
            return ht_fail(err, HT_BAD_INPUT, "%s: cannot be made: %s", path, strerror(errno));
        *slash = was;
        if (!was) return HT_OK;
    }
}

/* Locks a file. Returns false if another process still has it after so many seconds. */
static bool lock_file(int fd, int64_t patience_s)
{
    const struct timespec nap = {.tv_nsec = 20000000};
    int64_t begin_ms = ht_now_ms();
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (ht_now_ms() - begin_ms >= 1000 * patience_s) return false;
        nanosleep(&nap, NULL);
    }
    return true;
}

enum ht_status ht_store_open(const char *dir, int64_t patience_s, struct ht_error *err, int *lock)
{
    char path[HT_STORE_PATH];
    enum ht_status status = make_directory(dir, err);
    if (status != HT_OK) return status;
    snprintf(path, sizeof(path), "%s/.lock", dir);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) return ht_fail(err, HT_BAD_INPUT, "%s: cannot be written: %s", dir, strerror(errno));
    if (!lock_file(fd, patience_s)) {
        close(fd);
        return ht_fail(err, HT_BAD_INPUT, "%s: another process keeps a store there", dir);
    }
    *lock = fd;
    return HT_OK;
}

static enum ht_status make_version(const char *dir, struct ht_version v, struct ht_error *err)
{
    char path[HT_STORE_PATH];
    ht_store_path(dir, v, NULL, path);
    return make_directory(path, err);
}

/* Puts a spare file of that name, if the store has one, where the file that is opened next is written over it. */
static void take_spare(const char *dir, const char *path, const char *name)
{
    char spare[HT_STORE_PATH], beside[HT_STORE_PATH + 8];
    spare_path(dir, name, spare);
    snprintf(beside, sizeof(beside), "%s.spare", path);
    (void)!rename(spare, beside); /* without one a new file is made */
}

static enum ht_status write_file(const char *path, struct ht_store_file *f, ht_extent_read read, void *ctx,
                                 float *buffer, struct ht_error *err)
{
    struct ht_st_spec *specs = HT_NEW_ARRAY(struct ht_st_spec, f->n_extents);
    char(*names)[HT_STORE_NAME] = ht_alloc_array((size_t)f->n_extents, HT_STORE_NAME);
    struct ht_st_writer *w = NULL;
    for (int64_t i = 0; i < f->n_extents; i++) {
        const struct ht_extent *e = &f->extents[i];
        ht_store_tensor_name(e, names[i]);
        specs[i] = (struct ht_st_spec){.name = names[i], .dtype = HT_F32, .n_dims = 1, .dims = {e->end - e->begin}};
    }
    enum ht_status status = ht_st_writer_open(path, specs, f->n_extents, NULL, 0, err, &w);
    for (int64_t i = 0; i < f->n_extents && status == HT_OK; i++) {
        int64_t n = f->extents[i].end - f->extents[i].begin;
        for (int64_t at = 0, count; at < n && status == HT_OK; at += count) {
            count = n - at < HT_PIECE_ELEMENTS ? n - at : HT_PIECE_ELEMENTS;
            const float *values = buffer;
            status = read(ctx, &f->extents[i], at, count, buffer, &values, err);
            if (status == HT_OK) status = ht_st_writer_put(w, values, count, err);
        }
    }
    free(specs);
    free(names);
    if (status == HT_OK) return ht_st_writer_commit(w, err, &f->sum.hash, &f->sum.bytes);
    ht_st_writer_discard(w);
    return status;
}

/* Writes a small file whole, and returns its size and hash. */
static enum ht_status write_text(const char *path, const char *text, size_t bytes, struct ht_error *err,
                                 struct ht_manifest_file *sum)
{
    struct ht_durable file;
    enum ht_status status = ht_durable_open(path, err, &file);
    if (status == HT_OK) status = ht_durable_write(&file, text, bytes, err);
    if (status == HT_OK) status = ht_durable_commit(&file, err, &sum->hash);
    sum->bytes = (int64_t)bytes;
    return status;
}

static enum ht_status write_losses(const char *dir, struct ht_store_part *p, const struct ht_losses *losses,
                                   struct ht_error *err)
{
    char path[HT_STORE_PATH], name[HT_STORE_NAME];
    size_t bytes;
    p->losses.bytes = -1;
    if (losses->n == 0) return HT_OK;
    ht_store_losses_name(p->rank, name);
    ht_store_path(dir, p->version, name, path);
    char *text = ht_losses_text(losses, &bytes);
    enum ht_status status = write_text(path, text, bytes, err, &p->losses);
    free(text);
    return status;
}

/* Makes names in a version's folder and the folder's own durable. */
static enum ht_status sync_version(const char *dir, struct ht_version v, struct ht_error *err)
{
    char path[HT_STORE_PATH];
    ht_store_path(dir, v, NULL, path);
    enum ht_status status = ht_sync_directory(path, err);
    return status == HT_OK ? ht_sync_directory(dir, err) : status;
}

/* Writes a manifest, once all that it names is durable. */
static enum ht_status seal(const char *dir, const struct ht_store_part *p, const char *text, struct ht_error *err)
{
    char path[HT_STORE_PATH], name[HT_STORE_NAME];
    struct ht_manifest_file sum;
    ht_store_manifest_name(p->rank, name);
    ht_store_path(dir, p->version, name, path);
    enum ht_status status = sync_version(dir, p->version, err);
    if (status == HT_OK) status = write_text(path, text, strlen(text), err, &sum);
    return status == HT_OK ? sync_version(dir, p->version, err) : status;
}

/* Returns the status of a failed write: the disk failed, not the user's input. */
static enum ht_status write_failed(enum ht_status status, struct ht_error *err)
{
    if (status != HT_BAD_INPUT) return status;
    if (err) err->status = HT_FAILED;
    return HT_FAILED;
}

/* Files that several workers write; each takes the next one. */
struct writing {
    const char *dir;
    struct ht_store_part *p;
    ht_extent_read read;
    void *ctx;
    atomic_llong next;
    pthread_mutex_t failing;
    enum ht_status status; /* of the first file that failed */
    struct ht_error *err;
};

static void note_failure(struct writing *w, enum ht_status status, const struct ht_error *why)
{
    pthread_mutex_lock(&w->failing);
    if (w->status == HT_OK) {
        w->status = status;
        if (w->err) *w->err = *why;
    }
    pthread_mutex_unlock(&w->failing);
    atomic_store(&w->next, w->p->n_files);
}

/* Writes files until there are no more (ht_pool_fn). */
static void write_files(void *arg, int worker, int n_workers)
{
    struct writing *w = arg;
    char path[HT_STORE_PATH];
    float *buffer = HT_NEW_ARRAY(float, HT_PIECE_ELEMENTS);
    (void)worker, (void)n_workers;
    for (int64_t i; (i = atomic_fetch_add(&w->next, 1)) < w->p->n_files;) {
        struct ht_store_file *f = &w->p->files[i];
        struct ht_error why;
        ht_store_path(w->dir, w->p->version, f->name, path);
        take_spare(w->dir, path, f->name);
        enum ht_status status = write_file(path, f, w->read, w->ctx, buffer, &why);
        if (status != HT_OK) note_failure(w, status, &why);
    }
    free(buffer);
}

enum ht_status ht_store_write_by(struct ht_pool *pool, const char *dir, struct ht_store_part *p,
                                 const struct ht_state *state, const struct ht_checkpoint_setting *settings,
                                 int n_settings, ht_extent_read read, void *ctx, struct ht_error *err)
{
    struct writing w = {.dir = dir, .p = p, .read = read, .ctx = ctx, .err = err};
    enum ht_status status = make_version(dir, p->version, err);
    pthread_mutex_init(&w.failing, NULL);
    if (status == HT_OK) {
        ht_pool_run(pool, write_files, &w);
        status = w.status;
    }
    pthread_mutex_destroy(&w.failing);
    if (status == HT_OK) status = write_losses(dir, p, &state->losses, err);
    if (status == HT_OK) {
        char *text = ht_store_manifest_text(p, state, settings, n_settings);
        status = seal(dir, p, text, err);
        free(text);
    }
    return write_failed(status, err);
}

enum ht_status ht_store_write(const char *dir, struct ht_store_part *p, const struct ht_state *state,
                              const struct ht_checkpoint_setting *settings, int n_settings, ht_extent_read read,
                              void *ctx, struct ht_error *err)
{
    return ht_store_write_by(NULL, dir, p, state, settings, n_settings, read, ctx, err);
}

/* ---- copying ---- */

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* A copy at a pace. */
struct paced {
    const struct ht_store_pace *pace;
    int64_t began_ns;
};

/* Sleeps until `bytes` bytes are due at the pace (ht_copier_goes_on). Returns false if the copy has to stop. */
static bool keep_pace(void *ctx, int64_t bytes)
{
    const struct paced *p = ctx;
    for (;;) {
        if (p->pace->stop && p->pace->stop(p->pace->ctx)) return false;
        if (p->pace->bytes_per_s <= 0) return true;
        int64_t left = p->began_ns + (int64_t)((double)bytes / p->pace->bytes_per_s * 1e9) - now_ns();
        if (left <= 0) return true;
        struct timespec t = {.tv_nsec = left < 50000000 ? left : 50000000};
        nanosleep(&t, NULL);
    }
}

/* Copies a file of known size and hash. */
static enum ht_status copy_file(struct ht_copier *copier, const char *from, const char *to,
                                const struct ht_manifest_file *sum, const struct ht_store_pace *pace,
                                struct ht_error *err)
{
    int in = open(from, O_RDONLY | O_CLOEXEC);
    if (in < 0) return ht_fail(err, HT_FAILED, "%s: cannot be opened: %s", from, strerror(errno));
    struct ht_durable out;
    struct paced paced = {pace, now_ns()};
    uint64_t found = 0;
    enum ht_status status = ht_durable_open(to, err, &out);
    bool opened = status == HT_OK;
    if (status == HT_OK) status = ht_copier_copy(copier, in, from, &out, keep_pace, &paced, err, &found);
    if (status == HT_OK && (found != sum->hash || out.bytes != sum->bytes))
        status = ht_fail(err, HT_FAILED, "%s: has changed since it was written", from);
    if (status == HT_OK)
        status = ht_durable_commit(&out, err, NULL);
    else if (opened)
        ht_durable_discard(&out);
    close(in);
    return status;
}

/* Returns true if a file of that size is there. Its hash is checked when it is used. */
static bool is_there(const char *path, const struct ht_manifest_file *sum)
{
    struct stat sb;
    return stat(path, &sb) == 0 && sb.st_size == sum->bytes;
}

static enum ht_status copy_named(struct ht_copier *copier, const char *from, const char *to, struct ht_version v,
                                 const char *name, const struct ht_manifest_file *sum, const struct ht_store_pace *pace,
                                 struct ht_error *err)
{
    char source[HT_STORE_PATH], target[HT_STORE_PATH];
    ht_store_path(from, v, name, source);
    ht_store_path(to, v, name, target);
    return is_there(target, sum) ? HT_OK : copy_file(copier, source, target, sum, pace, err);
}

enum ht_status ht_store_copy(const char *from, const char *to, const struct ht_store_part *p, struct ht_store_pace pace,
                             struct ht_error *err)
{
    char path[HT_STORE_PATH], name[HT_STORE_NAME], *text;
    size_t bytes;
    struct ht_copier *copier = ht_copier_create();
    enum ht_status status = make_version(to, p->version, err);
    for (int64_t i = 0; i < p->n_files && status == HT_OK; i++)
        status = copy_named(copier, from, to, p->version, p->files[i].name, &p->files[i].sum, &pace, err);
    ht_store_losses_name(p->rank, name);
    if (status == HT_OK && p->losses.bytes >= 0)
        status = copy_named(copier, from, to, p->version, name, &p->losses, &pace, err);
    ht_store_manifest_name(p->rank, name);
    ht_store_path(from, p->version, name, path);
    if (status == HT_OK) status = ht_manifest_read_text(path, err, &text, &bytes);
    if (status == HT_OK) {
        char *copy = ht_store_manifest_of(text, p);
        status = seal(to, p, copy, err);
        free(copy);
        free(text);
    }
    ht_copier_destroy(copier);
    return write_failed(status, err);
}

/* ---- the folder ---- */

static int ascending(const void *a, const void *b)
{
    return ht_version_compare(a, b);
}

struct ht_version *ht_store_versions(const char *dir, int64_t *n)
{
    struct ht_version *versions = NULL, v;
    size_t cap = 0;
    DIR *d = opendir(dir);
    *n = 0;
    for (const struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d))
        if (ht_store_read_version(e->d_name, &v)) HT_PUSH(versions, *n, cap, v);
    if (d) closedir(d);
    if (*n) qsort(versions, (size_t)*n, sizeof(*versions), ascending);
    return versions;
}

/* Removes a folder's files with (or without) manifests. */
static void remove_files(const char *path, bool manifests)
{
    DIR *d = opendir(path);
    for (const struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        size_t n = strlen(e->d_name);
        bool manifest = n > 5 && !strcmp(e->d_name + n - 5, ".json");
        if (manifest == manifests && e->d_name[0] != '.') unlinkat(dirfd(d), e->d_name, 0);
    }
    if (d) closedir(d);
}

/* Moves a version's files of units to the spare ones. */
static void recycle_files(const char *dir, const char *version)
{
    char spare[HT_STORE_PATH];
    spare_path(dir, NULL, spare);
    if (mkdir(spare, 0777) != 0 && errno != EEXIST) return;
    DIR *d = opendir(version);
    for (const struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        if (strncmp(e->d_name, "unit-", 5) != 0) continue;
        spare_path(dir, e->d_name, spare);
        (void)!renameat(dirfd(d), e->d_name, AT_FDCWD, spare); /* what stays is removed */
    }
    if (d) closedir(d);
}

/* Removes a version: its manifests first. recycle: its files of units become spare ones. */
static void remove_version(const char *dir, struct ht_version v, bool recycle)
{
    char path[HT_STORE_PATH];
    ht_store_path(dir, v, NULL, path);
    remove_files(path, true);
    if (recycle) recycle_files(dir, path);
    remove_files(path, false);
    rmdir(path);
}

void ht_store_remove(const char *dir, struct ht_version v)
{
    remove_version(dir, v, false);
}

static void keep_versions(const char *dir, int64_t keep, int64_t step, bool recycle)
{
    int64_t n, kept = 0, last = -1; /* the step that was kept last */
    struct ht_version *versions = ht_store_versions(dir, &n);
    for (int64_t i = n - 1; i >= 0; i--) {
        if (versions[i].step > step || versions[i].step == last || kept == keep) {
            remove_version(dir, versions[i], recycle);
            continue;
        }
        last = versions[i].step;
        kept++;
    }
    free(versions);
}

void ht_store_keep(const char *dir, int64_t keep, int64_t step)
{
    keep_versions(dir, keep, step, false);
}

/* ---- spare files ---- */

void ht_store_recycle(const char *dir, int64_t keep, int64_t step)
{
    keep_versions(dir, keep, step, true);
}

void ht_store_reserve(const char *dir, const struct ht_store_part *p)
{
    char path[HT_STORE_PATH];
    spare_path(dir, NULL, path);
    if (mkdir(path, 0777) != 0 && errno != EEXIST) return;
    for (int64_t i = 0; i < p->n_files; i++) {
        spare_path(dir, p->files[i].name, path);
        int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0) continue; /* there is one */
        if (fallocate(fd, 0, 0, p->files[i].sum.bytes) != 0) unlink(path);
        close(fd);
    }
}

void ht_store_drop_spares(const char *dir)
{
    char path[HT_STORE_PATH];
    spare_path(dir, NULL, path);
    remove_files(path, false);
    rmdir(path);
}

/* ---- leftovers ---- */

static bool any_name(const char *name, const void *ctx)
{
    (void)name;
    (void)ctx;
    return true;
}

/* Removes spare files that were about to be written over. */
static void sweep_spares(const char *version)
{
    DIR *d = opendir(version);
    for (const struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        size_t n = strlen(e->d_name);
        if (n > 6 && !strcmp(e->d_name + n - 6, ".spare")) unlinkat(dirfd(d), e->d_name, 0);
    }
    if (d) closedir(d);
}

void ht_store_sweep(const char *dir)
{
    char path[HT_STORE_PATH];
    int64_t n;
    struct ht_version *versions = ht_store_versions(dir, &n);
    ht_store_drop_spares(dir);
    for (int64_t i = 0; i < n; i++) {
        ht_store_path(dir, versions[i], NULL, path);
        sweep_spares(path);
        ht_durable_sweep(path, any_name, NULL);
        rmdir(path); /* succeeds if nothing is left */
    }
    free(versions);
}
