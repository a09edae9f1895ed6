#include "common/schedule/fold.h"

#include "common/base/array.h"

#include <stdlib.h>

void ht_fold_destroy(struct ht_fold *f)
{
    if (!f) return;
    free(f->rank_of);
    free(f->image);
    free(f->node_of);
    free(f->resource_of);
    free(f->times);
    free(f->part_times);
    free(f->pipeline_of);
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

/* Returns the lane behind those of the replica that has lane l. */
static int32_t lanes_end(const struct ht_schedule *s, int32_t l)
{
    int32_t end = l + 1;
    while (end < s->n_lanes && s->fold->pipeline_of[s->lanes[end].rank] == s->fold->pipeline_of[s->lanes[l].rank])
        end++;
    return end;
}

struct ht_fold_lane *ht_fold_lanes(const struct ht_schedule *s)
{
    const struct ht_fold *f = s->fold;
    struct ht_fold_lane *lanes = HT_NEW_ARRAY(struct ht_fold_lane, (int64_t)ht_copies(s) * s->n_lanes);
    int64_t n = 0;
    for (int32_t l = 0; l < s->n_lanes && !f; l++) lanes[l] = (struct ht_fold_lane){l, s->lanes[l].rank};
    for (int32_t c = 0; f && c < f->copies; c += f->parts)
        for (int32_t first = 0, end; first < s->n_lanes; first = end) {
            end = lanes_end(s, first);
            for (int32_t q = 0; q < f->parts; q++)
                for (int32_t l = first; l < end; l++)
                    lanes[n++] = (struct ht_fold_lane){l, f->image[(int64_t)(c + q) * s->n_ranks + s->lanes[l].rank]};
        }
    return lanes;
}

static bool has_kind(const struct ht_schedule *s, enum ht_resource_kind kind)
{
    for (int32_t r = 0; r < s->n_resources; r++)
        if (s->resources[r].kind == kind) return true;
    return false;
}

/* Returns what keeps copies on one node from being equal: an op of a space, or of a link, that they share. */
static const char *shares(const struct ht_schedule *s)
{
    static const char *const memory = "replicas on one node share its memory or disks";
    bool staged = has_kind(s, HT_RES_STAGED);
    for (int32_t i = 0; i < s->n_residents; i++)
        if (s->residents[i].tier != HT_DEVICE) return memory;
    for (int64_t e = 0; e < s->effects_begin[s->n_ops]; e++)
        if (s->effects[e].tier != HT_DEVICE) return memory;
    for (int32_t op = 0; op < s->n_ops; op++) {
        if (!ht_joins_copies(s, op)) continue;
        for (int64_t u = s->uses_begin[op]; u < s->uses_begin[op + 1]; u++) {
            int32_t r = s->uses[u].resource;
            bool nic = s->resources[r].kind == HT_RES_NIC;
            if (s->fold->times[r] == ht_fold_times(s, op, r)) continue; /* none of its copies share it */
            if (!nic && s->lanes[s->ops[op].lane].kind != HT_LANE_COLLECTIVE)
                return "passes take a link that parts on one node share";
            if (!nic) return "collectives take a link that replicas on one node share";
            /* Where one rank of a node takes the NIC, the others take their paths through host memory. */
            if (staged) return "of replicas on one node only one passes collectives to others";
        }
    }
    return NULL;
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
    return f->shares_nodes ? shares(s) : NULL;
}
