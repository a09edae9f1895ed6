/*
 * Tensor-parallel parts of whole units against the CPU's in FP32, from the same rounded inputs, to the tolerances of
 * test_cuda_unit.cu. The parts run on the CPU first, a thread each; on the GPU one after the other, each given what it
 * got from the others there.
 */
#include <pthread.h>

#include <thread>

#include "tests/common/kernels/cuda/cuda_unit.h"

extern "C" {
#include "common/kernels/convert.h"
}

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

CUDA_TEST_MAIN({"in_parts", in_parts})
