#include "common/schedule/image.h"

#include "common/base/array.h"
#include "common/schedule/build.h"

#include <assert.h>
#include <string.h>

static void copy_label(struct ht_label *l, const struct ht_image *image)
{
    if (l->micro_batch >= 0) l->micro_batch += image->micro_batches;
}

static void copy_tables(struct ht_schedule *to, const struct ht_schedule *s, const struct ht_image *image)
{
    for (int32_t i = 0; i < s->n_lanes; i++) {
        const struct ht_lane *l = &s->lanes[i];
        ht_add_lane(to, l->name, l->kind, image->rank_of[l->rank], l->order);
    }
    for (int32_t i = 0; i < s->n_resources; i++) {
        const struct ht_resource *r = &s->resources[i];
        ht_add_resource(to, r->name, r->kind, r->node, r->capacity_per_s);
    }
    for (int32_t i = 0; i < s->n_tensors; i++) {
        struct ht_tensor *t = &to->tensors[i];
        *t = s->tensors[i];
        copy_label(&t->label, image);
        t->rank = image->rank_of[t->rank];
        if (t->parts > 1) t->part = image->part;
    }
    to->n_tensors = s->n_tensors;
    for (int32_t i = 0; i < s->n_residents; i++)
        ht_add_resident(to, s->residents[i].tensor, s->residents[i].tier, image->rank_of[s->residents[i].rank]);
    HT_RESERVE(to->works, to->works_cap, s->n_works);
    memcpy(to->works, s->works, (size_t)s->n_works * sizeof *s->works);
    to->n_works = s->n_works;
}

static void copy_ops(struct ht_schedule *to, const struct ht_schedule *s, const struct ht_image *image)
{
    int32_t n = s->n_ops;
    memcpy(to->ops, s->ops, (size_t)n * sizeof *s->ops);
    for (int32_t i = 0; i < n; i++) {
        int32_t rank = ht_op_rank(s, i);
        copy_label(&to->ops[i].label, image);
        for (int64_t k = s->uses_begin[i]; k < s->uses_begin[i + 1]; k++)
            to->uses[k] =
                (struct ht_use){image->resource_of(image->context, rank, s->uses[k].resource), s->uses[k].amount};
    }
    to->n_ops = n;
}

static void copy_lists(struct ht_schedule *to, const struct ht_schedule *s)
{
    int32_t n = s->n_ops;
    size_t begin = ((size_t)n + 1) * sizeof *s->deps_begin;
    memcpy(to->deps_begin, s->deps_begin, begin);
    memcpy(to->prev_begin, s->prev_begin, begin);
    memcpy(to->effects_begin, s->effects_begin, begin);
    memcpy(to->uses_begin, s->uses_begin, begin);
    if (s->deps_begin[n]) memcpy(to->deps, s->deps, (size_t)s->deps_begin[n] * sizeof *s->deps);
    if (s->prev_begin[n]) memcpy(to->prev, s->prev, (size_t)s->prev_begin[n] * sizeof *s->prev);
    if (s->effects_begin[n]) memcpy(to->effects, s->effects, (size_t)s->effects_begin[n] * sizeof *s->effects);
}

struct ht_schedule *ht_schedule_image(const struct ht_schedule *s, const struct ht_image *image)
{
    const struct ht_builder *b = s->work_index;
    struct ht_schedule *to = ht_schedule_create(s->name, s->n_ranks, s->n_nodes, s->rank_node);
    assert(b && !b->n_marks);
    ht_schedule_copy_spaces(to, s);
    to->n_units = s->n_units;
    ht_schedule_set_micro_batches(to, s->n_micro_batches, s->slices);
    ht_builder_reserve(to, &(struct ht_schedule *){(struct ht_schedule *)s}, 1);
    copy_tables(to, s, image);
    copy_ops(to, s, image);
    copy_lists(to, s);
    ht_builder_of(to)->linked = b->linked;
    return to;
}
