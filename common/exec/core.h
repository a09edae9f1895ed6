/*
 * The semantics: what may start, when, and with which memory. Shared by every executor.
 *
 * The simulator, the emulator and the real executor ask this one state machine; they differ only in what "running an
 * op" means. It knows nothing of time or data. It is not thread-safe: the simulator is single-threaded, the real
 * executor holds one lock around each call (all of them are short).
 *
 *     while ((lane = ht_core_next_ready(core)) >= 0) {
 *         if (ht_core_start(core, lane, &inst)) ...          run it; then ht_core_finish(core, inst), which pokes lanes
 *         else if (ht_core_issue(core, lane, &inst)) ...     memory was granted; now try ht_core_start
 *     }                                                      the lane is poked again if it may go on
 *
 * The rules are in common/exec/README.md. In short:
 *
 *   issue   FIFO lane: ops in id order, iteration by iteration; at most `issue_ahead` issued ops may wait behind the
 *           running one. With issue_ahead 0 an op is issued only when it could also start. PRIORITY lane: of the ready
 *           ops (oldest iteration, smallest key, smallest id first) the first whose memory is granted; never ahead.
 *           An iteration opens when the one two before it has ended.
 *   start   dependencies done, first among the lane's issued ops, lane idle. Members of a group start together.
 *   memory  granted at issue, all of an op's (all of a group's) places at once; see common/exec/grant.h.
 *   when    an op whose `when` is false is finished at issue: no time, no memory.
 */
#ifndef HT_EXEC_CORE_H
#define HT_EXEC_CORE_H

#include "common/schedule/schedule.h"

/* One op in one iteration. */
struct ht_inst {
    int32_t iteration, op;
};

struct ht_core;

struct ht_core_options {
    int32_t iterations; /* >= 1 */
    /* Of FIFO lanes on the device (compute, copies, collectives, P2P); host and disk lanes: always 0. */
    int32_t issue_ahead;
    bool one_node; /* only the ops of `node` are this core's; those of other nodes are heard of. See below */
    int32_t node;
};

/* The schedule must outlive the core and have been verified (its safe sequence fits): HT_INFEASIBLE otherwise. */
enum ht_status ht_core_create(const struct ht_schedule *s, struct ht_core_options options, struct ht_error *err,
                              struct ht_core **out);
void ht_core_destroy(struct ht_core *core);

/* Issues the lane's next op if the rules allow it. False: nothing can be issued on this lane now. Ops whose `when` is
   false are passed over silently. For a member of a group: true once per member, when the whole group is issued. */
bool ht_core_issue(struct ht_core *core, int32_t lane, struct ht_inst *inst);

/* Takes the lane's first issued op if it may start now. False: nothing may. */
bool ht_core_start(struct ht_core *core, int32_t lane, struct ht_inst *inst);

/* The op has ended: frees what it releases, counts down its successors, pokes lanes. Returns the number of the release
   in the common order of grants and releases. */
int64_t ht_core_finish(struct ht_core *core, struct ht_inst inst);

/*
 * Takes one lane on which issue or start may now succeed, or -1. Of the poked lanes it is the one whose next candidate
 * stands first in the safe sequence (smallest iteration, then id; a PRIORITY lane's candidate is the ready op that it
 * prefers). Taking pokes one by one, and serving each before taking the next, therefore gives the simulator's rule: as
 * long as any lane can issue or start anything, the one with the smallest candidate does. Right after creation every
 * lane is poked.
 */
int32_t ht_core_next_ready(struct ht_core *core);

/* An op that the lane comes to soon, or -1: a hint of what to fetch into the cache. Only FIFO lanes know. */
int32_t ht_core_upcoming(const struct ht_core *core, int32_t lane);

/* A validate op's result; call before ht_core_finish of that op. An iteration is ok until one of its validate ops says
   that it is not. */
void ht_core_set_control(struct ht_core *core, int32_t iteration, bool ok);

/* Has it ended, or been passed over? False for an iteration that is not open yet. */
bool ht_core_has_ended(const struct ht_core *core, struct ht_inst inst);
bool ht_core_done(const struct ht_core *core); /* every op of every iteration has finished */
int64_t ht_core_unfinished(const struct ht_core *core);
/* Iterations 0 .. n - 1 have ended, ops that were passed over included. */
int32_t ht_core_ended(const struct ht_core *core);

/* No iteration from `iterations` on is run, if there were to be any. At least ht_core_own_ended + 2, so that none of
   them can have been opened, on any node. */
void ht_core_cut(struct ht_core *core, int32_t iterations);

/*
 * One node of several. The core then issues and grants what the node's ranks run and keep; of a group it is the node's
 * own members that are issued and start together. What other nodes do reaches it by messages, which are to be given to
 * it in the order in which each node sent them:
 */
/* An op of another node has ended or was passed over; ok: unless it was a validate op that said otherwise. May come
   before its iteration has opened here. Pokes lanes. */
void ht_core_remote_end(struct ht_core *core, struct ht_inst inst, bool ok);
/* Iterations 0 .. n - 1 have ended on all other nodes. An iteration opens when the one two before it has ended
 * everywhere. */
void ht_core_remote_ended(struct ht_core *core, int32_t n);
/* Takes one op that has ended or was passed over here and that an op of another node depends on, or that is a validate op:
   all nodes have to know the verdict, which is as the iteration stood when it ended. False: none is left. */
struct ht_completion {
    struct ht_inst inst;
    bool ok;
};
bool ht_core_next_completion(struct ht_core *core, struct ht_completion *told);
/* Iterations 0 .. n - 1 have ended on this node. */
int32_t ht_core_own_ended(const struct ht_core *core);

/* Most bytes that were granted and not yet released, as the semantics counts them (rounded to 512). */
int64_t ht_core_peak_bytes(const struct ht_core *core, int32_t space);

/* Number of an issued, unfinished op's grant: every grant of an op and every finish takes the next number. */
int64_t ht_core_grant_seq(const struct ht_core *core, struct ht_inst inst);

/* One line on what every unfinished lane waits for; for a bug report when nothing moves any more. */
void ht_core_describe_stall(const struct ht_core *core, char *buf, size_t n);

#endif
