/* AdamW, its undo, the gradient check and initial values: the CPU's bits, whatever the numbers are. */
#include "common/kernels/cuda/ht_cuda_optimizer.h"
#include "tests/support/cuda_test.h"

extern "C" {
#include "common/kernels/grad_check.h"
#include "common/kernels/undo.h"
#include "common/kernels/unit.h"
}

/* Numbers of all sizes: uniform bits, so infinities and NaNs too, every third of an ordinary size. */
static floats wild(uint64_t seed, int64_t n, bool nans)
{
    floats x((size_t)n);
    for (int64_t i = 0; i < n; i++) {
        float f = ht_bits_float((uint32_t)ht_random(seed, (uint64_t)i));
        if (i % 3 == 0 || (!nans && !isfinite(f))) f = ht_random_float(seed + 1, (uint64_t)i) - 0.5f;
        x[(size_t)i] = f;
    }
    return x;
}

struct state {
    floats p, m, v, g;
};

static struct state state_of(int64_t n, enum ht_dtype grad, bool is_wild)
{
    struct state s;
    s.p = is_wild ? wild(1, n, true) : numbers(1, n, 1, HT_F32);
    s.m = is_wild ? wild(2, n, true) : numbers(2, n, 1e-3f, HT_F32);
    s.v = is_wild ? wild(3, n, true) : numbers(3, n, 1e-6f, HT_F32);
    s.g = is_wild ? wild(4, n, true) : numbers(4, n, 1e-2f, HT_F32);
    for (float &v : s.v) v = is_wild && v < -1e30f ? v : fabsf(v);
    for (float &g : s.g) g = rounded(grad, g);
    return s;
}

static struct ht_adamw_step step_of(int64_t step)
{
    struct ht_adamw c = {1e-3, 0.9, 0.95, 1e-8, 0.1};
    return ht_adamw_step(&c, step, 0.37);
}

struct device_state {
    struct buffer p, m, v, g, copy;
    struct ht_cuda_adamw a;
};

static struct device_state upload(const struct state &s, enum ht_dtype grad, enum ht_dtype copy, int64_t shift)
{
    struct device_state d;
    int64_t n = (int64_t)s.p.size();
    d.p = put(HT_F32, s.p, shift);
    d.m = put(HT_F32, s.m, shift);
    d.v = put(HT_F32, s.v, shift);
    d.g = put(grad, s.g, shift);
    d.copy = room(copy, copy == HT_F32 ? 0 : n, shift);
    struct ht_cuda_adamw a = {(float *)d.p.at(),
                              (float *)d.m.at(),
                              (float *)d.v.at(),
                              d.g.at(),
                              grad,
                              copy == HT_F32 ? NULL : d.copy.at(),
                              copy,
                              n};
    d.a = a;
    return d;
}

static void release_all(struct device_state &d)
{
    for (struct buffer *b : {&d.p, &d.m, &d.v, &d.g, &d.copy}) release(*b);
}

static void expect_state(const struct device_state &d, const struct state &s)
{
    expect_bits("p", get(HT_F32, d.p), s.p);
    expect_bits("m", get(HT_F32, d.m), s.m);
    expect_bits("v", get(HT_F32, d.v), s.v);
    if (!d.a.copy) return;
    floats expected = s.p;
    for (float &x : expected) x = rounded(d.a.copy_type, x);
    expect_bits("copy", get(d.a.copy_type, d.copy), expected);
}

static struct state stepped(struct state s, const struct ht_adamw_step *step)
{
    ht_adamw_update(step, s.p.data(), s.m.data(), s.v.data(), s.g.data(), (int64_t)s.p.size());
    return s;
}

static void update(void)
{
    int64_t most = emulated ? 5001 : 3000001;
    for (enum ht_dtype grad : every_type)
        for (enum ht_dtype copy : every_type)
            for (int64_t n : {(int64_t)1, (int64_t)7, most})
                for (bool is_wild : {false, true}) {
                    int64_t shift = n == 7 ? 4 : 0;
                    struct ht_adamw_step step = step_of(n);
                    struct state s = state_of(n, grad, is_wild);
                    struct device_state d = upload(s, grad, copy, shift);
                    ht_cuda_adamw_update(&cuda, &step, &d.a);
                    expect_state(d, stepped(s, &step));
                    release_all(d);
                }
}

static struct ht_cuda_undo_header header_of(const struct buffer &log)
{
    struct ht_cuda_undo_header h;
    call(cudaMemcpyAsync(&h, log.at(), sizeof(h), cudaMemcpyDeviceToHost, cuda.stream), "cudaMemcpyAsync");
    finish();
    return h;
}

/* NaNs come back as they were: payloads too. */
static void expect_same_bits(const struct buffer &b, const floats &x)
{
    std::vector<unsigned char> bytes = bytes_of(b);
    expect(memcmp(bytes.data(), x.data(), bytes.size()) == 0, "not what it was before the step");
}

static void check_undo(int64_t n, enum ht_dtype grad, enum ht_dtype copy, bool is_wild, int64_t exceptions,
                       int64_t shift = 0)
{
    struct ht_adamw_step step = step_of(3);
    struct state s = state_of(n, grad, is_wild), after = stepped(s, &step);
    struct device_state d = upload(s, grad, copy, shift);
    int64_t bytes = ht_undo_log_bytes(n, exceptions);
    struct buffer log = buffer_of(bytes);
    for (int turn = 0; turn < 2; turn++) {
        ht_cuda_adamw_step_logged(&cuda, &step, &d.a, log.at(), bytes);
        struct ht_cuda_undo_header h = header_of(log);
        bool fits = (int64_t)h.exceptions <= exceptions;
        expect(h.state == (fits ? HT_CUDA_UNDO_STEPPED : HT_CUDA_UNDO_REFUSED), "state %u", h.state);
        expect(fits || exceptions < 3 * n, "refused, though there is room for all");
        expect_state(d, fits ? after : s);
        ht_cuda_adamw_undo(&cuda, &d.a, log.at(), bytes);
        expect_same_bits(d.p, s.p);
        expect_same_bits(d.m, s.m);
        expect_same_bits(d.v, s.v);
        expect_state(d, s);
        expect(header_of(log).state == HT_CUDA_UNDO_EMPTY, "the log is not empty");
        ht_cuda_adamw_undo(&cuda, &d.a, log.at(), bytes); /* an empty log: nothing */
        expect_same_bits(d.p, s.p);
    }
    finish();
    release(log);
    release_all(d);
}

static void undo(void)
{
    for (enum ht_dtype grad : every_type)
        for (enum ht_dtype copy : every_type)
            for (int64_t n : {(int64_t)1, (int64_t)1023, (int64_t)(emulated ? 3079 : 1000003)}) {
                check_undo(n, grad, copy, false, ht_undo_usual_exceptions(n));
                check_undo(n, grad, copy, true, 3 * n);
                check_undo(n, grad, copy, true, n / 8); /* too few */
                check_undo(n, grad, copy, true, 3 * n, 4);
            }
}

/* A log of another length, and garbage: nothing happens. */
static void no_log(void)
{
    struct state s = state_of(100, HT_F32, false);
    struct device_state d = upload(s, HT_F32, HT_F32, 0);
    struct ht_adamw_step step = step_of(1);
    int64_t bytes = ht_undo_log_bytes(100, 300);
    struct buffer log = buffer_of(bytes);
    ht_cuda_adamw_undo(&cuda, &d.a, log.at(), bytes);
    expect_same_bits(d.p, s.p);
    d.a.n = 99;
    ht_cuda_adamw_step_logged(&cuda, &step, &d.a, log.at(), bytes);
    floats p = get(HT_F32, d.p);
    d.a.n = 100;
    ht_cuda_adamw_undo(&cuda, &d.a, log.at(), bytes);
    expect_bits("p", get(HT_F32, d.p), p);
    finish();
    release(log);
    release_all(d);
}

static void check_validate(enum ht_dtype t, floats x, int64_t shift)
{
    int64_t n = (int64_t)x.size();
    struct ht_adamw_step step = step_of(1);
    std::vector<uint16_t> half((size_t)n);
    for (int64_t i = 0; i < n; i++) {
        x[(size_t)i] = rounded(t, x[(size_t)i]);
        half[(size_t)i] = t == HT_F16 ? ht_f32_to_f16(x[(size_t)i]) : ht_f32_to_bf16(x[(size_t)i]);
    }
    struct ht_grad_partial cpu = ht_grad_check(NULL, &step, t == HT_F32 ? (void *)x.data() : half.data(), t, n);
    struct buffer b = put(t, x, shift), to = buffer_of(sizeof(struct ht_cuda_grad_partial));
    ht_cuda_grad_check(&cuda, &step, t, b.at(), n, (struct ht_cuda_grad_partial *)to.at());
    struct ht_cuda_grad_partial gpu;
    memcpy(&gpu, contents_of(to).data(), sizeof(gpu));
    expect((gpu.bad == 0) == cpu.fits, "%lld of %s: bad is %u", (long long)n, ht_dtype_name(t), gpu.bad);
    expect(memcmp(&gpu.squares, &cpu.squares, 8) == 0 || (isnan(gpu.squares) && isnan(cpu.squares)),
           "%lld of %s: %.17g, expected %.17g", (long long)n, ht_dtype_name(t), gpu.squares, cpu.squares);
    release(b);
    release(to);
}

static void grad_check(void)
{
    for (enum ht_dtype t : every_type) {
        for (int64_t n : {1, 15, 16, 17, 1000, 5000, 70001}) check_validate(t, numbers(1, n, 3, t), n == 1000 ? 4 : 0);
        check_validate(t, numbers(3, HT_GRAD_PART_ELEMENTS * 3 + 1, 3, t), 2 * ht_dtype_bytes(t));
        if (!emulated) check_validate(t, numbers(1, 20000003, 3, t), 0);
        floats x = numbers(2, 5000, 1, t);
        for (float bad : {INFINITY, -INFINITY, (float)NAN, 1e20f})
            for (size_t at : {(size_t)0, (size_t)2345, (size_t)4999}) {
                floats y = x;
                y[at] = bad;
                check_validate(t, y, 0);
            }
    }
}

/* More elements than parts of the smallest size hold. */
static void check_many(void)
{
    int64_t n = (int64_t)HT_GRAD_PARTS * HT_GRAD_PART_ELEMENTS + 5003;
    check_validate(HT_BF16, numbers(4, n, 1, HT_BF16), 0);
}

static void initial_values(void)
{
    struct ht_model gpt = {}, llama = {};
    gpt.arch = HT_ARCH_GPT;
    gpt.layers = 3;
    gpt.width = 12;
    gpt.heads = 2;
    gpt.ffn = 48;
    gpt.vocab = 101;
    gpt.max_seq = 9;
    gpt.tied = true;
    llama = gpt;
    llama.arch = HT_ARCH_LLAMA;
    llama.kv_heads = 1;
    llama.tied = false;
    for (const struct ht_model *m : {&gpt, &llama})
        for (int64_t unit : {0, 1, 3, 4})
            for (enum ht_dtype t : every_type) {
                int64_t n = ht_unit_params(m, unit);
                floats expected((size_t)n);
                ht_unit_init(m, unit, 77, expected.data());
                for (float &x : expected) x = rounded(t, x);
                struct buffer b = room(t, n);
                ht_cuda_unit_init(&cuda, m, unit, 77, t, b.at());
                expect_bits("initial values", get(t, b), expected);
                release(b);
            }
}

CUDA_TEST_MAIN({"update", update}, {"undo", undo}, {"no_log", no_log}, {"judge", grad_check},
               {"judge_many", check_many}, {"initial_values", initial_values})
