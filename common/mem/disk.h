/*
 * A space over files: addresses that stand for bytes of one file, or of several in different directories, with reads
 * and writes between them and memory.
 *
 *     offset of an address    0        1 MiB     2 MiB     3 MiB     4 MiB
 *                             | stripe 0 | stripe 1 | stripe 2 | stripe 3 |
 *     directories A, B          A: 0       B: 0       A: 1 MiB   B: 1 MiB
 *
 * The address of a byte is base + offset. Nobody may touch it: an arena hands the addresses out
 * (ht_arena_create_disk), and executors pass them on like any other buffer's. Files have no names. Their space is
 * reserved at once, and the kernel frees it when the last process that has them open is gone, killed or not.
 *
 * Transfers bypass the page cache (O_DIRECT) in requests of at most a stripe, by io_uring with registered buffers.
 * Where the kernel refuses one of these the disk takes the next best, and ht_disk_note says why: unregistered buffers,
 * threads of pread and pwrite, the page cache.
 *
 * Checksums. A table in memory has the XXH3 hash of each block of 4096 bytes that was written, 8 bytes a block. Every
 * block that is read is held against it, so a read is never silently of other bytes than were written. Blocks that were
 * not written are held against zeros: a write of a part of one reads the rest.
 */
#ifndef HT_MEM_DISK_H
#define HT_MEM_DISK_H

#include "common/base/granule.h"
#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    HT_MAX_DISKS = 16,
    HT_DISK_BLOCK = HT_DISK_GRANULE, /* of a checksum and of a direct transfer; no two buffers share one */
    HT_DISK_STRIPE = 1 << 20
};

struct ht_disk;

/* The way of the transfers. AUTO: io_uring, or threads where it is refused. */
enum ht_disk_path { HT_DISK_AUTO, HT_DISK_URING, HT_DISK_THREADS };

/* A shim between the disk and the kernel, for tests and drills. Either function may be NULL. Called from any thread. */
struct ht_disk_shim {
    /* Returns the result that the disk shall see of a request that ended with `result`: bytes, or -errno. data: the
       request's memory, which it may spoil. offset: in the space. */
    int64_t (*result)(void *ctx, bool write, int64_t offset, void *data, int64_t bytes, int64_t result);
    /* Returns 0, or the errno with which reserving `bytes` of a directory shall fail. */
    int (*reserve)(void *ctx, int64_t bytes);
    void *ctx;
};

struct ht_disk_options {
    const char *dirs[HT_MAX_DISKS];
    int32_t n_dirs; /* >= 1; a directory may be given twice */
    enum ht_disk_path path;
    bool checksums;
    const struct ht_disk_shim *shim; /* borrowed, or NULL */
};

/* Splits "A,B" into the directories of *out, which point into `list`, and writes over its commas. Returns HT_BAD_INPUT
   for an empty name, too many, or one that is not a directory in which this process may write. */
enum ht_status ht_disk_parse(char *list, struct ht_error *err, struct ht_disk_options *out);

/* Creates the files of the addresses [base, base + bytes) and reserves their space. `what` begins the error line:
   "training 'zero_infinity'". Returns HT_INFEASIBLE when a directory has too little room; then nothing is left. */
enum ht_status ht_disk_create(const struct ht_disk_options *options, void *base, int64_t bytes, const char *what,
                              struct ht_error *err, struct ht_disk **out);
void ht_disk_destroy(struct ht_disk *d); /* accepts NULL */

/* Creates an arena of addresses (ht_arena_create_disk) and the disk behind it. */
struct ht_arena;
enum ht_status ht_disk_create_space(const struct ht_disk_options *options, int64_t capacity_bytes, int64_t slack_bytes,
                                    const char *what, struct ht_error *err, struct ht_arena **arena,
                                    struct ht_disk **disk);

/* Handle by which other processes of this machine and user open the same space, as long as this one lives. */
struct ht_disk_handle {
    int32_t pid, sums_fd, fds[HT_MAX_DISKS];
};
struct ht_disk_handle ht_disk_handle(const struct ht_disk *d);
/* Opens the space of a handle, whose addresses begin at `base` in this process. options: as given to its creator. */
enum ht_status ht_disk_attach(const struct ht_disk_options *options, const struct ht_disk_handle *handle, void *base,
                              int64_t bytes, struct ht_error *err, struct ht_disk **out);

/* Tells the disk which memory most transfers are between, such as the arena of host memory. It is registered with the
   kernel piece by piece, as transfers come to it: registered memory is resident. Called once, before any transfer. */
void ht_disk_register(struct ht_disk *d, void *memory, int64_t bytes);

/* Returns one line about what the kernel has refused so far, without a newline; NULL if nothing. */
const char *ht_disk_note(const struct ht_disk *d);

/* A transfer between memory and the space. whole: the bytes are a whole tensor, at a multiple of a block; when they are
   written, the rest of the last block is padding. Other writes keep the bytes beside them in their first and last
   block; nobody else may write these blocks meanwhile. */
struct ht_disk_move {
    void *memory;
    void *at;
    int64_t bytes;
    bool whole;
};

/* Read or write all moves, in any order, and return when they have ended. Thread-safe, for moves that do not overlap.
   On error *failed (may be NULL) is the index of a move that failed, and the line names directory and offset.
   HT_FAILED: the kernel's error, an end before the last byte, or a block that is not what was written. */
enum ht_status ht_disk_read(struct ht_disk *d, const struct ht_disk_move *moves, int32_t n, int32_t *failed,
                            struct ht_error *err);
enum ht_status ht_disk_write(struct ht_disk *d, const struct ht_disk_move *moves, int32_t n, int32_t *failed,
                             struct ht_error *err);

#endif
