/* Every class of bad input gives one line with file, line, column and key. */
#include "common/base/builtin.h"
#include "common/base/config.h"

#include <check.h>
#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/array.h"

struct sample {
    int64_t layers, memory_bytes, latency_ns;
    double share, rate;
    bool on;
    char name[8];
    int color;
    struct {
        int64_t x;
    } inner;
    const struct ht_node *list;
};

static const char *const colors[] = {"red", "green", "blue"};
static const struct ht_field inner_fields[] = {
    {.key = "x", .type = HT_FIELD_INT, .offset = 0, .required = true},
    {0},
};
#define AT(m) .offset = offsetof(struct sample, m)
static const struct ht_field fields[] = {
    {.key = "layers", .type = HT_FIELD_INT, AT(layers), .required = true},
    {.key = "memory", .type = HT_FIELD_BYTES, AT(memory_bytes), .fallback = "40 GB"},
    {.key = "latency", .type = HT_FIELD_NS, AT(latency_ns), .fallback = "10 us", .min = 0, .max = 1e9},
    {.key = "share", .type = HT_FIELD_DOUBLE, AT(share), .fallback = "0.5", .min = 0, .max = 1},
    {.key = "rate", .type = HT_FIELD_BYTES_PER_S, AT(rate), .fallback = "25 GB/s"},
    {.key = "on", .type = HT_FIELD_BOOL, AT(on), .fallback = "true"},
    {.key = "name", .type = HT_FIELD_STRING, AT(name), .size = 8, .fallback = "none"},
    {.key = "color", .type = HT_FIELD_ENUM, AT(color), .names = colors, .n_names = 3, .fallback = "green"},
    {.key = "inner", .type = HT_FIELD_MAP, AT(inner), .fields = inner_fields},
    {.key = "list", .type = HT_FIELD_LIST_NODE, AT(list)},
    {0},
};

static enum ht_status load(const char *text, size_t n, const char *name, struct ht_error *err, struct sample *out)
{
    struct ht_doc *doc = NULL;
    enum ht_status st = ht_doc_parse(text, n, name, err, &doc);
    if (!st) st = ht_config_load(ht_doc_root(doc), fields, err, out);
    out->list = NULL;
    ht_doc_destroy(doc);
    return st;
}

START_TEST(reads)
{
    struct ht_error err = {0};
    struct sample s = {0};
    const char *yaml = "# a comment\nlayers: 21\nmemory: 16 GiB\nlatency: 2 us\nshare: 0.25\nrate: 3 GB/s\non: false\n"
                       "name: 'x y'\ncolor: blue\ninner: {x: 7}\nlist: [1, 2]\n";
    ck_assert_msg(!load(yaml, strlen(yaml), "t.yaml", &err, &s), "%s", err.text);
    ck_assert_int_eq(s.layers, 21);
    ck_assert_int_eq(s.memory_bytes, INT64_C(16) << 30);
    ck_assert_int_eq(s.latency_ns, 2000);
    ck_assert_double_eq(s.share, 0.25);
    ck_assert_double_eq(s.rate, 3e9);
    ck_assert(!s.on);
    ck_assert_str_eq(s.name, "x y");
    ck_assert_int_eq(s.color, 2);
    ck_assert_int_eq(s.inner.x, 7);

    const char *json = "{\"layers\": 3,\n \"memory\": \"1 GB\"}";
    ck_assert_msg(!load(json, strlen(json), "t.json", &err, &s), "%s", err.text);
    ck_assert_int_eq(s.layers, 3);
    ck_assert_int_eq(s.memory_bytes, 1000000000);
    ck_assert_int_eq(s.latency_ns, 10000); /* the fallback */
    ck_assert_int_eq(s.color, 1);
    ck_assert(s.on);
}
END_TEST

struct bad_case {
    const char *text, *says;
};

static const struct bad_case bad[] = {
    /* the document */
    {"", "t.yaml:1:1: the document is empty; expected 'key: value' lines"},
    {"# only a comment\n", "t.yaml:1:1: the document is empty; expected 'key: value' lines"},
    {"layers: 1\n\x01", "t.yaml:2:1: the byte 0x01 is not text; expected UTF-8"},
    {"layers: 1\nname: \xff\n", "t.yaml:2:7: the byte 0xff is not text; expected UTF-8"},
    {"layers: [1, 2\nname: x\n", "t.yaml:3:1: flow sequence without a closing bracket; expected YAML"},
    {"layers: 1\n---\nlayers: 2\n", "expected one document a file"},
    {"- 1\n- 2\n", "t.yaml:1:1: is a list; expected a map ('key: value' lines)"},
    {"42\n", "t.yaml:1:1: is a value; expected a map ('key: value' lines)"},
    {"layers: &a 1\nmemory: *a\n", "anchors are not supported"},
    {"layers: 1\nmemory: *a\n", "t.yaml:2:10: aliases are not supported; expected the value itself"},
    {"layers: !!int 1\n", "tags are not supported"},
    {"<<: {x: 1}\nlayers: 1\n", "t.yaml:1:1: key '<<': merge keys are not supported"},
    {"[a]: 1\n", "expected a word"},
    {"{a: 1, : 2}\n", "has no key"},
    {"layers: 1\nname: 'a''''b'\n", "t.yaml:2:7: a value holds two quotes in a row; expected double quotes around it"},
    /* keys */
    {"layers: 1\nlayers: 2\n", "t.yaml:2:1: key 'layers': is given twice; expected it once (first on line 1)"},
    {"layers: 1\nmemroy: 2 GB\n", "t.yaml:2:1: key 'memroy': is unknown here; expected 'memory'?"},
    {"layers: 1\nzzzzzzzzz: 2\n", "t.yaml:2:1: key 'zzzzzzzzz': is unknown here; expected layers, memory, "},
    {"memory: 2 GB\n", "t.yaml:1:1: the key 'layers' is missing; expected 'layers: ...'"},
    {"layers: 1\ninner:\n  y: 2\n", "t.yaml:3:3: key 'y': is unknown here; expected 'x'?"},
    {"layers: 1\ninner: {}\n", "t.yaml:2:8: key 'inner': the key 'x' is missing; expected 'x: ...'"},
    {"\"a\\nb\": 1\n\"a\\nb\": 2\n", "t.yaml:2:1: key 'a\\nb': is given twice; expected it once (first on line 1)"},
    {"\"a\\nb\": 1\n", "t.yaml:1:1: key 'a\\nb': is unknown here"},
    /* values */
    {"layers: 1\nname: \"a\\nb\"\n", "t.yaml:2:7: key 'name': holds a control character or a line end; expected one"},
    {"layers: 1\nname: \"a\\x9b31mb\"\n",
     "t.yaml:2:7: key 'name': holds a control character"}, /* C1, which no file holds raw */
    {"\"\\e[31m\": 1\n", "t.yaml:1:1: key '\\x1b[31m': is unknown here"},
    {"layers: many\n", "t.yaml:1:9: key 'layers': 'many' is not a number; expected a whole number such as '8'"},
    {"layers: '4'\n", "t.yaml:1:9: key 'layers': '4' is in quotes; expected a whole number such as '8'"},
    {"layers: 3e9\n", "key 'layers': '3e9' is written with an exponent; expected a whole number"},
    {"layers: 2.5\n", "key 'layers': '2.5' is not a whole number; expected a whole number"},
    {"layers: 99999999999999999999\n", "key 'layers': '99999999999999999999' is too large"},
    {"layers: 0\n", "t.yaml:1:9: key 'layers': '0' is zero; expected at least 1"},
    {"layers: -5\n", "t.yaml:1:9: key 'layers': '-5' is negative; expected at least 1"},
    {"layers:\n", "t.yaml:1:1: key 'layers': is nothing; expected a whole number such as '8'"},
    {"layers: [1]\n", "t.yaml:1:9: key 'layers': is a list; expected a whole number such as '8'"},
    {"layers: {a: 1}\n", "t.yaml:1:9: key 'layers': is a map; expected a whole number such as '8'"},
    {"layers: 1\nmemory: 40\n", "t.yaml:2:9: key 'memory': '40' has no unit; expected a size such as"},
    {"layers: 1\nmemory: 40 GB/s\n", "t.yaml:2:9: key 'memory': '40 GB/s' has the wrong unit 'GB/s'; expected a size"},
    {"layers: 1\nmemory: -1 GB\n", "t.yaml:2:9: key 'memory': '-1 GB' is negative; expected a size"},
    {"layers: 1\nmemory: 0 GB\n", "t.yaml:2:9: key 'memory': '0 GB' is zero; expected at least 1 B"},
    {"layers: 1\nlatency: 2 s\n", "t.yaml:2:10: key 'latency': '2 s' is out of range; expected 0 ns to 1 s"},
    {"layers: 1\nshare: 1.5\n", "t.yaml:2:8: key 'share': '1.5' is out of range; expected 0 to 1"},
    {"layers: 1\nrate: 0 GB/s\n", "t.yaml:2:7: key 'rate': '0 GB/s' is out of range; expected more than 0"},
    {"layers: 1\non: yes\n", "t.yaml:2:5: key 'on': 'yes' is not a truth value; expected true or false"},
    {"layers: 1\nname: much too long\n", "t.yaml:2:7: key 'name': is 13 characters long; expected at most 7"},
    {"layers: 1\ncolor: pink\n", "t.yaml:2:8: key 'color': 'pink' is not known here; expected red, green or blue"},
    {"layers: 1\nlist: 3\n", "t.yaml:2:7: key 'list': is a value; expected a list"},
    {"layers: 1\nname: \"a\\0b\"\n", "t.yaml:2:7: a value holds a NUL character"},
};

START_TEST(bad_input)
{
    for (size_t i = 0; i < HT_COUNT(bad); i++) {
        struct ht_error err = {0};
        struct sample s = {0};
        enum ht_status st = load(bad[i].text, strlen(bad[i].text), "t.yaml", &err, &s);
        ck_assert_msg(st == HT_BAD_INPUT, "'%s' gives %d", bad[i].text, st);
        ck_assert_msg(strstr(err.text, bad[i].says) != NULL, "'%s' says: %s", bad[i].text, err.text);
        ck_assert_msg(strncmp(err.text, "t.yaml:", 7) == 0, "%s", err.text);
        ck_assert_msg(!strchr(err.text, '\n'), "%s", err.text);
    }
}
END_TEST

START_TEST(strict_json)
{
    struct ht_error err = {0};
    struct sample s = {0};
    const char *text = "{\"layers\": 1, name: x}";
    ck_assert_int_eq(load(text, strlen(text), "t.json", &err, &s), HT_BAD_INPUT);
    ck_assert_msg(strncmp(err.text, "t.json:1:", 9) == 0 && strstr(err.text, "; expected JSON"), "%s", err.text);
}
END_TEST

/* Absurd documents end quickly and cleanly. */
START_TEST(absurd)
{
    enum { N = 200001 }; /* odd, so that quotes do not pair up */
    char *text = malloc(N + 1);
    struct ht_error err = {0};
    struct ht_doc *doc = NULL;
    text[N] = 0;
    const char *shapes[] = {"[", "{", "- ", "? ", "a: ", "'", "\"", "&a ", "*a ", "[{", "{a: ", "\t", "!"};
    for (size_t k = 0; k < HT_COUNT(shapes); k++) {
        size_t m = strlen(shapes[k]);
        for (size_t i = 0; i < N; i++) text[i] = shapes[k][i % m];
        enum ht_status st = ht_doc_parse(text, N, "t.yaml", &err, &doc);
        ck_assert_msg(st == HT_BAD_INPUT, "%s", shapes[k]);
        ck_assert_msg(strncmp(err.text, "t.yaml:", 7) == 0, "%s", err.text);
    }
    /* 33 levels are one too many, 32 are not. */
    memset(text, '[', 33);
    memset(text + 33, ']', 33);
    ck_assert_int_eq(ht_doc_parse(text, 66, "t.yaml", &err, &doc), HT_BAD_INPUT);
    ck_assert_str_eq(err.text, "t.yaml:1:33: lists and maps are nested too deep; expected at most 32 levels");
    ck_assert_int_eq(ht_doc_parse(text + 1, 64, "t.yaml", &err, &doc), HT_OK);
    ht_doc_destroy(doc);
    /* 10,000 open ones are refused unparsed; in a string, 9,999 are fine, and so are any number that close. */
    enum { OPEN = 10000 };
    ck_assert(N > OPEN + 2);
    memset(text, '[', OPEN);
    ck_assert_int_eq(ht_doc_parse(text, OPEN, "t.yaml", &err, &doc), HT_BAD_INPUT);
    ck_assert_str_eq(err.text,
                     "t.yaml:1:10000: 10,000 brackets are open; expected lists and maps of at most 32 levels");
    text[0] = text[OPEN] = '"';
    ck_assert_int_eq(ht_doc_parse(text, OPEN + 1, "t.yaml", &err, &doc), HT_OK);
    ht_doc_destroy(doc);
    for (size_t i = 1; i < N - 1; i++) text[i] = i % 2 ? '[' : ']';
    text[N - 1] = '"';
    ck_assert_int_eq(ht_doc_parse(text, N, "t.yaml", &err, &doc), HT_OK);
    ht_doc_destroy(doc);
    free(text);
}
END_TEST

START_TEST(files)
{
    struct ht_error err = {0};
    struct ht_doc *doc = NULL;
    ck_assert_int_eq(ht_doc_open("/no/such/file.yaml", &err, &doc), HT_BAD_INPUT);
    ck_assert_str_eq(err.text, "/no/such/file.yaml: cannot be opened: No such file or directory; expected a YAML or "
                               "JSON file");
    ck_assert_int_eq(ht_doc_open("/tmp", &err, &doc), HT_BAD_INPUT);
    ck_assert_str_eq(err.text, "/tmp: is a directory; expected a YAML or JSON file");
    ck_assert_int_eq(ht_doc_open("/dev/null", &err, &doc), HT_BAD_INPUT);
    ck_assert_str_eq(err.text, "/dev/null:1:1: the document is empty; expected 'key: value' lines");

    char path[] = "/tmp/ht_config_XXXXXX";
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, "a: 1\n", 5), 5);
    close(fd);
    ck_assert_int_eq(ht_doc_open(path, &err, &doc), HT_OK);
    ck_assert_str_eq(ht_doc_name(doc), path);
    ht_doc_destroy(doc);
    unlink(path);
}
END_TEST

/* Elements of lists are named after their list, nested lists too. */
START_TEST(places)
{
    struct ht_error err = {0};
    struct ht_doc *doc = NULL;
    const char *text = "ops:\n  - {id: 1}\n  - {id: x}\nm: [[1, 2], [3, y]]\n";
    ck_assert(!ht_doc_parse(text, strlen(text), "t.yaml", &err, &doc));
    const struct ht_node *root = ht_doc_root(doc), *ops = ht_node_find(root, "ops");
    ck_assert_uint_eq(root->n_children, 2);
    ck_assert_uint_eq(ops->n_children, 2);
    int64_t v;
    const struct ht_node *id = ht_node_find(ops->child->next, "id");
    ck_assert_int_eq(ht_node_int(id, 0, 10, &err, &v), HT_BAD_INPUT);
    ck_assert_str_eq(err.text, "t.yaml:3:10: key 'id': 'x' is not a number; expected a whole number such as '8'");
    const struct ht_node *y = ht_node_find(root, "m")->child->next->child->next;
    ck_assert_int_eq(ht_node_int(y, 0, 10, &err, &v), HT_BAD_INPUT);
    ck_assert_str_eq(err.text, "t.yaml:4:17: key 'm[1][1]': 'y' is not a number; expected a whole number such as '8'");
    ck_assert_int_eq(ht_node_int(y->parent->child, 5, 10, &err, &v), HT_BAD_INPUT);
    ck_assert_str_eq(err.text, "t.yaml:4:14: key 'm[1][0]': '3' is out of range; expected 5 to 10");
    ck_assert_int_eq(ht_node_get(root, "zz", &err, &y), HT_BAD_INPUT);
    ht_doc_destroy(doc);
}
END_TEST

/* 100,000 lines: linear, so well below a second even with sanitizers; duplicate keys of large maps are found. */
START_TEST(large)
{
    struct ht_error err = {0};
    struct ht_doc *doc = NULL;
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    fprintf(f, "ops:\n");
    for (int i = 0; i < 100000; i++)
        fprintf(f, "  - {kind: forward, unit: %d, deps: [%d, %d], lane: gpu}\n", i, i, i + 1);
    fclose(f);
    ck_assert_msg(!ht_doc_parse(text, n, "t.yaml", &err, &doc), "%s", err.text);
    ck_assert_uint_eq(ht_doc_root(doc)->child->n_children, 100000);
    ht_doc_destroy(doc);
    free(text);

    f = open_memstream(&text, &n);
    for (int i = 0; i < 50000; i++) fprintf(f, "k%d: 1\n", i);
    fprintf(f, "k777: 2\n");
    fclose(f);
    ck_assert_int_eq(ht_doc_parse(text, n, "t.yaml", &err, &doc), HT_BAD_INPUT);
    ck_assert_str_eq(err.text, "t.yaml:50001:1: key 'k777': is given twice; expected it once (first on line 778)");
    free(text);
}
END_TEST

/* An embedded file is parsed once, and stays when one of those who have it destroys it. */
START_TEST(embedded_files_are_parsed_once)
{
    static const char text[] = "one: {size: 1}\ntwo: {size: 2}\n";
    static const char broken_text[] = "one: {";
    static const struct ht_builtin file = {"builtin:some.yaml", text, text + sizeof(text) - 1},
                                   broken = {"builtin:bad.yaml", broken_text, broken_text + sizeof(broken_text) - 1};
    struct ht_doc *first = NULL, *second = NULL, *found = NULL;
    const struct ht_node *entry = NULL;
    struct ht_error err;
    char name[8];
    ck_assert_int_eq(ht_builtin_open(&file, &err, &first), HT_OK);
    ht_doc_destroy(first);
    ck_assert_int_eq(ht_builtin_open(&file, &err, &second), HT_OK);
    ck_assert_ptr_eq(first, second);
    ck_assert_int_eq(ht_builtin_find(&file, 1, "thing", "two", &err, &found, &entry), HT_OK);
    ck_assert_ptr_eq(found, first);
    ck_assert_str_eq(entry->key, "two");
    ck_assert(ht_builtin_name(&file, 1, 0, name, sizeof(name)) && !strcmp(name, "one"));
    ck_assert_int_eq(ht_builtin_find(&file, 1, "thing", "tow", &err, &found, &entry), HT_BAD_INPUT);
    ck_assert_str_eq(err.text, "unknown thing 'tow'; expected 'two'?");
    for (int i = 0; i < 2; i++) ck_assert_int_eq(ht_builtin_open(&broken, &err, &second), HT_BAD_INPUT);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("config");
    TCase *t = tcase_create("config");
    tcase_add_test(t, embedded_files_are_parsed_once);
    tcase_add_test(t, reads);
    tcase_add_test(t, bad_input);
    tcase_add_test(t, strict_json);
    tcase_add_test(t, absurd);
    tcase_add_test(t, files);
    tcase_add_test(t, places);
    tcase_add_test(t, large);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
