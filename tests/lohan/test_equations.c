/* LoHan's equations and Algorithm 1, worked out by hand. Units are free; times come out in seconds. */
#include "common/base/array.h"
#include "common/base/rng.h"
#include "lohan/lohan.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>

enum { TRIALS = 1000, MOST_LAYERS = 60 };

/* Profile of P parameters in 16-bit numerics. */
static struct lohan_profile of_params(double params)
{
    return (struct lohan_profile){
        .param_bytes = 2 * params, .grad_bytes = 2 * params, .read_bytes = 12 * params, .write_bytes = 14 * params};
}

static double iteration_at(const struct lohan_profile *p, const struct lohan_layer *layers, int32_t n, double bytes)
{
    return lohan_iteration_s(p, bytes, lohan_recomputed_flops(p, layers, n, bytes));
}

/* ---- a toy of five layers -------------------------------------------------------------------------------------- */

/* OB of a to e: 8, 3, 2, 1.5, 0. */
static const struct lohan_layer toy[] = {{.bytes = 1, .flops = 8},
                                         {.bytes = 2, .flops = 6},
                                         {.bytes = 2, .flops = 4},
                                         {.bytes = 4, .flops = 6},
                                         {.bytes = 3, .flops = 0}};

static struct lohan_profile toy_profile(double params, double link)
{
    struct lohan_profile p = of_params(params);
    p.forward_flops = p.layer_flops = 24;
    p.flops_per_s = 2;
    p.link_bytes_per_s = link;
    p.ssd_read_bytes_per_s = p.ssd_write_bytes_per_s = 2;
    p.mem_bytes = 100;
    return p;
}

static void check_toy(const struct lohan_profile *p, const double expected[6])
{
    static const double amounts[] = {0, 1, 3, 5, 9, 12};
    for (int i = 0; i < 6; i++) ck_assert_double_eq(iteration_at(p, toy, 5, amounts[i]), expected[i]);
}

static struct lohan_amount choose(const struct lohan_profile *p, enum lohan_form form)
{
    return lohan_algorithm1(p, toy, 5, form, INFINITY);
}

/*
 * T_f = max(24/2, A/BW_G, 2P/BW_G, 2P/2), T_b = max((48 + FLOP_r)/2, 2P/BW_G, (2P + A)/BW_G, 14P/2 + 14P/2).
 * P = 0.5, BW_G = 1: T_b = max((48 + FLOP_r)/2, 1 + A, 7), FLOP_r = 24 16 10 6 0 0, so 12 + 36 32 29 27 24 24. The GPU
 * binds to the end, so all is swapped, as Sec. IV-D says of case 2; literally e is not, which has no operations. With
 * room for 9 it is not, either.
 */
START_TEST(the_gpu_binds)
{
    struct lohan_profile p = toy_profile(0.5, 1);
    struct lohan_amount x = choose(&p, LOHAN_LITERAL);
    check_toy(&p, (double[]){48, 44, 41, 39, 36, 36});
    ck_assert_int_eq(x.n, 4);
    ck_assert_double_eq(x.swapped_bytes, 9);
    ck_assert_double_eq(x.recomputed_flops, 0);
    ck_assert_int_eq(x.which, 2);
    x = choose(&p, LOHAN_MENDED);
    ck_assert_int_eq(x.n, 5);
    ck_assert_double_eq(x.swapped_bytes, 12);
    ck_assert_double_eq(x.iteration_s, 36);
    ck_assert_int_eq(x.which, 2);
    ck_assert_int_eq(lohan_algorithm1(&p, toy, 5, LOHAN_MENDED, 9).n, 4);
}
END_TEST

/* P = 1, BW_G = 0.5: T_f = max(12, 2A), T_b = max((48 + FLOP_r)/2, 2 (2 + A), 14). A = 9: 18 + 24; A = 12: 24 + 28. */
START_TEST(there_is_a_least_between)
{
    struct lohan_profile p = toy_profile(1, 0.5);
    struct lohan_amount x = choose(&p, LOHAN_MENDED);
    check_toy(&p, (double[]){48, 44, 41, 39, 42, 52});
    ck_assert_int_eq(x.n, 3);
    ck_assert_int_eq(x.which, 3);
    ck_assert_int_eq(choose(&p, LOHAN_LITERAL).n, 3);
    p = toy_profile(2, 1); /* T_b = max(.., 4 + A, 28): level from c on, where d's recomputation is hidden */
    check_toy(&p, (double[]){48, 44, 41, 40, 40, 40});
    ck_assert_int_eq(choose(&p, LOHAN_MENDED).n, 3);
    ck_assert_int_eq(choose(&p, LOHAN_MENDED).which, 3);
    p = toy_profile(0.5, 0.75); /* T_f = max(12, A/0.75): 12 up to A = 9, then e would make it 16 */
    check_toy(&p, (double[]){48, 44, 41, 39, 36, 40});
    ck_assert_int_eq(choose(&p, LOHAN_MENDED).n, 4);
    ck_assert_int_eq(choose(&p, LOHAN_MENDED).which, 3);
}
END_TEST

/* P = 3, BW_G = 1, A_interBlock = 5: T_b = 14P/2 + 14P/2 = 42 whatever A. a, b, c are the inputs; literally c is not
   swapped, since with it the amount is 5 already. */
START_TEST(transfers_bind)
{
    struct lohan_profile p = toy_profile(3, 1);
    p.inter_bytes = 5;
    check_toy(&p, (double[]){54, 54, 54, 54, 54, 54});
    struct lohan_amount literal = choose(&p, LOHAN_LITERAL), mended = choose(&p, LOHAN_MENDED);
    ck_assert_int_eq(literal.which, 1);
    ck_assert_int_eq(literal.n, 2);
    ck_assert_double_eq(literal.swapped_bytes, 3);
    ck_assert_int_eq(mended.which, 1);
    ck_assert_int_eq(mended.n, 3);
    ck_assert_double_eq(mended.swapped_bytes, 5);
}
END_TEST

/* LoHan+CpuAct: no more than 4 bytes fit; a and b are 3, c would make it 5. Inputs are swapped all the same. */
START_TEST(main_memory_bounds_it)
{
    struct lohan_profile p = toy_profile(0.5, 1);
    struct lohan_amount x = lohan_algorithm1(&p, toy, 5, LOHAN_MENDED, 4);
    ck_assert_int_eq(x.n, 2);
    ck_assert_int_eq(x.which, 0);
    p.inter_bytes = 5;
    ck_assert_int_eq(lohan_algorithm1(&p, toy, 5, LOHAN_MENDED, 4).n, 3);
}
END_TEST

/*
 * P = 1, BW_G = 0.5, MEM_avail = 4, A = 9, FLOP_r = 0: A_ssd = 5.
 * T_f = max(24/2 = 12, 9/0.5 = 18, 2/0.5 = 4, 2/2 + 5/2 = 3.5)
 * T_b = max(48/2 = 24, 2/0.5 = 4, (2 + 9)/0.5 = 22, (14 + 5)/2 + 14/2 = 16.5)
 */
START_TEST(each_term_of_the_maxima)
{
    struct lohan_profile p = toy_profile(1, 0.5);
    p.mem_bytes = 4;
    ck_assert_double_eq(lohan_ssd_bytes(&p, 9), 5);
    ck_assert_double_eq(lohan_ssd_bytes(&p, 3), 0); /* eq. 3 as printed: -1 */
    ck_assert_double_eq(lohan_forward_s(&p, 9), 18);
    ck_assert_double_eq(lohan_backward_s(&p, 9, 0), 24);
    ck_assert_double_eq(lohan_iteration_s(&p, 9, 0), 42);
    p.flops_per_s = p.link_bytes_per_s = INFINITY; /* the SSDs alone */
    ck_assert_double_eq(lohan_forward_s(&p, 9), 3.5);
    ck_assert_double_eq(lohan_backward_s(&p, 9, 0), 16.5);
    p.mem_bytes = 100; /* eq. 3 as printed: 1 - 91/2 = -44.5 in T_f */
    ck_assert_double_eq(lohan_forward_s(&p, 9), 1);
    ck_assert_double_eq(lohan_backward_s(&p, 9, 0), 14);
    p.adam_s = 15;
    ck_assert_double_eq(lohan_backward_s(&p, 9, 0), 15);
    p.link_bytes_per_s = 0.1; /* gradients out: 2/0.1; in: (2 + 9)/0.1 */
    ck_assert_double_eq(lohan_backward_s(&p, 9, 0), 110);
    p.grad_bytes = 12;
    ck_assert_double_eq(lohan_backward_s(&p, 9, 0), 120);
}
END_TEST

/*
 * Four GPUs with A = 9 each, on one SSD array and one main memory: A_ssd = 36 - 4 = 32,
 * T_f = max(12, 18, 4, 2/2 + 32/2 = 17), T_b = max(24, 4, 22, (14 + 32)/2 + 14/2 = 30). The states' 14P are there once.
 */
START_TEST(gpus_share_ssds_and_main_memory)
{
    struct lohan_profile p = toy_profile(1, 0.5);
    p.mem_bytes = 4;
    p.gpus = 4;
    ck_assert_double_eq(lohan_ssd_bytes(&p, 9), 32);
    ck_assert_double_eq(lohan_ssd_bytes(&p, 1), 0);
    ck_assert_double_eq(lohan_forward_s(&p, 9), 18);
    ck_assert_double_eq(lohan_backward_s(&p, 9, 0), 30);
    p.link_bytes_per_s = INFINITY;
    ck_assert_double_eq(lohan_forward_s(&p, 9), 17);
}
END_TEST

/* A = 4 is a, b, and half of c: FLOP_r = 24 - 8 - 6 - 4/2 = 8, with the slope -OB_c = -2. */
START_TEST(layers_count_in_part)
{
    struct lohan_profile p = toy_profile(1, 1);
    ck_assert_double_eq(lohan_recomputed_flops(&p, toy, 5, 4), 8);
    ck_assert_double_eq(lohan_recomputed_slope(toy, 5, 4), -2);
    ck_assert_double_eq(lohan_recomputed_slope(toy, 5, 5), -1.5);
    ck_assert_double_eq(lohan_recomputed_slope(toy, 5, 12), 0);
    ck_assert_double_eq(lohan_recomputed_flops(&p, toy, 5, 12), 0);
    ck_assert_double_eq(lohan_benefit(&toy[3]), 1.5);
}
END_TEST

START_TEST(equal_benefits_keep_their_order)
{
    struct lohan_layer x[] = {{.bytes = 1, .flops = 1, .unit = 1}, {.bytes = 2, .flops = 4, .unit = 2},
                              {.bytes = 3, .flops = 3, .unit = 3}, {.bytes = 1, .flops = 2, .unit = 4},
                              {.bytes = 1, .flops = 0, .unit = 5}, {.bytes = 9, .flops = 9, .unit = 6}};
    static const int32_t sorted[] = {2, 4, 1, 3, 6, 5};
    lohan_sort(x, 6);
    for (int i = 0; i < 6; i++) ck_assert_int_eq(x[i].unit, sorted[i]);
}
END_TEST

/* ---- 13B -------------------------------------------------------------------------------------------------------- */

/* GPT-3 13B's 40 blocks, u = 2 B s h bytes, f = B s h^2 FLOP: fc2 u, 8f; proj u, 2f; qkv 3u, 6f; fc1 4u, 8f; attention u,
   4 (s/h) f; norms, GELU and masks 7u. 17 u and 24.8 f a block. */
static int32_t layers_13b(double batch, struct lohan_layer *x, struct lohan_profile *p)
{
    double s = 1024, h = 5120, u = 2 * batch * s * h, f = batch * s * h * h;
    const struct lohan_layer block[] = {{.bytes = u, .flops = 8 * f},     {.bytes = u, .flops = 2 * f},
                                        {.bytes = 3 * u, .flops = 6 * f}, {.bytes = 4 * u, .flops = 8 * f},
                                        {.bytes = u, .flops = 0.8 * f},   {.bytes = 7 * u, .flops = 0}};
    int32_t n = 0;
    *p = of_params(12.84e9);
    for (int32_t l = 0; l < 40; l++)
        for (size_t i = 0; i < HT_COUNT(block); i++) {
            x[n++] = block[i];
            p->layer_flops += block[i].flops;
        }
    lohan_sort(x, n);
    p->forward_flops = p->layer_flops;
    p->inter_bytes = 40 * u;
    p->flops_per_s = 143e12;
    p->link_bytes_per_s = 22e9;
    p->ssd_read_bytes_per_s = 32e9;
    p->ssd_write_bytes_per_s = 24.5e9;
    p->mem_bytes = 600e9;
    return n;
}

/*
 * Batch 32: u = 335.5e6. T_b's SSD term is 14P/32e9 + 14P/24.5e9 = 5.618 + 7.337 = 12.955, which the GPU's term (2 FLOP_f
 * + FLOP_r)/THP_G meets at FLOP_r = 0.1741 FLOP_f: after 40 inputs (8f), 31 blocks' proj, qkv and fc1 (16f), a proj (2f)
 * and a qkv (6f). T_f = 8.521e14/143e12 = 5.959.
 */
START_TEST(thirteen_billion)
{
    static const struct {
        double batch, flops, bytes, recomputed, forward_s, backward_s, iteration_s, at_inter_s, at_all_s;
        int32_t n, which;
    } rows[] = {{24, 6.391e14, 9.81e9, 0.6855, 4.469, 12.955, 17.424, 17.424, 20.733, 39, 1},
                {32, 8.521e14, 97.98e9, 0.1694, 5.959, 12.955, 18.914, 21.913, 23.326, 135, 3},
                {36, 9.586e14, 147.6e9, 0.0073, 6.709, 13.456, 20.165, 24.653, 25.075, 191, 3}};
    for (size_t i = 0; i < HT_COUNT(rows); i++) {
        struct lohan_layer layers[240];
        struct lohan_profile p;
        int32_t n = layers_13b(rows[i].batch, layers, &p);
        double all = 17 * p.inter_bytes;
        struct lohan_amount x = lohan_algorithm1(&p, layers, n, LOHAN_LITERAL, INFINITY);
        ck_assert_double_eq_tol(p.forward_flops, rows[i].flops, 0.001e14);
        ck_assert_int_eq(x.n, rows[i].n);
        ck_assert_int_eq(x.which, rows[i].which);
        ck_assert_double_eq_tol(x.swapped_bytes, rows[i].bytes, 0.05e9);
        ck_assert_double_eq_tol(x.recomputed_flops / p.forward_flops, rows[i].recomputed, 5e-5);
        ck_assert_double_eq_tol(lohan_forward_s(&p, x.swapped_bytes), rows[i].forward_s, 6e-4);
        ck_assert_double_eq_tol(lohan_backward_s(&p, x.swapped_bytes, x.recomputed_flops), rows[i].backward_s, 6e-4);
        ck_assert_double_eq_tol(x.iteration_s, rows[i].iteration_s, 6e-4);
        ck_assert_double_eq_tol(iteration_at(&p, layers, n, p.inter_bytes), rows[i].at_inter_s, 6e-4);
        ck_assert_double_eq_tol(iteration_at(&p, layers, n, all), rows[i].at_all_s, 6e-4);
        struct lohan_amount mended = lohan_algorithm1(&p, layers, n, LOHAN_MENDED, INFINITY);
        ck_assert_int_eq(mended.n, rows[i].n + (rows[i].which == 1)); /* the 40th block's input, too */
    }
}
END_TEST

/* 13B, batch 32: 2 B s h L = 12.5 GiB of inputs, 17 times that in all, 228.2e9 bytes; 14 x 13e9 = 182e9 bytes of states,
   and what the planner counts of a model of that shape: 40 (12 h^2 + 13 h) + (V + s) h + 2 h parameters. */
START_TEST(sizes_of_thirteen_billion)
{
    struct lohan_layer layers[40 * HT_N_PARTS];
    struct lohan_profile p;
    struct ht_error err = {0};
    struct ht_model m = {.arch = HT_ARCH_GPT,
                         .layers = 40,
                         .width = 5120,
                         .heads = 40,
                         .ffn = 20480,
                         .vocab = 50257,
                         .max_seq = 1024,
                         .tied = true,
                         .flash = true};
    struct ht_scenario sc = {
        .model = m, .batch = 32, .micro_batch = 32, .seq = 1024, .numerics = {HT_F16, HT_F16, HT_F32, HT_F16}};
    double h = 5120, params = 40 * (12 * h * h + 13 * h) + (50257 + 1024) * h + 2 * h, sum = 0;
    layers_13b(32, layers, &p);
    for (int i = 0; i < 240; i++) sum += layers[i].bytes;
    ck_assert_double_eq(p.inter_bytes, 12.5 * 1073741824);
    ck_assert_double_eq(sum, 212.5 * 1073741824);
    ck_assert_double_eq_tol(sum, 228.2e9, 0.05e9);
    ck_assert_double_eq(of_params(13e9).write_bytes, 182e9);
    ck_assert_int_eq(lohan_measure(&sc, NULL, &err, &p), HT_OK);
    ck_assert_double_eq(p.inter_bytes, 12.5 * 1073741824);
    ck_assert_double_eq(p.write_bytes, 14 * params);
    ck_assert_double_eq(p.read_bytes, 12 * params);
    ck_assert_double_eq(p.param_bytes, 2 * params);
    ck_assert_int_eq(lohan_layers(&sc, layers), 40 * HT_N_PARTS);
    for (int i = 0; i < 40; i++) ck_assert_int_eq(layers[i].part, HT_PART_INPUT); /* 8f / u: the most */
    for (int i = 0; i < 3 * 40; i += 3) {                                         /* 2f / u each, block by block */
        ck_assert_int_eq(layers[40 + i].part, HT_SUB_PROJ);
        ck_assert_int_eq(layers[40 + i + 1].part, HT_SUB_QKV);
        ck_assert_int_eq(layers[40 + i + 2].part, HT_SUB_FC1);
        ck_assert_int_eq(layers[40 + i].unit, i / 3 + 1);
    }
    double flops = 0;
    for (int i = 0; i < 40 * HT_N_PARTS; i++) flops += layers[i].flops;
    ck_assert_double_eq_tol(flops, p.layer_flops, 1e3);
    ck_assert_double_eq_tol(flops, 40 * 24.8 * 32 * 1024 * h * h, 1e3);
}
END_TEST

/* ---- random profiles -------------------------------------------------------------------------------------------- */

struct draw {
    uint64_t seed, n;
};

static double below(struct draw *d, int most)
{
    return (double)(1 + ht_random_below(d->seed, d->n++, (uint64_t)most));
}

static int32_t draw_profile(uint64_t seed, struct draw *d, struct lohan_layer *layers, struct lohan_profile *p)
{
    *d = (struct draw){.seed = seed};
    int32_t n = (int32_t)below(d, MOST_LAYERS), inter = (int32_t)below(d, n);
    double bytes = 0;
    *p = of_params(below(d, 40));
    for (int32_t i = 0; i < n; i++) {
        layers[i] = (struct lohan_layer){.bytes = below(d, 20), .flops = below(d, 40) - 1};
        p->layer_flops += layers[i].flops;
    }
    lohan_sort(layers, n);
    for (int32_t i = 0; i < inter; i++) p->inter_bytes += layers[i].bytes;
    for (int32_t i = 0; i < n; i++) bytes += layers[i].bytes;
    p->forward_flops = p->layer_flops + below(d, 100) - 1;
    p->flops_per_s = below(d, 50);
    p->link_bytes_per_s = below(d, 50);
    p->ssd_read_bytes_per_s = below(d, 100);
    p->ssd_write_bytes_per_s = below(d, 100);
    p->mem_bytes = below(d, (int)bytes + 10) - 1;
    if (below(d, 3) == 1) p->adam_s = below(d, 50);
    return n;
}

START_TEST(the_iteration_is_convex)
{
    int strict = 0;
    for (uint64_t seed = 0; seed < TRIALS; seed++) {
        struct lohan_layer layers[MOST_LAYERS];
        struct lohan_profile p;
        struct draw d;
        int32_t n = draw_profile(seed, &d, layers, &p);
        double all = 0;
        for (int32_t i = 0; i < n; i++) all += layers[i].bytes;
        for (int k = 0; k < 50; k++) {
            double a = all * (below(&d, 1001) - 1) / 1000, b = all * (below(&d, 1001) - 1) / 1000;
            double share = (below(&d, 1001) - 1) / 1000, between = share * a + (1 - share) * b;
            double chord = share * iteration_at(&p, layers, n, a) + (1 - share) * iteration_at(&p, layers, n, b);
            double t = iteration_at(&p, layers, n, between);
            ck_assert_msg(t <= chord * (1 + 1e-12), "seed %llu: T(%g) = %.15g above the chord's %.15g",
                          (unsigned long long)seed, between, t, chord);
            strict += t < chord * (1 - 1e-6);
        }
    }
    ck_assert_int_gt(strict, TRIALS); /* not all of them lines */
}
END_TEST

/* Of equal prefixes the best is the whole in case 2, when only layers without operations are left and something fell
   since A_interBlock; else the shortest. */
START_TEST(mended_is_the_best_prefix)
{
    int cases[4] = {0}, shorter = 0, crossed = 0;
    for (uint64_t seed = 0; seed < TRIALS; seed++) {
        struct lohan_layer layers[MOST_LAYERS];
        struct lohan_profile p;
        struct draw d;
        int32_t n = draw_profile(seed, &d, layers, &p), best = 0;
        double bytes = 0, flops = p.layer_flops, least = INFINITY, at_inter = INFINITY, t = INFINITY, rest = 0;
        for (int32_t i = 0; i < n; i++) {
            bytes += layers[i].bytes;
            flops -= layers[i].flops;
            t = lohan_iteration_s(&p, bytes, flops);
            if (bytes >= p.inter_bytes && isinf(at_inter)) at_inter = t;
            if (bytes < p.inter_bytes || t >= least) continue;
            least = t;
            best = i + 1;
        }
        for (int32_t i = best; i < n; i++) rest += layers[i].flops;
        bool all = t == least && rest == 0 && least < at_inter;
        crossed += all && best < n;
        if (all) best = n;
        struct lohan_amount x = lohan_algorithm1(&p, layers, n, LOHAN_MENDED, INFINITY);
        ck_assert_msg(x.n == best && x.iteration_s == least, "seed %llu: %d layers, %.15g s; the best are %d, %.15g s",
                      (unsigned long long)seed, (int)x.n, x.iteration_s, (int)best, least);
        cases[x.which]++;
        shorter += lohan_algorithm1(&p, layers, n, LOHAN_LITERAL, INFINITY).n < x.n;
    }
    ck_assert_int_gt(cases[1], 50);
    ck_assert_int_gt(cases[2], 50);
    ck_assert_int_gt(cases[3], 50);
    ck_assert_int_gt(shorter, 50);
    ck_assert_int_gt(crossed, 10);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("equations");
    TCase *tc = tcase_create("equations");
    tcase_add_test(tc, the_gpu_binds);
    tcase_add_test(tc, there_is_a_least_between);
    tcase_add_test(tc, transfers_bind);
    tcase_add_test(tc, main_memory_bounds_it);
    tcase_add_test(tc, each_term_of_the_maxima);
    tcase_add_test(tc, gpus_share_ssds_and_main_memory);
    tcase_add_test(tc, layers_count_in_part);
    tcase_add_test(tc, equal_benefits_keep_their_order);
    tcase_add_test(tc, thirteen_billion);
    tcase_add_test(tc, sizes_of_thirteen_billion);
    tcase_add_test(tc, the_iteration_is_convex);
    tcase_add_test(tc, mended_is_the_best_prefix);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
