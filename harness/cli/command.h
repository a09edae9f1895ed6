/*
 * The command line: one table of options, of which each command takes groups.
 *
 * argp does the parsing. Its two lines about a wrong option become one here, with the nearest known option. The help has
 * the options in the table's order, which is that of their use, fitted to the terminal. Values are read by common/base/units.h, so "40" for a size or "3e9" for a count is refused the
 * same way as in a file.
 */
#ifndef HT_HARNESS_CLI_COMMAND_H
#define HT_HARNESS_CLI_COMMAND_H

#include "harness/run/options.h"

/* Groups of options that a command takes; each is a heading of its help. */
enum ht_option_group {
    HT_OPT_SCENARIO = 1,
    HT_OPT_MODEL = 2, /* --model: compare has --models instead */
    HT_OPT_LOAD = 4,
    HT_OPT_DUMP = 8,
    HT_OPT_SIM = 16,
    HT_OPT_TRACE = 32,
    HT_OPT_REPLAY = 64,
    HT_OPT_COMPARE = 128,
    HT_OPT_TRAIN = 256,
    HT_OPT_PROFILE = 512,
    HT_OPT_REPRODUCE = 1024,
    HT_OPT_EXPERIMENT = 2048,
    HT_OPT_REPORT = 4096,
    HT_OPT_MAXSIZE = 16384,
    HT_OPT_ADVISE = 32768,
    HT_OPT_RESHARD = 65536,
    HT_OPT_CHECK = 131072, /* of stores' files */
    HT_OPT_PARTS = 262144, /* of a cluster: --gpus and the others */
    HT_OPT_DRAW = 524288,  /* a picture of the plan */
    HT_OPT_WHY = 1048576,  /* footnotes */
    HT_OPT_ALL = 2097152,  /* what is folded or left out otherwise */
    HT_OPT_ELASTIC = 4194304,
    HT_OPT_DAY = 8388608,     /* of spot instances */
    HT_OPT_LAUNCH = 16777216, /* the hosts of a training */
    HT_OPT_PLOT = 33554432,   /* a picture of the report */
    HT_OPT_SPOT = 67108864,   /* of spot traces that happen to processes */
    HT_OPT_VARY = 134217728,  /* other durations */
    HT_OPT_SHAPE = 8192,      /* the scenario without its cluster: profile has only this of it */
};

#define HT_OPT_ANY (~0u) /* group of an option that every command takes */

struct ht_command {
    const char *name;
    const char *args;    /* "SYSTEM" */
    const char *help;    /* one line; after a \v more, which --help prints below the options */
    const char *example; /* "hetbench sim .." */
    bool whole_lines;    /* prints a file: lines are not broken to fit the terminal */
    unsigned groups;     /* mask of enum ht_option_group; --json and --help are always there */
    int min_words, max_words;
    enum ht_status (*run)(const struct ht_options *options, struct ht_error *err);
};

struct ht_option {
    const char *name, *arg, *help; /* without "--"; arg NULL: it takes no value */
    unsigned groups;
};

/* Takes the command's next option, in the table's order; *at is 0 before the first. Returns false behind the last. */
bool ht_option_next(const struct ht_command *command, size_t *at, struct ht_option *out);

/* Reads argv[2..] for a command. Returns HT_BAD_INPUT with one line. With options->help the help has been printed. */
enum ht_status ht_options_parse(const struct ht_command *command, int argc, char **argv, struct ht_error *err,
                                struct ht_options *out);

#endif
