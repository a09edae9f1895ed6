/*
 * The memory rule: decides whether an op may have its memory now.
 *
 * Running all ops one at a time in id order (the safe sequence) fits every space; the verifier has proved it. An op
 * that asks early gets memory only if every earlier op that has none yet could still run in id order afterwards. So
 * running ahead never deadlocks, and a prefetch waits rather than starves the compute lane. `capacity` below is that of
 * a space, or the limit that the method declares if that is less.
 *
 * An issue group is an op alone, or all ops that carry one `match`. For a space, number the issue groups that touch it
 * 0, 1, 2, ... in id order, iteration after iteration.
 *
 *     need(w)  = bytes live just before w in the safe sequence + bytes that w allocates          (static)
 *     net(u)   = bytes that a granted issue group u allocated, less those it has released since
 *     extra(w) = sum of net(u) over granted u > w
 *
 * When all issue groups before w have ended, exactly need(w) - alloc(w) + extra(w) bytes are live. So x may be granted
 * a(x) bytes if
 *
 *     live + a(x) <= capacity,  and  need(w) + extra(w) + a(x) <= capacity  for every w < x not yet granted.   (*)
 *
 * The second condition is the invariant that keeps the oldest ungranted issue group runnable: proof in
 * common/exec/README.md. While x waits (it could not start if it were issued), the most that the safe sequence needs
 * takes the place of `capacity`.
 *
 * Issue groups before the frontier (the oldest ungranted one) no longer matter. Those behind it that were granted early
 * are in a window, a ring of places. No extra(w) exceeds the sum of their positive net(u). So if that, the largest need
 * and a(x) fit together, x is allowed without a search. Else a segment tree over the window answers. It is planted when
 * a space first needs it; its nodes hold
 *
 *     sum  = sum of net(u)                                over the node's places
 *     best = max of need(w) + sum of net(u), w < u <= end  over its ungranted places w
 *
 * so that (left, right) combine to (l.sum + r.sum, max(l.best + r.sum, r.best)), and (*) is one search for the last w
 * that breaks it, O(log n). Who was denied is woken only when live bytes have fallen far enough, or when that w has been
 * granted, or a group behind w has released something: else the answer would be the same.
 */
#ifndef HT_EXEC_GRANT_H
#define HT_EXEC_GRANT_H

#include "common/schedule/schedule.h"

struct ht_grants;

/* Creates the grants of a node's ops (-1: of all nodes). Returns HT_INFEASIBLE when the safe sequence does not fit a
   space of theirs. */
enum ht_status ht_grants_create(const struct ht_schedule *s, int32_t node, struct ht_error *err,
                                struct ht_grants **out);
void ht_grants_destroy(struct ht_grants *g);

/* Keeps free what FIFO lanes' ops may hold at most that were issued before they could start: ahead[n_lanes] of a lane at once, each
   with the most that an op of the lane asks for. Returns false, and keeps nothing free, if the safe sequence would not fit then. */
bool ht_grants_keep_free(struct ht_grants *g, const int32_t *ahead);

/* Returns the most bytes that were live at once. */
int64_t ht_grants_peak(const struct ht_grants *g, int32_t space);

#endif
