#include "policies/decide.h"

#include "common/base/array.h"
#include "common/base/units.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 32, HALVINGS = 8 };

struct planner {
    const struct ht_policy_request *request;
    int32_t blocks, most_ahead;
    struct ht_policy_case c;
    enum ht_fate *fates; /* [c.n] */
};

/* Sets how many turns ahead each block's activations begin to come back: at least one, at most most_ahead. */
static void set_ahead(const struct planner *q, struct ht_plan *plan)
{
    const struct ht_variable *forced = ht_setting_variable(q->request->settings, "ahead");
    int64_t *ahead = HT_NEW_ARRAY(int64_t, q->blocks);
    double *in_s = HT_NEW_ARRAY(double, q->c.n), *used_s = HT_NEW_ARRAY(double, q->c.n);
    double *turn_s = HT_NEW_ARRAY(double, q->blocks + 1);
    ht_policy_begins(&q->c, q->fates, used_s, in_s);
    for (int32_t i = 0; i < q->c.n; i++) turn_s[q->c.a[i].block] = used_s[i];
    for (int32_t i = 0; i < q->c.n; i++) {
        int32_t block = q->c.a[i].block, turns = q->most_ahead > 0;
        while (turns < q->most_ahead && block + turns <= q->blocks && turn_s[block + turns] > in_s[i]) turns++;
        if (turns > ahead[block - 1]) ahead[block - 1] = turns;
    }
    for (int32_t b = 0; forced && b < q->blocks; b++) ahead[b] = forced->values[b];
    ht_plan_set_values(plan, "ahead", HT_VARIABLE_LIST, q->blocks, ahead, false);
    free(ahead);
    free(in_s);
    free(used_s);
    free(turn_s);
}

static void set_fates(const struct planner *q, struct ht_plan *plan)
{
    int64_t *values = HT_NEW_ARRAY(int64_t, q->blocks);
    for (int part = 0; part < HT_N_PARTS; part++) {
        for (int32_t i = 0; i < q->blocks; i++) values[i] = HT_FATE_KEPT; /* of parts without bytes */
        for (int32_t i = 0; i < q->c.n; i++)
            if (q->c.a[i].part == part) values[q->c.a[i].block - 1] = q->fates[i];
        ht_plan_set_values(plan, ht_part_names[part], HT_VARIABLE_LIST, q->blocks, values, false);
    }
    free(values);
    set_ahead(q, plan);
    q->request->complete(q->request, plan);
}

/* Replaces fates that are forced. */
static void force(struct planner *q)
{
    for (int32_t i = 0; i < q->c.n; i++) {
        const struct ht_variable *v = ht_setting_variable(q->request->settings, ht_part_names[q->c.a[i].part]);
        if (v) q->fates[i] = (enum ht_fate)v->values[q->c.a[i].block - 1];
    }
}

/* Finds what the plan of the fates needs. Returns an error only if there is no schedule of it. */
static enum ht_status prove(const struct planner *q, struct ht_error *err, struct ht_needs *out)
{
    struct ht_plan plan = {0};
    set_fates(q, &plan);
    enum ht_status status = ht_plan_needs(q->request->self, q->request->scenario, &plan, err, out);
    ht_plan_free(&plan);
    return status;
}

/* Returns the GPUs that share a node's main memory: it is divided among them, since each moves as much there. */
static double sharers(const struct planner *q)
{
    return (double)ht_scenario_ranks_per_node(q->request->scenario);
}

static void halve_ahead(struct planner *q)
{
    q->most_ahead = (q->most_ahead + 1) / 2;
}

/* Returns true if activations come back from SSDs so early that main memory, which they pass through, lacks room. */
static bool fills_main(const struct planner *q, const struct ht_needs *needs)
{
    return q->request->ssds && needs->short_bytes[HT_HOST] && q->c.main_bytes == 0;
}

/* Finds the budgets of a GPU: what the leanest plan leaves of both memories, and what it holds there by its own
   fates. */
static enum ht_status find_budgets(struct planner *q, struct ht_error *err)
{
    const struct ht_policy_request *r = q->request;
    struct ht_needs needs;
    for (int32_t i = 0; i < q->c.n; i++) q->fates[i] = q->c.a[i].part == HT_PART_INPUT ? r->input : r->rest;
    enum ht_status status = prove(q, err, &needs);
    for (; !status && q->most_ahead > 1 && fills_main(q, &needs); status = prove(q, err, &needs)) halve_ahead(q);
    if (status) return status;
    struct ht_policy_sums s = ht_policy_sum(&q->c, q->fates);
    double device =
        (double)(ht_scenario_device_bytes(r->scenario) - needs.peak_bytes[HT_DEVICE]) + s.bytes[HT_FATE_KEPT];
    double left = (double)(ht_scenario_host_bytes(r->scenario) - needs.peak_bytes[HT_HOST]);
    double host = left / sharers(q) + s.bytes[HT_FATE_MAIN];
    q->c.device_bytes = fmax(0, device);
    q->c.main_bytes = r->main_memory ? fmax(0, host) : 0;
    return HT_OK;
}

/* Lowers what makes a schedule lack memory: first how early activations come back, then the budgets. What main memory
   lacks comes off what the plan moves there, which may be an activation less than its budget. If nothing helps,
   activations come back in their own turn. Returns false if there is nothing left to lower. */
static bool lower(struct planner *q, const struct ht_needs *needs, double device_budget)
{
    double device = fmax(0, q->c.device_bytes - (double)needs->short_bytes[HT_DEVICE]);
    double host = q->c.main_bytes, moved = ht_policy_sum(&q->c, q->fates).bytes[HT_FATE_MAIN];
    if (needs->short_bytes[HT_HOST])
        host = fmax(0, fmin(host, moved) - ceil((double)needs->short_bytes[HT_HOST] / sharers(q)));
    bool early = needs->short_bytes[HT_DEVICE] || fills_main(q, needs);
    if (early && q->most_ahead > 1) {
        halve_ahead(q);
        return true;
    }
    if (device == q->c.device_bytes && host == q->c.main_bytes) {
        if (!early || q->most_ahead == 0) return false;
        q->most_ahead = 0;
        device = device_budget;
    }
    q->c.device_bytes = device;
    q->c.main_bytes = host;
    return true;
}

/* Asks the policy and has its plan proved. */
static enum ht_status try(struct planner *q, struct ht_error *err, struct ht_needs *needs)
{
    enum ht_status status = q->request->policy(&q->c, err, q->fates);
    force(q);
    return status ? status : prove(q, err, needs);
}

/* Raises the GPU's budget as far as the schedule fits, to 1 / 2^HALVINGS of all activations. The leanest plan has
   buffers that activations which stay do not need, so what it leaves is less than there is. A budget for which the
   policy or the builder has no plan is one that does not fit. */
static enum ht_status raise(struct planner *q, struct ht_error *err, struct ht_needs *needs)
{
    struct ht_error why = {0};
    struct ht_policy_sums s = ht_policy_sum(&q->c, q->fates);
    double high = 0, low = q->c.device_bytes, last = low;
    for (int k = 0; k < HT_N_FATES; k++) high += s.bytes[k];
    for (int round = 0; round <= HALVINGS && low < high; round++) {
        q->c.device_bytes = last = round ? (low + high) / 2 : high; /* first everything */
        enum ht_status status = try(q, &why, needs);
        if (status && status != HT_INFEASIBLE && status != HT_BAD_INPUT) return ht_fail(err, status, "%s", why.text);
        if (status || needs->short_bytes[HT_DEVICE] || needs->short_bytes[HT_HOST])
            high = last;
        else
            low = last;
    }
    q->c.device_bytes = low;
    return last == low ? HT_OK : try(q, err, needs);
}

/* Returns the most bytes that other budgets could keep off a node's SSDs: of what is there, as much as the memories hold
   beside what they hold by now. No policy that uses SSDs recomputes. On a disk each activation is rounded up. */
static double sparable(const struct planner *q)
{
    struct ht_policy_sums s = ht_policy_sum(&q->c, q->fates);
    double device = (double)ht_scenario_device_bytes(q->request->scenario) - s.bytes[HT_FATE_KEPT];
    double room = fmax(0, device) + fmax(0, q->c.main_bytes - s.bytes[HT_FATE_MAIN]);
    if (s.bytes[HT_FATE_SSD] == 0) return 0;
    return sharers(q) * (fmin(room, s.bytes[HT_FATE_SSD]) + (double)q->c.n * HT_DISK_GRANULE);
}

/* Returns true if the GPU's budget is to be raised: for a faster plan; if any that fits will do, only where that may make
   room on SSDs that are too small. */
static bool is_worth_raising(const struct planner *q, const struct ht_needs *needs)
{
    double lacks = (double)needs->short_bytes[HT_DISK];
    if (needs->short_bytes[HT_DEVICE] || needs->short_bytes[HT_HOST]) return false;
    if (!q->request->settings || !q->request->settings->any_fit) return true;
    return lacks > 0 && lacks <= sparable(q);
}

/* Asks the policy until its schedule fits, or nothing is left to lower. */
static enum ht_status choose(struct planner *q, struct ht_error *err, struct ht_needs *needs)
{
    double device_budget = q->c.device_bytes;
    for (int round = 0; round < ROUNDS; round++) {
        enum ht_status status = try(q, err, needs);
        if (status) return status;
        if (round + 1 == ROUNDS || !lower(q, needs, device_budget)) break;
    }
    return is_worth_raising(q, needs) ? raise(q, err, needs) : HT_OK;
}

static void describe(const struct planner *q, struct ht_plan *out)
{
    static const char *const fates[HT_N_FATES] = {[HT_FATE_RECOMPUTED] = "A_recomputed",
                                                  [HT_FATE_MAIN] = "A_main",
                                                  [HT_FATE_SSD] = "A_ssd",
                                                  [HT_FATE_KEPT] = "A_kept"};
    struct ht_policy_sums s = ht_policy_sum(&q->c, q->fates);
    char text[HT_N_FATES][HT_QUANTITY_TEXT];
    for (int k = 0; k < HT_N_FATES; k++) ht_format_quantity(HT_BYTES, s.bytes[k], text[k]);
    snprintf(out->why, sizeof out->why, "%s: of the activations %s recomputed, %s to main memory, %s to SSD, %s kept",
             q->request->title, text[HT_FATE_RECOMPUTED], text[HT_FATE_MAIN], text[HT_FATE_SSD], text[HT_FATE_KEPT]);
    for (int k = 0; k < HT_N_FATES; k++) ht_plan_input(out, fates[k], "bytes", s.bytes[k]);
    ht_plan_input(out, "T_f", "s", q->c.forward_s);
    ht_plan_input(out, "T_b", "s", q->c.backward_s);
    ht_plan_input(out, "T_r", "s", s.recompute_s);
    ht_plan_input(out, "out", "B/s", q->c.out_bytes_per_s);
    ht_plan_input(out, "in", "B/s", q->c.in_bytes_per_s);
    ht_plan_input(out, "ssd_write", "B/s", q->c.ssd_write_bytes_per_s);
    ht_plan_input(out, "ssd_read", "B/s", q->c.ssd_read_bytes_per_s);
    ht_plan_input(out, "device_budget", "bytes", q->c.device_bytes);
    ht_plan_input(out, "main_budget", "bytes", q->c.main_bytes);
}

static enum ht_status check(const struct planner *q, struct ht_error *err)
{
    const struct ht_policy_request *r = q->request;
    enum ht_status status = ht_system_check(r->self, r->scenario, err);
    if (status) return status;
    if (!r->costs)
        return ht_fail(err, HT_BAD_INPUT, "%s needs the costs of a block; expected a profile", r->self->name);
    for (int part = 0; part <= HT_N_PARTS; part++) {
        bool fate = part < HT_N_PARTS;
        const struct ht_variable *v = ht_setting_variable(r->settings, fate ? ht_part_names[part] : "ahead");
        if (v && v->n != q->blocks)
            return ht_fail(err, HT_BAD_INPUT, "%s has %d elements; expected %d, one a block", v->name, (int)v->n,
                           (int)q->blocks);
        for (int32_t i = 0; v && fate && i < v->n; i++)
            if (v->values[i] == HT_FATE_SSD && !r->ssds)
                return ht_fail(err, HT_BAD_INPUT, "%s of block %d is to go to SSD; %s uses none", v->name, (int)i + 1,
                               r->self->name);
    }
    return HT_OK;
}

enum ht_status ht_policy_decide(const struct ht_policy_request *r, struct ht_error *err, struct ht_plan *out,
                                struct ht_needs *needs)
{
    struct planner q = {
        .request = r, .blocks = (int32_t)r->scenario->model.layers, .most_ahead = (int32_t)r->scenario->model.layers};
    struct ht_needs own;
    enum ht_status status = check(&q, err);
    if (status) return status;
    if (!needs) needs = &own;
    for (int tier = 0; tier < HT_N_TIERS; tier++) out->planned_bytes[tier] = -1;
    status = ht_policy_measure(r->scenario, r->costs, r->ssds, err, &q.c);
    q.fates = HT_NEW_ARRAY(enum ht_fate, q.c.n);
    if (!status) status = find_budgets(&q, err);
    if (!status) status = choose(&q, err, needs);
    if (!status) {
        set_fates(&q, out);
        describe(&q, out);
    }
    free(q.c.a);
    free(q.fates);
    return status;
}
