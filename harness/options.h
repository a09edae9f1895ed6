/*
 * The command line: one table of options, and what each command takes of it.
 *
 * argp does the parsing and the help; what it would say about a wrong option in two lines is said in one here, with the
 * nearest known option. Values are read by common/base/units.h, so "40" for a size or "3e9" for a count is refused the
 * same way as in a file.
 */
#ifndef HT_HARNESS_OPTIONS_H
#define HT_HARNESS_OPTIONS_H

#include "common/plan/scenario.h"

#include <stdbool.h>
#include <stdint.h>

enum { HT_MAX_WORDS = 2, HT_MAX_SET = 16, HT_MAX_PROFILES = 16, HT_MAX_FAULTS = 256 };

struct ht_cuda_api; /* common/backend/cuda_api.h */

struct ht_options {
    const char *words[HT_MAX_WORDS]; /* what is no option: a system, a kind of list */
    int64_t n_words;
    bool json, help;

    /* scenario */
    struct ht_scenario_request request;
    const char *set[HT_MAX_SET]; /* "c=3" */
    int64_t n_set;
    const char *profiles[HT_MAX_PROFILES]; /* joined */
    int64_t n_profiles;
    const char *load; /* graph file that stands for system and scenario */
    const char *dump;

    /* simulation */
    int64_t iterations, warmup;
    int64_t issue_ahead; /* -1: 2 on accelerators, 0 on emulated devices */
    int64_t jitter_percent, seed;
    const char *trace, *replay;

    /* comparison */
    const char *systems, *models; /* lists with commas */
    const char *out;
    const char *ledger; /* claims from a file instead of the built-in ones */

    /* profile */
    int64_t repeat;
    const char *for_device, *for_host; /* whose costs the file says it has */

    /* training */
    const char *data, *data_format, *losses, *backend;
    const char *clock, *emu_scale;
    int64_t device; /* of --backend cuda */
    const struct ht_cuda_api *cuda_api; /* of --backend cuda; NULL: this build's. Tests put another here */
    const char *init, *save; /* weights with Hugging Face's names */
    const char *save_dtype;
    int64_t save_shard_bytes; /* 0: not given */
    const char *checkpoint;  /* folder of checkpoints, one every `every` steps, the newest `keep` kept; 0: not given */
    int64_t every, keep;
    bool resume;
    const char *faults[HT_MAX_FAULTS]; /* "STEP:UNIT[:KIND]" (harness/faults.h) */
    int64_t n_faults;
    int64_t steps, init_seed, data_seed;
    double lr, beta1, beta2, eps, weight_decay;
};

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
};

struct ht_command {
    const char *name;
    const char *args; /* "SYSTEM" */
    const char *help; /* one line; after a \v more, shown below the options */
    unsigned groups;  /* mask of enum ht_option_group; --json and --help are always there */
    int min_words, max_words;
    enum ht_status (*run)(const struct ht_options *options, struct ht_error *err);
};

/* Reads argv[2..] for a command. HT_BAD_INPUT with one line. With options->help the help has been printed. */
enum ht_status ht_options_parse(const struct ht_command *command, int argc, char **argv, struct ht_error *err,
                                struct ht_options *out);

#endif
