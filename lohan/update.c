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
                                  .closed = HT_NEW_ARRAY(struct lohan_group, g->n_units),
                                  .written = -1};
}

static void name(struct ht_draft *g, const char *letters, int32_t unit)
{
    ht_draft_name(g, letters, unit, -1);
    ht_op_priority(g->schedule, LOHAN_UPDATES);
}

/* Appends the way of a group's gradients to the SSDs or back, all at once: they may be checked together before
   (common/draft/control.h). */
static void move_gradients(struct lohan_optimizer *o, struct lohan_group x, bool write)
{
    enum ht_tier from = write ? HT_HOST : HT_DISK, to = write ? HT_DISK : HT_HOST;
    ht_draft_copy_rows(o->g, o->g->grad + x.low, x.n, from, to, HT_PRODUCE, true);
    name(o->g, write ? "GW" : "GR", x.low);
}

/* Appends W of a group: P32, OS32 and the 16-bit parameters. */
static void write(struct lohan_optimizer *o, struct lohan_group x)
{
    o->written = ht_draft_copy_states(o->g, x.low, x.n, true, HT_HOST, HT_DISK, HT_UPDATE, true);
    name(o->g, "SW", x.low);
}

/* Makes the last op wait for gradients. */
static void after(struct ht_draft *g, const int32_t *arrived, int32_t n)
{
    for (int32_t k = 0; k < n; k++) ht_op_after(g->schedule, arrived[k]);
}

/* Appends R and C of a group, and the W that is due. */
static void update(struct lohan_optimizer *o, struct lohan_group x, const int32_t *arrived, int32_t n_arrived)
{
    struct ht_draft *g = o->g;
    if (o->grads_on_ssd) {
        move_gradients(o, x, false);
        after(g, arrived, n_arrived);
        ht_op_after(g->schedule, o->written);
    }
    int32_t read = ht_draft_copy_states(g, x.low, x.n, false, HT_DISK, HT_HOST, HT_PRODUCE, false);
    name(g, "SR", x.low);
    after(g, arrived, n_arrived);
    ht_op_after(g->schedule, o->written);
    if (o->unwritten.n) {
        write(o, o->unwritten);
        ht_op_after(g->schedule, read);
    }
    ht_draft_step(g, g->lanes->host, x.low, x.n, true);
    if (o->order == LOHAN_SERIAL)
        write(o, x);
    else
        o->unwritten = x;
}

/* Closes the group of the units that have arrived. */
static int32_t close_group(struct lohan_optimizer *o, const int32_t *arrived, int32_t n)
{
    struct lohan_group x = o->open;
    o->open.n = 0;
    o->waiting = 0;
    if (o->after_backward) {
        if (o->grads_on_ssd) move_gradients(o, x, true);
        o->closed[o->n_closed++] = x;
        return -1;
    }
    update(o, x, arrived, n);
    return o->order == LOHAN_SERIAL ? o->written : -1;
}

int32_t lohan_optimizer_cut(struct lohan_optimizer *o)
{
    int32_t last = o->g->schedule->n_ops - 1;
    return o->open.n ? close_group(o, &last, 1) : -1;
}

int32_t lohan_optimizer_take(struct lohan_optimizer *o, int32_t unit, const int32_t *arrived, int32_t n)
{
    o->open = (struct lohan_group){unit, o->open.n + 1};
    o->waiting += ht_unit_params(&o->g->scenario->model, unit);
    o->arrived = arrived;
    o->n_arrived = n;
    return o->waiting >= o->group ? close_group(o, arrived, n) : -1;
}

void lohan_optimizer_end(struct lohan_optimizer *o)
{
    int32_t arrived = o->g->schedule->n_ops - 1;
    if (o->open.n) close_group(o, o->arrived, o->n_arrived);
    for (int32_t i = 0; i < o->n_closed; i++) update(o, o->closed[i], &arrived, 1);
    if (o->unwritten.n) write(o, o->unwritten);
    free(o->closed);
}
