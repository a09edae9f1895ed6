#include "harness/cli/drawing.h"

#include "common/base/interrupt.h"
#include "common/trace/trace.h"
#include "harness/cli/data_root.h"
#include "harness/run/output.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { PATH_BYTES = HT_ROOT_BYTES + 256, SAID_BYTES = 900, MOST_ARGS = 16 };

static enum ht_status find_script(const char *of, const char *name, char *path, size_t n, struct ht_error *err)
{
    char root[HT_ROOT_BYTES];
    snprintf(path, n, "%s/harness/report/%s", ht_data_root(root), name);
    if (access(path, R_OK) == 0) return HT_OK;
    return ht_fail(err, HT_INFEASIBLE, "%s: missing; %s needs hetbench as installed, or the tree it was built from",
                   path, of);
}

/* Returns the interpreter: Debian's own is the one that has Debian's matplotlib. */
static const char *interpreter(void)
{
    static const char debian[] = "/usr/bin/python3";
    return access(debian, X_OK) == 0 ? debian : "python3";
}

/* Waits until the script writes or ends. Hands on an interrupt a second later, once: a terminal's Ctrl-C reaches the script, too, and
   a second one could disturb it while it removes its files. */
static void await(int fd, pid_t pid)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int tenths = 0;
    while (poll(&p, 1, 100) <= 0)
        if (ht_interrupted() && ++tenths == 10) kill(pid, SIGINT);
}

/* Runs the script and keeps the last line that it wrote to standard error. */
static enum ht_status run(const char *of, char *const argv[], struct ht_error *err, int *code, char *said, size_t n)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return ht_fail(err, HT_FAILED, "%s: no pipe: %s", of, strerror(errno));
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
    pid_t pid;
    fflush(stdout);
    int failed = posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    FILE *in = fdopen(ends[0], "r");
    char line[SAID_BYTES];
    said[0] = '\0';
    while (in && !failed) {
        await(ends[0], pid);
        if (!fgets(line, sizeof(line), in)) break;
        line[strcspn(line, "\n")] = '\0';
        if (line[0]) snprintf(said, n, "%s", line);
    }
    if (in)
        fclose(in);
    else
        close(ends[0]);
    if (failed)
        return ht_fail(err, HT_INFEASIBLE, "%s draws with Python: %s cannot be started: %s", of, argv[0],
                       strerror(failed));
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    *code = WIFEXITED(status) ? WEXITSTATUS(status) : HT_FAILED;
    return HT_OK;
}

enum ht_status ht_python_run(const char *of, const char *script, const char *const *args, struct ht_error *err)
{
    char path[PATH_BYTES], said[SAID_BYTES] = "";
    const char *argv[MOST_ARGS + 3] = {interpreter(), path};
    int code = 0;
    enum ht_status status = find_script(of, script, path, sizeof(path), err);
    for (int n = 0; n < MOST_ARGS && args[n]; n++) argv[n + 2] = args[n];
    if (status == HT_OK) status = run(of, (char *const *)argv, err, &code, said, sizeof(said));
    if (status != HT_OK) return status;
    if (ht_interrupted()) return ht_fail(err, HT_INTERRUPTED, "interrupted");
    if (code == 0) return HT_OK;
    bool known = code == HT_BAD_INPUT || code == HT_INFEASIBLE;
    return ht_fail(err, known ? (enum ht_status)code : HT_FAILED, "%.900s", said[0] ? said : "Python failed");
}

/* ---- documents ----------------------------------------------------------------------------------------------------- */

/* Opens a file in memory, which a child sees as /dev/fd/N. */
static enum ht_status open_memory(FILE **file, char path[64], struct ht_error *err)
{
    int fd = memfd_create("hetbench", 0);
    if (fd < 0) return ht_fail(err, HT_FAILED, "no file in memory: %s", strerror(errno));
    snprintf(path, 64, "/dev/fd/%d", fd);
    *file = fdopen(fd, "w");
    return HT_OK;
}

static enum ht_status write_report(const json_t *root, FILE *file, struct ht_error *err)
{
    bool written = json_dumpf(root, file, 0) == 0 && fflush(file) == 0;
    return written ? HT_OK : ht_fail(err, HT_FAILED, "no memory for the report to draw");
}

static enum ht_status write_trace(const struct ht_trace *t, FILE *file, struct ht_error *err)
{
    enum ht_status status = ht_trace_write(t, file, err);
    if (status == HT_OK && fflush(file) != 0) return ht_fail(err, HT_FAILED, "no memory for the trace to draw");
    return status;
}

/* Hands a report and its trace, where there is one, to a script. A link stays and its target is replaced; a file keeps its mode. */
static enum ht_status draw(const char *of, const char *script, const json_t *report, const struct ht_trace *t,
                           const char *path, struct ht_error *err)
{
    FILE *result = NULL, *trace = NULL;
    char of_result[64], of_trace[64];
    struct ht_target out;
    enum ht_status status = ht_target_find(path, err, &out);
    if (status == HT_OK) status = open_memory(&result, of_result, err);
    if (status == HT_OK) status = write_report(report, result, err);
    if (status == HT_OK && t) status = open_memory(&trace, of_trace, err);
    if (trace) status = write_trace(t, trace, err);
    const char *args[] = {"--out", out.path, of_result, trace ? of_trace : NULL, NULL};
    if (status == HT_OK) status = ht_python_run(of, script, args, err);
    if (status == HT_OK && out.exists) (void)!chmod(out.path, out.st.st_mode & 07777);
    if (result) fclose(result);
    if (trace) fclose(trace);
    return status;
}

static enum ht_status draw_result(const char *of, const char *script, const struct ht_result *r, const char *path,
                                  struct ht_error *err)
{
    if (!path) return HT_OK;
    json_t *root = ht_result_json(r);
    enum ht_status status = draw(of, script, root, r->trace, path, err);
    json_decref(root);
    return status;
}

enum ht_status ht_draw_plan(const struct ht_result *r, const char *path, struct ht_error *err)
{
    return draw_result("--draw", "groups.py", r, path, err);
}

/* ---- reports ---------------------------------------------------------------------------------------------------- */

enum ht_status ht_plot_check(const char *path, struct ht_error *err)
{
    struct ht_target out;
    const char *args[] = {"--check", "--out", out.path, NULL};
    if (!path) return HT_OK;
    enum ht_status status = ht_target_find(path, err, &out);
    return status == HT_OK ? ht_python_run("--plot", "plot.py", args, err) : status;
}

enum ht_status ht_plot(const json_t *report, const struct ht_trace *trace, const char *path, struct ht_error *err)
{
    return path ? draw("--plot", "plot.py", report, trace, path, err) : HT_OK;
}

enum ht_status ht_plot_result(const struct ht_result *r, const char *path, struct ht_error *err)
{
    return draw_result("--plot", "plot.py", r, path, err);
}
