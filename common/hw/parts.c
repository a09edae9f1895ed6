/*
 * Devices, processors, links and disks from the catalogue or from a user's map.
 */
#include "common/hw/parts.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "common/base/array.h"
#include "common/base/builtin.h"

HT_EMBED(ht_gpus_yaml, "common/hw/gpus.yaml");
HT_EMBED(ht_cpus_yaml, "common/hw/cpus.yaml");
HT_EMBED(ht_links_yaml, "common/hw/links.yaml");
HT_EMBED(ht_ssds_yaml, "common/hw/ssds.yaml");

static const struct ht_builtin ht_gpu_file = {"builtin:gpus.yaml", ht_gpus_yaml, ht_gpus_yaml_end};
static const struct ht_builtin ht_cpu_file = {"builtin:cpus.yaml", ht_cpus_yaml, ht_cpus_yaml_end};
static const struct ht_builtin ht_link_file = {"builtin:links.yaml", ht_links_yaml, ht_links_yaml_end};
static const struct ht_builtin ht_ssd_file = {"builtin:ssds.yaml", ht_ssds_yaml, ht_ssds_yaml_end};

/* Upper bounds keep every product of a rate, a size and a count far inside int64_t nanoseconds and bytes. */
#define HT_MAX_MEMORY 1e15 /* bytes */
#define HT_MAX_CORES  4096
#define HT_MAX_SMS    4096
#define HT_SECOND_NS  1e9
#define HT_MIN_SHARE  0.001
#define HT_MAX_BOOST  1.25 /* of products over the peak at the nominal clock */

#define AT(t, m) .offset = offsetof(struct t, m)
#define HT_TEXT(t, k, m, must)                                                                                         \
    {                                                                                                                  \
        .key = k, .type = HT_FIELD_STRING, AT(t, m), .size = sizeof(((struct t *)0)->m), .required = must              \
    }
#define HT_SHARE(t, k, m)                                                                                              \
    {                                                                                                                  \
        .key = k, .type = HT_FIELD_DOUBLE, AT(t, m), .min = HT_MIN_SHARE, .max = 1, .required = true                   \
    }
#define HT_RATE(t, k, kind, m, must)                                                                                   \
    {                                                                                                                  \
        .key = k, .type = kind, AT(t, m), .min = HT_MIN_RATE, .max = HT_MAX_RATE, .required = must                     \
    }
#define HT_PRICE(t, m)                                                                                                 \
    {                                                                                                                  \
        .key = "price_usd", .type = HT_FIELD_DOUBLE, AT(t, m), .min = 1, .max = HT_MAX_USD                             \
    }
#define HT_LATENCY(t, k, m)                                                                                            \
    {                                                                                                                  \
        .key = k, .type = HT_FIELD_NS, AT(t, m), .min = 0, .max = HT_SECOND_NS, .required = true                       \
    }

static const struct ht_field ht_gpu_fields[] = {
    HT_TEXT(ht_gpu, "name", name, false),
    {.key = "memory",
     .type = HT_FIELD_BYTES,
     AT(ht_gpu, memory_bytes),
     .min = 1,
     .max = HT_MAX_MEMORY,
     .required = true},
    HT_RATE(ht_gpu, "fp32", HT_FIELD_FLOPS_PER_S, f32_flops_per_s, true),
    HT_RATE(ht_gpu, "fp16", HT_FIELD_FLOPS_PER_S, f16_flops_per_s, false), /* absent: no such units, as fast as FP32 */
    HT_RATE(ht_gpu, "bf16", HT_FIELD_FLOPS_PER_S, bf16_flops_per_s, false),
    HT_RATE(ht_gpu, "memory_bandwidth", HT_FIELD_BYTES_PER_S, memory_bytes_per_s, true),
    {.key = "gemm_efficiency",
     .type = HT_FIELD_DOUBLE,
     AT(ht_gpu, gemm_efficiency),
     .min = HT_MIN_SHARE,
     .max = HT_MAX_BOOST,
     .required = true},
    {.key = "fp32_efficiency",
     .type = HT_FIELD_DOUBLE,
     AT(ht_gpu, fp32_efficiency),
     .min = HT_MIN_SHARE,
     .max = HT_MAX_BOOST},
    {.key = "sms", .type = HT_FIELD_INT, AT(ht_gpu, sms), .min = 1, .max = HT_MAX_SMS},
    HT_SHARE(ht_gpu, "memory_efficiency", memory_efficiency),
    HT_LATENCY(ht_gpu, "launch", launch_ns),
    {.key = "cores", .type = HT_FIELD_INT, AT(ht_gpu, cores), .min = 1, .max = HT_MAX_CORES},
    HT_TEXT(ht_gpu, "link", link, false),
    HT_TEXT(ht_gpu, "nvlink", nvlink, false),
    {.key = "peer", .type = HT_FIELD_BOOL, AT(ht_gpu, peer), .fallback = "true"},
    HT_PRICE(ht_gpu, price_usd),
    HT_TEXT(ht_gpu, "source", source, false),
    {0},
};

static const struct ht_field ht_cpu_fields[] = {
    HT_TEXT(ht_cpu, "name", name, false),
    {.key = "cores", .type = HT_FIELD_INT, AT(ht_cpu, cores), .min = 1, .max = HT_MAX_CORES, .required = true},
    HT_RATE(ht_cpu, "dram", HT_FIELD_BYTES_PER_S, dram_bytes_per_s, true),
    HT_SHARE(ht_cpu, "dram_efficiency", dram_efficiency),
    HT_RATE(ht_cpu, "core_flops", HT_FIELD_FLOPS_PER_S, core_flops_per_s, true),
    HT_SHARE(ht_cpu, "gemm_efficiency", gemm_efficiency),
    HT_TEXT(ht_cpu, "source", source, false),
    {0},
};

/* A link as written in a file. The link is first: a part begins with its name. */
struct ht_link_entry {
    struct ht_link link;
    const struct ht_node *sizes;
};

static const struct ht_field ht_link_fields[] = {
    HT_TEXT(ht_link, "name", name, false),
    HT_RATE(ht_link, "bandwidth", HT_FIELD_BYTES_PER_S, bytes_per_s, true),
    HT_SHARE(ht_link, "efficiency", efficiency),
    HT_RATE(ht_link, "through_host", HT_FIELD_BYTES_PER_S, through_host_bytes_per_s, false),
    {.key = "duplex", .type = HT_FIELD_BOOL, AT(ht_link, duplex), .required = true},
    HT_LATENCY(ht_link, "latency", latency_ns),
    {.key = "sizes", .type = HT_FIELD_LIST_NODE, AT(ht_link_entry, sizes)},
    HT_TEXT(ht_link, "source", source, false),
    {0},
};

static const struct ht_field ht_size_fields[] = {
    {.key = "bytes", .type = HT_FIELD_BYTES, AT(ht_link_size, bytes), .min = 1, .max = HT_MAX_MEMORY, .required = true},
    HT_RATE(ht_link_size, "rate", HT_FIELD_BYTES_PER_S, bytes_per_s, true),
    {0},
};

static enum ht_status ht_link_finish(struct ht_error *err, void *out)
{
    struct ht_link_entry *e = out;
    struct ht_link *link = &e->link;
    if (!e->sizes) return HT_OK;
    HT_EACH_CHILD(e->sizes, node)
    {
        struct ht_link_size size = {0};
        enum ht_status st = ht_config_load(node, ht_size_fields, err, &size);
        if (st) return st;
        if (link->n_sizes == HT_LINK_SIZES)
            return ht_node_error(node, err, "is one rate too many; expected at most %d", HT_LINK_SIZES);
        if (link->n_sizes && size.bytes <= link->sizes[link->n_sizes - 1].bytes)
            return ht_node_error(node, err, "has a size that is not above the one before; expected rising sizes");
        link->sizes[link->n_sizes++] = size;
    }
    return HT_OK;
}

static const struct ht_field ht_ssd_fields[] = {
    HT_TEXT(ht_ssd, "name", name, false),
    {.key = "capacity",
     .type = HT_FIELD_BYTES,
     AT(ht_ssd, capacity_bytes),
     .min = 1,
     .max = HT_MAX_MEMORY,
     .required = true},
    HT_RATE(ht_ssd, "read", HT_FIELD_BYTES_PER_S, read_bytes_per_s, true),
    HT_RATE(ht_ssd, "write", HT_FIELD_BYTES_PER_S, write_bytes_per_s, true),
    {.key = "efficiency",
     .type = HT_FIELD_DOUBLE,
     AT(ht_ssd, efficiency),
     .min = HT_MIN_SHARE,
     .max = 1,
     .fallback = "1"},
    {.key = "striping", .type = HT_FIELD_DOUBLE, AT(ht_ssd, striping), .min = HT_MIN_SHARE, .max = 1, .fallback = "1"},
    {.key = "duplex", .type = HT_FIELD_BOOL, AT(ht_ssd, duplex), .required = true},
    HT_LATENCY(ht_ssd, "latency", latency_ns),
    HT_PRICE(ht_ssd, price_usd),
    HT_TEXT(ht_ssd, "source", source, false),
    {0},
};

/* A kind of part: its name in messages, its file, its table. Every part's struct begins with its name. */
struct ht_part_kind {
    const char *what;
    const struct ht_builtin *file;
    const struct ht_field *fields;
    enum ht_status (*finish)(struct ht_error *err, void *out); /* (optional) while the document is open */
};
static const struct ht_part_kind ht_gpu_kind = {"gpu", &ht_gpu_file, ht_gpu_fields, NULL};
static const struct ht_part_kind ht_cpu_kind = {"cpu", &ht_cpu_file, ht_cpu_fields, NULL};
static const struct ht_part_kind ht_link_kind = {"link", &ht_link_file, ht_link_fields, ht_link_finish};
static const struct ht_part_kind ht_ssd_kind = {"ssd", &ht_ssd_file, ht_ssd_fields, NULL};

static enum ht_status ht_part_load(const struct ht_part_kind *kind, const struct ht_node *map, struct ht_error *err,
                                   void *out)
{
    enum ht_status st = ht_config_load(map, kind->fields, err, out);
    return !st && kind->finish ? kind->finish(err, out) : st;
}

/* Returns true if the letters and digits of `word` begin `name`. */
static bool ht_abbreviates_at(const char *word, const char *name)
{
    for (; *word && *name; name++) {
        while (*word && !isalnum((unsigned char)*word)) word++;
        if (!isalnum((unsigned char)*name)) continue;
        if (tolower((unsigned char)*word) != *name) break;
        word++;
    }
    return !*word;
}

/* Returns true if a name begins with a word, or has it anywhere. */
static bool ht_abbreviates(const char *word, const char *name, bool anywhere)
{
    bool does = ht_abbreviates_at(word, name);
    for (; anywhere && !does && *name; name++) does = ht_abbreviates_at(word, name);
    return does;
}

/* Writes the full name of an entry of `all`: `word` itself, or the only name that begins with it ("990pro"), or else the only
   one that has it ("4090"). */
static enum ht_status ht_full_name(const struct ht_part_kind *kind, const struct ht_node *all, const char *word,
                                   struct ht_error *err, char name[HT_NAME_BYTES])
{
    char several[512] = "";
    int n = 0;
    snprintf(name, HT_NAME_BYTES, "%s", word);
    if (ht_node_find(all, word) || strlen(word) < 3) return HT_OK;
    for (int anywhere = 0; anywhere < 2 && !n; anywhere++) {
        HT_EACH_CHILD(all, other)
        {
            size_t used = strlen(several);
            if (!ht_abbreviates(word, other->key, anywhere)) continue;
            snprintf(several + used, sizeof(several) - used, "%s'%s'", used ? ", " : "", other->key);
            if (n++ == 0) snprintf(name, HT_NAME_BYTES, "%s", other->key);
        }
    }
    if (n < 2) return HT_OK;
    return ht_fail(err, HT_BAD_INPUT, "unknown %s '%s'; expected one of %s", kind->what, word, several);
}

static enum ht_status ht_part_named(const struct ht_part_kind *kind, const char *word, struct ht_error *err, void *out)
{
    struct ht_doc *all = NULL, *doc = NULL;
    const struct ht_node *entry = NULL;
    char name[HT_NAME_BYTES];
    enum ht_status st = ht_builtin_open(kind->file, err, &all);
    if (!st) st = ht_full_name(kind, ht_doc_root(all), word, err, name);
    ht_doc_destroy(all);
    if (!st) st = ht_builtin_find(kind->file, 1, kind->what, name, err, &doc, &entry);
    if (!st) st = ht_part_load(kind, entry, err, out);
    if (!st) snprintf(out, HT_NAME_BYTES, "%s", name);
    ht_doc_destroy(doc);
    return st;
}

/* Reads a part into `out`, which the caller has zeroed. */
static enum ht_status ht_part(const struct ht_part_kind *kind, const struct ht_node *node, struct ht_error *err,
                              void *out)
{
    const char *name;
    struct ht_error inner;
    enum ht_status st;
    if (node->kind == HT_NODE_MAP) {
        if ((st = ht_part_load(kind, node, err, out))) return st;
        if (!*(const char *)out) return ht_node_error(node, err, "the key 'name' is missing; expected 'name: ...'");
        return HT_OK;
    }
    if (node->kind == HT_NODE_LIST)
        return ht_node_error(node, err, "is a list; expected the name of a %s or a map", kind->what);
    if ((st = ht_node_string(node, err, &name))) return st;
    if (ht_part_named(kind, name, &inner, out)) return ht_node_error(node, err, "%s", inner.text);
    return HT_OK;
}

void ht_gpu_complete(struct ht_gpu *gpu)
{
    gpu->lacks_f16 = gpu->f16_flops_per_s == 0;
    gpu->lacks_bf16 = gpu->bf16_flops_per_s == 0;
    if (gpu->lacks_f16) gpu->f16_flops_per_s = gpu->f32_flops_per_s;
    if (gpu->lacks_bf16) gpu->bf16_flops_per_s = gpu->f32_flops_per_s;
}

static enum ht_status ht_gpu_finish(enum ht_status st, struct ht_gpu *gpu)
{
    ht_gpu_complete(gpu);
    return st;
}

enum ht_status ht_part_gpu(const struct ht_node *node, struct ht_error *err, struct ht_gpu *out)
{
    memset(out, 0, sizeof(*out));
    return ht_gpu_finish(ht_part(&ht_gpu_kind, node, err, out), out);
}

enum ht_status ht_part_cpu(const struct ht_node *node, struct ht_error *err, struct ht_cpu *out)
{
    memset(out, 0, sizeof(*out));
    return ht_part(&ht_cpu_kind, node, err, out);
}

enum ht_status ht_part_link(const struct ht_node *node, struct ht_error *err, struct ht_link *out)
{
    struct ht_link_entry e = {0};
    enum ht_status st = ht_part(&ht_link_kind, node, err, &e);
    *out = e.link;
    return st;
}

enum ht_status ht_part_ssd(const struct ht_node *node, struct ht_error *err, struct ht_ssd *out)
{
    memset(out, 0, sizeof(*out));
    return ht_part(&ht_ssd_kind, node, err, out);
}

enum ht_status ht_gpu_load(const char *name, struct ht_error *err, struct ht_gpu *out)
{
    memset(out, 0, sizeof(*out));
    return ht_gpu_finish(ht_part_named(&ht_gpu_kind, name, err, out), out);
}

enum ht_status ht_cpu_load(const char *name, struct ht_error *err, struct ht_cpu *out)
{
    memset(out, 0, sizeof(*out));
    return ht_part_named(&ht_cpu_kind, name, err, out);
}

enum ht_status ht_link_load(const char *name, struct ht_error *err, struct ht_link *out)
{
    struct ht_link_entry e = {0};
    enum ht_status st = ht_part_named(&ht_link_kind, name, err, &e);
    *out = e.link;
    return st;
}

enum ht_status ht_ssd_load(const char *name, struct ht_error *err, struct ht_ssd *out)
{
    memset(out, 0, sizeof(*out));
    return ht_part_named(&ht_ssd_kind, name, err, out);
}

bool ht_hw_gpu_name(int64_t index, char buf[HT_NAME_BYTES])
{
    return ht_builtin_name(&ht_gpu_file, 1, index, buf, HT_NAME_BYTES);
}

bool ht_hw_cpu_name(int64_t index, char buf[HT_NAME_BYTES])
{
    return ht_builtin_name(&ht_cpu_file, 1, index, buf, HT_NAME_BYTES);
}

bool ht_hw_link_name(int64_t index, char buf[HT_NAME_BYTES])
{
    return ht_builtin_name(&ht_link_file, 1, index, buf, HT_NAME_BYTES);
}

bool ht_hw_ssd_name(int64_t index, char buf[HT_NAME_BYTES])
{
    return ht_builtin_name(&ht_ssd_file, 1, index, buf, HT_NAME_BYTES);
}
