#include "common/store/recovery.h"

#include "common/base/array.h"

#include <stdlib.h>

/* What stages hold: as sinks, from which sources are made. */
struct holdings {
    struct ht_transfer_sink *rows;
    int64_t n;
    size_t cap;
};

static bool has_extent(const struct holdings *h, const struct ht_extent *e)
{
    for (int64_t i = 0; i < h->n; i++)
        if (ht_extent_equal(&h->rows[i].extent, e)) return true;
    return false;
}

/* Adds what the ranks of a stage hold. once: only what no stage before it holds. */
static void add_stage(struct holdings *h, const struct ht_model *m, const struct ht_store_stage *s, bool once)
{
    for (int64_t u = s->first; u < s->end; u++)
        for (int part = 0; part < HT_N_STATE_PARTS; part++)
            for (int32_t q = 0; q < s->tp; q++) {
                struct ht_transfer_sink sink = {ht_extent_of_part(m, u, (enum ht_state_part)part, q, s->tp),
                                                s->rank + q, s->node};
                if (!once || !has_extent(h, &sink.extent)) HT_PUSH(h->rows, h->n, h->cap, sink);
            }
}

static struct holdings hold(const struct ht_model *m, const struct ht_store_stage *stages, int64_t n, bool once)
{
    struct holdings h = {0};
    for (int64_t i = 0; i < n; i++) add_stage(&h, m, &stages[i], once);
    return h;
}

/* Lists the sources: each part once in the remote store, and on the disk of each node before that is still there; allocated. */
static struct ht_transfer_source *sources_of(const struct holdings *before, const bool *lost, bool disks, int64_t *n)
{
    struct ht_transfer_source *sources = HT_NEW_ARRAY(struct ht_transfer_source, 2 * before->n);
    *n = 0;
    for (int64_t i = 0; i < before->n; i++)
        sources[(*n)++] = (struct ht_transfer_source){before->rows[i].extent, HT_STORE_REMOTE, -1};
    for (int64_t i = 0; i < before->n && disks; i++)
        if (!lost[before->rows[i].node])
            sources[(*n)++] = (struct ht_transfer_source){before->rows[i].extent, HT_STORE_DISK, before->rows[i].node};
    return sources;
}

static enum ht_status price(const struct ht_model *m, const struct ht_recovery *r, const struct holdings *before,
                            const struct holdings *after, bool disks, struct ht_error *err, struct ht_store_price *out)
{
    struct ht_transfers list = {0};
    int64_t n;
    struct ht_transfer_source *sources = sources_of(before, r->lost, disks, &n);
    enum ht_status status = ht_transfers_plan(m, sources, n, after->rows, after->n, err, &list);
    if (status == HT_OK)
        status = ht_transfers_price(sources, after->rows, after->n, &list, &r->rates, r->how, err, out);
    ht_transfers_free(&list);
    free(sources);
    return status;
}

/* Notes a file of a block among what a rank reads. */
static void add_file(struct ht_rank_reads *r, int64_t layer, int32_t part)
{
    if (r->files == 0) *r = (struct ht_rank_reads){0, layer, layer, part, part};
    r->files++;
    if (layer < r->first_layer) r->first_layer = layer;
    if (layer > r->last_layer) r->last_layer = layer;
    if (part < r->first_part) r->first_part = part;
    if (part > r->last_part) r->last_part = part;
}

/* Adds the files that a sink's parameters come from. */
static void add_reads(const struct ht_model *m, const struct ht_transfer_source *sources,
                      const struct ht_transfers *list, int64_t sink, struct ht_rank_reads *r)
{
    for (int64_t k = list->first[sink]; k < list->first[sink + 1]; k++) {
        const struct ht_extent *e = &sources[list->rows[k].source].extent;
        bool seen = e->part != HT_STATE_PARAM || ht_model_unit_kind(m, e->unit) != HT_UNIT_BLOCK;
        for (int64_t j = list->first[sink]; j < k; j++) seen |= list->rows[j].source == list->rows[k].source;
        if (!seen) add_file(r, e->unit - 1, e->tp_part);
    }
}

enum ht_status ht_recovery_reads(const struct ht_model *m, const struct ht_recovery *r, struct ht_error *err,
                                 struct ht_rank_reads *reads)
{
    struct holdings before = hold(m, r->before, r->n_before, false), after = hold(m, r->after, r->n_after, false);
    struct ht_transfers list = {0};
    int64_t n;
    struct ht_transfer_source *sources = sources_of(&before, r->lost, true, &n);
    enum ht_status status = ht_transfers_plan(m, sources, n, after.rows, after.n, err, &list);
    for (int64_t i = 0; i < after.n && status == HT_OK; i++)
        reads[after.rows[i].rank] = (struct ht_rank_reads){0, -1, -1, -1, -1};
    for (int64_t i = 0; i < after.n && status == HT_OK; i++)
        add_reads(m, sources, &list, i, &reads[after.rows[i].rank]);
    ht_transfers_free(&list);
    free(sources);
    free(before.rows);
    free(after.rows);
    return status;
}

enum ht_status ht_recovery_price(const struct ht_model *m, const struct ht_recovery *r, struct ht_error *err,
                                 struct ht_recovery_price *out)
{
    struct ht_recovery_price p = {0};
    struct holdings before = hold(m, r->before, r->n_before, false), after = hold(m, r->after, r->n_after, false);
    struct holdings copies = hold(m, r->after, r->n_after, r->once);
    enum ht_status status = price(m, r, &before, &after, true, err, &p.stores);
    if (status == HT_OK) status = price(m, r, &before, &copies, false, err, &p.remote);
    if (status == HT_OK) *out = p;
    free(before.rows);
    free(after.rows);
    free(copies.rows);
    return status;
}

struct ht_transfer_source *ht_recovery_sources(const struct ht_model *m, const struct ht_recovery *r, int64_t *n)
{
    struct holdings before = hold(m, r->before, r->n_before, false);
    struct ht_transfer_source *sources = sources_of(&before, r->lost, true, n);
    free(before.rows);
    return sources;
}

enum ht_status ht_recovery_emulate(const struct ht_model *m, const struct ht_recovery *r,
                                   const struct ht_store_emulation *emulation, struct ht_error *err,
                                   struct ht_store_price *out, struct ht_emu_overruns *overruns)
{
    struct holdings after = hold(m, r->after, r->n_after, false);
    struct ht_transfers list = {0};
    int64_t n;
    struct ht_transfer_source *sources = ht_recovery_sources(m, r, &n);
    enum ht_status status = ht_transfers_plan(m, sources, n, after.rows, after.n, err, &list);
    if (status == HT_OK)
        status = ht_transfers_emulate(m, sources, after.rows, after.n, &list, &r->rates, r->how, emulation, err, out,
                                      overruns);
    ht_transfers_free(&list);
    free(sources);
    free(after.rows);
    return status;
}
