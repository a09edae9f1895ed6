/*
 * Any bytes are a manifest of the model below, or give one line of error. A manifest carries its own hash, which no
 * fuzzer guesses: so the bytes are also taken as the part that is hashed, with the right hash around it.
 */
#include "common/ckpt/durable.h"
#include "common/ckpt/manifest.h"

#include <assert.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* That of tests/common/ckpt/manifest.json. */
static const struct ht_model model = {
    .arch = HT_ARCH_GPT, .layers = 2, .width = 16, .heads = 2, .ffn = 64, .vocab = 256, .max_seq = 32, .tied = true};

static void parse(const char *text, size_t n)
{
    struct ht_checkpoint_setting settings[] = {{.name = "--batch", .value = "4"},
                                               {.name = "--numerics", .value = "bf16", .may_change = true}};
    int64_t steps[4];
    struct ht_state state = {.model = model, .n_units = 4, .steps = steps};
    struct ht_error err = {0};
    struct ht_manifest_file files[5];
    bool damaged;
    enum ht_status status = ht_manifest_parse(text, n, "fuzz.json", 20, settings, 2, &err, &damaged, &state, files);
    assert(status == HT_OK || (status == HT_BAD_INPUT && err.text[0] && !strchr(err.text, '\n')));
    assert(status != HT_OK || !damaged);
    for (int u = 0; u < 4 && status == HT_OK; u++) assert(steps[u] >= 0 && steps[u] <= 20);
    assert(status != HT_OK || (state.loss_scale > 0 && state.loss_scale <= 0x1p128 && state.good >= 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    parse((const char *)bytes, n);
    json_error_t why;
    json_t *body = json_loadb((const char *)bytes, n, JSON_REJECT_DUPLICATES, &why);
    json_t *inner = json_object_get(body, "checkpoint");
    char *canonical = inner || body ? json_dumps(inner ? inner : body, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    if (canonical) {
        size_t most = strlen(canonical) + 64;
        char *text = malloc(most);
        assert(text);
        int length = snprintf(text, most, "{\"checkpoint\":%s,\"xxh3\":\"%016llx\"}", canonical,
                              (unsigned long long)ht_hash_bytes(canonical, strlen(canonical)));
        parse(text, (size_t)length);
        free(text);
    }
    free(canonical);
    json_decref(body);
    return 0;
}
