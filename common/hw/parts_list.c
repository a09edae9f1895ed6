/*
 * Clusters from a list of their parts. The list becomes the text of a cluster file, which the loader reads: a list has
 * no rules of its own, and its user can take the file and go on from there.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/units.h"
#include "common/hw/parts.h"

enum { MAX_LIST = 1024, MAX_TEXT = 8192 };

/* Values of the list's keys; NULL: left out. */
struct parts {
    char copy[MAX_LIST];
    char *gpus, *ram, *cpu, *link, *nvlink, *nic, *ssd;
};

/* A text that grows up to its buffer. */
struct writer {
    char *text;
    size_t bytes, used;
};

__attribute__((format(printf, 2, 3))) static void put(struct writer *w, const char *fmt, ...)
{
    va_list ap;
    if (w->used >= w->bytes) return;
    va_start(ap, fmt);
    w->used += (size_t)vsnprintf(w->text + w->used, w->bytes - w->used, fmt, ap);
    va_end(ap);
}

bool ht_is_parts_list(const char *word)
{
    return strncmp(word, "gpus=", 5) == 0;
}

static enum ht_status split_keys(const char *list, struct ht_error *err, struct parts *p)
{
    static const char *const names[] = {"gpus", "ram", "cpu", "link", "nvlink", "nic", "ssd"};
    enum { N = sizeof(names) / sizeof(*names) };
    char **values[N] = {&p->gpus, &p->ram, &p->cpu, &p->link, &p->nvlink, &p->nic, &p->ssd};
    if (strlen(list) >= sizeof(p->copy)) return ht_fail(err, HT_BAD_INPUT, "the list of parts is too long");
    strcpy(p->copy, list);
    for (char *rest = p->copy, *word; (word = strsep(&rest, ";"));) {
        char *value = strchr(word, '=');
        int k = 0;
        if (value) *value++ = '\0';
        while (k < N && strcmp(word, names[k]) != 0) k++;
        if (k == N)
            return ht_fail(err, HT_BAD_INPUT,
                           "part '%.40s' is not known; expected gpus, ram, cpu, link, nvlink, nic or ssd", word);
        if (!value || !*value)
            return ht_fail(err, HT_BAD_INPUT, "part '%s' has no value; expected '%s=..'", word, word);
        *values[k] = value;
    }
    if (!p->gpus) return ht_fail(err, HT_BAD_INPUT, "the list of parts names no GPUs; expected gpus=KIND:COUNT");
    if (!p->ram) return ht_fail(err, HT_BAD_INPUT, "the memory of a node is missing; expected for example --ram 128GB");
    return HT_OK;
}

/* Splits "KIND:COUNT"; the count is 1 where it is left out. */
static enum ht_status split_count(char *word, const char *what, int64_t least, struct ht_error *err, int64_t *count)
{
    char *colon = strchr(word, ':'), *end;
    *count = 1;
    if (!colon) return HT_OK;
    *colon = '\0';
    long long n = strtoll(colon + 1, &end, 10);
    if (end == colon + 1 || *end || n < least || n > 64)
        return ht_fail(err, HT_BAD_INPUT, "%s: '%.20s' is not a count; expected %lld to 64", what, colon + 1,
                       (long long)least);
    *count = n;
    return HT_OK;
}

/* Writes the groups of a node's GPUs, as "{type: .., count: ..}, ..". Returns the first kind and the sum. */
static enum ht_status put_gpus(char *node, struct ht_error *err, struct writer *w, struct ht_gpu *first,
                               int64_t *n_gpus)
{
    *n_gpus = 0;
    for (char *rest = node, *word; (word = strsep(&rest, ","));) {
        struct ht_gpu gpu;
        int64_t count = 1;
        enum ht_status status = split_count(word, "gpus", 1, err, &count);
        if (status == HT_OK) status = ht_gpu_load(word, err, &gpu);
        if (status != HT_OK) return status;
        if (*n_gpus == 0) *first = gpu;
        first->peer &= gpu.peer;
        put(w, "%s{type: %s, count: %lld}", *n_gpus ? ", " : "", gpu.name, (long long)count);
        *n_gpus += count;
    }
    return HT_OK;
}

/* What a node has beside its GPUs; the same for all nodes. */
struct others {
    const char *cpu, *link, *nvlink, *nic, *ssd;
    int64_t sockets, n_ssds;
};

static enum ht_status split_others(struct parts *p, struct ht_error *err, struct others *o)
{
    *o = (struct others){
        .cpu = p->cpu, .link = p->link, .nvlink = p->nvlink, .nic = p->nic, .ssd = p->ssd, .sockets = 1};
    struct ht_cpu cpu;
    struct ht_link link;
    struct ht_ssd ssd;
    enum ht_status status = HT_OK;
    if (p->cpu) status = split_count(p->cpu, "cpu", 1, err, &o->sockets);
    if (status == HT_OK && p->ssd) status = split_count(p->ssd, "ssd", 0, err, &o->n_ssds);
    if (status == HT_OK && p->cpu) status = ht_cpu_load(p->cpu, err, &cpu);
    if (status == HT_OK && p->link) status = ht_link_load(p->link, err, &link);
    if (status == HT_OK && p->nvlink && strcmp(p->nvlink, "none") != 0) status = ht_link_load(p->nvlink, err, &link);
    if (status == HT_OK && p->nic) status = ht_link_load(p->nic, err, &link);
    if (status == HT_OK && o->n_ssds) status = ht_ssd_load(p->ssd, err, &ssd);
    return status;
}

/* Returns true if a list says how many nodes there are of a kind. */
static bool has_nodes(const char *gpus)
{
    for (const char *colon = gpus; (colon = strchr(colon, ':'));) {
        colon += 1 + strspn(colon + 1, "0123456789");
        if (*colon == 'x') return true;
    }
    return false;
}

/* Cuts "xNODES" off the list of a node's GPUs, "a100-80gb:8x4". */
static enum ht_status split_nodes(char *gpus, struct ht_error *err, long long *count)
{
    char *colon = strrchr(gpus, ':'), *times = colon ? strchr(colon, 'x') : NULL, *end;
    *count = 1;
    if (!times) return HT_OK;
    *count = strtoll(times + 1, &end, 10);
    if (end == times + 1 || *end || *count < 1 || *count > 512)
        return ht_fail(err, HT_BAD_INPUT, "gpus: '%.20s' is not a number of nodes; expected 1 to 512", times + 1);
    *times = '\0';
    return HT_OK;
}

static enum ht_status put_node(char *gpus, const char *ram, const struct others *o, bool alone, struct ht_error *err,
                               struct writer *w)
{
    char text[MAX_LIST];
    struct writer groups = {text, sizeof(text), 0};
    struct ht_gpu gpu;
    int64_t n = 0;
    long long nodes;
    enum ht_status status = split_nodes(gpus, err, &nodes);
    if (status == HT_OK) status = put_gpus(gpus, err, &groups, &gpu, &n);
    if (status != HT_OK) return status;
    alone &= nodes == 1;
    const char *cpu = o->cpu ? o->cpu : n > 2 ? "epyc-7713" : "ryzen-7950x";
    const char *link = o->link ? o->link : *gpu.link ? gpu.link : "pcie4-x16";
    const char *nvlink = o->nvlink ? o->nvlink : gpu.nvlink, *nic = o->nic ? o->nic : alone ? NULL : "ethernet-25g";
    if (nodes > 1)
        put(w, "  - count: %lld\n    cpu: ", nodes);
    else
        put(w, "  - cpu: ");
    put(w, "%s%s\n    sockets: %lld\n    ram: %s\n    gpus: [%s]\n    pcie: %s%s\n    peer: %s\n", cpu,
        o->cpu ? "" : "  # assumed", (long long)o->sockets, ram, text, link, o->link ? "" : "  # the card's slot",
        gpu.peer ? "true" : "false");
    if (n > 1 && *nvlink && strcmp(nvlink, "none") != 0)
        put(w, "    nvlink: %s%s\n", nvlink, o->nvlink ? "" : "  # of the card's boards");
    if (nic) put(w, "    nic: %s%s\n", nic, o->nic ? "" : "  # assumed");
    if (o->n_ssds) put(w, "    ssds: {type: %s, count: %lld}\n", o->ssd, (long long)o->n_ssds);
    return HT_OK;
}

enum ht_status ht_cluster_parts_text(const char *list, struct ht_error *err, char *text, size_t bytes)
{
    struct parts p = {0};
    struct others o;
    struct writer w = {text, bytes, 0};
    int64_t ram = 0;
    enum ht_status status = split_keys(list, err, &p);
    if (status == HT_OK) status = split_others(&p, err, &o);
    if (status == HT_OK) status = ht_flag_bytes("ram", p.ram, err, &ram);
    if (status != HT_OK) return status;
    char name[HT_NAME_BYTES];
    bool alone = !strchr(p.gpus, '/') && !has_nodes(p.gpus);
    snprintf(name, sizeof(name), "%.*s", (int)sizeof(name) - 1, p.gpus);
    put(&w, "name: \"%s\"\nsource: \"a list of parts%s%s\"\nnodes:\n", name, p.cpu ? "" : "; the processor is assumed",
        alone || p.nic ? "" : "; the network is assumed");
    for (char *rest = p.gpus, *node; status == HT_OK && (node = strsep(&rest, "/"));)
        status = put_node(node, p.ram, &o, alone, err, &w);
    if (status == HT_OK && w.used >= w.bytes) status = ht_fail(err, HT_BAD_INPUT, "the list of parts is too long");
    return status;
}

enum ht_status ht_cluster_of_parts(const char *list, struct ht_error *err, struct ht_cluster **out)
{
    char text[MAX_TEXT];
    struct ht_doc *doc = NULL;
    enum ht_status status = ht_cluster_parts_text(list, err, text, sizeof(text));
    if (status == HT_OK) status = ht_doc_parse(text, strlen(text), "parts", err, &doc);
    if (status == HT_OK) status = ht_cluster_parse(doc, err, out);
    ht_doc_destroy(doc);
    return status;
}
