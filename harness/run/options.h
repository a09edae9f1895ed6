/*
 * The values of a command's options, by theme. 0 or NULL is the default, but where harness/cli/command.h, which reads
 * them, sets one (ht_options_default).
 */
#ifndef HT_HARNESS_RUN_OPTIONS_H
#define HT_HARNESS_RUN_OPTIONS_H

#include "common/kernels/adamw.h"
#include "common/plan/scenario.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    HT_MAX_WORDS = 64,
    HT_MAX_SET = 32,
    HT_MAX_PROFILES = 16,
    HT_MAX_FAULTS = 256,
    HT_MAX_BAD = 64,
    HT_MAX_GIVEN = 512
};

/* Says that no option names a machine. */
#define HT_NO_CLUSTER "--gpus or --cluster is missing; expected for example --gpus rtx4090:2 --ram 128GB"

struct ht_cuda_api; /* common/backend/cuda_api.h */

/* The plan, and what it rests on beside the scenario. */
struct ht_plan_options {
    const char *set[HT_MAX_SET]; /* "c=3" */
    int64_t n_set;
    bool any_fit;                          /* ht_settings.any_fit */
    bool progress;                         /* how far a planner is, on standard error */
    bool folds;                            /* the graph may leave out copies (common/schedule/fold.h) */
    const char *profiles[HT_MAX_PROFILES]; /* joined */
    int64_t n_profiles;
    const char *load; /* graph file that stands for system and scenario */
    const char *dump;
};

struct ht_simulation_options {
    int64_t iterations, warmup;
    int64_t issue_ahead; /* -1: 2 on accelerators, 0 on emulated devices */
    int64_t jitter_percent, seed;
    int64_t runs;                /* with jitter, of seeds one after the other; 0: none beside the one */
    bool what_if, break_even;    /* also with other rates (harness/result/variations.h) */
    bool every;                  /* simulate iterations that repeat themselves, too */
    bool every_replica;          /* and replicas that are equal to others */
    const char *bad[HT_MAX_BAD]; /* "3": iterations whose gradients overflow, from 1 */
    int64_t n_bad;
    const char *replay;
};

/* A cluster without a file: parts of ht_cluster_of_parts. */
struct ht_parts_options {
    const char *gpus, *ram, *cpu, *link, *nvlink, *nic, *ssd;
    char list[1024]; /* all of them, to which request.cluster points */
};

/* Several systems, models or claims. */
struct ht_comparison_options {
    const char *systems, *models, *clusters; /* lists with commas */
    const char *of;                          /* "model", "batch", "seq"; NULL: model */
    const char *ledger;                      /* claims from a file instead of the built-in ones */
};

struct ht_measuring_options {
    int64_t repeat;
    const char *for_device, *for_host; /* the names that the file gives its costs */
};

/* What of this machine a training runs on. Read once, when the job is made: harness/run/platform.h. */
struct ht_platform_options {
    const char *backend, *clock, *emu_scale;
    int64_t device;                     /* of --backend cuda */
    const char *transport;              /* between its ranks: nccl or host; NULL: nccl where it can be */
    bool deterministic;                 /* its sums over ranks in the ranks' order */
    const struct ht_cuda_api *cuda_api; /* of --backend cuda; NULL: this build's. Tests pass another */
    const char *disk;                   /* "A,B": directories of the disk tier's files */
    const char *disk_io, *disk_checksums;
    const char *disk_faults[HT_MAX_BAD]; /* "write:eio:12" (harness/run/disks.h) */
    int64_t n_disk_faults;
};

/* The hosts of several ranks; NULL: this machine. */
struct ht_launch_options {
    const char *hosts, *hostfile;
    int64_t start_timeout; /* s */
};

/* What a training begins with and leaves behind. */
struct ht_state_options {
    const char *init, *save; /* weights with Hugging Face's names */
    const char *save_dtype;
    int64_t save_shard_bytes; /* 0: not given */
    const char *checkpoint;   /* folder of checkpoints, one every `every` steps, the newest `keep` kept; 0: not given */
    int64_t every, keep;
    bool resume;
    const char *store, *store_memory, *store_remote; /* node stores (harness/run/node_stores.h) */
    int64_t replicas;                                /* other nodes that get each file */
    double store_remote_rate;                        /* bytes per second; 0: as fast as it goes */
    bool load_remote;                                /* read the remote store alone */
};

/* A new layout of stored states. */
struct ht_reshard_options {
    const char *to; /* "2,4,1": data, tensor and pipeline parallelism */
    bool zero1, check;
    int64_t per_node;   /* ranks of a node; 0: all */
    double remote_rate; /* bytes per second, of simulated copies */
    bool whole_files;
    double emulate; /* factor by which the copies run slower than modelled; 0: they are only simulated */
};

/* A simulated day on nodes that come and go (harness/days/study.h). */
struct ht_day_options {
    const char *trace, *drawn, *policies, *price, *speeds, *intervals; /* lists */
    const char *plans, *write, *times;
    double detect_s, plan_s, relaunch_s, quiet_s, save_every_s; /* -1: default */
    double remote_bytes_per_s;
    int64_t keep_nodes; /* of policy restart; 0: as many as at first */
};

/* A spot trace that happens to processes (harness/days/replay.h). */
struct ht_replay_options {
    double speed;
    int64_t changes, drill_changes;
    bool check;
};

struct ht_training_options {
    const char *data, *data_format, *losses;
    const char *events;                /* file for a supervisor (harness/run/events.h) */
    const char *process_fault;         /* "kill:1:7:33" (harness/run/drill.h) */
    const char *faults[HT_MAX_FAULTS]; /* "STEP:UNIT[:KIND]" (harness/run/faults.h) */
    int64_t n_faults;
    int64_t steps, init_seed, data_seed;
    struct ht_adamw adamw;
};

/* A training that outlives its nodes. */
struct ht_elastic_options {
    const char *state;          /* directory of the supervisor's own; NULL: STORE/elastic */
    const char *hosts, *notice; /* who is there, who will be gone (harness/elastic/) */
    const char *policy;         /* (harness/elastic/policy.h); NULL: all nodes that can be used */
    int64_t least, wait_s, quiet_s, ask_s, rejoin_s, hang_s; /* nodes; seconds */
    int64_t restarts;                                        /* with the same error at the same step */
    int64_t drills, seed;
    const char *faults[HT_MAX_BAD]; /* "rank:12:345" (harness/elastic/fault.h) */
    int64_t n_faults;
};

/* An option as it was given, under its whole name. */
struct ht_given_option {
    const char *name, *value; /* NULL: a flag */
    unsigned groups;          /* of enum ht_option_group */
};

struct ht_options {
    const char *words[HT_MAX_WORDS]; /* not options: a system, a kind of list */
    int64_t n_words;
    bool json, help;
    const char *out, *trace, *draw, *plot;
    double price;  /* of the machine; 0: the catalogue's */
    bool why, all; /* footnotes; ablations and folded rows */
    struct ht_scenario_request request;
    struct ht_parts_options parts;
    struct ht_plan_options plan;
    struct ht_simulation_options sim;
    struct ht_comparison_options compare;
    struct ht_measuring_options measure;
    struct ht_platform_options platform;
    struct ht_launch_options launch;
    struct ht_state_options state;
    struct ht_reshard_options reshard;
    struct ht_training_options training;
    struct ht_day_options day;
    struct ht_replay_options replay;
    struct ht_elastic_options elastic;
    struct ht_given_option given[HT_MAX_GIVEN];
    int64_t n_given;
};

/* Returns the options of a command line without any. */
static inline struct ht_options ht_options_default(void)
{
    return (struct ht_options){
        .sim = {.iterations = 8, .warmup = 2, .issue_ahead = -1, .seed = 1},
        .measure = {.repeat = 9},
        .launch = {.start_timeout = 10},
        .day = {.detect_s = -1, .plan_s = -1, .relaunch_s = -1, .quiet_s = -1},
        .replay = {.speed = 100, .drill_changes = 16},
        .elastic = {.least = 1,
                    .wait_s = 60,
                    .quiet_s = 5,
                    .ask_s = 10,
                    .rejoin_s = 300,
                    .hang_s = 30,
                    .restarts = 3,
                    .seed = 1},
        .training = {.steps = 50,
                     .init_seed = 1234,
                     .data_seed = 5678,
                     .adamw = {.lr = 3e-4, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1}}};
}

#endif
