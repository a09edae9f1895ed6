/* Any bytes are a safetensors file whose every tensor lies inside it, or give one line of error. */
#include "common/ckpt/safetensors.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct ht_error err = {0};
    struct ht_safetensors *st;
    enum ht_status status = ht_safetensors_parse(bytes, n, "fuzz.safetensors", &err, &st);
    assert(status == HT_OK || (status == HT_BAD_INPUT && err.text[0] && !strchr(err.text, '\n')));
    if (status != HT_OK) return 0;
    int64_t covered = 0;
    for (int64_t i = 0; i < ht_safetensors_count(st); i++) {
        const struct ht_st_tensor *t = ht_safetensors_at(st, i);
        assert(t->offset >= 8 && t->bytes >= 0 && t->offset + t->bytes <= (int64_t)n);
        assert(ht_safetensors_find(st, t->name) == t);
        covered += t->bytes;
        float *values = malloc((size_t)t->elements * sizeof(float) + 1);
        status = ht_safetensors_read(st, t, 0, t->elements, &err, values);
        assert(status == HT_OK || status == HT_BAD_INPUT);
        free(values);
    }
    assert(covered <= (int64_t)n - 8);
    ht_safetensors_close(st);
    return 0;
}
