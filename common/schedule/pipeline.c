#include "common/schedule/pipeline.h"

#include "common/base/array.h"

#include <assert.h>
#include <stdlib.h>

int32_t ht_pipe_forward_rank(const struct ht_pipe_shape *p, int32_t i)
{
    return i % p->ranks;
}

int32_t ht_pipe_backward_rank(const struct ht_pipe_shape *p, int32_t q)
{
    return p->backward_rank ? p->backward_rank(p, q) : q / p->d % p->ranks;
}

bool ht_pipe_is_remote(const struct ht_pipe_shape *p, int32_t q)
{
    return ht_pipe_forward_rank(p, q / p->d) != ht_pipe_backward_rank(p, q);
}

/* ---- orders ---------------------------------------------------------------------------------------------------- */

struct list {
    struct ht_pipe_pass *out;
    int64_t n;
};

static void add(struct list *l, bool forward, int32_t stage, int32_t micro_batch)
{
    l->out[l->n++] = (struct ht_pipe_pass){.forward = forward, .stage = stage, .micro_batch = micro_batch};
}

static void afab(const struct ht_pipe_shape *p, int32_t rank, struct list *l)
{
    for (int32_t i = 0; i < ht_pipe_forward_stages(p); i++)
        for (int32_t j = 0; j < p->micro_batches && ht_pipe_forward_rank(p, i) == rank; j++) add(l, true, i, j);
    for (int32_t q = ht_pipe_backward_stages(p) - 1; q >= 0; q--)
        for (int32_t j = 0; j < p->micro_batches && ht_pipe_backward_rank(p, q) == rank; j++) add(l, false, q, j);
}

/* Adds the k-th forward of a rank, in rounds of N_g micro-batches, which pass all chunks before the next round begins.
   The k-th backward is its mirror image. v = 1: micro-batch k of the only chunk. */
static void add_kth(const struct ht_pipe_shape *p, int32_t rank, bool forward, int32_t k, struct list *l)
{
    int32_t round = p->ranks * p->v, chunk = k % round / p->ranks;
    int32_t micro_batch = k / round * p->ranks + k % p->ranks;
    add(l, forward, (forward ? chunk : p->v - 1 - chunk) * p->ranks + rank, micro_batch);
}

static void one_f_one_b(const struct ht_pipe_shape *p, int32_t rank, struct list *l)
{
    int32_t n = p->v * p->micro_batches, warmup = p->ranks - rank - 1;
    if (p->order == HT_PIPE_INTERLEAVED) warmup = p->micro_batches == p->ranks ? n : 2 * warmup + (p->v - 1) * p->ranks;
    if (warmup > n) warmup = n;
    for (int32_t k = 0; k < warmup; k++) add_kth(p, rank, true, k, l);
    for (int32_t k = 0; k < n; k++) {
        if (warmup + k < n) add_kth(p, rank, true, warmup + k, l);
        add_kth(p, rank, false, k, l);
    }
}

void ht_pipe_rank_order(const struct ht_pipe_shape *p, int32_t rank, struct ht_pipe_pass *out)
{
    struct list l = {.out = out};
    if (p->order == HT_PIPE_AFAB) {
        afab(p, rank, &l);
    } else {
        assert(p->d == 1 && !p->backward_rank);
        assert(p->order == HT_PIPE_INTERLEAVED ? p->micro_batches % p->ranks == 0 : p->v == 1);
        one_f_one_b(p, rank, &l);
    }
    assert(l.n == ht_pipe_passes(p));
}

/* ---- layout ---------------------------------------------------------------------------------------------------- */

struct layout {
    const struct ht_pipe_shape *p;
    int64_t *forward_end, *backward_end; /* [stage * N_m + j]; -1: not yet */
};

/* Returns the time at which a pass's input is there; -1: not known yet. */
static int64_t ready(const struct layout *l, const struct ht_pipe_pass *x)
{
    int64_t n_m = l->p->micro_batches, j = x->micro_batch;
    if (x->forward) return x->stage == 0 ? 0 : l->forward_end[(x->stage - 1) * n_m + j];
    if (x->stage == ht_pipe_backward_stages(l->p) - 1)
        return l->forward_end[(ht_pipe_forward_stages(l->p) - 1) * n_m + j];
    return l->backward_end[(x->stage + 1) * n_m + j];
}

int64_t ht_pipe_layout(const struct ht_pipe_shape *p, int64_t forward, int64_t backward, struct ht_pipe_pass *passes)
{
    int64_t n = ht_pipe_passes(p), n_f = (int64_t)ht_pipe_forward_stages(p) * p->micro_batches, left = n * p->ranks;
    int64_t n_b = n_f * p->d, last = 0;
    struct layout l = {p, HT_NEW_ARRAY(int64_t, n_f), HT_NEW_ARRAY(int64_t, n_b)};
    int64_t *at = HT_NEW_ARRAY(int64_t, p->ranks), *now = HT_NEW_ARRAY(int64_t, p->ranks);
    for (int64_t k = 0; k < n_f; k++) l.forward_end[k] = -1;
    for (int64_t k = 0; k < n_b; k++) l.backward_end[k] = -1;
    for (bool moved = true; moved && left > 0;) {
        moved = false;
        for (int32_t r = 0; r < p->ranks; r++)
            while (at[r] < n) {
                struct ht_pipe_pass *x = &passes[r * n + at[r]];
                int64_t input = ready(&l, x);
                if (input < 0) break;
                x->start = input > now[r] ? input : now[r];
                x->end = now[r] = x->start + (x->forward ? forward : backward);
                (x->forward ? l.forward_end : l.backward_end)[(int64_t)x->stage * p->micro_batches + x->micro_batch] =
                    x->end;
                if (x->end > last) last = x->end;
                at[r]++;
                left--;
                moved = true;
            }
    }
    free(l.forward_end);
    free(l.backward_end);
    free(at);
    free(now);
    return left ? -1 : last;
}
