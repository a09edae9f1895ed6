#include "harness/output.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum ht_status ht_output_open(const char *path, struct ht_error *err, struct ht_output *out)
{
    out->file = NULL;
    if (strlen(path) >= sizeof(out->path)) return ht_fail(err, HT_BAD_INPUT, "%.60s...: the path is too long", path);
    struct stat st;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return ht_fail(err, HT_BAD_INPUT, "%s: is a directory; expected a file to write", path);
    snprintf(out->path, sizeof(out->path), "%s", path);
    /* What is no plain file (/dev/stdout, a pipe) is written as it is. */
    bool plain = access(path, F_OK) != 0 || S_ISREG(st.st_mode);
    if (plain)
        snprintf(out->partial, sizeof(out->partial), "%s.%d.partial", path, (int)getpid());
    else
        out->partial[0] = '\0';
    out->file = fopen(plain ? out->partial : path, "w");
    if (!out->file) return ht_fail(err, HT_BAD_INPUT, "%s: cannot be written: %s", path, strerror(errno));
    return HT_OK;
}

enum ht_status ht_output_check(const char *path, struct ht_error *err)
{
    struct stat st;
    struct ht_output out;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)) return HT_OK; /* a pipe would wait */
    enum ht_status status = ht_output_open(path, err, &out);
    if (status == HT_OK) ht_output_discard(&out);
    return status;
}

enum ht_status ht_output_commit(struct ht_output *out, struct ht_error *err)
{
    bool failed = fflush(out->file) != 0 || ferror(out->file);
    int reason = errno;
    failed |= fclose(out->file) != 0;
    out->file = NULL;
    if (!failed && out->partial[0] && rename(out->partial, out->path) != 0) {
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

enum ht_status ht_flush_stdout(enum ht_status status, struct ht_error *err)
{
    bool written = fflush(stdout) == 0 && !ferror(stdout);
    return written || status ? status : ht_fail(err, HT_FAILED, "standard output cannot be written");
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
    if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode)) return ht_fail(err, HT_BAD_INPUT, "%s: is not a directory", path);
    return HT_OK;
}
