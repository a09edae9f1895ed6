/* hetbench reshard: brings the newest whole step of stores into another layout, or into Hugging Face's files. */
#include "harness/cli/commands.h"

#include "common/base/array.h"
#include "common/base/text.h"
#include "common/base/units.h"
#include "common/ckpt/hf.h"
#include "common/ckpt/model_folder.h"
#include "common/store/layout.h"
#include "common/store/owners.h"
#include "common/store/price.h"
#include "harness/cli/stores.h"
#include "harness/result/result.h"
#include "harness/result/table.h"
#include "harness/run/output.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The step, and where it goes. */
struct resharding {
    const struct ht_options *options;
    struct ht_catalog catalog;
    struct ht_version version;
    struct ht_state *state; /* what its manifests say; its values are the stores' */
    struct ht_stored_state *stored;
    struct ht_checkpoint_setting *settings;
    int n_settings;
    struct ht_store_layout layout;
    struct ht_transfer_source *sources;
    int64_t n_sources, *rows;
    struct ht_transfer_sink *sinks;
    int64_t n_sinks;
    struct ht_transfers list;
    struct ht_store_reader *reader;
    struct ht_store_price price; /* on a cluster */
    struct ht_store_price emulated;
    struct ht_emu_overruns overruns;
};

static enum ht_status open_step(struct resharding *r, struct ht_error *err)
{
    const struct ht_options *o = r->options;
    struct ht_model model;
    enum ht_status status = ht_stores_open(o->words, o->n_words, err, &r->catalog);
    if (status == HT_OK) status = ht_stores_newest(&r->catalog, true, err, &r->version, &model);
    if (status != HT_OK) return status;
    const char *text = ht_catalog_manifest(&r->catalog, r->version)->text;
    r->state = ht_state_create(&model);
    r->settings = ht_store_settings(text, &r->n_settings);
    r->reader = ht_store_reader_create(&r->catalog);
    status = ht_store_facts(text, "manifest", NULL, 0, err, r->state);
    ht_catalog_losses(&r->catalog, r->version, &r->state->losses);
    if (status == HT_OK) status = ht_stored_state_create(&r->catalog, r->version, &model, err, &r->stored);
    if (status == HT_OK) r->state->values = ht_stored_state_source(r->stored);
    return status;
}

static enum ht_status plan(struct resharding *r, struct ht_error *err)
{
    const struct ht_model *m = &r->state->model;
    enum ht_status status = ht_store_layout_read("--to", r->options->reshard.to, err, &r->layout);
    r->layout.zero1 = r->options->reshard.zero1;
    r->layout.per_node = (int32_t)r->options->reshard.per_node;
    if (status == HT_OK) status = ht_store_layout_check(&r->layout, m, err);
    if (status != HT_OK) return status;
    r->sources = ht_catalog_sources(&r->catalog, r->version, &r->n_sources, &r->rows);
    r->sinks = ht_store_layout_sinks(&r->layout, m, &r->n_sinks);
    return ht_transfers_plan(m, r->sources, r->n_sources, r->sinks, r->n_sinks, err, &r->list);
}

/* Checks that a cluster has the nodes of the stores and of the layout. */
static enum ht_status check_nodes(const struct resharding *r, const struct ht_cluster *cluster, struct ht_error *err)
{
    int32_t most = 0;
    for (int64_t i = 0; i < r->n_sources; i++)
        if (r->sources[i].node > most) most = r->sources[i].node;
    for (int64_t i = 0; i < r->n_sinks; i++)
        if (r->sinks[i].node > most) most = r->sinks[i].node;
    if (most < cluster->n_nodes) return HT_OK;
    return ht_fail(err, HT_BAD_INPUT, "--cluster: '%s' has %lld nodes; the stores and the layout have %d",
                   cluster->name, (long long)cluster->n_nodes, most + 1);
}

/* Reads elements of a source (ht_transfer_read). */
static enum ht_status read_source(void *ctx, int64_t source, int64_t first, int64_t n, float *out, struct ht_error *err)
{
    const struct resharding *r = ctx;
    return ht_store_reader_read(r->reader, r->rows[source], first, n, out, err);
}

/* Simulates the copies on a cluster, and carries them out under the emulated clock where that is asked for. */
static enum ht_status price(struct resharding *r, struct ht_error *err)
{
    const struct ht_options *o = r->options;
    struct ht_cluster *cluster = NULL;
    enum ht_status status = ht_cluster_load(o->request.cluster, err, &cluster);
    if (status != HT_OK) return status;
    struct ht_store_rates rates = ht_store_cluster_rates(cluster, o->reshard.remote_rate);
    struct ht_store_reading how = {.whole_files = o->reshard.whole_files, .param_bytes = sizeof(float)};
    status = check_nodes(r, cluster, err);
    if (status == HT_OK)
        status = ht_transfers_price(r->sources, r->sinks, r->n_sinks, &r->list, &rates, how, err, &r->price);
    const struct ht_store_emulation by = {o->reshard.emulate, read_source, r};
    if (status == HT_OK && by.scale > 0)
        status = ht_transfers_emulate(&r->state->model, r->sources, r->sinks, r->n_sinks, &r->list, &rates, how, &by,
                                      err, &r->emulated, &r->overruns);
    ht_store_rates_free(&rates);
    ht_cluster_destroy(cluster);
    return status;
}

static void resharding_free(struct resharding *r)
{
    ht_stored_state_destroy(r->stored);
    ht_store_reader_destroy(r->reader);
    ht_state_destroy(r->state);
    ht_store_settings_free(r->settings, r->n_settings);
    ht_transfers_free(&r->list);
    free(r->sources);
    free(r->rows);
    free(r->sinks);
    ht_catalog_free(&r->catalog);
}

/* ---- writing ---- */

struct rank_reading {
    struct resharding *r;
    int32_t rank;
};

/* Reads elements of what a rank will have (ht_extent_read). */
static enum ht_status read_sink(void *ctx, const struct ht_extent *e, int64_t first, int64_t n, float *buffer,
                                const float **at, struct ht_error *err)
{
    (void)at;
    const struct rank_reading *x = ctx;
    struct resharding *r = x->r;
    int64_t i = 0;
    while (r->sinks[i].rank != x->rank || !ht_extent_equal(&r->sinks[i].extent, e)) i++;
    return ht_transfers_fetch(&r->state->model, r->sources, r->sinks, &r->list, i, first, first + n, read_source, r,
                              buffer, err);
}

static bool same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* Cuts the last component off a path; "." is before the first. Returns false if it was "..", which a text cannot cut. */
static bool cut(char *path)
{
    char *end = path + strlen(path);
    while (end > path && end[-1] == '/') *--end = '\0';
    while (end > path && end[-1] != '/') end--;
    bool cuts = strcmp(end, "..") != 0;
    *end = '\0';
    if (end == path) strcpy(path, ".");
    return cuts;
}

/* Checks that a directory, which may be yet to be made, neither is a STORE nor lies in one: by inode, so whatever the links. */
static enum ht_status check_outside(const struct ht_options *o, const char *dir, struct ht_error *err)
{
    char at[PATH_MAX];
    struct stat here, store, below = {0};
    if (snprintf(at, sizeof(at), "%s", dir) >= (int)sizeof(at))
        return ht_fail(err, HT_BAD_INPUT, "--out: %.60s...: the path is too long", dir);
    while (stat(at, &here) != 0)
        if (errno != ENOENT || !cut(at))
            return ht_fail(err, HT_BAD_INPUT, "--out: %s: cannot be made: %s", dir, strerror(errno));
    while (!same(&here, &below)) { /* the root is above itself */
        for (int64_t i = 0; i < o->n_words; i++)
            if (stat(o->words[i], &store) == 0 && same(&here, &store))
                return ht_fail(err, HT_BAD_INPUT, "--out: %s is in %s, which is read; expected a folder outside it",
                               dir, o->words[i]);
        below = here;
        size_t n = strlen(at);
        snprintf(at + n, sizeof(at) - n, "/..");
        if (n + 3 >= sizeof(at) || stat(at, &here) != 0) break;
    }
    return HT_OK;
}

/* Checks the directories of all nodes. */
static enum ht_status check_out(const struct resharding *r, struct ht_error *err)
{
    int32_t per = r->layout.per_node ? r->layout.per_node : INT32_MAX;
    enum ht_status status = HT_OK;
    for (int32_t node = 0; node <= (ht_store_layout_ranks(&r->layout) - 1) / per && status == HT_OK; node++) {
        char dir[HT_STORE_DIR];
        ht_store_node_dir(r->options->out, node, dir);
        status = check_outside(r->options, dir, err);
    }
    return status == HT_OK ? ht_directory_check(r->options->out, err) : status;
}

/* Checks that the directory has no step but the one to be written: --resume would take the newest, and --keep remove others. */
static enum ht_status check_alone(const struct resharding *r, struct ht_error *err)
{
    const char *dirs[] = {r->options->out};
    struct ht_catalog there;
    struct ht_error none;
    int64_t n;
    if (ht_stores_open(dirs, 1, &none, &there) != HT_OK) return HT_OK;
    struct ht_version *versions = ht_catalog_versions(&there, &n);
    enum ht_status status = HT_OK;
    for (int64_t i = 0; i < n && status == HT_OK; i++)
        if (ht_version_compare(&versions[i], &r->version) != 0)
            status = ht_fail(err, HT_BAD_INPUT,
                             "--out: %s holds step %lld, not the one to be written; expected another folder",
                             r->options->out, (long long)versions[i].step);
    free(versions);
    ht_catalog_free(&there);
    return status;
}

/* Writes the files of a rank of the new layout. */
static enum ht_status write_rank(struct resharding *r, int32_t rank, const bool *owner, struct ht_error *err)
{
    struct ht_store_part p = {.version = r->version, .rank = rank};
    struct ht_extent *own = HT_NEW_ARRAY(struct ht_extent, r->n_sinks);
    struct rank_reading x = {r, rank};
    char dir[HT_STORE_DIR];
    int64_t n = 0;
    for (int64_t i = 0; i < r->n_sinks; i++)
        if (r->sinks[i].rank == rank && owner[i]) own[n++] = r->sinks[i].extent;
    ht_store_node_dir(r->options->out, r->layout.per_node ? rank / r->layout.per_node : 0, dir);
    ht_store_part_arrange(&p, &r->state->model, own, n);
    enum ht_status status =
        n ? ht_store_write(dir, &p, r->state, r->settings, r->n_settings, read_sink, &x, err) : HT_OK;
    ht_store_part_free(&p);
    free(own);
    return status;
}

static enum ht_status write_all(struct resharding *r, struct ht_error *err)
{
    bool *owner = HT_NEW_ARRAY(bool, r->n_sinks);
    enum ht_status status = HT_OK;
    ht_store_owners(r->sinks, r->n_sinks, owner, NULL);
    for (int32_t rank = 0; rank < ht_store_layout_ranks(&r->layout) && status == HT_OK; rank++)
        status = write_rank(r, rank, owner, err);
    free(owner);
    return status;
}

/* ---- checking ---- */

/* Compares a piece as the old and the new stores have it. */
static enum ht_status compare_piece(const struct ht_state *a, const struct ht_state *b, struct ht_piece p, float *x,
                                    float *y, struct ht_error *err)
{
    enum ht_status status = ht_state_read(a, p, x, err);
    if (status == HT_OK) status = ht_state_read(b, p, y, err);
    if (status != HT_OK || !memcmp(x, y, (size_t)(p.end - p.begin) * sizeof(*x))) return status;
    return ht_fail(err, HT_FAILED,
                   "unit %lld: elements %lld to %lld of its %s differ from the stores' they were made of",
                   (long long)p.unit, (long long)p.begin, (long long)p.end, ht_state_part_names[p.part]);
}

/* Reads the new stores back and compares every byte of the state. */
static enum ht_status check(const struct resharding *r, struct ht_error *err)
{
    const char *dirs[] = {r->options->out};
    struct ht_catalog c;
    struct ht_version v;
    struct ht_model model;
    struct ht_stored_state *stored = NULL;
    enum ht_status status = ht_stores_open(dirs, 1, err, &c);
    if (status != HT_OK) return status;
    struct ht_state *got = ht_state_create(&r->state->model);
    float *x = HT_NEW_ARRAY(float, ht_piece_most(&got->model)), *y = HT_NEW_ARRAY(float, ht_piece_most(&got->model));
    status = ht_stores_newest(&c, true, err, &v, &model);
    if (status == HT_OK) status = ht_stored_state_create(&c, r->version, &r->state->model, err, &stored);
    if (status == HT_OK) got->values = ht_stored_state_source(stored);
    for (int64_t u = 0; u < got->n_units; u++)
        for (int part = 0; part < HT_N_STATE_PARTS; part++)
            for (int64_t at = 0, n = ht_unit_params(&got->model, u), end; at < n && status == HT_OK; at = end) {
                end = at + HT_PIECE_ELEMENTS < n ? at + HT_PIECE_ELEMENTS : n;
                struct ht_piece p = {u, (enum ht_state_part)part, at, end};
                status = compare_piece(r->state, got, p, x, y, err);
            }
    ht_stored_state_destroy(stored);
    ht_state_destroy(got);
    ht_catalog_free(&c);
    free(x);
    free(y);
    return status;
}

/* ---- Hugging Face's files ---- */

static enum ht_status save(const struct resharding *r, struct ht_error *err)
{
    enum { SHARD_GB = 5 };
    const struct ht_options *o = r->options;
    DIR *lock = NULL;
    enum ht_dtype dtype = HT_F32;
    int64_t shard_bytes = o->state.save_shard_bytes ? o->state.save_shard_bytes : SHARD_GB * (int64_t)1000000000;
    enum ht_status status = HT_OK;
    if (o->state.save_dtype && !ht_hf_find_dtype(o->state.save_dtype, &dtype))
        return ht_fail(err, HT_BAD_INPUT, "--save-dtype '%s' is not known; expected f32, f16 or bf16",
                       o->state.save_dtype);
    if (!ht_hf_is_file(o->state.save)) {
        if (mkdir(o->state.save, 0777) != 0 && errno != EEXIST)
            return ht_fail(err, HT_BAD_INPUT, "--save: %s: cannot be made: %s", o->state.save, strerror(errno));
        status = ht_model_folder_lock(o->state.save, err, &lock);
    }
    if (status == HT_OK) status = ht_hf_save(o->state.save, r->state, dtype, shard_bytes, NULL, err);
    if (lock) closedir(lock);
    return status;
}

/* ---- the report ---- */

/* Adds up the bytes by path. */
static void sum_paths(const struct resharding *r, int64_t bytes[HT_N_PATHS], int64_t pieces[HT_N_PATHS])
{
    memset(bytes, 0, HT_N_PATHS * sizeof(*bytes));
    memset(pieces, 0, HT_N_PATHS * sizeof(*pieces));
    for (int64_t i = 0; i < r->list.n; i++) {
        bytes[r->list.rows[i].path] += ht_transfer_bytes(&r->list.rows[i]);
        pieces[r->list.rows[i].path]++;
    }
}

static json_t *emulated_json(const struct resharding *r)
{
    return json_pack("{s:I,s:f,s:I,s:I,s:b}", "ns", (json_int_t)r->emulated.ns, "scale", r->options->reshard.emulate,
                     "overran", (json_int_t)r->overruns.n_overran, "copies", (json_int_t)r->overruns.n_ops, "valid",
                     (int)r->overruns.valid);
}

static enum ht_status report(const struct resharding *r, struct ht_error *err)
{
    const struct ht_options *o = r->options;
    int64_t bytes[HT_N_PATHS], pieces[HT_N_PATHS];
    char out[512];
    json_t *paths = json_object();
    struct ht_table *t = ht_table_create("<from|>pieces|>bytes");
    sum_paths(r, bytes, pieces);
    for (int p = 0; p < HT_N_PATHS; p++) {
        ht_table_cell(t, "%s", ht_path_names[p]);
        ht_table_cell(t, "%lld", (long long)pieces[p]);
        ht_table_bytes(t, bytes[p]);
        json_object_set_new(paths, ht_path_names[p],
                            json_pack("{s:I,s:I}", "pieces", (json_int_t)pieces[p], "bytes", (json_int_t)bytes[p]));
    }
    enum ht_status status = HT_OK;
    if (o->json) {
        json_t *simulated = o->request.cluster ? json_integer((json_int_t)r->price.ns) : json_null();
        json_t *emulated = o->reshard.emulate > 0 ? emulated_json(r) : json_null();
        status = ht_json_print(json_pack("{s:o,s:o,s:I,s:O,s:b}", "simulated_ns", simulated, "emulated", emulated,
                                         "step", (json_int_t)r->version.step, "paths", paths, "equal",
                                         (int)(o->reshard.check && o->reshard.to)),
                               "reshard", err);
    } else {
        printf("step %lld", (long long)r->version.step);
        if (o->reshard.to) printf(" into dp %d, tp %d, pp %d", r->layout.dp, r->layout.tp, r->layout.pp);
        printf("\n\n");
        if (o->reshard.to) ht_table_print(t, "", stdout);
        if (o->request.cluster)
            printf("\nsimulated on %s: %s, all copies side by side\n", o->request.cluster,
                   ht_format_quantity(HT_TIME, (double)r->price.ns, out));
        if (o->reshard.emulate > 0)
            printf("emulated: %s, %+.2f%%; %lld of %lld copies overran\n",
                   ht_format_quantity(HT_TIME, (double)r->emulated.ns, out),
                   100 * ((double)r->emulated.ns / (double)r->price.ns - 1), (long long)r->overruns.n_overran,
                   (long long)r->overruns.n_ops);
        if (o->reshard.to && o->out)
            printf("\nwritten to %s%s\n", ht_shown(o->out, out, sizeof(out)),
                   o->reshard.check ? " and read back: every byte is the same" : "");
        if (o->state.save) printf("weights written to %s\n", ht_shown(o->state.save, out, sizeof(out)));
    }
    if (o->json || !o->reshard.to) ht_table_destroy(t);
    json_decref(paths);
    return status;
}

static enum ht_status run(const struct ht_options *o, struct ht_error *err)
{
    struct resharding r = {.options = o};
    if (!o->reshard.to && !o->state.save)
        return ht_fail(err, HT_BAD_INPUT, "reshard: expected --to dp,tp,pp or --save");
    const char *cluster = o->request.cluster ? "--cluster" : NULL;
    const char *alone = o->reshard.to         ? NULL
                        : o->out              ? "--out"
                        : o->reshard.zero1    ? "--zero1"
                        : o->reshard.per_node ? "--per-node"
                                              : cluster;
    if (alone) return ht_fail(err, HT_BAD_INPUT, "%s: --to dp,tp,pp is missing beside it", alone);
    alone = cluster                      ? NULL
            : o->reshard.remote_rate > 0 ? "--remote-rate"
            : o->reshard.whole_files     ? "--whole-files"
            : o->reshard.emulate > 0     ? "--emulate"
                                         : NULL;
    if (alone) return ht_fail(err, HT_BAD_INPUT, "%s: --cluster is missing beside it", alone);
    if (o->reshard.check && !o->out) return ht_fail(err, HT_BAD_INPUT, "--check: --out DIR is missing beside it");
    enum ht_status status = open_step(&r, err);
    if (status == HT_OK && o->reshard.to) status = plan(&r, err);
    if (status == HT_OK && o->out) status = check_out(&r, err);
    if (status == HT_OK && o->out) status = check_alone(&r, err);
    if (status == HT_OK && o->request.cluster) status = price(&r, err);
    if (status == HT_OK && o->out) status = write_all(&r, err);
    if (status == HT_OK && o->reshard.check) status = check(&r, err);
    if (status == HT_OK && o->state.save) status = save(&r, err);
    if (status == HT_OK) status = report(&r, err);
    resharding_free(&r);
    return status;
}

const struct ht_command ht_cmd_reshard = {
    .name = "reshard",
    .args = "STORE..",
    .help =
        "bring a step of node stores into another layout"
        "\vSTORE is a directory of train --store, --store-memory or --store-remote. The newest step that all of them "
        "together have whole is taken. Without --out, reshard says what would be read from where.",
    .example = "hetbench reshard node-0 node-1 --to 2,1,1 --out new",
    .groups = HT_OPT_RESHARD | HT_OPT_CHECK,
    .min_words = 1,
    .max_words = HT_MAX_WORDS,
    .run = run,
};
