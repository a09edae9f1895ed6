/* Any bytes are a spot trace or one line of complaint. What is a trace is read again as it is written. */
#include "harness/days/traces/spot_trace.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static void check_events(const struct ht_spot_trace *t)
{
    int64_t last_ns = 0;
    assert(t->n_events > 0 && t->n_nodes > 0);
    for (size_t i = 0; i < t->n_events; i++) {
        assert(t->events[i].time_ns >= last_ns && t->events[i].node >= 0);
        assert((size_t)t->events[i].node < t->n_nodes && t->events[i].kind < HT_N_SPOT_KINDS);
        last_ns = t->events[i].time_ns;
    }
}

/* Reads back what is written of a trace. */
static void check_copy(const struct ht_spot_trace *t)
{
    struct ht_spot_trace copy;
    struct ht_error err = {0};
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    assert(f);
    ht_spot_trace_write(t, f);
    fclose(f);
    enum ht_status status = ht_spot_trace_parse(text, n, "copy.csv", &err, &copy);
    assert(status == HT_OK && copy.n_events == t->n_events && copy.n_nodes == t->n_nodes);
    ht_spot_trace_free(&copy);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct ht_spot_trace t;
    struct ht_error err = {0};
    enum ht_status status = ht_spot_trace_parse((const char *)bytes, n, "fuzz.csv", &err, &t);
    assert(status == HT_OK || (status == HT_BAD_INPUT && err.text[0] && !strchr(err.text, '\n')));
    if (status != HT_OK) return 0;
    check_events(&t);
    check_copy(&t);
    ht_spot_trace_free(&t);
    return 0;
}
