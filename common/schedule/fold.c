#include "common/schedule/fold.h"

#include <stdlib.h>

void ht_fold_destroy(struct ht_fold *f)
{
    if (!f) return;
    free(f->rank_of);
    free(f->image);
    free(f->node_of);
    free(f->resource_of);
    free(f->shards);
    free(f);
}

int32_t ht_fold_space(const struct ht_schedule *s, int32_t space)
{
    int32_t node = space - s->n_ranks;
    if (!s->fold || space == ht_n_spaces(s) - 1) return space;
    if (node < 0) return s->fold->rank_of[space];
    if (node < s->n_nodes) return s->n_ranks + s->fold->node_of[node];
    return s->n_ranks + s->n_nodes + s->fold->node_of[node - s->n_nodes];
}

int32_t ht_fold_resource(const struct ht_schedule *s, int32_t resource)
{
    return s->fold && s->fold->resource_of[resource] >= 0 ? s->fold->resource_of[resource] : resource;
}

int32_t ht_fold_lane_rank(const struct ht_schedule *s, int32_t i)
{
    int32_t rank = s->lanes[i % s->n_lanes].rank;
    return s->fold ? s->fold->image[i / s->n_lanes * s->n_ranks + rank] : rank;
}

const char *ht_fold_leaves(const struct ht_schedule *s)
{
    const struct ht_fold *f = s->fold;
    for (int64_t u = 0; u < s->uses_begin[s->n_ops]; u++)
        if (f->resource_of[s->uses[u].resource] != s->uses[u].resource)
            return "an op uses a resource of another replica";
    for (int32_t i = 0; i < s->n_residents; i++)
        if (s->residents[i].tier == HT_REMOTE) return "replicas share the remote store";
    for (int64_t e = 0; e < s->effects_begin[s->n_ops]; e++)
        if (s->effects[e].tier == HT_REMOTE) return "replicas share the remote store";
    for (int32_t l = 0; l < s->n_lanes; l++)
        if (f->rank_of[s->lanes[l].rank] != s->lanes[l].rank) return "a lane is of another replica";
    return NULL;
}
