/* Helpers of the tests of several pipelines and of stages with replicas. */
#ifndef HT_TESTS_DRAFT_PIPELINES_H
#define HT_TESTS_DRAFT_PIPELINES_H

#include "common/schedule/sum_order.h"
#include "tests/support/pipes.h"

/* Returns the sum order of n pipelines with ranks[k] ranks and l[k] micro-batches of one sequence. */
static inline uint64_t sum_order(bool tied, enum ht_pipe_order order, int32_t n, const int64_t *ranks, const int64_t *l)
{
    int64_t all_ranks = 0, all = 0;
    for (int32_t k = 0; k < n; k++) all_ranks += ranks[k], all += l[k];
    struct ht_scenario sc = pipe_scenario(all_ranks, 1, 6, all);
    struct ht_layout *layout = NULL;
    struct ht_error err = {0};
    sc.model.tied = tied;
    sc.numerics = (struct ht_numerics){HT_F32, HT_F32, HT_F32, HT_F32};
    ck_assert_msg(ht_layout_pipelines(&sc, n, ranks, l, 1, &err, &layout) == HT_OK, "%s", err.text);
    struct ht_pipe_style y = {.order = order, .v = order == HT_PIPE_INTERLEAVED ? 2 : 1, .d = 1, .layout = layout};
    struct ht_schedule *s = pipe_build(&sc, &y);
    uint64_t number = ht_schedule_sum_order(s, &sc.model, &sc.numerics, sc.batch);
    ht_schedule_destroy(s);
    ht_layout_destroy(layout);
    ht_scenario_free(&sc);
    return number;
}

static inline uint64_t sum_order_of_one(bool tied, enum ht_pipe_order order, int64_t ranks, int64_t micro_batches)
{
    return sum_order(tied, order, 1, &ranks, &micro_batches);
}

/* Returns the nth tensor of a class of unit 2's MLP half. */
static inline struct ht_tensor *of_mlp(struct ht_schedule *s, enum ht_tensor_class class, int32_t n)
{
    for (int32_t i = 0; i < s->n_tensors; i++) {
        const struct ht_label *l = &s->tensors[i].label;
        if (s->tensors[i].class == class && l->unit == 2 && l->sub_ops == HT_MLP_HALF && n-- == 0)
            return &s->tensors[i];
    }
    ck_abort_msg("no such tensor");
}

#endif
