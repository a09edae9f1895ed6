/*
 * The losses of a training's steps as a CSV that has all digits: what --losses writes, and what checkpoints keep.
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

/* Rows of ascending steps. */
struct ht_losses {
    struct ht_loss *rows;
    int64_t n;
    size_t cap;
};

void ht_losses_add(struct ht_losses *l, int64_t step, double loss);
void ht_losses_free(struct ht_losses *l);

/* The file's text, allocated. */
char *ht_losses_text(const struct ht_losses *l, size_t *bytes);
/* Reads such a file; an empty one has no rows. HT_BAD_INPUT with one line when it is anything else; *out is unchanged
   then. */
enum ht_status ht_losses_read(const char *path, struct ht_error *err, struct ht_losses *out);

#endif
