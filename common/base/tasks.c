#include "common/base/tasks.h"

#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/base/interrupt.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Tasks that run on this thread, within one another. */
static _Thread_local int depth;

struct task {
    size_t i;
    double bytes;
};

struct pool {
    const struct ht_tasks *tasks;
    struct task *order; /* [tasks->n] */
    double memory_bytes;
    pthread_mutex_t lock; /* over what follows */
    pthread_cond_t freed;
    size_t next, n_succeeded; /* next: in order */
    int n_running;
    double taken_bytes;
    double work, work_done; /* of all tasks, of those that have succeeded; see work_of */
    enum ht_status status;
    struct ht_error *err;
    double began_s, shown_s;
    bool shown;
};

static int larger_first(const void *a, const void *b)
{
    const struct task *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    return (x->i > y->i) - (x->i < y->i);
}

/* Returns a task's part of the work: its memory, since larger graphs take longer. Without estimates tasks are equal. */
static double work_of(const struct ht_tasks *tasks, size_t i)
{
    return tasks->bytes ? tasks->bytes[i] : 1;
}

static struct task *order_of(const struct ht_tasks *tasks)
{
    struct task *order = HT_NEW_ARRAY(struct task, tasks->n);
    for (size_t i = 0; i < tasks->n; i++) order[i] = (struct task){.i = i, .bytes = tasks->bytes ? tasks->bytes[i] : 0};
    qsort(order, tasks->n, sizeof(*order), larger_first);
    return order;
}

/* ---- under the lock -------------------------------------------------------------------------------------------- */

static void fail(struct pool *p, enum ht_status status, const struct ht_error *why)
{
    bool replaces = p->status == HT_INTERRUPTED && status != HT_INTERRUPTED;
    if (p->status != HT_OK && !replaces) return;
    p->status = status;
    *p->err = *why;
}

const char *ht_progress_text(const struct ht_tasks *t, size_t n_done, double share, double elapsed_s,
                             char buf[HT_PROGRESS_TEXT])
{
    int at = snprintf(buf, HT_PROGRESS_TEXT, "%s: %zu of %zu %s", t->name, n_done, t->n, t->noun);
    double left_s = share > 0 ? ceil(elapsed_s * (1 - share) / share) : 0;
    if (n_done == t->n || !(left_s > 0) || at < 0 || at >= HT_PROGRESS_TEXT) return buf;
    bool minutes = left_s >= 120;
    snprintf(buf + at, (size_t)(HT_PROGRESS_TEXT - at), ", about %.0f %s left", minutes ? ceil(left_s / 60) : left_s,
             minutes ? "min" : "s");
    return buf;
}

static void show(struct pool *p)
{
    const struct ht_tasks *t = p->tasks;
    if (depth) return;
    bool terminal = isatty(STDERR_FILENO);
    double now = ht_now_s();
    if (now - p->shown_s < (!p->shown ? 2 : terminal ? 0.2 : 5)) return;
    p->shown_s = now;
    p->shown = true;
    char text[HT_PROGRESS_TEXT];
    ht_progress_text(t, p->n_succeeded, p->work > 0 ? p->work_done / p->work : 0, now - p->began_s, text);
    fprintf(stderr, "%s%s%s", terminal ? "\r\033[K" : "", text, terminal ? "" : "\n");
}

/* Takes the next task, waiting for memory. Returns NULL when no task is left, or the run has ended. */
static const struct task *take(struct pool *p)
{
    struct ht_error interrupted = {0};
    if (p->status != HT_OK || p->next == p->tasks->n) return NULL;
    const struct task *task = &p->order[p->next++];
    while (p->status == HT_OK && p->n_running && p->taken_bytes + task->bytes > p->memory_bytes)
        pthread_cond_wait(&p->freed, &p->lock);
    if (ht_interrupted()) fail(p, ht_fail(&interrupted, HT_INTERRUPTED, "interrupted"), &interrupted);
    if (p->status != HT_OK) return NULL;
    p->taken_bytes += task->bytes;
    p->n_running++;
    return task;
}

static void give_back(struct pool *p, const struct task *task, enum ht_status status, struct ht_error *err)
{
    p->taken_bytes = --p->n_running ? p->taken_bytes - task->bytes : 0; /* no rounding stays */
    pthread_cond_broadcast(&p->freed);
    if (status == HT_OK) {
        p->n_succeeded++;
        p->work_done += work_of(p->tasks, task->i);
        if (p->tasks->finished) status = p->tasks->finished(p->tasks->ctx, task->i, err);
        show(p);
    }
    if (status != HT_OK) fail(p, status, err);
}

/* ---- threads --------------------------------------------------------------------------------------------------- */

static void *work(void *arg)
{
    struct pool *p = arg;
    const struct task *task;
    pthread_mutex_lock(&p->lock);
    while ((task = take(p))) {
        struct ht_error err = {0};
        pthread_mutex_unlock(&p->lock);
        depth++;
        enum ht_status status = p->tasks->run(p->tasks->ctx, task->i, &err);
        depth--;
        pthread_mutex_lock(&p->lock);
        give_back(p, task, status, &err);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

static size_t n_threads(const struct ht_tasks *tasks)
{
    cpu_set_t cpus;
    size_t n = depth ? 1 : (size_t)tasks->n_threads;
    if (!n) n = sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? (size_t)CPU_COUNT(&cpus) : 1;
    return n < tasks->n ? n : tasks->n;
}

enum ht_status ht_tasks_run(const struct ht_tasks *tasks, struct ht_error *err)
{
    double ram = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGE_SIZE);
    struct pool p = {.tasks = tasks,
                     .order = order_of(tasks),
                     .memory_bytes = tasks->memory_bytes > 0 ? tasks->memory_bytes : 0.5 * ram,
                     .err = err,
                     .began_s = ht_now_s(),
                     .shown_s = ht_now_s()};
    for (size_t i = 0; i < tasks->n; i++) p.work += work_of(tasks, i);
    size_t wanted = n_threads(tasks), n = 0;
    pthread_t *threads = HT_NEW_ARRAY(pthread_t, wanted);
    pthread_mutex_init(&p.lock, NULL);
    pthread_cond_init(&p.freed, NULL);
    while (n + 1 < wanted && pthread_create(&threads[n], NULL, work, &p) == 0) n++;
    work(&p); /* the caller is one of them */
    for (size_t i = 0; i < n; i++) pthread_join(threads[i], NULL);
    pthread_cond_destroy(&p.freed);
    pthread_mutex_destroy(&p.lock);
    free(threads);
    free(p.order);
    if (p.shown && isatty(STDERR_FILENO)) fputs("\r\033[K", stderr);
    if (p.status != HT_INTERRUPTED) return p.status;
    return ht_fail(err, HT_INTERRUPTED, "interrupted after %zu of %zu %s", p.n_succeeded, tasks->n, tasks->noun);
}
