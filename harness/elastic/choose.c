#include "harness/elastic/choose.h"

#include "common/base/array.h"
#include "harness/elastic/policy_plan.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TRIES = 256 }; /* subsets of the nodes, the largest first */

struct ht_chooser {
    struct ht_options options; /* a copy, whose nodes each try sets */
    pthread_mutex_t lock;      /* guards all below; held while choosing */
    struct ht_choice **known;
    size_t n, cap;
    pthread_t thread;
    bool threaded;
    atomic_bool stop; /* the thread has to end */
    char ahead[HT_MEMBER_LIST];
    struct ht_policy_nodes *policy; /* NULL: as many nodes as can be */
    char running[HT_MEMBER_LIST];
};

static enum ht_status make_policy(struct ht_chooser *c, struct ht_error *err)
{
    const struct ht_options *o = &c->options;
    const struct ht_policy *policy;
    if (!o->elastic.policy) return HT_OK;
    enum ht_status status = ht_policy_find(o->elastic.policy, err, &policy);
    if (status == HT_OK && strcmp(policy->system, o->words[0]) != 0)
        status = ht_fail(err, HT_BAD_INPUT, "--policy: '%s' plans with '%s'; expected that instead of '%.60s'",
                         policy->name, policy->system, o->words[0]);
    if (status == HT_OK && policy->source == HT_FROM_REMOTE && !o->state.store_remote)
        status = ht_fail(err, HT_BAD_INPUT, "--policy: '%s' loads from the remote store; --store-remote DIR is missing",
                         policy->name);
    return status ? status : ht_policy_nodes_create(o, policy, (int32_t)o->elastic.least, err, &c->policy);
}

enum ht_status ht_chooser_create(const struct ht_options *options, struct ht_error *err, struct ht_chooser **out)
{
    struct ht_chooser *c = HT_NEW(struct ht_chooser);
    c->options = *options;
    pthread_mutex_init(&c->lock, NULL);
    enum ht_status status = make_policy(c, err);
    if (status)
        ht_chooser_destroy(c);
    else
        *out = c;
    return status;
}

static void free_choice(struct ht_choice *x)
{
    for (int32_t i = 0; i < HT_MAX_SET; i++) free(x->sets[i]);
    free(x->rank_node);
    free(x);
}

static void join(struct ht_chooser *c)
{
    atomic_store(&c->stop, true);
    if (c->threaded) pthread_join(c->thread, NULL);
    c->threaded = false;
    atomic_store(&c->stop, false);
}

void ht_chooser_destroy(struct ht_chooser *c)
{
    if (!c) return;
    join(c);
    for (size_t i = 0; i < c->n; i++) free_choice(c->known[i]);
    free(c->known);
    ht_policy_nodes_destroy(c->policy);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

static bool is_given(const struct ht_options *o, const char *name)
{
    size_t n = strlen(name);
    for (int64_t i = 0; i < o->plan.n_set; i++)
        if (!strncmp(o->plan.set[i], name, n) && o->plan.set[i][n] == '=') return true;
    return false;
}

static bool is_knob(const struct ht_system *system, const char *name)
{
    const struct ht_knob *k = system->knobs;
    while (k && k->name && strcmp(k->name, name) != 0) k++;
    return k && k->name;
}

/* Writes "NAME=VALUE" for each of the plan's variables that --set can force and the user has not. Returns their number. */
static int32_t write_sets(const struct ht_options *o, const struct ht_job *job, char *sets[HT_MAX_SET])
{
    int32_t n = 0;
    for (int i = 0; i < job->plan.n_variables && o->plan.n_set + n < HT_MAX_SET; i++) {
        const struct ht_variable *v = &job->plan.variables[i];
        size_t bytes;
        if (is_given(o, v->name) || !is_knob(job->system, v->name)) continue;
        FILE *f = open_memstream(&sets[n], &bytes);
        if (!f) break;
        fprintf(f, "%s=", v->name);
        ht_variable_print(v, f);
        fclose(f);
        n++;
    }
    return n;
}

/* Plans and proves a training over some nodes. */
static enum ht_status try(struct ht_chooser *c, const char *nodes, struct ht_choice *out, struct ht_error *err)
{
    struct ht_job job;
    struct ht_options o = c->options;
    o.request.only_nodes = nodes;
    enum ht_status status = ht_job_create(&o, NULL, NULL, HT_JOB_TRAINABLE, err, &job);
    if (status != HT_OK) return status;
    if (job.answer != HT_OK) {
        status = ht_fail(err, HT_INFEASIBLE, "%s", job.reason);
    } else {
        const struct ht_schedule *s = job.schedule;
        out->n_ranks = s->n_ranks;
        out->rank_node = HT_NEW_ARRAY(int32_t, s->n_ranks);
        for (int32_t r = 0; r < s->n_ranks; r++)
            out->rank_node[r] = job.scenario.cluster->nodes[s->rank_node[r]].number;
        memcpy(out->use, nodes, strlen(nodes) + 1);
        out->graph = ht_schedule_hash(s);
        out->n_tried = write_sets(&o, &job, out->sets);
    }
    ht_job_free(&job);
    return status;
}

/* Returns true if the choice's sets, in place of the planner, lead to the same graph. */
static bool sets_suffice(const struct ht_chooser *c, const struct ht_choice *x)
{
    struct ht_job job;
    struct ht_error ignored = {0};
    struct ht_options o = c->options;
    o.request.only_nodes = x->use;
    for (int32_t i = 0; i < x->n_tried; i++) o.plan.set[o.plan.n_set++] = x->sets[i];
    if (ht_job_create(&o, NULL, NULL, HT_JOB_TRAINABLE, &ignored, &job) != HT_OK) return false;
    bool suffice = job.answer == HT_OK && ht_schedule_hash(job.schedule) == x->graph;
    ht_job_free(&job);
    return suffice;
}

/* Finds once whether a choice can be handed over. Locked. */
static void ready(const struct ht_chooser *c, struct ht_choice *x)
{
    if (x->status == HT_OK && x->n_tried && sets_suffice(c, x)) x->n_sets = x->n_tried;
    x->n_tried = 0;
}

/* Writes the nodes at the picked places of a list. */
static void subset(const char *nodes, const int32_t *picked, int32_t k, char list[HT_MEMBER_LIST])
{
    list[0] = '\0';
    for (int32_t i = 0; i < k; i++) ht_list_add(list, ht_list_at(nodes, picked[i]));
}

/* Moves on to the next k of n places, in lexicographic order. Returns false behind the last. */
static bool next_subset(int32_t *picked, int32_t k, int32_t n)
{
    int32_t i = k - 1;
    while (i >= 0 && picked[i] == n - k + i) i--;
    if (i < 0) return false;
    picked[i]++;
    for (int32_t j = i + 1; j < k; j++) picked[j] = picked[j - 1] + 1;
    return true;
}

/* Tries subsets until one can be planned, the largest first and, of equally large ones, those with the first nodes first. */
static void choose(struct ht_chooser *c, struct ht_choice *out)
{
    int32_t n = ht_list_count(out->of), *picked = HT_NEW_ARRAY(int32_t, n), tries = 0;
    char list[HT_MEMBER_LIST];
    out->status = ht_fail(&out->error, HT_INFEASIBLE, "there is no node");
    for (int32_t k = n; k > 0 && tries < MOST_TRIES; k--) {
        for (int32_t i = 0; i < k; i++) picked[i] = i;
        do {
            struct ht_error why = {0};
            subset(out->of, picked, k, list);
            enum ht_status status = try(c, list, out, &why);
            if (status == HT_OK || tries == 0) out->status = status, out->error = why;
            if (status == HT_OK) goto out;
            tries++;
        } while (tries < MOST_TRIES && next_subset(picked, k, n));
    }
out:
    free(picked);
}

/* Plans for the nodes that the policy takes; without any, `out` has the policy's reason. */
static void take_policys(struct ht_chooser *c, const char *use, const struct ht_error *why, struct ht_choice *out)
{
    if (why->status) {
        out->status = why->status;
        out->error = *why;
    } else {
        out->status = try(c, use, out, &out->error);
    }
}

/* Returns what is known of some nodes, or finds it. Locked. */
static struct ht_choice *find(struct ht_chooser *c, const char *nodes)
{
    char use[HT_MEMBER_LIST] = "";
    struct ht_error why = {0};
    if (c->policy) why.status = ht_policy_nodes_choose(c->policy, nodes, c->running, &why, use);
    for (size_t i = 0; i < c->n; i++)
        if (!strcmp(c->known[i]->of, nodes) && (!c->policy || !strcmp(c->known[i]->use, use))) return c->known[i];
    struct ht_choice *x = HT_NEW(struct ht_choice);
    memcpy(x->of, nodes, strlen(nodes) + 1);
    if (c->policy)
        take_policys(c, use, &why, x);
    else
        choose(c, x);
    HT_PUSH(c->known, c->n, c->cap, x);
    return x;
}

enum ht_status ht_choose(struct ht_chooser *c, const char *nodes, struct ht_error *err, const struct ht_choice **out)
{
    pthread_mutex_lock(&c->lock);
    size_t before = c->n;
    struct ht_choice *x = find(c, nodes);
    x->beforehand = c->n == before;
    x->taken = true;
    pthread_mutex_unlock(&c->lock);
    *out = x;
    return x->status == HT_OK ? HT_OK : ht_fail(err, x->status, "%s", x->error.text);
}

void ht_chooser_keep(struct ht_chooser *c, const char *nodes)
{
    pthread_mutex_lock(&c->lock);
    snprintf(c->running, sizeof(c->running), "%s", nodes);
    pthread_mutex_unlock(&c->lock);
}

void ht_choose_ready(struct ht_chooser *c, const char *nodes)
{
    pthread_mutex_lock(&c->lock);
    ready(c, find(c, nodes));
    pthread_mutex_unlock(&c->lock);
}

static void *choose_losses(void *arg)
{
    struct ht_chooser *c = arg;
    char list[HT_MEMBER_LIST];
    int32_t n = ht_list_count(c->ahead), begin = n > 1 ? 0 : 2 * n;
    for (int32_t k = begin; k <= 2 * n && !atomic_load(&c->stop); k++) { /* all are chosen before any is readied */
        list[0] = '\0';
        for (int32_t i = 0; i < n; i++)
            if (k == 2 * n || i != k % n) ht_list_add(list, ht_list_at(c->ahead, i));
        pthread_mutex_lock(&c->lock);
        struct ht_choice *x = find(c, list);
        if (k >= n && !x->taken) ready(c, x);
        pthread_mutex_unlock(&c->lock);
    }
    return NULL;
}

void ht_choose_ahead(struct ht_chooser *c, const char *nodes)
{
    join(c);
    memcpy(c->ahead, nodes, strlen(nodes) + 1);
    for (size_t i = 0; i < c->n; i++) c->known[i]->taken = false;
    c->threaded = pthread_create(&c->thread, NULL, choose_losses, c) == 0;
}
