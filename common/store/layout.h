/*
 * A regular layout: dp replicas of a pipeline of pp stages of tp parts each. Tensor parallelism is innermost:
 * rank = (replica * pp + stage) * tp + part. Stages have equal numbers of blocks, earlier ones the remainder; the
 * embedding belongs to the first, the head to the last. ZeRO cuts momentum and variance (and, from its third stage on,
 * parameters) of a part into dp ranges; we cut where all ranges are equal but the last.
 */
#ifndef HT_STORE_LAYOUT_H
#define HT_STORE_LAYOUT_H

#include "common/store/transfer.h"

struct ht_store_layout {
    int32_t dp, tp, pp;
    bool zero1;       /* momentum and variance in dp ranges */
    int32_t per_node; /* ranks of a node; 0: all are on one */
};

int32_t ht_store_layout_ranks(const struct ht_store_layout *l);
/* Reads "dp,tp,pp", such as "2,4,1". HT_BAD_INPUT for anything else, in one line that begins with `flag`. */
enum ht_status ht_store_layout_read(const char *flag, const char *text, struct ht_error *err,
                                    struct ht_store_layout *out);
/* Returns HT_BAD_INPUT if the model cannot be cut so. */
enum ht_status ht_store_layout_check(const struct ht_store_layout *l, const struct ht_model *m, struct ht_error *err);
/* Returns the units [*first, *end) of a stage. */
void ht_store_layout_stage(const struct ht_store_layout *l, const struct ht_model *m, int32_t stage, int64_t *first,
                           int64_t *end);
/* Lists what each rank has, by rank. Returns the allocated list, of *n sinks. */
struct ht_transfer_sink *ht_store_layout_sinks(const struct ht_store_layout *l, const struct ht_model *m, int64_t *n);

#endif
