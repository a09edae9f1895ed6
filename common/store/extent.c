#include "common/store/extent.h"

#include <assert.h>

/* A tensor of a unit in groups, of which a part has an interval. */
struct grid {
    int64_t offset;       /* of the tensor in the part's flat buffer */
    int64_t groups;       /* the same in each part */
    int64_t first, width; /* the part's interval of each group */
};

static int64_t max_of(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t min_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static struct ht_model part_of(const struct ht_model *m, const struct ht_extent *e)
{
    return e->tp_parts > 1 ? ht_model_part(m, e->tp_part, e->tp_parts) : *m;
}

/* Returns a tensor's grid in a part. The cuts are those of ht_unit_part_run. */
static struct grid grid_of(const struct ht_model *m, const struct ht_extent *e, int32_t tensor)
{
    struct ht_param_part parts[HT_MAX_PARAM_PARTS];
    struct ht_model part = part_of(m, e);
    int n = ht_unit_param_parts(&part, e->unit, parts);
    assert(tensor < n);
    (void)n;
    const struct ht_param_part *p = &parts[tensor];
    struct grid g = {.offset = p->offset, .groups = 1};
    if (p->split == HT_SPLIT_OUT_OF_3) g.groups = 3;
    if (p->split == HT_SPLIT_IN) g.groups = p->rows;
    g.width = p->rows * p->cols / g.groups;
    if (p->split == HT_SPLIT_TOKENS)
        g.first = ht_model_first_token(&part) * p->cols;
    else if (p->split != HT_SPLIT_NONE)
        g.first = e->tp_part * g.width;
    return g;
}

struct ht_extent ht_extent_of_part(const struct ht_model *m, int64_t unit, enum ht_state_part part, int32_t tp_part,
                                   int32_t tp_parts)
{
    struct ht_extent e = {.unit = unit, .part = part, .tp_part = tp_part, .tp_parts = tp_parts};
    struct ht_model of = part_of(m, &e);
    e.end = ht_unit_params(&of, unit);
    return e;
}

bool ht_extent_is_whole(const struct ht_model *m, const struct ht_extent *e)
{
    struct ht_extent all = ht_extent_of_part(m, e->unit, e->part, e->tp_part, e->tp_parts);
    return ht_extent_equal(&all, e);
}

int ht_extent_compare(const void *va, const void *vb)
{
    const struct ht_extent *a = va, *b = vb;
    const int64_t x[] = {a->unit, (int64_t)a->part, a->tp_parts, a->tp_part, a->begin, a->end};
    const int64_t y[] = {b->unit, (int64_t)b->part, b->tp_parts, b->tp_part, b->begin, b->end};
    for (int i = 0; i < 6; i++)
        if (x[i] != y[i]) return x[i] < y[i] ? -1 : 1;
    return 0;
}

bool ht_extent_equal(const struct ht_extent *a, const struct ht_extent *b)
{
    return ht_extent_compare(a, b) == 0;
}

bool ht_extent_is_sound(const struct ht_model *m, const struct ht_extent *e)
{
    char buf[64];
    if (e->unit < 0 || e->unit >= ht_model_units(m) || (unsigned)e->part >= HT_N_STATE_PARTS) return false;
    if (e->tp_parts < 1 || e->tp_part < 0 || e->tp_part >= e->tp_parts) return false;
    if (e->tp_parts > 1 && ht_model_cannot_part(m, e->tp_parts, buf, sizeof(buf))) return false;
    struct ht_extent all = ht_extent_of_part(m, e->unit, e->part, e->tp_part, e->tp_parts);
    return e->begin >= 0 && e->begin <= e->end && e->end <= all.end;
}

int64_t ht_box_elements(const struct ht_box *b)
{
    return (b->group_end - b->group) * (b->end - b->begin);
}

int ht_extent_boxes(const struct ht_model *m, const struct ht_extent *e, int32_t tensor, struct ht_box out[3])
{
    struct grid g = grid_of(m, e, tensor);
    int64_t from = max_of(e->begin - g.offset, 0), to = min_of(e->end - g.offset, g.groups * g.width);
    int n = 0;
    while (from < to) {
        int64_t group = from / g.width, at = from % g.width, last = to / g.width;
        struct ht_box b = {.tensor = tensor, .group = group, .group_end = group + 1};
        if (at == 0 && last > group) b.group_end = last; /* whole groups */
        b.begin = g.first + at;
        b.end = g.first + min_of(g.width, to - group * g.width);
        from += ht_box_elements(&b);
        out[n++] = b;
    }
    return n;
}

bool ht_box_intersect(const struct ht_box *a, const struct ht_box *b, struct ht_box *out)
{
    *out = (struct ht_box){.tensor = a->tensor,
                           .group = max_of(a->group, b->group),
                           .group_end = min_of(a->group_end, b->group_end),
                           .begin = max_of(a->begin, b->begin),
                           .end = min_of(a->end, b->end)};
    return a->tensor == b->tensor && out->group < out->group_end && out->begin < out->end;
}

int ht_box_subtract(const struct ht_box *a, const struct ht_box *b, struct ht_box out[4])
{
    int n = 0;
    struct ht_box before = *a, behind = *a, left = *b, right = *b;
    before.group_end = b->group;
    behind.group = b->group_end;
    left.begin = a->begin;
    left.end = b->begin;
    right.begin = b->end;
    right.end = a->end;
    const struct ht_box *rest[] = {&before, &left, &right, &behind};
    for (int i = 0; i < 4; i++)
        if (rest[i]->group < rest[i]->group_end && rest[i]->begin < rest[i]->end) out[n++] = *rest[i];
    return n;
}

struct ht_box_place ht_extent_place(const struct ht_model *m, const struct ht_extent *e, const struct ht_box *b)
{
    struct grid g = grid_of(m, e, b->tensor);
    int64_t first = g.offset + b->group * g.width + (b->begin - g.first) - e->begin;
    assert(first >= 0 && b->begin >= g.first && b->end <= g.first + g.width);
    return (struct ht_box_place){.first = first, .pitch = g.width};
}
