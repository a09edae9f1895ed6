/* Lanes and slots against plain arrays of seconds. */
#include "policies/timeline.h"

#include "tests/policies/chains.h"

#include <check.h>
#include <stdlib.h>

enum { SECONDS = 60, ROUNDS = 3000 };

/* A lane of 1 B/s in whole seconds: transfers take every free second from their begin on, or up to their end. */
START_TEST(lanes_reserve_free_seconds)
{
    for (uint64_t seed = 0; seed < ROUNDS; seed++) {
        struct policy_lane lane = {.bytes_per_s = 1};
        bool busy[4 * SECONDS] = {false}, *at_zero = busy + 2 * SECONDS; /* seconds from -120 to 120 */
        struct draw d = {.seed = seed};
        for (int round = 0; round < 6; round++) {
            int at = (int)pick(&d, 0, SECONDS), bytes = (int)pick(&d, 1, 9), left = bytes, s;
            bool forward = below(&d, 2);
            bool is_free = true;
            for (s = at; s < at + bytes; s++) is_free &= !at_zero[s];
            ck_assert_int_eq(policy_lane_is_free(&lane, at, at + bytes), is_free);
            if (forward)
                for (s = at; left > 0; s++) left -= !at_zero[s];
            else
                for (s = at; left > 0; s--) left -= !at_zero[s - 1];
            double found = forward ? policy_lane_end(&lane, at, bytes) : policy_lane_begin(&lane, at, bytes);
            ck_assert_double_eq(found, s);
            if (forward)
                policy_lane_reserve(&lane, at, found);
            else
                policy_lane_reserve(&lane, found, at);
            for (int i = forward ? at : s; i < (forward ? s : at); i++) at_zero[i] = true;
        }
        for (int32_t i = 0; i + 1 < lane.n; i++) ck_assert_double_lt(lane.spans[i].end_s, lane.spans[i + 1].begin_s);
        free(lane.spans);
    }
}
END_TEST

/* Slots as a plain array: bytes that wait in each; -INFINITY: given up. */
struct slots {
    double waiting[2 * CHAIN_MOST];
};

static void check_peak(const struct policy_timeline *t, const struct slots *x)
{
    int32_t peak = -1;
    for (int32_t k = 0; k < t->n; k++)
        if (x->waiting[k] > t->device_bytes && (peak < 0 || x->waiting[k] > x->waiting[peak])) peak = k;
    ck_assert_int_eq(policy_timeline_peak(t), peak);
}

static void check_over(const struct policy_timeline *t, const struct slots *x, int begin, int end)
{
    double over = 0;
    for (int32_t k = 0; k < t->n; k++)
        if (policy_slot_within(t, k, begin, end) && x->waiting[k] > t->device_bytes)
            over += t->at_s[k + 1] - t->at_s[k];
    ck_assert_double_eq(policy_timeline_over(t, begin, end), over);
}

/* Peak and exceeded time against an array, while bytes are removed and slots given up. */
START_TEST(slots_add_up)
{
    for (uint64_t seed = 0; seed < ROUNDS; seed++) {
        struct chain x;
        struct policy_timeline t;
        struct slots slots;
        struct draw d = {.seed = seed};
        chain_fill(&x, seed, 24, seed % 2, false);
        policy_timeline_init(&t, &x.c);
        for (int32_t k = 0; k < t.n; k++) {
            double middle = (t.at_s[k] + t.at_s[k + 1]) / 2;
            slots.waiting[k] = 0;
            for (int32_t i = 0; i < x.c.n; i++)
                if (x.a[i].made_s < middle && middle < x.a[i].used_s) slots.waiting[k] += x.a[i].bytes;
        }
        for (int round = 0; round < 12; round++) {
            int begin = (int)pick(&d, 0, 50), end = (int)pick(&d, begin, 200);
            double bytes = (double)pick(&d, 0, 30);
            check_peak(&t, &slots);
            check_over(&t, &slots, begin, end);
            int32_t peak = policy_timeline_peak(&t);
            if (peak >= 0 && below(&d, 4) == 0) {
                policy_timeline_give_up(&t, peak);
                slots.waiting[peak] = -INFINITY;
            }
            policy_timeline_remove(&t, begin, end, bytes);
            for (int32_t k = 0; k < t.n; k++)
                if (policy_slot_within(&t, k, begin, end)) slots.waiting[k] -= bytes;
        }
        policy_timeline_free(&t);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("timeline");
    TCase *t = tcase_create("all");
    tcase_add_test(t, lanes_reserve_free_seconds);
    tcase_add_test(t, slots_add_up);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
