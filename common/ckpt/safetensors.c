/* Reads safetensors. Checks the header against itself and against the file's size before it reads anything else. */
#include "common/ckpt/safetensors.h"

#include "common/base/array.h"
#include "common/base/half.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "data is used as it lies in the file");

struct ht_safetensors {
    char *name;
    int fd;                     /* -1: the file is in memory */
    const unsigned char *bytes; /* of the whole file if it is in memory */
    int64_t file_bytes, data_begin;
    json_t *header; /* owns the names */
    struct ht_st_tensor *tensors;
    int64_t n_tensors;
};

static const struct {
    const char *name;
    int64_t bytes;
} dtypes[] = {{"F32", 4}, {"F16", 2}, {"BF16", 2},    {"F64", 8},     {"I64", 8},    {"I32", 4},
              {"I16", 2}, {"I8", 1},  {"U8", 1},      {"BOOL", 1},    {"U16", 2},    {"U32", 4},
              {"U64", 8}, {"C64", 8}, {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1}};

static enum ht_status complain(const struct ht_safetensors *st, struct ht_error *err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static enum ht_status complain(const struct ht_safetensors *st, struct ht_error *err, const char *fmt, ...)
{
    char text[800];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return ht_fail(err, HT_BAD_INPUT, "%.200s: %s", st->name, text);
}

/* Prefix that names a tensor in an error; cuts a name longer than any honest one. */
#define NAMED "tensor '%.200s': "

static bool get_int(const json_t *value, int64_t *out)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0) return false;
    *out = json_integer_value(value);
    return true;
}

/* ---- one tensor ---- */

static enum ht_status read_dtype(const struct ht_safetensors *st, const json_t *entry, struct ht_st_tensor *t,
                                 int64_t *element_bytes, struct ht_error *err)
{
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    if (!dtype) return complain(st, err, NAMED "has no dtype; expected \"dtype\": \"F32\"", t->name);
    for (size_t i = 0; i < HT_COUNT(dtypes); i++) {
        if (strcmp(dtypes[i].name, dtype) != 0) continue;
        t->dtype = dtypes[i].name;
        *element_bytes = dtypes[i].bytes;
        return HT_OK;
    }
    return complain(st, err, NAMED "the dtype '%.40s' is not known; expected F32, F16, BF16 ...", t->name, dtype);
}

static enum ht_status read_shape(const struct ht_safetensors *st, const json_t *entry, struct ht_st_tensor *t,
                                 struct ht_error *err)
{
    const json_t *shape = json_object_get(entry, "shape");
    if (!json_is_array(shape)) return complain(st, err, NAMED "has no shape; expected \"shape\": [...]", t->name);
    if (json_array_size(shape) > HT_ST_MAX_DIMS)
        return complain(st, err, NAMED "has %zu dimensions; expected at most %d", t->name, json_array_size(shape),
                        HT_ST_MAX_DIMS);
    t->n_dims = (int)json_array_size(shape);
    t->elements = 1;
    for (int i = 0; i < t->n_dims; i++) {
        if (!get_int(json_array_get(shape, (size_t)i), &t->dims[i]))
            return complain(st, err, NAMED "dimension %d of its shape is not a whole number >= 0", t->name, i);
        if (__builtin_mul_overflow(t->elements, t->dims[i], &t->elements))
            return complain(st, err, NAMED "its shape has more than 2^63 elements", t->name);
    }
    return HT_OK;
}

static enum ht_status read_offsets(const struct ht_safetensors *st, const json_t *entry, int64_t element_bytes,
                                   struct ht_st_tensor *t, struct ht_error *err)
{
    const json_t *offsets = json_object_get(entry, "data_offsets");
    int64_t begin, end, data_bytes = st->file_bytes - st->data_begin, needed;
    char shape[160];
    if (!json_is_array(offsets) || json_array_size(offsets) != 2 || !get_int(json_array_get(offsets, 0), &begin) ||
        !get_int(json_array_get(offsets, 1), &end))
        return complain(st, err, NAMED "has no data_offsets; expected \"data_offsets\": [begin, end]", t->name);
    if (begin > end)
        return complain(st, err, NAMED "its data ends at %lld, before it begins at %lld", t->name, (long long)end,
                        (long long)begin);
    if (end > data_bytes)
        return complain(st, err, NAMED "its data ends at %lld, and the file has %lld bytes of data: it is truncated",
                        t->name, (long long)end, (long long)data_bytes);
    ht_st_shape_text(t->n_dims, t->dims, shape, sizeof(shape));
    if (__builtin_mul_overflow(t->elements, element_bytes, &needed) || needed != end - begin)
        return complain(st, err, NAMED "%s of shape %s does not take the %lld bytes of its data_offsets", t->name,
                        t->dtype, shape, (long long)(end - begin));
    t->offset = st->data_begin + begin;
    t->bytes = end - begin;
    return HT_OK;
}

static enum ht_status read_entry(const struct ht_safetensors *st, const json_t *entry, struct ht_st_tensor *t,
                                 struct ht_error *err)
{
    int64_t element_bytes = 0;
    if (!t->name[0]) return complain(st, err, "a tensor of the header has no name");
    if (!json_is_object(entry) || json_object_size(entry) != 3)
        return complain(st, err, NAMED "expected {dtype, shape, data_offsets} and nothing else", t->name);
    enum ht_status status = read_dtype(st, entry, t, &element_bytes, err);
    if (status == HT_OK) status = read_shape(st, entry, t, err);
    return status == HT_OK ? read_offsets(st, entry, element_bytes, t, err) : status;
}

/* ---- all of them ---- */

static enum ht_status check_metadata(const struct ht_safetensors *st, json_t *map, struct ht_error *err)
{
    const char *key;
    json_t *value;
    if (!json_is_object(map)) return complain(st, err, "__metadata__ is not a map of strings");
    json_object_foreach(map, key, value) if (!json_is_string(value)) return complain(
        st, err, "__metadata__: the value of '%.200s' is not a string", key);
    return HT_OK;
}

static int by_offset(const void *a, const void *b)
{
    const struct ht_st_tensor *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes); /* an empty tensor comes before others at its offset */
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct ht_st_tensor *)a)->name, ((const struct ht_st_tensor *)b)->name);
}

/* Checks that the tensors cover the data, from its first byte to the file's last, without gaps or overlaps. */
static enum ht_status check_cover(struct ht_safetensors *st, struct ht_error *err)
{
    int64_t at = st->data_begin;
    qsort(st->tensors, (size_t)st->n_tensors, sizeof(*st->tensors), by_offset);
    for (int64_t i = 0; i < st->n_tensors; i++) {
        const struct ht_st_tensor *t = &st->tensors[i];
        if (t->offset < at)
            return complain(st, err, NAMED "its data overlaps that of tensor '%.200s'", t->name,
                            st->tensors[i - 1].name);
        if (t->offset > at)
            return complain(st, err, NAMED "%lld bytes before its data belong to no tensor", t->name,
                            (long long)(t->offset - at));
        at += t->bytes;
    }
    if (at < st->file_bytes)
        return complain(st, err, "%lld bytes after the last tensor belong to none", (long long)(st->file_bytes - at));
    qsort(st->tensors, (size_t)st->n_tensors, sizeof(*st->tensors), by_name);
    return HT_OK;
}

static enum ht_status read_header(struct ht_safetensors *st, const char *text, int64_t bytes, struct ht_error *err)
{
    json_error_t why;
    if (text[0] != '{') return complain(st, err, "the header does not begin with '{'; expected a safetensors file");
    st->header = json_loadb(text, (size_t)bytes, JSON_REJECT_DUPLICATES, &why);
    if (!st->header) return complain(st, err, "the header is not valid JSON: byte %d: %s", why.position, why.text);
    st->tensors = HT_NEW_ARRAY(struct ht_st_tensor, json_object_size(st->header));
    const char *key;
    json_t *value;
    json_object_foreach(st->header, key, value)
    {
        enum ht_status status;
        if (!strcmp(key, "__metadata__")) {
            status = check_metadata(st, value, err);
        } else {
            struct ht_st_tensor *t = &st->tensors[st->n_tensors++];
            t->name = key;
            status = read_entry(st, value, t, err);
        }
        if (status != HT_OK) return status;
    }
    return check_cover(st, err);
}

/* Reads `bytes` bytes at `offset` of the file. */
static enum ht_status fetch(const struct ht_safetensors *st, int64_t offset, int64_t bytes, void *out,
                            struct ht_error *err)
{
    if (bytes == 0) return HT_OK;
    if (st->bytes) {
        memcpy(out, st->bytes + offset, (size_t)bytes);
        return HT_OK;
    }
    for (int64_t done = 0; done < bytes;) {
        ssize_t got = pread(st->fd, (char *)out + done, (size_t)(bytes - done), (off_t)(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return complain(st, err, "cannot be read: %s", strerror(errno));
        if (got == 0) return complain(st, err, "ends while it is being read");
        done += got;
    }
    return HT_OK;
}

/* Reads and checks the header. Takes ownership of st and closes it on error. */
static enum ht_status load(struct ht_safetensors *st, struct ht_error *err, struct ht_safetensors **out)
{
    uint64_t header_bytes = 0;
    char *text = NULL;
    enum ht_status status;
    if (st->file_bytes < 8) {
        status = complain(st, err, "has %lld bytes; expected a safetensors file, which begins with 8 for a length",
                          (long long)st->file_bytes);
        goto out;
    }
    status = fetch(st, 0, 8, &header_bytes, err);
    if (status != HT_OK) goto out;
    if (header_bytes < 2 || header_bytes > HT_ST_MAX_HEADER_BYTES) {
        status = complain(st, err, "its header would have %llu bytes; expected a safetensors file with 2 to %d",
                          (unsigned long long)header_bytes, HT_ST_MAX_HEADER_BYTES);
        goto out;
    }
    if ((int64_t)header_bytes > st->file_bytes - 8) {
        status = complain(st, err, "its header has %llu bytes and the file %lld: it is truncated",
                          (unsigned long long)header_bytes, (long long)st->file_bytes);
        goto out;
    }
    st->data_begin = 8 + (int64_t)header_bytes;
    text = ht_alloc(header_bytes);
    status = fetch(st, 8, (int64_t)header_bytes, text, err);
    if (status == HT_OK) status = read_header(st, text, (int64_t)header_bytes, err);
out:
    free(text);
    if (status == HT_OK)
        *out = st;
    else
        ht_safetensors_close(st);
    return status;
}

enum ht_status ht_safetensors_open(const char *path, struct ht_error *err, struct ht_safetensors **out)
{
    struct stat sb;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return ht_fail(err, HT_BAD_INPUT, "%s: cannot be opened: %s; expected a safetensors file", path,
                       strerror(errno));
    if (fstat(fd, &sb) != 0 || !S_ISREG(sb.st_mode)) {
        close(fd);
        return ht_fail(err, HT_BAD_INPUT, "%s: not a regular file; expected a safetensors file", path);
    }
    struct ht_safetensors *st = HT_NEW(struct ht_safetensors);
    *st = (struct ht_safetensors){.name = ht_strdup(path), .fd = fd, .file_bytes = (int64_t)sb.st_size};
    return load(st, err, out);
}

enum ht_status ht_safetensors_parse(const void *bytes, size_t n, const char *name, struct ht_error *err,
                                    struct ht_safetensors **out)
{
    struct ht_safetensors *st = HT_NEW(struct ht_safetensors);
    *st = (struct ht_safetensors){.name = ht_strdup(name), .fd = -1, .bytes = bytes, .file_bytes = (int64_t)n};
    return load(st, err, out);
}

void ht_safetensors_close(struct ht_safetensors *st)
{
    if (!st) return;
    if (st->fd >= 0) close(st->fd);
    json_decref(st->header);
    free(st->tensors);
    free(st->name);
    free(st);
}

/* ---- contents ---- */

const char *ht_safetensors_name(const struct ht_safetensors *st)
{
    return st->name;
}

int64_t ht_safetensors_count(const struct ht_safetensors *st)
{
    return st->n_tensors;
}

const struct ht_st_tensor *ht_safetensors_at(const struct ht_safetensors *st, int64_t index)
{
    return &st->tensors[index];
}

const struct ht_st_tensor *ht_safetensors_find(const struct ht_safetensors *st, const char *name)
{
    if (st->n_tensors == 0) return NULL;
    struct ht_st_tensor key = {.name = name};
    return bsearch(&key, st->tensors, (size_t)st->n_tensors, sizeof(key), by_name);
}

enum ht_status ht_safetensors_check(const struct ht_safetensors *st, const struct ht_st_tensor *t, struct ht_error *err)
{
    if (!strcmp(t->dtype, "F32") || !strcmp(t->dtype, "F16") || !strcmp(t->dtype, "BF16")) return HT_OK;
    return complain(st, err, NAMED "has dtype %s; expected F32, F16 or BF16", t->name, t->dtype);
}

enum ht_status ht_safetensors_read(const struct ht_safetensors *st, const struct ht_st_tensor *t, int64_t first,
                                   int64_t n, struct ht_error *err, float *out)
{
    uint16_t half[4096];
    enum ht_status status = ht_safetensors_check(st, t, err);
    assert(first >= 0 && first + n <= t->elements);
    if (status != HT_OK) return status;
    if (!strcmp(t->dtype, "F32")) return fetch(st, t->offset + 4 * first, 4 * n, out, err);
    bool bf16 = !strcmp(t->dtype, "BF16");
    for (int64_t i = 0, more; i < n && status == HT_OK; i += more) {
        more = n - i < (int64_t)HT_COUNT(half) ? n - i : (int64_t)HT_COUNT(half);
        status = fetch(st, t->offset + 2 * (first + i), 2 * more, half, err);
        for (int64_t k = 0; k < more && status == HT_OK; k++)
            out[i + k] = bf16 ? ht_bf16_to_f32(half[k]) : ht_f16_to_f32(half[k]);
    }
    return status;
}

char *ht_st_shape_text(int n_dims, const int64_t *dims, char *buf, size_t bytes)
{
    size_t at = (size_t)snprintf(buf, bytes, "[");
    for (int i = 0; i < n_dims && at < bytes; i++)
        at += (size_t)snprintf(buf + at, bytes - at, "%s%lld", i ? ", " : "", (long long)dims[i]);
    if (at < bytes) snprintf(buf + at, bytes - at, "]");
    return buf;
}
