/*
 * Overflow and clipping in any system's schedule: what tells whether an iteration's gradients are good, and what
 * happens to the optimizer steps when they are not.
 *
 * A builder writes its graph as if every gradient were good. ht_control_apply makes of it one that looks first:
 *
 *     gate       every step waits until all gradients have been judged
 *
 *         compute   F0 .. FH | BH VH B1 V1 B0 V0 |   UH U1 U0            V(u): N G(u), leaves its partial
 *         host                                   | v                     v: the verdict, from all partials
 *                                                  `--> when ok: steps;  when bad: gradients are freed, no more
 *
 *     rollback   steps stay where they are and keep a log; the verdict comes after the last one
 *
 *         host      V2 O2  V1 O1  V0 O0 | v |   when ok:  gradients and logs are freed
 *                                       |       when bad: undo2 redo2 undo1 redo1 ..
 *
 * A step that only has to be made smaller (clipping) is undone and made again with the factor; so is one whose log had
 * no room. One with bad gradients is undone, and the redo does nothing. Which of these it is, is the backend's affair.
 *
 * What the rule "all that follows from a step" means:
 *
 *     gate       ops that touch what a step touches, or wait for such an op, move behind the verdict together with it
 *                and keep their order; all others keep theirs, and if one only waits for a step's turn on its lane, it
 *                waits for the op before. What moves runs in both branches: what a step would have PRODUCEd
 *                is made by a RESTORE (the 16-bit copy, cast from the master that nobody changed), what it would have
 *                RELEASEd is freed by an op that does nothing else.
 *     rollback   what a step wrote and another op carried on is carried on once more, by copies `when: bad` after the
 *                undo. What was moved away altogether is brought back first. So the next iteration, which reads the
 * last that wrote, waits for the verdict by itself: ht_schedule_link sees to it.
 *
 * Gradients are judged in the last place that they reach before any step, so V(u) is on the lane that works there. A step
 * of several units (a stage of a pipeline) is judged, undone and made again as a whole.
 *
 * Several ranks have a verdict each, on the last host lane of each rank. Before it they agree: an all-reduce about no unit,
 * on the last collective lane of each rank. A draft of some ranks gets one of each for every rank; the agreements of all
 * drafts become one group in the merge (common/schedule/merge.h).
 *
 * Words: SysX, Sec. 3.3 calls rollback "optimizer-state rollback"; ZeRO-Offload's and every GradScaler's way is the
 * gate.
 */
#ifndef HT_BUILD_CONTROL_H
#define HT_BUILD_CONTROL_H

#include "common/plan/scenario.h"
#include "common/schedule/schedule.h"

/* What a rollback goes by. */
enum ht_undo_kind {
    HT_UNDO_AND_REDO, /* a log for each step, freed with the iteration; a redo follows the undo */
    HT_UNDO_LASTING, /* logs that stay from one iteration to the next. The undo op itself makes the step again where that
                          is wanted (common/backend/cpu.h); no clipping. A simulation counts that the whole log passes the
                          memory, but not the time that it adds to a step of its own, nor the step made again */
    HT_UNDO_UNLOGGED, /* no logs: steps are reversed by arithmetic, which is not exact. Simulation only; no clipping */
};

/* What belongs to a system's method. */
struct ht_control_style {
    bool blocking; /* nothing overlaps: every op waits for the one before it, over the iteration's boundary too */
    enum ht_undo_kind undo;
};

/*
 * Puts control into the draft `in` of one or more ranks, linked or not, with its marks resolved. The result is unlinked.
 * With mode none, a copy. Edges that the builder added are kept.
 * HT_INFEASIBLE with the op's name where a pattern has no treatment; HT_FAILED when the graph has a control of its own.
 */
enum ht_status ht_control_apply(const struct ht_schedule *in, const struct ht_control *control,
                                struct ht_control_style style, struct ht_error *err, struct ht_schedule **out);

/* Turns the work of a step into that of the step under this control, and gives that of V(u). */
void ht_control_works(const struct ht_control *control, struct ht_work *step, struct ht_work *grad_check);

/* Bytes of LOG(u) for a unit's elements under this control; 0 but for rollback. */
int64_t ht_control_log_bytes(const struct ht_control *control, int64_t elements);

#endif
