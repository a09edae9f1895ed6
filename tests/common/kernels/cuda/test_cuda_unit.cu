/*
 * Whole units against the CPU's in FP32, from the same rounded inputs; and recomputation against the forward pass, bit
 * by bit. FP32 agrees to FP32's own errors; in 16 bits each stored element adds a rounding, and the distance is
 * measured over a whole tensor.
 */
#include "common/kernels/cuda/ht_cuda_ops.h"
#include "common/kernels/cuda/ht_cuda_unit.h"

#include <pthread.h>

#include <string>
#include <thread>

#include "tests/support/cuda_test.h"

extern "C" {
#include "common/kernels/convert.h"
#include "common/kernels/unit.h"
}

struct unit_case {
    const char *name;
    enum ht_arch arch;
    int64_t C, H, KV, F, V, B, T;
    bool flash, tied;
    enum ht_dtype dtype, grad, store;
};

static struct ht_model model_of(const struct unit_case &c)
{
    struct ht_model m = {};
    m.arch = c.arch;
    m.layers = 2;
    m.width = c.C;
    m.heads = c.H;
    m.kv_heads = c.KV;
    m.ffn = c.F;
    m.vocab = c.V;
    m.max_seq = c.T + 3;
    m.rope_theta = 10000;
    m.norm_eps = 1e-5;
    m.flash = c.flash;
    m.tied = c.tied;
    m.classes = ht_arch_classifies(c.arch) ? 19 : 0;
    if (c.arch != HT_ARCH_VIT) return m;
    m.vocab = 0; /* V is the width of a patch: 3 V^2 elements */
    m.channels = 3;
    m.patch = c.V;
    m.image = (int64_t)sqrt((double)(c.T - 1)) * c.V;
    m.max_seq = c.T;
    return m;
}

struct fixture {
    struct unit_case c;
    struct ht_model m;
    struct ht_unit_args cpu;
    struct ht_cuda_args gpu;
    int64_t n; /* B T C */
};

static struct fixture fixture_of(const struct unit_case &c, struct ht_model *m)
{
    struct fixture f = {};
    *m = model_of(c);
    f.c = c;
    f.cpu.model = f.gpu.model = m;
    f.cpu.batch = f.gpu.batch = c.B;
    f.cpu.seq = f.gpu.seq = c.T;
    f.gpu.cuda = &cuda;
    f.gpu.dtype = c.dtype;
    f.gpu.grad = c.grad;
    f.gpu.grad_store = c.store;
    f.n = c.B * c.T * c.C;
    return f;
}

static double tolerance(const struct unit_case &c)
{
    return c.dtype == HT_F32 ? 1e-5 : 3 * roundoff(c.dtype);
}

static void near(const struct fixture &f, const char *what, const floats &got, const floats &expected)
{
    std::string name = std::string(f.c.name) + " " + ht_dtype_name(f.c.dtype) + ": " + what;
    expect_near(name.c_str(), got, expected, tolerance(f.c));
}

/* Parameters that are not too regular: norms' weights and biases too. */
static floats params_of(const struct fixture &f, int64_t unit)
{
    struct ht_param_part parts[HT_MAX_PARAM_PARTS];
    int n = ht_unit_param_parts(f.gpu.model, unit, parts);
    floats p((size_t)ht_unit_params(f.gpu.model, unit));
    for (int k = 0; k < n; k++) {
        bool vector = parts[k].rows == 1, weight = strstr(parts[k].name, ".weight") != NULL;
        float a = vector ? 0.5f : 1.5f / sqrtf((float)parts[k].cols);
        for (int64_t i = 0; i < parts[k].rows * parts[k].cols; i++) {
            float u = 2 * ht_random_float(100 + (uint64_t)k, (uint64_t)i) - 1;
            p[(size_t)(parts[k].offset + i)] = rounded(f.c.dtype, (vector && weight ? 1 : 0) + a * u);
        }
    }
    return p;
}

/* Each part of the gradient by itself: small ones do not hide behind large ones. But the biases of query, key and value go
   together, as GPT's: a key's bias adds the same to all scores of a query, so its gradient is 0 but for rounding. */
static void near_parts(const struct fixture &f, int64_t unit, const floats &got, const floats &expected)
{
    struct ht_param_part parts[HT_MAX_PARAM_PARTS];
    int n = ht_unit_param_parts(f.gpu.model, unit, parts);
    for (int k = 0; k < n; k++) {
        int64_t from = parts[k].offset;
        if (strstr(parts[k].name, "query.bias")) k += 2;
        int64_t to = parts[k].offset + parts[k].rows * parts[k].cols;
        near(f, parts[k].name, floats(got.begin() + from, got.begin() + to),
             floats(expected.begin() + from, expected.begin() + to));
    }
    for (float g : got) expect(rounded(f.c.grad, g) == g, "a gradient is not rounded");
}

/* Runs the backward pass again in halves, over dx and gradients that are spoiled: the bytes of the whole pass. */
static void check_halves(const struct fixture &f, const struct ht_block_acts &act, const struct buffer &params,
                         const struct buffer &x, const struct buffer &dout, const struct buffer &dx,
                         const struct buffer &grad)
{
    const struct unit_case &c = f.c;
    std::vector<unsigned char> whole_dx = bytes_of(dx), whole_grad = bytes_of(grad);
    call(cudaMemsetAsync(dx.at(), 0xff, whole_dx.size(), cuda.stream), "cudaMemsetAsync");
    call(cudaMemsetAsync(grad.at(), 0xff, whole_grad.size(), cuda.stream), "cudaMemsetAsync");
    for (unsigned half : {HT_MLP_HALF, HT_ATTENTION_HALF}) {
        struct ht_sub_op_reads reads = ht_sub_ops_backward_read(false, half);
        struct ht_block_acts some = {};
        for (int s = 0; s < HT_SUB_FC2; s++)
            if (reads.sub_ops >> s & 1) some.of[s] = act.of[s];
        struct buffer work = buffer_of(ht_cuda_block_workspace_bytes(f.gpu.model, half, c.B, c.T, c.dtype, true));
        ht_cuda_block_backward(&f.gpu, half, params.at(), reads.input ? x.at() : NULL, &some,
                               half == HT_MLP_HALF ? dout.at() : NULL, dx.at(), grad.at(), work.at());
        contents_of(work);
        release(work);
    }
    expect(bytes_of(dx) == whole_dx, "%s: dx of the halves differs", c.name);
    expect(bytes_of(grad) == whole_grad, "%s: gradients of the halves differ", c.name);
}

/* shift: bytes that every buffer is off a multiple of 256. */
static void check_block(const struct unit_case &c, int64_t shift = 0)
{
    struct ht_model model;
    struct fixture f = fixture_of(c, &model);
    floats x = numbers(1, f.n, 1, c.dtype), dout = numbers(2, f.n, 1, c.dtype), p = params_of(f, 1);
    int64_t n_params = (int64_t)p.size();
    std::vector<unsigned char> whole((size_t)ht_unit_activation_bytes(&model, 1, c.B, c.T, HT_F32) + 64);
    std::vector<unsigned char> work((size_t)ht_unit_workspace_bytes(&model, 1, c.B, c.T, HT_F32, true) + 64);
    void *aligned_act = (void *)(((uintptr_t)whole.data() + 63) / 64 * 64);
    void *aligned_work = (void *)(((uintptr_t)work.data() + 63) / 64 * 64);
    floats out((size_t)f.n), dx((size_t)f.n), grad((size_t)n_params);
    struct ht_block_acts cpu_act = ht_block_acts_at(&f.cpu, aligned_act);
    ht_block_forward(&f.cpu, HT_ALL_SUB_OPS, p.data(), x.data(), &cpu_act, out.data(), aligned_work);
    ht_block_backward(&f.cpu, HT_ALL_SUB_OPS, p.data(), x.data(), &cpu_act, dout.data(), dx.data(), grad.data(),
                      aligned_work);

    struct buffer bp = put(c.dtype, p, shift), bx = put(c.dtype, x, shift), bo = room(c.dtype, f.n, shift),
                  bd = put(c.dtype, dout, shift);
    struct buffer bdx = room(c.dtype, f.n, shift), bg = room(c.store, n_params, shift), parts[HT_N_SUB_OPS];
    struct ht_block_acts act = {};
    for (int s = 0; s < HT_SUB_FC2; s++) { /* each sub-op's activations by themselves */
        parts[s] = buffer_of(ht_sub_ops_activation_bytes(&model, 1u << s, c.B, c.T, c.dtype), shift);
        act.of[s] = parts[s].at();
    }
    struct buffer small = buffer_of(ht_cuda_unit_workspace_bytes(&model, 1, c.B, c.T, c.dtype, false), shift);
    struct buffer large = buffer_of(ht_cuda_unit_workspace_bytes(&model, 1, c.B, c.T, c.dtype, true), shift);
    ht_cuda_block_forward(&f.gpu, HT_ALL_SUB_OPS, bp.at(), bx.at(), &act, bo.at(), small.at());
    near(f, "out", get(c.dtype, bo), out);
    std::vector<unsigned char> kept[HT_N_SUB_OPS];
    for (int s = 0; s < HT_SUB_FC2; s++) kept[s] = contents_of(parts[s]);
    contents_of(small);

    /* Each sub-op's activations are spoiled and recomputed, from those that it reads and nothing else. */
    for (int s = 0; s < HT_SUB_FC2; s++) {
        struct ht_sub_op_reads reads = ht_sub_ops_read(model.arch, 1u << s);
        struct ht_block_acts some = {};
        for (int k = 0; k < HT_SUB_FC2; k++)
            if ((reads.sub_ops | 1u << s) >> k & 1) some.of[k] = act.of[k];
        call(cudaMemsetAsync(act.of[s], fresh, kept[s].size(), cuda.stream), "cudaMemsetAsync");
        ht_cuda_block_forward(&f.gpu, 1u << s, bp.at(), reads.input ? bx.at() : NULL, &some, NULL, small.at());
        expect(contents_of(parts[s]) == kept[s], "%s: recomputed %s differs", c.name,
               ht_sub_op_name((enum ht_sub_op)s));
    }
    ht_cuda_block_backward(&f.gpu, HT_ALL_SUB_OPS, bp.at(), bx.at(), &act, bd.at(), bdx.at(), bg.at(), large.at());
    near(f, "dx", get(c.dtype, bdx), dx);
    near_parts(f, 1, get(c.store, bg), grad);
    for (int s = 0; s < HT_SUB_FC2; s++) {
        expect(contents_of(parts[s]) == kept[s], "the backward pass has written to the activations");
    }
    contents_of(large);
    check_halves(f, act, bp, bx, bd, bdx, bg);
    for (int s = 0; s < HT_SUB_FC2; s++) release(parts[s]);
    for (struct buffer *b : {&bp, &bx, &bo, &bd, &bdx, &bg, &small, &large}) release(*b);
}

/* Returns token ids, or the bytes of images. */
static std::vector<int32_t> input_of(const struct ht_model &m, const struct unit_case &c)
{
    if (m.arch != HT_ARCH_VIT) return token_list(4, c.B * c.T, c.V);
    std::vector<int32_t> words = token_list(4, (c.B * ht_model_sample_bytes(&m, c.T) + 3) / 4, 1 << 30);
    return words;
}

/* The embedding and the head, whose gradients of the token table meet when it is tied. */
static void check_ends(const struct unit_case &c)
{
    struct ht_model model;
    struct fixture f = fixture_of(c, &model);
    int64_t head = model.layers + 1, rows = c.B * c.T;
    floats pe = params_of(f, 0), ph = params_of(f, head), x = numbers(3, f.n, 1, c.dtype);
    std::vector<int32_t> tokens = input_of(model, c), targets = token_list(5, rows, ht_model_outputs(&model));
    float scale = 4096 / (float)(c.B * ht_model_head_rows(&model, c.T));
    double loss = 0;
    std::vector<unsigned char> work((size_t)ht_unit_workspace_bytes(&model, head, c.B, c.T, HT_F32, true) +
                                    (size_t)ht_unit_workspace_bytes(&model, 0, c.B, c.T, HT_F32, true) +
                                    (size_t)rows * 8 + 64);
    void *workspace = (void *)(((uintptr_t)work.data() + 63) / 64 * 64);
    std::vector<unsigned char> kept((size_t)ht_unit_activation_bytes(&model, head, c.B, c.T, HT_F32) + 64);
    void *act = (void *)(((uintptr_t)kept.data() + 63) / 64 * 64);
    int64_t logits_bytes = ht_logits_bytes(&model, c.B, c.T);
    floats logits((size_t)logits_bytes / 4), dx((size_t)f.n), ge(pe.size()), gh(ph.size()), out((size_t)f.n);
    ht_embedding_forward(&f.cpu, tokens.data(), pe.data(), out.data(), workspace);
    ht_head_forward(&f.cpu, ph.data(), c.tied ? pe.data() : NULL, x.data(), act, logits.data(), targets.data(), scale,
                    &loss, workspace);
    ht_head_backward(&f.cpu, ph.data(), c.tied ? pe.data() : NULL, x.data(), act, logits.data(), dx.data(), gh.data(),
                     c.tied ? ge.data() : NULL, workspace);
    ht_embedding_backward(&f.cpu, tokens.data(), dx.data(), ge.data(), workspace);

    struct buffer be = put(c.dtype, pe), bh = put(c.dtype, ph), bx = put(c.dtype, x), bo = room(c.dtype, f.n);
    struct buffer bt = buffer_with(tokens.data(), 4 * (int64_t)tokens.size()),
                  by = buffer_with(targets.data(), 4 * rows);
    struct buffer bl = buffer_of(logits_bytes), bs = buffer_of(8), bdx = room(c.dtype, f.n);
    struct buffer bge = room(c.store, (int64_t)ge.size()), bgh = room(c.store, (int64_t)gh.size());
    struct buffer ba = buffer_of(ht_unit_activation_bytes(&model, head, c.B, c.T, c.dtype));
    struct buffer small = buffer_of(ht_cuda_unit_workspace_bytes(&model, head, c.B, c.T, c.dtype, false));
    struct buffer large = buffer_of(ht_cuda_unit_workspace_bytes(&model, head, c.B, c.T, c.dtype, true));
    struct buffer sorted = buffer_of(ht_cuda_unit_workspace_bytes(&model, 0, c.B, c.T, c.dtype, true));
    ht_cuda_embedding_forward(&f.gpu, bt.at(), be.at(), bo.at(), sorted.at());
    near(f, "embedding", get(c.dtype, bo), out);
    const void *wte = c.tied ? be.at() : NULL;
    ht_cuda_head_forward(&f.gpu, bh.at(), wte, bx.at(), ba.at(), (float *)bl.at(), (const int32_t *)by.at(), scale,
                         (double *)bs.at(), small.at());
    double got;
    memcpy(&got, bytes_of(bs).data(), 8);
    expect(fabs(got - loss) <= tolerance(c) * fabs(loss), "%s: loss %.9g, expected %.9g", c.name, got, loss);
    ht_cuda_head_backward(&f.gpu, bh.at(), wte, bx.at(), ba.at(), (const float *)bl.at(), bdx.at(), bgh.at(),
                          c.tied ? bge.at() : NULL, large.at());
    near(f, "dx", get(c.dtype, bdx), dx);
    near_parts(f, head, get(c.store, bgh), gh);
    ht_cuda_embedding_backward(&f.gpu, bt.at(), bdx.at(), bge.at(), sorted.at());
    finish();
    release(sorted);
    near_parts(f, 0, get(c.store, bge), ge);
    for (struct buffer *b : {&bl, &ba, &small, &large}) contents_of(*b);
    for (struct buffer *b : {&be, &bh, &bx, &bo, &bt, &by, &bl, &bs, &bdx, &bge, &bgh, &ba, &small, &large})
        release(*b);
}

static const struct unit_case cases[] = {
    {"GPT, lse", HT_ARCH_GPT, 24, 3, 3, 40, 37, 2, 11, true, true, HT_F32, HT_F32, HT_F32},
    {"GPT, probabilities", HT_ARCH_GPT, 24, 3, 3, 40, 37, 2, 11, false, false, HT_F32, HT_F32, HT_F32},
    {"LLaMA, shared keys", HT_ARCH_LLAMA, 24, 4, 2, 20, 37, 2, 11, true, false, HT_F32, HT_F32, HT_F32},
    {"LLaMA, probabilities", HT_ARCH_LLAMA, 24, 4, 2, 20, 37, 2, 11, false, true, HT_F32, HT_F32, HT_F32},
    {"GPT, odd", HT_ARCH_GPT, 15, 3, 3, 21, 37, 2, 7, true, true, HT_BF16, HT_BF16, HT_BF16},
    {"GPT, lse", HT_ARCH_GPT, 24, 3, 3, 40, 37, 2, 11, true, true, HT_BF16, HT_BF16, HT_BF16},
    {"GPT, probabilities", HT_ARCH_GPT, 24, 3, 3, 40, 37, 2, 11, false, true, HT_F16, HT_F16, HT_F32},
    {"LLaMA, shared keys", HT_ARCH_LLAMA, 256, 4, 2, 40, 32, 1, 70, true, false, HT_BF16, HT_F32, HT_F32},
    {"LLaMA, probabilities", HT_ARCH_LLAMA, 24, 4, 2, 20, 37, 2, 11, false, false, HT_F16, HT_F16, HT_F16},
    {"BERT, lse", HT_ARCH_BERT, 24, 3, 3, 40, 37, 3, 11, true, false, HT_F32, HT_F32, HT_F32},
    {"BERT, probabilities", HT_ARCH_BERT, 24, 3, 3, 40, 37, 3, 11, false, false, HT_F32, HT_F32, HT_F32},
    {"BERT, odd", HT_ARCH_BERT, 15, 3, 3, 21, 37, 3, 7, true, false, HT_BF16, HT_BF16, HT_BF16},
    {"BERT, lse", HT_ARCH_BERT, 128, 2, 2, 40, 37, 1, 70, true, false, HT_F16, HT_F16, HT_F32},
    {"ViT, lse", HT_ARCH_VIT, 24, 3, 3, 40, 4, 3, 10, true, false, HT_F32, HT_F32, HT_F32},
    {"ViT, odd", HT_ARCH_VIT, 15, 3, 3, 21, 3, 3, 5, false, false, HT_BF16, HT_BF16, HT_BF16},
    {"ViT, lse", HT_ARCH_VIT, 128, 2, 2, 40, 14, 2, 65, true, false, HT_F16, HT_F16, HT_F32},
};

static const struct unit_case large_cases[] = {
    {"GPT, large", HT_ARCH_GPT, 768, 12, 12, 3072, 5003, 2, 300, true, true, HT_F32, HT_F32, HT_F32},
    {"GPT, large", HT_ARCH_GPT, 768, 12, 12, 3072, 5003, 2, 300, true, true, HT_BF16, HT_BF16, HT_BF16},
    {"GPT, large", HT_ARCH_GPT, 768, 12, 12, 3072, 5003, 2, 300, false, true, HT_F16, HT_F16, HT_F32},
    {"LLaMA, large", HT_ARCH_LLAMA, 1024, 8, 2, 2816, 4096, 1, 500, true, false, HT_BF16, HT_BF16, HT_F32},
    {"BERT, large", HT_ARCH_BERT, 1024, 16, 16, 4096, 5003, 3, 300, true, false, HT_BF16, HT_BF16, HT_F32},
    {"ViT, large", HT_ARCH_VIT, 1664, 16, 16, 8192, 14, 3, 257, true, false, HT_BF16, HT_BF16, HT_F32},
};

/* ---- tensor-parallel parts ---- */

/* Records what a part of the CPU's pass brings to each exchange, and gets. The GPU's pass brings the same but for rounding, and gets
   the same: so one part runs by itself. */
struct exchange {
    floats brought, got;
};
struct room {
    pthread_barrier_t barrier;
    int parts;
    const float *brought[4];
};
struct door {
    struct room *room;
    int part;
    size_t at; /* the GPU's next exchange */
    std::vector<struct exchange> seen;
    struct ht_part_link link;
    const struct fixture *f;
};

/* Meets the other parts: kind 0 sums, 1 gathers, 2 scatters. */
static void meet(struct door *d, int kind, const float *from, float *to, int64_t n)
{
    int64_t parts = d->room->parts, brings = kind == 2 ? parts * n : n, gets = kind == 1 ? parts * n : n;
    struct exchange e = {floats(from, from + brings), floats((size_t)gets, 0)};
    d->room->brought[d->part] = from;
    pthread_barrier_wait(&d->room->barrier);
    for (int64_t i = 0; i < gets; i++)
        for (int64_t q = 0; q < parts; q++) {
            const float *theirs = d->room->brought[q];
            if (kind == 1 && i / n != q) continue;
            e.got[(size_t)i] += theirs[kind == 0 ? i : kind == 1 ? i % n : d->part * n + i];
        }
    pthread_barrier_wait(&d->room->barrier);
    std::copy(e.got.begin(), e.got.end(), to);
    d->seen.push_back(e);
}

static void cpu_sum(void *ctx, void *data, enum ht_dtype, int64_t n)
{
    meet((struct door *)ctx, 0, (const float *)data, (float *)data, n);
}
static void cpu_gather(void *ctx, const void *mine, void *all, enum ht_dtype, int64_t n)
{
    meet((struct door *)ctx, 1, (const float *)mine, (float *)all, n);
}
static void cpu_scatter(void *ctx, const void *all, void *mine, enum ht_dtype, int64_t n)
{
    meet((struct door *)ctx, 2, (const float *)all, (float *)mine, n);
}

/* Compares what the GPU's pass brings, and gives it what the CPU's pass got. */
static void replay(struct door *d, const void *from, void *to, enum ht_dtype type)
{
    expect(d->at < d->seen.size(), "%s: more exchanges than on the CPU", d->f->c.name);
    const struct exchange &e = d->seen[d->at++];
    std::vector<unsigned char> bytes(e.brought.size() * (size_t)ht_dtype_bytes(type));
    call(cudaMemcpyAsync(bytes.data(), from, bytes.size(), cudaMemcpyDefault, cuda.stream), "cudaMemcpyAsync");
    finish();
    floats brought(e.brought.size()), got = e.got;
    ht_widen_copy(NULL, bytes.data(), type, brought.data(), (int64_t)brought.size());
    near(*d->f, "a part's share", brought, e.brought);
    bytes.resize(got.size() * (size_t)ht_dtype_bytes(type));
    ht_round_copy(NULL, got.data(), bytes.data(), type, (int64_t)got.size());
    call(cudaMemcpyAsync(to, bytes.data(), bytes.size(), cudaMemcpyDefault, cuda.stream), "cudaMemcpyAsync");
    finish();
}
static void gpu_sum(void *ctx, void *data, enum ht_dtype type, int64_t)
{
    replay((struct door *)ctx, data, data, type);
}
static void gpu_move(void *ctx, const void *from, void *to, enum ht_dtype type, int64_t)
{
    replay((struct door *)ctx, from, to, type);
}

/* Returns the part's rows of x, if it cuts them. */
static floats rows_of(const struct ht_model &m, const floats &x)
{
    if (!ht_model_cuts_rows(&m)) return x;
    size_t n = x.size() / (size_t)m.parts;
    return floats(x.begin() + m.part * (int64_t)n, x.begin() + (m.part + 1) * (int64_t)n);
}

/* A part's passes, on the CPU by a thread of its own, and then on the GPU. */
struct part_pass {
    struct ht_model m;
    struct fixture f;
    struct door door;
    floats p[3], x, dout, out, dx, grad, logits, hdx, hgrad, ge, eout;
    double loss;
};

static std::vector<unsigned char> space_of(int64_t bytes)
{
    return std::vector<unsigned char>((size_t)bytes + 64);
}
static void *aligned(std::vector<unsigned char> &v)
{
    return (void *)(((uintptr_t)v.data() + 63) / 64 * 64);
}

static void run_on_cpu(struct part_pass *p, const std::vector<int32_t> *tokens, const std::vector<int32_t> *targets)
{
    const struct unit_case &c = p->f.c;
    struct ht_unit_args a = p->f.cpu;
    int64_t head = p->m.layers + 1, most = 0;
    for (int64_t u : {(int64_t)0, (int64_t)1, head})
        most = std::max(most, std::max(ht_unit_workspace_bytes(&p->m, u, c.B, c.T, HT_F32, true),
                                       ht_unit_workspace_bytes(&p->m, u, c.B, c.T, HT_F32, false)));
    std::vector<unsigned char> act = space_of(ht_unit_activation_bytes(&p->m, 1, c.B, c.T, HT_F32)),
                               hact = space_of(ht_unit_activation_bytes(&p->m, head, c.B, c.T, HT_F32)),
                               work = space_of(most);
    a.link = &p->door.link;
    struct ht_block_acts acts = ht_block_acts_at(&a, aligned(act));
    const float *wte = c.tied ? p->p[0].data() : NULL;
    ht_embedding_forward(&a, tokens->data(), p->p[0].data(), p->eout.data(), aligned(work));
    ht_block_forward(&a, HT_ALL_SUB_OPS, p->p[1].data(), p->x.data(), &acts, p->out.data(), aligned(work));
    ht_head_forward(&a, p->p[2].data(), wte, p->x.data(), aligned(hact), p->logits.data(), targets->data(), 64,
                    &p->loss, aligned(work));
    ht_head_backward(&a, p->p[2].data(), wte, p->x.data(), aligned(hact), p->logits.data(), p->hdx.data(),
                     p->hgrad.data(), c.tied ? p->ge.data() : NULL, aligned(work));
    ht_block_backward(&a, HT_ALL_SUB_OPS, p->p[1].data(), p->x.data(), &acts, p->dout.data(), p->dx.data(),
                      p->grad.data(), aligned(work));
    ht_embedding_backward(&a, tokens->data(), p->dout.data(), p->ge.data(), aligned(work));
}

static void run_on_gpu(struct part_pass *p, const std::vector<int32_t> &tokens, const std::vector<int32_t> &targets)
{
    const struct unit_case &c = p->f.c;
    struct ht_cuda_args a = p->f.gpu;
    struct fixture &f = p->f;
    int64_t head = p->m.layers + 1, n = (int64_t)p->x.size(), most = 0;
    for (int64_t u : {(int64_t)0, (int64_t)1, head})
        for (bool back : {false, true})
            most = std::max(most, ht_cuda_unit_workspace_bytes(&p->m, u, c.B, c.T, c.dtype, back));
    p->door.link.sum = gpu_sum;
    p->door.link.gather = p->door.link.scatter = gpu_move;
    a.link = &p->door.link;
    struct buffer be = put(c.dtype, p->p[0]), bp = put(c.dtype, p->p[1]), bh = put(c.dtype, p->p[2]);
    struct buffer bx = put(c.dtype, p->x), bd = put(c.dtype, p->dout), bo = room(c.dtype, n), bdx = room(c.dtype, n);
    struct buffer bg = room(c.store, (int64_t)p->grad.size()), bgh = room(c.store, (int64_t)p->hgrad.size());
    struct buffer bge = room(c.store, (int64_t)p->ge.size()), work = buffer_of(most), bs = buffer_of(8);
    struct buffer bt = buffer_with(tokens.data(), 4 * (int64_t)tokens.size());
    struct buffer by = buffer_with(targets.data(), 4 * (int64_t)targets.size());
    struct buffer bl = buffer_of(4 * (int64_t)p->logits.size());
    struct buffer ba = buffer_of(ht_unit_activation_bytes(&p->m, 1, c.B, c.T, c.dtype));
    struct buffer bha = buffer_of(ht_unit_activation_bytes(&p->m, head, c.B, c.T, c.dtype));
    const void *wte = c.tied ? be.at() : NULL;
    struct ht_block_acts act = {};
    ht_block_acts_place(&p->m, HT_ALL_SUB_OPS, c.B, c.T, c.dtype, ba.at(), &act);
    ht_cuda_embedding_forward(&a, bt.at(), be.at(), bo.at(), work.at());
    near(f, "a part's embedding", get(c.dtype, bo), p->eout);
    ht_cuda_block_forward(&a, HT_ALL_SUB_OPS, bp.at(), bx.at(), &act, bo.at(), work.at());
    near(f, "a part's out", get(c.dtype, bo), p->out);
    ht_cuda_head_forward(&a, bh.at(), wte, bx.at(), bha.at(), (float *)bl.at(), (const int32_t *)by.at(), 64,
                         (double *)bs.at(), work.at());
    double loss;
    memcpy(&loss, bytes_of(bs).data(), 8);
    expect(fabs(loss - p->loss) <= tolerance(c) * fabs(p->loss), "%s: loss %.9g, expected %.9g", c.name, loss, p->loss);
    ht_cuda_head_backward(&a, bh.at(), wte, bx.at(), bha.at(), (const float *)bl.at(), bdx.at(), bgh.at(),
                          c.tied ? bge.at() : NULL, work.at());
    near(f, "a part's dx of the head", get(c.dtype, bdx), p->hdx);
    near(f, "a part's gradient of the head", get(c.store, bgh), p->hgrad);
    ht_cuda_block_backward(&a, HT_ALL_SUB_OPS, bp.at(), bx.at(), &act, bd.at(), bdx.at(), bg.at(), work.at());
    near(f, "a part's dx", get(c.dtype, bdx), p->dx);
    near(f, "a part's gradient", get(c.store, bg), p->grad);
    ht_cuda_embedding_backward(&a, bt.at(), bd.at(), bge.at(), work.at());
    near(f, "a part's gradient of the embedding", get(c.store, bge), p->ge);
    expect(p->door.at == p->door.seen.size(), "%s: fewer exchanges than on the CPU", c.name);
    for (struct buffer *b : {&bl, &ba, &bha, &work, &bs}) contents_of(*b);
    for (struct buffer *b : {&be, &bp, &bh, &bx, &bd, &bo, &bdx, &bg, &bgh, &bge, &work, &bs, &bt, &by, &bl, &ba, &bha})
        release(*b);
}

static void check_parts(const struct unit_case &c, int parts, bool sequence)
{
    struct ht_model whole = model_of(c);
    int64_t units[] = {0, 1, whole.layers + 1};
    std::vector<int32_t> tokens = input_of(whole, c), targets = token_list(5, c.B * c.T, ht_model_outputs(&whole));
    struct room room = {};
    std::vector<struct part_pass> passes((size_t)parts);
    std::vector<std::thread> threads;
    room.parts = parts;
    pthread_barrier_init(&room.barrier, NULL, (unsigned)parts);
    for (int q = 0; q < parts; q++) {
        struct part_pass &p = passes[(size_t)q];
        struct ht_model unused;
        p.f = fixture_of(c, &unused);
        p.m = ht_model_part(&whole, q, parts);
        p.m.sequence = sequence;
        p.f.cpu.model = p.f.gpu.model = &p.m;
        p.door.room = &room;
        p.door.part = q;
        p.door.at = 0;
        p.door.f = &p.f;
        p.door.link = {&p.door, cpu_sum, cpu_gather, cpu_scatter};
        p.x = rows_of(p.m, numbers(1, p.f.n, 1, c.dtype));
        p.dout = rows_of(p.m, numbers(2, p.f.n, 1, c.dtype));
        p.out = p.dx = p.hdx = p.eout = floats(p.x.size());
        for (int i = 0; i < 3; i++) p.p[i] = params_of(p.f, units[i]);
        p.ge = floats(p.p[0].size());
        p.grad = floats(p.p[1].size());
        p.hgrad = floats(p.p[2].size());
        p.logits = floats((size_t)ht_logits_bytes(&p.m, c.B, c.T) / 4);
    }
    for (struct part_pass &p : passes) threads.emplace_back(run_on_cpu, &p, &tokens, &targets);
    for (std::thread &t : threads) t.join();
    pthread_barrier_destroy(&room.barrier);
    for (struct part_pass &p : passes) run_on_gpu(&p, tokens, targets);
}

static void in_parts(void)
{
    static const struct unit_case some[] = {
        {"GPT in parts", HT_ARCH_GPT, 24, 4, 4, 40, 37, 2, 10, true, true, HT_F32, HT_F32, HT_F32},
        {"GPT in parts", HT_ARCH_GPT, 24, 4, 4, 40, 37, 2, 10, false, true, HT_BF16, HT_BF16, HT_BF16},
        {"LLaMA in parts", HT_ARCH_LLAMA, 32, 8, 4, 20, 37, 2, 10, true, false, HT_F32, HT_F32, HT_F32},
        {"LLaMA in parts", HT_ARCH_LLAMA, 32, 8, 4, 20, 37, 2, 10, false, false, HT_F16, HT_F16, HT_F32},
        {"BERT in parts", HT_ARCH_BERT, 24, 4, 4, 40, 37, 2, 10, true, false, HT_F32, HT_F32, HT_F32},
        {"ViT in parts", HT_ARCH_VIT, 24, 4, 4, 40, 4, 2, 10, true, false, HT_F32, HT_F32, HT_F32},
    };
    for (const struct unit_case &c : some)
        for (bool sequence : {false, true})
            for (int parts : {2, 4}) check_parts(c, parts, sequence);
}

static void blocks(void)
{
    for (const struct unit_case &c : cases) check_block(c);
    for (const struct unit_case &c : large_cases)
        if (!emulated) check_block(c);
}

/* Bits do not depend on the buffers' addresses: systems place them differently. */
static void placement(void)
{
    uint64_t before = seen_hash, here;
    for (const struct unit_case &c : {cases[0], cases[5], large_cases[emulated ? 0 : 1]}) {
        if (emulated && c.C > 100) continue;
        check_block(c);
        here = seen_hash;
        seen_hash = before;
        check_block(c, 48);
        expect(seen_hash == here, "%s: other bits at another place", c.name);
        before = seen_hash;
    }
}

static void ends(void)
{
    for (const struct unit_case &c : cases) check_ends(c);
    for (const struct unit_case &c : large_cases)
        if (!emulated) check_ends(c);
}

/* A failure is kept, later calls do nothing, and the text says what it was. */
static void failures(void)
{
    struct unit_case c = cases[0];
    struct ht_model model;
    struct ht_error err = {};
    struct fixture f = fixture_of(c, &model);
    floats before((size_t)16, 1.5f); /* GELU would change them */
    struct buffer b = put(HT_F32, before);
    model.dropout = true;
    struct ht_block_acts act = {};
    ht_cuda_block_forward(&f.gpu, HT_ALL_SUB_OPS, b.at(), b.at(), &act, b.at(), b.at());
    ht_cuda_gelu(&cuda, HT_F32, b.at(), b.at(), 16);
    expect(ht_cuda_status(&cuda, cudaStreamSynchronize(cuda.stream), &err) == HT_BAD_INPUT, "no failure");
    expect(strstr(err.text, "dropout") != NULL, "%s", err.text);
    cuda.error = {};
    expect_bits("untouched", get(HT_F32, b), before);
    release(b);
}

CUDA_TEST_MAIN({"blocks", blocks}, {"placement", placement}, {"ends", ends}, {"in_parts", in_parts},
               {"failures", failures})
