/*
 * The losses of a training's steps as a CSV with all digits. --losses writes it, and checkpoints keep it.
 *
 *     step,loss
 *     1,5.5612487792968750
 */
#ifndef HT_CKPT_LOSSES_H
#define HT_CKPT_LOSSES_H

#include "common/base/status.h"

#include <stddef.h>
#include <stdint.h>

struct ht_loss {
    int64_t step;
    double loss;
};

/* Losses in ascending order of steps. */
struct ht_losses {
    struct ht_loss *rows;
    int64_t n;
    size_t cap;
};

void ht_losses_add(struct ht_losses *l, int64_t step, double loss);
void ht_losses_free(struct ht_losses *l);

/* Returns the file's text, allocated. */
char *ht_losses_text(const struct ht_losses *l, size_t *bytes);
/* Reads such a file; an empty file has no rows. HT_BAD_INPUT, with one line, for any other text; *out is then
   unchanged. */
enum ht_status ht_losses_read(const char *path, struct ht_error *err, struct ht_losses *out);

#endif
