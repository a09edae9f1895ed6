/* Creates a core from a schedule: selects its own ops, and sets up groups, successors and lanes. */
#include "common/base/array.h"
#include "common/exec/core_state.h"

#include <stdlib.h>

/* Builds successor lists from dependency lists: for each op its own successors in the same iteration, then those in the
   next. */
static void list_successors(struct ht_core *c)
{
    const struct ht_schedule *s = c->s;
    int32_t n = s->n_ops;
    for (int32_t op = 0; op < n; op++) {
        bool mine = c->info[op].mine;
        for (int64_t d = s->deps_begin[op]; d < s->deps_begin[op + 1]; d++) {
            c->info[s->deps[d]].n_succ += mine;
            c->info[s->deps[d]].is_remote_dep |= !mine && c->info[s->deps[d]].mine;
        }
        for (int64_t d = s->prev_begin[op]; d < s->prev_begin[op + 1]; d++) {
            c->info[s->prev[d]].n_next += mine;
            c->info[s->prev[d]].is_remote_dep |= !mine && c->info[s->prev[d]].mine;
        }
    }
    int64_t total = 0;
    int64_t *same = HT_NEW_ARRAY(int64_t, n), *next = HT_NEW_ARRAY(int64_t, n);
    for (int32_t op = 0; op < n; op++) {
        c->info[op].succ_begin = same[op] = total;
        next[op] = total += c->info[op].n_succ;
        total += c->info[op].n_next;
    }
    c->succ = HT_NEW_ARRAY(int32_t, total);
    for (int32_t op = 0; op < n; op++) {
        if (!c->info[op].mine) continue;
        for (int64_t d = s->deps_begin[op]; d < s->deps_begin[op + 1]; d++) c->succ[same[s->deps[d]]++] = op;
        for (int64_t d = s->prev_begin[op]; d < s->prev_begin[op + 1]; d++) c->succ[next[s->prev[d]]++] = op;
    }
    free(same);
    free(next);
}

/* Selects the ops that run on this node, and their groups. */
static void select_ops(struct ht_core *c)
{
    const struct ht_schedule *s = c->s;
    for (int32_t op = 0, n; op < s->n_ops; op += n) {
        int32_t first = -1, size = 0;
        for (n = 1; s->ops[op].match >= 0 && op + n < s->n_ops && s->ops[op + n].match == s->ops[op].match;) n++;
        for (int32_t m = op; m < op + n; m++) {
            bool mine = c->node < 0 || s->rank_node[ht_op_rank(s, m)] == c->node;
            c->info[m] = (struct info){.lane = s->ops[m].lane, .when = s->ops[m].when, .mine = mine};
            c->info[m].is_remote_dep = mine && c->node >= 0 && s->ops[m].kind == HT_OP_VALIDATE;
            if (mine && first < 0) first = m;
            size += mine;
        }
        for (int32_t m = op; m < op + n; m++) c->info[m].first = first, c->info[m].size = size;
        c->n_mine += size;
    }
}

static void lay_out_lanes(struct ht_core *c, int32_t issue_ahead)
{
    const struct ht_schedule *s = c->s;
    c->lanes = HT_NEW_ARRAY(struct lane, s->n_lanes);
    c->lane_ops = HT_NEW_ARRAY(int32_t, s->n_ops);
    for (int32_t op = 0; op < s->n_ops; op++) c->lanes[s->ops[op].lane].n_ops += c->info[op].mine;
    int32_t *at = c->lane_ops;
    for (int32_t i = 0; i < s->n_lanes; i++) {
        struct lane *l = &c->lanes[i];
        enum ht_lane_kind kind = s->lanes[i].kind;
        l->fifo = s->lanes[i].order == HT_FIFO;
        l->ahead = l->fifo && kind != HT_LANE_HOST && kind != HT_LANE_DISK ? issue_ahead : 0;
        l->queue = HT_NEW_ARRAY(struct ht_inst, l->ahead + 1);
        l->denied_by = -1;
        l->ops = at;
        at += l->n_ops;
        l->n_ops = 0;
    }
    for (int32_t op = 0; op < s->n_ops; op++) {
        struct lane *l = &c->lanes[s->ops[op].lane];
        if (c->info[op].mine) ((int32_t *)l->ops)[l->n_ops++] = op;
    }
}

enum ht_status ht_core_create(const struct ht_schedule *s, struct ht_core_options options, struct ht_error *err,
                              struct ht_core **out)
{
    *out = NULL;
    struct ht_grants *grants;
    enum ht_status status = ht_grants_create(s, options.one_node ? options.node : -1, err, &grants);
    if (status != HT_OK) return status;
    struct ht_core *c = HT_NEW(struct ht_core);
    c->s = s;
    c->iterations = options.iterations;
    c->grants = grants;
    c->node = options.one_node ? options.node : -1;
    c->others_ended = options.one_node ? 0 : INT32_MAX;
    c->info = HT_NEW_ARRAY(struct info, s->n_ops);
    select_ops(c);
    list_successors(c);
    c->waiters = HT_NEW_ARRAY(struct waiters, ht_n_spaces(s));
    lay_out_lanes(c, options.issue_ahead);
    for (int i = 0; i < 2; i++) c->slots[i].ops = HT_NEW_ARRAY(struct op_state, s->n_ops);
    ht_core_begin(c);
    *out = c;
    return HT_OK;
}

void ht_core_destroy(struct ht_core *c)
{
    if (!c) return;
    for (int32_t i = 0; i < c->s->n_lanes; i++) {
        free(c->lanes[i].heap);
        free(c->lanes[i].denied);
        free(c->lanes[i].queue);
    }
    for (int i = 0; i < 2; i++) free(c->slots[i].ops);
    ht_grants_destroy(c->grants);
    free(c->info);
    free(c->succ);
    free(c->lane_ops);
    free(c->lanes);
    for (int32_t i = 0; i < ht_n_spaces(c->s); i++) free(c->waiters[i].lanes);
    free(c->waiters);
    free(c->ready_lanes);
    free(c->early);
    free(c->completions);
    free(c);
}
