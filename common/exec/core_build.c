/* Creates a core from a schedule: selects its own ops, and sets up groups, successors and lanes. */
#include "common/base/array.h"
#include "common/exec/core_state.h"
#include "common/schedule/residency.h"

#include <assert.h>
#include <stdlib.h>

/* Counts each edge among the successors of the op that it leaves, if the other end is this node's. */
static void count_edges(struct ht_core *c, const int64_t *begin, const int32_t *from)
{
    struct info *info = c->info;
    for (int32_t op = 0; op < c->s->n_ops; op++)
        for (int64_t d = begin[op]; d < begin[op + 1]; d++) {
            if (info[op].mine)
                info[from[d]].succ_begin++;
            else if (info[from[d]].mine)
                info[from[d]].is_remote_dep = true;
        }
}

/* Lists the edges, op by op. next: 0, or -1 for edges to the next iteration, whose ops are written as ~op. */
static void list_edges(struct ht_core *c, const int64_t *begin, const int32_t *from, int32_t next)
{
    struct info *info = c->info;
    int32_t *succ = c->succ;
    for (int32_t op = 0; op < c->s->n_ops; op++)
        for (int64_t d = begin[op]; info[op].mine && d < begin[op + 1]; d++)
            succ[info[from[d]].succ_begin++] = op ^ next;
}

/* Builds successor lists from dependency lists, by counting: for each op its own successors in the same iteration, then
   those in the next. */
static void list_successors(struct ht_core *c)
{
    const struct ht_schedule *s = c->s;
    struct info *info = c->info;
    uint32_t total = 0;
    count_edges(c, s->deps_begin, s->deps);
    if (s->prev_begin[s->n_ops]) count_edges(c, s->prev_begin, s->prev);
    for (int32_t op = 0; op < s->n_ops; op++) {
        uint32_t n = info[op].succ_begin;
        info[op].succ_begin = total;
        total += n;
    }
    c->succ = HT_NEW_ARRAY(int32_t, total);
    list_edges(c, s->deps_begin, s->deps, 0);
    if (s->prev_begin[s->n_ops]) list_edges(c, s->prev_begin, s->prev, -1);
    /* Each begin has moved to its list's end. */
    for (int32_t op = s->n_ops; op > 0; op--) info[op].succ_begin = info[op - 1].succ_begin;
    info[0].succ_begin = 0;
}

/* Selects the ops that run on this node, and their groups, and counts those of each lane. */
static void select_ops(struct ht_core *c)
{
    const struct ht_schedule *s = c->s;
    for (int32_t op = 0, n; op < s->n_ops; op += n) {
        int32_t first = -1, size = 0;
        n = ht_group_end(s, op) - op;
        for (int32_t m = op; m < op + n; m++) {
            const struct ht_op *x = &s->ops[m];
            bool mine = c->node < 0 || s->rank_node[ht_op_rank(s, m)] == c->node;
            c->info[m] = (struct info){.group = n > 1 ? c->n_groups : -1,
                                       .lane = (unsigned)x->lane & 0xfffffff,
                                       .when = x->when & 3,
                                       .mine = mine,
                                       .is_remote_dep = mine && c->node >= 0 && x->kind == HT_OP_VALIDATE};
            c->lanes[x->lane].n_ops += mine;
            c->has_when |= x->when != HT_ALWAYS;
            if (mine && first < 0) first = m;
            size += mine;
        }
        if (n > 1) HT_PUSH(c->groups, c->n_groups, c->groups_cap, ((struct group){first, size}));
        c->n_mine += size;
    }
}

/* Returns true if it makes no difference to times whether ops are issued ahead, as long as none is denied its memory. A lane on
   which none is still has its members of groups that have their memory and wait for other lanes. */
static bool may_elide(struct ht_core *c, int32_t issue_ahead)
{
    if (!issue_ahead || c->has_when) return false;
    int32_t *ahead = HT_NEW_ARRAY(int32_t, c->s->n_lanes);
    for (int32_t i = 0; i < c->s->n_lanes; i++)
        if (c->s->lanes[i].order == HT_FIFO) ahead[i] = issue_ahead + 1;
    bool fits = ht_grants_keep_free(c->grants, ahead);
    free(ahead);
    return fits;
}

static void lay_out_lanes(struct ht_core *c, int32_t issue_ahead)
{
    const struct ht_schedule *s = c->s;
    c->lane_ops = HT_NEW_ARRAY(int32_t, s->n_ops);
    int32_t *at = c->lane_ops;
    for (int32_t i = 0; i < s->n_lanes; i++) {
        struct lane *l = &c->lanes[i];
        enum ht_lane_kind kind = s->lanes[i].kind;
        l->fifo = s->lanes[i].order == HT_FIFO;
        l->ahead = l->fifo && kind != HT_LANE_HOST && kind != HT_LANE_DISK ? issue_ahead : 0;
        l->queue = HT_NEW_ARRAY(struct issued, l->ahead + 1);
        l->denied.by = -1;
        l->ops = at;
        at += l->n_ops;
        l->n_ops = 0;
    }
    for (int32_t op = 0; op < s->n_ops; op++) {
        struct lane *l = &c->lanes[c->info[op].lane];
        if (c->info[op].mine) c->lane_ops[l->ops - c->lane_ops + l->n_ops++] = op;
    }
    for (int32_t i = 0; i < s->n_lanes; i++) c->lanes[i].next_op = c->lanes[i].n_ops ? c->lanes[i].ops[0] : -1;
}

enum ht_status ht_core_create(const struct ht_schedule *s, struct ht_core_options options, struct ht_error *err,
                              struct ht_core **out)
{
    *out = NULL;
    int64_t n_edges = s->deps_begin[s->n_ops] + s->prev_begin[s->n_ops];
    if (s->n_ops > MAX_OPS || n_edges > INT32_MAX)
        return ht_fail(err, HT_BAD_INPUT, "schedule '%s' has %d ops and %lld edges; expected at most %d and %d",
                       s->name, s->n_ops, (long long)n_edges, MAX_OPS, INT32_MAX);
    struct ht_grants *grants;
    enum ht_status status = ht_grants_create(s, options.one_node ? options.node : -1, err, &grants);
    if (status != HT_OK) return status;
    struct ht_core *c = HT_NEW(struct ht_core);
    c->s = s;
    c->iterations = options.iterations;
    c->grants = grants;
    c->node = options.one_node ? options.node : -1;
    c->others_ended = options.one_node ? 0 : INT32_MAX;
    assert(s->n_lanes < 1 << 28);
    c->info = HT_NEW_ARRAY(struct info, (int64_t)s->n_ops + 1);
    c->lanes = HT_NEW_ARRAY(struct lane, s->n_lanes);
    select_ops(c);
    list_successors(c);
    c->elides = options.only_times && may_elide(c, options.issue_ahead);
    lay_out_lanes(c, c->elides ? 0 : options.issue_ahead);
    for (int i = 0; i < 2 && i < options.iterations; i++) {
        c->slots[i].ops = HT_NEW_ARRAY(struct op_state, s->n_ops);
        c->slots[i].groups = HT_NEW_ARRAY(struct group_state, c->n_groups);
    }
    ht_core_begin(c);
    *out = c;
    return HT_OK;
}

void ht_core_destroy(struct ht_core *c)
{
    if (!c) return;
    for (int32_t i = 0; i < c->s->n_lanes; i++) {
        free(c->lanes[i].heap);
        free(c->lanes[i].set_aside);
        free(c->lanes[i].queue);
    }
    for (int i = 0; i < 2; i++) {
        free(c->slots[i].ops);
        free(c->slots[i].groups);
    }
    ht_grants_destroy(c->grants);
    free(c->info);
    free(c->groups);
    free(c->succ);
    free(c->lane_ops);
    free(c->lanes);
    free(c->ready_lanes);
    free(c->early);
    free(c->completions);
    free(c);
}
