#include "harness/elastic/planbook.h"

#include "common/base/array.h"
#include "common/base/builtin.h"
#include "common/base/tasks.h"
#include "common/ckpt/durable.h"
#include "common/store/owners.h"
#include "harness/run/node_stores_parts.h"
#include "harness/run/output.h"
#include "harness/run/registry.h"
#include "harness/run/simulate.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* A plan with the system that made it. */
struct page {
    const char *system;
    struct ht_planned plan;
};

struct ht_planbook {
    const struct ht_options *options;
    const struct ht_cluster *kinds;
    struct ht_scenario scenario; /* of one node of each kind: the model, and a check of what all plans share */
    const char *dir;
    uint64_t key;
    struct page **pages; /* [n] */
    size_t n, cap;
    size_t made, remembered;
    pthread_mutex_t lock;
};

struct ht_cluster *ht_fleet_cluster(const struct ht_cluster *kinds, const struct ht_fleet *fleet)
{
    struct ht_cluster *c = HT_NEW(struct ht_cluster);
    size_t n = 0, cap = 0;
    *c = *kinds;
    c->nodes = NULL;
    c->n_gpus = 0;
    for (int64_t k = 0; k < kinds->n_nodes; k++)
        for (int32_t i = 0; i < fleet->count[k]; i++) {
            struct ht_machine m = kinds->nodes[k];
            m.groups = HT_NEW_ARRAY(struct ht_gpu_group, m.n_groups);
            memcpy(m.groups, kinds->nodes[k].groups, sizeof(*m.groups) * (size_t)m.n_groups);
            HT_PUSH(c->nodes, n, cap, m);
            c->n_gpus += m.n_gpus;
        }
    c->n_nodes = (int64_t)n;
    c->between = HT_NEW_ARRAY(struct ht_between, kinds->n_between);
    if (kinds->n_between) memcpy(c->between, kinds->between, sizeof(*c->between) * (size_t)kinds->n_between);
    return c;
}

/* ---- one plan --------------------------------------------------------------------------------------------------- */

/* Fills in what each rank holds, and how long a save stops training. */
static enum ht_status read_state(const struct ht_job *job, struct ht_error *err, struct ht_planned *p)
{
    const struct ht_schedule *g = job->schedule;
    const struct ht_model *m = &job->scenario.model;
    struct ht_state_map *map = NULL;
    enum ht_status status = ht_state_map_create(g, m, job->scenario.numerics.param, err, &map);
    if (status) return status;
    p->sinks = ht_node_stores_sinks(g, m, map, false, &p->n_sinks);
    ht_state_map_destroy(map);
    bool *to_node = HT_NEW_ARRAY(bool, p->n_sinks), *to_remote = HT_NEW_ARRAY(bool, p->n_sinks);
    int64_t *bytes = HT_NEW_ARRAY(int64_t, g->n_ranks);
    ht_store_owners(p->sinks, p->n_sinks, to_node, to_remote);
    for (int64_t i = 0; i < p->n_sinks; i++) {
        int64_t b = (p->sinks[i].extent.end - p->sinks[i].extent.begin) * (int64_t)sizeof(float);
        if (to_node[i]) bytes[p->sinks[i].rank] += b;
        if (to_remote[i]) p->state_bytes += b;
    }
    for (int32_t r = 0; r < g->n_ranks; r++) {
        double rate = ht_link_rate(&ht_cluster_node_of(job->scenario.cluster, r, NULL)->pcie);
        int64_t ns = (int64_t)((double)bytes[r] / rate * 1e9);
        if (ns > p->stall_ns) p->stall_ns = ns;
    }
    free(to_node);
    free(to_remote);
    free(bytes);
    return HT_OK;
}

/* Writes a plan's variables, but for the places of stages. */
static void describe(const struct ht_plan *plan, char *out, size_t bytes)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    for (int i = 0; f && i < plan->n_variables; i++) {
        if (plan->variables[i].kind == HT_VARIABLE_RANKS) continue;
        fprintf(f, "%s%s=", i ? " " : "", plan->variables[i].name);
        ht_variable_print(&plan->variables[i], f);
    }
    if (f) fclose(f);
    snprintf(out, bytes, "%s", text ? text : "");
    free(text);
}

/* Plans and simulates for the time alone. Who holds which states is a question of all replicas. */
static enum ht_status evaluate(const struct ht_options *options, const char *system, struct ht_error *err,
                               struct ht_planned *p)
{
    struct ht_options o = *options;
    struct ht_job job;
    o.sim.every_replica = true;
    enum ht_status status = ht_job_create(&o, system, NULL, HT_JOB_PRICED, err, &job);
    if (status == HT_BAD_INPUT) { /* of these nodes: the book has checked the rest */
        snprintf(p->why, sizeof(p->why), "%.190s", err->text);
        return HT_OK;
    }
    if (status) return status;
    p->fits = job.answer == HT_OK;
    if (!p->fits) snprintf(p->why, sizeof(p->why), "%.190s", job.reason);
    if (p->fits) {
        p->n_gpus = job.scenario.cluster->n_gpus;
        describe(&job.plan, p->why, sizeof(p->why));
        status = ht_iteration_time(&o, &job, INT64_MAX, err, &p->iteration_ns);
        if (status == HT_OK) status = read_state(&job, err, p);
    }
    ht_job_free(&job);
    return status;
}

/* Makes a plan. system: a name with settings. */
static enum ht_status make(const struct ht_planbook *book, const char *system, const struct ht_fleet *fleet,
                           struct ht_error *err, struct ht_planned *p)
{
    struct ht_options o = *book->options;
    struct ht_cluster *cluster = ht_fleet_cluster(book->kinds, fleet);
    char *words = ht_strdup(system);
    *p = (struct ht_planned){.fleet = *fleet};
    o.request.made = cluster;
    o.request.cluster = "fleet";
    const char *name = ht_variant_of(words, &o);
    enum ht_status status = evaluate(&o, name, err, p);
    free(words);
    ht_cluster_destroy(cluster);
    return status;
}

/* ---- the book --------------------------------------------------------------------------------------------------- */

static struct page *find(const struct ht_planbook *book, const char *system, const struct ht_fleet *fleet)
{
    for (size_t i = 0; i < book->n; i++)
        if (!memcmp(&book->pages[i]->plan.fleet, fleet, sizeof(*fleet)) && !strcmp(book->pages[i]->system, system))
            return book->pages[i];
    return NULL;
}

static struct page *add(struct ht_planbook *book, const char *system, const struct ht_planned *plan)
{
    struct page *page = HT_NEW(struct page);
    *page = (struct page){system, *plan};
    HT_PUSH(book->pages, book->n, book->cap, page);
    return page;
}

enum ht_status ht_planbook_get(struct ht_planbook *book, const char *system, const struct ht_fleet *fleet,
                               struct ht_error *err, const struct ht_planned **out)
{
    struct ht_planned plan;
    pthread_mutex_lock(&book->lock);
    struct page *page = find(book, system, fleet);
    pthread_mutex_unlock(&book->lock);
    if (!page) {
        enum ht_status status = make(book, system, fleet, err, &plan);
        if (status) {
            free(plan.sinks);
            return status;
        }
        pthread_mutex_lock(&book->lock);
        page = add(book, system, &plan);
        book->made++;
        pthread_mutex_unlock(&book->lock);
    }
    *out = &page->plan;
    return HT_OK;
}

struct filling {
    struct ht_planbook *book;
    const struct ht_wanted *wanted;
    size_t *rows; /* of wanted, that the book lacks, each once */
};

static enum ht_status fill_one(void *ctx, size_t i, struct ht_error *err)
{
    struct filling *f = ctx;
    const struct ht_wanted *w = &f->wanted[f->rows[i]];
    const struct ht_planned *ignored;
    return ht_planbook_get(f->book, w->system, &w->fleet, err, &ignored);
}

static bool is_listed(const struct filling *f, size_t n, const struct ht_wanted *w)
{
    for (size_t i = 0; i < n; i++)
        if (!memcmp(&f->wanted[f->rows[i]].fleet, &w->fleet, sizeof(w->fleet)) &&
            !strcmp(f->wanted[f->rows[i]].system, w->system))
            return true;
    return false;
}

enum ht_status ht_planbook_fill(struct ht_planbook *book, const struct ht_wanted *wanted, size_t n,
                                struct ht_error *err)
{
    struct filling f = {book, wanted, HT_NEW_ARRAY(size_t, n)};
    struct ht_tasks tasks = {.name = "plans", .noun = "plans", .ctx = &f, .run = fill_one};
    for (size_t i = 0; i < n; i++)
        if (!find(book, wanted[i].system, &wanted[i].fleet) && !is_listed(&f, tasks.n, &wanted[i]))
            f.rows[tasks.n++] = i;
    enum ht_status status = ht_tasks_run(&tasks, err);
    free(f.rows);
    return status;
}

size_t ht_planbook_made(const struct ht_planbook *book, size_t *remembered)
{
    *remembered = book->remembered;
    return book->made;
}

/* ---- the folder ------------------------------------------------------------------------------------------------- */

/* A file: the header, then records, each with its system's name and sinks behind it. The file's hash is at its end. */
struct header {
    char magic[8];
    uint64_t key, n;
};
struct record {
    char system[64];
    struct ht_planned plan; /* sinks: NULL */
};
static const char magic[8] = "hetplan1";

static void path_of(const struct ht_planbook *book, char path[HT_PATH_BYTES])
{
    snprintf(path, HT_PATH_BYTES, "%s/plans-%016llx.bin", book->dir, (unsigned long long)book->key);
}

/* Returns all that plans depend on, hashed. */
static uint64_t key_of(const struct ht_options *o, const struct ht_cluster *kinds)
{
    const struct ht_scenario_request *r = &o->request;
    const char *const names[] = {r->model, r->numerics, r->accumulate, r->control, r->loss_scale, r->software};
    const double numbers[] = {(double)r->batch,
                              (double)r->micro_batch,
                              (double)r->seq,
                              (double)r->blocks,
                              (double)r->max_seq,
                              r->clip,
                              (double)r->device_memory_bytes,
                              (double)r->host_memory_bytes,
                              (double)o->sim.iterations,
                              (double)o->sim.warmup};
    struct ht_hash *hash = ht_hash_begin();
    struct ht_error ignored;
    uint64_t program = 0, model = 0;
    int64_t bytes;
    if (ht_hash_file("/proc/self/exe", &ignored, &program, &bytes) != HT_OK) program = 0;
    if (r->model && ht_is_path(r->model)) (void)ht_hash_file(r->model, &ignored, &model, &bytes);
    ht_hash_add(hash, &program, sizeof(program));
    ht_hash_add(hash, &model, sizeof(model));
    for (size_t i = 0; i < HT_COUNT(names); i++)
        ht_hash_add(hash, names[i] ? names[i] : "", strlen(names[i] ? names[i] : "") + 1);
    ht_hash_add(hash, numbers, sizeof(numbers));
    for (int64_t i = 0; i < o->plan.n_set; i++) ht_hash_add(hash, o->plan.set[i], strlen(o->plan.set[i]) + 1);
    for (int64_t k = 0; k < kinds->n_nodes; k++) {
        struct ht_machine m = kinds->nodes[k];
        ht_hash_add(hash, m.groups, sizeof(*m.groups) * (size_t)m.n_groups);
        m.groups = NULL;
        ht_hash_add(hash, &m, sizeof(m));
    }
    for (int64_t i = 0; i < kinds->n_between; i++) ht_hash_add(hash, &kinds->between[i], sizeof(kinds->between[i]));
    return ht_hash_end(hash);
}

/* Takes the bytes at *at, if there are so many before `end`. */
static bool take(const char **at, const char *end, void *out, size_t bytes)
{
    if ((size_t)(end - *at) < bytes) return false;
    memcpy(out, *at, bytes);
    *at += bytes;
    return true;
}

/* Reads one record. The system's name is one of a policy. */
static bool take_page(struct ht_planbook *book, const char **at, const char *end)
{
    struct record r;
    const struct ht_policy *p;
    if (!take(at, end, &r, sizeof(r)) || r.system[sizeof(r.system) - 1] || r.plan.n_sinks < 0) return false;
    size_t i = 0, bytes = (size_t)r.plan.n_sinks * sizeof(*r.plan.sinks);
    if ((size_t)(end - *at) < bytes) return false;
    while ((p = ht_policy_at(i)) && strcmp(p->system, r.system) != 0) i++;
    r.plan.sinks = ht_alloc(bytes);
    (void)take(at, end, r.plan.sinks, bytes);
    if (!p)
        free(r.plan.sinks);
    else
        add(book, p->system, &r.plan);
    return true;
}

static void read_pages(struct ht_planbook *book, const char *text, size_t bytes)
{
    const char *at = text, *end = text + bytes - sizeof(uint64_t);
    struct header h;
    uint64_t sum;
    if (bytes < sizeof(h) + sizeof(sum)) return;
    struct ht_hash *hash = ht_hash_begin();
    ht_hash_add(hash, text, bytes - sizeof(sum));
    memcpy(&sum, end, sizeof(sum));
    if (ht_hash_end(hash) != sum || !take(&at, end, &h, sizeof(h)) || memcmp(h.magic, magic, sizeof(magic)) != 0 ||
        h.key != book->key)
        return;
    for (uint64_t i = 0; i < h.n && take_page(book, &at, end); i++) book->remembered++;
}

static void load(struct ht_planbook *book)
{
    char path[HT_PATH_BYTES], *text = NULL;
    size_t n = 0, cap = 0, got;
    path_of(book, path);
    FILE *f = fopen(path, "rb");
    if (!f) return;
    do {
        HT_RESERVE(text, cap, n + (1 << 20));
        got = fread(text + n, 1, 1 << 20, f);
        n += got;
    } while (got);
    fclose(f);
    if (n >= sizeof(uint64_t)) read_pages(book, text, n);
    free(text);
}

static void save(const struct ht_planbook *book)
{
    char path[HT_PATH_BYTES], *text = NULL;
    size_t n = 0;
    struct ht_error ignored;
    struct ht_durable d;
    struct header h = {.key = book->key, .n = book->n};
    FILE *f = open_memstream(&text, &n);
    if (!f) return;
    memcpy(h.magic, magic, sizeof(magic));
    fwrite(&h, sizeof(h), 1, f);
    for (size_t i = 0; i < book->n; i++) {
        struct record *r = HT_NEW(struct record);
        snprintf(r->system, sizeof(r->system), "%s", book->pages[i]->system);
        r->plan = book->pages[i]->plan;
        r->plan.sinks = NULL;
        fwrite(r, sizeof(*r), 1, f);
        fwrite(book->pages[i]->plan.sinks, sizeof(*r->plan.sinks), (size_t)r->plan.n_sinks, f);
        free(r);
    }
    fclose(f);
    struct ht_hash *hash = ht_hash_begin();
    ht_hash_add(hash, text, n);
    uint64_t sum = ht_hash_end(hash);
    path_of(book, path);
    if (ht_durable_open(path, &ignored, &d) == HT_OK) {
        if (ht_durable_write(&d, text, n, &ignored) == HT_OK &&
            ht_durable_write(&d, &sum, sizeof(sum), &ignored) == HT_OK)
            (void)ht_durable_commit(&d, &ignored, NULL);
        else
            ht_durable_discard(&d);
    }
    free(text);
}

/* ---- from beginning to end -------------------------------------------------------------------------------------- */

/* Makes the scenario of one node of each kind, which checks what all plans share: the model, the batch, numbers. */
static enum ht_status make_scenario(const struct ht_options *o, const struct ht_cluster *kinds, struct ht_error *err,
                                    struct ht_scenario *out)
{
    struct ht_scenario_request request = ht_job_request(o, NULL);
    if (!request.model)
        return ht_fail(err, HT_BAD_INPUT, "--model is missing; hetbench list models shows those there are");
    if (kinds->n_nodes > HT_FLEET_KINDS)
        return ht_fail(err, HT_BAD_INPUT, "cluster '%s' has %lld kinds of nodes; expected at most %d", kinds->name,
                       (long long)kinds->n_nodes, HT_FLEET_KINDS);
    request.made = kinds;
    request.cluster = kinds->name;
    return ht_scenario_create(&request, err, out);
}

const struct ht_model *ht_planbook_model(const struct ht_planbook *book)
{
    return &book->scenario.model;
}

enum ht_status ht_planbook_create(const struct ht_options *options, const struct ht_cluster *kinds, const char *dir,
                                  struct ht_error *err, struct ht_planbook **out)
{
    struct ht_scenario scenario;
    enum ht_status status = make_scenario(options, kinds, err, &scenario);
    if (status) return status;
    if (dir) status = ht_make_directory(dir, err);
    if (status) {
        ht_scenario_free(&scenario);
        return status;
    }
    struct ht_planbook *book = HT_NEW(struct ht_planbook);
    book->scenario = scenario;
    book->options = options;
    book->kinds = kinds;
    book->dir = dir;
    pthread_mutex_init(&book->lock, NULL);
    if (dir) book->key = key_of(options, kinds);
    if (dir) load(book);
    *out = book;
    return HT_OK;
}

void ht_planbook_destroy(struct ht_planbook *book)
{
    if (!book) return;
    if (book->dir && book->made) save(book);
    for (size_t i = 0; i < book->n; i++) {
        free(book->pages[i]->plan.sinks);
        free(book->pages[i]);
    }
    free(book->pages);
    ht_scenario_free(&book->scenario);
    pthread_mutex_destroy(&book->lock);
    free(book);
}
