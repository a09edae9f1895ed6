/*
 * Any bytes are a rank's manifest in a store, or give one line of error. A manifest carries its own hash, which no fuzzer
 * guesses: so the bytes are also taken as the part that is hashed, with the right hash around it. What a manifest names lies
 * in its own folder and is part of its model.
 */
#include "common/ckpt/durable.h"
#include "common/store/store_manifest.h"

#include <assert.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Those of tests/common/store/manifest.json. */
static const struct ht_version version = {.step = 1, .run = UINT64_C(0x18b2f3c04d5e6f70)};
enum { RANK = 0 };

static void one_line(enum ht_status status, const struct ht_error *err)
{
    assert(status == HT_OK || (status == HT_BAD_INPUT && err->text[0] && !strchr(err->text, '\n')));
}

static void check_files(const struct ht_store_part *p, const struct ht_model *m)
{
    for (int64_t i = 0; i < p->n_files; i++) {
        const struct ht_store_file *f = &p->files[i];
        assert(!strncmp(f->name, "unit-", 5) && !strchr(f->name, '/') && f->n_extents > 0 && f->sum.bytes >= 0);
        for (int64_t k = 0; k < f->n_extents; k++) {
            struct ht_box boxes[3];
            assert(ht_extent_is_sound(m, &f->extents[k]));
            assert(ht_extent_boxes(m, &f->extents[k], 0, boxes) <= 3);
        }
    }
}

/* Reads what else a sound manifest says. */
static void read_facts(const char *text, const struct ht_store_part *p)
{
    struct ht_checkpoint_setting known[] = {{.name = "--batch", .value = "4"}, {.name = "--numerics", .value = "fp32"}};
    struct ht_error err = {0};
    struct ht_model m;
    int n;
    enum ht_status status = ht_store_model(text, "fuzz.json", &err, &m);
    assert(status == HT_OK);
    check_files(p, &m);
    if (ht_model_units(&m) > 1000) return; /* a state of its own would take long to make */
    struct ht_state *state = ht_state_create(&m);
    status = ht_store_facts(text, "fuzz.json", known, 2, &err, state);
    one_line(status, &err);
    for (int64_t u = 0; u < ht_model_units(&m) && status == HT_OK; u++)
        assert(state->steps[u] >= 0 && state->steps[u] <= version.step);
    ht_state_destroy(state);
    struct ht_checkpoint_setting *all = ht_store_settings(text, &n);
    ht_store_settings_free(all, n);
    char *copy = ht_store_manifest_of(text, p);
    struct ht_store_part again;
    status = ht_store_parse_part(copy, strlen(copy), "copy.json", version, RANK, &err, &again);
    assert(status == HT_OK && again.n_files == p->n_files);
    ht_store_part_free(&again);
    free(copy);
}

static void parse(const char *bytes, size_t n)
{
    struct ht_store_part p;
    struct ht_error err = {0};
    char *text = malloc(n + 1);
    assert(text);
    memcpy(text, bytes, n);
    text[n] = '\0';
    enum ht_status status = ht_store_parse_part(text, n, "fuzz.json", version, RANK, &err, &p);
    one_line(status, &err);
    if (status == HT_OK && !memchr(bytes, 0, n)) read_facts(text, &p);
    if (status == HT_OK) ht_store_part_free(&p);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    json_error_t why;
    parse((const char *)bytes, n);
    json_t *body = json_loadb((const char *)bytes, n, JSON_REJECT_DUPLICATES, &why);
    json_t *inner = json_object_get(body, "store");
    char *canonical = inner || body ? json_dumps(inner ? inner : body, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    if (canonical) {
        size_t most = strlen(canonical) + 64;
        char *text = malloc(most);
        assert(text);
        int length = snprintf(text, most, "{\"store\":%s,\"xxh3\":\"%016llx\"}", canonical,
                              (unsigned long long)ht_hash_bytes(canonical, strlen(canonical)));
        parse(text, (size_t)length);
        free(text);
    }
    free(canonical);
    json_decref(body);
    return 0;
}
