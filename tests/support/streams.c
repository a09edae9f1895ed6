#include "tests/support/streams.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/array.h"

struct streams {
    pthread_mutex_t lock;
    pthread_cond_t moved; /* signalled when any stream moves */
};

struct stream_event {
    struct streams *device;
    int64_t recorded, reached; /* how often */
    int64_t ns;
};

enum task_kind { CALL, RECORD, WAIT, QUIT };

struct task {
    enum task_kind kind;
    void (*fn)(void *arg);
    void *arg;
    struct stream_event *event;
    int64_t count; /* the value of `recorded` to reach */
    struct task *next;
};

struct stream {
    struct streams *device;
    pthread_t thread;
    struct task *first, **last;
    int64_t n_enqueued, n_done;
};

struct streams *streams_create(void)
{
    struct streams *s = HT_NEW(struct streams);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->moved, NULL);
    return s;
}

void streams_destroy(struct streams *s)
{
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->moved);
    free(s);
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Runs a task. The lock is held, but not during a call. */
static void perform(struct stream *st, struct task *t)
{
    struct streams *d = st->device;
    if (t->kind == CALL) {
        pthread_mutex_unlock(&d->lock);
        t->fn(t->arg);
        pthread_mutex_lock(&d->lock);
    } else if (t->kind == RECORD) {
        t->event->reached = t->count;
        t->event->ns = now_ns();
    } else if (t->kind == WAIT) {
        while (t->event->reached < t->count) pthread_cond_wait(&d->moved, &d->lock);
    }
}

static void *stream_main(void *arg)
{
    struct stream *st = arg;
    struct streams *d = st->device;
    bool quit = false;
    pthread_mutex_lock(&d->lock);
    while (!quit) {
        while (!st->first) pthread_cond_wait(&d->moved, &d->lock);
        struct task *t = st->first;
        perform(st, t);
        quit = t->kind == QUIT;
        st->first = t->next;
        if (!st->first) st->last = &st->first;
        st->n_done++;
        free(t->arg);
        free(t);
        pthread_cond_broadcast(&d->moved);
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

static void enqueue(struct stream *st, struct task task)
{
    struct task *t = HT_NEW(struct task);
    *t = task;
    pthread_mutex_lock(&st->device->lock);
    if (t->kind == RECORD) t->count = ++t->event->recorded;
    if (t->kind == WAIT) t->count = t->event->recorded;
    *st->last = t;
    st->last = &t->next;
    st->n_enqueued++;
    pthread_cond_broadcast(&st->device->moved);
    pthread_mutex_unlock(&st->device->lock);
}

struct stream *stream_create(struct streams *s)
{
    struct stream *st = HT_NEW(struct stream);
    st->device = s;
    st->last = &st->first;
    if (pthread_create(&st->thread, NULL, stream_main, st)) abort();
    return st;
}

void stream_destroy(struct stream *st)
{
    enqueue(st, (struct task){.kind = QUIT});
    pthread_join(st->thread, NULL);
    free(st);
}

void stream_do(struct stream *st, void (*fn)(void *arg), const void *arg, size_t n)
{
    void *copy = ht_alloc(n);
    memcpy(copy, arg, n);
    enqueue(st, (struct task){.kind = CALL, .fn = fn, .arg = copy});
}

void stream_record(struct stream *st, struct stream_event *e)
{
    enqueue(st, (struct task){.kind = RECORD, .event = e});
}

void stream_wait(struct stream *st, struct stream_event *e)
{
    enqueue(st, (struct task){.kind = WAIT, .event = e});
}

void stream_finish(struct stream *st)
{
    pthread_mutex_lock(&st->device->lock);
    int64_t until = st->n_enqueued;
    while (st->n_done < until) pthread_cond_wait(&st->device->moved, &st->device->lock);
    pthread_mutex_unlock(&st->device->lock);
}

struct stream_event *stream_event_create(struct streams *s)
{
    struct stream_event *e = HT_NEW(struct stream_event);
    e->device = s;
    return e;
}

void stream_event_destroy(struct stream_event *e)
{
    free(e);
}

void stream_event_finish(struct stream_event *e)
{
    pthread_mutex_lock(&e->device->lock);
    int64_t until = e->recorded;
    while (e->reached < until) pthread_cond_wait(&e->device->moved, &e->device->lock);
    pthread_mutex_unlock(&e->device->lock);
}

bool stream_event_reached(struct stream_event *e)
{
    pthread_mutex_lock(&e->device->lock);
    bool reached = e->reached >= e->recorded;
    pthread_mutex_unlock(&e->device->lock);
    return reached;
}

int64_t stream_event_ns(struct stream_event *e)
{
    pthread_mutex_lock(&e->device->lock);
    int64_t ns = e->ns;
    pthread_mutex_unlock(&e->device->lock);
    return ns;
}
