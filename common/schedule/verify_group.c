/*
 * Groups: proves that the members of a group can start and end together.
 *
 * Members have consecutive ids, FIFO lanes of their own and no edges among each other, so no deadlock can be written.
 * They agree in kind, `when` and label. The members of a collective are on ranks of their own, and its communicator has
 * as many ranks as it has members. Their order is that in which a collective about a unit adds up; other groups are in
 * ascending rank. A message is a group of one send and its receive, on two ranks, with equal bytes and a
 * common tensor, or a slice of it (verify_boundary.c). Of a folded graph a collective has as many members in each copy (common/schedule/fold.h).
 */
#include "common/schedule/rules.h"

#include "common/base/array.h"
#include "common/schedule/fold.h"
#include "common/schedule/names.h"

#include <stdlib.h>
#include <string.h>

static bool is_p2p(int kind)
{
    return kind == HT_OP_SEND || kind == HT_OP_RECEIVE;
}

static bool is_collective(int kind)
{
    return kind == HT_OP_ALL_GATHER || kind == HT_OP_REDUCE_SCATTER || kind == HT_OP_ALL_REDUCE;
}

static bool same_label(const struct ht_label *a, const struct ht_label *b)
{
    return a->unit == b->unit && a->n_units == b->n_units && a->sub_ops == b->sub_ops &&
           a->micro_batch == b->micro_batch;
}

/* Checks that a member of a collective or of a pass over parts comes on a rank of its own, in its order. rank_seen[rank]
   is the first op + 1 of the last group on the rank. */
static enum ht_status check_order(const struct ht_schedule *s, int32_t first, int32_t i, int32_t *rank_seen,
                                  struct ht_error *err)
{
    const struct ht_op *op = &s->ops[i];
    int32_t rank = ht_op_rank(s, i);
    bool any_order = is_collective(op->kind) && op->label.unit >= 0;
    if (!any_order && i > first && rank <= ht_op_rank(s, i - 1))
        return ht_broken_op(s, i, err, "is on rank %d after rank %d; expected the members of a group in ascending rank",
                            rank, ht_op_rank(s, i - 1));
    if (rank_seen[rank] == first + 1)
        return ht_broken_op(s, i, err, "shares rank %d with another member of its group (match %d)", rank, op->match);
    rank_seen[rank] = first + 1;
    return HT_OK;
}

/* Returns the members of a collective, in all copies if the graph is folded. */
static int32_t members(const struct ht_schedule *s, int32_t first)
{
    int32_t n = ht_group_end(s, first) - first;
    return n * ht_joined(s, first).n;
}

/* Checks a member against the first of its group. lane_seen[lane] is the first op + 1 of the last group on the lane. */
static enum ht_status check_member(const struct ht_schedule *s, int32_t first, int32_t i, int32_t *lane_seen,
                                   int32_t *rank_seen, struct ht_error *err)
{
    const struct ht_op *a = &s->ops[first], *op = &s->ops[i];
    if (s->lanes[op->lane].order != HT_FIFO)
        return ht_broken_op(s, i, err, "is in a group (match %d) but on the PRIORITY lane '%.24s'", op->match,
                            s->lanes[op->lane].name);
    if (lane_seen[op->lane] == first + 1)
        return ht_broken_op(s, i, err, "shares lane '%.24s' with another member of its group (match %d)",
                            s->lanes[op->lane].name, op->match);
    lane_seen[op->lane] = first + 1;
    if (!(is_p2p(a->kind) && is_p2p(op->kind)) && a->kind != op->kind)
        return ht_broken_op(s, i, err, "is of kind %s in a group of %s ops (match %d)", ht_op_kind_name(op->kind),
                            ht_op_kind_name(a->kind), op->match);
    if (a->when != op->when)
        return ht_broken_op(s, i, err, "has a different 'when' from op %d of its group (match %d)", first, op->match);
    if (!same_label(&a->label, &op->label))
        return ht_broken_op(s, i, err, "has a different label from op %d of its group (match %d)", first, op->match);
    for (int64_t k = s->deps_begin[i]; k < s->deps_begin[i + 1]; k++)
        if (s->deps[k] >= first)
            return ht_broken_op(s, i, err, "depends on op %d of its own group (match %d)", s->deps[k], op->match);
    if (!is_p2p(op->kind)) {
        enum ht_status status = check_order(s, first, i, rank_seen, err);
        if (status) return status;
    }
    const struct ht_work *w = &s->works[op->work];
    if (is_collective(op->kind) && !w->custom[0]) {
        int32_t n = members(s, first);
        if (w->ranks != n)
            return ht_broken_op(s, i, err, "has a communicator of %d ranks in a group of %d (match %d)", w->ranks, n,
                                op->match);
    }
    return HT_OK;
}

/* Returns true if a tensor is what a message of another one leaves: the tensor itself, or a slice of it. */
static bool is_left_by(const struct ht_schedule *s, int32_t tensor, int32_t sent)
{
    const struct ht_tensor *t = &s->tensors[tensor], *whole = &s->tensors[sent];
    if (tensor == sent) return true;
    return ht_is_boundary_shard(t) && !whole->sharded && t->class == whole->class &&
           same_label(&t->label, &whole->label) && t->shard_end <= whole->bytes;
}

/* Returns true if there is a tensor that the send reads and the receive writes, or a slice of it, or if neither has such an
   effect: then the pair moves no tensor of the graph. */
static bool share_tensor(const struct ht_schedule *s, int32_t send, int32_t receive)
{
    bool sends = false, receives = false;
    for (int64_t a = s->effects_begin[send]; a < s->effects_begin[send + 1]; a++) {
        if (!(s->effects[a].flags & HT_NEED)) continue;
        sends = true;
        for (int64_t b = s->effects_begin[receive]; b < s->effects_begin[receive + 1]; b++)
            if (is_left_by(s, s->effects[b].tensor, s->effects[a].tensor) &&
                s->effects[b].flags & (HT_PRODUCE | HT_UPDATE))
                return true;
    }
    for (int64_t b = s->effects_begin[receive]; b < s->effects_begin[receive + 1]; b++)
        receives |= (s->effects[b].flags & (HT_PRODUCE | HT_UPDATE)) != 0;
    return !sends && !receives;
}

static enum ht_status check_pair(const struct ht_schedule *s, int32_t first, int32_t end, struct ht_error *err)
{
    const struct ht_op *a = &s->ops[first], *b = a + 1;
    if (end - first != 2 || a->kind == b->kind)
        return ht_broken_op(s, first, err, "is in a group of %d (match %d); expected one send and its receive",
                            end - first, a->match);
    if (ht_op_rank(s, first) == ht_op_rank(s, first + 1))
        return ht_broken_op(s, first, err, "sends from rank %d to itself", ht_op_rank(s, first));
    bool send_first = a->kind == HT_OP_SEND;
    /* a fragment may have a pair for its timing alone */
    if (s->n_units && !share_tensor(s, send_first ? first : first + 1, send_first ? first + 1 : first))
        return ht_broken_op(
            s, first, err, "shares no tensor with its peer %s; expected one that the send reads and the receive writes",
            ht_phrase_op(s, first + 1).text);
    const struct ht_work *x = &s->works[a->work], *y = &s->works[b->work];
    if (!x->custom[0] && !y->custom[0] && x->bytes != y->bytes)
        return ht_broken_op(s, first, err, "moves %lld bytes, but its peer %s moves %lld", (long long)x->bytes,
                            ht_phrase_op(s, first + 1).text, (long long)y->bytes);
    return HT_OK;
}

static int by_value(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* Returns the smallest number that two groups have; -1: none. Builders number groups from 0 on, so that a table of all numbers is
   small; a file may have any. */
static int32_t find_twice(int32_t *matches, int64_t n)
{
    int32_t last = 0, found = -1;
    for (int64_t i = 0; i < n; i++) last = matches[i] > last ? matches[i] : last;
    if (last > 8 * n) {
        if (n) qsort(matches, (size_t)n, sizeof *matches, by_value);
        for (int64_t i = 1; i < n; i++)
            if (matches[i] == matches[i - 1]) return matches[i];
        return -1;
    }
    bool *seen = HT_NEW_ARRAY(bool, (int64_t)last + 1);
    for (int64_t i = 0; i < n; i++) {
        if (seen[matches[i]] && (found < 0 || matches[i] < found)) found = matches[i];
        seen[matches[i]] = true;
    }
    free(seen);
    return found;
}

enum ht_status ht_rule_groups(const struct ht_schedule *s, struct ht_error *err)
{
    enum ht_status status = HT_OK;
    int32_t *lane_seen = HT_NEW_ARRAY(int32_t, s->n_lanes), *rank_seen = HT_NEW_ARRAY(int32_t, s->n_ranks);
    int32_t *matches = NULL;
    int64_t n_matches = 0;
    size_t cap = 0;
    for (int32_t first = 0, end; first < s->n_ops && !status; first = end) {
        const struct ht_op *op = &s->ops[first];
        end = ht_group_end(s, first);
        if (op->match < 0 && is_collective(op->kind) && ht_joins_copies(s, first)) {
            status = check_member(s, first, first, lane_seen, rank_seen, err);
            continue;
        }
        if (op->match < 0) {
            if (is_p2p(op->kind) || (is_collective(op->kind) && s->n_ranks > 1))
                status = ht_broken_op(s, first, err, "has no match, so this %s has no peer", ht_op_kind_name(op->kind));
            continue;
        }
        HT_PUSH(matches, n_matches, cap, op->match);
        for (int32_t i = first; i < end && !status; i++) status = check_member(s, first, i, lane_seen, rank_seen, err);
        if (!status && is_p2p(op->kind)) status = check_pair(s, first, end, err);
    }
    int32_t twice = status ? -1 : find_twice(matches, n_matches);
    if (twice >= 0) status = ht_broken(s, err, "the ops with match %d do not have consecutive ids", twice);
    free(lane_seen);
    free(rank_seen);
    free(matches);
    return status;
}
