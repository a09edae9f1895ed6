/* Stores: what ranks write is read back under any layout; damage is named and worked around; a kill leaves whole steps. */
#include "common/store/catalog.h"

#include "tests/common/store/stored.h"
#include "tests/support/draw.h"
#include "tests/support/suite.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct ht_model model = {
    .arch = HT_ARCH_LLAMA, .layers = 2, .width = 8, .heads = 4, .kv_heads = 2, .ffn = 12, .vocab = 11, .max_seq = 5};
static const struct ht_version first = {7, 0xabc};

static void temporary(char root[64])
{
    snprintf(root, 64, "/tmp/ht_store_XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(root));
}

static void removed(const char *root)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -r %s", root);
    ck_assert_int_eq(system(command), 0);
}

static bool reads_as(const struct ht_catalog *c, struct ht_version v, const struct held *h)
{
    struct ht_stored_state *s = NULL;
    struct ht_error err;
    struct ht_state *got = ht_state_create(&model);
    if (ht_stored_state_create(c, v, &model, &err, &s) != HT_OK) ck_abort_msg("%s", err.text);
    got->values = ht_stored_state_source(s);
    bool same = held_equals(h, got, 50, &err);
    ht_stored_state_destroy(s);
    ht_state_destroy(got);
    return same;
}

/* Layouts over nodes of two ranks, ZeRO-1 among them. */
START_TEST(written_and_read)
{
    static const struct ht_store_layout layouts[] = {{1, 1, 1, false, 2}, {2, 2, 1, false, 2}, {1, 2, 2, false, 2},
                                                     {3, 1, 2, true, 2},  {2, 2, 2, true, 2},  {4, 1, 1, true, 2}};
    char root[64], dir[512], name[HT_STORE_NAME], path[HT_STORE_PATH];
    struct held *h = held_random(&model, 5);
    const struct ht_store_layout *l = &layouts[_i];
    struct lines lines = {0};
    temporary(root);
    for (int64_t u = 0; u < h->state->n_units; u++) h->state->steps[u] = u;
    h->state->loss_scale = 512.25;
    ht_losses_add(&h->state->losses, 1, 2.5);
    write_all(root, l, first, h);
    struct ht_catalog c = catalog_of(root, 4, &lines);
    int64_t n;
    struct ht_version *versions = ht_catalog_versions(&c, &n);
    ck_assert(n == 1 && !ht_version_compare(&versions[0], &first));
    ht_catalog_verify(&c, first, (struct ht_catalog_log){keep_line, &lines});
    ck_assert_int_eq(lines.n, 0);
    ck_assert(reads_as(&c, first, h));
    const struct ht_stored_manifest *m = ht_catalog_manifest(&c, first);
    struct ht_state *got = ht_state_create(&model);
    struct ht_model read;
    struct ht_error err;
    ck_assert_int_eq(ht_store_facts(m->text, "m", NULL, 0, &err, got), HT_OK);
    ck_assert(got->steps[3] == 3 && got->loss_scale == 512.25);
    ck_assert_int_eq(ht_store_model(m->text, "m", &err, &read), HT_OK);
    ck_assert(read.layers == 2 && read.kv_heads == 2 && ht_model_params(&read) == ht_model_params(&model));
    ht_store_losses_name(m->rank, name);
    store_dir(root, 0, dir);
    ht_store_path(dir, first, name, path);
    ck_assert_int_eq(access(path, R_OK), 0);
    ht_state_destroy(got);
    free(versions);
    ht_catalog_free(&c);
    held_destroy(h);
    removed(root);
}
END_TEST

/* ---- damage ---- */

enum damage { TRUNCATED, FLIPPED, STALE, FOREIGN, GONE, N_DAMAGES };

static void copy_over(const char *from, const char *to)
{
    char command[2 * HT_STORE_PATH + 16];
    snprintf(command, sizeof(command), "cp '%s' '%s'", from, to);
    ck_assert_int_eq(system(command), 0);
}

/* Damages part 0 of unit 1 in a node's store. other: a store with files of that name and other bytes. */
static void damage(enum damage how, const char *dir, const char *other, struct ht_version v)
{
    char path[HT_STORE_PATH], from[HT_STORE_PATH], byte;
    ht_store_path(dir, v, "unit-0001.tp0of2.safetensors", path);
    ht_store_path(other, v, "unit-0001.tp0of2.safetensors", from);
    int fd = open(path, O_RDWR);
    ck_assert_int_ge(fd, 0);
    if (how == TRUNCATED) ck_assert_int_eq(ftruncate(fd, 500), 0);
    if (how == FLIPPED) {
        ck_assert_int_eq(pread(fd, &byte, 1, 700), 1);
        byte ^= 4;
        ck_assert_int_eq(pwrite(fd, &byte, 1, 700), 1);
    }
    if (how == GONE) ck_assert_int_eq(unlink(path), 0);
    close(fd);
    if (how == STALE || how == FOREIGN) copy_over(from, path);
}

/* Two replicas on two nodes. What is wrong on node 0 is one line, and node 1's file is read. Wrong on both: the step is refused,
   with what is missing. A stale file is one of an earlier save, a foreign one of another model. */
START_TEST(damaged_files)
{
    static const char *const says[] = {"has 500 bytes; its manifest says", "has the hash", "has the hash",
                                       "; its manifest says", "cannot be opened"};
    static const struct ht_model larger = {.arch = HT_ARCH_LLAMA,
                                           .layers = 1,
                                           .width = 16,
                                           .heads = 4,
                                           .kv_heads = 2,
                                           .ffn = 12,
                                           .vocab = 11,
                                           .max_seq = 5};
    struct ht_store_layout l = {.dp = 2, .tp = 2, .pp = 1, .per_node = 2};
    char root[64], other[64], dirs[2][512], from[512];
    struct held *h = held_random(&model, 9), *old = held_random(_i == FOREIGN ? &larger : &model, 10);
    struct lines lines = {0};
    struct ht_error err;
    temporary(root);
    temporary(other);
    write_all(root, &l, first, h);
    write_all(other, &l, first, old);
    for (int32_t n = 0; n < 2; n++) store_dir(root, n, dirs[n]);
    store_dir(other, 0, from);
    damage((enum damage)_i, dirs[0], from, first);
    struct ht_catalog c = catalog_of(root, 2, &lines);
    ht_catalog_verify(&c, first, (struct ht_catalog_log){keep_line, &lines});
    ck_assert_msg(lines.n == 1 && strstr(lines.text, says[_i]) && strstr(lines.text, "node-0000"), "%s", lines.text);
    ck_assert(reads_as(&c, first, h));
    ht_catalog_free(&c);
    damage((enum damage)_i, dirs[1], from, first);
    c = catalog_of(root, 2, &lines);
    ht_catalog_verify(&c, first, (struct ht_catalog_log){keep_line, &lines});
    ck_assert_int_eq(lines.n, 3);
    ck_assert_int_eq(ht_catalog_covers(&c, first, &model, &err), HT_INFEASIBLE);
    ck_assert_msg(!strncmp(err.text, "unit 1: ", 8) && strstr(err.text, "in no store"), "%s", err.text);
    ht_catalog_free(&c);
    held_destroy(h);
    held_destroy(old);
    removed(root);
    removed(other);
}
END_TEST

/* A manifest that is cut or changed names nothing; those of other ranks count. A manifest under another rank's name is
   refused, too. */
START_TEST(damaged_manifests)
{
    struct ht_store_layout l = {.dp = 2, .tp = 1, .pp = 1, .per_node = 1};
    char root[64], dir[512], path[HT_STORE_PATH], to[HT_STORE_PATH];
    struct held *h = held_random(&model, 3);
    struct lines lines = {0};
    temporary(root);
    write_all(root, &l, first, h);
    store_dir(root, 0, dir);
    ht_store_path(dir, first, "rank-0000.json", path);
    ht_store_path(dir, first, "rank-0005.json", to);
    copy_over(path, to);
    ck_assert_int_eq(truncate(path, 200), 0);
    struct ht_catalog c = catalog_of(root, 2, &lines);
    ck_assert_int_eq(lines.n, 2);
    ck_assert_ptr_nonnull(strstr(lines.text, "rank-0000.json:"));
    ck_assert_ptr_nonnull(strstr(lines.text, "rank-0005.json: is of another step, run or rank"));
    ht_catalog_verify(&c, first, (struct ht_catalog_log){keep_line, &lines});
    ck_assert(reads_as(&c, first, h));
    ht_catalog_free(&c);
    held_destroy(h);
    removed(root);
}
END_TEST

/* ---- copies ---- */

/* A rank's files go to a second store; the first is lost. A file that was changed in between is not copied, and then the
   second store has no manifest. */
START_TEST(copied)
{
    struct ht_store_layout l = {.dp = 1, .tp = 1, .pp = 1};
    char root[64], dir[512], to[512];
    struct held *h = held_random(&model, 4);
    struct ht_store_part p;
    struct lines lines = {0};
    struct ht_error err;
    temporary(root);
    write_all(root, &l, first, h);
    store_dir(root, 0, dir);
    store_dir(root, 1, to);
    ck_assert_int_eq(ht_store_read_part(dir, first, 0, &err, &p, NULL), HT_OK);
    ck_assert_msg(ht_store_copy(dir, to, &p, (struct ht_store_pace){0}, &err) == HT_OK, "%s", err.text);
    ht_store_remove(dir, first);
    struct ht_catalog c = catalog_of(root, 2, &lines);
    ht_catalog_verify(&c, first, (struct ht_catalog_log){keep_line, &lines});
    ck_assert(lines.n == 0 && reads_as(&c, first, h));
    ht_catalog_free(&c);
    char path[HT_STORE_PATH], again[512];
    ht_store_path(to, first, p.files[0].name, path);
    int fd = open(path, O_RDWR);
    ck_assert_int_eq(pwrite(fd, "x", 1, 600), 1);
    close(fd);
    store_dir(root, 2, again);
    ck_assert_int_eq(ht_store_copy(to, again, &p, (struct ht_store_pace){0}, &err), HT_FAILED);
    ck_assert_ptr_nonnull(strstr(err.text, "has changed since it was written"));
    c = (struct ht_catalog){0};
    ht_catalog_add(&c, again, HT_STORE_REMOTE, -1, (struct ht_catalog_log){keep_line, &lines});
    ck_assert_int_eq(c.n, 0);
    ht_catalog_free(&c);
    ht_store_part_free(&p);
    held_destroy(h);
    removed(root);
}
END_TEST

/* Steps 1 and 2, 3 of two runs, and 5, which a killed run began. The second run has step 3 whole: of two steps 2 and its
   own 3 are kept. */
START_TEST(kept)
{
    static const struct ht_version versions[] = {{1, 1}, {2, 1}, {3, 1}, {3, 2}, {5, 1}};
    struct ht_store_layout l = {.dp = 1, .tp = 1, .pp = 1};
    char root[64], dir[512];
    int64_t n;
    struct held *h = held_random(&model, 6);
    temporary(root);
    for (size_t i = 0; i < HT_COUNT(versions); i++) write_all(root, &l, versions[i], h);
    store_dir(root, 0, dir);
    ht_store_keep_nodes(root, 2, 3);
    struct ht_version *left = ht_store_versions(dir, &n);
    ck_assert_int_eq(n, 2);
    ck_assert(!ht_version_compare(&left[0], &versions[1]) && !ht_version_compare(&left[1], &versions[3]));
    free(left);
    held_destroy(h);
    removed(root);
}
END_TEST

/* ---- spare files ---- */

/* Files of removed versions, or made ahead, are written over: larger ones are cut, and what is read is what was written. */
START_TEST(spares)
{
    static const struct ht_store_layout l = {1, 2, 1, false, 2};
    struct ht_version v = first;
    struct lines lines = {0};
    struct ht_store_part p;
    struct ht_error err;
    char root[64], dir[512], path[HT_STORE_PATH];
    temporary(root);
    store_dir(root, 0, dir);
    for (int i = 0; i < 4; i++, v.step++) {
        struct held *h = held_random(&model, (uint64_t)(20 + i));
        write_all(root, &l, v, h);
        struct ht_catalog c = catalog_of(root, 1, &lines);
        ht_catalog_verify(&c, v, (struct ht_catalog_log){keep_line, &lines});
        ck_assert_msg(lines.n == 0, "%s", lines.text);
        ck_assert(reads_as(&c, v, h));
        ht_catalog_free(&c);
        held_destroy(h);
        snprintf(path, sizeof(path), "%s/spare/unit-0001.tp0of2.safetensors", dir);
        ck_assert_int_ne(access(path, F_OK), 0); /* it has been used */
        if (i == 0) {
            ck_assert_int_eq(ht_store_read_part(dir, v, 0, &err, &p, NULL), HT_OK);
            ht_store_reserve(dir, &p);
            ht_store_part_free(&p);
        } else {
            ht_store_recycle(dir, 1, v.step);
        }
        ck_assert_int_eq(access(path, F_OK), 0);
        if (i == 1) ck_assert_int_eq(truncate(path, 1 << 20), 0);
    }
    ht_store_drop_spares(dir);
    ck_assert_int_ne(access(path, F_OK), 0);
    removed(root);
}
END_TEST

/* ---- kills ---- */

enum { RANKS = 4 };

/* Writes steps for ever, each rank in a process of its own as far as the file system can tell: all of one step, then
   the next. */
static _Noreturn void save_for_ever(const char *root, const struct ht_store_layout *l)
{
    for (int64_t step = 1;; step++) {
        struct held *h = held_random(&model, (uint64_t)step);
        struct ht_version v = {step, 1};
        char dir[512];
        for (int32_t r = 0; r < RANKS; r++)
            if (write_rank(root, l, v, r, h, NULL) != HT_OK) _exit(1);
        for (int32_t n = 0; n < 2 && step > 2; n++) {
            store_dir(root, n, dir);
            ht_store_remove(dir, (struct ht_version){step - 2, 1});
        }
        held_destroy(h);
    }
}

/* Waits until a process has begun its second step. */
static void await_second_step(const char *root)
{
    char dir[512];
    int64_t n, newest = 0;
    store_dir(root, 0, dir);
    for (int i = 0; i < 6000 && newest < 2; i++) {
        struct ht_version *versions = ht_store_versions(dir, &n);
        if (n) newest = versions[n - 1].step;
        free(versions);
        usleep(5000);
    }
    ck_assert_int_ge(newest, 2);
}

/* SIGKILL at random moments. The newest step that covers the state is whole, to the byte, and never older than before. */
START_TEST(killed)
{
    struct ht_store_layout l = {.dp = 1, .tp = 2, .pp = 2, .per_node = 2};
    const char *wanted = getenv("HT_STORE_KILLS");
    int kills = wanted ? atoi(wanted) : 6;
    struct draw d = {.seed = 12};
    for (int k = 0; k < kills; k++) {
        char root[64];
        struct lines lines = {0};
        struct ht_error err;
        int64_t n, newest = 0;
        temporary(root);
        pid_t pid = fork();
        if (pid == 0) save_for_ever(root, &l);
        await_second_step(root);
        usleep((useconds_t)pick(&d, 0, 60000));
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        struct ht_catalog c = catalog_of(root, 2, &lines);
        struct ht_version *versions = ht_catalog_versions(&c, &n);
        for (int64_t i = 0; i < n; i++) ht_catalog_verify(&c, versions[i], (struct ht_catalog_log){keep_line, &lines});
        ck_assert_msg(lines.n == 0, "%s", lines.text); /* what a manifest names is as it says */
        for (int64_t i = 0; i < n && !newest; i++)
            if (ht_catalog_covers(&c, versions[i], &model, &err) == HT_OK) newest = versions[i].step;
        ck_assert(newest >= 1 &&
                  newest >= versions[0].step - 1); /* a step is removed when the next but one is written */
        struct held *h = held_random(&model, (uint64_t)newest);
        ck_assert(reads_as(&c, (struct ht_version){newest, 1}, h));
        held_destroy(h);
        for (int32_t node = 0; node < 2; node++) {
            char dir[512];
            store_dir(root, node, dir);
            ht_store_sweep(dir);
        }
        free(versions);
        ht_catalog_free(&c);
        removed(root);
    }
}
END_TEST

static void add(TCase *t)
{
    tcase_add_loop_test(t, written_and_read, 0, 6);
    tcase_add_loop_test(t, damaged_files, 0, N_DAMAGES);
    tcase_add_test(t, damaged_manifests);
    tcase_add_test(t, copied);
    tcase_add_test(t, kept);
    tcase_add_test(t, spares);
    tcase_add_test(t, killed);
}

int main(void)
{
    return run_suite("store", add);
}
