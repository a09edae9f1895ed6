#include "harness/run/faults.h"

#include "common/base/array.h"
#include "common/base/rng.h"

#include <stdlib.h>
#include <string.h>

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
    static const struct {
        const char *name;
        enum ht_cpu_fault_kind kind;
    } kinds[] = {{"inf", HT_CPU_FAULT_INFINITE}, {"nan", HT_CPU_FAULT_NAN}, {"square", HT_CPU_FAULT_HUGE}};
    for (size_t i = 0; i < HT_COUNT(kinds); i++)
        if (!strcmp(kinds[i].name, name)) {
            *out = kinds[i].kind;
            return true;
        }
    return false;
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

enum ht_status ht_faults_parse(const char *const *texts, int64_t n, int64_t n_units, struct ht_error *err,
                               struct ht_cpu_fault **out)
{
    struct ht_cpu_fault *faults = HT_NEW_ARRAY(struct ht_cpu_fault, n);
    enum ht_status status = HT_OK;
    for (int64_t i = 0; i < n && status == HT_OK; i++) status = read_fault(texts[i], n_units, err, &faults[i]);
    if (status == HT_OK)
        *out = faults;
    else
        free(faults);
    return status;
}
