/*
 * The rules of the semantics, read off a trace, whichever clock it is of. A breach fails the test.
 */
#ifndef TESTS_SUPPORT_TRACE_RULES_H
#define TESTS_SUPPORT_TRACE_RULES_H

#include "common/trace/trace.h"

/* No op was issued, or began, before all that it depends on had ended. */
void trace_check_dependencies(const struct ht_trace *t);

/* FIFO lanes: in id order, one at a time. PRIORITY lanes: one at a time, and never past a ready op with a smaller key.
   Returns how often such a lane had a choice, and took the right one. Of a run that was issued one op at a time. */
int64_t trace_check_lanes(const struct ht_trace *t);

#endif
