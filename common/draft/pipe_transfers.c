/* Appends copies between device and host, and messages between ranks. */
#include "common/draft/pipe_internal.h"

#include "common/base/array.h"
#include "common/base/minmax.h"
#include "common/schedule/apart.h"

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

/* A message from a member of a rank's stage to one of another's. */
struct route {
    int32_t from, to, from_member, to_member;
    bool last;          /* the member sends the tensor no more */
    int64_t begin, end; /* bytes of the tensor; 0, 0: all */
    int64_t times, of;  /* its cost is its share, in `of` bytes, of so many inputs of a block; 0: its own */
    bool stays;         /* the sender reads the tensor again */
    int32_t
        unit; /* whose input or its gradient it is, as messages of all micro-batches repeat; -1: it is something else */
};

/* Adds a row of the slice that a message brings. */
static int32_t add_slice(struct ht_pipe *g, struct route r, int32_t tensor, int32_t receiver)
{
    struct ht_tensor t = g->d.schedule->tensors[tensor];
    t.bytes = r.end - r.begin;
    t.shard_begin = r.begin, t.shard_end = r.end;
    t.sharded = true;
    t.rank = receiver;
    int32_t row = ht_add_tensor(g->d.schedule, t);
    struct ht_pipe_slices *slices = &g->slices[tensor];
    if (!slices->n++) slices->first = row;
    return row;
}

/* Returns the bytes of a block's input. */
static int64_t input_bytes(const struct ht_pipe *g)
{
    const struct ht_scenario *sc = g->d.scenario;
    return ht_unit_input_bytes(&sc->model, 1, g->d.micro_batch, sc->seq, sc->numerics.param);
}

/* Appends the send or the receive of a message, in full. */
static void write_member(struct ht_pipe *g, const struct route *r, bool receives, int32_t lane, int32_t tensor)
{
    struct ht_schedule *s = g->d.schedule;
    struct ht_label about = s->tensors[tensor].label;
    int64_t bytes = r->end ? r->end - r->begin : s->tensors[tensor].bytes;
    int32_t sender = ht_layout_rank(g->d.layout, g->d.replica, r->from, r->from_member),
            receiver = ht_layout_rank(g->d.layout, g->d.replica, r->to, r->to_member);
    bool free = g->style->free_messages, stays = r->stays || !r->last;
    enum ht_op_kind kind = receives ? HT_OP_RECEIVE : HT_OP_SEND;
    struct ht_work w = {.kind = kind, .where = HT_LANE_P2P, .tp = 1, .ranks = 2, .bytes = bytes, .free = free};
    if (r->times) w.bytes = r->times * input_bytes(g) * bytes / r->of;
    ht_add_op(s, kind, lane, about, ht_add_work(s, &w));
    if (receives)
        ht_op_effect(s, r->end ? add_slice(g, *r, tensor, receiver) : tensor, HT_DEVICE, HT_PRODUCE);
    else
        ht_op_effect(s, tensor, HT_DEVICE, stays ? HT_NEED : HT_NEED | HT_RELEASE);
    if (!free) ht_charge_message(s, g->d.links, receives ? sender : receiver, false, w.bytes);
}

/* Appends the send or the receive of a message: as it repeats, or in full. Returns it. */
static int32_t member_of(struct ht_pipe *g, const struct route *r, bool receives, int32_t lane, int32_t tensor)
{
    const struct ht_tensor *t = &g->d.schedule->tensors[tensor];
    enum ht_pipe_repeat kind = HT_REPEAT_SEND + receives + (t->class == HT_ACT_GRAD ? 2 : 0);
    struct ht_repeat *repeats = r->unit < 0 ? NULL : ht_pipe_repeats(g, kind, r->unit);
    int32_t mb = t->label.micro_batch - ht_pipe_replica(g)->first_micro_batch, rows = g->d.schedule->n_tensors;
    int64_t key = (int64_t)r->from << 32 | r->to;
    if (!ht_repeat_op(&g->d, repeats, key, mb)) {
        write_member(g, r, receives, lane, tensor);
        ht_repeat_note(&g->d, repeats, key, mb, rows);
    }
    return g->d.schedule->n_ops - 1;
}

/* Appends those members of a message that the draft has. */
static struct ht_pipe_message message(struct ht_pipe *g, struct route r, int32_t out, int32_t in, int32_t tensor,
                                      char letter, int32_t after)
{
    struct ht_label about = g->d.schedule->tensors[tensor].label;
    int32_t sender = ht_layout_rank(g->d.layout, g->d.replica, r.from, r.from_member),
            receiver = ht_layout_rank(g->d.layout, g->d.replica, r.to, r.to_member);
    bool across = r.from_member != r.to_member;
    /* Kernels of both devices move what goes through host memory, and with one hardware queue the receiver's cannot run
       before the pass under way has ended. Or the program posts receives between passes. */
    bool meets = g->style->blocking_sends && (g->style->posts || g->d.links[receiver].staged_in >= 0);
    int32_t ids[2] = {-1, -1}; /* send, receive */
    for (int member = 0; member < 2; member++) {
        bool receives = (member == 1) == (receiver > sender);
        if (g->d.member != (receives ? r.to_member : r.from_member)) continue;
        ids[receives] = member_of(g, &r, receives, receives ? in : out, tensor);
        ht_op_number(g->d.schedule, (const char[]){letter, 0}, about.unit,
                     about.micro_batch - ht_pipe_replica(g)->first_micro_batch);
        ht_op_match(g->d.schedule, g->match);
        if (across) ht_op_across(g->d.schedule, receives ? r.from_member : r.to_member);
        ht_op_after(g->d.schedule, after);
        if (!receives &&
            ht_layout_passed(g->d.layout, r.from) > 1) /* a program sends when all shares of the pass are made */
            ht_op_after(g->d.schedule, g->made[r.from]);
        if (meets && g->d.member == r.to_member) ht_op_after(g->d.schedule, g->computed[r.to]);
    }
    g->match++;
    return (struct ht_pipe_message){ids[0], ids[1]};
}

struct ht_pipe_message ht_pipe_message(struct ht_pipe *g, int32_t from, int32_t to, int32_t out, int32_t in,
                                       int32_t tensor, char letter, int32_t after)
{
    struct route r = {
        .from = from, .to = to, .from_member = g->d.member, .to_member = g->d.member, .last = true, .unit = -1};
    return message(g, r, out, in, tensor, letter, after);
}

bool ht_pipe_keeps_boundary(const struct ht_pipe *g, int32_t from, int32_t to)
{
    return !ht_pipe_sends_slices(g) && ht_pipe_takes_part(g, from) &&
           g->d.member % ht_pipe_width(g, from) >= ht_pipe_width(g, to);
}

/* Lists the messages of a boundary tensor from n parts to m, by parts of those replicas of the stages that pass its
   micro-batch. Returns their number. What the parts have not alike is not sent in slices. routes: room for n + m. */
static int32_t find_routes(const struct ht_pipe *g, int32_t from, int32_t to, const struct ht_tensor *t,
                           struct route *routes)
{
    int32_t n = ht_pipe_width(g, from), m = ht_pipe_width(g, to), found = 0;
    bool sliced = ht_pipe_sends_slices(g) && (n > 1 || m > 1) && t->parts <= 1;
    int64_t bytes = t->bytes;
    for (int32_t q = 0; q < m && !sliced; q++)
        routes[found++] =
            (struct route){.from = from, .to = to, .from_member = q % n, .to_member = q, .last = q + n >= m};
    for (int32_t p = 0, q = 0; p < n && q < m && sliced;) {
        int64_t begin = bytes * p / n, end = bytes * (p + 1) / n;
        if (bytes * q / m > begin) begin = bytes * q / m;
        if (bytes * (q + 1) / m < end) end = bytes * (q + 1) / m;
        routes[found++] = (struct route){.from = from,
                                         .to = to,
                                         .from_member = p,
                                         .to_member = q,
                                         .last = bytes * (p + 1) / n == end,
                                         .begin = begin,
                                         .end = end};
        bool next = bytes * (q + 1) / m == end;
        if (bytes * (p + 1) / n == end) p++;
        q += next;
    }
    return found;
}

/* Returns the first member of that replica of a rank's stage that passes a micro-batch. */
static int32_t first_member(const struct ht_pipe *g, int32_t rank, int32_t mb)
{
    const struct ht_layout *l = g->d.layout;
    return mb % l->per_pass / ht_layout_passed(l, rank) * ht_pipe_width(g, rank);
}

/* Returns the bytes of a boundary tensor over all parts. */
static int64_t bytes_over_parts(const struct ht_pipe *g, int32_t tensor)
{
    const struct ht_tensor *t = &g->d.schedule->tensors[tensor];
    return t->bytes * ht_max(t->parts, 1);
}

/* Appends the messages of one tensor of a unit; -1: of what is handed beside its input. of: bytes of all tensors of the boundary;
   letter: of the ops' names. */
static void send_tensor(struct ht_pipe *g, int32_t from, int32_t to, int32_t unit, int32_t tensor, int32_t for_backward,
                        bool stays, int64_t of, char letter)
{
    const struct ht_lanes *a = &g->lanes[from], *b = &g->lanes[to];
    const struct ht_tensor *t = &g->d.schedule->tensors[tensor];
    bool gradient = t->class == HT_ACT_GRAD;
    int32_t mb = t->label.micro_batch - ht_pipe_replica(g)->first_micro_batch;
    int32_t most = ht_pipe_width(g, from) + ht_pipe_width(g, to);
    struct route few[4], *many = most > (int32_t)HT_COUNT(few) ? HT_NEW_ARRAY(struct route, most) : NULL;
    struct route *routes = many ? many : few;
    int32_t n = find_routes(g, from, to, t, routes);
    for (int32_t i = 0; i < n; i++) {
        routes[i].from_member += first_member(g, from, mb);
        routes[i].to_member += first_member(g, to, mb);
        routes[i].stays = stays;
        if (g->d.member != routes[i].from_member && g->d.member != routes[i].to_member) continue;
        if (g->style->crossing) routes[i].times = g->style->crossing[ht_min(from, to)]; /* ranks are stages */
        routes[i].of = of;
        routes[i].unit = unit;
        struct ht_pipe_message p = message(g, routes[i], gradient ? a->grad_out : a->act_out,
                                           gradient ? b->grad_in : b->act_in, tensor, letter, -1);
        if (g->style->blocking_sends && p.send >= 0) g->sending[from] = p.send;
        if (p.receive < 0) continue;
        if (for_backward >= 0)
            g->arrival[for_backward * g->d.n_mb + mb] = p.receive;
        else if (g->shape.v == 1) /* ranks are stages */
            g->came[to * g->d.n_mb + mb] = p.receive;
    }
    free(many);
}

void ht_pipe_send_boundary(struct ht_pipe *g, int32_t from, int32_t to, int32_t unit, int32_t mb, int32_t for_backward,
                           bool gradient)
{
    int32_t at = ht_pipe_at(g, unit, mb), residual = (gradient ? g->d.dx : g->d.x)[at],
            handed = (gradient ? g->d.dhanded : g->d.handed)[at];
    if (from == to || residual < 0) return; /* or the part has neither stage */
    int64_t of = bytes_over_parts(g, residual) + (handed < 0 ? 0 : bytes_over_parts(g, handed));
    bool kept = !gradient && ht_pipe_keeps_output(g, unit), stays = kept || (!gradient && ht_pipe_reads_again(g, unit));
    send_tensor(g, from, to, unit, residual, for_backward, stays, of, gradient ? 'D' : 'X');
    if (handed >= 0) send_tensor(g, from, to, -1, handed, for_backward, kept, of, gradient ? 'E' : 'Y');
}

void ht_pipe_join_boundary(struct ht_pipe *g, int32_t rank, int32_t tensor, int32_t for_backward)
{
    struct ht_schedule *s = g->d.schedule;
    if (tensor < 0 || !g->slices[tensor].n) return;
    struct ht_pipe_slices slices = g->slices[tensor];
    struct ht_label about = s->tensors[tensor].label;
    int64_t bytes = s->tensors[tensor].bytes;
    int32_t me = ht_pipe_rank(g, rank), n = ht_pipe_width(g, rank),
            mb = about.micro_batch - ht_pipe_replica(g)->first_micro_batch;
    const int32_t *group = ht_layout_stage_ranks(g->d.layout, me);
    for (int32_t i = 0; i < slices.n; i++) bytes -= s->tensors[slices.first + i].bytes;
    /* Software that hands columns to other widths sends each part its own, and gathers none. */
    bool columns = ht_is_handed(&s->tensors[tensor]) && !ht_handed_alike(about.sub_ops);
    struct ht_work w = {
        .kind = HT_OP_ALL_GATHER, .where = HT_LANE_COLLECTIVE, .tp = 1, .ranks = n, .bytes = bytes, .free = columns};
    int32_t op = ht_add_op(s, HT_OP_ALL_GATHER, g->lanes[rank].slices, about, ht_add_work(s, &w));
    ht_op_number(s, s->tensors[tensor].class == HT_ACT_GRAD ? "AD" : "AX", about.unit, mb);
    ht_op_match(s, g->match++);
    ht_op_after(s, g->computed[rank]);
    for (int32_t i = 0; i < slices.n; i++) ht_op_effect(s, slices.first + i, HT_DEVICE, HT_NEED | HT_RELEASE);
    ht_op_effect(s, tensor, HT_DEVICE, HT_PRODUCE);
    if (!columns) ht_charge_collective(s, g->d.links, ht_links_cross(s, g->d.links, me, group, n), bytes);
    if (for_backward >= 0)
        g->arrival[for_backward * g->d.n_mb + mb] = op;
    else if (g->shape.v == 1)
        g->came[rank * g->d.n_mb + mb] = op;
    g->slices[tensor].n = 0;
}
