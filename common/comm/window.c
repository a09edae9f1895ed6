#include "common/comm/window.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static enum ht_status map(int fd, int64_t bytes, struct ht_error *err, struct ht_window *w)
{
    w->bytes = bytes;
    if (bytes == 0) return HT_OK;
    void *base = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (base == MAP_FAILED)
        return ht_fail(err, HT_INFEASIBLE, "cannot map %lld bytes of the node's shared memory: %s", (long long)bytes,
                       strerror(errno));
    w->base = base;
    return HT_OK;
}

enum ht_status ht_window_create(int64_t bytes, struct ht_error *err, struct ht_window *w)
{
    *w = (struct ht_window){.pid = (int32_t)getpid(), .fd = memfd_create("hetbench", MFD_CLOEXEC)};
    enum ht_status status = HT_OK;
    if (w->fd < 0 || ftruncate(w->fd, bytes))
        status = ht_fail(err, HT_INFEASIBLE, "cannot make %lld bytes of shared memory: %s", (long long)bytes,
                         strerror(errno));
    if (!status) status = map(w->fd, bytes, err, w);
    if (!status) return HT_OK;
    ht_window_seal(w);
    *w = (struct ht_window){.fd = -1};
    return status;
}

enum ht_status ht_window_attach(int32_t pid, int32_t fd, int64_t bytes, struct ht_error *err, struct ht_window *w)
{
    char path[64];
    *w = (struct ht_window){.pid = pid, .fd = -1};
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, fd);
    int mine = open(path, O_RDWR | O_CLOEXEC);
    if (mine < 0)
        return ht_fail(err, HT_FAILED, "cannot open the shared memory of process %d: %s", pid, strerror(errno));
    enum ht_status status = map(mine, bytes, err, w);
    close(mine);
    if (status) *w = (struct ht_window){.fd = -1};
    return status;
}

void ht_window_seal(struct ht_window *w)
{
    if (w->fd >= 0 && w->pid == (int32_t)getpid()) close(w->fd);
    w->fd = -1;
}

void ht_window_free(struct ht_window *w)
{
    if (w->base) munmap(w->base, (size_t)w->bytes);
    if (w->base || w->bytes) ht_window_seal(w);
    *w = (struct ht_window){.fd = -1};
}
