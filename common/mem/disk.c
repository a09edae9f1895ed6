#include "common/mem/disk.h"

#include "common/base/array.h"
#include "common/base/units.h"
#include "common/mem/arena.h"
#include "common/mem/disk_io.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

/* ---- directories ------------------------------------------------------------------------------------------------ */

static enum ht_status check_directory(const char *dir, struct ht_error *err)
{
    struct stat st;
    if (stat(dir, &st)) return ht_fail(err, HT_BAD_INPUT, "--disk: '%s': %s", dir, strerror(errno));
    if (!S_ISDIR(st.st_mode)) return ht_fail(err, HT_BAD_INPUT, "--disk: '%s' is a file; expected a directory", dir);
    if (access(dir, W_OK | X_OK))
        return ht_fail(err, HT_BAD_INPUT, "--disk: '%s' cannot be written in: %s", dir, strerror(errno));
    return HT_OK;
}

enum ht_status ht_disk_parse(char *list, struct ht_error *err, struct ht_disk_options *out)
{
    enum ht_status status = HT_OK;
    out->n_dirs = 0;
    for (char *dir = list, *end; dir && status == HT_OK; dir = end) {
        end = strchr(dir, ',');
        if (end) *end++ = '\0';
        if (!*dir) return ht_fail(err, HT_BAD_INPUT, "--disk: a directory is empty; expected DIR or DIR,DIR");
        if (out->n_dirs == HT_MAX_DISKS)
            return ht_fail(err, HT_BAD_INPUT, "--disk: more than %d directories", HT_MAX_DISKS);
        status = check_directory(dir, err);
        out->dirs[out->n_dirs++] = dir;
    }
    return status;
}

/* ---- files ------------------------------------------------------------------------------------------------------ */

void disk_remark(struct ht_disk *d, const char *fmt, ...)
{
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    pthread_mutex_lock(&d->lock);
    size_t used = strlen(d->note);
    if (!strstr(d->note, text)) snprintf(d->note + used, sizeof(d->note) - used, "%s%s", used ? "; " : "", text);
    pthread_mutex_unlock(&d->lock);
}

/* Opens a file without a name: one that never had one, or where the file system has none such, one that lost it. */
static int open_unnamed(const char *dir, int flags)
{
    int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC | flags, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT)) return fd;
    char path[4096];
    if (snprintf(path, sizeof(path), "%s/.hetbench-disk-XXXXXX", dir) >= (int)sizeof(path)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0) return fd;
    unlink(path);
    if (!flags) return fd;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int again = open(path, O_RDWR | O_CLOEXEC | flags), why = errno;
    close(fd);
    errno = why;
    return again;
}

/* Returns the alignment that direct transfers of a file ask of memory; 0: it has none in blocks of ours. */
static int32_t direct_alignment(int fd)
{
#ifdef STATX_DIOALIGN
    struct statx x;
    if (!statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &x) && x.stx_mask & STATX_DIOALIGN) {
        if (!x.stx_dio_offset_align || x.stx_dio_offset_align > HT_DISK_BLOCK) return 0;
        return x.stx_dio_mem_align > HT_DISK_BLOCK ? 0 : (int32_t)x.stx_dio_mem_align;
    }
#endif
    (void)fd;
    return 512;
}

/* Opens one file; `path` NULL: a new one in the directory, else by that path. Sees whether it can be direct. */
static enum ht_status open_file(struct ht_disk *d, int32_t i, const char *path, struct ht_error *err)
{
    const char *dir = d->options.dirs[i];
    int flags = O_RDWR | O_CLOEXEC;
    int fd = path ? open(path, flags | O_DIRECT) : open_unnamed(dir, O_DIRECT), why = errno;
    int32_t align = fd >= 0 ? direct_alignment(fd) : 0;
    if ((fd < 0 && why == EINVAL) || (fd >= 0 && align == 0)) {
        disk_remark(d, "%.80s has no direct transfers (O_DIRECT): through the page cache", dir);
        if (fd >= 0) close(fd);
        fd = path ? open(path, flags) : open_unnamed(dir, 0);
        why = errno;
        align = 1;
    } else if (fd >= 0) {
        d->direct = true;
    }
    if (fd < 0)
        return ht_fail(err, HT_FAILED, "--disk: cannot %s a file in %s: %s", path ? "open" : "make", dir,
                       strerror(why));
    if (align > d->memory_align) d->memory_align = align;
    d->fds[i] = fd;
    return HT_OK;
}

static enum ht_status reserve(struct ht_disk *d, int32_t i, const char *what, struct ht_error *err)
{
    const struct ht_disk_shim *shim = d->options.shim;
    char text[HT_QUANTITY_TEXT];
    int why = shim && shim->reserve ? shim->reserve(shim->ctx, d->file_bytes) : 0;
    while (!why && d->file_bytes && fallocate(d->fds[i], 0, 0, d->file_bytes))
        if (errno != EINTR) why = errno;
    if (!why) return HT_OK;
    bool full = why == ENOSPC || why == EDQUOT || why == EFBIG;
    return ht_fail(err, full ? HT_INFEASIBLE : HT_FAILED, "%s needs %s of disk space in %s: %s", what,
                   ht_format_quantity(HT_BYTES, (double)d->file_bytes, text), d->options.dirs[i], strerror(why));
}

/* ---- the space -------------------------------------------------------------------------------------------------- */

static size_t sums_bytes(const struct ht_disk *d)
{
    return (size_t)(d->bytes / HT_DISK_BLOCK) * sizeof(uint64_t);
}

/* Maps the table of checksums, which costs memory as far as blocks are written. */
static enum ht_status map_sums(struct ht_disk *d, int fd, struct ht_error *err)
{
    if (!d->options.checksums || d->bytes == 0) return HT_OK;
    void *sums = mmap(NULL, sums_bytes(d), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (sums == MAP_FAILED)
        return ht_fail(err, HT_INFEASIBLE, "cannot map the checksums of a disk space: %s", strerror(errno));
    d->sums = sums;
    return HT_OK;
}

static enum ht_status make_sums(struct ht_disk *d, struct ht_error *err)
{
    if (!d->options.checksums) return HT_OK;
    d->sums_fd = memfd_create("hetbench-sums", MFD_CLOEXEC);
    if (d->sums_fd < 0 || ftruncate(d->sums_fd, (off_t)sums_bytes(d)))
        return ht_fail(err, HT_INFEASIBLE, "cannot make the checksums of a disk space: %s", strerror(errno));
    return map_sums(d, d->sums_fd, err);
}

static struct ht_disk *begin(const struct ht_disk_options *options, void *base, int64_t bytes)
{
    assert(options->n_dirs >= 1 && (uintptr_t)base % HT_DISK_BLOCK == 0 && bytes % HT_DISK_BLOCK == 0);
    struct ht_disk *d = HT_NEW(struct ht_disk);
    d->options = *options;
    d->base = base;
    d->bytes = bytes;
    d->file_bytes = ht_round_up(ht_round_up(bytes, HT_DISK_STRIPE) / HT_DISK_STRIPE, options->n_dirs) /
                    options->n_dirs * HT_DISK_STRIPE;
    d->memory_align = 1;
    d->sums_fd = -1;
    for (int i = 0; i < HT_MAX_DISKS; i++) d->fds[i] = -1;
    pthread_mutex_init(&d->lock, NULL);
    return d;
}

/* Makes a channel: by io_uring, or by threads where the kernel refuses another ring. */
static int make_channel(struct ht_disk *d, struct disk_channel **out)
{
    struct disk_channel *c = HT_NEW(struct disk_channel);
    bool may = d->options.path != HT_DISK_URING;
    c->d = d;
    int why = d->uring ? disk_uring_create(d, &c->uring) : 0;
    if (why && may) disk_remark(d, "io_uring is refused (%s): by threads of pread and pwrite", strerror(-why));
    if (!c->uring && may) why = disk_threads_create(&c->threads);
    if (why) {
        free(c);
        c = NULL;
    }
    *out = c;
    return why;
}

/* Chooses the way of the transfers by making the first channel. */
static enum ht_status choose_path(struct ht_disk *d, struct ht_error *err)
{
    enum ht_disk_path path = d->options.path;
    d->uring = path != HT_DISK_THREADS;
    int why = make_channel(d, &d->idle);
    if (why && path == HT_DISK_URING)
        return ht_fail(err, HT_INFEASIBLE, "io_uring is refused: %s; expected --disk-io threads", strerror(-why));
    if (!why) d->uring = d->idle->uring != NULL;
    return why ? ht_fail(err, HT_FAILED, "cannot make threads for the disk: %s", strerror(-why)) : HT_OK;
}

enum ht_status ht_disk_create(const struct ht_disk_options *options, void *base, int64_t bytes, const char *what,
                              struct ht_error *err, struct ht_disk **out)
{
    struct ht_disk *d = begin(options, base, bytes);
    enum ht_status status = HT_OK;
    for (int32_t i = 0; i < options->n_dirs && status == HT_OK; i++) status = open_file(d, i, NULL, err);
    for (int32_t i = 0; i < options->n_dirs && status == HT_OK; i++) status = reserve(d, i, what, err);
    if (status == HT_OK) status = make_sums(d, err);
    if (status == HT_OK) status = choose_path(d, err);
    if (status == HT_OK)
        *out = d;
    else
        ht_disk_destroy(d);
    return status;
}

enum ht_status ht_disk_create_space(const struct ht_disk_options *options, int64_t capacity_bytes, int64_t slack_bytes,
                                    const char *what, struct ht_error *err, struct ht_arena **arena,
                                    struct ht_disk **disk)
{
    struct ht_arena *a;
    int64_t bytes;
    enum ht_status status = ht_arena_create_disk(NULL, capacity_bytes, slack_bytes, err, &a);
    if (status) return status;
    void *base = ht_arena_base(a, &bytes);
    status = ht_disk_create(options, base, bytes, what, err, disk);
    if (status == HT_OK)
        *arena = a;
    else
        ht_arena_destroy(a);
    return status;
}

struct ht_disk_handle ht_disk_handle(const struct ht_disk *d)
{
    struct ht_disk_handle h = {.pid = (int32_t)getpid(), .sums_fd = d->sums_fd};
    for (int i = 0; i < HT_MAX_DISKS; i++) h.fds[i] = d->fds[i];
    return h;
}

enum ht_status ht_disk_attach(const struct ht_disk_options *options, const struct ht_disk_handle *handle, void *base,
                              int64_t bytes, struct ht_error *err, struct ht_disk **out)
{
    struct ht_disk *d = begin(options, base, bytes);
    enum ht_status status = HT_OK;
    char path[64];
    for (int32_t i = 0; i < options->n_dirs && status == HT_OK; i++) {
        snprintf(path, sizeof(path), "/proc/%d/fd/%d", handle->pid, handle->fds[i]);
        status = open_file(d, i, path, err);
    }
    if (status == HT_OK && options->checksums) {
        snprintf(path, sizeof(path), "/proc/%d/fd/%d", handle->pid, handle->sums_fd);
        d->sums_fd = open(path, O_RDWR | O_CLOEXEC);
        status = d->sums_fd < 0
                     ? ht_fail(err, HT_FAILED, "cannot open the disk of process %d: %s", handle->pid, strerror(errno))
                     : map_sums(d, d->sums_fd, err);
    }
    if (status == HT_OK) status = choose_path(d, err);
    if (status == HT_OK)
        *out = d;
    else
        ht_disk_destroy(d);
    return status;
}

static void destroy_channel(struct disk_channel *c)
{
    disk_uring_destroy(c->uring);
    disk_threads_destroy(c->threads);
    free(c->requests);
    free(c);
}

void ht_disk_destroy(struct ht_disk *d)
{
    if (!d) return;
    for (struct disk_channel *c = d->idle, *next; c; c = next) {
        next = c->next;
        destroy_channel(c);
    }
    if (d->sums) munmap(d->sums, sums_bytes(d));
    if (d->sums_fd >= 0) close(d->sums_fd);
    for (int i = 0; i < HT_MAX_DISKS; i++)
        if (d->fds[i] >= 0) close(d->fds[i]);
    pthread_mutex_destroy(&d->lock);
    free(d);
}

void ht_disk_register(struct ht_disk *d, void *memory, int64_t bytes)
{
    d->memory = memory;
    d->memory_bytes = bytes;
}

const char *ht_disk_note(const struct ht_disk *d)
{
    return d->note[0] ? d->note : NULL;
}

/* ---- one request ------------------------------------------------------------------------------------------------ */

int disk_file(const struct ht_disk *d, int64_t offset, int64_t *at)
{
    int64_t stripe = offset / HT_DISK_STRIPE;
    *at = stripe / d->options.n_dirs * HT_DISK_STRIPE + offset % HT_DISK_STRIPE;
    return d->fds[stripe % d->options.n_dirs];
}

static enum ht_status fail_at(const struct disk_channel *c, int64_t offset, struct ht_error *err, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
static enum ht_status fail_at(const struct disk_channel *c, int64_t offset, struct ht_error *err, const char *fmt, ...)
{
    char text[256];
    int64_t at;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    disk_file(c->d, offset, &at);
    const char *dir = c->d->options.dirs[offset / HT_DISK_STRIPE % c->d->options.n_dirs];
    return ht_fail(err, HT_FAILED, "disk file in %s, offset %lld: %s", dir, (long long)at, text);
}

/* Returns a block's checksum, which is never 0. */
static uint64_t sum_of(const char *block)
{
    uint64_t sum = XXH3_64bits(block, HT_DISK_BLOCK);
    return sum ? sum : 1;
}

/* Returns the checksum that a block must have when it is read. One that was never written is of zeros, as the kernel
   gives a file's reserved space. */
static uint64_t expected_sum(const struct ht_disk *d, int64_t offset)
{
    static const char zeros[HT_DISK_BLOCK];
    uint64_t sum = d->sums[offset / HT_DISK_BLOCK];
    return sum ? sum : sum_of(zeros);
}

void *disk_begin(const struct disk_channel *c, struct disk_request *r, char *bounce)
{
    char *data = r->bounced ? bounce : r->memory;
    r->done = 0;
    if (c->write && r->bounced) {
        assert(r->skip == 0); /* writes begin with a block */
        memcpy(data, r->memory, (size_t)r->used);
        memset(data + r->used, 0, (size_t)(r->bytes - r->used));
    }
    if (c->write && c->d->sums)
        for (int32_t i = 0; i < r->bytes / HT_DISK_BLOCK; i++)
            c->d->sums[r->offset / HT_DISK_BLOCK + i] = sum_of(data + (int64_t)i * HT_DISK_BLOCK);
    return data;
}

enum ht_status disk_took(const struct disk_channel *c, struct disk_request *r, void *data, int64_t result, bool *again,
                         struct ht_error *err)
{
    const struct ht_disk_shim *shim = c->d->options.shim;
    int64_t left = r->bytes - r->done, at = r->offset + r->done;
    const char *verb = c->write ? "writing" : "reading";
    if (shim && shim->result) result = shim->result(shim->ctx, c->write, at, (char *)data + r->done, left, result);
    *again = true;
    if (result == -EINTR || result == -EAGAIN) return HT_OK;
    if (result < 0) return fail_at(c, at, err, "%s %lld bytes: %s", verb, (long long)left, strerror((int)-result));
    if (result == 0) return fail_at(c, at, err, "%s ended early; expected %lld bytes more", verb, (long long)left);
    int32_t done = r->done + (int32_t)result;
    *again = done < r->bytes;
    /* A direct transfer begins with a block: repeats the rest of one that came only in part. */
    if (*again && c->d->direct) done = done / HT_DISK_BLOCK * HT_DISK_BLOCK;
    if (done == r->done) return fail_at(c, at, err, "%s %lld bytes ended within a block", verb, (long long)left);
    r->done = done;
    return HT_OK;
}

enum ht_status disk_end(const struct disk_channel *c, const struct disk_request *r, const void *data,
                        struct ht_error *err)
{
    if (c->write) return HT_OK;
    for (int32_t i = 0; c->d->sums && i < r->bytes / HT_DISK_BLOCK; i++) {
        int64_t at = r->offset + (int64_t)i * HT_DISK_BLOCK;
        uint64_t want = expected_sum(c->d, at), have = sum_of((const char *)data + (int64_t)i * HT_DISK_BLOCK);
        if (have != want)
            return fail_at(c, at, err, "the block is not what was written there: checksum %016llx, expected %016llx",
                           (unsigned long long)have, (unsigned long long)want);
    }
    if (r->bounced) memcpy(r->memory, (const char *)data + r->skip, (size_t)r->used);
    return HT_OK;
}

/* ---- transfers -------------------------------------------------------------------------------------------------- */

/* Cuts a move into requests. A write must begin with a block, and be of whole blocks or end with padding. */
static void add_requests(struct disk_channel *c, const struct ht_disk_move *m, int32_t index)
{
    const struct ht_disk *d = c->d;
    int64_t begin = (char *)m->at - d->base, end = begin + m->bytes;
    assert(begin >= 0 && end <= d->bytes);
    for (int64_t at = begin, next; at < end; at = next) {
        struct disk_request r = {.memory = (char *)m->memory + (at - begin), .move = index};
        r.skip = (int32_t)(at % HT_DISK_BLOCK);
        r.offset = at - r.skip;
        next = (at / HT_DISK_STRIPE + 1) * HT_DISK_STRIPE;
        if (next > end) next = end;
        int64_t whole = next / HT_DISK_BLOCK * HT_DISK_BLOCK;
        r.bounced = (uintptr_t)r.memory % (uintptr_t)d->memory_align;
        if (r.skip || whole <= at) {
            r.bounced = true; /* part of one block */
            if (next > r.offset + HT_DISK_BLOCK) next = r.offset + HT_DISK_BLOCK;
        } else {
            next = whole;
            if (r.bounced && next > at + DISK_BOUNCE) next = at + DISK_BOUNCE;
        }
        r.used = (int32_t)(next - at);
        r.bytes = (int32_t)ht_round_up(r.skip + r.used, HT_DISK_BLOCK);
        HT_PUSH(c->requests, c->n, c->cap, r);
    }
}

static enum ht_status take_channel(struct ht_disk *d, struct disk_channel **out, struct ht_error *err)
{
    pthread_mutex_lock(&d->lock);
    struct disk_channel *c = d->idle;
    if (c) d->idle = c->next;
    pthread_mutex_unlock(&d->lock);
    int why = c ? 0 : make_channel(d, &c);
    *out = c; /* NULL on error */
    if (why) return ht_fail(err, HT_FAILED, "cannot make another channel of the disk: %s", strerror(-why));
    c->n = 0;
    return HT_OK;
}

static void give_channel(struct disk_channel *c)
{
    struct ht_disk *d = c->d;
    if (c->broken) return;
    pthread_mutex_lock(&d->lock);
    c->next = d->idle;
    d->idle = c;
    pthread_mutex_unlock(&d->lock);
}

static enum ht_status run(struct disk_channel *c, int32_t *failed, struct ht_error *err)
{
    if (c->n == 0) return HT_OK;
    return c->uring ? disk_uring_run(c, failed, err) : disk_threads_run(c, failed, err);
}

/* Writes a part of one block: reads the block, changes it, writes it. */
static enum ht_status patch(struct ht_disk *d, const void *memory, char *at, int64_t bytes, struct ht_error *err)
{
    _Alignas(HT_DISK_BLOCK) char block[HT_DISK_BLOCK];
    int64_t skip = (at - d->base) % HT_DISK_BLOCK;
    struct ht_disk_move m = {.memory = block, .at = at - skip, .bytes = HT_DISK_BLOCK, .whole = true};
    enum ht_status status = ht_disk_read(d, &m, 1, NULL, err);
    if (status == HT_OK) memcpy(block + skip, memory, (size_t)bytes);
    return status == HT_OK ? ht_disk_write(d, &m, 1, NULL, err) : status;
}

/* Writes the partial blocks at the ends of a move, and takes them off it. */
static enum ht_status write_ends(struct ht_disk *d, struct ht_disk_move *m, struct ht_error *err)
{
    int64_t skip = ((char *)m->at - d->base) % HT_DISK_BLOCK, head = skip ? HT_DISK_BLOCK - skip : 0;
    enum ht_status status = HT_OK;
    if (m->whole) {
        assert(skip == 0);
        return HT_OK;
    }
    if (head > m->bytes) head = m->bytes;
    if (head) status = patch(d, m->memory, m->at, head, err);
    m->memory = (char *)m->memory + head;
    m->at = (char *)m->at + head;
    m->bytes -= head;
    int64_t tail = m->bytes % HT_DISK_BLOCK;
    m->bytes -= tail;
    if (status || !tail) return status;
    return patch(d, (char *)m->memory + m->bytes, (char *)m->at + m->bytes, tail, err);
}

static enum ht_status transfer(struct ht_disk *d, bool write, const struct ht_disk_move *moves, int32_t n,
                               int32_t *failed, struct ht_error *err)
{
    struct disk_channel *c;
    int32_t which = 0;
    enum ht_status status = take_channel(d, &c, err);
    if (status == HT_OK) c->write = write;
    for (int32_t i = 0; i < n && status == HT_OK; i++) {
        struct ht_disk_move m = moves[i];
        if (write) status = write_ends(d, &m, err);
        if (status == HT_OK) add_requests(c, &m, i);
        if (status) which = i;
    }
    if (status == HT_OK) status = run(c, &which, err);
    if (c) give_channel(c);
    if (status && failed) *failed = which;
    return status;
}

enum ht_status ht_disk_read(struct ht_disk *d, const struct ht_disk_move *moves, int32_t n, int32_t *failed,
                            struct ht_error *err)
{
    return transfer(d, false, moves, n, failed, err);
}

enum ht_status ht_disk_write(struct ht_disk *d, const struct ht_disk_move *moves, int32_t n, int32_t *failed,
                             struct ht_error *err)
{
    return transfer(d, true, moves, n, failed, err);
}
