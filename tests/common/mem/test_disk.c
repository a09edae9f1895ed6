/* Disk spaces: both ways of transfers, one directory and several, with and without the page cache, and every fault. */
#include "common/base/array.h"
#include "common/base/rng.h"
#include "common/mem/arena.h"
#include "common/mem/disk.h"

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MIB = 1 << 20, SPACE = 9 * MIB };

static char dirs[3][64]; /* of the tests, and /dev/shm, which has no direct transfers on old kernels */

static void make_dirs(void)
{
    for (int i = 0; i < 2; i++) {
        snprintf(dirs[i], sizeof(dirs[i]), "/var/tmp/hetbench-disk-%d-XXXXXX", i);
        ck_assert_ptr_nonnull(mkdtemp(dirs[i]));
    }
    snprintf(dirs[2], sizeof(dirs[2]), "/dev/shm");
}

static void remove_dirs(void)
{
    for (int i = 0; i < 2; i++) ck_assert_int_eq(rmdir(dirs[i]), 0); /* no file is left in them */
}

struct space {
    struct ht_arena *arena;
    struct ht_disk *disk;
    char *base;
};

static struct ht_disk_options options_of(int variant)
{
    /* variants: way (2) x directories: one, two, one in memory (3) */
    struct ht_disk_options o = {.path = variant % 2 ? HT_DISK_THREADS : HT_DISK_AUTO, .checksums = true};
    int which = variant / 2;
    o.dirs[o.n_dirs++] = dirs[which == 2 ? 2 : 0];
    if (which == 1) o.dirs[o.n_dirs++] = dirs[1];
    return o;
}
enum { N_VARIANTS = 6 };

static struct space open_space(const struct ht_disk_options *o)
{
    struct space x;
    struct ht_error err = {0};
    enum ht_status status = ht_disk_create_space(o, SPACE, 0, "the test", &err, &x.arena, &x.disk);
    ck_assert_msg(status == HT_OK, "%s", err.text);
    x.base = ht_arena_base(x.arena, NULL);
    return x;
}

static void close_space(struct space *x)
{
    ht_disk_destroy(x->disk);
    ht_arena_destroy(x->arena);
}

static void fill(char *p, int64_t n, uint64_t seed)
{
    for (int64_t i = 0; i < n; i++) p[i] = (char)ht_random_below(seed, (uint64_t)i, 256);
}

/* Random writes and reads of any offset and size, from aligned and odd memory, against a plain copy. */
START_TEST(against_a_copy)
{
    struct ht_disk_options o = options_of(_i);
    struct space x = open_space(&o);
    char *model = ht_alloc(SPACE), *memory = ht_alloc_aligned(4096, 4 * MIB), *noise = ht_alloc(4 * MIB + 64);
    struct ht_error err = {0};
    ht_disk_register(x.disk, memory, 4 * MIB);
    fill(noise, 4 * MIB + 64, 1);
    for (uint64_t k = 0; k < 120; k++) {
        int64_t bytes = 1 + (int64_t)ht_random_below(2, k, k % 3 ? 20000 : 3 * MIB);
        int64_t at = (int64_t)ht_random_below(3, k, (uint64_t)(SPACE - bytes));
        bool write = ht_random_below(4, k, 2), registered = ht_random_below(5, k, 2);
        int64_t shift = registered ? 512 * (int64_t)ht_random_below(6, k, 9) : (int64_t)ht_random_below(6, k, 64);
        char *p = registered ? memory + shift : noise + shift;
        if (registered && bytes > 4 * MIB - 8192) bytes = 4 * MIB - 8192;
        if (k % 4 == 0) at = at / 4096 * 4096;
        struct ht_disk_move m = {.memory = p, .at = x.base + at, .bytes = bytes, .whole = write && k % 4 == 0};
        if (m.whole) /* what follows a whole tensor in its block is padding */
            memset(model + at, 0, (size_t)((bytes + 4095) / 4096 * 4096));
        if (write) {
            fill(p, bytes, 100 + k);
            memcpy(model + at, p, (size_t)bytes);
        }
        enum ht_status status =
            write ? ht_disk_write(x.disk, &m, 1, NULL, &err) : ht_disk_read(x.disk, &m, 1, NULL, &err);
        ck_assert_msg(status == HT_OK, "%s", err.text);
        if (!write) ck_assert_int_eq(memcmp(p, model + at, (size_t)bytes), 0);
    }
    struct ht_disk_move all = {.memory = noise, .at = x.base, .bytes = 4 * MIB};
    for (int i = 0; i < 2; i++, all.at = x.base + 4 * MIB) {
        ck_assert_int_eq(ht_disk_read(x.disk, &all, 1, NULL, &err), HT_OK);
        ck_assert_int_eq(memcmp(noise, model + (int64_t)i * 4 * MIB, 4 * MIB), 0);
    }
    free(model);
    free(memory);
    free(noise);
    close_space(&x);
}
END_TEST

/* Several moves in one call, of sizes around a stripe. */
START_TEST(several_moves)
{
    struct ht_disk_options o = options_of(_i);
    struct space x = open_space(&o);
    struct ht_error err = {0};
    static const int64_t sizes[] = {1, 4096, 5000, MIB - 1, MIB, MIB + 1, 2 * MIB + 512, 0};
    struct ht_disk_move m[8], back[8];
    for (int i = 0, at = 0; i < 8; at += (int)((sizes[i] + 4095) / 4096 * 4096), i++) {
        m[i] = (struct ht_disk_move){ht_alloc((size_t)sizes[i]), x.base + at, sizes[i], true};
        back[i] = m[i];
        back[i].memory = ht_alloc((size_t)sizes[i]);
        fill(m[i].memory, sizes[i], (uint64_t)i);
    }
    ck_assert_msg(ht_disk_write(x.disk, m, 8, NULL, &err) == HT_OK, "%s", err.text);
    ck_assert_msg(ht_disk_read(x.disk, back, 8, NULL, &err) == HT_OK, "%s", err.text);
    for (int i = 0; i < 8; i++) {
        ck_assert_int_eq(memcmp(m[i].memory, back[i].memory, (size_t)sizes[i]), 0);
        free(m[i].memory);
        free(back[i].memory);
    }
    close_space(&x);
}
END_TEST

/* ---- lanes at once ---- */

struct mover {
    struct space *x;
    int id;
    enum ht_status status;
};

static void *move_about(void *arg)
{
    struct mover *m = arg;
    char *data = ht_alloc_aligned(4096, MIB), *back = ht_alloc_aligned(4096, MIB);
    struct ht_error err;
    for (int k = 0; k < 20 && !m->status; k++) {
        struct ht_disk_move move = {data, m->x->base + (int64_t)m->id * 2 * MIB + k * 4096, MIB, true};
        fill(data, MIB, (uint64_t)(m->id * 1000 + k));
        m->status = ht_disk_write(m->x->disk, &move, 1, NULL, &err);
        move.memory = back;
        if (!m->status) m->status = ht_disk_read(m->x->disk, &move, 1, NULL, &err);
        if (!m->status && memcmp(data, back, MIB) != 0) m->status = HT_FAILED;
    }
    free(data);
    free(back);
    return NULL;
}

START_TEST(several_threads)
{
    struct ht_disk_options o = options_of(_i);
    struct space x = open_space(&o);
    struct mover movers[4];
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        movers[i] = (struct mover){.x = &x, .id = i};
        ck_assert_int_eq(pthread_create(&threads[i], NULL, move_about, &movers[i]), 0);
    }
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 4; i++) ck_assert_int_eq(movers[i].status, HT_OK);
    close_space(&x);
}
END_TEST

/* ---- faults ---- */

enum fault { NONE, EIO_ONCE, ENDS, SHORT, RETRY, FLIP };
struct shim {
    enum fault fault;
    bool write;
    atomic_int left; /* requests until it comes */
};

static int64_t result(void *ctx, bool write, int64_t offset, void *data, int64_t bytes, int64_t result)
{
    struct shim *s = ctx;
    (void)offset, (void)bytes;
    if (s->write != write || atomic_fetch_sub(&s->left, 1) != 0) return result;
    if (s->fault == FLIP) ((char *)data)[3] ^= 4;
    return s->fault == EIO_ONCE ? -EIO
           : s->fault == ENDS   ? 0
           : s->fault == SHORT  ? 8192
           : s->fault == RETRY  ? -EINTR
                                : result;
}

static void expect_fault(int variant, enum fault fault, bool write, bool checksums, const char *expected)
{
    struct shim s = {.fault = fault, .write = write, .left = 2};
    struct ht_disk_shim shim = {.result = result, .ctx = &s};
    struct ht_disk_options o = options_of(variant);
    o.shim = &shim;
    o.checksums = checksums;
    struct space x = open_space(&o);
    char *data = ht_alloc_aligned(4096, 5 * MIB), *back = ht_alloc_aligned(4096, 5 * MIB);
    struct ht_disk_move m[2] = {{data, x.base, 512, true}, {data + 4096, x.base + 4096, 5 * MIB - 4096, true}};
    struct ht_error err = {0};
    int32_t failed = -1;
    fill(data, 5 * MIB, 9);
    enum ht_status status = ht_disk_write(x.disk, m, 2, &failed, &err);
    m[0].memory = back;
    m[1].memory = back + 4096;
    if (!status) status = ht_disk_read(x.disk, m, 2, &failed, &err);
    if (expected) {
        ck_assert_int_eq(status, HT_FAILED);
        ck_assert(failed == 0 || failed == 1);
        const char *dir = strstr(err.text, o.dirs[0]);
        if (!dir && o.n_dirs > 1) dir = strstr(err.text, o.dirs[1]);
        ck_assert_msg(strstr(err.text, expected) && dir && strstr(err.text, "offset "), "%s", err.text);
    } else {
        ck_assert_msg(status == HT_OK, "%s", err.text);
        bool same = !memcmp(data, back, 512) && !memcmp(data + 4096, back + 4096, 5 * MIB - 4096);
        ck_assert_int_eq(same, fault != FLIP);
    }
    /* The disk is still fit for use, or at least for being taken down. */
    m[0].memory = back;
    if (fault != NONE && status) ck_assert_int_eq(ht_disk_read(x.disk, m, 1, NULL, &err), HT_OK);
    free(data);
    free(back);
    close_space(&x);
}

START_TEST(faults)
{
    int v = _i;
    for (int write = 0; write < 2; write++) {
        expect_fault(v, EIO_ONCE, write, true, "Input/output error");
        expect_fault(v, ENDS, write, true, "ended early");
        expect_fault(v, SHORT, write, true, NULL); /* what is left is asked for again */
        expect_fault(v, RETRY, write, true, NULL);
    }
    expect_fault(v, FLIP, false, true, "not what was written there");
    expect_fault(v, FLIP, false, false, NULL); /* without checksums nobody sees it */
}
END_TEST

/* A write of a part of a block that nobody has written reads the rest of it, which is checked as well. */
START_TEST(fault_beside_a_part)
{
    struct shim s = {.fault = FLIP};
    struct ht_disk_shim shim = {.result = result, .ctx = &s};
    struct ht_disk_options o = options_of(_i);
    o.shim = &shim;
    struct space x = open_space(&o);
    struct ht_error err = {0};
    char data[100] = "a part";
    struct ht_disk_move m = {data, x.base + 8192, sizeof(data), false};
    ck_assert_int_eq(ht_disk_write(x.disk, &m, 1, NULL, &err), HT_FAILED);
    ck_assert_msg(strstr(err.text, "not what was written there"), "%s", err.text);
    ck_assert_int_eq(ht_disk_write(x.disk, &m, 1, NULL, &err), HT_OK);
    close_space(&x);
}
END_TEST

static int no_room(void *ctx, int64_t bytes)
{
    return ++*(int *)ctx == 2 && bytes ? ENOSPC : 0; /* in the second directory */
}

START_TEST(no_room_is_an_answer)
{
    int calls = 0;
    struct ht_disk_shim shim = {.reserve = no_room, .ctx = &calls};
    struct ht_disk_options o = options_of(2);
    struct ht_error err = {0};
    struct ht_arena *arena;
    struct ht_disk *disk;
    o.shim = &shim;
    ck_assert_int_eq(ht_disk_create_space(&o, SPACE, 0, "the test", &err, &arena, &disk), HT_INFEASIBLE);
    ck_assert_msg(strstr(err.text, "the test needs ") && strstr(err.text, dirs[1]) && strstr(err.text, "No space left"),
                  "%s", err.text);
    /* Nothing that a machine has: the real call refuses, too. */
    o.shim = NULL;
    o.n_dirs = 1;
    ck_assert_int_eq(ht_disk_create_space(&o, (int64_t)1 << 50, 0, "the test", &err, &arena, &disk), HT_INFEASIBLE);
}
END_TEST

START_TEST(directories)
{
    struct ht_disk_options o;
    struct ht_error err = {0};
    char list[256];
    snprintf(list, sizeof(list), "%s,%s", dirs[0], dirs[1]);
    ck_assert_msg(ht_disk_parse(list, &err, &o) == HT_OK, "%s", err.text);
    ck_assert_int_eq(o.n_dirs, 2);
    ck_assert_str_eq(o.dirs[1], dirs[1]);
    static const char *const bad[] = {"", ",", "/tmp,", "/nowhere/at/all", "/etc/passwd"};
    for (size_t i = 0; i < HT_COUNT(bad); i++) {
        snprintf(list, sizeof(list), "%s", bad[i]);
        enum ht_status status = ht_disk_parse(list, &err, &o);
        ck_assert_msg(status == HT_BAD_INPUT && strstr(err.text, "--disk: "), "'%s'", bad[i]);
    }
    /* One in which nobody but root may write. */
    ck_assert_int_eq(chmod(dirs[0], 0500), 0);
    snprintf(list, sizeof(list), "%s", dirs[0]);
    ck_assert_int_eq(ht_disk_parse(list, &err, &o), geteuid() == 0 ? HT_OK : HT_BAD_INPUT);
    ck_assert_int_eq(chmod(dirs[0], 0700), 0);
    char many[256] = "/tmp";
    for (int i = 0; i < HT_MAX_DISKS; i++) strcat(many, ",/tmp");
    ck_assert_int_eq(ht_disk_parse(many, &err, &o), HT_BAD_INPUT);
}
END_TEST

/* Another process attaches, reads what this one wrote with its checksums, and writes; a killed process leaves no
   file. */
START_TEST(other_processes)
{
#ifdef __SANITIZE_THREAD__
    if (_i % 2) return; /* it takes no new threads after a fork of a process with threads */
#endif
    struct ht_disk_options o = options_of(_i);
    struct space x = open_space(&o);
    struct ht_disk_handle handle = ht_disk_handle(x.disk);
    struct ht_error err = {0};
    char *data = ht_alloc(3 * MIB);
    struct ht_disk_move m = {data, x.base + 4096, 3 * MIB, true};
    fill(data, 3 * MIB, 7);
    ck_assert_int_eq(ht_disk_write(x.disk, &m, 1, NULL, &err), HT_OK);
    pid_t child = fork();
    if (child == 0) {
        struct ht_disk *mine;
        char *theirs = ht_alloc(3 * MIB);
        struct ht_disk_move n = {theirs, x.base + 4096, 3 * MIB, true};
        if (ht_disk_attach(&o, &handle, x.base, SPACE, &err, &mine)) _exit(1);
        if (ht_disk_read(mine, &n, 1, NULL, &err) || memcmp(theirs, data, 3 * MIB) != 0) _exit(2);
        theirs[5000] ^= 1;
        if (ht_disk_write(mine, &n, 1, NULL, &err)) _exit(3);
        raise(SIGKILL);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFSIGNALED(status), "exit %d", WEXITSTATUS(status));
    data[5000] ^= 1;
    char *back = ht_alloc(3 * MIB);
    m.memory = back;
    ck_assert_msg(ht_disk_read(x.disk, &m, 1, NULL, &err) == HT_OK, "%s", err.text);
    ck_assert_int_eq(memcmp(back, data, 3 * MIB), 0);
    free(data);
    free(back);
    close_space(&x);
}
END_TEST

/* The arena hands out blocks of 4096 and counts them so. Its addresses fault. */
START_TEST(addresses)
{
    struct ht_error err = {0};
    struct ht_arena *a;
    ck_assert_int_eq(ht_arena_create_disk(NULL, 10000, 1, &err, &a), HT_OK);
    ck_assert_int_eq(ht_arena_stats(a).capacity_bytes, 12288);
    char *p = ht_arena_alloc(a, 1, true), *q = ht_arena_alloc(a, 4097, true);
    ck_assert_int_eq(q - p, 4096);
    ck_assert_int_eq(ht_arena_stats(a).live_bytes, 12288);
    ck_assert_ptr_null(ht_arena_alloc(a, 1, true));
    pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        *(volatile char *)p = 1;
        _exit(0);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(!WIFEXITED(status) || WEXITSTATUS(status) != 0); /* killed; a sanitizer exits */
    ht_arena_free(a, p);
    ht_arena_free(a, q);
    ht_arena_destroy(a);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("disk");
    TCase *t = tcase_create("disk");
    tcase_add_checked_fixture(t, make_dirs, remove_dirs);
    tcase_add_loop_test(t, against_a_copy, 0, N_VARIANTS);
    tcase_add_loop_test(t, several_moves, 0, N_VARIANTS);
    tcase_add_loop_test(t, several_threads, 0, N_VARIANTS);
    tcase_add_loop_test(t, faults, 0, N_VARIANTS);
    tcase_add_loop_test(t, fault_beside_a_part, 0, N_VARIANTS);
    tcase_add_test(t, no_room_is_an_answer);
    tcase_add_test(t, directories);
    tcase_add_loop_test(t, other_processes, 0, N_VARIANTS);
    tcase_add_test(t, addresses);
    suite_add_tcase(s, t);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
