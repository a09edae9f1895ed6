/*
 * Finds drafts that are images of others: the same ops, each on another rank.
 *
 * A draft depends on its pipeline and its member by the size of the pipeline and of its stages, by the part's share of
 * the vocabulary, and by its ranks: their order, which of them share a node, what links and shards they have, and
 * whether they lead their node in a collective. Where all of that is the same, the draft is written once.
 */
#include "common/draft/pipe_internal.h"

#include "common/base/array.h"

#include <stdlib.h>

struct ht_pipe_images {
    const struct ht_scenario *scenario;
    const struct ht_pipe_style *style;
    const struct ht_pipe_holders *holders;
    const struct ht_layout *layout;
    struct ht_schedule *s; /* the cluster's ranks and nodes */
    struct ht_links *links;
    int32_t (*lists)[HT_LINKS]; /* [ranks], ht_links_list */
    int32_t *ranks[2];          /* room for the ranks of a collective */
};

/* A member of all stages of a pipeline. */
struct member {
    int32_t replica, member;
};

struct ht_pipe_images *ht_pipe_images_create(const struct ht_scenario *sc, const struct ht_pipe_style *style,
                                             const struct ht_pipe_holders *holders)
{
    struct ht_pipe_images *x = HT_NEW(struct ht_pipe_images);
    *x = (struct ht_pipe_images){.scenario = sc, .style = style, .holders = holders, .layout = holders->layout};
    x->s = ht_links_schedule(sc, "images");
    x->links = ht_links_add(x->s, sc->cluster, true);
    x->lists = ht_alloc_array((size_t)x->s->n_ranks, sizeof *x->lists);
    for (int32_t r = 0; r < x->s->n_ranks; r++) ht_links_list(&x->links[r], x->lists[r]);
    for (int i = 0; i < 2; i++) x->ranks[i] = HT_NEW_ARRAY(int32_t, ht_pipe_most_holders(x->layout));
    return x;
}

void ht_pipe_images_destroy(struct ht_pipe_images *x)
{
    if (!x) return;
    ht_schedule_destroy(x->s);
    free(x->links);
    free(x->lists);
    for (int i = 0; i < 2; i++) free(x->ranks[i]);
    free(x);
}

/* Returns true if slices of boundary tensors are equal for all parts, so that they differ in where they begin alone. */
static bool slices_are_equal(const struct ht_scenario *sc, const struct ht_pipe_style *style, const struct ht_layout *l)
{
    int64_t bytes = ht_unit_input_bytes(&sc->model, 1, sc->micro_batch, sc->seq, sc->numerics.param);
    return !style->halves && bytes % l->tp == 0;
}

bool ht_pipe_may_have_images(const struct ht_scenario *sc, const struct ht_pipe_style *style, const struct ht_layout *l)
{
    enum ht_undo_kind undo;
    bool hooks = style->hooks.add_lanes || style->hooks.begin || style->hooks.end;
    return l->n_replicas * l->members > 1 && !l->stage_begin && (!style->slices || slices_are_equal(sc, style, l)) &&
           !hooks && ht_pipe_control(sc, style, &undo).mode == HT_CONTROL_NONE;
}

static struct member member_of(const struct ht_pipe_images *x, int32_t draft)
{
    return (struct member){draft / x->layout->members, draft % x->layout->members};
}

static int32_t rank_of(const struct ht_pipe_images *x, struct member m, int32_t stage)
{
    return ht_layout_rank(x->layout, m.replica, stage, m.member);
}

static int32_t stages(const struct ht_pipe_images *x, struct member m)
{
    return ht_layout_stages(x->layout, &x->layout->replicas[m.replica]);
}

static bool same_pipelines(const struct ht_pipe_images *x, int32_t a, int32_t b)
{
    const struct ht_replica *p = &x->layout->replicas[a], *q = &x->layout->replicas[b];
    return p->n_ranks == q->n_ranks && p->n_micro_batches == q->n_micro_batches && p->micro_batch == q->micro_batch &&
           ht_pipe_are_alike(x->scenario, x->style, x->layout, a, b);
}

static bool same_part(const struct ht_pipe_images *x, int32_t a, int32_t b)
{
    int32_t tp = x->layout->tp;
    if (tp == 1) return true;
    struct ht_model p = ht_model_part(&x->scenario->model, a, tp), q = ht_model_part(&x->scenario->model, b, tp);
    return ht_model_vocab(&p) == ht_model_vocab(&q);
}

/* Returns true if two ranks have resources where the other one has, and the same of them are one. */
static bool same_links(const struct ht_pipe_images *x, int32_t rank, int32_t of)
{
    const int32_t *a = x->lists[of], *b = x->lists[rank];
    for (int i = 0; i < HT_LINKS; i++)
        for (int k = 0; k <= i; k++)
            if ((a[i] < 0) != (b[i] < 0) || (a[i] == a[k]) != (b[i] == b[k])) return false;
    return ht_links_alike(&x->links[of], &x->links[rank]);
}

/* Returns true if a rank leads its node in the passes of its stage. */
static bool crosses(const struct ht_pipe_images *x, int32_t rank)
{
    const int32_t *group = ht_layout_stage_ranks(x->layout, rank);
    return ht_links_cross(x->s, x->links, rank, group, x->layout->tp);
}

static bool same_ranks(const struct ht_pipe_images *x, struct member m, struct member of)
{
    const int32_t *node = x->s->rank_node;
    for (int32_t i = 0; i < stages(x, m); i++) {
        int32_t a = rank_of(x, of, i), b = rank_of(x, m, i);
        if (!same_links(x, b, a) || crosses(x, a) != crosses(x, b)) return false;
        for (int32_t k = 0; k < i; k++) {
            int32_t c = rank_of(x, of, k), d = rank_of(x, m, k);
            if ((a < c) != (b < d) || (node[a] == node[c]) != (node[b] == node[d])) return false;
        }
    }
    return true;
}

/* Returns true if the ranks of both have the same place among those that hold each unit. */
static bool same_reductions(const struct ht_pipe_images *x, struct member m, struct member of)
{
    for (int32_t u = 0; u < x->layout->n_units; u++) {
        if (u > 0 && ht_pipe_same_group(x->holders, u - 1, u)) continue;
        int32_t n = ht_pipe_group(x->holders, u, of.member, x->ranks[0]), i = 0, k = 0;
        ht_pipe_group(x->holders, u, m.member, x->ranks[1]); /* as many */
        for (; i < n || k < n; i++, k++) {
            while (i < n && ht_layout_stage(x->layout, of.replica, x->ranks[0][i]) < 0) i++;
            while (k < n && ht_layout_stage(x->layout, m.replica, x->ranks[1][k]) < 0) k++;
            if (i == n || k == n) break;
            int32_t a = x->ranks[0][i], b = x->ranks[1][k];
            if (ht_layout_stage(x->layout, of.replica, a) != ht_layout_stage(x->layout, m.replica, b) ||
                ht_links_cross(x->s, x->links, a, x->ranks[0], n) != ht_links_cross(x->s, x->links, b, x->ranks[1], n))
                return false;
        }
        if (i < n || k < n) return false;
    }
    return true;
}

static bool same_shard(const struct ht_pipe_images *x, int32_t unit, int32_t rank, int32_t of)
{
    const struct ht_shard *a = ht_layout_shard(x->layout, unit, of), *b = ht_layout_shard(x->layout, unit, rank);
    return a->begin == b->begin && a->end == b->end && a->padded == b->padded;
}

/* Returns true if ranks of both hold as much of each unit, and so do all with whom they share it. */
static bool same_shards(const struct ht_pipe_images *x, struct member m, struct member of)
{
    for (int32_t u = 0; u < x->layout->n_units; u++) {
        int32_t n = ht_pipe_group(x->holders, u, of.member, x->ranks[0]);
        ht_pipe_group(x->holders, u, m.member, x->ranks[1]); /* as many */
        for (int32_t i = 0; i < n; i++)
            if (!same_shard(x, u, x->ranks[1][i], x->ranks[0][i])) return false;
        for (int32_t i = 0; i < stages(x, m); i++)
            if (!same_shard(x, u, rank_of(x, m, i), rank_of(x, of, i))) return false;
    }
    return true;
}

bool ht_pipe_is_image(const struct ht_pipe_images *x, int32_t draft, int32_t of)
{
    struct member a = member_of(x, of), b = member_of(x, draft);
    return same_pipelines(x, a.replica, b.replica) && same_part(x, a.member, b.member) && same_ranks(x, b, a) &&
           same_reductions(x, b, a) && same_shards(x, b, a);
}

bool ht_pipe_stages_keep_to_nodes(const struct ht_pipe_images *x, int32_t pipeline)
{
    const int32_t *node = x->s->rank_node;
    for (int32_t member = 1; member < x->layout->members; member++) {
        struct member first = {pipeline, 0}, m = {pipeline, member};
        for (int32_t i = 0; i < stages(x, m); i++)
            if (node[rank_of(x, m, i)] != node[rank_of(x, first, i)]) return false;
    }
    return true;
}

/* Returns the resource that is to a rank's image what one of the rank's is to the rank. */
static int32_t resource_of(const struct ht_image *image, int32_t rank, int32_t resource)
{
    const struct ht_pipe_images *x = image->context;
    int i = 0;
    while (x->lists[rank][i] != resource) i++;
    return x->lists[image->rank_of[rank]][i];
}

struct ht_image ht_pipe_image(const struct ht_pipe_images *x, int32_t draft, int32_t of)
{
    const struct ht_replica *replicas = x->layout->replicas;
    struct member a = member_of(x, of), b = member_of(x, draft);
    struct ht_image image = {.rank_of = ht_alloc_ids(x->layout->n_ranks),
                             .part = b.member,
                             .part_offset = b.member - a.member,
                             .micro_batch_offset =
                                 replicas[b.replica].first_micro_batch - replicas[a.replica].first_micro_batch,
                             .resource_of = resource_of,
                             .context = x};
    for (int32_t i = 0; i < stages(x, a); i++) image.rank_of[rank_of(x, a, i)] = rank_of(x, b, i);
    return image;
}
