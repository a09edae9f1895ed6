/* Fields of a core. core.c decides with them, core_build.c fills them in. Internal to common/exec. */
#ifndef HT_EXEC_CORE_STATE_H
#define HT_EXEC_CORE_STATE_H

#include "common/exec/core.h"
#include "common/exec/grant.h"

/* States of an op in an open iteration. */
enum state {
    WAITING, /* not issued */
    ARRIVED, /* could be issued; waits for other members of its group */
    GRANTED, /* has memory; its lane has not issued it yet */
    ISSUED,
    AT_START, /* could start; waits for other members of its group */
    GO,       /* may start */
    RUNNING,
    DONE,
};

struct ready { /* an op on a PRIORITY lane whose dependencies are done */
    int32_t iteration, priority, op;
};

/* The last answer to a lane that asked for the memory of an op alone. */
struct denied {
    bool holds;   /* it was denied, and nothing has changed that could change the answer */
    bool waits;   /* the op could not start yet */
    int32_t by;   /* space that denied it, or its group, or -1 */
    uint64_t key; /* of the op */
};

struct ready_lane {
    uint64_t key;
    int32_t lane;
};

/* Constants of an op. Five fit into one cache line. */
struct info {
    uint32_t succ_begin; /* its successors in succ, up to the next op's: op in the same iteration, ~op in the next */
    int32_t group;       /* row of groups; -1: an op alone */
    /* mine: runs on this core's node; true for all without nodes. is_remote_dep: an op of another node depends on it. */
    unsigned lane : 28, when : 2, mine : 1, is_remote_dep : 1;
};

/* This node's members of a group: the first op, and how many. */
struct group {
    int32_t first, size;
};

/* State of an op in an open iteration. */
struct op_state {
    uint32_t pending : 28; /* number of dependencies that are not done */
    uint32_t state : 4;    /* enum state */
};
enum { MAX_OPS = 1 << 27 }; /* an op may depend on each op twice: in its iteration and in the one before */

/* State of a group in an open iteration. */
struct group_state {
    int32_t arrived; /* number of members in this state */
    /* at_start: likewise. is_denied, waited: it was denied its memory, as struct denied says; whichever member's lane asked, since
       their places in the safe sequence are neighbours. */
    uint32_t at_start : 30, is_denied : 1, waited : 1;
    int64_t grant_seq; /* of its first member; the next has the next number */
};

/* An issued op. */
struct issued {
    int32_t iteration, op;
};

/* Holds a lane. The core reads the fields up to `ops`, 64 bytes, on each turn. */
struct lane {
    bool fifo, running; /* running: queue[0] runs */
    bool is_ready;
    int32_t ahead; /* most issued ops that may wait behind the running one */
    int32_t n_queue;
    int32_t n_heap;
    int32_t iteration, next; /* FIFO: next to issue is ops[next] of this iteration */
    int32_t next_op;         /* ops[next]; -1: the lane has no ops */
    int32_t n_ops;
    uint64_t ready_key;
    struct issued *queue; /* oldest first; [ahead + 1] */
    struct ready *heap;   /* PRIORITY: ops that are ready and not issued */
    const int32_t *ops;   /* FIFO: its ops by id */
    size_t heap_cap;
    struct ready *set_aside; /* PRIORITY, during issue: ready ops that were denied memory */
    size_t set_aside_cap;
    struct denied denied;
};

/* A group whose members start: the last `left` of them, from op `next` on, take the next turns. */
struct starting {
    int32_t iteration, next, left;
    int64_t grant_seq; /* of the next one */
};

struct slot { /* an open iteration */
    int32_t iteration;
    int64_t unfinished;
    struct op_state *ops;       /* [n_ops] */
    struct group_state *groups; /* [n_groups] */
    bool ok;
};

struct ht_core {
    const struct ht_schedule *s;
    int32_t iterations, oldest; /* oldest: first iteration that has not ended; it and the next are open */
    int32_t open_end;           /* iterations from this one on are not open */
    int32_t node;               /* -1: runs all ops */
    int32_t n_mine;
    int32_t others_ended;        /* iterations that have ended on all other nodes; INT32_MAX: no others */
    struct ht_completion *early; /* remote ends of iterations that are not open yet */
    size_t n_early, early_cap;
    struct ht_completion *completions;
    size_t n_completions, completions_cap;
    struct info *info; /* [n_ops + 1] */
    struct group *groups;
    int32_t n_groups;
    size_t groups_cap;
    int32_t *succ;
    int32_t *lane_ops;
    struct lane *lanes;
    struct slot slots[2];
    struct starting starting;
    struct ht_grants *grants;
    struct ready_lane *ready_lanes;
    int64_t n_ready;
    size_t ready_cap;
    int64_t seq;
    bool elides;               /* issues nothing ahead, since it would not matter */
    bool was_denied, has_when; /* has_when: some op has a `when` */
};

/* Returns the op's group, or the op alone. */
static inline struct group ht_core_group(const struct ht_core *c, int32_t op)
{
    int32_t group = c->info[op].group;
    return group < 0 ? (struct group){op, 1} : c->groups[group];
}

/* Opens the first iterations. Everything else is set up. */
void ht_core_begin(struct ht_core *c);

#endif
