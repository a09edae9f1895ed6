/* Resuming from node stores (node_stores.h): what all stores have, and each rank's share of it. */
#include "harness/run/node_stores_parts.h"

#include "common/base/array.h"
#include "common/base/text.h"
#include "common/comm/tags.h"
#include "harness/run/events.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static void say(void *ctx, const char *line)
{
    (void)ctx;
    fprintf(stderr, "hetbench: warning: %s; it is not used\n", line);
}

static const struct ht_catalog_log aloud = {.say = say};

/* ---- exchange ---- */

/* Gathers every rank's bytes on all, one after the other; *all is allocated. */
static enum ht_status gather(const struct ht_node_stores *s, const void *mine, int64_t bytes, struct ht_error *err,
                             void **all, int64_t *total)
{
    struct ht_comm *c = s->ranks->comm;
    if (!c) {
        *total = bytes;
        *all = ht_alloc((size_t)bytes);
        if (bytes) memcpy(*all, mine, (size_t)bytes);
        return HT_OK;
    }
    int32_t *ids = HT_NEW_ARRAY(int32_t, c->size);
    int64_t *counts = HT_NEW_ARRAY(int64_t, c->size), *each = HT_NEW_ARRAY(int64_t, c->size);
    struct ht_team team = ht_node_stores_team(s, ids);
    for (int32_t i = 0; i < c->size; i++) each[i] = sizeof(bytes);
    enum ht_status status = ht_comm_all_gather(c, team, HT_TAG_STATE, &bytes, counts, each, HT_COMM_BYTE, err);
    *total = 0;
    for (int32_t i = 0; i < c->size && status == HT_OK; i++) *total += counts[i];
    *all = ht_alloc((size_t)*total);
    if (status == HT_OK) status = ht_comm_all_gather(c, team, HT_TAG_STATE, mine, *all, counts, HT_COMM_BYTE, err);
    if (status != HT_OK) free(*all);
    free(ids);
    free(counts);
    free(each);
    return status;
}

/* ---- this host's stores ---- */

/* Returns true if this rank lists its host's stores. */
static bool lists(const struct ht_node_stores *s)
{
    int32_t n;
    return ht_ranks_local(s->ranks, &n) == 0;
}

static bool on_this_host(const struct ht_node_stores *s, int32_t rank)
{
    return !s->ranks->comm || s->ranks->hosts.of[rank] == s->ranks->hosts.of[s->rank];
}

static int32_t first_rank_of(const struct ht_node_stores *s, int32_t node)
{
    int32_t rank = 0;
    while (s->job->schedule->rank_node[rank] != node) rank++;
    return rank;
}

/* Returns the job's node that has a number in the whole cluster; -1: none. */
static int32_t node_numbered(const struct ht_node_stores *s, int32_t number)
{
    const struct ht_schedule *g = s->job->schedule;
    int32_t node = g->rank_node[g->n_ranks - 1];
    while (node >= 0 && s->job->scenario.cluster->nodes[node].number != number) node--;
    return node;
}

/* Gives the stores of a tree to the job's nodes: node-0003 to the cluster's node 3 if that is on this host, else to this rank's
   node, whose host it is on. */
static void add_tree(struct ht_node_stores *s, struct ht_catalog *c, const char *root, enum ht_store_medium medium)
{
    int64_t before = c->n_stores;
    ht_catalog_add_tree(c, root, aloud);
    for (int64_t i = before; i < c->n_stores; i++) {
        struct ht_store *store = &c->stores[i];
        int32_t node = node_numbered(s, store->node);
        store->medium = medium;
        store->node = node >= 0 && on_this_host(s, first_rank_of(s, node)) ? node : s->node;
    }
}

/* Lists what this rank lists. */
static void list_own(struct ht_node_stores *s, struct ht_catalog *c)
{
    const struct ht_options *o = s->options;
    bool local = lists(s) && !o->state.load_remote;
    if (local && o->state.store_memory) add_tree(s, c, o->state.store_memory, HT_STORE_MEMORY);
    if (local) add_tree(s, c, o->state.store, HT_STORE_DISK);
    if (s->rank == 0 && o->state.store_remote) ht_catalog_add(c, o->state.store_remote, HT_STORE_REMOTE, -1, aloud);
}

/* ---- the newest whole step ---- */

static int newest_first(const void *a, const void *b)
{
    return ht_version_compare(b, a);
}

/* Lists the versions of all ranks' stores, newest first; allocated. */
static enum ht_status all_versions(const struct ht_node_stores *s, const struct ht_catalog *own, struct ht_error *err,
                                   struct ht_version **out, int64_t *n)
{
    int64_t n_own, bytes;
    void *all = NULL;
    struct ht_version *mine = ht_catalog_versions(own, &n_own);
    enum ht_status status = gather(s, mine, n_own * (int64_t)sizeof(*mine), err, &all, &bytes);
    free(mine);
    if (status != HT_OK) return status;
    struct ht_version *v = all;
    int64_t n_all = bytes / (int64_t)sizeof(*v);
    if (n_all) qsort(v, (size_t)n_all, sizeof(*v), newest_first);
    *n = 0;
    for (int64_t i = 0; i < n_all; i++)
        if (i == 0 || ht_version_compare(&v[i], &v[*n - 1]) != 0) v[(*n)++] = v[i];
    *out = v;
    return HT_OK;
}

/* Makes the catalog of a version's rows of all ranks. A row's store counts from its rank's first store on. */
static enum ht_status share_rows(const struct ht_node_stores *s, const struct ht_catalog *own, struct ht_version v,
                                 struct ht_error *err, struct ht_catalog *out)
{
    int64_t n_own = 0, bytes, firsts_bytes;
    void *stores = NULL, *rows = NULL, *firsts = NULL;
    *out = (struct ht_catalog){0};
    enum ht_status status = gather(s, &own->n_stores, sizeof(own->n_stores), err, &firsts, &firsts_bytes);
    if (status == HT_OK)
        status = gather(s, own->stores, own->n_stores * (int64_t)sizeof(*own->stores), err, &stores, &bytes);
    if (status != HT_OK) return status;
    out->stores = stores;
    out->n_stores = bytes / (int64_t)sizeof(*own->stores);
    struct ht_stored_extent *mine = HT_NEW_ARRAY(struct ht_stored_extent, own->n);
    int32_t before = 0;
    for (int32_t r = 0; r < s->rank; r++) before += (int32_t)((const int64_t *)firsts)[r];
    for (int64_t i = 0; i < own->n; i++) {
        if (ht_version_compare(&own->rows[i].version, &v) != 0) continue;
        mine[n_own] = own->rows[i];
        mine[n_own++].store += before;
    }
    status = gather(s, mine, n_own * (int64_t)sizeof(*mine), err, &rows, &bytes);
    out->rows = rows;
    out->n = status == HT_OK ? bytes / (int64_t)sizeof(*mine) : 0;
    free(mine);
    free(firsts);
    if (status != HT_OK) ht_catalog_free(out);
    return status;
}

/* Gathers the text of one manifest of a version: that of the lowest rank that lists one. */
static enum ht_status share_manifest(const struct ht_node_stores *s, const struct ht_catalog *own, struct ht_version v,
                                     struct ht_error *err, char **text)
{
    const struct ht_stored_manifest *m = ht_catalog_manifest(own, v);
    int64_t bytes;
    void *all = NULL;
    enum ht_status status = gather(s, m ? m->text : "", m ? (int64_t)strlen(m->text) + 1 : 0, err, &all, &bytes);
    *text = all; /* the first one ends where its string ends */
    return status;
}

static enum ht_status share_losses(const struct ht_node_stores *s, const struct ht_catalog *own, struct ht_version v,
                                   struct ht_error *err, struct ht_losses *out)
{
    struct ht_losses mine = {0};
    int64_t bytes;
    void *all = NULL;
    ht_catalog_losses(own, v, &mine);
    enum ht_status status = gather(s, mine.rows, mine.n * (int64_t)sizeof(*mine.rows), err, &all, &bytes);
    const struct ht_loss *rows = all;
    for (int64_t i = 0; status == HT_OK && i < bytes / (int64_t)sizeof(*rows); i++) {
        if (i > 0 && rows[i].step <= rows[i - 1].step) break; /* the next rank's: the same ones */
        ht_losses_add(out, rows[i].step, rows[i].loss);
    }
    if (status == HT_OK) free(all);
    ht_losses_free(&mine);
    return status;
}

/* Reads the facts of a version: on all ranks the same. HT_BAD_INPUT if they are another training's. */
static enum ht_status read_facts(const struct ht_node_stores *s, const struct ht_catalog *own, struct ht_version v,
                                 struct ht_persist *persist, struct ht_error *err)
{
    char *text = NULL, where[512];
    enum ht_status status = share_manifest(s, own, v, err, &text);
    if (status != HT_OK) return status;
    ht_shown(s->options->state.store, where, sizeof(where));
    status = ht_store_facts(text, where, persist->settings, HT_PERSIST_SETTINGS, err, persist->state);
    free(text);
    return status;
}

/* Goes on from the version whose facts were read last. */
static enum ht_status resume(struct ht_node_stores *s, const struct ht_catalog *own, struct ht_persist *persist,
                             struct ht_error *err)
{
    ht_losses_free(&persist->state->losses);
    enum ht_status status = share_losses(s, own, s->version, err, &persist->state->losses);
    if (status == HT_OK && s->rank == 0) /* for --save without a step; it reads what this host sees */
        status = ht_stored_state_create(&s->catalog, s->version, &persist->state->model, err, &s->stored);
    if (status == HT_OK && s->rank == 0) persist->state->values = ht_stored_state_source(s->stored);
    return status == HT_OK ? ht_persist_resume(persist, s->options->state.store, s->version.step, s->rank == 0, err)
                           : status;
}

/* Says why no step can be resumed. */
static enum ht_status none_is_whole(const struct ht_node_stores *s, struct ht_version newest, const char *why,
                                    struct ht_error *err)
{
    char where[256];
    ht_events_say(ht_ranks_events(s->ranks), "broken", NULL);
    return ht_fail(err, HT_BAD_INPUT, "%s: no step is whole; of the newest, %lld: %.600s",
                   ht_shown(s->options->state.store, where, sizeof(where)), (long long)newest.step, why);
}

/* Removes the remote store's only step, which never became whole, so that the next one is its first again. */
static void forget_first(const struct ht_node_stores *s, struct ht_version v)
{
    char where[256];
    fprintf(stderr, "%s: step %lld never became whole: it is removed\n",
            ht_shown(s->options->state.store_remote, where, sizeof(where)), (long long)v.step);
    ht_store_remove(s->options->state.store_remote, v);
}

/* Finds the newest version that the stores have whole, and reads its facts; s->resumes tells whether there is one. Steps before
   `least` do not count: a checkpoint is newer. */
static enum ht_status find_whole(struct ht_node_stores *s, struct ht_catalog *own, int64_t least,
                                 struct ht_persist *persist, struct ht_error *err)
{
    int64_t n;
    struct ht_version *versions = NULL;
    struct ht_error first = {0};
    enum ht_status status = all_versions(s, own, err, &versions, &n);
    while (status == HT_OK && n && versions[n - 1].step < least) n--;
    /* A remote store's first step that is not whole never was, as older ones stay until then: the training begins anew, so facts of
       that step are not read. */
    bool first_only = status == HT_OK && n == 1 && s->options->state.load_remote;
    for (int64_t i = 0; status == HT_OK && i < n && !s->resumes; i++) {
        struct ht_error why = {0};
        if (!first_only) status = read_facts(s, own, versions[i], persist, err);
        if (status != HT_OK) break;
        ht_catalog_verify(own, versions[i], aloud);
        status = share_rows(s, own, versions[i], err, &s->catalog);
        if (status != HT_OK) break;
        s->resumes = ht_catalog_covers(&s->catalog, versions[i], &s->job->scenario.model, &why) == HT_OK;
        s->version = versions[i];
        if (s->resumes && first_only) status = read_facts(s, own, versions[i], persist, err);
        if (!s->resumes) ht_catalog_free(&s->catalog);
        if (i == 0) first = why;
    }
    if (status == HT_OK && n && !s->resumes && !first_only)
        status = none_is_whole(s, versions[0], first.text, err);
    else if (status == HT_OK && n && !s->resumes && s->rank == 0)
        forget_first(s, versions[0]);
    free(versions);
    return status;
}

enum ht_status ht_node_stores_find(struct ht_node_stores *s, struct ht_persist *persist, struct ht_error *err)
{
    struct ht_catalog own = {0};
    char where[256];
    int64_t n, bytes;
    void *all = NULL;
    list_own(s, &own);
    struct ht_version *versions = ht_catalog_versions(&own, &n);
    free(versions);
    enum ht_status status = gather(s, &n, sizeof(n), err, &all, &bytes);
    n = 0;
    for (int64_t i = 0; status == HT_OK && i < bytes / (int64_t)sizeof(n); i++) n += ((const int64_t *)all)[i];
    if (status == HT_OK) free(all);
    ht_shown(s->options->state.store, where, sizeof(where));
    if (status == HT_OK && n && !s->options->state.resume)
        status = ht_fail(err, HT_BAD_INPUT,
                         "--store: %s holds a training; --resume goes on with it, another folder begins one", where);
    if (status == HT_OK && s->options->state.resume) status = find_whole(s, &own, persist->first_step, persist, err);
    if (status == HT_OK && s->options->state.resume && !n && s->rank == 0 && !persist->resumed)
        fprintf(stderr, "%s holds no step: beginning with step 1\n", where);
    if (status == HT_OK && s->resumes) status = resume(s, &own, persist, err);
    ht_catalog_free(&own);
    return ht_ranks_agree(s->ranks, status, err);
}

bool ht_node_stores_resumes(const struct ht_node_stores *s)
{
    return s && s->resumes;
}

/* ---- each rank's share ---- */

/* The list of transfers, and this rank's means to carry out its share. */
struct loading {
    struct ht_node_stores *s;
    struct ht_stream *stream;
    const struct ht_model *model;
    struct ht_transfer_source *sources;
    int64_t n_sources, *rows;
    struct ht_transfer_sink *sinks;
    int64_t n_sinks;
    struct ht_transfers list;
    struct ht_store_reader *reader;
    float *piece, *sent; /* of a sink; runs of it, one after the other, between ranks */
    enum ht_status read; /* of this rank's reads and writes: messages go on after one that failed */
    struct ht_error why;
};

/* Returns the rank that reads a source for a sink. */
static int32_t reader_of(const struct loading *l, const struct ht_transfer *t)
{
    const struct ht_transfer_sink *sink = &l->sinks[t->sink];
    return t->path == HT_PATH_PEER ? first_rank_of(l->s, l->sources[t->source].node) : sink->rank;
}

/* Reads the runs of a transfer in elements [begin, end) of its sink: to their places, or one after the other. Returns their
   number of elements. */
static int64_t read_runs(struct loading *l, const struct ht_transfer *t, int64_t begin, int64_t end, float *out,
                         bool in_place)
{
    const struct ht_extent *from = &l->sources[t->source].extent, *to = &l->sinks[t->sink].extent;
    struct ht_transfer_run r;
    int64_t n = 0;
    for (int64_t at = begin; ht_transfer_next_run(l->model, from, to, &t->box, &at, end, &r); n += r.count)
        if (l->read == HT_OK)
            l->read = ht_store_reader_read(l->reader, l->rows[t->source], r.in_source, r.count,
                                           out + (in_place ? r.in_sink - begin : n), &l->why);
    return n;
}

/* Puts runs that came one after the other into their places. */
static void place_runs(const struct loading *l, const struct ht_transfer *t, int64_t begin, int64_t end)
{
    const struct ht_extent *from = &l->sources[t->source].extent, *to = &l->sinks[t->sink].extent;
    struct ht_transfer_run r;
    int64_t n = 0;
    for (int64_t at = begin; ht_transfer_next_run(l->model, from, to, &t->box, &at, end, &r); n += r.count)
        memcpy(l->piece + (r.in_sink - begin), l->sent + n, (size_t)r.count * sizeof(*l->sent));
}

static int64_t count_runs(const struct loading *l, const struct ht_transfer *t, int64_t begin, int64_t end)
{
    const struct ht_extent *from = &l->sources[t->source].extent, *to = &l->sinks[t->sink].extent;
    struct ht_transfer_run r;
    int64_t n = 0;
    for (int64_t at = begin; ht_transfer_next_run(l->model, from, to, &t->box, &at, end, &r);) n += r.count;
    return n;
}

/* Sends or receives what a piece of a sink takes from another node. */
static enum ht_status exchange(struct loading *l, const struct ht_transfer *t, int32_t reader, int64_t begin,
                               int64_t end, struct ht_error *err)
{
    struct ht_comm *c = l->s->ranks->comm;
    struct ht_message m;
    if (reader == l->s->rank) {
        int64_t n = read_runs(l, t, begin, end, l->sent, false);
        if (!n) return HT_OK;
        ht_comm_send(c, l->sinks[t->sink].rank, HT_TAG_STATE, l->sent, n * (int64_t)sizeof(*l->sent), &m);
        return ht_comm_wait(c, &m, err);
    }
    int64_t n = count_runs(l, t, begin, end);
    if (!n) return HT_OK;
    ht_comm_receive(c, reader, HT_TAG_STATE, l->sent, n * (int64_t)sizeof(*l->sent), &m);
    enum ht_status status = ht_comm_wait(c, &m, err);
    if (status == HT_OK) place_runs(l, t, begin, end);
    return status;
}

/* Writes a piece of a sink to all copies that this rank has of its extent. */
static enum ht_status put(struct loading *l, const struct ht_extent *e, int64_t begin, int64_t end,
                          struct ht_error *err)
{
    const struct ht_state_copy *copies;
    int64_t n = ht_state_map_copies(ht_stream_map(l->stream), e->unit, e->part, &copies);
    enum ht_status status = HT_OK;
    for (int64_t i = 0; i < n && status == HT_OK; i++) {
        const struct ht_state_copy *c = &copies[i];
        if (c->rank == l->s->rank && c->begin == e->begin && c->end == e->end && c->tp_part == e->tp_part &&
            c->tp_parts == e->tp_parts)
            status = ht_stream_write_copy(l->stream, c, begin, end - begin, l->piece, err);
    }
    return status;
}

/* Carries out this rank's share in elements [begin, end) of a sink. Fails only with the communication: others wait for its messages. All ranks go through all pieces in one order, so a message's
   two ends never wait for each other's later ones. */
static enum ht_status load_piece(struct loading *l, int64_t sink, int64_t begin, int64_t end, struct ht_error *err)
{
    enum ht_status status = HT_OK;
    bool mine = l->sinks[sink].rank == l->s->rank;
    for (int64_t k = l->list.first[sink]; k < l->list.first[sink + 1] && status == HT_OK; k++) {
        const struct ht_transfer *t = &l->list.rows[k];
        int32_t reader = reader_of(l, t);
        if (mine && reader == l->s->rank)
            read_runs(l, t, begin, end, l->piece, true);
        else if (mine || reader == l->s->rank)
            status = exchange(l, t, reader, begin, end, err);
    }
    if (mine && status == HT_OK && l->read == HT_OK) l->read = put(l, &l->sinks[sink].extent, begin, end, &l->why);
    return status;
}

static enum ht_status load_all(struct loading *l, struct ht_error *err)
{
    enum ht_status status = HT_OK;
    for (int64_t i = 0; i < l->n_sinks && status == HT_OK; i++)
        for (int64_t at = 0, n = l->sinks[i].extent.end - l->sinks[i].extent.begin, end; at < n && status == HT_OK;
             at = end) {
            end = n - at < HT_PIECE_ELEMENTS ? n : at + HT_PIECE_ELEMENTS;
            status = load_piece(l, i, at, end, err);
            ht_node_stores_pulse(l->s);
        }
    if (status != HT_OK || l->read == HT_OK) return status;
    return ht_fail(err, HT_FAILED, "%s", l->why.text);
}

static void count_paths(const struct loading *l)
{
    for (int64_t k = 0; k < l->list.n; k++) {
        const struct ht_transfer *t = &l->list.rows[k];
        if (l->sinks[t->sink].rank == l->s->rank) l->s->figures.read_bytes[t->path] += ht_transfer_bytes(t);
    }
}

enum ht_status ht_node_stores_fill(struct ht_node_stores *s, struct ht_stream *stream, struct ht_error *err)
{
    struct loading l = {.s = s, .stream = stream, .model = &s->job->scenario.model};
    enum ht_status status = ht_stream_begin(stream, err);
    if (status != HT_OK) return status;
    l.sources = ht_catalog_sources(&s->catalog, s->version, &l.n_sources, &l.rows);
    l.sinks = ht_node_stores_sinks(s->job->schedule, l.model, ht_stream_map(stream), true, &l.n_sinks);
    l.reader = ht_store_reader_create(&s->catalog);
    l.piece = HT_NEW_ARRAY(float, ht_piece_most(l.model));
    l.sent = HT_NEW_ARRAY(float, ht_piece_most(l.model));
    status = ht_transfers_plan(l.model, l.sources, l.n_sources, l.sinks, l.n_sinks, err, &l.list);
    if (status == HT_OK) status = ht_drill_meet(&s->drill, HT_DRILL_AT_LOAD, s->rank, s->version.step, err);
    if (status == HT_OK) {
        count_paths(&l);
        status = load_all(&l, err);
    }
    ht_transfers_free(&l.list);
    ht_store_reader_destroy(l.reader);
    free(l.sources);
    free(l.rows);
    free(l.sinks);
    free(l.piece);
    free(l.sent);
    return ht_ranks_agree(s->ranks, status, err);
}
