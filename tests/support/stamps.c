#include "tests/support/stamps.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/array.h"
#include "common/base/interrupt.h"
#include "common/base/rng.h"

enum { POISON = 0xdd };

bool stamps_outcome(const struct stamps *w, int32_t iteration)
{
    return ht_random(w->seed, (uint64_t)iteration) & 1;
}

static bool passed_over(const struct stamps *w, int32_t iteration, int32_t op)
{
    enum ht_when when = w->s->ops[op].when;
    return when != HT_ALWAYS && (when == HT_WHEN_OK) != stamps_outcome(w, iteration);
}

static uint64_t stamp_of(int32_t iteration, int32_t op)
{
    return 1000000 + (uint64_t)iteration * 10000 + (uint64_t)op;
}

static uint64_t *last_of(struct stamps *w, int32_t tensor, int32_t space, int32_t iteration)
{
    int64_t place = (int64_t)tensor * ht_n_spaces(w->s) + space;
    return &w->last[2 * place + (w->resident[place] ? 0 : iteration & 1)];
}

/* Walks the safe sequence of all iterations. */
void stamps_expect(struct stamps *w)
{
    const struct ht_schedule *s = w->s;
    int64_t n_effects = s->effects_begin[s->n_ops], n_places = (int64_t)s->n_tensors * ht_n_spaces(s);
    w->expected = HT_NEW_ARRAY(uint64_t, STAMPS_ITERATIONS * n_effects);
    w->last = HT_NEW_ARRAY(uint64_t, 2 * n_places);
    w->resident = HT_NEW_ARRAY(bool, n_places);
    for (int32_t i = 0; i < s->n_residents; i++) {
        const struct ht_resident *r = &s->residents[i];
        int32_t space = ht_space(s, r->tier, r->rank);
        w->resident[(int64_t)r->tensor * ht_n_spaces(s) + space] = true;
        *last_of(w, r->tensor, space, 0) = (uint64_t)r->tensor + 1;
    }
    for (int32_t k = 0; k < STAMPS_ITERATIONS; k++)
        for (int32_t op = 0; op < s->n_ops; op++) {
            if (passed_over(w, k, op)) continue;
            w->n_run++;
            for (int64_t e = s->effects_begin[op]; e < s->effects_begin[op + 1]; e++) {
                const struct ht_effect *f = &s->effects[e];
                uint64_t *last = last_of(w, f->tensor, ht_space(s, f->tier, ht_op_rank(s, op)), k);
                w->expected[k * n_effects + e] = f->flags & HT_PRODUCE ? 0 : *last;
                if (f->flags & (HT_PRODUCE | HT_UPDATE)) *last = stamp_of(k, op);
            }
        }
}

static void fill(struct ht_buffer b, uint64_t stamp)
{
    uint64_t *p = b.data;
    for (int64_t i = 0; i < b.bytes / 8; i++) p[i] = stamp;
}

static bool holds(struct ht_buffer b, uint64_t stamp)
{
    const uint64_t *p = b.data;
    for (int64_t i = 0; i < b.bytes / 8; i++)
        if (p[i] != stamp) return false;
    return true;
}

static enum ht_status check(struct stamps *w, int32_t iteration, int32_t op, const struct ht_buffer *b, int32_t n,
                            const char *when, struct ht_error *err)
{
    int64_t n_effects = w->s->effects_begin[w->s->n_ops];
    for (int32_t i = 0; i < n; i++) {
        uint64_t expected = w->expected[iteration * n_effects + w->s->effects_begin[op] + i];
        if (!b[i].bytes || b[i].flags & HT_PRODUCE || holds(b[i], expected)) continue;
        return ht_fail(err, HT_FAILED, "op %d of iteration %d: tensor %d has stamp %llu %s, expected %llu", op,
                       iteration, b[i].tensor, (unsigned long long)*(uint64_t *)b[i].data, when,
                       (unsigned long long)expected);
    }
    return HT_OK;
}

/* Wastes some time, sometimes enough for other threads to be scheduled. */
static void dawdle(const struct stamps *w, int32_t iteration, int32_t op)
{
    uint64_t roll = ht_random_below(w->seed + 7, stamp_of(iteration, op), 20);
    for (volatile int64_t i = 0; i < w->cost_ns[op]; i++) continue;
    if (roll < 2) sched_yield();
}

enum ht_status stamps_run_op(void *ctx, int32_t iteration, int32_t op, const struct ht_buffer *b, int32_t n,
                             struct ht_error *err)
{
    struct stamps *w = ctx;
    int64_t at = ++w->began;
    if (at == w->interrupt_at) ht_interrupt_set(true);
    enum ht_status status = check(w, iteration, op, b, n, "at its begin", err);
    if (status) return status;
    dawdle(w, iteration, op);
    status = check(w, iteration, op, b, n, "at its end", err);
    if (status) return status;
    if (at == w->fail_at) return ht_fail(err, HT_FAILED, "as told");
    for (int32_t i = 0; i < n; i++)
        if (b[i].flags & (HT_PRODUCE | HT_UPDATE)) fill(b[i], stamp_of(iteration, op));
    for (int32_t i = 0; i < n; i++)
        if (b[i].flags & HT_RELEASE && b[i].bytes) memset(b[i].data, POISON, (size_t)b[i].bytes);
    return HT_OK;
}

bool stamps_control(void *ctx, int32_t iteration, int32_t op)
{
    (void)op;
    return stamps_outcome(ctx, iteration);
}

enum ht_status stamps_init(void *ctx, int32_t space, struct ht_buffer b, struct ht_error *err)
{
    (void)ctx, (void)space, (void)err;
    fill(b, (uint64_t)b.tensor + 1);
    return HT_OK;
}

enum ht_status stamps_final(void *ctx, int32_t space, struct ht_buffer b, struct ht_error *err)
{
    struct stamps *w = ctx;
    if (holds(b, *last_of(w, b.tensor, space, 0))) return HT_OK;
    return ht_fail(err, HT_FAILED, "tensor %d has the wrong stamp in the end", b.tensor);
}

enum ht_status stamps_iteration_done(void *ctx, int32_t iteration, struct ht_error *err)
{
    struct stamps *w = ctx;
    if (iteration == w->n_done++) return HT_OK;
    return ht_fail(err, HT_FAILED, "iteration %d was reported as number %d", iteration, w->n_done - 1);
}

void stamps_free(struct stamps *w)
{
    free(w->expected);
    free(w->last);
    free(w->resident);
}
