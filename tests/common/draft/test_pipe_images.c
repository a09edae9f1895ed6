/* Drafts that are images of others: graphs are the same as when every draft is written. */
#include "common/base/rng.h"
#include "common/draft/pipe_internal.h"
#include "tests/support/pipes.h"

enum { CASES = 400 };

/* A style that has a hook writes every draft. */
static void begin(struct ht_pipe *g, const struct ht_pipe_pass *x)
{
    (void)g;
    (void)x;
}

static void check_same(const struct ht_scenario *sc, const struct ht_pipe_style *y)
{
    struct ht_pipe_style written = *y;
    uint64_t a[HT_N_SCHEDULE_PARTS], b[HT_N_SCHEDULE_PARTS];
    written.hooks.begin = begin;
    struct ht_schedule *s = pipe_build(sc, y), *t = pipe_build(sc, &written);
    ht_schedule_digests(s, a);
    ht_schedule_digests(t, b);
    for (int i = 0; i < HT_N_SCHEDULE_PARTS; i++) ck_assert_msg(a[i] == b[i], "%s differ", ht_schedule_part_names[i]);
    ck_assert(ht_schedule_hash(s) == ht_schedule_hash(t));
    ht_schedule_destroy(s);
    ht_schedule_destroy(t);
}

/* Counts the drafts that are images of an earlier one. */
static int count_images(const struct ht_scenario *sc, const struct ht_pipe_style *y)
{
    struct ht_pipe_holders holders = ht_pipe_find_holders(sc, y, y->layout);
    struct ht_pipe_images *images = ht_pipe_images_create(sc, y, &holders);
    int n = 0;
    ck_assert(ht_pipe_may_have_images(sc, y, y->layout));
    for (int32_t d = 1; d < y->layout->n_replicas * y->layout->members; d++) {
        bool found = false;
        for (int32_t of = 0; of < d && !found; of++) found = ht_pipe_is_image(images, d, of);
        n += found;
    }
    ht_pipe_images_destroy(images);
    free(holders.stage);
    return n;
}

/* Puts stages on the cluster's ranks in a drawn order; the parts of each stay together. */
static void shuffle(struct ht_layout *l, const struct ht_scenario *sc, uint64_t seed)
{
    int64_t place[256], n = l->n_ranks / l->tp;
    struct ht_error err = {0};
    ck_assert_int_le(l->n_ranks, 256);
    for (int64_t i = 0; i < l->n_ranks; i++) place[i] = i;
    for (int64_t i = n - 1; i > 0; i--) {
        int64_t k = (int64_t)ht_random_below(seed, (uint64_t)i, (uint64_t)i + 1);
        for (int32_t q = 0; q < l->tp; q++) {
            int64_t one = place[i * l->tp + q];
            place[i * l->tp + q] = place[k * l->tp + q];
            place[k * l->tp + q] = one;
        }
    }
    ck_assert_msg(ht_layout_place(l, sc, l->n_ranks, place, &err) == HT_OK, "%s", err.text);
}

/* Draws links of the nodes: alike or not, with shared uplinks, NVLink, simplex ports, paths through host memory. */
static void draw_links(struct ht_scenario *sc, uint64_t seed)
{
    for (int64_t n = 0; n < sc->cluster->n_nodes; n++) {
        uint64_t which = seed & 1 ? (uint64_t)n : 0;
        struct ht_machine *m = &sc->cluster->nodes[n];
        m->gpus_per_switch = ht_random_below(seed, 2 * which, 2) ? 2 : 1;
        m->pcie.duplex = ht_random_below(seed, 2 * which + 1, 2);
        m->peer = ht_random_below(seed, 2 * which + 2, 2);
        m->has_nvlink = ht_random_below(seed, 2 * which + 3, 2);
        if (m->has_nvlink) m->nvlink = m->pcie;
    }
}

START_TEST(the_same_graph)
{
    static const enum ht_pipe_order orders[] = {HT_PIPE_AFAB, HT_PIPE_1F1B, HT_PIPE_INTERLEAVED};
    int images = 0, drafts = 0, cut = 0;
    for (uint64_t seed = 0; seed < CASES; seed++) {
        uint64_t i = 100;
        int32_t n = 1 + (int32_t)ht_random_below(seed, i++, 4), tp = 1 << ht_random_below(seed, i++, 3);
        int64_t nodes = 1 << ht_random_below(seed, i++, 3), each = nodes * (1 + (int64_t)ht_random_below(seed, i++, 2));
        int64_t ranks[4], l[4], all_ranks = 0, all = 0;
        bool odd = ht_random_below(seed, i++, 4) == 0; /* pipelines that differ */
        if (nodes == 4) each = 4;
        if (tp >= nodes && ht_random_below(seed, i++, 2)) each = 1; /* the parts of a stage may span nodes */
        for (int32_t k = 0; k < n; k++) {
            all_ranks += ranks[k] = tp * (odd && k == 1 ? 2 * each : each);
            all += l[k] = 2 * each + (odd && k == 2);
        }
        struct ht_scenario sc = pipe_scenario(all_ranks, nodes, 2 * each + 1, all);
        struct ht_layout *layout = NULL;
        struct ht_error err = {0};
        sc.model.tied = ht_random_below(seed, i++, 2);
        sc.model.kv_heads = 4;
        sc.model.vocab += ht_random_below(seed, i++, 2); /* the last part's share is smaller */
        draw_links(&sc, seed);
        ck_assert_msg(ht_layout_pipelines(&sc, n, ranks, l, tp, &err, &layout) == HT_OK, "%s", err.text);
        if (ht_random_below(seed, i++, 2)) shuffle(layout, &sc, seed);
        struct ht_pipe_style y = {.order = orders[seed % 3],
                                  .v = 1,
                                  .d = 1,
                                  .layout = layout,
                                  .recompute = ht_random_below(seed, i++, 2),
                                  .bucket = ht_random_below(seed, i++, 2) ? 100000 : 0,
                                  .blocking_sends = ht_random_below(seed, i++, 2)};
        y.slices = ht_random_below(seed, i++, 2);
        y.zero = (int32_t)ht_random_below(seed, i++, 3);
        y.reduce_whole = y.zero == 1 && ht_random_below(seed, i++, 2);
        int64_t blocks[8];
        if (!odd && each > 1 &&
            ht_random_below(seed, i++, 3) == 0) { /* stages that end inside blocks, in whole sub-ops */
            int64_t left = HT_N_SUB_OPS * sc.model.layers;
            for (int64_t q = 0; q < each; q++) {
                blocks[q] = q + 1 == each ? left : HT_N_SUB_OPS + (int64_t)ht_random_below(seed, i++, HT_N_SUB_OPS);
                left -= blocks[q];
            }
            y.sub_ops = true;
            y.blocks = blocks;
            y.n_blocks = (int32_t)each;
        }
        if (ht_pipe_lay_out(&sc, &y, layout, &err) != HT_OK) ck_abort_msg("%s", err.text);
        y.segment = y.recompute ? (int32_t)ht_random_below(seed, i++, 3) : 0;
        if (n * tp > 1 && ht_pipe_check(&sc, &y, &err) == HT_OK) {
            check_same(&sc, &y);
            images += count_images(&sc, &y);
            drafts += n * tp;
            cut += y.sub_ops;
        }
        ht_layout_destroy(layout);
        ht_scenario_free(&sc);
    }
    ck_assert_int_gt(drafts, 1000);
    ck_assert_int_gt(cut, 20);
    ck_assert_int_gt(images, drafts / 4);
    ck_assert_int_lt(images, drafts * 3 / 4);
}
END_TEST

/* Four parts of one stage on a node: with 100 tokens all have 25, with 101 the last one has 23. */
START_TEST(the_last_part_is_smaller)
{
    for (int64_t more = 0; more < 2; more++) {
        struct ht_scenario sc = pipe_scenario(4, 1, 2, 2);
        struct ht_layout *layout = NULL;
        struct ht_error err = {0};
        sc.model.kv_heads = 4;
        sc.model.vocab = 100 + more;
        ck_assert_int_eq(ht_layout_pipelines(&sc, 1, (int64_t[]){4}, (int64_t[]){2}, 4, &err, &layout), HT_OK);
        struct ht_pipe_style y = {.order = HT_PIPE_1F1B, .v = 1, .d = 1, .layout = layout};
        ck_assert_int_eq(count_images(&sc, &y), more ? 2 : 3);
        check_same(&sc, &y);
        ht_layout_destroy(layout);
        ht_scenario_free(&sc);
    }
}
END_TEST

int main(void)
{
    TCase *t = tcase_create("images");
    tcase_add_test(t, the_same_graph);
    tcase_add_test(t, the_last_part_is_smaller);
    return pipe_main("pipe images", t);
}
