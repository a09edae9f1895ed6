#include "common/base/status.h"

#include <stdio.h>

#include "common/base/text.h"

enum ht_status ht_vfail(struct ht_error *err, enum ht_status status, const char *fmt, va_list ap)
{
    if (err) {
        char text[sizeof(err->text)]; /* arguments and names in files may hold any bytes; an error is one line */
        vsnprintf(text, sizeof(text), fmt, ap);
        err->status = status;
        err->lacks = 0;
        ht_shown(text, err->text, sizeof(err->text));
    }
    return status;
}

enum ht_status ht_fail(struct ht_error *err, enum ht_status status, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    ht_vfail(err, status, fmt, ap);
    va_end(ap);
    return status;
}

enum ht_status ht_fail_memory(struct ht_error *err, int tier, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    ht_vfail(err, HT_INFEASIBLE, fmt, ap);
    va_end(ap);
    if (err) err->lacks = 1 + tier;
    return HT_INFEASIBLE;
}
