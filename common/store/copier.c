#include "common/store/copier.h"

#include "common/base/array.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef HT_HAVE_URING
#include <liburing.h>
#endif

enum { BLOCK = 1 << 20, DEPTH = 8, ALIGN = 4096 };

/* A block on its way to the disk. */
struct slot {
    char *data;
    int64_t offset, bytes;
};

struct ht_copier {
    struct slot slots[DEPTH];
    int32_t free_slots[DEPTH], n_free, n_flying;
    int fd;          /* of the file that is written */
    bool direct;     /* its writes bypass the page cache */
    bool made, ring; /* there is an io_uring, and it works */
    int reason;      /* errno of the first write that failed; 0: none */
#ifdef HT_HAVE_URING
    struct io_uring uring;
#endif
};

struct ht_copier *ht_copier_create(void)
{
    struct ht_copier *c = HT_NEW(struct ht_copier);
    for (int32_t i = 0; i < DEPTH; i++) {
        c->slots[i].data = aligned_alloc(ALIGN, BLOCK);
        if (!c->slots[i].data) ht_out_of_memory(1, BLOCK);
        c->free_slots[c->n_free++] = i;
    }
#ifdef HT_HAVE_URING
    c->made = c->ring = io_uring_queue_init(DEPTH, &c->uring, 0) == 0;
#endif
    return c;
}

void ht_copier_destroy(struct ht_copier *c)
{
    if (!c) return;
#ifdef HT_HAVE_URING
    if (c->made) io_uring_queue_exit(&c->uring);
#endif
    for (int32_t i = 0; i < DEPTH; i++) free(c->slots[i].data);
    free(c);
}

/* ---- writing ---- */

static void set_direct(struct ht_copier *c, bool on)
{
    int flags = fcntl(c->fd, F_GETFL);
    c->direct = flags >= 0 && fcntl(c->fd, F_SETFL, on ? flags | O_DIRECT : flags & ~O_DIRECT) == 0 && on;
}

/* Writes a block, or what is left of it from `done` on. */
static void write_now(struct ht_copier *c, const struct slot *s, int64_t done)
{
    while (done < s->bytes && !c->reason) {
        if (c->direct && (done % ALIGN || s->bytes % ALIGN)) set_direct(c, false);
        ssize_t n = pwrite(c->fd, s->data + done, (size_t)(s->bytes - done), (off_t)(s->offset + done));
        if (n < 0 && errno == EINVAL && c->direct)
            set_direct(c, false); /* a file system without it */
        else if (n < 0 && errno != EINTR)
            c->reason = errno;
        else if (n > 0)
            done += n;
    }
}

/* Waits for a block in flight and frees its slot. */
static void reap(struct ht_copier *c)
{
#ifdef HT_HAVE_URING
    struct io_uring_cqe *cqe;
    int status;
    do status = io_uring_wait_cqe(&c->uring, &cqe);
    while (status == -EINTR);
    if (status < 0) abort(); /* the kernel has the buffers: there is no way on */
    int32_t slot = (int32_t)io_uring_cqe_get_data64(cqe), result = cqe->res;
    io_uring_cqe_seen(&c->uring, cqe);
    if (result < 0 && result != -EINVAL && result != -EAGAIN && result != -EINTR) {
        if (!c->reason) c->reason = -result;
    } else if (result < c->slots[slot].bytes) {
        write_now(c, &c->slots[slot], result > 0 ? result : 0);
    }
    c->free_slots[c->n_free++] = slot;
    c->n_flying--;
#else
    (void)c;
#endif
}

static void drain(struct ht_copier *c)
{
    while (c->n_flying > 0) reap(c);
}

/* Writes a slot's block, or begins to. */
static void submit(struct ht_copier *c, int32_t slot)
{
    struct slot *s = &c->slots[slot];
#ifdef HT_HAVE_URING
    struct io_uring_sqe *sqe = c->ring && s->bytes % ALIGN == 0 ? io_uring_get_sqe(&c->uring) : NULL;
    if (sqe) {
        io_uring_prep_write(sqe, c->fd, s->data, (unsigned)s->bytes, (uint64_t)s->offset);
        io_uring_sqe_set_data64(sqe, (uint64_t)slot);
        c->ring = io_uring_submit(&c->uring) == 1;
        c->n_flying += c->ring; /* else it has not begun, and the queue is not used again */
        if (c->ring) return;
    }
#endif
    if (s->bytes % ALIGN) drain(c); /* the last block leaves the direct way, which those in flight still go */
    write_now(c, s, 0);
    c->free_slots[c->n_free++] = slot;
}

/* ---- a file ---- */

/* Reads a block whole. Returns the bytes, fewer at the file's end; -1 with errno. */
static int64_t read_block(int in, char *data, int64_t offset)
{
    int64_t done = 0;
    while (done < BLOCK) {
        ssize_t n = pread(in, data + done, (size_t)(BLOCK - done), (off_t)(offset + done));
        if (n < 0 && errno != EINTR) return -1;
        if (n == 0) break;
        if (n > 0) done += n;
    }
    return done;
}

static enum ht_status copy(struct ht_copier *c, int in, const char *name, ht_copier_goes_on goes_on, void *ctx,
                           struct ht_error *err, struct ht_hash *hash, int64_t *bytes)
{
    for (*bytes = 0; !c->reason;) {
        if (c->n_free == 0) reap(c);
        int32_t slot = c->free_slots[--c->n_free];
        struct slot *s = &c->slots[slot];
        s->offset = *bytes;
        s->bytes = read_block(in, s->data, *bytes);
        if (s->bytes <= 0) {
            c->free_slots[c->n_free++] = slot;
            return s->bytes < 0 ? ht_fail(err, HT_FAILED, "%s: cannot be read: %s", name, strerror(errno)) : HT_OK;
        }
        *bytes += s->bytes;
        ht_hash_add(hash, s->data, (size_t)s->bytes);
        submit(c, slot);
        if (!goes_on(ctx, *bytes)) return ht_fail(err, HT_INTERRUPTED, "%s: the copy was stopped", name);
    }
    return HT_OK;
}

enum ht_status ht_copier_copy(struct ht_copier *c, int in, const char *name, struct ht_durable *out,
                              ht_copier_goes_on goes_on, void *ctx, struct ht_error *err, uint64_t *hash)
{
    struct ht_hash *sum = ht_hash_begin();
    struct stat sb;
    int64_t bytes = 0;
    c->fd = ht_durable_take_fd(out);
    c->reason = 0;
    if (fstat(in, &sb) == 0 &&
        sb.st_size >= BLOCK) { /* room at once: blocks in flight then do not wait for each other's */
        if (fallocate(c->fd, 0, 0, sb.st_size) != 0 && errno == ENOSPC) c->reason = ENOSPC;
        set_direct(c, true);
    } else {
        c->direct = false;
    }
    enum ht_status status = copy(c, in, name, goes_on, ctx, err, sum, &bytes);
    drain(c);
    if (c->direct) set_direct(c, false);
    *hash = ht_hash_end(sum);
    out->bytes = bytes;
    if (status == HT_OK && c->reason)
        return ht_fail(err, HT_FAILED, "%s: cannot be written: %s", out->path, strerror(c->reason));
    return status;
}
