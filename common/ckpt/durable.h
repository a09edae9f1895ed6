/*
 * Durable files: written under a temporary name beside the final one, hashed while written, synced to the disk and only
 * then renamed. A process killed in between leaves the old file, or none, and a leftover that ends in ".partial".
 *
 * The file also survives a power loss if the directory is synced afterwards (ht_sync_directory).
 */
#ifndef HT_CKPT_DURABLE_H
#define HT_CKPT_DURABLE_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>

struct ht_hash;
struct ht_durable {
    FILE *file; /* NULL when closed */
    char path[4096], partial[4128];
    struct ht_hash *hash; /* NULL: no hash, since bytes were not written in order */
    int64_t bytes;
    bool synced;
    bool over; /* a spare file, which may be longer */
};

/* Opens a file for writing. It takes mode and owner of the file that it will replace. If PATH.spare is there, it is written over: a file
   system in memory then has no pages to find and to clear. HT_BAD_INPUT, not HT_FAILED, if
   the path cannot be written: the user named it. */
enum ht_status ht_durable_open(const char *path, struct ht_error *err, struct ht_durable *out);
enum ht_status ht_durable_write(struct ht_durable *d, const void *data, size_t bytes, struct ht_error *err);
/* Writes at an offset, over earlier bytes or beyond them. The file then has no hash, and every write must be at an
   offset. */
enum ht_status ht_durable_write_at(struct ht_durable *d, int64_t offset, const void *data, size_t bytes,
                                   struct ht_error *err);
/* Returns the descriptor, for a caller that writes at offsets and then sets `bytes`. The file has no hash. */
int ht_durable_take_fd(struct ht_durable *d);
/* Syncs what was written, so that commit only renames. Nothing may be written after it. */
enum ht_status ht_durable_sync(struct ht_durable *d, struct ht_error *err);
/* Syncs and renames. *hash (may be NULL) is the XXH3 64-bit hash of the bytes, which must have been written in order.
   On error nothing is left. */
enum ht_status ht_durable_commit(struct ht_durable *d, struct ht_error *err, uint64_t *hash);
void ht_durable_discard(struct ht_durable *d); /* accepts a closed one */

/* Removes partial files that killed processes left in a folder, for names that `ours` accepts. Keeps files that a
   living process is writing. */
void ht_durable_sweep(const char *dir, bool (*ours)(const char *name, const void *ctx), const void *ctx);

/* Returns true if a symbolic link may be followed. It may not if somebody else has put it into a folder that anybody
   can write, such as /tmp (the rule of the kernel's fs.protected_symlinks). */
bool ht_link_is_trusted(const char *link);
/* Gives a new file the mode and owner of the file that it will replace. If the group cannot be set, it gets no
   rights. */
void ht_take_mode(int fd, const struct stat *old);

/* Resolves symbolic links of a path's last part, even if the last target does not exist. */
enum ht_status ht_follow_links(const char *path, struct ht_error *err, char out[4096]);

/* Makes the names in a directory durable. */
enum ht_status ht_sync_directory(const char *path, struct ht_error *err);

/* Returns the hash of bytes, as ht_durable_commit does. */
uint64_t ht_hash_bytes(const void *data, size_t bytes);
/* Hash bytes that come in pieces: begin, add each piece, end, which destroys the hash. */
struct ht_hash *ht_hash_begin(void);
void ht_hash_add(struct ht_hash *h, const void *data, size_t bytes);
uint64_t ht_hash_end(struct ht_hash *h);
/* Computes hash and size of a file. HT_BAD_INPUT if it cannot be read. */
enum ht_status ht_hash_file(const char *path, struct ht_error *err, uint64_t *hash, int64_t *bytes);

#endif
