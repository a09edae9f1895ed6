/* Checks every formula against arithmetic done by hand. The roof of most cases: 1 TFLOP/s, 100 GB/s, 1 us a kernel. */
#include "common/profile/formula.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>

static const struct ht_roof roof = {.flops_per_s = 1e12, .bytes_per_s = 1e11, .launch_s = 1e-6};

static struct ht_software fused, eager, megatron;

static void load_software(void)
{
    ck_assert(!ht_software_load("fused", NULL, &fused));
    ck_assert(!ht_software_load("eager", NULL, &eager));
    ck_assert(!ht_software_load("megatron", NULL, &megatron));
}

#define NEAR(a, b) ck_assert_double_eq_tol(a, b, 1e-12 * fabs(b))

static struct ht_work block(int64_t batch, int64_t seq, int64_t width, int64_t heads)
{
    return (struct ht_work){.kind = HT_OP_FORWARD,
                            .where = HT_LANE_COMPUTE,
                            .unit = HT_UNIT_BLOCK,
                            .n_units = 1,
                            .sub_ops = HT_ALL_SUB_OPS,
                            .batch = batch,
                            .seq = seq,
                            .width = width,
                            .heads = heads,
                            .ffn = 4 * width,
                            .vocab = 1000,
                            .tied = true,
                            .dtype = HT_BF16,
                            .grad_dtype = HT_BF16,
                            .tp = 1,
                            .ranks = 1};
}

START_TEST(gemm)
{
    /* 2 x 1000^3 / 1e12 = 2 ms against 3 x 1e6 x 2 bytes / 1e11 = 60 us: compute bound */
    NEAR(ht_gemm_s(&roof, 1, 1000, 1000, 1000, 2, 2), 2.001e-3);
    /* one row: 2e6 / 1e12 = 2 us against (1000 + 1e6 + 1000) x 2 / 1e11 = 20.04 us: memory bound */
    NEAR(ht_gemm_s(&roof, 1, 1, 1000, 1000, 2, 2), 21.04e-6);
    /* 10 products in one kernel: ten times the work, one launch */
    NEAR(ht_gemm_s(&roof, 10, 1000, 1000, 1000, 2, 2), 20.001e-3);
    /* wider results: (1e6 + 1e6) x 2 + 1e6 x 4 = 8e6 bytes, still below 2 ms */
    NEAR(ht_gemm_s(&roof, 1, 1000, 1000, 1000, 2, 4), 2.001e-3);
}
END_TEST

START_TEST(stream)
{
    NEAR(ht_stream_s(&roof, 1e8), 1.001e-3); /* 1e8 / 1e11 = 1 ms, and a launch */
}
END_TEST

/* B=2, T=512, C=1024, H=8: N = 1024, D = 128, F = 4096; e = 2, N C e = 2 MiB = 2097152, B H T T = 4194304 */
START_TEST(block_by_hand)
{
    struct ht_work w = block(2, 512, 1024, 8);
    double launch = 1e-6, NCe = 2097152, P = 4194304, flops = 1e12, bw = 1e11;
    double GiF = 1024.0 * 1024 * 1024;
    w.sub_ops = 1u << HT_SUB_NORM1;
    NEAR(ht_forward_s(&roof, &fused, &w), launch + 2 * NCe / bw);
    NEAR(ht_backward_s(&roof, &fused, &w), launch + 4 * NCe / bw);
    /* qkv: 2 x 1024 x 3072 x 1024 = 6 GiFLOP = 6.4 ms; its bytes (1 + 3 + 3) x 2 MiB = 0.15 ms do not count */
    w.sub_ops = 1u << HT_SUB_QKV;
    NEAR(ht_forward_s(&roof, &fused, &w), launch + 6 * GiF / flops);
    NEAR(ht_backward_s(&roof, &fused, &w), 2 * (launch + 6 * GiF / flops) + launch + 3 * NCe / bw);
    /* attention: 16 products (512, 512, 128): 2 x 16 x 512 x 512 x 128 = 1 GiFLOP = 1.07 ms each against
       16 x (2 x 512 x 128 + 512 x 512) x 2 bytes = 12.6 MB = 0.126 ms; softmax reads and writes P */
    w.sub_ops = 1u << HT_SUB_ATTENTION;
    NEAR(ht_forward_s(&roof, &fused, &w), 2 * (launch + GiF / flops) + launch + 2 * P * 2 / bw);
    NEAR(ht_backward_s(&roof, &fused, &w), 4 * (launch + GiF / flops) + launch + 3 * P * 2 / bw);
    w.dropout = true; /* P read and written once more, and a byte of mask */
    NEAR(ht_forward_s(&roof, &fused, &w), 2 * (launch + GiF / flops) + launch + 2 * P * 2 / bw + launch + 5 * P / bw);
    w.dropout = false;
    w.flash = true; /* one kernel, no P */
    NEAR(ht_forward_s(&roof, &fused, &w), launch + 2 * GiF / flops);
    NEAR(ht_backward_s(&roof, &fused, &w), launch + 5 * GiF / flops);
    w.flash = false;
    w.sub_ops = 1u << HT_SUB_PROJ; /* 2 GiFLOP, and the residual */
    NEAR(ht_forward_s(&roof, &fused, &w), launch + 2 * GiF / flops + launch + 3 * NCe / bw);
    w.sub_ops = 1u << HT_SUB_GELU; /* F = 4 C */
    NEAR(ht_forward_s(&roof, &fused, &w), launch + 2 * 4 * NCe / bw);
    NEAR(ht_backward_s(&roof, &fused, &w), launch + 3 * 4 * NCe / bw);
    w.sub_ops = 1u << HT_SUB_FC1; /* 8 GiFLOP */
    NEAR(ht_forward_s(&roof, &fused, &w), launch + 8 * GiF / flops);
    w.sub_ops = 1u << HT_SUB_FC2;
    NEAR(ht_backward_s(&roof, &fused, &w), 2 * (launch + 8 * GiF / flops) + launch + NCe / bw);
}
END_TEST

/* B=2, T=512, C=1024, H=8, Hkv=2, F=1536: N = 1024, D = 128, K = 256. N C e = 2 MiB, N K e = 0.5 MiB, N F e = 3 MiB. */
START_TEST(llama_block_by_hand)
{
    struct ht_work w = block(2, 512, 1024, 8);
    w.arch = HT_ARCH_LLAMA, w.kv_heads = 2, w.ffn = 1536;
    double launch = 1e-6, NCe = 2097152, P = 4194304, flops = 1e12, bw = 1e11;
    double GiF = 1024.0 * 1024 * 1024;
    w.sub_ops = 1u << HT_SUB_NORM1;
    NEAR(ht_forward_s(&roof, &fused, &w), launch + 2 * NCe / bw);
    /* 2 x 1024 x 1536 x 1024 = 3 GiFLOP; queries and keys (1.25 N C e) are read and written; no bias */
    w.sub_ops = 1u << HT_SUB_QKV;
    double rotation = launch + 2.5 * NCe / bw;
    NEAR(ht_forward_s(&roof, &fused, &w), launch + 3 * GiF / flops + rotation);
    NEAR(ht_backward_s(&roof, &fused, &w), 2 * (launch + 3 * GiF / flops) + rotation);
    /* as many products as with Hkv = 8; 8 heads' dk and dv (2 N C e) are read, 2 heads' (2 N K e) written */
    w.sub_ops = 1u << HT_SUB_ATTENTION;
    NEAR(ht_forward_s(&roof, &fused, &w), 2 * (launch + GiF / flops) + launch + 2 * P * 2 / bw);
    NEAR(ht_backward_s(&roof, &fused, &w),
         4 * (launch + GiF / flops) + launch + 3 * P * 2 / bw + launch + 2.5 * NCe / bw);
    w.flash = true; /* so slow a memory that bytes count: q, out, k, v forward, and their gradients back */
    const struct ht_roof slow = {.flops_per_s = 1e12, .bytes_per_s = 1e6, .launch_s = 0};
    NEAR(ht_forward_s(&slow, &fused, &w), 2.5 * NCe / 1e6);
    NEAR(ht_backward_s(&slow, &fused, &w), 5 * NCe / 1e6);
    w.flash = false;
    w.sub_ops = 1u << HT_SUB_PROJ; /* 2 GiFLOP, and the residual */
    NEAR(ht_forward_s(&roof, &fused, &w), launch + 2 * GiF / flops + launch + 3 * NCe / bw);
    NEAR(ht_backward_s(&roof, &fused, &w), 2 * (launch + 2 * GiF / flops));
    w.sub_ops = 1u << HT_SUB_FC1; /* 2 x 1024 x 1024 x 3072 = 6 GiFLOP */
    NEAR(ht_forward_s(&roof, &fused, &w), launch + 6 * GiF / flops);
    w.sub_ops = 1u << HT_SUB_GELU; /* N F e = 1.5 N C e: gate, up and product; back those, the gradient and two more */
    NEAR(ht_forward_s(&roof, &fused, &w), launch + 4.5 * NCe / bw);
    NEAR(ht_backward_s(&roof, &fused, &w), launch + 7.5 * NCe / bw);
    w.sub_ops = 1u << HT_SUB_FC2;
    NEAR(ht_backward_s(&roof, &fused, &w), 2 * (launch + 3 * GiF / flops));
    w.sub_ops = HT_ALL_SUB_OPS;
    w.unit = HT_UNIT_EMBEDDING; /* no position table */
    NEAR(ht_forward_s(&roof, &fused, &w), launch + 2 * NCe / bw);
}
END_TEST

/* BERT: B=2, T=512, C=1024: N C e = 2 MiB. The block is GPT's. The head has B rows, B C e = 4096 bytes, 4 classes. */
START_TEST(bert_by_hand)
{
    struct ht_work gpt = block(2, 512, 1024, 8), w = gpt;
    double launch = 1e-6, NCe = 2097152, BCe = 4096, bw = 1e11, CC = 1024 * 1024;
    w.arch = HT_ARCH_BERT;
    NEAR(ht_forward_s(&roof, &fused, &w), ht_forward_s(&roof, &fused, &gpt));
    NEAR(ht_backward_s(&roof, &fused, &w), ht_backward_s(&roof, &fused, &gpt));
    /* Token, position, and out; back: dout is read by tokens and by types, 2 g for each token's row of the table, whose
       30 x 1024 gradients are zeroed. */
    w.unit = HT_UNIT_EMBEDDING, w.vocab = 30, w.tied = false;
    NEAR(ht_forward_s(&roof, &fused, &w), launch + 3 * NCe / bw);
    NEAR(ht_backward_s(&roof, &fused, &w), 2 * launch + (3 * NCe + 30 * 1024 * 2 + NCe) / bw);
    /* Products of 2 rows are bound by memory: (2, 1024, 1024) reads and writes (2048 + C C + 2048) x 2 bytes,
       (2, 4, 1024) (2048 + 4096) x 2 and 8 logits of 4. */
    w.unit = HT_UNIT_HEAD, w.vocab = 4;
    double pooler = launch + (2048 + CC + 2048) * 2 / bw, copy_norm_tanh = 3 * (launch + 2 * BCe / bw);
    NEAR(ht_forward_s(&roof, &fused, &w),
         copy_norm_tanh + pooler + launch + ((2048 + 4096) * 2 + 8 * 4) / bw + launch + 12 * 8 / bw);
    /* (2, 1024, 4) and (4, 1024, 2) of FP32 gradients; biases; tanh; twice the pooler's product; norm; dx */
    double classes = 2 * launch + ((8 + 4096) * 4 + 2048 * 2 + (8 + 2048) * 4 + 4096 * 2) / bw + launch + 4 * 8 / bw;
    NEAR(ht_backward_s(&roof, &fused, &w),
         classes + launch + 3 * BCe / bw + 2 * pooler + launch + BCe / bw + launch + 3 * BCe / bw + launch + NCe / bw);
}
END_TEST

/* ViT: B=2, T=512, C=1024, a patch of 192 numbers. N C e = 2 MiB, N P e = 384 KiB; the product (1024, 1024, 192) is
   bound by memory or compute, whichever is longer. */
START_TEST(vit_by_hand)
{
    struct ht_work gpt = block(2, 512, 1024, 8), w = gpt;
    double launch = 1e-6, bw = 1e11, N = 1024, C = 1024, P = 192, T = 512, e = 2;
    w.arch = HT_ARCH_VIT;
    NEAR(ht_forward_s(&roof, &fused, &w), ht_forward_s(&roof, &fused, &gpt));
    NEAR(ht_backward_s(&roof, &fused, &w), ht_backward_s(&roof, &fused, &gpt));
    /* Bytes to patches, the product, positions, which are added in place: out is read and written. */
    w.unit = HT_UNIT_EMBEDDING, w.vocab = 192, w.tied = false;
    double flatten = launch + N * P * (1 + e) / bw;
    NEAR(ht_forward_s(&roof, &fused, &w), flatten + ht_gemm_s(&roof, 1, N, C, P, e, e) + launch + 2 * N * C * e / bw);
    /* The patches again, dW, the positions' sums in FP32 and rounded, and the bias from them. */
    NEAR(ht_backward_s(&roof, &fused, &w), flatten + ht_gemm_s(&roof, 1, C, P, N, e, e) + launch +
                                               (N * C * e + T * C * (4 + 2)) / bw + launch + T * C * 4 / bw);
    /* BERT's head without the pooler and its tanh: 2 rows of 1024, 4 classes. */
    struct ht_work bert = w;
    bert.arch = HT_ARCH_BERT;
    w.unit = bert.unit = HT_UNIT_HEAD, w.vocab = bert.vocab = 4;
    double pooler = launch + (2048 + C * C + 2048) * 2 / bw;
    NEAR(ht_forward_s(&roof, &fused, &bert) - ht_forward_s(&roof, &fused, &w), pooler + launch + 2 * 4096 / bw);
    NEAR(ht_backward_s(&roof, &fused, &bert) - ht_backward_s(&roof, &fused, &w),
         2 * pooler + launch + 4096 / bw + launch + 3 * 4096 / bw);
    /* Every tensor-parallel part computes all of it. */
    struct ht_work part = w, patches = w;
    part.tp = 4;
    NEAR(ht_forward_s(&roof, &fused, &part), ht_forward_s(&roof, &fused, &w));
    NEAR(ht_backward_s(&roof, &fused, &part), ht_backward_s(&roof, &fused, &w));
    patches.unit = HT_UNIT_EMBEDDING, patches.vocab = 192;
    part = patches;
    part.tp = 4;
    NEAR(ht_forward_s(&roof, &fused, &part), ht_forward_s(&roof, &fused, &patches));
    NEAR(ht_backward_s(&roof, &fused, &part), ht_backward_s(&roof, &fused, &patches));
}
END_TEST

/* DiT: B=2, T=512, C=1024: N C e = 2 MiB, B C e = 4096. Products with 2 rows are bound by memory: those of V C x C
   matrices move (2 V C + V C C + 2 C) x 2 bytes. */
START_TEST(dit_by_hand)
{
    struct ht_work gpt = block(2, 512, 1024, 8), w = gpt;
    struct ht_software torch = fused;
    double launch = 1e-6, bw = 1e11, N = 1024, C = 1024, NCe = 2097152, BCe = 4096, e = 2;
    double six = launch + (2 * 6 * C + 6 * C * C + 2 * C) * e / bw,
           two = launch + (2 * 2 * C + 2 * C * C + 2 * C) * e / bw;
    w.arch = gpt.arch = HT_ARCH_VIT; /* with an encoder's GELU */
    w.arch = HT_ARCH_DIT;
    /* silu, the conditioning vector passed on, the product; back two products, the bias, silu, the vector's gradient */
    w.sub_ops = gpt.sub_ops = 1u << HT_SUB_NORM1;
    NEAR(ht_forward_s(&roof, &fused, &w), ht_forward_s(&roof, &fused, &gpt) + launch + 4 * BCe / bw + six);
    NEAR(ht_backward_s(&roof, &fused, &w),
         ht_backward_s(&roof, &fused, &gpt) + 2 * six + launch + 6 * BCe / bw + launch + 6 * BCe / bw);
    /* Modulation in kernels of its own, and a gate. */
    torch.modulate = (struct ht_pointwise){.forward = {.passes = 4}, .backward = {.passes = 5}};
    torch.gate = (struct ht_pointwise){.forward = {.passes = 2}, .backward = {.passes = 6}};
    w.sub_ops = gpt.sub_ops = 1u << HT_SUB_NORM2;
    NEAR(ht_forward_s(&roof, &fused, &w), ht_forward_s(&roof, &fused, &gpt));
    NEAR(ht_forward_s(&roof, &torch, &w), ht_forward_s(&roof, &fused, &gpt) + launch + 4 * NCe / bw);
    NEAR(ht_backward_s(&roof, &torch, &w), ht_backward_s(&roof, &fused, &gpt) + launch + 5 * NCe / bw);
    for (int i = 0; i < 2; i++) {
        w.sub_ops = gpt.sub_ops = 1u << (i ? HT_SUB_PROJ : HT_SUB_FC2);
        NEAR(ht_forward_s(&roof, &torch, &w), ht_forward_s(&roof, &fused, &gpt) + launch + 2 * NCe / bw);
        NEAR(ht_backward_s(&roof, &torch, &w), ht_backward_s(&roof, &fused, &gpt) + launch + 6 * NCe / bw);
        NEAR(ht_forward_s(&roof, &torch, &gpt), ht_forward_s(&roof, &fused, &gpt)); /* others have none */
    }
    w.sub_ops = 1u << HT_SUB_GELU;
    NEAR(ht_forward_s(&roof, &fused, &w), launch + 2 * 4 * NCe / bw);
    /* A patch of 16 numbers, which are FP32; positions; the timestep: (2, 1024, 256), silu, (2, 1024, 1024); the
       label's row added. */
    w.sub_ops = HT_ALL_SUB_OPS;
    w.unit = HT_UNIT_EMBEDDING, w.vocab = 16, w.tied = false;
    double flatten = launch + N * 16 * (4 + e) / bw, hidden = launch + (2 * 256 + 256 * C + 2 * C) * e / bw;
    double dense = launch + (2 * C + C * C + 2 * C) * e / bw;
    NEAR(ht_forward_s(&roof, &fused, &w), flatten + ht_gemm_s(&roof, 1, N, C, 16, e, e) + launch + 2 * NCe / bw +
                                              hidden + launch + 2 * BCe / bw + dense + launch + 3 * BCe / bw);
    /* Patches again, dW, bias; the hidden layer again, two products, their bias, silu, the first layer's dW and bias;
       the label's row. */
    NEAR(ht_backward_s(&roof, &fused, &w), flatten + ht_gemm_s(&roof, 1, C, 16, N, e, e) + launch + NCe / bw + hidden +
                                               2 * dense + launch + BCe / bw + launch + 3 * BCe / bw + hidden + launch +
                                               BCe / bw + launch + 2 * 1024 * (2 + 2 * 2) / bw);
    /* The language model's head of 32 columns, and two vectors. */
    w.unit = gpt.unit = HT_UNIT_HEAD, w.vocab = gpt.vocab = 32, gpt.arch = HT_ARCH_GPT;
    NEAR(ht_forward_s(&roof, &fused, &w), ht_forward_s(&roof, &fused, &gpt) + launch + 4 * BCe / bw + two);
    NEAR(ht_backward_s(&roof, &torch, &w), ht_backward_s(&roof, &fused, &gpt) + launch + 5 * NCe / bw + 2 * two +
                                               launch + 2 * BCe / bw + launch + 6 * BCe / bw);
}
END_TEST

/* An encoder's GELU may be another kernel than GPT's. N F e = 8 MiB. */
START_TEST(encoder_gelu)
{
    struct ht_work w = block(2, 512, 1024, 8);
    struct ht_software other = fused;
    double launch = 1e-6, NFe = 8388608, bw = 1e11;
    other.encoder_gelu.forward.passes = 7, other.encoder_gelu.backward.passes = 11;
    w.sub_ops = 1u << HT_SUB_GELU;
    NEAR(ht_forward_s(&roof, &other, &w), launch + 2 * NFe / bw);
    w.arch = HT_ARCH_VIT;
    NEAR(ht_forward_s(&roof, &other, &w), launch + 7 * NFe / bw);
    NEAR(ht_backward_s(&roof, &other, &w), launch + 11 * NFe / bw);
}
END_TEST

/* Megatron-LM's softmax reads half of a causal model's scores, and all of an encoder's; what an encoder has is its own.
   B H T T e = 8 MiB. */
START_TEST(encoder_scores)
{
    static const enum ht_arch causal[] = {HT_ARCH_GPT, HT_ARCH_LLAMA},
                              encoders[] = {HT_ARCH_BERT, HT_ARCH_VIT, HT_ARCH_DIT};
    struct ht_work w = block(2, 512, 1024, 8);
    struct ht_software other = fused;
    double scores = 8388608, bw = 1e11;
    w.sub_ops = 1u << HT_SUB_ATTENTION;
    for (size_t i = 0; i < sizeof(causal) / sizeof(*causal); i++) {
        w.arch = causal[i];
        NEAR(ht_forward_s(&roof, &fused, &w) - ht_forward_s(&roof, &megatron, &w), 0.5 * scores / bw);
        NEAR(ht_backward_s(&roof, &fused, &w) - ht_backward_s(&roof, &megatron, &w), scores / bw);
    }
    other.encoder_scores.forward.passes = 7, other.encoder_scores.backward.passes = 11;
    for (size_t i = 0; i < sizeof(encoders) / sizeof(*encoders); i++) {
        w.arch = encoders[i];
        ck_assert_double_eq(ht_forward_s(&roof, &megatron, &w), ht_forward_s(&roof, &fused, &w));
        ck_assert_double_eq(ht_backward_s(&roof, &megatron, &w), ht_backward_s(&roof, &fused, &w));
        NEAR(ht_forward_s(&roof, &other, &w) - ht_forward_s(&roof, &fused, &w), 5 * scores / bw);
        NEAR(ht_backward_s(&roof, &other, &w) - ht_backward_s(&roof, &fused, &w), 8 * scores / bw);
    }
    w.flash = true; /* has no scores in memory */
    ck_assert_double_eq(ht_forward_s(&roof, &other, &w), ht_forward_s(&roof, &fused, &w));
}
END_TEST

/* Megatron-LM's softmax kernel takes four heads at a time, and 16 bits; PyTorch's operators take the others, in FP32: 36 and
   48 bytes an element for 3 and 4, or 24 and 36 where nothing is cast. */
START_TEST(unfused_scores)
{
    static const struct {
        int64_t batch, heads, tp;
        bool fused;
    } cases[] = {{2, 48, 16, false}, {4, 48, 16, true}, {2, 48, 8, true},
                 {1, 10, 1, false},  {2, 10, 1, true},  {1, 40, 4, false}};
    double bw = 1e11;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct ht_work w = block(cases[i].batch, 512, 64 * cases[i].heads, cases[i].heads);
        double scores = (double)(w.batch * w.heads / cases[i].tp * 512 * 512);
        w.sub_ops = 1u << HT_SUB_ATTENTION;
        w.tp = (int32_t)cases[i].tp;
        NEAR(ht_forward_s(&roof, &megatron, &w) - ht_forward_s(&roof, &fused, &w),
             (cases[i].fused ? -1 : 32) * scores / bw);
        NEAR(ht_backward_s(&roof, &megatron, &w) - ht_backward_s(&roof, &fused, &w),
             (cases[i].fused ? -2 : 42) * scores / bw);
        w.dtype = HT_F32;
        NEAR(ht_forward_s(&roof, &megatron, &w) - ht_forward_s(&roof, &fused, &w), (24 - 8) * scores / bw);
        w.dtype = HT_BF16, w.flash = true; /* has no scores in memory */
        ck_assert_double_eq(ht_forward_s(&roof, &megatron, &w), ht_forward_s(&roof, &fused, &w));
    }
}
END_TEST

/* Four parts that cut rows: norms, residuals and masks have a quarter of them. */
START_TEST(rows_of_parts)
{
    static const enum ht_sub_op by_rows[] = {HT_SUB_NORM1, HT_SUB_NORM2}, whole[] = {HT_SUB_QKV, HT_SUB_FC1};
    struct ht_work w = block(2, 512, 1024, 8), rows;
    double launch = 1e-6;
    w.tp = 4;
    rows = w;
    rows.sequence = true;
    for (int i = 0; i < 2; i++) {
        w.sub_ops = rows.sub_ops = 1u << by_rows[i];
        NEAR(4 * (ht_forward_s(&roof, &fused, &rows) - launch), ht_forward_s(&roof, &fused, &w) - launch);
        NEAR(4 * (ht_backward_s(&roof, &fused, &rows) - launch), ht_backward_s(&roof, &fused, &w) - launch);
        w.sub_ops = rows.sub_ops = 1u << whole[i];
        NEAR(ht_forward_s(&roof, &fused, &rows), ht_forward_s(&roof, &fused, &w));
    }
}
END_TEST

/* Sub-ops add up to the block, blocks to several blocks, and a mask is what it names. */
START_TEST(sums)
{
    struct ht_work w = block(2, 512, 1024, 8);
    double f = 0, b = 0, whole_f = ht_forward_s(&roof, &fused, &w), whole_b = ht_backward_s(&roof, &fused, &w);
    for (int i = 0; i < HT_N_SUB_OPS; i++) {
        w.sub_ops = 1u << i;
        f += ht_forward_s(&roof, &fused, &w);
        b += ht_backward_s(&roof, &fused, &w);
    }
    NEAR(f, whole_f);
    NEAR(b, whole_b);
    w.sub_ops = HT_ALL_SUB_OPS;
    w.n_units = 3;
    NEAR(ht_forward_s(&roof, &fused, &w), 3 * whole_f);
}
END_TEST

/* With endless bandwidth and no launches only the model's FLOPs are left: forward once, backward twice. */
START_TEST(flops_only)
{
    const struct ht_roof r = {.flops_per_s = 1e12, .bytes_per_s = 1e300, .launch_s = 0};
    struct ht_model m = {.arch = HT_ARCH_GPT,
                         .layers = 2,
                         .width = 768,
                         .heads = 12,
                         .ffn = 3072,
                         .vocab = 50257,
                         .max_seq = 1024,
                         .tied = true};
    struct ht_work w = block(4, 256, 768, 12);
    w.vocab = 50257;
    NEAR(ht_forward_s(&r, &fused, &w) * 1e12, ht_unit_flops(&m, 1, 4, 256));
    NEAR(ht_backward_s(&r, &fused, &w) * 1e12, 2 * ht_unit_flops(&m, 1, 4, 256));
    m.arch = w.arch = HT_ARCH_LLAMA;
    m.kv_heads = w.kv_heads = 3;
    NEAR(ht_forward_s(&r, &fused, &w) * 1e12, ht_unit_flops(&m, 1, 4, 256));
    NEAR(ht_backward_s(&r, &fused, &w) * 1e12, 2 * ht_unit_flops(&m, 1, 4, 256));
    m.arch = w.arch = HT_ARCH_GPT;
    m.kv_heads = w.kv_heads = 0;
    m.arch = w.arch = HT_ARCH_DIT; /* and the vectors, of each sequence */
    NEAR(ht_forward_s(&r, &fused, &w) * 1e12, ht_unit_flops(&m, 1, 4, 256));
    NEAR(ht_backward_s(&r, &fused, &w) * 1e12, 2 * ht_unit_flops(&m, 1, 4, 256));
    m.arch = w.arch = HT_ARCH_GPT;
    w.tp = 4; /* every product is split */
    NEAR(ht_forward_s(&r, &fused, &w) * 1e12, ht_unit_flops(&m, 1, 4, 256) / 4);
    w.tp = 1;
    w.unit = HT_UNIT_HEAD;
    NEAR(ht_forward_s(&r, &fused, &w) * 1e12, ht_unit_flops(&m, 3, 4, 256));
    NEAR(ht_backward_s(&r, &fused, &w) * 1e12, 2 * ht_unit_flops(&m, 3, 4, 256));
}
END_TEST

/* 80 multiprocessors share the tiles of a product's result. */
START_TEST(waves)
{
    const struct ht_roof r = {.flops_per_s = 1e12, .bytes_per_s = 1e30, .sms = 80};
    NEAR(ht_gemm_share(&roof, 1, 1024, 1000), 1.0); /* number of multiprocessors not known */
    /* (2048, 5120) is 8 x 40 = 320 tiles of 256 x 128: 4 waves, nothing is lost */
    NEAR(ht_gemm_share(&r, 1, 2048, 5120), 1.0);
    /* (2048, 4096): 256 tiles of 256 x 128 in 4 waves are 0.8; 512 of 128 x 128 in 7 waves 512 / 560 */
    NEAR(ht_gemm_share(&r, 1, 2048, 4096), 512.0 / 560);
    /* (1024, 1280): 128 x 256 gives 8 x 5 = 40 tiles, half of a wave; 128 x 128 gives 80, all of one */
    NEAR(ht_gemm_share(&r, 1, 1024, 1280), 1.0);
    /* (1024, 1000): 8 x 8 = 64 tiles of 128 x 128 in one wave, of which the last column stands out by 24 */
    NEAR(ht_gemm_share(&r, 1, 1024, 1000), 64.0 / 80 * 1000 / 1024);
    /* a result 64 wide takes tiles 64 wide: 10 of (256, 64) in one kernel are 10 tiles 256 high, 20 of 128 are
       better */
    NEAR(ht_gemm_share(&r, 10, 256, 64), 20.0 / 80);
    /* the time of a product: 2 x 2048 x 4096 x 1000 / 1e12, longer by 560 / 512 */
    NEAR(ht_gemm_s(&r, 1, 2048, 4096, 1000, 2, 2), 2.0 * 2048 * 4096 * 1000 / 1e12 * 560 / 512);
    /* qkv of N = 1024 rows, C = 1024: forward (1024, 3072) 8 x 24 = 192 tiles in 3 waves of 80; the same backward for
       the weights, with dx (1024, 1024) 64 tiles in one */
    struct ht_work w = block(2, 512, 1024, 8);
    double qkv = 6.0 * 1024 * 1024 * 1024 / 1e12;
    w.sub_ops = 1u << HT_SUB_QKV;
    NEAR(ht_forward_s(&r, &fused, &w), qkv * 240 / 192);
    NEAR(ht_backward_s(&r, &fused, &w), qkv * 240 / 192 + qkv * 80 / 64 + 3.0 * 1024 * 3072 * 2 / 1e30);
}
END_TEST

/* That block: N = 1024, C = 1024, V = 1000. */
START_TEST(ends)
{
    struct ht_work w = block(2, 512, 1024, 8);
    double launch = 1e-6, NCe = 2097152, bw = 1e11, NV = 1024.0 * 1000;
    w.unit = HT_UNIT_EMBEDDING;
    NEAR(ht_forward_s(&roof, &fused, &w), launch + 3 * NCe / bw);
    NEAR(ht_backward_s(&roof, &fused, &w), launch + 3 * NCe / bw); /* e + 2 g = 6 bytes an element, 3 x 2 */
    w.tied = false;                                                /* zero 1000 x 1024 gradients of 2 bytes first */
    NEAR(ht_backward_s(&roof, &fused, &w), launch + (3 * NCe + 1000.0 * 1024 * 2) / bw);
    w.unit = HT_UNIT_HEAD; /* 2 N V C = 2.097e9 FLOP = 2.1 ms, memory bound nowhere */
    NEAR(ht_forward_s(&roof, &fused, &w),
         launch + 2 * NCe / bw + launch + 2 * NV * 1024 / 1e12 + launch + 12 * NV / bw);
    NEAR(ht_backward_s(&roof, &fused, &w), 2 * (launch + 2 * NV * 1024 / 1e12) + launch + 3 * NCe / bw);
}
END_TEST

/* The block and the head of the tests above, as PyTorch's and Megatron's programs run them: products as before, and the
   passes of common/model/software.yaml. N = 1024, C = 1024, F = 4096; N C e = 2 MiB, N F e = 8 MiB, P e = 8 MiB. */
START_TEST(software_by_hand)
{
    struct ht_work w = block(2, 512, 1024, 8);
    double launch = 1e-6, NCe = 2097152, P = 4194304, flops = 1e12, bw = 1e11, NV = 1024.0 * 1000;
    double GiF = 1024.0 * 1024 * 1024, product = launch + 2 * NV * 1024 / flops;
    w.sub_ops =
        1u << HT_SUB_NORM1; /* forward one kernel; backward 3 for dx, 2 for weight and bias, 3 for the residual's */
    NEAR(ht_forward_s(&roof, &eager, &w), launch + 2 * NCe / bw);
    NEAR(ht_backward_s(&roof, &eager, &w), launch + 8 * NCe / bw);
    w.sub_ops = 1u << HT_SUB_ATTENTION; /* scale, mask and softmax are three kernels, or one */
    NEAR(ht_forward_s(&roof, &eager, &w), 2 * (launch + GiF / flops) + launch + 6 * P * 2 / bw);
    NEAR(ht_backward_s(&roof, &eager, &w), 4 * (launch + GiF / flops) + launch + 7 * P * 2 / bw);
    /* in the one kernel the first read is of half */
    NEAR(ht_forward_s(&roof, &megatron, &w), 2 * (launch + GiF / flops) + launch + 1.5 * P * 2 / bw);
    w.sub_ops = 1u << HT_SUB_GELU; /* gelu_new: 8 kernels */
    NEAR(ht_forward_s(&roof, &eager, &w), launch + 18 * 4 * NCe / bw);
    NEAR(ht_backward_s(&roof, &eager, &w), launch + 28 * 4 * NCe / bw);
    NEAR(ht_forward_s(&roof, &megatron, &w), launch + 2 * 4 * NCe / bw);
    w.sub_ops = 1u << HT_SUB_PROJ;
    NEAR(ht_forward_s(&roof, &eager, &w), launch + 2 * GiF / flops + launch + 3 * NCe / bw);
    /* LLaMA: RMSNorm 2 passes, 2 casts of 6 bytes, 5 FP32 passes, of NC = 2^20 elements; rotation 10 or 12 */
    w.arch = HT_ARCH_LLAMA;
    w.sub_ops = 1u << HT_SUB_NORM2;
    NEAR(ht_forward_s(&roof, &eager, &w), launch + 1048576.0 * (2 * 2 + 2 * 6 + 5 * 4) / bw);
    NEAR(ht_backward_s(&roof, &eager, &w), launch + 1048576.0 * (9 * 2 + 2 * 6 + 17 * 4) / bw);
    w.dtype = HT_F32; /* no casts */
    NEAR(ht_forward_s(&roof, &eager, &w), launch + 1048576.0 * 7 * 4 / bw);
    w.dtype = HT_BF16;
    w.sub_ops = 1u << HT_SUB_QKV; /* (N, 3C, C): 6 GiF; rotation of queries and keys, 2 N C elements */
    NEAR(ht_forward_s(&roof, &eager, &w), launch + 6 * GiF / flops + launch + 10 * 2 * NCe / bw);
    NEAR(ht_backward_s(&roof, &megatron, &w), 2 * (launch + 6 * GiF / flops) + launch + 10 * 2 * NCe / bw);
    w.sub_ops = 1u << HT_SUB_GELU;
    NEAR(ht_forward_s(&roof, &eager, &w), launch + 5 * 4 * NCe / bw);
    NEAR(ht_backward_s(&roof, &megatron, &w), launch + 13 * 4 * NCe / bw);
    /* the head: 16-bit logits, cast to FP32 (6 bytes); 5 FP32 passes, Megatron's 8; backward 7 and 2, and a cast */
    w.arch = HT_ARCH_GPT;
    w.unit = HT_UNIT_HEAD;
    NEAR(ht_forward_s(&roof, &eager, &w), launch + 2 * NCe / bw + product + launch + NV * (6 + 5 * 4) / bw);
    NEAR(ht_forward_s(&roof, &megatron, &w), launch + 2 * NCe / bw + product + launch + NV * (6 + 8 * 4) / bw);
    NEAR(ht_backward_s(&roof, &megatron, &w), launch + NV * (6 + 2 * 4) / bw + 2 * product + launch + 5 * NCe / bw);
}
END_TEST

START_TEST(adam)
{
    ck_assert_double_eq(ht_adam_bytes_per_param(HT_F32, HT_F32), 28);   /* 4 reads, 3 writes of 4 bytes */
    ck_assert_double_eq(ht_adam_bytes_per_param(HT_BF16, HT_BF16), 28); /* 2 + 12 read, 12 + 2 written */
    ck_assert_double_eq(ht_adam_bytes_per_param(HT_F16, HT_F32), 30);
    NEAR(ht_cpu_adam_s(1e9, 28, 56e9, 1e15), 0.5); /* 28e9 / 56e9: memory bound */
    NEAR(ht_cpu_adam_s(1e9, 28, 56e9, 1e11), 2.0); /* 200e9 / 1e11: arithmetic bound */
}
END_TEST

START_TEST(transfers)
{
    NEAR(ht_copy_s(10e-6, 25e6, 25e9), 1.01e-3); /* 1 ms and 10 us */
    /* 4 ranks: 3 steps, or 6 for an all-reduce, of 5 us; 3e8 bytes at 3e11 = 1 ms */
    struct ht_ring ring = {.ranks = 4, .nodes = 1, .bytes_per_s = 3e11, .inside_s = 5e-6, .outside_s = 20e-6};
    NEAR(ht_collective_s(HT_OP_ALL_GATHER, &ring, 3e8), 1.015e-3);
    NEAR(ht_collective_s(HT_OP_REDUCE_SCATTER, &ring, 3e8), 1.015e-3);
    NEAR(ht_collective_s(HT_OP_ALL_REDUCE, &ring, 3e8), 1.030e-3);
    /* 2 nodes of 2: 3 steps, one of them between the nodes */
    ring.nodes = 2;
    NEAR(ht_collective_s(HT_OP_ALL_GATHER, &ring, 3e8), 1.030e-3);
    /* all-reduce in a ring: 2 (2 x 5 + 20) us and 1 ms; up and down a tree of two nodes 2 (5 + 20) us and 4/3 ms */
    NEAR(ht_collective_s(HT_OP_ALL_REDUCE, &ring, 3e8), 1.060e-3);
    /* 64 nodes of 8, few bytes: ring 2 (448 x 5 + 63 x 20) = 7000 us, tree 2 (7 x 5 + 6 x 20) = 310 us; each and 511 bytes
       at 511 per second, 512 in the tree */
    ring = (struct ht_ring){.ranks = 512, .nodes = 64, .bytes_per_s = 511, .inside_s = 5e-6, .outside_s = 20e-6};
    NEAR(ht_collective_s(HT_OP_ALL_REDUCE, &ring, 511), 310e-6 + 512.0 / 511);
    ring.ranks = ring.nodes = 1;
    NEAR(ht_collective_s(HT_OP_ALL_REDUCE, &ring, 511), 1.0);
}
END_TEST

START_TEST(rounding)
{
    ck_assert_int_eq(ht_ns_up(0), 1);
    ck_assert_int_eq(ht_ns_up(1e-9), 1);
    ck_assert_int_eq(ht_ns_up(1.1e-9), 2);
    ck_assert_int_eq(ht_ns_up(3e-6), 3000);
    ck_assert_int_eq(ht_ns_up(1e300), INT64_MAX);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("formula");
    TCase *t = tcase_create("formula");
    tcase_add_checked_fixture(t, load_software, NULL);
    tcase_add_test(t, gemm);
    tcase_add_test(t, stream);
    tcase_add_test(t, block_by_hand);
    tcase_add_test(t, llama_block_by_hand);
    tcase_add_test(t, bert_by_hand);
    tcase_add_test(t, vit_by_hand);
    tcase_add_test(t, rows_of_parts);
    tcase_add_test(t, dit_by_hand);
    tcase_add_test(t, encoder_gelu);
    tcase_add_test(t, encoder_scores);
    tcase_add_test(t, unfused_scores);
    tcase_add_test(t, sums);
    tcase_add_test(t, flops_only);
    tcase_add_test(t, waves);
    tcase_add_test(t, ends);
    tcase_add_test(t, software_by_hand);
    tcase_add_test(t, adam);
    tcase_add_test(t, transfers);
    tcase_add_test(t, rounding);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
