#include "harness/run/tokens.h"

#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/base/interrupt.h"
#include "common/base/rng.h"
#include "common/base/text.h"
#include "common/base/units.h"
#include "common/ckpt/durable.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK_BYTES = 1 << 20, WORDS_BYTES = 4096 };
static const int64_t most_in_memory_bytes = (int64_t)4 << 30;

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "ids are used as they lie in the file");

static int64_t label_bytes(const struct ht_tokens *t)
{
    return t->vocab > 256 ? 2 : 1;
}

/* Returns the bytes of a token, or of an image's record. */
static int64_t width_of(const struct ht_tokens *t)
{
    if (t->format == HT_TOKENS_IMAGES) return label_bytes(t) + t->image_bytes;
    return t->format == HT_TOKENS_TEXT ? 1 : t->format == HT_TOKENS_U16 ? 2 : 4;
}

/* Returns token i of the data, or the label of image i. */
static int64_t id_at(const struct ht_tokens *t, const void *data, int64_t i)
{
    const unsigned char *at = (const unsigned char *)data + i * width_of(t);
    if (t->format == HT_TOKENS_TEXT) return *at;
    if (t->format == HT_TOKENS_U16) return *(const uint16_t *)(const void *)at;
    if (t->format == HT_TOKENS_U32) return *(const uint32_t *)(const void *)at;
    return at[0] + (label_bytes(t) > 1 ? at[1] << 8 : 0);
}

/* The kinds of files that are expected. */
static const char *const wanted[] = {"a text to train on", "16-bit token ids to train on",
                                     "32-bit token ids to train on", "labelled images to train on"};

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

enum ht_status ht_token_format_of(const char *path, const char *name, int64_t vocab, struct ht_error *err,
                                  enum ht_token_format *out)
{
    static const char *const names[] = {"text", "u16", "u32", "images"};
    if (!name)
        name = vocab == 0                 ? "images"
               : ends_with(path, ".u16")  ? "u16"
               : ends_with(path, ".u32")  ? "u32"
               : !ends_with(path, ".bin") ? "text"
               : vocab <= 65536           ? "u16"
                                          : "u32";
    size_t i = ht_index_of(name, names, HT_COUNT(names));
    *out = (enum ht_token_format)i;
    if (i == HT_COUNT(names))
        return ht_fail(err, HT_BAD_INPUT, "--data-format '%s' is not known; expected text, u16, u32 or images", name);
    if ((vocab == 0) == (i == HT_TOKENS_IMAGES)) return HT_OK;
    return ht_fail(err, HT_BAD_INPUT, "--data-format %s: the model reads %s", name,
                   vocab == 0 ? "images; expected images" : "tokens; expected text, u16 or u32");
}

/* ---- reading --------------------------------------------------------------------------------------------------- */

/* Reads bytes [at, at + bytes) of the file. */
static enum ht_status fetch(const struct ht_tokens *t, int64_t at, int64_t bytes, void *out, struct ht_error *err)
{
    if (t->bytes) {
        memcpy(out, t->bytes + at, (size_t)bytes);
        return HT_OK;
    }
    for (int64_t done = 0; done < bytes;) {
        ssize_t got = pread(t->fd, (char *)out + done, (size_t)(bytes - done), (off_t)(at + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return ht_fail(err, HT_FAILED, "%s: cannot be read: %s", t->path, strerror(errno));
        if (got == 0)
            return ht_fail(err, HT_FAILED, "%s: ends at byte %lld; it was longer before", t->path,
                           (long long)(at + done));
        done += got;
    }
    return HT_OK;
}

/* Returns the index of the first of n tokens that the format or the vocabulary lacks, or n. */
static int64_t first_wrong(const struct ht_tokens *t, const void *data, int64_t n)
{
    int64_t i = 0;
    if (t->format == HT_TOKENS_TEXT) {
        const char *nul = memchr(data, 0, (size_t)n);
        return nul ? nul - (const char *)data : n;
    }
    while (i < n && id_at(t, data, i) < t->vocab) i++;
    return i;
}

static enum ht_status complain(const struct ht_tokens *t, const void *data, int64_t index, int64_t token,
                               struct ht_error *err)
{
    if (t->format == HT_TOKENS_TEXT)
        return ht_fail(err, HT_BAD_INPUT,
                       "%s: byte %lld is NUL: the file is binary; expected a text to train on, or --data-format u16 or "
                       "u32 for token ids",
                       t->path, (long long)token);
    if (t->format == HT_TOKENS_IMAGES)
        return ht_fail(err, HT_BAD_INPUT,
                       "%s: image %lld, at byte %lld, has label %lld; the model's classes are 0 to %lld", t->path,
                       (long long)token, (long long)(token * width_of(t)), (long long)id_at(t, data, index),
                       (long long)t->vocab - 1);
    return ht_fail(err, HT_BAD_INPUT, "%s: token %lld, at byte %lld, is %lld; the model's vocabulary has ids 0 to %lld",
                   t->path, (long long)token, (long long)(token * width_of(t)), (long long)id_at(t, data, index),
                   (long long)t->vocab - 1);
}

/* ---- checking -------------------------------------------------------------------------------------------------- */

/* Shows the progress every two seconds; says nothing about a file that takes less. */
static void show_progress(const struct ht_tokens *t, int64_t done, int64_t bytes, double *shown_s)
{
    char a[HT_QUANTITY_TEXT], b[HT_QUANTITY_TEXT], path[512];
    double now = ht_now_s();
    if (now - *shown_s < 2) return;
    *shown_s = now;
    fprintf(stderr, "checking %s: %s of %s\n", ht_shown(t->path, path, sizeof(path)),
            ht_format_quantity(HT_BYTES, (double)done, a), ht_format_quantity(HT_BYTES, (double)bytes, b));
}

/* Reads all of the file once: checks every token, and makes the hash. */
static enum ht_status check_all(struct ht_tokens *t, struct ht_error *err)
{
    int64_t width = width_of(t), bytes = ht_tokens_bytes(t);
    int64_t chunk_bytes = width < CHUNK_BYTES ? CHUNK_BYTES / width * width : width;
    double shown_s = ht_now_s();
    unsigned char *chunk = ht_alloc((size_t)chunk_bytes);
    struct ht_hash *hash = ht_hash_begin();
    enum ht_status status = HT_OK;
    for (int64_t at = 0; at < bytes && status == HT_OK; at += chunk_bytes) {
        int64_t some = bytes - at < chunk_bytes ? bytes - at : chunk_bytes;
        if (ht_interrupted()) {
            status = ht_fail(err, HT_INTERRUPTED, "interrupted while %s was checked", t->path);
            break;
        }
        status = fetch(t, at, some, chunk, err);
        if (status != HT_OK) break;
        ht_hash_add(hash, chunk, (size_t)some);
        int64_t wrong = first_wrong(t, chunk, some / width);
        if (wrong < some / width) status = complain(t, chunk, wrong, at / width + wrong, err);
        show_progress(t, at + some, bytes, &shown_s);
    }
    t->hash = ht_hash_end(hash);
    free(chunk);
    return status;
}

static enum ht_status check_length(const struct ht_tokens *t, int64_t bytes, int64_t seq, struct ht_error *err)
{
    long long width = width_of(t), n = bytes;
    if (n == 0) return ht_fail(err, HT_BAD_INPUT, "%s: is empty; expected %s", t->path, wanted[t->format]);
    if (t->format == HT_TOKENS_IMAGES) {
        if (n % width == 0) return HT_OK;
        return ht_fail(
            err, HT_BAD_INPUT,
            "%s: has %lld bytes, not a multiple of %lld; expected images to train on: records of a %lld-byte label "
            "and %lld bytes of pixels",
            t->path, n, width, (long long)label_bytes(t), (long long)t->image_bytes);
    }
    if (n % width)
        return ht_fail(err, HT_BAD_INPUT, "%s: has %lld bytes, not a multiple of %lld; expected %s", t->path, n, width,
                       wanted[t->format]);
    if (n / width < seq + 2)
        return ht_fail(err, HT_BAD_INPUT,
                       "%s: has %lld %s; expected at least %lld, a sequence of %lld tokens and two more", t->path,
                       n / width, t->format == HT_TOKENS_TEXT ? "bytes" : "tokens", (long long)seq + 2, (long long)seq);
    return HT_OK;
}

/* ---- opening --------------------------------------------------------------------------------------------------- */

/* Reads a pipe or the like, which has no size, until it ends. */
static enum ht_status read_all(struct ht_tokens *t, struct ht_error *err, int64_t *bytes)
{
    size_t cap = 0;
    int64_t n = 0;
    for (;;) {
        HT_RESERVE(t->bytes, cap, (size_t)n + 65536);
        ssize_t got = read(t->fd, t->bytes + n, cap - (size_t)n);
        if (got < 0 && errno == EINTR && !ht_interrupted()) continue;
        if (got < 0) return ht_fail(err, HT_BAD_INPUT, "%s: cannot be read: %s", t->path, strerror(errno));
        if (got == 0) break;
        n += got;
        if (n > most_in_memory_bytes)
            return ht_fail(err, HT_BAD_INPUT, "%s: gives more than 4 GiB; expected a plain file for that much",
                           t->path);
    }
    close(t->fd);
    t->fd = -1;
    *bytes = n;
    return HT_OK;
}

/* Opens and checks a file as t's fields say. seq: of tokens. */
static enum ht_status open_file(struct ht_tokens t, int64_t seq, struct ht_error *err, struct ht_tokens *out)
{
    struct stat st = {0};
    int64_t bytes = 0;
    enum ht_status status = HT_OK;
    t.fd = open(t.path, O_RDONLY | O_CLOEXEC);
    if (t.fd < 0) return ht_fail(err, HT_BAD_INPUT, "%s: %s; expected %s", t.path, strerror(errno), wanted[t.format]);
    if (fstat(t.fd, &st) != 0)
        status = ht_fail(err, HT_BAD_INPUT, "%s: %s", t.path, strerror(errno));
    else if (S_ISDIR(st.st_mode))
        status = ht_fail(err, HT_BAD_INPUT, "%s: is a directory; expected %s", t.path, wanted[t.format]);
    else if (S_ISREG(st.st_mode))
        bytes = (int64_t)st.st_size;
    else
        status = read_all(&t, err, &bytes);
    if (status == HT_OK) status = check_length(&t, bytes, seq, err);
    if (status == HT_OK) {
        t.n = bytes / width_of(&t);
        status = check_all(&t, err);
    }
    if (status == HT_OK)
        *out = t;
    else
        ht_tokens_close(&t);
    return status;
}

enum ht_status ht_tokens_open(const char *path, enum ht_token_format format, int64_t vocab, int64_t seq,
                              struct ht_error *err, struct ht_tokens *out)
{
    assert(format != HT_TOKENS_IMAGES);
    return open_file((struct ht_tokens){.path = path, .format = format, .vocab = vocab}, seq, err, out);
}

enum ht_status ht_images_open(const char *path, const struct ht_model *model, struct ht_error *err,
                              struct ht_tokens *out)
{
    if (model->classes > 65536)
        return ht_fail(err, HT_BAD_INPUT,
                       "%s: a label has at most 16 bits, model '%s' %lld classes; expected at most 65536", path,
                       model->name, (long long)model->classes);
    return open_file((struct ht_tokens){.path = path,
                                        .format = HT_TOKENS_IMAGES,
                                        .vocab = model->classes,
                                        .image_bytes = ht_model_sample_bytes(model, model->max_seq)},
                     0, err, out);
}

void ht_tokens_close(struct ht_tokens *t)
{
    if (t->path && t->fd >= 0) close(t->fd);
    free(t->bytes);
    *t = (struct ht_tokens){0};
}

int64_t ht_tokens_bytes(const struct ht_tokens *t)
{
    return t->n * width_of(t);
}

/* ---- batches --------------------------------------------------------------------------------------------------- */

void ht_batches_init(struct ht_batches *b, const struct ht_tokens *from, uint64_t seed, int64_t batch, int32_t n,
                     const struct ht_slice *slices, int64_t seq, int64_t classes)
{
    *b = (struct ht_batches){
        .from = from, .seed = seed, .batch = batch, .seq = seq, .classes = classes, .n_micro_batches = n};
    pthread_mutex_init(&b->lock, NULL);
    b->slices = HT_NEW_ARRAY(struct ht_slice, n);
    for (int32_t j = 0; j < n; j++) b->slices[j] = slices ? slices[j] : (struct ht_slice){j * (batch / n), batch / n};
    b->made_for = HT_NEW_ARRAY(int32_t, 2 * b->n_micro_batches);
    for (int32_t i = 0; i < 2 * b->n_micro_batches; i++) b->made_for[i] = -1;
    bool images = from->format == HT_TOKENS_IMAGES;
    b->sample_bytes = images ? from->image_bytes : seq * (int64_t)sizeof(int32_t);
    b->rows = classes ? 1 : seq;
    b->input = ht_alloc((size_t)(2 * batch * b->sample_bytes));
    b->targets = HT_NEW_ARRAY(int32_t, 2 * batch * b->rows);
    b->row = ht_alloc((size_t)(images ? width_of(from) : (seq + 1) * (int64_t)sizeof(int32_t)));
}

void ht_batches_free(struct ht_batches *b)
{
    if (!b->input) return;
    pthread_mutex_destroy(&b->lock);
    free(b->slices);
    free(b->made_for);
    free(b->input);
    free(b->targets);
    free(b->row);
    *b = (struct ht_batches){0};
}

/* Reads tokens [at, at + n) and checks them again: a file may change under a training that takes days, and an id beyond
   the vocabulary would be an address beyond a table. */
static enum ht_status read_tokens(const struct ht_tokens *t, int64_t at, int64_t n, int32_t *out, struct ht_error *err)
{
    unsigned char words[WORDS_BYTES] __attribute__((aligned(4)));
    int64_t width = width_of(t), most = WORDS_BYTES / width;
    for (int64_t i = 0; i < n; i += most) {
        int64_t some = n - i < most ? n - i : most;
        enum ht_status status = fetch(t, (at + i) * width, some * width, words, err);
        if (status != HT_OK) return status;
        if (first_wrong(t, words, some) < some)
            return ht_fail(err, HT_FAILED, "%s: was changed while it is trained on", t->path);
        for (int64_t k = 0; k < some; k++) out[i + k] = (int32_t)id_at(t, words, k);
    }
    return HT_OK;
}

/* Makes a sample of tokens: (T), and targets (T) or a class. */
static enum ht_status make_tokens(const struct ht_batches *b, uint64_t index, void *tokens, int32_t *targets,
                                  struct ht_error *err)
{
    int64_t begin = (int64_t)ht_random_below(b->seed, index, (uint64_t)(b->from->n - b->seq - 1));
    int32_t *row = b->row;
    enum ht_status status = read_tokens(b->from, begin, b->seq + 1, row, err);
    if (status != HT_OK) return status;
    memcpy(tokens, row, (size_t)b->sample_bytes);
    if (b->classes)
        *targets = row[b->seq] % (int32_t)b->classes;
    else
        memcpy(targets, row + 1, (size_t)b->seq * sizeof(*targets));
    return HT_OK;
}

/* Makes a sample of images: pixels and the label, which is checked again (read_tokens). */
static enum ht_status make_image(const struct ht_batches *b, uint64_t index, void *pixels, int32_t *target,
                                 struct ht_error *err)
{
    const struct ht_tokens *t = b->from;
    int64_t record = (int64_t)ht_random_below(b->seed, index, (uint64_t)t->n), bytes = width_of(t);
    enum ht_status status = fetch(t, record * bytes, bytes, b->row, err);
    if (status != HT_OK) return status;
    if (first_wrong(t, b->row, 1) < 1)
        return ht_fail(err, HT_FAILED, "%s: was changed while it is trained on", t->path);
    *target = (int32_t)id_at(t, b->row, 0);
    memcpy(pixels, (const char *)b->row + label_bytes(t), (size_t)t->image_bytes);
    return HT_OK;
}

/* Reads a slice of the iteration's samples. */
static enum ht_status make(const struct ht_batches *b, int32_t iteration, struct ht_slice slice, char *input,
                           int32_t *targets, struct ht_error *err)
{
    enum ht_status status = HT_OK;
    for (int64_t i = 0; i < slice.count && status == HT_OK; i++) {
        uint64_t index = (uint64_t)iteration * (uint64_t)b->batch + (uint64_t)(slice.first + i);
        bool images = b->from->format == HT_TOKENS_IMAGES;
        status = (images ? make_image : make_tokens)(b, index, input + i * b->sample_bytes, targets + i * b->rows, err);
    }
    return status;
}

enum ht_status ht_batches_get(void *ctx, int32_t iteration, int32_t micro_batch, const void **input,
                              const int32_t **targets, struct ht_error *err)
{
    struct ht_batches *b = ctx;
    if (micro_batch < 0 || micro_batch >= b->n_micro_batches)
        return ht_fail(err, HT_FAILED, "micro-batch %d of %d was asked for", micro_batch, b->n_micro_batches);
    int32_t slot = iteration % 2 * b->n_micro_batches + micro_batch;
    struct ht_slice slice = b->slices[micro_batch];
    int64_t first = iteration % 2 * b->batch + slice.first;
    char *x = b->input + first * b->sample_bytes;
    int32_t *y = b->targets + first * b->rows;
    enum ht_status status = HT_OK;
    pthread_mutex_lock(&b->lock);
    if (b->made_for[slot] != iteration) {
        status = make(b, iteration, slice, x, y, err);
        b->made_for[slot] = status == HT_OK ? iteration : -1;
    }
    pthread_mutex_unlock(&b->lock);
    *input = x;
    *targets = y;
    return status;
}
