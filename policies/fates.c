#include "policies/fates.h"

#include "common/draft/draft_extra.h"

#include <assert.h>

unsigned ht_part_sub_ops(const struct ht_model *m, int part)
{
    return part == HT_SUB_GELU && ht_arch_gated(m->arch) ? 1u << part | 1u << HT_SUB_FC2 : 1u << part;
}

double ht_part_bytes(const struct ht_scenario *sc, int part)
{
    const struct ht_model *m = &sc->model;
    enum ht_dtype act = sc->numerics.param;
    if (part == HT_PART_INPUT) return (double)ht_unit_input_bytes(m, 1, sc->micro_batch, sc->seq, act);
    return (double)ht_sub_ops_activation_bytes(m, ht_part_sub_ops(m, part), sc->micro_batch, sc->seq, act);
}

const char *const ht_part_names[HT_N_PARTS] = {
    [HT_SUB_NORM1] = "norm1", [HT_SUB_QKV] = "qkv", [HT_SUB_ATTENTION] = "attention", [HT_SUB_PROJ] = "proj",
    [HT_SUB_NORM2] = "norm2", [HT_SUB_FC1] = "fc1", [HT_SUB_GELU] = "gelu",           [HT_PART_INPUT] = "input",
};

enum ht_fate ht_fate_of(const struct ht_fates *f, int32_t unit, int part)
{
    return (enum ht_fate)f->of[part]->values[unit - 1];
}

unsigned ht_fates_sub_ops(const struct ht_fates *f, int32_t unit, enum ht_fate fate)
{
    const struct ht_model *m = &f->g->scenario->model;
    unsigned with[HT_N_FATES] = {0};
    for (int s = 0; s < HT_N_SUB_OPS; s++)
        if (s != HT_SUB_FC2) with[ht_fate_of(f, unit, s)] |= ht_part_sub_ops(m, s);
    if (ht_arch_gated(m->arch)) return with[fate];
    int home = HT_FATE_KEPT; /* of fc2: with others that are not recomputed, else alone */
    unsigned others = f->halves ? HT_MLP_HALF : HT_ALL_SUB_OPS;
    for (int k = 0; k < HT_N_FATES && !(with[home] & others); k++)
        if (k != HT_FATE_RECOMPUTED && with[k] & others) home = k;
    with[home] |= 1u << HT_SUB_FC2;
    return with[fate];
}

/* Lists the masks of the rows into which sub-ops of one fate are cut. Returns their number. */
static int32_t cut(const struct ht_fates *f, unsigned sub_ops, unsigned masks[HT_MAX_FATE_ROWS])
{
    const unsigned proj = 1u << HT_SUB_PROJ, halves[] = {HT_ATTENTION_HALF & ~proj, proj, HT_MLP_HALF};
    int32_t n = 0;
    if (!f->halves && sub_ops) masks[n++] = sub_ops;
    for (int i = 0; i < 3 && f->halves; i++)
        if (sub_ops & halves[i]) masks[n++] = sub_ops & halves[i];
    return n;
}

void ht_fates_init(struct ht_fates *f, struct ht_draft *g, const struct ht_plan *plan)
{
    *f = (struct ht_fates){.g = g, .halves = ht_plan_get(plan, "halves")};
    for (int part = 0; part < HT_N_PARTS; part++) f->of[part] = ht_plan_variable(plan, ht_part_names[part]);
    f->ahead = ht_plan_variable(plan, "ahead");
    for (int32_t u = 1; u < g->n_units - 1; u++)
        for (int32_t j = 0; j < g->n_mb; j++) {
            unsigned parts[HT_N_FATES * HT_MAX_FATE_ROWS];
            int32_t n = 0;
            for (int k = 0; k < HT_N_FATES; k++) n += cut(f, ht_fates_sub_ops(f, u, (enum ht_fate)k), parts + n);
            ht_draft_cut(g, u, j, parts, n);
        }
}

int32_t ht_fates_rows(const struct ht_fates *f, int32_t unit, int32_t mb, enum ht_fate fate,
                      int32_t rows[HT_MAX_FATE_ROWS])
{
    unsigned masks[HT_MAX_FATE_ROWS];
    int32_t n = 0, at = ht_draft_at(f->g, unit, mb), n_masks = cut(f, ht_fates_sub_ops(f, unit, fate), masks);
    if (ht_fate_of(f, unit, HT_PART_INPUT) == fate) rows[n++] = f->g->x[at];
    for (int32_t i = 0; i < n_masks; i++) rows[n++] = f->g->a[at][__builtin_ctz(masks[i])];
    return n;
}

static int32_t swapped_rows(const struct ht_fates *f, int32_t unit, int32_t mb, int32_t rows[2 * HT_MAX_FATE_ROWS])
{
    int32_t n = ht_fates_rows(f, unit, mb, HT_FATE_MAIN, rows);
    return n + ht_fates_rows(f, unit, mb, HT_FATE_SSD, rows + n);
}

void ht_fates_name(const struct ht_draft *g, const char *letters, int32_t unit, int32_t mb)
{
    if (g->n_mb > 1)
        ht_op_name(g->schedule, "%s%d.%d", letters, unit, mb);
    else
        ht_op_name(g->schedule, "%s%d", letters, unit);
}

void ht_fates_out(const struct ht_fates *f, int32_t unit, int32_t mb)
{
    int32_t rows[2 * HT_MAX_FATE_ROWS], n = swapped_rows(f, unit, mb, rows);
    if (n == 0) return;
    ht_draft_copy_rows(f->g, rows, n, HT_DEVICE, HT_HOST, HT_PRODUCE, true);
    ht_fates_name(f->g, "AO", unit, mb);
    ht_fates_write(f, unit, mb);
}

/* Appends AW or AR. Returns its id, or -1 if nothing goes to the SSDs. */
static int32_t copy_on_ssd(const struct ht_fates *f, int32_t unit, int32_t mb, bool write)
{
    int32_t rows[HT_MAX_FATE_ROWS], n = ht_fates_rows(f, unit, mb, HT_FATE_SSD, rows);
    enum ht_tier from = write ? HT_HOST : HT_DISK, to = write ? HT_DISK : HT_HOST;
    if (n == 0) return -1;
    int32_t op = ht_draft_copy_rows(f->g, rows, n, from, to, HT_PRODUCE, true);
    ht_fates_name(f->g, write ? "AW" : "AR", unit, mb);
    return op;
}

int32_t ht_fates_write(const struct ht_fates *f, int32_t unit, int32_t mb)
{
    return copy_on_ssd(f, unit, mb, true);
}

int32_t ht_fates_read(const struct ht_fates *f, int32_t unit, int32_t mb)
{
    return copy_on_ssd(f, unit, mb, false);
}

int32_t ht_fates_in(const struct ht_fates *f, int32_t unit, int32_t mb)
{
    int32_t rows[2 * HT_MAX_FATE_ROWS], n = swapped_rows(f, unit, mb, rows);
    if (n == 0) return -1;
    int32_t op = ht_draft_copy_rows(f->g, rows, n, HT_HOST, HT_DEVICE, HT_PRODUCE, true);
    ht_fates_name(f->g, "AI", unit, mb);
    return op;
}

/* Appends by `append` what may come with turn `now`, `early` turns before AI, from turn *next on. */
static void come(const struct ht_fates *f, int32_t mb, int32_t now, int32_t early, const int32_t *computed,
                 int32_t *next, int32_t (*append)(const struct ht_fates *f, int32_t unit, int32_t mb))
{
    int32_t n_units = f->g->n_units, end = ht_turns(n_units) - 1; /* the embedding swaps nothing */
    for (; *next < end; ++*next) {
        int32_t u = ht_turn(n_units, *next).unit, first = *next - (int32_t)f->ahead->values[u - 1] - early;
        if (first > now) return;
        if (append(f, u, mb) >= 0 && first >= n_units) ht_op_after(f->g->schedule, computed[first - 1]);
    }
}

void ht_fates_fetch(struct ht_fates *f, int32_t mb, int32_t now, const int32_t *computed)
{
    assert(f->ahead);
    if (now < f->g->n_units) f->next_read = f->next_in = f->g->n_units;
    come(f, mb, now, 1, computed, &f->next_read, ht_fates_read);
    come(f, mb, now, 0, computed, &f->next_in, ht_fates_in);
}
