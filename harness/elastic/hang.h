/* What is known of an incarnation that hangs: in which part, since when, and where its processes are. */
#ifndef HT_HARNESS_ELASTIC_HANG_H
#define HT_HARNESS_ELASTIC_HANG_H

#include "harness/elastic/incarnation.h"

/* Returns the seconds without an event after which the incarnation is taken for hung. least_s: --hang-after. start_s: the longest silence until
   the job was planned, of incarnations that trained; 0: none did. last: --steps. */
double ht_hang_patience_s(const struct ht_incarnation *x, double least_s, double start_s, int64_t last);

/* Writes "hang in step 7: nothing for 15 s since 'pulse'". */
void ht_hang_print(const struct ht_incarnation *x, char *text, size_t cap);

/* Appends to the incarnation's log what each thread of the folder's processes waits for in the kernel, and lets the ranks append their
   stacks (common/base/stacks.h). Takes half a second. */
void ht_hang_describe(const struct ht_incarnation *x, const char *folder);

#endif
