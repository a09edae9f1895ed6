/*
 * Tests ALL_REDUCE, SEND and RECEIVE of the CPU backend on three processes, and the schedules that it refuses. The
 * program starts itself again under mpirun. tests/harness/test_ranks.sh compares ALL_GATHER and REDUCE_SCATTER with
 * training on one rank.
 */
#include "common/backend/cpu.h"
#include "common/exec/node.h"
#include "common/exec/residents.h"
#include "common/model/zoo.h"
#include "tests/support/ranks.h"

#include <check.h>
#include <string.h>

enum { RANKS = 3, N = 1000, ROUNDS = 3 };
enum { WHOLE, OTHER_SIZE, LONELY_SEND, ONE_PROCESS, N_CASES };

static const struct ht_label about_1 = {.unit = 1, .n_units = 1, .sub_ops = HT_ALL_SUB_OPS, .micro_batch = -1};

/* Rank r begins with x[k] = 2^24 if r is 0 and else 1: the sum from the left is 2^24 again, from the right 2^24 + 2.
   Then rank 2 sends y, which begins as its rank, to rank 0. */
struct graph {
    struct ht_schedule *s;
    int32_t x[RANKS], y[RANKS];
};

static int32_t tensor(struct ht_schedule *s, enum ht_tensor_class class, int32_t rank, int64_t bytes)
{
    int32_t t = ht_add_tensor(s, (struct ht_tensor){.class = class, .label = about_1, .bytes = bytes, .rank = rank});
    ht_add_resident(s, t, HT_DEVICE, rank);
    return t;
}

static struct graph build(int which)
{
    struct graph g = {.s = ht_schedule_create("three", RANKS, 1, NULL)};
    int32_t nccl[RANKS], p2p[RANKS], work = ht_add_work(g.s, &(struct ht_work){.custom = "w"});
    for (int32_t r = 0; r < RANKS; r++) {
        nccl[r] = ht_add_lane(g.s, "nccl", HT_LANE_COLLECTIVE, r, HT_FIFO);
        p2p[r] = ht_add_lane(g.s, "p2p", HT_LANE_P2P, r, HT_FIFO);
        g.x[r] = tensor(g.s, HT_GRAD, r, which == OTHER_SIZE && r == 1 ? 8 * N : 4 * N);
        g.y[r] = tensor(g.s, HT_CHECKPOINT, r, 4 * N);
    }
    for (int32_t r = 0; r < RANKS; r++) {
        ht_add_op(g.s, HT_OP_ALL_REDUCE, nccl[r], about_1, work);
        ht_op_match(g.s, 0);
        ht_op_effect(g.s, g.x[r], HT_DEVICE, HT_UPDATE);
    }
    ht_add_op(g.s, HT_OP_SEND, p2p[2], about_1, work);
    ht_op_match(g.s, 1);
    ht_op_effect(g.s, g.y[2], HT_DEVICE, HT_NEED);
    if (which != LONELY_SEND) {
        ht_add_op(g.s, HT_OP_RECEIVE, p2p[0], about_1, work);
        ht_op_match(g.s, 1);
        ht_op_effect(g.s, g.y[0], HT_DEVICE, HT_UPDATE);
    }
    ht_schedule_link(g.s);
    return g;
}

static enum ht_status init(void *ctx, int32_t space, struct ht_buffer b, struct ht_error *err)
{
    const struct graph *g = ctx;
    (void)err;
    for (int k = 0; k < N; k++)
        ((float *)b.data)[k] = b.tensor == g->y[space] ? (float)space + (float)k : space == 0 ? 0x1p24f : 1;
    return HT_OK;
}

/* After three rounds: x is 2^24 everywhere after the first, then 3 and 9 times as much. */
static enum ht_status final(void *ctx, int32_t space, struct ht_buffer b, struct ht_error *err)
{
    const struct graph *g = ctx;
    for (int k = 0; k < N; k++) {
        float got = ((const float *)b.data)[k];
        float expected = b.tensor != g->y[space] ? 9 * 0x1p24f : (space == 1 ? 1.0f : 2.0f) + (float)k;
        if (got != expected)
            return ht_fail(err, HT_FAILED, "tensor %d of rank %d: element %d is %g, expected %g", b.tensor, space, k,
                           (double)got, (double)expected);
    }
    return HT_OK;
}

static enum ht_status no_data(void *ctx, int32_t iteration, int32_t micro_batch, const void **tokens,
                              const int32_t **targets, struct ht_error *err)
{
    (void)ctx, (void)iteration, (void)micro_batch, (void)tokens, (void)targets;
    return ht_fail(err, HT_FAILED, "nothing here reads tokens");
}

static enum ht_status make_cpu(struct ht_comm *comm, struct ht_cpu **cpu, struct ht_error *err)
{
    struct ht_cpu_options o = {
        .numerics = {HT_F32, HT_F32, HT_F32, HT_F32}, .tokens_per_iteration = 1, .data = no_data, .comm = comm};
    enum ht_status status = ht_model_load("gpt-tiny", err, &o.model);
    return status ? status : ht_cpu_create(&o, err, cpu);
}

static enum ht_status run_rank(struct ht_comm *comm, struct ht_error *err)
{
    struct graph g = build(WHOLE);
    struct ht_space_size sizes[RANKS + 3] = {
        {.capacity_bytes = 1 << 20}, {.capacity_bytes = 1 << 20}, {.capacity_bytes = 1 << 20}};
    struct ht_cpu *cpu = NULL;
    struct ht_node *node = NULL;
    struct ht_trace *t = NULL;
    enum ht_status status = ht_node_create(g.s, comm, sizes, err, &node);
    if (!status) status = ht_agree(comm, make_cpu(comm, &cpu, err), err);
    struct ht_run_options o = {.backend = &ht_cpu_backend, .backend_ctx = cpu};
    if (!status) status = ht_residents_create_ranks(node, err, &o.residents);
    if (!status) status = ht_agree(comm, ht_residents_each(o.residents, init, &g, err), err);
    for (int32_t done = 0; done < ROUNDS && !status; done += o.iterations) { /* each run continues the last */
        o.iterations = done ? ROUNDS - 1 : 1;
        status = ht_run_ranks(g.s, &o, node, err, &t);
        ht_trace_destroy(t);
    }
    if (!status) status = ht_agree(comm, ht_residents_each(o.residents, final, &g, err), err);
    ht_residents_destroy(o.residents);
    if (!atomic_load(&comm->cancelled)) ht_node_destroy(node);
    ht_cpu_destroy(cpu);
    ht_schedule_destroy(g.s);
    return status;
}

START_TEST(test_three_ranks)
{
    launch_ranks(RANKS);
}
END_TEST

/* The backend refuses these when it opens, or, on one process, at the first op. */
START_TEST(test_refusals)
{
    static const char *const text[N_CASES] = {[OTHER_SIZE] = "tensor 0 is not what the member of rank 1 has there",
                                              [LONELY_SEND] = "is in a group of 1",
                                              [ONE_PROCESS] = "takes several ranks, each in a process of its own"};
    struct graph g = build(_i);
    struct ht_cpu *cpu = NULL;
    struct ht_error err = {0};
    ck_assert_int_eq(make_cpu(NULL, &cpu, &err), HT_OK);
    enum ht_status status = ht_cpu_backend.open(cpu, g.s, &err);
    if (_i == ONE_PROCESS) {
        float x[N];
        struct ht_buffer b = {.tensor = g.x[0], .flags = HT_UPDATE, .data = x, .bytes = sizeof(x)};
        ck_assert_msg(status == HT_OK, "%s", err.text);
        status = ht_cpu_backend.run_op(cpu, 0, 0, &b, 1, &err);
        ht_cpu_backend.close(cpu);
    }
    ck_assert_int_eq(status, HT_FAILED);
    ck_assert_msg(strstr(err.text, text[_i]), "%s", err.text);
    ht_cpu_destroy(cpu);
    ht_schedule_destroy(g.s);
}
END_TEST

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "rank")) return run_as_rank(run_rank);
    Suite *s = suite_create("cpu_ranks");
    TCase *tc = tcase_create("cpu_ranks");
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, test_three_ranks);
    tcase_add_loop_test(tc, test_refusals, OTHER_SIZE, N_CASES);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
