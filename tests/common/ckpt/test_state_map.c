/* Residents that hold the elements of the state: shards, padded and empty ones, tiers, copies on several ranks. */
#include "common/ckpt/state_map.h"

#include "common/base/array.h"
#include "tests/common/ckpt/models.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static const struct ht_label nothing = {.unit = -1, .micro_batch = -1};

/* Shards as common/draft/zero.c cuts them: of ceil(n / N) elements, those that reach beyond the unit padded. A unit
   of 12 elements over 8 ranks: six shards of 2 and two empty ones; over 5: four of 3 and an empty one. */
static struct ht_tensor shard_of(enum ht_tensor_class class, int64_t unit, int64_t rank, int64_t n_ranks,
                                 int64_t element_bytes)
{
    int64_t n = ht_unit_params(&model, unit), each = (n + n_ranks - 1) / n_ranks;
    return (struct ht_tensor){.class = class,
                              .label = {.unit = (int32_t)unit, .n_units = 1, .micro_batch = -1},
                              .bytes = each * element_bytes,
                              .shard_begin = rank * each < n ? rank * each : n,
                              .shard_end = (rank + 1) * each < n ? (rank + 1) * each : n,
                              .sharded = true,
                              .rank = (int32_t)rank};
}

static const enum ht_tensor_class classes[] = {HT_PARAM, HT_MASTER, HT_MOMENTUM, HT_VARIANCE};

/* Every unit's state in shards over the ranks, on the devices; in 16 bits with masters beside the copies. */
static struct ht_schedule *sharded(int32_t n_ranks, enum ht_dtype param)
{
    struct ht_schedule *s = ht_schedule_create("sharded", n_ranks, 1, NULL);
    for (int64_t u = 0; u < ht_model_units(&model); u++)
        for (size_t c = 0; c < HT_COUNT(classes); c++)
            for (int32_t r = 0; r < n_ranks; r++) {
                if (classes[c] == HT_MASTER && param == HT_F32) continue;
                int64_t each = classes[c] == HT_PARAM ? ht_dtype_bytes(param) : 4;
                ht_add_resident(s, ht_add_tensor(s, shard_of(classes[c], u, r, n_ranks, each)), HT_DEVICE, r);
            }
    return s;
}

/* Walks a part by its pieces: each has exactly one copy that can be read, which is on the rank whose shard it is. */
static void check_shards(const struct ht_state_map *map, int64_t unit, enum ht_state_part part, int64_t n_ranks,
                         bool copied)
{
    int64_t n = ht_unit_params(&model, unit), each = (n + n_ranks - 1) / n_ranks;
    const struct ht_state_copy *copies;
    int64_t n_copies = ht_state_map_copies(map, unit, part, &copies);
    for (struct ht_piece p = {.unit = unit, .part = part}; p.begin < n; p.begin = p.end) {
        int readable = 0, stale = 0;
        p.end = n;
        p = ht_state_map_cut(map, p);
        ck_assert(p.end > p.begin && (p.end == n || p.end % each == 0));
        for (int64_t i = 0; i < n_copies; i++) {
            if (!ht_state_has(map, &copies[i], p, -1)) continue;
            ck_assert_int_eq(copies[i].rank, p.begin / each);
            ck_assert_int_eq(copies[i].type != HT_F32, copies[i].stale);
            readable += !copies[i].stale;
            stale += copies[i].stale;
        }
        ck_assert_int_eq(readable, 1);
        ck_assert_int_eq(stale, copied && part == HT_STATE_PARAM);
    }
}

START_TEST(shards)
{
    static const enum ht_dtype params[] = {HT_F32, HT_BF16, HT_F16};
    for (int32_t n_ranks = 1; n_ranks <= 16; n_ranks++)
        for (size_t k = 0; k < HT_COUNT(params); k++) {
            struct ht_error err = {0};
            struct ht_state_map *map;
            struct ht_schedule *s = sharded(n_ranks, params[k]);
            ck_assert_msg(ht_state_map_create(s, &model, params[k], &err, &map) == HT_OK, "%s", err.text);
            for (int64_t u = 0; u < ht_model_units(&model); u++)
                for (int part = 0; part < HT_N_STATE_PARTS; part++)
                    check_shards(map, u, (enum ht_state_part)part, n_ranks, params[k] != HT_F32);
            ht_state_map_destroy(map);
            ht_schedule_destroy(s);
        }
}
END_TEST

static void refused(struct ht_schedule *s, enum ht_dtype param, const char *why)
{
    struct ht_error err = {0};
    struct ht_state_map *map;
    ck_assert_int_eq(ht_state_map_create(s, &model, param, &err, &map), HT_FAILED);
    ck_assert_msg(strstr(err.text, why), "%s", err.text);
    ht_schedule_destroy(s);
}

/* Only the unit's end is padded, by whole elements, and by no more than a unit has. The last unit has 12 elements,
   whose parameters over 5 ranks are the last five rows but ten. */
START_TEST(misfits)
{
    struct ht_schedule *s = sharded(5, HT_F32);
    int32_t first = s->n_tensors - 15, last = s->n_tensors - 11;
    ck_assert(s->tensors[first].class == HT_PARAM && s->tensors[first].shard_begin == 0 &&
              s->tensors[last].shard_begin == 12 && s->tensors[last].shard_end == 12);
    s->tensors[first].bytes += 4;
    refused(s, HT_F32, "unit 3: a tensor of 16 bytes for elements 0 to 3 of 12 in f32");
    s = sharded(5, HT_F32);
    s->tensors[last].bytes = 13 * 4;
    refused(s, HT_F32, "unit 3: a tensor of 52 bytes for elements 12 to 12 of 12 in f32");
    s = sharded(5, HT_F32);
    s->tensors[last].bytes = 6;
    refused(s, HT_F32, "unit 3: a tensor of 6 bytes for");
    s = sharded(5, HT_F32);
    s->tensors[first].label.unit = 9;
    refused(s, HT_F32, "a tensor of class 'param' is about unit 9 of a model with 4");
    s = sharded(5, HT_BF16);
    s->tensors[0].bytes *= 2; /* no numerics have an FP32 copy beside a master */
    refused(s, HT_BF16, "unit 0: a tensor of ");
    s = sharded(5, HT_BF16); /* copies of 16 bits are not parameters */
    for (int32_t i = 0; i < s->n_tensors; i++)
        if (s->tensors[i].class == HT_MASTER && s->tensors[i].label.unit == 3) s->tensors[i].class = HT_GRAD;
    refused(s, HT_BF16, "unit 3: 12 of 12 elements of its param are resident nowhere");
    s = sharded(5, HT_F32); /* the fourth shard of the variance */
    s->tensors[s->n_tensors - 2].class = HT_GRAD;
    refused(s, HT_F32, "unit 3: 3 of 12 elements of its variance are resident nowhere");
}
END_TEST

/*
 * Two ranks on each of two nodes. Rank 3 has all of unit 3's momentum on its device, rank 1 elements 0 to 5 and 5 to 12
 * on its host, which is rank 0's, and everything else is there, too; parameters also on rank 1's device. The optimizer
 * steps them on the host, or nowhere that is known.
 */
static struct ht_schedule *tiers(bool stepped)
{
    static const int32_t nodes[] = {0, 0, 1, 1};
    struct ht_schedule *s = ht_schedule_create("tiers", 4, 2, nodes);
    int32_t lane = ht_add_lane(s, "cpu", HT_LANE_HOST, 1, HT_FIFO),
            work = ht_add_work(s, &(struct ht_work){.custom = "w"});
    ht_add_op(s, stepped ? HT_OP_OPTIMIZER_STEP : HT_OP_UNDO, lane, nothing, work);
    for (int32_t u = 0; u < ht_model_units(&model); u++)
        for (size_t c = 0; c < HT_COUNT(classes); c++) {
            int64_t n = ht_unit_params(&model, u);
            struct ht_tensor t = {
                .class = classes[c], .label = {.unit = u, .n_units = 1, .micro_batch = -1}, .bytes = 4 * n, .rank = 1};
            if (classes[c] == HT_MASTER) continue;
            bool halves = u == 3 && classes[c] == HT_MOMENTUM;
            for (int half = 0; half <= halves; half++) {
                if (halves) {
                    t.sharded = true;
                    t.shard_begin = half ? 5 : 0;
                    t.shard_end = half ? n : 5;
                    t.bytes = 4 * (t.shard_end - t.shard_begin);
                }
                int32_t id = ht_add_tensor(s, t);
                ht_add_resident(s, id, HT_HOST, 1);
                ht_op_effect(s, id, HT_HOST, HT_UPDATE);
                if (classes[c] == HT_PARAM) ht_add_resident(s, id, HT_DEVICE, 1);
            }
            if (!halves) continue;
            struct ht_tensor whole = {.class = HT_MOMENTUM, .label = t.label, .bytes = 4 * n, .rank = 3};
            ht_add_resident(s, ht_add_tensor(s, whole), HT_DEVICE, 3);
        }
    return s;
}

START_TEST(tiers_and_nodes)
{
    for (int stepped = 0; stepped < 2; stepped++) {
        struct ht_schedule *s = tiers(stepped);
        struct ht_state_map *map;
        struct ht_error err = {0};
        const struct ht_state_copy *c;
        ck_assert_msg(ht_state_map_create(s, &model, HT_F32, &err, &map) == HT_OK, "%s", err.text);
        ck_assert_int_eq(ht_state_map_copies(map, 1, HT_STATE_PARAM, &c),
                         2); /* by rank: the node's first has the host */
        ck_assert(c[0].rank == 0 && !c[0].stale && c[1].rank == 1 && c[1].stale == stepped);
        ck_assert_int_eq(ht_state_map_copies(map, 3, HT_STATE_MOMENTUM, &c), 3);
        ck_assert(c[0].rank == 0 && c[0].end == 5 && c[1].rank == 0 && c[1].begin == 5 && c[2].rank == 3 &&
                  c[2].end == 12);
        static const int64_t cuts[][3] = {{0, 12, 5}, {5, 12, 12}, {0, 3, 3}, {2, 9, 5}, {6, 7, 7}};
        for (size_t i = 0; i < HT_COUNT(cuts); i++) {
            struct ht_piece p = {3, HT_STATE_MOMENTUM, cuts[i][0], cuts[i][1]};
            ck_assert_int_eq(ht_state_map_cut(map, p).end, cuts[i][2]);
        }
        ht_state_map_destroy(map);
        ht_schedule_destroy(s);
    }
}
END_TEST

/* A piece is at most as large as the buffers of all ranks. */
START_TEST(long_pieces)
{
    struct ht_schedule *s = ht_schedule_create("wide", 1, 1, NULL);
    struct ht_state_map *map;
    struct ht_error err = {0};
    for (int32_t u = 0; u < 2; u++)
        for (size_t c = 0; c < HT_COUNT(classes); c++) {
            struct ht_tensor t = {
                .class = classes[c], .label = {.unit = u, .n_units = 1}, .bytes = 4 * ht_unit_params(&wide_model, u)};
            if (classes[c] != HT_MASTER) ht_add_resident(s, ht_add_tensor(s, t), HT_DEVICE, 0);
        }
    ck_assert_msg(ht_state_map_create(s, &wide_model, HT_F32, &err, &map) == HT_OK, "%s", err.text);
    struct ht_piece p = ht_state_map_cut(map, (struct ht_piece){0, HT_STATE_PARAM, 10, ht_unit_params(&wide_model, 0)});
    ck_assert_int_eq(p.end, 10 + HT_PIECE_ELEMENTS);
    ht_state_map_destroy(map);
    ht_schedule_destroy(s);
}
END_TEST

/* Every unit's state in two tensor-parallel parts, on two replicas: rank = 2 replica + part. sharded: each replica has one
   half of each part. */
static struct ht_schedule *in_parts(bool sharded)
{
    struct ht_schedule *s = ht_schedule_create("parts", 4, 1, NULL);
    for (int32_t u = 0; u < ht_model_units(&model); u++)
        for (size_t c = 0; c < HT_COUNT(classes); c++)
            for (int32_t r = 0; r < 4; r++) {
                struct ht_model part = ht_model_part(&model, r % 2, 2);
                int64_t n = ht_unit_params(&part, u), half = (n + 1) / 2;
                struct ht_tensor t = {.class = classes[c],
                                      .label = {.unit = u, .n_units = 1, .micro_batch = -1},
                                      .bytes = (sharded ? half : n) * (classes[c] == HT_PARAM ? 2 : 4),
                                      .shard_begin = sharded && r / 2 ? half : 0,
                                      .shard_end = sharded && !(r / 2) ? half : n,
                                      .sharded = sharded,
                                      .part = r % 2,
                                      .parts = 2,
                                      .rank = r};
                ht_add_resident(s, ht_add_tensor(s, t), HT_DEVICE, r);
            }
    return s;
}

/* Counts, for each element of a piece, the copies that have it; a copy has its part's share of the piece, or nothing. */
static void count_copies(const struct ht_state_map *map, struct ht_piece p, int *seen)
{
    const struct ht_state_copy *copies;
    int64_t n = ht_state_map_copies(map, p.unit, p.part, &copies);
    ck_assert_int_eq(n, 8); /* a master and its 16-bit copy on each rank */
    for (int64_t i = 0; i < n; i++) {
        const struct ht_state_copy *c = &copies[i];
        struct ht_model part = ht_model_part(&model, c->rank % 2, 2);
        struct ht_state_run run;
        bool has = ht_state_has(map, c, p, c->tp_part);
        ck_assert_int_eq(c->tp_part, c->rank % 2);
        ck_assert_int_eq(has, ht_state_has(map, c, p, -1));
        ck_assert(!ht_state_has(map, c, p, !c->tp_part));
        for (int64_t at = p.begin; ht_state_next_run(map, c, p, &at, &run);)
            for (int64_t k = 0; k < run.count; k++) {
                struct ht_part_run r = ht_unit_part_run(&part, p.unit, c->begin + run.in_copy + k);
                ck_assert_int_eq(r.whole, p.begin + run.in_piece + k);
                ck_assert_int_eq(has, run.in_copy + k >= 0 && run.in_copy + k < c->end - c->begin);
                seen[run.in_piece + k] += has;
            }
    }
}

/* The runs of a piece's shares, one part's after the other's, are the piece; what all parts have is one share. */
static void check_parts(bool sharded)
{
    struct ht_schedule *s = in_parts(sharded);
    struct ht_error err = {0};
    struct ht_state_map *map;
    ck_assert_msg(ht_state_map_create(s, &model, HT_BF16, &err, &map) == HT_OK, "%s", err.text);
    int several = 0;
    for (int64_t u = 0; u < ht_model_units(&model); u++)
        for (struct ht_piece p = {.unit = u}; p.begin < ht_unit_params(&model, u); p.begin = p.end) {
            p.end = ht_unit_params(&model, u);
            p = ht_state_map_cut(map, p);
            ck_assert_int_gt(p.end, p.begin);
            int32_t shares = ht_state_map_shares(map, p);
            int *seen = HT_NEW_ARRAY(int, p.end - p.begin);
            count_copies(map, p, seen);
            for (int64_t k = 0; k < p.end - p.begin; k++)
                ck_assert_int_eq(seen[k], (shares == 2 ? 4 : 8) / (sharded ? 2 : 1));
            several += shares == 2;
            free(seen);
        }
    /* the table; query, key and value, fc1 with their biases, projection, fc2; shards cut some of them */
    if (sharded)
        ck_assert_int_gt(several, 1 + 2 * 6);
    else
        ck_assert_int_eq(several, 1 + 2 * 6);
    ht_state_map_destroy(map);
    ht_schedule_destroy(s);
}

START_TEST(parts)
{
    struct ht_error err = {0};
    struct ht_state_map *map;
    check_parts(false);
    check_parts(true);
    /* Both replicas lack part 1 of the head's, which is a norm: part 0 has it. But not the table's. */
    for (int32_t u = 3; u >= 0; u -= 3) {
        struct ht_schedule *s = in_parts(false);
        for (int32_t i = 0; i < s->n_tensors; i++)
            if (s->tensors[i].label.unit == u && s->tensors[i].part == 1) s->tensors[i].class = HT_GRAD;
        if (u == 0) {
            refused(s, HT_BF16, "unit 0: 66 of 96 elements of its param are resident nowhere");
            continue;
        }
        ck_assert_msg(ht_state_map_create(s, &model, HT_BF16, &err, &map) == HT_OK, "%s", err.text);
        ht_state_map_destroy(map);
        ht_schedule_destroy(s);
    }
    /* Nobody has the first element of part 0's second half. */
    struct ht_schedule *s = in_parts(true);
    for (int32_t i = 0; i < s->n_tensors; i++)
        if (s->tensors[i].label.unit == 1 && s->tensors[i].rank == 2)
            s->tensors[i].shard_begin++, s->tensors[i].bytes -= s->tensors[i].class == HT_PARAM ? 2 : 4;
    refused(s, HT_BF16, "unit 1: 1 of 510 elements of its param are resident nowhere");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("state_map");
    TCase *t = tcase_create("state_map");
    tcase_add_test(t, shards);
    tcase_add_test(t, misfits);
    tcase_add_test(t, tiers_and_nodes);
    tcase_add_test(t, long_pieces);
    tcase_add_test(t, parts);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
