/* What a changed machine would bring, and how a way is written down. */
#include "harness/advise/internal.h"

#include "common/base/array.h"
#include "common/base/tasks.h"
#include "common/base/units.h"
#include "common/schedule/schedule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- changes --------------------------------------------------------------------------------------------------- */

static void double_memory(struct ht_cluster *c)
{
    for (int64_t i = 0; i < c->n_nodes; i++) c->nodes[i].ram_bytes *= 2;
}

static void double_slots(struct ht_cluster *c)
{
    for (int64_t i = 0; i < c->n_nodes; i++) {
        struct ht_machine *m = &c->nodes[i];
        m->pcie.bytes_per_s *= 2;
        m->pcie.through_host_bytes_per_s *= 2;
        m->through_host_bytes_per_s *= 2;
        m->message_bytes_per_s *= 2;
    }
}

static void double_network(struct ht_cluster *c)
{
    for (int64_t i = 0; i < c->n_nodes; i++) c->nodes[i].nic.bytes_per_s *= 2;
    for (int64_t i = 0; i < c->n_between; i++) c->between[i].link.bytes_per_s *= 2;
}

static void add_card(struct ht_cluster *c, const char *kind)
{
    for (int64_t i = 0; i < c->n_nodes; i++)
        for (int64_t g = 0; g < c->nodes[i].n_groups; g++)
            if (!strcmp(c->nodes[i].groups[g].gpu.name, kind)) {
                c->nodes[i].groups[g].count++;
                c->nodes[i].n_gpus++;
                c->n_gpus++;
                return;
            }
}

static bool has_disks(const struct ht_cluster *c)
{
    for (int64_t i = 0; i < c->n_nodes; i++)
        if (c->nodes[i].has_ssds) return true;
    return false;
}

/* Doubles the disks of every node, or gives each node two of a usual kind. */
static enum ht_status add_disks(struct ht_cluster *c, struct ht_error *err)
{
    if (!has_disks(c)) return ht_cluster_set_disks(c, "990-pro-2tb", 2, err);
    for (int64_t i = 0; i < c->n_nodes; i++) c->nodes[i].n_ssds *= 2;
    return HT_OK;
}

enum change { ADD_CARD, MORE_MEMORY, MORE_DISKS, FASTER_SLOTS, FASTER_NETWORK };

/* Returns whether a system may gain by a change: one of the best three, or one that the change may let run. */
static bool may_gain(const struct ht_search *s, size_t system, enum change change)
{
    size_t best[HT_ADVISE_BEST], n = ht_search_best(s, best, HT_ADVISE_BEST);
    const struct ht_way *way = &s->ways[system]; /* on all cards */
    for (size_t i = 0; i < n; i++)
        if (!strcmp(s->ways[best[i]].system, way->system)) return true;
    if (way->fits) return false;
    if (change == ADD_CARD) return way->lacks == 1 + HT_DEVICE;
    if (change == MORE_MEMORY) return way->lacks == 1 + HT_HOST;
    return change == MORE_DISKS;
}

/* A changed cluster, and the search over it. */
struct trial {
    struct ht_cluster *cluster;
    struct ht_search search;
    struct ht_change change;
};

struct trials {
    const struct ht_search *of;
    struct trial *list; /* [n] */
    size_t n, cap;
};

/* Makes a change and says what it is. i: the kind of card that is added. */
static enum ht_status change_cluster(const struct ht_device_kind *kinds, int64_t i, enum change change,
                                     struct ht_cluster *c, struct ht_error *err, char what[96])
{
    switch (change) {
    case ADD_CARD:
        snprintf(what, 96, "one more %s", kinds[i].gpu->name);
        add_card(c, kinds[i].gpu->name);
        return HT_OK;
    case MORE_MEMORY:
        snprintf(what, 96, "twice the main memory");
        double_memory(c);
        return HT_OK;
    case MORE_DISKS:
        snprintf(what, 96, "%s", has_disks(c) ? "twice the disks" : "two 990-pro-2tb disks a node");
        return add_disks(c, err);
    case FASTER_SLOTS:
        snprintf(what, 96, "slots (PCIe) twice as fast");
        double_slots(c);
        return HT_OK;
    case FASTER_NETWORK:
        snprintf(what, 96, "a network twice as fast");
        double_network(c);
        return HT_OK;
    }
    return HT_OK;
}

/* Returns the kinds of cards of the best way. */
static uint64_t best_kinds(const struct ht_search *s)
{
    size_t best;
    return s->cards[ht_search_best(s, &best, 1) ? s->ways[best].cards : 0].kinds;
}

/* Adds the trial of a change: of all cards of the changed cluster, and of those of the best way's kinds, with the systems
   that may gain. */
static enum ht_status add_trial(struct trials *t, const struct ht_device_kind *kinds, int64_t i, enum change change,
                                struct ht_error *err)
{
    const struct ht_search *s = t->of;
    char list[1024] = "";
    struct trial x = {.cluster = ht_cluster_copy(s->cluster)};
    for (size_t k = 0; k < s->n_systems; k++) {
        size_t used = strlen(list);
        if (may_gain(s, k, change)) snprintf(list + used, sizeof(list) - used, "%s%s", used ? "," : "", s->systems[k]);
    }
    enum ht_status status = change_cluster(kinds, i, change, x.cluster, err, x.change.what);
    if (status == HT_OK) status = ht_search_create(s->options, x.cluster, *list ? list : s->systems[0], err, &x.search);
    if (status != HT_OK) {
        ht_cluster_destroy(x.cluster);
        return status;
    }
    ht_search_take_cards(&x.search, best_kinds(s));
    HT_PUSH(t->list, t->n, t->cap, x);
    return HT_OK;
}

static enum ht_status list_trials(struct trials *t, struct ht_error *err)
{
    const struct ht_cluster *c = t->of->cluster;
    struct ht_device_kind *kinds = HT_NEW_ARRAY(struct ht_device_kind, c->n_gpus);
    int64_t n_kinds = ht_cluster_kinds(c, kinds);
    enum ht_status status = HT_OK;
    for (int64_t i = 0; i < n_kinds + 4 && status == HT_OK && !c->local; i++) {
        enum change change = i < n_kinds ? ADD_CARD : (enum change)(i - n_kinds + 1);
        if (change != FASTER_NETWORK || c->n_nodes > 1) status = add_trial(t, kinds, i, change, err);
    }
    free(kinds);
    return status;
}

/* Takes a trial's best rate, or that of the search it comes from where this is better: nobody has to use a change. Its
   systems' names are that search's. */
static void take_best(const struct ht_search *s, struct trial *x)
{
    size_t best, before;
    bool any = ht_search_best(&x->search, &best, 1) > 0, had = ht_search_best(s, &before, 1) > 0;
    const struct ht_way *way = any ? &x->search.ways[best] : NULL;
    if (had && (!any || s->ways[before].tokens_per_s > way->tokens_per_s)) way = &s->ways[before];
    if (!way) return;
    x->change.tokens_per_s = way->tokens_per_s;
    for (size_t i = 0; i < s->n_systems; i++)
        if (!strcmp(s->systems[i], way->system)) x->change.system = s->systems[i];
}

static enum ht_status run_trial_way(void *ctx, size_t i, struct ht_error *err)
{
    struct trials *t = ctx;
    size_t k = 0;
    while (i >= t->list[k].search.n_ways) i -= t->list[k++].search.n_ways;
    return ht_search_try(&t->list[k].search, i, false, err);
}

enum ht_status ht_changes_try(const struct ht_search *s, struct ht_error *err, struct ht_change *changes, size_t max,
                              size_t *n)
{
    struct trials t = {.of = s};
    struct ht_tasks tasks = {.name = "advise, changed machines", .noun = "ways", .ctx = &t, .run = run_trial_way};
    enum ht_status status = list_trials(&t, err);
    for (size_t i = 0; i < t.n && status == HT_OK; i++) {
        tasks.n += t.list[i].search.n_ways;
        status = ht_search_find_ceilings(&t.list[i].search, err);
    }
    if (status == HT_OK) status = ht_tasks_run(&tasks, err);
    *n = 0;
    for (size_t i = 0; i < t.n; i++) {
        take_best(s, &t.list[i]);
        if (status == HT_OK && *n < max) changes[(*n)++] = t.list[i].change;
        ht_search_free(&t.list[i].search);
        ht_cluster_destroy(t.list[i].cluster);
    }
    free(t.list);
    return status;
}

/* ---- a way's command ------------------------------------------------------------------------------------------- */

/* A command line that grows up to its buffer. */
struct line {
    char *text;
    size_t bytes, used;
};

__attribute__((format(printf, 2, 3))) static void add(struct line *l, const char *fmt, ...)
{
    va_list ap;
    if (l->used >= l->bytes) return;
    va_start(ap, fmt);
    l->used += (size_t)vsnprintf(l->text + l->used, l->bytes - l->used, fmt, ap);
    va_end(ap);
}

static void add_text(struct line *l, const char *option, const char *value)
{
    if (!value) return;
    bool plain =
        value[strspn(value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.,:/=+%@")] == '\0';
    add(l, plain ? " --%s %s" : " --%s '%s'", option, value);
}

static void add_count(struct line *l, const char *option, int64_t value)
{
    if (value) add(l, " --%s %lld", option, (long long)value);
}

static void add_bytes(struct line *l, const char *option, int64_t bytes)
{
    if (bytes) add(l, " --%s %lldB", option, (long long)bytes);
}

void ht_way_command(const struct ht_search *s, const struct ht_way *way, char *text, size_t bytes)
{
    struct line l = {text, bytes, 0};
    struct ht_options o;
    ht_way_apply(s, way, &o);
    if (!s->options->request.numerics && way->numerics == s->numerics[0]) o.request.numerics = NULL; /* the default */
    const struct ht_scenario_request *r = &o.request, *given = &s->options->request;
    const struct ht_parts_options *p = &s->options->parts;
    add(&l, "hetbench sim %s", way->system);
    add_text(&l, "model", r->model);
    if (p->gpus) {
        add_text(&l, "gpus", p->gpus);
        add_text(&l, "ram", p->ram);
        add_text(&l, "cpu", p->cpu);
        add_text(&l, "link", p->link);
        add_text(&l, "nvlink", p->nvlink);
        add_text(&l, "nic", p->nic);
        add_text(&l, "ssd", p->ssd);
    } else {
        add_text(&l, "cluster", r->cluster);
    }
    add_text(&l, "only", r->only ? r->only : given->only);
    add_text(&l, "only-nodes", given->only_nodes);
    if (!r->only) add_count(&l, "ranks", given->ranks);
    add_count(&l, "batch", r->batch);
    add_count(&l, "micro-batch", r->micro_batch);
    add_count(&l, "seq", r->seq);
    add_text(&l, "numerics", r->numerics);
    add_text(&l, "accumulate", r->accumulate);
    add_text(&l, "control", r->control);
    if (r->clip > 0) add(&l, " --clip %.17g", r->clip);
    add_text(&l, "loss-scale", r->loss_scale);
    add_text(&l, "software", r->software);
    add_bytes(&l, "device-memory", given->device_memory_bytes);
    add_bytes(&l, "host-memory", given->host_memory_bytes);
    if (given->ssds == HT_NO_SSDS) add(&l, " --ssds 0");
    if (given->ssds > 0) add_count(&l, "ssds", given->ssds);
    if (given->through_host_bytes_per_s > 0) add(&l, " --through-host '%.17g B/s'", given->through_host_bytes_per_s);
    for (int64_t i = 0; i < o.plan.n_set; i++) add_text(&l, "set", o.plan.set[i]);
    for (int64_t i = 0; i < o.plan.n_profiles; i++) add_text(&l, "profile", o.plan.profiles[i]);
}
