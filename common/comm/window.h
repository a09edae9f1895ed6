/*
 * Memory that the ranks of a node share.
 *
 * One of them creates it, the others map it through the creator's /proc/PID/fd/FD, so it never has a name. When the
 * last rank is gone, however it ended, the memory is freed. /dev/shm is not used: it may be small, and keeps what a
 * killed process left there. All ranks must belong to the same user.
 */
#ifndef HT_COMM_WINDOW_H
#define HT_COMM_WINDOW_H

#include "common/base/status.h"

#include <stdint.h>

struct ht_window {
    void *base; /* page-aligned, zeroed by its creation */
    int64_t bytes;
    int32_t pid, fd; /* of the creator, for the others to attach; fd is -1 in those */
};

/* Creates shared memory of bytes >= 0. Returns HT_INFEASIBLE with the reason; then *w is zero. */
enum ht_status ht_window_create(int64_t bytes, struct ht_error *err, struct ht_window *w);
/* Maps the memory of the creator's pid and fd. The creator closes its fd (ht_window_seal) when all have attached. */
enum ht_status ht_window_attach(int32_t pid, int32_t fd, int64_t bytes, struct ht_error *err, struct ht_window *w);
void ht_window_seal(struct ht_window *w);
void ht_window_free(struct ht_window *w); /* accepts a zeroed one */

#endif
