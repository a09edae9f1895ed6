/* What a core is made of: shared by core.c, which decides, and core_build.c, which makes it. Internal to common/exec.
 */
#ifndef HT_EXEC_CORE_STATE_H
#define HT_EXEC_CORE_STATE_H

#include "common/exec/core.h"
#include "common/exec/grant.h"

/* State of an op in one of the two open iterations. */
enum state {
    WAITING, /* not issued */
    ARRIVED, /* member of a group, could be issued but for the others */
    GRANTED, /* memory given, not yet taken up by its lane */
    ISSUED,
    AT_START, /* member of a group, could start but for the others */
    GO,       /* may start */
    RUNNING,
    DONE,
};

struct ready { /* on a PRIORITY lane */
    int32_t iteration, priority, op;
};

struct lane {
    bool fifo;
    int32_t ahead;      /* how many issued ops may wait behind the running one */
    const int32_t *ops; /* FIFO: its ops by id */
    int32_t n_ops;
    int32_t iteration, next; /* FIFO: the head is ops[next] of this iteration */
    struct ready *heap;      /* PRIORITY: ready, not issued */
    int32_t n_heap;
    size_t heap_cap;
    struct ready *denied; /* PRIORITY, while it issues: ready, but without memory */
    size_t denied_cap;
    struct ht_inst *queue; /* issued, oldest first; [ahead + 1] */
    int32_t n_queue;
    bool running; /* queue[0] runs */
    bool is_ready;
    uint64_t ready_key;
    int32_t denied_by; /* space that last denied memory, or -1; for describe_stall */
};

struct waiters { /* lanes that a space denied memory since it last changed */
    int32_t *lanes;
    int32_t n;
    size_t cap;
};

struct ready_lane {
    uint64_t key;
    int32_t lane;
};

/* What an op is, once and for all; one cache line holds two. */
struct info {
    int32_t lane;
    int32_t first, size; /* of its group the first that is mine, and how many are; itself and 1 without one */
    uint16_t when;
    bool mine;          /* to issue: of the core's node, where it has one */
    bool is_remote_dep; /* an op of another node depends on it */
    int64_t succ_begin; /* its successors in the same iteration, then those in the next */
    int32_t n_succ, n_next;
};

/* Where it stands in an open iteration. */
struct stand {
    int32_t pending; /* dependencies not done */
    int32_t state;   /* enum state */
    int64_t grant_seq;
    int32_t arrived, at_start; /* of a group, under its first op */
};

struct slot { /* one open iteration */
    int32_t iteration;
    int64_t unfinished;
    struct stand *ops; /* [n_ops] */
    bool ok;
};

struct ht_core {
    const struct ht_schedule *s;
    int32_t iterations, oldest; /* oldest: first iteration that has not ended; it and the next are open */
    int32_t node;               /* -1: all ops are mine */
    int32_t n_mine;
    int32_t elsewhere;           /* iterations that have ended on all other nodes; INT32_MAX where there are none */
    struct ht_completion *early; /* heard to have ended, of iterations that are not open yet */
    size_t n_early, early_cap;
    struct ht_completion *completions;
    size_t n_completions, completions_cap;
    struct info *info; /* [n_ops] */
    int32_t *succ;
    int32_t *lane_ops;
    struct lane *lanes;
    struct slot slots[2];
    struct ht_grants *grants;
    struct waiters *waiters; /* [n_spaces] */
    struct ready_lane *ready_lanes;
    int64_t n_ready;
    size_t ready_cap;
    int64_t seq;
};

/* Opens the first iterations; everything else is in place. */
void ht_core_begin(struct ht_core *c);

#endif
