/* Loads the works and ops of a graph file. */
#include "common/schedule/load_ops.h"

#include "common/base/array.h"
#include "common/schedule/build.h"
#include "common/schedule/limits.h"
#include "common/schedule/names.h"

#include <stdlib.h>
#include <string.h>

/* ---- works ---- */

#define HT_MAX_SHAPE ((int64_t)1 << 50)

struct work_row {
    struct ht_work w;
    const struct ht_node *name, *sub_ops, *custom, *bytes;
    int64_t n_units, tp, ranks;
};

static const struct ht_field work_fields[] = {
    HT_ROW("name", ANY_NODE, work_row, name),
    HT_ROW("custom", ANY_NODE, work_row, custom),
    HT_ROW_ENUM("kind", work_row, w.kind, ht_op_kind_names, HT_N_OP_KINDS, false),
    HT_ROW_ENUM("where", work_row, w.where, ht_lane_kind_names, HT_N_LANE_KINDS, false),
    HT_ROW_ENUM("unit", work_row, w.unit, ht_unit_kind_names, HT_N_UNIT_KINDS, false),
    HT_ROW_ENUM("arch", work_row, w.arch, ht_work_arch_names, HT_N_ARCHS, false),
    HT_ROW_INT("n_units", work_row, n_units, 0, HT_MAX_UNITS),
    HT_ROW("sub_ops", ANY_NODE, work_row, sub_ops),
    HT_ROW_INT("batch", work_row, w.batch, 0, HT_MAX_SHAPE),
    HT_ROW_INT("seq", work_row, w.seq, 0, HT_MAX_SHAPE),
    HT_ROW_INT("width", work_row, w.width, 0, HT_MAX_SHAPE),
    HT_ROW_INT("heads", work_row, w.heads, 0, HT_MAX_SHAPE),
    HT_ROW_INT("kv_heads", work_row, w.kv_heads, 0, HT_MAX_SHAPE),
    HT_ROW_INT("ffn", work_row, w.ffn, 0, HT_MAX_SHAPE),
    HT_ROW_INT("vocab", work_row, w.vocab, 0, HT_MAX_SHAPE),
    HT_ROW("tied", BOOL, work_row, w.tied),
    HT_ROW("flash", BOOL, work_row, w.flash),
    HT_ROW("dropout", BOOL, work_row, w.dropout),
    HT_ROW("sequence", BOOL, work_row, w.sequence),
    HT_ROW_ENUM("dtype", work_row, w.dtype, ht_work_dtype_names, HT_N_DTYPES, false),
    HT_ROW_ENUM("grad_dtype", work_row, w.grad_dtype, ht_work_dtype_names, HT_N_DTYPES, false),
    HT_ROW_INT("tp", work_row, tp, 0, HT_MAX_RANKS),
    HT_ROW_INT("ranks", work_row, ranks, 0, HT_MAX_RANKS),
    HT_ROW_INT("params", work_row, w.params, 0, HT_MAX_SHAPE),
    HT_ROW("bytes", ANY_NODE, work_row, bytes),
    HT_ROW_INT("even_bytes", work_row, w.even_bytes, 0, HT_MAX_SHAPE),
    HT_ROW("free", BOOL, work_row, w.free),
    HT_ROW("write", BOOL, work_row, w.write),
    {0},
};

static enum ht_status load_work(struct ht_loader *l, const struct ht_node *e, struct ht_work *work, const char **name)
{
    struct work_row row = {.n_units = 1, .tp = 1, .ranks = 1};
    const char *custom = "";
    enum ht_status status;
    *work = (struct ht_work){0};
    *name = NULL;
    if (e->kind == HT_NODE_SCALAR) {
        status = ht_load_name(l, e, sizeof work->custom, NULL, 0, name);
        if (!status) ht_copy_name(work->custom, sizeof work->custom, *name);
        return status;
    }
    if ((status = ht_config_load(e, work_fields, l->err, &row))) return status;
    if (row.custom && (status = ht_load_name(l, row.custom, sizeof work->custom, NULL, 0, &custom))) return status;
    if (row.name && (status = ht_load_name(l, row.name, 128, NULL, 0, name))) return status;
    if (!*name && custom[0]) *name = custom;
    if (row.sub_ops && (status = ht_load_sub_ops(l, row.sub_ops, &row.w.sub_ops))) return status;
    if (row.bytes && (status = ht_load_amount(l, row.bytes, false, 0, HT_MAX_SHAPE, &row.w.bytes))) return status;
    *work = row.w;
    work->n_units = (int32_t)row.n_units;
    work->tp = (int32_t)row.tp;
    work->ranks = (int32_t)row.ranks;
    ht_copy_name(work->custom, sizeof work->custom, custom);
    return HT_OK;
}

enum ht_status ht_load_works(struct ht_loader *l, const struct ht_node *list)
{
    l->works_listed = true;
    HT_EACH_CHILD(list, e)
    {
        struct ht_work work;
        const char *name;
        int32_t row, n = l->s->n_works;
        enum ht_status status = load_work(l, e, &work, &name);
        if (status) return status;
        if ((row = ht_add_work(l->s, &work)) < n)
            return ht_node_error(e, l->err, "duplicate: is equal to work %d; expected each work once", row);
        if (name && !ht_symbols_add(&l->works, name, row) && ht_node_find(e, "name"))
            return ht_node_error(e, l->err, "duplicate: there is a work '%s' already", name);
    }
    return HT_OK;
}

/* Reads the work of an op. Without a list of works every name is a custom name. */
static enum ht_status work_of(struct ht_loader *l, const struct ht_node *node, int32_t *out)
{
    const char *name;
    struct ht_work work = {0};
    enum ht_status status = ht_node_string(node, l->err, &name);
    if (status) return status;
    if (!l->works_listed && !ht_all_digits(name)) {
        if ((status = ht_load_name(l, node, sizeof work.custom, NULL, 0, &name))) return status;
        ht_copy_name(work.custom, sizeof work.custom, name);
        *out = ht_add_work(l->s, &work);
        return HT_OK;
    }
    return ht_load_reference(l, node, name, "work", &l->works, l->s->n_works, out);
}

/* ---- ops ---- */

struct op_row {
    struct ht_label_row label;
    const struct ht_node *name, *title, *lane, *work, *after, *prev, *effect[HT_N_EFFECT_FLAGS], *effects, *use;
    int kind, when;
    int64_t priority, match;
};

static const struct ht_field op_fields[] = {
    HT_ROW("name", ANY_NODE, op_row, name),
    HT_ROW("title", ANY_NODE, op_row, title),
    HT_ROW_ENUM("kind", op_row, kind, ht_op_kind_names, HT_N_OP_KINDS, true),
    HT_ROW("lane", ANY_NODE, op_row, lane, .required = true),
    HT_ROW_INT("unit", op_row, label.unit, 0, HT_MAX_UNITS),
    HT_ROW_INT("n_units", op_row, label.n_units, 0, HT_MAX_UNITS),
    HT_ROW_INT("mb", op_row, label.mb, 0, HT_MAX_MICRO_BATCHES),
    HT_ROW("sub_ops", ANY_NODE, op_row, label.sub_ops),
    HT_ROW("work", ANY_NODE, op_row, work, .required = true),
    HT_ROW("after", ANY_NODE, op_row, after),
    HT_ROW("prev", ANY_NODE, op_row, prev),
    HT_ROW("need", ANY_NODE, op_row, effect[0]),
    HT_ROW("produce", ANY_NODE, op_row, effect[1]),
    HT_ROW("update", ANY_NODE, op_row, effect[2]),
    HT_ROW("release", ANY_NODE, op_row, effect[3]),
    HT_ROW("effects", ANY_NODE, op_row, effects),
    HT_ROW("use", ANY_NODE, op_row, use),
    HT_ROW_INT("priority", op_row, priority, INT32_MIN, INT32_MAX),
    HT_ROW_ENUM("when", op_row, when, ht_when_names, HT_N_WHENS, false),
    HT_ROW_INT("match", op_row, match, 0, INT32_MAX),
    {0},
};

static enum ht_status lane_of(struct ht_loader *l, const struct ht_node *node, int32_t *out)
{
    const char *text;
    enum ht_status status = ht_node_string(node, l->err, &text);
    if (status) return status;
    if (strchr(text, '@')) return ht_load_reference(l, node, text, "lane", &l->lanes_full, l->s->n_lanes, out);
    const struct ht_symbol *symbol = ht_symbols_find(&l->lanes, text);
    if (symbol && symbol->ambiguous)
        return ht_node_error(node, l->err, "several ranks have a lane '%s'; expected one of them, such as '%s@%d'",
                             text, text, l->s->lanes[symbol->value].rank);
    return ht_load_reference(l, node, text, "lane", &l->lanes, l->s->n_lanes, out);
}

static enum ht_status load_edges(struct ht_loader *l, const struct ht_node *list, int32_t self, int32_t n_ops,
                                 bool prev)
{
    struct ht_schedule *s = l->s;
    HT_EACH_ELEMENT(list, e)
    {
        const char *text;
        int32_t op = -1;
        enum ht_status status = ht_node_string(e, l->err, &text);
        if (!status) status = ht_load_reference(l, e, text, "op", &l->ops, n_ops, &op);
        if (status) return status;
        if (!prev && op >= self)
            return ht_node_error(e, l->err, "cycle: '%.40s' %s; expected an op that comes earlier", text,
                                 op == self ? "is this op itself" : "comes later");
        int64_t before = prev ? s->prev_begin[s->n_ops] : s->deps_begin[s->n_ops];
        if (prev)
            ht_op_after_prev(s, op);
        else
            ht_op_after(s, op);
        if (before == (prev ? s->prev_begin[s->n_ops] : s->deps_begin[s->n_ops]))
            return ht_node_error(e, l->err, "duplicate: '%.40s' is listed twice", text);
    }
    return HT_OK;
}

static enum ht_status add_effect(struct ht_loader *l, const struct ht_node *e, const char *text, unsigned flags)
{
    int32_t tensor = -1;
    enum ht_tier tier = HT_DEVICE;
    enum ht_status status = ht_load_residency(l, e, text, &tensor, &tier, NULL);
    if (status) return status;
    const struct ht_effect *old = ht_find_effect(l->s, tensor, tier);
    if (old && (old->flags & flags)) return ht_node_error(e, l->err, "duplicate: '%.80s' is listed twice", text);
    ht_op_effect(l->s, tensor, tier, flags);
    return HT_OK;
}

/* Reads a list of effects in their own order: "need+release p1@device". */
static enum ht_status load_effects(struct ht_loader *l, const struct ht_node *list)
{
    HT_EACH_ELEMENT(list, e)
    {
        const char *text;
        unsigned flags = 0;
        enum ht_status status = ht_node_string(e, l->err, &text);
        if (status) return status;
        for (char end = '+'; end == '+';) {
            size_t n = strcspn(text, "+ ");
            int k = 0;
            while (k < HT_N_EFFECT_FLAGS &&
                   (strlen(ht_effect_names[k]) != n || memcmp(ht_effect_names[k], text, n) != 0))
                k++;
            end = text[n];
            if (k == HT_N_EFFECT_FLAGS || !end || flags >> k & 1)
                return ht_node_error(
                    e, l->err, "'%.80s' is not an effect; expected one such as 'need+release p1@device'", e->text);
            flags |= 1u << k;
            text += n + 1;
        }
        if ((status = add_effect(l, e, text, flags))) return status;
    }
    return HT_OK;
}

static enum ht_status load_uses(struct ht_loader *l, const struct ht_node *map)
{
    struct ht_schedule *s = l->s;
    enum ht_status status = ht_node_want(map, HT_NODE_MAP, l->err);
    if (status) return status;
    HT_EACH_CHILD(map, e)
    {
        int32_t resource = -1;
        int64_t amount;
        if ((status = ht_load_reference(l, e, e->key, "resource", &l->resources, s->n_resources, &resource)))
            return status;
        if (s->resources[resource].kind == HT_RES_CORES)
            status = ht_node_int(e, 0, HT_MAX_AMOUNT, l->err, &amount);
        else
            status = ht_load_amount(l, e, false, 0, HT_MAX_AMOUNT, &amount);
        if (status) return status;
        int64_t before = s->uses_begin[s->n_ops];
        ht_op_use(s, resource, amount);
        if (before == s->uses_begin[s->n_ops]) return ht_node_error(e, l->err, "duplicate: '%s' is used twice", e->key);
    }
    return HT_OK;
}

static enum ht_status load_op(struct ht_loader *l, const struct ht_node *e, int32_t self, int32_t n_ops)
{
    struct op_row row = {.label = HT_LABEL_ABSENT, .when = HT_ALWAYS, .match = -1};
    struct ht_label label;
    int32_t lane = -1, work = -1;
    const char *name = "";
    enum ht_status status = ht_config_load(e, op_fields, l->err, &row);
    if (!status) status = lane_of(l, row.lane, &lane);
    if (!status) status = work_of(l, row.work, &work);
    if (!status) status = ht_load_label(l, &row.label, &label);
    if (!status && row.name) status = ht_node_string(row.name, l->err, &name); /* checked by name_ops */
    if (!status && row.title) {
        if (row.name)
            return ht_node_error(row.title, l->err, "the op has a name already; expected one of name and title");
        status = ht_load_name(l, row.title, sizeof l->s->ops->name, NULL, 0, &name);
    }
    if (status) return status;
    ht_add_op(l->s, (enum ht_op_kind)row.kind, lane, label, work);
    ht_op_name(l->s, "%s", name);
    ht_op_priority(l->s, (int32_t)row.priority);
    ht_op_when(l->s, (enum ht_when)row.when);
    ht_op_match(l->s, (int32_t)row.match);
    if ((status = load_edges(l, row.after, self, n_ops, false))) return status;
    if ((status = load_edges(l, row.prev, self, n_ops, true))) return status;
    for (int k = 0; k < HT_N_EFFECT_FLAGS; k++) HT_EACH_ELEMENT(row.effect[k], element)
        {
            const char *text;
            if ((status = ht_node_string(element, l->err, &text))) return status;
            if ((status = add_effect(l, element, text, 1u << k))) return status;
        }
    if ((status = load_effects(l, row.effects))) return status;
    return row.use ? load_uses(l, row.use) : HT_OK;
}

/* Reads all names first, since edges to the previous iteration may point ahead. */
static enum ht_status name_ops(struct ht_loader *l, const struct ht_node *list, int32_t *n_ops)
{
    *n_ops = 0;
    HT_EACH_CHILD(list, e)
    {
        const char *name;
        const struct ht_node *node = ht_node_find(e, "name");
        enum ht_status status = ht_node_want(e, HT_NODE_MAP, l->err);
        if (!status && node) status = ht_load_name(l, node, sizeof l->s->ops->name, &l->ops, *n_ops, &name);
        if (status) return status;
        (*n_ops)++;
    }
    return HT_OK;
}

enum ht_status ht_load_ops(struct ht_loader *l, const struct ht_node *list)
{
    int32_t n_ops, self = 0;
    enum ht_status status = name_ops(l, list, &n_ops);
    if (status) return status;
    HT_EACH_CHILD(list, e)
    {
        if ((status = load_op(l, e, self++, n_ops))) return status;
    }
    return HT_OK;
}
