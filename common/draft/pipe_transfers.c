/* Appends copies between device and host, and messages between ranks. */
#include "common/draft/pipe_internal.h"

#include "common/base/array.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- copies ---------------------------------------------------------------------------------------------------- */

/* Returns true if a visit must fetch a unit's parameters. It need not if the visit before has left them on the
   device. */
static bool brings(const struct ht_pipe *g, int32_t rank, int32_t k, int32_t unit)
{
    const struct ht_pipe_visit *v = &g->visits[rank * g->n_passes + k];
    return ht_pipe_visit_reads(g, v, unit) && (k == 0 || !ht_pipe_visit_reads(g, v - 1, unit));
}

static bool is_remote(const struct ht_pipe *g, int32_t rank, int32_t unit)
{
    return g->d.schedule->rank_node[ht_pipe_rank(g, ht_pipe_owner(g, unit))] !=
           g->d.schedule->rank_node[ht_pipe_rank(g, rank)];
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

/* Returns true if this member of a message is the receive. Members of a group are in ascending order of ranks. */
static bool receives_at(const struct ht_pipe *g, int member, int32_t from, int32_t to)
{
    return (member == 1) == (ht_pipe_rank(g, to) > ht_pipe_rank(g, from));
}

/* Fetches units [begin, end), which one owner on another node holds. */
static void get(struct ht_pipe *g, int32_t rank, int32_t begin, int32_t end, int32_t after)
{
    int32_t owner = ht_pipe_owner(g, begin), serve = get_lanes(g, rank, owner);
    int64_t bytes = 0;
    for (int32_t u = begin; u < end; u++) bytes += g->d.schedule->tensors[g->d.param[u]].bytes;
    struct ht_label about = {begin, end - begin, HT_ALL_SUB_OPS, -1};
    for (int member = 0; member < 2; member++) {
        bool receives = receives_at(g, member, owner, rank);
        enum ht_op_kind kind = receives ? HT_OP_RECEIVE : HT_OP_SEND;
        struct ht_work w = {.kind = kind, .where = HT_LANE_P2P, .tp = 1, .ranks = 2, .bytes = bytes};
        ht_add_op(g->d.schedule, kind, receives ? g->lanes[rank].get : serve, about, ht_add_work(g->d.schedule, &w));
        ht_op_name(g->d.schedule, "P%d", begin);
        ht_op_match(g->d.schedule, g->match);
        ht_op_after(g->d.schedule, after);
        for (int32_t u = begin; u < end; u++)
            ht_op_effect(g->d.schedule, g->d.param[u], receives ? HT_DEVICE : HT_HOST, receives ? HT_PRODUCE : HT_NEED);
        ht_charge_message(g->d.schedule, g->d.links, ht_pipe_rank(g, receives ? owner : rank), true, bytes);
    }
    g->match++;
}

static void fetch_local(struct ht_pipe *g, int32_t rank, int32_t k, int32_t after)
{
    int32_t *rows = HT_NEW_ARRAY(int32_t, g->d.n_units), n = 0;
    for (int32_t u = 0; u < g->d.n_units; u++)
        if (brings(g, rank, k, u) && !is_remote(g, rank, u)) rows[n++] = g->d.param[u];
    if (n) {
        ht_pipe_turn(g, rank);
        ht_draft_copy_rows(&g->d, rows, n, HT_HOST, HT_DEVICE, HT_PRODUCE, false);
        ht_op_after(g->d.schedule, after);
    }
    free(rows);
}

void ht_pipe_fetch(struct ht_pipe *g, int32_t rank, int32_t k)
{
    if (!ht_pipe_offloads(g) || k >= g->n_visits[rank]) return;
    int32_t after =
        k >= 2 ? g->visits[rank * g->n_passes + k - 2].last_op : -1; /* end of the visit whose buffer it takes */
    fetch_local(g, rank, k, after);
    for (int32_t u = 0, end; u < g->d.n_units; u = end) {
        end = u + 1;
        if (!brings(g, rank, k, u) || !is_remote(g, rank, u)) continue;
        while (end < g->d.n_units && brings(g, rank, k, end) && ht_pipe_owner(g, end) == ht_pipe_owner(g, u)) end++;
        get(g, rank, u, end, after);
    }
}

void ht_pipe_offload(struct ht_pipe *g, int32_t q)
{
    ht_pipe_turn(g, ht_pipe_backward_rank(&g->shape, q));
    ht_draft_copy_rows(&g->d, &g->d.grad[g->first[q]], g->first[q + 1] - g->first[q], HT_DEVICE, HT_HOST, HT_UPDATE,
                       true);
    ht_op_name(g->d.schedule, "G%d", q);
}

/* ---- messages -------------------------------------------------------------------------------------------------- */

/* A message from a part of a rank's stage to one of another's. */
struct route {
    int32_t from, to, from_part, to_part;
    bool last; /* the part sends the tensor no more */
};

/* Returns true if the attention's backward reads what a message sends: what the projection keeps, for the mask of dropout. */
static bool is_read_again(const struct ht_pipe *g, int32_t tensor)
{
    return g->d.schedule->tensors[tensor].class == HT_ACTIVATION && g->d.scenario->model.dropout;
}

/* Appends those members of a message that the draft's part has. */
static struct ht_pipe_message message(struct ht_pipe *g, struct route r, int32_t out, int32_t in, int32_t tensor,
                                      char letter, int32_t after)
{
    struct ht_label about = g->d.schedule->tensors[tensor].label;
    int64_t bytes = g->d.schedule->tensors[tensor].bytes;
    int32_t sender = ht_layout_rank(g->d.layout, g->d.replica, r.from, r.from_part),
            receiver = ht_layout_rank(g->d.layout, g->d.replica, r.to, r.to_part);
    bool free = g->style->free_messages, stays = is_read_again(g, tensor) || !r.last, across = r.from_part != r.to_part;
    /* Kernels of both devices move what goes through host memory, and with one hardware queue the receiver's cannot run
       before the pass under way has ended. */
    bool meets = g->style->blocking_sends && g->d.links[receiver].staged_in >= 0;
    int32_t ids[2] = {-1, -1}; /* send, receive */
    for (int member = 0; member < 2; member++) {
        bool receives = (member == 1) == (receiver > sender);
        if (g->d.part != (receives ? r.to_part : r.from_part)) continue;
        enum ht_op_kind kind = receives ? HT_OP_RECEIVE : HT_OP_SEND;
        struct ht_work w = {.kind = kind, .where = HT_LANE_P2P, .tp = 1, .ranks = 2, .bytes = bytes, .free = free};
        ids[receives] = ht_add_op(g->d.schedule, kind, receives ? in : out, about, ht_add_work(g->d.schedule, &w));
        ht_op_name(g->d.schedule, "%c%d.%d", letter, about.unit,
                   about.micro_batch - ht_pipe_replica(g)->first_micro_batch);
        ht_op_match(g->d.schedule, g->match);
        if (across) ht_op_across(g->d.schedule, receives ? r.from_part : r.to_part);
        ht_op_after(g->d.schedule, after);
        if (meets && g->d.part == r.to_part) ht_op_after(g->d.schedule, g->computed[r.to]);
        ht_op_effect(g->d.schedule, tensor, HT_DEVICE, receives ? HT_PRODUCE : stays ? HT_NEED : HT_NEED | HT_RELEASE);
        if (!free) ht_charge_message(g->d.schedule, g->d.links, receives ? sender : receiver, false, bytes);
    }
    g->match++;
    return (struct ht_pipe_message){ids[0], ids[1]};
}

struct ht_pipe_message ht_pipe_message(struct ht_pipe *g, int32_t from, int32_t to, int32_t out, int32_t in,
                                       int32_t tensor, char letter, int32_t after)
{
    struct route r = {from, to, g->d.part, g->d.part, true};
    return message(g, r, out, in, tensor, letter, after);
}

bool ht_pipe_keeps_boundary(const struct ht_pipe *g, int32_t from, int32_t to)
{
    return g->d.part < ht_pipe_width(g, from) && g->d.part >= ht_pipe_width(g, to);
}

void ht_pipe_send_boundary(struct ht_pipe *g, int32_t from, int32_t to, int32_t tensor, int32_t for_backward)
{
    const struct ht_lanes *a = &g->lanes[from], *b = &g->lanes[to];
    int32_t senders = ht_pipe_width(g, from), receivers = ht_pipe_width(g, to);
    if (from == to || tensor < 0) return; /* or the part has neither stage */
    const struct ht_tensor *t = &g->d.schedule->tensors[tensor];
    bool gradient = t->class == HT_ACT_GRAD;
    int32_t mb = t->label.micro_batch - ht_pipe_replica(g)->first_micro_batch;
    for (int32_t q = 0; q < receivers; q++) {
        struct route r = {from, to, q % senders, q, q + senders >= receivers};
        if (g->d.part != r.from_part && g->d.part != r.to_part) continue;
        struct ht_pipe_message p = message(g, r, gradient ? a->grad_out : a->act_out, gradient ? b->grad_in : b->act_in,
                                           tensor, gradient ? 'D' : 'X', -1);
        if (g->style->blocking_sends && p.send >= 0) g->sending[from] = p.send;
        if (for_backward >= 0 && p.receive >= 0) g->arrival[for_backward * g->d.n_mb + mb] = p.receive;
    }
}
