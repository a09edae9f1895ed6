/* The verifier: runs the rules in order and stops at the first that is broken. */
#include "common/schedule/verify.h"

#include "common/base/array.h"
#include "common/schedule/names.h"
#include "common/schedule/rules.h"

#include <stdio.h>
#include <stdlib.h>

const char *ht_rule_name(enum ht_rule r)
{
    static const char *const names[HT_N_RULES] = {
        [HT_RULE_SHAPE] = "shape",       [HT_RULE_HAZARD] = "hazards", [HT_RULE_CONTROL] = "control",
        [HT_RULE_COVERAGE] = "coverage", [HT_RULE_UPDATE] = "updates", [HT_RULE_CLOSURE] = "closure",
        [HT_RULE_MEMORY] = "memory",
    };
    return (unsigned)r < HT_N_RULES ? names[r] : "?";
}

struct ht_phrase ht_phrase_op(const struct ht_schedule *s, int32_t op)
{
    struct ht_phrase p;
    char title[64];
    snprintf(p.text, sizeof p.text, "op %d (%s)", op, ht_op_label(s, op, title, sizeof title));
    return p;
}

struct ht_phrase ht_phrase_tensor(const struct ht_schedule *s, int32_t tensor)
{
    struct ht_phrase p;
    const struct ht_tensor *t = &s->tensors[tensor];
    char part[40] = "", unit[32] = "", sub_ops[72], batch[32] = "";
    if (t->parts > 1) snprintf(part, sizeof part, " of part %d of %d", t->part, t->parts);
    if (t->label.unit >= 0) snprintf(unit, sizeof unit, " of unit %d", t->label.unit);
    if (t->label.micro_batch >= 0) snprintf(batch, sizeof batch, ", micro-batch %d", t->label.micro_batch);
    snprintf(p.text, sizeof p.text, "tensor %d (%s%s%s%s%s)", tensor, ht_tensor_class_name(t->class), part, unit,
             ht_sub_op_descriptions(&t->label, sub_ops, sizeof sub_ops), batch);
    return p;
}

struct ht_phrase ht_phrase_residency(const struct ht_schedule *s, const struct ht_residency *place)
{
    struct ht_phrase p, tensor = ht_phrase_tensor(s, place->tensor);
    char space[32];
    snprintf(p.text, sizeof p.text, "%.110s on %s", tensor.text, ht_space_name(s, place->space, space, sizeof space));
    return p;
}

const char *ht_branch_description(const struct ht_schedule *s, enum ht_when branch)
{
    if (!ht_has_branches(s)) return "";
    return branch == HT_WHEN_OK ? ", when ok" : ", when bad";
}

enum ht_status ht_broken_op(const struct ht_schedule *s, int32_t op, struct ht_error *err, const char *fmt, ...)
{
    struct ht_phrase name = ht_phrase_op(s, op);
    char text[640];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return ht_fail(err, HT_FAILED, "schedule '%.64s': %s: %s", s->name, name.text, text);
}

enum ht_status ht_broken(const struct ht_schedule *s, struct ht_error *err, const char *fmt, ...)
{
    char text[640];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return ht_fail(err, HT_FAILED, "schedule '%.64s': %s", s->name, text);
}

void ht_proof_free(struct ht_proof *v)
{
    if (!v) return;
    free(v->spaces);
    *v = (struct ht_proof){0};
}

enum ht_status ht_schedule_verify(const struct ht_schedule *s, struct ht_error *err, struct ht_proof *proof)
{
    struct ht_proof v = {0};
    struct ht_residencies places = {0};
    enum ht_status status;

    if ((status = ht_rule_shape(s, err)) || (status = ht_rule_groups(s, err)) || (status = ht_rule_parts(s, err)))
        goto out;
    v.proved[HT_RULE_SHAPE] = true;
    if ((status = ht_rule_control(s, err))) goto out;
    v.proved[HT_RULE_CONTROL] = true;
    ht_places_init(&places, s);
    if ((status = ht_rule_hazards(s, &places, err))) goto out;
    v.proved[HT_RULE_HAZARD] = true;
    if ((status = ht_rule_closure(s, &places, err))) goto out;
    v.proved[HT_RULE_CLOSURE] = true;
    if ((status = ht_rule_coverage(s, err)) || (status = ht_rule_activations(s, err))) goto out;
    v.proved[HT_RULE_COVERAGE] = true;
    if ((status = ht_rule_updates(s, err)) || (status = ht_rule_gradients(s, &places, err))) goto out;
    v.proved[HT_RULE_UPDATE] = true;

    v.n_spaces = ht_n_spaces(s);
    v.spaces = HT_NEW_ARRAY(struct ht_footprint, v.n_spaces);
    status = ht_rule_memory(s, err, v.spaces);
    v.proved[HT_RULE_MEMORY] = status == HT_OK;
out:
    ht_places_free(&places);
    if (proof && (status == HT_OK || status == HT_INFEASIBLE))
        *proof = v;
    else
        ht_proof_free(&v);
    if (proof && status == HT_FAILED) *proof = (struct ht_proof){0};
    return status;
}
