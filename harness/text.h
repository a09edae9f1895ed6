/*
 * Training text: a file whose bytes are the tokens, and the batches cut from it.
 *
 * Sequence b of step s begins at byte ht_random_below(seed, s B + b, n - T - 1); its targets are one byte later. A
 * batch is thereby a pure function of (file, seed, step): every system trains on the same ones, and tests/reference
 * makes them again in numpy.
 */
#ifndef HT_HARNESS_TEXT_H
#define HT_HARNESS_TEXT_H

#include "common/base/status.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct ht_text {
    unsigned char *bytes;
    int64_t n_bytes;
};

/* Reads a text to be trained on with sequences of `seq` tokens. HT_BAD_INPUT with one line for a file that is missing,
   a directory, empty, shorter than seq + 2 bytes, or no text (it holds a NUL byte). */
enum ht_status ht_text_load(const char *path, int64_t seq, struct ht_error *err, struct ht_text *out);
void ht_text_free(struct ht_text *text);

/* Batches of micro-batches: two iterations are kept, since two may be in flight. */
struct ht_batches {
    const struct ht_text *text;
    uint64_t seed;
    int64_t batch, micro_batch, seq;
    int32_t n_micro_batches;
    pthread_mutex_t lock;
    int32_t *made_for; /* [2 * n_micro_batches]: iteration that the slot holds, or -1 */
    int32_t *tokens;   /* [2 * n_micro_batches] slots of (B,T) tokens and (B,T) targets */
};

void ht_batches_init(struct ht_batches *b, const struct ht_text *text, uint64_t seed, int64_t batch,
                     int64_t micro_batch, int64_t seq);
void ht_batches_free(struct ht_batches *b);

/* ht_cpu_options.data; ctx is the struct ht_batches. */
enum ht_status ht_batches_get(void *ctx, int32_t iteration, int32_t micro_batch, const int32_t **tokens,
                              const int32_t **targets, struct ht_error *err);

#endif
