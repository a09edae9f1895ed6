#include "harness/elastic/command.h"

#include "common/base/array.h"
#include "harness/elastic/policy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ht_args_add(struct ht_args *w, const char *word)
{
    HT_PUSH(w->words, w->n, w->cap, ht_strdup(word));
}

void ht_args_add_option(struct ht_args *w, const char *name, const char *value)
{
    char flag[64];
    snprintf(flag, sizeof(flag), "--%s", name);
    ht_args_add(w, flag);
    if (value) ht_args_add(w, value);
}

void ht_args_end(struct ht_args *w)
{
    HT_RESERVE(w->words, w->cap, w->n + 1);
    w->words[w->n] = NULL;
}

void ht_args_free(struct ht_args *w)
{
    for (size_t i = 0; i < w->n; i++) free(w->words[i]);
    free(w->words);
    *w = (struct ht_args){0};
}

static bool is_one_of(const char *name, const char *const *names)
{
    while (names && *names && strcmp(*names, name) != 0) names++;
    return names && *names;
}

void ht_command_begin(struct ht_args *w, const char *command, const struct ht_options *o, unsigned own,
                      const char *const *without)
{
    static const char *const replaced[] = {"json",   "resume",         "replicas",    "nodes", "only-nodes",
                                           "events", "inject-process", "load-remote", NULL};
    ht_args_add(w, "hetbench");
    ht_args_add(w, command);
    for (int64_t i = 0; i < o->n_words; i++) ht_args_add(w, o->words[i]);
    for (int64_t i = 0; i < o->n_given; i++) {
        const struct ht_given_option *g = &o->given[i];
        bool out = g->groups == own || is_one_of(g->name, replaced) || is_one_of(g->name, without);
        if (!out) ht_args_add_option(w, g->name, g->value);
    }
    char number[24];
    snprintf(number, sizeof(number), "%lld", (long long)o->request.nodes);
    if (o->request.nodes) ht_args_add_option(w, "nodes", number);
}

/* Writes "a:2,b:2": the hosts of the ranks, in their order. Returns false if all are local. */
static bool list_hosts(const struct ht_choice *c, const struct ht_members *m, char *list, size_t cap)
{
    bool away = false;
    size_t n = 0;
    for (int32_t r = 0; r < c->n_ranks; r++) {
        int32_t node = c->rank_node[r], slots = 0;
        if (r > 0 && c->rank_node[r - 1] == node) continue;
        for (int32_t k = r; k < c->n_ranks && c->rank_node[k] == node; k++) slots++;
        away |= strcmp(m->nodes[node].host, "localhost") != 0;
        n += (size_t)snprintf(list + n, n < cap ? cap - n : 0, "%s%s:%d", n ? "," : "", m->nodes[node].host, slots);
    }
    return away;
}

/* Returns true for a policy that reads the remote store alone. */
static bool loads_from_remote(const struct ht_options *o)
{
    const struct ht_policy *policy;
    struct ht_error ignored;
    return o->elastic.policy && ht_policy_find(o->elastic.policy, &ignored, &policy) == HT_OK &&
           policy->source == HT_FROM_REMOTE;
}

void ht_command_add_incarnation(struct ht_args *w, const struct ht_options *o, const struct ht_choice *choice,
                                const struct ht_members *members, const char *events, const char *fault)
{
    char number[24], hosts[HT_MEMBER_LIST];
    int64_t others = ht_list_count(choice->use) - 1, replicas = o->state.replicas < others ? o->state.replicas : others;
    snprintf(number, sizeof(number), "%lld", (long long)replicas);
    ht_args_add_option(w, "resume", NULL);
    if (loads_from_remote(o)) ht_args_add_option(w, "load-remote", NULL);
    ht_args_add_option(w, "only-nodes", choice->use);
    for (int32_t i = 0; i < choice->n_sets; i++) ht_args_add_option(w, "set", choice->sets[i]);
    if (replicas) ht_args_add_option(w, "replicas", number);
    if (choice->n_ranks > 1 && list_hosts(choice, members, hosts, sizeof(hosts))) ht_args_add_option(w, "hosts", hosts);
    if (events) ht_args_add_option(w, "events", events);
    if (fault) ht_args_add_option(w, "inject-process", fault);
    ht_args_end(w);
}
