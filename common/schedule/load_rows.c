/* Graph files: names, references, places, amounts and labels, which tables and ops have in common. */
#include "common/schedule/load_rows.h"

#include "common/schedule/names.h"

#include <stdlib.h>
#include <string.h>

const struct ht_node *ht_first_element(const struct ht_node *node)
{
    if (!node) return NULL;
    return node->kind == HT_NODE_LIST ? node->child : node;
}

const struct ht_node *ht_next_element(const struct ht_node *node, const struct ht_node *element)
{
    return node->kind == HT_NODE_LIST ? element->next : NULL;
}

enum ht_status ht_load_name(struct ht_loader *l, const struct ht_node *node, size_t max, struct ht_symbols *table,
                            int32_t value, const char **out)
{
    const char *text;
    enum ht_status status = ht_node_string(node, l->err, &text);
    if (status) return status;
    if (strlen(text) >= max)
        return ht_node_error(node, l->err, "'%.80s' is too long; expected at most %zu characters", text, max - 1);
    if (!ht_printable(text, max)) return ht_node_error(node, l->err, "a name is made of printable ASCII characters");
    if (table && ht_all_digits(text))
        return ht_node_error(node, l->err, "'%s' is a number, which refers to a row; expected a name", text);
    if (table && !ht_symbols_add(table, text, value))
        return ht_node_error(node, l->err, "duplicate: '%s' is already taken; expected a name of its own", text);
    *out = text;
    return HT_OK;
}

static enum ht_status dangling(struct ht_loader *l, const struct ht_node *node, const char *text, const char *what,
                               int32_t n)
{
    if (n == 0) return ht_node_error(node, l->err, "dangling: there is no %s '%.80s'; the file has none", what, text);
    return ht_node_error(node, l->err, "dangling: there is no %s '%.80s'; expected a name or a number from 0 to %d",
                         what, text, n - 1);
}

enum ht_status ht_load_reference(struct ht_loader *l, const struct ht_node *node, const char *text, const char *what,
                                 const struct ht_symbols *table, int32_t n, int32_t *out)
{
    if (ht_all_digits(text)) {
        unsigned long long i = strlen(text) > 10 ? UINT64_MAX : strtoull(text, NULL, 10);
        if (i >= (unsigned long long)n) return dangling(l, node, text, what, n);
        *out = (int32_t)i;
        return HT_OK;
    }
    const struct ht_symbol *symbol = ht_symbols_find(table, text);
    if (!symbol) return dangling(l, node, text, what, n);
    *out = symbol->value;
    return HT_OK;
}

enum ht_status ht_load_residency(struct ht_loader *l, const struct ht_node *node, const char *text, int32_t *tensor,
                                 enum ht_tier *tier, int32_t *rank)
{
    char name[128];
    const char *at = strrchr(text, '@');
    if (!at || at == text || (size_t)(at - text) >= sizeof name)
        return ht_node_error(node, l->err, "'%.80s' is not a residency; expected 'tensor@tier' such as 'p1@device'",
                             text);
    memcpy(name, text, (size_t)(at - text));
    name[at - text] = 0;
    enum ht_status status = ht_load_reference(l, node, name, "tensor", &l->tensors, l->s->n_tensors, tensor);
    if (status) return status;
    const char *end = rank ? strchr(at, ':') : NULL;
    size_t n = end ? (size_t)(end - at - 1) : strlen(at + 1);
    for (int t = 0; t < HT_N_TIERS; t++)
        if (strlen(ht_tier_names[t]) == n && memcmp(ht_tier_names[t], at + 1, n) == 0) {
            *tier = (enum ht_tier)t;
            if (!end) return HT_OK;
            struct ht_symbols none = {0};
            return ht_load_reference(l, node, end + 1, "rank", &none, l->s->n_ranks, rank);
        }
    return ht_node_error(node, l->err, "'%.40s' is not a tier; expected device, host, disk or remote", at + 1);
}

enum ht_status ht_load_amount(struct ht_loader *l, const struct ht_node *node, bool cores, int64_t min, int64_t max,
                              int64_t *out)
{
    if (node->kind == HT_NODE_SCALAR && !node->quoted && ht_all_digits(node->text + (node->text[0] == '-')))
        return ht_node_int(node, min, max, l->err, out);
    return ht_node_whole(node, cores ? HT_TIME : HT_BYTES, min, max, l->err, out);
}

enum ht_status ht_load_sub_ops(struct ht_loader *l, const struct ht_node *node, uint32_t *out)
{
    uint32_t mask = 0;
    if (node->kind == HT_NODE_SCALAR && strcmp(node->text, "all") == 0) {
        *out = HT_ALL_SUB_OPS;
        return HT_OK;
    }
    HT_EACH_ELEMENT(node, e)
    {
        int sub;
        enum ht_status status = ht_node_enum(e, ht_sub_op_names, HT_N_SUB_OPS, l->err, &sub);
        if (status) return status;
        if (mask >> sub & 1) return ht_node_error(e, l->err, "duplicate: '%s' is listed twice", e->text);
        mask |= 1u << sub;
    }
    *out = mask;
    return HT_OK;
}

/* Fills in the defaults of a label: without a unit no units and no sub-ops, with one the whole of that unit. */
enum ht_status ht_load_label(struct ht_loader *l, const struct ht_label_row *row, struct ht_label *out)
{
    out->unit = (int32_t)row->unit;
    out->n_units = row->n_units >= 0 ? (int32_t)row->n_units : row->unit >= 0 ? 1 : 0;
    out->micro_batch = (int32_t)row->mb;
    out->sub_ops = row->unit >= 0 ? HT_ALL_SUB_OPS : 0;
    return row->sub_ops ? ht_load_sub_ops(l, row->sub_ops, &out->sub_ops) : HT_OK;
}
