/*
 * AutoHet's scenarios A and B (arXiv 2512.20953, Sec. V-C) with a scaled-down store, carried out under the emulated clock: real files of
 * the groups before, in the nodes' stores and the remote one, are read as the list of copies says. Every value is checked. No copy may be
 * early; how late the whole is depends on the machine, so it is printed, and tried again more slowly where it is over 5%.
 */
#include "common/store/recovery_case.h"
#include "tests/common/store/stored.h"
#include "tests/support/suite.h"

#include <math.h>
#include <unistd.h>

static const struct ht_model model = {
    .arch = HT_ARCH_GPT, .layers = 9, .width = 64, .heads = 8, .ffn = 256, .vocab = 64, .max_seq = 32, .tied = true};
static const struct ht_version version = {3, 7};
static const struct ht_store_reading how = {.param_bytes = 4};

struct stored {
    char root[64];
    struct held *held;
    struct ht_catalog catalog;
    struct ht_store_reader *reader;
    const struct ht_transfer_source *sources;
    int64_t read_elements;
};

/* Writes what the ranks of a stage have, into a directory. */
static void write_stage(const char *dir, const struct ht_store_stage *s, struct held *h)
{
    for (int32_t q = 0; q < s->tp; q++) {
        struct ht_store_part p = {.version = version, .rank = s->rank + q};
        struct ht_extent *own = HT_NEW_ARRAY(struct ht_extent, (s->end - s->first) * HT_N_STATE_PARTS);
        int64_t n = 0;
        struct ht_error err;
        for (int64_t u = s->first; u < s->end; u++)
            for (int part = 0; part < HT_N_STATE_PARTS; part++)
                own[n++] = ht_extent_of_part(&h->state->model, u, (enum ht_state_part)part, q, s->tp);
        ht_store_part_arrange(&p, &h->state->model, own, n);
        ck_assert_msg(ht_store_write(dir, &p, h->state, NULL, 0, read_held, h, &err) == HT_OK, "%s", err.text);
        ht_store_part_free(&p);
        free(own);
    }
}

/* The first group's stages are in their nodes' stores, where those are still there, and in the remote one. */
static void store_all(struct stored *s, const struct ht_recovery *r)
{
    struct lines lines = {0};
    struct ht_catalog_log log = {keep_line, &lines};
    char dir[512];
    snprintf(s->root, sizeof(s->root), "/tmp/ht_store_XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(s->root));
    for (int i = 0; i < 2; i++) {
        const struct ht_store_stage *stage = &r->before[i];
        store_dir(s->root, stage->node, dir);
        if (!r->lost[stage->node]) {
            write_stage(dir, stage, s->held);
            ht_catalog_add(&s->catalog, dir, HT_STORE_DISK, stage->node, log);
        }
        snprintf(dir, sizeof(dir), "%s/remote", s->root);
        write_stage(dir, stage, s->held);
    }
    ht_catalog_add(&s->catalog, dir, HT_STORE_REMOTE, -1, log);
    ck_assert_msg(lines.n == 0, "%s", lines.text);
    s->reader = ht_store_reader_create(&s->catalog);
}

static int64_t row_of(const struct stored *s, const struct ht_transfer_source *source)
{
    for (int64_t i = 0; i < s->catalog.n; i++) {
        const struct ht_stored_extent *row = &s->catalog.rows[i];
        const struct ht_store *store = &s->catalog.stores[row->store];
        if (store->medium == source->medium && store->node == source->node &&
            ht_extent_equal(&row->extent, &source->extent))
            return i;
    }
    return -1;
}

/* Reads elements of a source from its file and holds them against the state (ht_transfer_read). */
static enum ht_status read_source(void *ctx, int64_t source, int64_t first, int64_t n, float *out, struct ht_error *err)
{
    struct stored *s = ctx;
    const struct ht_extent *e = &s->sources[source].extent;
    int64_t row = row_of(s, &s->sources[source]);
    if (row < 0) return ht_fail(err, HT_FAILED, "no store has it");
    enum ht_status status = ht_store_reader_read(s->reader, row, first, n, out, err);
    float *wanted = HT_NEW_ARRAY(float, n);
    read_held(s->held, e, first, n, wanted, NULL, err);
    if (status == HT_OK && memcmp(wanted, out, (size_t)n * sizeof(*out)) != 0)
        status = ht_fail(err, HT_FAILED, "other values");
    free(wanted);
    s->read_elements += n;
    return status;
}

static void emulated(const char *name)
{
    struct ht_recovery_case c;
    struct ht_laid_out_recovery *r = HT_NEW(struct ht_laid_out_recovery);
    struct stored s = {.held = held_random(&model, 3)};
    struct ht_recovery_price simulated;
    struct ht_error err;
    int64_t n;
    ck_assert_msg(ht_recovery_case_load(name, &err, &c) == HT_OK, "%s", err.text);
    ck_assert_int_eq(ht_recovery_case_lay_out(&c, &model, how, false, &err, r), HT_OK);
    ck_assert_int_eq(ht_recovery_price(&r->model, &r->r, &err, &simulated), HT_OK);
    store_all(&s, &r->r);
    s.sources = ht_recovery_sources(&r->model, &r->r, &n);
    double late = INFINITY;
    for (double wall_s = 1; wall_s < 5 && late > 0.05; wall_s *= 4) {
        struct ht_store_emulation by = {wall_s * 1e9 / (double)simulated.stores.ns, read_source, &s};
        struct ht_store_price price;
        struct ht_emu_overruns overruns;
        s.read_elements = 0;
        ck_assert_msg(ht_recovery_emulate(&r->model, &r->r, &by, &err, &price, &overruns) == HT_OK, "%s", err.text);
        late = (double)price.ns / (double)simulated.stores.ns - 1;
        printf("%s: emulated %.4f ms, simulated %.4f ms: %+.2f%%, %d of %d copies overran\n", name,
               (double)price.ns * 1e-6, (double)simulated.stores.ns * 1e-6, 100 * late, (int)overruns.n_overran,
               (int)overruns.n_ops);
        ck_assert_double_ge(late, -0.001);
        int64_t bytes = 0;
        for (int i = 0; i < HT_N_PATHS; i++) {
            ck_assert_int_eq(price.bytes[i], simulated.stores.bytes[i]);
            bytes += price.bytes[i];
        }
        ck_assert_int_eq(s.read_elements * (int64_t)sizeof(float), bytes);
    }
    ht_store_reader_destroy(s.reader);
    ht_catalog_free(&s.catalog);
    free((void *)(uintptr_t)s.sources);
    held_destroy(s.held);
    free(r);
    char command[128];
    snprintf(command, sizeof(command), "rm -r %s", s.root);
    ck_assert_int_eq(system(command), 0);
}

START_TEST(scenario_a)
{
    emulated("autohet-a");
}
END_TEST

START_TEST(scenario_b)
{
    emulated("autohet-b");
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, scenario_a);
    tcase_add_test(t, scenario_b);
}

int main(void)
{
    return run_suite("emulate", add);
}
