/* Stages of pipelines: their ranks and units, what is refused, and the memory that they take. */
#include "common/draft/pipe_internal.h"

#include "common/base/array.h"
#include "common/base/minmax.h"
#include "common/kernels/undo.h"

#include <stdlib.h>
#include <string.h>

/* ---- shape ----------------------------------------------------------------------------------------------------- */

/* Returns pipeline k, or the one of all ranks if there is no layout. */
static struct ht_replica replica_of(const struct ht_scenario *sc, const struct ht_pipe_style *y, int32_t k)
{
    if (y->layout) return y->layout->replicas[k];
    return (struct ht_replica){.n_ranks = (int32_t)ht_scenario_ranks(sc),
                               .n_micro_batches = (int32_t)ht_scenario_micro_batches(sc),
                               .micro_batch = sc->micro_batch};
}

static int32_t pipelines(const struct ht_pipe_style *y)
{
    return y->layout ? y->layout->n_replicas : 1;
}

/* Returns the ranks of a pipeline that are not parts of one stage. */
static int32_t ranks_of(const struct ht_pipe_style *y, const struct ht_replica *x)
{
    return y->layout ? ht_layout_stages(y->layout, x) : x->n_ranks;
}

struct ht_pipe_shape ht_pipe_replica_shape(const struct ht_pipe_style *y, const struct ht_replica *x)
{
    return (struct ht_pipe_shape){.ranks = ranks_of(y, x),
                                  .micro_batches = x->n_micro_batches / (y->layout ? y->layout->per_pass : 1),
                                  .v = y->v,
                                  .d = y->d,
                                  .order = y->order,
                                  .backward_rank = y->backward_rank};
}

struct ht_pipe_shape ht_pipe_shape_of(const struct ht_scenario *scenario, const struct ht_pipe_style *y)
{
    struct ht_replica all = replica_of(scenario, y, 0);
    return ht_pipe_replica_shape(y, &all);
}

static int64_t stages_of(const struct ht_pipe_style *y, const struct ht_replica *x)
{
    return (int64_t)ranks_of(y, x) * y->v * y->d;
}

/* Returns the blocks of each stage of pipeline k; NULL: evenly divided. */
static const int64_t *blocks_of(const struct ht_scenario *sc, const struct ht_pipe_style *y, int32_t k)
{
    int64_t before = 0;
    for (int32_t i = 0; i < k; i++) {
        struct ht_replica x = replica_of(sc, y, i);
        before += stages_of(y, &x);
    }
    struct ht_replica own = replica_of(sc, y, k);
    if (!y->blocks) return NULL;
    return y->n_blocks == stages_of(y, &own) ? y->blocks : y->blocks + before;
}

/* Returns what the style counts in a block: blocks, halves or sub-ops; what it calls them. */
static int64_t grains(const struct ht_pipe_style *y)
{
    return y->sub_ops ? HT_N_SUB_OPS : y->halves ? 2 : 1;
}
static const char *grain_name(const struct ht_pipe_style *y)
{
    return y->sub_ops ? "sub_ops" : y->halves ? "halves" : "blocks";
}

/* Returns the unit of the layout that begins behind the first n of all halves or sub-ops of blocks. */
static int32_t unit_behind(const struct ht_layout *l, int64_t n, int64_t each)
{
    int32_t u = (int32_t)(1 + n / each); /* if no block before is cut */
    while (l->units[u].unit < 1 + n / each) u++;
    return u + (n % each != 0);
}

/* Returns the first unit of backward stage q of n stages. */
static int32_t first_unit(const struct ht_scenario *sc, const struct ht_pipe_style *y, const int64_t *blocks, int64_t n,
                          int32_t q)
{
    int64_t block = blocks ? 0 : q * sc->model.layers / n;
    if (q == 0) return 0;
    if (q == n) return y->layout ? y->layout->n_units : (int32_t)ht_model_units(&sc->model);
    for (int32_t i = 0; i < q && blocks; i++) block += blocks[i];
    return grains(y) > 1 ? unit_behind(y->layout, block, grains(y)) : (int32_t)(1 + block);
}

int32_t ht_pipe_first_unit(const struct ht_scenario *scenario, const struct ht_pipe_style *y, int32_t q)
{
    return first_unit(scenario, y, y->blocks, ht_scenario_ranks(scenario) * y->v * y->d, q);
}

int32_t ht_pipe_first_unit_in(const struct ht_scenario *sc, const struct ht_pipe_style *y, int32_t k, int32_t q)
{
    struct ht_replica x = replica_of(sc, y, k);
    return first_unit(sc, y, blocks_of(sc, y, k), stages_of(y, &x), q);
}

bool ht_pipe_are_alike(const struct ht_scenario *sc, const struct ht_pipe_style *style, const struct ht_layout *l,
                       int32_t a, int32_t b)
{
    struct ht_pipe_shape shape = ht_pipe_replica_shape(style, &l->replicas[b]);
    for (int32_t q = 0; q <= ht_pipe_backward_stages(&shape) && a != b; q++)
        if (ht_pipe_first_unit_in(sc, style, b, q) != ht_pipe_first_unit_in(sc, style, a, q)) return false;
    return !style->transposed || style->transposed[a] == style->transposed[b];
}

/* Finds the fronts of the blocks in the middle of which a stage of any pipeline ends: [units of the model]; 0: none. Returns a
   block that is cut in two places, or -1. */
static int64_t find_fronts(const struct ht_scenario *sc, const struct ht_pipe_style *y, unsigned *fronts)
{
    int64_t each = grains(y), twice = -1;
    for (int32_t k = 0; k < pipelines(y); k++) {
        struct ht_replica x = replica_of(sc, y, k);
        const int64_t *blocks = blocks_of(sc, y, k);
        int64_t at = 0, n = stages_of(y, &x);
        for (int64_t i = 0; i < n; i++) {
            at += blocks[i];
            unsigned front = ht_front(at % each * (HT_N_SUB_OPS / each)), *known = &fronts[1 + at / each];
            if (front && *known && *known != front) twice = at / each;
            if (front) *known = front;
        }
    }
    return twice;
}

/* Checks that a block's front has only what the kernels and messages can hand to its back. */
static enum ht_status check_front(const struct ht_scenario *sc, const struct ht_pipe_style *y, int64_t unit,
                                  unsigned front, struct ht_error *err)
{
    unsigned handed = ht_handed(front);
    char name[72];
    if (!front || !handed) return HT_OK;
    ht_sub_ops_text(handed, name, sizeof name);
    if (ht_arch_post_norm(sc->model.arch))
        return ht_fail(
            err, HT_BAD_INPUT,
            "a stage ends behind %s of block %lld of %s, whose norms follow the residual sums; expected behind "
            "proj or fc2",
            name, (long long)unit - 1, sc->model.name);
    if (y->layout->sequence)
        return ht_fail(err, HT_BAD_INPUT,
                       "a stage ends behind %s of block %lld beside sequence=1; expected behind proj or fc2", name,
                       (long long)unit - 1);
    return HT_OK;
}

/* Returns true if the software is ours, whose tensors are real in a training. */
static bool trains(const struct ht_scenario *sc)
{
    return !strcmp(sc->software.name, "fused");
}

/* Checks that stages which hand what their parts have not alike are as wide as the next: messages have no strides. Of software that
   does not train each part gets all columns. */
static enum ht_status check_handed_widths(const struct ht_scenario *sc, const struct ht_pipe_style *y,
                                          const unsigned *fronts, struct ht_error *err)
{
    char name[72];
    for (int32_t k = 0; k < pipelines(y); k++) {
        struct ht_replica x = replica_of(sc, y, k);
        struct ht_pipe_shape shape = ht_pipe_replica_shape(y, &x);
        const int64_t *blocks = blocks_of(sc, y, k);
        int64_t at = 0, n = stages_of(y, &x), each = grains(y);
        for (int32_t q = 0; q + 1 < n; q++) {
            at += blocks[q];
            unsigned handed = at % each ? ht_handed(fronts[1 + at / each]) : 0;
            int32_t a = ht_layout_width(y->layout, ht_pipe_backward_rank(&shape, q)),
                    b = ht_layout_width(y->layout, ht_pipe_backward_rank(&shape, q + 1));
            if (!handed || ht_handed_alike(handed) || a == b || !trains(sc)) continue;
            return ht_fail(
                err, HT_BAD_INPUT,
                "stage %d, in %d part%s, ends behind %s, and the next is in %d; expected as many, or an end behind "
                "norm1, proj, norm2 or fc2",
                q, a, a == 1 ? "" : "s", ht_sub_ops_text(handed, name, sizeof name), b);
        }
    }
    return HT_OK;
}

/* Checks that the blocks which stages cut can be cut there. */
static enum ht_status check_cuts(const struct ht_scenario *sc, const struct ht_pipe_style *y, struct ht_error *err)
{
    enum ht_status status = HT_OK;
    if (grains(y) == 1) return HT_OK;
    unsigned *fronts = HT_NEW_ARRAY(unsigned, ht_model_units(&sc->model));
    int64_t twice = find_fronts(sc, y, fronts);
    if (twice >= 0)
        status =
            ht_fail(err, HT_BAD_INPUT, "stages end in two places of block %lld; expected in one", (long long)twice);
    for (int64_t u = 0; u < ht_model_units(&sc->model) && !status; u++) status = check_front(sc, y, u, fronts[u], err);
    if (!status) status = check_handed_widths(sc, y, fronts, err);
    free(fronts);
    return status;
}

/* Checks that the blocks have one element per stage, of all pipelines or of each, and that each pipeline has the
   model's. */
static enum ht_status check_blocks(const struct ht_scenario *sc, const struct ht_pipe_style *y, struct ht_error *err)
{
    const struct ht_model *m = &sc->model;
    const char *what = y->sub_ops ? "sub-ops" : y->halves ? "half blocks" : "blocks";
    int64_t all = 0, each = -1, each_block = grains(y);
    if (!y->blocks) return HT_OK;
    if (each_block > 1 && m->arch == HT_ARCH_DIT)
        return ht_fail(err, HT_BAD_INPUT, "%s has blocks whose halves share parameters; expected blocks of each stage",
                       m->name);
    for (int32_t k = 0; k < pipelines(y); k++) {
        struct ht_replica x = replica_of(sc, y, k);
        int64_t n = stages_of(y, &x);
        each = k == 0 || each == n ? n : -1;
        all += n;
    }
    if (y->n_blocks != all && y->n_blocks != each)
        return ht_fail(err, HT_BAD_INPUT, "%s has %d element%s; expected %lld, one a stage", grain_name(y), y->n_blocks,
                       y->n_blocks == 1 ? "" : "s", (long long)all);
    for (int32_t k = 0; k < pipelines(y); k++) {
        struct ht_replica x = replica_of(sc, y, k);
        const int64_t *blocks = blocks_of(sc, y, k);
        int64_t sum = 0;
        for (int32_t i = 0; i < stages_of(y, &x); i++) sum += blocks[i];
        if (sum != each_block * m->layers)
            return ht_fail(err, HT_BAD_INPUT, "the stages of a pipeline have %lld %s: expected the %lld of %s",
                           (long long)sum, what, (long long)(each_block * m->layers), m->name);
    }
    return check_cuts(sc, y, err);
}

/* ---- who steps which unit -------------------------------------------------------------------------------------- */

struct ht_pipe_holders ht_pipe_find_holders(const struct ht_scenario *sc, const struct ht_pipe_style *y,
                                            const struct ht_layout *layout)
{
    struct ht_pipe_holders h = {.layout = layout, .n_units = layout->n_units, .tied = sc->model.tied};
    h.stage = HT_NEW_ARRAY(int32_t, (int64_t)layout->n_replicas * layout->n_units);
    for (int32_t k = 0; k < layout->n_replicas; k++) {
        struct ht_pipe_shape shape = ht_pipe_replica_shape(y, &layout->replicas[k]);
        const int64_t *blocks = blocks_of(sc, y, k);
        int32_t n = ht_pipe_backward_stages(&shape);
        for (int32_t q = 0, u = 0; q < n; q++)
            for (int32_t end = first_unit(sc, y, blocks, n, q + 1); u < end; u++)
                h.stage[k * h.n_units + u] = ht_pipe_backward_rank(&shape, q);
    }
    return h;
}

int32_t ht_pipe_group(const struct ht_pipe_holders *h, int32_t unit, int32_t part, int32_t *ranks)
{
    int32_t n = 0;
    for (int32_t k = 0; k < h->layout->n_replicas; k++) {
        const int32_t *stage = &h->stage[k * h->n_units], head = stage[h->n_units - 1];
        int32_t width = ht_layout_width(h->layout, stage[unit]), all = ht_layout_stage_replicas(h->layout, stage[unit]);
        for (int32_t r = 0; r < all; r++) {
            int32_t member = r * width + part;
            ranks[n++] = ht_layout_rank(h->layout, k, stage[unit], member);
            if (unit == 0 && h->tied && head != stage[0]) ranks[n++] = ht_layout_rank(h->layout, k, head, member);
        }
    }
    return n;
}

bool ht_pipe_same_group(const struct ht_pipe_holders *h, int32_t a, int32_t b)
{
    bool same = !h->tied || (a && b);
    for (int32_t k = 0; k < h->layout->n_replicas && same; k++)
        same = h->stage[k * h->n_units + a] == h->stage[k * h->n_units + b];
    return same;
}

/* Cuts a unit's states over the ranks that step it. */
static void shard(const struct ht_scenario *sc, const struct ht_pipe_style *y, struct ht_layout *l)
{
    struct ht_pipe_holders h = ht_pipe_find_holders(sc, y, l);
    int32_t *ranks = HT_NEW_ARRAY(int32_t, ht_pipe_most_holders(l));
    memset(l->shards, 0, sizeof *l->shards * (size_t)l->n_units * (size_t)l->n_ranks);
    l->sharding = HT_SHARD_ALL;
    for (int32_t q = 0; q < l->tp; q++) {
        for (int32_t u = 0; u < l->n_units; u++) {
            int32_t width = ht_layout_width(l, h.stage[u]), n = ht_pipe_group(&h, u, q, ranks);
            if (q >= width) continue;
            struct ht_model part = ht_model_part(&sc->model, q, width);
            ht_layout_cut_over(l, u, ht_layout_params(l, &part, u), ranks, n);
        }
    }
    free(ranks);
    free(h.stage);
}

/* Cuts the blocks in the middle of which a stage of any pipeline ends. */
static void halve(const struct ht_scenario *sc, const struct ht_pipe_style *y, struct ht_layout *l)
{
    unsigned *fronts = HT_NEW_ARRAY(unsigned, ht_model_units(&sc->model));
    find_fronts(sc, y, fronts);
    ht_layout_halve(l, sc, fronts);
    free(fronts);
}

enum ht_status ht_pipe_lay_out(const struct ht_scenario *sc, const struct ht_pipe_style *y, struct ht_layout *l,
                               struct ht_error *err)
{
    enum ht_status status = check_blocks(sc, y, err);
    if (status) return status;
    if (grains(y) > 1) halve(sc, y, l);
    if (y->zero && l->n_replicas > 1) shard(sc, y, l);
    return HT_OK;
}

/* ---- parameters that a pass reads ------------------------------------------------------------------------------ */

int32_t ht_pipe_first_block(const struct ht_pipe *g, int32_t q)
{
    return g->first[q] > 0 ? g->first[q] : 1;
}

bool ht_pipe_states_in_host(const struct ht_pipe *g, int32_t unit)
{
    if (!g->style->host_blocks || unit == 0 || unit >= ht_pipe_head(g)) return false;
    int32_t q = g->stage_of[unit];
    return unit - ht_pipe_first_block(g, q) < g->style->host_blocks[q];
}

bool ht_pipe_has_head(const struct ht_pipe *g, int32_t q)
{
    return q == g->n_backward - 1;
}

int32_t ht_pipe_end_block(const struct ht_pipe *g, int32_t q)
{
    return ht_pipe_has_head(g, q) ? ht_pipe_head(g) : g->first[q + 1];
}

int32_t ht_pipe_end_recomputed(const struct ht_pipe *g, int32_t q)
{
    int32_t begin = ht_pipe_first_block(g, q), n = ht_pipe_end_block(g, q) - begin;
    if (!g->style->recompute) return begin;
    return begin + (g->style->recomputed && g->style->recomputed < n ? g->style->recomputed : n);
}

/* Returns the sub-ops of a block, or of half of one, whose activations are its own. Where what the projection keeps is the back's
   residual, it is of neither half. */
static unsigned own_sub_ops(unsigned has)
{
    return ht_is_half(has) && ht_hands_proj(has) ? has & ~(1u << HT_SUB_PROJ) : has;
}

/* Returns the sub-ops that a block, or half of one, drops by the style's list. */
static unsigned dropped_of(const struct ht_pipe *g, int32_t unit)
{
    unsigned has = own_sub_ops(ht_draft_sub_ops(&g->d, unit));
    unsigned dropped = (unsigned)g->style->again[ht_draft_label(&g->d, unit, -1).unit - 1] & has;
    return dropped == has ? HT_ALL_SUB_OPS : dropped;
}

unsigned ht_pipe_kept(const struct ht_pipe *g, int32_t unit)
{
    return own_sub_ops(ht_draft_sub_ops(&g->d, unit)) & ~ht_pipe_dropped(g, unit);
}

unsigned ht_pipe_dropped(const struct ht_pipe *g, int32_t unit)
{
    if (ht_draft_sub_ops(&g->d, unit) == 1u << HT_SUB_FC2) return 0; /* a back that keeps at most a mask */
    if (!g->style->recompute || unit >= ht_pipe_end_recomputed(g, g->stage_of[unit])) return 0;
    if (g->style->again && unit > 0) return dropped_of(g, unit);
    if (!g->style->attention_only || unit == 0) return HT_ALL_SUB_OPS;
    return 1u << HT_SUB_ATTENTION & ht_draft_sub_ops(&g->d, unit);
}

bool ht_pipe_forward_has_head(const struct ht_pipe *g, int32_t i)
{
    return g->style->forward_head && i == g->n_forward - 1;
}

bool ht_pipe_forward_reads(const struct ht_pipe *g, int32_t i, int32_t unit)
{
    bool for_head = unit == ht_pipe_head(g) || (unit == 0 && g->d.scenario->model.tied);
    if (for_head && ht_pipe_forward_has_head(g, i)) return true;
    return unit < ht_pipe_head(g) && unit >= g->first[i * g->shape.d] && unit < g->first[(i + 1) * g->shape.d];
}

bool ht_pipe_backward_reads(const struct ht_pipe *g, int32_t q, int32_t unit)
{
    if (ht_pipe_has_head(g, q) && (unit == ht_pipe_head(g) || (unit == 0 && g->d.scenario->model.tied))) return true;
    return unit >= ht_pipe_first_block(g, q) && unit < ht_pipe_end_block(g, q);
}

bool ht_pipe_visit_reads(const struct ht_pipe *g, const struct ht_pipe_visit *v, int32_t unit)
{
    return (v->forward >= 0 && ht_pipe_forward_reads(g, v->forward, unit)) ||
           (v->backward >= 0 && ht_pipe_backward_reads(g, v->backward, unit));
}

struct ht_control ht_pipe_control(const struct ht_scenario *scenario, const struct ht_pipe_style *style,
                                  enum ht_undo_kind *undo)
{
    struct ht_control c = scenario->control;
    bool over_ranks = ht_scenario_ranks(scenario) > 1 && c.options.clip == 0;
    bool own = c.mode == HT_CONTROL_NONE || (c.mode == style->own && over_ranks);
    if (c.mode == HT_CONTROL_NONE) c.mode = style->own;
    *undo = own ? style->undo : HT_UNDO_AND_REDO;
    return c;
}

static enum ht_status check_pipeline(const struct ht_scenario *scenario, const struct ht_pipe_style *y,
                                     const struct ht_replica *x, struct ht_error *err)
{
    const struct ht_model *m = &scenario->model;
    struct ht_pipe_shape p = ht_pipe_replica_shape(y, x);
    int64_t stages = stages_of(y, x);
    if (grains(y) == 1 && m->layers < stages)
        return ht_fail(err, HT_INFEASIBLE,
                       "%s has %lld blocks for %lld stages (%d devices, v = %d, d = %d): expected at least one each",
                       m->name, (long long)m->layers, (long long)stages, p.ranks, p.v, p.d);
    if (m->tied && p.ranks > 1 && y->offload)
        return ht_fail(err, HT_INFEASIBLE,
                       "%s ties its head to the token table, and a pipeline over %d devices has them on two of them, "
                       "whose gradients would be added up in host memory: expected an untied model",
                       m->name, p.ranks);
    if (p.order == HT_PIPE_INTERLEAVED && p.micro_batches % p.ranks)
        return ht_fail(err, HT_INFEASIBLE,
                       "the interleaved order cannot take %d micro-batches: expected a multiple of %d, one a device",
                       p.micro_batches, p.ranks);
    return HT_OK;
}

/* Checks that there are several pipelines for ZeRO, and, if passes reduce, that they do so in one order. */
static enum ht_status check_zero(const struct ht_scenario *sc, const struct ht_pipe_style *y, struct ht_error *err)
{
    const struct ht_layout *l = y->layout;
    bool alike = true;
    if (!y->zero) return HT_OK;
    if (!l || l->n_replicas == 1)
        return ht_fail(err, HT_BAD_INPUT, "ZeRO-%d with one pipeline: expected several, which share the states",
                       y->zero);
    struct ht_pipe_holders h = ht_pipe_find_holders(sc, y, l);
    for (int32_t k = 1; k < l->n_replicas && y->zero == 2; k++) {
        const struct ht_replica *a = &l->replicas[0], *b = &l->replicas[k];
        alike &= a->n_ranks == b->n_ranks && a->n_micro_batches == b->n_micro_batches;
        for (int32_t u = 0; u < h.n_units; u++) alike &= h.stage[u] == h.stage[k * h.n_units + u];
    }
    free(h.stage);
    return alike ? HT_OK
                 : ht_fail(err, HT_BAD_INPUT,
                           "ZeRO-2 with pipelines that differ: expected as many devices, micro-batches and blocks of "
                           "each stage, since all reduce gradients in the order of their passes");
}

/* Checks that the list of blocks whose states are in host memory has a number for each stage of every pipeline, of at most
   its blocks. */
static enum ht_status check_host_blocks(const struct ht_scenario *sc, const struct ht_pipe_style *y,
                                        struct ht_error *err)
{
    if (!y->host_blocks) return HT_OK;
    if (grains(y) > 1)
        return ht_fail(err, HT_BAD_INPUT, "host is set beside %s; expected blocks of each stage", grain_name(y));
    for (int32_t k = 0; k < pipelines(y); k++) {
        struct ht_replica x = replica_of(sc, y, k);
        int32_t stages = stages_of(y, &x);
        if (y->n_host_blocks != stages)
            return ht_fail(err, HT_BAD_INPUT, "host has %d element%s; expected %d, one a stage", y->n_host_blocks,
                           y->n_host_blocks == 1 ? "" : "s", stages);
        for (int32_t q = 0; q < stages; q++) {
            int32_t begin = ht_max(ht_pipe_first_unit_in(sc, y, k, q), 1);
            int32_t end = ht_min(ht_pipe_first_unit_in(sc, y, k, q + 1), sc->model.layers + 1);
            if (y->host_blocks[q] > end - begin)
                return ht_fail(err, HT_BAD_INPUT, "host has %lld blocks of stage %d; expected at most its %d",
                               (long long)y->host_blocks[q], q, end - begin);
        }
    }
    return HT_OK;
}

/* Checks that what crosses has a number for each boundary of every pipeline, whose ranks have a stage each. */
static enum ht_status check_crossing(const struct ht_scenario *sc, const struct ht_pipe_style *y, struct ht_error *err)
{
    for (int32_t k = 0; k < pipelines(y) && y->crossing; k++) {
        struct ht_replica x = replica_of(sc, y, k);
        int32_t boundaries = stages_of(y, &x) - 1;
        if (y->v > 1)
            return ht_fail(err, HT_BAD_INPUT, "crossing is set beside v=%d; expected one stage a device", y->v);
        if (y->n_crossing != boundaries)
            return ht_fail(err, HT_BAD_INPUT, "crossing has %d element%s; expected %d, one a boundary between stages",
                           y->n_crossing, y->n_crossing == 1 ? "" : "s", boundaries);
    }
    return HT_OK;
}

/* Checks that what blocks keep has a number for each, or for each half of one that is cut, and that there is a tensor for it. */
static enum ht_status check_kept(const struct ht_scenario *sc, const struct ht_pipe_style *y, struct ht_error *err)
{
    const struct ht_layout *l = y->layout;
    int32_t n = (l ? l->n_units : (int32_t)sc->model.layers + 2) - 2;
    if (!y->kept) return HT_OK;
    if (trains(sc))
        return ht_fail(err, HT_BAD_INPUT,
                       "kept with software 'fused': expected that of another program, whose tensors it sizes");
    if (!y->again) return ht_fail(err, HT_BAD_INPUT, "kept is set without again; expected both");
    if (y->n_kept != n)
        return ht_fail(err, HT_BAD_INPUT, "kept has %d element%s; expected %d, one a block, two of one that is cut",
                       y->n_kept, y->n_kept == 1 ? "" : "s", n);
    return HT_OK;
}

/* Checks that stages of one width have a block in all pipelines, since its gradients are reduced part by part. */
static enum ht_status check_widths(const struct ht_scenario *sc, const struct ht_pipe_style *y, struct ht_error *err)
{
    const struct ht_layout *l = y->layout;
    enum ht_status status = HT_OK;
    if (!l || !l->stage_begin) return HT_OK;
    struct ht_pipe_holders h = ht_pipe_find_holders(sc, y, l);
    for (int32_t k = 1; k < l->n_replicas && !status; k++)
        for (int32_t u = 0; u < h.n_units && !status; u++) {
            int32_t a = ht_layout_width(l, h.stage[u]), b = ht_layout_width(l, h.stage[k * h.n_units + u]);
            if (a != b)
                status = ht_fail(err, HT_BAD_INPUT,
                                 "block %d is in %d part%s in pipeline 0 and in %d in pipeline %d; expected as many",
                                 l->units[u].unit - 1, a, a == 1 ? "" : "s", b, k);
        }
    free(h.stage);
    return status;
}

enum ht_status ht_pipe_check(const struct ht_scenario *scenario, const struct ht_pipe_style *y, struct ht_error *err)
{
    enum ht_undo_kind undo;
    enum ht_status status = HT_OK;
    for (int32_t k = 0; k < pipelines(y) && !status; k++) {
        struct ht_replica x = replica_of(scenario, y, k);
        status = check_pipeline(scenario, y, &x, err);
    }
    if (!status) status = check_blocks(scenario, y, err);
    if (!status) status = check_widths(scenario, y, err);
    if (!status) status = check_zero(scenario, y, err);
    if (!status) status = check_host_blocks(scenario, y, err);
    if (!status) status = check_crossing(scenario, y, err);
    if (!status) status = check_kept(scenario, y, err);
    if (!status && y->posts && !y->blocking_sends)
        status = ht_fail(err, HT_BAD_INPUT, "posts is 1 where no pass waits for a send; expected 0");
    if (!status && y->transposed && y->zero)
        status = ht_fail(err, HT_BAD_INPUT, "gradients are rearranged beside zero=%d; expected one of them", y->zero);
    if (status) return status;
    ht_pipe_control(scenario, y, &undo);
    if (scenario->control.mode == HT_CONTROL_ROLLBACK && undo == HT_UNDO_UNLOGGED)
        return ht_fail(err, HT_INFEASIBLE, "control 'rollback' with a step that keeps no log: its undo is not exact");
    return HT_OK;
}

/* ---- planning ---------------------------------------------------------------------------------------------------- */

int64_t ht_pipe_stages_each(const struct ht_scenario *scenario, int64_t wanted, int64_t of)
{
    int64_t most = scenario->model.layers / of;
    return most < 1 ? 1 : wanted < most ? wanted : most;
}

/* Adds what each block recomputes to the plan. */
static enum ht_status plan_again(const struct ht_scenario *scenario, const struct ht_settings *settings,
                                 struct ht_error *err, struct ht_plan *out)
{
    static const char *const others[] = {"recompute", "segment", "c"};
    const struct ht_variable *again = ht_setting_variable(settings, "again");
    for (size_t i = 0; i < HT_COUNT(others); i++)
        if (ht_setting_variable(settings, others[i]))
            return ht_fail(err, HT_BAD_INPUT, "again is set beside %s; expected one of them", others[i]);
    if (again->n != scenario->model.layers)
        return ht_fail(err, HT_BAD_INPUT, "again has %d element%s; expected %lld, one a block", again->n,
                       again->n == 1 ? "" : "s", (long long)scenario->model.layers);
    ht_plan_set_vector(out, again);
    if (ht_setting_variable(settings, "kept")) ht_plan_set_vector(out, ht_setting_variable(settings, "kept"));
    return HT_OK;
}

enum ht_status ht_pipe_plan_recomputation(const struct ht_scenario *scenario, const struct ht_settings *settings,
                                          bool whole_stages, struct ht_error *err, struct ht_plan *out)
{
    if (ht_setting_variable(settings, "again")) return plan_again(scenario, settings, err, out);
    if (ht_setting_variable(settings, "kept"))
        return ht_fail(err, HT_BAD_INPUT, "kept is set without again; expected both");
    int64_t recompute = ht_setting(settings, "recompute", HT_RECOMPUTES_NOTHING);
    bool attention = recompute == HT_RECOMPUTES_ATTENTION;
    int64_t segment = ht_setting(settings, "segment", attention || !whole_stages), c = ht_setting(settings, "c", 0);
    ht_plan_set(out, "recompute", recompute);
    if (!recompute && (ht_setting_variable(settings, "segment") || c))
        return ht_fail(err, HT_BAD_INPUT, "%s is set beside recompute=0; expected recompute=1 or 2",
                       c ? "c" : "segment");
    if (attention && segment != 1)
        return ht_fail(err, HT_BAD_INPUT,
                       "segment=%lld is set beside recompute=2; expected 1: attention is recomputed "
                       "block by block",
                       (long long)segment);
    if (recompute) ht_plan_set(out, "segment", segment);
    if (c) ht_plan_set(out, "c", c);
    return HT_OK;
}

void ht_pipe_read_recomputation(const struct ht_plan *plan, struct ht_pipe_style *y)
{
    const struct ht_variable *again = ht_plan_variable(plan, "again");
    const struct ht_variable *kept = ht_plan_variable(plan, "kept");
    y->again = again ? again->values : NULL;
    y->kept = kept ? kept->values : NULL;
    y->n_kept = kept ? kept->n : 0;
    y->recompute = again || ht_plan_get(plan, "recompute");
    y->segment = again ? 1 : (int32_t)ht_plan_get(plan, "segment");
    y->recomputed = (int32_t)ht_plan_get(plan, "c");
    y->attention_only = ht_plan_get(plan, "recompute") == HT_RECOMPUTES_ATTENTION;
}

void ht_pipe_plan_inputs(const struct ht_scenario *scenario, struct ht_plan *plan)
{
    ht_plan_input(plan, "L", "", (double)scenario->model.layers);
    ht_plan_input(plan, "devices", "", (double)ht_scenario_ranks(scenario));
}

/* ---- memory by stages ------------------------------------------------------------------------------------------ */

void ht_pipe_largest_stage(const struct ht_scenario *sc, const struct ht_pipe_style *y, int32_t count, int64_t *params,
                           int64_t *kept_bytes)
{
    struct ht_pipe_shape p = ht_pipe_shape_of(sc, y);
    *params = *kept_bytes = 0;
    for (int32_t q = 0; q < ht_pipe_backward_stages(&p); q += count) {
        int64_t sum = 0, acts = 0;
        for (int32_t u = ht_pipe_first_unit(sc, y, q); u < ht_pipe_first_unit(sc, y, q + count); u++) {
            sum += ht_unit_params(&sc->model, u);
            acts += ht_unit_activation_bytes(&sc->model, u, sc->micro_batch, sc->seq, sc->numerics.param);
        }
        *params = ht_max(*params, sum);
        *kept_bytes = ht_max(*kept_bytes, acts);
    }
}

/* Returns the inputs that a backward stage of the usual size keeps: the first block's, or one of each segment. */
static int64_t inputs_of_stage(const struct ht_scenario *sc, const struct ht_pipe_style *y)
{
    int64_t stages = ht_scenario_ranks(sc) * y->v * y->d, blocks = (sc->model.layers + stages - 1) / stages;
    return y->segment ? (blocks + y->segment - 1) / y->segment : 1;
}

int64_t ht_pipe_checkpoint_bytes(const struct ht_scenario *sc, const struct ht_pipe_style *y)
{
    return ht_pipe_shape_of(sc, y).micro_batches * y->v * y->d * inputs_of_stage(sc, y) *
           ht_unit_input_bytes(&sc->model, 1, sc->micro_batch, sc->seq, sc->numerics.param);
}

int64_t ht_pipe_device_bytes(const struct ht_scenario *sc, const struct ht_pipe_style *y)
{
    int64_t params, kept, head = ht_model_units(&sc->model) - 1;
    ht_pipe_largest_stage(sc, y, y->d, &params, &kept);
    if (y->segment)
        kept =
            ht_max(y->segment * ht_unit_activation_bytes(&sc->model, 1, sc->micro_batch, sc->seq, sc->numerics.param),
                   ht_unit_activation_bytes(&sc->model, head, sc->micro_batch, sc->seq, sc->numerics.param));
    if (!y->recompute) kept *= ht_pipe_shape_of(sc, y).micro_batches * y->v;
    return 3 * ht_dtype_bytes(sc->numerics.param) * params + ht_pipe_checkpoint_bytes(sc, y) + kept;
}

int64_t ht_pipe_host_bytes(const struct ht_scenario *sc, const struct ht_pipe_style *y)
{
    const struct ht_numerics *n = &sc->numerics;
    struct ht_pipe_shape p = ht_pipe_shape_of(sc, y);
    int64_t each = ht_dtype_bytes(n->param) + ht_optimizer_state_bytes(n), most = 0;
    each += ht_dtype_bytes(ht_stepped_gradient(n, ht_scenario_micro_batches(sc)));
    int64_t *node_bytes = HT_NEW_ARRAY(int64_t, sc->cluster->n_nodes);
    enum ht_undo_kind undo;
    bool logged = ht_pipe_control(sc, y, &undo).mode == HT_CONTROL_ROLLBACK && undo != HT_UNDO_UNLOGGED;
    for (int32_t q = 0; q < ht_pipe_backward_stages(&p); q++) {
        int64_t node = 0;
        ht_cluster_node_of(sc->cluster, ht_pipe_backward_rank(&p, q), &node);
        for (int32_t u = ht_pipe_first_unit(sc, y, q); u < ht_pipe_first_unit(sc, y, q + 1); u++) {
            int64_t params = ht_unit_params(&sc->model, u);
            node_bytes[node] += each * params;
            if (logged) node_bytes[node] += ht_undo_log_bytes(params, ht_undo_usual_exceptions(params));
        }
        most = ht_max(most, node_bytes[node]);
    }
    free(node_bytes);
    return most;
}
