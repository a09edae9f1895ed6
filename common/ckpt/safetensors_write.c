/* Writing safetensors. The data begins at a multiple of 64, so that a file may be mapped and used in place. */
#include "common/ckpt/safetensors.h"

#include "common/base/array.h"
#include "common/base/half.h"
#include "common/ckpt/durable.h"

#include <assert.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

struct ht_st_writer {
    struct ht_durable file;
    struct tensor {
        enum ht_dtype dtype;
        int64_t elements;
    } * tensors;
    int64_t n, next;
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
    for (int64_t i = 0; i < n; i++)
        w->tensors[i] = (struct tensor){.dtype = specs[i].dtype, .elements = elements_of(&specs[i])};
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
    if (status == HT_OK)
        *out = w;
    else
        ht_st_writer_discard(w);
    return status;
}

enum ht_status ht_st_writer_put(struct ht_st_writer *w, const float *data, struct ht_error *err)
{
    enum { CHUNK = 1 << 16 };
    assert(w->next < w->n);
    struct tensor t = w->tensors[w->next++];
    if (t.dtype == HT_F32) return ht_durable_write(&w->file, data, (size_t)t.elements * 4, err);
    uint16_t *half = HT_NEW_ARRAY(uint16_t, CHUNK);
    enum ht_status status = HT_OK;
    for (int64_t i = 0; i < t.elements && status == HT_OK; i += CHUNK) {
        int64_t n = t.elements - i < CHUNK ? t.elements - i : CHUNK;
        for (int64_t k = 0; k < n; k++)
            half[k] = t.dtype == HT_BF16 ? ht_f32_to_bf16(data[i + k]) : ht_f32_to_f16(data[i + k]);
        status = ht_durable_write(&w->file, half, (size_t)n * 2, err);
    }
    free(half);
    return status;
}

enum ht_status ht_st_writer_sync(struct ht_st_writer *w, struct ht_error *err)
{
    assert(w->next == w->n);
    return ht_durable_sync(&w->file, err);
}

enum ht_status ht_st_writer_commit(struct ht_st_writer *w, struct ht_error *err, uint64_t *hash, int64_t *bytes)
{
    assert(w->next == w->n);
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
