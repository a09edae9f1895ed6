#include "common/draft/fold.h"

#include "common/base/array.h"
#include "common/draft/links.h"
#include "common/profile/profile.h"

#include <stdlib.h>
#include <string.h>

struct folding {
    const struct ht_scenario *scenario;
    const struct ht_layout *layout;
    struct ht_schedule *s; /* the cluster's ranks, capacities and resources */
    struct ht_links *links;
    int32_t each, ranks;     /* replicas and ranks of a copy */
    int32_t parts;           /* of copies; 1: a copy has all parts */
    int32_t *image_node;     /* [n_nodes] of a node of the first copy, in the copy at hand; -1: not known */
    int32_t *image_resource; /* [n_resources] likewise */
    int32_t *node_users;     /* [n_nodes] copies that are on a node */
    int32_t *resource_users; /* [n_resources] copies that have a resource */
    int32_t *part_users;     /* [n_resources] those of them that are parts of the replicas at hand */
    struct ht_fold *fold;
};

/* Returns the i-th rank of a copy. The parts of a stage are beside each other. */
static int32_t rank_at(const struct folding *f, int32_t copy, int32_t i)
{
    int32_t first = copy / f->parts * f->ranks * f->parts, part = copy % f->parts;
    return f->layout->rank_at[first + i * f->parts + part];
}

static const char *check_replicas(const struct ht_layout *l)
{
    if (l->n_replicas == 1) return "there is one replica";
    if (!l->alike) return "replicas have unequal micro-batches";
    for (int32_t k = 1; k < l->n_replicas; k++)
        if (l->replicas[k].n_ranks != l->replicas[0].n_ranks) return "replicas have unequal numbers of ranks";
    return NULL;
}

/* Notes that, in the copy at hand, `image` is that of `of`. Returns false if `of` has another image in it, or if `image` is that
   of another one in any copy. */
static bool pair(int32_t *image_of, int32_t *users, int32_t *origin, int32_t of, int32_t image)
{
    if (image_of[of] >= 0) return image_of[of] == image;
    if (origin[image] >= 0 && origin[image] != of) return false;
    image_of[of] = image;
    origin[image] = of;
    users[image]++;
    return true;
}

/* Counts the resources that the copy at hand has. */
static void count_part(struct folding *f)
{
    for (int32_t r = 0; r < f->s->n_resources; r++)
        if (f->image_resource[r] >= 0) f->part_users[f->image_resource[r]]++;
}

/* Checks that parts of these replicas share resources as those of the first copy's do, which are noted. */
static bool same_part_users(struct folding *f, bool first)
{
    bool same = true;
    for (int32_t r = 0; r < f->s->n_resources; r++) {
        int32_t of = f->fold->resource_of[r], n = f->part_users[r];
        if (first) f->fold->part_times[r] = n;
        if (n) same &= n == f->fold->part_times[of];
        f->part_users[r] = 0;
    }
    return same;
}

/* Matches a resource of the first copy with that of an image. Returns false if they differ, or if others are matched already. */
static bool match(struct folding *f, int32_t of, int32_t image)
{
    const struct ht_resource *a, *b;
    if (of < 0 || image < 0) return of == image;
    a = &f->s->resources[of], b = &f->s->resources[image];
    return a->kind == b->kind && a->capacity_per_s == b->capacity_per_s &&
           pair(f->image_resource, f->resource_users, f->fold->resource_of, of, image);
}

static bool match_links(struct folding *f, int32_t rank, int32_t image)
{
    const struct ht_links *a = &f->links[rank], *b = &f->links[image];
    int32_t of[HT_LINKS], images[HT_LINKS];
    ht_links_list(a, of);
    ht_links_list(b, images);
    for (int i = 0; i < HT_LINKS; i++)
        if (!match(f, of[i], images[i])) return false;
    return ht_links_alike(a, b);
}

static bool same_spaces(const struct folding *f, int32_t rank, int32_t image)
{
    const struct ht_schedule *s = f->s;
    for (enum ht_tier tier = HT_DEVICE; tier <= HT_DISK; tier++)
        if (s->capacity_bytes[ht_space(s, tier, rank)] != s->capacity_bytes[ht_space(s, tier, image)]) return false;
    return s->communicator_bytes[rank] == s->communicator_bytes[image];
}

static bool same_shards(const struct folding *f, int32_t rank, int32_t image)
{
    const struct ht_layout *l = f->layout;
    for (int32_t u = 0; u < l->n_units; u++)
        if (ht_layout_shard(l, u, rank)->padded != ht_layout_shard(l, u, image)->padded) return false;
    return true;
}

/* Checks that a rank's image is on the image of its node. */
static bool match_nodes(struct folding *f, int32_t rank, int32_t image)
{
    return pair(f->image_node, f->node_users, f->fold->node_of, f->s->rank_node[rank], f->s->rank_node[image]);
}

/* Returns true if each image has as many users as its origin. */
static bool same_users(const int32_t *users, const int32_t *origin, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        if (origin[i] >= 0 && users[i] != users[origin[i]]) return false;
    return true;
}

/* Checks that ranks of a copy are in the order of those of the first copy, and behind them. */
static bool same_order(const struct folding *f, int32_t copy)
{
    const int32_t *image = f->fold->image + (int64_t)copy * f->s->n_ranks;
    int32_t last = -1;
    for (int32_t r = 0; r < f->s->n_ranks; r++) {
        if (f->fold->image[r] < 0) continue;
        if (image[r] <= last || image[r] < r) return false;
        last = image[r];
    }
    return true;
}

/* Matches a copy with the first one, rank for rank. Returns NULL, or the reason why that fails. */
static const char *match_copy(struct folding *f, int32_t copy)
{
    for (int32_t n = 0; n < f->s->n_nodes; n++) f->image_node[n] = -1;
    for (int32_t r = 0; r < f->s->n_resources; r++) f->image_resource[r] = -1;
    for (int32_t i = 0; i < f->ranks; i++) {
        int32_t rank = rank_at(f, 0, i), image = rank_at(f, copy, i);
        f->fold->rank_of[image] = rank;
        f->fold->image[(int64_t)copy * f->s->n_ranks + rank] = image;
        if (!match_nodes(f, rank, image)) return "replicas lie on nodes in different ways";
        if (!ht_profile_same_kind(f->scenario->cluster, rank, image) || !same_spaces(f, rank, image))
            return "replicas are on different devices or nodes";
        if (!match_links(f, rank, image)) return "replicas share links in different ways";
        if (!same_shards(f, rank, image)) return "replicas have shards of different sizes";
    }
    return same_order(f, copy) ? NULL : "replicas are on ranks in different orders";
}

static const char *match_all(struct folding *f)
{
    const struct ht_schedule *s = f->s;
    struct ht_fold *fold = f->fold;
    const char *why = NULL;
    for (int32_t r = 0; r < s->n_ranks; r++) fold->rank_of[r] = -1;
    for (int32_t n = 0; n < s->n_nodes; n++) fold->node_of[n] = -1, f->node_users[n] = 0;
    for (int32_t i = 0; i < s->n_resources; i++) fold->resource_of[i] = -1, f->resource_users[i] = 0;
    for (int64_t i = 0; i < (int64_t)fold->copies * s->n_ranks; i++) fold->image[i] = -1;
    for (int32_t c = 0; c < fold->copies && !why; c++) {
        why = match_copy(f, c);
        if (!why) count_part(f);
        if (!why && (c + 1) % f->parts == 0 && !same_part_users(f, c < f->parts))
            why = "parts share links in different ways";
    }
    if (why) return why;
    if (!same_users(f->node_users, fold->node_of, s->n_nodes)) return "some replicas share a node";
    if (!same_users(f->resource_users, fold->resource_of, s->n_resources)) return "some replicas share a link";
    for (int32_t n = 0; n < s->n_nodes; n++) fold->shares_nodes |= f->node_users[n] > 1;
    for (int32_t i = 0; i < s->n_resources; i++) fold->times[i] = f->resource_users[i];
    return NULL;
}

static struct ht_fold *create(const struct ht_schedule *s, int32_t copies, int32_t parts)
{
    struct ht_fold *fold = HT_NEW(struct ht_fold);
    fold->copies = copies;
    fold->parts = parts;
    fold->rank_of = HT_NEW_ARRAY(int32_t, s->n_ranks);
    fold->image = HT_NEW_ARRAY(int32_t, (int64_t)copies * s->n_ranks);
    fold->node_of = HT_NEW_ARRAY(int32_t, s->n_nodes);
    fold->resource_of = HT_NEW_ARRAY(int32_t, s->n_resources);
    fold->times = HT_NEW_ARRAY(int32_t, s->n_resources);
    fold->part_times = HT_NEW_ARRAY(int32_t, s->n_resources);
    fold->pipeline_of = HT_NEW_ARRAY(int32_t, s->n_ranks);
    return fold;
}

/* Notes the shards of all ranks, where the copies have different ones. */
static void note_shards(const struct ht_layout *l, struct ht_fold *fold)
{
    if (l->sharding == HT_SHARD_NONE) return;
    fold->shards = HT_NEW_ARRAY(struct ht_fold_shard, (int64_t)l->n_units * l->n_ranks);
    for (int32_t i = 0; i < l->n_units * l->n_ranks; i++)
        fold->shards[i] = (struct ht_fold_shard){l->shards[i].begin, l->shards[i].end};
}

static void note_pipelines(const struct ht_layout *l, struct ht_fold *fold)
{
    for (int32_t k = 0; k < l->n_replicas; k++)
        for (int32_t i = 0; i < l->replicas[k].n_ranks; i++)
            fold->pipeline_of[l->rank_at[l->replicas[k].first_place + i]] = k;
}

/* Ways to fold: by parts, by replicas, and so that replicas of several copies are on no common node. */
struct way {
    bool parts, replicas, apart;
};

/* Returns a reason that no size of copies can mend; NULL: none. */
static const char *check(const struct ht_scenario *sc, const struct ht_layout *l, const struct ht_fold_builder *builder,
                         struct way way)
{
    const char *why = way.parts ? builder->parts_differ(builder->context, l->n_replicas) : check_replicas(l);
    if (why) return why;
    if (sc->cluster->n_between) return "nodes are connected by links of their own";
    if (l->sharding != HT_SHARD_NONE && l->n_units != ht_model_units(&sc->model))
        return "states of half blocks are sharded";
    return NULL;
}

/* Returns why the drafts of equal replicas differ; NULL: they do not. */
static const char *differ(const struct ht_fold_builder *builder)
{
    return builder->differ ? builder->differ(builder->context) : NULL;
}

/* Returns true if copies may have so many replicas each. */
static bool may_have(const struct ht_layout *l, const struct ht_fold_builder *builder, struct way way, int32_t each)
{
    if (each == l->n_replicas) return way.parts;
    if (l->n_replicas % each || !way.replicas) return false;
    return !way.parts || (!check_replicas(l) && !differ(builder));
}

/* Returns how a graph folds in a way, or NULL with the reason in *why. *each: replicas of a copy. */
static struct ht_fold *find(const struct ht_scenario *sc, const struct ht_layout *l,
                            const struct ht_fold_builder *builder, struct way way, int32_t *each, const char **why)
{
    *why = check(sc, l, builder, way);
    if (*why) return NULL;
    struct folding f = {
        .scenario = sc, .layout = l, .s = ht_links_schedule(sc, "fold"), .parts = way.parts ? l->tp : 1};
    f.links = ht_links_add(f.s, sc->cluster, true);
    f.image_node = HT_NEW_ARRAY(int32_t, f.s->n_nodes);
    f.node_users = HT_NEW_ARRAY(int32_t, f.s->n_nodes);
    f.image_resource = HT_NEW_ARRAY(int32_t, f.s->n_resources);
    f.resource_users = HT_NEW_ARRAY(int32_t, f.s->n_resources);
    f.part_users = HT_NEW_ARRAY(int32_t, f.s->n_resources);
    *why = "replicas share a node";
    for (f.each = 1; f.each <= l->n_replicas && !(f.fold && !*why); f.each++) {
        if (!may_have(l, builder, way, f.each)) continue;
        ht_fold_destroy(f.fold);
        f.ranks = (f.each == l->n_replicas ? l->n_ranks : f.each * l->replicas[0].n_ranks) / f.parts;
        f.fold = create(f.s, l->n_replicas / f.each * f.parts, f.parts);
        *why = match_all(&f);
        if (!*why && way.apart && f.fold->shares_nodes) *why = "replicas share a node";
        if (!*why) *each = f.each;
    }
    free(f.links);
    free(f.image_node);
    free(f.node_users);
    free(f.image_resource);
    free(f.resource_users);
    free(f.part_users);
    ht_schedule_destroy(f.s);
    if (!*why) {
        note_shards(l, f.fold);
        note_pipelines(l, f.fold);
        return f.fold;
    }
    ht_fold_destroy(f.fold);
    return NULL;
}

/* Builds the graph of the first copy, if it folds in a way. Otherwise *out is NULL, and *why the reason; *shared: only because
   copies share nodes. */
static enum ht_status build_copy(const struct ht_scenario *sc, const struct ht_layout *l, struct way way,
                                 const struct ht_fold_builder *builder, const char **why, bool *shared,
                                 struct ht_error *err, struct ht_schedule **out)
{
    int32_t each = 0;
    struct ht_fold *fold = find(sc, l, builder, way, &each, why);
    *shared = false;
    if (!*why && !way.parts) *why = differ(builder);
    enum ht_status status = *why ? HT_OK : builder->write(builder->context, each, way.parts, err, out);
    if (*why || status) {
        ht_fold_destroy(fold);
        return status;
    }
    (*out)->fold = fold; /* freed with it */
    *why = ht_fold_leaves(*out);
    if (!*why) return HT_OK;
    *shared = fold->shares_nodes;
    ht_schedule_destroy(*out);
    *out = NULL;
    return HT_OK;
}

enum ht_status ht_fold_build(const struct ht_scenario *sc, const struct ht_layout *l,
                             const struct ht_fold_builder *builder, struct ht_error *err, struct ht_schedule **out)
{
    static const struct way ways[] = {
        {true, true, false}, {true, false, false}, {false, true, false}, {false, true, true}};
    const char *why = NULL, *first = NULL;
    bool shared = false;
    enum ht_status status = HT_OK;
    *out = NULL;
    for (size_t i = 0; sc->folds && i < HT_COUNT(ways) && !status && !*out; i++) {
        bool narrower = i == 1 || i == 3; /* than the way before, which was found to share too much */
        if (ways[i].parts && (l->tp == 1 || !builder->parts_differ)) continue;
        if (narrower && (!shared || l->n_replicas == 1)) continue;
        status = build_copy(sc, l, ways[i], builder, &why, &shared, err, out);
        if (!first) first = why;
    }
    if (!status && !*out) {
        status = builder->write(builder->context, l->n_replicas, false, err, out);
        if (!status) (*out)->not_folded = first;
    }
    return status;
}
