/*
 * A catalog: what several stores have, by extent; AutoHet's layer bitmap (Sec. IV) with ranges. All ranks of a job can
 * share one: a row is plain memory, and a store's rows come from the process that sees its directory.
 *
 *     ht_catalog_add       manifests, one line about each that is unsound
 *     ht_catalog_versions  the versions, newest first
 *     ht_catalog_verify    sizes and hashes of a version's files, one line about each that is not as its manifest says
 *     ht_catalog_covers    whether what is left has all of the state
 */
#ifndef HT_STORE_CATALOG_H
#define HT_STORE_CATALOG_H

#include "common/store/store.h"
#include "common/store/transfer.h"

struct ht_store {
    char dir[HT_STORE_DIR];
    enum ht_store_medium medium;
    int32_t node; /* that has it; a remote store has none: -1 */
};

/* An extent of a version in a store. */
struct ht_stored_extent {
    struct ht_version version;
    struct ht_extent extent;
    int32_t store; /* row of the catalog's stores */
    int32_t rank;  /* that wrote it */
    char file[HT_STORE_NAME];
    struct ht_manifest_file sum; /* the file's */
};

/* A manifest of a version. */
struct ht_stored_manifest {
    struct ht_version version;
    int32_t store, rank;
    char *text;
    struct ht_manifest_file losses; /* bytes -1: none */
};

struct ht_catalog {
    struct ht_store *stores;
    int64_t n_stores;
    size_t stores_cap;
    struct ht_stored_extent *rows;
    int64_t n;
    size_t cap;
    struct ht_stored_manifest *manifests;
    int64_t n_manifests;
    size_t manifests_cap;
};

/* Receives one line about what is not used, and why. */
struct ht_catalog_log {
    void (*say)(void *ctx, const char *line);
    void *ctx;
};

/* Adds a store, and what the sound manifests in its directory name. */
void ht_catalog_add(struct ht_catalog *c, const char *dir, enum ht_store_medium medium, int32_t node,
                    struct ht_catalog_log log);
/* Adds the stores that a directory holds: "node-0003", .. of nodes, in memory on tmpfs, else on disk; or the directory itself, the
   remote one. Returns the number of stores with a version. */
int64_t ht_catalog_add_tree(struct ht_catalog *c, const char *dir, struct ht_catalog_log log);
/* Does ht_store_keep in each node's store under `root`. */
void ht_store_keep_nodes(const char *root, int64_t keep, int64_t step);
void ht_store_recycle_nodes(const char *root, int64_t keep, int64_t step); /* the same of ht_store_recycle */
/* Writes the directory of a node's store under `root`. */
void ht_store_node_dir(const char *root, int32_t node, char dir[HT_STORE_DIR]);
void ht_catalog_free(struct ht_catalog *c);

/* Lists the versions of all rows, newest first; allocated. */
struct ht_version *ht_catalog_versions(const struct ht_catalog *c, int64_t *n);
/* Removes those rows of a version whose files are missing, have another size or another hash. */
void ht_catalog_verify(struct ht_catalog *c, struct ht_version v, struct ht_catalog_log log);
/* Returns the rows of a version as sources, allocated; (*rows)[i] is the row of the i-th, allocated. */
struct ht_transfer_source *ht_catalog_sources(const struct ht_catalog *c, struct ht_version v, int64_t *n,
                                              int64_t **rows);
/* Checks that a version has all of a model's state. HT_INFEASIBLE says what is missing. */
enum ht_status ht_catalog_covers(const struct ht_catalog *c, struct ht_version v, const struct ht_model *m,
                                 struct ht_error *err);
/* Returns a manifest of a version, or NULL. */
const struct ht_stored_manifest *ht_catalog_manifest(const struct ht_catalog *c, struct ht_version v);

/* Reads the losses that a version keeps, from the first sound file; none where there is none. */
void ht_catalog_losses(const struct ht_catalog *c, struct ht_version v, struct ht_losses *out);

/* ---- reading ---- */

/* Reads rows' elements, with a few files open at a time. */
struct ht_store_reader;
struct ht_store_reader *ht_store_reader_create(const struct ht_catalog *c);
void ht_store_reader_destroy(struct ht_store_reader *r); /* accepts NULL */
/* Reads elements [first, first + n) of a row's extent. */
enum ht_status ht_store_reader_read(struct ht_store_reader *r, int64_t row, int64_t first, int64_t n, float *out,
                                    struct ht_error *err);

/* A version as the source of a state's values (common/ckpt/state.h): any file format can be made from it. */
struct ht_stored_state;
/* Creates it for a catalog, which is borrowed. HT_INFEASIBLE if the version has not all of the state. */
enum ht_status ht_stored_state_create(const struct ht_catalog *c, struct ht_version v, const struct ht_model *m,
                                      struct ht_error *err, struct ht_stored_state **out);
struct ht_source ht_stored_state_source(struct ht_stored_state *s);
void ht_stored_state_destroy(struct ht_stored_state *s); /* accepts NULL */

#endif
