/*
 * The files of a model in a folder (weights.h), and how a save replaces them. Whenever the save ends, a reader finds
 * the old model or the new one, whole. A reader takes model.safetensors if it exists, else the files that the index
 * names. So new weights are written under names that no reader looks at, until one system call makes them the model:
 *
 *     new \ old    model.safetensors                          index and shards, or nothing
 *     one file     rename onto model.safetensors              rename to model.safetensors; remove index and shards
 *     shards       shards, index; unlink model.safetensors    shards; rename onto the index; remove the old shards
 *
 * Shards are called model-00001-of-00004.safetensors. If a file of that name exists, the whole set is called
 * model-v2-00001-of-00004.safetensors, or v3 .. No old shard is ever overwritten while an index names it.
 */
#ifndef HT_CKPT_MODEL_FOLDER_H
#define HT_CKPT_MODEL_FOLDER_H

#include "common/base/status.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>

enum { HT_MODEL_PATH_BYTES = 4096 };
extern const char ht_model_whole[], ht_model_index[]; /* model.safetensors, model.safetensors.index.json */

struct ht_model_folder {
    const char *dir; /* borrowed */
    void *old;       /* the files that its index names, by name */
    int64_t n_shards, version;
};

/* Locks a folder for one process's saves, until closedir closes *out. HT_BAD_INPUT if another process has it. A file
   system without locks is used without one. */
enum ht_status ht_model_folder_lock(const char *dir, struct ht_error *err, DIR **out);
/* Removes the folder if it is empty and no process has it locked. */
void ht_model_folder_remove_empty(const char *dir);

/* Removes what killed saves left, and chooses names for n_shards new shards. */
enum ht_status ht_model_folder_begin(const char *dir, int64_t n_shards, struct ht_error *err,
                                     struct ht_model_folder *out);
/* Writes the name of a new shard (0 is the first); writes the path of a file in the folder. */
void ht_model_folder_name(const struct ht_model_folder *f, int64_t shard, char name[64]);
void ht_model_folder_path(const struct ht_model_folder *f, const char *name, char path[HT_MODEL_PATH_BYTES]);
/* Removes the files that only the old model had. Call it once the new model is in place. */
enum ht_status ht_model_folder_retire(const struct ht_model_folder *f, struct ht_error *err);
/* Removes the new shards. Call it if the new model will not be put in place. */
void ht_model_folder_abandon(const struct ht_model_folder *f);
void ht_model_folder_end(struct ht_model_folder *f);

#endif
