/* Writes the errors of the verifier's rules: "schedule 'x': op 12 (B3): ...". */
#include "common/schedule/violation.h"

#include "common/schedule/names.h"

#include <stdarg.h>
#include <stdio.h>

struct ht_phrase ht_phrase_op(const struct ht_schedule *s, int32_t op)
{
    struct ht_phrase p;
    char label[64];
    snprintf(p.text, sizeof p.text, "op %d (%s)", op, ht_op_label(s, op, label, sizeof label));
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

struct ht_phrase ht_phrase_residency(const struct ht_schedule *s, const struct ht_residency *residency)
{
    struct ht_phrase p, tensor = ht_phrase_tensor(s, residency->tensor);
    char space[32];
    snprintf(p.text, sizeof p.text, "%.110s on %s", tensor.text,
             ht_space_name(s, residency->space, space, sizeof space));
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
