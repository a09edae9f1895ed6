#include "common/store/recovery_case.h"

#include "common/base/array.h"
#include "common/base/builtin.h"

#include <stdlib.h>

HT_EMBED(ht_recoveries_yaml, "common/store/recoveries.yaml");
static const struct ht_builtin files[] = {{"builtin:recoveries.yaml", ht_recoveries_yaml, ht_recoveries_yaml_end}};

/* ---- reading ---- */

struct case_entry {
    struct ht_recovery_case c;
    char name[64];
    const struct ht_node *lost, *before, *after;
};

#define AT(m) HT_FIELD_AT(struct case_entry, m)
static const struct ht_field case_fields[] = {
    {.key = "name", HT_FIELD_TEXT(struct case_entry, name)},
    {.key = "title", HT_FIELD_TEXT(struct case_entry, c.title)},
    {.key = "source", HT_FIELD_TEXT(struct case_entry, c.source)},
    {.key = "note", HT_FIELD_TEXT(struct case_entry, c.note)},
    {.key = "nodes", .type = HT_FIELD_INT, AT(c.n_nodes), .required = true, .min = 1, .max = HT_RECOVERY_NODES},
    {.key = "layers", .type = HT_FIELD_INT, AT(c.layers), .min = 1, .max = 10000},
    {.key = "cloud", .type = HT_FIELD_BYTES_PER_S, AT(c.cloud), .required = true},
    {.key = "disk", .type = HT_FIELD_BYTES_PER_S, AT(c.disk), .required = true},
    {.key = "nic", .type = HT_FIELD_BYTES_PER_S, AT(c.nic), .required = true},
    {.key = "lost", .type = HT_FIELD_LIST_NODE, AT(lost)},
    {.key = "before", .type = HT_FIELD_LIST_NODE, AT(before), .required = true},
    {.key = "after", .type = HT_FIELD_LIST_NODE, AT(after), .required = true},
    {0},
};
#undef AT

/* A group, or a stage, as written. */
struct group_entry {
    int64_t times;
    const struct ht_node *stages;
};
static const struct ht_field group_fields[] = {
    {.key = "times",
     .type = HT_FIELD_INT,
     HT_FIELD_AT(struct group_entry, times),
     .fallback = "1",
     .min = 1,
     .max = 64},
    {.key = "stages", .type = HT_FIELD_LIST_NODE, HT_FIELD_AT(struct group_entry, stages), .required = true},
    {0},
};
struct stage_entry {
    int64_t node, tp;
    double speed;
};
static const struct ht_field stage_fields[] = {
    {.key = "node", .type = HT_FIELD_INT, HT_FIELD_AT(struct stage_entry, node), .required = true, .max = 63},
    {.key = "tp", .type = HT_FIELD_INT, HT_FIELD_AT(struct stage_entry, tp), .fallback = "1", .min = 1, .max = 64},
    {.key = "speed", HT_FIELD_REAL(struct stage_entry, speed), .fallback = "1", .min = 1e-6, .max = 1e6},
    {0},
};

static enum ht_status read_stage(const struct ht_node *node, int64_t n_nodes, struct ht_error *err,
                                 struct ht_recovery_stage *out)
{
    struct stage_entry s = {0};
    enum ht_status status = ht_node_want(node, HT_NODE_MAP, err);
    if (status == HT_OK) status = ht_config_load(node, stage_fields, err, &s);
    if (status == HT_OK && s.node >= n_nodes)
        return ht_node_error(ht_node_find(node, "node"), err, "there is no node %lld; expected 0 to %lld",
                             (long long)s.node, (long long)n_nodes - 1);
    *out = (struct ht_recovery_stage){.node = (int32_t)s.node, .tp = (int32_t)s.tp, .speed = s.speed};
    return status;
}

/* Reads a group's stages, and repeats them as often as it says. */
static enum ht_status read_group(const struct ht_node *node, int64_t n_nodes, struct ht_error *err,
                                 struct ht_recovery_groups *out)
{
    struct group_entry g = {0};
    enum ht_status status = ht_node_want(node, HT_NODE_MAP, err);
    if (status == HT_OK) status = ht_config_load(node, group_fields, err, &g);
    if (status != HT_OK) return status;
    if (!g.stages->n_children) return ht_node_error(g.stages, err, "the list is empty; expected stages");
    if (out->n_stages + g.times * g.stages->n_children > HT_RECOVERY_STAGES)
        return ht_node_error(node, err, "too many stages; expected at most %d in all groups", HT_RECOVERY_STAGES);
    for (int64_t i = 0; i < g.times; i++, out->n_groups++) HT_EACH_CHILD(g.stages, s)
        {
            struct ht_recovery_stage *stage = &out->stages[out->n_stages++];
            status = read_stage(s, n_nodes, err, stage);
            if (status != HT_OK) return status;
            stage->group = out->n_groups;
            out->n_ranks += stage->tp;
        }
    return HT_OK;
}

static enum ht_status read_groups(const struct ht_node *list, int64_t n_nodes, struct ht_error *err,
                                  struct ht_recovery_groups *out)
{
    if (!list->n_children) return ht_node_error(list, err, "the list is empty; expected groups");
    HT_EACH_CHILD(list, g)
    {
        enum ht_status status = read_group(g, n_nodes, err, out);
        if (status != HT_OK) return status;
    }
    return HT_OK;
}

static enum ht_status read_lost(const struct ht_node *list, struct ht_error *err, struct ht_recovery_case *c)
{
    if (!list) return HT_OK;
    HT_EACH_CHILD(list, node)
    {
        int64_t at;
        enum ht_status status = ht_node_int(node, 0, c->n_nodes - 1, err, &at);
        if (status != HT_OK) return status;
        c->lost[at] = true;
    }
    for (int32_t i = 0; i < c->after.n_stages; i++)
        if (c->lost[c->after.stages[i].node])
            return ht_node_error(list, err, "node %d is lost, but a group has it afterwards", c->after.stages[i].node);
    return HT_OK;
}

static enum ht_status read_case(const struct ht_node *map, struct ht_error *err, struct ht_recovery_case *out)
{
    struct case_entry e = {0};
    enum ht_status status = ht_node_want(map, HT_NODE_MAP, err);
    if (status == HT_OK) status = ht_config_load(map, case_fields, err, &e);
    if (status == HT_OK) status = read_groups(e.before, e.c.n_nodes, err, &e.c.before);
    if (status == HT_OK) status = read_groups(e.after, e.c.n_nodes, err, &e.c.after);
    if (status == HT_OK) status = read_lost(e.lost, err, &e.c);
    if (status == HT_OK) *out = e.c;
    return status;
}

enum ht_status ht_recovery_case_load(const char *name_or_path, struct ht_error *err, struct ht_recovery_case *out)
{
    struct ht_doc *doc = NULL;
    const struct ht_node *map = NULL;
    bool path = ht_is_path(name_or_path);
    enum ht_status status = path ? ht_doc_open(name_or_path, err, &doc)
                                 : ht_builtin_find(files, HT_COUNT(files), "recovery", name_or_path, err, &doc, &map);
    if (status != HT_OK) return status;
    status = read_case(path ? ht_doc_root(doc) : map, err, out);
    ht_doc_destroy(doc);
    return status;
}

bool ht_recovery_case_name(int64_t index, char *buf, size_t bytes)
{
    return ht_builtin_name(files, HT_COUNT(files), index, buf, bytes);
}

/* ---- on a model ---- */

struct ht_model ht_recovery_case_model(const struct ht_recovery_case *c, const struct ht_model *m)
{
    struct ht_model model = *m;
    if (c->layers) model.layers = c->layers;
    return model;
}

/* Divides blocks over n stages: each block goes to the stage that is done with it soonest. That makes the slowest one as fast as
   it can be. */
static void divide(const struct ht_recovery_stage *s, int32_t n, int64_t blocks, int64_t *of)
{
    for (int32_t i = 0; i < n; i++) of[i] = 1;
    for (int64_t left = blocks - n; left > 0; left--) {
        int32_t best = 0;
        for (int32_t i = 1; i < n; i++)
            if ((double)(of[i] + 1) / s[i].speed < (double)(of[best] + 1) / s[best].speed) best = i;
        of[best]++;
    }
}

enum ht_status ht_recovery_case_stages(const struct ht_recovery_groups *groups, const struct ht_model *m,
                                       struct ht_error *err, struct ht_store_stage *stages)
{
    int64_t of[HT_RECOVERY_STAGES], units = ht_model_units(m);
    int32_t rank = 0;
    for (int32_t at = 0, n; at < groups->n_stages; at += n) {
        const struct ht_recovery_stage *s = &groups->stages[at];
        int64_t unit = 0;
        for (n = 1; at + n < groups->n_stages && s[n].group == s->group;) n++;
        if (n > m->layers)
            return ht_fail(err, HT_INFEASIBLE, "a group has %d stages; the model has %lld blocks", n,
                           (long long)m->layers);
        divide(s, n, m->layers, of);
        for (int32_t i = 0; i < n; i++) {
            int64_t end = i == n - 1 ? units : unit + of[i] + (i == 0);
            stages[at + i] = (struct ht_store_stage){unit, end, s[i].tp, rank, s[i].node};
            unit = end;
            rank += s[i].tp;
        }
    }
    return HT_OK;
}

/* ---- pricing ---- */

static bool survives(const struct ht_recovery_case *c, const struct ht_store_stage *before, int64_t unit)
{
    for (int32_t i = 0; i < c->before.n_stages; i++)
        if (!c->lost[before[i].node] && unit >= before[i].first && unit < before[i].end) return true;
    return false;
}

/* Adds up the state, and what of it only lost nodes had, as often as a group after needs it. */
static void count_bytes(const struct ht_recovery_case *c, const struct ht_model *m, const struct ht_store_stage *before,
                        struct ht_store_reading how, struct ht_recovery_outcome *out)
{
    int64_t each = how.param_bytes + 2 * (int64_t)sizeof(float);
    for (int64_t u = 0; u < ht_model_units(m); u++) {
        out->state_bytes += each * ht_unit_params(m, u);
        if (!survives(c, before, u)) out->lost_bytes += each * ht_unit_params(m, u) * c->after.n_groups;
    }
    out->params = ht_model_params(m);
}

enum ht_status ht_recovery_case_lay_out(const struct ht_recovery_case *c, const struct ht_model *m,
                                        struct ht_store_reading how, bool once, struct ht_error *err,
                                        struct ht_laid_out_recovery *r)
{
    r->model = ht_recovery_case_model(c, m);
    for (int64_t i = 0; i < c->n_nodes; i++) {
        r->disk[i] = c->disk;
        r->nic[i] = c->nic;
        r->memory[i] = 0; /* nothing lies there */
    }
    r->r = (struct ht_recovery){.before = r->before,
                                .after = r->after,
                                .n_before = c->before.n_stages,
                                .n_after = c->after.n_stages,
                                .lost = c->lost,
                                .once = once,
                                .rates = {(int32_t)c->n_nodes, r->disk, r->nic, r->memory, c->cloud},
                                .how = how};
    enum ht_status status = ht_recovery_case_stages(&c->before, &r->model, err, r->before);
    return status == HT_OK ? ht_recovery_case_stages(&c->after, &r->model, err, r->after) : status;
}

enum ht_status ht_recovery_case_price(const struct ht_recovery_case *c, const struct ht_model *m,
                                      struct ht_store_reading how, bool once, struct ht_error *err,
                                      struct ht_recovery_outcome *out)
{
    struct ht_laid_out_recovery *r = HT_NEW(struct ht_laid_out_recovery);
    *out = (struct ht_recovery_outcome){.n_ranks = c->after.n_ranks};
    out->reads = HT_NEW_ARRAY(struct ht_rank_reads, out->n_ranks);
    enum ht_status status = ht_recovery_case_lay_out(c, m, how, once, err, r);
    if (status == HT_OK) status = ht_recovery_price(&r->model, &r->r, err, &out->price);
    if (status == HT_OK) status = ht_recovery_reads(&r->model, &r->r, err, out->reads);
    if (status == HT_OK)
        count_bytes(c, &r->model, r->before, how, out);
    else
        ht_recovery_outcome_free(out);
    free(r);
    return status;
}

void ht_recovery_outcome_free(struct ht_recovery_outcome *o)
{
    free(o->reads);
    *o = (struct ht_recovery_outcome){0};
}
