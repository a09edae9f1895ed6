/*
 * AutoHete's schedule as an op graph: Sec. 3.2.2 (dependencies) and Sec. 3.3 (priority queues).
 *
 *     compute  F0 F1 .. FL FH | BH [RL] BL [UL] .. [R1] B1 [U1] B0          U: i not in O      R: i in C
 *     h2d      PF of O, in forward order | PB of P, descending              FIFO
 *     d2h          GL .. : the earliest waiting block first                 PRIORITY (FIFO without PS)
 *     cpu             OL .. : likewise                                      PRIORITY (FIFO without PS)
 *
 * F_i (i in O) waits for PF_i; R_i or B_i (i in P) for PB_i; G_i for B_i; O_i for G_i; PF_i of the next iteration for
 * O_i. All of these follow from the effects. The builder adds only the release of PB_i: "prefetching parameters only
 * one transformer block in advance" (Sec. 3.2.2), that is, once block i+1 begins its backward slot. The fine-tuning
 * step advances it by more slots (plan variable `ahead`).
 *
 * Memory. In id order PF_i and PB_i come right before the op that needs them, so the safe sequence (ops one at a time
 * by id) fetches as late as possible. Their lane runs them earlier, and the executors' memory rule decides how much
 * earlier. That is the paper's deferral ("we evaluate the GPU memory footprint before scheduling parameter prefetching
 * ... we defer parameter prefetching by one step", Sec. 3.3), across iterations too.
 *
 *     tensor                           tier    allocated            freed
 *     states (W, M, V), i not in O     device  resident
 *     states, i in O                   host    resident
 *     16-bit P, i not in O             device  each of F, R, B      the same op (cast from W, footnote 2)
 *     P, i in O \ P                    device  PF_i                 B_i of the last micro-batch
 *     P, i in P                        device  PF_i; PB_i           F_i (dropped, no copy out); B_i
 *     16-bit P, i in O                 host    O_i                  last reading (PF_i or PB_i); G_i takes its place
 *     gradient                         device  B_i                  end of G_i, or of U_i
 *     gradient, i in O                 host    G_i                  O_i
 *     FP32 numerics                    P is its own master: resident where the states are, and a second copy is on the
 *                                      device while i in O is used there
 *
 * Chosen where the paper is silent. Block L in P keeps its parameters between F_L and B_L (they would be fetched back
 * at once). The embedding's and the head's compute copy stays on the device throughout. Their optimizer is on the
 * device or on the host (plan variable `e`). On the host the embedding has the smallest key, since the next iteration
 * needs it first. With several micro-batches i in O \ P is fetched once an iteration, i in P twice a micro-batch;
 * gradients are added where they are stepped, and steps come after the last micro-batch.
 *
 * Several ranks ("we utilized the ZeRO-3 stage", Sec. 4): all of this for a rank's 1/N of every unit. F, R and B read
 * what the ranks gather (common/draft/zero.c). AG_i waits for PF_i or PB_i; G_i and U_i wait for RS_i. U_i comes one
 * unit later, so that the compute lane does not wait for RS_i.
 */
#include "autohete/autohete.h"
#include "common/draft/draft.h"

#include "common/base/array.h"

#include <stdlib.h>

/* The plan's variables. */
struct choice {
    int32_t c, p, o, ahead;
    const struct ht_variable *C, *P, *O; /* sets of blocks, by default the paper's of c, p and o blocks */
    bool ends_on_host, priority;
};

struct build {
    struct ht_draft *g;
    const struct choice *choice;
    int32_t L;
    int32_t *forward; /* [n_units] F of the current micro-batch */
    int32_t *before;  /* [n_units] the compute op before the unit's backward slot */
    int32_t compute;  /* last op of the compute lane */
};

static bool is_block(const struct build *b, int32_t u)
{
    return u >= 1 && u <= b->L;
}

/* Returns the number of blocks of a set up to u. */
static int32_t count_up_to(const struct ht_variable *set, int32_t u)
{
    int32_t n = 0;
    while (n < set->n && set->values[n] <= u) n++;
    return n;
}

static bool contains(const struct ht_variable *set, int32_t u)
{
    int32_t n = count_up_to(set, u);
    return n > 0 && set->values[n - 1] == u;
}

/* Returns true if a unit's optimizer, and with it its parameters, are on the host: i in O for a block. */
static bool on_host(const struct build *b, int32_t u)
{
    if (!is_block(b, u)) return b->choice->ends_on_host;
    return b->choice->O ? contains(b->choice->O, u) : u > b->L - b->choice->o;
}

/* Returns true if i in P, by default the first p blocks of O. */
static bool offloaded(const struct build *b, int32_t u)
{
    const struct choice *x = b->choice;
    if (!is_block(b, u) || !on_host(b, u)) return false;
    if (x->P) return contains(x->P, u);
    return (x->O ? count_up_to(x->O, u) : u - (b->L - x->o)) <= x->p;
}

/* Returns true if the unit's parameters leave the device between its forward and its backward pass. */
static bool dropped(const struct build *b, int32_t u)
{
    return offloaded(b, u) && u != b->L;
}

static bool last(const struct build *b, int32_t mb)
{
    return mb == b->g->n_mb - 1;
}

static void place_residents(struct build *b)
{
    struct ht_draft *g = b->g;
    for (int32_t u = 0; u < g->n_units; u++) {
        bool master = g->master[u] >= 0, host = on_host(b, u);
        g->realloc_on_step[u] = master && host;
        g->cast_on_use[u] = master && !host && is_block(b, u);
        if (!g->cast_on_use[u]) ht_draft_place(g, g->param[u], host ? HT_HOST : HT_DEVICE);
        ht_draft_place_states(g, u, host ? HT_HOST : HT_DEVICE);
    }
}

/* Appends PF or PB. The last one of the iteration frees the host's 16-bit copy. */
static int32_t fetch(struct build *b, int32_t u, int32_t mb, bool backward)
{
    struct ht_draft *g = b->g;
    bool last_fetch = dropped(b, u) ? backward && last(b, mb) : !offloaded(b, u) || last(b, mb);
    int32_t op = ht_draft_copy(g, g->param[u], HT_HOST, HT_DEVICE, HT_PRODUCE, g->realloc_on_step[u] && last_fetch);
    ht_draft_name(g, backward ? "PB" : "PF", u, mb);
    return op;
}

static void drop(struct build *b, int32_t u)
{
    ht_op_effect(b->g->schedule, b->g->param[u], HT_DEVICE, HT_RELEASE);
}

static bool checkpointed(const struct build *b, int32_t u)
{
    if (!is_block(b, u)) return false;
    return b->choice->C ? contains(b->choice->C, u) : u <= b->choice->c;
}

static void forward_pass(struct build *b, int32_t mb)
{
    for (int32_t u = 0; u < b->g->n_units; u++) {
        if (on_host(b, u) && (mb == 0 || offloaded(b, u))) fetch(b, u, mb, false);
        b->forward[u] = b->compute = ht_draft_forward(b->g, u, mb, checkpointed(b, u) ? 0 : HT_ALL_SUB_OPS);
        if (dropped(b, u)) drop(b, u);
    }
}

/* Returns the op after which PB_u may run: block u + ahead begins its backward slot then. Beyond the head the forward
   slots count, back to the end of F_u. */
static int32_t release_of(const struct build *b, int32_t u)
{
    int32_t head = b->L + 1, slot = u + b->choice->ahead;
    if (slot <= head) return b->before[slot];
    int32_t forward = head - (slot - head);
    return b->forward[forward > u ? forward : u];
}

/* Gives an op the priority of its block on a PRIORITY lane, where earlier blocks go first: pq_d2h and pq_opt of Sec.
   3.3. */
static void prefer_early(struct build *b, int32_t u)
{
    if (b->choice->priority) ht_op_priority(b->g->schedule, u);
}

/* Appends G_u, the addition to the sum, and after the last micro-batch O_u. */
static void update_on_host(struct build *b, int32_t u, int32_t mb)
{
    struct ht_draft *g = b->g;
    ht_draft_copy(g, ht_draft_fresh_gradient(g, u, mb), HT_DEVICE, HT_HOST, HT_PRODUCE, true);
    prefer_early(b, u);
    if (mb) {
        ht_draft_accumulate(g, g->lanes->host, u, mb);
        prefer_early(b, u);
    }
    if (!last(b, mb)) return;
    ht_draft_step(g, g->lanes->host, u, 1, true);
    prefer_early(b, u);
}

static void backward_pass(struct build *b, int32_t mb)
{
    for (int32_t u = b->g->n_units - 1; u >= 0; u--) {
        b->before[u] = b->compute;
        if (dropped(b, u)) {
            fetch(b, u, mb, true);
            ht_op_after(b->g->schedule, release_of(b, u));
        }
        if (checkpointed(b, u)) ht_draft_recompute(b->g, u, 1, mb, HT_ALL_SUB_OPS);
        b->compute = ht_draft_backward(b->g, u, mb);
        if (on_host(b, u) && (last(b, mb) || offloaded(b, u))) drop(b, u);
        if (on_host(b, u))
            update_on_host(b, u, mb);
        else
            b->compute = ht_draft_update_on_device(b->g, u, mb, b->compute);
    }
    b->compute = ht_draft_update_on_device(b->g, -1, mb, b->compute);
}

static void emit(struct ht_draft *g, const void *context)
{
    const struct choice *choice = context;
    struct build b = {.g = g,
                      .L = (int32_t)g->scenario->model.layers,
                      .choice = choice,
                      .forward = HT_NEW_ARRAY(int32_t, g->n_units),
                      .before = HT_NEW_ARRAY(int32_t, g->n_units)};
    place_residents(&b);
    for (int32_t j = 0; j < g->n_mb; j++) {
        forward_pass(&b, j);
        backward_pass(&b, j);
    }
    free(b.forward);
    free(b.before);
}

enum ht_status autohete_build(const struct ht_system *self, const struct ht_scenario *scenario,
                              const struct ht_plan *plan, struct ht_error *err, struct ht_schedule **out)
{
    int32_t L = (int32_t)scenario->model.layers;
    struct choice x = {.c = (int32_t)ht_plan_get(plan, "c"),
                       .p = (int32_t)ht_plan_get(plan, "p"),
                       .o = (int32_t)ht_plan_get(plan, "o"),
                       .ahead = (int32_t)ht_plan_get(plan, "ahead"),
                       .C = ht_plan_variable(plan, "C"),
                       .P = ht_plan_variable(plan, "P"),
                       .O = ht_plan_variable(plan, "O"),
                       .ends_on_host = ht_plan_get(plan, "e"),
                       .priority = self->variant != AUTOHETE_NOPS};
    enum ht_lane_order order = x.priority ? HT_PRIORITY : HT_FIFO;
    struct ht_program program = {
        .name = self->name, .d2h_order = order, .host_order = order, .emit = emit, .context = &x};
    if (x.c < 0 || x.c > L || x.p < 0 || x.p > x.o || x.o > L || x.ahead < 1)
        return ht_fail(err, HT_BAD_INPUT,
                       "%s: the plan c=%d p=%d o=%d ahead=%d is out of range; expected 0 <= c <= %d, 0 <= p <= o <= "
                       "%d, ahead >= 1",
                       self->name, x.c, x.p, x.o, x.ahead, L, L);
    if ((x.C && x.C->n != x.c) || (x.P && x.P->n != x.p) || (x.O && x.O->n != x.o))
        return ht_fail(err, HT_BAD_INPUT, "%s: c, p or o is not the size of C, P or O", self->name);
    for (int32_t i = 0; x.P && i < x.P->n; i++)
        if (x.O ? !contains(x.O, (int32_t)x.P->values[i]) : x.P->values[i] <= L - x.o)
            return ht_fail(err, HT_BAD_INPUT, "%s: block %d of P is not in O; expected P to be a part of O", self->name,
                           (int)x.P->values[i]);
    return ht_build_graph(scenario, &program, err, out);
}
