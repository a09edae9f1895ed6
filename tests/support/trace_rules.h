/*
 * Checks the rules of the semantics on a trace of any clock. A breach fails the test.
 */
#ifndef TESTS_SUPPORT_TRACE_RULES_H
#define TESTS_SUPPORT_TRACE_RULES_H

#include "common/trace/trace.h"

/* Checks that no op was issued, or began, before all its dependencies had ended. */
void trace_check_dependencies(const struct ht_trace *t);

/* Checks the order on lanes. FIFO: in id order, one at a time. PRIORITY: one at a time, and never past a ready op with
   a smaller key. Returns how often such a lane had a choice, and took the right one. For a run that was issued one op
   at a time. */
int64_t trace_check_lanes(const struct ht_trace *t);

#endif
