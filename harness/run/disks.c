#include "harness/run/disks.h"

#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/base/text.h"
#include "common/mem/arena.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

int64_t ht_disks_count(const char *list)
{
    int64_t n = list != NULL;
    for (; list && *list; list++) n += *list == ',';
    return n;
}

double ht_disks_room(const char *list)
{
    int64_t n = ht_disks_count(list);
    struct statvfs *fs = HT_NEW_ARRAY(struct statvfs, n);
    char *names = ht_strdup(list), *rest = names;
    double least = INFINITY;
    for (int64_t i = 0; i < n; i++)
        if (statvfs(strsep(&rest, ","), &fs[i]) != 0) least = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t sharers = 0;
        for (int64_t k = 0; k < n; k++) sharers += fs[k].f_fsid == fs[i].f_fsid;
        least = fmin(least, (double)fs[i].f_bavail * (double)fs[i].f_frsize / (double)sharers);
    }
    free(names);
    free(fs);
    return least * (double)n;
}

/* ---- drills ----------------------------------------------------------------------------------------------------- */

static int64_t spoil(void *ctx, bool write, int64_t offset, void *data, int64_t bytes, int64_t result)
{
    struct ht_disk_drill *drill = ctx;
    int64_t nth = atomic_fetch_add(&drill->n_requests[write], 1) + 1;
    (void)offset;
    for (int64_t i = 0; i < drill->disks->n_faults; i++) {
        const struct ht_disk_fault *f = &drill->disks->faults[i];
        if (f->write != write || f->nth != nth) continue;
        if (f->kind == HT_DISK_FAULT_EIO) return -EIO;
        if (f->kind == HT_DISK_FAULT_SHORT) return 0;
        ((char *)data)[bytes / 2] ^= 1;
    }
    return result;
}

struct ht_disk_options ht_disk_drill_begin(struct ht_disk_drill *drill, const struct ht_disks *disks)
{
    struct ht_disk_options options = disks->options;
    *drill = (struct ht_disk_drill){.disks = disks, .shim = {.result = spoil, .ctx = drill}};
    if (disks->n_faults) options.shim = &drill->shim;
    return options;
}

bool ht_disk_drill_met(const struct ht_disk_drill *drill, int64_t i)
{
    const struct ht_disk_fault *f = &drill->disks->faults[i];
    return atomic_load(&drill->n_requests[f->write]) >= f->nth;
}

static enum ht_status read_fault(const char *text, struct ht_error *err, struct ht_disk_fault *out)
{
    static const char *const kinds[] = {"eio", "short", "flip"};
    char direction[8] = "", kind[8] = "", rest;
    long long nth = 0;
    bool sound = sscanf(text, "%7[a-z]:%7[a-z]:%lld%c", direction, kind, &nth, &rest) == 3 && nth >= 1;
    bool write = !strcmp(direction, "write");
    size_t k = ht_index_of(kind, kinds, HT_COUNT(kinds));
    if (!sound || (!write && strcmp(direction, "read") != 0) || k == HT_COUNT(kinds) ||
        (write && k == HT_DISK_FAULT_FLIP))
        return ht_fail(err, HT_BAD_INPUT,
                       "--inject-disk '%.60s': expected read:KIND:N or write:KIND:N; KIND is eio, short, or flip of a "
                       "read",
                       text);
    *out = (struct ht_disk_fault){text, write, (enum ht_disk_fault_kind)k, nth};
    return HT_OK;
}

/* ---- options ---------------------------------------------------------------------------------------------------- */

enum ht_status ht_disks_read(const struct ht_platform_options *o, struct ht_error *err, struct ht_disks *out)
{
    static const char *const paths[] = {
        [HT_DISK_AUTO] = "auto", [HT_DISK_URING] = "uring", [HT_DISK_THREADS] = "threads"};
    size_t path = o->disk_io ? ht_index_of(o->disk_io, paths, HT_COUNT(paths)) : HT_DISK_AUTO;
    bool checksums = !o->disk_checksums || !strcmp(o->disk_checksums, "on");
    *out = (struct ht_disks){.options = {.path = (enum ht_disk_path)path, .checksums = checksums}};
    if (!o->disk && (o->disk_io || o->disk_checksums || o->n_disk_faults))
        return ht_fail(err, HT_BAD_INPUT, "--disk-io, --disk-checksums and --inject-disk need --disk DIR");
    if (path == HT_COUNT(paths))
        return ht_fail(err, HT_BAD_INPUT, "--disk-io '%s' is not known; expected auto, uring or threads", o->disk_io);
    if (!checksums && strcmp(o->disk_checksums, "off") != 0)
        return ht_fail(err, HT_BAD_INPUT, "--disk-checksums '%s': expected on or off", o->disk_checksums);
    enum ht_status status = HT_OK;
    for (int64_t i = 0; i < o->n_disk_faults && status == HT_OK; i++)
        status = read_fault(o->disk_faults[i], err, &out->faults[out->n_faults++]);
    if (status != HT_OK || !o->disk) return status;
    out->list = ht_strdup(o->disk);
    status = ht_disk_parse(out->list, err, &out->options);
    if (status) ht_disks_free(out);
    return status;
}

void ht_disks_free(struct ht_disks *d)
{
    free(d->list);
    d->list = NULL;
    d->options.n_dirs = 0;
}

/* ---- rates ------------------------------------------------------------------------------------------------------ */

enum { MIB = 1 << 20, MEASURED_MIB = 256, TRANSFER_MIB = 8, TURNS = 5 };

/* One direction over half of a space: [0, 256 MiB) is written and read alone; reads beside writes are of the other. */
struct stream_of {
    struct ht_disk *disk;
    char *base, *memory;
    bool write;
    double seconds;
    enum ht_status status;
    struct ht_error error;
};

static void *stream(void *arg)
{
    struct stream_of *x = arg;
    double begin = ht_now_s();
    for (int64_t at = 0; at < MEASURED_MIB && !x->status; at += TRANSFER_MIB) {
        struct ht_disk_move m = {
            .memory = x->memory, .at = x->base + at * MIB, .bytes = TRANSFER_MIB * MIB, .whole = true};
        x->status = (x->write ? ht_disk_write : ht_disk_read)(x->disk, &m, 1, NULL, &x->error);
    }
    x->seconds = ht_now_s() - begin;
    return NULL;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Measures a turn: seconds of a write, of a read, of both at once. */
static enum ht_status measure_turn(struct stream_of *write, struct stream_of *read, double seconds[3],
                                   struct ht_error *err)
{
    pthread_t other;
    stream(write);
    stream(read);
    seconds[0] = write->seconds;
    seconds[1] = read->seconds;
    double begin = ht_now_s();
    if (pthread_create(&other, NULL, stream, write)) return ht_fail(err, HT_FAILED, "a thread cannot be created");
    stream(read);
    pthread_join(other, NULL);
    seconds[2] = ht_now_s() - begin;
    const struct stream_of *bad = write->status ? write : read;
    if (bad->status) *err = bad->error;
    return bad->status;
}

enum ht_status ht_disks_measure(const struct ht_disk_options *options, struct ht_error *err, struct ht_disk_rates *out)
{
    const int64_t bytes = (int64_t)MEASURED_MIB * MIB;
    struct ht_arena *arena, *host;
    struct ht_disk *disk;
    double turns[3][TURNS], seconds[3] = {0};
    enum ht_status status = ht_disk_create_space(options, 2 * bytes, 0, "measuring", err, &arena, &disk);
    if (status) return status;
    status = ht_arena_create(2 * TRANSFER_MIB * MIB, 0, true, err, &host); /* in huge pages, like a training's */
    if (status) {
        ht_disk_destroy(disk);
        ht_arena_destroy(arena);
        return status;
    }
    char *base = ht_arena_base(arena, NULL), *memory = ht_arena_alloc(host, 2 * TRANSFER_MIB * MIB, true);
    for (int64_t i = 0; i < 2 * TRANSFER_MIB * MIB; i++) memory[i] = (char)(i * 2654435761 >> 13); /* not all alike */
    ht_disk_register(disk, memory, 2 * TRANSFER_MIB * MIB);
    struct stream_of write = {.disk = disk, .base = base, .memory = memory, .write = true};
    struct stream_of read = {.disk = disk, .base = base + bytes, .memory = memory + TRANSFER_MIB * MIB};
    struct stream_of first = {.disk = disk, .base = base + bytes, .memory = memory, .write = true};
    stream(&first); /* what is read has been written */
    status = first.status;
    if (status) *err = first.error;
    for (int k = 0; k < TURNS && status == HT_OK; k++) {
        status = measure_turn(&write, &read, seconds, err);
        for (int i = 0; i < 3; i++) turns[i][k] = seconds[i];
    }
    ht_disk_destroy(disk);
    ht_arena_destroy(arena);
    ht_arena_destroy(host);
    if (status) return status;
    for (int i = 0; i < 3; i++) qsort(turns[i], TURNS, sizeof(double), by_value);
    double w = turns[0][TURNS / 2], r = turns[1][TURNS / 2], both = turns[2][TURNS / 2];
    *out = (struct ht_disk_rates){.read_bytes_per_s = (double)bytes / r,
                                  .write_bytes_per_s = (double)bytes / w,
                                  .duplex = both < (w + r + (w > r ? w : r)) / 2};
    return HT_OK;
}

/* ---- spaces ----------------------------------------------------------------------------------------------------- */

bool ht_disks_is_space(const struct ht_schedule *s, int32_t space)
{
    return ht_space_tier(s, space) == HT_DISK;
}

bool ht_disks_holds(const struct ht_schedule *s)
{
    bool holds = false;
    for (int32_t i = 0; i < s->n_residents; i++) holds |= s->residents[i].tier == HT_DISK;
    return holds;
}

int64_t ht_disks_slack(const struct ht_schedule *s, int32_t space, int64_t capacity_bytes)
{
    int64_t resident = 0;
    for (int32_t i = 0; i < s->n_residents; i++)
        if (ht_space(s, s->residents[i].tier, s->residents[i].rank) == space)
            resident += ht_resident_bytes(s, &s->residents[i]);
    return capacity_bytes > resident ? (capacity_bytes - resident) / 2 + (1 << 20) : 0;
}
