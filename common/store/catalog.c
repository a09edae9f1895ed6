#include "common/store/catalog.h"

#include "common/base/array.h"
#include "common/ckpt/durable.h"

#include <dirent.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>

/* ---- manifests ---- */

static void add_part(struct ht_catalog *c, int32_t store, const struct ht_store_part *p, char *text)
{
    struct ht_stored_manifest manifest = {
        .version = p->version, .store = store, .rank = p->rank, .text = text, .losses = p->losses};
    HT_PUSH(c->manifests, c->n_manifests, c->manifests_cap, manifest);
    for (int64_t i = 0; i < p->n_files; i++)
        for (int64_t k = 0; k < p->files[i].n_extents; k++) {
            struct ht_stored_extent row = {.version = p->version,
                                           .extent = p->files[i].extents[k],
                                           .store = store,
                                           .rank = p->rank,
                                           .sum = p->files[i].sum};
            snprintf(row.file, sizeof(row.file), "%s", p->files[i].name);
            HT_PUSH(c->rows, c->n, c->cap, row);
        }
}

/* Reads the rank in "rank-0005.json". */
static bool read_rank(const char *name, int32_t *rank)
{
    char again[HT_STORE_NAME];
    if (sscanf(name, "rank-%9d.json", rank) != 1) return false;
    ht_store_manifest_name(*rank, again);
    return !strcmp(name, again);
}

static int ascending(const void *a, const void *b)
{
    return *(const int32_t *)a - *(const int32_t *)b;
}

static void add_version(struct ht_catalog *c, int32_t store, struct ht_version v, struct ht_catalog_log log)
{
    char path[HT_STORE_PATH];
    int32_t *ranks = NULL, rank;
    size_t n = 0, cap = 0;
    ht_store_path(c->stores[store].dir, v, NULL, path);
    DIR *d = opendir(path);
    for (const struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d))
        if (read_rank(e->d_name, &rank)) HT_PUSH(ranks, n, cap, rank);
    if (d) closedir(d);
    if (n) qsort(ranks, n, sizeof(*ranks), ascending);
    for (size_t i = 0; i < n; i++) {
        struct ht_store_part p = {0};
        struct ht_error why;
        char *text = NULL;
        if (ht_store_read_part(c->stores[store].dir, v, ranks[i], &why, &p, &text) == HT_OK)
            add_part(c, store, &p, text);
        else
            log.say(log.ctx, why.text);
        ht_store_part_free(&p);
    }
    free(ranks);
}

void ht_catalog_add(struct ht_catalog *c, const char *dir, enum ht_store_medium medium, int32_t node,
                    struct ht_catalog_log log)
{
    int64_t n;
    struct ht_store store = {.medium = medium, .node = node};
    snprintf(store.dir, sizeof(store.dir), "%s", dir);
    HT_PUSH(c->stores, c->n_stores, c->stores_cap, store);
    struct ht_version *versions = ht_store_versions(dir, &n);
    for (int64_t i = 0; i < n; i++) add_version(c, (int32_t)c->n_stores - 1, versions[i], log);
    free(versions);
}

void ht_store_node_dir(const char *root, int32_t node, char dir[HT_STORE_DIR])
{
    snprintf(dir, HT_STORE_DIR, "%.*s/node-%04d", HT_STORE_DIR - 32, root, node);
}

static enum ht_store_medium medium_of(const char *dir)
{
    struct statfs fs;
    return statfs(dir, &fs) == 0 && fs.f_type == TMPFS_MAGIC ? HT_STORE_MEMORY : HT_STORE_DISK;
}

/* Lists the numbers of the directories "node-0003", ..; allocated. */
static int32_t *list_nodes(const char *root, size_t *n)
{
    int32_t *nodes = NULL, node;
    size_t cap = 0;
    DIR *d = opendir(root);
    *n = 0;
    for (const struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        char again[32];
        if (sscanf(e->d_name, "node-%9d", &node) != 1) continue;
        snprintf(again, sizeof(again), "node-%04d", node);
        if (!strcmp(again, e->d_name)) HT_PUSH(nodes, *n, cap, node);
    }
    if (d) closedir(d);
    if (*n) qsort(nodes, *n, sizeof(*nodes), ascending);
    return nodes;
}

int64_t ht_catalog_add_tree(struct ht_catalog *c, const char *dir, struct ht_catalog_log log)
{
    size_t n;
    int64_t found = 0, before;
    int32_t *nodes = list_nodes(dir, &n);
    for (size_t i = 0; i < n; i++) {
        char store[HT_STORE_DIR];
        before = c->n_manifests;
        ht_store_node_dir(dir, nodes[i], store);
        ht_catalog_add(c, store, medium_of(store), nodes[i], log);
        found += c->n_manifests > before;
    }
    free(nodes);
    if (n) return found;
    before = c->n_manifests;
    ht_catalog_add(c, dir, HT_STORE_REMOTE, -1, log);
    return c->n_manifests > before;
}

static void each_node(const char *root, int64_t keep, int64_t step, void (*act)(const char *, int64_t, int64_t))
{
    size_t n;
    int32_t *nodes = list_nodes(root, &n);
    for (size_t i = 0; i < n; i++) {
        char dir[HT_STORE_DIR];
        ht_store_node_dir(root, nodes[i], dir);
        act(dir, keep, step);
    }
    free(nodes);
}

void ht_store_keep_nodes(const char *root, int64_t keep, int64_t step)
{
    each_node(root, keep, step, ht_store_keep);
}

void ht_store_recycle_nodes(const char *root, int64_t keep, int64_t step)
{
    each_node(root, keep, step, ht_store_recycle);
}

void ht_catalog_free(struct ht_catalog *c)
{
    for (int64_t i = 0; i < c->n_manifests; i++) free(c->manifests[i].text);
    free(c->manifests);
    free(c->stores);
    free(c->rows);
    *c = (struct ht_catalog){0};
}

/* ---- versions ---- */

static bool is_version(const struct ht_stored_extent *row, struct ht_version v)
{
    return ht_version_compare(&row->version, &v) == 0;
}

static int newest_first(const void *a, const void *b)
{
    return ht_version_compare(b, a);
}

struct ht_version *ht_catalog_versions(const struct ht_catalog *c, int64_t *n)
{
    struct ht_version *v = HT_NEW_ARRAY(struct ht_version, c->n);
    for (int64_t i = 0; i < c->n; i++) v[i] = c->rows[i].version;
    if (c->n) qsort(v, (size_t)c->n, sizeof(*v), newest_first);
    *n = 0;
    for (int64_t i = 0; i < c->n; i++)
        if (i == 0 || ht_version_compare(&v[i], &v[*n - 1]) != 0) v[(*n)++] = v[i];
    return v;
}

/* Checks a row's file. Returns HT_OK, or HT_BAD_INPUT with one line. */
static enum ht_status check(const struct ht_catalog *c, const struct ht_stored_extent *row, struct ht_error *err)
{
    char path[HT_STORE_PATH];
    struct ht_manifest_file found;
    struct stat sb;
    ht_store_path(c->stores[row->store].dir, row->version, row->file, path);
    if (stat(path, &sb) == 0 && sb.st_size != row->sum.bytes)
        return ht_fail(err, HT_BAD_INPUT, "%s: has %lld bytes; its manifest says %lld", path, (long long)sb.st_size,
                       (long long)row->sum.bytes);
    enum ht_status status = ht_hash_file(path, err, &found.hash, &found.bytes);
    if (status != HT_OK || found.hash == row->sum.hash) return status;
    return ht_fail(err, HT_BAD_INPUT, "%s: has the hash %016llx; its manifest says %016llx", path,
                   (unsigned long long)found.hash, (unsigned long long)row->sum.hash);
}

static bool same_file(const struct ht_stored_extent *a, const struct ht_stored_extent *b)
{
    return a->store == b->store && a->rank == b->rank && ht_version_compare(&a->version, &b->version) == 0 &&
           !strcmp(a->file, b->file);
}

void ht_catalog_verify(struct ht_catalog *c, struct ht_version v, struct ht_catalog_log log)
{
    struct ht_stored_extent before = {.store = -1}; /* the rows of a file are adjacent */
    int64_t kept = 0;
    bool sound = true;
    for (int64_t i = 0; i < c->n; i++) {
        struct ht_stored_extent row = c->rows[i];
        struct ht_error why;
        if (!same_file(&row, &before)) {
            sound = !is_version(&row, v) || check(c, &row, &why) == HT_OK;
            if (!sound) log.say(log.ctx, why.text);
        }
        before = row;
        if (sound) c->rows[kept++] = row;
    }
    c->n = kept;
}

struct ht_transfer_source *ht_catalog_sources(const struct ht_catalog *c, struct ht_version v, int64_t *n,
                                              int64_t **rows)
{
    struct ht_transfer_source *sources = HT_NEW_ARRAY(struct ht_transfer_source, c->n);
    *rows = HT_NEW_ARRAY(int64_t, c->n);
    *n = 0;
    for (int64_t i = 0; i < c->n; i++) {
        const struct ht_store *store = &c->stores[c->rows[i].store];
        if (!is_version(&c->rows[i], v)) continue;
        (*rows)[*n] = i;
        sources[(*n)++] = (struct ht_transfer_source){c->rows[i].extent, store->medium, store->node};
    }
    return sources;
}

const struct ht_stored_manifest *ht_catalog_manifest(const struct ht_catalog *c, struct ht_version v)
{
    for (int64_t i = 0; i < c->n_manifests; i++)
        if (ht_version_compare(&c->manifests[i].version, &v) == 0) return &c->manifests[i];
    return NULL;
}

void ht_catalog_losses(const struct ht_catalog *c, struct ht_version v, struct ht_losses *out)
{
    for (int64_t i = 0; i < c->n_manifests; i++) {
        const struct ht_stored_manifest *m = &c->manifests[i];
        char path[HT_STORE_PATH], name[HT_STORE_NAME];
        struct ht_manifest_file found;
        if (m->losses.bytes < 0 || ht_version_compare(&m->version, &v) != 0) continue;
        ht_store_losses_name(m->rank, name);
        ht_store_path(c->stores[m->store].dir, v, name, path);
        if (ht_hash_file(path, NULL, &found.hash, &found.bytes) == HT_OK && found.hash == m->losses.hash &&
            ht_losses_read(path, NULL, out) == HT_OK)
            return;
    }
}

enum ht_status ht_catalog_covers(const struct ht_catalog *c, struct ht_version v, const struct ht_model *m,
                                 struct ht_error *err)
{
    struct ht_stored_state *s = NULL;
    enum ht_status status = ht_stored_state_create(c, v, m, err, &s);
    ht_stored_state_destroy(s);
    return status;
}
