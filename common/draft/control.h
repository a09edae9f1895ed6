/*
 * Overflow and clipping in any system's schedule: the gradient checks of an iteration, and the treatment of the
 * optimizer steps if a check fails.
 *
 * A builder writes its graph as if every gradient were good. ht_control_apply turns it into a graph that checks first:
 *
 *     gate       every step waits until all gradients have been checked
 *
 *         compute   F0 .. FH | BH VH B1 V1 B0 V0 |   UH U1 U0            V(u): reads G(u), leaves its partial result
 *         host                                   | v                     v: the final check, from all partial results
 *                                                  `--> when ok: steps;  when bad: gradients are freed, nothing else
 *
 *     rollback   steps stay where they are and keep a log; the final check comes after the last step
 *
 *         host      V2 O2  V1 O1  V0 O0 | v |   when ok:  gradients and logs are freed
 *                                       |       when bad: undo2 redo2 undo1 redo1 ..
 *
 * On the bad branch every step is undone. A step that only has to be smaller (clipping), or whose log had no room, is
 * redone with the right factor. A step on an overflow is undone, and its redo does nothing. The backend decides which
 * of these applies.
 *
 * The other ops that depend on a step are treated as follows:
 *
 *     gate       Ops that touch what a step touches, or wait for such an op, move behind the final check with the step
 *                and keep their order. All other ops keep their place. One that only waits for a step's turn on its
 *                lane waits for the op before the step instead. Moved ops run in both branches. On the bad branch a
 *                RESTORE makes what the step would have PRODUCEd (the 16-bit copy, cast from the unchanged master),
 *                and an op with no other effect frees what the step would have RELEASEd.
 *     rollback   If other ops copied what a step wrote to another tier, copies `when: bad` repeat that after the undo.
 *                If the original was moved away, a copy brings it back first. The next iteration reads the last write,
 *                so it waits for the final check without further edges: ht_schedule_link adds them.
 *
 * Gradients are checked in the last residency that they reach before any step, so V(u) runs on the lane that works
 * there. A step of several units (a stage of a pipeline) is checked, undone and redone as a whole.
 *
 * Each of several ranks has a final check, on its last host lane. Before it the ranks agree by an all-reduce of no
 * unit, on the last collective lane of each. A draft of some ranks gets one of each for every rank; merging makes the
 * agreements of all drafts one group (common/schedule/merge.h).
 *
 * SysX, Sec. 3.3 calls rollback "optimizer-state rollback". ZeRO-Offload and every GradScaler use the gate.
 */
#ifndef HT_DRAFT_CONTROL_H
#define HT_DRAFT_CONTROL_H

#include "common/plan/scenario.h"
#include "common/schedule/schedule.h"

/* Ways in which a rollback undoes steps. */
enum ht_undo_kind {
    /* Each step keeps a log, which is freed in the iteration. A redo follows the undo. */
    HT_UNDO_AND_REDO,
    /* Logs stay resident from one iteration to the next. The undo op itself redoes the step if it must be redone
       (common/draft/effects.md). No clipping. A simulation charges the traffic of the whole log to memory, but neither
       the time that writing it adds to a step nor the redone step. */
    HT_UNDO_LASTING,
    /* No logs: arithmetic reverses a step, which is not exact. Simulation only; no clipping. */
    HT_UNDO_UNLOGGED,
};

/* Says for which ops a program waits before it goes on, across iterations too. */
enum ht_blocking {
    HT_BLOCKS_NOTHING, /* data and lanes alone give the order */
    /* The program enqueues kernels, and its one host thread waits for copies and works on the host. So each of these
       waits for the one before it, and a kernel for the last one before it; they do not wait for kernels whose data
       they do not touch. */
    HT_BLOCKS_HOST,
    HT_BLOCKS_ALL, /* nothing overlaps: every op waits for the op before it */
};

/* Returns true if the program's host thread waits for ops of a lane: copies and works on the host. */
bool ht_blocks_host(enum ht_lane_kind lane);

/* The part of control that belongs to a system's method. */
struct ht_control_style {
    enum ht_blocking blocking;
    enum ht_undo_kind undo;
};

/*
 * Applies control to the draft `in` of one or more ranks, linked or not, with its marks resolved. The result is
 * unlinked; with mode none it is a copy. Keeps the edges that the builder added. HT_INFEASIBLE, with the op's name, if
 * control cannot handle a pattern; HT_FAILED if the graph already has control.
 */
enum ht_status ht_control_apply(const struct ht_schedule *in, const struct ht_control *control,
                                struct ht_control_style style, struct ht_error *err, struct ht_schedule **out);

/* Adds to a step's work what this control adds to the step, and sets the work of its gradient check V(u). */
void ht_control_works(const struct ht_control *control, struct ht_work *step, struct ht_work *grad_check);

/* Returns the bytes of LOG(u) for a unit's elements under this control; 0 except for rollback. */
int64_t ht_control_log_bytes(const struct ht_control *control, int64_t elements);

#endif
