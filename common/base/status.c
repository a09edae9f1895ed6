#include "common/base/status.h"

#include <stdio.h>

#include "common/base/text.h"

enum ht_status ht_vfail(struct ht_error *err, enum ht_status status, const char *fmt, va_list ap)
{
    if (err) {
        char text[sizeof(err->text)]; /* arguments and names in files may hold any bytes; an error is one line */
        vsnprintf(text, sizeof(text), fmt, ap);
        err->status = status;
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
