/* Copies between device and host, and messages between ranks. */
#include "common/build/pipe_build.h"

#include "common/build/works.h"

#include <stdio.h>

/* ---- copies ---------------------------------------------------------------------------------------------------- */

static void copy(struct ht_pipe *g, int32_t rank, bool to_device, struct ht_label about, int64_t bytes)
{
    int32_t lane = to_device ? g->lanes[rank].h2d : g->lanes[rank].d2h;
    struct ht_work w = {
        .kind = HT_OP_COPY, .where = to_device ? HT_LANE_H2D : HT_LANE_D2H, .tp = 1, .ranks = 1, .bytes = bytes};
    ht_add_op(g->s, HT_OP_COPY, lane, about, ht_add_work(g->s, &w));
    ht_charge_copy(g->s, g->ports, to_device ? HT_HOST : HT_DEVICE, to_device ? HT_DEVICE : HT_HOST, bytes);
}

/* Does the visit bring a unit from this owner's node? Not if the visit before has left it there. */
static bool brings(const struct ht_pipe *g, int32_t rank, int32_t k, int32_t unit)
{
    const struct ht_pipe_visit *v = &g->visits[rank * g->n_passes + k];
    return ht_pipe_visit_reads(g, v, unit) && (k == 0 || !ht_pipe_visit_reads(g, v - 1, unit));
}

static bool is_remote(const struct ht_pipe *g, int32_t rank, int32_t unit)
{
    return g->s->rank_node[ht_pipe_rank(g, ht_pipe_owner(g, unit))] != g->s->rank_node[ht_pipe_rank(g, rank)];
}

static int32_t get_lanes(struct ht_pipe *g, int32_t rank, int32_t owner)
{
    int32_t *serve = &g->serve[owner * g->shape.ranks + rank];
    char name[24];
    snprintf(name, sizeof name, "serve %d", rank);
    if (g->lanes[rank].get < 0) g->lanes[rank].get = ht_pipe_add_lane(g, "get", HT_LANE_P2P, rank);
    if (*serve < 0) *serve = ht_pipe_add_lane(g, name, HT_LANE_P2P, owner);
    return *serve;
}

/* Members of a group come in ascending rank: is the receive this one? */
static bool receives_at(int member, int32_t from, int32_t to)
{
    return (member == 1) == (to > from);
}

/* Units [begin, end) of one owner on another node. */
static void get(struct ht_pipe *g, int32_t rank, int32_t begin, int32_t end, int32_t after)
{
    int32_t owner = ht_pipe_owner(g, begin), serve = get_lanes(g, rank, owner);
    int64_t bytes = 0;
    for (int32_t u = begin; u < end; u++) bytes += g->s->tensors[g->param[u]].bytes;
    struct ht_label about = {begin, end - begin, HT_ALL_SUB_OPS, -1};
    for (int member = 0; member < 2; member++) {
        bool receives = receives_at(member, owner, rank);
        enum ht_op_kind kind = receives ? HT_OP_RECEIVE : HT_OP_SEND;
        struct ht_work w = {.kind = kind, .where = HT_LANE_P2P, .tp = 1, .ranks = 2, .bytes = bytes};
        ht_add_op(g->s, kind, receives ? g->lanes[rank].get : serve, about, ht_add_work(g->s, &w));
        ht_op_name(g->s, "P%d", begin);
        ht_op_match(g->s, g->match);
        ht_op_after(g->s, after);
        for (int32_t u = begin; u < end; u++)
            ht_op_effect(g->s, g->param[u], receives ? HT_DEVICE : HT_HOST, receives ? HT_PRODUCE : HT_NEED);
        ht_charge_message(g->s, g->ports, ht_pipe_rank(g, receives ? owner : rank), true, bytes);
    }
    g->match++;
}

static void fetch_local(struct ht_pipe *g, int32_t rank, int32_t k, int32_t after)
{
    int32_t first = -1, last = -1;
    int64_t bytes = 0;
    for (int32_t u = 0; u < g->n_units; u++) {
        if (!brings(g, rank, k, u) || is_remote(g, rank, u)) continue;
        first = first < 0 ? u : first;
        last = u;
        bytes += g->s->tensors[g->param[u]].bytes;
    }
    if (first < 0) return;
    copy(g, rank, true, (struct ht_label){first, last - first + 1, HT_ALL_SUB_OPS, -1}, bytes);
    ht_op_name(g->s, "P%d", first);
    ht_op_after(g->s, after);
    for (int32_t u = first; u <= last; u++) {
        if (!brings(g, rank, k, u) || is_remote(g, rank, u)) continue;
        ht_op_effect(g->s, g->param[u], HT_HOST, HT_NEED);
        ht_op_effect(g->s, g->param[u], HT_DEVICE, HT_PRODUCE);
    }
}

void ht_pipe_fetch(struct ht_pipe *g, int32_t rank, int32_t k)
{
    if (!ht_pipe_offloads(g) || k >= g->n_visits[rank]) return;
    int32_t after = k >= 2 ? g->visits[rank * g->n_passes + k - 2].last_op : -1; /* whose buffer it takes */
    fetch_local(g, rank, k, after);
    for (int32_t u = 0, end; u < g->n_units; u = end) {
        end = u + 1;
        if (!brings(g, rank, k, u) || !is_remote(g, rank, u)) continue;
        while (end < g->n_units && brings(g, rank, k, end) && ht_pipe_owner(g, end) == ht_pipe_owner(g, u)) end++;
        get(g, rank, u, end, after);
    }
}

void ht_pipe_offload(struct ht_pipe *g, int32_t q)
{
    int32_t rank = ht_pipe_backward_rank(&g->shape, q), begin = g->first[q], end = g->first[q + 1];
    int64_t bytes = 0;
    for (int32_t u = begin; u < end; u++) bytes += g->s->tensors[g->grad[u]].bytes;
    copy(g, rank, false, (struct ht_label){begin, end - begin, HT_ALL_SUB_OPS, -1}, bytes);
    ht_op_name(g->s, "G%d", q);
    for (int32_t u = begin; u < end; u++) {
        ht_op_effect(g->s, g->grad[u], HT_DEVICE, HT_NEED | HT_RELEASE);
        ht_op_effect(g->s, g->grad[u], HT_HOST, HT_UPDATE);
    }
}

/* ---- several pipelines ------------------------------------------------------------------------------------------ */

/* Does this member take its node's NIC? The group's first real device there does, if the group is on several nodes. */
static bool crosses(const struct ht_pipe *g, int32_t rank, int32_t unit)
{
    const int32_t *node = g->s->rank_node;
    bool elsewhere = false;
    for (int32_t k = 0; k < g->style->layout->n_replicas; k++) {
        int32_t other = ht_pipe_holder(g, k, unit);
        if (other < rank && node[other] == node[rank] && !g->ports[other].emulated) return false;
        elsewhere |= node[other] != node[rank];
    }
    return elsewhere;
}

void ht_pipe_all_reduce(struct ht_pipe *g, int32_t unit)
{
    const struct ht_numerics *n = &g->scenario->numerics;
    int32_t rank = ht_pipe_owner(g, unit), members = g->style->layout->n_replicas;
    enum ht_dtype dtype = g->sums ? n->accumulate : n->reduce;
    struct ht_work w = {
        .kind = HT_OP_ALL_REDUCE, .where = HT_LANE_COLLECTIVE, .tp = 1, .ranks = members, .grad_dtype = dtype};
    w.bytes = ht_all_reduce_elements(g->scenario, unit, members) * ht_dtype_bytes(dtype);
    ht_add_op(g->s, HT_OP_ALL_REDUCE, g->lanes[rank].reduce, (struct ht_label){unit, 1, HT_ALL_SUB_OPS, -1},
              ht_add_work(g->s, &w));
    ht_op_name(g->s, "AR%d", unit);
    ht_op_match(g->s, g->match++);
    ht_op_effect(g->s, g->grad[unit], HT_DEVICE, HT_UPDATE);
    ht_charge_collective(g->s, g->ports, crosses(g, ht_pipe_rank(g, rank), unit), w.bytes);
}

/* ---- messages -------------------------------------------------------------------------------------------------- */

struct ht_pipe_message ht_pipe_message(struct ht_pipe *g, int32_t from, int32_t to, int32_t out, int32_t in,
                                       int32_t tensor, char letter, int32_t after)
{
    struct ht_label about = g->s->tensors[tensor].label;
    int64_t bytes = g->s->tensors[tensor].bytes;
    bool free = g->style->free_messages;
    int32_t ids[2]; /* send, receive */
    for (int member = 0; member < 2; member++) {
        bool receives = receives_at(member, from, to);
        enum ht_op_kind kind = receives ? HT_OP_RECEIVE : HT_OP_SEND;
        struct ht_work w = {.kind = kind, .where = HT_LANE_P2P, .tp = 1, .ranks = 2, .bytes = bytes, .free = free};
        ids[receives] = ht_add_op(g->s, kind, receives ? in : out, about, ht_add_work(g->s, &w));
        ht_op_name(g->s, "%c%d.%d", letter, about.unit, about.micro_batch - g->replica.first_micro_batch);
        ht_op_match(g->s, g->match);
        ht_op_after(g->s, after);
        ht_op_effect(g->s, tensor, HT_DEVICE, receives ? HT_PRODUCE : HT_NEED | HT_RELEASE);
        if (!free) ht_charge_message(g->s, g->ports, ht_pipe_rank(g, receives ? from : to), false, bytes);
    }
    g->match++;
    return (struct ht_pipe_message){ids[0], ids[1]};
}

void ht_pipe_send_boundary(struct ht_pipe *g, int32_t from, int32_t to, int32_t tensor, int32_t for_backward)
{
    const struct ht_tensor *t = &g->s->tensors[tensor];
    const struct ht_pipe_lanes *a = &g->lanes[from], *b = &g->lanes[to];
    bool gradient = t->class == HT_ACT_GRAD;
    if (from == to) return;
    int32_t mb = t->label.micro_batch - g->replica.first_micro_batch;
    struct ht_pipe_message p = ht_pipe_message(g, from, to, gradient ? a->grad_out : a->act_out,
                                               gradient ? b->grad_in : b->act_in, tensor, gradient ? 'D' : 'X', -1);
    if (g->style->blocking_sends) g->sending[from] = p.send;
    if (for_backward >= 0) g->arrival[for_backward * g->n_mb + mb] = p.receive;
}
