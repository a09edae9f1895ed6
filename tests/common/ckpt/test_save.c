/*
 * A model's folder is saved over again and again, and every save is killed at, or fails in, every one of its calls that
 * change the folder: a reader finds the old model or the new one, whole, and the next save leaves nothing of this one.
 *
 * The calls are counted by functions of libc's names, which the linker takes instead of libc's.
 */
#include "common/ckpt/durable.h"
#include "common/ckpt/hf.h"

#include "common/base/array.h"
#include "common/base/rng.h"
#include "common/ckpt/model_folder.h"
#include "common/model/hf_config.h"
#include "tests/common/ckpt/held.h"
#include "tests/common/ckpt/models.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- the calls that are counted ---- */

enum how { DIE, FAIL };
static enum how how;
static int countdown = -1; /* calls until one is hit; below 0: none is */

static bool is_hit(void)
{
    if (countdown < 0 || countdown-- > 0) return false;
    if (how == DIE) raise(SIGKILL);
    errno = ENOSPC;
    return true;
}

/* libc's prototypes have other attributes in every version: these are called by their assembler names alone. */
static const char *swept; /* a folder, or NULL */

static bool is_any(const char *name, const void *ctx)
{
    (void)name, (void)ctx;
    return true;
}

int counted_rename(const char *from, const char *to) __asm__("rename");
int counted_unlink(const char *path) __asm__("unlink");
int counted_unlinkat(int fd, const char *path, int flags) __asm__("unlinkat");
int counted_fsync(int fd) __asm__("fsync");

int counted_rename(const char *from, const char *to)
{
    if (swept) ht_durable_sweep(swept, is_any, NULL); /* as another process may at any moment */
    return is_hit() ? -1 : (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int counted_unlink(const char *path)
{
    return is_hit() ? -1 : (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}

int counted_unlinkat(int fd, const char *path, int flags)
{
    return is_hit() ? -1 : (int)syscall(SYS_unlinkat, fd, path, flags);
}

int counted_fsync(int fd)
{
    (void)fd;
    return is_hit() ? -1 : 0;
}

/* ---- models ---- */

/* Only parameters: the rest is 0, as when a model is loaded. */
static struct held *random_params(uint64_t seed)
{
    struct held *h = held_create(&model);
    for (int64_t u = 0; u < h->state->n_units; u++)
        for (int64_t i = 0; i < ht_unit_params(&model, u); i++)
            held_at(h, u, HT_STATE_PARAM)[i] = ht_random_float(seed + (uint64_t)u, (uint64_t)i);
    return h;
}

/* Returns true if our reader finds that model, in pieces of so many elements. */
static bool reads_as(const char *path, const struct held *want, int64_t most)
{
    struct ht_state *state = ht_state_create(&model);
    struct ht_hf *hf = NULL;
    bool is = ht_hf_open(path, NULL, state, &hf) == HT_OK && held_equals(want, state, most, NULL);
    ht_hf_close(hf);
    ht_state_destroy(state);
    return is;
}

/* Returns true if the folder has that model, with a config.json of its shape. */
static bool holds(const char *dir, const struct held *want)
{
    char path[256];
    struct ht_error err = {0};
    struct ht_model said;
    snprintf(path, sizeof(path), "%s/config.json", dir);
    return reads_as(dir, want, 1000) && ht_hf_config_load(path, &err, &said) == HT_OK && said.width == model.width &&
           said.layers == model.layers;
}

/* Returns the names in a folder, sorted and joined. */
static char *listing(const char *dir, char text[1024])
{
    struct dirent **list;
    int n = scandir(dir, &list, NULL, alphasort);
    text[0] = '\0';
    for (int i = 0; i < n; i++) {
        if (list[i]->d_name[0] != '.') {
            size_t at = strlen(text);
            snprintf(text + at, 1024 - at, "%s ", list[i]->d_name);
        }
        free(list[i]);
    }
    free(list);
    return text;
}

static void put_file(const char *dir, const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    fclose(f);
}

static void clear(const char *dir)
{
    DIR *d = opendir(dir);
    for (const struct dirent *e = readdir(d); e; e = readdir(d))
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) unlinkat(dirfd(d), e->d_name, 0);
    closedir(d);
}

static void remove_folder(const char *dir)
{
    clear(dir);
    ck_assert_int_eq(rmdir(dir), 0);
}

/* Saves in another process, which is hit in call number `at`. Returns its exit status; -1: killed. */
static int save_hit(const char *dir, const struct held *held, int64_t shard_bytes, enum how kind, int at)
{
    int status;
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        struct ht_error err = {0};
        how = kind;
        countdown = at;
        enum ht_status saved = ht_hf_save(dir, held->state, HT_F32, shard_bytes, NULL, &err);
        _exit(countdown >= 0 ? 100 + (int)saved : (int)saved); /* 100: it came to its end without the call */
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* ---- tests ---- */

enum { ONE = 1 << 20, TWO = 2600, THREE = 1950 }; /* bytes a shard, for so many of them */
static const int sizes[] = {ONE, TWO, THREE};
static const char *const listings[] = {"config.json model.safetensors tokenizer.json ",
                                       "config.json model-00001-of-00002.safetensors model-00002-of-00002.safetensors "
                                       "model.safetensors.index.json tokenizer.json ",
                                       "config.json model-00001-of-00003.safetensors model-00002-of-00003.safetensors "
                                       "model-00003-of-00003.safetensors model.safetensors.index.json tokenizer.json "};

/* Every way from one kind of folder (or none: 3) to another, hit in every call. */
static void hit_everywhere(enum how kind)
{
    char dir[] = "/tmp/ht_save_XXXXXX", now[1024];
    struct held *old = random_params(1), *new = random_params(100), *last = random_params(200);
    struct ht_error err = {0};
    int n_hits = 0;
    ck_assert_ptr_nonnull(mkdtemp(dir));
    for (int from = 0; from < 4; from++)
        for (int to = 0; to < 3; to++)
            for (int at = 0, end = 0; !end; at++) {
                clear(dir);
                put_file(dir, "tokenizer.json", "{}");
                if (from < 3)
                    ck_assert_msg(ht_hf_save(dir, old->state, HT_F32, sizes[from], NULL, &err) == HT_OK, "%s",
                                  err.text);
                if (from < 3) ck_assert_str_eq(listing(dir, now), listings[from]);
                int status = save_hit(dir, new, sizes[to], kind, at);
                end = status == 100;
                n_hits += !end;
                bool is_old = from < 3 && holds(dir, old), is_new = holds(dir, new);
                listing(dir, now);
                ck_assert_msg(is_old || is_new || (from == 3 && !end), "%d to %d, call %d: %s", from, to, at, now);
                if (end) ck_assert(is_new);
                if (kind == DIE && !end) ck_assert_int_eq(status, -1);
                if (kind == FAIL && !end) {
                    ck_assert_msg(status == HT_FAILED || (status == HT_OK && is_new),
                                  "%d to %d, call %d: status %d: %s", from, to, at, status, now);
                    if (is_old && from == to) ck_assert_msg(!strcmp(now, listings[from]), "call %d left %s", at, now);
                }
                /* The next one, of any kind, leaves itself and the user's file. */
                for (int next = 0; next < 2; next++) {
                    ck_assert_msg(ht_hf_save(dir, (next % 2 ? last : new)->state, HT_F32, sizes[next], NULL, &err) ==
                                      HT_OK,
                                  "%s", err.text);
                    ck_assert(holds(dir, next % 2 ? last : new));
                    ck_assert_msg(!strstr(listing(dir, now), ".partial"), "%s", now);
                    if (next == 0) ck_assert_str_eq(now, listings[0]);
                }
            }
    ck_assert_int_ge(n_hits, 100);
    held_destroy(old);
    held_destroy(new);
    held_destroy(last);
    remove_folder(dir);
}

START_TEST(killed_in_every_call)
{
    hit_everywhere(DIE);
}
END_TEST

START_TEST(failed_in_every_call)
{
    hit_everywhere(FAIL);
}
END_TEST

/* Disks of every size that is too small: files that cannot grow. */
START_TEST(full_disk)
{
    char dir[] = "/tmp/ht_save_XXXXXX", before[1024], now[1024];
    struct held *old = random_params(1), *new = random_params(100);
    struct ht_error err = {0};
    struct rlimit was, limit;
    ck_assert_ptr_nonnull(mkdtemp(dir));
    put_file(dir, "tokenizer.json", "{}");
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &was), 0);
    for (int from = 0; from < 3; from++)
        for (int to = 0; to < 3; to++)
            for (int bytes = 0; bytes < 4000; bytes += 500) {
                ck_assert_int_eq(ht_hf_save(dir, old->state, HT_F32, sizes[from], NULL, &err), HT_OK);
                listing(dir, before);
                limit = was;
                limit.rlim_cur = (rlim_t)bytes;
                int limited = setrlimit(RLIMIT_FSIZE, &limit); /* check's own files must be able to grow */
                enum ht_status status = ht_hf_save(dir, new->state, HT_F32, sizes[to], NULL, &err);
                setrlimit(RLIMIT_FSIZE, &was);
                ck_assert_int_eq(limited, 0);
                if (status == HT_OK) continue; /* small shards */
                ck_assert_int_eq(status, HT_FAILED);
                ck_assert_msg(strstr(err.text, "cannot be written: File too large") != NULL, "%s", err.text);
                ck_assert_str_eq(listing(dir, now), before);
                ck_assert(holds(dir, old));
            }
    held_destroy(old);
    held_destroy(new);
    remove_folder(dir);
}
END_TEST

/* As many shards as before get other names; a third set gets the first's. */
START_TEST(names_alternate)
{
    char dir[] = "/tmp/ht_save_XXXXXX", now[1024];
    struct held *state = random_params(1);
    ck_assert_ptr_nonnull(mkdtemp(dir));
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(ht_hf_save(dir, state->state, HT_F32, TWO, NULL, NULL), HT_OK);
        ck_assert_str_eq(listing(dir, now), i == 1 ? "config.json model-v2-00001-of-00002.safetensors "
                                                     "model-v2-00002-of-00002.safetensors model.safetensors.index.json "
                                                   : "config.json model-00001-of-00002.safetensors "
                                                     "model-00002-of-00002.safetensors model.safetensors.index.json ");
    }
    /* A save removes the files that the old index names, whatever they are called; others stay. */
    clear(dir);
    put_file(dir, "mine.safetensors", "");
    put_file(dir, "weights-a.safetensors", "");
    put_file(dir, "notes.json", "");
    put_file(dir, "model-notes.safetensors", "");
    put_file(dir, "model.safetensors.index.json",
             "{\"weight_map\": {\"x\": \"weights-a.safetensors\", \"y\": "
             "\"../z.safetensors\", \"n\": \"notes.json\"}}");
    ck_assert_int_eq(ht_hf_save(dir, state->state, HT_F32, ONE, NULL, NULL), HT_OK);
    ck_assert_str_eq(listing(dir, now),
                     "config.json mine.safetensors model-notes.safetensors model.safetensors notes.json ");
    held_destroy(state);
    remove_folder(dir);
}
END_TEST

/* A config.json of the same model keeps its text but for the type of the weights; another model's is replaced. */
START_TEST(configs)
{
    static const char users[] =
        "{\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_embd\": 6, \"n_head\": 2, \"vocab_size\": 11,"
        " \"n_positions\": 5, \"eos_token_id\": 7, \"torch_dtype\": \"float32\"}\n";
    char dir[] = "/tmp/ht_save_XXXXXX", path[64], text[4096];
    struct held *state = random_params(1);
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/config.json", dir);
    put_file(dir, "config.json", users);
    for (int step = 0; step < 3; step++) {
        if (step == 2) put_file(dir, "config.json", "{\"model_type\": \"gpt2\", \"n_layer\": 3, \"eos_token_id\": 7}");
        ck_assert_int_eq(ht_hf_save(dir, state->state, step ? HT_BF16 : HT_F32, ONE, NULL, NULL), HT_OK);
        FILE *f = fopen(path, "r");
        text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
        fclose(f);
        if (step == 0) ck_assert_str_eq(text, users);
        if (step > 0) ck_assert_msg(strstr(text, "\"torch_dtype\": \"bfloat16\"") != NULL, "%s", text);
        ck_assert((strstr(text, "\"eos_token_id\": 7") != NULL) == (step < 2));
        struct ht_model said;
        ck_assert(ht_hf_config_load(path, NULL, &said) == HT_OK && said.layers == 2);
    }
    held_destroy(state);
    remove_folder(dir);
}
END_TEST

/* Matrices of 520 x 2080 elements and back, as they are and transposed: more than a piece has. In 16 bits, too. */
START_TEST(many_pieces)
{
    static const struct ht_model wide = {.arch = HT_ARCH_GPT,
                                         .layers = 1,
                                         .width = 520,
                                         .heads = 2,
                                         .ffn = 2080,
                                         .vocab = 2100,
                                         .max_seq = 5,
                                         .tied = true};
    char file[] = "/tmp/ht_save_XXXXXX.safetensors";
    struct held *held = held_create(&wide);
    struct ht_error err = {0};
    int fd = mkstemps(file, 12);
    ck_assert_int_ge(fd, 0);
    close(fd);
    for (int64_t u = 0; u < held->state->n_units; u++)
        for (int64_t i = 0; i < ht_unit_params(&wide, u); i++)
            held_at(held, u, HT_STATE_PARAM)[i] = (float)((i * 7919 + u) % 257); /* exact in BF16 */
    for (enum ht_dtype type = HT_F32; type <= HT_BF16; type++) {
        struct ht_state *got = ht_state_create(&wide);
        struct ht_hf *hf = NULL;
        int64_t overflows = -1;
        ck_assert_msg(ht_hf_save(file, held->state, type, 0, &overflows, &err) == HT_OK, "%s", err.text);
        ck_assert_int_eq(overflows, 0);
        ck_assert_msg(ht_hf_open(file, &err, got, &hf) == HT_OK, "%s", err.text);
        ck_assert(held_equals(held, got, HT_PIECE_ELEMENTS, &err) && held_equals(held, got, 999983, &err));
        ht_hf_close(hf);
        ht_state_destroy(got);
    }
    held_destroy(held);
    ck_assert_int_eq(unlink(file), 0);
}
END_TEST

/* A file that is being written is locked until it has its name, so nobody sweeps it away. */
START_TEST(swept_while_it_is_renamed)
{
    char dir[] = "/tmp/ht_save_XXXXXX", file[64];
    struct held *state = random_params(1);
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(file, sizeof(file), "%s/x.safetensors", dir);
    swept = dir;
    ck_assert_int_eq(ht_hf_save(file, state->state, HT_F32, ONE, NULL, NULL), HT_OK);
    ck_assert_int_eq(ht_hf_save(dir, state->state, HT_F32, ONE, NULL, NULL), HT_OK);
    swept = NULL;
    ck_assert(holds(dir, state) && access(file, R_OK) == 0);
    held_destroy(state);
    remove_folder(dir);
}
END_TEST

/* A file that is a link: its target is written, be it there or not; and what a killed save left beside it goes. */
START_TEST(links)
{
    char dir[] = "/tmp/ht_save_XXXXXX", link[64], target[64], now[1024];
    struct held *state = random_params(1);
    struct stat sb;
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(link, sizeof(link), "%s/link.safetensors", dir);
    snprintf(target, sizeof(target), "%s/target.safetensors", dir);
    ck_assert_int_eq(symlink("target.safetensors", link), 0);
    for (int i = 0; i < 2; i++) {
        put_file(dir, "target.safetensors.123.partial", "");
        ck_assert_int_eq(ht_hf_save(link, state->state, HT_F32, ONE, NULL, NULL), HT_OK);
        ck_assert(lstat(link, &sb) == 0 && S_ISLNK(sb.st_mode) && lstat(target, &sb) == 0 && S_ISREG(sb.st_mode));
        ck_assert_str_eq(listing(dir, now), "link.safetensors target.safetensors ");
    }
    for (int64_t most = 1; most < 1000; most = 3 * most + 2) /* pieces that begin and end anywhere in a tensor's rows */
        ck_assert(reads_as(link, state, most));
    ck_assert_int_eq(unlink(target), 0);
    ck_assert_int_eq(symlink("link.safetensors", target), 0); /* a ring */
    ck_assert_int_eq(ht_hf_save(link, state->state, HT_F32, ONE, NULL, NULL), HT_BAD_INPUT);
    held_destroy(state);
    remove_folder(dir);
}
END_TEST

START_TEST(one_process)
{
    char dir[] = "/tmp/ht_save_XXXXXX";
    struct ht_error err = {0};
    DIR *first = NULL, *second = NULL;
    ck_assert_ptr_nonnull(mkdtemp(dir));
    ck_assert_int_eq(ht_model_folder_lock(dir, &err, &first), HT_OK);
    ck_assert_int_eq(ht_model_folder_lock(dir, &err, &second), HT_BAD_INPUT);
    ck_assert_msg(strstr(err.text, "another process saves its model there") != NULL, "%s", err.text);
    closedir(first);
    ck_assert_int_eq(ht_model_folder_lock(dir, &err, &second), HT_OK);
    closedir(second);
    remove_folder(dir);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("save");
    TCase *t = tcase_create("save");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, killed_in_every_call);
    tcase_add_test(t, failed_in_every_call);
    tcase_add_test(t, full_disk);
    tcase_add_test(t, names_alternate);
    tcase_add_test(t, configs);
    tcase_add_test(t, many_pieces);
    tcase_add_test(t, swept_while_it_is_renamed);
    tcase_add_test(t, links);
    tcase_add_test(t, one_process);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
