#include "common/model/zoo.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <sys/stat.h>

#include "common/base/array.h"
#include "common/base/builtin.h"
#include "common/model/hf_config.h"

HT_EMBED(ht_gpt_yaml, "common/model/gpt.yaml");
HT_EMBED(ht_llama_yaml, "common/model/llama.yaml");
HT_EMBED(ht_bert_yaml, "common/model/bert.yaml");
HT_EMBED(ht_vit_yaml, "common/model/vit.yaml");
HT_EMBED(ht_dit_yaml, "common/model/dit.yaml");
HT_EMBED(ht_autohet_yaml, "common/model/autohet.yaml");
HT_EMBED(ht_cephalo_yaml, "common/model/cephalo.yaml");
HT_EMBED(ht_sysx_yaml, "common/model/sysx.yaml");
HT_EMBED(ht_spipe_yaml, "common/model/spipe.yaml");
HT_EMBED(ht_lohan_yaml, "common/model/lohan.yaml");
HT_EMBED(ht_datastates_yaml, "common/model/datastates.yaml");

static const struct ht_builtin ht_zoo_files[] = {
    {"builtin:gpt.yaml", ht_gpt_yaml, ht_gpt_yaml_end},
    {"builtin:llama.yaml", ht_llama_yaml, ht_llama_yaml_end},
    {"builtin:bert.yaml", ht_bert_yaml, ht_bert_yaml_end},
    {"builtin:vit.yaml", ht_vit_yaml, ht_vit_yaml_end},
    {"builtin:dit.yaml", ht_dit_yaml, ht_dit_yaml_end},
    {"builtin:autohet.yaml", ht_autohet_yaml, ht_autohet_yaml_end},
    {"builtin:cephalo.yaml", ht_cephalo_yaml, ht_cephalo_yaml_end},
    {"builtin:sysx.yaml", ht_sysx_yaml, ht_sysx_yaml_end},
    {"builtin:spipe.yaml", ht_spipe_yaml, ht_spipe_yaml_end},
    {"builtin:lohan.yaml", ht_lohan_yaml, ht_lohan_yaml_end},
    {"builtin:datastates.yaml", ht_datastates_yaml, ht_datastates_yaml_end}};

/* A model as files write it; ffn and kv_heads are 0 if they are left out, tied is then GPT's default. */
struct ht_model_entry {
    struct ht_model model;
    char source[256], note[256], lacks[128];
};

static const char *const ht_arch_names[] = {"gpt", "llama", "bert", "vit", "dit"};

/* Bounds are far beyond any model, and small enough that no byte count of one overflows 64 bits. */
#define AT(m) .offset = offsetof(struct ht_model_entry, m)
static const struct ht_field ht_model_fields[] = {
    {.key = "name", .type = HT_FIELD_STRING, AT(model.name), .size = sizeof(((struct ht_model *)0)->name)},
    {.key = "arch", .type = HT_FIELD_ENUM, AT(model.arch), .names = ht_arch_names, .n_names = 5, .fallback = "gpt"},
    {.key = "layers", .type = HT_FIELD_INT, AT(model.layers), .required = true, .min = 1, .max = 10000},
    {.key = "width", .type = HT_FIELD_INT, AT(model.width), .required = true, .min = 1, .max = 1 << 17},
    {.key = "heads", .type = HT_FIELD_INT, AT(model.heads), .required = true, .min = 1, .max = 1 << 17},
    {.key = "ffn", .type = HT_FIELD_INT, AT(model.ffn), .min = 1, .max = 1 << 20},
    {.key = "vocab", .type = HT_FIELD_INT, AT(model.vocab), .min = 2, .max = 1 << 22},
    {.key = "max_seq", .type = HT_FIELD_INT, AT(model.max_seq), .min = 1, .max = 1 << 20},
    {.key = "classes", .type = HT_FIELD_INT, AT(model.classes), .min = 2, .max = 1 << 22},
    {.key = "image", .type = HT_FIELD_INT, AT(model.image), .min = 1, .max = 1 << 13},
    {.key = "patch", .type = HT_FIELD_INT, AT(model.patch), .min = 1, .max = 1 << 10},
    {.key = "channels", .type = HT_FIELD_INT, AT(model.channels), .min = 1, .max = 1 << 6},
    {.key = "kv_heads", .type = HT_FIELD_INT, AT(model.kv_heads), .min = 1, .max = 1 << 17},
    {.key = "rope_theta", .type = HT_FIELD_DOUBLE, AT(model.rope_theta), .fallback = "10000", .min = 1, .max = 1e12},
    {.key = "norm_eps", .type = HT_FIELD_DOUBLE, AT(model.norm_eps), .fallback = "1e-5", .min = 1e-12, .max = 1},
    {.key = "tied", .type = HT_FIELD_BOOL, AT(model.tied), .fallback = "true"},
    {.key = "flash", .type = HT_FIELD_BOOL, AT(model.flash), .fallback = "false"},
    {.key = "dropout", .type = HT_FIELD_BOOL, AT(model.dropout), .fallback = "false"},
    {.key = "source", .type = HT_FIELD_STRING, AT(source), .size = sizeof(((struct ht_model_entry *)0)->source)},
    {.key = "note", .type = HT_FIELD_STRING, AT(note), .size = sizeof(((struct ht_model_entry *)0)->note)},
    {.key = "lacks", .type = HT_FIELD_STRING, AT(lacks), .size = sizeof(((struct ht_model_entry *)0)->lacks)},
    {0},
};

/* Checks that a key is in the file, or that it is not: of another architecture. */
static enum ht_status ht_want_key(const struct ht_node *map, const char *key, struct ht_error *err)
{
    if (ht_node_find(map, key)) return HT_OK;
    return ht_node_error(map, err, "the key '%s' is missing; expected '%s: ...'", key, key);
}

static enum ht_status ht_want_no_key(const struct ht_node *map, const char *key, const char *why, struct ht_error *err)
{
    const struct ht_node *node = ht_node_find(map, key);
    return node ? ht_node_key_error(node, err, "%s", why) : HT_OK;
}

/* Refuses keys that only LLaMA has. */
static enum ht_status ht_gpt_finish(const struct ht_node *map, struct ht_error *err, struct ht_model *m)
{
    static const char *const foreign[] = {"kv_heads", "rope_theta", "norm_eps"};
    for (size_t i = 0; i < HT_COUNT(foreign); i++)
        if (ht_node_find(map, foreign[i]))
            return ht_node_key_error(ht_node_find(map, foreign[i]), err, "is for 'arch: llama' only");
    if (m->ffn == 0) m->ffn = 4 * m->width;
    m->rope_theta = m->norm_eps = 0;
    return HT_OK;
}

static enum ht_status ht_bert_finish(const struct ht_node *map, struct ht_error *err, struct ht_model *m)
{
    enum ht_status st = ht_gpt_finish(map, err, m);
    if (st) return st;
    if (m->classes == 0)
        return ht_node_error(map, err, "the key 'classes' is missing; expected 'classes: ...' with 'arch: bert'");
    if (m->tied && ht_node_find(map, "tied"))
        return ht_node_error(ht_node_find(map, "tied"), err, "BERT's head has no token table here; expected false");
    m->tied = false;
    return HT_OK;
}

/* Computes the tokens of a ViT's image, or of a DiT's latents. */
static enum ht_status ht_patches_finish(const struct ht_node *map, struct ht_error *err, struct ht_model *m)
{
    static const char *const wanted[] = {"image", "patch", "classes"};
    enum ht_status st = ht_gpt_finish(map, err, m);
    bool dit = m->arch == HT_ARCH_DIT;
    for (size_t i = 0; i < HT_COUNT(wanted) && st == HT_OK; i++) st = ht_want_key(map, wanted[i], err);
    if (st == HT_OK) st = ht_want_no_key(map, "vocab", "is for models that read tokens", err);
    if (st == HT_OK)
        st = ht_want_no_key(map, "max_seq", "is for models that read tokens; image and patch give it", err);
    if (st) return st;
    if (m->tied && ht_node_find(map, "tied"))
        return ht_node_error(ht_node_find(map, "tied"), err, "a model of images has no token table; expected false");
    if (dit && m->dropout) return ht_node_error(ht_node_find(map, "dropout"), err, "DiT has none; expected false");
    if (m->image % m->patch)
        return ht_node_error(ht_node_find(map, "patch"), err,
                             "%lld pixels do not divide the image's %lld; expected a divisor of them",
                             (long long)m->patch, (long long)m->image);
    if (!m->channels) m->channels = dit ? 4 : 3;
    m->tied = false;
    m->max_seq = ht_model_patches(m) + !dit; /* ViT: and the class token */
    if (m->max_seq > 1 << 20)
        return ht_node_error(ht_node_find(map, "patch"), err, "leaves %lld patches; expected fewer than %d",
                             (long long)ht_model_patches(m), 1 << 20);
    return HT_OK;
}

static enum ht_status ht_llama_finish(const struct ht_node *map, struct ht_error *err, struct ht_model *m)
{
    if (m->ffn == 0) /* LLaMA has no customary multiple of the width */
        return ht_node_error(map, err, "the key 'ffn' is missing; expected 'ffn: ...' with 'arch: llama'");
    if (m->width / m->heads % 2 != 0)
        return ht_node_error(ht_node_find(map, "heads"), err,
                             "a head has %lld elements; expected an even number, since rotary positions turn pairs",
                             (long long)(m->width / m->heads));
    m->kv_heads = ht_model_kv_heads(m);
    if (m->heads % m->kv_heads != 0)
        return ht_node_error(ht_node_find(map, "kv_heads"), err,
                             "%lld heads of keys and values do not divide the %lld heads; expected a divisor of them",
                             (long long)m->kv_heads, (long long)m->heads);
    if (m->dropout) return ht_node_error(ht_node_find(map, "dropout"), err, "LLaMA has none; expected false");
    m->tied = m->tied && ht_node_find(map, "tied");
    return HT_OK;
}

static enum ht_status ht_model_read(const struct ht_node *map, const char *name, struct ht_error *err,
                                    struct ht_model *out)
{
    struct ht_model_entry e = {0};
    enum ht_status st = ht_config_load(map, ht_model_fields, err, &e);
    if (st) return st;
    struct ht_model *m = &e.model;
    if (m->width % m->heads != 0)
        return ht_node_error(ht_node_find(map, "heads"), err,
                             "%lld heads do not divide the width %lld; expected a divisor of the width",
                             (long long)m->heads, (long long)m->width);
    if (!ht_arch_classifies(m->arch) && m->arch != HT_ARCH_DIT)
        st = ht_want_no_key(map, "classes", "is for 'arch: bert', 'arch: vit' and 'arch: dit' only", err);
    if (!ht_arch_has_patches(m->arch)) {
        if (!st) st = ht_want_key(map, "vocab", err);
        if (!st) st = ht_want_key(map, "max_seq", err);
        if (!st) st = ht_want_no_key(map, "image", "is for 'arch: vit' and 'arch: dit' only", err);
        if (!st) st = ht_want_no_key(map, "patch", "is for 'arch: vit' and 'arch: dit' only", err);
        if (!st) st = ht_want_no_key(map, "channels", "is for 'arch: vit' and 'arch: dit' only", err);
    }
    if (st) return st;
    st = m->arch == HT_ARCH_LLAMA       ? ht_llama_finish(map, err, m)
         : m->arch == HT_ARCH_BERT      ? ht_bert_finish(map, err, m)
         : ht_arch_has_patches(m->arch) ? ht_patches_finish(map, err, m)
                                        : ht_gpt_finish(map, err, m);
    if (st) return st;
    if (name) {
        if (m->name[0])
            return ht_node_error(ht_node_find(map, "name"), err, "names a model twice; expected only '%s:'", name);
        if (strlen(name) >= sizeof(m->name))
            return ht_node_key_error(map, err, "is too long; expected at most %zu characters", sizeof(m->name) - 1);
        strcpy(m->name, name);
    } else if (!m->name[0]) {
        return ht_node_error(map, err, "the key 'name' is missing; expected 'name: ...'");
    }
    if (e.lacks[0]) snprintf(m->lacks, sizeof(m->lacks), "there are no kernels for its %s", e.lacks);
    *out = *m;
    return HT_OK;
}

enum ht_status ht_model_parse(const struct ht_doc *doc, struct ht_error *err, struct ht_model *out)
{
    return ht_model_read(ht_doc_root(doc), NULL, err, out);
}

/* Loads a model from its file, or the config.json of a folder. */
static enum ht_status load_path(const char *path, struct ht_error *err, struct ht_model *out)
{
    char config[4096];
    struct stat sb;
    struct ht_doc *doc = NULL;
    if (stat(path, &sb) == 0 && S_ISDIR(sb.st_mode)) {
        size_t n = strlen(path);
        if (snprintf(config, sizeof(config), "%s%sconfig.json", path, path[n - 1] == '/' ? "" : "/") >= 4096)
            return ht_fail(err, HT_BAD_INPUT, "%.60s...: the path is too long", path);
        return ht_hf_config_load(config, err, out);
    }
    enum ht_status st = ht_doc_open(path, err, &doc);
    bool hf = !st && (ht_hf_is_config(path) || ht_node_find(ht_doc_root(doc), "model_type"));
    if (!st) st = hf ? ht_hf_config_parse(doc, err, out) : ht_model_parse(doc, err, out);
    ht_doc_destroy(doc);
    return st;
}

enum ht_status ht_model_load(const char *name_or_path, struct ht_error *err, struct ht_model *out)
{
    struct ht_doc *doc = NULL;
    const struct ht_node *entry = NULL;
    if (ht_is_path(name_or_path)) return load_path(name_or_path, err, out);
    enum ht_status st = ht_builtin_find(ht_zoo_files, HT_COUNT(ht_zoo_files), "model", name_or_path, err, &doc, &entry);
    if (st && *name_or_path && access(name_or_path, R_OK) == 0)
        return load_path(name_or_path, err, out); /* of any name */
    if (!st) st = ht_model_read(entry, entry->key, err, out);
    ht_doc_destroy(doc);
    return st;
}

bool ht_model_zoo_name(int64_t index, char buf[64])
{
    return ht_builtin_name(ht_zoo_files, HT_COUNT(ht_zoo_files), index, buf, 64);
}

enum ht_status ht_model_check_seq(const struct ht_model *model, int64_t seq, struct ht_error *err)
{
    if (ht_arch_has_patches(model->arch) && seq != model->max_seq)
        return ht_fail(err, HT_BAD_INPUT, "sequence length %lld does not fit model '%s'; its images have %lld tokens",
                       (long long)seq, model->name, (long long)model->max_seq);
    if (seq < 1 || seq > model->max_seq)
        return ht_fail(err, HT_BAD_INPUT, "sequence length %lld does not fit model '%s'; expected 1 to %lld",
                       (long long)seq, model->name, (long long)model->max_seq);
    return HT_OK;
}
