#include "harness/cli/stores.h"

#include "common/base/array.h"
#include "common/base/text.h"
#include "common/base/units.h"
#include "harness/result/result.h"
#include "harness/result/table.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void say(void *ctx, const char *line)
{
    (void)ctx;
    fprintf(stderr, "hetbench: warning: %s; it is not used\n", line);
}

static const struct ht_catalog_log aloud = {.say = say};

enum ht_status ht_stores_open(const char *const *dirs, int64_t n, struct ht_error *err, struct ht_catalog *out)
{
    int64_t found = 0;
    *out = (struct ht_catalog){0};
    for (int64_t i = 0; i < n; i++) {
        int64_t here = ht_catalog_add_tree(out, dirs[i], aloud);
        found += here;
    }
    if (found) return HT_OK;
    ht_catalog_free(out);
    return ht_fail(err, HT_BAD_INPUT, "%s: holds no store", dirs[0]);
}

static enum ht_status model_of(const struct ht_catalog *c, struct ht_version v, struct ht_error *err,
                               struct ht_model *out)
{
    const struct ht_stored_manifest *m = ht_catalog_manifest(c, v);
    return ht_store_model(m->text, "manifest", err, out);
}

enum ht_status ht_stores_newest(struct ht_catalog *c, bool check, struct ht_error *err, struct ht_version *version,
                                struct ht_model *model)
{
    int64_t n;
    struct ht_version *versions = ht_catalog_versions(c, &n);
    struct ht_error first = {0};
    enum ht_status status = HT_INFEASIBLE;
    for (int64_t i = 0; i < n && status != HT_OK; i++) {
        struct ht_error why = {0};
        *version = versions[i];
        if (check) ht_catalog_verify(c, versions[i], aloud);
        status = model_of(c, versions[i], &why, model);
        if (status == HT_OK) status = ht_catalog_covers(c, versions[i], model, &why);
        if (i == 0) first = why;
    }
    if (status != HT_OK && n)
        status = ht_fail(err, HT_INFEASIBLE, "no step is whole; of the newest, %lld: %.900s",
                         (long long)versions[0].step, first.text);
    free(versions);
    return status;
}

/* ---- train ---- */

void ht_stores_print(const struct ht_store_figures *f)
{
    char a[32], b[32], c[32];
    if (f->n_saved)
        printf("node stores: %d saved by rank 0, %.4g MB; training stood still for %s, of that %s for the save before; "
               "on disk %s after its step at the latest",
               f->n_saved, 1e-6 * (double)f->bytes, ht_format_quantity(HT_TIME, f->stall_s * 1e9, a),
               ht_format_quantity(HT_TIME, f->waited_s * 1e9, b), ht_format_quantity(HT_TIME, f->oldest_s * 1e9, c));
    if (f->n_saved && f->written_s > 0) printf("; written behind at %.4g MB/s", 1e-6 * (double)f->bytes / f->written_s);
    if (f->n_saved) putchar('\n');
    for (int p = 0; p < HT_N_PATHS; p++)
        if (f->read_bytes[p])
            printf("read by rank 0 from %s: %.4g MB\n", ht_path_names[p], 1e-6 * (double)f->read_bytes[p]);
}

json_t *ht_stores_json(const struct ht_options *options, const struct ht_store_figures *f)
{
    if (!options->state.store) return json_null();
    json_t *read = json_object();
    for (int p = 0; p < HT_N_PATHS; p++)
        json_object_set_new(read, ht_path_names[p], json_integer((json_int_t)f->read_bytes[p]));
    return json_pack("{s:i,s:f,s:f,s:f,s:f,s:f,s:I,s:I,s:o}", "saved", f->n_saved, "stall_s", f->stall_s,
                     "first_stall_s", f->first_stall_s, "waited_s", f->waited_s, "written_s", f->written_s, "oldest_s",
                     f->oldest_s, "bytes", (json_int_t)f->bytes, "safe_step", (json_int_t)f->safe_step, "read_bytes",
                     read);
}

/* ---- list ---- */

static void name_store(const struct ht_store *s, char name[64])
{
    if (s->medium == HT_STORE_REMOTE)
        snprintf(name, 64, "remote");
    else
        snprintf(name, 64, "node %d %s", s->node, ht_store_medium_names[s->medium]);
}

/* Returns a store's elements of a part of a unit in a version, and through *all how many three states have. */
static int64_t held(const struct ht_catalog *c, struct ht_version v, int32_t store, const struct ht_model *m,
                    const struct ht_extent *part, int64_t *all)
{
    int64_t sum = 0;
    *all = HT_N_STATE_PARTS * ht_extent_of_part(m, part->unit, part->part, part->tp_part, part->tp_parts).end;
    for (int64_t i = 0; i < c->n; i++) {
        const struct ht_stored_extent *row = &c->rows[i];
        if (row->store == store && !ht_version_compare(&row->version, &v) && row->extent.unit == part->unit &&
            row->extent.tp_part == part->tp_part && row->extent.tp_parts == part->tp_parts)
            sum += row->extent.end - row->extent.begin;
    }
    return sum;
}

static int by_part(const void *va, const void *vb)
{
    const struct ht_extent *a = va, *b = vb;
    if (a->unit != b->unit) return a->unit < b->unit ? -1 : 1;
    if (a->tp_parts != b->tp_parts) return a->tp_parts - b->tp_parts;
    return a->tp_part - b->tp_part;
}

/* Lists the different parts of units of a version; allocated. */
static struct ht_extent *list_parts(const struct ht_catalog *c, struct ht_version v, int64_t *n)
{
    struct ht_extent *parts = HT_NEW_ARRAY(struct ht_extent, c->n);
    int64_t all = 0;
    for (int64_t i = 0; i < c->n; i++)
        if (!ht_version_compare(&c->rows[i].version, &v)) parts[all++] = c->rows[i].extent;
    if (all) qsort(parts, (size_t)all, sizeof(*parts), by_part);
    *n = 0;
    for (int64_t i = 0; i < all; i++)
        if (i == 0 || by_part(&parts[i], &parts[*n - 1]) != 0) parts[(*n)++] = parts[i];
    return parts;
}

/* Prints the bitmap: the share of each part of each unit that each store has. */
static void print_bitmap(const struct ht_catalog *c, struct ht_version v, const struct ht_model *m)
{
    char header[4096] = ">unit|>part", name[64];
    int64_t n;
    struct ht_extent *parts = list_parts(c, v, &n);
    for (int64_t s = 0; s < c->n_stores; s++) {
        size_t used = strlen(header);
        name_store(&c->stores[s], name);
        snprintf(header + used, sizeof(header) - used, "|>%s", name);
    }
    struct ht_table *t = ht_table_create(header);
    for (int64_t i = 0; i < n; i++) {
        ht_table_cell(t, "%lld", (long long)parts[i].unit);
        ht_table_cell(t, "%d of %d", parts[i].tp_part, parts[i].tp_parts);
        for (int32_t s = 0; s < c->n_stores; s++) {
            int64_t all, has = held(c, v, s, m, &parts[i], &all);
            if (has)
                ht_table_cell(t, "%.3g%%", 100.0 * (double)has / (double)all);
            else
                ht_table_cell(t, "-");
        }
    }
    ht_table_print(t, "", stdout);
    free(parts);
}

/* Returns the bytes and the number of a version's files in all stores. The rows of a file are adjacent. */
static int64_t bytes_of(const struct ht_catalog *c, struct ht_version v, int64_t *files)
{
    int64_t bytes = 0;
    *files = 0;
    for (int64_t i = 0; i < c->n; i++) {
        const struct ht_stored_extent *row = &c->rows[i], *before = i ? row - 1 : NULL;
        if (ht_version_compare(&row->version, &v) != 0) continue;
        if (before && !ht_version_compare(&before->version, &v) && before->store == row->store &&
            !strcmp(before->file, row->file))
            continue;
        bytes += row->sum.bytes;
        (*files)++;
    }
    return bytes;
}

/* Adds a version to the table and the list. Returns whether it is whole, with its model. */
static bool list_version(const struct ht_catalog *c, struct ht_version v, struct ht_table *t, json_t *list,
                         struct ht_model *model)
{
    struct ht_error why = {0};
    char run[17];
    int64_t files, bytes = bytes_of(c, v, &files);
    bool whole = model_of(c, v, &why, model) == HT_OK && ht_catalog_covers(c, v, model, &why) == HT_OK;
    snprintf(run, sizeof(run), "%016" PRIx64, v.run);
    ht_table_cell(t, "%lld", (long long)v.step);
    ht_table_cell(t, "%s", run);
    ht_table_cell(t, "%lld", (long long)files);
    ht_table_bytes(t, bytes);
    ht_table_cell(t, "%s", whole ? "yes" : why.text);
    json_array_append_new(list, json_pack("{s:I,s:s,s:I,s:I,s:b,s:s}", "step", (json_int_t)v.step, "run", run, "files",
                                          (json_int_t)files, "bytes", (json_int_t)bytes, "whole", (int)whole, "lacks",
                                          why.text));
    return whole;
}

enum ht_status ht_list_stores(const struct ht_options *options, struct ht_error *err)
{
    struct ht_catalog c;
    struct ht_version newest = {-1, 0};
    struct ht_model model = {0}, of_newest = {0};
    int64_t n;
    if (options->n_words < 2)
        return ht_fail(err, HT_BAD_INPUT, "list stores: a directory is missing; expected list stores DIR..");
    enum ht_status status = ht_stores_open(options->words + 1, options->n_words - 1, err, &c);
    if (status != HT_OK) return status;
    struct ht_version *versions = ht_catalog_versions(&c, &n);
    struct ht_table *t = ht_table_create(">step|<run|>files|>bytes|<whole");
    json_t *list = json_array();
    for (int64_t i = 0; i < n; i++) {
        if (options->reshard.check) ht_catalog_verify(&c, versions[i], aloud);
        bool whole = list_version(&c, versions[i], t, list, &model);
        if (whole && newest.step < 0) {
            newest = versions[i];
            of_newest = model;
        }
    }
    if (options->json) {
        status = ht_json_print(json_pack("{s:O}", "versions", list), "stores", err);
    } else {
        ht_table_print(t, "", stdout);
        if (newest.step >= 0) printf("\nshares of step %lld, the newest whole one\n", (long long)newest.step);
        if (newest.step >= 0) print_bitmap(&c, newest, &of_newest);
    }
    if (options->json) ht_table_destroy(t);
    json_decref(list);
    free(versions);
    ht_catalog_free(&c);
    return status;
}
