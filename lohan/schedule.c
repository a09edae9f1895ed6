/*
 * LoHan's schedule: everything lives on the SSDs and passes through main memory (Sec. IV-A, Fig. 1c).
 *
 *     disk     DP2  DP3        AW1 ..        | DP2 AR1 ..    SR3    SR2  SW3 ..     SW0 |
 *     h2d      P1   P2   P3 ..               | P3 AI3  P2 AI2 ..                        |
 *     compute       F1   F2   F3 .. FH BH    |       R3 B3      R2 B2 ..                |
 *     d2h                AO1  AO2 ..         |              G3     G2 ..                |
 *     cpu                                    |                   O3    O2 ..            |
 *
 * A turn is a unit's pass: units 0 .. L forward, the head forward and backward, units L .. 0 backward. For each turn
 * the unit's P16 comes from the SSDs (DP) and from main memory to the GPU (P), where it is dropped after the turn. P
 * may run `prefetch_f` turns ahead in the forward pass and `prefetch_b` in the backward pass, DP one more: there are
 * two P16 buffers in main memory. A block's swapped activations go out after its forward pass (AO), some on to the SSDs
 * (AW), and come back (AR, AI) with the P16 of its backward turn. What is neither swapped nor kept is recomputed from
 * the nearest activations that are there. Gradients go out at once (G); update.c has the rest.
 *
 * With `halves` a block's passes are two ops each, one for its attention half and one for its MLP half (the authors'
 * program checkpoints the residual between them):
 *
 *     forward   Fa Fm | backward   Rm Bm  Ra Ba      or, where the residual (proj) is recomputed:   Ra Rm Bm  Ba
 *
 * A half's activations and workspace are on the GPU in its own time. What only Ba needs comes back by an AI of its own,
 * which follows Bm of the turn in whose time it may come.
 *
 *     tensor                tier   allocated       freed
 *     states, P16           disk   resident
 *     P16                   host   DP              P
 *     P16                   GPU    P               end of the turn
 *     activations, swapped  GPU    F; AI           AO; B
 *     the same              host   AO; AR          AI, or AW
 *     the same, to SSD      disk   AW              AR
 *     activations, others   GPU    R, for the turn; F's are scratch
 *     gradient              GPU    B               G
 *     gradient              host   G               O
 *
 * On the disk lane, reads for the GPU come before activations that go out, and these before the optimizer's reads and
 * writes [ours: the GPU waits for the first]. An SSD array whose reads and writes share its time has one lane (Sec.
 * IV-D: "the SSD is simplex"), else there are two.
 *
 * Chosen where the paper is silent. Embedding and head are units like blocks; a tied table comes again with the head.
 * The head's input stays on the GPU. Units of less than `resident` parameters stay there with their states and are
 * stepped there (only the authors' program). With several micro-batches all of this happens for each; gradients are
 * added in main memory, and R, C and W come with the last.
 *
 * Several GPUs of a node share the SSDs, main memory and the CPU [ours; Sec. V-G gives results, not a method]. They take
 * equal parts of the batch, turn by turn side by side:
 *
 *     disk     DP3           AW1 AW1 ..                once for all GPUs; each one's activations
 *     h2d 0        P3        AI ..                     over its own link
 *     h2d 1        P3        AI ..
 *     cpu                             A2  O3           adds up the GPUs' gradients before C
 *     cpu 1          free3                             frees P16 in main memory when every GPU has it
 *     d2h 0                  G2
 *     d2h 1                  G2
 */
#include "lohan/lohan.h"

#include "common/base/array.h"
#include "common/draft/hops.h"

#include <stdlib.h>

/* A turn of a GPU: the passes of a micro-batch over a unit. */
struct visit {
    int32_t turn, gpu, unit, mb;
    bool forward, backward; /* both for the head */
    bool block, halves;     /* halves: its passes are two ops each */
    bool swaps_in;          /* the backward turn of a block, whose swapped activations come back */
};

struct build {
    struct ht_draft *g;
    struct lohan_activations acts;
    struct ht_hops params;                    /* P16: DP and P */
    int32_t gpus;                             /* that share the states; GPU k has micro-batch round * gpus + k */
    bool blocks;                              /* the GPUs wait for each W */
    int32_t next_acts_disk, next_acts_device; /* turn whose activations are fetched next to main memory, to the GPU */
    int32_t *next_later;                      /* [gpus] likewise those that come later */
    int32_t *gate;                            /* [gpus] W that the GPU waits for, or -1 */
    int32_t *arrived;                         /* [gpus] op that brought its last gradient to main memory */
    struct lohan_optimizer optimizer;
};

static struct visit visit_of(const struct build *b, int32_t turn, int32_t gpu)
{
    struct ht_turn x = ht_turn(b->g->n_units, turn);
    bool block = ht_draft_kind(b->g, x.unit) == HT_UNIT_BLOCK;
    return (struct visit){.turn = turn,
                          .gpu = gpu,
                          .unit = x.unit,
                          .mb = x.round * b->gpus + gpu,
                          .forward = x.forward,
                          .backward = x.backward,
                          .block = block,
                          .halves = block && b->acts.fates.halves,
                          .swaps_in = block && !x.forward};
}

/* ---- fetches --------------------------------------------------------------------------------------------------- */

/* Makes the last op wait for what a GPU has fetched for the turn before the last: there are two buffers. */
static void after_fetch_before(struct build *b, int32_t turn, int32_t gpu)
{
    if (turn >= 2) ht_op_after(b->g->schedule, b->params.fetched[ht_hops_at(&b->params, turn - 2, gpu)]);
}

/* Names DP. */
static void on_read(void *build, int32_t turn, int32_t unit)
{
    struct build *b = build;
    ht_op_name(b->g->schedule, "DP%d", unit);
    ht_op_priority(b->g->schedule, LOHAN_FOR_GPU);
    for (int32_t k = 0; k < b->gpus; k++) after_fetch_before(b, turn, k);
}

/* Returns the turn in whose time a turn's swapped activations may come to the GPU. */
static int32_t acts_first(const struct build *b, int32_t turn)
{
    const struct ht_variable *ahead = b->acts.fates.ahead;
    return ahead ? turn - (int32_t)ahead->values[visit_of(b, turn, 0).unit - 1] : ht_hops_first(&b->params, turn);
}

/* Appends AR. */
static void acts_to_host(struct build *b, struct visit v)
{
    if (!v.swaps_in) return;
    ht_draft_turn_to(b->g, v.gpu);
    if (ht_fates_read(&b->acts.fates, v.unit, v.mb) < 0) return;
    ht_op_priority(b->g->schedule, LOHAN_FOR_GPU);
    after_fetch_before(b, v.turn, v.gpu);
    if (b->acts.fates.ahead) ht_hops_not_before(&b->params, acts_first(b, v.turn) - 1, v.gpu);
}

/* Appends AI, of the rows that come later or of the others. */
static void acts_to_device(struct build *b, struct visit v, bool later)
{
    int32_t rows[LOHAN_MAX_SWAPPED];
    int32_t n = v.swaps_in ? lohan_swapped_rows(&b->acts, v.unit, v.mb, later, rows) : 0;
    if (n == 0) return;
    ht_draft_turn_to(b->g, v.gpu);
    b->params.fetched[ht_hops_at(&b->params, v.turn, v.gpu)] =
        ht_draft_copy_rows(b->g, rows, n, HT_HOST, HT_DEVICE, HT_PRODUCE, true);
    ht_fates_name(b->g, "AI", v.unit, v.mb);
    ht_hops_not_before(&b->params, acts_first(b, v.turn), v.gpu);
}

/* Returns true if AR of a turn may begin with turn `now`: not before the turn's P16 is read, and once the block has been
   passed forward. Turns without AR may be passed over. */
static bool may_read_acts(const struct build *b, int32_t turn, int32_t now)
{
    if (!visit_of(b, turn, 0).swaps_in) return true;
    return (b->acts.fates.ahead || turn <= b->params.next_read) && acts_first(b, turn) <= now + 1 &&
           ht_turn_forward(b->g->n_units, turn) < now;
}
static bool may_fetch_acts(const struct build *b, int32_t turn, int32_t now)
{
    return !visit_of(b, turn, 0).swaps_in || acts_first(b, turn) <= now;
}

/* Appends the second AI of each turn whose first one has been appended. */
static void fetch_later(struct build *b, int32_t gpu)
{
    for (int32_t *t = &b->next_later[gpu]; *t < b->next_acts_device; ++*t)
        acts_to_device(b, visit_of(b, *t, gpu), true);
}

/* Appends the fetches that come before the passes of turn `now`: to the GPU for the turns up to prefetch later, to main
   memory for one more. */
static void fetch(struct build *b, int32_t now)
{
    struct visit next = visit_of(b, now, 0);
    int32_t *to_host = &b->next_acts_disk, *to_device = &b->next_acts_device;
    ht_hops_read(&b->params, now);
    ht_hops_fetch(&b->params, now);
    for (; *to_host < b->params.n_turns && may_read_acts(b, *to_host, now); ++*to_host)
        for (int32_t k = 0; k < b->gpus; k++) acts_to_host(b, visit_of(b, *to_host, k));
    for (; *to_device < *to_host && may_fetch_acts(b, *to_device, now); ++*to_device)
        for (int32_t k = 0; k < b->gpus; k++) acts_to_device(b, visit_of(b, *to_device, k), false);
    if (next.swaps_in && next.halves) return; /* backward does it */
    for (int32_t k = 0; k < b->gpus; k++) fetch_later(b, k);
}

/* ---- passes ---------------------------------------------------------------------------------------------------- */

/* Makes a GPU wait for W of the gradients before, if the system's handler blocks it. */
static void wait_for_update(struct build *b, int32_t gpu)
{
    ht_op_after(b->g->schedule, b->gate[gpu]);
    b->gate[gpu] = -1;
}

static void close_gates(struct build *b, int32_t written)
{
    for (int32_t k = 0; k < b->gpus && b->blocks; k++) b->gate[k] = written;
}

/* Appends F. Returns its last op. */
static int32_t forward(struct build *b, struct visit v)
{
    unsigned keep = HT_ALL_SUB_OPS & ~lohan_recomputed(&b->acts, v.unit);
    if (v.halves) {
        ht_draft_forward_half(b->g, v.unit, v.mb, HT_ATTENTION_HALF, keep);
        wait_for_update(b, v.gpu);
        lohan_on_own_copies(&b->acts, v.unit, v.mb, HT_ATTENTION_HALF, HT_PRODUCE);
    }
    int32_t op = ht_draft_forward_half(b->g, v.unit, v.mb, v.halves ? HT_MLP_HALF : HT_ALL_SUB_OPS, keep);
    wait_for_update(b, v.gpu);
    return op;
}

/* Appends AO and AW of a block, behind its F. */
static void swap_out(struct build *b, struct visit v)
{
    lohan_on_own_copies(&b->acts, v.unit, v.mb, v.halves ? HT_MLP_HALF : HT_ALL_SUB_OPS, HT_PRODUCE);
    lohan_swap_out(&b->acts, v.unit, v.mb);
}

/* Appends the recomputation of a block or a half of it, if there is one, in the time of the sub-ops that it repeats for
   nothing, too. */
static void recompute(struct build *b, struct visit v, unsigned part)
{
    struct ht_schedule *s = b->g->schedule;
    unsigned again = lohan_recomputed(&b->acts, v.unit) & part;
    if (!again) return;
    int32_t op = ht_draft_recompute(b->g, v.unit, 1, v.mb, again);
    wait_for_update(b, v.gpu);
    struct ht_work w = s->works[s->ops[op].work];
    unsigned alone = w.sub_ops;
    for (int k = 0; k < LOHAN_N_REPEATED; k++)
        if (b->acts.again[k] && b->acts.again[k]->values[v.unit - 1] == LOHAN_AGAIN)
            w.sub_ops |= 1u << lohan_repeated[k] & part;
    if (w.sub_ops == alone) return;
    w.free = false;
    s->ops[op].work = ht_add_work(s, &w);
}

/* Appends the backward of a part of a unit, behind which what only it has read leaves. Returns B's id. */
static int32_t backward_part(struct build *b, struct visit v, unsigned part)
{
    int32_t op = ht_draft_backward_half(b->g, v.unit, v.mb, part);
    wait_for_update(b, v.gpu);
    if (v.block) lohan_on_own_copies(&b->acts, v.unit, v.mb, part, HT_NEED | HT_RELEASE);
    return op;
}

/* Appends R and B. Returns the last op. In halves the MLP's comes first; where it needs the residual and that is
   recomputed, the attention's R is before it. */
static int32_t backward(struct build *b, struct visit v)
{
    bool residual_again = lohan_recomputed(&b->acts, v.unit) >> HT_SUB_PROJ & 1;
    unsigned last = v.halves ? HT_ATTENTION_HALF : HT_ALL_SUB_OPS;
    if (!v.halves || residual_again) recompute(b, v, last);
    if (v.halves) {
        recompute(b, v, HT_MLP_HALF);
        backward_part(b, v, HT_MLP_HALF);
        fetch_later(b, v.gpu);
        ht_draft_turn_to(b->g, v.gpu);
        if (!residual_again) recompute(b, v, HT_ATTENTION_HALF);
    }
    return backward_part(b, v, last);
}

/* Appends G, and what adds it to the sum in main memory. On one GPU R waits for the sum, too; on several the sum waits
   its turn among the steps. */
static void gradient_out(struct build *b, struct visit v)
{
    struct ht_draft *g = b->g;
    int32_t op = ht_draft_copy(g, ht_draft_fresh_gradient(g, v.unit, v.mb), HT_DEVICE, HT_HOST, HT_PRODUCE, true);
    ht_draft_turn_to(g, -1);
    int32_t sum = v.mb ? ht_draft_accumulate(g, g->lanes->host, v.unit, v.mb) : op;
    b->arrived[v.gpu] = b->gpus == 1 ? sum : op;
}

/* Appends the passes of a turn on a GPU, and what leaves the GPU behind them. */
static void passes(struct build *b, struct visit v)
{
    int32_t *computed = &b->params.computed[ht_hops_at(&b->params, v.turn, v.gpu)];
    ht_draft_turn_to(b->g, v.gpu);
    if (v.forward) *computed = forward(b, v);
    if (v.backward) *computed = backward(b, v);
    ht_hops_drop(&b->params, v.turn);
    if (v.forward && v.block) swap_out(b, v);
    if (!v.backward) return;
    if (!b->params.stays[v.unit])
        gradient_out(b, v);
    else if (v.mb)
        *computed = ht_draft_accumulate(b->g, b->g->lanes->compute, v.unit, v.mb);
}

/* Appends what becomes of a unit's gradients once all GPUs have made them. */
static void update(struct build *b, int32_t turn)
{
    struct ht_draft *g = b->g;
    struct ht_turn x = ht_turn(g->n_units, turn);
    if (!x.backward || x.round + 1 < g->rounds) return;
    ht_draft_turn_to(g, -1);
    if (!b->params.stays[x.unit]) {
        close_gates(b, lohan_optimizer_take(&b->optimizer, x.unit, b->arrived, b->gpus));
        return;
    }
    b->params.computed[ht_hops_at(&b->params, turn, 0)] = ht_draft_step(g, g->lanes->compute, x.unit, 1, true);
    int32_t cut = lohan_optimizer_cut(&b->optimizer);
    if (cut >= 0) close_gates(b, cut);
}

/* ---- the graph ------------------------------------------------------------------------------------------------- */

/* Places states and parameters. Units of fewer parameters than `resident` stay on the GPU. */
static void place(struct build *b, int64_t resident)
{
    struct ht_draft *g = b->g;
    for (int32_t u = 0; u < g->n_units; u++) {
        bool stays = b->params.stays[u] = ht_unit_params(&g->scenario->model, u) < resident;
        enum ht_tier home = stays ? HT_DEVICE : HT_DISK;
        g->realloc_on_step[u] = !stays && g->master[u] >= 0; /* the step makes P16 */
        ht_draft_place(g, g->param[u], home);
        ht_draft_place_states(g, u, home);
    }
}

static void emit(struct ht_draft *g, const void *plan)
{
    struct build b = {.g = g,
                      .gpus = g->sharers,
                      .blocks = ht_plan_get(plan, "blocks"),
                      .next_later = HT_NEW_ARRAY(int32_t, g->sharers),
                      .gate = ht_alloc_ids(g->sharers),
                      .arrived = ht_alloc_ids(g->sharers)};
    ht_hops_init(&b.params, g, g->rounds);
    b.params.ahead[0] = (int32_t)ht_plan_get(plan, "prefetch_f");
    b.params.ahead[1] = (int32_t)ht_plan_get(plan, "prefetch_b");
    b.params.on_read = on_read;
    b.params.system = &b;
    lohan_optimizer_init(&b.optimizer, g, plan);
    place(&b, ht_plan_get(plan, "resident"));
    lohan_activations_init(&b.acts, g, plan);
    for (int32_t t = 0; t < b.params.n_turns; t++) {
        fetch(&b, t);
        for (int32_t k = 0; k < b.gpus; k++) passes(&b, visit_of(&b, t, k));
        update(&b, t);
    }
    lohan_optimizer_end(&b.optimizer);
    ht_hops_free(&b.params);
    void *all[] = {b.acts.own, b.next_later, b.gate, b.arrived};
    for (size_t i = 0; i < HT_COUNT(all); i++) free(all[i]);
}

const struct ht_program lohan_program = {.disk = true, .disk_order = HT_PRIORITY, .shares_states = true, .emit = emit};
