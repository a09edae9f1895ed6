#include "harness/run/progress.h"

#include "common/base/array.h"
#include "common/base/clock.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

struct ht_progress_beat {
    struct ht_progress *of;
    const char *what;
    pthread_t thread;
    pthread_mutex_t lock; /* guards what has been shown */
    pthread_cond_t changed;
    bool over;
};

struct ht_progress ht_progress_begin(const char *name)
{
    return (struct ht_progress){.name = name, .began_s = ht_now_s(), .terminal = isatty(STDERR_FILENO)};
}

static void show(struct ht_progress *p, const char *format, va_list args)
{
    double now = ht_now_s();
    if (now - p->began_s < 2 || now - p->shown_s < (p->terminal ? 0.25 : 2)) return;
    p->shown_s = now;
    p->shown = true;
    fprintf(stderr, "%s%s: ", p->terminal ? "\r\033[K" : "", p->name);
    vfprintf(stderr, format, args);
    if (!p->terminal) fputc('\n', stderr);
}

void ht_progress_show(struct ht_progress *p, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (p->beat) pthread_mutex_lock(&p->beat->lock);
    p->reported = true;
    show(p, format, args);
    if (p->beat) pthread_mutex_unlock(&p->beat->lock);
    va_end(args);
}

static void show_beat(struct ht_progress *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void show_beat(struct ht_progress *p, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    show(p, format, args);
    va_end(args);
}

static void *beat(void *arg)
{
    struct ht_progress_beat *b = arg;
    pthread_mutex_lock(&b->lock);
    while (!b->over) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec++;
        pthread_cond_timedwait(&b->changed, &b->lock, &until);
        if (!b->over && !b->of->reported) show_beat(b->of, "%s, %.0f s", b->what, ht_now_s() - b->of->began_s);
    }
    pthread_mutex_unlock(&b->lock);
    return NULL;
}

void ht_progress_beat(struct ht_progress *p, const char *what)
{
    struct ht_progress_beat *b = HT_NEW(struct ht_progress_beat);
    *b = (struct ht_progress_beat){.of = p, .what = what};
    pthread_mutex_init(&b->lock, NULL);
    pthread_cond_init(&b->changed, NULL);
    if (pthread_create(&b->thread, NULL, beat, b) == 0)
        p->beat = b;
    else
        free(b);
}

void ht_progress_end(struct ht_progress *p)
{
    struct ht_progress_beat *b = p->beat;
    if (b) {
        pthread_mutex_lock(&b->lock);
        b->over = true;
        pthread_cond_signal(&b->changed);
        pthread_mutex_unlock(&b->lock);
        pthread_join(b->thread, NULL);
        pthread_mutex_destroy(&b->lock);
        pthread_cond_destroy(&b->changed);
        free(b);
        p->beat = NULL;
    }
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
