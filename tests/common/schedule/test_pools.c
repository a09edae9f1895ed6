/* What a program's allocator takes of a device: by hand, and against a second implementation that keeps cells. */
#include "common/schedule/pools.h"
#include "common/schedule/rules.h"
#include "common/base/rng.h"
#include "tests/common/schedule/sample.h"
#include "tests/support/suite.h"

#define MIB INT64_C(1048576)

static const struct ht_allocator pytorch = {.own_bytes = 10 * MIB, .round_bytes = 2 * MIB, .shared_bytes = 20 * MIB};

/* Two lanes of a device, and tensors of some sizes. */
struct bench {
    struct ht_schedule *s;
    int32_t gpu, d2h, h2d, work;
};

static struct bench bench(void)
{
    struct bench b = {.s = ht_schedule_create("pools", 1, 1, NULL)};
    b.gpu = ht_add_lane(b.s, "gpu", HT_LANE_COMPUTE, 0, HT_FIFO);
    b.h2d = ht_add_lane(b.s, "h2d", HT_LANE_H2D, 0, HT_FIFO);
    b.d2h = ht_add_lane(b.s, "d2h", HT_LANE_D2H, 0, HT_FIFO);
    b.work = sample_work(b.s, HT_OP_FORWARD, HT_LANE_COMPUTE, 0, 1);
    b.s->allocator = pytorch;
    return b;
}

/* Adds a row that is one tensor. */
static int32_t tensor(struct bench *b, int64_t bytes)
{
    return sample_tensor(b->s, HT_STAGING, 0, 0, bytes, 0);
}

/* Adds an op with one effect on the device. */
static void op(struct bench *b, int32_t lane, int32_t tensor, unsigned flags)
{
    ht_add_op(b->s, HT_OP_FORWARD, lane, sample_label(0, 0), b->work);
    ht_op_effect(b->s, tensor, HT_DEVICE, flags);
}

static struct ht_footprint footprint(const struct ht_schedule *s, struct ht_error *err, enum ht_status *status)
{
    struct ht_residencies p;
    struct ht_footprint *f = HT_NEW_ARRAY(struct ht_footprint, ht_n_spaces(s)), first;
    ht_residencies_init(&p, s);
    *status = ht_rule_memory(s, &p, ht_n_branches(s), err, f);
    ht_residencies_free(&p);
    first = f[0];
    free(f);
    return first;
}

static int64_t program(struct bench *b)
{
    enum ht_status status;
    struct ht_footprint f = footprint(b->s, NULL, &status);
    ck_assert_int_eq(status, HT_OK);
    return f.program_bytes;
}

/*
 *     h2d   P 50 MiB comes and goes               a segment of 50
 *     gpu                            A 60 MiB     one of 60
 *
 * No more than 60 MiB are live at once, but A does not get P's block: 110 MiB. In 105 MiB the segment of P goes back
 * before A comes, unless 10 MiB of it are in use again: then A is the OOM, short by 5 MiB.
 */
START_TEST(streams_do_not_share)
{
    struct ht_error err = {0};
    enum ht_status status;
    for (int in_use = 0; in_use <= 1; in_use++) {
        struct bench b = bench();
        int32_t p = tensor(&b, 50 * MIB), a = tensor(&b, 60 * MIB), piece = tensor(&b, 10 * MIB);
        op(&b, b.h2d, p, HT_PRODUCE);
        op(&b, b.gpu, p, HT_NEED | HT_RELEASE);
        if (in_use) op(&b, b.h2d, piece, HT_PRODUCE);
        op(&b, b.gpu, a, HT_PRODUCE);
        op(&b, b.gpu, a, HT_NEED | HT_RELEASE);
        if (in_use) op(&b, b.gpu, piece, HT_NEED | HT_RELEASE);
        struct ht_footprint f = footprint(b.s, &err, &status);
        ck_assert_int_eq(status, HT_OK);
        ck_assert_int_eq(f.peak_bytes, (in_use ? 70 : 60) * MIB);
        ck_assert_int_eq(f.program_bytes, 110 * MIB);

        ht_schedule_set_capacity(b.s, HT_DEVICE, 0, 105 * MIB);
        f = footprint(b.s, &err, &status);
        if (!in_use) {
            ck_assert_int_eq(status, HT_OK);
            ck_assert_int_eq(f.program_bytes, 60 * MIB);
        } else {
            ck_assert_int_eq(status, HT_INFEASIBLE);
            ck_assert_int_eq(f.first_oom_op, 3);
            ck_assert_int_eq(f.oom_needs_bytes, 60 * MIB);
            ck_assert_int_eq(f.oom_held_bytes, 10 * MIB);
            ck_assert_int_eq(ht_footprint_short_bytes(b.s, 0, &f), 5 * MIB);
            ck_assert_msg(strstr(err.text,
                                 "; beside tensors the program has 41.94 MB there, in free blocks of its streams "
                                 "and for communicators; the iteration needs 115.3 MB, short by 5.243 MB"),
                          "%s", err.text);
            b.s->allocator = (struct ht_allocator){0}; /* without such an allocator 70 MiB are enough */
            ht_schedule_set_capacity(b.s, HT_DEVICE, 0, 70 * MIB);
            f = footprint(b.s, &err, &status);
            ck_assert_int_eq(status, HT_OK);
            ck_assert_int_eq(f.program_bytes, f.peak_bytes);
        }
        ht_schedule_destroy(b.s);
    }
}
END_TEST

/* 10 MiB and a byte have a segment of 12 MiB; 10 MiB one of 10. Three of 7 MiB share two of 20, and 1 MiB lies in what the
   first has left. */
START_TEST(segments)
{
    static const int64_t sizes[] = {10 * MIB + 1, 10 * MIB, 7 * MIB, 7 * MIB, 7 * MIB, MIB};
    struct bench b = bench();
    for (size_t i = 0; i < HT_COUNT(sizes); i++) op(&b, b.gpu, tensor(&b, sizes[i]), HT_PRODUCE);
    for (int32_t i = 0; i < b.s->n_tensors; i++) op(&b, b.gpu, i, HT_RELEASE);
    ck_assert_int_eq(program(&b), (12 + 10 + 40) * MIB);
    ht_schedule_destroy(b.s);
}
END_TEST

/* Four blocks of 10 MiB are free, between live ones of 10. They serve a row of activations of 40 MiB, which is four tensors,
   but not one tensor of 40. */
START_TEST(rows_of_several_tensors)
{
    for (int one = 0; one <= 1; one++) {
        struct bench b = bench();
        int32_t of[8], row = sample_tensor(b.s, one ? HT_CHECKPOINT : HT_ACTIVATION, 0, 0, 40 * MIB, 0);
        for (int i = 0; i < 8; i++) op(&b, b.gpu, of[i] = tensor(&b, 10 * MIB), HT_PRODUCE);
        for (int i = 0; i < 8; i += 2) op(&b, b.gpu, of[i], HT_RELEASE);
        op(&b, b.gpu, row, HT_PRODUCE | HT_RELEASE);
        for (int i = 1; i < 8; i += 2) op(&b, b.gpu, of[i], HT_RELEASE);
        ck_assert_int_eq(program(&b), (one ? 120 : 80) * MIB);
        ht_schedule_destroy(b.s);
    }
}
END_TEST

/*
 * A gradient of 20 MiB leaves by a copy while the next comes: both are held, unless what leaves is gone at once.
 *
 *     gpu  G1 .  G2 .  G3    live: 20, 0, 20, 0, 20
 *     d2h     G1'   G2'      held: 20, 20, 20 + 20; G3 has the block of G1
 */
START_TEST(what_leaves_while_the_next_comes)
{
    struct bench b = bench();
    for (int i = 0; i < 3; i++) {
        int32_t g = tensor(&b, 20 * MIB);
        op(&b, b.gpu, g, HT_PRODUCE);
        op(&b, b.d2h, g, HT_NEED | HT_RELEASE);
    }
    ck_assert_int_eq(program(&b), 20 * MIB);
    b.s->allocator.leaving = true;
    ck_assert_int_eq(program(&b), 40 * MIB);
    ht_schedule_destroy(b.s);
}
END_TEST

/*
 * Rank 1 sends to rank 0 and to rank 2, and rank 0 to rank 1: two pairs. All three reduce on one lane, twice, and on
 * another one: two communicators. So 3, 4, 3 in all; the first is the software's reserve.
 */
START_TEST(communicators)
{
    struct ht_schedule *s = ht_schedule_create("communicators", 3, 1, NULL);
    int32_t lanes[3][3], n[3], work = sample_work(s, HT_OP_ALL_REDUCE, HT_LANE_COLLECTIVE, 100, 3);
    static const int groups[][3] = {{0, 1, -1}, {1, 0, -1}, {1, 2, -1}};
    for (int32_t r = 0; r < 3; r++) {
        lanes[r][0] = ht_add_lane(s, "p2p", HT_LANE_P2P, r, HT_FIFO);
        lanes[r][1] = ht_add_lane(s, "sums", HT_LANE_COLLECTIVE, r, HT_FIFO);
        lanes[r][2] = ht_add_lane(s, "gathers", HT_LANE_COLLECTIVE, r, HT_FIFO);
    }
    int32_t match = 0;
    for (size_t g = 0; g < HT_COUNT(groups); g++, match++)
        for (int i = 0; groups[g][i] >= 0; i++) {
            ht_add_op(s, i ? HT_OP_RECEIVE : HT_OP_SEND, lanes[groups[g][i]][0], sample_label(0, 0), work);
            ht_op_match(s, match);
        }
    for (int k = 0; k < 3; k++, match++)
        for (int32_t r = 0; r < 3; r++) {
            ht_add_op(s, HT_OP_ALL_REDUCE, lanes[r][k < 2 ? 1 : 2], sample_label(0, -1), work);
            ht_op_match(s, match);
        }
    ht_count_communicators(s, n);
    ck_assert_int_eq(n[0], 3);
    ck_assert_int_eq(n[1], 4);
    ck_assert_int_eq(n[2], 3);
    s->allocator = pytorch;
    for (int32_t r = 0; r < 3; r++) s->communicator_bytes[r] = 40 * MIB;
    struct ht_residencies p;
    ht_residencies_init(&p, s);
    struct ht_pools *pools = ht_pools_create(s, &p);
    ck_assert_int_eq(ht_pools_bytes(pools, 0), 80 * MIB);
    ck_assert_int_eq(ht_pools_bytes(pools, 1), 120 * MIB);
    ht_pools_destroy(pools);
    ht_residencies_free(&p);
    ht_schedule_destroy(s);
}
END_TEST

/* ---- a second implementation: segments are cells, and a block is a run of equal cells ---- */

enum { CELLS = 64, SEGMENTS = 400, TENSORS = 40, STEPS = 300, FREE = -1 };

struct cells {
    int32_t lane, n;   /* n 0: it has gone back */
    int32_t of[CELLS]; /* tensor, or FREE */
};
struct memory {
    struct cells segments[SEGMENTS];
    int n, taken, capacity; /* cells */
};

/* Puts a tensor into the smallest run of free cells of its lane that is large enough, the first of such. */
static bool put(struct memory *m, int32_t lane, int32_t tensor, int size)
{
    int best = CELLS + 1, segment = 0, at = 0;
    for (int i = 0; i < m->n; i++)
        for (int c = 0, run; m->segments[i].lane == lane && c < m->segments[i].n; c += run + 1) {
            for (run = 0; c + run < m->segments[i].n && m->segments[i].of[c + run] == FREE;) run++;
            if (run >= size && run < best) best = run, segment = i, at = c;
        }
    for (int c = at; best <= CELLS && c < at + size; c++) m->segments[segment].of[c] = tensor;
    return best <= CELLS;
}

static void allocate(struct memory *m, int32_t lane, int32_t tensor, int size)
{
    if (put(m, lane, tensor, size)) return;
    int n = size < 10 ? 20 : (size + 3) / 4 * 4;
    bool full = m->taken + n > m->capacity;
    for (int i = 0; full && i < m->n; i++) {
        bool used = false;
        for (int c = 0; c < m->segments[i].n; c++) used |= m->segments[i].of[c] != FREE;
        if (used) continue;
        m->taken -= m->segments[i].n;
        m->segments[i].n = 0;
    }
    ck_assert_int_lt(m->n, SEGMENTS);
    struct cells *s = &m->segments[m->n++];
    s->lane = lane;
    s->n = n;
    m->taken += n;
    for (int c = 0; c < n; c++) s->of[c] = FREE;
    ck_assert(put(m, lane, tensor, size));
}

static void clear(struct memory *m, int32_t tensor)
{
    for (int i = 0; i < m->n; i++)
        for (int c = 0; c < m->segments[i].n; c++)
            if (m->segments[i].of[c] == tensor) m->segments[i].of[c] = FREE;
}

/* Tensors of 1 to 48 cells of 512 bytes come and go on three lanes, in 300 cells of memory. */
START_TEST(random_tensors_against_cells)
{
    static struct memory m;
    int returned = 0;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        struct bench b = bench();
        struct ht_schedule *s = b.s;
        uint64_t drawn = 0;
        bool live[TENSORS] = {false};
        int size[TENSORS];
        s->allocator = (struct ht_allocator){.own_bytes = 10 * 512, .round_bytes = 4 * 512, .shared_bytes = 20 * 512};
        ht_schedule_set_capacity(s, HT_DEVICE, 0, 300 * 512);
        for (int t = 0; t < TENSORS; t++) {
            size[t] = 1 + (int)ht_random_below(seed, drawn++, t % 2 ? 48 : 9);
            tensor(&b, size[t] * 512);
        }
        for (int i = 0; i < STEPS; i++) {
            int t = (int)ht_random_below(seed, drawn++, TENSORS);
            op(&b, (int32_t)ht_random_below(seed, drawn++, 3), t, live[t] ? HT_RELEASE : HT_PRODUCE);
            live[t] = !live[t];
        }
        struct ht_residencies p;
        ht_residencies_init(&p, s);
        struct ht_pools *pools = ht_pools_create(s, &p);
        m = (struct memory){.capacity = 300};
        for (int32_t i = 0; i < s->n_ops; i++) {
            const struct ht_effect *e = &s->effects[i];
            int before = m.taken;
            if (e->flags & HT_PRODUCE) {
                ht_pools_take(pools, i, i);
                allocate(&m, s->ops[i].lane, e->tensor, size[e->tensor]);
            } else {
                ht_pools_return(pools, i, i);
                clear(&m, e->tensor);
            }
            returned += m.taken < before;
            ck_assert_msg(ht_pools_bytes(pools, 0) == m.taken * INT64_C(512), "seed %d op %d: %lld for %d", (int)seed,
                          i, (long long)ht_pools_bytes(pools, 0), m.taken * 512);
        }
        ht_pools_destroy(pools);
        ht_residencies_free(&p);
        ht_schedule_destroy(s);
    }
    ck_assert_int_gt(returned, 100); /* segments went back often enough */
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, streams_do_not_share);
    tcase_add_test(t, segments);
    tcase_add_test(t, rows_of_several_tensors);
    tcase_add_test(t, what_leaves_while_the_next_comes);
    tcase_add_test(t, communicators);
    tcase_add_test(t, random_tensors_against_cells);
}

int main(void)
{
    return run_suite("pools", add);
}
