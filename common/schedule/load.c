/* Graph files: the document, its header and its tables. The format is described in docs/graph-format.md. */
#include "common/schedule/file.h"

#include "common/base/array.h"
#include "common/schedule/load_ops.h"
#include "common/schedule/limits.h"
#include "common/schedule/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- header ---- */

struct header {
    const struct ht_node *name, *rank_node, *capacity, *limit, *allocator, *slices;
    const struct ht_node *lanes, *resources, *tensors, *residents, *works, *ops;
    int64_t ranks, nodes, n_units, n_micro_batches;
};

static const struct ht_field header_fields[] = {
    HT_ROW("name", ANY_NODE, header, name),
    HT_ROW_INT("ranks", header, ranks, 1, HT_MAX_RANKS),
    HT_ROW_INT("nodes", header, nodes, 1, HT_MAX_RANKS),
    HT_ROW("rank_node", ANY_NODE, header, rank_node),
    HT_ROW("capacity", ANY_NODE, header, capacity),
    HT_ROW("limit", ANY_NODE, header, limit),
    HT_ROW("allocator", ANY_NODE, header, allocator),
    HT_ROW_INT("n_units", header, n_units, 0, HT_MAX_UNITS),
    HT_ROW_INT("n_micro_batches", header, n_micro_batches, 0, HT_MAX_MICRO_BATCHES),
    HT_ROW("slices", LIST_NODE, header, slices),
    HT_ROW("lanes", LIST_NODE, header, lanes, .required = true),
    HT_ROW("resources", LIST_NODE, header, resources),
    HT_ROW("tensors", LIST_NODE, header, tensors),
    HT_ROW("residents", LIST_NODE, header, residents),
    HT_ROW("works", LIST_NODE, header, works),
    HT_ROW("ops", LIST_NODE, header, ops, .required = true),
    {0},
};

static enum ht_status load_rank_nodes(struct ht_loader *l, const struct header *h, int32_t *rank_node)
{
    int32_t n = 0;
    HT_EACH_ELEMENT(h->rank_node, e)
    {
        int64_t node;
        enum ht_status status = ht_node_int(e, 0, h->nodes - 1, l->err, &node);
        if (status) return status;
        if (n < h->ranks) rank_node[n] = (int32_t)node;
        n++;
    }
    if (h->rank_node && n != h->ranks)
        return ht_node_error(h->rank_node, l->err, "lists %d nodes; expected one for each of %d ranks", n,
                             (int)h->ranks);
    return HT_OK;
}

static enum ht_status load_slices(struct ht_loader *l, const struct ht_node *list)
{
    int32_t n = 0, wanted = l->s->n_micro_batches;
    l->s->slices = HT_NEW_ARRAY(struct ht_slice, wanted);
    for (const struct ht_node *e = list->child; e; e = e->next, n++) {
        const struct ht_node *first = e->kind == HT_NODE_LIST ? e->child : NULL, *count = first ? first->next : NULL;
        if (n == wanted) return ht_node_error(e, l->err, "is one slice more than there are micro-batches");
        if (!count || count->next)
            return ht_node_error(e, l->err, "is not a slice; expected [first, count] in sequences");
        enum ht_status status = ht_node_int(first, 0, HT_MAX_SEQUENCES, l->err, &l->s->slices[n].first);
        if (!status) status = ht_node_int(count, 1, HT_MAX_SEQUENCES, l->err, &l->s->slices[n].count);
        if (status) return status;
    }
    if (n == wanted) return HT_OK;
    return ht_node_error(list, l->err, "has %d slices; expected one for each of %d micro-batches", n, wanted);
}

/* Loads a size of all, or a list of n sizes. */
static enum ht_status load_sizes(struct ht_loader *l, const struct ht_node *node, int32_t n, int64_t *bytes_of)
{
    int32_t at = 0;
    HT_EACH_ELEMENT(node, e)
    {
        int64_t bytes = INT64_MAX;
        bool unlimited = e->kind == HT_NODE_SCALAR && strcmp(e->text, "unlimited") == 0;
        enum ht_status status = unlimited ? HT_OK : ht_node_whole(e, HT_BYTES, 0, INT64_MAX - 1, l->err, &bytes);
        if (status) return status;
        if (node->kind == HT_NODE_SCALAR)
            while (at < n) bytes_of[at++] = bytes;
        else if (at < n)
            bytes_of[at++] = bytes;
        else
            return ht_node_error(e, l->err, "is one too many; expected %d in all", n);
    }
    if (at == n) return HT_OK;
    return ht_node_error(node, l->err, "lists %d sizes; expected one, or %d", at, n);
}

/* Loads a map of tiers to sizes into bytes[ht_n_spaces]. */
static enum ht_status load_spaces(struct ht_loader *l, const struct ht_node *node, int64_t *bytes_of)
{
    struct ht_schedule *s = l->s;
    struct tiers {
        const struct ht_node *of[HT_N_TIERS];
    } tiers;
    static const struct ht_field fields[] = {
        HT_ROW("device", ANY_NODE, tiers, of[HT_DEVICE]),
        HT_ROW("host", ANY_NODE, tiers, of[HT_HOST]),
        HT_ROW("disk", ANY_NODE, tiers, of[HT_DISK]),
        HT_ROW("remote", ANY_NODE, tiers, of[HT_REMOTE]),
        {0},
    };
    const int32_t first[] = {0, s->n_ranks, s->n_ranks + s->n_nodes, s->n_ranks + 2 * s->n_nodes, ht_n_spaces(s)};
    enum ht_status status = ht_config_load(node, fields, l->err, &tiers);
    for (int t = 0; t < HT_N_TIERS && !status; t++)
        if (tiers.of[t]) status = load_sizes(l, tiers.of[t], first[t + 1] - first[t], bytes_of + first[t]);
    return status;
}

static enum ht_status load_allocator(struct ht_loader *l, const struct ht_node *node)
{
    struct row {
        struct ht_allocator a;
        const struct ht_node *communicator;
    } row = {0};
    static const struct ht_field fields[] = {
        HT_ROW("own", BYTES, row, a.own_bytes, .required = true, .min = 1, .max = (double)HT_MAX_TENSOR_BYTES),
        HT_ROW("round", BYTES, row, a.round_bytes, .required = true, .min = 1, .max = (double)HT_MAX_TENSOR_BYTES),
        HT_ROW("shared", BYTES, row, a.shared_bytes, .required = true, .min = 1, .max = (double)HT_MAX_TENSOR_BYTES),
        HT_ROW("leaving", BOOL, row, a.leaving),
        HT_ROW("communicator", ANY_NODE, row, communicator),
        {0},
    };
    enum ht_status status = ht_config_load(node, fields, l->err, &row);
    if (status) return status;
    l->s->allocator = row.a;
    return row.communicator ? load_sizes(l, row.communicator, l->s->n_ranks, l->s->communicator_bytes) : HT_OK;
}

/* ---- tables ---- */

struct lane_row {
    const struct ht_node *name;
    int kind, order;
    int64_t rank, index;
};

static enum ht_status load_lanes(struct ht_loader *l, const struct ht_node *list)
{
    static const struct ht_field fields[] = {
        HT_ROW("name", ANY_NODE, lane_row, name, .required = true),
        HT_ROW_ENUM("kind", lane_row, kind, ht_lane_kind_names, HT_N_LANE_KINDS, true),
        HT_ROW_ENUM("order", lane_row, order, ht_lane_order_names, HT_N_LANE_ORDERS, false),
        HT_ROW_INT("rank", lane_row, rank, 0, HT_MAX_RANKS),
        HT_ROW_INT("index", lane_row, index, 0, INT32_MAX),
        {0},
    };
    enum { FULL = 40 }; /* "name@65535" */
    struct ht_schedule *s = l->s;
    size_t n = 0;
    HT_EACH_CHILD(list, e) n++;
    l->lane_names = HT_NEW_ARRAY(char, n *FULL);
    HT_EACH_CHILD(list, e)
    {
        struct lane_row row = {.order = HT_FIFO, .index = -1};
        const char *name = "";
        enum ht_status status = ht_config_load(e, fields, l->err, &row);
        if (!status) status = ht_load_name(l, row.name, sizeof s->lanes->name, NULL, 0, &name);
        if (status) return status;
        if (ht_all_digits(name) || strchr(name, '@'))
            return ht_node_error(row.name, l->err,
                                 "'%s' is not a name; expected one that is not a number and has no '@'", name);
        if (row.rank >= s->n_ranks)
            return ht_node_error(e, l->err, "is on rank %d; expected a rank below %d", (int)row.rank, s->n_ranks);
        char *full = l->lane_names + (size_t)s->n_lanes * FULL;
        snprintf(full, FULL, "%.24s@%d", name, (int)row.rank);
        if (!ht_symbols_add(&l->lanes_full, full, s->n_lanes))
            return ht_node_error(row.name, l->err, "duplicate: rank %d has a lane '%s' already", (int)row.rank, name);
        ht_symbols_add(&l->lanes, name, s->n_lanes);
        int32_t lane =
            ht_add_lane(s, name, (enum ht_lane_kind)row.kind, (int32_t)row.rank, (enum ht_lane_order)row.order);
        if (row.index >= 0) s->lanes[lane].index = (int32_t)row.index;
    }
    return HT_OK;
}

struct resource_row {
    const struct ht_node *name, *capacity;
    int kind;
    int64_t node;
};

static enum ht_status load_resources(struct ht_loader *l, const struct ht_node *list)
{
    static const struct ht_field fields[] = {
        HT_ROW("name", ANY_NODE, resource_row, name, .required = true),
        HT_ROW_ENUM("kind", resource_row, kind, ht_resource_kind_names, HT_N_RESOURCE_KINDS, true),
        HT_ROW_INT("node", resource_row, node, 0, HT_MAX_RANKS),
        HT_ROW("capacity_per_s", ANY_NODE, resource_row, capacity, .required = true),
        {0},
    };
    HT_EACH_CHILD(list, e)
    {
        struct resource_row row = {0};
        const char *name;
        int64_t capacity;
        enum ht_status status = ht_config_load(e, fields, l->err, &row);
        if (!status)
            status = ht_load_name(l, row.name, sizeof l->s->resources->name, &l->resources, l->s->n_resources, &name);
        if (!status) status = ht_load_amount(l, row.capacity, row.kind == HT_RES_CORES, 1, INT64_MAX, &capacity);
        if (status) return status;
        if (row.node >= l->s->n_nodes)
            return ht_node_error(e, l->err, "is on node %d; expected a node below %d", (int)row.node, l->s->n_nodes);
        ht_add_resource(l->s, name, (enum ht_resource_kind)row.kind, (int32_t)row.node, capacity);
    }
    return HT_OK;
}

struct tensor_row {
    struct ht_label_row label;
    const struct ht_node *name, *bytes, *shard, *part;
    int class;
    int64_t rank;
};

static enum ht_status load_shard(struct ht_loader *l, const struct ht_node *node, struct ht_tensor *t)
{
    const struct ht_node *begin = node->kind == HT_NODE_LIST ? node->child : NULL, *end = begin ? begin->next : NULL;
    if (!end || end->next) return ht_node_error(node, l->err, "is not a shard; expected [begin, end] in elements");
    t->sharded = true;
    enum ht_status status = ht_node_int(begin, 0, INT64_MAX, l->err, &t->shard_begin);
    return status ? status : ht_node_int(end, t->shard_begin, INT64_MAX, l->err, &t->shard_end);
}

static enum ht_status load_part(struct ht_loader *l, const struct ht_node *node, struct ht_tensor *t)
{
    const struct ht_node *part = node->kind == HT_NODE_LIST ? node->child : NULL, *parts = part ? part->next : NULL;
    int64_t n, q;
    if (!parts || parts->next) return ht_node_error(node, l->err, "is not a part; expected [part, parts]");
    enum ht_status status = ht_node_int(parts, 1, HT_MAX_RANKS, l->err, &n);
    if (!status) status = ht_node_int(part, 0, n - 1, l->err, &q);
    if (status) return status;
    t->part = (int32_t)q;
    t->parts = (int32_t)n;
    return HT_OK;
}

static enum ht_status load_tensors(struct ht_loader *l, const struct ht_node *list)
{
    static const struct ht_field fields[] = {
        HT_ROW("name", ANY_NODE, tensor_row, name),
        HT_ROW_ENUM("class", tensor_row, class, ht_tensor_class_names, HT_N_TENSOR_CLASSES, true),
        HT_ROW_INT("unit", tensor_row, label.unit, 0, HT_MAX_UNITS),
        HT_ROW_INT("n_units", tensor_row, label.n_units, 0, HT_MAX_UNITS),
        HT_ROW_INT("mb", tensor_row, label.mb, 0, HT_MAX_MICRO_BATCHES),
        HT_ROW("sub_ops", ANY_NODE, tensor_row, label.sub_ops),
        HT_ROW("bytes", ANY_NODE, tensor_row, bytes, .required = true),
        HT_ROW("shard", ANY_NODE, tensor_row, shard),
        HT_ROW("part", ANY_NODE, tensor_row, part),
        HT_ROW_INT("rank", tensor_row, rank, 0, HT_MAX_RANKS),
        {0},
    };
    HT_EACH_CHILD(list, e)
    {
        struct tensor_row row = {.label = HT_LABEL_ABSENT};
        struct ht_tensor t = {0};
        const char *name;
        enum ht_status status = ht_config_load(e, fields, l->err, &row);
        if (!status) status = ht_load_label(l, &row.label, &t.label);
        if (!status) status = ht_load_amount(l, row.bytes, false, 0, HT_MAX_TENSOR_BYTES, &t.bytes);
        if (!status && row.shard) status = load_shard(l, row.shard, &t);
        if (!status && row.part) status = load_part(l, row.part, &t);
        if (!status && row.rank >= l->s->n_ranks)
            status =
                ht_node_error(e, l->err, "is owned by rank %d; expected a rank below %d", (int)row.rank, l->s->n_ranks);
        if (!status && row.name) status = ht_load_name(l, row.name, 128, &l->tensors, l->s->n_tensors, &name);
        if (status) return status;
        t.class = (enum ht_tensor_class)row.class;
        t.rank = (int32_t)row.rank;
        ht_add_tensor(l->s, t);
    }
    return HT_OK;
}

static enum ht_status load_residents(struct ht_loader *l, const struct ht_node *list)
{
    HT_EACH_CHILD(list, e)
    {
        const char *text;
        int32_t tensor = -1, rank = -1;
        enum ht_tier tier = HT_DEVICE;
        enum ht_status status = ht_node_string(e, l->err, &text);
        if (!status) status = ht_load_residency(l, e, text, &tensor, &tier, &rank);
        if (status) return status;
        ht_add_resident(l->s, tensor, tier, rank >= 0 ? rank : l->s->tensors[tensor].rank);
    }
    return HT_OK;
}

/* ---- whole file ---- */

static enum ht_status load(struct ht_loader *l, const struct ht_node *root)
{
    struct header h = {.ranks = 1, .nodes = 1};
    const char *name = "";
    enum ht_status status = ht_config_load(root, header_fields, l->err, &h);
    if (!status && h.name) status = ht_load_name(l, h.name, sizeof l->s->name, NULL, 0, &name);
    if (status) return status;
    if (h.n_units * h.n_micro_batches > HT_MAX_UNIT_BATCHES)
        return ht_node_error(root, l->err, "n_units times n_micro_batches is %lld; expected at most %d",
                             (long long)(h.n_units * h.n_micro_batches), HT_MAX_UNIT_BATCHES);
    int32_t *rank_node = HT_NEW_ARRAY(int32_t, h.ranks);
    if (!(status = load_rank_nodes(l, &h, rank_node)))
        l->s = ht_schedule_create(name, (int32_t)h.ranks, (int32_t)h.nodes, rank_node);
    free(rank_node);
    if (status) return status;
    l->s->n_units = (int32_t)h.n_units;
    l->s->n_micro_batches = (int32_t)h.n_micro_batches;
    if (h.slices && (status = load_slices(l, h.slices))) return status;
    if (h.capacity && (status = load_spaces(l, h.capacity, l->s->capacity_bytes))) return status;
    if (h.limit && (status = load_spaces(l, h.limit, l->s->limit_bytes))) return status;
    if (h.allocator && (status = load_allocator(l, h.allocator))) return status;
    if ((status = load_lanes(l, h.lanes))) return status;
    if (h.resources && (status = load_resources(l, h.resources))) return status;
    if (h.tensors && (status = load_tensors(l, h.tensors))) return status;
    if (h.residents && (status = load_residents(l, h.residents))) return status;
    if (h.works && (status = ht_load_works(l, h.works))) return status;
    return ht_load_ops(l, h.ops);
}

static enum ht_status load_doc(struct ht_doc *doc, struct ht_error *err, struct ht_schedule **out)
{
    struct ht_loader l = {.err = err};
    enum ht_status status = load(&l, ht_doc_root(doc));
    if (status)
        ht_schedule_destroy(l.s);
    else
        *out = l.s;
    ht_symbols_free(&l.ops);
    ht_symbols_free(&l.tensors);
    ht_symbols_free(&l.resources);
    ht_symbols_free(&l.works);
    ht_symbols_free(&l.lanes);
    ht_symbols_free(&l.lanes_full);
    free(l.lane_names);
    ht_doc_destroy(doc);
    return status;
}

enum ht_status ht_schedule_load(const char *path, struct ht_error *err, struct ht_schedule **out)
{
    struct ht_doc *doc;
    enum ht_status status = ht_doc_open(path, err, &doc);
    return status ? status : load_doc(doc, err, out);
}

enum ht_status ht_schedule_load_text(const char *name, const char *text, size_t n, struct ht_error *err,
                                     struct ht_schedule **out)
{
    struct ht_doc *doc;
    enum ht_status status = ht_doc_parse(text, n, name, err, &doc);
    return status ? status : load_doc(doc, err, out);
}
