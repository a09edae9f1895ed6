/* safetensors files byte by byte: reading, refusals and their messages, writing. */
#include "common/ckpt/durable.h"
#include "common/ckpt/safetensors.h"
#include "common/ckpt/weights.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/array.h"
#include "common/base/half.h"

static char dir[] = "/tmp/ht_safetensors_XXXXXX";

static const char *in_dir(const char *name)
{
    static char path[4][256];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof(path[turn]), "%s/%s", dir, name);
    return path[turn];
}

/* A file in memory: the header, its length before it, `data_bytes` bytes 0, 1, 2 .. behind it. */
static size_t compose(const char *header, size_t data_bytes, unsigned char *out)
{
    uint64_t n = strlen(header);
    memcpy(out, &n, 8);
    memcpy(out + 8, header, n);
    for (size_t i = 0; i < data_bytes; i++) out[8 + n + i] = (unsigned char)i;
    return 8 + n + data_bytes;
}

static void write_file(const char *name, const void *bytes, size_t n)
{
    FILE *f = fopen(in_dir(name), "wb");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(bytes, 1, n, f), n);
    ck_assert_int_eq(fclose(f), 0);
}

/* ---- 16 bits ---- */

START_TEST(half_precision)
{
    /* F16 has 11 significant bits: 1 + 2^-11 is a tie (to even: 1), 1 + 3 2^-11 one too (to even: 1 + 2^-9).
       65519.996 is the last that rounds to 65504; 65520 is halfway to 65536 and becomes infinite. 2^-25 is a tie
       between 0 and 2^-24. */
    ck_assert_uint_eq(ht_f32_to_f16(1.0f + 0x1p-11f), 0x3c00);
    ck_assert_uint_eq(ht_f32_to_f16(1.0f + 3 * 0x1p-11f), 0x3c02);
    ck_assert_uint_eq(ht_f32_to_f16(65519.996f), 0x7bff);
    ck_assert_uint_eq(ht_f32_to_f16(-65520.0f), 0xfc00);
    ck_assert_uint_eq(ht_f32_to_f16(0x1p-25f), 0);
    ck_assert_uint_eq(ht_f32_to_f16(0x1.8p-25f), 1);
    ck_assert_uint_eq(ht_f32_to_f16(-0.0f), 0x8000);
    /* BF16 has 8: 1 + 2^-8 is a tie. */
    ck_assert_uint_eq(ht_f32_to_bf16(1.0f + 0x1p-8f), 0x3f80);
    ck_assert_uint_eq(ht_f32_to_bf16(1.0f + 3 * 0x1p-8f), 0x3f82);
    ck_assert_uint_eq(ht_f32_to_bf16(3.4028235e38f), 0x7f80);
    /* Every 16-bit number survives the way to FP32 and back. */
    for (uint32_t h = 0; h < 1u << 16; h++) {
        float f = ht_f16_to_f32((uint16_t)h), b = ht_bf16_to_f32((uint16_t)h);
        if (isnan(f))
            ck_assert(isnan(ht_f16_to_f32(ht_f32_to_f16(f))));
        else
            ck_assert_uint_eq(ht_f32_to_f16(f), h);
        if (isnan(b))
            ck_assert(isnan(ht_bf16_to_f32(ht_f32_to_bf16(b))));
        else
            ck_assert_uint_eq(ht_f32_to_bf16(b), h);
    }
    ck_assert(ht_f16_to_f32(1) == 0x1p-24f && ht_f16_to_f32(0x7bff) == 65504.0f && ht_f16_to_f32(0xc000) == -2.0f);
}
END_TEST

/* ---- reading ---- */

START_TEST(reads)
{
    /* a: [2], F32 at data 0..8; b: scalar BF16 at 8..10, bytes 8 and 9: 0x0908; empty: no elements; m: a mask. */
    static const char header[] = "{\"m\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[10,12]},"
                                 "\"b\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[8,10]},"
                                 "\"empty\":{\"dtype\":\"F32\",\"shape\":[4,0],\"data_offsets\":[8,8]},"
                                 "\"__metadata__\":{\"format\":\"pt\"},"
                                 "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}   ";
    unsigned char file[1024];
    size_t n = compose(header, 12, file);
    struct ht_error err = {0};
    struct ht_safetensors *st = NULL;
    float x[2];
    ck_assert_msg(ht_safetensors_parse(file, n, "mem", &err, &st) == HT_OK, "%s", err.text);
    ck_assert_int_eq(ht_safetensors_count(st), 4);
    ck_assert_str_eq(ht_safetensors_at(st, 0)->name, "a");
    ck_assert_int_eq(ht_safetensors_read(st, ht_safetensors_find(st, "a"), 0, 2, &err, x), HT_OK);
    ck_assert(ht_float_bits(x[0]) == 0x03020100 && ht_float_bits(x[1]) == 0x07060504);
    ck_assert_int_eq(ht_safetensors_find(st, "b")->elements, 1);
    ck_assert_int_eq(ht_safetensors_read(st, ht_safetensors_find(st, "b"), 0, 1, &err, x), HT_OK);
    ck_assert(ht_float_bits(x[0]) == 0x09080000);
    ck_assert_int_eq(ht_safetensors_find(st, "empty")->elements, 0);
    ck_assert_int_eq(ht_safetensors_read(st, ht_safetensors_find(st, "empty"), 0, 0, &err, NULL), HT_OK);
    ck_assert_int_eq(ht_safetensors_read(st, ht_safetensors_find(st, "m"), 0, 2, &err, x), HT_BAD_INPUT);
    ck_assert_str_eq(err.text, "mem: tensor 'm': has dtype U8; expected F32, F16 or BF16");
    ck_assert_ptr_null(ht_safetensors_find(st, "c"));
    ht_safetensors_close(st);
}
END_TEST

#define ONE(entry)  "{\"a\":" entry "}"
#define F32(offset) ",\"data_offsets\":" offset "}"
#define A(b, e)     "\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[" #b "," #e "]}"

static const struct {
    const char *header;
    size_t data_bytes;
    const char *says;
} bad[] = {
    {"[1]", 0, "the header does not begin with '{'"},
    {"{\"a\":", 0, "the header is not valid JSON: byte 5: "},
    {"{}x", 0, "the header is not valid JSON: byte 3: end of file expected near 'x'"},
    {"{\"a\xff\":1}", 0, "the header is not valid JSON: byte 3: unable to decode byte 0xff"},
    {"{\"a\\u0000\":1}", 0, "the header is not valid JSON"},
    {ONE("1"), 0, "tensor 'a': expected {dtype, shape, data_offsets} and nothing else"},
    {ONE("{\"dtype\":\"F32\",\"shape\":[1],\"x\":1,\"data_offsets\":[0,4]}"), 4, "tensor 'a': expected {dtype"},
    {ONE("{\"dtype\":7,\"shape\":[1]" F32("[0,4]")), 4, "tensor 'a': has no dtype"},
    {ONE("{\"dtype\":\"F31\",\"shape\":[1]" F32("[0,4]")), 4, "tensor 'a': the dtype 'F31' is not known"},
    {ONE("{\"dtype\":\"F32\",\"shape\":1" F32("[0,4]")), 4, "tensor 'a': has no shape"},
    {ONE("{\"dtype\":\"F32\",\"shape\":[-1]" F32("[0,4]")), 4, "tensor 'a': dimension 0 of its shape is not a whole"},
    {ONE("{\"dtype\":\"F32\",\"shape\":[1.0]" F32("[0,4]")), 4, "tensor 'a': dimension 0 of its shape is not a whole"},
    {ONE("{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1]" F32("[0,4]")), 4, "tensor 'a': has 9 dimensions"},
    {ONE("{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296]" F32("[0,4]")), 4,
     "tensor 'a': its shape has more than"},
    /* 2^62 elements of 4 bytes are 2^64 bytes, which is 0 modulo 2^64 */
    {ONE("{\"dtype\":\"F32\",\"shape\":[4611686018427387904]" F32("[0,0]")), 0, "tensor 'a': F32 of shape [4611686"},
    {ONE("{\"dtype\":\"F32\",\"shape\":[99999999999999999999]" F32("[0,4]")), 4, "the header is not valid JSON"},
    {ONE("{\"dtype\":\"F32\",\"shape\":[1]" F32("[0]")), 4, "tensor 'a': has no data_offsets"},
    {ONE("{\"dtype\":\"F32\",\"shape\":[1]" F32("[-4,0]")), 4, "tensor 'a': has no data_offsets"},
    {ONE("{\"dtype\":\"F32\",\"shape\":[1]" F32("[4,0]")), 4, "tensor 'a': its data ends at 0, before it begins at 4"},
    {ONE("{\"dtype\":\"F32\",\"shape\":[2]" F32("[0,8]")), 4,
     "tensor 'a': its data ends at 8, and the file has 4 bytes"},
    {ONE("{\"dtype\":\"F32\",\"shape\":[2]" F32("[0,4]")), 4, "tensor 'a': F32 of shape [2] does not take the 4 bytes"},
    {"{" A(0, 4) ",\"a\":1}", 4, "the header is not valid JSON: byte 56: duplicate object key near '\"a\"'"},
    {"{" A(4, 8) "}", 8, "tensor 'a': 4 bytes before its data belong to no tensor"},
    {"{" A(0, 4) "}", 5, "1 bytes after the last tensor belong to none"},
    {"{" A(0, 4) ",\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[3,7]}}", 7,
     "tensor 'b': its data overlaps that of tensor 'a'"},
    {"{\"\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4, "a tensor of the header has no name"},
    {"{\"a\\nb\":1}", 0, "tensor 'a\\nb': expected"},
    {"{\"__metadata__\":1}", 0, "__metadata__ is not a map of strings"},
    {"{\"__metadata__\":{\"k\":1}}", 0, "__metadata__: the value of 'k' is not a string"},
};

START_TEST(refuses)
{
    unsigned char file[1024];
    for (size_t i = 0; i < HT_COUNT(bad); i++) {
        struct ht_error err = {0};
        struct ht_safetensors *st = NULL;
        size_t n = compose(bad[i].header, bad[i].data_bytes, file);
        ck_assert_int_eq(ht_safetensors_parse(file, n, "mem", &err, &st), HT_BAD_INPUT);
        ck_assert_msg(!strncmp(err.text, "mem: ", 5) && !strncmp(err.text + 5, bad[i].says, strlen(bad[i].says)),
                      "%s\n  expected: %s", err.text, bad[i].says);
        ck_assert_msg(!strchr(err.text, '\n'), "%s", err.text);
        ck_assert_ptr_null(st);
    }
}
END_TEST

START_TEST(refuses_every_truncation)
{
    unsigned char file[256];
    size_t n = compose("{" A(0, 4) "}", 4, file);
    for (size_t cut = 0; cut < n; cut++) {
        struct ht_error err = {0};
        struct ht_safetensors *st = NULL;
        ck_assert_int_eq(ht_safetensors_parse(file, cut, "mem", &err, &st), HT_BAD_INPUT);
    }
    /* lengths of a header that no file has */
    static const uint64_t lengths[] = {0, 1, 100000001, UINT64_MAX, (uint64_t)1 << 63, 1 << 20};
    for (size_t i = 0; i < HT_COUNT(lengths); i++) {
        struct ht_error err = {0};
        struct ht_safetensors *st = NULL;
        memcpy(file, &lengths[i], 8);
        ck_assert_int_eq(ht_safetensors_parse(file, n, "mem", &err, &st), HT_BAD_INPUT);
    }
}
END_TEST

START_TEST(refuses_hostile_nesting)
{
    enum { DEPTH = 1 << 20 };
    unsigned char *file = ht_alloc(8 + DEPTH);
    uint64_t n = DEPTH;
    memcpy(file, &n, 8);
    memcpy(file + 8, "{\"a\":", 5);
    memset(file + 13, '[', DEPTH - 5);
    struct ht_error err = {0};
    struct ht_safetensors *st = NULL;
    ck_assert_int_eq(ht_safetensors_parse(file, 8 + DEPTH, "mem", &err, &st), HT_BAD_INPUT);
    ck_assert_msg(strstr(err.text, "maximum parsing depth reached") != NULL, "%s", err.text);
    free(file);
}
END_TEST

/* ---- writing ---- */

/* In order, in pieces that end anywhere; or in any order, by runs. The same file. */
static void write_round_trip(const char *name, const struct ht_st_spec *specs, const float *const *data, bool in_order)
{
    static const char *const metadata[][2] = {{"format", "pt"}};
    struct ht_error err = {0};
    struct ht_st_writer *w = NULL;
    ck_assert_msg(ht_st_writer_open(in_dir(name), specs, 3, metadata, 1, &err, &w) == HT_OK, "%s", err.text);
    ck_assert(access(in_dir(name), F_OK) != 0); /* does not exist before it is whole */
    for (int i = 0; i < 3; i++) {
        int64_t n = specs[i].dims[0] * (specs[i].n_dims > 1 ? specs[i].dims[1] : 1), run = 30011;
        for (int64_t at = 0, end; at < n && in_order; at = end) {
            end = at + run < n ? at + run : n;
            ck_assert_int_eq(ht_st_writer_put(w, data[i] + at, end - at, &err), HT_OK);
        }
        for (int64_t end = n, at; end > 0 && !in_order; end = at) {
            at = end > run ? end - run : 0;
            ck_assert_int_eq(ht_st_writer_put_at(w, i, at, data[i] + at, end - at, &err), HT_OK);
        }
    }
    ck_assert_int_eq(ht_st_writer_overflows(w), 1);
    uint64_t hash = 0, found;
    int64_t bytes = 0, found_bytes;
    ck_assert_int_eq(ht_st_writer_commit(w, &err, in_order ? &hash : NULL, &bytes), HT_OK);
    ck_assert_int_eq(ht_hash_file(in_dir(name), &err, &found, &found_bytes), HT_OK);
    ck_assert_int_eq(bytes, found_bytes);
    if (in_order) ck_assert_uint_eq(hash, found);
}

START_TEST(round_trip)
{
    enum { N = 70001 }; /* more than one chunk of the conversions */
    const struct ht_st_spec specs[] = {{"w", HT_F32, 2, {3, 2}}, {"h", HT_F16, 1, {N}}, {"b", HT_BF16, 1, {N}}};
    const float w[6] = {0, -1, 2.5f, 0x1p-149f, INFINITY, 3};
    float *x = HT_NEW_ARRAY(float, N), *y = HT_NEW_ARRAY(float, N);
    for (int i = 0; i < N; i++) x[i] = (float)(i % 201 - 100); /* exact in both, but for */
    x[N - 2] = 0x1p17f; /* beyond F16: counted; and what is infinite already is not */
    x[N - 1] = INFINITY;
    const float *const data[] = {w, x, x};
    struct ht_error err = {0};
    struct ht_st_writer *writer = NULL;
    uint64_t hashes[2];
    int64_t bytes;
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "any_order.safetensors" : "m.safetensors";
        write_round_trip(name, specs, data, i == 0);
        ck_assert_int_eq(ht_hash_file(in_dir(name), &err, &hashes[i], &bytes), HT_OK);
    }
    ck_assert_uint_eq(hashes[0], hashes[1]);

    struct ht_safetensors *st = NULL;
    ck_assert_msg(ht_safetensors_open(in_dir("m.safetensors"), &err, &st) == HT_OK, "%s", err.text);
    const struct ht_st_tensor *t = ht_safetensors_find(st, "w");
    ck_assert(t && t->n_dims == 2 && t->dims[0] == 3 && t->dims[1] == 2 && t->offset % 64 == 0);
    ck_assert_int_eq(ht_safetensors_read(st, t, 0, 6, &err, y), HT_OK);
    ck_assert_mem_eq(y, w, sizeof(w));
    ck_assert_int_eq(ht_safetensors_read(st, t, 2, 3, &err, y), HT_OK);
    ck_assert_mem_eq(y, w + 2, 3 * sizeof(float));
    for (int k = 1; k < 3; k++) {
        t = ht_safetensors_find(st, specs[k].name);
        if (k == 1) x[N - 2] = INFINITY;
        for (int64_t first = 0; first < N; first += 9001) { /* to the end, from anywhere */
            memset(y, 0xff, sizeof(float) * N);
            ck_assert_int_eq(ht_safetensors_read(st, t, first, N - first, &err, y), HT_OK);
            ck_assert_mem_eq(y, x + first, sizeof(float) * (size_t)(N - first));
        }
        x[N - 2] = 0x1p17f;
    }
    ht_safetensors_close(st);

    /* Given up: nothing is left of it, and the old file stands. */
    ck_assert_int_eq(ht_st_writer_open(in_dir("m.safetensors"), specs, 3, NULL, 0, &err, &writer), HT_OK);
    ht_st_writer_discard(writer);
    ck_assert_int_eq(ht_safetensors_open(in_dir("m.safetensors"), &err, &st), HT_OK);
    ht_safetensors_close(st);
    ck_assert_int_eq(ht_st_writer_open(in_dir("none/m.safetensors"), specs, 3, NULL, 0, &err, &writer), HT_BAD_INPUT);
    free(x);
    free(y);
}
END_TEST

/* ---- shards ---- */

static void write_shard(const char *name, const char *tensor, float value)
{
    const struct ht_st_spec spec = {tensor, HT_F32, 1, {1}};
    struct ht_error err = {0};
    struct ht_st_writer *w = NULL;
    ck_assert_int_eq(ht_st_writer_open(in_dir(name), &spec, 1, NULL, 0, &err, &w), HT_OK);
    ck_assert_int_eq(ht_st_writer_put(w, &value, 1, &err), HT_OK);
    ck_assert_int_eq(ht_st_writer_commit(w, &err, NULL, NULL), HT_OK);
}

START_TEST(shards)
{
    static const struct {
        const char *index, *says;
    } wrong[] = {
        {"{", "line 1, column 1"},
        {"{\"weight_map\":{}}", "has no weight_map"},
        {"{\"weight_map\":{\"a\":1}}", "tensor 'a': expected the name of a file"},
        {"{\"weight_map\":{\"a\":\"../1.safetensors\"}}", "tensor 'a': '../1.safetensors' is not the plain name"},
        {"{\"weight_map\":{\"a\":\"1.safetensors\",\"c\":\"2.safetensors\"}}", "tensor 'c' is not in '2.safetensors'"},
        {"{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"9.safetensors\"}}", "9.safetensors: cannot be opened"},
        {"{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"2.safetensors\",\"b\":\"2.safetensors\"}}", "duplicate"},
    };
    static const char index[] = "model.safetensors.index.json";
    static const char good[] = "{\"metadata\":{\"total_size\":8},\"weight_map\":{\"a\":\"1.safetensors\",\"b\":"
                               "\"2.safetensors\"}}";
    struct ht_error err = {0};
    struct ht_weights *w = NULL;
    ck_assert_int_eq(ht_weights_open(dir, &err, &w), HT_BAD_INPUT);
    ck_assert_msg(strstr(err.text, "holds neither model.safetensors nor") != NULL, "%s", err.text);
    write_shard("1.safetensors", "a", 1);
    write_shard("2.safetensors", "b", 2);
    write_file(index, good, strlen(good));
    ck_assert_msg(ht_weights_open(dir, &err, &w) == HT_OK, "%s", err.text);
    const struct ht_safetensors *st;
    float x;
    const struct ht_st_tensor *b = ht_weights_find(w, "b", &st);
    ck_assert_ptr_nonnull(b);
    ck_assert_int_eq(ht_safetensors_read(st, b, 0, 1, &err, &x), HT_OK);
    ck_assert(x == 2 && ht_weights_files(w) == 2 && !ht_weights_find(w, "c", NULL));
    ht_weights_close(w);
    for (size_t i = 0; i < HT_COUNT(wrong); i++) {
        write_file(index, wrong[i].index, strlen(wrong[i].index));
        ck_assert_int_eq(ht_weights_open(in_dir(index), &err, &w), HT_BAD_INPUT);
        ck_assert_msg(strstr(err.text, wrong[i].says) != NULL, "%s", err.text);
    }
    /* the same tensor in two shards */
    write_shard("3.safetensors", "b", 3);
    static const char twice[] = "{\"weight_map\":{\"c\":\"3.safetensors\",\"b\":\"2.safetensors\"}}";
    write_file(index, twice, strlen(twice));
    ck_assert_int_eq(ht_weights_open(dir, &err, &w), HT_BAD_INPUT);
}
END_TEST

int main(void)
{
    if (!mkdtemp(dir)) return EXIT_FAILURE;
    Suite *s = suite_create("safetensors");
    TCase *t = tcase_create("safetensors");
    tcase_add_test(t, half_precision);
    tcase_add_test(t, reads);
    tcase_add_test(t, refuses);
    tcase_add_test(t, refuses_every_truncation);
    tcase_add_test(t, refuses_hostile_nesting);
    tcase_add_test(t, round_trip);
    tcase_add_test(t, shards);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    char command[64];
    snprintf(command, sizeof(command), "rm -rf %s", dir);
    if (system(command) != 0) failed++;
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
