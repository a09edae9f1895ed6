/*
 * The order of ops in time: the worked examples of two priority queues and of one-ahead prefetching, on the real
 * builder's graph. Times are ms, embedding and head take none, so that a timeline can be followed with a finger. L = 5
 * throughout.
 */
#include "tests/autohete/helpers.h"

enum { GIB = 1 << 30 };

struct fixture {
    struct ht_scenario sc;
    struct ht_schedule *s;
    struct ht_trace *t;
};

static struct fixture run(const struct ht_system *system, int64_t c, int64_t p, int64_t o, int64_t ahead,
                          const struct times *times)
{
    struct fixture f = {.sc = tiny(5, 2, 2, "fp32", (int64_t)4 * GIB)};
    f.s = build(system, &f.sc, plan_by_hand(c, p, o, 0, ahead));
    f.t = simulate(f.s, times, 8, 0);
    return f;
}

static void done(struct fixture *f)
{
    ht_trace_destroy(f->t);
    ht_schedule_destroy(f->s);
    ht_scenario_free(&f->sc);
}

/*
 * CPU-bound: c=3 p=1 o=5, t_fp=1 t_bp=2 t_h2d=1 t_d2h=1 t_cpu=6. The device does the same in both variants: PF1..PF5
 * fill [0,5], F1 starts at 1, F5 ends at 6, then B5 B4 R3 B3 R2 B2 R1 B1 take 2+2+1+2+1+2+1+2 = 13 to 19. PB1 is
 * released when block 2 begins its slot, at 13. The gradients leave one by one: G5[8,9] G4[10,11] G3[13,14] G2[16,17]
 * G1[19,20].
 */
static const struct times cpu_bound = {1, 2, 1, 1, 6, 0};

static void first_pass(const struct ht_trace *t)
{
    static const char *const pf[] = {"PF1", "PF2", "PF3", "PF4", "PF5"}, *const f[] = {"F1", "F2", "F3", "F4", "F5"};
    for (int i = 0; i < 5; i++) {
        runs(t, 0, pf[i], i, i + 1);
        runs(t, 0, f[i], i + 1, i + 2);
    }
    runs(t, 0, "B5", 6, 8);
    runs(t, 0, "B4", 8, 10);
    runs(t, 0, "R3", 10, 11);
    runs(t, 0, "B3", 11, 13);
    runs(t, 0, "R2", 13, 14);
    runs(t, 0, "B2", 14, 16);
    runs(t, 0, "R1", 16, 17);
    runs(t, 0, "B1", 17, 19);
    runs(t, 0, "PB1", 13, 14);
}

/* pq_opt before each step: {5} {3,4} {1,2,4} {2,4} {4}. The next iteration starts with O1 done at 27, and waits for O4
   at 39: F4'[40,41] F5'[41,42]. Period: j = 4 is stepped last, 5 x 6 + t_h2d + (5-4+1) t_fp + t_bp + t_d2h = 30+1+2+2+1
   = 36. */
START_TEST(cpu_bound_with_priorities)
{
    struct fixture f = run(&ht_autohete, 3, 1, 5, 1, &cpu_bound);
    first_pass(f.t);
    runs(f.t, 0, "G5", 8, 9);
    runs(f.t, 0, "G4", 10, 11);
    runs(f.t, 0, "G3", 13, 14);
    runs(f.t, 0, "G2", 16, 17);
    runs(f.t, 0, "G1", 19, 20);
    runs(f.t, 0, "O5", 9, 15);
    runs(f.t, 0, "O3", 15, 21);
    runs(f.t, 0, "O1", 21, 27);
    runs(f.t, 0, "O2", 27, 33);
    runs(f.t, 0, "O4", 33, 39);
    runs(f.t, 1, "PF1", 27, 28);
    runs(f.t, 1, "F1", 28, 29);
    runs(f.t, 1, "PF2", 33, 34);
    runs(f.t, 1, "F2", 34, 35);
    runs(f.t, 1, "PF3", 34, 35);
    runs(f.t, 1, "F3", 35, 36);
    runs(f.t, 1, "PF4", 39, 40);
    runs(f.t, 1, "F4", 40, 41);
    runs(f.t, 1, "PF5", 40, 41);
    runs(f.t, 1, "F5", 41, 42);
    ck_assert_double_eq_tol(period(f.t, 4), 36, 1e-9);
    done(&f);
}
END_TEST

/* Backward order: O1 ends at 39, then PF1'[39,40], and all five forwards follow: F1'[40,41] .. F5'[44,45].
   Period: 30 + t_h2d + 5 t_fp + t_bp + t_d2h = 30+1+5+2+1 = 39. */
START_TEST(cpu_bound_in_backward_order)
{
    struct fixture f = run(&ht_autohete_nops, 3, 1, 5, 1, &cpu_bound);
    first_pass(f.t);
    runs(f.t, 0, "O5", 9, 15);
    runs(f.t, 0, "O4", 15, 21);
    runs(f.t, 0, "O3", 21, 27);
    runs(f.t, 0, "O2", 27, 33);
    runs(f.t, 0, "O1", 33, 39);
    runs(f.t, 1, "F1", 40, 41);
    runs(f.t, 1, "F5", 44, 45);
    ck_assert_double_eq_tol(period(f.t, 4), 39, 1e-9);
    done(&f);
}
END_TEST

/*
 * D2H-bound: t_d2h=4.5, t_cpu=1. B ends at 8 10 13 16 19 as before. With priorities the lane takes 5, 4, then (3 and 2
 * wait at 17) 2, then 1, then 3. Each is stepped right away; F3' waits for O3 at 31.5 and PF3'. Period 29.5. In
 * backward order G1 ends at 8 + 5 x 4.5 = 30.5, O1 at 31.5, PF1' at 32.5, F5' at 37.5: period 31.5.
 */
static const struct times copy_bound = {1, 2, 1, 4.5, 1, 0};

START_TEST(copy_bound_with_priorities)
{
    struct fixture f = run(&ht_autohete, 3, 1, 5, 1, &copy_bound);
    runs(f.t, 0, "G5", 8, 12.5);
    runs(f.t, 0, "G4", 12.5, 17);
    runs(f.t, 0, "G2", 17, 21.5);
    runs(f.t, 0, "G1", 21.5, 26);
    runs(f.t, 0, "G3", 26, 30.5);
    runs(f.t, 0, "O5", 12.5, 13.5);
    runs(f.t, 0, "O4", 17, 18);
    runs(f.t, 0, "O2", 21.5, 22.5);
    runs(f.t, 0, "O1", 26, 27);
    runs(f.t, 0, "O3", 30.5, 31.5);
    runs(f.t, 1, "F1", 28, 29);
    runs(f.t, 1, "F2", 29, 30);
    runs(f.t, 1, "F3", 32.5, 33.5);
    runs(f.t, 1, "F5", 34.5, 35.5);
    ck_assert_double_eq_tol(period(f.t, 4), 29.5, 1e-9);
    done(&f);
}
END_TEST

START_TEST(copy_bound_in_backward_order)
{
    struct fixture f = run(&ht_autohete_nops, 3, 1, 5, 1, &copy_bound);
    runs(f.t, 0, "G1", 26, 30.5);
    runs(f.t, 0, "O1", 30.5, 31.5);
    runs(f.t, 1, "F5", 36.5, 37.5);
    ck_assert_double_eq_tol(period(f.t, 4), 31.5, 1e-9);
    done(&f);
}
END_TEST

/* Few offloaded blocks: c=3 p=0 o=2, t_cpu=3 t_gpu=0.2. Both steps (9..12, 12..15) end within the backward pass, so the
   order does not matter and the device sets the period: 5 forwards, 5 backwards, 3 recomputations, 3 steps: 5 + 10 + 3
   + 0.6 = 18.6. */
START_TEST(few_offloaded_blocks)
{
    const struct times t = {1, 2, 1, 1, 3, 0.2};
    const struct ht_system *const both[] = {&ht_autohete, &ht_autohete_nops};
    for (int i = 0; i < 2; i++) {
        struct fixture f = run(both[i], 3, 0, 2, 1, &t);
        ck_assert_double_eq_tol(period(f.t, 4), 18.6, 1e-9);
        done(&f);
    }
}
END_TEST

/*
 * One-ahead prefetching stalls: c=2 p=3 o=5, t_fp=10 t_bp=20 t_h2d=24. PF5 ends at 120, F5 at 130; B5[130,150].
 * PB3 is released as block 4 begins, PB3[150,174]: B4 ends at 170, so B3 waits 4. PB2[174,198] during B3[174,194]: R2
 * waits 4. PB1[198,222] hides under R2 and B2 [198,228]. Stall 8 in all; B1 ends at 130 + 5 x 20 + 2 x 10 + 8 = 258.
 *
 * Released two blocks ahead: PB3[130,154] PB2[154,178] PB1[178,202] hide altogether: B1 ends at 250.
 */
START_TEST(one_ahead_prefetch_stalls)
{
    const struct times t = {10, 20, 24, 1, 1, 0};
    struct fixture f = run(&ht_autohete, 2, 3, 5, 1, &t);
    runs(f.t, 0, "B5", 130, 150);
    runs(f.t, 0, "PB3", 150, 174);
    runs(f.t, 0, "B3", 174, 194);
    runs(f.t, 0, "PB2", 174, 198);
    runs(f.t, 0, "R2", 198, 208);
    runs(f.t, 0, "PB1", 198, 222);
    runs(f.t, 0, "R1", 228, 238);
    runs(f.t, 0, "B1", 238, 258);
    done(&f);

    f = run(&ht_autohete, 2, 3, 5, 2, &t);
    runs(f.t, 0, "PB3", 130, 154);
    runs(f.t, 0, "PB2", 154, 178);
    runs(f.t, 0, "PB1", 178, 202);
    runs(f.t, 0, "B1", 230, 250);
    done(&f);
}
END_TEST

/* However early: not before its own drop at the end of F_i. c=2 p=3 o=5 as above with ahead = 5: PB3 (slot 8, the
   second beyond the head) is released when F4 has ended, at 106 (PF4 ends at 96); the lane is at PF5 [96,120] then. */
START_TEST(a_prefetch_is_not_released_before_the_drop)
{
    const struct times t = {10, 20, 24, 1, 1, 0};
    struct fixture f = run(&ht_autohete, 2, 3, 5, 5, &t);
    runs(f.t, 0, "F4", 96, 106);
    runs(f.t, 0, "PB3", 120, 144);
    runs(f.t, 0, "PB2", 144, 168);
    for (int32_t op = 0; op < f.s->n_ops; op++) {
        const char *name = f.s->ops[op].name;
        if (name[0] != 'P' || name[1] != 'B') continue;
        char forward[16];
        snprintf(forward, sizeof(forward), "F%s", name + 2);
        ck_assert_int_ge(f.t->events[op].start_ns, f.t->events[op_named(f.s, forward)].end_ns);
    }
    done(&f);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("order");
    TCase *t = tcase_create("worked examples");
    tcase_add_test(t, cpu_bound_with_priorities);
    tcase_add_test(t, cpu_bound_in_backward_order);
    tcase_add_test(t, copy_bound_with_priorities);
    tcase_add_test(t, copy_bound_in_backward_order);
    tcase_add_test(t, few_offloaded_blocks);
    tcase_add_test(t, one_ahead_prefetch_stalls);
    tcase_add_test(t, a_prefetch_is_not_released_before_the_drop);
    suite_add_tcase(suite, t);
    SRunner *r = srunner_create(suite);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
