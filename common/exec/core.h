/*
 * Decides what may start, when, and with which memory. Every executor asks this one state machine.
 *
 * The simulator, the emulator and the real executor differ only in what "running an op" means. The core knows nothing
 * of time or data. It is not thread-safe: the simulator is single-threaded, and the real executor holds one lock around
 * each call (all of them are short).
 *
 *     while (ht_core_turn(core, &turn)) {
 *         if (turn.issued) ...         memory was granted
 *         if (turn.started) ...        run turn.inst; then ht_core_finish(core, turn.inst) readies lanes
 *     }
 *
 * common/exec/README.md states the rules. In short:
 *
 *   issue   A FIFO lane issues its ops in id order, iteration by iteration. At most `issue_ahead` issued ops wait
 *           behind the running one; with issue_ahead 0 an op is issued only when it could also start. A PRIORITY lane
 *           issues the first ready op whose memory is granted (oldest iteration, smallest key, smallest id first),
 *           never ahead. An iteration opens when the one two before it has ended.
 *   start   An op starts when its dependencies are done, it is the lane's first issued op, and the lane is idle.
 *           Members of a group start together.
 *   memory  An op (a group) gets all its memory at issue or none; see common/exec/grant.h.
 *   when    An op whose `when` is false is skipped at issue: no time, no memory.
 */
#ifndef HT_EXEC_CORE_H
#define HT_EXEC_CORE_H

#include "common/schedule/schedule.h"

#include <stddef.h>

/* One op in one iteration. */
struct ht_inst {
    int32_t iteration, op;
};

struct ht_core;

struct ht_core_options {
    int32_t iterations; /* >= 1 */
    /* Most issued ops that wait behind the running one, on FIFO lanes of a device (compute, copies, collectives, P2P);
       host and disk lanes always have 0. */
    int32_t issue_ahead;
    /* true: nobody asks when ops are issued, or for their memory, only when they start and end (ht_core_is_exact). */
    bool only_times;
    bool one_node; /* true: runs only the ops of `node`, and learns of the others' ends by messages (below) */
    int32_t node;
};

/* Creates a core for a verified schedule, which must outlive it. Returns HT_INFEASIBLE when the safe sequence does not
   fit. */
enum ht_status ht_core_create(const struct ht_schedule *s, struct ht_core_options options, struct ht_error *err,
                              struct ht_core **out);
void ht_core_destroy(struct ht_core *core);

/*
 * Returns false once a core with only_times may no longer start ops when they should: the run is to begin again without it.
 *
 * With only_times the core issues nothing ahead if that cannot matter: no op has a `when`, and memory keeps room for all that could
 * have been issued ahead beside everything else. As long as nothing is denied its memory nevertheless, ops start when they would.
 */
bool ht_core_is_exact(const struct ht_core *core);

/* Says what a lane did in its turn. */
struct ht_turn {
    struct ht_inst inst;
    int32_t lane;
    bool issued;  /* it has its memory. The members of a group have theirs at once, and are issued in a turn each */
    bool started; /* it may run */
    int64_t grant_seq; /* of an issued op: its grant's number in the common order of grants and releases */
};

/*
 * Takes the turn of one lane: starts its first issued op, or else issues its next op, and starts that if it may. Skips ops
 * whose `when` is false. Returns false when no lane can start or issue anything.
 *
 * Of the lanes on which something may be possible it takes the one whose next candidate comes first in the safe sequence
 * (smallest iteration, then id; a PRIORITY lane's candidate is the ready op that it prefers). So while any lane can issue or
 * start anything, the lane with the smallest candidate goes first.
 */
bool ht_core_turn(struct ht_core *core, struct ht_turn *turn);

/* Ends a running op: frees what it releases, counts down its successors, readies lanes. Returns the number of this
   release in the common order of grants and releases. */
int64_t ht_core_finish(struct ht_core *core, struct ht_inst inst);

/* Reports a validate op's outcome, before ht_core_finish of that op. An iteration is ok until one of its validate ops
   says that it is not. */
void ht_core_set_control(struct ht_core *core, int32_t iteration, bool ok);

/* Returns true when the op has ended or was skipped; false for an iteration that has not opened. */
bool ht_core_has_ended(const struct ht_core *core, struct ht_inst inst);
bool ht_core_done(const struct ht_core *core); /* all ops of all iterations have ended */
int64_t ht_core_unfinished(const struct ht_core *core);
/* Returns n when iterations 0 .. n - 1 have ended, skipped ops included. */
int32_t ht_core_ended(const struct ht_core *core);

/* Copies the state of each op of the two open iterations, the older one first; two equal copies behave alike (but for
   `when`, and for the iterations' number). The second iteration must be open. */
size_t ht_core_state_bytes(const struct ht_core *core);
void ht_core_copy_state(const struct ht_core *core, void *state);

/* Drops all iterations from `iterations` on. `iterations` is at least ht_core_own_ended + 2, so that no node can have
   opened any of them. */
void ht_core_cut(struct ht_core *core, int32_t iterations);

/*
 * One node of several. The core issues and grants what the node's ranks run and keep; of a group, the node's own
 * members are issued and start together. The executor passes on what other nodes report, in the order in which each
 * node sent it:
 */
/* Reports that an op of another node has ended or was skipped; readies lanes. `ok` is false only for a validate op that
   found its iteration bad. The iteration need not be open here. */
void ht_core_remote_end(struct ht_core *core, struct ht_inst inst, bool ok);
/* Reports that iterations 0 .. n - 1 have ended on all other nodes. An iteration opens when the one two before it has
   ended on every node. */
void ht_core_remote_ended(struct ht_core *core, int32_t n);
/* Takes one completion that other nodes have to know: an op that ended or was skipped here, and that an op of another
   node depends on or that is a validate op. `ok` is the iteration's outcome when the op ended. Returns false when none
   is left. */
struct ht_completion {
    struct ht_inst inst;
    bool ok;
};
bool ht_core_next_completion(struct ht_core *core, struct ht_completion *completion);
/* Returns n when iterations 0 .. n - 1 have ended on this node. */
int32_t ht_core_own_ended(const struct ht_core *core);

/* Returns the most bytes that were granted and not yet released in the space, each tensor rounded up to 512. */
int64_t ht_core_peak_bytes(const struct ht_core *core, int32_t space);

/* Writes one line that says what every unfinished lane waits for: a bug report for a stalled run. */
void ht_core_describe_stall(const struct ht_core *core, char *buf, size_t n);

#endif
