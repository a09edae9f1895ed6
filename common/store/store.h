/*
 * A store: a directory with what ranks have written of some steps of a training. A node has one in its memory (tmpfs:
 * it outlives processes and dies with the node) and one on its disk; one more is remote, for all nodes.
 *
 *     DIR/step-0000000100.18a2f3c04d5e6f70/          a version: the step, and when the run that wrote it began
 *         unit-0003.tp1of2.safetensors               part 1 of 2 of a unit: its state in FP32
 *         unit-0003.tp0of1.rank5.safetensors         what rank 5 has of a part, where that is not all: ZeRO's shards
 *         rank-0005.losses.csv                       the losses of steps 1 to 100; of some ranks
 *         rank-0005.json                             rank 5's manifest
 *
 * A rank writes what it holds, without asking another rank. Each file is written under a temporary name, synced and renamed
 * (common/ckpt/durable.h). The rank's manifest comes last: it names its files with size, hash and extents. A file counts
 * if a manifest names it and it has that size and hash. A step counts if the files of all live stores have all elements
 * of the state (catalog.h). So whatever dies at any moment, the last step that counted still counts.
 *
 * Two runs may write the same step, one of them after going back. Their files never mix: the version says the run.
 */
#ifndef HT_STORE_STORE_H
#define HT_STORE_STORE_H

#include "common/base/pool.h"
#include "common/ckpt/checkpoint.h"
#include "common/ckpt/manifest.h"
#include "common/store/extent.h"

#include <limits.h>

enum { HT_STORE_NAME = 64, HT_STORE_DIR = PATH_MAX - 256, HT_STORE_PATH = PATH_MAX };

struct ht_version {
    int64_t step;
    uint64_t run; /* a later run has a larger number */
};
/* Orders versions by step, then by run. */
int ht_version_compare(const struct ht_version *a, const struct ht_version *b);

/* A file: extents of one part of a unit, a tensor each. */
struct ht_store_file {
    char name[HT_STORE_NAME];
    struct ht_extent *extents;
    int64_t n_extents;
    size_t cap;
    struct ht_manifest_file sum; /* size and hash */
};

/* What a rank has written of a version, as its manifest says. */
struct ht_store_part {
    struct ht_version version;
    int32_t rank;
    struct ht_store_file *files;
    int64_t n_files;
    size_t cap;
    struct ht_manifest_file losses; /* bytes -1: none */
};
void ht_store_part_free(struct ht_store_part *p);

/* Sorts what a rank writes into files, one for each part of a unit, and names them. extents: allocated copies are made. */
void ht_store_part_arrange(struct ht_store_part *p, const struct ht_model *m, struct ht_extent *extents, int64_t n);

void ht_store_version_name(struct ht_version v, char name[HT_STORE_NAME]);
/* Reads such a name. Returns false for any other. */
bool ht_store_read_version(const char *name, struct ht_version *out);
/* Writes the path of a file of a version; file NULL: of its folder. */
void ht_store_path(const char *dir, struct ht_version v, const char *file, char path[HT_STORE_PATH]);
void ht_store_manifest_name(int32_t rank, char name[HT_STORE_NAME]);
void ht_store_losses_name(int32_t rank, char name[HT_STORE_NAME]);
/* Writes the name of an extent's tensor: "momentum[0:8192]". */
void ht_store_tensor_name(const struct ht_extent *e, char name[HT_STORE_NAME]);

/* Makes a store's directory, with its parents, and locks it for this process until *lock is closed. HT_BAD_INPUT if
   another process still has it after so many seconds, or if it cannot be made. */
enum ht_status ht_store_open(const char *dir, int64_t patience_s, struct ht_error *err, int *lock);

/* Reads elements [first, first + n) of an extent into `buffer`, which *at is. A reader that has them in memory may set *at to them
   instead. They must not change before the worker's next read. */
typedef enum ht_status (*ht_extent_read)(void *ctx, const struct ht_extent *e, int64_t first, int64_t n, float *buffer,
                                         const float **at, struct ht_error *err);
/* Writes a version's files of this rank, then its manifest. Fills in sizes and hashes. HT_FAILED if it cannot; older
   versions are unchanged. */
enum ht_status ht_store_write(const char *dir, struct ht_store_part *p, const struct ht_state *state,
                              const struct ht_checkpoint_setting *settings, int n_settings, ht_extent_read read,
                              void *ctx, struct ht_error *err);

/* Does the same by the workers of a pool, a file each. `read` is then called by several at once. */
enum ht_status ht_store_write_by(struct ht_pool *pool, const char *dir, struct ht_store_part *p,
                                 const struct ht_state *state, const struct ht_checkpoint_setting *settings,
                                 int n_settings, ht_extent_read read, void *ctx, struct ht_error *err);

/* Paces a copy: at most so many bytes per second; 0: as fast as it goes. */
struct ht_store_pace {
    double bytes_per_s;
    bool (*stop)(void *ctx); /* (optional) the copy ends with HT_INTERRUPTED if it returns true */
    void *ctx;
};
/* Copies those of a rank's files that `p` names (name, size and hash suffice) into another store, then a manifest of them.
   Refuses a file whose bytes have changed since it was written. A copy that is there already is kept. */
enum ht_status ht_store_copy(const char *from, const char *to, const struct ht_store_part *p, struct ht_store_pace pace,
                             struct ht_error *err);

/* Reads the manifest of a rank. *text (may be NULL) is its text, allocated. */
enum ht_status ht_store_read_part(const char *dir, struct ht_version v, int32_t rank, struct ht_error *err,
                                  struct ht_store_part *out, char **text);
/* Reads what a manifest's text says beside its files; `name` stands for it in errors. Fills in the state's steps and loss
   scale, and the settings that have changed and may (HT_BAD_INPUT if others have, or the model). */
enum ht_status ht_store_facts(const char *text, const char *name, struct ht_checkpoint_setting *settings,
                              int n_settings, struct ht_error *err, struct ht_state *state);
/* Reads all settings of a manifest's text; allocated, and so are their names (ht_store_settings_free). */
struct ht_checkpoint_setting *ht_store_settings(const char *text, int *n);
void ht_store_settings_free(struct ht_checkpoint_setting *settings, int n);
/* Reads the model of a manifest's text. */
enum ht_status ht_store_model(const char *text, const char *name, struct ht_error *err, struct ht_model *out);

/* Lists the versions in a store, ascending; allocated. A directory that does not exist has none. */
struct ht_version *ht_store_versions(const char *dir, int64_t *n);
/* Removes a version: its manifests first. */
void ht_store_remove(const char *dir, struct ht_version v);
/* Removes all but the newest `keep` steps up to `step`, which is whole: older ones, other runs' of a step that is kept, and
   later ones, which were never whole or from which somebody has gone back. */
void ht_store_keep(const char *dir, int64_t keep, int64_t step);
/* Does the same, and keeps the files of removed versions as spare ones, which the next version's files of these names are written over.
   In memory that spares a save the time that it takes to find and clear pages. */
void ht_store_recycle(const char *dir, int64_t keep, int64_t step);
/* Makes spare files for those of `p` that have none, as large as they are. */
void ht_store_reserve(const char *dir, const struct ht_store_part *p);
void ht_store_drop_spares(const char *dir);
/* Removes what killed processes have left unfinished in a store that this process has locked. */
void ht_store_sweep(const char *dir);

#endif
