/*
 * Whole units against the CPU's in FP32, from the same rounded inputs; and recomputation against the forward pass, bit
 * by bit. FP32 agrees to FP32's own errors; in 16 bits each stored element adds a rounding, and the distance is
 * measured over a whole tensor.
 */
#include "common/kernels/cuda/ht_cuda_ops.h"
extern "C" {
#include "common/model/halves.h"
}
#include "tests/common/kernels/cuda/cuda_unit.h"

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

/* Runs both passes again in halves, cut behind a front, over what is spoiled: the bytes of the whole pass. */
static void check_halves(const struct fixture &f, unsigned front, const struct ht_block_acts &act,
                         const struct buffer *parts, const struct buffer &params, const struct buffer &x,
                         const struct buffer &dout, const struct buffer &out, const struct buffer &dx,
                         const struct buffer &grad)
{
    const struct unit_case &c = f.c;
    const unsigned back = HT_ALL_SUB_OPS & ~front, halves[] = {front, back, back, front}, handed = ht_handed(front);
    std::vector<unsigned char> whole_dx = bytes_of(dx), whole_grad = bytes_of(grad), whole_out = bytes_of(out);
    std::vector<unsigned char> kept[HT_N_SUB_OPS];
    struct buffer given[2];
    for (struct buffer &b : given) b = room(c.dtype, handed ? c.B * c.T * ht_handed_width(f.gpu.model, handed) : 1);
    for (int s = 0; s < HT_SUB_FC2; s++) {
        kept[s] = contents_of(parts[s]);
        call(cudaMemsetAsync(act.of[s], fresh, kept[s].size(), cuda.stream), "cudaMemsetAsync");
    }
    call(cudaMemsetAsync(out.at(), 0xff, whole_out.size(), cuda.stream), "cudaMemsetAsync");
    call(cudaMemsetAsync(dx.at(), 0xff, whole_dx.size(), cuda.stream), "cudaMemsetAsync");
    call(cudaMemsetAsync(grad.at(), 0xff, whole_grad.size(), cuda.stream), "cudaMemsetAsync");
    for (int i = 0; i < 4; i++) {
        bool returns = i >= 2, ends = halves[i] == back;
        struct ht_sub_op_reads reads =
            returns ? ht_sub_ops_backward_read(false, halves[i]) : ht_sub_ops_read(f.gpu.model->arch, halves[i]);
        struct ht_block_acts some = {};
        for (int s = 0; s < HT_SUB_FC2; s++)
            if ((reads.sub_ops | (returns ? 0 : halves[i])) >> s & 1)
                some.of[s] = ends && handed >> s & 1 ? given[0].at() : act.of[s];
        if (handed && (returns || !ends)) some.handed = given[returns].at();
        struct buffer work =
            buffer_of(ht_cuda_block_workspace_bytes(f.gpu.model, halves[i], c.B, c.T, c.dtype, returns));
        const void *in = reads.input ? x.at() : NULL;
        if (returns)
            ht_cuda_block_backward(&f.gpu, halves[i], params.at(), in, &some, ends ? dout.at() : NULL, dx.at(),
                                   grad.at(), work.at());
        else
            ht_cuda_block_forward(&f.gpu, halves[i], params.at(), in, &some, ends ? out.at() : NULL, work.at());
        contents_of(work);
        release(work);
    }
    for (int s = 0; s < HT_SUB_FC2; s++)
        expect(contents_of(parts[s]) == kept[s], "%s, front %u: %s of the halves differs", c.name, front,
               ht_sub_op_name((enum ht_sub_op)s));
    expect(bytes_of(out) == whole_out, "%s, front %u: the output of the halves differs", c.name, front);
    expect(bytes_of(dx) == whole_dx, "%s, front %u: dx of the halves differs", c.name, front);
    expect(bytes_of(grad) == whole_grad, "%s, front %u: gradients of the halves differ", c.name, front);
    for (struct buffer &b : given) release(b);
}

/* Returns true if a case's block is cut behind a front: behind any, or, where emulation is slow, behind the attention and in a
   place that goes by the case. */
static bool is_cut(const struct unit_case &c, unsigned front)
{
    bool slow = emulated && (SANITIZED || c.C > 100);
    if (front == HT_ATTENTION_HALF) return true;
    if (slow && front != ht_front(1 + (c.C + c.T + c.dtype) % (HT_N_SUB_OPS - 1))) return false;
    return !ht_arch_post_norm(c.arch);
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
    for (int n = 1; n < HT_N_SUB_OPS; n++)
        if (is_cut(c, ht_front(n))) check_halves(f, ht_front(n), act, parts, bp, bx, bd, bo, bdx, bg);
    for (int s = 0; s < HT_SUB_FC2; s++) release(parts[s]);
    for (struct buffer *b : {&bp, &bx, &bo, &bd, &bdx, &bg, &small, &large}) release(*b);
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
    {"LLaMA, shared keys", HT_ARCH_LLAMA, 128, 2, 1, 40, 32, 1, 70, true, false, HT_BF16, HT_F32, HT_F32},
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

CUDA_TEST_MAIN({"blocks", blocks}, {"placement", placement}, {"ends", ends}, {"failures", failures})
