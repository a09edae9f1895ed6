#include "harness/days/traces/spot_trace.h"

#include "common/base/array.h"
#include "common/base/builtin.h"
#include "common/base/rng.h"
#include "common/base/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

HT_EMBED(ht_oobleck_p3, "harness/days/traces/oobleck_p3.csv");
HT_EMBED(ht_oobleck_g4dn, "harness/days/traces/oobleck_g4dn.csv");
HT_EMBED(ht_bamboo_a100, "harness/days/traces/bamboo_a100.csv");
HT_EMBED(ht_bamboo_p2, "harness/days/traces/bamboo_p2.csv");

static const struct ht_builtin builtins[] = {
    {"oobleck-p3", ht_oobleck_p3, ht_oobleck_p3_end},
    {"oobleck-g4dn", ht_oobleck_g4dn, ht_oobleck_g4dn_end},
    {"bamboo-a100", ht_bamboo_a100, ht_bamboo_a100_end},
    {"bamboo-p2", ht_bamboo_p2, ht_bamboo_p2_end},
};
const char *const ht_spot_kind_names[HT_N_SPOT_KINDS] = {"joined", "lost", "notice"};

enum { COLUMNS = 4, MAX_EVENTS = 1 << 20 };
#define MAX_S     1e8 /* three years */
#define MAX_BYTES ((size_t)64 << 20)

void ht_spot_trace_free(struct ht_spot_trace *t)
{
    free(t->events);
    free(t->nodes);
    *t = (struct ht_spot_trace){0};
}

bool ht_spot_trace_name(int64_t index, char *buf, size_t bytes)
{
    if (index < 0 || index >= (int64_t)HT_COUNT(builtins)) return false;
    snprintf(buf, bytes, "%s", builtins[index].name);
    return true;
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

/* A name's node, found by hashing. */
struct parser {
    const char *name; /* of the file */
    int64_t line;
    int n_columns;
    int64_t last_ns;
    struct ht_spot_trace *trace;
    int32_t *table; /* [table_n], a power of two: node + 1, or 0 */
    size_t table_n;
    unsigned char *state; /* by node: what it went through, 1 << enum ht_spot_kind */
    size_t state_cap;
    struct ht_error *err;
};

static enum ht_status bad(const struct parser *p, const char *key, const char *text, const char *expected)
{
    char shown[96];
    return ht_fail(p->err, HT_BAD_INPUT, "%s:%lld: key '%s': '%s' %s", p->name, (long long)p->line, key,
                   ht_shown(text, shown, sizeof(shown)), expected);
}

static uint64_t hash_of(const char *name)
{
    uint64_t h = 0;
    for (; *name; name++) h = ht_mix64(h ^ (unsigned char)*name);
    return h;
}

/* Finds a name's place in the table: its node's, or an empty one. */
static size_t place_of(const struct parser *p, const char *name)
{
    size_t i = hash_of(name) & (p->table_n - 1);
    while (p->table[i] && strcmp(p->trace->nodes[p->table[i] - 1].name, name) != 0) i = (i + 1) & (p->table_n - 1);
    return i;
}

static void grow_table(struct parser *p)
{
    if (2 * (p->trace->n_nodes + 1) <= p->table_n) return;
    free(p->table);
    p->table_n = p->table_n ? 2 * p->table_n : 64;
    p->table = HT_NEW_ARRAY(int32_t, p->table_n);
    for (size_t i = 0; i < p->trace->n_nodes; i++) p->table[place_of(p, p->trace->nodes[i].name)] = (int32_t)i + 1;
}

static enum ht_status read_time(const struct parser *p, const char *text, int64_t *out)
{
    char *end;
    double s = strspn(text, "0123456789.") == strlen(text) ? strtod(text, &end) : (end = NULL, -1);
    if (!end || *end || end == text || !(s >= 0 && s <= MAX_S))
        return bad(p, "time_s", text, "is no time; expected seconds such as 5400 or 212.5, at most 1e8");
    *out = llround(s * 1e9);
    if (*out < p->last_ns) return bad(p, "time_s", text, "is before the line above; expected ascending times");
    return HT_OK;
}

static enum ht_status check_name(const struct parser *p, const char *key, const char *text)
{
    if (!*text || strlen(text) >= HT_SPOT_NAME || !ht_is_text(text))
        return bad(p, key, text, "is no name; expected 1 to 47 characters on one line");
    return HT_OK;
}

static enum ht_status read_kind(const struct parser *p, const char *text, enum ht_spot_kind *out)
{
    for (int k = 0; k < HT_N_SPOT_KINDS; k++)
        if (!strcmp(text, ht_spot_kind_names[k])) {
            *out = (enum ht_spot_kind)k;
            return HT_OK;
        }
    return bad(p, "event", text, "is unknown; expected joined, lost or notice");
}

/* Adds a node that joins. */
static int32_t add_node(struct parser *p, size_t place, const char *name, const char *instance)
{
    struct ht_spot_node node = {0};
    snprintf(node.name, sizeof(node.name), "%s", name);
    snprintf(node.instance, sizeof(node.instance), "%s", instance);
    HT_RESERVE(p->state, p->state_cap, p->trace->n_nodes + 1);
    p->state[p->trace->n_nodes] = 0;
    HT_PUSH(p->trace->nodes, p->trace->n_nodes, p->trace->nodes_cap, node);
    p->table[place] = (int32_t)p->trace->n_nodes;
    return p->table[place] - 1;
}

/* Checks that an event may follow what its node went through. */
static enum ht_status check_history(const struct parser *p, const char *name, int32_t node, enum ht_spot_kind kind,
                                    const char *instance)
{
    unsigned was = node < 0 ? 0 : p->state[node];
    if (kind == HT_SPOT_JOINED && node >= 0) return bad(p, "node", name, "has joined before; expected a new name");
    if (kind != HT_SPOT_JOINED && node < 0) return bad(p, "node", name, "has not joined; expected a node that has");
    if (was & 1u << HT_SPOT_LOST) return bad(p, "node", name, "was lost before; expected a node that is there");
    if (kind == HT_SPOT_NOTICE && was & 1u << HT_SPOT_NOTICE)
        return bad(p, "node", name, "has had its notice before; expected one at most");
    if (node >= 0 && strcmp(p->trace->nodes[node].instance, instance) != 0)
        return bad(p, "instance", instance, "is not what the node joined as; expected the same");
    return HT_OK;
}

static enum ht_status add_event(struct parser *p, char *const *words)
{
    struct ht_spot_event e = {.node = -1};
    const char *instance = p->n_columns == COLUMNS ? words[3] : "";
    enum ht_status status = read_time(p, words[0], &e.time_ns);
    if (!status) status = check_name(p, "node", words[1]);
    if (!status) status = read_kind(p, words[2], &e.kind);
    if (!status && p->n_columns == COLUMNS) status = check_name(p, "instance", instance);
    if (status) return status;
    grow_table(p);
    size_t place = place_of(p, words[1]);
    e.node = p->table[place] - 1;
    status = check_history(p, words[1], e.node, e.kind, instance);
    if (status) return status;
    if (p->trace->n_events == MAX_EVENTS)
        return ht_fail(p->err, HT_BAD_INPUT, "%s:%lld: more than %d events", p->name, (long long)p->line, MAX_EVENTS);
    if (e.node < 0) e.node = add_node(p, place, words[1], instance);
    p->state[e.node] |= (unsigned char)(1u << e.kind);
    p->last_ns = e.time_ns;
    HT_PUSH(p->trace->events, p->trace->n_events, p->trace->events_cap, e);
    return HT_OK;
}

/* Cuts a line at its commas. Returns the number of words, COLUMNS + 1 for too many. */
static int split(char *line, char **words)
{
    int n = 0;
    for (char *at = line;; *at++ = 0) {
        if (n < COLUMNS) words[n] = at;
        n++;
        at = strchr(at, ',');
        if (!at || n > COLUMNS) return n;
    }
}

static enum ht_status read_header(struct parser *p, char *line)
{
    if (!strcmp(line, "time_s,node,event"))
        p->n_columns = 3;
    else if (!strcmp(line, "time_s,node,event,instance"))
        p->n_columns = COLUMNS;
    else
        return bad(p, "header", line,
                   "is not a spot trace's; expected 'time_s,node,event' or 'time_s,node,event,instance'");
    return HT_OK;
}

static enum ht_status read_line(struct parser *p, char *line)
{
    char *words[COLUMNS], expected[64];
    if (!p->n_columns) return read_header(p, line);
    int n = split(line, words);
    snprintf(expected, sizeof(expected), "has %s columns; expected %d", n < p->n_columns ? "too few" : "too many",
             p->n_columns);
    return n == p->n_columns ? add_event(p, words) : bad(p, "line", words[0], expected);
}

enum ht_status ht_spot_trace_parse(const char *text, size_t bytes, const char *name, struct ht_error *err,
                                   struct ht_spot_trace *out)
{
    struct parser p = {.name = name, .trace = out, .err = err};
    enum ht_status status = HT_OK;
    *out = (struct ht_spot_trace){0};
    for (size_t at = bytes >= 3 && !memcmp(text, "\xef\xbb\xbf", 3) ? 3 : 0; at < bytes && !status;) {
        const char *end = memchr(text + at, '\n', bytes - at);
        size_t n = end ? (size_t)(end - text) - at : bytes - at, kept = n;
        char line[512];
        p.line++;
        if (kept && text[at + kept - 1] == '\r') kept--;
        if (kept >= sizeof(line) || memchr(text + at, 0, n))
            status =
                ht_fail(err, HT_BAD_INPUT, "%s:%lld: a line of %zu bytes, or a NUL in it; expected text of up to 511",
                        name, (long long)p.line, n);
        if (status) break;
        memcpy(line, text + at, kept);
        line[kept] = 0;
        if (kept) status = read_line(&p, line);
        at += n + 1;
    }
    if (!status && !out->n_events)
        status = ht_fail(err, HT_BAD_INPUT, "%s:%lld: the trace has no events; expected at least one", name,
                         (long long)p.line);
    free(p.table);
    free(p.state);
    if (status) ht_spot_trace_free(out);
    return status;
}

static enum ht_status load_file(const char *path, struct ht_error *err, struct ht_spot_trace *out)
{
    char shown[256], *text = NULL;
    size_t n = 0, cap = 0, got;
    FILE *file = fopen(path, "rb");
    ht_shown(path, shown, sizeof(shown));
    if (!file) return ht_fail(err, HT_BAD_INPUT, "%s: cannot be opened; expected a spot trace (CSV)", shown);
    do {
        HT_RESERVE(text, cap, n + (1 << 16));
        got = fread(text + n, 1, 1 << 16, file);
        n += got;
    } while (got && n <= MAX_BYTES);
    bool broken = ferror(file);
    fclose(file);
    enum ht_status status = HT_OK;
    if (broken || n > MAX_BYTES)
        status =
            ht_fail(err, HT_BAD_INPUT, "%s: cannot be read, or has more than 64 MiB; expected a spot trace", shown);
    if (!status) status = ht_spot_trace_parse(text, n, shown, err, out);
    free(text);
    return status;
}

enum ht_status ht_spot_trace_load(const char *name, struct ht_error *err, struct ht_spot_trace *out)
{
    const char *names[HT_COUNT(builtins)], *dot = strrchr(name, '.');
    char shown[96];
    *out = (struct ht_spot_trace){0};
    if (strchr(name, '/') || (dot && !strcmp(dot, ".csv"))) return load_file(name, err, out);
    for (size_t i = 0; i < HT_COUNT(builtins); i++) {
        names[i] = builtins[i].name;
        if (!strcmp(name, names[i]))
            return ht_spot_trace_parse(builtins[i].text, (size_t)(builtins[i].end - builtins[i].text), name, err, out);
    }
    const char *near = ht_nearest(name, names, HT_COUNT(names));
    return ht_fail(err, HT_BAD_INPUT, "unknown trace '%s'; expected %s%s%s", ht_shown(name, shown, sizeof(shown)),
                   near ? "'" : "a file, or one of hetbench list traces", near ? near : "", near ? "'?" : "");
}

/* ---- days ------------------------------------------------------------------------------------------------------- */

/* Takes a trace's nodes and events into a day. They get the instance, and its name in front where there are others. */
static enum ht_status append(struct ht_spot_trace *day, const struct ht_spot_trace *t, const char *instance, bool alone,
                             struct ht_error *err)
{
    int32_t first = (int32_t)day->n_nodes;
    for (size_t i = 0; i < t->n_nodes; i++) {
        struct ht_spot_node node = t->nodes[i];
        char name[2 * HT_SPOT_NAME];
        if (*instance) snprintf(node.instance, sizeof(node.instance), "%s", instance);
        snprintf(name, sizeof(name), "%s%s%s", alone ? "" : node.instance, alone ? "" : "/", t->nodes[i].name);
        if (strlen(name) >= HT_SPOT_NAME)
            return ht_fail(err, HT_BAD_INPUT, "--trace: node '%s' has a name too long; expected up to %d characters",
                           name, HT_SPOT_NAME - 1);
        memcpy(node.name, name, strlen(name) + 1);
        HT_PUSH(day->nodes, day->n_nodes, day->nodes_cap, node);
    }
    for (size_t i = 0; i < t->n_events; i++) {
        struct ht_spot_event e = t->events[i];
        e.node += first;
        HT_PUSH(day->events, day->n_events, day->events_cap, e);
    }
    return HT_OK;
}

/* Merges the events [0, split) and [split, n), each of them by time. */
static void merge(struct ht_spot_trace *day, size_t split)
{
    struct ht_spot_event *merged = HT_NEW_ARRAY(struct ht_spot_event, day->n_events);
    size_t a = 0, b = split, n = 0;
    while (n < day->n_events) {
        bool first = b == day->n_events || (a < split && day->events[a].time_ns <= day->events[b].time_ns);
        merged[n++] = day->events[first ? a++ : b++];
    }
    free(day->events);
    day->events = merged;
    day->events_cap = day->n_events;
}

/* Adds one entry of a day's list, "INSTANCE=TRACE" or "TRACE". */
static enum ht_status add_trace(struct ht_spot_trace *day, const char *entry, bool alone, struct ht_error *err)
{
    char instance[HT_SPOT_NAME] = "";
    const char *equals = strchr(entry, '=');
    struct ht_spot_trace t;
    size_t split = day->n_events;
    if (equals && ((size_t)(equals - entry) >= sizeof(instance) || equals == entry))
        return ht_fail(err, HT_BAD_INPUT, "--trace: '%.60s' has no instance before '='; expected INSTANCE=TRACE",
                       entry);
    if (equals) snprintf(instance, sizeof(instance), "%.*s", (int)(equals - entry), entry);
    enum ht_status status = ht_spot_trace_load(equals ? equals + 1 : entry, err, &t);
    if (status) return status;
    status = append(day, &t, instance, alone, err);
    ht_spot_trace_free(&t);
    if (!status) merge(day, split);
    return status;
}

enum ht_status ht_spot_day_load(const char *list, struct ht_error *err, struct ht_spot_trace *out)
{
    char *words = ht_strdup(list), *save = NULL;
    bool alone = !strchr(list, ',');
    enum ht_status status = HT_OK;
    *out = (struct ht_spot_trace){0};
    for (char *w = strtok_r(words, ",", &save); w && !status; w = strtok_r(NULL, ",", &save))
        status = add_trace(out, w, alone, err);
    if (!status && !out->n_events) status = ht_fail(err, HT_BAD_INPUT, "--trace: the list is empty; expected a trace");
    if (status) ht_spot_trace_free(out);
    free(words);
    return status;
}

void ht_spot_trace_hasten(struct ht_spot_trace *t, double speed)
{
    for (size_t i = 0; i < t->n_events; i++) t->events[i].time_ns = llround((double)t->events[i].time_ns / speed);
}

/* ---- generated -------------------------------------------------------------------------------------------------- */

struct generator {
    const struct ht_spot_rates *rates;
    struct ht_spot_trace *out;
    uint64_t drawn;
    int32_t *live;    /* [n_live] nodes */
    double *rejoin_s; /* [n_absent] */
    int64_t n_live, n_absent;
};

/* Returns a number in (0, 1]. */
static double draw(struct generator *g)
{
    return 1 - (double)(ht_random(g->rates->seed, g->drawn++) >> 11) * 0x1p-53;
}

static void emit(struct generator *g, double time_s, int32_t node, enum ht_spot_kind kind)
{
    struct ht_spot_event e = {llround(time_s * 1e9), node, kind};
    HT_PUSH(g->out->events, g->out->n_events, g->out->events_cap, e);
}

static void join(struct generator *g, double time_s)
{
    struct ht_spot_node node = {0};
    snprintf(node.name, sizeof(node.name), "node%zu", g->out->n_nodes + 1);
    snprintf(node.instance, sizeof(node.instance), "%s", g->rates->instance);
    HT_PUSH(g->out->nodes, g->out->n_nodes, g->out->nodes_cap, node);
    g->live[g->n_live++] = (int32_t)g->out->n_nodes - 1;
    emit(g, time_s, (int32_t)g->out->n_nodes - 1, HT_SPOT_JOINED);
}

/* Takes away a burst of nodes. */
static void lose(struct generator *g, double time_s)
{
    const struct ht_spot_rates *r = g->rates;
    do {
        int64_t i = (int64_t)ht_random_below(r->seed, g->drawn++, (uint64_t)g->n_live);
        int32_t node = g->live[i];
        double notice_s = time_s - r->notice_s;
        g->live[i] = g->live[--g->n_live];
        if (r->notice_s > 0 && draw(g) <= r->share_noticed) emit(g, notice_s > 0 ? notice_s : 0, node, HT_SPOT_NOTICE);
        emit(g, time_s, node, HT_SPOT_LOST);
        g->rejoin_s[g->n_absent++] = time_s - r->absent_s * log(draw(g));
    } while (g->n_live && draw(g) > 1 / r->burst);
}

/* Returns the index of the node that rejoins first; -1: none is absent. */
static int64_t first_absent(const struct generator *g)
{
    int64_t first = g->n_absent ? 0 : -1;
    for (int64_t i = 1; i < g->n_absent; i++)
        if (g->rejoin_s[i] < g->rejoin_s[first]) first = i;
    return first;
}

/* Orders events by time; at one time a node's own stay in order: joined, notice, lost. */
static int by_time(const void *va, const void *vb)
{
    static const int rank[HT_N_SPOT_KINDS] = {[HT_SPOT_JOINED] = 0, [HT_SPOT_NOTICE] = 1, [HT_SPOT_LOST] = 2};
    const struct ht_spot_event *a = va, *b = vb;
    if (a->time_ns != b->time_ns) return a->time_ns < b->time_ns ? -1 : 1;
    if (a->node != b->node) return a->node < b->node ? -1 : 1;
    return rank[a->kind] - rank[b->kind];
}

/* Moves notices that would come before their node joins to that time. */
static void mend_notices(struct ht_spot_trace *t)
{
    int64_t *joined = HT_NEW_ARRAY(int64_t, t->n_nodes);
    for (size_t i = 0; i < t->n_events; i++)
        if (t->events[i].kind == HT_SPOT_JOINED) joined[t->events[i].node] = t->events[i].time_ns;
    for (size_t i = 0; i < t->n_events; i++)
        if (t->events[i].time_ns < joined[t->events[i].node]) t->events[i].time_ns = joined[t->events[i].node];
    free(joined);
    qsort(t->events, t->n_events, sizeof(*t->events), by_time);
}

void ht_spot_trace_generate(const struct ht_spot_rates *r, struct ht_spot_trace *out)
{
    struct generator g = {.rates = r, .out = out};
    *out = (struct ht_spot_trace){0};
    g.live = HT_NEW_ARRAY(int32_t, r->nodes);
    g.rejoin_s = HT_NEW_ARRAY(double, r->nodes);
    for (int64_t i = 0; i < r->nodes; i++) join(&g, 0);
    for (double now = 0;;) {
        double rate = r->lost_per_hour / 3600 * (double)g.n_live / r->burst;
        double loss = rate > 0 ? now - log(draw(&g)) / rate : INFINITY;
        int64_t back = first_absent(&g);
        bool joins = back >= 0 && g.rejoin_s[back] <= loss;
        now = joins ? g.rejoin_s[back] : loss;
        if (now > r->length_s) break;
        if (joins) g.rejoin_s[back] = g.rejoin_s[--g.n_absent];
        if (joins)
            join(&g, now);
        else
            lose(&g, now);
    }
    mend_notices(out);
    free(g.live);
    free(g.rejoin_s);
}

void ht_spot_trace_write(const struct ht_spot_trace *t, FILE *out)
{
    bool kinds = t->n_nodes && *t->nodes[0].instance;
    fprintf(out, "time_s,node,event%s\n", kinds ? ",instance" : "");
    for (size_t i = 0; i < t->n_events; i++) {
        const struct ht_spot_event *e = &t->events[i];
        const struct ht_spot_node *node = &t->nodes[e->node];
        fprintf(out, "%lld.%09lld,%s,%s%s%s\n", (long long)(e->time_ns / 1000000000),
                (long long)(e->time_ns % 1000000000), node->name, ht_spot_kind_names[e->kind], kinds ? "," : "",
                node->instance);
    }
}
