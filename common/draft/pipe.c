/* Drafts of pipelines: lanes, visits of stages, and passes in the order of the ideal schedule. */
#include "common/draft/pipe_internal.h"

#include "common/base/array.h"
#include "common/base/minmax.h"
#include "common/draft/fold.h"
#include "common/schedule/build.h"
#include "common/schedule/merge.h"
#include "common/schedule/verify.h"

#include <stdlib.h>

/* ---- lanes ----------------------------------------------------------------------------------------------------- */

static void add_lanes_of(struct ht_pipe *g, int32_t rank)
{
    struct ht_lanes *l = &g->lanes[rank];
    bool several = g->shape.ranks > 1, offloads = ht_pipe_offloads(g);
    *l = HT_NO_LANES;
    if (!ht_pipe_takes_part(g, rank)) return;
    l->compute = ht_pipe_add_lane(g, "compute", HT_LANE_COMPUTE, rank);
    if (offloads || g->style->host_blocks) {
        l->h2d = ht_pipe_add_lane(g, "h2d", HT_LANE_H2D, rank);
        l->d2h = ht_pipe_add_lane(g, "d2h", HT_LANE_D2H, rank);
    }
    if (several) {
        l->act_out = ht_pipe_add_lane(g, "act out", HT_LANE_P2P, rank);
        l->act_in = ht_pipe_add_lane(g, "act in", HT_LANE_P2P, rank);
        l->grad_out = ht_pipe_add_lane(g, "grad out", HT_LANE_P2P, rank);
        l->grad_in = ht_pipe_add_lane(g, "grad in", HT_LANE_P2P, rank);
    }
    if (several && ht_pipe_sends_slices(g)) l->slices = ht_pipe_add_lane(g, "slices", HT_LANE_COLLECTIVE, rank);
    if (g->d.layout->n_replicas > 1 || ht_pipe_replicas(g, rank) > 1 || (several && g->d.scenario->model.tied))
        l->gather = l->reduce = ht_pipe_add_lane(g, "reduce", HT_LANE_COLLECTIVE, rank);
    if (g->style->hooks.add_lanes) g->style->hooks.add_lanes(g, rank);
    for (int32_t q = g->n_backward - 1; q >= 0 && offloads; q--) {
        if (ht_pipe_backward_rank(&g->shape, q) != rank || g->stage_lane[q] >= 0) continue;
        if (l->host < 0) l->host = ht_pipe_add_lane(g, "cpu", HT_LANE_HOST, rank);
        g->stage_lane[q] = l->host;
    }
    if (g->control.mode == HT_CONTROL_NONE) return;
    ht_pipe_add_lane(g, "verdict", HT_LANE_HOST, rank);
    if (g->d.schedule->n_ranks > 1) ht_pipe_add_lane(g, "agree", HT_LANE_COLLECTIVE, rank);
}

/* ---- passes and visits ----------------------------------------------------------------------------------------- */

/* Returns true if two passes can share a visit. A stage's forward and backward can only if they have the same units. */
static bool same_visit(const struct ht_pipe *g, const struct ht_pipe_pass *a, const struct ht_pipe_pass *b)
{
    return a->stage == b->stage && (a->forward == b->forward || g->shape.d == 1);
}

static void find_visits(struct ht_pipe *g, int32_t rank)
{
    struct ht_pipe_visit *visits = g->visits + rank * g->n_passes;
    int32_t n = 0;
    for (int64_t k = 0; k < g->n_passes; k++) {
        const struct ht_pipe_pass *x = &g->passes[rank * g->n_passes + k];
        if (k == 0 || !same_visit(g, x - 1, x)) visits[n++] = (struct ht_pipe_visit){k, k, -1, -1, -1, -1, -1};
        struct ht_pipe_visit *v = &visits[n - 1];
        v->last = k;
        *(x->forward ? &v->last_forward : &v->last_backward) = k;
        *(x->forward ? &v->forward : &v->backward) = x->stage;
        g->visit_of[rank * g->n_passes + k] = n - 1;
    }
    g->n_visits[rank] = n;
}

static void lay_out(struct ht_pipe *g)
{
    int64_t n = g->n_passes = ht_pipe_passes(&g->shape), ranks = g->shape.ranks;
    g->passes = HT_NEW_ARRAY(struct ht_pipe_pass, ranks * n);
    g->visits = HT_NEW_ARRAY(struct ht_pipe_visit, ranks * n);
    g->visit_of = HT_NEW_ARRAY(int32_t, ranks * n);
    g->n_visits = HT_NEW_ARRAY(int32_t, ranks);
    for (int32_t r = 0; r < ranks; r++) {
        ht_pipe_rank_order(&g->shape, r, g->passes + r * n);
        find_visits(g, r);
    }
    /* T_f = d. A backward stage takes one d-th of a whole backward, which takes two forwards (with recomputation
       three). */
    ht_pipe_layout(&g->shape, g->shape.d, g->style->recompute && !g->style->attention_only ? 3 : 2, g->passes);
}

/* ---- appending ops --------------------------------------------------------------------------------------------- */

static void begin_pass(struct ht_pipe *g, int32_t rank, const struct ht_pipe_pass *x)
{
    int64_t at = x - g->passes, n = at % g->n_passes;
    int32_t k = g->visit_of[at];
    struct ht_pipe_visit *v = &g->visits[rank * g->n_passes + k];
    if (!ht_pipe_takes_part(g, rank)) return;
    if (n == 0) ht_pipe_fetch(g, rank, 0);
    if (n == v->first) ht_pipe_fetch(g, rank, k + 1);
    if (g->style->hooks.begin) g->style->hooks.begin(g, x);
    ht_pipe_turn(g, rank);
    if (ht_layout_passed(g->d.layout, rank) > 1) g->begun = x;
    if (x->forward)
        ht_pipe_forward_pass(g, rank, n);
    else
        ht_pipe_backward_pass(g, rank, n);
    v->last_op = g->computed[rank];
}

/* Sends on what a pass leaves of one micro-batch. */
static void send_one_on(struct ht_pipe *g, int32_t rank, const struct ht_pipe_pass *x, int32_t j)
{
    int32_t i = x->stage, last = g->n_backward - 1;
    if (!x->forward && i > 0)
        ht_pipe_send_boundary(g, rank, ht_pipe_backward_rank(&g->shape, i - 1), g->first[i], j, i - 1, true);
    if (x->forward && i + 1 < g->n_forward)
        ht_pipe_send_boundary(g, rank, ht_pipe_forward_rank(&g->shape, i + 1), g->first[(i + 1) * g->shape.d], j, -1,
                              false);
    if (x->forward && i + 1 == g->n_forward && !g->style->recompute_output)
        ht_pipe_send_boundary(g, rank, ht_pipe_backward_rank(&g->shape, last), ht_pipe_head(g), j, last, false);
}

static void send_on(struct ht_pipe *g, int32_t rank, const struct ht_pipe_pass *x)
{
    int32_t n = g->d.layout->per_pass;
    for (int32_t k = 0; k < n; k++) send_one_on(g, rank, x, x->micro_batch * n + k);
}

static void end_pass(struct ht_pipe *g, int32_t rank, const struct ht_pipe_pass *x)
{
    send_on(g, rank, x);
    if (g->style->hooks.end && ht_pipe_takes_part(g, rank)) g->style->hooks.end(g, x);
    if (x->forward || x->micro_batch < g->d.own_mb - 1 || !ht_pipe_offloads(g)) return;
    ht_pipe_offload(g, x->stage);
    ht_pipe_step(g, x->stage);
}

/* The begin or the end of a pass. */
struct event {
    int64_t order; /* twice the time, + 1 if it begins: what ends goes first */
    const struct ht_pipe_pass *pass;
};

/* Lists the begin and the end of all passes: forwards first, by stages and micro-batches. */
static void list_events(const struct ht_pipe *g, struct event *events)
{
    int64_t n = g->shape.ranks * g->n_passes, n_mb = g->shape.micro_batches;
    const struct ht_pipe_pass **passes = HT_NEW_ARRAY(const struct ht_pipe_pass *, n);
    for (int64_t k = 0; k < n; k++) {
        const struct ht_pipe_pass *x = &g->passes[k];
        passes[(x->forward ? x->stage : g->n_forward + x->stage) * n_mb + x->micro_batch] = x;
    }
    for (int64_t k = 0; k < n; k++) {
        events[2 * k] = (struct event){2 * passes[k]->start + 1, passes[k]};
        events[2 * k + 1] = (struct event){2 * passes[k]->end, passes[k]};
    }
    free(passes);
}

/* Sorts events, equal ones staying in their order. by: room for as many. Returns the array that has them. */
static struct event *sort_events(struct event *events, struct event *by, int64_t n)
{
    enum { BITS = 11 };
    int64_t last = 0;
    for (int64_t k = 0; k < n; k++) last = ht_max(last, events[k].order);
    for (int shift = 0; last >> shift; shift += BITS) {
        int64_t at[(1 << BITS) + 1] = {0};
        for (int64_t k = 0; k < n; k++) at[(events[k].order >> shift) % (1 << BITS) + 1]++;
        for (int i = 0; i < 1 << BITS; i++) at[i + 1] += at[i];
        for (int64_t k = 0; k < n; k++) by[at[(events[k].order >> shift) % (1 << BITS)]++] = events[k];
        struct event *sorted = by;
        by = events;
        events = sorted;
    }
    return events;
}

static void emit(struct ht_pipe *g)
{
    int64_t n = g->shape.ranks * g->n_passes;
    struct event *room = HT_NEW_ARRAY(struct event, 4 * n);
    list_events(g, room);
    struct event *events = sort_events(room, room + 2 * n, 2 * n);
    for (int32_t u = 0; u < g->d.n_units && g->d.sharded; u++) ht_pipe_all_gather(g, u);
    for (int32_t u = 0; u < g->d.n_units && g->style->host_blocks; u++) ht_pipe_send_master(g, u);
    for (int64_t k = 0; k < 2 * n; k++) {
        int32_t rank = (int32_t)((events[k].pass - g->passes) / g->n_passes);
        (events[k].order & 1 ? begin_pass : end_pass)(g, rank, events[k].pass);
    }
    free(room);
    if (ht_pipe_offloads(g)) return;
    ht_pipe_reduce(g);
    ht_pipe_transpose_back(g);
    for (int32_t q = g->n_backward - 1; q >= 0; q--) ht_pipe_step(g, q);
}

/* ---- whole graph ----------------------------------------------------------------------------------------------- */

/* Cuts the activations of the blocks that drop a part of them. A front whose proj is the back's residual has it not (draft.c). */
static void cut(struct ht_pipe *g)
{
    for (int32_t u = 1; u < ht_pipe_head(g); u++) {
        if (g->holder[u] < 0) continue;
        ht_draft_turn_to_stage(&g->d, g->holder[u]);
        unsigned has = ht_draft_sub_ops(&g->d, u), dropped = ht_pipe_dropped(g, u), kept = has & ~dropped;
        bool hands_proj = ht_pipe_is_half(g, u) && ht_hands_proj(has);
        const unsigned parts[] = {dropped, hands_proj ? kept & ~(1u << HT_SUB_PROJ) : kept};
        for (int32_t j = 0; j < g->d.own_mb && dropped && dropped != HT_ALL_SUB_OPS; j++)
            ht_draft_cut(&g->d, u, j, parts, HT_COUNT(parts));
    }
}

/* Gives what a block keeps of a micro-batch the bytes that the style says: what is more than the tensors that stay is a tensor of its
   own, what is less is taken off the last of them. */
static void size_kept(struct ht_pipe *g, int32_t u, int32_t j)
{
    struct ht_schedule *s = g->d.schedule;
    int32_t at = ht_pipe_at(g, u, j), row = -1;
    const int32_t *rows = g->d.a[at];
    for (int k = 0; k < HT_N_SUB_OPS; k++)
        if (ht_pipe_kept(g, u) >> k & 1 && rows[k] >= 0) row = rows[k];
    int64_t bytes = g->style->kept[u - 1] * 1024, more = bytes - (row < 0 ? 0 : s->tensors[row].bytes);
    if (more < 0) s->tensors[row].bytes = bytes;
    if (more <= 0) return;
    struct ht_tensor t = s->tensors[g->d.x[at]];
    t.class = HT_STAGING;
    t.bytes = more;
    g->kept[at] = ht_add_tensor(s, t);
}

/* Makes the states of a unit resident that is stepped on the device: in host memory, but for a master that gathers cast. */
static void place_in_host(struct ht_pipe *g, int32_t u)
{
    if (g->d.master[u] >= 0) ht_draft_place(&g->d, g->d.master[u], g->d.cast_on_use[u] ? HT_DEVICE : HT_HOST);
    ht_draft_place(&g->d, g->d.momentum[u], HT_HOST);
    ht_draft_place(&g->d, g->d.variance[u], HT_HOST);
}

/* Adds the rows, and makes those resident that stay in memory between iterations. */
static void add_rows(struct ht_pipe *g)
{
    bool offloads = ht_pipe_offloads(g);
    enum ht_tier tier = offloads ? HT_HOST : HT_DEVICE;
    int32_t head = ht_pipe_head(g);
    g->holder = HT_NEW_ARRAY(int32_t, g->d.n_units + 1);
    g->forward_rank = HT_NEW_ARRAY(int32_t, g->d.n_units + 1);
    for (int32_t u = 0; u < g->d.n_units; u++) {
        g->holder[u] = ht_pipe_rank(g, ht_pipe_owner(g, u));
        g->forward_rank[u] = ht_pipe_rank(g, ht_pipe_forward_rank(&g->shape, g->stage_of[u] / g->shape.d));
    }
    g->holder[g->d.n_units] = g->holder[head];
    if (g->d.scenario->model.tied && g->holder[0] != g->holder[head]) g->d.table = g->d.n_units;
    g->hands_whole = HT_NEW_ARRAY(bool, g->d.n_units);
    for (int32_t u = 1; u < g->d.n_units; u++)
        g->hands_whole[u] = ht_pipe_width(g, ht_pipe_owner(g, u)) != ht_pipe_width(g, ht_pipe_owner(g, u - 1));
    g->d.state->hands_whole = g->hands_whole;
    g->d.holder = g->holder;
    g->d.forward_rank = g->forward_rank;
    ht_draft_add_rows(&g->d);
    cut(g);
    g->kept = ht_alloc_ids((int64_t)g->d.n_units * g->d.n_mb);
    for (int32_t u = 1; u < head && g->style->kept; u++)
        for (int32_t j = 0; j < g->d.own_mb && g->holder[u] >= 0; j++) size_kept(g, u, j);
    for (int32_t u = 0; u < g->d.n_units + (g->d.table > 0); u++) {
        if (g->holder[u] < 0) continue; /* the part does not have it */
        g->d.cast_on_use[u] = g->d.sharded && g->d.master[u] >= 0;
        if (!g->d.cast_on_use[u]) ht_draft_place(&g->d, g->d.param[u], tier);
        if (ht_pipe_states_in_host(g, u))
            place_in_host(g, u);
        else
            ht_draft_place_states(&g->d, u, tier);
        if (offloads) ht_draft_place(&g->d, g->d.grad[u], tier);
        if (g->d.sharded && g->style->reduce_whole) g->d.grad[u] = g->d.state->full_sum[u]; /* all of it is reduced */
    }
}

/* Returns true if the ops of micro-batches repeat: nothing but rows tells one from the next. Passes over shards and offloaded
   parameters differ by where they are among those that read a unit; so do passes of several micro-batches. Slices of messages are
   rows of their own, and hooks may look at any op. */
static bool repeats(const struct ht_pipe *g)
{
    const struct ht_pipe_hooks *hooks = &g->style->hooks;
    return g->d.own_mb > 3 && !g->d.sharded && !ht_pipe_offloads(g) && !g->d.layout->stage_begin &&
           !ht_pipe_sends_slices(g) && !hooks->add_lanes && !hooks->begin && !hooks->end;
}

/* Writes the draft of one member of each stage of pipeline k and applies control to it. before: another part's draft, by which tables are
   sized; NULL: none. */
static enum ht_status write_draft(const struct ht_scenario *scenario, const struct ht_pipe_style *style,
                                  const struct ht_pipe_holders *holders, int32_t k, int32_t member, const char *name,
                                  struct ht_schedule *const *before, struct ht_error *err, struct ht_schedule **out)
{
    const struct ht_layout *layout = holders->layout;
    struct ht_pipe g = {
        .style = style, .holders = holders, .shape = ht_pipe_replica_shape(style, &layout->replicas[k])};
    struct ht_control_style control_style = {0};
    int64_t ranks = g.shape.ranks;
    ht_draft_init(&g.d, scenario, layout, k, member, name);
    if (before) ht_builder_reserve(g.d.schedule, before, 1);
    g.d.state->keeps = HT_GATHER_ITERATION;
    g.d.state->by_matrix = scenario->model.held.by_matrix && !g.d.sharded; /* shards are added up when scattered */
    g.d.state->reduce_once = g.d.sharded && style->zero == 1 && (g.d.n_mb > 1 || style->reduce_whole);
    g.control = ht_pipe_control(scenario, style, &control_style.undo);
    g.n_forward = ht_pipe_forward_stages(&g.shape);
    g.n_backward = ht_pipe_backward_stages(&g.shape);
    g.first = HT_NEW_ARRAY(int32_t, g.n_backward + 1);
    g.stage_of = HT_NEW_ARRAY(int32_t, g.d.n_units);
    for (int32_t q = 0; q <= g.n_backward; q++) g.first[q] = ht_pipe_first_unit_in(scenario, style, k, q);
    for (int32_t q = 0; q < g.n_backward; q++)
        for (int32_t u = g.first[q]; u < g.first[q + 1]; u++) g.stage_of[u] = q;
    g.stage_lane = ht_alloc_ids(g.n_backward);
    g.serve = ht_alloc_ids(ranks * ranks);
    g.computed = ht_alloc_ids(ranks);
    g.sending = ht_alloc_ids(ranks);
    g.made = ht_alloc_ids(ranks);
    g.arrival = ht_alloc_ids((int64_t)g.n_backward * g.d.n_mb);
    g.came = ht_alloc_ids((int64_t)g.n_forward * g.d.n_mb);
    g.lanes = HT_NEW_ARRAY(struct ht_lanes, ranks);
    for (int32_t r = 0; r < ranks; r++) add_lanes_of(&g, r);
    add_rows(&g);
    g.d.links = ht_links_add(g.d.schedule, scenario->cluster, true);
    g.slices = HT_NEW_ARRAY(struct ht_pipe_slices, g.d.schedule->n_tensors);
    if (repeats(&g)) g.repeats = HT_NEW_ARRAY(struct ht_repeat, (int64_t)HT_N_REPEATS * (g.d.n_units + 1));
    lay_out(&g);
    emit(&g);
    struct ht_schedule *plain = ht_draft_free(&g.d);
    void *all[] = {g.first,   g.stage_of, g.holder, g.forward_rank, g.stage_lane,  g.serve,  g.computed,
                   g.sending, g.arrival,  g.lanes,  g.visit_of,     g.n_visits,    g.passes, g.visits,
                   g.slices,  g.came,     g.made,   g.kept,         g.hands_whole, g.repeats};
    for (size_t i = 0; i < HT_COUNT(all); i++) free(all[i]);
    if (g.control.mode == HT_CONTROL_NONE) {
        *out = plain;
        return HT_OK;
    }
    enum ht_status status = ht_control_apply(plain, &g.control, control_style, err, out);
    ht_schedule_destroy(plain);
    return status;
}

/* Returns the bytes of the largest backward stage's gradients, as they are summed. */
static int64_t sums_of_a_stage(const struct ht_scenario *scenario, const struct ht_pipe_style *style)
{
    int64_t params, kept;
    ht_pipe_largest_stage(scenario, style, 1, &params, &kept);
    return params * ht_dtype_bytes(ht_stepped_gradient(&scenario->numerics, ht_scenario_micro_batches(scenario)));
}

/* Returns, for each rank of the one pipeline, where its stage is among the drafts. */
static struct ht_merge_stage *stages_of_ranks(const struct ht_layout *l)
{
    struct ht_merge_stage *stages = HT_NEW_ARRAY(struct ht_merge_stage, l->n_ranks);
    for (int32_t r = 0; r < l->n_ranks; r++) {
        int32_t q = ht_layout_stage(l, 0, r), width = ht_layout_width(l, q);
        int32_t member = l->place_of[r] - l->stage_begin[q];
        stages[r] = (struct ht_merge_stage){
            .first = member - member % width, .width = width, .replicas = ht_layout_stage_replicas(l, q)};
    }
    return stages;
}

struct builder {
    const struct ht_scenario *scenario;
    const struct ht_pipe_style *style;
    const struct ht_pipe_holders *holders;
    const char *name;
};

/* Returns a reason unless pipelines have the same units in every stage, and rearrange the same of their gradients. context:
   struct builder. */
static const char *differ(void *context)
{
    const struct builder *b = context;
    for (int32_t k = 1; k < b->holders->layout->n_replicas; k++)
        if (!ht_pipe_are_alike(b->scenario, b->style, b->holders->layout, 0, k)) return "pipelines have other stages";
    return NULL;
}

/* Returns why the parts of the first pipelines differ, or why that is not known; NULL: they do not. context: struct builder. */
static const char *parts_differ(void *context, int32_t pipelines)
{
    const struct builder *b = context;
    const struct ht_layout *l = b->holders->layout;
    if (b->style->offload) return "parts on one node share its memory or disks";
    if (l->stage_begin) return "stages are of different widths";
    if (!ht_pipe_may_have_images(b->scenario, b->style, l))
        return "parts are not folded with control, or with uneven slices";
    struct ht_pipe_images *images = ht_pipe_images_create(b->scenario, b->style, b->holders);
    bool alike = true, apart = false;
    for (int32_t k = 0; k < pipelines && alike && !apart; k++) {
        apart = !ht_pipe_stages_keep_to_nodes(images, k);
        for (int32_t q = 1; q < l->tp && alike; q++) alike = ht_pipe_is_image(images, k * l->tp + q, k * l->tp);
    }
    ht_pipe_images_destroy(images);
    return apart   ? "parts of a stage are on several nodes"
           : alike ? NULL
                   : "parts differ in their shares of the vocabulary, in ranks or in links";
}

/* Returns the first of n drafts of which the next one is an image; -1: it has to be written. step: from the number of a draft to the
   next one's. */
static int32_t find_original(const struct ht_pipe_images *images, const struct ht_image *image_of, int32_t n,
                             int32_t step)
{
    for (int32_t i = 0; i < n && images; i++)
        if (!image_of[i].rank_of && ht_pipe_is_image(images, n * step, i * step)) return i;
    return -1;
}

/* Writes n drafts, of all parts or of every step-th; one that is an image of another one is that, with its image. *drafts: as far as
   that succeeds. */
static enum ht_status write_drafts(const struct builder *b, const struct ht_pipe_images *images, int32_t n,
                                   int32_t step, struct ht_error *err, struct ht_schedule **drafts,
                                   struct ht_image *image_of)
{
    int32_t each = b->holders->layout->members;
    enum ht_status status = HT_OK;
    for (int32_t i = 0; i < n && !status; i++) {
        struct ht_schedule *const *before = i ? &drafts[i - 1] : NULL;
        int32_t of = find_original(images, image_of, i, step), number = i * step;
        if (of < 0) {
            status = write_draft(b->scenario, b->style, b->holders, number / each, number % each, b->name, before, err,
                                 &drafts[i]);
            continue;
        }
        drafts[i] = drafts[of];
        image_of[i] = ht_pipe_image(images, number, of * step);
    }
    return status;
}

/* Writes and merges the drafts of the first pipelines, or those of their part 0. context: struct builder. */
static enum ht_status write_some(void *context, int32_t pipelines, bool one_part, struct ht_error *err,
                                 struct ht_schedule **out)
{
    const struct builder *b = context;
    const struct ht_layout *layout = b->holders->layout;
    int32_t each = one_part ? 1 : layout->members, n = pipelines * each;
    bool may = n > 1 && ht_pipe_may_have_images(b->scenario, b->style, layout);
    struct ht_pipe_images *images = may ? ht_pipe_images_create(b->scenario, b->style, b->holders) : NULL;
    struct ht_schedule **drafts = HT_NEW_ARRAY(struct ht_schedule *, n);
    struct ht_image *image_of = HT_NEW_ARRAY(struct ht_image, n);
    enum ht_status status = write_drafts(b, images, n, layout->members / each, err, drafts, image_of);
    struct ht_merge_stage *stages = layout->per_pass > 1 ? stages_of_ranks(layout) : NULL;
    status = ht_schedule_join_drafts(drafts, image_of, n, each, stages, status, err, out);
    for (int32_t i = 0; i < n; i++) free(image_of[i].rank_of);
    free(image_of);
    free(stages);
    ht_pipe_images_destroy(images);
    return status;
}

enum ht_status ht_pipe_build(const struct ht_scenario *scenario, const struct ht_pipe_style *style, const char *name,
                             struct ht_error *err, struct ht_schedule **out)
{
    int64_t ranks = ht_scenario_ranks(scenario), micro_batches = ht_scenario_micro_batches(scenario);
    struct ht_layout *one = NULL;
    enum ht_status status = HT_OK;
    if (!style->layout) status = ht_layout_pipelines(scenario, 1, &ranks, &micro_batches, 1, err, &one);
    if (status) return status;
    const struct ht_layout *layout = one ? one : style->layout;
    struct ht_pipe_holders holders = ht_pipe_find_holders(scenario, style, layout);
    struct builder b = {scenario, style, &holders, name};
    status = ht_fold_build(scenario, layout, &(struct ht_fold_builder){&b, write_some, differ, parts_differ}, err, out);
    if (!status && style->offload) ht_schedule_limit_devices(*out, sums_of_a_stage(scenario, style));
    free(holders.stage);
    ht_layout_destroy(one);
    return status;
}
