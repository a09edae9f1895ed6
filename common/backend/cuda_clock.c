/*
 * Times of ops on the host's clock. CUDA measures the time between two events, so one event whose time is known, the
 * base, dates all others:
 *
 *     end of an op   = time of the base + from the base to the op's end
 *     start of an op = its end - from its begin to its end
 */
#include "common/backend/cuda_clock.h"

#include "common/base/clock.h"

/* Tries to determine when the base was reached. */
enum { BASE_TRIES = 8 };

/* cudaEventElapsedTime counts milliseconds in a float; after so long a new base keeps its steps below a microsecond. */
#define BASE_AGE_NS ((int64_t)8 * 1000000000)

int64_t ht_cuda_now_ns(void)
{
    return ht_now_ns();
}

/* An event was reached between the call that asks and its return: the quickest of some tries is the most exact. */
enum ht_status ht_cuda_clock_open(struct ht_cuda_device *d, struct ht_error *err)
{
    const char *why = d->api->event_create(&d->base);
    if (!why) why = d->api->event_create(&d->next_base);
    int64_t narrowest_ns = INT64_MAX;
    for (int i = 0; i < BASE_TRIES && !why; i++) {
        int64_t before_ns = ht_cuda_now_ns();
        why = d->api->event_record(d->next_base, d->side.stream);
        if (!why) why = d->api->event_finish(d->next_base);
        int64_t took_ns = ht_cuda_now_ns() - before_ns;
        if (took_ns >= narrowest_ns) continue;
        narrowest_ns = took_ns;
        d->base_ns = before_ns + took_ns / 2;
        void *best = d->next_base;
        d->next_base = d->base;
        d->base = best;
    }
    return ht_cuda_failed(why, "the device's clock", err);
}

void ht_cuda_clock_close(struct ht_cuda_device *d)
{
    if (d->base) (void)d->api->event_destroy(d->base);
    if (d->next_base) (void)d->api->event_destroy(d->next_base);
    d->base = d->next_base = NULL;
}

/* Moves the base to an event of now. */
static void renew_base(struct ht_cuda_device *d)
{
    int64_t passed_ns;
    if (d->api->event_record(d->next_base, d->side.stream) || d->api->event_finish(d->next_base)) return;
    if (d->api->event_between(d->base, d->next_base, &passed_ns)) return;
    void *old = d->base;
    d->base = d->next_base;
    d->next_base = old;
    d->base_ns += passed_ns;
}

void ht_cuda_clock_times(struct ht_cuda_device *d, const struct ht_cuda_in_flight *f, int64_t *start_ns,
                         int64_t *end_ns)
{
    int64_t until_end_ns = 0, took_ns = 0;
    *start_ns = *end_ns = ht_cuda_now_ns(); /* in case CUDA fails here */
    pthread_mutex_lock(&d->base_lock);
    if (!d->api->event_between(d->base, f->end, &until_end_ns) && !d->api->event_between(f->begin, f->end, &took_ns)) {
        *end_ns = d->base_ns + until_end_ns;
        *start_ns = *end_ns - took_ns;
        if (until_end_ns > BASE_AGE_NS) renew_base(d);
    }
    pthread_mutex_unlock(&d->base_lock);
}
