/*
 * Memory that the ranks of a node share.
 *
 * One of them makes it, the others map it through the maker's /proc/PID/fd/FD, so it never has a name: when the last
 * rank is gone, however it went, so is the memory, and /dev/shm (which may be small, and keeps what a killed process
 * left there) is not used at all. Both must be of the same user.
 */
#ifndef HT_COMM_WINDOW_H
#define HT_COMM_WINDOW_H

#include "common/base/status.h"

#include <stdint.h>

struct ht_window {
    void *base; /* zeroed at first; page-aligned */
    int64_t bytes;
    int32_t pid, fd; /* of the maker: what the others need to attach; fd is -1 in those */
};

/* bytes >= 0; HT_INFEASIBLE with the reason. *w is zero on error. */
enum ht_status ht_window_create(int64_t bytes, struct ht_error *err, struct ht_window *w);
/* Of the maker's pid and fd. The maker closes its fd (ht_window_seal) when all have attached. */
enum ht_status ht_window_attach(int32_t pid, int32_t fd, int64_t bytes, struct ht_error *err, struct ht_window *w);
void ht_window_seal(struct ht_window *w);
void ht_window_free(struct ht_window *w); /* accepts a zeroed one */

#endif
