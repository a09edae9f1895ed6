/*
 * Boundaries: proves that a unit's input, its gradient or activations that cross to another rank in shards are whole again
 * before they are used.
 *
 * A shard of such a tensor is its bytes [begin, end). A message takes them from the whole tensor (verify_group.c), and only
 * an all-gather over the parts of the receiving stage reads them: its members have all bytes once, in their order, and each
 * writes the tensor that the shards are of.
 *
 *     rank 0, part 0   X(u,j)  --[0, 1/2)-->  shard  \             X(u,j)   rank 2, part 0
 *     rank 1, part 1   X(u,j)  --[1/2, 1)-->  shard  / all-gather  X(u,j)   rank 3, part 1
 */
#include "common/schedule/rules.h"

#include "common/schedule/fold.h"

#include <string.h>

/* Checks the effects of an op that may not touch shards of a boundary beyond writing what it receives. */
static enum ht_status check_outsider(const struct ht_schedule *s, int32_t op, struct ht_error *err)
{
    for (int64_t e = s->effects_begin[op]; e < s->effects_begin[op + 1]; e++) {
        const struct ht_effect *x = &s->effects[e];
        if (!ht_is_boundary_shard(&s->tensors[x->tensor])) continue;
        if (s->ops[op].kind == HT_OP_RECEIVE && !(x->flags & HT_NEED)) continue;
        return ht_broken_op(s, op, err, "has an effect on %s; expected it of its message and an all-gather alone",
                            ht_phrase_tensor(s, x->tensor).text);
    }
    return HT_OK;
}

/* Returns the tensor that a member of an all-gather writes; -1: it writes none, or several. */
static int32_t written_by(const struct ht_schedule *s, int32_t op)
{
    int32_t found = -1, n = 0;
    for (int64_t e = s->effects_begin[op]; e < s->effects_begin[op + 1]; e++)
        if (s->effects[e].flags & (HT_PRODUCE | HT_UPDATE)) found = s->effects[e].tensor, n++;
    return n == 1 ? found : -1;
}

static bool is_of(const struct ht_tensor *shard, const struct ht_tensor *whole)
{
    return ht_is_boundary_shard(shard) && shard->class == whole->class &&
           !memcmp(&shard->label, &whole->label, sizeof shard->label);
}

/* Checks that a member reads shards from byte *end on, and writes their tensor. Leaves *end behind them. */
static enum ht_status check_member(const struct ht_schedule *s, int32_t op, int64_t *end, struct ht_error *err)
{
    int32_t whole = written_by(s, op);
    if (whole < 0 || s->tensors[whole].sharded)
        return ht_broken_op(s, op, err, "does not write one whole tensor, which it gathers");
    for (int64_t e = s->effects_begin[op]; e < s->effects_begin[op + 1]; e++) {
        const struct ht_tensor *t = &s->tensors[s->effects[e].tensor];
        if (!(s->effects[e].flags & HT_NEED)) continue;
        if (!is_of(t, &s->tensors[whole]))
            return ht_broken_op(s, op, err, "gathers %s in %s", ht_phrase_tensor(s, s->effects[e].tensor).text,
                                ht_phrase_tensor(s, whole).text);
        if (t->shard_begin != *end || t->bytes != t->shard_end - t->shard_begin)
            return ht_broken_op(s, op, err, "gathers %lld bytes [%lld, %lld); expected them from byte %lld on",
                                (long long)t->bytes, (long long)t->shard_begin, (long long)t->shard_end,
                                (long long)*end);
        *end = t->shard_end;
    }
    return HT_OK;
}

/* Checks an all-gather, ops [first, last). */
static enum ht_status check_gather(const struct ht_schedule *s, int32_t first, int32_t last, struct ht_error *err)
{
    int64_t end = 0;
    enum ht_status status = HT_OK;
    for (int32_t op = first; op < last && !status; op++) status = check_member(s, op, &end, err);
    end *= ht_joined(s, first).n; /* the members of other copies have as many */
    for (int32_t op = first; op < last && !status; op++)
        if (s->tensors[written_by(s, op)].bytes != end)
            status = ht_broken_op(s, op, err, "gathers %lld bytes in %s of %lld", (long long)end,
                                  ht_phrase_tensor(s, written_by(s, op)).text,
                                  (long long)s->tensors[written_by(s, op)].bytes);
    return status;
}

static bool has_shards(const struct ht_schedule *s)
{
    for (int32_t i = 0; i < s->n_tensors; i++)
        if (ht_is_boundary_shard(&s->tensors[i])) return true;
    return false;
}

enum ht_status ht_rule_boundaries(const struct ht_schedule *s, struct ht_error *err)
{
    enum ht_status status = HT_OK;
    bool any = has_shards(s); /* mostly there are none, and no op's effects need to be looked at */
    for (int32_t first = 0, end; first < s->n_ops && !status; first = end) {
        end = ht_group_end(s, first);
        if (ht_joins_boundary(&s->ops[first])) status = check_gather(s, first, end, err);
        for (int32_t op = first; op < end && any && !status; op++)
            if (!ht_joins_boundary(&s->ops[op])) status = check_outsider(s, op, err);
    }
    return status;
}
