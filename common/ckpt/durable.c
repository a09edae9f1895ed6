#include "common/ckpt/durable.h"

#include "common/base/array.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

enum { CHUNK_BYTES = 1 << 20 };

static enum ht_status broken(struct ht_durable *d, int reason, struct ht_error *err)
{
    ht_durable_discard(d);
    return ht_fail(err, HT_FAILED, "%s: cannot be written: %s", d->path, strerror(reason));
}

/* Creates a file that no other process has. Its name cannot rely on the process id: two containers may share a
   folder, but not their process ids. The lock shows that this process lives; a sweep may come before it. Returns -1
   with errno. */
static int create_partial(struct ht_durable *d)
{
    for (int attempt = 0; attempt < 100; attempt++) {
        struct stat sb;
        snprintf(d->partial, sizeof(d->partial), "%s.%d%02d.partial", d->path, (int)getpid(), attempt);
        int fd = open(d->partial, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0 && errno != EEXIST) return -1;
        if (fd < 0) continue;
        if (flock(fd, LOCK_EX) != 0 || fstat(fd, &sb) != 0 || sb.st_nlink > 0) return fd;
        close(fd);
    }
    errno = EEXIST;
    return -1;
}

/* Takes the spare file beside the path. Returns -1 where nobody left one. */
static int take_spare(struct ht_durable *d)
{
    char spare[4128];
    struct stat sb;
    snprintf(spare, sizeof(spare), "%s.spare", d->path);
    snprintf(d->partial, sizeof(d->partial), "%s.%d00.partial", d->path, (int)getpid());
    if (renameat2(AT_FDCWD, spare, AT_FDCWD, d->partial, RENAME_NOREPLACE) != 0) return -1;
    int fd = open(d->partial, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && flock(fd, LOCK_EX) == 0 && fstat(fd, &sb) == 0 && sb.st_nlink > 0) return fd;
    if (fd >= 0) close(fd);
    unlink(d->partial);
    return -1;
}

void ht_take_mode(int fd, const struct stat *old)
{
    bool owned = fchown(fd, old->st_uid, old->st_gid) == 0, group = owned || fchown(fd, (uid_t)-1, old->st_gid) == 0;
    (void)!fchmod(fd, old->st_mode & (owned ? 07777 : group ? 0777 : 0707)); /* some file systems have no modes */
}

enum ht_status ht_durable_open(const char *path, struct ht_error *err, struct ht_durable *out)
{
    struct stat old;
    out->file = NULL;
    out->hash = NULL;
    out->bytes = 0;
    out->synced = false;
    if (strlen(path) >= sizeof(out->path)) return ht_fail(err, HT_BAD_INPUT, "%.60s...: the path is too long", path);
    snprintf(out->path, sizeof(out->path), "%s", path);
    int fd = take_spare(out);
    out->over = fd >= 0;
    if (fd < 0) fd = create_partial(out);
    if (fd < 0) return ht_fail(err, HT_BAD_INPUT, "%s: cannot be written: %s", path, strerror(errno));
    if (stat(path, &old) == 0 && S_ISREG(old.st_mode)) ht_take_mode(fd, &old);
    out->file = fdopen(fd, "wb");
    if (!out->file) ht_out_of_memory(1, BUFSIZ);
    out->hash = ht_hash_begin();
    return HT_OK;
}

enum ht_status ht_durable_write(struct ht_durable *d, const void *data, size_t bytes, struct ht_error *err)
{
    if (bytes == 0) return HT_OK;
    if (fwrite(data, 1, bytes, d->file) != bytes) return broken(d, errno, err);
    ht_hash_add(d->hash, data, bytes);
    d->bytes += (int64_t)bytes;
    return HT_OK;
}

int ht_durable_take_fd(struct ht_durable *d)
{
    if (d->hash) ht_hash_end(d->hash);
    d->hash = NULL;
    return fileno(d->file);
}

enum ht_status ht_durable_write_at(struct ht_durable *d, int64_t offset, const void *data, size_t bytes,
                                   struct ht_error *err)
{
    if (d->hash) {
        if (fflush(d->file) != 0) return broken(d, errno, err);
        ht_hash_end(d->hash);
        d->hash = NULL;
    }
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pwrite(fileno(d->file), (const char *)data + done, bytes - done, (off_t)(offset + (int64_t)done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return broken(d, errno, err);
        done += (size_t)n;
    }
    if (offset + (int64_t)bytes > d->bytes) d->bytes = offset + (int64_t)bytes;
    return HT_OK;
}

enum ht_status ht_durable_sync(struct ht_durable *d, struct ht_error *err)
{
    if (d->synced) return HT_OK;
    if (fflush(d->file) != 0) return broken(d, errno, err);
    if (d->over && ftruncate(fileno(d->file), (off_t)d->bytes) != 0) return broken(d, errno, err);
    if (fsync(fileno(d->file)) != 0) return broken(d, errno, err);
    d->synced = true;
    return HT_OK;
}

enum ht_status ht_durable_commit(struct ht_durable *d, struct ht_error *err, uint64_t *hash)
{
    enum ht_status status = ht_durable_sync(d, err);
    if (status != HT_OK) return status;
    int rc = rename(d->partial, d->path), reason = errno; /* under the lock, or a sweep would remove it */
    if (rc != 0) unlink(d->partial);
    fclose(d->file);
    d->file = NULL;
    assert(d->hash || !hash);
    uint64_t found = d->hash ? ht_hash_end(d->hash) : 0;
    if (hash) *hash = found;
    d->hash = NULL;
    if (rc == 0) return HT_OK;
    return ht_fail(err, HT_FAILED, "%s: cannot be written: %s", d->path, strerror(reason));
}

void ht_durable_discard(struct ht_durable *d)
{
    if (!d->file) return;
    unlink(d->partial);
    fclose(d->file);
    d->file = NULL;
    if (d->hash) ht_hash_end(d->hash);
    d->hash = NULL;
}

/* Returns the target's name of a partial file: "model.safetensors" for "model.safetensors.123.partial". */
static bool partial_of(const char *entry, char name[256])
{
    size_t n = strlen(entry), end = n > 8 ? n - 8 : 0, digits = 0;
    if (end == 0 || n >= 256 || strcmp(entry + end, ".partial") != 0) return false;
    while (digits < end && entry[end - digits - 1] >= '0' && entry[end - digits - 1] <= '9') digits++;
    size_t stem = end - digits;
    if (digits == 0 || stem < 2 || entry[stem - 1] != '.') return false;
    snprintf(name, 256, "%.*s", (int)(stem - 1), entry);
    return true;
}

void ht_durable_sweep(const char *dir, bool (*ours)(const char *name, const void *ctx), const void *ctx)
{
    DIR *d = opendir(dir);
    for (const struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        char name[256];
        if (!partial_of(e->d_name, name) || !ours(name, ctx)) continue;
        int fd = openat(dirfd(d), e->d_name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (fd < 0) continue;
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) unlinkat(dirfd(d), e->d_name, 0);
        close(fd);
    }
    if (d) closedir(d);
}

bool ht_link_is_trusted(const char *link)
{
    char folder[4096];
    struct stat of_link, of_folder;
    const char *slash = strrchr(link, '/');
    snprintf(folder, sizeof(folder), "%.*s", slash ? (int)(slash - link) + 1 : 1, slash ? link : ".");
    if (lstat(link, &of_link) != 0 || stat(folder, &of_folder) != 0) return false;
    bool shared = of_folder.st_mode & S_ISVTX && of_folder.st_mode & S_IWOTH;
    return !shared || of_link.st_uid == geteuid() || of_link.st_uid == of_folder.st_uid;
}

enum ht_status ht_follow_links(const char *path, struct ht_error *err, char out[4096])
{
    char link[4096];
    if (strlen(path) >= sizeof(link)) return ht_fail(err, HT_BAD_INPUT, "%.60s...: the path is too long", path);
    snprintf(out, 4096, "%s", path);
    for (int hops = 0; hops < 40; hops++) {
        ssize_t n = readlink(out, link, sizeof(link));
        if (n < 0) return HT_OK;
        if (!ht_link_is_trusted(out))
            return ht_fail(err, HT_BAD_INPUT, "%s: is a link of another user's in a shared folder", out);
        const char *slash = strrchr(out, '/');
        int before = slash && link[0] != '/' ? (int)(slash - out) + 1 : 0;
        if (n + before >= 4096) return ht_fail(err, HT_BAD_INPUT, "%.60s...: its target's path is too long", path);
        memcpy(out + before, link, (size_t)n);
        out[before + n] = '\0';
    }
    return ht_fail(err, HT_BAD_INPUT, "%s: cannot be written: %s", path, strerror(ELOOP));
}

enum ht_status ht_sync_directory(const char *path, struct ht_error *err)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool synced = fd >= 0 && fsync(fd) == 0;
    int reason = errno;
    if (fd >= 0) close(fd);
    return synced ? HT_OK : ht_fail(err, HT_FAILED, "%s: cannot be synced: %s", path, strerror(reason));
}

uint64_t ht_hash_bytes(const void *data, size_t bytes)
{
    return XXH3_64bits(data, bytes);
}

/* struct ht_hash is another name for XXH3's own state. */
struct ht_hash *ht_hash_begin(void)
{
    XXH3_state_t *state = XXH3_createState();
    if (!state) ht_out_of_memory(1, 576); /* its type is incomplete here */
    XXH3_64bits_reset(state);
    return (struct ht_hash *)state;
}

void ht_hash_add(struct ht_hash *h, const void *data, size_t bytes)
{
    XXH3_64bits_update((XXH3_state_t *)h, data, bytes);
}

uint64_t ht_hash_end(struct ht_hash *h)
{
    uint64_t hash = XXH3_64bits_digest((XXH3_state_t *)h);
    XXH3_freeState((XXH3_state_t *)h);
    return hash;
}

enum ht_status ht_hash_file(const char *path, struct ht_error *err, uint64_t *hash, int64_t *bytes)
{
    FILE *f = fopen(path, "rb");
    if (!f) return ht_fail(err, HT_BAD_INPUT, "%s: cannot be opened: %s", path, strerror(errno));
    unsigned char *chunk = ht_alloc(CHUNK_BYTES);
    struct ht_hash *state = ht_hash_begin();
    enum ht_status status = HT_OK;
    int64_t n = 0;
    for (size_t got; (got = fread(chunk, 1, CHUNK_BYTES, f)) > 0; n += (int64_t)got) ht_hash_add(state, chunk, got);
    if (ferror(f)) status = ht_fail(err, HT_BAD_INPUT, "%s: cannot be read: %s", path, strerror(errno));
    uint64_t found = ht_hash_end(state);
    if (status == HT_OK) {
        *hash = found;
        *bytes = n;
    }
    free(chunk);
    fclose(f);
    return status;
}
