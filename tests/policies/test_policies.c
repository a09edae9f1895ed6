/*
 * Each policy on a case worked by hand, and what must hold for every case.
 *
 * The case: three blocks with an activation of 4 bytes each; a forward pass takes 1 s, the head 1 s, a backward 2 s.
 *
 *     F1 0-1   F2 1-2   F3 2-3   H 3-4   B3 4-6   B2 6-8   B1 8-10
 *     a1 waits 1-8     a2 waits 2-6     a3 waits 3-4
 *
 *     slot       1-2   2-3   3-4   4-6   6-8
 *     waiting      4     8    12     8     4 bytes
 */
#include "policies/timeline.h"

#include "common/base/array.h"
#include "common/solve/milp.h"
#include "tests/policies/chains.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct ht_activation three[3];

static struct ht_policy_case by_hand(double link, double ssd, double device_bytes, double main_bytes)
{
    three[0] = (struct ht_activation){.block = 1, .bytes = 4, .recompute_s = 1, .made_s = 1, .used_s = 8};
    three[1] = (struct ht_activation){.block = 2, .bytes = 4, .recompute_s = 3, .made_s = 2, .used_s = 6};
    three[2] = (struct ht_activation){.block = 3, .bytes = 4, .recompute_s = 0.5, .made_s = 3, .used_s = 4};
    return (struct ht_policy_case){.a = three,
                                   .n = 3,
                                   .forward_s = 4,
                                   .backward_s = 6,
                                   .out_bytes_per_s = link,
                                   .in_bytes_per_s = link,
                                   .ssd_write_bytes_per_s = ssd,
                                   .ssd_read_bytes_per_s = ssd,
                                   .device_bytes = device_bytes,
                                   .main_bytes = main_bytes};
}

typedef enum ht_status (*policy)(const struct ht_policy_case *, struct ht_error *, enum ht_fate *);

/* Fates as letters: recomputed, main memory, SSD, kept. */
static const char *fates_of(policy f, const struct ht_policy_case *c)
{
    static char text[CHAIN_MOST + 1];
    enum ht_fate fates[CHAIN_MOST];
    struct ht_error err = {0};
    ck_assert_msg(f(c, &err, fates) == HT_OK, "%s", err.text);
    for (int32_t i = 0; i < c->n; i++) text[i] = "RMSK"[fates[i]];
    text[c->n] = 0;
    return text;
}

/* ---- Capuchin -------------------------------------------------------------------------------------------------- */

/*
 * A link of 4 B/s: 1 s a transfer. FT: a1 8 - 1 - 2 = 5, a2 6 - 2 - 2 = 2, a3 4 - 3 - 2 = -1. Memory for 4 bytes.
 * Peak 12 in 3-4. a1 leaves in 1-2 and comes in 7-8: slots 2-3, 3-4, 4-6 are relieved.   waiting 4 4 8 4 4
 * Peak 8 in 3-4. a2 leaves in 2-3 and comes in 5-6: slot 3-4 is relieved.               waiting 4 4 4 4 4
 */
START_TEST(capuchin_swaps_what_hides)
{
    struct ht_policy_case c = by_hand(4, 0, 4, 100);
    ck_assert_str_eq(fates_of(ht_policy_capuchin, &c), "MMK");
}
END_TEST

/*
 * A link of 2 B/s: 2 s a transfer. a1 leaves in 1-3, comes in 6-8: slots 3-4 and 4-6.   waiting 4 8 8 4 4
 * Peak 8 in 2-3, of a1, which has not left, and a2. a2 would leave in 3-5: too late for 2-3. It is recomputed; a3 is
 * not there yet.                                                                       waiting 4 4 4 0 4
 */
START_TEST(capuchin_recomputes_what_does_not_hide)
{
    struct ht_policy_case c = by_hand(2, 0, 4, 100);
    ck_assert_str_eq(fates_of(ht_policy_capuchin, &c), "MRK");
}
END_TEST

/* No main memory: at the peak of 12 bytes in 3-4 the savings are 4 / 1, 4 / 3 and 4 / 0.5 bytes per s. a3 goes first,
   then a1. */
START_TEST(capuchin_recomputes_by_savings_per_second)
{
    struct ht_policy_case c = by_hand(4, 0, 4, 0);
    ck_assert_str_eq(fates_of(ht_policy_capuchin, &c), "RKR");
    c.device_bytes = 8;
    ck_assert_str_eq(fates_of(ht_policy_capuchin, &c), "KKR");
}
END_TEST

/* a1 alone hides at 2 B/s, and main memory for 7 bytes has room for one. If none can be recomputed, the GPU waits for
   a transfer; without room for it, activations stay. */
START_TEST(capuchin_waits_for_a_transfer_last)
{
    struct ht_policy_case c = by_hand(2, 0, 4, 100);
    for (int i = 0; i < 3; i++) three[i].recompute_s = INFINITY;
    ck_assert_str_eq(fates_of(ht_policy_capuchin, &c), "MMK");
    c.main_bytes = 7;
    ck_assert_str_eq(fates_of(ht_policy_capuchin, &c), "MKK");
}
END_TEST

/*
 * Main memory for one, and a2 cannot be recomputed: a1, though it has the longest free time, leaves it the room. a2
 * goes in 2-3 and comes in 5-6: slot 3-4.   waiting 4 8 8 8 4
 * In 2-3 only a1 is left to go: recomputed.   waiting 0 4 4 4 0
 */
START_TEST(capuchin_keeps_room_for_inputs)
{
    struct ht_policy_case c = by_hand(4, 0, 4, 4);
    three[1].recompute_s = INFINITY;
    ck_assert_str_eq(fates_of(ht_policy_capuchin, &c), "RMK");
}
END_TEST

/* ---- G10 ------------------------------------------------------------------------------------------------------- */

/*
 * SSDs as fast as the link, 4 B/s; memory for 4 bytes is exceeded in 2-6. a1 would be away in 2-7: 4 s of these, times
 * 4 bytes are 16. a2 in 3-5: only slot 3-4 lies within, 4. So a1 goes; then 3-4 is exceeded, and a2 relieves it.
 */
START_TEST(g10_evicts_what_takes_most_off)
{
    struct ht_policy_case c = by_hand(4, 4, 8, 100);
    ck_assert_str_eq(fates_of(ht_policy_g10, &c), "SKK");
    c.device_bytes = 4;
    ck_assert_str_eq(fates_of(ht_policy_g10, &c), "SSK");
}
END_TEST

/*
 * SSDs of 2 B/s. a1 is away in 3-6. Then 8 bytes wait in 2-4, and a2, which would leave in 3-5 and come in 4-6, is too
 * short a period. The peak 2-3 has a2 (size x period 16) to evict, and the GPU waits for it.
 */
START_TEST(g10_never_recomputes)
{
    struct ht_policy_case c = by_hand(2, 2, 4, 0);
    ck_assert_str_eq(fates_of(ht_policy_g10, &c), "SSK");
}
END_TEST

/*
 * x and y: 4 bytes each, 1-11. w: 0.5 bytes, 3-9. z: 4 bytes, 6-7. Link 4 B/s, SSDs 2 B/s, so 2 B/s are left for main
 * memory. Room for 8 bytes:
 *
 *     slot       1-3   3-6   6-7   7-9   9-11
 *     waiting      8   8.5  12.5   8.5     8
 *
 * x and y would be away in 3-9: 6 s x 4 bytes; x comes first. Then 8.5 wait in 6-7. y on the SSDs would be away in 5-7:
 * 1 s x 4; w 1 s x 0.5. At 1 s, when y is made, x is being written, so y goes to main memory.
 */
START_TEST(g10_takes_main_memory_when_the_ssds_are_busy)
{
    struct ht_activation a[] = {{.block = 1, .bytes = 4, .made_s = 1, .used_s = 11},
                                {.block = 1, .bytes = 4, .made_s = 1, .used_s = 11},
                                {.block = 2, .bytes = 0.5, .made_s = 3, .used_s = 9},
                                {.block = 3, .bytes = 4, .made_s = 6, .used_s = 7}};
    struct ht_policy_case c = by_hand(4, 2, 8, 100);
    c.a = a, c.n = 4;
    ck_assert_str_eq(fates_of(ht_policy_g10, &c), "SMKK");
    c.main_bytes = 3; /* no room: y waits for the SSDs */
    ck_assert_str_eq(fates_of(ht_policy_g10, &c), "SSKK");
}
END_TEST

START_TEST(g10_needs_a_place)
{
    struct ht_policy_case c = by_hand(4, 0, 4, 0);
    enum ht_fate fates[3];
    struct ht_error err = {0};
    ck_assert_int_eq(ht_policy_g10(&c, &err, fates), HT_INFEASIBLE);
    c.device_bytes = 12;
    ck_assert_str_eq(fates_of(ht_policy_g10, &c), "KKK");
    c.device_bytes = 4, c.main_bytes = 100; /* the whole link is main memory's */
    ck_assert_str_eq(fates_of(ht_policy_g10, &c), "MMK");
    c.ssd_write_bytes_per_s = 4; /* one way alone is no place */
    ck_assert_str_eq(fates_of(ht_policy_g10, &c), "MMK");
}
END_TEST

/* G10's rule taken literally, with SSDs alone: before every eviction all periods are looked at. */
static void g10_literally(const struct ht_policy_case *c, enum ht_fate *fates)
{
    double write = fmin(c->out_bytes_per_s, c->ssd_write_bytes_per_s);
    double read = fmin(c->in_bytes_per_s, c->ssd_read_bytes_per_s);
    struct policy_lane out = {.bytes_per_s = write}, in = {.bytes_per_s = read};
    struct policy_timeline t;
    bool tried[CHAIN_MOST] = {false};
    int32_t best, peak;
    policy_timeline_init(&t, c);
    for (int32_t i = 0; i < c->n; i++) fates[i] = HT_FATE_KEPT;
    do {
        double most = 0, largest = 0;
        best = -1;
        for (int32_t i = 0; i < c->n && policy_timeline_peak(&t) >= 0; i++) {
            const struct ht_activation *a = &c->a[i];
            struct policy_swap s = policy_swap_of(a, &out, &in);
            double area = a->bytes * policy_timeline_over(&t, s.out_s, s.in_s);
            double volume = a->bytes * (a->used_s - a->made_s);
            if (tried[i] || area == 0 || area < most || (area == most && volume <= largest)) continue;
            best = i, most = area, largest = volume;
        }
        if (best < 0) continue;
        struct policy_swap s = policy_swap_of(&c->a[best], &out, &in);
        policy_swap_reserve(&c->a[best], s, &out, &in);
        policy_timeline_remove(&t, s.out_s, s.in_s, c->a[best].bytes);
        fates[best] = HT_FATE_SSD;
        tried[best] = true;
    } while (best >= 0);
    while ((peak = policy_timeline_peak(&t)) >= 0) {
        double largest = 0;
        best = -1;
        for (int32_t i = 0; i < c->n; i++) {
            double volume = c->a[i].bytes * (c->a[i].used_s - c->a[i].made_s);
            if (fates[i] != HT_FATE_KEPT || !policy_slot_within(&t, peak, c->a[i].made_s, c->a[i].used_s)) continue;
            if (volume > largest) best = i, largest = volume;
        }
        if (best < 0) {
            policy_timeline_give_up(&t, peak);
            continue;
        }
        policy_timeline_remove(&t, c->a[best].made_s, c->a[best].used_s, c->a[best].bytes);
        fates[best] = HT_FATE_SSD;
    }
    policy_timeline_free(&t);
    free(out.spans);
    free(in.spans);
}

START_TEST(g10_follows_its_rule)
{
    int mixed = 0;
    for (uint64_t seed = 0; seed < 2000; seed++) {
        struct chain x;
        enum ht_fate fates[CHAIN_MOST], expected[CHAIN_MOST];
        struct ht_error err = {0};
        chain_fill(&x, seed, CHAIN_MOST, seed % 2, false);
        x.c.main_bytes = 0;
        ck_assert_int_eq(ht_policy_g10(&x.c, &err, fates), HT_OK);
        g10_literally(&x.c, expected);
        for (int32_t i = 0; i < x.c.n; i++)
            ck_assert_msg(fates[i] == expected[i], "seed %d: activation %d", (int)seed, (int)i);
        struct ht_policy_sums s = ht_policy_sum(&x.c, fates);
        mixed += s.bytes[HT_FATE_KEPT] > 0 && s.bytes[HT_FATE_SSD] > 0;
    }
    ck_assert_int_ge(mixed, 1000);
}
END_TEST

/* ---- FlashNeuron ----------------------------------------------------------------------------------------------- */

/* 12 bytes, room for 5: the first (8 left), the second (4 left). */
START_TEST(flashneuron_offloads_the_first_layers)
{
    struct ht_policy_case c = by_hand(4, 4, 5, 0);
    ck_assert_str_eq(fates_of(ht_policy_flashneuron, &c), "SSK");
    c.ssd_read_bytes_per_s = 0;
    enum ht_fate fates[3];
    struct ht_error err = {0};
    ck_assert_int_eq(ht_policy_flashneuron(&c, &err, fates), HT_INFEASIBLE);
}
END_TEST

/* ---- Checkmate ------------------------------------------------------------------------------------------------- */

/*
 * No memory on the GPU, main memory for one. At 4 B/s its transfers take 1 s of 4 and of 6 s: hidden. The dearest, a2,
 * is swapped, a1 and a3 are recomputed: 1 + 0.5 s.
 * At 0.5 B/s out takes 8 s of 4, in 8 s of 6 + 1.5: 1.5 + 4 + 0.5 = 6 s. Recomputing all costs 4.5 s.
 */
START_TEST(checkmate_swaps_the_dearest)
{
    if (!ht_milp_available()) return;
    struct ht_policy_case c = by_hand(4, 0, 0, 4);
    ck_assert_str_eq(fates_of(ht_policy_checkmate, &c), "RMR");
    enum ht_fate found[] = {HT_FATE_RECOMPUTED, HT_FATE_MAIN, HT_FATE_RECOMPUTED};
    ck_assert_double_eq_tol(ht_policy_checkmate_s(&c, found), 1.5, 1e-12);
    c = by_hand(0.5, 0, 0, 4);
    ck_assert_str_eq(fates_of(ht_policy_checkmate, &c), "RRR");
    ck_assert_double_eq_tol(ht_policy_checkmate_s(&c, found), 6, 1e-12);
}
END_TEST

/* Room for one: of a1 (1 s), a2 (3 s), a3 (0.5 s) the dearest stays, without main memory. An input that cannot be
   recomputed stays before it. */
START_TEST(checkmate_recomputes_the_cheapest)
{
    if (!ht_milp_available()) return;
    struct ht_policy_case c = by_hand(4, 0, 4, 0);
    ck_assert_str_eq(fates_of(ht_policy_checkmate, &c), "RKR");
    three[0].recompute_s = INFINITY;
    ck_assert_str_eq(fates_of(ht_policy_checkmate, &c), "KRR");
    three[1].recompute_s = INFINITY;
    enum ht_fate fates[3];
    struct ht_error err = {0};
    ck_assert_int_eq(ht_policy_checkmate(&c, &err, fates), HT_INFEASIBLE);
}
END_TEST

/* Tries all 3^n choices. Returns the least cost, or INFINITY. */
static double brute_force(const struct ht_policy_case *c)
{
    enum ht_fate fates[CHAIN_MOST];
    static const enum ht_fate all[] = {HT_FATE_RECOMPUTED, HT_FATE_MAIN, HT_FATE_KEPT};
    double best = INFINITY;
    long choices = lround(pow(3, c->n));
    for (long code = 0; code < choices; code++) {
        long left = code;
        for (int32_t i = 0; i < c->n; i++, left /= 3) fates[i] = all[left % 3];
        struct ht_policy_sums s = ht_policy_sum(c, fates);
        if (s.bytes[HT_FATE_KEPT] > c->device_bytes || s.bytes[HT_FATE_MAIN] > c->main_bytes) continue;
        double cost = ht_policy_checkmate_s(c, fates);
        if (cost < best) best = cost;
    }
    return best;
}

START_TEST(checkmate_is_optimal)
{
    if (!ht_milp_available()) return;
    int solved = 0, refused = 0, mixed = 0;
    for (uint64_t seed = 0; seed < 400; seed++) {
        struct chain x;
        enum ht_fate fates[CHAIN_MOST];
        struct ht_error err = {0};
        chain_fill(&x, seed, 7, seed % 3 == 0, seed % 2);
        double best = brute_force(&x.c);
        enum ht_status status = ht_policy_checkmate(&x.c, &err, fates);
        ck_assert_msg(status == (isinf(best) ? HT_INFEASIBLE : HT_OK), "seed %d: %s", (int)seed, err.text);
        refused += status == HT_INFEASIBLE;
        if (status) continue;
        struct ht_policy_sums s = ht_policy_sum(&x.c, fates);
        ck_assert_double_le(s.bytes[HT_FATE_KEPT], x.c.device_bytes);
        ck_assert_double_le(s.bytes[HT_FATE_MAIN], x.c.main_bytes);
        double passes_s = x.c.forward_s + x.c.backward_s;
        ck_assert_double_eq_tol(ht_policy_checkmate_s(&x.c, fates), best, 1e-5 * (passes_s + best));
        solved++;
        mixed += s.bytes[HT_FATE_MAIN] > 0 && s.bytes[HT_FATE_KEPT] > 0 && s.bytes[HT_FATE_RECOMPUTED] > 0;
    }
    ck_assert_int_ge(solved, 200);
    ck_assert_int_ge(refused, 20);
    ck_assert_int_ge(mixed, 40);
}
END_TEST

/* ---- every case ------------------------------------------------------------------------------------------------ */

static void check_bounds(const struct chain *x, policy f, const enum ht_fate *fates, uint64_t seed)
{
    struct ht_policy_sums s = ht_policy_sum(&x->c, fates);
    bool ssd = f == ht_policy_g10 || f == ht_policy_flashneuron, again = f == ht_policy_capuchin;
    ck_assert_msg(s.bytes[HT_FATE_MAIN] <= x->c.main_bytes, "seed %d: main memory", (int)seed);
    ck_assert_msg(ssd || s.bytes[HT_FATE_SSD] == 0, "seed %d: SSD", (int)seed);
    ck_assert_msg(again || s.bytes[HT_FATE_RECOMPUTED] == 0, "seed %d: recomputed", (int)seed);
    ck_assert_msg(isfinite(s.recompute_s), "seed %d: recomputed what cannot be", (int)seed);
}

/* Main memory is never exceeded; each policy uses its own means alone. With memory for all everything stays. With SSDs
   nothing waits beyond the budget in the end: neither G10's last resort nor FlashNeuron has a limit. */
START_TEST(budgets_hold)
{
    static const policy all[] = {ht_policy_capuchin, ht_policy_g10, ht_policy_flashneuron};
    for (uint64_t seed = 0; seed < 2000; seed++) {
        struct chain x;
        chain_fill(&x, seed, CHAIN_MOST, seed % 2, seed % 5 < 3);
        for (size_t k = 0; k < HT_COUNT(all); k++) {
            enum ht_fate fates[CHAIN_MOST];
            struct ht_error err = {0};
            ck_assert_msg(all[k](&x.c, &err, fates) == HT_OK, "seed %d: %s", (int)seed, err.text);
            check_bounds(&x, all[k], fates, seed);
            double kept = ht_policy_sum(&x.c, fates).bytes[HT_FATE_KEPT];
            if (all[k] != ht_policy_capuchin) ck_assert_msg(kept <= x.c.device_bytes, "seed %d: device", (int)seed);
            struct chain roomy = x;
            roomy.c.a = roomy.a;
            roomy.c.device_bytes = 20 * CHAIN_MOST;
            ck_assert_int_eq(all[k](&roomy.c, &err, fates), HT_OK);
            for (int32_t i = 0; i < x.c.n; i++) ck_assert_int_eq(fates[i], HT_FATE_KEPT);
        }
    }
}
END_TEST

/* What Capuchin leaves on the GPU at the fullest moment, when all are made and none is used, exceeds the budget only if
   every activation that is left can neither be recomputed nor find room in main memory. */
START_TEST(capuchin_gives_up_only_without_means)
{
    int stuck = 0;
    for (uint64_t seed = 0; seed < 2000; seed++) {
        struct chain x;
        enum ht_fate fates[CHAIN_MOST];
        struct ht_error err = {0};
        chain_fill(&x, seed, CHAIN_MOST, seed % 2, seed % 5 < 3);
        ck_assert_int_eq(ht_policy_capuchin(&x.c, &err, fates), HT_OK);
        struct ht_policy_sums s = ht_policy_sum(&x.c, fates);
        if (s.bytes[HT_FATE_KEPT] <= x.c.device_bytes) continue;
        stuck++;
        for (int32_t i = 0; i < x.c.n; i++) {
            if (fates[i] != HT_FATE_KEPT) continue;
            ck_assert_msg(isinf(x.a[i].recompute_s), "seed %d: %d could be recomputed", (int)seed, (int)i);
            ck_assert_double_gt(x.a[i].bytes, x.c.main_bytes - s.bytes[HT_FATE_MAIN]);
        }
    }
    ck_assert_int_ge(stuck, 20);
}
END_TEST

START_TEST(senseless_numbers_are_refused)
{
    static const policy all[] = {ht_policy_capuchin, ht_policy_g10, ht_policy_flashneuron, ht_policy_checkmate};
    static const double bad[] = {NAN, -1, INFINITY};
    for (size_t k = 0; k < HT_COUNT(all); k++)
        for (size_t i = 0; i < 3 * 8; i++) {
            struct ht_policy_case c = by_hand(4, 4, 4, 4);
            double *number[] = {&c.device_bytes, &c.main_bytes,    &c.out_bytes_per_s, &c.ssd_read_bytes_per_s,
                                &three[1].bytes, &three[1].used_s, &three[1].made_s,   &c.forward_s};
            struct ht_error err = {0};
            enum ht_fate fates[3];
            *number[i % 8] = bad[i / 8];
            ck_assert_int_eq(all[k](&c, &err, fates), HT_BAD_INPUT);
            ck_assert_msg(strstr(err.text, "expected") != NULL, "%s", err.text);
        }
    struct ht_policy_case none = by_hand(4, 4, 4, 4);
    none.n = 0;
    for (size_t k = 0; k < HT_COUNT(all); k++) {
        enum ht_fate unused[1];
        struct ht_error err = {0};
        if (all[k] != ht_policy_checkmate || ht_milp_available()) ck_assert_int_eq(all[k](&none, &err, unused), HT_OK);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("policies");
    TCase *t = tcase_create("all");
    tcase_add_test(t, capuchin_swaps_what_hides);
    tcase_add_test(t, capuchin_recomputes_what_does_not_hide);
    tcase_add_test(t, capuchin_recomputes_by_savings_per_second);
    tcase_add_test(t, capuchin_waits_for_a_transfer_last);
    tcase_add_test(t, capuchin_keeps_room_for_inputs);
    tcase_add_test(t, capuchin_gives_up_only_without_means);
    tcase_add_test(t, g10_evicts_what_takes_most_off);
    tcase_add_test(t, g10_never_recomputes);
    tcase_add_test(t, g10_takes_main_memory_when_the_ssds_are_busy);
    tcase_add_test(t, g10_needs_a_place);
    tcase_add_test(t, g10_follows_its_rule);
    tcase_add_test(t, flashneuron_offloads_the_first_layers);
    tcase_add_test(t, checkmate_swaps_the_dearest);
    tcase_add_test(t, checkmate_recomputes_the_cheapest);
    tcase_add_test(t, checkmate_is_optimal);
    tcase_add_test(t, budgets_hold);
    tcase_add_test(t, senseless_numbers_are_refused);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
