/*
 * Parts: proves that tensor-parallel ops compute on the right parts of a unit.
 *
 * All parameters, gradients and optimizer states of a unit are divided into the same number of parts; or those of each half
 * of a block, where they are tensors of their own. An op that computes has effects on tensors of one part, and on undivided
 * tensors:
 *
 *     forward, recompute, backward      a group of n ops whose works are of n parts; member q has part q of n. Of a
 *                                       folded graph one op, which stands for those of all parts
 *     accumulate, step, undo,           one part of a unit, the same for all members of a group
 *     all-gather, reduction
 *
 * An op that only moves tensors or checks gradients may have effects on any part. verify_update.c proves that all parts
 * exist.
 */
#include "common/schedule/rules.h"

#include "common/base/array.h"
#include "common/schedule/apart.h"
#include "common/schedule/fold.h"
#include "common/schedule/names.h"

#include <stdlib.h>

/* Checks that all states of a unit, or of each half of a block, are divided into the same number of parts. */
static enum ht_status check_states(const struct ht_schedule *s, struct ht_error *err)
{
    int32_t *first = HT_NEW_ARRAY(int32_t, 2 * (int64_t)s->n_units); /* a half's first tensor + 1 */
    enum ht_status status = HT_OK;
    for (int32_t i = 0; i < s->n_tensors && !status; i++) {
        const struct ht_tensor *t = &s->tensors[i];
        if (!ht_is_unit_state(t)) continue; /* most are not */
        for (int h = 0; h < 2 && !status; h++) {
            int32_t *known = &first[2 * t->label.unit + h];
            if ((h ? ht_is_front : ht_is_back)(t->label.sub_ops)) continue; /* of the other half alone */
            if (*known == 0) *known = i + 1;
            if (s->tensors[*known - 1].parts != t->parts)
                status = ht_broken(s, err, "%s: the unit is divided into %d parts here, but for %s into %d",
                                   ht_phrase_tensor(s, i).text, t->parts, ht_phrase_tensor(s, *known - 1).text,
                                   s->tensors[*known - 1].parts);
        }
    }
    free(first);
    return status;
}

static bool is_pass(int kind)
{
    return kind == HT_OP_FORWARD || kind == HT_OP_RECOMPUTE || kind == HT_OP_BACKWARD;
}

static bool stays_in_part(int kind)
{
    return kind == HT_OP_ACCUMULATE || kind == HT_OP_OPTIMIZER_STEP || kind == HT_OP_UNDO || kind == HT_OP_ALL_GATHER ||
           kind == HT_OP_REDUCE_SCATTER || kind == HT_OP_ALL_REDUCE || kind == HT_OP_TRANSPOSE;
}

/* Returns true if a tensor is a part. */
static bool has_parts(const struct ht_schedule *s)
{
    for (int32_t i = 0; i < s->n_tensors; i++)
        if (s->tensors[i].parts != 1) return true;
    return false;
}

/* Checks ops [first, end): one op, or the members of a group. divided: a tensor is a part. */
static enum ht_status check_group(const struct ht_schedule *s, int32_t first, int32_t end, bool divided,
                                  struct ht_error *err)
{
    bool pass = is_pass(s->ops[first].kind);
    int32_t n = (end - first) * (pass ? ht_joined(s, first).n : 1), part = -1,
            parts = n; /* a pass: of the member; else: of the first tensor that is a part */
    for (int32_t i = first; i < end; i++) {
        const struct ht_work *w = &s->works[s->ops[i].work];
        if (pass && !w->custom[0] && (w->tp > 1 ? w->tp : 1) != n)
            return ht_broken_op(s, i, err, "works on one of %d parts in a group of %d", w->tp, n);
        for (int64_t e = s->effects_begin[i]; divided && e < s->effects_begin[i + 1]; e++) {
            const struct ht_tensor *t = &s->tensors[s->effects[e].tensor];
            if (t->parts == 1) continue;
            if (!pass && part < 0) part = t->part, parts = t->parts;
            if (pass) part = i - first;
            if (t->part != part || t->parts != parts)
                return ht_broken_op(s, i, err, "is about part %d of %d, but has %s", part, parts,
                                    ht_phrase_tensor(s, s->effects[e].tensor).text);
        }
    }
    return HT_OK;
}

enum ht_status ht_rule_parts(const struct ht_schedule *s, struct ht_error *err)
{
    bool divided = has_parts(s);
    enum ht_status status = s->n_units && divided ? check_states(s, err) : HT_OK;
    for (int32_t first = 0, end; first < s->n_ops && !status; first = end) {
        end = ht_group_end(s, first);
        if (is_pass(s->ops[first].kind) || (divided && stays_in_part(s->ops[first].kind)))
            status = check_group(s, first, end, divided, err);
    }
    return status;
}
