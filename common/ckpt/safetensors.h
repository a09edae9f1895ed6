/*
 * The safetensors format (https://github.com/huggingface/safetensors, "Format"):
 *
 *     8 bytes   N, little-endian
 *     N bytes   JSON: {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ..., "__metadata__": {..}}
 *     the rest  data, little-endian; offsets count from here
 *
 * Reading is strict: it refuses every file that the reference implementation refuses, with one line that names the file
 * and the tensor, before it touches any data. The tensors must cover the data without gaps or overlaps; the order of
 * the header is free, as there. Departures: at most HT_ST_MAX_DIMS dimensions, and no sub-byte dtypes.
 *
 * In memory tensors are FP32. F32, F16 and BF16 can be read and written (half.h). Tensors of another dtype are listed,
 * but reading them is refused.
 */
#ifndef HT_CKPT_SAFETENSORS_H
#define HT_CKPT_SAFETENSORS_H

#include "common/base/status.h"
#include "common/model/model.h"

#include <stddef.h>
#include <stdint.h>

enum { HT_ST_MAX_DIMS = 8, HT_ST_MAX_HEADER_BYTES = 100000000 };

struct ht_st_tensor {
    const char *name;  /* valid while the file is open */
    const char *dtype; /* "F32", "BF16", "I64" ... */
    int n_dims;        /* 0: a scalar */
    int64_t dims[HT_ST_MAX_DIMS];
    int64_t elements, bytes;
    int64_t offset; /* of the first byte, from the file's start */
};

struct ht_safetensors;

/* Opens a file and reads its header. HT_BAD_INPUT with one line; *out is then unchanged. */
enum ht_status ht_safetensors_open(const char *path, struct ht_error *err, struct ht_safetensors **out);
/* Opens a file in memory, which is borrowed; `name` stands for the file in errors. */
enum ht_status ht_safetensors_parse(const void *bytes, size_t n, const char *name, struct ht_error *err,
                                    struct ht_safetensors **out);
void ht_safetensors_close(struct ht_safetensors *st); /* accepts NULL */

const char *ht_safetensors_name(const struct ht_safetensors *st);
int64_t ht_safetensors_count(const struct ht_safetensors *st);
const struct ht_st_tensor *ht_safetensors_at(const struct ht_safetensors *st, int64_t index); /* by name, ascending */
const struct ht_st_tensor *ht_safetensors_find(const struct ht_safetensors *st, const char *name); /* or NULL */

/* Returns HT_BAD_INPUT unless the tensor's type can be read. */
enum ht_status ht_safetensors_check(const struct ht_safetensors *st, const struct ht_st_tensor *t,
                                    struct ht_error *err);
/* Reads n elements of a tensor from `first` on into out, as FP32. HT_BAD_INPUT as above, and if the file has shrunk. */
enum ht_status ht_safetensors_read(const struct ht_safetensors *st, const struct ht_st_tensor *t, int64_t first,
                                   int64_t n, struct ht_error *err, float *out);

/* Writes "[2, 3]" into buf and returns buf. For errors. */
char *ht_st_shape_text(int n_dims, const int64_t *dims, char *buf, size_t bytes);

/* ---- writing ---- */

struct ht_st_spec {
    const char *name;
    enum ht_dtype dtype;
    int n_dims;
    int64_t dims[HT_ST_MAX_DIMS];
};

struct ht_st_writer;

/*
 * Begins a file with the header for n tensors of distinct names; their data follows in this order. metadata: n_metadata
 * pairs of key and value, or NULL. Commit puts the file in place, whole and synced (common/ckpt/durable.h).
 */
enum ht_status ht_st_writer_open(const char *path, const struct ht_st_spec *specs, int64_t n,
                                 const char *const (*metadata)[2], int n_metadata, struct ht_error *err,
                                 struct ht_st_writer **out);
/* Writes the next n elements, tensor after tensor. After an error only discard may be called. */
enum ht_status ht_st_writer_put(struct ht_st_writer *w, const float *data, int64_t n, struct ht_error *err);
/* Writes n elements of a tensor from `first` on, in any order. The file then has no hash, and all of it must be written
   so. */
enum ht_status ht_st_writer_put_at(struct ht_st_writer *w, int64_t tensor, int64_t first, const float *data, int64_t n,
                                   struct ht_error *err);
/* Returns the number of finite elements that became infinite, because their type is too small for them. */
int64_t ht_st_writer_overflows(const struct ht_st_writer *w);
/* Syncs a file whose elements are all written, so that commit only renames. */
enum ht_status ht_st_writer_sync(struct ht_st_writer *w, struct ht_error *err);
/* Ends the file and destroys the writer, also on error. *hash, *bytes (both may be NULL): as ht_hash_file. */
enum ht_status ht_st_writer_commit(struct ht_st_writer *w, struct ht_error *err, uint64_t *hash, int64_t *bytes);
void ht_st_writer_discard(struct ht_st_writer *w); /* accepts NULL */

#endif
