/*
 * A replay: a spot trace on a small cluster (replay_map.h), once with real processes that are really killed (replay_run.h), once
 * simulated (goodput.h), for each policy. The simulation's times of detection, planning, relaunch, loading, stopping and saves are
 * means over drills: other days, drawn from other seeds, that happened to real processes, one before the day and one after it, as a
 * machine's load drifts. Multiplied by the replay's speed they are modelled seconds.
 *
 *     {"trace", "cluster", "model", "batch", "obtained", "speed", "mapping", "local_nodes", "moments", "changing", "joins", "losses",
 *      "hours", "seed", "drill_seed", "save_steps", "quiet_s", "remote_bytes_per_s",
 *      "policies": [{"policy", "system", "keep_nodes", "ettr_measured", "ettr_simulated", "difference_points", "ettr_of_own_parts",
 *                    "losses_equal", "checked_steps", "incarnations", "killed_processes", "wall_s",
 *                    "measured":  {"useful_s", "lost_s", "stalls_s", "other_s", "steps", "lost_steps", "saves", "step_s", "recoveries",
 *                                  "changes", "parts"},
 *                    "simulated": {the same}}]}
 *
 * All times are modelled seconds but "wall_s". parts: {"detect_s", "plan_s", "relaunch_s", "load_s", "stop_s", "stall_s"}, measured in
 * the replay, and in the drills, from where the simulation has them. ettr_of_own_parts: simulated with the replay's own parts instead,
 * which leaves of the difference what is the simulation's.
 */
#ifndef HT_HARNESS_DAYS_REPLAY_H
#define HT_HARNESS_DAYS_REPLAY_H

#include "harness/days/study.h"

struct ht_replay {
    struct ht_options options; /* of the training; `given` has the training's options alone */
    const char *trace, *dir;
    const struct ht_policy *policies[HT_STUDY_POLICIES];
    size_t n_policies;
    double speed;
    double remote_bytes_per_s; /* 0: no limit, and nothing in the simulation */
    int64_t changes;           /* that end the day; 0: all */
    int64_t drill_changes, seed;
    int32_t keep_nodes; /* 0: as many as are there at first */
    bool check;         /* losses against the same layouts without kills */
};

/* Replays. The folder keeps what failed. The caller releases *out. */
enum ht_status ht_replay_all(const struct ht_replay *r, struct ht_error *err, json_t **out);

/* Writes a header and a row for each policy. */
void ht_replay_csv(const json_t *replay, FILE *out);
void ht_replay_print(const json_t *replay, FILE *out);

#endif
