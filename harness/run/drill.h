/*
 * --inject-process KIND:RANK:STEP:WHERE: what befalls a rank's process, for drills.
 *
 *     KIND   kill   it is killed, as by the kernel
 *            hang   it stops for ever
 *            full   the disk has no room; during a save only. A small tmpfs is filled, until somebody removes HT_DRILL_FILLER from it; of
 *                   another disk the save is told so
 *     RANK   taken modulo the job's ranks
 *     STEP   counted from 1: then, or as soon as possible after that; of a load, the step that is loaded
 *     WHERE  N      as it begins its Nth op of the step, modulo those that it has
 *            save   in the middle of the step's save (--store)
 *            load   in the middle of a load (--resume)
 */
#ifndef HT_HARNESS_RUN_DRILL_H
#define HT_HARNESS_RUN_DRILL_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

#define HT_DRILL_FILLER "filler-of-a-drill"

enum ht_drill_kind { HT_DRILL_NONE, HT_DRILL_KILL, HT_DRILL_HANG, HT_DRILL_FULL };
enum ht_drill_where { HT_DRILL_AT_OP, HT_DRILL_AT_SAVE, HT_DRILL_AT_LOAD };

struct ht_drill {
    enum ht_drill_kind kind;
    enum ht_drill_where where;
    int32_t rank;
    int64_t step, op;
    const char *disk; /* folder on the disk that is filled; NULL: none is */
    int events;       /* where it says so before it happens; -1: nowhere */
};

/* Reads the option's text; NULL: no drill. */
enum ht_status ht_drill_read(const char *text, int32_t n_ranks, int events, struct ht_error *err, struct ht_drill *out);
/* Lets it happen if it is due on this rank. Returns HT_FAILED for a disk that is said to be full, HT_OK for one that is; otherwise it
   does not return, or nothing was due. */
enum ht_status ht_drill_meet(const struct ht_drill *d, enum ht_drill_where where, int32_t rank, int64_t step,
                             struct ht_error *err);

#endif
