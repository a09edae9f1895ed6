/*
 * Files that survive: written beside their place under a temporary name, hashed on the way, synced to the disk and only
 * then renamed. Whoever is killed in between leaves the old file, or none, and a leftover that ends in ".partial".
 *
 * Losing power is survived too, when the directory is synced afterwards (ht_sync_directory).
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
    struct ht_hash *hash; /* NULL: none, they were not written in order */
    int64_t bytes;
    bool synced;
};

/* A file that is there already leaves its mode and owner to the new one. HT_BAD_INPUT when the path cannot be written: it
   is what the user named. */
enum ht_status ht_durable_open(const char *path, struct ht_error *err, struct ht_durable *out);
enum ht_status ht_durable_write(struct ht_durable *d, const void *data, size_t bytes, struct ht_error *err);
/* Writes at an offset, over what was written or beyond it; the file then has no hash, and nothing is written but so. */
enum ht_status ht_durable_write_at(struct ht_durable *d, int64_t offset, const void *data, size_t bytes,
                                   struct ht_error *err);
/* Makes what was written durable, so that commit is a rename alone. Nothing may be written after it. */
enum ht_status ht_durable_sync(struct ht_durable *d, struct ht_error *err);
/* Syncs and renames. *hash (may be NULL) is the XXH3 64-bit hash of the bytes, written in order. On error nothing is
   left. */
enum ht_status ht_durable_commit(struct ht_durable *d, struct ht_error *err, uint64_t *hash);
void ht_durable_discard(struct ht_durable *d); /* accepts a closed one */

/* Removes what killed processes left in a folder: partial files for names that are ours. A file that a living process
   writes is left alone. */
void ht_durable_sweep(const char *dir, bool (*ours)(const char *name, const void *ctx), const void *ctx);

/* Whether a symbolic link may be followed: not one that somebody else has put into a folder where anybody can, such as
   /tmp (the rule of the kernel's fs.protected_symlinks). */
bool ht_link_is_trusted(const char *link);
/* Gives a new file mode and owner of the one that it will replace; who may not set the group sets no rights for it. */
void ht_take_mode(int fd, const struct stat *old);

/* The path that a path stands for: symbolic links of its last part are followed, also to a file that is not there. */
enum ht_status ht_follow_links(const char *path, struct ht_error *err, char out[4096]);

/* Makes the names in a directory durable. */
enum ht_status ht_sync_directory(const char *path, struct ht_error *err);

/* The hash (and size) that ht_durable_commit gives: of bytes; of a file, HT_BAD_INPUT when it cannot be read. */
uint64_t ht_hash_bytes(const void *data, size_t bytes);
/* The same of bytes that come in pieces: begin, add each, end, which destroys. */
struct ht_hash *ht_hash_begin(void);
void ht_hash_add(struct ht_hash *h, const void *data, size_t bytes);
uint64_t ht_hash_end(struct ht_hash *h);
enum ht_status ht_hash_file(const char *path, struct ht_error *err, uint64_t *hash, int64_t *bytes);

#endif
