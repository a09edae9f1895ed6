/*
 * The values of a command's options, with their defaults filled in. harness/cli/command.h reads them.
 */
#ifndef HT_HARNESS_RUN_OPTIONS_H
#define HT_HARNESS_RUN_OPTIONS_H

#include "common/plan/scenario.h"

#include <stdbool.h>
#include <stdint.h>

enum { HT_MAX_WORDS = 64, HT_MAX_SET = 32, HT_MAX_PROFILES = 16, HT_MAX_FAULTS = 256, HT_MAX_BAD = 64 };

struct ht_cuda_api; /* common/backend/cuda_api.h */

struct ht_options {
    const char *words[HT_MAX_WORDS]; /* not options: a system, a kind of list */
    int64_t n_words;
    bool json, help;

    /* scenario */
    struct ht_scenario_request request;
    const char *set[HT_MAX_SET]; /* "c=3" */
    int64_t n_set;
    bool any_fit;                          /* ht_settings.any_fit */
    const char *profiles[HT_MAX_PROFILES]; /* joined */
    int64_t n_profiles;
    const char *load; /* graph file that stands for system and scenario */
    const char *dump;

    /* simulation */
    int64_t iterations, warmup;
    int64_t issue_ahead; /* -1: 2 on accelerators, 0 on emulated devices */
    int64_t jitter_percent, seed;
    const char *bad[HT_MAX_BAD]; /* "3": iterations whose gradients overflow, from 1 */
    int64_t n_bad;
    const char *trace, *replay;

    /* comparison */
    const char *systems, *models; /* lists with commas */
    const char *of;               /* "model", "batch", "seq"; NULL: model */
    const char *out;
    const char *ledger; /* claims from a file instead of the built-in ones */

    /* profile */
    int64_t repeat;
    const char *for_device, *for_host; /* the names that the file gives its costs */

    /* training */
    const char *data, *data_format, *losses, *backend;
    const char *clock, *emu_scale;
    const char *disk; /* "A,B": directories of the disk tier's files */
    const char *disk_io, *disk_checksums;
    const char *disk_faults[HT_MAX_BAD]; /* "write:eio:12" (harness/run/disks.h) */
    int64_t n_disk_faults;
    const char *hosts, *hostfile;       /* of several ranks; NULL: this machine */
    int64_t start_timeout;              /* s */
    int64_t device;                     /* of --backend cuda */
    const struct ht_cuda_api *cuda_api; /* of --backend cuda; NULL: this build's. Tests pass another */
    const char *init, *save;            /* weights with Hugging Face's names */
    const char *save_dtype;
    int64_t save_shard_bytes; /* 0: not given */
    const char *checkpoint;   /* folder of checkpoints, one every `every` steps, the newest `keep` kept; 0: not given */
    int64_t every, keep;
    bool resume;

    /* node stores (harness/run/node_stores.h) */
    const char *store, *store_memory, *store_remote;
    int64_t replicas;         /* other nodes that get each file */
    double store_remote_rate; /* bytes per second; 0: as fast as it goes */
    const char *to;           /* "2,4,1": data, tensor and pipeline parallelism */
    bool zero1, check;
    int64_t per_node;   /* ranks of a node; 0: all */
    double remote_rate; /* bytes per second, of simulated copies */
    bool whole_files;
    const char *faults[HT_MAX_FAULTS]; /* "STEP:UNIT[:KIND]" (harness/run/faults.h) */
    int64_t n_faults;
    int64_t steps, init_seed, data_seed;
    double lr, beta1, beta2, eps, weight_decay;
};

#endif
