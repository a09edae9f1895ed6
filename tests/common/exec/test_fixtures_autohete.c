/*
 * Offloading with priorities (AutoHete, Sec. 3.2, 3.3): five blocks, where the order in which gradients leave the GPU
 * and steps run on the CPU decides when the next iteration may start. Times in units of a forward pass.
 */
#include "tests/common/exec/fixtures.h"

static struct fixture loaded(const char *graph, const char *prices)
{
    struct fixture f = fixture_load(graph);
    load_prices(&f, prices);
    return f;
}

/* Checks the first iteration on the GPU, which is the same for both queues. */
static void check_gpu(const struct fixture *f)
{
    CHECK_SPANS(f, 0, {"PF1", 0, 1}, {"PF2", 1, 2}, {"PF3", 2, 3}, {"PF4", 3, 4}, {"PF5", 4, 5}, {"F1", 1, 2},
                {"F2", 2, 3}, {"F3", 3, 4}, {"F4", 4, 5}, {"F5", 5, 6}, {"B5", 6, 8}, {"B4", 8, 10}, {"R3", 10, 11},
                {"B3", 11, 13}, {"PB1", 13, 14}, {"R2", 13, 14}, {"B2", 14, 16}, {"R1", 16, 17}, {"B1", 17, 19});
}

/*
 * CPU-bound: t_cpu = 6, others 1, t_bp = 2. Steps that wait when the CPU is free: {5} at 9, {3,4} at 15, {1,2,4} at 21,
 * {2,4} at 27, {4} at 33. Smallest first gives 5 3 1 2 4, so F1 of the next iteration starts when O1 ends at 27 and PF1
 * at 28, and only block 4 is late. The period is t_cpu L + t_h2d + (L - j + 1) t_fp + t_bp + t_d2h with the block
 * updated last j = 4: 30 + 1 + 2 + 2 + 1 = 36.
 */
START_TEST(cpu_bound_priority)
{
    struct fixture f = loaded("autohete", "autohete");
    run(&f, 5);
    check_gpu(&f);
    CHECK_SPANS(&f, 0, {"G5", 8, 9}, {"G4", 10, 11}, {"G3", 13, 14}, {"G2", 16, 17}, {"G1", 19, 20}, {"O5", 9, 15},
                {"O3", 15, 21}, {"O1", 21, 27}, {"O2", 27, 33}, {"O4", 33, 39});
    CHECK_SPANS(&f, 1, {"PF1", 27, 28}, {"F1", 28, 29}, {"PF2", 33, 34}, {"F2", 34, 35}, {"PF3", 34, 35},
                {"F3", 35, 36}, {"PF4", 39, 40}, {"F4", 40, 41}, {"PF5", 40, 41}, {"F5", 41, 42});
    check_ends(&f, 0, 39);
    check_period(&f, 2, 36);
    check_ahead(&f);
    fixture_free(&f);
}
END_TEST

/* First come, first served: 5 4 3 2 1. F1 waits for the last step: 30 + 1 + 5 + 2 + 1 = 39. */
START_TEST(cpu_bound_fifo)
{
    struct fixture f = loaded("autohete_fifo", "autohete_fifo");
    run(&f, 5);
    check_gpu(&f);
    CHECK_SPANS(&f, 0, {"G5", 8, 9}, {"G4", 10, 11}, {"G3", 13, 14}, {"G2", 16, 17}, {"G1", 19, 20}, {"O5", 9, 15},
                {"O4", 15, 21}, {"O3", 21, 27}, {"O2", 27, 33}, {"O1", 33, 39});
    CHECK_SPANS(&f, 1, {"PF1", 39, 40}, {"F1", 40, 41}, {"F2", 41, 42}, {"F3", 42, 43}, {"F4", 43, 44}, {"F5", 44, 45});
    check_ends(&f, 0, 39);
    check_period(&f, 2, 39);
    check_ahead(&f);
    fixture_free(&f);
}
END_TEST

/* Bound by gradient offload: t_d2h = 4.5, t_cpu = 1. At 17 blocks 3 and 2 wait, and 2 goes first; at 21.5 it is 1. */
START_TEST(d2h_bound_priority)
{
    struct fixture f = loaded("autohete", "autohete_d2h");
    run(&f, 5);
    check_gpu(&f);
    CHECK_SPANS(&f, 0, {"G5", 8, 12.5}, {"G4", 12.5, 17}, {"G2", 17, 21.5}, {"G1", 21.5, 26}, {"G3", 26, 30.5},
                {"O5", 12.5, 13.5}, {"O4", 17, 18}, {"O2", 21.5, 22.5}, {"O1", 26, 27}, {"O3", 30.5, 31.5});
    CHECK_SPANS(&f, 1, {"F1", 28, 29}, {"F2", 29, 30}, {"F3", 32.5, 33.5}, {"F4", 33.5, 34.5}, {"F5", 34.5, 35.5});
    check_period(&f, 2, 29.5);
    check_ahead(&f);
    fixture_free(&f);
}
END_TEST

START_TEST(d2h_bound_fifo)
{
    struct fixture f = loaded("autohete_fifo", "autohete_d2h");
    run(&f, 5);
    check_gpu(&f);
    CHECK_SPANS(&f, 0, {"G5", 8, 12.5}, {"G4", 12.5, 17}, {"G3", 17, 21.5}, {"G2", 21.5, 26}, {"G1", 26, 30.5},
                {"O1", 30.5, 31.5});
    CHECK_SPANS(&f, 1, {"F1", 32.5, 33.5}, {"F5", 36.5, 37.5});
    check_period(&f, 2, 31.5);
    check_ahead(&f);
    fixture_free(&f);
}
END_TEST

/*
 * o = 2: GPU-bound, 5 t_fp + 3 recomputations + 5 t_bp + 3 t_gpu = 5 + 3 + 10 + 0.6 = 18.6, whatever the queues do:
 * steps of blocks 5 and 4 end at 11 and 14, in time for F4 and F5 of the next iteration.
 */
START_TEST(few_offloaded)
{
    struct fixture f = loaded("autohete_few", "autohete_few");
    for (int fifo = 0; fifo < 2; fifo++) {
        for (int32_t i = 0; i < f.s->n_lanes; i++)
            if (fifo) f.s->lanes[i].order = HT_FIFO;
        run(&f, 4);
        CHECK_SPANS(&f, 0, {"O5", 8, 11}, {"O4", 11, 14}, {"B3", 10, 12}, {"U3", 12, 12.2}, {"U1", 18.4, 18.6});
        check_ends(&f, 0, 18.6);
        check_period(&f, 2, 18.6);
    }
    fixture_free(&f);
}
END_TEST

/*
 * Memory by the paper's table (Sec. 3.1), in KiB, 2 M_p = 8, 2 M'_a = 2, 2 M_a = 20. At the end of F5 three inputs, two
 * full sets, parameters of blocks 2 to 5: 6 + 40 + 32 = 78. B5 adds its gradient: 86. Eq. 1 allows 6 + 60 + 40 = 106.
 * Host: 14 M_p o = 5 x 56 = 280 (eq. 2), and 8 while a step holds both the gradient that it reads and the parameters
 * that it writes (the paper lets them share a buffer).
 */
START_TEST(memory)
{
    static const char *const graphs[] = {"autohete", "autohete_fifo"};
    for (size_t i = 0; i < HT_COUNT(graphs); i++) {
        struct fixture f = loaded(graphs[i], "autohete");
        const struct ht_footprint *device = &f.proof.spaces[ht_space(f.s, HT_DEVICE, 0)];
        check_footprint(&f, HT_DEVICE, 0, 86);
        check_footprint(&f, HT_HOST, 0, 288);
        ck_assert_int_eq(device->peak_op, op_named(f.s, "B5"));
        ck_assert_int_eq(device->by_class[HT_PARAM], 4 * 8 * 1024);
        ck_assert_int_eq(device->by_class[HT_CHECKPOINT] + device->by_class[HT_ACTIVATION], 46 * 1024);
        ck_assert_int_eq(device->by_class[HT_GRAD], 8 * 1024);
        run(&f, 4);
        ck_assert_int_eq(f.trace->peak_bytes[ht_space(f.s, HT_DEVICE, 0)], 86 * 1024);
        ck_assert_int_eq(f.trace->peak_bytes[ht_space(f.s, HT_HOST, 0)], 288 * 1024);
        fixture_free(&f);
    }
}
END_TEST

/* A KiB less on the GPU and B5 does not fit: the answer comes before anything runs, and says so. */
START_TEST(does_not_fit)
{
    struct fixture f = fixture_load("autohete");
    struct ht_error err = {0};
    ht_schedule_set_capacity(f.s, HT_DEVICE, 0, 85 * 1024);
    ck_assert_int_eq(ht_schedule_verify(f.s, &err, NULL), HT_INFEASIBLE);
    ck_assert_ptr_nonnull(strstr(err.text, "OOM at backward of"));
    fixture_free(&f);
}
END_TEST

/*
 * The memory rule must keep every earlier id runnable beside what is granted. At 21 gradients 1, 2, 4 wait on the host;
 * O1 would be granted before O4 (id order), whose 8 KiB must remain to be had: with 288 KiB O1 has to wait, with 296 it
 * goes. Nothing deadlocks and no iteration is lost, but the period is no longer that of the priorities.
 */
START_TEST(priorities_need_room)
{
    struct fixture f = loaded("autohete", "autohete");
    ht_schedule_set_capacity(f.s, HT_HOST, 0, 288 * 1024);
    run(&f, 4);
    ck_assert_int_gt(event_of(&f, 0, "O1")->start_ns, units(21));
    ck_assert_int_gt(f.trace->iteration_end_ns[3], units(39 + 3 * 36));
    fixture_free(&f);
}
END_TEST

int main(void)
{
    TCase *tc = tcase_create("autohete");
    tcase_add_test(tc, cpu_bound_priority);
    tcase_add_test(tc, cpu_bound_fifo);
    tcase_add_test(tc, d2h_bound_priority);
    tcase_add_test(tc, d2h_bound_fifo);
    tcase_add_test(tc, few_offloaded);
    tcase_add_test(tc, memory);
    tcase_add_test(tc, does_not_fit);
    tcase_add_test(tc, priorities_need_room);
    return run_suite("fixtures: AutoHete", tc);
}
