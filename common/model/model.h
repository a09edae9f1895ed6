/*
 * A model: a transformer as a list of units, and the sizes of each unit.
 *
 *     unit 0          embedding: token table wte (V, C); GPT also position table wpe (maxT, C); ViT of patches, below
 *     unit 1 .. L     transformer blocks
 *     unit L + 1      head: final norm, logits against the (tied) token table, cross-entropy
 *
 * B is the micro-batch in sequences, T the sequence length in tokens, C the width, H the heads, F the feed-forward
 * width, V the vocabulary. A block is a fixed list of sub-ops (enum ht_sub_op); planners work on blocks or on sub-ops.
 *
 * LLaMA (Touvron et al. 2023) differs only inside the units: RMSNorm (Zhang and Sennrich 2019) instead of LayerNorm,
 * rotary positions (Su et al. 2021) instead of the table, SwiGLU (Shazeer 2020) instead of GELU, no biases, and Hkv
 * heads of keys and values that H / Hkv query heads share (Ainslie et al. 2023). K = Hkv C / H is the width of keys.
 *
 * BERT (Devlin et al. 2018) is an encoder: attention is bidirectional, and norms come after the residual sums. A layer
 * computes h = norm(x + attention(x)), y = norm(h + ffn(h)); x of the first is norm(token + position + type). Units cut this one
 * norm earlier: a block begins with the norm that ends the layer before it (the first block: the embedding), and the
 * head with the last layer's. So each unit passes on a sum that is not yet normalised, a block has GPT's sub-ops and
 * parameters, and only the residuals differ: they come from the norms' outputs.
 *
 *     GPT     proj = x + ..        out = proj + ..        with norm1 = norm(x), norm2 = norm(proj) in both
 *     BERT    proj = norm1 + ..    out = norm2 + ..
 *
 * The head classifies sequences: norm, dense and tanh (the pooler), and dense, of each sequence's first token alone.
 * LayerNorm adds 1e-5 to the variance here (BERT: 1e-12), and GELU has its tanh form, as in Devlin et al.'s code.
 *
 * ViT (Dosovitskiy et al. 2020) is an encoder of images: GPT's block, pre-norm, with bidirectional attention. A square image
 * of S x S pixels in c channels, bytes (c,S,S), is cut into N = (S / p)^2 patches of p x p, row by row; T = N + 1. A pixel is
 * read as (byte - 127.5) / 127.5, so it is in [-1, 1]. The flattened patches (N,P), P = c p^2, are multiplied by one matrix
 * (a convolution whose stride is its kernel), a learned token is put before them, and positions are added:
 *
 *     x[0] = cls + wpe[0]     x[1 + i] = (patch[i] Wp^T + b) + wpe[1 + i]
 *
 * The head is norm and dense of each sequence's first token, without a pooler. Hugging Face's ViT adds 1e-12 to the variance
 * and has the exact GELU; here they are BERT's and GPT's, 1e-5 and the tanh form.
 *
 * DiT (Peebles and Xie, "Scalable Diffusion Models with Transformers", 2022; github.com/facebookresearch/DiT) predicts
 * the noise in an image's latents (c,S,S). It has ViT's patches, without a class token (T = N), and fixed sine and
 * cosine positions, which are no parameters. A sequence's timestep and class become a vector cond (C), on which all
 * norms depend (adaLN-Zero):
 *
 *     cond = Wt2 silu(Wt1 frequencies(timestep)) + table[class]       256 frequencies; one more class for "none"
 *     shift1, scale1, gate1, shift2, scale2, gate2 = Wm silu(cond)    Wm (6C,C), of each block
 *     modulated1 = norm(x) (1 + scale1) + shift1       proj = x + gate1 (attention(modulated1) Wo^T)
 *     modulated2 = norm(proj) (1 + scale2) + shift2    out = proj + gate2 (gelu(modulated2 W1^T) W2^T)
 *
 * Norms have no parameters of their own. norm1 makes the six vectors and keeps them; norm1 and norm2 keep what is
 * modulated. A gate's gradient reads what the gate scales, so proj keeps that beside the residual, and fc2, which
 * keeps nothing in other models, keeps its own. Units pass on (B,T + 1,C): the last row of a sequence is cond, whose
 * gradient is summed on the way back. The head is norm, modulated by two vectors, and dense: (B,T,2 c p^2), noise and
 * variances. Our kernels have no DiT: it is planned and simulated.
 */
#ifndef HT_MODEL_MODEL_H
#define HT_MODEL_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ht_arch { HT_ARCH_GPT, HT_ARCH_LLAMA, HT_ARCH_BERT, HT_ARCH_VIT, HT_ARCH_DIT };
enum { HT_TIMESTEP_FREQUENCIES = 256 }; /* DiT: sines and cosines of a timestep */
enum ht_dtype { HT_F32, HT_F16, HT_BF16 };
enum ht_unit_kind { HT_UNIT_EMBEDDING, HT_UNIT_BLOCK, HT_UNIT_HEAD };

/* The sub-ops of a block, in forward order. The comments name the activation that each keeps for the backward pass;
   after the bar LLaMA's, if it differs from GPT's. DiT's norm1, proj and fc2 keep more: above. */
enum ht_sub_op {
    HT_SUB_NORM1,     /* (B,T,C) normalised input; mean and 1/std (B,T) in FP32 | 1/rms only */
    HT_SUB_QKV,       /* (B,T,3C) | (B,T,C+2K), queries and keys already rotated */
    HT_SUB_ATTENTION, /* (B,T,C) output, and either (B,H,T,T) probabilities or (B,H,T) FP32 log-sum-exp (flash) */
    HT_SUB_PROJ,      /* (B,T,C) input plus projection: the residual stream after attention */
    HT_SUB_NORM2,     /* (B,T,C) and its statistics */
    HT_SUB_FC1,       /* (B,T,F) input of GELU | (B,T,2F) gate, up */
    HT_SUB_GELU,      /* (B,T,F) | silu(gate) up */
    HT_SUB_FC2,       /* nothing kept: its output is the next unit's input */
    HT_N_SUB_OPS,
};
#define HT_ALL_SUB_OPS ((1u << HT_N_SUB_OPS) - 1)
/* Halves of a block. A pass may be two ops, one for each half: forward the attention's first, backward the MLP's. Not
   of DiT, whose halves share the vectors that norm1 makes. A block may be cut elsewhere, too (common/model/halves.h). */
#define HT_ATTENTION_HALF (1u << HT_SUB_NORM1 | 1u << HT_SUB_QKV | 1u << HT_SUB_ATTENTION | 1u << HT_SUB_PROJ)
#define HT_MLP_HALF       (HT_ALL_SUB_OPS & ~HT_ATTENTION_HALF)
const char *ht_sub_op_name(enum ht_sub_op sub); /* "norm1", "qkv", ... */
/* Writes "qkv, attention" into buf, and returns it. */
const char *ht_sub_ops_text(unsigned sub_ops, char *buf, size_t n);

/*
 * Returns what a forward pass or a recomputation of some sub-ops (bits 1 << HT_SUB_...) reads, besides parameters and
 * what it makes itself. Each sub-op reads what its nearest predecessors keep.
 *
 *     norm1 <- input    qkv <- norm1    attention <- qkv    proj <- attention, input
 *     norm2 <- proj     fc1 <- norm2    gelu <- fc1         fc2 <- gelu, proj
 *
 * BERT's residuals: proj <- attention, norm1; fc2 <- gelu, norm2. DiT's vectors: proj, norm2 and fc2 also read norm1.
 *
 * FC2 makes the unit's output and keeps nothing. A recomputation that does not need the output leaves it out. DiT's
 * keeps what gate2 scales, for which it reads gelu alone (ht_arch_gated).
 */
struct ht_sub_op_reads {
    unsigned sub_ops; /* sub-ops whose kept activations are read */
    bool input;       /* the unit's input is read */
};
struct ht_sub_op_reads ht_sub_ops_read(enum ht_arch arch, unsigned sub_ops);
/* Returns what the backward pass of a block, or of one half of it, reads likewise. The norms' gradients need their
   inputs, so the MLP's half reads proj. The attention's half reads of proj only the mask of dropout. Any back reads what the
   last sub-op of its front has made. */
struct ht_sub_op_reads ht_sub_ops_backward_read(bool dropout, unsigned sub_ops);

/* Copies that a program's kernels hold beside the layouts below, by the software profile (common/model/software.h). All
   0: fused kernels, as ours. Of the compute type, those of logits FP32; casts and half logits are of the other type, and
   there are none in FP32. */
struct ht_held {
    int64_t norm, norm_casts;                /* kept by each norm of a block and the head's: (B,T,C) */
    int64_t ffn, ffn_backward;               /* (B,T,F): kept; scratch of a backward pass */
    int64_t scores_forward, scores_backward; /* scratch: (B,H,T,T); none with flash attention */
    bool frees; /* that of a backward pass takes the place of what the MLP has kept, which is freed by then */
    bool by_matrix, outputs; /* of a fresh gradient one matrix; a stage's output until its backward (software.h) */
    int64_t logits, logits_forward, logits_backward;   /* (B,T,V): kept; scratch of the head's passes */
    int64_t half_logits_forward, half_logits_backward; /* scratch */
};

struct ht_model {
    char name[64];
    enum ht_arch arch;
    int64_t layers; /* L */
    int64_t width;  /* C */
    int64_t heads;  /* H; divides C */
    int64_t ffn;    /* F */
    int64_t vocab;  /* V; ViT, DiT: 0 */
    /* Rows of the position table; LLaMA has no table, and this is its longest sequence; ViT, DiT: T, its only one. */
    int64_t max_seq;
    /* LLaMA only; ignored by kernels and sizes of GPT. */
    int64_t kv_heads;               /* Hkv; divides H; 0 stands for H */
    double rope_theta;              /* base of the rotary frequencies */
    double norm_eps;                /* RMSNorm: added to the mean square */
    int64_t classes;                /* BERT, ViT: of the head; DiT: of the images; 0: the head is a language model's */
    int64_t image, patch, channels; /* ViT, DiT: S, p, c; else 0 */
    bool tied;                      /* the head's matrix is the token table */
    bool flash;                     /* attention keeps log-sum-exp instead of the probabilities */
    bool dropout;                   /* keeps one mask byte per element, and the dropped-out probabilities
                        (Korthikanti et al. 2022, Sec. 4.1: 34 BTC + 5 BHTT bytes a block in 16 bit with both) */
    /* Tensor parallelism: the units in this header are then part `part` of `parts`. parts 0 stands for 1. */
    int32_t part, parts;
    /* Sequence parallelism: norms, residuals and dropout are cut into the parts, too, each with B T / parts of the rows
       (Korthikanti et al. 2022, Sec. 4.2.2). */
    bool sequence;
    struct ht_held held;
    char lacks[192]; /* arithmetic that the kernels lack, as an error says it: not to be trained; "": nothing */
};

/* Rounding and storage. In FP32 throughout the compute copy is the master copy (ht_numerics_has_master is false). */
struct ht_numerics {
    enum ht_dtype param;      /* compute copy of parameters, activations, activation gradients */
    enum ht_dtype grad;       /* parameter gradients as stored */
    enum ht_dtype accumulate; /* gradient accumulation over micro-batches */
    enum ht_dtype reduce;     /* across ranks */
};

int64_t ht_dtype_bytes(enum ht_dtype t);
const char *ht_dtype_name(enum ht_dtype t);               /* "f32", "f16", "bf16" */
bool ht_numerics_has_master(const struct ht_numerics *n); /* param is 16-bit, so an FP32 master copy exists */

/* Returns the bytes of optimizer states per parameter: momentum and variance, and the FP32 master copy if there is one.
   12; in FP32 8. */
int64_t ht_optimizer_state_bytes(const struct ht_numerics *n);
/* Returns the bytes of model states per parameter: compute copy, gradient and optimizer states. 16 (Rajbhandari et al.,
   "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC 2020, Sec. 3.1). */
int64_t ht_model_state_bytes(const struct ht_numerics *n);
/* Returns the type of the gradients that the optimizer reads; with several micro-batches a rank these are sums. */
enum ht_dtype ht_stepped_gradient(const struct ht_numerics *n, int64_t micro_batches);

/* clang-format off */
static inline int64_t ht_model_units(const struct ht_model *m) { return m->layers + 2; }
/* Return the number of parts, and of this part: heads, heads of keys, the width of one token's queries (C when whole)
   and of its keys or values (K when whole), columns of the feed-forward network. */
static inline int64_t ht_model_parts(const struct ht_model *m) { return m->parts ? m->parts : 1; }
static inline int64_t ht_model_heads(const struct ht_model *m) { return m->heads / ht_model_parts(m); }
static inline int64_t ht_model_kv_heads(const struct ht_model *m) { return (m->kv_heads ? m->kv_heads : m->heads) / ht_model_parts(m); }
static inline int64_t ht_model_q_width(const struct ht_model *m) { return m->width / m->heads * ht_model_heads(m); }
static inline int64_t ht_model_kv_width(const struct ht_model *m) { return m->width / m->heads * ht_model_kv_heads(m); }
static inline int64_t ht_model_ffn(const struct ht_model *m) { return m->ffn / ht_model_parts(m); }
/* Returns true for a part that has only its rows of norms and residuals; returns how many it has of a unit's B T. */
static inline bool ht_model_cuts_rows(const struct ht_model *m) { return m->sequence && ht_model_parts(m) > 1; }
static inline int64_t ht_model_rows(const struct ht_model *m, int64_t rows) { return ht_model_cuts_rows(m) ? rows / ht_model_parts(m) : rows; }
/* Return what the architecture says: every token sees every token, or those up to itself; norms follow the residual
   sums, or precede the sub-ops; the head classifies sequences; inputs are cut into patches; a conditioning vector
   modulates norms and gates residual sums. */
static inline bool ht_arch_bidirectional(enum ht_arch arch) { return arch == HT_ARCH_BERT || arch == HT_ARCH_VIT || arch == HT_ARCH_DIT; }
static inline bool ht_arch_post_norm(enum ht_arch arch) { return arch == HT_ARCH_BERT; }
static inline bool ht_arch_classifies(enum ht_arch arch) { return arch == HT_ARCH_BERT || arch == HT_ARCH_VIT; }
static inline bool ht_arch_has_patches(enum ht_arch arch) { return arch == HT_ARCH_VIT || arch == HT_ARCH_DIT; }
static inline bool ht_arch_gated(enum ht_arch arch) { return arch == HT_ARCH_DIT; }
/* Returns true if every tensor-parallel part has and computes the whole unit. */
static inline bool ht_arch_repeats(enum ht_arch arch, enum ht_unit_kind kind) { return kind == HT_UNIT_HEAD ? ht_arch_classifies(arch) : kind == HT_UNIT_EMBEDDING && ht_arch_has_patches(arch); }
/* Returns the rows of logits, and so of targets, of a sequence: a classifier's head has one. */
static inline int64_t ht_model_head_rows(const struct ht_model *m, int64_t seq) { return ht_arch_classifies(m->arch) ? 1 : seq; }
/* Return ViT's and DiT's N, and P: the elements of a patch; both 0 in other models. */
static inline int64_t ht_model_patches(const struct ht_model *m) { return m->patch ? (m->image / m->patch) * (m->image / m->patch) : 0; }
static inline int64_t ht_model_patch_width(const struct ht_model *m) { return m->channels * m->patch * m->patch; }
/* Returns the bytes of a sequence's input: T token ids, int32, or an image. Not of DiT, which our kernels lack. */
static inline int64_t ht_model_sample_bytes(const struct ht_model *m, int64_t seq) { return m->image ? m->channels * m->image * m->image : seq * 4; }
/* clang-format on */
int64_t ht_model_first_token(const struct ht_model *m); /* first row of the token table in this part; 0 when whole */
int64_t ht_model_vocab(const struct ht_model *m);       /* number of its rows; V when whole */
int64_t ht_model_outputs(const struct ht_model *m); /* columns of the logits: as many, or the classes; DiT: 2 c p^2 */
enum ht_unit_kind ht_model_unit_kind(const struct ht_model *m, int64_t unit);

/* Returns the parameters (elements) of a unit. The head counts its norm, and its matrix only if it is not tied.
   GPT, BERT and ViT block: 12 C^2 + 13 C when F = 4C; DiT's 18 C^2 + 15 C. LLaMA block: 2 C^2 + 2 C K + 3 C F + 2 C. */
int64_t ht_unit_params(const struct ht_model *m, int64_t unit);
int64_t ht_model_params(const struct ht_model *m);

/* Returns the forward floating-point operations of one unit, or one sub-op, on one micro-batch (a multiply-add is 2).
   Counts only matrix products, and causal attention in full (as Megatron's and the papers' formulas do). A block is 8 B
   T C^2 + 4 B T^2 C + 4 B T C F (LLaMA: 4 B T C (C + K) + 4 B T^2 C + 6 B T C F); the head 2 B T C V, a classifier's
   2 B C (C + classes), without pooler 2 B C classes; the embedding 0, ViT's 2 B N P C. DiT's vectors are made once a
   sequence: 12 B C^2 more a block, 4 B C^2 the head, 2 B C (256 + C) the embedding. Backward is twice this. */
double ht_unit_flops(const struct ht_model *m, int64_t unit, int64_t batch, int64_t seq);
double ht_sub_op_flops(const struct ht_model *m, enum ht_sub_op sub, int64_t batch, int64_t seq);

/*
 * Layout of a unit's buffers. Kernels, builders and planners all use it, so predicted bytes equal measured bytes.
 * Offsets are in bytes from the buffer's start and multiples of 64. A part that a model does not have is {0, 0}.
 * Sub-ops are in forward order, and what one sub-op keeps is contiguous.
 */
struct ht_act_part {
    int64_t offset, bytes; /* bytes is exact; the next part starts at the next multiple of 64 */
};
struct ht_act_layout {
    struct ht_act_part norm1, norm1_stats; /* statistics: (B,T) means, then (B,T) 1/std, FP32; LLaMA: (B,T) 1/rms */
    struct ht_act_part qkv, attention, lse, probs;
    struct ht_act_part dropped, attention_mask; /* with dropout and without flash: (B,H,T,T) each */
    struct ht_act_part proj, proj_mask, norm2, norm2_stats, fc1, gelu, fc2_mask;
    struct ht_act_part modulation;                        /* DiT: (B,6C), the head's (B,2C) */
    struct ht_act_part proj_gated, fc2_gated;             /* DiT: (B,T,C), what gate1 and gate2 scale */
    struct ht_act_part norm1_held, norm2_held, gelu_held; /* copies that our kernels do not make (struct ht_held) */
    struct ht_act_part first, pooled; /* classifier, (B,C) each: the input's first tokens; output of the pooler */
    int64_t bytes;                    /* of the whole layout: the sum over its sub-ops */
};
/* Lays out what some sub-ops of a block keep, one after another. With HT_ALL_SUB_OPS that is what the block keeps; the
   unit's input is not included, since it is a tensor of its own. */
void ht_block_activations(const struct ht_model *m, unsigned sub_ops, int64_t batch, int64_t seq, enum ht_dtype act,
                          struct ht_act_layout *out);
/* Returns the bytes of such a layout. */
int64_t ht_sub_ops_activation_bytes(const struct ht_model *m, unsigned sub_ops, int64_t batch, int64_t seq,
                                    enum ht_dtype act);
/* A block's kept activations, possibly in several buffers: the start of each sub-op's layout. NULL if the sub-op keeps
   nothing, or if a call neither reads nor writes what it keeps. A sub-op's output begins its layout. */
struct ht_block_acts {
    void *of[HT_N_SUB_OPS];
    void *
        handed; /* of a half that hands something beside the residual (common/model/halves.h): the front's output, which its
                     forward copies here; in a backward its gradient, which the back writes and the front reads; else NULL */
};
/* Sets in `acts` the start of each of some sub-ops, whose common layout begins at `at`. */
void ht_block_acts_place(const struct ht_model *m, unsigned sub_ops, int64_t batch, int64_t seq, enum ht_dtype act,
                         void *at, struct ht_block_acts *acts);
/* Lays out what the head keeps: norm1 (the normalised input) and norm1_stats; DiT's also modulation. A classifier keeps
   first, norm1 and, if it has a pooler, pooled, of (B,C) each, and norm1_stats of B rows. */
void ht_head_activations(const struct ht_model *m, int64_t batch, int64_t seq, enum ht_dtype act,
                         struct ht_act_layout *out);
/* Returns the bytes that a unit keeps: embedding 0; block as above; head: normalised input and statistics. */
int64_t ht_unit_activation_bytes(const struct ht_model *m, int64_t unit, int64_t batch, int64_t seq, enum ht_dtype act);
/* Returns the bytes of a unit's input, (B,T,C); DiT's (B,T + 1,C), with the conditioning vector. Unit 0's input is the
   token ids or images, which the data loader holds: 0 bytes. */
int64_t ht_unit_input_bytes(const struct ht_model *m, int64_t unit, int64_t batch, int64_t seq, enum ht_dtype act);
/*
 * Returns the stride between rows of the logits (elements); returns the bytes of the logits (B,T,V), a classifier's
 * (B,classes), DiT's (B,T,2 c p^2), FP32, with the copies that a program keeps of them. The loss
 * replaces them with their own gradient in place. The stride is V rounded up to 128 bytes, a cache line of the GPU, so
 * that each row begins at one, and its gradient in 16 bit, too (ht_cuda_cross_entropy). cuBLAS asks for 16 bytes
 * (NVIDIA, cuBLAS Library, "Tensor Core Usage"). The padding behind a row's V elements is never written, and no result
 * depends on it.
 */
int64_t ht_logits_stride(const struct ht_model *m);
int64_t ht_logits_bytes(const struct ht_model *m, int64_t batch, int64_t seq);
/* Returns the bytes of scratch that a unit's forward or backward needs beside its tensors; it is freed when the op
   ends. In a block's forward only attention needs it, so a recomputation without attention needs none. */
int64_t ht_unit_workspace_bytes(const struct ht_model *m, int64_t unit, int64_t batch, int64_t seq, enum ht_dtype act,
                                bool backward);

/*
 * Layout of a workspace. Attention goes over tiles of HT_ATTENTION_ROWS query rows by T keys, FP32. Each worker that
 * takes part owns one tile ("slot"). At most HT_ATTENTION_MAX_WORKERS take part, so the workspace does not depend on
 * the number of threads.
 */
enum { HT_ATTENTION_ROWS = 64, HT_ATTENTION_MAX_WORKERS = 32 };
/* Returns min(B Hkv, HT_ATTENTION_MAX_WORKERS). One worker computes all query heads that share keys, in order, so that
   the sum over them is never split. */
int64_t ht_attention_slots(const struct ht_model *m, int64_t batch);
struct ht_workspace_layout {
    struct ht_act_part wide; /* block backward: gradient of fc1, later of qkv, in their shapes */
    struct ht_act_part
        narrow; /* backward: gradient of a norm's output (B,T,C), and of what DiT's gates scale; classifier: (B,C) */
    struct ht_act_part pooled;    /* classifier backward: gradient of the pooler's output, later of `first` (B,C) */
    struct ht_act_part attention; /* block backward: gradient of the attention's output (B,T,C) */
    struct ht_act_part scores;    /* block with flash, and in 16 bit its forward: one tile per slot */
    struct ht_act_part dscores;   /* block backward: one tile per slot */
    struct ht_act_part dkv;       /* block backward in 16 bit: sums of a head's dk and dv, (T,2,C/H) per slot, FP32 */
    struct ht_act_part row_loss;  /* head forward: (B,T) losses, double; classifier: (B) */
    /* Head forward in tensor-parallel parts: (B,T,2) log-sum-exp and logit of the target, FP32, of this part and then
       of each. */
    struct ht_act_part part_rows;
    struct ht_act_part rows_of_tokens; /* embedding backward in 16 bit: first (V) and next (B,T), int32 */
    struct ht_act_part patches;        /* ViT's and DiT's embedding: (B,T,P), zeros for the class token's rows */
    struct ht_act_part timestep;    /* DiT's embedding: (B,256 + 2C), frequencies, hidden layer, its gradient or silu */
    struct ht_act_part dmodulation; /* DiT's backward: (B,6C), the head's (B,2C), FP32 sums over a sequence's tokens */
    struct ht_act_part held;        /* copies that our kernels do not make (struct ht_held) */
    struct ht_act_part rows;        /* parts that cut rows: (B,T,C), gathered or to be added up */
    struct ht_act_part own;         /* backward: the part's rows of a sum */
    int64_t tile_bytes, dkv_bytes;  /* of one slot */
    int64_t bytes;                  /* of the whole workspace */
};
void ht_unit_workspace(const struct ht_model *m, int64_t unit, int64_t batch, int64_t seq, enum ht_dtype act,
                       bool backward, struct ht_workspace_layout *out);
/* Lay out, and return the bytes of, the workspace of a block's pass over some sub-ops. A backward pass is over all of
   them or over one half. */
void ht_block_workspace(const struct ht_model *m, unsigned sub_ops, int64_t batch, int64_t seq, enum ht_dtype act,
                        bool backward, struct ht_workspace_layout *out);
int64_t ht_block_workspace_bytes(const struct ht_model *m, unsigned sub_ops, int64_t batch, int64_t seq,
                                 enum ht_dtype act, bool backward);

/* Cuts that tensor parallelism makes through a matrix (out, in) or a vector (1, out). */
enum ht_split {
    HT_SPLIT_NONE,     /* every part has all of it */
    HT_SPLIT_OUT,      /* by outputs: rows of a matrix, columns of a vector */
    HT_SPLIT_OUT_OF_3, /* by outputs of each of three consecutive matrices or vectors: query, key and value */
    HT_SPLIT_IN,       /* by inputs: columns of a matrix */
    HT_SPLIT_TOKENS,   /* by rows of the token table */
};

/* A parameter of a unit, by name, as a range of its flat buffer. Gradients, momentum and variance have the same
   layout. */
struct ht_param_part {
    const char *name;   /* Hugging Face style: "wte", "attn.c_attn.weight", ... */
    int64_t offset;     /* elements */
    int64_t rows, cols; /* a vector has rows = 1 */
    enum ht_split split;
};
enum { HT_MAX_PARAM_PARTS = 16 };
/* Returns the number of parts. Weights are (out, in) row-major, as PyTorch's Linear. */
int ht_unit_param_parts(const struct ht_model *m, int64_t unit, struct ht_param_part parts[HT_MAX_PARAM_PARTS]);

/*
 * Tensor parallelism (Shoeybi et al., "Megatron-LM: Training Multi-Billion Parameter Language Models Using Model
 * Parallelism", 2019, Sec. 3). Part q of n of a model is a model whose units are part q of the whole's:
 *
 *     query, key, value, fc1 (gate and up)    by outputs, with biases: H / n heads, Hkv / n of keys, F / n columns
 *     projection, fc2                         by inputs: the same heads and columns
 *     token table, untied head                by rows: ceil(V / n) tokens, the last part fewer
 *     norms, other biases, positions          every part has all of them
 *
 * So each part computes its own heads and columns from the same (B,T,C) input, and the parts' contributions to the
 * (B,T,C) output are summed. Norms and biases that every part has get the same gradient in each. So do whole units that
 * every part has: the head of a classifier, which is small, and ViT's embedding. DiT is not cut.
 *
 * With sequence parallelism (`sequence`) a part has rows q B T / n to (q + 1) B T / n of units' inputs, of norms, of what
 * the projection keeps, and of dropout's masks. They are gathered before a product that is cut by outputs, and what a
 * product that is cut by inputs makes is reduce-scattered: as much traffic as the all-reduces. A backward gathers the
 * norms' outputs again. The norms' gradients are of a part's own rows and are added up.
 */
struct ht_model ht_model_part(const struct ht_model *m, int32_t part, int32_t parts);
/* Checks that a model can be cut into n parts: n divides heads, heads of keys and F, and leaves each part a token.
   Returns NULL, or the dimension that n does not divide, for a sentence: "12 heads". */
const char *ht_model_cannot_part(const struct ht_model *m, int32_t parts, char *buf, size_t n);

/* Elements of a part that are adjacent both in the part's flat buffer and in the whole unit's. */
struct ht_part_run {
    int64_t at, whole; /* index of the first of them in the part's unit, and in the whole one */
    int64_t count;
    bool shared; /* every part has them */
};
/* Returns the run from element `at` of a part's unit to its end. A whole model's unit is one run. */
struct ht_part_run ht_unit_part_run(const struct ht_model *part, int64_t unit, int64_t at);
/* Returns the run from the part's first element at or behind `whole` of the whole unit; count 0 if no such element exists. */
struct ht_part_run ht_unit_part_find(const struct ht_model *part, int64_t unit, int64_t whole);

#endif
