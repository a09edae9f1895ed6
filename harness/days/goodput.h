/*
 * A day, simulated: what a policy makes of a spot trace. Time goes from event to event; what a job does in between comes from
 * the plan book (iteration time, stall of a save) and from the list of transfers (loading).
 *
 *     waiting      no plan for the nodes there are, or not as many as the policy wants
 *     detection    a lost node has not been noticed
 *     planning     of what comes after a loss; a change that is wanted is planned while the job still trains
 *     relaunch     processes start and connect
 *     loading      ranks read the state from stores (common/store/price.h)
 *     training     steps, each useful or, when its state was lost, lost; and the stalls of saves
 *
 * A run begins with a save, and then saves after each whole number of steps that takes about `save_every_s`. A save stops
 * training while the state goes to nodes' memory; each file then goes to the remote store, once, at the remote store's rate. The next
 * save waits for that. A save counts on a node when its stall has ended, and in the remote store when all of it is there.
 *
 * After a loss a job goes on from the newest save that it can read whole: the stores of the live nodes, or the remote store. When a
 * node joins, or is announced to be lost, the job ends its step, saves, and goes on with other nodes; a policy that loads from the
 * remote store waits until the save is there.
 *
 * Simplified: a stop that is planned cannot be met by a loss before its save has ended; planning has the same time for all policies; two
 * saves are kept, of which the older is used from the remote store alone.
 */
#ifndef HT_HARNESS_DAYS_GOODPUT_H
#define HT_HARNESS_DAYS_GOODPUT_H

#include "harness/days/traces/spot_trace.h"
#include "harness/elastic/planbook.h"
#include "harness/elastic/policy_plan.h"

/* What a replay with real processes (replay.h) has measured or does otherwise, in modelled seconds. Its runs begin without a save: the
   stores have what was loaded. */
struct ht_day_measured {
    bool given;
    double load_s, stall_s; /* in place of the list of transfers, and of copies over PCIe */
    double stop_s;          /* of the job's processes, after the save of a change */
    int64_t save_steps;     /* steps between saves, whatever they take */
};

/* Times that do not come from a plan, the same for all policies. */
struct ht_day_times {
    double detect_s, plan_s, relaunch_s;
    double quiet_s;            /* after a join, until the nodes that joined are taken in together */
    double save_every_s;       /* at least; 0: Young's interval for the trace */
    double remote_bytes_per_s; /* of the link to the remote store, which all nodes share */
    int32_t keep_nodes;        /* of a policy that keeps its shape; 0: the nodes that are there at first */
    struct ht_day_measured
        measured; /* a job that waits then starts as soon as a plan fits, not `quiet_s` after a join */
};

enum ht_day_phase {
    HT_DAY_WAITING,
    HT_DAY_DETECTION,
    HT_DAY_PLANNING,
    HT_DAY_RELAUNCH,
    HT_DAY_LOADING,
    HT_DAY_STALLS,
    HT_DAY_LOST,
    HT_DAY_USEFUL,
    HT_N_DAY_PHASES
};
extern const char *const ht_day_phase_names[HT_N_DAY_PHASES]; /* "waiting", .. */

/* From this time on, so many nodes are there, of which so many GPUs train at this rate. */
struct ht_day_moment {
    int64_t time_ns;
    struct ht_fleet live;
    int64_t used_gpus;
    double samples_per_s; /* 0: nothing trains */
};

/* A recovery, or a change that was wanted. */
struct ht_day_recovery {
    int64_t time_ns, load_ns, all_ns; /* its begin; loading alone; until training goes on */
    int64_t lost_steps;
    bool planned;              /* a change; else a loss */
    int64_t bytes[HT_N_PATHS]; /* that ranks read */
};

struct ht_day {
    const struct ht_policy *policy;
    double wall_s, phase_s[HT_N_DAY_PHASES]; /* which add up to wall_s */
    int64_t steps, lost_steps;               /* useful ones; those done twice */
    double samples;                          /* useful */
    int64_t losses, changes, saves;          /* recoveries after losses, changes, saves */
    double save_every_s;                     /* that was asked for, or Young's */
    double gpu_hours, busy_gpu_hours, usd;   /* rented; in which steps ran */
    double load_s[2];                        /* mean of recoveries, of changes */
    struct ht_day_moment *moments;
    size_t n_moments, moments_cap;
    struct ht_day_recovery *recoveries;
    size_t n_recoveries, recoveries_cap;
};

/* Returns the effective training time ratio: useful steps' time over all. */
double ht_day_ettr(const struct ht_day *d);

/* What days of one trace share. */
struct ht_day_setting {
    struct ht_planbook *book;
    const struct ht_cluster *kinds; /* one node of each kind */
    const struct ht_spot_trace *trace;
    const int32_t *kind_of; /* [trace->n_nodes] entry of kinds */
    const int32_t *order;   /* [trace->n_nodes] in which a job takes nodes; NULL: as they joined */
    struct ht_day_times times;
    int64_t batch;
};

/* Finds each node's kind: the entry with its instance's name, or the first one for a trace that does not say. HT_BAD_INPUT if no
   entry has it. *kind_of is allocated. */
enum ht_status ht_day_kinds(const struct ht_cluster *kinds, const struct ht_spot_trace *trace, struct ht_error *err,
                            int32_t **kind_of);
/* Returns the most nodes that the trace has at once. */
struct ht_fleet ht_day_most(const struct ht_day_setting *s);
/* Makes the plans that the days of these policies ask for. */
enum ht_status ht_day_plan_ahead(const struct ht_day_setting *s, const struct ht_policy *const *policies, size_t n,
                                 struct ht_error *err);
/* Simulates a day. The caller frees *out, also on error. */
enum ht_status ht_day_run(const struct ht_day_setting *s, const struct ht_policy *policy, struct ht_error *err,
                          struct ht_day *out);
void ht_day_free(struct ht_day *d);
/* Finds what a save costs the plan on the most nodes that are there at once: how long it stops training, and how long the remote store
   takes for it. 0 if no plan fits. */
enum ht_status ht_day_save_costs(const struct ht_day_setting *s, const struct ht_policy *policy, struct ht_error *err,
                                 double *stall_s, double *upload_s);

/* Returns the mean time from one time at which nodes are lost to the next, in seconds. */
double ht_day_between_losses_s(const struct ht_spot_trace *trace);

/*
 * Returns the interval of saves that loses the least time, to first order: T = sqrt(2 C M) (Young, "A first order approximation to the
 * optimum checkpoint interval", CACM 17(9), 1974). C: seconds that a save costs; M: mean seconds between losses.
 */
double ht_young_s(double save_s, double between_s);
/*
 * The same to higher order: T = sqrt(2 C M) (1 + sqrt(C / 2M) / 3 + (C / 2M) / 9) - C for C < 2M, else M (Daly, "A higher order
 * estimate of the optimum checkpoint interval for restart dumps", FGCS 22(3), 2006, eq. (37)).
 */
double ht_daly_s(double save_s, double between_s);

#endif
