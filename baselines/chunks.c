#include "baselines/chunks.h"

#include "common/base/array.h"
#include "common/base/interrupt.h"
#include "common/base/minmax.h"
#include "common/base/units.h"

#include <stdlib.h>
#include <string.h>

/* ---- packing --------------------------------------------------------------------------------------------------- */

static int64_t largest_of(const int64_t *elements, int32_t n)
{
    int64_t largest = 0;
    for (int32_t u = 0; u < n; u++)
        if (elements[u] > largest) largest = elements[u];
    return largest;
}

/* Returns the number of chunks that units take if appended in order. out (may be NULL) records where each begins. */
static int32_t append(const int64_t *unit_elements, int32_t n_units, int64_t elements, struct ht_chunks *out)
{
    int32_t n = 0;
    int64_t left = 0;
    for (int32_t u = 0; u < n_units; u++) {
        if (n == 0 || unit_elements[u] > left) {
            if (out) out->first[n] = u;
            left = elements;
            n++;
        }
        left -= unit_elements[u];
        if (out) {
            out->of_unit[u] = n - 1;
            out->unused[n - 1] = left;
        }
    }
    if (out) out->first[n] = n_units;
    return n;
}

enum ht_status ht_chunks_pack(const int64_t *unit_elements, int32_t n_units, int64_t elements, struct ht_error *err,
                              struct ht_chunks *out)
{
    int64_t largest = largest_of(unit_elements, n_units);
    if (elements < largest)
        return ht_fail(err, HT_INFEASIBLE,
                       "a chunk of %lld elements does not hold the largest unit; expected at least %lld",
                       (long long)elements, (long long)largest);
    *out = (struct ht_chunks){.elements = elements,
                              .n_units = n_units,
                              .of_unit = HT_NEW_ARRAY(int32_t, n_units),
                              .first = HT_NEW_ARRAY(int32_t, n_units + 1),
                              .unused = HT_NEW_ARRAY(int64_t, n_units)};
    out->n = append(unit_elements, n_units, elements, out);
    return HT_OK;
}

void ht_chunks_free(struct ht_chunks *c)
{
    free(c->of_unit);
    free(c->first);
    free(c->unused);
    *c = (struct ht_chunks){0};
}

int64_t ht_chunks_search(const int64_t *unit_elements, int32_t n_units, int64_t min_elements, int64_t max_elements)
{
    int64_t least = ht_max(largest_of(unit_elements, n_units), min_elements);
    int64_t best = least, best_total = append(unit_elements, n_units, least, NULL) * least, all = 0;
    for (int32_t u = 0; u < n_units; u++) all += unit_elements[u];
    for (int32_t i = 0; i < n_units; i++) {
        int64_t sum = 0;
        for (int32_t u = i; u < n_units; u++) {
            sum += unit_elements[u];
            if (sum > max_elements) break;
            if (sum <= least) continue;
            int64_t bound = (all + sum - 1) / sum * sum; /* of the total: what chunks would take if all were full */
            if (bound > best_total || (bound == best_total && sum >= best)) continue;
            /* The units' own elements are the same for all sizes, so the fewest elements in all are the fewest
               unused. */
            int64_t total = append(unit_elements, n_units, sum, NULL) * sum;
            if (total > best_total || (total == best_total && sum >= best)) continue;
            best = sum;
            best_total = total;
        }
    }
    return best;
}

/* ---- moving ---------------------------------------------------------------------------------------------------- */

struct manager {
    const struct ht_chunk_moment *moments;
    int32_t n_moments, n_chunks;
    const struct ht_chunk_room *room;
    bool *on_device; /* [chunks] */
    int32_t n_on_device;
    struct ht_chunk_moves *out;
};

static bool needed(const struct manager *g, int32_t t, int32_t chunk)
{
    for (int i = 0; i < HT_CHUNK_NEEDS; i++)
        if (g->moments[t % g->n_moments].needs[i] == chunk) return true;
    return false;
}

/* Returns the first moment after t that needs the chunk; moments of the next iteration are numbered on. */
static int32_t next_use(const struct manager *g, int32_t chunk, int32_t t)
{
    for (int32_t next = t + 1; next <= t + g->n_moments; next++)
        if (needed(g, next, chunk)) return next;
    return INT32_MAX;
}

static bool may_leave(const struct manager *g, int32_t t, int32_t chunk)
{
    return chunk >= g->room->n_pinned && g->on_device[chunk] && !needed(g, t, chunk);
}

/* Returns the chunk that is used last of those that may leave at moment t, of equal ones the first; -1 if none may. */
static int32_t last_used(const struct manager *g, int32_t t)
{
    int32_t best = -1, best_use = -1;
    for (int32_t c = 0; c < g->n_chunks; c++) {
        int32_t use = may_leave(g, t, c) ? next_use(g, c, t) : -1;
        if (use <= best_use) continue;
        best = c;
        best_use = use;
    }
    return best;
}

static void move(struct manager *g, int32_t moment, int32_t chunk, bool to_device)
{
    struct ht_chunk_move row = {.moment = moment, .chunk = chunk, .to_device = to_device};
    HT_PUSH(g->out->rows, g->out->n, g->out->cap, row);
    g->on_device[chunk] = to_device;
    g->n_on_device += to_device ? 1 : -1;
}

static int64_t available(const struct manager *g, int32_t t)
{
    int64_t now = g->moments[t].non_model_bytes, next = g->moments[(t + 1) % g->n_moments].non_model_bytes;
    return g->room->usable_bytes - g->room->fixed_bytes - ht_max(now, next);
}

/* Makes room for what moment t needs by HT_LAST_USED_LEAVES. */
static enum ht_status make_room(struct manager *g, int32_t t, struct ht_error *err)
{
    int32_t missing = 0;
    for (int32_t c = 0; c < g->n_chunks; c++) missing += needed(g, t, c) && !g->on_device[c];
    while ((g->n_on_device + missing) * g->room->chunk_bytes > available(g, t)) {
        int32_t leaves = last_used(g, t), n = g->n_on_device + missing;
        char need[HT_QUANTITY_TEXT], have[HT_QUANTITY_TEXT];
        if (leaves < 0)
            return ht_fail(err, HT_INFEASIBLE, "%d chunk%s must be on the device, %s, and %s are left for chunks", n,
                           n == 1 ? "" : "s",
                           ht_format_quantity(HT_BYTES, (double)n * (double)g->room->chunk_bytes, need),
                           ht_format_quantity(HT_BYTES, (double)ht_max(available(g, t), 0), have));
        move(g, t, leaves, false);
    }
    return HT_OK;
}

static bool idle(const struct manager *g, int32_t t, int32_t chunk)
{
    return t > 0 && may_leave(g, t, chunk) && needed(g, t - 1, chunk);
}

/* Moves chunks to the host before moment t by HT_IDLE_LEAVE. */
static void move_idle(struct manager *g, int32_t t)
{
    int64_t idle_bytes = 0;
    for (int32_t c = 0; c < g->n_chunks; c++) idle_bytes += idle(g, t, c) ? g->room->chunk_bytes : 0;
    for (int32_t c = 0; c < g->n_chunks && idle_bytes > g->room->idle_bytes; c++) {
        if (!idle(g, t, c)) continue;
        move(g, t, c, false);
        idle_bytes -= g->room->chunk_bytes;
    }
}

/* Computes the moves before moment t, and the one behind it of a chunk whose backward pass ends with it. */
static enum ht_status pass(struct manager *g, int32_t t, struct ht_error *err)
{
    int32_t ends = g->moments[t].ends - 1;
    enum ht_status status = HT_OK;
    if (ht_interrupted()) return ht_fail(err, HT_INTERRUPTED, "interrupted");
    if (g->room->rule == HT_IDLE_LEAVE)
        move_idle(g, t);
    else
        status = make_room(g, t, err);
    for (int32_t c = 0; c < g->n_chunks && !status; c++)
        if (needed(g, t, c) && !g->on_device[c]) move(g, t, c, true);
    if (g->room->gradients_leave && ends >= g->room->n_pinned && g->on_device[ends]) move(g, t + 1, ends, false);
    return status;
}

/* Brings every chunk back to where it was when the iteration began. Chunks leave first, so that there is room. */
static void restore(struct manager *g)
{
    for (int to_device = 0; to_device < 2; to_device++)
        for (int32_t c = 0; c < g->n_chunks; c++)
            if (g->on_device[c] != g->out->at_start[c] && g->out->at_start[c] == (bool)to_device)
                move(g, g->n_moments, c, to_device);
}

enum ht_status ht_chunks_move(const struct ht_chunk_moment *moments, int32_t n_moments, int32_t n_chunks,
                              const struct ht_chunk_room *room, struct ht_error *err, struct ht_chunk_moves *out,
                              int32_t *where)
{
    struct manager g = {.moments = moments, .n_moments = n_moments, .n_chunks = n_chunks, .room = room, .out = out};
    size_t bytes = (size_t)n_chunks * sizeof(bool);
    enum ht_status status = HT_OK;
    *out = (struct ht_chunk_moves){.at_start = HT_NEW_ARRAY(bool, n_chunks)};
    g.on_device = HT_NEW_ARRAY(bool, n_chunks);
    for (; g.n_on_device < room->n_pinned; g.n_on_device++) g.on_device[g.n_on_device] = true;
    for (int round = 0; round < HT_CHUNK_ROUNDS && !status; round++) {
        if (round && !memcmp(out->at_start, g.on_device, bytes)) break;
        memcpy(out->at_start, g.on_device, bytes);
        out->n = 0;
        for (int32_t t = 0; t < n_moments && !status; t++) {
            if (where) *where = t;
            status = pass(&g, t, err);
        }
    }
    if (!status) restore(&g);
    free(g.on_device);
    if (status) ht_chunk_moves_free(out);
    return status;
}

void ht_chunk_moves_free(struct ht_chunk_moves *m)
{
    free(m->rows);
    free(m->at_start);
    *m = (struct ht_chunk_moves){0};
}
