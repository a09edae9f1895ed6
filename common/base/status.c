#include "common/base/status.h"

#include <stdio.h>

enum ht_status ht_vfail(struct ht_error *err, enum ht_status status, const char *fmt, va_list ap)
{
    if (err) {
        err->status = status;
        vsnprintf(err->text, sizeof(err->text), fmt, ap);
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
