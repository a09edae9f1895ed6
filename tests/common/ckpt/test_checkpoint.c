/* The state through checkpoints. */
#include "common/ckpt/checkpoint.h"

#include "common/ckpt/durable.h"
#include "common/ckpt/manifest.h"

#include <check.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/common/ckpt/held.h"
#include "tests/common/ckpt/models.h"

static struct ht_checkpoint_setting settings[] = {{.name = "--batch", .value = "8"},
                                                  {.name = "--lr", .value = "0.001"}};

static struct held *random_state(uint64_t seed)
{
    struct held *h = held_random(&model, seed);
    for (int64_t u = 0; u < h->state->n_units; u++) h->state->steps[u] = (int64_t)(seed / 100) - u;
    h->state->loss_scale = (double)seed / 3;
    h->state->good = (int64_t)seed / 200;
    return h;
}

static void assert_same_counts(const struct ht_state *a, const struct ht_state *b)
{
    for (int64_t u = 0; u < a->n_units; u++) ck_assert_int_eq(a->steps[u], b->steps[u]);
    ck_assert(a->loss_scale == b->loss_scale && a->good == b->good); /* to the last bit */
}

START_TEST(save_and_load)
{
    char dir[] = "/tmp/ht_checkpoint_XXXXXX", command[64];
    ck_assert_ptr_nonnull(mkdtemp(dir));
    struct ht_error err = {0};
    struct ht_checkpoints *c = NULL, *other = NULL;
    struct ht_state *got = ht_state_create(&model);
    struct held *last = NULL;
    int64_t step = -7;
    ck_assert_msg(ht_checkpoints_open(dir, 2, &err, &c) == HT_OK, "%s", err.text);
    ck_assert_int_eq(ht_checkpoints_latest(c), -1);
    ck_assert_int_eq(ht_checkpoints_load(c, settings, 2, &err, got, &step), HT_BAD_INPUT);
    ck_assert_int_eq(ht_checkpoints_open(dir, 2, &err, &other), HT_BAD_INPUT); /* one process, one writer */
    for (int64_t k = 5; k <= 15; k += 5) {
        held_destroy(last);
        last = random_state((uint64_t)k * 100);
        ck_assert_msg(ht_checkpoints_save(c, last->state, k, settings, 2, &err) == HT_OK, "%s", err.text);
        ck_assert_int_eq(ht_checkpoints_latest(c), k);
    }
    ht_checkpoints_close(c);
    ck_assert_int_eq(ht_checkpoints_open(dir, 2, &err, &c), HT_OK);
    ck_assert_msg(ht_checkpoints_load(c, settings, 2, &err, got, &step) == HT_OK, "%s", err.text);
    ck_assert_int_eq(step, 15);
    for (int64_t most = 1; most < 1000; most = 3 * most + 2) ck_assert(held_equals(last, got, most, &err));
    assert_same_counts(got, last->state);
    struct ht_checkpoint_setting changed[] = {{.name = "--batch", .value = "8"}, {.name = "--lr", .value = "0.01"}};
    ck_assert_int_eq(ht_checkpoints_load(c, changed, 2, &err, got, &step), HT_BAD_INPUT);
    ck_assert_msg(strstr(err.text, "was made with --lr 0.001; this run has 0.01") != NULL, "%s", err.text);
    changed[1].may_change = true; /* then it is no error, and said */
    ck_assert_int_eq(ht_checkpoints_load(c, changed, 2, &err, got, &step), HT_OK);
    ck_assert(!changed[0].changed && changed[1].changed);
    ck_assert_str_eq(changed[1].was, "0.001");
    struct ht_checkpoint_setting unknown = {.name = "--clip", .value = "1", .may_change = true};
    ck_assert_int_eq(ht_checkpoints_load(c, &unknown, 1, &err, got, &step), HT_BAD_INPUT);
    ck_assert_msg(strstr(err.text, "was made with --clip unsaid; this run has 1") != NULL, "%s", err.text);
    unknown.may_lack = true;
    ck_assert_int_eq(ht_checkpoints_load(c, &unknown, 1, &err, got, &step), HT_OK);
    ck_assert(!unknown.changed && !strcmp(unknown.was, "unsaid"));
    /* 5 is gone, 10 is whole: it is what remains when 15 is removed. */
    char path[256];
    snprintf(path, sizeof(path), "%s/step-0000000005", dir);
    ck_assert(access(path, F_OK) != 0);
    snprintf(command, sizeof(command), "rm -r %s/step-0000000015", dir);
    ck_assert_int_eq(system(command), 0);
    ht_checkpoints_close(c);
    ck_assert_int_eq(ht_checkpoints_open(dir, 2, &err, &c), HT_OK);
    ck_assert_int_eq(ht_checkpoints_load(c, settings, 2, &err, got, &step), HT_OK);
    ck_assert_int_eq(step, 10);
    held_destroy(last);
    last = random_state(1000);
    ck_assert(held_equals(last, got, 100, &err));
    ht_checkpoints_close(c);
    ht_state_destroy(got);
    held_destroy(last);
    snprintf(command, sizeof(command), "rm -r %s", dir);
    ck_assert_int_eq(system(command), 0);
}
END_TEST

static void put_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    fclose(f);
}

/* Losses come back to the last bit, whatever they are; a checkpoint without them, as of old versions, has none. */
START_TEST(losses_in_checkpoints)
{
    static const double values[] = {5.5, 0.1, 1e-300, 1.0 / 3, INFINITY, -0.0, NAN};
    char dir[] = "/tmp/ht_checkpoint_XXXXXX", command[64], path[128];
    struct ht_error err = {0};
    struct ht_checkpoints *c = NULL;
    struct held *held = random_state(1000);
    struct ht_state *state = held->state, *got = ht_state_create(&model);
    int64_t step;
    ck_assert_ptr_nonnull(mkdtemp(dir));
    ck_assert_int_eq(ht_checkpoints_open(dir, 2, &err, &c), HT_OK);
    for (int64_t k = 10; k <= 12; k++) { /* 10: without */
        for (size_t i = 0; i < HT_COUNT(values) && k == 11; i++)
            ht_losses_add(&state->losses, (int64_t)i + 5, values[i]);
        ck_assert_msg(ht_checkpoints_save(c, state, k, settings, 2, &err) == HT_OK, "%s", err.text);
        ck_assert_msg(ht_checkpoints_load(c, settings, 2, &err, got, &step) == HT_OK, "%s", err.text);
        ck_assert_int_eq(got->losses.n, k == 10 ? 0 : HT_COUNT(values));
        for (int64_t i = 0; i < got->losses.n; i++) {
            ck_assert_int_eq(got->losses.rows[i].step, i + 5);
            ck_assert_mem_eq(&got->losses.rows[i].loss, &values[i], sizeof(double));
        }
    }
    snprintf(path, sizeof(path), "%s/step-0000000012/losses.csv", dir);
    put_text(path, "step,loss\n");
    ck_assert_int_eq(ht_checkpoints_load(c, settings, 2, &err, got, &step), HT_BAD_INPUT);
    ck_assert_msg(strstr(err.text, "losses.csv: has 10 bytes") && strstr(err.text, "to resume from step 11"), "%s",
                  err.text);
    ht_checkpoints_close(c);
    held_destroy(held);
    ht_state_destroy(got);
    snprintf(command, sizeof(command), "rm -r %s", dir);
    ck_assert_int_eq(system(command), 0);
}
END_TEST

START_TEST(files_of_losses)
{
    static const struct {
        const char *text;
        int64_t rows; /* -1: refused */
    } cases[] = {{"", 0},
                 {"step,loss\n", 0},
                 {"step,loss\n3,1\n7,0x1p-2\n", 2},
                 {"step,loss\n3,nan\n", 1},
                 {"step,loss", -1},
                 {"step;loss\n", -1},
                 {"1,2\n", -1},
                 {"step,loss\n2,1\n2,1\n", -1},
                 {"step,loss\n0,1\n", -1},
                 {"step,loss\n-1,1\n", -1},
                 {"step,loss\n1,\n", -1},
                 {"step,loss\n1,2,3\n", -1},
                 {"step,loss\n1,2", -1},
                 {"step,loss\n\n", -1},
                 {"step,loss\n99999999999999999999,1\n", -1}};
    char path[] = "/tmp/ht_losses_XXXXXX";
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    close(fd);
    for (size_t i = 0; i < HT_COUNT(cases); i++) {
        struct ht_losses l = {0};
        struct ht_error err = {0};
        put_text(path, cases[i].text);
        enum ht_status status = ht_losses_read(path, &err, &l);
        ck_assert_msg(status == (cases[i].rows < 0 ? HT_BAD_INPUT : HT_OK), "'%s': status %d", cases[i].text, status);
        ck_assert_int_eq(l.n, cases[i].rows < 0 ? 0 : cases[i].rows);
        ht_losses_free(&l);
    }
    ck_assert_int_eq(unlink(path), 0);
}
END_TEST

/* Units of more elements than a piece has. */
START_TEST(many_pieces)
{
    char dir[] = "/tmp/ht_checkpoint_XXXXXX", command[64];
    struct ht_error err = {0};
    struct ht_checkpoints *c = NULL;
    struct held *held = held_random(&wide_model, 9);
    struct ht_state *got = ht_state_create(&wide_model);
    int64_t step;
    ck_assert_ptr_nonnull(mkdtemp(dir));
    ck_assert_int_gt(ht_unit_params(&wide_model, 0), 2 * HT_PIECE_ELEMENTS);
    ck_assert_int_eq(ht_checkpoints_open(dir, 2, &err, &c), HT_OK);
    ck_assert_msg(ht_checkpoints_save(c, held->state, 1, settings, 2, &err) == HT_OK, "%s", err.text);
    ck_assert_msg(ht_checkpoints_load(c, settings, 2, &err, got, &step) == HT_OK, "%s", err.text);
    ck_assert(held_equals(held, got, HT_PIECE_ELEMENTS, &err) && held_equals(held, got, 700001, &err));
    ht_checkpoints_close(c);
    ht_state_destroy(got);
    held_destroy(held);
    snprintf(command, sizeof(command), "rm -r %s", dir);
    ck_assert_int_eq(system(command), 0);
}
END_TEST

/* Values of which the n-th piece cannot be read. */
struct broken {
    struct ht_source from;
    int countdown;
};

static enum ht_status read_or_fail(void *ctx, struct ht_piece p, float *out, struct ht_error *err)
{
    struct broken *b = ctx;
    if (b->countdown-- == 0) return ht_fail(err, HT_FAILED, "rank 2 is gone");
    return b->from.read(b->from.ctx, p, out, err);
}

/* A checkpoint that fails to be read to its end, or for which the disk is too small, leaves only the one before it. */
START_TEST(half_a_checkpoint)
{
    char dir[] = "/tmp/ht_checkpoint_XXXXXX", command[96];
    struct ht_error err = {0};
    struct ht_checkpoints *c = NULL;
    struct held *old = random_state(1000), *new = random_state(1100);
    struct ht_state *got = ht_state_create(&model);
    int64_t step, n_failed = 0;
    struct rlimit was, limit;
    ck_assert_ptr_nonnull(mkdtemp(dir));
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &was), 0);
    ck_assert_int_eq(ht_checkpoints_open(dir, 2, &err, &c), HT_OK);
    ck_assert_int_eq(ht_checkpoints_save(c, old->state, 10, settings, 2, &err), HT_OK);
    struct ht_source whole = new->state->values;
    for (int i = 0; i < 40; i++) {
        bool reading = i < 12; /* 4 units of 3 parts, a piece each; then disks of 0, 500, 1000 .. bytes a file */
        struct broken broken = {.from = whole, .countdown = reading ? i : -1};
        new->state->values = (struct ht_source){.read = read_or_fail, .ctx = &broken, .parts = HT_ALL_STATE_PARTS};
        limit = was;
        if (!reading) limit.rlim_cur = (rlim_t)(500 * (i - 12));
        int limited = setrlimit(RLIMIT_FSIZE, &limit);
        enum ht_status status = ht_checkpoints_save(c, new->state, 11 + n_failed, settings, 2, &err);
        setrlimit(RLIMIT_FSIZE, &was);
        ck_assert_int_eq(limited, 0);
        if (status == HT_OK) break; /* the disk is large enough */
        n_failed++;
        ck_assert_int_eq(status, HT_FAILED);
        ck_assert_msg(strstr(err.text, reading ? "rank 2 is gone" : "cannot be written: File too large"), "%s",
                      err.text);
        ck_assert_int_eq(ht_checkpoints_latest(c), 10);
        ck_assert_int_eq(ht_checkpoints_load(c, settings, 2, &err, got, &step), HT_OK);
        ck_assert(step == 10 && held_equals(old, got, 100, &err));
        snprintf(command, sizeof(command), "[ \"$(ls %s)\" = step-0000000010 ]", dir);
        ck_assert_int_eq(system(command), 0);
    }
    ck_assert_int_gt(n_failed, 12);
    ht_checkpoints_close(c);
    ck_assert_int_eq(ht_checkpoints_open(dir, 2, &err, &c), HT_OK);
    ck_assert_msg(ht_checkpoints_load(c, settings, 2, &err, got, &step) == HT_OK, "%s", err.text);
    ck_assert(step == 11 + n_failed && held_equals(new, got, 100, &err));
    ht_checkpoints_close(c);
    ht_state_destroy(got);
    held_destroy(old);
    held_destroy(new);
    snprintf(command, sizeof(command), "rm -r %s", dir);
    ck_assert_int_eq(system(command), 0);
}
END_TEST

/* The text of a stored manifest with some of it replaced, in an envelope with the right hash. */
static enum ht_status parse_changed(const char *from, const char *to, struct ht_error *err, bool *damaged)
{
    static const struct ht_model nano = {.arch = HT_ARCH_GPT,
                                         .layers = 2,
                                         .width = 16,
                                         .heads = 2,
                                         .ffn = 64,
                                         .vocab = 256,
                                         .max_seq = 32,
                                         .tied = true};
    static char text[8192], body[16384], whole[20000];
    FILE *f = fopen(HT_SOURCE_DIR "/tests/common/ckpt/manifest.json", "rb");
    ck_assert_ptr_nonnull(f);
    text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
    fclose(f);
    char *at = strstr(text, from);
    ck_assert_msg(at != NULL, "the manifest has no %s", from);
    snprintf(body, sizeof(body), "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    json_t *root = json_loads(body, 0, NULL);
    ck_assert_ptr_nonnull(root);
    char *canonical = json_dumps(json_object_get(root, "checkpoint"), JSON_COMPACT | JSON_SORT_KEYS);
    int n = snprintf(whole, sizeof(whole), "{\"checkpoint\":%s,\"xxh3\":\"%016llx\"}", canonical,
                     (unsigned long long)ht_hash_bytes(canonical, strlen(canonical)));
    free(canonical);
    json_decref(root);
    struct ht_state *state = ht_state_create(&nano);
    struct ht_manifest_file files[5];
    struct ht_checkpoint_setting batch = {.name = "--batch", .value = "4"};
    enum ht_status status = ht_manifest_parse(whole, (size_t)n, "m", 20, &batch, 1, err, damaged, state, files);
    if (status == HT_OK) {
        ck_assert_int_eq(state->steps[0], 18);
        ck_assert(state->loss_scale == 16384);
        ck_assert_int_eq(state->good, 11);
    }
    ht_state_destroy(state);
    return status;
}

START_TEST(manifests)
{
    static const struct {
        const char *from, *to, *why;
        bool damaged;
    } wrong[] = {
        {"\"format\": 2", "\"format\": 1", "m: has format 1; expected 2: go on with the version that wrote it", false},
        {"\"loss_scale\": 16384.0", "\"loss_scale\": 1e39", "does not say what the optimizer's steps", true},
        {"\"loss_scale\": 16384.0", "\"loss_scale\": 0.0", "does not say what the optimizer's steps", true},
        {"\"loss_scale\": 16384.0", "\"loss_scale\": \"1\"", "does not say what the optimizer's steps", true},
        {"\"good_iterations\": 11", "\"good_iterations\": 21", "does not say what the optimizer's steps", true},
        {"18", "21", "does not say what the optimizer's steps", true},
        {"18", "-1", "does not say what the optimizer's steps", true},
        {"   18,\n", "", "does not say what the optimizer's steps", true},
        {"\"files\"", "\"losses\": {\"bytes\": 10, \"xxh3\": \"0\"}, \"files\"", "does not list", true},
        {"\"files\"", "\"losses\": {\"bytes\": -1, \"xxh3\": \"0123456789abcdef\"}, \"files\"", "does not list", true},
        {"\"bytes\"", "\"Bytes\"", "does not list the 4 files of step 20", true}};
    struct ht_error err = {0};
    bool damaged = true;
    ck_assert_msg(parse_changed("18", "18", &err, &damaged) == HT_OK && !damaged, "%s", err.text);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        ck_assert_int_eq(parse_changed(wrong[i].from, wrong[i].to, &err, &damaged), HT_BAD_INPUT);
        ck_assert_msg(strstr(err.text, wrong[i].why) != NULL, "'%s' lacks '%s'", err.text, wrong[i].why);
        ck_assert_int_eq(damaged, wrong[i].damaged);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("checkpoint");
    TCase *t = tcase_create("checkpoint");
    tcase_add_test(t, save_and_load);
    tcase_add_test(t, losses_in_checkpoints);
    tcase_add_test(t, files_of_losses);
    tcase_add_test(t, many_pieces);
    tcase_add_test(t, half_a_checkpoint);
    tcase_add_test(t, manifests);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
