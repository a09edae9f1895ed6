/* What a changed machine would bring, and how a way is written down. */
#include "harness/advise/advise.h"

#include "common/base/array.h"
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

/* Returns whether a system may gain by a change: one of the best four, or one that the change may let run. */
static bool may_gain(const struct ht_search *s, size_t system, enum change change)
{
    size_t best[4], n = ht_search_best(s, best, 4);
    const struct ht_way *way = &s->ways[system]; /* on all cards */
    for (size_t i = 0; i < n; i++)
        if (!strcmp(s->ways[best[i]].system, way->system)) return true;
    if (way->fits) return false;
    if (change == ADD_CARD) return way->lacks == 1 + HT_DEVICE;
    if (change == MORE_MEMORY) return way->lacks == 1 + HT_HOST;
    return change == MORE_DISKS;
}

/* Searches all cards of a changed cluster. */
static enum ht_status try_change(const struct ht_search *s, const struct ht_cluster *changed, enum change change,
                                 struct ht_error *err, struct ht_change *out)
{
    char list[1024] = "";
    struct ht_search own;
    size_t best;
    for (size_t i = 0; i < s->n_systems; i++) {
        size_t used = strlen(list);
        if (may_gain(s, i, change)) snprintf(list + used, sizeof(list) - used, "%s%s", used ? "," : "", s->systems[i]);
    }
    enum ht_status status = ht_search_create(s->options, changed, *list ? list : s->systems[0], err, &own);
    if (status != HT_OK) return status;
    own.n_cards = 1;
    status = ht_search_run(&own, false, err);
    out->tokens_per_s = 0;
    if (ht_search_best(&own, &best, 1)) {
        out->tokens_per_s = own.ways[best].tokens_per_s;
        for (size_t i = 0; i < s->n_systems; i++)
            if (!strcmp(s->systems[i], own.ways[best].system)) out->system = s->systems[i];
    }
    ht_search_free(&own);
    return status;
}

enum ht_status ht_changes_try(const struct ht_search *s, struct ht_error *err, struct ht_change *changes, size_t max,
                              size_t *n)
{
    struct ht_device_kind *kinds = HT_NEW_ARRAY(struct ht_device_kind, s->cluster->n_gpus);
    int64_t n_kinds = ht_cluster_kinds(s->cluster, kinds);
    enum ht_status status = HT_OK;
    *n = 0;
    for (int64_t i = 0; i < n_kinds + 4 && *n < max && status == HT_OK; i++) {
        enum change kind = i < n_kinds ? ADD_CARD : (enum change)(i - n_kinds + 1);
        struct ht_change c = {0};
        if (kind == FASTER_NETWORK && s->cluster->n_nodes < 2) continue;
        struct ht_cluster *changed = ht_cluster_copy(s->cluster);
        switch (kind) {
        case ADD_CARD:
            snprintf(c.what, sizeof(c.what), "one more %s", kinds[i].gpu->name);
            add_card(changed, kinds[i].gpu->name);
            break;
        case MORE_MEMORY:
            snprintf(c.what, sizeof(c.what), "twice the main memory");
            double_memory(changed);
            break;
        case MORE_DISKS:
            snprintf(c.what, sizeof(c.what), "%s",
                     has_disks(changed) ? "twice the disks" : "two 990-pro-2tb disks a node");
            status = add_disks(changed, err);
            break;
        case FASTER_SLOTS:
            snprintf(c.what, sizeof(c.what), "slots (PCIe) twice as fast");
            double_slots(changed);
            break;
        case FASTER_NETWORK:
            snprintf(c.what, sizeof(c.what), "a network twice as fast");
            double_network(changed);
            break;
        }
        if (status == HT_OK) status = try_change(s, changed, kind, err, &c);
        if (status == HT_OK) changes[(*n)++] = c;
        ht_cluster_destroy(changed);
    }
    free(kinds);
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
    const struct ht_scenario_request *r = &o.request;
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
    add_text(&l, "only", r->only);
    add_count(&l, "batch", r->batch);
    add_count(&l, "micro-batch", r->micro_batch);
    add_count(&l, "seq", r->seq);
    add_text(&l, "numerics", r->numerics);
    add_text(&l, "accumulate", r->accumulate);
    add_text(&l, "control", r->control);
    if (r->clip > 0) add(&l, " --clip %.17g", r->clip);
    add_text(&l, "loss-scale", r->loss_scale);
    add_text(&l, "software", r->software);
    add_bytes(&l, "device-memory", r->device_memory_bytes);
    add_bytes(&l, "host-memory", r->host_memory_bytes);
    add_count(&l, "ssds", r->ssds);
    if (r->through_host_bytes_per_s > 0) add(&l, " --through-host '%.17g B/s'", r->through_host_bytes_per_s);
    for (int64_t i = 0; i < o.plan.n_profiles; i++) add_text(&l, "profile", o.plan.profiles[i]);
}
