/*
 * Threads in place of the streams of a device. Tasks of a stream run one after another, on a thread of its own; events
 * order streams among each other. As in CUDA, an event is reached when the stream has come to its last recording; an
 * event that was never recorded is reached.
 */
#ifndef TESTS_SUPPORT_STREAMS_H
#define TESTS_SUPPORT_STREAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct streams; /* a device */
struct stream;
struct stream_event;

struct streams *streams_create(void);
void streams_destroy(struct streams *s); /* after all of its streams and events are destroyed */

struct stream *stream_create(struct streams *s);
void stream_destroy(struct stream *st); /* after all that was enqueued */
/* Enqueues fn(copy of the n bytes at arg). */
void stream_do(struct stream *st, void (*fn)(void *arg), const void *arg, size_t n);
void stream_record(struct stream *st, struct stream_event *e);
void stream_wait(struct stream *st, struct stream_event *e);
void stream_finish(struct stream *st); /* blocks until all enqueued tasks have ended */

struct stream_event *stream_event_create(struct streams *s);
void stream_event_destroy(struct stream_event *e);
void stream_event_finish(struct stream_event *e); /* blocks until it is reached */
bool stream_event_reached(struct stream_event *e);
int64_t stream_event_ns(struct stream_event *e); /* CLOCK_MONOTONIC when it was last reached */

#endif
