#include "common/backend/cpu_control.h"

#include "common/base/array.h"
#include "common/model/halves.h"
#include "common/schedule/apart.h"

#include <math.h>
#include <stdlib.h>

/* ---- the final check ---- */

bool ht_cpu_check(struct ht_cpu_control *c, int32_t iteration, struct ht_cpu_iteration *out)
{
    struct ht_cpu_slot *slot = ht_cpu_slot(c, iteration);
    bool fits = true;
    double squares = 0;
    for (int32_t i = 0; i < c->n_checked; i++) {
        const struct ht_grad_partial *p = &c->partials[c->checked[i].tensor];
        fits &= p->fits;
        squares += c->checked[i].again ? 0 : p->squares;
    }
    double norm = sqrt(squares) / slot->loss_scale;
    slot->finite = fits;
    slot->clip_factor = fits ? ht_clip_factor(c->options.clip, norm) : 1;
    ht_scaler_update(&c->scaler, &c->options, fits);
    ht_cpu_slot(c, iteration + 1)->loss_scale = c->scaler.scale;
    ht_cpu_slot(c, iteration + 1)->left_out = false;
    bool redone = c->undoes && (slot->clip_factor < 1 || slot->left_out);
    *out = (struct ht_cpu_iteration){.loss_scale = slot->loss_scale,
                                     .norm = norm,
                                     .clip_factor = slot->clip_factor,
                                     .outcome = !fits    ? HT_CPU_SKIPPED
                                                : redone ? HT_CPU_REDONE
                                                         : HT_CPU_OK};
    return fits && !redone;
}

bool ht_cpu_checks(const struct ht_cpu_control *c, int32_t op, int32_t tensor)
{
    int32_t i = 0;
    while (i < c->n_checked && c->checked[i].tensor != tensor) i++;
    return i < c->n_checked && c->checked[i].op == op;
}

/* ---- agreement of the ranks ---- */

int64_t ht_cpu_agreement_size(const struct ht_cpu_control *c, int32_t of)
{
    int64_t n = 1;
    for (int32_t i = 0; i < c->n_checked; i++) n += c->checked[i].rank == of ? 2 : 0;
    return n;
}

void ht_cpu_agreement_pack(const struct ht_cpu_control *c, int32_t iteration, double *numbers)
{
    *numbers++ = c->slots[iteration % HT_CPU_SLOTS].left_out;
    for (int32_t i = 0; i < c->n_checked; i++) {
        const struct ht_grad_partial *p = &c->partials[c->checked[i].tensor];
        if (c->checked[i].rank != c->rank) continue;
        *numbers++ = p->fits;
        *numbers++ = p->squares;
    }
}

void ht_cpu_agreement_unpack(struct ht_cpu_control *c, int32_t iteration, int32_t from, const double *numbers)
{
    if (*numbers++ != 0) ht_cpu_slot(c, iteration)->left_out = true;
    for (int32_t i = 0; i < c->n_checked; i++) {
        struct ht_grad_partial *p = &c->partials[c->checked[i].tensor];
        if (c->checked[i].rank != from) continue;
        p->fits = *numbers++ != 0;
        p->squares = *numbers++;
    }
}

/* ---- checks at open ---- */

static enum ht_status fail_op(const struct ht_schedule *s, int32_t op, struct ht_error *err, const char *text)
{
    char label[64];
    return ht_fail(err, HT_FAILED, "schedule '%s': op %d (%s) on the cpu backend: %s", s->name, op,
                   ht_op_label(s, op, label, sizeof(label)), text);
}

/* Returns, for each op on a FIFO lane, the op just before it, or -1. The caller frees the array. */
static int32_t *before_on_lane(const struct ht_schedule *s)
{
    int32_t *before = HT_NEW_ARRAY(int32_t, s->n_ops), *last = HT_NEW_ARRAY(int32_t, s->n_lanes);
    for (int32_t i = 0; i < s->n_lanes; i++) last[i] = -1;
    for (int32_t op = 0; op < s->n_ops; op++) {
        int32_t lane = s->ops[op].lane;
        before[op] = s->lanes[lane].order == HT_FIFO ? last[lane] : -1;
        last[lane] = op;
    }
    free(last);
    return before;
}

/* Marks an op and its group, whose members start together. */
static void mark(const struct ht_schedule *s, int32_t op, bool *marked)
{
    int32_t match = s->ops[op].match, first = op;
    while (match >= 0 && first > 0 && s->ops[first - 1].match == match) first--;
    for (int32_t i = first; i == op || (match >= 0 && i < s->n_ops && s->ops[i].match == match); i++) marked[i] = true;
}

/* Checks that every op that checks gradients ends before the final check begins. If all steps that may be undone do,
   too, one may be left out: all are undone and made again, by steps of the bad branch, or by the undo ops when there
   are none. */
static enum ht_status check_partials_first(struct ht_cpu_control *c, const struct ht_schedule *s, struct ht_error *err)
{
    int32_t final_check = c->final_check, steps = 0, undone = 0, again = 0, *before = before_on_lane(s), missing = -1;
    bool steps_first = true;
    bool *earlier = HT_NEW_ARRAY(bool, s->n_ops); /* the final check waits for it */
    earlier[final_check] = true;
    for (int32_t op = final_check; op >= 0; op--) {
        if (!earlier[op]) continue;
        if (before[op] >= 0) mark(s, before[op], earlier);
        for (int64_t k = s->deps_begin[op]; k < s->deps_begin[op + 1]; k++) mark(s, s->deps[k], earlier);
    }
    for (int32_t op = 0; op < s->n_ops; op++) {
        bool partial = s->ops[op].kind == HT_OP_VALIDATE && s->ops[op].label.unit >= 0;
        if (partial && !earlier[op]) missing = op;
        undone += s->ops[op].kind == HT_OP_UNDO && s->ops[op].when == HT_WHEN_BAD;
        if (s->ops[op].kind != HT_OP_OPTIMIZER_STEP) continue;
        steps += s->ops[op].when == HT_ALWAYS;
        again += s->ops[op].when == HT_WHEN_BAD;
        steps_first &= s->ops[op].when != HT_ALWAYS || earlier[op];
    }
    c->undo_steps = again == 0;
    c->redoes = c->undoes && steps_first && undone == steps && (again == steps || again == 0);
    free(before);
    free(earlier);
    return missing < 0 ? HT_OK : fail_op(s, missing, err, "checks gradients, but the final check does not wait for it");
}

static int by_elements(const void *x, const void *y)
{
    const struct ht_cpu_checked *a = x, *b = y;
    if (a->unit != b->unit) return a->unit < b->unit ? -1 : 1;
    if (a->half != b->half) return a->half < b->half ? -1 : 1;
    if (a->part != b->part) return a->part < b->part ? -1 : 1;
    if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
    if (a->end != b->end) return a->end < b->end ? -1 : 1; /* an empty shard comes before its neighbour */
    return (a->tensor > b->tensor) - (a->tensor < b->tensor);
}

/* Returns true when the validate op checks this gradient, by the rule of ht_cpu_validate. */
static bool checks(const struct ht_schedule *s, const struct ht_model *model, int32_t op, const struct ht_effect *f)
{
    const struct ht_tensor *t = &s->tensors[f->tensor];
    const struct ht_label *l = &s->ops[op].label;
    enum ht_tier tier = s->lanes[s->ops[op].lane].kind == HT_LANE_COMPUTE ? HT_DEVICE : HT_HOST;
    bool about = l->unit < 0 || (t->label.unit >= l->unit && t->label.unit < l->unit + l->n_units);
    bool a_unit = t->label.unit >= 0 && t->label.unit < ht_model_units(model);
    return s->ops[op].kind == HT_OP_VALIDATE && f->flags & HT_NEED && f->tier == tier && t->class == HT_GRAD &&
           t->label.micro_batch < 0 && about && a_unit;
}

/* Lists the gradient tensors that validate ops check. */
static void find_checked(struct ht_cpu_control *c, const struct ht_schedule *s, const struct ht_model *model)
{
    bool *seen = HT_NEW_ARRAY(bool, s->n_tensors), *apart = ht_halves_apart(s);
    size_t cap = 0;
    for (int32_t op = 0; op < s->n_ops; op++)
        for (int64_t e = s->effects_begin[op]; e < s->effects_begin[op + 1]; e++) {
            const struct ht_tensor *t = &s->tensors[s->effects[e].tensor];
            if (!checks(s, model, op, &s->effects[e]) || seen[s->effects[e].tensor]) continue;
            seen[s->effects[e].tensor] = true;
            bool shard = t->sharded;
            struct ht_model part = ht_tensor_model(t, model);
            struct ht_cpu_checked row = {.tensor = s->effects[e].tensor,
                                         .unit = t->label.unit,
                                         .part = t->part,
                                         .parts = t->parts,
                                         .half = ht_apart_half(apart, t),
                                         .op = op,
                                         .rank = ht_op_rank(s, op),
                                         .begin = shard ? t->shard_begin : 0,
                                         .end = shard ? t->shard_end : ht_unit_params(&part, t->label.unit)};
            HT_PUSH(c->checked, c->n_checked, cap, row);
        }
    if (c->n_checked) qsort(c->checked, (size_t)c->n_checked, sizeof(*c->checked), by_elements);
    for (int32_t i = 1; i < c->n_checked; i++) {
        const struct ht_cpu_checked *a = &c->checked[i - 1], *b = &c->checked[i];
        bool same =
            a->unit == b->unit && a->half == b->half && a->part == b->part && a->begin == b->begin && a->end == b->end;
        c->checked[i].again = same && a->rank != b->rank;
    }
    free(seen);
    free(apart);
}

/* Checks the rows from *i on that are of one part of a unit, or of its half. */
static enum ht_status check_part(const struct ht_cpu_control *c, const struct ht_schedule *s,
                                 const struct ht_model *model, struct ht_cpu_checked of, int32_t *i,
                                 struct ht_error *err)
{
    struct ht_model part = ht_model_part(model, of.part, of.parts);
    struct ht_range all = ht_sub_ops_params(&part, of.unit, of.half ? of.half : HT_ALL_SUB_OPS);
    int64_t at = all.begin;
    for (; *i < c->n_checked; ++*i) {
        const struct ht_cpu_checked *x = &c->checked[*i];
        if (x->unit != of.unit || x->half != of.half || x->part != of.part || !(x->again || x->begin == at)) break;
        at = x->end;
    }
    if (at == all.end) return HT_OK;
    return ht_fail(err, HT_FAILED,
                   "schedule '%s' on the cpu backend: the gradient of unit %d is not checked exactly "
                   "once, from element %lld on",
                   s->name, of.unit, (long long)at);
}

/* Checks that each element of the model, or of its parts, is checked once, or once by every rank that has it. */
static enum ht_status check_all_checked(const struct ht_cpu_control *c, const struct ht_schedule *s,
                                        const struct ht_model *model, struct ht_error *err)
{
    enum ht_status status = HT_OK;
    int32_t i = 0;
    for (int32_t u = 0; u < ht_model_units(model); u++) {
        unsigned half = i < c->n_checked ? c->checked[i].half : 0, front = half ? ht_front_of(half) : 0;
        for (int h = 0; h < 1 + (half > 0); h++) {
            struct ht_cpu_checked of = {.unit = u, .half = h ? HT_ALL_SUB_OPS & ~front : front, .parts = 1};
            if (i < c->n_checked) of.parts = c->checked[i].parts;
            for (; of.part < of.parts && !status; of.part++) status = check_part(c, s, model, of, &i, err);
        }
    }
    return status;
}

static enum ht_status find_final_check(struct ht_cpu_control *c, const struct ht_schedule *s, struct ht_error *err)
{
    int32_t partial = -1;
    for (int32_t op = 0; op < s->n_ops; op++) {
        c->undoes |= s->ops[op].kind == HT_OP_UNDO;
        if (s->ops[op].kind != HT_OP_VALIDATE) continue;
        if (s->ops[op].label.unit >= 0) {
            partial = op;
            continue;
        }
        if (ht_op_rank(s, op) != c->rank) continue;
        if (c->final_check >= 0) return fail_op(s, op, err, "is a second final check");
        c->final_check = op;
    }
    if (partial >= 0 && c->final_check < 0)
        return fail_op(s, partial, err, "checks gradients, but the schedule has no final check");
    return HT_OK;
}

/* Checks that clipping and a dynamic scale can work: a step that does not wait for the final check uses its gradients
   as they are. */
static enum ht_status check_steps(const struct ht_cpu_control *c, const struct ht_schedule *s, struct ht_error *err)
{
    bool needed = c->options.clip > 0 || c->options.dynamic;
    if (!needed) return HT_OK;
    if (c->final_check < 0)
        return ht_fail(
            err, HT_FAILED,
            "schedule '%s' on the cpu backend: clipping and a dynamic loss scale need a final check (a validate "
            "op about no unit)",
            s->name);
    bool redoes = false;
    for (int32_t op = 0; op < s->n_ops; op++) {
        if (s->ops[op].kind != HT_OP_OPTIMIZER_STEP) continue;
        redoes |= s->ops[op].when == HT_WHEN_BAD;
        if (s->ops[op].when == HT_ALWAYS && !c->undoes)
            return fail_op(s, op, err, "steps whatever the final check finds, and is not undone");
    }
    if (c->options.clip > 0 && c->undoes && !redoes)
        return fail_op(s, c->final_check, err, "may undo steps to clip them, but nothing makes them again");
    return HT_OK;
}

enum ht_status ht_cpu_control_open(struct ht_cpu_control *c, const struct ht_schedule *s, const struct ht_model *model,
                                   struct ht_error *err)
{
    c->final_check = -1;
    c->undoes = false;
    c->n_checked = 0;
    c->redoes = c->undo_steps = false;
    for (int i = 0; i < HT_CPU_SLOTS; i++) c->slots[i] = (struct ht_cpu_slot){.loss_scale = c->scaler.scale};
    enum ht_status status = find_final_check(c, s, err);
    if (!status) status = check_steps(c, s, err);
    if (status || c->final_check < 0) return status;
    find_checked(c, s, model);
    c->partials = HT_NEW_ARRAY(struct ht_grad_partial, s->n_tensors);
    status = check_all_checked(c, s, model, err);
    return status ? status : check_partials_first(c, s, err);
}

void ht_cpu_control_close(struct ht_cpu_control *c)
{
    free(c->checked);
    free(c->partials);
    c->checked = NULL;
    c->partials = NULL;
    c->n_checked = 0;
}
