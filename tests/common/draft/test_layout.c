/* Layouts: the parts of ranks by hand and at random; and refusals. */
#include "common/draft/layout.h"

#include "common/base/array.h"
#include "common/base/rng.h"
#include "tests/support/scenario.h"

#include <check.h>
#include <stdlib.h>

enum { MOST = 8 };

/* Makes a scenario on `ranks` of the devices of a node. */
static struct ht_scenario scenario_of(int64_t ranks, int64_t batch, int64_t micro_batch)
{
    struct ht_scenario_request r = {
        .model = "gpt-tiny", .cluster = "autohete-4gpu", .batch = batch, .micro_batch = micro_batch, .seq = 16};
    struct ht_scenario s = scenario_from(&r);
    use_gpus(&s, ranks);
    return s;
}

static struct ht_layout *uneven(const struct ht_scenario *s, const struct ht_portion *portions)
{
    struct ht_error err = {0};
    struct ht_layout *l = NULL;
    ck_assert_msg(ht_layout_uneven(s, HT_SHARD_ALL, portions, &err, &l) == HT_OK, "%s", err.text);
    return l;
}

/* Three ranks: 2 micro-batches of 3, none, 3 of 1; a quarter of every unit, nothing, the rest. */
START_TEST(by_hand)
{
    struct ht_scenario s = scenario_of(3, 9, 1);
    struct ht_layout *l = uneven(&s, (struct ht_portion[]){{3, 2, 1}, {5, 0, 0}, {1, 3, 3}});
    static const struct ht_slice slices[] = {{0, 3}, {3, 3}, {6, 1}, {7, 1}, {8, 1}};
    int64_t params = ht_unit_params(&s.model, 1);
    ck_assert_int_eq(l->rounds, 3);
    ck_assert_int_eq(l->n_micro_batches, 5);
    ck_assert(!l->alike);
    for (int32_t r = 0; r < 3; r++) {
        static const int64_t quarters[] = {0, 1, 1, 4};
        const struct ht_shard *x = ht_layout_shard(l, 1, r);
        ck_assert_int_eq(x->begin, quarters[r] * params / 4);
        ck_assert_int_eq(x->end, quarters[r + 1] * params / 4);
        ck_assert_int_eq(x->padded, x->end - x->begin);
    }
    /* In round 2 only rank 2 has a micro-batch, its last. */
    ck_assert_int_eq(ht_layout_micro_batch(l, 0, 1), 1);
    ck_assert_int_eq(ht_layout_micro_batch(l, 2, 1), 3);
    for (int32_t r = 0; r < 3; r++) ck_assert_int_eq(ht_layout_micro_batch(l, r, 2), 4);
    for (int32_t j = 0; j < 5; j++) ck_assert_int_eq(ht_layout_round(l, j), j < 2 ? j : j - 2);
    struct ht_schedule *g = ht_schedule_create("slices", 3, 1, NULL);
    ht_layout_slice(l, g);
    ck_assert_int_eq(g->n_micro_batches, 5);
    ck_assert_mem_eq(g->slices, slices, sizeof slices);
    ht_schedule_destroy(g);
    ht_layout_destroy(l);
    ht_scenario_free(&s);
}
END_TEST

/* Ranks that share the states are one replica of all micro-batches, and each unit is there whole. */
START_TEST(ranks_that_share)
{
    struct ht_scenario s = scenario_of(4, 16, 2);
    struct ht_error err = {0};
    struct ht_layout *l = NULL;
    ck_assert_msg(ht_layout_shared(&s, &err, &l) == HT_OK, "%s", err.text);
    ck_assert_int_eq(l->n_replicas, 1);
    ck_assert_int_eq(l->replicas[0].n_ranks, 4);
    ck_assert_int_eq(l->n_micro_batches, 8);
    ck_assert_int_eq(l->rounds, 8);
    ck_assert(l->alike);
    for (int32_t r = 0; r < 4; r++) {
        ck_assert_int_eq(ht_layout_shard(l, 1, r)->begin, 0);
        ck_assert_int_eq(ht_layout_shard(l, 1, r)->end, ht_unit_params(&s.model, 1));
    }
    ht_layout_destroy(l);
    s.micro_batch = 8;
    ck_assert_int_eq(ht_layout_shared(&s, &err, &l), HT_BAD_INPUT);
    ht_scenario_free(&s);
}
END_TEST

/* Even shards are of one size, the last cut; equal micro-batches need no slices. */
START_TEST(equal_ranks)
{
    for (int64_t ranks = 1; ranks <= MOST; ranks++) {
        struct ht_scenario s = scenario_of(ranks, 6 * ranks, 2);
        struct ht_error err = {0};
        struct ht_layout *l = NULL;
        ck_assert_msg(ht_layout_equal(&s, &err, &l) == HT_OK, "%s", err.text);
        ck_assert_int_eq(l->rounds, 3);
        ck_assert_int_eq(l->n_micro_batches, 3 * ranks);
        for (int32_t u = 0; u < l->n_units; u++) {
            int64_t params = ht_unit_params(&s.model, u), each = (params + ranks - 1) / ranks;
            ck_assert_int_eq(ht_equal_shard(&s, u), each);
            for (int32_t r = 0; r < ranks; r++) {
                const struct ht_shard *x = ht_layout_shard(l, u, r);
                ck_assert_int_eq(x->padded, each);
                ck_assert_int_eq(x->begin, r * each < params ? r * each : params);
                ck_assert_int_eq(x->end, (r + 1) * each < params ? (r + 1) * each : params);
            }
        }
        struct ht_schedule *g = ht_schedule_create("equal", (int32_t)ranks, 1, NULL);
        ht_layout_slice(l, g);
        ck_assert_ptr_null(g->slices);
        ht_schedule_destroy(g);
        ht_layout_destroy(l);
        ht_scenario_free(&s);
    }
}
END_TEST

/* Whatever the portions: shards follow each other and are the unit, as large as their weights say but for rounding. */
START_TEST(random_portions)
{
    for (uint64_t seed = 0; seed < 300; seed++) {
        uint64_t i = 0;
        int32_t ranks = 1 + (int32_t)ht_random_below(seed, i++, MOST);
        struct ht_portion p[MOST];
        int64_t batch = 0, all = 0;
        for (int32_t r = 0; r < ranks; r++) {
            p[r] = (struct ht_portion){
                1 + (int64_t)ht_random_below(seed, i, 3), (int64_t)ht_random_below(seed, i + 1, 4),
                ht_random_below(seed, i + 2, 3) ? (int64_t)ht_random_below(seed, i + 3, 1000000001) : 0};
            i += 4;
            if (r == ranks - 1) p[r].count++, p[r].share++;
            batch += p[r].micro_batch * p[r].count;
            all += p[r].share;
        }
        struct ht_scenario s = scenario_of(ranks, batch, 1);
        struct ht_layout *l = uneven(&s, p);
        for (int32_t u = 0; u < l->n_units; u++) {
            double params = (double)ht_unit_params(&s.model, u);
            int64_t end = 0;
            for (int32_t r = 0; r < ranks; r++) {
                const struct ht_shard *x = ht_layout_shard(l, u, r);
                ck_assert_int_eq(x->begin, end);
                ck_assert_int_ge(x->end, end);
                if (!p[r].share) ck_assert_int_eq(x->end, x->begin);
                if (ranks > 1 && x->padded == x->end - end)
                    ck_assert_double_eq_tol((double)(x->end - end), params * (double)p[r].share / (double)all, 2);
                end = x->end;
            }
            ck_assert_int_eq(end, ht_unit_params(&s.model, u));
        }
        for (int32_t j = 0; j < l->n_micro_batches; j++) ck_assert_int_lt(ht_layout_round(l, j), l->rounds);
        ht_layout_destroy(l);
        ht_scenario_free(&s);
    }
}
END_TEST

START_TEST(no_layouts)
{
    static const struct {
        int64_t batch;
        enum ht_sharding sharding;
        struct ht_portion portions[2];
        const char *says;
    } cases[] = {
        {8, HT_SHARD_ALL, {{2, 2, 1}, {1, 3, 1}}, "the ranks' micro-batches have 7 sequences: expected the batch's 8"},
        {8,
         HT_SHARD_ALL,
         {{2, 2, 0}, {1, 4, 0}},
         "every rank's share of the parameters is 0: expected at least one above 0"},
        {8,
         HT_SHARD_NONE,
         {{2, 4, 1}, {1, 0, 1}},
         "rank 1 has no micro-batch: expected at least one where nothing is sharded"},
        {1 << 20,
         HT_SHARD_NONE,
         {{1, 1 << 19, 1}, {1, 1 << 19, 1}},
         "1048576 micro-batches make too large a graph of 'gpt-tiny'; expected at most 349525"},
    };
    for (size_t i = 0; i < HT_COUNT(cases); i++) {
        struct ht_scenario s = scenario_of(2, cases[i].batch, 1);
        struct ht_error err = {0};
        struct ht_layout *l = NULL;
        ck_assert_int_eq(ht_layout_uneven(&s, cases[i].sharding, cases[i].portions, &err, &l), HT_BAD_INPUT);
        ck_assert_str_eq(err.text, cases[i].says);
        ht_scenario_free(&s);
    }
}
END_TEST

/* Pipelines of three devices and of one: 2 and 4 micro-batches of 2 sequences. */
START_TEST(pipelines_by_hand)
{
    struct ht_scenario s = scenario_of(4, 12, 2);
    struct ht_error err = {0};
    struct ht_layout *l = NULL;
    ck_assert_msg(ht_layout_pipelines(&s, 2, (int64_t[]){3, 1}, (int64_t[]){2, 4}, 1, &err, &l) == HT_OK, "%s",
                  err.text);
    static const struct ht_replica expected[] = {{0, 3, 0, 2, 0, 2}, {3, 1, 2, 4, 4, 2}};
    ck_assert_int_eq(l->n_replicas, 2);
    ck_assert_mem_eq(l->replicas, expected, sizeof expected);
    ck_assert_int_eq(l->n_micro_batches, 6);
    ck_assert_int_eq(l->rounds, 4);
    struct ht_schedule *g = ht_schedule_create("slices", 4, 1, NULL);
    ht_layout_slice(l, g);
    for (int32_t j = 0; j < 6; j++) {
        ck_assert_int_eq(g->slices[j].first, 2 * j);
        ck_assert_int_eq(g->slices[j].count, 2);
    }
    ht_schedule_destroy(g);
    ht_layout_destroy(l);
    ck_assert_int_eq(ht_layout_pipelines(&s, 2, (int64_t[]){2, 1}, (int64_t[]){2, 4}, 1, &err, &l), HT_BAD_INPUT);
    ck_assert_str_eq(err.text, "the pipelines have 3 devices: expected all 4 of cluster 'autohete-4gpu'");
    ck_assert_int_eq(ht_layout_pipelines(&s, 2, (int64_t[]){2, 2}, (int64_t[]){2, 2}, 1, &err, &l), HT_BAD_INPUT);
    ck_assert_str_eq(err.text, "the pipelines have 4 micro-batches: expected the batch's 6");
    ck_assert_int_eq(ht_layout_pipelines(&s, 2, (int64_t[]){1, 3}, (int64_t[]){2, 4}, 2, &err, &l), HT_BAD_INPUT);
    ck_assert_str_eq(err.text, "tp 2 does not divide the 1 devices of a pipeline");
    s.model.heads = 6;
    ck_assert_int_eq(ht_layout_pipelines(&s, 1, (int64_t[]){4}, (int64_t[]){6}, 4, &err, &l), HT_BAD_INPUT);
    ck_assert_str_eq(err.text, "tp 4 does not divide the 6 heads of gpt-tiny");
    /* Stages of two parts: ranks 0 and 1 are the first pipeline's only one, and each holds all of its part. */
    ck_assert_int_eq(ht_layout_pipelines(&s, 2, (int64_t[]){2, 2}, (int64_t[]){2, 4}, 2, &err, &l), HT_OK);
    ck_assert_int_eq(ht_layout_rank(l, 1, 0, 1), 3);
    for (int32_t r = 0; r < 4; r++) {
        struct ht_model part = ht_model_part(&s.model, r % 2, 2);
        ck_assert_int_eq(ht_layout_part(l, r), r % 2);
        ck_assert_int_eq(ht_layout_shard(l, 1, r)->end, ht_unit_params(&part, 1));
    }
    ht_layout_destroy(l);
    ht_scenario_free(&s);
}
END_TEST

/* Two pipelines of two stages, tp 2, in Megatron-LM's order: stage 0 of both is on ranks 0 to 3. */
START_TEST(places)
{
    static const int64_t order[] = {0, 1, 4, 5, 2, 3, 6, 7};
    struct ht_scenario s = scenario_of(4, 12, 2);
    struct ht_error err = {0};
    struct ht_layout *l = NULL;
    s.cluster->nodes[0].groups[0].count = s.cluster->nodes[0].n_gpus = s.cluster->n_gpus = 8;
    ck_assert_int_eq(ht_layout_pipelines(&s, 2, (int64_t[]){4, 4}, (int64_t[]){2, 4}, 2, &err, &l), HT_OK);
    ck_assert_msg(ht_layout_place(l, &s, 8, order, &err) == HT_OK, "%s", err.text);
    for (int32_t i = 0; i < 8; i++) {
        int32_t rank = ht_layout_rank(l, i / 4, i / 2 % 2, i % 2);
        ck_assert_int_eq(rank, order[i]);
        ck_assert_int_eq(ht_layout_part(l, rank), i % 2);
        ck_assert_int_eq(ht_layout_stage(l, i / 4, rank), i / 2 % 2);
        ck_assert_int_eq(ht_layout_stage(l, 1 - i / 4, rank), -1);
        ck_assert_int_eq(ht_layout_stage_ranks(l, rank)[i % 2], rank);
    }
    static const struct {
        int64_t place[8];
        int32_t n;
        const char *says;
    } cases[] = {
        {{0, 1, 2}, 3, "place has 3 devices: expected the 8 of cluster 'autohete-4gpu'"},
        {{0, 1, 2, 3, 4, 5, 6, 8}, 8, "device 8 of place is not on the cluster: expected 0 to 7"},
        {{0, 1, 2, 3, 4, 5, 6, -1}, 8, "device -1 of place is not on the cluster: expected 0 to 7"},
        {{0, 1, 2, 3, 4, 5, 4, 7}, 8, "place names device 4 twice: expected each once"},
        {{2, 3, 1, 0, 4, 5, 6, 7},
         8,
         "place has device 0 behind 1 in one stage: expected a stage's devices in ascending order"},
    };
    for (size_t i = 0; i < HT_COUNT(cases); i++) {
        ck_assert_int_eq(ht_layout_place(l, &s, cases[i].n, cases[i].place, &err), HT_BAD_INPUT);
        ck_assert_str_eq(err.text, cases[i].says);
    }
    ht_layout_destroy(l);
    ht_scenario_free(&s);
}
END_TEST

/* Stages of 1, 2 and 4 replicas, of 2, 1 and 1 parts, placed from the last device on but for the parts of the first; two micro-batches of
   eight sequences, in four shares each. */
START_TEST(replicas_of_stages)
{
    static const int64_t widths[] = {2, 1, 1}, replicas[] = {1, 2, 4}, place[] = {6, 7, 5, 4, 3, 2, 1, 0};
    static const struct {
        int stage, part;
        unsigned shares; /* bit f: it passes share f */
    } of_rank[] = {{2, 0, 8}, {2, 0, 4}, {2, 0, 2}, {2, 0, 1}, {1, 0, 12}, {1, 0, 3}, {0, 0, 15}, {0, 1, 15}};
    struct ht_scenario s = scenario_of(4, 16, 8);
    struct ht_error err = {0};
    struct ht_layout *l = NULL;
    s.model.tied = false;
    s.cluster->nodes[0].groups[0].count = s.cluster->nodes[0].n_gpus = s.cluster->n_gpus = 8;
    ck_assert_int_eq(ht_layout_pipelines(&s, 1, (int64_t[]){8}, (int64_t[]){2}, 1, &err, &l), HT_OK);
    ck_assert_msg(ht_layout_replicate(l, &s, 3, widths, replicas, &err) == HT_OK, "%s", err.text);
    ck_assert_msg(ht_layout_place(l, &s, 8, place, &err) == HT_OK, "%s", err.text);
    ck_assert_int_eq(l->per_pass, 4);
    ck_assert_int_eq(l->members, 4);
    ck_assert_int_eq(l->tp, 2);
    ck_assert_int_eq(l->n_micro_batches, 8);
    ck_assert_int_eq(l->replicas[0].micro_batch, 2);
    for (int32_t r = 0, member; r < 8; r++) {
        ck_assert_int_eq(ht_layout_stage(l, 0, r), of_rank[r].stage);
        ck_assert_int_eq(ht_layout_part(l, r), of_rank[r].part);
        ck_assert_int_eq(ht_layout_width_at(l, r), widths[of_rank[r].stage]);
        for (int32_t j = 0; j < 8; j++) ck_assert_int_eq(ht_layout_passes(l, r, j), of_rank[r].shares >> j % 4 & 1);
        for (member = 0; ht_layout_rank(l, 0, of_rank[r].stage, member) != r;) member++;
        ck_assert(of_rank[r].shares >> ht_layout_first_passed(l, of_rank[r].stage, member) & 1);
        ck_assert_int_eq(ht_layout_passed(l, of_rank[r].stage), 4 / replicas[of_rank[r].stage]);
    }
    ck_assert_int_eq(ht_layout_rank(l, 0, 0, 2), -1);
    ck_assert_int_eq(ht_layout_stage_ranks(l, 7)[0], 6);
    ck_assert_int_eq(ht_layout_stage_ranks(l, 4)[0], 4); /* another replica of its stage is not its own */
    ht_layout_destroy(l);
    ht_scenario_free(&s);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("layout");
    TCase *t = tcase_create("layout");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, by_hand);
    tcase_add_test(t, equal_ranks);
    tcase_add_test(t, ranks_that_share);
    tcase_add_test(t, random_portions);
    tcase_add_test(t, no_layouts);
    tcase_add_test(t, pipelines_by_hand);
    tcase_add_test(t, places);
    tcase_add_test(t, replicas_of_stages);
    suite_add_tcase(suite, t);
    SRunner *r = srunner_create(suite);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
