#include "harness/run/output.h"

#include "common/ckpt/durable.h"
#include "common/comm/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- targets ---------------------------------------------------------------------------------------- */

/* Returns the path's last component. */
static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Returns true for a /proc/PID/fd/N. Linux shows a descriptor there as a link, which may name a plain file: opening
   that by its name would lose what others write through the descriptor. */
static bool is_descriptor(const char *path, int *pid, int *fd)
{
    const char *base = base_of(path);
    char folder[HT_PATH_BYTES], real[PATH_MAX];
    int end = 0, task;
    if (base == path || !*base || strspn(base, "0123456789") != strlen(base) || strlen(base) > 9) return false;
    snprintf(folder, sizeof(folder), "%.*s", (int)(base - path), path);
    if (!realpath(folder, real)) return false;
    *fd = atoi(base);
    if (sscanf(real, "/proc/%d/fd%n", pid, &end) == 1 && end && !real[end]) return true;
    end = 0;
    return sscanf(real, "/proc/%d/task/%d/fd%n", pid, &task, &end) == 2 && end && !real[end];
}

/* Finds the target of a descriptor. mpirun closes descriptors beyond the standard streams in a rank but keeps them open
   itself. */
static void find_descriptor(int pid, int fd, struct ht_target *t)
{
    t->descriptor = true;
    if (pid == getpid() && ht_launched_here() && fd > STDERR_FILENO)
        snprintf(t->path, sizeof(t->path), "/proc/%d/fd/%d", (int)getppid(), fd);
    else if (pid == getpid())
        t->fd = fd;
    t->exists = (t->fd >= 0 ? fstat(t->fd, &t->st) : stat(t->path, &t->st)) == 0;
}

enum ht_status ht_target_find(const char *path, struct ht_error *err, struct ht_target *out)
{
    char link[HT_PATH_BYTES];
    int pid, fd;
    *out = (struct ht_target){.fd = -1};
    if (strlen(path) >= sizeof(out->path)) return ht_fail(err, HT_BAD_INPUT, "%.60s...: the path is too long", path);
    snprintf(out->path, sizeof(out->path), "%s", path);
    for (int links = 0; links < 40; links++) {
        if (is_descriptor(out->path, &pid, &fd)) {
            find_descriptor(pid, fd, out);
            return HT_OK;
        }
        ssize_t n = readlink(out->path, link, sizeof(link));
        if (n < 0) {
            out->exists = stat(out->path, &out->st) == 0;
            return HT_OK;
        }
        if (!ht_link_is_trusted(out->path))
            return ht_fail(err, HT_BAD_INPUT, "%s: is a link of another user's in a shared folder", out->path);
        size_t folder = link[0] == '/' ? 0 : (size_t)(base_of(out->path) - out->path);
        if (folder + (size_t)n >= sizeof(out->path))
            return ht_fail(err, HT_BAD_INPUT, "%.60s...: the path is too long", path);
        memcpy(out->path + folder, link, (size_t)n);
        out->path[folder + (size_t)n] = '\0';
    }
    return ht_fail(err, HT_BAD_INPUT, "%s: cannot be written: %s", path, strerror(ELOOP));
}

/* ---- writing --------------------------------------------------------------------------------------------------- */

/* Opens a new file beside the target, with the mode and owner of the file that it will replace. Processes of several
   hosts may share the folder and have the same id. */
static int open_partial(const struct ht_target *t, struct ht_output *out)
{
    const char *base = base_of(t->path);
    int fd = -1;
    if (t->exists && access(t->path, W_OK) != 0) return -1; /* its folder alone could be writable */
    for (int attempt = 0; fd < 0 && attempt < 100; attempt++) {
        int n = snprintf(out->partial, sizeof(out->partial), "%.*s%.200s.%d%02d.partial", (int)(base - t->path),
                         t->path, base, (int)getpid(), attempt);
        if (n >= (int)sizeof(out->partial)) {
            errno = ENAMETOOLONG;
            return -1;
        }
        fd = open(out->partial, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0 && errno != EEXIST) return -1;
    }
    if (fd >= 0 && t->exists) ht_take_mode(fd, &t->st);
    return fd;
}

/* Opens a target that cannot be replaced. Appends to a plain file behind another process's descriptor. */
static int open_direct(const struct ht_target *t)
{
    if (t->fd < 0) return open(t->path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY);
    if (t->fd == STDOUT_FILENO) fflush(stdout);
    return fcntl(t->fd, F_DUPFD_CLOEXEC, 0);
}

static bool is_replaced(const struct ht_target *t)
{
    return !t->descriptor && (!t->exists || S_ISREG(t->st.st_mode));
}

static enum ht_status find_file(const char *path, struct ht_error *err, struct ht_target *t)
{
    enum ht_status status = ht_target_find(path, err, t);
    if (status == HT_OK && t->exists && S_ISDIR(t->st.st_mode))
        status = ht_fail(err, HT_BAD_INPUT, "%s: is a directory; expected a file to write", path);
    return status;
}

enum ht_status ht_output_open(const char *path, struct ht_error *err, struct ht_output *out)
{
    struct ht_target t;
    out->file = NULL;
    out->partial[0] = '\0';
    enum ht_status status = find_file(path, err, &t);
    if (status != HT_OK) return status;
    snprintf(out->path, sizeof(out->path), "%s", path);
    snprintf(out->target, sizeof(out->target), "%s", t.path);
    int fd = is_replaced(&t) ? open_partial(&t, out) : open_direct(&t);
    if (fd >= 0) out->file = fdopen(fd, "w");
    if (out->file) return HT_OK;
    int reason = errno;
    if (fd >= 0) close(fd);
    return ht_fail(err, HT_BAD_INPUT, "%s: cannot be written: %s", path, strerror(reason));
}

/* Returns true when the target could be written to. Opens a device, since /dev/tty needs a terminal, which ranks do not
   have; does not open a pipe, which would wait for its reader. */
static bool check_direct(const struct ht_target *t)
{
    if (t->fd < 0 && t->exists && S_ISCHR(t->st.st_mode)) {
        int fd = open(t->path, O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
        if (fd >= 0) close(fd);
        return fd >= 0;
    }
    if (t->fd < 0) {
        errno = ENXIO; /* as open() has for a socket */
        return t->exists && !S_ISSOCK(t->st.st_mode) && access(t->path, W_OK) == 0;
    }
    int flags = fcntl(t->fd, F_GETFL);
    if (flags >= 0 && (flags & O_ACCMODE) != O_RDONLY) return true;
    errno = EBADF;
    return false;
}

enum ht_status ht_output_check(const char *path, struct ht_error *err)
{
    struct ht_target t;
    struct ht_output out;
    enum ht_status status = find_file(path, err, &t);
    if (status != HT_OK) return status;
    if (!is_replaced(&t)) {
        if (check_direct(&t)) return HT_OK;
        return ht_fail(err, HT_BAD_INPUT, "%s: cannot be written: %s", path, strerror(errno));
    }
    status = ht_output_open(path, err, &out);
    if (status == HT_OK) ht_output_discard(&out);
    return status;
}

enum ht_status ht_output_check_plain(const char *path, struct ht_error *err)
{
    struct ht_target t;
    enum ht_status status = find_file(path, err, &t);
    if (status == HT_OK && !is_replaced(&t))
        return ht_fail(err, HT_BAD_INPUT, "%s: cannot be written: not a plain file", path);
    return status == HT_OK ? ht_output_check(path, err) : status;
}

enum ht_status ht_output_check_ranks(const char *path, struct ht_error *err)
{
    struct ht_target t;
    enum ht_status status = path ? ht_target_find(path, err, &t) : HT_OK;
    if (!path || status || !t.descriptor || t.fd <= STDERR_FILENO || !S_ISREG(t.st.st_mode)) return status;
    return ht_fail(err, HT_BAD_INPUT, "%s: a descriptor of a plain file; expected the file's name, as ranks write it",
                   path);
}

enum ht_status ht_output_commit(struct ht_output *out, struct ht_error *err)
{
    bool failed = fflush(out->file) != 0;
    int reason = failed ? errno : EIO;
    failed |= ferror(out->file) != 0;
    if (fclose(out->file) != 0 && !failed) {
        failed = true;
        reason = errno;
    }
    out->file = NULL;
    if (!failed && out->partial[0] && rename(out->partial, out->target) != 0) {
        failed = true;
        reason = errno;
    }
    if (!failed) return HT_OK;
    if (out->partial[0]) unlink(out->partial);
    return ht_fail(err, HT_FAILED, "%s: cannot be written: %s", out->path, strerror(reason));
}

void ht_output_discard(struct ht_output *out)
{
    if (!out->file) return;
    fclose(out->file);
    out->file = NULL;
    if (out->partial[0]) unlink(out->partial);
}

enum ht_status ht_output_end(struct ht_output *out, enum ht_status written, struct ht_error *err)
{
    if (written == HT_OK) return ht_output_commit(out, err);
    struct ht_error why = *err;
    ht_output_discard(out);
    return ht_fail(err, written, "%s: %.900s", out->path, why.text);
}

enum ht_status ht_flush_stdout(enum ht_status status, struct ht_error *err)
{
    bool written = fflush(stdout) == 0 && !ferror(stdout);
    return written || status ? status : ht_fail(err, HT_FAILED, "standard output cannot be written");
}

enum ht_status ht_directory_check(const char *path, struct ht_error *err)
{
    char part[4096];
    struct stat st;
    if (strlen(path) >= sizeof(part)) return ht_fail(err, HT_BAD_INPUT, "%.60s...: the path is too long", path);
    snprintf(part, sizeof(part), "%s", path);
    while (stat(part, &st) != 0) { /* the nearest part that is there */
        if (errno != ENOENT || !strcmp(part, "."))
            return ht_fail(err, HT_BAD_INPUT, "%s: cannot be made: %s", path, strerror(errno));
        char *end = part + strlen(part);
        while (end > part && end[-1] == '/') end--;
        while (end > part && end[-1] != '/') end--;
        while (end > part + 1 && end[-1] == '/') end--;
        *end = '\0';
        if (end == part) snprintf(part, sizeof(part), ".");
    }
    bool whole = !strcmp(part, path);
    if (!S_ISDIR(st.st_mode)) return ht_fail(err, HT_BAD_INPUT, "%s: not a directory", part);
    if (access(part, W_OK | X_OK) == 0) return HT_OK;
    return ht_fail(err, HT_BAD_INPUT, "%s: cannot be %s: %s", path, whole ? "written" : "made", strerror(errno));
}

enum ht_status ht_make_directory(const char *path, struct ht_error *err)
{
    char part[4096];
    if (strlen(path) >= sizeof(part)) return ht_fail(err, HT_BAD_INPUT, "%.60s...: the path is too long", path);
    snprintf(part, sizeof(part), "%s", path);
    for (char *p = part + 1;; p++) {
        if (*p != '/' && *p != '\0') continue;
        char was = *p;
        *p = '\0';
        if (mkdir(part, 0777) != 0 && errno != EEXIST)
            return ht_fail(err, HT_BAD_INPUT, "%s: cannot be made: %s", part, strerror(errno));
        *p = was;
        if (!was) break;
    }
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode)) return ht_fail(err, HT_BAD_INPUT, "%s: not a directory", path);
    return HT_OK;
}
