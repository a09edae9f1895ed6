/*
 * Copies a file to a disk at the disk's rate: blocks bypass the page cache (O_DIRECT), several in flight by io_uring, while the next
 * ones are read and hashed. Where the file system or the kernel refuses that, by pwrite. Used by one thread at a time.
 */
#ifndef HT_STORE_COPIER_H
#define HT_STORE_COPIER_H

#include "common/ckpt/durable.h"

#include <stdint.h>

struct ht_copier;
struct ht_copier *ht_copier_create(void);
void ht_copier_destroy(struct ht_copier *c); /* accepts NULL */

/* Called after each block, with the bytes so far. Returns false to stop. */
typedef bool (*ht_copier_goes_on)(void *ctx, int64_t bytes);

/* Copies all of an open file. *hash is that of its bytes. HT_FAILED if it cannot; HT_INTERRUPTED if goes_on said so. `out` stays open
   and has no hash of its own. */
enum ht_status ht_copier_copy(struct ht_copier *c, int in, const char *name, struct ht_durable *out,
                              ht_copier_goes_on goes_on, void *ctx, struct ht_error *err, uint64_t *hash);

#endif
