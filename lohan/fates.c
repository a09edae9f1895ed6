/*
 * Which activations LoHan and its ablations swap, and where to, for a given MEM_avail (Sec. IV-D): by Algorithm 1, or by
 * the fixed choice of LoHan+DS and of the authors' program. Forced elements replace what these say.
 *
 * Placement. "The main memory is first used for storing parameters that are prefetched from SSDs, and model states that
 * are used for optimizer execution, while the rest of the main memory is used for accommodating activations" (Sec.
 * IV-D). Which activations go to the SSDs is unstated. Here it is those of the first blocks, which are needed last.
 *
 * The authors' program (lohan_artifact) has no Algorithm 1. It swaps two checkpoints a block, its input and the residual
 * after attention, and then outputs of products until a hand-set share `swap_ratio` of the forward time is filled with
 * copies. README.md says what of that program is not expressed.
 */
#include "lohan/planner.h"

#include "common/base/array.h"

#include <math.h>

void lohan_set_inputs_alone(struct lohan_planner *q, enum ht_fate fate)
{
    for (int part = 0; part < HT_N_PARTS; part++)
        for (int32_t i = 0; i < q->blocks; i++) q->fates[part][i] = part == HT_PART_INPUT ? fate : HT_FATE_RECOMPUTED;
    for (int k = 0; k < LOHAN_N_REPEATED; k++)
        for (int32_t i = 0; i < q->blocks; i++) q->again[k][i] = LOHAN_NOT_AGAIN;
}

/* Swaps a prefix of the layers to main memory. Inputs that are not in it stay on the GPU. */
static void set_prefix(struct lohan_planner *q, int32_t n)
{
    lohan_set_inputs_alone(q, HT_FATE_KEPT);
    for (int32_t i = 0; i < n; i++) q->fates[q->layers[i].part][q->layers[i].unit - 1] = HT_FATE_MAIN;
}

/* Fills the room that is left with outputs of one kind of layer, from the first block on. A part of HT_N_SUB_OPS + k is
   the own copy of repeated sub-op k. */
static double fill_with(struct lohan_planner *q, int part, double bytes, double left)
{
    bool own = part >= HT_N_SUB_OPS;
    for (int32_t i = 0; i < q->blocks; i++) {
        bool fits = bytes <= left;
        if (own) q->again[part - HT_N_SUB_OPS][i] = fits ? LOHAN_OWN_COPY : LOHAN_AGAIN;
        if (!own && fits) q->fates[part][i] = HT_FATE_MAIN;
        if (fits) left -= bytes;
    }
    return left;
}

/* Sets the fates of the authors' program: swaps two checkpoints a block, then the outputs of fc2, proj, qkv and fc1,
   kind by kind, as long as copies take less than their share of the forward time. Recomputes all others and repeats fc2
   and proj. */
static void set_artifact(struct lohan_planner *q)
{
    static const int kinds[] = {HT_N_SUB_OPS, HT_N_SUB_OPS + 1, HT_SUB_QKV, HT_SUB_FC1};
    const struct lohan_profile *p = &q->profile;
    double share = (double)q->swap_ratio / HT_PPB, each[HT_N_PARTS] = {0};
    double left = q->timed ? share * p->forward_flops / p->flops_per_s * p->link_bytes_per_s : 0;
    lohan_set_inputs_alone(q, HT_FATE_MAIN);
    for (int32_t i = 0; i < q->blocks; i++) q->fates[HT_SUB_PROJ][i] = HT_FATE_MAIN;
    for (int32_t i = 0; i < q->n; i++) each[q->layers[i].part] = q->layers[i].bytes;
    left -= (each[HT_PART_INPUT] + each[HT_SUB_PROJ]) * q->blocks;
    for (size_t k = 0; k < HT_COUNT(kinds); k++)
        left = fill_with(q, kinds[k], each[kinds[k] < HT_N_SUB_OPS ? kinds[k] : HT_PART_INPUT], left);
}

/* Moves activations of the first blocks to the SSDs until at least these bytes are there. */
static void place_on_ssd(struct lohan_planner *q, double bytes)
{
    for (int32_t u = 1; u <= q->blocks && bytes > 0; u++)
        for (int32_t i = 0; i < q->n && bytes > 0; i++) {
            const struct lohan_layer *x = &q->layers[i];
            if (x->unit != u || q->fates[x->part][u - 1] != HT_FATE_MAIN) continue;
            q->fates[x->part][u - 1] = HT_FATE_SSD;
            bytes -= x->bytes;
        }
}

static void force(struct lohan_planner *q, const char *name, int64_t *values)
{
    const struct ht_variable *v = ht_setting_variable(q->settings, name);
    for (int32_t i = 0; v && i < q->blocks; i++) values[i] = v->values[i];
}

/* Returns true if the recomputation of a block, or of a half of it, repeats sub-op k of lohan_repeated for nothing: if
   there is one, and no part of it needs the sub-op. */
static bool repeats(const struct lohan_planner *q, int k, int32_t block)
{
    unsigned half = lohan_repeated[k] == HT_SUB_FC2 ? HT_MLP_HALF : HT_ATTENTION_HALF, recomputed = 0;
    for (int part = 0; part < HT_PART_INPUT; part++)
        if (q->fates[part][block] == HT_FATE_RECOMPUTED) recomputed |= ht_part_sub_ops(&q->scenario->model, part);
    if (q->halves) recomputed &= half;
    return recomputed && !(recomputed >> lohan_repeated[k] & 1) && q->again[k][block] == LOHAN_AGAIN;
}

/* Adds what recomputations repeat, and own copies that are swapped. */
static void add_repeated(struct lohan_planner *q)
{
    double input = q->profile.inter_bytes / q->blocks;
    for (int k = 0; k < LOHAN_N_REPEATED; k++)
        for (int32_t i = 0; i < q->blocks; i++) {
            if (repeats(q, k, i)) q->recomputed_flops += q->again_flops[k];
            if (q->again[k][i] == LOHAN_OWN_COPY) q->swapped_bytes += (int64_t)input;
        }
}

/* Replaces fates that are forced, and adds up what results. */
static void force_fates(struct lohan_planner *q)
{
    q->swapped_bytes = q->ssd_bytes = 0;
    q->recomputed_flops = 0;
    for (int part = 0; part < HT_N_PARTS; part++) force(q, ht_part_names[part], q->fates[part]);
    for (int k = 0; k < LOHAN_N_REPEATED; k++) force(q, lohan_repeated_names[k], q->again[k]);
    for (int32_t i = 0; i < q->n; i++) {
        const struct lohan_layer *x = &q->layers[i];
        int64_t fate = q->fates[x->part][x->unit - 1];
        if (fate == HT_FATE_MAIN || fate == HT_FATE_SSD) q->swapped_bytes += (int64_t)x->bytes;
        if (fate == HT_FATE_SSD) q->ssd_bytes += (int64_t)x->bytes;
        if (fate == HT_FATE_RECOMPUTED) q->recomputed_flops += x->flops;
    }
    add_repeated(q);
}

/* Returns how many layers the planner swaps: by Algorithm 1, or the most that are no more than a forced A_G2M. */
static int32_t layers_to_swap(struct lohan_planner *q)
{
    int64_t forced = ht_setting(q->settings, "A_G2M", -1);
    enum lohan_form form = ht_setting(q->settings, "literal", 0) ? LOHAN_LITERAL
                           : q->shortest                         ? LOHAN_SHORTEST
                                                                 : LOHAN_MENDED;
    double most = lohan_is(q, LOHAN_CPUACT) ? q->profile.mem_bytes / q->profile.gpus : q->most_bytes, bytes = 0;
    int32_t n = 0;
    if (q->timed) q->amount = lohan_algorithm1(&q->profile, q->layers, q->n, form, most);
    if (forced < 0) return q->amount.n;
    while (n < q->n && bytes + q->layers[n].bytes <= (double)forced) bytes += q->layers[n++].bytes;
    return n;
}

/* Sets the fates of LoHan+DS: swaps the blocks' inputs to main memory, and repeats fc2 as checkpointing does. */
static void set_ds(struct lohan_planner *q)
{
    lohan_set_inputs_alone(q, HT_FATE_MAIN);
    for (int32_t i = 0; i < q->blocks; i++) q->again[0][i] = LOHAN_AGAIN;
}

/* Swaps each block's residual after attention with its input. */
static void checkpoint_proj(struct lohan_planner *q)
{
    int64_t *proj = q->fates[HT_SUB_PROJ];
    for (int32_t i = 0; i < q->blocks; i++)
        if (proj[i] == HT_FATE_RECOMPUTED) proj[i] = q->fates[HT_PART_INPUT][i];
}

void lohan_choose(struct lohan_planner *q)
{
    double ssd = 0;
    if (lohan_is(q, LOHAN_DS))
        set_ds(q);
    else if (lohan_is(q, LOHAN_ARTIFACT))
        set_artifact(q);
    else
        set_prefix(q, layers_to_swap(q));
    force_fates(q);
    q->prefix_bytes = q->swapped_bytes;
    if (q->checkpoints_proj) {
        checkpoint_proj(q);
        force_fates(q);
    }
    if (!lohan_is(q, LOHAN_DS) && !lohan_is(q, LOHAN_ARTIFACT) && !lohan_is(q, LOHAN_CPUACT))
        ssd = lohan_ssd_bytes(&q->profile, (double)q->swapped_bytes) / q->profile.gpus;
    if (ht_setting_variable(q->settings, "alpha"))
        ssd = (double)ht_setting(q->settings, "alpha", 0) / HT_PPB * (double)q->swapped_bytes;
    place_on_ssd(q, (double)ht_setting(q->settings, "A_ssd", (int64_t)ceil(ssd)));
    force_fates(q);
}
