/* Graph files: a schedule as YAML (JSON is YAML), one op a line, so that a person can write one and read a dump.
   docs/graph-format.md describes the format, with an example. */
#ifndef HT_SCHEDULE_FILE_H
#define HT_SCHEDULE_FILE_H

#include "common/schedule/schedule.h"

#include <stdio.h>

/* Loads a graph. Every error is one line with file, line, column and key (HT_BAD_INPUT). The result is not verified. */
enum ht_status ht_schedule_load(const char *path, struct ht_error *err, struct ht_schedule **out);
enum ht_status ht_schedule_load_text(const char *name, const char *text, size_t n, struct ht_error *err,
                                     struct ht_schedule **out);
/* Writes a file that loads back to an equal schedule (equal ht_schedule_hash). */
enum ht_status ht_schedule_dump(const struct ht_schedule *s, FILE *out, struct ht_error *err);

#endif
