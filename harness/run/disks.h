/*
 * The disk tier of a training: --disk, --disk-io, --disk-checksums, and drills with --inject-disk.
 *
 * Each node has a disk space in the directories, over which its files are striped. One process of the node creates it,
 * the others attach (common/mem/disk.h).
 */
#ifndef HT_HARNESS_RUN_DISKS_H
#define HT_HARNESS_RUN_DISKS_H

#include "common/hw/hw.h"
#include "common/mem/disk.h"
#include "common/schedule/schedule.h"
#include "harness/run/options.h"

#include <stdatomic.h>

/* A fault of a drill: the nth request in that direction, counted from 1, fails, ends at once, or brings a wrong bit. */
enum ht_disk_fault_kind { HT_DISK_FAULT_EIO, HT_DISK_FAULT_SHORT, HT_DISK_FAULT_FLIP };
struct ht_disk_fault {
    const char *text; /* as it was given */
    bool write;
    enum ht_disk_fault_kind kind;
    int64_t nth;
};

struct ht_disks {
    struct ht_disk_options options; /* no directories without --disk */
    char *list;                     /* owns their names */
    struct ht_disk_fault faults[HT_MAX_BAD];
    int64_t n_faults;
};

/* Returns the number of directories in --disk's list; NULL has none. */
int64_t ht_disks_count(const char *list);

/* Returns the bytes that files striped over the directories of a list can have: as many times the least free space as
   there are directories; those of one file system share its space. 0 if one is not there. */
double ht_disks_room(const char *list);

/* Reads and checks the options. Returns HT_BAD_INPUT with one line; then *out needs no freeing. */
enum ht_status ht_disks_read(const struct ht_platform_options *options, struct ht_error *err, struct ht_disks *out);
void ht_disks_free(struct ht_disks *d);

/* The drill of a training: counts its requests and spoils some. Stays where it is while the disk is there. */
struct ht_disk_drill {
    const struct ht_disks *disks;
    struct ht_disk_shim shim;
    atomic_llong n_requests[2]; /* reads and writes so far */
};

/* Begins a drill, if there are faults. Returns the options of the disk. */
struct ht_disk_options ht_disk_drill_begin(struct ht_disk_drill *drill, const struct ht_disks *disks);
/* Returns true if this process has made the request of fault i. */
bool ht_disk_drill_met(const struct ht_disk_drill *drill, int64_t i);

/* Measures the rates of the directories, in transfers of 8 MiB: the median of some writes and reads of 256 MiB. They
   are duplex if both at once take nearer to the longer of the two alone than to their sum. */
enum ht_status ht_disks_measure(const struct ht_disk_options *options, struct ht_error *err, struct ht_disk_rates *out);

/* Returns true for the disk space of a node. */
bool ht_disks_is_space(const struct ht_schedule *s, int32_t space);
/* Returns true if a schedule has tensors on disk from the start. */
bool ht_disks_holds(const struct ht_schedule *s);
/* Returns the bytes beside a disk space's capacity, for holes between tensors. What lives there from the start lies
   without holes. */
int64_t ht_disks_slack(const struct ht_schedule *s, int32_t space, int64_t capacity_bytes);

#endif
