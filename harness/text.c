#include "harness/text.h"

#include "common/base/array.h"
#include "common/base/rng.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_BYTES ((int64_t)4 << 30)

static enum ht_status check(const char *path, const struct ht_text *text, int64_t seq, struct ht_error *err)
{
    long long n = text->n_bytes;
    if (n == 0) return ht_fail(err, HT_BAD_INPUT, "%s: is empty; expected a text to train on", path);
    const unsigned char *nul = memchr(text->bytes, 0, (size_t)n);
    if (nul)
        return ht_fail(err, HT_BAD_INPUT, "%s: byte %lld is NUL: the file is binary; expected a text to train on", path,
                       (long long)(nul - text->bytes));
    if (n < seq + 2)
        return ht_fail(err, HT_BAD_INPUT,
                       "%s: has %lld bytes; expected at least %lld, a sequence of %lld tokens and two more", path, n,
                       (long long)seq + 2, (long long)seq);
    return HT_OK;
}

enum ht_status ht_text_load(const char *path, int64_t seq, struct ht_error *err, struct ht_text *out)
{
    struct ht_text text = {0};
    struct stat st;
    enum ht_status status = HT_OK;
    FILE *in = fopen(path, "rb");
    if (!in) return ht_fail(err, HT_BAD_INPUT, "%s: %s; expected a text to train on", path, strerror(errno));
    if (fstat(fileno(in), &st) == 0 && S_ISDIR(st.st_mode)) {
        status = ht_fail(err, HT_BAD_INPUT, "%s: is a directory; expected a text to train on", path);
        goto out;
    }
    size_t cap = 0;
    for (;;) { /* pipes have no size, so read until the end */
        HT_RESERVE(text.bytes, cap, (size_t)text.n_bytes + 65536);
        size_t got = fread(text.bytes + text.n_bytes, 1, cap - (size_t)text.n_bytes, in);
        text.n_bytes += (int64_t)got;
        if (got == 0) break;
        if (text.n_bytes > MAX_BYTES) {
            status = ht_fail(err, HT_BAD_INPUT, "%s: is larger than 4 GiB", path);
            goto out;
        }
    }
    if (ferror(in))
        status = ht_fail(err, HT_BAD_INPUT, "%s: cannot be read: %s", path, strerror(errno));
    else
        status = check(path, &text, seq, err);
out:
    fclose(in);
    if (status != HT_OK)
        ht_text_free(&text);
    else
        *out = text;
    return status;
}

void ht_text_free(struct ht_text *text)
{
    free(text->bytes);
    *text = (struct ht_text){0};
}

/* ---- batches --------------------------------------------------------------------------------------------------- */

void ht_batches_init(struct ht_batches *b, const struct ht_text *text, uint64_t seed, int64_t batch,
                     int64_t micro_batch, int64_t seq)
{
    *b = (struct ht_batches){.text = text,
                             .seed = seed,
                             .batch = batch,
                             .micro_batch = micro_batch,
                             .seq = seq,
                             .n_micro_batches = (int32_t)(batch / micro_batch)};
    pthread_mutex_init(&b->lock, NULL);
    b->made_for = HT_NEW_ARRAY(int32_t, 2 * b->n_micro_batches);
    for (int32_t i = 0; i < 2 * b->n_micro_batches; i++) b->made_for[i] = -1;
    b->tokens = HT_NEW_ARRAY(int32_t, 2 * batch * 2 * seq);
}

void ht_batches_free(struct ht_batches *b)
{
    if (!b->tokens) return;
    pthread_mutex_destroy(&b->lock);
    free(b->made_for);
    free(b->tokens);
    *b = (struct ht_batches){0};
}

/* Sequences j B_micro .. of the iteration: tokens, then targets, each (B,T). */
static void make(const struct ht_batches *b, int32_t iteration, int32_t j, int32_t *tokens, int32_t *targets)
{
    uint64_t starts = (uint64_t)(b->text->n_bytes - b->seq - 1);
    for (int64_t i = 0; i < b->micro_batch; i++) {
        uint64_t index = (uint64_t)iteration * (uint64_t)b->batch + (uint64_t)(j * b->micro_batch + i);
        const unsigned char *from = b->text->bytes + ht_random_below(b->seed, index, starts);
        for (int64_t t = 0; t < b->seq; t++) {
            tokens[i * b->seq + t] = from[t];
            targets[i * b->seq + t] = from[t + 1];
        }
    }
}

enum ht_status ht_batches_get(void *ctx, int32_t iteration, int32_t micro_batch, const int32_t **tokens,
                              const int32_t **targets, struct ht_error *err)
{
    struct ht_batches *b = ctx;
    if (micro_batch < 0 || micro_batch >= b->n_micro_batches)
        return ht_fail(err, HT_FAILED, "micro-batch %d of %d was asked for", micro_batch, b->n_micro_batches);
    int32_t slot = iteration % 2 * b->n_micro_batches + micro_batch;
    int64_t values = b->micro_batch * b->seq;
    int32_t *x = b->tokens + 2 * values * slot, *y = x + values;
    pthread_mutex_lock(&b->lock);
    if (b->made_for[slot] != iteration) {
        make(b, iteration, micro_batch, x, y);
        b->made_for[slot] = iteration;
    }
    pthread_mutex_unlock(&b->lock);
    *tokens = x;
    *targets = y;
    return HT_OK;
}
