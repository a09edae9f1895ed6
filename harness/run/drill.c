#include "harness/run/drill.h"

#include "common/base/array.h"
#include "common/base/text.h"
#include "common/base/units.h"
#include "harness/run/events.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

enum { WORDS = 4, WORD = 24 };

/* Splits "a:b:c:d". Returns false if there are more or fewer words. */
static bool split(const char *text, char words[WORDS][WORD])
{
    for (int i = 0; i < WORDS; i++) {
        size_t n = strcspn(text, ":");
        if (n == 0 || n >= WORD || !text[n] != (i == WORDS - 1)) return false;
        snprintf(words[i], WORD, "%.*s", (int)n, text);
        text += n + 1;
    }
    return true;
}

enum ht_status ht_drill_read(const char *text, int32_t n_ranks, int events, struct ht_error *err, struct ht_drill *out)
{
    static const char *const kinds[] = {"", "kill", "hang", "full"}, *const places[] = {"", "save", "load"};
    const char *flag = "--inject-process";
    char words[WORDS][WORD];
    int64_t rank = 0;
    *out = (struct ht_drill){.events = events};
    if (!text) return HT_OK;
    bool sound = split(text, words);
    size_t kind = sound ? ht_index_of(words[0], kinds, HT_COUNT(kinds)) : HT_COUNT(kinds);
    size_t where = sound ? ht_index_of(words[3], places, HT_COUNT(places)) : HT_COUNT(places);
    if (kind == HT_COUNT(kinds))
        return ht_fail(err, HT_BAD_INPUT,
                       "%s '%.60s': expected kill, hang or full, then :RANK:STEP: and an op's number, save or load",
                       flag, text);
    out->kind = (enum ht_drill_kind)kind;
    if (where < HT_COUNT(places)) out->where = (enum ht_drill_where)where;
    enum ht_status status = ht_flag_count(flag, words[1], 0, INT32_MAX, err, &rank);
    if (status == HT_OK) status = ht_flag_count(flag, words[2], 0, INT32_MAX, err, &out->step);
    if (status == HT_OK && where == HT_COUNT(places))
        status = ht_flag_count(flag, words[3], 0, INT32_MAX, err, &out->op);
    if (status == HT_OK && out->kind == HT_DRILL_FULL && out->where != HT_DRILL_AT_SAVE)
        status = ht_fail(err, HT_BAD_INPUT, "%s '%s': a disk is full during a save; expected full:RANK:STEP:save", flag,
                         text);
    out->rank = (int32_t)(rank % n_ranks);
    return status;
}

/* Returns true if a folder is on a tmpfs that may be filled. */
static bool is_small(const char *dir)
{
    enum { MOST_BYTES = INT32_MAX };
    struct statfs fs;
    if (!dir || statfs(dir, &fs) != 0 || fs.f_type != TMPFS_MAGIC) return false;
    return fs.f_blocks && fs.f_blocks * (uint64_t)fs.f_bsize <= MOST_BYTES;
}

/* Fills the disk of a folder, once. */
static void fill(const struct ht_drill *d)
{
    static const char zeros[1 << 16];
    char path[4096];
    snprintf(path, sizeof(path), "%.3900s/%s", d->disk, HT_DRILL_FILLER);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) return;
    ht_events_say(d->events, "fault", "\"rank\": %d", d->rank);
    for (size_t n = sizeof(zeros); n > 0;) /* smaller pieces fit into what is left */
        if (write(fd, zeros, n) < (ssize_t)n) n /= 2;
    close(fd);
}

enum ht_status ht_drill_meet(const struct ht_drill *d, enum ht_drill_where where, int32_t rank, int64_t step,
                             struct ht_error *err)
{
    if (d->kind == HT_DRILL_NONE || d->where != where || d->rank != rank || step < d->step) return HT_OK;
    if (d->kind == HT_DRILL_FULL && is_small(d->disk)) {
        fill(d);
        return HT_OK;
    }
    ht_events_say(d->events, "fault", "\"rank\": %d", rank);
    if (d->kind == HT_DRILL_FULL) return ht_fail(err, HT_FAILED, "%s (a drill's)", strerror(ENOSPC));
    if (d->kind == HT_DRILL_KILL) raise(SIGKILL);
    for (;;) pause();
}
