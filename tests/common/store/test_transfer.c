/* The list of copies between layouts: worked examples, an independent second implementation, all small layouts. */
#include "common/store/transfer.h"

#include "common/base/array.h"
#include "common/store/layout.h"
#include "common/store/owners.h"
#include "tests/support/draw.h"
#include "tests/support/sanitized.h"
#include "tests/support/suite.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* 24 heads are cut into 1, 2, 3, 4, 6 or 8 parts; 37 tokens into unequal ones. */
static const struct ht_model gpt = {
    .arch = HT_ARCH_GPT, .layers = 8, .width = 24, .heads = 24, .ffn = 48, .vocab = 37, .max_seq = 5, .tied = true};
static const struct ht_model llama = {
    .arch = HT_ARCH_LLAMA, .layers = 8, .width = 48, .heads = 24, .kv_heads = 24, .ffn = 24, .vocab = 37, .max_seq = 5};

/* ---- carrying a list out in memory ---- */

/* Each element's value says which one it is: unit, state part, and place in the whole unit. */
static float *values_of(const struct ht_model *m, const struct ht_extent *e)
{
    struct ht_model part = e->tp_parts > 1 ? ht_model_part(m, e->tp_part, e->tp_parts) : *m;
    float *v = HT_NEW_ARRAY(float, e->end - e->begin);
    for (int64_t at = e->begin; at < e->end;) {
        struct ht_part_run r = ht_unit_part_run(&part, e->unit, at);
        for (int64_t i = 0; i < r.count && at < e->end; i++, at++)
            v[at - e->begin] = (float)(3 * (r.whole + i) + (int64_t)e->part) + (float)e->unit / 16;
    }
    return v;
}

/* Copies a transfer's runs in pieces of `most` elements of the sink. Adds to `times` how often each was written. */
static void carry(const struct ht_model *m, const struct ht_transfer *t, const struct ht_extent *source,
                  const float *from, const struct ht_extent *sink, float *to, char *times, int64_t most)
{
    int64_t n = sink->end - sink->begin;
    struct ht_transfer_run r;
    for (int64_t at = 0, end; at < n; at = end) {
        end = at + most < n ? at + most : n;
        for (int64_t k = at; ht_transfer_next_run(m, source, sink, &t->box, &k, end, &r);) {
            ck_assert(r.count > 0 && r.in_sink >= at && r.in_sink + r.count <= end);
            ck_assert(r.in_source >= 0 && r.in_source + r.count <= source->end - source->begin);
            memcpy(to + r.in_sink, from + r.in_source, (size_t)r.count * sizeof(*to));
            for (int64_t i = 0; i < r.count; i++) times[r.in_sink + i]++;
        }
    }
}

/* Returns true if a source has an element: goes through all the values that it has. */
static bool has(const struct ht_extent *source, const float *values, float value)
{
    for (int64_t i = 0; i < source->end - source->begin; i++)
        if (values[i] == value) return true;
    return false;
}

/* ---- worked examples ---- */

/* 8 rows of the gate's matrix (8, 4). tp 2 -> 4: rows 0-1, 2-3, 4-5, 6-7 come from old parts 0, 0, 1, 1: of part 0's 16
   elements the first 8, then the last 8. tp 2 -> 1: parts 0 and 1 one after the other. */
START_TEST(rows_of_a_matrix)
{
    const struct ht_model m = {
        .arch = HT_ARCH_LLAMA, .layers = 1, .width = 4, .heads = 4, .kv_heads = 4, .ffn = 8, .vocab = 8, .max_seq = 4};
    struct ht_param_part parts[HT_MAX_PARAM_PARTS];
    int n = ht_unit_param_parts(&m, 1, parts), gate = 0;
    while (gate < n && strcmp(parts[gate].name, "mlp.gate_proj.weight") != 0) gate++;
    ck_assert(gate < n && parts[gate].rows == 8 && parts[gate].cols == 4);
    struct ht_transfer_source old[2] = {{.node = 0}, {.node = 0}};
    struct ht_transfer_sink sinks[5];
    for (int q = 0; q < 2; q++) old[q].extent = ht_extent_of_part(&m, 1, HT_STATE_PARAM, q, 2);
    for (int q = 0; q < 5; q++)
        sinks[q] = (struct ht_transfer_sink){.extent = ht_extent_of_part(&m, 1, HT_STATE_PARAM, q % 4, q < 4 ? 4 : 1)};
    struct ht_transfers list;
    struct ht_error err = {0};
    ck_assert_msg(ht_transfers_plan(&m, old, 2, sinks, 5, &err, &list) == HT_OK, "%s", err.text);
    int seen = 0;
    for (int64_t i = 0; i < list.n; i++) {
        const struct ht_transfer *t = &list.rows[i];
        int q = t->sink;
        if (t->box.tensor != gate) continue;
        seen++;
        if (q < 4) {
            ck_assert_int_eq(t->source, q / 2);
            ck_assert_int_eq(t->box.begin, 8 * q);
            ck_assert_int_eq(t->box.end, 8 * q + 8);
            struct ht_box_place p = ht_extent_place(&m, &old[t->source].extent, &t->box);
            struct ht_box first = {.tensor = gate, .group_end = 1, .begin = 16 * t->source, .end = 16 * t->source + 1};
            ck_assert_int_eq(p.first, ht_extent_place(&m, &old[t->source].extent, &first).first + 8 * (q % 2));
        } else {
            ck_assert_int_eq(t->box.begin, 16 * t->source);
            ck_assert_int_eq(t->box.end, 16 * t->source + 16);
        }
    }
    ck_assert_int_eq(seen, 4 + 2);
    ht_transfers_free(&list);
}
END_TEST

/* Two nodes and the remote store have the whole of a unit; node 0 has it in memory, too. Rank 0 on node 0 reads its
   memory, rank 1 on node 1 its disk, rank 2 on node 2 all of it from node 0's memory, rank 3 on node 3 from node 1, which has
   sent less. When nodes 0 and 1 are lost, all read the remote store; when that is lost, too, the line says what. */
START_TEST(the_best_path)
{
    struct ht_extent e = ht_extent_of_part(&gpt, 0, HT_STATE_VARIANCE, 0, 1);
    struct ht_transfer_source from[] = {
        {e, HT_STORE_REMOTE, 0}, {e, HT_STORE_DISK, 0}, {e, HT_STORE_DISK, 1}, {e, HT_STORE_MEMORY, 0}};
    struct ht_transfer_sink to[] = {{e, 0, 0}, {e, 1, 1}, {e, 2, 2}, {e, 3, 3}};
    const int wanted[] = {3, 2, 3, 2};
    const enum ht_path paths[] = {HT_PATH_MEMORY, HT_PATH_DISK, HT_PATH_PEER, HT_PATH_PEER};
    struct ht_transfers list;
    struct ht_error err = {0};
    ck_assert_int_eq(ht_transfers_plan(&gpt, from, 4, to, 4, &err, &list), HT_OK);
    for (int i = 0; i < 4; i++)
        for (int64_t k = list.first[i]; k < list.first[i + 1]; k++) {
            ck_assert_int_eq(list.rows[k].source, wanted[i]);
            ck_assert_int_eq(list.rows[k].path, paths[i]);
        }
    ht_transfers_free(&list);
    ck_assert_int_eq(ht_transfers_plan(&gpt, from, 1, to, 4, &err, &list), HT_OK);
    for (int64_t k = 0; k < list.n; k++) ck_assert_int_eq(list.rows[k].path, HT_PATH_REMOTE);
    ht_transfers_free(&list);
    /* 37 tokens of 24 numbers, and 5 positions of 24: 888 + 120 elements, of four sinks. */
    ck_assert_int_eq(ht_transfers_plan(&gpt, from, 0, to, 4, &err, &list), HT_INFEASIBLE);
    ck_assert_str_eq(err.text, "unit 0: 888 elements of the variance of wte, of part 0 of 1, are in no store; 4032 "
                               "elements are missing in all");
}
END_TEST

/* ---- the second implementation ---- */

/* Draws an extent of a unit: a part of it, whole or a range. */
static struct ht_extent drawn_extent(struct draw *d, const struct ht_model *m, int64_t unit)
{
    static const int32_t parts[] = {1, 1, 2, 3, 4, 6, 8};
    int32_t n = parts[below(d, 7)];
    struct ht_extent e = ht_extent_of_part(m, unit, (enum ht_state_part)below(d, 2), below(d, n), n);
    if (below(d, 3) == 0) {
        e.begin = pick(d, 0, e.end - 1);
        e.end = pick(d, e.begin + 1, e.end);
    }
    return e;
}

/* Drawn sources and sinks of one unit. Each element of each sink is written once, with its own value, from the best path
   of any source that has it, as a search element by element finds; or the plan is refused, and some element is in no source. */
START_TEST(drawn_cases)
{
    struct draw d = {.seed = 77 + (uint64_t)_i};
    const struct ht_model *m = _i % 2 ? &gpt : &llama;
    struct ht_transfer_source from[12];
    struct ht_transfer_sink to[3];
    int64_t unit = below(&d, 3) ? 1 : 0, n_from = pick(&d, 1, 12), n_to = pick(&d, 1, 3);
    for (int64_t i = 0; i < n_from; i++)
        from[i] =
            (struct ht_transfer_source){drawn_extent(&d, m, unit), (enum ht_store_medium)below(&d, 3), below(&d, 3)};
    for (int64_t i = 0; i < n_to; i++)
        to[i] = (struct ht_transfer_sink){drawn_extent(&d, m, unit), (int32_t)i, below(&d, 3)};
    struct ht_transfers list = {0};
    enum ht_status status = ht_transfers_plan(m, from, n_from, to, n_to, NULL, &list);
    bool missing = false;
    float *held[12];
    for (int64_t i = 0; i < n_from; i++) held[i] = values_of(m, &from[i].extent);
    for (int64_t s = 0; s < n_to; s++) {
        const struct ht_extent *e = &to[s].extent;
        int64_t n = e->end - e->begin;
        float *got = HT_NEW_ARRAY(float, n), *want = values_of(m, e);
        char *times = HT_NEW_ARRAY(char, n), *paths = HT_NEW_ARRAY(char, n);
        for (int64_t k = status == HT_OK ? list.first[s] : 0; status == HT_OK && k < list.first[s + 1]; k++) {
            const struct ht_transfer_source *f = &from[list.rows[k].source];
            carry(m, &list.rows[k], &f->extent, held[list.rows[k].source], e, got, times, pick(&d, 1, 900));
            int64_t at = 0;
            for (struct ht_transfer_run r; ht_transfer_next_run(m, &f->extent, e, &list.rows[k].box, &at, n, &r);)
                memset(paths + r.in_sink, (int)list.rows[k].path, (size_t)r.count);
        }
        for (int64_t i = 0; i < n; i += status == HT_OK ? 1 + below(&d, 40) : 1) {
            int best = HT_N_PATHS;
            for (int64_t k = 0; k < n_from; k++) {
                int path = from[k].medium == HT_STORE_REMOTE ? HT_PATH_REMOTE
                           : from[k].node != to[s].node      ? HT_PATH_PEER
                                                             : (int)from[k].medium;
                if (path < best && has(&from[k].extent, held[k], want[i])) best = path;
            }
            missing |= best == HT_N_PATHS;
            if (missing && status != HT_OK) break;
            ck_assert(status != HT_OK || (times[i] == 1 && got[i] == want[i] && paths[i] == best));
        }
        for (int64_t i = 0; i < n && status == HT_OK; i++) ck_assert(times[i] == 1 && got[i] == want[i]);
        free(got);
        free(want);
        free(times);
        free(paths);
    }
    ck_assert_int_eq(status, missing ? HT_INFEASIBLE : HT_OK);
    for (int64_t i = 0; i < n_from; i++) free(held[i]);
    ht_transfers_free(&list);
}
END_TEST

/* ---- all layouts ---- */

static float **values_of_all(const struct ht_model *m, const struct ht_transfer_sink *s, int64_t n, bool filled)
{
    float **v = HT_NEW_ARRAY(float *, n);
    for (int64_t i = 0; i < n; i++)
        v[i] = filled ? values_of(m, &s[i].extent) : HT_NEW_ARRAY(float, s[i].extent.end - s[i].extent.begin);
    return v;
}

static void free_all(float **v, int64_t n)
{
    for (int64_t i = 0; i < n; i++) free(v[i]);
    free(v);
}

/* Moves a state from what one layout's ranks have to another's. */
static void move_state(const struct ht_model *m, const struct ht_transfer_sink *a, int64_t n_a, float **from,
                       const struct ht_transfer_sink *b, int64_t n_b, float **to)
{
    struct ht_transfer_source *sources = HT_NEW_ARRAY(struct ht_transfer_source, n_a);
    struct ht_transfers list;
    struct ht_error err = {0};
    for (int64_t i = 0; i < n_a; i++)
        sources[i] = (struct ht_transfer_source){.extent = a[i].extent, .medium = HT_STORE_DISK, .node = a[i].node};
    ck_assert_msg(ht_transfers_plan(m, sources, n_a, b, n_b, &err, &list) == HT_OK, "%s", err.text);
    for (int64_t i = 0; i < n_b; i++) {
        char *times = HT_NEW_ARRAY(char, b[i].extent.end - b[i].extent.begin);
        for (int64_t k = list.first[i]; k < list.first[i + 1]; k++)
            carry(m, &list.rows[k], &sources[list.rows[k].source].extent, from[list.rows[k].source], &b[i].extent,
                  to[i], times, 1 << 20);
        free(times);
    }
    ht_transfers_free(&list);
    free(sources);
}

/* Every layout of at most 8 ranks to each other one and back, with ZeRO-1 on either side, too. */
START_TEST(all_layouts)
{
    const struct ht_model *m = _i % 2 ? &gpt : &llama;
    struct ht_store_layout all[2 * 38];
    int n = 0;
    for (int32_t dp = 1; dp <= 8; dp++)
        for (int32_t tp = 1; dp * tp <= 8; tp++)
            for (int32_t pp = 1; dp * tp * pp <= 8; pp++)
                for (int zero = 0; zero < (dp > 1 ? 2 : 1); zero++) {
                    struct ht_store_layout l = {.dp = dp, .tp = tp, .pp = pp, .zero1 = zero, .per_node = 2};
                    if (ht_store_layout_check(&l, m, NULL) == HT_OK) all[n++] = l;
                }
    int stride = getenv("HT_ALL_LAYOUTS") ? 1 : SANITIZED ? 83 : 41, pairs = 0; /* a sample: every 41st pair */
    for (int i = _i / 2; i < n * n; i += stride) {
        int64_t n_a, n_b;
        struct ht_transfer_sink *a = ht_store_layout_sinks(&all[i / n], m, &n_a),
                                *b = ht_store_layout_sinks(&all[i % n], m, &n_b);
        float **before = values_of_all(m, a, n_a, true), **there = values_of_all(m, b, n_b, false),
              **back = values_of_all(m, a, n_a, false);
        move_state(m, a, n_a, before, b, n_b, there);
        move_state(m, b, n_b, there, a, n_a, back);
        float **wanted = values_of_all(m, b, n_b, true);
        for (int64_t k = 0; k < n_b; k++)
            ck_assert(!memcmp(there[k], wanted[k], (size_t)(b[k].extent.end - b[k].extent.begin) * sizeof(float)));
        for (int64_t k = 0; k < n_a; k++)
            ck_assert(!memcmp(before[k], back[k], (size_t)(a[k].extent.end - a[k].extent.begin) * sizeof(float)));
        free_all(wanted, n_b);
        free_all(before, n_a);
        free_all(there, n_b);
        free_all(back, n_a);
        free(a);
        free(b);
        pairs++;
    }
    ck_assert_int_gt(pairs, 20);
}
END_TEST

/* 8 blocks over 3 stages: 3, 3 and 2; the embedding before the first, the head behind the last. */
START_TEST(stages)
{
    struct ht_store_layout l = {.dp = 1, .tp = 1, .pp = 3};
    static const int64_t wanted[][2] = {{0, 4}, {4, 7}, {7, 10}};
    for (int32_t p = 0; p < 3; p++) {
        int64_t first, end;
        ht_store_layout_stage(&l, &gpt, p, &first, &end);
        ck_assert(first == wanted[p][0] && end == wanted[p][1]);
    }
}
END_TEST

/* Two replicas of a pipeline on each of two nodes, ranks 0 to 3 and 4 to 7: an extent of unit u is on ranks 0, 2 | 4, 6. On each node
   the (u mod 2)-th of its two ranks writes it: for unit 1 ranks 2 and 6, for unit 2 ranks 0 and 4. Of the two nodes the (u mod 2)-th
   sends it to the remote store: rank 6, and rank 0. */
START_TEST(owners)
{
    static const int32_t ranks[] = {6, 0, 4, 2};
    for (int64_t unit = 1; unit <= 2; unit++) {
        struct ht_transfer_sink sinks[4];
        bool to_node[4], to_remote[4];
        for (int i = 0; i < 4; i++)
            sinks[i] =
                (struct ht_transfer_sink){ht_extent_of_part(&gpt, unit, HT_STATE_PARAM, 0, 1), ranks[i], ranks[i] / 4};
        ht_store_owners(sinks, 4, to_node, to_remote);
        for (int i = 0; i < 4; i++) {
            ck_assert_int_eq(to_node[i], unit == 1 ? ranks[i] == 2 || ranks[i] == 6 : ranks[i] == 0 || ranks[i] == 4);
            ck_assert_int_eq(to_remote[i], ranks[i] == (unit == 1 ? 6 : 0));
        }
    }
}
END_TEST

START_TEST(bad_layouts)
{
    static const char *const bad[] = {"", "2", "2,2", "0,1,1", "1,1,-1", "1,1,1,1", "1,1,1x", "64,65,1", "a,b,c"};
    struct ht_store_layout l;
    struct ht_error err;
    for (size_t i = 0; i < HT_COUNT(bad); i++) {
        ck_assert_int_eq(ht_store_layout_read("--to", bad[i], &err, &l), HT_BAD_INPUT);
        ck_assert(!strncmp(err.text, "--to: '", 7));
    }
    ck_assert_int_eq(ht_store_layout_read("--to", "2,4,1", &err, &l), HT_OK);
    ck_assert(l.dp == 2 && l.tp == 4 && l.pp == 1);
    l.tp = 5;
    ck_assert_int_eq(ht_store_layout_check(&l, &gpt, &err), HT_BAD_INPUT);
    ck_assert_str_eq(err.text, "24 heads cannot be cut into 5 parts");
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, rows_of_a_matrix);
    tcase_add_test(t, the_best_path);
    tcase_add_loop_test(t, drawn_cases, 0, SANITIZED ? 20 : 60);
    tcase_add_loop_test(t, all_layouts, 0, 2);
    tcase_add_test(t, stages);
    tcase_add_test(t, owners);
    tcase_add_test(t, bad_layouts);
}

int main(void)
{
    return run_suite("transfer", add);
}
