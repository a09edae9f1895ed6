/*
 * The hosts that ranks are started on, and how many ranks each takes: a list such as "a:2,b:2", or a host file of
 * Open MPI. mpirun gets both as a list, so it never reads the file, which may be a pipe.
 *
 *     # the front end takes no part
 *     a slots=2
 *     b slots=2 max_slots=4      max_slots (or max-slots) is at least slots, which is what counts here
 *     c                          as many slots as cores; on two lines: two slots
 */
#ifndef HT_COMM_HOST_SLOTS_H
#define HT_COMM_HOST_SLOTS_H

#include "common/base/status.h"

#include <stdint.h>

struct ht_host_slots {
    char *list;    /* as mpirun's --host takes it: "a:2,b:auto" */
    int64_t slots; /* of all; -1: some host has as many as cores */
};

/* Reads "a:2,b", where b has one slot. HT_BAD_INPUT for anything else. *out needs no freeing after an error. */
enum ht_status ht_host_slots_parse(const char *list, struct ht_error *err, struct ht_host_slots *out);
/* Reads a host file: a plain file or a pipe. HT_BAD_INPUT, with the line, for what is not one. *out needs no freeing
   after an error. */
enum ht_status ht_host_slots_read(const char *path, struct ht_error *err, struct ht_host_slots *out);
void ht_host_slots_free(struct ht_host_slots *h);

#endif
