#include "harness/run/node_replicas.h"

#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/comm/tags.h"
#include "common/store/owners.h"
#include "harness/run/events.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESSOR_S = 30 }; /* for which an incarnation waits for the one before it to end */

static double now_s(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- what ranks hold ---- */

/* Adds up what the ranks of each node write of a step: bytes [n_nodes]. */
static void sum_nodes(const struct ht_transfer_sink *sinks, int64_t n, int64_t *bytes)
{
    bool *to_node = HT_NEW_ARRAY(bool, n);
    ht_store_owners(sinks, n, to_node, NULL);
    for (int64_t i = 0; i < n; i++)
        if (to_node[i]) bytes[sinks[i].node] += (sinks[i].extent.end - sinks[i].extent.begin) * (int64_t)sizeof(float);
    free(to_node);
}

/* Checks that two steps in --store-memory fit each node's memory beside what training takes. */
static enum ht_status check_memory(const struct ht_job *job, struct ht_error *err)
{
    const struct ht_schedule *g = job->schedule;
    const struct ht_model *m = &job->scenario.model;
    struct ht_state_map *map = NULL;
    enum ht_status status = ht_state_map_create(g, m, job->scenario.numerics.param, err, &map);
    if (status != HT_OK) return status;
    int64_t n, *bytes = HT_NEW_ARRAY(int64_t, g->n_ranks);
    struct ht_transfer_sink *sinks = ht_node_stores_sinks(g, m, map, false, &n);
    sum_nodes(sinks, n, bytes);
    for (int32_t r = 0; r < g->n_ranks && status == HT_OK; r++) {
        int32_t space = ht_space(g, HT_HOST, r), node = g->rank_node[r];
        int64_t room = g->capacity_bytes[space], peak = job->proof.spaces[space].peak_bytes;
        if (peak + 2 * bytes[node] > room)
            status = ht_fail_memory(err, HT_HOST,
                                    "node %d: two steps in --store-memory take %.4g GB, and training %.4g GB; the "
                                    "node's memory has %.4g GB",
                                    node, 2e-9 * (double)bytes[node], 1e-9 * (double)peak, 1e-9 * (double)room);
    }
    free(bytes);
    free(sinks);
    ht_state_map_destroy(map);
    return status;
}

static int by_extent_and_rank(const void *va, const void *vb)
{
    const struct ht_transfer_sink *a = va, *b = vb;
    int order = ht_extent_compare(&a->extent, &b->extent);
    return order ? order : (a->rank > b->rank) - (a->rank < b->rank);
}

struct ht_transfer_sink *ht_node_stores_sinks(const struct ht_schedule *s, const struct ht_model *m,
                                              const struct ht_state_map *map, bool stale_too, int64_t *n)
{
    struct ht_transfer_sink *sinks = NULL;
    size_t cap = 0;
    int64_t all = 0;
    for (int64_t list = 0; list < ht_model_units(m) * HT_N_STATE_PARTS; list++) {
        const struct ht_state_copy *copies;
        int64_t unit = list / HT_N_STATE_PARTS;
        enum ht_state_part part = (enum ht_state_part)(list % HT_N_STATE_PARTS);
        int64_t n_copies = ht_state_map_copies(map, unit, part, &copies);
        for (int64_t i = 0; i < n_copies; i++) {
            const struct ht_state_copy *c = &copies[i];
            struct ht_transfer_sink sink = {.extent = {unit, part, c->tp_part, c->tp_parts, c->begin, c->end},
                                            .rank = c->rank,
                                            .node = s->rank_node[c->rank]};
            if (stale_too || !c->stale) HT_PUSH(sinks, all, cap, sink);
        }
    }
    if (all) qsort(sinks, (size_t)all, sizeof(*sinks), by_extent_and_rank);
    *n = 0;
    for (int64_t i = 0; i < all; i++)
        if (i == 0 || by_extent_and_rank(&sinks[i], &sinks[*n - 1]) != 0) sinks[(*n)++] = sinks[i];
    return sinks;
}

/* ---- opening ---- */

struct ht_team ht_node_stores_team(const struct ht_node_stores *s, int32_t *ids)
{
    for (int32_t i = 0; i < s->ranks->comm->size; i++) ids[i] = i;
    return (struct ht_team){.ranks = ids, .n = s->ranks->comm->size, .me = s->rank};
}

/* Sends memory from rank 0 to all. */
static enum ht_status broadcast(const struct ht_node_stores *s, void *data, int64_t bytes, struct ht_error *err)
{
    if (!s->ranks->comm || bytes == 0) return HT_OK;
    int32_t *ids = HT_NEW_ARRAY(int32_t, s->ranks->comm->size);
    enum ht_status status =
        ht_comm_broadcast(s->ranks->comm, ht_node_stores_team(s, ids), HT_TAG_STATE, 0, data, bytes, err);
    free(ids);
    return status;
}

/* Locks the stores that this rank's node leads, and removes what killed processes left in them. After the loss of a host the ranks of
   the incarnation before may take seconds to end on the others. */
static enum ht_status open_dirs(struct ht_node_stores *s, struct ht_error *err)
{
    int64_t patience_s = s->options->training.events ? SUCCESSOR_S : 0;
    enum ht_status status = HT_OK;
    for (int i = 0; i < N_STORES && status == HT_OK; i++) {
        bool mine = i == REMOTE ? s->rank == 0 : s->leads;
        if (!s->dirs[i][0] || !mine) continue;
        status = ht_store_open(s->dirs[i], patience_s, err, &s->locks[i]);
        if (status == HT_OK) ht_store_sweep(s->dirs[i]);
    }
    return status;
}

static enum ht_status check_options(const struct ht_options *o, const struct ht_job *job, struct ht_error *err)
{
    const char *alone = o->state.store_memory ? "--store-memory" : o->state.store_remote ? "--store-remote" : NULL;
    if (alone && !o->state.store) return ht_fail(err, HT_BAD_INPUT, "%s: --store DIR is missing beside it", alone);
    if (o->state.replicas && !o->state.store)
        return ht_fail(err, HT_BAD_INPUT, "--replicas: --store DIR is missing beside it");
    int32_t nodes = job->schedule->rank_node[job->schedule->n_ranks - 1] + 1;
    if (o->state.replicas && o->state.replicas >= nodes)
        return ht_fail(err, HT_BAD_INPUT, "--replicas: %lld other nodes are asked for; the job has %d node%s",
                       (long long)o->state.replicas, nodes, nodes == 1 ? "" : "s");
    if (o->state.store_remote_rate && !o->state.store_remote)
        return ht_fail(err, HT_BAD_INPUT, "--store-remote-rate: --store-remote DIR is missing beside it");
    if (o->state.load_remote && !o->state.store_remote)
        return ht_fail(err, HT_BAD_INPUT, "--load-remote: --store-remote DIR is missing beside it");
    return HT_OK;
}

enum ht_status ht_node_stores_open(const struct ht_options *options, const struct ht_job *job,
                                   const struct ht_ranks *ranks, struct ht_persist *persist, struct ht_error *err,
                                   struct ht_node_stores **out)
{
    const struct ht_schedule *g = job->schedule;
    *out = NULL;
    enum ht_status status = check_options(options, job, err);
    if (status != HT_OK || !options->state.store) return status;
    struct ht_node_stores *s = HT_NEW(struct ht_node_stores);
    *s = (struct ht_node_stores){.options = options, .job = job, .ranks = ranks, .locks = {-1, -1, -1}};
    s->rank = ranks->comm ? ranks->comm->rank : 0;
    s->node = g->rank_node[s->rank];
    s->leads = s->rank == 0 || g->rank_node[s->rank - 1] != s->node;
    s->run = (uint64_t)(now_s(CLOCK_REALTIME) * 1e9);
    s->figures.safe_step = -1;
    int32_t number = job->scenario.cluster->nodes[s->node].number;
    ht_store_node_dir(options->state.store, number, s->dirs[DISK]);
    if (options->state.store_memory) ht_store_node_dir(options->state.store_memory, number, s->dirs[MEMORY]);
    if (options->state.store_remote) snprintf(s->dirs[REMOTE], HT_STORE_DIR, "%s", options->state.store_remote);
    if (s->dirs[MEMORY][0]) status = check_memory(job, err);
    if (status == HT_OK)
        status = ht_drill_read(options->training.process_fault, g->n_ranks, ranks->events, err, &s->drill);
    s->drill.disk = options->state.store;
    if (status == HT_OK) status = open_dirs(s, err);
    status = ht_ranks_agree(ranks, status, err);
    if (status == HT_OK) status = broadcast(s, &s->run, sizeof(s->run), err);
    if (status == HT_OK) status = ht_node_stores_find(s, persist, err);
    if (status == HT_OK)
        *out = s;
    else
        ht_node_stores_close(s);
    return status;
}

void ht_node_stores_close(struct ht_node_stores *s)
{
    if (!s) return;
    atomic_store(&s->stop, true);
    if (s->threaded) pthread_join(s->writer, NULL);
    ht_store_part_free(&s->part);
    ht_store_part_free(&s->remote_part);
    ht_stored_state_destroy(s->stored);
    ht_catalog_free(&s->catalog);
    if (s->locks[MEMORY] >= 0) ht_store_drop_spares(s->dirs[MEMORY]);
    for (int i = 0; i < N_STORES; i++)
        if (s->locks[i] >= 0) close(s->locks[i]);
    free(s);
}

/* ---- the writer ---- */

static bool is_stopped(void *ctx)
{
    const struct ht_node_stores *s = ctx;
    return atomic_load(&s->stop);
}

/* Copies the save in flight on: to the disk, to other nodes, then to the remote store. */
static void *write_behind(void *ctx)
{
    struct ht_node_stores *s = ctx;
    struct ht_store_pace free_pace = {.stop = is_stopped, .ctx = s}, paced = free_pace;
    enum ht_status status = HT_OK;
    double begin = now_s(CLOCK_MONOTONIC);
    paced.bytes_per_s = s->options->state.store_remote_rate;
    if (s->dirs[MEMORY][0]) status = ht_store_copy(s->dirs[MEMORY], s->dirs[DISK], &s->part, free_pace, &s->failed);
    if (status == HT_OK) s->safe_s = now_s(CLOCK_MONOTONIC);
    if (s->options->state.replicas) status = ht_node_replicas_exchange(s, status, &s->failed);
    const char *nearest = s->dirs[s->dirs[MEMORY][0] ? MEMORY : DISK];
    if (status == HT_OK && s->dirs[REMOTE][0])
        ht_store_copy(nearest, s->dirs[REMOTE], &s->remote_part, paced, &s->failed);
    bool worked = s->dirs[MEMORY][0] || s->dirs[REMOTE][0] || s->options->state.replicas;
    s->written_s = worked ? now_s(CLOCK_MONOTONIC) - begin : 0;
    if (status == HT_OK && s->dirs[MEMORY][0]) ht_store_reserve(s->dirs[MEMORY], &s->part);
    return NULL;
}

/* Removes older steps: in memory all but the one that is whole, elsewhere all but the newest --keep. One rank of a host sees all
   stores on it, those of nodes that the job no longer has, too. */
static void remove_old(const struct ht_node_stores *s)
{
    const struct ht_options *o = s->options;
    int64_t keep = o->state.keep ? o->state.keep : 2, step = s->part.version.step;
    int32_t n;
    if (ht_ranks_local(s->ranks, &n) == 0) {
        if (o->state.store_memory) ht_store_recycle_nodes(o->state.store_memory, 1, step);
        ht_store_keep_nodes(o->state.store, keep, step);
    }
    if (s->rank == 0 && o->state.store_remote) ht_store_keep(o->state.store_remote, keep, step);
}

/* Waits for the writers of all ranks. Then the save is whole in all stores, and older ones are removed. */
static enum ht_status settle(struct ht_node_stores *s, struct ht_error *err)
{
    enum ht_status status = HT_OK;
    if (!s->in_flight) return HT_OK;
    if (s->threaded) pthread_join(s->writer, NULL);
    s->in_flight = s->threaded = false;
    if (s->failed.status != HT_OK) status = ht_fail(err, s->failed.status, "%s", s->failed.text);
    status = ht_ranks_agree(s->ranks, status, err);
    if (status != HT_OK) return status;
    s->figures.written_s += s->written_s;
    s->figures.safe_step = s->part.version.step;
    ht_events_say(ht_ranks_events(s->ranks), "safe", "\"step\": %lld", (long long)s->part.version.step);
    if (s->safe_s - s->begun_s > s->figures.oldest_s) s->figures.oldest_s = s->safe_s - s->begun_s;
    remove_old(s);
    /* Memory has room for two steps: nobody begins another one before the oldest one's files are there to be written over. */
    return s->dirs[MEMORY][0] ? ht_ranks_agree(s->ranks, HT_OK, err) : HT_OK;
}

/* ---- saving ---- */

/* Gives all ranks rank 0's counts and losses. */
static enum ht_status share_state(const struct ht_node_stores *s, struct ht_state *state, struct ht_error *err)
{
    struct ht_losses *l = &state->losses;
    struct {
        double loss_scale;
        int64_t good, n;
    } facts = {state->loss_scale, state->good, l->n};
    enum ht_status status = broadcast(s, &facts, sizeof(facts), err);
    if (status == HT_OK) status = broadcast(s, state->steps, state->n_units * (int64_t)sizeof(*state->steps), err);
    if (status != HT_OK) return status;
    state->loss_scale = facts.loss_scale;
    state->good = facts.good;
    HT_RESERVE(l->rows, l->cap, facts.n);
    l->n = facts.n;
    return broadcast(s, l->rows, l->n * (int64_t)sizeof(*l->rows), err);
}

static bool is_own(const struct ht_transfer_sink *sink, const struct ht_node_stores *s, const struct ht_extent *e)
{
    return sink->rank == s->rank && ht_extent_equal(&sink->extent, e);
}

/* Lists for the remote store the files with an extent that only this rank sends there. */
static void arrange_remote(struct ht_node_stores *s, const struct ht_transfer_sink *sinks, int64_t n,
                           const bool *to_remote)
{
    ht_store_part_free(&s->remote_part);
    s->remote_part = (struct ht_store_part){.version = s->part.version, .rank = s->rank};
    for (int64_t i = 0; i < s->part.n_files; i++) {
        const struct ht_store_file *f = &s->part.files[i];
        struct ht_store_file named = {0};
        bool sends = false;
        for (int64_t k = 0; k < f->n_extents; k++)
            for (int64_t x = 0; x < n; x++) sends |= to_remote[x] && is_own(&sinks[x], s, &f->extents[k]);
        memcpy(named.name, f->name, sizeof(named.name));
        if (sends) HT_PUSH(s->remote_part.files, s->remote_part.n_files, s->remote_part.cap, named);
    }
}

/* Lists in part and remote_part what this rank writes. */
static void arrange(struct ht_node_stores *s, const struct ht_state_map *map, int64_t step)
{
    const struct ht_model *m = &s->job->scenario.model;
    int64_t n, n_own = 0;
    struct ht_transfer_sink *sinks = ht_node_stores_sinks(s->job->schedule, m, map, false, &n);
    struct ht_extent *own = HT_NEW_ARRAY(struct ht_extent, n);
    bool *to_node = HT_NEW_ARRAY(bool, n), *to_remote = HT_NEW_ARRAY(bool, n);
    ht_store_owners(sinks, n, to_node, to_remote);
    for (int64_t i = 0; i < n; i++)
        if (sinks[i].rank == s->rank && to_node[i]) own[n_own++] = sinks[i].extent;
    ht_store_part_free(&s->part);
    s->part = (struct ht_store_part){.version = {step, s->run}, .rank = s->rank};
    ht_store_part_arrange(&s->part, m, own, n_own);
    arrange_remote(s, sinks, n, to_remote);
    free(to_node);
    free(to_remote);
    free(own);
    free(sinks);
}

struct reading {
    struct ht_node_stores *s;
    struct ht_stream *stream;
};

void ht_node_stores_pulse(struct ht_node_stores *s)
{
    enum { PULSE_NS = 250000000 };
    int64_t now = ht_now_ns();
    int_fast64_t said = atomic_load_explicit(&s->said_ns, memory_order_relaxed);
    if (now - said >= PULSE_NS && atomic_compare_exchange_strong(&s->said_ns, &said, now))
        ht_events_say(ht_ranks_events(s->ranks), "moved", NULL);
}

/* Reads elements of an extent from the copy that this rank has of it (ht_extent_read). The CPU's are written from where they are:
   training stands still. */
static enum ht_status read_own(void *ctx, const struct ht_extent *e, int64_t first, int64_t n, float *buffer,
                               const float **at, struct ht_error *err)
{
    const struct reading *r = ctx;
    const struct ht_state_copy *copies;
    int64_t n_copies = ht_state_map_copies(ht_stream_map(r->stream), e->unit, e->part, &copies), i = 0;
    enum ht_status status = ht_drill_meet(&r->s->drill, HT_DRILL_AT_SAVE, r->s->rank, r->s->part.version.step, err);
    if (status != HT_OK) return status;
    ht_node_stores_pulse(r->s);
    while (i < n_copies &&
           !(copies[i].rank == r->s->rank && !copies[i].stale && copies[i].begin == e->begin &&
             copies[i].end == e->end && copies[i].tp_part == e->tp_part && copies[i].tp_parts == e->tp_parts))
        i++;
    const float *values = ht_stream_copy_at(r->stream, &copies[i], first, n);
    if (!values) return ht_stream_read_copy(r->stream, &copies[i], first, n, buffer, err);
    *at = values;
    return HT_OK;
}

/* Adds up what was written, and takes over its sizes and hashes for the remote store. */
static void take_sums(struct ht_node_stores *s)
{
    int64_t next = 0;
    s->remote_part.losses = s->part.losses;
    for (int64_t i = 0; i < s->part.n_files; i++) {
        const struct ht_store_file *f = &s->part.files[i];
        s->figures.bytes += f->sum.bytes;
        if (next < s->remote_part.n_files && !strcmp(s->remote_part.files[next].name, f->name))
            s->remote_part.files[next++].sum = f->sum;
    }
}

/* Creates the workers of a save: training stands still, so its cores are free. A GPU and disks are read by one thread: NULL. */
static struct ht_pool *saving_pool(const struct ht_node_stores *s)
{
    enum { MOST = 8 };
    cpu_set_t cpus;
    int32_t ranks;
    ht_ranks_local(s->ranks, &ranks);
    if (s->job->platform.kind == HT_PLATFORM_GPU || s->job->system->disk) return NULL;
    if (sched_getaffinity(0, sizeof(cpus), &cpus) != 0 || CPU_COUNT(&cpus) < 2 * ranks) return NULL;
    int32_t workers = CPU_COUNT(&cpus) / ranks;
    return ht_pool_create(workers < MOST ? workers : MOST, NULL); /* NULL is a pool of one */
}

enum ht_status ht_node_stores_save(struct ht_node_stores *s, struct ht_stream *stream, struct ht_state *state,
                                   int64_t step, const struct ht_checkpoint_setting *settings, int n_settings,
                                   struct ht_error *err)
{
    double begin = now_s(CLOCK_MONOTONIC);
    struct reading r = {s, stream};
    enum ht_status status = settle(s, err);
    if (status != HT_OK) return status;
    s->begun_s = now_s(CLOCK_MONOTONIC);
    s->figures.waited_s += s->begun_s - begin;
    status = share_state(s, state, err);
    if (status != HT_OK) return status;
    arrange(s, ht_stream_map(stream), step);
    struct ht_state facts = *state; /* one rank of a node writes the losses */
    if (!s->leads) facts.losses = (struct ht_losses){0};
    const char *to = s->dirs[MEMORY][0] ? s->dirs[MEMORY] : s->dirs[DISK];
    struct ht_pool *pool = saving_pool(s);
    status = ht_store_write_by(pool, to, &s->part, &facts, settings, n_settings, read_own, &r, err);
    ht_pool_destroy(pool);
    status = ht_ranks_agree(s->ranks, status, err);
    if (status != HT_OK) return status;
    take_sums(s);
    s->failed = (struct ht_error){0};
    s->in_flight = true;
    s->threaded = pthread_create(&s->writer, NULL, write_behind, s) == 0;
    if (!s->threaded) write_behind(s); /* no thread can be had: training waits */
    s->figures.n_saved++;
    double stall_s = now_s(CLOCK_MONOTONIC) - begin;
    s->figures.stall_s += stall_s;
    if (s->figures.n_saved == 1) s->figures.first_stall_s = stall_s;
    return HT_OK;
}

void ht_node_stores_runs(const struct ht_node_stores *s, uint64_t *run, uint64_t *from)
{
    *run = s->run;
    *from = s->resumes ? s->version.run : 0;
}

int64_t ht_node_stores_newest(const struct ht_node_stores *s)
{
    if (s->in_flight || s->figures.safe_step >= 0) return s->part.version.step;
    return s->resumes ? s->version.step : -1;
}

enum ht_status ht_node_stores_finish(struct ht_node_stores *s, struct ht_error *err, struct ht_store_figures *out)
{
    enum ht_status status = settle(s, err);
    *out = s->figures;
    return status;
}
