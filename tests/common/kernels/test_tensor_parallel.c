/*
 * Units in parts against the same units whole. Each part is a thread with its own parameters; they meet to add up. From
 * tokens to the loss and back through an embedding, a block and a head.
 *
 * A sum over heads or columns is cut into n, so results differ by roundings. In FP32 we ask for a norm of the
 * difference of 1e-6 (F16 and BF16, which round each part's share to storage: 4 u; u = 2^-11, 2^-8) of the norm of what
 * is compared. What every part has is asked to be the same in all, bit for bit. A classifier's head and ViT's embedding
 * are whole in every part. Parts that cut rows, too, are compared by these.
 */
#include <check.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/array.h"
#include "common/kernels/convert.h"
#include "common/kernels/unit.h"

enum { MOST = 4, B = 2, T = 10, UNITS = 3, HEAD = 2 };

/* Returns the tokens of a sequence: an image has as many as the model has positions. */
static int64_t seq_of(const struct ht_model *m)
{
    return m->image ? m->max_seq : T;
}

/* ---- the link ---- */

struct room {
    pthread_barrier_t barrier;
    int32_t parts;
    const void *brought[MOST];
};

struct door {
    struct room *room;
    int32_t part;
    struct ht_part_link link;
};

static void sum(void *ctx, void *data, enum ht_dtype type, int64_t n)
{
    const struct door *d = ctx;
    float *total = HT_NEW_ARRAY(float, n), *term = HT_NEW_ARRAY(float, n);
    d->room->brought[d->part] = data;
    pthread_barrier_wait(&d->room->barrier);
    for (int32_t q = 0; q < d->room->parts; q++) {
        ht_widen_copy(NULL, d->room->brought[q], type, term, n);
        for (int64_t i = 0; i < n; i++) total[i] += term[i];
    }
    pthread_barrier_wait(&d->room->barrier);
    ht_round_copy(NULL, total, data, type, n);
    free(total);
    free(term);
}

static void gather(void *ctx, const void *mine, void *all, enum ht_dtype type, int64_t n)
{
    const struct door *d = ctx;
    d->room->brought[d->part] = mine;
    pthread_barrier_wait(&d->room->barrier);
    for (int32_t q = 0; q < d->room->parts; q++)
        memcpy(ht_element(all, type, q * n), d->room->brought[q], (size_t)(n * ht_dtype_bytes(type)));
    pthread_barrier_wait(&d->room->barrier);
}

static void scatter(void *ctx, const void *all, void *mine, enum ht_dtype type, int64_t n)
{
    const struct door *d = ctx;
    float *total = HT_NEW_ARRAY(float, n), *term = HT_NEW_ARRAY(float, n);
    d->room->brought[d->part] = all;
    pthread_barrier_wait(&d->room->barrier);
    for (int32_t q = 0; q < d->room->parts; q++) {
        ht_widen_copy(NULL, ht_element(d->room->brought[q], type, d->part * n), type, term, n);
        for (int64_t i = 0; i < n; i++) total[i] += term[i];
    }
    pthread_barrier_wait(&d->room->barrier);
    ht_round_copy(NULL, total, mine, type, n);
    free(total);
    free(term);
}

/* ---- a pass there and back ---- */

struct pass {
    struct ht_model model;
    enum ht_dtype dtype;
    const struct ht_part_link *link;
    void *params[UNITS], *grad[UNITS];
    void *x[UNITS], *dx[UNITS]; /* of the block and the head */
    float *logits;
    double loss;
};

static void *new_bytes(int64_t n)
{
    void *p = malloc((size_t)n + 1);
    memset(p, 0x7f, (size_t)n + 1); /* NaN */
    return p;
}

static void pass_init(struct pass *p, const struct ht_model *whole)
{
    int64_t e = ht_dtype_bytes(p->dtype);
    for (int u = 0; u < UNITS; u++) {
        int64_t n = ht_unit_params(&p->model, u), all = ht_unit_params(whole, u);
        float *init = HT_NEW_ARRAY(float, all), *own = HT_NEW_ARRAY(float, n);
        ht_unit_init(whole, u, 3, init);
        for (int64_t i = 0; i < all; i++) init[i] += 0.05f * sinf((float)(i * 7 % 101 + u)); /* norms and biases, too */
        struct ht_part_run r;
        for (int64_t at = 0; at < n; at += r.count) {
            r = ht_unit_part_run(&p->model, u, at);
            memcpy(own + at, init + r.whole, (size_t)r.count * sizeof(float));
        }
        p->params[u] = new_bytes(n * e);
        p->grad[u] = new_bytes(n * e);
        ht_round_copy(NULL, own, p->params[u], p->dtype, n);
        int64_t input = ht_unit_input_bytes(&p->model, u, B, seq_of(&p->model), p->dtype);
        p->x[u] = new_bytes(input);
        p->dx[u] = new_bytes(input);
        free(init);
        free(own);
    }
    p->logits = new_bytes(ht_logits_bytes(&p->model, B, seq_of(&p->model)));
}

static void pass_free(struct pass *p)
{
    for (int u = 0; u < UNITS; u++) {
        free(p->params[u]);
        free(p->grad[u]);
        free(p->x[u]);
        free(p->dx[u]);
    }
    free(p->logits);
}

static void *run(void *arg)
{
    struct pass *p = arg;
    const struct ht_model *m = &p->model;
    int64_t seq = seq_of(m);
    struct ht_unit_args a = {.model = m,
                             .batch = B,
                             .seq = seq,
                             .dtype = p->dtype,
                             .grad = p->dtype,
                             .grad_store = p->dtype,
                             .link = p->link};
    int targets_below = (int)(m->classes ? m->classes : m->vocab);
    int32_t tokens[B * T], targets[B * T];
    unsigned char pixels[B * 144];
    const void *input = m->image ? (const void *)pixels : tokens;
    void *scratch[2][UNITS], *kept = new_bytes(ht_unit_activation_bytes(m, 1, B, seq, p->dtype));
    void *head_kept = new_bytes(ht_unit_activation_bytes(m, HEAD, B, seq, p->dtype));
    for (int i = 0; i < B * T; i++) targets[i] = (i * 3 + 1) % targets_below;
    for (int i = 0; i < B * T && !m->image; i++) tokens[i] = i * 5 % (int)m->vocab;
    for (int i = 0; i < B * 144; i++) pixels[i] = (unsigned char)(i * 37 + i / 144 * i * 11);
    for (int u = 0; u < UNITS; u++)
        for (int back = 0; back < 2; back++)
            scratch[back][u] = new_bytes(ht_unit_workspace_bytes(m, u, B, seq, p->dtype, back));
    const void *wte = m->tied ? p->params[0] : NULL;
    struct ht_block_acts acts = ht_block_acts_at(&a, kept);
    ht_embedding_forward(&a, input, p->params[0], p->x[1], scratch[0][0]);
    ht_block_forward(&a, HT_ALL_SUB_OPS, p->params[1], p->x[1], &acts, p->x[HEAD], scratch[0][1]);
    ht_head_forward(&a, p->params[HEAD], wte, p->x[HEAD], head_kept, p->logits, targets, 0.5f, &p->loss,
                    scratch[0][HEAD]);
    ht_head_backward(&a, p->params[HEAD], wte, p->x[HEAD], head_kept, p->logits, p->dx[HEAD], p->grad[HEAD],
                     m->tied ? p->grad[0] : NULL, scratch[1][HEAD]);
    ht_block_forward(&a, 1u << HT_SUB_ATTENTION | 1u << HT_SUB_PROJ, p->params[1], p->x[1], &acts, NULL, scratch[0][1]);
    ht_block_backward(&a, HT_ALL_SUB_OPS, p->params[1], p->x[1], &acts, p->dx[HEAD], p->dx[1], p->grad[1],
                      scratch[1][1]);
    ht_embedding_backward(&a, input, p->dx[1], p->grad[0], scratch[1][0]);
    for (int u = 0; u < UNITS; u++)
        for (int back = 0; back < 2; back++) free(scratch[back][u]);
    free(kept);
    free(head_kept);
    return NULL;
}

/* ---- comparison ---- */

static double value(const void *x, enum ht_dtype t, int64_t i)
{
    float y;
    ht_widen_copy(NULL, ht_element(x, t, i), t, &y, 1);
    return y;
}

struct difference {
    double difference, norm;
};

static void compare(struct difference *d, double got, double expected)
{
    d->difference += (got - expected) * (got - expected);
    d->norm += expected * expected;
}

static void conclude(struct difference *d, double *worst)
{
    ck_assert(isfinite(d->difference));
    double relative = sqrt(d->difference / d->norm);
    if (relative > *worst) *worst = relative;
    *d = (struct difference){0};
}

/* Compares n elements of a part with those of the whole from `from` on, by the norm of all of the whole's. */
static void compare_rows(struct difference *d, const void *part, const void *whole, enum ht_dtype t, int64_t from,
                         int64_t n, int64_t all)
{
    for (int64_t i = 0; i < n; i++) compare(d, value(part, t, i), value(whole, t, from + i));
    d->norm = 0;
    for (int64_t i = 0; i < all; i++) d->norm += value(whole, t, i) * value(whole, t, i);
}

static void compare_pass(const struct pass *part, const struct pass *whole, double *worst)
{
    struct difference d = {0};
    enum ht_dtype t = whole->dtype;
    int64_t V = ht_model_outputs(&part->model), C = whole->model.width;
    int64_t all = B * seq_of(&whole->model) * C, elements = ht_model_rows(&part->model, all);
    int64_t from = part->model.sequence ? part->model.part * elements : 0; /* rows that the part has */
    int64_t first = whole->model.classes ? 0 : ht_model_first_token(&part->model);
    for (int u = 1; u < UNITS; u++) {
        compare_rows(&d, part->x[u], whole->x[u], t, from, elements, all);
        conclude(&d, worst);
        compare_rows(&d, part->dx[u], whole->dx[u], t, from, elements, all);
        conclude(&d, worst);
    }
    for (int64_t r = 0; r < B * ht_model_head_rows(&whole->model, T); r++)
        for (int64_t v = 0; v < V; v++)
            compare(&d, part->logits[r * ht_logits_stride(&part->model) + v],
                    whole->logits[r * ht_logits_stride(&whole->model) + first + v]);
    conclude(&d, worst);
    compare(&d, part->loss, whole->loss);
    conclude(&d, worst);
    for (int u = 0; u < UNITS; u++) {
        struct ht_part_run r;
        for (int64_t at = 0; at < ht_unit_params(&part->model, u); at += r.count) {
            r = ht_unit_part_run(&part->model, u, at);
            for (int64_t k = 0; k < r.count; k++)
                compare(&d, value(part->grad[u], t, at + k), value(whole->grad[u], t, r.whole + k));
        }
        conclude(&d, worst);
    }
}

/* Checks that data of every part are the same in this one as in part 0. */
static void same_as_first(const struct pass *p, const struct pass *first)
{
    int64_t e = ht_dtype_bytes(p->dtype);
    for (int u = 1; u < UNITS && !p->model.sequence; u++) {
        size_t bytes = (size_t)ht_unit_input_bytes(&p->model, u, B, seq_of(&p->model), p->dtype);
        ck_assert_mem_eq(p->x[u], first->x[u], bytes);
        ck_assert_mem_eq(p->dx[u], first->dx[u], bytes);
    }
    ck_assert(p->loss == first->loss);
    for (int u = 0; u < UNITS; u++) {
        struct ht_part_run r;
        int64_t more =
            u ? 0 : ht_unit_params(&first->model, u) - ht_unit_params(&p->model, u); /* tokens before positions */
        for (int64_t at = 0; at < ht_unit_params(&p->model, u); at += r.count) {
            r = ht_unit_part_run(&p->model, u, at);
            if (r.shared)
                ck_assert_mem_eq((char *)p->grad[u] + at * e, (char *)first->grad[u] + (at + more) * e,
                                 (size_t)(r.count * e));
        }
    }
}

static const struct ht_model models[] = {
    {.arch = HT_ARCH_GPT, .layers = 1, .width = 24, .heads = 4, .ffn = 20, .vocab = 13, .max_seq = 11, .tied = true},
    {.arch = HT_ARCH_GPT, .layers = 1, .width = 16, .heads = 4, .ffn = 64, .vocab = 13, .max_seq = 11, .flash = true},
    {.arch = HT_ARCH_LLAMA,
     .layers = 1,
     .width = 32,
     .heads = 8,
     .kv_heads = 4,
     .ffn = 12,
     .vocab = 14,
     .max_seq = 11,
     .rope_theta = 10000,
     .norm_eps = 1e-5,
     .flash = true},
    {.arch = HT_ARCH_BERT,
     .layers = 1,
     .width = 24,
     .heads = 4,
     .ffn = 20,
     .vocab = 14,
     .max_seq = 11,
     .classes = 3,
     .norm_eps = 1e-12},
    {.arch = HT_ARCH_VIT,
     .layers = 1,
     .width = 16,
     .heads = 4,
     .ffn = 32,
     .max_seq = 10,
     .image = 12,
     .patch = 4,
     .channels = 1,
     .classes = 5,
     .norm_eps = 1e-12},
};
static const char *const names[] = {
    [HT_ARCH_GPT] = "gpt", [HT_ARCH_LLAMA] = "llama", [HT_ARCH_BERT] = "bert", [HT_ARCH_VIT] = "vit"};

START_TEST(parts_against_the_whole)
{
    static const double bounds[] = {[HT_F32] = 1e-6, [HT_F16] = 4 * 0x1p-11, [HT_BF16] = 4 * 0x1p-8};
    enum ht_dtype dtype = (enum ht_dtype)(_i % 3);
    int32_t parts = _i / 3 % 2 ? 4 : 2;
    bool sequence = _i / 6 % 2;
    const struct ht_model *m = &models[_i / 12];
    struct pass whole = {.model = *m, .dtype = dtype}, part[MOST];
    struct room room = {.parts = parts};
    struct door doors[MOST];
    pthread_t threads[MOST];
    double worst = 0;
    pass_init(&whole, m);
    run(&whole);
    pthread_barrier_init(&room.barrier, NULL, (unsigned)parts);
    for (int32_t q = 0; q < parts; q++) {
        doors[q] = (struct door){&room, q, {&doors[q], sum, gather, scatter}};
        part[q] = (struct pass){.model = ht_model_part(m, q, parts), .dtype = dtype, .link = &doors[q].link};
        part[q].model.sequence = sequence;
        pass_init(&part[q], m);
        ck_assert_int_eq(pthread_create(&threads[q], NULL, run, &part[q]), 0);
    }
    for (int32_t q = 0; q < parts; q++) pthread_join(threads[q], NULL);
    for (int32_t q = 0; q < parts; q++) {
        compare_pass(&part[q], &whole, &worst);
        same_as_first(&part[q], &part[0]);
    }
    printf("%s %s, %d parts%s: %.1e\n", names[m->arch], ht_dtype_name(dtype), parts, sequence ? ", rows" : "", worst);
    ck_assert_msg(worst < bounds[dtype], "%.2e", worst);
    for (int32_t q = 0; q < parts; q++) pass_free(&part[q]);
    pass_free(&whole);
    pthread_barrier_destroy(&room.barrier);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("units in parts");
    TCase *tc = tcase_create("parts");
    tcase_add_loop_test(tc, parts_against_the_whole, 0, 12 * (int)HT_COUNT(models));
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
