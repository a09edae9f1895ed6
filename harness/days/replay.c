#include "harness/days/replay.h"

#include "common/base/array.h"
#include "harness/days/replay_run.h"
#include "harness/elastic/damage.h"
#include "harness/result/result.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    GAP_S = 4,    /* of wall time, between the events of a drill */
    QUIET_S = 1,  /* of wall time: the supervisor's --quiet */
    SPARE = 1000, /* steps beyond twice those that the fastest plan could do */
};
#define MAX_DAYS_S 86400.0 /* of wall time */

struct replay {
    const struct ht_replay *in;
    struct ht_cluster *cluster, *kinds;
    int32_t *node_gpus;
    struct ht_local_day day, before, after; /* drills: half the changes each */
    struct ht_options scenario;             /* the training's, without a cluster */
    struct ht_planbook *book;
    struct ht_error *err;
};

/* ---- before ----------------------------------------------------------------------------------------------------- */

static enum ht_status map_trace(struct replay *x)
{
    struct ht_spot_trace trace;
    int32_t *kind_of = NULL;
    enum ht_status status = ht_spot_day_load(x->in->trace, x->err, &trace);
    if (status) return status;
    status = ht_day_kinds(x->kinds, &trace, x->err, &kind_of);
    if (!status)
        status = ht_replay_map(&trace, kind_of, x->cluster, (uint64_t)x->in->seed, x->in->changes, x->err, &x->day);
    free(kind_of);
    ht_spot_trace_free(&trace);
    return status;
}

static double hours_of(const struct ht_local_day *d)
{
    return (double)(d->trace.events[d->trace.n_events - 1].time_ns - d->trace.events[0].time_ns) / 3.6e12;
}

static enum ht_status check_day(const struct replay *x)
{
    double wall_s = 3600 * hours_of(&x->day) / x->in->speed;
    if (wall_s <= MAX_DAYS_S && wall_s > 0) return HT_OK;
    return ht_fail(x->err, HT_BAD_INPUT,
                   "--speed: the day would take %.3g s for each policy; expected more than 0 s, at most a day", wall_s);
}

/* Checks that no policy's folder is there: before any runs, since a later one would be refused after minutes. */
static enum ht_status check_folders(const struct replay *x)
{
    static const char *const of[] = {"", "-before", "-after"};
    char dir[PATH_MAX];
    for (size_t i = 0; i < x->in->n_policies; i++)
        for (size_t k = 0; k < HT_COUNT(of); k++) {
            snprintf(dir, sizeof(dir), "%.3000s/%s%s", x->in->dir, x->in->policies[i]->name, of[k]);
            if (access(dir, F_OK) == 0)
                return ht_fail(
                    x->err, HT_BAD_INPUT,
                    "--store: %s is there, as a replay that was stopped leaves it; expected a folder without it", dir);
        }
    return HT_OK;
}

static enum ht_status prepare(struct replay *x)
{
    enum ht_status status = ht_cluster_load(x->in->options.request.cluster, x->err, &x->cluster);
    if (status) return status;
    if (x->cluster->n_nodes < 2)
        return ht_fail(x->err, HT_BAD_INPUT, "--cluster: '%s' has one node; expected several, which come and go",
                       x->cluster->name);
    x->kinds = ht_cluster_one_of_each(x->cluster);
    x->node_gpus = HT_NEW_ARRAY(int32_t, x->cluster->n_nodes);
    for (int64_t i = 0; i < x->cluster->n_nodes; i++) x->node_gpus[i] = (int32_t)x->cluster->nodes[i].n_gpus;
    x->scenario = x->in->options;
    x->scenario.request.nodes = x->scenario.request.ranks = 0;
    x->scenario.plan.progress = false;
    status = ht_planbook_create(&x->scenario, x->kinds, NULL, x->err, &x->book);
    if (!status) status = map_trace(x);
    if (!status) status = check_day(x);
    if (!status) status = check_folders(x);
    if (status) return status;
    int64_t half = (x->in->drill_changes + 1) / 2, gap_ns = llround(GAP_S * x->in->speed * 1e9);
    /* A day ends with its last change, which nothing follows. */
    ht_replay_draw(x->cluster, half + 1, gap_ns, (uint64_t)x->in->seed + 1, &x->before);
    ht_replay_draw(x->cluster, half + 1, gap_ns, (uint64_t)x->in->seed + 2, &x->after);
    if (mkdir(x->in->dir, 0777) != 0 && errno != EEXIST)
        return ht_fail(x->err, HT_BAD_INPUT, "--store: %s: cannot be made: %s", x->in->dir, strerror(errno));
    return HT_OK;
}

static void release(struct replay *x)
{
    ht_local_day_free(&x->day);
    ht_local_day_free(&x->before);
    ht_local_day_free(&x->after);
    ht_planbook_destroy(x->book);
    ht_cluster_destroy(x->kinds);
    ht_cluster_destroy(x->cluster);
    free(x->node_gpus);
}

/* ---- with processes --------------------------------------------------------------------------------------------- */

/* Returns the nodes on which a policy that keeps its shape runs: those asked for, or of the first ones as many as it has a plan for. */
static int32_t keep_of(const struct replay *x, const struct ht_policy *policy)
{
    const struct ht_planned *plan = NULL;
    const struct ht_spot_trace *t = &x->day.trace;
    struct ht_fleet first = {{0}};
    struct ht_error ignored;
    if (x->in->keep_nodes) return x->in->keep_nodes;
    for (size_t i = 0; i < t->n_events && t->events[i].time_ns == t->events[0].time_ns; i++)
        first.count[x->day.kind_of[t->events[i].node]]++;
    bool fits = ht_policy_plan(policy, x->book, first, NULL, &ignored, &plan) == HT_OK && plan;
    return fits ? ht_fleet_nodes(&plan->fleet) : ht_fleet_nodes(&first);
}

/* Returns more steps than a policy can do in a day. */
static enum ht_status most_steps(const struct replay *x, const struct ht_policy *policy, const struct ht_local_day *day,
                                 int64_t *steps)
{
    const struct ht_planned *plan;
    struct ht_fleet all = {{0}}, first = {{0}};
    for (int32_t i = 0, kind = 0; i < x->cluster->n_nodes; i++) {
        kind += i && x->cluster->nodes[i].group != x->cluster->nodes[i - 1].group;
        all.count[kind]++;
    }
    first = ht_fleet_first(&all, keep_of(x, policy));
    enum ht_status status = ht_policy_plan(policy, x->book, all, policy->keeps_shape ? &first : NULL, x->err, &plan);
    if (status) return status;
    if (!plan) return ht_fail(x->err, HT_INFEASIBLE, "policy '%s' has no plan for the cluster's nodes", policy->name);
    *steps = SPARE + llround(2 * 3600e9 * hours_of(day) / (double)plan->iteration_ns);
    return HT_OK;
}

/* Lets a day happen to processes, in DIR/policy or DIR/policy-drill. */
static enum ht_status run(const struct replay *x, const struct ht_policy *policy, const struct ht_local_day *day,
                          const char *dir, struct ht_replay_run *r)
{
    *r = (struct ht_replay_run){.options = &x->in->options,
                                .policy = policy,
                                .day = day,
                                .dir = dir,
                                .speed = x->in->speed,
                                .keep_nodes = keep_of(x, policy),
                                .remote_bytes_per_s = x->in->remote_bytes_per_s,
                                .node_gpus = x->node_gpus};
    enum ht_status status = most_steps(x, policy, day, &r->steps);
    return status ? status : ht_replay_run(r, x->err);
}

/* ---- simulated -------------------------------------------------------------------------------------------------- */

static enum ht_status simulate(const struct replay *x, const struct ht_policy *policy,
                               const struct ht_replay_parts *parts, struct ht_day *out)
{
    const struct ht_options *o = &x->in->options;
    const struct ht_day_setting setting = {
        .book = x->book,
        .kinds = x->kinds,
        .trace = &x->day.trace,
        .kind_of = x->day.kind_of,
        .order = x->day.order,
        .batch = o->request.batch ? o->request.batch : 8,
        .times = {.detect_s = parts->detect_s,
                  .plan_s = parts->plan_s,
                  .relaunch_s = parts->relaunch_s,
                  .quiet_s = QUIET_S * x->in->speed,
                  .save_every_s = 1,
                  .remote_bytes_per_s = x->in->remote_bytes_per_s > 0 ? x->in->remote_bytes_per_s : 1e18,
                  .keep_nodes = keep_of(x, policy),
                  .measured = {.given = true,
                               .load_s = parts->load_s,
                               .stall_s = parts->stall_s,
                               .stop_s = parts->stop_s,
                               .save_steps = o->state.every ? o->state.every : 100}}};
    return ht_day_run(&setting, policy, x->err, out);
}

/* ---- results ---------------------------------------------------------------------------------------------------- */

static json_t *parts_json(const struct ht_replay_parts *p)
{
    return json_pack("{s:f,s:f,s:f,s:f,s:f,s:f}", "detect_s", p->detect_s, "plan_s", p->plan_s, "relaunch_s",
                     p->relaunch_s, "load_s", p->load_s, "stop_s", p->stop_s, "stall_s", p->stall_s);
}

/* Seconds and counts of a day. */
struct sums {
    double useful_s, lost_s, stalls_s, all_s;
    int64_t steps, lost_steps, saves, losses, changes;
};

static json_t *sums_json(const struct sums *s, const struct ht_replay_parts *p)
{
    json_t *o = json_pack("{s:f,s:f,s:f,s:f,s:I,s:I,s:I,s:I,s:I}", "useful_s", s->useful_s, "lost_s", s->lost_s,
                          "stalls_s", s->stalls_s, "other_s", s->all_s - s->useful_s - s->lost_s - s->stalls_s, "steps",
                          (json_int_t)s->steps, "lost_steps", (json_int_t)s->lost_steps, "saves", (json_int_t)s->saves,
                          "recoveries", (json_int_t)s->losses, "changes", (json_int_t)s->changes);
    json_object_set_new(o, "step_s", ht_json_number(s->steps ? s->useful_s / (double)s->steps : NAN));
    json_object_set_new(o, "parts", parts_json(p));
    return o;
}

static struct sums measured_sums(const struct ht_replay_run *r, const struct ht_replay_parts *p)
{
    const struct ht_replay_account *a = &r->account;
    double scale = 1e-9 * r->speed;
    return (struct sums){.useful_s = scale * (double)a->useful_ns,
                         .lost_s = scale * (double)a->lost_ns,
                         .stalls_s = scale * (double)a->stall_ns,
                         .all_s = r->speed * r->wall_s,
                         .steps = (int64_t)a->n_useful,
                         .lost_steps = a->lost_steps,
                         .saves = a->saves,
                         .losses = p->losses,
                         .changes = p->changes};
}

static struct sums simulated_sums(const struct ht_day *d)
{
    return (struct sums){.useful_s = d->phase_s[HT_DAY_USEFUL],
                         .lost_s = d->phase_s[HT_DAY_LOST],
                         .stalls_s = d->phase_s[HT_DAY_STALLS],
                         .all_s = d->wall_s,
                         .steps = d->steps,
                         .lost_steps = d->lost_steps,
                         .saves = d->saves,
                         .losses = d->losses,
                         .changes = d->changes};
}

/* Makes a policy's row. own, drill: the replay's parts, and the drills', which the simulated day has. */
static json_t *row_json(const struct ht_replay_run *r, const struct ht_replay_parts *own,
                        const struct ht_replay_parts *drill, const struct ht_day *day)
{
    struct sums measured = measured_sums(r, own), simulated = simulated_sums(day);
    double ettr = measured.all_s > 0 ? measured.useful_s / measured.all_s : 0;
    json_t *row =
        json_pack("{s:s,s:s,s:f,s:f,s:f}", "policy", r->policy->name, "system", r->policy->system, "ettr_measured",
                  ettr, "ettr_simulated", ht_day_ettr(day), "difference_points", 100 * (ettr - ht_day_ettr(day)));
    json_object_set_new(row, "keep_nodes", r->policy->keeps_shape ? json_integer(r->keep_nodes) : json_null());
    json_object_set_new(row, "measured", sums_json(&measured, own));
    json_object_set_new(row, "simulated", sums_json(&simulated, drill));
    json_object_set_new(
        row, "drill",
        json_pack("{s:I,s:I}", "recoveries", (json_int_t)drill->losses, "changes", (json_int_t)drill->changes));
    json_object_set_new(row, "incarnations", json_integer((json_int_t)r->incarnations));
    json_object_set_new(row, "killed_processes", json_integer((json_int_t)r->kills));
    json_object_set_new(row, "wall_s", json_real(r->wall_s));
    return row;
}

static enum ht_status check_losses(const struct replay *x, const struct ht_replay_run *r, json_t *row)
{
    int64_t steps = 0;
    enum ht_status status = x->in->check ? ht_replay_check(r, x->err, &steps) : HT_OK;
    if (!status) json_object_set_new(row, "losses_equal", x->in->check ? json_true() : json_null());
    if (!status) json_object_set_new(row, "checked_steps", json_integer((json_int_t)steps));
    return status;
}

static void say(const struct replay *x, const json_t *row)
{
    if (x->in->options.json) return;
    fprintf(stderr, "replay: %s: ETTR %.3f measured, %.3f simulated\n",
            json_string_value(json_object_get(row, "policy")), json_number_value(json_object_get(row, "ettr_measured")),
            json_number_value(json_object_get(row, "ettr_simulated")));
}

/* A policy's drill. */
static enum ht_status run_drill(const struct replay *x, const struct ht_policy *policy, const struct ht_local_day *day,
                                const char *name, struct ht_replay_parts *parts)
{
    char dir[PATH_MAX];
    struct ht_replay_run r;
    snprintf(dir, sizeof(dir), "%.3000s/%s-%s", x->in->dir, policy->name, name);
    enum ht_status status = run(x, policy, day, dir, &r);
    *parts = ht_replay_parts(&r.account, r.recoveries, x->in->speed);
    ht_replay_run_free(&r);
    if (!status) ht_damage_remove(dir);
    return status;
}

static enum ht_status run_policy(const struct replay *x, const struct ht_policy *policy, json_t *rows)
{
    char dir[PATH_MAX];
    struct ht_replay_run r = {0};
    struct ht_replay_parts before, after, drill, own;
    struct ht_day day = {0}, explained = {0};
    snprintf(dir, sizeof(dir), "%.3000s/%s", x->in->dir, policy->name);
    enum ht_status status = run_drill(x, policy, &x->before, "before", &before);
    if (!status) status = run(x, policy, &x->day, dir, &r);
    if (!status) status = run_drill(x, policy, &x->after, "after", &after);
    if (!status) {
        drill = ht_replay_parts_of_both(&before, &after);
        own = ht_replay_parts(&r.account, r.recoveries, r.speed);
        status = simulate(x, policy, &drill, &day);
    }
    if (!status) status = simulate(x, policy, &own, &explained);
    if (!status) {
        json_t *row = row_json(&r, &own, &drill, &day);
        json_object_set_new(row, "ettr_of_own_parts", json_real(ht_day_ettr(&explained)));
        json_array_append_new(rows, row);
        say(x, row);
        status = check_losses(x, &r, row);
    }
    ht_replay_run_free(&r);
    ht_day_free(&day);
    ht_day_free(&explained);
    if (!status) ht_damage_remove(dir);
    return status;
}

static json_t *root_json(const struct replay *x)
{
    const struct ht_replay *in = x->in;
    const struct ht_scenario_request *r = &in->options.request;
    json_t *root = json_pack("{s:s,s:s,s:s,s:I,s:s,s:f,s:s}", "trace", in->trace, "cluster", x->cluster->name, "model",
                             r->model, "batch", (json_int_t)(r->batch ? r->batch : 8), "obtained",
                             "measured under the emulated clock, with real kills; and simulated", "speed", in->speed,
                             "mapping", "ceil(k x live / most)");
    json_t *more = json_pack("{s:i,s:I,s:I,s:I,s:I,s:f,s:I,s:I,s:I,s:f,s:f}", "local_nodes", x->day.n_local, "moments",
                             (json_int_t)x->day.moments, "changing", (json_int_t)x->day.changing, "joins",
                             (json_int_t)x->day.joins, "losses", (json_int_t)x->day.losses, "hours", hours_of(&x->day),
                             "seed", (json_int_t)in->seed, "drill_seed", (json_int_t)in->seed + 1, "save_steps",
                             (json_int_t)(in->options.state.every ? in->options.state.every : 100), "quiet_s",
                             QUIET_S * in->speed, "remote_bytes_per_s", in->remote_bytes_per_s);
    json_object_update(root, more);
    json_decref(more);
    return root;
}

enum ht_status ht_replay_all(const struct ht_replay *in, struct ht_error *err, json_t **out)
{
    struct replay x = {.in = in, .err = err};
    json_t *root = NULL, *rows = json_array();
    enum ht_status status = prepare(&x);
    if (!status) {
        root = root_json(&x);
        json_object_set(root, "policies", rows);
    }
    for (size_t i = 0; i < in->n_policies && !status; i++) status = run_policy(&x, in->policies[i], rows);
    if (!status) rmdir(in->dir); /* if it is empty */
    if (!status) *out = json_incref(root);
    json_decref(root);
    json_decref(rows);
    release(&x);
    return status;
}
