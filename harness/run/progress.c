#include "harness/run/progress.h"

#include "common/base/clock.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

struct ht_progress ht_progress_begin(const char *name)
{
    return (struct ht_progress){.name = name, .began_s = ht_now_s(), .terminal = isatty(STDERR_FILENO)};
}

void ht_progress_show(struct ht_progress *p, const char *format, ...)
{
    double now = ht_now_s();
    va_list args;
    if (now - p->began_s < 2 || now - p->shown_s < (p->terminal ? 0.25 : 2)) return;
    p->shown_s = now;
    p->shown = true;
    fprintf(stderr, "%s%s: ", p->terminal ? "\r\033[K" : "", p->name);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    if (!p->terminal) fputc('\n', stderr);
}

void ht_progress_end(struct ht_progress *p)
{
    if (p->shown && p->terminal) fputs("\r\033[K", stderr);
    p->shown = false;
}

void ht_progress_share(void *ctx, int64_t done, int64_t of)
{
    struct ht_progress *p = ctx;
    if (done <= 0 || 50 * done < of) return; /* the first fiftieth says little of the rest */
    double share = (double)done / (double)of, left_s = (ht_now_s() - p->began_s) * (1 - share) / share;
    ht_progress_show(p, "%.0f%%, about %.0f s left", 100 * share, left_s);
}

void ht_progress_candidates(void *ctx, size_t done, size_t of)
{
    ht_progress_show(ctx, "%zu of %zu candidates", done, of);
}
