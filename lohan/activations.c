/* A block's activations in LoHan's schedule: the rows that are swapped, and those that come back later than others. */
#include "lohan/lohan.h"

#include "common/base/array.h"

/* Returns the rows of a block's own copies. */
static int32_t *own_copies(const struct lohan_activations *a, int32_t unit, int32_t mb)
{
    return a->own + ((int64_t)(unit - 1) * a->g->n_mb + mb) * LOHAN_N_REPEATED;
}

static void add_own_copies(struct lohan_activations *a, int32_t unit, int32_t mb)
{
    const struct ht_scenario *sc = a->g->scenario;
    ht_draft_turn_to(a->g, mb);
    for (int k = 0; k < LOHAN_N_REPEATED; k++) {
        struct ht_tensor t = {.class = HT_STAGING, .label = ht_draft_label(a->g, unit, mb), .rank = a->g->rank};
        if (!a->again[k] || a->again[k]->values[unit - 1] != LOHAN_OWN_COPY) continue;
        t.label.sub_ops = 1u << lohan_repeated[k];
        t.bytes = ht_unit_input_bytes(&sc->model, unit, sc->micro_batch, sc->seq, sc->numerics.param);
        own_copies(a, unit, mb)[k] = ht_add_tensor(a->g->schedule, t);
    }
}

void lohan_activations_init(struct lohan_activations *a, struct ht_draft *g, const struct ht_plan *plan)
{
    a->g = g;
    a->own = ht_alloc_ids((int64_t)g->n_units * g->n_mb * LOHAN_N_REPEATED);
    ht_fates_init(&a->fates, g, plan);
    for (int k = 0; k < LOHAN_N_REPEATED; k++) a->again[k] = ht_plan_variable(plan, lohan_repeated_names[k]);
    for (int32_t u = 1; u < g->n_units - 1; u++)
        for (int32_t j = 0; j < g->own_mb; j++) add_own_copies(a, u, j);
}

void lohan_on_own_copies(struct lohan_activations *a, int32_t unit, int32_t mb, unsigned sub_ops, unsigned flags)
{
    const int32_t *own = own_copies(a, unit, mb);
    for (int k = 0; k < LOHAN_N_REPEATED; k++)
        if (own[k] >= 0 && sub_ops >> lohan_repeated[k] & 1) ht_op_effect(a->g->schedule, own[k], HT_DEVICE, flags);
}

unsigned lohan_recomputed(const struct lohan_activations *a, int32_t unit)
{
    bool block = unit > 0 && unit < a->g->n_units - 1;
    return block ? ht_fates_sub_ops(&a->fates, unit, HT_FATE_RECOMPUTED) : 0;
}

/* Returns true if only the attention's half of the backward pass needs a row, and after the MLP's: where proj is
   recomputed, that half's activations are needed first. */
static bool comes_later(const struct lohan_activations *a, int32_t unit, int32_t row)
{
    const struct ht_tensor *t = &a->g->schedule->tensors[row];
    unsigned proj = 1u << HT_SUB_PROJ;
    if (!a->fates.halves || lohan_recomputed(a, unit) & proj) return false;
    if (t->class == HT_ACTIVATION) return t->label.sub_ops & HT_ATTENTION_HALF & ~proj;
    return t->class == HT_CHECKPOINT || t->label.sub_ops == proj; /* the input; an own copy */
}

/* Lists all rows that a block swaps, those that go to the SSDs last. Returns their number. */
static int32_t all_swapped(const struct lohan_activations *a, int32_t unit, int32_t mb, int32_t rows[LOHAN_MAX_SWAPPED])
{
    int32_t n = ht_fates_rows(&a->fates, unit, mb, HT_FATE_MAIN, rows);
    for (int k = 0; k < LOHAN_N_REPEATED; k++)
        if (own_copies(a, unit, mb)[k] >= 0) rows[n++] = own_copies(a, unit, mb)[k];
    return n + ht_fates_rows(&a->fates, unit, mb, HT_FATE_SSD, rows + n);
}

int32_t lohan_swapped_rows(const struct lohan_activations *a, int32_t unit, int32_t mb, bool later,
                           int32_t rows[LOHAN_MAX_SWAPPED])
{
    int32_t n = 0, all = all_swapped(a, unit, mb, rows);
    for (int32_t i = 0; i < all; i++)
        if (comes_later(a, unit, rows[i]) == later) rows[n++] = rows[i];
    return n;
}

void lohan_swap_out(struct lohan_activations *a, int32_t unit, int32_t mb)
{
    int32_t rows[LOHAN_MAX_SWAPPED], n = all_swapped(a, unit, mb, rows);
    if (n == 0) return;
    ht_draft_copy_rows(a->g, rows, n, HT_DEVICE, HT_HOST, HT_PRODUCE, true);
    ht_fates_name(a->g, "AO", unit, mb);
    if (ht_fates_write(&a->fates, unit, mb) >= 0) ht_op_priority(a->g->schedule, LOHAN_ACTIVATIONS_OUT);
}
