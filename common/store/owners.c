#include "common/store/owners.h"

#include "common/base/array.h"

#include <stdlib.h>

struct entry {
    const struct ht_transfer_sink *sink;
    int64_t row;
};

static int by_extent(const void *va, const void *vb)
{
    const struct ht_transfer_sink *a = ((const struct entry *)va)->sink, *b = ((const struct entry *)vb)->sink;
    int order = ht_extent_compare(&a->extent, &b->extent);
    if (order) return order;
    if (a->node != b->node) return a->node < b->node ? -1 : 1;
    return (a->rank > b->rank) - (a->rank < b->rank);
}

/* Returns the end of the entries from `begin` on that have its extent, and its node if `of_node`. */
static int64_t run_end(const struct entry *e, int64_t begin, int64_t n, bool of_node)
{
    int64_t end = begin + 1;
    while (end < n && ht_extent_equal(&e[end].sink->extent, &e[begin].sink->extent) &&
           (!of_node || e[end].sink->node == e[begin].sink->node))
        end++;
    return end;
}

/* Marks the owners among entries [begin, end) of one extent. */
static void mark(const struct entry *e, int64_t begin, int64_t end, bool *to_node, bool *to_remote)
{
    int64_t unit = e[begin].sink->extent.unit, nodes = 0, which = 0;
    for (int64_t at = begin; at < end; at = run_end(e, at, end, true)) nodes++;
    for (int64_t at = begin; at < end; which++) {
        int64_t last = run_end(e, at, end, true), row = e[at + unit % (last - at)].row;
        if (to_node) to_node[row] = true;
        if (to_remote) to_remote[row] = which == unit % nodes;
        at = last;
    }
}

void ht_store_owners(const struct ht_transfer_sink *sinks, int64_t n, bool *to_node, bool *to_remote)
{
    struct entry *e = HT_NEW_ARRAY(struct entry, n);
    for (int64_t i = 0; i < n; i++) {
        e[i] = (struct entry){&sinks[i], i};
        if (to_node) to_node[i] = false;
        if (to_remote) to_remote[i] = false;
    }
    if (n) qsort(e, (size_t)n, sizeof(*e), by_extent);
    for (int64_t at = 0, end; at < n; at = end) {
        end = run_end(e, at, n, false);
        mark(e, at, end, to_node, to_remote);
    }
    free(e);
}
