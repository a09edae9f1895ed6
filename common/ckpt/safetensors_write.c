/* Writes safetensors. The data begins at a multiple of 64, so that a file may be mapped and used in place. */
#include "common/ckpt/safetensors.h"

#include "common/base/array.h"
#include "common/base/half.h"
#include "common/ckpt/durable.h"

#include <assert.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct ht_st_writer {
    struct ht_durable file;
    struct tensor {
        enum ht_dtype dtype;
        int64_t elements, offset; /* of the first byte, from the file's start */
    } * tensors;
    int64_t n, next, in_next; /* written in order up to element in_next of tensor `next` */
    int64_t put_bytes, bytes; /* of the data: written, and in all */
    int64_t n_overflows;
};

static int64_t elements_of(const struct ht_st_spec *spec)
{
    int64_t n = 1;
    for (int i = 0; i < spec->n_dims; i++) n *= spec->dims[i];
    return n;
}

static json_t *make_header(const struct ht_st_spec *specs, int64_t n, const char *const (*metadata)[2], int n_metadata)
{
    static const char *const names[] = {[HT_F32] = "F32", [HT_F16] = "F16", [HT_BF16] = "BF16"};
    json_t *header = json_object();
    int64_t at = 0;
    if (n_metadata) {
        json_t *map = json_object();
        for (int i = 0; i < n_metadata; i++) json_object_set_new(map, metadata[i][0], json_string(metadata[i][1]));
        json_object_set_new(header, "__metadata__", map);
    }
    for (int64_t i = 0; i < n; i++) {
        const struct ht_st_spec *s = &specs[i];
        json_t *shape = json_array();
        int64_t end = at + elements_of(s) * ht_dtype_bytes(s->dtype);
        assert(!json_object_get(header, s->name) && s->n_dims <= HT_ST_MAX_DIMS);
        for (int k = 0; k < s->n_dims; k++) json_array_append_new(shape, json_integer((json_int_t)s->dims[k]));
        json_object_set_new(header, s->name,
                            json_pack("{s:s,s:o,s:[I,I]}", "dtype", names[s->dtype], "shape", shape, "data_offsets",
                                      (json_int_t)at, (json_int_t)end));
        at = end;
    }
    return header;
}

enum ht_status ht_st_writer_open(const char *path, const struct ht_st_spec *specs, int64_t n,
                                 const char *const (*metadata)[2], int n_metadata, struct ht_error *err,
                                 struct ht_st_writer **out)
{
    struct ht_st_writer *w = HT_NEW(struct ht_st_writer);
    enum ht_status status = ht_durable_open(path, err, &w->file);
    if (status != HT_OK) {
        free(w);
        return status;
    }
    w->n = n;
    w->tensors = HT_NEW_ARRAY(struct tensor, n);
    json_t *header = make_header(specs, n, metadata, n_metadata);
    char *text = json_dumps(header, JSON_COMPACT);
    json_decref(header);
    assert(text);
    static const char spaces[] = "                                                                ";
    uint64_t bytes = strlen(text), padding = (64 - (8 + bytes) % 64) % 64, header_bytes = bytes + padding;
    status = ht_durable_write(&w->file, &header_bytes, sizeof(header_bytes), err);
    if (status == HT_OK) status = ht_durable_write(&w->file, text, bytes, err);
    if (status == HT_OK) status = ht_durable_write(&w->file, spaces, padding, err);
    free(text);
    for (int64_t i = 0; i < n; i++) {
        w->tensors[i] = (struct tensor){.dtype = specs[i].dtype,
                                        .elements = elements_of(&specs[i]),
                                        .offset = 8 + (int64_t)header_bytes + w->bytes};
        w->bytes += w->tensors[i].elements * ht_dtype_bytes(specs[i].dtype);
    }
    if (status == HT_OK)
        *out = w;
    else
        ht_st_writer_discard(w);
    return status;
}

/* Writes n elements in the tensor's type at an offset; -1: at the end. */
static enum ht_status write_elements(struct ht_st_writer *w, enum ht_dtype dtype, int64_t offset, const float *data,
                                     int64_t n, struct ht_error *err)
{
    uint16_t half[4096];
    int64_t each = ht_dtype_bytes(dtype), most = dtype == HT_F32 ? n : (int64_t)HT_COUNT(half);
    enum ht_status status = HT_OK;
    for (int64_t i = 0, more; i < n && status == HT_OK; i += more) {
        more = n - i < most ? n - i : most;
        for (int64_t k = 0; k < more && dtype != HT_F32; k++) {
            float x = data[i + k];
            half[k] = dtype == HT_BF16 ? ht_f32_to_bf16(x) : ht_f32_to_f16(x);
            w->n_overflows += dtype == HT_F16 && isfinite(x) && isinf(ht_f16_to_f32(half[k]));
        }
        const void *from = dtype == HT_F32 ? (const void *)data : half;
        status = offset < 0 ? ht_durable_write(&w->file, from, (size_t)(more * each), err)
                            : ht_durable_write_at(&w->file, offset + i * each, from, (size_t)(more * each), err);
    }
    w->put_bytes += n * each;
    return status;
}

enum ht_status ht_st_writer_put(struct ht_st_writer *w, const float *data, int64_t n, struct ht_error *err)
{
    enum ht_status status = HT_OK;
    while (n > 0 && status == HT_OK) {
        assert(w->next < w->n);
        const struct tensor *t = &w->tensors[w->next];
        int64_t more = t->elements - w->in_next < n ? t->elements - w->in_next : n;
        status = write_elements(w, t->dtype, -1, data, more, err);
        data += more;
        n -= more;
        w->in_next += more;
        if (w->in_next == t->elements) w->next++, w->in_next = 0;
    }
    return status;
}

enum ht_status ht_st_writer_put_at(struct ht_st_writer *w, int64_t tensor, int64_t first, const float *data, int64_t n,
                                   struct ht_error *err)
{
    const struct tensor *t = &w->tensors[tensor];
    assert(tensor < w->n && first >= 0 && first + n <= t->elements);
    return write_elements(w, t->dtype, t->offset + first * ht_dtype_bytes(t->dtype), data, n, err);
}

int64_t ht_st_writer_overflows(const struct ht_st_writer *w)
{
    return w->n_overflows;
}

enum ht_status ht_st_writer_sync(struct ht_st_writer *w, struct ht_error *err)
{
    assert(w->put_bytes == w->bytes);
    return ht_durable_sync(&w->file, err);
}

enum ht_status ht_st_writer_commit(struct ht_st_writer *w, struct ht_error *err, uint64_t *hash, int64_t *bytes)
{
    assert(w->put_bytes == w->bytes);
    if (bytes) *bytes = w->file.bytes;
    enum ht_status status = ht_durable_commit(&w->file, err, hash);
    ht_st_writer_discard(w);
    return status;
}

void ht_st_writer_discard(struct ht_st_writer *w)
{
    if (!w) return;
    ht_durable_discard(&w->file);
    free(w->tensors);
    free(w);
}
