/*
 * The memory rule: may this op have its memory now?
 *
 * Running all ops one at a time in id order (the safe sequence) fits every space; the verifier has proved it. An op that
 * comes up early gets memory only if, after that, every earlier op that has none yet could still run in id order. So
 * running ahead never deadlocks, and a prefetch waits rather than starves the compute lane.
 *
 * For a space, number the steps that touch it 0, 1, 2, ... in id order, iteration after iteration. (A group is one step.)
 *
 *     need(w)  = bytes live just before w in the safe sequence + bytes that w allocates          (static)
 *     net(u)   = bytes that a granted step u allocated, less those it has released since
 *     extra(w) = sum of net(u) over granted u > w
 *
 * When all steps before w have ended, exactly need(w) - alloc(w) + extra(w) bytes are live. So step x may be granted a(x)
 * bytes if
 *
 *     live + a(x) <= capacity,  and  need(w) + extra(w) + a(x) <= capacity  for every step w < x not yet granted.   (*)
 *
 * The second line is the invariant that keeps the oldest ungranted step runnable: proof in common/exec/README.md.
 *
 * Steps before the frontier (the oldest ungranted step) no longer matter; the steps behind it that were granted early are
 * kept in a segment tree over the positions whose nodes hold
 *
 *     sum  = sum of net(u)                                over the node's positions
 *     best = max of need(w) + sum of net(u), w < u <= end  over its ungranted positions w
 *
 * so that (left, right) combine to (l.sum + r.sum, max(l.best + r.sum, r.best)), and (*) is one query: O(log n). In-order
 * grants, the common case, touch the tree not at all. Two iterations are in flight at most: two trees, used in turn.
 */
#ifndef HT_EXEC_GRANT_H
#define HT_EXEC_GRANT_H

#include "common/schedule/schedule.h"

struct ht_grants;

/* node: the one whose ops ask; -1: all. HT_INFEASIBLE when the safe sequence does not fit some space of theirs. */
enum ht_status ht_grants_create(const struct ht_schedule *s, int32_t node, struct ht_error *err,
                                struct ht_grants **out);
void ht_grants_destroy(struct ht_grants *g);

/* Asks for the memory of the step that begins with op `first` (the op, or the node's members of its group), all or nothing.
   -1: granted. Otherwise the space that said no: ask again after it has changed. */
int32_t ht_grants_ask(struct ht_grants *g, int32_t iteration, int32_t first);
/* The step is passed over (its `when` is false): it will neither ask nor release. */
void ht_grants_skip(struct ht_grants *g, int32_t iteration, int32_t first);
/* A hint: `next` and then `later` will ask soon. */
void ht_grants_fetch(const struct ht_grants *g, int32_t next, int32_t later);
/* The op has ended: what it releases is freed. */
void ht_grants_release(struct ht_grants *g, int32_t iteration, int32_t op);

/* Takes one of the spaces that changed in a way that can turn a "no" into a "yes", or -1. */
int32_t ht_grants_next_changed(struct ht_grants *g);

/* Most bytes that were live at once. */
int64_t ht_grants_peak(const struct ht_grants *g, int32_t space);

#endif
