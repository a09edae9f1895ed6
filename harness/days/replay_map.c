#include "harness/days/replay_map.h"

#include "common/base/array.h"
#include "common/base/rng.h"
#include "harness/elastic/policy.h"

#include <stdlib.h>
#include <string.h>

/* A local node. */
struct local {
    int32_t kind, life; /* node of the local trace; -1: not there */
    int32_t lives;
    bool noticed;
};

struct mapping {
    struct ht_local_day *out;
    struct local *nodes; /* [n_local] */
    int32_t k[HT_FLEET_KINDS];
    size_t slot_cap, kind_cap, n_slots, n_kinds;
    uint64_t seed, drawn;
    int64_t now_ns;
};

static void init(struct mapping *m, const struct ht_cluster *cluster, uint64_t seed, struct ht_local_day *out)
{
    *out = (struct ht_local_day){.n_local = (int32_t)cluster->n_nodes};
    *m = (struct mapping){.out = out, .seed = seed, .nodes = HT_NEW_ARRAY(struct local, cluster->n_nodes)};
    for (int32_t i = 0, kind = 0; i < out->n_local; i++) {
        kind += i && cluster->nodes[i].group != cluster->nodes[i - 1].group;
        m->nodes[i] = (struct local){.kind = kind, .life = -1};
        if (kind < HT_FLEET_KINDS) m->k[kind]++;
    }
}

static void add_event(struct mapping *m, int32_t life, enum ht_spot_kind kind)
{
    struct ht_spot_trace *t = &m->out->trace;
    struct ht_spot_event e = {m->now_ns, life, kind};
    HT_PUSH(t->events, t->n_events, t->events_cap, e);
}

static void join(struct mapping *m, int32_t i)
{
    struct ht_spot_trace *t = &m->out->trace;
    struct local *x = &m->nodes[i];
    struct ht_spot_node node = {0};
    snprintf(node.name, sizeof(node.name), "node%d.%d", i, ++x->lives);
    x->life = (int32_t)t->n_nodes;
    x->noticed = false;
    HT_PUSH(t->nodes, t->n_nodes, t->nodes_cap, node);
    HT_PUSH(m->out->slot, m->n_slots, m->slot_cap, i);
    HT_PUSH(m->out->kind_of, m->n_kinds, m->kind_cap, x->kind);
    add_event(m, x->life, HT_SPOT_JOINED);
}

static void lose(struct mapping *m, int32_t i)
{
    add_event(m, m->nodes[i].life, HT_SPOT_LOST);
    m->nodes[i].life = -1;
}

/* Counts a kind's nodes that are there: all (noticed -1), or those that have had notice (1) or not (0). */
static int32_t count(const struct mapping *m, int32_t kind, int noticed)
{
    int32_t n = 0;
    for (int32_t i = 0; i < m->out->n_local; i++) {
        const struct local *x = &m->nodes[i];
        n += x->kind == kind && x->life >= 0 && (noticed < 0 || x->noticed == (noticed == 1));
    }
    return n;
}

/* Draws one of a kind's nodes that are there; those that have had notice first. */
static int32_t draw(struct mapping *m, int32_t kind)
{
    bool noticed = count(m, kind, 1) > 0;
    int32_t left = (int32_t)ht_random_below(m->seed, m->drawn++, (uint64_t)count(m, kind, noticed)), i = 0;
    for (;; i++) {
        const struct local *x = &m->nodes[i];
        if (x->kind == kind && x->life >= 0 && x->noticed == noticed && left-- == 0) return i;
    }
}

static int32_t first_absent(const struct mapping *m, int32_t kind)
{
    int32_t i = 0;
    while (m->nodes[i].kind != kind || m->nodes[i].life >= 0) i++;
    return i;
}

/* Gives notice to a node that has had none. */
static void notice(struct mapping *m, int32_t kind)
{
    int32_t left = (int32_t)ht_random_below(m->seed, m->drawn++, (uint64_t)count(m, kind, 0)), i = 0;
    while (m->nodes[i].kind != kind || m->nodes[i].life < 0 || m->nodes[i].noticed || left-- > 0) i++;
    m->nodes[i].noticed = true;
    add_event(m, m->nodes[i].life, HT_SPOT_NOTICE);
}

/* Lets local nodes of a kind come and go until `want` are there, of which `staying` have had no notice. */
static void follow(struct mapping *m, int32_t kind, int32_t want, int32_t staying, bool first)
{
    int32_t have = count(m, kind, -1);
    for (; have > want; have--) {
        lose(m, draw(m, kind));
        m->out->losses++;
    }
    for (; have < want; have++) {
        join(m, first_absent(m, kind));
        m->out->at_first += first;
        m->out->joins += !first;
    }
    while (count(m, kind, 0) > staying) notice(m, kind);
}

/* The trace's nodes of each kind. */
struct live {
    int32_t there[HT_FLEET_KINDS], noticed[HT_FLEET_KINDS], most[HT_FLEET_KINDS];
};

static int32_t share(int32_t k, int32_t live, int32_t most)
{
    return most ? (int32_t)(((int64_t)k * live + most - 1) / most) : 0;
}

static void take_event(struct live *l, bool *noticed, const struct ht_spot_event *e, int32_t kind)
{
    if (e->kind == HT_SPOT_JOINED) l->there[kind]++;
    if (e->kind == HT_SPOT_NOTICE) l->noticed[kind]++, noticed[e->node] = true;
    if (e->kind != HT_SPOT_LOST) return;
    l->there[kind]--;
    if (noticed[e->node]) l->noticed[kind]--;
}

static struct live most_of(const struct ht_spot_trace *t, const int32_t *kind_of, bool *noticed)
{
    struct live l = {{0}, {0}, {0}};
    for (size_t i = 0; i < t->n_events; i++) {
        int32_t kind = kind_of[t->events[i].node];
        take_event(&l, noticed, &t->events[i], kind);
        if (l.there[kind] > l.most[kind]) l.most[kind] = l.there[kind];
    }
    memset(l.there, 0, sizeof(l.there));
    memset(l.noticed, 0, sizeof(l.noticed));
    memset(noticed, 0, t->n_nodes);
    return l;
}

/* Takes over the state of a moment. */
static void follow_all(struct mapping *m, const struct live *l, bool first)
{
    for (int32_t kind = 0; kind < HT_FLEET_KINDS; kind++) {
        int32_t k = m->k[kind], want = share(k, l->there[kind], l->most[kind]),
                staying = share(k, l->there[kind] - l->noticed[kind], l->most[kind]);
        follow(m, kind, want, staying, first);
    }
}

/* Lists the lives of local node 0, then those of node 1, .. */
static void order(struct ht_local_day *d)
{
    int32_t n = 0;
    d->order = HT_NEW_ARRAY(int32_t, d->trace.n_nodes);
    for (int32_t slot = 0; slot < d->n_local; slot++)
        for (size_t i = 0; i < d->trace.n_nodes; i++)
            if (d->slot[i] == slot) d->order[n++] = (int32_t)i;
}

enum ht_status ht_replay_map(const struct ht_spot_trace *t, const int32_t *kind_of, const struct ht_cluster *cluster,
                             uint64_t seed, int64_t most_changes, struct ht_error *err, struct ht_local_day *out)
{
    struct mapping m;
    bool *noticed = HT_NEW_ARRAY(bool, t->n_nodes);
    init(&m, cluster, seed, out);
    struct live l = most_of(t, kind_of, noticed);
    for (size_t i = 0; i < t->n_events;) {
        m.now_ns = t->events[i].time_ns;
        bool first = m.now_ns == t->events[0].time_ns;
        for (; i < t->n_events && t->events[i].time_ns == m.now_ns; i++)
            take_event(&l, noticed, &t->events[i], kind_of[t->events[i].node]);
        int64_t before = out->joins + out->losses;
        follow_all(&m, &l, first);
        out->moments += !first;
        out->changing += !first && out->joins + out->losses > before;
        if (most_changes && out->changing == most_changes) break;
    }
    free(noticed);
    free(m.nodes);
    order(out);
    if (out->trace.n_events) return HT_OK;
    ht_local_day_free(out);
    return ht_fail(err, HT_BAD_INPUT, "--trace: no local node is ever there");
}

void ht_replay_draw(const struct ht_cluster *cluster, int64_t n, int64_t gap_ns, uint64_t seed,
                    struct ht_local_day *out)
{
    struct mapping m;
    init(&m, cluster, seed, out);
    for (int32_t i = 0; i < out->n_local; i++) join(&m, i);
    out->at_first = out->n_local;
    int32_t there = out->n_local;
    for (int64_t i = 0; i < n; i++) {
        m.now_ns += gap_ns;
        bool full = there == out->n_local, few = there <= (out->n_local + 1) / 2;
        bool loses = out->n_local > 1 && (full || (!few && ht_random_below(seed, m.drawn++, 2)));
        int32_t first = (int32_t)ht_random_below(seed, m.drawn++, (uint64_t)out->n_local);
        while (out->n_local > 1 && (m.nodes[first].life >= 0) != loses) first = (first + 1) % out->n_local;
        if (loses)
            lose(&m, first), there--, out->losses++;
        else if (out->n_local > 1)
            join(&m, first), there++, out->joins++;
    }
    out->moments = out->changing = out->losses + out->joins;
    free(m.nodes);
    order(out);
}

void ht_local_day_free(struct ht_local_day *d)
{
    ht_spot_trace_free(&d->trace);
    free(d->slot);
    free(d->kind_of);
    free(d->order);
    *d = (struct ht_local_day){0};
}
