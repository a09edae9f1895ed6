#include "harness/cli/files.h"

#include "common/base/array.h"
#include "common/base/builtin.h"
#include "harness/run/output.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum use {
    READS,
    READS_PROFILES, /* HT_MAX_PROFILES values */
    READS_TRACES,   /* up to MAX_TRACES of a list, "INSTANCE=FILE,FILE" */
    READS_PATH,     /* when the value is a path; else it is a built-in name */
    READS_MODEL,    /* whole, before anything is written */
    WRITES,         /* by ht_output_open */
    WRITES_FOLDER,  /* into the folder that the value names, which is made later */
    WRITES_PICTURE, /* by a script, which replaces a plain file */
    WRITES_LATER,   /* by code with a check of its own */
    WRITES_MODEL,   /* the same; a model may be trained in place */
};

enum { MAX_TRACES = 16 };

#define ANY_COMMAND (~0u)
#define AT(field)   offsetof(struct ht_options, field)

static const struct row {
    const char *option;
    size_t offset;   /* of its value */
    unsigned groups; /* of the command: --out differs between them */
    enum use use;
    const char *inside; /* a file in the folder that the value names; NULL: the value is the file */
} rows[] = {
    {"--model", AT(request.model), ANY_COMMAND, READS_PATH, NULL},
    {"--cluster", AT(request.cluster), ANY_COMMAND, READS_PATH, NULL},
    {"--profile", AT(plan.profiles), ANY_COMMAND, READS_PROFILES, NULL},
    {"--load", AT(plan.load), ANY_COMMAND, READS, NULL},
    {"--replay", AT(sim.replay), ANY_COMMAND, READS, NULL},
    {"--ledger", AT(compare.ledger), ANY_COMMAND, READS, NULL},
    {"--data", AT(training.data), ANY_COMMAND, READS, NULL},
    {"--times", AT(day.times), ANY_COMMAND, READS, NULL},
    {"--trace", AT(day.trace), HT_OPT_DAY | HT_OPT_SPOT, READS_TRACES, NULL},
    {"--hosts", AT(elastic.hosts), ANY_COMMAND, READS, NULL},
    {"--notice", AT(elastic.notice), ANY_COMMAND, READS, NULL},
    {"--hostfile", AT(launch.hostfile), ANY_COMMAND, READS, NULL},
    {"--init", AT(state.init), ANY_COMMAND, READS_MODEL, NULL},
    {"--init", AT(state.init), ANY_COMMAND, READS_MODEL, "config.json"},
    {"--init", AT(state.init), ANY_COMMAND, READS_MODEL, "model.safetensors"},
    {"--init", AT(state.init), ANY_COMMAND, READS_MODEL, "model.safetensors.index.json"},
    {"the experiment", AT(words[0]), HT_OPT_EXPERIMENT, READS_PATH, NULL},
    {"--dump", AT(plan.dump), ANY_COMMAND, WRITES, NULL},
    {"--losses", AT(training.losses), ANY_COMMAND, WRITES, NULL},
    {"--trace", AT(trace), ANY_COMMAND, WRITES, NULL},
    {"--out", AT(out), HT_OPT_PROFILE | HT_OPT_REPRODUCE | HT_OPT_DAY | HT_OPT_SPOT, WRITES, NULL},
    {"--draw", AT(draw), ANY_COMMAND, WRITES_PICTURE, NULL},
    {"--plot", AT(plot), ANY_COMMAND, WRITES_PICTURE, NULL},
    {"--write-trace", AT(day.write), HT_OPT_DAY, WRITES, NULL},
    {"--out", AT(out), HT_OPT_COMPARE, WRITES_FOLDER, "compare.json"},
    {"--out", AT(out), HT_OPT_COMPARE, WRITES_FOLDER, "compare.csv"},
    {"--out", AT(out), HT_OPT_MAXSIZE, WRITES_FOLDER, "maxsize.json"},
    {"--out", AT(out), HT_OPT_MAXSIZE, WRITES_FOLDER, "maxsize.csv"},
    {"--out", AT(out), HT_OPT_EXPERIMENT, WRITES_FOLDER, "results.json"},
    {"--out", AT(out), HT_OPT_EXPERIMENT, WRITES_FOLDER, "results.csv"},
    {"--save", AT(state.save), ANY_COMMAND, WRITES_MODEL, NULL},
    {"--save", AT(state.save), ANY_COMMAND, WRITES_MODEL, "config.json"},
    {"--save", AT(state.save), ANY_COMMAND, WRITES_MODEL, "model.safetensors"},
    {"--save", AT(state.save), ANY_COMMAND, WRITES_MODEL, "model.safetensors.index.json"},
    {"--checkpoint", AT(state.checkpoint), ANY_COMMAND, WRITES_LATER, NULL},
    {"--store", AT(state.store), ANY_COMMAND, WRITES_LATER, NULL},
    {"--store-memory", AT(state.store_memory), ANY_COMMAND, WRITES_LATER, NULL},
    {"--events", AT(training.events), ANY_COMMAND, WRITES_LATER, NULL},
    {"--store-remote", AT(state.store_remote), ANY_COMMAND, WRITES_LATER, NULL},
};

static bool writes(const struct row *row)
{
    return row->use >= WRITES;
}

/* A file that an option names: an existing one, or its future folder. */
struct file {
    const struct row *row;
    char path[HT_PATH_BYTES]; /* as the user named it */
    struct ht_target target;
    struct stat folder; /* where it does not exist */
};

static bool is_null(const struct file *f)
{
    return f->target.exists && S_ISCHR(f->target.st.st_mode) && f->target.st.st_rdev == makedev(1, 3);
}

static bool same_inode(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

static const char *name_of(const struct file *f)
{
    const char *slash = strrchr(f->target.path, '/');
    return slash ? slash + 1 : f->target.path;
}

static bool same(const struct file *a, const struct file *b)
{
    if (a->target.exists != b->target.exists) return false;
    if (a->target.exists) return !is_null(a) && same_inode(&a->target.st, &b->target.st);
    return same_inode(&a->folder, &b->folder) && !strcmp(name_of(a), name_of(b));
}

/* Returns the stream that would write into the option's file, too: standard output or standard error. NULL: neither. */
static const char *stream_of(const struct file *f, bool json)
{
    static const char *const names[] = {[STDOUT_FILENO] = "standard output", [STDERR_FILENO] = "standard error"};
    if (!f->target.exists || is_null(f)) return NULL;
    for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++) {
        struct stat st;
        if (fstat(fd, &st) != 0 || !same_inode(&st, &f->target.st)) continue;
        if (S_ISREG(st.st_mode) && !f->target.descriptor) return names[fd]; /* it would be replaced */
        if (json && fd == STDOUT_FILENO) return "standard output, where --json writes";
    }
    return NULL;
}

/* Finds the file that an option's value names. Returns false if it is not a file and cannot become one. */
static bool find(const struct row *row, const char *value, struct file *out)
{
    char folder[HT_PATH_BYTES];
    struct ht_error ignored;
    if (row->use == READS_PATH && !ht_is_path(value)) return false;
    out->row = row;
    int n =
        snprintf(out->path, sizeof(out->path), "%s%s%s", value, row->inside ? "/" : "", row->inside ? row->inside : "");
    if (n >= (int)sizeof(out->path) || ht_target_find(out->path, &ignored, &out->target) != HT_OK) return false;
    if (out->target.exists) return true;
    n = snprintf(folder, sizeof(folder), "%.*s.", (int)(name_of(out) - out->target.path), out->target.path);
    return writes(row) && n < (int)sizeof(folder) && stat(folder, &out->folder) == 0;
}

/* Finds the files of a list of traces. Returns their number. */
static size_t find_traces(const struct row *row, const char *list, struct file out[MAX_TRACES])
{
    char *words = ht_strdup(list), *rest = words;
    size_t n = 0;
    for (char *word; n < MAX_TRACES && (word = strsep(&rest, ","));) {
        char *equals = strchr(word, '=');
        n += find(row, equals ? equals + 1 : word, &out[n]);
    }
    free(words);
    return n;
}

/* Checks two options, of which the first writes. */
static enum ht_status check_pair(const struct file *output, const struct file *other, struct ht_error *err)
{
    if (!same(output, other)) return HT_OK;
    if (output->row->use == WRITES_MODEL && other->row->use == READS_MODEL) return HT_OK;
    return ht_fail(err, HT_BAD_INPUT, "%s: %s is what %s %s; expected a file of its own", output->row->option,
                   output->path, other->row->option, writes(other->row) ? "writes, too" : "reads");
}

static enum ht_status check_outputs(const struct file *files, size_t n, const struct ht_options *o,
                                    struct ht_error *err)
{
    enum ht_status status = HT_OK;
    for (size_t i = 0; i < n && status == HT_OK; i++) {
        if (!writes(files[i].row)) continue;
        const char *stream = stream_of(&files[i], o->json);
        if (stream)
            status = ht_fail(err, HT_BAD_INPUT, "%s: %s is %s; expected a file of its own", files[i].row->option,
                             files[i].path, stream);
        for (size_t k = 0; k < i && status == HT_OK; k++) status = check_pair(&files[i], &files[k], err);
    }
    return status;
}

enum ht_status ht_files_check(const struct ht_command *command, const struct ht_options *options, struct ht_error *err)
{
    struct file *files = HT_NEW_ARRAY(struct file, HT_COUNT(rows) + HT_MAX_PROFILES + MAX_TRACES);
    enum ht_status status = HT_OK;
    size_t n = 0;
    for (size_t i = 0; i < HT_COUNT(rows) && status == HT_OK; i++) {
        const struct row *row = &rows[i];
        const char *const *values = (const void *)((const char *)options + row->offset);
        for (int k = 0; k < (row->use == READS_PROFILES ? HT_MAX_PROFILES : 1); k++) {
            if (!values[k] || !(row->groups & command->groups)) continue;
            if (row->use == WRITES) status = ht_output_check(values[k], err);
            if (row->use == WRITES_PICTURE) status = ht_output_check_plain(values[k], err);
            if (row->use == WRITES_FOLDER) status = ht_directory_check(values[k], err);
            n += row->use == READS_TRACES ? find_traces(row, values[k], &files[n]) : find(row, values[k], &files[n]);
        }
    }
    if (status == HT_OK) status = check_outputs(files, n, options, err);
    free(files);
    return status;
}
