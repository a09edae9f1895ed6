/*
 * No edge too many, none too few: of every fixture each edge is taken out in turn, and the verifier must refuse what is
 * left, naming the op that lost it, unless the edge is one that the method asks for beyond its data.
 */
#include "tests/common/exec/fixtures.h"

struct edges {
    int total, free_ones; /* free: the verifier does not miss them */
};

/* Takes edge e of op out, asks the verifier, and puts it back. */
static bool is_missed(struct ht_schedule *s, int32_t *list, int64_t *begin, int32_t op, int64_t e)
{
    struct ht_error err = {0};
    int32_t edge = list[e];
    int64_t after = begin[s->n_ops] - e - 1;
    memmove(&list[e], &list[e + 1], sizeof *list * (size_t)after);
    for (int32_t i = op + 1; i <= s->n_ops; i++) begin[i]--;
    bool missed = ht_schedule_verify(s, &err, NULL) != HT_OK;
    if (missed) {
        char name[32];
        snprintf(name, sizeof name, "op %d (", op);
        ck_assert_msg(strstr(err.text, name), "%s", err.text);
    }
    memmove(&list[e + 1], &list[e], sizeof *list * (size_t)after);
    list[e] = edge;
    for (int32_t i = op + 1; i <= s->n_ops; i++) begin[i]++;
    return missed;
}

static struct edges count_edges(struct ht_schedule *s)
{
    struct edges n = {0};
    for (int32_t op = 0; op < s->n_ops; op++) {
        for (int64_t e = s->deps_begin[op]; e < s->deps_begin[op + 1]; e++, n.total++)
            n.free_ones += !is_missed(s, s->deps, s->deps_begin, op, e);
        for (int64_t e = s->prev_begin[op]; e < s->prev_begin[op + 1]; e++, n.total++)
            n.free_ones += !is_missed(s, s->prev, s->prev_begin, op, e);
    }
    return n;
}

/*
 * autohete      PB1 waits for the backward slot of block 2 (B3)
 * lohan         R_i waits for its gradient (G_i), three times
 * cephalo       a gather waits for one of two buffers: AG3f, AG3b, AG2b, AG1b, on three GPUs
 * sysx          a fetch waits for one of two buffers, from a GPU's third stage on: 4 on each of 4 GPUs, but for unit
 * 13, which GPU 2 keeps from its last forward stage, and unit 10, which GPU 1 fetches again after that very stage freed
 * it; sysx_fig5 has unit 0 on GPU 1; sysx_mobius one on each GPU, for the first stage stays
 */
START_TEST(every_edge)
{
    static const struct {
        const char *name;
        int free_ones;
    } cases[] = {{"autohete", 1}, {"autohete_fifo", 1}, {"autohete_few", 0}, {"lohan", 3},       {"lohan_naive", 3},
                 {"cephalo", 12}, {"sysx_fig5", 1},     {"sysx", 14},        {"sysx_mobius", 4}, {"autohet", 0}};
    for (size_t i = 0; i < HT_COUNT(cases); i++) {
        struct fixture f = fixture_load(cases[i].name);
        struct edges n = count_edges(f.s);
        ck_assert_int_gt(n.total, 10);
        ck_assert_msg(n.free_ones == cases[i].free_ones, "%s: %d of %d edges are not missed, expected %d",
                      cases[i].name, n.free_ones, n.total, cases[i].free_ones);
        fixture_free(&f);
    }
}
END_TEST

int main(void)
{
    TCase *tc = tcase_create("edges");
    tcase_add_test(tc, every_edge);
    return run_suite("fixtures: edges", tc);
}
