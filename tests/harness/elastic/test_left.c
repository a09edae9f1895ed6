/* Each kind of thing that a drill may leave is found, alone and in a cell. */
#include "harness/elastic/cell.h"
#include "harness/elastic/child.h"
#include "harness/elastic/left.h"

#include "tests/support/suite.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void make_file(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT, 0666);
    ck_assert_msg(fd >= 0, "%s", path);
    close(fd);
}

static void make_folder(char dir[64])
{
    char path[96];
    snprintf(dir, 64, "/tmp/ht-left-XXXXXX");
    ck_assert(mkdtemp(dir) != NULL);
    snprintf(path, sizeof(path), "%s/tmp", dir);
    ck_assert(!mkdir(path, 0777));
    snprintf(path, sizeof(path), "%s/store", dir);
    ck_assert(!mkdir(path, 0777));
    snprintf(path, sizeof(path), "%s/store/node-0002", dir);
    ck_assert(!mkdir(path, 0777));
}

static void remove_folder(const char *dir)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -r %s", dir);
    ck_assert(!system(command));
}

static const char *mounted; /* that may stay */

/* Fails unless the check finds what contains `text`; NULL: unless it finds nothing. */
static void expect(const char *dir, const char *nodes, bool sealed, const char *text)
{
    struct ht_error err = {0};
    enum ht_status status = ht_left_check(dir, nodes, mounted, sealed, text ? 0 : 60000, &err);
    ck_assert_msg(text ? status == HT_FAILED && strstr(err.text, text) : status == HT_OK, "%s", err.text);
}

static void check_file(const char *dir, const char *name, const char *nodes, const char *text)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    make_file(path);
    expect(dir, nodes, false, text);
    unlink(path);
    expect(dir, nodes, false, NULL);
}

START_TEST(files)
{
    char dir[64];
    make_folder(dir);
    expect(dir, NULL, false, NULL);
    check_file(dir, "tmp/hetbench-ranks-1", "2", "1 files are left in");
    check_file(dir, "store/state.json.1200.partial", NULL, "store/state.json.1200.partial is left half-written");
    check_file(dir, "store/node-0002/a.1200.partial", "0,2", "a.1200.partial is left half-written");
    check_file(dir, "store/node-0002/a.1200.partial", "0,1", NULL); /* a lost node's */
    check_file(dir, "store/node-0002/a", "2", NULL);
    remove_folder(dir);
}
END_TEST

/* This program again, with TMPDIR set, sleeps (main). */
static pid_t start_sleeper(const char *dir)
{
    char *words[] = {"test", "sleep", NULL}, tmp[96];
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    snprintf(tmp, sizeof(tmp), "%s/tmp", dir);
    pid_t pid = ht_child_start(words, null, "TMPDIR", tmp);
    close(null);
    ck_assert(pid > 0);
    return pid;
}

static void await_program(pid_t pid)
{
    char path[64], text[65536];
    for (bool there = false; !there;) {
        snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
        FILE *f = fopen(path, "re");
        size_t n = f ? fread(text, 1, sizeof(text) - 1, f) : 0;
        text[n] = '\0';
        there = n > 5 && !strcmp(text, "test"); /* it runs the program */
        if (f) fclose(f);
        usleep(1000);
    }
}

START_TEST(processes)
{
    char dir[64];
    int waited;
    make_folder(dir);
    pid_t pid = start_sleeper(dir);
    await_program(pid);
    expect(dir, NULL, false, "1 processes are left, of ");
    ck_assert(waitpid(pid, &waited, 0) == pid);
    ck_assert(WIFSIGNALED(waited) && WTERMSIG(waited) == SIGKILL);
    expect(dir, NULL, false, NULL);
    remove_folder(dir);
}
END_TEST

static enum ht_status in_a_cell(void *ctx, bool sealed, struct ht_error *err)
{
    char *dir = ctx, path[96];
    if (!sealed) return HT_OK;
    expect(dir, NULL, true, NULL);
    make_file("/dev/shm/left");
    expect(dir, NULL, true, "1 files are left in /dev/shm, such as left");
    unlink("/dev/shm/left");
    snprintf(path, sizeof(path), "%s/store", dir);
    ck_assert(!mount("small", path, "tmpfs", 0, "size=64k"));
    expect(dir, NULL, true, "store is left as a mount");
    mounted = path;
    expect(dir, NULL, true, NULL);
    mounted = NULL;
    ck_assert(!umount(path));
    pid_t pid = fork(); /* any process of the cell counts, whatever its environment */
    if (pid == 0)
        for (;;) pause();
    expect(dir, NULL, true, "1 processes are left");
    expect(dir, NULL, true, NULL);
    return ht_fail(err, HT_INFEASIBLE, "sealed");
}

/* A cell says its function's error, and has nothing of what the machine has in /dev/shm. Where none can be made, the function runs
   here. */
START_TEST(cells)
{
    char dir[64], here[64];
    struct ht_error err = {0};
    make_folder(dir);
    snprintf(here, sizeof(here), "/dev/shm/ht-left-%d", (int)getpid());
    make_file(here);
    enum ht_status status = ht_cell_run(in_a_cell, dir, &err);
    if (status == HT_OK) printf("no cells can be made here\n");
    if (status != HT_OK) ck_assert_msg(status == HT_INFEASIBLE && !strcmp(err.text, "sealed"), "%s", err.text);
    unlink(here);
    remove_folder(dir);
}
END_TEST

static void add(TCase *tc)
{
    tcase_add_test(tc, files);
    tcase_add_test(tc, processes);
    tcase_add_test(tc, cells);
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "sleep"))
        for (;;) pause();
    return run_suite("left", add);
}
