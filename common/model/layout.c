/*
 * Sizes, offsets and FLOPs of units. Only this file knows how many bytes an activation or a workspace takes (params.c:
 * parameters). Planners and simulators add these up and kernels lay out their buffers by them, so the two agree to the byte.
 *
 * The activation count of a GPT block, in elements of (B,T,C) unless said otherwise, F = 4C:
 *
 *     sub-op       kept                            16-bit bytes
 *     (input)      1    the unit's input            2 BTC   a tensor of its own, not in the block's layout
 *     norm1        1    + statistics                2 BTC
 *     qkv          3                                6 BTC
 *     attention    1    + probabilities             2 BTC + 2 BHTT
 *       dropout         mask, dropped-out           BHTT + 2 BHTT
 *     proj         1                                2 BTC
 *       dropout         mask                        BTC
 *     norm2        1    + statistics                2 BTC
 *     fc1          4                                8 BTC
 *     gelu         4                                8 BTC
 *     fc2          0                                0
 *       dropout         mask                        BTC
 *                                             sum: 34 BTC + 5 BHTT
 *
 * which is equation (1) of Korthikanti et al. 2022, "Reducing activation recomputation in large transformer models".
 * A LLaMA block keeps C + 2 K instead of 3 C of qkv, 2 F of fc1 (gate and up), and half of the norms' statistics. Flash
 * attention keeps nothing of B*H*T*T, not even its dropout mask, which is drawn again. A DiT block keeps 6 C a sequence
 * with norm1, and (B,T,C) more with proj and with fc2. Kernels that are not fused hold further copies (struct ht_held).
 * tests/common/model/test_layout.c checks the sizes by hand.
 */
#include "common/model/halves.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

int64_t ht_dtype_bytes(enum ht_dtype t)
{
    return t == HT_F32 ? 4 : 2;
}

const char *ht_dtype_name(enum ht_dtype t)
{
    static const char *const names[] = {[HT_F32] = "f32", [HT_F16] = "f16", [HT_BF16] = "bf16"};
    return names[t];
}

bool ht_numerics_has_master(const struct ht_numerics *n)
{
    return n->param != HT_F32;
}

int64_t ht_optimizer_state_bytes(const struct ht_numerics *n)
{
    return ht_numerics_has_master(n) ? 12 : 8;
}

int64_t ht_model_state_bytes(const struct ht_numerics *n)
{
    return ht_dtype_bytes(n->param) + ht_dtype_bytes(n->grad) + ht_optimizer_state_bytes(n);
}

enum ht_dtype ht_stepped_gradient(const struct ht_numerics *n, int64_t micro_batches)
{
    return micro_batches > 1 ? n->accumulate : n->grad;
}

const char *ht_sub_op_name(enum ht_sub_op sub)
{
    static const char *const names[] = {
        [HT_SUB_NORM1] = "norm1", [HT_SUB_QKV] = "qkv", [HT_SUB_ATTENTION] = "attention", [HT_SUB_PROJ] = "proj",
        [HT_SUB_NORM2] = "norm2", [HT_SUB_FC1] = "fc1", [HT_SUB_GELU] = "gelu",           [HT_SUB_FC2] = "fc2"};
    return names[sub];
}

const char *ht_sub_ops_text(unsigned sub_ops, char *buf, size_t n)
{
    size_t used = 0;
    buf[0] = 0;
    for (int s = 0; s < HT_N_SUB_OPS && used < n; s++)
        if (sub_ops >> s & 1)
            used += (size_t)snprintf(buf + used, n - used, "%s%s", used ? ", " : "", ht_sub_op_name((enum ht_sub_op)s));
    return buf;
}

struct ht_sub_op_reads ht_sub_ops_read(enum ht_arch arch, unsigned sub_ops)
{
    static const struct ht_sub_op_reads pre_norm[HT_N_SUB_OPS] = {
        [HT_SUB_NORM1] = {.input = true},
        [HT_SUB_QKV] = {.sub_ops = 1u << HT_SUB_NORM1},
        [HT_SUB_ATTENTION] = {.sub_ops = 1u << HT_SUB_QKV},
        [HT_SUB_PROJ] = {.sub_ops = 1u << HT_SUB_ATTENTION, .input = true},
        [HT_SUB_NORM2] = {.sub_ops = 1u << HT_SUB_PROJ},
        [HT_SUB_FC1] = {.sub_ops = 1u << HT_SUB_NORM2},
        [HT_SUB_GELU] = {.sub_ops = 1u << HT_SUB_FC1},
        [HT_SUB_FC2] = {.sub_ops = 1u << HT_SUB_GELU | 1u << HT_SUB_PROJ},
    };
    static const struct ht_sub_op_reads post_norm[HT_N_SUB_OPS] = {
        [HT_SUB_NORM1] = {.input = true},
        [HT_SUB_QKV] = {.sub_ops = 1u << HT_SUB_NORM1},
        [HT_SUB_ATTENTION] = {.sub_ops = 1u << HT_SUB_QKV},
        [HT_SUB_PROJ] = {.sub_ops = 1u << HT_SUB_ATTENTION | 1u << HT_SUB_NORM1},
        [HT_SUB_NORM2] = {.sub_ops = 1u << HT_SUB_PROJ},
        [HT_SUB_FC1] = {.sub_ops = 1u << HT_SUB_NORM2},
        [HT_SUB_GELU] = {.sub_ops = 1u << HT_SUB_FC1},
        [HT_SUB_FC2] = {.sub_ops = 1u << HT_SUB_GELU | 1u << HT_SUB_NORM2},
    };
    const struct ht_sub_op_reads *of = ht_arch_post_norm(arch) ? post_norm : pre_norm;
    unsigned modulated = 1u << HT_SUB_PROJ | 1u << HT_SUB_NORM2 | 1u << HT_SUB_FC2;
    struct ht_sub_op_reads all = {0};
    for (int s = 0; s < HT_N_SUB_OPS; s++)
        if (sub_ops >> s & 1) {
            all.sub_ops |= of[s].sub_ops;
            all.input |= of[s].input;
        }
    if (ht_arch_gated(arch) && sub_ops & modulated) all.sub_ops |= 1u << HT_SUB_NORM1;
    all.sub_ops &= ~sub_ops;
    return all;
}

struct ht_sub_op_reads ht_sub_ops_backward_read(bool dropout, unsigned sub_ops)
{
    unsigned proj = 1u << HT_SUB_PROJ;
    struct ht_sub_op_reads reads = {.sub_ops = sub_ops & ~proj, .input = sub_ops >> HT_SUB_NORM1 & 1};
    if (sub_ops >> HT_SUB_NORM2 & 1) reads.sub_ops |= proj;
    if (dropout) reads.sub_ops |= sub_ops & proj;
    if (ht_is_back(sub_ops)) reads.sub_ops |= ht_handed(sub_ops);
    return reads;
}

enum ht_unit_kind ht_model_unit_kind(const struct ht_model *m, int64_t unit)
{
    assert(unit >= 0 && unit < ht_model_units(m));
    if (unit == 0) return HT_UNIT_EMBEDDING;
    return unit <= m->layers ? HT_UNIT_BLOCK : HT_UNIT_HEAD;
}

/* ---- FLOPs ---- */

/* Returns the operations that make so many vectors of the conditioning one; 0 if the model has none. */
static double ht_modulation_flops(const struct ht_model *m, int vectors, int64_t batch)
{
    return ht_arch_gated(m->arch) ? 2.0 * vectors * (double)batch * (double)m->width * (double)m->width : 0;
}

double ht_sub_op_flops(const struct ht_model *m, enum ht_sub_op sub, int64_t batch, int64_t seq)
{
    double BT = (double)batch * (double)seq, T = (double)seq, C = (double)m->width, F = (double)ht_model_ffn(m);
    double Q = (double)ht_model_q_width(m), K = (double)ht_model_kv_width(m);
    switch (sub) {
    case HT_SUB_NORM1:
        return ht_modulation_flops(m, 6, batch);
    case HT_SUB_QKV:
        return 2 * BT * C * (Q + 2 * K);
    case HT_SUB_ATTENTION: /* query by key, and probabilities by value */
        return 4 * BT * T * Q;
    case HT_SUB_PROJ:
        return 2 * BT * Q * C;
    case HT_SUB_FC1: /* Llama: gate and up */
        return (m->arch == HT_ARCH_LLAMA ? 4 : 2) * BT * C * F;
    case HT_SUB_FC2:
        return 2 * BT * C * F;
    default:
        return 0;
    }
}

double ht_unit_flops(const struct ht_model *m, int64_t unit, int64_t batch, int64_t seq)
{
    double flops = 0, B = (double)batch, C = (double)m->width;
    switch (ht_model_unit_kind(m, unit)) {
    case HT_UNIT_EMBEDDING:
        flops = 2 * B * (double)ht_model_patches(m) * (double)ht_model_patch_width(m) * C;
        if (m->arch == HT_ARCH_DIT) flops += 2 * B * C * (HT_TIMESTEP_FREQUENCIES + C);
        break;
    case HT_UNIT_BLOCK:
        for (int s = 0; s < HT_N_SUB_OPS; s++) flops += ht_sub_op_flops(m, (enum ht_sub_op)s, batch, seq);
        break;
    case HT_UNIT_HEAD:
        flops = 2 * B * (double)ht_model_head_rows(m, seq) * C * (double)ht_model_outputs(m);
        if (m->arch == HT_ARCH_BERT) flops += 2 * B * C * C; /* the pooler */
        flops += ht_modulation_flops(m, 2, batch);
        break;
    }
    return flops;
}

/* ---- activations ---- */

static int64_t align64(int64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* Appends a part of `bytes`; a part of 0 bytes keeps offset 0, so that no code uses it as a position. */
static void add_act(struct ht_act_layout *l, struct ht_act_part *part, int64_t bytes)
{
    if (bytes == 0) return;
    *part = (struct ht_act_part){.offset = l->bytes, .bytes = bytes};
    l->bytes += align64(bytes);
}

static int64_t qkv_width(const struct ht_model *m)
{
    return ht_model_q_width(m) + 2 * ht_model_kv_width(m);
}

/* Returns the bytes of mean and 1/std of every row, FP32; RMS norm (LLaMA) has no mean. */
static int64_t norm_stats_bytes(const struct ht_model *m, int64_t BT)
{
    return (m->arch == HT_ARCH_LLAMA ? 1 : 2) * BT * 4;
}

/* Returns the bytes of copies of `elements`, of which some are in the other of the compute type and FP32. */
static int64_t held_bytes(int64_t elements, int64_t e, int64_t copies, int64_t casts)
{
    return elements * (copies * e + (e < 4 ? casts * 4 : 0));
}

/* Adds so many vectors of each sequence, of which there are none but in DiT. */
static void add_modulation(const struct ht_model *m, int vectors, int64_t batch, int64_t e, struct ht_act_layout *l)
{
    if (ht_arch_gated(m->arch)) add_act(l, &l->modulation, vectors * batch * m->width * e);
}

/* Adds what a gate scales, which only DiT has. */
static void add_gated(const struct ht_model *m, int64_t bytes, struct ht_act_part *part, struct ht_act_layout *l)
{
    if (ht_arch_gated(m->arch)) add_act(l, part, bytes);
}

/* Adds what norm1 keeps of so many rows, without the modulation. */
static void add_norm1(const struct ht_model *m, int64_t rows, int64_t e, struct ht_act_layout *l)
{
    int64_t elements = rows * m->width;
    add_act(l, &l->norm1, elements * e);
    add_act(l, &l->norm1_stats, norm_stats_bytes(m, rows));
    add_act(l, &l->norm1_held, held_bytes(elements, e, m->held.norm, m->held.norm_casts));
}

/* Adds what `sub` keeps. A block's layout calls this for every sub-op in order, so the sums cannot disagree. */
static void add_sub_op(const struct ht_model *m, enum ht_sub_op sub, int64_t batch, int64_t seq, int64_t e,
                       struct ht_act_layout *l)
{
    int64_t BT = batch * seq, rows = ht_model_rows(m, BT), BTC = rows * m->width, BTF = BT * ht_model_ffn(m);
    int64_t BHT = BT * ht_model_heads(m), BHTT = BHT * seq;
    switch (sub) {
    case HT_SUB_NORM1:
        add_norm1(m, rows, e, l);
        add_modulation(m, 6, batch, e, l);
        break;
    case HT_SUB_QKV:
        add_act(l, &l->qkv, BT * qkv_width(m) * e);
        break;
    case HT_SUB_ATTENTION:
        add_act(l, &l->attention, BT * ht_model_q_width(m) * e);
        if (m->flash) {
            add_act(l, &l->lse, BHT * 4);
            break;
        }
        add_act(l, &l->probs, BHTT * e);
        if (m->dropout) {
            add_act(l, &l->dropped, BHTT * e);
            add_act(l, &l->attention_mask, BHTT);
        }
        break;
    case HT_SUB_PROJ:
        add_act(l, &l->proj, BTC * e);
        add_gated(m, BTC * e, &l->proj_gated, l);
        if (m->dropout) add_act(l, &l->proj_mask, BTC);
        break;
    case HT_SUB_NORM2:
        add_act(l, &l->norm2, BTC * e);
        add_act(l, &l->norm2_stats, norm_stats_bytes(m, rows));
        add_act(l, &l->norm2_held, held_bytes(BTC, e, m->held.norm, m->held.norm_casts));
        break;
    case HT_SUB_FC1: /* Llama: gate and up side by side */
        add_act(l, &l->fc1, (m->arch == HT_ARCH_LLAMA ? 2 : 1) * BTF * e);
        break;
    case HT_SUB_GELU:
        add_act(l, &l->gelu, BTF * e);
        add_act(l, &l->gelu_held, held_bytes(BTF, e, m->held.ffn, 0));
        break;
    case HT_SUB_FC2:
        add_gated(m, BTC * e, &l->fc2_gated, l);
        if (m->dropout) add_act(l, &l->fc2_mask, BTC);
        break;
    case HT_N_SUB_OPS:
        break;
    }
}

void ht_block_activations(const struct ht_model *m, unsigned sub_ops, int64_t batch, int64_t seq, enum ht_dtype act,
                          struct ht_act_layout *out)
{
    memset(out, 0, sizeof(*out));
    for (int s = 0; s < HT_N_SUB_OPS; s++)
        if (sub_ops >> s & 1) add_sub_op(m, (enum ht_sub_op)s, batch, seq, ht_dtype_bytes(act), out);
}

void ht_block_acts_place(const struct ht_model *m, unsigned sub_ops, int64_t batch, int64_t seq, enum ht_dtype act,
                         void *at, struct ht_block_acts *acts)
{
    struct ht_act_layout l = {0};
    for (int s = 0; s < HT_N_SUB_OPS; s++) {
        int64_t begin = l.bytes;
        if (sub_ops >> s & 1) add_sub_op(m, (enum ht_sub_op)s, batch, seq, ht_dtype_bytes(act), &l);
        if (l.bytes > begin) acts->of[s] = (char *)at + begin;
    }
}

void ht_head_activations(const struct ht_model *m, int64_t batch, int64_t seq, enum ht_dtype act,
                         struct ht_act_layout *out)
{
    int64_t e = ht_dtype_bytes(act);
    memset(out, 0, sizeof(*out));
    if (ht_arch_classifies(m->arch)) add_act(out, &out->first, batch * m->width * e);
    add_norm1(m, ht_arch_classifies(m->arch) ? batch : ht_model_rows(m, batch * seq), e, out);
    add_modulation(m, 2, batch, e, out);
    if (m->arch == HT_ARCH_BERT) add_act(out, &out->pooled, batch * m->width * e);
}

int64_t ht_sub_ops_activation_bytes(const struct ht_model *m, unsigned sub_ops, int64_t batch, int64_t seq,
                                    enum ht_dtype act)
{
    struct ht_act_layout l;
    ht_block_activations(m, sub_ops, batch, seq, act, &l);
    return l.bytes;
}

int64_t ht_unit_activation_bytes(const struct ht_model *m, int64_t unit, int64_t batch, int64_t seq, enum ht_dtype act)
{
    struct ht_act_layout l = {0};
    switch (ht_model_unit_kind(m, unit)) {
    case HT_UNIT_EMBEDDING:
        break;
    case HT_UNIT_BLOCK:
        ht_block_activations(m, HT_ALL_SUB_OPS, batch, seq, act, &l);
        break;
    case HT_UNIT_HEAD:
        ht_head_activations(m, batch, seq, act, &l);
        break;
    }
    return l.bytes;
}

int64_t ht_unit_input_bytes(const struct ht_model *m, int64_t unit, int64_t batch, int64_t seq, enum ht_dtype act)
{
    if (ht_model_unit_kind(m, unit) == HT_UNIT_EMBEDDING) return 0;
    return ht_model_rows(m, batch * (seq + ht_arch_gated(m->arch))) * m->width * ht_dtype_bytes(act);
}

int64_t ht_logits_stride(const struct ht_model *m)
{
    int64_t line = 128 / ht_dtype_bytes(HT_F32); /* elements */
    return (ht_model_outputs(m) + line - 1) / line * line;
}

int64_t ht_logits_bytes(const struct ht_model *m, int64_t batch, int64_t seq)
{
    return (1 + m->held.logits) * batch * ht_model_head_rows(m, seq) * ht_logits_stride(m) * ht_dtype_bytes(HT_F32);
}

/* ---- workspace ---- */

int64_t ht_attention_slots(const struct ht_model *m, int64_t batch)
{
    int64_t groups = batch * ht_model_kv_heads(m);
    return groups < HT_ATTENTION_MAX_WORKERS ? groups : HT_ATTENTION_MAX_WORKERS;
}

/* Return the bytes of a pass' scratch that our kernels do not need. A block's backward pass has that of attention or
   that of the feed-forward network, not both at a time. Where what the MLP has kept is freed before attention begins,
   attention's scratch comes in its place. */
static int64_t held_by_block(const struct ht_model *m, unsigned sub_ops, int64_t batch, int64_t seq, enum ht_dtype act,
                             bool backward)
{
    const struct ht_held *h = &m->held;
    int64_t BT = batch * seq, e = ht_dtype_bytes(act);
    bool scored = sub_ops >> HT_SUB_ATTENTION & 1 && !m->flash;
    int64_t scores = scored ? BT * ht_model_heads(m) * seq * e : 0;
    if (!backward) return h->scores_forward * scores;
    int64_t ffn = sub_ops >> HT_SUB_GELU & 1 ? h->ffn_backward * BT * ht_model_ffn(m) * e : 0;
    scores *= h->scores_backward;
    if (h->frees) scores -= ht_sub_ops_activation_bytes(m, sub_ops & HT_MLP_HALF, batch, seq, act);
    return scores > ffn ? scores : ffn;
}

static int64_t held_by_head(const struct ht_model *m, int64_t batch, int64_t seq, int64_t e, bool backward)
{
    const struct ht_held *h = &m->held;
    int64_t logits = batch * ht_model_head_rows(m, seq) * ht_logits_stride(m), half = e < 4 ? e : 0;
    if (backward) return logits * (h->logits_backward * 4 + h->half_logits_backward * half);
    return logits * (h->logits_forward * 4 + h->half_logits_forward * half);
}

/* Returns the bytes of a slot's tile, or of its sums of dk and dv. */
static int64_t tile_bytes(int64_t seq)
{
    return align64(HT_ATTENTION_ROWS * seq * 4);
}
static int64_t dkv_bytes(const struct ht_model *m, int64_t seq)
{
    return align64(2 * seq * (m->width / m->heads) * 4);
}

/* Adds what a part that cuts rows needs beside them. */
static void add_rows(const struct ht_model *m, int64_t BT, int64_t e, bool backward, struct ht_act_layout *l,
                     struct ht_workspace_layout *out)
{
    add_act(l, &out->rows, BT * m->width * e);
    if (backward) add_act(l, &out->own, ht_model_rows(m, BT) * m->width * e);
}

void ht_block_workspace(const struct ht_model *m, unsigned sub_ops, int64_t batch, int64_t seq, enum ht_dtype act,
                        bool backward, struct ht_workspace_layout *out)
{
    int64_t e = ht_dtype_bytes(act), BT = batch * seq, slots = ht_attention_slots(m, batch);
    unsigned products = 1u << HT_SUB_QKV | 1u << HT_SUB_PROJ | 1u << HT_SUB_FC1 | 1u << HT_SUB_FC2;
    bool attends = sub_ops >> HT_SUB_ATTENTION & 1;
    bool feeds = sub_ops & (1u << HT_SUB_FC1 | 1u << HT_SUB_GELU | 1u << HT_SUB_FC2);
    bool dattention = sub_ops & (1u << HT_SUB_ATTENTION | 1u << HT_SUB_PROJ);
    int64_t fc1 = feeds ? (m->arch == HT_ARCH_LLAMA ? 2 : 1) * ht_model_ffn(m) : 0;
    int64_t qkv = attends || sub_ops >> HT_SUB_QKV & 1 ? qkv_width(m) : 0;
    struct ht_act_layout l = {0}; /* borrowed for its running sum */
    *out = (struct ht_workspace_layout){.tile_bytes = tile_bytes(seq), .dkv_bytes = dkv_bytes(m, seq)};
    if (backward) {
        add_act(&l, &out->wide, BT * (fc1 > qkv ? fc1 : qkv) * e);
        add_act(&l, &out->narrow, BT * m->width * e);
        if (dattention) add_act(&l, &out->attention, BT * ht_model_q_width(m) * e);
        if (ht_arch_gated(m->arch)) add_act(&l, &out->dmodulation, batch * 6 * m->width * 4);
    }
    if (attends) {
        /* Kept probabilities of FP32 are written in place; 16-bit ones are kept rounded. Sums of dk and dv likewise. */
        if (m->flash || (act != HT_F32 && !backward)) add_act(&l, &out->scores, slots * out->tile_bytes);
        if (backward) add_act(&l, &out->dscores, slots * out->tile_bytes);
        if (backward && act != HT_F32) add_act(&l, &out->dkv, slots * out->dkv_bytes);
    }
    add_act(&l, &out->held, held_by_block(m, sub_ops, batch, seq, act, backward));
    if (ht_model_cuts_rows(m) && sub_ops & products) add_rows(m, BT, e, backward, &l, out);
    out->bytes = l.bytes;
}

int64_t ht_block_workspace_bytes(const struct ht_model *m, unsigned sub_ops, int64_t batch, int64_t seq,
                                 enum ht_dtype act, bool backward)
{
    struct ht_workspace_layout w;
    ht_block_workspace(m, sub_ops, batch, seq, act, backward, &w);
    return w.bytes;
}

void ht_unit_workspace(const struct ht_model *m, int64_t unit, int64_t batch, int64_t seq, enum ht_dtype act,
                       bool backward, struct ht_workspace_layout *out)
{
    int64_t e = ht_dtype_bytes(act), BT = batch * seq, C = m->width;
    struct ht_act_layout l = {0}; /* borrowed for its running sum */
    *out = (struct ht_workspace_layout){.tile_bytes = tile_bytes(seq), .dkv_bytes = dkv_bytes(m, seq)};
    switch (ht_model_unit_kind(m, unit)) {
    case HT_UNIT_EMBEDDING:
        if (m->arch == HT_ARCH_DIT) add_act(&l, &out->timestep, batch * (HT_TIMESTEP_FREQUENCIES + 2 * C) * e);
        if (ht_arch_has_patches(m->arch))
            add_act(&l, &out->patches, BT * ht_model_patch_width(m) * e);
        else if (backward && act != HT_F32)
            add_act(&l, &out->rows_of_tokens, (ht_model_vocab(m) + BT) * 4);
        if (ht_model_cuts_rows(m) && (backward || !ht_arch_has_patches(m->arch)))
            add_act(&l, &out->rows, BT * C * e); /* patches are made where they belong */
        break;
    case HT_UNIT_BLOCK:
        ht_block_workspace(m, HT_ALL_SUB_OPS, batch, seq, act, backward, out);
        return;
    case HT_UNIT_HEAD:
        if (backward)
            add_act(&l, &out->narrow, batch * ht_model_head_rows(m, seq) * C * e);
        else
            add_act(&l, &out->row_loss, batch * ht_model_head_rows(m, seq) * 8);
        if (backward && m->arch == HT_ARCH_BERT) add_act(&l, &out->pooled, batch * C * e);
        if (backward && ht_arch_gated(m->arch)) add_act(&l, &out->dmodulation, batch * 2 * C * 4);
        if (!backward && ht_model_parts(m) > 1 && !ht_arch_classifies(m->arch))
            add_act(&l, &out->part_rows, (1 + ht_model_parts(m)) * BT * 2 * 4);
        add_act(&l, &out->held, held_by_head(m, batch, seq, e, backward));
        if (ht_model_cuts_rows(m) && !ht_arch_classifies(m->arch)) add_rows(m, BT, e, backward, &l, out);
        if (ht_model_cuts_rows(m) && ht_arch_classifies(m->arch) && !backward) add_rows(m, BT, e, false, &l, out);
        break;
    }
    out->bytes = l.bytes;
}

int64_t ht_unit_workspace_bytes(const struct ht_model *m, int64_t unit, int64_t batch, int64_t seq, enum ht_dtype act,
                                bool backward)
{
    struct ht_workspace_layout w;
    ht_unit_workspace(m, unit, batch, seq, act, backward, &w);
    return w.bytes;
}
