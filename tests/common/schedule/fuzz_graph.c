/* Any text is either refused with one line, or gives a schedule that can be verified, dumped and loaded back equal. */
#include "common/schedule/file.h"
#include "common/schedule/verify.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void reload(const struct ht_schedule *s)
{
    char *text = NULL;
    size_t n = 0;
    struct ht_error err = {0};
    struct ht_schedule *back = NULL;
    FILE *out = open_memstream(&text, &n);
    if (!out || ht_schedule_dump(s, out, &err)) abort();
    fclose(out);
    if (ht_schedule_load_text("dump", text, n, &err, &back)) abort();
    if (ht_schedule_hash(s) != ht_schedule_hash(back)) abort();
    ht_schedule_destroy(back);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ht_error err = {0};
    struct ht_schedule *s = NULL;
    struct ht_proof v = {0};
    if (ht_schedule_load_text("fuzz", (const char *)data, size, &err, &s)) {
        if (!err.text[0] || strchr(err.text, '\n') || s) abort();
        return 0;
    }
    enum ht_status status = ht_schedule_verify(s, &err, &v);
    if (status == HT_OK) {
        uint64_t before = ht_schedule_hash(s);
        ht_schedule_link(s); /* a proved schedule needs no more edges */
        if (ht_schedule_hash(s) != before) abort();
    } else if (!err.text[0] || strchr(err.text, '\n')) {
        abort();
    }
    ht_proof_free(&v);
    reload(s);
    ht_schedule_destroy(s);
    return 0;
}
