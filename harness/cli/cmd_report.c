/* hetbench report: figures and one self-contained page from the results of experiments. A Python script draws them
   (harness/report/report.py, matplotlib). This file finds interpreter and script, and passes their last message on. */
#include "harness/cli/commands.h"

#include "common/base/interrupt.h"
#include "harness/result/result.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { PATH_BYTES = 4096, SAID_BYTES = 900 };

/* Finds the script in the tree that this was built from. */
static enum ht_status find_script(char *path, size_t n, struct ht_error *err)
{
    snprintf(path, n, "%s", HT_SOURCE_DIR "/harness/report/report.py");
    if (access(path, R_OK) == 0) return HT_OK;
    return ht_fail(err, HT_INFEASIBLE, "%s: missing; report needs the tree that hetbench was built from", path);
}

/* Returns the interpreter: Debian's own is the one that has Debian's matplotlib. */
static const char *interpreter(void)
{
    static const char debian[] = "/usr/bin/python3";
    return access(debian, X_OK) == 0 ? debian : "python3";
}

/* Runs the script and keeps the last line that it wrote to standard error. */
static enum ht_status run_python(char *const argv[], struct ht_error *err, int *code, char *said, size_t n)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return ht_fail(err, HT_FAILED, "report: no pipe: %s", strerror(errno));
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
    while (in && !failed && fgets(line, sizeof(line), in)) {
        line[strcspn(line, "\n")] = '\0';
        if (line[0]) snprintf(said, n, "%s", line);
    }
    if (in)
        fclose(in);
    else
        close(ends[0]);
    if (failed)
        return ht_fail(err, HT_INFEASIBLE, "report draws with Python: %s cannot be started: %s", argv[0],
                       strerror(failed));
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    *code = WIFEXITED(status) ? WEXITSTATUS(status) : HT_FAILED;
    return HT_OK;
}

static enum ht_status run(const struct ht_options *options, struct ht_error *err)
{
    char script[PATH_BYTES], said[SAID_BYTES] = "";
    int code = 0;
    enum ht_status status = find_script(script, sizeof(script), err);
    if (status != HT_OK) return status;
    const char *dir = options->words[0], *out = options->out ? options->out : dir;
    const char *argv[8] = {interpreter(), script, "--out", out};
    int n = 4;
    if (options->json) argv[n++] = "--json";
    argv[n++] = "--";
    argv[n++] = dir;
    status = run_python((char *const *)argv, err, &code, said, sizeof(said));
    if (status != HT_OK) return status;
    if (ht_interrupted()) return ht_fail(err, HT_INTERRUPTED, "interrupted; no page was written");
    if (code == 0) return HT_OK;
    bool known = code == HT_BAD_INPUT || code == HT_INFEASIBLE;
    return ht_fail(err, known ? (enum ht_status)code : HT_FAILED, "%s", said[0] ? said : "report: Python failed");
}

const struct ht_command ht_cmd_report = {
    .name = "report",
    .args = "DIR",
    .help = "draw what experiments left in DIR: figures and one HTML page\v"
            "DIR holds results.json or results.csv of hetbench experiment, compare.json of hetbench compare --out, or "
            "folders "
            "with one each. Writes report.html, which "
            "needs nothing beside it, and the figures as PNG in figures/.",
    .example = "hetbench report results/autohete-fig3a",
    .groups = HT_OPT_REPORT,
    .min_words = 1,
    .max_words = 1,
    .run = run,
};
