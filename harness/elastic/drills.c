#include "harness/elastic/drills.h"

#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/base/interrupt.h"
#include "common/base/rng.h"
#include "common/model/zoo.h"
#include "common/store/catalog.h"
#include "harness/elastic/cell.h"
#include "harness/elastic/child.h"
#include "harness/elastic/command.h"
#include "harness/elastic/damage.h"
#include "harness/elastic/fault.h"
#include "harness/elastic/incarnation.h"
#include "harness/elastic/left.h"
#include "harness/elastic/recovery.h"
#include "harness/result/schema.h"
#include "harness/run/progress.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_FAULTS = 8, LIMIT_S = 600, GRACE_MS = 10000, PATH = 4096 };

struct drill {
    const struct ht_options *o;
    unsigned own;
    uint64_t seed;
    char dir[PATH - 256];
    struct ht_fault faults[MOST_FAULTS];
    int32_t n_faults;
    bool sealed;        /* in a cell */
    char disk[PATH];    /* where a small one is mounted; "": nowhere */
    json_t *state;      /* the supervisor's, at the end */
    json_t *recoveries; /* of all drills; borrowed */
    bool all_lost;
    int64_t index, failed;    /* drills before this one, and how many of them failed */
    struct ht_progress *line; /* NULL: none; borrowed */
};

/* ---- processes ---- */

/* Waits for a process, and for others that its death has left to this one. Returns true once it has ended. */
static bool has_ended(pid_t pid, int *waited)
{
    int how;
    for (pid_t it; (it = waitpid(-1, &how, WNOHANG)) > 0;) {
        if (it != pid) continue;
        *waited = how;
        return true;
    }
    return false;
}

static void show(const struct drill *d)
{
    if (d->line)
        ht_progress_show(d->line, "%lld of %lld done, %lld failed; drill %llu", (long long)d->index,
                         (long long)d->o->elastic.drills, (long long)d->failed, (unsigned long long)d->seed);
}

/* Runs a command to its end. Returns waitpid's status, or -1 when it takes too long or is interrupted: then it is killed. */
static int run_words(const struct drill *d, char *const *words, const char *out)
{
    const struct timespec nap = {.tv_nsec = 10000000};
    char path[PATH], tmp[PATH];
    double begin = ht_now_s();
    int waited = -1;
    snprintf(tmp, sizeof(tmp), "%s/tmp", d->dir);
    snprintf(path, sizeof(path), "%s/%s", d->dir, out);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0) return -1;
    pid_t pid = ht_child_start(words, fd, "TMPDIR", tmp);
    close(fd);
    if (pid < 0) return -1;
    while (!has_ended(pid, &waited)) {
        nanosleep(&nap, NULL);
        show(d);
        if (ht_now_s() - begin < LIMIT_S && !ht_interrupted()) continue;
        kill(pid, SIGKILL);
        waitpid(pid, &waited, 0);
        return -1;
    }
    return waited;
}

/* ---- the training with faults ---- */

static const char *const replaced[] = {"store", "store-memory", "store-remote", "store-remote-rate", "losses", "trace",
                                       NULL};

static void add_path(struct ht_args *w, const struct drill *d, const char *name, const char *file)
{
    char path[PATH];
    snprintf(path, sizeof(path), "%s/%s", d->dir, file);
    ht_args_add_option(w, name, path);
}

static void add_number(struct ht_args *w, const char *name, int64_t value)
{
    char number[24];
    snprintf(number, sizeof(number), "%lld", (long long)value);
    ht_args_add_option(w, name, number);
}

/* Writes the supervisor's command. Half of the drills have stores in memory as well, a third a slow remote one. */
static void supervise(const struct drill *d, struct ht_args *w)
{
    const struct ht_elastic_options *e = &d->o->elastic;
    char text[HT_FAULT_TEXT];
    ht_command_begin(w, "elastic", d->o, d->own, replaced);
    add_path(w, d, "store", "store");
    add_path(w, d, "state", "state");
    if (ht_random_below(d->seed, 1000, 2)) add_path(w, d, "store-memory", "memory");
    if (ht_random_below(d->seed, 1001, 3) == 0) {
        add_path(w, d, "store-remote", "remote");
        ht_args_add_option(w, "store-remote-rate", "4MB/s");
    }
    add_path(w, d, "losses", "losses.csv");
    add_number(w, "replicas", d->o->state.replicas);
    add_number(w, "least", e->least);
    add_number(w, "wait", e->wait_s);
    add_number(w, "quiet", 0);
    add_number(w, "rejoin", LIMIT_S);
    add_number(w, "restarts", e->restarts + MOST_FAULTS);
    add_number(w, "hang-after", e->hang_s);
    for (int32_t i = 0; i < d->n_faults; i++) {
        ht_fault_print(&d->faults[i], text);
        ht_args_add_option(w, "inject", text);
    }
    ht_args_add_option(w, "json", NULL);
    ht_args_end(w);
}

/* Runs the supervisor, and starts it again when it was killed. Returns waitpid's status of the last one. */
static int run_supervisor(const struct drill *d)
{
    struct ht_args w = {0};
    int waited = -1, kills = 0;
    supervise(d, &w);
    for (int32_t i = 0; i < d->n_faults; i++) kills += d->faults[i].kind == HT_FAULT_SUPERVISOR;
    do waited = run_words(d, w.words, "elastic.txt");
    while (waited != -1 && WIFSIGNALED(waited) && WTERMSIG(waited) == SIGKILL && kills-- > 0);
    ht_args_free(&w);
    return waited;
}

/* ---- the training without ---- */

/* Returns the row of a run by its number; NULL: none. */
static const json_t *find_run(const json_t *runs, const char *run)
{
    for (size_t i = 0; run && i < json_array_size(runs); i++) {
        const char *it = json_string_value(json_object_get(json_array_get(runs, i), "run"));
        if (it && !strcmp(it, run)) return json_array_get(runs, i);
    }
    return NULL;
}

static enum ht_status train_part(const struct drill *d, const char *nodes, int64_t steps, struct ht_error *err)
{
    struct ht_args w = {0};
    static const char *const also[] = {"store",  "store-memory", "store-remote", "store-remote-rate",
                                       "losses", "trace",        "steps",        NULL};
    ht_command_begin(&w, "train", d->o, d->own, also);
    add_path(&w, d, "store", "plain");
    add_path(&w, d, "losses", "plain.csv");
    ht_args_add_option(&w, "only-nodes", nodes);
    ht_args_add_option(&w, "resume", NULL);
    add_number(&w, "steps", steps);
    ht_args_end(&w);
    int waited = run_words(d, w.words, "plain.txt");
    ht_args_free(&w);
    if (waited != -1 && WIFEXITED(waited) && WEXITSTATUS(waited) == 0) return HT_OK;
    return ht_fail(err, HT_FAILED, "the training without faults fails at step %lld: %s/plain.txt", (long long)steps,
                   d->dir);
}

/* Trains what led to a run's step: first what led to the state that it began with. */
static enum ht_status train_lineage(const struct drill *d, const json_t *runs, const json_t *row, int64_t steps,
                                    struct ht_error *err)
{
    int64_t from = (int64_t)json_integer_value(json_object_get(row, "from"));
    const json_t *before = find_run(runs, json_string_value(json_object_get(row, "from_run")));
    enum ht_status status = HT_OK;
    if (from > 0 && !before)
        return ht_fail(err, HT_FAILED, "step %lld was loaded from a run that is not known", (long long)from);
    if (from > 0) status = train_lineage(d, runs, before, from, err);
    if (status != HT_OK || from == steps) return status;
    return train_part(d, json_string_value(json_object_get(row, "nodes")), steps, err);
}

/* Compares two files. */
static bool same(const char *a, const char *b)
{
    FILE *f = fopen(a, "re"), *g = fopen(b, "re");
    bool equal = f && g;
    for (int c = 0; equal && c != EOF;) c = fgetc(f), equal = c == fgetc(g);
    if (f) fclose(f);
    if (g) fclose(g);
    return equal;
}

/* ---- checks ---- */

static bool damages_stores(const struct drill *d)
{
    for (int32_t i = 0; i < d->n_faults; i++)
        if (d->faults[i].kind == HT_FAULT_NODE || d->faults[i].kind == HT_FAULT_CORRUPT) return true;
    return false;
}

static enum ht_status check_steps(const struct drill *d, const json_t *runs, struct ht_error *err)
{
    for (size_t i = 0; !damages_stores(d) && i < json_array_size(runs); i++) {
        const json_t *row = json_array_get(runs, i), *from = json_object_get(row, "from");
        int64_t saved = (int64_t)json_integer_value(json_object_get(row, "saved"));
        if (from && json_integer_value(from) < saved)
            return ht_fail(err, HT_FAILED, "incarnation %zu goes on from step %lld; %lld was whole", i + 1,
                           (long long)json_integer_value(from), (long long)saved);
    }
    return HT_OK;
}

static enum ht_status check_losses(const struct drill *d, const json_t *runs, struct ht_error *err)
{
    char a[PATH], b[PATH];
    const json_t *last = NULL;
    for (size_t i = 0; i < json_array_size(runs); i++)
        if (json_object_get(json_array_get(runs, i), "run")) last = json_array_get(runs, i);
    enum ht_status status = last ? train_lineage(d, runs, last, d->o->training.steps, err)
                                 : ht_fail(err, HT_FAILED, "no incarnation has trained");
    snprintf(a, sizeof(a), "%s/losses.csv", d->dir);
    snprintf(b, sizeof(b), "%s/plain.csv", d->dir);
    if (status == HT_OK && !same(a, b)) status = ht_fail(err, HT_FAILED, "losses differ: %s, %s", a, b);
    return status;
}

enum ht_status ht_drill_check_losses(const struct ht_options *options, unsigned own_group, const char *dir,
                                     const json_t *runs, struct ht_error *err)
{
    struct drill d = {.o = options, .own = own_group};
    snprintf(d.dir, sizeof(d.dir), "%.3800s", dir);
    return check_losses(&d, runs, err);
}

/* Returns the nodes of the last incarnation; NULL: not known. */
static const char *last_nodes(const struct drill *d)
{
    const json_t *runs = json_object_get(d->state, "runs");
    size_t n = json_array_size(runs);
    return n ? json_string_value(json_object_get(json_array_get(runs, n - 1), "nodes")) : NULL;
}

static enum ht_status check_left(const struct drill *d, const char *nodes, struct ht_error *err)
{
    return ht_left_check(d->dir, nodes, d->disk[0] ? d->disk : NULL, d->sealed, GRACE_MS, err);
}

static void quiet(void *ctx, const char *line)
{
    (void)ctx, (void)line;
}

/* Returns true if a step was safe: without one a training begins anew. */
static bool had_one(const struct drill *d)
{
    return json_integer_value(json_object_get(d->state, "safe")) > 0;
}

/* Returns true if the stores really have no whole step. */
static bool has_lost_all(const struct drill *d)
{
    static const char *const trees[] = {"store", "memory", "remote"};
    const struct ht_catalog_log silent = {.say = quiet};
    struct ht_catalog c = {0};
    struct ht_error ignored;
    struct ht_model m;
    char path[PATH];
    int64_t n;
    bool any = false;
    for (size_t i = 0; i < HT_COUNT(trees); i++) {
        snprintf(path, sizeof(path), "%s/%s", d->dir, trees[i]);
        ht_catalog_add_tree(&c, path, silent);
    }
    struct ht_version *versions = ht_catalog_versions(&c, &n);
    for (int64_t i = 0; i < n && !any; i++) {
        const struct ht_stored_manifest *manifest = ht_catalog_manifest(&c, versions[i]);
        ht_catalog_verify(&c, versions[i], silent);
        any = ht_store_model(manifest->text, "", &ignored, &m) == HT_OK &&
              ht_catalog_covers(&c, versions[i], &m, &ignored) == HT_OK;
    }
    free(versions);
    ht_catalog_free(&c);
    return !any;
}

static enum ht_status read_state(struct drill *d, struct ht_error *err)
{
    char path[PATH];
    snprintf(path, sizeof(path), "%s/state/state.json", d->dir);
    d->state = json_load_file(path, 0, NULL);
    return d->state ? HT_OK : ht_fail(err, HT_FAILED, "%s: cannot be read", path);
}

static enum ht_status check(struct drill *d, int waited, struct ht_error *err)
{
    enum ht_status read = read_state(d, err), status = check_left(d, last_nodes(d), err);
    if (waited == -1) return ht_fail(err, HT_FAILED, "it has not ended within %d s", LIMIT_S);
    if (status != HT_OK || read != HT_OK) return status != HT_OK ? status : read;
    d->all_lost =
        WIFEXITED(waited) && WEXITSTATUS(waited) == HT_BAD_INPUT && damages_stores(d) && had_one(d) && has_lost_all(d);
    if (d->all_lost) return HT_OK;
    if (!WIFEXITED(waited) || WEXITSTATUS(waited))
        return ht_fail(err, HT_FAILED, "it ends with status %d: %s/elastic.txt",
                       WIFEXITED(waited) ? WEXITSTATUS(waited) : -1, d->dir);
    const json_t *runs = json_object_get(d->state, "runs");
    status = check_steps(d, runs, err);
    if (status == HT_OK) status = check_losses(d, runs, err);
    return status == HT_OK ? check_left(d, NULL, err) : status;
}

/* ---- one, all ---- */

static enum ht_status make_folders(const struct drill *d, struct ht_error *err)
{
    char path[PATH];
    snprintf(path, sizeof(path), "%s/tmp", d->dir);
    if ((mkdir(d->o->state.store, 0777) && errno != EEXIST) || mkdir(d->dir, 0777) || mkdir(path, 0777))
        return ht_fail(err, HT_BAD_INPUT, "--store: %s: cannot be made: %s", d->dir, strerror(errno));
    return HT_OK;
}

/* Puts the stores on a small disk of their own if it is to be full: it has room for some steps more than are kept. */
static enum ht_status mount_disk(struct drill *d, struct ht_error *err)
{
    enum { STEPS = 16, LEAST_BYTES = 1 << 26 };
    struct ht_model m;
    char path[PATH], size[48];
    bool full = false;
    for (int32_t i = 0; i < d->n_faults; i++) full |= d->faults[i].kind == HT_FAULT_FULL;
    if (!full || !d->sealed || !d->o->request.model) return HT_OK;
    enum ht_status status = ht_model_load(d->o->request.model, err, &m);
    if (status != HT_OK) return status;
    int64_t step_bytes = ht_model_params(&m) * (int64_t)(3 * sizeof(float)) * (1 + d->o->state.replicas);
    snprintf(path, sizeof(path), "%s/store", d->dir);
    snprintf(size, sizeof(size), "size=%lld", (long long)(STEPS * step_bytes + LEAST_BYTES));
    if (mkdir(path, 0777) || !realpath(path, d->disk) || mount("drill", path, "tmpfs", MS_NOSUID | MS_NODEV, size))
        return ht_fail(err, HT_FAILED, "%s: cannot be mounted: %s", path, strerror(errno));
    return HT_OK;
}

/* Says how a drill went. */
static void say(const struct drill *d, double seconds, enum ht_status status, const struct ht_error *why)
{
    char faults[MOST_FAULTS * HT_FAULT_TEXT] = "", text[HT_FAULT_TEXT];
    for (int32_t i = 0; i < d->n_faults; i++) {
        size_t at = strlen(faults);
        ht_fault_print(&d->faults[i], text);
        snprintf(faults + at, sizeof(faults) - at, "%s%s", at ? " " : "", text);
    }
    size_t n = json_array_size(json_object_get(d->state, "runs"));
    const char *how = status != HT_OK ? "FAILED" : d->all_lost ? "all lost" : "ok";
    if (d->o->json) {
        json_t *row =
            json_pack("{s:I,s:s,s:s,s:s,s:I,s:f}", "seed", (json_int_t)d->seed, "faults", faults, "result", how,
                      "error", status == HT_OK ? "" : why->text, "incarnations", (json_int_t)n, "seconds", seconds);
        json_t *recoveries = json_object_get(d->state, "recoveries");
        if (recoveries) json_object_set(row, "recoveries", recoveries);
        row = ht_schema_put(row, "drill");
        json_dumpf(row, stdout, JSON_SORT_KEYS);
        putchar('\n');
        json_decref(row);
    } else {
        printf("drill %llu: %s: %s, %zu incarnations, %.1f s%s%s\n", (unsigned long long)d->seed, faults, how, n,
               seconds, status == HT_OK ? "" : ": ", status == HT_OK ? "" : why->text);
    }
    fflush(stdout);
}

static enum ht_status run_drill(struct drill *d, struct ht_error *err)
{
    double begin = ht_now_s();
    int64_t every = d->o->state.every ? d->o->state.every : 100;
    d->n_faults = ht_faults_draw(d->seed, d->o->training.steps, every, d->faults, MOST_FAULTS);
    snprintf(d->dir, sizeof(d->dir), "%.3000s/drill-%llu", d->o->state.store, (unsigned long long)d->seed);
    enum ht_status status = make_folders(d, err);
    if (status == HT_OK) status = mount_disk(d, err);
    if (status != HT_OK) return status;
    status = check(d, run_supervisor(d), err);
    ht_progress_end(d->line);
    if (ht_interrupted()) status = ht_fail(err, HT_INTERRUPTED, "interrupted");
    say(d, ht_now_s() - begin, status, err);
    json_t *recoveries = json_object_get(d->state, "recoveries");
    if (json_is_array(recoveries)) json_array_extend(d->recoveries, recoveries);
    if (d->disk[0] && umount(d->disk) != 0 && status == HT_OK)
        status = ht_fail(err, HT_FAILED, "%s: cannot be unmounted: %s", d->disk, strerror(errno));
    if (status == HT_OK) ht_damage_remove(d->dir);
    json_decref(d->state);
    return status;
}

struct all {
    const struct ht_options *options;
    unsigned own;
};

static enum ht_status run_all(void *ctx, bool sealed, struct ht_error *err)
{
    const struct all *all = ctx;
    const struct ht_options *options = all->options;
    json_t *recoveries = json_array();
    int64_t failed = 0, lost = 0, n = 0;
    struct ht_error first = {0};
    struct ht_progress line = ht_progress_begin("drills");
    for (; n < options->elastic.drills && !ht_interrupted(); n++) {
        struct ht_error why = {0};
        struct drill d = {.o = options,
                          .own = all->own,
                          .seed = (uint64_t)(options->elastic.seed + n),
                          .sealed = sealed,
                          .recoveries = recoveries,
                          .index = n,
                          .failed = failed,
                          .line = &line};
        enum ht_status status = run_drill(&d, &why);
        if (status != HT_OK && !failed++)
            first.status = ht_fail(&first, status, "drill %llu: %.900s", (unsigned long long)d.seed, why.text);
        lost += d.all_lost;
    }
    if (!options->json) {
        printf("%lld drills, %lld failed, %lld lost all copies of their state; %zu recoveries%s\n", (long long)n,
               (long long)failed, (long long)lost, json_array_size(recoveries),
               sealed ? "" : "; /dev/shm was not looked at, as no namespaces can be made here");
        if (json_array_size(recoveries)) ht_recoveries_print_parts(recoveries, stdout);
    }
    json_decref(recoveries);
    rmdir(options->state.store); /* if it is empty */
    return failed ? ht_fail(err, first.status, "%s", first.text) : HT_OK;
}

enum ht_status ht_drills_run(const struct ht_options *options, unsigned own_group, struct ht_error *err)
{
    struct all all = {options, own_group};
    return ht_cell_run(run_all, &all, err);
}
