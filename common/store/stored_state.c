/* Reading what a catalog has (catalog.h). */
#include "common/base/array.h"
#include "common/ckpt/safetensors.h"
#include "common/store/catalog.h"

#include <stdlib.h>
#include <string.h>

/* ---- rows ---- */

enum { OPEN_FILES = 16 };

struct ht_store_reader {
    const struct ht_catalog *catalog;
    struct {
        int64_t row; /* the first row that it was opened for */
        struct ht_safetensors *file;
        int64_t used; /* when: the reads until then */
    } open[OPEN_FILES];
    int64_t n_reads;
};

struct ht_store_reader *ht_store_reader_create(const struct ht_catalog *c)
{
    struct ht_store_reader *r = HT_NEW(struct ht_store_reader);
    r->catalog = c;
    return r;
}

void ht_store_reader_destroy(struct ht_store_reader *r)
{
    if (!r) return;
    for (int i = 0; i < OPEN_FILES; i++) ht_safetensors_close(r->open[i].file);
    free(r);
}

static bool same_file(const struct ht_stored_extent *a, const struct ht_stored_extent *b)
{
    return a->store == b->store && ht_version_compare(&a->version, &b->version) == 0 && !strcmp(a->file, b->file);
}

/* Opens a row's file, in place of the one that was used longest ago. */
static enum ht_status open_row(struct ht_store_reader *r, int64_t row, struct ht_error *err,
                               struct ht_safetensors **out)
{
    const struct ht_stored_extent *rows = r->catalog->rows;
    char path[HT_STORE_PATH];
    int oldest = 0;
    r->n_reads++;
    for (int i = 0; i < OPEN_FILES; i++) {
        if (r->open[i].file && same_file(&rows[r->open[i].row], &rows[row])) {
            r->open[i].used = r->n_reads;
            *out = r->open[i].file;
            return HT_OK;
        }
        if (r->open[i].used < r->open[oldest].used) oldest = i;
    }
    ht_safetensors_close(r->open[oldest].file);
    r->open[oldest].file = NULL;
    ht_store_path(r->catalog->stores[rows[row].store].dir, rows[row].version, rows[row].file, path);
    enum ht_status status = ht_safetensors_open(path, err, out);
    if (status != HT_OK) return status;
    r->open[oldest].row = row;
    r->open[oldest].file = *out;
    r->open[oldest].used = r->n_reads;
    return HT_OK;
}

enum ht_status ht_store_reader_read(struct ht_store_reader *r, int64_t row, int64_t first, int64_t n, float *out,
                                    struct ht_error *err)
{
    const struct ht_extent *e = &r->catalog->rows[row].extent;
    char name[HT_STORE_NAME];
    struct ht_safetensors *file = NULL;
    enum ht_status status = open_row(r, row, err, &file);
    if (status != HT_OK) return status;
    ht_store_tensor_name(e, name);
    const struct ht_st_tensor *t = ht_safetensors_find(file, name);
    if (!t || t->elements != e->end - e->begin)
        return ht_fail(err, HT_BAD_INPUT, "%s: tensor '%s' of %lld elements is missing", ht_safetensors_name(file),
                       name, (long long)(e->end - e->begin));
    status = ht_safetensors_check(file, t, err);
    return status == HT_OK ? ht_safetensors_read(file, t, first, n, err, out) : status;
}

/* ---- the whole state ---- */

struct ht_stored_state {
    struct ht_model model;
    struct ht_store_reader *reader;
    struct ht_transfer_source *sources;
    int64_t n_sources, *rows;       /* of the catalog, by source */
    struct ht_transfer_sink *sinks; /* [units * HT_N_STATE_PARTS] */
    struct ht_transfers list;
};

static void make_sinks(struct ht_stored_state *s)
{
    int64_t n = ht_model_units(&s->model) * HT_N_STATE_PARTS;
    s->sinks = HT_NEW_ARRAY(struct ht_transfer_sink, n);
    for (int64_t i = 0; i < n; i++)
        s->sinks[i].extent =
            ht_extent_of_part(&s->model, i / HT_N_STATE_PARTS, (enum ht_state_part)(i % HT_N_STATE_PARTS), 0, 1);
}

/* Checks that all extents are of the model. */
static enum ht_status check_sources(const struct ht_stored_state *s, struct ht_error *err)
{
    for (int64_t i = 0; i < s->n_sources; i++)
        if (!ht_extent_is_sound(&s->model, &s->sources[i].extent))
            return ht_fail(err, HT_BAD_INPUT, "the step has files of another model: unit %lld, part %d of %d",
                           (long long)s->sources[i].extent.unit, s->sources[i].extent.tp_part,
                           s->sources[i].extent.tp_parts);
    return HT_OK;
}

enum ht_status ht_stored_state_create(const struct ht_catalog *c, struct ht_version v, const struct ht_model *m,
                                      struct ht_error *err, struct ht_stored_state **out)
{
    struct ht_stored_state *s = HT_NEW(struct ht_stored_state);
    s->model = *m;
    s->reader = ht_store_reader_create(c);
    s->sources = ht_catalog_sources(c, v, &s->n_sources, &s->rows);
    make_sinks(s);
    enum ht_status status = check_sources(s, err);
    if (status == HT_OK)
        status = ht_transfers_plan(m, s->sources, s->n_sources, s->sinks, ht_model_units(m) * HT_N_STATE_PARTS, err,
                                   &s->list);
    if (status == HT_OK)
        *out = s;
    else
        ht_stored_state_destroy(s);
    return status;
}

void ht_stored_state_destroy(struct ht_stored_state *s)
{
    if (!s) return;
    ht_store_reader_destroy(s->reader);
    ht_transfers_free(&s->list);
    free(s->sources);
    free(s->rows);
    free(s->sinks);
    free(s);
}

static enum ht_status read_source(void *ctx, int64_t source, int64_t first, int64_t n, float *out, struct ht_error *err)
{
    const struct ht_stored_state *s = ctx;
    return ht_store_reader_read(s->reader, s->rows[source], first, n, out, err);
}

static enum ht_status read_piece(void *ctx, struct ht_piece piece, float *out, struct ht_error *err)
{
    struct ht_stored_state *s = ctx;
    return ht_transfers_fetch(&s->model, s->sources, s->sinks, &s->list,
                              piece.unit * HT_N_STATE_PARTS + (int64_t)piece.part, piece.begin, piece.end, read_source,
                              s, out, err);
}

struct ht_source ht_stored_state_source(struct ht_stored_state *s)
{
    return (struct ht_source){.read = read_piece, .ctx = s, .parts = HT_ALL_STATE_PARTS};
}
