/*
 * Active gradient offloading (Sec. IV-C): what happens to gradients in main memory. For a group i of units, in falling
 * order:
 *
 *     R_i   SSD to main memory: P32, OS32           SR
 *     C_i   Adam on the CPU, makes P16, frees G16   O
 *     W_i   main memory to SSD: P32, OS32, P16      SW
 *
 *     naive (LOHAN_SERIAL)          optimized: W_i overlaps with C_{i-1}
 *       ssd  R3    W3 R2    W2 ..     ssd  R3 R2 W3 R1 W2    W1
 *       cpu     C3       C2           cpu     C3 C2 ..   C1
 *
 * R_i waits for the gradients of its group, on several GPUs for all of theirs, but not for their sum. In the optimized
 * order W_i waits for R_{i-1}, and R_{i-2} for W_i: there are two buffers of states. Updates are synchronous: the next
 * iteration reads P16 behind W (an edge by effects).
 *
 * A group is one unit, or with `group` as many units as have that many parameters (the authors' program: 7e8).
 * With after_backward (LoHan+ZeRO, Sec. V-D) no R begins before the last gradient has come, nor, where gradients are
 * summed, before the last sum. Gradients wait in main memory or, if they do not fit there, on the SSDs [ours].
 *
 * On the disk lane all of this comes after the reads that the GPU waits for (schedule.c).
 */
#include "lohan/lohan.h"

#include "common/base/array.h"

#include <stdlib.h>

void lohan_optimizer_init(struct lohan_optimizer *o, struct ht_draft *g, const struct ht_plan *plan)
{
    *o = (struct lohan_optimizer){.g = g,
                                  .order = ht_plan_get(plan, "serial") ? LOHAN_SERIAL : LOHAN_OPTIMIZED,
                                  .after_backward = ht_plan_get(plan, "after"),
                                  .grads_on_ssd = ht_plan_get(plan, "g_ssd"),
                                  .group = ht_plan_get(plan, "group"),
                                  .high = -1,
                                  .pending_high = -1,
                                  .read = -1,
                                  .written = -1};
    o->lows = HT_NEW_ARRAY(int32_t, g->n_units);
    o->highs = HT_NEW_ARRAY(int32_t, g->n_units);
}

/* Lists the states of units low to high: P32 and OS32, and with p16 the 16-bit parameters. Returns their number. */
static int32_t states(const struct ht_draft *g, int32_t low, int32_t high, bool p16, int32_t *rows)
{
    int32_t n = 0;
    for (int32_t u = low; u <= high; u++) n += ht_draft_state_rows(g, u, p16, rows + n);
    return n;
}

static void name(struct ht_draft *g, const char *letters, int32_t unit)
{
    ht_op_name(g->schedule, "%s%d", letters, unit);
    ht_op_priority(g->schedule, LOHAN_UPDATES);
}

/* Appends the way of a group's gradients to the SSDs, all at once: they may be checked together before
   (common/draft/control.h). */
static void write_gradients(struct lohan_optimizer *o, int32_t low, int32_t high)
{
    struct ht_draft *g = o->g;
    ht_draft_copy_rows(g, g->grad + low, high - low + 1, HT_HOST, HT_DISK, HT_PRODUCE, true);
    name(g, "GW", low);
}

static void read_gradients(struct lohan_optimizer *o, int32_t low, int32_t high)
{
    struct ht_draft *g = o->g;
    ht_draft_copy_rows(g, g->grad + low, high - low + 1, HT_DISK, HT_HOST, HT_PRODUCE, true);
    name(g, "GR", low);
}

/* Appends W of a group. */
static void write(struct lohan_optimizer *o, int32_t low, int32_t high, int32_t *rows)
{
    int32_t n = states(o->g, low, high, true, rows);
    ht_draft_copy_rows(o->g, rows, n, HT_HOST, HT_DISK, HT_UPDATE, true);
    name(o->g, "SW", low);
    o->written = o->g->schedule->n_ops - 1;
}

/* Makes the last op wait for gradients. */
static void after(struct ht_draft *g, const int32_t *arrived, int32_t n)
{
    for (int32_t k = 0; k < n; k++) ht_op_after(g->schedule, arrived[k]);
}

/* Appends R and C of a group, and the W that is due. */
static void update(struct lohan_optimizer *o, int32_t low, int32_t high, const int32_t *arrived, int32_t n_arrived)
{
    struct ht_draft *g = o->g;
    int32_t *rows = HT_NEW_ARRAY(int32_t, 4 * g->n_units), n = states(g, low, high, false, rows);
    if (o->grads_on_ssd) {
        read_gradients(o, low, high);
        after(g, arrived, n_arrived);
        ht_op_after(g->schedule, o->written);
    }
    o->read = ht_draft_copy_rows(g, rows, n, HT_DISK, HT_HOST, HT_PRODUCE, false);
    name(g, "SR", low);
    after(g, arrived, n_arrived);
    ht_op_after(g->schedule, o->written);
    if (o->pending_high >= o->pending_low && o->pending_high >= 0) {
        write(o, o->pending_low, o->pending_high, rows);
        ht_op_after(g->schedule, o->read);
    }
    ht_draft_step(g, g->lanes->host, low, high - low + 1, true);
    if (o->order == LOHAN_SERIAL)
        write(o, low, high, rows);
    else
        o->pending_low = low, o->pending_high = high;
    free(rows);
}

/* Closes the group of the units that have arrived. */
static int32_t close_group(struct lohan_optimizer *o, const int32_t *arrived, int32_t n)
{
    int32_t low = o->low, high = o->high;
    o->high = -1;
    o->waiting = 0;
    if (o->after_backward) {
        if (o->grads_on_ssd) write_gradients(o, low, high);
        o->lows[o->n_groups] = low;
        o->highs[o->n_groups++] = high;
        return -1;
    }
    update(o, low, high, arrived, n);
    return o->order == LOHAN_SERIAL ? o->written : -1;
}

int32_t lohan_optimizer_cut(struct lohan_optimizer *o)
{
    int32_t last = o->g->schedule->n_ops - 1;
    return o->high < 0 ? -1 : close_group(o, &last, 1);
}

int32_t lohan_optimizer_take(struct lohan_optimizer *o, int32_t unit, const int32_t *arrived, int32_t n)
{
    if (o->high < 0) o->high = unit;
    o->low = unit;
    o->waiting += ht_unit_params(&o->g->scenario->model, unit);
    o->arrived = arrived;
    o->n_arrived = n;
    return o->waiting >= o->group ? close_group(o, arrived, n) : -1;
}

void lohan_optimizer_end(struct lohan_optimizer *o)
{
    int32_t arrived = o->g->schedule->n_ops - 1, *rows = HT_NEW_ARRAY(int32_t, 4 * o->g->n_units);
    if (o->high >= 0) close_group(o, o->arrived, o->n_arrived);
    for (int32_t i = 0; i < o->n_groups; i++) update(o, o->lows[i], o->highs[i], &arrived, 1);
    if (o->pending_high >= 0) write(o, o->pending_low, o->pending_high, rows);
    free(rows);
    free(o->lows);
    free(o->highs);
}
