#include "harness/run/faults.h"

#include "common/base/array.h"
#include "common/base/rng.h"
#include "common/base/text.h"
#include "common/model/halves.h"

#include <math.h>
#include <stdlib.h>

/* Reads a whole number that ':' or the end follows. */
static bool read_number(const char **at, int64_t *out)
{
    const char *p = *at;
    if (*p < '0' || *p > '9') return false;
    for (*out = 0; *p >= '0' && *p <= '9'; p++) {
        if (*out > INT32_MAX) return false;
        *out = 10 * *out + (*p - '0');
    }
    *at = p;
    return *p == ':' || !*p;
}

static bool read_kind(const char *name, enum ht_cpu_fault_kind *out)
{
    static const char *const names[] = {"inf", "nan", "square"};
    static const enum ht_cpu_fault_kind kinds[] = {HT_CPU_FAULT_INFINITE, HT_CPU_FAULT_NAN, HT_CPU_FAULT_HUGE};
    size_t i = ht_index_of(name, names, HT_COUNT(names));
    if (i < HT_COUNT(names)) *out = kinds[i];
    return i < HT_COUNT(names);
}

static enum ht_status read_fault(const char *text, int64_t n_units, struct ht_error *err, struct ht_cpu_fault *out)
{
    const char *at = text;
    int64_t step = 0, unit = 0;
    enum ht_cpu_fault_kind kind = HT_CPU_FAULT_INFINITE;
    bool sound = read_number(&at, &step) && *at++ == ':' && read_number(&at, &unit);
    if (sound && *at == ':') sound = read_kind(at + 1, &kind);
    if (!sound)
        return ht_fail(err, HT_BAD_INPUT,
                       "--inject-overflow '%.60s': expected STEP:UNIT or STEP:UNIT:inf, nan or square", text);
    if (step < 1 || step > INT32_MAX)
        return ht_fail(err, HT_BAD_INPUT, "--inject-overflow '%s': steps count from 1", text);
    if (unit >= n_units)
        return ht_fail(err, HT_BAD_INPUT, "--inject-overflow '%s': unit %lld is out of range 0..%lld", text,
                       (long long)unit, (long long)n_units - 1);
    *out = (struct ht_cpu_fault){.iteration = (int32_t)step - 1,
                                 .unit = (int32_t)unit,
                                 .element = (int64_t)ht_random_below((uint64_t)step, (uint64_t)unit, INT32_MAX),
                                 .kind = kind};
    return HT_OK;
}

/* Returns the bytes of an element of the gradient that the fault spoils: G(u,0), else G(u). */
static int64_t element_bytes(const struct ht_job *job, const struct ht_cpu_fault *f)
{
    const struct ht_schedule *s = job->schedule;
    int64_t bytes = 0, params = 1;
    for (int32_t op = 0; op < s->n_ops; op++) {
        const struct ht_label *l = &s->ops[op].label;
        bool here = l->micro_batch == f->micro_batch && f->unit >= l->unit && f->unit < l->unit + l->n_units;
        if (s->ops[op].kind != HT_OP_BACKWARD || !here) continue;
        for (int64_t e = s->effects_begin[op]; e < s->effects_begin[op + 1]; e++) {
            const struct ht_tensor *t = &s->tensors[s->effects[e].tensor];
            if (t->class != HT_GRAD || t->label.unit != f->unit || !(s->effects[e].flags & (HT_PRODUCE | HT_UPDATE)))
                continue;
            struct ht_model part = ht_tensor_model(t, &job->scenario.model);
            bytes = t->bytes;
            struct ht_range all = ht_sub_ops_params(&part, f->unit, t->label.sub_ops);
            params = all.end - all.begin;
        }
    }
    return bytes / params;
}

/* Checks that the number of a fault `square` has a square, as AdamW forms it, that overflows: an element of F16 has
   none, and a large loss scale takes it off again. */
static enum ht_status check_square(const char *text, const struct ht_options *o, const struct ht_job *job,
                                   const struct ht_cpu_fault *f, struct ht_error *err)
{
    const struct ht_numerics *n = &job->scenario.numerics;
    enum ht_dtype type = n->accumulate; /* of sums, which a rank's first micro-batch may write */
    if (element_bytes(job, f) == ht_dtype_bytes(n->grad)) type = n->grad;
    double scale = job->scenario.control.options.loss_scale;
    float g = (float)(ht_cpu_fault_value(f->kind, type) / scale), factor = 1 - (float)o->training.adamw.beta2;
    if (f->kind != HT_CPU_FAULT_HUGE || isinf(factor * g * g)) return HT_OK;
    return ht_fail(err, HT_BAD_INPUT,
                   "--inject-overflow '%s': the gradient is %s with a loss scale of %g, and no square in it overflows; "
                   "expected inf or nan",
                   text, ht_dtype_name(type), scale);
}

enum ht_status ht_faults_read(const struct ht_options *o, const struct ht_job *job, struct ht_error *err,
                              struct ht_cpu_fault **out)
{
    struct ht_cpu_fault *faults = HT_NEW_ARRAY(struct ht_cpu_fault, o->training.n_faults);
    enum ht_status status = HT_OK;
    for (int64_t i = 0; i < o->training.n_faults && status == HT_OK; i++) {
        status = read_fault(o->training.faults[i], ht_model_units(&job->scenario.model), err, &faults[i]);
        if (status == HT_OK) status = check_square(o->training.faults[i], o, job, &faults[i], err);
    }
    if (status == HT_OK)
        *out = faults;
    else
        free(faults);
    return status;
}
