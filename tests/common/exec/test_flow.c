/* Sharing at the edges of the integers, against the textbook filling of all flows at once in 128-bit arithmetic. */
#include "common/base/rng.h"
#include "common/exec/flow.h"

#include <check.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

typedef __int128 wide;
enum { RESOURCES = 7, SLOTS = 24, USES = 3 };

static uint64_t drawn;
static int64_t below(int64_t n)
{
    return (int64_t)ht_random_below(42, drawn++, (uint64_t)n);
}

/* Spread over all magnitudes below 2^bits. */
static int64_t magnitude(int bits)
{
    int64_t top = (int64_t)1 << (1 + below(bits));
    return 1 + below(top - 1);
}

struct flow {
    bool runs;
    int64_t cost_ns, cap;
    struct ht_flow_use uses[USES];
    int n;
    wide left, rate, speed;
};

static struct flow flows[SLOTS];
static int64_t capacity[RESOURCES];

static wide weight_on(const struct flow *f, int r)
{
    for (int k = 0; k < f->n; k++)
        if (f->uses[k].resource == r) return f->uses[k].weight;
    return 0;
}

static void fill(void)
{
    wide left[RESOURCES], share[RESOURCES], never = (wide)1 << 120;
    bool frozen[SLOTS] = {false};
    for (int r = 0; r < RESOURCES; r++) left[r] = capacity[r];
    for (;;) {
        wide level = never;
        for (int r = 0; r < RESOURCES; r++) {
            wide sum = 0;
            for (int i = 0; i < SLOTS; i++)
                if (flows[i].runs && !frozen[i]) sum += weight_on(&flows[i], r);
            share[r] = sum ? (left[r] << 16) / sum : never;
            if (share[r] < level) level = share[r];
        }
        for (int i = 0; i < SLOTS; i++)
            if (flows[i].runs && !frozen[i] && flows[i].cap < level) level = flows[i].cap;
        if (level == never) break;
        for (int i = 0; i < SLOTS; i++) {
            struct flow *f = &flows[i];
            if (!f->runs || frozen[i]) continue;
            bool held = f->cap == level;
            for (int r = 0; r < RESOURCES; r++) held = held || (weight_on(f, r) && share[r] == level);
            if (!held) continue;
            frozen[i] = true;
            f->rate = level > 1 ? level : 1;
            for (int r = 0; r < RESOURCES; r++) {
                left[r] -= (f->rate * weight_on(f, r) + 65535) >> 16;
                if (left[r] < 0) left[r] = 0;
            }
        }
    }
    for (int i = 0; i < SLOTS; i++) {
        struct flow *f = &flows[i];
        f->speed = f->rate >= f->cap ? 1 << 20 : (f->rate << 20) / f->cap;
        if (f->speed < 1) f->speed = 1;
    }
}

static void start(struct ht_flows *all, int slot, int64_t now_ns, int bits)
{
    struct flow *f = &flows[slot];
    int64_t largest = 0, need = 1, amount[USES];
    f->runs = true;
    f->n = 0;
    for (int k = 0, n = 1 + (int)below(USES); k < n; k++) {
        int r = (int)below(RESOURCES);
        if (weight_on(f, r)) continue;
        amount[f->n] = magnitude(bits + 3);
        /* keep what it needs alone within range */
        while (ht_flow_per_giga_up(amount[f->n], capacity[r]) >= HT_FLOW_MAX_NS / 2)
            amount[f->n] = amount[f->n] / 2 + 1;
        int64_t alone = ht_flow_per_giga_up(amount[f->n], capacity[r]);
        if (alone > need) need = alone;
        if (amount[f->n] > largest) largest = amount[f->n];
        f->uses[f->n++] = (struct ht_flow_use){.resource = r, .weight = 1, .times = 1};
    }
    for (int k = 0; k < f->n; k++) f->uses[k].weight = (uint32_t)(((wide)amount[k] * 65536 + largest - 1) / largest);
    int64_t cost = magnitude(42);
    f->cost_ns = cost > need || below(2) ? (cost > need ? cost : need) : need;
    f->cap = ht_flow_per_giga(largest, f->cost_ns);
    ck_assert_int_lt(f->cap, HT_FLOW_MAX_CAPACITY);
    f->left = (wide)f->cost_ns << 20;
    ht_flows_start(all, slot, now_ns, f->cost_ns, f->cap, f->uses, f->n);
}

START_TEST(against_the_definition)
{
    for (int round = 0; round < 400; round++) {
        int bits = round % 2 ? 44 : 12;
        struct ht_flows *all;
        struct ht_error err;
        for (int r = 0; r < RESOURCES; r++) capacity[r] = magnitude(bits);
        ck_assert_int_eq(ht_flows_create(RESOURCES, capacity, SLOTS, USES, &err, &all), HT_OK);
        int64_t now_ns = 0;
        for (int step = 0; step < 60; step++) {
            for (int n = 1 + (int)below(4); n > 0; n--) {
                int slot = (int)below(SLOTS);
                if (!flows[slot].runs) start(all, slot, now_ns, bits);
            }
            int32_t changed[SLOTS];
            ht_flows_settle(all, now_ns, changed);
            fill();
            int64_t next = INT64_MAX;
            for (int i = 0; i < SLOTS; i++) {
                const struct flow *f = &flows[i];
                if (!f->runs) continue;
                wide end = now_ns + (f->left + f->speed - 1) / f->speed;
                if (end > HT_FLOW_NEVER_NS) end = HT_FLOW_NEVER_NS;
                ck_assert_msg(ht_flows_end_ns(all, i) == (int64_t)end, "round %d, step %d, slot %d: %lld, not %lld",
                              round, step, i, (long long)ht_flows_end_ns(all, i), (long long)end);
                if (end < next) next = (int64_t)end;
            }
            if (next == INT64_MAX || next >= HT_FLOW_NEVER_NS) break;
            for (int i = 0; i < SLOTS; i++) {
                if (!flows[i].runs) continue;
                flows[i].left -= flows[i].speed * (next - now_ns);
                if (flows[i].left > 0) continue;
                ht_flows_finish(all, i);
                flows[i].runs = false;
            }
            now_ns = next;
        }
        ht_flows_destroy(all);
        for (int i = 0; i < SLOTS; i++) flows[i].runs = false;
    }
}
END_TEST

START_TEST(per_giga_is_exact)
{
    for (int i = 0; i < 200000; i++) {
        int64_t a = magnitude(61), b = magnitude(44);
        wide down = (wide)a * 1000000000 / b, up = ((wide)a * 1000000000 + b - 1) / b;
        if (up > INT64_MAX / 2) continue;
        ck_assert_int_eq(ht_flow_per_giga(a, b), (int64_t)down);
        ck_assert_int_eq(ht_flow_per_giga_up(a, b), (int64_t)up);
    }
    ck_assert_int_eq(ht_flow_per_giga(INT64_MAX / 4, 1), INT64_MAX);
    ck_assert_int_eq(ht_flow_per_giga_up(INT64_MAX / 4, 1), INT64_MAX);
    ck_assert_int_eq(ht_flow_per_giga_up(0, 5), 0);
}
END_TEST

START_TEST(capacities_are_checked)
{
    int64_t bad[] = {5, 0};
    struct ht_flows *all;
    struct ht_error err;
    ck_assert_int_eq(ht_flows_create(2, bad, 1, 1, &err, &all), HT_BAD_INPUT);
    bad[1] = HT_FLOW_MAX_CAPACITY;
    ck_assert_int_eq(ht_flows_create(2, bad, 1, 1, &err, &all), HT_BAD_INPUT);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("flow");
    TCase *tc = tcase_create("flow");
    tcase_add_test(tc, against_the_definition);
    tcase_add_test(tc, per_giga_is_exact);
    tcase_add_test(tc, capacities_are_checked);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
