/* Control: an op with a `when` starts only after a validate op of its iteration has written the control scalar, and a
   validate op of a whole iteration reads what it judges (the hazard rule then sees to it that this was there before). */
#include "common/schedule/rules.h"

#include "common/base/array.h"

#include <stdlib.h>

static bool reads_something(const struct ht_schedule *s, int32_t op)
{
    for (int64_t e = s->effects_begin[op]; e < s->effects_begin[op + 1]; e++)
        if (s->effects[e].flags & HT_NEED) return true;
    return false;
}

enum ht_status ht_rule_control(const struct ht_schedule *s, struct ht_error *err)
{
    enum ht_status status = HT_OK;
    if (!ht_has_branches(s)) return HT_OK;
    bool *lane_validated = HT_NEW_ARRAY(bool, s->n_lanes); /* a FIFO lane on which a validate op came before */
    for (int32_t i = 0; i < s->n_ops && !status; i++) {
        const struct ht_op *op = &s->ops[i];
        if (op->kind == HT_OP_VALIDATE) {
            if (op->when != HT_ALWAYS)
                status = ht_broken_op(s, i, err, "is a validate op and cannot itself be skipped");
            else if (s->n_units && !reads_something(s, i))
                status = ht_broken_op(s, i, err, "is a validate op that reads nothing, so it can pass before there is "
                                                 "anything to judge");
            if (s->lanes[op->lane].order == HT_FIFO) lane_validated[op->lane] = true;
            continue;
        }
        bool told = op->when == HT_ALWAYS || lane_validated[op->lane];
        for (int64_t k = s->deps_begin[i]; k < s->deps_begin[i + 1] && !told; k++)
            told = s->ops[s->deps[k]].kind == HT_OP_VALIDATE;
        if (!told) status = ht_broken_op(s, i, err, "has a 'when' without an edge from a validate op");
    }
    free(lane_validated);
    return status;
}
